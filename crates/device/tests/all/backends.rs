//! What every backend must do, on a file, on block devices, and on whatever `SITU_TEST_DEVICES` names: paths of devices of
//! 16 MiB, separated by spaces, **which are overwritten**. That is how NVMe drives are tested:
//! `SITU_TEST_DEVICES='/dev/nvme0n1 /dev/ng0n1 pci:0000:01:00.0/1'`, with drives that an emulator makes of files, for example.

use crate::common::{Loop, Zram, skipped};
use situ_device::{Backend, Buffer, Completion, Device, Op, OpenOptions, Ticket, is_pci_name, open};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const BYTES: u64 = 16 << 20;
const LONG: Duration = Duration::from_secs(20);

/// Every backend that this machine has, over the path.
fn backends(path: &Path) -> Vec<Arc<dyn Device>> {
    let mut devices = Vec::new();
    let all = [Backend::Automatic, Backend::Blocking, Backend::Ring, Backend::RingWithThread];
    // Behind the driver in user space, there is no other.
    for backend in if is_pci_name(path) { &all[..1] } else { &all[..] }.iter().copied() {
        match open(path, OpenOptions { backend, read_only: false }) {
            Ok(device) => devices.push(device),
            Err(error) if backend != Backend::Automatic => {
                skipped(format_args!("{backend:?} on {}: {error}", path.display()));
            }
            Err(error) => panic!("{backend:?}: {error}"),
        }
    }
    devices
}

/// Runs `test` with every backend on a sparse file, a zram device and a loop device.
fn everywhere(test: impl Fn(&dyn Device)) {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(BYTES).unwrap();
    let (zram, on_loop) = (Zram::new(BYTES), Loop::new(BYTES));
    let paths = [Some(file.path()), zram.as_ref().map(|zram| &*zram.path), on_loop.as_ref().map(|it| &*it.path)];
    let named = std::env::var("SITU_TEST_DEVICES").unwrap_or_default();
    if named.is_empty() {
        skipped("NVMe drives; SITU_TEST_DEVICES names none");
    }
    // They are there once, and the tests run side by side.
    static NAMED: Mutex<()> = Mutex::new(());
    let _alone = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    for path in paths.into_iter().flatten().chain(named.split_whitespace().map(Path::new)) {
        for device in backends(path) {
            println!("{}", device.describe());
            test(&*device);
        }
    }
}

fn filled(bytes: usize, with: u8) -> Buffer {
    let mut buffer = Buffer::new(bytes);
    buffer.fill(with);
    buffer
}

fn run(device: &dyn Device, op: Op, buffer: Buffer) -> io::Result<Buffer> {
    let mut queue = device.queue(1).unwrap();
    queue.submit(op, buffer).unwrap();
    let mut done = Vec::new();
    assert_eq!(queue.wait(&mut done, LONG), 1);
    let done = done.pop().unwrap();
    done.result.map(|()| done.buffer)
}

fn read(device: &dyn Device, offset: u64) -> u8 {
    let buffer = run(device, Op::Read { offset }, Buffer::new(4096)).unwrap();
    assert!(buffer.iter().all(|byte| *byte == buffer[0]));
    buffer[0]
}

#[test]
fn what_was_written_is_read() {
    everywhere(|device| {
        for (page, durable) in [(0, true), (3, false), (5, true)] {
            run(device, Op::Write { offset: page * 4096, durable }, filled(4096, page as u8 + 1)).unwrap();
        }
        run(device, Op::Flush, Buffer::new(1)).unwrap();
        assert_eq!([0, 3, 5].map(|page| read(device, page * 4096)), [1, 4, 6]);
        let most = device.geometry().max_transfer_bytes;
        let long = filled(most as usize, 9);
        run(device, Op::Write { offset: BYTES - u64::from(most), durable: false }, long).unwrap();
        assert_eq!(read(device, BYTES - 4096), 9);
    });
}

