//! Situ: a client for Situ's server and for memcached.
//!
//! [`Client`] speaks memcached's text protocol over TCP and Unix sockets. Keys are spread over several servers as
//! libmemcached does it, so programs in other languages find them.

#![forbid(unsafe_code)]

mod answer;
mod async_client;
mod client;
mod cluster;
mod connection;
mod error;
mod given;
mod item;
mod lane;
mod options;
mod reply;
mod request;
mod ring;
mod server;
mod slot;
mod stream;

pub use async_client::AsyncClient;
pub use client::{Client, OfServer};
pub use error::{Error, Outcome};
pub use item::{Attributes, Cas, CasId, Expiry, Item, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use options::{Login, Options};
pub use reply::{Reply, ReplyMany};
