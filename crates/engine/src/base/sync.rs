//! Locks and wakers that survive a panic in other code.

pub(crate) use situ_base::{lock, panic_text, wake};
