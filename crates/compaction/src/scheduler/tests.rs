use super::*;
use crate::cpu::CpuUnit;
use crate::cut::cut;
use crate::run::run;
use crate::span::KeyRange;
use crate::testing::{MemoryHost, numbered, plain_rules, task};
use crate::unit::Limits;

/// What a bad unit does with the tasks it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Busy,
    Unsuited,
    Gone,
    Fails,
    Vanishes,
    WrongRange,
    LosesATable,
    SwapsTables,
    WrongCounts,
    StrangeNumbers,
    CorruptSummary,
}

/// Runs tasks inside `submit`, and then lies about it as told.
struct FaultyUnit {
    fault: Fault,
    taken: AtomicU64,
    finished: Mutex<Vec<Finished>>,
}

impl FaultyUnit {
    fn result(&self, assignment: &Assignment) -> Option<Result<TaskOutput>> {
        let mut task = (*assignment.task).clone();
        if self.fault == Fault::WrongRange {
            task.rules.range = KeyRange::all();
        }
        if matches!(self.fault, Fault::Vanishes) {
            return None;
        }
        let mut output = match run(&task, &*assignment.host) {
            Ok(output) => output,
            Err(error) => return Some(Err(error)),
        };
        match self.fault {
            Fault::Fails => return Some(Err(TaskError::Unit { unit: "faulty".into(), reason: "on purpose".into() })),
            Fault::LosesATable => drop(output.tables.pop()),
            Fault::SwapsTables => output.tables.reverse(),
            Fault::WrongCounts => output.stats.entries_in += 1,
            Fault::StrangeNumbers => output.tables[0].number += 1000,
            Fault::CorruptSummary => output.tables[0].summary.properties.smallest.clear(),
            _ => {}
        }
        Some(Ok(output))
    }
}

impl Unit for FaultyUnit {
    fn name(&self) -> &str {
        "faulty"
    }

    fn limits(&self) -> Limits {
        Limits::unlimited(100)
    }

