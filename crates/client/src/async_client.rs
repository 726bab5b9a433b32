//! The asynchronous client.

use crate::client::Statistics;
use crate::cluster::Cluster;
use crate::error::Error;
use crate::given::{self, Finish};
use crate::item::{Attributes, Cas, CasId, Expiry, Item, check_key, check_value};
use crate::lane::Lanes;
use crate::options::{Options, TransportKind};
use crate::reply::{Reply, ReplyMany};
use crate::request::{self, Mode, Request};
use crate::server::Limit;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A client whose calls return at once, with a future of the answer.
///
/// Any number of calls may be under way at the same time, up to the bound of the queues. A server gets all waiting
/// calls on one connection, one after another, without a wait for answers in between. The futures need no runtime. A
/// call begins when the method is called, not when its future is awaited.
///
/// One thread for each server does the work, and one more watches the deadlines.
///
/// ```
/// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
/// # let address = server.addresses()[0].to_string();
/// use situ_client::{AsyncClient, Options};
///
/// let client = AsyncClient::open(&Options::new([address]))?;
/// let replies: Vec<_> = (0..100).map(|n| client.set(format!("key {n}").replace(' ', "-"), "value", ())).collect();
/// for reply in replies {
///     reply.wait()?;
/// }
/// # Ok::<(), situ_client::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct AsyncClient {
    lanes: Arc<Handle>,
    timeout: Duration,
}

/// A server's name, and its reply to a call to all servers.
pub type ReplyOfServer<T> = (Arc<str>, Reply<T>);

