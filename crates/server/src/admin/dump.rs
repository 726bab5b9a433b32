//! `lru_crawler metadump`: a line for each item, as memcached 1.6.18 writes it.
//!
//! A thread of its own walks over the engine's items ([`Survey`]), which may wait for a disk, and puts lines into the
//! connection's [feed](crate::waiting::feed). A server runs one dump at a time; the client of another one gets a busy
//! answer. A dump ends with its connection, and with a client that has taken nothing for a minute.
//!
//! Sizes are what memcached would need, as `me` shows them, so that tools add up the same numbers.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use situ_base::lock;

use crate::admin::access::AccessTable;
use crate::admin::watch::push_uri;
use crate::engine::item::{ExpiryRule, Header};
use crate::engine::{EngineError, Survey, SurveyedItem};
use crate::waiting::feed::Feed;

/// Text that is gathered before it goes to the feed.
const CHUNK_BYTES: usize = 32 << 10;

/// The dump of a server that is under way, if there is one.
#[derive(Default)]
pub(crate) struct Dumps {
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Cleared before a client sees the end of its dump: it can ask for the next one at once.
    is_under_way: Arc<AtomicBool>,
}

/// Returns an item's size as memcached counts it: its header, the key, flags if there are any, and the data with the
/// end of a line.
pub(crate) fn size_as_memcached(key: &[u8], flags: u32, value_bytes: usize) -> usize {
    let flags_bytes = if flags == 0 { 0 } else { 4 };
    56 + key.len() + 1 + flags_bytes + value_bytes + 2
}

impl Dumps {
    /// Starts a dump. Returns false if one is running, or no thread can be started. The thread calls `survey`, which
    /// may block. `moment` is the present expiry rule, and Unix time minus the engine's clock.
    pub(crate) fn begin(
        &self,
        survey: impl FnOnce() -> Result<Option<Box<dyn Survey>>, EngineError> + Send + 'static,
        moment: (ExpiryRule, i64),
        access: Arc<AccessTable>,
        feed: Arc<Feed>,
    ) -> bool {
        let mut thread = lock(&self.thread);
        if self.is_under_way.load(Ordering::Acquire) {
            return false;
        }
        // The last one has put its text, and ends. A panic of it has been shown already.
        _ = thread.take().map(JoinHandle::join);
        self.is_under_way.store(true, Ordering::Release);
        let is_under_way = Arc::clone(&self.is_under_way);
        let body = move || {
            // Also after a panic: the connection waits for the end.
            let feed = Ending(feed, is_under_way);
            match survey() {
                Ok(Some(survey)) => dump(survey, &moment, &access, &feed.0, &feed.1),
                Ok(None) => _ = feed.0.put(b"CLIENT_ERROR this engine cannot list its items\r\n"),
                Err(error) => _ = feed.0.put(format!("SERVER_ERROR {error}\r\n").as_bytes()),
            }
        };
        *thread = std::thread::Builder::new().name("situ-dump".to_owned()).spawn(body).ok();
        if thread.is_none() {
            self.is_under_way.store(false, Ordering::Release);
        }
        thread.is_some()
    }

    /// Waits for the end of the dump. Its connection is gone, so it ends with its next step.
    pub(crate) fn join(&self) {
        // A panic of the thread has been shown already.
        _ = lock(&self.thread).take().map(JoinHandle::join);
    }
}

/// Ends a feed when it goes.
struct Ending(Arc<Feed>, Arc<AtomicBool>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.1.store(false, Ordering::Release);
        self.0.end();
    }
}

fn dump(
    mut survey: Box<dyn Survey>,
    moment: &(ExpiryRule, i64),
    access: &AccessTable,
    feed: &Feed,
    is_under_way: &AtomicBool,
) {
    let mut text = String::with_capacity(2 * CHUNK_BYTES);
    // A step may show nothing but dead items: the end of the connection is to be seen all the same.
    while !feed.is_given_up() {
        let step = survey.next(moment.0.now_seconds, &mut |item| push_line(&mut text, &item, moment, access));
        match &step {
            Ok(true) => {}
            Ok(false) => text.push_str("END\r\n"),
            Err(error) => _ = write!(text, "SERVER_ERROR {error}\r\n"),
        }
        let is_over = !matches!(step, Ok(true));
        if is_over {
            let (most, last) = text.as_bytes().split_at(text.len().saturating_sub(CHUNK_BYTES));
            if most.chunks(CHUNK_BYTES).all(|chunk| feed.put(chunk)) {
                feed.put_when(last, || is_under_way.store(false, Ordering::Release));
            }
            return;
        }
        if text.len() >= CHUNK_BYTES {
            if !text.as_bytes().chunks(CHUNK_BYTES).all(|chunk| feed.put(chunk)) {
                return;
            }
            text.clear();
        }
    }
}

fn push_line(text: &mut String, item: &SurveyedItem<'_>, (rule, unix_ahead): &(ExpiryRule, i64), access: &AccessTable) {
    let &SurveyedItem { key, header: Header { flags, expires, .. }, value_bytes } = item;
    if rule.kills(&item.header) {
        return;
    }
    let unix = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX).saturating_add(*unix_ahead);
    let expires = if expires == 0 { -1 } else { unix(expires) };
    let seen = access.get(key);
    let (fetch, cas) = (if seen.fetched { "yes" } else { "no" }, item.header.cas());
    let size = size_as_memcached(key, flags, value_bytes);
    text.push_str("key=");
    push_uri(text, key);
    _ = writeln!(text, " exp={expires} la={} cas={cas} fetch={fetch} cls=1 size={size}", unix(seen.last));
}
