//! Promise 1 on a fast disk without a file system: a process is killed while it writes, again and again, and its
//! successor must find everything that was acknowledged, buffered or synced. `SITU_TEST_DISKS` names the disks, of 24 MiB
//! and more, separated by spaces, **which are overwritten**: block devices, or drives behind the driver in user space.
//!
//! The process is this program again. It tells each acknowledgement to its standard output.

use crate::common::fast;
use crate::skipped;
use situ_base::Env;
use situ_engine::{Durability, Options, Store};
use situ_rawdisk::{FormatOptions, RawVolume};
use situ_tiers::TieredBuilder;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const HOME: &str = "SITU_KILLED_ON_DISK_HOME";
const DISK: &str = "SITU_KILLED_ON_DISK_DISK";
const WRITERS: u64 = 4;
/// Each writer overwrites these in turns.
const KEYS: u64 = 200;
const ROUNDS: u64 = 8;

fn open(home: &Path, disk: &Path) -> Store {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 128 << 10;
    options.keyspace.level_base_bytes = 256 << 10;
    options.keyspace.table_bytes = 64 << 10;
    options.cache_bytes = 1 << 20;
    fast::tiered(options).fast_disk(disk).open(home).unwrap()
}

fn key(writer: u64, n: u64) -> Vec<u8> {
    format!("{writer}/{:03}", n % KEYS).into_bytes()
}

fn value(writer: u64, n: u64) -> Vec<u8> {
    let mut value = n.to_le_bytes().to_vec();
    value.resize(8 + (n as usize * 37) % 700, (writer * 31 + n) as u8);
    value
}

/// The process that is killed. As a test of its own, it does nothing.
#[test]
fn child() {
    let (Some(home), Some(disk)) = (std::env::var_os(HOME), std::env::var_os(DISK)) else { return };
    let store = open(home.as_ref(), disk.as_ref());
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || {
                // Behind what the predecessor left.
                let mut n = (0..KEYS).filter_map(|slot| number(store, writer, slot)).max().map_or(0, |last| last + 1);
                loop {
                    let durability = if writer % 2 == 0 { Durability::Synced } else { Durability::Buffered };
                    store.default_keyspace().put_with(key(writer, n), value(writer, n), durability).unwrap();
                    let line = format!("acknowledged {writer} {n}\n");
                    std::io::stdout().write_all(line.as_bytes()).unwrap();
                    n += 1;
                }
            });
        }
    });
}

/// Returns the number of the write that a key's value is of.
fn number(store: &Store, writer: u64, slot: u64) -> Option<u64> {
    let found = store.get(key(writer, slot)).unwrap()?;
    let n = u64::from_le_bytes(found[..8].try_into().unwrap());
    assert!(n % KEYS == slot && found[..] == value(writer, n)[..], "writer {writer}: key {slot} has a torn value");
    Some(n)
}

/// Returns the last write that each writer was told of before the kill.
fn run_and_kill(home: &Path, disk: &Path, life: Duration) -> Vec<Option<u64>> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed_on_disk::child", "--nocapture"])
        .env(HOME, home)
        .env(DISK, disk)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        let mut told = vec![None; WRITERS as usize];
        for line in stdout.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            let Some((_, numbers)) = line.split_once("acknowledged ") else { continue };
            // A line that the kill has cut short has no second number, or a shorter one, which is no larger.
            let Some((writer, n)) = numbers.split_once(' ') else { continue };
            let writer: usize = writer.parse().unwrap();
            told[writer] = told[writer].max(n.parse().ok());
        }
        told
    });
    std::thread::sleep(life);
    assert!(child.try_wait().unwrap().is_none(), "the child ended by itself");
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

#[test]
fn promise_1_a_killed_process_loses_nothing_that_was_acknowledged_on_a_disk() {
    let disks = std::env::var("SITU_TEST_DISKS").unwrap_or_default();
    if disks.is_empty() {
        return skipped("kills on disks without a file system; SITU_TEST_DISKS names none");
    }
    for disk in disks.split_whitespace().map(Path::new) {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("home");
        let device = situ_device::open(disk, situ_device::OpenOptions::default()).unwrap();
        let options = FormatOptions { log_bytes: Some(8 << 20), force: true, ..FormatOptions::default() };
        RawVolume::format(device, Env::system(), &options).unwrap();
        let mut writes = 0;
        for round in 0..ROUNDS {
            let told = run_and_kill(&home, disk, Duration::from_millis(1500 + 211 * (round % 4)));
            let store = open(&home, disk);
            for writer in 0..WRITERS {
                let Some(told) = told[writer as usize] else { continue };
                let last = (0..KEYS).filter_map(|slot| number(&store, writer, slot)).max();
                let what = format!("{}, round {round}, writer {writer}", disk.display());
                assert!(last >= Some(told), "{what}: write {told} was acknowledged, and {last:?} is the last one");
                let last = last.unwrap();
                assert!(last <= told + 1, "{what}: {told} writes were acknowledged, and {last} is there");
                for n in (last + 1).saturating_sub(KEYS)..=last {
                    assert_eq!(number(&store, writer, n % KEYS), Some(n), "{what}");
                }
                writes = writes.max(last);
            }
            store.close().unwrap();
        }
        println!("{}: a writer got to {writes} writes", disk.display());
        assert!(writes > 20, "{}: only {writes} writes", disk.display());
    }
}
