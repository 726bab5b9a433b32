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
