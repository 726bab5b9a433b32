//! Devices, as their host sees them: memory for a task, a run, an answer.

use crate::abi::*;
use crate::answer::Answer;
use crate::model::run_model;
use crate::prepare::{NotPrepared, rules_of};
use crate::task::{DeviceTask, Malformed};
use situ_compaction::Task;
use situ_device::memory::resize;
use std::fmt;
#[cfg(any(feature = "cuda", feature = "opencl"))]
use std::{thread::sleep, time::Duration};

/// The limits of a device, all within those of `docs/formats/accelerator.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Ways that it merges at once, two or more. More runs take several passes.
    pub ways: u32,
    /// Live snapshots.
    pub snapshots: u32,
    /// Bytes of a user key.
    pub key_bytes: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// It reads and writes LZ4.
    pub lz4: bool,
    /// It knows ranges of keys, and spans of older data.
    pub ranges: bool,
    /// Bytes of input blocks in a task, over all passes.
    pub data_bytes: u64,
}

impl DeviceLimits {
    /// Returns the limits of the format itself.
    pub fn of_format() -> DeviceLimits {
        DeviceLimits {
            ways: WAYS_MAX,
            snapshots: SNAPSHOTS_MAX,
            key_bytes: KEY_BYTES_MAX,
            value_bytes: VALUE_BYTES_MAX,
            lz4: true,
            ranges: true,
            data_bytes: DATA_BYTES_MAX,
        }
    }

    /// Checks that a device with these limits can have a task. Opens its tables, and reads no data.
    ///
    /// # Errors
    /// The task is unsuited, or a table cannot be opened.
    pub fn admit(&self, task: &Task) -> Result<(), NotPrepared> {
        let rules = rules_of(task)?;
        let unsuited = |holds: bool, why: String| if holds { Err(NotPrepared::Unsuited(why)) } else { Ok(()) };
        let (key, value) = (rules.key_bytes_max, rules.value_bytes_max);
        unsuited(
            key > self.key_bytes || value > self.value_bytes,
            format!("keys of {key} and values of {value} bytes"),
        )?;
        let snapshots = rules.snapshots.len();
        unsuited(snapshots > self.snapshots as usize, format!("{snapshots} snapshots"))?;
        // Inputs say in their properties how they are compressed.
        let mut is_lz4 = rules.lz4;
        for input in task.tables() {
            is_lz4 |= input.open()?.properties().compression != situ_table::format::COMPRESSION_NONE;
        }
        unsuited(is_lz4 && !self.lz4, "compression".to_owned())?;
        let is_part = rules.range.lower.is_some() || rules.range.upper.is_some();
        let below_some = !rules.below.is_empty();
        unsuited((is_part || below_some) && !self.ranges, "a part of the keys, or older data below".to_owned())?;
        let bytes = task.input_bytes();
        unsuited(bytes > self.data_bytes, format!("{bytes} bytes of input"))?;
        unsuited(rules.block_bytes > BLOCK_BYTES_MAX, format!("blocks of {} bytes", rules.block_bytes))
    }
}

/// The reason why a device gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// It cannot be used here.
    Unavailable(String),
    /// There is no memory of this length, on the device or for it.
    NoMemory(usize),
    /// A call failed. The device may be lost: the program opens it again before the next task.
    Failed(String),
    /// The bytes that came back are no answer.
    Malformed(Malformed),
}

#[cfg(any(feature = "cuda", feature = "opencl"))]
impl DeviceError {
    /// Returns the error of a device that was not waited for.
    pub(crate) fn hangs() -> DeviceError {
        DeviceError::Failed("it has not finished a task that was given up".to_owned())
    }
}

/// Pauses between questions whether a task is done. A task takes milliseconds.
#[cfg(any(feature = "cuda", feature = "opencl"))]
const PAUSES: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));

/// Waits for a device, asleep. Returns false if `cancelled` answered true first.
///
/// # Errors
/// Those of `is_done`.
#[cfg(any(feature = "cuda", feature = "opencl"))]
pub(crate) fn wait_for<E>(
    mut is_done: impl FnMut() -> Result<bool, E>,
    cancelled: &dyn Fn() -> bool,
) -> Result<bool, E> {
    let (mut pause, longest) = PAUSES;
    while !is_done()? {
        if cancelled() {
            return Ok(false);
        }
        sleep(pause);
        pause = longest.min(pause * 2);
    }
    Ok(true)
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::Unavailable(why) => write!(f, "the device cannot be used: {why}"),
            DeviceError::NoMemory(bytes) => write!(f, "no memory of {bytes} bytes for the device"),
            DeviceError::Failed(why) => write!(f, "the device fails: {why}"),
            DeviceError::Malformed(malformed) => write!(f, "the device's answer is none: {malformed}"),
        }
    }
}

