use super::*;
use crate::check::format_page::{Layout, example, rows};
use crate::format::entry::{INLINE_VALUE_BYTES_MAX, KEY_BYTES_MAX, POINTER_BYTES_MAX, Value, overflow_bytes};
use proptest::prelude::*;
use situ_sim::SimMemory;
use std::collections::BTreeMap;

const STORE: StoreId = StoreId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

fn codec() -> BucketCodec {
    BucketCodec::new("buckets", STORE)
}

fn pair(number: u8) -> ([u8; 16], [u8; 400]) {
    ([number; 16], [number ^ 0x55; 400])
}

fn filled(number: u64, count: u8) -> Vec<u8> {
    let pairs: Vec<_> = (0..count).map(pair).collect();
    let mut block = vec![0xaa; BUCKET_BYTES];
    let entries = pairs.iter().map(|(key, value)| Entry::inline(key, value));
    codec().encode(number, &Stamp { sequence: 9, epoch: 1, ..Stamp::default() }, entries, &mut block);
    block
}

/// The block with the checksum that it should have, whatever else is wrong with it.
fn sealed(mut block: Vec<u8>, number: u64, used: usize) -> Vec<u8> {
    let checksum = codec().checksum(number, &block[4..BUCKET_HEADER_BYTES + used]);
    block[..4].copy_from_slice(&checksum.to_le_bytes());
    block
}

fn message(result: crate::Result<Bucket<'_>>) -> String {
    let error = result.expect_err("the block is damaged");
    assert!(error.is_corruption());
    error.to_string()
}

#[test]
fn nine_pairs_of_16_and_400_bytes_fit_at_424_bytes_each_at_most() {
    let (key, value) = pair(0);
    assert!(Entry::inline(&key, &value).encoded_bytes() <= 424);
    let mut block = vec![0; BUCKET_BYTES];
    let mut writer = BucketWriter::new(&mut block);
    let pushed = (0..20).filter(|number| {
        let (key, value) = pair(*number);
        writer.push(&Entry::inline(&key, &value))
    });
    assert_eq!(pushed.count(), 9);
}

#[test]
fn promise_6_the_largest_lengths_of_a_bucket_are_corruption_and_take_no_memory() {
    let block = filled(3, 2);
    let used = usize::from(u16::from_le_bytes([block[at::NOW + 2], block[at::NOW + 3]]));
    // The count of entries, their bytes, and the head of the first one with both of its lengths.
    let lengths_of_entry =
        (1u32 << crate::format::entry::KEY_LENGTH_BITS << crate::format::entry::VALUE_LENGTH_BITS) - 1;
    for (place, longest) in
        [(at::NOW, &[0xff; 2][..]), (at::NOW + 2, &[0xff; 2]), (BUCKET_HEADER_BYTES, &lengths_of_entry.to_le_bytes())]
    {
        let mut block = block.clone();
        block[place..place + longest.len()].copy_from_slice(longest);
        let block = sealed(block, 3, used);
        let (text, largest) = SimMemory::largest(|| message(codec().open(3, &block)));
        assert!(largest < 1000, "{largest} bytes: {text}");
        assert!(codec().find(3, &block, b"absent").is_err());
    }
}

#[test]
fn the_longest_entry_fits_into_an_empty_bucket_exactly() {
    let (key, value) = ([1; KEY_BYTES_MAX], [2; INLINE_VALUE_BYTES_MAX]);
    let entry = Entry { key: &key, value: Value::Inline(&value), expires_ms: Some(u64::MAX) };
    let mut block = vec![0; BUCKET_BYTES];
    let header = codec().encode(0, &Stamp { epoch: 1, ..Stamp::default() }, [entry], &mut block);
    assert_eq!((usize::from(header.now.bytes), header.expires), (USABLE_BYTES, true));
    assert_eq!(codec().find(0, &block, &key).unwrap().entry, Some(entry));
}

#[test]
fn the_format_page_has_the_places_of_the_header() {
    let before = Tally { entries: 11, bytes: 12, overflow_entries: 13, overflow_bytes: 14 };
    let stamp = Stamp { sequence: 1 << 40 | 7, epoch: 1 << 20 | 3, before, overflow_entries: 21, overflow_bytes: 22 };
    let mut block = vec![0; BUCKET_BYTES];
    let entry = Entry { expires_ms: Some(5), ..Entry::inline(b"key", b"value") };
    codec().encode(7, &stamp, [entry], &mut block);
    let layout = Layout::of("Bucket header", BUCKET_HEADER_BYTES);
    let numbers = [
        ("format", 1),
        ("flags", 1),
        ("reserved", 0),
        ("sequence", 1 << 40 | 7),
        ("epoch", 1 << 20 | 3),
        ("entries", 1),
        ("bytes of entries", 4 + 8 + 3 + 5),
        ("overflow entries", 21),
        ("overflow bytes", 22),
        ("entries before", 11),
        ("bytes of entries before", 12),
        ("overflow entries before", 13),
        ("overflow bytes before", 14),
    ];
    for (name, value) in numbers {
        assert_eq!(layout.number(name, &block), value, "{name}");
    }
    assert!(layout.field("reserved end", &block).iter().all(|byte| *byte == 0));
    let sealed = [&STORE.0[..], &7u64.to_le_bytes(), &block[4..64 + 20]].concat();
    assert_eq!(layout.number("checksum", &block), u64::from(crc32c::crc32c(&sealed)));
}

