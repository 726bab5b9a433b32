//! Taking numbers out of bytes that may be anything.

use crate::Error;
use situ_base::bytes::Difference;
pub(crate) use situ_base::bytes::{Fields, Mismatch, is_zero, require_checksum, require_zeros};
use std::fmt;

/// A [`Mismatch`] becomes an error when it is known which file it is from.
pub(crate) trait At {
    /// Returns the error of a damaged structure `whole` at `offset` in `path`.
    fn at(self, path: &str, offset: u64, whole: impl fmt::Display) -> Error;
}

impl At for Mismatch {
    #[cold]
    fn at(self, path: &str, offset: u64, whole: impl fmt::Display) -> Error {
        let Difference { part, expected, found } = *self.0;
        situ_storage::Error::corruption(path, offset, format!("{whole} ({part})"), expected, found).into()
    }
}
