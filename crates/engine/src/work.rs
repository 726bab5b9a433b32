//! What the store does in the background: flushes, compactions, moves between disks, and who may do how much of it.

pub(crate) mod background;
pub(crate) mod compact;
pub(crate) mod drain;
pub(crate) mod flush;
pub(crate) mod pacer;
pub(crate) mod picker;
pub(crate) mod postpone;
pub(crate) mod promote;
pub(crate) mod relocate;
pub(crate) mod task_host;
pub(crate) mod throttle;
