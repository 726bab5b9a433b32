//! The workloads: what each asks of a store, request by request.
//!
//! | workload | request | keys |
//! |---|---|---|
//! | fillseq | put (or batch) | each thread `0..keys` in order, on a fresh store |
//! | fillrandom, overwrite | put (or batch) | uniform with repetition; fillrandom on a fresh store |
//! | fillsync | synced put | as fillrandom; a thousandth of the operations |
//! | readrandom, readmissing | get | uniform; readmissing's keys are one byte longer than any that was written |
//! | readseq, readreverse | one iterator | all entries, ascending or descending, until the operations are used up |
//! | seekrandom | seek and `seek_entries` entries | uniform |
//! | readwhilewriting | get, while one more thread puts | uniform |
//! | deleterandom | delete | uniform |
//! | mixed | get or put by `read_percent` | uniform |
//! | ycsb-load | insert | records `0..keys`, shared out among the threads, on a fresh store |
//! | ycsb-a … ycsb-f | YCSB's core workloads | see below |
//! | ycsb-mixed | read or update by `read_percent` | as ycsb-a |
//! | linkbench-load, linkbench | a social graph (`graph.rs`) | nodes `0..keys` |
//! | replay | a recorded trace (`replay.rs`) | those of the trace |
//! | flush, compact, wait, reopen | no requests: maintenance | |
//! | idle | none at all, for `duration_seconds`, 30 if that is not given | |
//!
//! YCSB's mix: A 50 % read, 50 % update; B 95/5; C reads; D 95 % read of the latest, 5 % insert; E 95 % scan, 5 %
//! insert; F 50 % read, 50 % read-modify-write, which is a read and then an update, as in YCSB's core workload. An
//! update replaces one field; how a store without fields does it is [`UpdateMapping`](crate::options::UpdateMapping).
//! Operations count per thread in the first group, as in db_bench, and for all threads together in YCSB's, as there.
//!
//! [`Worker`] is one thread's stream of requests. [`Worker::plan`] decides the next one and leaves its key and value in
//! buffers that are used again and again; [`Worker::perform`] does it on a [`Store`]; an asynchronous driver submits
//! the key and value itself.

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::ValueEnum;

mod graph;

use crate::content::{RecordShape, Values, encode_key, encode_user_key};
use crate::distribution::{Chooser, Hotspot, Inserted, ScrambledZipfian, Zipfian};
use crate::error::{Error, Result};
use crate::graph::{GraphOperation, GraphRequest, NEW_NODES, PAYLOAD_BYTES_MAX};
use crate::measure::Kind;
use crate::options::{BenchOptions, Distribution, InsertOrder, UpdateMapping};
use crate::random::Random;
use crate::replay::{Effect, Share};
use crate::schedule::ValueSchedule;
use crate::store::{Change, Store, StoreFailure};
use crate::workloads::Workload;

impl fmt::Display for Workload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        formatter.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// Records that one workload loads and others need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Records {
    Ycsb,
    Graph,
}

/// Shares of a YCSB workload's operations, and the distribution of its keys.
struct Mix {
    read: f64,
    update: f64,
    insert: f64,
    scan: f64,
    distribution: Distribution,
}

impl Workload {
    /// Returns true for steps that issue no requests.
    #[must_use]
    pub fn is_maintenance(self) -> bool {
        matches!(self, Self::Flush | Self::Compact | Self::Wait | Self::Reopen | Self::Idle)
    }

    /// Returns true for workloads that begin with an empty store.
    #[must_use]
    pub fn wants_fresh_store(self) -> bool {
        matches!(self, Self::FillSeq | Self::FillRandom | Self::FillSync) || self.loads().is_some()
    }

    /// Returns true for YCSB's workloads, whose operations count for all threads together.
    #[must_use]
    pub fn is_ycsb(self) -> bool {
        self == Self::YcsbLoad || self.needs() == Some(Records::Ycsb)
    }

    /// Returns the records that it loads.
    pub(crate) fn loads(self) -> Option<Records> {
        match self {
            Self::YcsbLoad => Some(Records::Ycsb),
            Self::LinkLoad => Some(Records::Graph),
            _ => None,
        }
    }

    /// Returns the loaded records that it needs.
    pub(crate) fn needs(self) -> Option<Records> {
        match self {
            Self::LinkBench => Some(Records::Graph),
            Self::YcsbA | Self::YcsbB | Self::YcsbC | Self::YcsbD | Self::YcsbE | Self::YcsbF | Self::YcsbMixed => {
                Some(Records::Ycsb)
            }
            _ => None,
        }
    }

