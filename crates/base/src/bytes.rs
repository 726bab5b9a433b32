//! Numbers out of bytes that may be anything, and into bytes.
//!
//! Integers are little-endian. A *varint* is LEB128: groups of seven bits, lowest first, all but the last with the high
//! bit set.
//!
//! **Failure.** Bytes that do not hold a value are a [`Mismatch`], which allocates. The good path allocates nothing.

use std::fmt;

/// A difference between what a structure should hold and what it holds. One word: a result with it stays in registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch(pub Box<Difference>);

/// The contents of a [`Mismatch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The part of the structure.
    pub part: &'static str,
    /// The right content of the part.
    pub expected: String,
    /// The content of the part.
    pub found: String,
}

impl Mismatch {
    /// Names the part that differs.
    #[cold]
    pub fn new(part: &'static str, expected: impl fmt::Display, found: impl fmt::Display) -> Mismatch {
        Mismatch(Box::new(Difference { part, expected: expected.to_string(), found: found.to_string() }))
    }

    #[cold]
    fn too_short(part: &'static str, count: usize, left: usize) -> Mismatch {
        Mismatch::new(part, format_args!("{count} bytes"), format_args!("{left} bytes"))
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { part, expected, found } = &*self.0;
        write!(f, "{part}: expected {expected}, found {found}")
    }
}

impl std::error::Error for Mismatch {}

impl From<Mismatch> for String {
    fn from(mismatch: Mismatch) -> String {
        mismatch.to_string()
    }
}

/// The unread rest of a structure. Each method takes a value off its front, and names the part if it is not there.
///
/// # Example
/// ```
/// use situ_base::bytes::{Fields, put_varint};
/// let mut bytes = vec![7, 0];
/// put_varint(&mut bytes, 300);
/// let mut fields = Fields(&bytes);
/// assert_eq!((fields.u16("count"), fields.varint("length")), (Ok(7), Ok(300)));
/// let error = fields.u32("checksum").unwrap_err();
/// assert_eq!(error.to_string(), "checksum: expected 4 bytes, found 0 bytes");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a>(pub &'a [u8]);

macro_rules! integers {
    ($($name:ident: $type:ty),*) => {$(
        #[doc = concat!("Takes a `", stringify!($type), "`.\n\n# Errors\nThe bytes end before it does.")]
        #[inline]
        pub fn $name(&mut self, part: &'static str) -> Result<$type, Mismatch> {
            self.array(part).map(<$type>::from_le_bytes)
        }
    )*};
}

impl<'a> Fields<'a> {
    integers!(u8: u8, u16: u16, u32: u32, u64: u64);

    /// Takes `count` bytes.
    ///
    /// # Errors
    /// There are fewer.
    #[inline]
    pub fn take(&mut self, count: usize, part: &'static str) -> Result<&'a [u8], Mismatch> {
        let left = self.0;
        let (front, rest) = left.split_at_checked(count).ok_or_else(|| Mismatch::too_short(part, count, left.len()))?;
        self.0 = rest;
        Ok(front)
    }

    /// Takes `N` bytes.
    ///
    /// # Errors
    /// There are fewer.
    #[inline]
    pub fn array<const N: usize>(&mut self, part: &'static str) -> Result<[u8; N], Mismatch> {
        let left = self.0;
        let (front, rest) = left.split_first_chunk().ok_or_else(|| Mismatch::too_short(part, N, left.len()))?;
        self.0 = rest;
        Ok(*front)
    }

    /// Takes a varint.
    ///
    /// # Errors
    /// The bytes end before it does, or it has more than 64 bits.
    #[inline]
    pub fn varint(&mut self, part: &'static str) -> Result<u64, Mismatch> {
        let mut rest = self.0;
        let Some(value) = take_varint(&mut rest) else { return Err(self.no_varint(part)) };
        self.0 = rest;
        Ok(value)
    }

    #[cold]
    fn no_varint(&self, part: &'static str) -> Mismatch {
        Mismatch::new(part, "a varint", self.0[..self.0.len().min(10)].escape_ascii())
    }

    /// Takes a varint of at most 32 bits.
    ///
    /// # Errors
    /// The bytes end before it does, or it is larger.
    #[inline]
    pub fn varint32(&mut self, part: &'static str) -> Result<u32, Mismatch> {
        let value = self.varint(part)?;
        u32::try_from(value).map_err(|_| Mismatch::new(part, "at most 32 bits", value))
    }

    /// Takes bytes that have their length before them, as a varint.
    ///
    /// # Errors
    /// The bytes end before they do.
    #[inline]
    pub fn sized(&mut self, part: &'static str) -> Result<&'a [u8], Mismatch> {
        let count = self.varint(part)?;
        self.take(usize::try_from(count).unwrap_or(usize::MAX), part)
    }

    /// Takes `count` bytes that must be zero.
    ///
    /// # Errors
    /// There are fewer, or one is not zero.
    #[inline]
    pub fn zeros(&mut self, count: usize, part: &'static str) -> Result<(), Mismatch> {
        require_zeros(self.take(count, part)?, part)
    }

    /// Requires that nothing is left.
    ///
    /// # Errors
    /// Bytes are left.
    pub fn end(&self) -> Result<(), Mismatch> {
        match self.0.len() {
            0 => Ok(()),
            more => Err(Mismatch::new("end", "no more bytes", format_args!("{more} bytes"))),
        }
    }
}

#[inline]
fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    // Most have one byte or two.
    match **rest {
        [byte @ ..0x80, ref behind @ ..] => {
            *rest = behind;
            return Some(u64::from(byte));
        }
        [low @ 0x80..=0xff, high @ ..0x80, ref behind @ ..] => {
            *rest = behind;
            return Some(u64::from(low & 0x7f) | u64::from(high) << 7);
        }
        _ => {}
    }
    take_long_varint(rest)
}

fn take_long_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Appends a varint.
#[inline]
pub fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Appends a length, as a varint, and the bytes.
#[inline]
pub fn put_sized(to: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

macro_rules! integers_at {
    ($($name:ident: $type:ty),*) => {$(
        #[doc = concat!("Returns the `", stringify!($type), "` at a place inside a slice that is known to hold it; zero if it does not.")]
        #[inline]
        pub fn $name(bytes: &[u8], at: usize) -> $type {
            bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| <$type>::from_le_bytes(*chunk))
        }
    )*};
}

integers_at!(u16_at: u16, u32_at: u32, u64_at: u64);

/// Returns true if all bytes are zero. There is no branch for each byte, so that the compiler uses wide registers.
#[inline]
pub fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |sum, byte| sum | byte) == 0
}

