//! The builder that opens a store: options, device, environment.

use crate::api::store::HashStore;
use crate::base::events::{Events, OnEvent};
use crate::disk::io::buckets_within;
use crate::disk::options::HashOptions;
use crate::format::superblock::{DEVICE_PATH_BYTES_MAX, Superblock};
use crate::opening::repair::HashRepair;
use crate::opening::{Given, made, open, refuse_device, refuse_other_stores, remembered_device, require_buckets};
use crate::{Error, Result, StoreId};
use situ_base::Env;
use situ_device::{Device, OpenOptions};
use situ_storage::{DirectoryVolume, Error as StorageError, FileName, Volume};
use std::fmt;
use std::fs::{File, OpenOptions as FileOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file with the buckets, in the home directory.
const BUCKETS_FILE: &str = "buckets";
/// The directory of the overflow store, in the home directory.
const OVERFLOW_DIRECTORY: &str = "overflow";

/// A builder that opens a store. [`HashStore::open`] is the short form.
#[derive(Clone)]
pub struct HashStoreBuilder {
    options: HashOptions,
    env: Env,
    device: Option<PathBuf>,
    identity: Option<(StoreId, u64)>,
    on_event: Option<OnEvent>,
}

impl HashStoreBuilder {
    /// Begins with `options`.
    pub fn new(options: HashOptions) -> HashStoreBuilder {
        HashStoreBuilder { options, env: Env::system(), device: None, identity: None, on_event: None }
    }

    /// Sets the device or the file with the buckets. Without one they lie in a sparse file in the home directory. A
    /// store remembers its device; name it again if it has another path now.
    #[must_use]
    pub fn device(mut self, path: impl Into<PathBuf>) -> HashStoreBuilder {
        self.device = Some(path.into());
        self
    }

    /// Sets a source of time and threads other than the operating system.
    #[must_use]
    pub fn env(mut self, env: Env) -> HashStoreBuilder {
        self.env = env;
        self
    }

    /// Calls `on_event` with what a person should know while the store works.
    #[must_use]
    pub fn on_event(mut self, on_event: OnEvent) -> HashStoreBuilder {
        self.on_event = Some(on_event);
        self
    }

    /// Sets identity and seed of a store that is made, so that a simulation is the same each time. Other stores draw
    /// them.
    #[doc(hidden)]
    #[must_use]
    pub fn identity(mut self, store: StoreId, seed: u64) -> HashStoreBuilder {
        self.identity = Some((store, seed));
        self
    }

    /// Opens the store whose home is a directory.
    ///
    /// # Errors
    /// The directory or the device cannot be used, another process has the store open, the device is another store's,
    /// or something is damaged; the text says what to do.
    pub fn open(self, directory: impl AsRef<Path>) -> Result<HashStore> {
        self.open_directory(directory.as_ref(), None)
    }

    fn open_directory(self, directory: &Path, repair: Option<&mut HashRepair>) -> Result<HashStore> {
        let overflow = directory.join(OVERFLOW_DIRECTORY);
        let make = |path: &Path| match self.options.create_if_missing {
            true => DirectoryVolume::create(path),
            false => DirectoryVolume::open(path),
        };
        let is_new = !directory.join(FileName::Superblock.to_string()).exists();
        if is_new && directory.is_dir() {
            // A store that has lost its superblock is refused before its device.
            made(&DirectoryVolume::open(directory)?)?;
        }
        if let Some(path) = self.device.as_ref().filter(|_| is_new && self.options.create_if_missing) {
            refuse_device(&open_device(path)?, &self.env, &self.options)?;
        }
        let home = Arc::new(make(directory)?);
        refuse_other_stores(&*home)?;
        let made = made(&*home)?;
        let overflow = Arc::new(match &made {
            // A missing directory is not created again: the store has entries there.
            Some(_) => DirectoryVolume::open(&overflow)?,
            None => make(&overflow)?,
        });
        let remembered = remembered_device(&*home)?.map(PathBuf::from);
        let named = self.device.clone().or(remembered);
        let path = match &named {
            Some(path) => path.clone(),
            None => buckets_file(directory, &self.options, made.as_ref())?,
        };
        let device_path = named.map(|path| device_text(&path)).transpose()?;
        let device = open_device(&path)?;
        // The home may be renamed while the store is open. The lock of the device finds a path that has changed since.
        home.rely_on(device_path.as_deref().unwrap_or(BUCKETS_FILE))?;
        self.open_given(Given { home, overflow, device, device_path, identity: None }, repair)
    }

    fn open_given(self, given: Given, repair: Option<&mut HashRepair>) -> Result<HashStore> {
        let opened = open(given, &self.env, self.options, Events::new(self.on_event), repair)?;
        HashStore::start(opened)
    }

    /// Makes the damaged store in a directory usable again: what is damaged is left out, everything else is kept. The
    /// report says what is lost. A sound store loses nothing. The blocks of damaged buckets are set aside in a file of
    /// the directory.
    ///
    /// All buckets are read three times, and all large values once.
    ///
    /// # Errors
    /// There is no store, or it is open; the device is missing or is another store's; no slot of the superblock is
    /// sound; a disk is full or refuses to read or write. A repair that has failed can be repeated.
    pub fn repair(mut self, directory: impl AsRef<Path>) -> Result<HashRepair> {
        self.options.create_if_missing = false;
        let mut report = HashRepair::default();
        if made(&DirectoryVolume::open(directory.as_ref())?)?.is_none() {
            return Err(Error::Existence(format!("there is no hash store in {}", directory.as_ref().display())));
        }
        let overflow = directory.as_ref().join(OVERFLOW_DIRECTORY);
        let repaired = situ_engine::repair_directory(&overflow, situ_engine::RepairOptions::default())?;
        report.overflow = (!repaired.was_sound).then(|| Box::new(repaired));
        let store = self.open_directory(directory.as_ref(), Some(&mut report))?;
        store.delete_lost_values(&mut report)?;
        store.close()?;
        Ok(report)
    }

    /// Opens the store whose home and whose overflow are volumes, and whose buckets lie on `device`.
    ///
    /// # Errors
    /// As [`open`](HashStoreBuilder::open).
    pub fn open_volumes(
        self,
        home: Arc<dyn Volume>,
        overflow: Arc<dyn Volume>,
        device: Arc<dyn Device>,
    ) -> Result<HashStore> {
        refuse_other_stores(&*home)?;
        let identity = self.identity;
        self.open_given(Given { home, overflow, device, device_path: None, identity }, None)
    }
}

impl fmt::Debug for HashStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashStoreBuilder").field("options", &self.options).field("device", &self.device).finish()
    }
}