    /// Returns the workload that loads such records.
    pub(crate) fn loader(records: Records) -> Self {
        match records {
            Records::Ycsb => Self::YcsbLoad,
            Records::Graph => Self::LinkLoad,
        }
    }

    /// Returns the reason why the workload's requests cannot be kept outstanding, if there is one: only single puts and
    /// gets can.
    pub(crate) fn refuses_outstanding(self, options: &BenchOptions) -> Option<&'static str> {
        match self {
            Self::ReadSeq | Self::ReadReverse | Self::SeekRandom | Self::YcsbE => Some("its requests are scans"),
            Self::LinkLoad | Self::LinkBench => Some("its requests are reads, lists and batches"),
            Self::DeleteRandom => Some("its requests are deletes"),
            Self::Replay => Some("its requests are of several kinds"),
            Self::YcsbF => Some("its requests are a read followed by a write"),
            Self::YcsbA | Self::YcsbB | Self::YcsbMixed if self.updates_fields(options) => {
                Some("its updates read before they write; see --update-mapping whole")
            }
            Self::FillSeq | Self::FillRandom | Self::FillSync | Self::Overwrite if options.batch_entries > 1 => {
                Some("its requests are batches")
            }
            _ => None,
        }
    }

    /// Returns the reason why the workload cannot be run on a server, if there is one: memcached's protocol has gets,
    /// sets and deletes of single keys.
    pub(crate) fn refuses_server(self) -> Option<&'static str> {
        match self {
            Self::ReadSeq | Self::ReadReverse | Self::SeekRandom | Self::YcsbE => Some("the protocol has no scans"),
            Self::FillSync => Some("the server decides when writes are synced"),
            Self::LinkLoad | Self::LinkBench => Some("the protocol has no lists and no batches"),
            Self::Idle => Some("the server is another process; look at it there"),
            Self::Flush | Self::Compact | Self::Wait | Self::Reopen => Some("the protocol has no such maintenance"),
            _ => None,
        }
    }

    /// Returns true if the workload replaces single fields of records.
    pub(crate) fn updates_fields(self, options: &BenchOptions) -> bool {
        matches!(self, Self::YcsbA | Self::YcsbB | Self::YcsbF | Self::YcsbMixed)
            && options.update_mapping == UpdateMapping::Merge
    }

    /// Returns the operations of one of `threads` threads.
    pub(crate) fn operations(self, options: &BenchOptions, thread: u32) -> u64 {
        let threads = u64::from(options.threads);
        let shared = |total: u64| total / threads + u64::from(u64::from(thread) < total % threads);
        match self {
            _ if self.loads().is_some() => shared(options.keys),
            _ if self.needs().is_some() => shared(options.operations.unwrap_or(options.keys)),
            Self::FillSync => options.operations.unwrap_or((options.keys / 1000).max(1)),
            _ => options.operations.unwrap_or(options.keys),
        }
    }

    fn mix(self, options: &BenchOptions) -> Option<Mix> {
        let mix = |read, update, insert, scan, distribution| Some(Mix { read, update, insert, scan, distribution });
        match self {
            Self::YcsbA => mix(0.5, 0.5, 0.0, 0.0, Distribution::Zipfian),
            Self::YcsbB => mix(0.95, 0.05, 0.0, 0.0, Distribution::Zipfian),
            Self::YcsbC => mix(1.0, 0.0, 0.0, 0.0, Distribution::Zipfian),
            Self::YcsbD => mix(0.95, 0.0, 0.05, 0.0, Distribution::Latest),
            Self::YcsbE => mix(0.0, 0.0, 0.05, 0.95, Distribution::Zipfian),
            Self::YcsbF => mix(0.5, 0.0, 0.0, 0.0, Distribution::Zipfian),
            Self::YcsbMixed => {
                let read = f64::from(options.read_percent) / 100.0;
                mix(read, 1.0 - read, 0.0, 0.0, Distribution::Zipfian)
            }
            _ => None,
        }
    }

    /// Returns the distribution of the workload over `records` existing records. Cloned for each thread: `Latest` costs
    /// a sum.
    pub(crate) fn chooser(self, options: &BenchOptions, records: u64) -> Option<Chooser> {
        let (distribution, inserts) = match self.mix(options) {
            Some(mix) => (mix.distribution, mix.insert),
            None if self == Self::LinkBench => (Distribution::Zipfian, NEW_NODES),
            None => return None,
        };
        Some(match options.distribution.unwrap_or(distribution) {
            Distribution::Uniform => Chooser::Uniform(records.max(1)),
            Distribution::Zipfian => {
                // YCSB foresees twice the expected inserts, so that growth does not move the popular records.
                let operations = options.operations.unwrap_or(options.keys);
                let expected = (operations as f64 * inserts * 2.0) as u64;
                Chooser::Zipfian(ScrambledZipfian::new(records + expected + 1))
            }
            Distribution::Latest => Chooser::Latest(Zipfian::new(records.saturating_sub(1))),
            Distribution::Hotspot => Chooser::Hotspot(Hotspot::new(records, 0.2, 0.8)),
        })
    }
}

