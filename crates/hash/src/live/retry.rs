//! Retries of the threads of a store when a disk has no space (`shortage.rs` says what they promise).

use crate::disk::large::HandleBytes;
use crate::format::bucket::Tally;
use crate::live::core::Core;
use crate::live::rewrite::Rewrites;
use crate::writing::pending::BucketChanges;
use crate::writing::shortage::{Party, Patience};
use crate::{Error, Result};
use situ_device::Buffer;
use situ_values::Handle;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The time for which the keeper waits before it repeats a step in place.
const REPEAT_EVERY: Duration = Duration::from_millis(100);

impl Core {
    /// Runs the work of `party`. True if it ended for want of space; then it is to be tried again.
    pub(crate) fn is_short_after(&self, party: Party, work: impl FnOnce() -> Result<()>) -> Result<bool> {
        let shortage = &self.writes.shortage;
        match work() {
            Err(error @ Error::OutOfSpace { .. }) => {
                shortage.note(party, &error);
                // Otherwise a partition with few changes would not be worked on again.
                self.writes.pending.want(self.writes.visible());
                self.writes.progress.notify();
                Ok(true)
            }
            Err(error) => Err(error),
            Ok(()) => {
                self.recovered(party);
                Ok(false)
            }
        }
    }

    fn recovered(&self, party: Party) {
        if self.writes.shortage.is_any() {
            self.writes.shortage.over(party);
            self.writes.progress.notify();
        }
    }

    /// Runs a step. With patience it is repeated until there is space.
    ///
    /// # Errors
    /// Those of the step. If the store closes while space is missing, an error that fails it: the step is half done.
    pub(crate) fn patiently(&self, patience: Patience, mut step: impl FnMut() -> Result<()>) -> Result<()> {
        loop {
            let error = match step() {
                Err(error @ Error::OutOfSpace { .. }) if patience == Patience::UntilSpace => error,
                outcome => {
                    if patience == Patience::UntilSpace {
                        self.recovered(Party::Step);
                    }
                    return outcome;
                }
            };
            if self.writes.is_closed() || !self.keeper.runs.load(Ordering::Acquire) {
                return Err(error.fatal());
            }
            self.writes.shortage.note(Party::Step, &error);
            self.writes.progress.notify();
            self.env.clock.sleep(REPEAT_EVERY);
        }
    }

    /// Keeps a batch of buckets that has failed for want of space. See the module's documentation. `blocks` are the
    /// buckets as they were read, and `died` says which handles leave which bucket.
    pub(crate) fn keep_for_retry(
        &self,
        changes: &[BucketChanges],
        handles: &[Option<HandleBytes>],
        blocks: &[Buffer],
        rewrites: &mut Rewrites,
        died: &[(u64, Handle)],
    ) -> Result<()> {
        self.large.keep(changes, handles);
        let Some(unwritten) = rewrites.take_unwritten() else { return Ok(()) };
        for (bucket, block) in &unwritten {
            let at = changes.iter().position(|changes| changes.bucket == *bucket).expect("it is one of the batch");
            let tally = |block: &[u8]| Ok::<Tally, Error>(self.codec.open(*bucket, block)?.header().now);
            rewrites.count(self, *bucket, &tally(&blocks[at])?, &tally(block)?);
            self.io.shadow(*bucket, &blocks[at]);
        }
        rewrites.add_to_totals(self);
        let is_written = |bucket: u64| unwritten.iter().all(|(other, _)| *other != bucket);
        let dead = died.iter().filter(|(bucket, _)| is_written(*bucket)).map(|(_, handle)| *handle);
        let partition = self.writes.pending.partition_number(changes[0].bucket);
        self.large.died_before_retry(&self.overflow, partition, &dead.collect::<Vec<_>>())
    }
}
