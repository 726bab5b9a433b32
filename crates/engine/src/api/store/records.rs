//! Access for programs that read the records of a compactor: the clock, and the names of keyspaces.

use super::Store;
use situ_compaction::Compactor;
use std::time::Duration;

impl Store {
    /// Returns the store's compactor. Its own type may tell more of its work.
    pub fn compactor(&self) -> &dyn Compactor {
        self.core().work.compactions.compactor()
    }

    /// Returns the time of the store's clock, by which a compactor's records tell times. The clock never goes back, and
    /// begins anywhere.
    pub fn clock(&self) -> Duration {
        self.core().env.clock.now()
    }

    /// Returns the name of the keyspace that records of compaction tasks call by this number, or `None` if it was
    /// dropped.
    pub fn keyspace_name_of(&self, number: u32) -> Option<String> {
        let keyspaces = self.core().versions.keyspaces();
        keyspaces.iter().find(|keyspace| keyspace.id == number).map(|keyspace| keyspace.name.to_string())
    }
}
