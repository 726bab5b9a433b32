//! Locks and wakers that survive somebody else's panic.

pub(crate) use situ_device::{lock, panic_text, wake};
