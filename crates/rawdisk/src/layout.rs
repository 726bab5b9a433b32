//! The superblock: what is where on a disk (`docs/formats/disk.md`).

use super::room::Extent;
use situ_base::bytes::{Fields, is_zero};
use situ_device::PAGE_BYTES;
use situ_storage::{Error, Result};
use std::fmt;

pub(super) const PAGE: u64 = PAGE_BYTES as u64;
pub(super) const MAGIC: [u8; 8] = *b"SITUDISK";
pub(super) const VERSION: u32 = 1;
/// The alignment of areas, in pages.
pub(super) const AREA_ALIGN_PAGES: u64 = 16;
/// A half of the journal has room for a checkpoint of half its length, and for edits behind it.
pub(super) const HALF_PAGES_MIN: u64 = 4;
/// The bytes that the log of a store with default options takes under synced writes.
const LOG_BYTES_TYPICAL: u64 = 640 << 20;
/// More is not used by the largest memtables that make sense.
const LOG_BYTES_MAX: u64 = 8 << 30;
const CHECKSUM_AT: usize = PAGE_BYTES - 4;
/// The bytes in use at a superblock's front.
const FIELDS_BYTES: usize = 8 + 4 + 4 + 16 + 9 * 8 + 4;

/// The random identity of a disk, new with every format.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DiskId(pub [u8; 16]);

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The parts of a disk and their places; all in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) id: DiskId,
    pub(super) generation: u64,
    pub(super) device_pages: u64,
    pub(super) journal_first: u64,
    pub(super) half_pages: u64,
    pub(super) log: Extent,
    pub(super) top: Extent,
    pub(super) formatted_at: u64,
}

/// Returns the default size of the log area, an eighth of a device. It is at least the log of a store with default
/// options, if that is not more than a quarter of the device. Such a log is for four memtables of 64 MiB, and has one
/// more file, the next one. For each memtable, synced writes of a few threads fill two log files, because their pages
/// are written before they are full. A smaller area slows writers before their memory does.
pub(super) fn default_log_pages(device_pages: u64) -> u64 {
    let files = (LOG_BYTES_TYPICAL / PAGE).min(device_pages / 4);
    (device_pages / 8).min(LOG_BYTES_MAX / PAGE).max(files)
}

/// The contents of a page that should hold a superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Copy {
    Sound(Superblock),
    /// Made by another version of the format, and without known damage.
    Version(u32),
    /// Not a superblock, or not a sound one, with the reason.
    Damaged(String),
}

impl Superblock {
    /// Divides a device. A `log_pages` of `None` stands for [`default_log_pages`].
    pub(super) fn plan(
        id: DiskId,
        generation: u64,
        device_bytes: u64,
        half_pages: Option<u64>,
        log_pages: Option<u64>,
        formatted_at: u64,
    ) -> Result<Superblock> {
        let device_pages = device_bytes / PAGE;
        let half_pages = half_pages.unwrap_or_else(|| (device_pages / 2048).clamp(16, 1024)).max(HALF_PAGES_MIN);
        let log_pages = log_pages.unwrap_or_else(|| default_log_pages(device_pages)).max(1);
        let journal_first = 1;
        let too_small = || {
            Error::Invalid(format!(
                "a device of {device_bytes} bytes has no room for a log area of {} bytes and tables behind it; \
                 take a larger device or a smaller log area",
                log_pages.saturating_mul(PAGE)
            ))
        };
        let journal_end = half_pages.checked_mul(2).and_then(|pages| pages.checked_add(journal_first));
        let log_first =
            journal_end.and_then(|end| end.checked_next_multiple_of(AREA_ALIGN_PAGES)).ok_or_else(too_small)?;
        let log_end = log_first.checked_add(log_pages).ok_or_else(too_small)?;
        let top_first = log_end.checked_next_multiple_of(AREA_ALIGN_PAGES).ok_or_else(too_small)?;
        if top_first.checked_add(1).is_none_or(|end| end >= device_pages) {
            return Err(too_small());
        }
        let top = Extent { first: top_first, pages: device_pages - 1 - top_first };
        let log = Extent { first: log_first, pages: log_pages };
        Ok(Superblock { id, generation, device_pages, journal_first, half_pages, log, top, formatted_at })
    }

