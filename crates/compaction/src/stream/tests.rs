use super::*;
use crate::testing::{Contents, Entry, VecSource, World, with_seeds};
use situ_table::range_del::RangeTombstone;
use std::time::Duration;

/// Collects what is kept and checks what every sink relies on.
#[derive(Default)]
struct Collect {
    entries: Vec<Entry>,
    dropped: Vec<(Entry, DropReason)>,
}

impl Sink for Collect {
    fn entry(&mut self, key: KeyRef<'_>, value: &[u8], about: About<'_>) -> Result<()> {
        let before = self.entries.last();
        assert!(before.is_none_or(|before| before.key_ref() < key), "{key:?} is out of order");
        assert_eq!(before.is_none_or(|before| before.key != key.user), about.new_user_key);
        self.entries.push(Entry { key: key.user.to_vec(), trailer: key.trailer, value: value.to_vec() });
        Ok(())
    }

    fn dropped(&mut self, entry: &DroppedEntry<'_>, why: DropReason) -> Result<()> {
        let KeyRef { user, trailer } = entry.key;
        self.dropped.push((Entry { key: user.to_vec(), trailer, value: entry.value().to_vec() }, why));
        Ok(())
    }

    fn tick(&mut self) -> Result<()> {
        Ok(())
    }
}

struct Compacted {
    contents: Contents,
    dropped: Vec<(Entry, DropReason)>,
    stats: TaskStats,
}

fn compact_with(world: &World, filter: Option<&dyn CompactionFilter>) -> Result<Compacted> {
    let inputs = world.inputs();
    let tombstones = FragmentedTombstones::new(&inputs.tombstones, &world.snapshots);
    let retained = Rules::retained(&tombstones, &world.snapshots, &world.below_spans);
    let rules = Rules {
        snapshots: &world.snapshots,
        below: &world.below_spans,
        tombstones: &tombstones,
        retained: &retained,
        filter: filter.map(|filter| (filter, FilterContext::new(Duration::from_secs(1000), 3, b"frozen"))),
        handles: None,
    };
    let sources = world.runs.iter().map(|run| VecSource::new(run.entries.clone())).collect();
    let mut sink = Collect::default();
    let mut stats = TaskStats::default();
    drive(&mut Merge::new(sources, 0), &rules, &mut sink, &mut stats)?;
    assert_eq!(stats.entries_in, stats.entries_out + stats.dropped(), "{stats:?}");
    assert_eq!(stats.entries_out, sink.entries.len() as u64);
    let contents = Contents { entries: sink.entries, tombstones: retained.to_list() };
    Ok(Compacted { contents, dropped: sink.dropped, stats })
}

fn compact(world: &World) -> Compacted {
    compact_with(world, None).unwrap()
}

#[test]
fn every_snapshot_reads_the_same_before_and_after() {
    with_seeds(6000, |rng| {
        let world = World::random(rng);
        let after = compact(&world).contents;
        world.assert_same_reads(&world.inputs().with(&world.below), &after.with(&world.below));
    });
}

#[test]
fn compacting_again_changes_nothing() {
    with_seeds(1000, |rng| {
        let world = World::random(rng);
        let once = compact(&world).contents;
        let twice = compact(&World { runs: vec![once.clone()], ..world }).contents;
        assert_eq!(once.entries, twice.entries);
        assert_eq!(once.tombstones, twice.tombstones);
    });
}

#[test]
fn at_the_bottom_without_snapshots_only_live_values_remain() {
    with_seeds(1000, |rng| {
        let mut world = World::random(rng);
        world.snapshots.clear();
        world.below = Contents::default();
        world.below_spans.clear();
        let before = world.inputs();
        let after = compact(&world).contents;
        assert!(after.tombstones.is_empty());
        let live: Vec<_> = world.keys.iter().filter_map(|k| Some((k.clone(), before.read(k, MAX_SEQUENCE)?))).collect();
        let kept: Vec<_> = after.entries.iter().map(|e| (e.key.clone(), e.value.as_slice())).collect();
        assert_eq!(kept, live);
        assert!(after.entries.iter().all(|e| e.trailer.sequence() == 0));
    });
}

fn world(runs: &[&[Entry]], tombstones: &[(&str, &str, SequenceNumber)], snapshots: &[SequenceNumber]) -> World {
    let mut runs: Vec<Contents> =
        runs.iter().map(|run| Contents { entries: run.to_vec(), tombstones: Vec::new() }).collect();
    runs[0].tombstones = tombstones
        .iter()
        .map(|(begin, end, sequence)| RangeTombstone {
            begin: (*begin).into(),
            end: (*end).into(),
            sequence: *sequence,
        })
        .collect();
    let snapshots = snapshots.to_vec();
    World { runs, below: Contents::default(), below_spans: Vec::new(), snapshots, keys: Vec::new() }
}

fn shown(contents: &Contents) -> String {
    let entries = contents.entries.iter().map(|e| format!("{:?}={}", e.key_ref(), e.value.escape_ascii()));
    let ranges = contents
        .tombstones
        .iter()
        .map(|t| format!("[{}..{})@{}", t.begin.escape_ascii(), t.end.escape_ascii(), t.sequence));
    entries.chain(ranges).collect::<Vec<_>>().join(" ")
}

