//! Closing a store, by a call or with its last handle.
//!
//! 1. The records that the opening has replayed become tables, if they are to and have not yet. If a compaction of
//!    level 0 is due then, the closer waits for it. A store that is opened again and again, for a moment each time,
//!    would never get to it otherwise. The wait has bounds (`Work::wait_for_level0`), as writers may go on meanwhile.
//!    Then the store refuses calls. All threads of the store end when they have finished their present work.
//! 2. The closer waits for callers' threads that are inside the store, then for the store's own threads.
//! 3. The log is closed, the manifest notes it.
//! 4. The store reports the room that closing has freed to a raw disk, as far as that takes less than [`TIDYING_MAX`].
//!    The next user of the disk assumes that the device knows of its free pages. The directory is given back.
//!
//! **Threads.** The closer waits for the store's threads, so none of these can close the store. The last handle may be
//! dropped on one of them nevertheless: a waker is called there, and may own the task that owns the store. Such a store
//! is closed on a thread of its own; a call there is refused.
//!
//! **Failure.** The closer makes durable whatever it can, even after a failure. If no thread can be had for closing,
//! the directory stays locked until the process ends: the store's threads may still be at work in it.

use crate::base::places::{HOME, Locks};
use crate::base::store_id::is_own_thread;
use crate::base::sync::lock;
use crate::core::Core;
use crate::versions::keyspace::KeyspaceCore;
use crate::work::background::Background;
use crate::work::separate::may_have_values;
use crate::{Error, Result};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The longest time for which closing reports free room to a raw disk; a part that is begun is finished.
const TIDYING_MAX: Duration = Duration::from_secs(1);

/// An open store, and the parts that end with it.
pub(crate) struct Open {
    core: Arc<Core>,
    /// None if the store is open read-only.
    background: Option<Background>,
    locks: Mutex<Locks>,
}

impl Open {
    pub(crate) fn new(core: &Arc<Core>, background: Option<Background>, locks: Locks) -> Arc<Open> {
        Arc::new(Open { core: Arc::clone(core), background, locks: Mutex::new(locks) })
    }

    /// Begins the collection of values of a new keyspace, which may have a value log.
    ///
    /// # Errors
    /// No thread can be had that would collect it.
    pub(crate) fn collect_values_of(&self, keyspace: &KeyspaceCore) -> Result<()> {
        match &self.background {
            Some(background) if may_have_values(keyspace) => background.collect_values(&self.core.work),
            _ => Ok(()),
        }
    }

    fn is_closed_by_itself(&self) -> bool {
        is_own_thread(self.core.id)
    }

    /// See [`Store::close`](crate::Store::close).
    pub(crate) fn close(&self) -> Result<()> {
        let core = &self.core;
        if self.is_closed_by_itself() {
            let text = "a store waits for its threads when it is closed, and this is one of them, on which wakers and \
                        listeners are called; close it on another thread";
            return Err(Error::Invalid(text.to_owned()));
        }
        core.memory.wait_for_replayed();
        core.work.wait_for_level0();
        if !core.health.begin_closing() {
            return Ok(());
        }
        core.health.wake_all();
        core.transactions.close();
        core.readers.close();
        core.health.wait_for_guests();
        if let Some(background) = &self.background {
            background.join(&core.work);
        }
        core.work.compactions.land_the_last();
        // The thread of a task ends a little later than the task: it must not hold the last handle of the store.
        core.work.compactions.compactor().close();
        core.versions.delete_obsolete();
        core.end_value_writers();
        // Even after a failure, the log is made as durable as possible.
        let closed = core.memory.log().map_or(Ok(()), |log| Ok(log.close().and(log.drop_spares())?));
        // The next opening would not find data in files that were moved or removed.
        core.health.fail_if_a_disk_has();
        let closed = core.health.failure().map_or(closed, Err);
        let closed = if core.memory.log().is_some() { closed.and_then(|()| core.memory.note_closed()) } else { closed };
        core.health.wake_all();
        if closed.is_ok() {
            core.tidy_at_the_end();
        }
        drop(std::mem::take(&mut *lock(&self.locks)));
        closed
    }

    /// Closes a store whose last handle is dropped. No caller is left to get a failure. Writes that were acknowledged
    /// as synced are on disk whatever happens here.
    pub(crate) fn abandon(self: &Arc<Self>) {
        if !self.is_closed_by_itself() {
            let _ = self.close();
            return;
        }
        let open = Arc::clone(self);
        let job = Box::new(move || drop(open.close()));
        if self.core.env.executor.spawn("situ-close", job).is_err() {
            self.core.health.begin_closing();
            self.core.health.wake_all();
            self.core.transactions.locks.close();
            std::mem::forget(std::mem::take(&mut *lock(&self.locks)));
        }
    }
}

impl Core {
    /// Seals the segments that values go to. The next opening reads through a segment that is not sealed here.
    fn end_value_writers(&self) {
        for keyspace in self.versions.keyspaces() {
            let writers = [&keyspace.flushed_values, &keyspace.collected_values].map(|writer| lock(writer).take());
            for writer in writers.into_iter().flatten().filter(|_| self.health.failure().is_none()) {
                if let Err(error) = writer.finish() {
                    self.health.note_job_failure("seal values", error.into());
                }
            }
        }
    }

    /// Step 4. Nothing depends on it: room that cannot be reported now is reported when it has been used again.
    fn tidy_at_the_end(&self) {
        let volumes = &self.versions.source.volumes;
        if self.memory.log().is_none() {
            return;
        }
        let until = self.env.clock.now() + TIDYING_MAX;
        let further = volumes.numbers().into_iter().filter(|number| *number != HOME);
        for volume in further.filter_map(|number| volumes.numbered(number)) {
            // Room is free when the removal is durable.
            if volume.sync_names().is_ok() {
                while volume.tidy() && self.env.clock.now() < until {}
            }
        }
    }
}
