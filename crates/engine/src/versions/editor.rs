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
use crate::versions::view::MemtableSlot;
use crate::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
