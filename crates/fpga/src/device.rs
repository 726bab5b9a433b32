//! The simulated unit as a device of a store's compactions: slow, and cycle by cycle what a chip would do.

use crate::host::{FlatAnswer, NotRun, Simulated, UNIT_KEY_BYTES_MAX};
use crate::model::SNAPSHOTS;
use situ_accel::abi::VALUE_BYTES_MAX;
use situ_accel::{Device, DeviceAnswer, DeviceError, DeviceLimits, DeviceTask, OpenDevice};

/// The most bytes of input: a megabyte takes seconds.
const DATA_BYTES_MAX: u64 = 4 << 20;

/// Opens the simulated unit.
#[derive(Debug, Clone, Copy)]
pub struct OpenSimulated {
    /// The unit and its memory.
    pub unit: Simulated,
}

impl OpenDevice for OpenSimulated {
    fn name(&self) -> &str {
        "fpga-simulated"
    }

    fn limits(&self) -> DeviceLimits {
        DeviceLimits {
            ways: self.unit.variant.ways(),
            snapshots: SNAPSHOTS as u32,
            key_bytes: UNIT_KEY_BYTES_MAX,
            value_bytes: VALUE_BYTES_MAX,
            lz4: false,
            ranges: false,
            data_bytes: DATA_BYTES_MAX,
        }
    }

    fn open(&self) -> Result<Box<dyn Device>, DeviceError> {
        match crate::missing() {
            Some(why) => Err(DeviceError::Unavailable(why.to_owned())),
            None => Ok(Box::new(SimulatedDevice { unit: self.unit, staged: Vec::new(), answer: None })),
        }
    }
}

/// The unit with the task that it ran last.
#[derive(Debug)]
struct SimulatedDevice {
    unit: Simulated,
    staged: Vec<u8>,
    answer: Option<FlatAnswer>,
}

impl Device for SimulatedDevice {
    fn stage(&mut self, bytes: usize) -> Result<&mut [u8], DeviceError> {
        self.staged.clear();
        self.staged.try_reserve_exact(bytes).map_err(|_| DeviceError::NoMemory(bytes))?;
        self.staged.resize(bytes, 0);
        Ok(&mut self.staged)
    }

    fn run(&mut self, task: &DeviceTask, _cancelled: &dyn Fn() -> bool) -> Result<(), DeviceError> {
        self.answer = None;
        let ran = self.unit.run(&task.encode(), &self.staged);
        self.answer = Some(ran.map_err(|error| match error {
            NotRun::Malformed(malformed) => DeviceError::Malformed(malformed),
            other => DeviceError::Failed(other.to_string()),
        })?);
        Ok(())
    }

    fn answer(&self) -> DeviceAnswer<'_> {
        let answer = self.answer.as_ref();
        answer.map_or_else(DeviceAnswer::default, |answer| DeviceAnswer { report: &answer.report, data: &answer.data })
    }
}
