use super::*;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// The algorithm as its paper has it: queues of whole values, nothing stale.
#[derive(Default)]
struct Model {
    small: Vec<(u64, u32, u8)>,
    main: Vec<(u64, u32, u8)>,
    ghosts: Vec<u64>,
}

impl Model {
    fn bytes(queue: &[(u64, u32, u8)]) -> u64 {
        queue.iter().map(|(_, weight, _)| u64::from(*weight)).sum()
    }

    fn find(&mut self, key: u64) -> Option<&mut (u64, u32, u8)> {
        self.small.iter_mut().chain(&mut self.main).find(|held| held.0 == key)
    }

    fn put(&mut self, key: u64, weight: u32, limit: u64, ghosts_max: usize) {
        while Model::bytes(&self.small) + Model::bytes(&self.main) + u64::from(weight) > limit {
            self.evict(limit / 10);
        }
        let excess = self.ghosts.len().saturating_sub(ghosts_max);
        self.ghosts.drain(..excess);
        match self.ghosts.iter().position(|ghost| *ghost == key) {
            Some(at) => {
                self.ghosts.remove(at);
                self.main.push((key, weight, 0));
            }
            None => self.small.push((key, weight, 0)),
        }
    }

    fn evict(&mut self, small_bytes_max: u64) {
        loop {
            if Model::bytes(&self.small) > small_bytes_max || self.main.is_empty() {
                let held = self.small.remove(0);
                if held.2 == 0 {
                    return self.ghosts.push(held.0);
                }
                self.main.push((held.0, held.1, 0));
            } else {
                let held = self.main.remove(0);
                if held.2 == 0 {
                    return;
                }
                self.main.push((held.0, held.1, held.2 - 1));
            }
        }
    }
}

const LIMIT: u64 = 4000;

fn put(cache: &mut S3Fifo<u64, u64>, key: u64, weight: u32, ghosts_max: usize) {
    while cache.bytes() + u64::from(weight) > LIMIT {
        cache.evict(LIMIT / 10).expect("there is something to throw out");
    }
    cache.limit_ghosts(ghosts_max);
    let is_main = cache.recall(&key);
    cache.insert(key, key, weight, 0, is_main);
}

#[test]
fn it_keeps_what_the_paper_keeps() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let (mut cache, mut model) = (S3Fifo::<u64, u64>::default(), Model::default());
        let mut recalled = 0;
        for step in 0..5000 {
            // Some keys often, others now and then.
            let key = if random.below(3) > 0 { random.below(60) } else { random.below(400) };
            match (cache.get_mut(&key), model.find(key)) {
                (Some(held), Some(model)) => {
                    assert_eq!((held.value, held.weight()), (key, model.1));
                    held.hit();
                    model.2 = (model.2 + 1).min(3);
                }
                (None, None) => {
                    let weight = 20 + random.below(120) as u32;
                    // No ghost is ever dropped here: a ghost that came back leaves its place in the list of this cache.
                    put(&mut cache, key, weight, usize::MAX);
                    model.put(key, weight, LIMIT, usize::MAX);
                    recalled += usize::from(cache.held[&key].is_main);
                }
                (found, expected) => panic!("step {step}: {:?} for {expected:?}", found.map(|held| held.value)),
            }
        }
        cache.check();
        assert!(recalled > 100 && cache.main_bytes > LIMIT / 2, "{recalled}");
    }
}

#[test]
fn ghosts_are_forgotten_oldest_first() {
    let mut cache = S3Fifo::<u64, u64>::default();
    (0..100).for_each(|key| put(&mut cache, key, 400, 5));
    cache.limit_ghosts(5);
    // The last ten are here, the five before them have ghosts.
    assert_eq!((cache.len(), cache.ghost_set.len()), (10, 5));
    assert!(!cache.recall(&84) && (85..90).all(|key| cache.recall(&key)) && !cache.recall(&85));
}

#[test]
fn what_is_removed_leaves_few_traces() {
    let mut cache = S3Fifo::<u64, u64>::default();
    // The same hundred keys in turn: each has a stale place nearly always, and none reaches the front.
    (0..100).for_each(|key| put(&mut cache, key, 10, 100));
    for round in 0..5000 {
        let key = round % 100;
        assert_eq!(cache.remove(&key), Some(key));
        assert_eq!(cache.remove(&key), None);
        cache.check();
        put(&mut cache, key, 10, 100);
    }
    assert_eq!((cache.len(), cache.bytes()), (100, 1000));
    (0..100).for_each(|key| assert_eq!(cache.remove(&key), Some(key)));
    assert_eq!((cache.bytes(), cache.is_empty(), cache.evict(0)), (0, true, None));
}

#[test]
fn random_operations_keep_the_books() {
    for seed in 0..20 {
        let mut random = Random(100 + seed);
        let mut cache = S3Fifo::<u64, u64>::default();
        for _ in 0..3000 {
            let key = random.below(150);
            match random.below(4) {
                0 => drop(cache.remove(&key)),
                1 => drop(cache.evict(LIMIT / 10)),
                2 => cache.get_mut(&key).into_iter().for_each(Held::hit),
                _ if cache.peek(&key).is_none() => put(&mut cache, key, random.below(300) as u32, 40),
                _ => {}
            }
            cache.check();
            assert!(cache.bytes() <= LIMIT);
        }
    }
}
