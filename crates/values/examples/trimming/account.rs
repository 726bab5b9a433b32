//! A volume that counts what its pages would take, and what writing them would cost, on a drive that compresses each 4 KB sector
//! with LZ4. A sector of zeros, and a discarded one, takes nothing. A sector that does not shrink takes 4096 bytes.

use lz4_flex::block::{compress_into, get_maximum_output_size};
use situ_base::lock;
use situ_storage::{Buffer, FileMeta, FileName, Lock, PAGE_BYTES, PageFile, Reader, Result, Space, Volume, Writer};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Sums, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    /// What all sectors take now, compressed.
    pub(crate) used: AtomicU64,
    /// What was written, compressed and as it is.
    pub(crate) written: AtomicU64,
    pub(crate) logical_written: AtomicU64,
    /// What was read of page files: that is trimming alone. Compressed.
    pub(crate) trimming_read: AtomicU64,
}

impl Sums {
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    pub(crate) fn counts(&self) -> [u64; 3] {
        [&self.written, &self.logical_written, &self.trimming_read].map(|sum| sum.load(Relaxed))
    }
}

type Costs = Arc<Mutex<Vec<u16>>>;

/// Counts, and hands everything on.
pub(crate) struct Accounted {
    inner: Arc<dyn Volume>,
    pub(crate) sums: Arc<Sums>,
    files: Mutex<BTreeMap<FileName, Costs>>,
}

impl Accounted {
    pub(crate) fn new(inner: Arc<dyn Volume>) -> Accounted {
        Accounted { inner, sums: Arc::default(), files: Mutex::default() }
    }

    fn costs(&self, name: FileName, pages: u64) -> Costs {
        let mut files = lock(&self.files);
        Arc::clone(files.entry(name).or_insert_with(|| Arc::new(Mutex::new(vec![0; pages as usize]))))
    }
}

/// What a sector takes.
pub(crate) fn cost(sector: &[u8]) -> u16 {
    let mut scratch = [0; get_maximum_output_size(PAGE_BYTES)];
    match sector.iter().all(|byte| *byte == 0) {
        true => 0,
        false => compress_into(sector, &mut scratch).map_or(PAGE_BYTES, |bytes| bytes.min(PAGE_BYTES)) as u16,
    }
}

impl Volume for Accounted {
    fn location(&self) -> String {
        self.inner.location()
    }

    fn create(&self, name: FileName, bound: u64) -> Result<Box<dyn Writer>> {
        self.inner.create(name, bound)
    }

    fn open(&self, name: FileName) -> Result<Arc<dyn Reader>> {
        self.inner.open(name)
    }

    fn create_pages(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        let inner = self.inner.create_pages(name, bytes)?;
        let costs = self.costs(name, inner.pages());
        Ok(Arc::new(Pages { inner, costs, sums: Arc::clone(&self.sums) }))
    }

    fn open_pages(&self, name: FileName) -> Result<Arc<dyn PageFile>> {
        let inner = self.inner.open_pages(name)?;
        let costs = self.costs(name, inner.pages());
        Ok(Arc::new(Pages { inner, costs, sums: Arc::clone(&self.sums) }))
    }

    fn replace(&self, name: FileName, contents: &[u8]) -> Result<()> {
        self.inner.replace(name, contents)
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: FileName) -> Result<()> {
        if let Some(costs) = lock(&self.files).remove(&name) {
            let sum: u64 = lock(&costs).iter().map(|cost| u64::from(*cost)).sum();
            self.sums.used.fetch_sub(sum, Relaxed);
        }
        self.inner.remove(name)
    }

    fn sync_names(&self) -> Result<()> {
        self.inner.sync_names()
    }

    fn list(&self) -> Result<Vec<FileMeta>> {
        self.inner.list()
    }

    fn space(&self) -> Space {
        self.inner.space()
    }

    fn lock(&self) -> Result<Box<dyn Lock>> {
        self.inner.lock()
    }
}

struct Pages {
    inner: Arc<dyn PageFile>,
    costs: Costs,
    sums: Arc<Sums>,
}

impl Pages {
    fn set(&self, page: usize, cost: u16) {
        let before = std::mem::replace(&mut lock(&self.costs)[page], cost);
        self.sums.used.fetch_add(u64::from(cost), Relaxed);
        self.sums.used.fetch_sub(u64::from(before), Relaxed);
    }
}

impl PageFile for Pages {
    fn path(&self) -> &str {
        self.inner.path()
    }

    fn pages(&self) -> u64 {
        self.inner.pages()
    }

    fn writes_wait(&self) -> bool {
        self.inner.writes_wait()
    }

    fn write(&self, first: u64, buffer: &Buffer, count: usize, durable: bool) -> Result<()> {
        for (page, sector) in (first as usize..).zip(buffer.chunks_exact(PAGE_BYTES).take(count)) {
            let cost = cost(sector);
            self.set(page, cost);
            self.sums.written.fetch_add(u64::from(cost), Relaxed);
        }
        self.sums.logical_written.fetch_add((count * PAGE_BYTES) as u64, Relaxed);
        self.inner.write(first, buffer, count, durable)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let first = offset as usize / PAGE_BYTES;
        let end = (offset as usize + into.len()).div_ceil(PAGE_BYTES);
        let read: u64 = lock(&self.costs)[first..end].iter().map(|cost| u64::from(*cost)).sum();
        self.sums.trimming_read.fetch_add(read, Relaxed);
        self.inner.read_at(offset, into)
    }

    fn discard(&self, first: u64, count: u64) -> Result<bool> {
        let done = self.inner.discard(first, count)?;
        if done {
            (first..first + count).for_each(|page| self.set(page as usize, 0));
        }
        Ok(done)
    }
}
