//! `compare recovery`: how long a store takes to open, after it was closed in order and after it was killed.
//!
//! 1. A child fills a fresh store with all records, lets it come to rest, and closes it.
//! 2. A child opens it and says how long that took: *closed*. It then writes as much as a memtable can hold without
//!    being written to a table, every write synced, and is killed. All of that is in the log and nowhere else.
//! 3. A child opens the store, says how long that took: *killed*, and looks for what had been acknowledged.
//!
//! The stores take turns, as in a comparison. `--before-open` is run before each opening, to empty the system's cache.
//!
//! **Failure.** A store that has lost an acknowledged write ends the measurement: it would be measured at something
//! else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use serde::{Deserialize, Serialize};
use situ_bench::{Machine, Store, StoreFailure, parse_count, table};

use crate::settings::StoreSettings;
use crate::stores::StoreKind;
use crate::{Outcome, run_shell, turns};

/// Measures how long stores take to open.
#[derive(Parser)]
#[command(name = "compare recovery", version)]
pub(crate) struct Arguments {
    /// Stores, in the order they take turns; each repetition begins with the next one.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "rocksdb,situ")]
    stores: Vec<StoreKind>,

    /// Runs of each store.
    #[arg(long, default_value_t = 3)]
    repeat: u32,

    /// Directory for the results; a new one.
    #[arg(long)]
    output: PathBuf,

    /// Directory to make the stores in.
    #[arg(long)]
    directory: PathBuf,

    /// A shell command that is run before each store is filled, with the store's name in STORE.
    #[arg(long)]
    prepare: Option<String>,

    /// A shell command that is run before each opening, such as one that empties the system's cache.
    #[arg(long)]
    before_open: Option<String>,

    /// Records of the store.
    #[arg(long, default_value = "1m", value_parser = parse_count)]
    keys: u64,

    /// Size of a value.
    #[arg(long, default_value_t = 1024)]
    value_bytes: usize,

    /// Threads that write.
    #[arg(long, default_value_t = 8)]
    threads: u64,

    /// How full the memtable, and with it the log, is to be when the store is killed. Beyond some 90% bookkeeping fills
    /// it.
    #[arg(long, default_value_t = 85)]
    log_percent: u64,

    #[command(flatten)]
    settings: StoreSettings,
}

/// First argument that asks for this.
pub(crate) const NAME: &str = "recovery";
/// First argument of a child.
pub(crate) const CHILD: &str = "--recovery-job";

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Step {
    Fill,
    OpenAndWrite,
    Open,
}

#[derive(Clone, Serialize, Deserialize)]
struct Job {
    step: Step,
    store: StoreKind,
    settings: StoreSettings,
    directory: PathBuf,
    keys: u64,
    value_bytes: usize,
    threads: u64,
    /// Writes of all threads after the store was opened.
    writes: u64,
    /// The file of the child's findings; it is whole as soon as it exists.
    told: PathBuf,
}

#[derive(Default, Serialize, Deserialize)]
struct Told {
    open_seconds: f64,
    disk_bytes: Option<u64>,
    table_bytes: f64,
}

/// One run, as it is kept.
#[derive(Serialize)]
struct Run {
    store: String,
    repetition: u32,
    date: String,
    machine: Machine,
    settings: situ_bench::Settings,
    keys: u64,
    value_bytes: usize,
    /// Tables of the store when it was closed in order.
    table_bytes: f64,
    /// All of its files then, those of the log included, which may be long and nearly empty.
    disk_bytes: Option<u64>,
    closed_open_seconds: f64,
    /// Keys and values that were written, and acknowledged as synced, before it was killed.
    written_user_bytes: u64,
    /// The bytes that the opening afterwards brought into tables: less than was written where a store wrote tables
    /// before.
    replayed_table_bytes: f64,
    killed_open_seconds: f64,
}

const KEY_BYTES: usize = 16;

/// A prime larger than any number of records.
const SCATTER: u128 = 0x9E37_79B1_85EB_CA87;

/// Records come in scattered order: the numbers below `keys`, each once, because the factor is a prime.
fn key(number: u64, keys: u64) -> [u8; KEY_BYTES] {
    let scattered = (u128::from(number) * SCATTER) % u128::from(keys.max(1));
    let mut key = [0; KEY_BYTES];
    key[KEY_BYTES - 8..].copy_from_slice(&u64::try_from(scattered).unwrap_or(0).to_be_bytes());
    key
}

