//! A client's open files and writers, and its rights over one connection.

use super::Files;
use super::images::Images;
use super::listing::Listing;
use super::open_files::Place;
use super::pages::Pages;
use super::writer::Unfinished;
use crate::changes;
use crate::error::CallError;
use crate::gate::{Gate, Pass};
use crate::lease::Owner;
use crate::message::PatchPages;
use situ_base::{Env, lock};
use situ_device::Buffer;
use situ_storage::memory::zeroed;
use situ_storage::{Error, FileMeta, FileName, PAGE_BYTES, PageFile, Reader, Volume};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Result<T> = std::result::Result<T, CallError>;

/// A client's, over all its connections.
pub(super) struct Session {
    env: Env,
    state: Mutex<State>,
    images: Images,
    listing: Listing,
}

#[derive(Default)]
struct State {
    handles: HashMap<u64, Kept>,
    writers: HashMap<u64, Arc<Unfinished>>,
    /// Of the newest connection.
    gate: Option<Arc<Gate>>,
    /// Closed ones of earlier connections, with changes inside.
    former: Vec<Arc<Gate>>,
    /// Since when the client has no connection.
    away_since: Option<Duration>,
}

/// An open file, and its place among all that are open.
struct Kept {
    handle: Handle,
    _place: Place,
}

#[derive(Clone)]
enum Handle {
    File(FileName, Arc<dyn Reader>),
    Pages(FileName, Arc<Pages>),
}

impl Session {
    pub(super) fn new(env: &Env) -> Session {
        Session { env: env.clone(), state: Mutex::default(), images: Images::default(), listing: Listing::default() }
    }

    /// The gate of a new connection is the newest one. All others are closed; those with a change inside are returned.
    pub(super) fn set_gate(&self, gate: &Arc<Gate>) -> Vec<Arc<Gate>> {
        let mut state = lock(&self.state);
        state.away_since = None;
        let last = state.gate.replace(Arc::clone(gate));
        state.former.extend(last);
        state.former.retain(|former| !former.close());
        state.former.clone()
    }

    /// Returns true if a change of any of its connections is under way.
    pub(super) fn is_changing(&self) -> bool {
        let state = lock(&self.state);
        state.gate.iter().chain(&state.former).any(|gate| !gate.is_empty())
    }

    /// Returns true if the client would find nothing if it came back.
    pub(super) fn has_nothing(&self) -> bool {
        let state = lock(&self.state);
        state.handles.is_empty() && state.writers.is_empty()
    }

    fn leave(&self, gate: &Arc<Gate>) {
        let mut state = lock(&self.state);
        if state.gate.as_ref().is_some_and(|newest| Arc::ptr_eq(newest, gate)) {
            state.away_since = Some(self.env.clock.now());
        }
    }

    pub(super) fn away_for(&self, now: Duration) -> Option<Duration> {
        lock(&self.state).away_since.map(|since| now.saturating_sub(since))
    }

    pub(super) fn is_attached(&self) -> bool {
        let state = lock(&self.state);
        state.gate.is_some() && state.away_since.is_none()
    }
}

/// A file that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenedFile {
    /// For messages.
    pub(crate) path: String,
    /// Its length.
    pub(crate) bytes: u64,
}

/// A page file that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenedPages {
    /// For messages.
    pub(crate) path: String,
    /// Its length in pages.
    pub(crate) pages: u64,
    /// As [`PageFile::writes_wait`].
    pub(crate) writes_wait: bool,
}

/// A session, as one connection uses it. Dropped, the client is away.
pub(crate) struct Attached {
    pub(super) files: Arc<Files>,
    pub(super) session: Arc<Session>,
    pub(super) gate: Arc<Gate>,
    pub(super) client: Owner,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.leave();
    }
}

// The right to change.
impl Attached {
    /// The connection is lost.
    pub(crate) fn leave(&self) {
        self.session.leave(&self.gate);
    }

    /// Returns the time for which an owner of the lease may be silent.
    pub(crate) fn term(&self) -> Duration {
        self.files.lease.term()
    }

