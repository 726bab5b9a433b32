use super::*;
use crate::dropped::{ValueHandles, ValueLocation};
use crate::filter::{CompactionFilter, Decision, FilterContext, FrozenFilter};
use crate::run::{run, run_sized};
use crate::task::{Grandparent, TablePlace};
use crate::testing::{
    Contents, Entry, MemoryHost, Rng, World, key, numbered, one_in, plain_rules, small_blocks, sort, task, with_seeds,
};
use crate::{KeySpan, RunMode, RunReport};
use situ_base::Event;
use situ_base::{Executor, ThreadExecutor};
use situ_sim::SimMemory;
use situ_storage::{Error, Writer};
use situ_table::{Compression, KeyKind, TableOptions};
use std::sync::atomic::AtomicI64;
use std::sync::atomic::{AtomicBool, AtomicU64};

const MODES: [RunMode; 4] = [
    RunMode::Linear,
    RunMode::PIPELINED,
    RunMode::Pipelined { merge_threads: 2 },
    RunMode::Pipelined { merge_threads: 3 },
];

/// Buffers so small that a task of a few entries fills all of them.
fn tiny() -> Sizes {
    Sizes {
        piece_bytes: 300,
        read_bytes: 2000,
        sub_range_bytes: 400,
        batch_bytes: 150,
        chunk_bytes: 150,
        write_bytes: 500,
    }
}

/// What happens at a step of a writer: create, append, finish.
type Writes = dyn Fn(&str) -> situ_storage::Result<()> + Send + Sync;

/// A host whose calls do what a test wants.
struct TestHost {
    memory: MemoryHost,
    handles: bool,
    /// Called with the bytes of each pace.
    paced: Box<dyn Fn(u64) + Send + Sync>,
    /// Called with what a writer does: create, append, finish.
    writes: Arc<Writes>,
    asked: AtomicU64,
    /// Cancelled when asked so often.
    cancelled_at: u64,
}

impl TestHost {
    fn new() -> TestHost {
        TestHost {
            memory: MemoryHost::new(),
            handles: false,
            paced: Box::new(|_| ()),
            writes: Arc::new(|_| Ok(())),
            asked: AtomicU64::new(0),
            cancelled_at: u64::MAX,
        }
    }
}

impl ValueHandles for MemoryHost {
    fn locate(&self, handle: &[u8]) -> Option<ValueLocation> {
        let digits = handle.strip_prefix(b"handle")?;
        let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        Some(ValueLocation { segment: number % 3, offset: number, length: number, bytes: number })
    }
}

impl TaskHost for TestHost {
    fn reserve(&self, level: u32) -> situ_storage::Result<TablePlace> {
        self.memory.reserve(level)
    }

    fn create(&self, level: u32, place: TablePlace) -> situ_storage::Result<(TablePlace, Box<dyn Writer>)> {
        (self.writes)("create")?;
        let (place, inner) = self.memory.create(level, place)?;
        Ok((place, Box::new(TestWriter { inner, writes: Arc::clone(&self.writes) })))
    }

    fn value_handles(&self) -> Option<Arc<dyn ValueHandles>> {
        self.handles.then(|| Arc::new(MemoryHost::new()) as Arc<dyn ValueHandles>)
    }

    fn pace(&self, bytes: u64) {
        self.memory.pace(bytes);
        (self.paced)(bytes);
    }

    fn cancelled(&self) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst) >= self.cancelled_at
    }
}

struct TestWriter {
    inner: Box<dyn Writer>,
    writes: Arc<Writes>,
}

impl Writer for TestWriter {
    fn append(&mut self, bytes: &[u8]) -> situ_storage::Result<()> {
        (self.writes)("append")?;
        self.inner.append(bytes)
    }

    fn written(&self) -> u64 {
        self.inner.written()
    }

    fn sync(&mut self) -> situ_storage::Result<()> {
        self.inner.sync()
    }

    fn flush(&mut self) -> situ_storage::Result<()> {
        self.inner.flush()
    }

