//! The proof that a fast disk is the store's if one of the two files that say so, DISKS and MEMBER, cannot be read.
//!
//! The contents of the other file are no proof. A path that is spelled wrong leads to the disk of another store. The
//! MEMBER of that disk is as sound as the one of this store's disk. Its tables would hide those of the same numbers at
//! home, and its log would be replayed and removed. So a repair takes a disk in two cases only. The damaged file still
//! has the disk's id (`members::still_names`). Or the manifest in force knows the files there:
//!
//! 1. Every file that the manifest needs is on the disk or at home, in its length.
//! 2. The manifest names tables on the disk, and one that can be opened is as the manifest describes it. The second in
//!    which it was made is part of that. If the manifest names none there, none is there, and the log goes on where the
//!    manifest ends.
//! 3. If DISKS is not there at all, the home alone lacks a file. A home that has all it needs may never have had a fast
//!    disk.
//!
//! If CURRENT or the manifest is damaged as well, the youngest readable manifest counts. It may know less than the
//! store had at last, or of more. So a table on the disk that this manifest describes decides.
//!
//! **Limits.** Two stores without a table on their fast disks are not told apart if their logs have equal numbers and
//! equal counts of writes. Two stores with a table of the same number, entries, length and second are not told apart
//! either.

use super::missing::home_lacks_a_file;
use crate::base::batch::Record;
use crate::opening::open::{StoreState, needed_logs};
use crate::opening::replay::check_closed;
use crate::places::Volumes;
use crate::tiers::placement::TierRules;
use crate::tiers::volumes::TwoDisks;
use crate::versions::edit::Edit;
use crate::versions::manifest;
use crate::versions::version::TableSource;
use situ_base::Env;
use situ_disks::{Disks, FAST};
use situ_log::{RecoveryMode, recover};
use situ_storage::{FileName, Volume};
use situ_table::BlockCache;
use std::sync::Arc;

/// The maximum number of tables that are open at a time.
const OPEN_TABLES_MAX: usize = 16;

/// Looks for the files that the manifest knows; the error describes in words why they are not enough. `was_named`:
/// DISKS is there, however damaged.
pub(super) fn manifest_knows(disks: &Arc<Disks>, env: &Env, was_named: bool) -> Result<(), String> {
    let text = |error: situ_storage::Error| error.to_string();
    // Not through both disks: a file at home may lie on the other store's disk as well.
    let home: &dyn Volume = &disks.capacity().volume;
    let (edits, is_whole) = edits_known(home)?;
    let volume = Arc::clone(disks) as Arc<dyn Volume>;
    let volumes: Arc<dyn Volumes> = Arc::new(TwoDisks::new(disks, TierRules::default()));
    let source = TableSource::new(&volumes, BlockCache::new(0), env, OPEN_TABLES_MAX);
    let state = StoreState::replay(edits, &Arc::new(source))?;
    if !was_named && !home_lacks_a_file(home, &state).map_err(text)? {
        return Err(
            "the store is complete without this disk: the home has all that the store needs, and no file DISKS"
                .to_owned(),
        );
    }
    let files = volume.list().map_err(text)?;
    if is_whole && let Some(missing) = state.missing_files(&files).first() {
        let (name, expected, found) = (missing.name, &missing.expected, &missing.found);
        return Err(format!(
            "the store needs {name} ({expected}), but neither the fast disk nor the home has it as expected: found {found}"
        ));
    }
    let tables = state.keyspaces.values().flat_map(|keyspace| keyspace.version.files());
    let mut on_disk = tables.filter(|(_, file)| file.meta.volume == FAST).peekable();
    if on_disk.peek().is_some() {
        let mut known = on_disk.filter(|(_, file)| file.table().is_ok());
        return known
            .next()
            .map(drop)
            .ok_or_else(|| "none of the tables on the fast disk is one that the manifest describes".to_owned());
    }
    if !is_whole {
        return Err("what can be read of the manifest names no table on the fast disk".to_owned());
    }
    let is_table = |name: &FileName| matches!(name, FileName::Table(_));
    if let Some(name) = files.iter().map(|file| file.name).filter(is_table).find(|name| disks.disk_of(*name) == FAST) {
        return Err(format!("the manifest names no table on the fast disk, and {name} is there"));
    }
    let logs = needed_logs(&state, files.iter().map(|file| file.name));
    if !logs.iter().any(|number| disks.disk_of(FileName::Log(*number)) == FAST) {
        return Err("nothing that the store needs is on the fast disk".to_owned());
    }
    log_goes_on(&volume, &logs, &state)
}

/// Returns the edits of the manifest in force, and true; or the readable edits of the youngest that is there, and
/// false.
fn edits_known(home: &dyn Volume) -> Result<(Vec<Edit>, bool), String> {
    let why =
        match manifest::current(home).and_then(|number| number.map(|n| manifest::read_damaged(home, n)).transpose()) {
            Ok(Some(found)) => return Ok((found.edits, true)),
            Ok(None) => "the file CURRENT, which names the manifest, is missing in the home".to_owned(),
            Err(error) => error.to_string(),
        };
    let files = home.list().map_err(|error| error.to_string())?;
    let edits = manifest::readable_of_youngest(home, &files);
    if edits.is_empty() { Err(why) } else { Ok((edits, false)) }
}

/// Checks that the sequence numbers of the log fit those of the manifest.
fn log_goes_on(volume: &Arc<dyn Volume>, logs: &[u64], state: &StoreState) -> Result<(), String> {
    let mut numbers: Option<(u64, u64)> = None;
    let report = recover(volume, logs, RecoveryMode::Repair, &mut |_, bytes| {
        if let Ok(record) = Record::decode(bytes) {
            let first = numbers.map_or(record.first, |(first, _)| first);
            numbers = Some((first, (record.first + record.len() as u64).saturating_sub(1)));
        }
        Ok(())
    });
    let report = report.map_err(|error| error.to_string())?;
    if let Some(closed) = state.closed {
        check_closed(&report, closed).map_err(|error| error.to_string())?;
    }
    let Some((first, last)) = numbers else { return Ok(()) };
    let ends = state.last_sequence;
    if first > ends.saturating_add(1) || (state.closed.is_some() && last != ends) {
        return Err(format!(
            "the log on the disk does not fit the manifest: the log has sequence numbers {first} to {last}, and the manifest ends \
             at {ends}"
        ));
    }
    Ok(())
}
