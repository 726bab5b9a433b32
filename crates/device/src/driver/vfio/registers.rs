//! The registers of a function: mapped memory where the kernel maps them, and calls for the rest.

use super::abi::Placed;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Mapped registers.
#[derive(Debug)]
struct Window {
    /// Their offsets in the region.
    offsets: Range<u32>,
    start: NonNull<u8>,
}

// SAFETY: a mapping is bound to no thread, and all accesses are volatile.
unsafe impl Send for Window {}
// SAFETY: as for `Send`. The hardware, or zeroed memory, takes accesses of 32 bits from any thread.
unsafe impl Sync for Window {}

impl Window {
    fn bytes(&self) -> usize {
        (self.offsets.end - self.offsets.start) as usize
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping, which has no other user. It can only fail for ranges that are no mapping.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes()) };
    }
}

/// The registers of a function.
///
/// **Invariant.** A window stays mapped as long as this value lives: registers first, then, once
/// [`leave`](Registers::leave) has been called, plain memory.
#[derive(Debug)]
pub(super) struct Registers {
    windows: Vec<Window>,
    region: Placed,
    /// They are registers no longer.
    are_gone: AtomicBool,
}

impl Registers {
    /// The value of a register of a function that is gone.
    const GONE: u32 = u32::MAX;

    /// Maps the registers that can be mapped.
    pub(super) fn new(function: &File, region: Placed) -> io::Result<Registers> {
        let mut windows = Vec::new();
        for &(at, bytes) in &region.mappable {
            let outside = || io::Error::other("the kernel offers registers behind the end");
            let (first, end) = (u32::try_from(at), u32::try_from(at.saturating_add(bytes)));
            let (Ok(first), Ok(end)) = (first, end) else { return Err(outside()) };
            if bytes == 0 || u64::from(end) > region.bytes {
                return Err(outside());
            }
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let (offset, bytes) = (region.offset + at, bytes as usize);
            // SAFETY: a new mapping at a place of the kernel's choice touches nothing that exists.
            let start = unsafe { mmap(null_mut(), bytes, access, MapFlags::SHARED, function, offset) }?;
            let start = NonNull::new(start.cast()).ok_or_else(outside)?;
            windows.push(Window { offsets: first..end, start });
        }
        Ok(Registers { windows, region, are_gone: AtomicBool::new(false) })
    }

    /// Returns the address of a mapped register.
    #[inline]
    fn place(&self, offset: u32) -> Option<*mut u32> {
        assert!(offset.is_multiple_of(4), "a register of 32 bits at {offset:#x}");
        let last = offset.checked_add(3)?;
        let window = self.windows.iter().find(|window| offset >= window.offsets.start && last < window.offsets.end)?;
        Some(window.start.as_ptr().wrapping_add((offset - window.offsets.start) as usize).cast())
    }

    /// Returns the place in the function's file of a register that is not mapped.
    fn file_offset(&self, offset: u32) -> Option<u64> {
        (u64::from(offset) + 4 <= self.region.bytes).then(|| self.region.offset + u64::from(offset))
    }

    /// Reads a register; `file` is for one that is not mapped. All ones: the function is gone, or it has no such
    /// register.
    pub(super) fn read(&self, file: impl FnOnce() -> Option<Arc<File>>, offset: u32) -> u32 {
        let value = match self.place(offset) {
            // SAFETY: the place is mapped and aligned, see the invariant.
            Some(place) => unsafe { place.read_volatile() },
            None => {
                let mut bytes = [0; 4];
                let place = self.file_offset(offset).and_then(|at| Some((at, file()?)));
                let read = place.map(|(at, file)| file.read_exact_at(&mut bytes, at));
                // After an error the function does not answer.
                if matches!(read, Some(Ok(()))) { u32::from_ne_bytes(bytes) } else { Registers::GONE }
            }
        };
        after_load();
        // If `leave` had already put plain memory there, this flag was set before it.
        if self.are_gone.load(Ordering::Relaxed) { Registers::GONE } else { u32::from_le(value) }
    }

