//! What a machine has free: measured by the kernel's own counters.
//!
//! `/proc/stat` counts, for all processors together, how long they were idle. The share of idle time between two looks, over the
//! number of processors, is what nobody uses. `/proc/meminfo` tells how much memory a program could still get.
//!
//! **Failure**: a machine without these files has nothing to tell, and splits by resources count it as the others are on average.

use crate::mode::Resources;
use situ_device::{Clock, lock};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Tells what the host has free.
pub trait ResourceMeter: Send + Sync {
    /// What the host has free, as measured last; `None` if that cannot be told.
    fn free(&self) -> Option<Resources>;
}

/// Two looks are so far apart at least.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The kernel's counters of processor time, in its ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Ticks {
    idle: u64,
    all: u64,
    processors: u32,
}

impl Ticks {
    /// From the text of `/proc/stat`.
    fn parse(text: &str) -> Option<Ticks> {
        let first = text.lines().next()?.strip_prefix("cpu ")?;
        let counts: Vec<u64> = first.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        // user, nice, system, idle, waiting for disks, interrupts, soft interrupts, stolen; what follows is counted in user already.
        let [idle, waiting] = [*counts.get(3)?, *counts.get(4)?];
        let is_processor = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
        Some(Ticks {
            idle: idle.saturating_add(waiting),
            all: counts.iter().take(8).fold(0, |sum, count| sum.saturating_add(*count)),
            processors: u32::try_from(text.lines().filter(is_processor).count()).ok()?.max(1),
        })
    }

    /// What was free since `before`, in thousandths of a processor.
    fn free_milli_since(&self, before: &Ticks) -> u32 {
        let (idle, all) = (self.idle.saturating_sub(before.idle), self.all.saturating_sub(before.all));
        // At most all processors: the casts lose nothing.
        let share = (idle as f64 / all.max(1) as f64).min(1.0);
        (share * f64::from(self.processors) * 1000.0) as u32
    }
}

/// Bytes that a program could still get, from the text of `/proc/meminfo`.
fn memory_free(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[derive(Default)]
struct Last {
    at: Option<Duration>,
    ticks: Ticks,
    free: Option<Resources>,
}

/// Measures the machine that this process runs on, by `/proc`.
pub struct ProcMeter {
    clock: Arc<dyn Clock>,
    last: Mutex<Last>,
}

impl ProcMeter {
    /// The first answer is what was free since the machine was started.
    pub fn new(clock: Arc<dyn Clock>) -> ProcMeter {
        ProcMeter { clock, last: Mutex::default() }
    }

    fn look(before: &Ticks) -> Option<(Ticks, Resources)> {
        let ticks = Ticks::parse(&std::fs::read_to_string("/proc/stat").ok()?)?;
        let memory_free_bytes = memory_free(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
        let processors_free_milli = ticks.free_milli_since(before);
        // What the volume could still move, the kernel does not know.
        Some((ticks, Resources { processors_free_milli, memory_free_bytes, bandwidth_free_bytes_per_s: 0 }))
    }
}

impl ResourceMeter for ProcMeter {
    fn free(&self) -> Option<Resources> {
        let now = self.clock.now();
        let mut last = lock(&self.last);
        if last.at.is_none_or(|at| now.saturating_sub(at) >= LOOK_EVERY) {
            last.at = Some(now);
            let looked = ProcMeter::look(&last.ticks);
            last.free = looked.map(|(_, free)| free);
            last.ticks = looked.map_or(last.ticks, |(ticks, _)| ticks);
        }
        last.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_device::Env;

    const STAT: &str =
        "cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 50 0 50 350 50 0 0 0 25 0\ncpu1 50 0 50 350 50 0 0 0 25 0\nintr 5\n";

    #[test]
    fn the_kernels_text_is_read() {
        let ticks = Ticks::parse(STAT).unwrap();
        assert_eq!(ticks, Ticks { idle: 800, all: 1000, processors: 2 });
        assert_eq!(ticks.free_milli_since(&Ticks::default()), 1600);
        assert_eq!(ticks.free_milli_since(&Ticks { idle: 700, all: 800, processors: 2 }), 1000);
        assert_eq!(ticks.free_milli_since(&ticks), 0, "nothing is known of no time at all");
        assert_eq!(Ticks::parse("cpu  1 2 3"), None);
        assert_eq!(Ticks::parse(""), None);
        assert_eq!(memory_free("MemTotal: 100 kB\nMemAvailable:   40 kB\n"), Some(40 << 10));
        assert_eq!(memory_free("MemTotal: 100 kB\n"), None);
    }

    #[test]
    fn this_machine_tells_what_it_has_free() {
        let meter = ProcMeter::new(Env::system().clock);
        let free = meter.free().expect("Linux has /proc");
        assert!(free.memory_free_bytes > 1 << 20, "{free:?}");
        assert_eq!(meter.free(), Some(free), "a second look at once is the first one again");
    }
}
