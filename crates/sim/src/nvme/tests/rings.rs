//! Rings, doorbells, interrupts and threads.

use super::host::Ring;
use super::*;
use crate::{NvmeModel, Rng, TimedDevice, for_each_seed};
use situ_base::{Clock, Env};
use situ_device::Watch;

#[test]
fn queues_of_two_entries_go_round() {
    let config = NvmeConfig { entries_max: 2, doorbell_stride: 3, ..NvmeConfig::default() };
    in_world(1, config, NvmePlan::none(), FaultPlan::none(), |host, device| {
        host.start();
        let mut ring = host.pair(3, 2, 0);
        let memory = host.memory(4096);
        for round in 0..9 {
            host.put(memory, &[round; 4096]);
            assert_eq!(host.status(&mut ring, write(memory, u64::from(round), 1)), 0);
            assert_eq!(device.contents(u64::from(round) * PAGE..(u64::from(round) + 1) * PAGE), [round; 4096]);
        }
        assert_eq!((ring.head, ring.phase), (1, true), "the phase changes with each round");
        assert_eq!(host.model.violations(), [""; 0]);
    });
}

#[test]
fn completions_wait_for_room_and_say_how_far_commands_were_taken() {
    let config = NvmeConfig::default();
    ready_as(1, config, NvmePlan::none(), FaultPlan::none(), |host, ring, _| {
        // Two submission queues with one small completion queue.
        let (first, second, completion) = (host.memory(4096), host.memory(4096), host.memory(4096));
        let size = |number: u32, entries: u32| number | (entries - 1) << 16;
        assert_eq!(host.admin(command(5).pages(completion, 0).word(10, size(2, 4)).word(11, 1)).0, 0);
        let mut rings = [(2, first), (3, second)].map(|(number, submission)| {
            let create = command(1).pages(submission, 0).word(10, size(number, 16)).word(11, 1 | 2 << 16);
            assert_eq!(host.admin(create).0, 0);
            let mut ring = host.pair(number as u16 + 4, 16, 1);
            (ring.number, ring.submission) = (number as u16, submission);
            ring
        });
        for ring in &mut rings {
            for _ in 0..4 {
                host.enqueue(ring, flush());
            }
            host.ring(ring);
        }
        for _ in 0..20 {
            host.model.settle();
        }
        // Three places, since one stays free. The host takes one by one.
        assert_eq!([2, 3].map(|place| host.load(completion + 16 * place + 12) >> 16 & 1), [1, 0]);
        let (mut head, mut seen) = (0, Vec::new());
        while seen.len() < 8 {
            let at = completion + 16 * (head % 4);
            let phase = host.load(at + 12) >> 16 & 1;
            assert_eq!(phase, 1 - (head as u32 / 4) % 2, "completion {head}");
            seen.push((host.load(at + 8) >> 16, host.load(at + 8) & 0xffff));
            head += 1;
            host.doorbell(2, true, (head % 4) as u32);
        }
        assert_eq!(seen.iter().filter(|(queue, head)| *queue == 2 && *head == 4).count(), 4);
        // A head that the host cannot have.
        host.doorbell(2, true, 2);
        assert_eq!(host.model.violations().len(), 1);
        assert_eq!(host.status(ring, flush()), 0);
    });
}

#[test]
fn a_number_in_flight_is_not_taken_twice() {
    let faults = FaultPlan::none().latency(MS..2 * MS);
    ready(NvmePlan::none(), faults, |host, ring, _| {
        host.enqueue_as(ring, 7, flush());
        host.enqueue_as(ring, 7, flush());
        host.ring(ring);
        let answers = [0, 1].map(|_| host.within(ring, 5 * MS).unwrap().status);
        assert_eq!(answers, [FINAL | 0x03, 0]);
        assert_eq!(host.model.violations().len(), 1);
    });
}

