use super::*;
use crate::{Rule, SimExecutor, SimVolume, WhenFull};
use situ_storage::{FileName, Volume};
use std::collections::BTreeSet;

const PAGE: u64 = PAGE_BYTES as u64;

fn page(byte: u8, pages: usize) -> Buffer {
    let mut buffer = Buffer::new(pages * PAGE_BYTES);
    buffer.fill(byte);
    buffer
}

fn run(queue: &mut dyn Queue, op: Op, buffer: Buffer) -> Completion {
    queue.submit(op, buffer).map_err(|(_, error)| error).unwrap();
    let mut done = Vec::new();
    while done.is_empty() {
        queue.wait(&mut done, Duration::from_secs(1));
    }
    done.pop().unwrap()
}

fn on_a_device<T: Send>(seed: u64, plan: FaultPlan, body: impl FnOnce(&SimDevice) -> T + Send) -> T {
    let sim = SimExecutor::new(seed);
    let device = SimDevice::new(&sim.env(), 16 * PAGE, plan, seed);
    sim.run(|| body(&device))
}

#[test]
fn durable_writes_and_flushed_ones_survive_every_crash() {
    on_a_device(1, FaultPlan::none(), |device| {
        let mut queue = device.queue(4).unwrap();
        run(&mut *queue, Op::Write { offset: 0, durable: true }, page(1, 1)).result.unwrap();
        run(&mut *queue, Op::Write { offset: PAGE, durable: false }, page(2, 1)).result.unwrap();
        run(&mut *queue, Op::Flush, page(0, 1)).result.unwrap();
        for seed in 0..50 {
            let after = device.crash(seed);
            assert!(after.contents(0..PAGE).iter().all(|byte| *byte == 1));
            assert!(after.contents(PAGE..2 * PAGE).iter().all(|byte| *byte == 2));
        }
    });
}

