//! The calls that change something outside of this process.

use rustix::fs::OFlags;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The part of the kernel that moves devices. Tests play it on folders of their own.
pub trait Kernel: fmt::Debug {
    /// Writes a text to a file of the kernel, by one call.
    ///
    /// # Errors
    /// The kernel refuses it.
    fn write(&self, file: &Path, text: &str) -> io::Result<()>;

    /// Opens a device exclusively. Of a block device, this excludes mounts and all other exclusive openers, also those
    /// of its partitions. The kernel gives a VFIO group to one opener in any case.
    ///
    /// # Errors
    /// `ResourceBusy` if it is in use.
    fn claim(&self, device: &Path) -> io::Result<File>;

    /// Loads a module.
    ///
    /// # Errors
    /// There is no such module, or no right to load it.
    fn load(&self, module: &str) -> io::Result<()>;
}

/// The kernel of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Linux;

/// The file that names the program by which the kernel itself loads modules.
const LOADER: &str = "/proc/sys/kernel/modprobe";

impl Kernel for Linux {
    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        OpenOptions::new().write(true).open(file)?.write_all(text.as_bytes())
    }

    fn claim(&self, device: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(OFlags::EXCL.bits() as i32).open(device)
    }

    fn load(&self, module: &str) -> io::Result<()> {
        let loader = fs::read_to_string(LOADER).unwrap_or_default();
        let loader = Some(loader.trim()).filter(|path| !path.is_empty()).unwrap_or("modprobe");
        let run = Command::new(loader)
            .arg(module)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| io::Error::new(error.kind(), format!("{loader} cannot be run: {error}")))?;
        if run.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&run.stderr);
        Err(io::Error::other(format!("{loader} {module} failed ({}): {}", run.status, said.trim())))
    }
}
