//! Bad behaviour, resets, aborts and removal.

use super::*;
use crate::Fault;
use std::io;

fn with(fault: NvmeFault) -> NvmePlan {
    NvmePlan::none().with(NvmeRule::new(fault))
}

fn nth(fault: NvmeFault, number: u64) -> NvmePlan {
    NvmePlan::none().with(NvmeRule::new(fault).nth(number))
}

#[test]
fn a_completion_may_never_come_although_the_command_took_effect() {
    ready(nth(NvmeFault::NoAnswer, 1), FaultPlan::none(), |host, ring, device| {
        let memory = host.memory(4096);
        host.put(memory, &[3; 4096]);
        assert_eq!(host.status(ring, write(memory, 0, 1)), 0);
        host.submit(ring, write(memory, 1, 1));
        assert_eq!(host.within(ring, 100 * MS), None);
        assert_eq!(device.contents(PAGE..2 * PAGE), [3; 4096]);
        assert_eq!(host.status(ring, write(memory, 2, 1)), 0, "others come");
    });
}

#[test]
fn late_and_held_commands_differ_in_when_they_take_effect() {
    for (fault, is_early) in [(NvmeFault::Late(50 * MS), true), (NvmeFault::Held(50 * MS), false)] {
        ready(nth(fault, 0), FaultPlan::none(), |host, ring, device| {
            let memory = host.memory(4096);
            host.put(memory, &[3; 4096]);
            let late = host.submit(ring, write(memory, 0, 1));
            assert_eq!(host.status(ring, flush()), 0, "overtakes");
            assert_eq!(host.within(ring, 40 * MS), None);
            assert_eq!(device.contents(0..1)[0] == 3, is_early);
            assert_eq!(host.within(ring, 20 * MS).map(|entry| entry.id), Some(late));
            assert_eq!(device.contents(0..1)[0], 3);
        });
    }
}

#[test]
fn a_completion_may_come_twice_or_for_no_command() {
    ready(nth(NvmeFault::Twice, 0), FaultPlan::none(), |host, ring, _| {
        let id = host.submit(ring, flush());
        let answers = [0, 1, 2].map(|_| host.within(ring, MS).map(|entry| entry.id));
        assert_eq!(answers, [Some(id), Some(id), None]);
    });
    ready(nth(NvmeFault::UnknownCommand, 0), FaultPlan::none(), |host, ring, _| {
        let id = host.submit(ring, flush());
        let answers = [0, 1, 2].map(|_| host.within(ring, MS).map(|entry| entry.id));
        assert_eq!(answers, [Some(u16::MAX - 1), Some(id), None]);
    });
}

#[test]
fn a_lying_controller_moves_data_after_the_completion_or_never() {
    for (fault, moves) in [(NvmeFault::DataLate(10 * MS), true), (NvmeFault::DataNever, false)] {
        ready(with(fault), FaultPlan::none(), |host, ring, device| {
            device.set_contents(0, &[8; 4096]);
            let memory = host.memory(4096);
            assert_eq!(host.status(ring, read(memory, 0, 1)), 0);
            assert_eq!(host.get(memory, 1), [0]);
            assert_eq!(host.within(ring, 20 * MS), None);
            assert_eq!(host.get(memory, 1), [if moves { 8 } else { 0 }]);
            // The host has taken its memory back meanwhile.
            assert_eq!(host.status(ring, read(memory, 0, 1)), 0);
            host.unmap(memory);
            assert_eq!(host.within(ring, 20 * MS), None);
            assert_eq!(host.model.faults().len(), usize::from(moves));
        });
    }
}

#[test]
fn a_status_of_the_plan_is_answered_without_effect() {
    let rule = NvmeRule::new(NvmeFault::Status(FINAL | 0x281)).on(&[NvmeCommand::Read]).from(1);
    ready(NvmePlan::none().with(rule), FaultPlan::none(), |host, ring, device| {
        device.set_contents(0, &[8; 4096]);
        let memory = host.memory(4096);
        assert_eq!([0, 1, 2].map(|_| host.status(ring, read(memory, 0, 1)) & !FINAL), [0, 0x281, 0x281]);
        assert_eq!(host.status(ring, flush()), 0);
        let rule = NvmeRule::new(NvmeFault::Status(0x06)).on(&[NvmeCommand::Identify]).nth(0);
        host.model.set_plan(NvmePlan::none().with(rule));
        let identify = command(6).pages(memory, 0).word(10, 1);
        assert_eq!([host.admin(identify).0, host.admin(identify).0], [0x06, 0]);
    });
}

