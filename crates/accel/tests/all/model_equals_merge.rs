//! The model of all devices gives exactly the data blocks that the host's own compaction of the same inputs writes.

use crate::tasks;
use situ_accel::{Answer, DeviceTask, NotPrepared, Prepared, run_model};
use situ_compaction::testing::{MemoryHost, with_seeds};
use situ_compaction::{Task, TaskOutput, run};
use situ_table::{KeyRef, hash_key};

/// The data blocks of an output, as stored, by table.
fn blocks(host: &MemoryHost, output: &TaskOutput) -> Vec<Vec<Vec<u8>>> {
    let of_table = |number: u64| {
        let (table, bytes) = (host.open(number), host.bytes(number));
        let block = |at: u64, length: u64| bytes[at as usize..(at + length) as usize].to_vec();
        let boundaries = table.block_boundaries().map(|boundary| boundary.unwrap().block);
        boundaries.map(|handle| block(handle.offset, handle.stored_bytes())).collect()
    };
    output.tables.iter().map(|table| of_table(table.number)).collect()
}

pub(crate) fn prepare(task: &Task) -> Result<(DeviceTask, Vec<u8>), NotPrepared> {
    let mut prepared = Prepared::new(task)?;
    let mut data = vec![0; prepared.data_bytes() as usize];
    prepared.load(&mut data)?;
    Ok((prepared.finish()?, data))
}

fn of_answer(answer: &Answer) -> Vec<Vec<u8>> {
    (0..answer.reports.len()).map(|i| answer.block(i).to_vec()).collect()
}

/// The reports agree with the output's tables.
fn assert_reports(answer: &Answer, host: &MemoryHost, output: &TaskOutput) {
    let contents = host.contents(output);
    let sum = |of: fn(&situ_accel::abi::BlockReport) -> u64| answer.reports.iter().map(of).sum::<u64>();
    assert_eq!(sum(|report| u64::from(report.entries)), contents.entries.len() as u64);
    let mut entries = contents.entries.iter();
    for (i, report) in answer.reports.iter().enumerate() {
        let of_block: Vec<_> = entries.by_ref().take(report.entries as usize).collect();
        let (first, last) = answer.keys_of(i);
        assert_eq!((first, report.first_trailer), (of_block[0].key.as_slice(), of_block[0].trailer.0));
        let end = of_block[of_block.len() - 1];
        assert_eq!((last, report.last_trailer), (end.key.as_slice(), end.trailer.0));
        let sequences: Vec<u64> = of_block.iter().map(|entry| entry.trailer.sequence()).collect();
        assert_eq!(Some(report.smallest_sequence), sequences.iter().min().copied());
        assert_eq!(Some(report.largest_sequence), sequences.iter().max().copied());
        assert_eq!(report.value_bytes as usize, of_block.iter().map(|entry| entry.value.len()).sum::<usize>());
    }
    let mut users: Vec<&[u8]> = contents.entries.iter().map(|entry| entry.key.as_slice()).collect();
    users.dedup();
    assert_eq!(answer.hashes, users.iter().map(|user| hash_key(user)).collect::<Vec<_>>());
    let properties = output.tables.first().map(|table| &table.summary.properties);
    let Some(properties) = properties.filter(|_| output.tables.len() == 1) else { return };
    assert_eq!(sum(|report| u64::from(report.deletions)), properties.deletions);
    assert_eq!(sum(|report| u64::from(report.key_bytes)), properties.raw_key_bytes);
    assert_eq!(sum(|report| u64::from(report.value_bytes)), properties.raw_value_bytes);
    assert_eq!(answer.reports.iter().map(|report| report.longest_key).max(), properties.longest_key_bytes);
    assert_eq!(answer.reports.iter().map(|report| report.longest_value).max(), properties.longest_value_bytes);
}

#[test]
fn random_tasks_give_the_blocks_of_the_reference_merge() {
    with_seeds(300, |rng| {
        let host = MemoryHost::new();
        let task = tasks::random(rng, &host, 2000);
        let (device, data) = prepare(&task).unwrap();
        assert!(DeviceTask::decode(&device.encode()).as_ref() == Ok(&device), "a task survives its bytes");
        let answer = run_model(&device, &data).unwrap();
        let output = run(&task, &host).unwrap();
        assert_eq!(answer.header.status, 0);
        let stats = output.stats;
        let header = &answer.header;
        assert_eq!((header.entries_in, header.entries_kept), (stats.entries_in, stats.entries_out));
        assert_eq!(header.dropped_hidden, stats.dropped_hidden);
        assert_eq!(header.dropped_tombstones, stats.dropped_tombstones);
        assert_eq!(header.sequences_zeroed, stats.sequences_zeroed);
        assert!(blocks(&host, &output).concat() == of_answer(&answer), "other blocks");
        assert_reports(&answer, &host, &output);
        assert_eq!(answer.check(), Ok(()));
        let report = answer.encode_report();
        assert!(Answer::decode(&report, answer.data.clone()).as_ref() == Ok(&answer), "an answer survives its bytes");
    });
}

