//! The driver for NVMe drives in user space, over controllers in software that are sound, odd, or broken.

use situ_base::Clock;
use situ_device::{
    Buffer, Completion, Device, NvmeController, NvmeDrive, Op, PAGE_BYTES, Queue, QueueStatistics, Ticket,
};
use situ_sim::{
    FaultPlan, NotReady, NvmeCommand, NvmeConfig, NvmeFault, NvmeModel, NvmePlan, NvmeRule, Rng, SimDevice,
    SimExecutor, for_each_seed,
};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PAGE: u64 = PAGE_BYTES as u64;
const PAGES: u64 = 512;
const LONG: Duration = Duration::from_secs(3600);

/// Operations in flight, with the pages that they touch, and the byte of each.
type Flights = BTreeMap<Ticket, (Op, Vec<(u64, u8)>)>;

/// A drive in a simulated machine.
struct Machine {
    sim: SimExecutor,
    medium: SimDevice,
    model: NvmeModel,
}

impl Machine {
    fn new(seed: u64, config: NvmeConfig) -> Machine {
        let sim = SimExecutor::new(seed);
        let medium = SimDevice::new(&sim.env(), PAGES * PAGE, FaultPlan::none(), seed);
        let devices: Vec<Arc<dyn Device>> = vec![Arc::new(medium.clone())];
        let model = NvmeModel::new(&sim.env(), config, devices, NvmePlan::none(), seed);
        Machine { sim, medium, model }
    }

    fn open(&self) -> io::Result<NvmeDrive> {
        NvmeDrive::open(NvmeController::start(Arc::new(self.model.clone()))?, 1)
    }

    /// Opens the drive, then makes it behave as planned.
    fn open_then(&self, plan: NvmePlan) -> NvmeDrive {
        let drive = self.open().unwrap();
        self.model.set_plan(plan);
        drive
    }

    /// Checks that the driver kept to the specification, and that the drive stayed within its memory.
    fn check(&self) {
        assert_eq!(self.model.violations(), Vec::<String>::new());
        assert_eq!(self.model.faults(), vec![]);
    }
}

fn filled(pages: u64, with: u8) -> Buffer {
    let mut buffer = Buffer::new((pages * PAGE) as usize);
    buffer.fill(with);
    buffer
}

/// Runs one operation.
fn run(queue: &mut dyn Queue, op: Op, buffer: Buffer) -> io::Result<Buffer> {
    let ticket = queue.submit(op, buffer).map_err(|(_, error)| error)?;
    let mut done = Vec::new();
    assert_eq!(queue.wait(&mut done, LONG), 1, "{op:?}");
    let Completion { ticket: done, buffer, result, .. } = done.remove(0);
    assert_eq!(done, ticket);
    result.map(|()| buffer)
}

fn write(queue: &mut dyn Queue, page: u64, with: u8) -> io::Result<()> {
    run(queue, Op::Write { offset: page * PAGE, durable: true }, filled(1, with)).map(drop)
}

fn read(queue: &mut dyn Queue, page: u64) -> io::Result<u8> {
    let buffer = run(queue, Op::Read { offset: page * PAGE }, filled(1, 0xee))?;
    assert!(buffer.iter().all(|byte| *byte == buffer[0]), "page {page} is of two minds");
    Ok(buffer[0])
}

fn total(drive: &NvmeDrive) -> QueueStatistics {
    drive.statistics()[0]
}

/// Makes drives of all makes that a driver meets.
fn config(rng: &mut Rng) -> NvmeConfig {
    let mut draw = |of: &[u64]| of[rng.index(of.len())];
    NvmeConfig {
        entries_max: draw(&[2, 3, 8, 64, 1024]) as u32,
        doorbell_stride: draw(&[0, 0, 1, 3]) as u8,
        transfer_shift: draw(&[0, 1, 2, 5, 7]) as u8,
        queues_max: draw(&[4, 16]) as u16,
        vectors: draw(&[1, 2, 17]) as u16,
        has_shadow_doorbells: draw(&[0, 1]) == 1,
        has_lists: draw(&[0, 1]) == 1,
        has_write_zeroes: draw(&[0, 1]) == 1,
        // With few addresses, there is no arena, and each buffer is mapped for its command.
        addresses: 0x1_0000..draw(&[1 << 32, 1 << 40]),
        ..NvmeConfig::default()
    }
}

