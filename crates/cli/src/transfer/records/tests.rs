use super::*;
use crate::fuzzing;
use std::cell::Cell;

thread_local! {
    /// The memory that the system has for the calling thread.
    pub(super) static MEMORY_BYTES: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Reads a file whose first line is a header if it names the columns, and an entry otherwise.
fn read(bytes: &[u8], format: Format, start: Place, at_most: usize) -> Vec<fuzzing::Found> {
    let mark = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let layout = Layout { no_header: !mark.starts_with(b"key"), ..Layout::default() };
    fuzzing::read(bytes, format, &layout, start, at_most)
}

/// A file, and of each record its line and whether it is a good one.
type Case = (&'static [u8], &'static [(u64, bool)]);

/// The last value of a file that was cut in quotes was loaded as far as it went.
#[test]
fn a_quote_that_is_never_closed_is_a_bad_record() {
    let cases: [Case; 10] = [
        (b"key,value\na,1\nb,\"two\nli", &[(2, true), (3, false)]),
        (b"key,value\na,1\nb,\"two\nli\"", &[(2, true), (3, true)]),
        (b"a,\"1\"\"", &[(1, false)]),
        (b"a,\"1\"\"\"", &[(1, true)]),
        (b"a,\"", &[(1, false)]),
        (b"a,\"1\"x\"", &[(1, true)]),
        (b"a,1\"\nb,\"2\"\n\"c,3\nd,4\n", &[(1, true), (2, true), (3, false)]),
        (b"\xef\xbb\xbf\"a\",\"1\n", &[(1, false)]),
        (b"\xef\xbb\xbf\"a\",1", &[(1, true)]),
        (b"key,value\na,\"1\"\r\n", &[(2, true)]),
    ];
    for (bytes, expected) in cases {
        for (format, delimiter) in [(Format::Csv, b','), (Format::Tsv, b'\t')] {
            let bytes: Vec<u8> = bytes.iter().map(|byte| if *byte == b',' { delimiter } else { *byte }).collect();
            let found = read(&bytes, format, Place::START, usize::MAX);
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
        let found = read(bytes, Format::Csv, Place::START, usize::MAX);
        let lines: Vec<_> = found.iter().map(|(line, record, _)| (*line, record.is_some())).collect();
        assert_eq!(lines, expected, "{:?}", String::from_utf8_lossy(bytes));
        for (at, (_, _, place)) in found.iter().enumerate() {
            assert_eq!(read(bytes, Format::Csv, *place, usize::MAX), found[at + 1..]);
        }
    }
}

/// The parser skips a byte order mark wherever it begins, but only if it is in the first piece: a resumed load lost the
/// first character of a key, and one that read a slow pipe took the header for data.
#[test]
fn a_byte_order_mark_is_skipped_at_the_beginning_alone() {
    let mark = "\u{feff}";
    for (format, bytes) in [
        (Format::Csv, format!("{mark}key,value\na,1\n{mark}b,2\n")),
        (Format::Csv, format!("{mark}a,1\n{mark}b,2\n")),
        (Format::Jsonl, format!("{mark}{{\"key\":\"a\",\"value\":\"1\"}}\n{{\"key\":\"{mark}b\",\"value\":\"2\"}}\n")),
    ] {
        let whole = read(bytes.as_bytes(), format, Place::START, usize::MAX);
        let keys: Vec<_> = whole.iter().map(|(_, record, _)| record.clone().map(|(key, _)| key)).collect();
        assert_eq!(keys, [Some(b"a".to_vec()), Some(format!("{mark}b").into_bytes())], "{bytes:?}");
        assert_eq!(read(bytes.as_bytes(), format, Place::START, 1), whole, "{bytes:?}");
        assert_eq!(read(bytes.as_bytes(), format, whole[0].2, usize::MAX), whole[1..], "{bytes:?}");
    }
    // Two marks: the second is part of the key.
    let found = read(format!("{mark}{mark}a,1").as_bytes(), Format::Csv, Place::START, usize::MAX);
    assert_eq!(found[0].1, Some((format!("{mark}a").into_bytes(), b"1".to_vec())));
}

/// An array of six was a record: its elements were taken for the fields in their order.
#[test]
fn a_record_is_an_object() {
    for text in ["[\"key\",null,null,\"value\",null,null]", "[]", "null", "\"key\"", "7", "nonsense"] {
        let why = json::read(text.as_bytes(), &Layout::default()).expect_err(text);
        assert!(why.starts_with("not a record: expected an object such as {"), "{why}");
    }
}

/// Behind a quote that was never closed, all the rest of a file was gathered in memory.
#[test]
fn a_record_that_does_not_end_is_given_up() {
    let bytes = [b"key,value\na,1\nb,\"two\n".as_slice(), &[b'x'; 5000]].concat();
    let quotes = |max| {
        let mut quotes = Quotes::new(Input::pieces(&bytes, 100), b',', 1);
        quotes.record_bytes_max = max;
        quotes
    };
    let error = io::copy(&mut quotes(1000), &mut io::sink()).unwrap_err().to_string();
    assert!(error.contains("begins in line 3 has more than 2 GiB: is a quote there never closed?"), "{error}");
    io::copy(&mut quotes(6000), &mut io::sink()).unwrap();
}

/// A value of tens of megabytes ended the process if there was no memory for it.
#[test]
fn a_record_for_which_there_is_no_memory_is_an_error() {
    let value = "x".repeat(5 << 20);
    let files = [
        (Format::Csv, format!("key,value\na,1\nb,{value}\n")),
        (Format::Tsv, format!("key\tvalue\na\t1\nb\t\"{value}\"\n")),
        (Format::Jsonl, format!("\n{{\"key\":\"a\",\"value\":\"1\"}}\n{{\"key\":\"b\",\"value\":\"{value}\"}}\n")),
    ];
    for (format, text) in files {
        // Too little for a part of the record, and for the record alone.
        for memory_bytes in [2 << 20, 9 << 20] {
            let mut records = Records::new(Input::pieces(text.as_bytes(), 100_000), format, &Layout::default())
                .unwrap_or_else(|_| panic!("the header is sound"));
            assert!(records.read().unwrap().is_some());
            MEMORY_BYTES.set(memory_bytes);
            let error = records.read().err().expect("there is no memory");
            MEMORY_BYTES.set(usize::MAX);
            assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
            assert!(error.to_string().starts_with("the record that begins in line 3 needs "), "{error}");
        }
        let found = fuzzing::read(text.as_bytes(), format, &Layout::default(), Place::START, 100_000);
        assert!(found.len() == 2 && found[1].1 == Some((b"b".to_vec(), value.clone().into_bytes())));
    }
}
