//! The place of a calibration's tables: a directory of its own, or a node's volume that holds nothing.

use super::failed;
use crate::error::{Error, Result};
use crate::stop::Stop;
use situ_compaction::{TablePlace, TaskHost};
use situ_storage::{DirectoryVolume, FileName, Lock, Reader, Volume, Writer};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The subdirectory.
const NAME: &str = "calibrate";

/// Tables that are gone when this is dropped, and the directories that were made for them.
pub(super) struct Place {
    host: Arc<Host>,
    directory: Option<PathBuf>,
    /// Directories that were made, the deepest first.
    made: Vec<PathBuf>,
    /// The lock that keeps the volume to this run.
    lock: Option<Box<dyn Lock>>,
    stop: Stop,
    is_closed: bool,
}

/// Gives runs their places.
pub(super) struct Host {
    volume: Arc<dyn Volume>,
    next: AtomicU64,
    stop: Stop,
}

impl TaskHost for Host {
    fn reserve(&self, _level: u32) -> situ_storage::Result<TablePlace> {
        Ok(TablePlace { volume: 0, number: self.next.fetch_add(1, Ordering::Relaxed) })
    }

    fn create(&self, _level: u32, place: TablePlace) -> situ_storage::Result<(TablePlace, Box<dyn Writer>)> {
        Ok((place, self.volume.create(FileName::Table(place.number), 0)?))
    }

    fn pace(&self, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        self.stop.is_asked()
    }
}

impl Place {
    /// Creates a place in a new subdirectory of `directory`, which is made if it is missing.
    pub(super) fn in_directory(directory: &Path, stop: &Stop) -> Result<Place> {
        let path = directory.join(NAME);
        if path.exists() {
            return Err(Error::Directory(format!(
                "{} is there already; remove it if an earlier calibration has left it, or name another --directory",
                path.display()
            )));
        }
        let missing = path.ancestors().filter(|above| !above.as_os_str().is_empty() && !above.exists());
        let made: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        fs::create_dir_all(&path).map_err(|error| Error::file(&path, error))?;
        let volume = DirectoryVolume::open(&path).map_err(failed);
        let volume = volume.inspect_err(|_| remove_directories(&made))?;
        Ok(Place::new(Arc::new(volume), Some(path), made, None, stop))
    }

    /// Creates a place on a node's volume.
    pub(super) fn on_node(volume: Arc<dyn Volume>, stop: &Stop) -> Result<Place> {
        let lock = volume.lock().map_err(failed)?;
        if let Some(file) = volume.list().map_err(failed)?.first() {
            return Err(Error::Directory(format!(
                "{} holds {} and perhaps a store; name a store that does not exist yet",
                volume.location(),
                file.name
            )));
        }
        Ok(Place::new(volume, None, Vec::new(), Some(lock), stop))
    }

    fn new(
        volume: Arc<dyn Volume>,
        directory: Option<PathBuf>,
        made: Vec<PathBuf>,
        lock: Option<Box<dyn Lock>>,
        stop: &Stop,
    ) -> Place {
        let host = Arc::new(Host { volume, next: AtomicU64::new(1), stop: stop.clone() });
        Place { host, directory, made, lock, stop: stop.clone(), is_closed: false }
    }

    pub(super) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    pub(super) fn open(&self, number: u64) -> situ_storage::Result<Arc<dyn Reader>> {
        self.host.volume.open(FileName::Table(number))
    }

    pub(super) fn remove(&self, number: u64) -> Result<()> {
        self.host.volume.remove(FileName::Table(number)).map_err(failed)
    }

    /// # Errors
    /// The calibration was stopped.
    pub(super) fn go_on(&self) -> Result<()> {
        if self.stop.is_asked() { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Drops the contents of all tables in a directory from the page cache. They are on the disk: a finished table is
    /// synced.
    pub(super) fn drop_from_cache(&self) {
        let Some(directory) = &self.directory else { return };
        let files = fs::read_dir(directory).into_iter().flatten().flatten();
        for file in files.filter_map(|entry| File::open(entry.path()).ok()) {
            // A file system without a page cache has nothing to drop.
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }

    /// Removes all tables.
    pub(super) fn clear(&self) -> Result<()> {
        let files = self.host.volume.list().map_err(failed)?;
        let tables = files.iter().filter(|file| matches!(file.name, FileName::Table(_)));
        tables.map(|file| file.name).try_for_each(|name| self.host.volume.remove(name)).map_err(failed)?;
        self.host.volume.sync_names().map_err(failed)
    }

    /// Removes everything that was made.
    ///
    /// # Errors
    /// A table cannot be removed.
    pub(super) fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.is_closed = true;
        let cleared = self.clear();
        self.lock = None;
        remove_directories(&self.made);
        cleared
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_closed {
            // The caller already reports an earlier error.
            let _ = self.end();
        }
    }
}

/// Removes these directories. A directory that holds other files stays.
fn remove_directories(made: &[PathBuf]) {
    for directory in made {
        let _ = fs::remove_dir(directory);
    }
}
