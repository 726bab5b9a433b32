//! The answer of a device.
//!
//! ```text
//! header | reports | filter hashes (u64) | key area          data: output blocks as stored, one behind the other
//! ```
//!
//! The key area has the first and the last user key of each block, each at a multiple of the stride, with zeros
//! behind.

use crate::abi::*;
use crate::task::Malformed;
use situ_table::{BuiltBlock, KeyRef, Trailer};

impl AnswerHeader {
    /// Returns the checksum of the header, with 0 in the field for it.
    pub fn own_checksum(&self) -> u32 {
        let mut bytes = Vec::with_capacity(AnswerHeader::BYTES);
        AnswerHeader { checksum: 0, ..*self }.put(&mut bytes);
        crc32c::crc32c(&bytes)
    }
}

impl BlockReport {
    /// Returns the checksum of the report, with 0 in the field for it.
    pub fn own_checksum(&self) -> u32 {
        let mut bytes = Vec::with_capacity(BlockReport::BYTES);
        BlockReport { report_checksum: 0, ..*self }.put(&mut bytes);
        crc32c::crc32c(&bytes)
    }
}

/// Returns the stored bytes of the block with this report.
fn block_of<'a>(report: &BlockReport, data: &'a [u8]) -> &'a [u8] {
    let at = report.at as usize;
    &data[at..at + report.stored_bytes as usize]
}

/// An answer, in memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// Sums, and how it went.
    pub header: AnswerHeader,
    /// One for each output block.
    pub reports: Vec<BlockReport>,
    /// One for each user key that was kept.
    pub hashes: Vec<u64>,
    /// The keys of the reports.
    pub keys: Vec<u8>,
    /// The output blocks as stored, trailers included.
    pub data: Vec<u8>,
}

impl Answer {
    /// Returns the answer without its output blocks, as bytes.
    pub fn encode_report(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.header.put(&mut out);
        self.reports.iter().for_each(|report| report.put(&mut out));
        self.hashes.iter().for_each(|hash| out.extend_from_slice(&hash.to_le_bytes()));
        out.extend_from_slice(&self.keys);
        out
    }

    /// Puts an answer together from its two parts, and checks that the parts agree.
    ///
    /// # Errors
    /// The bytes are no answer of this version, or reports point outside.
    pub fn decode(report: &[u8], data: Vec<u8>) -> Result<Answer, Malformed> {
        let answer = Answer::decode_report(report, data.len())?;
        Ok(Answer { data, ..answer })
    }

    /// Decodes an answer whose output blocks, of `data_bytes` bytes, lie elsewhere.
    ///
    /// # Errors
    /// As [`decode`](Answer::decode).
    pub fn decode_report(report: &[u8], data_bytes: usize) -> Result<Answer, Malformed> {
        let short = || Malformed(format!("an answer of {} and {data_bytes} bytes", report.len()));
        let mut rest = report;
        let header = AnswerHeader::take(&mut rest).ok_or_else(short)?;
        if header.magic != ANSWER_MAGIC || header.version != VERSION {
            return Err(Malformed(format!("the magic {:02x?} of version {}", header.magic, header.version)));
        }
        let keys_bytes = (header.blocks as usize).checked_mul(2 * header.key_stride as usize).ok_or_else(short)?;
        let hashes_bytes = header.hashes as usize * 8;
        let reports_bytes = header.blocks as usize * BlockReport::BYTES;
        if Some(rest.len()) != reports_bytes.checked_add(hashes_bytes).and_then(|sum| sum.checked_add(keys_bytes)) {
            return Err(short());
        }
        let (mut reports_left, rest) = rest.split_at(reports_bytes);
        let (hashes, keys) = rest.split_at(hashes_bytes);
        let mut reports = Vec::with_capacity(header.blocks as usize);
        let mut end = 0;
        while let Some(report) = BlockReport::take(&mut reports_left) {
            let key_ends = |at: u32, length: u16| at as usize + usize::from(length) <= keys.len();
            let sound = report.at == end
                && key_ends(report.first_key_at, report.first_key_bytes)
                && key_ends(report.last_key_at, report.last_key_bytes)
                && u64::from(report.first_hash) + u64::from(report.hashes) <= u64::from(header.hashes);
            if !sound {
                return Err(Malformed(format!("the report {report:?}")));
            }
            end += u64::from(report.stored_bytes);
            reports.push(report);
        }
        if end != data_bytes as u64 || header.data_bytes != end {
            return Err(short());
        }
        let hashes = hashes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        Ok(Answer { header, reports, hashes, keys: keys.to_vec(), data: Vec::new() })
    }

