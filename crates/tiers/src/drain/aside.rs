//! The files that a repair has set aside on the fast disk go home as well when that disk is drained.
//!
//! Nothing reads such a file but people, who may want to see what could not be saved. It is copied under a temporary
//! name, takes its own when it is whole and durable, and then goes from the fast disk.
//!
//! **Failure.** A drain that ends in between leaves both files, and the next one finds that they are the same. A file
//! that the disk does not give whole stays where it is. A disk that did not answer once may do so the next time, and
//! people have to judge the rest of the file. The drain moves everything else, and then ends with an error that names
//! it.

use crate::placement::Placement;
use crate::set::{Disk, Disks};
use situ_engine::StoreEvent;
use situ_engine::places::PlacedStore;
use situ_engine::{Error, Result};
use situ_storage::{Error as StorageError, FileName, Reader, Volume};
use std::collections::BTreeMap;

/// Copied in pieces of this size.
const PIECE_BYTES: u64 = 512 << 10;

/// Files that the disk does not give whole, and what was not given.
#[derive(Default)]
pub(super) struct Unreadable(BTreeMap<FileName, String>);

impl Unreadable {
    /// # Errors
    /// Nothing else is left on the fast disk.
    pub(super) fn while_others_are_left(&self, fast: &Disk) -> Result<()> {
        let left = fast.list()?;
        if left.is_empty() || left.iter().any(|file| !self.0.contains_key(&file.name)) {
            return Ok(());
        }
        let files: Vec<&str> = self.0.values().map(String::as_str).collect();
        Err(Error::Disks(format!(
            "what a repair has set aside on the fast disk cannot be read whole, and stays there as it is: {}. Everything else \
             of the store is home, but the disk is not empty and remains the store's. Drain it again if it may answer the next \
             time. If nobody wants the rest of the file, move it away from a directory and drain the disk again; a disk \
             without a file system is given up when the store is closed (`situ repair --without-fast-disk`; with \
             `--dry-run` that says what would be lost besides), and can then be formatted",
            files.join("; ")
        )))
    }
}

impl Placement {
    /// Moves such files home. Returns true if one was moved.
    pub(super) fn damaged_files_go_home(&self, unreadable: &mut Unreadable) -> Result<bool> {
        let names = self.fast.list()?.into_iter().map(|file| file.name);
        let damaged = names.filter(|name| matches!(name, FileName::Damaged(_)) && !unreadable.0.contains_key(name));
        let mut moved = false;
        for name in damaged.collect::<Vec<FileName>>() {
            self.store.check_sound()?;
            match self.damaged_file_goes_home(name)? {
                Ok(()) => moved = true,
                Err(what) => drop(unreadable.0.insert(name, what)),
            }
        }
        Ok(moved)
    }

    fn damaged_file_goes_home(&self, name: FileName) -> Result<Whole> {
        let disks = &*self.disks;
        let original = Original { store: &*self.store, reader: &*self.fast.volume.open(name)? };
        let to = match disks.capacity().volume.open(name) {
            Ok(copy) if original.is_like(&*copy)? => None,
            Ok(_) => Some(FileName::Damaged(self.store.new_number())),
            Err(StorageError::NotFound { .. }) => Some(name),
            Err(error) => return Err(error.into()),
        };
        if let Some(to) = to {
            let temporary = FileName::Temporary(self.store.new_number());
            let copied = original.copy(disks, temporary).and_then(|whole| {
                if whole.is_ok() {
                    disks.rename(temporary, to)?;
                }
                Ok(whole)
            });
            if !matches!(copied, Ok(Ok(()))) {
                // The next open removes what is left.
                let _ = disks.remove(temporary);
                return copied;
            }
            self.store.tell(StoreEvent::DamagedFileMoved { file: to.to_string() });
        }
        disks.sync_names()?;
        disks.remove(name)?;
        Ok(Ok(()))
    }
}

/// The result of reading a file: the disk gave all of it, or an error text that names the missing part.
type Whole = std::result::Result<(), String>;

/// A file on the fast disk.
struct Original<'a> {
    store: &'a dyn PlacedStore,
    reader: &'a dyn Reader,
}

impl Original<'_> {
    /// Gives its bytes to `take`, piece by piece, until that says false or the disk does not give one.
    fn read(&self, mut take: impl FnMut(u64, &[u8]) -> Result<bool>) -> Result<Whole> {
        let (mut at, bytes) = (0, self.reader.bytes());
        let mut piece = vec![0; PIECE_BYTES.min(bytes) as usize];
        while at < bytes {
            self.store.check_open()?;
            let piece = &mut piece[..(bytes - at).min(PIECE_BYTES) as usize];
            let end = at + piece.len() as u64;
            if let Err(error) = self.reader.read_at(at, piece) {
                return Ok(Err(format!("{}, bytes {at} to {end} of {bytes} ({error})", self.reader.path())));
            }
            if !take(at, piece)? {
                break;
            }
            at = end;
        }
        Ok(Ok(()))
    }

    fn copy(&self, disks: &Disks, to: FileName) -> Result<Whole> {
        let mut writer = disks.create(to, self.reader.bytes())?;
        let whole = self.read(|_, piece| {
            writer.append(piece)?;
            self.store.pace(piece.len() as u64);
            Ok(true)
        })?;
        if whole.is_ok() {
            writer.finish()?;
        }
        Ok(whole)
    }

    /// Returns true if the other file has the same bytes. A file that the disk does not give whole is like no other.
    fn is_like(&self, other: &dyn Reader) -> Result<bool> {
        let mut same = self.reader.bytes() == other.bytes();
        if same {
            let whole = self.read(|at, piece| {
                let mut others = vec![0; piece.len()];
                other.read_at(at, &mut others)?;
                same = others == piece;
                Ok(same)
            })?;
            same &= whole.is_ok();
        }
        Ok(same)
    }
}
