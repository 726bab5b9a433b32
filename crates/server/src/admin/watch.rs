//! `watch`: connections that receive events, a line for each, in the form of memcached 1.6.18.
//!
//! | interest | events |
//! |---|---|
//! | `fetchers` | `item_get`: a command has looked for an item |
//! | `mutations` | `item_store`: a storage command has run |
//! | `evictions` | `eviction`: an item goes to make room |
//! | `connevents` | `conn_new`, `conn_close` |
//!
//! **Cost.** Without watchers an event costs one load. Otherwise the thread of the event writes the line into the
//! [feed](crate::waiting::feed) of each watcher.
//!
//! **Bounded.** [`WATCHERS_MAX`] watchers. A watcher that reads slower than things happen misses lines, and gets
//! `skipped=N` in their place.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use situ_base::lock;

use crate::protocol::interests::{CONNECTIONS, EVICTIONS, FETCHERS, MUTATIONS};
use crate::protocol::parse::StoreMode;
use crate::waiting::feed::Feed;

const WATCHERS_MAX: usize = 20;

struct Watcher {
    interests: u8,
    feed: Arc<Feed>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Watchers {
    /// The union of the watchers' interests.
    interests: AtomicU8,
    watchers: Mutex<Vec<Watcher>>,
    events: AtomicU64,
    pub(crate) count: AtomicUsize,
    pub(crate) sent: AtomicU64,
    pub(crate) skipped: AtomicU64,
}

/// The reason why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    Normal,
    Idle,
    Shutdown,
}

impl Watchers {
    /// Returns true if a watcher receives events of this kind.
    pub(crate) fn want(&self, interest: u8) -> bool {
        self.interests.load(Ordering::Relaxed) & interest != 0
    }

    /// Adds a watcher; false if there are too many.
    pub(crate) fn add(&self, interests: u8, feed: Arc<Feed>) -> bool {
        let mut watchers = lock(&self.watchers);
        self.tidy(&mut watchers);
        if watchers.len() >= WATCHERS_MAX {
            return false;
        }
        watchers.push(Watcher { interests, feed });
        self.tidy(&mut watchers);
        true
    }

    /// Forgets watchers whose connections have gone.
    pub(crate) fn forget_gone(&self) {
        self.tidy(&mut lock(&self.watchers));
    }

    fn tidy(&self, watchers: &mut Vec<Watcher>) {
        watchers.retain(|watcher| !watcher.feed.is_given_up());
        self.count.store(watchers.len(), Ordering::Relaxed);
        let interests = watchers.iter().fold(0, |all, watcher| all | watcher.interests);
        self.interests.store(interests, Ordering::Relaxed);
    }

    /// Reports that a command looked for an item, and the size of the item if there is one.
    #[cold]
    pub(crate) fn fetched(&self, key: &[u8], found: Option<usize>, descriptor: i32) {
        self.tell(FETCHERS, |line| {
            line.push_str("type=item_get key=");
            push_uri(line, key);
            let (status, class) = if found.is_some() { ("found", 1) } else { ("not_found", 0) };
            _ = writeln!(line, " status={status} clsid={class} cfd={descriptor} size={}", found.unwrap_or(0));
        });
    }

    /// Reports that a storage command ran, and the size of its item.
    #[cold]
    pub(crate) fn stored(
        &self,
        key: &[u8],
        status: &str,
        (mode, ttl): (StoreMode, i32),
        descriptor: i32,
        bytes: usize,
    ) {
        let command = match mode {
            StoreMode::Set => "set",
            StoreMode::Add => "add",
            StoreMode::Replace => "replace",
            StoreMode::Append => "append",
            StoreMode::Prepend => "prepend",
            StoreMode::Cas => "cas",
        };
        self.tell(MUTATIONS, |line| {
            line.push_str("type=item_store key=");
            push_uri(line, key);
            _ = writeln!(line, " status={status} cmd={command} ttl={ttl} clsid=1 cfd={descriptor} size={bytes}");
        });
    }