    fn finish(self: Box<Self>) -> situ_storage::Result<()> {
        (self.writes)("finish")?;
        self.inner.finish()
    }
}

/// An executor that knows how many of its threads live, and may refuse further ones.
struct Counting {
    live: Arc<AtomicI64>,
    left: AtomicI64,
}

impl Executor for Counting {
    fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> std::io::Result<Box<dyn JobHandle>> {
        if self.left.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return Err(std::io::Error::other("no more threads"));
        }
        let live = Arc::clone(&self.live);
        live.fetch_add(1, Ordering::SeqCst);
        let counted = move || {
            job();
            live.fetch_sub(1, Ordering::SeqCst);
        };
        ThreadExecutor.spawn(name, Box::new(counted))
    }

    fn event(&self) -> Arc<dyn Event> {
        ThreadExecutor.event()
    }
}

fn counting(threads: i64) -> (Env, Arc<AtomicI64>) {
    let live = Arc::new(AtomicI64::new(0));
    let executor = Counting { live: Arc::clone(&live), left: AtomicI64::new(threads) };
    (Env { executor: Arc::new(executor), ..Env::system() }, live)
}

/// Runs the task, and sees to it that no thread is left.
fn run_in(task: &Task, host: &Arc<TestHost>, mode: RunMode, sizes: &Sizes) -> (Result<TaskOutput>, RunReport) {
    let (env, live) = counting(i64::MAX);
    let dyn_host = Arc::clone(host) as Arc<dyn TaskHost>;
    let answer = run_sized(&Arc::new(task.clone()), &dyn_host, mode, &env, sizes);
    assert_eq!(live.load(Ordering::SeqCst), 0, "threads are left");
    assert_eq!(Arc::strong_count(host), 2, "the run still holds its host");
    answer
}

fn assert_same(memory: &MemoryHost, expected: &TaskOutput, output: &TaskOutput, mode: RunMode) {
    assert_eq!(output.stats, expected.stats, "{mode:?}");
    assert_eq!(output.dropped_values, expected.dropped_values, "{mode:?}");
    assert_eq!(output.dropped_places, expected.dropped_places, "{mode:?}");
    assert_eq!(output.tables.len(), expected.tables.len(), "{mode:?}");
    for (table, expected) in output.tables.iter().zip(&expected.tables) {
        assert_eq!((&table.summary, &table.span), (&expected.summary, &expected.span), "{mode:?}");
        assert!(memory.bytes(table.number) == memory.bytes(expected.number), "{mode:?}: table {}", table.number);
    }
}

/// Runs the task in all modes. The result is how many merge threads the widest run had.
fn assert_same_in_all_modes(task: &Task, host: &Arc<TestHost>, sizes: &Sizes) -> u32 {
    let expected = run(task, &**host).unwrap();
    let mut widest = 0;
    for mode in MODES {
        let (output, ran) = run_in(task, host, mode, sizes);
        assert_same(&host.memory, &expected, &output.unwrap(), mode);
        assert_eq!(ran.mode.is_pipelined(), mode.is_pipelined());
        if let RunMode::Pipelined { merge_threads } = ran.mode {
            widest = widest.max(merge_threads);
        }
    }
    widest
}

/// Removes some values, changes others to long ones.
struct ByKey;

impl CompactionFilter for ByKey {
    fn name(&self) -> &str {
        "by key"
    }

    fn decide(&self, context: &FilterContext<'_>, key: &[u8], value: &[u8]) -> Decision {
        match key.iter().map(|byte| u64::from(*byte)).sum::<u64>() % 5 {
            0 => Decision::Remove,
            1 => Decision::Change(value.repeat(1 + context.level as usize)),
            _ => Decision::Keep,
        }
    }
}

fn frozen(filter: impl CompactionFilter + 'static, task: &Task) -> FrozenFilter {
    let code: Arc<dyn CompactionFilter> = Arc::new(filter);
    FrozenFilter::freeze(&code, task.rules.now_unix).unwrap()
}