/// Threads write, read, zero and flush pages of their own, many at a time. Each page has one writer, so each read has
/// one right answer.
fn churn(drive: &NvmeDrive, rng: &mut Rng, pages: std::ops::Range<u64>, rounds: usize) {
    let mut queue = drive.queue(1 + rng.below(8) as u32).unwrap();
    let most = u64::from(drive.geometry().max_transfer_bytes) / PAGE;
    // The byte of each page; pages in flight have no entry.
    let mut known: BTreeMap<u64, u8> = pages.clone().map(|page| (page, 0)).collect();
    let mut flights: Flights = BTreeMap::new();
    let mut done = Vec::new();
    for _ in 0..rounds {
        let first = pages.start + rng.below(pages.end - pages.start);
        let count = (1 + rng.below(most.min(70))).min(pages.end - first);
        let value = rng.below(256) as u8;
        let run = first..first + count;
        let is_free = run.clone().all(|page| known.contains_key(&page));
        let (offset, bytes) = (first * PAGE, count * PAGE);
        let (op, after) = match rng.below(6) {
            _ if !is_free => (Op::Flush, None),
            0 | 1 => (Op::Read { offset }, Some(None)),
            2 | 3 => (Op::Write { offset, durable: rng.below(2) == 0 }, Some(Some(value))),
            4 => (Op::Zero { offset, bytes }, Some(Some(0))),
            _ => (Op::Flush, None),
        };
        let buffer = match op {
            Op::Read { .. } | Op::Write { .. } => filled(count, value),
            _ => Buffer::new(1),
        };
        if let Ok(ticket) = queue.submit(op, buffer) {
            let touched = match after {
                None => Vec::new(),
                Some(value) => run.map(|page| (page, value.unwrap_or(known[&page]))).collect(),
            };
            for (page, _) in &touched {
                known.remove(page);
            }
            assert!(flights.insert(ticket, (op, touched)).is_none());
        } else {
            assert!(queue.wait(&mut done, LONG) > 0);
        }
        if rng.below(3) == 0 {
            queue.poll(&mut done);
        }
        land(&mut done, &mut flights, &mut known);
    }
    while !flights.is_empty() {
        assert!(queue.wait(&mut done, LONG) > 0);
        land(&mut done, &mut flights, &mut known);
    }
    for (page, value) in known {
        assert_eq!(read(&mut *queue, page).unwrap(), value, "page {page}");
    }
}

fn land(done: &mut Vec<Completion>, flights: &mut Flights, known: &mut BTreeMap<u64, u8>) {
    for Completion { ticket, op, buffer, result } in done.drain(..) {
        result.unwrap();
        let (submitted, touched) = flights.remove(&ticket).expect("an operation is answered once");
        assert_eq!(op, submitted);
        for (index, (page, value)) in touched.into_iter().enumerate() {
            if matches!(op, Op::Read { .. }) {
                let at = index * PAGE_BYTES;
                assert!(buffer[at..at + PAGE_BYTES].iter().all(|byte| *byte == value), "page {page}");
            }
            known.insert(page, value);
        }
    }
}

