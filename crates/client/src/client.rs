//! The blocking client.

use crate::cluster::Cluster;
use crate::error::Error;
use crate::given::{self, Finish};
use crate::item::{Attributes, Cas, CasId, Expiry, Item, check_key, check_value};
use crate::options::{Options, TransportKind};
use crate::request::{self, Mode, Request};
use crate::server::{Limit, Server};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A client whose calls return when their answer is there.
///
/// Threads share a client, or have clones of it: all clones have the same connections. A call takes a connection for
/// itself and reads its answer on the calling thread. No call takes longer than the timeout.
///
/// ```
/// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
/// # let address = server.addresses()[0].to_string();
/// use situ_client::{Client, Options};
/// use std::time::Duration;
///
/// let client = Client::open(&Options::new([address]))?;
/// client.set("greeting", "hello", Duration::from_secs(60))?;
/// assert_eq!(client.get("greeting")?.unwrap().value, b"hello");
/// assert_eq!(client.get("nothing")?, None);
/// # Ok::<(), situ_client::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    cluster: Arc<Cluster>,
    timeout: Duration,
}

/// Names and values of statistics.
pub type Statistics = Vec<(String, String)>;

/// A server's name, and its answer to a call to all servers.
pub type OfServer<T> = (Arc<str>, Result<T, Error>);

impl Client {
    /// Returns a client. It connects to servers when they are needed.
    ///
    /// # Errors
    /// [`Error::Option`] for options without meaning.
    ///
    /// ```
    /// # use situ_client::{Client, Options};
    /// assert!(Client::open(&Options::new(["localhost"])).is_ok());
    /// assert!(Client::open(&Options::new(["localhost:port"])).is_err());
    /// ```
    pub fn open(options: &Options) -> Result<Client, Error> {
        Ok(Client { cluster: Arc::new(Cluster::new(options)?), timeout: options.timeout })
    }

    /// Returns a client with the same connections whose calls have another timeout.
    ///
    /// ```
    /// # use situ_client::{Client, Options};
    /// # use std::time::Duration;
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// let patient = client.with_timeout(Duration::from_secs(30));
    /// patient.set("key", "value", ())?;
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Client {
        Client { cluster: Arc::clone(&self.cluster), timeout }
    }

    /// Returns the name of the server that has `key`, while no server is down.
    ///
    /// ```
    /// # use situ_client::{Client, Options};
    /// let client = Client::open(&Options::new(["10.0.1.1", "10.0.1.2"]))?;
    /// assert_eq!(&*client.server_of("user:7919"), "10.0.1.2:11211");
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn server_of(&self, key: impl AsRef<[u8]>) -> Arc<str> {
        let server = self.cluster.route(key.as_ref()).next().unwrap_or(0);
        Arc::clone(&self.cluster.servers[server].name)
    }

    /// Returns the transport of the latest connection to each server, or `None` before the first one.
    ///
    /// ```
    /// # use situ_client::{Client, Options, TransportKind};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// client.set("key", "value", ())?;
    /// assert_eq!(client.transports()[0].1, Some(TransportKind::Tcp));
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn transports(&self) -> Vec<(Arc<str>, Option<TransportKind>)> {
        self.cluster.transports()
    }