#[test]
fn a_plan_with_chance_replays() {
    let run = |seed| {
        let rule = NvmeRule::new(NvmeFault::Status(0x06)).chance(0.3);
        let plan = NvmePlan::none().with(rule);
        ready_as(seed, NvmeConfig::default(), plan, FaultPlan::none(), |host, ring, _| {
            (0..40).map(|_| host.status(ring, flush())).collect::<Vec<_>>()
        })
    };
    assert!(run(3) == run(3) && run(3) != run(4));
    assert!((4..20).contains(&run(3).iter().filter(|status| **status != 0).count()));
}

#[test]
fn a_fatal_status_ends_all_work_until_a_reset() {
    ready(nth(NvmeFault::Fatal, 1), FaultPlan::none(), |host, ring, device| {
        let memory = host.memory(4096);
        host.put(memory, &[3; 4096]);
        assert_eq!(host.status(ring, flush()), 0);
        host.submit(ring, write(memory, 0, 1));
        assert_eq!(host.model.read(0x1c) & 2, 2);
        host.submit(ring, write(memory, 1, 1));
        assert_eq!(host.within(ring, 10 * MS), None);
        assert_eq!(device.contents(0..2 * PAGE), [0; 8192]);
        host.switch_off();
        host.start();
        let mut ring = host.pair(1, 8, 1);
        assert_eq!(host.status(&mut ring, write(memory, 0, 1)), 0);
        host.model.fail();
        assert_eq!(host.model.read(0x1c) & 2, 2);
    });
}

#[test]
fn nothing_is_transferred_after_the_controller_was_switched_off() {
    let faults = FaultPlan::none().latency(MS..2 * MS);
    ready(with(NvmeFault::Late(MS)), faults, |host, ring, device| {
        device.set_contents(0, &[8; 4096]);
        let memory = host.memory(4096);
        host.submit(ring, read(memory, 0, 1));
        host.enqueue(ring, read(memory, 0, 1));
        host.model.write(0x14, 0);
        host.ring(ring);
        assert_eq!(host.within(ring, 10 * MS), None);
        assert_eq!(host.get(memory, 1), [0]);
        assert_eq!(host.model.faults(), []);
        assert!(host.is_status_within(10 * MS, |status| status == 0));
        // The same rings again, as new ones.
        host.start();
        let mut ring = host.pair(1, 8, 1);
        host.submit(&mut ring, read(memory, 0, 1));
        assert!(host.within(&mut ring, 10 * MS).is_some());
        assert_eq!((host.get(memory, 1), host.model.violations()), (vec![8], Vec::new()));
    });
}

#[test]
fn a_thread_in_the_middle_of_its_work_transfers_nothing_after_the_end() {
    let mut met = 0;
    crate::for_each_seed(300, 60, |seed| {
        ready_as(seed, NvmeConfig::default(), NvmePlan::none(), FaultPlan::none(), |host, ring, device| {
            device.set_contents(0, &[8; 4 * 4096]);
            let pages: Vec<u64> = (0..4).map(|_| host.memory(4096)).collect();
            for (number, page) in pages.iter().enumerate() {
                host.enqueue(ring, read(*page, number as u64, 1));
            }
            let (env, model, tail) = (host.env(), host.model.clone(), ring.tail);
            let user = env.executor.spawn("user", Box::new(move || model.write(0x1000 + 2 * 4, tail))).unwrap();
            (0..seed % 8).for_each(|_| env.executor.yield_point());
            host.model.write(0x14, 0);
            let memory = |host: &Host| {
                let pages = pages.iter().map(|page| host.get(*page, 1)[0]);
                (pages.collect::<Vec<u8>>(), host.get(ring.completion, 128))
            };
            let after = memory(host);
            user.join().unwrap();
            assert!(memory(host) == after, "{:?}", after.0);
            assert_eq!(host.model.faults(), []);
            met += u32::from(host.model.counts().of(NvmeCommand::Read) > 0 && after.0.contains(&0));
        });
    });
    assert!(met > 0, "no reset came in the middle");
}

#[test]
fn a_write_that_a_reset_meets_may_have_landed_or_not() {
    for (fault, lands) in [(NvmeFault::Late(MS), true), (NvmeFault::Held(MS), false)] {
        ready(with(fault), FaultPlan::none(), |host, ring, device| {
            let memory = host.memory(4096);
            host.put(memory, &[3; 4096]);
            host.submit(ring, write(memory, 0, 1));
            host.switch_off();
            host.env().clock.sleep(10 * MS);
            assert_eq!(device.contents(0..1)[0] == 3, lands);
        });
    }
}

