//! A run: opens the store, does its workloads in order, and puts the result together.
//!
//! 1. The store lives in `directory/store`, which the run makes. A workload that wants a fresh store gets one, unless
//!    it is the first or the run uses an existing store.
//! 2. A workload's requests are driven and measured.
//! 3. After a workload that wrote, the store is left to finish its background work: the bytes it writes then were
//!    caused by the workload and count in its write amplification, and the next workload starts from rest.
//! 4. At the end the store is closed and, unless it is to be kept, removed, with the directories that the run has made.
//!
//! **Servers.** A store in a server ([`StoreFactory::is_served`]) is not made, emptied or removed. The result has no
//! figures of its files.
//!
//! **Failure.** The run ends with the first error and leaves the store where it is, to be looked at. A store that
//! cannot be opened leaves no empty directory, which would be in the way of the next run.
//!
//! **Interrupts.** A run that is asked to end ([`Stop`]) removes its store as at its end, and returns
//! [`Error::Stopped`].

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::content::Values;
use crate::distribution::Inserted;
use crate::driver::{Control, Driven, drive};
use crate::error::{Error, Result};
use crate::options::BenchOptions;
use crate::process::{Machine, Usage, date_now, directory_bytes, unix_ms_now};
use crate::random::Random;
use crate::replay::Replay;
use crate::result::{BenchResult, PhaseResult, RESULT_FORMAT, Sample, Series};
use crate::sampler::{cpu_since, sample, since};
use crate::stop::Stop;
use crate::store::{Store, StoreFactory, StoreStats};
use crate::work::Work;
use crate::workload::{Dataset, LiveKeys, Worker, failed};
use crate::workloads::Workload;

/// Points of a series kept in a result.
const POINTS_MAX: usize = 1200;

/// The default time of the workload that does nothing.
const IDLE_SECONDS: f64 = 30.0;

/// Runs the workloads of `options` on a store of `factory`.
///
/// # Errors
/// Options that cannot be run, an error of the store, or an answer of the store that cannot be right.
pub fn run(options: &BenchOptions, factory: &dyn StoreFactory) -> Result<BenchResult> {
    run_until(options, factory, &Stop::default())
}

/// Runs like [`run`], and shows each phase as soon as it is done.
///
/// # Errors
/// As [`run`].
pub fn run_observed(
    options: &BenchOptions,
    factory: &dyn StoreFactory,
    observe: &mut dyn FnMut(&PhaseResult),
) -> Result<BenchResult> {
    run_all(options, factory, &Stop::default(), observe)
}

/// Runs like [`run`], and ends early when `stop` says so.
///
/// # Errors
/// As [`run`]; [`Error::Stopped`] if it was stopped: the files of the run are removed then, unless they are to be kept.
pub fn run_until(options: &BenchOptions, factory: &dyn StoreFactory, stop: &Stop) -> Result<BenchResult> {
    run_all(options, factory, stop, &mut |_| {})
}

fn run_all(
    options: &BenchOptions,
    factory: &dyn StoreFactory,
    stop: &Stop,
    observe: &mut dyn FnMut(&PhaseResult),
) -> Result<BenchResult> {
    options.check()?;
    check_order(options)?;
    if options.connect.is_some() != factory.is_served() {
        return Err(Error::Options("--connect is for a server, and this store is none".to_owned()));
    }
    let date = date_now();
    let baseline_anonymous_bytes = Usage::now().anonymous_bytes;
    let mut session = Session::open(options, factory, stop)?;
    let store_name = session.store()?.name();
    let mut phases = Vec::with_capacity(options.workloads.len());
    for (index, workload) in options.workloads.iter().enumerate() {
        let phase = session.run(index, *workload);
        if stop.is_asked() {
            session.close()?;
            return Err(Error::Stopped);
        }
        let phase = phase?;
        observe(&phase);
        phases.push(phase);
    }
    let mut machine = Machine::describe(&options.directory);
    if factory.is_served() {
        // The server's disk is unknown.
        machine.disk.clear();
    }
    session.close()?;
    Ok(BenchResult {
        format: RESULT_FORMAT.to_owned(),
        label: options.label.clone().unwrap_or_else(|| factory.name()),
        store: store_name,
        store_settings: factory.settings(),
        date,
        commit: options.commit.clone(),
        machine,
        options: options.clone(),
        clock_ns: clock_cost_ns(),
        baseline_anonymous_bytes,
        phases,
    })
}

