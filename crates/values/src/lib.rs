//! Situ: the value log for large values.

#![forbid(unsafe_code)]

mod collect;
mod counters;
mod dead;
mod deaths;
mod error;
mod files;
mod format;
mod handle;
mod log;
mod open;
mod options;
mod record;
mod scan;
mod seal;
mod segment;
mod trim;
mod value;
mod victim;
mod walk;
mod window;
mod writer;

pub use collect::{Collected, Moved, Owner};
pub use counters::Counters;
pub use handle::Handle;
pub use log::ValueLog;
pub use options::{KnownSegment, Layout, Numbers, Options, Trim, numbers_from};
pub use segment::{Phase, SegmentInfo};
pub use situ_storage::Result;
pub use value::Value;
pub use victim::{Inflation, Victims};
pub use walk::{Walk, Walked};
pub use writer::{ValueWriter, Written};
