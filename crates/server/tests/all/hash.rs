//! The server over a hash store: what holds over the other engine holds here, and what was acknowledged is there after a restart.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use situ::hash::{HashBatch, HashOptions, HashStore, HashStoreBuilder};
use situ::{Durability, Store};
use situ_base::Env;
use situ_server::{Engine, HashEngine, HashItemWriter, Health, holds_entries, is_reserved, reserved, stored_hash_rule};
use situ_sim::{Compression, FaultPlan, Rng, SetClock, SimDevice, SimVolume};

use crate::differential::compare_with_memcached;
use crate::durable::{Client, Durable, fetch, item, run_memccapable, serve_over, set_and_restart, stop};

fn options() -> HashOptions {
    HashOptions { base_bits: 4, bucket_space_bytes: 64 << 20, partitions: 2, ..HashOptions::default() }
}

impl Durable for HashEngine {
    fn open_in(directory: &Path, durability: Durability) -> HashEngine {
        HashEngine::open(directory, HashStoreBuilder::new(options()), durability).unwrap()
    }

    fn close(&self) {
        self.store().close().unwrap();
    }
}

fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A load that ended before its first entry leaves its position alone. No server was let in then.
#[test]
fn a_store_with_the_positions_of_loads_alone_is_as_good_as_empty() {
    let directory = tempfile::tempdir().unwrap();
    let store = HashStore::open(directory.path(), options()).unwrap();
    store.put(reserved(b"load some file"), "a position").unwrap();
    assert!(!holds_entries(&store).unwrap());
    store.close().unwrap();
    HashEngine::open_in(directory.path(), Durability::Buffered).close();
    let plain = tempfile::tempdir().unwrap();
    let store = HashStore::open(plain.path(), options()).unwrap();
    store.put(reserved(b"load some file"), "a position").unwrap();
    store.put("an entry", "of somebody").unwrap();
    assert!(holds_entries(&store).unwrap());
    store.close().unwrap();
    let refused = HashEngine::open(plain.path(), HashStoreBuilder::new(options()), Durability::Buffered);
    assert!(refused.unwrap_err().to_string().contains("holds entries"));
}

