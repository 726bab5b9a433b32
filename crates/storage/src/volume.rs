//! The traits; the module page of the crate has the promises.

use crate::{Error, FileMeta, FileName, ReadRequest, Result};
use situ_device::{Buffer, Geometry, Nature, Space, Watch};
use std::fs::File;
use std::sync::Arc;

/// A place that holds a store's files.
pub trait Volume: Send + Sync {
    /// Returns the place of the volume, for people: a path, a device name.
    fn location(&self) -> String;

    /// Begins a new write-once file of at most about `bound` bytes (a hint for raw volumes to reserve room).
    ///
    /// # Errors
    /// The name is taken, or the system refuses.
    fn create(&self, name: FileName, bound: u64) -> Result<Box<dyn Writer>>;

    /// Goes on with a file whose writer has ended without finishing it, as when the process that wrote it was started
    /// again. The file is cut to its first `bytes` bytes, which must have been [synced](Writer::sync). The caller sees
    /// to it that the file has no other writer. The default cannot do this.
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound); [`Corruption`](crate::Error::Corruption): the file is shorter than that;
    /// [`Invalid`](crate::Error::Invalid): this kind of volume cannot do that; or the system refuses.
    fn resume(&self, name: FileName, bytes: u64) -> Result<Box<dyn Writer>> {
        let _ = bytes;
        Err(crate::Error::Invalid(format!("{}: an unfinished file ({name}) cannot be continued here", self.location())))
    }

    /// Opens a finished file.
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound), or the system refuses.
    fn open(&self, name: FileName) -> Result<Arc<dyn Reader>>;

    /// Gives a finished file of a volume a further name in this one, without a copy. The name is durable after
    /// [`sync_names`](Volume::sync_names). Returns false, and does nothing, if the two cannot share a file. The default
    /// cannot. The file may be a sealed segment of a value log; its store erases dead values in it later. So a volume
    /// shares a segment only if it has a copy of its own.
    ///
    /// # Errors
    /// The name is taken.
    fn link(&self, name: FileName, file: &dyn Reader) -> Result<bool> {
        let (_, _) = (name, file);
        Ok(false)
    }

    /// Reserves a page file of `bytes` (whole pages) whose pages can be written in any order. The name and the room
    /// are durable on return.
    ///
    /// # Errors
    /// The name is taken, [`NoSpace`](crate::Error::NoSpace), or the system refuses. Unless the name was taken, there
    /// is no file of this name then, as far as the system lets it be removed. A crash may bring it back until the next
    /// [`sync_names`](Volume::sync_names).
    fn create_pages(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>>;

    /// Opens a page file as it is.
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound), or the system refuses.
    fn open_pages(&self, name: FileName) -> Result<Arc<dyn PageFile>>;

    /// Puts `contents` in place of a small file, or creates it. Durable and atomic. [`FileName::REPLACEMENT`] may be
    /// used meanwhile, so that one file is replaced at a time.
    ///
    /// # Errors
    /// The system refuses. Then the old contents stand or the new ones do, and a crash may change which. A caller that
    /// has to know does the steps one by one: [`create`](Volume::create), [`rename`](Volume::rename),
    /// [`sync_names`](Volume::sync_names).
    fn replace(&self, name: FileName, contents: &[u8]) -> Result<()>;

    /// Changes a file's name; an existing file of the new name is replaced. Open handles stay usable.
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound), or the system refuses.
    fn rename(&self, from: FileName, to: FileName) -> Result<()>;

    /// Removes a file. Open handles can still be read. A writer of the file may be refused.
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound), or the system refuses.
    fn remove(&self, name: FileName) -> Result<()>;

    /// Makes earlier renames and removals durable.
    ///
    /// # Errors
    /// The system refuses.
    fn sync_names(&self) -> Result<()>;

    /// Returns all files whose names are a store's; strangers are not listed.
    ///
    /// # Errors
    /// The system refuses.
    fn list(&self) -> Result<Vec<FileMeta>>;

    /// Returns the size and use of the underlying disk or file system.
    fn space(&self) -> Space;

    /// Returns the kind of the drive below, and its compression. The default says that nothing is known.
    fn nature(&self) -> Nature {
        Nature::unknown("unknown", format!("{} does not say", self.location()))
    }

    /// Returns the size and use of the area that page files have to themselves; `None` if they share the room that
    /// [`space`](Volume::space) tells of.
    fn log_room(&self) -> Option<Space> {
        None
    }

    /// Returns the geometry of the device on which the volume lies without a file system; `None` for a volume that has
    /// a file system below it.
    fn geometry(&self) -> Option<Geometry> {
        None
    }

    /// Returns the faults of the volume, each with its cause, for people. The volume keeps running without the faulty
    /// part. An error that a caller got need not be listed.
    fn troubles(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the reason why it takes no changes any more until it is opened again; `None` while it does. Its files
    /// can still be read.
    fn failure(&self) -> Option<Error> {
        None
    }

    /// Checks the names that the writer relies on, unless that was done a moment ago. A caller that acknowledges writes
    /// to another volume calls this with each of them, if these writes are found only through this volume. The default
    /// checks nothing.
    ///
    /// # Errors
    /// The [failure](Volume::failure) that the check has found.
    fn check_names_if_due(&self) -> Result<()> {
        Ok(())
    }

    /// Does a part of the work that was put off because no caller waits for it, such as discarding free room on a
    /// device. Returns true if there is more. It takes as long as the device likes: a call for a thread that no other
    /// thread waits for.
    fn tidy(&self) -> bool {
        false
    }

    /// Takes the write lock, until the result is dropped. Any other writer is refused until then, even if files are
    /// removed or renamed. If other programs change names that the writer relies on, the volume has a
    /// [failure](Volume::failure).
    ///
    /// # Errors
    /// [`Locked`](crate::Error::Locked) when another process, or another store in this one, has it.
    fn lock(&self) -> Result<Box<dyn Lock>>;
}

