//! Stores whose compactions run on nodes: one that has the files, and one that only computes.

use situ_base::Env;
use situ_engine::{Options, Store, StoreBuilder, verify_directory, verify_home};
use situ_node::message::VolumePlace;
use situ_node::{
    Class, Daemon, DaemonOptions, Executor, ExecutorOptions, NodeAddress, NodeOptions, NodeUnit, NodeVolume, Place,
    Storage, TaskService,
};
use situ_offload::{Offload, Policy, Scheduler, Split, Unit, UnitReport};
use situ_sim::Rng;
use situ_storage::{DirectoryVolume, Volume};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A node in this process.
struct Node {
    daemon: Daemon,
    executor: Arc<Executor>,
}

impl Node {
    fn start(directory: &Path, storage: Option<Storage>, shared: &Path) -> Node {
        Node::start_near(directory, storage, shared, Vec::new())
    }

    fn start_near(directory: &Path, storage: Option<Storage>, shared: &Path, nodes: Vec<Place>) -> Node {
        let env = Env::system();
        let shared = vec![shared.to_owned()];
        let options = ExecutorOptions { threads: 2, shared, nodes, ..ExecutorOptions::new(&env) };
        let executor = Arc::new(Executor::new(&env, options));
        let options = DaemonOptions {
            storage,
            listen: vec![Place::Unix(directory.join("node.sock"))],
            lease_term: Duration::from_secs(2),
            services: vec![Arc::new(TaskService::new(Arc::clone(&executor)))],
            ..DaemonOptions::default()
        };
        Node { daemon: Daemon::start(&env, options).unwrap(), executor }
    }

    fn end(self) {
        self.executor.close();
        self.daemon.stop(Duration::from_secs(5));
    }
}

fn address(directory: &Path) -> NodeAddress {
    NodeAddress { place: Place::Unix(directory.join("node.sock")), store: "shop".to_owned() }
}

fn node_options() -> NodeOptions {
    NodeOptions {
        reconnect_min: Duration::from_millis(5),
        reconnect_max: Duration::from_millis(50),
        read_patience: Duration::from_secs(30),
        ..NodeOptions::default()
    }
}

/// Small tables; all that the unit takes goes there.
fn options() -> Options {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 256 << 10;
    options.keyspace.table_bytes = 256 << 10;
    options.keyspace.level_base_bytes = 1 << 20;
    options
}