#[test]
fn the_format_page_has_the_bits_of_an_entrys_head() {
    let bits: BTreeMap<String, String> =
        rows("Entry").into_iter().map(|row| (row[1].clone(), row[0].clone())).collect();
    let first = |name: &str| bits[name].split('-').next().unwrap().parse::<u32>().unwrap();
    let entry = Entry { key: &[1; 5], value: Value::Pointer(&[2; 9]), expires_ms: Some(1) };
    let mut bytes = [0; 64];
    entry.write_to(&mut bytes);
    let head = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let expected =
        5 << first("key length") | 9 << first("value length") | 1 << first("pointer") | 1 << first("expires");
    assert_eq!(head, expected);
}

#[test]
fn the_examples_of_the_format_page_are_what_the_code_writes() {
    let gone = Entry { key: b"gone", value: Value::Pointer(&[1, 2, 3]), expires_ms: Some(1_795_000_000_000) };
    let mut block = vec![0; BUCKET_BYTES];
    let stamp = Stamp { sequence: 9, epoch: 2, ..Stamp::default() };
    let header = codec().encode(7, &stamp, [Entry::inline(b"k", b"v"), gone], &mut block);
    let golden = example("bucket");
    assert_eq!(block[..sealed_bytes(&block)], golden, "{:02x?}", &block[..sealed_bytes(&block)]);
    assert_eq!(codec().open(7, &block).unwrap().header(), &header);

    let mut value = Vec::new();
    gone.write_overflow_value(&mut value);
    assert_eq!(value, example("overflow value"), "{value:02x?}");
    let key = crate::format::address::overflow_key(1, b"gone");
    assert_eq!(key, example("overflow key"), "{key:02x?}");
    assert_eq!(Entry::from_overflow("overflow", &key, &value).unwrap(), (1, gone));
    assert_eq!(overflow_bytes(&gone), key.len() + value.len());
}

#[test]
fn a_block_of_zeros_is_a_bucket_without_entries() {
    let block = vec![0; BUCKET_BYTES];
    let bucket = codec().open(3, &block).unwrap();
    assert_eq!((bucket.header(), bucket.entries().count()), (&Header::default(), 0));
    assert_eq!(codec().find(3, &block, b"key").unwrap(), Found { header: Header::default(), entry: None });
    assert_eq!(sealed_bytes(&block), 0);
    let mut stray = block;
    stray[4000] = 1;
    assert!(message(codec().open(3, &stray)).contains("0x01 at byte 4000"));
}

#[test]
fn promise_6_each_flipped_bit_of_a_bucket_is_found() {
    let sound = filled(7, 4);
    let (key, _) = pair(0);
    for at in 0..BUCKET_BYTES {
        let mut block = sound.clone();
        block[at] ^= 1 << (at % 8);
        assert!(codec().open(7, &block).is_err(), "byte {at}");
        assert!(codec().find(7, &block, &key).is_err(), "byte {at}");
    }
}

#[test]
fn promise_6_a_bucket_at_a_wrong_place_or_of_another_store_is_found() {
    let block = filled(7, 4);
    assert!(codec().open(7, &block).is_ok());
    let text = message(codec().open(8, &block));
    for part in ["buckets is damaged at byte 98304", "bucket 8 of store 000102", "checksum", "expected 0x", "found 0x"]
    {
        assert!(text.contains(part), "{text}");
    }
    let other = BucketCodec::new("buckets", StoreId([9; 16]));
    assert!(other.open(7, &block).is_err());
}

#[test]
fn promise_6_a_torn_bucket_is_found() {
    let (old, new) = (filled(7, 2), filled(7, 6));
    for (front, back) in [(&old, &new), (&new, &old)] {
        for sectors in 1..8 {
            let at = sectors * 512;
            let torn = [&front[..at], &back[at..]].concat();
            if torn != *front && torn != *back {
                assert!(codec().open(7, &torn).is_err(), "{sectors} sectors");
            }
        }
    }
}

