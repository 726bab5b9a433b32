//! Which backend is fastest on a device: `cargo bench -p situ-device --bench backends -- PATH...`
//!
//! Each PATH is a block device or a file of at least 16 MiB. **What it holds is overwritten.** For each backend, kind of
//! operation, size and number in flight: operations a second, how long one takes, and the processor time it costs, of
//! the whole process, kernel threads that work for it included. The backends take turns, several rounds; the table
//! gives the median round.

use situ_device::{Backend, Buffer, Completion, Device, Op, OpenOptions, Ticket, open};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(400);
const BACKENDS: [Backend; 3] = [Backend::Blocking, Backend::Ring, Backend::RingWithThread];

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    write: bool,
    bytes: usize,
    depth: u32,
}

struct Figures {
    per_second: f64,
    p50_us: f64,
    p99_us: f64,
    processor_us: f64,
}

fn main() {
    let paths: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if paths.is_empty() {
        return println!("nothing measured: name block devices or files, which are overwritten");
    }
    for path in paths {
        measure(Path::new(&path));
    }
}

fn measure(path: &Path) {
    let devices: Vec<(Backend, Arc<dyn Device>)> = BACKENDS
        .into_iter()
        .filter_map(|backend| match open(path, OpenOptions { backend, read_only: false }) {
            Ok(device) => Some((backend, device)),
            Err(error) => {
                println!("{backend:?} on {}: {error}", path.display());
                None
            }
        })
        .collect();
    let Some((_, first)) = devices.first() else { return };
    let _lock = first.lock().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    println!("\n{} {:?}", path.display(), first.geometry());
    println!("| case | backend | 1/s | p50 us | p99 us | cpu us |\n|---|---|---|---|---|---|");
    for (write, name) in [(true, "durable write"), (false, "read")] {
        for bytes in [4 << 10, 64 << 10, 1 << 20] {
            for depth in [1, 8] {
                let case = Case { name, write, bytes, depth };
                let mut rounds: Vec<Vec<Figures>> = devices.iter().map(|_| Vec::new()).collect();
                for _ in 0..ROUNDS {
                    for ((_, device), rounds) in devices.iter().zip(&mut rounds) {
                        rounds.push(round(&**device, case));
                    }
                }
                for ((backend, _), mut rounds) in devices.iter().zip(rounds) {
                    rounds.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
                    let Figures { per_second, p50_us, p99_us, processor_us } = rounds[ROUNDS / 2];
                    println!(
                        "| {} {} KiB, {} in flight | {backend:?} | {per_second:.0} | {p50_us:.1} | {p99_us:.1} | {processor_us:.1} |",
                        case.name,
                        case.bytes >> 10,
                        case.depth,
                    );
                }
            }
        }
    }
}

fn round(device: &dyn Device, case: Case) -> Figures {
    let mut queue = device.queue(case.depth).unwrap();
    let places = (device.space().logical_total.min(256 << 20) / case.bytes as u64).max(1);
    let mut buffers: Vec<Buffer> = (0..case.depth).map(|index| content(case.bytes, index)).collect();
    let mut begun: Vec<(Ticket, Instant)> = Vec::new();
    let mut latencies = Vec::new();
    let mut done: Vec<Completion> = Vec::new();
    let (mut next, mut in_flight) = (0_u64, 0);
    let (begin, processor) = (Instant::now(), processor_time());
    loop {
        let ending = begin.elapsed() >= ROUND;
        while !ending && let Some(buffer) = buffers.pop() {
            // Writes as a log makes them, one behind the other; reads anywhere.
            let place = if case.write { next } else { next.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20 };
            let offset = place % places * case.bytes as u64;
            let op = if case.write { Op::Write { offset, durable: true } } else { Op::Read { offset } };
            let at = Instant::now();
            begun.push((queue.submit(op, buffer).unwrap(), at));
            next += 1;
            in_flight += 1;
            if case.depth > 1 && queue.poll(&mut done) > 0 {
                break;
            }
        }
        if in_flight == 0 {
            break;
        }
        if done.is_empty() {
            queue.wait(&mut done, Duration::from_secs(10));
        }
        for completion in done.drain(..) {
            completion.result.unwrap();
            let place = begun.iter().position(|(ticket, _)| *ticket == completion.ticket).unwrap();
            latencies.push(begun.swap_remove(place).1.elapsed());
            buffers.push(completion.buffer);
            in_flight -= 1;
        }
    }
    let (took, processor) = (begin.elapsed(), processor_time() - processor);
    latencies.sort_unstable();
    let count = latencies.len();
    Figures {
        per_second: count as f64 / took.as_secs_f64(),
        p50_us: latencies[count / 2].as_secs_f64() * 1e6,
        p99_us: latencies[count * 99 / 100].as_secs_f64() * 1e6,
        processor_us: processor.as_secs_f64() * 1e6 / count as f64,
    }
}

/// Half of it random, so that a device that compresses has something to do, as with a store's values.
fn content(bytes: usize, seed: u32) -> Buffer {
    let mut buffer = Buffer::new(bytes);
    let mut state = u64::from(seed) + 1;
    for chunk in buffer.chunks_exact_mut(16) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk[..8].copy_from_slice(&state.to_le_bytes());
    }
    buffer
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
