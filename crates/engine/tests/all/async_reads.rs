//! Asynchronous reads: what is in memory is answered on the caller's thread, pages of a scan follow each other, and the
//! store says when it has as much to do as is good for it.

use crate::common::taken;
use situ_engine::{AtOnce, Durability, Error, Options, ReadOptions, ScanOptions, ScanPage, Store};
use situ_sim::{Fault, FaultPlan, Operation, Rng, Rule, SimExecutor, SimVolume};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, current, park};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => park(),
        }
    }
}

fn now<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

fn small() -> Options {
    let mut options = Options::default();
    options.cache_bytes = 1 << 20;
    options.keyspace.memtable_bytes = 64 << 10;
    options.keyspace.table_bytes = 32 << 10;
    options.keyspace.level_base_bytes = 128 << 10;
    options
}

/// A store with 5,000 keys in tables, opened afresh: nothing is in its cache.
fn cold(directory: &std::path::Path) -> Store {
    let store = Store::open_with(directory, small()).unwrap();
    for n in 0..5000u32 {
        store.put(n.to_be_bytes(), [n as u8; 60]).unwrap();
    }
    store.flush().unwrap();
    store.close().unwrap();
    drop(store);
    Store::open_with(directory, small()).unwrap()
}

fn in_memory() -> ReadOptions {
    ReadOptions::default().memory_only(true)
}

#[test]
fn cached_blocks_are_read_on_the_callers_thread() {
    let directory = tempfile::tempdir().unwrap();
    let store = cold(directory.path());
    let key = 1234u32.to_be_bytes();
    let keyspace = store.default_keyspace();
    assert!(keyspace.get_with(key, &in_memory()).unwrap_err().is_not_in_memory());
    assert!(keyspace.cursor_with(&in_memory()).and_then(|mut i| i.seek(&key)).unwrap_err().is_not_in_memory());
    let refused = now(store.get_with_async(key, &in_memory())).expect("no thread is asked");
    assert!(refused.unwrap_err().is_not_in_memory());

    // Read once, it is in the cache, and nobody else's thread is needed.
    assert_eq!(wait(store.get_async(key)).unwrap().as_deref(), Some(&[210; 60][..]));
    let found = now(store.get_async(key)).expect("it is in the cache");
    assert_eq!(found.unwrap().as_deref(), Some(&[210; 60][..]));
    let keys = [key, 1235u32.to_be_bytes()];
    assert!(now(store.multi_get_async(&keys)).expect("the same block").is_ok());
    assert_eq!(keyspace.get_with(key, &in_memory()).unwrap().as_deref(), Some(&[210; 60][..]));
    // The filter, which is in memory too, knows that this key is not there.
    assert!(keyspace.get_with(b"absent", &in_memory()).unwrap().is_none());

    // A lookup that memory could not answer counts as one miss, not as two.
    let before = store.properties().cache_misses;
    wait(store.get_async(4000u32.to_be_bytes())).unwrap();
    assert_eq!(store.properties().cache_misses - before, 1);
    store.close().unwrap();
}

/// Every other page of the simulated volume is to be had without waiting.
#[test]
fn blocks_that_are_to_be_had_at_once_are_read_on_the_callers_thread() {
    let env = situ_base::Env::system();
    let volume = SimVolume::new(&env, FaultPlan::none(), 1);
    let open = || {
        let mut options = small();
        options.cache_bytes = 0;
        situ_engine::StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume.clone())).unwrap()
    };
    let store = open();
    for n in 0..5000u32 {
        store.put(n.to_be_bytes(), [n as u8; 60]).unwrap();
    }
    store.flush().unwrap();
    let (mut at_once, mut later) = (0, 0);
    for n in 0..5000u32 {
        // With an index block to be read as well in some tables; and a table has to be open.
        let read = store.get_async(n.to_be_bytes());
        let mut read = pin!(read);
        let found = match read.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => (at_once += 1, found).1,
            Poll::Pending => (later += 1, wait(read)).1,
        };
        assert_eq!(found.unwrap().as_deref(), Some(&[n as u8; 60][..]));
    }
    assert!(at_once > 100 && later > 100, "{at_once} at once, {later} later");
    // A page of a scan begins on the caller's thread and goes on on another one.
    let page = wait(store.scan_async(&ScanOptions { entries_max: 5000, ..ScanOptions::default() })).unwrap();
    let keys: Vec<u32> = page.iter().map(|entry| u32::from_be_bytes(entry.key[..].try_into().unwrap())).collect();
    assert_eq!(keys, (0..5000).collect::<Vec<_>>());
    // Only of what memory knows: nothing is read.
    assert!(now(store.get_with_async(7u32.to_be_bytes(), &in_memory())).unwrap().unwrap_err().is_not_in_memory());
    store.close().unwrap();
}