#[test]
fn what_the_host_does_is_counted() {
    sound(|host, ring, _| {
        let before = host.model.counts();
        let memory = host.memory(4096);
        host.enqueue(ring, write(memory, 0, 1));
        host.submit(ring, read(memory, 0, 1));
        host.submit(ring, flush());
        (0..3).for_each(|_| assert!(host.within(ring, MS).is_some()));
        let after = host.model.counts();
        let counts = [NvmeCommand::Read, NvmeCommand::Write, NvmeCommand::Flush].map(|command| after.of(command));
        assert_eq!((counts, after.of(NvmeCommand::Compare)), ([1, 1, 1], 0));
        assert_eq!(after.completions - before.completions, 3);
        assert_eq!(after.doorbells - before.doorbells, 2 + 3);
        assert_eq!(after.dma_read_bytes - before.dma_read_bytes, 3 * 64 + 4096);
        assert_eq!(after.dma_written_bytes - before.dma_written_bytes, 3 * 16 + 4096);
        assert!(after.interrupts > before.interrupts && after.interrupts - before.interrupts <= 3);
        assert_eq!(after.mapped_bytes - before.mapped_bytes, 4096);
        host.model.read(8);
        assert_eq!(host.model.counts().register_reads, after.register_reads + 1);
    });
}

/// Gives the controller doorbells in memory.
fn share_doorbells(host: &mut Host, ring: &mut Ring) {
    let (doorbells, wanted) = (host.memory(4096), host.memory(4096));
    let at = u64::from(2 * ring.number) * (4 << host.config.doorbell_stride);
    host.store(doorbells + at, ring.tail);
    host.store(doorbells + at + (4 << host.config.doorbell_stride), ring.head);
    assert_eq!(host.admin(command(0x7c).pages(doorbells + 8, wanted)).0, FINAL | 0x02);
    assert_eq!(host.admin(command(0x7c).pages(doorbells, wanted)), (0, 0));
    ring.shadows = Some((doorbells, wanted));
}

#[test]
fn doorbells_in_memory_are_looked_at_while_there_is_work() {
    for stride in [0, 1] {
        let config = NvmeConfig { doorbell_stride: stride, ..NvmeConfig::default() };
        let faults = FaultPlan::none().latency(MS..2 * MS);
        ready_as(3, config, NvmePlan::none(), faults, |host, ring, _| {
            assert_eq!(host.status(ring, flush()), 0);
            share_doorbells(host, ring);
            let before = host.model.counts().doorbells;
            for _ in 0..10 {
                for _ in 0..3 {
                    host.submit(ring, flush());
                }
                (0..3).for_each(|_| assert_eq!(host.within(ring, 5 * MS).unwrap().status, 0));
            }
            let rung = host.model.counts().doorbells - before;
            assert!((1..=20).contains(&rung), "{rung} doorbells for 30 commands");
            assert_eq!(host.model.violations(), [""; 0]);
        });
    }
}

#[test]
fn a_wait_sees_commands_that_no_doorbell_told_of() {
    let faults = FaultPlan::none().latency(MS..2 * MS);
    ready(NvmePlan::none(), faults, |host, ring, _| {
        share_doorbells(host, ring);
        let watch = host.model.watch(1).unwrap();
        host.submit(ring, flush());
        let rung = host.model.counts().doorbells;
        host.submit(ring, flush());
        assert_eq!(host.model.counts().doorbells, rung);
        // Nothing but the wait gives the controller time to work.
        let mut answers = 0;
        while answers < 2 {
            assert!(host.env().clock.now() < 100 * MS);
            watch.wait(Some(MS));
            answers += u32::from(host.peek(ring).is_some()) + u32::from(host.peek(ring).is_some());
        }
    });
}

#[test]
fn a_wait_learns_of_the_work_of_another_thread() {
    // The other thread may begin the second of two steps, and then never look again.
    let two_steps = command(8).namespace(1).blocks(0, 1).word(12, 1 << 30);
    let time = Duration::from_micros(20);
    for_each_seed(700, 60, |seed| {
        let faults = FaultPlan::none().latency(time..time);
        ready_as(seed, NvmeConfig::default(), NvmePlan::none(), faults, |host, ring, device| {
            let (env, model, device) = (host.env(), host.model.clone(), device.clone());
            let watch = model.watch(1).unwrap();
            host.submit(ring, two_steps);
            let other = move || {
                while device.operations() < 2 {
                    model.settle();
                }
            };
            let other = env.executor.spawn("other", Box::new(other)).unwrap();
            watched(host, ring, &*watch);
            other.join().unwrap();
        });
    });
}

/// Waits for an answer by the watch alone. Returns the number of waits.
fn watched(host: &Host, ring: &mut Ring, watch: &dyn Watch) -> u32 {
    for waits in 0.. {
        if let Some(entry) = host.next(ring) {
            assert_eq!(entry.status, 0);
            return waits;
        }
        watch.wait(None);
    }
    unreachable!()
}