    /// Reports that an item goes to make room. `ttl` is its remaining time, in seconds; `None` if it did not expire.
    #[cold]
    pub(crate) fn evicted(&self, key: &[u8], was_read: bool, ttl: Option<u64>, bytes: usize) {
        self.tell(EVICTIONS, |line| {
            line.push_str("type=eviction key=");
            push_uri(line, key);
            let fetch = if was_read { "yes" } else { "no" };
            let ttl = ttl.map_or(-1, |ttl| i64::try_from(ttl).unwrap_or(i64::MAX));
            // When it was last read is not kept for each item.
            _ = writeln!(line, " fetch={fetch} ttl={ttl} la=0 clsid=1 size={bytes}");
        });
    }

    /// Reports that a connection has begun, or has ended for a reason. `peer` is `None` for a Unix socket.
    #[cold]
    pub(crate) fn connection(&self, peer: Option<SocketAddr>, closed: Option<Closed>, descriptor: i32) {
        self.tell(CONNECTIONS, |line| {
            line.push_str(if closed.is_some() { "type=conn_close" } else { "type=conn_new" });
            _ = match peer {
                Some(peer) => write!(line, " rip={} rport={} transport=tcp", peer.ip(), peer.port()),
                None => write!(line, " rip=unix rport=0 transport=unix"),
            };
            let reason = closed.map(|closed| match closed {
                Closed::Normal => "normal",
                Closed::Idle => "idle_timeout",
                Closed::Shutdown => "shutdown",
            });
            _ = reason.map_or(Ok(()), |reason| write!(line, " reason={reason}"));
            _ = writeln!(line, " cfd={descriptor}");
        });
    }

    fn tell(&self, interest: u8, fill: impl FnOnce(&mut String)) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let number = self.events.fetch_add(1, Ordering::Relaxed) + 1;
        let mut line = String::with_capacity(160);
        // Writing to a String cannot fail.
        _ = write!(line, "ts={}.{:06} gid={number} ", since.as_secs(), since.subsec_micros());
        fill(&mut line);
        for watcher in lock(&self.watchers).iter().filter(|watcher| watcher.interests & interest != 0) {
            let counter = if watcher.feed.put_or_skip(line.as_bytes()) { &self.sent } else { &self.skipped };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Appends a key as memcached does it in lines of text: all but letters, digits and `-._~` as `%XX`.
pub(crate) fn push_uri(line: &mut String, key: &[u8]) {
    for byte in key {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => line.push(char::from(*byte)),
            _ => _ = write!(line, "%{byte:02X}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiting::feed::FeedReader;
    use crate::waiting::inbox::Inbox;

    #[test]
    fn a_watcher_is_told_what_it_asked_for_until_it_goes() {
        let watchers = Watchers::default();
        let inbox = Arc::new(Inbox::new().unwrap());
        let feed = Feed::new(Arc::clone(&inbox), 1);
        assert!(watchers.add(FETCHERS, Arc::clone(&feed)));
        assert!(watchers.want(FETCHERS) && !watchers.want(MUTATIONS | EVICTIONS | CONNECTIONS));
        watchers.fetched(b"a b\xff", Some(3), 9);
        watchers.stored(b"c", "stored", (StoreMode::Set, 0), 9, 1);
        let text = String::from_utf8(feed.take().text).unwrap();
        let (time, rest) = text.split_once(' ').unwrap();
        assert!(time.starts_with("ts=") && time.len() == "ts=1700000000.000000".len(), "{time}");
        assert_eq!(rest, "gid=1 type=item_get key=a%20b%FF status=found clsid=1 cfd=9 size=3\n");
        drop(FeedReader(feed));
        watchers.forget_gone();
        assert!(!watchers.want(FETCHERS));
        let feeds: Vec<_> = (0..WATCHERS_MAX).map(|number| Feed::new(Arc::clone(&inbox), number as u64)).collect();
        assert!(feeds.iter().all(|feed| watchers.add(MUTATIONS, Arc::clone(feed))));
        assert!(!watchers.add(MUTATIONS, Feed::new(inbox, 1)));
    }
}
