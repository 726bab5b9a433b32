//! The 4096 bytes of a bucket (`docs/formats/hash.md`).
//!
//! ```text
//!  | header, 64 bytes | entry | entry | ... | zeros ... |
//!  0                  64                    64 + used   4096
//! ```
//!
//! * A block of zeros is a bucket without entries: one that was never written, or was discarded.
//! * The checksum covers the header and the entries. It begins with the store's id and the bucket's number, so a write
//!   that went to another place is found. The bytes behind the entries must be zeros. So each of the 4096 bytes is
//!   checked.
//! * [`BucketCodec::find`] is the hot path of a read. It checks the block and walks the entries until it meets the key.
//!   [`BucketCodec::open`] walks all of them once; later walks cannot fail.
//! * A bucket counts itself: what it holds now, and what it held when its epoch began ([`Tally`]). Counts of the store
//!   follow from these also after a crash.
//!
//! **Failure.** Decoders are total: any 4096 bytes give entries or an error that says what was expected and what was
//! found.
//!
//! **Rejected.** Sorted entries, or a fingerprint of each: with nine entries in a block, comparing lengths first is as
//! fast.

use crate::StoreId;
use crate::format::entry::Entry;
use crate::format::fields::{At, Fields, Mismatch, is_zero, require_checksum, require_zeros};
use crate::format::geometry::bucket_offset;
use situ_base::bytes::{u16_at, u32_at};

pub use crate::format::geometry::{BUCKET_BYTES, BUCKET_HEADER_BYTES, USABLE_BYTES};

/// The format of a bucket. Not 0: so a bucket that was written is no block of zeros.
pub(crate) const BUCKET_FORMAT: u8 = 1;

/// Set if an entry of the bucket expires.
pub(crate) const FLAG_EXPIRES: u8 = 1;

/// The offsets of the fields of the header.
pub(crate) mod at {
    pub(crate) const CHECKSUM: usize = 0;
    pub(crate) const FORMAT: usize = 4;
    pub(crate) const FLAGS: usize = 5;
    pub(crate) const RESERVED: usize = 6;
    pub(crate) const SEQUENCE: usize = 8;
    pub(crate) const EPOCH: usize = 16;
    pub(crate) const NOW: usize = 20;
    pub(crate) const BEFORE: usize = 32;
    pub(crate) const RESERVED_END: usize = 44;
}

/// The contents of a bucket: numbers and lengths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Entries in the bucket.
    pub entries: u16,
    /// Bytes of these entries.
    pub bytes: u16,
    /// Entries of this bucket in the overflow. The overflow is asked only if there are any.
    pub overflow_entries: u32,
    /// Bytes of these entries ([`overflow_bytes`](crate::format::entry::overflow_bytes)).
    pub overflow_bytes: u32,
}

impl Tally {
    /// Bytes of a tally in the header.
    pub(crate) const BYTES: usize = 12;

    fn to_bytes(self) -> [u8; Tally::BYTES] {
        let mut bytes = [0; Tally::BYTES];
        bytes[0..2].copy_from_slice(&self.entries.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.overflow_entries.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.overflow_bytes.to_le_bytes());
        bytes
    }

    fn take(fields: &mut Fields<'_>, part: &'static str) -> Result<Tally, Mismatch> {
        Ok(Tally {
            entries: fields.u16(part)?,
            bytes: fields.u16(part)?,
            overflow_entries: fields.u32(part)?,
            overflow_bytes: fields.u32(part)?,
        })
    }
}

/// The header of a bucket. That of a block of zeros is the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    /// The last operation that was applied to the bucket.
    pub sequence: u64,
    /// The epoch in which the bucket was last written. Epochs begin with 1.
    pub epoch: u32,
    /// The contents of the bucket.
    pub now: Tally,
    /// The contents of the bucket when its epoch began.
    pub before: Tally,
    /// True if an entry in the bucket expires.
    pub expires: bool,
}

impl Header {
    /// Returns the contents of the bucket at the beginning of `epoch`, which is the bucket's own or a later one: the
    /// field [`before`](Header::before) of the next contents.
    pub fn before_in(&self, epoch: u32) -> Tally {
        if self.epoch == epoch { self.before } else { self.now }
    }

