//! Contents in the pool: their names, their hashes, and what tells them from another file.

use crate::disk::{PIECE_BYTES, failed};
use situ_storage::{Error, FileName, Reader, Result};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::str::FromStr;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// The bytes at each end of a file by which a known file is compared with its content: a page.
const END_BYTES: u64 = 4 << 10;

/// The kind of a content: the end of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Table,
    Values,
    Log,
    /// The manifest and smaller files.
    Small,
}

const KINDS: [(Kind, &str); 4] =
    [(Kind::Table, "table"), (Kind::Values, "values"), (Kind::Log, "log"), (Kind::Small, "small")];

impl Kind {
    pub(crate) fn of(name: FileName) -> Kind {
        match name {
            FileName::Table(_) => Kind::Table,
            FileName::Values(_) => Kind::Values,
            FileName::Log(_) => Kind::Log,
            _ => Kind::Small,
        }
    }
}

/// A content: bytes that never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Content {
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
    /// XXH3-128 of the bytes.
    pub(crate) hash: u128,
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = KINDS.iter().find(|(kind, _)| *kind == self.kind).map_or("", |(_, end)| end);
        write!(f, "{:032x}-{}.{end}", self.hash, self.bytes)
    }
}

/// The text is not the name of a content.
#[derive(Debug)]
pub(crate) struct NotAContent;

impl FromStr for Content {
    type Err = NotAContent;

    fn from_str(text: &str) -> Result<Content, NotAContent> {
        let parse = || {
            let (stem, end) = text.rsplit_once('.')?;
            let (hash, bytes) = stem.split_once('-')?;
            let (kind, _) = KINDS.iter().find(|(_, known)| *known == end)?;
            Some(Content { kind: *kind, bytes: bytes.parse().ok()?, hash: u128::from_str_radix(hash, 16).ok()? })
        };
        // One spelling for each content.
        parse().filter(|content| content.to_string() == text).ok_or(NotAContent)
    }
}

/// Reads a file from its beginning to its end, in pieces. Each piece is hashed, then given to `each`.
pub(crate) fn read_through(path: &Path, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<(u64, u128)> {
    let fail = failed("read", path);
    let mut file = File::open(path).map_err(failed("open", path))?;
    let (mut piece, mut hash, mut bytes) = (vec![0; PIECE_BYTES], Xxh3::new(), 0);
    loop {
        let mut filled = 0;
        while filled < piece.len() {
            match file.read(&mut piece[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(fail(error)),
            }
        }
        if filled == 0 {
            return Ok((bytes, hash.digest128()));
        }
        hash.update(&piece[..filled]);
        bytes += filled as u64;
        each(&piece[..filled])?;
    }
}

impl Content {
    /// Hashes a file.
    pub(crate) fn of_file(path: &Path, kind: Kind) -> Result<Content> {
        let (bytes, hash) = read_through(path, |_| Ok(()))?;
        Ok(Content { kind, bytes, hash })
    }

    /// Returns true if a file has this content.
    pub(crate) fn is_in(&self, path: &Path, mut read: impl FnMut(u64)) -> Result<bool> {
        let found = read_through(path, |piece| {
            read(piece.len() as u64);
            Ok(())
        })?;
        Ok(found == (self.bytes, self.hash))
    }

    /// Returns the error for a file that should have this content, and has another one.
    pub(crate) fn wrong(&self, path: &Path, found: (u64, u128)) -> Error {
        let told = |(bytes, hash): (u64, u128)| format!("{bytes} bytes with the XXH3-128 {hash:032x}");
        Error::corruption(path.display(), 0, "content", told((self.bytes, self.hash)), told(found))
    }
}

/// Returns true if a file of the pool and a file of the store, of one length, have equal bytes at both ends.
///
/// # Errors
/// The store's file cannot be read. A file of the pool that cannot be read is not equal: a copy replaces it.
pub(crate) fn ends_are_equal(ours: &Path, theirs: &dyn Reader) -> Result<bool> {
    let bytes = theirs.bytes();
    let last = bytes.saturating_sub(END_BYTES);
    let Ok(file) = File::open(ours) else { return Ok(false) };
    Ok(are_equal_at(&file, theirs, 0, bytes.min(END_BYTES))? && are_equal_at(&file, theirs, last, bytes - last)?)
}

/// Returns the hash of the first page of a file of the store.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn first_page(theirs: &dyn Reader) -> Result<u128> {
    let mut page = vec![0; theirs.bytes().min(END_BYTES) as usize];
    theirs.read_at(0, &mut page)?;
    Ok(xxh3_128(&page))
}

/// Returns the hash of the first page of a file of the pool. `None`: it cannot be read, so a copy replaces it.
pub(crate) fn first_page_of(ours: &Path, bytes: u64) -> Option<u128> {
    let mut page = vec![0; bytes.min(END_BYTES) as usize];
    File::open(ours).and_then(|file| file.read_exact_at(&mut page, 0)).ok()?;
    Some(xxh3_128(&page))
}

/// Returns true if a file of the pool and a file of the store, of one length, are equal.
///
/// # Errors
/// As [`ends_are_equal`].
pub(crate) fn are_equal(ours: &Path, theirs: &dyn Reader) -> Result<bool> {
    let Ok(file) = File::open(ours) else { return Ok(false) };
    let mut at = 0;
    while at < theirs.bytes() {
        let bytes = (PIECE_BYTES as u64).min(theirs.bytes() - at);
        if !are_equal_at(&file, theirs, at, bytes)? {
            return Ok(false);
        }
        at += bytes;
    }
    Ok(true)
}

fn are_equal_at(ours: &File, theirs: &dyn Reader, at: u64, bytes: u64) -> Result<bool> {
    let (mut one, mut other) = (vec![0; bytes as usize], vec![0; bytes as usize]);
    theirs.read_at(at, &mut other)?;
    Ok(ours.read_exact_at(&mut one, at).is_ok() && one == other)
}
