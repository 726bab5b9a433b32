//! The load that buckets may have: the share of entries that overflow, by a formula and by filling real buckets.
//!
//! The *load* is entries / (buckets * capacity), where the capacity is how many entries of one length fit into a
//! bucket.
//!
//! 1. A hash spreads entries evenly, so the entries of a bucket follow a Poisson distribution. [`overflow_of`] sums it.
//! 2. A [`Scheme`] says which buckets are fuller than others at a position in a round ([`Scheme::parts`]).
//!    [`overflow_share`] adds them up.
//! 3. [`Filled`] does the same with real hashes and the real codec, and grows one bucket at a time. It counts what each
//!    new bucket costs.
//!
//! The store uses [`band`]: the load at which the worst point of a round has a given share. `examples/sizing.rs` prints
//! everything; `docs/evidence/hash-sizing.md` reads it.

use crate::StoreId;
use crate::format::address::partial::PartialState;
use crate::format::address::{State, hash_of};
use crate::format::bucket::{BUCKET_BYTES, BucketCodec, BucketWriter, Stamp, USABLE_BYTES};
use crate::format::entry::Entry;

/// Returns the number of entries of this length that fit into a bucket.
pub fn capacity(entry_bytes: usize) -> u32 {
    (USABLE_BYTES / entry_bytes) as u32
}

/// Returns the average number of entries of a bucket that overflow, if it gets `mean` on average and holds `capacity`.
/// It is the sum over all k of (k - capacity) times the probability of k.
pub fn overflow_of(mean: f64, capacity: u32) -> f64 {
    if mean <= 0.0 {
        return 0.0;
    }
    let capacity = f64::from(capacity);
    let (mut k, mut log_factorial, mut sum) = (0.0f64, 0.0, 0.0);
    loop {
        let probability = (k * mean.ln() - mean - log_factorial).exp();
        sum += (k - capacity).max(0.0) * probability;
        if k > capacity.max(mean) && probability * k < sum * 1e-12 {
            return sum;
        }
        k += 1.0;
        log_factorial += k.ln();
    }
}

/// A scheme by which a file of buckets grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Linear hashing: each bucket in turn is split in two.
    Linear,
    /// Two partial expansions: groups of two buckets in turn become groups of three, then these become groups of four.
    Partial,
    /// All buckets are split at once, at the end of the round.
    Doubling,
}

/// Some of the buckets: they are equally full.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// The number of these buckets, as a share of the buckets at the round's beginning.
    pub buckets: f64,
    /// The share of all entries that each of them gets, times the buckets at the round's beginning.
    pub weight: f64,
}

impl Scheme {
    /// All schemes.
    pub const ALL: [Scheme; 3] = [Scheme::Linear, Scheme::Partial, Scheme::Doubling];

    /// Returns a word for it.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Linear => "linear",
            Scheme::Partial => "partial",
            Scheme::Doubling => "doubling",
        }
    }

    /// Returns the parts of the buckets at a position of a round: 0 at its beginning, 1 when the file has doubled.
    pub fn parts(self, position: f64) -> Vec<Part> {
        let part = |buckets, weight| Part { buckets, weight };
        match self {
            Scheme::Linear => vec![part(1.0 - position, 1.0), part(2.0 * position, 0.5)],
            // Half as many groups as buckets. Each partial expansion takes half of the round.
            Scheme::Partial if position <= 0.5 => {
                let done = 2.0 * position;
                vec![part(1.0 - done, 1.0), part(1.5 * done, 2.0 / 3.0)]
            }
            Scheme::Partial => {
                let done = 2.0 * position - 1.0;
                vec![part(1.5 * (1.0 - done), 2.0 / 3.0), part(2.0 * done, 0.5)]
            }
            Scheme::Doubling if position < 1.0 => vec![part(1.0, 1.0)],
            Scheme::Doubling => vec![part(2.0, 0.5)],
        }
    }
}

/// Returns the share of entries that overflow at a position of a round, if the file grows so that `load` stays the
/// same. With [`Scheme::Doubling`], `load` is what linear hashing would have with as many entries.
pub fn overflow_share(scheme: Scheme, load: f64, position: f64, capacity: u32) -> f64 {
    let entries = load * f64::from(capacity) * (1.0 + position);
    let parts = scheme.parts(position);
    parts.iter().map(|part| part.buckets * overflow_of(entries * part.weight, capacity)).sum::<f64>() / entries
}

/// Returns the largest share in a round, looked at in 200 steps.
pub fn worst_share(scheme: Scheme, load: f64, capacity: u32) -> f64 {
    (0..200).map(|step| overflow_share(scheme, load, f64::from(step) / 200.0, capacity)).fold(0.0, f64::max)
}

/// Returns the highest load at which no point of a round has a larger share of overflow than `share_max`.
pub fn band(scheme: Scheme, share_max: f64, capacity: u32) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        let fits = worst_share(scheme, middle, capacity) <= share_max;
        (low, high) = if fits { (middle, high) } else { (low, middle) };
    }
    low
}

/// A way to find buckets, and to make one more.
pub trait Addressing {
    /// Returns the number of buckets.
    fn buckets(&self) -> u64;

    /// Returns the bucket of a hash.
    fn bucket_of(&self, hash: u64) -> u64;

    /// Adds a bucket. Returns the buckets that give entries to it.
    fn grow(&mut self) -> Vec<u64>;
}

impl Addressing for State {
    fn buckets(&self) -> u64 {
        State::buckets(self)
    }

    fn bucket_of(&self, hash: u64) -> u64 {
        State::bucket_of(self, hash)
    }

