use super::*;
use crate::check::check_output;
use crate::error::TaskError;
use crate::span::KeySpan;
use crate::task::{Grandparent, OutputTable};
use crate::testing::{Contents, MemoryHost, Rng, World, key, numbered, one_in, plain_rules, task, with_seeds};
use situ_table::{Compression, TableOptions};
use std::sync::atomic::Ordering;

fn random_task(rng: &mut Rng, host: &MemoryHost, world: &World) -> Task {
    let mut rules = plain_rules();
    rules.snapshots = world.snapshots.clone();
    rules.below = world.below_spans.clone();
    rules.output.target_file_bytes = [1, 700, 900, 1500, u64::MAX][rng.below(5) as usize];
    if one_in(rng, 2) {
        let mut at = 0;
        while at < 30 {
            let (begin, end) = (at + rng.below(4), at + 4 + rng.below(4));
            let span = KeySpan { begin: key(begin), end: key(end) };
            rules.grandparents.push(Grandparent { span, bytes: 100 });
            at = end;
        }
        rules.output.max_grandparent_bytes = 100 * rng.below(4);
    }
    task(host, &world.runs, rules)
}

fn run_checked(task: &Task, host: &MemoryHost) -> TaskOutput {
    let output = run(task, host).unwrap();
    let places: Vec<_> = output.tables.iter().map(OutputTable::place).collect();
    check_output(task, &places, &output).unwrap();
    for OutputTable { number, summary, span, .. } in &output.tables {
        let table = host.open(*number);
        assert_eq!(table.properties(), &summary.properties);
        for t in table.range_tombstones() {
            assert!(span.begin <= t.begin && t.end <= span.end, "{t:?} leaves {span:?}");
        }
    }
    output
}

/// The task's outputs when it is cut at these keys.
fn run_in_parts(whole: &Task, host: &MemoryHost, cuts: &[Vec<u8>]) -> Vec<TaskOutput> {
    let lowers = std::iter::once(None).chain(cuts.iter().cloned().map(Some));
    let uppers = cuts.iter().cloned().map(Some).chain([None]);
    lowers
        .zip(uppers)
        .map(|(lower, upper)| {
            let mut part = whole.clone();
            part.rules.range = KeyRange { lower, upper };
            run_checked(&part.clipped().unwrap(), host)
        })
        .collect()
}

#[test]
fn every_snapshot_reads_the_same_from_tables_before_and_after() {
    with_seeds(700, |rng| {
        let world = World::random(rng);
        let host = MemoryHost::new();
        let task = random_task(rng, &host, &world);
        let output = run_checked(&task, &host);
        world.assert_same_reads(&world.inputs().with(&world.below), &host.contents(&output).with(&world.below));
    });
}

#[test]
fn a_job_cut_into_tasks_gives_the_same_contents() {
    with_seeds(400, |rng| {
        let world = World::random(rng);
        let host = MemoryHost::new();
        let whole = random_task(rng, &host, &world);
        let mut cuts: Vec<Vec<u8>> = (0..1 + rng.below(4)).map(|_| key(rng.below(30))).collect();
        cuts.sort();
        cuts.dedup();
        let once = host.contents(&run_checked(&whole, &host));
        let mut parts = Contents::default();
        for output in run_in_parts(&whole, &host, &cuts) {
            parts = parts.with(&host.contents(&output));
        }
        // Sequence numbers may differ: a clipped range tombstone may be dropped where the whole one had to stay.
        let kept = |contents: &Contents| -> Vec<_> {
            contents.entries.iter().map(|e| (e.key.clone(), e.trailer.kind(), e.value.clone())).collect()
        };
        assert_eq!(kept(&parts), kept(&once));
        world.assert_same_reads(&once.with(&world.below), &parts.with(&world.below));
        world.assert_same_reads(&world.inputs().with(&world.below), &parts.with(&world.below));
    });
}

