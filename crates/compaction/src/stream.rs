//! The selection of the entries that a merge keeps: the rules of multi-version compaction.
//!
//! Live snapshots divide the sequence numbers into *stripes*: two versions are in one stripe if no snapshot sees one
//! without the other.
//!
//! ```text
//! sequences   0 ......... 20 ......... 35 ......... now
//! snapshots                20           35
//! stripes     └─ stripe 0 ─┘└─ stripe 1 ─┘└─ stripe 2 ─     nobody but the present sees the last stripe
//! ```
//!
//! For each user key, newest version first:
//!
//! 1. Only the newest version in each stripe is looked at further; the others are invisible.
//! 2. It is dropped if a range tombstone of its own stripe covers it.
//! 3. In the last stripe, the compaction filter may change it, or turn it into a tombstone.
//! 4. A tombstone has work to do only if it hides something older: a version in a lower stripe, or data below the
//!    inputs. Where nothing lies below, tombstones wait until an older version of the key is kept; if none is, they
//!    are dropped.
//! 5. Where nothing lies below, a version in stripe 0 gets sequence number 0: every reader sees it, nothing is older,
//!    and equal trailers compress well. Not so under a range tombstone of stripe 0 that is kept: it would hide the
//!    entry.
//!
//! Range tombstones are fragments, which have one sequence for each stripe, its newest. The one of stripe 0 goes if
//! nothing lies below the fragment.
//!
//! **Invariants**: for every live snapshot, and for the present, reading any key gives the same before and after. Input
//! keys ascend strictly, and the stream checks it. A merge of sorted inputs is sorted, so a disorder shows in the entry
//! after it happened, and names the file.
//!
//! The sink gets each entry that is not kept, with the reason: [`Sink::dropped`].
//!
//! **Cost**: one key comparison an entry on top of the merge, one key copy a user key, no allocation.

use crate::dropped::{DropReason, DroppedEntry, ValueHandles};
use crate::error::Result;
use crate::filter::{CompactionFilter, Decision, FilterContext};
use crate::merge::{Merge, Source, WarmReader};
use crate::span::{KeySpan, SpanWalk, any_overlaps};
use crate::task::TaskStats;
use situ_storage::{Error, Excerpt};
use situ_table::range_del::FragmentedTombstones;
use situ_table::{KeyKind, KeyRef, MAX_SEQUENCE, SequenceNumber, Trailer};
use std::cmp::Ordering;

/// The number of input entries, kept or not, after which the sink is asked whether to go on.
const TICK_ENTRIES: u64 = 1024;

/// The facts that decide over an entry, apart from the entry.
pub(crate) struct Rules<'a> {
    /// Live snapshots, ascending.
    pub(crate) snapshots: &'a [SequenceNumber],
    /// The spans of older data.
    pub(crate) below: &'a [Vec<KeySpan>],
    /// The range tombstones of the inputs, fragmented for `snapshots`.
    pub(crate) tombstones: &'a FragmentedTombstones,
    /// Those of them that the outputs will hold: [`Rules::retained`].
    pub(crate) retained: &'a FragmentedTombstones,
    /// The application's word, and what it may decide by.
    pub(crate) filter: Option<(&'a dyn CompactionFilter, FilterContext<'a>)>,
    /// Reads value handles for the filter.
    pub(crate) handles: Option<&'a dyn ValueHandles>,
}

impl Rules<'_> {
    /// Returns the part of an entry's value that the filter decides by; `None` if the filter does not see the entry.
    fn seen_by<'v>(&self, filter: &dyn CompactionFilter, kind: KeyKind, value: &'v [u8]) -> Option<&'v [u8]> {
        match kind {
            KeyKind::Put => Some(value),
            KeyKind::ValueHandle => self.handles?.prefix(value, filter.value_prefix_bytes()?),
            _ => None,
        }
    }

    /// Which range tombstones, fragmented for `snapshots`, have work to do after the compaction.
    pub(crate) fn retained(
        tombstones: &FragmentedTombstones,
        snapshots: &[SequenceNumber],
        below: &[Vec<KeySpan>],
    ) -> FragmentedTombstones {
        tombstones.retain(|fragment, sequence| {
            stripe_of(snapshots, sequence) > 0 || any_overlaps(below, fragment.begin, fragment.end)
        })
    }
}