/// Flushed items that no write met stayed on disk for good.
#[test]
fn flushed_items_leave_the_disk_and_a_restart_continues() {
    const ITEMS: u64 = 400;
    let directory = tempfile::tempdir().unwrap();
    let left = |engine: &HashEngine| {
        let totals = engine.store().properties().totals;
        totals.entries + totals.overflow_entries
    };
    let wait = |engine: &HashEngine, at_most: u64| {
        let until = Instant::now() + Duration::from_secs(60);
        while left(engine) > at_most {
            assert!(Instant::now() < until, "{} entries are left", left(engine));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    // Values in buckets, and in the value log.
    let sets = |bytes: usize| -> String {
        let value = "v".repeat(bytes);
        (0..ITEMS).map(|n| format!("set {bytes}-{n} 0 0 {bytes} noreply\r\n{value}\r\n")).collect()
    };
    let (engine, server) = serve_over::<HashEngine>(directory.path(), Durability::Buffered);
    let mut client = Client::connect(server.addresses()[0]);
    client.send((sets(100) + &sets(3000)).as_bytes());
    assert_eq!(client.ask("set before 0 0 1\r\nx\r\n"), "STORED\r\n");
    assert!(engine.store().count().unwrap() > 2 * ITEMS);
    assert_eq!(client.ask("flush_all\r\n"), "OK\r\n");
    assert_eq!(client.ask("set after 0 0 1\r\nx\r\n"), "STORED\r\n");
    // The server's own records, and what came after.
    wait(&engine, 10);
    assert_eq!((client.value("before"), client.value("after").as_deref()), (None, Some("x")));
    stop(&*engine, server);
    // The process ended before the purge: the barrier alone was stored.
    let store = HashStore::open(directory.path(), options()).unwrap();
    let barrier = store.get(reserved(b"flush-barrier")).unwrap().unwrap();
    let barrier = u64::from_le_bytes(barrier[..8].try_into().unwrap());
    (0..ITEMS).for_each(|n| store.put(format!("old {n}"), item(barrier - 1, b"data")).unwrap());
    store.put("new", item(barrier, b"data")).unwrap();
    store.put(reserved(b"purged-barrier"), (barrier - 1).to_le_bytes()).unwrap();
    store.close().unwrap();
    let (engine, server) = serve_over::<HashEngine>(directory.path(), Durability::Buffered);
    wait(&engine, 11);
    let mut client = Client::connect(server.addresses()[0]);
    assert_eq!((client.value("old 7"), client.value("new").as_deref()), (None, Some("data")));
    stop(&*engine, server);
    // A purge that was done is not done again.
    let store = HashStore::open(directory.path(), options()).unwrap();
    assert_eq!(store.get(reserved(b"purged-barrier")).unwrap().unwrap(), barrier.to_le_bytes());
    store.close().unwrap();
}

/// Health and metrics say that puts are refused, and when they are taken again, while the drive still has space.
#[test]
fn a_drive_that_compresses_and_fills_is_seen_in_health_and_metrics() {
    let (env, total) = (Env::system(), 8 << 20);
    let volume = || Arc::new(SimVolume::new(&env, FaultPlan::none(), 1));
    let device = SimDevice::new(&env, 64 << 20, FaultPlan::none(), 1);
    device.set_compression(Compression::default().total(total));
    let options =
        HashOptions { overflow_memory_bytes: 64 << 10, image_bytes_max: 0, pending_bytes_max: 64 << 10, ..options() };
    let open = |builder: HashStoreBuilder| builder.open_volumes(volume(), volume(), Arc::new(device.clone()));
    let engine = HashEngine::open_by(HashStoreBuilder::new(options), Durability::Buffered, open).unwrap();
    let mut rng = Rng::new(1);
    let mut put = |number: u32| {
        let mut value = vec![0; 900];
        rng.fill(&mut value);
        engine.store().put(number.to_le_bytes(), value)
    };
    let refused = (0..20_000).find_map(|number| put(number).err()).unwrap();
    assert!(refused.is_no_space(), "{refused}");
    let Health::Degraded(why) = engine.health() else { panic!("{:?}", engine.health()) };
    assert!(why.contains("physical space"), "{why}");
    let gauge = |wanted: &str| {
        let mut found = None;
        engine.metrics(&mut |metric| found = found.or((metric.name == wanted).then_some(metric.value)));
        found.unwrap()
    };
    assert!(gauge("situ_hash_physical_level") >= 2.0 && gauge("situ_hash_physical_reserve_bytes") > 0.0);
    assert_eq!((gauge("situ_hash_out_of_space"), gauge("situ_hash_failed")), (0.0, 0.0));
    device.set_compression(Compression::default().total(8 * total));
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while engine.health() != Health::Ready {
        assert!(std::time::Instant::now() < until, "{:?}", engine.health());
        std::thread::sleep(Duration::from_millis(50));
    }
    put(0).unwrap();
    assert!(gauge("situ_hash_physical_level") < 2.0);
    engine.close();
}

#[test]
fn memccapable_passes_over_a_hash_store() {
    run_memccapable::<HashEngine>();
}

#[test]
fn many_pipelined_synced_sets_outlive_a_restart_of_a_hash_store() {
    set_and_restart::<HashEngine>();
}

#[test]
fn answers_are_memcacheds_over_a_hash_store() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Arc::new(HashEngine::open_in(directory.path(), Durability::Buffered));
    compare_with_memcached(400, 60, Arc::clone(&engine));
    engine.close();
}

#[test]
fn values_of_every_length_are_kept_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, server) = serve_over::<HashEngine>(directory.path(), Durability::Buffered);
    let mut client = Client::connect(server.addresses()[0]);
    // Below, at and above what lies in a bucket; and the longest.
    let lengths = [0, 1, 1001, 1002, 1003, 2966, 4096, 65_536, 1 << 20];
    let value = |length: usize| "v".repeat(length);
    for length in lengths {
        let key = format!("{length}{}", "k".repeat(200));
        assert_eq!(client.ask(&format!("ms {key} {length} E5 T1000\r\n{}\r\n", value(length))), "HD\r\n");
        assert_eq!(client.value(&key), Some(value(length)));
    }
    let longer = (1 << 20) + 1;
    let refused = client.ask(&format!("set other 0 0 1\r\nx\r\nset k 0 0 {longer}\r\n{}\r\n", value(longer)));
    assert_eq!(
        (refused.as_str(), client.line().as_str()),
        ("STORED\r\n", "SERVER_ERROR object too large for cache\r\n")
    );
    stop(&*engine, server);
    let (engine, server) = serve_over::<HashEngine>(directory.path(), Durability::Buffered);
    let mut client = Client::connect(server.addresses()[0]);
    for length in lengths {
        assert_eq!(client.value(&format!("{length}{}", "k".repeat(200))), Some(value(length)), "{length}");
    }
    assert_eq!(client.value("other").as_deref(), Some("x"));
    stop(&*engine, server);
}

