//! A store whose compactions run in another process: the smallest unit from outside.
//!
//! `cargo run -p situ-engine --example compaction_worker` opens a store with a [`PipeUnit`](unit::PipeUnit), fills it, and prints which
//! unit has compacted what. The worker is this program again, with the store's directory as argument. `frames.rs` has the messages
//! between the two, `unit.rs` the store's side, `worker.rs` the worker's.

mod frames;
mod unit;
mod worker;

use situ_engine::{KeyspaceOptions, Options, StoreBuilder};
use situ_offload::{Offload, Scheduler, Unit};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(directory) = std::env::args_os().nth(1) {
        worker::serve(&PathBuf::from(directory), std::io::stdin(), std::io::stdout());
    }
    let directory = tempfile::tempdir()?;
    let path = directory.path().to_owned();
    let start = move || {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let answers = child.stdout.take().ok_or_else(|| std::io::Error::other("no pipe"))?;
        Ok((child, Box::new(answers) as Box<dyn std::io::Read + Send>))
    };
    let keyspace = KeyspaceOptions::default().memtable_bytes(1 << 20);
    let unit = Arc::new(unit::PipeUnit::new("worker", 2, start));
    let store = StoreBuilder::new(Options::default().keyspace(keyspace))
        .compactor(Offload::new().unit(Arc::clone(&unit) as Arc<dyn Unit>))
        .open(directory.path())?;
    for i in 0..200_000u64 {
        store.put(format!("key {:08}", i.wrapping_mul(7919) % 50_000), format!("value {i:040}"))?;
    }
    store.keyspace("default")?.compact(None, None)?;
    println!("the worker is process {:?}", unit.process());
    for unit in Scheduler::of(store.compactor()).map_or_else(Vec::new, Scheduler::reports) {
        let (name, succeeded, bytes) = (unit.name, unit.succeeded, unit.input_bytes);
        println!("{name}: {succeeded} tasks, {bytes} bytes of input, {:?} of work", unit.busy);
    }
    Ok(store.close()?)
}
