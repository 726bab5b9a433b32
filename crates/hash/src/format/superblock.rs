//! The state of a store between two runs: one page, in two slots (`docs/formats/hash.md`).
//!
//! 1. Each change of the superblock has a *generation*, one more than the last.
//! 2. The store writes slot 0 and makes it durable. Then it does the same with slot 1. Only then does it act on the
//!    change: it releases log files, or lets readers see split buckets.
//! 3. Opening takes the sound slot with the highest generation.
//!
//! **Failure.** A crash tears at most one slot. The other one has this generation or the one before, and the store has
//! not acted on the new one. Rot of one slot loses nothing, as both hold the same generation at rest.
//!
//! **Rejected.** Writing the slots in turn costs one write less. Then rot of the newer slot would bring back a state
//! whose log files are gone, and whose buckets have been split since.

use crate::format::address::State;
use crate::format::fields::{At, Fields, Mismatch, is_zero, require_checksum};
use crate::{Error, StoreId};

/// Bytes of one slot.
pub const SLOT_BYTES: usize = 4096;

/// The number of slots, one behind the other.
pub const SLOTS: usize = 2;

/// Longest path of a device that a superblock remembers.
pub const DEVICE_PATH_BYTES_MAX: usize = 2048;

/// The first bytes of a slot.
pub(crate) const SUPERBLOCK_MAGIC: [u8; 8] = *b"SITUhash";

/// The version of a store's formats, as one number.
pub const STORE_FORMAT: u32 = 1;

/// The offset of the checksum of a slot: behind all that it covers.
pub(crate) const SLOT_CHECKSUM_AT: usize = SLOT_BYTES - 4;

/// The contents of all buckets: numbers and lengths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Entries in buckets.
    pub entries: u64,
    /// Bytes of these entries.
    pub bytes: u64,
    /// Entries in the overflow.
    pub overflow_entries: u64,
    /// Bytes of these entries.
    pub overflow_bytes: u64,
}

impl Totals {
    /// Returns a sentence on the first number in which the buckets differ from these totals of the superblock.
    pub(crate) fn difference(&self, buckets: &Totals) -> String {
        let numbers = |totals: &Totals| {
            let Totals { entries, bytes, overflow_entries, overflow_bytes } = *totals;
            [entries, overflow_entries, bytes, overflow_bytes].map(thousands)
        };
        let units = ["entries", "entries in the overflow", "bytes of entries", "bytes in the overflow"];
        let (counted, held) = (numbers(self), numbers(buckets));
        let differs = (0..units.len()).find(|at| counted[*at] != held[*at]).unwrap_or(0);
        format!("The superblock counts {} {}; the buckets hold {}.", counted[differs], units[differs], held[differs])
    }
}

/// Returns a number with a comma before each three digits.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let rest = digits.as_bytes()[first..].chunks(3).map(|group| String::from_utf8_lossy(group));
    let groups = std::iter::once(digits[..first].into()).chain(rest).filter(|group| !group.is_empty());
    groups.collect::<Vec<_>>().join(",")
}

/// The state of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// The number of this write of the superblock. The first has number 1.
    pub generation: u64,
    /// The store.
    pub store: StoreId,
    /// The seed of the hash of keys.
    pub seed: u64,
    /// True if the store was closed: then all buckets are durable, and the log holds nothing that they lack.
    pub is_clean: bool,
    /// The number of buckets.
    pub state: State,
    /// The epoch of the tallies in buckets. The first is 1.
    pub epoch: u32,
    /// The last operation that all buckets had when the epoch began.
    pub sequence: u64,
    /// The oldest log file that is needed.
    pub first_log_file: u64,
    /// The next file gets this number or a higher one.
    pub next_file: u64,
    /// Images of batches with a lower number are not needed: their buckets were durable when the epoch began.
    pub first_image_batch: u64,
    /// The contents of all buckets when the epoch began.
    pub totals: Totals,
    /// The device of the bucket space, as it was named last; none: the file in the home directory. It decides nothing:
    /// the mark on the device does.
    pub device: Option<String>,
}

/// The newest superblock that the slots hold.
#[derive(Debug, Clone)]
pub struct Newest {
    /// The superblock with the highest generation.
    pub superblock: Superblock,
    /// The other slot is damaged, as a crash in the middle of a change leaves it, or rot.
    pub damage: Option<Error>,
}

