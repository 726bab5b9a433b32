//! A host that can be taken away from one attempt, and that remembers the places that it gave to the attempt.

use crate::dropped::ValueHandles;
use crate::task::{OutputTable, TablePlace, TaskHost};
use situ_base::lock;
use situ_storage::{Error, Reader, Result, Writer};
use situ_table::Warming;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// See the module.
pub(crate) struct AttemptHost {
    pub(crate) inner: Arc<dyn TaskHost>,
    given_up: AtomicBool,
    places: Mutex<Vec<TablePlace>>,
}

impl AttemptHost {
    pub(crate) fn of(inner: &Arc<dyn TaskHost>) -> Arc<AttemptHost> {
        let (given_up, places) = (AtomicBool::new(false), Mutex::default());
        Arc::new(AttemptHost { inner: Arc::clone(inner), given_up, places })
    }

    /// The attempt can neither go on nor create files from here on.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    /// The places that the attempt has got.
    pub(crate) fn places(&self) -> Vec<TablePlace> {
        lock(&self.places).clone()
    }

    fn check(&self) -> Result<()> {
        match self.given_up.load(Ordering::Acquire) {
            true => Err(Error::Invalid("the task was given to another unit".to_owned())),
            false => Ok(()),
        }
    }
}

impl TaskHost for AttemptHost {
    fn reserve(&self, level: u32) -> Result<TablePlace> {
        self.check()?;
        let place = self.inner.reserve(level)?;
        lock(&self.places).push(place);
        Ok(place)
    }

    fn create(&self, level: u32, place: TablePlace) -> Result<(TablePlace, Box<dyn Writer>)> {
        self.check()?;
        let (created, writer) = self.inner.create(level, place)?;
        let mut places = lock(&self.places);
        places.retain(|reserved| *reserved != place);
        places.push(created);
        Ok((created, writer))
    }

    fn open(&self, place: TablePlace) -> Result<Arc<dyn Reader>> {
        self.inner.open(place)
    }

    fn warming(&self) -> Option<Arc<Warming>> {
        self.inner.warming()
    }

    fn value_handles(&self) -> Option<Arc<dyn ValueHandles>> {
        self.inner.value_handles()
    }

    fn pace(&self, bytes: u64) {
        self.inner.pace(bytes);
    }

    fn find(&self, table: &OutputTable) -> std::result::Result<(), String> {
        self.inner.find(table)
    }

    fn cancelled(&self) -> bool {
        self.given_up.load(Ordering::Acquire) || self.inner.cancelled()
    }
}
