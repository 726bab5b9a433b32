use super::*;
use crate::key::KeyKind;
use crate::testing::Random;
use situ_base::bytes::put_varint;

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
            put_varint(&mut bytes, u64::from(value));
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

const PAGE: &str = include_str!("../../../../docs/formats/table.md");

/// The cells of the page's table under `heading`, without the heads.
fn page_table(heading: &str) -> Vec<Vec<&'static str>> {
    let section = PAGE.split(&format!("\n## {heading}\n")).nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.split('|').map(|cell| cell.trim().trim_matches('`')).skip(1).collect()).collect()
}

#[test]
fn the_page_has_the_constants_of_the_code() {
    let constants = [
        ("HEADER_BYTES", HEADER_BYTES),
        ("FOOTER_BYTES", FOOTER_BYTES),
        ("BLOCK_TRAILER_BYTES", BLOCK_TRAILER_BYTES),
        ("HANDLE_BYTES", HANDLE_BYTES),
        ("KEY_TRAILER_BYTES", KEY_TRAILER_BYTES),
        ("MAX_KEY_BYTES", MAX_KEY_BYTES),
        ("MAX_VALUE_BYTES", MAX_VALUE_BYTES),
        ("MAX_BLOCK_BYTES", MAX_BLOCK_BYTES),
        ("COMPRESSION_NONE", COMPRESSION_NONE as usize),
        ("COMPRESSION_LZ4", COMPRESSION_LZ4 as usize),
        ("COMPRESSION_ZSTD", COMPRESSION_ZSTD as usize),
        ("FILTER_BLOCKED_BLOOM", crate::FILTER_BLOCKED_BLOOM as usize),
        ("FILTER_HEADER_BYTES", crate::FILTER_HEADER_BYTES),
        ("FILTER_LINE_BYTES", crate::FILTER_LINE_BYTES),
        ("FORMAT_VERSION", FORMAT_VERSION as usize),
    ];
    let page: Vec<_> = page_table("Constants").iter().map(|row| (row[0], row[1].parse().unwrap())).collect();
    assert_eq!(page, constants);
}

/// Follows offsets and lengths to the end of the structure.
fn layout(heading: &str) -> Vec<(usize, usize)> {
    let fields: Vec<(usize, usize)> =
        page_table(heading).iter().map(|row| (row[0].parse().unwrap(), row[1].parse().unwrap())).collect();
    let mut end = 0;
    for (at, bytes) in &fields {
        assert_eq!(*at, end, "{heading} has a gap");
        end += bytes;
    }
    fields
}

#[test]
fn the_page_lays_header_and_footer_out_as_the_code_does() {
    assert_eq!(layout("Header"), [(0, HEADER_MAGIC.len()), (8, 4), (12, 4)]);
    assert_eq!(header()[..8], HEADER_MAGIC);
    assert!(PAGE.contains("`SITUtbl` and the byte 1") && HEADER_MAGIC == *b"SITUtbl\x01");
    assert!(PAGE.contains("the byte 1 and `lbtUTIS`") && FOOTER_MAGIC == *b"\x01lbtUTIS");

    let footer = layout("Footer");
    assert_eq!(footer.iter().map(|(_, bytes)| bytes).sum::<usize>(), FOOTER_BYTES);
    let handle = |offset| BlockHandle { offset, bytes: 3 };
    let bytes = Footer {
        filter: handle(21),
        range_tombstones: handle(22),
        properties: handle(23),
        index: handle(24),
        index_levels: 2,
        file_bytes: 0x1234,
    }
    .encode();
    for (i, (at, bytes_of_field)) in footer[..4].iter().enumerate() {
        assert_eq!(bytes[*at..*at + *bytes_of_field], handle(21 + i as u64).encode());
    }
    assert_eq!((bytes[footer[4].0], u64_at(&bytes, footer[6].0)), (2, 0x1234));
    assert_eq!(u32_at(&bytes, footer[7].0), FORMAT_VERSION);
    assert_eq!(u32_at(&bytes, footer[8].0), crc32c::crc32c(&bytes[..footer[8].0]));
}

#[test]
fn the_page_lists_the_properties_in_order_with_their_lengths() {
    let mut encoded = Vec::new();
    let mut value_lengths = crate::ValueLengths::default();
    value_lengths.add(1);
    let mut lifetimes = crate::Lifetimes::default();
    lifetimes.add(1, &crate::Lifetime { expires_unix_s: Some(9), stamp: Some(7) });
    let properties = crate::Properties {
        smallest: vec![0; 9],
        keyspace_name: "users".to_owned(),
        longest_key_bytes: Some(1),
        longest_value_bytes: Some(0),
        value_lengths,
        lifetimes,
        ..Default::default()
    };
    properties.encode_into(&mut encoded);
    let mut rest = &encoded[..];
    for row in page_table("Properties") {
        let name = &rest[1..1 + rest[0] as usize];
        assert_eq!(name, row[0].as_bytes());
        let value = u32_at(rest, 1 + name.len()) as usize;
        assert!(row[1] == "any" || row[1] == value.to_string(), "{row:?}");
        rest = &rest[5 + name.len() + value..];
    }
    assert!(rest.is_empty());
}
