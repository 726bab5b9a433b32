//! An NVMe namespace by its generic character device, `/dev/ngXnY`: commands go to the drive as they are, past the
//! kernel's block layer.
//!
//! What the drive says of itself is asked once, at opening: size and sector, the longest transfer, whether there is a
//! volatile cache and whether it is switched on, which commands it has, how much it writes whole through a power failure.
//! Operations are passed through a ring with the wide entries that such commands need (Linux 5.19 or later).
//!
//! The block device of the same namespace still exists. Its exclusive open is this device's lock, so that a mounted file
//! system keeps writers away here, too. What is written here does not show in pages that the kernel has cached there.

mod identify;

use crate::drive::{Drive, Nature};
use crate::flock;
use crate::ioctl::Call;
use crate::uring::{Mode, NvmeCommands, RingQueue};
use crate::{Buffer, Device, DeviceLock, Geometry, Op, Queue, Space};
pub(crate) use identify::Namespace;
use rustix::ioctl::{Opcode, ioctl, opcode};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long the first read may take.
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

/// Whether the path is the generic character device of a namespace.
pub(crate) fn is_generic_device(path: &Path) -> bool {
    let is_device = std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_char_device());
    is_device && block_path(path).is_some()
}

/// The namespace's block device: `/dev/nvme0n1` for `/dev/ng0n1`.
pub(crate) fn block_path(path: &Path) -> Option<PathBuf> {
    let path = std::fs::canonicalize(path).ok()?;
    let rest = path.file_name()?.to_str()?.strip_prefix("ng")?;
    rest.starts_with(|first: char| first.is_ascii_digit()).then(|| path.with_file_name(format!("nvme{rest}")))
}

/// A number from the description of the namespace's block device.
fn block_limit(path: &Path, name: &str) -> Option<u64> {
    let block = block_path(path)?;
    let directory = Path::new("/sys/block").join(block.file_name()?).join("queue");
    std::fs::read_to_string(directory.join(name)).ok()?.trim().parse().ok()
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
        let used = ask(&self.file, self.namespace.id).map_or(self.namespace.bytes, |answers| {
            identify::used_bytes(&answers, &self.namespace).min(self.namespace.bytes)
        });
        self.drive.add_to(Space { logical_total: self.namespace.bytes, logical_used: used, ..Space::default() })
    }

    fn nature(&self) -> Nature {
        self.drive.nature().clone()
    }

    fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(self.ring_queue(depth)?))
    }
}

/// What a drive answers when it is asked about itself.
pub(crate) struct Answers {
    namespace: Buffer,
    controller: Buffer,
    /// The feature "volatile write cache", if it could be read.
    cache_feature: Option<u32>,
}

fn ask(file: &File, id: u32) -> io::Result<Answers> {
    const IDENTIFY: u8 = 0x06;
    const GET_FEATURES: u8 = 0x0a;
    const VOLATILE_WRITE_CACHE: u32 = 0x06;
    let mut namespace = Buffer::new(4096);
    admin(file, AdminCommand::new(IDENTIFY, id, 0), Some((&mut namespace, 4096)))?;
    let mut controller = Buffer::new(4096);
    admin(file, AdminCommand::new(IDENTIFY, 0, 1), Some((&mut controller, 4096)))?;
    let cache_feature = admin(file, AdminCommand::new(GET_FEATURES, 0, VOLATILE_WRITE_CACHE), None).ok();
    Ok(Answers { namespace, controller, cache_feature })
}

/// `struct nvme_passthru_cmd` of `linux/nvme_ioctl.h`.
#[repr(C)]
pub(crate) struct AdminCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_bytes: u32,
    data_bytes: u32,
    words_10_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<AdminCommand>() == 72);

impl AdminCommand {
    pub(crate) fn new(opcode: u8, namespace: u32, word_10: u32) -> AdminCommand {
        AdminCommand {
            opcode,
            flags: 0,
            reserved: 0,
            namespace,
            words_2_3: [0; 2],
            metadata: 0,
            address: 0,
            metadata_bytes: 0,
            data_bytes: 0,
            words_10_15: [word_10, 0, 0, 0, 0, 0],
            timeout_ms: 0,
            result: 0,
        }
    }
}

fn namespace_id(file: &File) -> io::Result<u32> {
    const NVME_IOCTL_ID: Opcode = opcode::none(b'N', 0x40);
    // SAFETY: the operation takes no argument and changes nothing.
    Ok(unsafe { ioctl(file, Call::<NVME_IOCTL_ID> { argument: std::ptr::null_mut() })? })
}

/// Runs an administrative command that moves so many bytes from the drive into a buffer; returns its result.
pub(crate) fn admin(file: &File, mut command: AdminCommand, data: Option<(&mut Buffer, usize)>) -> io::Result<u32> {
    const NVME_IOCTL_ADMIN_CMD: Opcode = opcode::read_write::<AdminCommand>(b'N', 0x41);
    if let Some((data, bytes)) = data {
        assert!(bytes <= data.len(), "{bytes} bytes into a buffer of {}", data.len());
        command.address = data.address() as u64;
        command.data_bytes = bytes as u32;
    }
    let argument = (&raw mut command).cast();
    // SAFETY: the command is laid out as the kernel has it and lives through the call, and so does the buffer that it
    // names, which is borrowed mutably. The commands that are run here only read from the drive.
    let status = unsafe { ioctl(file, Call::<NVME_IOCTL_ADMIN_CMD> { argument })? };
    if status == 0 { Ok(command.result) } else { Err(status_error(status)) }
}

/// The error for a status that is not success.
pub(crate) fn status_error(status: u32) -> io::Error {
    // Status code type and status code; the bits above say whether to ask for more and whether to try again.
    let what = match status & 0x7ff {
        0x002 => "a field of the command is invalid",
        0x005 => "power was lost",
        0x006 => "an error inside the drive",
        0x007 => "the command was aborted",
        0x020 => "the namespace is write protected",
        0x080 => "the address is behind the end",
        0x081 => "there is no room left",
        0x082 => "the namespace is not ready",
        0x280 => "the drive failed to write",
        0x281 => "the drive could not read what it holds",
        0x286 => "access is denied",
        0x287 => "the block was never written, or was given back",
        _ => "see the NVMe specification",
    };
    io::Error::other(format!("the drive answered with status {:#05x}: {what}", status & 0x7ff))
}
