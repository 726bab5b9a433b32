//! The engines that Situ brings, each behind the [`Engine`](crate::Engine) trait, and the tools for stores that are not
//! served.

pub(crate) mod allowance;
pub(crate) mod cache;
pub(crate) mod completion;
pub(crate) mod filter;
pub(crate) mod hash_records;
pub(crate) mod hash_store;
pub(crate) mod keyspaces;
pub(crate) mod offline;
pub(crate) mod store;
