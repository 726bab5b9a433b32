//! The decoders of tasks and answers as functions of any bytes, for fuzzers: they may refuse, and never panic.

use crate::abi::{AnswerHeader, BlockReport, TaskHeader};
use crate::answer::Answer;
use crate::device::{Device, DeviceAnswer, DeviceError, ModelDevice};
use crate::model::run_model;
use crate::run::run_on_device;
use crate::task::{DeviceTask, checksum_of};
use situ_base::Env;
use situ_compaction::Task;
use situ_compaction::testing::{Contents, MemoryHost, numbered, plain_rules, task};
use situ_table::Compression;

/// Larger tasks are decoded and not run.
const RUN_BYTES_MAX: u64 = 1 << 20;

/// The offset of a task's checksum.
const CHECKSUM_AT: usize = 176;

/// A target: what a fuzzer calls with any bytes.
type Target = fn(&[u8]);

/// The names of the targets, with their functions.
pub const TARGETS: [(&str, Target); 2] = [("device_task", device_task), ("device_answer", device_answer)];

/// A task and the blocks behind it: as a device decodes and runs them. The first byte says whether the task's checksum
/// is made right first.
pub fn device_task(bytes: &[u8]) {
    let Some((&sealed, bytes)) = bytes.split_first() else { return };
    let mut bytes = bytes.to_vec();
    let task_bytes = TaskHeader::take(&mut bytes.as_slice()).map(|header| header.task_bytes);
    if let Some(task) = task_bytes.and_then(|length| bytes.get_mut(..usize::try_from(length).ok()?))
        && sealed & 1 == 1
        && task.len() >= TaskHeader::BYTES
    {
        let checksum = checksum_of(task);
        task[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    }
    let Ok(task) =
        DeviceTask::decode(task_bytes.map_or(&bytes, |length| bytes.get(..length as usize).unwrap_or(&bytes)))
    else {
        return;
    };
    assert!(DeviceTask::decode(&task.encode()).as_ref() == Ok(&task), "a task survives its bytes");
    let mut data = bytes[(task.encoded_bytes() as usize).min(bytes.len())..].to_vec();
    if task.data_bytes <= RUN_BYTES_MAX {
        data.resize(task.data_bytes as usize, 0);
        let answer = run_model(&task, &data).expect("there is memory");
        assert_eq!(answer.check(), Ok(()));
    }
}

/// An answer of a device, as the host decodes it and makes tables of it. Its first byte says whether
/// the checksums are made right first; the next four are the length of the report.
pub fn device_answer(bytes: &[u8]) {
    let Some((&sealed, rest)) = bytes.split_first() else { return };
    let Some((length, rest)) = rest.split_first_chunk::<4>() else { return };
    let (report, data) = rest.split_at((u32::from_le_bytes(*length) as usize).min(rest.len()));
    let mut device = Echo { report: report.to_vec(), data: data.to_vec(), staged: Vec::new() };
    if sealed & 1 == 1 {
        device.seal();
    }
    let (host, task) = example();
    let (result, _) = run_on_device(&mut device, "echo", 16, &task, &host, &Env::system().clock);
    if let Ok(output) = result {
        let entries: u64 = output.tables.iter().map(|table| table.summary.properties.entries).sum();
        assert_eq!(entries, output.stats.entries_out);
    }
}

/// Returns what the real encoders make.
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    let (host, task) = example();
    let mut device = Recorder::default();
    let (result, _) = run_on_device(&mut device, "model", 16, &task, &host, &Env::system().clock);
    assert!(result.is_ok());
    match target {
        "device_task" => device.tasks,
        _ => {
            device.answers.into_iter().flat_map(|answer| [0, 1].map(|sealed| [&[sealed], &*answer].concat())).collect()
        }
    }
}

/// A small task with several files.
fn example() -> (MemoryHost, Task) {
    let host = MemoryHost::new();
    let mut rules = plain_rules();
    rules.output.table.compression = Compression::Lz4;
    rules.output.table.block_bytes = 300;
    rules.output.target_file_bytes = 3000;
    let runs: Vec<Contents> = vec![numbered(900, 2, 9), numbered(900, 3, 5)];
    let task = task(&host, &runs, rules);
    (host, task)
}