/// The set of db_bench's keys with a value: one bit each, so that live bytes are known and not guessed.
#[derive(Debug)]
pub(crate) struct LiveKeys {
    words: Vec<AtomicU64>,
}

impl LiveKeys {
    pub(crate) fn new(keys: u64) -> Self {
        Self { words: (0..keys.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    #[inline]
    fn insert(&self, number: u64) {
        let word = &self.words[(number / 64) as usize];
        let bit = 1 << (number % 64);
        // Most puts of a long run are overwrites: a load then spares the shared cache line.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn remove(&self, number: u64) {
        self.words[(number / 64) as usize].fetch_and(!(1 << (number % 64)), Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }
}

/// The contents of the store, shared by all threads.
#[derive(Debug)]
pub(crate) struct Dataset {
    /// db_bench's keys.
    pub(crate) live: LiveKeys,
    /// YCSB's records.
    pub(crate) inserted: Inserted,
}

/// The action of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Put,
    PutBatch,
    Get,
    Delete,
    Scan {
        entries: u64,
    },
    /// Read, replace one field, write.
    Merge {
        field: usize,
    },
    /// Read, and then all of [`Merge`](Action::Merge).
    GetThenMerge {
        field: usize,
    },
    /// Read, then write a whole record.
    GetThenPut,
    /// An operation on the social graph.
    Graph(GraphOperation),
}

/// A request that has been planned: its key and value lie in the worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) action: Action,
    /// The record that exists once the request is done.
    pub(crate) inserts: Option<u64>,
}

/// The totals of a worker's requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) user_bytes_written: u64,
    pub(crate) user_bytes_read: u64,
    pub(crate) found: u64,
    pub(crate) missed: u64,
    pub(crate) inserted_bytes: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.user_bytes_written += other.user_bytes_written;
        self.user_bytes_read += other.user_bytes_read;
        self.found += other.found;
        self.missed += other.missed;
        self.inserted_bytes += other.inserted_bytes;
    }
}

/// One thread's requests.
pub(crate) struct Worker<'a> {
    workload: Workload,
    options: &'a BenchOptions,
    pub(crate) dataset: &'a Dataset,
    chooser: Option<Chooser>,
    pub(crate) random: Random,
    pub(crate) values: Content,
    pub(crate) key: Vec<u8>,
    pub(crate) found: Vec<u8>,
    pub(crate) graph: GraphRequest,
    batch_keys: Vec<u8>,
    issued: u64,
    /// The number of requests to come, for values that change on the way.
    operations: u64,
    sync: bool,
    /// The requests of the workload replay.
    replay: Option<Share<'a>>,
    pub(crate) tally: Tally,
}

/// The source of the value of the next put.
pub(crate) struct Content {
    values: Values,
    shape: RecordShape,
    slice: Range<usize>,
    record: Vec<u8>,
    is_record: bool,
}

impl Content {
    fn value(&self) -> &[u8] {
        if self.is_record { &self.record } else { self.values.slice(self.slice.clone()) }
    }

    /// Generates a value of its own.
    pub(crate) fn next(&mut self, bytes: usize) -> &[u8] {
        let slice = self.values.next_range(bytes);
        self.values.slice(slice)
    }
}

