//! `situ bench calibrate`: measures when pipelines pay on a machine, and makes rules of it, as section 3.3 of the CoPro
//! paper does.
//!
//! 1. Two sorted runs of tables are made of values of one length. One task that merges them is run linear and
//!    pipelined, in turns, until the point's share of the time is over. Bytes read and the processor time of the
//!    process give the *cost* of each mode, as the median of its runs.
//! 2. This is done for several lengths. So the length is found from which on values are large
//!    ([`situ::offload::calibrate`]).
//! 3. It is done again for several shares of values of that length among smaller ones. So the share is found at which
//!    pipelines are to go off.
//! 4. [`situ::offload::rules_of`] makes rules of all that.
//!
//! The inputs are dropped from the page cache before each run, where they lie in a directory. So a run reads from the
//! disk, as compactions of cold data do. On a node, nothing is dropped: what is measured there is this machine's side
//! and the network.
//!
//! **Invariants.** Never more than the tables of one point exist, and the outputs of one run. All of them are gone at
//! the end, however the calibration ends. **Failure.** A place that is not empty is refused, and left as it is.

mod place;
mod show;

use crate::content::{KeyFormat, Values, encode_key};
use crate::error::{Error, Result};
use crate::process::{Machine, date_now};
use crate::random::Random;
use crate::stop::Stop;
use clap::Args;
use place::Place;
use serde::Serialize;
use situ::offload::Policy;
use situ::offload::{Calibrated, Cost, DecisionRules, ModeRule, SharePoint, Side, ValuePoint, growth_ratio, rules_of};
use situ_base::Env;
use situ_compaction::{KeyRange, KeySpan, MergeRules, OutputRules, RunMode, TableInput, TaskHost, run_with};
use situ_settings::parse_bytes_within;
use situ_settings::{Rules, SideName};
use situ_storage::Volume;
use situ_table::{BlockCache, Compression, KeyKind, KeyRef, Table, TableOptions, TableWriter, Trailer};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The lengths of the paper's experiments.
const VALUE_BYTES: [usize; 6] = [100, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10];
/// Percent of entries with large values.
const LARGE_PERCENT: [u8; 5] = [10, 30, 50, 70, 90];
/// The paper asks for 1 on its host and for 0.5 on its device, of the use of the whole machine. The time measured here
/// is that of this process alone. A byte takes no less of that time in a pipeline, so the ratio hardly passes 1
/// anywhere.
const RATIO_MIN: f64 = 0.5;
const KEY_BYTES: usize = 16;
/// The minimum number of turns of a measured run.
const TURNS_MIN: u32 = 2;
/// The bytes of the first turn, which shows how much a point can read in its time. No run reads less, unless
/// `run_bytes` is smaller: the sync at the end of each table would dominate the measurement.
const PROBE_BYTES: u64 = 8 << 20;
/// The least that a run may be asked to read.
const RUN_BYTES_MIN: u64 = 256 << 10;

/// What to measure, and where.
#[derive(Clone, Debug, Args)]
pub struct CalibrateOptions {
    /// Directory in which tables are made, as a subdirectory "calibrate". It belongs on the disk that stores will use
    #[arg(long, value_name = "DIR", default_value = "situ-bench-data")]
    pub directory: PathBuf,

    /// Side that the rules are for: "host" on the machine that opens stores, "elsewhere" on the machine of a node
    #[arg(long, value_enum, value_name = "SIDE", default_value_t)]
    pub side: SideName,

    /// Least growth of bandwidth for each growth of processor time that pays. 1 would be a pipeline that costs nothing
    /// beside the time that its bytes take anyway
    #[arg(long, value_name = "RATIO", default_value_t = RATIO_MIN, value_parser = parse_ratio)]
    pub ratio_min: f64,

    /// Most that one run reads, 256K to 64G. The disk holds twice as much at a time
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = |text: &str| parse_bytes_within(text, RUN_BYTES_MIN, 64 << 30))]
    pub run_bytes: u64,

    /// How long to measure, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: u32,

    /// File that gets the rules, for --compaction-rules. Rules of the other side stay in it
    #[arg(short, long, value_name = "FILE", default_value = "compaction-rules.json")]
    pub output: PathBuf,
}

fn parse_ratio(text: &str) -> std::result::Result<f64, String> {
    let ratio: f64 = text.parse().map_err(|_| "this option takes a number".to_owned())?;
    if ratio > 0.0 && ratio <= 100.0 {
        Ok(ratio)
    } else {
        Err("this option takes more than 0, and at most 100".to_owned())
    }
}

