//! A state from the tables that are found, if no manifest names the tables of the store.
//!
//! 1. Each table names its keyspace, by number and name. The readable part of a manifest counts more.
//! 2. The level of a table is unknown, and no number tells the newer of two versions of a key. Compactions give old
//!    entries new files, so file numbers do not. Entries of the deepest level have the sequence number 0, so sequence
//!    numbers do not either. So tables whose keys overlap are merged, entry by entry, into one sorted run.
//! 3. A sound table that overlaps no other one stays as it is. All of them make up the deepest level.
//!
//! **Invariant.** The spans of merged tables and of those that stay are disjoint.

use super::report::{LossKind, LostName, LostRange, LostWrites};
use super::tables::{TreePlace, meta_of};
use super::values::ValueRescue;
use super::{LogSurvey, Repair};
use crate::Result;
use crate::base::options::LEVELS;
use crate::base::options::{DEFAULT_KEYSPACE, DEFAULT_KEYSPACE_ID};
use crate::opening::state::{KeyspaceState, StoreState};
use crate::versions::version::{Added, TableMeta, Version};
use situ_compaction::KeySpan;
use situ_storage::{Error as StorageError, FileName};
use std::collections::{BTreeMap, BTreeSet, HashSet};

#[derive(Default)]
pub(super) struct Fragments {
    pub(super) names: BTreeMap<u32, String>,
    pub(super) dropped: HashSet<u32>,
    pub(super) replaced: HashSet<u64>,
    pub(super) next_keyspace: u32,
    pub(super) last_sequence: u64,
    pub(super) lossy_repair: Option<u64>,
    pub(super) several_volumes: bool,
    /// The state of a manifest that does not fit the files. Files that it names and that are missing may have been
    /// replaced by others that it does not name, or be lost.
    pub(super) unfit: Option<StoreState>,
}

impl Fragments {
    /// Returns the keyspace and the span of a table, if a manifest that does not fit describes it.
    pub(super) fn described(&self, number: u64) -> Option<(u32, KeySpan)> {
        let mut keyspaces = self.unfit.iter().flat_map(|unfit| &unfit.keyspaces);
        keyspaces.find_map(|(id, keyspace)| {
            let file = keyspace.version.files().map(|(_, file)| file).find(|file| file.meta.number == number)?;
            Some((*id, file.meta.span.clone()))
        })
    }
}

impl Fragments {
    pub(super) fn take(&mut self, edits: Vec<crate::versions::edit::Edit>) {
        for edit in edits {
            self.next_keyspace = self.next_keyspace.max(edit.next_keyspace.unwrap_or(0));
            self.last_sequence = self.last_sequence.max(edit.last_sequence.unwrap_or(0));
            self.lossy_repair = self.lossy_repair.max(edit.lossy_repair);
            self.several_volumes |= edit.several_volumes;
            self.names.extend(edit.created);
            for (_, removed) in edit.removed {
                self.replaced.insert(removed.number);
            }
            // Moved to another level.
            for (_, added) in edit.added {
                self.replaced.remove(&added.meta.number);
            }
            for id in edit.dropped {
                self.dropped.insert(id);
                self.names.remove(&id);
            }
        }
    }
}

/// A table that was found, by its own account or by that of a manifest that does not fit.
struct Candidate {
    number: u64,
    keyspace: Option<u32>,
    /// As a version would hold it, if it is sound; `None` if it is empty.
    judged: Result<Option<TableMeta>, StorageError>,
}

