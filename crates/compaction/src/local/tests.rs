use super::*;
use crate::testing::{MemoryHost, numbered, plain_rules, task};
use crate::{InputTable, KeyRange, OutputTable, TablePlace, run};
use situ_sim::SimExecutor;
use situ_storage::{Error, Writer};
use situ_table::Compression;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the runs that have begun a table and not ended it, and can refuse.
struct CountingHost {
    memory: Arc<MemoryHost>,
    env: Env,
    running: AtomicUsize,
    most: AtomicUsize,
    created: AtomicUsize,
    /// The file with this number cannot be made.
    refused: Option<usize>,
}

impl CountingHost {
    fn new(env: &Env, refused: Option<usize>) -> Arc<CountingHost> {
        let (running, most, created) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let memory = Arc::new(MemoryHost::new());
        Arc::new(CountingHost { memory, env: env.clone(), running, most, created, refused })
    }
}

impl TaskHost for CountingHost {
    fn reserve(&self, level: u32) -> situ_storage::Result<TablePlace> {
        self.memory.reserve(level)
    }

    fn create(&self, level: u32, place: TablePlace) -> situ_storage::Result<(TablePlace, Box<dyn Writer>)> {
        let number = self.created.fetch_add(1, Ordering::SeqCst);
        if self.refused == Some(number) {
            return Err(Error::Invalid("refused on purpose".to_owned()));
        }
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        self.env.clock.sleep(Duration::from_millis(10));
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.memory.create(level, place)
    }

    fn pace(&self, bytes: u64) {
        self.memory.pace(bytes);
    }

    fn cancelled(&self) -> bool {
        false
    }
}

fn whole(host: &MemoryHost) -> Task {
    task(host, &[numbered(3000, 2, 9), numbered(3000, 3, 5)], plain_rules())
}

fn compactor(env: &Env, threads: usize) -> (LocalCompactor, Arc<dyn Event>) {
    let event = env.executor.event();
    (LocalCompactor::new(CompactorParts { env: env.clone(), event: Arc::clone(&event), threads }), event)
}

fn order(
    compactor: &LocalCompactor,
    number: u64,
    host: &Arc<CountingHost>,
    (parts, abreast): (usize, usize),
) -> JobOrder {
    let whole = whole(&host.memory);
    let shape = JobShape {
        level: whole.level,
        inputs: &whole.inputs,
        compression: Compression::None,
        threads: parts,
        task_bytes_min: 1,
        part_bytes_min: 1,
    };
    let Division { parts, notes } = compactor.divide(&shape).unwrap();
    let part = |Part { range, destination }| {
        let mut part = whole.clone();
        part.rules.range = range;
        (part, destination)
    };
    let tasks = parts.into_iter().map(part).collect();
    let priority = Priority::new(whole.level, 1.0);
    JobOrder { number, tasks, host: Arc::clone(host) as Arc<dyn TaskHost>, abreast, priority, notes }
}

/// Takes turns until a job has finished.
fn wait(compactor: &LocalCompactor, event: &dyn Event) -> FinishedJob {
    loop {
        let seen = event.generation();
        compactor.turn();
        if let Some(finished) = compactor.take_finished(None) {
            return finished;
        }
        event.wait(seen, compactor.next_turn_in());
    }
}

fn bytes(host: &MemoryHost, tables: &[OutputTable]) -> Vec<crate::testing::Bytes> {
    tables.iter().map(|table| host.bytes(table.number)).collect()
}

#[test]
fn promise_5_each_task_of_a_job_gives_the_bytes_of_the_reference_run() {
    for seed in 0..5 {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        sim.run(|| {
            let (compactor, event) = compactor(&env, 3);
            let host = CountingHost::new(&env, None);
            let order = order(&compactor, 7, &host, (4, 2));
            let tasks: Vec<Task> = order.tasks.iter().map(|(task, _)| task.clone()).collect();
            assert!(tasks.len() == 4 && tasks[0].rules.range != KeyRange::all());
            compactor.submit(order);
            let finished = wait(&compactor, &*event);
            let outputs = finished.result.unwrap();
            assert_eq!((finished.job, outputs.len()), (7, 4));
            assert_eq!(host.most.load(Ordering::SeqCst), 2, "two of three threads, as the order says");
            for (task, output) in tasks.iter().zip(&outputs) {
                let right = run(task, &*host.memory).unwrap();
                assert_eq!(bytes(&host.memory, &output.tables), bytes(&host.memory, &right.tables));
            }
            assert!(compactor.is_empty());
            compactor.close();
        });
    }
}

