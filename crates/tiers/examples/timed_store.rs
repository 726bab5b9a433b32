//! Synced puts into a store whose disks cost the processor nothing, with each part of the write path switched off.
//!
//! ```text
//! cargo run --release -p situ-tiers --example timed_store [SECONDS] [SERVICE_US] [CHANNELS] [THREADS] [OUTSTANDING] [WAY]...
//! ```
//!
//! The fast disk is memory that takes 10 us for an operation and serves six at a time. The capacity disk takes 100 us
//! and serves eight. The puts have keys of 16 bytes in random order and values of 1,024 bytes. Eight threads have 50
//! requests outstanding each.
//!
//! * `driver`: the fast disk is a drive behind a controller in software, by the driver in user space.
//! * `device`: the same without the driver and the controller. All that follow go without, too.
//! * `serial-log`: the log has one write in flight.
//! * `blocking`: each put has a thread that waits for it, at most 40 of them.
//! * `pinned`: level 0 and nothing else goes to the fast disk, whatever the load is.
//! * `file-system`: the log is in files of a file system in memory. A durable write of theirs waits as long as the
//!   device does, and costs the processor what the file system costs.

use situ_base::Env;
use situ_device::{Buffer, Device, NvmeController, NvmeDrive, Op, PAGE_BYTES};
use situ_engine::{Durability, Options, Store, StoreBuilder, WriteFuture};
use situ_rawdisk::{FormatOptions, RawOptions, RawVolume};
use situ_sim::{NvmeConfig, NvmeModel, NvmePlan, Rng, TimedDevice};
use situ_storage::{
    DirectoryVolume, Error as StorageError, FileMeta, FileName, Lock, PageFile, Reader, Result as StorageResult, Space,
    Volume, Writer,
};
use situ_tiers::{TieredBuilder, Tiers};
use std::collections::VecDeque;
use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const BLOCKING_THREADS_MAX: usize = 40;
const VALUE_BYTES: usize = 1024;
const FAST_BYTES: u64 = 1 << 30;
const HOME_BYTES: u64 = 3 << 30;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a write.
fn wait(write: WriteFuture, waker: &Waker) -> Result<()> {
    let mut write = pin!(write);
    loop {
        if let Poll::Ready(written) = write.as_mut().poll(&mut Context::from_waker(waker)) {
            return Ok(written.map(drop)?);
        }
        std::thread::park();
    }
}

/// Files of a file system whose durable writes take as long as an operation of the device.
struct TimedFiles {
    files: DirectoryVolume,
    device: TimedDevice,
}

struct TimedPages {
    pages: Arc<dyn PageFile>,
    device: TimedDevice,
}

fn pass_time(device: &TimedDevice) -> Result<()> {
    let (mut queue, mut done) = (device.queue(1)?, Vec::new());
    queue.submit(Op::Flush, Buffer::new(PAGE_BYTES)).map_err(|(_, error)| error)?;
    while queue.wait(&mut done, Duration::from_secs(1)) == 0 {}
    Ok(())
}

impl PageFile for TimedPages {
    fn path(&self) -> &str {
        self.pages.path()
    }

    fn pages(&self) -> u64 {
        self.pages.pages()
    }

    fn writes_wait(&self) -> bool {
        self.pages.writes_wait()
    }

    fn write(&self, first: u64, buffer: &Buffer, count: usize, durable: bool) -> StorageResult<()> {
        self.pages.write(first, buffer, count, durable)?;
        if durable {
            pass_time(&self.device).map_err(|error| StorageError::Invalid(error.to_string()))?;
        }
        Ok(())
    }

    fn sync(&self) -> StorageResult<()> {
        self.pages.sync()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> StorageResult<()> {
        self.pages.read_at(offset, into)
    }
}

impl TimedFiles {
    fn timed(&self, pages: Arc<dyn PageFile>) -> Arc<dyn PageFile> {
        Arc::new(TimedPages { pages, device: self.device.clone() })
    }
}

impl Volume for TimedFiles {
    fn location(&self) -> String {
        self.files.location()
    }

    fn create(&self, name: FileName, bound: u64) -> StorageResult<Box<dyn Writer>> {
        self.files.create(name, bound)
    }

    fn open(&self, name: FileName) -> StorageResult<Arc<dyn Reader>> {
        self.files.open(name)
    }

    fn create_pages(&self, name: FileName, bytes: u64) -> StorageResult<Arc<dyn PageFile>> {
        Ok(self.timed(self.files.create_pages(name, bytes)?))
    }

    fn open_pages(&self, name: FileName) -> StorageResult<Arc<dyn PageFile>> {
        Ok(self.timed(self.files.open_pages(name)?))
    }

    fn replace(&self, name: FileName, contents: &[u8]) -> StorageResult<()> {
        self.files.replace(name, contents)
    }

    fn rename(&self, from: FileName, to: FileName) -> StorageResult<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, name: FileName) -> StorageResult<()> {
        self.files.remove(name)
    }

    fn sync_names(&self) -> StorageResult<()> {
        self.files.sync_names()
    }

    fn list(&self) -> StorageResult<Vec<FileMeta>> {
        self.files.list()
    }

    fn space(&self) -> Space {
        self.files.space()
    }

    fn lock(&self) -> StorageResult<Box<dyn Lock>> {
        self.files.lock()
    }
}

