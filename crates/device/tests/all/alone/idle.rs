//! Promise 9, small when idle: in a process of its own, so that the processor time is all its own.

use super::own_process::in_own_process;
use crate::common::skipped;
use rustix::time::{ClockId, clock_gettime};
use situ_device::{Backend, Buffer, Op, OpenOptions, open};
use std::time::Duration;

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn p9_a_queue_without_work_uses_no_processor_time() {
    in_own_process(|| {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        for backend in [Backend::Blocking, Backend::Ring, Backend::RingWithThread] {
            let Ok(device) = open(file.path(), OpenOptions { backend, read_only: false }) else {
                skipped(format_args!("no {backend:?} here"));
                continue;
            };
            let mut queue = device.queue(8).unwrap();
            let mut done = Vec::new();
            queue.submit(Op::Write { offset: 0, durable: true }, Buffer::new(4096)).unwrap();
            assert_eq!(queue.wait(&mut done, Duration::from_secs(20)), 1);
            // The kernel's thread for submissions goes to sleep after a few milliseconds without any.
            std::thread::sleep(Duration::from_millis(50));
            let begin = processor_time();
            std::thread::sleep(Duration::from_millis(500));
            let used = processor_time() - begin;
            assert!(used < Duration::from_millis(5), "{}: {used:?} in 500 ms", device.describe());
        }
    });
}
