//! A snapshot that can be closed, under the readers that share it.

use crate::errors::{Failure, Result};
use crate::shared::Held;
use situ::ReadOptions;
use std::sync::{Mutex, PoisonError};

/// A snapshot until it is closed. The snapshots of its keyspaces share it.
pub(crate) struct Moment(Held<Mutex<Option<situ::Snapshot>>>);

impl Moment {
    pub(crate) fn new(snapshot: situ::Snapshot) -> Moment {
        Moment(Held::new(Mutex::new(Some(snapshot))))
    }

    pub(crate) fn get(&self) -> Result<situ::Snapshot> {
        let snapshot = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        snapshot.ok_or_else(|| Failure::invalid("the snapshot is closed"))
    }

    pub(crate) fn options(&self) -> Result<ReadOptions> {
        Ok(ReadOptions::default().at(&self.get()?))
    }

    pub(crate) fn contains(&self, keyspace: &situ::Keyspace, key: &[u8]) -> Result<bool> {
        Ok(self.get()?.contains_in(keyspace, key)?)
    }

    pub(crate) fn close(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
