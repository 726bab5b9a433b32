//! Promotion: tables that are read often and seldom written find their way to the fast disk.
//!
//! The pointer (`rules.rs`) looks at what is written. Data that is no longer written sinks to the deepest
//! levels and stays on the capacity disk, however often it is read. So each table counts the reads that reached its
//! disk. In addition to the pointer's levels, the hottest tables of deeper ones are copied up while there is room, a
//! few at a time. The outputs of a compaction of hot tables are begun on the fast disk at once, and inherit their heat.
//!
//! # Rules
//! Every [`EVERY_S`] seconds in which there was I/O, by reads a second for each MiB (*density*), smoothed over half a
//! minute:
//! 1. If less than a tenth of the fast disk is free, the coldest promoted tables that are not worth their place go
//!    home.
//! 2. The hottest tables at home go up, if they are worth it. In [`PAYS_AFTER_S`] seconds as many blocks are read as
//!    the table has, so that the copy has cost less than it saves, and at least one block is read in a second. A fifth
//!    of the disk stays free for the levels that belong there.
//! 3. If there is no room, a promoted table that is four times colder makes place first.
//!
//! While the pointer has just gone down because the fast disk was at its limit, there are no rounds.
//!
//! One round copies [`ROUND_BYTES`] at most, so promotion costs some 6 MiB/s of both disks at the worst.
//!
//! # Why whole tables
//! A table is a range of keys. Single hot keys, however scattered, are in the block cache. The reads that often reach
//! the disk in spite of it are of ranges too large for memory: recent users, one tenant, an index that is scanned. A
//! table that is moved takes its index and filter along, serves scans as well as lookups, and survives a restart. It
//! needs no second index in memory and no other format. Rejected: a cache of blocks on the fast disk. It takes some 40
//! bytes of memory for each 4 KiB, is empty after each restart, and is written to for every block that is read a second
//! time. Also rejected: single records, as HotRAP does, which writes them again with the upper levels' compactions.
//! This does not help with hot keys that are spread evenly over a store much larger than the fast disk. The two
//! rejected ones would.

use std::cmp::Ordering::Equal;

/// Time between two rounds.
pub(crate) const EVERY_S: u64 = 10;
/// A copy pays if the reads of this time would have read the table once.
const PAYS_AFTER_S: f64 = 300.0;
/// Tables that are read less often than this are not worth a thought, however small they are.
const READS_PER_S_MIN: f64 = 1.0;
/// The bytes that a read is assumed to read.
const BLOCK_BYTES: f64 = 4096.0;
/// Bytes copied in a round.
pub(crate) const ROUND_BYTES: u64 = 64 << 20;
/// The share of the fast disk that promoted tables leave free.
const FREE_SHARE: f64 = 0.2;
/// Below this share, cold ones are sent home.
const TIGHT_SHARE: f64 = 0.1;
/// The factor by which a table that makes place is colder.
const COLDER: f64 = 4.0;

/// A table as promotion sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) bytes: u64,
    /// Reads a second that reach its disk.
    pub(crate) reads_per_s: f64,
    pub(crate) on_fast: bool,
    /// It is of a level whose new tables go to the fast disk: it is not promotion's to move away.
    pub(crate) belongs_on_fast: bool,
}

/// Free room on the fast disk for tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreeRoom {
    pub(crate) total: u64,
    pub(crate) free: u64,
}

impl FreeRoom {
    /// Returns true if `bytes` more leave enough; 0 more always do.
    pub(crate) fn takes_more(&self, bytes: u64) -> bool {
        bytes == 0 || self.takes(bytes)
    }

    /// Returns true if a promoted table leaves enough.
    pub(crate) fn takes(&self, bytes: u64) -> bool {
        self.free.saturating_sub(bytes) as f64 >= FREE_SHARE * self.total as f64 && self.free > bytes
    }
}

/// A table to copy, by its place in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    Up(usize),
    Down(usize),
}

/// Reads a second for each byte.
fn density(table: &Candidate) -> f64 {
    table.reads_per_s / table.bytes.max(1) as f64
}

/// Returns true if `reads_per_s` reads a second are worth a copy of `bytes` bytes.
pub(crate) fn is_hot(reads_per_s: f64, bytes: u64) -> bool {
    reads_per_s >= READS_PER_S_MIN && reads_per_s * BLOCK_BYTES * PAYS_AFTER_S >= bytes.max(1) as f64
}