    /// All files of the store.
    pub(crate) fn files(&self) -> &Arc<Files> {
        &self.files
    }

    /// Returns the volume, for services that read the files here.
    pub(crate) fn volume(&self) -> &Arc<dyn Volume> {
        &self.files.volume
    }

    /// Takes the lease; see [`Lease::take`](crate::lease::Lease::take).
    ///
    /// # Errors
    /// See there.
    pub(crate) fn lock(&self, patience: Duration) -> Result<u64> {
        Ok(self.files.lease.take(&self.client, patience, &*self.files)?)
    }

    /// Says that the owner of the lease is alive.
    ///
    /// # Errors
    /// [`Locked`](Error::Locked): another client has it.
    pub(crate) fn renew(&self, token: u64) -> Result<()> {
        self.files.lease.renew(token, self.client.id)
    }

    /// Ends the session: the lease is given back, files are closed, writers dropped.
    pub(crate) fn end(&self) {
        self.files.lease.give_back_of(self.client.id);
        let ended = std::mem::take(&mut *lock(&self.session.state));
        drop(ended);
        lock(&self.files.sessions).remove(&self.client.id);
    }

    /// Gives the lease back.
    pub(crate) fn unlock(&self, token: u64) {
        self.files.lease.give_back(token);
    }

    /// Lets a change in, or says why not.
    pub(crate) fn enter(&self, token: u64) -> Result<(Pass, Pass)> {
        let connection = self.enter_connection()?;
        Ok((connection, self.files.lease.enter(token, self.client.id)?))
    }

    fn enter_connection(&self) -> Result<Pass> {
        let why = "the client has connected anew, and this connection changes nothing any more";
        self.gate.enter().ok_or_else(|| CallError::Busy(why.to_owned()))
    }
}

// Names.
impl Attached {
    /// The files behind `after` in the order of names, `most` at most, and whether there are more.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn list(&self, after: Option<FileName>, most: usize) -> Result<(Vec<FileMeta>, bool)> {
        let list = || {
            let mut files = self.files.volume.list()?;
            files.retain(|file| file.name != FileName::Lock);
            Ok(files)
        };
        let now = self.files.env.clock.now();
        Ok(self.session.listing.part(after, most, now, list)?)
    }

    /// The length of a file; `None` if there is none of this name. No list is made for that.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn stat(&self, name: FileName) -> Result<Option<u64>> {
        if name == FileName::Lock {
            return Ok(None);
        }
        match self.files.volume.open(name) {
            Ok(file) => Ok(Some(file.bytes())),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// # Errors
    /// As [`Volume::replace`](situ_storage::Volume::replace).
    pub(crate) fn replace(&self, token: u64, name: FileName, contents: &[u8]) -> Result<()> {
        let _passes = self.enter(token)?;
        check_name(name)?;
        let _replacing = self.files.use_replacement();
        Ok(self.files.volume.replace(name, contents)?)
    }

    /// # Errors
    /// As [`Volume::rename`](situ_storage::Volume::rename).
    pub(crate) fn rename(&self, token: u64, from: FileName, to: FileName) -> Result<()> {
        let _passes = self.enter(token)?;
        check_name(from)?;
        check_name(to)?;
        Ok(self.files.volume.rename(from, to)?)
    }

    /// # Errors
    /// As [`Volume::remove`](situ_storage::Volume::remove).
    pub(crate) fn remove(&self, token: u64, name: FileName) -> Result<()> {
        let _passes = self.enter(token)?;
        check_name(name)?;
        Ok(self.files.volume.remove(name)?)
    }

    /// # Errors
    /// As [`Volume::sync_names`](situ_storage::Volume::sync_names).
    pub(crate) fn sync_names(&self, token: u64) -> Result<()> {
        let _passes = self.enter(token)?;
        Ok(self.files.volume.sync_names()?)
    }

    /// # Errors
    /// The lease is another client's.
    pub(crate) fn tidy(&self, token: u64) -> Result<bool> {
        let _passes = self.enter(token)?;
        Ok(self.files.volume.tidy())
    }
}

