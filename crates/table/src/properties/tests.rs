use super::*;
use crate::testing::Random;

fn sample() -> Properties {
    Properties {
        entries: 1,
        deletions: 2,
        range_deletions: 3,
        raw_key_bytes: 4,
        raw_value_bytes: 5,
        data_bytes: 6,
        index_bytes: 7,
        filter_bytes: 8,
        data_blocks: 9,
        index_blocks: 10,
        smallest: b"a12345678".to_vec(),
        largest: b"z12345678".to_vec(),
        smallest_sequence: 11,
        largest_sequence: 12,
        created_unix_s: 13,
        compression: 2,
        keyspace_id: 14,
        writer_version: "situ 0".to_owned(),
        keyspace_name: String::new(),
        longest_key_bytes: None,
        longest_value_bytes: None,
        value_lengths: ValueLengths::default(),
        lifetimes: Lifetimes::default(),
    }
}

/// Units that bound the lengths of keys and values ask for them before they take a task. Tables of older programs do
/// not tell.
#[test]
fn the_longest_key_and_value_may_be_missing() {
    let told = Properties { longest_key_bytes: Some(9), longest_value_bytes: Some(0), ..sample() };
    let mut bytes = Vec::new();
    told.encode_into(&mut bytes);
    assert_eq!(Properties::decode(&bytes).unwrap(), told);
    let too_short = [&bytes[..bytes.len() - 27], b"\x13longest-value-bytes\x03\0\0\0\0\0\0"].concat();
    assert!(Properties::decode(&too_short).is_err());
}

/// Whoever decides how tables are compacted asks for the share of large values. Tables of older programs do not tell.
#[test]
fn the_lengths_of_values_may_be_missing() {
    let mut told = sample();
    [0, 7, 100_000].into_iter().for_each(|bytes| told.value_lengths.add(bytes));
    let (mut with, mut without) = (Vec::new(), Vec::new());
    told.encode_into(&mut with);
    sample().encode_into(&mut without);
    assert_eq!(Properties::decode(&with).unwrap(), told);
    assert!(Properties::decode(&without).unwrap().value_lengths.is_empty());
    assert!(with.starts_with(&without), "the lengths are the last property");
    let refused = |value: &[u8]| {
        let length = (value.len() as u32).to_le_bytes();
        let bytes = [&without[..], b"\x0dvalue-lengths", &length, value].concat();
        Properties::decode(&bytes).is_err()
    };
    assert!(!refused(&[5, 1, 0, 0, 0, 0, 0, 0, 0]));
    assert!(refused(&[]) && refused(&[5, 0, 0, 0, 0, 0, 0, 0, 0]) && refused(&[32, 1, 0, 0, 0, 0, 0, 0, 0]));
}

/// A table says which keyspace it is of by name, too, if its writer knew the name. Those of older programs do not.
#[test]
fn the_name_of_the_keyspace_may_be_missing() {
    let named = Properties { keyspace_name: "users of the shop \u{1f600}".to_owned(), ..sample() };
    let (mut with, mut without) = (Vec::new(), Vec::new());
    named.encode_into(&mut with);
    sample().encode_into(&mut without);
    assert_eq!(Properties::decode(&with).unwrap(), named);
    assert_eq!(Properties::decode(&without).unwrap(), sample());
    assert!(with.starts_with(&without), "the name is the last property");
    assert!(!String::from_utf8_lossy(&without).contains("keyspace-name"));
    let doubled = [&with[..], &with[without.len()..]].concat();
    assert!(Properties::decode(&doubled).is_err());
    let not_utf8 = [&without[..], b"\x0dkeyspace-name\x01\0\0\0\xff"].concat();
    assert!(Properties::decode(&not_utf8).is_err());
}

#[test]
fn properties_come_back_and_strangers_are_ignored() {
    let mut bytes = b"\x06future\x03\0\0\0xyz".to_vec();
    sample().encode_into(&mut bytes);
    assert_eq!(Properties::decode(&bytes).unwrap(), sample());
}

#[test]
fn a_missing_doubled_or_misshapen_property_is_damage() {
    let mut bytes = Vec::new();
    sample().encode_into(&mut bytes);
    for length in 0..bytes.len() {
        assert!(Properties::decode(&bytes[..length]).is_err());
    }
    let doubled = [&bytes[..], b"\x07entries\x08\0\0\0abcdefgh"].concat();
    assert!(Properties::decode(&doubled).is_err());
    let mut short_key = sample();
    short_key.smallest.truncate(7);
    let mut bytes = Vec::new();
    short_key.encode_into(&mut bytes);
    assert!(Properties::decode(&bytes).is_err());
}

#[test]
fn random_damage_does_not_panic() {
    let mut random = Random::seeded(1);
    let mut bytes = Vec::new();
    sample().encode_into(&mut bytes);
    for _ in 0..5000 {
        let mut damaged = bytes.clone();
        let at = random.below(damaged.len());
        damaged[at] = random.next() as u8;
        let _ = Properties::decode(&damaged);
    }
}
