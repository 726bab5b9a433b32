//! A directory of an ordinary file system as a [`Volume`].
//!
//! Written-once files go through the page cache in large pieces; write-back is started early, so that the final sync
//! does not have a whole table to write. Page files have two descriptors: one through the page cache for writes that
//! need only survive the process, one with `O_DIRECT` for durable ones. `RWF_DSYNC` is one system call, which uses FUA
//! where the disk has it, and several may be in flight at once. On the first measured machine four threads reach 21,000
//! durable pages a second that way, and 10,000 with `write` + `fdatasync`. The kernel keeps both coherent. Where direct
//! I/O is not supported, durable writes are `pwrite` + `fdatasync`.
//!
//! The room of a page file is reserved when it is made. Before a durable write enters room that was never written, a
//! megabyte behind it is filled with zeros. A durable write into merely reserved room costs a journal commit per page,
//! and this way one per [`ZERO_PIECE_BYTES`]. A store that never asks for durability writes no zeros. A fill covers
//! only what lies behind every write so far, and a writer there waits for it.
//!
//! The directory is opened once, and files are opened relative to it. So the program may change its working directory,
//! and the store's directory may be renamed while it is open. If the directory is removed and another one takes its
//! name, the volume does not touch the new one. `directory/names.rs` has the writer's lock, and detects when file names
//! are lost.
//!
//! Reads that are submitted ([`Reader::submit`]) of all files of the directory go through one ring of the kernel, which
//! one thread serves. Where the system gives no ring, a bounded set of threads reads (`directory/reads.rs`). Both begin
//! with the first such read.
//!
//! **Failure**: an error of `fsync` is final for that file; it is never tried again, because
//! the kernel may have dropped the dirty pages (fsyncgate).

mod names;
mod reads;

use crate::{Error, FileMeta, FileName, Lock, PageFile, ReadRequest, Reader, Result, Volume, Writer};
use names::{Names, is_nameless, is_relied_on};
use reads::{DirectoryRead, DirectoryReads};
use rustix::fs::{
    Advice, AtFlags, CWD, Dir, FallocateFlags, FileType, Mode, OFlags, StatVfs, fadvise, fallocate, fstatvfs, linkat,
    openat, renameat, statat, unlinkat,
};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2, retry_on_intr};
use situ_base::lock;
use situ_device::{Buffer, Drive, Nature, PAGE_BYTES, Space};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Appended bytes collect up to this many before they are handed to the system.
const APPEND_BUFFER_BYTES: usize = 256 << 10;
/// A file that is being written has at most so much, and one call's bytes, that has not reached the disk.
const WRITE_BACK_BYTES: u64 = 8 << 20;
/// The flags for a file that must not exist yet.
const NEW: OFlags = OFlags::CREATE.union(OFlags::EXCL);
/// Zeros are written in pieces of this size.
const ZERO_PIECE_BYTES: usize = 1 << 20;

/// A directory that holds one store's files.
#[derive(Debug)]
pub struct DirectoryVolume {
    /// The directory's path as the caller gave it; for messages.
    directory: PathBuf,
    handle: Arc<File>,
    names: Arc<Names>,
    reads: Arc<DirectoryReads>,
    /// The drive below, once a caller has asked for it.
    drive: OnceLock<Drive>,
}

impl DirectoryVolume {
    /// Makes the writer rely on one more file or device, which another part of the store has open and locked. `path` is
    /// absolute, or begins at the directory. If another program lets it lead elsewhere, the volume has a
    /// [failure](Volume::failure), as for its own files.
    ///
    /// # Errors
    /// There is nothing at `path`, or the system refuses.
    ///
    /// # Panics
    /// The writer relies on such a file already.
    pub fn rely_on(&self, path: impl Into<PathBuf>) -> Result<()> {
        self.names.rely_on(path.into())
    }

