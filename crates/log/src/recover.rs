//! Reading a log back after a crash, a clean close, or rot: `docs/formats/log.md`, "Reading a log back".
//!
//! 1. Every file is synced. The bytes read may so far be in the page cache only. A second crash must not take back the
//!    state that was built on them.
//! 2. First pass, over all files: what do sound headers claim to be durable? (The claim about a page may stand in any
//!    later page, of a later file too.)
//! 3. Second pass: follow the pages, hand out the records. At the first page where the log does not go on, the claims
//!    decide between a torn tail and rot. A torn tail is dropped. Rot is an error or, in repair, a [`Loss`].
//!
//! **Invariants**: what is handed out without an error is a prefix of what was appended, in order, and holds every
//! synced record. Lengths found on disk are checked against the room behind them before memory is taken.
//! **Failure**: total over arbitrary bytes. After an error, records handed out before it must not be used.
//! **Rejected**: keeping the pages of the first pass in memory for the second. A log may be larger than the memory, and
//! the page cache has them.

use crate::inspect::Pages;
use crate::options::FILE_PAGES_MIN;
use crate::page::{
    Damage, Header, PAYLOAD_BYTES, PageState, RECORD_BYTES_MAX, RECORD_HEADER_BYTES, VERSION, payload, record_header,
};
use situ_device::PAGE_BYTES;
use situ_storage::{Error, FileName, PageFile, Result, Volume};
use std::sync::Arc;

/// The treatment of bytes that were durable and are damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryMode {
    /// Stop with an error that names the place. The store is not opened without its owner's decision.
    Strict,
    /// Leave the damaged records out, say what is lost, and go on with the next sound record. The result has holes.
    Repair,
}

/// The start of a record: for messages and for tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordPosition {
    /// Number of the log file.
    pub file: u64,
    /// Page in the file.
    pub page: u32,
    /// Offset in the page's payload.
    pub offset: u16,
}

/// The end of the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Tail {
    /// The log has no page at all.
    #[default]
    Empty,
    /// The log was closed: nothing is missing.
    Closed,
    /// The log stops in the middle of work, as after a crash. Records behind this place were never acknowledged as
    /// synced.
    Open {
        /// The last file that was read.
        file: u64,
        /// The page at which the log does not go on.
        page: u32,
        /// The reason why it does not go on.
        reason: String,
    },
}

/// Something that was durable and is not there any more.
#[derive(Debug, Clone)]
pub struct Loss {
    /// Number of the log file.
    pub file: u64,
    /// The first damaged page.
    pub first_page: u32,
    /// The number of damaged pages in a row. Whole records within them are lost, and their number is not known.
    pub pages: u32,
    /// Records of which a part was read and the rest is lost.
    pub records_cut: u64,
    /// Bytes of these parts, and of sound pages that belong to a record whose start is lost.
    pub bytes_dropped: u64,
    /// The error that strict recovery would have returned.
    pub error: Error,
}

/// The findings of a recovery.
#[derive(Debug, Clone, Default)]
pub struct RecoveryReport {
    /// Records handed out.
    pub records: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// The last of them.
    pub last: Option<RecordPosition>,
    /// The end of the last log in the files.
    pub tail: Tail,
    /// Pages behind a torn tail that were written and are not used.
    pub pages_discarded: u64,
    /// The damaged places that repair left out; empty in strict mode.
    pub lost: Vec<Loss>,
    /// Files with which a log begins, of those that were read.
    pub begun: Vec<u64>,
    /// Files that can be removed when a new log begins: those behind all others in which no page was ever written, and
    /// those that are a log of their own, closed, without a record.
    pub unused: Vec<u64>,
    /// Files whose first page has a damaged header, with the error for a file that is known to have been in use. A
    /// crash leaves such a page only in a file that was being made.
    pub headless: Vec<(u64, Error)>,
}

