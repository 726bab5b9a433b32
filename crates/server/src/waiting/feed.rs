//! Text that other threads have for one connection: a [dump](crate::admin::dump) of all items, or the events of a
//! [watcher](crate::admin::watch).
//!
//! 1. A producer puts text into the feed. If no message to the connection's event loop is under way, one is sent.
//! 2. The loop takes all of the text when the connection has sent most of what it had. So the feed of a slow client
//!    holds [`TEXT_BYTES_MAX`] and a piece of text. The connection's output holds its share and as much text again.
//! 3. A full feed makes its producer wait ([`Feed::put`]), for a minute at most, or drops the text and counts it
//!    ([`Feed::put_or_skip`]).
//!
//! **Threads.** Any number of producers, one reader. The feed ends with its reader, and producers are notified.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use situ_base::lock;

use crate::waiting::inbox::{Inbox, Message};

/// Text that waits for the connection.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// The time without progress after which a client is given up.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
struct State {
    text: Vec<u8>,
    /// Lines that were dropped since the reader last took the text.
    skipped: u64,
    /// A message to the loop is under way.
    is_told: bool,
    /// Nothing more comes.
    has_ended: bool,
    /// The reader was too slow: the connection is to be closed.
    is_cut: bool,
    /// The reader is gone.
    is_given_up: bool,
}

/// See the module.
pub(crate) struct Feed {
    inbox: Arc<Inbox>,
    connection: u64,
    state: Mutex<State>,
    taken: Condvar,
}

/// The text that a reader gets at once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) text: Vec<u8>,
    /// Lines that are missing behind the text.
    pub(crate) skipped: u64,
    /// This was all.
    pub(crate) has_ended: bool,
    /// The rest is missing.
    pub(crate) is_cut: bool,
}

impl Feed {
    /// Creates a feed for a connection of the loop with this inbox.
    pub(crate) fn new(inbox: Arc<Inbox>, connection: u64) -> Arc<Feed> {
        Arc::new(Feed { inbox, connection, state: Mutex::default(), taken: Condvar::new() })
    }

    /// Puts text into the feed, as soon as there is room. Returns false if the reader is gone.
    pub(crate) fn put(&self, text: &[u8]) -> bool {
        self.put_within(text, PATIENCE, || ())
    }

    /// Puts text like [`put`](Feed::put). Calls `ready` when there is room, before the reader can see the text.
    pub(crate) fn put_when(&self, text: &[u8], ready: impl FnOnce()) -> bool {
        self.put_within(text, PATIENCE, ready)
    }

    fn put_within(&self, text: &[u8], patience: Duration, ready: impl FnOnce()) -> bool {
        let state = lock(&self.state);
        let is_full = |state: &mut State| state.text.len() >= TEXT_BYTES_MAX && !state.is_given_up;
        let waited = self.taken.wait_timeout_while(state, patience, is_full);
        let (mut state, timeout) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        if timeout.timed_out() {
            // Missing text must not look like the end.
            state.is_cut = true;
            self.tell(state);
            return false;
        }
        if state.is_given_up {
            return false;
        }
        ready();
        state.text.extend_from_slice(text);
        self.tell(state);
        true
    }

    /// Puts a line into the feed if there is room, otherwise counts it. False if it is missing.
    pub(crate) fn put_or_skip(&self, line: &[u8]) -> bool {
        let mut state = lock(&self.state);
        if state.is_given_up || state.skipped > 0 || state.text.len() + line.len() > TEXT_BYTES_MAX {
            state.skipped += 1;
            return false;
        }
        state.text.extend_from_slice(line);
        self.tell(state);
        true
    }

    /// Nothing more comes.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        state.has_ended = true;
        self.tell(state);
    }

    fn tell(&self, mut state: std::sync::MutexGuard<'_, State>) {
        let was_told = std::mem::replace(&mut state.is_told, true);
        drop(state);
        if !was_told {
            self.inbox.post(Message::Fed { connection: self.connection });
        }
    }

    /// Takes all text of the feed.
    pub(crate) fn take(&self) -> Taken {
        let mut state = lock(&self.state);
        state.is_told = false;
        self.taken.notify_all();
        let (text, skipped) = (std::mem::take(&mut state.text), std::mem::take(&mut state.skipped));
        Taken { text, skipped, has_ended: state.has_ended, is_cut: state.is_cut }
    }

    /// The reader is gone.
    fn give_up(&self) {
        let mut state = lock(&self.state);
        state.is_given_up = true;
        state.text = Vec::new();
        self.taken.notify_all();
    }

    /// Returns true if the reader is gone.
    pub(crate) fn is_given_up(&self) -> bool {
        lock(&self.state).is_given_up
    }
}

/// The reader's end of a feed.
pub(crate) struct FeedReader(pub(crate) Arc<Feed>);

impl Drop for FeedReader {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> (Arc<Inbox>, Arc<Feed>) {
        let inbox = Arc::new(Inbox::new().unwrap());
        (Arc::clone(&inbox), Feed::new(inbox, 7))
    }

    fn messages(inbox: &Inbox) -> usize {
        let mut messages = Vec::new();
        inbox.take(&mut messages);
        messages.len()
    }

    #[test]
    fn one_message_tells_of_all_text_until_it_is_taken() {
        let (inbox, feed) = made();
        assert!(feed.put(b"a") && feed.put_or_skip(b"b"));
        assert_eq!(messages(&inbox), 1);
        assert_eq!(feed.take(), Taken { text: b"ab".to_vec(), ..Taken::default() });
        feed.end();
        assert_eq!(messages(&inbox), 1);
        assert!(feed.take().has_ended);
    }

    #[test]
    fn a_full_feed_skips_lines_or_makes_their_producer_wait() {
        let (inbox, feed) = made();
        let line = vec![b'x'; TEXT_BYTES_MAX];
        assert!(feed.put_or_skip(&line));
        assert!(!feed.put_or_skip(b"y"));
        assert!(!feed.put_or_skip(b""), "no line comes behind one that is missing");
        let reader = FeedReader(Arc::clone(&feed));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| feed.put(b"z"));
            let taken = reader.0.take();
            assert_eq!((taken.text.len(), taken.skipped), (TEXT_BYTES_MAX, 2));
            assert!(waiting.join().unwrap());
        });
        assert_eq!(feed.take().text, b"z");
        assert!(messages(&inbox) >= 2);
        assert!(feed.put(&line));
        assert!(!feed.put_within(b"z", Duration::from_millis(1), || ()) && feed.take().is_cut);
        assert!(feed.put(&line));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| feed.put(b"z"));
            drop(reader);
            assert!(!waiting.join().unwrap());
        });
        assert!(feed.is_given_up() && !feed.put_or_skip(b"y"));
    }
}
