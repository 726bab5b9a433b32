//! The chip: several units with queues, registers and lock-step give the model's answers, one by one.

use crate::skipped::skipped;
use crate::tasks::{self, assert_is_the_models, memory};
use situ_accel::DeviceTask;
use situ_compaction::testing::with_seeds;
use situ_fpga::{Chip, ChipAnswer, Flip, Memory, NotRun, RegisterError, missing, registers};
use situ_sim::Rng;
use std::collections::BTreeMap;

const LANES: u32 = 3;
const SLOTS: usize = 4;

/// Returns whether there is no simulation, and says so.
fn skips(test: &str) -> bool {
    missing().inspect(|why| skipped(test, why)).is_some()
}

/// A chip and the tasks that it has.
struct Bench {
    chip: Chip,
    tasks: BTreeMap<u32, (DeviceTask, Vec<u8>, bool)>,
}

impl Bench {
    fn new(memory: Memory) -> Bench {
        Bench { chip: Chip::new(memory).unwrap(), tasks: BTreeMap::new() }
    }

    fn submit(&mut self, task: &(DeviceTask, Vec<u8>), lockstep: bool) -> Result<u32, NotRun> {
        let tag = self.chip.submit(&task.0.encode(), &task.1, lockstep)?;
        self.tasks.insert(tag, (task.0.clone(), task.1.clone(), lockstep));
        Ok(tag)
    }

    /// Waits for an answer, and fails unless it is the model's. Returns the answer and its status.
    fn wait(&mut self) -> (ChipAnswer, u32) {
        let answer = self.chip.wait().unwrap();
        let (task, data, lockstep) = self.tasks.remove(&answer.tag).unwrap();
        assert_eq!(answer.lockstep, lockstep);
        assert!(answer.lane < LANES && !(lockstep && answer.lane != 0));
        let status = assert_is_the_models(answer.outcome.as_ref().unwrap(), &task, &data);
        (answer, status)
    }
}

/// A random task of some length, of which one in some has a flipped bit in its input.
fn task(rng: &mut Rng, entries: u64) -> (DeviceTask, Vec<u8>) {
    let (device, mut data) = tasks::random(rng, entries);
    if rng.below(4) == 0 && !data.is_empty() {
        let at = rng.index(data.len());
        data[at] ^= 1 << rng.below(8);
    }
    (device, data)
}

/// A task that keeps a lane busy for some thousand cycles.
fn long_task(rng: &mut Rng) -> (DeviceTask, Vec<u8>) {
    loop {
        let (mut device, data) = tasks::random(rng, 600);
        (device.rules.emit_from, device.rules.emit_bytes_max) = (0, u64::MAX);
        if data.len() > 20_000 {
            return (device, data);
        }
    }
}

/// Tasks follow each other on each lane, sound ones behind damaged ones too.
#[test]
fn tasks_in_flight_on_all_lanes_give_the_models_answers() {
    if skips("tasks_in_flight_on_all_lanes_give_the_models_answers") {
        return;
    }
    with_seeds(6, |rng| {
        let mut bench = Bench::new(memory(rng));
        let (mut lanes, mut statuses, mut left) = ([0; LANES as usize], [0; 8], 20);
        while left > 0 || !bench.tasks.is_empty() {
            let full = bench.tasks.len() == SLOTS + LANES as usize;
            if left > 0 && !full && rng.below(4) != 0 {
                let task = task(rng, 120);
                match bench.submit(&task, rng.below(4) == 0) {
                    Ok(_) => left -= 1,
                    Err(error) => assert_eq!(error, NotRun::Busy),
                }
            } else if !bench.tasks.is_empty() {
                let (answer, status) = bench.wait();
                lanes[answer.lane as usize] += 1;
                statuses[status as usize] += 1;
            }
        }
        assert!(lanes.iter().filter(|count| **count > 0).count() >= 2, "{lanes:?}");
        assert!(statuses[0] > 0, "{statuses:?}");
    });
}

