//! Writes of 4 KiB to a drive in memory that takes 10 us for each: by the driver in user space over a controller in
//! software, and on the device itself.
//!
//! ```text
//! cargo run --release -p situ-sim --example timed_drive [SECONDS] [SERVICE_US] [CHANNELS]
//! ```
//!
//! One to four threads have one to four writes in flight each. A line has the writes of a second, and their latency.
//! The controller's own work is done by the threads that write, so the driver's figures contain it.

use situ_base::Env;
use situ_device::{Buffer, Device, NvmeController, NvmeDrive, Op, Ticket};
use situ_sim::{NvmeConfig, NvmeModel, NvmePlan, TimedDevice};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BYTES: u64 = 64 << 20;
const PAGE: u64 = 4096;

/// Writes until the time is over; returns the latencies in nanoseconds.
fn write(device: &dyn Device, thread: u64, depth: usize, time: Duration) -> Vec<u64> {
    let mut queue = device.queue(depth as u32).expect("the device has a queue for each thread");
    let mut spare: Vec<Buffer> = (0..depth).map(|_| Buffer::new(PAGE as usize)).collect();
    let mut begun: BTreeMap<Ticket, Instant> = BTreeMap::new();
    let (mut latencies, mut done) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    let mut page = thread;
    loop {
        let is_over = begin.elapsed() >= time;
        while !is_over && let Some(buffer) = spare.pop() {
            let op = Op::Write { offset: page * PAGE % BYTES, durable: true };
            page += 4;
            let now = Instant::now();
            let ticket = queue.submit(op, buffer).map_err(|(_, error)| error).expect("there is room");
            begun.insert(ticket, now);
        }
        if begun.is_empty() {
            return latencies;
        }
        queue.wait(&mut done, Duration::from_secs(10));
        for completion in done.drain(..) {
            completion.result.expect("the device does not fail");
            let begun = begun.remove(&completion.ticket).expect("a write ends once");
            latencies.push(begun.elapsed().as_nanos() as u64);
            spare.push(completion.buffer);
        }
    }
}

fn measure(name: &str, device: &Arc<dyn Device>, threads: u64, depth: usize, time: Duration) {
    let begin = Instant::now();
    let mut latencies: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || write(&**device, thread, depth, time))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a thread writes")).collect()
    });
    let took = begin.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    let rate = latencies.len() as f64 / took;
    println!("{name} {threads} {depth} {rate:.0} {:.1} {:.1} {:.1}", at(0.5), at(0.99), at(0.999));
}

fn main() {
    let argument = |number: usize, default: u64| {
        std::env::args().nth(number).map_or(default, |text| text.parse().expect("arguments are whole numbers"))
    };
    let time = Duration::from_secs(argument(1, 2));
    let (service, channels) = (Duration::from_micros(argument(2, 10)), argument(3, 6) as usize);
    let env = Env::system();
    println!(
        "# way, threads, in flight for each, writes a second, p50, p99, p99.9 in us; {service:?}, {channels} channels"
    );
    let timed = || TimedDevice::new(&env, BYTES, service, channels);
    let medium: Arc<dyn Device> = Arc::new(timed());
    let model = NvmeModel::new(&env, NvmeConfig::default(), vec![Arc::new(timed())], NvmePlan::none(), 1);
    let controller = NvmeController::start(Arc::new(model)).expect("a controller in software starts");
    let drive: Arc<dyn Device> = Arc::new(NvmeDrive::open(controller, 1).expect("the controller has one namespace"));
    for threads in 1..=4 {
        for depth in 1..=4 {
            measure("device", &medium, threads, depth, time);
            measure("driver", &drive, threads, depth, time);
        }
    }
}
