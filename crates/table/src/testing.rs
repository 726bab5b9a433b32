//! What the tests of this crate share: files in memory, seeded randomness, small tables.

use crate::{BlockCache, KeyRef, Table, TableOptions, TableSummary, TableWriter};
use situ_storage::{Error, Reader, Result, Writer};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A file in memory; the clone that a test keeps has the bytes after the writer is gone.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryFile(Arc<Mutex<Vec<u8>>>);

impl MemoryFile {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl Writer for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(())
    }

    fn written(&self) -> u64 {
        self.0.lock().unwrap().len() as u64
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Reads from memory and counts.
pub(crate) struct MemoryReader {
    pub(crate) bytes: Vec<u8>,
    pub(crate) reads: AtomicU64,
    /// Whether reads that must not wait are answered.
    pub(crate) is_quick: AtomicBool,
}

impl MemoryReader {
    pub(crate) fn new(bytes: Vec<u8>) -> Arc<MemoryReader> {
        Arc::new(MemoryReader { bytes, reads: AtomicU64::new(0), is_quick: AtomicBool::new(false) })
    }
}

impl Reader for MemoryReader {
    fn path(&self) -> &str {
        "memory.table"
    }

    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let from = usize::try_from(offset).ok().and_then(|at| self.bytes.get(at..)).and_then(|b| b.get(..into.len()));
        match from {
            Some(bytes) => {
                into.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(Error::corruption(self.path(), offset, "file length", "more", self.bytes.len())),
        }
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> Result<bool> {
        let is_quick = self.is_quick.load(Ordering::SeqCst);
        if is_quick { self.read_at(offset, into).map(|()| true) } else { Ok(false) }
    }
}

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// From `SITU_TEST_SEED` if it is set; printed, so that a failure can be run again.
    pub(crate) fn seeded(default: u64) -> Random {
        let seed = std::env::var("SITU_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(default);
        println!("SITU_TEST_SEED={seed}");
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

pub(crate) type OwnedEntry = (Vec<u8>, crate::Trailer, Vec<u8>);

/// Writes a table into memory.
pub(crate) fn build<'a>(
    options: &TableOptions,
    entries: impl IntoIterator<Item = (KeyRef<'a>, &'a [u8])>,
    tombstones: &[(&[u8], u64, &[u8])],
) -> (Vec<u8>, TableSummary) {
    let file = MemoryFile::default();
    let mut writer = TableWriter::new(Box::new(file.clone()), options, 1_700_000_000).unwrap();
    for (key, value) in entries {
        writer.add(key, value).unwrap();
    }
    for (begin, sequence, end) in tombstones {
        writer.add_range_tombstone(begin, *sequence, end).unwrap();
    }
    let summary = writer.finish().unwrap();
    let bytes = file.bytes();
    assert_eq!(summary.bytes, bytes.len() as u64);
    (bytes, summary)
}

/// Opens a table from memory with a cache of its own.
pub(crate) fn open(bytes: Vec<u8>) -> Result<Arc<Table>> {
    Table::open(MemoryReader::new(bytes), 1, BlockCache::new(8 << 20))
}
