//! The ground of the crate: identities, errors, events.

pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod store_id;