/// Hands out all records in `files`, which must be sorted, in the order they were appended. The slice is valid during
/// the call of `record` only. Reads the files twice; uses memory for 1 MiB and the longest record.
///
/// # Errors
/// Rot in [`Strict`](RecoveryMode::Strict) mode; a page of an unknown format version in both; whatever the volume or
/// `record` answers.
pub fn recover(
    volume: &Arc<dyn Volume>,
    files: &[u64],
    mode: RecoveryMode,
    record: &mut dyn FnMut(RecordPosition, &[u8]) -> Result<()>,
) -> Result<RecoveryReport> {
    if !files.is_sorted_by(|a, b| a < b) {
        return Err(Error::Invalid("log files must be given in ascending order".to_owned()));
    }
    let mut scans = Vec::with_capacity(files.len());
    for number in files {
        let file = volume.open_pages(FileName::Log(*number))?;
        file.sync()?;
        scans.push(Scan::new(*number, file)?);
    }
    // A claim about earlier files reaches back to the beginning of its log.
    let mut claimed = false;
    for scan in scans.iter_mut().rev() {
        scan.wholly_durable = claimed;
        claimed = (claimed || scan.previous_durable) && !scan.begins;
    }
    let mut reader = Reader {
        mode,
        record,
        report: RecoveryReport::default(),
        pending: Vec::new(),
        start: None,
        goes_on_behind: None,
    };
    reader.read_all(&scans)?;
    reader.look_for_next(&**volume, &scans)?;
    reader.report.headless = scans.iter().filter_map(|scan| Some((scan.number, scan.headless()?))).collect();
    Ok(reader.report)
}

/// The findings of the first pass about a file.
struct Scan {
    number: u64,
    file: Arc<dyn PageFile>,
    page_count: u32,
    /// Pages up to the last with a sound header.
    pages_present: u32,
    /// Pages that are known durable by this file's own claims.
    durable_pages: u32,
    /// True if a later file of the same log says that all of this one is durable.
    wholly_durable: bool,
    previous_durable: bool,
    begins: bool,
    previous: Option<u64>,
    first_damage: Option<(u32, Damage)>,
}

impl Scan {
    fn new(number: u64, file: Arc<dyn PageFile>) -> Result<Scan> {
        let mut scan = Scan {
            number,
            page_count: u32::try_from(file.pages()).unwrap_or(u32::MAX),
            pages_present: 0,
            durable_pages: 0,
            wholly_durable: false,
            previous_durable: false,
            begins: false,
            previous: None,
            first_damage: None,
            file: Arc::clone(&file),
        };
        let mut pages = Pages::new(file, number);
        while let Some(page) = pages.read_next_header() {
            let (number, header) = page?;
            let header = match header {
                Ok(Some(header)) => header,
                Ok(None) => continue,
                Err(damage) => {
                    if damage.is_version() {
                        return Err(scan.rot(number, &damage));
                    }
                    scan.first_damage.get_or_insert((number, damage));
                    continue;
                }
            };
            scan.pages_present = number + 1;
            scan.durable_pages = scan.durable_pages.max(header.durable_pages);
            scan.previous_durable |= header.previous_durable();
            scan.begins |= header.begins();
            scan.previous = header.file_number.checked_sub(u64::from(header.previous_distance));
        }
        Ok(scan)
    }

    fn rot(&self, page: u32, damage: &Damage) -> Error {
        let offset = u64::from(page) * PAGE_BYTES as u64;
        let what = format!("{} of log page {page}", damage.what);
        Error::corruption(self.file.path(), offset, what, &damage.expected, &damage.found)
    }

    /// Returns the error for a file that is shorter than it was.
    fn cut(&self, expected: &str) -> Error {
        let found = format!("{} pages: it was cut", self.page_count);
        Error::corruption(self.file.path(), u64::from(self.page_count) * PAGE_BYTES as u64, "length", expected, found)
    }

    /// Returns the error for a first page whose header is damaged, unless recovery has found the loss by itself.
    fn headless(&self) -> Option<Error> {
        let (_, damage) = self.first_damage.as_ref().filter(|(page, _)| *page == 0 && !self.is_known(0))?;
        Some(self.rot(0, damage))
    }

    fn is_known(&self, page: u32) -> bool {
        self.wholly_durable || page < self.durable_pages
    }
}

/// The end of a file for the reader.
enum End {
    Ended,
    Closed,
    Torn,
}