fn put(key: &str, sequence: SequenceNumber, value: &str) -> Entry {
    Entry::new(key, sequence, KeyKind::Put, value)
}

fn delete(key: &str, sequence: SequenceNumber) -> Entry {
    Entry::new(key, sequence, KeyKind::Delete, "")
}

#[test]
fn a_tombstone_goes_only_when_it_hides_nothing() {
    // Seen by nobody else, nothing below: both go.
    let gone = compact(&world(&[&[delete("a", 9), put("a", 5, "x")]], &[], &[]));
    assert_eq!(shown(&gone.contents), "");
    assert_eq!((gone.stats.dropped_tombstones, gone.stats.dropped_hidden), (1, 1));
    // A snapshot sees the value: the tombstone must hide it from the present.
    let held = compact(&world(&[&[delete("a", 9), put("a", 5, "x")]], &[], &[7]));
    assert_eq!(shown(&held.contents), "a@9:Delete= a@0:Put=x");
    // A snapshot sees the tombstone's number only: nothing is hidden.
    let idle = compact(&world(&[&[delete("a", 9)], &[delete("a", 6)]], &[], &[7]));
    assert_eq!(shown(&idle.contents), "");
    // The key may lie below.
    let mut deep = world(&[&[delete("a", 9), delete("c", 8)]], &[], &[]);
    deep.below_spans = vec![vec![KeySpan::including(b"b", b"c")]];
    assert_eq!(shown(&compact(&deep).contents), "c@8:Delete=");
}

#[test]
fn a_number_is_not_zeroed_under_a_range_tombstone_that_stays() {
    // The tombstone is older than the entry, but stays because of what lies below at "m".
    let mut deep = world(&[&[put("c", 8, "x")]], &[("a", "z", 5)], &[]);
    deep.below_spans = vec![vec![KeySpan::including(b"m", b"m")]];
    assert_eq!(shown(&compact(&deep).contents), "c@8:Put=x [a..z)@5");
    deep.below_spans.clear();
    assert_eq!(shown(&compact(&deep).contents), "c@0:Put=x");
}

#[test]
fn range_tombstones_delete_within_their_stripe_only() {
    let run = [put("a", 30, "new"), put("a", 12, "mid"), put("a", 5, "old")];
    let kept = compact(&world(&[&run], &[("a", "b", 25)], &[10, 20]));
    assert_eq!(shown(&kept.contents), "a@30:Put=new a@12:Put=mid a@0:Put=old [a..b)@25");
    let dropped = compact(&world(&[&run], &[("a", "b", 25)], &[10]));
    assert_eq!(shown(&dropped.contents), "a@30:Put=new a@0:Put=old [a..b)@25");
    assert_eq!(dropped.stats.dropped_range_deleted, 0, "30 hides 12 already");
    let covered = compact(&world(&[&run[1..]], &[("a", "b", 25)], &[10]));
    assert_eq!(shown(&covered.contents), "a@0:Put=old [a..b)@25");
    assert_eq!(covered.stats.dropped_range_deleted, 1);
}

struct Rename;

impl CompactionFilter for Rename {
    fn name(&self) -> &str {
        "rename"
    }

    fn decide(&self, context: &FilterContext<'_>, _key: &[u8], value: &[u8]) -> Decision {
        assert_eq!((context.now_unix.as_secs(), context.level, context.parameters), (1000, 3, &b"frozen"[..]));
        match value {
            b"old" => Decision::Remove,
            b"change" => Decision::Change(b"changed".to_vec()),
            _ => Decision::Keep,
        }
    }
}

#[test]
fn a_filter_sees_only_what_nobody_protects() {
    let run = [
        put("a", 30, "change"),
        put("b", 31, "old"),
        put("c", 8, "old"),
        put("d", 32, "keep"),
        put("d", 33 - 2, "old"),
        Entry::new("e", 34, KeyKind::ValueHandle, "old"),
    ];
    let none = compact_with(&world(&[&run], &[], &[]), Some(&Rename)).unwrap();
    assert_eq!(shown(&none.contents), "a@0:Put=changed d@0:Put=keep e@0:ValueHandle=old");
    assert_eq!((none.stats.dropped_by_filter, none.stats.changed_by_filter), (2, 1));
    let some = compact_with(&world(&[&run], &[], &[10]), Some(&Rename)).unwrap();
    assert_eq!(shown(&some.contents), "a@30:Put=changed c@0:Put=old d@32:Put=keep e@34:ValueHandle=old");
    // A removal hides what lies below.
    let mut deep = world(&[&run[..2]], &[], &[]);
    deep.below_spans = vec![vec![KeySpan::including(b"b", b"b")]];
    let kept = compact_with(&deep, Some(&Rename)).unwrap();
    assert_eq!(shown(&kept.contents), "a@0:Put=changed b@31:Delete=");
    // And an older version that a snapshot sees.
    let protected = world(&[&[put("a", 30, "old"), put("a", 5, "older")]], &[], &[10]);
    assert_eq!(shown(&compact_with(&protected, Some(&Rename)).unwrap().contents), "a@30:Delete= a@0:Put=older");
}

