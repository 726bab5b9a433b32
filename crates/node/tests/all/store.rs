//! A store on a node, against a model, while the node is started anew and connections are cut.

use situ_base::Env;
use situ_engine::{Options, Store, StoreBuilder, verify_home};
use situ_node::{
    Daemon, DaemonOptions, Executor, ExecutorOptions, NodeAddress, NodeClient, NodeOptions, NodeVolume, Place, Storage,
    TaskService,
};
use situ_sim::Rng;
use situ_storage::Volume;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

fn start(directory: &Path) -> Daemon {
    let env = Env::system();
    let tasks = ExecutorOptions { threads: 2, ..ExecutorOptions::new(&env) };
    let options = DaemonOptions {
        storage: Some(Storage::Directory(directory.join("files"))),
        listen: vec![Place::Unix(directory.join("node.sock"))],
        lease_term: Duration::from_secs(2),
        services: vec![Arc::new(TaskService::new(Arc::new(Executor::new(&env, tasks))))],
        ..DaemonOptions::default()
    };
    Daemon::start(&env, options).unwrap()
}

const NODE: &str = "SITU_NODE_TEST_DIRECTORY";

/// Not a test of its own: the node of other tests, in a process that can be killed.
#[test]
fn the_node_of_another_test() {
    let Some(directory) = std::env::var_os(NODE) else { return };
    let _daemon = start(Path::new(&directory));
    println!("\nlistening");
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

/// A node in a process of its own. Killed on drop.
pub(crate) struct Node(Child);

impl Node {
    pub(crate) fn start(directory: &Path) -> Node {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "store::the_node_of_another_test", "--nocapture"]).env(NODE, directory);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "listening"), "the node has not begun");
        Node(child)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn home(directory: &Path) -> Arc<dyn Volume> {
    let address = NodeAddress { place: Place::Unix(directory.join("node.sock")), store: "shop".to_owned() };
    let options = NodeOptions {
        reconnect_min: Duration::from_millis(5),
        reconnect_max: Duration::from_millis(50),
        read_patience: Duration::from_secs(30),
        ..NodeOptions::default()
    };
    let client = NodeClient::connect(address, options).unwrap();
    Arc::new(NodeVolume::open(Arc::new(client)).unwrap())
}

fn open(directory: &Path) -> Store {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 64 << 10;
    options.keyspace.table_bytes = 64 << 10;
    options.keyspace.level_base_bytes = 256 << 10;
    StoreBuilder::new(options).open_home(&home(directory)).unwrap()
}

pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn compare(store: &Store, model: &Model) {
    let found: Vec<(Vec<u8>, Vec<u8>)> = store
        .default_keyspace()
        .iter()
        .unwrap()
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
        .collect();
    assert!(
        found.iter().map(|(key, value)| (key, value)).eq(model),
        "{} entries, {} expected",
        found.len(),
        model.len()
    );
}

pub(crate) fn write(store: &Store, model: &mut Model, rng: &mut Rng, count: usize) {
    for _ in 0..count {
        let key = format!("key{:05}", rng.below(3000)).into_bytes();
        if rng.chance(0.1) {
            store.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = vec![rng.below(256) as u8; 50 + rng.below(400) as usize];
            store.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

/// Segments are page files, and a node with a file system has room for them. They are written, trimmed and collected there.
#[test]
fn a_value_log_lies_on_a_node() {
    let directory = tempfile::tempdir().unwrap();
    let _node = start(directory.path());
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 64 << 10;
    options.keyspace.table_bytes = 64 << 10;
    options.keyspace.value_log_min_bytes = Some(100);
    options.value_segment_bytes = 256 << 10;
    let open = || StoreBuilder::new(options.clone()).open_home(&home(directory.path())).unwrap();
    let (mut model, mut rng) = (Model::new(), Rng::new(7));
    let store = open();
    for _ in 0..4 {
        write(&store, &mut model, &mut rng, 3000);
        store.compact(None, None).unwrap();
    }
    store.wait_idle().unwrap();
    compare(&store, &model);
    let log = store.properties().value_log.unwrap();
    assert!(log.segments_removed > 0 && log.live_bytes > 100_000, "{log:?}");
    store.close().unwrap();
    drop(store);
    let report = verify_home(&home(directory.path()), &mut |_| {}).unwrap();
    assert!(report.is_sound(), "{report}");
    let store = open();
    compare(&store, &model);
    store.close().unwrap();
}

/// What a restart interrupts is an error, and succeeds when it is tried again.
pub(crate) fn in_the_end(mut work: impl FnMut() -> situ_engine::Result<()>) {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while let Err(error) = work() {
        assert!(std::time::Instant::now() < deadline, "{error}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A manifest's writer was lost with the daemon, and the store took no more writes after the next flush.
#[test]
fn promise_1_a_store_goes_on_when_its_node_is_killed_with_flushes_and_compactions_under_way() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = Some(Node::start(directory.path()));
    let store = open(directory.path());
    let (mut model, mut rng) = (Model::new(), Rng::new(1));
    for round in 0..6 {
        let killed_at = Duration::from_millis(rng.below(400));
        let killer = |node: &mut Option<Node>| {
            std::thread::sleep(killed_at);
            *node = None;
            *node = Some(Node::start(directory.path()));
        };
        std::thread::scope(|scope| {
            let killed = scope.spawn(|| killer(&mut node));
            write(&store, &mut model, &mut rng, 1500);
            killed.join().unwrap();
        });
        if round % 2 == 0 {
            in_the_end(|| store.flush());
        }
        compare(&store, &model);
        assert!(store.properties().failure.is_none());
    }
    in_the_end(|| store.wait_idle());
    compare(&store, &model);
    store.close().unwrap();
    drop(store);
    let store = open(directory.path());
    compare(&store, &model);
    store.close().unwrap();
    drop(store);
    let report = verify_home(&home(directory.path()), &mut |_| {}).unwrap();
    assert!(report.is_sound(), "{report}");
    assert!(report.entries > 1000);
}
