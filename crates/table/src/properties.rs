//! The properties of a table: a list of named values. Unknown names are ignored, so later writers may add some.

use crate::format::Damage;
use crate::key::{KeyRef, SequenceNumber};
use crate::lifetimes::Lifetimes;
use crate::options::Compression;
use crate::value_lengths::ValueLengths;
use situ_base::bytes::u32_at;

/// The name of this writer in [`Properties::writer_version`].
pub const WRITER_VERSION: &str = concat!("situ ", env!("CARGO_PKG_VERSION"));

/// A table's own account of its contents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Properties {
    /// Point entries, tombstones included; range tombstones are not.
    pub entries: u64,
    /// Point entries that are tombstones.
    pub deletions: u64,
    /// Range tombstones.
    pub range_deletions: u64,
    /// Bytes of all user keys with 8 for each trailer, uncompressed.
    pub raw_key_bytes: u64,
    /// Bytes of all values, uncompressed.
    pub raw_value_bytes: u64,
    /// Stored bytes of data blocks with their trailers.
    pub data_bytes: u64,
    /// Stored bytes of index blocks, the top one included, with their trailers.
    pub index_bytes: u64,
    /// Stored bytes of the filter with its trailer.
    pub filter_bytes: u64,
    /// Data blocks.
    pub data_blocks: u64,
    /// Index blocks below the top one.
    pub index_blocks: u64,
    /// The smallest internal key of an entry, encoded; empty in a table without point entries.
    pub smallest: Vec<u8>,
    /// The largest internal key of an entry, encoded; empty in a table without point entries.
    pub largest: Vec<u8>,
    /// The smallest sequence number, over entries and range tombstones.
    pub smallest_sequence: SequenceNumber,
    /// The largest sequence number, over entries and range tombstones.
    pub largest_sequence: SequenceNumber,
    /// The time when the table was made, in seconds since 1970.
    pub created_unix_s: u64,
    /// The compression asked for: [`COMPRESSION_NONE`](crate::format::COMPRESSION_NONE) and so on.
    pub compression: u8,
    /// The keyspace it was written for.
    pub keyspace_id: u32,
    /// The program that wrote the table, for people.
    pub writer_version: String,
    /// The name of that keyspace; empty in tables of older programs.
    pub keyspace_name: String,
    /// The longest user key of an entry, in bytes; `None` in tables of older programs and without entries.
    pub longest_key_bytes: Option<u32>,
    /// The longest value, in bytes; `None` in tables of older programs and without entries.
    pub longest_value_bytes: Option<u32>,
    /// The histogram of the lengths of values; empty in tables of older programs and without entries.
    pub value_lengths: ValueLengths,
    /// The lifetimes of entries, if the writer got them; empty in tables of older programs.
    pub lifetimes: Lifetimes,
}

/// One property: its name on disk, and how it is taken out of and put into the struct.
struct Field {
    name: &'static str,
    get: fn(&Properties) -> Vec<u8>,
    /// False if the value does not fit.
    set: fn(&mut Properties, &[u8]) -> bool,
}

macro_rules! numbers {
    ($($name:literal: $field:ident as $type:ty),* $(,)?) => {
        [$(Field {
            name: $name,
            get: |p| p.$field.to_le_bytes().to_vec(),
            set: |p, bytes| match bytes.try_into() {
                Ok(bytes) => { p.$field = <$type>::from_le_bytes(bytes); true }
                Err(_) => false,
            },
        }),*]
    };
}

/// Every required property but the three that are text or keys.
static NUMBERS: [Field; 15] = numbers! {
    "entries": entries as u64,
    "deletions": deletions as u64,
    "range-deletions": range_deletions as u64,
    "raw-key-bytes": raw_key_bytes as u64,
    "raw-value-bytes": raw_value_bytes as u64,
    "data-bytes": data_bytes as u64,
    "index-bytes": index_bytes as u64,
    "filter-bytes": filter_bytes as u64,
    "data-blocks": data_blocks as u64,
    "index-blocks": index_blocks as u64,
    "smallest-sequence": smallest_sequence as u64,
    "largest-sequence": largest_sequence as u64,
    "created-unix-s": created_unix_s as u64,
    "compression": compression as u8,
    "keyspace-id": keyspace_id as u32,
};

static TEXTS: [Field; 3] = [
    Field {
        name: "smallest",
        get: |p| p.smallest.clone(),
        set: |p, bytes| {
            p.smallest = bytes.to_vec();
            bytes.is_empty() || KeyRef::decode(bytes).is_some()
        },
    },
    Field {
        name: "largest",
        get: |p| p.largest.clone(),
        set: |p, bytes| {
            p.largest = bytes.to_vec();
            bytes.is_empty() || KeyRef::decode(bytes).is_some()
        },
    },
    Field {
        name: "writer-version",
        get: |p| p.writer_version.clone().into_bytes(),
        set: |p, bytes| {
            p.writer_version = String::from_utf8_lossy(bytes).into_owned();
            true
        },
    },
];

