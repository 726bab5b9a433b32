//! Tasks on a device with a driver of OpenCL: the kernels of `Cuda`, read by another compiler.
//!
//! ```text
//! data and head ──copy──> arena, a buffer ──launches──> answer in the arena ──copy──> report, data
//! ```
//!
//! 1. [`OpenClDevice::find_all`] lists the devices of all drivers, GPUs and accelerators first. Nothing is compiled.
//! 2. The first lane compiles the kernels. Drivers keep what they have compiled, so there is no cache here.
//! 3. A [`Lane`] has everything that a task in flight needs: a queue, kernels, an arena, memory of the host. All is
//!    kept from task to task and grows when a task is larger.
//! 4. A run copies, launches, and asks for the end of the last launch, asleep in between.
//!
//! The launches are those of [`steps`]. A kernel whose warps take different ways runs with blocks of one warp: OpenCL C
//! 1.2 has no warps, and its barriers are of all threads of a block.
//!
//! **Failure**: every error of the driver is a value that says which call failed. After one, the lane is given up, and
//! the next lane compiles again. A lane whose task was given up before its end is never freed: a driver could wait for
//! that task.
//!
//! **Threads**: a lane belongs to one thread at a time; lanes are independent of each other.
//!
//! **Rejected**: memory that both sides see (`CL_MEM_ALLOC_HOST_PTR`, mapped) would save a copy where the device shares
//! the host's memory. No such device has been measured yet.

use crate::abi::{AnswerHeader, BLOCK_BYTES_MAX, DATA_BYTES_MAX};
use crate::device::{Device, DeviceAnswer, DeviceError, DeviceLimits, OpenDevice, wait_for};
use crate::layout::{LZ4_TABLE_BYTES, Layout, Params};
use crate::steps::{opencl_source, steps};
use crate::task::DeviceTask;
use situ_device::memory::resize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

mod raw;

use raw::{Arguments, Context, DeviceId, DeviceMemory, Kernel, Program, Properties, Queue, Result};

/// The language of the kernels.
const OPTIONS: &str = "-cl-std=CL1.2";
/// Local memory that kernels need: the largest block, LZ4's table, and a little for where lanes meet.
const LOCAL_BYTES_MIN: u64 = (BLOCK_BYTES_MAX + LZ4_TABLE_BYTES + 1024) as u64;
/// Threads of the largest block of threads.
const THREADS_MIN: usize = 256;
/// An arena is longer than its task's data by less than this factor, where entries have 100 bytes and more.
const ARENA_FACTOR: u64 = 8;

/// A device of OpenCL, which [`open`](OpenDevice::open) opens.
pub struct OpenClDevice {
    name: String,
    device: DeviceId,
    properties: Properties,
    known: Arc<Known>,
}

impl fmt::Debug for OpenClDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenClDevice({}, {})", self.name, self.properties.name)
    }
}

/// The compiled kernels of a device, once there are any.
type Known = Mutex<Option<Arc<Kernels>>>;

struct Kernels {
    context: Context,
    program: Program,
}

impl OpenClDevice {
    /// Returns the devices of all drivers: `opencl:0`, `opencl:1` and so on. Processors come last.
    ///
    /// # Errors
    /// [`Unavailable`](DeviceError::Unavailable): there is none. Others if a driver refuses.
    pub fn find_all() -> std::result::Result<Vec<OpenClDevice>, DeviceError> {
        let mut found = Vec::new();
        for device in DeviceId::all()? {
            found.push((device, device.properties()?));
        }
        found.sort_by_key(|(_, properties)| properties.is_processor);
        let named = |(i, (device, properties))| OpenClDevice {
            name: format!("opencl:{i}"),
            device,
            properties,
            known: Arc::default(),
        };
        Ok(found.into_iter().enumerate().map(named).collect())
    }

    /// Returns true if the driver computes on the processors of the host, as PoCL does.
    pub fn is_processor(&self) -> bool {
        self.properties.is_processor
    }

    /// Returns the driver's name for the device.
    pub fn driver_name(&self) -> &str {
        &self.properties.name
    }

    /// Checks that the device has what kernels need.
    ///
    /// # Errors
    /// [`Unavailable`](DeviceError::Unavailable), with what is missing.
    pub fn check(&self) -> std::result::Result<(), DeviceError> {
        let Properties { is_available, has_compiler, is_little_endian, local_bytes, threads_max, .. } = self.properties;
        let missing = match () {
            () if !is_available => "its driver says so".to_owned(),
            () if !has_compiler => "its driver has no compiler".to_owned(),
            () if !is_little_endian => "it is big-endian".to_owned(),
            () if local_bytes < LOCAL_BYTES_MIN => {
                format!("it has {local_bytes} bytes of local memory, and kernels need {LOCAL_BYTES_MIN}")
            }
            () if threads_max < THREADS_MIN => {
                format!("its blocks have {threads_max} threads, and kernels need {THREADS_MIN}")
            }
            () => return Ok(()),
        };
        Err(DeviceError::Unavailable(missing))
    }

    fn kernels(&self) -> Result<Arc<Kernels>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernels) = &*known {
            return Ok(Arc::clone(kernels));
        }
        let context = Context::new(self.device)?;
        let program = Program::new(&context, self.device, &opencl_source(), OPTIONS)?;
        Ok(Arc::clone(known.insert(Arc::new(Kernels { context, program }))))
    }
}

