//! Notes of operations, in the trace of a disk and in that of the thread's machine.

use super::current_thread;
use crate::fault::Operation;
use crate::trace::{Entry, Trace};
use situ_base::Env;
use situ_storage::FileName;
use std::ops::Range;
use std::sync::Arc;

impl Trace {
    /// Records an operation of the calling thread, here and in its executor's trace.
    pub(crate) fn note(
        &self,
        env: &Env,
        operation: Operation,
        file: Option<FileName>,
        place: &Range<u64>,
        content: u64,
        failure: Option<String>,
    ) {
        let current = current_thread();
        let thread = match &current {
            Some((name, _)) => Arc::clone(name),
            None => std::thread::current().name().unwrap_or("unnamed").into(),
        };
        let (at, offset, bytes) = (env.clock.now(), place.start, place.end - place.start);
        let entry = Entry { at, thread, operation, file, offset, bytes, content, failure };
        if let Some((_, world)) = current {
            world.record(entry.clone());
        }
        self.record(entry);
    }
}
