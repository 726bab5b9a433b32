use super::*;
use crate::handle::Handle;
use crate::record::header;

const PAGE: &str = include_str!("../../../../docs/formats/values.md");

/// The rows of the table below a heading, as cells.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let after = PAGE.split(&format!("{heading}\n")).nth(1).unwrap_or_else(|| panic!("no {heading}"));
    let rows = after.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    rows.skip(2).map(|row| row.split('|').skip(1).map(str::trim).collect()).collect()
}

/// The fields of a table: where each begins, how long it is, and what it is.
fn fields(heading: &str) -> Vec<(usize, usize, &'static str)> {
    let of = |row: Vec<&'static str>| Some((row[0].parse().ok()?, row[1].parse().ok()?, row[2]));
    table(heading).into_iter().filter_map(of).collect()
}

/// The fields lie one behind the other, and fill `bytes`.
fn assert_gapless(heading: &str, bytes: usize) {
    let end = fields(heading).iter().fold(0, |end, (at, length, what)| {
        assert_eq!(*at, end, "{heading}: {what}");
        at + length
    });
    assert_eq!(end, bytes, "{heading}");
}

/// The number in the field whose description begins with `what`.
fn number(bytes: &[u8], heading: &str, what: &str) -> u64 {
    let field = fields(heading).into_iter().find(|(_, _, text)| text.starts_with(what));
    let (at, length, _) = field.unwrap_or_else(|| panic!("{heading}: {what}"));
    bytes[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

const IDENTITY: Identity = Identity { segment: 0x0102_0304_0506_0708, salt: 0x1112_1314_1516_1718 };

fn trailer() -> Trailer {
    Trailer {
        identity: IDENTITY,
        layout: Layout::OwnSectors,
        data_end: 0x2122_2324,
        index_bytes: 0x3132,
        index_check: 0x4142_4344,
        records: 0x5152_5354,
        record_bytes: 0x6162_6364_6566_6768,
    }
}

#[test]
fn the_page_has_the_constants() {
    let constants = [
        ("SECTOR_BYTES", SECTOR_BYTES),
        ("FIRST_RECORD", FIRST_RECORD),
        ("FRAME_BYTES", FRAME_BYTES as u64),
        ("HEADER_BYTES", HEADER_BYTES as u64),
        ("ALIGN", ALIGN),
        ("ALONE_PARTS", ALONE_PARTS),
        ("ENCODED_BYTES", Handle::ENCODED_BYTES as u64),
        ("VERSION", u64::from(VERSION)),
    ];
    let rows = table("# Value log");
    assert_eq!(rows.len(), constants.len());
    for (row, (name, value)) in rows.iter().zip(constants) {
        assert_eq!((row[0], row[1]), (format!("`{name}`").as_str(), value.to_string().as_str()));
    }
}

#[test]
fn the_tables_of_the_page_are_what_is_written() {
    let handle = Handle { segment: 7, offset: 8192, bytes: 2048 }.encode();
    assert_gapless("## Handle", Handle::ENCODED_BYTES);
    for (what, value) in [("number", 7), ("offset", 8192), ("length", 2048)] {
        assert_eq!(number(&handle, "## Handle", what), value, "{what}");
    }
    let first = SegmentHeader { identity: IDENTITY, layout: Layout::OwnSectors, pages: 16384 }.encode();
    let heading = "## Header of a segment";
    assert_gapless(heading, FRAME_BYTES);
    assert!(first.starts_with(b"SITUVALS"));
    for (what, value) in [
        ("version", 1),
        ("flags", 1),
        ("number", IDENTITY.segment),
        ("salt", IDENTITY.salt),
        ("length of the file", 16384),
        ("checksum", crc32c::crc32c(&first[..60]).into()),
    ] {
        assert_eq!(number(&first, heading, what), value, "{what}");
    }
    let last = trailer().encode();
    assert_gapless("## Trailer", FRAME_BYTES);
    assert!(last.starts_with(b"SITUVALE"));
    for (what, value) in [
        ("version", 1),
        ("flags", 1),
        ("number", IDENTITY.segment),
        ("salt", IDENTITY.salt),
        ("first byte behind", 0x2122_2324),
        ("length of the index", 0x3132),
        ("checksum of salt", 0x4142_4344),
        ("count of records", 0x5152_5354),
        ("sum of the records", 0x6162_6364_6566_6768),
        ("checksum of the bytes before", crc32c::crc32c(&last[..60]).into()),
    ] {
        assert_eq!(number(&last, "## Trailer", what), value, "{what}");
    }
}

#[test]
fn the_table_of_a_record_is_what_is_written() {
    let (key, value) = (b"key".as_slice(), b"a value".as_slice());
    let record = header(IDENTITY, 4096, 99, key, value);
    assert_gapless("## Record", HEADER_BYTES);
    let mut covered = Vec::new();
    for field in [IDENTITY.salt, IDENTITY.segment, 4096] {
        covered.extend_from_slice(&field.to_le_bytes());
    }
    covered.extend_from_slice(&record[4..]);
    covered.extend_from_slice(key);
    for (what, value) in [
        ("checksum of salt", crc32c::crc32c(&covered).into()),
        ("checksum of the value", crc32c::crc32c(value).into()),
        ("length of the value", value.len() as u64),
        ("length of the key", key.len() as u64),
        ("tag", 99),
    ] {
        assert_eq!(number(&record, "## Record", what), value, "{what}");
    }
}

#[test]
fn golden_bytes() {
    let record = header(IDENTITY, 4096, 0x99, b"key", b"a value");
    let golden = [0x85, 0x25, 0x80, 0x3c, 0xb9, 0xa1, 0xb7, 0xb5, 7, 0, 0, 0, 3, 0, 0, 0, 0x99, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(record, golden, "{record:#04x?}");
    let mut index = IndexBuilder::default();
    for (offset, bytes) in [(4096, 34), (4136, 2048), (8192, 5000)] {
        index.push(Extent { offset, bytes });
    }
    // 34 at once; 2048 at once; 5000 behind a gap of 2008 bytes, which are 251 eights.
    assert_eq!(index.bytes, [68, 0x80, 0x20, 0x91, 0x4e, 0xfb, 0x01]);
}

#[test]
fn frames_with_any_wrong_bit_are_refused() {
    let (header, trailer) = (SegmentHeader { identity: IDENTITY, layout: Layout::Packed, pages: 9 }, trailer());
    assert_eq!(SegmentHeader::decode(&header.encode()), Some(header));
    assert_eq!(Trailer::decode(&trailer.encode(), 1 << 20), Some(trailer));
    assert_eq!(Trailer::decode(&trailer.encode(), 1000), None, "more records than the file has room for");
    for bit in 0..FRAME_BYTES * 8 {
        let flip = |mut bytes: [u8; FRAME_BYTES]| {
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        };
        assert_eq!(SegmentHeader::decode(&flip(header.encode())), None);
        assert_eq!(Trailer::decode(&flip(trailer.encode()), 1 << 20), None);
    }
}

#[test]
fn an_index_comes_back_and_a_wrong_one_does_not() {
    let mut extents = Vec::new();
    let mut index = IndexBuilder::default();
    let mut free = FIRST_RECORD;
    for bytes in [24, 25, 1365, 1366, 4096, 9000, 100, 30_000_000, 31] {
        let offset = place(Layout::OwnSectors, free, bytes);
        free = end_of(Layout::OwnSectors, offset, bytes);
        extents.push(Extent { offset: offset as u32, bytes: bytes as u32 });
        index.push(extents[extents.len() - 1]);
    }
    let end = extents[extents.len() - 1].end();
    assert_eq!(decode_index(&index.bytes, index.records, end), Some(extents));
    assert_eq!(decode_index(&index.bytes, index.records - 1, end), None);
    assert_eq!(decode_index(&index.bytes, index.records, end + 8), None);
    assert_eq!(decode_index(&index.bytes[..index.bytes.len() - 1], index.records, end), None);
    assert_eq!(decode_index(&[0xff; 12], 1, end), None, "no varint is so long");
}

#[test]
fn records_with_sectors_of_their_own_share_none() {
    let own = Layout::OwnSectors;
    assert_eq!((place(own, 4096, 2000), end_of(own, 4096, 2000)), (4096, 8192));
    assert_eq!((place(own, 4104, 2000), place(own, 4104, 1365)), (8192, 4104));
    assert_eq!((end_of(own, 8192, 4097), end_of(own, 4104, 1001)), (16384, 5112));
    assert_eq!((place(Layout::Packed, 4104, 9000), end_of(Layout::Packed, 4104, 9001)), (4104, 13112));
}
