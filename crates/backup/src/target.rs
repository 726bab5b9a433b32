//! The volume into which a store makes a checkpoint that becomes a backup.
//!
//! 1. The store offers each table and each sealed segment ([`link`](Volume::link)). If the pool has its content, that
//!    is all. A file that the store's number makes known is compared at both ends. Any other file is compared with the
//!    contents of its length and first page.
//! 2. The store writes all else: at its own pace, and into the workplace. A finished table and a synced page file move
//!    into the pool at once, under the hash of their contents. So an interrupted backup keeps what it has copied.
//! 3. At the end the rest moves, the manifest and the small files ([`finish`](Target::finish)).
//!
//! **Invariants.** A file in the pool has the contents that its name says, and they are durable. Nothing writes to it
//! again: a page file is synced once, at its end.
//!
//! **Threads.** The store's caller. The trait asks for more, so the state has a lock.

use crate::content::{Content, Kind, are_equal, ends_are_equal, first_page, first_page_of};
use crate::directory::{Backups, OnBytes};
use crate::disk::{self, failed, length_of, parts_with_data};
use crate::metadata::Entry;
use situ_base::lock;
use situ_storage::{
    Buffer, DirectoryVolume, Error, FileMeta, FileName, Lock, PAGE_BYTES, PageFile, Reader, Result, Space, Volume,
    Writer,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use xxhash_rust::xxh3::Xxh3;

/// See the [module](self).
#[derive(Clone)]
pub(crate) struct Target(Arc<Shared>);

struct Shared {
    backups: Backups,
    workplace: PathBuf,
    /// The workplace as a volume.
    files: DirectoryVolume,
    /// The files of the backup from which the store descends.
    base: BTreeMap<FileName, Entry>,
    /// The contents of the pool before this backup, by kind and length.
    by_bytes: HashMap<(Kind, u64), Vec<Content>>,
    on_bytes: OnBytes,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    made: Made,
    /// The files that the store has offered.
    offered: HashSet<FileName>,
    /// The hashes of first pages in the pool, as far as they were compared. `None`: the file cannot be read.
    first_pages: HashMap<Content, Option<u128>>,
}

/// The files of a backup, and what the pool took for them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Made {
    pub(crate) entries: BTreeMap<FileName, Entry>,
    /// Tables and segments that the pool had.
    pub(crate) kept_files: u64,
    /// Contents that are new in the pool.
    pub(crate) added_files: u64,
    /// The bytes that these take; holes do not count.
    pub(crate) added_bytes: u64,
}

impl Target {
    pub(crate) fn new(
        backups: &Backups,
        base: BTreeMap<FileName, Entry>,
        on_bytes: OnBytes,
    ) -> situ_engine::Result<Target> {
        let workplace = backups.workplace()?;
        disk::make_directory(&backups.pool())?;
        let mut by_bytes: HashMap<_, Vec<Content>> = HashMap::new();
        for content in backups.contents()? {
            by_bytes.entry((content.kind, content.bytes)).or_default().push(content);
        }
        let files = DirectoryVolume::open(&workplace)?;
        let (backups, state) = (backups.clone(), Mutex::default());
        Ok(Target(Arc::new(Shared { backups, workplace, files, base, by_bytes, on_bytes, state })))
    }

    /// Moves the files that are left into the pool, and makes the names there durable. Returns all files of the backup.
    pub(crate) fn finish(&self) -> Result<Made> {
        let shared = &self.0;
        for FileMeta { name, .. } in shared.files.list()? {
            if name != FileName::Lock {
                shared.adopt(name, Content::of_file(&shared.path(name), Kind::of(name))?)?;
            }
        }
        disk::sync(&shared.backups.pool())?;
        disk::sync(shared.backups.directory())?;
        Ok(lock(&shared.state).made.clone())
    }
}

impl Shared {
    fn path(&self, name: FileName) -> PathBuf {
        self.workplace.join(name.to_string())
    }

    /// Moves a finished, durable file into the pool. One of the same content is replaced: it may be damaged.
    fn adopt(&self, name: FileName, content: Content) -> Result<()> {
        let (from, to) = (self.path(name), self.backups.path_of(&content));
        let is_new = length_of(&to)? != Some(content.bytes);
        let taken = std::fs::metadata(&from).map_err(failed("open", &from))?;
        disk::rename(&from, &to)?;
        let mut state = lock(&self.state);
        if is_new {
            state.made.added_files += 1;
            state.made.added_bytes += content.bytes.min(taken.blocks() * 512);
        }
        let is_final = state.offered.contains(&name);
        state.made.entries.insert(name, Entry { content, is_final });
        Ok(())
    }

    /// Returns the content of a file of the store, if the pool has it.
    fn find(&self, name: FileName, file: &dyn Reader) -> Result<Option<Content>> {
        let kind = Kind::of(name);
        let known = self.base.get(&name).filter(|entry| entry.is_final && entry.content.bytes == file.bytes());
        if let Some(Entry { content, .. }) = known
            && self.has(content)?
            && ends_are_equal(&self.backups.path_of(content), file)?
        {
            return Ok(Some(*content));
        }
        let Some(candidates) = self.by_bytes.get(&(kind, file.bytes())) else { return Ok(None) };
        // Segments have one length, and the pool can have thousands.
        let first = Some(first_page(file)?);
        for content in candidates {
            if self.first_page_of(content) == first
                && self.has(content)?
                && are_equal(&self.backups.path_of(content), file)?
            {
                return Ok(Some(*content));
            }
        }
        Ok(None)
    }