/// The measured rows, and the rules that follow from them.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    date: String,
    machine: Machine,
    side: SideName,
    ratio_min: f64,
    /// The bytes that a run has read.
    run_bytes: u64,
    values: Vec<ValueRow>,
    shares: Vec<ShareRow>,
    /// Values are large from here on; none of the lengths is, if there is nothing.
    large_value_bytes: Option<u64>,
    /// The share of large values at which pipelines go off while the machine does nothing else.
    large_share: Option<f64>,
    rules: Rules,
    #[serde(skip)]
    decision_rules: DecisionRules,
}

impl Calibration {
    /// Returns the rules of the side.
    #[must_use]
    pub fn rules(&self) -> &DecisionRules {
        &self.decision_rules
    }
}

#[derive(Clone, Debug, Serialize)]
struct ValueRow {
    value_bytes: u64,
    #[serde(flatten)]
    growth: Growth,
}

#[derive(Clone, Debug, Serialize)]
struct ShareRow {
    large_percent: u8,
    small_value_bytes: u64,
    #[serde(flatten)]
    growth: Growth,
}

/// The gain and the cost of a pipeline; 0.5 is half as much again.
#[derive(Clone, Copy, Debug, Serialize)]
struct Growth {
    linear_bytes_per_s: f64,
    pipelined_bytes_per_s: f64,
    /// Shares of all processors, 0 to 1.
    linear_processors: f64,
    pipelined_processors: f64,
    bandwidth_growth: f64,
    processors_growth: f64,
    /// Missing in JSON where bandwidth has grown and the use of processors has not.
    ratio: f64,
}

impl Growth {
    fn of((linear, pipelined): (Cost, Cost)) -> Growth {
        let growth = |before: f64, now: f64| if before > 0.0 { now / before - 1.0 } else { 0.0 };
        Growth {
            linear_bytes_per_s: linear.bytes_per_s,
            pipelined_bytes_per_s: pipelined.bytes_per_s,
            linear_processors: linear.processors,
            pipelined_processors: pipelined.processors,
            bandwidth_growth: growth(linear.bytes_per_s, pipelined.bytes_per_s),
            processors_growth: growth(linear.processors, pipelined.processors),
            ratio: growth_ratio(linear, pipelined),
        }
    }
}

/// The lengths of a point's values: some are large, and the others small.
#[derive(Clone, Copy, Debug)]
struct Mix {
    small_bytes: usize,
    large_bytes: usize,
    large_percent: u8,
}

impl Mix {
    fn all(bytes: usize) -> Mix {
        Mix { small_bytes: bytes, large_bytes: bytes, large_percent: 0 }
    }

    fn next(&self, random: &mut Random) -> usize {
        if random.below(100) < u64::from(self.large_percent) { self.large_bytes } else { self.small_bytes }
    }

    fn mean_bytes(&self) -> u64 {
        let large = u64::from(self.large_percent);
        (self.large_bytes as u64 * large + self.small_bytes as u64 * (100 - large)) / 100
    }
}

/// Measures the machine: in the directory of the options, or on `volume`, which is a node's and holds nothing.
///
/// # Errors
/// The place is not empty or cannot be used, a run failed, or `stop` ended it.
pub fn calibrate(options: &CalibrateOptions, volume: Option<Arc<dyn Volume>>, stop: &Stop) -> Result<Calibration> {
    let place = match volume {
        Some(volume) => Place::on_node(volume, stop)?,
        None => Place::in_directory(&options.directory, stop)?,
    };
    let machine = Machine::describe(&options.directory);
    // Lengths, and shares among values of two small lengths.
    let points = VALUE_BYTES.len() + 2 * LARGE_PERCENT.len();
    let point_time = Duration::from_secs(u64::from(options.seconds)) / points as u32;
    let bench = Bench::probed(place, point_time, options.run_bytes, machine.cores)?;
    let calibration = bench.calibrate(options, machine)?;
    bench.place.close()?;
    Ok(calibration)
}

struct Bench {
    place: Place,
    env: Env,
    point_time: Duration,
    run_bytes: u64,
    cores: usize,
}

impl Bench {
    /// A run reads as much as fits into a fifth of a point's time, and `run_bytes_max` at most.
    fn probed(place: Place, point_time: Duration, run_bytes_max: u64, cores: usize) -> Result<Bench> {
        let probe = PROBE_BYTES.min(run_bytes_max);
        let mut bench = Bench { place, env: Env::system(), point_time: Duration::ZERO, run_bytes: probe, cores };
        let (linear, _) = bench.measure(Mix::all(VALUE_BYTES[0]))?;
        let fits = (linear.bytes_per_s * point_time.as_secs_f64() / 5.0) as u64;
        bench.run_bytes = fits.clamp(probe, run_bytes_max);
        bench.point_time = point_time;
        Ok(bench)
    }