#[test]
fn several_in_flight_come_back_with_their_own_buffers() {
    everywhere(|device| {
        let mut queue = device.queue(8).unwrap();
        let mut expected: BTreeMap<Ticket, u8> = BTreeMap::new();
        let mut done: Vec<Completion> = Vec::new();
        for round in 0..200_u64 {
            let value = round as u8;
            let buffer = filled(4096 << (round % 3), value);
            let offset = (round % 16) * 65536;
            let ticket = loop {
                match queue.submit(Op::Write { offset, durable: round % 2 == 0 }, buffer_of(&buffer)) {
                    Ok(ticket) => break ticket,
                    Err((_, error)) => {
                        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                        assert!(queue.wait(&mut done, LONG) > 0);
                    }
                }
            };
            assert!(expected.insert(ticket, value).is_none());
        }
        while done.len() < 200 {
            assert!(queue.wait(&mut done, LONG) > 0);
        }
        for completion in done {
            completion.result.unwrap();
            let value = expected.remove(&completion.ticket).unwrap();
            assert!(completion.buffer.iter().all(|byte| *byte == value));
        }
        assert!(expected.is_empty());
    });
}

fn buffer_of(bytes: &[u8]) -> Buffer {
    let mut buffer = Buffer::new(bytes.len());
    buffer.copy_from_slice(bytes);
    buffer
}

#[test]
fn zeroed_bytes_read_as_zero() {
    everywhere(|device| {
        for page in 0..4 {
            run(device, Op::Write { offset: page * 4096, durable: false }, filled(4096, 7)).unwrap();
        }
        run(device, Op::Zero { offset: 4096, bytes: 8192 }, Buffer::new(1)).unwrap();
        assert_eq!([0, 1, 2, 3].map(|page| read(device, page * 4096)), [7, 0, 0, 7]);
        run(device, Op::Zero { offset: 0, bytes: BYTES }, Buffer::new(1)).unwrap();
        assert_eq!(read(device, 0), 0);
    });
}

#[test]
fn discarding_works_where_the_geometry_says_so_and_is_refused_elsewhere() {
    everywhere(|device| {
        for page in 0..3 {
            run(device, Op::Write { offset: page << 15, durable: false }, filled(1 << 15, 7)).unwrap();
        }
        let result = run(device, Op::Discard { offset: 1 << 15, bytes: 1 << 15 }, Buffer::new(1));
        let geometry = device.geometry();
        if geometry.discard_bytes == 0 {
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::Unsupported);
        } else {
            result.unwrap();
            if geometry.discard_zeroes {
                assert_eq!(read(device, 1 << 15), 0);
            }
        }
        assert_eq!([read(device, 0), read(device, 2 << 15)], [7, 7]);
    });
}

#[test]
fn bad_requests_are_refused_with_the_buffer_and_the_reason() {
    everywhere(|device| {
        let mut queue = device.queue(1).unwrap();
        for (op, bytes, reason) in [
            (Op::Read { offset: 1 }, 4096, "whole blocks"),
            (Op::Read { offset: BYTES }, 4096, "ends behind the device"),
            (Op::Write { offset: BYTES - 4096, durable: false }, 8192, "ends behind the device"),
            (Op::Read { offset: 0 }, (1 << 20) + 4096, "longer than one transfer"),
            (Op::Zero { offset: 4096, bytes: BYTES }, 4096, "ends behind the device"),
        ] {
            let (buffer, error) = queue.submit(op, Buffer::new(bytes)).unwrap_err();
            assert_eq!((error.kind(), buffer.len()), (io::ErrorKind::InvalidInput, bytes));
            assert!(error.to_string().contains(reason), "{error}");
        }
        assert_eq!(queue.poll(&mut Vec::new()), 0);
    });
}

#[test]
fn one_opener_has_the_right_to_write() {
    everywhere(|device| {
        let lock = device.lock().unwrap();
        assert_eq!(device.lock().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        device.lock().unwrap();
    });
}

#[test]
fn a_block_device_says_what_its_disk_says() {
    if let Some(zram) = Zram::new(BYTES) {
        let device = open(&zram.path, OpenOptions::default()).unwrap();
        let geometry = device.geometry();
        assert!(!geometry.volatile_write_cache);
        assert_eq!((geometry.block_bytes, geometry.discard_bytes), (4096, 4096));
        assert_eq!(device.space().logical_total, BYTES);
        run(&*device, Op::Write { offset: 0, durable: true }, filled(1 << 20, 7)).unwrap();
        let space = device.space();
        assert!(space.logical_used >= 1 << 20 && space.physical_used.is_some_and(|bytes| bytes < 1 << 20), "{space:?}");
        assert!(device.describe().contains("block device"), "{}", device.describe());
    }
}

#[test]
fn a_mounted_device_is_refused_to_writers() {
    let Some(on_loop) = Loop::new(BYTES) else { return };
    let directory = tempfile::tempdir().unwrap();
    let run = |program: &str, arguments: &[&Path]| {
        std::process::Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
    };
    if !run("mkfs.ext4", &[&on_loop.path]) || !run("mount", &[&on_loop.path, directory.path()]) {
        return skipped("no file system could be made and mounted");
    }
    let device = open(&on_loop.path, OpenOptions { read_only: true, ..Default::default() });
    let error = device.and_then(|device| device.lock()).unwrap_err();
    assert!(run("umount", &[directory.path()]));
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert!(error.to_string().contains("mounted"), "{error}");
    open(&on_loop.path, OpenOptions::default()).unwrap().lock().unwrap();
}

#[test]
fn a_read_only_opener_cannot_write() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(BYTES).unwrap();
    for backend in [Backend::Blocking, Backend::Ring] {
        let Ok(device) = open(file.path(), OpenOptions { read_only: true, backend }) else {
            skipped(format_args!("no {backend:?} here"));
            continue;
        };
        assert_eq!(read(&*device, 0), 0);
        let error = run(&*device, Op::Write { offset: 0, durable: false }, Buffer::new(1)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(9), "EBADF, not {error}");
    }
}

