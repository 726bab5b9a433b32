//! The work: a fixed set of keys, updated by some distribution, over a value log that is trimmed and collected as its options say.

use crate::account::{Accounted, cost};
use situ_base::Env;
use situ_storage::{PAGE_BYTES, Result};
use situ_values::{Counters, Handle, Moved, Options, Owner, ValueLog, ValueWriter, Walked, numbers_from};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Header and key of each record.
const RECORD_EXTRA: usize = 24 + KEY_BYTES;
const KEY_BYTES: usize = 8;
/// Random bytes that values are cut from.
const POOL_BYTES: usize = 8 << 20;
/// So many updates between two syncs.
const BATCH: u64 = 256;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Updates {
    Uniform,
    Zipf,
    /// Nine of ten go to a tenth of the keys.
    Hot,
}

impl fmt::Display for Updates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Updates::Uniform => "uniform",
            Updates::Zipf => "zipf 0.99",
            Updates::Hot => "90/10",
        })
    }
}

/// What is done, but for the options of the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub(crate) keys: u64,
    /// Length of a whole record.
    pub(crate) record_bytes: usize,
    pub(crate) compressible: bool,
    pub(crate) updates: Updates,
    /// Updates for each key, before measuring and while measuring.
    pub(crate) warm_up: u64,
    pub(crate) measured: u64,
}

/// What came out, as factors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) logical_write: f64,
    pub(crate) write: f64,
    /// Writes, and what trimming has read.
    pub(crate) write_and_trim_reads: f64,
    pub(crate) logical_space: f64,
    pub(crate) space_mean: f64,
    pub(crate) space_peak: f64,
    /// By the drive's own account, where there is one.
    pub(crate) drive_space_mean: Option<f64>,
    pub(crate) counters: Counters,
}

/// A generator whose sequence is the same in each run.
pub(crate) struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Draws keys.
struct Keys {
    keys: u64,
    updates: Updates,
    /// Of the zipfian distribution by Gray and others, as YCSB has it.
    zeta: f64,
    eta: f64,
}

const THETA: f64 = 0.99;

impl Keys {
    fn new(keys: u64, updates: Updates) -> Keys {
        let zeta_of = |count: u64| (1..=count).map(|rank| (rank as f64).powf(-THETA)).sum::<f64>();
        let zeta = if updates == Updates::Zipf { zeta_of(keys) } else { 1.0 };
        let eta = (1.0 - (2.0 / keys as f64).powf(1.0 - THETA)) / (1.0 - zeta_of(2) / zeta);
        Keys { keys, updates, zeta, eta }
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        match self.updates {
            Updates::Uniform => rng.below(self.keys),
            Updates::Hot if rng.below(10) < 9 => rng.below(self.keys / 10) * 10,
            Updates::Hot => rng.below(self.keys),
            // Ranks are spread over the keys, as the first ones lie beside each other after the load.
            Updates::Zipf => self.rank(rng).wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.keys,
        }
    }

    fn rank(&self, rng: &mut Rng) -> u64 {
        let unit = rng.unit();
        let scaled = unit * self.zeta;
        match scaled {
            _ if scaled < 1.0 => 0,
            _ if scaled < 1.0 + 0.5f64.powf(THETA) => 1,
            _ => (self.keys as f64 * (self.eta * unit - self.eta + 1.0).powf(1.0 / (1.0 - THETA))) as u64 % self.keys,
        }
    }
}

struct Store {
    log: Arc<ValueLog>,
    writer: ValueWriter,
    collector: ValueWriter,
    handles: Vec<Handle>,
    pool: Vec<u8>,
    rng: Rng,
    value: Vec<u8>,
    compressible: bool,
    dead: BTreeMap<u64, Vec<Handle>>,
    /// Updates whose old handles die with the next sync.
    pending: Vec<(u64, Handle)>,
}

struct Keeper<'a>(&'a mut Vec<Handle>);

impl Owner for Keeper<'_> {
    fn is_live(&mut self, record: &Walked<'_>) -> Result<bool> {
        Ok(self.0[record.tag as usize] == record.handle)
    }

    fn moved(&mut self, moved: &[Moved]) -> Result<()> {
        moved.iter().for_each(|moved| self.0[moved.tag as usize] = moved.to);
        Ok(())
    }
}

impl Store {
    fn new(volume: Arc<Accounted>, options: Options, work: &Work) -> Result<Store> {
        let log = ValueLog::open(volume, &Env::system(), options, numbers_from(1), &[])?;
        let mut rng = Rng(7);
        let pool = (0..POOL_BYTES / 8).flat_map(|_| rng.next().to_le_bytes()).collect();
        let value = vec![0; work.record_bytes - RECORD_EXTRA];
        let (writer, collector) = (log.writer(), log.collecting_writer());
        let compressible = work.compressible;
        let (handles, dead, pending) = (Vec::new(), BTreeMap::new(), Vec::new());
        Ok(Store { log, writer, collector, handles, pool, rng, value, compressible, dead, pending })
    }

    fn append(&mut self, key: u64) -> Result<Handle> {
        let random = if self.compressible { self.value.len() / 2 } else { self.value.len() };
        let from = self.rng.below((POOL_BYTES - random) as u64) as usize;
        self.value[..random].copy_from_slice(&self.pool[from..from + random]);
        self.value[random..].fill(b' ');
        self.writer.append(key, &key.to_le_bytes(), &self.value)
    }

