//! A policy's wishes, priorities, checking and service, by units that tests hold in their hands.

use super::*;
use crate::class::TaskClass;
use crate::mode::ModeRule;
use crate::policy::Split;
use crate::record::TaskOutcome;
use crate::scheduler::assign::{Answer, Narrowed, Wishes, narrow};
use situ_compaction::RunMode;
use situ_compaction::testing::golden;

/// Holds what it is given until the test says what comes of it.
struct HeldUnit {
    name: &'static str,
    tasks_max: usize,
    unsuited: AtomicBool,
    held: Mutex<Vec<Assignment>>,
    finished: Mutex<Vec<Finished>>,
    order: Mutex<Vec<u64>>,
}

impl HeldUnit {
    fn new(name: &'static str, tasks_max: usize) -> Arc<HeldUnit> {
        Arc::new(HeldUnit {
            name,
            tasks_max,
            unsuited: AtomicBool::new(false),
            held: Mutex::default(),
            finished: Mutex::default(),
            order: Mutex::default(),
        })
    }

    fn holds(&self) -> usize {
        self.held.lock().unwrap().len()
    }

    /// Ends all that it holds, as `lie` would have it.
    fn end_with(&self, lie: impl Fn(Result<TaskOutput>) -> Result<TaskOutput>) {
        for assignment in std::mem::take(&mut *self.held.lock().unwrap()) {
            let result = lie(run(&assignment.task, &*assignment.host));
            let (attempt, elapsed) = (assignment.attempt, Duration::from_millis(1));
            self.finished.lock().unwrap().push(Finished { attempt, result, elapsed, ran: Ran::default() });
        }
    }

    fn end(&self) {
        self.end_with(|result| result);
    }

    fn fail(&self) {
        self.end_with(|_| Err(TaskError::Panicked("on purpose".to_owned())));
    }
}

impl Unit for HeldUnit {
    fn name(&self) -> &str {
        self.name
    }

    fn offer(&self, _task: &Task) -> Offer {
        if self.unsuited.load(Ordering::Relaxed) {
            return Offer::Unsuited("too long a key".to_owned());
        }
        self.load().offer(1)
    }

    fn load(&self) -> Load {
        let tasks = self.holds() + self.finished.lock().unwrap().len();
        Load { tasks, tasks_max: self.tasks_max, ..Load::default() }
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        self.order.lock().unwrap().push(assignment.task.id);
        self.held.lock().unwrap().push(assignment);
        Ok(())
    }

    fn cancel(&self, attempt: u64) {
        self.held.lock().unwrap().retain(|assignment| assignment.attempt != attempt);
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        finished.append(&mut self.finished.lock().unwrap());
    }

    fn close(&self) {
        self.held.lock().unwrap().clear();
    }
}

/// A clock that stands still until the test moves it.
#[derive(Default)]
struct HandClock(AtomicU64);

impl HandClock {
    fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
    }
}

impl situ_base::Clock for HandClock {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn unix(&self) -> Duration {
        self.now()
    }

    fn sleep(&self, duration: Duration) {
        self.pass(duration);
    }
}

/// Two held units beside a held reference unit, on a clock of the test's.
struct World {
    clock: Arc<HandClock>,
    memory: Arc<MemoryHost>,
    reference: Arc<HeldUnit>,
    one: Arc<HeldUnit>,
    two: Arc<HeldUnit>,
    scheduler: Scheduler,
    told: Arc<Mutex<Vec<UnitEvent>>>,
}