impl Repair {
    /// Carries out step 4.
    pub(super) fn rebuild(&mut self, state: &mut StoreState, known: &Fragments, log: &LogSurvey) -> Result<()> {
        let mut names = known.names.clone();
        let candidates = self.candidates(known, &mut names)?;
        let mut found: Vec<(u32, TableMeta)> = Vec::new();
        // Damaged tables that do not name their keyspace.
        let mut nameless: Vec<u64> = Vec::new();
        for Candidate { number, keyspace, judged } in candidates {
            match (judged, keyspace) {
                (Ok(meta), Some(id)) => {
                    self.report.tables_kept += 1;
                    found.extend(meta.map(|meta| (id, meta)));
                }
                (Err(error), id) => {
                    self.damage(FileName::Table(number), error)?;
                    match id {
                        Some(id) => {
                            let described = known.described(number);
                            let span = described.filter(|(of, _)| *of == id).map(|(_, span)| span);
                            let rescued = self.rescue(number, id, &name_of(id, &names), span.as_ref())?;
                            found.extend(rescued.map(|meta| (id, meta)));
                        }
                        None => nameless.push(number),
                    }
                }
                (Ok(_), None) => {}
            }
        }
        let ids =
            found.iter().map(|(id, _)| id).chain(&log.keyspaces).chain(names.keys()).chain([&DEFAULT_KEYSPACE_ID]);
        let mut ids: BTreeSet<u32> = ids.copied().filter(|id| !known.dropped.contains(id)).collect();
        for number in nameless {
            // Mixed into a keyspace that it does not belong to, it would do more harm than good.
            let behind = ids.last().map_or(0, |id| id.saturating_add(1));
            let id = behind.max(known.next_keyspace);
            // A repair that was stopped may have given the name to the rescued part of the table.
            let name = unless_taken(format!("table-{number:06}"), &names);
            for other in &ids {
                let lost = LostRange::of(&name_of(*other, &names), number, LossKind::Entries, None);
                self.report.lost_ranges.push(lost);
            }
            let salvaged = self.report.tables_salvaged;
            let rescued = self.rescue(number, id, &name, None)?;
            if self.report.tables_salvaged > salvaged {
                let note = format!(
                    "table {number} does not name its keyspace. Its readable entries are now in the keyspace {name:?}"
                );
                self.report.notes.push(note);
                names.insert(id, name);
                found.extend(rescued.map(|meta| (id, meta)));
                ids.insert(id);
            }
        }
        for id in ids {
            let name = name_of(id, &names);
            if !names.contains_key(&id) && id != DEFAULT_KEYSPACE_ID {
                self.report.lost_names.push(LostName { id, now: name.clone() });
            }
            let metas = found.iter().filter(|(other, _)| *other == id).map(|(_, meta)| meta.clone()).collect();
            self.rebuild_keyspace(state, id, name, metas)?;
        }
        if known.unfit.is_none() {
            self.report.without_manifest = true;
            self.tell_what_is_not_known(&found, log);
        }
        Ok(())
    }

    /// Returns the tables found that may hold something, in the order of their numbers; `names` gets the keyspaces'
    /// names in the tables.
    fn candidates(&mut self, known: &Fragments, names: &mut BTreeMap<u32, String>) -> Result<Vec<Candidate>> {
        let mut candidates = Vec::new();
        let mut said: BTreeMap<u32, String> = BTreeMap::new();
        for number in self.tables_found() {
            let name = FileName::Table(number);
            self.aside.insert(name);
            if known.replaced.contains(&number) {
                self.report.notes.push(format!("{name} had been replaced by a compaction and was not used"));
                continue;
            }
            if known.described(number).is_none() && self.was_never_finished(number) {
                self.report.notes.push(format!("{name} had not been finished and was not used"));
                continue;
            }
            let (judged, properties) = match self.open_table(number) {
                Ok(table) => (Ok(meta_of(number, &table, &self.salvager.source)), Some(table.properties().clone())),
                Err(error) => (Err(error), self.salvager.properties(number)?),
            };
            let keyspace = properties.as_ref().map(|properties| properties.keyspace_id);
            let keyspace = keyspace.or(known.described(number).map(|(id, _)| id));
            if keyspace.is_some_and(|id| known.dropped.contains(&id)) {
                self.report.notes.push(format!("{name} belonged to a keyspace that was dropped and was not used"));
                continue;
            }
            let named = properties.filter(|properties| !properties.keyspace_name.is_empty());
            said.extend(named.map(|properties| (properties.keyspace_id, properties.keyspace_name)));
            candidates.push(Candidate { number, keyspace, judged });
        }
        // A name is given again only after its keyspace was dropped: so the youngest keyspace of a name has it.
        for (id, name) in said.into_iter().rev() {
            let taken = names.values().any(|other| *other == name);
            if !taken && !names.contains_key(&id) {
                names.insert(id, name);
            } else if names.get(&id) != Some(&name) {
                let now = name_of(id, names);
                let note = if taken {
                    format!(
                        "keyspace {id} and a newer keyspace both have the name {name:?}. Keyspace {id} may have been dropped \
                         before. Its tables are kept under the name {now:?}; drop that keyspace if you do not need it"
                    )
                } else {
                    format!(
                        "a table of keyspace {id} says that the keyspace is called {name:?}; the keyspace is now called {now:?}"
                    )
                };
                self.report.notes.push(note);
            }
        }
        candidates.sort_by_key(|candidate| candidate.number);
        Ok(candidates)
    }