impl Superblock {
    /// Returns a slot with this superblock.
    ///
    /// # Panics
    /// The generation or the epoch is 0, or the path of the device is empty or longer than
    /// [`DEVICE_PATH_BYTES_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.generation > 0 && self.epoch > 0, "generations and epochs begin with 1");
        let device = self.device.as_deref().unwrap_or_default();
        assert!(self.device.is_none() == device.is_empty(), "a device has a path");
        assert!(device.len() <= DEVICE_PATH_BYTES_MAX, "the caller has checked the path of the device");
        let mut slot = Vec::with_capacity(SLOT_BYTES);
        slot.extend_from_slice(&SUPERBLOCK_MAGIC);
        slot.extend_from_slice(&STORE_FORMAT.to_le_bytes());
        slot.extend_from_slice(&[u8::from(self.is_clean), self.state.base_bits(), self.state.level(), 0]);
        slot.extend_from_slice(&self.generation.to_le_bytes());
        slot.extend_from_slice(&self.store.0);
        slot.extend_from_slice(&self.seed.to_le_bytes());
        slot.extend_from_slice(&self.state.split().to_le_bytes());
        slot.extend_from_slice(&u64::from(self.epoch).to_le_bytes());
        for number in self.numbers() {
            slot.extend_from_slice(&number.to_le_bytes());
        }
        slot.extend_from_slice(&(device.len() as u64).to_le_bytes());
        slot.extend_from_slice(device.as_bytes());
        slot.resize(SLOT_CHECKSUM_AT, 0);
        let checksum = crc32c::crc32c(&slot);
        slot.extend_from_slice(&checksum.to_le_bytes());
        slot
    }

    /// Returns true if the store was made whole. A superblock of generation 1 is that of a store that is being made:
    /// opening writes the next one when overflow and buckets are there.
    pub(crate) fn is_of_made_store(&self) -> bool {
        self.generation > 1
    }

    /// Returns the fields behind the epoch, but the path.
    fn numbers(&self) -> [u64; 8] {
        let Totals { entries, bytes, overflow_entries, overflow_bytes } = self.totals;
        [
            self.sequence,
            self.first_log_file,
            self.next_file,
            self.first_image_batch,
            entries,
            bytes,
            overflow_entries,
            overflow_bytes,
        ]
    }

    /// Reads slot number `slot` of the superblock at `path`. None if the slot is all zeros: it was never written.
    ///
    /// # Errors
    /// [`Error::Newer`] if a newer program has written it; [`situ_storage::Error::Corruption`] if it is not what was
    /// written.
    ///
    /// # Panics
    /// The slot is not [`SLOT_BYTES`] long.
    pub fn decode(path: &str, slot: usize, bytes: &[u8]) -> crate::Result<Option<Superblock>> {
        assert_eq!(bytes.len(), SLOT_BYTES, "a slot is read whole");
        if is_zero(bytes) {
            return Ok(None);
        }
        let damaged = |mismatch: Mismatch| {
            mismatch.at(path, (slot * SLOT_BYTES) as u64, format_args!("slot {slot} of the superblock"))
        };
        let (mut fields, format) = unseal(bytes).map_err(damaged)?;
        if format != STORE_FORMAT {
            let what = format!("the store has format {format}, and this program knows {STORE_FORMAT}");
            return Err(Error::Newer { path: path.to_owned(), what });
        }
        decode_fields(&mut fields).map(Some).map_err(damaged)
    }

    /// Returns the newest superblock of both slots, whose bytes lie one behind the other. None if both were never
    /// written.
    ///
    /// # Errors
    /// As [`decode`](Superblock::decode), if neither slot is sound, or if a newer program has written one. Corruption,
    /// too, if the slots belong to two stores.
    ///
    /// # Panics
    /// The bytes are not those of [`SLOTS`] slots.
    pub fn newest(path: &str, bytes: &[u8]) -> crate::Result<Option<Newest>> {
        assert_eq!(bytes.len(), SLOTS * SLOT_BYTES, "both slots are read");
        let (first, second) = bytes.split_at(SLOT_BYTES);
        match (Superblock::decode(path, 0, first), Superblock::decode(path, 1, second)) {
            (Err(error @ Error::Newer { .. }), _) | (_, Err(error @ Error::Newer { .. })) => Err(error),
            (Ok(Some(first)), Ok(Some(second))) => newer(path, first, second).map(Some),
            (Ok(Some(superblock)), Ok(None)) | (Ok(None), Ok(Some(superblock))) => {
                Ok(Some(Newest { superblock, damage: None }))
            }
            (Ok(Some(superblock)), Err(damage)) | (Err(damage), Ok(Some(superblock))) => {
                Ok(Some(Newest { superblock, damage: Some(damage) }))
            }
            (Ok(None), Ok(None)) => Ok(None),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }
}

