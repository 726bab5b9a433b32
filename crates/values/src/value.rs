//! A value that was read, without a copy of it.

use std::fmt;
use std::ops::Deref;

/// The bytes of a value. They lie behind the header and the key in the buffer that the record was read into.
#[derive(Clone, Default)]
pub struct Value {
    record: Vec<u8>,
    start: usize,
}

impl Value {
    pub(crate) fn new(record: Vec<u8>, start: usize) -> Value {
        Value { record, start }
    }

    /// Returns the value alone. Moves its bytes to the front of the buffer.
    pub fn into_vec(mut self) -> Vec<u8> {
        self.record.drain(..self.start);
        self.record
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.record[self.start..]
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({} bytes)", self.len())
    }
}