/// No file is longer.
const FILE_BYTES_MAX: u64 = 1 << 56;

/// An offset or a length that a client sent.
fn check_bytes(bytes: u64) -> Result<()> {
    match bytes {
        0..=FILE_BYTES_MAX => Ok(()),
        _ => Err(invalid(format!("no file has {bytes} bytes"))),
    }
}

/// Returns the number of bytes that these ranges have, which are `most` at most.
fn check_read(ranges: &[(u64, u32)], most: usize) -> Result<usize> {
    let bytes: u64 = ranges.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(u64::from(*bytes)));
    if bytes > most as u64 {
        return Err(invalid(format!("an answer here has at most {most} bytes, and this read asks for {bytes}")));
    }
    ranges.iter().try_for_each(|(offset, _)| check_bytes(*offset))?;
    Ok(bytes as usize)
}

/// The lock of a store is the node's business.
fn check_name(name: FileName) -> Result<()> {
    match name {
        FileName::Lock => Err(invalid(format!("{name} is no file that a client of a node may change"))),
        _ => Ok(()),
    }
}

// Files that are read.
impl Attached {
    /// Opens a finished file under a number of the client's choice.
    ///
    /// # Errors
    /// As [`Volume::open`](situ_storage::Volume::open); the number means another file, or the client has too many open.
    pub(crate) fn open(&self, number: u64, name: FileName) -> Result<OpenedFile> {
        let file = match self.handle_of(number, name)? {
            Some(Handle::File(_, file)) => file,
            Some(Handle::Pages(..)) => return Err(another_file(number)),
            None => {
                let place = self.place()?;
                let file = self.files.volume.open(name)?;
                self.keep(number, Handle::File(name, Arc::clone(&file)), place);
                file
            }
        };
        Ok(OpenedFile { path: file.path().to_owned(), bytes: file.bytes() })
    }

    /// Opens a page file under a number of the client's choice.
    ///
    /// # Errors
    /// As [`open`](Attached::open).
    pub(crate) fn open_pages(&self, number: u64, name: FileName) -> Result<OpenedPages> {
        match self.handle_of(number, name)? {
            Some(Handle::Pages(_, pages)) => Ok(opened(&pages)),
            Some(Handle::File(..)) => Err(another_file(number)),
            None => {
                let place = self.place()?;
                Ok(self.keep_pages(number, name, self.files.volume.open_pages(name)?, place))
            }
        }
    }

    /// Closes all files but these.
    pub(crate) fn keep_only(&self, numbers: &[u64]) {
        let numbers: HashSet<u64> = numbers.iter().copied().collect();
        let mut closed = Vec::new();
        let mut state = lock(&self.session.state);
        closed.extend(state.handles.extract_if(|number, _| !numbers.contains(number)));
        drop(state);
    }

    /// Closes a file. A number that means no file is none that is open.
    pub(crate) fn close(&self, number: u64) {
        let closed = lock(&self.session.state).handles.remove(&number);
        drop(closed);
    }

    /// The bytes of these ranges, one behind the other: `most` at most, which is what an answer to the client may have.
    ///
    /// # Errors
    /// As [`Reader::read_at`]; the number means no open file, or the bytes are more. Nothing was read then.
    pub(crate) fn read(&self, number: u64, ranges: &[(u64, u32)], most: usize) -> Result<Vec<u8>> {
        let bytes = check_read(ranges, most)?;
        let handle = self.handle(number)?;
        let mut data = zeroed(bytes, "an answer to a read")?;
        let mut rest = &mut data[..];
        for (offset, bytes) in ranges {
            let (into, behind) = rest.split_at_mut(*bytes as usize);
            match &handle {
                Handle::Pages(_, pages) => pages.read_at(*offset, into)?,
                Handle::File(_, file) => file.read_at(*offset, into)?,
            }
            rest = behind;
        }
        Ok(data)
    }

