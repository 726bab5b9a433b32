//! Situ: a client for Situ's server and for memcached.
//!
//! [`Client`] has blocking calls. [`AsyncClient`] has the same calls, and they return futures that need no runtime.
//! Both speak memcached's text protocol over TCP, Unix sockets, shared memory and RDMA. They spread keys over several
//! servers as libmemcached does.
//!
//! ```
//! # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
//! # let address = server.addresses()[0].to_string();
//! use situ_client::{Client, Options, Outcome};
//!
//! let client = Client::open(&Options::new([address]))?;
//! match client.increment("visits", 1) {
//!     Ok(Some(visits)) => println!("visit {visits}"),
//!     Ok(None) => drop(client.add("visits", "1", ())?),
//!     Err(error) if error.outcome() == Outcome::Unknown => println!("counted or not: {error}"),
//!     Err(error) => println!("not counted: {error}"),
//! }
//! # Ok::<(), situ_client::Error>(())
//! ```
//!
//! ```text
//!   Client ------------------------------+
//!                                        v
//!   AsyncClient -> lane, its thread -> cluster -> server -> connection -> stream -> one of the transports
//!        |            |                  |          |           |
//!        +-> reply <--+-- slot         ring    health,      request, answer
//!                                              idle ones
//! ```
//!
//! A stream has no blocking reads and writes, only a wait with a deadline. So a connection sends and receives at the
//! same time, on the thread of the call, and another kind of stream needs nothing else.

#![forbid(unsafe_code)]

mod answer;
mod async_client;
mod client;
mod cluster;
mod connection;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
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

pub use async_client::{AsyncClient, ReplyOfServer};
pub use client::{Client, OfServer, Statistics};
pub use error::{Error, Outcome};
pub use item::{Attributes, Cas, CasId, Expiry, Item, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use options::{Login, Options, Tls, TransportChoice, TransportKind};
pub use reply::{Reply, ReplyMany};