/// The facts that a sink gets with an entry.
#[derive(Clone, Copy)]
pub(crate) struct About<'a> {
    /// It is the first of its user key: outputs may be cut before it.
    pub(crate) new_user_key: bool,
    /// The merge, which stands on the entry or behind it. A sink asks it when a block ends.
    pub(crate) inputs: &'a dyn WarmReader,
}

/// Takes what the stream keeps, in order.
pub(crate) trait Sink {
    /// An entry to keep.
    fn entry(&mut self, key: KeyRef<'_>, value: &[u8], about: About<'_>) -> Result<()>;

    /// An input entry that is not kept, or not with its value. The default listens to nothing, and costs nothing.
    #[inline]
    fn dropped(&mut self, entry: &DroppedEntry<'_>, why: DropReason) -> Result<()> {
        let _ = (entry, why);
        Ok(())
    }

    /// Called now and then, also when nothing is kept.
    fn tick(&mut self) -> Result<()>;
}

#[inline]
fn stripe_of(snapshots: &[SequenceNumber], sequence: SequenceNumber) -> usize {
    snapshots.partition_point(|snapshot| *snapshot < sequence)
}

#[inline]
fn stripe_top(snapshots: &[SequenceNumber], stripe: usize) -> SequenceNumber {
    snapshots.get(stripe).copied().unwrap_or(MAX_SEQUENCE)
}

/// Runs the whole merge into the sink.
pub(crate) fn drive<S: Source, K: Sink>(
    merge: &mut Merge<S>,
    rules: &Rules<'_>,
    sink: &mut K,
    stats: &mut TaskStats,
) -> Result<()> {
    let mut stream = Stream {
        rules,
        below: SpanWalk::new(rules.below),
        covering: FragmentWalk::new(rules.tombstones),
        retained: FragmentWalk::new(rules.retained),
        user_key: Vec::new(),
        below_this_key: None,
        waiting: Vec::new(),
        kept_this_key: false,
    };
    // No entry has been seen: no trailer and no stripe compares equal to these.
    let mut started = false;
    let mut trailer_before = Trailer::NEWEST;
    let mut stripe_before = usize::MAX;
    while let Some(source) = merge.winner() {
        if stats.entries_in.is_multiple_of(TICK_ENTRIES) {
            sink.tick()?;
        }
        stats.entries_in += 1;
        let key = source.key();
        let order = if started { stream.user_key.as_slice().cmp(key.user) } else { Ordering::Less };
        match order {
            Ordering::Less => {
                if !stream.waiting.is_empty() {
                    stream.drop_waiting(sink, stats)?;
                }
                stream.begin_user_key(key.user);
                started = true;
                stripe_before = usize::MAX;
            }
            Ordering::Equal if key.trailer < trailer_before => {}
            _ => return Err(out_of_order(&source.file(), &stream.user_key, trailer_before, key).into()),
        }
        trailer_before = key.trailer;
        let stripe = stripe_of(rules.snapshots, key.trailer.sequence());
        if stripe == stripe_before {
            stats.dropped_hidden += 1;
            sink.dropped(&dying(source), DropReason::Hidden)?;
        } else {
            stripe_before = stripe;
            stream.newest_in_stripe(source, merge, stripe, sink, stats)?;
        }
        merge.advance()?;
    }
    stream.drop_waiting(sink, stats)?;
    assert_eq!(stats.entries_in, stats.entries_out + stats.dropped(), "each entry is kept or dropped: {stats:?}");
    Ok(())
}

/// The entry that the source stands on.
#[inline]
fn dying<S: Source>(source: &S) -> DroppedEntry<'_> {
    DroppedEntry { key: source.key(), source: Some(source) }
}

/// A tombstone that is kept only if an older version of its key is.
struct WaitingTombstone {
    trailer: Trailer,
    /// It is an entry of the inputs, not what the filter made of one.
    is_input: bool,
}

