//! Locks and wakers that survive somebody else's panic.

pub(crate) use situ_base::{lock, panic_text, wake};
