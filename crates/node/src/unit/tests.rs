//! A scheduler, its processor and a node: hosts and nodes in one process, over sockets that are cut.

use super::*;
use crate::Side;
use crate::executor::{Executor, ExecutorOptions, HostTasks};
use crate::files::{Files, Limits as FileLimits};
use crate::lease::{Lease, Note, Owner};
use crate::message::{Class, Operation};
use crate::peer::{Connection, PeerOptions, Reply, Stream, Traffic};
use crate::task_files::{LeasedFiles, TaskFiles};
use situ_compaction::{
    Compactor, FinishedJob, KeyRange, KeySpan, MergeRules, OutputRules, OutputTable, TableInput, TablePlace, TaskHost,
};
use situ_offload::{CpuUnit, Patience, Scheduler, UnitReport};
use situ_storage::{DirectoryVolume, FileName, Writer};
use situ_table::{BlockCache, Compression, KeyKind, KeyRef, Table, TableOptions, TableWriter, Trailer};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Longer than anything takes on a busy machine.
const SOON: Duration = Duration::from_secs(60);

fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < end, "waited too long for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A store's tables in a directory, and what its tasks ask for.
struct Store {
    volume: Arc<DirectoryVolume>,
    path: std::path::PathBuf,
    next: AtomicU64,
    given: Mutex<Vec<TablePlace>>,
    /// Output is held back while this is set.
    holds: AtomicBool,
    /// Output that was accounted for.
    paced: AtomicU64,
    is_cancelled: AtomicBool,
}

impl Store {
    fn new(path: &Path) -> Arc<Store> {
        let volume = Arc::new(DirectoryVolume::create(path).unwrap());
        Arc::new(Store {
            volume,
            path: path.to_owned(),
            next: AtomicU64::new(1),
            given: Mutex::default(),
            holds: AtomicBool::new(false),
            paced: AtomicU64::new(0),
            is_cancelled: AtomicBool::new(false),
        })
    }

    fn table(&self, number: u64) -> Arc<Table> {
        Table::open(self.volume.open(FileName::Table(number)).unwrap(), number, BlockCache::new(0)).unwrap()
    }

    /// A table with every `step`th key from `first`, of values with this length.
    fn write(&self, keys: impl Iterator<Item = u64>, sequence: u64, value_bytes: usize) -> TableInput {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let file = self.volume.create(FileName::Table(number), 0).unwrap();
        let mut writer = TableWriter::new(file, &options(), 7).unwrap();
        let (mut begin, mut end, mut value) = (None, Vec::new(), vec![0; value_bytes]);
        for key in keys {
            let user = format!("key {key:010}").into_bytes();
            let words = [key, sequence];
            value.iter_mut().enumerate().for_each(|(at, byte)| *byte = words[at / 8 % 2].to_le_bytes()[at % 8]);
            writer.add(KeyRef::new(&user, Trailer::new(sequence, KeyKind::Put)), &value).unwrap();
            begin.get_or_insert(user.clone());
            end = user;
        }
        writer.finish().unwrap();
        TableInput::of(self.table(number), number, KeySpan::including(&begin.unwrap(), &end))
    }

    /// A task over an old run of two tables and a new one, with about so many bytes.
    fn task(&self, id: u64, bytes: u64) -> Task {
        let (value_bytes, keys) = (1000, bytes / 1500);
        let old = vec![self.write(0..keys / 2, 1, value_bytes), self.write(keys / 2..keys, 1, value_bytes)];
        let new = vec![self.write((0..keys).step_by(2), 2, value_bytes)];
        let output = OutputRules {
            table: options(),
            encoder: Encoder::default(),
            target_file_bytes: 1 << 20,
            max_grandparent_bytes: u64::MAX,
            created_unix_s: 9,
        };
        let rules = MergeRules {
            range: KeyRange::all(),
            snapshots: Vec::new(),
            below: Vec::new(),
            grandparents: Vec::new(),
            output_level: 2,
            output,
            filter: None,
            now_unix: Duration::from_secs(11),
        };
        Task { id, keyspace: 0, level: 1, inputs: vec![new, old], rules }
    }

    fn contents(&self, output: &TaskOutput) -> Vec<Vec<u8>> {
        let read =
            |table: &OutputTable| std::fs::read(self.path.join(FileName::Table(table.number).to_string())).unwrap();
        output.tables.iter().map(read).collect()
    }

    /// Numbers of the tables in the directory.
    fn numbers(&self) -> BTreeSet<u64> {
        let number = |file: &situ_storage::FileMeta| match file.name {
            FileName::Table(number) => Some(number),
            _ => None,
        };
        self.volume.list().unwrap().iter().filter_map(number).collect()
    }

    /// What an engine does when a job has landed: places that are in no output are cleared.
    fn clear(&self, kept: &[TaskOutput]) {
        let kept: Vec<u64> = kept.iter().flat_map(|output| &output.tables).map(|table| table.number).collect();
        for place in lock(&self.given).drain(..).filter(|place| !kept.contains(&place.number)) {
            let _ = self.volume.remove(FileName::Table(place.number));
        }
    }
}

