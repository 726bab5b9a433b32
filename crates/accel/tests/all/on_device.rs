//! A task on a device gives the files of the reference merge, whatever the device's ways and the sizes of files.

use crate::tasks;
use situ_accel::{Device, DeviceAnswer, DeviceError, DeviceTask, ModelDevice, Passes, RunShape, run_on_device};
use situ_base::Env;
use situ_compaction::testing::{MemoryHost, golden, with_seeds};
use situ_compaction::{Grandparent, KeySpan, Task, TaskError, TaskHost, TaskOutput, run};
use situ_sim::Rng;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A random task whose output has several files.
fn task_with_cuts(rng: &mut Rng, host: &MemoryHost) -> Task {
    let mut task = tasks::random(rng, host, 2000);
    let output = &mut task.rules.output;
    output.target_file_bytes = [300, 2000, 20_000, 100_000, u64::MAX][rng.index(5)];
    output.max_grandparent_bytes = [1000, 10_000, u64::MAX][rng.index(3)];
    output.table.index_block_bytes = [128, 4096][rng.index(2)];
    if rng.below(2) == 0 {
        let mut keys: Vec<Vec<u8>> = task.tables().map(|table| table.span.begin.clone()).collect();
        keys.extend((0..rng.below(8)).map(|_| format!("user{:012}", rng.below(100_000)).into_bytes()));
        keys.sort();
        keys.dedup();
        let grandparent = |pair: &[Vec<u8>]| Grandparent {
            span: KeySpan { begin: pair[0].clone(), end: pair[1].clone() },
            bytes: 1 + rng.below(2000),
        };
        task.rules.grandparents = keys.windows(2).map(grandparent).collect();
    }
    task
}

fn on(device: &mut dyn Device, ways: u32, task: &Task, host: &dyn TaskHost) -> Result<TaskOutput, TaskError> {
    run_on_device(device, "test", ways, task, host, &Env::system().clock).0
}

/// The files of an output, in order, and all that is said of them but their numbers.
fn files(host: &MemoryHost, output: &TaskOutput) -> Vec<(Arc<Vec<u8>>, KeySpan)> {
    output.tables.iter().map(|table| (host.bytes(table.number), table.span.clone())).collect()
}

fn assert_equal(host: &MemoryHost, expected: &TaskOutput, found: &TaskOutput) {
    assert_eq!(expected.stats, found.stats);
    assert_eq!(expected.tables.len(), found.tables.len());
    for (expected, found) in expected.tables.iter().zip(&found.tables) {
        assert_eq!(expected.summary, found.summary);
    }
    assert!(files(host, expected) == files(host, found), "other bytes");
}

#[test]
fn random_tasks_give_the_files_of_the_reference_merge() {
    let (mut files, mut passes) = (0, 0);
    with_seeds(400, |rng| {
        let host = MemoryHost::new();
        let task = task_with_cuts(rng, &host);
        let ways = [2, 3, 4, 16][rng.index(4)];
        let expected = run(&task, &host).unwrap();
        let found = on(&mut ModelDevice::default(), ways, &task, &host).unwrap();
        assert_equal(&host, &expected, &found);
        files += expected.tables.len();
        passes += usize::from(task.inputs.len() > ways as usize);
    });
    assert!(files > 800 && passes > 50, "{files} files, {passes} tasks in passes");
}

/// The ways in which a device goes wrong.
#[derive(Debug, Clone, Copy)]
enum Fault {
    InputBit,
    OutputBit,
    ReportBit,
    HeaderBit,
    NoMemory,
    Lost,
    CutShort,
    OtherSums,
}

/// A device that goes wrong in its run of this number.
struct Faulty {
    model: ModelDevice,
    fault: Fault,
    run: u32,
    rng: Rng,
    report: Vec<u8>,
    data: Vec<u8>,
}

impl Faulty {
    fn flip(bytes: &mut [u8], rng: &mut Rng) {
        if !bytes.is_empty() {
            let at = rng.index(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
        }
    }
}

impl Device for Faulty {
    fn stage(&mut self, bytes: usize) -> Result<&mut [u8], DeviceError> {
        match self.fault {
            Fault::NoMemory if self.run == 0 => Err(DeviceError::NoMemory(bytes)),
            _ => self.model.stage(bytes),
        }
    }