/// Returns the moves of one round, in order.
pub(crate) fn choose(tables: &[Candidate], mut room: FreeRoom) -> Vec<Move> {
    let by_density = |a: &usize, b: &usize| density(&tables[*a]).partial_cmp(&density(&tables[*b])).unwrap_or(Equal);
    let sorted = |wanted: fn(&Candidate) -> bool| {
        let mut places: Vec<usize> = (0..tables.len()).filter(|at| wanted(&tables[*at])).collect();
        places.sort_by(by_density);
        places
    };
    // The coldest first, and the hottest last.
    let mut promoted = sorted(|table| table.on_fast && !table.belongs_on_fast).into_iter().peekable();
    let mut hottest = sorted(|table| !table.on_fast && is_hot(table.reads_per_s, table.bytes));
    let mut left = ROUND_BYTES;
    let mut moves = Vec::new();
    // One table at least, however large.
    let may = |moves: &Vec<Move>, left: u64, bytes: u64| moves.is_empty() || bytes <= left;
    while let Some(at) = promoted.peek().copied() {
        let Candidate { bytes, reads_per_s, .. } = tables[at];
        let tight = (room.free as f64) < TIGHT_SHARE * room.total as f64;
        // What is nearly worth its place keeps it.
        if !tight || is_hot(reads_per_s * COLDER, bytes) || !may(&moves, left, bytes) {
            break;
        }
        promoted.next();
        moves.push(Move::Down(at));
        (room.free, left) = (room.free + bytes, left.saturating_sub(bytes));
    }
    while let Some(at) = hottest.pop() {
        let bytes = tables[at].bytes;
        while !room.takes(bytes)
            && let Some(cold) = promoted.peek().copied()
            && density(&tables[cold]) * COLDER <= density(&tables[at])
            && may(&moves, left, tables[cold].bytes)
        {
            promoted.next();
            moves.push(Move::Down(cold));
            (room.free, left) = (room.free + tables[cold].bytes, left.saturating_sub(tables[cold].bytes));
        }
        if !room.takes(bytes) || !may(&moves, left, bytes) {
            break;
        }
        moves.push(Move::Up(at));
        (room.free, left) = (room.free - bytes, left.saturating_sub(bytes));
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn table(mib: u64, reads_per_s: f64, on_fast: bool, belongs_on_fast: bool) -> Candidate {
        Candidate { bytes: mib * MIB, reads_per_s, on_fast, belongs_on_fast }
    }

    fn room(total: u64, free: u64) -> FreeRoom {
        FreeRoom { total: total * MIB, free: free * MIB }
    }

    #[test]
    fn the_hottest_go_up_while_there_is_room_and_only_what_pays() {
        let tables = [
            table(16, 1.0, false, false),
            table(16, 500.0, false, false),
            table(16, 100.0, false, false),
            table(16, 900.0, true, true),
            table(16, 50.0, false, false),
        ];
        assert_eq!(choose(&tables, room(1000, 900)), [Move::Up(1), Move::Up(2), Move::Up(4)]);
        // A fifth stays free.
        assert_eq!(choose(&tables, room(1000, 220)), [Move::Up(1)]);
        assert_eq!(choose(&tables, room(1000, 210)), []);
        // 64 MiB a round, or one table.
        let large = [table(64, 5000.0, false, false), table(64, 4000.0, false, false)];
        assert_eq!(choose(&large, room(1000, 900)), [Move::Up(0)]);
        assert_eq!(choose(&[table(200, 5000.0, false, false)], room(1000, 900)), [Move::Up(0)]);
    }

    #[test]
    fn what_has_cooled_makes_place_for_what_is_hot() {
        let tables = [
            table(16, 20.0, true, false),
            table(16, 400.0, true, false),
            table(16, 500.0, false, false),
            table(16, 10.0, true, true),
        ];
        assert_eq!(choose(&tables, room(1000, 210)), [Move::Down(0), Move::Up(2)]);
        // Nearly as hot: it stays, or the two would change places for ever.
        assert_eq!(choose(&tables[1..3], room(1000, 210)), []);
        // The levels that belong there need the room.
        assert_eq!(
            choose(&[table(16, 1.0, true, false), table(16, 400.0, true, false)], room(1000, 50)),
            [Move::Down(0)]
        );
        assert_eq!(choose(&[table(16, 1.0, true, false)], room(1000, 150)), []);
    }

    /// Round after round over the same heats comes to rest.
    #[test]
    fn it_comes_to_rest() {
        situ_sim::for_each_seed(1, 200, |seed| {
            let mut rng = situ_sim::Rng::new(seed);
            let mut tables: Vec<Candidate> = (0..1 + rng.below(40))
                .map(|_| table(1 + rng.below(64), rng.below(2000) as f64, rng.chance(0.3), rng.chance(0.2)))
                .collect();
            let total = 200 + rng.below(1000);
            let mut free = rng.below(total) * MIB;
            for round in 0.. {
                assert!(round < 200, "it never rests");
                let moves = choose(&tables, FreeRoom { total: total * MIB, free });
                if moves.is_empty() {
                    break;
                }
                for step in moves {
                    match step {
                        Move::Up(at) => {
                            assert!(!tables[at].on_fast);
                            free = free.checked_sub(tables[at].bytes).unwrap();
                            tables[at].on_fast = true;
                        }
                        Move::Down(at) => {
                            assert!(tables[at].on_fast && !tables[at].belongs_on_fast);
                            free += tables[at].bytes;
                            tables[at].on_fast = false;
                        }
                    }
                }
            }
        });
    }
}
