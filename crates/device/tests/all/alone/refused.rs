//! A system that gives no rings; in a process of its own, because the limit that stands in for it holds for all of it.

use super::own_process::in_own_process;
use crate::common::skipped;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use situ_device::{Backend, Buffer, Op, OpenOptions, open};
use std::os::fd::AsRawFd;
use std::time::Duration;

#[test]
fn without_rings_plain_calls_are_used_and_the_description_says_why() {
    in_own_process(|| {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let device = open(file.path(), OpenOptions::default()).unwrap();
        if !device.describe().contains("io_uring") {
            return skipped(format_args!("{} has no use for rings", device.describe()));
        }
        drop(device);
        // One descriptor for the device, and none for a ring.
        let next = std::fs::File::open(file.path()).unwrap();
        let fits_one_more = Rlimit { current: Some(next.as_raw_fd() as u64 + 1), ..getrlimit(Resource::Nofile) };
        drop(next);
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, fits_one_more).unwrap();
        let automatic = open(file.path(), OpenOptions::default());
        let asked_for = open(file.path(), OpenOptions { backend: Backend::Ring, read_only: false });
        setrlimit(Resource::Nofile, before).unwrap();

        assert!(asked_for.is_err(), "who asks for a ring gets one or an error");
        let device = automatic.unwrap();
        assert!(device.describe().contains("because io_uring did not work"), "{}", device.describe());
        let mut queue = device.queue(1).unwrap();
        queue.submit(Op::Read { offset: 0 }, Buffer::new(4096)).unwrap();
        let mut done = Vec::new();
        assert_eq!(queue.wait(&mut done, Duration::from_secs(20)), 1);
        assert!(done[0].result.is_ok());
    });
}
