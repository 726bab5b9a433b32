//! Tasks of clients: the [`Executor`], as a service of the daemon.

use super::service::{Caller, Service};
use crate::executor::{Executor, HostTasks};
use crate::message::Operation;
use crate::peer::Reply;
use crate::task_files::{LeasedFiles, TaskFiles};
use situ_device::lock;
use std::sync::{Arc, Mutex, Weak};

/// Runs tasks of the daemon's clients. A client that has files here finds its tables among them.
pub struct TaskService {
    executor: Arc<Executor>,
    /// The tasks of each connection that has asked about tasks.
    callers: Mutex<Vec<(Weak<Caller>, Arc<HostTasks>)>>,
}

impl TaskService {
    /// Runs tasks on this executor, which whoever made it closes.
    pub fn new(executor: Arc<Executor>) -> TaskService {
        TaskService { executor, callers: Mutex::default() }
    }

    fn tasks(&self, caller: &Arc<Caller>) -> Arc<HostTasks> {
        let is_it = |known: &Weak<Caller>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(caller));
        if let Some((_, tasks)) = lock(&self.callers).iter().find(|(known, _)| is_it(known)) {
            return Arc::clone(tasks);
        }
        let own =
            caller.files().ok().map(|attached| Arc::new(LeasedFiles::new(attached.files())) as Arc<dyn TaskFiles>);
        let tasks = Arc::new(self.executor.attach(caller.session(), own, caller.peer()));
        lock(&self.callers).push((Arc::downgrade(caller), Arc::clone(&tasks)));
        tasks
    }
}

impl Service for TaskService {
    fn operations(&self) -> &'static [Operation] {
        use Operation as O;
        &[O::RunTask, O::CancelTask, O::PollTasks, O::GetLoad, O::PlaceVolumes, O::TellMeasures]
    }

    fn request(&self, caller: &Arc<Caller>, operation: Operation, payload: Vec<u8>, reply: Reply) {
        let tasks = self.tasks(caller);
        match operation {
            // A shared directory may be slow. The client waits for the answer before it sends tasks.
            Operation::PlaceVolumes => caller.later(move || tasks.request(operation, &payload, reply)),
            _ => tasks.request(operation, &payload, reply),
        }
    }

    fn gone(&self, caller: &Arc<Caller>) {
        let is_it = |known: &Weak<Caller>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(caller));
        let gone: Vec<_> = lock(&self.callers).extract_if(.., |(known, _)| is_it(known)).collect();
        drop(gone);
        self.executor.sweep();
    }
}
