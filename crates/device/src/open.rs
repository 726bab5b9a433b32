//! Choosing a backend by what a path is.

use crate::target::Target;
use crate::{Device, FileDevice};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How [`open`] opens a device. The default is right for a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenOptions {
    /// Open for reading only, for those who look at a device that may be somebody else's. Default: false.
    pub read_only: bool,
}

/// Opens the regular file or block device at `path`, whose size is taken as it is now, with the backend that suits it.
///
/// # Errors
/// Whatever the system answers to `open`; `InvalidInput` for what is neither a file nor a block device.
pub fn open(path: &Path, options: OpenOptions) -> io::Result<Arc<dyn Device>> {
    let target = Target::open(path, options.read_only)?;
    Ok(Arc::new(FileDevice::new(target)))
}