#[test]
fn promise_5_a_task_without_what_lies_outside_its_range_gives_the_same_bytes() {
    with_seeds(300, |rng| {
        let world = World::random(rng);
        let host = MemoryHost::new();
        let mut task = random_task(rng, &host, &world);
        let (a, b) = (rng.below(30), rng.below(30));
        task.rules.range = KeyRange {
            lower: (!one_in(rng, 4)).then(|| key(a.min(b))),
            upper: (!one_in(rng, 4)).then(|| key(a.max(b) + 1)),
        };
        let clipped = task.clone().clipped().unwrap();
        assert!(clipped.tables().count() <= task.tables().count() && clipped.input_bytes() <= task.input_bytes());
        let (whole, part) = (run_checked(&task, &host), run_checked(&clipped, &host));
        assert_eq!(whole.stats.entries_in, part.stats.entries_in);
        let bytes = |output: &TaskOutput| -> Vec<_> {
            output.tables.iter().map(|table| (table.span.clone(), host.bytes(table.number))).collect()
        };
        assert_eq!(bytes(&whole), bytes(&part));
    });
}

/// Each of the eight tasks of a job counted all bytes of the job: a unit with room for a quarter of it took none.
#[test]
fn the_shares_of_the_tasks_of_a_job_add_up_to_the_job() {
    let host = MemoryHost::new();
    // Blocks of the usual size: nearly all of a file is data.
    let options = TableOptions { compression: Compression::None, filter_bits_per_key: 0, ..TableOptions::default() };
    let inputs = [numbered(20_000, 1, 9), numbered(20_000, 3, 5)];
    let inputs = inputs.iter().map(|contents| vec![host.write(contents, &options).unwrap()]).collect();
    let mut whole = Task { inputs, ..task(&host, &[], plain_rules()) };
    let span =
        |n: u64| KeySpan::including(format!("{:05}", n * 1000).as_bytes(), format!("{:05}", n * 1000 + 999).as_bytes());
    whole.rules.grandparents = (0..20).map(|n| Grandparent { span: span(n), bytes: 100 }).collect();
    whole.rules.below = vec![(0..20).map(span).collect()];
    let job_bytes = whole.input_bytes();
    let ranges = crate::cut(&whole.inputs, 8, 1000).unwrap();
    assert_eq!(ranges.len(), 8);
    let tasks: Vec<Task> = ranges
        .into_iter()
        .map(|range| {
            let mut part = whole.clone();
            part.rules.range = range;
            part.clipped().unwrap()
        })
        .collect();
    let sum: u64 = tasks.iter().map(Task::input_bytes).sum();
    assert!(sum.abs_diff(job_bytes) < job_bytes / 50, "{sum} of {job_bytes}");
    for part in &tasks {
        let share = part.input_bytes();
        assert!(share.abs_diff(job_bytes / 8) < job_bytes / 40, "{share} of {job_bytes}");
        assert_eq!(run(part, &host).unwrap().stats.bytes_read, share);
        assert!(part.rules.grandparents.len() <= 4 && part.rules.below.iter().flatten().count() <= 4, "{part:?}");
    }
}

#[test]
fn promise_5_the_same_task_gives_the_same_bytes() {
    with_seeds(100, |rng| {
        let world = World::random(rng);
        let host = MemoryHost::new();
        let task = random_task(rng, &host, &world);
        let (first, second) = (run(&task, &host).unwrap(), run(&task, &host).unwrap());
        assert_eq!(first.stats, second.stats);
        assert_eq!(first.tables.len(), second.tables.len());
        for (a, b) in first.tables.iter().zip(&second.tables) {
            assert_ne!(a.number, b.number);
            assert_eq!((&a.summary, &a.span), (&b.summary, &b.span));
            assert_eq!(host.bytes(a.number), host.bytes(b.number));
        }
    });
}

