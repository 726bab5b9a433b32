//! The bed of all measurements: tasks over tables in memory, a host that costs little, the processor's time.

use rustix::time::{ClockId, clock_gettime};
use situ_compaction::testing::{MemoryHost, plain_rules};
use situ_compaction::{KeySpan, TablePlace, Task, TaskHost};
use situ_sim::Rng;
use situ_storage::Writer;
use situ_table::{Compression, KeyKind, KeyRef, TableOptions, TableWriter, Trailer};
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A host whose files are memory that is used again: the cheapest writing there is.
pub(crate) struct Sink {
    pub(crate) spare: Arc<Mutex<Vec<Vec<u8>>>>,
    /// True if output is dropped, as if writing it cost the processor nothing.
    pub(crate) drops: bool,
}

pub(crate) struct SinkWriter {
    bytes: Vec<u8>,
    pub(crate) spare: Arc<Mutex<Vec<Vec<u8>>>>,
    pub(crate) drops: bool,
    written: u64,
}

impl Writer for SinkWriter {
    fn append(&mut self, bytes: &[u8]) -> situ_storage::Result<()> {
        if !self.drops {
            self.bytes.extend_from_slice(bytes);
        }
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn written(&self) -> u64 {
        self.written
    }

    fn sync(&mut self) -> situ_storage::Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> situ_storage::Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> situ_storage::Result<()> {
        self.spare.lock().expect("no thread has panicked").push(self.bytes);
        Ok(())
    }
}

impl TaskHost for Sink {
    fn reserve(&self, _level: u32) -> situ_storage::Result<TablePlace> {
        Ok(TablePlace { volume: 0, number: 1 })
    }

    fn create(&self, _level: u32, place: TablePlace) -> situ_storage::Result<(TablePlace, Box<dyn Writer>)> {
        let mut bytes = self.spare.lock().expect("no thread has panicked").pop().unwrap_or_default();
        bytes.clear();
        let spare = Arc::clone(&self.spare);
        Ok((place, Box::new(SinkWriter { bytes, spare, drops: self.drops, written: 0 })))
    }

    fn pace(&self, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

/// Four runs of keys `user000000001234`, interleaved, and values whose first half is random.
pub(crate) fn workload(host: &MemoryHost, entries: u64, value_bytes: usize, compression: Compression) -> Outcome<Task> {
    let options = TableOptions { compression, ..TableOptions::default() };
    let key = |i: u64| format!("user{i:012}");
    let mut rng = Rng::new(7);
    let mut inputs = Vec::new();
    for first in 0..4 {
        let (TablePlace { number, .. }, file) = host.new_table(0)?;
        let mut writer = TableWriter::new(file, &options, 0)?;
        let mut value = vec![b'v'; value_bytes];
        for i in (first..entries).step_by(4) {
            for byte in value[..value_bytes / 2].chunks_mut(8) {
                byte.copy_from_slice(&rng.next_u64().to_le_bytes()[..byte.len()]);
            }
            writer.add(KeyRef::new(key(i).as_bytes(), Trailer::new(1000 - first, KeyKind::Put)), &value)?;
        }
        writer.finish()?;
        let last = (entries - 1 - first) / 4 * 4 + first;
        inputs.push(vec![host.input(number, KeySpan::including(key(first).as_bytes(), key(last).as_bytes()))]);
    }
    let mut rules = plain_rules();
    rules.output.table = options;
    Ok(Task { id: 1, keyspace: 0, level: 0, inputs, rules })
}

/// The processor time of this thread.
pub(crate) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Makes the case's task. Returns its entries, too.
pub(crate) fn case_of(case: &str) -> Outcome<(Case<'_>, Task, u64)> {
    let parts: Vec<&str> = case.split('/').collect();
    let &[value, codec, mebibytes] = parts.as_slice() else { return Err(format!("no case {case}").into()) };
    let (value_bytes, mebibytes): (usize, u64) = (value.parse()?, mebibytes.parse()?);
    let compression = if codec == "lz4" { Compression::Lz4 } else { Compression::None };
    let entries = (mebibytes << 20) / (value_bytes as u64 + 27);
    let task = workload(&MemoryHost::new(), entries, value_bytes, compression)?;
    Ok((Case { value_bytes, codec, mebibytes }, task, entries))
}

/// A case of the command line: `VALUE_BYTES/none|lz4/MIB`.
pub(crate) struct Case<'a> {
    pub(crate) value_bytes: usize,
    pub(crate) codec: &'a str,
    pub(crate) mebibytes: u64,
}
