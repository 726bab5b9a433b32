//! What outlives the process beside the log on flash, so that a restart trusts what it finds there.
//!
//! The log alone does not say which of its items were replaced or deleted while the newer value lay in memory. So each death of an item on
//! flash is noted here, before anybody can see it.
//!
//! | file | content |
//! |---|---|
//! | `PREFIX.journal-0`, `PREFIX.journal-1` | deaths of items and of segments, 16 bytes each |
//! | `PREFIX.index` | the index, as it was at a clean stop; it is removed at the start |
//! | `PREFIX.records` | records of the cache's owner, and which journal is the newest |
//! | `PREFIX.lock` | locked by the process that uses the files, as the journals are |
//!
//! **When the log is trusted.** After a clean stop. After the death of the process, too: the system has what was written to the files. After a
//! restart of the machine without a clean stop it is not: the drive can have lost notes. The files say in which boot they were written.
//!
//! **Two journals.** When the log has gone round once, the older journal names only segments that are gone. It is then begun anew.
//!
//! **Failure.** If a note cannot be written, the journals are removed: the next start begins with an empty flash.
//!
//! ```text
//! journal                                   note
//! offset  bytes  field                      offset  bytes  field
//!      0      8  "SITUCJRN"                      0      8  sequence number of the segment
//!      8      4  version, 1                      8      4  offset of the record; 0: all of the segment
//!     12      4  zeros                          12      4  crc32c of the cache's id and all before
//!     16     16  the cache's id
//!     32     16  the machine's boot
//!     48      8  generation: this journal is journal-(generation modulo 2)
//!     56      8  sequence number from which segments were not on flash when it was begun
//!     64      8  how often the cache had been started when it was last written to
//!     72      4  crc32c of all before
//!     76      4  zeros
//! ```
//!
//! The other two files have these fields one after the other, and end with a crc32c of all before:
//!
//! * *Index*: "SITUCIDX"; the cache's id; how often the cache was started; the number of the next segment; shards as a power of two; how many spots
//!   follow; sequence number and base of each spot; shard and packed slot of each item, 16 bytes.
//! * *Records*: "SITUCREC"; the cache's id; the newest journal's generation; how often the cache was started; a count; of each record two
//!   lengths, the key and the value.
//!
//! **Damage.** A piece of a note, shorter than a note, ends a journal. If any other byte is not what was written, if a file is missing, or older than the
//! others, nothing is trusted. All files together can be older: do not restore them from a copy.

mod dead;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;

use super::format::COUNTS_END;
use crate::slot::{ALIGN, OFFSETS_END};
use situ_device::{Clock, Flocked, SystemClock, lock};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

pub(crate) use dead::Dead;

const JOURNAL_MAGIC: [u8; 8] = *b"SITUCJRN";
const INDEX_MAGIC: [u8; 8] = *b"SITUCIDX";
const RECORDS_MAGIC: [u8; 8] = *b"SITUCREC";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 80;
const NOTE_BYTES: usize = 16;
/// What the file of the index has before its spots: magic, id, starts, next number, shard bits, count of spots.
const INDEX_HEADER_BYTES: u64 = 8 + 16 + 8 + 8 + 4 + 4;

type Id = [u8; 16];

/// See the module.
pub(crate) struct Journal {
    prefix: PathBuf,
    id: Id,
    state: Mutex<State>,
    records: Mutex<Records>,
    /// Keeps other processes from the files.
    locks: Mutex<Locks>,
}

/// The locks of the files. A file that is only named can be removed: the journals themselves are locked, too.
struct Locks {
    journals: [Option<Flocked>; 2],
    _lock: Flocked,
}

/// What the file of records says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Records {
    /// A journal of this generation was begun: if none is there, it is lost.
    generation: u64,
    /// How often the cache was started. The newest journal, and the index of a clean stop, are of the last start.
    starts: u64,
    owners: BTreeMap<Vec<u8>, Vec<u8>>,
}

struct State {
    /// `None` after a failure.
    file: Option<File>,
    generation: u64,
    begun_at: u64,
    /// After a clean stop.
    has_stopped: bool,
}

