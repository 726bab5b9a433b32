//! Answers laid out as the vendor's plugin has them; no drive of this kind was at hand.

use super::*;

/// A drive of 3.84 TB with 1 TB free, after 100 TB of writes by the host and 60 TB by the flash.
struct Answers {
    extended: Vec<u8>,
    query: Vec<u8>,
    additional: Vec<u8>,
    health: Vec<u8>,
}

const TOTAL_SECTORS: u64 = 7_501_476_528;
const FREE_SECTORS: u64 = 1_953_525_168;

fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
    into[at..at + bytes.len()].copy_from_slice(bytes);
}

fn answers(unit: u64) -> Answers {
    let mut extended = vec![0xff; EXTENDED_HEALTH_LOG_BYTES];
    put(&mut extended, 36, &[0; 4]);
    put(&mut extended, 80, &TOTAL_SECTORS.to_le_bytes());
    put(&mut extended, 88, &FREE_SECTORS.to_le_bytes());
    let mut query = vec![0xff; QUERY_BYTES];
    put(&mut query, 0, &FREE_SECTORS.to_le_bytes());
    put(&mut query, 16, &TOTAL_SECTORS.to_le_bytes());
    let mut additional = vec![0xff; ITEMS * ITEM_BYTES];
    put(&mut additional, 11 * 12 + 5, &(60_000_000_000_000 / unit).to_le_bytes()[..6]);
    put(&mut additional, 12 * 12 + 5, &(100_000_000_000_000 / unit).to_le_bytes()[..6]);
    let mut health = vec![0; HEALTH_LOG_BYTES];
    put(&mut health, 48, &(100_000_000_000_000_u128 / 512_000).to_le_bytes());
    Answers { extended, query, additional, health }
}

#[test]
fn both_answers_tell_the_physical_capacity() {
    let answers = answers(512);
    let expected = Some(Capacity { total: TOTAL_SECTORS * 512, free: FREE_SECTORS * 512 });
    assert_eq!(Capacity::parse(&answers.extended, TOTAL_CAPACITY, FREE_CAPACITY), expected);
    assert_eq!(Capacity::parse(&answers.query, QUERIED_TOTAL, QUERIED_FREE), expected);
}

#[test]
fn a_capacity_that_cannot_be_true_is_none() {
    let parse = |total: u64, free: u64| {
        let mut extended = answers(512).extended;
        put(&mut extended, 80, &total.to_le_bytes());
        put(&mut extended, 88, &free.to_le_bytes());
        Capacity::parse(&extended, TOTAL_CAPACITY, FREE_CAPACITY)
    };
    assert!(parse(10, 10).is_some());
    for (total, free) in [(0, 0), (10, 11), (u64::MAX, 0), (1 << 55, 0)] {
        assert_eq!(parse(total, free), None, "{total} {free}");
    }
    let extended = answers(512).extended;
    for length in 0..96 {
        assert_eq!(Capacity::parse(&extended[..length], TOTAL_CAPACITY, FREE_CAPACITY), None);
    }
}

#[test]
fn what_the_flash_has_written_is_known_if_the_logs_agree_on_a_unit() {
    for unit in [512, 4096, 1 << 20, 32 << 20] {
        let answers = answers(unit);
        let written = flash_written(&answers.additional, &answers.health).unwrap();
        assert!(written.abs_diff(60_000_000_000_000) <= unit, "{unit}: {written}");
    }
    let odd = answers(1000);
    assert_eq!(flash_written(&odd.additional, &odd.health), None, "a unit that is not known");
    let mut fresh = answers(512);
    fresh.health[48..64].fill(0);
    put(&mut fresh.additional, 12 * 12 + 5, &[0; 6]);
    assert_eq!(flash_written(&fresh.additional, &fresh.health), None, "nothing to compare yet");
    let whole = answers(512);
    for length in 0..12 * 12 + 11 {
        assert_eq!(flash_written(&whole.additional[..length], &whole.health), None);
    }
    assert_eq!(flash_written(&whole.additional, &whole.health[..60]), None);
    assert_eq!(flash_written(&[0xff; 276], &[0xff; 512]), None, "a sum that is too long");
}

#[test]
fn the_drive_s_own_warning_is_passed_on() {
    let mut extended = answers(512).extended;
    assert_eq!(warning(&extended), None);
    extended[36] = 0x02;
    assert!(warning(&extended).unwrap().contains("physical capacity is exceeded"));
    extended[36] = 0x04;
    assert!(warning(&extended).unwrap().contains("locked itself"));
    extended[36] = 0x01;
    assert_eq!(warning(&extended), None, "a warning of something else");
    assert_eq!(warning(&extended[..30]), None);
}
