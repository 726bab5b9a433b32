//! Are the files of two units the same?
//!
//! 1. A thread of its own reads the files of both through the host, side by side, in pieces.
//! 2. Units with one encoder have to give the same bytes. Of units with two encoders, the entries and the range
//!    tombstones are compared, as they are before compression.
//! 3. The verdict waits for the next turn of the scheduler, and the thread notifies the scheduler's event.
//!
//! **Threads.** One a comparison, from the executor. It ends early once the host of the job answers "cancelled".
//! **Failure.** Files that cannot be read are no difference: the verdict says so, and the reference unit's files are
//! taken.
//!
//! Rejected: to compare in the turn. The turn would wait for disks, or for a node that is gone.

use situ_base::{Env, Event, JobHandle, lock};
use situ_compaction::{OutputTable, TaskError, TaskHost, TaskOutput};
use situ_storage::{Error, Result};
use situ_table::range_del::RangeTombstone;
use situ_table::{BlockCache, KeyRef, Table, TableCursor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// Files are compared in pieces of this size.
const PIECE_BYTES: usize = 256 << 10;
/// The number of entries after which the host is asked whether the comparison is to end.
const ENTRIES_A_LOOK: usize = 1024;

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Same,
    /// The text says where.
    Differ(String),
    /// The files could not be compared; the text says why.
    Unknown(String),
}

/// The files that are compared.
pub(crate) struct Files {
    /// The job's.
    pub(crate) host: Arc<dyn TaskHost>,
    pub(crate) reference: TaskOutput,
    pub(crate) other: TaskOutput,
    /// Both units write the same compressed bytes.
    pub(crate) same_encoder: bool,
}

/// A comparison under way.
pub(crate) struct Comparison {
    verdict: Arc<Mutex<Option<Verdict>>>,
    handle: Box<dyn JobHandle>,
}

impl Comparison {
    /// Begins to compare; `None` if there is no thread for it now.
    pub(crate) fn begin(env: &Env, event: &Arc<dyn Event>, files: Files) -> Option<Comparison> {
        let verdict = Arc::new(Mutex::new(None));
        let (slot, event) = (Arc::clone(&verdict), Arc::clone(event));
        let work = move || {
            let found = catch_unwind(AssertUnwindSafe(|| files.compare()));
            drop(files);
            let panicked = |_| Verdict::Unknown(TaskError::Panicked("a comparison".to_owned()).to_string());
            *lock(&slot) = Some(found.unwrap_or_else(panicked));
            event.notify();
        };
        let handle = env.executor.spawn("compare", Box::new(work)).ok()?;
        Some(Comparison { verdict, handle })
    }

    /// The verdict, once there is one. The thread has let go of the host by then.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        let verdict = lock(&self.verdict).take()?;
        // The thread does nothing any more but return.
        let _ = self.handle.join();
        Some(verdict)
    }
}

/// Why a comparison ends: the first difference, or files that cannot be read.
enum Stop {
    Differ(String),
    Unknown(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Unknown(error.to_string())
    }
}

fn differ<T>(what: String) -> std::result::Result<T, Stop> {
    Err(Stop::Differ(what))
}

impl Files {
    fn compare(&self) -> Verdict {
        let compared = if self.same_encoder { self.compare_bytes() } else { self.compare_entries() };
        match compared {
            Ok(()) => Verdict::Same,
            Err(Stop::Differ(what)) => Verdict::Differ(what),
            Err(Stop::Unknown(why)) => Verdict::Unknown(why),
        }
    }

    fn check_wanted(&self) -> std::result::Result<(), Stop> {
        match self.host.cancelled() {
            true => Err(Stop::Unknown("the job was given up".to_owned())),
            false => Ok(()),
        }
    }

    fn compare_bytes(&self) -> std::result::Result<(), Stop> {
        let (expected, found) = (&self.reference, &self.other);
        if expected.tables.len() != found.tables.len() {
            return differ(format!("{} tables, {} are right", found.tables.len(), expected.tables.len()));
        }
        if expected.dropped_values != found.dropped_values {
            return differ("other values of the log are dropped".to_owned());
        }
        expected.tables.iter().zip(&found.tables).try_for_each(|(expected, found)| self.compare_tables(expected, found))
    }

