//! A RocksDB database, open to be read.
//!
//! # Opening
//! 1. A directory that is no RocksDB database is refused: RocksDB would make a directory of it.
//! 2. Column families are refused whose entries would be misread: sorted by another comparator, with a merge operator
//!    that is not here, in tables of another kind. RocksDB itself finds a comparator that it does not know, too.
//! 3. It is opened read-only, which takes no lock and reads the log into memory. A program that has it open may flush
//!    meanwhile: after the manifest was read and before the log is, what is in neither would be missing. A flush writes
//!    to the manifest before it removes log files, so the database is opened again until its manifest is the same
//!    before and after. From then on all table files are open, and nothing changes.
//!
//! Nothing is written into its directory.
//!
//! # Threads
//! A thread reads ahead of the one that asked, [`CHUNKS_AHEAD`] chunks at most.

use super::settings::Settings;
use crate::failure::{Exit, Failure};
use crate::options::ImportRocksdbOptions;
use crate::text::{plural, shorten};
use rocksdb::{DB, DBPath, Options, ReadOptions, properties};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};

/// The number of bytes at which a chunk ends: as many as in a batch of `load`.
const CHUNK_BYTES: usize = 1 << 20;
/// The maximum number of chunks that wait for the consumer.
const CHUNKS_AHEAD: usize = 4;
/// RocksDB reads tables in pieces of this size.
const READAHEAD_BYTES: usize = 2 << 20;
/// The number of times that a database that changes is opened before the import is given up.
const OPENINGS: usize = 20;
/// Columns of a key in a message.
const SHOWN_COLUMNS: usize = 64;

/// The only order that Situ has, and RocksDB's own.
const BYTEWISE: &str = "leveldb.BytewiseComparator";

/// See the module.
pub(super) struct Source {
    db: DB,
    shown: String,
    /// The column families to import.
    pub(super) families: Vec<String>,
    /// Tells the database from others; copies of it have the same.
    pub(super) identity: String,
    /// Number of its last write.
    pub(super) sequence: u64,
    /// Warnings to show before the import.
    pub(super) warnings: Vec<String>,
}

/// Entries in key order, packed.
#[derive(Default)]
pub(super) struct Chunk {
    bytes: Vec<u8>,
    /// Of each entry, the lengths of its key and value.
    lengths: Vec<(usize, usize)>,
}

impl Chunk {
    pub(super) fn entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.bytes.as_slice();
        self.lengths.iter().map(move |&(key_bytes, value_bytes)| {
            let (key, behind) = rest.split_at(key_bytes);
            let (value, behind) = behind.split_at(value_bytes);
            rest = behind;
            (key, value)
        })
    }

    pub(super) fn len(&self) -> u64 {
        self.lengths.len() as u64
    }

    pub(super) fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn last_key(&self) -> Option<&[u8]> {
        let &(key_bytes, value_bytes) = self.lengths.last()?;
        let begin = self.bytes.len() - key_bytes - value_bytes;
        Some(&self.bytes[begin..begin + key_bytes])
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.lengths.push((key.len(), value.len()));
    }
}

impl Source {
    /// Opens what the options name.
    ///
    /// # Errors
    /// It is no RocksDB database, or damaged, or not to be read as it was meant.
    pub(super) fn open(options: &ImportRocksdbOptions) -> Result<Source, Failure> {
        check_kind(&options.path)?;
        let mut last = None;
        for _ in 0..OPENINGS {
            let before = manifest_state(&options.path);
            let opened = Source::open_once(options);
            let after = manifest_state(&options.path);
            match (before, after) {
                (Ok(before), Ok(after)) if before == after => return opened,
                // A manifest takes the place of another between the two steps of a look at it.
                (before, after) => last = before.err().or(after.err()).or(last),
            }
        }
        let shown = options.path.display();
        Err(match last {
            Some(error) => Failure::new(cannot_open(&shown), error),
            None => Failure::new(cannot_open(&shown), "a program that has it open changes it all the time")
                .cure("let that program make a checkpoint or a backup, and import that"),
        })
    }

