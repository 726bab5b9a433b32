//! A store whose compactions run on the simulated unit, as far as they are within its limits.

use crate::skipped::skipped;
use situ_accel::DeviceUnit;
use situ_base::Env;
use situ_engine::{Options, StoreBuilder};
use situ_fpga::{Memory, OpenSimulated, Simulated};
use situ_offload::{Offload, Policy, Scheduler, Split, Unit};
use situ_sim::Rng;
use situ_table::Compression;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Every task runs on the processor, too, and the files are compared to the bit.
#[test]
fn a_store_runs_on_the_unit() {
    if let Some(why) = situ_fpga::missing() {
        return skipped("a_store_runs_on_the_unit", why);
    }
    let directory = tempfile::tempdir().unwrap();
    let device = OpenSimulated { unit: Simulated::new(Memory { latency: 10, stall_per_1000: 0, seed: 1 }) };
    let unit: Arc<dyn Unit> = Arc::new(DeviceUnit::new(Env::system(), Arc::new(device), 1));
    let mut options = Options::default();
    options.keyspace = options.keyspace.memtable_bytes(64 << 10).table_bytes(32 << 10).level_base_bytes(1 << 20);
    options.keyspace.compression = vec![Compression::None];
    let policy = Policy { split: Split::Static { elsewhere_percent: 100 }, ..Policy::named("co-kv").unwrap() };
    let offload = Offload::new().policy(policy).check_every(1).unit(unit);
    let store = StoreBuilder::new(options).compactor(offload).open(directory.path()).unwrap();
    let (mut model, mut rng) = (BTreeMap::new(), Rng::new(5));
    for i in 0..8000 {
        let key = format!("key{:06}", rng.below(2500)).into_bytes();
        if rng.below(10) == 0 {
            store.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = format!("{i:0width$}", width = 1 + rng.index(100)).into_bytes();
            store.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
    store.keyspace("default").unwrap().compact(None, None).unwrap();
    let entries = store.iter().unwrap().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap());
    assert!(entries.collect::<BTreeMap<_, _>>() == model);
    let report = Scheduler::of(store.compactor()).unwrap().reports().remove(1);
    assert!(report.succeeded > 0 && report.checked > 0, "{report:?}");
    assert_eq!((report.failed, report.late, report.suspicious, report.mismatches), (0, 0, 0, 0), "{report:?}");
    store.close().unwrap();
}
