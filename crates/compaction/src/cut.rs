//! Cutting a job into tasks that can run side by side.
//!
//! 1. The tables' own index says where blocks end: "so many bytes lie before this key". Each table is sampled at
//!    block boundaries so that a part of the wanted size has about [`SAMPLES_A_PART`] samples over all tables.
//! 2. The samples are sorted by key. A walk over them adds up bytes and cuts when a part has its share.
//!
//! All tables count, whatever level they lie in: a part's work is its bytes. A cut is a user key, the first of the next
//! part, so that no two versions of a key are parted. Keys that weigh more than a part (many versions of one
//! key, huge values) make fewer parts, never empty ones.
//!
//! **Cost**: reads the index blocks of the tables; a few dozen keys a part in memory.

use crate::span::KeyRange;
use crate::task::Run;
use situ_storage::Result;

/// How finely the bytes of a part are known.
const SAMPLES_A_PART: u64 = 32;

/// Up to here, from the sample before it in the same table, lie `bytes`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Sample {
    user_key: Vec<u8>,
    bytes: u64,
}

/// Divides all keys into at most `max_tasks` ranges of about equal input bytes, none with much less than `min_bytes`
/// (less than half of it only where a single block is larger). The ranges follow each other without a gap; the first
/// and the last are open.
///
/// # Errors
/// An index block cannot be read.
pub fn cut(inputs: &[Run], max_tasks: usize, min_bytes: u64) -> Result<Vec<KeyRange>> {
    let total: u64 = inputs.iter().flatten().map(|input| input.bytes).sum();
    let parts = part_count(total, max_tasks, min_bytes);
    if parts == 1 {
        return Ok(vec![KeyRange::all()]);
    }
    let step = (total / (parts * SAMPLES_A_PART)).max(1);
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
    Ok(cut_samples(samples, parts))
}

fn part_count(total_bytes: u64, max_tasks: usize, min_bytes: u64) -> u64 {
    (total_bytes / min_bytes.max(1)).clamp(1, max_tasks.max(1) as u64)
}

fn cut_samples(mut samples: Vec<Sample>, parts: u64) -> Vec<KeyRange> {
    samples.sort_unstable();
    let total: u64 = samples.iter().map(|sample| sample.bytes).sum();
    let mut ranges = Vec::new();
    let mut lower: Option<Vec<u8>> = None;
    let mut before = 0;
    let mut rest = samples.into_iter().peekable();
    while let Some(sample) = rest.next() {
        before += sample.bytes;
        // The next sample with the same key belongs to the same side; behind the last one there is nothing.
        if rest.peek().is_none_or(|next| next.user_key == sample.user_key) {
            continue;
        }
        let due = total / parts * (ranges.len() as u64 + 1);
        if before >= due && ranges.len() as u64 + 1 < parts {
            let upper = Some(sample.user_key);
            ranges.push(KeyRange { lower: std::mem::replace(&mut lower, upper.clone()), upper });
        }
    }
    ranges.push(KeyRange { lower, upper: None });
    ranges
}

#[cfg(test)]
mod tests;
