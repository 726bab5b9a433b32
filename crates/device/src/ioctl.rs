//! An `ioctl` whose argument is memory of the caller, and whose return value counts.

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};
use std::ffi::c_void;

/// The call, by its number.
pub(crate) struct Call<const OPCODE: Opcode> {
    pub(crate) argument: *mut c_void,
}

// SAFETY: `argument` is what the operation of this number takes; the callers of `ioctl` see to it.
unsafe impl<const OPCODE: Opcode> Ioctl for Call<OPCODE> {
    type Output = u32;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.argument
    }

    unsafe fn output_from_ptr(returned: IoctlOutput, _: *mut c_void) -> rustix::io::Result<u32> {
        u32::try_from(returned).map_err(|_| Errno::IO)
    }
}