#[test]
fn flushes_outlive_a_restart_and_reach_what_was_loaded_offline() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, server) = serve_over::<HashEngine>(directory.path(), Durability::Buffered);
    let mut client = Client::connect(server.addresses()[0]);
    assert_eq!(client.ask("set before 0 0 1\r\nx\r\n"), "STORED\r\n");
    assert_eq!(client.ask("flush_all\r\n"), "OK\r\n");
    assert_eq!(client.ask("set old 0 0 1\r\nx\r\n"), "STORED\r\n");
    assert_eq!(client.ask("flush_all 1000\r\n"), "OK\r\n");
    assert_eq!(client.value("old").as_deref(), Some("x"));
    stop(&*engine, server);

    let store = HashStore::open(directory.path(), options()).unwrap();
    let (now, stored) = (now_seconds(), store.get("old").unwrap().unwrap());
    assert!(!stored_hash_rule(&store, now).unwrap().unwrap().is_dead(&stored));
    assert!(stored_hash_rule(&store, now + 2000).unwrap().unwrap().is_dead(&stored), "the delayed flush is due");
    store.close().unwrap();
    let later = Arc::new(SetClock::default());
    later.pass(2000);
    let store = HashStoreBuilder::new(options()).env(later.env()).open(directory.path()).unwrap();
    let mut writer = HashItemWriter::open(&store).unwrap();
    let mut batch = HashBatch::new();
    writer.put(&mut batch, b"low", &item(1, b"l")).unwrap();
    writer.put(&mut batch, b"high", &item(u64::MAX, b"h")).unwrap();
    assert!(writer.put(&mut batch, b"plain", b"value").unwrap_err().contains("not a memcached item"));
    assert!(writer.put(&mut batch, &[b'k'; 251], &item(1, b"x")).unwrap_err().contains("at most 250 bytes"));
    writer.seal(&mut batch).unwrap();
    store.write_with(batch, Durability::Synced.into()).unwrap();
    store.close().unwrap();

    let (engine, server) = serve_over::<HashEngine>(directory.path(), Durability::Buffered);
    let mut client = Client::connect(server.addresses()[0]);
    let values = |client: &mut Client| ["before", "old", "low", "high"].map(|key| client.value(key));
    assert_eq!(values(&mut client), [None, None, Some("l".to_owned()), Some("h".to_owned())]);
    assert_eq!(client.ask("flush_all\r\n"), "OK\r\n");
    assert_eq!(values(&mut client), [None, None, None, None]);
    stop(&*engine, server);
}

/// The room of items that have expired for longer than a minute comes back with the next write of their bucket.
#[test]
fn expired_items_leave_their_buckets_and_others_stay() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, server) = serve_over::<HashEngine>(directory.path(), Durability::Buffered);
    let mut client = Client::connect(server.addresses()[0]);
    let sets: String = (0..200).map(|n| format!("set dead{n} 0 -1 1\r\nx\r\nset soon{n} 0 1 1\r\nx\r\n")).collect();
    client.send(sets.as_bytes());
    (0..400).for_each(|_| assert_eq!(client.line(), "STORED\r\n"));
    for n in 0..200 {
        assert_eq!(client.ask(&format!("set kept{n} 0 1000 1\r\nx\r\n")), "STORED\r\n");
    }
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(client.value("soon0"), None);
    // Dead to readers, and not for long enough to go from the disk.
    let kept_anyway = engine.store().get("soon0").unwrap();
    assert!(kept_anyway.is_some(), "clocks are not exact");
    engine.store().checkpoint().unwrap();
    let count = engine.store().count().unwrap();
    assert!((400..=402).contains(&count), "{count} of 600 and the server's records");
    assert_eq!(client.value("kept199").as_deref(), Some("x"));
    stop(&*engine, server);
}

