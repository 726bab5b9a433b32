//! Stores whose node dies, loses files, stalls, or answers wrongly: in processes that are killed, and through a proxy that
//! changes what the node says.

use crate::proxy::{Frame, Proxy};
use crate::store::{Model, Node, compare, in_the_end};
use situ_engine::{Options, Store, StoreBuilder};
use situ_node::{NodeAddress, NodeOptions, NodeState, NodeUnit, NodeVolume, Operation, PeerOptions, Place};
use situ_offload::{Offload, Policy, Scheduler, Split, UnitReport};
use situ_sim::Rng;
use situ_storage::{FileName, Volume};
use situ_tiers::{TieredBuilder, verify_home};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn node_options() -> NodeOptions {
    NodeOptions {
        read_patience: Duration::from_millis(500),
        write_patience: Duration::from_secs(60),
        reconnect_min: Duration::from_millis(5),
        reconnect_max: Duration::from_millis(50),
        peer: PeerOptions {
            heartbeat: Duration::from_millis(100),
            silence_max: Duration::from_millis(500),
            ..PeerOptions::default()
        },
        ..NodeOptions::default()
    }
}

/// Small tables, all compacted on the node as far as it can; no block stays in memory.
fn options() -> Options {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 64 << 10;
    options.keyspace.table_bytes = 64 << 10;
    options.keyspace.level_base_bytes = 256 << 10;
    options.cache_bytes = 0;
    options
}

fn builder(unit: Arc<NodeUnit>) -> StoreBuilder {
    let policy = Policy { split: Split::Static { elsewhere_percent: 100 }, ..Policy::named("copro").unwrap() };
    StoreBuilder::new(options()).compactor(Offload::new().policy(policy).unit(unit))
}

fn units(store: &Store) -> Vec<UnitReport> {
    Scheduler::of(store.compactor()).unwrap().reports()
}

fn direct(directory: &Path) -> Place {
    Place::Unix(directory.join("node.sock"))
}

fn mount(place: &Place, options: NodeOptions) -> (Arc<NodeVolume>, Arc<NodeUnit>) {
    NodeUnit::beside(NodeAddress { place: place.clone(), store: "shop".to_owned() }, options).unwrap()
}

fn open_at(place: &Place, fast: Option<&Path>) -> (Arc<NodeVolume>, Store) {
    open_with(place, fast, node_options())
}

fn open_with(place: &Place, fast: Option<&Path>, of_node: NodeOptions) -> (Arc<NodeVolume>, Store) {
    let (volume, unit) = mount(place, of_node);
    let home: Arc<dyn Volume> = Arc::clone(&volume) as Arc<dyn Volume>;
    let builder = builder(unit);
    let builder = fast.into_iter().fold(builder, TieredBuilder::fast_disk);
    (volume, builder.open_home(&home).unwrap())
}

fn files(directory: &Path) -> PathBuf {
    directory.join("files/shop")
}

/// Writes what does not become short by compression.
fn write(store: &Store, model: &mut Model, rng: &mut Rng, count: usize) {
    for _ in 0..count {
        let key = format!("key{:05}", rng.below(8000)).into_bytes();
        if rng.chance(0.1) {
            taken(store, || store.delete(&key));
            model.remove(&key);
        } else {
            let value: Vec<u8> = (0..200 + rng.below(400)).map(|_| rng.below(256) as u8).collect();
            taken(store, || store.put(&key, &value));
            model.insert(key, value);
        }
    }
}

/// While flushes fail and all buffers are full, a write is refused. The store goes on.
fn taken(store: &Store, write: impl FnMut() -> situ_engine::Result<()>) {
    in_the_end(write);
    assert!(store.properties().failure.is_none());
}

/// Numbers of the tables in a directory.
fn tables_in(directory: &Path) -> BTreeSet<u64> {
    let names = fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_suffix(".table").and_then(|number| number.parse().ok())).collect()
}

