//! The circuit gives the answers of the model of all devices, byte for byte. Without Verilator the tests say by name
//! that they are skipped.

use crate::skipped::skipped;
use crate::tasks::{self, assert_same, memory};
use situ_compaction::testing::with_seeds;
use situ_fpga::missing;

fn run_tasks(test: &str, count: u64, entries: u64) {
    if let Some(why) = missing() {
        skipped(test, why);
        return;
    }
    with_seeds(count, |rng| {
        let (device, data) = tasks::random(rng, entries);
        assert_same(&device, &data, memory(rng));
    });
}

#[test]
fn small_random_tasks_give_the_models_answer() {
    run_tasks("small_random_tasks_give_the_models_answer", 300, 60);
}

#[test]
fn random_tasks_give_the_models_answer() {
    run_tasks("random_tasks_give_the_models_answer", 60, 800);
}
