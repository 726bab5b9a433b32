//! The store that a program opens.

mod default_keyspace;
pub(crate) mod properties;
mod records;

use crate::api::keyspace::Keyspace;
use crate::api::snapshot::Snapshot;
use crate::api::transaction::{Transaction, TransactionOptions};
use crate::base::batch::WriteBatch;
use crate::base::options::{DEFAULT_KEYSPACE, DEFAULT_KEYSPACE_ID};
use crate::base::options::{Durability, KeyspaceOptions, Options};
use crate::base::places::{HomeName, HomeVolume, MakePlaces, Places, Plain, Volumes};
use crate::base::slow::SlowOperation;
use crate::base::stats::Statistics;
use crate::base::sync::lock;
use crate::core::Core;
use crate::opening::closing::Open;
use crate::opening::open::{KeyspaceChoices, check_name, open};
use crate::opening::values::check_room_for_values;
use crate::pipeline::future::{ReadyFuture, WriteFuture};
use crate::pipeline::no_room::Level0;
use crate::pipeline::write::write;
use crate::versions::edit::Edit;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::version::Version;
use crate::work::background::Background;
use crate::{Error, Result};
use situ_base::Env;
use situ_compaction::MakeCompactor;
use situ_storage::{DirectoryVolume, Error as StorageError, FileName, Volume};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The maximum length of the file LINEAGE that is read.
const LINEAGE_BYTES_MAX: u64 = 64 << 10;

/// A builder that opens a store. [`Store::open`] is the short form.
///
/// ```
/// # use situ_engine as situ;
/// use situ::{KeyspaceOptions, Options, StoreBuilder};
/// # fn main() -> situ::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// let sessions = KeyspaceOptions::default().memtable_bytes(16 << 20);
/// let store = StoreBuilder::new(Options::default()).keyspace("sessions", sessions).open(directory.path())?;
/// store.close()
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct StoreBuilder {
    options: Options,
    keyspaces: KeyspaceChoices,
    env: Env,
    read_only: bool,
}

impl StoreBuilder {
    /// Begins with `options`.
    pub fn new(options: Options) -> StoreBuilder {
        StoreBuilder { options, keyspaces: KeyspaceChoices::new(), env: Env::system(), read_only: false }
    }

    /// Sets the options of a keyspace: of one that exists at open, and of one that [`Store::keyspace`] creates later.
    /// Other keyspaces get [`Options::keyspace`]. A store does not remember the options with which it was open before.
    #[must_use]
    pub fn keyspace(mut self, name: &str, options: KeyspaceOptions) -> StoreBuilder {
        self.keyspaces.insert(name.to_owned(), options);
        self
    }

    /// Sets a source of time and threads other than the operating system.
    #[must_use]
    pub fn env(mut self, env: Env) -> StoreBuilder {
        self.env = env;
        self
    }

    /// Opens without a lock and without writing anything. The state is that of the moment of opening, and stays so if
    /// another process writes. All tables are opened at once, at the cost of a descriptor and one read each. If there
    /// are more tables than [`Options::open_tables_max`], each is opened when it is read. A table that the writer has
    /// deleted by then is not found: open the store again for its newer state.
    ///
    /// The writer erases values of the value log that are dead for its own readers. A read that needs such a value
    /// answers [`Error::Changed`]: open the store again.
    ///
    /// A disk without a file system keeps nothing for readers. The writer reuses the pages of a table there soon
    /// after it has deleted the table. A read that needs these pages finds no such table, and never gets their present
    /// contents. Its error names the cure: open the store again.
    #[must_use]
    pub fn read_only(mut self) -> StoreBuilder {
        self.read_only = true;
        self
    }

    /// Sets what finds the store's volumes and decides where its files go.
    #[must_use]
    pub fn places(mut self, places: impl MakePlaces + 'static) -> StoreBuilder {
        self.options.places = Arc::new(places);
        self
    }

