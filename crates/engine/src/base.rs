//! The ground of all rooms: errors, options, the seam to places, events for the listener, values, batches, statistics.

pub(crate) mod batch;
pub(crate) mod damage;
pub(crate) mod error;
pub(crate) mod health;
pub(crate) mod listener;
pub(crate) mod lock_wait;
pub(crate) mod options;
pub(crate) mod places;
pub(crate) mod range;
pub(crate) mod read_tail;
pub(crate) mod slow;
pub(crate) mod stats;
pub(crate) mod store_id;
pub(crate) mod sync;
#[cfg(feature = "tracing")]
pub(crate) mod tracing_listener;
pub(crate) mod value;