    /// Returns true if the bucket was written in `epoch` or before, by operations up to `sequence`.
    pub(crate) fn is_within(&self, epoch: u32, sequence: u64) -> bool {
        self.epoch <= epoch && self.sequence <= sequence
    }
}

/// The facts that the writer of a bucket knows in addition to the entries in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The last operation that was applied.
    pub sequence: u64,
    /// The epoch.
    pub epoch: u32,
    /// The contents of the bucket when the epoch began ([`Header::before_in`]).
    pub before: Tally,
    /// Entries of the bucket in the overflow.
    pub overflow_entries: u32,
    /// Bytes of these entries.
    pub overflow_bytes: u32,
}

/// The reader and writer of the buckets of one store.
#[derive(Debug, Clone)]
pub struct BucketCodec {
    path: String,
    store: StoreId,
    /// The checksum of the store's id, with which each bucket's checksum begins.
    seed: u32,
}

/// A bucket whose every byte was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket<'a> {
    header: Header,
    entries: &'a [u8],
}

/// The result of a look-up in a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<'a> {
    /// The header of the bucket.
    pub header: Header,
    /// The entry of the key.
    pub entry: Option<Entry<'a>>,
}

impl BucketCodec {
    /// Returns the codec of the buckets of `store`, whose bucket space is at `path`. Errors name that path.
    pub fn new(path: impl Into<String>, store: StoreId) -> BucketCodec {
        BucketCodec { path: path.into(), store, seed: crc32c::crc32c(&store.0) }
    }

    /// Returns the path that errors name.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Finds `key` in bucket `number`, whose bytes are `block`.
    ///
    /// # Errors
    /// [`situ_storage::Error::Corruption`] if the block is not what was written as this bucket. Entries behind the key
    /// are not looked at.
    ///
    /// # Panics
    /// The block is not [`BUCKET_BYTES`] long.
    #[inline]
    pub fn find<'a>(&self, number: u64, block: &'a [u8], key: &[u8]) -> crate::Result<Found<'a>> {
        let find = || {
            let bucket = self.unseal(number, block)?;
            let entry = bucket.walk().find(|entry| !entry.as_ref().is_ok_and(|entry| entry.key != key)).transpose()?;
            Ok(Found { header: bucket.header, entry })
        };
        find().map_err(|mismatch| self.damaged(number, mismatch))
    }

    /// Checks bucket `number`, whose bytes are `block`, and all of its entries.
    ///
    /// # Errors
    /// [`situ_storage::Error::Corruption`] if the block is not what was written as this bucket.
    ///
    /// # Panics
    /// The block is not [`BUCKET_BYTES`] long.
    pub fn open<'a>(&self, number: u64, block: &'a [u8]) -> crate::Result<Bucket<'a>> {
        let open = || {
            let bucket = self.unseal(number, block)?;
            let walk = &mut bucket.walk();
            let expires = walk.try_fold(false, |expires, entry| Ok(expires | entry?.expires_ms.is_some()))?;
            walk.end()?;
            require_flag(bucket.header.expires, expires)?;
            Ok(bucket)
        };
        open().map_err(|mismatch| self.damaged(number, mismatch))
    }

    /// Writes a whole bucket.
    ///
    /// # Panics
    /// As [`BucketWriter::new`] and [`BucketWriter::finish`]; the entries do not fit, or one has lengths that no entry
    /// has.
    pub fn encode<'e>(
        &self,
        number: u64,
        stamp: &Stamp,
        entries: impl IntoIterator<Item = Entry<'e>>,
        block: &mut [u8],
    ) -> Header {
        let mut writer = BucketWriter::new(block);
        for entry in entries {
            assert!(writer.push(&entry), "the caller has chosen entries that fit");
        }
        writer.finish(self, number, stamp)
    }

    /// Returns the error that bucket `number` is not what was written.
    #[cold]
    pub(crate) fn damaged(&self, number: u64, mismatch: Mismatch) -> crate::Error {
        let what = format_args!("bucket {number} of store {}", self.store);
        mismatch.at(&self.path, bucket_offset(number), what)
    }

    #[inline]
    fn checksum(&self, number: u64, sealed: &[u8]) -> u32 {
        let seed = crc32c::crc32c_append(self.seed, &number.to_le_bytes());
        crc32c::crc32c_append(seed, sealed)
    }

    /// Checks everything but the entries' structure.
    #[inline]
    fn unseal<'a>(&self, number: u64, block: &'a [u8]) -> Result<Bucket<'a>, Mismatch> {
        assert_eq!(block.len(), BUCKET_BYTES, "a bucket is read whole");
        if block[at::FORMAT] == 0 {
            require_zeros(block, "a block of zeros, as its format is 0")?;
            return Ok(Bucket { header: Header::default(), entries: &[] });
        }
        let used = usize::from(u16_at(block, at::NOW + 2));
        if used > USABLE_BYTES {
            return Err(Mismatch::new("bytes of entries", format_args!("at most {USABLE_BYTES}"), used));
        }
        let (sealed, rest) = block.split_at(BUCKET_HEADER_BYTES + used);
        let (stored, sealed) = sealed.split_at(at::FORMAT);
        require_checksum(u32_at(stored, 0), self.checksum(number, sealed))?;
        require_zeros(rest, "the zeros behind the entries")?;
        let (header, entries) = sealed.split_at(BUCKET_HEADER_BYTES - at::FORMAT);
        Ok(Bucket { header: header_of(header)?, entries })
    }
}

