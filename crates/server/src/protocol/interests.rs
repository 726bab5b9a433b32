//! The interests of watchers, as bits: the kinds of events that `watch` names.

/// A command looked for an item.
pub(crate) const FETCHERS: u8 = 1;
/// A storage command ran.
pub(crate) const MUTATIONS: u8 = 2;
/// An item was evicted to make room.
pub(crate) const EVICTIONS: u8 = 4;
/// A connection began or ended.
pub(crate) const CONNECTIONS: u8 = 8;
