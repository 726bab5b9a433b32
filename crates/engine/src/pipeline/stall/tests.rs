use super::*;
use crate::base::options::Options;
use crate::base::places::HomeVolume;
use crate::opening::open::{KeyspaceChoices, open};
use crate::pipeline::Memory;
use crate::pipeline::no_room::NoRoom;
use situ_sim::{FaultPlan, SimExecutor, SimVolume};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

#[test]
fn the_budget_falls_smoothly_with_the_debt() {
    assert_eq!(allowed(0.49, 1e8), None);
    assert_eq!(allowed(0.9, 0.0), None);
    let rates: Vec<f64> = (50..=100).map(|p| allowed(f64::from(p) / 100.0, 1e8).unwrap()).collect();
    assert!((rates[0] / 2e8 - 1.0).abs() < 1e-9 && (rates[50] / 2.5e7 - 1.0).abs() < 1e-9);
    assert!(rates.windows(2).all(|w| w[1] < w[0] && w[1] > w[0] * 0.9), "a step in {rates:?}");
    assert_eq!(allowed(5.0, 1e8), allowed(1.0, 1e8));
    assert_eq!(allowed(1.0, 1.0), Some(RATE_MIN_BYTES_PER_S));
}

#[test]
fn a_rate_follows_what_was_measured_lately() {
    let average = AtomicU64::new(0);
    smooth(&average, 1000, Duration::from_secs(1));
    assert_eq!(average.load(Ordering::Relaxed), 1000, "the first measurement counts in full");
    (0..40).for_each(|_| smooth(&average, 9000, Duration::from_secs(1)));
    assert!((8990..=9000).contains(&average.load(Ordering::Relaxed)));
    smooth(&average, 1 << 40, Duration::ZERO);
    assert!(average.load(Ordering::Relaxed) > 9000, "no time at all is no division by zero");
}

/// Runs `test` with the memory of a store that has no threads of its own, and its budget.
fn with_memory(test: impl FnOnce(&Arc<Memory>, &Budget) + Send) {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let env = executor.env();
        let volume = SimVolume::new(&env, FaultPlan::none(), 1);
        let opened =
            open(&HomeVolume::given(Arc::new(volume)), env, Options::default(), &KeyspaceChoices::new(), false)
                .unwrap();
        test(&opened.core.memory, opened.core.pipeline.budget());
    });
}

/// Of a flush that takes ten times as long as any before, nobody knew until memory was full, and writers stopped.
#[test]
fn what_memory_is_left_lasts_for_as_long_as_the_flush_does() {
    with_memory(|memory, budget| {
        memory.stall.flushed(64 * MIB, Duration::from_millis(200), 0);
        memory.stall.flush_begins(memory.env.clock.now(), 64 * MIB, 0);
        let mut room = 128 * MIB;
        let mut limits = Vec::new();
        // As the writers would, which use what they are given: ten times a millisecond's, of 200 it usually takes, for
        // 5 s.
        for step in 0..500 {
            let debt = Debt { memory: 1.0 - room as f64 / (256 * MIB) as f64, room, tables: 0.0 };
            memory.set_debt(budget, &debt);
            let limit = budget.limit_bytes_per_s().unwrap();
            memory.env.clock.sleep(Duration::from_millis(10));
            room = room.saturating_sub(limit / 100);
            assert!(room > 0, "writers stop after {step} times 10 ms");
            limits.push(limit);
        }
        assert!(limits.windows(2).all(|two| two[1] <= two[0] + two[0] / 50), "{limits:?}");
        assert!(limits[0] > 300 * MIB && limits[499] < 2 * MIB, "{} to {}", limits[0], limits[499]);
        // Its end is the end of that, and another disk is another matter.
        memory.stall.flush_ends();
        memory.set_debt(budget, &Debt { memory: 0.5, room, tables: 0.0 });
        assert_eq!(budget.limit_bytes_per_s().unwrap() / MIB, 640);
        memory.stall.flushed(64 * MIB, Duration::from_secs(64), HOME + 1);
        memory.set_debt(budget, &Debt { memory: 0.5, room, tables: 0.0 });
        assert_eq!(budget.limit_bytes_per_s().unwrap() / MIB, 640);
    });
}

/// The budget is what the debt leaves of the rate of flushes.
#[test]
fn the_debt_sets_the_budget() {
    with_memory(|memory, budget| {
        memory.stall.flushed(10 * MIB, Duration::from_secs(1), 0);
        memory.set_debt(budget, &Debt { memory: 0.75, ..Debt::default() });
        let rate = budget.limit_bytes_per_s().unwrap();
        let expected = 10.0 * MIB as f64 * 2.0 * 0.125f64.sqrt();
        assert!((rate as f64 / expected - 1.0).abs() < 0.01, "{rate}");
        memory.set_debt(budget, &Debt::default());
        assert_eq!(budget.limit_bytes_per_s(), None);
    });
}

/// A stop that was noted when there was room already used to stick until the next stop ended.
#[test]
fn a_stop_that_is_noted_late_does_not_stick() {
    with_memory(|memory, _| {
        let keyspace = memory.versions.keyspaces().remove(0);
        for no_room in [
            NoRoom::MemtablesFull { keyspace: Arc::clone(&keyspace) },
            NoRoom::Level0Full { keyspace: Arc::clone(&keyspace) },
        ] {
            memory.note_stop(&no_room);
            assert!(!keyspace.stopped.load(Ordering::SeqCst), "writers are said to wait for room that there is");
        }
        assert_eq!(memory.health.stats.counters.write_stops.get(), 2);
    });
}
