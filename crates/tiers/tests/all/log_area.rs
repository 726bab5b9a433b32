//! The log on a fast disk without a file system: its pages are written, and nothing else is.

use crate::common::fast;
use crate::common::raw::{JOURNAL, PAGE, formatted};
use crate::common::watched::Watched;
use situ_engine::{Durability, Options, Store};
use situ_rawdisk::{RawOptions, RawVolume};
use situ_sim::{FaultPlan, SimExecutor, SimVolume, for_each_seed, wait};
use situ_tiers::TieredBuilder;
use std::sync::Arc;

const LOG_PAGES: u64 = 400;

fn options() -> Options {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 512 << 10;
    options
}

/// SpanDB's metadata page, and the journal here, change when a memtable gets its log file or gives it back; not with the
/// pages that are written to it, be they a thousand.
#[test]
fn log_pages_add_nothing_to_the_metadata_of_the_disk() {
    for_each_seed(1, 5, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        sim.run(|| {
            let device = formatted(&env, FaultPlan::none(), 2 * LOG_PAGES, LOG_PAGES);
            // The superblock, and both halves of the journal.
            let log_first = JOURNAL.end.next_multiple_of(16 * PAGE);
            let metadata = Watched::new(&device, 0..log_first);
            let raw = RawOptions { cache_bytes: 1 << 20 };
            let fast = Arc::new(RawVolume::open(Arc::new(metadata.clone()), env.clone(), raw).unwrap());
            let home = Arc::new(SimVolume::new(&env, FaultPlan::none(), seed));
            let store: Store = fast::tiered(options())
                .env(env.clone())
                .open_volumes(home, Some(Arc::clone(&fast) as Arc<dyn situ_storage::Volume>))
                .unwrap();
            let frames = || (fast.report().journal_sequence, fast.report().journal_epoch);
            let log = || device.contents(log_first..log_first + LOG_PAGES * PAGE);
            store.default_keyspace().put_with(b"first", b"value", Durability::Synced).unwrap();
            let (frames_before, log_before, changes_before) = (frames(), log(), device.changes());
            metadata.take();
            for n in 0..300u32 {
                let keyspace = store.default_keyspace();
                if n % 2 == 0 {
                    keyspace.put_with(n.to_be_bytes(), [n as u8; 1000], Durability::Synced).unwrap();
                } else {
                    wait(&env, keyspace.put_with_async(n.to_be_bytes(), b"value", Durability::Synced)).unwrap();
                }
            }
            assert_eq!(
                (metadata.take().writes, frames()),
                (0, frames_before),
                "writes of metadata for pages of the log"
            );
            let changes = device.changes() - changes_before;
            let pages =
                log().chunks(PAGE as usize).zip(log_before.chunks(PAGE as usize)).filter(|(a, b)| a != b).count();
            assert!(changes >= 300 && pages >= 40, "{changes} changes of the device, {pages} pages of the log");
            // The memtable's table, and the log's next file, are told.
            store.flush().unwrap();
            assert!(metadata.take().writes > 0 && frames() > frames_before, "a flush is a change of metadata");
            store.close().unwrap();
        });
    });
}
