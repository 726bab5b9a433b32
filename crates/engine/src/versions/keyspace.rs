//! A keyspace as the rooms of the engine know it: its options, its view, and what is at work on it.

use crate::base::options::KeyspaceOptions;
use crate::base::sync::lock;
use crate::memtable::Meter;
use crate::versions::gaps::Gaps;
use crate::versions::running::{Postponed, Span};
use crate::versions::version::Version;
use crate::versions::view::{MemtableSlot, View};
use arc_swap::{ArcSwap, ArcSwapOption};
use situ_storage::Error as StorageError;
use situ_values::ValueWriter;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

/// A keyspace's state, shared by its handles and the store's threads.
pub(crate) struct KeyspaceCore {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) options: KeyspaceOptions,
    /// Shared with cursors, which compare it with their own view.
    pub(crate) view: Arc<ArcSwap<View>>,
    pub(crate) gaps: Arc<Gaps>,
    /// Counts the memory of the store's memtables.
    pub(crate) meter: Arc<Meter>,
    /// Log files below this number hold nothing that is not in tables, as the manifest has it.
    pub(crate) log_number: AtomicU64,
    pub(crate) dropped: AtomicBool,
    /// The error that leaves it unknown if the keyspace is dropped after a crash. The keyspace takes no writes until a
    /// new manifest says that it is there.
    pub(crate) doubtful_drop: ArcSwapOption<StorageError>,
    /// Writers wait for room, and the listener was told.
    pub(crate) stopped: AtomicBool,
    /// The spans that running compactions write.
    pub(crate) running: Mutex<Vec<Span>>,
    /// Compactions that have failed and not succeeded since.
    pub(crate) postponed: Mutex<Vec<Postponed>>,
    /// Manual compactions that wait for the running ones to end, while no others are begun.
    pub(crate) compactions_paused: AtomicU64,
    /// Appends the large values of flushes, from one flush to the next; taken while a flush runs.
    pub(crate) flushed_values: Mutex<Option<ValueWriter>>,
    /// Likewise for what collections move.
    pub(crate) collected_values: Mutex<Option<ValueWriter>>,
    /// Opening has made a table of level 0 of what the log held, or is going to, and no compaction of level 0 has ended
    /// since.
    pub(crate) owes_level0: AtomicBool,
}

impl KeyspaceCore {
    pub(crate) fn new(
        id: u32,
        name: String,
        options: KeyspaceOptions,
        version: Version,
        log: u64,
        meter: &Arc<Meter>,
    ) -> Arc<Self> {
        let options = options.bounded();
        let gaps = Gaps::new();
        meter.follow(options.memtable_bytes.saturating_mul(options.memtables_max as u64));
        let active = MemtableSlot::new(u64::from(id), options.memtable_bytes, meter, &gaps);
        let view = View { active, sealed: Vec::new(), version: Arc::new(version) };
        Arc::new(KeyspaceCore {
            id,
            name,
            options,
            view: Arc::new(ArcSwap::from_pointee(view)),
            gaps,
            meter: Arc::clone(meter),
            log_number: AtomicU64::new(log),
            dropped: AtomicBool::new(false),
            doubtful_drop: ArcSwapOption::empty(),
            stopped: AtomicBool::new(false),
            running: Mutex::new(Vec::new()),
            postponed: Mutex::new(Vec::new()),
            compactions_paused: AtomicU64::new(0),
            flushed_values: Mutex::default(),
            collected_values: Mutex::default(),
            owes_level0: AtomicBool::new(false),
        })
    }
}

impl KeyspaceCore {
    /// Makes a memtable to replace the active one.
    pub(crate) fn new_slot(&self, seed: u64) -> Arc<MemtableSlot> {
        MemtableSlot::new(seed, self.options.memtable_bytes, &self.meter, &self.gaps)
    }

    /// Returns true if there may be one more memtable. `Memory::memtables_max` gives the limit.
    pub(crate) fn has_memtable(&self, view: &View, memtables_max: usize) -> bool {
        view.sealed.len() + 1 < memtables_max
    }

    /// Returns true if level 0 may have one more table than the sealed memtables will add.
    pub(crate) fn has_level0(&self, view: &View) -> bool {
        view.version.levels[0].files.len() + view.sealed.len() < self.options.level0_tables_max
    }

    /// Returns true if this view has segments of the value log, or a later view with the same memtable may have some.
    #[inline]
    pub(crate) fn may_get_segments(&self, view: &View) -> bool {
        self.options.value_log_min_bytes.is_some() || !view.version.segments.is_empty()
    }

    /// Returns true if a full memtable could be sealed.
    pub(crate) fn has_room(&self, memtables_max: usize) -> bool {
        let view = self.view.load();
        self.has_memtable(&view, memtables_max) && self.has_level0(&view)
    }
}

impl KeyspaceCore {
    /// Drops the writers of values. The value log seals the segments that they have not ended.
    pub(crate) fn give_up_value_writers(&self) {
        for writer in [&self.flushed_values, &self.collected_values] {
            let given_up = lock(writer).take();
            drop(given_up);
        }
    }
}
