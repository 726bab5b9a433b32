//! The number of files that the clients of a node may have open together.
//!
//! The system limits the number of files that a process may have open. A node that is at this limit can open no file
//! for any client, and takes no connection either. So a client is refused before: it may have as many files open as are
//! left to all others.
//!
//! So one client gets half of the files at most, and a client that needs a few gets these while others take what they
//! can.

use situ_base::lock;
use situ_storage::{Error, Result};
use std::sync::{Arc, Mutex};

/// The files that are open, of all stores.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    most: usize,
    open: Mutex<usize>,
}

/// The right to have one file open, until it is dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<OpenFiles>);

impl OpenFiles {
    /// `most` files together.
    pub(crate) fn new(most: usize) -> Arc<OpenFiles> {
        Arc::new(OpenFiles { most, open: Mutex::new(0) })
    }

    /// A place for one more file of a client that has `own`.
    ///
    /// # Errors
    /// No more is left to others than the client has.
    pub(super) fn place(self: &Arc<OpenFiles>, own: usize) -> Result<Place> {
        let mut open = lock(&self.open);
        if own >= self.most.saturating_sub(*open) {
            return Err(Error::Invalid(format!(
                "this client has {own} files open on the node, and all clients together {open}; the node keeps the rest of its {} \
                 for others. Raise the limit of open files of the node (`ulimit -n`, or LimitNOFILE of a systemd unit)",
                self.most
            )));
        }
        *open += 1;
        assert!(*open <= self.most, "{open} files are open of {}", self.most);
        Ok(Place(Arc::clone(self)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = lock(&self.0.open);
        assert!(*open > 0, "a place is given back once");
        *open -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_leaves_half_to_others_and_a_closed_file_is_free_again() {
        let files = OpenFiles::new(8);
        let mut greedy: Vec<Place> = Vec::new();
        while let Ok(place) = files.place(greedy.len()) {
            greedy.push(place);
        }
        assert_eq!(greedy.len(), 4);
        let other = files.place(0).unwrap();
        let text = files.place(4).unwrap_err().to_string();
        assert!(
            text.contains("has 4 files open") && text.contains("together 5") && text.contains("ulimit -n"),
            "{text}"
        );
        greedy.truncate(1);
        let more = [files.place(1).unwrap(), files.place(2).unwrap()];
        drop((greedy, other, more));
        assert_eq!(*lock(&files.open), 0);
    }
}
