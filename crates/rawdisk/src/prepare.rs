//! Making a Situ disk of a device, reading its metadata, checking all of it.

use super::frame;
use super::journal::{self, Replayed};
use super::layout::{Copy, DiskId, MAGIC, PAGE, Superblock};
use super::room::Extent;
use super::signature::Signature;
use super::transfer::{PIECE_BYTES, Transfers, places};
use situ_base::random;
use situ_device::{Buffer, Op};
use situ_storage::memory::zeroed;
use situ_storage::{Error, Result};
use std::io;

/// The bytes at the front of a device that are checked before it is written over.
const FOREIGN_FRONT_BYTES: u64 = 1 << 20;
/// And at its end, where partition tables and RAID have a copy.
const FOREIGN_BACK_BYTES: u64 = 64 << 10;
/// The maximum number of readings of a journal that another process writes.
const REPLAYS_MAX: usize = 100;

/// Options for formatting a disk.
#[derive(Debug, Clone, Default)]
pub struct FormatOptions {
    /// Bytes of the log area, rounded up to pages. Enough for the logs of all memtables that can exist at once, and as
    /// many spares; more is not used. Default: an eighth of the device, 8 GiB at most. A small device gives up to a
    /// quarter, to reach the 640 MiB that the log of a store with default options takes.
    pub log_bytes: Option<u64>,
    /// Bytes of one of the two halves of the metadata journal. A checkpoint of the catalogue is written each time that
    /// a half is full. Default: 1/2048 of the device, between 64 KiB and 4 MiB.
    pub journal_half_bytes: Option<u64>,
    /// The identity of the disk. Default: random, and that is right but in tests.
    pub id: Option<[u8; 16]>,
    /// Write over whatever is on the device. Default: false, and a device is refused that has anything but zeros in its
    /// first 1 MiB or its last 64 KiB. File systems, partition tables and Situ have their marks there. The part between
    /// is not checked: a device that holds data only there is formatted.
    pub force: bool,
}

fn random_id() -> Result<[u8; 16]> {
    random().map_err(|error| Error::io("read", "the system's random numbers", error))
}

pub(super) fn device_pages(transfers: &Transfers) -> u64 {
    transfers.device.space().logical_total / PAGE
}

fn read_pages(transfers: &Transfers, place: Extent) -> Result<Vec<u8>> {
    let mut bytes = zeroed((place.pages * PAGE) as usize, &transfers.location)?;
    transfers.read(&[place], 0, &mut bytes).map_err(|error| transfers.fail("read", error))?;
    Ok(bytes)
}

/// Reads both copies of the superblock of a device with a page at least, the second from the place that the first
/// names, or from the device's end.
fn read_copies(transfers: &Transfers) -> Result<[Copy; 2]> {
    let pages = device_pages(transfers);
    let read = |copy, page| {
        let bytes = read_pages(transfers, Extent { first: page, pages: 1 })?;
        Ok::<_, Error>(Superblock::decode(copy, &bytes))
    };
    let first = read(0, 0)?;
    let end = match &first {
        Copy::Sound(block) if block.device_pages <= pages => block.device_pages,
        _ => pages,
    };
    Ok([first, read(1, end - 1)?])
}

