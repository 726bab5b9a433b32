//! The bytes of one log page: `docs/formats/log.md`, "Page header" and "States of a page".
//!
//! Encoding is total, decoding is total over arbitrary bytes. Everything else in this crate goes through [`Header`] and
//! [`classify`]; no other place knows an offset.

use situ_base::bytes::{u16_at, u32_at, u64_at};
use situ_device::PAGE_BYTES;

/// Bytes of a page's header.
pub const HEADER_BYTES: usize = 48;
/// Bytes of records that a page can hold.
pub const PAYLOAD_BYTES: usize = PAGE_BYTES - HEADER_BYTES;
/// Bytes in front of a record's body.
pub const RECORD_HEADER_BYTES: usize = 8;
/// The longest body of a record.
pub const RECORD_BYTES_MAX: usize = 1 << 30;
/// The format version that this crate writes and reads.
pub const VERSION: u8 = 1;

pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"SLOG");
/// `first_record` of a page in which no record starts.
pub(crate) const NO_RECORD: u16 = u16::MAX;

const SECTOR_BYTES: usize = 512;
// A rewrite is safe only if the header is written whole or not at all.
const _: () = assert!(HEADER_BYTES <= SECTOR_BYTES);
const _: () = assert!(PAYLOAD_BYTES < NO_RECORD as usize);

/// Bits of [`Header::flags`].
pub(crate) mod flag {
    pub(crate) const BEGINS: u8 = 1 << 0;
    pub(crate) const PREVIOUS_DURABLE: u8 = 1 << 1;
    pub(crate) const ENDED: u8 = 1 << 2;
    pub(crate) const CLOSED: u8 = 1 << 3;
    pub(crate) const ALL: u8 = BEGINS | PREVIOUS_DURABLE | ENDED | CLOSED;
}

/// The offset of each field; the test of the format page reads them too.
pub(crate) mod at {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 4;
    pub(crate) const FLAGS: usize = 5;
    pub(crate) const FIRST_RECORD: usize = 6;
    pub(crate) const FILE_NUMBER: usize = 8;
    pub(crate) const PAGE_NUMBER: usize = 16;
    pub(crate) const USED: usize = 20;
    pub(crate) const PREVIOUS_USED: usize = 22;
    pub(crate) const DURABLE_PAGES: usize = 24;
    pub(crate) const DURABLE_USED: usize = 28;
    pub(crate) const RESERVED: usize = 30;
    pub(crate) const DURABLE_CHECKSUM: usize = 32;
    pub(crate) const PAYLOAD_CHECKSUM: usize = 36;
    pub(crate) const PREVIOUS_DISTANCE: usize = 40;
    pub(crate) const HEADER_CHECKSUM: usize = 44;
}

/// A sound page header, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Raw flag bits; see [`begins`](Header::begins) and its siblings.
    pub(crate) flags: u8,
    /// Payload offset of the first record that starts in the page, if one does.
    pub first_record: Option<u16>,
    /// The log file.
    pub file_number: u64,
    /// The page's index in the file.
    pub page_number: u32,
    /// Payload bytes in use.
    pub used: u16,
    /// `used` of the final image of the page before.
    pub previous_used: u16,
    /// The number of pages of the file that were known durable when this image was made.
    pub durable_pages: u32,
    /// The number of payload bytes of this page that were known durable when this image was made.
    pub durable_used: u16,
    /// CRC-32C of the first `durable_used` payload bytes.
    pub durable_checksum: u32,
    /// CRC-32C of the first `used` payload bytes.
    pub payload_checksum: u32,
    /// The distance down to the number of the log's previous file; 0 in the first file.
    pub previous_distance: u32,
}

impl Header {
    /// Returns true if the file is the first of its log.
    pub fn begins(&self) -> bool {
        self.flags & flag::BEGINS != 0
    }

    /// Returns true if all earlier files of the log were known durable when this image was made.
    pub fn previous_durable(&self) -> bool {
        self.flags & flag::PREVIOUS_DURABLE != 0
    }

    /// Returns true if this is the last page of its file.
    pub fn ended(&self) -> bool {
        self.flags & (flag::ENDED | flag::CLOSED) != 0
    }

    /// Returns true if this is the last page of a log that was closed cleanly.
    pub fn closed(&self) -> bool {
        self.flags & flag::CLOSED != 0
    }