    fn calibrate(&self, options: &CalibrateOptions, machine: Machine) -> Result<Calibration> {
        let ratio_min = options.ratio_min;
        let mut side = Side { ratio_min, values: Vec::new(), shares: Vec::new() };
        let (mut values, mut shares) = (Vec::new(), Vec::new());
        for bytes in VALUE_BYTES {
            let costs = self.measure(Mix::all(bytes))?;
            side.values.push(ValuePoint { value_bytes: bytes as u64, linear: costs.0, pipelined: costs.1 });
            values.push(ValueRow { value_bytes: bytes as u64, growth: Growth::of(costs) });
        }
        let large = situ::offload::calibrate(&side).large_value_bytes;
        for mix in mixes(large) {
            let costs = self.measure(mix)?;
            side.shares.push(SharePoint { large_percent: mix.large_percent, linear: costs.0, pipelined: costs.1 });
            let (large_percent, small_value_bytes) = (mix.large_percent, mix.small_bytes as u64);
            shares.push(ShareRow { large_percent, small_value_bytes, growth: Growth::of(costs) });
        }
        let Calibrated { large_value_bytes, threshold } = situ::offload::calibrate(&side);
        let rules = rules_of(&side, base_rules()).expect("lengths were measured");
        Ok(Calibration {
            date: date_now(),
            machine,
            side: options.side,
            ratio_min,
            run_bytes: self.run_bytes,
            values,
            shares,
            large_value_bytes,
            large_share: threshold,
            rules: Rules::from(&rules),
            decision_rules: rules,
        })
    }

    /// Measures the cost of linear and pipelined runs with such values.
    fn measure(&self, mix: Mix) -> Result<(Cost, Cost)> {
        let inputs = self.inputs(mix)?;
        let began = Instant::now();
        let (mut linear, mut pipelined) = (Spent::default(), Spent::default());
        let mut turns = 0;
        while turns < TURNS_MIN || began.elapsed() < self.point_time {
            // The other mode first each time, so that neither always follows the making of tables.
            let order = [RunMode::Linear, RunMode::PIPELINED];
            for mode in if turns % 2 == 0 { order } else { [order[1], order[0]] } {
                let spent = if mode.is_pipelined() { &mut pipelined } else { &mut linear };
                self.run(&inputs, mode, spent)?;
            }
            turns += 1;
        }
        self.place.clear()?;
        Ok((linear.cost(self.cores), pipelined.cost(self.cores)))
    }

    /// Two sorted runs with every other key.
    fn inputs(&self, mix: Mix) -> Result<Vec<Vec<(u64, KeySpan)>>> {
        let mut random = Random::new(1);
        let mut values = Values::new(0.5, mix.large_bytes.max(mix.small_bytes), &mut random);
        let entries = (self.run_bytes / 2 / (KEY_BYTES as u64 + mix.mean_bytes())).max(1);
        let mut run = |first: u64| self.sorted_run(first, entries, &mut || mix.next(&mut random), &mut values);
        Ok(vec![run(0)?, run(1)?])
    }

    fn sorted_run(
        &self,
        first: u64,
        entries: u64,
        next_length: &mut dyn FnMut() -> usize,
        values: &mut Values,
    ) -> Result<Vec<(u64, KeySpan)>> {
        let (mut tables, mut at, mut key) = (Vec::new(), 0, Vec::new());
        let options = table_options();
        while at < entries {
            self.place.go_on()?;
            let (place, file) = self.place.host().new_table(0).map_err(failed)?;
            let mut writer = TableWriter::new(file, &options, 0).map_err(failed)?;
            encode_key(KeyFormat::BigEndian, KEY_BYTES, 2 * at + first, &mut key);
            let begin = key.clone();
            while at < entries && writer.estimated_bytes() < table_bytes(self.run_bytes) {
                encode_key(KeyFormat::BigEndian, KEY_BYTES, 2 * at + first, &mut key);
                let entry = KeyRef::new(&key, Trailer::new(9 - first, KeyKind::Put));
                writer.add(entry, values.next(next_length())).map_err(failed)?;
                at += 1;
            }
            writer.finish().map_err(failed)?;
            tables.push((place.number, KeySpan::including(&begin, &key)));
        }
        Ok(tables)
    }

