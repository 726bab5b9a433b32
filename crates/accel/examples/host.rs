//! Measures the host's side of tasks on a device: the processor's time for everything but the device's own work.
//!
//! `cargo run --release -p situ-accel --example host -- 100/none/64,100/lz4/64`: bytes of values, compression, MiB of
//! input. The device is a replay: the model gives each answer once, and later runs get it out of memory at once.
//! Figures go to standard output as lines of JSON.

#[path = "accel/bed.rs"]
mod bed;

use bed::{Case, Outcome, Sink, case_of, millis, thread_time};
use situ_accel::{Device, DeviceAnswer, DeviceError, DeviceTask, ModelDevice, run_on_device};
use situ_base::Env;
use situ_compaction::{RunReport, run};
use std::collections::BTreeMap;
use std::sync::Arc;

const ROUNDS: usize = 8;

/// An answer in memory: its report and its blocks.
type Kept = (Vec<u8>, Vec<u8>);

/// A device that knows all answers.
#[derive(Default)]
struct Replay {
    model: ModelDevice,
    answers: BTreeMap<u64, Kept>,
    last: u64,
}

impl Device for Replay {
    fn stage(&mut self, bytes: usize) -> Result<&mut [u8], DeviceError> {
        self.model.stage_again(bytes)
    }

    fn run(&mut self, task: &DeviceTask, cancelled: &dyn Fn() -> bool) -> Result<(), DeviceError> {
        self.last = task.rules.emit_from;
        if !self.answers.contains_key(&self.last) {
            self.model.run(task, cancelled)?;
            let answer = self.model.answer();
            self.answers.insert(self.last, (answer.report.to_vec(), answer.data.to_vec()));
        }
        Ok(())
    }

    fn answer(&self) -> DeviceAnswer<'_> {
        let answer = self.answers.get(&self.last);
        answer.map_or_else(DeviceAnswer::default, |(report, data)| DeviceAnswer { report, data })
    }
}

/// The least of several rounds, in milliseconds.
fn least(mut round: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let mut least = f64::MAX;
    for _ in 0..ROUNDS {
        let began = thread_time();
        round()?;
        least = least.min(millis(thread_time() - began));
    }
    Ok(least)
}

fn main() -> Outcome<()> {
    let cases = std::env::args().nth(1).ok_or("name cases, such as 100/none/64")?;
    let env = Env::system();
    for case in cases.split(',') {
        let (Case { value_bytes, codec, mebibytes }, mut task, entries) = case_of(case)?;
        task.rules.output.target_file_bytes = 64 << 20;
        let host = Sink { spare: Arc::default(), drops: false };
        let core_ms = least(|| run(&task, &host).map(drop).map_err(|error| error.to_string().into()))?;
        let mut replay = Replay::default();
        let mut on_device = || -> (Outcome<usize>, RunReport) {
            let (result, report) = run_on_device(&mut replay, "replay", 16, &task, &host, &env.clock);
            (result.map(|output| output.tables.len()).map_err(|error| error.to_string().into()), report)
        };
        // The model's runs do not count.
        let files = on_device().0?;
        let mut stages = RunReport::default().stages;
        let host_ms = least(|| {
            let (result, report) = on_device();
            stages = report.stages;
            result.map(drop)
        })?;
        let (read_ms, write_ms) = (millis(stages.read.busy), millis(stages.write.busy));
        println!(
            "{{\"what\":\"host\",\"value_bytes\":{value_bytes},\"codec\":\"{codec}\",\"mib\":{mebibytes},\"entries\":{entries},\"files\":{files},\"core_ms\":{core_ms:.2},\
             \"host_ms\":{host_ms:.2},\"share\":{:.3},\"read_ms\":{read_ms:.2},\"write_ms\":{write_ms:.2}}}",
            host_ms / core_ms
        );
    }
    Ok(())
}