/// Returns the superblock that counts, and the copies that have to be written again.
pub(super) fn choose(transfers: &Transfers) -> Result<(Superblock, Vec<(u32, String)>)> {
    let location = &transfers.location;
    if device_pages(transfers) == 0 {
        let text = format!("{location} is not a Situ disk: it is shorter than a page, which has {PAGE} bytes");
        return Err(Error::Invalid(text));
    }
    let copies = read_copies(transfers)?;
    let mut sound: Vec<(u32, Superblock)> = Vec::new();
    let mut damaged = Vec::new();
    for (number, copy) in (0..).zip(copies) {
        match copy {
            Copy::Sound(block) => sound.push((number, block)),
            Copy::Version(version) => return Err(journal::newer(location, version)),
            Copy::Damaged(why) => damaged.push((number, why)),
        }
    }
    sound.sort_by_key(|(number, block)| (block.generation, std::cmp::Reverse(*number)));
    let Some((_, layout)) = sound.pop() else {
        let [(_, first), (_, second)] = [0, 1].map(|n| damaged.get(n).cloned().unwrap_or_default());
        return Err(Error::Invalid(format!(
            "{location} is not a Situ disk: it has {first} in its first page and {second} in its last one; \
             prepare it with `situ disk format`"
        )));
    };
    for (number, other) in sound {
        if (other.id, other.generation) != (layout.id, layout.generation) {
            damaged.push((number, format!("a superblock of disk {}, generation {}", other.id, other.generation)));
        }
    }
    let pages = device_pages(transfers);
    if pages < layout.device_pages {
        return Err(Error::Invalid(format!(
            "{location} has {} bytes, and was formatted with {}: the device was cut; make it as large as it was",
            pages * PAGE,
            layout.device_pages * PAGE
        )));
    }
    Ok((layout, damaged))
}

/// Reads the journal. Another process may be writing it, so that its pages are not all of one moment. A page that looks
/// damaged is read again, as long as that gives other bytes.
pub(super) fn replay(transfers: &Transfers, layout: &Superblock) -> Result<Replayed> {
    let mut seen = None;
    for _ in 0..REPLAYS_MAX {
        let half = |index| read_pages(transfers, Extent { first: layout.half_first(index), pages: layout.half_pages });
        let halves = [half(0)?, half(1)?];
        match replay_halves(transfers, layout, &halves) {
            Err(error) if error.is_corruption() && seen.as_ref() != Some(&halves) => seen = Some(halves),
            other => return other,
        }
    }
    let location = &transfers.location;
    Err(Error::Invalid(format!("the metadata of {location} changes faster than it can be read; try again")))
}

fn replay_halves(transfers: &Transfers, layout: &Superblock, halves: &[Vec<u8>; 2]) -> Result<Replayed> {
    journal::replay(layout, [&halves[0], &halves[1]], &transfers.location, &mut |extents, bytes| {
        let mut body = zeroed(bytes as usize, &transfers.location)?;
        let place = places(extents, 0, bytes.div_ceil(PAGE));
        transfers.read(&place, 0, &mut body).map_err(|error| transfers.fail("read", error))?;
        Ok(body)
    })
}

/// The metadata that was read from a disk when it was opened.
pub(super) struct Loaded {
    pub(super) layout: Superblock,
    pub(super) replayed: Replayed,
    pub(super) damaged_copies: Vec<u32>,
}

/// Reads everything that a volume has to know.
pub(super) fn load(transfers: &Transfers) -> Result<Loaded> {
    // Completed writes of an earlier process may not be durable yet, and later changes build upon the bytes read now.
    transfers.flush().map_err(|error| transfers.fail("flush", error))?;
    let (layout, damaged) = choose(transfers)?;
    let replayed = replay(transfers, &layout)?;
    let damaged_copies = damaged.into_iter().map(|(number, _)| number).collect();
    Ok(Loaded { layout, replayed, damaged_copies })
}

/// Returns the contents of a device at its front or its end, in words. `None` if there are only zeros. The part between
/// is not checked.
fn foreign(transfers: &Transfers) -> Result<Option<String>> {
    let pages = device_pages(transfers);
    let front = read_pages(transfers, Extent { first: 0, pages: pages.min(FOREIGN_FRONT_BYTES / PAGE) })?;
    let back_pages = pages.min(FOREIGN_BACK_BYTES / PAGE);
    let back = read_pages(transfers, Extent { first: pages - back_pages, pages: back_pages })?;
    if let Some(signature) = Signature::of(&front) {
        return Ok(Some(signature.to_string()));
    }
    let first = |bytes: &[u8]| bytes.iter().position(|byte| *byte != 0);
    Ok(match (first(&front), first(&back)) {
        (Some(at), _) => Some(format!("data at byte {at}")),
        (None, Some(at)) => Some(format!("data at byte {}", (pages - back_pages) * PAGE + at as u64)),
        (None, None) => None,
    })
}

