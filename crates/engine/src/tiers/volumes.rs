//! The disks of a store, as the store uses them.

use crate::places::{HOME, PlacedStore, Places, Plain, Reserved, Volumes};
use crate::tiers::placement::{Placement, TierRules};
use situ_disks::{Disks, Role};
use situ_storage::{FileName, Result, Space, Volume, Writer};
use std::sync::Arc;

/// Returns the disks of an open store, for tests of what they do.
#[cfg(test)]
pub(crate) fn disks_of(store: &crate::Store) -> &Arc<Disks> {
    let volumes: &dyn std::any::Any = &*store.core().versions.source.volumes;
    &volumes.downcast_ref::<TwoDisks>().unwrap().disks
}

/// Two disks.
pub(crate) struct TwoDisks {
    volume: Arc<dyn Volume>,
    pub(crate) disks: Arc<Disks>,
    rules: TierRules,
}

impl TwoDisks {
    pub(crate) fn new(disks: &Arc<Disks>, rules: TierRules) -> TwoDisks {
        TwoDisks { volume: Arc::clone(disks) as Arc<dyn Volume>, disks: Arc::clone(disks), rules }
    }
}

impl Volumes for TwoDisks {
    fn volume(&self) -> &Arc<dyn Volume> {
        &self.volume
    }

    fn are_several(&self) -> bool {
        true
    }

    fn numbers(&self) -> Vec<u32> {
        let fast = self.disks.with_role(Role::Fast).map(|disk| disk.number());
        std::iter::once(HOME).chain(fast).collect()
    }

    fn numbered(&self, number: u32) -> Option<&dyn Volume> {
        let disk = self.disks.numbered(number).ok().filter(|disk| !disk.is_left())?;
        Some(&disk.volume)
    }

    fn volume_of(&self, file: FileName) -> u32 {
        self.disks.disk_of(file)
    }

    fn begin_table(&self, volume: u32, number: u64, bytes_max: u64) -> Result<Option<Box<dyn Writer>>> {
        self.disks.create_table(volume, number, bytes_max)
    }

    fn reserve_table(&self, volume: u32, number: u64) -> Option<Reserved> {
        Some(Box::new(self.disks.reserve_table(volume, number)?))
    }

    fn adopt_table(&self, volume: u32, number: u64) {
        self.disks.adopt(volume, number);
    }

    fn log_area(&self) -> Option<Space> {
        self.disks.log_room()
    }

    fn places(&self, store: Arc<dyn PlacedStore>) -> Arc<dyn Places> {
        match Placement::new(Arc::clone(&store), &self.disks, self.rules) {
            Some(placement) => Arc::new(placement),
            None => Plain(Arc::clone(&self.volume)).places(store),
        }
    }
}
