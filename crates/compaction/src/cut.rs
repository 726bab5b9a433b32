//! Cutting a job into parts that can run side by side, in any proportion.
//!
//! 1. The tables' own index says where blocks end: "`n` bytes lie before this key". Each table is sampled at block
//!    boundaries so that a part of the wanted size has about [`SAMPLES_A_PART`] samples over all tables.
//! 2. The samples are sorted by key, and their bytes added up. Behind each key there may be a cut.
//! 3. Each cut goes where the bytes before it are nearest to the shares before it.
//! 4. A part without bytes is left out. A part of less than half of the least size joins the smaller one of its
//!    neighbours.
//!
//! All tables count, whatever level they lie in: a part's work is its bytes. A cut is a user key, the first of the next
//! part, so that no two versions of a key are parted. Keys that weigh more than a part (many versions of one
//! key, huge values) make fewer parts, never empty ones.
//!
//! **Cost**: reads the index blocks of the tables; at most a few thousand keys in memory.

use crate::span::{KeyRange, are_all_of};
use crate::task::Run;
use situ_storage::Result;

/// The number of samples of a part. It bounds how finely the bytes of the part are known.
const SAMPLES_A_PART: f64 = 32.0;
/// And how many samples there are at most, about, however small a share is.
const SAMPLES_MAX: f64 = 4096.0;

/// Up to here, from the sample before it in the same table, lie `bytes`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Sample {
    user_key: Vec<u8>,
    bytes: u64,
}

/// A part of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Which of the shares it is for.
    pub share: usize,
    /// Its keys.
    pub range: KeyRange,
    /// Bytes of input, about.
    pub bytes: u64,
}

/// Divides all keys into at most `max_tasks` ranges of about equal input bytes. None has much less than `min_bytes`:
/// less than half of it only where there is a single range. The ranges follow each other without a gap; the first and
/// the last are open.
///
/// # Errors
/// An index block cannot be read.
pub fn cut(inputs: &[Run], max_tasks: usize, min_bytes: u64) -> Result<Vec<KeyRange>> {
    let shares = vec![1.0; part_count(bytes_of(inputs), max_tasks, min_bytes)];
    Ok(cut_shares(inputs, &shares, min_bytes)?.into_iter().map(|part| part.range).collect())
}

/// Divides all keys into ranges whose input bytes are in proportion to `shares`, in the shares' order, as near as the
/// blocks allow. A share that is too small to have a range of its own has none, and neither has one of 0. No range has
/// less than half of `min_bytes`, unless it is the only one. The ranges follow each other without a gap; the first and
/// the last are open.
///
/// # Errors
/// An index block cannot be read.
pub fn cut_shares(inputs: &[Run], shares: &[f64], min_bytes: u64) -> Result<Vec<Cut>> {
    let shares = proportions(shares);
    let total = bytes_of(inputs);
    let wanted: Vec<f64> = shares.iter().copied().filter(|share| *share > 0.0).collect();
    if wanted.len() <= 1 {
        let share = shares.iter().position(|share| *share > 0.0).unwrap_or(0);
        return Ok(vec![Cut { share, range: KeyRange::all(), bytes: total }]);
    }
    let least = wanted.iter().copied().fold(1.0, f64::min);
    let step = (total as f64 * (least / SAMPLES_A_PART).max(1.0 / SAMPLES_MAX)).max(1.0);
    // The cast saturates.
    Ok(cut_samples(samples(inputs, step as u64)?, &shares, min_bytes))
}

fn bytes_of(inputs: &[Run]) -> u64 {
    inputs.iter().flatten().map(|input| input.bytes).fold(0, u64::saturating_add)
}

fn part_count(total_bytes: u64, max_tasks: usize, min_bytes: u64) -> usize {
    // Not more than `max_tasks`: the cast loses nothing.
    (total_bytes / min_bytes.max(1)).clamp(1, max_tasks.max(1) as u64) as usize
}

/// The shares of one. What is no share counts as none.
fn proportions(shares: &[f64]) -> Vec<f64> {
    let known: Vec<f64> = shares.iter().map(|share| if share.is_finite() { share.max(0.0) } else { 0.0 }).collect();
    let sum: f64 = known.iter().sum();
    known.into_iter().map(|share| if sum > 0.0 { share / sum } else { 0.0 }).collect()
}