    fn grow(&mut self) -> Vec<u64> {
        let step = State::grow(self, 1).expect("a model has few buckets");
        *self = step.more;
        step.low.collect()
    }
}

impl Addressing for PartialState {
    fn buckets(&self) -> u64 {
        PartialState::buckets(self)
    }

    fn bucket_of(&self, hash: u64) -> u64 {
        PartialState::bucket_of(self, hash)
    }

    fn grow(&mut self) -> Vec<u64> {
        PartialState::grow(self).0
    }
}

/// The costs of growing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Costs {
    /// New buckets.
    pub steps: u64,
    /// Buckets that were read.
    pub reads: u64,
    /// Buckets that were written.
    pub writes: u64,
    /// Entries that went to new buckets.
    pub moved: u64,
    /// Entries that came back from the overflow.
    pub returned: u64,
}

/// The entries of a bucket, as numbers of keys.
#[derive(Debug, Clone, Default)]
struct Contents {
    inside: Vec<u64>,
    outside: Vec<u64>,
}

/// Buckets that are filled with pairs of equal length.
#[derive(Debug)]
pub struct Filled<A> {
    addressing: A,
    buckets: Vec<Contents>,
    entries: u64,
    overflow: u64,
    costs: Costs,
    value: Vec<u8>,
    codec: BucketCodec,
    block: Vec<u8>,
}

/// Returns key number `number`: 16 decimal digits.
fn key(number: u64) -> [u8; 16] {
    let text = format!("{number:016}");
    text.as_bytes().try_into().expect("16 digits")
}

fn hash(number: u64) -> u64 {
    hash_of(&key(number), 1)
}

impl<A: Addressing> Filled<A> {
    /// Makes a set of buckets without entries. Keys have 16 bytes, values `value_bytes`.
    pub fn new(addressing: A, value_bytes: usize) -> Filled<A> {
        let buckets = vec![Contents::default(); addressing.buckets() as usize];
        Filled {
            addressing,
            buckets,
            entries: 0,
            overflow: 0,
            costs: Costs::default(),
            value: vec![0x5a; value_bytes],
            codec: BucketCodec::new("model", StoreId([1; 16])),
            block: vec![0; BUCKET_BYTES],
        }
    }

    /// Returns the number of entries that fit into a bucket.
    pub fn capacity(&self) -> u32 {
        capacity(Entry::inline(&key(0), &self.value).encoded_bytes())
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> u64 {
        self.addressing.buckets()
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns the share of entries that lie in the overflow.
    pub fn overflow_share(&self) -> f64 {
        self.overflow as f64 / self.entries as f64
    }

    /// Returns the costs of growing so far.
    pub fn costs(&self) -> Costs {
        self.costs
    }

    /// Puts further entries in until `load` is reached.
    pub fn fill(&mut self, load: f64) {
        let wanted = (load * f64::from(self.capacity()) * self.buckets() as f64) as u64;
        while self.entries < wanted {
            let number = self.entries;
            let bucket = self.addressing.bucket_of(hash(number));
            let mut contents = std::mem::take(&mut self.buckets[bucket as usize]);
            contents.inside.push(number);
            self.overflow -= contents.outside.len() as u64;
            self.settle(bucket, contents);
            self.entries += 1;
        }
    }

    /// Adds one bucket.
    pub fn grow(&mut self) {
        let gives = self.addressing.grow();
        let new = self.buckets.len() as u64;
        self.buckets.push(Contents::default());
        self.costs.steps += 1;
        self.costs.reads += gives.len() as u64;
        let mut moved = Contents::default();
        for bucket in gives {
            let contents = std::mem::take(&mut self.buckets[bucket as usize]);
            let stays = |number: &u64| self.addressing.bucket_of(hash(*number)) == bucket;
            let (inside, inside_moved) = contents.inside.into_iter().partition(stays);
            let (outside, outside_moved): (Vec<u64>, Vec<u64>) = contents.outside.into_iter().partition(stays);
            self.overflow -= (outside.len() + outside_moved.len()) as u64;
            moved.inside.extend::<Vec<u64>>(inside_moved);
            moved.outside.extend(outside_moved);
            self.rewrite(bucket, Contents { inside, outside });
        }
        self.costs.moved += (moved.inside.len() + moved.outside.len()) as u64;
        self.rewrite(new, moved);
    }

    /// Writes a bucket in a step of growing.
    fn rewrite(&mut self, bucket: u64, contents: Contents) {
        let before = contents.outside.len() as u64;
        let after = self.settle(bucket, contents);
        self.costs.returned += before.saturating_sub(after);
        self.costs.writes += 1;
    }

    /// Writes a bucket with as many of the entries as fit; those that were inside go first. Returns how many overflow.
    fn settle(&mut self, bucket: u64, contents: Contents) -> u64 {
        let mut settled = Contents::default();
        let mut writer = BucketWriter::new(&mut self.block);
        for number in contents.inside.into_iter().chain(contents.outside) {
            let fits = writer.push(&Entry::inline(&key(number), &self.value));
            if fits { settled.inside.push(number) } else { settled.outside.push(number) }
        }
        writer.finish(&self.codec, bucket, &Stamp { epoch: 1, ..Stamp::default() });
        let read = self.codec.open(bucket, &self.block).expect("it was just written");
        assert_eq!(read.entries().count(), settled.inside.len(), "what was written is read");
        let outside = settled.outside.len() as u64;
        self.overflow += outside;
        self.buckets[bucket as usize] = settled;
        outside
    }
}

#[cfg(test)]
mod tests;
