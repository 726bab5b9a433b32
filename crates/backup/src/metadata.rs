//! The file of a backup: which contents the files of the store have (`docs/formats/backup.md`).

use crate::content::{Content, Kind};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use situ_storage::{Error, FileName, Result};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_128;

/// A backup in a directory of backups.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// Its number. A later backup has a larger number than those that exist when it is made.
    pub id: u64,
    /// The time when it was made, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The last sequence number whose write it has.
    pub last_sequence: u64,
    /// The program that made it, with its version.
    pub program: String,
    /// The number of files of the store.
    pub files: u64,
    /// Their length.
    pub bytes: u64,
    /// The bytes that the pool took for it; holes do not count.
    pub added_bytes: u64,
    pub(crate) entries: BTreeMap<FileName, Entry>,
    /// The checksum of the metadata, by which a store remembers the backup.
    pub(crate) mark: u128,
}

/// A file of the store in a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) content: Content,
    /// A table or a sealed segment: the file's number alone says what it has, within one store's life.
    pub(crate) is_final: bool,
}

#[derive(Serialize, Deserialize)]
struct Checked<'a> {
    checksum: String,
    #[serde(borrow)]
    backup: &'a RawValue,
}

#[derive(Serialize, Deserialize)]
struct Fields {
    id: u64,
    unix_ms: u64,
    last_sequence: u64,
    program: String,
    added_bytes: u64,
    files: Vec<FileFields>,
}

#[derive(Serialize, Deserialize)]
struct FileFields {
    name: String,
    bytes: u64,
    xxh3: String,
    #[serde(rename = "final")]
    is_final: bool,
}

/// The properties of a new backup.
pub(crate) struct New {
    pub(crate) id: u64,
    pub(crate) unix_ms: u64,
    pub(crate) last_sequence: u64,
    pub(crate) added_bytes: u64,
    pub(crate) entries: BTreeMap<FileName, Entry>,
}

/// Returns the contents of the file of a new backup.
pub(crate) fn encode(new: &New) -> Vec<u8> {
    checked(&inner(new))
}

/// Returns the JSON text of a backup.
pub(crate) fn inner(new: &New) -> String {
    let file = |(name, entry): (&FileName, &Entry)| FileFields {
        name: name.to_string(),
        bytes: entry.content.bytes,
        xxh3: format!("{:032x}", entry.content.hash),
        is_final: entry.is_final,
    };
    let fields = Fields {
        id: new.id,
        unix_ms: new.unix_ms,
        last_sequence: new.last_sequence,
        program: concat!("situ ", env!("CARGO_PKG_VERSION")).to_owned(),
        added_bytes: new.added_bytes,
        files: new.entries.iter().map(file).collect(),
    };
    serde_json::to_string(&fields).expect("numbers and texts are JSON")
}

/// Puts a checksum before the JSON text of a backup.
pub(crate) fn checked(text: &str) -> Vec<u8> {
    format!("{{\"checksum\":\"{:032x}\",\"backup\":{text}}}\n", xxh3_128(text.as_bytes())).into_bytes()
}

/// Decodes the file of a backup. `path` names it, for errors.
///
/// # Errors
/// [`Corruption`](Error::Corruption): the file is not what [`encode`] has made.
pub(crate) fn decode(bytes: &[u8], path: &str) -> Result<Backup> {
    let wrong = |expected: &str, found: String| Error::corruption(path, 0, "metadata", expected, found);
    let malformed = |error: serde_json::Error| wrong("the JSON of a backup", error.to_string());
    let checked: Checked<'_> = serde_json::from_slice(bytes).map_err(malformed)?;
    let mark = xxh3_128(checked.backup.get().as_bytes());
    if checked.checksum != format!("{mark:032x}") {
        return Err(wrong(&format!("the checksum {}", checked.checksum), format!("{mark:032x}")));
    }
    let fields: Fields = serde_json::from_str(checked.backup.get()).map_err(malformed)?;
    let mut entries = BTreeMap::new();
    for FileFields { name, bytes, xxh3, is_final } in fields.files {
        let (Ok(file), Ok(hash)) = (name.parse::<FileName>(), u128::from_str_radix(&xxh3, 16)) else {
            return Err(wrong("the name of a store's file and a hash", format!("{name:?}, {xxh3:?}")));
        };
        let content = Content { kind: Kind::of(file), bytes, hash };
        if entries.insert(file, Entry { content, is_final }).is_some() {
            return Err(wrong("each file once", format!("{name} twice")));
        }
    }
    if !entries.contains_key(&FileName::Current) {
        return Err(wrong("a store's files", "none that is called CURRENT".to_owned()));
    }
    let Some(bytes) = entries.values().try_fold(0u64, |sum, entry| sum.checked_add(entry.content.bytes)) else {
        return Err(wrong("lengths of files", "more than there can be".to_owned()));
    };
    Ok(Backup {
        id: fields.id,
        unix_ms: fields.unix_ms,
        last_sequence: fields.last_sequence,
        program: fields.program,
        files: entries.len() as u64,
        bytes,
        added_bytes: fields.added_bytes,
        entries,
        mark,
    })
}
