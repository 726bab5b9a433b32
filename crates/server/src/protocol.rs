//! memcached's text protocol, as pure functions from bytes to requests, and the logins of users.

pub(crate) mod auth;
pub(crate) mod base64;
pub(crate) mod foreign;
pub(crate) mod interests;
pub(crate) mod number;
pub(crate) mod parse;
