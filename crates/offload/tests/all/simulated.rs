//! Compaction in the simulated world: any schedule, failing disks, rot.

use situ_base::Env;
use situ_compaction::{
    Compactor, Encoder, KeyRange, KeySpan, MergeRules, OutputRules, TableInput, TablePlace, Task, TaskError, TaskHost,
    TaskOutput, cut,
};
use situ_offload::{CpuUnit, Patience, Scheduler, Unit};
use situ_sim::{Fault, FaultPlan, Operation, Rng, Rule, SimExecutor, SimVolume, for_each_seed};
use situ_storage::{FileName, Reader, Result, Volume, Writer};
use situ_table::{BlockCache, KeyKind, KeyRef, Table, TableOptions, TableWriter, Trailer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

struct Host {
    env: Env,
    volume: SimVolume,
    next: AtomicU64,
}

impl TaskHost for Host {
    fn reserve(&self, _level: u32) -> Result<TablePlace> {
        Ok(TablePlace { volume: 0, number: self.next.fetch_add(1, Ordering::Relaxed) })
    }

    fn create(&self, _level: u32, place: TablePlace) -> Result<(TablePlace, Box<dyn Writer>)> {
        Ok((place, self.volume.create(FileName::Table(place.number), 0)?))
    }

    fn open(&self, place: TablePlace) -> Result<Arc<dyn Reader>> {
        self.volume.open(FileName::Table(place.number))
    }

    fn pace(&self, _bytes: u64) {
        self.env.clock.sleep(Duration::from_millis(1));
    }

    fn cancelled(&self) -> bool {
        self.env.executor.yield_point();
        false
    }
}

fn options() -> TableOptions {
    TableOptions { block_bytes: 512, ..TableOptions::default() }
}

/// Three runs of one table each, of keys and tombstones that the seed decides.
fn inputs(host: &Host, seed: u64) -> Vec<Vec<TableInput>> {
    let mut rng = Rng::new(seed);
    let cache = BlockCache::new(64 << 10);
    let mut input = |age: u64| {
        let (TablePlace { number, .. }, file) = host.new_table(0).unwrap();
        let mut writer = TableWriter::new(file, &options(), 0).unwrap();
        let mut span: Option<KeySpan> = None;
        for i in (0..2000).filter(|_| rng.below(2) == 0).collect::<Vec<u32>>() {
            let key = format!("{i:06}");
            let kind = if rng.below(5) == 0 { KeyKind::Delete } else { KeyKind::Put };
            let value = if kind == KeyKind::Put { vec![rng.below(256) as u8; rng.below(40) as usize] } else { vec![] };
            writer.add(KeyRef::new(key.as_bytes(), Trailer::new(100 - age, kind)), &value).unwrap();
            let here = KeySpan::including(key.as_bytes(), key.as_bytes());
            span = Some(span.map_or(here.clone(), |span| span.union(here)));
        }
        writer.finish().unwrap();
        let reader = host.volume.open(FileName::Table(number)).unwrap();
        let table = Table::open(reader, number, Arc::clone(&cache)).unwrap();
        vec![TableInput::of(table, number, span.unwrap())]
    };
    (0..3).map(&mut input).collect()
}

fn tasks(inputs: &[Vec<TableInput>]) -> Vec<Task> {
    let task = |range: KeyRange| Task {
        id: 1,
        keyspace: 0,
        level: 0,
        inputs: inputs.to_vec(),
        rules: MergeRules {
            range,
            snapshots: vec![98],
            below: Vec::new(),
            grandparents: Vec::new(),
            output_level: 1,
            output: OutputRules {
                table: options(),
                target_file_bytes: 8 << 10,
                max_grandparent_bytes: u64::MAX,
                created_unix_s: 0,
                encoder: Encoder::default(),
            },
            filter: None,
            now_unix: Duration::ZERO,
        },
    };
    cut(inputs, 4, 1).unwrap().into_iter().map(task).collect()
}

fn scheduler(env: &Env, threads: usize) -> Scheduler {
    let unit = CpuUnit::new(env.clone(), threads);
    Scheduler::new(env.clone(), env.executor.event(), Arc::new(unit), Vec::new(), Patience::default())
}

fn bytes(volume: &SimVolume, outputs: &[TaskOutput]) -> Vec<Vec<u8>> {
    let tables = outputs.iter().flat_map(|output| &output.tables);
    tables.map(|table| volume.contents(FileName::Table(table.number)).unwrap()).collect()
}

/// A machine on which a job has run undisturbed, and its bytes.
struct Undisturbed {
    host: Arc<Host>,
    inputs: Vec<Vec<TableInput>>,
    bytes: Vec<Vec<u8>>,
}

fn undisturbed(env: &Env, seed: u64) -> Undisturbed {
    let volume = SimVolume::new(env, FaultPlan::none(), seed);
    let host = Arc::new(Host { env: env.clone(), volume, next: AtomicU64::new(1) });
    let inputs = inputs(&host, seed);
    let dyn_host = Arc::clone(&host) as Arc<dyn TaskHost>;
    let outputs = scheduler(env, 2).run(tasks(&inputs), &dyn_host).unwrap();
    let bytes = bytes(&host.volume, &outputs);
    assert!(bytes.len() >= 4);
    Undisturbed { host, inputs, bytes }
}

#[test]
fn promise_5_the_schedule_does_not_show_in_the_bytes() {
    let mut first: Option<Vec<Vec<u8>>> = None;
    for_each_seed(0, 25, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        // The same contents on machines with different schedules.
        let bytes = sim.run(|| undisturbed(&env, 7).bytes);
        assert_eq!(*first.get_or_insert_with(|| bytes.clone()), bytes);
    });
}

