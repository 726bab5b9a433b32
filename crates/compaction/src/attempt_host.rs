//! A host for one attempt: the attempt can be given up, and the host knows the places that the attempt has got.

use crate::dropped::ValueHandles;
use crate::task::{OutputTable, TablePlace, TaskHost};
use situ_base::lock;
use situ_storage::{Error, Reader, Result, Writer};
use situ_table::Warming;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The host of one attempt to run a task. It passes calls on to the host of the job.
pub struct AttemptHost {
    inner: Arc<dyn TaskHost>,
    given_up: AtomicBool,
    places: Mutex<Vec<TablePlace>>,
}

impl AttemptHost {
    /// Returns the host of an attempt, over the host of its job.
    pub fn of(inner: &Arc<dyn TaskHost>) -> Arc<AttemptHost> {
        let (given_up, places) = (AtomicBool::new(false), Mutex::default());
        Arc::new(AttemptHost { inner: Arc::clone(inner), given_up, places })
    }

    /// Gives the attempt up: from here on it can neither go on nor create files.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    /// Returns the places that the attempt has got.
    pub fn places(&self) -> Vec<TablePlace> {
        lock(&self.places).clone()
    }

    /// Returns the host of the job.
    pub fn inner(&self) -> &Arc<dyn TaskHost> {
        &self.inner
    }

    fn check(&self) -> Result<()> {
        match self.given_up.load(Ordering::Acquire) {
            true => Err(Error::Invalid("the attempt was given up".to_owned())),
            false => Ok(()),
        }
    }
}

impl TaskHost for AttemptHost {
    fn reserve(&self, level: u32) -> Result<TablePlace> {
        self.check()?;
        let place = self.inner.reserve(level)?;
        let mut places = lock(&self.places);
        assert!(!places.contains(&place), "{place:?} was given to two tables");
        places.push(place);
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
