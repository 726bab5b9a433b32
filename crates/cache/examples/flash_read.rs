//! Reads of items on flash, by length: device queues beside plain calls, and long items in pieces that are in flight at once.
//!
//! ```sh
//! cargo run --release -p situ-cache --example flash_read -- /path/on/the/drive 1024
//! ```
//!
//! The first argument is a file that is made, and removed at the end; the second is its size in MiB. Prints a line of JSON for each case: bytes of a value,
//! backend, length of pieces, items in flight, items a second, microseconds at the median and at the 99th percentile, processor time an item.

use situ_base::Env;
use situ_cache::{Cache, Flash, Meta, Options};
use situ_device::{Backend, OpenOptions, open};
use std::fs::File;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const NOW: u64 = 1_700_000_000;
const TIME: Duration = Duration::from_secs(3);

fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split(' ').collect();
    [12, 13].iter().filter_map(|at| fields.get(*at)?.parse::<f64>().ok()).sum::<f64>() / 100.0
}

struct Case {
    value_bytes: usize,
    backend: Backend,
    piece_bytes: usize,
}

fn run(path: &Path, flash_mib: u64, case: &Case) -> std::io::Result<()> {
    File::create(path)?.set_len(flash_mib << 20)?;
    let device = open(path, OpenOptions { backend: case.backend, ..OpenOptions::default() })?;
    device.reserve()?;
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
    for depth in [1, 8, 64] {
        measure(&cache, case, count, depth);
    }
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
    let (begin, processor) = (Instant::now(), processor_seconds());
    let (mut latencies, mut missing) = (Vec::new(), 0);
    while begin.elapsed() < TIME {
        let Ok((latency, bytes)) = told.recv() else { return };
        missing += u64::from(bytes != case.value_bytes);
        latencies.push(latency.as_nanos() as u64);
        ask();
    }
    (0..depth).for_each(|_| _ = told.recv());
    let (seconds, processor) = (begin.elapsed().as_secs_f64(), processor_seconds() - processor);
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    println!(
        "{{\"value_bytes\":{},\"backend\":\"{:?}\",\"piece_bytes\":{},\"in_flight\":{depth},\"items_per_s\":{:.0},\"p50_us\":{:.0},\
         \"p99_us\":{:.0},\"processor_us\":{:.1},\"missing\":{missing}}}",
        case.value_bytes,
        case.backend,
        case.piece_bytes,
        latencies.len() as f64 / seconds,
        at(0.5),
        at(0.99),
        processor * 1e6 / latencies.len() as f64,
    );
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(mib)) = (arguments.next(), arguments.next().and_then(|mib| mib.parse().ok())) else {
        return Err(std::io::Error::other("usage: flash_read FILE MIB"));
    };
    let path = Path::new(&path);
    for value_bytes in [1000, 4000, 16_000, 64_000, 256_000, 1_000_000] {
        for backend in [Backend::Ring, Backend::Blocking] {
            for piece_bytes in [1 << 20, 128 << 10] {
                if piece_bytes < 1 << 20 && value_bytes < 256_000 {
                    continue;
                }
                run(path, mib, &Case { value_bytes, backend, piece_bytes })?;
            }
        }
    }
    std::fs::remove_file(path)
}