/// One job may collect the result that another one sleeps for: a job that is never woken would be a deadlock here.
#[test]
fn jobs_that_share_a_unit_get_their_own_results() {
    for_each_seed(0, 40, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        sim.run(|| {
            let Undisturbed { host, inputs, bytes: expected } = undisturbed(&env, seed);
            // Room for all tasks at once: nobody looks again because of a task that waits.
            let scheduler = Arc::new(scheduler(&env, 8));
            let job = || {
                let (scheduler, host, tasks) = (Arc::clone(&scheduler), Arc::clone(&host), tasks(&inputs));
                let expected = expected.clone();
                move || {
                    let dyn_host = Arc::clone(&host) as Arc<dyn TaskHost>;
                    let outputs = scheduler.run(tasks, &dyn_host).unwrap();
                    assert_eq!(bytes(&host.volume, &outputs), expected);
                }
            };
            let other = env.executor.spawn("other job", Box::new(job())).unwrap();
            job()();
            other.join().unwrap();
        });
    });
}

/// Two units do each task, threads of their own compare the files, and a disk that fails now and then is no difference.
#[test]
fn checked_tasks_agree_in_any_schedule() {
    let (mut done, mut not_compared) = (0, 0);
    for_each_seed(0, 40, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        sim.run(|| {
            let Undisturbed { host, inputs, bytes: expected } = undisturbed(&env, seed);
            let tasks = tasks(&inputs);
            let count = tasks.len() as u64;
            if seed % 2 == 1 {
                let rule = Rule::new(Fault::Io).on(&[Operation::Read]).chance(0.01);
                host.volume.set_faults(FaultPlan::none().with(rule));
            }
            let unit = |threads| Arc::new(CpuUnit::new(env.clone(), threads));
            let (event, others) = (env.executor.event(), vec![unit(2) as Arc<dyn Unit>]);
            let scheduler =
                Scheduler::new(env.clone(), event, unit(2), others, Patience::default()).check_every(Some(1));
            let dyn_host = Arc::clone(&host) as Arc<dyn TaskHost>;
            match scheduler.run(tasks, &dyn_host) {
                Ok(outputs) => assert_eq!(bytes(&host.volume, &outputs), expected),
                Err(error) => assert!(seed % 2 == 1, "{error}"),
            }
            let report = &scheduler.reports()[1];
            assert_eq!(report.mismatches, 0, "{report:?}");
            if seed % 2 == 0 {
                assert_eq!((report.checked, report.succeeded), (count, count), "{report:?}");
                done += 1;
            }
            let trouble = report.last_trouble.as_deref().unwrap_or_default();
            not_compared += u32::from(trouble.contains("could not be compared"));
            scheduler.close();
        });
    });
    assert!(done == 20 && not_compared > 0, "{done} done, {not_compared} not compared: the test shows nothing");
}

#[test]
fn a_failing_disk_fails_the_job_or_changes_nothing() {
    let (mut failed, mut done) = (0, 0);
    for_each_seed(0, 60, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        sim.run(|| {
            let Undisturbed { host, inputs, bytes: expected } = undisturbed(&env, seed);
            let tasks = tasks(&inputs);
            let chance = [0.0, 0.02, 0.1][(seed % 3) as usize];
            let fault = [Fault::Io, Fault::NoSpace, Fault::FlipBit][(seed / 3 % 3) as usize];
            // A bit that flips on its way to the disk is found by whoever reads the table, not by who writes it.
            let rule = if fault == Fault::FlipBit { Rule::new(fault).on(&[Operation::Read]) } else { Rule::new(fault) };
            host.volume.set_faults(FaultPlan::none().with(rule.chance(chance)));
            let dyn_host = Arc::clone(&host) as Arc<dyn TaskHost>;
            match scheduler(&env, 2).run(tasks, &dyn_host) {
                Ok(outputs) => {
                    done += 1;
                    assert_eq!(bytes(&host.volume, &outputs), expected);
                }
                Err(TaskError::Storage(_)) => failed += 1,
                Err(error) => panic!("{error}"),
            }
        });
    });
    assert!(failed > 5 && done > 20, "{failed} failed, {done} did not: the test shows nothing");
}

#[test]
fn promise_6_rot_in_an_input_is_found_or_harmless() {
    let mut found = 0;
    for_each_seed(0, 60, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        sim.run(|| {
            let Undisturbed { host, inputs, bytes: expected } = undisturbed(&env, seed);
            let tasks = tasks(&inputs);
            let mut rng = Rng::new(seed);
            let input = &inputs[rng.index(3)][0];
            assert!(host.volume.rot(FileName::Table(input.number), rng.below(input.bytes), rng.below(8) as u8));
            let dyn_host = Arc::clone(&host) as Arc<dyn TaskHost>;
            match scheduler(&env, 2).run(tasks, &dyn_host) {
                Ok(outputs) => assert_eq!(bytes(&host.volume, &outputs), expected),
                Err(TaskError::Storage(error)) => {
                    assert!(error.is_corruption(), "{error}");
                    assert!(error.to_string().contains(&format!("{:06}.table", input.number)), "{error}");
                    found += 1;
                }
                Err(error) => panic!("{error}"),
            }
        });
    });
    assert!(found > 20, "rot was found {found} times only");
}