    fn open_once(options: &ImportRocksdbOptions) -> Result<Source, Failure> {
        let path = &options.path;
        let shown = path.display().to_string();
        let settings = Settings::read(path)
            .map_err(|error| Failure::new(cannot_open(&shown), format!("its OPTIONS file cannot be read: {error}")))?;
        let mut db_options = Options::default();
        db_options.set_skip_stats_update_on_db_open(true);
        if let Some(wal_dir) = wal_dir(options, &settings)? {
            db_options.set_wal_dir(wal_dir);
        }
        if !options.db_path.is_empty() {
            let paths: Result<Vec<DBPath>, _> =
                options.db_path.iter().map(|path| DBPath::new(path, u64::MAX)).collect();
            db_options.set_db_paths(&paths.map_err(|error| explain(cannot_open(&shown), &error))?);
        }
        let present = DB::list_cf(&db_options, path).map_err(|error| explain(cannot_open(&shown), &error))?;
        let families = chosen(options, present)?;
        let mut warnings = Vec::new();
        let mut with_options = Vec::new();
        for family in &families {
            let family_options = family_options(family, &settings, options, &mut warnings)?;
            with_options.push((family, family_options));
        }
        let db = DB::open_cf_with_opts_for_read_only(&db_options, path, with_options, false);
        let db = db.map_err(|error| explain(cannot_open(&shown), &error))?;
        check_order(&db, &families, &shown)?;
        let identity = db.get_db_identity().map_err(|error| explain(cannot_open(&shown), &error))?;
        let identity = String::from_utf8_lossy(&identity).trim().to_owned();
        let sequence = db.latest_sequence_number();
        Ok(Source { db, shown, families, identity, sequence, warnings })
    }

    /// About how many entries the column family has.
    pub(super) fn approximate_entries(&self, family: &str) -> u64 {
        let found =
            self.db.cf_handle(family).map(|cf| self.db.property_int_value_cf(cf, properties::ESTIMATE_NUM_KEYS));
        found.and_then(Result::ok).flatten().unwrap_or(0)
    }

    /// Returns true if the column family has an entry without a key: the first, if there is one.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn has_empty_key(&self, family: &str) -> Result<bool, Failure> {
        let mut empty = false;
        let mut iterator = self.iterator(family)?;
        iterator.seek_to_first();
        if let Some(key) = iterator.key() {
            empty = key.is_empty();
        }
        iterator.status().map_err(|error| explain(self.cannot_read(family), &error))?;
        Ok(empty)
    }

    /// Gives `each` the entries of the column family in key order, those behind the key `after` if there is one.
    ///
    /// # Errors
    /// They cannot be read, or are not in Situ's order, or `each` fails.
    pub(super) fn read(
        &self,
        family: &str,
        after: Option<&[u8]>,
        mut each: impl FnMut(&Chunk) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        std::thread::scope(|scope| {
            let (sender, receiver) = sync_channel(CHUNKS_AHEAD);
            let reader = scope.spawn(move || self.read_into(&sender, family, after));
            // After a failure the consumer takes no more chunks, and the reader ends.
            let taken = receiver.into_iter().try_for_each(|chunk| each(&chunk));
            let read = match reader.join() {
                Ok(read) => read,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            taken.and(read)
        })
    }

    fn read_into(&self, sender: &SyncSender<Chunk>, family: &str, after: Option<&[u8]>) -> Result<(), Failure> {
        let mut iterator = self.iterator(family)?;
        match after {
            Some(after) => iterator.seek(after),
            None => iterator.seek_to_first(),
        }
        let mut before = after.map(<[u8]>::to_vec);
        if before.is_some() && iterator.key() == before.as_deref() {
            iterator.next();
        }
        let mut chunk = Chunk::default();
        while let Some((key, value)) = iterator.item() {
            if chunk.last_key().or(before.as_deref()).is_some_and(|before| before >= key) {
                return Err(misordered(family, &self.shown, key));
            }
            chunk.push(key, value);
            if chunk.byte_len() >= CHUNK_BYTES {
                let next = Chunk { bytes: Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 8), lengths: Vec::new() };
                before = chunk.last_key().map(<[u8]>::to_vec);
                if sender.send(std::mem::replace(&mut chunk, next)).is_err() {
                    return Ok(());
                }
            }
            iterator.next();
        }
        iterator.status().map_err(|error| explain(self.cannot_read(family), &error))?;
        if chunk.len() > 0 {
            // A consumer that does not take the chunk has failed, and reports that.
            let _ = sender.send(chunk);
        }
        Ok(())
    }

    fn iterator(&self, family: &str) -> Result<rocksdb::DBRawIterator<'_>, Failure> {
        let Some(cf) = self.db.cf_handle(family) else {
            return Err(Failure::new(self.cannot_read(family), "it was not opened"));
        };
        let mut options = ReadOptions::default();
        options.set_total_order_seek(true);
        options.set_verify_checksums(true);
        options.set_readahead_size(READAHEAD_BYTES);
        options.fill_cache(false);
        Ok(self.db.raw_iterator_cf_opt(cf, options))
    }

    fn cannot_read(&self, family: &str) -> String {
        cannot_read(family, &self.shown)
    }
}

