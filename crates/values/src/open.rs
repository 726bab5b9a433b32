//! Opening: finds the segments and their ends.
//!
//! 1. Segments in the volume that the owner does not know are orphans: a crash has kept their names only. They are
//!    removed.
//! 2. Of each segment that the owner knows, the last page is read. A sound trailer says where the records end.
//! 3. Without a sound trailer the segment is unfinished, or its trailer has rotted. All sound records are looked for
//!    (`scan.rs`). A torn tail has none, and is cut. The segment is sealed, and nothing is appended to it any more. The
//!    new index lies where no record ever was (`format::index_at`), so it cannot hide what the scan may have missed.
//! 4. Trimming leaves nothing of many a dead record, so records that are not found count as dead ones first. The rest
//!    of the owner's sum of dead bytes is dead among the records that were found. Such sums are *doubtful*: the segment
//!    never looks empty.
//! 5. If that is less than what was synced and is not dead, as reported to the owner, the segment is *incomplete*: the
//!    owner learns of it by [`ValueLog::damaged`]. The records that are there can be read. The segment is never
//!    collected, as a collection would lose the rest.
//!
//! **Failure**: damage never keeps a log closed. Other errors of the disk do. A segment that cannot be sealed now can
//! be read, and [`tidy`](ValueLog::tidy) tries once more.

use crate::Result;
use crate::counters::Meters;
use crate::files::Files;
use crate::format::Identity;
use crate::format::{FRAME_BYTES, SECTOR_BYTES, SegmentHeader, Trailer};
use crate::log::ValueLog;
use crate::options::{KnownSegment, Layout, Numbers, Options};
use crate::scan::Scan;
use crate::seal::{Ends, seal};
use crate::segment::{Phase, Segment, State};
use situ_base::{Env, lock};
use situ_storage::{Error, FileName, Reader, Volume};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};

/// A segment with less room than this could not hold a record.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 4 * SECTOR_BYTES;

impl ValueLog {
    /// Opens a value log that lies in `volume`, next to other files. `numbers` gives the numbers of new segments.
    /// `known` is the owner's durable list of segments; all others are removed.
    ///
    /// The owner has taken the volume's lock, unless it only reads.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid): the options are impossible, or the volume is a disk without a file system. Or I/O.
    pub fn open(
        volume: Arc<dyn Volume>,
        env: &Env,
        options: Options,
        numbers: Numbers,
        known: &[KnownSegment],
    ) -> Result<Arc<ValueLog>> {
        check_options(&*volume, &options)?;
        let cannot_discard = AtomicBool::new(!options.discards);
        let log = ValueLog {
            files: Files::new(options.open_segments_max),
            volume,
            env: env.clone(),
            options,
            numbers,
            segments: Mutex::new(BTreeMap::new()),
            meters: Meters::default(),
            tidying: AtomicBool::new(false),
            cannot_discard,
            duties: Mutex::default(),
            ranges_bytes: AtomicUsize::new(0),
        };
        log.remove_orphans(known)?;
        for known in known {
            let segment = Arc::new(log.look(known)?);
            log.add(&segment);
            if lock(&segment.state).phase == Phase::Abandoned && !log.options.read_only {
                // A segment that cannot be sealed now can be read all the same. `tidy` tries it once more.
                if log.seal_abandoned(&segment).is_err() {
                    log.change(&segment, |_| ());
                }
            }
        }
        Ok(Arc::new(log))
    }

    fn remove_orphans(&self, known: &[KnownSegment]) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        let known: BTreeSet<u64> = known.iter().map(|known| known.number).collect();
        let mut removed = false;
        for file in self.volume.list()? {
            match file.name {
                FileName::Values(number) if !known.contains(&number) => {
                    self.volume.remove(file.name)?;
                    removed = true;
                }
                _ => {}
            }
        }
        if removed { self.volume.sync_names() } else { Ok(()) }
    }

    fn look(&self, known: &KnownSegment) -> Result<Segment> {
        let file = match self.volume.open(FileName::Values(known.number)) {
            Ok(file) => file,
            Err(error @ Error::NotFound { .. }) => return Ok(lost(known.number, error)),
            Err(error) => return Err(error),
        };
        let segment = match find_end(&*file, known.number) {
            Ok(segment) => segment,
            Err(error @ Error::Corruption(_)) => return Ok(lost(known.number, error)),
            Err(error) => return Err(error),
        };
        let mut state = lock(&segment.state);
        state.count_known(known);
        if state.whole_bytes + known.dead_bytes < known.record_bytes {
            let expected = format!("{} bytes of records, which were synced", known.record_bytes);
            let found = format!("{} bytes", state.whole_bytes);
            let error = Error::corruption(file.path(), state.data_end, "records", expected, found);
            state.miss(error);
        }
        drop(state);
        Ok(segment)
    }

    /// Gives an index and a trailer to a segment whose writer has not.
    pub(crate) fn seal_abandoned(&self, segment: &Segment) -> Result<()> {
        let number = segment.identity.segment;
        let file = self.volume.open(FileName::Values(number))?;
        let mut scan = Scan::new(&*file, segment.identity, segment.layout, segment.pages);
        let synced_end = lock(&segment.state).synced_end;
        scan.run(synced_end)?;
        let pages = self.volume.open_pages(FileName::Values(number))?;
        let rest_is_free = !scan.gave_up() && scan.end() == synced_end;
        let ends = Ends { data_end: scan.end(), record_bytes: scan.record_bytes(), rest_is_free };
        let (trailer, _) = seal(&*pages, segment, scan.index(), ends)?;
        self.sealed(segment, &trailer);
        if scan.end() < synced_end {
            let expected = format!("records up to {synced_end}, which were synced");
            let error = Error::corruption(file.path(), scan.end(), "value record", expected, "none");
            lock(&segment.state).miss(error);
        }
        Ok(())
    }
}