/// The caller decides whether a read that needs a disk begins, and it reads as of the moment of the attempt.
#[test]
fn a_read_that_needs_a_disk_begins_when_its_caller_says_so() {
    let env = situ_base::Env::system();
    let volume = SimVolume::new(&env, FaultPlan::none(), 1);
    let mut options = small();
    options.cache_bytes = 0;
    let store = situ_engine::StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume)).unwrap();
    for n in 0..5000u32 {
        store.put(n.to_be_bytes(), [n as u8; 60]).unwrap();
    }
    store.flush().unwrap();
    let (keyspace, options) = (store.default_keyspace(), ReadOptions::default());
    let (mut known, mut on_disk, mut dropped) = (0, 0, 0);
    for n in 0..5000u32 {
        let key = n.to_be_bytes();
        let reads = store.statistics().reads;
        let found = match keyspace.get_at_once(&key, &options).unwrap() {
            AtOnce::Known(found) => (known += 1, found).1,
            AtOnce::OnDisk(read) if n % 2 == 0 => {
                (on_disk, dropped) = (on_disk + 1, dropped + 1);
                assert_eq!(store.statistics().reads, reads, "what has not begun is not counted");
                drop(read);
                continue;
            }
            AtOnce::OnDisk(read) => {
                on_disk += 1;
                store.put(key, b"later").unwrap();
                wait(read.begin()).unwrap()
            }
        };
        assert_eq!(found.as_deref(), Some(&[n as u8; 60][..]));
        assert_eq!(store.statistics().reads, reads + 1);
    }
    assert!(known > 100 && on_disk > 100 && dropped > 10, "{known} known, {on_disk} on disk, {dropped} dropped");
    assert!(matches!(keyspace.get_at_once(b"absent", &options).unwrap(), AtOnce::Known(None)));
    // An even key: the loop has put none of them into memory.
    assert!(keyspace.get_at_once(&8u32.to_be_bytes(), &in_memory()).is_err_and(|error| error.is_not_in_memory()));
    store.close().unwrap();
    assert!(matches!(keyspace.get_at_once(b"absent", &options), Err(Error::Closed)));
}

fn pages(store: &Store, first: ScanOptions, look: &mut dyn FnMut(&ScanPage)) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut next, mut all) = (Some(first), Vec::new());
    while let Some(options) = next {
        let page = wait(store.scan_async(&options)).unwrap();
        look(&page);
        all.extend(page.iter().map(|entry| (entry.key.to_vec(), entry.value.to_vec())));
        next = options.after(&page);
    }
    all
}