fn random_task(rng: &mut Rng, host: &MemoryHost) -> Task {
    let world = World::random(rng);
    let mut rules = plain_rules();
    rules.snapshots = world.snapshots.clone();
    rules.below = world.below_spans.clone();
    rules.output.target_file_bytes = [1, 700, 1500, 4000, u64::MAX][rng.below(5) as usize];
    let compression = [Compression::None, Compression::Lz4, Compression::Zstd { level: 1 }][rng.below(3) as usize];
    rules.output.table = TableOptions { compression, ..small_blocks() };
    let bounds = (rng.below(30), rng.below(30));
    rules.range = crate::KeyRange {
        lower: one_in(rng, 3).then(|| key(bounds.0.min(bounds.1))),
        upper: one_in(rng, 3).then(|| key(bounds.0.max(bounds.1) + 1)),
    };
    if one_in(rng, 2) {
        let span = |at: u64| KeySpan { begin: key(at), end: key(at + 4) };
        rules.grandparents = (0..30).step_by(5).map(|at| Grandparent { span: span(at), bytes: 100 }).collect();
        rules.output.max_grandparent_bytes = 100 * rng.below(4);
    }
    let mut task = task(host, &world.runs, rules);
    task.rules.filter = one_in(rng, 2).then(|| frozen(ByKey, &task));
    task
}

#[test]
fn promise_5_random_tasks_give_the_same_bytes_in_every_mode() {
    let mut wide = 0;
    with_seeds(250, |rng| {
        let host = Arc::new(TestHost { handles: one_in(rng, 2), ..TestHost::new() });
        let task = random_task(rng, &host.memory);
        wide += u32::from(assert_same_in_all_modes(&task, &host, &tiny()) > 1);
    });
    assert!(wide > 50, "{wide} tasks had several merge threads: the test shows little");
}

#[test]
fn a_task_without_entries_makes_no_table_in_any_mode() {
    let host = Arc::new(TestHost::new());
    let mut task = simple_task(&host);
    task.rules.range = crate::KeyRange { lower: Some(b"5".to_vec()), upper: None };
    let nothing = Task { inputs: Vec::new(), ..task.clone() };
    for task in [task, nothing] {
        assert_same_in_all_modes(&task, &host, &tiny());
        assert_eq!(run(&task, &*host).unwrap().tables, []);
    }
}

/// Entries of which some compress well and some do not.
fn mixed(count: u64, step: u64, sequence: u64, rng: &mut Rng) -> Contents {
    let mut entry = |i: u64| {
        let value: String = (0..120).map(|_| char::from(b'a' + rng.below(1 + i / 500 % 26) as u8)).collect();
        Entry::new(&format!("{i:06}"), sequence, KeyKind::Put, &value)
    };
    Contents { entries: (0..count).step_by(step as usize).map(&mut entry).collect(), tombstones: Vec::new() }
}

#[test]
fn promise_5_blocks_that_compress_unequally_are_cut_the_same_in_every_mode() {
    let host = Arc::new(TestHost::new());
    let mut rng = Rng::new(3);
    let runs = [mixed(12_000, 2, 9, &mut rng), mixed(12_000, 3, 5, &mut rng)];
    let sizes = Sizes { sub_range_bytes: 100_000, write_bytes: 50_000, chunk_bytes: 5000, ..Sizes::default() };
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd { level: 1 }] {
        for target_file_bytes in [1, 30_000, 200_000, u64::MAX] {
            let mut rules = plain_rules();
            rules.output.table = TableOptions { compression, block_bytes: 1000, ..TableOptions::default() };
            rules.output.target_file_bytes = target_file_bytes;
            // A file for each key is enough for a few keys.
            rules.range.upper = (target_file_bytes == 1).then(|| b"000300".to_vec());
            let task = task(&host.memory, &runs, rules);
            let widest = assert_same_in_all_modes(&task, &host, &sizes);
            assert_eq!(widest, if target_file_bytes == 1 { 1 } else { 3 }, "the rest of the keys makes sub-ranges");
        }
    }
}

