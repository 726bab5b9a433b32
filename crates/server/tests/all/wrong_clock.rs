//! A wall clock is wrong when a server starts, and is set right later. Items keep their times to live, and expired items stay gone.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use situ::cache::{Flash, Options as CacheOptions};
use situ::hash::{HashOptions, HashStoreBuilder};
use situ::{Options, StoreBuilder, WriteBatch};
use situ_base::{Clock, Env};
use situ_device::OpenOptions;
use situ_server::{
    CacheEngine, Engine, HashEngine, ITEMS_KEYSPACE, ItemView, ItemWriter, Server, ServerOptions, StoreEngine,
    item_in_unix_time, open_unserved_by, stored_clock, stored_rule,
};
use situ_sim::{SetClock, SimMemory};

use crate::durable::Client;

const HOUR: i64 = 3600;
const YEAR: i64 = 365 * 24 * HOUR;
/// Time limit for a condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// An engine whose items survive its process.
trait Lasting: Engine + Sized {
    fn open_in(directory: &Path, env: Env) -> Self;

    fn end(&self);

    /// Makes the engine drop everything that may go.
    fn tidy(&self);

    /// Makes sure that stored items survive the death of the process.
    fn settle(&self, client: &mut Client) {
        _ = client;
    }
}

impl Lasting for StoreEngine {
    fn open_in(directory: &Path, env: Env) -> StoreEngine {
        StoreEngine::open_by(Options::default(), |builder| builder.env(env).open(directory.join("store"))).unwrap()
    }

    fn end(&self) {
        self.close().unwrap();
    }

    fn tidy(&self) {
        self.store().flush().unwrap();
        self.store().existing_keyspace(ITEMS_KEYSPACE).unwrap().compact(None, None).unwrap();
    }
}

impl Lasting for HashEngine {
    fn open_in(directory: &Path, env: Env) -> HashEngine {
        let options =
            HashOptions { base_bits: 4, bucket_space_bytes: 64 << 20, partitions: 2, ..HashOptions::default() };
        let builder = HashStoreBuilder::new(options).env(env);
        HashEngine::open(directory.join("store"), builder, situ::Durability::Buffered).unwrap()
    }

    fn end(&self) {
        self.store().close().unwrap();
    }

    fn tidy(&self) {
        // Workers rewrite buckets without expired items.
        (0..200_u32).for_each(|number| self.store().delete([b"absent", &number.to_le_bytes()[..]].concat()).unwrap());
        self.store().checkpoint().unwrap();
    }
}

impl Lasting for CacheEngine {
    fn open_in(directory: &Path, env: Env) -> CacheEngine {
        let path = directory.join("flash");
        if !path.exists() {
            fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
        }
        let device = situ_device::open(&path, OpenOptions::default()).unwrap();
        let flash = Flash { device, env, files: Some(path) };
        CacheEngine::with_flash(&CacheOptions::of_memory(28 << 20), flash, Box::new(|_| ())).unwrap().0
    }

    fn end(&self) {
        self.stop().unwrap();
    }

    fn tidy(&self) {
        self.spill();
    }

