//! The fast disk in the interface of a store: methods for the engine's types.

use crate::maker::Tiers;
use crate::placement::{Placement, PlacementProperties};
use situ_engine::{Error, RepairOptions, Result, Store, StoreBuilder};
use situ_storage::Volume;
use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

/// A fast disk for a store that is about to open.
pub trait TieredBuilder: Sized {
    /// Sets a fast disk for the log and the upper levels. The path names a directory of a file system on the disk.
    /// Without a file system, it names a device or a preallocated file that `situ disk format` has prepared. The store
    /// makes the directory if its parent exists. A new store is made with the disk. An existing store that has no fast
    /// disk adds the disk, if nothing is there yet. From then on the store does not open without it, and finds it by
    /// itself where it was last ([`with_tiers`](TieredBuilder::with_tiers)). Name the disk again if it has moved.
    #[must_use]
    fn fast_disk(self, path: impl Into<PathBuf>) -> Self;

    /// Lets the store have a fast disk: the one that it remembers, if it has one.
    #[must_use]
    fn with_tiers(self) -> Self;

    /// Opens the store whose home is `capacity`, with or without a fast disk; see
    /// [`fast_disk`](TieredBuilder::fast_disk).
    ///
    /// # Errors
    /// As [`StoreBuilder::open`].
    fn open_volumes(self, capacity: Arc<dyn Volume>, fast: Option<Arc<dyn Volume>>) -> Result<Store>;
}

impl TieredBuilder for StoreBuilder {
    fn fast_disk(self, path: impl Into<PathBuf>) -> StoreBuilder {
        let tiers = Tiers::of(&self.options().places).fast_disk(path);
        self.places(tiers)
    }

    fn with_tiers(self) -> StoreBuilder {
        let tiers = Tiers::of(&self.options().places);
        self.places(tiers)
    }

    fn open_volumes(self, capacity: Arc<dyn Volume>, fast: Option<Arc<dyn Volume>>) -> Result<Store> {
        let tiers = fast.into_iter().fold(Tiers::of(&self.options().places), Tiers::fast_volume);
        self.places(tiers).open_volume(capacity)
    }
}

/// The fast disk of an open store.
pub trait TieredStore {
    /// Returns the use of the fast disk; `None` if the store has none.
    fn placement(&self) -> Option<PlacementProperties>;

    /// Takes the fast disk away. The log goes on on the capacity disk, and tables are copied there. When nothing is
    /// left on the fast disk, the store notes that it has none. Reads and writes go on meanwhile. The call waits for
    /// iterators that were opened before and hold tables there. If the call ends early, the store goes on using the
    /// disk, and the call can be made again.
    ///
    /// # Errors
    /// There is no fast disk. The capacity disk has no room for the files of the fast disk, and then nothing is moved.
    /// The capacity disk is full. One of the disks fails. The fast disk has a file that is not the store's, or one that
    /// a repair has set aside and that cannot be read. The store is closed meanwhile.
    fn drain_fast_disk(&self) -> Result<()>;
}

/// Returns the placement of a store with a fast disk.
pub(crate) fn placement_of(store: &Store) -> Option<&Placement> {
    let places: &dyn Any = &**store.places();
    places.downcast_ref()
}

impl TieredStore for Store {
    fn placement(&self) -> Option<PlacementProperties> {
        placement_of(self)?.properties()
    }

    fn drain_fast_disk(&self) -> Result<()> {
        self.check_writable()?;
        let none = || Error::Invalid("the store has no fast disk that could be drained".to_owned());
        placement_of(self).ok_or_else(none)?.drain()
    }
}

/// The fast disk of a store that is repaired.
pub trait TieredRepair: Sized {
    /// Sets the place of the store's fast disk. Without it, the disk is looked for in its place when the store was
    /// opened last. Name it if the disk has moved, or if DISKS, which holds the place, is damaged.
    #[must_use]
    fn fast_disk(self, path: impl Into<PathBuf>) -> Self;

    /// Gives up the store's fast disk and its files, if that disk is dead. The report lists the losses: writes that
    /// were in the log only, and the keys of the tables on the disk. Such a key may be missing, have an older value, or
    /// be back although it was deleted. The store has one disk then; another fast one can be added.
    #[must_use]
    fn without_fast_disk(self, without: bool) -> Self;
}

impl TieredRepair for RepairOptions {
    fn fast_disk(mut self, path: impl Into<PathBuf>) -> RepairOptions {
        self.options.places = Arc::new(Tiers::of(&self.options.places).fast_disk(path));
        self
    }

    fn without_fast_disk(mut self, without: bool) -> RepairOptions {
        self.options.places = Arc::new(Tiers::of(&self.options.places).giving_up_fast_disk(without));
        self
    }
}
