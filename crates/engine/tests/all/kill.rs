//! Promise 1 on a real disk: a process that writes under load is killed with SIGKILL at a random moment, again and again,
//! and its successor must find everything that was acknowledged, buffered or synced.
//!
//! The child is this test binary again, told by an environment variable to write. It reports each acknowledgement through
//! its standard output: what the parent has read was acknowledged, and of what was not at most the writes under way may
//! be there as well.

use situ_engine::{Durability, KeyspaceOptions, Options, Store, WriteBatch};
use situ_sim::Rng;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const CHILD: &str = "SITU_KILL_TEST_DIRECTORY";
const WRITERS: u64 = 4;
/// Each writer overwrites these in turns.
const KEYS: u64 = 300;
/// Asynchronous writes that the last writer has under way.
const OUTSTANDING: usize = 16;
const ROUNDS: u64 = 16;

/// Small enough that flushes, compactions and changes of log files are always under way.
fn options() -> Options {
    let mut keyspace = KeyspaceOptions::default();
    keyspace.memtable_bytes = 128 << 10;
    keyspace.level_base_bytes = 256 << 10;
    keyspace.table_bytes = 64 << 10;
    let mut options = Options::default();
    options.keyspace = keyspace;
    options.cache_bytes = 1 << 20;
    options.compaction_threads = 2;
    options
}

fn value(writer: u64, n: u64) -> Vec<u8> {
    let mut rng = Rng::new(writer << 32 | n);
    let mut value = vec![0; 16 + rng.index(400)];
    rng.fill(&mut value);
    value
}

fn counter_key(writer: u64) -> Vec<u8> {
    format!("counter {writer}").into_bytes()
}

fn key(writer: u64, n: u64) -> Vec<u8> {
    format!("{writer}/{:05}", n % KEYS).into_bytes()
}

/// Write number `n` of a writer: its counter and one key; every tenth removes another key.
fn batch(store: &Store, writer: u64, n: u64) -> WriteBatch {
    let keyspace = store.default_keyspace();
    let mut batch = WriteBatch::new();
    batch.put_in(keyspace, counter_key(writer), n.to_le_bytes()).unwrap();
    batch.put_in(keyspace, key(writer, n), value(writer, n)).unwrap();
    if n.is_multiple_of(10) {
        batch.delete_in(keyspace, key(writer, n + KEYS / 2)).unwrap();
    }
    batch
}

/// What `key(writer, slot)` holds after `n` writes.
fn expected(writer: u64, slot: u64, n: u64) -> Option<Vec<u8>> {
    let last = |of: u64| (n + 1).checked_sub(1 + (n + KEYS - of) % KEYS).filter(|at| *at > 0);
    let put = last(slot);
    // The latest removal of the slot: a multiple of ten whose number plus half the keys falls on it.
    let removed = (1..=n).rev().take(2 * KEYS as usize).find(|at| at % 10 == 0 && (at + KEYS / 2) % KEYS == slot);
    match (put, removed) {
        (Some(put), Some(removed)) if removed > put => None,
        (put, _) => put.map(|at| value(writer, at)),
    }
}

fn count(store: &Store, writer: u64) -> u64 {
    let found = store.get(counter_key(writer)).unwrap();
    found.map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().unwrap()))
}

/// The child: does nothing unless it is told where.
#[test]
fn child() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let store = Store::open_with(PathBuf::from(directory), options()).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || match writer {
                3 => write_asynchronously(store, writer),
                _ => write(store, writer),
            });
        }
    });
}

fn report(writer: u64, n: u64) {
    let line = format!("acknowledged {writer} {n}\n");
    // One call for the whole line: lines of several threads do not mix, and none is left in a buffer.
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).unwrap();
}

fn write(store: &Store, writer: u64) {
    for n in count(store, writer) + 1.. {
        let synced = writer == 0 || n.is_multiple_of(64);
        let durability = if synced { Durability::Synced } else { Durability::Buffered };
        store.write_with(batch(store, writer, n), durability).unwrap();
        report(writer, n);
    }
}

fn write_asynchronously(store: &Store, writer: u64) {
    let mut under_way = VecDeque::new();
    for n in count(store, writer) + 1.. {
        under_way.push_back((n, store.write_with_async(batch(store, writer, n), Durability::Synced)));
        if under_way.len() == OUTSTANDING
            && let Some((n, future)) = under_way.pop_front()
        {
            wait(future).unwrap();
            report(writer, n);
        }
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park();
    }
}