/// The queue takes no more than it says; nothing that it took is lost while the host takes no answers.
#[test]
fn a_full_queue_refuses_and_loses_nothing() {
    if skips("a_full_queue_refuses_and_loses_nothing") {
        return;
    }
    with_seeds(1, |rng| {
        let mut bench = Bench::new(Memory::IDEAL);
        // Lanes that take no tasks: the queue alone fills up.
        bench.chip.write(registers::CONTROL, 0).unwrap();
        for _ in 0..SLOTS {
            let task = task(rng, 60);
            bench.submit(&task, false).unwrap();
        }
        assert_eq!(bench.submit(&task(rng, 60), false).unwrap_err(), NotRun::Busy);
        // Neither a task's words nor a push reach a full queue.
        assert_eq!(bench.chip.write(registers::TASK, 0), Err(RegisterError::Refused));
        assert_eq!(bench.chip.write(registers::TASK_PUSH, 0), Err(RegisterError::Refused));
        assert_eq!(bench.chip.read(registers::STATUS).unwrap() & 0xff77, 0);
        bench.chip.write(registers::CONTROL, 1).unwrap();
        // Answers fill their queue and all lanes, then tasks fill theirs.
        for _ in 0..SLOTS + LANES as usize {
            let task = task(rng, 60);
            loop {
                match bench.submit(&task, false) {
                    Ok(_) => break,
                    Err(error) => assert_eq!(error, NotRun::Busy),
                }
                // The interrupt line is up since the first answer, so registers are read to pass time.
                bench.chip.read(registers::STATUS).unwrap();
            }
        }
        for _ in 0..20_000 {
            bench.chip.read(registers::ID).unwrap();
        }
        // No slot for a task, four answers, three lanes with an answer that waits.
        let status = bench.chip.read(registers::STATUS).unwrap();
        assert_eq!(status, 0x0740, "{status:#x}");
        for lane in 0..LANES {
            assert_eq!(bench.chip.read(registers::LANE + 16 * lane + 4).unwrap(), 3);
        }
        while !bench.tasks.is_empty() {
            bench.wait();
        }
    });
}

#[test]
fn lanes_in_lockstep_agree_on_random_tasks() {
    if skips("lanes_in_lockstep_agree_on_random_tasks") {
        return;
    }
    with_seeds(6, |rng| {
        let mut bench = Bench::new(memory(rng));
        for i in 0..6 {
            // What was on the lanes before differs.
            if i % 2 == 0 {
                let task = task(rng, 100);
                bench.submit(&task, false).unwrap();
                bench.wait();
            }
            let task = task(rng, 200);
            bench.submit(&task, true).unwrap();
            let other = self::task(rng, 100);
            bench.submit(&other, false).unwrap();
            bench.wait();
            bench.wait();
        }
        assert_eq!(bench.chip.read(registers::IRQ_CAUSE).unwrap() & registers::IRQ_MISMATCH, 0);
    });
}

/// A bit that stays inverted in one lane is found at every place, and the other lane goes on meanwhile.
#[test]
fn lockstep_finds_a_flipped_bit_at_each_place() {
    if skips("lockstep_finds_a_flipped_bit_at_each_place") {
        return;
    }
    // An inverted write address is far from all memory that the chip was lent, and memory refuses it: the run would end.
    let places = [
        (1, Flip::Read),
        (2, Flip::Read),
        (1, Flip::Write),
        (2, Flip::Write),
        (1, Flip::WriteAddress),
        (2, Flip::WriteAddress),
        (1, Flip::Side),
        (2, Flip::Side),
        (1, Flip::ReadAddress),
        (2, Flip::ReadAddress),
        (1, Flip::Done),
        (2, Flip::Done),
    ];
    with_seeds(1, |rng| {
        let mut bench = Bench::new(Memory { latency: 10, stall_per_1000: 100, seed: 3 });
        for (lanes, place) in places {
            let broken = long_task(rng);
            let tag = bench.submit(&broken, true).unwrap();
            bench.chip.step(300).unwrap();
            let other = bench.submit(&task(rng, 60), false).unwrap();
            bench.chip.flip(lanes, place);
            let mut seen = 0;
            while seen < 2 {
                let answer = bench.chip.wait().unwrap();
                seen += 1;
                let (task, data, _) = bench.tasks.remove(&answer.tag).unwrap();
                if answer.tag == other {
                    assert_is_the_models(&answer.outcome.unwrap(), &task, &data);
                } else {
                    assert_eq!((answer.tag, answer.lane, answer.lockstep), (tag, 0, true));
                    assert_eq!(answer.outcome.unwrap_err(), NotRun::Mismatch, "{place:?} in {lanes}");
                    assert_ne!(bench.chip.read(registers::IRQ_CAUSE).unwrap() & registers::IRQ_MISMATCH, 0);
                    bench.chip.flip(0, place);
                }
            }
            bench.chip.write(registers::IRQ_CAUSE, registers::IRQ_MISMATCH).unwrap();
            // The same lanes work behind it.
            bench.submit(&task(rng, 60), true).unwrap();
            bench.wait();
            assert_eq!(bench.chip.read(registers::IRQ_CAUSE).unwrap() & registers::IRQ_MISMATCH, 0);
        }
    });
}

/// A bit that is inverted for one cycle either hits nothing, or is found: no wrong answer comes out.
#[test]
fn lockstep_lets_no_wrong_answer_out() {
    if skips("lockstep_lets_no_wrong_answer_out") {
        return;
    }
    const PLACES: [Flip; 4] = [Flip::Read, Flip::Write, Flip::WriteAddress, Flip::Side];
    let found = std::cell::Cell::new(0);
    with_seeds(40, |rng| {
        let mut bench = Bench::new(memory(rng));
        let (task, data) = long_task(rng);
        bench.submit(&(task.clone(), data.clone()), true).unwrap();
        bench.chip.step(200 + rng.below(4000)).unwrap();
        bench.chip.flip(1 << rng.below(2), PLACES[rng.index(PLACES.len())]);
        bench.chip.step(1).unwrap();
        bench.chip.flip(0, Flip::Read);
        match bench.chip.wait().unwrap().outcome {
            Ok(answer) => assert!(assert_is_the_models(&answer, &task, &data) == 0),
            Err(error) => {
                assert_eq!(error, NotRun::Mismatch);
                found.set(found.get() + 1);
            }
        }
    });
    assert!(found.get() >= 5, "{} found", found.get());
}

