//! Claims about the whole volume, on a simulated device.

use super::*;
use situ_device::Buffer;
use situ_sim::{Fault, FaultPlan, Operation, Rule, SimDevice, SimExecutor, for_each_seed};
use situ_storage::Error;

mod behaviour;
mod checkpoints;
mod crash;
mod damage;
mod guests;
mod log_writes;
mod model;
mod page;
mod submitted;

const ID: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

fn small() -> FormatOptions {
    FormatOptions {
        log_bytes: Some(40 * PAGE),
        journal_half_bytes: Some(4 * PAGE),
        id: Some(ID),
        ..FormatOptions::default()
    }
}

fn open(env: &Env, device: &SimDevice) -> Result<RawVolume> {
    RawVolume::open(device.reached(), env.clone(), RawOptions { cache_bytes: 1 << 20 })
}

fn format(env: &Env, device: &SimDevice, options: &FormatOptions) {
    RawVolume::format(device.reached(), env.clone(), options).unwrap();
}

/// A formatted device of so many pages, in a simulated machine.
fn on_a_disk<T: Send>(pages: u64, seed: u64, body: impl FnOnce(&Env, &SimDevice) -> T + Send) -> T {
    let sim = SimExecutor::new(seed);
    let env = sim.env();
    let device = SimDevice::new(&env, pages * PAGE, FaultPlan::none(), seed);
    sim.run(|| {
        format(&env, &device, &small());
        body(&env, &device)
    })
}

fn write(volume: &RawVolume, name: FileName, bytes: &[u8]) -> Result<()> {
    let mut writer = volume.create(name, bytes.len() as u64)?;
    writer.append(bytes)?;
    writer.finish()
}

fn read(volume: &RawVolume, name: FileName) -> Result<Vec<u8>> {
    let reader = volume.open(name)?;
    let mut bytes = vec![0; reader.bytes() as usize];
    reader.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Bytes that tell their place and file.
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u64 / 7).wrapping_mul(seed | 1).wrapping_add(at as u64) as u8).collect()
}

/// Every page is somebody's or free, and no more is taken than the files need.
fn check_room(volume: &RawVolume) {
    let report = volume.report();
    let state = volume.shared.lock();
    let pages = |area: &Extent| state.catalogue.extents_in(area).map(|extent| extent.pages).sum::<u64>() * PAGE;
    assert_eq!(report.log.used_bytes, pages(&state.layout.log), "{report:?}");
    assert_eq!(report.top.used_bytes, pages(&state.layout.top) + report.checkpoint_bytes, "{report:?}");
}