    fn settle(&self, client: &mut Client) {
        let value = "v".repeat(500_000);
        // The first round moves all items to the log on flash. The second round seals those segments.
        for round in 0..2 {
            for number in 0..4 {
                let set = format!("set filler{round}{number} 0 0 500000\r\n{value}\r\n");
                assert_eq!(client.ask(&set), "STORED\r\n");
            }
            self.spill();
        }
        let begun = Instant::now();
        while self.properties().flash.unwrap().written_bytes < 3 << 20 {
            assert!(begun.elapsed() < PATIENCE, "{:?}", self.properties());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A server over an engine, and a client.
struct Served<E: Engine> {
    engine: Arc<E>,
    server: Server,
    client: Client,
}

impl<E: Lasting> Served<E> {
    fn over(directory: &Path, time: &Arc<SetClock>) -> Served<E> {
        let engine = Arc::new(E::open_in(directory, time.env()));
        let options =
            ServerOptions { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..ServerOptions::default() };
        let server = Server::start(&options, Arc::clone(&engine)).unwrap();
        let client = Client::connect(server.addresses()[0]);
        Served { engine, server, client }
    }

    fn end(self) {
        self.server.stop(Duration::from_secs(10));
        self.engine.end();
    }

    /// Waits until the keeper of the clock has seen a correction.
    fn until_ahead(&self, seconds: i64) {
        let begun = Instant::now();
        while self.engine.clock().difference_seconds() != seconds {
            assert!(begun.elapsed() < PATIENCE, "the clock of the engine is {:?}", self.engine.clock());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The expiration times that a client requested, and the time that has passed.
struct Asked {
    begun: Instant,
    passed: i64,
}

impl Asked {
    /// Stores four items: one expires soon, one in a day, one at a Unix time in 40 days, one never.
    fn of<E: Lasting>(served: &mut Served<E>, time: &SetClock) -> Asked {
        let unix = time.unix().as_secs();
        for (key, expires) in [("soon", 60), ("long", 100_000), ("absolute", unix + 40 * 86_400), ("ever", 0)] {
            assert_eq!(served.client.ask(&format!("set {key} 0 {expires} 1\r\nx\r\n")), "STORED\r\n");
        }
        served.engine.settle(&mut served.client);
        Asked { begun: Instant::now(), passed: 0 }
    }

    /// Checks that items live as long as requested.
    fn check<E: Lasting>(&self, served: &mut Served<E>, when: &str) {
        assert_eq!(served.client.ask("mg soon t\r\n"), "EN\r\n", "{when}");
        for (key, asked) in [("long", 100_000), ("absolute", 40 * 86_400)] {
            let answer = served.client.ask(&format!("mg {key} t\r\n"));
            let seconds = answer.strip_prefix("HD t").and_then(|text| text.trim().parse::<i64>().ok());
            let most = asked - self.passed;
            let least = most - self.begun.elapsed().as_secs() as i64 - 2;
            let is_right = seconds.is_some_and(|seconds| (least..=most + 1).contains(&seconds));
            assert!(is_right, "{key} has {answer:?} instead of {most} s, {when}");
        }
        assert_eq!(served.client.ask("mg ever t\r\n"), "HD t-1\r\n", "{when}");
    }
}

/// Copies a directory in its present state, as a dying process would leave it.
fn copied(directory: &Path) -> tempfile::TempDir {
    // A file may be renamed during the copy. Then the copy is repeated.
    for _ in 0..100 {
        let copy = tempfile::tempdir().unwrap();
        let mut cp = std::process::Command::new("cp");
        let output = cp.args(["-a", "--sparse=always", "."]).arg(copy.path()).current_dir(directory).output();
        if output.unwrap().status.success() {
            return copy;
        }
    }
    panic!("{} cannot be copied", directory.display());
}

/// The expiration clock used to follow a corrected wall clock slowly, and a restart reset it to the wall clock. After a clock that was a year
/// behind was set right, a restart lost an item with 100,000 s to live. After a clock that was two hours ahead was set right, an expired
/// item came back.
fn a_wrong_clock_is_set_right<E: Lasting>() {
    for correction in [YEAR, -2 * HOUR] {
        let (directory, time) = (tempfile::tempdir().unwrap(), Arc::new(SetClock::default()));
        time.set(-correction);
        let mut served = Served::<E>::over(directory.path(), &time);
        let mut asked = Asked::of(&mut served, &time);
        time.pass(61);
        asked.passed += 61;
        asked.check(&mut served, "before");
        let before = copied(directory.path());
        time.set(correction);
        asked.check(&mut served, "set right");
        served.until_ahead(correction);
        let after = copied(directory.path());
        asked.check(&mut served, "seen to be right");
        time.pass(200);
        asked.passed += 200;
        served.engine.tidy();
        asked.check(&mut served, "tidied");
        served.end();

        let mut served = Served::<E>::over(directory.path(), &time);
        asked.check(&mut served, "after a restart");
        served.engine.tidy();
        served.end();
        // Copies of processes that died before and after they saw the correction.
        for (copy, when) in [(before, "before"), (after, "after")] {
            let mut served = Served::<E>::over(copy.path(), &time);
            asked.check(&mut served, &format!("killed {when}"));
            served.end();
        }

        time.boot_again();
        time.pass(HOUR);
        asked.passed += HOUR;
        let mut served = Served::<E>::over(directory.path(), &time);
        asked.check(&mut served, "after a boot");
        served.end();
        // This machine loses the time while it is off, and is set right later.
        time.boot_again();
        time.set(-20 * YEAR);
        let mut served = Served::<E>::over(directory.path(), &time);
        let told = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&told);
        served.engine.clock().tell(Box::new(move |line| lines.lock().unwrap().push(line.to_owned())));
        asked.check(&mut served, "with the time forgotten");
        served.engine.tidy();
        time.set(20 * YEAR + HOUR);
        asked.passed += HOUR;
        let (begun, clock) = (Instant::now(), Arc::clone(served.engine.clock()));
        while told.lock().unwrap().len() < 2 {
            assert!(begun.elapsed() < PATIENCE, "the time is not followed: {clock:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        asked.check(&mut served, "with the time learned");
        served.engine.tidy();
        served.end();
        let told = told.lock().unwrap();
        assert!(told[0].contains("went back") && told[1].contains(" s ahead") == (correction > 0), "{told:?}");
    }
}

#[test]
fn over_an_ordered_store_a_wrong_clock_is_set_right() {
    a_wrong_clock_is_set_right::<StoreEngine>();
}

#[test]
fn over_a_hash_store_a_wrong_clock_is_set_right() {
    a_wrong_clock_is_set_right::<HashEngine>();
}

#[test]
fn over_a_cache_on_flash_a_wrong_clock_is_set_right() {
    a_wrong_clock_is_set_right::<CacheEngine>();
}

/// Items dumped with their header and loaded elsewhere kept expiration times of the first store's clock.
#[test]
fn items_leave_a_store_and_come_back_with_unix_time() {
    let (directory, time) = (tempfile::tempdir().unwrap(), Arc::new(SetClock::default()));
    time.set(-YEAR);
    let mut served = Served::<StoreEngine>::over(directory.path(), &time);
    let long = "x".repeat(5000);
    assert_eq!(served.client.ask(&format!("set long 0 100000 5000\r\n{long}\r\n")), "STORED\r\n");
    time.set(YEAR);
    let unix = time.unix().as_secs();
    served.end();
    let open = |builder: StoreBuilder| builder.env(time.env()).open(directory.path().join("store"));
    let store = open_unserved_by(Options::default(), open).unwrap();
    let clock = Arc::new(stored_clock(&store).unwrap());
    assert_eq!(clock.difference_seconds(), YEAR);
    let items = store.existing_keyspace(ITEMS_KEYSPACE).unwrap();
    items.compact(None, None).unwrap();
    let stored = items.get(b"long").unwrap().unwrap().to_vec();
    let rule = stored_rule(&store, clock.seconds()).unwrap().unwrap();
    assert!(!rule.is_dead(&stored));
    // A dump without memory for a copy ended the process.
    let refused = SimMemory::refusing(5000, || item_in_unix_time(&stored, &clock).map(drop)).unwrap_err();
    assert!(refused.is_out_of_memory(), "{refused}");
    let dumped = item_in_unix_time(&stored, &clock).unwrap().to_vec();
    let expires = ItemView::of(&dumped).unwrap().expires;
    assert!((unix + 99_900..=unix + 100_001).contains(&expires), "{expires} at {unix}");
    let mut writer = ItemWriter::open(&store, Arc::clone(&clock)).unwrap();
    let mut batch = WriteBatch::new();
    writer.put(&mut batch, b"again", &dumped).unwrap();
    writer.seal(&mut batch).unwrap();
    store.write(batch).unwrap();
    let again = items.get(b"again").unwrap().unwrap();
    assert_eq!(ItemView::of(&again).unwrap().expires, ItemView::of(&stored).unwrap().expires);
    store.close().unwrap();
}