/// Runs threads that churn, each on pages of its own, with a drive that behaves as planned.
fn churn_in_threads(seed: u64, config: NvmeConfig, plan: NvmePlan, resets: u64) -> Machine {
    let machine = Machine::new(seed, config);
    machine.sim.run(|| {
        let drive = Arc::new(machine.open_then(plan));
        let env = machine.sim.env();
        let handles: Vec<_> = (0..3)
            .map(|thread| {
                let drive = Arc::clone(&drive);
                let share = PAGES / 3;
                let work = move || {
                    let mut rng = Rng::new(seed * 10 + thread);
                    churn(&drive, &mut rng, thread * share..(thread + 1) * share, 60);
                };
                env.executor.spawn("churn", Box::new(work)).unwrap()
            })
            .collect();
        for _ in 0..resets {
            machine.sim.clock().sleep(Duration::from_micros(200));
            machine.model.fail();
        }
        handles.iter().for_each(|handle| handle.join().unwrap());
    });
    machine
}

#[test]
fn what_was_written_is_read_from_drives_of_all_makes() {
    for_each_seed(0, 16, |seed| {
        let config = config(&mut Rng::new(seed));
        eprintln!("seed {seed}: {config:?}");
        let machine = churn_in_threads(seed, config, NvmePlan::none(), 0);
        machine.check();
        assert_eq!(machine.model.counts().of(NvmeCommand::Abort), 0);
    });
}

/// Answers that fail and may be asked for again, come late, come twice, or belong to no command.
#[test]
fn a_drive_that_stumbles_answers_each_request_once() {
    for_each_seed(0, 6, |seed| {
        let mut rng = Rng::new(1000 + seed);
        let faults = [
            NvmeFault::Status(0x282),
            NvmeFault::Twice,
            NvmeFault::UnknownCommand,
            NvmeFault::Late(Duration::from_secs(3)),
            NvmeFault::Late(Duration::from_secs(32)),
            NvmeFault::Held(Duration::from_secs(33)),
            NvmeFault::NoAnswer,
        ];
        let plan =
            faults.into_iter().fold(NvmePlan::none(), |plan, fault| plan.with(NvmeRule::new(fault).chance(0.01)));
        let config = config(&mut rng);
        eprintln!("seed {seed}: {config:?}");
        let machine = churn_in_threads(seed, config, plan, 0);
        machine.check();
    });
}

#[test]
fn a_controller_that_fails_is_reset_and_no_request_is_lost() {
    for_each_seed(0, 16, |seed| {
        let mut rng = Rng::new(2000 + seed);
        let machine = churn_in_threads(seed, config(&mut rng), NvmePlan::none(), 1 + seed % 2);
        machine.check();
    });
}

/// One fault for the first write, and what the driver made of it.
fn after_fault(fault: NvmeFault) -> (io::Result<()>, QueueStatistics, Machine) {
    after(NvmePlan::none().with(NvmeRule::new(fault).on(&[NvmeCommand::Write]).nth(0)))
}

fn after(plan: NvmePlan) -> (io::Result<()>, QueueStatistics, Machine) {
    let machine = Machine::new(7, NvmeConfig::default());
    let (result, statistics) = machine.sim.run(|| {
        let drive = machine.open_then(plan);
        let mut queue = drive.queue(4).unwrap();
        let result = write(&mut *queue, 3, 9);
        if result.is_ok() {
            assert_eq!(read(&mut *queue, 3).unwrap(), 9);
        }
        (result, total(&drive))
    });
    (result, statistics, machine)
}

#[test]
fn a_failed_write_is_tried_again_unless_the_drive_says_that_it_is_useless() {
    let (result, statistics, _) = after_fault(NvmeFault::Status(0x006));
    assert!(result.is_ok() && statistics.retries == 1);
    let (result, statistics, _) = after_fault(NvmeFault::Status(0x280 | 1 << 14));
    assert!(result.unwrap_err().to_string().contains("0x280") && statistics.retries == 0);
    let always = NvmePlan::none().with(NvmeRule::new(NvmeFault::Status(0x006)).on(&[NvmeCommand::Write]));
    let (result, statistics, machine) = after(always);
    assert!(result.unwrap_err().to_string().contains("0x006") && statistics.retries == 3);
    assert_eq!(machine.model.counts().of(NvmeCommand::Write), 4);
}

