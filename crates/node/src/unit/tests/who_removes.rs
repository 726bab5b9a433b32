//! Who removes the tables of a task: see [`crate::task_files`].

use super::*;
use crate::task_files::GivenUp;
use situ_offload::ModeRule;
use situ_storage::Reader;

/// A unit by itself, so that a test sees each answer.
struct World {
    _at: tempfile::TempDir,
    store: Arc<Store>,
    node: Node,
    unit: NodeUnit,
    link: Arc<Link>,
}

fn world() -> World {
    world_of(|own| own)
}

/// A world whose node has the files as `wrap` makes them.
fn world_of(wrap: impl FnOnce(Arc<dyn TaskFiles>) -> Arc<dyn TaskFiles>) -> World {
    let at = tempfile::tempdir().unwrap();
    let store = Store::new(at.path());
    let (_files, own, token) = owned(&store);
    let node = Node::new(Some(wrap(own)));
    let unit = NodeUnit::new(&Env::system(), NodeUnitOptions::new("node", vec![(0, VolumePlace::Here)]));
    let link = Link::new(1, token);
    link.connect(&node, &unit);
    unit.link(Arc::clone(&link) as Arc<dyn NodeLink>, Vec::new()).unwrap();
    until("the node's first load", || unit.load().tasks_max > 0);
    World { _at: at, store, node, unit, link }
}

impl World {
    fn submit(&self, attempt: u64, bytes: u64) {
        let assignment = Assignment {
            attempt,
            task: Arc::new(self.store.task(attempt, bytes)),
            host: Arc::clone(&self.store) as Arc<dyn TaskHost>,
            mode: ModeRule::default(),
            done: Env::system().executor.event(),
        };
        self.unit.submit(assignment).unwrap();
    }

    fn outcome(&self) -> Result<TaskOutput, TaskError> {
        let (mut finished, end) = (Vec::new(), Instant::now() + SOON);
        while finished.is_empty() {
            assert!(Instant::now() < end, "no answer");
            std::thread::sleep(Duration::from_millis(1));
            self.unit.poll(&mut finished);
        }
        finished.remove(0).result
    }
}

/// The host may install a table that an answer has named. Whatever it says of the attempt afterwards, the table stays.
#[test]
fn a_table_that_was_named_in_an_answer_is_never_removed_by_the_node() {
    let world = world();
    world.submit(1, 3 << 20);
    let output = world.outcome().unwrap();
    let peer = world.link.peer().unwrap();
    peer.ask(&CancelTask { attempt: 1 }, SOON).unwrap();
    world.link.cut();
    world.node.restart();
    for table in &output.tables {
        assert!(world.store.numbers().contains(&table.number), "table {} is gone", table.number);
    }
}

/// An answer that was handed to a connection that is lost may have arrived.
#[test]
fn a_table_whose_answer_may_have_arrived_stays_too() {
    let world = world();
    world.submit(1, 3 << 20);
    let output = world.outcome().unwrap();
    world.link.cut();
    // The session ends, and all its attempts with it.
    world.node.executor().close();
    assert!(output.tables.iter().all(|table| world.store.numbers().contains(&table.number)));
}

/// Nobody has heard of these tables, and nobody will.
#[test]
fn tables_of_a_result_that_nobody_fetched_are_removed_with_the_session() {
    let world = world();
    world.store.holds.store(true, Ordering::SeqCst);
    world.submit(1, 1_200_000);
    // A place that the cut loses on its way would be waited for.
    until("the task has its place", || world.store.numbers().len() > 3);
    world.link.cut();
    world.store.holds.store(false, Ordering::SeqCst);
    until("the task has ended on the node", || world.node.executor().load().tasks == 0);
    assert!(world.store.numbers().len() > 3, "there is an output: {:?}", world.store.numbers());
    world.node.executor().close();
    assert_eq!(world.store.numbers().len(), 3);
}

/// The run fails in the middle: an input is damaged.
#[test]
fn tables_of_a_task_that_fails_are_removed_before_the_host_hears_of_it() {
    let world = world();
    let task = world.store.task(1, 12 << 20);
    let last = task.inputs[1][1].number;
    let path = world.store.path.join(FileName::Table(last).to_string());
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let assignment = Assignment {
        attempt: 1,
        task: Arc::new(task),
        host: Arc::clone(&world.store) as Arc<dyn TaskHost>,
        mode: ModeRule::default(),
        done: Env::system().executor.event(),
    };
    world.unit.submit(assignment).unwrap();
    let error = world.outcome().unwrap_err();
    assert!(matches!(&error, TaskError::Storage(error) if error.is_corruption()), "{error}");
    assert!(lock(&world.store.given).len() > 2, "some were made before");
    assert_eq!(world.store.numbers().len(), 3);
}

/// A disk that holds removals up.
struct Slow {
    inner: Arc<dyn TaskFiles>,
    is_held: AtomicBool,
    removals: AtomicU64,
}

impl TaskFiles for Slow {
    fn open(&self, number: u64, given_up: &GivenUp) -> StorageResult<Arc<dyn Reader>> {
        self.inner.open(number, given_up)
    }

    fn create(&self, token: u64, number: u64, bound: u64, given_up: &GivenUp) -> StorageResult<Box<dyn Writer>> {
        self.inner.create(token, number, bound, given_up)
    }

    fn remove(&self, token: u64, number: u64) -> StorageResult<()> {
        self.removals.fetch_add(1, Ordering::SeqCst);
        let end = Instant::now() + SOON;
        while self.is_held.load(Ordering::SeqCst) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.inner.remove(token, number)
    }
}

/// The host gives up an attempt that has ended unheard. The thread that reads its connection removed the tables, and
/// nothing else of the host was heard meanwhile.
#[test]
fn a_slow_disk_under_removals_holds_no_connection_up() {
    let mut slow = None;
    let world = world_of(|inner| {
        let made = Arc::new(Slow { inner, is_held: AtomicBool::new(true), removals: AtomicU64::new(0) });
        slow = Some(Arc::clone(&made));
        made
    });
    let slow = slow.unwrap();
    world.store.holds.store(true, Ordering::SeqCst);
    world.submit(1, 1_200_000);
    until("the task has its place", || world.store.numbers().len() > 3);
    world.link.cut();
    world.store.holds.store(false, Ordering::SeqCst);
    until("the task has ended on the node", || world.node.executor().load().tasks == 0);
    world.unit.cancel(1);
    world.link.connect(&world.node, &world.unit);
    // The node still has the attempt, and is told to forget it.
    let peer = world.link.peer().unwrap();
    peer.call_later(CancelTask::OPERATION as u16, CancelTask { attempt: 1 }.encode(), None, drop);
    until("the removal has begun", || slow.removals.load(Ordering::SeqCst) > 0);
    let answered = peer.ask(&GetLoad {}, Duration::from_secs(10));
    slow.is_held.store(false, Ordering::SeqCst);
    answered.unwrap();
    until("the tables are removed", || world.store.numbers().len() == 3);
}