    /// Sets the maker of the store's compactor. The default compactor runs compactions on this machine's processors.
    #[must_use]
    pub fn compactor(mut self, compactor: impl MakeCompactor + 'static) -> StoreBuilder {
        self.options.compactor = Arc::new(compactor);
        self
    }

    /// Opens the store in a directory.
    ///
    /// # Errors
    /// The directory cannot be used; another process has the store open; there is (or is not) a store; the store is
    /// damaged; one of its volumes is missing or another's. The text names the cure.
    pub fn open(self, directory: impl AsRef<Path>) -> Result<Store> {
        let create = self.options.create_if_missing && !self.read_only;
        let directory = directory.as_ref();
        let volume = if create { DirectoryVolume::create(directory)? } else { DirectoryVolume::open(directory)? };
        self.open_given(&HomeVolume::directory(volume))
    }

    /// Opens the store whose home is a volume elsewhere, such as a node's.
    ///
    /// # Errors
    /// As [`open`](StoreBuilder::open).
    pub fn open_home(self, home: &Arc<dyn Volume>) -> Result<Store> {
        self.open_given(&HomeVolume::elsewhere(home))
    }

    /// Opens the store in a volume.
    ///
    /// # Errors
    /// As [`open`](StoreBuilder::open).
    pub fn open_volume(self, volume: Arc<dyn Volume>) -> Result<Store> {
        self.open_given(&HomeVolume::given(volume))
    }

    /// Returns the options so far.
    pub fn options(&self) -> &Options {
        &self.options
    }

    fn open_given(self, home: &HomeVolume) -> Result<Store> {
        let opened = open(home, self.env, self.options, &self.keyspaces, self.read_only)?;
        let core = opened.core;
        let default = lock(&core.versions.registry).by_id.get(&DEFAULT_KEYSPACE_ID).cloned();
        let default = default.ok_or_else(|| Error::NoSuchKeyspace { name: DEFAULT_KEYSPACE.to_owned() })?;
        let background = if self.read_only { None } else { Some(Background::start(&core.work)?) };
        let default = Keyspace { core: Arc::clone(&core), inner: default };
        let open = Open::new(&core, background, opened.locks);
        let inner = Inner { core, open, default, keyspace_choices: self.keyspaces };
        Ok(Store { inner: Arc::new(inner), is_over: None })
    }
}

/// An open store: keyspaces over one log and one cache.
///
/// Clones are cheap and share the store; it is closed by [`close`](Store::close) or with the last clone. Methods that
/// take no keyspace work on the one called `default`.
///
/// ```
/// # use situ_engine as situ;
/// use situ::Store;
/// # fn main() -> situ::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// let store = Store::open(directory.path())?;
/// store.put("lovelace", "1815")?;
/// assert_eq!(store.get("lovelace")?.unwrap(), "1815");
/// store.delete("lovelace")?;
/// assert!(store.get("lovelace")?.is_none());
/// store.close()
/// # }
/// ```
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
    /// Returns true once the caller of a long operation does not want it any more.
    is_over: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

struct Inner {
    core: Arc<Core>,
    open: Arc<Open>,
    default: Keyspace,
    /// The options given to the [builder](StoreBuilder::keyspace), for keyspaces that are created later.
    keyspace_choices: KeyspaceChoices,
}

/// The treatment of an existing keyspace that a caller wants to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Existing {
    Use,
    Refuse,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.open.abandon();
    }
}

impl Store {
    /// Opens the store in `directory`, creating it if need be.
    ///
    /// # Errors
    /// As [`StoreBuilder::open`].
    pub fn open(directory: impl AsRef<Path>) -> Result<Store> {
        Store::open_with(directory, Options::default())
    }

    /// Opens the store in `directory` under other options than the defaults. [`StoreBuilder`] has further choices.
    ///
    /// # Errors
    /// As [`StoreBuilder::open`].
    pub fn open_with(directory: impl AsRef<Path>, options: Options) -> Result<Store> {
        StoreBuilder::new(options).open(directory)
    }