#[test]
fn promise_5_tiny_and_huge_values_and_a_key_with_many_versions() {
    let host = Arc::new(TestHost::new());
    let mut entries: Vec<Entry> = numbered(3000, 1, 9).entries;
    entries.push(Entry::new("01500", 8, KeyKind::Put, &"x".repeat(3 << 20)));
    entries.push(Entry::new("02000a", 8, KeyKind::Put, &"yz".repeat(1 << 20)));
    let version = |sequence| Entry::new("01700", sequence, KeyKind::Put, &"version".repeat(sequence as usize % 40));
    entries.extend((10..6000).map(version));
    sort(&mut entries);
    let runs = [Contents { entries, tombstones: Vec::new() }, numbered(3000, 2, 5)];
    for snapshots in [vec![], (0..6000).step_by(2).collect()] {
        let mut rules = plain_rules();
        rules.snapshots = snapshots;
        rules.output.target_file_bytes = 200_000;
        let task = task(&host.memory, &runs, rules);
        let sizes = Sizes { sub_range_bytes: 30_000, batch_bytes: 5000, ..Sizes::default() };
        assert_eq!(assert_same_in_all_modes(&task, &host, &sizes), 3);
    }
}

#[test]
fn buffers_never_hold_more_than_their_bounds() {
    // A slow writer holds all others back: whatever has a bound, reaches it while the first block waits to be written.
    let is_first = Arc::new(AtomicBool::new(true));
    let first = Arc::clone(&is_first);
    let slow = move |what: &str| {
        if what == "append" {
            let is_first = first.swap(false, Ordering::Relaxed);
            std::thread::sleep(if is_first { Duration::from_millis(500) } else { Duration::from_micros(50) });
        }
        Ok(())
    };
    let host = Arc::new(TestHost { writes: Arc::new(slow), ..TestHost::new() });
    let runs: Vec<Contents> = (0..5).map(|run| numbered(40_000, 3, 100 - run)).collect();
    let mut rules = plain_rules();
    rules.output.table = TableOptions { block_bytes: 1000, compression: Compression::None, ..TableOptions::default() };
    let task = Arc::new(task(&host.memory, &runs, rules));
    let sizes = Sizes {
        piece_bytes: 8000,
        read_bytes: 200_000,
        sub_range_bytes: 40_000,
        batch_bytes: 4000,
        chunk_bytes: 4000,
        write_bytes: 20_000,
    };
    for merge_threads in [1, 3] {
        let dyn_host = Arc::clone(&host) as Arc<dyn TaskHost>;
        is_first.store(true, Ordering::Relaxed);
        let (result, _, peaks) = run_pipelined(&task, &dyn_host, merge_threads, &Env::system(), &sizes).unwrap();
        result.unwrap();
        let window = if merge_threads > 1 { u64::from(merge_threads) + 1 } else { 1 };
        // One block may be beyond each bound.
        assert!(peaks.pieces > 40_000 && peaks.pieces <= sizes.read_bytes, "{merge_threads}: {peaks:?}");
        assert!(peaks.blocks > 12_000 && peaks.blocks <= sizes.write_bytes, "{merge_threads}: {peaks:?}");
        assert!(peaks.kept <= window * sizes.sub_range_bytes + 6000, "{merge_threads}: {peaks:?}");
        assert!(peaks.kept > 40_000 || merge_threads == 1, "{merge_threads}: {peaks:?}");
    }
}

fn simple_task(host: &TestHost) -> Task {
    let mut task = task(&host.memory, &[numbered(20_000, 1, 9), numbered(20_000, 3, 5)], plain_rules());
    task.rules.output.target_file_bytes = 100_000;
    task
}

