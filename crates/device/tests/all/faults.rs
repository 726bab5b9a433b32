//! Devices that fail, shrink and vanish: every operation in flight comes back, with its buffer and with an error.

use crate::common::{Loop, skipped};
use situ_device::{Backend, Buffer, Completion, Device, Op, OpenOptions, open};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const BYTES: u64 = 8 << 20;
const LONG: Duration = Duration::from_secs(20);

fn backends(path: &Path) -> Vec<Arc<dyn Device>> {
    let open = |backend| open(path, OpenOptions { backend, read_only: false }).ok();
    [Backend::Blocking, Backend::Ring, Backend::RingWithThread].into_iter().filter_map(open).collect()
}

/// Eight operations at once, one in each eighth of the device.
fn eight(device: &dyn Device, op: impl Fn(u64) -> Op) -> Vec<Completion> {
    let mut queue = device.queue(8).unwrap();
    let mut done = Vec::new();
    for eighth in 0..8 {
        let mut buffer = Buffer::new(8192);
        buffer.fill(eighth as u8 + 1);
        queue.submit(op(eighth * BYTES / 8), buffer).unwrap();
    }
    while done.len() < 8 {
        assert!(queue.wait(&mut done, LONG) > 0, "{}: an operation did not come back", device.describe());
    }
    done.sort_by_key(|completion| completion.ticket);
    assert!(done.iter().all(|completion| completion.buffer.len() == 8192));
    done
}

/// The disk beneath a loop device goes away, all of it but the first half.
#[test]
fn a_device_that_disappears_fails_each_operation_and_hangs_none() {
    let Some(on_loop) = Loop::new(BYTES) else { return };
    for device in backends(&on_loop.path) {
        on_loop.file.as_file().set_len(BYTES).unwrap();
        assert!(eight(&*device, |offset| Op::Write { offset, durable: true }).iter().all(|done| done.result.is_ok()));
        on_loop.file.as_file().set_len(BYTES / 2).unwrap();
        let reads = eight(&*device, |offset| Op::Read { offset });
        for (eighth, done) in reads.iter().enumerate() {
            match &done.result {
                Ok(()) if eighth < 4 => assert!(done.buffer.iter().all(|byte| *byte == eighth as u8 + 1)),
                Ok(()) => panic!("{}: what is gone was read", device.describe()),
                Err(error) => {
                    assert!(eighth >= 4, "{}: {error}", device.describe());
                    assert_eq!(error.raw_os_error(), Some(5), "EIO, not {error}");
                }
            }
        }
        // What is there still works.
        assert!(eight(&*device, |offset| Op::Read { offset: offset / 2 }).iter().all(|done| done.result.is_ok()));
    }
}

#[test]
fn a_file_that_has_shrunk_is_an_error_not_a_short_read() {
    for backend in [Backend::Blocking, Backend::Ring] {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(BYTES).unwrap();
        let Ok(device) = open(file.path(), OpenOptions { backend, read_only: false }) else {
            skipped(format_args!("no {backend:?} here"));
            continue;
        };
        // In the middle of the fifth operation, and of a block.
        file.as_file().set_len(BYTES / 2 + 4096 + 512).unwrap();
        for (eighth, done) in eight(&*device, |offset| Op::Read { offset }).into_iter().enumerate() {
            if eighth < 4 {
                done.result.unwrap();
                continue;
            }
            let error = done.result.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{}: {error}", device.describe());
            assert!(error.to_string().contains("shorter than when it was opened"), "{error}");
        }
    }
}