/// The right to write to a volume; given back on drop.
pub trait Lock: Send + Sync {}

/// A write-once file on its way. Dropped unfinished, it leaves a file of unknown contents to be removed by its owner.
pub trait Writer: Send {
    /// Appends bytes. They may stay in memory until [`sync`](Writer::sync), up to a bound that the volume sets. The
    /// caller waits for the bytes of a long file beyond it, in a directory in steps of 8 MiB.
    ///
    /// # Errors
    /// [`NoSpace`](crate::Error::NoSpace) or I/O. After an error, the file must be given up.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Returns the bytes appended so far.
    fn written(&self) -> u64;

    /// Makes all appended bytes, and the name, durable.
    ///
    /// # Errors
    /// As [`append`](Writer::append). After an error nothing is known about what is durable.
    fn sync(&mut self) -> Result<()>;

    /// Hands appended bytes to the operating system: they survive this process. Waits for the disk no more than
    /// [`append`](Writer::append) does, but on a disk without a file system, where it is a [`sync`](Writer::sync).
    ///
    /// # Errors
    /// As [`append`](Writer::append).
    fn flush(&mut self) -> Result<()>;

    /// Syncs and closes; the file is immutable from now on.
    ///
    /// # Errors
    /// As [`sync`](Writer::sync).
    fn finish(self: Box<Self>) -> Result<()>;
}

/// A finished file.
pub trait Reader: Send + Sync {
    /// Its name, with the directory where there is one; for error messages.
    fn path(&self) -> &str;

    /// Returns the length in bytes.
    fn bytes(&self) -> u64;

    /// Returns the file of a file system that it reads, for [`link`](Volume::link). The default has none.
    fn file(&self) -> Option<&File> {
        None
    }

    /// Fills `into` from `offset`.
    ///
    /// # Errors
    /// I/O; a range behind the end is [`Corruption`](crate::Error::Corruption): the file is shorter than its index
    /// says.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Fills `into` from `offset` if that needs no wait: the bytes are in memory, or on a disk that answers about as
    /// soon as another thread would. Returns false if not, or if that is unknown; the contents of `into` are then
    /// undefined.
    ///
    /// # Errors
    /// As [`read_at`](Reader::read_at), if it came to reading.
    fn read_now(&self, _offset: u64, _into: &mut [u8]) -> Result<bool> {
        Ok(false)
    }

