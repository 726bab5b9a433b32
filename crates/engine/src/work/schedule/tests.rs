use super::*;
use crate::base::options::Options;
use crate::base::places::HomeVolume;
use crate::opening::open::{KeyspaceChoices, open};
use crate::pipeline::no_room::NoRoom;
use crate::pipeline::troubles::Trouble;
use crate::versions::running::Span;
use crate::versions::version::{Added, Removed, TableMeta};
use crate::versions::view::View;
use crate::work::Work;
use crate::work::turn::Turn;
use situ_base::Env;
use situ_compaction::KeySpan;
use situ_sim::{FaultPlan, SimExecutor, SimVolume};
use situ_storage::{DirectoryVolume, Volume};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

/// Level, number and keys of a table.
type Sketch = (usize, u64, [&'static str; 2]);

fn meta(number: u64, [begin, end]: [&str; 2]) -> TableMeta {
    TableMeta {
        number,
        volume: 0,
        bytes: 1 << 20,
        smallest_sequence: number * 10,
        largest_sequence: number * 10 + 9,
        entries: 1000,
        deletions: 0,
        range_deletions: 0,
        raw_bytes: 1 << 20,
        created_unix_s: 0,
        span: KeySpan { begin: begin.into(), end: end.into() },
    }
}

/// A store that has no threads of its own, and its keyspace, in whose version are these tables.
fn store_with(tables: &[Sketch], volume: Arc<dyn Volume>, env: Env) -> (Arc<Work>, Arc<KeyspaceCore>) {
    let mut options = Options::default();
    options.keyspace.level0_tables = 2;
    options.compaction_threads = 2;
    let work =
        open(&HomeVolume::given(volume), env, options, &KeyspaceChoices::new(), false).unwrap().core.work.clone();
    let keyspace = work.memory.versions.keyspaces().remove(0);
    let added: Vec<_> =
        tables.iter().map(|(level, number, keys)| Added { level: *level, meta: meta(*number, *keys) }).collect();
    let source = &work.memory.versions.source;
    let version = Arc::new(keyspace.view.load().version.apply(&[], &added, source).unwrap());
    keyspace.view.rcu(|view| {
        let mut view = (**view).clone();
        view.version = Arc::clone(&version);
        view
    });
    (work, keyspace)
}

/// Runs `test` in the simulator with such a store.
fn with_tables(tables: &[Sketch], test: impl FnOnce(&Arc<Work>, &Arc<KeyspaceCore>) + Send) {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let env = executor.env();
        let (work, keyspace) = store_with(tables, Arc::new(SimVolume::new(&env, FaultPlan::none(), 1)), env);
        test(&work, &keyspace);
    });
}

/// A job of these tables.
fn job(keyspace: &KeyspaceCore, output_level: usize, numbers: &[u64]) -> Job {
    let version = Arc::clone(&keyspace.view.load().version);
    let mut inputs = BTreeMap::<usize, Vec<_>>::new();
    for (level, file) in version.files().filter(|(_, file)| numbers.contains(&file.meta.number)) {
        inputs.entry(level).or_default().push(Arc::clone(file));
    }
    let keys = inputs.values().flatten().map(|file| file.meta.span.clone()).reduce(KeySpan::union).unwrap();
    let span = Span { level: output_level, keys };
    Job {
        output_level,
        inputs: inputs.into_iter().collect(),
        through: None,
        score: 1.0,
        reason: String::new(),
        is_move: false,
        is_debt: false,
        newer: None,
        span,
    }
}

/// Lets a job of these tables rest.
fn postpone(work: &Work, keyspace: &KeyspaceCore, output_level: usize, numbers: &[u64]) {
    let scheduling = work.schedule.lock();
    let cause = Error::Invalid(format!("tables {numbers:?} cannot be read"));
    let job = job(keyspace, output_level, numbers);
    job.claim(true);
    work.schedule.postpone(&scheduling, keyspace, &job, &cause);
}

