//! The calls of OpenCL that the compiler cannot check, behind types that make them sound.
//!
//! **Invariants**: every value owns one reference to an object of the driver, and gives it back once. The driver keeps
//! an object until the commands that use it have finished. Transfers block, so that the driver never touches memory of
//! the host behind a call.
#![allow(unsafe_code)]

use crate::device::DeviceError;
use crate::steps::Step;
use cl3::command_queue as queue;
use cl3::error_codes::{ClError, DLOPEN_RUNTIME_LOAD_FAILED};
use cl3::ext::CL_PLATFORM_NOT_FOUND_KHR;
use cl3::types::{CL_BLOCKING, cl_command_queue, cl_context, cl_device_id, cl_event, cl_kernel, cl_mem, cl_program};
use cl3::{context, device, event, kernel, memory, platform, program};
use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};

pub(super) type Result<T> = std::result::Result<T, DeviceError>;

/// Memory grows by this much at least, so that tasks of about one size allocate once.
const GRANULE_BYTES: usize = 4 << 20;

/// Names the call that an error belongs to.
fn at<T>(call: &str, result: std::result::Result<T, i32>) -> Result<T> {
    result.map_err(|code| DeviceError::Failed(format!("the driver refuses to {call}: {}", ClError(code))))
}

/// A device of a driver. It exists as long as the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeviceId(cl_device_id);

// SAFETY: it is a handle that any thread may use, of a device that is never released.
unsafe impl Send for DeviceId {}
// SAFETY: as above.
unsafe impl Sync for DeviceId {}

/// Properties of a device, as its driver reports them.
#[derive(Debug, Clone)]
pub(super) struct Properties {
    pub(super) name: String,
    /// Its driver computes on the processors of the host.
    pub(super) is_processor: bool,
    pub(super) is_available: bool,
    pub(super) has_compiler: bool,
    pub(super) is_little_endian: bool,
    pub(super) compute_units: u32,
    /// The longest buffer.
    pub(super) buffer_bytes_max: u64,
    /// Memory of a block of threads.
    pub(super) local_bytes: u64,
    /// The most threads of a block.
    pub(super) threads_max: usize,
}

impl DeviceId {
    /// Returns the devices of all drivers, in the order of their loader.
    pub(super) fn all() -> Result<Vec<DeviceId>> {
        let unavailable = |why: &str| Err(DeviceError::Unavailable(why.to_owned()));
        let platforms = match platform::get_platform_ids() {
            Ok(platforms) => platforms,
            Err(DLOPEN_RUNTIME_LOAD_FAILED) => {
                return unavailable("the loader of OpenCL's drivers (libOpenCL.so.1) is not installed");
            }
            Err(CL_PLATFORM_NOT_FOUND_KHR) => Vec::new(),
            Err(code) => return at("name its drivers", Err(code)),
        };
        if platforms.is_empty() {
            return unavailable("no driver of OpenCL is installed");
        }
        let mut found = Vec::new();
        for platform in platforms {
            // A driver that cannot say its devices has none. It must not hide those of others.
            let devices = device::get_device_ids(platform, device::CL_DEVICE_TYPE_ALL).unwrap_or_default();
            found.extend(devices.into_iter().map(DeviceId));
        }
        match found.is_empty() {
            true => unavailable("no driver of OpenCL has a device"),
            false => Ok(found),
        }
    }

    pub(super) fn properties(self) -> Result<Properties> {
        let info = |what| at("describe the device", device::get_device_info(self.0, what));
        Ok(Properties {
            name: String::from(info(device::CL_DEVICE_NAME)?).trim().to_owned(),
            is_processor: info(device::CL_DEVICE_TYPE)?.to_ulong() & device::CL_DEVICE_TYPE_CPU != 0,
            is_available: info(device::CL_DEVICE_AVAILABLE)?.to_uint() != 0,
            has_compiler: info(device::CL_DEVICE_COMPILER_AVAILABLE)?.to_uint() != 0,
            is_little_endian: info(device::CL_DEVICE_ENDIAN_LITTLE)?.to_uint() != 0,
            compute_units: info(device::CL_DEVICE_MAX_COMPUTE_UNITS)?.to_uint(),
            buffer_bytes_max: info(device::CL_DEVICE_MAX_MEM_ALLOC_SIZE)?.to_ulong(),
            local_bytes: info(device::CL_DEVICE_LOCAL_MEM_SIZE)?.to_ulong(),
            threads_max: info(device::CL_DEVICE_MAX_WORK_GROUP_SIZE)?.to_size(),
        })
    }
}

