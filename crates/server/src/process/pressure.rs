//! The memory that this process may still take, as the machine and its control group see it.
//!
//! The least of what these say is left, each less a tenth of its size, which is for others:
//!
//! * the machine: `MemAvailable` of `/proc/meminfo`;
//! * a control group (version 2: `memory.max` and `memory.current`; version 1: `memory.limit_in_bytes` and
//!   `memory.usage_in_bytes`). What it counts of the page cache and has not lately been used is left, too.

use std::path::Path;

/// A tenth of memory is for others.
const RESERVE: u64 = 10;
/// A control group without a limit has a number about as large as this.
const NO_LIMIT: u64 = 1 << 60;

/// Size, and what is left of it, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Memory {
    size: u64,
    left: u64,
}

impl Memory {
    /// Returns the bytes that may be taken; negative if some are to be given back.
    fn room(self) -> i64 {
        self.left.min(i64::MAX as u64) as i64 - (self.size / RESERVE).min(i64::MAX as u64) as i64
    }
}

/// Returns the bytes of memory that this process may still take; negative if it is to give some back. `None` if the
/// system does not say.
pub(crate) fn room() -> Option<i64> {
    let machine = of_machine(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = groups(&std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default());
    let groups = groups.iter().filter_map(|group| of_group(Path::new(group)));
    groups.chain([machine]).map(Memory::room).min()
}

/// Returns the bytes of memory of the machine, or of the control group with the least. `None` if the system does not
/// say.
pub fn machine_memory_bytes() -> Option<u64> {
    let machine = of_machine(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = groups(&std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default());
    let groups = groups.iter().filter_map(|group| of_group(Path::new(group)));
    groups.chain([machine]).map(|memory| memory.size).min()
}

fn of_machine(text: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
    };
    Some(Memory { size: field("MemTotal")?, left: field("MemAvailable")? })
}

/// Directories of the control groups that limit the memory of this process: its own, and those around it.
fn groups(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let roots: &[&str] = match controllers {
            "" => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
            controllers if controllers.split(',').any(|name| name == "memory") => &["/sys/fs/cgroup/memory"],
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            found.extend(roots.iter().map(|root| format!("{root}{path}")));
            let Some((outer, _)) = path.rsplit_once('/') else { break };
            path = outer;
        }
    }
    found
}

fn of_group(directory: &Path) -> Option<Memory> {
    let number = |name: &str| std::fs::read_to_string(directory.join(name)).ok()?.trim().parse::<u64>().ok();
    let (size, used) = match number("memory.max") {
        Some(size) => (size, number("memory.current")?),
        None => (number("memory.limit_in_bytes")?, number("memory.usage_in_bytes")?),
    };
    if size >= NO_LIMIT {
        return None;
    }
    let stat = std::fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    let unused = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok()).unwrap_or(0);
    Some(Memory { size, left: size.saturating_sub(used.saturating_sub(unused)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_machine() {
        let text = "MemTotal:       24000 kB\nMemFree:          100 kB\nMemAvailable:    5000 kB\n";
        let memory = of_machine(text).unwrap();
        assert_eq!(memory, Memory { size: 24_000 << 10, left: 5000 << 10 });
        assert_eq!(memory.room(), (5000 - 2400) << 10);
        assert_eq!(of_machine("MemTotal: 5 kB\n"), None);
        assert!(machine_memory_bytes().unwrap() > 1 << 20);
        assert!(room().is_some());
    }

    #[test]
    fn groups_are_those_around_the_process() {
        let old = groups("5:cpu,cpuacct:/a\n4:memory:/x/y\n");
        assert_eq!(old, ["/sys/fs/cgroup/memory/x/y", "/sys/fs/cgroup/memory/x", "/sys/fs/cgroup/memory"]);
        let new = groups("0::/\n");
        assert_eq!(new, ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]);
    }

    #[test]
    fn what_is_left_of_a_group() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        assert_eq!(of_group(directory.path()), None);
        write("memory.max", "max\n");
        assert_eq!(of_group(directory.path()), None);
        write("memory.max", "1000\n");
        write("memory.current", "900\n");
        write("memory.stat", "anon 500\ninactive_file 300\n");
        let memory = of_group(directory.path()).unwrap();
        assert_eq!((memory, memory.room()), (Memory { size: 1000, left: 400 }, 300));
        write("memory.current", "1300\n");
        assert_eq!(of_group(directory.path()).unwrap().room(), -100);
    }
}