/// What an earlier process left.
pub(crate) struct Past {
    pub(crate) journal: Journal,
    pub(crate) dead: Dead,
    /// The index, after a clean stop.
    pub(crate) index: Option<Snapshot>,
}

/// The index as it was at a clean stop: numbers, and pieces of bytes that the owner knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Snapshot {
    pub(crate) starts: u64,
    pub(crate) next_sequence: u64,
    pub(crate) shard_bits: u32,
    /// Sequence number and base of what lies in each spot.
    pub(crate) spots: Vec<[u64; 2]>,
    /// Shard, and packed slot.
    pub(crate) slots: Vec<[u32; 4]>,
}

struct Header {
    boot: [u8; 16],
    generation: u64,
    begun_at: u64,
    starts: u64,
}

impl Header {
    fn encode(&self, id: &Id) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&JOURNAL_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(id);
        bytes[32..48].copy_from_slice(&self.boot);
        bytes[48..56].copy_from_slice(&self.generation.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.begun_at.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.starts.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..72]);
        bytes[72..76].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], id: &Id) -> Option<Header> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let is_ours = bytes[..8] == JOURNAL_MAGIC
            && bytes[8..12] == VERSION.to_le_bytes()
            && bytes[12..16] == [0; 4]
            && bytes[76..] == [0; 4]
            && bytes[16..32] == id[..]
            && bytes[72..76] == crc32c::crc32c(&bytes[..72]).to_le_bytes();
        let mut boot = [0; 16];
        boot.copy_from_slice(&bytes[32..48]);
        let word = |at: usize| long(&bytes[at..]);
        let header = Header { boot, generation: word(48), begun_at: word(56), starts: word(64) };
        (is_ours && [header.generation, header.begun_at, header.starts].iter().all(|count| *count < COUNTS_END))
            .then_some(header)
    }
}