/// Makes a Situ disk of the device. The device's lock is the caller's.
pub(super) fn format(transfers: &Transfers, options: &FormatOptions) -> Result<Superblock> {
    let location = &transfers.location;
    let bytes = device_pages(transfers) * PAGE;
    if bytes == 0 {
        let text =
            format!("{location} is shorter than a page, which has {PAGE} bytes, and has no room for a Situ disk");
        return Err(Error::Invalid(text));
    }
    let id = match options.id {
        Some(id) => id,
        None => random_id()?,
    };
    let pages = |bytes: u64| bytes.div_ceil(PAGE);
    let formatted_at = transfers.env.clock.unix().as_secs();
    let (half, log) = (options.journal_half_bytes.map(pages), options.log_bytes.map(pages));
    let mut layout = Superblock::plan(DiskId(id), 1, bytes, half, log, formatted_at)?;
    if let Some(what) = foreign(transfers)?
        && !options.force
    {
        return Err(Error::Invalid(format!(
            "{location} holds {what}; formatting would destroy it. If it is not needed, format with --force"
        )));
    }
    transfers.device.reserve().map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull => Error::Invalid(error.to_string()),
        _ => transfers.fail("reserve", error),
    })?;
    for copy in read_copies(transfers)? {
        if let Copy::Sound(old) = copy {
            layout.generation = layout.generation.max(old.generation.saturating_add(1));
        }
    }
    write_layout(transfers, &layout).map_err(|error| transfers.fail("format", error))?;
    Ok(layout)
}

fn write_layout(transfers: &Transfers, layout: &Superblock) -> io::Result<()> {
    // From here on it is no disk, until it is the new one.
    for page in layout.copy_pages() {
        transfers.zero(Extent { first: page, pages: 1 })?;
    }
    transfers.flush()?;
    for half in [0, 1] {
        transfers.zero(Extent { first: layout.half_first(half), pages: 1 })?;
    }
    transfers.zero(layout.log)?;
    transfers.flush()?;
    let frame: Buffer = journal::first_frame(layout);
    let op = Op::Write { offset: layout.half_first(0) * PAGE, durable: true };
    transfers.bulk([(op, frame)], &mut |_, _| ())?;
    write_copy(transfers, layout, 1)?;
    write_copy(transfers, layout, 0)
}

