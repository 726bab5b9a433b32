//! What `load` reads and `dump` writes under arbitrary bytes, for fuzzers (`fuzz/`) and the seeded test below. Only there
//! with the feature `fuzzing` and in tests.

use crate::options::Format;
use crate::options::Layout;
use crate::text::Encoding;
use crate::transfer::packed::Input;
use crate::transfer::records::{Place, Record, Records, Unreadable};
use crate::transfer::sink::Sink;

/// A record's line, the record or none, and the place behind it.
pub(crate) type Found = (u64, Option<Record>, Place);

/// The bytes before those of the file.
const CONTROL_BYTES: usize = 3;

/// Reads any bytes as `load` does; panics if a reader does, or if it contradicts itself.
///
/// The first byte selects the format, the encoding and the columns. The second selects the place at which an interrupted load resumes, and
/// the third the bytes that a pipe returns at a time. The rest is
/// * a file: it must give the same whole, in pieces, and from the middle, and its records must survive a dump; or
/// * entries, each behind the lengths of its key and value: they must survive a dump.
pub fn load(data: &[u8]) {
    let Some((&[control, resume, piece], bytes)) = data.split_first_chunk::<CONTROL_BYTES>() else { return };
    let format = [Format::Jsonl, Format::Csv, Format::Tsv][control as usize % 3];
    let encoding = [Encoding::Text, Encoding::Hex, Encoding::Base64][control as usize / 3 % 3];
    let records = match control {
        0x80.. => entries(bytes),
        _ => file(bytes, format, &layout(control), resume as usize, piece as usize),
    };
    survives(&records, format, encoding);
}

/// Returns the layout options that a control byte selects.
fn layout(control: u8) -> Layout {
    let names = |key: &str, values: &[&str]| Layout {
        key: Some(key.to_owned()),
        values: values.iter().map(|name| (*name).to_owned()).collect(),
        no_header: false,
    };
    match control / 9 % 5 {
        0 => Layout::default(),
        1 => Layout { no_header: true, ..Layout::default() },
        2 => names("key", &[]),
        3 => names("a", &["b"]),
        _ => names("key", &["value", "a", "expires_ms"]),
    }
}

/// Reads all records of `bytes` from `start` on, at most `at_most` bytes at a time. If the header cannot be used, there are none.
pub(crate) fn read(bytes: &[u8], format: Format, layout: &Layout, start: Place, at_most: usize) -> Vec<Found> {
    let mut records = match Records::new(Input::pieces(bytes, at_most), format, layout) {
        Ok(records) => records,
        Err(Unreadable::Header { .. }) => return Vec::new(),
        Err(Unreadable::Input(error)) => panic!("memory can be read: {error}"),
    };
    if start != Place::START {
        records = records.restart_at(start).expect("memory can be read");
    }
    let mut found = Vec::new();
    while let Some(numbered) = records.read().expect("memory can be read") {
        found.push((numbered.line, numbered.record.ok(), records.place()));
        assert!(found.len() <= bytes.len(), "more records than bytes");
    }
    assert!(!records.promises_more(), "records began that were not given");
    found
}

fn file(bytes: &[u8], format: Format, layout: &Layout, resume: usize, piece: usize) -> Vec<Record> {
    let found = read(bytes, format, layout, Place::START, usize::MAX);
    let mut before = Place { offset: 0, line: 0 };
    let mut line_before = 0;
    for (line, _, place) in &found {
        assert!(place.offset > before.offset && place.line >= before.line, "the reader stands still: {found:?}");
        // A lone `\r` ends a record and no line.
        assert!(*line >= line_before.max(1) && place.offset <= bytes.len() as u64, "{found:?}");
        (before, line_before) = (*place, *line);
    }
    assert_eq!(read(bytes, format, layout, Place::START, piece.max(1)), found, "in pieces of {piece}");
    // What a load that was interrupted there goes on with.
    if let Some((_, _, place)) = found.get(resume % found.len().max(1)) {
        let rest = found.get(resume % found.len() + 1..).unwrap_or_default();
        assert_eq!(
            read(bytes, format, layout, *place, usize::MAX),
            rest,
            "resumed behind record {}",
            resume % found.len()
        );
    }
    found.into_iter().filter_map(|(_, record, _)| record).collect()
}

fn entries(mut bytes: &[u8]) -> Vec<Record> {
    let mut entries = Vec::new();
    while let Some((lengths, rest)) = bytes.split_first_chunk::<2>() {
        let [key, value] = lengths.map(usize::from);
        let (key, rest) = rest.split_at(key.min(rest.len()));
        let (value, rest) = rest.split_at(value.min(rest.len()));
        entries.push((key.to_vec(), value.to_vec()));
        bytes = rest;
    }
    entries
}

/// What is dumped can be loaded, and is the same.
fn survives(entries: &[Record], format: Format, encoding: Encoding) {
    let mut dumped = Vec::new();
    let mut sink = Sink::new(format, encoding, false, &mut dumped).expect("memory can be written");
    for (key, value) in entries {
        sink.write(key, value, None).expect("memory can be written");
    }
    sink.finish().expect("memory can be written");
    let loaded = read(&dumped, format, &Layout::default(), Place::START, usize::MAX);
    let loaded: Vec<_> = loaded.into_iter().map(|(_, record, _)| record).collect();
    let expected: Vec<_> = entries.iter().cloned().map(Some).collect();
    assert_eq!(loaded, expected, "through {:?}", String::from_utf8_lossy(&dumped));
}

/// Files of every format, and entries: where a fuzzer begins.
pub fn corpus() -> Vec<Vec<u8>> {
    let files: [(Format, &[u8]); 14] = [
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
        (Format::Csv, b"\xef\xbb\xbfkey,value\r\na,1\r\n\r\nb,\"2"),
        (Format::Csv, b"a,1\nb,2\n\xef\xbb\xbfc,3\n"),
        (Format::Tsv, b"key\tvalue_hex\na\t\"00\"\n\"b\t\"\t0\"f\n"),
        (Format::Tsv, b"\"key\"\t\"value\"\r\na\t\"\xff\x00\"\r\n"),
        (Format::Csv, b" Value ,KEY\n1815,ada\n"),
        (Format::Csv, b"b,a,expires_ms\n1,2,\n3,4,5\n"),
        (Format::Tsv, b"value\ta\tkey\texpires_ms\n\xc3\xa9\t2\t3\t4\n"),
        (Format::Jsonl, b"{\"a\":17,\"b\":{\"c\":[1,null]},\"key\":\"k\",\"value\":true}\n{\"a\":null,\"b\":1}\n"),
        (Format::Jsonl, b"{\"key\":1e400,\"value\":\"\\ud800\",\"a\":\"x\",\"expires_ms\":-1}\n"),
    ];
    let entries = b"\x01\x03kabc\x03\x00\xff\xfe\xfd\x02\x04\"\n,\t\r\n";
    let with = |control: u8, bytes: &[u8]| [&[control, 1, 1], bytes].concat();
    let files = files.iter().enumerate().map(|(at, (format, bytes))| with(*format as u8 + 3 * (at as u8 % 3), bytes));
    files.chain((0..9).map(|control| with(0x80 + control, entries))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn promise_6_no_file_breaks_the_reader(
            which in 0..corpus().len(),
            control: [u8; CONTROL_BYTES],
            chosen: bool,
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..5u8), 0..8),
        ) {
            let mut data = corpus().swap_remove(which);
            if chosen {
                data[..CONTROL_BYTES].copy_from_slice(&control);
            }
            let mut bytes = data.split_off(CONTROL_BYTES);
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
            data.extend(bytes);
            load(&data);
        }
    }
}