#[test]
fn a_controller_may_stay_unready_until_its_function_is_reset_or_for_good() {
    for (not_ready, helps) in [(NotReady::UntilReset, true), (NotReady::Forever, false)] {
        let plan = NvmePlan::none().not_ready(not_ready);
        in_world(1, NvmeConfig::default(), plan, FaultPlan::none(), |host, _| {
            host.switch_on(16, GOOD);
            assert!(!host.is_status_within(100 * MS, |status| status & 1 != 0));
            host.switch_off();
            host.switch_on(16, GOOD);
            assert!(!host.is_status_within(100 * MS, |status| status & 1 != 0));
            host.model.reset().unwrap();
            assert_eq!((host.model.read(0x1c), host.model.read(0x14), host.model.read(0x24)), (0, 0, 0));
            host.switch_on(16, GOOD);
            assert_eq!(host.is_status_within(100 * MS, |status| status & 1 != 0), helps);
        });
    }
}

#[test]
fn a_reset_of_the_function_loses_commands_and_keeps_mappings() {
    ready(with(NvmeFault::Late(MS)), FaultPlan::none(), |host, ring, _| {
        let memory = host.memory(4096);
        host.submit(ring, read(memory, 0, 1));
        host.model.reset().unwrap();
        assert_eq!(host.within(ring, 10 * MS), None);
        host.model.set_plan(NvmePlan::none());
        host.start();
        let mut ring = host.pair(1, 8, 1);
        assert_eq!(host.status(&mut ring, read(memory, 0, 1)), 0);
        host.model.set_plan(NvmePlan::none().reset_fails());
        assert!(host.model.reset().is_err());
        assert_eq!(host.status(&mut ring, read(memory, 0, 1)), 0);
    });
}

#[test]
fn a_drive_that_is_pulled_out_reads_as_ones_and_reaches_nothing() {
    for by_plan in [false, true] {
        let plan = if by_plan { nth(NvmeFault::Removed, 1) } else { NvmePlan::none() };
        ready(plan, FaultPlan::none().latency(MS..2 * MS), |host, ring, device| {
            device.set_contents(0, &[8; 4096]);
            let memory = host.memory(4096);
            host.submit(ring, read(memory, 0, 1));
            if by_plan {
                host.submit(ring, flush());
            } else {
                host.model.remove();
            }
            assert_eq!([0, 8, 0x14, 0x1c, 0x1000].map(|at| host.model.read(at)), [u32::MAX; 5]);
            assert_eq!((host.within(ring, 10 * MS), host.get(memory, 1)), (None, vec![0]));
            host.model.write(0x14, 0);
            assert!(host.model.reset().is_err());
            host.doorbell(1, false, 3);
            assert_eq!((host.model.faults(), host.model.violations()), (Vec::new(), Vec::new()));
        });
    }
}

fn abort(id: u16) -> Words {
    command(8).word(10, 1 | u32::from(id) << 16)
}

#[test]
fn commands_that_have_not_begun_or_are_lost_are_aborted() {
    for fault in [NvmeFault::Held(50 * MS), NvmeFault::NoAnswer] {
        ready(nth(fault, 0), FaultPlan::none(), |host, ring, _| {
            let memory = host.memory(4096);
            let id = host.submit(ring, read(memory, 0, 1));
            assert_eq!(host.within(ring, MS), None);
            assert_eq!(host.admin(abort(id)), (0, 0));
            let answer = host.within(ring, MS).unwrap();
            assert_eq!((answer.id, answer.status), (id, 0x07));
            assert_eq!(host.within(ring, 100 * MS), None, "once");
            assert_eq!((host.admin(abort(id)), host.admin(abort(9))), ((0, 1), (0, 1)));
            assert_eq!(host.admin(command(8).word(10, 7)).0, FINAL | 0x02);
        });
    }
}

