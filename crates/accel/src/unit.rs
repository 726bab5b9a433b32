//! A device as a unit of a store's compactions.
//!
//! 1. An offer looks at the device's limits. What is beyond them goes to the processor untried.
//! 2. A task takes a free *lane*, or opens one. Lanes keep their memory. Several tasks in flight overlap transfers,
//!    computing and writing.
//! 3. A lane whose device fails is given up, and the next task opens another one. The scheduler does the task again,
//!    and takes the unit out of service if it keeps failing.
//!
//! **Threads**: one for each task in flight ([`TaskThreads`]). The lock is held for moving lanes only.

use crate::device::{Device, DeviceLimits, OpenDevice};
use crate::prepare::NotPrepared;
use crate::run::run_on_device;
use situ_base::{Env, lock};
use situ_compaction::{Result, RunReport, Task, TaskError, TaskHost, TaskOutput};
use situ_offload::{Assignment, Finished, Load, Offer, Ran, Refused, TaskRunner, TaskThreads, Unit};
use std::sync::{Arc, Mutex};

/// Runs tasks on a device. See the [module](self).
pub struct DeviceUnit {
    name: String,
    limits: DeviceLimits,
    threads: TaskThreads,
}

impl DeviceUnit {
    /// Makes a unit with at most `lanes` tasks at a time (at least one). The device is opened by the first task.
    pub fn new(env: Env, device: Arc<dyn OpenDevice>, lanes: usize) -> DeviceUnit {
        let (name, limits) = (device.name().to_owned(), device.limits());
        let lanes_of = DeviceLanes::new(env.clone(), device);
        let run = move |assignment: &Assignment| {
            let (result, report) = lanes_of.run(&assignment.task, &*assignment.host);
            (result, Ran::from(report))
        };
        DeviceUnit { name, limits, threads: TaskThreads::new(env, lanes, Box::new(run)) }
    }
}

/// A device with the lanes of it that are open, for any number of threads that run tasks.
pub struct DeviceLanes {
    env: Env,
    device: Arc<dyn OpenDevice>,
    free: Mutex<Vec<Box<dyn Device>>>,
}

impl DeviceLanes {
    /// Makes it without an open lane.
    pub fn new(env: Env, device: Arc<dyn OpenDevice>) -> DeviceLanes {
        DeviceLanes { env, device, free: Mutex::default() }
    }
}

impl TaskRunner for DeviceLanes {
    fn admit(&self, task: &Task, host: &dyn TaskHost) -> std::result::Result<(), String> {
        admit_host(host)?;
        self.device.limits().admit(task).map_err(|error| error.to_string())
    }

    fn run(&self, task: &Task, host: &dyn TaskHost) -> (Result<TaskOutput>, RunReport) {
        let free = lock(&self.free).pop();
        let (name, ways) = (self.device.name(), self.device.limits().ways);
        let mut lane = match free.map_or_else(|| self.device.open(), Ok) {
            Ok(lane) => lane,
            Err(error) => {
                let fault = TaskError::Unit { unit: name.to_owned(), reason: error.to_string() };
                return (Err(fault), RunReport::default());
            }
        };
        let (result, report) = run_on_device(&mut *lane, name, ways, task, host, &self.env.clock);
        // A task that was given up may still be on the device.
        if !matches!(result, Err(TaskError::Unit { .. } | TaskError::Panicked(_) | TaskError::Cancelled)) {
            lock(&self.free).push(lane);
        }
        (result, report)
    }
}

/// A device does not say what is dropped of a value log.
fn admit_host(host: &dyn TaskHost) -> std::result::Result<(), String> {
    match host.value_handles() {
        Some(_) => Err("the store has a value log".to_owned()),
        None => Ok(()),
    }
}

impl Unit for DeviceUnit {
    fn name(&self) -> &str {
        &self.name
    }

    fn offer(&self, task: &Task) -> Offer {
        match self.limits.admit(task) {
            Ok(()) => self.load().offer(task.input_bytes()),
            Err(NotPrepared::Unsuited(why)) => Offer::Unsuited(why),
            // The processor finds the same, and it is its error that counts.
            Err(NotPrepared::Table(error)) => Offer::Unsuited(error.to_string()),
        }
    }

    fn load(&self) -> Load {
        self.threads.load()
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        admit_host(&*assignment.host).map_err(Refused::Unsuited)?;
        self.threads.submit(assignment)
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        self.threads.poll(finished);
    }

    fn close(&self) {
        self.threads.close();
    }
}
