//! The hardware as a [`Function`]: a PCI function that VFIO has given to this process.
//!
//! 1. [`Held`] takes the function from VFIO: its IOMMU group, in a container of its own. So no other function shares
//!    its mappings, and no other process can open it. A function without an IOMMU is refused.
//! 2. [`Registers`] maps its registers.
//! 3. All interrupts that the process uses are connected with event descriptors at once.
//! 4. The function may then access memory: what is mapped for it, and nothing else.
//!
//! **Removal.** If the kernel wants the function back, because it is removed or given to another driver, it asks for it
//! and waits. A thread, the attendant, waits for this request. It stops the function, gives it back, and wakes each
//! watch. From then on, registers read as all ones.
//!
//! **Failure.** [`stop`](Function::stop) and the end of the process take all memory from the function, also in the
//! middle of commands. If a mapping cannot be ended, the function is stopped.
//!
//! **Rejected:** interrupts connected when they are needed. Before Linux 6.5, each new one disconnects all others for a
//! moment.

mod abi;
mod group;
mod registers;
#[cfg(test)]
mod tests;

use super::{Dma, Function};
use crate::Watch;
use crate::watch::EventDescriptor;
use abi::{Interrupt, Region, VECTORS_MAX};
use group::{Held, failed};
use registers::Registers;
use situ_base::{Env, JobHandle, lock};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The place of the command register in configuration space.
const COMMAND_AT: u64 = 4;
const ANSWERS_AT_ITS_ADDRESSES: u16 = 1 << 1;
const ACCESSES_MEMORY: u16 = 1 << 2;

/// An NVMe controller on PCI, by VFIO.
///
/// Dropping it stops the function and gives it back to the kernel, which resets it.
pub struct VfioFunction {
    env: Env,
    shared: Arc<Shared>,
    /// Waits for the kernel's request. Taken at the end.
    attendant: Option<Box<dyn JobHandle>>,
}

/// The parts of a function that its attendant uses, too.
struct Shared {
    address: String,
    /// Empty once the function has been stopped.
    held: Mutex<Option<Arc<Held>>>,
    registers: Registers,
    addresses: Range<u64>,
    interrupts: Vec<Arc<EventDescriptor>>,
    /// The kernel asks for the function.
    request: EventDescriptor,
    is_closed: AtomicBool,
}

impl VfioFunction {
    /// Takes the function at an address on PCI such as `0000:01:00.0`, which is bound to the driver `vfio-pci`.
    ///
    /// # Errors
    /// The function is not there, or is no NVMe controller. It is not bound to `vfio-pci`, or has no IOMMU. Functions
    /// of other drivers are in its IOMMU group. Another process holds it. The system refuses. The text says what to do.
    pub fn open(address: &str, env: Env) -> io::Result<VfioFunction> {
        VfioFunction::try_open(address, env)
            .map_err(|error| io::Error::new(error.kind(), format!("drive {address}: {error}")))
    }

    fn try_open(address: &str, env: Env) -> io::Result<VfioFunction> {
        let held = Held::take(address)?;
        let region = abi::region(&held.function, Region::Registers).map_err(failed("the place of its registers"))?;
        let registers = Registers::new(&held.function, region)
            .map_err(|error| io::Error::new(error.kind(), format!("mapping its registers: {error}")))?;
        let (interrupts, request) = (connect_interrupts(&held.function)?, EventDescriptor::new()?);
        abi::connect(&held.function, Interrupt::Request, &[request.number()])
            .map_err(failed("asking to be told of its removal"))?
            .map_err(|_| io::Error::other("the kernel does not tell of its removal"))?;
        change_command(&held.function, |command| command | ANSWERS_AT_ITS_ADDRESSES | ACCESSES_MEMORY)
            .map_err(|error| io::Error::new(error.kind(), format!("its command register: {error}")))?;
        let shared = Arc::new(Shared {
            address: address.to_owned(),
            registers,
            addresses: held.addresses.clone(),
            held: Mutex::new(Some(Arc::new(held))),
            interrupts,
            request,
            is_closed: AtomicBool::new(false),
        });
        let attends = Arc::clone(&shared);
        let attendant = env.executor.spawn("nvme-removal", Box::new(move || attends.attend()))?;
        Ok(VfioFunction { env, shared, attendant: Some(attendant) })
    }
}