    fn load(&self) -> Load {
        // Fast enough to be asked first.
        Load { tasks: 0, input_bytes: 0, bytes_per_s: u64::MAX }
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        match self.fault {
            Fault::Busy => return Err(Refused::Busy),
            Fault::Unsuited => return Err(Refused::Unsuited("no".into())),
            Fault::Gone => return Err(Refused::Gone("unplugged".into())),
            _ => {}
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        if let Some(result) = self.result(&assignment) {
            let attempt = assignment.attempt;
            self.finished.lock().unwrap().push(Finished { attempt, result, elapsed: Duration::ZERO });
            assignment.done.notify();
        }
        Ok(())
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        finished.append(&mut self.finished.lock().unwrap());
    }

    fn close(&self) {}
}

fn job(host: &MemoryHost) -> Vec<Task> {
    let mut whole = task(host, &[numbered(3000, 2, 9), numbered(3000, 3, 5)], plain_rules());
    whole.rules.output.target_file_bytes = 10_000;
    let ranges = cut(&whole.inputs, 4, 1).unwrap();
    assert_eq!(ranges.len(), 4);
    let part = |range| {
        let mut part = whole.clone();
        part.rules.range = range;
        part
    };
    ranges.into_iter().map(part).collect()
}

fn patience() -> Patience {
    Patience { least: Duration::from_millis(30), bytes_per_s_min: u64::MAX, ..Patience::default() }
}

fn scheduler(fault: Fault) -> (Scheduler, Arc<FaultyUnit>) {
    let env = Env::system();
    let faulty = Arc::new(FaultyUnit { fault, taken: AtomicU64::new(0), finished: Mutex::default() });
    let reference = Arc::new(CpuUnit::new(env.clone(), 2));
    (Scheduler::new(env, reference, vec![Arc::clone(&faulty) as Arc<dyn Unit>], patience()), faulty)
}

fn bytes(host: &MemoryHost, outputs: &[TaskOutput]) -> Vec<Vec<u8>> {
    outputs.iter().flat_map(|output| &output.tables).map(|table| host.bytes(table.number).to_vec()).collect()
}

#[test]
fn whatever_a_unit_does_the_job_gets_the_right_bytes() {
    let memory = Arc::new(MemoryHost::new());
    let host = Arc::clone(&memory) as Arc<dyn TaskHost>;
    let tasks = job(&memory);
    let expected: Vec<TaskOutput> = tasks.iter().map(|task| run(task, &*host).unwrap()).collect();
    let expected = bytes(&memory, &expected);
    assert!(expected.len() > 4);
    for fault in [
        Fault::None,
        Fault::Busy,
        Fault::Unsuited,
        Fault::Gone,
        Fault::Fails,
        Fault::Vanishes,
        Fault::WrongRange,
        Fault::LosesATable,
        Fault::SwapsTables,
        Fault::WrongCounts,
        Fault::StrangeNumbers,
        Fault::CorruptSummary,
    ] {
        let (scheduler, faulty) = scheduler(fault);
        let outputs = scheduler.run(tasks.clone(), &host).unwrap();
        assert_eq!(bytes(&memory, &outputs), expected, "{fault:?}");
        let (stats, taken) = (scheduler.stats(), faulty.taken.load(Ordering::Relaxed));
        match fault {
            Fault::None => assert_eq!((taken, stats.attempts, stats.failed + stats.suspicious), (4, 4, 0)),
            Fault::Busy => assert_eq!((taken, stats.attempts, stats.refused), (0, 4, 0)),
            Fault::Unsuited => assert_eq!((taken, stats.refused >= 4), (0, true)),
            Fault::Gone => assert_eq!((taken, stats.refused), (0, 1), "it rests after the first refusal"),
            Fault::Vanishes => assert_eq!((taken, stats.late, stats.attempts), (4, 4, 8)),
            _ => assert_eq!((taken, stats.suspicious, stats.attempts), (4, 4, 8), "{fault:?}"),
        }
    }
}

/// Takes a task, and finishes it only when it is told to.
struct LateUnit {
    held: Mutex<Vec<Assignment>>,
    finished: Mutex<Vec<Finished>>,
}

impl Unit for LateUnit {
    fn name(&self) -> &str {
        "late"
    }

    fn limits(&self) -> Limits {
        Limits::unlimited(100)
    }

    fn load(&self) -> Load {
        Load { tasks: 0, input_bytes: 0, bytes_per_s: u64::MAX }
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        self.held.lock().unwrap().push(assignment);
        Ok(())
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        finished.append(&mut self.finished.lock().unwrap());
    }

