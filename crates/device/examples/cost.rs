//! The processor's work for a transfer of 4 KiB, by any way to a device.
//!
//! ```text
//! cost PATH BACKEND look|wait                          measures
//! cost PATH BACKEND look|wait lengths                  measures reads of 4 KiB to 1 MiB, in pieces of 128 KiB
//! cost PATH BACKEND look|wait KIND IN_FLIGHT ROUNDS    does such rounds between the lines `begin` and `end`
//! ```
//!
//! PATH is anything that `situ_device::open` takes. **Its contents are overwritten.** BACKEND is `automatic`,
//! `blocking` or `ring`, and KIND is `read`, `write` or `durable`.
//!
//! * `look`: operations are submitted, the program sleeps for 10 ms, then it polls. *Submit* and *poll* are the
//!   times of those calls, without that of the clock, as a median of the rounds.
//! * `wait`: operations are submitted, and the program waits for their completions.
//! * *All* is the time that the processor was not idle, without that of the same program without operations. So it
//!   has interrupts and the change to the idle task and back. The kernel tells it (`/proc/timer_list`, for root).
//!
//! Times are in nanoseconds, for one operation. `scripts/nvme-cost.sh` runs this on a machine whose clock advances by
//! one nanosecond for each instruction. That machine has one processor, which the figures rely on.

use situ_device::{Backend, Buffer, Completion, Op, OpenOptions, Queue, open};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

const BYTES: u64 = 4096;
/// The cache reads values from flash in such pieces, all in flight at once.
const PIECE_BYTES: u64 = 128 << 10;
const LENGTHS: [u64; 6] = [4 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20];
/// The part of the device that is used.
const SPAN: u64 = 16 << 20;
/// Drives in a virtual machine answer within that time.
const PAUSE: Duration = Duration::from_millis(10);
/// The polls that a completion may take: the kernel's first one may only find it, and the second one hand it out.
const POLLS: u32 = 2;
const ROUNDS: u64 = 300;
const WARM_UP: u64 = 20;
const KINDS: [&str; 3] = ["read", "write", "durable"];

type Outcome<T> = Result<T, Box<dyn Error>>;

struct Run {
    queue: Box<dyn Queue>,
    kind: &'static str,
    waits: bool,
    spare: Vec<Buffer>,
    done: Vec<Completion>,
    page: u64,
}

/// The times of a round's calls.
#[derive(Default)]
struct Round {
    submit: Duration,
    poll: Duration,
    /// The completions were not there after the first pause.
    is_late: bool,
}

impl Run {
    fn op(&mut self) -> Op {
        self.page += 17;
        let bytes = self.spare.last().map_or(BYTES, |buffer| buffer.len() as u64);
        let offset = self.page * bytes % SPAN;
        match self.kind {
            "read" => Op::Read { offset },
            kind => Op::Write { offset, durable: kind == "durable" },
        }
    }

    /// Polls after a pause; returns the time of the polls.
    fn look(&mut self, count: usize) -> Duration {
        std::thread::sleep(PAUSE);
        let begin = Instant::now();
        for _ in 0..POLLS {
            self.queue.poll(&mut self.done);
            if self.done.len() == count {
                break;
            }
        }
        begin.elapsed()
    }

    fn round(&mut self) -> Outcome<Round> {
        let (count, mut round) = (self.spare.len(), Round::default());
        let ops: Vec<Op> = (0..count).map(|_| self.op()).collect();
        let begin = Instant::now();
        for &op in &ops {
            let buffer = self.spare.pop().ok_or("a buffer for each operation")?;
            self.queue.submit(op, buffer).map_err(|(_, error)| error)?;
        }
        round.submit = begin.elapsed();
        if self.waits {
            while self.done.len() < count {
                self.queue.wait(&mut self.done, Duration::from_secs(1));
            }
        } else {
            round.poll = self.look(count);
            while self.done.len() < count {
                round.is_late = true;
                self.look(count);
            }
        }
        for completion in self.done.drain(..) {
            completion.result?;
            self.spare.push(completion.buffer);
        }
        Ok(round)
    }
}

/// Returns the processor's idle time so far, also that with I/O in flight.
fn idle() -> Outcome<Duration> {
    let list = std::fs::read_to_string("/proc/timer_list")?;
    let time = |name| -> Outcome<Duration> {
        let times = list.lines().filter_map(|line| line.trim().strip_prefix(name)?.split_whitespace().nth(1));
        match times.collect::<Vec<_>>()[..] {
            [time] => Ok(Duration::from_nanos(time.parse()?)),
            ref times => Err(format!("{} processors in /proc/timer_list, and not one", times.len()).into()),
        }
    };
    Ok(time(".idle_sleeptime")? + time(".iowait_sleeptime")?)
}

/// Returns the time that some work takes, and the part of it in which the processor was not idle.
fn busy(work: impl FnOnce() -> Outcome<()>) -> Outcome<(Duration, Duration)> {
    let (was_idle, begin) = (idle()?, Instant::now());
    work()?;
    let (is_idle, took) = (idle()?, begin.elapsed());
    Ok((took, took.saturating_sub(is_idle - was_idle)))
}

