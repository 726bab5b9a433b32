//! The right to change versions.
//!
//! An edit is written to the manifest, and then it is true. If the disk has no room for it, or does not answer, the
//! store cannot know if the edit survives a crash. Its tables are *doubtful* until a new manifest settles the matter. A
//! keyspace that such an edit drops takes no writes until then: a crash could take them away with it. The flusher
//! settles that, if no other edit comes before.

use crate::base::sync::lock;
use crate::versions::edit::Edit;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::manifest::Manifest;
use crate::versions::store::Versions;
use crate::versions::version::{Added, Removed, Version};
use crate::versions::view::MemtableSlot;
use crate::{Error, Result};
use situ_compaction::{DroppedValues, ValueLocation};
use situ_values::Written;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Values in the value log that replaced tables had handles for, and their replacements have not.
#[derive(Default)]
pub(crate) struct DeadValues {
    pub(crate) sums: Vec<DroppedValues>,
    pub(crate) places: Vec<ValueLocation>,
}

/// A change of one keyspace's version.
#[derive(Default)]
pub(crate) struct Change {
    pub(crate) removed: Vec<Removed>,
    pub(crate) added: Vec<Added>,
    /// Values that are new in segments.
    pub(crate) written: Vec<Written>,
    pub(crate) segments_removed: Vec<u64>,
    pub(crate) dead: DeadValues,
    /// The memtable that the added tables replace.
    pub(crate) flushed: Option<Arc<MemtableSlot>>,
    /// The log files that keyspaces need from then on.
    pub(crate) log_numbers: Vec<(u32, u64)>,
}

impl Versions {
    /// Waits for the right to change versions, which one thread at a time has.
    pub(crate) fn edit(&self) -> Result<VersionEditor<'_>> {
        loop {
            let seen = self.editor_returned.generation();
            if let Some(manifest) = lock(&self.manifest).take() {
                return Ok(VersionEditor { versions: self, manifest: Some(manifest) });
            }
            if !self.is_writable {
                return Err(Error::ReadOnly);
            }
            self.editor_returned.wait(seen, None);
        }
    }

    /// Settles if keyspaces whose drop is in doubt are dropped. Returns false if there is none.
    pub(crate) fn settle_drops(&self) -> Result<bool> {
        let in_doubt = self.keyspaces().iter().any(|keyspace| keyspace.doubtful_drop.load().is_some());
        if in_doubt {
            self.edit()?.settle()?;
        }
        Ok(in_doubt)
    }

    /// Returns the version of a keyspace after a change. A change that does not fit makes the store read-only.
    pub(crate) fn changed(&self, keyspace: &KeyspaceCore, change: &Change) -> Result<Version> {
        let Change { removed, added, written, segments_removed, dead, .. } = change;
        let before = &keyspace.view.load().version;
        let version = match removed.is_empty() && added.is_empty() {
            true => Ok(Version::clone(before)),
            false => before.apply(removed, added, &self.source),
        };
        let version = version.and_then(|version| version.with_segments(written, segments_removed, &self.source));
        let version = version.map_err(|text| self.broken_version(keyspace, text))?;
        // A reader of what is replaced has a view with a version of this era, or of one before.
        Ok(if dead.places.is_empty() { version } else { version.in_next_era() })
    }
}

/// The right to change versions; given back on drop.
pub(crate) struct VersionEditor<'a> {
    pub(crate) versions: &'a Versions,
    /// Some until the editor is dropped.
    pub(crate) manifest: Option<Manifest>,
}

