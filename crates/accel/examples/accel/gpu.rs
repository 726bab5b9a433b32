//! The program's commands.

use crate::bed::{Case, Outcome, Sink, case_of, millis, thread_time};
use crate::tasks;
use rustix::time::{ClockId, clock_gettime};
use situ_accel::abi::{AnswerHeader, STATUS_OK};
use situ_accel::{Answer, Cuda, DeviceTask, Lane, Prepared, kernel_source, run_model};
use situ_compaction::testing::MemoryHost;
use situ_compaction::{Task, run};
use situ_sim::Rng;
use std::collections::VecDeque;
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

/// Runs the command of the command line.
pub(crate) fn run_command() -> Outcome<()> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "source") {
        print!("{}", kernel_source());
        return Ok(());
    }
    let ptx = match words.iter().position(|word| word == "--ptx") {
        Some(at) => words.drain(at..at + 2).nth(1),
        None => None,
    };
    let began = Instant::now();
    let cuda = match Cuda::find() {
        Ok(cuda) => cuda,
        Err(error) => match ptx {
            Some(path) => {
                eprintln!("{error}; taking {path}");
                Cuda::with_ptx(std::fs::read_to_string(path)?)?
            }
            None => return Err(error.into()),
        },
    };
    println!("{{\"what\":\"device\",\"name\":\"{}\",\"ready_ms\":{:.1}}}", cuda.name(), millis(began.elapsed()));
    let cuda = Arc::new(cuda);
    for word in words {
        match word.split_once('=').unwrap_or((&word, "")) {
            ("check", seeds) => check(&cuda, seeds.parse()?)?,
            ("transfers", _) => transfers(&cuda)?,
            ("measure", cases) => measure(&cuda, cases)?,
            ("core", cases) => measure_cores(cases)?,
            (other, _) => return Err(format!("no command {other}").into()),
        }
    }
    Ok(())
}

/// The processor time of all threads.
fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Stages, begins: all that the host does before the device has a task.
fn begin(lane: &mut Lane, task: &Task) -> Outcome<DeviceTask> {
    let mut prepared = Prepared::new(task)?;
    let data = lane.stage(prepared.data_bytes() as usize)?;
    prepared.load(data)?;
    let device = prepared.finish()?;
    lane.begin(&device)?;
    Ok(device)
}

fn check(cuda: &Arc<Cuda>, seeds: u64) -> Outcome<()> {
    let mut lane = cuda.lane()?;
    let (mut same, mut wrong) = (0, Vec::new());
    for seed in 0..seeds {
        let mut rng = Rng::new(seed);
        let host = MemoryHost::new();
        let task = tasks::random(&mut rng, &host, [100, 2000, 20_000][seed as usize % 3]);
        let mut prepared = Prepared::new(&task)?;
        let data = lane.stage(prepared.data_bytes() as usize)?;
        prepared.load(data)?;
        let mut device = prepared.finish()?;
        if seed % 7 == 6 && !data.is_empty() {
            let at = rng.index(data.len());
            data[at] ^= 1 << rng.below(8);
        }
        if seed % 5 == 4 {
            device.rules.emit_from = rng.below(100);
            device.rules.emit_bytes_max = 1 + rng.below(50_000);
        }
        let data = data.to_vec();
        lane.begin(&device)?;
        let found = lane.finish()?.to_answer()?;
        found.check()?;
        if is_same(&found, &run_model(&device, &data)?) { same += 1 } else { wrong.push(seed) }
    }
    println!("{{\"what\":\"check\",\"seeds\":{seeds},\"same\":{same},\"wrong\":{wrong:?}}}");
    if wrong.is_empty() { Ok(()) } else { Err(format!("{} answers are not the model's", wrong.len()).into()) }
}

fn is_same(found: &Answer, wanted: &Answer) -> bool {
    match wanted.header.status {
        STATUS_OK => found == wanted,
        status => found.header.status == status,
    }
}

