use super::*;
use proptest::prelude::*;
use std::fs::File;
use std::io::Write;

/// Files of every format: where mutations begin.
const FILES: [(Format, &[u8]); 6] = [
    (
        Format::Jsonl,
        b"{\"key\":\"a\",\"value\":\"1\"}\n\n{\"key_hex\":\"00ff\",\"value_base64\":\"AP8=\"}\n{\"key\":1}\n",
    ),
    (
        Format::Jsonl,
        b"\xef\xbb\xbf{\"key\":\"\\u00e9\\n\",\"value\":\"\"}\r\nnonsense\n{\"key\":\"b\",\"value\":\"x\"}",
    ),
    (Format::Csv, b"key,value\na,1\n\"b,\"\"c\",\"two\r\nlines\"\r\nd,e,f\n"),
    (Format::Csv, b"key_hex,value_base64\n00ff,AP8=\n0,AP8\n,\n"),
    (Format::Csv, b"ada,1815\n\ngrace,1906"),
    (Format::Tsv, b"key\tvalue_hex\na\t\"00\"\n\"b\t\"\t0\"f\n"),
];

/// What a reader that begins at `start` finds: each record, or none, its line, and the place behind it.
fn read(file: &File, format: Format, start: Place, bytes: usize) -> Vec<(u64, Option<Record>, Place)> {
    let mut file = file.try_clone().unwrap();
    file.rewind().unwrap();
    let mut records = Records::new(Input::File(file), format, start).unwrap();
    let mut found = Vec::new();
    while let Some(numbered) = records.read().unwrap() {
        found.push((numbered.line, numbered.record.ok(), records.place()));
        assert!(found.len() <= bytes, "more records than bytes");
    }
    if let Records::Csv { reader, .. } = &records {
        assert!(reader.get_ref().lines.is_empty(), "records began that were not given");
    }
    found
}

/// Reads any bytes to their end, and once more from the middle; panics if the reader does, or if it contradicts itself.
fn check(bytes: &[u8], format: Format, from: prop::sample::Index) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let found = read(&file, format, Place::START, bytes.len());
    let mut before = Place { offset: 0, line: 0 };
    for (line, _, place) in &found {
        assert!(place.offset > before.offset && place.line >= before.line, "the reader stands still: {found:?}");
        assert!(*line >= 1 && place.offset <= bytes.len() as u64, "{found:?}");
        before = *place;
    }
    if found.is_empty() {
        return;
    }
    // What a load that was interrupted there goes on with.
    let at = from.index(found.len());
    assert_eq!(read(&file, format, found[at].2, bytes.len()), found[at + 1..], "resumed behind record {at}");
}

/// A file, and of each record its line and whether it is a good one.
type Case = (&'static [u8], &'static [(u64, bool)]);

/// The last value of a file that was cut in quotes was loaded as far as it went.
#[test]
fn a_quote_that_is_never_closed_is_a_bad_record() {
    let cases: [Case; 11] = [
        (b"key,value\na,1\nb,\"two\nli", &[(2, true), (3, false)]),
        (b"key,value\na,1\nb,\"two\nli\"", &[(2, true), (3, true)]),
        (b"a,\"1\"\"", &[(1, false)]),
        (b"a,\"1\"\"\"", &[(1, true)]),
        (b"a,\"", &[(1, false)]),
        (b"a,\"1\"x\"", &[(1, true)]),
        (b"a,1\"\nb,\"2\"\n\"c,3\nd,4\n", &[(1, true), (2, true), (3, false)]),
        (b"\xef\xbb\xbf\"a\",\"1\n", &[(1, false)]),
        (b"\xef\xbb\xbf\"a\",1", &[(1, true)]),
        (b"key,\"value", &[(1, false)]),
        (b"key,value\na,\"1\"\r\n", &[(2, true)]),
    ];
    for (bytes, expected) in cases {
        for (format, delimiter) in [(Format::Csv, b','), (Format::Tsv, b'\t')] {
            let mut file = tempfile::tempfile().unwrap();
            let bytes: Vec<u8> = bytes.iter().map(|byte| if *byte == b',' { delimiter } else { *byte }).collect();
            file.write_all(&bytes).unwrap();
            let found = read(&file, format, Place::START, bytes.len());
            let found: Vec<_> = found.iter().map(|(line, record, _)| (*line, record.is_some())).collect();
            assert_eq!(found, expected, "{:?}", String::from_utf8_lossy(&bytes));
        }
    }
}

/// Records behind `\r\n` or an empty line had the number of the line before them.
#[test]
fn records_have_the_numbers_of_their_own_lines() {
    let cases: [Case; 4] = [
        (b"key,value\r\na,1\r\n\r\n\r\nb,\"two\r\nlines\"\r\nc\r\nd,4", &[(2, true), (5, true), (7, false), (8, true)]),
        (b"\n\r\n\xffa,1\n\nb,2\n\n", &[(3, true), (5, true)]),
        (b"\xef\xbb\xbf\na,1\n", &[(2, true)]),
        (b"\xef\xbb\xbf\"a\r\n\",1\r\n,\r\n", &[(1, true), (3, true)]),
    ];
    for (bytes, expected) in cases {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let found = read(&file, Format::Csv, Place::START, bytes.len());
        let lines: Vec<_> = found.iter().map(|(line, record, _)| (*line, record.is_some())).collect();
        assert_eq!(lines, expected, "{:?}", String::from_utf8_lossy(bytes));
        for (at, (_, _, place)) in found.iter().enumerate() {
            assert_eq!(read(&file, Format::Csv, *place, bytes.len()), found[at + 1..]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn promise_6_no_file_breaks_the_reader(
        which in 0..FILES.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..5u8), 0..8),
        from: prop::sample::Index,
    ) {
        let (format, bytes) = FILES[which];
        let mut bytes = bytes.to_vec();
        for (at, byte, kind) in changes {
            let at = at.index(bytes.len() + 1);
            match kind {
                0 => bytes.insert(at, byte),
                1 => bytes.insert(at, b"\"\n\r,\t{}:\\"[byte as usize % 9]),
                2 => bytes.truncate(at),
                3 => bytes.extend_from_within(at..),
                _ => bytes.iter_mut().skip(at).take(1).for_each(|place| *place = byte),
            }
        }
        check(&bytes, format, from);
    }
}
