//! An NVMe namespace by its generic character device, `/dev/ngXnY`: commands go to the drive as they are, past the
//! kernel's block layer.
//!
//! The drive is asked for its properties once, at opening. They are size and sector, the longest transfer, the volatile
//! cache and its switch, the commands, and the bytes that it writes whole through a power failure. Operations are
//! passed through a ring with the wide entries that such commands need (Linux 5.19 or later).
//!
//! The block device of the same namespace still exists. Its exclusive open is this device's lock, so that a mounted
//! file system keeps writers away here, too. Writes here do not show in pages that the kernel has cached there.

use crate::drive::Drive;
use crate::flock;
use crate::nature::Nature;
use crate::nvme::{Namespace, ask, block_limit, block_path, namespace_id, used_bytes};
use crate::uring::{Mode, NvmeCommands, RingQueue};
use crate::{Buffer, Device, DeviceLock, Geometry, Op, Queue, Space};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The maximum time of the first read.
const FIRST_READ: Duration = Duration::from_secs(30);

/// A namespace behind rings of passed-through commands.
#[derive(Debug)]
pub(crate) struct NvmeDevice {
    path: PathBuf,
    file: Arc<File>,
    namespace: Namespace,
    mode: Mode,
    drive: Arc<Drive>,
}

impl NvmeDevice {
    pub(crate) fn open(path: &Path, read_only: bool, submission_poll: bool) -> io::Result<NvmeDevice> {
        let file = OpenOptions::new().read(true).write(!read_only).open(path)?;
        let id = namespace_id(&file)?;
        let mut namespace = ask(&file, id)
            .and_then(|answers| Namespace::new(id, &answers))
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        namespace.limit_transfer(block_limit(path, "max_hw_sectors_kb"), block_limit(path, "max_segments"));
        let completion_poll = block_limit(path, "io_poll").is_some_and(|can| can != 0);
        let mode = Mode { submission_poll, completion_poll };
        let drive = Arc::new(Drive::under(path).unwrap_or_else(|error| Drive::unknown(error.to_string())));
        let mut device = NvmeDevice { path: path.to_owned(), file: Arc::new(file), namespace, mode, drive };
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
        queue.submit(Op::Read { offset: 0 }, Buffer::new(1)).map_err(|(_, error)| error)?;
        let mut done = Vec::new();
        if queue.wait(&mut done, FIRST_READ) == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        done.into_iter().try_for_each(|completion| completion.result)
    }

    fn ring_queue(&self, depth: u32) -> io::Result<RingQueue<NvmeCommands>> {
        RingQueue::new(NvmeCommands::new(Arc::clone(&self.file), self.namespace), depth, self.mode)
    }
}

impl Device for NvmeDevice {
    fn describe(&self) -> String {
        let polled = if self.mode.completion_poll { " with polled completions" } else { "" };
        format!("{} (NVMe namespace, commands passed through by io_uring{polled})", self.path.display())
    }

    fn lock(&self) -> io::Result<Box<dyn DeviceLock>> {
        match block_path(&self.path).filter(|path| path.exists()) {
            Some(block) => flock::lock_path(&block, true, None),
            None => flock::lock_path(&self.path, false, Some(&self.file)),
        }
    }

    fn geometry(&self) -> Geometry {
        self.namespace.geometry
    }

    fn space(&self) -> Space {
        let used = ask(&self.file, self.namespace.id)
            .map_or(self.namespace.bytes, |answers| used_bytes(&answers, &self.namespace).min(self.namespace.bytes));
        self.drive.add_to(Space { logical_total: self.namespace.bytes, logical_used: used, ..Space::default() })
    }

    fn nature(&self) -> Nature {
        self.drive.nature().clone()
    }

    fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(self.ring_queue(depth)?))
    }
}
