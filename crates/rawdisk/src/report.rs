//! The report of a volume about itself, for people.

use super::RawVolume;
use super::cache::CacheUse;
use super::catalogue::Record;
use super::layout::{DiskId, PAGE};
use super::room::{Extent, Room, pages_of};

/// The use of one area; bytes are whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AreaUse {
    /// Its length.
    pub bytes: u64,
    /// The bytes that are not free: files, room that writers have reserved, removed files that are still open or whose
    /// removal is not durable, room for long checkpoints.
    pub used_bytes: u64,
    /// The number of files in it.
    pub files: u64,
    /// Their lengths. The used bytes beyond that are lost in their last pages, or do not belong to a file (yet, or any
    /// more).
    pub file_bytes: u64,
    /// The number of these in more than one extent.
    pub fragmented_files: u64,
    /// The number of runs of free pages.
    pub free_runs: u64,
    /// The longest of them.
    pub longest_free_bytes: u64,
}

/// The report of [`RawVolume::report`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawReport {
    /// Backend and path of the device.
    pub device: String,
    /// The identity of the disk.
    pub id: DiskId,
    /// The number of times that it was formatted.
    pub generation: u64,
    /// The time of the format, in seconds since 1970.
    pub formatted_at: u64,
    /// Its size when it was formatted.
    pub device_bytes: u64,
    /// The log area.
    pub log: AreaUse,
    /// Bytes of the log area that were ever used; a new page file below them is wiped.
    pub log_touched_bytes: u64,
    /// The TopFS area.
    pub top: AreaUse,
    /// Files whose bytes are in the catalogue.
    pub inline_files: u64,
    /// Bytes of one half of the journal.
    pub journal_half_bytes: u64,
    /// The part of these in use in the half in force.
    pub journal_used_bytes: u64,
    /// Checkpoints since the format.
    pub journal_epoch: u64,
    /// Frames since the format.
    pub journal_sequence: u64,
    /// Length of the catalogue.
    pub catalogue_bytes: u64,
    /// Bytes set apart for checkpoints that do not fit into the journal.
    pub checkpoint_bytes: u64,
    /// Copies of the superblock that are damaged and will be written again with the next change.
    pub damaged_superblocks: Vec<u32>,
    /// The cache.
    pub cache: CacheUse,
    /// The reason why the volume takes no changes any more.
    pub failed: Option<String>,
    /// The reason why free room is not discarded on the device any more.
    pub discard_failed: Option<String>,
    /// The reason why callers share fewer queues of the device than they could use: what the system said when it last
    /// refused one.
    pub queue_refused: Option<String>,
}

impl RawReport {
    /// Returns the bytes that the format itself takes: superblocks, journal, room for checkpoints, pages between the
    /// parts.
    pub fn overhead_bytes(&self) -> u64 {
        self.device_bytes - self.log.bytes - self.top.bytes + self.checkpoint_bytes
    }

    /// Returns the cost of tables beyond their bytes: the bytes of the format, and the rest of their last pages. To be
    /// set against `top.file_bytes`.
    pub fn top_overhead_bytes(&self) -> u64 {
        (self.overhead_bytes() + self.top.used_bytes).saturating_sub(self.top.file_bytes + self.checkpoint_bytes)
    }
}

impl RawVolume {
    /// See [`Volume::troubles`](situ_storage::Volume::troubles).
    pub(super) fn list_troubles(&self) -> Vec<String> {
        let (failed, discard_failed, formatted_bytes) = {
            let state = self.shared.lock();
            let failed = state.journal.failed.as_ref().map(ToString::to_string);
            (failed, state.discard_failed.clone(), state.layout.device_pages * PAGE)
        };
        let transfers = &self.shared.transfers;
        let (refused, bytes) = (transfers.queue_refused(), transfers.device.space().logical_total);
        let cut = (bytes < formatted_bytes)
            .then(|| format!("{} has {bytes} bytes, and was formatted with {formatted_bytes}", transfers.location));
        let all = [
            ("the device was cut while it is in use, and what was behind its end is lost", cut),
            ("it takes no changes until it is opened again", failed),
            ("the device is not told of free room any more", discard_failed),
            ("callers share fewer queues of the device than they could use", refused),
            ("submitted reads are done on their callers' threads", self.reads.refused()),
        ];
        all.into_iter().filter_map(|(what, why)| Some(format!("{what}: {}", why?))).collect()
    }

    /// Returns the areas of the disk, with their used and free space.
    pub fn report(&self) -> RawReport {
        let state = self.shared.lock();
        let (layout, journal, catalogue) = (&state.layout, &state.journal, &state.catalogue);
        let area = |area: &Extent, room: &Room| {
            let account = room.account();
            let is_in = |record: &&Record| record.extents().first().is_some_and(|extent| area.contains(extent));
            let files = catalogue.files.values().filter(is_in);
            AreaUse {
                bytes: area.pages * PAGE,
                used_bytes: (area.pages - account.free_pages) * PAGE,
                files: files.clone().count() as u64,
                file_bytes: files.clone().map(|record| record.length).sum(),
                fragmented_files: files.filter(|record| record.extents().len() > 1).count() as u64,
                free_runs: account.runs as u64,
                longest_free_bytes: account.longest_pages * PAGE,
            }
        };
        RawReport {
            device: self.shared.transfers.location.clone(),
            id: layout.id,
            generation: layout.generation,
            formatted_at: layout.formatted_at,
            device_bytes: layout.device_pages * PAGE,
            log: area(&layout.log, &state.log),
            log_touched_bytes: catalogue.log_touched * PAGE,
            top: area(&layout.top, &state.top),
            inline_files: catalogue.files.values().filter(|record| record.extents().is_empty()).count() as u64,
            journal_half_bytes: layout.half_pages * PAGE,
            journal_used_bytes: journal.next_page * PAGE,
            journal_epoch: journal.epoch,
            journal_sequence: journal.sequence,
            catalogue_bytes: catalogue.encoded_bytes(),
            checkpoint_bytes: (pages_of(&journal.long) + pages_of(&journal.reserve)) * PAGE,
            damaged_superblocks: state.damaged_copies.clone(),
            cache: self.shared.cache.usage(),
            failed: journal.failed.as_ref().map(ToString::to_string),
            discard_failed: state.discard_failed.clone(),
            queue_refused: self.shared.transfers.queue_refused(),
        }
    }
}