#[test]
fn a_write_that_fails_at_any_step_ends_the_run_with_its_error() {
    for mode in MODES {
        for (step, at) in [("create", 0), ("create", 3), ("append", 0), ("append", 700), ("finish", 0), ("finish", 2)] {
            let steps = AtomicU64::new(0);
            let is_armed = Arc::new(AtomicBool::new(false));
            let armed = Arc::clone(&is_armed);
            let writes = move |what: &str| {
                if armed.load(Ordering::SeqCst) && what == step && steps.fetch_add(1, Ordering::SeqCst) == at {
                    return Err(Error::NoSpace { op: "write", path: format!("{step} {at}") });
                }
                Ok(())
            };
            let host = Arc::new(TestHost { writes: Arc::new(writes), ..TestHost::new() });
            let task = simple_task(&host);
            is_armed.store(true, Ordering::SeqCst);
            let (result, _) = run_in(&task, &host, mode, &Sizes { sub_range_bytes: 100_000, ..tiny() });
            let Err(TaskError::Storage(error)) = result else { panic!("{mode:?}: it should fail") };
            assert!(error.is_no_space() && error.to_string().contains(&format!("{step} {at}")), "{mode:?}: {error}");
        }
    }
}

/// An executor whose threads of one name get no allocation of `bytes` bytes or more.
struct Refusing {
    thread: &'static str,
    bytes: usize,
}

impl Executor for Refusing {
    fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> std::io::Result<Box<dyn JobHandle>> {
        let refused_from = if name == self.thread { self.bytes } else { usize::MAX };
        ThreadExecutor.spawn(name, Box::new(move || SimMemory::refusing(refused_from, job)))
    }

    fn event(&self) -> Arc<dyn Event> {
        ThreadExecutor.event()
    }
}

/// For [`assert_refused`]: no thread of the executor.
const CALLER: &str = "the caller's thread";