    /// # Errors
    /// The number means no file that is read.
    pub(crate) fn prefetch(&self, number: u64, offset: u64, bytes: u64) -> Result<()> {
        if let Handle::File(_, file) = self.handle(number)? {
            file.prefetch(offset, bytes);
        }
        Ok(())
    }

    fn handle(&self, number: u64) -> Result<Handle> {
        let found = lock(&self.session.state).handles.get(&number).map(|kept| kept.handle.clone());
        found.ok_or_else(|| not_open(number))
    }

    fn handle_of(&self, number: u64, name: FileName) -> Result<Option<Handle>> {
        let found = lock(&self.session.state).handles.get(&number).map(|kept| kept.handle.clone());
        match &found {
            Some(Handle::File(other, _) | Handle::Pages(other, _)) if *other != name => Err(another_file(number)),
            _ => Ok(found),
        }
    }

    fn keep(&self, number: u64, handle: Handle, place: Place) {
        // A copy of the same request may have been quicker. Its file is closed without the lock.
        let former = lock(&self.session.state).handles.insert(number, Kept { handle, _place: place });
        drop(former);
    }

    /// A place for a file that is to be opened. It is taken before the volume opens or makes the file: a file that is
    /// refused must not be there when the client tries again.
    fn place(&self) -> Result<Place> {
        let state = lock(&self.session.state);
        let most = self.files.limits.handles;
        if state.handles.len() >= most {
            return Err(invalid(format!("the client has {most} files open on the node, and no more are opened")));
        }
        Ok(self.files.limits.open.place(state.handles.len() + state.writers.len())?)
    }

    fn keep_pages(&self, number: u64, name: FileName, pages: Arc<dyn PageFile>, place: Place) -> OpenedPages {
        let pages = Arc::new(Pages::new(pages));
        self.keep(number, Handle::Pages(name, Arc::clone(&pages)), place);
        opened(&pages)
    }
}

fn opened(pages: &Pages) -> OpenedPages {
    OpenedPages { path: pages.path().to_owned(), pages: pages.pages(), writes_wait: pages.writes_wait() }
}

fn another_file(number: u64) -> CallError {
    invalid(format!("the client's number {number} means another file already"))
}

fn invalid(why: String) -> CallError {
    CallError::Storage(Error::Invalid(why))
}

/// Returns the error for a number that this node does not know: since the node was restarted, or ever.
fn not_open(number: u64) -> CallError {
    CallError::Unknown(format!("no file is open on the node under the number {number}; open it again"))
}

/// The client sends the whole page then.
fn no_image(page: u64, path: &str) -> CallError {
    CallError::Unknown(format!("the node has not the client's image of page {page} of {path}"))
}

// Files that are written.
impl Attached {
    /// Reserves a page file, and opens it.
    ///
    /// # Errors
    /// As [`Volume::create_pages`](situ_storage::Volume::create_pages).
    pub(crate) fn create_pages(&self, token: u64, number: u64, name: FileName, bytes: u64) -> Result<OpenedPages> {
        let _passes = self.enter(token)?;
        check_name(name)?;
        check_bytes(bytes)?;
        if let Some(Handle::Pages(_, pages)) = self.handle_of(number, name)? {
            return Ok(opened(&pages));
        }
        let place = self.place()?;
        Ok(self.keep_pages(number, name, self.files.volume.create_pages(name, bytes)?, place))
    }

    /// Writes whole pages.
    ///
    /// # Errors
    /// As [`PageFile::write`]; the pages are not whole, or not the file's.
    pub(crate) fn write_pages(&self, token: u64, number: u64, first: u64, bytes: &[u8], durable: bool) -> Result<()> {
        let _passes = self.enter(token)?;
        let pages = self.pages(number)?;
        let count = bytes.len() / PAGE_BYTES;
        let end = first.checked_add(count as u64).filter(|end| *end <= pages.pages());
        if !bytes.len().is_multiple_of(PAGE_BYTES) || end.is_none() {
            let (length, has) = (bytes.len(), pages.pages());
            let why = format!("{length} bytes at page {first} are no pages of {}, which has {has}", pages.path());
            return Err(invalid(why));
        }
        if count == 0 {
            return if durable { Ok(pages.sync()?) } else { Ok(()) };
        }
        self.write_whole(&pages, (number, first), Buffer::copy_of(bytes), count, durable)
    }

