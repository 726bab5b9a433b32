//! Cutting the keys of one task for several merge threads, by what open tables have in memory: nothing is read.
//!
//! 1. Each table's top index says about how many bytes lie between two keys. Each table is sampled inside the task's
//!    range.
//! 2. A walk over all samples by key adds up their bytes. It cuts where a sub-range has its share.
//!
//! A cut is a user key, so all versions of a key are in one sub-range. A key that weighs more than a share makes one
//! large sub-range. The merge threads take sub-ranges in order, so sizes need not be equal.

use crate::error::Result;
use crate::span::{KeyRange, are_all_of};
use crate::task::{TableInput, Task};

/// The number of samples of a sub-range in each run. It bounds how finely the bytes of the sub-range are known.
const SAMPLES_A_RUN: u64 = 4;

/// Up to here, from the sample before it in the same table, lie `bytes`.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Sample {
    user_key: Vec<u8>,
    bytes: u64,
}

/// Ranges that follow each other and are the task's range together, each of about `plain_bytes` of uncompressed
/// entries.
pub(super) fn sub_ranges(task: &Task, plain_bytes: u64) -> Result<Vec<KeyRange>> {
    let share = stored_share(task, plain_bytes)?;
    let step = (share / (SAMPLES_A_RUN * task.inputs.len().max(1) as u64)).max(1);
    let mut samples = Vec::new();
    for input in task.tables().filter(|input| task.rules.range.overlaps(&input.span)) {
        sample(input, &task.rules.range, step, &mut samples)?;
    }
    samples.sort_unstable();
    let ranges = cut(samples, &task.rules.range, share);
    assert!(are_all_of(&ranges, &task.rules.range), "{ranges:?} are not {:?}", task.rules.range);
    Ok(ranges)
}

/// Returns the number of stored bytes that `plain_bytes` plain bytes take in these tables.
fn stored_share(task: &Task, plain_bytes: u64) -> Result<u64> {
    let (mut plain, mut stored) = (0, 0);
    for input in task.tables() {
        let table = input.open()?;
        let properties = table.properties();
        plain += u128::from(properties.raw_key_bytes) + u128::from(properties.raw_value_bytes);
        stored += u128::from(properties.data_bytes);
    }
    let share = u128::from(plain_bytes) * stored / plain.max(1);
    Ok(u64::try_from(share).unwrap_or(u64::MAX).max(1))
}

fn sample(input: &TableInput, range: &KeyRange, step: u64, samples: &mut Vec<Sample>) -> Result<()> {
    let mut bytes = 0;
    for (user_key, more) in input.open()?.coarse_boundaries()? {
        if range.upper.as_ref().is_some_and(|upper| *upper <= user_key) {
            break;
        }
        bytes += more;
        if range.lower.as_ref().is_some_and(|lower| user_key <= *lower) {
            bytes = 0;
        } else if bytes >= step {
            samples.push(Sample { user_key, bytes: std::mem::take(&mut bytes) });
        }
    }
    Ok(())
}

fn cut(samples: Vec<Sample>, whole: &KeyRange, share: u64) -> Vec<KeyRange> {
    let mut ranges = Vec::new();
    let mut lower = whole.lower.clone();
    let mut bytes = 0;
    let mut rest = samples.into_iter().peekable();
    while let Some(sample) = rest.next() {
        bytes += sample.bytes;
        let no_other_key_follows = rest.peek().is_none_or(|next| next.user_key == sample.user_key);
        if no_other_key_follows || bytes < share || lower.as_ref().is_some_and(|lower| *lower >= sample.user_key) {
            continue;
        }
        bytes = 0;
        let upper = Some(sample.user_key);
        ranges.push(KeyRange { lower: std::mem::replace(&mut lower, upper.clone()), upper });
    }
    ranges.push(KeyRange { lower, upper: whole.upper.clone() });
    ranges
}
