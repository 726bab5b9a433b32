//! The list of a store's files that a client takes in several answers: the volume lists its files once for all of them.
//!
//! A first answer makes a new list. Later ones go on in that list, up to [`KEPT_FOR`]. So they may name a file that was
//! removed meanwhile, as any list may once it is sent. The list is dropped with its last answer, or with the session. A
//! client that asks for two lists at a time goes on in the newer one with both.

use situ_base::lock;
use situ_storage::{FileMeta, FileName, Result};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An older list is not gone on with.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(60);

/// See the module's page. Any thread may use it; no lock is held while the volume lists.
#[derive(Default)]
pub(super) struct Listing(Mutex<Option<Kept>>);

struct Kept {
    since: Duration,
    files: Arc<[FileMeta]>,
}

impl Listing {
    /// The files behind `after`, `most` at most, and whether there are more. `list` has all files of the volume.
    pub(super) fn part(
        &self,
        after: Option<FileName>,
        most: usize,
        now: Duration,
        list: impl FnOnce() -> Result<Vec<FileMeta>>,
    ) -> Result<(Vec<FileMeta>, bool)> {
        let files = match after.and_then(|_| self.kept(now)) {
            Some(files) => files,
            None => {
                let mut files = list()?;
                files.sort_by_key(|file| file.name);
                let files: Arc<[FileMeta]> = files.into();
                *lock(&self.0) = Some(Kept { since: now, files: Arc::clone(&files) });
                files
            }
        };
        let first = after.map_or(0, |after| files.partition_point(|file| file.name <= after));
        let rest = files.get(first..).unwrap_or_default();
        let has_more = rest.len() > most;
        if !has_more {
            *lock(&self.0) = None;
        }
        Ok((rest.iter().take(most).copied().collect(), has_more))
    }

    fn kept(&self, now: Duration) -> Option<Arc<[FileMeta]>> {
        let kept = lock(&self.0);
        let young = kept.as_ref().filter(|kept| now.saturating_sub(kept.since) <= KEPT_FOR)?;
        Some(Arc::clone(&young.files))
    }
}
