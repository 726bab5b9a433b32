//! The store as a program sees it.

pub(crate) mod builder;
pub(crate) mod conditions;
pub(crate) mod properties;
pub(crate) mod purge;
pub(crate) mod scan;
pub(crate) mod store;