fn note(id: &Id, sequence: u64, offset: u32) -> [u8; NOTE_BYTES] {
    let mut bytes = [0; NOTE_BYTES];
    bytes[..8].copy_from_slice(&sequence.to_le_bytes());
    bytes[8..12].copy_from_slice(&offset.to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(id), &bytes[..12]);
    bytes[12..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn long(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn word(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// What tells this boot of the machine from others; `None` if the system does not say.
fn boot() -> Option<[u8; 16]> {
    SystemClock::default().boot()
}

fn with_end(prefix: &Path, end: &str) -> PathBuf {
    let mut name: OsString = prefix.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

fn journal_path(prefix: &Path, generation: u64) -> PathBuf {
    with_end(prefix, if generation.is_multiple_of(2) { ".journal-0" } else { ".journal-1" })
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// Removes a file that may not be there.
fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path).or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// Writes a file so that it is there as a whole, or not at all. The death of the process does not lose it; with `durable`, no loss of power does.
fn write_whole(
    path: &Path,
    durable: bool,
    fill: impl FnOnce(&mut Summed<BufWriter<File>>) -> io::Result<()>,
) -> io::Result<()> {
    let next = with_end(path, ".next");
    let mut out = Summed { inner: BufWriter::new(File::create(&next)?), sum: 0 };
    fill(&mut out)?;
    let sum = out.sum;
    out.write_all(&sum.to_le_bytes())?;
    let file = out.inner.into_inner().map_err(io::IntoInnerError::into_error)?;
    if durable {
        file.sync_all()?;
    }
    fs::rename(&next, path)?;
    if durable { sync_directory_of(path) } else { Ok(()) }
}

/// Sums what goes through.
struct Summed<T> {
    inner: T,
    sum: u32,
}

impl<T: Write> Write for Summed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.sum = crc32c::crc32c_append(self.sum, &bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Summed<T> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes).ok()?;
        self.sum = crc32c::crc32c_append(self.sum, &bytes);
        Some(bytes)
    }

    fn take_bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        let mut bytes = situ_device::memory::zeroed(count)?;
        self.inner.read_exact(&mut bytes).ok()?;
        self.sum = crc32c::crc32c_append(self.sum, &bytes);
        Some(bytes)
    }

    /// Whether the sum of all before follows, and then the end.
    fn ends_well(&mut self) -> bool {
        let sum = self.sum;
        self.take() == Some(sum.to_le_bytes()) && self.take::<1>().is_none()
    }
}

impl Journal {
    /// Begins anew: what is there of an earlier cache goes.
    ///
    /// # Errors
    /// The file system refuses, or another process has the files.
    pub(crate) fn create(prefix: &Path, id: Id) -> io::Result<Journal> {
        let mut locks = lock_files(prefix)?;
        locks.journals = [None, None];
        for end in [".index", ".journal-0", ".journal-1", ".records"] {
            remove(&with_end(prefix, end))?;
        }
        let journal = Journal::of(prefix, id, Records { starts: 1, ..Records::default() }, locks);
        journal.begin(&mut lock(&journal.state), 0, 0)?;
        Ok(journal)
    }

    fn of(prefix: &Path, id: Id, records: Records, locks: Locks) -> Journal {
        let state = Mutex::new(State { file: None, generation: 0, begun_at: 0, has_stopped: false });
        Journal { prefix: prefix.to_owned(), id, state, records: Mutex::new(records), locks: Mutex::new(locks) }
    }

    fn begin(&self, state: &mut State, generation: u64, begun_at: u64) -> io::Result<()> {
        let mut records = lock(&self.records);
        let path = journal_path(&self.prefix, generation);
        let next = with_end(&path, ".next");
        let mut file = File::create(&next)?;
        let header = Header { boot: boot().unwrap_or_default(), generation, begun_at, starts: records.starts };
        file.write_all(&header.encode(&self.id))?;
        let locked = flocked(file.try_clone()?, &self.prefix)?;
        fs::rename(&next, &path)?;
        lock(&self.locks).journals[(generation % 2) as usize] = Some(locked);
        records.generation = generation;
        self.write_records(&records)?;
        *state = State { file: Some(file), generation, begun_at, has_stopped: false };
        Ok(())
    }

    /// What an earlier process has left for the cache with this id. `None`: nothing that can be trusted.
    ///
    /// # Errors
    /// The file system refuses, or another process has the files.
    pub(crate) fn open(prefix: &Path, id: Id) -> io::Result<Option<Past>> {
        let locks = lock_files(prefix)?;
        let Some(mut records) = read_records(&with_end(prefix, ".records"), &id) else { return Ok(None) };
        let index_path = with_end(prefix, ".index");
        let index = read_index(&index_path, &id).filter(|index| index.starts == records.starts);
        // From here on the stop was not a clean one.
        remove(&index_path)?;
        sync_directory_of(&index_path)?;
        let this_boot = boot();
        let mut found = Vec::new();
        let mut dead = Dead::of(id);
        for generation in 0..2 {
            let path = journal_path(prefix, generation);
            let read = read_notes(&path, &id, |sequence, offset| dead.note(sequence, offset))?;
            let Some((header, ends)) = read else { continue };
            dead.journals.push(path);
            let is_of_this_boot = index.is_some() || this_boot == Some(header.boot);
            if header.generation % 2 != generation || !is_of_this_boot {
                return Ok(None);
            }
            found.push((header, ends));
        }
        found.sort_unstable_by_key(|(header, _)| header.generation);
        let Some((newest, ends)) = found.last() else { return Ok(None) };
        let (generation, begun_at, ends) = (newest.generation, newest.begun_at, *ends);
        let has_older = generation == 0 || found.len() == 2 && found[0].0.generation + 1 == generation;
        if !has_older || generation < records.generation || newest.starts != records.starts {
            return Ok(None);
        }
        records.starts += 1;
        records.generation = generation;
        let journal = Journal::of(prefix, id, records, locks);
        for (header, _) in &found {
            let starts = lock(&journal.records).starts;
            let renewed = Header { boot: this_boot.unwrap_or_default(), starts, ..*header }.encode(&id);
            let file = OpenOptions::new().write(true).open(journal_path(prefix, header.generation))?;
            file.write_all_at(&renewed, 0)?;
            file.sync_all()?;
        }
        journal.write_records(&lock(&journal.records))?;
        let mut file = OpenOptions::new().write(true).open(journal_path(prefix, generation))?;
        file.set_len(ends)?;
        io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        *lock(&journal.state) = State { file: Some(file), generation, begun_at, has_stopped: false };
        Ok(Some(Past { journal, dead, index }))
    }

    /// Notes that an item has died. Costs a system call.
    pub(crate) fn item_died(&self, sequence: u64, offset: u32) {
        self.write(sequence, offset);
    }

    /// Notes that all items of a segment have died.
    pub(crate) fn segment_died(&self, sequence: u64) {
        self.write(sequence, 0);
    }

    fn write(&self, sequence: u64, offset: u32) {
        let mut state = lock(&self.state);
        let Some(file) = &mut state.file else { return };
        if file.write_all(&note(&self.id, sequence, offset)).is_err() {
            self.give_up(&mut state);
        }
    }

    /// Nothing on flash is trusted by the next start.
    fn give_up(&self, state: &mut State) {
        if state.has_stopped {
            return;
        }
        state.file = None;
        for generation in 0..2 {
            // If the file system removes nothing, the journal is emptied; then it has no header.
            let path = journal_path(&self.prefix, generation);
            _ = remove(&path).or_else(|_| OpenOptions::new().write(true).open(&path)?.set_len(0));
        }
    }

    /// Ends the trust: the next start begins with an empty flash.
    pub(crate) fn abandon(&self) {
        self.give_up(&mut lock(&self.state));
    }

    /// Whether notes are written: false after a failure.
    pub(crate) fn works(&self) -> bool {
        lock(&self.state).file.is_some()
    }

    /// Begins the next journal if no segment from before this one was begun is left: segments below `oldest` are gone.
    /// `reach` tells `oldest`, and the number that the next segment gets.
    pub(crate) fn turn(&self, reach: impl FnOnce() -> (u64, u64)) {
        let mut state = lock(&self.state);
        let (oldest, next) = reach();
        if state.file.is_some() && oldest > state.begun_at {
            let generation = state.generation + 1;
            if self.begin(&mut state, generation, next).is_err() {
                self.give_up(&mut state);
            }
        }
    }

    /// A record of the owner's.
    pub(crate) fn record(&self, key: &[u8]) -> Option<Vec<u8>> {
        lock(&self.records).owners.get(key).cloned()
    }

    /// Stores a record of the owner's. The death of the process does not lose it. If it cannot be stored, the next start begins with an empty flash.
    ///
    /// # Errors
    /// The file system refuses.
    pub(crate) fn put_record(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let mut records = lock(&self.records);
        records.owners.insert(key.to_vec(), value.to_vec());
        let written = self.write_records(&records);
        drop(records);
        if written.is_err() {
            self.abandon();
        }
        written
    }

    fn write_records(&self, records: &Records) -> io::Result<()> {
        write_whole(&with_end(&self.prefix, ".records"), false, |out| encode_records(out, &self.id, records))
    }

    /// Makes everything durable and stores the index: the stop is a clean one. `slots` calls its argument with each slot.
    ///
    /// # Errors
    /// The file system refuses; then the stop is none.
    pub(crate) fn stop(&self, index: &Snapshot, slots: impl FnOnce(&mut dyn FnMut([u32; 4]))) -> io::Result<()> {
        let mut state = lock(&self.state);
        let Some(file) = state.file.take() else {
            return Err(io::Error::other("an earlier failure of the journal has ended it"));
        };
        if let Err(error) = self.sync(&file, state.generation) {
            // The system may have lost notes.
            self.give_up(&mut state);
            return Err(error);
        }
        let starts = lock(&self.records).starts;
        state.has_stopped = true;
        write_whole(&with_end(&self.prefix, ".index"), true, |out| encode_index(out, &self.id, starts, index, slots))
    }
}

/// Writes the records as they lie in their file, but for the sum.
fn encode_records(out: &mut impl Write, id: &Id, records: &Records) -> io::Result<()> {
    out.write_all(&RECORDS_MAGIC)?;
    out.write_all(id)?;
    out.write_all(&records.generation.to_le_bytes())?;
    out.write_all(&records.starts.to_le_bytes())?;
    out.write_all(&(records.owners.len() as u32).to_le_bytes())?;
    for (key, value) in &records.owners {
        out.write_all(&(key.len() as u32).to_le_bytes())?;
        out.write_all(&(value.len() as u32).to_le_bytes())?;
        out.write_all(key)?;
        out.write_all(value)?;
    }
    Ok(())
}

/// Writes an index as it lies in its file, but for the sum. `slots` calls its argument with each slot.
fn encode_index(
    out: &mut impl Write,
    id: &Id,
    starts: u64,
    index: &Snapshot,
    slots: impl FnOnce(&mut dyn FnMut([u32; 4])),
) -> io::Result<()> {
    out.write_all(&INDEX_MAGIC)?;
    out.write_all(id)?;
    out.write_all(&starts.to_le_bytes())?;
    out.write_all(&index.next_sequence.to_le_bytes())?;
    out.write_all(&index.shard_bits.to_le_bytes())?;
    out.write_all(&(index.spots.len() as u32).to_le_bytes())?;
    for number in index.spots.iter().flatten() {
        out.write_all(&number.to_le_bytes())?;
    }
    let mut written = Ok(());
    slots(&mut |slot| {
        for number in slot {
            if written.is_ok() {
                written = out.write_all(&number.to_le_bytes());
            }
        }
    });
    written
}

impl Journal {
    /// Makes the journals and the records durable.
    fn sync(&self, file: &File, generation: u64) -> io::Result<()> {
        file.sync_all()?;
        if generation > 0 {
            File::open(journal_path(&self.prefix, generation + 1))?.sync_all()?;
        }
        let records = with_end(&self.prefix, ".records");
        if records.exists() { File::open(records)?.sync_all() } else { Ok(()) }
    }
}

/// The index in a file, if it is whole and of the cache with this id.
fn read_index(path: &Path, id: &Id) -> Option<Snapshot> {
    let file = File::open(path).ok()?;
    let bytes = file.metadata().ok()?.len();
    decode_index(BufReader::with_capacity(1 << 20, file), bytes, id)
}

/// The index in so many bytes, if they are whole and of the cache with this id.
fn decode_index(from: impl Read, bytes: u64, id: &Id) -> Option<Snapshot> {
    let mut found = Summed { inner: from, sum: 0 };
    if found.take()? != INDEX_MAGIC || found.take()? != *id {
        return None;
    }
    let starts = u64::from_le_bytes(found.take()?);
    let next_sequence = u64::from_le_bytes(found.take()?);
    let shard_bits = u32::from_le_bytes(found.take()?);
    let spots = u32::from_le_bytes(found.take()?);
    // Slots fill the rest, but for the sum.
    let slots = bytes.checked_sub(INDEX_HEADER_BYTES + u64::from(spots) * 16 + 4)? / 16;
    let mut index = Snapshot { starts, next_sequence, shard_bits, ..Snapshot::default() };
    for _ in 0..spots {
        index.spots.push([u64::from_le_bytes(found.take()?), u64::from_le_bytes(found.take()?)]);
    }
    for _ in 0..slots {
        let bytes: [u8; 16] = found.take()?;
        let part = |at: usize| word(&bytes[at..]);
        index.slots.push([part(0), part(4), part(8), part(12)]);
    }
    found.ends_well().then_some(index)
}

/// Shows the notes of a journal to `each`. Its header, and where its notes end. `None` if there is none, or it is damaged.
///
/// # Errors
/// The file system refuses.
fn read_notes(path: &Path, id: &Id, each: impl FnMut(u64, u32)) -> io::Result<Option<(Header, u64)>> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => Ok(decode_notes(BufReader::with_capacity(1 << 20, file?), id, each)),
    }
}