/// Lets the threads end with the last client.
#[derive(Debug)]
struct Handle(Arc<Lanes>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl AsyncClient {
    /// Starts the threads of a client. It connects to servers when they are needed.
    ///
    /// # Errors
    /// [`Error::Option`] for options without meaning, [`Error::System`] if there are no threads.
    ///
    /// ```
    /// # use situ_client::{AsyncClient, Options};
    /// assert!(AsyncClient::open(&Options::new(["localhost"])).is_ok());
    /// ```
    pub fn open(options: &Options) -> Result<AsyncClient, Error> {
        let cluster = Cluster::new(options)?;
        let started = Lanes::start(cluster, options.queue_calls_max, options.queue_bytes_max);
        let lanes = started.map_err(|error| Error::System(Arc::new(error)))?;
        Ok(AsyncClient { lanes: Arc::new(Handle(lanes)), timeout: options.timeout })
    }

    /// Returns a client with the same queues whose calls have another timeout.
    ///
    /// ```
    /// # use situ_client::{AsyncClient, Options};
    /// # use std::time::Duration;
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// client.with_timeout(Duration::from_secs(30)).set("key", "value", ()).wait()?;
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> AsyncClient {
        AsyncClient { lanes: Arc::clone(&self.lanes), timeout }
    }

    /// Returns the transport of the latest connection to each server, or `None` before the first one.
    ///
    /// ```
    /// # use situ_client::{AsyncClient, Options, TransportKind};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// client.set("key", "value", ()).wait()?;
    /// assert_eq!(client.transports()[0].1, Some(TransportKind::Tcp));
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn transports(&self) -> Vec<(Arc<str>, Option<TransportKind>)> {
        self.lanes.0.cluster.transports()
    }

    /// Asks for the item of `key`.
    ///
    /// ```
    /// # use situ_client::{AsyncClient, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// assert_eq!(client.get("key").wait()?, None);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn get(&self, key: impl AsRef<[u8]>) -> Reply<Option<Item>> {
        let key = key.as_ref();
        self.run(key, request::get([key], false), given::item)
    }

    /// Asks for the item of `key` with its version, for [`cas`](AsyncClient::cas).
    ///
    /// ```
    /// # use situ_client::{Cas, AsyncClient, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// client.set("key", "old", ()).wait()?;
    /// let (_, version) = client.gets("key").wait()?.unwrap();
    /// assert_eq!(client.cas("key", "new", (), version).wait()?, Cas::Stored);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn gets(&self, key: impl AsRef<[u8]>) -> Reply<Option<(Item, CasId)>> {
        let key = key.as_ref();
        self.run(key, request::get([key], true), given::versioned)
    }

    /// Asks for the items of many keys. All servers are asked at the same time.
    ///
    /// ```
    /// # use situ_client::{AsyncClient, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// client.set("b", "2", ()).wait()?;
    /// let items = client.get_many(&["a", "b"]).wait()?;
    /// assert_eq!(items[1].as_ref().unwrap().value, b"2");
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> ReplyMany {
        let limit = self.limit();
        // Keys of a line have the same servers in the same order: if one is down, the next one has all of them.
        let mut shares: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
        for (n, key) in keys.iter().enumerate() {
            if let Err(error) = check_key(key.as_ref()) {
                return ReplyMany::new(vec![(Reply::new(Err(error), given::values), Vec::new())], keys.len());
            }
            shares.entry(self.lanes.0.cluster.route(key.as_ref()).collect()).or_default().push(n);
        }
        let mut parts = Vec::new();
        for share in shares.into_values() {
            let firsts = request::lines_of_keys(share.iter().map(|n| keys[*n].as_ref()));
            let ends = firsts.iter().skip(1).copied().chain([share.len()]);
            for (first, end) in firsts.iter().zip(ends) {
                let part = &share[*first..end];
                let request = request::get(part.iter().map(|n| keys[*n].as_ref()), false);
                let key = keys[part[0]].as_ref();
                parts.push((self.lanes.0.submit(key, request, limit, given::values), part.to_vec()));
            }
        }
        ReplyMany::new(parts, keys.len())
    }

    /// Asks for the item of `key`, and gives it a new expiry time.
    ///
    /// ```
    /// # use situ_client::{Expiry, AsyncClient, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// assert_eq!(client.get_and_touch("key", Expiry::Never).wait()?, None);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn get_and_touch(&self, key: impl AsRef<[u8]>, expiry: impl Into<Expiry>) -> Reply<Option<Item>> {
        let (key, expires) = (key.as_ref(), expiry.into().number(SystemTime::now()));
        self.run(key, request::get_and_touch(key, expires), given::item)
    }

    /// Gives the item of `key` a new expiry time. The answer is false if there is no item.
    ///
    /// ```
    /// # use situ_client::{Expiry, AsyncClient, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// assert!(!client.touch("key", Expiry::Never).wait()?);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn touch(&self, key: impl AsRef<[u8]>, expiry: impl Into<Expiry>) -> Reply<bool> {
        let (key, expires) = (key.as_ref(), expiry.into().number(SystemTime::now()));
        self.run(key, request::touch(key, expires), given::done)
    }

    /// Stores a value.
    ///
    /// ```
    /// # use situ_client::{AsyncClient, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// client.set("key", "value", ()).wait()?;
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn set(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Vec<u8>>,
        attributes: impl Into<Attributes>,
    ) -> Reply<()> {
        self.store(Mode::Set, key.as_ref(), value.into(), attributes.into(), given::nothing)
    }

    /// Stores a value if the key has none. The answer is false if it has one.
    ///
    /// ```
    /// # use situ_client::{AsyncClient, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// assert!(client.add("key", "first", ()).wait()?);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn add(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Vec<u8>>,
        attributes: impl Into<Attributes>,
    ) -> Reply<bool> {
        self.store(Mode::Add, key.as_ref(), value.into(), attributes.into(), given::done)
    }

    /// Stores a value if the key has one already. The answer is false if it has none.
    ///
    /// ```
    /// # use situ_client::{AsyncClient, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// assert!(!client.replace("key", "value", ()).wait()?);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn replace(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Vec<u8>>,
        attributes: impl Into<Attributes>,
    ) -> Reply<bool> {
        self.store(Mode::Replace, key.as_ref(), value.into(), attributes.into(), given::done)
    }

    /// Puts bytes behind the value of a key. The answer is false if there is no item.
    ///
    /// ```
    /// # use situ_client::{AsyncClient, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// client.set("key", "b", ()).wait()?;
    /// assert!(client.append("key", "c").wait()?);
    /// assert!(client.prepend("key", "a").wait()?);
    /// assert_eq!(client.get("key").wait()?.unwrap().value, b"abc");
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn append(&self, key: impl AsRef<[u8]>, value: impl Into<Vec<u8>>) -> Reply<bool> {
        self.store(Mode::Append, key.as_ref(), value.into(), Attributes::default(), given::done)
    }

    /// Puts bytes before the value of a key. The answer is false if there is no item.
    ///
    /// ```
    /// # use situ_client::{AsyncClient, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// assert!(!client.prepend("nothing", "a").wait()?);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn prepend(&self, key: impl AsRef<[u8]>, value: impl Into<Vec<u8>>) -> Reply<bool> {
        self.store(Mode::Prepend, key.as_ref(), value.into(), Attributes::default(), given::done)
    }

    /// Stores a value if the item still has the version that [`gets`](AsyncClient::gets) has returned.
    ///
    /// ```
    /// # use situ_client::{Cas, CasId, AsyncClient, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// assert_eq!(client.cas("nothing", "value", (), CasId(1)).wait()?, Cas::Missing);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn cas(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Vec<u8>>,
        attributes: impl Into<Attributes>,
        version: CasId,
    ) -> Reply<Cas> {
        self.store(Mode::Cas(version), key.as_ref(), value.into(), attributes.into(), given::cas)
    }

    /// Deletes an item. The answer is false if there is none.
    ///
    /// ```
    /// # use situ_client::{AsyncClient, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// assert!(!client.delete("key").wait()?);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Reply<bool> {
        let key = key.as_ref();
        self.run(key, request::delete(key), given::done)
    }

    /// Adds to a number in decimal digits. The answer is the sum modulo 2^64, or `None` if there is no item.
    ///
    /// ```
    /// # use situ_client::{AsyncClient, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// client.set("visits", "41", ()).wait()?;
    /// assert_eq!(client.increment("visits", 1).wait()?, Some(42));
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn increment(&self, key: impl AsRef<[u8]>, delta: u64) -> Reply<Option<u64>> {
        let key = key.as_ref();
        self.run(key, request::count(key, delta, true), given::number)
    }

    /// Subtracts from a number as [`increment`](AsyncClient::increment) adds, but not below 0.
    ///
    /// ```
    /// # use situ_client::{AsyncClient, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// assert_eq!(client.decrement("nothing", 5).wait()?, None);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn decrement(&self, key: impl AsRef<[u8]>, delta: u64) -> Reply<Option<u64>> {
        let key = key.as_ref();
        self.run(key, request::count(key, delta, false), given::number)
    }

    /// Removes all items of all servers, now or after `delay`. There is a reply of each server.
    ///
    /// ```
    /// # use situ_client::{AsyncClient, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// for (_, reply) in client.flush_all(std::time::Duration::ZERO) {
    ///     reply.wait()?;
    /// }
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn flush_all(&self, delay: Duration) -> Vec<ReplyOfServer<()>> {
        let number = if delay.is_zero() { 0 } else { Expiry::In(delay).number(SystemTime::now()) };
        self.of_all(|| request::flush_all(number), given::nothing)
    }

    /// Asks all servers for their statistics, as names and values. See [`Client::stats`](crate::Client::stats).
    ///
    /// # Errors
    /// [`Error::Option`] for a topic with control characters.
    ///
    /// ```
    /// # use situ_client::{AsyncClient, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// for (server, reply) in client.stats("")? {
    ///     println!("{server} has {} statistics", reply.wait()?.len());
    /// }
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn stats(&self, topic: &str) -> Result<Vec<ReplyOfServer<Statistics>>, Error> {
        request::check_topic(topic)?;
        Ok(self.of_all(|| request::statistics(topic.as_bytes()), given::statistics))
    }

    /// Asks all servers for their versions.
    ///
    /// ```
    /// # use situ_client::{AsyncClient, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// for (server, reply) in client.version() {
    ///     println!("{server}: {}", reply.wait()?);
    /// }
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn version(&self) -> Vec<ReplyOfServer<String>> {
        self.of_all(request::version, given::version)
    }

    fn limit(&self) -> Limit {
        Limit::new(self.timeout)
    }

    fn run<T>(&self, key: &[u8], request: Request<'static>, finish: Finish<T>) -> Reply<T> {
        match check_key(key) {
            Ok(()) => self.lanes.0.submit(key, request, self.limit(), finish),
            Err(error) => Reply::new(Err(error), finish),
        }
    }

    fn store<T>(&self, mode: Mode, key: &[u8], value: Vec<u8>, attributes: Attributes, finish: Finish<T>) -> Reply<T> {
        match check_value(&value) {
            Ok(()) => self.run(key, request::store(mode, key, Cow::Owned(value), attributes), finish),
            Err(error) => Reply::new(Err(error), finish),
        }
    }

    fn of_all<T>(&self, make: impl Fn() -> Request<'static>, finish: Finish<T>) -> Vec<ReplyOfServer<T>> {
        let servers = self.lanes.0.cluster.servers.iter().enumerate();
        let ask = |server| self.lanes.0.submit_to(server, make(), None, self.limit(), finish);
        servers.map(|(n, server)| (Arc::clone(&server.name), ask(n))).collect()
    }
}