    fn run(&mut self, task: &DeviceTask, cancelled: &dyn Fn() -> bool) -> Result<(), DeviceError> {
        let now = self.run == 0;
        self.run = self.run.wrapping_sub(1);
        if now && matches!(self.fault, Fault::Lost) {
            return Err(DeviceError::Failed("the device is lost".to_owned()));
        }
        if now && matches!(self.fault, Fault::InputBit) {
            self.model.flip_staged(|bytes| Faulty::flip(bytes, &mut self.rng));
        }
        self.model.run(task, cancelled)?;
        let answer = self.model.answer();
        (self.report, self.data) = (answer.report.to_vec(), answer.data.to_vec());
        match self.fault {
            Fault::OutputBit if now => Faulty::flip(&mut self.data, &mut self.rng),
            Fault::ReportBit if now => Faulty::flip(&mut self.report, &mut self.rng),
            Fault::HeaderBit if now => Faulty::flip(&mut self.report[..96], &mut self.rng),
            Fault::CutShort if now => self.report.truncate(self.report.len() / 2),
            // Well-formed, with checksums that are right.
            Fault::OtherSums if now => {
                let mut rest = self.report.as_slice();
                let mut header = situ_accel::abi::AnswerHeader::take(&mut rest).unwrap();
                header.entries_kept += 1;
                header.checksum = header.own_checksum();
                let mut bytes = Vec::new();
                header.put(&mut bytes);
                self.report[..bytes.len()].copy_from_slice(&bytes);
            }
            _ => {}
        }
        Ok(())
    }

    fn answer(&self) -> DeviceAnswer<'_> {
        DeviceAnswer { report: &self.report, data: &self.data }
    }
}

#[test]
fn what_a_device_does_wrong_is_its_error_or_changes_nothing() {
    use Fault::*;
    let mut found_out = 0;
    with_seeds(400, |rng| {
        let host = MemoryHost::new();
        let task = task_with_cuts(rng, &host);
        let fault = [InputBit, OutputBit, ReportBit, HeaderBit, NoMemory, Lost, CutShort, OtherSums][rng.index(8)];
        let (run_number, model) = (rng.below(2) as u32, ModelDevice::default());
        let rng = Rng::new(rng.next_u64());
        let mut device = Faulty { model, fault, run: run_number, rng, report: Vec::new(), data: Vec::new() };
        match on(&mut device, 2, &task, &host) {
            Err(TaskError::Unit { unit, .. }) => {
                assert_eq!(unit, "test");
                found_out += 1;
            }
            Ok(output) => {
                // The device had nothing to do, or not so often.
                let expected = run(&task, &host).unwrap();
                assert_equal(&host, &expected, &output);
            }
            Err(other) => panic!("{fault:?}: {other}"),
        }
    });
    assert!(found_out > 200, "{found_out}");
}

#[test]
fn a_task_that_is_given_up_ends() {
    with_seeds(20, |rng| {
        let host = MemoryHost::new();
        let task = tasks::random(rng, &host, 500);
        host.cancel.store(true, Ordering::Relaxed);
        let result = on(&mut ModelDevice::default(), 2, &task, &host);
        let is_empty = result.as_ref().is_ok_and(|output| output.stats.entries_out == 0);
        assert!(is_empty || matches!(result, Err(TaskError::Cancelled)), "{result:?}");
    });
}

#[test]
fn orders_of_merges_are_those_of_the_page() {
    golden("passes", |question| {
        let mut lines = question.lines();
        let ways: usize = lines.next().unwrap().strip_prefix("ways ").unwrap().parse().unwrap();
        let run = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let span = KeySpan { begin: words[1].into(), end: words[2].into() };
            RunShape { bytes: words[0].parse().unwrap(), span: Some(span) }
        };
        Passes::of(&lines.map(run).collect::<Vec<_>>(), ways).to_string()
    });
}
