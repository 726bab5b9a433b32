//! The things that a connection waits for, and the inbox that wakes its event loop.
//!
//! A connection waits for the [stripe](stripe) of a key, a [read](fetch), [room](room) for its batch, or the text of a [feed].

pub(crate) mod feed;
pub(crate) mod fetch;
pub(crate) mod inbox;
pub(crate) mod room;
pub(crate) mod stripe;

/// The number of a stripe; it is small.
pub(crate) type StripeIndex = u32;
