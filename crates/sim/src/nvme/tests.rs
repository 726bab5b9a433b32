use crate::{FaultPlan, NotReady, NvmeCommand, NvmeConfig, NvmeFault, NvmePlan, NvmeRule, SimDevice, SimExecutor};
use host::{GOOD, Host, PAGE, PAGES, Words, command, descriptor, flush, in_world, read, ready, ready_as, sound, write};
use situ_base::bytes::{u16_at, u32_at, u64_at};
use situ_device::{Device, Function};
use std::sync::Arc;
use std::time::Duration;

mod admin;
mod data;
mod failures;
mod host;
mod rings;

const MS: Duration = Duration::from_millis(1);
/// The bit of a status that says that trying again does not help.
const FINAL: u16 = 1 << 14;