impl<'a> Worker<'a> {
    pub(crate) fn new(
        workload: Workload,
        options: &'a BenchOptions,
        dataset: &'a Dataset,
        chooser: Option<Chooser>,
        seed: u64,
    ) -> Self {
        let mut random = Random::new(seed);
        let scheduled = options.value_schedule.as_ref().map_or(0, ValueSchedule::value_bytes_max);
        let value_bytes = options.value_bytes.max(options.field_bytes).max(PAYLOAD_BYTES_MAX).max(scheduled);
        let values = Values::new(options.compression_ratio, value_bytes, &mut random);
        let is_record = workload.is_ycsb();
        Self {
            workload,
            options,
            dataset,
            chooser,
            random,
            values: Content { values, shape: options.record_shape(), slice: 0..0, record: Vec::new(), is_record },
            key: Vec::with_capacity(64),
            found: Vec::with_capacity(value_bytes),
            graph: GraphRequest::default(),
            batch_keys: Vec::new(),
            issued: 0,
            operations: workload.operations(options, 0),
            sync: options.sync || workload == Workload::FillSync,
            replay: None,
            tally: Tally::default(),
        }
    }

    /// Returns the planned request's key.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the planned put's value.
    pub(crate) fn value(&self) -> &[u8] {
        self.values.value()
    }

    /// Gives the worker the requests of a trace, whose values have at most `value_bytes_max`.
    pub(crate) fn replaying(mut self, share: Share<'a>, value_bytes_max: usize) -> Self {
        self.values.values = Values::new(self.options.compression_ratio, value_bytes_max, &mut self.random);
        Self { replay: Some(share), ..self }
    }

    /// Returns the number of requests to come, of a thread that has `operations` of other workloads.
    pub(crate) fn operations_or(&self, operations: u64) -> u64 {
        self.replay.as_ref().map_or(operations, Share::len)
    }