/// The host cuts files; a device goes on from the entry where it cut.
#[test]
fn blocks_behind_a_file_cut_are_had_by_going_on_from_its_entry() {
    with_seeds(100, |rng| {
        let host = MemoryHost::new();
        let mut task = tasks::random(rng, &host, 2000);
        task.rules.output.target_file_bytes = 2000 + rng.below(20_000);
        let (mut device, data) = prepare(&task).unwrap();
        let output = run(&task, &host).unwrap();
        for (table, blocks) in output.tables.iter().zip(blocks(&host, &output)) {
            let answer = run_model(&device, &data).unwrap();
            let raw: u64 = answer.reports.iter().take(blocks.len()).map(|report| u64::from(report.raw_bytes)).sum();
            // All but the file's last block, which the cut made shorter, are there.
            let whole = blocks.len() - 1;
            assert_eq!(of_answer(&answer)[..whole], blocks[..whole]);
            device.rules.emit_bytes_max = raw;
            let limited = run_model(&device, &data).unwrap();
            assert_eq!(of_answer(&limited), of_answer(&answer)[..blocks.len()]);
            device.rules.emit_bytes_max = u64::MAX;
            device.rules.emit_from += table.summary.properties.entries;
        }
        let rest = run_model(&device, &data).unwrap();
        assert_eq!(rest.reports.len(), 0);
        assert_eq!(rest.header.emitted_to, output.stats.entries_out);
    });
}

#[test]
fn damage_and_disorder_are_answers_and_not_panics() {
    with_seeds(60, |rng| {
        let host = MemoryHost::new();
        let task = tasks::random(rng, &host, 400);
        let (device, mut data) = prepare(&task).unwrap();
        if data.is_empty() {
            return;
        }
        let at = rng.index(data.len());
        data[at] ^= 1 << rng.below(8);
        let answer = run_model(&device, &data).unwrap();
        assert_eq!(answer.header.status, situ_accel::abi::STATUS_CHECKSUM);
        assert!(answer.data.is_empty() && answer.reports.is_empty());
    });
}

/// A bit that a transfer has changed shows, wherever it is.
#[test]
fn a_bit_flipped_in_an_answer_is_found() {
    with_seeds(60, |rng| {
        let host = MemoryHost::new();
        let (device, data) = prepare(&tasks::random(rng, &host, 400)).unwrap();
        let answer = run_model(&device, &data).unwrap();
        if answer.reports.is_empty() {
            return;
        }
        let mut report = answer.encode_report();
        let mut blocks = answer.data.clone();
        let at = rng.index(report.len() + blocks.len());
        let before = report.len();
        match report.get_mut(at) {
            Some(byte) => *byte ^= 1 << rng.below(8),
            None => blocks[at - before] ^= 1 << rng.below(8),
        }
        assert!(Answer::decode(&report, blocks).and_then(|answer| answer.check()).is_err(), "byte {at}");
    });
}

#[test]
fn bytes_that_are_no_task_are_refused() {
    with_seeds(60, |rng| {
        let host = MemoryHost::new();
        let (device, _) = prepare(&tasks::random(rng, &host, 400)).unwrap();
        let bytes = device.encode();
        let mut wrong = bytes.clone();
        let at = rng.index(bytes.len());
        wrong[at] ^= 1 << rng.below(8);
        assert!(DeviceTask::decode(&wrong).is_err(), "byte {at}");
        assert!(DeviceTask::decode(&bytes[..at]).is_err());
    });
}

#[test]
fn keys_ascend_over_ways_or_the_answer_says_so() {
    let host = MemoryHost::new();
    let one = situ_compaction::testing::numbered(10, 1, 5);
    let mut task = situ_compaction::testing::task(&host, &[one.clone(), one], situ_compaction::testing::plain_rules());
    let (device, data) = prepare(&task).unwrap();
    assert_eq!(run_model(&device, &data).unwrap().header.status, situ_accel::abi::STATUS_ORDER);
    task.inputs.truncate(1);
    let (device, data) = prepare(&task).unwrap();
    let answer = run_model(&device, &data).unwrap();
    assert_eq!(answer.keys_of(0).0, KeyRef::new(b"00000", situ_table::Trailer(0)).user);
}
