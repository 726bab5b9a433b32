//! The catalogue: names, and where their bytes lie (`docs/formats/disk.md`).
//!
//! It is what the journal makes durable: the state after all edits so far, those included that are on their way to the
//! disk. Every edit goes through [`Catalogue::apply`], when it is made and when it is read back, so both give the same.

use super::layout::{PAGE, Superblock};
use super::room::{Extent, pages_of};
use situ_base::bytes::Fields;
use situ_storage::FileName;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The longest file that is kept in the catalogue itself.
pub(super) const INLINE_BYTES_MAX: usize = 1024;
/// More than any file with one extent takes in a checkpoint.
pub(super) const FILE_BYTES_TYPICAL: u64 = 128;

const PUT: u8 = 1;
const REMOVE: u8 = 2;
const RENAME: u8 = 3;
const PLACE_INLINE: u8 = 0;
const PLACE_EXTENTS: u8 = 1;
const EXTENT_BYTES: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FilePlace {
    Inline(Arc<[u8]>),
    Extents(Vec<Extent>),
}

/// The disk's record of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) length: u64,
    pub(super) place: FilePlace,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Edit {
    Put(FileName, Record),
    Remove(FileName),
    Rename(FileName, FileName),
}

impl Record {
    pub(super) fn extents(&self) -> &[Extent] {
        match &self.place {
            FilePlace::Inline(_) => &[],
            FilePlace::Extents(extents) => extents,
        }
    }

    fn encoded_bytes(&self) -> u64 {
        13 + match &self.place {
            FilePlace::Inline(contents) => contents.len() as u64,
            FilePlace::Extents(extents) => (extents.len() * EXTENT_BYTES) as u64,
        }
    }

    fn encode(&self, into: &mut Vec<u8>) {
        into.extend(self.length.to_le_bytes());
        match &self.place {
            FilePlace::Inline(contents) => {
                into.push(PLACE_INLINE);
                into.extend((contents.len() as u32).to_le_bytes());
                into.extend(&contents[..]);
            }
            FilePlace::Extents(extents) => {
                into.push(PLACE_EXTENTS);
                into.extend((extents.len() as u32).to_le_bytes());
                encode_extents(extents, into);
            }
        }
    }

    fn decode(bytes: &mut Fields<'_>) -> Result<Record, String> {
        let (length, place) = (bytes.u64("length of a file")?, bytes.u8("place of a file")?);
        let count = bytes.u32("count of a file's parts")? as usize;
        let place = match place {
            PLACE_INLINE if count > INLINE_BYTES_MAX || count as u64 != length => {
                return Err(format!("a file of {length} bytes with {count} of them in the catalogue"));
            }
            PLACE_INLINE => FilePlace::Inline(bytes.take(count, "contents of a file")?.into()),
            PLACE_EXTENTS => FilePlace::Extents(decode_extents(bytes, count)?),
            other => return Err(format!("a file in place {other}, which this version does not know")),
        };
        Ok(Record { length, place })
    }

    /// Checks that the record can be one of this disk.
    fn check(&self, layout: &Superblock) -> Result<(), String> {
        let FilePlace::Extents(extents) = &self.place else { return Ok(()) };
        let mut pages = 0u64;
        for extent in extents {
            let area = if layout.log.contains(&extents[0]) { &layout.log } else { &layout.top };
            if extent.pages == 0 || !area.contains(extent) {
                return Err(format!("pages {}+{}, which are not of one area", extent.first, extent.pages));
            }
            pages = pages.saturating_add(extent.pages);
        }
        if self.length.div_ceil(PAGE) > pages {
            return Err(format!("a file of {} bytes in {pages} pages", self.length));
        }
        Ok(())
    }
}

pub(super) fn encode_extents(extents: &[Extent], into: &mut Vec<u8>) {
    for extent in extents {
        into.extend(extent.first.to_le_bytes());
        into.extend(extent.pages.to_le_bytes());
    }
}

pub(super) fn decode_extents(bytes: &mut Fields<'_>, count: usize) -> Result<Vec<Extent>, String> {
    let mut extents = Fields(bytes.take(count.saturating_mul(EXTENT_BYTES), "extents")?);
    (0..count)
        .map(|_| Ok(Extent { first: extents.u64("first page")?, pages: extents.u64("count of pages")? }))
        .collect()
}

fn name_text(name: FileName) -> String {
    name.to_string()
}

fn encode_name(name: FileName, into: &mut Vec<u8>) {
    let text = name_text(name);
    // The longest name is that of a manifest with a number of twenty digits.
    into.push(text.len() as u8);
    into.extend(text.as_bytes());
}

fn decode_name(bytes: &mut Fields<'_>) -> Result<FileName, String> {
    let length = usize::from(bytes.u8("length of a name")?);
    let text = String::from_utf8_lossy(bytes.take(length, "name")?);
    text.parse().map_err(|_| format!("the name {text:?}, which this version does not know"))
}

