//! The locks of a store's disks.
//!
//! The home's is taken first and given back last. So whoever gets it finds the fast disk free, and one who opens a store
//! that is just being closed is refused by its home or not at all.

use situ_storage::{Lock, Volume};

/// In the order in which they were taken; given back in the opposite one.
#[derive(Default)]
pub(crate) struct Locks(Vec<Box<dyn Lock>>);

impl Locks {
    pub(crate) fn take(&mut self, volume: &dyn Volume) -> situ_storage::Result<()> {
        self.0.push(volume.lock()?);
        Ok(())
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        while let Some(lock) = self.0.pop() {
            drop(lock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    struct Noted(&'static str, Arc<Mutex<Vec<&'static str>>>);

    impl Lock for Noted {}

    impl Drop for Noted {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    /// A store that was being closed gave its home's lock back first. Whoever waited for that one got it, and was refused
    /// by the fast disk.
    #[test]
    fn the_lock_that_was_taken_first_is_given_back_last() {
        let given_back = Arc::default();
        let lock = |name| Box::new(Noted(name, Arc::clone(&given_back))) as Box<dyn Lock>;
        let locks = Locks(vec![lock("home"), lock("fast disk")]);
        drop(std::mem::take(&mut Some(locks)));
        assert_eq!(*given_back.lock().unwrap(), ["fast disk", "home"]);
    }
}
