//! `compare`: the same workloads on several stores, with equal settings, in the same hour on the same machine.
//!
//! 1. For each repetition, each store in turn, and another one first in each (A B C, B C A, C A B, ...): a drift of the
//!    machine falls on all alike, and so does what a run leaves behind for the next.
//! 2. Each run is a child process of this one, in a fresh directory, so that peak memory, CPU time and bytes written
//!    are of that run alone. Dirty pages of the run before are written back first.
//! 3. The raw result of each run is kept; the summary has, per workload, each store's median and spread and the median
//!    and spread of its ratio to the baseline *within a repetition*; the page draws all of it.
//!
//! `compare recovery` measures something else: how long stores take to open (`recovery.rs`). `compare checkpoints`
//! measures how long writers stop for a checkpoint (`checkpoints.rs`).
//!
//! **Failure.** A run that fails ends the comparison with the child's own message; results so far are kept.
//!
//! *Rejected:* all stores in one process. Allocators keep what the last store used, and background threads of one store
//! would be charged to the next.

#![forbid(unsafe_code)]

mod checkpoints;
mod fjall_store;
mod recovery;
mod rocksdb_store;
mod settings;
mod situ_store;
mod stores;
mod summary;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use serde::{Deserialize, Serialize};
use situ_bench::{BenchOptions, BenchResult, PhaseResult, report, run_observed, table};

use crate::settings::StoreSettings;
use crate::stores::StoreKind;
use crate::summary::Summary;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Runs the same workloads on several stores, interleaved, and compares them.
#[derive(Parser)]
#[command(name = "compare", version)]
struct Arguments {
    /// Stores, in the order they take turns; each repetition begins with the next one.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "rocksdb,situ,fjall")]
    stores: Vec<StoreKind>,

    /// Store that the others are compared with [default: rocksdb, or the first if it is not among them]
    #[arg(long, value_enum)]
    baseline: Option<StoreKind>,

    /// Runs of each store.
    #[arg(long, default_value_t = 5)]
    repeat: u32,

    /// Directory for the results; a new one.
    #[arg(long, default_value = "compare-results")]
    output: PathBuf,

    /// A shell command that is run before each run, with the store's name in STORE: to make a fast disk ready for it.
    #[arg(long)]
    prepare: Option<String>,

    /// Prints the summary as JSON instead of a table.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    settings: StoreSettings,

    #[command(flatten)]
    options: BenchOptions,
}

/// The order to a child, in a file: exactly that of the parent.
#[derive(Serialize, Deserialize)]
struct Job {
    store: StoreKind,
    settings: StoreSettings,
    options: BenchOptions,
    result: PathBuf,
}