fn transfers(cuda: &Arc<Cuda>) -> Outcome<()> {
    let mut lane = cuda.lane()?;
    for megabytes in [1usize, 4, 16, 64, 256] {
        let bytes = megabytes << 20;
        let mut times: Vec<(f32, f32)> = Vec::new();
        for _ in 0..12 {
            times.push(lane.time_transfers(bytes)?);
        }
        let median = |of: fn(&(f32, f32)) -> f32| {
            let mut all: Vec<f32> = times[2..].iter().map(of).collect();
            all.sort_by(f32::total_cmp);
            bytes as f32 / all[all.len() / 2] / 1e6
        };
        let (up, down) = (median(|time| time.0), median(|time| time.1));
        println!("{{\"what\":\"transfer\",\"mib\":{megabytes},\"to_device_gb_s\":{up:.2},\"to_host_gb_s\":{down:.2}}}");
    }
    Ok(())
}

/// The figures of one core.
struct Core {
    /// With output copied to memory, as into a page cache.
    seconds: f64,
    /// With output dropped.
    dropping_seconds: f64,
    data: Vec<u8>,
}

fn measure_core(task: &Task, rounds: u32) -> Outcome<Core> {
    let spare: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let mut best = [f64::MAX; 2];
    let mut data = Vec::new();
    for (drops, best) in [false, true].into_iter().zip(&mut best) {
        let host = Sink { spare: Arc::clone(&spare), drops };
        for _ in 0..rounds + 1 {
            let began = thread_time();
            let output = run(task, &host).map_err(|error| error.to_string())?;
            *best = best.min((thread_time() - began).as_secs_f64());
            if data.is_empty() {
                let data_bytes = output.tables[0].summary.properties.data_bytes as usize;
                let file = spare.lock().expect("no thread has panicked");
                data.extend_from_slice(&file[0][16..16 + data_bytes]);
            }
        }
    }
    Ok(Core { seconds: best[0], dropping_seconds: best[1], data })
}

/// Measures one core alone on `cases`, many rounds of each.
fn measure_cores(cases: &str) -> Outcome<()> {
    for case in cases.split(',') {
        let (_, task, entries) = case_of(case)?;
        let mut raw_mb = 0.0;
        let host = Sink { spare: Arc::default(), drops: false };
        let mut times = Vec::new();
        for _ in 0..12 {
            let began = thread_time();
            let output = run(&task, &host).map_err(|error| error.to_string())?;
            times.push(millis(thread_time() - began));
            let properties = &output.tables[0].summary.properties;
            raw_mb = (properties.raw_key_bytes + properties.raw_value_bytes) as f64 / 1e6;
        }
        times.sort_by(f64::total_cmp);
        let (least, median) = (times[0], times[times.len() / 2]);
        println!(
            "{{\"what\":\"core\",\"case\":\"{case}\",\"entries\":{entries},\"least_ms\":{least:.2},\"median_ms\":{median:.2},\
             \"most_ms\":{:.2},\"key_value_mb\":{raw_mb:.1}}}",
            times[times.len() - 1]
        );
    }
    Ok(())
}

/// How blocks get into pinned memory and out of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Host {
    /// The processor copies them, as a page cache makes it do.
    Copies,
    /// They are there already and stay there, as for direct I/O, which is not in the figure.
    Direct,
}

/// The host's and the device's times of many tasks, some of them in flight together.
struct Pipelined {
    seconds_a_task: f64,
    thread_seconds_a_task: f64,
    process_seconds_a_task: f64,
}

/// Takes the answer; the header says that all went well.
fn finish(lane: &mut Lane, host: Host, file: &mut Vec<u8>) -> Outcome<()> {
    let answer = lane.finish()?;
    let header = AnswerHeader::take(&mut &*answer.report).ok_or("no header")?;
    if header.status != STATUS_OK {
        return Err(format!("status {} {}", header.status, header.detail).into());
    }
    if host == Host::Copies {
        file.clear();
        file.extend_from_slice(answer.data);
    }
    Ok(())
}