fn key(number: u64) -> [u8; 16] {
    // SplitMix64's mix: no two numbers have one key.
    let mut mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&(mixed ^ (mixed >> 31)).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Puts until the time is over, with `outstanding` puts at a time. Returns the latencies in nanoseconds.
fn put(store: &Store, thread: u64, outstanding: usize, time: Duration) -> Result<Vec<u64>> {
    let keyspace = store.default_keyspace();
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut value = vec![0; VALUE_BYTES];
    Rng::new(thread).fill(&mut value);
    let mut begun: VecDeque<(Instant, WriteFuture)> = VecDeque::new();
    let mut latencies = Vec::new();
    let (start, mut number) = (Instant::now(), thread << 40);
    while start.elapsed() < time {
        let at = Instant::now();
        if outstanding == 0 {
            keyspace.put_with(key(number), &value, Durability::Synced)?;
            latencies.push(at.elapsed().as_nanos() as u64);
        } else {
            begun.push_back((at, keyspace.put_with_async(key(number), &value, Durability::Synced)));
        }
        number += 1;
        if begun.len() == outstanding
            && let Some((at, write)) = begun.pop_front()
        {
            wait(write, &waker)?;
            latencies.push(at.elapsed().as_nanos() as u64);
        }
    }
    for (_, write) in begun {
        wait(write, &waker)?;
    }
    Ok(latencies)
}

struct Load {
    time: Duration,
    threads: usize,
    outstanding: usize,
}

fn measure(name: &str, load: &Load, service: Duration, channels: usize) -> Result<()> {
    let env = Env::system();
    let raw = |device: Arc<dyn Device>| -> Result<Arc<dyn Volume>> {
        RawVolume::format(Arc::clone(&device), env.clone(), &FormatOptions::default())?;
        Ok(Arc::new(RawVolume::open(device, env.clone(), RawOptions::default())?))
    };
    let medium = TimedDevice::new(&env, FAST_BYTES, service, channels);
    let home = raw(Arc::new(TimedDevice::new(&env, HOME_BYTES, Duration::from_micros(100), 8)))?;
    let files = tempfile::tempdir_in("/dev/shm")?;
    let fast: Arc<dyn Volume> = match name {
        "driver" => {
            let model = NvmeModel::new(&env, NvmeConfig::default(), vec![Arc::new(medium)], NvmePlan::none(), 1);
            let controller = NvmeController::start(Arc::new(model))?;
            raw(Arc::new(NvmeDrive::open(controller, 1)?))?
        }
        "file-system" => Arc::new(TimedFiles { files: DirectoryVolume::open(files.path())?, device: medium }),
        _ => raw(Arc::new(medium))?,
    };
    let mut options = Options::default();
    options.ablation.serial_log = name == "serial-log";
    let pinned = (name == "pinned").then_some(1);
    options = options.places(Arc::new(Tiers::new().pinned_level(pinned)));
    let store = StoreBuilder::new(options).env(env).open_volumes(home, Some(fast))?;
    let (threads, outstanding) = match name {
        "blocking" => ((load.threads * load.outstanding).min(BLOCKING_THREADS_MAX), 0),
        _ => (load.threads, load.outstanding),
    };
    let start = Instant::now();
    let cpu = processor_time()?;
    let latencies = std::thread::scope(|scope| -> Result<Vec<u64>> {
        let threads: Vec<_> = (0..threads as u64)
            .map(|thread| (thread, &store))
            .map(|(thread, store)| scope.spawn(move || put(store, thread, outstanding, load.time)))
            .collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| "a thread panicked")??);
        }
        Ok(all)
    })?;
    let took = start.elapsed().as_secs_f64();
    let cpu = processor_time()? - cpu;
    let mut latencies = latencies;
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    let puts = latencies.len() as f64;
    let writes = store.properties().log_syncs as f64;
    println!(
        "{name} {:.0} {:.1} {:.1} {:.0} {:.0} {:.2} {:.2} {:.1}",
        puts / took,
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
        cpu / puts * 1e6,
        puts / writes,
        writes / took / 1000.0
    );
    store.close()?;
    Ok(())
}

/// Returns the processor time of this process, in seconds.
fn processor_time() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name of the program, which may have spaces, ends with a parenthesis.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: Vec<f64> = fields.skip(11).take(2).map(str::parse).collect::<std::result::Result<_, _>>()?;
    Ok(ticks.iter().sum::<f64>() / 100.0)
}

fn main() -> Result<()> {
    let argument = |number: usize, default: u64| {
        std::env::args().nth(number).map_or(default, |text| text.parse().expect("arguments are whole numbers"))
    };
    let (service, channels) = (Duration::from_micros(argument(2, 10)), argument(3, 6) as usize);
    let (threads, outstanding) = (argument(4, 8) as usize, argument(5, 50) as usize);
    let load = Load { time: Duration::from_secs(argument(1, 10)), threads, outstanding };
    println!("# {service:?}, {channels} channels, {threads} threads, {outstanding} requests outstanding for each");
    println!("# way, puts a second, p50, p99, p99.9, max in us, processor time of a put in us, puts of a log write,");
    println!("# thousands of log writes a second");
    let named: Vec<String> = std::env::args().skip(6).collect();
    for name in ["driver", "device", "serial-log", "blocking", "pinned", "file-system"] {
        if named.is_empty() || named.iter().any(|way| way == name) {
            measure(name, &load, service, channels)?;
        }
    }
    Ok(())
}
