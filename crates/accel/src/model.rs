//! The model of all devices: the answer that each of them must give, to the bit.
//!
//! It is straightforward on purpose. It reads whole blocks by the table format's own reader, sorts all entries, thins
//! them out by the rules of `situ-compaction`'s stream, and writes blocks by the table format's own builder and
//! encoder. A test compares its blocks with those of the reference merge, [`situ_compaction::run`].
//!
//! 1. Decode: every entry of every block of every way. An entry outside the range does not count.
//! 2. Sort by user key, then trailer, newest first. Equal internal keys are an error.
//! 3. Keep: the newest version of each stripe; a tombstone only if older data may lie below, or an older version
//!    stays. Where nothing lies below, a value of the oldest stripe gets sequence number 0.
//! 4. Write blocks, beginning with kept entry `emit_from`.

use crate::abi::*;
use crate::answer::Answer;
use crate::task::DeviceTask;
use situ_storage::Error;
use situ_table::{
    BlockEncoder, Compression, EncodedBlock, KeyKind, KeyRef, LoneBlock, RawBlock, TableBuilder, TableOptions, Trailer,
    hash_key,
};

/// An entry on its way.
#[derive(Debug, Clone)]
struct Entry {
    key: Vec<u8>,
    trailer: Trailer,
    value: Vec<u8>,
    /// Where it came from, for errors.
    ordinal: u64,
}

/// The status and detail of a task that cannot be done.
#[derive(Debug, Clone, Copy)]
struct Refused(u32, u64);

/// Runs a task whose input blocks lie in `data`. A task that cannot be done has an answer that says so.
///
/// # Errors
/// There is no memory.
pub fn run_model(task: &DeviceTask, data: &[u8]) -> Result<Answer, Error> {
    match answer(task, data) {
        Ok(answer) => Ok(answer),
        Err(Failed::Refused(Refused(status, detail))) => {
            let mut header = AnswerHeader { status, detail, ..empty_header(task) };
            header.checksum = header.own_checksum();
            Ok(Answer { header, ..Answer::default() })
        }
        Err(Failed::Error(error)) => Err(error),
    }
}

enum Failed {
    Refused(Refused),
    Error(Error),
}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Failed {
        Failed::Refused(refused)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Error(error)
    }
}

fn empty_header(task: &DeviceTask) -> AnswerHeader {
    AnswerHeader { magic: ANSWER_MAGIC, version: VERSION, key_stride: task.key_stride(), ..AnswerHeader::default() }
}

fn answer(task: &DeviceTask, data: &[u8]) -> Result<Answer, Failed> {
    let mut answer = Answer { header: empty_header(task), ..Answer::default() };
    let entries = read(task, data)?;
    answer.header.entries_in = entries.len() as u64;
    let kept = keep(task, entries, &mut answer.header)?;
    answer.header.entries_kept = kept.len() as u64;
    write(task, &kept, &mut answer)?;
    answer.header.checksum = answer.header.own_checksum();
    Ok(answer)
}

