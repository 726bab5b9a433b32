//! Drives that compress, asked through the kernel.

use crate::common::{Mounted, Zram, skipped};
use situ_device::{Buffer, Completion, Compresses, Device, Drive, Op, OpenOptions, open};
use std::time::Duration;

const BYTES: u64 = 64 << 20;
const PAGE: usize = 4096;

fn run(device: &dyn Device, op: Op, buffer: Buffer) -> Completion {
    let mut queue = device.queue(1).unwrap();
    queue.submit(op, buffer).map_err(|(_, error)| error).unwrap();
    let mut done = Vec::new();
    assert_eq!(queue.wait(&mut done, Duration::from_secs(20)), 1);
    done.remove(0)
}

/// Pages that nothing compresses.
fn noise(pages: usize, seed: u64) -> Buffer {
    let mut buffer = Buffer::new(pages * PAGE);
    let mut state = seed | 1;
    for word in buffer.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    buffer
}

#[test]
fn zram_tells_its_nature_and_what_it_holds() {
    let Some(zram) = Zram::new(BYTES) else { return };
    let drive = Drive::under(&zram.path).unwrap();
    assert_eq!((drive.nature().compresses, &*drive.nature().kind), (Compresses::Yes, "zram"));
    let device = open(&zram.path, OpenOptions::default()).unwrap();
    assert_eq!(device.nature(), *drive.nature());
    assert_eq!(device.space().physical_total, None, "a drive without a limit");
    run(&*device, Op::Write { offset: 0, durable: true }, noise(256, 1)).result.unwrap();
    let full = device.space();
    assert!(full.physical_used >= Some(1 << 20), "{full:?}");
    assert_eq!((full.logical_used, full.physical_written), (1 << 20, None));
    // Zeros are not stored, and a discard gives back what was.
    run(&*device, Op::Write { offset: 0, durable: true }, Buffer::new(128 * PAGE)).result.unwrap();
    let half = device.space().physical_used.unwrap();
    assert!(half < (1 << 19) + PAGE as u64, "{half}");
    let discard = Op::Discard { offset: 1 << 19, bytes: 1 << 19 };
    run(&*device, discard, Buffer::new(1)).result.unwrap();
    let none = device.space().physical_used.unwrap();
    assert!(none < PAGE as u64, "{none}");
}

/// A limit on its memory is how a test makes zram run out of physical space while logical space remains.
#[test]
fn zram_with_a_limit_fills_up_and_says_so() {
    let Some(zram) = Zram::new(BYTES) else { return };
    let limit = 4 << 20;
    if let Err(error) = std::fs::write(zram.sys("mem_limit"), limit.to_string()) {
        return skipped(format_args!("zram takes no limit: {error}"));
    }
    let device = open(&zram.path, OpenOptions::default()).unwrap();
    let drive = Drive::under(&zram.path).unwrap();
    assert_eq!((device.space().physical_free(), drive.trouble()), (Some(limit), None));
    let mut last = limit;
    let refused = (0..20).find_map(|piece| {
        let offset = piece * 64 * PAGE as u64;
        let written = run(&*device, Op::Write { offset, durable: true }, noise(64, piece + 1)).result;
        let free = device.space().physical_free().unwrap();
        assert!(free < last || written.is_err(), "{free} after {last}");
        last = free;
        written.err()
    });
    assert!(refused.is_some(), "4 MiB were written to a drive that has no more, and need memory beside");
    assert!(device.space().logical_total > 8 << 20, "logical space remains");
    assert!(last < 64 * PAGE as u64, "{last} bytes are left");
    assert!(drive.trouble().unwrap().contains("have failed"), "{:?}", drive.trouble());
}

/// A directory lies on the drive that its file system is on.
#[test]
fn a_file_system_on_zram_is_on_a_drive_that_compresses() {
    let Some(zram) = Zram::new(BYTES) else { return };
    let Some(mounted) = Mounted::ext4(&zram.path) else { return };
    let drive = Drive::under(mounted.directory.path()).unwrap();
    let (nature, counts) = (drive.nature(), drive.counts());
    assert_eq!((nature.compresses, &*nature.kind), (Compresses::Yes, "zram"));
    assert_eq!(nature.devices.len(), 1, "{nature:?}");
    assert!(counts.physical_used.is_some_and(|used| used > 0), "{counts:?}");
}