    fn load(&mut self, keys: u64) -> Result<()> {
        for key in 0..keys {
            let handle = self.append(key)?;
            self.handles.push(handle);
        }
        self.writer.sync().map(drop)
    }

    fn update(&mut self, key: u64) -> Result<()> {
        let new = self.append(key)?;
        self.pending.push((key, new));
        if self.pending.len() as u64 >= BATCH { self.end_batch() } else { Ok(()) }
    }

    fn end_batch(&mut self) -> Result<()> {
        self.writer.sync()?;
        for (key, new) in std::mem::take(&mut self.pending) {
            let old = std::mem::replace(&mut self.handles[key as usize], new);
            self.dead.entry(old.segment).or_default().push(old);
        }
        for (segment, handles) in std::mem::take(&mut self.dead) {
            self.log.died(segment, &handles)?;
        }
        while self.log.tidy()? {}
        while let Some(victim) = self.log.victim() {
            self.log.collect(victim.number, &mut self.collector, &mut Keeper(&mut self.handles))?;
            self.log.remove(victim.number)?;
            while self.log.tidy()? {}
        }
        Ok(())
    }

    fn logical_bytes(&self) -> u64 {
        self.log.segments().iter().map(|segment| segment.file_bytes).sum()
    }

    fn verify(&self) -> Result<()> {
        for (key, handle) in (0u64..).zip(&self.handles).step_by(97) {
            self.log.read(handle, &key.to_le_bytes())?;
        }
        Ok(())
    }
}

/// What one record takes when records lie one behind the other, compressed: the unit of all factors.
fn record_cost(store: &mut Store, record_bytes: usize) -> f64 {
    let mut bytes = Vec::new();
    for _ in 0..512 {
        let random = if store.compressible { (record_bytes - RECORD_EXTRA) / 2 } else { record_bytes };
        let from = store.rng.below((POOL_BYTES - random) as u64) as usize;
        bytes.extend_from_slice(&store.pool[from..from + random]);
        bytes.resize(bytes.len() + record_bytes - random, b' ');
    }
    let costs: u64 = bytes.chunks_exact(PAGE_BYTES).map(|sector| u64::from(cost(sector))).sum();
    costs as f64 / 512.0
}

/// Means over samples.
#[derive(Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        (self.sum, self.count) = (self.sum + value, self.count + 1.0);
    }

    fn get(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }
}

/// Runs the work. `drive` tells what the drive itself says that it uses.
pub(crate) fn run(
    volume: Arc<Accounted>,
    options: Options,
    work: &Work,
    drive: &dyn Fn() -> Option<u64>,
) -> Result<Outcome> {
    let sums = Arc::clone(&volume.sums);
    let drive_before = drive();
    let mut store = Store::new(volume, options, work)?;
    let record_cost = record_cost(&mut store, work.record_bytes);
    let live_cost = record_cost * work.keys as f64;
    store.load(work.keys)?;
    let (keys, mut rng) = (Keys::new(work.keys, work.updates), Rng(11));
    for _ in 0..work.keys * work.warm_up {
        store.update(keys.draw(&mut rng))?;
    }
    let (before, counters) = (sums.counts(), store.log.counters());
    let updates = work.keys * work.measured;
    let (mut used, mut peak, mut logical, mut drive_used) = (Mean::default(), 0.0f64, Mean::default(), Mean::default());
    for number in 0..updates {
        store.update(keys.draw(&mut rng))?;
        if number % (4 * BATCH) == 4 * BATCH - 1 {
            let now = sums.used() as f64 / live_cost;
            used.add(now);
            peak = peak.max(now);
            logical.add(store.logical_bytes() as f64 / (work.keys as usize * work.record_bytes) as f64);
        }
        if number % (updates / 8).max(1) == 0
            && let (Some(now), Some(before)) = (drive(), drive_before)
        {
            drive_used.add(now.saturating_sub(before) as f64 / live_cost);
        }
    }
    store.verify()?;
    let after = sums.counts();
    let [written, logical_written, trimming_read] = [0, 1, 2].map(|at| (after[at] - before[at]) as f64);
    let user = updates as f64 * record_cost;
    Ok(Outcome {
        logical_write: logical_written / (updates as f64 * work.record_bytes as f64),
        write: written / user,
        write_and_trim_reads: (written + trimming_read) / user,
        logical_space: logical.get().unwrap_or(f64::NAN),
        space_mean: used.get().unwrap_or(f64::NAN),
        space_peak: peak,
        drive_space_mean: drive_used.get(),
        counters: since(store.log.counters(), counters),
    })
}

/// What was done after `before`.
fn since(mut now: Counters, before: Counters) -> Counters {
    now.appended_bytes -= before.appended_bytes;
    now.collected_bytes -= before.collected_bytes;
    now.page_bytes_written -= before.page_bytes_written;
    now.zeroed_sector_bytes -= before.zeroed_sector_bytes;
    now.zeroing_read_bytes -= before.zeroing_read_bytes;
    now.discarded_bytes -= before.discarded_bytes;
    now.collection_read_bytes -= before.collection_read_bytes;
    now.segments_removed -= before.segments_removed;
    now.ranges_forgotten -= before.ranges_forgotten;
    now
}