fn cannot_read(family: &str, shown: &str) -> String {
    format!("cannot read the column family {family:?} of {shown}")
}

fn misordered(family: &str, shown: &str, key: &[u8]) -> Failure {
    let key = shorten(key, SHOWN_COLUMNS);
    Failure::new(cannot_read(family, shown), format!("its keys are not in the order of their bytes, at {key}"))
        .cure("its comparator is another one than its name says; bring these keys over by a program")
}

/// Checks that tables begin and end in the order of bytes. RocksDB takes a comparator of the right name at its word,
/// and would leave out in silence what another one has put elsewhere.
fn check_order(db: &DB, families: &[String], shown: &str) -> Result<(), Failure> {
    let tables = db.live_files().map_err(|error| explain(cannot_open(&shown), &error))?;
    for table in tables.iter().filter(|table| families.contains(&table.column_family_name)) {
        if let (Some(begin), Some(end)) = (&table.start_key, &table.end_key)
            && begin > end
        {
            return Err(misordered(&table.column_family_name, shown, begin));
        }
    }
    Ok(())
}

fn cannot_open(shown: &impl std::fmt::Display) -> String {
    format!("cannot open the RocksDB database in {shown}")
}

/// Checks that there is a RocksDB database at all.
fn check_kind(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    let none = |why: &str| {
        Failure::new(cannot_open(&shown), why).cure("name the directory in which RocksDB keeps its file CURRENT")
    };
    match fs::metadata(path) {
        Ok(found) if !found.is_dir() => return Err(none("it is no directory")),
        Ok(_) => {}
        Err(error) => return Err(none(&error.to_string())),
    }
    match current(path) {
        Ok(text) if is_rocksdb(&text) => Ok(()),
        Ok(_) if path.join("IDENTITY").exists() && situ_tiers::files_of(path).is_ok() => {
            Err(Failure::new(cannot_open(&shown), "it is a store of Situ already")
                .cure("`situ dump` and `situ load` bring the entries of one store into another"))
        }
        Ok(_) => Err(none("its file CURRENT is not one that RocksDB writes")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(none("there is no database: it has no file CURRENT"))
        }
        Err(error) => Err(none(&format!("its file CURRENT cannot be read: {error}"))),
    }
}

/// Returns true if a directory is a RocksDB database, which Situ must not write into.
pub(super) fn is_database(path: &Path) -> bool {
    current(path).is_ok_and(|text| is_rocksdb(&text))
}