    /// Returns the time at which the next request is due, if it keeps its recorded time.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.replay.as_ref().and_then(Share::due)
    }

    /// Returns true if writes are to be synced.
    pub(crate) fn sync(&self) -> bool {
        self.sync
    }

    /// Decides the next request.
    pub(crate) fn plan(&mut self) -> Request {
        let request = |kind, action| Request { kind, action, inserts: None };
        let planned = match self.workload {
            Workload::FillSeq | Workload::FillRandom | Workload::FillSync | Workload::Overwrite => {
                if self.options.batch_entries > 1 {
                    return request(Kind::Batch, Action::PutBatch);
                }
                let number = self.next_written();
                self.plan_put(number);
                request(Kind::Write, Action::Put)
            }
            Workload::Mixed => {
                if self.random.below(100) < u64::from(self.options.read_percent) {
                    self.plan_random_key();
                    request(Kind::Read, Action::Get)
                } else {
                    let number = self.random.below(self.options.keys);
                    self.plan_put(number);
                    request(Kind::Write, Action::Put)
                }
            }
            Workload::ReadRandom | Workload::ReadWhileWriting => {
                self.plan_random_key();
                request(Kind::Read, Action::Get)
            }
            Workload::ReadMissing => {
                self.plan_random_key();
                self.key.push(b'.');
                request(Kind::Read, Action::Get)
            }
            Workload::SeekRandom => {
                self.plan_random_key();
                request(Kind::Seek, Action::Scan { entries: self.options.seek_entries })
            }
            Workload::DeleteRandom => {
                let number = self.plan_random_key();
                self.dataset.live.remove(number);
                request(Kind::Delete, Action::Delete)
            }
            Workload::Replay => self.plan_replayed(),
            Workload::YcsbLoad => self.plan_insert(),
            Workload::LinkLoad => self.plan_graph_load(),
            Workload::LinkBench => self.plan_graph(),
            // Whole-store iteration and maintenance have no single requests: the driver does not ask for any.
            _ => self.plan_ycsb(),
        };
        self.issued += 1;
        planned
    }

    /// Plans a put of a random key: the writer behind readwhilewriting.
    pub(crate) fn plan_background_put(&mut self) -> Request {
        let number = self.random.below(self.options.keys);
        self.plan_put(number);
        Request { kind: Kind::BackgroundWrite, action: Action::Put, inserts: None }
    }

    fn next_written(&mut self) -> u64 {
        match self.workload {
            Workload::FillSeq => self.issued % self.options.keys,
            _ => self.random.below(self.options.keys),
        }
    }

    fn plan_random_key(&mut self) -> u64 {
        let number = self.random.below(self.options.keys);
        encode_key(self.options.key_format, self.options.key_bytes, number, &mut self.key);
        number
    }

    fn plan_put(&mut self, number: u64) {
        encode_key(self.options.key_format, self.options.key_bytes, number, &mut self.key);
        let value_bytes = self.scheduled_bytes().unwrap_or(self.options.value_bytes);
        self.values.slice = self.values.values.next_range(value_bytes);
        self.dataset.live.insert(number);
    }

    fn plan_replayed(&mut self) -> Request {
        let taken = self.replay.as_mut().and_then(|share| share.take(&mut self.key));
        let Some((effect, value_bytes)) = taken else {
            unreachable!("a thread issues the requests of its share, and no more");
        };
        self.values.slice = self.values.values.next_range(value_bytes);
        let (kind, action) = match effect {
            Effect::Read => (Kind::Read, Action::Get),
            Effect::Write => (Kind::Write, Action::Put),
            Effect::ReadThenWrite => (Kind::ReadModifyWrite, Action::GetThenPut),
            Effect::Delete => (Kind::Delete, Action::Delete),
        };
        Request { kind, action, inserts: None }
    }

    fn plan_record_key(&mut self, record: u64) {
        let hashed = self.options.insert_order == InsertOrder::Hashed;
        encode_user_key(hashed, self.options.zero_padding, record, &mut self.key);
    }

    /// Returns the size of the next value, where a schedule says it.
    fn scheduled_bytes(&mut self) -> Option<usize> {
        let schedule = self.options.value_schedule.as_ref()?;
        Some(schedule.value_bytes(self.issued, self.operations, &mut self.random))
    }

    fn encode_record(&mut self) {
        // Only workloads on loaded records change sizes.
        let scheduled = if self.workload == Workload::YcsbLoad { None } else { self.scheduled_bytes() };
        let Content { values, shape, record, .. } = &mut self.values;
        match scheduled {
            Some(bytes) => {
                record.clear();
                record.extend_from_slice(values.next(bytes));
            }
            None => shape.encode(values, record),
        }
    }

    fn plan_insert(&mut self) -> Request {
        let record = self.dataset.inserted.take();
        self.plan_record_key(record);
        self.encode_record();
        self.tally.inserted_bytes += (self.key.len() + self.values.record.len()) as u64;
        Request { kind: Kind::Insert, action: Action::Put, inserts: Some(record) }
    }

    fn plan_ycsb(&mut self) -> Request {
        let (Some(mix), Some(chooser)) = (self.workload.mix(self.options), self.chooser.as_mut()) else {
            unreachable!("{} has no single requests", self.workload);
        };
        let draw = self.random.unit();
        if draw < mix.insert {
            return self.plan_insert();
        }
        let record = chooser.next(&self.dataset.inserted, &mut self.random);
        self.plan_record_key(record);
        let draw = draw - mix.insert;
        let (kind, action) = if draw < mix.read {
            (Kind::Read, Action::Get)
        } else if draw < mix.read + mix.scan {
            let entries = 1 + self.random.below(self.options.scan_entries_max);
            (Kind::Scan, Action::Scan { entries })
        } else if draw < mix.read + mix.scan + mix.update {
            match self.options.update_mapping {
                UpdateMapping::Merge => (Kind::Update, Action::Merge { field: self.some_field() }),
                UpdateMapping::Whole => {
                    self.encode_record();
                    (Kind::Update, Action::Put)
                }
            }
        } else {
            match self.options.update_mapping {
                UpdateMapping::Merge => (Kind::ReadModifyWrite, Action::GetThenMerge { field: self.some_field() }),
                UpdateMapping::Whole => {
                    self.encode_record();
                    (Kind::ReadModifyWrite, Action::GetThenPut)
                }
            }
        };
        Request { kind, action, inserts: None }
    }

    /// Chooses a record or node that exists.
    pub(crate) fn choose_record(&mut self) -> u64 {
        let chooser = self.chooser.as_mut();
        chooser.map_or(0, |chooser| chooser.next(&self.dataset.inserted, &mut self.random))
    }

    /// Returns the requests planned so far.
    pub(crate) fn issued(&self) -> u64 {
        self.issued
    }

    /// Returns the number of records that the run loads.
    pub(crate) fn nodes_loaded(&self) -> u64 {
        self.options.keys
    }

    fn some_field(&mut self) -> usize {
        self.random.below(self.options.fields as u64) as usize
    }

    /// Does a planned request and returns how many operations it counts as.
    pub(crate) fn perform(&mut self, store: &dyn Store, request: Request) -> Result<u64> {
        let workload = self.workload;
        let operations = match request.action {
            Action::Put => store.put(&self.key, self.values.value(), self.sync).map(|()| self.count_written(1)),
            Action::PutBatch => self.put_batch(store),
            Action::Get => store.get(&self.key, &mut self.found).map(|found| {
                self.count_read(found.then_some(self.found.len()));
                1
            }),
            Action::Delete => store.delete(&self.key, self.sync).map(|()| {
                self.tally.user_bytes_written += self.key.len() as u64;
                1
            }),
            Action::Scan { entries } => self.scan(store, entries),
            Action::Graph(operation) => self.perform_graph(store, operation),
            Action::Merge { field } => return self.merge_field(store, field),
            Action::GetThenMerge { field } => {
                self.get_record(store)?;
                return self.merge_field(store, field);
            }
            Action::GetThenPut => store.get(&self.key, &mut self.found).and_then(|found| {
                self.count_read(found.then_some(self.found.len()));
                store.put(&self.key, self.values.value(), self.sync)?;
                Ok(self.count_written(1))
            }),
        };
        let operations = operations.map_err(|source| failed(workload, source))?;
        self.acknowledge(request)?;
        Ok(operations)
    }

    /// Makes an inserted record known to readers, once it is in the store.
    pub(crate) fn acknowledge(&self, request: Request) -> Result<()> {
        match request.inserts {
            Some(record) if !self.dataset.inserted.acknowledge(record) => {
                Err(Error::Wrong(format!("{}: 2^20 inserts overtook one that is still pending", self.workload)))
            }
            _ => Ok(()),
        }
    }

    /// Counts the planned put.
    pub(crate) fn count_written(&mut self, operations: u64) -> u64 {
        self.tally.user_bytes_written += (self.key.len() + self.value().len()) as u64;
        operations
    }

    /// Counts a get that found a value of this length, or none.
    pub(crate) fn count_read(&mut self, value_bytes: Option<usize>) {
        match value_bytes {
            Some(bytes) => {
                self.tally.found += 1;
                self.tally.user_bytes_read += bytes as u64;
            }
            None => self.tally.missed += 1,
        }
    }

    fn put_batch(&mut self, store: &dyn Store) -> std::result::Result<u64, StoreFailure> {
        let entries = self.options.batch_entries as usize;
        self.batch_keys.clear();
        let mut slices = Vec::with_capacity(entries);
        for _ in 0..entries {
            let number = self.next_written();
            self.plan_put(number);
            self.issued += 1;
            self.batch_keys.extend_from_slice(&self.key);
            slices.push(self.values.slice.clone());
        }
        let keys = self.batch_keys.chunks_exact(self.options.key_bytes);
        let changes: Vec<Change<'_>> =
            keys.zip(&slices).map(|(key, slice)| Change::Put(key, self.values.values.slice(slice.clone()))).collect();
        store.batch(&changes, self.sync)?;
        let value_bytes: usize = slices.iter().map(Range::len).sum();
        self.tally.user_bytes_written += (self.batch_keys.len() + value_bytes) as u64;
        Ok(entries as u64)
    }

    fn scan(&mut self, store: &dyn Store, entries: u64) -> std::result::Result<u64, StoreFailure> {
        let mut bytes = 0;
        let count = store.scan(&self.key, entries, &mut |key, value| {
            bytes += (key.len() + value.len()) as u64;
            ControlFlow::Continue(())
        })?;
        self.tally.user_bytes_read += bytes;
        self.tally.found += count;
        Ok(1)
    }

    /// Gets a record that must be there.
    fn get_record(&mut self, store: &dyn Store) -> Result<()> {
        let workload = self.workload;
        if !store.get(&self.key, &mut self.found).map_err(|source| failed(workload, source))? {
            return Err(Error::Wrong(format!(
                "{workload}: record {} is missing; its insert was acknowledged",
                String::from_utf8_lossy(&self.key)
            )));
        }
        self.count_read(Some(self.found.len()));
        Ok(())
    }

    fn merge_field(&mut self, store: &dyn Store, field: usize) -> Result<u64> {
        let workload = self.workload;
        self.get_record(store)?;
        let Content { values, shape, .. } = &mut self.values;
        if !shape.replace_field(field, values, &mut self.found) {
            return Err(Error::Wrong(format!(
                "{workload}: record {} has {} bytes, expected {}",
                String::from_utf8_lossy(&self.key),
                self.found.len(),
                shape.record_bytes()
            )));
        }
        store.put(&self.key, &self.found, self.sync).map_err(|source| failed(workload, source))?;
        self.tally.user_bytes_written += (self.key.len() + self.found.len()) as u64;
        Ok(1)
    }
}

pub(crate) fn failed(workload: Workload, source: StoreFailure) -> Error {
    Error::Store { during: workload.to_string(), source }
}

#[cfg(test)]
mod tests;
