//! The server over a cache: a stock client is content, answers are memcached's, and what has no room is evicted.

use crate::differential::compare_with_memcached;
use crate::durable::{Client, Durable, fetch, run_memccapable, serve_over};
use crate::skipped::skipped;
use situ::Durability;
use situ::cache::{Cache, Flash, Meta, Options, Start};
use situ_device::{Backend, OpenOptions};
use situ_server::{CacheEngine, CacheExtras, Server, ServerOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MEMORY_BYTES: usize = 64 << 20;

/// A cache keeps nothing, so any directory will do.
impl Durable for CacheEngine {
    fn open_in(_: &Path, _: Durability) -> CacheEngine {
        CacheEngine::new(&Options::of_memory(MEMORY_BYTES)).unwrap()
    }

    fn close(&self) {}
}

fn made() -> CacheEngine {
    CacheEngine::open_in(Path::new(""), Durability::Buffered)
}

#[test]
fn memccapable_passes_over_a_cache() {
    run_memccapable::<CacheEngine>();
}

#[test]
fn answers_are_memcacheds_over_a_cache() {
    compare_with_memcached(900, 60, Arc::new(made()));
}

/// A cache whose memory has room for next to nothing: what is stored goes to flash soon.
pub(crate) fn made_on_flash(directory: &Path) -> CacheEngine {
    made_on_flash_with(directory, OpenOptions::default())
}

fn made_on_flash_with(directory: &Path, options: OpenOptions) -> CacheEngine {
    let path = directory.join("flash");
    std::fs::File::create(&path).unwrap().set_len(256 << 20).unwrap();
    let device = situ_device::open(&path, options).unwrap();
    let flash = Flash { device, env: situ_base::Env::system(), files: Some(path) };
    let (engine, start) = CacheEngine::with_flash(&Options::of_memory(28 << 20), flash, Box::new(|_| ())).unwrap();
    assert_eq!(start, Start::Empty);
    engine
}

/// A server over an engine.
pub(crate) fn serve(engine: &Arc<CacheEngine>) -> Server {
    let options = ServerOptions {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        threads: 1,
        max_value_bytes: CacheEngine::value_bytes_max(28 << 20),
        ..ServerOptions::default()
    };
    Server::start(&options, Arc::clone(engine)).unwrap()
}

/// Values that arrive take a quarter of the memory at most. Those that find no room are refused, and the connection goes on.
#[test]
fn long_values_that_arrive_are_bounded() {
    let engine = Arc::new(CacheEngine::new(&Options::of_memory(28 << 20)).unwrap());
    let server = serve(&engine);
    let value = "v".repeat(1_000_000);
    let mut ask = crate::line_client::Client::connect(&server);
    assert_eq!(ask.ask("set key-19 0 0 3\r\nold\r\n"), "STORED");
    let mut clients: Vec<_> = (0..20).map(|_| crate::line_client::Client::connect(&server)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&format!("set key-{number} 0 0 1000000\r\n{}", &value[..900_000]));
    }
    std::thread::sleep(Duration::from_millis(300));
    let mut answers = Vec::new();
    for client in &mut clients {
        client.send(&format!("{}\r\nversion\r\n", &value[900_000..]));
        answers.push(client.line());
        assert_eq!(client.line(), "VERSION 1.6.18");
    }
    let refused = answers.iter().filter(|line| *line == "SERVER_ERROR out of memory storing object").count();
    let stored = answers.iter().filter(|line| *line == "STORED").count();
    assert!(refused > 5 && stored >= 4 && refused + stored == 20, "{answers:?}");
    assert_eq!(ask.statistic("store_no_memory"), refused as u64);
    // A client whose newer value was refused does not find the older one.
    let is_refused = answers[19].starts_with("SERVER_ERROR");
    ask.send("get key-19\r\n");
    assert_eq!(ask.line() == "END", is_refused);
    server.stop(Duration::from_secs(5));
}

/// Commands of a few bytes that copy long values: others have their turn between them.
#[test]
fn commands_that_copy_long_values_share_their_loop() {
    let engine = Arc::new(CacheEngine::new(&Options::of_memory(64 << 20)).unwrap());
    let server = serve(&engine);
    let mut client = crate::line_client::Client::connect(&server);
    assert_eq!(client.ask(&format!("set long 0 0 1000000\r\n{}\r\n", "v".repeat(1_000_000))), "STORED");
    for (command, answer, least) in [("touch long 0", "TOUCHED", 40), ("me long", "ME", 20), ("mg long k s", "HD", 0)] {
        let before = client.statistic("conn_yields");
        client.send(&format!("{command}\r\n").repeat(200));
        (0..200).for_each(|_| assert!(client.line().starts_with(answer)));
        let yields = client.statistic("conn_yields") - before;
        assert!(yields >= least && (least > 0 || yields == 0), "{command}: {yields}");
    }
    server.stop(Duration::from_secs(5));
}