/// Shows the notes of a journal to `each`. Its header, and where its notes end. `None` if it is damaged.
///
/// The end of the process leaves 16 bytes of a note or fewer than 16, and never others: a write that lies in one page is copied whole. So only
/// a piece at the end is a note that was not written.
fn decode_notes(mut from: impl Read, id: &Id, mut each: impl FnMut(u64, u32)) -> Option<(Header, u64)> {
    let mut bytes = [0; HEADER_BYTES];
    from.read_exact(&mut bytes).ok()?;
    let header = Header::decode(&bytes, id)?;
    let mut ends = HEADER_BYTES as u64;
    let mut bytes = [0; NOTE_BYTES];
    while from.read_exact(&mut bytes).is_ok() {
        let (sequence, offset) = (long(&bytes), word(&bytes[8..]));
        let is_place = (offset as usize) < OFFSETS_END && (offset as usize).is_multiple_of(ALIGN);
        if bytes != note(id, sequence, offset) || sequence >= COUNTS_END || !is_place {
            return None;
        }
        each(sequence, offset);
        ends += NOTE_BYTES as u64;
    }
    Some((header, ends))
}

/// Takes the files for this process.
fn lock_files(prefix: &Path) -> io::Result<Locks> {
    let lock_journal = |generation| match OpenOptions::new().write(true).open(journal_path(prefix, generation)) {
        Ok(file) => flocked(file, prefix).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let journals = [lock_journal(0)?, lock_journal(1)?];
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(with_end(prefix, ".lock"))?;
    Ok(Locks { journals, _lock: flocked(file, prefix)? })
}

fn flocked(file: File, prefix: &Path) -> io::Result<Flocked> {
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Flocked::new(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let why = format!("another process uses the files {}.*", prefix.display());
            Err(io::Error::new(io::ErrorKind::AlreadyExists, why))
        }
        Err(error) => Err(error.into()),
    }
}

