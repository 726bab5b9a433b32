use super::*;
use crate::check::format_page::{Layout, PAGE, example};
use situ_sim::SimMemory;

const STORE: StoreId = StoreId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

fn superblock(generation: u64) -> Superblock {
    Superblock {
        generation,
        store: STORE,
        seed: 1001,
        is_clean: true,
        state: State::from_parts(4, 3, 5).unwrap(),
        epoch: 1002,
        sequence: 1003,
        first_log_file: 1004,
        next_file: 1005,
        first_image_batch: 1006,
        totals: Totals { entries: 1007, bytes: 1008, overflow_entries: 1009, overflow_bytes: 1010 },
        device: Some("/dev/zram0".to_owned()),
    }
}

fn sealed(mut slot: Vec<u8>) -> Vec<u8> {
    let checksum = crc32c::crc32c(&slot[..SLOT_CHECKSUM_AT]);
    slot[SLOT_CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    slot
}

fn newest(first: &[u8], second: &[u8]) -> crate::Result<Option<Newest>> {
    Superblock::newest("superblock", &[first, second].concat())
}

#[test]
fn what_is_written_is_read() {
    for device in [None, Some("/dev/zram0".to_owned()), Some("x".repeat(DEVICE_PATH_BYTES_MAX))] {
        for is_clean in [false, true] {
            let written = Superblock { device: device.clone(), is_clean, ..superblock(3) };
            assert_eq!(Superblock::decode("superblock", 0, &written.encode()).unwrap(), Some(written));
        }
    }
}

#[test]
fn the_format_page_has_the_places_of_the_fields() {
    let slot = superblock(7).encode();
    let layout = Layout::of("Superblock slot", SLOT_BYTES);
    assert_eq!(layout.field("magic", &slot), b"SITUhash");
    assert_eq!(layout.field("store", &slot), STORE.0);
    let numbers = [
        ("format", 1),
        ("clean", 1),
        ("base bits", 4),
        ("level", 3),
        ("reserved", 0),
        ("generation", 7),
        ("seed", 1001),
        ("split", 5),
        ("epoch", 1002),
        ("sequence", 1003),
        ("first log file", 1004),
        ("next file", 1005),
        ("first image batch", 1006),
        ("entries", 1007),
        ("bytes of entries", 1008),
        ("overflow entries", 1009),
        ("overflow bytes", 1010),
        ("device length", 10),
        ("checksum", u64::from(crc32c::crc32c(&slot[..SLOT_CHECKSUM_AT]))),
    ];
    for (name, value) in numbers {
        assert_eq!(layout.number(name, &slot), value, "{name}");
    }
    assert!(layout.field("device", &slot).starts_with(b"/dev/zram0\0"));
}

#[test]
fn the_example_of_the_format_page_is_what_the_code_writes() {
    let totals = Totals { entries: 800, bytes: 336_000, overflow_entries: 3, overflow_bytes: 1300 };
    let numbers = Superblock { seed: 11, epoch: 2, sequence: 900, totals, ..superblock(7) };
    let written = Superblock { is_clean: false, first_log_file: 3, next_file: 6, first_image_batch: 40, ..numbers };
    let slot = written.encode();
    let golden = example("superblock");
    assert_eq!(slot[..golden.len()], golden, "{:02x?}", &slot[..golden.len()]);
    assert!(is_zero(&slot[golden.len()..SLOT_CHECKSUM_AT]));
    let checksum = u32::from_le_bytes(slot[SLOT_CHECKSUM_AT..].try_into().unwrap());
    assert!(PAGE.contains(&format!("the checksum of the slot is {checksum:#010x}")), "{checksum:#010x}");
}

#[test]
fn the_slot_with_the_highest_generation_counts() {
    for generations in [[1, 2], [2, 1], [2, 2]] {
        let [first, second] = generations.map(|generation| superblock(generation).encode());
        let found = newest(&first, &second).unwrap().unwrap();
        assert_eq!((found.superblock, found.damage.is_none()), (superblock(2), true));
    }
}

#[test]
fn a_store_whose_first_change_was_torn_has_one_slot() {
    let blank = vec![0; SLOT_BYTES];
    assert!(newest(&blank, &blank).unwrap().is_none());
    let found = newest(&superblock(1).encode(), &blank).unwrap().unwrap();
    assert_eq!((found.superblock, found.damage.is_none()), (superblock(1), true));
}

#[test]
fn promise_4_a_torn_change_leaves_the_other_slot() {
    let (old, new) = (superblock(1), Superblock { epoch: 99, is_clean: false, ..superblock(2) });
    let torn = [&new.encode()[..512], &old.encode()[512..]].concat();
    for (first, second) in [(&torn, &old.encode()), (&old.encode(), &torn)] {
        let found = newest(first, second).unwrap().unwrap();
        assert_eq!(found.superblock, old);
        let damage = found.damage.expect("the torn slot is told").to_string();
        assert!(damage.contains("of the superblock (checksum)"), "{damage}");
    }
    assert!(newest(&torn, &torn).unwrap_err().is_corruption());
    let blank = vec![0; SLOT_BYTES];
    assert!(newest(&torn, &blank).unwrap_err().is_corruption());
}

#[test]
fn promise_6_each_damaged_byte_of_a_slot_is_found() {
    let sound = superblock(7).encode();
    for at in 0..SLOT_BYTES {
        let mut slot = sound.clone();
        slot[at] ^= 0x10;
        assert!(Superblock::decode("superblock", 1, &slot).unwrap_err().is_corruption(), "byte {at}");
    }
}

#[test]
fn promise_6_a_slot_that_breaks_a_rule_is_corruption_though_its_checksum_is_right() {
    let cases: [(usize, &[u8], &str); 10] = [
        (0, b"X", "slot 1 of the superblock (magic)"),
        (12, &[2], "expected 0 or 1, found 2"),
        (13, &[60], "expected a state that can be, found 60, 3, 5"),
        (15, &[1], "reserved byte"),
        (16, &[0], "(generation): expected at least 1"),
        (48, &[128], "found 4, 3, 128"),
        (56, &[0; 8], "(epoch): expected at least 1"),
        (60, &[1], "expected less than 2^32"),
        (128, &[0xff, 0xff], "expected at most 2048, found 65535"),
        (137, &[0xff], "expected UTF-8"),
    ];
    for (at, bytes, text) in cases {
        let mut slot = superblock(7).encode();
        slot[at..at + bytes.len()].copy_from_slice(bytes);
        let error = Superblock::decode("superblock", 1, &sealed(slot)).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains(text), "{error}");
    }
}

#[test]
fn promise_6_the_longest_path_of_a_device_is_corruption_and_takes_no_memory() {
    let mut slot = superblock(7).encode();
    slot[128..136].fill(0xff);
    let slot = sealed(slot);
    let (error, largest) = SimMemory::largest(|| Superblock::decode("superblock", 1, &slot).unwrap_err());
    assert!(error.to_string().contains("expected at most 2048, found 18446744073709551615"), "{error}");
    assert!(largest < 1000, "{largest} bytes");
}

#[test]
fn a_newer_format_is_refused_even_beside_a_sound_slot() {
    let mut slot = superblock(7).encode();
    slot[8] = 2;
    let newer = sealed(slot);
    let old = superblock(6).encode();
    for (first, second) in [(&newer, &old), (&old, &newer)] {
        let error = newest(first, second).unwrap_err();
        assert!(matches!(error, Error::Newer { .. }));
        assert!(error.to_string().contains("format 2, and this program knows 1"), "{error}");
    }
}

#[test]
fn slots_of_two_stores_are_corruption() {
    let other = Superblock { store: StoreId([9; 16]), ..superblock(8) };
    let error = newest(&superblock(7).encode(), &other.encode()).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("found 090909"), "{error}");
}
