//! Tests of the requests to the kernel: those that a volatile cache needs, and those that are left out without one.
//!
//! A file in the page cache shows both. The file system gives bytes their blocks when it writes them, not before. Bytes
//! with blocks were forced out of the cache, by a flush or by the write itself. Bytes without blocks were not.

use crate::extents::is_mapped;
use crate::skipped::skipped;
use crate::target::Target;
use crate::uring::RingDevice;
use crate::{Buffer, Device, FileDevice, Op, PAGE_BYTES, Queue};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);
const PAGES: u64 = 4;
/// The number of attempts. Another process may sync the whole file system at any moment, but hardly at every one.
const ATTEMPTS: usize = 5;

fn file() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(PAGES * PAGE_BYTES as u64).unwrap();
    file
}

fn is_on_the_disk(file: &tempfile::NamedTempFile, pages: u64) -> bool {
    is_mapped(file.as_file(), pages * PAGE_BYTES as u64).unwrap()
}

/// Returns true if the file system tells the difference; said aloud where it does not.
fn can_tell() -> bool {
    let can = (0..ATTEMPTS).any(|_| {
        let file = file();
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), &[1; PAGE_BYTES], 0).unwrap();
        let before = is_on_the_disk(&file, 1);
        file.as_file().sync_all().unwrap();
        !before && is_on_the_disk(&file, 1)
    });
    if !can {
        skipped("the file system does not tell what it has written");
    }
    can
}

/// Returns a new file behind either backend, as a device with a volatile cache or without one.
fn devices(volatile_write_cache: bool) -> Vec<(tempfile::NamedTempFile, Box<dyn Device>)> {
    let target = || {
        let file = file();
        let mut target = Target::fake(file.reopen().unwrap(), PAGES * PAGE_BYTES as u64);
        target.geometry.volatile_write_cache = volatile_write_cache;
        (file, target)
    };
    let (at, plain) = target();
    let mut devices: Vec<(_, Box<dyn Device>)> = vec![(at, Box::new(FileDevice::new(plain)))];
    for submission_poll in [false, true] {
        let (at, ring) = target();
        match RingDevice::new(ring, submission_poll) {
            Ok(device) => devices.push((at, Box::new(device))),
            Err(error) => skipped(format_args!("no io_uring here: {error}")),
        }
    }
    devices
}

fn submit_write(queue: &mut dyn Queue, page: u64, durable: bool) {
    let op = Op::Write { offset: page * PAGE_BYTES as u64, durable };
    queue.submit(op, Buffer::new(PAGE_BYTES)).unwrap();
}

fn wait_for(queue: &mut dyn Queue, count: usize) {
    let mut done = Vec::new();
    while done.len() < count {
        assert!(queue.wait(&mut done, LONG) > 0);
    }
    done.into_iter().for_each(|done| done.result.unwrap());
}

/// Checks `work`, which writes `pages` pages. With a volatile cache, the pages reach the disk before `work` is
/// complete. Without one, they stay where the kernel has them.
fn is_forced_only_by_a_volatile_cache(pages: u64, work: impl Fn(&mut dyn Queue)) {
    if !can_tell() {
        return;
    }
    let reached = |volatile: bool| -> Vec<(String, bool)> {
        let all = devices(volatile).into_iter().map(|(file, device)| {
            work(&mut *device.queue(4).unwrap());
            (device.describe(), is_on_the_disk(&file, pages))
        });
        all.collect()
    };
    for (device, has_reached) in reached(true) {
        assert!(has_reached, "{device} with a volatile cache: complete, and not on the disk");
    }
    let attempts: Vec<_> = (0..ATTEMPTS).map(|_| reached(false)).collect();
    for index in 0..attempts[0].len() {
        let always = attempts.iter().all(|attempt| attempt[index].1);
        assert!(!always, "{} without a volatile cache was asked for more than a write", attempts[0][index].0);
    }
}

#[test]
fn a_durable_write_is_forced_only_by_a_volatile_cache() {
    is_forced_only_by_a_volatile_cache(1, |queue| {
        submit_write(queue, 0, true);
        wait_for(queue, 1);
    });
}

/// Alone, a ring does it by a call (`Commands::prefers_call`); these are in the ring.
#[test]
fn durable_writes_side_by_side_are_forced_only_by_a_volatile_cache() {
    is_forced_only_by_a_volatile_cache(3, |queue| {
        (0..3).for_each(|page| submit_write(queue, page, true));
        wait_for(queue, 3);
    });
}

#[test]
fn a_flush_forces_what_was_written_only_where_there_is_a_volatile_cache() {
    is_forced_only_by_a_volatile_cache(2, |queue| {
        (0..2).for_each(|page| submit_write(queue, page, false));
        wait_for(queue, 2);
        queue.submit(Op::Flush, Buffer::new(1)).unwrap();
        wait_for(queue, 1);
    });
}

#[test]
fn a_write_that_need_not_be_durable_is_not_forced() {
    if !can_tell() {
        return;
    }
    let attempt = || -> Vec<bool> {
        let all = devices(true).into_iter().map(|(file, device)| {
            let mut queue = device.queue(4).unwrap();
            (0..2).for_each(|page| submit_write(&mut *queue, page, false));
            wait_for(&mut *queue, 2);
            is_on_the_disk(&file, 2)
        });
        all.collect()
    };
    let attempts: Vec<_> = (0..ATTEMPTS).map(|_| attempt()).collect();
    for index in 0..attempts[0].len() {
        assert!(!attempts.iter().all(|attempt| attempt[index]), "device {index} of {attempts:?}");
    }
}