    /// Writes a register. All earlier stores to memory are visible to the function before it.
    pub(super) fn write(&self, file: impl FnOnce() -> Option<Arc<File>>, offset: u32, value: u32) {
        let value = value.to_le();
        before_store();
        match self.place(offset) {
            // SAFETY: the place is mapped and aligned, see the invariant.
            Some(place) => unsafe { place.write_volatile(value) },
            None => {
                if let Some((at, file)) = self.file_offset(offset).and_then(|at| Some((at, file()?))) {
                    // As with a mapped register, a function that is gone does not say that it missed a write.
                    let _ = file.write_all_at(&value.to_ne_bytes(), at);
                }
            }
        }
    }

    /// Puts plain memory in the place of the mapped registers: the mappings would keep the function's file open. Other
    /// threads may read and write meanwhile. From now on, all registers read as those of a function that is gone.
    pub(super) fn leave(&self) {
        self.are_gone.store(true, Ordering::SeqCst);
        for window in &self.windows {
            let (start, access) = (window.start.as_ptr().cast(), ProtFlags::READ | ProtFlags::WRITE);
            // SAFETY: it replaces our own mapping, at once and as a whole. The accesses to it are volatile ones, and
            // valid before and after. If the system has no memory, the old mapping stays.
            let _ = unsafe { mmap_anonymous(start, window.bytes(), access, MapFlags::PRIVATE | MapFlags::FIXED) };
        }
    }
}

/// Makes a load from a register come before all later loads.
#[inline]
fn after_load() {
    // SAFETY: a barrier, and nothing else.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
    fence(Ordering::Acquire);
}

/// Makes all earlier stores visible to the hardware before a store to a register. x86 stores in order.
#[inline]
fn before_store() {
    // SAFETY: a barrier, and nothing else.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
    fence(Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in the place of a function: registers from the second page on, of which the first page can be mapped.
    fn registers() -> (Arc<File>, Registers) {
        let file = tempfile::tempfile().unwrap();
        (0..2048_u32).for_each(|n| file.write_all_at(&n.to_le_bytes(), u64::from(4 * n)).unwrap());
        let region = Placed { offset: 4096, bytes: 4096 + 8, mappable: vec![(0, 4096)] };
        let registers = Registers::new(&file, region).unwrap();
        (Arc::new(file), registers)
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn each_register_is_reached_mapped_or_not() {
        let (file, registers) = registers();
        let mut calls = 0;
        let mut read = |at| {
            registers.read(
                || {
                    calls += 1;
                    Some(Arc::clone(&file))
                },
                at,
            )
        };
        assert_eq!([read(0), read(0x14), read(4092), read(4096), read(4100)], [1024, 1029, 2047, u32::MAX, u32::MAX]);
        file.set_len(16 << 10).unwrap();
        assert_eq!([read(4096), read(4100), read(4104)], [0, 0, u32::MAX]);
        assert_eq!(calls, 4, "one for each register that is there and not mapped");
        for at in [0x14, 4100, 4104] {
            registers.write(|| Some(Arc::clone(&file)), at, 0x0102_0304);
        }
        let mut bytes = [0; 4];
        for (at, expected) in [(4096 + 0x14, [4, 3, 2, 1]), (4096 + 4100, [4, 3, 2, 1]), (4096 + 4104, [0; 4])] {
            file.read_exact_at(&mut bytes, at).unwrap();
            assert_eq!(bytes, expected, "{at}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn registers_that_are_left_read_as_all_ones_and_keep_no_file() {
        let (file, registers) = registers();
        let threads: Vec<_> = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let values = std::iter::repeat_with(|| registers.read(|| None, 0x14));
                        values.take_while(|value| *value != u32::MAX).any(|value| value != 1029)
                    })
                })
                .collect();
            std::thread::sleep(std::time::Duration::from_millis(5));
            registers.leave();
            readers.into_iter().map(|reader| reader.join().unwrap()).collect()
        });
        assert_eq!(threads, [false, false], "a reader saw the memory in the place of the registers");
        registers.write(|| None, 0x14, 7);
        assert_eq!(registers.read(|| None, 0x14), u32::MAX);
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 4096 + 0x14).unwrap();
        assert_eq!(u32::from_le_bytes(bytes), 1029, "a write reached the registers");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn registers_behind_the_end_are_refused() {
        let file = tempfile::tempfile().unwrap();
        for area in [(0, 0), (0, 8192), (4096, 4096), (u64::MAX, 2), (1 << 40, 4096)] {
            let region = Placed { offset: 0, bytes: 4096, mappable: vec![area] };
            assert!(Registers::new(&file, region).is_err(), "{area:?}");
        }
    }
}
