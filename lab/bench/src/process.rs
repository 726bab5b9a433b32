//! Facts of the kernel about this process and this machine, from `/proc` and `/sys`.
//!
//! Every reader is total: a file that is missing or reads differently gives `None` for its values, and the result then
//! lacks them instead of being wrong. Times are in the kernel's user ticks of 10 ms.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Ticks per second of the times in `/proc`: fixed at 100 for user space on Linux, whatever the kernel's own.
const TICKS_PER_SECOND: f64 = 100.0;

/// Counters and sizes of this process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) cpu_user_seconds: Option<f64>,
    pub(crate) cpu_system_seconds: Option<f64>,
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) resident_bytes_peak: Option<u64>,
    pub(crate) anonymous_bytes: Option<u64>,
    pub(crate) disk_bytes_read: Option<u64>,
    pub(crate) disk_bytes_written: Option<u64>,
    pub(crate) disk_bytes_cancelled: Option<u64>,
}

impl Usage {
    /// Reads the counters of this process: about 50 us.
    pub(crate) fn now() -> Self {
        let text = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        Self::parse(&text("stat"), &text("status"), &text("io"))
    }

    fn parse(stat: &str, status: &str, io: &str) -> Self {
        // The command name may hold spaces and brackets: fields are counted from its last closing bracket.
        let ticks = |field: usize| -> Option<f64> {
            let (_, fields) = stat.rsplit_once(')')?;
            let ticks: u64 = fields.split_whitespace().nth(field - 3)?.parse().ok()?;
            Some(ticks as f64 / TICKS_PER_SECOND)
        };
        let kilobytes = |key| labelled(status, key)?.checked_mul(1024);
        Self {
            cpu_user_seconds: ticks(14),
            cpu_system_seconds: ticks(15),
            resident_bytes: kilobytes("VmRSS:"),
            resident_bytes_peak: kilobytes("VmHWM:"),
            anonymous_bytes: kilobytes("RssAnon:"),
            disk_bytes_read: labelled(io, "read_bytes:"),
            disk_bytes_written: labelled(io, "write_bytes:"),
            disk_bytes_cancelled: labelled(io, "cancelled_write_bytes:"),
        }
    }

    /// Makes the peak of the resident memory start again from now, where the kernel allows it.
    pub(crate) fn reset_peak() -> bool {
        fs::write("/proc/self/clear_refs", "5").is_ok()
    }
}

/// Returns the number after `key` at the beginning of a line.
fn labelled(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// The machine on which a result was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the first processor.
    pub cpu: String,
    /// Processors this process may use.
    pub cores: usize,
    /// Kernel and its release.
    pub kernel: String,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Device, model and file system that the store's directory is on.
    pub disk: String,
    /// Name of the host.
    pub host: String,
}

impl Machine {
    /// Describes this machine, with the disk that `directory` is on.
    #[must_use]
    pub fn describe(directory: &Path) -> Self {
        let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let cpuinfo = line("/proc/cpuinfo");
        let cpu = cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == "model name").then(|| value.trim().to_owned())
        });
        let memory_kb = labelled(&line("/proc/meminfo"), "MemTotal:").unwrap_or(0);
        Self {
            cpu: cpu.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: format!("{} {}", line("/proc/sys/kernel/ostype"), line("/proc/sys/kernel/osrelease")),
            memory_bytes: memory_kb.saturating_mul(1024),
            disk: describe_disk(directory, &line("/proc/self/mounts")),
            host: line("/proc/sys/kernel/hostname"),
        }
    }
}

fn describe_disk(directory: &Path, mounts: &str) -> String {
    let Ok(directory) = directory.canonicalize() else { return String::new() };
    let mounted = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        Some((fields.next()?, fields.next()?, fields.next()?))
    });
    let nearest = mounted.filter(|(_, point, _)| directory.starts_with(point)).max_by_key(|(_, point, _)| point.len());
    let Some((device, _, file_system)) = nearest else { return String::new() };
    let block = device.trim_start_matches("/dev/");
    let model = ["/device/model", "/../device/model"]
        .iter()
        .find_map(|end| fs::read_to_string(format!("/sys/class/block/{block}{end}")).ok());
    match model {
        Some(model) => format!("{device} ({}), {file_system}", model.trim()),
        None => format!("{device}, {file_system}"),
    }
}

/// Returns the bytes that the files below `directory` occupy on disk, as `du` counts.
pub fn directory_bytes(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => directory_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks().saturating_mul(512),
        // The store may remove a file between the listing and the look.
        Err(_) => 0,
    });
    sizes.sum()
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Returns the present moment in UTC, as `2026-01-31T12:34:56Z`.
#[must_use]
pub fn date_now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    situ_base::utc(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_whatever_the_process_is_called() {
        let stat = "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0 100 1000 200";
        let status = "Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t 1024 kB\nRssAnon:\t 512 kB\n";
        let io = "rchar: 9\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 4096\n";
        let usage = Usage::parse(stat, status, io);
        assert_eq!(usage.cpu_user_seconds, Some(2.5));
        assert_eq!(usage.cpu_system_seconds, Some(0.5));
        assert_eq!(usage.resident_bytes, Some(1 << 20));
        assert_eq!(usage.resident_bytes_peak, Some(2 << 20));
        assert_eq!(usage.anonymous_bytes, Some(512 << 10));
        assert_eq!(usage.disk_bytes_read, Some(4096));
        assert_eq!(usage.disk_bytes_written, Some(8192));
        assert_eq!(usage.disk_bytes_cancelled, Some(4096));
        assert_eq!(Usage::parse("", "VmRSS: x", "write_bytes:"), Usage::default());
    }

    #[test]
    fn this_process_uses_memory_and_its_files_occupy_disk() {
        assert!(Usage::now().resident_bytes.is_some_and(|bytes| bytes > 100_000));
        let directory = tempfile::tempdir().expect("temporary directory");
        fs::create_dir(directory.path().join("deeper")).expect("directory");
        fs::write(directory.path().join("deeper/file"), vec![1u8; 100_000]).expect("file");
        assert!(directory_bytes(directory.path()) >= 100_000);
        assert!(!Machine::describe(directory.path()).kernel.is_empty());
    }
}