    /// Takes a read that completes later. Callers use it through a [`ReadQueue`](crate::ReadQueue), and hold no lock.
    ///
    /// As it stands here, it reads at once on the caller's thread, and has completed the read when it returns. That is
    /// right for bytes in memory, and for wrappers that get few submitted reads.
    ///
    /// An implementation that has many reads in flight keeps each completion with its buffer, and returns. It completes
    /// a read on whichever thread has the answer, with no lock held. It keeps the needed parts of the file until then:
    /// the reader may be dropped meanwhile. A read that it cannot answer is completed with an error, also by dropping
    /// it.
    fn submit(&self, request: ReadRequest) {
        request.run(|offset, into| self.read_at(offset, into));
    }

    /// Says that this range will be read soon. Only a hint.
    fn prefetch(&self, _offset: u64, _bytes: u64) {}
}

/// A file of 4 KB pages, written in place by any number of threads.
pub trait PageFile: Send + Sync {
    /// Its name, with the directory where there is one; for error messages.
    fn path(&self) -> &str;

    /// Its size in pages.
    fn pages(&self) -> u64;

    /// Returns true if a write waits for the device though it need not be durable. Then nothing lies between that could
    /// keep the pages when this process ends.
    fn writes_wait(&self) -> bool;

    /// Writes whole pages from the front of `buffer`, starting at page `first`. On return the pages survive this
    /// process; with `durable`, they survive power failure (earlier non-durable writes to *other* pages may not).
    ///
    /// `count` pages are written; `count * PAGE_BYTES <= buffer.len()`.
    ///
    /// # Errors
    /// I/O. Nothing is known then about the pages in question.
    fn write(&self, first: u64, buffer: &Buffer, count: usize, durable: bool) -> Result<()>;

    /// Makes all pages written before the call durable.
    ///
    /// # Errors
    /// I/O. Nothing is known then about pages that were not durable before.
    fn sync(&self) -> Result<()>;

    /// Fills `into` from byte `offset`.
    ///
    /// # Errors
    /// I/O, or a range behind the end.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Gives back what whole pages take on the disk. On `true` they read as zeros, and take no room where the disk can
    /// do that. After a crash they hold zeros or what was there before, sector by sector, until a
    /// [`sync`](PageFile::sync). The pages can be written again. `false`: this kind of file cannot do it, and nothing
    /// has changed. The default cannot.
    ///
    /// A read of other pages that runs at the same time is not disturbed.
    ///
    /// # Errors
    /// I/O. The pages hold zeros then, or what was there before.
    fn discard(&self, first: u64, count: u64) -> Result<bool> {
        let _ = (first, count);
        Ok(false)
    }

    /// Opens a queue for writes of one thread that are in flight together. `None`: writes are calls. The default has
    /// none.
    fn queue(&self) -> Option<Box<dyn PageQueue>> {
        None
    }
}

/// The writes to a [`PageFile`] that one thread has in flight. Dropping it waits for what the device has, and gives up
/// the rest.
pub trait PageQueue: Send {
    /// Begins to write whole pages, starting at page `first`, and returns the number of the write. The pages are
    /// copied. What has ended well has the promise of [`PageFile::write`].
    fn begin(&mut self, first: u64, pages: &[u8], durable: bool) -> u64;

    /// Waits until a write has ended, until `is_called`, or for a while. Adds the number and the outcome of each write
    /// that has ended to `ended`. A thread that makes `is_called` true wakes the [watch](PageQueue::watch) after that.
    fn wait(&mut self, ended: &mut Vec<(u64, Result<()>)>, is_called: &dyn Fn() -> bool);

    /// Returns the watch by which other threads end a [`wait`](PageQueue::wait).
    fn watch(&self) -> Arc<dyn Watch>;
}
