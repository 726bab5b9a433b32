//! Units hear how long the store's reads take, with pipelined compactions and without.

use situ_compaction::{Measure, Pipelines, RunMode, Task, decode_measures};
use situ_engine::{Options, Store, StoreBuilder};
use situ_offload::{Assignment, Finished, Load, Offer, Offload, Refused, Scheduler, Unit};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Takes no task. Says that pipelines run, and keeps what it hears.
#[derive(Default)]
struct Listens {
    pipelines: Pipelines,
    /// The last counts of reads: with pipelines, without.
    samples: Mutex<Option<(u64, u64)>>,
}

impl Unit for Listens {
    fn name(&self) -> &str {
        "listens"
    }

    fn offer(&self, _: &Task) -> Offer {
        Offer::Unsuited("it only listens".to_owned())
    }

    fn load(&self) -> Load {
        Load::default()
    }

    fn submit(&self, _: Assignment) -> Result<(), Refused> {
        Err(Refused::Busy)
    }

    fn poll(&self, _: &mut Vec<Finished>) {}

    fn measured(&self, message: &[u8]) {
        let measures = decode_measures(message).unwrap();
        let [Measure::ReadsWithPipelines(with), Measure::ReadsWithoutPipelines(without)] = measures[..] else {
            panic!("{measures:?}");
        };
        *self.samples.lock().unwrap() = Some((with.samples, without.samples));
    }

    fn pipelines(&self) -> Option<Pipelines> {
        Some(self.pipelines.clone())
    }

    fn close(&self) {}
}

/// One in sixteen is measured.
const READS: u64 = 16 * 50;

fn read(store: &Store) {
    (0..READS).for_each(|_| assert!(store.get("key").unwrap().is_some()));
}

/// Compacts until the unit hears so many times fifty reads, with pipelines and without. It hears something once a second at most.
fn hears(store: &Store, unit: &Listens, with: u64, without: u64) {
    let until = Instant::now() + Duration::from_secs(20);
    let about = |count: u64, fifties: u64| count.abs_diff(50 * fifties) <= 2 * fifties;
    loop {
        store.put("key", "value").unwrap();
        store.compact(None, None).unwrap();
        let heard = *unit.samples.lock().unwrap();
        if heard.is_some_and(|heard| about(heard.0, with) && about(heard.1, without)) {
            return;
        }
        assert!(Instant::now() < until, "the unit hears {heard:?}, and not 50 times {with} and {without}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn units_hear_how_long_reads_take_with_pipelines_and_without() {
    let directory = tempfile::tempdir().unwrap();
    let unit = Arc::new(Listens::default());
    let builder =
        StoreBuilder::new(Options::default()).compactor(Offload::new().unit(Arc::clone(&unit) as Arc<dyn Unit>));
    let store = builder.open(directory.path()).unwrap();
    store.put("key", "value").unwrap();
    read(&store);
    hears(&store, &unit, 0, 1);
    let running = unit.pipelines.begin(RunMode::PIPELINED);
    read(&store);
    hears(&store, &unit, 1, 1);
    drop(running);
    read(&store);
    hears(&store, &unit, 1, 2);
    let decisions = Scheduler::of(store.compactor()).unwrap().decisions();
    assert_eq!(decisions.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["cpu"]);
    store.close().unwrap();
}
