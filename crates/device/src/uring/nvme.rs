//! Operations on an NVMe namespace as commands passed through a ring.

use super::queue::Commands;
use super::ring::Ring;
use crate::Geometry;
use crate::in_flight::InFlight;
use crate::in_flight::{Plan, Step};
use crate::nvme::{Namespace, Words, plan, step};
use io_uring::types::Fixed;
use io_uring::{cqueue, opcode, squeue};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// The device's place among the files registered with the ring.
const DEVICE: Fixed = Fixed(0);

/// `NVME_URING_CMD_IO` of `linux/nvme_ioctl.h`: `_IOWR('N', 0x80, struct nvme_uring_cmd)`, which has 72 bytes.
const NVME_URING_CMD_IO: u32 = 0xc000_0000 | 72 << 16 | (b'N' as u32) << 8 | 0x80;

pub(crate) struct NvmeCommands {
    file: Arc<File>,
    namespace: Namespace,
}

/// `struct nvme_uring_cmd` of `linux/nvme_ioctl.h`, in the room that an entry of a ring has for it. Other fields are
/// zero.
type Command = [u8; 80];

impl NvmeCommands {
    pub(crate) fn new(file: Arc<File>, namespace: Namespace) -> NvmeCommands {
        NvmeCommands { file, namespace }
    }

    fn command(&self, words: Words) -> Command {
        let mut command = [0; 80];
        command[0] = words.opcode;
        command[4..8].copy_from_slice(&self.namespace.id.to_ne_bytes());
        command[24..32].copy_from_slice(&(words.data as u64).to_ne_bytes());
        command[36..40].copy_from_slice(&words.data_bytes.to_ne_bytes());
        for (index, word) in words.words_10_12.iter().enumerate() {
            command[40 + 4 * index..44 + 4 * index].copy_from_slice(&word.to_ne_bytes());
        }
        command
    }

    /// Returns the next command of an operation.
    fn plan_command(&self, operation: &mut InFlight) -> Plan<Command> {
        match plan(&self.namespace, operation) {
            Plan::Entry(words) => Plan::Entry(self.command(words)),
            Plan::Done(result) => Plan::Done(result),
        }
    }
}

impl Commands for NvmeCommands {
    type Entry = squeue::Entry128;
    type Result = cqueue::Entry32;

    fn geometry(&self) -> &Geometry {
        &self.namespace.geometry
    }

    fn device_bytes(&self) -> u64 {
        self.namespace.bytes
    }

    fn register(&self, ring: &Ring<squeue::Entry128, cqueue::Entry32>) -> io::Result<()> {
        ring.submitter().register_files(&[self.file.as_raw_fd()])
    }

    fn plan(&self, operation: &mut InFlight) -> Plan<squeue::Entry128> {
        match self.plan_command(operation) {
            Plan::Entry(command) => {
                Plan::Entry(opcode::UringCmd80::new(DEVICE, NVME_URING_CMD_IO).cmd(command).build())
            }
            Plan::Done(result) => Plan::Done(result),
        }
    }

    fn step(&self, operation: &mut InFlight, result: i32) -> Step {
        match u32::try_from(result) {
            Ok(status) => step(operation, status),
            Err(_) => match Errno::from_raw_os_error(-result) {
                Errno::INTR | Errno::AGAIN | Errno::CANCELED => Step::Retry,
                other => Step::Done(Err(other.into())),
            },
        }
    }
}

#[cfg(test)]
mod tests;
