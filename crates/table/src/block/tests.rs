use super::*;
use crate::key::KeyKind;
use crate::testing::Random;

/// Everything that can be asked of a block, of arbitrary bytes; the cursor must come to an end.
fn exercise(bytes: &[u8], random: &mut Random) {
    let Ok(block) = Block::new(bytes.to_vec(), 0) else { return };
    let block = Arc::new(block);
    let length = random.below(4);
    let user_key = random.bytes(length);
    let target = KeyRef::new(&user_key, Trailer(random.next()));
    let mut cursor = BlockCursor::new(Arc::clone(&block));
    let mut steps = 0;
    let mut more = cursor.first();
    while more == Ok(true) {
        steps += 1;
        assert!(steps <= bytes.len());
        more = cursor.next();
    }
    let mut more = cursor.last();
    while more == Ok(true) {
        steps += 1;
        assert!(steps <= 2 * bytes.len());
        more = cursor.prev();
    }
    let _ = cursor.seek(target);
    let Ok(index) = Block::new_index(bytes.to_vec(), 0) else { return };
    let _ = index.index_seek(target);
    for i in 0..index.restart_count() {
        let _ = index.index_entry(i);
    }
}

#[test]
fn arbitrary_bytes_do_not_panic() {
    let mut random = Random::seeded(1);
    for _ in 0..30_000 {
        let length = random.below(80);
        let mut bytes = random.bytes(length);
        // Mostly small numbers, so that many blocks have a plausible shape.
        bytes.iter_mut().for_each(|b| *b = if *b < 200 { *b % 6 } else { *b });
        exercise(&bytes, &mut random);
    }
    let mut builder = BlockBuilder::new(3);
    for i in 0..9u8 {
        builder
            .add(KeyRef::new(&[b'a', i], Trailer::new(1, KeyKind::Put)), usize::from(i > 0), &vec![i; i as usize])
            .unwrap();
    }
    let sound = builder.finish().to_vec();
    for _ in 0..30_000 {
        let mut damaged = sound.clone();
        for _ in 0..1 + random.below(3) {
            let at = random.below(damaged.len());
            damaged[at] = random.next() as u8;
        }
        exercise(&damaged, &mut random);
    }
}

#[test]
fn a_seek_does_not_rely_on_the_longest_sharing() {
    // A writer may share less than it could: every `shared` between 0 and the most is tried.
    let mut random = Random::seeded(2);
    for _ in 0..500 {
        let mut keys: Vec<Vec<u8>> =
            (0..20).map(|_| (0..random.below(6)).map(|_| random.below(2) as u8).collect()).collect();
        keys.sort();
        keys.dedup();
        let mut builder = BlockBuilder::new(1 + random.below(8));
        let mut last: &[u8] = &[];
        for key in &keys {
            let most = crate::format::common_prefix(last, key);
            builder.add(KeyRef::new(key, Trailer(5)), random.below(most + 1), b"").unwrap();
            last = key;
        }
        let block = Arc::new(Block::new(builder.finish().to_vec(), 0).unwrap());
        let mut cursor = BlockCursor::new(block);
        for _ in 0..50 {
            let target: Vec<u8> = (0..random.below(7)).map(|_| random.below(2) as u8).collect();
            let trailer = Trailer(4 + random.below(3) as u64);
            let want = keys.iter().find(|k| KeyRef::new(k, Trailer(5)) >= KeyRef::new(&target, trailer));
            let found = cursor.seek(KeyRef::new(&target, trailer)).unwrap();
            assert_eq!(found.then(|| cursor.key().user.to_vec()).as_ref(), want);
        }
    }
}

#[test]
fn an_index_seek_finds_what_a_linear_search_finds() {
    let mut random = Random::seeded(3);
    for _ in 0..2000 {
        let common = random.below(20);
        let key = |random: &mut Random| {
            let mut key = vec![7; if random.below(30) == 0 { random.below(20) } else { common }];
            key.extend((0..random.below(12)).map(|_| [0, 0, 1, 0xff][random.below(4)]));
            (key, Trailer(random.below(3) as u64))
        };
        let mut keys: Vec<_> = (0..random.below(40)).map(|_| key(&mut random)).collect();
        keys.sort_by(|a, b| KeyRef::new(&a.0, a.1).cmp(&KeyRef::new(&b.0, b.1)));
        keys.dedup();
        let mut builder = BlockBuilder::new(1);
        for (key, trailer) in &keys {
            builder.add(KeyRef::new(key, *trailer), 0, &BlockHandle::default().encode()).unwrap();
        }
        let block = Block::new_index(builder.finish().to_vec(), 0).unwrap();
        for _ in 0..50 {
            let (user_key, trailer) = key(&mut random);
            let target = KeyRef::new(&user_key, trailer);
            let want = keys.iter().take_while(|(key, trailer)| KeyRef::new(key, *trailer) < target).count();
            assert_eq!(block.index_seek(target), Ok(want), "{target:?} in {keys:?}");
        }
    }
}