/// The records in a file. `None` if there is none, or it is damaged, or another cache's.
fn read_records(path: &Path, id: &Id) -> Option<Records> {
    let file = File::open(path).ok()?;
    let bytes = file.metadata().ok()?.len();
    decode_records(BufReader::new(file), bytes, id)
}

/// The records in so many bytes. `None` if they are damaged, or another cache's.
fn decode_records(from: impl Read, bytes_max: u64, id: &Id) -> Option<Records> {
    let mut found = Summed { inner: from, sum: 0 };
    if found.take()? != RECORDS_MAGIC || found.take()? != *id {
        return None;
    }
    let (generation, starts) = (u64::from_le_bytes(found.take()?), u64::from_le_bytes(found.take()?));
    let mut records = Records { generation, starts, owners: BTreeMap::new() };
    for _ in 0..u32::from_le_bytes(found.take()?) {
        let (key, value) = (u32::from_le_bytes(found.take()?), u32::from_le_bytes(found.take()?));
        if u64::from(key) + u64::from(value) > bytes_max {
            return None;
        }
        let key = found.take_bytes(key as usize)?;
        // They are written in order.
        if records.owners.last_key_value().is_some_and(|(last, _)| *last >= key) {
            return None;
        }
        records.owners.insert(key, found.take_bytes(value as usize)?);
    }
    (found.ends_well() && records.generation < COUNTS_END && records.starts < COUNTS_END).then_some(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Id = [3; 16];

    fn past(prefix: &Path) -> Option<Past> {
        Journal::open(prefix, ID).unwrap()
    }

    #[test]
    fn deaths_and_records_outlive_the_process() {
        let directory = tempfile::tempdir().unwrap();
        let prefix = directory.path().join("flash");
        assert!(past(&prefix).is_none());
        let journal = Journal::create(&prefix, ID).unwrap();
        journal.item_died(7, 56);
        journal.segment_died(9);
        journal.put_record(b"limit", b"100").unwrap();
        drop(journal);
        assert!(Journal::open(&prefix, [4; 16]).unwrap().is_none(), "another cache's");
        for _ in 0..2 {
            let mut past = past(&prefix).unwrap();
            assert!(past.index.is_none() && past.dead.newest == 9);
            assert!(past.dead.has(7, 56) && past.dead.has(9, 56) && past.dead.has(9, 800));
            assert!(!past.dead.has(7, 60) && !past.dead.has(8, 56));
            assert_eq!(past.journal.record(b"limit").unwrap(), b"100");
        }
        // A note that is half there counts for nothing, and the next one follows the last whole one.
        let file = OpenOptions::new().append(true).open(journal_path(&prefix, 0)).unwrap();
        (&file).write_all(&[1; 9]).unwrap();
        past(&prefix).unwrap().journal.item_died(11, 60);
        assert!(past(&prefix).unwrap().dead.has(11, 60));
    }

    /// With `.lock` removed, a second process took the journals of the first one for its own.
    #[test]
    fn the_files_have_one_user_without_the_lock_file_too() {
        let directory = tempfile::tempdir().unwrap();
        let prefix = directory.path().join("flash");
        let journal = Journal::create(&prefix, ID).unwrap();
        // The second journal is in use then, and the first one is still there.
        journal.turn(|| (1, 5));
        for name in [".journal-0", ".journal-1"] {
            _ = fs::remove_file(with_end(&prefix, ".lock"));
            assert!(Journal::open(&prefix, ID).is_err() && Journal::create(&prefix, ID).is_err());
            fs::remove_file(with_end(&prefix, name)).unwrap();
        }
        drop(journal);
        Journal::create(&prefix, ID).unwrap();
    }

    /// More notes than are held in memory, asked for in the order of segments and in another one.
    #[test]
    fn notes_are_found_however_many_there_are() {
        let directory = tempfile::tempdir().unwrap();
        let prefix = directory.path().join("flash");
        let journal = Journal::create(&prefix, ID).unwrap();
        let died = |sequence: u64, place: u32| (sequence * 31 + u64::from(place) * 17).is_multiple_of(3);
        for place in 1..100 {
            (0..40)
                .filter(|sequence| died(*sequence, place))
                .for_each(|sequence| journal.item_died(sequence, place * 4));
        }
        drop(journal);
        let mut past = past(&prefix).unwrap();
        for sequence in (0..41).chain((0..41).rev()) {
            for place in 1..100 {
                assert_eq!(
                    past.dead.has(sequence, place * 4),
                    sequence < 40 && died(sequence, place),
                    "{sequence} {place}"
                );
            }
            assert!(past.dead.is_bounded());
        }
        // If the journals cannot be read again, nothing is trusted.
        std::fs::remove_file(journal_path(&prefix, 0)).unwrap();
        std::fs::create_dir(journal_path(&prefix, 0)).unwrap();
        past.dead.unload();
        assert!(past.dead.has(40, 4));
    }

    #[test]
    fn an_index_serves_one_start() {
        let directory = tempfile::tempdir().unwrap();
        let prefix = directory.path().join("flash");
        let journal = Journal::create(&prefix, ID).unwrap();
        let index = Snapshot {
            starts: 1,
            next_sequence: 12,
            shard_bits: 6,
            spots: vec![[1, 2], [3, 4], [0, 0]],
            slots: vec![[1, 2, 3, 4], [5, 6, 7, 8]],
        };
        let stop =
            |journal: &Journal| journal.stop(&index, |each| index.slots.iter().for_each(|slot| each(*slot))).unwrap();
        stop(&journal);
        drop(journal);
        let path = with_end(&prefix, ".index");
        let old = fs::read(&path).unwrap();
        assert_eq!(past(&prefix).unwrap().index, Some(index.clone()));
        assert_eq!(past(&prefix).unwrap().index, None);
        fs::write(&path, &old).unwrap();
        assert_eq!(past(&prefix).unwrap().index, None, "an index of an earlier stop");
        stop(&past(&prefix).unwrap().journal);
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        fs::write(&path, bytes).unwrap();
        assert_eq!(past(&prefix).unwrap().index, None, "damaged: the log is scanned");
    }

    #[test]
    fn another_boot_trusts_only_a_clean_stop() {
        let directory = tempfile::tempdir().unwrap();
        let prefix = directory.path().join("flash");
        let journal = Journal::create(&prefix, ID).unwrap();
        journal.item_died(7, 56);
        let other_boot = |starts: u64| {
            let file = OpenOptions::new().write(true).open(journal_path(&prefix, 0)).unwrap();
            let header = Header { boot: [9; 16], generation: 0, begun_at: 0, starts };
            file.write_all_at(&header.encode(&ID), 0).unwrap();
        };
        journal.stop(&Snapshot::default(), |_| ()).unwrap();
        drop(journal);
        other_boot(1);
        let mut found = past(&prefix).unwrap();
        assert!(found.index.is_some() && found.dead.has(7, 56));
        drop(found);
        other_boot(2);
        assert!(past(&prefix).is_none());
    }

    #[test]
    fn journals_take_turns_and_both_are_needed() {
        let directory = tempfile::tempdir().unwrap();
        let prefix = directory.path().join("flash");
        let journal = Journal::create(&prefix, ID).unwrap();
        journal.item_died(5, 56);
        journal.turn(|| (0, 20));
        assert_eq!(lock(&journal.state).generation, 0);
        journal.turn(|| (1, 20));
        journal.item_died(19, 56);
        journal.turn(|| (20, 40));
        assert_eq!(lock(&journal.state).generation, 1, "segment 20 may be named by the older one");
        drop(journal);
        let Past { journal, mut dead, .. } = past(&prefix).unwrap();
        assert!(dead.has(5, 56) && dead.has(19, 56));
        journal.turn(|| (21, 41));
        journal.item_died(40, 56);
        drop(journal);
        let Past { journal, mut dead, .. } = past(&prefix).unwrap();
        assert!(!dead.has(5, 56) && dead.has(19, 56) && dead.has(40, 56));
        drop(journal);
        fs::remove_file(journal_path(&prefix, 1)).unwrap();
        assert!(past(&prefix).is_none());
    }

    #[test]
    fn files_that_are_lost_or_older_than_the_others_end_the_trust() {
        let directory = tempfile::tempdir().unwrap();
        let made = |name: &str, turns: bool| {
            let prefix = directory.path().join(name);
            let journal = Journal::create(&prefix, ID).unwrap();
            journal.item_died(5, 56);
            if turns {
                journal.turn(|| (1, 20));
                journal.item_died(19, 56);
            }
            prefix
        };
        let prefix = made("newest journal", true);
        fs::remove_file(journal_path(&prefix, 1)).unwrap();
        assert!(past(&prefix).is_none());
        let prefix = made("records", false);
        fs::remove_file(with_end(&prefix, ".records")).unwrap();
        assert!(past(&prefix).is_none());
        let prefix = made("older journal", false);
        let old = fs::read(journal_path(&prefix, 0)).unwrap();
        past(&prefix).unwrap().journal.item_died(6, 56);
        fs::write(journal_path(&prefix, 0), old).unwrap();
        assert!(past(&prefix).is_none());
        let prefix = made("a note in the middle", false);
        past(&prefix).unwrap().journal.item_died(6, 56);
        let mut bytes = fs::read(journal_path(&prefix, 0)).unwrap();
        bytes[HEADER_BYTES + 3] ^= 1;
        fs::write(journal_path(&prefix, 0), bytes).unwrap();
        assert!(past(&prefix).is_none());
        // A last note that was damaged used to pass for one that was half written: the item that had died was there again.
        for turns in [false, true] {
            let prefix = made(if turns { "the last note, two journals" } else { "the last note" }, turns);
            let path = journal_path(&prefix, u64::from(turns));
            let mut bytes = fs::read(&path).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(path, bytes).unwrap();
            assert!(past(&prefix).is_none());
        }
        let prefix = made("records that cannot be written", false);
        let journal = past(&prefix).unwrap().journal;
        fs::create_dir(with_end(&prefix, ".records.next")).unwrap();
        assert!(journal.put_record(b"flush", b"1").is_err());
        assert!(!journal.works());
        drop(journal);
        assert!(past(&prefix).is_none());
        let prefix = made("two processes", false);
        let first = past(&prefix).unwrap();
        assert!(Journal::open(&prefix, ID).is_err() && Journal::create(&prefix, ID).is_err());
        drop(first);
        assert!(past(&prefix).is_some());
    }

    #[test]
    fn a_note_that_cannot_be_written_ends_the_trust() {
        let directory = tempfile::tempdir().unwrap();
        let prefix = directory.path().join("flash");
        let journal = Journal::create(&prefix, ID).unwrap();
        lock(&journal.state).file = Some(OpenOptions::new().read(true).open(journal_path(&prefix, 0)).unwrap());
        journal.item_died(5, 56);
        assert!(!journal.works());
        assert!(journal.stop(&Snapshot::default(), |_| ()).is_err());
        drop(journal);
        assert!(past(&prefix).is_none());
    }
}
