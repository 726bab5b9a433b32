//! A store's directory on the node, made when the first client is given the right to write.
//!
//! Until then there are no files. Looking at a store that does not exist makes nothing.

use situ_storage::{
    DirectoryVolume, Error, FileMeta, FileName, Geometry, Lock, Nature, PageFile, Reader, Result, Space, Volume, Writer,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// See the module's page.
pub(super) struct Home {
    directory: PathBuf,
    /// The directory that it is made in.
    above: DirectoryVolume,
    /// Directories that there may be in that one.
    stores_max: usize,
    made: OnceLock<DirectoryVolume>,
}

impl Home {
    /// # Errors
    /// The directory above cannot be opened, or the store's own one that exists.
    pub(super) fn find(above: &Path, name: &str, stores_max: usize) -> Result<Home> {
        let directory = above.join(name);
        let home = Home { above: DirectoryVolume::open(above)?, stores_max, made: OnceLock::new(), directory };
        match DirectoryVolume::open(&home.directory) {
            Ok(found) => drop(home.made.set(found)),
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(home)
    }

    fn there(&self) -> Option<&DirectoryVolume> {
        self.made.get()
    }

    fn found(&self, name: FileName) -> Result<&DirectoryVolume> {
        let path = || self.directory.join(name.to_string()).display().to_string();
        self.there().ok_or_else(|| Error::NotFound { path: path() })
    }

    fn check_limit(&self) -> Result<()> {
        let above = self.above.directory();
        let stores = fs::read_dir(above).map_err(|error| Error::io("list", above.display(), error))?;
        let stores = stores.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).count();
        match stores < self.stores_max {
            true => Ok(()),
            false => {
                Err(Error::Invalid(format!("the node keeps {stores} stores, and its limit is {}", self.stores_max)))
            }
        }
    }

    fn make(&self) -> Result<&DirectoryVolume> {
        if let Some(made) = self.there() {
            return Ok(made);
        }
        self.check_limit()?;
        let made = DirectoryVolume::create(&self.directory)?;
        Ok(self.made.get_or_init(|| made))
    }
}

impl Volume for Home {
    fn location(&self) -> String {
        self.directory.display().to_string()
    }

    fn create(&self, name: FileName, bound: u64) -> Result<Box<dyn Writer>> {
        self.make()?.create(name, bound)
    }

    fn open(&self, name: FileName) -> Result<Arc<dyn Reader>> {
        self.found(name)?.open(name)
    }

    fn create_pages(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        self.make()?.create_pages(name, bytes)
    }

    fn open_pages(&self, name: FileName) -> Result<Arc<dyn PageFile>> {
        self.found(name)?.open_pages(name)
    }

    fn replace(&self, name: FileName, contents: &[u8]) -> Result<()> {
        self.make()?.replace(name, contents)
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        self.found(from)?.rename(from, to)
    }

    fn remove(&self, name: FileName) -> Result<()> {
        self.found(name)?.remove(name)
    }

    fn sync_names(&self) -> Result<()> {
        self.make()?.sync_names()
    }

    fn list(&self) -> Result<Vec<FileMeta>> {
        self.there().map_or(Ok(Vec::new()), Volume::list)
    }

    fn space(&self) -> Space {
        self.there().unwrap_or(&self.above).space()
    }

    fn nature(&self) -> Nature {
        self.there().unwrap_or(&self.above).nature()
    }

    fn geometry(&self) -> Option<Geometry> {
        self.there()?.geometry()
    }

    fn troubles(&self) -> Vec<String> {
        self.there().map(Volume::troubles).unwrap_or_default()
    }

    fn failure(&self) -> Option<Error> {
        self.there()?.failure()
    }

    fn lock(&self) -> Result<Box<dyn Lock>> {
        self.make()?.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_makes_nothing_and_the_right_to_write_makes_the_directory() {
        let above = tempfile::tempdir().unwrap();
        let home = Home::find(above.path(), "shop", 1).unwrap();
        assert!(home.list().unwrap().is_empty());
        assert!(matches!(home.open(FileName::Current), Err(Error::NotFound { .. })));
        assert!(matches!(home.remove(FileName::Current), Err(Error::NotFound { .. })));
        assert!(home.space().logical_total > 0);
        assert!(!above.path().join("shop").exists());
        let _lock = home.lock().unwrap();
        home.replace(FileName::Current, b"one").unwrap();
        assert!(Home::find(above.path(), "stock", 1).unwrap().lock().is_err(), "one store is the limit");
        let again = Home::find(above.path(), "shop", 1).unwrap();
        assert_eq!(again.open(FileName::Current).unwrap().bytes(), 3);
    }
}