    /// Runs the task once, and removes what it made.
    fn run(&self, inputs: &[Vec<(u64, KeySpan)>], mode: RunMode, spent: &mut Spent) -> Result<()> {
        self.place.go_on()?;
        self.place.drop_from_cache();
        let cache = BlockCache::new(8 << 20);
        let open = |(number, span): &(u64, KeySpan)| {
            let table = Table::open(self.place.open(*number)?, *number, Arc::clone(&cache))?;
            Ok(TableInput::of(table, *number, span.clone()))
        };
        let runs = inputs.iter().map(|run| run.iter().map(open).collect::<situ_storage::Result<Vec<_>>>());
        let inputs = runs.collect::<situ_storage::Result<Vec<_>>>().map_err(failed)?;
        let task = Arc::new(task(inputs, table_bytes(self.run_bytes)));
        let (began, processors) = (Instant::now(), processor_time());
        let (output, _) = run_with(&task, &(Arc::clone(self.place.host()) as Arc<dyn TaskHost>), mode, &self.env);
        let took = (began.elapsed(), processor_time().saturating_sub(processors));
        self.place.go_on()?;
        let output = output.map_err(failed)?;
        spent.add(output.stats.bytes_read, took);
        output.tables.iter().try_for_each(|table| self.place.remove(table.number))
    }
}

/// The costs of the runs of one mode.
#[derive(Default)]
struct Spent {
    bytes_per_s: Vec<f64>,
    /// The number of processors in use.
    processors: Vec<f64>,
}

impl Spent {
    fn add(&mut self, bytes: u64, (time, processors): (Duration, Duration)) {
        let seconds = time.as_secs_f64().max(1e-9);
        self.bytes_per_s.push(bytes as f64 / seconds);
        self.processors.push(processors.as_secs_f64() / seconds);
    }

    /// Returns the medians: other work that the machine does now and then leaves them as they are.
    fn cost(self, cores: usize) -> Cost {
        let processors = median(self.processors) / cores.max(1) as f64;
        Cost { bytes_per_s: median(self.bytes_per_s), processors: processors.min(1.0) }
    }
}

/// Returns the middle one, or the mean of the two in the middle.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match numbers.len() % 2 {
        0 => f64::midpoint(numbers[middle - 1], numbers[middle]),
        _ => numbers[middle],
    }
}

/// Large values among those of the smallest length, and among those of the largest one that is not large.
fn mixes(large: Option<u64>) -> Vec<Mix> {
    let Some(large_bytes) = large.map(|bytes| bytes as usize) else { return Vec::new() };
    let small: Vec<usize> = VALUE_BYTES.into_iter().filter(|bytes| *bytes < large_bytes).collect();
    let mut ends: Vec<usize> = small.first().into_iter().chain(small.last()).copied().collect();
    ends.dedup();
    let of = |small_bytes: usize| LARGE_PERCENT.map(|large_percent| Mix { small_bytes, large_bytes, large_percent });
    ends.into_iter().flat_map(of).collect()
}

/// Returns the rules of the default policy, for all that is not measured.
fn base_rules() -> DecisionRules {
    match Policy::default().host {
        ModeRule::Decided(rules) => rules,
        ModeRule::Fixed(_) => unreachable!("the default policy decides"),
    }
}

fn table_options() -> TableOptions {
    TableOptions { compression: Compression::Lz4, ..TableOptions::default() }
}

/// Several tables in each sorted run, of the paper's size at most.
fn table_bytes(run_bytes: u64) -> u64 {
    (run_bytes / 8).clamp(64 << 10, 2 << 20)
}

fn task(inputs: Vec<Vec<TableInput>>, target_file_bytes: u64) -> situ_compaction::Task {
    let rules = MergeRules {
        range: KeyRange::all(),
        snapshots: Vec::new(),
        below: Vec::new(),
        grandparents: Vec::new(),
        output_level: 1,
        output: OutputRules {
            table: table_options(),
            target_file_bytes,
            max_grandparent_bytes: u64::MAX,
            created_unix_s: 0,
            encoder: situ_compaction::Encoder::default(),
        },
        filter: None,
        now_unix: Duration::ZERO,
    };
    situ_compaction::Task { id: 1, keyspace: 0, level: 0, inputs, rules }
}

/// Processor time of this process so far.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn failed(error: impl Into<crate::store::StoreFailure>) -> Error {
    Error::Store { during: "the calibration".to_owned(), source: error.into() }
}

#[cfg(test)]
mod tests;