    fn first_page_of(&self, content: &Content) -> Option<u128> {
        let read = || first_page_of(&self.backups.path_of(content), content.bytes);
        *lock(&self.state).first_pages.entry(*content).or_insert_with(read)
    }

    fn has(&self, content: &Content) -> Result<bool> {
        Ok(length_of(&self.backups.path_of(content))? == Some(content.bytes))
    }
}

impl Volume for Target {
    fn location(&self) -> String {
        self.0.backups.shown()
    }

    fn create(&self, name: FileName, bound: u64) -> Result<Box<dyn Writer>> {
        disk::step();
        let inner = self.0.files.create(name, bound)?;
        Ok(match Kind::of(name) {
            Kind::Table => Box::new(TableWriter { inner, hash: Xxh3::new(), name, shared: Arc::clone(&self.0) }),
            _ => inner,
        })
    }

    fn open(&self, name: FileName) -> Result<Arc<dyn Reader>> {
        self.0.files.open(name)
    }

    /// Takes a content of the pool for a table or a sealed segment.
    fn link(&self, name: FileName, file: &dyn Reader) -> Result<bool> {
        disk::step();
        let found = self.0.find(name, file)?;
        let mut state = lock(&self.0.state);
        state.offered.insert(name);
        if let Some(content) = found {
            state.made.entries.insert(name, Entry { content, is_final: true });
            state.made.kept_files += 1;
        }
        Ok(found.is_some())
    }

    fn create_pages(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        disk::step();
        let path = self.0.path(name);
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(failed("create", &path))?;
        let pages = bytes.div_ceil(PAGE_BYTES as u64);
        let reserved = file.set_len(pages * PAGE_BYTES as u64).and_then(|()| file.sync_all());
        reserved.map_err(failed("create", &path))?;
        let shown = path.display().to_string();
        Ok(Arc::new(Pages { file, name, shown, pages, is_done: AtomicBool::new(false), shared: Arc::clone(&self.0) }))
    }

    fn open_pages(&self, name: FileName) -> Result<Arc<dyn PageFile>> {
        Err(Error::Invalid(format!("{}: {name} of a backup is written once", self.location())))
    }

    fn replace(&self, name: FileName, contents: &[u8]) -> Result<()> {
        disk::step();
        self.0.files.replace(name, contents)
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        disk::step();
        self.0.files.rename(from, to)
    }

    fn remove(&self, name: FileName) -> Result<()> {
        self.0.files.remove(name)
    }

    fn sync_names(&self) -> Result<()> {
        disk::step();
        self.0.files.sync_names()
    }

    fn list(&self) -> Result<Vec<FileMeta>> {
        self.0.files.list()
    }

    fn space(&self) -> Space {
        self.0.files.space()
    }

    fn lock(&self) -> Result<Box<dyn Lock>> {
        self.0.files.lock()
    }
}

/// A table on its way into the pool.
struct TableWriter {
    inner: Box<dyn Writer>,
    hash: Xxh3,
    name: FileName,
    shared: Arc<Shared>,
}

impl Writer for TableWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        disk::step();
        self.hash.update(bytes);
        (self.shared.on_bytes)(bytes.len() as u64);
        self.inner.append(bytes)
    }

    fn written(&self) -> u64 {
        self.inner.written()
    }

    fn sync(&mut self) -> Result<()> {
        self.inner.sync()
    }

    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let TableWriter { inner, hash, name, shared } = *self;
        let content = Content { kind: Kind::of(name), bytes: inner.written(), hash: hash.digest128() };
        inner.finish()?;
        shared.adopt(name, content)
    }
}

/// A segment or a log file on its way into the pool: pages of zeros are holes.
struct Pages {
    file: File,
    name: FileName,
    shown: String,
    pages: u64,
    /// The file is in the pool.
    is_done: AtomicBool,
    shared: Arc<Shared>,
}

impl PageFile for Pages {
    fn path(&self) -> &str {
        &self.shown
    }

    fn pages(&self) -> u64 {
        self.pages
    }

    fn writes_wait(&self) -> bool {
        false
    }

    fn write(&self, first: u64, buffer: &Buffer, count: usize, durable: bool) -> Result<()> {
        disk::step();
        assert!(!self.is_done.load(Ordering::Relaxed), "{} is written after its end", self.shown);
        assert!(first + count as u64 <= self.pages, "pages {first}+{count} of {} in {}", self.pages, self.shown);
        let bytes = &buffer[..count * PAGE_BYTES];
        (self.shared.on_bytes)(bytes.len() as u64);
        let write = || {
            for part in parts_with_data(bytes) {
                self.file.write_all_at(&bytes[part.clone()], first * PAGE_BYTES as u64 + part.start as u64)?;
            }
            if durable { self.file.sync_data() } else { Ok(()) }
        };
        write().map_err(|error| Error::io("write", &self.shown, error))
    }

    /// Moves the file into the pool: the copy of a page file ends with its only sync.
    fn sync(&self) -> Result<()> {
        disk::step();
        self.file.sync_all().map_err(|error| Error::io("sync", &self.shown, error))?;
        if self.is_done.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let content = Content::of_file(&self.shared.path(self.name), Kind::of(self.name))?;
        self.shared.adopt(self.name, content)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(into, offset).map_err(|error| Error::io("read", &self.shown, error))
    }
}