    /// Opens a volume over an existing directory.
    ///
    /// # Errors
    /// The path does not exist or is not a directory.
    pub fn open(directory: impl Into<PathBuf>) -> Result<DirectoryVolume> {
        let directory = directory.into();
        match fs::metadata(&directory) {
            Err(e) => Err(Error::io("open", directory.display(), e)),
            Ok(meta) if !meta.is_dir() => {
                Err(Error::Invalid(format!("{} is a file; a store needs a directory", directory.display())))
            }
            Ok(_) => {
                let options =
                    OpenOptions::new().read(true).custom_flags(OFlags::DIRECTORY.bits() as i32).open(&directory);
                let handle = Arc::new(options.map_err(|e| Error::io("open", directory.display(), e))?);
                Ok(DirectoryVolume {
                    names: Names::new(directory.clone(), Arc::clone(&handle)),
                    directory,
                    handle,
                    reads: Arc::default(),
                    drive: OnceLock::new(),
                })
            }
        }
    }

    /// Like [`open`](DirectoryVolume::open), but creates the directory, and those above it, where they do not exist.
    /// Created directories are durable on return. Existing ones need only be searchable.
    ///
    /// # Errors
    /// The system refuses.
    pub fn create(directory: impl Into<PathBuf>) -> Result<DirectoryVolume> {
        let directory = directory.into();
        make_directory(&directory, 0o777)?;
        DirectoryVolume::open(directory)
    }

    /// As [`create`](DirectoryVolume::create), for a copy of a store: a directory that is created belongs to its owner
    /// alone (mode 0700). Those above it, and one that exists, do not.
    ///
    /// # Errors
    /// The system refuses.
    pub fn create_private(directory: impl Into<PathBuf>) -> Result<DirectoryVolume> {
        let directory = directory.into();
        make_directory(&directory, 0o700)?;
        DirectoryVolume::open(directory)
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn drive(&self) -> &Drive {
        self.drive.get_or_init(|| Drive::of(&self.handle).unwrap_or_else(|error| Drive::unknown(error.to_string())))
    }

    /// Returns the path for messages: files are opened by [`open_file`](DirectoryVolume::open_file).
    fn path(&self, name: FileName) -> PathBuf {
        self.directory.join(name.to_string())
    }

    fn open_file(&self, name: FileName, flags: OFlags) -> io::Result<File> {
        let mode = Mode::from_raw_mode(0o666);
        let opened = retry_on_intr(|| openat(&self.handle, name.to_string(), flags | OFlags::CLOEXEC, mode));
        Ok(opened?.into())
    }

    fn new_file(&self, name: FileName) -> Result<FileWriter> {
        let path = self.path(name);
        let file = self.open_file(name, OFlags::WRONLY | NEW).map_err(|e| Error::io("create", path.display(), e))?;
        self.names.made(name).inspect_err(|_| drop(self.remove_file(name)))?;
        Ok(self.writer(file, name, 0))
    }

    /// Returns a writer that goes on behind the first `bytes` bytes of a file.
    fn writer(&self, file: File, name: FileName, bytes: u64) -> FileWriter {
        FileWriter {
            file,
            handle: Arc::clone(&self.handle),
            directory: self.directory.clone(),
            names: Arc::clone(&self.names),
            name,
            path: shown(&self.path(name)),
            buffer: Vec::with_capacity(APPEND_BUFFER_BYTES),
            handed_over: bytes,
            written_back: bytes,
            name_is_durable: false,
        }
    }

    /// Opens an unfinished file and cuts it to `bytes`.
    fn unfinished_file(&self, name: FileName, bytes: u64) -> Result<FileWriter> {
        let path = self.path(name);
        let fail = |e| Error::io("continue", path.display(), e);
        let file = self.open_file(name, OFlags::WRONLY).map_err(fail)?;
        let found = file.metadata().map_err(fail)?.len();
        if found < bytes {
            let expected = format!("{bytes} bytes that were synced");
            return Err(Error::corruption(path.display(), found, "end", expected, format!("{found} bytes")));
        }
        file.set_len(bytes).map_err(fail)?;
        Ok(self.writer(file, name, bytes))
    }

    fn page_file(&self, cached: File, direct: Option<File>, name: FileName) -> Result<DirectoryPageFile> {
        let path = self.path(name);
        let bytes = cached.metadata().map_err(|e| Error::io("open", path.display(), e))?.len();
        Ok(DirectoryPageFile {
            cached,
            direct,
            names: Arc::clone(&self.names),
            name,
            is_new: false,
            path: shown(&path),
            pages: bytes / PAGE_BYTES as u64,
            // A file that existed before counts as written before.
            untouched_from: AtomicU64::new(u64::MAX),
            filling: Mutex::new(()),
        })
    }

    /// Opens a file for direct I/O. Returns `None` where the file system has no direct I/O. Any other failure is an
    /// error: the slower way would hide it.
    fn open_direct(&self, name: FileName) -> Result<Option<File>> {
        match self.open_file(name, OFlags::WRONLY | OFlags::DIRECT) {
            Ok(file) => Ok(Some(file)),
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::INVAL | Errno::OPNOTSUPP)) => Ok(None),
            Err(e) => Err(Error::io("open for direct I/O", self.path(name).display(), e)),
        }
    }

    fn remove_file(&self, name: FileName) -> io::Result<()> {
        let _held = self.names.let_go(name);
        Ok(unlinkat(&self.handle, name.to_string(), AtFlags::empty())?)
    }

    /// Renames a file. The caller then registers the new name with [`made`](Names::made).
    fn rename_file(&self, from: FileName, to: FileName) -> io::Result<()> {
        let _held = [from, to].map(|name| self.names.let_go(name));
        Ok(renameat(&self.handle, from.to_string(), &self.handle, to.to_string())?)
    }
}