#[test]
fn a_command_under_way_is_aborted_or_not_and_answered_once() {
    let run = |seed| {
        let faults = FaultPlan::none().latency(5 * MS..6 * MS);
        ready_as(seed, NvmeConfig::default(), NvmePlan::none(), faults, |host, ring, device| {
            device.set_contents(0, &[8; 4096]);
            let memory = host.memory(4096);
            let id = host.submit(ring, read(memory, 0, 1));
            let (status, result) = host.admin(abort(id));
            let answer = host.within(ring, 20 * MS).unwrap();
            assert_eq!((status, answer.id, host.within(ring, 20 * MS)), (0, id, None));
            // The memory of an aborted command is the host's again.
            assert_eq!((answer.status == 0x07, host.get(memory, 1)[0] == 8), (result == 0, result == 1));
            result
        })
    };
    let results: Vec<u32> = (0..12).map(run).collect();
    assert!(results.contains(&0) && results.contains(&1), "{results:?}");
}

#[test]
fn an_abort_may_be_ignored() {
    let plan = nth(NvmeFault::Held(50 * MS), 0).with(NvmeRule::new(NvmeFault::AbortIgnored).on(&[NvmeCommand::Abort]));
    ready(plan, FaultPlan::none(), |host, ring, _| {
        let id = host.submit(ring, flush());
        assert_eq!(host.admin(abort(id)), (0, 1));
        assert_eq!(host.within(ring, 60 * MS).map(|entry| (entry.id, entry.status)), Some((id, 0)));
    });
}

#[test]
fn commands_that_end_with_their_queue_are_answered_or_not() {
    let run = |seed| {
        let faults = FaultPlan::none().latency(5 * MS..6 * MS);
        ready_as(seed, NvmeConfig::default(), NvmePlan::none(), faults, |host, ring, _| {
            let memory = host.memory(4096);
            host.submit(ring, read(memory, 0, 1));
            assert_eq!(host.admin(command(0).word(10, 1)), (0, 0));
            let answer = host.peek(ring).map(|entry| entry.status);
            assert!(answer.is_none_or(|status| status == 0x08));
            host.unmap(memory);
            host.env().clock.sleep(10 * MS);
            host.model.settle();
            assert_eq!((host.peek(ring), host.model.faults()), (None, Vec::new()));
            answer.is_some()
        })
    };
    let outcomes: Vec<bool> = (0..12).map(run).collect();
    assert!(outcomes.contains(&true) && outcomes.contains(&false));
}

#[test]
fn the_power_fails_below_the_controller() {
    sound(|host, ring, device| {
        let memory = host.memory(4096);
        host.put(memory, &[3; 4096]);
        assert_eq!(host.status(ring, write(memory, 0, 1).word(12, 1 << 30)), 0);
        device.crash_at(device.changes());
        assert_eq!(host.status(ring, write(memory, 1, 1)), FINAL | 0x280);
        assert_eq!(host.status(ring, flush()), FINAL | 0x06);
        assert!((0..20).all(|seed| device.crash(seed).contents(0..PAGE) == [3; 4096]));
    });
}

#[test]
fn a_device_without_queues_is_an_internal_error() {
    struct NoQueues;

    impl Device for NoQueues {
        fn describe(&self) -> String {
            "a device without queues".to_owned()
        }

        fn lock(&self) -> io::Result<Box<dyn situ_device::DeviceLock>> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn geometry(&self) -> situ_device::Geometry {
            let sim = SimExecutor::new(1);
            SimDevice::new(&sim.env(), 0, FaultPlan::none(), 0).geometry()
        }

        fn space(&self) -> situ_device::Space {
            situ_device::Space { logical_total: PAGE, ..Default::default() }
        }

        fn queue(&self, _depth: u32) -> io::Result<Box<dyn situ_device::Queue>> {
            Err(io::ErrorKind::OutOfMemory.into())
        }
    }

    let (sim, config) = (SimExecutor::new(1), NvmeConfig::default());
    let model = crate::NvmeModel::new(&sim.env(), config.clone(), vec![Arc::new(NoQueues)], NvmePlan::none(), 1);
    sim.run(|| {
        let mut host = Host::new(&model, &config, 1 << 20);
        host.start();
        let mut ring = host.pair(1, 8, 1);
        assert_eq!(host.status(&mut ring, flush()), FINAL | 0x06);
    });
}

#[test]
fn a_false_flush_of_the_medium_is_a_success_of_the_controller() {
    let faults = FaultPlan::none().with(crate::Rule::new(Fault::FalseDurability));
    ready(NvmePlan::none(), faults, |host, ring, device| {
        let memory = host.memory(4096);
        host.put(memory, &[3; 4096]);
        assert_eq!([host.status(ring, write(memory, 0, 1)), host.status(ring, flush())], [0, 0]);
        assert!((0..50).any(|seed| device.crash(seed).contents(0..PAGE) != [3; 4096]));
    });
}