#[test]
fn a_wait_lasts_as_long_as_the_device_or_the_fault_takes() {
    let (fast, slow) = (Duration::from_micros(100), 20 * MS);
    for (fault, shortest) in [(None, fast), (Some(NvmeFault::Late(slow)), slow), (Some(NvmeFault::Held(slow)), slow)] {
        let plan = fault.map_or(NvmePlan::none(), |fault| NvmePlan::none().with(NvmeRule::new(fault)));
        ready(plan, FaultPlan::none().latency(fast..2 * fast), |host, ring, _| {
            let watch = host.model.watch(1).unwrap();
            for _ in 0..5 {
                let before = host.env().clock.now();
                host.submit(ring, flush());
                let waits = watched(host, ring, &*watch);
                let passed = host.env().clock.now() - before;
                assert!(passed >= shortest && passed < shortest + 3 * fast, "{fault:?}: {passed:?}");
                assert!(waits <= 6, "{fault:?}: {waits} waits");
            }
            let before = host.env().clock.now();
            watch.wait(Some(MS));
            watch.wait(Some(MS));
            assert!(host.env().clock.now() - before >= MS, "with nothing in flight");
        });
    }
}

#[test]
fn masked_interrupts_come_when_they_are_unmasked() {
    sound(|host, ring, _| {
        host.model.write(0x0c, 2);
        assert_eq!(host.model.read(0x0c), 2);
        assert_eq!(host.status(ring, flush()), 0);
        let before = host.model.counts().interrupts;
        assert_eq!(host.status(ring, flush()), 0);
        assert_eq!(host.model.counts().interrupts, before);
        host.model.write(0x10, 2);
        assert_eq!(host.model.counts().interrupts, before + 1);
    });
}

/// Runs threads that each have a pair of queues and a range of the device, and that wait by the watch; some of them
/// look for others, too. Returns the time when all were done.
fn threads(env: &Env, model: &NvmeModel, config: &NvmeConfig, count: u16, rounds: u64, seed: u64) -> Duration {
    let mut main = Host::new(model, config, 1 << 20);
    main.start();
    let rings: Vec<Ring> = (1..=count).map(|number| main.pair(number, 8, number)).collect();
    let (namespaces, blocks) = (model.shared.namespaces.len() as u64, PAGE / model.shared.namespaces[0].block());
    let jobs = rings.into_iter().map(|mut ring| {
        let (env, model, config) = (env.clone(), model.clone(), config.clone());
        // The rings' memory is the first host's; a second one reaches it by its mappings.
        let mut host = Host::new(&model, &config, (u64::from(ring.number) + 1) << 28);
        let (rings, number) = (main.lend(&ring), u64::from(ring.number));
        host.borrow(rings);
        let job = move || {
            let watch = model.watch(ring.number).unwrap();
            let memory = host.memory(4096);
            let mut rng = Rng::new(seed ^ number);
            for round in 0..rounds {
                let (page, byte) = (8 * number + rng.below(8), (round % 251) as u8 + 1);
                let namespace = 1 + (rng.below(namespaces)) as u32;
                host.put(memory, &[byte; 4096]);
                host.submit(&mut ring, write(memory, page * blocks, blocks as u32).namespace(namespace));
                watched(&host, &mut ring, &*watch);
                host.put(memory, &[0; 4096]);
                host.submit(&mut ring, read(memory, page * blocks, blocks as u32).namespace(namespace));
                if rng.chance(0.3) {
                    model.settle();
                }
                watched(&host, &mut ring, &*watch);
                assert!(host.get(memory, 4096) == [byte; 4096]);
            }
            host.leave();
        };
        env.executor.spawn("user", Box::new(job)).unwrap()
    });
    let jobs: Vec<_> = jobs.collect();
    jobs.into_iter().for_each(|job| job.join().unwrap());
    assert_eq!((model.violations(), model.faults()), (Vec::new(), Vec::new()));
    env.clock.now()
}

