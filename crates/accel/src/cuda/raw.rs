//! The calls of the driver that the compiler cannot check, behind types that make them sound.
//!
//! **Invariants**: device memory, pinned memory and events belong to a lane, next to the lane's stream. A stream waits
//! for everything that was given to it before it is dropped, and a lane drops its stream first. A lane touches pinned
//! memory only when the event behind the last transfer has been waited for.
#![allow(unsafe_code)]

use super::{CudaError, Result, at};
use cudarc::driver::{CudaContext, CudaFunction, result, sys};
use std::ffi::c_void;
use std::sync::Arc;

/// Memory grows by this much at least, so that tasks of about one size allocate once.
const GRANULE_BYTES: usize = 4 << 20;

/// Returns true if the driver's library can be loaded.
pub(super) fn driver_is_present() -> bool {
    // SAFETY: loads a library by its name, as any use of the driver would, and runs nothing of it but its
    // initializers.
    unsafe { sys::is_culib_present() }
}

/// Returns true if the library of the compiler can be loaded.
pub(super) fn nvrtc_is_present() -> bool {
    // SAFETY: as above.
    unsafe { cudarc::nvrtc::sys::is_culib_present() }
}

fn bind(context: &CudaContext) -> Result<()> {
    at("enter its context", context.bind_to_thread())
}

/// A stretch of device memory.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    context: Arc<CudaContext>,
    pointer: sys::CUdeviceptr,
    bytes: usize,
}

impl DeviceMemory {
    pub(super) fn new(context: &Arc<CudaContext>) -> DeviceMemory {
        DeviceMemory { context: Arc::clone(context), pointer: 0, bytes: 0 }
    }

    pub(super) fn address(&self) -> u64 {
        self.pointer
    }

    /// Makes it at least this long; its contents are lost if it grows. Nothing that uses it may be in flight.
    pub(super) fn resize(&mut self, bytes: usize) -> Result<()> {
        if bytes <= self.bytes {
            return Ok(());
        }
        self.free();
        bind(&self.context)?;
        let wanted = bytes.next_multiple_of(GRANULE_BYTES);
        // SAFETY: the context is current. The memory is written by the device before it is read.
        let allocated = unsafe { result::malloc_sync(wanted) };
        self.pointer = allocated.map_err(|_| CudaError::NoMemory { place: "device memory", bytes: wanted })?;
        self.bytes = wanted;
        Ok(())
    }

    fn free(&mut self) {
        if self.bytes > 0 && bind(&self.context).is_ok() {
            // SAFETY: it came from `malloc_sync`, and is freed once. Nothing is in flight.
            let _ = unsafe { result::free_sync(self.pointer) };
        }
        (self.pointer, self.bytes) = (0, 0);
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        self.free();
    }
}

/// Memory of the host that the device copies from and to.
#[derive(Debug)]
pub(super) struct PinnedMemory {
    context: Arc<CudaContext>,
    pointer: *mut u8,
    bytes: usize,
}

// SAFETY: the memory belongs to this value alone, and any thread may free it.
unsafe impl Send for PinnedMemory {}

impl PinnedMemory {
    pub(super) fn new(context: &Arc<CudaContext>) -> PinnedMemory {
        PinnedMemory { context: Arc::clone(context), pointer: std::ptr::null_mut(), bytes: 0 }
    }

    /// Makes it at least this long; its contents are lost if it grows. Nothing that uses it may be in flight.
    pub(super) fn resize(&mut self, bytes: usize) -> Result<()> {
        if bytes <= self.bytes {
            return Ok(());
        }
        self.free();
        bind(&self.context)?;
        let wanted = bytes.next_multiple_of(GRANULE_BYTES);
        // SAFETY: the context is current. The flags are the default: cached memory, which the host reads fast.
        let allocated = unsafe { result::malloc_host(wanted, 0) };
        let pointer = allocated.map_err(|_| CudaError::NoMemory { place: "pinned memory", bytes: wanted })?;
        // SAFETY: the memory is this long, and nothing else knows it yet. Bytes are initialized before a slice of them
        // exists.
        unsafe { pointer.cast::<u8>().write_bytes(0, wanted) };
        (self.pointer, self.bytes) = (pointer.cast(), wanted);
        Ok(())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: it is this long and initialized. The device does not write to it: the lane has waited.
        unsafe { std::slice::from_raw_parts(self.pointer, self.bytes) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.bytes) }
    }

    fn free(&mut self) {
        if self.bytes > 0 && bind(&self.context).is_ok() {
            // SAFETY: it came from `malloc_host`, and is freed once. Nothing is in flight.
            let _ = unsafe { result::free_host(self.pointer.cast::<c_void>()) };
        }
        (self.pointer, self.bytes) = (std::ptr::null_mut(), 0);
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        self.free();
    }
}

/// A point in a stream. Waiting for it sleeps.
#[derive(Debug)]
pub(super) struct Event {
    context: Arc<CudaContext>,
    event: sys::CUevent,
}