fn open_device(path: &Path) -> Result<Arc<dyn Device>> {
    let opened = situ_device::open(path, OpenOptions::default());
    opened.map_err(|error| StorageError::io("open", path.display(), error).into())
}

/// Returns the path of a device as the superblock remembers it: whole, so that it is found from another directory, too.
fn device_text(path: &Path) -> Result<String> {
    let whole = situ_device::absolute(path).map_err(|error| StorageError::io("find", path.display(), error))?;
    let text = whole.to_str().filter(|text| text.len() <= DEVICE_PATH_BYTES_MAX);
    text.map(str::to_owned).ok_or_else(|| {
        Error::Invalid(format!(
            "the path of the device, {}, is to be UTF-8 of at most {DEVICE_PATH_BYTES_MAX} bytes",
            path.display()
        ))
    })
}

/// Makes the file with the buckets: as long as the options say, or as long as it is if it is longer. The file of a
/// store that was `made` is there, and holds all buckets: zeros behind its end would pass for empty buckets.
fn buckets_file(directory: &Path, options: &HashOptions, made: Option<&Superblock>) -> Result<PathBuf> {
    let path = directory.join(BUCKETS_FILE);
    if let Some(superblock) = made {
        let found = std::fs::metadata(&path).map_err(|error| StorageError::io("open", path.display(), error))?;
        require_buckets(&path.display().to_string(), buckets_within(found.len()), superblock)?;
    }
    let creates = options.create_if_missing && made.is_none();
    let make = || {
        let file = FileOptions::new().write(true).create(creates).truncate(false).open(&path)?;
        if file.metadata()?.len() < options.bucket_space_bytes {
            file.set_len(options.bucket_space_bytes)?;
        }
        file.sync_all()?;
        // The name, too.
        File::open(directory)?.sync_all()
    };
    make().map_err(|error| StorageError::io("create", path.display(), error))?;
    Ok(path)
}

impl HashStore {
    /// Opens the store in a directory, or makes one.
    ///
    /// # Errors
    /// As [`HashStoreBuilder::open`].
    pub fn open(directory: impl AsRef<Path>, options: HashOptions) -> Result<HashStore> {
        HashStoreBuilder::new(options).open(directory)
    }
}
