//! Reads of items on flash, by length: device queues beside plain calls, and long items in pieces that are in flight at once.
//!
//! ```sh
//! cargo run --release -p situ-cache --example flash_read -- /path/on/the/drive 1024
//! cargo run --release -p situ-cache --example flash_read -- DEVICE 1024 automatic|ring|blocking
//! ```
//!
//! The first argument is a file that is made, and removed at the end; the second is its size in MiB. Prints a line of JSON for each case: bytes of a value,
//! backend, length of pieces, items in flight, items a second, microseconds at the median and at the 99th percentile, processor time an item.
//!
//! With a third argument, the first is a device, which is **overwritten**, and one item is in flight. On a machine with one processor, `busy_ns` is the time
//! of an item in which the processor was not idle. It needs the rights of root. `scripts/nvme-cost.sh` runs this on a machine whose clock counts instructions.

use situ_base::Env;
use situ_cache::{Cache, Flash, Meta, Options};
use situ_device::{Backend, OpenOptions, open};
use std::fs::File;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const NOW: u64 = 1_700_000_000;

fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split(' ').collect();
    [12, 13].iter().filter_map(|at| fields.get(*at)?.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Returns the idle time of a machine's only processor so far, if the kernel tells it.
fn idle() -> Option<Duration> {
    let list = std::fs::read_to_string("/proc/timer_list").ok()?;
    let time = |name| {
        let mut times = list.lines().filter_map(|line| line.trim().strip_prefix(name)?.split_whitespace().nth(1));
        let time = times.next()?.parse().ok()?;
        times.next().is_none().then_some(Duration::from_nanos(time))
    };
    Some(time(".idle_sleeptime")? + time(".iowait_sleeptime")?)
}

struct Case {
    value_bytes: usize,
    backend: Backend,
    piece_bytes: usize,
    depths: &'static [usize],
    time: Duration,
}

fn run(path: &Path, flash_mib: u64, case: &Case) -> std::io::Result<()> {
    let device = open(path, OpenOptions { backend: case.backend, ..OpenOptions::default() })?;
    if path.is_file() {
        device.reserve()?;
    }
    let mut options = Options::of_memory(128 << 20);
    options.flash.promote_at = 0;
    options.flash.piece_bytes = case.piece_bytes;
    let (cache, _) = Cache::with_flash(&options, Flash { device, env: Env::system(), files: None }, |_| NOW)?;
    let count = (flash_mib << 20) / 2 / case.value_bytes as u64;
    let value = vec![7; case.value_bytes];
    for key in 0..count {
        let stored = cache.put(&key.to_le_bytes(), &Meta::default(), [&value, b""], NOW);
        stored.map_err(std::io::Error::other)?;
        if key % 64 == 0 {
            cache.spill(NOW);
        }
    }
    cache.spill(NOW);
    case.depths.iter().for_each(|depth| measure(&cache, case, count, *depth));
    Ok(())
}

fn measure(cache: &Cache, case: &Case, count: u64, depth: usize) {
    let (tell, told) = mpsc::channel();
    let mut state = 88_172_645_463_325_252u64;
    let mut ask = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let (tell, begun) = (tell.clone(), Instant::now());
        let done = move |record: Option<situ_cache::Record>| {
            let bytes = record.map_or(0, |record| record.item().value.len());
            _ = tell.send((begun.elapsed(), bytes));
        };
        cache.get_later(&(state % count).to_le_bytes(), NOW, Box::new(done));
    };
    (0..depth).for_each(|_| ask());
    let (was_idle, begin, processor) = (idle(), Instant::now(), processor_seconds());
    let (mut latencies, mut missing) = (Vec::new(), 0);
    while begin.elapsed() < case.time {
        let Ok((latency, bytes)) = told.recv() else { return };
        missing += u64::from(bytes != case.value_bytes);
        latencies.push(latency.as_nanos() as u64);
        ask();
    }
    (0..depth).for_each(|_| _ = told.recv());
    let (is_idle, took) = (idle(), begin.elapsed());
    let (seconds, processor) = (took.as_secs_f64(), processor_seconds() - processor);
    let busy = was_idle.zip(is_idle).map(|(before, after)| took.saturating_sub(after - before).as_nanos());
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    println!(
        "{{\"value_bytes\":{},\"backend\":\"{:?}\",\"piece_bytes\":{},\"in_flight\":{depth},\"items_per_s\":{:.0},\"p50_us\":{:.0},\
         \"p99_us\":{:.0},\"processor_us\":{:.1},\"missing\":{missing}{}}}",
        case.value_bytes,
        case.backend,
        case.piece_bytes,
        latencies.len() as f64 / seconds,
        at(0.5),
        at(0.99),
        processor * 1e6 / latencies.len() as f64,
        busy.map_or(String::new(), |busy| format!(",\"busy_ns\":{}", busy / latencies.len() as u128)),
    );
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(mib)) = (arguments.next(), arguments.next().and_then(|mib| mib.parse().ok())) else {
        return Err(std::io::Error::other("usage: flash_read FILE MIB"));
    };
    let path = Path::new(&path);
    if let Some(backend) = arguments.next() {
        let backend = match &*backend {
            "automatic" => Backend::Automatic,
            "ring" => Backend::Ring,
            "blocking" => Backend::Blocking,
            _ => return Err(std::io::Error::other("BACKEND is automatic, ring or blocking")),
        };
        for value_bytes in [1000, 4000, 16_000, 32_000, 64_000, 256_000, 1_000_000] {
            let (depths, time) = (&[1][..], Duration::from_secs(1));
            run(path, mib, &Case { value_bytes, backend, piece_bytes: 128 << 10, depths, time })?;
        }
        return Ok(());
    }
    for value_bytes in [1000, 4000, 16_000, 64_000, 256_000, 1_000_000] {
        for backend in [Backend::Ring, Backend::Blocking] {
            for piece_bytes in [1 << 20, 128 << 10] {
                if piece_bytes < 1 << 20 && value_bytes < 256_000 {
                    continue;
                }
                File::create(path)?.set_len(mib << 20)?;
                let (depths, time) = (&[1, 8, 64][..], Duration::from_secs(3));
                run(path, mib, &Case { value_bytes, backend, piece_bytes, depths, time })?;
            }
        }
    }
    std::fs::remove_file(path)
}
