//! The thread that stores records of the server with a cache on flash.

use super::memory::{NewRecord, OpenCache};
use crate::engine::EngineError;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// The thread that stores records: an event loop does not wait for a file system.
pub(super) struct Recorder {
    pub(super) records: mpsc::Sender<NewRecord>,
    thread: JoinHandle<()>,
}

impl Recorder {
    pub(super) fn start(shared: &Arc<OpenCache>) -> Result<Recorder, EngineError> {
        let (records, received) = mpsc::channel();
        let shared = Arc::clone(shared);
        let body = move || received.into_iter().for_each(|record| shared.put_record(record));
        let thread = std::thread::Builder::new().name("cache-records".to_owned()).spawn(body).map_err(no_thread)?;
        Ok(Recorder { records, thread })
    }

    /// Ends when all records that were sent are stored.
    pub(super) fn end(self) {
        drop(self.records);
        // A panic of the thread has been shown already.
        _ = self.thread.join();
    }
}

/// Makes the error for a thread that does not start.
pub(super) fn no_thread(error: std::io::Error) -> EngineError {
    EngineError::new(format!("cannot start a thread: {error}"))
}
