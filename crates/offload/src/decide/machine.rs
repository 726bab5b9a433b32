//! The resources of the machine that are in use, as far as this process may have them.
//!
//! * **Processors**: `/proc/stat`, over the processors that the process may run on (`Cpus_allowed_list`). Where a
//!   control group bounds processor time, the group's use of its bound counts if that is more.
//! * **Memory**: `/proc/meminfo`, what is not available; or a control group's use of its bound, if that is more. Pages
//!   of files that could be dropped count as free.
//!
//! A share of processors is one over a stretch of time: from one sample to the next. The first sample gives none.
//! Stretches within runs and between runs follow each other, so the share is smoothed over about two seconds. After a
//! long rest it is that of the rest.
//!
//! **Threads**: any may sample. A thread that finds another one sampling gets nothing, and does not wait. Files of
//! `/proc` and of control groups lie in memory. **Failure**: a file that is missing or not as expected leaves its
//! measure out. Bounds of control groups are read with the first sample; a change of them later is not seen.
//!
//! Rejected: `getrusage`, which knows only this process. Others on the machine leave as little for a pipeline as the
//! process itself.

use situ_compaction::Measure;
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::Duration;

/// A source of a decider's news of the machine.
pub trait Sampler: Send + Sync {
    /// Returns the known measures of the machine now; empty if there is no news. Never blocks, and is cheap to ask
    /// often.
    fn sample(&self, now: Duration) -> Vec<Measure>;
}

/// Two samples are at least so far apart.
const SAMPLE_MIN: Duration = Duration::from_millis(250);
/// The share of processors is smoothed over about this long.
const SMOOTHED: Duration = Duration::from_secs(2);
/// The directory where control groups of version 2 are mounted.
const GROUPS: &str = "/sys/fs/cgroup";

type ReadText = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The machine that this program runs on. On systems other than Linux it tells nothing.
pub struct MachineSampler {
    read: ReadText,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: Option<Sampled>,
    bounds: Option<Bounds>,
}

/// The findings of the last sample.
struct Sampled {
    at: Duration,
    ticks: Option<Ticks>,
    group_used: Option<Duration>,
    /// The smoothed share of processors in use.
    share: Option<f64>,
}

/// Ticks of processors since the machine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Ticks {
    processors: u32,
    busy: u64,
    all: u64,
}

/// The tightest bounds of the process's control groups.
#[derive(Debug, Clone, PartialEq, Default)]
struct Bounds {
    /// The group, and how many processors its processes may use together.
    processors: Option<(String, f64)>,
    /// The group, and how many bytes its processes may use together.
    memory: Option<(String, u64)>,
}

impl Default for MachineSampler {
    fn default() -> MachineSampler {
        MachineSampler::reading(Box::new(|path| std::fs::read_to_string(path).ok()))
    }
}

impl MachineSampler {
    fn reading(read: ReadText) -> MachineSampler {
        MachineSampler { read, state: Mutex::default() }
    }

    fn bounds(&self) -> Bounds {
        let mut bounds = Bounds::default();
        let groups = (self.read)("/proc/self/cgroup").unwrap_or_default();
        let Some(mut group) = groups.lines().find_map(|line| line.strip_prefix("0::")) else { return bounds };
        loop {
            let at = format!("{GROUPS}{}", group.trim_end_matches('/'));
            let file = |name: &str| (self.read)(&format!("{at}/{name}"));
            if let Some(processors) = file("cpu.max").as_deref().and_then(processors_max)
                && bounds.processors.as_ref().is_none_or(|(_, least)| processors < *least)
            {
                bounds.processors = Some((at.clone(), processors));
            }
            if let Some(bytes) = file("memory.max").and_then(|text| text.trim().parse().ok())
                && bounds.memory.as_ref().is_none_or(|(_, least)| bytes < *least)
            {
                bounds.memory = Some((at.clone(), bytes));
            }
            match group.trim_end_matches('/').rsplit_once('/') {
                Some((above, _)) => group = above,
                None => return bounds,
            }
        }
    }

    fn ticks(&self) -> Option<Ticks> {
        let status = (self.read)("/proc/self/status")?;
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        ticks(&(self.read)("/proc/stat")?, &numbers_in_list(allowed.trim())?)
    }

    fn group_used(&self, bounds: &Bounds) -> Option<Duration> {
        let (group, _) = bounds.processors.as_ref()?;
        let text = (self.read)(&format!("{group}/cpu.stat"))?;
        labelled(&text, "usage_usec").map(Duration::from_micros)
    }

    /// The share of memory in use, and the bytes that are free.
    fn memory(&self, bounds: &Bounds) -> Option<(f64, u64)> {
        let text = (self.read)("/proc/meminfo")?;
        let (all, free) = (labelled(&text, "MemTotal:")?, labelled(&text, "MemAvailable:")?);
        let machine = (share_in_use(free, all), free.saturating_mul(1 << 10));
        let Some((group, most)) = &bounds.memory else { return Some(machine) };
        let used = (self.read)(&format!("{group}/memory.current")).and_then(|text| text.trim().parse::<u64>().ok());
        let Some(used) = used else { return Some(machine) };
        let droppable = (self.read)(&format!("{group}/memory.stat")).and_then(|text| labelled(&text, "inactive_file"));
        let free = most.saturating_sub(used.saturating_sub(droppable.unwrap_or(0)));
        Some((share_in_use(free, *most).max(machine.0), free.min(machine.1)))
    }
}