/// Returns true if a first or a last page begins as a superblock does, sound or not.
fn was_ever_formatted(transfers: &Transfers) -> Result<bool> {
    for page in [0, device_pages(transfers).saturating_sub(1)] {
        if device_pages(transfers) > 0 && read_pages(transfers, Extent { first: page, pages: 1 })?.starts_with(&MAGIC) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The findings of [`RawVolume::check`](super::RawVolume::check).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawCheck {
    /// The problems, each with its place and, where there is one, the cure. Empty: the disk is sound.
    pub problems: Vec<String>,
    /// Files in the catalogue.
    pub files: u64,
    /// Frames of the journal half in force.
    pub frames: u64,
    /// Pages that belong to files.
    pub used_pages: u64,
    /// Pages of the log area that were never used and were read to see that they are zeros.
    pub zero_pages: u64,
}

/// Reads and verifies all metadata.
pub(super) fn check(transfers: &Transfers) -> Result<RawCheck> {
    let mut found = RawCheck::default();
    let (layout, damaged) = match choose(transfers) {
        Ok(chosen) => chosen,
        Err(error @ (Error::Io { .. } | Error::NotFound { .. })) => return Err(error),
        Err(error) if !was_ever_formatted(transfers)? => return Err(error),
        Err(error) => {
            found.problems.push(error.to_string());
            return Ok(found);
        }
    };
    for (number, why) in damaged {
        let page = layout.copy_pages()[number as usize];
        found.problems.push(format!(
            "copy {number} of the superblock, in page {page}, is {why}; it is written again with the next change"
        ));
    }
    let replayed = match replay(transfers, &layout) {
        Ok(replayed) => replayed,
        Err(error @ (Error::Io { .. } | Error::NotFound { .. })) => return Err(error),
        Err(error) => {
            found.problems.push(error.to_string());
            return Ok(found);
        }
    };
    let half = read_pages(transfers, Extent { first: layout.half_first(replayed.half), pages: layout.half_pages })?;
    found.frames = (0..replayed.next_page)
        .filter(|page| frame::decode(layout.id, &half[(page * PAGE) as usize..]).is_ok())
        .count() as u64;
    let catalogue = &replayed.catalogue;
    found.files = catalogue.files.len() as u64;
    found.used_pages = catalogue.pages();
    found.problems.extend(overlaps(&layout, &replayed));
    check_zeros(transfers, &layout, catalogue.log_touched, &mut found)?;
    Ok(found)
}

/// Returns every pair of files that share pages.
fn overlaps(layout: &Superblock, replayed: &Replayed) -> Vec<String> {
    let files = replayed.catalogue.files.iter();
    let mut all: Vec<(Extent, String)> =
        files.flat_map(|(name, record)| record.extents().iter().map(|extent| (*extent, name.to_string()))).collect();
    all.extend(replayed.long.iter().map(|extent| (*extent, "the checkpoint in force".to_owned())));
    all.sort_unstable();
    let shared = |two: &[(Extent, String)]| {
        let [(first, one), (second, other)] = two else { return None };
        let ends = first.first + first.pages;
        (ends > second.first).then(|| format!("{one} and {other} both have page {}", second.first))
    };
    debug_assert!(all.iter().all(|(extent, _)| layout.log.contains(extent) || layout.top.contains(extent)));
    all.windows(2).filter_map(shared).collect()
}

/// Checks the unused end of the log area. The area behind the highest page ever used must be zeros, or pages of an
/// earlier life of the disk could look current. A store may use more of it meanwhile: before a page is written there,
/// the journal says so.
fn check_zeros(transfers: &Transfers, layout: &Superblock, touched: u64, found: &mut RawCheck) -> Result<()> {
    let step = PIECE_BYTES as u64 / PAGE;
    let end = layout.log.first + layout.log.pages;
    let mut at = layout.log.first + touched;
    while at < end {
        let place = Extent { first: at, pages: step.min(end - at) };
        let bytes = read_pages(transfers, place)?;
        if let Some(byte) = bytes.iter().position(|byte| *byte != 0) {
            let touched_end = match replay(transfers, layout) {
                Ok(replayed) => layout.log.first + replayed.catalogue.log_touched,
                Err(error @ (Error::Io { .. } | Error::NotFound { .. })) => return Err(error),
                Err(error) => {
                    found.problems.push(error.to_string());
                    return Ok(());
                }
            };
            if at + byte as u64 / PAGE < touched_end {
                at = touched_end;
                continue;
            }
            found.problems.push(format!(
                "the log area holds data at byte {} of the device, where nothing was ever written; format the disk again \
                 when its files are not needed any more",
                at * PAGE + byte as u64
            ));
            return Ok(());
        }
        found.zero_pages += place.pages;
        at += place.pages;
    }
    Ok(())
}

/// Writes one copy of the superblock, durably.
pub(super) fn write_copy(transfers: &Transfers, layout: &Superblock, copy: u32) -> io::Result<()> {
    let mut page = Buffer::new(PAGE as usize);
    layout.encode(copy, &mut page);
    let op = Op::Write { offset: layout.copy_pages()[copy as usize] * PAGE, durable: true };
    transfers.bulk([(op, page)], &mut |_, _| ())
}
