//! The locks of a store's volumes.
//!
//! The lock of the home is taken first and given back last. So a caller that gets it finds the other
//! volumes free. A caller that opens a store which is just being closed is refused by the home or not at all.

use situ_storage::{Lock, Volume};

/// Locks in the order in which they were taken. They are given back in the opposite one.
#[derive(Default)]
pub struct Locks(Vec<Box<dyn Lock>>);

impl Locks {
    /// Locks one more volume.
    ///
    /// # Errors
    /// Another process, or another store of this one, has the lock.
    pub fn take(&mut self, volume: &dyn Volume) -> situ_storage::Result<()> {
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

    /// A store that was being closed gave the lock of its home back first. Another process that waited for that one
    /// got it, and was refused by the other volume.
    #[test]
    fn the_lock_that_was_taken_first_is_given_back_last() {
        let given_back = Arc::default();
        let lock = |name| Box::new(Noted(name, Arc::clone(&given_back))) as Box<dyn Lock>;
        let locks = Locks(vec![lock("home"), lock("other")]);
        drop(std::mem::take(&mut Some(locks)));
        assert_eq!(*given_back.lock().unwrap(), ["other", "home"]);
    }
}