#[test]
fn pages_of_a_scan_follow_each_other_like_an_iterator() {
    let directory = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(7);
    let store = Store::open_with(directory.path(), small()).unwrap();
    let mut model = BTreeMap::new();
    for round in 0..6000u32 {
        let key = (rng.below(3000) as u32).to_be_bytes().to_vec();
        if rng.chance(0.2) {
            store.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = vec![round as u8; rng.index(200)];
            store.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
    let snapshot = store.snapshot().unwrap();
    store.delete_range(1000u32.to_be_bytes(), 2000u32.to_be_bytes()).unwrap();
    for (entries_max, bytes_max) in [(1, 1 << 20), (7, 1 << 20), (100_000, 500), (1000, 1 << 20), (0, 0)] {
        for reverse in [false, true] {
            let (lower, upper) = (rng.below(1500) as u32, 1500 + rng.below(1500) as u32);
            let read = ReadOptions::default().range(lower.to_be_bytes(), upper.to_be_bytes()).at(&snapshot);
            let range = lower.to_be_bytes().to_vec()..upper.to_be_bytes().to_vec();
            let mut expected: Vec<_> = model.range(range).map(|(k, v)| (k.clone(), v.clone())).collect();
            if reverse {
                expected.reverse();
            }
            let options = ScanOptions { read, reverse, entries_max, bytes_max };
            let found = pages(&store, options, &mut |page| {
                assert!(page.len() <= entries_max.max(1));
                let bytes: usize = page.iter().rev().skip(1).map(|e| e.key.len() + e.value.len()).sum();
                assert!(page.len() == 1 || bytes < bytes_max, "{bytes} bytes before the last entry");
            });
            assert_eq!(found, expected, "{entries_max} entries or {bytes_max} bytes a page, reverse: {reverse}");
        }
    }
    let all = pages(&store, ScanOptions::default(), &mut |_| {});
    let number = |key: &[u8]| u32::from_be_bytes(key.try_into().unwrap());
    assert!(all.iter().all(|(key, _)| !(1000..2000).contains(&number(key))));
    store.close().unwrap();
    assert!(matches!(wait(store.scan_async(&ScanOptions::default())), Err(Error::Closed)));
}

#[test]
fn a_scan_that_memory_knows_is_ready_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = cold(directory.path());
    let read = ReadOptions::default().range(100u32.to_be_bytes(), 300u32.to_be_bytes());
    let mut options = ScanOptions { read, ..ScanOptions::default() };
    let mut memory_only = options.clone();
    memory_only.read.memory_only = true;
    let refused = now(store.scan_async(&memory_only)).expect("no thread is asked");
    assert!(refused.unwrap_err().is_not_in_memory());
    assert_eq!(wait(store.scan_async(&options)).unwrap().len(), 200);
    assert_eq!(now(store.scan_async(&options)).expect("all is in the cache").unwrap().len(), 200);
    // The first half is in memory: the caller's thread has put it on the page, another one goes on.
    options.read = ReadOptions::default().range(200u32.to_be_bytes(), 4000u32.to_be_bytes());
    options.entries_max = 10_000;
    let page = wait(store.scan_async(&options)).unwrap();
    let keys: Vec<u32> = page.iter().map(|e| u32::from_be_bytes(e.key[..].try_into().unwrap())).collect();
    assert_eq!(keys, (200..4000).collect::<Vec<_>>());
    assert!(!page.has_more());
    store.close().unwrap();
}

#[test]
fn a_store_with_as_many_requests_as_it_likes_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = small();
    options.requests_outstanding_max = 16;
    let store = Store::open_with(directory.path(), options).unwrap();
    assert!(!store.is_busy() && now(store.ready()).is_some());
    let (mut most, mut busy) = (0, 0);
    let mut futures = Vec::new();
    for n in 0..2000u32 {
        busy += usize::from(store.is_busy());
        wait(store.ready());
        futures.push(store.put_with_async(n.to_be_bytes(), b"value", Durability::Synced));
        most = most.max(store.properties().requests_outstanding);
    }
    assert!(most <= 16, "{most} requests, with one caller that held back");
    assert!(busy > 0, "a disk that syncs before the next call could be made");
    futures.into_iter().for_each(|future| wait(future).unwrap());
    assert_eq!(store.properties().requests_outstanding, 0);
    store.flush().unwrap();
    let reads: Vec<_> = (0..2000u32).map(|n| store.get_with_async(n.to_be_bytes(), &in_memory())).collect();
    drop(reads);
    let reads: Vec<_> = (0..2000u32).map(|n| store.get_async(n.to_be_bytes())).collect();
    reads.into_iter().for_each(|read| assert!(wait(read).unwrap().is_some()));
    wait(store.ready());
    // The last thread to read may not have told yet.
    while store.properties().requests_outstanding > 0 {
        std::thread::yield_now();
    }
    store.close().unwrap();
    assert!(now(store.ready()).is_some(), "nobody waits for a closed store");
}

/// Many callers that hold back, on a disk that fails at some moment, or in a store that closes: none waits for ever, and
/// the count comes back to nothing.
#[test]
fn whoever_waits_for_a_busy_store_is_woken() {
    situ_sim::for_each_seed(0, 40, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let fails = seed % 3 == 0;
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let mut options = small();
            options.requests_outstanding_max = 4;
            let builder = situ_engine::StoreBuilder::new(options).env(env.clone());
            let store = builder.open_volume(Arc::new(volume.clone())).unwrap();
            let ended = Arc::new(AtomicUsize::new(0));
            let jobs: Vec<_> = (0..3u32)
                .map(|caller| {
                    let (store, ended, event) = (store.clone(), Arc::clone(&ended), env.executor.event());
                    let body = move || {
                        struct Notify(Arc<dyn situ_base::Event>);
                        impl Wake for Notify {
                            fn wake(self: Arc<Self>) {
                                self.0.notify();
                            }
                        }
                        let waker = Waker::from(Arc::new(Notify(Arc::clone(&event))));
                        let mut context = Context::from_waker(&waker);
                        for n in 0..30u32 {
                            let mut ready = pin!(store.ready());
                            loop {
                                let seen = event.generation();
                                if ready.as_mut().poll(&mut context).is_ready() {
                                    break;
                                }
                                event.wait(seen, None);
                            }
                            let key = (caller * 1000 + n).to_be_bytes();
                            if taken(store.put_with_async(key, [7; 100], Durability::Synced)).is_err() {
                                break;
                            }
                        }
                        ended.fetch_add(1, Ordering::SeqCst);
                    };
                    env.executor.spawn("caller", Box::new(body)).unwrap()
                })
                .collect();
            if fails {
                let fault = Rule::new(Fault::Io).on(&[Operation::WritePages, Operation::Sync]).from(seed % 7);
                volume.set_faults(FaultPlan::none().with(fault));
            }
            if seed % 3 == 1 {
                let _ = store.close();
            }
            jobs.into_iter().for_each(|job| job.join().unwrap());
            assert_eq!(ended.load(Ordering::SeqCst), 3);
            let _ = store.close();
            assert_eq!(store.properties().requests_outstanding, 0);
        });
    });
}