/// Returns the names in a directory, sorted, without the `lost+found` of a file system. A name that is no text has a
/// replacement character.
///
/// # Errors
/// The system refuses.
pub fn names_in(directory: &Path) -> Result<Vec<String>> {
    let fail = |e| Error::io("list", directory.display(), e);
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(fail)? {
        names.push(entry.map_err(fail)?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| name != "lost+found");
    names.sort();
    Ok(names)
}

/// Makes a directory with this mode, and those above it, unless they exist.
fn make_directory(directory: &Path, mode: u32) -> Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let parent = match directory.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        // The root, or no name at all.
        None => return Ok(()),
    };
    make_directory(parent, 0o777)?;
    match DirBuilder::new().mode(mode).create(directory) {
        Ok(()) => {}
        // Another thread or process was faster; or it is a file, and opening says so.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(e) => return Err(Error::io("create", directory.display(), e)),
    }
    let opened = File::open(parent).map_err(|e| Error::io("sync", parent.display(), e));
    opened.and_then(|handle| sync_directory(&handle, parent)).inspect_err(|_| {
        // The next try would find it and take it for durable.
        let _ = fs::remove_dir(directory);
    })
}

fn sync_directory(handle: &File, directory: &Path) -> Result<()> {
    handle.sync_all().map_err(|e| Error::io("sync", directory.display(), e))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

impl Volume for DirectoryVolume {
    fn location(&self) -> String {
        shown(&self.directory)
    }

    fn create(&self, name: FileName, _bound: u64) -> Result<Box<dyn Writer>> {
        Ok(Box::new(self.new_file(name)?))
    }

    fn resume(&self, name: FileName, bytes: u64) -> Result<Box<dyn Writer>> {
        Ok(Box::new(self.unfinished_file(name, bytes)?))
    }

    fn open(&self, name: FileName) -> Result<Arc<dyn Reader>> {
        let path = self.path(name);
        let file = self.open_file(name, OFlags::RDONLY).map_err(|e| Error::io("open", path.display(), e))?;
        let bytes = file.metadata().map_err(|e| Error::io("open", path.display(), e))?.len();
        // Point reads dominate; sequential readers say so with `prefetch`.
        let _ = fadvise(&file, 0, None, Advice::Random);
        let open = Arc::new(OpenFile { file: Arc::new(file), path: shown(&path) });
        Ok(Arc::new(FileReader { open, bytes, cannot_tell: AtomicBool::new(false), reads: Arc::clone(&self.reads) }))
    }

    fn link(&self, name: FileName, file: &dyn Reader) -> Result<bool> {
        // A store erases dead values in its segments, which would change the other name's file.
        if matches!(name, FileName::Values(_)) {
            return Ok(false);
        }
        let Some(file) = file.file() else { return Ok(false) };
        // The file may have another name by now than the one that its reader knows.
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        match linkat(CWD, open, &self.handle, name.to_string(), AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => self.names.made(name).map(|()| true),
            Err(Errno::EXIST) => Err(Error::io("link", self.path(name).display(), Errno::EXIST.into())),
            // Another file system, or one without links; a file of another user; too many names; no /proc.
            Err(_) => Ok(false),
        }
    }

    fn create_pages(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        let path = self.path(name);
        let fail = |op, e| Error::io(op, path.display(), e);
        let bytes = bytes.next_multiple_of(PAGE_BYTES as u64);
        // A reservation that fails may hold all that is left until it is taken back, and others write meanwhile. A file
        // system that does not tell its size has no blocks at all.
        let is_full = |s: StatVfs| s.f_blocks > 0 && s.f_bfree.saturating_mul(s.f_frsize) < bytes;
        if fstatvfs(&self.handle).is_ok_and(is_full) {
            return Err(Error::NoSpace { op: "reserve room for", path: shown(&path) });
        }
        let file = self.open_file(name, OFlags::RDWR | NEW).map_err(|e| fail("create", e))?;
        let finish = || {
            self.names.made(name)?;
            let is_reserved = reserve(&file, bytes).map_err(|e| fail("reserve room for", e))?;
            self.sync_names()?;
            let mut pages = self.page_file(file, self.open_direct(name)?, name)?;
            pages.is_new = true;
            if is_reserved {
                pages.untouched_from = AtomicU64::new(0);
            }
            Ok(Arc::new(pages) as Arc<dyn PageFile>)
        };
        finish().inspect_err(|_| {
            // A half-made file must not take room that is missing, nor the name when the caller tries again.
            let _ = self.remove_file(name);
        })
    }

    fn open_pages(&self, name: FileName) -> Result<Arc<dyn PageFile>> {
        let path = self.path(name);
        let fail = |e| Error::io("open", path.display(), e);
        let pages = match self.open_file(name, OFlags::RDWR) {
            Ok(file) => self.page_file(file, self.open_direct(name)?, name)?,
            // A store opened read-only may lie on a read-only file system.
            Err(e) if matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
                self.page_file(self.open_file(name, OFlags::RDONLY).map_err(fail)?, None, name)?
            }
            Err(e) => return Err(fail(e)),
        };
        Ok(Arc::new(pages))
    }

    fn replace(&self, name: FileName, contents: &[u8]) -> Result<()> {
        let path = self.path(name);
        // A name that the owner of the volume removes like any other unfinished file, should a crash leave it here.
        let temporary = FileName::REPLACEMENT;
        let write = || -> io::Result<()> {
            let file = self.open_file(temporary, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
            file.write_all_at(contents, 0)?;
            file.sync_all()?;
            self.rename_file(temporary, name)
        };
        write().map_err(|e| {
            let _ = self.remove_file(temporary);
            Error::io("replace", path.display(), e)
        })?;
        self.names.made(name)?;
        self.sync_names()
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        self.rename_file(from, to).map_err(|e| Error::io("rename", self.path(from).display(), e))?;
        self.names.made(to)
    }

    fn remove(&self, name: FileName) -> Result<()> {
        self.remove_file(name).map_err(|e| Error::io("remove", self.path(name).display(), e))
    }

    fn sync_names(&self) -> Result<()> {
        sync_directory(&self.handle, &self.directory)
    }

    fn list(&self) -> Result<Vec<FileMeta>> {
        let fail = |e: Errno| Error::io("list", self.directory.display(), e.into());
        let mut files = Vec::new();
        for entry in Dir::read_from(&self.handle).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let Some(Ok(name)) = entry.file_name().to_str().ok().map(str::parse) else { continue };
            match statat(&self.handle, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                    files.push(FileMeta { name, bytes: u64::try_from(stat.st_size).unwrap_or(0) });
                }
                Ok(_) => {}
                // Removed by another thread between the two calls.
                Err(Errno::NOENT) => {}
                Err(e) => return Err(fail(e)),
            }
        }
        files.sort_by_key(|f| f.name);
        Ok(files)
    }

    fn space(&self) -> Space {
        let space = fstatvfs(&self.handle).map_or_else(
            |_| Space::default(),
            |s| Space {
                logical_total: s.f_blocks.saturating_mul(s.f_frsize),
                logical_used: s.f_blocks.saturating_sub(s.f_bavail).saturating_mul(s.f_frsize),
                ..Space::default()
            },
        );
        self.drive().add_to(space)
    }

    fn nature(&self) -> Nature {
        self.drive().nature().clone()
    }

    fn troubles(&self) -> Vec<String> {
        let told = |why| format!("submitted reads are done on their callers' threads: {why}");
        self.reads.refused().map(told).into_iter().chain(self.names.unlocked()).collect()
    }

    fn failure(&self) -> Option<Error> {
        self.names.check().err()
    }

    fn check_names_if_due(&self) -> Result<()> {
        self.names.check_if_due()
    }

    fn lock(&self) -> Result<Box<dyn Lock>> {
        self.names.take_lock()
    }
}

