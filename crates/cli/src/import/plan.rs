//! The plan of an import: the keyspace of each column family, and the key from which on it is copied.
//!
//! Of each import the store keeps a [`Mark`] for each keyspace, among those of `load`: which state of which database it
//! comes from, and up to which key. A batch of entries and the mark that counts them become durable together. So an
//! import that ended in its middle can be gone on with (`--resume`) without losing or repeating an entry, if the
//! database is still what it was: its identity and the number of its last write are the same.
//!
//! Nothing is written before all column families are known to be welcome: a keyspace that holds entries is refused,
//! unless they are those of this import, or are to be mixed with it (`--merge`).

use super::source::Source;
use crate::failure::Failure;
use crate::options::ImportRocksdbOptions;
use crate::options::MARKS;
use crate::store::Writable;
use crate::text::Encoding;
use serde::{Deserialize, Serialize};
use situ::{Durability, Error, Keyspace, ReadOptions, WriteBatch};
use situ_server::{ITEMS_KEYSPACE, META_KEYSPACE};
use std::collections::BTreeMap;

/// Longest name of a keyspace.
const NAME_BYTES_MAX: usize = 255;

/// The progress of the import of a column family, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// Identity of the database.
    database: String,
    /// Number of its last write.
    sequence: u64,
    column_family: String,
    /// The keyspace may hold other entries, too.
    pub(super) merged: bool,
    /// The last key that is there.
    last_key_base64: Option<String>,
    pub(super) entries: u64,
    pub(super) done: bool,
}

impl Mark {
    fn start(source: &Source, family: &str, merged: bool) -> Mark {
        Mark {
            database: source.identity.clone(),
            sequence: source.sequence,
            column_family: family.to_owned(),
            merged,
            last_key_base64: None,
            entries: 0,
            done: false,
        }
    }

    /// Returns true if the mark is one of this column family, in this state of the database.
    fn is_of(&self, source: &Source, family: &str) -> bool {
        (self.database.as_str(), self.sequence, self.column_family.as_str())
            == (source.identity.as_str(), source.sequence, family)
    }

    pub(super) fn advance(&mut self, last_key: &[u8], entries: u64) {
        self.last_key_base64 = Some(Encoding::Base64.show(last_key));
        self.entries += entries;
    }

    /// # Errors
    /// The mark is damaged.
    pub(super) fn last_key(&self) -> Result<Option<Vec<u8>>, Failure> {
        let decoded = self.last_key_base64.as_ref().map(|key| Encoding::Base64.decode(key.as_bytes())).transpose();
        decoded.map_err(unreadable)
    }
}

/// A column family on its way.
pub(super) struct Task {
    pub(super) family: String,
    pub(super) name: String,
    pub(super) keyspace: Keyspace,
    pub(super) mark: Mark,
    /// Entries that were there when this run began.
    pub(super) entries_before: u64,
}

/// The keyspace of the marks.
pub(super) struct Marks {
    keyspace: Keyspace,
}

impl Marks {
    /// # Errors
    /// The store cannot be read, or the mark is damaged.
    fn find(&self, writable: &Writable, name: &str) -> Result<Option<Mark>, Failure> {
        let found = self.keyspace.get(&mark_key(name)).map_err(|error| writable.failure(CANNOT_READ_MARK, &error))?;
        found.map(|found| serde_json::from_slice(&found).map_err(unreadable)).transpose()
    }

    /// Adds the task's mark to a batch.
    ///
    /// # Errors
    /// The batch is full.
    pub(super) fn put(&self, batch: &mut WriteBatch, task: &Task) -> situ::Result<()> {
        let mark = serde_json::to_vec(&task.mark).map_err(|error| Error::Invalid(error.to_string()))?;
        batch.put_in(&self.keyspace, &mark_key(&task.name), &mark)
    }
}

const CANNOT_READ_MARK: &str = "cannot read the place up to which an import has come";

fn unreadable(why: impl std::fmt::Display) -> Failure {
    Failure::new(CANNOT_READ_MARK, why).cure("import from the beginning, with --merge")
}

/// Those of `load` begin with a keyspace, too, and go on with a path.
fn mark_key(name: &str) -> Vec<u8> {
    [name.as_bytes(), b"\0rocksdb"].concat()
}