/// Defines the owner of a reference to an object.
macro_rules! owner {
    ($(#[$meta:meta])* $name:ident($handle:ty), $release:path) => {
        $(#[$meta])*
        #[derive(Debug)]
        pub(super) struct $name($handle);

        // SAFETY: it is a handle that any thread may use.
        unsafe impl Send for $name {}

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the reference is this value's, and is given back once.
                let _ = unsafe { $release(self.0) };
            }
        }
    };
}

owner!(
    /// The frame of all other objects of a device.
    Context(cl_context),
    context::release_context
);
owner!(
    /// Compiled kernels.
    Program(cl_program),
    program::release_program
);
owner!(
    /// A kernel with its arguments. One thread at a time sets them.
    Kernel(cl_kernel),
    kernel::release_kernel
);
owner!(
    /// Transfers and launches, one after the other.
    Queue(cl_command_queue),
    queue::release_command_queue
);
owner!(
    /// The end of a command.
    Event(cl_event),
    event::release_event
);
owner!(
    /// Memory of the device, of a length that it is not told.
    Buffer(cl_mem),
    memory::release_mem_object
);

// SAFETY: the driver's functions over a context may be called by several threads at a time.
unsafe impl Sync for Context {}
// SAFETY: as above, over a program that is compiled.
unsafe impl Sync for Program {}

impl Context {
    pub(super) fn new(device: DeviceId) -> Result<Context> {
        let made = context::create_context(&[device.0], null(), None, null_mut());
        Ok(Context(at("make a context", made)?))
    }
}

impl Program {
    /// Compiles a source for a device. The error has the first lines of what the compiler says.
    pub(super) fn new(context: &Context, device: DeviceId, source: &str, options: &str) -> Result<Program> {
        let program =
            Program(at("take the kernels' source", program::create_program_with_source(context.0, &[source]))?);
        let options = c_string(options)?;
        if let Err(code) = program::build_program(program.0, &[device.0], &options, None, null_mut()) {
            let log = program::get_program_build_info(program.0, device.0, program::CL_PROGRAM_BUILD_LOG);
            let log = log.map(String::from).unwrap_or_default();
            let lines: Vec<&str> = log.lines().take(20).collect();
            let why = format!("the kernels cannot be compiled: {}\n{}", ClError(code), lines.join("\n"));
            return Err(DeviceError::Failed(why));
        }
        Ok(program)
    }

    pub(super) fn kernel(&self, name: &str) -> Result<Kernel> {
        Ok(Kernel(at("find a kernel", kernel::create_kernel(self.0, &c_string(name)?))?))
    }
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|error| DeviceError::Failed(error.to_string()))
}

/// A stretch of device memory.
#[derive(Debug, Default)]
pub(super) struct DeviceMemory {
    buffer: Option<Buffer>,
    bytes: usize,
}

impl DeviceMemory {
    /// Makes it at least this long; its contents are lost if it grows.
    pub(super) fn resize(&mut self, context: &Context, bytes: usize) -> Result<()> {
        if bytes <= self.bytes {
            return Ok(());
        }
        *self = DeviceMemory::default();
        let wanted = bytes.next_multiple_of(GRANULE_BYTES);
        // SAFETY: the flags ask for memory of the driver's own, and there is none of the host's to take.
        let made = unsafe { memory::create_buffer(context.0, memory::CL_MEM_READ_WRITE, wanted, null_mut()) };
        self.buffer = Some(Buffer(made.map_err(|_| DeviceError::NoMemory(wanted))?));
        self.bytes = wanted;
        Ok(())
    }

    fn handle(&self) -> cl_mem {
        self.buffer.as_ref().map_or(null_mut(), |buffer| buffer.0)
    }
}

