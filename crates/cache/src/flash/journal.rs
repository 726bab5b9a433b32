//! Files that survive the process and tell a restart which items of the log on flash are still valid.
//!
//! The log alone does not say which of its items were replaced or deleted while the newer value was in memory. So the
//! cache notes each death of an item on flash here, before any reader can see it. `format.rs` has the bytes of the
//! files.
//!
//! | file | content |
//! |---|---|
//! | `PREFIX.journal-0`, `PREFIX.journal-1` | deaths of items and of segments, 16 bytes each |
//! | `PREFIX.index` | the index at a clean stop; a start removes it |
//! | `PREFIX.records` | records of the cache's owner, and the generation of the newest journal |
//! | `PREFIX.lock` | empty; the process that uses the files locks it, and the journals too |
//!
//! **When the log is trusted.** After a clean stop, and after the death of the process: the kernel still has what was
//! written to the files. After a reboot without a clean stop it is not, because the drive may have lost notes. The
//! files name the boot that wrote them.
//!
//! **Two journals.** Once the log has wrapped around, the older journal names only segments that are gone. The next
//! journal replaces it.
//!
//! **Failure.** If a note cannot be written, the journals are removed, and the next start begins with an empty flash.
//!
//! **Damage.** A partial note at the end of a journal is an unfinished write. If anything else is damaged, if a file is
//! missing, or if one is older than the others, nothing is trusted. A restored copy of all the files cannot be
//! recognised as old: never restore them.

mod dead;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;

use format::{
    Header, Id, Records, Summed, decode_index, decode_notes, decode_records, encode_index, encode_records, note,
};
use situ_base::{Clock, SystemClock, lock};
use situ_device::Flocked;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

pub(crate) use dead::Dead;
pub(crate) use format::Snapshot;

/// The open files; see the [module](self).
pub(crate) struct Journal {
    prefix: PathBuf,
    id: Id,
    state: Mutex<State>,
    records: Mutex<Records>,
    /// Keeps other processes from the files.
    locks: Mutex<Locks>,
}

/// The locks of the files. `PREFIX.lock` alone can be removed, so the journals are locked as well.
struct Locks {
    journals: [Option<Flocked>; 2],
    _lock: Flocked,
}

struct State {
    /// `None` after a failure.
    file: Option<File>,
    generation: u64,
    begun_at: u64,
    /// After a clean stop.
    has_stopped: bool,
}

/// State left by an earlier process.
pub(crate) struct Past {
    pub(crate) journal: Journal,
    pub(crate) dead: Dead,
    /// The index, after a clean stop.
    pub(crate) index: Option<Snapshot>,
}

/// Returns the id of this boot; `None` if the system has none.
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

/// Replaces a file atomically. It survives the death of the process; with `durable`, a power failure too.
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

impl Journal {
    /// Starts with empty files, and removes those of an earlier cache.
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

    /// Reads the state that an earlier process left for the cache with this id. Returns `None` if nothing can be
    /// trusted.
    ///
    /// # Errors
    /// The file system refuses, or another process has the files.
    pub(crate) fn open(prefix: &Path, id: Id) -> io::Result<Option<Past>> {
        let locks = lock_files(prefix)?;
        let Some(mut records) = read_records(&with_end(prefix, ".records"), &id) else { return Ok(None) };
        let index_path = with_end(prefix, ".index");
        let index = read_index(&index_path, &id).filter(|index| index.starts == records.starts);
        // From here on, only `stop` makes a stop clean.
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

    /// Makes the next start begin with an empty flash.
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

    /// Returns true if notes are being written; false after a failure.
    pub(crate) fn works(&self) -> bool {
        lock(&self.state).file.is_some()
    }

    /// Switches to the next journal once all segments older than the current journal are gone. `reach` returns the
    /// sequence numbers of the oldest segment and of the next one.
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

    /// Returns a record of the owner.
    pub(crate) fn record(&self, key: &[u8]) -> Option<Vec<u8>> {
        lock(&self.records).owners.get(key).cloned()
    }

    /// Stores a record of the owner. It survives the death of the process. If this fails, the next start begins with an
    /// empty flash.
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

    /// Makes everything durable and stores the index, for a clean stop. `slots` calls its argument with each slot.
    ///
    /// # Errors
    /// The file system refuses; the stop is not clean then.
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

/// Reads an index file. Returns `None` if it is missing, damaged, or belongs to another cache.
fn read_index(path: &Path, id: &Id) -> Option<Snapshot> {
    let file = File::open(path).ok()?;
    let bytes = file.metadata().ok()?.len();
    decode_index(BufReader::with_capacity(1 << 20, file), bytes, id)
}

/// Calls `each` with every note of a journal. Returns its header and the offset at which its notes end; `None` if it is
/// missing or damaged.
///
/// # Errors
/// The file system refuses.
fn read_notes(path: &Path, id: &Id, each: impl FnMut(u64, u32)) -> io::Result<Option<(Header, u64)>> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => Ok(decode_notes(BufReader::with_capacity(1 << 20, file?), id, each)),
    }
}