/// Changes the command register in configuration space.
fn change_command(function: &File, change: impl FnOnce(u16) -> u16) -> io::Result<()> {
    let at = abi::region(function, Region::Configuration)?.offset + COMMAND_AT;
    let mut bytes = [0; 2];
    function.read_exact_at(&mut bytes, at)?;
    function.write_all_at(&change(u16::from_le_bytes(bytes)).to_le_bytes(), at)
}

/// Connects as many of the function's interrupts with event descriptors as there are, up to a limit.
fn connect_interrupts(function: &File) -> io::Result<Vec<Arc<EventDescriptor>>> {
    let step = || failed("connecting its interrupts");
    let mut count = abi::interrupts(function, Interrupt::Own).map_err(step())?.min(VECTORS_MAX as u32);
    // With fewer, the kernel says how many it has; they may have become fewer until it is asked for those.
    while count > 0 {
        let events = (0..count).map(|_| EventDescriptor::new().map(Arc::new)).collect::<io::Result<Vec<_>>>()?;
        let numbers: Vec<_> = events.iter().map(|event| event.number()).collect();
        match abi::connect(function, Interrupt::Own, &numbers).map_err(step())? {
            Ok(()) => return Ok(events),
            Err(fewer) => count = fewer.min(count - 1),
        }
    }
    Ok(Vec::new())
}

impl Shared {
    /// Waits for the kernel's request for the function, and gives it back then.
    fn attend(&self) {
        while !self.is_closed.load(Ordering::Acquire) {
            if self.request.wait_for_wake(None) {
                self.stop();
                self.interrupts.iter().for_each(|interrupt| interrupt.wake());
            }
        }
    }

    /// Returns the function as VFIO gave it. An error: it has been stopped.
    fn held(&self) -> io::Result<Arc<Held>> {
        let held = lock(&self.held).clone();
        held.ok_or_else(|| {
            let why = format!("drive {}: it was removed, or stopped", self.address);
            io::Error::new(ErrorKind::NotConnected, why)
        })
    }

    fn file(&self) -> Option<Arc<File>> {
        Some(Arc::clone(&self.held().ok()?.function))
    }

    /// Takes the memory from the function first, and then gives it back. Two threads may do so at a time: each returns
    /// when the function accesses no memory.
    fn stop(&self) {
        let Ok(held) = self.held() else { return };
        // A function that does not answer accesses no memory either.
        let _ = change_command(&held.function, |command| command & !ACCESSES_MEMORY);
        held.unmap_all();
        self.registers.leave();
        *lock(&self.held) = None;
    }
}

impl Function for VfioFunction {
    fn name(&self) -> String {
        self.shared.address.clone()
    }

    fn env(&self) -> &Env {
        &self.env
    }

    #[inline]
    fn read(&self, offset: u32) -> u32 {
        self.shared.registers.read(|| self.shared.file(), offset)
    }

    #[inline]
    fn write(&self, offset: u32, value: u32) {
        self.shared.registers.write(|| self.shared.file(), offset, value);
    }

    fn addresses(&self) -> Range<u64> {
        self.shared.addresses.clone()
    }

    unsafe fn map(&self, address: u64, memory: Dma) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.shared.held()?.map(address, memory) }
    }

    fn unmap(&self, address: u64, bytes: usize) {
        // After `stop`, nothing is mapped.
        if self.shared.held().is_ok_and(|held| !held.unmap(address, bytes as u64)) {
            self.stop();
        }
    }

    fn vectors(&self) -> u16 {
        self.shared.interrupts.len() as u16
    }

    fn watch(&self, vector: u16) -> io::Result<Arc<dyn Watch>> {
        let interrupt = self.shared.interrupts.get(usize::from(vector)).cloned();
        let of = self.shared.interrupts.len();
        Ok(interrupt.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, format!("interrupt {vector} of {of}")))?)
    }

    fn reset(&self) -> io::Result<()> {
        let held = self.shared.held()?;
        if !abi::has_reset(&held.function).map_err(failed("asking for its ways of reset"))? {
            return Err(io::Error::new(ErrorKind::Unsupported, "the kernel knows no reset for this drive"));
        }
        abi::reset(&held.function).map_err(failed("resetting the drive"))
    }

    fn stop(&self) {
        self.shared.stop();
    }
}

impl Drop for VfioFunction {
    fn drop(&mut self) {
        self.stop();
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.request.wake();
        if let Some(attendant) = self.attendant.take() {
            // It has nothing to say, and cannot panic.
            let _ = attendant.join();
        }
    }
}
