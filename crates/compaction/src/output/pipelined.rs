//! The smallest guest of [`BlockOutput`]: the merge on one thread, two encoders, an appender, bounded queues between them.
//!
//! ```text
//! merge ──raw blocks, in turn──> encoder 0 ──┐
//!    │                     └──> encoder 1 ──┴──> appender ──> files
//!    └──what comes next──────────────────────────^  │
//!    ^────────────────stored lengths────────────────┘
//! ```

use super::BlockOutput;
use crate::error::Result;
use crate::run::{run, run_into};
use crate::task::{Task, TaskOutput};
use crate::testing::{Contents, Entry, MemoryHost, Rng, numbered, plain_rules, task};
use situ_table::{
    BlockEncoder, Compression, EncodedBlock, KeyKind, RawBlock, TableAppender, TableEnd, TableOptions, TableSummary,
};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

const ENCODERS: usize = 2;
const QUEUE_BLOCKS: usize = 3;

enum Next {
    Begin(Box<TableAppender>),
    /// The next block of the encoder whose turn it is.
    Block,
    End(Box<TableEnd>),
}

struct Pipelined<'scope> {
    encoders: Vec<SyncSender<RawBlock>>,
    turn: usize,
    next: SyncSender<Next>,
    stored_bytes: Receiver<u64>,
    appender: ScopedJoinHandle<'scope, Vec<TableSummary>>,
}

/// Encodes, now and then late.
fn encode(compression: Compression, seed: u64, raw: Receiver<RawBlock>, encoded: SyncSender<EncodedBlock>) {
    let (mut encoder, mut rng) = (BlockEncoder::new(compression).unwrap(), Rng::new(seed));
    for block in raw {
        if rng.below(8) == 0 {
            std::thread::sleep(Duration::from_micros(rng.below(300)));
        }
        // The merge has ended with an error if nobody takes the block.
        if encoded.send(encoder.encode(block)).is_err() {
            return;
        }
    }
}

fn append(next: Receiver<Next>, encoded: &[Receiver<EncodedBlock>], stored_bytes: &Sender<u64>) -> Vec<TableSummary> {
    let (mut table, mut turn, mut summaries) = (None, 0, Vec::new());
    for step in next {
        match step {
            Next::Begin(appender) => table = Some(appender),
            Next::Block => {
                let block = encoded[turn % ENCODERS].recv().unwrap();
                turn += 1;
                let _ = stored_bytes.send(block.stored().len() as u64);
                table.as_mut().unwrap().append(block).unwrap();
            }
            Next::End(end) => summaries.push(table.take().unwrap().finish(*end).unwrap()),
        }
    }
    summaries
}

impl<'scope> Pipelined<'scope> {
    fn new<'env>(scope: &'scope Scope<'scope, 'env>, compression: Compression, seed: u64) -> Pipelined<'scope> {
        let (mut encoders, mut encoded) = (Vec::new(), Vec::new());
        for encoder in 0..ENCODERS as u64 {
            let (to_encoder, raw) = sync_channel(QUEUE_BLOCKS);
            let (from_encoder, blocks) = sync_channel(QUEUE_BLOCKS);
            scope.spawn(move || encode(compression, seed + encoder, raw, from_encoder));
            encoders.push(to_encoder);
            encoded.push(blocks);
        }
        let (next, steps) = sync_channel(QUEUE_BLOCKS);
        let (lengths, stored_bytes) = channel();
        let appender = scope.spawn(move || append(steps, &encoded, &lengths));
        Pipelined { encoders, turn: 0, next, stored_bytes, appender }
    }
}

impl BlockOutput for Pipelined<'_> {
    fn begin(&mut self, table: TableAppender) -> Result<()> {
        self.next.send(Next::Begin(Box::new(table))).unwrap();
        Ok(())
    }

    fn block(&mut self, block: RawBlock) -> Result<Option<RawBlock>> {
        self.encoders[self.turn % ENCODERS].send(block).unwrap();
        self.turn += 1;
        self.next.send(Next::Block).unwrap();
        Ok(None)
    }

    fn stored_bytes(&mut self) -> Result<u64> {
        Ok(self.stored_bytes.recv().unwrap())
    }

    fn end(&mut self, end: TableEnd) -> Result<()> {
        self.next.send(Next::End(Box::new(end))).unwrap();
        Ok(())
    }

    fn finish(self) -> Result<Vec<TableSummary>> {
        let Pipelined { encoders, next, appender, .. } = self;
        drop((encoders, next));
        Ok(appender.join().unwrap())
    }
}

fn run_pipelined(task: &Task, host: &MemoryHost, seed: u64) -> Result<TaskOutput> {
    let compression = task.rules.output.table.compression;
    std::thread::scope(|scope| run_into(task, host, Pipelined::new(scope, compression, seed)))
}

/// Entries of which some compress well and some do not.
fn mixed(count: u64, step: u64, sequence: u64, rng: &mut Rng) -> Contents {
    let mut entry = |i: u64| {
        let value: String = (0..120).map(|_| char::from(b'a' + rng.below(1 + i / 500 % 26) as u8)).collect();
        Entry::new(&format!("{i:06}"), sequence, KeyKind::Put, &value)
    };
    Contents { entries: (0..count).step_by(step as usize).map(&mut entry).collect(), tombstones: Vec::new() }
}

#[test]
fn promise_5_a_pipeline_gives_the_bytes_of_one_thread() {
    let host = MemoryHost::new();
    let mut rng = Rng::new(3);
    let runs = [mixed(12_000, 2, 9, &mut rng), mixed(12_000, 3, 5, &mut rng)];
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd { level: 1 }] {
        for target_file_bytes in [1, 30_000, 200_000, u64::MAX] {
            let mut rules = plain_rules();
            rules.output.table = TableOptions { compression, block_bytes: 1000, ..TableOptions::default() };
            rules.output.target_file_bytes = target_file_bytes;
            // A file for each key is enough for a few keys.
            rules.range.upper = (target_file_bytes == 1).then(|| b"000300".to_vec());
            let task = task(&host, &runs, rules);
            let expected = run(&task, &host).unwrap();
            for seed in 0..3 {
                let output = run_pipelined(&task, &host, seed).unwrap();
                assert_eq!(output.stats, expected.stats);
                assert_eq!(output.tables.len(), expected.tables.len());
                for (table, expected) in output.tables.iter().zip(&expected.tables) {
                    assert_eq!((&table.summary, &table.span), (&expected.summary, &expected.span));
                    assert!(host.bytes(table.number) == host.bytes(expected.number), "table {}", table.number);
                }
            }
            assert!(expected.tables.len() > 3 || target_file_bytes > 200_000, "{target_file_bytes}");
        }
    }
}

#[test]
fn a_pipeline_ends_with_the_error_of_its_merge() {
    let host = MemoryHost::new();
    let mut task = task(&host, &[numbered(5000, 1, 9)], plain_rules());
    task.rules.output.target_file_bytes = 5000;
    // The input is two tables; of the output's files, the fifth fails.
    host.fails_at.store(7, std::sync::atomic::Ordering::Relaxed);
    let error = run_pipelined(&task, &host, 0).map(|_| ()).unwrap_err();
    assert!(matches!(&error, crate::TaskError::Storage(error) if error.is_no_space()), "{error}");
}
