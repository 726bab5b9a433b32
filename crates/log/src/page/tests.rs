use super::*;
use crate::shadow::Rng;
use std::collections::BTreeMap;

const FORMAT_PAGE: &str = include_str!("../../../../docs/formats/log.md");

fn rows() -> Vec<Vec<String>> {
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    FORMAT_PAGE.lines().filter(|line| line.starts_with('|')).map(cells).collect()
}

#[test]
fn the_format_page_and_the_constants_agree() {
    let rows = rows();
    let field = |name: &str| {
        let row = rows.iter().find(|row| row.len() == 4 && row[2] == name).unwrap_or_else(|| panic!("no field {name}"));
        (row[0].parse::<usize>().unwrap(), row[1].parse::<usize>().unwrap())
    };
    let fields = [
        ("magic", at::MAGIC, 4),
        ("version", at::VERSION, 1),
        ("flags", at::FLAGS, 1),
        ("first_record", at::FIRST_RECORD, 2),
        ("file_number", at::FILE_NUMBER, 8),
        ("page_number", at::PAGE_NUMBER, 4),
        ("used", at::USED, 2),
        ("previous_used", at::PREVIOUS_USED, 2),
        ("durable_pages", at::DURABLE_PAGES, 4),
        ("durable_used", at::DURABLE_USED, 2),
        ("reserved", at::RESERVED, 2),
        ("durable_checksum", at::DURABLE_CHECKSUM, 4),
        ("payload_checksum", at::PAYLOAD_CHECKSUM, 4),
        ("previous_distance", at::PREVIOUS_DISTANCE, 4),
        ("header_checksum", at::HEADER_CHECKSUM, 4),
    ];
    let mut end = 0;
    for (name, offset, bytes) in fields {
        assert_eq!(field(name), (offset, bytes), "{name}");
        assert_eq!(offset, end, "{name} follows the field before it");
        end += bytes;
    }
    assert_eq!(end, HEADER_BYTES);
    assert_eq!(field("length"), (0, 4));
    assert_eq!(field("checksum"), (4, 4));
    let bit = |name: &str| rows.iter().find(|row| row.len() == 3 && row[0] == name).unwrap()[1].parse::<u8>().unwrap();
    let flags = [
        ("begins", flag::BEGINS),
        ("previous_durable", flag::PREVIOUS_DURABLE),
        ("ended", flag::ENDED),
        ("closed", flag::CLOSED),
    ];
    for (name, value) in flags {
        assert_eq!(1 << bit(name), value, "{name}");
    }
    for text in [
        format!("version {VERSION}"),
        format!("{MAGIC:#010x}"),
        format!("{PAGE_BYTES}-byte *pages*"),
        format!("header of {HEADER_BYTES} bytes"),
        format!("payload of {PAYLOAD_BYTES} bytes"),
        format!("`used` < {PAYLOAD_BYTES}"),
        format!("{NO_RECORD:#06x} if none does"),
    ] {
        assert!(FORMAT_PAGE.contains(&text), "the format page lacks: {text}");
    }
    assert_eq!(RECORD_BYTES_MAX, 1 << 30);
}

fn page(header: &Header, body: &[u8]) -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    page[HEADER_BYTES..][..body.len()].copy_from_slice(body);
    header.encode(&mut page);
    page
}

fn sample() -> (Header, Vec<u8>) {
    let body: Vec<u8> = (0..3000u32).map(|i| (i * 7) as u8).collect();
    let header = Header {
        flags: flag::PREVIOUS_DURABLE,
        first_record: Some(17),
        file_number: 0x0102_0304_0506,
        page_number: 9,
        used: 3000,
        previous_used: 4048,
        durable_pages: 8,
        durable_used: 1000,
        durable_checksum: crc32c::crc32c(&body[..1000]),
        payload_checksum: crc32c::crc32c(&body),
        previous_distance: 3,
    };
    (header, body)
}

#[test]
fn a_header_reads_back() {
    let (header, body) = sample();
    assert_eq!(classify(&page(&header, &body), header.file_number, 9), PageState::Good(header));
}

#[test]
fn stale_and_misdirected_pages_are_told_apart() {
    let (header, body) = sample();
    let page = page(&header, &body);
    assert_eq!(classify(&page, header.file_number + 1, 9), PageState::NotWritten);
    assert!(matches!(classify(&page, header.file_number, 10), PageState::Damaged(_)));
    assert_eq!(classify(&[0; PAGE_BYTES], 1, 0), PageState::NotWritten);
}

#[test]
fn a_torn_page_keeps_its_durable_prefix_and_a_rotten_one_does_not() {
    let (header, body) = sample();
    let mut torn = page(&header, &body);
    torn[HEADER_BYTES + 2900] ^= 1;
    assert_eq!(classify(&torn, header.file_number, 9), PageState::Torn(header));
    torn[HEADER_BYTES + 900] ^= 1;
    assert!(matches!(classify(&torn, header.file_number, 9), PageState::Rotten(..)));
}

#[test]
fn a_page_of_another_version_is_named() {
    let (header, body) = sample();
    let mut page = page(&header, &body);
    page[at::VERSION] = 2;
    let checksum = crc32c::crc32c(&page[..at::HEADER_CHECKSUM]);
    page[at::HEADER_CHECKSUM..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    let PageState::Damaged(damage) = classify(&page, header.file_number, 9) else { panic!("taken for ours") };
    assert!(damage.is_version(), "{damage:?}");
}

#[test]
fn every_flipped_bit_is_seen_and_nothing_panics() {
    let (header, body) = sample();
    let page = page(&header, &body);
    for bit in 0..(HEADER_BYTES + body.len()) * 8 {
        let mut page = page;
        page[bit / 8] ^= 1 << (bit % 8);
        assert!(!matches!(classify(&page, header.file_number, 9), PageState::Good(_)), "bit {bit}");
    }
    let seed = 42;
    let mut rng = Rng(seed);
    let mut states = BTreeMap::new();
    for _ in 0..20_000 {
        let mut page = page;
        // Random header fields under a right checksum: only the rules can refuse them.
        for _ in 0..1 + rng.below(3) {
            page[4 + rng.below(at::HEADER_CHECKSUM - 4)] = rng.next() as u8;
        }
        let checksum = crc32c::crc32c(&page[..at::HEADER_CHECKSUM]);
        page[at::HEADER_CHECKSUM..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
        let state = classify(&page, header.file_number, 9);
        let name = match state {
            PageState::NotWritten => "not written",
            PageState::Good(_) => "good",
            PageState::Torn(_) => "torn",
            PageState::Rotten(..) => "rotten",
            PageState::Damaged(_) => "damaged",
        };
        *states.entry(name).or_insert(0) += 1;
    }
    assert_eq!(states.len(), 5, "seed {seed}: all states must be reached: {states:?}");
}