    fn close(&self) {
        self.held.lock().unwrap().clear();
    }
}

#[test]
fn a_late_result_is_not_taken_and_its_host_is_dead() {
    let memory = Arc::new(MemoryHost::new());
    let host = Arc::clone(&memory) as Arc<dyn TaskHost>;
    let env = Env::system();
    let late = Arc::new(LateUnit { held: Mutex::default(), finished: Mutex::default() });
    let reference = Arc::new(CpuUnit::new(env.clone(), 2));
    let scheduler = Scheduler::new(env, reference, vec![Arc::clone(&late) as Arc<dyn Unit>], patience());
    let tasks = job(&memory);
    let first = scheduler.run(tasks.clone(), &host).unwrap();
    assert_eq!(first.len(), 4);
    for assignment in late.held.lock().unwrap().drain(..) {
        assert!(assignment.host.cancelled());
        let result = run(&assignment.task, &*assignment.host);
        assert!(result.is_err(), "it created files for a task that is done");
        late.finished.lock().unwrap().push(Finished { attempt: assignment.attempt, result, elapsed: Duration::ZERO });
    }
    // The unit rests, so that the next job runs on the reference unit; the late results disturb nobody.
    let second = scheduler.run(tasks, &host).unwrap();
    assert_eq!(bytes(&memory, &first), bytes(&memory, &second));
    assert_eq!(scheduler.stats().attempts, 12);
    assert!(lock(&scheduler.state).inbox.is_empty());
}

#[test]
fn a_failure_of_the_reference_unit_fails_the_job() {
    let memory = Arc::new(MemoryHost::new());
    let tasks = job(&memory);
    let host = Arc::clone(&memory) as Arc<dyn TaskHost>;
    memory.fails_at.store(memory.new_table(0).unwrap().0 + 5, Ordering::Relaxed);
    let env = Env::system();
    let scheduler = Scheduler::new(env.clone(), Arc::new(CpuUnit::new(env, 2)), Vec::new(), Patience::default());
    let error = scheduler.run(tasks, &host).unwrap_err();
    assert!(matches!(&error, TaskError::Storage(e) if e.is_no_space()), "{error}");
    assert!(lock(&scheduler.state).inbox.is_empty());
}

#[test]
fn a_closed_reference_unit_fails_the_job_instead_of_waiting() {
    let memory = Arc::new(MemoryHost::new());
    let env = Env::system();
    let reference = Arc::new(CpuUnit::new(env.clone(), 2));
    reference.close();
    let scheduler = Scheduler::new(env, reference, Vec::new(), Patience::default());
    let tasks = job(&memory);
    let error = scheduler.run(tasks, &(memory as Arc<dyn TaskHost>)).unwrap_err();
    assert!(matches!(error, TaskError::Unit { .. }), "{error}");
}

#[test]
fn jobs_of_many_threads_share_the_units() {
    let memory = Arc::new(MemoryHost::new());
    let tasks = job(&memory);
    let (scheduler, _) = scheduler(Fault::None);
    let expected = {
        let host = Arc::clone(&memory) as Arc<dyn TaskHost>;
        bytes(&memory, &scheduler.run(tasks.clone(), &host).unwrap())
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let host = Arc::clone(&memory) as Arc<dyn TaskHost>;
                    let outputs = scheduler.run(tasks.clone(), &host).unwrap();
                    assert_eq!(bytes(&memory, &outputs), expected);
                }
            });
        }
    });
}

/// able, tasks held of tasks allowed, bytes held, bytes a second; which one gets a task of 1000 bytes.
const GOLDEN: &str = "
yes 0/2 0 100                                    | 0
yes 2/2 0 100                                    | none
no 0/2 0 100                                     | none
yes 0/2 0 100, yes 0/2 0 200                     | 1
yes 0/2 0 100, yes 0/2 0 100                     | 0
yes 0/2 0 100, yes 1/2 1500 200                  | 0
yes 1/2 2000 100, yes 1/2 1500 200               | 1
yes 0/2 0 100, yes 9/9 0 900                     | 0
yes 0/2 0 100, no 0/9 0 900                      | 0
yes 0/2 0 100, yes 0/9 0 0                       | 1
";

#[test]
fn the_choice_of_a_unit_is_that_of_the_golden_text() {
    let candidate = |text: &str| {
        let [able, tasks, held, speed] = text.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{text}") };
        let (tasks, tasks_max) = tasks.split_once('/').unwrap();
        let load = Load {
            tasks: tasks.parse().unwrap(),
            input_bytes: held.parse().unwrap(),
            bytes_per_s: speed.parse().unwrap(),
        };
        Candidate { able: able == "yes", tasks_max: tasks_max.parse().unwrap(), load }
    };
    for line in GOLDEN.lines().filter(|line| !line.is_empty()) {
        let (candidates, expected) = line.split_once('|').unwrap();
        let candidates: Vec<Candidate> = candidates.split(',').map(candidate).collect();
        let chosen = choose(&candidates, 1000).map_or("none".to_owned(), |index| index.to_string());
        assert_eq!(chosen, expected.trim(), "{line}");
    }
}
