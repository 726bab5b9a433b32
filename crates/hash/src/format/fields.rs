//! Taking numbers out of bytes that may be anything.

use crate::Error;
use std::fmt;

/// Bytes are not what they should be. Says so before it is known which file they are from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// The part of the structure.
    pub(crate) part: &'static str,
    pub(crate) expected: String,
    pub(crate) found: String,
}

impl Mismatch {
    #[cold]
    pub(crate) fn new(part: &'static str, expected: impl fmt::Display, found: impl fmt::Display) -> Mismatch {
        Mismatch { part, expected: expected.to_string(), found: found.to_string() }
    }

    /// Returns the error that the structure named `whole`, at `offset` in `path`, is damaged.
    #[cold]
    pub(crate) fn at(self, path: &str, offset: u64, whole: impl fmt::Display) -> Error {
        let what = format!("{whole} ({})", self.part);
        situ_storage::Error::corruption(path, offset, what, self.expected, self.found).into()
    }
}

/// The bytes of a structure that are left to read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    #[inline]
    pub(crate) fn take(&mut self, count: usize, part: &'static str) -> Result<&'a [u8], Mismatch> {
        let left = self.0;
        let (front, rest) = left
            .split_at_checked(count)
            .ok_or_else(|| Mismatch::new(part, format_args!("{count} bytes"), format_args!("{} bytes", left.len())))?;
        self.0 = rest;
        Ok(front)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self, part: &'static str) -> Result<[u8; N], Mismatch> {
        let bytes = self.take(N, part)?;
        Ok(bytes.try_into().expect("take gives as many bytes as it is asked for"))
    }

    pub(crate) fn u8(&mut self, part: &'static str) -> Result<u8, Mismatch> {
        self.array(part).map(|[byte]: [u8; 1]| byte)
    }

    pub(crate) fn u16(&mut self, part: &'static str) -> Result<u16, Mismatch> {
        self.array(part).map(u16::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self, part: &'static str) -> Result<u32, Mismatch> {
        self.array(part).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, part: &'static str) -> Result<u64, Mismatch> {
        self.array(part).map(u64::from_le_bytes)
    }

    /// Takes `count` bytes that must be zero.
    pub(crate) fn zeros(&mut self, count: usize, part: &'static str) -> Result<(), Mismatch> {
        require_zeros(self.take(count, part)?, part)
    }
}

/// Returns true if all bytes are zero. Without a branch for each byte, so that the compiler uses wide registers.
#[inline]
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |sum, byte| sum | byte) == 0
}

/// Names the first byte that is not zero.
#[inline]
pub(crate) fn require_zeros(bytes: &[u8], part: &'static str) -> Result<(), Mismatch> {
    if is_zero(bytes) { Ok(()) } else { Err(not_zero(bytes, part)) }
}

#[cold]
fn not_zero(bytes: &[u8], part: &'static str) -> Mismatch {
    let (at, byte) = bytes.iter().enumerate().find(|(_, byte)| **byte != 0).unwrap_or((0, &0));
    Mismatch::new(part, "zeros", format_args!("{byte:#04x} at byte {at} of them"))
}

/// Compares a checksum that was stored with the one of the bytes.
#[inline]
pub(crate) fn require_checksum(stored: u32, computed: u32) -> Result<(), Mismatch> {
    if stored == computed {
        return Ok(());
    }
    Err(Mismatch::new(
        "checksum",
        format_args!("{computed:#010x}, the checksum of what was read"),
        format_args!("{stored:#010x}"),
    ))
}