/// Returns the header, from the format on.
fn header_of(bytes: &[u8]) -> Result<Header, Mismatch> {
    let mut fields = Fields(bytes);
    let format = fields.u8("format")?;
    if format != BUCKET_FORMAT {
        return Err(Mismatch::new("format", BUCKET_FORMAT, format));
    }
    let flags = fields.u8("flags")?;
    if flags & !FLAG_EXPIRES != 0 {
        return Err(Mismatch::new("flags", format_args!("0 or {FLAG_EXPIRES}"), flags));
    }
    fields.zeros(at::SEQUENCE - at::RESERVED, "reserved bytes")?;
    let header = Header {
        sequence: fields.u64("sequence number")?,
        epoch: fields.u32("epoch")?,
        now: Tally::take(&mut fields, "tally")?,
        before: Tally::take(&mut fields, "tally of the epoch's beginning")?,
        expires: flags & FLAG_EXPIRES != 0,
    };
    fields.zeros(BUCKET_HEADER_BYTES - at::RESERVED_END, "reserved bytes at the header's end")?;
    if header.epoch == 0 {
        return Err(Mismatch::new("epoch", "at least 1", 0));
    }
    Ok(header)
}

fn require_flag(stored: bool, expires: bool) -> Result<(), Mismatch> {
    let text = |expires| if expires { "an entry expires" } else { "no entry expires" };
    if stored == expires { Ok(()) } else { Err(Mismatch::new("flags", text(expires), text(stored))) }
}

/// Returns the number of bytes of a block that the header and the entries take. An image of the bucket has to keep
/// them. The number is 0 if the block is all zeros.
///
/// # Panics
/// The block is not [`BUCKET_BYTES`] long, or says that its entries are longer than a bucket. The caller has just
/// written it, or has checked it.
pub fn sealed_bytes(block: &[u8]) -> usize {
    assert_eq!(block.len(), BUCKET_BYTES, "a bucket is whole");
    if block[at::FORMAT] == 0 {
        return 0;
    }
    let used = usize::from(u16_at(block, at::NOW + 2));
    assert!(used <= USABLE_BYTES, "the caller has checked the bucket");
    BUCKET_HEADER_BYTES + used
}

impl<'a> Bucket<'a> {
    /// Returns the header of the bucket.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the entry of a key.
    pub fn find(&self, key: &[u8]) -> Option<Entry<'a>> {
        self.entries().find(|entry| entry.key == key)
    }

    /// Returns all entries, in the order in which they were written.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'a>> + Clone + use<'a> {
        // A `Bucket` exists only if its walk has found no error.
        self.walk().map_while(Result::ok)
    }

    fn walk(&self) -> Walk<'a> {
        Walk { rest: Fields(self.entries), left: self.header.now.entries }
    }
}

