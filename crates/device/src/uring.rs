//! A file or block device as a [`Device`], by `io_uring`: several operations in flight for each thread, without a
//! thread for each.
//!
//! ```text
//!   RingQueue ── Table: buffers in flight        queue.rs, crate::in_flight
//!      │  └──── Commands: Op <-> entry, result   file.rs, nvme.rs
//!      ├─────── Registry: pinned buffers         registry.rs
//!      └─────── Ring: shared memory, sleeping    ring.rs
//!   FileReads ── Table, Ring                      reads.rs
//! ```
//!
//! A device can be opened by it if the kernel lets this process have a ring and a read through one works. That is tried
//! once, with the requested ways of polling. So no refusal comes later, under load.

mod file;
mod nvme;
mod queue;
mod reads;
mod registry;
mod ring;

use crate::nature::Nature;
use crate::target::Target;
use crate::{Buffer, Device, DeviceLock, Geometry, Op, Queue, Space};
use file::FileCommands;
pub(crate) use nvme::NvmeCommands;
pub(crate) use queue::RingQueue;
pub use reads::{FileRead, FileReads};
pub(crate) use ring::Mode;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The maximum time of the first read.
const FIRST_READ: Duration = Duration::from_secs(30);

/// A file or block device behind rings.
#[derive(Debug)]
pub(crate) struct RingDevice {
    target: Target,
    mode: Mode,
    no_discard_command: Arc<AtomicBool>,
}

impl RingDevice {
    /// Takes the target over if a read through a ring works.
    ///
    /// If the options ask for polling for completions and the device does not support it, it is left out: the same read
    /// shows that. With `submission_poll`, a kernel thread takes the submissions.
    pub(crate) fn new(target: Target, submission_poll: bool) -> io::Result<RingDevice> {
        let completion_poll = target.can_poll();
        RingDevice::with(target, submission_poll, completion_poll)
    }

    fn with(target: Target, submission_poll: bool, completion_poll: bool) -> io::Result<RingDevice> {
        let mut device =
            RingDevice { target, mode: Mode { submission_poll, completion_poll }, no_discard_command: Arc::default() };
        match device.read_once() {
            Err(_) if completion_poll => {
                device.mode.completion_poll = false;
                device.read_once()?;
            }
            other => other?,
        }
        Ok(device)
    }

    fn read_once(&self) -> io::Result<()> {
        let mut queue = self.ring_queue(1)?;
        let block = u64::from(self.target.geometry.block_bytes);
        if self.target.bytes < block {
            return Ok(());
        }
        let buffer = Buffer::new(block as usize);
        if buffer.len() as u64 > self.target.bytes {
            return Ok(());
        }
        queue.submit(Op::Read { offset: 0 }, buffer).map_err(|(_, error)| error)?;
        let mut done = Vec::new();
        if queue.wait(&mut done, FIRST_READ) == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        done.into_iter().try_for_each(|completion| completion.result)
    }

    fn ring_queue(&self, depth: u32) -> io::Result<RingQueue<FileCommands>> {
        let commands = FileCommands::new(self.target.clone(), Arc::clone(&self.no_discard_command));
        RingQueue::new(commands, depth, self.mode)
    }
}

impl Device for RingDevice {
    fn describe(&self) -> String {
        let mut backend = "io_uring".to_owned();
        if self.mode.submission_poll {
            backend.push_str(" with a submission thread");
        }
        if self.mode.completion_poll {
            backend.push_str(" with polled completions");
        }
        self.target.describe(&backend)
    }

    fn lock(&self) -> io::Result<Box<dyn DeviceLock>> {
        self.target.lock()
    }

    fn geometry(&self) -> Geometry {
        self.target.geometry
    }

    fn reserve(&self) -> io::Result<()> {
        self.target.reserve()
    }

    fn space(&self) -> Space {
        self.target.space()
    }

    fn nature(&self) -> Nature {
        self.target.drive.nature().clone()
    }

    fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(self.ring_queue(depth)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipped::skipped;

    #[test]
    fn polling_for_completions_is_left_out_where_a_read_shows_that_it_does_not_work() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![7; 8192]).unwrap();
        let target = Target::open(file.path(), false).unwrap();
        if let Err(error) = RingDevice::new(target.clone(), false) {
            return skipped(format_args!("no io_uring here: {error}"));
        }
        let mode = Mode { submission_poll: false, completion_poll: true };
        let undecided = RingDevice { target: target.clone(), mode, no_discard_command: Arc::default() };
        let works = undecided.read_once().is_ok();
        if works {
            eprintln!("this disk can be polled, so nothing is left out");
        }
        let device = RingDevice::with(target, false, true).unwrap();
        assert_eq!(device.mode.completion_poll, works, "{}", device.describe());
        let mut queue = device.queue(2).unwrap();
        queue.submit(Op::Read { offset: 4096 }, Buffer::new(4096)).unwrap();
        let mut done = Vec::new();
        assert_eq!(queue.wait(&mut done, FIRST_READ), 1);
        assert!(done[0].result.is_ok() && done[0].buffer.iter().all(|byte| *byte == 7));
    }
}
