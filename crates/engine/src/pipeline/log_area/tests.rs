use super::*;

const MIB: u64 = 1 << 20;

fn debt(memory: f64, room: u64) -> Debt {
    Debt { memory, room, tables: 0.0 }
}

#[test]
fn an_area_is_used_in_whole_files_less_the_next_one() {
    assert_eq!(usable(200 * MIB, 65 * MIB, 64 * MIB), Some(2 * 65 * MIB));
    assert_eq!(usable(3 * 65 * MIB - 1, 65 * MIB, 64 * MIB), None, "room for two");
    assert_eq!(usable(3 * 65 * MIB, 65 * MIB, 64 * MIB), Some(2 * 65 * MIB));
    assert_eq!(usable(10 * 65 * MIB + 1, 65 * MIB, 65 * MIB), Some(9 * 65 * MIB));
    assert_eq!(usable(10_000 * MIB, 260 * MIB, 300 * MIB), None, "a memtable is longer than a file");
    assert_eq!(usable(0, 65 * MIB, 0), None);
}

#[test]
fn what_the_log_holds_counts_in_bytes_of_memory() {
    // Half-empty pages: 10 MiB of memtables have filled 30 of 40 MiB, so there is room for 10/3 MiB more.
    let mut found = Debt::default();
    found.note_log(10 * MIB, 30 * MIB, 40 * MIB);
    assert!((found.memory - 0.75).abs() < 1e-6, "{found:?}");
    assert_eq!(found.room, 10 * MIB * 40 / 30 - 10 * MIB);
    // A full area is the limit, and one that is more than full is beyond it.
    found.note_log(10 * MIB, 40 * MIB, 40 * MIB);
    assert_eq!((found.memory, found.room), (1.0, 0));
    found.note_log(10 * MIB, 50 * MIB, 40 * MIB);
    assert!(found.memory > 1.0 && found.room == 0, "{found:?}");
}

#[test]
fn the_fuller_of_memory_and_area_counts() {
    let mut found = debt(0.9, 7);
    found.note_log(10 * MIB, 30 * MIB, 40 * MIB);
    assert_eq!((found.memory, found.room), (0.9, 7));
    let mut found = debt(0.6, 7);
    found.note_log(10 * MIB, 30 * MIB, 40 * MIB);
    assert!(found.memory > 0.7 && found.room > MIB, "{found:?}");
    // Nothing that waits in memory is no debt, whatever the area holds for others.
    let mut found = Debt::default();
    found.note_log(0, 40 * MIB, 40 * MIB);
    assert_eq!(found.memory, 0.0);
    found.note_log(0, 0, 40 * MIB);
    assert_eq!(found.memory, 0.0);
}