/// Returns the time between two looks at the clock.
fn clock() -> Duration {
    (0..101).map(|_| Instant::now().elapsed()).min().unwrap_or_default()
}

/// Returns the time of a loop of two instructions.
#[cfg(target_arch = "x86_64")]
fn time_of_loop(turns: u64) -> Duration {
    let clock = clock();
    let begin = Instant::now();
    // SAFETY: it counts a register down, and touches nothing else.
    unsafe { std::arch::asm!("2: dec {0}", "jnz 2b", inout(reg) turns => _, options(nomem, nostack)) };
    begin.elapsed().saturating_sub(clock)
}

fn median(mut times: Vec<Duration>, clock: Duration, count: usize) -> f64 {
    times.sort();
    let middle = times.get(times.len() / 2).map_or(Duration::ZERO, |time| time.saturating_sub(clock));
    middle.as_nanos() as f64 / count as f64
}

/// Measures rounds, each of which does `count` operations, whatever the pieces.
fn measure(run: &mut Run, count: usize) -> Outcome<String> {
    let clock = clock();
    // The console works on in the background with what was printed last.
    std::thread::sleep(Duration::from_millis(300));
    (0..WARM_UP).try_for_each(|_| run.round().map(drop))?;
    let mut rounds = Vec::with_capacity(ROUNDS as usize);
    let (took, all) = busy(|| (0..ROUNDS).try_for_each(|_| run.round().map(|round| rounds.push(round))))?;
    let spare = std::mem::take(&mut run.spare);
    let (_, without) = busy(|| {
        (0..ROUNDS).try_for_each(|_| run.round().map(drop))?;
        if run.waits {
            std::thread::sleep(took);
        }
        Ok(())
    })?;
    run.spare = spare;
    let all = all.saturating_sub(without).as_nanos() as f64 / (ROUNDS * count as u64) as f64;
    if run.waits {
        return Ok(format!("all {all:.0}"));
    }
    let late = rounds.iter().filter(|round| round.is_late).count();
    rounds.retain(|round| !round.is_late);
    let submit = median(rounds.iter().map(|round| round.submit).collect(), clock, count);
    let poll = median(rounds.iter().map(|round| round.poll).collect(), clock, count);
    Ok(format!("submit {submit:.0}, poll {poll:.0}, all {all:.0}, late {late} of {ROUNDS}"))
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (path, backend, way, only) = match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [path, backend, way] => (*path, *backend, *way, None),
        [path, backend, way, "lengths"] => (*path, *backend, *way, Some(("lengths", 1, 0))),
        [path, backend, way, kind, count, rounds] => {
            (*path, *backend, *way, Some((*kind, count.parse::<u32>()?, rounds.parse::<u64>()?)))
        }
        _ => return Err("usage: cost PATH BACKEND look|wait [lengths | KIND IN_FLIGHT ROUNDS]".into()),
    };
    let backend = match backend {
        "automatic" => Backend::Automatic,
        "blocking" => Backend::Blocking,
        "ring" => Backend::Ring,
        other => return Err(format!("no backend {other}").into()),
    };
    let waits = match way {
        "look" => false,
        "wait" => true,
        other => return Err(format!("neither look nor wait: {other}").into()),
    };
    let device = open(Path::new(path), OpenOptions { backend, ..OpenOptions::default() })?;
    let _lock = device.lock()?;
    let begin = |kind, count: u32, bytes: u64| -> Outcome<Run> {
        let spare = (0..count).map(|_| Buffer::new(bytes as usize)).collect();
        Ok(Run { queue: device.queue(count)?, kind, waits, spare, done: Vec::with_capacity(count as usize), page: 0 })
    };
    if let Some(("lengths", ..)) = only {
        println!("{}", device.describe());
        for bytes in LENGTHS {
            let pieces = bytes.div_ceil(PIECE_BYTES);
            let figures = measure(&mut begin("read", pieces as u32, bytes / pieces)?, 1)?;
            println!("{way}, read of {} KiB, 1 in flight: {figures}", bytes >> 10);
        }
        return Ok(());
    }
    if let Some((kind, count, rounds)) = only {
        let kind = KINDS.into_iter().find(|known| *known == kind).ok_or("KIND is read, write or durable")?;
        let mut run = begin(kind, count, BYTES)?;
        (0..WARM_UP).try_for_each(|_| run.round().map(drop))?;
        println!("begin");
        (0..rounds).try_for_each(|_| run.round().map(drop))?;
        println!("end");
        return Ok(());
    }
    println!("{}", device.describe());
    #[cfg(target_arch = "x86_64")]
    println!("a loop of 2000 instructions: {} ns", time_of_loop(1000).as_nanos());
    for kind in KINDS {
        for count in [1, 8] {
            let figures = measure(&mut begin(kind, count, BYTES)?, count as usize)?;
            println!("{way}, {kind}, {count} in flight: {figures}");
        }
    }
    Ok(())
}