fn builder(unit: Arc<NodeUnit>) -> StoreBuilder {
    let policy = Policy { split: Split::Static { elsewhere_percent: 100 }, ..Policy::named("copro").unwrap() };
    StoreBuilder::new(options()).compactor(Offload::new().policy(policy).unit(unit))
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn write(store: &Store, model: &mut Model, rng: &mut Rng, count: usize) {
    for _ in 0..count {
        let key = format!("key{:06}", rng.below(20_000)).into_bytes();
        if rng.chance(0.1) {
            store.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value: Vec<u8> = (0..200 + rng.below(200)).map(|_| rng.below(256) as u8).collect();
            store.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

fn compare(store: &Store, model: &Model) {
    let entries = store.default_keyspace().iter().unwrap();
    let found: Vec<_> =
        entries.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect();
    let is_same = found.iter().map(|(key, value)| (key, value)).eq(model);
    assert!(is_same, "{} entries, {} expected", found.len(), model.len());
}

/// What the unit on the node did.
fn report(store: &Store) -> UnitReport {
    Scheduler::of(store.compactor()).unwrap().reports().remove(1)
}

fn beside(directory: &Path) -> (Arc<NodeVolume>, Store) {
    let (volume, unit) = NodeUnit::beside(address(directory), node_options()).unwrap();
    let home: Arc<dyn Volume> = Arc::clone(&volume) as Arc<dyn Volume>;
    (volume, builder(unit).open_home(&home).unwrap())
}

#[test]
fn a_store_on_a_node_is_compacted_there_and_its_bytes_stay_there() {
    let at = tempfile::tempdir().unwrap();
    let storage = Some(Storage::Directory(at.path().join("files")));
    let node = Node::start(at.path(), storage, at.path());
    let (volume, store) = beside(at.path());
    let (mut model, mut rng) = (Model::new(), Rng::new(1));
    write(&store, &mut model, &mut rng, 30_000);
    store.wait_idle().unwrap();
    let traffic = Arc::clone(volume.client().traffic());
    let done = report(&store);
    let compute = traffic.sent(Class::Compute) + traffic.received(Class::Compute);
    let read = traffic.received(Class::Read);
    println!("{} tasks, {} bytes: {compute} bytes about tasks, {read} read", done.succeeded, done.input_bytes);
    assert!(done.succeeded > 3 && done.failed + done.suspicious + done.late == 0, "{done:?}");
    assert!((compute as f64) < 0.02 * done.input_bytes as f64, "{compute} of {}", done.input_bytes);
    compare(&store, &model);
    // In the middle of it all, the node takes no more tasks, and ends those that it has. The processor does them.
    write(&store, &mut model, &mut rng, 5_000);
    node.executor.close();
    write(&store, &mut model, &mut rng, 5_000);
    store.wait_idle().unwrap();
    compare(&store, &model);
    store.close().unwrap();
    drop((store, volume));
    let (volume, store) = beside(at.path());
    compare(&store, &model);
    store.close().unwrap();
    drop((store, volume));
    let (volume, unit) = NodeUnit::beside(address(at.path()), node_options()).unwrap();
    let home: Arc<dyn Volume> = volume;
    let verified = verify_home(&home, &mut |_| {}).unwrap();
    assert!(verified.is_sound(), "{verified}");
    drop((unit, home));
    node.end();
}

fn is_compacted_on_a_node_without_files(place: impl Fn(&Path) -> VolumePlace) {
    let at = tempfile::tempdir().unwrap();
    let home = at.path().join("home");
    let node = Node::start(at.path(), None, at.path());
    let unit = Arc::new(NodeUnit::elsewhere(&Env::system(), &address(at.path()), place(&home)));
    let builder = builder(Arc::clone(&unit));
    let store = builder.open(&home).unwrap();
    let served: Arc<dyn Volume> = Arc::new(DirectoryVolume::open(&home).unwrap());
    let client = unit.connect(address(at.path()), node_options()).unwrap();
    unit.help(client, served).unwrap();
    let (mut model, mut rng) = (Model::new(), Rng::new(2));
    write(&store, &mut model, &mut rng, 20_000);
    store.wait_idle().unwrap();
    let done = report(&store);
    assert!(done.succeeded > 0 && done.failed + done.suspicious + done.late == 0, "{done:?}");
    compare(&store, &model);
    store.close().unwrap();
    drop((store, unit));
    let verified = verify_directory(&home, &mut |_| {}).unwrap();
    assert!(verified.is_sound(), "{verified}");
    node.end();
}

#[test]
fn a_store_here_is_compacted_on_a_node_that_reads_and_writes_over_the_connection() {
    is_compacted_on_a_node_without_files(|_| VolumePlace::Host);
}

#[test]
fn a_store_in_a_shared_directory_is_compacted_on_a_node_that_only_computes() {
    is_compacted_on_a_node_without_files(|home| VolumePlace::SharedDirectory(home.display().to_string()));
}

#[test]
fn a_store_on_one_node_is_compacted_on_another_under_the_token_of_its_owner() {
    let (storing, computing) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = Some(Storage::Directory(storing.path().join("files")));
    let home_node = Node::start(storing.path(), storage, storing.path());
    let near = vec![address(storing.path()).place];
    let node = Node::start_near(computing.path(), None, computing.path(), near);
    let (volume, beside) = NodeUnit::beside(address(storing.path()), node_options()).unwrap();
    beside.close();
    let place = VolumePlace::OtherNode(address(storing.path()).to_string());
    let unit = Arc::new(NodeUnit::elsewhere(&Env::system(), &address(computing.path()), place));
    let home: Arc<dyn Volume> = Arc::clone(&volume) as Arc<dyn Volume>;
    let builder = builder(Arc::clone(&unit));
    let store = builder.open_home(&home).unwrap();
    let client = unit.connect(address(computing.path()), node_options()).unwrap();
    unit.help_for(client, Arc::clone(volume.client())).unwrap();
    let (mut model, mut rng) = (Model::new(), Rng::new(3));
    write(&store, &mut model, &mut rng, 20_000);
    store.wait_idle().unwrap();
    let done = report(&store);
    assert!(done.succeeded > 0 && done.failed + done.suspicious + done.late == 0, "{done:?}");
    compare(&store, &model);
    store.close().unwrap();
    drop((store, volume, home, unit));
    node.end();
    home_node.end();
}
