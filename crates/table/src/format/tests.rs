use super::*;
use crate::key::KeyKind;
use crate::testing::Random;

#[test]
fn a_separator_separates_and_is_short() {
    let mut random = Random::seeded(1);
    let mut out = Vec::new();
    for _ in 0..20_000 {
        let mut key = || {
            let length = random.below(5);
            let user: Vec<u8> = (0..length).map(|_| [0, 1, 0xfe, 0xff][random.below(4)]).collect();
            (user, Trailer::new(random.below(3) as u64, KeyKind::Put))
        };
        let (a, b) = (key(), key());
        let (a, b) = (KeyRef::new(&a.0, a.1), KeyRef::new(&b.0, b.1));
        if a == b {
            continue;
        }
        let (last, next) = if a < b { (a, b) } else { (b, a) };
        separator(last, next, common_prefix(last.user, next.user), &mut out);
        let found = KeyRef::decode(&out).unwrap();
        assert!(last <= found && found < next, "{last:?} {found:?} {next:?}");
        assert!(found.user.len() <= next.user.len());
    }
    let long = [b'x'; 100];
    separator(KeyRef::new(b"a", Trailer(9)), KeyRef::new(&long, Trailer(9)), 0, &mut out);
    assert_eq!(out.len(), 9);
}

#[test]
fn varints_come_back() {
    let mut random = Random::seeded(2);
    for i in 0..10_000u32 {
        let value = match i {
            0..33 => (1u64 << i).min(u64::from(u32::MAX)) as u32,
            _ => (random.next() as u32) >> random.below(32),
        };
        for value in [value, value.wrapping_sub(1)] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(bytes.len(), varint_bytes(value));
            assert_eq!(get_varint(&bytes), Some((value, bytes.len())));
            assert_eq!(get_varint(&bytes[..bytes.len() - 1]), None);
        }
    }
    assert_eq!(get_varint(&[0xff, 0xff, 0xff, 0xff, 0x10]), None, "33 bits");
    assert_eq!(get_varint(&[0x80; 9]), None);
}

#[test]
fn common_prefixes_are_counted() {
    let mut random = Random::seeded(3);
    for _ in 0..5000 {
        let length = random.below(40);
        let a = random.bytes(length);
        let mut b = a.clone();
        b.truncate(random.below(41));
        if !b.is_empty() && random.below(2) == 0 {
            let at = random.below(b.len());
            b[at] ^= 1;
        }
        let want = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
        assert_eq!(common_prefix(&a, &b), want);
    }
}

#[test]
fn a_footer_comes_back() {
    let handle = |offset, bytes| BlockHandle { offset, bytes };
    let footer = Footer {
        filter: handle(100, 20),
        range_tombstones: BlockHandle::default(),
        properties: handle(125, 30),
        index: handle(160, 10),
        index_levels: 2,
        file_bytes: 255,
    };
    assert_eq!(Footer::decode(&footer.encode(), 255).unwrap(), footer);
    assert!(Footer::decode(&footer.encode(), 256).is_err());
    for wrong in [
        Footer { index: handle(161, 10), ..footer },
        Footer { index: handle(u64::MAX, 10), ..footer },
        Footer { properties: BlockHandle::default(), ..footer },
        Footer { filter: handle(15, 20), ..footer },
        Footer { index_levels: 3, ..footer },
    ] {
        assert!(Footer::decode(&wrong.encode(), 255).is_err(), "{wrong:?}");
    }
}