#[test]
fn a_failed_task_ends_its_job_and_other_jobs_go_on() {
    for seed in 0..20 {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        sim.run(|| {
            let (compactor, event) = compactor(&env, 2);
            let (bad, good) = (CountingHost::new(&env, Some(1)), CountingHost::new(&env, None));
            compactor.submit(order(&compactor, 1, &bad, (4, 2)));
            compactor.submit(order(&compactor, 2, &good, (4, 2)));
            let (first, second) = (wait(&compactor, &*event), wait(&compactor, &*event));
            let (failed, done) = if first.job == 1 { (first, second) } else { (second, first) };
            let error = failed.result.unwrap_err().to_string();
            assert!(error.contains("refused on purpose"), "seed {seed}: {error}");
            assert!(bad.created.load(Ordering::SeqCst) <= 3, "no task begins after the failure");
            assert_eq!((done.job, done.result.unwrap().len()), (2, 4), "seed {seed}");
            assert!(compactor.is_empty() && compactor.take_finished(None).is_none());
            compactor.close();
        });
    }
}

#[test]
fn the_most_urgent_job_goes_first_and_a_certain_one_can_be_taken() {
    let sim = SimExecutor::new(1);
    let env = sim.env();
    sim.run(|| {
        let (compactor, event) = compactor(&env, 1);
        let host = CountingHost::new(&env, None);
        for (number, score) in [(1, 2.0), (2, 5.0), (3, 2.0)] {
            let priority = Priority::new(1, score);
            compactor.submit(JobOrder { priority, ..order(&compactor, number, &host, (1, 1)) });
        }
        let jobs = [0; 3].map(|_| wait(&compactor, &*event).job);
        assert_eq!(jobs, [2, 1, 3]);
        compactor.submit(order(&compactor, 4, &host, (1, 1)));
        compactor.submit(order(&compactor, 5, &host, (1, 1)));
        while compactor.take_finished(Some(5)).is_none() {
            assert!(compactor.take_finished(Some(6)).is_none());
            let seen = event.generation();
            compactor.turn();
            event.wait(seen, Some(Duration::from_millis(1)));
        }
        assert_eq!(wait(&compactor, &*event).job, 4);
        compactor.close();
    });
}

/// A table that panics when it is opened.
struct Panics;

impl InputTable for Panics {
    fn open(self: Arc<Self>) -> situ_storage::Result<Arc<situ_table::Table>> {
        panic!("the table panics")
    }
}

#[test]
fn a_run_that_panics_and_a_thread_that_is_refused_are_answers() {
    let sim = SimExecutor::new(1);
    let env = sim.env();
    sim.run(|| {
        let (compactor, event) = compactor(&env, 1);
        let host = CountingHost::new(&env, None);
        let mut job = order(&compactor, 1, &host, (1, 1));
        job.tasks[0].0.inputs[0][0].table = Arc::new(Panics);
        compactor.submit(job);
        let error = wait(&compactor, &*event).result.unwrap_err();
        assert!(matches!(&error, TaskError::Panicked(text) if text.contains("the table panics")), "{error}");
        compactor.close();
    });

    /// No thread, twice.
    struct Refuses(AtomicUsize);
    impl situ_base::Executor for Refuses {
        fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> std::io::Result<Box<dyn JobHandle>> {
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0 | 1 => Err(std::io::ErrorKind::WouldBlock.into()),
                _ => situ_base::ThreadExecutor.spawn(name, job),
            }
        }

        fn event(&self) -> Arc<dyn Event> {
            situ_base::ThreadExecutor.event()
        }
    }
    let refuses = Arc::new(Refuses(AtomicUsize::new(0)));
    let env = Env { executor: Arc::clone(&refuses) as Arc<dyn situ_base::Executor>, ..Env::system() };
    let (compactor, event) = compactor(&env, 1);
    let host = CountingHost::new(&env, None);
    compactor.submit(order(&compactor, 1, &host, (1, 1)));
    assert_eq!(wait(&compactor, &*event).result.unwrap().len(), 1);
    assert!(refuses.0.load(Ordering::SeqCst) > 2);
    compactor.close();
}