fn options() -> TableOptions {
    TableOptions { compression: Compression::None, ..TableOptions::default() }
}

impl TaskHost for Store {
    fn reserve(&self, _level: u32) -> StorageResult<TablePlace> {
        let place = TablePlace { volume: 0, number: self.next.fetch_add(1, Ordering::Relaxed) };
        lock(&self.given).push(place);
        Ok(place)
    }

    fn create(&self, _level: u32, place: TablePlace) -> StorageResult<(TablePlace, Box<dyn Writer>)> {
        Ok((place, self.volume.create(FileName::Table(place.number), 0)?))
    }

    fn find(&self, table: &OutputTable) -> Result<(), String> {
        let reader = self.volume.open(FileName::Table(table.number)).map_err(|error| error.to_string())?;
        let bytes = reader.bytes();
        let found = Table::open(reader, table.number, BlockCache::new(0)).map_err(|error| error.to_string())?;
        let is_it = bytes == table.summary.bytes && *found.properties() == table.summary.properties;
        if is_it { Ok(()) } else { Err("another table".to_owned()) }
    }

    fn pace(&self, bytes: u64) {
        self.paced.fetch_add(bytes, Ordering::SeqCst);
        while self.holds.load(Ordering::SeqCst) && !self.is_cancelled.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::SeqCst)
    }
}

type Twist = dyn Fn(Operation, Vec<u8>, Reply, &HostTasks) + Send + Sync;

/// A node's end of a connection.
struct NodeEnd {
    executor: Arc<Executor>,
    session: u128,
    own: Option<Arc<dyn TaskFiles>>,
    tasks: Mutex<Option<Arc<HostTasks>>>,
    twist: Option<Arc<Twist>>,
}

impl Handler for NodeEnd {
    fn request(&self, peer: &Peer, operation: u16, payload: Vec<u8>, reply: Reply) {
        let operation = Operation::of(operation).unwrap();
        assert!(HostTasks::takes(operation), "{operation:?}");
        let attach = || Arc::new(self.executor.attach(self.session, self.own.clone(), peer));
        let tasks = Arc::clone(lock(&self.tasks).get_or_insert_with(attach));
        match &self.twist {
            Some(twist) => twist(operation, payload, reply, &tasks),
            None => tasks.request(operation, &payload, reply),
        }
    }

    fn lost(&self, _peer: &Peer, _why: &CallError) {
        let tasks = lock(&self.tasks).take();
        drop(tasks);
    }
}

/// A node: what it keeps over connections.
struct Node {
    executor: Mutex<Arc<Executor>>,
    options: ExecutorOptions,
    own: Option<Arc<dyn TaskFiles>>,
    twist: Option<Arc<Twist>>,
}

impl Node {
    fn new(own: Option<Arc<dyn TaskFiles>>) -> Node {
        let options = ExecutorOptions { threads: 1, waiting_max: 1, ..ExecutorOptions::new(&Env::system()) };
        Node::with(options, own)
    }

    fn with(options: ExecutorOptions, own: Option<Arc<dyn TaskFiles>>) -> Node {
        let executor = Mutex::new(Arc::new(Executor::new(&Env::system(), options.clone())));
        Node { executor, options, own, twist: None }
    }

    fn executor(&self) -> Arc<Executor> {
        Arc::clone(&lock(&self.executor))
    }

    /// The process is killed, as far as hosts can tell, and started anew.
    fn restart(&self) {
        let new = Arc::new(Executor::new(&Env::system(), self.options.clone()));
        let old = std::mem::replace(&mut *lock(&self.executor), new);
        old.close();
    }
}

/// A host's way to a node.
struct Link {
    connections: Mutex<Option<(Connection, Connection)>>,
    session: u128,
    token: u64,
    traffic: Arc<Traffic>,
}

impl NodeLink for Link {
    fn peer(&self) -> Option<Peer> {
        lock(&self.connections).as_ref().map(|(host, _)| host.peer().clone())
    }

    fn token(&self) -> u64 {
        self.token
    }
}

fn stream(socket: UnixStream, name: &str) -> Stream {
    let (reader, hang) = (socket.try_clone().unwrap(), socket.try_clone().unwrap());
    Stream {
        name: name.to_owned(),
        reader: Box::new(reader),
        writer: Box::new(socket),
        try_write: None,
        hang_up: Box::new(move || drop(hang.shutdown(std::net::Shutdown::Both))),
        binding: Vec::new(),
    }
}

impl Link {
    fn new(session: u128, token: u64) -> Arc<Link> {
        Arc::new(Link { connections: Mutex::default(), session, token, traffic: Arc::default() })
    }

    fn connect(&self, node: &Node, unit: &NodeUnit) {
        self.connect_to(node, unit.handler());
    }