/// The entries one by one. Ends behind the first error.
#[derive(Debug, Clone)]
struct Walk<'a> {
    rest: Fields<'a>,
    left: u16,
}

impl<'a> Iterator for Walk<'a> {
    type Item = Result<Entry<'a>, Mismatch>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let entry = Entry::take(&mut self.rest);
        if entry.is_err() {
            self.left = 0;
        }
        Some(entry)
    }
}

impl Walk<'_> {
    /// Checks that the entries fill their bytes.
    fn end(&self) -> Result<(), Mismatch> {
        let left = self.rest.0.len();
        if left == 0 {
            Ok(())
        } else {
            Err(Mismatch::new("entries", "as many bytes as they take", format_args!("{left} more")))
        }
    }
}

/// A writer that fills a bucket, entry by entry.
#[derive(Debug)]
pub struct BucketWriter<'b> {
    block: &'b mut [u8],
    used: usize,
    entries: u16,
    expires: bool,
}

impl<'b> BucketWriter<'b> {
    /// Begins a bucket in `block`, whose bytes may be anything.
    ///
    /// # Panics
    /// The block is not [`BUCKET_BYTES`] long.
    pub fn new(block: &'b mut [u8]) -> BucketWriter<'b> {
        assert_eq!(block.len(), BUCKET_BYTES, "a bucket is written whole");
        BucketWriter { block, used: 0, entries: 0, expires: false }
    }

    /// Returns the number of bytes that entries have taken so far.
    pub fn used_bytes(&self) -> usize {
        self.used
    }

    /// Appends an entry. False if it does not fit; then nothing has changed. The caller appends no key twice.
    ///
    /// # Panics
    /// The lengths are not those of an entry ([`Entry::check`]).
    pub fn push(&mut self, entry: &Entry<'_>) -> bool {
        if entry.encoded_bytes() > USABLE_BYTES - self.used {
            return false;
        }
        self.used += entry.write_to(&mut self.block[BUCKET_HEADER_BYTES + self.used..]);
        self.entries += 1;
        self.expires |= entry.expires_ms.is_some();
        true
    }

    /// Writes the header and the zeros behind the entries. Returns what the header says.
    ///
    /// # Panics
    /// The epoch is 0.
    pub fn finish(self, codec: &BucketCodec, number: u64, stamp: &Stamp) -> Header {
        assert!(stamp.epoch > 0, "epochs begin with 1");
        let now = Tally {
            entries: self.entries,
            bytes: u16::try_from(self.used).expect("entries fit into a bucket"),
            overflow_entries: stamp.overflow_entries,
            overflow_bytes: stamp.overflow_bytes,
        };
        let end = BUCKET_HEADER_BYTES + self.used;
        let block = self.block;
        block[end..].fill(0);
        block[..BUCKET_HEADER_BYTES].fill(0);
        block[at::FORMAT] = BUCKET_FORMAT;
        block[at::FLAGS] = if self.expires { FLAG_EXPIRES } else { 0 };
        block[at::SEQUENCE..at::EPOCH].copy_from_slice(&stamp.sequence.to_le_bytes());
        block[at::EPOCH..at::NOW].copy_from_slice(&stamp.epoch.to_le_bytes());
        block[at::NOW..at::BEFORE].copy_from_slice(&now.to_bytes());
        block[at::BEFORE..at::RESERVED_END].copy_from_slice(&stamp.before.to_bytes());
        let checksum = codec.checksum(number, &block[at::FORMAT..end]);
        block[at::CHECKSUM..at::FORMAT].copy_from_slice(&checksum.to_le_bytes());
        Header { sequence: stamp.sequence, epoch: stamp.epoch, now, before: stamp.before, expires: self.expires }
    }
}

/// Returns true if a block is all zeros: a bucket that was never written, or was discarded.
pub fn is_blank(block: &[u8]) -> bool {
    is_zero(block)
}

#[cfg(test)]
mod tests;