#[test]
fn a_command_without_an_answer_is_aborted_and_then_the_controller_is_reset() {
    let (result, statistics, machine) = after_fault(NvmeFault::NoAnswer);
    result.unwrap();
    assert!(statistics.timeouts == 1 && statistics.resets <= 1, "{statistics:?}");
    assert_eq!(machine.model.counts().of(NvmeCommand::Abort), 1);
    let plan = NvmePlan::none()
        .with(NvmeRule::new(NvmeFault::NoAnswer).on(&[NvmeCommand::Write]).nth(0))
        .with(NvmeRule::new(NvmeFault::AbortIgnored).on(&[NvmeCommand::Abort]));
    let (result, statistics, machine) = after(plan);
    result.unwrap();
    assert_eq!((statistics.timeouts, statistics.resets), (1, 1));
    machine.check();
}

#[test]
fn a_drive_that_never_answers_writes_is_not_asked_for_ever() {
    let (result, statistics, _) = after(NvmePlan::none().with(NvmeRule::new(NvmeFault::NoAnswer)));
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(statistics.resets <= 3, "{statistics:?}");
}

#[test]
fn a_controller_that_cannot_be_reset_fails_all_requests_and_reaches_no_memory() {
    for plan in
        [NvmePlan::none().not_ready(NotReady::Forever), NvmePlan::none().reset_fails().not_ready(NotReady::UntilReset)]
    {
        let machine = Machine::new(3, NvmeConfig::default());
        machine.sim.run(|| {
            let drive = machine.open().unwrap();
            let mut queue = drive.queue(8).unwrap();
            let tickets: Vec<_> =
                (0..5).map(|page| queue.submit(Op::Read { offset: page * PAGE }, Buffer::new(1)).unwrap()).collect();
            machine.model.set_plan(plan.clone());
            machine.model.fail();
            let mut done = Vec::new();
            while done.len() < tickets.len() {
                assert!(queue.wait(&mut done, LONG) > 0);
            }
            assert!(done.iter().all(|done| done.result.is_err()));
            assert_eq!(machine.model.counts().mapped_bytes, 0);
            let (_, error) = queue.submit(Op::Flush, Buffer::new(1)).unwrap_err();
            assert!(error.to_string().contains("0000:01:00.0"), "{error}");
            assert!(drive.queue(1).is_err());
        });
    }
}

#[test]
fn a_controller_that_becomes_ready_after_a_reset_of_its_function_goes_on() {
    let machine = Machine::new(3, NvmeConfig::default());
    machine.sim.run(|| {
        let drive = machine.open_then(NvmePlan::none().not_ready(NotReady::UntilReset));
        let mut queue = drive.queue(8).unwrap();
        write(&mut *queue, 1, 5).unwrap();
        machine.model.fail();
        assert_eq!(read(&mut *queue, 1).unwrap(), 5);
    });
    machine.check();
}

#[test]
fn a_drive_that_is_pulled_out_answers_every_request() {
    for_each_seed(0, 8, |seed| {
        let machine = Machine::new(seed, NvmeConfig::default());
        machine.sim.run(|| {
            let drive = machine.open().unwrap();
            let mut queues: Vec<_> = (0..3).map(|_| drive.queue(4).unwrap()).collect();
            for queue in &mut queues {
                for page in 0..4 {
                    queue.submit(Op::Write { offset: page * PAGE, durable: true }, filled(1, 1)).unwrap();
                }
            }
            machine.model.remove();
            for mut queue in queues {
                let mut done = Vec::new();
                while done.len() < 4 {
                    assert!(queue.wait(&mut done, LONG) > 0);
                }
                let why = queue.submit(Op::Flush, Buffer::new(1)).unwrap_err().1;
                assert_eq!(why.kind(), ErrorKind::NotConnected, "{why}");
            }
            assert_eq!(machine.model.counts().mapped_bytes, 0);
        });
    });
}