    /// Opens an existing store for reading; see [`StoreBuilder::read_only`].
    ///
    /// # Errors
    /// As [`StoreBuilder::open`].
    pub fn open_read_only(directory: impl AsRef<Path>) -> Result<Store> {
        StoreBuilder::new(Options::default()).read_only().open(directory)
    }

    /// Removes the store in `directory` with all of its contents, and the directory if nothing else is left there.
    /// Files that are not a store's stay. An interrupted call can be made again.
    ///
    /// ```
    /// # use situ_engine as situ;
    /// # fn main() -> situ::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("store");
    /// situ::Store::open(&path)?.close()?;
    /// situ::Store::destroy(&path)?;
    /// assert!(!path.exists());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Another process has the store open; the store has further volumes; the system refuses to remove a file.
    pub fn destroy(directory: impl AsRef<Path>) -> Result<()> {
        Store::destroy_with(&HomeVolume::directory(DirectoryVolume::open(directory.as_ref())?), &Plain)
    }

    /// Removes the store in `home` as [`destroy`](Store::destroy) does, on all the volumes that `places` finds.
    ///
    /// # Errors
    /// As [`destroy`](Store::destroy); a volume is missing or locked.
    pub fn destroy_with(home: &HomeVolume, places: &dyn MakePlaces) -> Result<()> {
        let locks = places.clear(home, &Env::system())?;
        remove_files(&*home.volume)?;
        let HomeName::Directory(directory) = &home.named else {
            return Ok(home.volume.sync_names()?);
        };
        drop(locks);
        match std::fs::remove_dir(directory) {
            Err(e) if e.kind() != std::io::ErrorKind::DirectoryNotEmpty => {
                Err(situ_storage::Error::io("remove", directory.display(), e).into())
            }
            _ => Ok(()),
        }
    }

    /// Removes the files of the store whose home is a volume elsewhere, as [`destroy`](Store::destroy) does.
    ///
    /// # Errors
    /// As [`destroy`](Store::destroy).
    pub fn destroy_home(home: &Arc<dyn Volume>) -> Result<()> {
        Store::destroy_with(&HomeVolume::elsewhere(home), &Plain)
    }

    /// Stops background work, makes everything durable, and gives the directory back. Later calls on any clone or
    /// handle answer [`Error::Closed`]. A second call does nothing. The call does not flush memtables, since the log
    /// has their contents. The records that the log had when the store was opened become tables first, so that they are
    /// not replayed twice.
    ///
    /// If this adds a table to level 0, and a compaction of level 0 is due, the call waits for one such compaction of
    /// the keyspace, ten seconds at most. So level 0 stays small in a store that is opened for one write at a time. The
    /// call waits for no compaction once the store has flushed a write that came after its opening. The call cancels
    /// any other compaction, and a later opening restarts it. Other threads may write until the waits are over.
    ///
    /// # Errors
    /// The store had failed, or the log could not be synced: writes that were acknowledged as buffered may be lost at
    /// power failure. [`Error::Invalid`] on one of the store's own threads, on which wakers and listeners are called.
    pub fn close(&self) -> Result<()> {
        self.inner.open.close()
    }

    /// Returns a handle whose checkpoints, backups and verifications end with [`Error::Interrupted`] once `is_over`
    /// returns true. They ask it for each piece or table that they read.
    #[must_use]
    pub fn ended_by(&self, is_over: impl Fn() -> bool + Send + Sync + 'static) -> Store {
        Store { inner: Arc::clone(&self.inner), is_over: Some(Arc::new(is_over)) }
    }

