//! Expired and flushed items leave the disk of a store without writes.

use situ::{Options, Store, WriteBatch};
use situ_server::{ITEMS_KEYSPACE, ItemWriter, open_unserved_by, stored_clock};
use situ_sim::{FaultPlan, SimExecutor, SimVolume};
use std::sync::Arc;
use std::time::Duration;

const ITEMS: u64 = 200;

/// Returns a stored item; it never expires if `expires` is 0.
fn item(expires: u64, bytes: usize) -> Vec<u8> {
    let mut item = vec![1, 0, 0, 0, 0, 0];
    item.extend_from_slice(&expires.to_le_bytes());
    item.extend_from_slice(&1u64.to_le_bytes());
    item.resize(item.len() + bytes, 7);
    item
}

fn on_disk(store: &Store) -> (u64, usize) {
    let keyspace = store.existing_keyspace(ITEMS_KEYSPACE).unwrap();
    let entries = keyspace.tables().iter().map(|table| table.entries - table.deletions).sum();
    (entries, keyspace.properties().value_segments)
}

/// `serve --value-log` kept 328 MB of expired and flushed values. They waited for a fourth table of level 0, which never came.
fn expired_items_leave(options: &Options) {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let env = executor.env();
        let volume = SimVolume::new(&env, FaultPlan::none(), 1);
        let open = || {
            let volume = Arc::new(volume.clone());
            open_unserved_by(options.clone(), |builder| builder.env(executor.env()).open_volume(volume)).unwrap()
        };
        let now = env.clock.unix().as_secs();
        let store = open();
        let mut writer = ItemWriter::open(&store, Arc::new(stored_clock(&store).unwrap())).unwrap();
        let mut batch = WriteBatch::new();
        for n in 0..ITEMS {
            let expires = if n % 4 == 0 { 0 } else { now + 600 };
            writer.put(&mut batch, format!("item {n:04}").as_bytes(), &item(expires, 2000)).unwrap();
        }
        writer.seal(&mut batch).unwrap();
        store.write(batch).unwrap();
        store.close().unwrap();
        // From here on, the filter knows that a server wrote the items.
        let store = open();
        env.clock.sleep(Duration::from_secs(120));
        store.wait_idle().unwrap();
        assert_eq!(on_disk(&store).0, ITEMS, "from memory to a table, and nothing has expired");
        // Covers the minute before a dead item may be dropped, and the minute within which an idle store pays.
        env.clock.sleep(Duration::from_secs(600));
        store.wait_idle().unwrap();
        let (items, segments) = on_disk(&store);
        let has_value_log = options.keyspace.value_log_min_bytes.is_some();
        assert_eq!((items, segments > 0), (ITEMS / 4, has_value_log));
        store.close().unwrap();
    });
}

fn options() -> Options {
    let mut options = Options::default();
    options.compaction_threads = 1;
    options
}

#[test]
fn expired_items_leave_an_idle_store() {
    expired_items_leave(&options());
}

#[test]
fn expired_items_leave_the_value_log_of_an_idle_store() {
    let mut options = options();
    options.keyspace.value_log_min_bytes = Some(1000);
    expired_items_leave(&options);
}