/// The queue is dropped with commands that are never answered: their buffers are freed, and the drive does not write
/// there afterwards.
#[test]
fn a_dropped_queue_frees_no_memory_that_the_drive_may_write() {
    for fault in
        [NvmeFault::NoAnswer, NvmeFault::Held(Duration::from_secs(60)), NvmeFault::Late(Duration::from_secs(60))]
    {
        let machine = Machine::new(11, NvmeConfig { addresses: 0x1_0000..1 << 32, ..NvmeConfig::default() });
        machine.sim.run(|| {
            let drive = machine.open_then(NvmePlan::none().with(NvmeRule::new(fault)));
            let before = machine.model.counts().mapped_bytes;
            let mut queue = drive.queue(8).unwrap();
            for page in 0..8 {
                queue.submit(Op::Read { offset: page * PAGE }, Buffer::new(1)).unwrap();
            }
            drop(queue);
            assert_eq!(machine.model.counts().mapped_bytes, before, "{fault:?}");
            machine.sim.clock().sleep(Duration::from_secs(100));
        });
        machine.check();
    }
}

#[test]
fn one_writer_locks_a_namespace_and_two_namespaces_are_two_devices() {
    let sim = SimExecutor::new(5);
    let media: Vec<SimDevice> =
        (0..2).map(|index| SimDevice::new(&sim.env(), (index + 1) * 64 * PAGE, FaultPlan::none(), index)).collect();
    let devices: Vec<Arc<dyn Device>> = media.iter().map(|medium| Arc::new(medium.clone()) as _).collect();
    let model = NvmeModel::new(&sim.env(), NvmeConfig::default(), devices, NvmePlan::none(), 5);
    sim.run(|| {
        let controller = NvmeController::start(Arc::new(model.clone())).unwrap();
        assert_eq!(controller.namespaces().unwrap(), [1, 2]);
        assert_eq!(controller.model().0, "Situ simulated drive");
        let drives: Vec<NvmeDrive> =
            [1, 2].map(|id| NvmeDrive::open(Arc::clone(&controller), id).unwrap()).into_iter().collect();
        let error = NvmeDrive::open(Arc::clone(&controller), 3).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(drives[1].space().logical_total, 128 * PAGE);
        assert_eq!(drives[1].describe(), "pci:0000:01:00.0/2 (NVMe namespace, driven in user space)");
        let held = drives[0].lock().unwrap();
        assert_eq!(drives[0].lock().unwrap_err().kind(), ErrorKind::WouldBlock);
        drives[1].lock().unwrap();
        drop(held);
        drives[0].lock().unwrap();
        for (index, drive) in drives.iter().enumerate() {
            write(&mut *drive.queue(1).unwrap(), 5, index as u8 + 1).unwrap();
        }
        for (index, medium) in media.iter().enumerate() {
            assert_eq!(medium.contents(5 * PAGE..5 * PAGE + 1), [index as u8 + 1]);
        }
    });
}

#[test]
fn a_drive_with_too_few_queues_says_so_and_takes_them_back() {
    let machine = Machine::new(5, NvmeConfig { queues_max: 2, ..NvmeConfig::default() });
    machine.sim.run(|| {
        let drive = machine.open().unwrap();
        for _ in 0..3 {
            let queues = [drive.queue(1).unwrap(), drive.queue(1).unwrap()];
            let error = drive.queue(1).err().unwrap();
            assert!(error.to_string().contains("all 2 queues"), "{error}");
            drop(queues);
        }
    });
    machine.check();
}