fn current(path: &Path) -> io::Result<String> {
    fs::read(path.join("CURRENT")).map(|text| String::from_utf8_lossy(&text).into_owned())
}

/// Returns true if the text is one that RocksDB writes into CURRENT. Situ's has a checksum behind the name.
fn is_rocksdb(text: &str) -> bool {
    let number = text.strip_prefix("MANIFEST-").and_then(|rest| rest.strip_suffix('\n'));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the manifest in force, and its size.
fn manifest_state(path: &Path) -> io::Result<(String, u64)> {
    let name = current(path)?.trim_end().to_owned();
    let bytes = fs::metadata(path.join(&name))?.len();
    Ok((name, bytes))
}

/// Returns the column families that were asked for, of those that are there.
fn chosen(options: &ImportRocksdbOptions, present: Vec<String>) -> Result<Vec<String>, Failure> {
    let named = options.column_family.iter().chain(options.keyspace.iter().map(|(family, _)| family));
    if let Some(missing) = named.into_iter().find(|name| !present.contains(name)) {
        return Err(Failure::usage(format!(
            "there is no column family {missing:?} in {}; it has: {}",
            options.path.display(),
            present.join(", ")
        )));
    }
    let all = options.column_family.is_empty();
    Ok(present.into_iter().filter(|name| all || options.column_family.contains(name)).collect())
}

/// Returns the directory of the log, if that is not the database's own.
///
/// # Errors
/// The database says another place than it can be.
fn wal_dir(options: &ImportRocksdbOptions, settings: &Settings) -> Result<Option<PathBuf>, Failure> {
    if let Some(given) = &options.wal_dir {
        return match given.is_dir() {
            true => Ok(Some(given.clone())),
            false => Err(Failure::usage(format!("--wal-dir {} is no directory", given.display()))),
        };
    }
    let Some(said) = &settings.wal_dir else { return Ok(None) };
    let path = &options.path;
    if fs::canonicalize(said).ok().is_some_and(|said| fs::canonicalize(path).is_ok_and(|path| said == path)) {
        return Ok(None);
    }
    let shown = path.display();
    let refuse = |why: String| {
        Failure::new(cannot_open(&shown), why).cure(format!(
            "say where its log is, with --wal-dir DIR (--wal-dir {shown} if it is with its other files): what is only in \
             the log would be missing otherwise"
        ))
    };
    if !said.is_dir() {
        return Err(refuse(format!("it says that its log is in {}, which is no directory", said.display())));
    }
    let is_log = |name: std::ffi::OsString| {
        name.to_str().and_then(|name| name.strip_suffix(".log")).is_some_and(|number| number.parse::<u64>().is_ok())
    };
    let here = fs::read_dir(path).map_err(|error| Failure::new(cannot_open(&shown), error))?;
    if here.filter_map(Result::ok).any(|entry| is_log(entry.file_name())) {
        return Err(refuse(format!("it says that its log is in {}, and there is one beside it, too", said.display())));
    }
    Ok(Some(said.clone()))
}

/// Returns the options that open a column family.
///
/// # Errors
/// Its entries would be misread.
fn family_options(
    family: &str,
    settings: &Settings,
    options: &ImportRocksdbOptions,
    warnings: &mut Vec<String>,
) -> Result<Options, Failure> {
    let mut family_options = Options::default();
    let Some(said) = settings.families.get(family) else { return Ok(family_options) };
    let refuse = |why: String| Failure::new(format!("cannot import the column family {family:?}"), why);
    let others = "or name the other column families with --column-family";
    if let Some(comparator) = said.comparator.as_deref().filter(|name| *name != BYTEWISE) {
        return Err(refuse(format!("its keys are in the order of the comparator {comparator}")).cure(format!(
            "Situ has one order, that of the keys' bytes; bring these keys over by a program, {others}"
        )));
    }
    if let Some(kind) = said.table_factory.as_deref().filter(|name| *name != "BlockBasedTable") {
        return Err(refuse(format!("its tables are of the kind {kind}, not BlockBasedTable"))
            .cure(format!("copy it into a database with RocksDB's usual tables first, {others}")));
    }
    match said.merge_operator.as_deref() {
        None => {}
        Some("UInt64AddOperator") => family_options.set_merge_operator_associative("UInt64AddOperator", add),
        Some(_) if options.without_merge_operator => {}
        Some(operator) => {
            return Err(refuse(format!("its values are made by the merge operator {operator}, which is not here"))
                .cure(format!(
                    "compact it to its last level in the program that has the operator (with bottommost_level_compaction \
                     kForce), so that no operands are left, and say --without-merge-operator, {others}"
                )));
        }
    }
    if said.has_ttl {
        warnings.push(format!(
            "the column family {family:?} was written with a time to live: each value ends in RocksDB's four bytes of \
             time, and is brought over as it is"
        ));
    }
    Ok(family_options)
}

/// RocksDB's own operator of this name: little-endian numbers of eight bytes; what is none counts as zero.
fn add(_key: &[u8], existing: Option<&[u8]>, operands: &rocksdb::MergeOperands) -> Option<Vec<u8>> {
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let sum = operands.iter().map(number).fold(existing.map_or(0, number), u64::wrapping_add);
    Some(sum.to_le_bytes().to_vec())
}

/// Makes a failure of RocksDB's message, with a cure.
fn explain(what: String, error: &rocksdb::Error) -> Failure {
    explain_text(what, error.as_ref())
}

fn explain_text(what: String, text: &str) -> Failure {
    let failure = Failure::new(what, text);
    if text.contains("not supported in this build") {
        failure.cure(
            "build the program with all of RocksDB's compressions: `cargo build --release --locked -p situ-cli --features \
             rocksdb-compressions`",
        )
    } else if text.contains("omparator") {
        failure.cure("Situ has one order of keys, that of their bytes; bring these keys over by a program")
    } else if text.contains("merge_operator") {
        failure.cure(
            "there are merge operands, and their operator is not here: compact the column family to its last level in the \
             program that has it (with bottommost_level_compaction kForce), or name the other column families with --column-family",
        )
    } else if text.contains("Too many open files") {
        failure.cure(format!("let the program open {}: `ulimit -n`", plural(1 << 20, "file")))
    } else if text.contains("No such file") {
        failure.cure(
            "a file is missing: if it lies in one of the database's db_paths, name them with --db-path; if a program that \
             has the database open has just removed it, do the same again; otherwise the database is damaged",
        )
    } else if text.starts_with("Corruption") {
        failure
            .cure("the database is damaged: restore a backup of it, or mend it with RocksDB's `ldb repair`")
            .ending(Exit::Damage)
    } else {
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a program cannot be made to meet that has not the compression to write it.
    #[test]
    fn a_compression_that_is_not_here_is_no_damage() {
        let failure = explain_text("a".to_owned(), "Not implemented: Snappy not supported in this build");
        assert_eq!(failure.exit(), Exit::Failed);
        assert!(failure.message().unwrap().to_string().contains("--features rocksdb-compressions"));
    }

    #[test]
    fn chunks_give_back_what_they_were_given() {
        let mut chunk = Chunk::default();
        assert_eq!((chunk.len(), chunk.last_key()), (0, None));
        let entries: [(&[u8], &[u8]); 3] = [(b"a", b""), (b"bc", b"12"), (b"d", b"3")];
        entries.iter().for_each(|(key, value)| chunk.push(key, value));
        assert_eq!(chunk.entries().collect::<Vec<_>>(), entries);
        assert_eq!((chunk.len(), chunk.byte_len(), chunk.last_key()), (3, 7, Some(&b"d"[..])));
    }
}