struct Stream<'a> {
    rules: &'a Rules<'a>,
    below: SpanWalk<'a>,
    covering: FragmentWalk<'a>,
    retained: FragmentWalk<'a>,
    user_key: Vec<u8>,
    /// Older data of this key may lie below the inputs; `None` until it has been asked.
    below_this_key: Option<bool>,
    /// Of this key; at most one a snapshot.
    waiting: Vec<WaitingTombstone>,
    kept_this_key: bool,
}

impl Stream<'_> {
    /// Drops the tombstones of a key of which no older version was kept: they hide nothing.
    #[cold]
    fn drop_waiting<K: Sink>(&mut self, sink: &mut K, stats: &mut TaskStats) -> Result<()> {
        for WaitingTombstone { trailer, is_input } in self.waiting.drain(..) {
            stats.dropped_tombstones += 1;
            if is_input {
                let entry = DroppedEntry { key: KeyRef::new(&self.user_key, trailer), source: None };
                sink.dropped(&entry, DropReason::HidesNothing)?;
            }
        }
        Ok(())
    }

    /// Nothing of the key before waits any more.
    #[inline]
    fn begin_user_key(&mut self, user_key: &[u8]) {
        debug_assert!(self.waiting.is_empty(), "a tombstone of the key before waits for versions of this one");
        self.user_key.clear();
        self.user_key.extend_from_slice(user_key);
        self.below_this_key = None;
        self.kept_this_key = false;
    }

    #[inline]
    fn lies_below(&mut self) -> bool {
        if self.rules.below.is_empty() {
            return false;
        }
        match self.below_this_key {
            Some(answer) => answer,
            None => *self.below_this_key.insert(self.below.contains(&self.user_key)),
        }
    }

    fn newest_in_stripe<S: Source, K: Sink>(
        &mut self,
        source: &S,
        inputs: &dyn WarmReader,
        stripe: usize,
        sink: &mut K,
        stats: &mut TaskStats,
    ) -> Result<()> {
        let rules = self.rules;
        let KeyRef { user, trailer } = source.key();
        let sequence = trailer.sequence();
        let hidden_by = self.covering.newest(user, stripe_top(rules.snapshots, stripe));
        if hidden_by.is_some_and(|tombstone| tombstone > sequence) {
            stats.dropped_range_deleted += 1;
            return sink.dropped(&dying(source), DropReason::RangeDeleted);
        }
        let kind = match trailer.kind() {
            Some(kind @ (KeyKind::Put | KeyKind::Delete | KeyKind::ValueHandle)) => kind,
            _ => return Err(not_an_entry(&source.file(), source.key()).into()),
        };
        let decision = match &rules.filter {
            Some((filter, context)) if stripe == rules.snapshots.len() => {
                let seen = rules.seen_by(*filter, kind, source.value());
                seen.map_or(Decision::Keep, |value| filter.decide(context, user, value))
            }
            _ => Decision::Keep,
        };
        match decision {
            Decision::Keep if kind == KeyKind::Delete => {
                let tombstone = WaitingTombstone { trailer, is_input: true };
                if !self.tombstone(tombstone, stripe, inputs, sink, stats)? {
                    return Ok(());
                }
                stats.dropped_tombstones += 1;
                sink.dropped(&dying(source), DropReason::HidesNothing)
            }
            Decision::Keep => self.value(trailer, stripe, source.value(), inputs, sink, stats),
            Decision::Change(value) => {
                check_length(user, &value)?;
                stats.changed_by_filter += 1;
                sink.dropped(&dying(source), DropReason::ChangedByFilter)?;
                self.value(Trailer::new(sequence, KeyKind::Put), stripe, &value, inputs, sink, stats)
            }
            Decision::Remove => {
                sink.dropped(&dying(source), DropReason::RemovedByFilter)?;
                let trailer = Trailer::new(sequence, KeyKind::Delete);
                let tombstone = WaitingTombstone { trailer, is_input: false };
                let dropped = self.tombstone(tombstone, stripe, inputs, sink, stats)?;
                stats.dropped_by_filter += u64::from(dropped);
                Ok(())
            }
        }
    }

    /// Returns whether it is dropped for good; otherwise it is kept or waits.
    fn tombstone<K: Sink>(
        &mut self,
        tombstone: WaitingTombstone,
        stripe: usize,
        inputs: &dyn WarmReader,
        sink: &mut K,
        stats: &mut TaskStats,
    ) -> Result<bool> {
        if self.lies_below() {
            self.keep(tombstone.trailer, &[], inputs, sink, stats)?;
            return Ok(false);
        }
        if stripe == 0 {
            return Ok(true);
        }
        self.waiting.push(tombstone);
        debug_assert!(self.waiting.len() <= self.rules.snapshots.len(), "at most one tombstone a snapshot waits");
        Ok(false)
    }

    #[inline]
    fn value<K: Sink>(
        &mut self,
        trailer: Trailer,
        stripe: usize,
        value: &[u8],
        inputs: &dyn WarmReader,
        sink: &mut K,
        stats: &mut TaskStats,
    ) -> Result<()> {
        if !self.waiting.is_empty() {
            let newest_first = self.waiting.is_sorted_by(|a, b| a.trailer.sequence() > b.trailer.sequence());
            debug_assert!(newest_first, "tombstones that wait are out of order");
            for tombstone in std::mem::take(&mut self.waiting) {
                self.keep(tombstone.trailer, &[], inputs, sink, stats)?;
            }
        }
        let mut trailer = trailer;
        if stripe == 0 && trailer.sequence() > 0 && !self.lies_below() {
            let lowest = stripe_top(self.rules.snapshots, 0);
            if self.retained.newest(&self.user_key, lowest).is_none() {
                trailer = trailer.of_any_age();
                stats.sequences_zeroed += 1;
            }
        }
        self.keep(trailer, value, inputs, sink, stats)
    }

    #[inline]
    fn keep<K: Sink>(
        &mut self,
        trailer: Trailer,
        value: &[u8],
        inputs: &dyn WarmReader,
        sink: &mut K,
        stats: &mut TaskStats,
    ) -> Result<()> {
        let new_user_key = !self.kept_this_key;
        self.kept_this_key = true;
        stats.entries_out += 1;
        let about = About { new_user_key, inputs };
        sink.entry(KeyRef::new(&self.user_key, trailer), value, about)
    }
}

