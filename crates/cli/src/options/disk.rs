//! The options of `disk`.

use super::NodeKeys;
use crate::text::parse_bytes;
use clap::{Args, Subcommand};
use situ_device::pci::Address;
use std::path::PathBuf;

/// Work with fast disks: format one, show it, check it, give it to a store, take it away.
///
/// A Situ disk is a device without a file system, or a file of fixed size. `bind` and `unbind` move an NVMe drive
/// between the kernel and processes in user space.
#[derive(Debug, Subcommand)]
pub(crate) enum DiskCommand {
    Format(DiskFormatOptions),
    Show(DiskShowOptions),
    Check(DiskCheckOptions),
    Add(DiskAddOptions),
    Drain(DiskDrainOptions),
    Bind(DiskBindOptions),
    Unbind(DiskUnbindOptions),
}

/// Give a store a fast disk: a Situ disk, or a directory of a fast file system.
///
/// From now on, new log files and new tables of the upper levels go to the fast disk. Older tables stay where they are
/// until a compaction replaces them. The store remembers the disk, and does not open without it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  situ disk add /var/lib/situ /dev/nvme1n1\n  situ disk add /var/lib/situ /mnt/fast/situ"
)]
pub(crate) struct DiskAddOptions {
    /// Directory of the store, or node://HOST:PORT/STORE
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) node: NodeKeys,
    /// Block device, file or directory
    #[arg(value_name = "DISK")]
    pub(crate) disk: PathBuf,
}

/// Move everything from the fast disk of a store to its directory, and take the disk away from the store.
#[derive(Debug, Args)]
pub(crate) struct DiskDrainOptions {
    /// Directory of the store, or node://HOST:PORT/STORE
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) node: NodeKeys,
}

/// Format a device as a Situ disk. Everything on it is lost.
///
/// The command refuses a device that is mounted, or that a store has open. It also refuses a device whose first 1 MiB
/// or last 64 KiB holds anything but zeros: file systems and partition tables have their marks there. It does not
/// notice data that lies only between the two.
///
/// The device can be a file of the final size; `fallocate -l 20G FILE` makes such a file. The command refuses a file
/// for which the file system has too little space.
///
/// An NVMe namespace has two names. The store reaches /dev/nvme1n1 through the kernel's block layer. It reaches
/// /dev/ng1n1 by commands that are passed through to the drive. The name that is given, here and to `situ disk add`,
/// decides. A mounted namespace is refused under either name.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  situ disk format /dev/nvme1n1\n  situ disk format /dev/nvme1n1 --log 16G --force\n  \
                        situ disk format /dev/ng1n1"
)]
pub(crate) struct DiskFormatOptions {
    /// Block device, or file
    #[arg(value_name = "DEVICE")]
    pub(crate) device: PathBuf,
    /// Size of the log area, at least 1M
    /// [default: an eighth of the device, at most 8G; up to a quarter of a small device, to reach 640M]
    #[arg(long, value_name = "SIZE", value_parser = parse_log_bytes)]
    pub(crate) log: Option<u64>,
    /// Format the device whatever is on it
    #[arg(long)]
    pub(crate) force: bool,
}

/// Parses the size of a log area. A smaller one than this has no room for the log of any store.
fn parse_log_bytes(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes < 1 << 20 => Err("a log area has at least 1M".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Show a disk: the drive, whether it compresses, its logical and physical bytes; of a Situ disk, also areas, files and
/// free room.
///
/// The disk can be a block device, formatted or not, a file that is a Situ disk, or a directory, such as that of a
/// store. Physical bytes are those of the whole drive below, with everything that others keep on it. A drive that does
/// not say something is shown as unknown. A ScaleFlux drive answers root only.
///
/// This works beside a running store. It then shows the disk as it was at one moment.
///
/// Without a DEVICE, the command lists the NVMe controllers on PCI: driver, IOMMU group, namespaces and what is on
/// them, and whether `situ disk bind` can take them. Only root sees all uses of a namespace.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ disk show /dev/nvme1n1 --files\n  situ disk show")]
pub(crate) struct DiskShowOptions {
    /// Block device, file or directory [default: all NVMe controllers on PCI]
    #[arg(value_name = "DEVICE")]
    pub(crate) device: Option<PathBuf>,
    /// List the files of a Situ disk
    #[arg(long, requires = "device")]
    pub(crate) files: bool,
}

/// Read and check all metadata of a Situ disk.
///
/// The command changes nothing. It does not read what the files hold: `situ verify` does. The exit code is 4 if
/// anything is damaged, and 1 if it is no Situ disk.
#[derive(Debug, Args)]
pub(crate) struct DiskCheckOptions {
    /// Block device, or file
    #[arg(value_name = "DEVICE")]
    pub(crate) device: PathBuf,
}

/// Take an NVMe drive from the kernel, and give it to processes in user space.
///
/// The command binds the controller at a PCI address to the kernel's driver vfio-pci. Its block devices disappear, and
/// a store can name its namespaces pci:ADDRESS/NAMESPACE. Only root can do this. The machine needs an IOMMU. A restart
/// of the machine gives the drive back, and so does `situ disk unbind`.
///
/// A drive that is mounted, or in use in another way, is always refused. A drive with a file system or a partition
/// table is refused without --force. A Situ disk is no reason to refuse. Nothing on the drive is changed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ disk show\n  situ disk bind 0000:01:00.0")]
pub(crate) struct DiskBindOptions {
    /// PCI address of the controller, such as 0000:01:00.0
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: Address,
    /// Bind the drive whatever is on it, also if nothing can look at it because no driver has it
    #[arg(long)]
    pub(crate) force: bool,
}

/// Give an NVMe drive back to the kernel.
///
/// This takes back `situ disk bind`, also one that was interrupted, and helps after a crash of the process that had the
/// drive. A drive that a process has open is refused. Only root can do this.
#[derive(Debug, Args)]
pub(crate) struct DiskUnbindOptions {
    /// PCI address of the controller, such as 0000:01:00.0
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: Address,
}
