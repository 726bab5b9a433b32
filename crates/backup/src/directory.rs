//! A directory of backups: its marker, its lock, and what is in it.

use crate::content::Content;
use crate::disk::{self, UNFINISHED, failed};
use crate::metadata::{self, Backup};
use situ_engine::{Error, Result};
use situ_storage::{DirectoryVolume, Error as StorageError, Lock, Volume, names_in};
use std::fs;
use std::path::{Path, PathBuf};

/// A function that gets numbers of bytes.
pub type OnBytes = std::sync::Arc<dyn Fn(u64) + Send + Sync>;

/// The file that makes a directory one of backups.
const MARKER: &str = "SITU-BACKUPS";
const MARKER_TEXT: &str = "Backups of Situ stores. See `situ backup list`. Format ";
/// The version of the format (`docs/formats/backup.md`).
const FORMAT_VERSION: u32 = 1;
/// The directory of the pool.
const FILES: &str = "files";
/// The directory of files that an operation has not finished.
const UNFINISHED_FILES: &str = "unfinished";
const METADATA_END: &str = ".json";

/// A directory of backups. The [crate](crate) has an example.
#[derive(Debug, Clone)]
pub struct Backups {
    directory: PathBuf,
}

/// The backups in a directory.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Listing {
    /// The backups that can be read, the oldest first.
    pub backups: Vec<Backup>,
    /// The numbers of the backups whose metadata is damaged or cannot be read, each with the cause.
    pub damaged: Vec<(u64, Error)>,
}

/// The progress of an operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that were read and checked.
    pub bytes_done: u64,
    /// Bytes that the operation reads.
    pub bytes_total: u64,
}