/// Asks fragments about ascending keys, walking them once.
struct FragmentWalk<'a> {
    fragments: &'a FragmentedTombstones,
    at: usize,
}

impl<'a> FragmentWalk<'a> {
    fn new(fragments: &'a FragmentedTombstones) -> FragmentWalk<'a> {
        FragmentWalk { fragments, at: 0 }
    }

    /// As [`FragmentedTombstones::covering`]; keys must not descend from call to call.
    #[inline]
    fn newest(&mut self, user_key: &[u8], snapshot: SequenceNumber) -> Option<SequenceNumber> {
        let before = self.at.checked_sub(1).and_then(|before| self.fragments.get(before));
        debug_assert!(before.is_none_or(|before| before.end <= user_key), "a fragment that was passed has the key");
        while let Some(fragment) = self.fragments.get(self.at) {
            if fragment.end > user_key {
                return if fragment.begin <= user_key { fragment.newest(snapshot) } else { None };
            }
            self.at += 1;
        }
        None
    }
}

#[cold]
fn out_of_order(file: &str, user_key: &[u8], trailer: Trailer, found: KeyRef<'_>) -> Error {
    let before = KeyRef::new(user_key, trailer);
    Error::corruption(file, 0, "order of entries", format!("a key behind {before:?}"), format!("{found:?}"))
}

#[cold]
fn not_an_entry(file: &str, found: KeyRef<'_>) -> Error {
    Error::corruption(file, 0, "entries", "a put, a delete or a value handle", format!("{found:?}"))
}

/// Refuses a value of a filter that no block can hold. Lengths within a run have 32 bits.
fn check_length(key: &[u8], value: &[u8]) -> Result<()> {
    if u32::try_from(value.len()).is_ok() {
        return Ok(());
    }
    let (key, bytes) = (Excerpt(key), value.len());
    Err(Error::Invalid(format!("the compaction filter gave key \"{key}\" a value of {bytes} bytes")).into())
}

#[cfg(test)]
mod tests;
