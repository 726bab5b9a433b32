//! Large values of a flush go to the value log.
//!
//! 1. The merge gives each value of [`value_log_min_bytes`](crate::KeyspaceOptions::value_log_min_bytes) and more to
//!    its host, and writes the handle that comes back.
//! 2. When the table is written, [`sync`](Separator::sync) makes the values durable. Then the edit may name both.
//! 3. The keyspace keeps the writer: the next flush goes on in the same segment.
//!
//! **Filters.** A filter that decides by the first bytes of a value has them next to each handle. The values of a
//! keyspace whose filter needs all of a value stay in tables.
//!
//! **Failure.** The writer of a flush that has failed is given up, with the segments that no version has. Values that
//! it has written to the segment of an earlier flush count as dead in the value log, and in no edit. The next opening
//! counts them once more.
//!
//! **Threads.** The flusher alone, or the thread that opens the store. So the lock is never waited for.

use crate::base::options::KeyspaceOptions;
use crate::base::sync::lock;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::segments::{Pointer, ValueSource};
use situ_storage::Result as StorageResult;
use situ_values::{Phase, ValueWriter, Written};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// See the module's documentation.
pub(crate) struct Separator {
    keyspace: Arc<KeyspaceCore>,
    source: Arc<ValueSource>,
    min_bytes: usize,
    prefix_bytes: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    writer: Option<ValueWriter>,
    /// The segments that were written to.
    segments: BTreeSet<u64>,
    /// The one of them that an earlier flush has begun. Versions have it, so its last holder deletes it.
    listed: Option<u64>,
    /// What this flush has written to that one.
    listed_bytes: u64,
    /// All that was written is durable.
    is_synced: bool,
}

/// Returns the length from which values of a keyspace go to the value log, and the number of first bytes that a filter
/// has to see. Returns `None` if none goes there.
pub(crate) fn bounds(options: &KeyspaceOptions) -> Option<(usize, usize)> {
    let min_bytes = usize::try_from(options.value_log_min_bytes?).unwrap_or(usize::MAX);
    let prefix_bytes = match &options.compaction_filter {
        None => 0,
        Some(filter) => filter.value_prefix_bytes()?,
    };
    Some((min_bytes.max(prefix_bytes), prefix_bytes))
}

/// Returns true if a keyspace has values in the value log, or may get some.
pub(crate) fn may_have_values(keyspace: &KeyspaceCore) -> bool {
    bounds(&keyspace.options).is_some() || !keyspace.view.load().version.segments.is_empty()
}

impl Separator {
    /// Returns the separator of a keyspace; `None` if the keyspace keeps all values in tables.
    pub(crate) fn of(keyspace: &Arc<KeyspaceCore>, source: &Arc<ValueSource>) -> Option<Separator> {
        let (min_bytes, prefix_bytes) = bounds(&keyspace.options)?;
        let (keyspace, source) = (Arc::clone(keyspace), Arc::clone(source));
        Some(Separator { keyspace, source, min_bytes, prefix_bytes, state: Mutex::default() })
    }

    /// Returns a separator for the same flush, once more.
    pub(crate) fn again(&self) -> Option<Separator> {
        Separator::of(&self.keyspace, &self.source)
    }

    pub(crate) fn min_bytes(&self) -> usize {
        self.min_bytes
    }

    /// Writes a value, and appends what stands for it to `pointer`.
    pub(crate) fn separate(&self, key: &[u8], value: &[u8], pointer: &mut Vec<u8>) -> StorageResult<()> {
        let mut state = lock(&self.state);
        let own = state.writer.take();
        // A statement of its own: the lock must not be held while the log is opened. Who drops the keyspace takes it,
        // too.
        let kept = if own.is_none() { lock(&self.keyspace.flushed_values).take() } else { None };
        if let Some(kept) = &kept {
            state.listed = kept.segment();
        }
        let writer = match own.or(kept) {
            Some(writer) => writer,
            None => self.source.log()?.writer(),
        };
        let handle = state.writer.insert(writer).append(u64::from(self.keyspace.id), key, value)?;
        if state.segments.insert(handle.segment) {
            self.source.begin_writing(handle.segment);
        }
        state.is_synced = false;
        if state.listed == Some(handle.segment) {
            state.listed_bytes += handle.footprint();
        }
        Pointer::append(&handle, &value[..self.prefix_bytes], pointer);
        Ok(())
    }

    /// Makes the values durable. What was written comes back, by segment.
    pub(crate) fn sync(&self) -> StorageResult<Vec<Written>> {
        let mut state = lock(&self.state);
        let written = state.writer.as_mut().map_or(Ok(Vec::new()), ValueWriter::sync)?;
        state.is_synced = true;
        Ok(written)
    }

    /// Notes that the edit that names the values is true.
    pub(crate) fn keep(&self) {
        let State { writer, segments, is_synced, .. } = std::mem::take(&mut *lock(&self.state));
        assert!(segments.is_empty() || is_synced, "an edit names values that may be lost: {segments:?}");
        *lock(&self.keyspace.flushed_values) = writer;
        self.source.end_writing(&segments);
    }

    /// Notes that the flush has failed.
    pub(crate) fn give_up(&self) {
        let State { writer, segments, listed, listed_bytes, is_synced } = std::mem::take(&mut *lock(&self.state));
        drop(writer);
        if let (Some(listed), Some(log)) = (listed, self.source.log_if_open()) {
            // Of a segment that is not sealed, what was not synced is cut.
            let is_sealed = log.segment(listed).is_some_and(|segment| segment.phase == Phase::Sealed);
            log.add_dead(listed, if is_synced || is_sealed { listed_bytes } else { 0 });
        }
        // The version of now does not tell: the keyspace may have been dropped, and a cursor may read the segment all
        // the same.
        segments.iter().filter(|number| Some(**number) != listed).for_each(|number| self.source.add(*number));
        self.source.end_writing(&segments);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_compaction::{CompactionFilter, Decision, FilterContext};

    /// Needs so many bytes, or all of a value.
    struct Needs(Option<usize>);

    impl CompactionFilter for Needs {
        fn name(&self) -> &str {
            "needs"
        }

        fn value_prefix_bytes(&self) -> Option<usize> {
            self.0
        }

        fn decide(&self, _: &FilterContext<'_>, _: &[u8], _: &[u8]) -> Decision {
            Decision::Keep
        }
    }

    #[test]
    fn a_keyspace_separates_what_is_long_enough_for_its_option_and_its_filter() {
        let of = |min: Option<u64>, filter: Option<Needs>| {
            let compaction_filter = filter.map(|filter| Arc::new(filter) as Arc<dyn CompactionFilter>);
            let value_log_min_bytes = min;
            bounds(&KeyspaceOptions { value_log_min_bytes, compaction_filter, ..KeyspaceOptions::default() })
        };
        assert_eq!(of(None, None), None);
        assert_eq!(of(Some(500), None), Some((500, 0)));
        assert_eq!(of(Some(500), Some(Needs(Some(22)))), Some((500, 22)));
        assert_eq!(of(Some(0), Some(Needs(Some(22)))), Some((22, 22)), "a shorter value has no 22 bytes");
        assert_eq!(of(Some(500), Some(Needs(None))), None, "the filter is to see all of each value");
        assert_eq!(of(None, Some(Needs(Some(22)))), None);
    }
}