    /// Returns the item of `key`, or `None` if there is none.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```
    /// # use situ_client::{Client, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// assert_eq!(client.get("key")?, None);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Item>, Error> {
        let key = key.as_ref();
        self.run(key, || request::get([key], false), given::item)
    }

    /// Puts the value of `key` into `value`, whose memory it uses, and returns the flags. `value` is empty if there is
    /// no item, or after an error.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```
    /// # use situ_client::{Client, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// client.set("key", "value", ())?;
    /// let mut value = Vec::new();
    /// assert_eq!(client.get_into("key", &mut value)?, Some(0));
    /// assert_eq!(value, b"value");
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<Option<u32>, Error> {
        let key = key.as_ref();
        let mut room = std::mem::take(value);
        let make = || {
            let mut request = request::get([key], false);
            request.answer.set_room(std::mem::take(&mut room));
            request
        };
        let item = self.run(key, make, given::item)?;
        Ok(item.map(|item| {
            *value = item.value;
            item.flags
        }))
    }

    /// Returns the item of `key` with its version, for [`cas`](Client::cas).
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```
    /// # use situ_client::{Cas, Client, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// client.set("key", "old", ())?;
    /// let (item, version) = client.gets("key")?.unwrap();
    /// assert_eq!(client.cas("key", "new", (), version)?, Cas::Stored);
    /// assert_eq!(client.cas("key", "newer", (), version)?, Cas::Changed);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn gets(&self, key: impl AsRef<[u8]>) -> Result<Option<(Item, CasId)>, Error> {
        let key = key.as_ref();
        self.run(key, || request::get([key], true), given::versioned)
    }

    /// Returns the items of many keys, in the order of the keys. All servers are asked at the same time.
    ///
    /// # Errors
    /// See [`Error`]. One server's error is the error of the call.
    ///
    /// ```
    /// # use situ_client::{Client, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// client.set("b", "2", ())?;
    /// let items = client.get_many(&["a", "b"])?;
    /// assert_eq!(items[0], None);
    /// assert_eq!(items[1].as_ref().unwrap().value, b"2");
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Item>>, Error> {
        let keys = checked(keys)?;
        let found = self.cluster.get_many(&keys, false, self.limit())?;
        Ok(found.into_iter().map(|found| found.map(|found| found.item)).collect())
    }

    /// As [`get_many`](Client::get_many), with versions.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```
    /// # use situ_client::{Client, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// client.set("b", "2", ())?;
    /// let (item, version) = client.gets_many(&["a", "b"])?.pop().flatten().unwrap();
    /// client.cas("b", "3", (), version)?;
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn gets_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<(Item, CasId)>>, Error> {
        let keys = checked(keys)?;
        let found = self.cluster.get_many(&keys, true, self.limit())?;
        // A server that sends no version has none that a `cas` could have.
        let versioned = found.into_iter().map(|found| found.map(|found| (found.item, found.cas.unwrap_or(CasId(0)))));
        Ok(versioned.collect())
    }

    /// Returns the item of `key`, and gives it a new expiry time.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```
    /// # use situ_client::{Client, Options};
    /// # use std::time::Duration;
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// client.set("session", "Ada", Duration::from_secs(60))?;
    /// assert!(client.get_and_touch("session", Duration::from_secs(60))?.is_some());
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn get_and_touch(&self, key: impl AsRef<[u8]>, expiry: impl Into<Expiry>) -> Result<Option<Item>, Error> {
        let (key, expires) = (key.as_ref(), expiry.into().number(SystemTime::now()));
        self.run(key, || request::get_and_touch(key, expires), given::item)
    }

    /// Gives the item of `key` a new expiry time. Returns false if there is no item.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```
    /// # use situ_client::{Client, Expiry, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// assert!(!client.touch("key", Expiry::Never)?);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn touch(&self, key: impl AsRef<[u8]>, expiry: impl Into<Expiry>) -> Result<bool, Error> {
        let (key, expires) = (key.as_ref(), expiry.into().number(SystemTime::now()));
        self.run(key, || request::touch(key, expires), given::done)
    }

    /// Stores a value.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```
    /// # use situ_client::{Attributes, Client, Options};
    /// # use std::time::Duration;
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// client.set("key", "value", ())?;
    /// client.set("key", [0, 1, 2], Duration::from_secs(60))?;
    /// client.set("key", vec![7; 1000], Attributes::default().with_flags(3))?;
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn set(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        attributes: impl Into<Attributes>,
    ) -> Result<(), Error> {
        self.store(Mode::Set, key.as_ref(), value.as_ref(), attributes.into(), given::nothing)
    }

    /// Stores a value if the key has none. Returns false if it has one.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```
    /// # use situ_client::{Client, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// assert!(client.add("key", "first", ())?);
    /// assert!(!client.add("key", "second", ())?);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn add(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        attributes: impl Into<Attributes>,
    ) -> Result<bool, Error> {
        self.store(Mode::Add, key.as_ref(), value.as_ref(), attributes.into(), given::done)
    }

    /// Stores a value if the key has one already. Returns false if it has none.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```
    /// # use situ_client::{Client, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// assert!(!client.replace("key", "value", ())?);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn replace(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        attributes: impl Into<Attributes>,
    ) -> Result<bool, Error> {
        self.store(Mode::Replace, key.as_ref(), value.as_ref(), attributes.into(), given::done)
    }

    /// Puts bytes behind the value of a key, whose flags and expiry time stay. Returns false if there is no item.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```
    /// # use situ_client::{Client, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// client.set("key", "b", ())?;
    /// assert!(client.append("key", "c")?);
    /// assert!(client.prepend("key", "a")?);
    /// assert_eq!(client.get("key")?.unwrap().value, b"abc");
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn append(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.store(Mode::Append, key.as_ref(), value.as_ref(), Attributes::default(), given::done)
    }

    /// Puts bytes before the value of a key, as [`append`](Client::append) does behind it.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```
    /// # use situ_client::{Client, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// assert!(!client.prepend("nothing", "a")?);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn prepend(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.store(Mode::Prepend, key.as_ref(), value.as_ref(), Attributes::default(), given::done)
    }

    /// Stores a value if the item still has the version that [`gets`](Client::gets) has returned.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```
    /// # use situ_client::{Cas, CasId, Client, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// assert_eq!(client.cas("nothing", "value", (), CasId(1))?, Cas::Missing);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn cas(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        attributes: impl Into<Attributes>,
        version: CasId,
    ) -> Result<Cas, Error> {
        self.store(Mode::Cas(version), key.as_ref(), value.as_ref(), attributes.into(), given::cas)
    }

    /// Deletes an item. Returns false if there is none.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```
    /// # use situ_client::{Client, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// client.set("key", "value", ())?;
    /// assert!(client.delete("key")?);
    /// assert!(!client.delete("key")?);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let key = key.as_ref();
        self.run(key, || request::delete(key), given::done)
    }

    /// Adds to a number in decimal digits, and returns the sum modulo 2^64. Returns `None` if there is no item.
    ///
    /// # Errors
    /// See [`Error`]. The server refuses a value that is no number.
    ///
    /// ```
    /// # use situ_client::{Client, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// client.set("visits", "41", ())?;
    /// assert_eq!(client.increment("visits", 1)?, Some(42));
    /// assert_eq!(client.increment("nothing", 1)?, None);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn increment(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        let key = key.as_ref();
        self.run(key, || request::count(key, delta, true), given::number)
    }

    /// Subtracts from a number as [`increment`](Client::increment) adds, but not below 0.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```
    /// # use situ_client::{Client, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// client.set("left", "3", ())?;
    /// assert_eq!(client.decrement("left", 5)?, Some(0));
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn decrement(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        let key = key.as_ref();
        self.run(key, || request::count(key, delta, false), given::number)
    }

    /// Removes all items of all servers, now or after `delay`, rounded up to whole seconds.
    ///
    /// # Errors
    /// The first error; all other servers are flushed all the same.
    ///
    /// ```
    /// # use situ_client::{Client, Options};
    /// # use std::time::Duration;
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// client.set("key", "value", ())?;
    /// client.flush_all(Duration::ZERO)?;
    /// assert_eq!(client.get("key")?, None);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn flush_all(&self, delay: Duration) -> Result<(), Error> {
        let number = if delay.is_zero() { 0 } else { Expiry::In(delay).number(SystemTime::now()) };
        let answers = self.of_all(|| request::flush_all(number), given::nothing);
        answers.into_iter().map(|(_, answer)| answer).fold(Ok(()), Result::and)
    }

    /// Returns the statistics of all servers, as names and values. An empty topic is the general one. The topics are
    /// those that are answered in lines `STAT`, and `reset`.
    ///
    /// # Errors
    /// [`Error::Option`] for a topic with control characters. Other errors are in the list.
    ///
    /// ```
    /// # use situ_client::{Client, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// for (server, statistics) in client.stats("")? {
    ///     assert!(statistics?.iter().any(|(name, _)| name == "curr_items"));
    /// }
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn stats(&self, topic: &str) -> Result<Vec<OfServer<Statistics>>, Error> {
        request::check_topic(topic)?;
        Ok(self.of_all(|| request::statistics(topic.as_bytes()), given::statistics))
    }

    /// Returns the versions of all servers.
    ///
    /// ```
    /// # use situ_client::{Client, Options};
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # let client = Client::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// for (server, version) in client.version() {
    ///     println!("{server}: {}", version?);
    /// }
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn version(&self) -> Vec<OfServer<String>> {
        self.of_all(request::version, given::version)
    }

    fn limit(&self) -> Limit {
        Limit::new(self.timeout)
    }

    fn run<'v, T>(&self, key: &[u8], make: impl FnMut() -> Request<'v>, finish: Finish<T>) -> Result<T, Error> {
        check_key(key)?;
        let (server, given) = self.cluster.call(key, self.limit(), make)?;
        given::finish(&server.name, given, finish)
    }

    fn store<T>(
        &self,
        mode: Mode,
        key: &[u8],
        value: &[u8],
        attributes: Attributes,
        finish: Finish<T>,
    ) -> Result<T, Error> {
        check_value(value)?;
        self.run(key, || request::store(mode, key, Cow::Borrowed(value), attributes), finish)
    }

    /// Asks all servers, one after another.
    fn of_all<T>(&self, make: impl Fn() -> Request<'static>, finish: Finish<T>) -> Vec<OfServer<T>> {
        let ask = |server: &Arc<Server>| {
            let given = server.call(make(), self.limit());
            (Arc::clone(&server.name), given.and_then(|given| given::finish(&server.name, given, finish)))
        };
        self.cluster.servers.iter().map(ask).collect()
    }
}

fn checked<K: AsRef<[u8]>>(keys: &[K]) -> Result<Vec<&[u8]>, Error> {
    keys.iter().map(|key| check_key(key.as_ref()).map(|()| key.as_ref())).collect()
}