/// A device that gives the same answer to everything.
struct Echo {
    report: Vec<u8>,
    data: Vec<u8>,
    staged: Vec<u8>,
}

impl Echo {
    /// Makes all checksums right.
    fn seal(&mut self) {
        let Ok(mut answer) = Answer::decode_report(&self.report, self.data.len()) else { return };
        for i in 0..answer.reports.len() {
            let BlockReport { at, stored_bytes, first_hash, hashes, .. } = answer.reports[i];
            let block = &mut self.data[at as usize..][..stored_bytes as usize];
            if let Some((body, trailer)) = block.split_last_chunk_mut::<4>() {
                *trailer = crc32c::crc32c(body).to_le_bytes();
                answer.reports[i].checksum = u32::from_le_bytes(*trailer);
            }
            let keys = 2 * answer.header.key_stride as usize;
            answer.reports[i].keys_checksum = crc32c::crc32c(&answer.keys[i * keys..(i + 1) * keys]);
            let hashes = &answer.hashes[first_hash as usize..][..hashes as usize];
            let hashes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
            answer.reports[i].hashes_checksum = crc32c::crc32c(&hashes);
            answer.reports[i].report_checksum = answer.reports[i].own_checksum();
        }
        answer.header.checksum = AnswerHeader::own_checksum(&answer.header);
        self.report = answer.encode_report();
    }
}

impl Device for Echo {
    fn stage(&mut self, bytes: usize) -> Result<&mut [u8], DeviceError> {
        self.staged.resize(bytes, 0);
        Ok(&mut self.staged)
    }

    fn run(&mut self, _task: &DeviceTask, _cancelled: &dyn Fn() -> bool) -> Result<(), DeviceError> {
        Ok(())
    }

    fn answer(&self) -> DeviceAnswer<'_> {
        DeviceAnswer { report: &self.report, data: &self.data }
    }
}

/// The model, with a record of what it got and gave.
#[derive(Default)]
struct Recorder {
    model: ModelDevice,
    staged: usize,
    tasks: Vec<Vec<u8>>,
    answers: Vec<Vec<u8>>,
}

impl Device for Recorder {
    fn stage(&mut self, bytes: usize) -> Result<&mut [u8], DeviceError> {
        self.staged = bytes;
        self.model.stage(bytes)
    }

    fn run(&mut self, task: &DeviceTask, cancelled: &dyn Fn() -> bool) -> Result<(), DeviceError> {
        let staged = self.model.stage_again(self.staged)?.to_vec();
        self.tasks.push([task.encode(), staged].concat());
        self.model.run(task, cancelled)?;
        let DeviceAnswer { report, data } = self.model.answer();
        self.answers.push([&(report.len() as u32).to_le_bytes(), report, data].concat());
        Ok(())
    }

    fn answer(&self) -> DeviceAnswer<'_> {
        self.model.answer()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_compaction::testing::with_seeds;

    #[test]
    fn mutated_tasks_and_answers_are_refused_and_never_panic() {
        for (name, target) in TARGETS {
            let corpus = corpus(name);
            assert!(corpus.len() > 2, "{name}");
            corpus.iter().for_each(|input| target(input));
            with_seeds(if name == "device_task" { 500 } else { 2000 }, |rng| {
                let mut input = corpus[rng.index(corpus.len())].clone();
                for _ in 0..1 + rng.below(3) {
                    let at = rng.index(input.len());
                    match rng.below(4) {
                        0 => input[at] ^= 1 << rng.below(8),
                        1 => input[at] = [0, 1, 0x7f, 0xff][rng.index(4)],
                        2 => input.truncate(at + 1),
                        // Fields of reports and headers have small offsets.
                        _ => {
                            let at = rng.index(input.len().min(1200));
                            input[at] = input[at].wrapping_add(1);
                        }
                    }
                }
                target(&input);
            });
        }
    }
}
