//! The pages and commands that show what the server does: metrics, statistics, watchers, dumps, lines for the log. And
//! the administrative channel, by which others run commands on the open store.

pub(crate) mod access;
pub(crate) mod caller;
pub(crate) mod channel;
pub(crate) mod door;
pub(crate) mod dump;
pub(crate) mod http;
pub mod live;
pub(crate) mod metrics;
pub(crate) mod notices;
pub(crate) mod prefixes;
pub(crate) mod socket;
pub(crate) mod stats;
pub(crate) mod trace;
pub(crate) mod watch;