    /// Returns the rule that the header breaks. None is written that breaks one, and none is read.
    fn broken_rule(&self) -> Option<&'static str> {
        if self.flags & !flag::ALL != 0 {
            Some("known flags")
        } else if usize::from(self.used) > PAYLOAD_BYTES {
            Some("used within the payload")
        } else if usize::from(self.previous_used) > PAYLOAD_BYTES {
            Some("previous_used within the payload")
        } else if self.durable_used > self.used {
            Some("durable_used within used")
        } else if self.durable_pages > self.page_number {
            Some("durable_pages before this page")
        } else if self.first_record.is_some_and(|first| first >= self.used) {
            Some("first_record within used")
        } else if u64::from(self.previous_distance) > self.file_number {
            Some("previous_distance within file_number")
        } else {
            None
        }
    }

    /// Writes the header over the front of `page`, checksum included.
    pub(crate) fn encode(&self, page: &mut [u8]) {
        assert_eq!(self.broken_rule(), None, "{self:?}");
        let header = &mut page[..HEADER_BYTES];
        header[at::MAGIC..][..4].copy_from_slice(&MAGIC.to_le_bytes());
        header[at::VERSION] = VERSION;
        header[at::FLAGS] = self.flags;
        header[at::FIRST_RECORD..][..2].copy_from_slice(&self.first_record.unwrap_or(NO_RECORD).to_le_bytes());
        header[at::FILE_NUMBER..][..8].copy_from_slice(&self.file_number.to_le_bytes());
        header[at::PAGE_NUMBER..][..4].copy_from_slice(&self.page_number.to_le_bytes());
        header[at::USED..][..2].copy_from_slice(&self.used.to_le_bytes());
        header[at::PREVIOUS_USED..][..2].copy_from_slice(&self.previous_used.to_le_bytes());
        header[at::DURABLE_PAGES..][..4].copy_from_slice(&self.durable_pages.to_le_bytes());
        header[at::DURABLE_USED..][..2].copy_from_slice(&self.durable_used.to_le_bytes());
        header[at::RESERVED..][..2].fill(0);
        header[at::DURABLE_CHECKSUM..][..4].copy_from_slice(&self.durable_checksum.to_le_bytes());
        header[at::PAYLOAD_CHECKSUM..][..4].copy_from_slice(&self.payload_checksum.to_le_bytes());
        header[at::PREVIOUS_DISTANCE..][..4].copy_from_slice(&self.previous_distance.to_le_bytes());
        let checksum = crc32c::crc32c(&header[..at::HEADER_CHECKSUM]);
        header[at::HEADER_CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads a header back, or returns the damage. Does not look at the payload.
    fn decode(page: &[u8; PAGE_BYTES]) -> Result<Header, Damage> {
        let damage = |what, expected: String, found: String| Damage { what, expected, found };
        let magic = u32_at(page, at::MAGIC);
        if magic != MAGIC {
            return Err(damage("magic number", format!("{MAGIC:#010x}"), format!("{magic:#010x}")));
        }
        let (stored, computed) = (u32_at(page, at::HEADER_CHECKSUM), crc32c::crc32c(&page[..at::HEADER_CHECKSUM]));
        if stored != computed {
            return Err(damage("header checksum", format!("{stored:#010x}"), format!("{computed:#010x}")));
        }
        let version = page[at::VERSION];
        if version != VERSION {
            return Err(damage(VERSION_FIELD, VERSION.to_string(), version.to_string()));
        }
        let first_record = u16_at(page, at::FIRST_RECORD);
        let header = Header {
            flags: page[at::FLAGS],
            first_record: (first_record != NO_RECORD).then_some(first_record),
            file_number: u64_at(page, at::FILE_NUMBER),
            page_number: u32_at(page, at::PAGE_NUMBER),
            used: u16_at(page, at::USED),
            previous_used: u16_at(page, at::PREVIOUS_USED),
            durable_pages: u32_at(page, at::DURABLE_PAGES),
            durable_used: u16_at(page, at::DURABLE_USED),
            durable_checksum: u32_at(page, at::DURABLE_CHECKSUM),
            payload_checksum: u32_at(page, at::PAYLOAD_CHECKSUM),
            previous_distance: u32_at(page, at::PREVIOUS_DISTANCE),
        };
        match header.broken_rule() {
            Some(rule) => Err(damage("header", rule.to_owned(), format!("{header:?}"))),
            None => Ok(header),
        }
    }
}

const VERSION_FIELD: &str = "format version";
const FILE_NUMBER_FIELD: &str = "file number";

/// The damage of a page that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The field, in words.
    pub what: &'static str,
    /// The contents of a sound page at this place.
    pub expected: String,
    /// The contents of this page.
    pub found: String,
}

