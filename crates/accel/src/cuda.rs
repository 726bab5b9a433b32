//! Tasks on a GPU of NVIDIA.
//!
//! ```text
//! data and head, pinned ──copy──> arena ──launches──> answer in the arena ──copy──> results, pinned
//! ```
//!
//! 1. [`Cuda::find`] asks whether a driver and NVRTC are there, compiles the kernels and loads them.
//! 2. A [`Lane`] has everything that a task in flight needs: a stream, an arena on the device, pinned memory for both
//!    directions. All is kept from task to task and grows when a task is larger. Several lanes overlap transfers and
//!    kernels of several tasks.
//! 3. [`Lane::stage`] gives the caller pinned memory to read the blocks into. [`Lane::begin`] gives the stream
//!    everything at once, and does not wait.
//! 4. [`Lane::finish`] waits, sleeping and not spinning, for the answer's head; then for exactly the bytes of the
//!    answer.
//!
//! **Failure**: every error of the driver is a value that says which call failed. After one, the lane is given up: the
//! device may have lost its context. No GPU at all is [`CudaError::Unavailable`].
//!
//! **Threads**: a lane belongs to one thread at a time; lanes are independent of each other.

use crate::abi::*;
use crate::answer::Answer;
use crate::layout::Layout;
use crate::steps::{kernel_source, steps};
use crate::task::{DeviceTask, Malformed};
use cudarc::driver::{CudaContext, CudaFunction, DriverError, sys};
use cudarc::nvrtc::{CompileOptions, Ptx, compile_ptx_with_opts};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

mod open;
mod raw;

pub use open::OpenCuda;
use raw::{DeviceMemory, Event, PinnedMemory, Stream};

/// An error of a GPU, or of asking for one.
#[derive(Debug)]
#[non_exhaustive]
pub enum CudaError {
    /// There is no GPU, no driver or no compiler for the kernels.
    Unavailable(String),
    /// The kernels could not be compiled.
    Compile(String),
    /// The driver refused a call. The GPU may be lost.
    Driver {
        /// The call.
        call: &'static str,
        /// The driver's name of the error.
        error: String,
    },
    /// The device or the system has no memory of this length.
    NoMemory {
        /// Device memory, or pinned memory of the host.
        place: &'static str,
        /// The length.
        bytes: usize,
    },
    /// The answer is not one.
    Answer(Malformed),
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CudaError::Unavailable(why) => write!(f, "no GPU can be used: {why}"),
            CudaError::Compile(why) => write!(f, "the kernels cannot be compiled: {why}"),
            CudaError::Driver { call, error } => write!(f, "the GPU's driver refuses to {call}: {error}"),
            CudaError::NoMemory { place, bytes } => write!(f, "{bytes} bytes of {place} cannot be had"),
            CudaError::Answer(malformed) => write!(f, "the GPU's answer is none: {malformed}"),
        }
    }
}

impl std::error::Error for CudaError {}

type Result<T> = std::result::Result<T, CudaError>;

/// Names the call that an error belongs to.
fn at<T>(call: &'static str, result: std::result::Result<T, DriverError>) -> Result<T> {
    result.map_err(|error| CudaError::Driver { call, error: format!("{error:?}") })
}

/// A GPU with the kernels on it.
pub struct Cuda {
    context: Arc<CudaContext>,
    functions: BTreeMap<&'static str, CudaFunction>,
    /// Blocks of threads in a grid that fills the device.
    grid: u32,
    name: String,
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cuda({})", self.name)
    }
}

impl Cuda {
    /// Finds the first GPU, and compiles the kernels for it.
    ///
    /// # Errors
    /// [`Unavailable`](CudaError::Unavailable) if there is none, or no NVRTC; others if the GPU refuses.
    pub fn find() -> Result<Cuda> {
        let context = Cuda::look()?;
        let (major, minor) = at("tell its capability", context.compute_capability())?;
        let options = CompileOptions {
            options: vec![format!("--gpu-architecture=compute_{major}{minor}")],
            name: Some("situ.cu".to_owned()),
            ..CompileOptions::default()
        };
        let ptx = compile_ptx_with_opts(kernel_source(), options)
            .map_err(|error| CudaError::Compile(format!("{error:?}")))?;
        Cuda::load(context, ptx)
    }

    /// Finds the first GPU, for kernels that were compiled elsewhere: the text of PTX of
    /// [`kernel_source`](crate::kernel_source()).
    ///
    /// # Errors
    /// As [`find`](Cuda::find).
    pub fn with_ptx(ptx: String) -> Result<Cuda> {
        Cuda::load(Cuda::context()?, Ptx::from_src(ptx))
    }

