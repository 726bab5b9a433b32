//! A home that is full beside a fast disk that is not: what was meant for the home goes where there is room.

use crate::common::fast;
use crate::common::fast::{fill, holds, small};
use situ_engine::{Listener, StoreEvent};
use situ_sim::{FaultPlan, SimExecutor, SimVolume};
use situ_storage::{FileName, Volume};
use situ_tiers::{TieredBuilder, Tiers};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
struct Heard(AtomicU64);

impl Listener for Heard {
    fn event(&self, event: &StoreEvent) {
        if matches!(event, StoreEvent::HomeFull { .. }) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn tables(volume: &SimVolume) -> Vec<u64> {
    let files = volume.list().unwrap();
    files.iter().filter(|file| matches!(file.name, FileName::Table(_))).map(|file| file.bytes).collect()
}

/// A merge whose output belongs at home failed there again and again, beside a fast disk with room for it, until level 0 was full:
/// all writes were refused, and `compact` was, too.
#[test]
fn promise_7_a_merge_for_which_the_home_has_no_room_goes_to_the_fast_disk() {
    let (home_bytes, fast_bytes) = (1600 << 10, 8 << 20);
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let env = executor.env();
        let home = SimVolume::named(&env, "home", FaultPlan::none().capacity(home_bytes), 1);
        let fast = SimVolume::named(&env, "fast", FaultPlan::none().capacity(fast_bytes), 2);
        let heard = Arc::new(Heard::default());
        let mut options = small();
        options.keyspace.compression = vec![situ_engine::Compression::None];
        // Tables as long as all the room there is must be cut.
        options.keyspace.table_bytes = fast_bytes;
        options.places = Arc::new(Tiers::new().pinned_level(Some(1)));
        options.listener = Some(Arc::clone(&heard) as Arc<dyn Listener>);
        let builder = || fast::tiered(options.clone()).env(env.clone());
        let open = || builder().open_volumes(Arc::new(home.clone()), Some(Arc::new(fast.clone()))).unwrap();
        let store = open();
        let count = 25_000;
        for _ in 0..2 {
            fill(&store, 0, count);
            store.wait_idle().unwrap();
        }
        store.default_keyspace().compact(None, None).unwrap();
        store.wait_idle().unwrap();
        holds(&store, count);
        let (at_home, on_fast) = (tables(&home), tables(&fast));
        let all: u64 = at_home.iter().chain(&on_fast).sum();
        assert!(all > home_bytes, "{all} bytes would have fit at home");
        assert!(on_fast.iter().all(|bytes| *bytes < fast_bytes / 3), "{on_fast:?}");
        assert!(heard.0.load(Ordering::SeqCst) > 0);
        store.close().unwrap();
        let store = open();
        holds(&store, count);
        store.close().unwrap();
    });
}
