//! Every OpenCL device gives the model's answers to the bit. Without one, the tests say by name that they are skipped.
//!
//! The kernels are compiled by the device's driver. PoCL takes about a minute the first time, and keeps the result.

use crate::model_equals_merge::prepare;
use crate::skipped::skipped;
use crate::tasks;
use crate::unit::a_store_runs_on;
use situ_accel::{Answer, Device, DeviceError, DeviceTask, OpenClDevice, OpenDevice, run_model};
use situ_compaction::testing::{MemoryHost, with_seeds};
use situ_table::Compression;
use std::sync::Arc;

/// Returns the devices that can be used, and says why there are none.
fn devices(test: &str) -> Vec<OpenClDevice> {
    let found = match OpenClDevice::find_all() {
        Ok(found) => found,
        Err(DeviceError::Unavailable(why)) => {
            skipped(test, &why);
            return Vec::new();
        }
        Err(error) => panic!("{error}"),
    };
    let usable = |device: &OpenClDevice| match device.check() {
        Ok(()) => true,
        Err(why) => {
            skipped(test, &format!("{}: {why}", device.name()));
            false
        }
    };
    found.into_iter().filter(usable).collect()
}

fn answer(lane: &mut dyn Device, task: &DeviceTask, data: &[u8]) -> Answer {
    lane.stage(data.len()).unwrap().copy_from_slice(data);
    lane.run(task, &|| false).unwrap();
    let answer = lane.answer();
    Answer::decode(answer.report, answer.data.to_vec()).unwrap()
}

/// The tasks of a test: 200, or what `SITU_ACCEL_TASKS` says.
fn count() -> u64 {
    std::env::var("SITU_ACCEL_TASKS").map_or(200, |count| count.parse().unwrap())
}

#[test]
fn random_tasks_give_the_models_answers() {
    for device in devices("opencl::random_tasks_give_the_models_answers") {
        let mut lane = device.open().unwrap();
        with_seeds(count(), |rng| {
            let host = MemoryHost::new();
            let (mut task, data) = prepare(&tasks::random(rng, &host, 800)).unwrap();
            let whole = run_model(&task, &data).unwrap();
            let found = answer(&mut *lane, &task, &data);
            assert!(found == whole, "{device:?}: another answer");
            assert_eq!(found.check(), Ok(()));
            // From some entry on, up to some length.
            task.rules.emit_from = rng.below(whole.header.entries_kept + 2);
            task.rules.emit_bytes_max = 1 + rng.below(whole.data.len() as u64 + 1);
            let part = run_model(&task, &data).unwrap();
            assert!(answer(&mut *lane, &task, &data) == part, "{device:?}: another part");
        });
    }
}

#[test]
fn damage_gets_the_models_status() {
    for device in devices("opencl::damage_gets_the_models_status") {
        let mut lane = device.open().unwrap();
        with_seeds(20, |rng| {
            let host = MemoryHost::new();
            let (task, mut data) = prepare(&tasks::random(rng, &host, 300)).unwrap();
            if data.is_empty() {
                return;
            }
            let at = rng.index(data.len());
            data[at] ^= 1 << rng.below(8);
            let (found, wanted) = (answer(&mut *lane, &task, &data), run_model(&task, &data).unwrap());
            // The detail is the first fault that a thread saw.
            assert_eq!(found.header.status, wanted.header.status, "{device:?}");
            assert!(wanted.header.status != 0 || found == wanted, "{device:?}");
        });
    }
}

#[test]
fn a_store_runs_on_an_opencl_device() {
    for device in devices("opencl::a_store_runs_on_an_opencl_device") {
        // PoCL compiles a kernel when it is first launched. A task that waits for that would be late.
        with_seeds(1, |rng| {
            let (task, data) = prepare(&tasks::random(rng, &MemoryHost::new(), 800)).unwrap();
            answer(&mut *device.open().unwrap(), &task, &data);
        });
        let report = a_store_runs_on(Arc::new(device), Compression::Lz4, 10_000);
        assert!(report.succeeded > 3 && report.checked > 1, "{report:?}");
    }
}