macro_rules! optional_number {
    ($name:literal, $field:ident) => {
        Field {
            name: $name,
            get: |p| p.$field.map_or(Vec::new(), |number| number.to_le_bytes().to_vec()),
            set: |p, bytes| {
                p.$field = bytes.try_into().ok().map(u32::from_le_bytes);
                p.$field.is_some()
            },
        }
    };
}

/// The properties that are not required, and not written if empty.
static OPTIONAL: [Field; 5] = [
    Field {
        name: "keyspace-name",
        get: |p| p.keyspace_name.clone().into_bytes(),
        set: |p, bytes| match str::from_utf8(bytes) {
            Ok(name) => {
                name.clone_into(&mut p.keyspace_name);
                true
            }
            Err(_) => false,
        },
    },
    optional_number!("longest-key-bytes", longest_key_bytes),
    optional_number!("longest-value-bytes", longest_value_bytes),
    Field {
        name: "value-lengths",
        get: |p| p.value_lengths.to_bytes(),
        set: |p, bytes| match ValueLengths::from_bytes(bytes) {
            Some(lengths) => {
                p.value_lengths = lengths;
                true
            }
            None => false,
        },
    },
    Field {
        name: "lifetimes",
        get: |p| p.lifetimes.to_bytes(),
        set: |p, bytes| match Lifetimes::from_bytes(bytes) {
            Some(lifetimes) => {
                p.lifetimes = lifetimes;
                true
            }
            None => false,
        },
    },
];

fn required() -> impl Iterator<Item = &'static Field> {
    NUMBERS.iter().chain(&TEXTS)
}

fn fields() -> impl Iterator<Item = &'static Field> {
    required().chain(&OPTIONAL)
}

fn is_optional(field: &Field) -> bool {
    OPTIONAL.iter().any(|optional| optional.name == field.name)
}

/// Returns the names on disk, in the order in which they are written.
pub fn property_names() -> impl Iterator<Item = &'static str> {
    fields().map(|field| field.name)
}

impl Properties {
    /// Returns the smallest internal key of an entry; `None` in a table without point entries.
    pub fn smallest_key(&self) -> Option<KeyRef<'_>> {
        KeyRef::decode(&self.smallest)
    }

    /// Returns the largest internal key of an entry; `None` in a table without point entries.
    pub fn largest_key(&self) -> Option<KeyRef<'_>> {
        KeyRef::decode(&self.largest)
    }

    pub(crate) fn set_compression(&mut self, compression: Compression) {
        self.compression = match compression {
            Compression::None => crate::format::COMPRESSION_NONE,
            Compression::Lz4 => crate::format::COMPRESSION_LZ4,
            Compression::Zstd { .. } => crate::format::COMPRESSION_ZSTD,
        };
    }

    /// Returns the properties as they are in a table's file: for callers that send them elsewhere.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode_into(&mut bytes);
        bytes
    }

    /// Decodes the bytes of [`to_bytes`](Properties::to_bytes). `from` names the source, for errors.
    ///
    /// # Errors
    /// [`Corruption`](situ_storage::Error::Corruption): a property is missing, doubled or misshapen.
    pub fn from_bytes(bytes: &[u8], from: &str) -> situ_storage::Result<Properties> {
        Properties::decode(bytes).map_err(|damage| damage.error(from, 0, "properties"))
    }

    /// Appends each property as name length (u8), name, value length (u32), value.
    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        for field in fields() {
            let value = (field.get)(self);
            if value.is_empty() && is_optional(field) {
                continue;
            }
            out.push(field.name.len() as u8);
            out.extend_from_slice(field.name.as_bytes());
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(&value);
        }
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Properties, Damage> {
        let mut properties = Properties::default();
        let mut seen = Vec::new();
        while !bytes.is_empty() {
            let left = bytes.len();
            let (name, value, rest) = split(bytes)
                .ok_or_else(|| Damage::new("a property", format!("something else, {left} bytes before the end")))?;
            bytes = rest;
            let Some(field) = fields().find(|field| field.name.as_bytes() == name) else { continue };
            if seen.contains(&field.name) || !(field.set)(&mut properties, value) {
                let expected = format!("property {} once, in its length", field.name);
                return Err(Damage::new(expected, format!("{} bytes", value.len())));
            }
            seen.push(field.name);
        }
        match required().find(|field| !seen.contains(&field.name)) {
            Some(missing) => Err(Damage::new(format!("property {}", missing.name), "none")),
            None => Ok(properties),
        }
    }
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (name_bytes, bytes) = bytes.split_first()?;
    let (name, bytes) = bytes.split_at_checked(usize::from(*name_bytes))?;
    let (_, rest) = bytes.split_first_chunk::<4>()?;
    let (value, rest) = rest.split_at_checked(u32_at(bytes, 0) as usize)?;
    Some((name, value, rest))
}

#[cfg(test)]
mod tests;