/// Workloads on records need them: without, they would measure failed lookups.
fn check_order(options: &BenchOptions) -> Result<()> {
    let mut loaded = None;
    for workload in options.workloads.iter().filter(|_| !options.existing) {
        if workload.wants_fresh_store() {
            loaded = workload.loads();
        }
        if let Some(records) = workload.needs()
            && loaded != Some(records)
        {
            let loader = Workload::loader(records);
            return Err(Error::Options(format!(
                "{workload} needs records: put {loader} before it, or use an existing store"
            )));
        }
    }
    Ok(())
}

/// Nanoseconds that one reading of the clock takes.
fn clock_cost_ns() -> f64 {
    const READINGS: u32 = 10_000;
    let start = Instant::now();
    for _ in 0..READINGS {
        std::hint::black_box(Instant::now());
    }
    start.elapsed().as_nanos() as f64 / f64::from(READINGS)
}

/// The store and what is in it.
struct Session<'a> {
    options: &'a BenchOptions,
    factory: &'a dyn StoreFactory,
    stop: &'a Stop,
    path: PathBuf,
    /// Directories that the run has made to put the store in, the innermost first.
    made: Vec<PathBuf>,
    store: Option<Arc<dyn Store>>,
    dataset: Dataset,
    /// Bytes of loaded records and of what was inserted since, keys included; none once a workload has deleted some.
    record_bytes: Option<u64>,
    /// The trace of the workload replay.
    replay: Option<Replay>,
    used: bool,
}

impl<'a> Session<'a> {
    fn open(options: &'a BenchOptions, factory: &'a dyn StoreFactory, stop: &'a Stop) -> Result<Self> {
        let replay = options.replay.as_deref();
        let replay = replay.map(|trace| Replay::open(trace, options.pace, options.operations)).transpose()?;
        let path = options.directory.join("store");
        let is_served = factory.is_served();
        if !is_served && options.existing != path.exists() {
            let shown = path.display();
            return Err(Error::Directory(match options.existing {
                true => format!("there is no store in {shown}: run once with --keep, which leaves one there"),
                false => format!("an earlier run has left its store in {shown}: remove it, or use it with --existing"),
            }));
        }
        let made = options.directory.ancestors().filter(|above| is_missing(above)).map(Path::to_owned).collect();
        let mut session = Self {
            options,
            factory,
            stop,
            path,
            made,
            store: None,
            dataset: empty_dataset(options),
            record_bytes: Some(0),
            replay,
            used: options.existing,
        };
        if options.existing {
            session.dataset.inserted = Inserted::new(options.keys);
        }
        if is_served {
            session.reopen()?;
            return Ok(session);
        }
        let made = fs::create_dir_all(&session.path).map_err(|source| Error::file(&session.path, source));
        if let Err(error) = made.and_then(|()| session.reopen()) {
            // Only if it is empty: a store that cannot be opened is there to be looked at.
            let _ = fs::remove_dir(&session.path);
            session.remove_made();
            return Err(error);
        }
        Ok(session)
    }

    fn store(&self) -> Result<&Arc<dyn Store>> {
        self.store.as_ref().ok_or_else(|| Error::Wrong("the store is not open".to_owned()))
    }

    fn reopen(&mut self) -> Result<()> {
        // The old one must be gone before its directory is opened again.
        self.let_go();
        let store = self.factory.open(&self.path);
        let store = store.map_err(|source| Error::Store { during: "open".to_owned(), source })?;
        self.stop.watch(Some(&store));
        self.store = Some(store);
        Ok(())
    }