impl Sampler for MachineSampler {
    fn sample(&self, now: Duration) -> Vec<Measure> {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => return Vec::new(),
        };
        if state.last.as_ref().is_some_and(|last| now.saturating_sub(last.at) < SAMPLE_MIN) {
            return Vec::new();
        }
        let bounds = state.bounds.get_or_insert_with(|| self.bounds()).clone();
        let mut sampled = Sampled { at: now, ticks: self.ticks(), group_used: self.group_used(&bounds), share: None };
        let mut measures = Vec::new();
        if let Some((share, free_bytes)) = self.memory(&bounds) {
            measures.extend([Measure::Memory(share), Measure::MemoryFree(free_bytes)]);
        }
        if let Some(last) = &state.last
            && let Some((share, processors)) = processors(last, &sampled, &bounds)
        {
            let share = smoothed(last.share, share, now - last.at);
            sampled.share = Some(share);
            let free = processors * (1.0 - share);
            measures.extend([Measure::Processors(share), Measure::ProcessorsFree((free * 1000.0) as u32)]);
        }
        state.last = Some(sampled);
        measures
    }
}

/// The share of processors in use between two samples, and how many processors there are.
fn processors(before: &Sampled, now: &Sampled, bounds: &Bounds) -> Option<(f64, f64)> {
    let (ticks_before, ticks) = (before.ticks?, now.ticks?);
    let all = ticks.all.checked_sub(ticks_before.all).filter(|all| *all > 0)?;
    let busy = ticks.busy.saturating_sub(ticks_before.busy);
    let machine = (busy as f64 / all as f64).min(1.0);
    let group = bounds.processors.as_ref().and_then(|(_, most)| {
        let used = now.group_used?.saturating_sub(before.group_used?).as_secs_f64();
        Some((used / (most * (now.at - before.at).as_secs_f64()), *most))
    });
    let there_are = f64::from(ticks.processors);
    Some(match group {
        Some((share, most)) => (share.min(1.0).max(machine), most.min(there_are)),
        None => (machine, there_are),
    })
}

/// A new share weighs the more, the longer its stretch was.
fn smoothed(before: Option<f64>, share: f64, stretch: Duration) -> f64 {
    let Some(before) = before else { return share };
    let weight = 1.0 - (-stretch.as_secs_f64() / SMOOTHED.as_secs_f64()).exp();
    before + (share - before) * weight
}

fn share_in_use(free: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { (1.0 - free as f64 / all as f64).clamp(0.0, 1.0) }
}

/// The number behind a label at the start of a line.
fn labelled(text: &str, label: &str) -> Option<u64> {
    let mut words = text.lines().map(str::split_whitespace);
    words.find_map(|mut words| (words.next() == Some(label)).then(|| words.next()?.parse().ok())?)
}

/// Numbers as `0-2,5`.
fn numbers_in_list(text: &str) -> Option<Vec<(u32, u32)>> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    text.split(',').map(range).collect()
}

/// The ticks of the processors in `allowed`.
fn ticks(stat: &str, allowed: &[(u32, u32)]) -> Option<Ticks> {
    let mut sum = Ticks::default();
    for line in stat.lines() {
        let Some((number, ticks)) = line.strip_prefix("cpu").and_then(|rest| rest.split_once(' ')) else { continue };
        let is_allowed = |number: u32| allowed.iter().any(|(first, last)| (*first..=*last).contains(&number));
        if !number.parse().is_ok_and(is_allowed) {
            continue;
        }
        // User, nice, system, idle, waiting, interrupts, soft interrupts, stolen. Guests are in the first two already.
        let ticks: Vec<u64> = ticks.split_whitespace().take(8).filter_map(|word| word.parse().ok()).collect();
        let [_, _, _, idle, waiting, ..] = ticks[..] else { return None };
        let all: u64 = ticks.iter().sum();
        sum.processors += 1;
        sum.all += all;
        sum.busy += all - idle - waiting;
    }
    (sum.processors > 0).then_some(sum)
}