#[test]
fn a_flush_keeps_what_a_compaction_would() {
    with_seeds(100, |rng| {
        let world = World::random(rng);
        let host = MemoryHost::new();
        let task = random_task(rng, &host, &world);
        let sources = world.runs.iter().map(|run| crate::testing::VecSource::new(run.entries.clone())).collect();
        let flushed = merge_sources(sources, &world.inputs().tombstones, 0, &task.rules, &host).unwrap();
        let compacted = run(&task, &host).unwrap();
        assert_eq!(host.contents(&flushed).entries, host.contents(&compacted).entries);
    });
}

#[test]
fn the_host_is_told_of_all_output_and_can_stop_it() {
    let host = MemoryHost::new();
    let mut task = task(&host, &[numbered(30_000, 2, 9), numbered(30_000, 3, 5)], plain_rules());
    task.rules.output.target_file_bytes = 300_000;
    let output = run_checked(&task, &host);
    assert!(output.tables.len() > 2, "{:?}", output.tables.len());
    let told = host.paced_bytes.load(Ordering::Relaxed);
    let wrote = output.stats.bytes_written;
    assert!(told.abs_diff(wrote) < wrote / 20, "told of {told}, wrote {wrote}");
    assert_eq!(output.stats.bytes_read, task.input_bytes());
    host.cancel.store(true, Ordering::Relaxed);
    assert!(matches!(run(&task, &host), Err(TaskError::Cancelled)));
}

#[test]
fn a_part_reads_about_its_part() {
    let host = MemoryHost::new();
    let whole = task(&host, &[numbered(10_000, 1, 9)], plain_rules());
    let parts = run_in_parts(&whole, &host, &[b"02500".to_vec(), b"05000".to_vec()]);
    let read: Vec<u64> = parts.iter().map(|part| part.stats.bytes_read).collect();
    let data_bytes: u64 = whole.tables().map(|input| input.open().unwrap().properties().data_bytes).sum();
    let quarter = data_bytes / 4;
    assert!(read[..2].iter().all(|part| part.abs_diff(quarter) < quarter / 50), "{read:?} of {data_bytes}");
    assert!(read.iter().sum::<u64>() <= whole.input_bytes());
    assert_eq!(parts.iter().map(|part| part.stats.entries_in).sum::<u64>(), 10_000);
}

#[test]
fn a_full_disk_ends_the_run_with_its_name() {
    let host = MemoryHost::new();
    let mut task = task(&host, &[numbered(1000, 1, 9)], plain_rules());
    task.rules.output.target_file_bytes = 5000;
    host.fails_at.store(host.new_table(0).unwrap().0.number + 3, Ordering::Relaxed);
    let Err(TaskError::Storage(error)) = run(&task, &host) else { panic!("it should fail") };
    assert!(error.is_no_space(), "{error}");
}

#[test]
fn a_damaged_block_is_named() {
    let host = MemoryHost::new();
    let task = task(&host, &[numbered(1000, 1, 9)], plain_rules());
    let input = &task.inputs[0][0];
    let mut bytes = host.bytes(input.number).to_vec();
    bytes[1000] ^= 4;
    host.put_bytes(input.number, bytes);
    let mut damaged = task.clone();
    damaged.inputs[0][0] = host.input(input.number, input.span.clone());
    let Err(TaskError::Storage(error)) = run(&damaged, &host) else { panic!("it should fail") };
    assert!(error.is_corruption() && error.to_string().contains(&format!("{:06}.table", input.number)), "{error}");
}

#[test]
fn a_table_that_is_not_the_one_the_version_means_is_corruption() {
    let host = MemoryHost::new();
    let mut task = task(&host, &[numbered(100, 1, 9)], plain_rules());
    task.inputs[0][0].span = KeySpan::including(b"00010", b"00020");
    let Err(TaskError::Storage(error)) = run(&task, &host) else { panic!("it should fail") };
    assert!(error.is_corruption(), "{error}");
}