    /// With anything that takes the node's requests.
    fn connect_to(&self, node: &Node, handler: Arc<dyn Handler>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let env = Env::system();
        let (own, twist) = (node.own.clone(), node.twist.clone());
        let (executor, session, tasks) = (node.executor(), self.session, Mutex::default());
        let end = Arc::new(NodeEnd { executor, session, own, tasks, twist });
        let (options, traffic) = (PeerOptions::default(), Arc::clone(&self.traffic));
        let ours = stream(ours, "the node");
        let host = Connection::begin(&env, Side::Host, ours, options.clone(), handler, traffic).unwrap();
        let node =
            Connection::begin(&env, Side::Device, stream(theirs, "the host"), options, end, Arc::default()).unwrap();
        for peer in [host.peer(), node.peer()] {
            peer.open_up(2 << 20);
        }
        *lock(&self.connections) = Some((host, node));
    }

    fn cut(&self) {
        let cut = lock(&self.connections).take();
        drop(cut);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.cut();
    }
}

/// A store with a scheduler, the processor, and a unit on a node.
struct Host {
    store: Arc<Store>,
    unit: Arc<NodeUnit>,
    link: Arc<Link>,
    scheduler: Scheduler,
    event: Arc<dyn Event>,
}

/// Tasks go to the node whenever it takes them.
struct Preferred(Arc<NodeUnit>);

impl Unit for Preferred {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn offer(&self, task: &Task) -> Offer {
        match self.0.offer(task) {
            Offer::DoneIn(_) => Offer::DoneIn(Duration::ZERO),
            other => other,
        }
    }

    fn load(&self) -> Load {
        self.0.load()
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        self.0.submit(assignment)
    }

    fn cancel(&self, attempt: u64) {
        self.0.cancel(attempt);
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        self.0.poll(finished);
    }

    fn close(&self) {
        self.0.close();
    }
}

impl Host {
    fn new(store: &Arc<Store>, place: VolumePlace, link: Arc<Link>, patience: Patience) -> Host {
        let env = Env::system();
        let options =
            NodeUnitOptions { patience: Duration::from_secs(2), ..NodeUnitOptions::new("node", vec![(0, place)]) };
        let unit = Arc::new(NodeUnit::new(&env, options));
        let event = env.executor.event();
        let others: Vec<Arc<dyn Unit>> = vec![Arc::new(Preferred(Arc::clone(&unit)))];
        let cpu = Arc::new(CpuUnit::new(env.clone(), 1));
        let scheduler = Scheduler::new(env, Arc::clone(&event), cpu, others, patience);
        Host { store: Arc::clone(store), unit, link, scheduler, event }
    }

    /// Connected, and told how busy the node is.
    fn connected(self, node: &Node) -> Host {
        self.link.connect(node, &self.unit);
        let served: Vec<(u32, Arc<dyn Volume>)> = vec![(0, Arc::clone(&self.store.volume) as Arc<dyn Volume>)];
        self.unit.link(Arc::clone(&self.link) as Arc<dyn NodeLink>, served).unwrap();
        until("the node's first load", || self.unit.load().tasks_max > 0);
        self
    }

    fn submit(&self, job: u64, task: Task) {
        self.scheduler.submit_tasks(job, vec![task], Arc::clone(&self.store) as Arc<dyn TaskHost>, 4);
        self.scheduler.turn();
    }

    fn finish(&self) -> FinishedJob {
        let end = Instant::now() + SOON;
        loop {
            let seen = self.event.generation();
            self.scheduler.turn();
            if let Some(finished) = self.scheduler.take_finished(None) {
                return finished;
            }
            assert!(Instant::now() < end, "a job does not end; {:?}", self.scheduler.reports());
            self.event.wait(seen, Some(Duration::from_millis(20)));
        }
    }

    fn run(&self, task: Task) -> Vec<TaskOutput> {
        self.submit(task.id, task);
        self.finish().result.unwrap()
    }

    fn report(&self) -> UnitReport {
        self.scheduler.reports().remove(1)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.scheduler.close();
    }
}

/// After this, another client may take the lease of a silent owner.
const TERM: Duration = Duration::from_millis(200);

/// The store's files on a node, and the token of the first owner of their lease.
fn owned(store: &Arc<Store>) -> (Arc<Files>, Arc<dyn TaskFiles>, u64) {
    let env = Env::system();
    let (note, volume) = (Note::Beside(store.path.clone()), Arc::clone(&store.volume) as Arc<dyn Volume>);
    let lease = Lease::open(&env, "store", TERM, note, &volume).unwrap();
    let files = Files::new(&env, volume, lease, FileLimits::default());
    let owner = Owner { id: 1, name: "the first".to_owned() };
    let token = files.attach(&owner).unwrap().0.lock(Duration::ZERO).unwrap();
    let own: Arc<dyn TaskFiles> = Arc::new(LeasedFiles::new(&files));
    (files, own, token)
}

mod lost;
mod right;
mod who_removes;