    /// Returns the context of the first GPU, if the compiler for its kernels is there, too.
    fn look() -> Result<Arc<CudaContext>> {
        let context = Cuda::context()?;
        match raw::nvrtc_is_present() {
            true => Ok(context),
            false => Err(CudaError::Unavailable("NVRTC, the compiler of CUDA, is not installed".to_owned())),
        }
    }

    fn context() -> Result<Arc<CudaContext>> {
        if !raw::driver_is_present() {
            return Err(CudaError::Unavailable("the driver of CUDA is not installed".to_owned()));
        }
        CudaContext::new(0).map_err(|error| CudaError::Unavailable(format!("{error:?}")))
    }

    fn load(context: Arc<CudaContext>, ptx: Ptx) -> Result<Cuda> {
        let module = at("load the kernels", context.load_module(ptx))?;
        let mut functions = BTreeMap::new();
        for step in steps() {
            functions.insert(step.kernel, at("find a kernel", module.load_function(step.kernel))?);
        }
        let count = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let multiprocessors = at("count its multiprocessors", context.attribute(count))?;
        let name = at("tell its name", context.name())?;
        Ok(Cuda { context, functions, grid: u32::try_from(multiprocessors).unwrap_or(1).max(1) * 8, name })
    }

    /// Returns the GPU's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes a lane, without memory yet.
    ///
    /// # Errors
    /// The driver's.
    pub fn lane(self: &Arc<Self>) -> Result<Lane> {
        Ok(Lane {
            stream: Stream::new(&self.context)?,
            done: Event::new(&self.context, false)?,
            arena: DeviceMemory::new(&self.context),
            data: PinnedMemory::new(&self.context),
            head: PinnedMemory::new(&self.context),
            results: PinnedMemory::new(&self.context),
            begun: None,
            pieces: Pieces::default(),
            marks: None,
            cuda: Arc::clone(self),
        })
    }
}

/// A task that was begun.
#[derive(Debug)]
struct Begun {
    layout: Layout,
}

/// Where the pieces of an answer lie in the results.
#[derive(Debug, Clone, Copy, Default)]
struct Pieces {
    report_bytes: usize,
    data_at: usize,
    data_bytes: usize,
}

/// An answer in a lane's pinned memory.
#[derive(Debug)]
pub struct LaneAnswer<'a> {
    /// The answer without its blocks; see [`Answer::decode`].
    pub report: &'a [u8],
    /// The output blocks.
    pub data: &'a [u8],
}

impl LaneAnswer<'_> {
    /// Returns the answer in memory of its own.
    ///
    /// # Errors
    /// The bytes are no answer.
    pub fn to_answer(&self) -> Result<Answer> {
        Answer::decode(self.report, self.data.to_vec()).map_err(CudaError::Answer)
    }
}

