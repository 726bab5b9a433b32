//! The decoder as a function of any bytes, for fuzzers.

use crate::format::{FRAME_HEAD_BYTES, HEADER_BYTES, frame_checksum, u32_at};
use crate::{Keys, Operation, Outcome, Records, Request, Trace, Writer};
use std::time::Duration;

/// Reads `data`, without its first byte, as a trace. What is one is written again, and read again as the same. With the
/// lowest bit of the first byte, checksums are put right before.
///
/// # Panics
/// If it is not the same.
pub fn trace(data: &[u8]) {
    let Some((first, data)) = data.split_first() else { return };
    let mut data = data.to_vec();
    if first & 1 == 1 {
        put_checksums_right(&mut data);
    }
    let Ok(trace) = Trace::read(data) else { return };
    let mut records = Records::default();
    let mut key = Vec::new();
    for request in trace.requests() {
        trace.replayed_key(&request, &mut key);
        assert!(!key.is_empty() || request.key.is_empty());
        records.push(&request);
    }
    let mut writer = Writer::begin(Vec::new(), trace.keys(), trace.began_unix_us()).expect("memory takes all");
    writer.write(records).expect("memory takes all");
    let written = writer.end(trace.lost(), trace.duration()).expect("memory takes all");
    let again = Trace::read(written).expect("what was written can be read");
    assert!(trace.requests().eq(again.requests()));
    assert_eq!((trace.lost(), trace.duration()), (again.lost(), again.duration()));
}

/// Puts the checksum of the header right, and those of the frames behind it.
fn put_checksums_right(bytes: &mut [u8]) {
    if bytes.len() < HEADER_BYTES {
        return;
    }
    let checksum = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]);
    bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    let mut frame = &mut bytes[HEADER_BYTES..];
    while let Some((head, rest)) = frame.split_at_mut_checked(FRAME_HEAD_BYTES) {
        let Some((contents, behind)) = rest.split_at_mut_checked(u32_at(head, 0) as usize) else { return };
        let checksum = frame_checksum(&head[..8], contents);
        head[8..].copy_from_slice(&checksum.to_le_bytes());
        frame = behind;
    }
}

/// Returns inputs to begin with: a trace of each form of keys.
pub fn corpus() -> Vec<Vec<u8>> {
    let corpus = |keys, key: &[u8]| {
        let mut records = Records::default();
        for (number, operation) in Operation::ALL.iter().enumerate() {
            records.push(&Request {
                time: Duration::from_micros(number as u64 * 100),
                latency: Duration::from_micros(7),
                operation: *operation,
                outcome: Outcome::ALL[number % Outcome::ALL.len()],
                value_bytes: 100,
                key_bytes: key.len() as u16,
                key,
            });
        }
        let mut writer = Writer::begin(vec![1], keys, 1_795_920_000_000_000).expect("memory takes all");
        writer.write(records).expect("memory takes all");
        writer.end(1, Duration::from_secs(1)).expect("memory takes all")
    };
    vec![corpus(Keys::Hashed, &[7; 8]), corpus(Keys::Plain, b"user:7")]
}