struct Reader<'a> {
    mode: RecoveryMode,
    record: &'a mut dyn FnMut(RecordPosition, &[u8]) -> Result<()>,
    report: RecoveryReport,
    /// The beginning of a record that goes on in the next page.
    pending: Vec<u8>,
    /// The start of the pending record; `None` when the reader must find the next record's start.
    start: Option<RecordPosition>,
    /// The file read last, and the page behind its end mark, if that says that the log goes on in another file.
    goes_on_behind: Option<(u64, u32)>,
}

impl Reader<'_> {
    fn read_all(&mut self, scans: &[Scan]) -> Result<()> {
        // The last file that was read to its end, and whether the log still goes on behind it.
        let mut ended = None;
        let mut lost_track = false;
        // The number of unused files that are closed logs without a record.
        let mut empty_logs = 0;
        for (index, scan) in scans.iter().enumerate() {
            let previous = index.checked_sub(1).map(|previous| scans[previous].number);
            let is_followed =
                scans[index + 1..].iter().any(|later| !later.begins && later.previous == Some(scan.number));
            let is_short = scan.page_count < FILE_PAGES_MIN && index + 1 < scans.len();
            if is_short && (is_followed || !self.was_being_made(scan, previous)) {
                self.lose(scan, 0, 0, scan.cut(&format!("at least {FILE_PAGES_MIN} pages")))?;
                continue;
            }
            if scan.pages_present == 0 {
                self.pass_over_empty(scan)?;
                continue;
            }
            self.report.unused.truncate(empty_logs);
            if scan.begins {
                self.report.begun.push(scan.number);
                lost_track = false;
            } else if !lost_track {
                let follows = match ended {
                    Some(ended) => scan.previous == Some(ended),
                    // The first one: those before it were released.
                    None => scan.previous.is_none_or(|previous| previous < scans[0].number),
                };
                if !follows {
                    lost_track = self.miss_a_file(scan, ended)?;
                }
            }
            if lost_track {
                self.report.pages_discarded += u64::from(scan.pages_present);
                continue;
            }
            let records = self.report.records;
            let end = self.read_file(scan)?;
            if scan.begins
                && matches!(end, End::Closed)
                && self.report.records == records
                && self.report.lost.is_empty()
            {
                self.report.unused.push(scan.number);
                empty_logs += 1;
            }
            lost_track = !matches!(end, End::Ended);
            ended = Some(scan.number);
        }
        Ok(())
    }

    /// Looks for the file behind the last one. A log that ends a file has made the next one, durably. If the last file
    /// of all is ended, another one was there and is gone. Nothing that is left says how much of it was durable. A file
    /// that was made since the files were listed is enough: the log is being written.
    fn look_for_next(&mut self, volume: &dyn Volume, scans: &[Scan]) -> Result<()> {
        let (Some((ended, page)), Some(scan)) = (self.goes_on_behind, scans.last()) else { return Ok(()) };
        if ended != scan.number {
            return Ok(());
        }
        let is_later = |name: FileName| matches!(name, FileName::Log(number) if number > scan.number);
        if volume.list()?.into_iter().any(|file| is_later(file.name)) {
            return Ok(());
        }
        let offset = u64::from(page) * PAGE_BYTES as u64;
        let expected =
            format!("a log file behind log file {}, which says that the log goes on in another", scan.number);
        let error = Error::corruption(scan.file.path(), offset, "next log file", expected, "no such file");
        self.lose(scan, page, 0, error)
    }

    /// Returns true if a file that is too short, and not the newest, can be one that was being made when a process
    /// ended. Another process has then opened the store since, made its own file, and ended before this one was
    /// removed. `previous` is the file before it: if that is ended, this one was whole.
    fn was_being_made(&self, scan: &Scan, previous: Option<u64>) -> bool {
        let is_expected = previous.is_some() && self.goes_on_behind.map(|(ended, _)| ended) == previous;
        // A crash may leave anything where nothing was written yet.
        let is_renamed = scan.first_damage.as_ref().is_some_and(|(_, damage)| damage.is_of_a_later_file());
        scan.pages_present == 0 && !is_renamed && !scan.wholly_durable && !is_expected
    }

    /// Passes over a file without any sound page. It was never used, unless it is claimed to be durable or a page in it
    /// is damaged.
    fn pass_over_empty(&mut self, scan: &Scan) -> Result<()> {
        match &scan.first_damage {
            Some((page, damage)) if scan.wholly_durable || damage.is_of_a_later_file() => {
                let error = scan.rot(*page, damage);
                self.lose(scan, 0, scan.page_count, error)
            }
            Some(_) => Ok(()),
            None => {
                self.report.unused.push(scan.number);
                Ok(())
            }
        }
    }

    /// Handles a file that does not follow the one before it. Returns true if the log is to be left there.
    fn miss_a_file(&mut self, scan: &Scan, ended: Option<u64>) -> Result<bool> {
        let previous = scan.previous.unwrap_or(0);
        let found = match ended {
            Some(ended) => format!("log file {ended}"),
            None => "no such file, or an empty one".to_owned(),
        };
        if !scan.previous_durable {
            let reason = format!("log file {previous} is missing or was never written");
            self.report.tail = Tail::Open { file: ended.unwrap_or(previous), page: 0, reason };
            return Ok(true);
        }
        let expected = format!("log file {previous}, which was durable, before log file {}", scan.number);
        let error = Error::corruption(scan.file.path(), 0, "place in the log", expected, found);
        self.lose(scan, 0, 0, error)?;
        Ok(false)
    }

    fn read_file(&mut self, scan: &Scan) -> Result<End> {
        self.pending.clear();
        self.goes_on_behind = None;
        self.start = Some(RecordPosition { file: scan.number, page: 0, offset: 0 });
        let mut previous_used = Some(0);
        let mut pages = Pages::new(Arc::clone(&scan.file), scan.number);
        while let Some(page) = pages.read_next() {
            let (page, bytes) = page?;
            let number = page.number;
            if number >= scan.pages_present {
                break;
            }
            if let (Some(used), Some(header)) = (previous_used, page.state.header())
                && header.previous_used != used
            {
                let damage = Damage {
                    what: "final image",
                    expected: format!("{} bytes used", header.previous_used),
                    found: format!("an older image with {used} bytes used"),
                };
                if !scan.is_known(number.saturating_sub(1)) {
                    return Ok(self.torn(scan, number, &damage));
                }
                self.lose(scan, number.saturating_sub(1), 1, scan.rot(number.saturating_sub(1), &damage))?;
            }
            match &page.state {
                PageState::Good(header) => {
                    self.feed(scan, header, &payload(bytes)[..usize::from(header.used)])?;
                    previous_used = Some(header.used);
                    if header.ended() {
                        return Ok(self.end(scan, header));
                    }
                }
                state => {
                    let (damage, rotten) = describe(state);
                    if !rotten && !scan.is_known(number) {
                        if let PageState::Torn(header) = state {
                            self.feed(scan, header, &payload(bytes)[..usize::from(header.durable_used)])?;
                        }
                        return Ok(self.torn(scan, number, &damage));
                    }
                    self.lose(scan, number, 1, scan.rot(number, &damage))?;
                    if let PageState::Torn(header) = state {
                        self.feed(scan, header, &payload(bytes)[..usize::from(header.durable_used)])?;
                        self.drop_pending();
                    }
                    previous_used = None;
                    if let Some(header) = state.header().filter(|header| header.ended()) {
                        return Ok(self.end(scan, header));
                    }
                }
            }
        }
        // Behind the last page with a sound header.
        let behind = scan.pages_present;
        if behind == scan.page_count {
            // The last page of a file is kept for its end mark, and files are as long as they will be before they are
            // used.
            self.lose(scan, behind, 0, scan.cut(&format!("pages behind page {}", behind.saturating_sub(1))))?;
            return Ok(End::Ended);
        }
        let nothing = Damage {
            what: "header",
            expected: "a page, or an end mark before it".to_owned(),
            found: "a page that was not written".to_owned(),
        };
        let damage = match &scan.first_damage {
            Some((page, damage)) if *page == behind => damage,
            _ => &nothing,
        };
        if scan.is_known(behind) || damage.is_of_a_later_file() {
            self.lose(scan, behind, 1, scan.rot(behind, damage))?;
            return Ok(End::Ended);
        }
        Ok(self.torn(scan, behind, damage))
    }

    fn end(&mut self, scan: &Scan, header: &Header) -> End {
        if !header.closed() {
            let reason = "the file ended, and the next one was not begun".to_owned();
            let page = header.page_number.saturating_add(1);
            self.goes_on_behind = Some((scan.number, page));
            self.report.tail = Tail::Open { file: scan.number, page, reason };
            return End::Ended;
        }
        self.report.tail = Tail::Closed;
        End::Closed
    }

    fn torn(&mut self, scan: &Scan, page: u32, damage: &Damage) -> End {
        self.pending.clear();
        let Damage { what, expected, found } = damage;
        let reason = format!("{what}: expected {expected}, found {found}");
        self.report.tail = Tail::Open { file: scan.number, page, reason };
        self.report.pages_discarded += u64::from(scan.pages_present.saturating_sub(page));
        End::Torn
    }

    /// Reports that something durable is gone, by an error or a note.
    fn lose(&mut self, scan: &Scan, first_page: u32, pages: u32, error: Error) -> Result<()> {
        if self.mode == RecoveryMode::Strict {
            return Err(error);
        }
        match self.report.lost.last_mut() {
            Some(last) if last.file == scan.number && last.first_page.checked_add(last.pages) == Some(first_page) => {
                last.pages = last.pages.saturating_add(pages);
            }
            _ => {
                let loss = Loss { file: scan.number, first_page, pages, records_cut: 0, bytes_dropped: 0, error };
                self.report.lost.push(loss);
            }
        }
        self.drop_pending();
        Ok(())
    }

    /// Gives up the record that was begun, and looks for the start of another.
    fn drop_pending(&mut self) {
        if let (Some(loss), false) = (self.report.lost.last_mut(), self.pending.is_empty()) {
            loss.records_cut += 1;
            loss.bytes_dropped += self.pending.len() as u64;
        }
        self.pending.clear();
        self.start = None;
    }

    /// Takes the used payload of the next page.
    fn feed(&mut self, scan: &Scan, header: &Header, payload: &[u8]) -> Result<()> {
        let mut at = 0;
        if self.start.is_none() {
            // Behind a loss: what comes before the first start belongs to a record whose start is gone.
            at = header.first_record.map_or(payload.len(), usize::from).min(payload.len());
            if let Some(loss) = self.report.lost.last_mut() {
                loss.bytes_dropped += at as u64;
            }
            if header.first_record.is_none() {
                return Ok(());
            }
        }
        let mut first = header.first_record.map(usize::from).filter(|first| *first < payload.len());
        while at < payload.len() {
            if self.pending.is_empty() {
                let found = first.take();
                if found.is_some_and(|first| first != at) || (found.is_none() && header.first_record.is_none()) {
                    let expected = format!("a record start at payload byte {at}");
                    let found = format!("first_record {:?}", header.first_record);
                    return self.bad_record(scan, header.page_number, "first_record", expected, found);
                }
                self.start = Some(RecordPosition { file: scan.number, page: header.page_number, offset: at as u16 });
            }
            match self.take(scan, header.page_number, &payload[at..])? {
                Some(count) => at += count,
                None => return Ok(()),
            }
        }
        let cut = usize::from(header.used) < PAYLOAD_BYTES && payload.len() == usize::from(header.used);
        if cut && !self.pending.is_empty() {
            let found = format!("{} bytes of a longer one", self.pending.len());
            return self.bad_record(scan, header.page_number, "last record", "a whole record".to_owned(), found);
        }
        Ok(())
    }

    /// Takes bytes of one record from the front of `bytes`; how many, or `None` if the record is bad (in repair).
    fn take(&mut self, scan: &Scan, page: u32, bytes: &[u8]) -> Result<Option<usize>> {
        let pending = self.pending.len();
        if pending == 0 && bytes.len() < RECORD_HEADER_BYTES {
            self.pending.extend_from_slice(bytes);
            return Ok(Some(bytes.len()));
        }
        if pending > 0 && pending < RECORD_HEADER_BYTES {
            let count = bytes.len().min(RECORD_HEADER_BYTES - pending);
            self.pending.extend_from_slice(&bytes[..count]);
            // An empty record is complete with its header.
            if self.pending.len() == RECORD_HEADER_BYTES && self.pending[..4] == [0; 4] {
                return Ok(self.finish_pending(scan, page)?.then_some(count));
            }
            return Ok(Some(count));
        }
        let header = if pending == 0 { bytes } else { &self.pending };
        let Some(length) = header.first_chunk::<4>() else { return Ok(Some(0)) };
        let length = u32::from_le_bytes(*length) as usize;
        let room = u64::from(scan.page_count.saturating_sub(page)) * PAYLOAD_BYTES as u64 + pending as u64;
        if length > RECORD_BYTES_MAX || (length + RECORD_HEADER_BYTES) as u64 > room {
            let found = format!("{length} bytes");
            self.bad_record(scan, page, "record length", format!("at most {room} bytes"), found)?;
            return Ok(None);
        }
        let whole = RECORD_HEADER_BYTES + length;
        if pending == 0 && bytes.len() >= whole {
            return Ok(self.hand_out(scan, page, &bytes[..whole])?.then_some(whole));
        }
        let count = bytes.len().min(whole - pending);
        if self.pending.try_reserve(whole - pending).is_err() {
            return Err(Error::out_of_memory(whole, format_args!("a record of {}", FileName::Log(scan.number))));
        }
        self.pending.extend_from_slice(&bytes[..count]);
        if self.pending.len() == whole {
            return Ok(self.finish_pending(scan, page)?.then_some(count));
        }
        Ok(Some(count))
    }

    fn finish_pending(&mut self, scan: &Scan, page: u32) -> Result<bool> {
        let mut record = std::mem::take(&mut self.pending);
        let good = self.hand_out(scan, page, &record)?;
        record.clear();
        self.pending = record;
        Ok(good)
    }

    /// Checks a whole record, header in front, and hands it out. False if it is bad (in repair).
    fn hand_out(&mut self, scan: &Scan, page: u32, record: &[u8]) -> Result<bool> {
        let (Some((header, body)), Some(start)) = (record.split_first_chunk::<RECORD_HEADER_BYTES>(), self.start)
        else {
            return Ok(false);
        };
        // The length is the one in the header: it was used to find the record's end.
        let computed = record_header(body.len() as u32, &[body]);
        if computed != *header {
            let expected = format!("{:02x?}", &header[4..]);
            let found = format!("{:02x?}", &computed[4..]);
            self.bad_record(scan, page, "record checksum", expected, found)?;
            return Ok(false);
        }
        let last = self.report.last;
        assert!(last.is_none_or(|last| last < start), "{start:?} is handed out behind {last:?}");
        self.report.records += 1;
        self.report.bytes += body.len() as u64;
        self.report.last = Some(start);
        (self.record)(start, body)?;
        Ok(true)
    }

    /// Handles a damaged record inside sound pages. In repair, reading goes on with the next page in which a record
    /// starts.
    fn bad_record(&mut self, scan: &Scan, page: u32, what: &str, expected: String, found: String) -> Result<()> {
        let start = self.start.unwrap_or(RecordPosition { file: scan.number, page, offset: 0 });
        let offset =
            u64::from(start.page) * PAGE_BYTES as u64 + (PAGE_BYTES - PAYLOAD_BYTES) as u64 + u64::from(start.offset);
        let error = Error::corruption(scan.file.path(), offset, what, expected, found);
        let pages = page.saturating_sub(start.page).saturating_add(1);
        self.lose(scan, start.page, pages, error)
    }
}

/// Says what is wrong with a page that is not good, and whether that can only be rot.
fn describe(state: &PageState) -> (Damage, bool) {
    let damage =
        |what, expected: &str, found: &str| Damage { what, expected: expected.to_owned(), found: found.to_owned() };
    match state {
        PageState::Damaged(inner) => (inner.clone(), inner.is_of_a_later_file()),
        PageState::Rotten(_, inner) => (inner.clone(), true),
        PageState::Torn(header) => {
            let found =
                format!("a page that was only partly written, with {} bytes synced before", header.durable_used);
            (damage("payload", &format!("{} bytes with their checksum", header.used), &found), false)
        }
        PageState::NotWritten | PageState::Good(_) => {
            (damage("header", &format!("a page of version {VERSION}"), "a page that was not written"), false)
        }
    }
}
