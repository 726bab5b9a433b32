//! The make of a controller.

use std::ops::Range;
use std::time::Duration;

/// The make of a simulated NVMe controller. The default is a drive with all that the driver can use.
///
/// ```
/// use situ_sim::NvmeConfig;
///
/// let small = NvmeConfig { entries_max: 2, transfer_shift: 1, queues_max: 1, ..NvmeConfig::default() };
/// assert_eq!(small.transfer_bytes_max(), Some(8192));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct NvmeConfig {
    /// The function's address.
    pub name: String,
    /// The model number.
    pub model: String,
    /// The serial number.
    pub serial: String,
    /// The most entries of a queue: 2 to 65,536.
    pub entries_max: u32,
    /// The distance of doorbells is `4 << doorbell_stride` bytes.
    pub doorbell_stride: u8,
    /// The time from enabling to readiness, and from disabling to its end.
    pub ready_after: Duration,
    /// The longest time to readiness that the controller announces, in units of 500 ms.
    pub ready_timeout: u8,
    /// The longest transfer is `4096 << transfer_shift` bytes; without a limit if it is 0.
    pub transfer_shift: u8,
    /// The number of I/O queues of each kind that are granted.
    pub queues_max: u16,
    /// The number of interrupts.
    pub vectors: u16,
    /// The controller takes doorbells in memory.
    pub has_shadow_doorbells: bool,
    /// The controller takes scatter-gather lists.
    pub has_lists: bool,
    /// The controller compares.
    pub has_compare: bool,
    /// The controller writes zeroes without data.
    pub has_write_zeroes: bool,
    /// A stopped access to memory is reported as success, as QEMU's controller does. The data are zeros then.
    pub hides_dma_faults: bool,
    /// The addresses at which memory can be mapped.
    pub addresses: Range<u64>,
}

impl Default for NvmeConfig {
    fn default() -> NvmeConfig {
        NvmeConfig {
            name: "0000:01:00.0".to_owned(),
            model: "Situ simulated drive".to_owned(),
            serial: "SIM0001".to_owned(),
            entries_max: 1024,
            doorbell_stride: 0,
            ready_after: Duration::from_millis(1),
            ready_timeout: 2,
            transfer_shift: 5,
            queues_max: 16,
            vectors: 17,
            has_shadow_doorbells: true,
            has_lists: true,
            has_compare: true,
            has_write_zeroes: true,
            hides_dma_faults: false,
            addresses: 0x1_0000..1 << 40,
        }
    }
}

impl NvmeConfig {
    /// Returns the longest transfer, if there is a limit.
    pub fn transfer_bytes_max(&self) -> Option<u64> {
        (self.transfer_shift > 0).then(|| 4096 << self.transfer_shift)
    }

    /// Returns the distance of doorbells, in bytes.
    pub(super) fn stride(&self) -> u32 {
        4 << self.doorbell_stride
    }

    /// Returns the place of a queue's doorbell among the doorbells.
    pub(super) fn doorbell(&self, queue: u16, is_completion: bool) -> u64 {
        (2 * u64::from(queue) + u64::from(is_completion)) * u64::from(self.stride())
    }

    /// Refuses a make that no controller has.
    pub(super) fn check(&self) {
        assert!((2..=1 << 16).contains(&self.entries_max), "{} entries", self.entries_max);
        assert!(self.doorbell_stride <= 15 && self.transfer_shift < 20, "{self:?}");
        assert!(self.queues_max > 0 && self.queues_max < u16::MAX && self.vectors > 0, "{self:?}");
    }
}