fn tables_of(store: &Store) -> BTreeSet<u64> {
    store.default_keyspace().tables().iter().map(|table| table.number).collect()
}

fn check_sound(directory: &Path) {
    let (volume, unit) = mount(&direct(directory), node_options());
    let home: Arc<dyn Volume> = volume;
    let report = verify_home(&home, &mut |_| {}).unwrap();
    // A log file may be left that the last flush has made needless; no table may.
    let is_table = |name: &FileName| matches!(name, FileName::Table(_));
    assert!(report.is_sound() && !report.orphans.iter().any(is_table), "{report}");
    drop(unit);
}

/// A store with data in tables, and none in memtables.
fn filled(place: &Place, fast: Option<&Path>) -> (Arc<NodeVolume>, Store, Model, Rng) {
    let (volume, store) = open_at(place, fast);
    let (mut model, mut rng) = (Model::new(), Rng::new(7));
    write(&store, &mut model, &mut rng, 3000);
    store.flush().unwrap();
    store.wait_idle().unwrap();
    (volume, store, model, rng)
}

/// Reads keys until one cannot be read; why.
fn first_failure(store: &Store, model: &Model) -> Option<String> {
    model.keys().find_map(|key| store.get(key).err()).map(|error| error.to_string())
}

#[test]
fn a_node_that_is_killed_in_its_tasks_keeps_no_file_that_nobody_needs() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = Some(Node::start(directory.path()));
    let (volume, store) = open_at(&direct(directory.path()), None);
    let (mut model, mut rng) = (Model::new(), Rng::new(1));
    let hits = || units(&store).get(1).map_or(0, |unit| unit.failed + unit.suspicious);
    let last_kill = Instant::now() + Duration::from_secs(90);
    for round in 0.. {
        // A kill may come before the task is sent, or after it is done. Both depend on how busy the machine is.
        let pause = Duration::from_millis(rng.below([30, 10, 3][round % 3]));
        // A unit that fails more often in a row is given no tasks for some time.
        if hits() >= 3 || (round >= 4 && (hits() > 0 || Instant::now() > last_kill)) {
            break;
        }
        let is_over = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let (store, node, at, is_over) = (&store, &mut node, directory.path(), &is_over);
            scope.spawn(move || {
                let end = Instant::now() + Duration::from_secs(30);
                while Scheduler::of(store.compactor()).unwrap().loads()[1].tasks == 0 {
                    assert!(Instant::now() < end, "no task is given to the node: {:?}", units(store)[1]);
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(pause);
                *node = None;
                *node = Some(Node::start(at));
                is_over.store(1, Ordering::Relaxed);
            });
            while is_over.load(Ordering::Relaxed) == 0 {
                write(store, &mut model, &mut rng, 100);
            }
        });
    }
    // On a busy machine, the kills can have ended every task. The node does a task now that nobody kills it.
    let end = Instant::now() + Duration::from_secs(60);
    while units(&store)[1].succeeded == 0 && Instant::now() < end {
        write(&store, &mut model, &mut rng, 100);
    }
    in_the_end(|| store.flush());
    in_the_end(|| store.wait_idle());
    let report = units(&store).remove(1);
    println!("{} failed, {} suspicious: {:?}", report.failed, report.suspicious, report.last_trouble);
    assert!(report.succeeded > 0 && report.failed + report.suspicious > 0, "{report:?}");
    assert!(volume.client().connections() > 1);
    compare(&store, &model);
    assert!(store.properties().failure.is_none());
    // The store was not opened again: what it does not need is gone all the same.
    let deadline = Instant::now() + Duration::from_secs(20);
    while tables_in(&files(directory.path())) != tables_of(&store) {
        let found = tables_in(&files(directory.path()));
        let orphans: Vec<_> = found.difference(&tables_of(&store)).copied().collect();
        assert!(Instant::now() < deadline, "tables {orphans:?} are left");
        std::thread::sleep(Duration::from_millis(50));
    }
    store.close().unwrap();
    drop((store, volume));
    check_sound(directory.path());
}

