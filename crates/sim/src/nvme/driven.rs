//! Simulated devices behind the driver for NVMe drives, for tests of what stands on devices.

use super::{NvmeConfig, NvmeModel, NvmePlan};
use crate::{Rng, SimDevice};
use situ_base::lock;
use situ_device::{Device, NvmeController, NvmeDrive};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// One of this number of devices is reached by the driver.
const ONE_IN: u64 = 4;

/// The devices that are reached by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    None,
    Some,
    All,
}

fn share() -> Share {
    static SHARE: OnceLock<Share> = OnceLock::new();
    *SHARE.get_or_init(|| match std::env::var("SITU_SIM_NVME").as_deref() {
        Ok("all") => Share::All,
        Ok("none") => Share::None,
        Ok("some") | Err(_) => Share::Some,
        Ok(other) => panic!("SITU_SIM_NVME is {other}; it is all, some or none"),
    })
}

impl SimDevice {
    /// Returns the device as a store reaches it: by itself, or by the driver over an NVMe controller in software.
    ///
    /// The device's seed decides, and the make of the controller, too. One in four goes by the driver. With the
    /// variable `SITU_SIM_NVME`, `all` do, or `none`.
    ///
    /// # Panics
    /// The controller does not start.
    pub fn reached(&self) -> Arc<dyn Device> {
        let mut rng = Rng::new(self.seed());
        let is_driven = match share() {
            Share::None => false,
            Share::Some => rng.below(ONE_IN) == 0,
            Share::All => true,
        };
        if is_driven { self.driven(&mut rng) } else { Arc::new(self.clone()) }
    }

    /// Two users of the device share its controller, as in a process.
    fn driven(&self, rng: &mut Rng) -> Arc<dyn Device> {
        let known = lock(self.controller()).upgrade();
        let controller = known.unwrap_or_else(|| {
            let controller = self.started(rng);
            *lock(self.controller()) = Arc::downgrade(&controller);
            controller
        });
        Arc::new(NvmeDrive::open(controller, 1).expect("the controller has one namespace"))
    }

    fn started(&self, rng: &mut Rng) -> Arc<NvmeController> {
        let env = self.env();
        let config = NvmeConfig {
            doorbell_stride: rng.below(3) as u8,
            // The driver's longest transfer is that of the device.
            transfer_shift: 0,
            queues_max: 64,
            vectors: 65,
            ready_after: Duration::ZERO,
            has_shadow_doorbells: rng.below(2) == 0,
            has_lists: rng.below(2) == 0,
            has_write_zeroes: rng.below(2) == 0,
            // With few addresses, each buffer is mapped for its command.
            addresses: 0x1_0000..1 << if rng.below(2) == 0 { 36 } else { 40 },
            ..NvmeConfig::default()
        };
        let model = NvmeModel::new(&env, config, vec![Arc::new(self.clone())], NvmePlan::none(), rng.next_u64());
        NvmeController::start(Arc::new(model)).expect("a controller in software starts")
    }
}
