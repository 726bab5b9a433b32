//! Keys and values as db_bench makes them, and records as YCSB's RocksDB binding stores them.
//!
//! *Keys.* `big-endian`: the number as 8 big-endian bytes, then ASCII `0` up to the key size (RocksDB's
//! `GenerateKeyFromInt`); a key shorter than 8 bytes keeps the number's low bytes. `decimal`: the number in decimal,
//! padded with zeros on the left (LevelDB's `%016d`). Both sort as the numbers do, within the size.
//!
//! *Values.* A pool of 1 MiB is made of 100-byte pieces, each a random printable string of `100 * ratio` bytes
//! repeated; values are consecutive slices of it. So a block compressor finds the repetition and gets close to the
//! ratio.
//!
//! *Records.* `fields` times: length of the name (4 bytes, big-endian), name, length of the value, value: 1140 bytes
//! for YCSB's 10 fields of 100 bytes.

use std::ops::Range;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::distribution::fnv_hash;
use crate::random::Random;

/// The representation of a key's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum KeyFormat {
    /// Eight big-endian bytes, then zeros (RocksDB's db_bench).
    #[default]
    BigEndian,
    /// Decimal, zero-padded on the left (LevelDB's db_bench).
    Decimal,
}

/// Writes the key of `number` into `key`, replacing what was there.
#[inline]
pub fn encode_key(format: KeyFormat, key_bytes: usize, number: u64, key: &mut Vec<u8>) {
    key.clear();
    match format {
        KeyFormat::BigEndian => {
            let kept = key_bytes.min(8);
            key.extend_from_slice(&number.to_be_bytes()[8 - kept..]);
            key.resize(key_bytes, b'0');
        }
        KeyFormat::Decimal => {
            key.resize(key_bytes, b'0');
            let mut rest = number;
            for digit in key.iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
    }
}

/// Numbers that fit a key of `key_bytes`: the count of distinct keys.
#[must_use]
pub fn key_capacity(format: KeyFormat, key_bytes: usize) -> u64 {
    let width = u32::try_from(key_bytes).unwrap_or(u32::MAX);
    match format {
        KeyFormat::BigEndian => 256u64.checked_pow(width).unwrap_or(u64::MAX),
        KeyFormat::Decimal => 10u64.checked_pow(width).unwrap_or(u64::MAX),
    }
}

/// Writes YCSB's key of record `number`: `user` and the number, or its hash for hashed insert order, zero-padded.
#[inline]
pub fn encode_user_key(hashed: bool, zero_padding: usize, number: u64, key: &mut Vec<u8>) {
    key.clear();
    key.extend_from_slice(b"user");
    let number = if hashed { fnv_hash(number) } else { number };
    let mut digits = [0u8; 20];
    let mut first = digits.len();
    let mut rest = number;
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let digits = &digits[first..];
    key.resize(4 + zero_padding.saturating_sub(digits.len()), b'0');
    key.extend_from_slice(digits);
}

/// Bytes of the pool that values are cut from.
const POOL_BYTES: usize = 1 << 20;
/// Bytes of one compressible piece.
const PIECE_BYTES: usize = 100;

/// Cuts values from a pool of compressible data.
#[derive(Clone, Debug)]
pub struct Values {
    pool: Vec<u8>,
    position: usize,
}

impl Values {
    /// Creates a generator of values of up to `value_bytes` that compress to about `ratio` of their size.
    #[must_use]
    pub fn new(ratio: f64, value_bytes: usize, random: &mut Random) -> Self {
        let size = POOL_BYTES.max(value_bytes);
        let raw_bytes = ((PIECE_BYTES as f64 * ratio) as usize).clamp(1, PIECE_BYTES);
        let mut pool = Vec::with_capacity(size + PIECE_BYTES);
        while pool.len() < size {
            let piece = pool.len();
            for _ in 0..raw_bytes {
                pool.push(b' ' + random.below(95) as u8);
            }
            while pool.len() < piece + PIECE_BYTES {
                let again = pool[pool.len() - raw_bytes];
                pool.push(again);
            }
        }
        Self { pool, position: 0 }
    }

    /// Returns the next value, of `length` bytes.
    ///
    /// # Panics
    /// When `length` is more than the `value_bytes` that the generator was made for.
    #[inline]
    pub fn next(&mut self, length: usize) -> &[u8] {
        let range = self.next_range(length);
        &self.pool[range]
    }

    /// Returns the range of the next value in the pool. The caller borrows the value later with [`slice`](Self::slice).
    ///
    /// # Panics
    /// As [`next`](Self::next).
    #[inline]
    pub fn next_range(&mut self, length: usize) -> Range<usize> {
        if self.position + length > self.pool.len() {
            self.position = 0;
            assert!(length <= self.pool.len(), "a value of {length} bytes, pool too small");
        }
        let start = self.position;
        self.position += length;
        start..self.position
    }

    /// Returns the value at a range that [`next_range`](Self::next_range) gave.
    #[inline]
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> &[u8] {
        &self.pool[range]
    }
}

/// The shape of YCSB's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordShape {
    /// Fields per record.
    pub fields: usize,
    /// Bytes of each field's value.
    pub field_bytes: usize,
}

impl RecordShape {
    /// Returns the bytes of an encoded record.
    #[must_use]
    pub fn record_bytes(self) -> usize {
        (0..self.fields).map(|field| self.encoded_field_bytes(field)).sum()
    }

    fn encoded_field_bytes(self, field: usize) -> usize {
        let digits = field.checked_ilog10().unwrap_or(0) as usize + 1;
        4 + "field".len() + digits + 4 + self.field_bytes
    }

    /// Writes a whole new record into `record`.
    pub fn encode(self, values: &mut Values, record: &mut Vec<u8>) {
        record.clear();
        for field in 0..self.fields {
            let name_bytes = self.encoded_field_bytes(field) - 8 - self.field_bytes;
            record.extend_from_slice(&(name_bytes as u32).to_be_bytes());
            record.extend_from_slice(b"field");
            let digits = name_bytes - "field".len();
            let at = record.len();
            record.resize(at + digits, b'0');
            let mut rest = field;
            for digit in record[at..].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
            record.extend_from_slice(&(self.field_bytes as u32).to_be_bytes());
            record.extend_from_slice(values.next(self.field_bytes));
        }
    }

    /// Replaces the value of `field` in an encoded record. False when `record` is not one of this shape: then it was
    /// not written by this workload.
    #[must_use]
    pub fn replace_field(self, field: usize, values: &mut Values, record: &mut [u8]) -> bool {
        if record.len() != self.record_bytes() || field >= self.fields {
            return false;
        }
        let end: usize = (0..=field).map(|field| self.encoded_field_bytes(field)).sum();
        record[end - self.field_bytes..end].copy_from_slice(values.next(self.field_bytes));
        true
    }
}

#[cfg(test)]
mod tests;
