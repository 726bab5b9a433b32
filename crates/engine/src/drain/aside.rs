//! What a repair has set aside on the fast disk goes home as well when that disk is drained.
//!
//! Nothing reads such a file but people, who may want to see what could not be saved. It is copied under a temporary name,
//! takes its own when it is whole and durable, and then goes from the fast disk.
//!
//! **Failure.** A drain that ends in between leaves both files, and the next one finds that they are the same. A page that
//! the disk does not give is zeros in the copy, and the listener is told: that may be what the file was set aside for,
//! and a disk of which nothing else is needed would never become empty.

use crate::core::Core;
use crate::disks::Disks;
use crate::listener::StoreEvent;
use crate::{Error, Result};
use situ_storage::{Error as StorageError, FileName, PAGE_BYTES, Reader, Volume};

/// Copied in pieces of this size.
const PIECE_BYTES: u64 = 512 << 10;

impl Core {
    /// Whether there was one.
    pub(super) fn damaged_files_go_home(&self, disks: &Disks) -> Result<bool> {
        let names = disks.list_fast()?.into_iter().map(|file| file.name);
        let damaged: Vec<FileName> = names.filter(|name| matches!(name, FileName::Damaged(_))).collect();
        for name in &damaged {
            self.writable()?;
            self.damaged_file_goes_home(disks, *name)?;
        }
        Ok(!damaged.is_empty())
    }

    fn damaged_file_goes_home(&self, disks: &Disks, name: FileName) -> Result<()> {
        let original = Original { core: self, reader: &*disks.fast.volume.open(name)? };
        let to = match disks.capacity.volume.open(name) {
            Ok(copy) if original.is_like(&*copy)? => None,
            Ok(_) => Some(FileName::Damaged(self.new_number())),
            Err(StorageError::NotFound { .. }) => Some(name),
            Err(error) => return Err(error.into()),
        };
        if let Some(to) = to {
            let temporary = FileName::Temporary(self.new_number());
            let moved = original.copy(disks, temporary).and_then(|unreadable_bytes| {
                disks.rename(temporary, to)?;
                Ok(unreadable_bytes)
            });
            let unreadable_bytes = moved.inspect_err(|_| {
                // The next open removes what is left.
                let _ = disks.remove(temporary);
            })?;
            self.tell(|| StoreEvent::DamagedFileMoved { file: to.to_string(), unreadable_bytes });
        }
        disks.sync_names()?;
        Ok(disks.remove(name)?)
    }
}

/// A file on the fast disk.
struct Original<'a> {
    core: &'a Core,
    reader: &'a dyn Reader,
}

impl Original<'_> {
    /// Gives its bytes to `take`, piece by piece, until that says false; how many of them could not be read.
    fn read(&self, mut take: impl FnMut(u64, &[u8]) -> Result<bool>) -> Result<u64> {
        let (mut at, bytes, mut unreadable) = (0, self.reader.bytes(), 0);
        let mut piece = vec![0; PIECE_BYTES.min(bytes) as usize];
        while at < bytes {
            if self.core.is_closing() {
                return Err(Error::Closed);
            }
            let piece = &mut piece[..(bytes - at).min(PIECE_BYTES) as usize];
            if self.reader.read_at(at, piece).is_err() {
                unreadable += self.read_pages(at, piece);
            }
            if !take(at, piece)? {
                break;
            }
            at += piece.len() as u64;
        }
        Ok(unreadable)
    }

    /// Reads what can be read, page by page.
    fn read_pages(&self, mut at: u64, piece: &mut [u8]) -> u64 {
        let mut unreadable = 0;
        for page in piece.chunks_mut(PAGE_BYTES) {
            if self.reader.read_at(at, page).is_err() {
                page.fill(0);
                unreadable += page.len() as u64;
            }
            at += page.len() as u64;
        }
        unreadable
    }

    fn copy(&self, disks: &Disks, to: FileName) -> Result<u64> {
        let mut writer = disks.create(to, self.reader.bytes())?;
        let unreadable = self.read(|_, piece| {
            writer.append(piece)?;
            self.core.pacer.pace(self.core, piece.len() as u64);
            Ok(true)
        })?;
        writer.finish()?;
        Ok(unreadable)
    }

    fn is_like(&self, other: &dyn Reader) -> Result<bool> {
        let mut same = self.reader.bytes() == other.bytes();
        if same {
            self.read(|at, piece| {
                let mut others = vec![0; piece.len()];
                other.read_at(at, &mut others)?;
                same = others == piece;
                Ok(same)
            })?;
        }
        Ok(same)
    }
}