impl Damage {
    /// Returns true if the page is sound and was written as one of a later log file: never a torn tail. A file's
    /// earlier lives had lower numbers, so it is another file that has got this one's name.
    pub(crate) fn is_of_a_later_file(&self) -> bool {
        self.what == FILE_NUMBER_FIELD
    }

    /// Returns true if the page is sound but of a version this crate does not know: never a torn tail.
    pub(crate) fn is_version(&self) -> bool {
        self.what == VERSION_FIELD
    }
}

/// The state of a page of a log file, judged by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageState {
    /// Zeros, or a page of the file's earlier life.
    NotWritten,
    /// Header and payload match.
    Good(Header),
    /// The header is sound, the payload is a mix of images; the first `durable_used` bytes can be used.
    Torn(Header),
    /// The header is sound, but bytes that it knows to be durable are not there.
    Rotten(Header, Damage),
    /// No header of this page.
    Damaged(Damage),
}

impl PageState {
    /// Returns the page's header, when it is sound: it was written as it is here, and its claims are true.
    pub fn header(&self) -> Option<&Header> {
        match self {
            PageState::Good(header) | PageState::Torn(header) | PageState::Rotten(header, _) => Some(header),
            PageState::NotWritten | PageState::Damaged(_) => None,
        }
    }
}

/// Returns the payload of a page.
pub(crate) fn payload(page: &[u8; PAGE_BYTES]) -> &[u8] {
    &page[HEADER_BYTES..]
}

/// Returns the header of page `page_number` of log file `file_number`, without a look at the payload; `None` if the
/// page was not written.
pub(crate) fn header_of(page: &[u8; PAGE_BYTES], file_number: u64, page_number: u32) -> Result<Option<Header>, Damage> {
    if page[..HEADER_BYTES].iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let header = Header::decode(page)?;
    if header.file_number < file_number {
        return Ok(None);
    }
    if header.file_number > file_number {
        return Err(Damage {
            what: FILE_NUMBER_FIELD,
            expected: format!("{file_number} or a lower one"),
            found: format!("{0}, so that it may be log file {0} under a wrong name", header.file_number),
        });
    }
    if header.page_number != page_number {
        return Err(Damage {
            what: "page number",
            expected: page_number.to_string(),
            found: header.page_number.to_string(),
        });
    }
    Ok(Some(header))
}

/// Judges bytes read as page `page_number` of log file `file_number`.
pub(crate) fn classify(page: &[u8; PAGE_BYTES], file_number: u64, page_number: u32) -> PageState {
    let header = match header_of(page, file_number, page_number) {
        Ok(Some(header)) => header,
        Ok(None) => return PageState::NotWritten,
        Err(damage) => return PageState::Damaged(damage),
    };
    let payload = payload(page);
    if crc32c::crc32c(&payload[..usize::from(header.used)]) == header.payload_checksum {
        return PageState::Good(header);
    }
    let found = crc32c::crc32c(&payload[..usize::from(header.durable_used)]);
    if found == header.durable_checksum {
        return PageState::Torn(header);
    }
    let damage = Damage {
        what: "checksum of the durable payload",
        expected: format!("{:#010x}", header.durable_checksum),
        found: format!("{found:#010x}"),
    };
    PageState::Rotten(header, damage)
}

/// Returns the eight bytes in front of a record's body, which is `parts` concatenated. The body must not exceed
/// [`RECORD_BYTES_MAX`].
pub(crate) fn record_header(length: u32, parts: &[&[u8]]) -> [u8; RECORD_HEADER_BYTES] {
    let length = length.to_le_bytes();
    let checksum = parts.iter().fold(crc32c::crc32c(&length), |crc, part| crc32c::crc32c_append(crc, part));
    let mut header = [0; RECORD_HEADER_BYTES];
    header[..4].copy_from_slice(&length);
    header[4..].copy_from_slice(&checksum.to_le_bytes());
    header
}

#[cfg(test)]
mod tests;