#[test]
fn the_backend_follows_from_what_the_path_supports() {
    let describe = |path: &Path| open(path, OpenOptions::default()).unwrap().describe();
    if let Some(zram) = Zram::new(BYTES) {
        let text = describe(&zram.path);
        assert!(text.contains("block device, pread and pwrite, direct"), "{text}");
    }
    let Some(on_loop) = Loop::new(BYTES) else { return };
    if open(&on_loop.path, OpenOptions { backend: Backend::Ring, read_only: true }).is_ok() {
        let text = describe(&on_loop.path);
        assert!(text.contains("block device, io_uring, direct"), "{text}");
    }
}

/// Buffers that come back again and again, as long transfers make them: registered with the ring by then.
#[test]
fn buffers_that_are_used_again_carry_what_they_should() {
    everywhere(|device| {
        let most = device.geometry().max_transfer_bytes.min(256 << 10) as usize;
        let mut queue = device.queue(4).unwrap();
        let mut buffers: Vec<Buffer> = (0..4).map(|_| Buffer::new(most)).collect();
        for round in 0..12_u8 {
            let mut done = Vec::new();
            for (index, mut buffer) in buffers.drain(..).enumerate() {
                buffer.fill(round * 4 + index as u8 + 1);
                let offset = (index * most) as u64;
                queue.submit(Op::Write { offset, durable: false }, buffer).unwrap();
            }
            while done.len() < 4 {
                assert!(queue.wait(&mut done, LONG) > 0);
            }
            for completion in done {
                completion.result.unwrap();
                buffers.push(completion.buffer);
            }
            for index in 0..4 {
                let offset = (index * most + most - 4096) as u64;
                assert_eq!(read(device, offset), round * 4 + index as u8 + 1, "round {round}");
            }
        }
    });
}

/// Some are polled for, some interrupt, some are calls: whatever is waited for first, all come back.
#[test]
fn operations_of_all_kinds_go_side_by_side() {
    everywhere(|device| {
        let can_discard = device.geometry().discard_bytes > 0;
        let mut queue = device.queue(8).unwrap();
        for round in 0..16_u64 {
            let ops = [
                Op::Read { offset: 0 },
                Op::Flush,
                Op::Write { offset: 1 << 20, durable: true },
                Op::Zero { offset: 2 << 20, bytes: 64 << 10 },
                Op::Discard { offset: 3 << 20, bytes: 64 << 10 },
                Op::Read { offset: 4 << 20 },
                Op::Write { offset: 5 << 20, durable: false },
                Op::Flush,
            ];
            let mut done = Vec::new();
            // Each round begins with another of them.
            for index in 0..8 {
                let op = ops[(index + round as usize) % 8];
                queue.submit(op, Buffer::new(4096)).unwrap();
                if round % 3 == 0 {
                    queue.poll(&mut done);
                }
            }
            while done.len() < 8 {
                assert!(queue.wait(&mut done, LONG) > 0, "{}, round {round}: {done:?}", device.describe());
            }
            for completion in done {
                match (completion.op, completion.result) {
                    (Op::Discard { .. }, result) if !can_discard => assert!(result.is_err()),
                    (op, result) => result.unwrap_or_else(|error| panic!("{}: {op:?}: {error}", device.describe())),
                }
            }
        }
    });
}