#[test]
fn what_was_not_flushed_is_lost_kept_or_torn_at_sectors() {
    on_a_device(2, FaultPlan::none(), |device| {
        let mut queue = device.queue(4).unwrap();
        run(&mut *queue, Op::Write { offset: 0, durable: false }, page(1, 1)).result.unwrap();
        let mut seen = [false; 3];
        for seed in 0..200 {
            let after = device.crash(seed).contents(0..PAGE);
            assert!(after.chunks(SECTOR_BYTES).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
            let kept = after.iter().filter(|byte| **byte == 1).count();
            seen[if kept == 0 {
                0
            } else if kept == PAGE_BYTES {
                1
            } else {
                2
            }] = true;
        }
        assert_eq!(seen, [true; 3]);
    });
}

#[test]
fn a_flush_does_not_cover_what_is_in_flight_beside_it() {
    let is_lost = |seed| {
        on_a_device(seed, FaultPlan::none(), |device| {
            let mut writer = device.queue(1).unwrap();
            let mut flusher = device.queue(1).unwrap();
            writer.submit(Op::Write { offset: 0, durable: false }, page(1, 1)).map_err(|(_, e)| e).unwrap();
            run(&mut *flusher, Op::Flush, page(0, 1)).result.unwrap();
            (0..20).any(|seed| device.crash(seed).contents(0..PAGE).contains(&0))
        })
    };
    assert!((0..5).all(is_lost));
}

#[test]
fn a_device_without_a_volatile_cache_keeps_what_is_complete() {
    let sim = SimExecutor::new(3);
    let geometry =
        Geometry { volatile_write_cache: false, ..SimDevice::new(&sim.env(), 0, FaultPlan::none(), 0).geometry() };
    let device = SimDevice::with_geometry(&sim.env(), 4 * PAGE, geometry, FaultPlan::none(), 3);
    sim.run(|| {
        let mut queue = device.queue(1).unwrap();
        run(&mut *queue, Op::Write { offset: 0, durable: false }, page(1, 1)).result.unwrap();
    });
    assert!((0..50).all(|seed| device.crash(seed).contents(0..PAGE).iter().all(|byte| *byte == 1)));
}

#[test]
fn several_in_flight_complete_in_any_order() {
    let order = |seed| {
        on_a_device(seed, FaultPlan::none().latency(Duration::ZERO..Duration::from_millis(1)), |device| {
            let mut queue = device.queue(4).unwrap();
            let mut done = Vec::new();
            for place in 0..4 {
                queue
                    .submit(Op::Write { offset: place * PAGE, durable: true }, page(1, 1))
                    .map_err(|(_, e)| e)
                    .unwrap();
            }
            let (_, full) = queue.submit(Op::Flush, page(0, 1)).unwrap_err();
            assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
            while done.len() < 4 {
                queue.wait(&mut done, Duration::from_secs(1));
            }
            done.iter().map(|completion| completion.ticket.0).collect::<Vec<_>>()
        })
    };
    assert_eq!(order(7), order(7));
    assert!((0..20).any(|seed| order(seed) != [0, 1, 2, 3]));
}

#[test]
fn faults_strike_where_the_plan_says() {
    let plan = FaultPlan::none().with(Rule::new(Fault::Io).on(&[Operation::WritePages]).within(PAGE..2 * PAGE));
    on_a_device(4, plan, |device| {
        let mut queue = device.queue(1).unwrap();
        run(&mut *queue, Op::Write { offset: 0, durable: true }, page(1, 1)).result.unwrap();
        run(&mut *queue, Op::Write { offset: PAGE, durable: true }, page(1, 1)).result.unwrap_err();
        run(&mut *queue, Op::Write { offset: 0, durable: true }, page(1, 2)).result.unwrap_err();
        let behind = queue.submit(Op::Read { offset: 16 * PAGE }, page(0, 1)).unwrap_err().1;
        assert!(behind.to_string().contains("ends behind the device"), "{behind}");
    });
}

#[test]
fn after_the_crash_nothing_works_and_one_opener_has_the_lock() {
    on_a_device(5, FaultPlan::none(), |device| {
        let lock = device.lock().unwrap();
        assert_eq!(device.lock().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        device.lock().unwrap();
        device.crash_at(1);
        let mut queue = device.queue(1).unwrap();
        run(&mut *queue, Op::Write { offset: 0, durable: true }, page(1, 1)).result.unwrap();
        run(&mut *queue, Op::Write { offset: PAGE, durable: true }, page(1, 1)).result.unwrap_err();
        assert!(device.has_crashed());
        run(&mut *queue, Op::Read { offset: 0 }, page(0, 1)).result.unwrap_err();
        assert!((0..20).all(|seed| device.crash(seed).contents(0..PAGE) == [1; PAGE_BYTES]));
    });
}

/// Whichever of them has the crash point, both stop there, and each loses what was not durable by its own seed.
#[test]
fn a_volume_and_a_device_lose_power_together() {
    for strikes_volume in [false, true] {
        on_a_device(9, FaultPlan::none(), |device| {
            let env = &device.shared.env;
            let volume = SimVolume::new(env, FaultPlan::none(), 9);
            device.share_power(&volume);
            let file = volume.create_pages(FileName::Log(1), PAGE).unwrap();
            let mut queue = device.queue(1).unwrap();
            file.write(0, &page(1, 1), 1, false).unwrap();
            run(&mut *queue, Op::Write { offset: 0, durable: false }, page(1, 1)).result.unwrap();
            if strikes_volume {
                volume.crash_at(volume.changes())
            } else {
                device.crash_at(device.changes())
            }
            let on_volume = |volume: &SimVolume| volume.replace(FileName::Current, b"x").is_err();
            let on_device = |queue: &mut dyn Queue| {
                run(queue, Op::Write { offset: PAGE, durable: true }, page(1, 1)).result.is_err()
            };
            assert!(if strikes_volume { on_volume(&volume) } else { on_device(&mut *queue) });
            assert!(volume.has_crashed() && device.has_crashed());
            assert!(on_volume(&volume) && on_device(&mut *queue));
            let has_volume = |seed| volume.crash(seed).contents(FileName::Log(1)).unwrap()[0] == 1;
            let has_device = |seed| device.crash(seed).contents(0..PAGE)[0] == 1;
            let seen: BTreeSet<(bool, bool)> = (0..60).map(|seed| (has_volume(seed), has_device(seed + 100))).collect();
            assert_eq!(seen.len(), 4, "{seen:?}");
        });
    }
}

#[test]
fn a_discard_leaves_nothing_to_rely_on() {
    on_a_device(6, FaultPlan::none(), |device| {
        let mut queue = device.queue(1).unwrap();
        let mut changed = 0;
        for _ in 0..20 {
            run(&mut *queue, Op::Write { offset: 0, durable: true }, page(1, 1)).result.unwrap();
            run(&mut *queue, Op::Discard { offset: 0, bytes: PAGE }, page(0, 1)).result.unwrap();
            changed += usize::from(device.contents(0..PAGE) != [1; PAGE_BYTES]);
        }
        assert!((5..20).contains(&changed), "{changed}");
        run(&mut *queue, Op::Zero { offset: 0, bytes: PAGE }, page(0, 1)).result.unwrap();
        assert_eq!(device.contents(0..PAGE), [0; PAGE_BYTES]);
    });
}

/// A flush that fails may drop what waits in the cache, not a durable write beside it that is acknowledged.
#[test]
fn a_failed_flush_leaves_the_durable_write_beside_it_alone() {
    let plan = FaultPlan::none().with(Rule::new(Fault::DropDirty).on(&[Operation::Sync]));
    on_a_device(8, plan, |device| {
        let mut writer = device.queue(1).unwrap();
        let mut flusher = device.queue(1).unwrap();
        run(&mut *flusher, Op::Write { offset: PAGE, durable: false }, page(2, 1)).result.unwrap();
        writer.submit(Op::Write { offset: 0, durable: true }, page(1, 1)).map_err(|(_, e)| e).unwrap();
        run(&mut *flusher, Op::Flush, page(0, 1)).result.unwrap_err();
        let mut done = Vec::new();
        writer.wait(&mut done, Duration::from_secs(1));
        assert!(done[0].result.is_ok());
        assert!((0..20).all(|seed| device.crash(seed).contents(0..PAGE) == [1; PAGE_BYTES]));
        assert!((0..20).all(|seed| device.crash(seed).contents(PAGE..2 * PAGE) == [0; PAGE_BYTES]));
    });
}

/// Pages that nothing compresses.
fn noise(pages: usize, seed: u64) -> Buffer {
    let mut buffer = Buffer::new(pages * PAGE_BYTES);
    Rng::new(seed).fill(&mut buffer);
    buffer
}

fn on_a_compressing_device(seed: u64, compression: Compression, body: impl FnOnce(&SimDevice) + Send) {
    on_a_device(seed, FaultPlan::none(), |device| {
        device.set_compression(compression);
        body(device);
    });
}

#[test]
fn a_device_that_compresses_counts_what_blocks_cost() {
    on_a_compressing_device(1, Compression::default(), |device| {
        let mut queue = device.queue(4).unwrap();
        let physical = || {
            let space = device.space();
            assert_eq!(space.physical_total, None);
            (space.physical_used.unwrap(), space.physical_written.unwrap())
        };
        assert_eq!(physical(), (0, 0));
        run(&mut *queue, Op::Write { offset: 0, durable: true }, noise(4, 1)).result.unwrap();
        assert_eq!(physical(), (4 * PAGE, 4 * PAGE));
        run(&mut *queue, Op::Write { offset: 0, durable: true }, page(0, 1)).result.unwrap();
        assert_eq!(physical(), (3 * PAGE, 4 * PAGE), "zeros cost nothing");
        run(&mut *queue, Op::Zero { offset: PAGE, bytes: PAGE }, page(0, 1)).result.unwrap();
        assert_eq!(physical(), (2 * PAGE, 4 * PAGE), "nor do these");
        run(&mut *queue, Op::Discard { offset: 2 * PAGE, bytes: PAGE }, page(0, 1)).result.unwrap();
        assert_eq!(physical(), (PAGE, 4 * PAGE), "nor what was discarded, whatever it reads as");
        run(&mut *queue, Op::Write { offset: 8 * PAGE, durable: true }, page(7, 1)).result.unwrap();
        let (used, written) = physical();
        assert!(used > PAGE && used < PAGE + 100, "{used}");
        assert_eq!(written, 4 * PAGE + used - PAGE);
        assert_eq!(device.nature().compresses, Compresses::Yes);
        let after = device.crash_keep_all();
        assert_eq!((after.space(), after.nature()), (device.space(), device.nature()));
    });
}

#[test]
fn physical_space_ends_while_logical_space_remains_and_comes_back() {
    for (when_full, code) in [(WhenFull::NoSpace, 28), (WhenFull::Io, 5)] {
        let compression = Compression::default().total(6 * PAGE).when_full(when_full);
        on_a_compressing_device(2, compression, |device| {
            let mut queue = device.queue(4).unwrap();
            run(&mut *queue, Op::Write { offset: 0, durable: true }, noise(4, 1)).result.unwrap();
            assert_eq!(device.space().physical_free(), Some(2 * PAGE));
            let full = run(&mut *queue, Op::Write { offset: 8 * PAGE, durable: true }, noise(4, 2)).result;
            assert_eq!(full.unwrap_err().raw_os_error(), Some(code));
            // Whole blocks that fitted are there.
            assert_eq!(device.space().physical_free(), Some(0));
            assert_eq!(device.contents(8 * PAGE..10 * PAGE), noise(4, 2)[..2 * PAGE_BYTES]);
            assert!(device.contents(10 * PAGE..12 * PAGE).iter().all(|byte| *byte == 0));
            // What costs nothing more goes on: zeros, other bytes in place of some, discards.
            run(&mut *queue, Op::Write { offset: 12 * PAGE, durable: true }, page(0, 2)).result.unwrap();
            run(&mut *queue, Op::Write { offset: 0, durable: true }, noise(4, 3)).result.unwrap();
            run(&mut *queue, Op::Discard { offset: 0, bytes: 4 * PAGE }, page(0, 1)).result.unwrap();
            assert_eq!(device.space().physical_free(), Some(4 * PAGE));
            run(&mut *queue, Op::Write { offset: 12 * PAGE, durable: true }, noise(4, 4)).result.unwrap();
            assert_eq!(device.space().physical_free(), Some(0));
        });
    }
}

/// A crash brings back what was discarded and not flushed, or does not. Either way, the figures are those of the image.
#[test]
fn a_crash_image_has_the_figures_of_its_own_contents() {
    on_a_compressing_device(3, Compression::default().total(16 * PAGE), |device| {
        let mut queue = device.queue(4).unwrap();
        run(&mut *queue, Op::Write { offset: 0, durable: true }, noise(4, 1)).result.unwrap();
        run(&mut *queue, Op::Write { offset: 4 * PAGE, durable: false }, noise(4, 2)).result.unwrap();
        let mut seen = BTreeSet::new();
        for seed in 0..60 {
            let after = device.crash(seed);
            let blocks = (0..16).map(|page| after.contents(page * PAGE..(page + 1) * PAGE));
            let sum: u64 = blocks.map(|block| Costs::of(&block, false).used()).sum();
            assert_eq!(after.space().physical_used, Some(sum));
            assert_eq!(after.space().physical_written, device.space().physical_written);
            seen.insert(sum);
        }
        assert!(seen.contains(&(4 * PAGE)) && seen.contains(&(8 * PAGE)) && seen.len() > 2, "{seen:?}");
    });
}