/// Waits until no more writes are taken; how many were. What they take of memory is bounded.
fn writes_when_the_buffers_are_full(store: &Store, taken: &AtomicU64) -> u64 {
    let seen = || (taken.load(Ordering::Relaxed), store.default_keyspace().properties().memtable_bytes);
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut before = (0, 0);
    // No write for two seconds. While there is room, a write takes microseconds.
    while before.0 == 0 || before != seen() {
        assert!(Instant::now() < deadline, "writers do not stop: {before:?}");
        before = seen();
        std::thread::sleep(Duration::from_secs(2));
    }
    let full = store.default_keyspace().properties();
    println!("{before:?} when {} of {} memtables are full", full.memtables, full.memtables_max);
    assert_eq!(full.memtables, full.memtables_max);
    // A memtable takes its memory in pieces: its last piece goes beyond the bound.
    let most = full.memtables_max as u64 * 2 * options().keyspace.memtable_bytes;
    assert!(full.memtable_bytes <= most, "{} bytes, at most {most}", full.memtable_bytes);
    before.0
}

#[test]
fn with_the_log_on_a_fast_disk_writes_go_on_without_the_node_until_the_buffers_are_full() {
    let (directory, fast) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut node = Some(Node::start(directory.path()));
    let (volume, store, mut model, mut rng) = filled(&direct(directory.path()), Some(fast.path()));
    drop(node.take());
    let taken = AtomicU64::new(0);
    let is_over = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (store, taken, is_over, model, rng) = (&store, &taken, &is_over, &mut model, &mut rng);
        scope.spawn(move || {
            while is_over.load(Ordering::Relaxed) == 0 {
                write(store, model, rng, 10);
                taken.fetch_add(10, Ordering::Relaxed);
            }
        });
        let without = writes_when_the_buffers_are_full(store, taken);
        assert!(without >= 200, "{without} writes without the node");
        assert!(store.properties().failure.is_none());
        node = Some(Node::start(directory.path()));
        let deadline = Instant::now() + Duration::from_secs(30);
        while taken.load(Ordering::Relaxed) < without + 2000 {
            assert!(Instant::now() < deadline, "writes do not go on");
            std::thread::sleep(Duration::from_millis(20));
        }
        is_over.store(1, Ordering::Relaxed);
    });
    in_the_end(|| store.wait_idle());
    compare(&store, &model);
    store.close().unwrap();
    drop((store, volume));
    let (volume, store) = open_at(&direct(directory.path()), Some(fast.path()));
    compare(&store, &model);
    store.close().unwrap();
    drop((store, volume, node));
}

/// The log is on the fast disk, so nothing is in doubt: what fails on the node is tried again.
#[test]
fn an_outage_beyond_the_patience_fails_jobs_and_not_the_store_if_the_log_is_on_a_fast_disk() {
    let (directory, fast) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut node = Some(Node::start(directory.path()));
    let of_node = NodeOptions { write_patience: Duration::from_millis(300), ..node_options() };
    let (volume, store) = open_with(&direct(directory.path()), Some(fast.path()), of_node);
    let (mut model, mut rng) = (Model::new(), Rng::new(5));
    for round in 0..3 {
        let is_over = AtomicU64::new(0);
        let pause = Duration::from_millis(200 + rng.below(300));
        std::thread::scope(|scope| {
            let (node, at, is_over) = (&mut node, directory.path(), &is_over);
            scope.spawn(move || {
                std::thread::sleep(pause);
                *node = None;
                std::thread::sleep(Duration::from_millis(1500));
                *node = Some(Node::start(at));
                is_over.store(1, Ordering::Relaxed);
            });
            while is_over.load(Ordering::Relaxed) == 0 {
                write(&store, &mut model, &mut rng, 20);
            }
        });
        assert!(store.properties().failure.is_none(), "outage {round}: {:?}", store.properties().failure);
        in_the_end(|| store.flush());
        compare(&store, &model);
    }
    in_the_end(|| store.wait_idle());
    assert!(store.statistics().job_failures > 0);
    assert!(store.properties().background_failure.is_none());
    let deadline = Instant::now() + Duration::from_secs(20);
    while !tables_in(&files(directory.path())).is_subset(&tables_of(&store)) {
        assert!(Instant::now() < deadline, "tables are left that nobody needs");
        std::thread::sleep(Duration::from_millis(50));
    }
    store.close().unwrap();
    drop((store, volume));
    let (volume, store) = open_at(&direct(directory.path()), Some(fast.path()));
    compare(&store, &model);
    store.close().unwrap();
    drop((store, volume));
}