    /// Checks all checksums: of blocks, of their reports, keys and hashes. They were made on the device, so a bit that
    /// a transfer has changed shows.
    ///
    /// # Errors
    /// The block that is not as the device made it.
    pub fn check(&self) -> Result<(), Malformed> {
        self.check_report()?;
        (0..self.reports.len()).try_for_each(|i| self.check_block(i, &self.data))
    }

    /// Checks the checksums of everything but the blocks.
    pub(crate) fn check_report(&self) -> Result<(), Malformed> {
        if self.header.own_checksum() != self.header.checksum {
            return Err(Malformed("the head of the answer is not as it was made".to_owned()));
        }
        let mut hash_bytes = Vec::new();
        for (i, report) in self.reports.iter().enumerate() {
            let hashes = &self.hashes[report.first_hash as usize..][..report.hashes as usize];
            hash_bytes.clear();
            hashes.iter().for_each(|hash| hash_bytes.extend_from_slice(&hash.to_le_bytes()));
            let sound = report.own_checksum() == report.report_checksum
                && crc32c::crc32c(self.key_bytes_of(i)) == report.keys_checksum
                && crc32c::crc32c(&hash_bytes) == report.hashes_checksum;
            if !sound {
                return Err(Malformed(format!("the report of output block {i} is not as it was made")));
            }
        }
        Ok(())
    }

    /// Checks the checksum of block `i`, which must be one of them. The output blocks are `data`.
    pub(crate) fn check_block(&self, i: usize, data: &[u8]) -> Result<(), Malformed> {
        let report = &self.reports[i];
        let checksum = report.checksum;
        match block_of(report, data).split_last_chunk::<4>() {
            Some((body, trailer)) if *trailer == checksum.to_le_bytes() && crc32c::crc32c(body) == checksum => Ok(()),
            _ => Err(Malformed(format!("output block {i} is not as it was made"))),
        }
    }

    /// The two keys of block `i`, with the zeros behind them.
    fn key_bytes_of(&self, i: usize) -> &[u8] {
        let bytes = 2 * self.header.key_stride as usize;
        self.keys.get(i * bytes..(i + 1) * bytes).unwrap_or_default()
    }

    /// Returns the stored bytes of block `i`, which must be one of them.
    pub fn block(&self, i: usize) -> &[u8] {
        block_of(&self.reports[i], &self.data)
    }

    /// Returns block `i`, which must be one of them, for a table. The output blocks are `data`.
    pub(crate) fn built<'a>(&'a self, i: usize, data: &'a [u8]) -> BuiltBlock<'a> {
        let report = &self.reports[i];
        let (first, last) = self.keys_of(i);
        BuiltBlock {
            stored: block_of(report, data),
            raw_bytes: report.raw_bytes as usize,
            first: KeyRef::new(first, Trailer(report.first_trailer)),
            last: KeyRef::new(last, Trailer(report.last_trailer)),
            entries: u64::from(report.entries),
            deletions: u64::from(report.deletions),
            key_bytes: u64::from(report.key_bytes),
            value_bytes: u64::from(report.value_bytes),
            longest_key: report.longest_key,
            longest_value: report.longest_value,
            smallest_sequence: report.smallest_sequence,
            largest_sequence: report.largest_sequence,
            hashes: &self.hashes[report.first_hash as usize..][..report.hashes as usize],
            value_classes: &report.value_classes,
        }
    }

    /// Returns the first and the last user key of block `i`, which must be one of them.
    pub fn keys_of(&self, i: usize) -> (&[u8], &[u8]) {
        let report = &self.reports[i];
        let key = |at: u32, length: u16| &self.keys[at as usize..][..usize::from(length)];
        (key(report.first_key_at, report.first_key_bytes), key(report.last_key_at, report.last_key_bytes))
    }
}