/// Returns the number of processors that `cpu.max` allows, as `200000 100000` does two; `None` for any number.
fn processors_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0.0).then_some(quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_base::lock;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    type Files = Arc<Mutex<BTreeMap<String, String>>>;

    fn sampler(files: &[(&str, &str)]) -> (Files, MachineSampler) {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        let files: Files = Arc::new(Mutex::new(files.collect()));
        let held = Arc::clone(&files);
        (files, MachineSampler::reading(Box::new(move |path| lock(&held).get(path).cloned())))
    }

    fn put(files: &Files, path: &str, text: &str) {
        lock(files).insert(path.to_owned(), text.to_owned());
    }

    const SECOND: Duration = Duration::from_secs(1);
    const STAT: &str = "cpu  300 0 0 300 0 0 0 0 0 0\ncpu0 100 0 0 100 0 0 0 0 0 0\ncpu1 100 0 0 100 0 0 0 0 0 0\n\
                        cpu2 100 0 0 100 0 0 0 0 0 0\nintr 1 2 3\n";
    const MEMINFO: &str = "MemTotal:        1000 kB\nMemFree:          10 kB\nMemAvailable:    400 kB\n";

    fn machine() -> Vec<(&'static str, &'static str)> {
        vec![
            ("/proc/self/status", "Name:\tx\nCpus_allowed_list:\t0,2\n"),
            ("/proc/stat", STAT),
            ("/proc/meminfo", MEMINFO),
        ]
    }

    /// Processor 0 is half busy, 1 is all busy, 2 is idle: the process may use 0 and 2.
    const STAT_LATER: &str = "cpu0 150 0 0 130 20 0 0 0 0 0\ncpu1 200 0 0 100 0 0 0 0 0 0\n\
                              cpu2 100 0 0 200 0 0 0 0 0 0\n";

    #[test]
    fn only_the_processors_that_the_process_may_use_count() {
        let (files, sampler) = sampler(&machine());
        assert_eq!(sampler.sample(SECOND), [Measure::Memory(0.6), Measure::MemoryFree(400 << 10)]);
        put(&files, "/proc/stat", STAT_LATER);
        let measures = sampler.sample(2 * SECOND);
        assert_eq!(measures[2..], [Measure::Processors(0.25), Measure::ProcessorsFree(1500)]);
    }

    /// A busy half of a second moves the share by a quarter of the way, a busy hour all the way.
    #[test]
    fn the_share_of_processors_is_smoothed() {
        assert_eq!(smoothed(None, 0.8, SECOND), 0.8);
        let after = |stretch: Duration| smoothed(Some(0.0), 1.0, stretch);
        let half = after(SECOND / 2);
        assert!((0.2..0.25).contains(&half), "{half}");
        assert!(after(3600 * SECOND) > 0.999);
        let twice = smoothed(Some(half), 1.0, SECOND / 2);
        assert!((twice - after(SECOND)).abs() < 1e-9, "two stretches weigh as much as one of their length");
    }

    #[test]
    fn it_samples_only_every_so_often() {
        let (files, sampler) = sampler(&machine());
        assert!(!sampler.sample(SECOND).is_empty());
        put(&files, "/proc/stat", STAT_LATER);
        assert!(sampler.sample(SECOND + SAMPLE_MIN / 2).is_empty());
        assert_eq!(sampler.sample(SECOND + SAMPLE_MIN).len(), 4);
    }

    /// A group that may use half a processor and 100 KiB, in one that may use more.
    #[test]
    fn the_tightest_control_group_counts() {
        let mut files = machine();
        files.extend([
            ("/proc/self/cgroup", "0::/outer/inner\n"),
            ("/sys/fs/cgroup/outer/cpu.max", "50000 100000\n"),
            ("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/outer/cpu.stat", "usage_usec 1000000\nuser_usec 1\n"),
            ("/sys/fs/cgroup/outer/memory.max", "max\n"),
            ("/sys/fs/cgroup/outer/inner/memory.max", "102400\n"),
            ("/sys/fs/cgroup/outer/inner/memory.current", "92160\n"),
            ("/sys/fs/cgroup/outer/inner/memory.stat", "anon 1\ninactive_file 10240\n"),
        ]);
        let (files, sampler) = sampler(&files);
        assert_eq!(sampler.sample(SECOND), [Measure::Memory(0.8), Measure::MemoryFree(20 << 10)]);
        put(&files, "/proc/stat", STAT_LATER);
        put(&files, "/sys/fs/cgroup/outer/cpu.stat", "usage_usec 1400000\n");
        // 0.4 s of processor time within a second, of 0.5 s.
        assert_eq!(sampler.sample(2 * SECOND)[2..], [Measure::Processors(0.8), Measure::ProcessorsFree(99)]);
    }

    #[test]
    fn files_that_are_missing_or_strange_leave_measures_out() {
        let (files, sampler) = sampler(&[]);
        assert!(sampler.sample(SECOND).is_empty());
        put(&files, "/proc/meminfo", MEMINFO);
        assert_eq!(sampler.sample(2 * SECOND).len(), 2);
        for (path, text) in [("/proc/self/status", "Cpus_allowed_list:\tmany\n"), ("/proc/stat", "cpu0 1 2\n")] {
            machine().into_iter().for_each(|(path, text)| put(&files, path, text));
            put(&files, path, text);
            assert_eq!(sampler.ticks(), None, "{path}");
        }
    }

    /// On Linux the real files are as expected.
    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_tells_of_itself() {
        let sampler = MachineSampler::default();
        sampler.sample(SECOND);
        // Ticks are 10 ms long.
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        let measures = sampler.sample(2 * SECOND);
        assert_eq!(measures.len(), 4, "{measures:?}");
        for measure in measures {
            if let Measure::Memory(share) | Measure::Processors(share) = measure {
                assert!((0.0..=1.0).contains(&share), "{share}");
            }
        }
    }
}
