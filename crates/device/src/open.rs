//! Choosing a backend by what a path is and what it supports.
//!
//! Each path, its backend, and the reason (`docs/evidence/devices.md`):
//!
//! * A path that is opened for direct I/O, and whose operations can begin without waiting (disks with request queues,
//!   files on them): rings. With eight in flight, rings do three times the small reads, and on busy cores forty times
//!   the durable writes and more.
//! * Operations that cannot begin without waiting (zram, network file systems): plain calls. A ring gives each
//!   operation to a kernel thread, at twice to six times the latency of a small one.
//! * A path through the page cache: plain calls, for the same reason.
//! * An NVMe drive's generic character device, `/dev/ngXnY`: commands passed through rings. It takes nothing else.
//! * A name like `pci:0000:01:00.0/1`: the driver in user space.
//! * A system that gives no rings (seccomp, `kernel.io_uring_disabled`): plain calls. The description says so.

use crate::driver;
use crate::nvme;
use crate::nvme_device::NvmeDevice;
use crate::target::Target;
use crate::uring::RingDevice;
use crate::{Device, FileDevice};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The way in which operations reach a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Backend {
    /// The backend that suits the path; see [`open`].
    #[default]
    Automatic,
    /// `pread` and `pwrite`, one operation at a time for each thread. Works everywhere.
    Blocking,
    /// `io_uring`.
    Ring,
    /// `io_uring` with a kernel thread that polls for submissions (`SQPOLL`). It saves a system call for each operation
    /// and costs a core as long as there is I/O; for machines with cores to spare.
    RingWithThread,
}

/// Options of [`open`]. The default is right for a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenOptions {
    /// True to open for reading only, as for a look at a device that may belong to another process. Default: false.
    pub read_only: bool,
    /// The backend; for tests and comparisons. Default: automatic.
    pub backend: Backend,
}

/// Opens the regular file, block device or NVMe namespace (`/dev/ngXnY`, or `pci:0000:01:00.0/1` for the driver in user
/// space) at `path`, whose size is taken as it is now, with the backend that suits it.
///
/// # Errors
/// Whatever the system answers to `open`; `InvalidInput` for what is neither a file nor a block device.
pub fn open(path: &Path, options: OpenOptions) -> io::Result<Arc<dyn Device>> {
    if crate::is_pci_name(path) {
        if options.backend != Backend::Automatic {
            let why =
                format!("{} is reached by the driver in user space only, not by {:?}", path.display(), options.backend);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        return Ok(Arc::new(driver::open(path)?));
    }
    if nvme::is_generic_device(path) {
        return match options.backend {
            Backend::Blocking => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{} takes commands through io_uring only; name the block device for plain calls",
                    path.display()
                ),
            )),
            Backend::Automatic | Backend::Ring | Backend::RingWithThread => {
                let submission_poll = options.backend == Backend::RingWithThread;
                Ok(Arc::new(NvmeDevice::open(path, options.read_only, submission_poll)?))
            }
        };
    }
    let target = Target::open(path, options.read_only)?;
    Ok(match options.backend {
        Backend::Automatic if !target.direct || !target.can_begin_without_waiting() => {
            Arc::new(FileDevice::new(target))
        }
        Backend::Automatic => match RingDevice::new(target.clone(), false) {
            Ok(device) => Arc::new(device),
            Err(error) => Arc::new(FileDevice::because(target, format!("io_uring did not work ({error})"))),
        },
        Backend::Blocking => Arc::new(FileDevice::new(target)),
        Backend::Ring => Arc::new(RingDevice::new(target, false)?),
        Backend::RingWithThread => Arc::new(RingDevice::new(target, true)?),
    })
}