/// Locks the files for this process.
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

/// Reads a records file. Returns `None` if it is missing, damaged, or belongs to another cache.
fn read_records(path: &Path, id: &Id) -> Option<Records> {
    let file = File::open(path).ok()?;
    let bytes = file.metadata().ok()?.len();
    decode_records(BufReader::new(file), bytes, id)
}

#[cfg(test)]
mod tests {
    use super::format::HEADER_BYTES;
    use super::*;
    use situ_sim::SimMemory;

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
        // A partial note is ignored, and the next one follows the last whole note.
        let file = OpenOptions::new().append(true).open(journal_path(&prefix, 0)).unwrap();
        (&file).write_all(&[1; 9]).unwrap();
        past(&prefix).unwrap().journal.item_died(11, 60);
        assert!(past(&prefix).unwrap().dead.has(11, 60));
    }

    #[test]
    fn the_largest_lengths_of_the_files_are_damage_and_take_no_memory() {
        let sealed = |mut bytes: Vec<u8>| {
            let sum = crc32c::crc32c(&bytes);
            bytes.extend_from_slice(&sum.to_le_bytes());
            bytes
        };
        let owners = [(b"key".to_vec(), b"value".to_vec())].into();
        let mut records = Vec::new();
        encode_records(&mut records, &ID, &Records { owners, ..Records::default() }).unwrap();
        // The number of records, and the lengths of a key and of a value.
        for at in [40, 44, 48] {
            let mut bytes = records.clone();
            bytes[at..at + 4].fill(0xff);
            let bytes = sealed(bytes);
            let decode = || decode_records(&bytes[..], bytes.len() as u64, &ID);
            let (decoded, largest) = SimMemory::largest(decode);
            assert!(decoded.is_none() && largest < 1000, "{largest} bytes");
        }
        let mut index = Vec::new();
        let snapshot = Snapshot { spots: vec![[1, 2]], ..Snapshot::default() };
        encode_index(&mut index, &ID, 1, &snapshot, |each| each([1, 2, 3, 4])).unwrap();
        index[44..48].fill(0xff);
        let index = sealed(index);
        let (decoded, largest) = SimMemory::largest(|| decode_index(&index[..], index.len() as u64, &ID));
        assert!(decoded.is_none() && largest < 1000, "{largest} bytes");
    }

    /// After `.lock` was removed, a second process could open the first one's journals.
    #[test]
    fn the_files_have_one_user_without_the_lock_file_too() {
        let directory = tempfile::tempdir().unwrap();
        let prefix = directory.path().join("flash");
        let journal = Journal::create(&prefix, ID).unwrap();
        // Now the second journal is in use, and the first one still exists.
        journal.turn(|| (1, 5));
        for name in [".journal-0", ".journal-1"] {
            _ = fs::remove_file(with_end(&prefix, ".lock"));
            assert!(Journal::open(&prefix, ID).is_err() && Journal::create(&prefix, ID).is_err());
            fs::remove_file(with_end(&prefix, name)).unwrap();
        }
        drop(journal);
        Journal::create(&prefix, ID).unwrap();
    }

    /// More notes than are held in memory, looked up in segment order and in reverse.
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
        // A damaged last note used to pass for an unfinished one, and the dead item came back.
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
