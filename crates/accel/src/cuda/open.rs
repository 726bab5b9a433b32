//! A GPU of NVIDIA as a device of compactions.

use super::{Cuda, CudaError, Lane, LaneAnswer};
use crate::device::{Device, DeviceAnswer, DeviceError, DeviceLimits, OpenDevice, wait_for};
use crate::task::DeviceTask;
use std::sync::{Arc, Mutex, PoisonError};

/// The name of the first GPU.
const NAME: &str = "cuda:0";

impl From<CudaError> for DeviceError {
    fn from(error: CudaError) -> DeviceError {
        match error {
            CudaError::Unavailable(why) => DeviceError::Unavailable(why),
            CudaError::NoMemory { bytes, .. } => DeviceError::NoMemory(bytes),
            CudaError::Answer(malformed) => DeviceError::Malformed(malformed),
            other => DeviceError::Failed(other.to_string()),
        }
    }
}

/// A lane with the task that it ran last.
struct GpuLane {
    /// `None` if the GPU did not finish a task: it may still write to the lane's memory, which is never freed then.
    lane: Option<Lane>,
    cuda: Arc<Cuda>,
    known: Arc<Known>,
}

impl Device for GpuLane {
    fn stage(&mut self, bytes: usize) -> Result<&mut [u8], DeviceError> {
        let lane = self.lane.as_mut().ok_or_else(DeviceError::hangs)?;
        match lane.stage(bytes).map(|_| ()) {
            Ok(()) => Ok(lane.staged(bytes)),
            Err(error) => Err(noted(&self.known, &self.cuda, error)),
        }
    }

    fn run(&mut self, task: &DeviceTask, cancelled: &dyn Fn() -> bool) -> Result<(), DeviceError> {
        let lane = self.lane.as_mut().ok_or_else(DeviceError::hangs)?;
        match run(lane, task, cancelled) {
            Ok(true) => Ok(()),
            Ok(false) => {
                std::mem::forget(self.lane.take());
                forget(&self.known, &self.cuda);
                Err(DeviceError::hangs())
            }
            Err(error) => Err(noted(&self.known, &self.cuda, error)),
        }
    }

    fn answer(&self) -> DeviceAnswer<'_> {
        let answer = self.lane.as_ref().map(Lane::answer);
        answer.map_or_else(DeviceAnswer::default, |LaneAnswer { report, data }| DeviceAnswer { report, data })
    }
}

/// Runs a task; false if it was given up before it was done.
fn run(lane: &mut Lane, task: &DeviceTask, cancelled: &dyn Fn() -> bool) -> Result<bool, CudaError> {
    lane.begin(task)?;
    let is_done = wait_for(|| lane.is_done(), cancelled)?;
    if is_done {
        lane.finish()?;
    }
    Ok(is_done)
}

/// The GPU as [`OpenCuda`] knows it.
type Known = Mutex<Option<Arc<Cuda>>>;

/// Has the next lane find the GPU again.
fn forget(known: &Known, cuda: &Arc<Cuda>) {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if known.as_ref().is_some_and(|known| Arc::ptr_eq(known, cuda)) {
        *known = None;
    }
}

fn noted(known: &Known, cuda: &Arc<Cuda>, error: CudaError) -> DeviceError {
    forget(known, cuda);
    error.into()
}

/// Opens lanes of the first GPU. The kernels are compiled when the first lane is opened, and again after a failure:
/// the driver's context may be lost.
#[derive(Debug, Default)]
pub struct OpenCuda {
    known: Arc<Known>,
}

impl OpenCuda {
    /// Returns it if there are a driver, a GPU and NVRTC. Nothing is compiled.
    ///
    /// # Errors
    /// [`Unavailable`](DeviceError::Unavailable).
    pub fn find() -> Result<OpenCuda, DeviceError> {
        Cuda::look()?;
        Ok(OpenCuda::default())
    }

    fn cuda(&self) -> Result<Arc<Cuda>, DeviceError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cuda) = &*known {
            return Ok(Arc::clone(cuda));
        }
        Ok(Arc::clone(known.insert(Arc::new(Cuda::find()?))))
    }
}

impl OpenDevice for OpenCuda {
    fn name(&self) -> &str {
        NAME
    }

    fn limits(&self) -> DeviceLimits {
        DeviceLimits::of_format()
    }

    fn open(&self) -> Result<Box<dyn Device>, DeviceError> {
        let cuda = self.cuda()?;
        let lane = Some(cuda.lane()?);
        Ok(Box::new(GpuLane { lane, cuda, known: Arc::clone(&self.known) }))
    }
}
