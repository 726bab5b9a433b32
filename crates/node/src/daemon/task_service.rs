//! Tasks of clients: the [`Executor`], as a service of the daemon.

use super::service::{Caller, Service};
use crate::error::CallError;
use crate::executor::{Executor, HostTasks};
use crate::message::Operation;
use crate::peer::Reply;
use crate::task_files::{LeasedFiles, TaskFiles};
use situ_base::lock;
use std::sync::{Arc, Mutex, Weak};

/// Runs tasks of the daemon's clients. A client that has files here finds its tables among them.
pub struct TaskService {
    executor: Arc<Executor>,
    /// The tasks of each connection that has asked about tasks.
    callers: Mutex<Vec<(Weak<Caller>, Arc<HostTasks>)>>,
}

impl TaskService {
    /// Runs tasks on this executor. The caller, which made the executor, closes it.
    pub fn new(executor: Arc<Executor>) -> TaskService {
        TaskService { executor, callers: Mutex::default() }
    }

    /// The tasks of a caller, which is attached if it is new.
    ///
    /// # Errors
    /// Its connection is lost.
    fn tasks(&self, caller: &Arc<Caller>) -> Result<Arc<HostTasks>, CallError> {
        let is_it = |known: &Weak<Caller>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(caller));
        let mut callers = lock(&self.callers);
        if let Some((_, tasks)) = callers.iter().find(|(known, _)| is_it(known)) {
            return Ok(Arc::clone(tasks));
        }
        // A connection is lost first, and then `gone` is called, which needs the lock. So a caller that is entered here
        // is taken out there. One that `gone` did not find is not entered any more: it would never be detached, and its
        // session would never end.
        if let Some(lost) = caller.peer().lost() {
            return Err(lost);
        }
        let own =
            caller.files().ok().map(|attached| Arc::new(LeasedFiles::new(attached.files())) as Arc<dyn TaskFiles>);
        let tasks = Arc::new(self.executor.attach(caller.session(), own, caller.peer()));
        callers.push((Arc::downgrade(caller), Arc::clone(&tasks)));
        Ok(tasks)
    }
}

impl Service for TaskService {
    fn operations(&self) -> &'static [Operation] {
        use Operation as O;
        &[O::RunTask, O::CancelTask, O::PollTasks, O::GetLoad, O::PlaceVolumes, O::TellMeasures]
    }

    fn request(&self, caller: &Arc<Caller>, operation: Operation, payload: Vec<u8>, reply: Reply) {
        let tasks = match self.tasks(caller) {
            Ok(tasks) => tasks,
            Err(lost) => return reply.fail(&lost),
        };
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
    }

    fn tick(&self) {
        self.executor.sweep();
    }
}

#[cfg(test)]
mod tests;