#[test]
fn a_watch_ends_with_an_answer_and_with_a_command_that_has_none() {
    let machine = Machine::new(5, NvmeConfig::default());
    let plan = NvmePlan::none().with(NvmeRule::new(NvmeFault::NoAnswer).on(&[NvmeCommand::Read]).nth(0));
    machine.sim.run(|| {
        let drive = machine.open_then(plan);
        let mut queue = drive.queue(4).unwrap();
        let watch = queue.watch().unwrap().unwrap();
        for op in [Op::Write { offset: 0, durable: true }, Op::Read { offset: 0 }] {
            queue.submit(op, filled(1, 3)).unwrap();
            let mut done = Vec::new();
            while queue.poll(&mut done) == 0 {
                watch.wait(None);
            }
            done.remove(0).result.unwrap();
        }
        let woken = Arc::new(AtomicBool::new(false));
        let (other, flag) = (Arc::clone(&watch), Arc::clone(&woken));
        let wake = move || {
            flag.store(true, Ordering::Release);
            other.wake();
        };
        let handle = machine.sim.env().executor.spawn("waker", Box::new(wake)).unwrap();
        while !woken.load(Ordering::Acquire) {
            watch.wait(None);
        }
        handle.join().unwrap();
    });
}

/// A synced write that is acknowledged survives a power failure, through the driver's flushes and bits.
#[test]
fn durable_writes_survive_a_power_failure() {
    for_each_seed(0, 10, |seed| {
        let machine = Machine::new(seed, config(&mut Rng::new(seed)));
        let acknowledged = Mutex::new(Vec::new());
        machine.sim.run(|| {
            let drive = machine.open().unwrap();
            let mut queue = drive.queue(4).unwrap();
            for page in 0..20 {
                if page % 3 == 0 {
                    run(&mut *queue, Op::Write { offset: page * PAGE, durable: false }, filled(1, 7)).unwrap();
                    run(&mut *queue, Op::Flush, Buffer::new(1)).unwrap();
                } else {
                    write(&mut *queue, page, 7).unwrap();
                }
                acknowledged.lock().unwrap().push(page);
            }
        });
        let after = machine.medium.crash(seed);
        for page in acknowledged.into_inner().unwrap() {
            assert_eq!(after.contents(page * PAGE..page * PAGE + 1), [7], "seed {seed}: page {page}");
        }
    });
}

/// A late answer is not taken for that of a later command.
#[test]
fn a_given_up_admin_command_resets_the_controller() {
    let machine = Machine::new(9, NvmeConfig::default());
    let plan = NvmePlan::none().with(NvmeRule::new(NvmeFault::NoAnswer).on(&[NvmeCommand::Identify]).nth(0));
    machine.sim.run(|| {
        let drive = machine.open_then(plan);
        let mut queue = drive.queue(2).unwrap();
        assert_eq!(drive.space().logical_used, PAGES * PAGE, "what is not known counts as used");
        write(&mut *queue, 1, 4).unwrap();
        assert_eq!((read(&mut *queue, 1).unwrap(), total(&drive).resets), (4, 1));
        assert_eq!(drive.space().logical_total, PAGES * PAGE);
    });
    machine.check();
}

/// A process dies with operations in flight that take longer than it lives: its threads end.
#[test]
fn a_process_that_dies_waits_for_no_drive() {
    for_each_seed(0, 4, |seed| {
        // Destructors cannot let time pass then.
        let machine = Machine::new(seed, NvmeConfig { ready_after: Duration::ZERO, ..NvmeConfig::default() });
        machine.sim.run(|| {
            let drive = Arc::new(machine.open().unwrap());
            machine.medium.set_faults(FaultPlan::none().latency(Duration::from_secs(1)..Duration::from_secs(2)));
            let hold = move || {
                let mut queue = drive.queue(4).unwrap();
                (0..4).for_each(|page| {
                    queue.submit(Op::Read { offset: page * PAGE }, Buffer::new(1)).unwrap();
                });
                queue.wait(&mut Vec::new(), LONG);
            };
            machine.sim.env().executor.spawn("holder", Box::new(hold)).unwrap();
            machine.sim.clock().sleep(Duration::from_millis(5));
            machine.sim.kill();
        });
    });
}
