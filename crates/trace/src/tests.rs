use super::*;
use std::time::Duration;

fn request(time_us: u64, operation: Operation, key: &[u8]) -> Request<'_> {
    Request {
        time: Duration::from_micros(time_us),
        latency: Duration::from_micros(150),
        operation,
        outcome: Outcome::Hit,
        value_bytes: 1000,
        key_bytes: 20,
        key,
    }
}

fn written(keys: Keys, requests: &[Request<'_>]) -> Vec<u8> {
    let mut writer = Writer::begin(Vec::new(), keys, 1_700_000_000_000_000).unwrap();
    let mut records = Records::default();
    requests.iter().for_each(|request| records.push(request));
    writer.write(records).unwrap();
    assert_eq!(writer.records(), requests.len() as u64);
    let bytes = writer.bytes() + 36;
    let written = writer.end(3, Duration::from_secs(2)).unwrap();
    assert_eq!(written.len() as u64, bytes);
    written
}

/// The bytes of the page `docs/formats/trace.md`.
#[test]
fn golden_bytes() {
    let request = request(0x0102, Operation::Set, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let written = written(Keys::Hashed, &[request]);
    let hex: String = written.iter().map(|byte| format!("{byte:02x}")).collect();
    let fields = [
        "5349545554524345",
        "01000000",
        "00000000",
        "00401e18240a0600",
        &hex[48..56], // header
        "1c000000",
        "01000000",
        &hex[72..80], // frame
        "0201000000000000",
        "96000000",
        "e8030000",
        "1400",
        "02",
        "01",
        "0102030405060708", // record
        "18000000",
        "00000000",
        &hex[152..160], // the last frame
        "0100000000000000",
        "0300000000000000",
        "80841e0000000000",
    ];
    assert_eq!(hex, fields.concat());
    assert_eq!(&hex[48..56], format!("{:08x}", crc32c::crc32c(&written[..24]).swap_bytes()));
}

/// The table of numbers in the page and the code are one.
#[test]
fn the_page_has_the_numbers_of_operations_and_outcomes() {
    let page = include_str!("../../../docs/formats/trace.md");
    for (number, operation) in Operation::ALL.iter().enumerate() {
        assert_eq!(*operation as usize, number);
        assert!(page.contains(&format!("| {number} | `{}` |", operation.name())), "{}", operation.name());
    }
    for (number, outcome) in Outcome::ALL.iter().enumerate() {
        assert_eq!(*outcome as usize, number);
        assert!(page.contains(&format!("| {number} | `{}` |", outcome.name())), "{}", outcome.name());
    }
}

#[test]
fn what_is_written_is_read_by_time() {
    let keys: Vec<[u8; 300]> = (0..5000u32).map(|n| [n as u8; 300]).collect();
    let mut requests: Vec<_> =
        keys.iter().zip(0..).map(|(key, n)| request(7 * (5000 - n), Operation::Get, key)).collect();
    requests.iter_mut().for_each(|request| request.key_bytes = 300);
    let written = written(Keys::Plain, &requests);
    assert!(written.len() > 1 << 20, "more than one frame");
    let trace = Trace::read(written).unwrap();
    requests.reverse();
    assert!(trace.requests().eq(requests.iter().copied()));
    assert_eq!((trace.len(), trace.lost(), trace.duration()), (5000, 3, Duration::from_secs(2)));
    let mut key = Vec::new();
    trace.replayed_key(&requests[9], &mut key);
    assert_eq!(key, requests[9].key);
}

#[test]
fn hashed_keys_become_keys_of_the_same_length_that_a_client_may_send() {
    let hashes = [[1; 8], [2; 8], [255; 8]];
    let requests: Vec<_> = hashes.iter().map(|hash| request(1, Operation::Get, hash)).collect();
    let trace = Trace::read(written(Keys::Hashed, &requests)).unwrap();
    let key = |request: &Request<'_>| {
        let mut key = Vec::new();
        trace.replayed_key(request, &mut key);
        key
    };
    let keys: Vec<_> = requests.iter().map(key).collect();
    assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
    assert!(keys.iter().all(|key| key.len() == 20 && key.iter().all(u8::is_ascii_graphic)), "{keys:?}");
    assert_eq!(key(&Request { key_bytes: 3, ..requests[0] }).len(), 11);
}

#[test]
fn a_cut_trace_says_so_wherever_it_is_cut() {
    let requests = [request(1, Operation::Get, &[1; 8]), request(2, Operation::Delete, &[2; 8])];
    let whole = written(Keys::Hashed, &requests);
    for length in 0..whole.len() {
        let error = Trace::read(whole[..length].to_vec()).unwrap_err();
        match length {
            0..8 => assert!(matches!(error, Error::NoTrace), "{length}: {error}"),
            _ => assert!(matches!(error, Error::Cut { .. }), "{length}: {error}"),
        }
    }
    let mut longer = whole;
    longer.push(0);
    assert!(matches!(Trace::read(longer), Err(Error::Damaged { what: "there is something behind the end", .. })));
}

#[test]
fn each_bit_that_turns_is_found() {
    let whole = written(Keys::Hashed, &[request(1, Operation::Get, &[1; 8]), request(2, Operation::Touch, &[2; 8])]);
    for bit in 0..whole.len() * 8 {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let error = Trace::read(damaged).unwrap_err();
        let is_version = (64..96).contains(&bit) && matches!(error, Error::Version(_));
        // A length that has grown reaches beyond the file.
        let is_known = matches!(error, Error::NoTrace | Error::Damaged { .. } | Error::Cut { .. });
        assert!(is_version || is_known, "bit {bit}: {error}");
    }
}

#[test]
fn unknown_versions_operations_and_outcomes_are_refused() {
    let good = request(1, Operation::Get, &[1; 8]);
    let whole = written(Keys::Hashed, &[good]);
    let mut newer = whole.clone();
    newer[8] = 2;
    assert!(matches!(Trace::read(newer), Err(Error::Version(2))));
    for (at, what) in [(18, "an operation is unknown"), (19, "an outcome is unknown")] {
        let mut changed = whole.clone();
        changed[40 + at] = 77;
        let checksum = format::frame_checksum(&changed[28..36], &changed[40..68]);
        changed[36..40].copy_from_slice(&checksum.to_le_bytes());
        match Trace::read(changed) {
            Err(Error::Damaged { what: found, offset: 40 }) => assert_eq!(found, what),
            other => panic!("{other:?}"),
        }
    }
}

/// Traces with a byte changed, and checksums that fit, are refused or mean the same when they are written again.
#[test]
fn the_body_of_the_fuzz_target_holds_for_changed_traces() {
    for whole in fuzzing::corpus() {
        assert_eq!(Trace::read(whole[1..].to_vec()).unwrap().len(), Operation::ALL.len());
        for at in 0..whole.len() {
            for value in [0, 1, 2, 127, 255] {
                let mut changed = whole.clone();
                changed[at] = value;
                fuzzing::trace(&changed);
            }
        }
    }
}