/// A write behind the end of a file that was cut made it longer again, and what had been there was zeros from then on.
#[test]
fn a_file_that_was_cut_is_not_made_longer_by_a_write_and_takes_none_any_more() {
    for backend in [Backend::Blocking, Backend::Ring] {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(BYTES).unwrap();
        let Ok(device) = open(file.path(), OpenOptions { backend, read_only: false }) else {
            skipped(format_args!("no {backend:?} here"));
            continue;
        };
        let write = |durable| move |offset| Op::Write { offset, durable };
        assert!(eight(&*device, write(true)).iter().all(|done| done.result.is_ok()));
        file.as_file().set_len(BYTES / 2).unwrap();
        assert_eq!(device.space().logical_total, BYTES / 2);
        let zero: fn(u64) -> Op = |offset| Op::Zero { offset, bytes: 4096 };
        let refused = |done: Vec<Completion>| {
            for done in done {
                let error = done.result.expect_err(&device.describe());
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
                assert!(error.to_string().contains("was cut while it was in use"), "{error}");
            }
        };
        for done in [eight(&*device, write(true)), eight(&*device, write(false)), eight(&*device, zero)] {
            refused(done);
        }
        assert_eq!(file.as_file().metadata().unwrap().len(), BYTES / 2);
        let reads = eight(&*device, |offset| Op::Read { offset });
        assert!(reads.iter().enumerate().all(|(eighth, done)| done.result.is_ok() == (eighth < 4)));
        // Its bytes do not come back with its length.
        file.as_file().set_len(BYTES).unwrap();
        refused(eight(&*device, write(true)));
        refused(eight(&*device, |_| Op::Flush));
    }
}

/// Writes to a new file until there is no room, also once everything has its place on the disk.
fn fill(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    for _ in 0..4 {
        while file.write_all(&[1; 4096]).is_ok() {}
        let _ = file.sync_all();
    }
}

/// No room beneath: a sparse file on a full file system. The error names the cause, and freed room is used.
#[test]
fn a_full_file_system_beneath_a_sparse_file_is_reported() {
    let Some(on_loop) = Loop::new(4 * BYTES) else { return };
    let directory = tempfile::tempdir().unwrap();
    let run = |program: &str, arguments: &[&Path]| {
        std::process::Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
    };
    if !run("mkfs.ext4", &[&on_loop.path]) || !run("mount", &[&on_loop.path, directory.path()]) {
        return skipped("no file system could be made and mounted");
    }
    let outcome = std::panic::catch_unwind(|| {
        let (sparse, filler) = (directory.path().join("sparse"), directory.path().join("filler"));
        std::fs::File::create(&sparse).unwrap().set_len(BYTES).unwrap();
        for backend in [Backend::Blocking, Backend::Ring] {
            let Ok(device) = open(&sparse, OpenOptions { backend, read_only: false }) else {
                skipped(format_args!("no {backend:?} here"));
                continue;
            };
            fill(&filler);
            // The file system may find room for one or two of them yet.
            let done = eight(&*device, |offset| Op::Write { offset, durable: true });
            let errors: Vec<_> = done.into_iter().filter_map(|done| done.result.err()).collect();
            assert!(errors.len() > 4, "{}: {errors:?}", device.describe());
            assert!(errors.iter().all(|error| error.kind() == io::ErrorKind::StorageFull), "{errors:?}");
            std::fs::remove_file(&filler).unwrap();
            // The file system uses the room again some time after its journal has the removal.
            std::fs::File::open(directory.path()).unwrap().sync_all().unwrap();
            let begin = std::time::Instant::now();
            loop {
                let done = eight(&*device, |offset| Op::Write { offset, durable: true });
                let Some(error) = done.into_iter().find_map(|done| done.result.err()) else { break };
                assert!(error.kind() == io::ErrorKind::StorageFull && begin.elapsed() < LONG, "{error}");
                std::thread::sleep(Duration::from_millis(20));
            }
            let given_back = eight(&*device, |offset| Op::Discard { offset, bytes: 8192 });
            assert!(given_back.iter().all(|done| done.result.is_ok()));
        }
    });
    let begin = std::time::Instant::now();
    while !run("umount", &[directory.path()]) && begin.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(20));
    }
    outcome.unwrap();
}