// SAFETY: an event is a handle that any thread may use in its context.
unsafe impl Send for Event {}

impl Event {
    pub(super) fn new(context: &Arc<CudaContext>, timed: bool) -> Result<Event> {
        bind(context)?;
        let flags = match timed {
            true => sys::CUevent_flags::CU_EVENT_DEFAULT,
            false => sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC,
        };
        Ok(Event { event: at("make an event", result::event::create(flags))?, context: Arc::clone(context) })
    }

    pub(super) fn record(&self, stream: &Stream) -> Result<()> {
        bind(&self.context)?;
        // SAFETY: both live, and belong to one context.
        at("record an event", unsafe { result::event::record(self.event, stream.stream) })
    }

    pub(super) fn wait(&self) -> Result<()> {
        bind(&self.context)?;
        // SAFETY: the event lives.
        at("finish a task", unsafe { result::event::synchronize(self.event) })
    }

    /// Returns true if the stream has passed it.
    pub(super) fn has_happened(&self) -> Result<bool> {
        bind(&self.context)?;
        // SAFETY: the event lives.
        match unsafe { result::event::query(self.event) } {
            Err(cudarc::driver::DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            asked => at("finish a task", asked).map(|()| true),
        }
    }

    /// Returns the milliseconds to a later event. Both have happened.
    pub(super) fn until(&self, later: &Event) -> Result<f32> {
        bind(&self.context)?;
        // SAFETY: both live.
        at("tell a time", unsafe { result::event::elapsed(self.event, later.event) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if bind(&self.context).is_ok() {
            // SAFETY: it is destroyed once; the driver waits for its use.
            let _ = unsafe { result::event::destroy(self.event) };
        }
    }
}

/// A queue of transfers and launches.
#[derive(Debug)]
pub(super) struct Stream {
    context: Arc<CudaContext>,
    stream: sys::CUstream,
}

// SAFETY: a stream is a handle that any thread may use in its context.
unsafe impl Send for Stream {}

impl Stream {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Stream> {
        bind(context)?;
        let stream = at("make a stream", result::stream::create(result::stream::StreamKind::NonBlocking))?;
        Ok(Stream { stream, context: Arc::clone(context) })
    }

    /// Copies the front of pinned memory to the device's.
    pub(super) fn send(&self, from: &PinnedMemory, bytes: usize, to: &DeviceMemory, to_at: usize) -> Result<()> {
        assert!(to_at + bytes <= to.bytes, "the arena has space for what is sent");
        if bytes == 0 {
            return Ok(());
        }
        bind(&self.context)?;
        let address = to.pointer + to_at as u64;
        // SAFETY: both are long enough, and stay until the stream has been waited for.
        at("copy to the device", unsafe { result::memcpy_htod_async(address, &from.bytes()[..bytes], self.stream) })
    }

    /// Copies from the device's memory to pinned memory.
    pub(super) fn fetch(
        &self,
        from: &DeviceMemory,
        from_at: usize,
        bytes: usize,
        to: &mut PinnedMemory,
        to_at: usize,
    ) -> Result<()> {
        assert!(from_at + bytes <= from.bytes, "what is fetched lies in the arena");
        if bytes == 0 {
            return Ok(());
        }
        bind(&self.context)?;
        let into = &mut to.bytes_mut()[to_at..to_at + bytes];
        let address = from.pointer + from_at as u64;
        // SAFETY: as for `send`.
        at("copy to the host", unsafe { result::memcpy_dtoh_async(into, address, self.stream) })
    }

    /// Launches a kernel whose parameters are a struct, given as its bytes, and a number.
    pub(super) fn launch(
        &self,
        function: &CudaFunction,
        [grid, threads, shared_bytes]: [u32; 3],
        params: &[u8],
        which: u32,
    ) -> Result<()> {
        bind(&self.context)?;
        let mut words: Vec<u64> = params.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let mut which = which;
        let mut arguments = [words.as_mut_ptr().cast::<c_void>(), (&raw mut which).cast::<c_void>()];
        let (grid, threads) = ((grid, 1, 1), (threads, 1, 1));
        // SAFETY: all kernels have these two parameters, and the driver copies them during the call. Kernels stay
        // within the arena, whose layout is made from the same task.
        let launched = unsafe {
            result::launch_kernel(function.cu_function(), grid, threads, shared_bytes, self.stream, &mut arguments)
        };
        at("launch a kernel", launched)
    }

    /// Waits for all that was given to the stream, by an event that sleeps.
    pub(super) fn wait_by(&self, event: &Event) -> Result<()> {
        event.record(self)?;
        event.wait()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if bind(&self.context).is_ok() {
            // SAFETY: the stream lives, and is destroyed once. What was given to it is waited for first.
            let _ = unsafe { result::stream::synchronize(self.stream) };
            // SAFETY: as above.
            let _ = unsafe { result::stream::destroy(self.stream) };
        }
    }
}
