//! Situ: the memcached protocol over any engine; metrics.
//!
//! [`Server`] speaks memcached's text protocol, classic and meta, as memcached 1.6.18 does, over anything that
//! implements [`Engine`], and exports its metrics to Prometheus. Flags of meta commands that came after 1.6.18 (`E`,
//! `x` of `md`, `C` of `mg`, `s` and `N` of `ms`) are as in memcached 1.6.42.
//!
//! ```text
//!   socket -> connection -> parse -> classic, meta -> Engine::get, and WriteBatch -> Engine::write
//!     ^           ^                      |                 |                              |
//!     |           +------------------ inbox <-- on_read ---+                              |
//!     +------------- output <------------+ <--- inbox <----------------- done -----------+
//! ```
//!
//! [`StoreEngine`] is the durable engine: a Situ store. [`HashEngine`] is another one: a hash store, for drives that
//! compress. [`CacheEngine`] is a cache in memory, which evicts. [`open_unserved`], [`ItemWriter`] and [`stored_rule`]
//! are for tools that compact, write and read a store that they do not serve.
//!
//! A few event loops, no thread per connection. A read is answered on the loop if its answer can be had at once. A read
//! that needs the disk parks its own connection, and all others go on: see `waiting/fetch.rs`. Writes are gathered over
//! all connections of a turn, handed to the engine as one batch, and answered when the engine says so.
//!
//! **Back-pressure.** While the engine holds writers back, the batch of a loop waits in the engine and the loop goes on
//! with all other clients. Connections that have a change in that batch are parked: the loop neither reads nor runs
//! their commands. Changes of others gather in the next batch, up to its limit; then their connections are parked, too.
//! The loops together let 32 MiB wait in the engine, or one batch that is larger. Reads are answered as ever. The
//! metric `situ_engine_write_stalled` tells.
//!
//! **Clients among each other.** A connection has a share of the commands and of the answers of a turn, and runs
//! nothing while its client takes no answers: at most 256 KiB of answers wait for it, twice that in memory while they
//! grow. See `commands/turn.rs`.
//!
//! **Other protocols.** The first bytes of HTTP, of TLS and of memcached's binary protocol end the connection, and
//! nothing behind them is run. The metric `situ_server_connections_foreign_total` counts. See `protocol/foreign.rs`.
//!
//! # What differs from memcached
//!
//! * Over a store, items are kept until deleted, expired or flushed: there is no eviction, and items survive a restart
//!   with their expiration times, cas ids and stale marks.
//! * There is no binary protocol, no UDP, no SASL, and no `lru`, `slabs` and `extstore`
//!   commands; they answer `ERROR`. `cache_memlimit` and `stats cachedump` are refused. `verbosity` changes what
//!   `stats settings` shows, and nothing else.
//! * A retrieval of several keys that is the first line of a connection cannot end in a key like `HTTP/1.1`: the line
//!   is taken for a request of HTTP.
//! * A size limit counts the data, not the item around it.
//! * `flush_all` with a time in the past flushes now.
//! * A correction of the system's wall clock does not move expiration times, at once or after a restart
//!   ([`StoreClock`](situ_base::StoreClock)).
//! * `stats detail` counts 4096 prefixes; those that come later are not counted until `stats reset`.
//! * Authentication ([`ServerOptions::auth_file`]): up to 64 users, not 8, and they can have
//!   [rights](ServerOptions::rights_file). A login of more than 2 KiB ends the connection.
//! * TLS is version 1.3 alone, of all TCP addresses or of none ([`ServerOptions::tls`]).
//! * A key given in base64 stays marked so when `mg` or `ma` create the item; answers to pipelined commands before a
//!   retrieval with an overlong key are not lost.

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as situ_server;

mod admin;
mod commands;
mod engine;
mod engines;
mod event_loop;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
#[path = "../tests/memory/mod.rs"]
mod memory;
mod process;
mod protocol;
mod server;
mod waiting;

pub use admin::caller::AdminCaller;
pub use admin::channel::{AdminAnswer, AdminClient, AdminFrame, AdminRequest, Administrator};
pub use admin::live;
pub use admin::socket::AdminSocket;
pub use admin::trace::{Traced, Tracer};
pub use engine::cache::{
    CacheExtras, CacheState, EvictedItem, FlashState, LoopReader, NoCache, OnEvicted, OnTrouble, Reserved, Shown,
    ShownItem,
};
pub use engine::compactions;
pub use engine::item::{ExpiryRule, HEADER_BYTES, ItemView, is_expired, item_in_unix_time};
pub use engine::slow;
pub use engine::{
    Admission, Beside, Change, ChangeInParts, Done, Engine, EngineError, Get, Health, MAX_VALUE_BYTES_LIMIT, Metric,
    MetricKind, OnRead, OnTaken, StoredValue, Survey, SurveyedItem, WriteBatch,
};
pub use engines::cache::{CacheEngine, CacheValue, FOLLOWS_BYTES_MIN};
pub use engines::filter::{item_filter, open_unserved, open_unserved_by};
pub use engines::hash_records::{HashItemWriter, holds_entries, is_reserved, reserved, stored_hash_rule};
pub use engines::hash_store::HashEngine;
pub use engines::keyspaces::{ITEMS_KEYSPACE, META_KEYSPACE};
pub use engines::offline::{ItemWriter, stored_clock, stored_rule};
pub use engines::store::StoreEngine;
pub use process::descriptors::raise_limit;
pub use process::pressure::machine_memory_bytes;
pub use protocol::tls::TlsFiles;
pub use server::{CaughtSignals, Server, ServerOptions, StartError, StopSignal, outlive_file_limit};
pub use situ_transport::RdmaDevices;