impl std::error::Error for DeviceError {}

/// The two parts of an answer, in memory of the device's host.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeviceAnswer<'a> {
    /// The answer without its blocks: [`Answer::decode_report`].
    pub report: &'a [u8],
    /// The output blocks.
    pub data: &'a [u8],
}

/// A device, or a lane of one: it has one task at a time. Its memory is kept from task to task.
pub trait Device: Send {
    /// Returns memory for the input blocks of the next task.
    ///
    /// # Errors
    /// The device's.
    fn stage(&mut self, bytes: usize) -> Result<&mut [u8], DeviceError>;

    /// Runs a task on the blocks that were staged last, and waits for its answer. The wait does not take a processor.
    /// It ends with an error soon after `cancelled` answers true.
    /// The same blocks may be run again, with a task that differs in what is written:
    /// [`emit_from`](crate::DeviceRules::emit_from) and [`emit_bytes_max`](crate::DeviceRules::emit_bytes_max).
    ///
    /// # Errors
    /// The device's. A task that the device refuses has an answer with a status.
    fn run(&mut self, task: &DeviceTask, cancelled: &dyn Fn() -> bool) -> Result<(), DeviceError>;

    /// Returns the answer to the task that was run last.
    fn answer(&self) -> DeviceAnswer<'_>;
}

/// Opens a device, or another lane of it.
pub trait OpenDevice: Send + Sync {
    /// Returns the device's name, for people: its kind and which one.
    fn name(&self) -> &str;

    /// Returns the device's limits.
    fn limits(&self) -> DeviceLimits;

    /// Opens it.
    ///
    /// # Errors
    /// The device's.
    fn open(&self) -> Result<Box<dyn Device>, DeviceError>;
}

/// The model of all devices, as a device: slow, and always there.
#[derive(Debug, Default)]
pub struct ModelDevice {
    staged: Vec<u8>,
    report: Vec<u8>,
    data: Vec<u8>,
}

impl ModelDevice {
    /// Returns memory as [`stage`](Device::stage) does, with what was staged before still in it.
    #[doc(hidden)]
    pub fn stage_again(&mut self, bytes: usize) -> Result<&mut [u8], DeviceError> {
        match resize(&mut self.staged, bytes) {
            true => Ok(&mut self.staged),
            false => Err(DeviceError::NoMemory(bytes)),
        }
    }

    /// Changes what was staged, for tests of faults.
    #[doc(hidden)]
    pub fn flip_staged(&mut self, flip: impl FnOnce(&mut [u8])) {
        flip(&mut self.staged);
    }
}

impl Device for ModelDevice {
    fn stage(&mut self, bytes: usize) -> Result<&mut [u8], DeviceError> {
        self.staged.clear();
        self.stage_again(bytes)
    }

    fn run(&mut self, task: &DeviceTask, _cancelled: &dyn Fn() -> bool) -> Result<(), DeviceError> {
        // As bytes, so that what goes to a device is what runs.
        let task = DeviceTask::decode(&task.encode()).map_err(DeviceError::Malformed)?;
        let Answer { header, reports, hashes, keys, data } =
            run_model(&task, &self.staged).map_err(|error| DeviceError::Failed(error.to_string()))?;
        self.report = Answer { header, reports, hashes, keys, data: Vec::new() }.encode_report();
        self.data = data;
        Ok(())
    }

    fn answer(&self) -> DeviceAnswer<'_> {
        DeviceAnswer { report: &self.report, data: &self.data }
    }
}

/// Opens the [model](ModelDevice).
#[derive(Debug, Clone, Copy)]
pub struct OpenModel {
    /// The limits of the device that it stands for.
    pub limits: DeviceLimits,
}

impl Default for OpenModel {
    fn default() -> OpenModel {
        OpenModel { limits: DeviceLimits::of_format() }
    }
}

impl OpenDevice for OpenModel {
    fn name(&self) -> &str {
        "model"
    }

    fn limits(&self) -> DeviceLimits {
        self.limits
    }

    fn open(&self) -> Result<Box<dyn Device>, DeviceError> {
        Ok(Box::new(ModelDevice::default()))
    }
}