/// Takes room for `bytes` bytes. True if they are merely reserved; false if the file system cannot do that, and they
/// had to be written.
fn reserve(file: &File, bytes: u64) -> io::Result<bool> {
    // Older kernels let any signal interrupt it on a tmpfs.
    match retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, bytes)) {
        Ok(()) => {}
        Err(Errno::OPNOTSUPP) => {
            let zeros = vec![0; ZERO_PIECE_BYTES];
            let mut at = 0;
            while at < bytes {
                let piece = (bytes - at).min(ZERO_PIECE_BYTES as u64);
                file.write_all_at(&zeros[..piece as usize], at)?;
                at += piece;
            }
            file.sync_all()?;
            return Ok(false);
        }
        Err(e) => return Err(e.into()),
    }
    file.sync_all()?;
    Ok(true)
}

/// Returns the error for a file that was removed while it was written. Nothing that refers to it may take effect.
fn removed(path: &str) -> Error {
    let text = "another program removed the file while the store wrote it";
    Error::Io { op: "write", path: path.to_owned(), source: Arc::new(io::Error::other(text)) }
}

/// Writes one file from its beginning to its end.
///
/// Written bytes reach the disk in steps of [`WRITE_BACK_BYTES`], and the caller that writes waits for each step.
/// Otherwise the kernel would gather tens of megabytes for every table that is being made and then hand them to the
/// disk at once. On a slower disk, all other syncs queue behind them, above all the few bytes of the manifest that a
/// flush ends with. Bounded memory then fills with pages that cannot be given up.
struct FileWriter {
    file: File,
    handle: Arc<File>,
    directory: PathBuf,
    names: Arc<Names>,
    name: FileName,
    path: String,
    buffer: Vec<u8>,
    handed_over: u64,
    /// Bytes that have reached the disk.
    written_back: u64,
    name_is_durable: bool,
}

