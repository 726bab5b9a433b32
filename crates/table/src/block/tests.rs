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
    let _ = block.index_seek(target);
    for i in 0..block.restart_count().min(100) {
        let _ = block.index_entry(i);
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
        builder.add(KeyRef::new(&[b'a', i], Trailer::new(1, KeyKind::Put)), usize::from(i > 0), &vec![i; i as usize]);
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
            builder.add(KeyRef::new(key, Trailer(5)), random.below(most + 1), b"");
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
