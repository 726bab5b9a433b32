//! What a disk is asked for: flushes are counted where the kernel counts them, on a loop device, which has a volatile cache,
//! and looked for on a zram device, which has none.

use crate::common::{Loop, Zram, skipped};
use situ_device::{Backend, Buffer, Device, Op, OpenOptions, Queue, open};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const BYTES: u64 = 16 << 20;
const LONG: Duration = Duration::from_secs(20);
const ROUNDS: u64 = 6;
/// The kernel may write or flush something of its own at any moment, but hardly at every one.
const ATTEMPTS: usize = 5;

/// Where a figure is in `/sys/block/NAME/stat`, counted from zero; flushes since Linux 5.5.
const SECTORS_WRITTEN: usize = 6;
const FLUSHES: usize = 15;

fn figure(disk: &Path, index: usize) -> Option<u64> {
    let stat = Path::new("/sys/block").join(disk.file_name()?).join("stat");
    std::fs::read_to_string(stat).ok()?.split_whitespace().nth(index)?.parse().ok()
}

fn backends(path: &Path) -> Vec<Arc<dyn Device>> {
    let mut devices = Vec::new();
    for backend in [Backend::Blocking, Backend::Ring, Backend::RingWithThread] {
        match open(path, OpenOptions { backend, read_only: false }) {
            Ok(device) => devices.push(device),
            Err(error) => skipped(format_args!("{backend:?} on {}: {error}", path.display())),
        }
    }
    devices
}

fn run(queue: &mut dyn Queue, op: Op, buffer: Buffer) -> Buffer {
    queue.submit(op, buffer).unwrap();
    let mut done = Vec::new();
    assert_eq!(queue.wait(&mut done, LONG), 1);
    let done = done.pop().unwrap();
    done.result.unwrap();
    done.buffer
}

/// Does `work` on a new queue of each backend of a loop device, and hands on how many flushes the disk got meanwhile.
fn on_a_volatile_cache(work: impl Fn(&mut dyn Queue), check: impl Fn(&str, &dyn Fn() -> u64)) {
    let Some(on_loop) = Loop::new(BYTES) else { return };
    if figure(&on_loop.path, FLUSHES).is_none() {
        return skipped("the kernel counts no flushes; it does from Linux 5.5 on");
    }
    for device in backends(&on_loop.path) {
        assert!(device.geometry().volatile_write_cache, "{}", device.describe());
        let count = || {
            let mut queue = device.queue(4).unwrap();
            let before = figure(&on_loop.path, FLUSHES).unwrap();
            work(&mut *queue);
            figure(&on_loop.path, FLUSHES).unwrap() - before
        };
        check(&device.describe(), &count);
    }
}

#[test]
fn a_flush_reaches_a_disk_with_a_volatile_cache() {
    let flush = |queue: &mut dyn Queue| {
        for _ in 0..ROUNDS {
            run(queue, Op::Flush, Buffer::new(1));
        }
    };
    on_a_volatile_cache(flush, |device, count| {
        let flushes = count();
        assert!(flushes >= ROUNDS, "{device}: {flushes} flushes for {ROUNDS}");
    });
}

/// A loop device has no force unit access; the kernel makes a flush behind the write of it.
#[test]
fn a_durable_write_reaches_a_disk_with_a_volatile_cache() {
    // A long buffer that comes back is registered with a ring, which then has another command for it.
    for bytes in [4096, 256 << 10] {
        let write = |queue: &mut dyn Queue| {
            let mut buffer = Buffer::new(bytes);
            for round in 0..ROUNDS {
                let offset = round * bytes as u64;
                buffer = run(queue, Op::Write { offset, durable: true }, buffer);
            }
        };
        on_a_volatile_cache(write, |device, count| {
            let flushes = count();
            assert!(flushes >= ROUNDS, "{device}: {flushes} flushes for {ROUNDS} durable writes of {bytes} bytes");
        });
    }
}

#[test]
fn a_write_that_need_not_be_durable_flushes_nothing() {
    let write = |queue: &mut dyn Queue| {
        let mut buffer = Buffer::new(256 << 10);
        for _ in 0..ROUNDS {
            buffer = run(queue, Op::Write { offset: 0, durable: false }, buffer);
        }
    };
    on_a_volatile_cache(write, |device, count| {
        let counts: Vec<u64> = (0..ATTEMPTS).map(|_| count()).collect();
        assert!(counts.contains(&0), "{device}: {counts:?} flushes");
    });
}

/// The kernel keeps flushes from a disk without a volatile cache, so none can be counted there. But what flushes a disk also
/// writes what the page cache has of it.
#[test]
fn a_disk_without_a_volatile_cache_is_not_flushed() {
    let Some(zram) = Zram::new(BYTES) else { return };
    let cached = std::fs::OpenOptions::new().write(true).open(&zram.path).unwrap();
    let written = || figure(&zram.path, SECTORS_WRITTEN).unwrap();
    for device in backends(&zram.path) {
        assert!(!device.geometry().volatile_write_cache, "{}", device.describe());
        let mut queue = device.queue(4).unwrap();
        let is_left_alone = (0..ATTEMPTS).any(|_| {
            let before = written();
            cached.write_all_at(&[1; 4096], BYTES - 4096).unwrap();
            run(&mut *queue, Op::Flush, Buffer::new(1));
            let by_flush = written() - before;
            cached.sync_data().unwrap();
            assert_eq!(written() - before, 8, "the page was there to be written, and was written once");
            by_flush == 0
        });
        assert!(is_left_alone, "{}: a flush each time", device.describe());
    }
}
