use super::*;
use crate::check::format_page::{Layout, example};
use proptest::prelude::*;
use situ_sim::SimMemory;

fn record(first: u64, operations: &[Operation<'_>]) -> Vec<u8> {
    let mut body = Operations::new();
    operations.iter().for_each(|operation| body.push(operation).unwrap());
    [&body.header(first)[..], body.bytes()].concat()
}

fn message(bytes: &[u8]) -> String {
    let error = Record::decode("000007.log", 4096, bytes).expect_err("the record is damaged");
    assert!(error.is_corruption());
    error.to_string()
}

#[test]
fn the_example_of_the_format_page_is_what_the_code_writes() {
    let operations = [Operation::put(b"k", b"v", None), Operation::delete(b"gone"), Operation::put(b"t", b"", Some(5))];
    let bytes = record(7, &operations);
    assert_eq!(bytes, example("record"), "{bytes:02x?}");
    let record = Record::decode("log", 0, &bytes).unwrap();
    let expected: Vec<_> = (7..).zip(operations).collect();
    assert_eq!(record.operations().collect::<Vec<_>>(), expected);
    assert_eq!((record.first, record.count), (7, 3));
}

#[test]
fn the_format_page_has_the_places_of_the_header() {
    let bytes = record(1 << 50 | 3, &[Operation::delete(b"gone"), Operation::delete(b"too")]);
    let layout = Layout::of("Log record", bytes.len());
    assert_eq!(layout.number("first", &bytes), 1 << 50 | 3);
    assert_eq!(layout.number("count", &bytes), 2);
    assert_eq!(layout.field("operations", &bytes), &bytes[RECORD_HEADER_BYTES..]);
}

#[test]
fn promise_6_a_record_that_breaks_a_rule_is_corruption() {
    let sound = record(7, &[Operation::put(b"key", b"value", None)]);
    let broken = |at: usize, byte: u8| {
        let mut bytes = sound.clone();
        bytes[at] = byte;
        message(&bytes)
    };
    assert!(broken(7, 0x80).contains("expected sequence numbers below"));
    assert!(broken(8, 0).contains("expected at least 1, found 0"));
    assert!(broken(8, 2).contains("(kind): expected 1 bytes, found 0 bytes"));
    assert!(broken(12, 3).contains("expected 0, 1 or 2, found 3"));
    assert!(broken(12, 0).contains("more"), "a delete has no value");
    assert!(broken(13, 0).contains("expected 1 to 1024, found 0"));
    assert!(broken(14, 0x80).contains("expected 1 to 1024, found 32771"));
    assert!(broken(15, 4).contains("1 more"));
    assert!(broken(18, 0x80).contains("expected at most 1073741824, found 2147483653"));
    for length in 0..sound.len() {
        assert!(message(&sound[..length]).contains("000007.log is damaged at byte 4096, in its record of a batch"));
    }
}

#[test]
fn promise_6_the_largest_lengths_of_a_record_are_corruption_and_take_no_memory() {
    let sound = record(7, &[Operation::put(b"key", b"value", None)]);
    for (at, length) in [(8, 4), (13, 2), (15, 4)] {
        let mut bytes = sound.clone();
        bytes[at..at + length].fill(0xff);
        let (text, largest) = SimMemory::largest(|| message(&bytes));
        assert!(largest < 1000, "{largest} bytes: {text}");
    }
}

#[test]
fn the_last_sequence_number_can_be_used() {
    let bytes = record(SEQUENCE_END - 1, &[Operation::delete(b"key")]);
    assert_eq!(Record::decode("log", 0, &bytes).unwrap().operations().next().unwrap().0, SEQUENCE_END - 1);
}

#[test]
fn operations_that_no_record_holds_are_refused() {
    let mut operations = Operations::new();
    let refused = [Operation::delete(b""), Operation::put(&[0; KEY_BYTES_MAX + 1], b"", None)];
    for operation in refused {
        assert!(operations.push(&operation).unwrap_err().to_string().contains("a key has 1 to 1024 bytes"));
    }
    assert_eq!((operations.count(), operations.bytes().len()), (0, 0));
}

type Written = (Vec<u8>, Option<(Vec<u8>, Option<u64>)>);

fn operation((key, change): &Written) -> Operation<'_> {
    match change {
        None => Operation::delete(key),
        Some((value, expires_ms)) => Operation::put(key, value, *expires_ms),
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        first in 0..SEQUENCE_END - 100,
        written in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 1..40), any::<Option<(Vec<u8>, Option<u64>)>>()), 1..10),
    ) {
        let operations: Vec<_> = written.iter().map(operation).collect();
        let bytes = record(first, &operations);
        let read: Vec<_> = Record::decode("log", 0, &bytes).unwrap().operations().collect();
        prop_assert_eq!(read, (first..).zip(operations).collect::<Vec<_>>());
    }
}