#[test]
fn a_read_of_a_lost_node_fails_with_its_name_and_succeeds_when_the_node_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::start(directory.path());
    let (volume, store, model, _) = filled(&direct(directory.path()), None);
    drop(node);
    let began = Instant::now();
    let why = first_failure(&store, &model).expect("nothing is read of a lost node");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(why.contains("node.sock") && why.contains(".table"), "{why}");
    let _node = Node::start(directory.path());
    in_the_end(|| store.get(b"key00001").map(drop));
    compare(&store, &model);
    assert!(store.properties().damaged_files.is_empty(), "a lost node is no damage");
    store.close().unwrap();
    drop((store, volume));
}

#[test]
fn a_connection_that_stalls_is_given_up_and_what_was_under_way_is_done_on_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let _node = Node::start(directory.path());
    let proxy = Proxy::start(directory.path());
    let states = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&states);
    let on_state = move |address: &NodeAddress, state: &NodeState| {
        seen.lock().unwrap().push((address.store.clone(), state.clone()));
    };
    let (volume, unit) = mount(&proxy.place(), NodeOptions { on_state: Some(Arc::new(on_state)), ..node_options() });
    let home: Arc<dyn Volume> = Arc::clone(&volume) as Arc<dyn Volume>;
    let store = builder(unit).open_home(&home).unwrap();
    let (mut model, mut rng) = (Model::new(), Rng::new(3));
    std::thread::scope(|scope| {
        let proxy = &proxy;
        scope.spawn(move || {
            for _ in 0..3 {
                std::thread::sleep(Duration::from_millis(300));
                proxy.stall(true);
                std::thread::sleep(Duration::from_millis(900));
                proxy.stall(false);
            }
        });
        let end = Instant::now() + Duration::from_secs(4);
        while Instant::now() < end {
            write(&store, &mut model, &mut rng, 50);
        }
    });
    in_the_end(|| store.wait_idle());
    compare(&store, &model);
    let states = states.lock().unwrap();
    let lost =
        states.iter().filter(|(store, state)| store == "shop" && matches!(state, NodeState::Lost { .. })).count();
    let back = states.iter().filter(|(_, state)| matches!(state, NodeState::Back { .. })).count();
    assert!(lost >= 2 && back >= 2, "{states:?}");
    store.close().unwrap();
    drop((store, volume));
    check_sound(directory.path());
}

/// Flips a bit in some of the answers to an operation.
fn flip(proxy: &Proxy, operation: Operation, one_in: u64, is_sealed: bool) {
    let mut rng = Rng::new(11);
    proxy.change(move |frame: &mut Frame| {
        let is_it = frame.operation() == operation as u16 && frame.is_answer() && !frame.payload.is_empty();
        if is_it && rng.below(one_in) == 0 {
            let at = rng.below(frame.payload.len() as u64) as usize;
            frame.payload[at] ^= 1 << rng.below(8);
            if is_sealed {
                frame.seal();
            }
        }
    });
}