/// Runs a task `rounds` times on the lanes of one thread. Returns the time that passed, and the thread's processor
/// time.
fn one_thread(
    cuda: &Arc<Cuda>,
    task: &Task,
    host: Host,
    [lanes, rounds]: [usize; 2],
    [start, end]: [&Barrier; 2],
) -> Outcome<(Duration, Duration)> {
    let mut idle = (0..lanes).map(|_| cuda.lane()).collect::<Result<Vec<Lane>, _>>()?;
    let mut busy: VecDeque<Lane> = VecDeque::new();
    let mut file = Vec::new();
    let mut device = None;
    // All memory is there before the clock runs.
    for lane in &mut idle {
        device = Some(begin(lane, task)?);
        finish(lane, Host::Copies, &mut file)?;
    }
    let device = device.ok_or("no lane")?;
    start.wait();
    let (start_of, thread) = (Instant::now(), thread_time());
    for _ in 0..rounds {
        let mut lane = match idle.pop() {
            Some(lane) => lane,
            None => {
                let mut lane = busy.pop_front().ok_or("no lane")?;
                finish(&mut lane, host, &mut file)?;
                lane
            }
        };
        match host {
            Host::Copies => drop(begin(&mut lane, task)?),
            Host::Direct => {
                // Finding the blocks is work of the host in any case.
                drop(Prepared::new(task)?);
                lane.begin(&device)?;
            }
        }
        busy.push_back(lane);
    }
    for lane in &mut busy {
        finish(lane, host, &mut file)?;
    }
    let (wall, thread) = (start_of.elapsed(), thread_time() - thread);
    // Pinned memory takes long to give back: lanes live for as long as a store.
    end.wait();
    Ok((wall, thread))
}

fn measure_pipelined(
    cuda: &Arc<Cuda>,
    task: &Task,
    host: Host,
    [threads, lanes, rounds]: [usize; 3],
) -> Outcome<Pipelined> {
    let (start, end) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
    let mut process = Duration::ZERO;
    let times = std::thread::scope(|scope| -> Result<Vec<(Duration, Duration)>, String> {
        let run = || {
            let ran = one_thread(cuda, task, host, [lanes, rounds], [&start, &end]);
            ran.map_err(|error| error.to_string())
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        start.wait();
        let before = process_time();
        end.wait();
        process = process_time() - before;
        handles.into_iter().map(|handle| handle.join().map_err(|_| "a thread panicked".to_owned())?).collect()
    })?;
    let each = |time: Duration| time.as_secs_f64() / (rounds * threads) as f64;
    Ok(Pipelined {
        seconds_a_task: each(times.iter().map(|(wall, _)| *wall).max().unwrap_or_default()),
        thread_seconds_a_task: each(times.iter().map(|(_, thread)| *thread).sum()),
        process_seconds_a_task: each(process),
    })
}

/// The host's part of a task, step by step, in milliseconds.
fn measure_host(cuda: &Arc<Cuda>, task: &Task) -> Outcome<String> {
    let mut lane = cuda.lane()?;
    let mut best = [f64::MAX; 7];
    for _ in 0..6 {
        let mut marks = vec![thread_time()];
        let mut prepared = Prepared::new(task)?;
        marks.push(thread_time());
        let data = lane.stage(prepared.data_bytes() as usize)?;
        prepared.load(data)?;
        marks.push(thread_time());
        let device = prepared.finish()?;
        marks.push(thread_time());
        lane.begin(&device)?;
        marks.push(thread_time());
        let answer = lane.finish()?;
        marks.push(thread_time());
        let answer = answer.to_answer()?;
        marks.push(thread_time());
        answer.check()?;
        marks.push(thread_time());
        for (best, pair) in best.iter_mut().zip(marks.windows(2)) {
            *best = best.min(millis(pair[1] - pair[0]));
        }
    }
    let names = ["find", "load", "finish", "begin", "wait", "copy_answer", "check_answer"];
    let parts: Vec<String> = names.iter().zip(best).map(|(name, time)| format!("\"{name}\":{time:.3}")).collect();
    Ok(parts.join(","))
}

/// A task alone on the device.
struct Alone {
    /// Each step's median over some rounds, in milliseconds.
    steps: Vec<(String, f64)>,
    latency_ms: f64,
    device: DeviceTask,
}

/// Measures a task alone, and compares its blocks with the merge's.
fn measure_steps(cuda: &Arc<Cuda>, task: &Task, core: &Core) -> Outcome<Alone> {
    let mut lane = cuda.lane()?;
    let device = begin(&mut lane, task)?;
    let answer = lane.finish()?.to_answer()?;
    if answer.header.status != STATUS_OK || answer.data != core.data {
        return Err(format!("the blocks are not the merge's: {:?}", answer.header).into());
    }
    let mut latencies = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        begin(&mut lane, task)?;
        lane.finish()?;
        latencies.push(millis(began.elapsed()));
    }
    latencies.sort_by(f64::total_cmp);
    lane.time_steps();
    let mut rounds: Vec<Vec<(&str, f32)>> = Vec::new();
    for _ in 0..5 {
        begin(&mut lane, task)?;
        lane.finish()?;
        rounds.push(lane.take_times()?);
    }
    let mut steps: Vec<(String, f64)> = Vec::new();
    for step in 0..rounds[0].len() {
        let mut times: Vec<f32> = rounds.iter().map(|round| round[step].1).collect();
        times.sort_by(f32::total_cmp);
        let (name, time) = (rounds[0][step].0, f64::from(times[times.len() / 2]));
        match steps.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += time,
            None => steps.push((name.to_owned(), time)),
        }
    }
    Ok(Alone { steps, latency_ms: latencies[latencies.len() / 2], device })
}