    fn let_go(&mut self) {
        self.stop.watch(None);
        self.store = None;
    }

    fn start_fresh(&mut self) -> Result<()> {
        self.remove()?;
        fs::create_dir_all(&self.path).map_err(|source| Error::file(&self.path, source))?;
        self.dataset = empty_dataset(self.options);
        self.record_bytes = Some(0);
        self.reopen()
    }

    fn close(mut self) -> Result<()> {
        self.let_go();
        if self.options.keep || self.options.existing || self.factory.is_served() {
            return Ok(());
        }
        self.remove()?;
        self.remove_made();
        Ok(())
    }

    /// Removes the directories that the run has made. A directory that holds other files stays.
    fn remove_made(&self) {
        for directory in &self.made {
            let _ = fs::remove_dir(directory);
        }
    }

    /// Removes the store, wherever its parts lie.
    fn remove(&mut self) -> Result<()> {
        self.let_go();
        let removed = self.factory.remove(&self.path);
        removed.map_err(|source| Error::Store { during: "remove".to_owned(), source })?;
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::file(&self.path, error)),
            _ => Ok(()),
        }
    }

    fn run(&mut self, index: usize, workload: Workload) -> Result<PhaseResult> {
        if workload.wants_fresh_store() && !self.options.existing {
            if self.used && !self.factory.is_served() {
                self.start_fresh()?;
            }
            if workload.loads().is_some() {
                self.dataset.inserted = Inserted::new(0);
            }
        }
        self.used = true;
        if workload == Workload::Replay && !self.options.existing {
            self.load_what_the_trace_finds()?;
        }
        Usage::reset_peak();
        let before = Usage::now();
        let store_before = self.stats(workload)?;
        let began_unix_ms = unix_ms_now();
        let phase = match workload.is_maintenance() {
            true => self.maintain(workload, &before, &store_before)?,
            false => self.measure(index, workload, &before, &store_before)?,
        };
        Ok(PhaseResult { began_unix_ms, ..phase })
    }

    /// Puts the items into the store that the first requests of the trace find.
    fn load_what_the_trace_finds(&self) -> Result<()> {
        let (Some(replay), store) = (&self.replay, self.store()?) else { return Ok(()) };
        let mut random = Random::new(self.options.seed);
        let mut values = Values::new(self.options.compression_ratio, replay.value_bytes_max(), &mut random);
        replay.found_first(|key, value_bytes| {
            if self.stop.is_asked() {
                return Err(Error::Stopped);
            }
            let put = store.put(key, values.next(value_bytes), false);
            put.map_err(|source| failed(Workload::Replay, source))
        })?;
        store.wait_idle().map_err(|source| failed(Workload::Replay, source))
    }

    fn stats(&self, workload: Workload) -> Result<StoreStats> {
        self.store()?.stats().map_err(|source| failed(workload, source))
    }

    fn maintain(&mut self, workload: Workload, before: &Usage, store_before: &StoreStats) -> Result<PhaseResult> {
        let start = Instant::now();
        let outcome = match workload {
            Workload::Flush => self.store()?.flush(),
            Workload::Compact => self.store()?.compact_all(),
            Workload::Reopen => {
                self.reopen()?;
                Ok(())
            }
            Workload::Idle => {
                let seconds = self.options.duration_seconds.unwrap_or(IDLE_SECONDS);
                self.stop.sleep(Duration::from_secs_f64(seconds));
                Ok(())
            }
            _ => self.store()?.wait_idle(),
        };
        outcome.map_err(|source| failed(workload, source))?;
        let mut phase = PhaseResult {
            workload: workload.to_string(),
            seconds: start.elapsed().as_secs_f64(),
            ..PhaseResult::default()
        };
        let now = Usage::now();
        phase.cpu_user_seconds = cpu_part(before.cpu_user_seconds, now.cpu_user_seconds);
        phase.cpu_system_seconds = cpu_part(before.cpu_system_seconds, now.cpu_system_seconds);
        self.conclude(workload, &mut phase, before, store_before)?;
        Ok(phase)
    }

    fn measure(
        &mut self,
        index: usize,
        workload: Workload,
        before: &Usage,
        store_before: &StoreStats,
    ) -> Result<PhaseResult> {
        let control = Control::new(self.options.threads as usize, self.stop.clone());
        let name = workload.to_string();
        let done = AtomicBool::new(false);
        let mut samples = Vec::new();
        let store = self.store()?;
        let outcome = thread::scope(|scope| {
            let sampler = scope.spawn(|| sample(&name, before, &done, &|| control.operations(), &|| store.units()));
            let outcome = self.drive_and_settle(index, workload, &control);
            done.store(true, Ordering::Release);
            sampler.thread().unpark();
            samples = sampler.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            outcome
        });
        let (driven, requests_end, settle_seconds) = outcome?;
        let usage = requests_end.usage;
        self.record_bytes = match workload {
            Workload::LinkBench | Workload::Replay => None,
            _ => self.record_bytes.map(|bytes| bytes + driven.tally.inserted_bytes),
        };
        let mut phase = self.phase(workload, &driven);
        phase.cpu_user_seconds = cpu_part(before.cpu_user_seconds, usage.cpu_user_seconds);
        phase.cpu_system_seconds = cpu_part(before.cpu_system_seconds, usage.cpu_system_seconds);
        phase.settle_seconds = settle_seconds;
        phase.requests_ended_unix_ms = requests_end.unix_ms;
        phase.work_before_settling = work_since(store_before, &requests_end.stats);
        phase.settle_cpu_seconds = cpu_since(&usage, &Usage::now());
        phase.anonymous_bytes_peak = peak(&samples);
        phase.samples = samples;
        self.conclude(workload, &mut phase, before, store_before)?;
        Ok(phase)
    }

    /// Issues the requests, then lets the store finish. Returns how things were when the requests were done.
    fn drive_and_settle(
        &self,
        index: usize,
        workload: Workload,
        control: &Control,
    ) -> Result<(Driven, RequestsEnd, f64)> {
        let options = self.options;
        let store = self.store()?;
        let chooser = workload.chooser(options, self.dataset.inserted.count());
        let replay = self.replay.as_ref().filter(|_| workload == Workload::Replay);
        let value_bytes_max = replay.map_or(0, Replay::value_bytes_max);
        let mut shares = replay.map_or_else(Vec::new, |replay| replay.share(options.threads)).into_iter();
        let mut worker = |thread: u32| {
            // Streams differ between threads and between phases, and repeat from run to run.
            let stream = ((index as u64) << 32) + u64::from(thread);
            let seed = options.seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(stream);
            let worker = Worker::new(workload, options, &self.dataset, chooser.clone(), seed);
            match shares.next() {
                Some(share) => worker.replaying(share, value_bytes_max),
                None => worker,
            }
        };
        let workers = (0..options.threads).map(&mut worker).collect();
        let background = (workload == Workload::ReadWhileWriting).then(|| worker(options.threads));
        let driven = drive(workload, options, store.as_ref(), control, workers, background)?;
        let end = RequestsEnd { usage: Usage::now(), unix_ms: unix_ms_now(), stats: self.stats(workload)? };
        let settle = Instant::now();
        if driven.tally.user_bytes_written > 0 && !options.no_settle {
            store.wait_idle().map_err(|source| failed(workload, source))?;
        }
        Ok((driven, end, settle.elapsed().as_secs_f64()))
    }

    fn phase(&self, workload: Workload, driven: &Driven) -> PhaseResult {
        let Driven { merged, tally } = driven;
        let seconds = merged.elapsed.as_secs_f64();
        let (interval_ms, slots) = merged.series(POINTS_MAX);
        PhaseResult {
            workload: workload.to_string(),
            threads: self.options.threads,
            outstanding: self.options.outstanding,
            target_rate: self.options.rate,
            seconds,
            operations: merged.operations,
            operations_per_second: if seconds > 0.0 { merged.operations as f64 / seconds } else { 0.0 },
            found: tally.found,
            missed: tally.missed,
            user_bytes_written: tally.user_bytes_written,
            user_bytes_read: tally.user_bytes_read,
            latencies: merged.latencies(),
            p99_ns: merged.quantile_ns(0.99),
            p999_ns: merged.quantile_ns(0.999),
            longest_stall_ms: merged.longest_stall_ms(),
            series: Series {
                interval_ms,
                operations: slots.iter().map(|slot| slot.operations).collect(),
                latency_ns_max: slots.iter().map(|slot| slot.latency_ns_max).collect(),
            },
            ..PhaseResult::default()
        }
    }

    /// Values of changing sizes replace each other, and what an earlier run has left is not known.
    fn knows_live_bytes(&self) -> bool {
        !self.options.existing && self.options.value_schedule.is_none()
    }

    /// Fills in what is known only when all work of the phase is done.
    fn conclude(
        &self,
        workload: Workload,
        phase: &mut PhaseResult,
        before: &Usage,
        store_before: &StoreStats,
    ) -> Result<()> {
        let now = Usage::now();
        phase.settled_unix_ms = unix_ms_now();
        let stats = self.stats(workload)?;
        phase.work = work_since(store_before, &stats);
        phase.table_write_amplification =
            phase.work.as_ref().and_then(|work| work.table_write_amplification(phase.user_bytes_written));
        phase.resident_bytes_peak = now.resident_bytes_peak;
        phase.stats = stats;
        if self.factory.is_served() {
            // The files are another process's.
            return Ok(());
        }
        let stats = &phase.stats;
        phase.disk_bytes_read = since(before.disk_bytes_read, now.disk_bytes_read);
        phase.disk_bytes_written = since(before.disk_bytes_written, now.disk_bytes_written);
        phase.disk_bytes_cancelled = since(before.disk_bytes_cancelled, now.disk_bytes_cancelled);
        phase.write_amplification = ratio(phase.disk_bytes_written, phase.user_bytes_written);
        let by_store = since(store_before.disk_bytes_written, stats.disk_bytes_written);
        phase.store_write_amplification = ratio(by_store, phase.user_bytes_written);
        phase.disk_bytes = stats.disk_bytes.unwrap_or_else(|| directory_bytes(&self.path));
        phase.live_user_bytes = self.record_bytes.filter(|_| self.knows_live_bytes()).map(|record_bytes| {
            let entry_bytes = (self.options.key_bytes + self.options.value_bytes) as u64;
            self.dataset.live.count() * entry_bytes + record_bytes
        });
        phase.space_amplification = phase.live_user_bytes.and_then(|live| ratio(Some(phase.disk_bytes), live));
        Ok(())
    }
}

/// The figures at the moment when the last request of a workload was done.
struct RequestsEnd {
    usage: Usage,
    unix_ms: u64,
    stats: StoreStats,
}

fn work_since(before: &StoreStats, now: &StoreStats) -> Option<Work> {
    Some(now.work.as_ref()?.since(before.work.as_ref()?))
}

/// Returns true if a directory is to be made. The empty path is the working directory.
fn is_missing(directory: &Path) -> bool {
    !directory.as_os_str().is_empty() && !directory.exists()
}

fn empty_dataset(options: &BenchOptions) -> Dataset {
    Dataset { live: LiveKeys::new(options.keys), inserted: Inserted::new(0) }
}

fn peak(samples: &[Sample]) -> Option<u64> {
    samples.iter().filter_map(|sample| sample.anonymous_bytes).max()
}

fn cpu_part(before: Option<f64>, now: Option<f64>) -> Option<f64> {
    Some(now? - before?)
}

fn ratio(part: Option<u64>, whole: u64) -> Option<f64> {
    (whole > 0).then_some(part? as f64 / whole as f64)
}

#[cfg(test)]
mod tests;
