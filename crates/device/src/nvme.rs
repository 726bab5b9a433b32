//! NVMe drives by the kernel's pass-through: the names of their devices, administrative commands, and what drives
//! answer.

pub(crate) mod commands;
mod identify;

use crate::Buffer;
use crate::ioctl::Call;
pub(crate) use commands::{Words, plan, step};
pub(crate) use identify::{Namespace, used_bytes};
use rustix::ioctl::{Opcode, ioctl, opcode};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Returns true if the path is the generic character device of a namespace.
pub(crate) fn is_generic_device(path: &Path) -> bool {
    let is_device = std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_char_device());
    is_device && block_path(path).is_some()
}

/// Returns the namespace's block device: `/dev/nvme0n1` for `/dev/ng0n1`.
pub(crate) fn block_path(path: &Path) -> Option<PathBuf> {
    let path = std::fs::canonicalize(path).ok()?;
    let rest = path.file_name()?.to_str()?.strip_prefix("ng")?;
    rest.starts_with(|first: char| first.is_ascii_digit()).then(|| path.with_file_name(format!("nvme{rest}")))
}

/// Returns a number from the description of the namespace's block device.
pub(crate) fn block_limit(path: &Path, name: &str) -> Option<u64> {
    let block = block_path(path)?;
    let directory = Path::new("/sys/block").join(block.file_name()?).join("queue");
    std::fs::read_to_string(directory.join(name)).ok()?.trim().parse().ok()
}

/// The answers of a drive that is asked about itself.
pub(crate) struct Answers {
    namespace: Buffer,
    controller: Buffer,
    /// The feature "volatile write cache", if it could be read.
    cache_feature: Option<u32>,
}

impl Answers {
    pub(crate) fn new(namespace: Buffer, controller: Buffer, cache_feature: Option<u32>) -> Answers {
        Answers { namespace, controller, cache_feature }
    }
}

/// Asks the drive about itself and a namespace.
pub(crate) fn ask(file: &File, id: u32) -> io::Result<Answers> {
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

/// Returns the number of the namespace that is open.
pub(crate) fn namespace_id(file: &File) -> io::Result<u32> {
    const NVME_IOCTL_ID: Opcode = opcode::none(b'N', 0x40);
    // SAFETY: the operation takes no argument and changes nothing.
    Ok(unsafe { ioctl(file, Call::<NVME_IOCTL_ID> { argument: std::ptr::null_mut() })? })
}

/// Runs an administrative command that moves the given number of bytes from the drive into a buffer; returns its
/// result.
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

/// Returns the error for a status that is not success.
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
    let kind = if status & 0x7ff == 0x081 { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
    io::Error::new(kind, format!("the drive answered with status {:#05x}: {what}", status & 0x7ff))
}