/// Runs the task while one thread gets no allocation of `bytes` bytes or more: the run fails for want of memory for
/// `what`, and no file has come, gone or changed.
fn assert_refused(
    task: &Task,
    host: &Arc<TestHost>,
    sizes: &Sizes,
    (mode, thread, bytes, what): (RunMode, &'static str, usize, &str),
) {
    let files = host.memory.files();
    let env = Env { executor: Arc::new(Refusing { thread, bytes }), ..Env::system() };
    let (task, dyn_host) = (Arc::new(task.clone()), Arc::clone(host) as Arc<dyn TaskHost>);
    let refused_from = if thread == CALLER { bytes } else { usize::MAX };
    let (result, ran) = SimMemory::refusing(refused_from, || run_sized(&task, &dyn_host, mode, &env, sizes));
    assert_eq!(ran.mode, mode);
    let Err(TaskError::Storage(error)) = result else { panic!("{mode:?}, {thread}: it should fail") };
    assert!(error.is_out_of_memory() && error.to_string().contains(what), "{mode:?}, {thread}: {error}");
    assert!(host.memory.files() == files, "{mode:?}, {thread}: the files differ");
}

#[test]
fn a_run_without_memory_for_a_block_ends_with_its_error_and_the_next_one_gives_the_same_bytes() {
    const LARGE_BYTES: usize = 3 << 20;
    let host = Arc::new(TestHost::new());
    let mut entries: Vec<Entry> = numbered(3000, 1, 9).entries;
    entries.push(Entry::new("01500a", 8, KeyKind::Put, &"x".repeat(LARGE_BYTES)));
    sort(&mut entries);
    let runs = [Contents { entries, tombstones: Vec::new() }, numbered(3000, 2, 5)];
    let task = task(&host.memory, &runs, plain_rules());
    let sizes = Sizes { sub_range_bytes: 30_000, batch_bytes: 5000, ..Sizes::default() };
    for case in [
        (RunMode::Linear, CALLER, LARGE_BYTES, ".table"),
        (RunMode::PIPELINED, "compaction read", LARGE_BYTES, "blocks that a compaction reads"),
        (RunMode::PIPELINED, CALLER, LARGE_BYTES, "the data block"),
        (MODES[2], "compaction read", LARGE_BYTES, "blocks that a compaction reads"),
        (MODES[2], "compaction merge", LARGE_BYTES, "the data block"),
        (MODES[2], CALLER, LARGE_BYTES, "a block of a table"),
    ] {
        assert_refused(&task, &host, &sizes, case);
    }
    assert_same_in_all_modes(&task, &host, &sizes);
}

#[test]
fn a_run_without_memory_for_kept_entries_ends_with_its_error_and_the_next_one_gives_the_same_bytes() {
    let host = Arc::new(TestHost::new());
    let task = simple_task(&host);
    // Pieces stay far below the batches.
    let sizes = Sizes { sub_range_bytes: 200_000, batch_bytes: 200_000, ..tiny() };
    let case = (MODES[2], "compaction merge", 50_000, "an entry that a compaction keeps");
    assert_refused(&task, &host, &sizes, case);
    assert_same_in_all_modes(&task, &host, &sizes);
}

#[test]
fn a_panic_at_any_stage_ends_the_run_with_its_message() {
    struct Panics(&'static [u8]);

    impl CompactionFilter for Panics {
        fn name(&self) -> &str {
            "panics"
        }

        fn decide(&self, _: &FilterContext<'_>, key: &[u8], _: &[u8]) -> Decision {
            assert!(key != self.0, "in the filter");
            Decision::Keep
        }
    }

    let panicking = |what: &str| -> TestHost {
        match what {
            "in the writer" => TestHost {
                writes: Arc::new(|step| if step == "append" { panic!("in the writer") } else { Ok(()) }),
                ..TestHost::new()
            },
            "in pace" => TestHost { paced: Box::new(|_| panic!("in pace")), ..TestHost::new() },
            _ => TestHost::new(),
        }
    };
    for mode in MODES {
        for what in ["in the writer", "in pace", "in the filter"] {
            let inputs = Arc::new(TestHost::new());
            let mut task = simple_task(&inputs);
            let host = Arc::new(panicking(what));
            if what == "in the filter" {
                task.rules.filter = Some(frozen(Panics(b"12345"), &task));
            }
            let (result, _) = run_in(&task, &host, mode, &Sizes { sub_range_bytes: 100_000, ..Sizes::default() });
            let Err(TaskError::Panicked(message)) = result else { panic!("{mode:?} {what}: it should fail") };
            assert!(message.contains(what), "{mode:?}: {message}");
        }
    }
}

#[test]
fn damage_in_an_input_ends_the_run_with_its_file() {
    for mode in MODES {
        let host = Arc::new(TestHost::new());
        let task = simple_task(&host);
        let number = task.inputs[1][1].number;
        let mut bytes = host.memory.bytes(number).to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        host.memory.put_bytes(number, bytes);
        let mut damaged = task.clone();
        damaged.inputs[1][1] = host.memory.input(number, task.inputs[1][1].span.clone());
        let (result, _) = run_in(&damaged, &host, mode, &tiny());
        let Err(TaskError::Storage(error)) = result else { panic!("{mode:?}: it should fail") };
        assert!(error.is_corruption() && error.to_string().contains(&format!("{number:06}.table")), "{error}");
    }
}

#[test]
fn a_run_that_is_cancelled_ends_wherever_it_is() {
    for mode in MODES {
        for cancelled_at in [0, 1, 5, 20] {
            let host = Arc::new(TestHost { cancelled_at, ..TestHost::new() });
            let (result, ran) = run_in(&simple_task(&host), &host, mode, &tiny());
            assert!(matches!(result, Err(TaskError::Cancelled)), "{mode:?} at {cancelled_at}");
            assert_eq!(ran.mode.is_pipelined(), mode.is_pipelined());
        }
    }
}

/// The writer stands in a write while the builder waits for space: only the clock lets the builder ask whether to go
/// on.
#[test]
fn a_run_that_waits_for_a_slow_disk_notices_that_it_is_cancelled() {
    for mode in &MODES[1..] {
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_cancelled);
        // The write ends when the run has noticed.
        let slow = move |what: &str| {
            let began = std::time::Instant::now();
            while what == "append" && seen.load(Ordering::SeqCst) && began.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        };
        let host = Arc::new(TestHost { writes: Arc::new(slow), ..TestHost::new() });
        let task = Arc::new(simple_task(&host));
        is_cancelled.store(true, Ordering::SeqCst);

        struct Notices(Arc<TestHost>, Arc<AtomicBool>);
        impl TaskHost for Notices {
            fn reserve(&self, level: u32) -> situ_storage::Result<TablePlace> {
                self.0.reserve(level)
            }
            fn create(&self, level: u32, place: TablePlace) -> situ_storage::Result<(TablePlace, Box<dyn Writer>)> {
                self.0.create(level, place)
            }
            fn pace(&self, _: u64) {}
            fn cancelled(&self) -> bool {
                // Not for the ticks of the merge's first entries.
                let now = self.0.asked.fetch_add(1, Ordering::SeqCst) > 3;
                if now {
                    self.1.store(false, Ordering::SeqCst);
                }
                now
            }
        }
        let notices: Arc<dyn TaskHost> = Arc::new(Notices(host, Arc::clone(&is_cancelled)));
        let began = std::time::Instant::now();
        let (result, _) = run_sized(&task, &notices, *mode, &Env::system(), &tiny());
        assert!(matches!(result, Err(TaskError::Cancelled)), "{mode:?}");
        assert!(began.elapsed() < Duration::from_secs(10), "{mode:?}: {:?}", began.elapsed());
    }
}

#[test]
fn an_executor_without_threads_makes_the_run_linear_and_the_answer_says_so() {
    let host = Arc::new(TestHost::new());
    let task = Arc::new(simple_task(&host));
    let expected = run(&task, &*host).unwrap();
    for (threads, merge_threads) in [(0, 1), (1, 1), (2, 2), (3, 2)] {
        let (env, live) = counting(threads);
        let dyn_host = Arc::clone(&host) as Arc<dyn TaskHost>;
        let (output, ran) = run_sized(&task, &dyn_host, RunMode::Pipelined { merge_threads }, &env, &tiny());
        assert_eq!((ran.mode, live.load(Ordering::SeqCst)), (RunMode::Linear, 0));
        assert_same(&host.memory, &expected, &output.unwrap(), ran.mode);
    }
}

#[test]
fn a_host_that_holds_the_run_back_is_told_of_all_output_and_blocks_the_merge_only() {
    for mode in MODES {
        let host = TestHost { paced: Box::new(|_| std::thread::sleep(Duration::from_millis(20))), ..TestHost::new() };
        let host = Arc::new(host);
        let task = task(&host.memory, &[numbered(30_000, 1, 9)], plain_rules());
        let (output, ran) = run_in(&task, &host, mode, &Sizes { sub_range_bytes: 200_000, ..Sizes::default() });
        let wrote = output.unwrap().stats.bytes_written;
        let told = host.memory.paced_bytes.load(Ordering::Relaxed);
        assert!(told.abs_diff(wrote) < wrote / 20, "{mode:?}: told of {told}, wrote {wrote}");
        assert!(ran.stages.merge.blocked >= Duration::from_millis(60), "{mode:?}: {:?}", ran.stages);
    }
}

#[test]
fn the_stages_say_what_went_through_them() {
    for mode in MODES {
        let host = Arc::new(TestHost::new());
        let task = simple_task(&host);
        let (output, ran) = run_in(&task, &host, mode, &Sizes { sub_range_bytes: 200_000, ..Sizes::default() });
        let (stats, stages) = (output.unwrap().stats, ran.stages);
        let data_bytes: u64 = task.tables().map(|input| input.open().unwrap().properties().data_bytes).sum();
        // Two merge threads read the block at their border both; pieces of a linear run may end inside a block.
        assert!(stages.read.bytes >= data_bytes && stages.read.bytes < data_bytes + data_bytes / 20, "{stages:?}");
        // Blocks have lost their trailers, a tenth of so small ones.
        assert!(stages.merge.bytes > data_bytes * 8 / 10 && stages.merge.bytes < data_bytes, "{stages:?}");
        assert_eq!(stages.write.bytes, stats.bytes_written);
        assert!([stages.read.busy, stages.merge.busy, stages.write.busy].iter().all(|busy| !busy.is_zero()));
        if mode == RunMode::Linear {
            assert_eq!(stages.merge.starved + stages.write.starved + stages.read.blocked, Duration::ZERO);
        }
    }
}

#[test]
fn sub_ranges_follow_each_other_without_a_gap_and_parts_are_about_equal() {
    let host = TestHost::new();
    let mut task = simple_task(&host);
    task.rules.range = crate::KeyRange { lower: Some(b"00100".to_vec()), upper: Some(b"19000".to_vec()) };
    let ranges = sub_ranges(&task, 100_000).unwrap();
    assert!((8..=12).contains(&ranges.len()), "{}", ranges.len());
    assert_eq!((&ranges[0].lower, &ranges[ranges.len() - 1].upper), (&task.rules.range.lower, &task.rules.range.upper));
    assert!(ranges.windows(2).all(|pair| pair[0].upper.is_some() && pair[0].upper == pair[1].lower));
    let entries = |range: &KeyRange| {
        let mut part = task.clone();
        part.rules.range = range.clone();
        run(&part, &host).unwrap().stats.entries_in
    };
    let counts: Vec<u64> = ranges.iter().map(entries).collect();
    let mean = counts.iter().sum::<u64>() / counts.len() as u64;
    assert_eq!(counts.iter().sum::<u64>(), run(&task, &host).unwrap().stats.entries_in);
    assert!(counts[..counts.len() - 1].iter().all(|count| count.abs_diff(mean) < mean / 3), "{counts:?}");
}

/// A table whose index says of a block that it ends before keys that are in it.
fn table_with_a_lying_index(memory: &MemoryHost) -> crate::TableInput {
    let options = TableOptions { block_bytes: 400, index_block_bytes: 1 << 20, ..small_blocks() };
    let honest = memory.write(&numbered(1000, 1, 9), &options).unwrap();
    let table = honest.open().unwrap();
    let boundaries: Vec<_> = table.block_boundaries().map(|boundary| boundary.unwrap()).collect();
    let (before, lying) = (&boundaries[20].user_key, &boundaries[21].user_key);
    let mut bytes = memory.bytes(honest.number).to_vec();
    let index_at = boundaries[boundaries.len() - 1].offset as usize;
    let index = &mut bytes[index_at..index_at + table.properties().index_bytes as usize];
    let at = index.windows(lying.len()).position(|window| window == lying.as_slice()).unwrap();
    // Keys have five digits: the next one after `before` is in the block, but not its last.
    let too_early = std::str::from_utf8(before).unwrap().parse::<u64>().unwrap() + 1;
    index[at..at + lying.len()].copy_from_slice(format!("{too_early:05}").as_bytes());
    let (block, checksum) = index.split_at_mut(index.len() - 4);
    checksum.copy_from_slice(&crc32c::crc32c(block).to_le_bytes());
    memory.put_bytes(honest.number, bytes);
    memory.input(honest.number, honest.span.clone())
}

/// Between two sub-ranges, entries of such a block would be lost in silence.
#[test]
fn a_block_that_reaches_over_its_place_in_the_index_is_corruption() {
    let host = Arc::new(TestHost::new());
    let input = table_with_a_lying_index(&host.memory);
    let boundaries: Vec<_> = input.open().unwrap().block_boundaries().map(|boundary| boundary.unwrap()).collect();
    let lying = std::str::from_utf8(&boundaries[21].user_key).unwrap().parse::<u64>().unwrap();
    let mut task = Task { inputs: vec![vec![input]], ..task(&host.memory, &[], plain_rules()) };
    task.rules.range.upper = Some(format!("{:05}", lying + 2).into_bytes());
    for mode in &MODES[1..] {
        let (result, _) = run_in(&task, &host, *mode, &tiny());
        let Err(TaskError::Storage(error)) = result else { panic!("{mode:?}: it should fail") };
        assert!(error.is_corruption() && error.to_string().contains("index"), "{error}");
    }
}

mod simulated;