/// The same bit without lock-step gives a wrong block, which only the host's checks could find.
#[test]
fn without_lockstep_a_flipped_bit_comes_out() {
    if skips("without_lockstep_a_flipped_bit_comes_out") {
        return;
    }
    with_seeds(1, |rng| {
        let mut bench = Bench::new(Memory::IDEAL);
        let (task, data) = long_task(rng);
        bench.submit(&(task.clone(), data.clone()), false).unwrap();
        bench.chip.flip(7, Flip::Write);
        let answer = bench.chip.wait().unwrap().outcome.unwrap();
        assert!(answer.data != situ_accel::run_model(&task, &data).unwrap().data);
    });
}

#[test]
fn a_stopped_task_leaves_its_lane_sound() {
    if skips("a_stopped_task_leaves_its_lane_sound") {
        return;
    }
    with_seeds(10, |rng| {
        let mut bench = Bench::new(memory(rng));
        let lockstep = rng.below(2) == 0;
        let stopped = long_task(rng);
        let tag = bench.submit(&stopped, lockstep).unwrap();
        bench.chip.step(100 + rng.below(3000)).unwrap();
        let busy = bench.chip.read(registers::STATUS).unwrap() >> 8 & 7;
        assert_eq!(busy, if lockstep { 3 } else { 4 });
        // A stop of either lane of a pair stops both.
        let lane = if lockstep { rng.below(2) as u32 } else { 2 };
        bench.chip.stop(lane).unwrap();
        let answer = bench.chip.wait().unwrap();
        assert_eq!((answer.tag, answer.outcome.unwrap_err()), (tag, NotRun::Stopped));
        bench.tasks.clear();
        // A free lane has nothing to stop.
        bench.chip.stop(lane).unwrap();
        for _ in 0..2 {
            let task = task(rng, 100);
            bench.submit(&task, lockstep).unwrap();
            bench.wait();
        }
    });
}

/// Each access that the page of registers does not name is refused, with 0 and a cause of interrupts.
#[test]
fn illegal_accesses_are_refused() {
    if skips("illegal_accesses_are_refused") {
        return;
    }
    let mut chip = Chip::new(Memory::IDEAL).unwrap();
    let readable = |addr: u32| match addr {
        0x000..=0x018 => true,
        // A lane's control is for writes.
        0x040..=0x06f => addr & 0xc != 0,
        // There is no answer.
        _ => false,
    };
    for addr in 0..0x400 {
        let found = chip.read(addr);
        if addr % 4 == 0 && readable(addr) {
            found.unwrap();
        } else {
            assert_eq!(found, Err(RegisterError::Refused), "{addr:#x}");
        }
    }
    assert_eq!(chip.read(registers::ID), Ok(registers::ID_VALUE));
    assert_eq!(chip.read(registers::CAPABILITIES), Ok(0x8044_8403));
    let refused = [
        (registers::ID, 0),
        (registers::VERSION, 0),
        (registers::CAPABILITIES, 0),
        (registers::STATUS, 0),
        (registers::CONTROL, 2),
        (registers::IRQ_ENABLE, 16),
        (registers::IRQ_CAUSE, 16),
        (registers::TASK_PUSH, 2),
        // There is nothing to pop.
        (registers::ANSWER_POP, 1),
        (registers::ANSWER, 1),
        (registers::LANE, 0),
        (registers::LANE + 4, 1),
        (registers::LANE + 16 * LANES, 1),
        (registers::TASK + 4 * 48, 1),
        (registers::TASK + 1, 1),
        (0x3fc, 1),
    ];
    for (addr, value) in refused {
        chip.write(registers::IRQ_CAUSE, registers::IRQ_REFUSED).unwrap();
        assert_eq!(chip.read(registers::IRQ_CAUSE), Ok(registers::IRQ_SPACE));
        assert_eq!(chip.write(addr, value), Err(RegisterError::Refused), "{addr:#x} {value}");
        assert_eq!(chip.read(registers::IRQ_CAUSE), Ok(registers::IRQ_SPACE | registers::IRQ_REFUSED));
    }
    // The line is raised for an enabled cause alone.
    assert_eq!(chip.step(20).unwrap(), 20);
    chip.write(registers::IRQ_ENABLE, registers::IRQ_REFUSED).unwrap();
    assert_eq!(chip.step(20).unwrap(), 0);
}