#[test]
fn a_bit_that_the_network_flips_costs_a_connection_and_changes_no_answer() {
    let directory = tempfile::tempdir().unwrap();
    let _node = Node::start(directory.path());
    let proxy = Proxy::start(directory.path());
    let (volume, store, model, _) = filled(&proxy.place(), None);
    flip(&proxy, Operation::Read, 60, false);
    for (key, value) in &model {
        let mut found = None;
        in_the_end(|| {
            found = store.get(key)?;
            Ok(())
        });
        assert_eq!(found.as_deref(), Some(&**value));
    }
    assert!(proxy.changed() > 3 && volume.client().connections() > proxy.changed());
    assert!(store.properties().damaged_files.is_empty());
    proxy.pass_all();
    in_the_end(|| store.close());
    drop((store, volume));
    check_sound(directory.path());
}

/// As of a node with bad memory: the frame's checksum is right, and what is in the frame is wrong.
#[test]
fn a_wrong_answer_of_a_node_is_an_error_that_names_file_and_node_and_never_a_value() {
    let directory = tempfile::tempdir().unwrap();
    let _node = Node::start(directory.path());
    let proxy = Proxy::start(directory.path());
    let (volume, store, model, _) = filled(&proxy.place(), None);
    flip(&proxy, Operation::Read, 10, true);
    let mut failed = Vec::new();
    for (key, value) in &model {
        match store.get(key) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&**value)),
            Err(error) => failed.push(error.to_string()),
        }
    }
    assert!(failed.len() > 10, "{} reads", failed.len());
    let is_named = |why: &String| why.contains(".table is damaged at") && why.contains("node://unix:");
    assert!(failed.iter().all(is_named), "{}", failed.iter().find(|why| !is_named(why)).unwrap());
    assert!(!store.properties().damaged_files.is_empty());
    proxy.pass_all();
    compare(&store, &model);
    store.close().unwrap();
    drop((store, volume));
    check_sound(directory.path());
}

#[test]
fn a_task_whose_answer_is_wrong_is_done_again_and_harms_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let _node = Node::start(directory.path());
    let proxy = Proxy::start(directory.path());
    let (volume, store, mut model, mut rng) = filled(&proxy.place(), None);
    flip(&proxy, Operation::RunTask, 2, true);
    for _ in 0..6 {
        write(&store, &mut model, &mut rng, 2000);
        in_the_end(|| store.wait_idle());
    }
    let report = units(&store).remove(1);
    println!("{} changed: {report:?}", proxy.changed());
    assert!(proxy.changed() > 1 && report.failed + report.suspicious > 0, "{report:?}");
    compare(&store, &model);
    proxy.pass_all();
    store.close().unwrap();
    drop((store, volume));
    check_sound(directory.path());
}

#[test]
fn a_table_that_the_node_has_lost_is_an_error_that_names_both_and_other_tables_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::start(directory.path());
    let (volume, store, model, _) = filled(&direct(directory.path()), None);
    let lost = *tables_of(&store).last().unwrap();
    drop(node);
    let (there, away) = (files(directory.path()).join(format!("{lost:06}.table")), directory.path().join("away"));
    fs::rename(&there, &away).unwrap();
    let _node = Node::start(directory.path());
    in_the_end(|| store.get(b"absent").map(drop));
    let (mut failed, mut read) = (Vec::new(), 0);
    for (key, value) in &model {
        match store.get(key) {
            Ok(found) => {
                assert_eq!(found.as_deref(), Some(&**value));
                read += 1;
            }
            Err(error) => failed.push(error.to_string()),
        }
    }
    println!("{read} read, {} not: {:?}", failed.len(), failed.first());
    assert!(!failed.is_empty() && read > 0, "{} failed, {read} read", failed.len());
    let name = format!("{lost:06}.table");
    assert!(failed.iter().all(|why| why.contains(&name) && why.contains("node://unix:")), "{}", failed[0]);
    fs::rename(&away, &there).unwrap();
    compare(&store, &model);
    drop((store, volume));
    check_sound(directory.path());
}