/// Measures `cases`, with commas between.
fn measure(cuda: &Arc<Cuda>, cases: &str) -> Outcome<()> {
    for case in cases.split(',') {
        let (Case { value_bytes, codec, mebibytes }, task, entries) = case_of(case)?;
        let core = measure_core(&task, if mebibytes > 64 { 2 } else { 4 })?;
        let Alone { steps, latency_ms: latency, device } = measure_steps(cuda, &task, &core)?;
        let host_parts = measure_host(cuda, &task)?;
        let rounds = (1024 / mebibytes as usize).clamp(5, 64);
        let lanes = if mebibytes > 64 { 2 } else { 3 };
        let mut runs = Vec::new();
        let raw_bytes: f64 = device.blocks().map(|block| f64::from(block.raw_bytes)).sum();
        for (name, host, threads) in [
            ("copies_1", Host::Copies, 1),
            ("copies_4", Host::Copies, 4),
            ("direct_1", Host::Direct, 1),
            ("direct_2", Host::Direct, 2),
        ] {
            let ran = measure_pipelined(cuda, &task, host, [threads, lanes, rounds])?;
            let core_seconds = if host == Host::Copies { core.seconds } else { core.dropping_seconds };
            runs.push(format!(
                "\"{name}\":{{\"task_ms\":{:.3},\"mb_s\":{:.0},\"m_entries_s\":{:.2},\"times_core\":{:.2},\"thread_ms\":{:.3},\
                 \"process_ms\":{:.3},\"cpu_share_of_core\":{:.3}}}",
                ran.seconds_a_task * 1e3,
                raw_bytes / 1e6 / ran.seconds_a_task,
                entries as f64 / ran.seconds_a_task / 1e6,
                core_seconds / ran.seconds_a_task,
                ran.thread_seconds_a_task * 1e3,
                ran.process_seconds_a_task * 1e3,
                ran.process_seconds_a_task / core_seconds,
            ));
        }
        let raw: f64 = device.blocks().map(|block| f64::from(block.raw_bytes)).sum::<f64>() / 1e6;
        let is_copy = |name: &str| name.starts_with("copy");
        let kernels: f64 = steps.iter().filter(|(name, _)| !is_copy(name)).map(|(_, time)| time).sum();
        let list: Vec<String> = steps.iter().map(|(name, time)| format!("\"{name}\":{time:.4}")).collect();
        println!(
            "{{\"what\":\"task\",\"value_bytes\":{value_bytes},\"codec\":\"{codec}\",\"mib\":{mebibytes},\
             \"entries\":{entries},\"raw_mb\":{raw:.2},\"stored_in_mb\":{:.2},\"stored_out_mb\":{:.2},\
             \"core_ms\":{:.3},\"core_dropping_ms\":{:.3},\"core_mb_s\":{:.1},\"core_m_entries_s\":{:.3},\
             \"latency_ms\":{latency:.3},\"lanes\":{lanes},{},\"kernels_ms\":{kernels:.4},\"kernels_gb_s\":{:.2},\
             \"host_ms\":{{{host_parts}}},\"steps_ms\":{{{}}}}}",
            device.data_bytes as f64 / 1e6,
            core.data.len() as f64 / 1e6,
            core.seconds * 1e3,
            core.dropping_seconds * 1e3,
            raw / core.seconds,
            entries as f64 / core.seconds / 1e6,
            runs.join(","),
            raw / kernels,
            list.join(","),
        );
    }
    Ok(())
}