    fn compare_tables(&self, expected: &OutputTable, found: &OutputTable) -> std::result::Result<(), Stop> {
        let number = found.number;
        if expected.span != found.span {
            return differ(format!("table {number} spans {:?}, {:?} is right", found.span, expected.span));
        }
        let (right, tested) = (self.host.open(expected.place())?, self.host.open(found.place())?);
        if right.bytes() != tested.bytes() {
            return differ(format!("table {number} has {} bytes, {} are right", tested.bytes(), right.bytes()));
        }
        let (mut a, mut b) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
        for offset in (0..right.bytes()).step_by(PIECE_BYTES) {
            self.check_wanted()?;
            // A piece fits into memory.
            let bytes = (right.bytes() - offset).min(PIECE_BYTES as u64) as usize;
            right.read_at(offset, &mut a[..bytes])?;
            tested.read_at(offset, &mut b[..bytes])?;
            if let Some(at) = (0..bytes).find(|at| a[*at] != b[*at]) {
                let offset = offset + at as u64;
                return differ(format!("table {number} differs from table {} at byte {offset}", expected.number));
            }
        }
        Ok(())
    }

    fn compare_entries(&self) -> std::result::Result<(), Stop> {
        let (mut right, mut tested) = (self.entries(&self.reference)?, self.entries(&self.other)?);
        let mut at: usize = 0;
        loop {
            if at.is_multiple_of(ENTRIES_A_LOOK) {
                self.check_wanted()?;
            }
            right.advance()?;
            tested.advance()?;
            if right.entry() != tested.entry() {
                return differ(format!("entry {at} of the output is another one"));
            }
            if right.entry().is_none() {
                break;
            }
            at += 1;
        }
        match right.tombstones() == tested.tombstones() {
            true => Ok(()),
            false => differ("the range tombstones are other ones".to_owned()),
        }
    }

    fn entries(&self, output: &TaskOutput) -> Result<Entries> {
        let open = |table: &OutputTable| Table::open(self.host.open(table.place())?, table.number, BlockCache::new(0));
        Ok(Entries { tables: output.tables.iter().map(open).collect::<Result<_>>()?, next: 0, cursor: None })
    }
}

/// The entries of several tables, one after the other.
struct Entries {
    tables: Vec<Arc<Table>>,
    /// The table behind the cursor's.
    next: usize,
    cursor: Option<TableCursor>,
}

impl Entries {
    /// Goes to the next entry, the first one at first.
    fn advance(&mut self) -> Result<()> {
        if let Some(cursor) = self.cursor.as_mut().filter(|cursor| cursor.valid()) {
            cursor.next()?;
        }
        while self.entry().is_none() && self.next < self.tables.len() {
            let mut cursor = self.tables[self.next].sequential_cursor(PIECE_BYTES);
            cursor.first()?;
            self.next += 1;
            self.cursor = Some(cursor);
        }
        Ok(())
    }

    fn entry(&self) -> Option<(KeyRef<'_>, &[u8])> {
        let cursor = self.cursor.as_ref().filter(|cursor| cursor.valid())?;
        Some((cursor.key(), cursor.value()))
    }

    /// The range tombstones, without the cuts between tables.
    fn tombstones(&self) -> Vec<RangeTombstone> {
        let mut all: Vec<RangeTombstone> =
            self.tables.iter().flat_map(|table| table.range_tombstones()).map(|t| RangeTombstone::clone(t)).collect();
        all.sort_unstable_by(|a, b| (a.sequence, &a.begin).cmp(&(b.sequence, &b.begin)));
        all.dedup_by(|next, before| {
            let goes_on = next.sequence == before.sequence && next.begin == before.end;
            if goes_on {
                before.end.clone_from(&next.end);
            }
            goes_on
        });
        all
    }
}
