//! The merge against a sorted list, moving at random.

use super::*;
use situ_sim::Rng;
use situ_table::KeyKind;

/// A cursor over a sorted list of encoded keys.
struct List {
    keys: Vec<Vec<u8>>,
    at: Option<usize>,
}

impl List {
    fn find(&self, target: KeyRef<'_>) -> usize {
        self.keys.partition_point(|k| KeyRef::decode(k).unwrap() < target)
    }
    fn go(&mut self, at: Option<usize>) -> Result<()> {
        self.at = at.filter(|at| *at < self.keys.len());
        Ok(())
    }
}

impl Cursor for List {
    fn valid(&self) -> bool {
        self.at.is_some()
    }
    fn key(&self) -> KeyRef<'_> {
        KeyRef::decode(&self.keys[self.at.unwrap()]).unwrap()
    }
    fn value(&self) -> &[u8] {
        &[]
    }
    fn first(&mut self) -> Result<()> {
        self.go(Some(0))
    }
    fn last(&mut self) -> Result<()> {
        self.go(self.keys.len().checked_sub(1))
    }
    fn seek(&mut self, target: KeyRef<'_>) -> Result<()> {
        self.go(Some(self.find(target)))
    }
    fn seek_before(&mut self, target: KeyRef<'_>) -> Result<()> {
        let at = self.find(target);
        let exact = self.keys.get(at).is_some_and(|k| KeyRef::decode(k).unwrap() == target);
        self.go(if exact { Some(at) } else { at.checked_sub(1) })
    }
    fn next(&mut self) -> Result<()> {
        self.go(self.at.map(|at| at + 1))
    }
    fn prev(&mut self) -> Result<()> {
        self.go(self.at.and_then(|at| at.checked_sub(1)))
    }
}

#[test]
fn a_merge_moves_as_one_sorted_list() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut sources: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 1 + rng.below(6) as usize];
        for sequence in 1..=rng.below(60) {
            let user = [b'a' + rng.below(12) as u8];
            let key = KeyRef::new(&user, Trailer::new(sequence, KeyKind::Put)).to_vec();
            let source = rng.below(sources.len() as u64) as usize;
            sources[source].push(key);
        }
        let order = |a: &Vec<u8>, b: &Vec<u8>| KeyRef::decode(a).unwrap().cmp(&KeyRef::decode(b).unwrap());
        let mut all = sources.concat();
        all.sort_by(order);
        sources.iter_mut().for_each(|s| s.sort_by(order));
        let mut oracle = List { keys: all, at: None };
        let mut merge = MergeCursor::new(sources.into_iter().map(|keys| List { keys, at: None }).collect());
        for step in 0..200 {
            let user = [b'a' + rng.below(14) as u8];
            let target = KeyRef::new(&user, Trailer::seek(rng.below(70)));
            match rng.below(if oracle.valid() { 12 } else { 4 }) {
                0 => (oracle.first().unwrap(), merge.first().unwrap()),
                1 => (oracle.last().unwrap(), merge.last().unwrap()),
                2 => (oracle.seek(target).unwrap(), merge.seek(target).unwrap()),
                3 => (oracle.seek_before(target).unwrap(), merge.seek_before(target).unwrap()),
                4..8 => (oracle.next().unwrap(), merge.next().unwrap()),
                _ => (oracle.prev().unwrap(), merge.prev().unwrap()),
            };
            assert_eq!(oracle.valid(), merge.valid(), "seed {seed}, step {step}");
            if oracle.valid() {
                assert_eq!(oracle.key(), merge.key(), "seed {seed}, step {step}");
            }
        }
    }
}
