//! The state of a segment while the log is open.

use crate::dead::Ranges;
use crate::format::Identity;
use crate::options::Layout;
use situ_storage::Error;
use std::collections::BTreeSet;
use std::sync::Mutex;

/// The phase of a segment's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Phase {
    /// A writer appends to it.
    Open,
    /// Its writer has ended without sealing it; [`tidy`](crate::ValueLog::tidy) will.
    Abandoned,
    /// Nothing is appended any more. It can be trimmed and collected.
    Sealed,
    /// Its live records have moved to other segments. It goes when its owner removes it.
    Collected,
    /// The file is missing, or its header and its trailer are damaged. Its records cannot be read.
    Lost,
}

/// A segment, for owners and for people. Sums are sums of [footprints](crate::Handle::footprint).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its number.
    pub number: u64,
    /// The phase of its life.
    pub phase: Phase,
    /// Length of the file.
    pub file_bytes: u64,
    /// The number of its records, as far as that is known: an open segment counts the records that were appended.
    pub records: u64,
    /// All records.
    pub record_bytes: u64,
    /// Records that are dead, as far as the owner has reported.
    pub dead_bytes: u64,
    /// The part of the dead bytes that was zeroed or discarded.
    pub trimmed_bytes: u64,
    /// Records are missing or damaged that should be there: the segment is never a victim.
    pub is_incomplete: bool,
    /// The owner could not collect it and has [set it aside](crate::ValueLog::set_aside): it is no victim until the log
    /// is opened again.
    pub is_set_aside: bool,
    /// Its records were looked for one by one: some dead bytes may be counted that are no part of `record_bytes`. So no
    /// caller may take the segment for empty by its sums. The segment has [live bytes](SegmentInfo::live_bytes), until
    /// a walk has shown that there are none.
    pub sums_are_doubtful: bool,
}

impl SegmentInfo {
    /// Returns the number of bytes of records that are alive, as far as the log knows. Never 0 if the sums are doubtful
    /// and there are records: an owner may remove a segment without live bytes, and this one needs a walk.
    pub fn live_bytes(&self) -> u64 {
        self.record_bytes.saturating_sub(self.dead_bytes)
    }

    /// Returns true if it stays as it is until the log is opened again or a person has looked. It is no victim, and its
    /// garbage calls for no collection of others.
    pub fn is_stuck(&self) -> bool {
        self.is_incomplete || self.is_set_aside
    }

    /// Returns the dead bytes that still take space.
    pub fn garbage_bytes(&self) -> u64 {
        self.dead_bytes.saturating_sub(self.trimmed_bytes)
    }
}

pub(crate) struct Segment {
    pub(crate) identity: Identity,
    pub(crate) layout: Layout,
    pub(crate) pages: u64,
    pub(crate) state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) phase: Phase,
    /// The damage that was found.
    pub(crate) damage: Option<Error>,
    /// Records are missing that should be there.
    pub(crate) is_incomplete: bool,
    /// Its collection has failed for a reason that will not go away.
    pub(crate) is_set_aside: bool,
    /// See [`SegmentInfo::sums_are_doubtful`].
    pub(crate) sums_are_doubtful: bool,
    /// The sum of the footprints of records that were found whole, or written.
    pub(crate) whole_bytes: u64,
    /// First byte behind the last record.
    pub(crate) data_end: u64,
    /// Bytes up to here were handed to the file.
    pub(crate) readable_end: u64,
    /// Records up to here are durable. An abandoned segment is cut there.
    pub(crate) synced_end: u64,
    pub(crate) index_bytes: u32,
    pub(crate) index_check: u32,
    pub(crate) records: u64,
    pub(crate) record_bytes: u64,
    pub(crate) dead_bytes: u64,
    pub(crate) trimmed_bytes: u64,
    /// Bytes that had been appended to the log when the segment was sealed: its age counts from there.
    pub(crate) sealed_at: u64,
    pub(crate) waiting: Ranges,
    pub(crate) gone: Ranges,
    /// Sectors with deaths since they were last looked at.
    pub(crate) fresh: BTreeSet<u32>,
    /// Sectors that are worth zeroing.
    pub(crate) ripe: BTreeSet<u32>,
}

/// The work that `tidy` has to do for a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Duty {
    is_abandoned: bool,
    has_fresh_sectors: bool,
    has_ripe_sectors: bool,
}

impl Duty {
    pub(crate) fn any(self) -> bool {
        self.is_abandoned || self.has_fresh_sectors || self.has_ripe_sectors
    }
}

/// Segments for which `tidy` may have something to do: no fewer than there are. The thread that takes a number looks at
/// the segment.
#[derive(Debug, Default)]
pub(crate) struct Duties {
    pub(crate) abandoned: BTreeSet<u64>,
    pub(crate) fresh: BTreeSet<u64>,
    pub(crate) ripe: BTreeSet<u64>,
}

impl Duties {
    pub(crate) fn add(&mut self, segment: u64, duty: Duty) {
        for (is_due, set) in [
            (duty.is_abandoned, &mut self.abandoned),
            (duty.has_fresh_sectors, &mut self.fresh),
            (duty.has_ripe_sectors, &mut self.ripe),
        ] {
            if is_due {
                set.insert(segment);
            }
        }
    }
}

impl State {
    /// Returns the work that is to be done for the segment. Only sealed segments are trimmed.
    pub(crate) fn duty(&self) -> Duty {
        let is_sealed = self.phase == Phase::Sealed;
        Duty {
            is_abandoned: self.phase == Phase::Abandoned,
            has_fresh_sectors: is_sealed && !self.fresh.is_empty(),
            has_ripe_sectors: is_sealed && !self.ripe.is_empty(),
        }
    }

    /// Notes that records are missing.
    pub(crate) fn miss(&mut self, error: Error) {
        self.damage = Some(error);
        self.is_incomplete = true;
    }

    pub(crate) fn new(phase: Phase) -> State {
        let end = crate::format::FIRST_RECORD;
        State {
            phase,
            damage: None,
            is_incomplete: false,
            is_set_aside: false,
            sums_are_doubtful: false,
            whole_bytes: 0,
            data_end: end,
            readable_end: end,
            synced_end: end,
            index_bytes: 0,
            index_check: 0,
            records: 0,
            record_bytes: 0,
            dead_bytes: 0,
            trimmed_bytes: 0,
            sealed_at: 0,
            waiting: Ranges::default(),
            gone: Ranges::default(),
            fresh: BTreeSet::new(),
            ripe: BTreeSet::new(),
        }
    }

    pub(crate) fn info(&self, segment: &Segment) -> SegmentInfo {
        let unsure = if self.sums_are_doubtful { crate::format::ALIGN } else { 0 };
        let dead_bytes = self.dead_bytes.min(self.record_bytes.saturating_sub(unsure));
        SegmentInfo {
            number: segment.identity.segment,
            phase: self.phase,
            file_bytes: segment.pages * crate::format::SECTOR_BYTES,
            records: self.records,
            record_bytes: self.record_bytes,
            dead_bytes,
            trimmed_bytes: self.trimmed_bytes.min(dead_bytes),
            is_incomplete: self.is_incomplete,
            is_set_aside: self.is_set_aside,
            sums_are_doubtful: self.sums_are_doubtful,
        }
    }
}

impl Segment {
    /// Returns the offset that no record reaches behind: that of the trailer's page.
    pub(crate) fn data_limit(&self) -> u64 {
        self.pages.saturating_sub(1) * crate::format::SECTOR_BYTES
    }
}