impl State {
    /// Takes over the owner's sums. Fewer records than the owner knows of: what is missing was dead and trimmed, or it
    /// is damage.
    fn count_known(&mut self, known: &KnownSegment) {
        let missing = known.record_bytes.saturating_sub(self.record_bytes);
        self.dead_bytes = known.dead_bytes.saturating_sub(missing).min(self.record_bytes);
        self.trimmed_bytes = known.trimmed_bytes.saturating_sub(missing).min(self.dead_bytes);
        self.sums_are_doubtful = missing > 0 || known.dead_bytes > known.record_bytes || self.phase == Phase::Abandoned;
    }
}

fn check_options(volume: &dyn Volume, options: &Options) -> Result<()> {
    let bytes = options.segment_bytes;
    if bytes < SEGMENT_BYTES_MIN || bytes > u64::from(u32::MAX) || !bytes.is_multiple_of(SECTOR_BYTES) {
        let text = format!("segments of {bytes} bytes: give a multiple of 4096 from {SEGMENT_BYTES_MIN} to 4 GiB");
        return Err(Error::Invalid(text));
    }
    if volume.geometry().is_some() {
        let text = format!("{}: a value log needs a directory, not a disk without a file system", volume.location());
        return Err(Error::Invalid(text));
    }
    Ok(())
}

fn lost(number: u64, error: Error) -> Segment {
    let identity = Identity { segment: number, salt: 0 };
    let mut state = State::new(Phase::Lost);
    state.damage = Some(error);
    Segment { identity, layout: Layout::Packed, pages: 0, state: Mutex::new(state) }
}

/// Finds where the records of a segment end: by its trailer, or one by one.
pub(crate) fn find_end(file: &dyn Reader, number: u64) -> Result<Segment> {
    let pages = file.bytes() / SECTOR_BYTES;
    let damaged =
        |at, what: &str, expected: String, found: &str| Err(Error::corruption(file.path(), at, what, expected, found));
    if pages < SEGMENT_BYTES_MIN / SECTOR_BYTES {
        return damaged(0, "file length", format!("{SEGMENT_BYTES_MIN} bytes at least"), &format!("{}", file.bytes()));
    }
    let mut frame = [0; FRAME_BYTES];
    file.read_at((pages - 1) * SECTOR_BYTES, &mut frame)?;
    if let Some(trailer) = Trailer::decode(&frame, pages).filter(|trailer| trailer.identity.segment == number) {
        let mut state = State::new(Phase::Sealed);
        state.seal(&trailer);
        let (identity, layout) = (trailer.identity, trailer.layout);
        return Ok(Segment { identity, layout, pages, state: Mutex::new(state) });
    }
    let has_rotted = frame.iter().any(|byte| *byte != 0);
    file.read_at(0, &mut frame)?;
    let Some(header) = SegmentHeader::decode(&frame).filter(|header| header.identity.segment == number) else {
        return damaged(0, "header of the segment", format!("the header of segment {number}"), "something else");
    };
    if header.pages != pages {
        return damaged(0, "file length", format!("{} pages", header.pages), &format!("{pages} pages"));
    }
    let mut scan = Scan::new(file, header.identity, header.layout, pages);
    scan.run(u64::MAX)?;
    let mut state = State::new(Phase::Abandoned);
    (state.data_end, state.readable_end, state.synced_end) = (scan.end(), scan.end(), scan.end());
    (state.records, state.record_bytes) = (u64::from(scan.index().records), scan.record_bytes());
    state.whole_bytes = scan.whole_bytes();
    let rot = |what| {
        Error::corruption(
            file.path(),
            (pages - 1) * SECTOR_BYTES,
            "trailer of the segment",
            "a trailer, or zeros",
            what,
        )
    };
    if has_rotted {
        state.damage = Some(rot("something else; the records were looked for, and the trailer is written anew"));
    }
    if scan.gave_up() {
        state.miss(rot("something else, and too much that looks like records and is none"));
    }
    Ok(Segment { identity: header.identity, layout: header.layout, pages, state: Mutex::new(state) })
}