/// Returns the entries of the task's range in order.
fn read(task: &DeviceTask, data: &[u8]) -> Result<Vec<Entry>, Failed> {
    let rules = &task.rules;
    let (mut entries, mut ordinal) = (Vec::new(), 0);
    let mut block_number = 0;
    for way in &task.ways {
        let mut last: Option<(Vec<u8>, Trailer)> = None;
        for block in way {
            let refused = Refused(STATUS_BLOCK, block_number);
            let stored = &data[block.at as usize..][..block.stored_bytes as usize];
            let (body, checksum) = stored.split_at(stored.len() - 4);
            if crc32c::crc32c(body).to_le_bytes() != *checksum {
                return Err(Refused(STATUS_CHECKSUM, block_number).into());
            }
            let mut lone = LoneBlock::decode(stored, format!("input block {block_number}")).map_err(|_| refused)?;
            if lone.raw().len() != block.raw_bytes as usize {
                return Err(refused.into());
            }
            while lone.valid() {
                let (key, value) = (lone.key(), lone.value());
                let kind = key.trailer.kind();
                let known = matches!(kind, Some(KeyKind::Put | KeyKind::Delete | KeyKind::ValueHandle));
                let (key_bytes, value_bytes) = (rules.key_bytes_max as usize, rules.value_bytes_max as usize);
                if !known || key.user.len() > key_bytes || value.len() > value_bytes {
                    return Err(Refused(STATUS_LIMIT, block_number).into());
                }
                if last.as_ref().is_some_and(|(user, trailer)| KeyRef::new(user, *trailer) >= key) {
                    return Err(Refused(STATUS_ORDER, ordinal).into());
                }
                last = Some((key.user.to_vec(), key.trailer));
                if rules.range.contains(key.user) {
                    entries.push(Entry {
                        key: key.user.to_vec(),
                        trailer: key.trailer,
                        value: value.to_vec(),
                        ordinal,
                    });
                }
                ordinal += 1;
                lone.advance().map_err(|_| refused)?;
            }
            block_number += 1;
        }
    }
    if ordinal > rules.entries_max {
        return Err(Refused(STATUS_SPACE, ordinal).into());
    }
    entries.sort_by(|a, b| KeyRef::new(&a.key, a.trailer).cmp(&KeyRef::new(&b.key, b.trailer)));
    let twice = entries.windows(2).find(|pair| pair[0].key == pair[1].key && pair[0].trailer == pair[1].trailer);
    match twice {
        Some(pair) => Err(Refused(STATUS_ORDER, pair[1].ordinal).into()),
        None => Ok(entries),
    }
}

/// Returns the entries that stay.
fn keep(task: &DeviceTask, entries: Vec<Entry>, header: &mut AnswerHeader) -> Result<Vec<Entry>, Failed> {
    let rules = &task.rules;
    let stripe_of = |entry: &Entry| rules.snapshots.partition_point(|snapshot| *snapshot < entry.trailer.sequence());
    let mut kept: Vec<Entry> = Vec::new();
    for versions in entries.chunk_by(|a, b| a.key == b.key) {
        let below = rules.below_all || rules.below.iter().any(|span| span.contains(&versions[0].key));
        let mut waiting: Vec<Entry> = Vec::new();
        let mut stripe_before = usize::MAX;
        for entry in versions {
            let stripe = stripe_of(entry);
            if stripe == stripe_before {
                header.dropped_hidden += 1;
                continue;
            }
            stripe_before = stripe;
            let mut entry = entry.clone();
            let is_tombstone = entry.trailer.kind() == Some(KeyKind::Delete);
            if is_tombstone && !below && stripe == 0 {
                header.dropped_tombstones += 1;
            } else if is_tombstone && !below {
                waiting.push(entry);
            } else {
                kept.append(&mut waiting);
                if !is_tombstone && !below && stripe == 0 && entry.trailer.sequence() > 0 {
                    entry.trailer = entry.trailer.of_any_age();
                    header.sequences_zeroed += 1;
                }
                kept.push(entry);
            }
        }
        header.dropped_tombstones += waiting.len() as u64;
    }
    Ok(kept)
}

/// Writes the blocks from `emit_from` on.
fn write(task: &DeviceTask, kept: &[Entry], answer: &mut Answer) -> Result<(), Failed> {
    let rules = &task.rules;
    let options = TableOptions {
        block_bytes: rules.block_bytes as usize,
        restart_interval: rules.restart_interval as usize,
        compression: if rules.lz4 { Compression::Lz4 } else { Compression::None },
        filter_bits_per_key: 0,
        ..TableOptions::default()
    };
    let mut builder = TableBuilder::new(&options, 0)?;
    let mut encoder = BlockEncoder::new(options.compression)?;
    let from = rules.emit_from.min(kept.len() as u64) as usize;
    let mut open = from..from;
    let mut raw_bytes = 0u64;
    for (i, entry) in kept.iter().enumerate().skip(from) {
        if let Some(raw) = builder.add(KeyRef::new(&entry.key, entry.trailer), &entry.value)? {
            raw_bytes += raw.bytes().len() as u64;
            report(task, kept, open.clone(), raw, &mut encoder, answer)?;
            open = i..i;
            if raw_bytes >= rules.emit_bytes_max {
                break;
            }
        }
        open.end = i + 1;
    }
    if !open.is_empty() && raw_bytes < rules.emit_bytes_max {
        let (raw, _) = builder.finish()?;
        if let Some(raw) = raw {
            report(task, kept, open.clone(), raw, &mut encoder, answer)?;
            open = open.end..open.end;
        }
    }
    answer.header.emitted_to = open.start as u64;
    answer.header.data_bytes = answer.data.len() as u64;
    answer.header.blocks = answer.reports.len() as u32;
    answer.header.hashes = answer.hashes.len() as u32;
    Ok(())
}

