//! Writers together on a disk that has just enough room for their log and for what they write.

use crate::common::fast::small;
use situ_engine::{Durability, Keyspace, StoreBuilder};
use situ_sim::{FaultPlan, Rng, SimExecutor, SimVolume, for_each_seed};
use std::sync::Arc;

/// Overwrites a few keys of its own.
fn write(keyspace: &Keyspace, writer: u64, writes: u64, seed: u64) {
    let mut rng = Rng::new(seed + writer);
    for n in 0..writes {
        let value = vec![1; rng.index(3000)];
        let key = [writer as u8, rng.below(4) as u8];
        let durability = if rng.chance(0.3) { Durability::Synced } else { Durability::Buffered };
        if let Err(error) = keyspace.put_with(key, &value, durability) {
            panic!("write {n} of writer {writer} was refused: {error}");
        }
    }
}

/// Several come to the end of a log file at once, on a disk that has no room for another one until a flush has given some back: one
/// of them makes it, or sees that it will be there, and the others see that one has. None is refused. Nothing but these looks
/// at what others have done kept them from it, and nothing tested those.
#[test]
fn no_writer_is_refused_because_another_was_faster() {
    // In these, log files of 64 KiB fit twice or three times, with room for tables beside them, and for both copies of the manifest.
    // With less room than tables need beside the log, a flush fails, and writers are refused rightly.
    for (room_kib, writers) in [(178, 4), (186, 8), (212, 8), (220, 8)] {
        for_each_seed(0, 20, |seed| {
            let executor = SimExecutor::new(seed);
            executor.run(|| {
                let env = executor.env();
                let home = SimVolume::new(&env, FaultPlan::none().capacity(room_kib << 10), seed);
                let mut options = small();
                options.keyspace.memtable_bytes = 32 << 10;
                let store = StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(home)).unwrap();
                let jobs: Vec<_> = (0..writers)
                    .map(|writer| {
                        let keyspace = store.default_keyspace().clone();
                        let body = move || write(&keyspace, writer, 600 / writers, seed);
                        env.executor.spawn(&format!("writer {writer}"), Box::new(body)).unwrap()
                    })
                    .collect();
                for job in jobs {
                    job.join().unwrap_or_else(|panic| panic!("{room_kib} KiB, {writers} writers: {panic}"));
                }
                store.close().unwrap();
            });
        });
    }
}
