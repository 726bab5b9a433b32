//! One ring: entries in, results out, and the waiting between them.

use io_uring::cqueue::EntryMarker as CompletionEntry;
use io_uring::squeue::EntryMarker as SubmissionEntry;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, squeue};
use rustix::io::Errno;
use std::io;
use std::time::Duration;

/// The time for which a kernel thread that polls for submissions stays awake without any.
const SUBMISSION_POLL_IDLE_MS: u32 = 2;

/// The kernel's way of working that a ring uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mode {
    /// A kernel thread takes submissions (`SQPOLL`).
    pub(crate) submission_poll: bool,
    /// The kernel polls the device for completions; the device does not interrupt (`IOPOLL`).
    pub(crate) completion_poll: bool,
}

pub(crate) struct Ring<S: SubmissionEntry = squeue::Entry, C: CompletionEntry = cqueue::Entry> {
    ring: IoUring<S, C>,
    mode: Mode,
}

impl<S: SubmissionEntry, C: CompletionEntry> Ring<S, C> {
    /// Creates a ring for `operations` in flight; its completion queue has room for all of them.
    pub(crate) fn new(operations: u32, mode: Mode) -> io::Result<Ring<S, C>> {
        // A thread that takes submissions may complete one before it says that the entry can be used again.
        let entries = if mode.submission_poll { operations.saturating_mul(2) } else { operations };
        let build = |submit_all: bool| {
            let mut builder = IoUring::<S, C>::builder();
            builder.setup_clamp().dontfork();
            if submit_all {
                builder.setup_submit_all();
            }
            if mode.submission_poll {
                builder.setup_sqpoll(SUBMISSION_POLL_IDLE_MS);
            }
            if mode.completion_poll {
                builder.setup_iopoll();
            }
            builder.build(entries)
        };
        let ring = match build(true) {
            // Before Linux 5.18 the kernel did not know it; what it stops at is then submitted by the next call.
            Err(e) if Errno::from_io_error(&e) == Some(Errno::INVAL) => build(false)?,
            other => other?,
        };
        if !ring.params().is_feature_ext_arg() {
            let why = "io_uring cannot wait with a timeout here; it can from Linux 5.11 on";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        Ok(Ring { ring, mode })
    }

    pub(crate) fn submitter(&self) -> io_uring::Submitter<'_> {
        self.ring.submitter()
    }

    /// Returns the number of operations that may be in flight. The kernel rounds up to a power of two, and down to the
    /// most that it gives.
    pub(crate) fn operations(&self) -> u32 {
        let entries = self.ring.params().sq_entries();
        if self.mode.submission_poll { entries / 2 } else { entries }
    }

    /// Puts an entry behind those that wait for submission; false if there is no room for it.
    ///
    /// # Safety
    /// The memory that the entry points to must stay valid until its completion was taken by [`reap`](Ring::reap).
    pub(crate) unsafe fn push(&mut self, entry: &S) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.ring.submission().push(entry).is_ok() }
    }

    /// Returns true if there are entries that the kernel has not taken yet.
    pub(crate) fn has_unsubmitted(&mut self) -> bool {
        !self.ring.submission().is_empty()
    }

    /// Offers the kernel all entries. The next call offers the kernel again the entries that it cannot take now.
    pub(crate) fn submit(&self) -> io::Result<()> {
        match self.ring.submit() {
            Ok(_) => Ok(()),
            Err(e) if is_passing(&e) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Submits, then sleeps until there is a completion or `timeout` has passed.
    ///
    /// With completion polling there is nothing to sleep on: the kernel asks the device once, and the thread naps if it
    /// had nothing.
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        if self.mode.completion_poll {
            self.submit()?;
            if self.ring.completion().is_empty() {
                std::thread::sleep(timeout.min(crate::spin::SHORT));
            }
            return Ok(());
        }
        let timeout = Timespec::from(timeout);
        match self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout)) {
            Ok(_) => Ok(()),
            Err(e) if Errno::from_io_error(&e) == Some(Errno::TIME) || is_passing(&e) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Takes the completions that are there: key and result.
    pub(crate) fn reap(&mut self, into: &mut Vec<(u64, i32)>)
    where
        C: Result32,
    {
        if self.mode.completion_poll {
            // Completions appear only when the kernel is asked to look for them.
            let _ = self.submit();
        }
        into.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result32())));
    }
}

/// Returns true if the kernel asks to try again later, or a signal came.
fn is_passing(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}

/// The result of either kind of completion entry.
pub(crate) trait Result32 {
    fn result32(&self) -> i32;
}

impl Result32 for cqueue::Entry {
    fn result32(&self) -> i32 {
        self.result()
    }
}

impl Result32 for cqueue::Entry32 {
    fn result32(&self) -> i32 {
        self.result()
    }
}
