use super::*;
use crate::check::format_page::Layout;

const STORE: StoreId = StoreId([7; 16]);

fn sealed(mut area: Vec<u8>) -> Vec<u8> {
    for at in MARK_OFFSETS {
        let checksum = crc32c::crc32c(&area[at..at + MARK_CHECKSUM_AT]);
        area[at + MARK_CHECKSUM_AT..at + MARK_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }
    area
}

/// The header area with other bytes in both copies, and right checksums.
fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut area = SpaceMark::new(STORE).encode();
    for copy in MARK_OFFSETS {
        area[copy + at..copy + at + bytes.len()].copy_from_slice(bytes);
    }
    sealed(area)
}

fn refusal(area: &[u8]) -> Error {
    let error = SpaceMark::check("/dev/sdx", area, STORE).expect_err("it is not the store's bucket space");
    assert!(error.to_string().starts_with("/dev/sdx "), "{error}");
    error
}

#[test]
fn the_mark_of_the_store_is_accepted() {
    let area = SpaceMark::new(STORE).encode();
    assert_eq!(area.len(), SPACE_HEADER_BYTES);
    SpaceMark::check("/dev/sdx", &area, STORE).unwrap();
    assert!(SpaceMark::is_blank(&vec![0; SPACE_HEADER_BYTES]) && !SpaceMark::is_blank(&area));
}

#[test]
fn the_format_page_has_the_places_of_the_fields() {
    let area = SpaceMark::new(STORE).encode();
    let layout = Layout::of("Mark", MARK_BYTES);
    for copy in MARK_OFFSETS.map(|at| &area[at..at + MARK_BYTES]) {
        assert_eq!(layout.field("magic", copy), b"SITUbkts");
        assert_eq!(layout.number("format", copy), 1);
        assert_eq!(layout.number("header bytes", copy), 65536);
        assert_eq!(layout.field("store", copy), STORE.0);
        assert_eq!(layout.number("bucket bytes", copy), 4096);
        assert!(is_zero(layout.field("zeros", copy)));
        assert_eq!(layout.number("checksum", copy), u64::from(crc32c::crc32c(&copy[..4092])));
    }
    assert_eq!([0, 1, 1 << 40].map(bucket_offset), [65536, 69632, 65536 + (4096 << 40)]);
}

#[test]
fn another_stores_device_is_refused_by_name() {
    let area = SpaceMark::new(StoreId([9; 16])).encode();
    let error = refusal(&area);
    assert!(matches!(error, Error::OtherStore { .. }));
    let text = error.to_string();
    assert!(text.contains("another store's device"), "{text}");
    assert!(text.contains(&"09".repeat(16)) && text.contains(&"07".repeat(16)), "{text}");
}

#[test]
fn what_is_no_bucket_space_is_refused_and_described() {
    let blank = refusal(&vec![0; SPACE_HEADER_BYTES]);
    assert!(matches!(blank, Error::NotABucketSpace { .. }));
    assert!(blank.to_string().contains("not a bucket space: found zeros only"), "{blank}");
    let other = refusal(&b"hsqs".repeat(SPACE_HEADER_BYTES / 4));
    assert!(other.to_string().contains("other data, which begins with 68 73 71 73"), "{other}");
}

#[test]
fn other_geometry_is_refused_with_both() {
    for (at, text) in [(12, "header of 8192 bytes"), (32, "buckets of 8192 bytes")] {
        let error = refusal(&changed(at, &8192u32.to_le_bytes()));
        assert!(matches!(error, Error::OtherGeometry { .. }));
        assert!(
            error.to_string().contains(text) && error.to_string().contains("expects buckets of 4096 bytes"),
            "{error}"
        );
    }
}

#[test]
fn a_newer_bucket_space_is_refused() {
    let error = refusal(&changed(8, &2u32.to_le_bytes()));
    assert!(matches!(error, Error::Newer { .. }) && error.to_string().contains("format 2"), "{error}");
}

#[test]
fn promise_6_one_damaged_copy_does_no_harm_and_two_are_named() {
    let sound = SpaceMark::new(STORE).encode();
    for at in 0..MARK_BYTES {
        let mut area = sound.clone();
        area[at] ^= 1;
        SpaceMark::check("/dev/sdx", &area, STORE).unwrap();
        area[at] ^= 1;
        area[MARK_OFFSETS[1] + at] ^= 1;
        SpaceMark::check("/dev/sdx", &area, STORE).unwrap();
        area[at] ^= 1;
        let error = refusal(&area);
        let is_magic = at < SPACE_MAGIC.len();
        assert_eq!(matches!(error, Error::NotABucketSpace { .. }), is_magic, "{error}");
        assert_eq!(error.is_corruption(), !is_magic, "{error}");
    }
}

#[test]
fn a_rule_is_checked_behind_a_right_checksum() {
    let error = refusal(&changed(40, &[1]));
    assert!(error.is_corruption() && error.to_string().contains("zeros"), "{error}");
}