/// The time at which a child is killed.
enum Life {
    /// This long after its start. It may still be opening the store.
    SinceStart(Duration),
    /// This long after its first acknowledged write, however busy the machine is.
    SinceWrite(Duration),
}

/// Starts a child, kills it, and returns the last acknowledged write of each writer.
fn run_and_kill(directory: &Path, life: Life) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child", "--nocapture", "--test-threads=1"])
        .env(CHILD, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = child.stdout.take().unwrap();
    let (first, has_written) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut first = Some(first);
        let mut acknowledged = vec![0; WRITERS as usize];
        for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            // A last line that is cut short is a smaller number, acknowledged earlier.
            let Some(rest) = line.strip_prefix("acknowledged ") else { continue };
            let Some((writer, n)) = rest.split_once(' ') else { continue };
            if let (Ok(writer), Ok(n)) = (writer.parse::<usize>(), n.parse::<u64>()) {
                acknowledged[writer] = n.max(acknowledged[writer]);
                if let Some(first) = first.take() {
                    let _ = first.send(());
                }
            }
        }
        acknowledged
    });
    let life = match life {
        Life::SinceStart(life) => life,
        Life::SinceWrite(life) => {
            // A child that ends without a write closes the channel; the test below reports that.
            let _ = has_written.recv_timeout(Duration::from_secs(120));
            life
        }
    };
    std::thread::sleep(life);
    let ended = child.try_wait().unwrap();
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(ended.is_none(), "the child ended by itself: {}", String::from_utf8_lossy(&output.stderr));
    reader.join().unwrap()
}

#[test]
fn promise_1_a_killed_process_loses_nothing_that_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let seed = 7;
    let mut rng = Rng::new(seed);
    let mut writes = 0;
    for round in 0..ROUNDS {
        // Some die while they still open the store.
        let life = match rng.chance(0.3) {
            true => Life::SinceStart(Duration::from_millis(rng.below(60))),
            false => Life::SinceWrite(Duration::from_millis(rng.below(700))),
        };
        let acknowledged = run_and_kill(directory.path(), life);
        let store = Store::open_with(directory.path(), options()).unwrap();
        for writer in 0..WRITERS {
            let (told, found) = (acknowledged[writer as usize], count(&store, writer));
            let under_way = if writer == 3 { OUTSTANDING as u64 + 1 } else { 1 };
            let what = format!("round {round}, writer {writer}");
            assert!(found >= told, "{what}: {told} writes were acknowledged, {found} are there");
            // Nothing was reported if the child was killed before its first write of this round.
            assert!(told == 0 || found <= told + under_way, "{what}: {told} acknowledged, but {found} found");
            for slot in 0..KEYS {
                let (key, expected) = (key(writer, slot), expected(writer, slot, found));
                let value = store.get(&key).unwrap();
                assert_eq!(value.as_deref(), expected.as_deref(), "{what}: key {}", key.escape_ascii());
            }
            writes += found;
        }
        let mut iterator = store.cursor().unwrap();
        iterator.seek_to_first().unwrap();
        let mut last: Vec<u8> = Vec::new();
        while let Some(key) = iterator.key() {
            assert!(key > &last[..], "round {round}: keys out of order");
            last = key.to_vec();
            iterator.next().unwrap();
        }
        drop(iterator);
        // Every other time the successor of the killed process is the next child.
        if round % 2 == 0 {
            store.close().unwrap();
        }
    }
    assert!(writes > 1000, "only {writes} writes in {ROUNDS} rounds: there was no load");
}

#[test]
fn the_expectation_is_that_of_a_map() {
    let mut map = std::collections::BTreeMap::new();
    for n in 1..4 * KEYS {
        map.insert(n % KEYS, value(1, n));
        if n.is_multiple_of(10) {
            map.remove(&((n + KEYS / 2) % KEYS));
        }
        if n % 37 == 0 || n < 30 {
            for slot in 0..KEYS {
                assert_eq!(expected(1, slot, n), map.get(&slot).cloned(), "slot {slot} after {n} writes");
            }
        }
    }
}