/// The tables' block boundaries, about `step` bytes apart in each of them.
fn samples(inputs: &[Run], step: u64) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for input in inputs.iter().flatten() {
        let mut offset_before = 0;
        let table = input.open()?;
        for boundary in table.block_boundaries() {
            let boundary = boundary?;
            let bytes = boundary.offset.saturating_sub(offset_before);
            if bytes >= step {
                samples.push(Sample { user_key: boundary.user_key, bytes });
                offset_before = boundary.offset;
            }
        }
    }
    Ok(samples)
}

/// A key behind which there may be a cut, with the bytes before it.
struct Place {
    user_key: Vec<u8>,
    before: u64,
}

/// The keys of all samples, each once, and all bytes. Behind the last key there is nothing.
fn places(mut samples: Vec<Sample>) -> Places {
    samples.sort_unstable();
    let mut places: Vec<Place> = Vec::new();
    let mut before: u64 = 0;
    for Sample { user_key, bytes } in samples {
        before = before.saturating_add(bytes);
        match places.last_mut().filter(|place| place.user_key == user_key) {
            Some(place) => place.before = before,
            None => places.push(Place { user_key, before }),
        }
    }
    places.pop();
    Places { places, total: before }
}

/// The possible places of cuts: the n-th one has n places before it. The first is before all keys, the last behind
/// them.
struct Places {
    places: Vec<Place>,
    total: u64,
}

impl Places {
    fn last(&self) -> usize {
        self.places.len() + 1
    }

    fn bytes_before(&self, cut: usize) -> u64 {
        match cut.checked_sub(1) {
            None => 0,
            Some(at) => self.places.get(at).map_or(self.total, |place| place.before),
        }
    }

    /// The cut before which the bytes are nearest to `due`.
    fn nearest(&self, due: f64) -> usize {
        let behind = 1 + self.places.partition_point(|place| (place.before as f64) < due);
        let distance = |cut: usize| (self.bytes_before(cut) as f64 - due).abs();
        if distance(behind - 1) <= distance(behind) { behind - 1 } else { behind }
    }
}

/// A part, up to a cut.
struct Stretch {
    share: usize,
    end: usize,
    bytes: u64,
}

fn cut_samples(samples: Vec<Sample>, shares: &[f64], min_bytes: u64) -> Vec<Cut> {
    let places = places(samples);
    let mut stretches: Vec<Stretch> = Vec::new();
    let (mut sum, mut begin) = (0.0, 0);
    let last = shares.iter().rposition(|share| *share > 0.0).unwrap_or(0);
    for (share, size) in shares.iter().enumerate().filter(|(_, size)| **size > 0.0) {
        sum += size;
        let end = if share == last { places.last() } else { places.nearest(sum * places.total as f64) };
        if end > begin {
            stretches.push(Stretch { share, end, bytes: places.bytes_before(end) - places.bytes_before(begin) });
            begin = end;
        }
    }
    if stretches.is_empty() {
        stretches.push(Stretch { share: last, end: places.last(), bytes: places.total });
    }
    join_small(&mut stretches, min_bytes.max(1));
    let mut lower: Option<Vec<u8>> = None;
    let part = |Stretch { share, end, bytes }| {
        let upper = places.places.get(end - 1).map(|place| place.user_key.clone());
        Cut { share, range: KeyRange { lower: std::mem::replace(&mut lower, upper.clone()), upper }, bytes }
    };
    let parts: Vec<Cut> = stretches.into_iter().map(part).collect();
    assert!(are_all_of(parts.iter().map(|part| &part.range), &KeyRange::all()), "{parts:?} are not all keys");
    parts
}

/// Joins parts that are too small with the smaller one of their neighbours. The larger one of the two keeps its share.
fn join_small(stretches: &mut Vec<Stretch>, min_bytes: u64) {
    while stretches.len() > 1 {
        let Some(at) = (0..stretches.len()).min_by_key(|at| stretches[*at].bytes) else { return };
        if stretches[at].bytes >= min_bytes.div_ceil(2) {
            return;
        }
        let bytes = |at: usize| stretches.get(at).map_or(u64::MAX, |stretch| stretch.bytes);
        let left = at.checked_sub(1).filter(|left| bytes(*left) <= bytes(at + 1)).unwrap_or(at);
        let right = stretches.remove(left + 1);
        let joined = &mut stretches[left];
        joined.share = if right.bytes > joined.bytes { right.share } else { joined.share };
        (joined.end, joined.bytes) = (right.end, joined.bytes + right.bytes);
    }
}

#[cfg(test)]
mod tests;