/// Returns the keyspace of each column family.
///
/// # Errors
/// Two go into one, or a name is none that they can have.
pub(super) fn names(source: &Source, options: &ImportRocksdbOptions) -> Result<Vec<(String, String)>, Failure> {
    let renamed: BTreeMap<&str, &str> = options.keyspace.iter().map(|(family, name)| (&**family, &**name)).collect();
    let mut families: BTreeMap<&str, &str> = BTreeMap::new();
    for family in &source.families {
        let name = renamed.get(&**family).copied().unwrap_or(family);
        let refuse = |why: String| {
            Failure::new(format!("cannot import the column family {family:?}"), why)
                .cure(format!("choose a keyspace for it with --keyspace {family}=NAME"))
        };
        if [ITEMS_KEYSPACE, META_KEYSPACE, MARKS].contains(&name) {
            return Err(refuse(format!("the keyspace {name:?} is for what the program itself keeps there")));
        }
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(refuse(format!(
                "the name of a keyspace has 1 to {NAME_BYTES_MAX} bytes, and this one would have {}",
                name.len()
            )));
        }
        if let Some(other) = families.insert(name, family) {
            return Err(refuse(format!("the column family {other:?} goes into the keyspace {name:?} already")));
        }
    }
    Ok(families.into_iter().map(|(name, family)| (family.to_owned(), name.to_owned())).collect())
}

/// Plans the tasks of an import. Afterwards all keyspaces exist, and each has the mark of the import that it is the
/// beginning of.
///
/// # Errors
/// A keyspace holds what this import may not touch; then nothing was written.
pub(super) fn tasks(
    source: &Source,
    writable: &Writable,
    names: Vec<(String, String)>,
    options: &ImportRocksdbOptions,
) -> Result<(Marks, Vec<Task>), Failure> {
    let known = writable.store.keyspace_names();
    let found = match known.iter().any(|name| name == MARKS) {
        true => Some(Marks { keyspace: writable.keyspace(MARKS, false)? }),
        false => None,
    };
    let mut begin = Vec::new();
    for (family, name) in &names {
        let old = found.as_ref().map(|marks| marks.find(writable, name)).transpose()?.flatten();
        let old = old.filter(|mark| mark.is_of(source, family));
        let holds_entries = known.contains(name) && !is_empty(writable, name)?;
        begin.push(match (old, holds_entries) {
            (Some(mark), _) if options.resume => mark,
            (Some(mark), true) if !options.merge => return Err(refuse_known(name, &mark)),
            (None, true) if !options.merge => return Err(refuse_foreign(source, name, options.resume)),
            (_, holds_entries) => Mark::start(source, family, holds_entries),
        });
    }
    let marks = Marks { keyspace: writable.keyspace(MARKS, true)? };
    let mut tasks = Vec::new();
    for ((family, name), mark) in names.into_iter().zip(begin) {
        let keyspace = writable.keyspace(&name, true)?;
        tasks.push(Task { family, name, keyspace, entries_before: mark.entries, mark });
    }
    let mut batch = WriteBatch::new();
    let put = tasks.iter().try_for_each(|task| marks.put(&mut batch, task));
    put.and_then(|()| writable.store.write_with(batch, Durability::Buffered))
        .map_err(|error| writable.failure("cannot begin the import", &error))?;
    Ok((marks, tasks))
}

fn is_empty(writable: &Writable, name: &str) -> Result<bool, Failure> {
    let failed = |error: Error| writable.failure(format!("cannot read the keyspace {name:?}"), &error);
    let mut iterator = writable.keyspace(name, false)?.cursor().map_err(failed)?;
    iterator.seek_to_first().map_err(failed)?;
    Ok(!iterator.valid())
}

fn refuse_known(name: &str, mark: &Mark) -> Failure {
    let what = format!("cannot import into the keyspace {name:?}");
    if mark.done {
        Failure::new(what, "this database was imported there already").cure("--resume compares the two again")
    } else {
        Failure::new(what, "an import of this database ended in its middle there").cure("go on with it: --resume")
    }
}

fn refuse_foreign(source: &Source, name: &str, resume: bool) -> Failure {
    let why = match resume {
        true => "it holds entries, and not from this database as it is now: it has changed since, or it is another one",
        false => "it holds entries",
    };
    Failure::new(format!("cannot import into the keyspace {name:?}"), why).cure(format!(
        "import into another store with --data, choose another keyspace with --keyspace, or mix the entries with \
         --merge; {} would win",
        match source.families.len() {
            1 => "those of the database",
            _ => "in all keyspaces, those of the database",
        }
    ))
}
