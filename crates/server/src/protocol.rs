//! memcached's text protocol, as pure functions from bytes to requests, the logins and rights of users, and TLS.

pub(crate) mod auth;
pub(crate) mod base64;
pub(crate) mod foreign;
pub(crate) mod interests;
pub(crate) mod number;
pub(crate) mod parse;
pub(crate) mod policy;
pub(crate) mod rights;
pub(crate) mod tls;