    /// Checks that a long operation is to go on.
    pub(crate) fn check_wanted(&self) -> Result<()> {
        self.core().health.check_open()?;
        match &self.is_over {
            Some(is_over) if is_over() => Err(Error::Interrupted),
            _ => Ok(()),
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.inner.core
    }

    /// Returns the keyspace `name`. The store creates the keyspace if there is none of this name; a new keyspace is
    /// durable on return. A new keyspace gets the options that [`StoreBuilder::keyspace`] named for it, or else
    /// [`Options::keyspace`]. Threads that ask for the same name get the same keyspace.
    ///
    /// ```
    /// # use situ_engine as situ;
    /// # fn main() -> situ::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let store = situ::Store::open(directory.path())?;
    /// let people = store.keyspace("people")?;
    /// people.put(b"ada", b"1815")?;
    /// # store.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`keyspace_with`](Store::keyspace_with).
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        match self.existing_keyspace(name) {
            Err(Error::NoSuchKeyspace { .. }) => {
                let named = self.inner.keyspace_choices.get(name);
                self.find_or_create(name, named.unwrap_or(&self.core().options.keyspace).clone())
            }
            found => found,
        }
    }

    /// Returns the keyspace `name`. The store creates the keyspace with `options` if there is none of this name; an
    /// existing keyspace keeps the options with which the store was opened.
    ///
    /// # Errors
    /// [`Error::NoSuchKeyspace`] if there is none and the store is open read-only. For a new keyspace also:
    /// [`Error::Invalid`] if the name is empty or longer than 255 bytes; the store takes no writes.
    pub fn keyspace_with(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        match self.existing_keyspace(name) {
            Err(Error::NoSuchKeyspace { .. }) => self.find_or_create(name, options),
            found => found,
        }
    }

    fn find_or_create(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        match self.create(name, options, Existing::Use) {
            Err(Error::ReadOnly) => Err(Error::NoSuchKeyspace { name: name.to_owned() }),
            made => made,
        }
    }

    /// Returns an existing keyspace by name. The call creates nothing, so it suits callers whose name may be a mistake.
    ///
    /// # Errors
    /// [`Error::NoSuchKeyspace`].
    pub fn existing_keyspace(&self, name: &str) -> Result<Keyspace> {
        self.core().health.check_open()?;
        let found = lock(&self.core().versions.registry).by_name(name).cloned();
        let inner = found.ok_or_else(|| Error::NoSuchKeyspace { name: name.to_owned() })?;
        Ok(Keyspace { core: Arc::clone(self.core()), inner })
    }

    /// Returns the environment that the store was opened with: its clock and its threads.
    pub fn env(&self) -> &Env {
        &self.core().env
    }

    /// Returns the names of all keyspaces, oldest first.
    pub fn keyspace_names(&self) -> Vec<String> {
        self.core().versions.keyspaces().iter().map(|k| k.name.clone()).collect()
    }

