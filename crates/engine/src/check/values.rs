//! Values in the value log that a reader would ask for and would not get.
//!
//! 1. One merge over all levels gives the versions of each key, newest first.
//! 2. The newest version counts, unless a range tombstone hides it. Its value must be there.
//! 3. Older versions may lead to segments that are gone. A value whose segment is there must be sound, however old.
//!
//! An unsound table may hold an entry that hides a version. So if a keyspace has an unsound table, a missing segment
//! says nothing to `verify`. A repair gives up the entries of such a table. Versions that they have hidden may be
//! visible then, and must lead to a value.

use crate::Error;
use crate::read::merge::{LevelCursor, MergeCursor, Source};
use crate::read::options::{ReadOptions, table_read_options};
use crate::versions::segments::Pointer;
use crate::versions::version::{TableFile, Version};
use situ_storage::{Error as StorageError, Result};
use situ_table::range_del::TombstoneIndex;
use situ_table::{Cursor, KeyKind, KeyRef, MAX_SEQUENCE, Reach};
use std::collections::HashSet;
use std::sync::Arc;

/// A value that is not there, or is not sound.
pub(crate) struct LostValue<'a> {
    pub(crate) key: &'a [u8],
    /// The bytes that the table has for it.
    pub(crate) pointer: &'a [u8],
    pub(crate) error: StorageError,
}

/// The meaning of handles to missing segments if there are unsound tables, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    /// A missing segment means nothing.
    Verify,
    /// Each handle may become visible.
    Repair,
}

/// The sound tables of a keyspace, as a merge reads them.
struct Tables {
    sources: Vec<Source>,
    tombstones: Vec<Arc<TombstoneIndex>>,
}

impl Tables {
    fn of(version: &Version, unsound: &HashSet<u64>) -> Result<Tables> {
        let options = table_read_options(&ReadOptions { bypass_cache: true, ..ReadOptions::default() });
        let (mut sources, mut tombstones) = (Vec::new(), Vec::new());
        for (number, level) in version.levels.iter().enumerate() {
            let is_sound = |file: &&Arc<TableFile>| !unsound.contains(&file.meta.number);
            let sound: Vec<Arc<TableFile>> = level.files.iter().filter(is_sound).cloned().collect();
            for file in sound.iter().filter(|file| file.meta.range_deletions > 0) {
                tombstones.push(file.tombstones(&options)?);
            }
            if number > 0 {
                sources.push(Source::Level(Box::new(LevelCursor::new(sound, options))));
                continue;
            }
            for file in sound {
                sources.push(Source::Table(Box::new(file.table()?.cursor(options))));
            }
        }
        Ok(Tables { sources, tombstones })
    }
}

/// Reads all values of a keyspace that lie in the value log, and reports those that are lost. Tables in `unsound` are
/// left out. Returns the number of values that were read.
///
/// # Errors
/// A table could not be read.
pub(crate) fn for_each_lost_value(
    version: &Version,
    unsound: &HashSet<u64>,
    beside: Beside,
    tell: &mut dyn FnMut(LostValue<'_>),
) -> Result<u64> {
    let Tables { sources, tombstones } = Tables::of(version, unsound)?;
    let is_hidden = |key: KeyRef<'_>| {
        let covering = |index: &Arc<TombstoneIndex>| index.covering(key.user, MAX_SEQUENCE).map(|cover| cover.sequence);
        tombstones.iter().filter_map(covering).any(|cover| cover > key.trailer.sequence())
    };
    let mut merge = MergeCursor::new(sources);
    merge.first()?;
    let mut last: Option<Vec<u8>> = None;
    let mut count = 0;
    while merge.valid() {
        let key = merge.key();
        let is_newest = last.as_deref() != Some(key.user);
        if key.trailer.kind() == Some(KeyKind::ValueHandle) {
            count += 1;
            let has_segment = has_segment(version, merge.value());
            let read = version.segments.read(key.user, merge.value(), Reach::Disk);
            let is_visible = match unsound.is_empty() {
                true => is_newest && !is_hidden(key),
                false => beside == Beside::Repair,
            };
            let matters = has_segment || is_visible;
            if let (Err(Error::Storage(error)), true) = (read, matters) {
                tell(LostValue { key: key.user, pointer: merge.value(), error });
            }
        }
        if is_newest {
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(merge.key().user);
        }
        merge.next()?;
    }
    Ok(count)
}

/// Returns true if a handle leads to a segment that is there. Bytes that are no handle lead nowhere, and should not be
/// in a table.
fn has_segment(version: &Version, pointer: &[u8]) -> bool {
    Pointer::decode(pointer).is_none_or(|pointer| version.segments.find(pointer.handle.segment).is_some())
}
