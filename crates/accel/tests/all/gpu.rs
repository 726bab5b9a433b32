//! A GPU gives the model's answers to the bit. Without one, the tests say by name that they are skipped.

use crate::model_equals_merge::prepare;
use crate::skipped::skipped;
use crate::tasks;
use situ_accel::{Answer, Cuda, CudaError, Lane, run_model};
use situ_compaction::testing::{MemoryHost, with_seeds};
use std::sync::Arc;

fn gpu(test: &str) -> Option<Arc<Cuda>> {
    match Cuda::find() {
        Ok(cuda) => Some(Arc::new(cuda)),
        Err(CudaError::Unavailable(why)) => {
            skipped(test, &why);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn answer(lane: &mut Lane, device: &situ_accel::DeviceTask, data: &[u8]) -> Answer {
    lane.stage(data.len()).unwrap().copy_from_slice(data);
    lane.begin(device).unwrap();
    lane.finish().unwrap().to_answer().unwrap()
}

#[test]
fn a_gpu_gives_the_models_answers() {
    let Some(cuda) = gpu("a_gpu_gives_the_models_answers") else { return };
    let lane = std::cell::RefCell::new(cuda.lane().unwrap());
    with_seeds(200, |rng| {
        let host = MemoryHost::new();
        let (device, data) = prepare(&tasks::random(rng, &host, 5000)).unwrap();
        let found = answer(&mut lane.borrow_mut(), &device, &data);
        assert!(found == run_model(&device, &data).unwrap());
        assert_eq!(found.check(), Ok(()));
    });
}

#[test]
fn tasks_in_flight_together_do_not_disturb_each_other() {
    let Some(cuda) = gpu("tasks_in_flight_together_do_not_disturb_each_other") else { return };
    let mut lanes: Vec<Lane> = (0..4).map(|_| cuda.lane().unwrap()).collect();
    with_seeds(1, |rng| {
        let host = MemoryHost::new();
        let tasks: Vec<_> = (0..4).map(|_| prepare(&tasks::random(rng, &host, 20_000)).unwrap()).collect();
        for _ in 0..10 {
            for (lane, (device, data)) in lanes.iter_mut().zip(&tasks) {
                lane.stage(data.len()).unwrap().copy_from_slice(data);
                lane.begin(device).unwrap();
            }
            for (lane, (device, data)) in lanes.iter_mut().zip(&tasks) {
                assert!(lane.finish().unwrap().to_answer().unwrap() == run_model(device, data).unwrap());
            }
        }
    });
}

/// Without a driver, asking for a GPU is an answer and no panic.
#[test]
fn without_a_gpu_the_answer_is_unavailable() {
    match Cuda::find() {
        Ok(_) => skipped("without_a_gpu_the_answer_is_unavailable", "there is a GPU"),
        Err(error) => assert!(matches!(error, CudaError::Unavailable(_)), "{error}"),
    }
}
