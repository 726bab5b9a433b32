//! Taking numbers out of bytes that may be anything.

/// The unread rest of a structure.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

/// The structure ends before what it should hold.
pub(super) const TOO_SHORT: &str = "more bytes than there are";

impl<'a> Bytes<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (front, rest) = self.0.split_at_checked(count).ok_or(TOO_SHORT)?;
        self.0 = rest;
        Ok(front)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (front, rest) = self.0.split_first_chunk().ok_or(TOO_SHORT)?;
        self.0 = rest;
        Ok(*front)
    }

    pub(super) fn u8(&mut self) -> Result<u8, String> {
        self.array().map(|[byte]: [u8; 1]| byte)
    }

    pub(super) fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn id(&mut self) -> Result<[u8; 16], String> {
        self.array()
    }
}