/// The compaction threads used to sleep for no time at all, again and again, when a rest ended while a manual
/// compaction held them back.
#[test]
fn promise_9_a_rest_ends_while_a_manual_compaction_waits() {
    with_tables(&[(6, 1, ["a", "c"]), (6, 2, ["c", "f"])], |work, keyspace| {
        postpone(work, keyspace, 6, &[1]);
        keyspace.compactions_paused.fetch_add(1, Ordering::AcqRel);
        assert_eq!(work.compactions.compact_one().unwrap(), Turn::Idle);
        let rest = work.schedule.next_rest_ends_in().unwrap();
        assert!(rest > REST_MIN / 2 && rest <= REST_MIN, "{rest:?}");
        work.memory.env.clock.sleep(rest);
        assert_eq!(
            work.compactions.compact_one().unwrap(),
            Turn::Idle,
            "a compaction began beside a manual one that waits"
        );
        assert_eq!(work.schedule.next_rest_ends_in(), None, "a thread would wake up for nothing");
        assert!(keyspace.view.load().version.files().all(|(_, file)| !file.busy.load(Ordering::Acquire)));
    });
}

/// Who waited until nothing was left to do was told so with level 0 full, if a job claimed its tables after it had been
/// looked for among those that run: no job could begin then, and none ran. With threads of the machine: the simulator
/// has no such moment.
#[test]
fn a_job_that_is_just_beginning_is_waited_for() {
    let tables = [(0, 11, ["a", "z"]), (0, 10, ["a", "x"]), (6, 40, ["a", "n"])];
    let directory = tempfile::tempdir().unwrap();
    let volume = DirectoryVolume::create(directory.path()).unwrap();
    let (work, keyspace) = store_with(&tables, Arc::new(volume), Env::system());
    let job = job(&keyspace, 6, &[10, 11, 40]);
    let is_over = AtomicBool::new(false);
    let was_told_too_early = || {
        std::thread::sleep(Duration::from_millis(50));
        is_over.load(Ordering::SeqCst)
    };
    std::thread::scope(|scope| {
        let scheduling = work.schedule.lock();
        job.claim(true);
        scope.spawn(|| {
            work.wait_idle().unwrap();
            is_over.store(true, Ordering::SeqCst);
        });
        let between = was_told_too_early();
        lock(&keyspace.running).push(job.span.clone());
        drop(scheduling);
        let beside = was_told_too_early();
        // It has taken all tables away.
        let version = Arc::clone(&keyspace.view.load().version);
        let removed: Vec<_> =
            version.files().map(|(level, file)| Removed { level, number: file.meta.number }).collect();
        let version = Arc::new(version.apply(&removed, &[], &work.memory.versions.source).unwrap());
        keyspace.view.rcu(|view| View { version: Arc::clone(&version), ..(**view).clone() });
        let (schedule, keyspace) = (Arc::clone(&work.schedule), Arc::clone(&keyspace));
        drop(Claimed { schedule, keyspace, job: Arc::new(job.clone()), is_postponed: false });
        work.memory.progress.notify();
        assert!(!between && !beside, "{between} {beside}");
    });
    assert!(is_over.load(Ordering::SeqCst));
}

/// Level 0 goes down into level 4, and from there into level 6.
const TREE: [Sketch; 7] = [
    (0, 12, ["b", "y"]),
    (0, 11, ["a", "z"]),
    (0, 10, ["a", "x"]),
    (4, 30, ["c", "m"]),
    (4, 31, ["zz", "zzz"]),
    (6, 40, ["a", "n"]),
    (6, 41, ["n", "zzz"]),
];

/// What a write is told that finds level 0 full: `None` if it is to wait.
fn answer(work: &Work, keyspace: &Arc<KeyspaceCore>) -> Option<String> {
    match work.memory.remove_obstacle(NoRoom::Level0Full { keyspace: Arc::clone(keyspace) }) {
        Ok(may_try) => {
            assert!(!may_try);
            None
        }
        Err(Error::Level0Full { cause, .. }) => Some(cause.to_string()),
        Err(other) => panic!("{other}"),
    }
}