/// Appends a block and its report.
fn report(
    task: &DeviceTask,
    kept: &[Entry],
    range: std::ops::Range<usize>,
    raw: RawBlock,
    encoder: &mut BlockEncoder,
    answer: &mut Answer,
) -> Result<(), Failed> {
    let (raw_bytes, encoded): (usize, EncodedBlock) = (raw.bytes().len(), encoder.encode(raw)?);
    let stored = encoded.stored();
    let entries = &kept[range.clone()];
    let is_first_version = |i: usize| i == 0 || kept[i - 1].key != kept[i].key;
    let (first, last) = (&entries[0], &entries[entries.len() - 1]);
    let stride = task.key_stride() as usize;
    let first_key_at = answer.keys.len();
    for (i, key) in [&first.key, &last.key].into_iter().enumerate() {
        answer.keys.extend_from_slice(key);
        answer.keys.resize(first_key_at + (i + 1) * stride, 0);
    }
    let first_hash = answer.hashes.len() as u32;
    let new_keys = range.clone().filter(|i| is_first_version(*i)).map(|i| hash_key(&kept[i].key));
    answer.hashes.extend(new_keys);
    let sequences = || entries.iter().map(|entry| entry.trailer.sequence());
    let mut value_classes = [0u16; VALUE_CLASSES];
    for entry in entries {
        value_classes[(usize::BITS - entry.value.len().leading_zeros()) as usize] += 1;
    }
    let hashes: Vec<u8> = answer.hashes[first_hash as usize..].iter().flat_map(|hash| hash.to_le_bytes()).collect();
    let mut report = BlockReport {
        at: answer.data.len() as u64,
        stored_bytes: stored.len() as u32,
        raw_bytes: raw_bytes as u32,
        entries: entries.len() as u32,
        deletions: entries.iter().filter(|entry| entry.trailer.kind() == Some(KeyKind::Delete)).count() as u32,
        first_key_at: first_key_at as u32,
        last_key_at: (first_key_at + stride) as u32,
        first_key_bytes: first.key.len() as u16,
        last_key_bytes: last.key.len() as u16,
        flags: if is_first_version(range.start) { REPORT_NEW_USER_KEY } else { 0 },
        first_trailer: first.trailer.0,
        last_trailer: last.trailer.0,
        smallest_sequence: sequences().min().unwrap_or(0),
        largest_sequence: sequences().max().unwrap_or(0),
        first_entry: range.start as u64,
        first_hash,
        hashes: answer.hashes.len() as u32 - first_hash,
        key_bytes: entries.iter().map(|entry| entry.key.len() as u32 + 8).sum(),
        value_bytes: entries.iter().map(|entry| entry.value.len() as u32).sum(),
        longest_key: entries.iter().map(|entry| entry.key.len() as u32).max().unwrap_or(0),
        longest_value: entries.iter().map(|entry| entry.value.len() as u32).max().unwrap_or(0),
        checksum: stored.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)),
        keys_checksum: crc32c::crc32c(&answer.keys[first_key_at..]),
        hashes_checksum: crc32c::crc32c(&hashes),
        report_checksum: 0,
        value_classes,
    };
    report.report_checksum = report.own_checksum();
    answer.reports.push(report);
    answer.data.extend_from_slice(stored);
    Ok(())
}