impl World {
    fn new(tasks_max: usize, with: impl FnOnce(Scheduler) -> Scheduler) -> World {
        let clock = Arc::new(HandClock::default());
        let env = Env { clock: Arc::clone(&clock) as Arc<dyn situ_base::Clock>, ..Env::system() };
        let [reference, one, two] = ["cpu", "one", "two"].map(|name| HeldUnit::new(name, tasks_max));
        let others = vec![Arc::clone(&one) as Arc<dyn Unit>, Arc::clone(&two) as Arc<dyn Unit>];
        let event = env.executor.event();
        let told = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&told);
        let cpu = Arc::clone(&reference) as Arc<dyn Unit>;
        let scheduler = with(Scheduler::new(env, event, cpu, others, Patience::default()))
            .listener(move |event| hears.lock().unwrap().push(event.clone()));
        World { clock, memory: Arc::new(MemoryHost::new()), reference, one, two, scheduler, told }
    }

    fn order(&self, number: u64, level: u32, tasks: Vec<(Task, Option<usize>)>) -> JobOrder {
        let abreast = tasks.len();
        let tasks = tasks.into_iter().map(|(task, unit)| (task, Destination(unit))).collect();
        let notes = JobNotes::new(plan::Plan { class: TaskClass::default(), arm: None });
        let (host, priority) = (Arc::clone(&self.memory) as Arc<dyn TaskHost>, Priority::new(level, 1.0));
        JobOrder { number, tasks, host, abreast, priority, notes }
    }

    /// One task, whose number is the job's.
    fn task(&self, id: u64) -> Task {
        Task { id, ..task(&self.memory, &[numbered(300, 2, 9), numbered(300, 3, 5)], plain_rules()) }
    }

    fn submit(&self, number: u64, level: u32, meant_for: Option<usize>) {
        self.scheduler.submit(self.order(number, level, vec![(self.task(number), meant_for)]));
        self.scheduler.turn();
    }

    fn holds(&self) -> [usize; 3] {
        [self.reference.holds(), self.one.holds(), self.two.holds()]
    }

    /// Turns until a job is finished: comparisons are on threads of their own.
    fn finished(&self) -> FinishedJob {
        for _ in 0..1000 {
            self.scheduler.turn();
            if let Some(finished) = self.scheduler.take_finished(None) {
                return finished;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no job is finished");
    }

    fn outcomes(&self) -> Vec<(usize, &'static str)> {
        self.scheduler.records(0).iter().map(|record| (record.unit, record.outcome.name())).collect()
    }
}

#[test]
fn a_task_goes_to_the_unit_that_it_is_meant_for() {
    let world = World::new(9, |scheduler| scheduler);
    for (job, unit) in [(1, 2), (2, 0), (3, 1), (4, 2)] {
        world.submit(job, 3, Some(unit));
    }
    assert_eq!(world.holds(), [1, 1, 2]);
    // Whichever would be done first: the first of three that hold nothing, but for the offers that follow.
    world.submit(5, 3, None);
    assert_eq!(world.holds().iter().sum::<usize>(), 5);
    [&world.reference, &world.one, &world.two].into_iter().for_each(|unit| unit.end());
    for _ in 0..5 {
        assert!(world.finished().result.is_ok());
    }
}

#[test]
fn a_task_meant_for_a_busy_unit_waits_for_it_and_not_for_ever() {
    let world = World::new(1, |scheduler| scheduler);
    world.submit(1, 3, Some(1));
    world.submit(2, 3, Some(1));
    assert_eq!(world.holds(), [0, 1, 0], "the second one waits, though others have room");
    world.clock.pass(Patience::default().busy_max - Duration::from_millis(1));
    world.scheduler.turn();
    assert_eq!(world.holds(), [0, 1, 0]);
    world.clock.pass(Duration::from_millis(1));
    world.scheduler.turn();
    assert_eq!(world.holds(), [1, 1, 0]);
}

/// A split that is fixed is measured as what it is.
#[test]
fn a_fixed_split_waits_for_its_units() {
    let half = Split::Static { elsewhere_percent: 50 };
    let world = World::new(1, |scheduler| scheduler.policy(Policy { split: half, ..Policy::default() }));
    world.submit(1, 3, Some(0));
    world.submit(2, 3, Some(0));
    world.clock.pass(Duration::from_secs(1000));
    world.scheduler.turn();
    assert_eq!(world.holds(), [1, 0, 0]);
}

/// A node may be busy with the tasks of other stores for as long as it likes. Level 0 waited as long, and with it the
/// writers.
#[test]
fn level_0_does_not_wait_for_ever_for_a_busy_unit_whatever_the_split() {
    let half = Split::Static { elsewhere_percent: 50 };
    let world = World::new(1, |scheduler| scheduler.policy(Policy { split: half, ..Policy::default() }));
    world.submit(1, 3, Some(1));
    world.submit(2, 0, Some(1));
    world.submit(3, 3, Some(1));
    world.clock.pass(Patience::default().busy_max - Duration::from_millis(1));
    world.scheduler.turn();
    assert_eq!(world.holds(), [0, 1, 0], "it waits a while for its unit");
    world.clock.pass(Duration::from_millis(1));
    world.scheduler.turn();
    assert_eq!(world.holds(), [1, 1, 0]);
    assert_eq!(world.reference.order.lock().unwrap()[..], [2], "the task of the deeper level waits on");
    // What is meant for the processor does not go to a unit elsewhere: the processor is busy with this store alone.
    world.submit(4, 0, Some(0));
    world.clock.pass(Patience::default().busy_max);
    world.scheduler.turn();
    assert_eq!(world.holds(), [1, 1, 0]);
}

#[test]
fn host_only_leaves_other_units_alone() {
    let world = World::new(1, |scheduler| scheduler.policy(Policy::named("host-only").unwrap()));
    assert_eq!((world.scheduler.room(), world.scheduler.tasks_max_elsewhere()), (1, 0));
    world.submit(1, 3, None);
    world.submit(2, 3, None);
    world.clock.pass(Duration::from_secs(1000));
    world.scheduler.turn();
    assert_eq!(world.holds(), [1, 0, 0]);
    world.reference.fail();
    assert!(world.finished().result.is_err());
    world.scheduler.turn();
    assert_eq!(world.holds(), [1, 0, 0], "the reference unit has none that does its tasks");
}

#[test]
fn what_a_unit_refuses_or_cannot_do_goes_to_others() {
    let world = World::new(9, |scheduler| scheduler);
    // It rests.
    world.submit(1, 3, Some(1));
    world.one.fail();
    world.scheduler.turn();
    assert_eq!(world.holds(), [1, 0, 0], "the reference unit does again what has failed");
    world.submit(2, 3, Some(1));
    assert_eq!(world.holds()[1], 0, "the unit rests");
    // It is not suited: told once, and never asked again about this task.
    world.two.unsuited.store(true, Ordering::Relaxed);
    world.submit(3, 3, Some(2));
    let report = &world.scheduler.reports()[2];
    assert_eq!((report.attempts, report.refused), (0, 0));
    assert_eq!(report.last_illegal.as_deref(), Some("too long a key"));
    let illegal = report.illegal;
    world.scheduler.turn();
    assert_eq!(world.scheduler.reports()[2].illegal, illegal);
    let records = world.scheduler.records(0);
    let of_two: Vec<_> = records.iter().filter(|record| record.unit == 2 && record.task == 3).collect();
    assert_eq!(of_two.len(), 1);
    assert_eq!((of_two[0].attempt, of_two[0].began), (0, of_two[0].ended.unwrap()));
    assert_eq!(of_two[0].outcome, TaskOutcome::Illegal("too long a key".into()));
}

/// Rejected before: jobs in the order in which they came. A deep job of many tasks held level 0 up.
#[test]
fn level_0_goes_first_then_the_highest_score() {
    let world = World::new(1, |scheduler| scheduler);
    world.one.unsuited.store(true, Ordering::Relaxed);
    world.two.unsuited.store(true, Ordering::Relaxed);
    let order = |number, level, score| JobOrder {
        priority: Priority::new(level, score),
        ..world.order(number, level, vec![(world.task(number), None)])
    };
    for (number, level, score) in [(1, 3, 1.0), (2, 3, 1.0), (3, 2, 5.0), (4, 0, 1.0), (5, 3, 1.0), (6, 0, 2.0)] {
        world.scheduler.submit(order(number, level, score));
    }
    for _ in 0..6 {
        world.scheduler.turn();
        world.reference.end();
        assert!(world.finished().result.is_ok());
    }
    assert_eq!(*world.reference.order.lock().unwrap(), [6, 4, 3, 1, 2, 5]);
}

#[test]
fn records_tell_of_what_runs_and_of_what_has_ended() {
    let world = World::new(9, |scheduler| scheduler);
    world.submit(7, 0, Some(1));
    world.submit(8, 3, Some(0));
    let records = world.scheduler.records(0);
    assert_eq!(records.len(), 2);
    assert!(records.iter().all(|record| record.outcome == TaskOutcome::Running && record.sequence.is_none()));
    assert_eq!((records[0].job, &*records[0].unit_name, records[0].priority.is_level0), (7, "one", true));
    world.clock.pass(Duration::from_millis(50));
    world.one.end();
    assert!(world.finished().result.is_ok());
    let records = world.scheduler.records(0);
    let [ended, running] = &records[..] else { panic!("{records:?}") };
    assert_eq!((ended.sequence, &ended.outcome), (Some(0), &TaskOutcome::Done));
    assert_eq!((ended.began, ended.ended), (Duration::ZERO, Some(Duration::from_millis(50))));
    assert!(ended.input_bytes > 0 && ended.output_bytes > 0);
    assert_eq!((running.job, running.ended), (8, None));
    assert_eq!(world.scheduler.records(1).len(), 1, "what has ended was told");
    let report = &world.scheduler.reports()[1];
    assert_eq!((report.output_bytes, report.classes.len()), (ended.output_bytes, 1));
    assert_eq!(report.classes[0].bytes_per_s(), ended.input_bytes * 20);
}

#[test]
fn each_side_runs_in_the_mode_of_the_policy() {
    let fixed = |mode| ModeRule::Fixed(mode);
    let policy = Policy { host: fixed(RunMode::Linear), elsewhere: fixed(RunMode::PIPELINED), ..Policy::default() };
    let world = World::new(9, |scheduler| scheduler.policy(policy));
    world.submit(1, 3, Some(0));
    world.submit(2, 3, Some(2));
    assert_eq!(world.reference.held.lock().unwrap()[0].mode, fixed(RunMode::Linear));
    assert_eq!(world.two.held.lock().unwrap()[0].mode, fixed(RunMode::PIPELINED));
}

#[test]
fn a_checked_task_runs_on_two_units_and_the_reference_units_files_are_taken() {
    let world = World::new(9, |scheduler| scheduler.check_every(Some(2)));
    // The first of two.
    world.submit(1, 3, Some(0));
    assert_eq!(world.holds(), [1, 1, 0]);
    assert!(world.scheduler.records(0).iter().all(|record| record.is_checked));
    let others = Mutex::new(Vec::new());
    world.one.end_with(|result| {
        let output = result?;
        others.lock().unwrap().extend(output.tables.iter().map(|table| table.number));
        Ok(output)
    });
    let others = others.into_inner().unwrap();
    assert!(!others.is_empty());
    world.scheduler.turn();
    assert!(world.scheduler.take_finished(None).is_none(), "one side is not enough");
    world.reference.end();
    let outputs = world.finished().result.unwrap();
    let reports = world.scheduler.reports();
    assert_eq!((reports[1].checked, reports[1].mismatches, reports[1].succeeded), (1, 0, 1));
    assert_eq!(world.outcomes(), [(0, "done"), (1, "done")]);
    assert!(world.told.lock().unwrap().is_empty());
    assert!(outputs[0].tables.iter().all(|table| !others.contains(&table.number)), "{outputs:?} and {others:?}");
    // The second is not checked.
    world.submit(2, 3, Some(0));
    assert_eq!(world.holds(), [1, 0, 0]);
}

/// Puts another byte into a file of the unit's output.
fn spoil(world: &World, result: Result<TaskOutput>) -> Result<TaskOutput> {
    let output = result?;
    let number = output.tables[0].number;
    let mut bytes = world.memory.bytes(number).to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    world.memory.put_bytes(number, bytes);
    Ok(output)
}

#[test]
fn a_unit_with_other_bytes_is_out_of_service_until_it_gives_the_same() {
    let world = World::new(9, |scheduler| scheduler.check_every(Some(1)));
    world.submit(1, 3, Some(1));
    assert_eq!(world.holds(), [1, 1, 0]);
    let right = {
        let held = world.reference.held.lock().unwrap();
        bytes(&world.memory, &[run(&held[0].task, &*world.memory).unwrap()])
    };
    world.one.end_with(|result| spoil(&world, result));
    world.reference.end();
    let outputs = world.finished().result.unwrap();
    assert_eq!(bytes(&world.memory, &outputs), right, "the reference unit's bytes");
    let report = world.scheduler.reports()[1].clone();
    assert_eq!((report.mismatches, report.checked, report.succeeded), (1, 1, 0));
    assert!(report.out_of_service.is_some());
    assert_eq!(world.outcomes(), [(0, "done"), (1, "mismatch")]);
    let told = std::mem::take(&mut *world.told.lock().unwrap());
    let [UnitEvent::Mismatch { unit, task: 1, difference }, UnitEvent::OutOfService { .. }] = &told[..] else {
        panic!("{told:?}")
    };
    assert!(unit == "one" && difference.contains("at byte"), "{difference}");
    // It rests; the other one is asked. Then it may prove itself.
    world.submit(2, 3, Some(1));
    assert_eq!(world.holds(), [1, 0, 1]);
    world.clock.pass(Duration::from_secs(20));
    world.submit(3, 3, Some(2));
    assert_eq!(world.holds(), [2, 1, 1]);
    world.submit(4, 3, Some(1));
    assert_eq!(world.holds()[1], 1, "one task at a time");
    [&world.reference, &world.one, &world.two].into_iter().for_each(|unit| unit.end());
    for _ in 0..3 {
        assert!(world.finished().result.is_ok());
    }
    assert_eq!(world.scheduler.reports()[1].out_of_service, None);
    assert_eq!(*world.told.lock().unwrap(), [UnitEvent::BackInService { unit: "one".to_owned() }]);
}

/// Whatever the policy wants: a unit that keeps failing gets nothing but a task to prove itself on.
#[test]
fn a_unit_that_keeps_failing_is_out_of_service() {
    let half = Policy { split: Split::Static { elsewhere_percent: 50 }, ..Policy::default() };
    let world = World::new(9, |scheduler| scheduler.policy(half));
    world.two.unsuited.store(true, Ordering::Relaxed);
    for job in 0..5 {
        assert_eq!(world.scheduler.reports()[1].out_of_service, None, "after {job}");
        world.clock.pass(Duration::from_secs(60));
        world.submit(job, 3, Some(1));
        assert_eq!(world.holds()[1], 1);
        world.one.fail();
        world.scheduler.turn();
        world.reference.end();
        assert!(world.finished().result.is_ok());
    }
    assert!(world.scheduler.reports()[1].out_of_service.is_some());
    assert_eq!(world.scheduler.tasks_max_elsewhere(), 0, "nobody counts on it");
    // It fails the proof, and the job goes on without it.
    world.clock.pass(Duration::from_secs(60));
    world.submit(10, 3, None);
    assert_eq!(world.holds(), [1, 1, 0]);
    world.one.fail();
    world.scheduler.turn();
    assert!(world.scheduler.take_finished(None).is_none());
    world.reference.end();
    assert!(world.finished().result.is_ok());
    // It never answers: the job waits for it no longer than a while after the reference unit.
    world.clock.pass(Duration::from_secs(60));
    world.submit(11, 3, None);
    assert_eq!(world.holds(), [1, 1, 0]);
    world.clock.pass(Duration::from_secs(2));
    world.reference.end();
    world.scheduler.turn();
    assert!(world.scheduler.take_finished(None).is_none());
    world.clock.pass(Duration::from_secs(9));
    assert!(world.finished().result.is_ok());
    assert_eq!(world.scheduler.reports()[1].late, 1);
    assert!(world.scheduler.reports()[1].out_of_service.is_some());
    assert!(lock(&world.scheduler.queue).jobs.is_empty());
}

/// The reference unit fails while another one does the same task: the job fails, and leaves nothing behind.
#[test]
fn a_checked_task_fails_with_the_reference_unit() {
    for ends_before in [false, true] {
        let world = World::new(9, |scheduler| scheduler.check_every(Some(1)));
        world.submit(1, 3, None);
        assert_eq!(world.holds(), [1, 1, 0]);
        if ends_before {
            world.one.end();
            world.scheduler.turn();
        }
        world.reference.fail();
        assert!(matches!(world.finished().result, Err(TaskError::Panicked(_))));
        assert_eq!(world.holds(), [0, 0, 0], "the other one was told");
        assert!(world.scheduler.is_empty());
        let records = world.scheduler.records(0);
        assert!(records.iter().all(|record| record.ended.is_some()), "{records:?}");
    }
}

#[test]
fn a_checked_job_that_is_called_off_ends() {
    for (one, reference) in [(false, false), (true, false), (false, true)] {
        let world = World::new(9, |scheduler| scheduler.check_every(Some(1)));
        world.submit(1, 3, None);
        if one {
            world.one.end();
        }
        if reference {
            world.reference.end();
        }
        world.scheduler.turn();
        world.memory.cancel.store(true, Ordering::Relaxed);
        world.scheduler.turn();
        world.reference.end();
        assert!(matches!(world.finished().result, Err(TaskError::Cancelled)), "{one} {reference}");
        assert!(world.scheduler.is_empty() && world.holds() == [0, 0, 0]);
        assert_eq!(world.scheduler.reports()[1].failed, 0);
    }
}

/// The reference unit has no room: it gets its side later.
#[test]
fn a_checked_task_waits_for_room_on_the_reference_unit() {
    let world = World::new(1, |scheduler| scheduler.check_every(Some(2)));
    // Not checked are the second and the fourth.
    world.submit(1, 3, Some(0));
    world.submit(2, 3, Some(0));
    world.reference.end();
    world.one.end();
    assert_eq!(world.finished().job, 1);
    world.scheduler.turn();
    assert_eq!(world.holds(), [1, 0, 0]);
    world.submit(3, 3, Some(2));
    assert_eq!(world.holds().iter().sum::<usize>(), 2, "the other side has begun");
    world.reference.end();
    assert_eq!(world.finished().job, 2);
    world.scheduler.turn();
    assert_eq!(world.holds()[0], 1);
    [&world.reference, &world.one, &world.two].into_iter().for_each(|unit| unit.end());
    assert_eq!(world.finished().job, 3);
    assert_eq!(world.scheduler.reports().iter().map(|report| report.checked).sum::<u64>(), 2);
}

/// Units with two encoders agree in their entries.
#[test]
fn the_entries_of_another_encoder_are_compared() {
    let memory = Arc::new(MemoryHost::new());
    let host = Arc::clone(&memory) as Arc<dyn TaskHost>;
    let env = Env::system();
    let mut tasks = job(&memory);
    for task in &mut tasks {
        task.rules.output.table = TableOptions { compression: Compression::Lz4, ..TableOptions::default() };
    }
    let other = Arc::new(OtherEncoder(CpuUnit::new(env.clone(), 4)));
    let reference = Arc::new(CpuUnit::new(env.clone(), 4));
    let scheduler = with_units(env, reference, vec![other], Patience::default()).check_every(Some(1));
    scheduler.run(tasks, &host).unwrap();
    let report = &scheduler.reports()[1];
    assert_eq!((report.checked, report.mismatches, report.succeeded), (4, 0, 4), "{report:?}");
}

/// A job's parts go where the policy says, and the whole is cut.
#[test]
fn a_job_is_divided_by_the_policy() {
    let divided = |split: Split, table_bytes: u64| {
        let world = World::new(2, |scheduler| scheduler.policy(Policy { split, ..Policy::default() }));
        let task = task(&world.memory, &[numbered(20_000, 2, 9), numbered(10_000, 1, 5)], plain_rules());
        let bytes: u64 = task.tables().map(|table| table.bytes).sum();
        let division = world.scheduler.divide(&JobShape {
            inputs: &task.inputs,
            level: 1,
            compression: Compression::None,
            threads: 3,
            task_bytes_min: bytes / 8,
            part_bytes_min: table_bytes,
        });
        let Division { parts, notes } = division.unwrap();
        let arm = notes.get::<plan::Plan>().unwrap().arm;
        assert!(parts[0].range.lower.is_none() && parts[parts.len() - 1].range.upper.is_none());
        assert!(parts.windows(2).all(|pair| pair[0].range.upper == pair[1].range.lower));
        (parts.iter().map(|part| part.destination.0).collect::<Vec<_>>(), arm)
    };
    let (host, one, two) = (Some(0), Some(1), Some(2));
    // Three threads, and two tasks at a time on each of the units.
    assert_eq!(divided(Split::HostOnly, 1000), (vec![host, host, host], None));
    let half = Split::Static { elsewhere_percent: 50 };
    assert_eq!(divided(half, 1000), (vec![host, host, host, one, one, two, two], None));
    let all = Split::Static { elsewhere_percent: 100 };
    assert_eq!(divided(all, 1000), (vec![one, one, two, two], None));
    let third = vec![host, host, one, one, two, two];
    assert_eq!(divided(Split::ByTime, 1000), (third.clone(), None));
    assert_eq!(divided(Split::ByResources, 1000), (third.clone(), None));
    assert_eq!(divided(Split::Automatic, 1000), (third, Some(crate::split::Arm::ByTime)));
    // Too small for two parts: seven tasks can run, and this is not cut smaller than for them.
    let (parts, arm) = divided(Split::Automatic, 1 << 30);
    assert_eq!((parts, arm), (vec![None; 7], None));
    let (parts, _) = divided(all, 1 << 30);
    assert!(parts == [one] || parts == [two], "{parts:?}");
}

/// Answers of the reference unit and of two others, and what a task wishes, as text: `testdata/narrow/*.txt`.
///
/// ```text
/// answers: 5 busy no 3!      seconds, `!` of a unit that is to prove itself
/// meant for: 1
/// checked: yes
/// waited: long
/// ----
/// unit 1                     the one that gets it
/// ```
#[test]
fn the_offers_that_count_are_those_of_the_golden_files() {
    let answer = |word: &str| match word {
        "no" => Answer::No,
        "busy" => Answer::Busy,
        proves if proves.ends_with('!') => {
            Answer::ProvesItselfIn(Duration::from_secs(proves.trim_end_matches('!').parse().unwrap()))
        }
        seconds => Answer::DoneIn(Duration::from_secs(seconds.parse().unwrap())),
    };
    golden("narrow", |question| {
        let (mut answers, mut wishes) = (Vec::new(), Wishes::default());
        for line in question.lines() {
            match line.split_once(':').map(|(name, value)| (name, value.trim())).unwrap() {
                ("case", _) => {}
                ("answers", value) => answers = value.split_whitespace().map(answer).collect(),
                ("meant for", value) => wishes.meant_for = Some(value.parse().unwrap()),
                ("checked", value) => wishes.to_check = value == "yes",
                ("waited", value) => wishes.is_impatient = value == "long",
                (other, _) => panic!("{other}"),
            }
        }
        let Narrowed { offers, is_checked } = narrow(&answers, wishes);
        let checked = if is_checked { ", and the reference unit does the same" } else { "" };
        choose(&offers).map_or("it waits\n".to_owned(), |unit| format!("unit {unit}{checked}\n"))
    });
}
