//! Pipelines in the simulated world: each read is answered by a thread of its own, and the seed decides who runs when.

use super::*;
use crate::task::TableInput;
use situ_sim::{Fault, FaultPlan, Operation, Rule, SimExecutor, SimVolume, for_each_seed};
use situ_storage::{FileName, Volume};
use situ_table::{BlockCache, KeyRef, Table, TableWriter};

/// A pipeline that stands still asks whether it is cancelled for ever; this is long enough to be sure.
const STANDS_STILL: Duration = Duration::from_secs(600);

struct Host {
    env: Env,
    volume: SimVolume,
    next: AtomicU64,
    cancelled_at: u64,
    asked: AtomicU64,
}

impl TaskHost for Host {
    fn reserve(&self, _level: u32) -> situ_storage::Result<TablePlace> {
        Ok(TablePlace { volume: 0, number: self.next.fetch_add(1, Ordering::Relaxed) })
    }

    fn create(&self, _level: u32, place: TablePlace) -> situ_storage::Result<(TablePlace, Box<dyn Writer>)> {
        Ok((place, self.volume.create(FileName::Table(place.number), 0)?))
    }

    fn pace(&self, _bytes: u64) {
        self.env.clock.sleep(Duration::from_millis(1));
    }

    fn cancelled(&self) -> bool {
        assert!(self.env.clock.now() < STANDS_STILL, "the pipeline stands still");
        self.env.executor.yield_point();
        self.asked.fetch_add(1, Ordering::Relaxed) >= self.cancelled_at
    }
}

impl Host {
    fn new(env: &Env, seed: u64) -> Host {
        let volume = SimVolume::new(env, FaultPlan::none(), seed);
        let (next, asked) = (AtomicU64::new(1), AtomicU64::new(0));
        Host { env: env.clone(), volume, next, cancelled_at: u64::MAX, asked }
    }

    fn bytes(&self, output: &TaskOutput) -> Vec<Vec<u8>> {
        output.tables.iter().map(|table| self.volume.contents(FileName::Table(table.number)).unwrap()).collect()
    }

    fn input(&self, contents: &Contents, options: &TableOptions, cache: &Arc<BlockCache>) -> TableInput {
        let (TablePlace { number, .. }, file) = self.new_table(0).unwrap();
        let mut writer = TableWriter::new(file, options, 0).unwrap();
        for entry in &contents.entries {
            writer.add(KeyRef::new(&entry.key, entry.trailer), &entry.value).unwrap();
        }
        writer.finish().unwrap();
        let reader = self.volume.open(FileName::Table(number)).unwrap();
        let table = Table::open(reader, number, Arc::clone(cache)).unwrap();
        TableInput::of(table, number, contents.span().unwrap())
    }

    /// Three runs of keys that the seed decides, under two levels of index.
    fn task(&self, seed: u64) -> Task {
        let mut rng = Rng::new(seed);
        let cache = BlockCache::new(64 << 10);
        let mut rules = plain_rules();
        rules.output.target_file_bytes = 3000;
        rules.output.table = TableOptions { compression: Compression::Lz4, ..small_blocks() };
        rules.snapshots = vec![98];
        let mut run = |age: u64| {
            let mut contents = numbered(300, 1, 100 - age);
            contents.entries.retain(|_| rng.below(2) == 0);
            vec![self.input(&contents, &rules.output.table, &cache)]
        };
        let inputs = (0..3).map(&mut run).collect();
        Task { id: 1, keyspace: 0, level: 0, inputs, rules }
    }
}

fn sizes() -> Sizes {
    Sizes { sub_range_bytes: 2000, write_bytes: 1000, ..tiny() }
}

fn mode_of(seed: u64) -> RunMode {
    MODES[1 + seed as usize % 3]
}

#[test]
fn promise_5_the_schedule_does_not_show_in_the_bytes() {
    for_each_seed(0, 60, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        sim.run(|| {
            let host = Arc::new(Host::new(&env, seed));
            // The same contents on machines with different schedules.
            let task = Arc::new(host.task(seed / 10));
            let expected = run(&task, &*host).unwrap();
            let dyn_host = Arc::clone(&host) as Arc<dyn TaskHost>;
            let (output, ran) = run_sized(&task, &dyn_host, mode_of(seed), &env, &sizes());
            assert_eq!(ran.mode, mode_of(seed));
            let output = output.unwrap();
            assert_eq!(output.stats, expected.stats);
            assert_eq!(host.bytes(&output), host.bytes(&expected));
        });
    });
}

#[test]
fn a_failing_disk_fails_the_run_or_changes_nothing() {
    let (mut failed, mut done) = (0, 0);
    for_each_seed(0, 90, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        sim.run(|| {
            let host = Arc::new(Host::new(&env, seed));
            let task = Arc::new(host.task(seed));
            let expected = run(&task, &*host).unwrap();
            let chance = [0.0, 0.005, 0.05][(seed % 3) as usize];
            let fault = [Fault::Io, Fault::NoSpace, Fault::FlipBit][(seed / 9 % 3) as usize];
            let rule = if fault == Fault::FlipBit { Rule::new(fault).on(&[Operation::Read]) } else { Rule::new(fault) };
            host.volume.set_faults(FaultPlan::none().with(rule.chance(chance)));
            let dyn_host = Arc::clone(&host) as Arc<dyn TaskHost>;
            match run_sized(&task, &dyn_host, mode_of(seed / 3), &env, &sizes()).0 {
                Ok(output) => {
                    done += 1;
                    assert_eq!(host.bytes(&output), host.bytes(&expected));
                }
                Err(TaskError::Storage(_)) => failed += 1,
                Err(error) => panic!("{error}"),
            }
        });
    });
    assert!(failed > 15 && done > 30, "{failed} failed, {done} did not: the test shows nothing");
}

#[test]
fn a_run_that_is_cancelled_or_killed_at_any_step_leaves_no_thread() {
    for_each_seed(0, 60, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        sim.run(|| {
            let host = Host { cancelled_at: seed / 2, ..Host::new(&env, seed) };
            let host = Arc::new(host);
            let task = Arc::new(host.task(seed));
            let dyn_host = Arc::clone(&host) as Arc<dyn TaskHost>;
            let (pipeline_env, mode, is_killed) = (env.clone(), mode_of(seed), seed % 2 == 1);
            let job = move || {
                let (result, _) = run_sized(&task, &dyn_host, mode, &pipeline_env, &sizes());
                let ended_well = result.is_ok() || matches!(result, Err(TaskError::Cancelled));
                assert!(is_killed || ended_well, "{:?}", result.err());
            };
            let running = env.executor.spawn("a unit", Box::new(job)).unwrap();
            if is_killed {
                env.clock.sleep(Duration::from_micros(seed * 50));
                sim.kill();
            } else {
                running.join().unwrap();
            }
            // Also of a killed run: all of its threads have let go of the host.
            drop(running);
            assert_eq!(Arc::strong_count(&host), 1);
        });
    });
}
