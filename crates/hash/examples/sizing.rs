//! Prints how much overflows as buckets fill and grow: `docs/evidence/hash-sizing.md` reads this.
//!
//! ```sh
//! cargo run -p situ-hash --release --example sizing           # from 2^16 buckets to 2^17
//! cargo run -p situ-hash --release --example sizing -- 12     # from 2^12 to 2^13
//! ```
//!
//! Three tables of comma-separated values: rounds at loads of 0.35 to 0.9, by the formula and measured; bands for pairs of other
//! lengths; what a doubling costs.

use situ_hash::address::State;
use situ_hash::address::partial::PartialState;
use situ_hash::bucket::BUCKET_BYTES;
use situ_hash::entry::Entry;
use situ_hash::model::{Addressing, Filled, Scheme, band, capacity, overflow_share, worst_share};

const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 400;
const LOADS: [f64; 8] = [0.35, 0.40, 0.45, 0.50, 0.60, 0.70, 0.80, 0.90];
const SHARES: [f64; 3] = [0.005, 0.01, 0.02];

fn main() {
    let bits = std::env::args().nth(1).map_or(16, |bits| bits.parse().expect("log2 of the buckets to begin with"));
    println!("scheme,load,position,buckets,entries,overflow_formula,overflow_measured");
    let mut costs = vec!["scheme,load,steps,reads,writes,moved,returned,entries".to_owned()];
    for load in LOADS {
        costs.push(round(Scheme::Linear, State::new(bits), load));
        costs.push(round(Scheme::Partial, PartialState::new(1 << (bits - 1)), load));
        doubling(bits, load);
    }
    println!();
    costs.iter().for_each(|line| println!("{line}"));
    println!();
    bands();
}

fn entry_bytes(value_bytes: usize) -> usize {
    Entry::inline(&[0; KEY_BYTES], &vec![0; value_bytes]).encoded_bytes()
}

/// One round at a load that stays the same. Returns what it has cost.
fn round(scheme: Scheme, addressing: impl Addressing, load: f64) -> String {
    let mut filled = Filled::new(addressing, VALUE_BYTES);
    let buckets = filled.buckets();
    for tenth in 0..10 {
        while filled.buckets() < buckets + buckets * tenth / 10 {
            filled.fill(load);
            filled.grow();
        }
        filled.fill(load);
        print_point(scheme, load, &filled, (filled.buckets() - buckets) as f64 / buckets as f64);
    }
    while filled.buckets() < 2 * buckets {
        filled.fill(load);
        filled.grow();
    }
    let (cost, entries) = (filled.costs(), filled.entries());
    let (steps, reads, writes) = (cost.steps, cost.reads, cost.writes);
    format!("{},{load},{steps},{reads},{writes},{},{},{entries}", scheme.name(), cost.moved, cost.returned)
}

/// The same entries, in buckets that stay as many until all are split at once.
fn doubling(bits: u8, load: f64) {
    let mut filled = Filled::new(State::new(bits), VALUE_BYTES);
    for tenth in 0..10 {
        let position = f64::from(tenth) / 10.0;
        filled.fill(load * (1.0 + position));
        print_point(Scheme::Doubling, load, &filled, position);
    }
}

fn print_point<A: Addressing>(scheme: Scheme, load: f64, filled: &Filled<A>, position: f64) {
    let formula = overflow_share(scheme, load, position, filled.capacity());
    let (name, buckets, entries, measured) =
        (scheme.name(), filled.buckets(), filled.entries(), filled.overflow_share());
    println!("{name},{load},{position:.3},{buckets},{entries},{formula:.6},{measured:.6}");
}

/// For pairs of other lengths: the load at which the worst point of a round has a share of overflow, and the logical bytes of buckets
/// for each byte of keys and values.
fn bands() {
    println!("scheme,value_bytes,capacity,overflow_max,load,byte_load,logical_per_user_byte,worst_at_load_0.40");
    for scheme in Scheme::ALL {
        for value_bytes in [16, 64, 100, 200, 400, 700, 1000, 1300, 2000] {
            let capacity = capacity(entry_bytes(value_bytes));
            for share in SHARES {
                print_band(scheme, value_bytes, capacity, share);
            }
        }
    }
}

fn print_band(scheme: Scheme, value_bytes: usize, capacity: u32, share: f64) {
    // For doubling, the worst point is the end of the round, where buckets are twice as full as at its beginning.
    let load = band(scheme, share, capacity);
    let entries = load * f64::from(capacity);
    let user_bytes = entries * (KEY_BYTES + value_bytes) as f64;
    let byte_load = entries * entry_bytes(value_bytes) as f64 / situ_hash::bucket::USABLE_BYTES as f64;
    let logical = BUCKET_BYTES as f64 / user_bytes;
    let worst = worst_share(scheme, 0.40, capacity);
    let name = scheme.name();
    println!("{name},{value_bytes},{capacity},{share},{load:.4},{byte_load:.4},{logical:.3},{worst:.6}");
}