#[test]
fn a_hash_store_that_no_server_wrote_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = HashStore::open(directory.path(), options()).unwrap();
    store.put("k", "plain").unwrap();
    assert_eq!(stored_hash_rule(&store, 0).unwrap(), None);
    store.close().unwrap();
    let builder = HashStoreBuilder::new(options());
    let refused = HashEngine::open(directory.path(), builder, Durability::Buffered).err().unwrap().to_string();
    assert!(refused.contains("not the record of the cas ids"), "{refused}");
    assert!(is_reserved(&reserved(b"cas-limit")) && !is_reserved(&[0; 250]));
}

#[test]
fn metrics_and_health_tell_of_a_hash_store() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, server) = serve_over::<HashEngine>(directory.path(), Durability::Buffered);
    let http = server.http_address().unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    assert_eq!(client.ask("set a 0 0 1\r\nx\r\n"), "STORED\r\n");
    engine.store().checkpoint().unwrap();
    assert_eq!(client.value("a").as_deref(), Some("x"));
    assert!(fetch(http, "/healthz").starts_with("HTTP/1.1 200"));
    let page = fetch(http, "/metrics");
    // The item, and the record of cas ids.
    for line in [
        "situ_hash_entries 2",
        "situ_hash_buckets 16",
        "situ_hash_failed 0",
        "situ_hash_checkpoints_total 1",
        "# TYPE situ_hash_bucket_reads_total counter",
        "situ_hash_overflow_ratio 0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
    }
    // What lies below a directory is unknown here, or known; nothing is guessed.
    let known = engine.store().properties().space.physical_used;
    assert_eq!(page.contains("situ_hash_device_physical_used_bytes"), known.is_some());
    let types: Vec<&str> = page.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let unique: std::collections::HashSet<_> = types.iter().collect();
    assert_eq!(types.len(), unique.len(), "each metric is described once, its samples in a row");
    engine.store().close().unwrap();
    assert_eq!(engine.health(), Health::Ready);
    assert!(client.ask("set a 0 0 1\r\nx\r\n").starts_with("SERVER_ERROR the store is closed"));
    assert!(client.ask("version\r\n").starts_with("VERSION"));
    server.stop(Duration::from_secs(5));
}

/// An ordered store that was opened where a hash store lies made itself at home there, and the other way round.
#[test]
fn either_engine_leaves_the_directory_of_the_other_as_it_is() {
    let (hash, ordered) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = HashStore::open(hash.path(), options()).unwrap();
    store.put("a", "1").unwrap();
    store.close().unwrap();
    let store = Store::open(ordered.path()).unwrap();
    store.put("a", "2").unwrap();
    store.close().unwrap();
    let files = |directory: &Path| {
        let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name != "LOCK").collect::<BTreeSet<_>>()
    };
    let (hash_files, ordered_files) = (files(hash.path()), files(ordered.path()));
    let refusals = [
        Store::open(hash.path()).err().unwrap().to_string(),
        situ_tiers::repair_directory(hash.path(), Default::default()).err().unwrap().to_string(),
    ];
    for refused in refusals {
        assert!(refused.contains("holds a hash store") && refused.contains("nothing was changed"), "{refused}");
    }
    let refused = HashStore::open(ordered.path(), options()).err().unwrap().to_string();
    assert!(refused.contains("an ordered store") && refused.contains("nothing was written"), "{refused}");
    assert_eq!((files(hash.path()), files(ordered.path())), (hash_files, ordered_files));
    assert_eq!(HashStore::open(hash.path(), options()).unwrap().get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(Store::open(ordered.path()).unwrap().get("a").unwrap().unwrap(), "2");
}
