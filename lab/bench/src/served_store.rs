//! A server as a store under test: Situ's, with any engine, or memcached.
//!
//! Each thread has a connection of its own, over TCP, a Unix socket or shared memory.
//! [`BenchOptions::check`](crate::BenchOptions::check) refuses what the protocol lacks before the run. The server is
//! never emptied: workloads that fill a store overwrite their own keys. A cache may evict what a workload
//! has put. Reads of it count as missed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use situ_client::{Client, Options, Tls, TransportChoice};

use crate::options::{BenchOptions, Transport};
use crate::store::{Change, EachEntry, Setting, Settings, Store, StoreFactory, StoreFailure, StoreStats};

/// The time that a request has. A server that stalls is measured, and one that is gone ends the run.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Connects to one server.
#[derive(Clone, Debug)]
pub struct ServedFactory {
    options: Options,
    transport: Transport,
    /// The authorities of the server's certificate.
    tls_ca: Option<PathBuf>,
}

impl ServedFactory {
    /// Creates a factory for the server at `address`, with the transport and the threads of `options`.
    #[must_use]
    pub fn new(address: &str, options: &BenchOptions) -> Self {
        let mut client = Options::new([address]);
        client.timeout = TIMEOUT;
        // One more for the writer behind readwhilewriting.
        client.connections_max = options.threads as usize + 1;
        client.transport = match options.transport {
            Transport::Auto => TransportChoice::Auto,
            Transport::Socket => TransportChoice::Socket,
            Transport::SharedMemory => TransportChoice::SharedMemory,
            Transport::Rdma => TransportChoice::Rdma,
        };
        Self { options: client, transport: options.transport, tls_ca: options.tls_ca.clone() }
    }
}

impl StoreFactory for ServedFactory {
    fn name(&self) -> String {
        "server".to_owned()
    }

    fn settings(&self) -> Settings {
        let transport = serde_json::to_value(self.transport).unwrap_or_default();
        let address: Setting = self.options.servers.concat().into();
        Settings::from([("address".to_owned(), address), ("transport".to_owned(), transport)])
    }

    fn is_served(&self) -> bool {
        true
    }

    fn open(&self, _: &Path) -> Result<Arc<dyn Store>, StoreFailure> {
        let mut options = self.options.clone();
        options.tls = self.tls_ca.as_deref().map(|path| Tls::read(path, None)).transpose()?;
        let client = Client::open(&options)?;
        // One server has one answer.
        let (server, version) = client.version().remove(0);
        let version = version?;
        let transport = client.transports().remove(0).1.map(|transport| format!(" over {transport}"));
        let name = format!("{server}, version {version}{}", transport.unwrap_or_default());
        Ok(Arc::new(ServedStore { client, name }))
    }

    fn remove(&self, _: &Path) -> Result<(), StoreFailure> {
        Ok(())
    }
}

/// A server.
struct ServedStore {
    client: Client,
    name: String,
}

fn lacks<T>(what: &str) -> Result<T, StoreFailure> {
    Err(format!("memcached's protocol has no {what}").into())
}

impl Store for ServedStore {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<(), StoreFailure> {
        if sync {
            return lacks("synced writes");
        }
        Ok(self.client.set(key, value, ())?)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreFailure> {
        Ok(self.client.get_into(key, value)?.is_some())
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<(), StoreFailure> {
        if sync {
            return lacks("synced writes");
        }
        self.client.delete(key)?;
        Ok(())
    }

    fn batch(&self, _: &[Change<'_>], _: bool) -> Result<(), StoreFailure> {
        lacks("batches")
    }

    fn scan(&self, _: &[u8], _: u64, _: &mut EachEntry<'_>) -> Result<u64, StoreFailure> {
        lacks("scans")
    }

    fn scan_reverse(&self, _: Option<&[u8]>, _: u64, _: &mut EachEntry<'_>) -> Result<u64, StoreFailure> {
        lacks("scans")
    }

    fn flush(&self) -> Result<(), StoreFailure> {
        lacks("maintenance")
    }

    fn compact_all(&self) -> Result<(), StoreFailure> {
        lacks("maintenance")
    }

    /// Returns at once: the server does not show its background work.
    fn wait_idle(&self) -> Result<(), StoreFailure> {
        Ok(())
    }

    /// Returns the server's own counters of items, hits and evictions.
    fn stats(&self) -> Result<StoreStats, StoreFailure> {
        const KEPT: [&str; 6] = ["curr_items", "bytes", "get_hits", "get_misses", "cmd_set", "evictions"];
        let statistics = self.client.stats("")?.remove(0).1?;
        let kept = statistics.into_iter().filter(|(name, _)| KEPT.contains(&name.as_str()));
        let detail: BTreeMap<String, f64> =
            kept.filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect();
        Ok(StoreStats { detail, ..StoreStats::default() })
    }
}

#[cfg(test)]
mod tests;