/// One unreadable table anywhere in a keyspace used to refuse each write that found level 0 full for a moment.
#[test]
fn promise_7_a_failure_that_is_not_in_the_way_of_level_0_refuses_no_write() {
    with_tables(&TREE, |work, keyspace| {
        assert_eq!(answer(work, keyspace), None);
        postpone(work, keyspace, 6, &[31, 41]);
        assert_eq!(answer(work, keyspace), None, "level 0 can be compacted");
        assert!(keyspace.postponed_error().is_some());
    });
}

#[test]
fn promise_7_a_failure_in_the_way_of_level_0_is_told() {
    for (output_level, tables, told) in
        [(4, &[12, 11, 10, 30][..], "[12, 11, 10, 30]"), (6, &[30, 40], "[30, 40]"), (0, &[10], "[10]")]
    {
        with_tables(&TREE, |work, keyspace| {
            postpone(work, keyspace, 6, &[41]);
            postpone(work, keyspace, output_level, tables);
            let cause = answer(work, keyspace).expect("nobody can tell when there will be room");
            assert!(cause.contains(told), "{cause}");
            // When the rest has ended it is tried again, and may succeed.
            work.memory.env.clock.sleep(REST_MIN);
            work.schedule.end_rests(&work.schedule.lock(), keyspace, false);
            assert_eq!(answer(work, keyspace), None);
        });
    }
}

#[test]
fn promise_7_a_write_waits_for_a_compaction_of_level_0_that_goes_on() {
    with_tables(&TREE, |work, keyspace| {
        postpone(work, keyspace, 0, &[10]);
        assert!(answer(work, keyspace).is_some());
        let running = job(keyspace, 0, &[12, 11]);
        running.claim(true);
        lock(&keyspace.running).push(running.span.clone());
        assert_eq!(answer(work, keyspace), None, "a part of level 0 is being merged");
    });
    // Enough new tables to be merged among themselves, beside one that rests.
    let more = [(0, 15, ["a", "z"]), (0, 14, ["a", "z"]), (0, 13, ["a", "z"])];
    with_tables(&[&more[..], &TREE].concat(), |work, keyspace| {
        postpone(work, keyspace, 0, &[10]);
        assert_eq!(answer(work, keyspace), None, "a part of level 0 is about to be merged");
    });
}

/// A compaction thread that paused after a failure, of whatever keyspace, used to refuse each write that found level 0
/// full, also while another thread was compacting that level.
#[test]
fn promise_7_a_thread_that_pauses_refuses_no_write_while_another_makes_way() {
    let full_disk = |pausing| {
        let error = Error::Storage(situ_storage::Error::NoSpace { op: "append", path: "a table".to_owned() });
        Trouble { error: Some(error), pausing }
    };
    // How many of the two threads pause, the tables of a running job and where it writes, and whether a write waits.
    let cases: [(usize, usize, &[u64], bool); 6] = [
        (2, 0, &[], false),
        (1, 0, &[], true),
        (1, 4, &[12, 11, 10, 30], true),
        (1, 0, &[12, 11, 10], true),
        (1, 6, &[30, 40], true),
        (1, 6, &[31, 41], false),
    ];
    for (pausing, output_level, tables, waits) in cases {
        with_tables(&TREE, |work, keyspace| {
            lock(&work.memory.queue.troubles).compaction = full_disk(pausing);
            if !tables.is_empty() {
                let running = job(keyspace, output_level, tables);
                running.claim(true);
                lock(&keyspace.running).push(running.span.clone());
            }
            let told = answer(work, keyspace);
            assert_eq!(told.is_none(), waits, "{pausing} pause, {tables:?} are compacted: {told:?}");
            assert!(told.is_none_or(|cause| cause.contains("a table")), "the cause is told");
        });
    }
}