impl Backups {
    /// Opens a directory of backups that exists.
    ///
    /// # Errors
    /// There is no such directory, or it holds something else, or its format is newer than this program.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Backups> {
        let backups = Backups { directory: directory.into() };
        let path = backups.directory.join(MARKER);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(backups.none()),
            text => text.map_err(failed("read", &path))?,
        };
        let version = text.strip_prefix(MARKER_TEXT).and_then(|version| version.trim_end().parse::<u32>().ok());
        match version {
            Some(FORMAT_VERSION) => Ok(backups),
            Some(newer) if newer > FORMAT_VERSION => Err(Error::Invalid(format!(
                "{} has format {newer}, and this program knows formats up to {FORMAT_VERSION}; use a newer program",
                backups.shown()
            ))),
            _ => Err(StorageError::corruption(path.display(), 0, "text", MARKER_TEXT, text.escape_debug()).into()),
        }
    }

    /// Opens a directory of backups, or makes one where there is no directory, or an empty one.
    ///
    /// # Errors
    /// The directory holds other files; as of [`open`](Backups::open); it cannot be made.
    pub fn open_or_make(directory: impl Into<PathBuf>) -> Result<Backups> {
        let directory = directory.into();
        if disk::length_of(&directory.join(MARKER))?.is_some() {
            return Backups::open(directory);
        }
        // Makes the directories above it, durably.
        DirectoryVolume::create_private(&directory)?;
        let unfinished = format!("{MARKER}{UNFINISHED}");
        if let Some(stranger) = names_in(&directory)?.into_iter().find(|name| *name != unfinished) {
            return Err(Error::Existence(format!(
                "{} holds other files ({stranger}), and is no directory of backups; name a new directory, or an empty one",
                directory.display()
            )));
        }
        disk::put(&directory, MARKER, format!("{MARKER_TEXT}{FORMAT_VERSION}\n").as_bytes())?;
        Backups::open(directory)
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the backups.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn list(&self) -> Result<Listing> {
        let mut listing = Listing::default();
        for id in self.ids()? {
            match self.read(id) {
                Ok(backup) => listing.backups.push(backup),
                // Removed since.
                Err(Error::Existence(_)) => {}
                Err(error) => listing.damaged.push((id, error)),
            }
        }
        Ok(listing)
    }

    /// Returns a backup, or the latest one without `id`.
    ///
    /// # Errors
    /// There is none, or its metadata is damaged.
    pub fn find(&self, id: Option<u64>) -> Result<Backup> {
        match id.or(self.ids()?.last().copied()) {
            Some(id) => self.read(id),
            None => Err(Error::Existence(format!("{} has no backup; make one first", self.shown()))),
        }
    }

    pub(crate) fn read(&self, id: u64) -> Result<Backup> {
        let path = self.path_of_metadata(id);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let ids = self.ids()?.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                let there = if ids.is_empty() { "none".to_owned() } else { ids };
                return Err(Error::Existence(format!("{} has no backup {id}; it has {there}", self.shown())));
            }
            bytes => bytes.map_err(failed("read", &path))?,
        };
        let backup = metadata::decode(&bytes, &path.display().to_string())?;
        if backup.id != id {
            let found = format!("backup {}", backup.id);
            return Err(StorageError::corruption(path.display(), 0, "metadata", format!("backup {id}"), found).into());
        }
        Ok(backup)
    }

    /// Returns the numbers of all backups, also of damaged ones, in ascending order.
    pub(crate) fn ids(&self) -> Result<Vec<u64>> {
        let mut ids: Vec<u64> = names_in(&self.directory)?
            .iter()
            .filter_map(|name| {
                let id = name.strip_suffix(METADATA_END)?.parse().ok()?;
                (metadata_name(id) == *name).then_some(id)
            })
            .collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// Returns the contents of the pool. Their files are complete: a content gets its name when it is durable.
    pub(crate) fn contents(&self) -> Result<Vec<Content>> {
        let pool = self.pool();
        match pool.is_dir() {
            true => Ok(names_in(&pool)?.iter().filter_map(|name| name.parse().ok()).collect()),
            // No backup was ever begun.
            false => Ok(Vec::new()),
        }
    }

    pub(crate) fn path_of_metadata(&self, id: u64) -> PathBuf {
        self.directory.join(metadata_name(id))
    }

    pub(crate) fn pool(&self) -> PathBuf {
        self.directory.join(FILES)
    }

    pub(crate) fn path_of(&self, content: &Content) -> PathBuf {
        self.pool().join(content.to_string())
    }

    /// Takes the right to change the directory.
    pub(crate) fn lock(&self) -> Result<Box<dyn Lock>> {
        DirectoryVolume::open(&self.directory)?.lock().map_err(|error| match error {
            StorageError::Locked { path, .. } => {
                let why = format!("another backup or prune works on {}; wait until it ends", self.shown());
                StorageError::Locked { path, why: Some(why) }.into()
            }
            error => error.into(),
        })
    }

    /// Returns an empty directory for files on their way, after removing what an interrupted operation has left there.
    pub(crate) fn workplace(&self) -> Result<PathBuf> {
        let path = self.directory.join(UNFINISHED_FILES);
        disk::make_directory(&path)?;
        for name in names_in(&path)? {
            disk::remove(&path.join(name))?;
        }
        Ok(path)
    }

    /// Puts a new backup in force. Its contents are durable.
    pub(crate) fn put(&self, new: &metadata::New) -> Result<Backup> {
        let name = metadata_name(new.id);
        let contents = metadata::encode(new);
        disk::put(&self.directory, &name, &contents)?;
        Ok(metadata::decode(&contents, &name)?)
    }

    /// Removes the file of a backup. The removal is durable after [`sync`](disk::sync).
    pub(crate) fn give_up(&self, id: u64) -> Result<()> {
        Ok(disk::remove(&self.path_of_metadata(id))?)
    }

    pub(crate) fn shown(&self) -> String {
        self.directory.display().to_string()
    }

    fn none(&self) -> Error {
        let shown = self.shown();
        Error::Existence(match self.directory.is_dir() {
            true => format!(
                "{shown} is no directory of backups: it has no {MARKER}; name the directory that was given to `create`"
            ),
            false => format!("{shown} does not exist; name the directory that was given to `create`"),
        })
    }
}

fn metadata_name(id: u64) -> String {
    format!("{id:06}{METADATA_END}")
}