/// First argument of a child.
const CHILD: &str = "--job";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let outcome = match (arguments.next(), arguments.next()) {
        (Some(flag), Some(job)) if flag == CHILD => run_job(Path::new(&job)),
        (Some(flag), Some(job)) if flag == recovery::CHILD => recovery::run_job(Path::new(&job)),
        (Some(name), _) if name == recovery::NAME => {
            recovery::run(&recovery::Arguments::parse_from(std::env::args_os().skip(1)))
        }
        (Some(name), _) if name == checkpoints::NAME => {
            checkpoints::run(&checkpoints::Arguments::parse_from(std::env::args_os().skip(1)))
        }
        _ => compare(&Arguments::parse()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_job(path: &Path) -> Outcome<()> {
    let job: Job = serde_json::from_slice(&fs::read(path)?)?;
    let factory = job.store.factory(&job.settings);
    let mut observe = |phase: &PhaseResult| {
        let seconds = table::time(phase.seconds * 1e9);
        let rate = table::rate(phase.operations_per_second);
        eprintln!("  {:<18} {rate:>12}  {seconds:>9}", phase.workload);
    };
    let result = run_observed(&job.options, factory.as_ref(), &mut observe)?;
    result.write_json(&job.result)?;
    Ok(())
}

fn compare(command: &Arguments) -> Outcome<()> {
    if command.repeat == 0 || command.stores.is_empty() {
        return Err("nothing to run: stores and repeat must not be empty".into());
    }
    let baseline = baseline(command.baseline, &command.stores)?.to_string();
    for store in &command.stores {
        if let Some(why) = store.refuses(&command.settings) {
            return Err(format!("{store}: {why}").into());
        }
        store.options(&command.options, &command.settings).check()?;
    }
    if command.options.existing || command.options.keep {
        return Err("every run has a fresh store: --existing and --keep have no place here".into());
    }
    fs::create_dir(&command.output).map_err(|error| format!("{}: {error}", command.output.display()))?;
    let mut results = Vec::new();
    for repetition in 1..=command.repeat {
        for store in turns(&command.stores, repetition) {
            eprintln!("{store}, run {repetition} of {}", command.repeat);
            results.push(run_child(command, store, repetition)?);
        }
    }
    let summary = Summary::of(&results, &baseline);
    fs::write(command.output.join("summary.json"), serde_json::to_string_pretty(&summary)? + "\n")?;
    let page = report::render("Comparison", Some(&baseline), &results)?;
    fs::write(command.output.join("report.html"), page)?;
    if command.json {
        println!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        print!("{}", summary.render());
    }
    Ok(())
}

/// Returns the store that the others are compared with; there is at least one.
fn baseline(given: Option<StoreKind>, stores: &[StoreKind]) -> Outcome<StoreKind> {
    match given {
        Some(store) if !stores.contains(&store) => Err(format!("the baseline {store} is not among the stores").into()),
        Some(store) => Ok(store),
        None if stores.contains(&StoreKind::Rocksdb) => Ok(StoreKind::Rocksdb),
        None => Ok(stores[0]),
    }
}

/// Returns the stores in the order of a repetition, the first being 1.
fn turns(stores: &[StoreKind], repetition: u32) -> Vec<StoreKind> {
    let mut turns = stores.to_vec();
    let by = (repetition as usize - 1) % stores.len();
    turns.rotate_left(by);
    turns
}

fn run_child(command: &Arguments, store: StoreKind, repetition: u32) -> Outcome<BenchResult> {
    let name = format!("{store}-{repetition}");
    let mut options = store.options(&command.options, &command.settings);
    options.directory = command.options.directory.join(&name);
    options.label = Some(store.to_string());
    let result = command.output.join(format!("{name}.json"));
    let job = Job { store, settings: command.settings.clone(), options, result: result.clone() };
    let job_path = command.output.join(format!("{name}.job"));
    fs::write(&job_path, serde_json::to_vec(&job)?)?;

    run_shell(command.prepare.as_deref(), store)?;
    // Pages that the run before left dirty are written back now, not at this run's cost.
    if !Command::new("sync").status()?.success() {
        return Err("sync failed: earlier writes would disturb this run".into());
    }
    let status = Command::new(std::env::current_exe()?).arg(CHILD).arg(&job_path).status()?;
    if !status.success() {
        return Err(format!("{store}, run {repetition}: {status}").into());
    }
    fs::remove_file(&job_path)?;
    Ok(BenchResult::read_json(&result)?)
}

/// Runs a shell command, if there is one, with the store's name in STORE.
fn run_shell(command: Option<&str>, store: StoreKind) -> Outcome<()> {
    let Some(command) = command else { return Ok(()) };
    let status = Command::new("sh").args(["-c", command]).env("STORE", store.to_string()).status()?;
    if !status.success() {
        return Err(format!("{store}: the command `{command}`: {status}").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_is_among_the_stores() {
        use StoreKind::{Rocksdb, Situ, SituPinned};
        assert_eq!(baseline(None, &[Situ, Rocksdb]).expect("one"), Rocksdb);
        assert_eq!(baseline(None, &[Situ, SituPinned]).expect("one"), Situ);
        assert_eq!(baseline(Some(SituPinned), &[Situ, SituPinned]).expect("one"), SituPinned);
        assert!(baseline(Some(Rocksdb), &[Situ]).is_err());
    }

    #[test]
    fn each_store_is_first_in_turn() {
        let stores = [StoreKind::Rocksdb, StoreKind::Situ, StoreKind::Fjall];
        let first: Vec<StoreKind> = (1..=4).map(|repetition| turns(&stores, repetition)[0]).collect();
        assert_eq!(first, [StoreKind::Rocksdb, StoreKind::Situ, StoreKind::Fjall, StoreKind::Rocksdb]);
        assert_eq!(turns(&stores, 3), [StoreKind::Fjall, StoreKind::Rocksdb, StoreKind::Situ]);
    }
}