#[test]
fn answers_are_memcacheds_over_a_cache_on_flash_that_loops_read() {
    let options = OpenOptions { backend: Backend::Ring, ..OpenOptions::default() };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("probe");
    std::fs::write(&path, [0; 1 << 20]).unwrap();
    if situ_device::open(&path, options).is_err() {
        return skipped("the system gives no io_uring");
    }
    let engine = made_on_flash_with(directory.path(), options);
    assert!(engine.loop_reader().is_some());
    compare_on_flash(901, 120, engine);
}

#[test]
fn answers_are_memcacheds_over_a_cache_on_flash_that_threads_read() {
    let options = OpenOptions { backend: Backend::Blocking, ..OpenOptions::default() };
    let directory = tempfile::tempdir().unwrap();
    let engine = made_on_flash_with(directory.path(), options);
    assert!(engine.loop_reader().is_none());
    compare_on_flash(902, 60, engine);
}

/// Compares a server over a cache with memcached, while all items go to flash again and again.
fn compare_on_flash(seed: u64, rounds: usize, engine: CacheEngine) {
    let engine = Arc::new(engine);
    let stop = Arc::new(AtomicBool::new(false));
    let (spiller, stopped) = (Arc::clone(&engine), Arc::clone(&stop));
    let spilling = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            spiller.spill();
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    let is_compared = compare_with_memcached(seed, rounds, Arc::clone(&engine));
    stop.store(true, Ordering::Relaxed);
    spilling.join().unwrap();
    if !is_compared {
        return;
    }
    let flash = engine.properties().flash.unwrap();
    assert!(flash.hits > 100, "{flash:?}");
    assert_eq!((flash.behind, flash.errors), (0, 0), "{flash:?}");
}

#[test]
fn what_has_no_room_is_evicted_and_counted() {
    let (engine, server) = serve_over::<CacheEngine>(Path::new(""), Durability::Buffered);
    let mut client = Client::connect(server.addresses()[0]);
    let value = |number: usize| format!("{number:08}").repeat(125);
    // Three times what the cache holds. A reader asks for one of them again and again: that one stays.
    for number in 0..200_000 {
        client.send(format!("ms {number} 1000 q\r\n{}\r\n", value(number)).as_bytes());
        if number % 500 == 0 {
            assert_eq!(client.ask("mn\r\n"), "MN\r\n");
            assert_eq!(client.value("0"), Some(value(0)), "after {number}");
        }
    }
    assert_eq!(client.ask("mn\r\n"), "MN\r\n");
    assert_eq!(client.value("1"), None);
    assert_eq!(client.value("199999"), Some(value(199_999)));
    let state = engine.state();
    assert!(state.evicted > 100_000 && state.memory_bytes <= MEMORY_BYTES as u64, "{state:?}");
    client.send(b"stats\r\n");
    let mut stats = Vec::new();
    while stats.last().is_none_or(|line| line != "END\r\n") {
        stats.push(client.line());
    }
    let stat = |name: &str| -> u64 {
        let found = stats.iter().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        found.unwrap_or_else(|| panic!("no {name}")).trim_end().parse().unwrap()
    };
    assert_eq!(stat("limit_maxbytes"), MEMORY_BYTES as u64);
    assert!(stat("evictions") >= state.evicted);
    // Other tests take memory of this process, so the cache can be down to half of its limit.
    assert!((20_000..66_000).contains(&stat("curr_items")), "{} items", stat("curr_items"));
    assert!(stat("bytes") > 20 << 20);
    let metrics = fetch(server.http_address().unwrap(), "/metrics");
    assert!(metrics.contains("situ_cache_evicted_total") && metrics.contains("situ_cache_beside_bytes"), "{metrics}");
    server.stop(Duration::from_secs(5));
}

#[test]
fn the_longest_value_fits_and_takes_the_place_of_older_ones() {
    let longest = CacheEngine::value_bytes_max(MEMORY_BYTES);
    let cache = Cache::new(&Options::of_memory(MEMORY_BYTES));
    let meta = Meta { given_cas: Some(u64::MAX), flags: 1, expires: 1 << 40, ..Meta::default() };
    let key = [b'k'; 250];
    for _ in 0..3 {
        cache.put(&key, &meta, [&vec![7; longest], b""], 1).unwrap();
        assert_eq!(cache.get(&key, 1, |hit| hit.item.value.len()).hit(), Some(longest));
    }
    assert_eq!(cache.properties().items, 1);
}