fn newer(path: &str, first: Superblock, second: Superblock) -> crate::Result<Newest> {
    if first.store != second.store {
        let mismatch = Mismatch::new("store", format_args!("store {}, as in slot 0", first.store), second.store);
        return Err(mismatch.at(path, SLOT_BYTES as u64, "slot 1 of the superblock"));
    }
    let superblock = if second.generation > first.generation { second } else { first };
    Ok(Newest { superblock, damage: None })
}

/// Returns the fields behind the format, and the format.
fn unseal(slot: &[u8]) -> Result<(Fields<'_>, u32), Mismatch> {
    let (sealed, stored) = slot.split_at(SLOT_CHECKSUM_AT);
    require_checksum(Fields(stored).u32("checksum")?, crc32c::crc32c(sealed))?;
    let mut fields = Fields(sealed);
    let magic = fields.take(SUPERBLOCK_MAGIC.len(), "magic")?;
    if magic != SUPERBLOCK_MAGIC {
        return Err(Mismatch::new("magic", format_args!("{SUPERBLOCK_MAGIC:02x?}"), format_args!("{magic:02x?}")));
    }
    let format = fields.u32("format")?;
    Ok((fields, format))
}

fn decode_fields(fields: &mut Fields<'_>) -> Result<Superblock, Mismatch> {
    let is_clean = match fields.u8("clean")? {
        flag @ (0 | 1) => flag == 1,
        flag => return Err(Mismatch::new("clean", "0 or 1", flag)),
    };
    let [base_bits, level] = fields.array("base and level")?;
    fields.zeros(1, "reserved byte")?;
    let generation = fields.u64("generation").and_then(|number| at_least_1(number, "generation"))?;
    let store = StoreId(fields.array("store")?);
    let seed = fields.u64("seed")?;
    let split = fields.u64("split")?;
    let state = State::from_parts(base_bits, level, split)
        .ok_or_else(|| Mismatch::new("state", "a state that can be", format_args!("{base_bits}, {level}, {split}")))?;
    let epoch = fields.u64("epoch").and_then(|number| at_least_1(number, "epoch"))?;
    let epoch = u32::try_from(epoch).map_err(|_| Mismatch::new("epoch", "less than 2^32", epoch))?;
    Ok(Superblock {
        generation,
        store,
        seed,
        is_clean,
        state,
        epoch,
        sequence: fields.u64("sequence number")?,
        first_log_file: fields.u64("first log file")?,
        next_file: fields.u64("next file")?,
        first_image_batch: fields.u64("first batch of images")?,
        totals: Totals {
            entries: fields.u64("entries")?,
            bytes: fields.u64("bytes")?,
            overflow_entries: fields.u64("overflow entries")?,
            overflow_bytes: fields.u64("overflow bytes")?,
        },
        device: decode_device(fields)?,
    })
}

fn at_least_1(number: u64, part: &'static str) -> Result<u64, Mismatch> {
    if number > 0 { Ok(number) } else { Err(Mismatch::new(part, "at least 1", number)) }
}

fn decode_device(fields: &mut Fields<'_>) -> Result<Option<String>, Mismatch> {
    let count = fields.u64("length of the device's path")?;
    let count = usize::try_from(count).ok().filter(|count| *count <= DEVICE_PATH_BYTES_MAX).ok_or_else(|| {
        Mismatch::new("length of the device's path", format_args!("at most {DEVICE_PATH_BYTES_MAX}"), count)
    })?;
    let path = fields.take(count, "device's path")?;
    let path = str::from_utf8(path).map_err(|error| Mismatch::new("device's path", "UTF-8", error))?;
    fields.zeros(fields.0.len(), "zeros behind the fields")?;
    Ok((!path.is_empty()).then(|| path.to_owned()))
}

#[cfg(test)]
mod tests;
