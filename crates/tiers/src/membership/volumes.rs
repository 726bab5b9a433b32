//! The volumes that a caller names, and their purpose.

use crate::members::{Fast, Home, Id};
use situ_storage::Volume;
use std::sync::Arc;

/// The volumes that a caller names.
#[derive(Clone)]
pub(crate) struct Given {
    /// The store's home.
    pub(crate) capacity: Arc<dyn Volume>,
    pub(crate) fast: Option<FastDisk>,
    /// The place of the home: the path of its directory, or the location that a volume elsewhere reports. `None` for
    /// volumes that a caller named with all disks.
    pub(super) place: Option<String>,
}

/// A fast disk that was named.
#[derive(Clone)]
pub(crate) struct FastDisk {
    pub(crate) volume: Arc<dyn Volume>,
    /// The place where it is found again.
    pub(super) at: String,
    /// The memory that its own cache may take, in bytes.
    pub(super) cache_bytes: u64,
    /// The disk's id, if the caller has not named the disk. Then it comes from the place that DISKS named before the
    /// lock was taken.
    pub(super) remembered: Option<Id>,
}

impl From<Arc<dyn Volume>> for FastDisk {
    fn from(volume: Arc<dyn Volume>) -> FastDisk {
        FastDisk { at: volume.location(), volume, cache_bytes: 0, remembered: None }
    }
}

impl FastDisk {
    /// Returns true if the caller has not named the disk, and `home`, the contents of DISKS under the lock, no longer
    /// names it. Another process has drained it meanwhile. Only a caller that names the disk gives it to the store
    /// again.
    pub(super) fn was_drained(&self, home: Option<&Home>) -> bool {
        let now = home.map_or(Fast::None, |home| home.fast);
        self.remembered.is_some_and(|disk| !matches!(now, Fast::Adding(other) | Fast::Used(other) if other == disk))
    }
}

impl Given {
    pub(crate) fn alone(capacity: Arc<dyn Volume>) -> Given {
        Given::volumes(capacity, None)
    }

    pub(crate) fn volumes(capacity: Arc<dyn Volume>, fast: Option<FastDisk>) -> Given {
        Given { capacity, fast, place: None }
    }
}

/// The purpose for which the volumes are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// Writing to a store that may be damaged.
    Repair {
        without_fast_disk: bool,
    },
    /// As [`Repair`](Access::Repair), without changing anything.
    Survey {
        without_fast_disk: bool,
    },
}

impl Access {
    pub(super) fn writes(self) -> bool {
        matches!(self, Access::Write | Access::Repair { .. })
    }

    pub(super) fn repairs(self) -> bool {
        matches!(self, Access::Repair { .. } | Access::Survey { .. })
    }

    pub(crate) fn gives_up_fast_disk(self) -> bool {
        matches!(self, Access::Repair { without_fast_disk: true } | Access::Survey { without_fast_disk: true })
    }
}
