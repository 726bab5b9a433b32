//! Making a store of a backup.
//!
//! 1. The target is an empty directory. The file `RESTORE-MARK`, with the mark of the backup in its name, gets the
//!    contents of CURRENT. Without CURRENT the directory holds no store.
//! 2. Each other file is copied, and its hash is checked on the way. LINEAGE says that the store descends from the
//!    backup.
//! 3. `RESTORE-MARK` is renamed to CURRENT. So the same step ends the restore, and puts the store in force.
//!
//! A restore that was interrupted leaves `RESTORE-MARK`. A call for the same backup goes on: files with the right
//! contents stay, and are synced.
//!
//! **Invariant.** Nothing is changed in a directory that has a CURRENT: it holds a store.

use crate::content::{Content, Kind, read_through};
use crate::directory::{Backups, Progress};
use crate::disk::{self, UNFINISHED, failed, length_of, parts_with_data};
use crate::lineage;
use crate::metadata::Backup;
use situ_engine::{Error, Result};
use situ_storage::{DirectoryVolume, FileName, Volume, names_in};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The account of a restore.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The number of the backup.
    pub id: u64,
    /// The last sequence number whose write the store has.
    pub last_sequence: u64,
    /// The number of files.
    pub files: u64,
    /// Their length.
    pub bytes: u64,
    /// Files that an interrupted restore had copied already.
    pub kept_files: u64,
}

impl Backups {
    /// Makes a store of a backup, or of the latest one without `id`. The directory `into` must not exist, or be empty,
    /// or be what an interrupted restore of the same backup has left: then the call goes on with that.
    ///
    /// # Errors
    /// There is no such backup; the directory holds something else; a content is missing or damaged; a file cannot be
    /// written. Then the directory holds no store.
    pub fn restore(
        &self,
        id: Option<u64>,
        into: impl AsRef<Path>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RestoreReport> {
        let backup = self.find(id)?;
        let into = into.as_ref();
        if lies_in(into, self.directory()) {
            let why = format!("{} lies in the directory of backups; name one outside of it", into.display());
            return Err(Error::Invalid(why));
        }
        let volume = DirectoryVolume::create_private(into)?;
        check_place(into, &backup)?;
        let _lock = volume.lock()?;
        // Another process may have made a store since.
        check_place(into, &backup)?;
        self.restore_into(&backup, into, progress)
    }

    fn restore_into(&self, backup: &Backup, into: &Path, progress: &mut dyn FnMut(Progress)) -> Result<RestoreReport> {
        let marker = FileName::Restore(backup.mark).to_string();
        let mut report = RestoreReport {
            id: backup.id,
            last_sequence: backup.last_sequence,
            files: backup.files,
            bytes: backup.bytes,
            kept_files: 0,
        };
        let mut now = Progress { bytes_done: 0, bytes_total: backup.bytes };
        let mut read = |bytes| {
            now.bytes_done += bytes;
            progress(now);
        };
        disk::put(into, &marker, &self.current_of(backup)?)?;
        for (name, entry) in backup.entries.iter().filter(|(name, _)| **name != FileName::Current) {
            let (content, to) = (&entry.content, into.join(name.to_string()));
            let is_there = length_of(&to)? == Some(content.bytes) && content.is_in(&to, &mut read)?;
            if is_there {
                // The call that copied it may have ended before its sync.
                disk::sync(&to)?;
                report.kept_files += 1;
            } else {
                self.copy(content, &to, &mut read)?;
            }
        }
        disk::put(into, &FileName::Lineage.to_string(), &lineage::encode(&[backup.mark]))?;
        disk::rename(&into.join(&marker), &into.join(FileName::Current.to_string()))?;
        disk::sync(into)?;
        Ok(report)
    }

    /// Returns the contents of CURRENT.
    fn current_of(&self, backup: &Backup) -> Result<Vec<u8>> {
        let content = &backup.entries[&FileName::Current].content;
        let (path, mut bytes) = (self.path_of(content), Vec::new());
        let found = read_through(&path, |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        match found == (content.bytes, content.hash) {
            true => Ok(bytes),
            false => Err(content.wrong(&path, found).into()),
        }
    }

    /// Copies a content durably, and checks it.
    fn copy(&self, content: &Content, to: &Path, read: &mut dyn FnMut(u64)) -> Result<()> {
        let from = self.path_of(content);
        disk::step();
        let file = File::create(to).map_err(failed("create", to))?;
        let mut at = 0;
        let copied = read_through(&from, |piece| {
            disk::step();
            // A store relies on the room of its log.
            let whole = std::iter::once(0..piece.len());
            let parts: Vec<_> = if content.kind == Kind::Log { whole.collect() } else { parts_with_data(piece) };
            for part in parts {
                let offset = at + part.start as u64;
                file.write_all_at(&piece[part], offset).map_err(failed("write", to))?;
            }
            at += piece.len() as u64;
            read(piece.len() as u64);
            Ok(())
        });
        let found = copied.and_then(|found| match found == (content.bytes, content.hash) {
            true => file.set_len(at).and_then(|()| file.sync_all()).map_err(failed("write", to)),
            false => Err(content.wrong(&from, found)),
        });
        found.inspect_err(|_| {
            // A next call would find out that its contents are wrong.
            let _ = fs::remove_file(to);
        })?;
        Ok(())
    }
}

/// Returns true if a path leads into a directory. It may lead to nothing yet.
fn lies_in(path: &Path, directory: &Path) -> bool {
    let Ok(path) = std::path::absolute(path) else { return false };
    let nearest = path.ancestors().find_map(|above| above.canonicalize().ok());
    nearest.zip(directory.canonicalize().ok()).is_some_and(|(nearest, directory)| nearest.starts_with(directory))
}

/// Checks that the directory is empty, or has what an interrupted restore of this backup left.
fn check_place(into: &Path, backup: &Backup) -> Result<()> {
    let names = names_in(into)?;
    let refused = |why: String| Err(Error::Existence(format!("{} {why}", into.display())));
    if names.iter().any(|name| name.parse() == Ok(FileName::Current)) {
        return refused("holds a store; name a new directory, or an empty one".to_owned());
    }
    let ours = FileName::Restore(backup.mark);
    let is_other = |name: &&String| matches!(name.parse(), Ok(FileName::Restore(_))) && name.parse() != Ok(ours);
    if let Some(other) = names.iter().find(is_other) {
        return refused(format!(
            "holds an unfinished restore of another backup ({other}); restore that one, or remove the directory"
        ));
    }
    let goes_on = names.contains(&ours.to_string());
    let is_expected = |name: &String| match name.parse::<FileName>() {
        Ok(file) if file == FileName::Lock || file == ours => true,
        Ok(file) => goes_on && (file == FileName::Lineage || backup.entries.contains_key(&file)),
        Err(_) => name.strip_suffix(UNFINISHED).is_some_and(is_small),
    };
    match names.iter().find(|name| !is_expected(name)) {
        None => Ok(()),
        Some(other) => refused(format!("holds other files ({other}); name a new directory, or an empty one")),
    }
}

/// Returns true for a file that a restore writes as a whole.
fn is_small(name: &str) -> bool {
    matches!(name.parse(), Ok(FileName::Restore(_) | FileName::Lineage))
}
