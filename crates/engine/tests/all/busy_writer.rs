//! Opening read-only beside a process that gives files up between any two steps of the reader.

use crate::common::*;
use situ_device::Space;
use situ_engine::{Error, Result, Store, StoreBuilder};
use situ_sim::{FaultPlan, Rng, SimExecutor, SimVolume};
use situ_storage::{Error as StorageError, FileMeta, FileName, Lock, PageFile, Reader, Volume, Writer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A reader's view of the disk. Each time that it lists the files, the writer has just given up those that the manifest named when
/// the reader read it.
struct Busy {
    inner: SimVolume,
    writer: Store,
    /// So many times.
    left: AtomicU32,
}

impl Busy {
    fn write(&self) {
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
            return;
        }
        for n in 0..200u32 {
            self.writer.put(n.to_be_bytes(), [7; 1000]).unwrap();
        }
        self.writer.flush().unwrap();
        self.writer.wait_idle().unwrap();
    }
}

impl Volume for Busy {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn create(&self, name: FileName, bound: u64) -> situ_storage::Result<Box<dyn Writer>> {
        self.inner.create(name, bound)
    }
    fn open(&self, name: FileName) -> situ_storage::Result<Arc<dyn Reader>> {
        self.inner.open(name)
    }
    fn create_pages(&self, name: FileName, bytes: u64) -> situ_storage::Result<Arc<dyn PageFile>> {
        self.inner.create_pages(name, bytes)
    }
    fn open_pages(&self, name: FileName) -> situ_storage::Result<Arc<dyn PageFile>> {
        self.inner.open_pages(name)
    }
    fn replace(&self, name: FileName, contents: &[u8]) -> situ_storage::Result<()> {
        self.inner.replace(name, contents)
    }
    fn rename(&self, from: FileName, to: FileName) -> situ_storage::Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, name: FileName) -> situ_storage::Result<()> {
        self.inner.remove(name)
    }
    fn sync_names(&self) -> situ_storage::Result<()> {
        self.inner.sync_names()
    }
    fn list(&self) -> situ_storage::Result<Vec<FileMeta>> {
        self.write();
        self.inner.list()
    }
    fn space(&self) -> Space {
        self.inner.space()
    }
    fn lock(&self) -> situ_storage::Result<Box<dyn Lock>> {
        self.inner.lock()
    }
}

/// Opens a store read-only beside a writer that gives up what the reader is about to read, `times` times.
fn open_beside(times: u32) -> (Result<Option<Vec<u8>>>, u32) {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let env = executor.env();
        let home = SimVolume::new(&env, FaultPlan::none(), 1);
        let mut options = small_options(&mut Rng::new(1));
        options.keyspace.memtable_bytes = 64 << 10;
        let open = |volume: Arc<dyn Volume>, read_only: bool| {
            let builder = StoreBuilder::new(options.clone()).env(env.clone());
            let builder = if read_only { builder.read_only() } else { builder };
            builder.open_volume(volume)
        };
        let writer = open(Arc::new(home.clone()), false).unwrap();
        writer.put(b"a", b"b").unwrap();
        let busy = Arc::new(Busy { inner: home, writer, left: AtomicU32::new(times) });
        let value = open(Arc::clone(&busy) as Arc<dyn Volume>, true).and_then(|reader| reader.get(b"a"));
        let left = busy.left.load(Ordering::Relaxed);
        busy.writer.close().unwrap();
        (value.map(|value| value.map(|value| value.to_vec())), times - left)
    })
}

/// After five attempts, the reader said that the store was damaged: it missed a log file that the manifest had named.
#[test]
fn a_reader_that_the_writer_outruns_says_so_and_not_that_the_store_is_damaged() {
    let (value, attempts) = open_beside(1000);
    assert!(matches!(&value, Err(Error::Changed { .. })), "{value:?}");
    let text = value.unwrap_err().to_string();
    assert!(text.contains("Try again"), "{text}");
    assert!((10..100).contains(&attempts), "{attempts}");
}

#[test]
fn a_reader_tries_until_the_writer_rests() {
    let (value, attempts) = open_beside(12);
    assert_eq!((value.unwrap().as_deref(), attempts), (Some(&b"b"[..]), 12));
}

/// What is found again is told: nothing is gained by more attempts.
#[test]
fn a_file_that_is_missing_in_two_attempts_is_missing() {
    let executor = SimExecutor::new(2);
    executor.run(|| {
        let env = executor.env();
        let home = SimVolume::new(&env, FaultPlan::none(), 2);
        let open = |read_only: bool| {
            let builder = StoreBuilder::new(small_options(&mut Rng::new(2))).env(env.clone());
            let builder = if read_only { builder.read_only() } else { builder };
            builder.open_volume(Arc::new(home.clone()))
        };
        let writer = open(false).unwrap();
        writer.put(b"a", b"b").unwrap();
        writer.close().unwrap();
        let log =
            home.list().unwrap().into_iter().map(|file| file.name).filter(|name| matches!(name, FileName::Log(_)));
        log.for_each(|name| home.remove(name).unwrap());
        let error = open(true).map(drop).unwrap_err();
        assert!(matches!(error, Error::Storage(StorageError::Corruption(_))), "{error}");
    });
}