/// The time of one launch or transfer.
pub type StepTime = (&'static str, f32);

/// Everything that one task in flight needs. See the [module](self).
#[derive(Debug)]
pub struct Lane {
    // First, so that it is dropped first: dropping waits for the device.
    stream: Stream,
    done: Event,
    arena: DeviceMemory,
    data: PinnedMemory,
    head: PinnedMemory,
    results: PinnedMemory,
    begun: Option<Begun>,
    /// Of the task that was finished last.
    pieces: Pieces,
    /// Marks between launches, if launches are timed.
    marks: Option<Vec<(&'static str, Event)>>,
    cuda: Arc<Cuda>,
}

impl Lane {
    /// Returns pinned memory for the input blocks of the next task.
    ///
    /// # Errors
    /// The driver's.
    pub fn stage(&mut self, data_bytes: usize) -> Result<&mut [u8]> {
        self.wait()?;
        self.data.resize(data_bytes)?;
        Ok(self.staged(data_bytes))
    }

    /// Returns what was staged last.
    fn staged(&mut self, data_bytes: usize) -> &mut [u8] {
        &mut self.data.bytes_mut()[..data_bytes]
    }

    /// Begins the task whose blocks are [staged](Lane::stage): gives transfers and launches to the device.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Panics
    /// Fewer bytes were staged than the task has.
    pub fn begin(&mut self, task: &DeviceTask) -> Result<()> {
        let layout = Layout::of(task);
        let head_bytes = layout.head_bytes as usize;
        self.arena.resize(layout.bytes as usize)?;
        self.head.resize(head_bytes)?;
        self.results.resize(AnswerHeader::BYTES)?;
        layout.write_head(task, self.head.bytes_mut());
        let params = layout.params.placed(self.arena.address());
        self.begun = Some(Begun { layout });
        self.mark("begin")?;
        self.stream.send(&self.data, task.data_bytes as usize, &self.arena, 0)?;
        self.stream.send(&self.head, head_bytes, &self.arena, layout.head_at as usize)?;
        self.mark("copy to the device")?;
        for step in steps() {
            let function = &self.cuda.functions[step.kernel];
            // A block of threads of one warp takes less of a multiprocessor, so there are more of them.
            let grid = if step.many { self.cuda.grid * (256 / step.threads).min(4) } else { 1 };
            let own_bytes = if step.own_memory { layout.own_bytes } else { 0 };
            self.stream.launch(function, [grid, step.threads, own_bytes], &params, step.which)?;
            self.mark(step.kernel)?;
        }
        let answer_at = layout.params.answer as usize;
        self.stream.fetch(&self.arena, answer_at, AnswerHeader::BYTES, &mut self.results, 0)?;
        self.done.record(&self.stream)
    }

    /// Returns true if the device has finished the task that was begun.
    ///
    /// # Errors
    /// The driver's.
    pub fn is_done(&self) -> Result<bool> {
        self.done.has_happened()
    }

    /// Waits for the task that was begun, and returns its answer.
    ///
    /// # Errors
    /// The driver's, or what came back is no answer.
    ///
    /// # Panics
    /// No task was begun.
    pub fn finish(&mut self) -> Result<LaneAnswer<'_>> {
        let Begun { layout } = self.begun.take().expect("finish follows begin");
        let pieces = self.fetch(&layout);
        // Whatever happened, nothing is in flight when the caller has the lane again.
        self.wait()?;
        self.pieces = pieces?;
        Ok(self.answer())
    }

    /// Returns the answer of the task that was finished last.
    fn answer(&self) -> LaneAnswer<'_> {
        let (Pieces { report_bytes, data_at, data_bytes }, results) = (self.pieces, self.results.bytes());
        LaneAnswer { report: &results[..report_bytes], data: &results[data_at..data_at + data_bytes] }
    }

    fn fetch(&mut self, layout: &Layout) -> Result<Pieces> {
        self.done.wait()?;
        let head = &self.results.bytes()[..AnswerHeader::BYTES];
        let parts = layout.answer_parts(head).map_err(CudaError::Answer)?;
        let (report_bytes, (data_from, data_bytes)) = (parts.report_bytes(), parts.data);
        let data_at = report_bytes.next_multiple_of(4096);
        self.results.resize(data_at + data_bytes)?;
        let mut into = 0;
        for (from, bytes) in parts.report {
            self.stream.fetch(&self.arena, from, bytes, &mut self.results, into)?;
            into += bytes;
        }
        self.stream.fetch(&self.arena, data_from, data_bytes, &mut self.results, data_at)?;
        self.mark("copy to the host")?;
        self.done.record(&self.stream)?;
        Ok(Pieces { report_bytes, data_at, data_bytes })
    }

    /// Waits until nothing is in flight.
    fn wait(&mut self) -> Result<()> {
        self.stream.wait_by(&self.done)
    }

    /// Times each launch from now on, at some cost.
    pub fn time_steps(&mut self) {
        self.marks = Some(Vec::new());
    }

    /// Returns the times of the task that was finished last, in milliseconds.
    ///
    /// # Errors
    /// The driver's.
    pub fn take_times(&mut self) -> Result<Vec<StepTime>> {
        let Some(marks) = &mut self.marks else { return Ok(Vec::new()) };
        let marks = std::mem::take(marks);
        marks.windows(2).map(|pair| Ok((pair[1].0, pair[0].1.until(&pair[1].1)?))).collect()
    }

    fn mark(&mut self, name: &'static str) -> Result<()> {
        if let Some(marks) = &mut self.marks {
            let event = Event::new(&self.cuda.context, true)?;
            event.record(&self.stream)?;
            marks.push((name, event));
        }
        Ok(())
    }

    /// Copies the lane's pinned memory to the device and back, for a measurement of transfers. Returns the
    /// milliseconds of both ways.
    ///
    /// # Errors
    /// The driver's.
    pub fn time_transfers(&mut self, bytes: usize) -> Result<(f32, f32)> {
        self.wait()?;
        self.arena.resize(bytes)?;
        self.data.resize(bytes)?;
        self.results.resize(bytes)?;
        let marks = [0; 3].map(|_| Event::new(&self.cuda.context, true));
        let [begin, sent, fetched] = marks;
        let (begin, sent, fetched) = (begin?, sent?, fetched?);
        begin.record(&self.stream)?;
        self.stream.send(&self.data, bytes, &self.arena, 0)?;
        sent.record(&self.stream)?;
        self.stream.fetch(&self.arena, 0, bytes, &mut self.results, 0)?;
        fetched.record(&self.stream)?;
        self.done.record(&self.stream)?;
        self.wait()?;
        Ok((begin.until(&sent)?, sent.until(&fetched)?))
    }
}
