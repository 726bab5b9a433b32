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
    }
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