/// Returns the value of a record, which tells the `life` that wrote it.
fn value(number: u64, life: u8, bytes: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x2545_F491_4F6C_DD1D) | 1;
    let mut value: Vec<u8> = (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    if let Some(first) = value.first_mut() {
        *first = life;
    }
    value
}

/// Puts the records `0..count`, shared out among the threads.
fn put_all(store: &dyn Store, job: &Job, count: u64, life: u8, sync: bool) -> Result<(), StoreFailure> {
    thread::scope(|scope| {
        let share = |thread: u64| {
            move || {
                (thread..count).step_by(job.threads as usize).try_for_each(|number| {
                    store.put(&key(number, job.keys), &value(number, life, job.value_bytes), sync)
                })
            }
        };
        let writers: Vec<_> = (0..job.threads).map(|thread| scope.spawn(share(thread))).collect();
        writers
            .into_iter()
            .try_for_each(|writer| writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Looks for what was acknowledged before the store was killed, and for some of what it had before.
fn check(store: &dyn Store, job: &Job) -> Outcome<()> {
    let mut found = Vec::new();
    let older = (job.writes..job.keys).step_by(997).map(|number| (number, 0));
    for (number, life) in (0..job.writes).map(|number| (number, 1)).chain(older) {
        let there = store.get(&key(number, job.keys), &mut found)?;
        if !there || found != value(number, life, job.value_bytes) {
            return Err(format!("record {number}, which had been acknowledged, is not what was written").into());
        }
    }
    Ok(())
}

pub(crate) fn run_job(path: &Path) -> Outcome<()> {
    let job: Job = serde_json::from_slice(&fs::read(path)?)?;
    let factory = job.store.factory(&job.settings);
    fs::create_dir_all(&job.directory)?;
    let started = Instant::now();
    let store = factory.open(&job.directory)?;
    let mut told = Told { open_seconds: started.elapsed().as_secs_f64(), ..Told::default() };
    // With what opening has replayed into memory and makes tables of behind.
    let table_bytes = |store: &dyn Store| -> Outcome<f64> {
        let detail = store.stats()?.detail;
        let tables = detail.get("table_bytes").ok_or("the store does not say how large its tables are")?;
        Ok(tables + if job.step == Step::Open { detail.get("memtable_bytes").copied().unwrap_or(0.0) } else { 0.0 })
    };
    // Before compactions have made anything of what was replayed.
    told.table_bytes = table_bytes(&*store)?;
    let tell = |told: &Told| -> Outcome<()> {
        let beside = job.told.with_extension("new");
        fs::write(&beside, serde_json::to_vec(told)?)?;
        Ok(fs::rename(beside, &job.told)?)
    };
    match job.step {
        Step::Fill => {
            put_all(&*store, &job, job.keys, 0, false)?;
            store.flush()?;
            store.wait_idle()?;
            told.disk_bytes = store.stats()?.disk_bytes;
            told.table_bytes = table_bytes(&*store)?;
            drop(store);
            tell(&told)
        }
        Step::OpenAndWrite => {
            store.wait_idle()?;
            put_all(&*store, &job, job.writes, 1, true)?;
            told.table_bytes = table_bytes(&*store)?;
            tell(&told)?;
            // Until it is killed.
            loop {
                thread::sleep(Duration::from_secs(3600));
            }
        }
        Step::Open => {
            check(&*store, &job)?;
            drop(store);
            factory.remove(&job.directory)?;
            tell(&told)
        }
    }
}

/// Runs a child to its end, or, if it is to be killed, until it has reported.
fn run_child(job: &Job, path: &Path, kill: bool) -> Outcome<Told> {
    fs::write(path, serde_json::to_vec(job)?)?;
    let mut child = Command::new(std::env::current_exe()?).arg(CHILD).arg(path).spawn()?;
    let outcome = wait(&mut child, &job.told, kill);
    if outcome.is_err() {
        // It may have ended already.
        let _ = child.kill();
        let _ = child.wait();
    }
    outcome?;
    let told = serde_json::from_slice(&fs::read(&job.told)?)?;
    fs::remove_file(&job.told)?;
    fs::remove_file(path)?;
    Ok(told)
}

fn wait(child: &mut Child, told: &Path, kill: bool) -> Outcome<()> {
    loop {
        if let Some(status) = child.try_wait()? {
            return if status.success() && !kill { Ok(()) } else { Err(status.to_string().into()) };
        }
        if kill && told.exists() {
            child.kill()?;
            child.wait()?;
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn measure(command: &Arguments, store: StoreKind, repetition: u32, date: &str) -> Outcome<Run> {
    let name = format!("{store}-{repetition}");
    let entry_bytes = (KEY_BYTES + command.value_bytes) as u64;
    let writes = (command.settings.memtable_bytes / 100 * command.log_percent / entry_bytes).min(command.keys);
    let job = |step| Job {
        step,
        store,
        settings: command.settings.clone(),
        directory: command.directory.join(&name),
        keys: command.keys,
        value_bytes: command.value_bytes,
        threads: command.threads,
        writes,
        told: command.output.join(format!("{name}.told")),
    };
    let path = command.output.join(format!("{name}.job"));
    let step = |step, kill| -> Outcome<Told> {
        if step != Step::Fill {
            run_shell(command.before_open.as_deref(), store)?;
        }
        run_child(&job(step), &path, kill).map_err(|why| format!("{store}, run {repetition}: {why}").into())
    };
    run_shell(command.prepare.as_deref(), store)?;
    let filled = step(Step::Fill, false)?;
    let closed = step(Step::OpenAndWrite, true)?;
    let killed = step(Step::Open, false)?;
    Ok(Run {
        store: store.to_string(),
        repetition,
        date: date.to_owned(),
        machine: Machine::describe(&command.directory),
        settings: store.factory(&command.settings).settings(),
        keys: command.keys,
        value_bytes: command.value_bytes,
        table_bytes: filled.table_bytes,
        disk_bytes: filled.disk_bytes,
        closed_open_seconds: closed.open_seconds,
        written_user_bytes: writes * entry_bytes,
        replayed_table_bytes: killed.table_bytes - closed.table_bytes,
        killed_open_seconds: killed.open_seconds,
    })
}

pub(crate) fn run(command: &Arguments) -> Outcome<()> {
    if command.repeat == 0 || command.stores.is_empty() || command.threads == 0 || command.keys == 0 {
        return Err("nothing to run: stores, repeat, threads and keys must not be empty or zero".into());
    }
    if let Some((store, why)) =
        command.stores.iter().find_map(|store| store.refuses(&command.settings).map(|why| (store, why)))
    {
        return Err(format!("{store}: {why}").into());
    }
    fs::create_dir(&command.output).map_err(|error| format!("{}: {error}", command.output.display()))?;
    fs::create_dir_all(&command.directory)?;
    println!("{:<18} {:>10} {:>14} {:>12} {:>14}", "store", "tables", "open, closed", "replayed", "open, killed");
    for repetition in 1..=command.repeat {
        for store in turns(&command.stores, repetition) {
            let run = measure(command, store, repetition, &situ_bench::date_now())?;
            let text = serde_json::to_string_pretty(&run)? + "\n";
            fs::write(command.output.join(format!("{store}-{repetition}.json")), text)?;
            println!(
                "{:<18} {:>10} {:>14} {:>12} {:>14}",
                run.store,
                table::bytes(run.table_bytes),
                table::time(run.closed_open_seconds * 1e9),
                table::bytes(run.replayed_table_bytes),
                table::time(run.killed_open_seconds * 1e9),
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// A record that came twice would make the store smaller than it is said to be.
    #[test]
    fn every_record_has_its_own_key() {
        for keys in [1, 2, 997, 100_000] {
            let distinct: HashSet<_> = (0..keys).map(|number| key(number, keys)).collect();
            assert_eq!(distinct.len() as u64, keys);
        }
    }

    #[test]
    fn what_was_acknowledged_is_looked_for() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let factory = StoreKind::Situ.factory(&StoreSettings::default());
        let store = factory.open(directory.path()).expect("open");
        let job = Job {
            step: Step::Open,
            store: StoreKind::Situ,
            settings: StoreSettings::default(),
            directory: directory.path().to_owned(),
            keys: 2000,
            value_bytes: 100,
            threads: 3,
            writes: 50,
            told: PathBuf::new(),
        };
        put_all(&*store, &job, job.keys, 0, false).expect("put");
        assert!(check(&*store, &job).is_err(), "the writes of the second life are missing");
        put_all(&*store, &job, job.writes, 1, true).expect("put");
        check(&*store, &job).expect("all is there");
        store.delete(&key(49, job.keys), false).expect("delete");
        assert!(check(&*store, &job).unwrap_err().to_string().contains("record 49"));
    }
}
