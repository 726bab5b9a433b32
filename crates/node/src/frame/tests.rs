use super::*;
use proptest::prelude::*;

fn header() -> Header {
    Header {
        side: Side::Device,
        flags: flag::ANSWER,
        operation: 0x41,
        payload_bytes: 3,
        timeout_ms: 0,
        request: 7,
        grant: 1024,
        payload_crc: crc32c(b"abc"),
    }
}

#[test]
fn a_header_survives_its_bytes() {
    let header = header();
    assert_eq!(Header::decode(&header.encode()).unwrap(), header);
    header.check_payload(b"abc").unwrap();
    let error = header.check_payload(b"abd").unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("payload checksum"), "{error}");
}

#[test]
fn every_flipped_bit_of_a_header_is_found() {
    let bytes = header().encode();
    for bit in 0..HEADER_BYTES * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Header::decode(&flipped).is_err(), "bit {bit}");
    }
}

#[test]
fn flags_and_numbers_that_do_not_go_together_are_refused() {
    let refused = |change: &dyn Fn(&mut Header)| {
        let mut changed = header();
        change(&mut changed);
        Header::decode(&changed.encode()).unwrap_err().to_string()
    };
    assert!(refused(&|header| header.flags = flag::ERROR).contains("flags"));
    assert!(refused(&|header| header.flags = 0x80).contains("flags"));
    assert!(refused(&|header| header.flags = flag::ONE_WAY).contains("request number"));
    assert!(refused(&|header| header.request = 0).contains("request number"));
    assert!(refused(&|header| header.payload_bytes = PAYLOAD_BYTES_LIMIT + 1).contains("payload length"));
}

const PAGE: &str = include_str!("../../../../docs/formats/node-protocol.md");

#[test]
fn the_page_has_the_places_of_the_fields() {
    let section = PAGE.split("## Frame").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows: Vec<Vec<&str>> = section.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
    let place_of = |field: &str| {
        let row = rows.iter().find(|row| row.get(3) == Some(&field)).unwrap_or_else(|| panic!("{field}"));
        row[1].parse::<usize>().unwrap()
    };
    for (field, at) in [
        ("magic", place::MAGIC),
        ("type", place::SIDE),
        ("flags", place::FLAGS),
        ("operation", place::OPERATION),
        ("payload length", place::PAYLOAD_BYTES),
        ("timeout", place::TIMEOUT_MS),
        ("request", place::REQUEST),
        ("grant", place::GRANT),
        ("payload checksum", place::PAYLOAD_CRC),
        ("header checksum", place::HEADER_CRC),
        ("payload", HEADER_BYTES),
    ] {
        assert_eq!(place_of(field), at, "{field}");
    }
    assert!(section.contains("`SITN`") && section.contains("16 MiB at most") && PAYLOAD_BYTES_LIMIT == 16 << 20);
    let says = |words: &str| assert!(PAGE.contains(words), "{words}");
    says(&format!("a payload is {} KiB at most", FIRST_PAYLOAD_BYTES >> 10));
    says(&format!("begins with {} KiB of credit", FIRST_CREDIT_BYTES >> 10));
    says(&format!("the bytes of its frame, {CHARGE_BYTES_MIN} at least"));
}

#[test]
fn a_frame_has_the_bytes_of_the_page() {
    use crate::message::{Message, Read};
    let payload = Read { handle: 9, ranges: vec![(4096, 5)] }.encode();
    let header = Header {
        side: Side::Host,
        flags: 0,
        operation: crate::Operation::Read as u16,
        payload_bytes: payload.len() as u32,
        timeout_ms: 1000,
        request: 7,
        grant: 0,
        payload_crc: crc32c(&payload),
    };
    let made: Vec<String> =
        [&header.encode()[..], &payload].concat().iter().map(|byte| format!("{byte:02x}")).collect();
    let golden = PAGE.split("```hex\n").nth(1).unwrap().split("```").next().unwrap();
    let digits: Vec<&str> = golden.lines().flat_map(|line| line.split("  ").next().unwrap().split(' ')).collect();
    assert_eq!(made, digits);
}

proptest! {
    #[test]
    fn any_bytes_are_a_header_or_an_error(bytes in prop::array::uniform32(any::<u8>()), rest in any::<u32>()) {
        let mut whole = [0; HEADER_BYTES];
        whole[..32].copy_from_slice(&bytes);
        whole[32..].copy_from_slice(&rest.to_le_bytes());
        let _ = Header::decode(&whole);
        // With the magic and the checksum right, the rules alone decide.
        whole[..4].copy_from_slice(&MAGIC);
        let crc = crc32c(&whole[..32]).to_le_bytes();
        whole[32..].copy_from_slice(&crc);
        if let Ok(header) = Header::decode(&whole) {
            prop_assert_eq!(header.encode(), whole);
        }
    }
}
