//! From files to a running store and back: replay of the log, closing.

pub(crate) mod carry;
pub(crate) mod closing;
pub(crate) mod known;
pub(crate) mod open;
pub(crate) mod replay;
pub(crate) mod state;
pub(crate) mod values;
