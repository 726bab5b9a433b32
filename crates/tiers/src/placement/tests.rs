use super::*;

const MIB: u64 = 1 << 20;

fn kept(keyspaces: &[(u64, u64, u64)], total: u64) -> u64 {
    let level0 = |(memtable_bytes, tables, on_fast): &(u64, u64, u64)| Level0 {
        memtable_bytes: *memtable_bytes,
        tables: *tables,
        on_fast: *on_fast,
    };
    room_for_flushes(keyspaces.iter().map(level0), total)
}

#[test]
fn flushes_have_room_for_what_level_0_may_still_take() {
    let total = 100 << 30;
    assert_eq!(kept(&[(64 * MIB, 4, 0)], total), 256 * MIB);
    assert_eq!(kept(&[(64 * MIB, 4, 100 * MIB)], total), 156 * MIB);
    // With more in it, it is compacted.
    assert_eq!(kept(&[(64 * MIB, 4, 300 * MIB)], total), 0);
    // What one keyspace has too much of is not taken from another.
    assert_eq!(kept(&[(64 * MIB, 4, 300 * MIB), (32 * MIB, 2, 0)], total), 64 * MIB);
    assert_eq!(kept(&[], total), 0);
}

#[test]
fn no_more_than_an_eighth_of_the_disk_is_kept() {
    assert_eq!(kept(&[(64 * MIB, 4, 0)], 1024 * MIB), 128 * MIB);
    assert_eq!(kept(&[(64 * MIB, 4, 0); 100], 8 << 30), 1 << 30);
    assert_eq!(kept(&[(u64::MAX, 4, 0), (u64::MAX, 4, 7)], 80), 10);
    assert_eq!(kept(&[(64 * MIB, 4, 0)], 0), 0);
}

fn table(bytes_max: u64, bytes_outstanding: u64) -> NewTable {
    NewTable { level: 4, bytes_max, bytes_outstanding, is_hot: false, choice: Choice::ByRules }
}

/// Outputs of compactions once left less at home than the store needs there for a deletion.
#[test]
fn tables_leave_the_home_room_for_small_files() {
    let home = |free: u64| Space { logical_total: 640 * MIB, logical_used: 640 * MIB - free, ..Space::default() };
    assert!(!is_room_only_on_fast(&table(7 * MIB, 0), home(17 * MIB), 100 * MIB));
    assert!(is_room_only_on_fast(&table(7 * MIB + 1, 0), home(17 * MIB), 100 * MIB));
    // Two tables that begin at the same time both see the space that one of them takes.
    assert!(is_room_only_on_fast(&table(4 * MIB, 8 * MIB), home(17 * MIB), 100 * MIB));
    // It has to be somewhere.
    assert!(!is_room_only_on_fast(&table(8 * MIB, 8 * MIB), home(17 * MIB), 8 * MIB));
    let large = |free: u64| Space { logical_total: 1 << 40, logical_used: (1 << 40) - free, ..Space::default() };
    assert!(is_room_only_on_fast(&table(64 * MIB, 0), large(319 * MIB), 1 << 30));
    assert!(!is_room_only_on_fast(&table(64 * MIB, 0), large(320 * MIB), 1 << 30));
    // A home that does not say what it has takes everything.
    assert!(!is_room_only_on_fast(&table(1, 1), Space::default(), 100 * MIB));
}