impl OpenDevice for OpenClDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn limits(&self) -> DeviceLimits {
        let data_bytes = DATA_BYTES_MAX.min(self.properties.buffer_bytes_max / ARENA_FACTOR);
        DeviceLimits { data_bytes, ..DeviceLimits::of_format() }
    }

    fn open(&self) -> std::result::Result<Box<dyn Device>, DeviceError> {
        self.check()?;
        let kernels = self.kernels()?;
        let mut of_lane = BTreeMap::new();
        for step in steps() {
            of_lane.insert(step.kernel, kernels.program.kernel(step.kernel)?);
        }
        let lane = Lane {
            queue: Queue::new(&kernels.context, self.device)?,
            kernels: of_lane,
            grid: self.properties.compute_units.max(1) as usize * 8,
            arena: DeviceMemory::default(),
            params: DeviceMemory::default(),
            staged: Vec::new(),
            head: Vec::new(),
            report: Vec::new(),
            data: Vec::new(),
        };
        Ok(Box::new(OpenLane { lane: Some(lane), kernels, known: Arc::clone(&self.known) }))
    }
}

/// A lane as the unit sees it.
struct OpenLane {
    /// `None` if the device did not finish a task.
    lane: Option<Lane>,
    kernels: Arc<Kernels>,
    known: Arc<Known>,
}

impl OpenLane {
    /// Has the next lane compile again.
    fn forget(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &self.kernels)) {
            *known = None;
        }
    }
}

impl Device for OpenLane {
    fn stage(&mut self, bytes: usize) -> Result<&mut [u8]> {
        let lane = self.lane.as_mut().ok_or_else(DeviceError::hangs)?;
        make_room(&mut lane.staged, bytes)?;
        Ok(&mut lane.staged)
    }

    fn run(&mut self, task: &DeviceTask, cancelled: &dyn Fn() -> bool) -> Result<()> {
        let lane = self.lane.as_mut().ok_or_else(DeviceError::hangs)?;
        match lane.run(&self.kernels.context, task, cancelled) {
            Ok(true) => Ok(()),
            Ok(false) => {
                std::mem::forget(self.lane.take());
                self.forget();
                Err(DeviceError::hangs())
            }
            // A task that is too large says nothing of the device.
            Err(error @ DeviceError::NoMemory(_)) => Err(error),
            Err(error) => {
                self.forget();
                Err(error)
            }
        }
    }

    fn answer(&self) -> DeviceAnswer<'_> {
        let answer = self.lane.as_ref().map(|lane| DeviceAnswer { report: &lane.report, data: &lane.data });
        answer.unwrap_or_default()
    }
}

/// Everything that one task in flight needs. See the [module](self).
#[derive(Debug)]
struct Lane {
    queue: Queue,
    kernels: BTreeMap<&'static str, Kernel>,
    /// Blocks of threads in a grid that fills the device.
    grid: usize,
    arena: DeviceMemory,
    params: DeviceMemory,
    staged: Vec<u8>,
    head: Vec<u8>,
    report: Vec<u8>,
    data: Vec<u8>,
}

impl Lane {
    /// Runs a task; false if it was given up before it was done.
    fn run(&mut self, context: &Context, task: &DeviceTask, cancelled: &dyn Fn() -> bool) -> Result<bool> {
        let layout = Layout::of(task);
        self.arena.resize(context, layout.bytes as usize)?;
        self.params.resize(context, Params::BYTES)?;
        make_room(&mut self.head, layout.head_bytes as usize)?;
        layout.write_head(task, &mut self.head);
        self.queue.send(&self.staged[..task.data_bytes as usize], &self.arena, 0)?;
        self.queue.send(&self.head, &self.arena, layout.head_at as usize)?;
        self.queue.send(&layout.params.placed(0), &self.params, 0)?;
        let mut last = None;
        for step in steps() {
            let threads = if step.lone_warps { 32 } else { step.threads as usize };
            let blocks = if step.many { self.grid * (256 / threads).min(4) } else { 1 };
            // No length of local memory may be 0.
            let own_bytes = if step.own_memory { layout.own_bytes as usize } else { 8 };
            let arguments = Arguments { arena: &self.arena, params: &self.params, own_bytes };
            let kernel = self.kernels.get_mut(step.kernel).expect("a lane has the kernels of all steps");
            last = Some(self.queue.launch(kernel, &step, [blocks, threads], arguments)?);
        }
        self.queue.flush()?;
        let last = last.expect("a task has launches");
        if !wait_for(|| last.has_happened(), cancelled)? {
            return Ok(false);
        }
        self.fetch(&layout)?;
        Ok(true)
    }

    fn fetch(&mut self, layout: &Layout) -> Result<()> {
        let mut head = [0; AnswerHeader::BYTES];
        self.queue.fetch(&self.arena, layout.params.answer as usize, &mut head)?;
        let parts = layout.answer_parts(&head).map_err(DeviceError::Malformed)?;
        make_room(&mut self.report, parts.report_bytes())?;
        let mut rest = self.report.as_mut_slice();
        for (from, bytes) in parts.report {
            let into = rest.split_off_mut(..bytes).expect("the report is as long as its parts");
            self.queue.fetch(&self.arena, from, into)?;
        }
        let (from, bytes) = parts.data;
        make_room(&mut self.data, bytes)?;
        self.queue.fetch(&self.arena, from, &mut self.data)
    }
}

/// Makes memory of the host this long.
fn make_room(memory: &mut Vec<u8>, bytes: usize) -> Result<()> {
    match resize(memory, bytes) {
        true => Ok(()),
        false => Err(DeviceError::NoMemory(bytes)),
    }
}
