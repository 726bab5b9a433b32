//! The note that makes tokens outlive the node: one small file for each store.
//!
//! ```text
//! situ lease 1
//! store shop
//! token 7
//! owner 0123456789abcdef0123456789abcdef 1700000000 situ serve, process 12 on alpha
//! crc32c 01234567
//! ```
//! The line `owner` is there while a client has the lease: the client's id, since when, and its name. The checksum
//! covers the lines before its own.
//!
//! In a directory the note is the file `LEASE`, which is no name of a store's file. On a disk without a file system it
//! is the file `LOCK`, which no store uses there.

use super::Owner;
use situ_storage::{Error, FileName, Result, Volume};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const HEAD: &str = "situ lease 1";
const NAME: &str = "LEASE";
/// A longer note than this is none.
const BYTES_MAX: u64 = 4096;
/// Characters of an owner's name that are kept.
const OWNER_CHARACTERS_MAX: usize = 200;

/// The place of a store's note.
pub(crate) enum Note {
    /// In the directory of the store.
    Beside(PathBuf),
    /// Among the files of a disk that has one store.
    Among(Arc<dyn Volume>),
}

/// The contents of the note.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Noted {
    /// The name of the store whose lease it is.
    pub(super) store: String,
    pub(super) token: u64,
    pub(super) owner: Option<(Owner, u64)>,
}

impl Note {
    /// Reads what it says of the store of this name. A note that was never written says that no token was given out.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or is another store's.
    pub(super) fn read(&self, store: &str) -> Result<Noted> {
        let bytes = match self {
            Note::Beside(directory) => read_file(&directory.join(NAME)),
            Note::Among(volume) => read_among(&**volume),
        };
        let Some(bytes) = bytes? else { return Ok(Noted { store: store.to_owned(), ..Noted::default() }) };
        let noted = Noted::decode(&bytes).ok_or_else(|| {
            let expected = "the token of the last owner of the store, with a checksum over it";
            Error::corruption(self.path(), 0, "lease", expected, format!("{} bytes that are none", bytes.len()))
        })?;
        match self {
            // A directory may have been renamed.
            Note::Among(volume) if noted.store != store => {
                let (at, has) = (volume.location(), &noted.store);
                Err(Error::Invalid(format!("{at} on the node holds the store {has:?}, and no other than that")))
            }
            _ => Ok(Noted { store: store.to_owned(), ..noted }),
        }
    }

    /// Makes the note durable.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn write(&self, noted: &Noted) -> Result<()> {
        let bytes = noted.encode();
        assert!(bytes.len() as u64 <= BYTES_MAX, "a note of {} bytes is read as none", bytes.len());
        let read = Noted::decode(&bytes).map(|read| (read.token, read.owner.map(|(owner, _)| owner.id)));
        let written = (noted.token, noted.owner.as_ref().map(|(owner, _)| owner.id));
        assert_eq!(read, Some(written), "a note that does not read back locks the store");
        match self {
            Note::Beside(directory) => {
                replace_file(directory, &bytes).map_err(|error| Error::io("write", self.path(), error))
            }
            Note::Among(volume) => volume.replace(FileName::Lock, &bytes),
        }
    }

    fn path(&self) -> String {
        match self {
            Note::Beside(directory) => directory.join(NAME).display().to_string(),
            Note::Among(volume) => format!("{}/{}", volume.location(), FileName::Lock),
        }
    }
}

fn read_file(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path.display(), error)),
    }
}

fn read_among(volume: &dyn Volume) -> Result<Option<Vec<u8>>> {
    let reader = match volume.open(FileName::Lock) {
        Err(Error::NotFound { .. }) => return Ok(None),
        opened => opened?,
    };
    let mut bytes = vec![0; reader.bytes().min(BYTES_MAX) as usize];
    reader.read_at(0, &mut bytes)?;
    Ok((!bytes.is_empty()).then_some(bytes))
}

fn replace_file(directory: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = directory.join(format!("{NAME}.new"));
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, directory.join(NAME))?;
    File::open(directory)?.sync_all()
}

impl Noted {
    fn encode(&self) -> Vec<u8> {
        let mut text = format!("{HEAD}\nstore {}\ntoken {}\n", self.store, self.token);
        if let Some((owner, since_unix_s)) = &self.owner {
            let mut name = owner.name.replace(char::is_control, " ");
            if let Some((end, _)) = name.char_indices().nth(OWNER_CHARACTERS_MAX) {
                name.truncate(end);
            }
            text.push_str(&format!("owner {:032x} {since_unix_s} {name}\n", owner.id));
        }
        text.push_str(&format!("crc32c {:08x}\n", crc32c::crc32c(text.as_bytes())));
        text.into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Noted> {
        let text = std::str::from_utf8(bytes).ok()?;
        let at = text.rfind("crc32c ")?;
        let (lines, sum) = text.split_at(at);
        if sum != format!("crc32c {:08x}\n", crc32c::crc32c(lines.as_bytes())) {
            return None;
        }
        let mut lines = lines.lines();
        let head = lines.next()?;
        let store = lines.next()?.strip_prefix("store ")?.to_owned();
        let token = lines.next()?.strip_prefix("token ")?.parse().ok()?;
        let owner = match lines.next() {
            Some(line) => Some(Noted::owner(line)?),
            None => None,
        };
        (head == HEAD && lines.next().is_none()).then_some(Noted { store, token, owner })
    }

    fn owner(line: &str) -> Option<(Owner, u64)> {
        let mut parts = line.strip_prefix("owner ")?.splitn(3, ' ');
        let id = u128::from_str_radix(parts.next()?, 16).ok()?;
        let since_unix_s = parts.next()?.parse().ok()?;
        Some((Owner { id, name: parts.next()?.to_owned() }, since_unix_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted() -> Noted {
        let owner = Owner { id: 0x1234, name: "situ serve, process 12 on alpha".to_owned() };
        Noted { store: "shop".to_owned(), token: 7, owner: Some((owner, 1_700_000_000)) }
    }

    #[test]
    fn the_note_reads_back_and_has_the_bytes_of_its_page() {
        let text = "situ lease 1\nstore shop\ntoken 7\nowner 00000000000000000000000000001234 1700000000 situ serve, process 12 on alpha\n";
        let bytes = noted().encode();
        assert_eq!(std::str::from_utf8(&bytes).unwrap().rsplit_once("crc32c").unwrap().0, text);
        assert_eq!(Noted::decode(&bytes), Some(noted()));
        let nobody = Noted { token: 8, owner: None, ..noted() };
        assert_eq!(Noted::decode(&nobody.encode()), Some(nobody));
    }

    #[test]
    fn any_changed_byte_and_any_missing_end_is_found() {
        let bytes = noted().encode();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(Noted::decode(&changed), None, "byte {at}");
            assert_eq!(Noted::decode(&bytes[..at]), None, "{at} bytes");
        }
    }

    #[test]
    fn a_name_of_any_length_and_with_any_character_is_one_line() {
        let owner = Owner { id: 1, name: "\u{e9}\n".repeat(1000) };
        let noted = Noted { owner: Some((owner, 0)), ..noted() };
        let (read, _) = Noted::decode(&noted.encode()).unwrap().owner.unwrap();
        assert!(read.name.chars().count() == OWNER_CHARACTERS_MAX && !read.name.contains('\n'));
    }
}