    /// Returns the pages of copy 0 and copy 1.
    pub(super) fn copy_pages(&self) -> [u64; 2] {
        [0, self.device_pages - 1]
    }

    pub(super) fn half_first(&self, half: usize) -> u64 {
        self.journal_first + half as u64 * self.half_pages
    }

    /// Puts copy number `copy` into a page.
    pub(super) fn encode(&self, copy: u32, page: &mut [u8]) {
        page.fill(0);
        let mut bytes = Vec::with_capacity(FIELDS_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((PAGE as u32).to_le_bytes());
        bytes.extend(self.id.0);
        let numbers = [
            self.generation,
            self.device_pages,
            self.journal_first,
            self.half_pages,
            self.log.first,
            self.log.pages,
            self.top.first,
            self.top.pages,
            self.formatted_at,
        ];
        numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes.extend(copy.to_le_bytes());
        page[..bytes.len()].copy_from_slice(&bytes);
        let checksum = crc32c::crc32c(&page[..CHECKSUM_AT]);
        page[CHECKSUM_AT..PAGE_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads what should be copy number `copy`.
    pub(super) fn decode(copy: u32, page: &[u8]) -> Copy {
        match Superblock::try_decode(copy, page) {
            Ok(copy) => copy,
            Err(why) => Copy::Damaged(why),
        }
    }

    fn try_decode(copy: u32, page: &[u8]) -> Result<Copy, String> {
        let mut bytes = Fields(page);
        if bytes.take(8, "magic")? != MAGIC {
            return Err(if is_zero(page) { "zeros".to_owned() } else { "no superblock".to_owned() });
        }
        let found = Fields(page.get(CHECKSUM_AT..).unwrap_or_default()).u32("checksum")?;
        let expected = crc32c::crc32c(&page[..CHECKSUM_AT]);
        if expected != found {
            return Err(format!("checksum {found:#010x} where its bytes give {expected:#010x}"));
        }
        let version = bytes.u32("version")?;
        if version != VERSION {
            return Ok(Copy::Version(version));
        }
        let page_bytes = bytes.u32("bytes of a page")?;
        if u64::from(page_bytes) != PAGE {
            return Err(format!("pages of {page_bytes} bytes"));
        }
        let id = DiskId(bytes.array("id")?);
        let generation = bytes.u64("generation")?;
        let device_pages = bytes.u64("pages of the device")?;
        let journal_first = bytes.u64("first page of the journal")?;
        let half_pages = bytes.u64("pages of half a journal")?;
        let mut area = |part| Ok::<_, String>(Extent { first: bytes.u64(part)?, pages: bytes.u64(part)? });
        let (log, top) = (area("log area")?, area("TopFS area")?);
        let formatted_at = bytes.u64("time of the format")?;
        let number = bytes.u32("number of the copy")?;
        if number != copy {
            return Err(format!("a superblock that says it is copy {number}"));
        }
        let journal = Extent { first: journal_first, pages: half_pages.checked_mul(2).ok_or("an endless journal")? };
        let parts = [Extent { first: 0, pages: 1 }, journal, log, top];
        let ordered = parts.windows(2).all(|two| two[0].end().is_some_and(|end| end <= two[1].first));
        let ends = top.end().is_some_and(|end| end < device_pages);
        if !ordered || !ends || half_pages < HALF_PAGES_MIN || log.pages == 0 || top.pages == 0 {
            return Err("parts that do not lie behind each other on the device".to_owned());
        }
        let block = Superblock { id, generation, device_pages, journal_first, half_pages, log, top, formatted_at };
        Ok(Copy::Sound(block))
    }
}

const _: () = assert!(FIELDS_BYTES == 108 && CHECKSUM_AT == 4092);