    /// Writes whole pages of which the client has sent what changed.
    ///
    /// # Errors
    /// As [`write_pages`](Attached::write_pages). [`Unknown`](CallError::Unknown): there is no image of the first page
    /// here, or it is not the client's; nothing was written then.
    pub(crate) fn patch_pages(&self, patch: &PatchPages) -> Result<()> {
        let _passes = self.enter(patch.token)?;
        let pages = self.pages(patch.handle)?;
        let (first, count) = (u64::from(patch.first), usize::from(patch.pages));
        if !(1..=changes::PAGES_MAX).contains(&count) || first + count as u64 > pages.pages() {
            return Err(invalid(format!("{count} pages at page {first} are not to be changed in {}", pages.path())));
        }
        let image = self.session.images.take(patch.handle, first).filter(|_| patch.on_image);
        let mut buffer = match (image, patch.on_image) {
            (None, true) => return Err(no_image(first, pages.path())),
            (Some(image), _) if count == 1 => image,
            (image, _) => {
                let mut buffer = Buffer::new(count * PAGE_BYTES);
                image.iter().for_each(|image| buffer[..PAGE_BYTES].copy_from_slice(&image[..PAGE_BYTES]));
                buffer
            }
        };
        let changed = &mut buffer[..count * PAGE_BYTES];
        if changes::apply(&patch.pieces.0, changed).is_none() {
            return Err(invalid(format!("the pieces for page {first} of {} are none", pages.path())));
        }
        if crc32c::crc32c(changed) != patch.check {
            return Err(no_image(first, pages.path()));
        }
        self.write_whole(&pages, (patch.handle, first), buffer, count, patch.durable)
    }

    /// Writes pages, and keeps the image of the last one: it may be changed next.
    fn write_whole(
        &self,
        pages: &Pages,
        (number, first): (u64, u64),
        buffer: Buffer,
        count: usize,
        durable: bool,
    ) -> Result<()> {
        let end = first + count as u64;
        assert!((1..=buffer.len() / PAGE_BYTES).contains(&count), "{count} pages of {} bytes", buffer.len());
        assert!(end <= pages.pages(), "pages to {end} of {}, which has {}", pages.path(), pages.pages());
        self.session.images.forget(number, first..end);
        pages.write(first, &buffer, count, durable)?;
        let last = match count {
            1 => buffer,
            _ => Buffer::copy_of(&buffer[(count - 1) * PAGE_BYTES..][..PAGE_BYTES]),
        };
        self.session.images.put(number, end - 1, last);
        Ok(())
    }

    /// Makes pages durable. Token 0, of a client that only reads, will do: it changes nothing that can be read. A sync
    /// that fails fails for good: the system may have forgotten the pages.
    ///
    /// # Errors
    /// As [`PageFile::sync`].
    pub(crate) fn sync_pages(&self, token: u64, number: u64) -> Result<()> {
        let _connection = self.enter_connection()?;
        let _lease = if token == 0 { None } else { Some(self.files.lease.enter(token, self.client.id)?) };
        Ok(self.pages(number)?.sync()?)
    }

    /// Returns true if the system only takes pages of the file into memory when they need not be durable.
    pub(crate) fn takes_pages_at_once(&self, number: u64) -> bool {
        self.pages(number).is_ok_and(|pages| !pages.writes_wait())
    }

    fn pages(&self, number: u64) -> Result<Arc<Pages>> {
        match self.handle(number)? {
            Handle::Pages(_, pages) => Ok(pages),
            Handle::File(..) => Err(another_file(number)),
        }
    }

