//! The places of a store on one volume.

use crate::base::places::{PlacedStore, Places, Volumes};
use situ_storage::Volume;
use std::sync::Arc;

/// One volume, on which everything lies.
pub struct Plain(pub(crate) Arc<dyn Volume>);

impl Plain {
    /// Returns the volumes of a store that lies on `volume` alone.
    pub fn on(volume: &Arc<dyn Volume>) -> Arc<dyn Volumes> {
        Arc::new(Plain(Arc::clone(volume)))
    }
}

impl Volumes for Plain {
    fn volume(&self) -> &Arc<dyn Volume> {
        &self.0
    }

    fn places(&self, _store: Arc<dyn PlacedStore>) -> Arc<dyn Places> {
        Arc::new(Everything)
    }
}

/// Everything goes home.
struct Everything;

impl Places for Everything {}
