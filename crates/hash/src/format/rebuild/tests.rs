//! The next contents of a bucket.

use super::{Before, Change, Contents, rebuild};
use crate::format::bucket::USABLE_BYTES;
use crate::format::entry::Entry;

const SMALL: &[u8] = &[1; 100];
/// Four of these fill a bucket; a fifth does not fit.
const BIG: &[u8] = &[2; 990];

fn before<'a>(inline: &[Entry<'a>], overflow: &[Entry<'a>]) -> Before<'a> {
    Before { inline: inline.to_vec(), overflow: overflow.to_vec(), is_untidy: false }
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Change<'a> {
    Change::Put(Entry::inline(key, value))
}

fn keys<'a>(entries: &[Entry<'a>]) -> Vec<&'a [u8]> {
    entries.iter().map(|entry| entry.key).collect()
}

#[test]
fn the_last_change_of_a_key_decides_however_often_it_is_applied() {
    let changes = [put(b"a", SMALL), Change::Delete(b"a"), put(b"a", BIG), put(b"b", SMALL), Change::Delete(b"b")];
    let once = rebuild(before(&[], &[]), changes.into_iter(), 0);
    assert_eq!((&once.inline[..], once.is_changed), (&[Entry::inline(b"a", BIG)][..], true));
    let twice = rebuild(before(&once.inline, &[]), changes.into_iter(), 0);
    assert_eq!(twice.inline, once.inline);
}

#[test]
fn what_changes_nothing_writes_nothing() {
    let inline = [Entry::inline(b"a", SMALL)];
    let contents = rebuild(before(&inline, &[]), [Change::Delete(b"absent")].into_iter(), 0);
    assert!(!contents.is_changed);
    assert_eq!(contents.inline, inline);
}

#[test]
fn what_does_not_fit_overflows_and_returns_when_there_is_room() {
    let four = [b"a", b"b", b"c", b"d"].map(|key| Entry::inline(key, BIG));
    let full = rebuild(before(&four, &[]), [put(b"e", BIG)].into_iter(), 0);
    assert_eq!(keys(&full.inline), [b"a", b"b", b"c", b"d"]);
    assert_eq!((full.overflow_entries, keys(&full.overflow_puts)), (1, vec![&b"e"[..]]));
    let overflow = [Entry::inline(b"e", BIG)];
    let same = rebuild(before(&four, &overflow), [Change::Delete(b"x")].into_iter(), 0);
    assert!(!same.is_changed && same.overflow_puts.is_empty() && same.overflow_deletes.is_empty());
    assert_eq!(keys(&same.overflow_kept), [b"e"]);
    let returned = rebuild(before(&four, &overflow), [Change::Delete(b"b")].into_iter(), 0);
    assert_eq!(keys(&returned.inline), [b"a", b"c", b"d", b"e"]);
    assert_eq!((returned.overflow_entries, returned.overflow_deletes), (0, vec![&b"e"[..]]));
}

#[test]
fn the_entry_in_the_bucket_counts_and_the_other_one_goes() {
    let inline = [Entry::inline(b"a", SMALL)];
    let stale = [Entry::inline(b"a", BIG)];
    let contents = rebuild(before(&inline, &stale), [put(b"b", SMALL)].into_iter(), 0);
    assert_eq!(contents.inline, [inline[0], Entry::inline(b"b", SMALL)]);
    assert_eq!(contents.overflow_deletes, [b"a"]);
    let deleted = rebuild(before(&inline, &stale), [Change::Delete(b"a")].into_iter(), 0);
    assert_eq!((deleted.inline.len(), deleted.overflow_entries), (0, 0));
    assert_eq!(deleted.overflow_deletes, [b"a"]);
}

#[test]
fn what_has_expired_goes() {
    let entry = |key, at| Entry { expires_ms: Some(at), ..Entry::inline(key, SMALL) };
    let inline = [entry(b"a", 5), entry(b"b", 50)];
    let overflow = [entry(b"c", 5)];
    let contents = rebuild(before(&inline, &overflow), std::iter::empty(), 10);
    assert_eq!((keys(&contents.inline), contents.is_changed), (vec![&b"b"[..]], true));
    assert_eq!(contents.overflow_deletes, [b"c"]);
}

#[test]
fn each_key_has_one_place_and_buckets_are_never_too_full() {
    let mut rng = situ_sim::Rng::new(7);
    let names: Vec<Vec<u8>> = (0..20_u8).map(|number| vec![b'k', number]).collect();
    let values: Vec<Vec<u8>> = (0..20).map(|_| vec![3; rng.index(900)]).collect();
    let (mut inline, mut overflow): (Vec<Entry<'_>>, Vec<Entry<'_>>) = (Vec::new(), Vec::new());
    for _ in 0..2000 {
        let key = &names[rng.index(20)];
        let change = if rng.chance(0.4) { Change::Delete(key) } else { put(key, &values[rng.index(20)]) };
        let contents: Contents<'_> = rebuild(before(&inline, &overflow), [change].into_iter(), 0);
        let bytes: usize = contents.inline.iter().map(Entry::encoded_bytes).sum();
        assert!(bytes <= USABLE_BYTES);
        let mut all: Vec<_> = contents.all().map(|entry| entry.key).collect();
        all.sort_unstable();
        assert!(all.is_sorted_by(|a, b| a < b), "each key once");
        // The overflow as it is after puts and deletions.
        let mut next: Vec<Entry<'_>> =
            overflow.into_iter().filter(|entry| !contents.overflow_deletes.contains(&entry.key)).collect();
        for entry in &contents.overflow_puts {
            next.retain(|other| other.key != entry.key);
            next.push(*entry);
        }
        assert_eq!(next.len(), contents.overflow_entries as usize);
        (inline, overflow) = (contents.inline, next);
    }
}