    /// Begins a file under a number of the client's choice.
    ///
    /// # Errors
    /// As [`Volume::create`](situ_storage::Volume::create); the number means another file, or the client writes too
    /// many.
    pub(crate) fn create(&self, token: u64, number: u64, name: FileName, bound: u64) -> Result<()> {
        let _passes = self.enter(token)?;
        check_name(name)?;
        check_bytes(bound)?;
        if self.writer_of(number, name)?.is_some() {
            return Ok(());
        }
        let place = self.writer_place()?;
        let made = self.files.volume.create(name, bound)?;
        self.keep_writer(number, Unfinished::new(&self.files.env, name, made, place));
        Ok(())
    }

    /// Goes on with an unfinished file of which this node knows no writer any more. Its first `bytes` are copied to a
    /// new file that takes its name; what is behind them is dropped.
    ///
    /// # Errors
    /// The file is shorter, or the volume refuses.
    pub(crate) fn resume(&self, token: u64, number: u64, name: FileName, bytes: u64) -> Result<()> {
        let _passes = self.enter(token)?;
        check_name(name)?;
        if self.writer_of(number, name)?.is_some() {
            return Ok(());
        }
        let place = self.writer_place()?;
        let writer = self.files.copy_front(name, bytes)?;
        self.keep_writer(number, Unfinished::new(&self.files.env, name, writer, place));
        Ok(())
    }

    /// Appends bytes that begin at `offset`, as far as the file does not have them; its length then.
    ///
    /// # Errors
    /// As [`Writer::append`](situ_storage::Writer::append); the file is shorter than `offset`.
    pub(crate) fn append(&self, token: u64, number: u64, offset: u64, bytes: &[u8]) -> Result<u64> {
        let _passes = self.enter(token)?;
        check_bytes(offset)?;
        Ok(self.writer(number)?.append(offset, bytes)?)
    }

    /// As [`Writer::sync`](situ_storage::Writer::sync), or [`Writer::flush`](situ_storage::Writer::flush) unless
    /// `durable`, of a file that has `bytes`.
    ///
    /// # Errors
    /// See there; the file has another length.
    pub(crate) fn sync(&self, token: u64, number: u64, bytes: u64, durable: bool) -> Result<u64> {
        let _passes = self.enter(token)?;
        Ok(self.writer(number)?.sync(bytes, durable)?)
    }

    /// As [`Writer::finish`](situ_storage::Writer::finish), of a file that has `bytes`. Once more is once.
    ///
    /// # Errors
    /// See there; the file has another length.
    pub(crate) fn finish(&self, token: u64, number: u64, bytes: u64) -> Result<u64> {
        let _passes = self.enter(token)?;
        Ok(self.writer(number)?.finish(bytes)?)
    }

    /// Drops a writer. An unfinished file stays, for the owner of the store to remove.
    pub(crate) fn forget(&self, number: u64) {
        let forgotten = lock(&self.session.state).writers.remove(&number);
        drop(forgotten);
    }

    fn writer(&self, number: u64) -> Result<Arc<Unfinished>> {
        let found = lock(&self.session.state).writers.get(&number).cloned();
        found.ok_or_else(|| not_open(number))
    }

    fn writer_of(&self, number: u64, name: FileName) -> Result<Option<Arc<Unfinished>>> {
        let found = lock(&self.session.state).writers.get(&number).cloned();
        match &found {
            Some(other) if other.name != name => Err(another_file(number)),
            _ => Ok(found),
        }
    }

    fn keep_writer(&self, number: u64, writer: Unfinished) {
        let former = lock(&self.session.state).writers.insert(number, Arc::new(writer));
        drop(former);
    }

    /// As [`place`](Attached::place), for a file that is to be made.
    fn writer_place(&self) -> Result<Place> {
        let mut state = lock(&self.session.state);
        let most = self.files.limits.writers;
        if state.writers.len() >= most {
            // The client's message that it has the answer was lost with a connection.
            state.writers.retain(|_, writer| !writer.is_finished());
        }
        if state.writers.len() >= most {
            return Err(invalid(format!("the client writes {most} files on the node, and no more are begun")));
        }
        Ok(self.files.limits.open.place(state.handles.len() + state.writers.len())?)
    }
}