impl Edit {
    pub(super) fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Edit::Put(name, record) => {
                into.push(PUT);
                encode_name(*name, into);
                record.encode(into);
            }
            Edit::Remove(name) => {
                into.push(REMOVE);
                encode_name(*name, into);
            }
            Edit::Rename(from, to) => {
                into.push(RENAME);
                encode_name(*from, into);
                encode_name(*to, into);
            }
        }
    }

    fn decode(bytes: &mut Fields<'_>) -> Result<Edit, String> {
        match bytes.u8("tag of an edit")? {
            PUT => Ok(Edit::Put(decode_name(bytes)?, Record::decode(bytes)?)),
            REMOVE => decode_name(bytes).map(Edit::Remove),
            RENAME => Ok(Edit::Rename(decode_name(bytes)?, decode_name(bytes)?)),
            tag => Err(format!("edit {tag}, which this version does not know")),
        }
    }

    /// Returns all edits of a frame.
    pub(super) fn decode_all(body: &[u8]) -> Result<Vec<Edit>, String> {
        let mut bytes = Fields(body);
        let mut edits = Vec::new();
        while !bytes.0.is_empty() {
            edits.push(Edit::decode(&mut bytes)?);
        }
        Ok(edits)
    }
}

/// Names and where their bytes lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Catalogue {
    layout: Superblock,
    pub(super) files: BTreeMap<FileName, Record>,
    /// Pages of the log area, from its start, that may hold something else than zeros.
    pub(super) log_touched: u64,
    encoded_bytes: u64,
}

impl Catalogue {
    pub(super) fn new(layout: Superblock) -> Catalogue {
        Catalogue { layout, files: BTreeMap::new(), log_touched: 0, encoded_bytes: 12 }
    }

    /// Returns the length of [`Catalogue::encode`].
    pub(super) fn encoded_bytes(&self) -> u64 {
        self.encoded_bytes
    }

    fn insert(&mut self, name: FileName, record: Record) {
        self.take(name);
        for extent in record.extents().iter().filter(|extent| self.layout.log.contains(extent)) {
            self.log_touched = self.log_touched.max(extent.first + extent.pages - self.layout.log.first);
        }
        self.encoded_bytes += 1 + name_text(name).len() as u64 + record.encoded_bytes();
        self.files.insert(name, record);
    }

    fn take(&mut self, name: FileName) -> Option<Record> {
        let record = self.files.remove(&name)?;
        self.encoded_bytes -= 1 + name_text(name).len() as u64 + record.encoded_bytes();
        Some(record)
    }

    /// Changes the catalogue.
    ///
    /// # Errors
    /// The edit does not fit: nothing is changed then.
    pub(super) fn apply(&mut self, edit: Edit) -> Result<(), String> {
        match edit {
            Edit::Put(name, record) => {
                record.check(&self.layout).map_err(|why| format!("{name}: {why}"))?;
                self.insert(name, record);
            }
            Edit::Remove(name) => {
                self.take(name).ok_or_else(|| format!("{name}, which is not there, removed"))?;
            }
            Edit::Rename(from, to) => {
                let record = self.take(from).ok_or_else(|| format!("{from}, which is not there, renamed"))?;
                self.insert(to, record);
            }
        }
        Ok(())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_bytes as usize);
        bytes.extend(self.log_touched.to_le_bytes());
        bytes.extend((self.files.len() as u32).to_le_bytes());
        for (name, record) in &self.files {
            encode_name(*name, &mut bytes);
            record.encode(&mut bytes);
        }
        debug_assert_eq!(bytes.len() as u64, self.encoded_bytes);
        bytes
    }

    pub(super) fn decode(layout: Superblock, body: &[u8]) -> Result<Catalogue, String> {
        let mut bytes = Fields(body);
        let mut catalogue = Catalogue::new(layout);
        let log_touched = bytes.u64("touched pages of the log area")?;
        let count = bytes.u32("count of files")?;
        if log_touched > layout.log.pages {
            return Err(format!("{log_touched} touched pages in a log area of {}", layout.log.pages));
        }
        for _ in 0..count {
            let name = decode_name(&mut bytes)?;
            if catalogue.files.contains_key(&name) {
                return Err(format!("{name} twice"));
            }
            catalogue.apply(Edit::Put(name, Record::decode(&mut bytes)?))?;
        }
        if !bytes.0.is_empty() {
            return Err(format!("{} bytes behind the last file", bytes.0.len()));
        }
        catalogue.log_touched = catalogue.log_touched.max(log_touched);
        Ok(catalogue)
    }

    /// Returns all extents of files in one area.
    pub(super) fn extents_in<'a>(&'a self, area: &'a Extent) -> impl Iterator<Item = Extent> + 'a {
        self.files.values().flat_map(|record| record.extents()).filter(|extent| area.contains(extent)).copied()
    }

    /// Returns the number of pages of all files.
    pub(super) fn pages(&self) -> u64 {
        self.files.values().map(|record| pages_of(record.extents())).sum()
    }
}
