use super::*;

#[test]
fn keys_are_those_of_db_bench() {
    let mut key = Vec::new();
    encode_key(KeyFormat::BigEndian, 16, 0x0102, &mut key);
    assert_eq!(key, b"\0\0\0\0\0\0\x01\x0200000000");
    encode_key(KeyFormat::BigEndian, 4, 0x0102_0304_0506, &mut key);
    assert_eq!(key, [3, 4, 5, 6]);
    encode_key(KeyFormat::Decimal, 16, 1234, &mut key);
    assert_eq!(key, b"0000000000001234");
}

#[test]
fn keys_sort_as_their_numbers_do_and_are_distinct_up_to_the_capacity() {
    assert_eq!(key_capacity(KeyFormat::Decimal, 3), 1000);
    assert_eq!(key_capacity(KeyFormat::BigEndian, 2), 65_536);
    assert_eq!(key_capacity(KeyFormat::BigEndian, 16), u64::MAX);
    for (format, width) in [(KeyFormat::Decimal, 3), (KeyFormat::BigEndian, 2)] {
        let mut last = Vec::new();
        for number in 0..key_capacity(format, width) {
            let mut key = Vec::new();
            encode_key(format, width, number, &mut key);
            assert!(number == 0 || key > last, "{format:?} {number}");
            last = key;
        }
    }
}

#[test]
fn user_keys_are_those_of_ycsb() {
    let mut key = Vec::new();
    encode_user_key(true, 1, 0, &mut key);
    assert_eq!(key, b"user6284781860667377211");
    encode_user_key(false, 12, 345, &mut key);
    assert_eq!(key, b"user000000000345");
    encode_user_key(false, 1, 0, &mut key);
    assert_eq!(key, b"user0");
}

#[test]
fn values_repeat_inside_a_piece_as_the_ratio_says() {
    let mut values = Values::new(0.5, 100, &mut Random::new(1));
    for _ in 0..30_000 {
        let value = values.next(100);
        assert_eq!(value.len(), 100);
        assert!(value.iter().all(|byte| (b' '..=b'~').contains(byte)));
    }
    let first = &Values::new(0.5, 100, &mut Random::new(1)).pool[..100];
    assert_eq!(first[..50], first[50..]);
    let incompressible = &Values::new(1.0, 100, &mut Random::new(1)).pool[..100];
    assert_ne!(incompressible[..50], incompressible[50..]);
    // A value larger than the pool's usual size still fits.
    assert_eq!(Values::new(0.5, 3 << 20, &mut Random::new(1)).next(3 << 20).len(), 3 << 20);
}

#[test]
fn a_record_has_the_bytes_of_the_rocksdb_binding_and_one_field_can_change() {
    let shape = RecordShape { fields: 12, field_bytes: 100 };
    let mut values = Values::new(1.0, 100, &mut Random::new(9));
    let mut record = Vec::new();
    shape.encode(&mut values, &mut record);
    assert_eq!(record.len(), shape.record_bytes());
    assert_eq!(record[..14], *b"\0\0\0\x06field0\0\0\0\x64");
    assert_eq!(RecordShape { fields: 10, field_bytes: 100 }.record_bytes(), 1140);

    let before = record.clone();
    assert!(shape.replace_field(11, &mut values, &mut record));
    let changed: Vec<usize> = (0..record.len()).filter(|at| record[*at] != before[*at]).collect();
    assert!(changed.iter().all(|at| *at >= record.len() - 100) && changed.len() > 50);
    let name = record.len() - 100 - 4 - b"field11".len();
    assert_eq!(record[name..name + 7], *b"field11");

    assert!(!shape.replace_field(12, &mut values, &mut record));
    assert!(!shape.replace_field(0, &mut values, &mut record[1..]));
}
