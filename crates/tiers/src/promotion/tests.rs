use super::*;
use crate::TieredBuilder;
use crate::extensions::placement_of;
use situ_engine::{Options, StoreBuilder};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rule, SimExecutor, SimVolume};
use std::sync::Arc;

/// A table at home that could not be read counted as a failure of the fast disk, to which it was to be copied, and
/// turned placement away from a sound disk.
#[test]
fn promise_7_a_table_that_cannot_be_copied_is_the_failure_of_the_disk_that_failed() {
    for (fails, operation) in [(0, Operation::Read), (1, Operation::Create), (1, Operation::Append)] {
        let executor = SimExecutor::new(1);
        let disks = ["home", "fast"].map(|place| SimVolume::named(&executor.env(), place, FaultPlan::none(), 1));
        executor.run(|| {
            let builder = || StoreBuilder::new(Options::default()).env(executor.env());
            let store = builder().open_volume(Arc::new(disks[0].clone())).unwrap();
            store.put(b"key", [1; 1000]).unwrap();
            store.flush().unwrap();
            store.close().unwrap();
            let fast = Arc::new(disks[1].clone());
            let store = builder().open_volumes(Arc::new(disks[0].clone()), Some(fast)).unwrap();
            let placement = placement_of(&store).unwrap();
            let wanted = Wanted { table: placement.store.tables()[0], disk: FAST };
            lock(&placement.promoting).wanted.push_back(wanted);
            let rule = Rule::new(Fault::Io).on(&[operation]).files(&[FileKind::Table]);
            disks[fails].set_faults(FaultPlan::none().with(rule));
            assert!(placement.promote_one().unwrap());
            let expected = if fails == 1 { (1, 0) } else { (0, 1) };
            let failures = placement.write_failures.load(Ordering::Relaxed);
            assert_eq!((failures, store.statistics().job_failures), expected, "{operation:?}");
            disks[fails].set_faults(FaultPlan::none());
            store.close().unwrap();
        });
    }
}