#[test]
fn disorder_and_strange_kinds_are_corruption_that_names_the_file() {
    let cases: [&[Entry]; 4] = [
        &[put("b", 5, ""), put("a", 6, "")],
        &[put("a", 5, ""), put("a", 6, "")],
        &[put("a", 5, ""), put("a", 5, "")],
        &[Entry { key: b"a".to_vec(), trailer: Trailer(77 << 8 | 9), value: vec![] }],
    ];
    for run in cases {
        let error = compact_with(&world(&[run], &[], &[]), None).map(|_| ()).unwrap_err();
        let crate::TaskError::Storage(error) = error else { panic!("{error}") };
        assert!(error.is_corruption() && error.to_string().contains("list"), "{error}");
    }
}

/// Removes and changes what it sees by the last digit of the value.
struct ByDigit;

impl CompactionFilter for ByDigit {
    fn name(&self) -> &str {
        "by digit"
    }

    fn decide(&self, _: &FilterContext<'_>, _key: &[u8], value: &[u8]) -> Decision {
        match value.last() {
            Some(b'0'..=b'2') => Decision::Remove,
            Some(b'3'..=b'5') => Decision::Change([b"changed ", value].concat()),
            _ => Decision::Keep,
        }
    }
}

/// What tells entries of a history apart: values are unique, and a number may have become zero.
fn identities<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<(&'a [u8], Option<KeyKind>, &'a [u8])> {
    let mut all: Vec<_> = entries.map(|e| (e.key.as_slice(), e.trailer.kind(), e.value.as_slice())).collect();
    all.sort();
    all
}

#[test]
fn every_entry_is_kept_or_reported_as_dropped_exactly_once() {
    let mut met = std::collections::BTreeSet::new();
    with_seeds(3000, |rng| {
        let world = World::random(rng);
        let filter: Option<&dyn CompactionFilter> = if rng.below(2) == 0 { Some(&ByDigit) } else { None };
        let after = compact_with(&world, filter).unwrap();
        let inputs = world.inputs();
        // What the filter has put there: another value, or a tombstone with the number of a value.
        let is_made = |entry: &&Entry| {
            let was = |e: &Entry| e.key == entry.key && e.trailer.sequence() == entry.trailer.sequence();
            entry.value.starts_with(b"changed ")
                || entry.trailer.kind() == Some(KeyKind::Delete)
                    && inputs.entries.iter().any(|e| was(e) && e.trailer.kind() == Some(KeyKind::Put))
        };
        let kept = after.contents.entries.iter().filter(|entry| !is_made(entry));
        let dropped = after.dropped.iter().map(|(entry, _)| entry);
        assert_eq!(identities(kept.chain(dropped)), identities(inputs.entries.iter()));

        let count = |why: DropReason| after.dropped.iter().filter(|(_, reason)| *reason == why).count() as u64;
        let stats = &after.stats;
        assert_eq!(count(DropReason::Hidden), stats.dropped_hidden);
        assert_eq!(count(DropReason::RangeDeleted), stats.dropped_range_deleted);
        assert_eq!(count(DropReason::ChangedByFilter), stats.changed_by_filter);
        assert!(count(DropReason::RemovedByFilter) >= stats.dropped_by_filter);
        assert!(count(DropReason::HidesNothing) <= stats.dropped_tombstones);
        assert!(filter.is_some() || count(DropReason::HidesNothing) == stats.dropped_tombstones);
        met.extend(after.dropped.iter().map(|(_, why)| *why));
    });
    assert_eq!(met.len(), 5, "{met:?}");
}

#[test]
fn nothing_is_reported_as_dropped_that_somebody_can_read() {
    with_seeds(1500, |rng| {
        let world = World::random(rng);
        let before = world.inputs();
        let dropped = compact(&world).dropped;
        for key in &world.keys {
            for snapshot in world.snapshots.iter().copied().chain([MAX_SEQUENCE]) {
                let Some(value) = before.read(key, snapshot) else { continue };
                assert!(!dropped.iter().any(|(entry, _)| entry.key == *key && entry.value == value));
            }
        }
    });
}

struct Inflates;

impl CompactionFilter for Inflates {
    fn name(&self) -> &str {
        "inflates"
    }

    fn decide(&self, _: &FilterContext<'_>, _: &[u8], _: &[u8]) -> Decision {
        Decision::Change(vec![0; 1 << 32])
    }
}

/// The length of such a value was cut to 32 bits, and an assertion ended the run.
#[test]
fn a_value_of_a_filter_that_is_too_long_is_an_error() {
    let Err(error) = compact_with(&world(&[&[put("a", 30, "old")]], &[], &[]), Some(&Inflates)) else {
        panic!("no block holds such a value")
    };
    assert!(error.to_string().contains("the compaction filter gave key \"a\" a value of 4294967296 bytes"), "{error}");
}