    /// Creates a keyspace while the store is in use, and refuses one that exists. The keyspace is durable on return.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name is taken, empty or longer than 255 bytes; the store takes no writes.
    pub fn create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        self.create(name, options, Existing::Refuse)
    }

    fn create(&self, name: &str, options: KeyspaceOptions, existing: Existing) -> Result<Keyspace> {
        check_name(name)?;
        let core = self.core();
        core.memory.writable()?;
        check_room_for_values(&core.versions.source, &options)?;
        let _guest = core.health.enter()?;
        let mut editor = core.versions.edit()?;
        let id = {
            // Another thread may have created the keyspace before this one got the manifest.
            let registry = lock(&core.versions.registry);
            match (registry.by_name(name), existing) {
                (None, _) => registry.next_id,
                (Some(found), Existing::Use) => {
                    return Ok(Keyspace { core: Arc::clone(core), inner: Arc::clone(found) });
                }
                (Some(_), Existing::Refuse) => {
                    return Err(Error::Invalid(format!(
                        "there is a keyspace {name:?} already; Store::keyspace opens or creates one"
                    )));
                }
            }
        };
        let log_number = lock(&core.memory.commit).places.log_number;
        let meter = &core.memory.budget.meter;
        let inner = KeyspaceCore::new(id, name.to_owned(), options, Version::empty(), log_number, meter);
        let edit = Edit {
            next_keyspace: Some(id + 1),
            created: vec![(id, name.to_owned())],
            log_numbers: vec![(id, log_number)],
            ..Edit::default()
        };
        editor.apply(edit, || {
            lock(&core.memory.commit).places.add_keyspace(&inner);
            let mut registry = lock(&core.versions.registry);
            registry.next_id = id + 1;
            registry.by_id.insert(id, Arc::clone(&inner));
        })?;
        drop(editor);
        self.inner.open.collect_values_of(&inner)?;
        Ok(Keyspace { core: Arc::clone(core), inner })
    }

    /// Removes a keyspace and all of its contents. The removal is durable on return, and so is every earlier write.
    /// Handles to the keyspace answer [`Error::KeyspaceDropped`] from then on; open iterators go on.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the keyspace `default`; [`Error::NoSuchKeyspace`]; the store takes no writes. If the disk
    /// is full or does not answer, the store cannot know whether the keyspace would be there after a crash. The
    /// keyspace takes no writes until the store has made sure that it is there. The store does so by itself as soon as
    /// the disk allows it.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        let core = self.core();
        core.memory.writable()?;
        let _guest = core.health.enter()?;
        let mut editor = core.versions.edit()?;
        let found = lock(&core.versions.registry).by_name(name).cloned();
        let keyspace = found.ok_or_else(|| Error::NoSuchKeyspace { name: name.to_owned() })?;
        if keyspace.id == DEFAULT_KEYSPACE_ID {
            return Err(Error::Invalid("the keyspace \"default\" always exists; delete its keys instead".to_owned()));
        }
        // Entries that were copied out of the keyspace before must not be lost with the log's tail when the keyspace is
        // gone.
        self.sync()?;
        let edit = Edit { dropped: vec![keyspace.id], ..Edit::default() };
        let dropped = editor.apply(edit, || {
            keyspace.dropped.store(true, Ordering::Release);
            lock(&core.memory.commit).places.remove_keyspace(keyspace.id);
            lock(&core.versions.registry).by_id.remove(&keyspace.id);
            let view = keyspace.view.load();
            view.version.files().for_each(|(_, file)| file.retire());
            view.version.segments.files().iter().for_each(|segment| segment.retire());
            view.slots().for_each(|slot| slot.memtable.let_go());
            let empty = crate::versions::view::View {
                active: keyspace.new_slot(0),
                sealed: Vec::new(),
                version: Arc::new(Version::empty()),
            };
            keyspace.view.store(Arc::new(empty));
        });
        drop(editor);
        if dropped.is_ok() {
            keyspace.give_up_value_writers();
            core.memory.log_files.release();
        }
        core.memory.work.notify();
        core.memory.progress.notify();
        dropped
    }

    /// Applies a batch with the store's default durability: all of it or nothing.
    ///
    /// # Errors
    /// As [`Keyspace::put`]; [`Error::KeyspaceDropped`] if one of its keyspaces is gone; [`Error::Invalid`] if they are
    /// another store's.
    pub fn write(&self, batch: WriteBatch) -> Result<()> {
        self.write_with(batch, self.core().options.durability)
    }

    /// Applies a batch: all of it or nothing.
    ///
    /// # Errors
    /// As [`write`](Store::write).
    pub fn write_with(&self, batch: WriteBatch, durability: Durability) -> Result<()> {
        batch.check_store(self.core().id)?;
        write(&self.core().pipeline, batch, durability)
    }

    /// Works like [`write`](Store::write), without blocking; see [`Keyspace::put_async`]. All errors come from the
    /// future.
    pub fn write_async(&self, batch: WriteBatch) -> WriteFuture {
        self.write_with_async(batch, self.core().options.durability)
    }

    /// Works like [`write_with`](Store::write_with), without blocking; see [`Keyspace::put_async`].
    pub fn write_with_async(&self, batch: WriteBatch, durability: Durability) -> WriteFuture {
        let batch = batch.check_store(self.core().id).map(|()| batch);
        WriteFuture::begin(&self.core().pipeline, batch, durability)
    }

    /// Begins a transaction: reads and writes that take effect together or not at all, isolated from those of others.
    ///
    /// ```
    /// # use situ_engine as situ;
    /// use situ::{LockMode, Store};
    /// # fn main() -> situ::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let store = Store::open(directory.path())?;
    /// let mut transaction = store.begin()?;
    /// let seen = transaction.get_for_update("visits", LockMode::Exclusive)?;
    /// let visits = seen.map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().unwrap()));
    /// transaction.put("visits", (visits + 1).to_le_bytes())?;
    /// transaction.commit()?;
    /// # store.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// The store takes no writes.
    pub fn begin(&self) -> Result<Transaction> {
        self.begin_with(&TransactionOptions::default())
    }

    /// Begins a transaction with other options than the defaults.
    ///
    /// # Errors
    /// As [`begin`](Store::begin).
    pub fn begin_with(&self, options: &TransactionOptions) -> Result<Transaction> {
        Transaction::begin(self.default_keyspace(), options)
    }

    /// Returns true if [as many asynchronous requests](crate::StoreProperties::requests_outstanding) are under way as
    /// the store works on well ([`Options::requests_outstanding_max`]), or if writes wait for the store to take them. A
    /// busy store still takes requests, up to the bounds of memory that [`Keyspace::put_async`] names, but they only
    /// wait longer. A caller with many requests holds back until [`ready`](Store::ready). The call costs two atomic
    /// loads.
    pub fn is_busy(&self) -> bool {
        self.core().pipeline.is_busy()
    }

    /// Waits, without blocking, until the store is not [busy](Store::is_busy), or takes no more requests.
    ///
    /// ```
    /// # use situ_engine as situ;
    /// # use situ::Store;
    /// async fn put_many(store: &Store, keys: impl Iterator<Item = u64>) -> situ::Result<()> {
    ///     let mut under_way = std::collections::VecDeque::new();
    ///     for key in keys {
    ///         store.ready().await;
    ///         under_way.push_back(store.put_async(key.to_be_bytes(), "value"));
    ///         while under_way.front().is_some_and(|write| write.is_done()) {
    ///             if let Some(write) = under_way.pop_front() {
    ///                 write.await?;
    ///             }
    ///         }
    ///     }
    ///     for write in under_way {
    ///         write.await?;
    ///     }
    ///     Ok(())
    /// }
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let store = Store::open(directory.path()).unwrap();
    /// # let mut future = std::pin::pin!(put_many(&store, 0..100));
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # while future.as_mut().poll(&mut context).is_pending() { std::thread::yield_now(); }
    /// # store.close().unwrap();
    /// ```
    pub fn ready(&self) -> ReadyFuture {
        ReadyFuture::of(&self.core().pipeline)
    }

    /// Returns a snapshot of the current state, for later reads.
    ///
    /// # Errors
    /// The store is closed.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.core().health.check_open()?;
        Ok(Snapshot::take(self.default_keyspace()))
    }

    /// Makes every write acknowledged so far durable.
    ///
    /// # Errors
    /// The store takes no writes, or the sync failed; then it takes none from now on.
    pub fn sync(&self) -> Result<()> {
        let core = self.core();
        let log = core.memory.writable()?;
        log.sync().map_err(|error| {
            core.health.fail(error.clone());
            error.into()
        })
    }

    /// Flushes all keyspaces; see [`Keyspace::flush`].
    ///
    /// # Errors
    /// The same as for one keyspace.
    pub fn flush(&self) -> Result<()> {
        self.core().health.check_open()?;
        self.core()
            .versions
            .keyspaces()
            .iter()
            .try_for_each(|keyspace| self.core().work.flushes.flush(keyspace, Level0::Heeded))
    }

    /// Waits until background work has nothing left to do.
    ///
    /// # Errors
    /// The store takes no writes, or background work fails (a full disk).
    pub fn wait_idle(&self) -> Result<()> {
        self.core().work.wait_idle()
    }

    /// Returns what decides where the store's files go.
    pub fn places(&self) -> &Arc<dyn Places> {
        &self.core().work.places
    }

    /// Returns the volumes that the store lies on.
    pub fn volumes(&self) -> &Arc<dyn Volumes> {
        &self.core().versions.source.volumes
    }

    /// Returns the contents of the file LINEAGE, in which backups note what the store descends from. Empty without one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn lineage(&self) -> Result<Vec<u8>> {
        let reader = match self.core().versions.volume.open(FileName::Lineage) {
            Err(StorageError::NotFound { .. }) => return Ok(Vec::new()),
            reader => reader?,
        };
        let mut lineage = vec![0; reader.bytes().min(LINEAGE_BYTES_MAX) as usize];
        reader.read_at(0, &mut lineage)?;
        Ok(lineage)
    }

    /// Puts what `change` makes of the contents of the file LINEAGE in their place: durably, and as a whole. One call
    /// at a time changes the file.
    ///
    /// # Errors
    /// The store takes no writes, or is closing; the file cannot be read or written.
    pub fn change_lineage(&self, change: impl FnOnce(&[u8]) -> Vec<u8>) -> Result<()> {
        let _guest = self.core().health.enter()?;
        self.check_writable()?;
        let (versions, volume) = (&self.core().versions, &self.core().versions.volume);
        let _editor = versions.edit()?;
        let lineage = change(&self.lineage()?);
        // A volume has one replacement at a time, and others replace files, too.
        let next = FileName::Temporary(versions.new_number());
        let write = || {
            let mut file = volume.create(next, lineage.len() as u64)?;
            file.append(&lineage)?;
            file.finish()?;
            volume.rename(next, FileName::Lineage)?;
            volume.sync_names()
        };
        // A file that cannot be removed either is an orphan, which the next opening removes.
        Ok(write().inspect_err(|_| drop(volume.remove(next)))?)
    }

    /// Checks that the store takes writes.
    ///
    /// # Errors
    /// The store is open read-only, is closed, or has failed.
    pub fn check_writable(&self) -> Result<()> {
        self.core().memory.writable().map(drop)
    }

    /// Checks the conditions that an open store meets at any moment. The versions' invariants hold. Each table in the
    /// versions, and each log file that memory depends on, exists in its length. No number is ahead of the store's own.
    /// The check costs one listing of the volume and no reading; [`verify`](crate::verify()) reads a store that is
    /// closed.
    ///
    /// # Errors
    /// The first condition that does not hold; the volume cannot be listed.
    pub fn check(&self) -> Result<()> {
        self.core().health.check_open()?;
        self.core().versions.check().inspect_err(|error| self.core().versions.source.damaged.note(error))
    }

    /// Returns counters and latencies since the store was opened.
    pub fn statistics(&self) -> Statistics {
        self.core().health.stats.read_all()
    }

    /// Returns the last operations that took longer than [`Options::slow_operation`], 100 at most, oldest first.
    pub fn slow_operations(&self) -> Vec<SlowOperation> {
        self.core().health.slow.last()
    }
}

/// Removes all files of a home that is locked.
pub(crate) fn remove_files(home: &dyn Volume) -> Result<()> {
    let mut files = home.list()?;
    // The lock goes last. The log goes before the files that name it, so that no half of a store looks like a whole
    // one.
    files.sort_by_key(|file| match file.name {
        FileName::Log(_) => 0,
        FileName::Table(_) | FileName::Values(_) => 1,
        FileName::Lock => 3,
        _ => 2,
    });
    for file in files {
        home.remove(file.name)?;
    }
    Ok(())
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.core().versions.volume.location())
    }
}