impl VersionEditor<'_> {
    /// Makes an edit durable and then true: the edit is completed with numbers, appended and synced; then `install`
    /// makes the change visible in memory. On an error nothing is installed. If the disk was full or did not answer,
    /// the edit can be tried again; after any other error the store is read-only.
    pub(crate) fn apply(&mut self, mut edit: Edit, install: impl FnOnce()) -> Result<()> {
        let versions = self.versions;
        if let Some(error) = versions.health.failure() {
            return Err(error);
        }
        self.settle()?;
        let next_file = versions.next_file.load(Ordering::Relaxed);
        let numbered = edit.added.iter().all(|(_, added)| added.meta.number < next_file);
        assert!(numbered, "an edit names a table whose number may be given again: {edit:?}");
        let are_known = edit.values_written.iter().all(|(_, written)| written.segment < next_file);
        assert!(are_known, "an edit names a segment whose number may be given again: {edit:?}");
        edit.next_file = Some(next_file);
        edit.last_sequence = Some(versions.snapshots.visible());
        let manifest = self.manifest.as_mut().expect("held until drop");
        if let Err(error) = manifest.append(&edit) {
            match error.is_no_space() || error.is_unreachable() {
                true => versions.note_doubt(&edit, &error),
                false => versions.health.fail(error.clone()),
            }
            return Err(error.into());
        }
        if let Some(error) = manifest.take_copy_failure() {
            versions.health.note_job_failure("copy manifest", error.into());
        }
        for (id, number) in &edit.log_numbers {
            if let Some(keyspace) = lock(&versions.registry).by_id.get(id) {
                let before = keyspace.log_number.swap(*number, Ordering::Relaxed);
                assert!(*number >= before, "keyspace {id} needs log file {number} again, after {before}");
            }
        }
        install();
        #[cfg(feature = "costly-checks")]
        versions.assert_versions();
        if manifest.is_long()
            && let Err(error) = self.replace()
        {
            versions.health.note_job_failure("rewrite manifest", error);
        }
        Ok(())
    }

    /// Makes a change of a keyspace durable, and then visible. Returns the new version.
    ///
    /// # Errors
    /// The keyspace is dropped; the change does not fit, and the store is read-only; as
    /// [`apply`](VersionEditor::apply).
    pub(crate) fn change(&mut self, keyspace: &KeyspaceCore, change: Change) -> Result<Arc<Version>> {
        if keyspace.dropped.load(Ordering::Acquire) {
            return Err(Error::KeyspaceDropped { name: keyspace.name.clone() });
        }
        let version = Arc::new(self.versions.changed(keyspace, &change)?);
        let Change { removed, added, written, segments_removed, dead, flushed, log_numbers } = change;
        let dead_sums = version.segments.counted(&dead.sums);
        let view = keyspace.view.load_full();
        let before = Arc::clone(&view.version);
        if let Some(flushed) = &flushed {
            let is_oldest = view.sealed.last().is_some_and(|oldest| Arc::ptr_eq(oldest, flushed));
            assert!(is_oldest, "a flush of {:?} is not of its oldest memtable", keyspace.name);
            let last = flushed.last_sequence();
            added.iter().for_each(|added| added.assert_flushed(last));
            let needed = log_numbers.iter().find(|(id, _)| *id == keyspace.id).map(|(_, number)| *number);
            assert!(needed >= flushed.first_log(), "the log of a flushed memtable is needed: {needed:?}");
        }
        drop(view);
        let id = keyspace.id;
        let edit = Edit {
            log_numbers,
            removed: removed.into_iter().map(|removed| (id, removed)).collect(),
            added: added.into_iter().map(|added| (id, added)).collect(),
            values_written: written.iter().map(|written| (id, *written)).collect(),
            values_dead: dead_sums.iter().map(|dead| (id, *dead)).collect(),
            segments_removed: segments_removed.iter().map(|number| (id, *number)).collect(),
            ..Edit::default()
        };
        self.apply(edit, || {
            version.segments.note(&written, &dead_sums);
            if !dead.places.is_empty() {
                before.segments.end_era(&version.segments, dead.places, &self.versions.source.values);
            }
            keyspace.view.rcu(|view| {
                let mut view = (**view).clone();
                view.sealed.retain(|slot| flushed.as_ref().is_none_or(|flushed| !Arc::ptr_eq(slot, flushed)));
                view.version = Arc::clone(&version);
                view
            });
            flushed.iter().for_each(|slot| slot.memtable.let_go());
            segments_removed.iter().filter_map(|number| before.segments.find(*number)).for_each(|file| file.retire());
        })?;
        #[cfg(feature = "costly-checks")]
        assert!(Arc::ptr_eq(&keyspace.view.load().version, &version), "two editors have changed a version");
        Ok(version)
    }

    /// Puts a new manifest in force without a doubtful edit, if there is one: its tables were never there, and its
    /// keyspaces are not dropped.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let versions = self.versions;
        if lock(&versions.doubtful).is_empty() {
            return Ok(());
        }
        self.replace()?;
        let settled = std::mem::take(&mut *lock(&versions.doubtful));
        for number in settled {
            // It is the number of one of the two.
            versions.source.obsolete.add(number);
            versions.source.values.add(number);
        }
        versions.keyspaces().iter().for_each(|keyspace| keyspace.doubtful_drop.store(None));
        Ok(())
    }

    /// Puts a new manifest in force that describes the present state. If it could not be written, the old one stays. If
    /// the switch to it failed, either of the two may be in force after a crash, so the store takes no more writes.
    fn replace(&mut self) -> Result<()> {
        let versions = self.versions;
        let snapshot = versions.snapshot_edit();
        let manifest = self.manifest.as_mut().expect("held until drop");
        manifest.replace(versions.new_number(), &snapshot).map_err(|unfinished| {
            if unfinished.in_doubt {
                versions.health.fail(unfinished.error.clone());
            }
            Error::from(unfinished)
        })?;
        if let Some(error) = manifest.take_copy_failure() {
            versions.health.note_job_failure("copy manifest", error.into());
        }
        Ok(())
    }

    /// Returns the log numbers to put into an edit that makes the contents of some memtables durable in tables, given
    /// how the view of keyspace `flushed` will look then. `current` as in [`log_numbers`](Versions::log_numbers).
    pub(crate) fn log_numbers_without(
        &self,
        current: u64,
        flushed: &KeyspaceCore,
        slot: &Arc<MemtableSlot>,
    ) -> Vec<(u32, u64)> {
        let versions = self.versions;
        let view = flushed.view.load();
        let left = view.slots().filter(|other| !Arc::ptr_eq(other, slot)).filter_map(|s| s.first_log()).min();
        let mut numbers = versions.log_numbers(current);
        for (id, number) in &mut numbers {
            if *id == flushed.id {
                *number = left.unwrap_or(current);
            }
        }
        numbers
    }
}

impl Drop for VersionEditor<'_> {
    fn drop(&mut self) {
        *lock(&self.versions.manifest) = self.manifest.take();
        self.versions.editor_returned.notify();
    }
}
