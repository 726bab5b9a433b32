//! The staged write path: admission, prologue, log, epilogue, publish; and what holds writers back.

pub(crate) mod admission;
pub(crate) mod commit;
pub(crate) mod future;
pub(crate) mod group_commit;
pub(crate) mod log_area;
pub(crate) mod loggers;
pub(crate) mod outstanding;
pub(crate) mod stall;
