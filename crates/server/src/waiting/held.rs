//! The resources of connections in shared and remote memory.

use crate::engine::cache::Reserved;
use crate::process::descriptors::Place;
use situ_transport::Link;

/// The resources that a connection in memory holds until it ends.
#[derive(Default)]
pub(crate) struct Held {
    /// The memory of the rings, as the engine counts it.
    pub(crate) _of_engine: Reserved,
    /// The memory of the rings, as the server counts it, and the place, both of a connection in remote memory.
    pub(crate) remote: Option<(Reserved, Place)>,
}

impl Held {
    pub(crate) fn is_remote(&self) -> bool {
        self.remote.is_some()
    }
}

/// A server's end of a connection in remote memory, with its line for the client. The error is a reason.
pub(crate) type Greeted = Result<(Box<dyn Link>, String, Held), String>;