#[test]
fn threads_with_queues_of_their_own_do_not_disturb_each_other() {
    let config = NvmeConfig::default();
    let run = |seed: u64| {
        let sim = SimExecutor::new(seed);
        let latency = Duration::ZERO..Duration::from_micros(30);
        let device = |seed| SimDevice::new(&sim.env(), PAGES * PAGE, FaultPlan::none().latency(latency.clone()), seed);
        let devices: Vec<Arc<dyn Device>> = vec![Arc::new(device(seed)), Arc::new(device(seed + 1))];
        let model = NvmeModel::new(&sim.env(), config.clone(), devices, NvmePlan::none(), seed);
        sim.run(|| (threads(&sim.env(), &model, &config, 3, 10, seed), model.counts(), sim.trace().hash()))
    };
    for_each_seed(500, 20, |seed| drop(run(seed)));
    assert!(run(7) == run(7), "a seed replays");
}

#[test]
fn threads_of_the_machine_use_it_as_well() {
    let (env, config) = (Env::system(), NvmeConfig { ready_after: Duration::ZERO, ..NvmeConfig::default() });
    let device = TimedDevice::new(&env, PAGES * PAGE, Duration::from_micros(10), 2);
    let model = NvmeModel::new(&env, config.clone(), vec![Arc::new(device)], NvmePlan::none(), 1);
    threads(&env, &model, &config, 2, 200, 1);
}

#[test]
fn a_thread_that_dies_at_a_doorbell_leaves_a_controller_that_works() {
    for_each_seed(900, 20, |seed| {
        let sim = SimExecutor::new(seed);
        let config = NvmeConfig::default();
        let device = SimDevice::new(&sim.env(), PAGES * PAGE, FaultPlan::none(), seed);
        let model = NvmeModel::new(&sim.env(), config.clone(), vec![Arc::new(device)], NvmePlan::none(), seed);
        sim.run(|| {
            let mut host = Host::new(&model, &config, 1 << 20);
            host.start();
            let mut ring = host.pair(1, 8, 1);
            let other = model.clone();
            let id = host.enqueue(&mut ring, flush());
            let tail = ring.tail;
            let job = move || other.write(0x1000 + 2 * 4, tail);
            let _job = sim.env().executor.spawn("user", Box::new(job)).unwrap();
            (0..seed % 6).for_each(|_| sim.env().executor.yield_point());
            sim.kill();
            // The command was answered, or was lost with the thread, or never came.
            host.ring(&ring);
            assert_eq!(host.within(&mut ring, MS).map(|entry| entry.id), Some(id));
            assert_eq!(host.status(&mut ring, flush()), 0);
        });
    });
}

#[test]
fn a_timed_device_serves_as_many_as_it_has_channels() {
    let service = Duration::from_micros(10);
    let passed = |channels: usize, count: u64| {
        let sim = SimExecutor::new(1);
        let device = TimedDevice::new(&sim.env(), PAGES * PAGE, service, channels);
        sim.run(|| {
            let mut queue = device.queue(64).unwrap();
            let watch = queue.watch().unwrap().unwrap();
            let (mut done, before) = (Vec::new(), sim.clock().now());
            for page in 0..count {
                let mut buffer = situ_device::Buffer::new(4096);
                buffer.fill(page as u8);
                queue.submit(situ_device::Op::Write { offset: page * PAGE, durable: false }, buffer).unwrap();
            }
            while done.len() < count as usize {
                watch.wait(None);
                queue.poll(&mut done);
            }
            sim.clock().now() - before
        })
    };
    for (channels, count, services) in [(1, 1, 1), (1, 4, 4), (4, 4, 1), (4, 10, 3)] {
        let (passed, least) = (passed(channels, count), service * services);
        assert!(passed >= least && passed < least + service / 2, "{channels} {count}: {passed:?}");
    }
}

#[test]
fn a_wait_for_a_timed_device_ends_by_time_or_by_a_wake() {
    let env = Env::system();
    for (service, is_woken) in [(Duration::from_micros(300), false), (Duration::from_secs(600), true)] {
        let device = TimedDevice::new(&env, PAGE, service, 1);
        let mut queue = device.queue(1).unwrap();
        let watch = queue.watch().unwrap().unwrap();
        let (mut done, before) = (Vec::new(), env.clock.now());
        queue.submit(situ_device::Op::Flush, situ_device::Buffer::new(1)).unwrap();
        if is_woken {
            watch.wake();
        }
        watch.wait(None);
        let passed = env.clock.now() - before;
        assert_eq!((queue.poll(&mut done), passed >= service), (usize::from(!is_woken), !is_woken));
        watch.wait(Some(Duration::from_micros(100)));
    }
}
