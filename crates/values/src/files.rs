//! Segments that are open for reads: a bounded number, the least recently used one goes first.

use crate::Result;
use situ_base::lock;
use situ_storage::{FileName, Reader, Volume};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

pub(crate) struct Files {
    most: usize,
    state: Mutex<Opened>,
}

#[derive(Default)]
struct Opened {
    /// Grows with each use.
    now: u64,
    files: BTreeMap<u64, (Arc<dyn Reader>, u64)>,
}

impl Files {
    pub(crate) fn new(most: usize) -> Files {
        Files { most: most.max(1), state: Mutex::default() }
    }

    /// Returns the segment's file, if it is open.
    pub(crate) fn opened(&self, number: u64) -> Option<Arc<dyn Reader>> {
        let mut state = lock(&self.state);
        state.now += 1;
        let now = state.now;
        let (file, used) = state.files.get_mut(&number)?;
        *used = now;
        Some(Arc::clone(file))
    }

    /// Returns the segment's file, which is opened if it is not open.
    pub(crate) fn open(&self, volume: &dyn Volume, number: u64) -> Result<Arc<dyn Reader>> {
        if let Some(file) = self.opened(number) {
            return Ok(file);
        }
        let file = volume.open(FileName::Values(number))?;
        // Dropped without the lock: closing a file may block.
        let _closed = self.put(number, &file);
        Ok(file)
    }

    fn put(&self, number: u64, file: &Arc<dyn Reader>) -> Option<Arc<dyn Reader>> {
        let mut state = lock(&self.state);
        let now = state.now;
        let before = state.files.insert(number, (Arc::clone(file), now)).map(|(file, _)| file);
        if state.files.len() <= self.most {
            return before;
        }
        let oldest = state.files.iter().min_by_key(|(_, (_, used))| *used).map(|(number, _)| *number);
        oldest.and_then(|number| state.files.remove(&number)).map(|(file, _)| file)
    }

    pub(crate) fn forget(&self, number: u64) {
        let _closed = lock(&self.state).files.remove(&number);
    }
}