impl FileWriter {
    fn fail(&self, op: &'static str, e: io::Error) -> Error {
        Error::io(op, &self.path, e)
    }

    fn hand_over(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, self.handed_over).map_err(|e| self.fail("write", e))?;
        self.handed_over += bytes.len() as u64;
        if self.handed_over - self.written_back >= WRITE_BACK_BYTES { self.write_back() } else { Ok(()) }
    }

    fn write_back(&mut self) -> Result<()> {
        self.file.sync_data().map_err(|e| self.fail("sync", e))?;
        self.written_back = self.handed_over;
        Ok(())
    }
}

impl Writer for FileWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() > APPEND_BUFFER_BYTES {
            self.flush()?;
        }
        if bytes.len() >= APPEND_BUFFER_BYTES {
            return self.hand_over(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn written(&self) -> u64 {
        self.handed_over + self.buffer.len() as u64
    }

    fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.write_back()?;
        if !self.name_is_durable {
            sync_directory(&self.handle, &self.directory)?;
            self.name_is_durable = true;
        }
        if is_relied_on(self.name) {
            self.names.check()?;
        }
        if is_nameless(&self.file) && self.names.is_writer() {
            return Err(removed(&self.path));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.hand_over(&buffer);
        buffer.clear();
        self.buffer = buffer;
        result
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.sync()
    }
}

/// An open file that is only read, and its name for messages.
struct OpenFile {
    file: Arc<File>,
    path: String,
}

struct FileReader {
    open: Arc<OpenFile>,
    bytes: u64,
    /// The file system does not know reads that must not wait.
    cannot_tell: AtomicBool,
    /// The service for reads of all files of the directory.
    reads: Arc<DirectoryReads>,
}

impl Reader for FileReader {
    fn path(&self) -> &str {
        &self.open.path
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn file(&self) -> Option<&File> {
        Some(&self.open.file)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        read_exact(&self.open.file, &self.open.path, offset, into)
    }

    /// Reads the bytes that the page cache has. The system supports that for the file systems in use; the others
    /// refuse, and are not asked again.
    fn read_now(&self, offset: u64, into: &mut [u8]) -> Result<bool> {
        if self.cannot_tell.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let bytes = into.len();
        let read = preadv2(&*self.open.file, &mut [io::IoSliceMut::new(into)], offset, ReadWriteFlags::NOWAIT);
        if matches!(read, Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)) {
            self.cannot_tell.store(true, Ordering::Relaxed);
        }
        // Whatever else it was, `read_at` finds it out and has the words for it.
        Ok(read.is_ok_and(|count| count == bytes))
    }

    fn submit(&self, request: ReadRequest) {
        self.reads.submit(DirectoryRead { open: Arc::clone(&self.open), request }, reads::start);
    }

    fn prefetch(&self, offset: u64, bytes: u64) {
        let _ = fadvise(&*self.open.file, offset, std::num::NonZeroU64::new(bytes), Advice::WillNeed);
    }
}

fn read_exact(file: &File, path: &str, offset: u64, into: &mut [u8]) -> Result<()> {
    file.read_exact_at(into, offset).map_err(|e| read_failed(file, path, offset, into.len(), e))
}

fn read_failed(file: &File, path: &str, offset: u64, wanted: usize, error: io::Error) -> Error {
    if error.kind() != io::ErrorKind::UnexpectedEof {
        return Error::io("read", path, error);
    }
    let bytes = file.metadata().map(|m| m.len()).unwrap_or(0);
    let found = format!("the end of the file at {bytes}");
    Error::corruption(path, offset, "file length", format!("{wanted} bytes"), found)
}

struct DirectoryPageFile {
    cached: File,
    /// `None` where the file system has no direct I/O, and for a file that can only be read.
    direct: Option<File>,
    names: Arc<Names>,
    name: FileName,
    /// True if this process created the file.
    is_new: bool,
    path: String,
    pages: u64,
    /// The offset behind which nothing was ever written, neither pages nor zeros. Moved forward under `filling` only.
    untouched_from: AtomicU64,
    filling: Mutex<()>,
}

impl DirectoryPageFile {
    /// Checks that the file just written can still be found by name. An open file may lose its name.
    fn check_names(&self, is_durable: bool) -> Result<()> {
        if is_durable && is_nameless(&self.cached) {
            self.names.check()?;
            // The volume may remove a log file during a sync of it. Nothing needs the file then.
            if self.is_new && !is_relied_on(self.name) && self.names.is_writer() {
                return Err(removed(&self.path));
            }
        }
        self.names.check_if_due()
    }

    /// Prepares a write that ends at `end`: afterwards no fill touches its pages.
    fn touch(&self, end: u64, durable: bool) -> Result<()> {
        if end <= self.untouched_from.load(Ordering::Acquire) {
            return Ok(());
        }
        let _filling = lock(&self.filling);
        if end <= self.untouched_from.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut touched = end;
        let left = (self.pages * PAGE_BYTES as u64).saturating_sub(end);
        if durable && left > 0 {
            let zeros = Buffer::new(left.min(ZERO_PIECE_BYTES as u64) as usize);
            self.write_bytes(&zeros, end, true)?;
            touched += zeros.len() as u64;
        }
        self.untouched_from.store(touched, Ordering::Release);
        Ok(())
    }

    fn write_bytes(&self, bytes: &[u8], offset: u64, durable: bool) -> Result<()> {
        let fail = |op, e| Error::io(op, &self.path, e);
        if let (true, Some(direct)) = (durable, &self.direct) {
            match self.write_direct(direct, bytes, offset) {
                // The flag or the alignment is not supported here: the plain way below always works.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => {}
                Err(e) => return Err(fail("write", e.into())),
                Ok(()) => return Ok(()),
            }
        }
        self.cached.write_all_at(bytes, offset).map_err(|e| fail("write", e))?;
        if durable { self.sync_bytes() } else { Ok(()) }
    }

    fn sync_bytes(&self) -> Result<()> {
        self.cached.sync_data().map_err(|e| Error::io("sync", &self.path, e))
    }

    fn write_direct(&self, file: &File, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
        while !bytes.is_empty() {
            match pwritev2(file, &[IoSlice::new(bytes)], offset, ReadWriteFlags::DSYNC) {
                Ok(0) => return Err(Errno::IO),
                // A short direct write ends on a sector; what is left is aligned again only on a page.
                Ok(n) => {
                    let whole = n - n % PAGE_BYTES;
                    if whole == 0 {
                        return Err(Errno::IO);
                    }
                    bytes = &bytes[whole..];
                    offset += whole as u64;
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl PageFile for DirectoryPageFile {
    fn path(&self) -> &str {
        &self.path
    }

    fn pages(&self) -> u64 {
        self.pages
    }

    fn writes_wait(&self) -> bool {
        false
    }

    fn write(&self, first: u64, buffer: &Buffer, count: usize, durable: bool) -> Result<()> {
        let bytes = &buffer[..count * PAGE_BYTES];
        assert!(first + count as u64 <= self.pages, "pages {first}+{count} of {} in {}", self.pages, self.path);
        let offset = first * PAGE_BYTES as u64;
        self.touch(offset + bytes.len() as u64, durable)?;
        self.write_bytes(bytes, offset, durable)?;
        self.check_names(durable)
    }

    fn sync(&self) -> Result<()> {
        self.sync_bytes()?;
        self.check_names(true)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        read_exact(&self.cached, &self.path, offset, into)
    }

    /// Punches a hole. The length of the file stays.
    fn discard(&self, first: u64, count: u64) -> Result<bool> {
        assert!(first + count <= self.pages, "pages {first}+{count} of {} in {}", self.pages, self.path);
        let (offset, bytes) = (first * PAGE_BYTES as u64, count * PAGE_BYTES as u64);
        if bytes == 0 {
            return Ok(true);
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match retry_on_intr(|| fallocate(&self.cached, flags, offset, bytes)) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            Err(e) => Err(Error::io("discard pages of", &self.path, e.into())),
        }
    }
}

#[cfg(test)]
mod tests;
