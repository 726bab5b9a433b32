//! Counts for each prefix of keys, as `stats detail` shows them: what is before the first `:` of a key.
//!
//! While counting is off, which it is at first, a command pays for one load. The counts are those of memcached:
//! each key of `get` and `gat`, each classic storage command, whatever comes of it, and each `delete`; of keys without
//! a colon nothing, and nothing of meta commands.
//!
//! **Bounded.** [`PREFIXES_MAX`] prefixes; those that come later are not counted until `stats reset`.

use situ_base::lock;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

const DELIMITER: u8 = b':';
const PREFIXES_MAX: usize = 4096;

#[derive(Debug, Default)]
struct Counts {
    get: u64,
    hit: u64,
    set: u64,
    del: u64,
}

/// An event of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Hit,
    Miss,
    Set,
    Delete,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Prefixes {
    is_on: AtomicBool,
    counts: Mutex<BTreeMap<Vec<u8>, Counts>>,
}

impl Prefixes {
    pub(crate) fn switch(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, key: &[u8], event: Event) {
        if !self.is_on() {
            return;
        }
        let Some(end) = key.iter().position(|byte| *byte == DELIMITER) else { return };
        let mut all = lock(&self.counts);
        if !all.contains_key(&key[..end]) {
            if all.len() >= PREFIXES_MAX {
                return;
            }
            all.insert(key[..end].to_vec(), Counts::default());
        }
        let Some(counts) = all.get_mut(&key[..end]) else { return };
        match event {
            Event::Hit => (counts.get, counts.hit) = (counts.get + 1, counts.hit + 1),
            Event::Miss => counts.get += 1,
            Event::Set => counts.set += 1,
            Event::Delete => counts.del += 1,
        }
    }

    pub(crate) fn reset(&self) {
        lock(&self.counts).clear();
    }

    /// Returns the answer to `stats detail dump`.
    pub(crate) fn dump(&self) -> Vec<u8> {
        let all = lock(&self.counts);
        let mut text = Vec::with_capacity(64 * all.len() + 8);
        for (prefix, Counts { get, hit, set, del }) in all.iter() {
            text.extend_from_slice(b"PREFIX ");
            text.extend_from_slice(prefix);
            let mut line = String::new();
            // Writing to a String cannot fail.
            let _ = write!(line, " get {get} hit {hit} set {set} del {del}\r\n");
            text.extend_from_slice(line.as_bytes());
        }
        text.extend_from_slice(b"END\r\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_counted_while_that_is_on_and_there_is_room() {
        let prefixes = Prefixes::default();
        prefixes.count(b"a:b", Event::Set);
        assert_eq!(prefixes.dump(), b"END\r\n");
        prefixes.switch(true);
        for event in [Event::Set, Event::Hit, Event::Miss, Event::Delete] {
            prefixes.count(b"a:b:c", event);
        }
        prefixes.count(b"plain", Event::Set);
        assert_eq!(prefixes.dump(), b"PREFIX a get 2 hit 1 set 1 del 1\r\nEND\r\n");
        for number in 0..2 * PREFIXES_MAX {
            prefixes.count(format!("{number}:").as_bytes(), Event::Set);
        }
        assert_eq!(prefixes.counts.lock().unwrap().len(), PREFIXES_MAX);
        prefixes.reset();
        assert_eq!(prefixes.dump(), b"END\r\n");
    }
}