/// A kernel's arguments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arguments<'a> {
    pub(super) arena: &'a DeviceMemory,
    pub(super) params: &'a DeviceMemory,
    /// Memory of a block of threads for `encode`.
    pub(super) own_bytes: usize,
}

impl Queue {
    pub(super) fn new(context: &Context, device: DeviceId) -> Result<Queue> {
        // SAFETY: the device is the context's. Without properties, commands run in order.
        let made = unsafe { queue::create_command_queue(context.0, device.0, 0) };
        Ok(Queue(at("make a queue", made)?))
    }

    /// Copies bytes to the device's memory, and waits for that.
    pub(super) fn send(&self, from: &[u8], to: &DeviceMemory, to_at: usize) -> Result<()> {
        assert!(to_at + from.len() <= to.bytes, "the arena has space for what is sent");
        if from.is_empty() {
            return Ok(());
        }
        let (handle, bytes) = (from.as_ptr().cast::<c_void>(), from.len());
        // SAFETY: both are long enough. The call returns when the bytes have been copied.
        let sent =
            unsafe { queue::enqueue_write_buffer(self.0, to.handle(), CL_BLOCKING, to_at, bytes, handle, 0, null()) };
        at("copy to the device", sent).map(|event| drop(Event(event)))
    }

    /// Copies bytes from the device's memory behind all that was enqueued before, and waits for that.
    pub(super) fn fetch(&self, from: &DeviceMemory, from_at: usize, into: &mut [u8]) -> Result<()> {
        assert!(from_at + into.len() <= from.bytes, "what is fetched lies in the arena");
        if into.is_empty() {
            return Ok(());
        }
        let (handle, bytes) = (into.as_mut_ptr().cast::<c_void>(), into.len());
        // SAFETY: as for `send`.
        let fetched = unsafe {
            queue::enqueue_read_buffer(self.0, from.handle(), CL_BLOCKING, from_at, bytes, handle, 0, null())
        };
        at("copy to the host", fetched).map(|event| drop(Event(event)))
    }

    /// Enqueues a launch of `blocks` blocks of `threads` threads.
    pub(super) fn launch(
        &self,
        kernel: &mut Kernel,
        step: &Step,
        [blocks, threads]: [usize; 2],
        arguments: Arguments<'_>,
    ) -> Result<Event> {
        let Arguments { arena, params, own_bytes } = arguments;
        let (arena, params) = (arena.handle(), params.handle());
        // The five parameters of every kernel, as `words.cl` has them: three values, two lengths of local memory.
        let values: [(usize, *const c_void); 5] = [
            (size_of::<cl_mem>(), (&raw const arena).cast()),
            (size_of::<cl_mem>(), (&raw const params).cast()),
            (size_of::<u32>(), (&raw const step.which).cast()),
            (8 * threads, null()),
            (own_bytes, null()),
        ];
        for (i, (bytes, value)) in (0..).zip(values) {
            // SAFETY: the values are what the kernel's parameters are, and the driver copies them during the call.
            at("take an argument", unsafe { kernel::set_kernel_arg(kernel.0, i, bytes, value) })?;
        }
        let all = blocks * threads;
        // SAFETY: all arguments are set. Kernels stay within the arena, whose layout is made from the same task.
        let launched = unsafe {
            queue::enqueue_nd_range_kernel(self.0, kernel.0, 1, null(), &raw const all, &raw const threads, 0, null())
        };
        Ok(Event(at("launch a kernel", launched)?))
    }

    /// Has the device begin.
    pub(super) fn flush(&self) -> Result<()> {
        at("begin", queue::flush(self.0))
    }
}

impl Event {
    /// Returns true if the command has finished.
    pub(super) fn has_happened(&self) -> Result<bool> {
        let status = event::get_event_info(self.0, event::CL_EVENT_COMMAND_EXECUTION_STATUS);
        match at("tell how far it is", status)?.to_int() {
            error @ ..0 => at("finish a task", Err(error)),
            status => Ok(status == event::CL_COMPLETE),
        }
    }
}