    /// Makes the deepest level of a keyspace from the tables that are found, and from the rescued parts of others.
    fn rebuild_keyspace(&mut self, state: &mut StoreState, id: u32, name: String, metas: Vec<TableMeta>) -> Result<()> {
        let newest = metas.iter().map(|meta| meta.largest_sequence).max().unwrap_or(0);
        state.last_sequence = state.last_sequence.max(newest);
        let originals: HashSet<u64> = self.tables_found().into_iter().collect();
        let mut added = Vec::new();
        for group in overlapping(metas) {
            if let [alone] = &group[..] {
                self.aside.remove(&FileName::Table(alone.number));
                added.push(Added { level: LEVELS - 1, meta: alone.clone() });
            } else if !self.salvager.dry_run {
                let numbers: Vec<u64> = group.iter().map(|meta| meta.number).collect();
                added.extend(self.salvager.merge(id, &name, group)?);
                let temporary = numbers.into_iter().filter(|number| !originals.contains(number));
                temporary.into_iter().try_for_each(|number| self.salvager.discard(number))?;
            }
        }
        let version = Version::empty().apply(&[], &added, &self.salvager.source);
        let version =
            version.map_err(|text| StorageError::corruption(&name, 0, "rebuilt version", "one that fits", text))?;
        state.keyspaces.insert(id, KeyspaceState { name, version, log_number: 0 });
        state.next_keyspace = state.next_keyspace.max(id.saturating_add(1));
        Ok(())
    }

    fn tell_what_is_not_known(&mut self, found: &[(u32, TableMeta)], log: &LogSurvey) {
        let text = "no manifest is left: a keyspace, a table or a log file that was missing before cannot be named";
        self.report.notes.push(text.to_owned());
        // A log goes on where the tables end.
        let newest = found.iter().map(|(_, meta)| meta.largest_sequence).max().unwrap_or(0);
        let Some(first) = log.first.filter(|first| *first > newest + 1) else { return };
        // If a compaction has dropped sequence numbers, tables do not name their last write.
        if found.iter().any(|(_, meta)| meta.smallest_sequence == 0) {
            let text = format!(
                "the log begins at sequence number {first}. Older writes should be in tables; if an older log file is missing, \
                 its writes are lost"
            );
            self.report.notes.push(text);
        } else {
            self.report.lost_writes.push(LostWrites { first: Some(newest + 1), last: Some(first - 1) });
        }
    }

    /// Rescues the rest of a damaged table that is in no manifest that fits. `span`: its span in a manifest that does
    /// not fit.
    fn rescue(&mut self, number: u64, id: u32, keyspace: &str, span: Option<&KeySpan>) -> Result<Option<TableMeta>> {
        let remains = self.salvager.salvage(
            number,
            &TreePlace { keyspace, id, level: 0, span, rescued_bytes: 0 },
            &ValueRescue::default(),
        )?;
        self.report.lost_ranges.extend(remains.lost);
        self.count(remains.usable);
        for error in remains.damages {
            self.damage(FileName::Table(number), error)?;
        }
        Ok(remains.table)
    }
}

pub(super) fn name_of(id: u32, names: &BTreeMap<u32, String>) -> String {
    if let Some(name) = names.get(&id) {
        return name.clone();
    }
    let plain = if id == DEFAULT_KEYSPACE_ID { DEFAULT_KEYSPACE.to_owned() } else { format!("keyspace-{id}") };
    unless_taken(plain, names)
}

fn unless_taken(mut name: String, names: &BTreeMap<u32, String>) -> String {
    while names.values().any(|other| *other == name) {
        name.push_str("-recovered");
    }
    name
}

/// Returns tables of one keyspace in groups: those of a group overlap, those of different groups do not.
fn overlapping(mut metas: Vec<TableMeta>) -> Vec<Vec<TableMeta>> {
    metas.sort_by(|a, b| a.span.begin.cmp(&b.span.begin));
    let mut groups: Vec<(KeySpan, Vec<TableMeta>)> = Vec::new();
    for meta in metas {
        match groups.last_mut() {
            Some((span, group)) if meta.span.begin < span.end => {
                span.end = span.end.clone().max(meta.span.end.clone());
                group.push(meta);
            }
            _ => groups.push((meta.span.clone(), vec![meta])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::version::tests::meta;

    #[test]
    fn tables_that_touch_each_other_by_a_third_are_one_group() {
        let groups = overlapping(vec![
            meta(1, "m", "p"),
            meta(2, "a", "c"),
            meta(3, "b", "d"),
            meta(4, "d", "f"),
            meta(5, "q", "r"),
        ]);
        let numbers: Vec<Vec<u64>> =
            groups.iter().map(|group| group.iter().map(|meta| meta.number).collect()).collect();
        assert_eq!(numbers, [vec![2, 3, 4], vec![1], vec![5]]);
    }

    #[test]
    fn a_name_that_is_taken_is_not_given_twice() {
        let names = BTreeMap::from([(3, "keyspace-2".to_owned())]);
        assert_eq!(name_of(2, &names), "keyspace-2-recovered");
        assert_eq!((name_of(3, &names), name_of(0, &names)), ("keyspace-2".to_owned(), "default".to_owned()));
    }
}
