//! Errors of the value log, as those of the storage rooms.

use situ_storage::Error;
use std::fmt;

pub(crate) fn invalid_handle(why: impl fmt::Display) -> Error {
    Error::Invalid(format!("this is no handle of a value log: {why}"))
}