/// Requires that all bytes are zero.
///
/// # Errors
/// One is not; the error names the first.
#[inline]
pub fn require_zeros(bytes: &[u8], part: &'static str) -> Result<(), Mismatch> {
    if is_zero(bytes) { Ok(()) } else { Err(not_zero(bytes, part)) }
}

#[cold]
fn not_zero(bytes: &[u8], part: &'static str) -> Mismatch {
    let (at, byte) = bytes.iter().enumerate().find(|(_, byte)| **byte != 0).unwrap_or((0, &0));
    Mismatch::new(part, "zeros", format_args!("{byte:#04x} at byte {at} of them"))
}

/// Requires that a stored checksum is the one of the bytes.
///
/// # Errors
/// It is another one.
#[inline]
pub fn require_checksum(stored: u32, computed: u32) -> Result<(), Mismatch> {
    if stored == computed {
        return Ok(());
    }
    Err(Mismatch::new(
        "checksum",
        format_args!("{computed:#010x}, the checksum of what was read"),
        format_args!("{stored:#010x}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_survive_and_overlong_ones_are_refused() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut fields = Fields(&bytes);
            assert_eq!((fields.varint("number"), fields.end()), (Ok(value), Ok(())));
        }
        assert!(Fields(&[0xff; 11]).varint("number").is_err());
        assert!(Fields(&[0xff; 9]).varint("number").is_err());
        assert!(Fields(&[5, 1, 2]).sized("name").is_err());
        let mut fields = Fields(&[2, 1, 2]);
        assert_eq!((fields.sized("name"), fields.end()), (Ok(&[1, 2][..]), Ok(())));
    }

    #[test]
    fn a_value_that_is_not_there_takes_nothing_and_names_its_part() {
        let mut fields = Fields(&[1, 2, 3]);
        assert_eq!(fields.u32("length").unwrap_err().to_string(), "length: expected 4 bytes, found 3 bytes");
        assert!(fields.sized("name").is_ok() && fields.end().is_err());
        assert_eq!(fields.u8("kind"), Ok(3));
        assert_eq!(Fields(&[0, 7]).zeros(2, "rest").unwrap_err().0.found, "0x07 at byte 1 of them");
    }

    #[test]
    fn a_number_outside_is_zero() {
        let bytes = [1, 0, 0, 0, 2, 0, 0, 0, 9];
        assert_eq!((u16_at(&bytes, 4), u32_at(&bytes, 0), u64_at(&bytes, 0)), (2, 1, 1 | 2 << 32));
        assert_eq!((u16_at(&bytes, 8), u32_at(&bytes, 6), u64_at(&bytes, usize::MAX)), (0, 0, 0));
    }
}