#[test]
fn promise_6_a_bucket_that_breaks_a_rule_is_corruption_though_its_checksum_is_right() {
    let (key, value) = ([1; 16], [2; 400]);
    let used = 2 * Entry::inline(&key, &value).encoded_bytes();
    let sound = filled(7, 2);
    let broken = |change: fn(&mut Vec<u8>)| {
        let mut block = sound.clone();
        change(&mut block);
        sealed(block, 7, used)
    };
    assert!(codec().open(7, &sealed(sound.clone(), 7, used)).is_ok());
    type Break = fn(&mut Vec<u8>);
    let cases: [(&str, Break); 9] = [
        ("expected 1, found 2", |block| block[at::FORMAT] = 2),
        ("expected 0 or 1, found 6", |block| block[at::FLAGS] = 6),
        ("expected no entry expires, found an entry expires", |block| block[at::FLAGS] = 1),
        ("expected zeros, found 0x01 at byte 1", |block| block[at::RESERVED + 1] = 1),
        ("(epoch): expected at least 1", |block| block[at::EPOCH] = 0),
        ("reserved bytes at the header's end", |block| block[63] = 1),
        ("expected 4 bytes, found 0 bytes", |block| block[at::NOW] = 3),
        ("420 more", |block| block[at::NOW] = 1),
        ("head of an entry", |block| block[BUCKET_HEADER_BYTES + 3] |= 0x80),
    ];
    for (text, change) in cases {
        let block = broken(change);
        let found = message(codec().open(7, &block));
        assert!(found.contains(text), "{found}");
    }
    let mut long = sound.clone();
    long[at::NOW + 2..at::NOW + 4].copy_from_slice(&4033u16.to_le_bytes());
    assert!(message(codec().open(7, &long)).contains("expected at most 4032, found 4033"));
}

#[test]
fn a_search_ends_at_damage_and_at_the_key() {
    let mut block = filled(7, 3);
    let entry = 420;
    // The second entry has a head that no entry has. The checksum is right.
    block[BUCKET_HEADER_BYTES + entry + 3] = 0xff;
    let block = sealed(block, 7, 3 * entry);
    let (first, value) = pair(0);
    assert_eq!(codec().find(7, &block, &first).unwrap().entry, Some(Entry::inline(&first, &value)));
    assert!(codec().find(7, &block, &pair(2).0).unwrap_err().is_corruption());
}

#[test]
fn an_epoch_keeps_what_the_bucket_held_when_it_began() {
    let now = Tally { entries: 3, bytes: 30, ..Tally::default() };
    let before = Tally { entries: 1, bytes: 10, ..Tally::default() };
    let header = Header { epoch: 5, now, before, ..Header::default() };
    assert_eq!(header.before_in(5), before);
    assert_eq!(header.before_in(6), now);
    assert_eq!(Header::default().before_in(1), Tally::default());
}

#[test]
fn entries_that_no_bucket_holds_are_refused_with_the_limit() {
    let text = |entry: Entry<'_>| entry.check().unwrap_err().to_string();
    assert_eq!(text(Entry::inline(b"", b"")), "a key has 1 to 1024 bytes, and this one has 0");
    assert_eq!(text(Entry::inline(&[0; 1025], b"")), "a key has 1 to 1024 bytes, and this one has 1025");
    let long = [0; INLINE_VALUE_BYTES_MAX + 1];
    assert_eq!(text(Entry::inline(b"k", &long)), "a value in a bucket has at most 2996 bytes, and this one has 2997");
    let pointer = Entry { value: Value::Pointer(&long[..POINTER_BYTES_MAX + 1]), ..Entry::inline(b"k", b"") };
    assert_eq!(text(pointer), "a pointer into the value log has at most 32 bytes, and this one has 33");
}

/// Entries of any kind, with distinct keys.
fn contents() -> impl Strategy<Value = BTreeMap<Vec<u8>, (Vec<u8>, bool, Option<u64>)>> {
    let key = prop_oneof![prop::collection::vec(any::<u8>(), 1..20), prop::collection::vec(any::<u8>(), 250..=1024)];
    let value = (prop::collection::vec(any::<u8>(), 0..600), any::<bool>(), any::<Option<u64>>());
    prop::collection::btree_map(key, value, 0..12)
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        contents in contents(), number in 0u64..1 << 48, sequence: u64, epoch in 1..=u32::MAX, overflow: (u32, u32),
    ) {
        let mut block = vec![0x55; BUCKET_BYTES];
        let mut writer = BucketWriter::new(&mut block);
        let mut kept = Vec::new();
        for (key, (value, is_pointer, expires_ms)) in &contents {
            let value = if *is_pointer { Value::Pointer(&value[..value.len().min(32)]) } else { Value::Inline(value) };
            let entry = Entry { key, value, expires_ms: *expires_ms };
            if writer.push(&entry) {
                kept.push(entry);
            }
        }
        let (overflow_entries, overflow_bytes) = overflow;
        let before = Tally { entries: 1, bytes: 2, overflow_entries, overflow_bytes };
        let stamp = Stamp { sequence, epoch, before, overflow_entries, overflow_bytes };
        let header = writer.finish(&codec(), number, &stamp);
        let codec = codec();
        let bucket = codec.open(number, &block).unwrap();
        prop_assert_eq!(bucket.header(), &header);
        prop_assert_eq!(&bucket.entries().collect::<Vec<_>>(), &kept);
        for key in contents.keys() {
            let expected = kept.iter().find(|entry| entry.key == key).copied();
            prop_assert_eq!(bucket.find(key), expected);
            prop_assert_eq!(codec.find(number, &block, key).unwrap(), Found { header, entry: expected });
        }
    }
}
