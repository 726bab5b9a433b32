//! Gaps compared with a model of keys that are put and deleted in turn.

use super::*;
use situ_sim::Rng;

const KEYS: usize = 40;

/// Keys of one byte, with the sequence numbers of their puts and deletions.
#[derive(Default)]
struct World {
    sequence: u64,
    /// By key: sequence numbers, and true if the key has a value from then on.
    changes: BTreeMap<u8, Vec<(u64, bool)>>,
}

impl World {
    fn change(&mut self, key: u8, is_put: bool) {
        self.sequence += 1;
        self.changes.entry(key).or_default().push((self.sequence, is_put));
    }

    fn is_visible(&self, key: u8, sequence: u64) -> bool {
        let changes = self.changes.get(&key).map_or(&[][..], |changes| changes);
        changes.iter().rev().find(|(at, _)| *at <= sequence).is_some_and(|(_, is_put)| *is_put)
    }

    fn check(&self, gaps: &Gaps) {
        let Some(list) = gaps.list.load() else { return };
        list.check();
        for key in 0..KEYS as u8 {
            let Some(at) = list.find(&[key]) else { continue };
            for sequence in list.gaps[at].since..=self.sequence {
                assert!(!self.is_visible(key, sequence), "{key} is visible at {sequence}: {list:?}");
            }
        }
    }
}

fn gap(gap: Option<Arc<Gap>>) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    gap.map(|gap| (gap.begin.clone(), gap.end.clone()))
}

#[test]
fn no_key_in_a_gap_is_visible() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let gaps = Gaps::new();
        let mut world = World::default();
        let put = |world: &mut World, key: u8| {
            world.change(key, true);
            if gaps.concern_writers() {
                gaps.put(&[key]);
            }
        };
        for _ in 0..300 {
            let key = rng.below(KEYS as u64) as u8;
            match rng.below(8) {
                0 => put(&mut world, key),
                1..=4 => world.change(key, false),
                _ => {
                    let sequence = world.sequence;
                    let side = if rng.chance(0.5) { Side::Front } else { Side::Back };
                    let (from, to) = (key, key + rng.below(KEYS as u64 - u64::from(key) + 1) as u8);
                    let end = (to < KEYS as u8).then(|| vec![to]);
                    let watching = gaps.watch(vec![from], end.clone(), side, sequence, || true);
                    let keys = from..to.min(KEYS as u8);
                    let reached = match side {
                        Side::Front => keys.clone().find(|key| world.is_visible(*key, sequence)),
                        Side::Back => keys.clone().rev().find(|key| world.is_visible(*key, sequence)),
                    };
                    // Writers interleave. Puts behind the place where the reader stopped change nothing.
                    for _ in 0..rng.below(3) {
                        put(&mut world, rng.below(KEYS as u64) as u8);
                    }
                    let reached = match (side, reached) {
                        (Side::Front, Some(key)) => Some(vec![key]),
                        (Side::Front, None) => end,
                        (Side::Back, Some(key)) => Some(behind(&[key])),
                        (Side::Back, None) => Some(vec![from]),
                    };
                    if let Some(watching) = watching
                        && rng.chance(0.9)
                    {
                        watching.publish(reached, rng.below(100));
                    }
                }
            }
            world.check(&gaps);
        }
        let list = gaps.list.load();
        assert!(list.is_none_or(|list| list.watches.is_empty()), "a watch outlives its cursor");
    }
}

/// A reader that took its sequence number before the last extension of a gap could not use the gap at all.
#[test]
fn a_reader_that_is_late_loses_little_of_a_gap_that_grows() {
    for side in [Side::Front, Side::Back] {
        let gaps = Gaps::new();
        let key = |number: u64| if side == Side::Front { number } else { 100_000 - number }.to_be_bytes().to_vec();
        for sequence in 1..5000 {
            let (begin, end) = match side {
                Side::Front => (key(sequence - 1), None),
                Side::Back => (Vec::new(), Some(key(sequence - 1))),
            };
            let watching = gaps.watch(begin, end, side, sequence, || true).unwrap();
            watching.publish(Some(key(sequence)), 2);
            gaps.list.load().unwrap().check();
            for late in [0, 1, 10, 100, 1000] {
                let Some(reader) = sequence.checked_sub(late).filter(|reader| *reader > 0) else { continue };
                let reached = match side {
                    Side::Front => gaps.past(&key(0), reader).and_then(|gap| gap.end.clone()),
                    Side::Back => gaps.before(Some(&key(0)), reader).map(|gap| gap.begin.clone()),
                };
                let number = reached.map_or(0, |key| u64::from_be_bytes(key.try_into().unwrap()));
                let reached = if side == Side::Front { number } else { 100_000 - number.min(100_000) };
                let reached = if number == 0 { 0 } else { reached };
                assert!(reached <= reader, "{reached} was not removed yet for a reader at {reader}");
                assert!(reader - reached <= 2 * late, "a reader at {reader} of {sequence} leaves the gap at {reached}");
            }
        }
    }
}

#[test]
fn a_put_ends_a_watch_or_cuts_a_gap() {
    let gaps = Gaps::new();
    let front = gaps.watch(b"b".to_vec(), None, Side::Front, 7, || true).unwrap();
    let back = gaps.watch(Vec::new(), Some(b"z".to_vec()), Side::Back, 7, || true).unwrap();
    gaps.put(b"a");
    gaps.put(b"m");
    gaps.put(b"k");
    front.publish(Some(b"x".to_vec()), 10);
    assert_eq!(gap(gaps.past(b"b", 7)), Some((b"b".to_vec(), Some(b"k".to_vec()))));
    assert_eq!(gap(gaps.past(b"b", 6)), None);
    assert_eq!(gap(gaps.past(b"k", 7)), None);
    back.publish(None, 10);
    assert_eq!(gap(gaps.before(Some(b"z"), 7)), Some((behind(b"m"), Some(b"z".to_vec()))));
    gaps.put(b"q");
    assert_eq!(gap(gaps.past(b"n", 9)), Some((behind(b"m"), Some(b"q".to_vec()))));
    assert_eq!(gap(gaps.before(Some(b"z"), 9)), Some((behind(b"q"), Some(b"z".to_vec()))));
    assert_eq!(gap(gaps.before(None, 9)), None);
}

#[test]
fn a_reader_of_an_old_view_watches_nothing() {
    let gaps = Gaps::new();
    assert!(gaps.watch(Vec::new(), None, Side::Front, 7, || false).is_none());
    assert!(!gaps.concern_writers());
    let watches: Vec<_> = (0..20).map(|_| gaps.watch(Vec::new(), None, Side::Front, 7, || true)).collect();
    assert_eq!(watches.iter().flatten().count(), WATCHES_MAX);
    drop(watches);
    assert!(!gaps.concern_writers());
    let long = vec![b'k'; KEY_BYTES_MAX + 1];
    assert!(gaps.watch(long.clone(), None, Side::Front, 7, || true).is_none());
    gaps.watch(Vec::new(), None, Side::Front, 7, || true).unwrap().publish(Some(long), 1);
    assert!(!gaps.concern_writers());
}
