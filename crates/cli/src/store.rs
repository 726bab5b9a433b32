//! Opening stores as commands need them.
//!
//! Every command opens its store through a [`Home`]: a directory, or a store on a node (`node://HOST:PORT/STORE`).
//! Nothing else knows the difference.
//!
//! Commands that only read open the store read-only, which takes no lock: they work next to a running server, on the
//! state of the moment they begin.

use crate::failure::Failure;
use situ::offload::{Offload, Unit};
use situ::{
    Durability, Error, Keyspace, Options, RepairOptions, RepairReport, Store, StoreBuilder, VerifyProgress,
    VerifyReport,
};
use situ_base::{Env, StoreClock};
use situ_node::message::VolumePlace;
use situ_node::{NodeAddress, NodeClient, NodeOptions, NodeUnit, NodeVolume, Secret, TlsRoots};
use situ_server::{
    ExpiryRule, ITEMS_KEYSPACE, ItemView, ItemWriter, item_in_unix_time, open_unserved_by, stored_clock, stored_rule,
};
use situ_storage::{DirectoryVolume, FileName, Volume, trace_of_hash_store};
use situ_tiers::TieredBuilder;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::options::{DATA, Directory, NodeAccess, NodeKeys, Range, StoreKind, Target, WholeStore};
use crate::output::Output;
use crate::text::Encoding;
use crate::walk::{Bounds, EachEntry, Order, Walk};
use crate::watch::NodeWatch;

/// The home of a store: a directory, or a store on a node.
#[derive(Clone)]
pub(crate) struct Home {
    /// The directory, or the address as it was given; for messages, too.
    path: PathBuf,
    keys: NodeKeys,
    /// Nodes that help to compact a store in a directory.
    compute: Vec<String>,
    /// The path of the directory on these nodes, if they have it.
    compute_shared: Option<PathBuf>,
    /// The watch over the nodes, if there is one.
    watch: Option<Arc<NodeWatch>>,
}

impl Target {
    /// Returns the home of the store.
    pub(crate) fn home(&self) -> Home {
        Home::new(self.data.clone(), &self.node)
    }
}

impl WholeStore {
    /// Returns the home of the store.
    pub(crate) fn home(&self) -> Home {
        Home::new(self.data.clone(), &self.node)
    }
}

impl Directory {
    /// Returns the home of the store.
    pub(crate) fn home(&self) -> Home {
        let named = self.directory.clone().or_else(|| self.data.clone());
        Home::new(named.unwrap_or_else(|| PathBuf::from(DATA)), &self.node)
    }
}

impl Home {
    /// Returns the home that the options name: the node if they name one, or else `path`.
    pub(crate) fn new(path: PathBuf, node: &NodeAccess) -> Home {
        let path = node.capacity.as_ref().map_or(path, PathBuf::from);
        let NodeAccess { compute, compute_shared, keys, .. } = node.clone();
        Home { path, keys, compute, compute_shared, watch: None }
    }

    /// Returns the home at a directory or an address.
    pub(crate) fn at(path: &Path, keys: &NodeKeys) -> Home {
        Home { path: path.to_owned(), keys: keys.clone(), compute: Vec::new(), compute_shared: None, watch: None }
    }

    /// Returns this home with its nodes watched by `watch`.
    pub(crate) fn watched(self, watch: &Arc<NodeWatch>) -> Home {
        Home { watch: Some(Arc::clone(watch)), ..self }
    }

    /// Returns the path as it was given: for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the address, if it is on a node.
    fn address(&self) -> Option<&str> {
        self.path.to_str().filter(|text| NodeAddress::is_one(text))
    }

    /// Returns true if it is on a node.
    pub(crate) fn is_on_node(&self) -> bool {
        self.address().is_some()
    }

    fn node_options(&self) -> situ::Result<NodeOptions> {
        let known = node_options(&self.keys)?;
        let patience = self.watch.as_ref().map_or(known.write_patience, |watch| watch.patience);
        let on_state = self.watch.as_ref().map(|watch| watch.on_state());
        Ok(NodeOptions { write_patience: patience, on_state, ..known })
    }

    /// Opens the files on the node, and the unit next to them.
    fn beside(&self, address: &str) -> situ::Result<(Arc<NodeVolume>, Arc<NodeUnit>)> {
        let (volume, unit) = NodeUnit::beside(address.parse()?, self.node_options()?)?;
        self.watch.iter().for_each(|watch| watch.add(Arc::downgrade(volume.client()), true));
        Ok((volume, unit))
    }

    /// Returns a connection to the node; `None` of a directory.
    fn on_node(&self) -> situ::Result<Option<Arc<dyn Volume>>> {
        let Some(address) = self.address() else { return Ok(None) };
        let client = NodeClient::connect(address.parse()?, self.node_options()?)?;
        Ok(Some(Arc::new(NodeVolume::open(Arc::new(client))?)))
    }

    /// Returns the nodes that help to compact: connected before the store is opened, so that one that refuses leaves
    /// the store alone.
    fn helpers(&self, place: &VolumePlace) -> situ::Result<Vec<Helper>> {
        let helper = |node: &String| {
            let address: NodeAddress = node.parse()?;
            let unit = Arc::new(NodeUnit::elsewhere(&Env::system(), &address, place.clone()));
            // The processor does the compactions of a helper that is not there.
            let options = NodeOptions { may_be_lost: true, ..self.node_options()? };
            let client = unit.connect(address, options)?;
            self.watch.iter().for_each(|watch| watch.add(Arc::downgrade(&client), false));
            Ok(Helper { unit, client })
        };
        self.compute.iter().map(helper).collect()
    }

    /// Opens a store in a directory, with nodes that help to compact it.
    fn open_helped(&self, builder: StoreBuilder, offload: Offload) -> situ::Result<OpenedHome> {
        let shared = |path: &PathBuf| VolumePlace::SharedDirectory(path.display().to_string());
        let helpers = self.helpers(&self.compute_shared.as_ref().map_or(VolumePlace::Host, shared))?;
        let store = builder.compactor(with_units(offload, &helpers)).open(&self.path)?;
        let clients = helpers.iter().map(|helper| Arc::clone(&helper.client)).collect();
        for Helper { unit, client } in helpers {
            // The directory is there by now.
            unit.help(client, Arc::new(DirectoryVolume::open(&self.path)?))?;
        }
        Ok(OpenedHome { store, clients })
    }

    /// Opens a store on a node. That node compacts it, and so do nodes that help.
    fn open_on_node(&self, address: &str, builder: StoreBuilder, offload: Offload) -> situ::Result<OpenedHome> {
        let (volume, unit) = self.beside(address)?;
        let helpers = self.helpers(&VolumePlace::OtherNode(address.to_owned()))?;
        let home: Arc<dyn Volume> = Arc::clone(&volume) as Arc<dyn Volume>;
        let offload = with_units(offload.unit(unit as Arc<dyn Unit>), &helpers);
        let store = builder.compactor(offload).open_home(&home)?;
        let mut clients = vec![Arc::clone(volume.client())];
        clients.extend(helpers.iter().map(|helper| Arc::clone(&helper.client)));
        for Helper { unit, client } in helpers {
            unit.help_for(client, Arc::clone(volume.client()))?;
        }
        Ok(OpenedHome { store, clients })
    }

    /// Returns the volume of the home, without a fast disk.
    ///
    /// # Errors
    /// There is no such directory; the node does not answer.
    pub(crate) fn volume(&self) -> situ::Result<Arc<dyn Volume>> {
        match self.on_node()? {
            Some(volume) => Ok(volume),
            None => Ok(Arc::new(DirectoryVolume::open(&self.path)?)),
        }
    }

    /// Returns the kind of the store in the directory. The opening reports a directory that cannot be listed. Stores on
    /// nodes are ordered ones.
    pub(crate) fn kind(&self) -> StoreKind {
        if self.is_on_node() {
            return StoreKind::Ordered;
        }
        self.kind_of_files().unwrap_or(StoreKind::None)
    }

    fn kind_of_files(&self) -> situ_storage::Result<StoreKind> {
        let volume = DirectoryVolume::open(&self.path)?;
        let files = volume.list()?;
        let has = |is: fn(&FileName) -> bool| files.iter().any(|file| is(&file.name));
        Ok(if has(|name| *name == FileName::Superblock) {
            StoreKind::Hash
        } else if has(|name| *name == FileName::Current) {
            StoreKind::Ordered
        } else if trace_of_hash_store(&volume, &files)?.is_some() {
            // It has lost its superblock, which its opening reports.
            StoreKind::Hash
        } else if has(|name| name.number().is_some()) {
            StoreKind::Ordered
        } else {
            StoreKind::None
        })
    }

    /// Returns true if it is a hash store.
    pub(crate) fn is_hash(&self) -> bool {
        self.kind() == StoreKind::Hash
    }

    /// Opens the store.
    ///
    /// # Errors
    /// As [`StoreBuilder::open`].
    pub(crate) fn open(&self, builder: StoreBuilder) -> situ::Result<Store> {
        self.open_with(builder, Offload::new())
    }

    /// Opens the store, with the nodes added to `offload`.
    ///
    /// # Errors
    /// As [`StoreBuilder::open`].
    pub(crate) fn open_with(&self, builder: StoreBuilder, offload: Offload) -> situ::Result<Store> {
        Ok(self.open_with_nodes(builder, offload)?.store)
    }

    /// Opens the store like [`open_with`](Home::open_with), and returns the nodes that take part.
    ///
    /// # Errors
    /// As [`StoreBuilder::open`].
    pub(crate) fn open_with_nodes(&self, builder: StoreBuilder, offload: Offload) -> situ::Result<OpenedHome> {
        let builder = builder.with_tiers();
        match self.address() {
            Some(address) => self.open_on_node(address, builder, offload),
            None => self.open_helped(builder, offload),
        }
    }

    /// Removes the store, which is not open.
    ///
    /// # Errors
    /// A file cannot be removed, or the node does not answer.
    #[cfg(feature = "bench")]
    pub(crate) fn destroy(&self) -> situ::Result<()> {
        match self.on_node()? {
            Some(volume) => situ_tiers::destroy_home(&volume),
            None => situ_tiers::destroy(&self.path),
        }
    }

    /// Opens the store to read.
    ///
    /// # Errors
    /// As [`Store::open_read_only`].
    pub(crate) fn open_read_only(&self) -> situ::Result<Store> {
        let builder = StoreBuilder::new(Options::default()).with_tiers().read_only();
        match self.on_node()? {
            Some(volume) => builder.open_home(&volume),
            None => builder.open(&self.path),
        }
    }

    /// Returns all files of the store, wherever they lie.
    ///
    /// # Errors
    /// As [`situ_tiers::files_of`].
    pub(crate) fn files(&self) -> situ::Result<Arc<dyn Volume>> {
        match self.on_node()? {
            Some(volume) => situ_tiers::files_of_home(&volume),
            None => situ_tiers::files_of(&self.path),
        }
    }

    /// Reads and checks every byte of the store whose home is `volume`.
    ///
    /// # Errors
    /// As [`situ::verify`].
    pub(crate) fn verify(
        &self,
        volume: &Arc<dyn Volume>,
        progress: &mut dyn FnMut(VerifyProgress),
    ) -> situ::Result<VerifyReport> {
        match self.is_on_node() {
            true => situ_tiers::verify_home(volume, progress),
            false => situ_tiers::verify_directory(&self.path, progress),
        }
    }

    /// Repairs the store.
    ///
    /// # Errors
    /// As [`situ::repair`].
    pub(crate) fn repair(&self, options: RepairOptions) -> situ::Result<RepairReport> {
        match self.on_node()? {
            Some(volume) => situ_tiers::repair_home(&volume, options),
            None => situ_tiers::repair_directory(&self.path, options),
        }
    }
}

/// Returns the options for a connection to a node.
///
/// # Errors
/// A file cannot be read, or is not what it should be.
pub(crate) fn node_options(keys: &NodeKeys) -> situ_storage::Result<NodeOptions> {
    Ok(NodeOptions {
        secret: read_key(keys.node_secret_file.as_deref(), "--node-secret-file", Secret::read)?,
        tls: read_key(keys.node_ca.as_deref(), "--node-ca", TlsRoots::read)?,
        ..NodeOptions::default()
    })
}

/// Reads the file that `option` names, if it is given. A failure names the option, so a missing file does not look like
/// a missing store.
pub(crate) fn read_key<T>(
    path: Option<&Path>,
    option: &str,
    read: impl FnOnce(&Path) -> situ_storage::Result<T>,
) -> situ_storage::Result<Option<T>> {
    use situ_storage::Error;
    let name = |path: &Path, error: Error| match error {
        error @ (Error::NotFound { .. } | Error::Io { .. }) => {
            Error::Invalid(format!("{option} {}: {error}; name a file that exists and can be read", path.display()))
        }
        error => error,
    };
    path.map(|path| read(path).map_err(|error| name(path, error))).transpose()
}

/// A store that is open, and the nodes that take part.
pub(crate) struct OpenedHome {
    pub(crate) store: Store,
    #[cfg_attr(not(feature = "bench"), expect(dead_code, reason = "only the benchmark shows what they have moved"))]
    pub(crate) clients: Vec<Arc<NodeClient>>,
}

/// A node that helps to compact a store, and the unit on it.
struct Helper {
    unit: Arc<NodeUnit>,
    client: Arc<NodeClient>,
}

fn with_units(offload: Offload, helpers: &[Helper]) -> Offload {
    helpers.iter().fold(offload, |offload, helper| offload.unit(Arc::clone(&helper.unit) as Arc<dyn Unit>))
}

/// Opens the store to read. In a server, takes the store that is open.
///
/// # Errors
/// As [`Failure::store`].
pub(crate) fn open_to_read(home: &Home, out: &Output) -> Result<Store, Failure> {
    if let Some(store) = out.served() {
        return Ok(store.clone());
    }
    let store = home.open_read_only().map_err(|error| {
        Failure::store(format!("cannot open the store in {}", home.path().display()), home.path(), &error)
    })?;
    tell_mended(&store, out);
    Ok(store)
}

/// Warns of what was damaged and is whole in a second copy: the command goes on, and the disk may be failing.
fn tell_mended(store: &Store, out: &Output) {
    store.properties().mended.iter().for_each(|damage| out.warn(damage));
}

/// A store open for writing; [`close`](Writable::close) says if anything went wrong at the end.
pub(crate) struct Writable {
    pub(crate) store: Store,
    directory: PathBuf,
    /// A server has it open, and goes on with it.
    is_served: bool,
}

impl Writable {
    /// Opens the store; makes it if `create`. In a server, takes the store that is open.
    ///
    /// # Errors
    /// As [`Failure::store`].
    pub(crate) fn open(home: &Home, create: bool, out: &Output) -> Result<Writable, Failure> {
        let directory = home.path();
        if let Some(store) = out.served() {
            return Ok(Writable { store: store.clone(), directory: directory.to_owned(), is_served: true });
        }
        let mut options = Options::default();
        options.create_if_missing = create;
        // Its compactions treat memcached items as a server's do.
        let store = open_unserved_by(options, |builder| home.open(builder)).map_err(|error| {
            Failure::store(format!("cannot open the store in {}", directory.display()), directory, &error)
        })?;
        tell_mended(&store, out);
        Ok(Writable { store, directory: directory.to_owned(), is_served: false })
    }

    /// Returns the keyspace; makes it if `create`.
    ///
    /// # Errors
    /// There is none of that name, or it cannot be made.
    pub(crate) fn keyspace(&self, name: &str, create: bool) -> Result<Keyspace, Failure> {
        if !create {
            return keyspace(&self.store, name);
        }
        let found_or_made = self.store.keyspace(name);
        found_or_made.map_err(|error| self.failure(format!("cannot make the keyspace {name:?}"), &error))
    }

    /// Returns the name that was asked for, or those of all keyspaces.
    pub(crate) fn names(&self, asked: Option<&str>) -> Vec<String> {
        asked.map_or_else(|| self.store.keyspace_names(), |name| vec![name.to_owned()])
    }

    /// An operation on it failed.
    pub(crate) fn failure(&self, what: impl std::fmt::Display, error: &Error) -> Failure {
        Failure::store(what, &self.directory, error)
    }

    /// Checks that no server has the items in memory or about to change: clients rely on it to compare and set.
    ///
    /// # Errors
    /// A server has the store open. `what` is not done.
    pub(crate) fn check_items(&self, what: &str) -> Result<(), Failure> {
        match self.is_served {
            false => Ok(()),
            true => {
                Err(Failure::new(what, "a server has the store open, and its clients rely on the cas ids of its items")
                    .cure("use the memcached protocol, or stop the server first"))
            }
        }
    }

    /// Returns the writer of memcached items.
    ///
    /// # Errors
    /// A server's records cannot be read or made, or a server is about to write them.
    pub(crate) fn item_writer(&self) -> Result<ItemWriter, Failure> {
        self.check_items("cannot write memcached items")?;
        let failed = |error: Error| self.failure("cannot continue the cas ids of the memcached items", &error);
        let clock = stored_clock(&self.store).map_err(failed)?;
        ItemWriter::open(&self.store, Arc::new(clock)).map_err(failed)
    }

    /// Closes the store, unless a server goes on with it: everything is durable then.
    ///
    /// # Errors
    /// It could not be made durable.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let (closed, what) = match self.is_served {
            true => (self.store.sync(), "cannot make the writes durable"),
            false => (self.store.close(), "cannot close the store"),
        };
        closed.map_err(|error| self.failure(what, &error))
    }
}

/// Returns a keyspace that must exist.
///
/// # Errors
/// It does not; the text names those that do.
pub(crate) fn keyspace(store: &Store, name: &str) -> Result<Keyspace, Failure> {
    store.existing_keyspace(name).map_err(|error| match error {
        Error::NoSuchKeyspace { .. } => Failure::new(
            format!("there is no keyspace {name:?}"),
            format!("the store has {}", store.keyspace_names().join(", ")),
        )
        .cure("name one of these with --keyspace"),
        error => Failure::new(format!("cannot use the keyspace {name:?}"), error),
    })
}

/// Returns the durability at which a write returns.
pub(crate) fn durability(sync: bool) -> Durability {
    if sync { Durability::Synced } else { Durability::Buffered }
}

/// A keyspace to read, and how its values are to be shown.
pub(crate) struct Readable {
    pub(crate) keyspace: Keyspace,
    pub(crate) directory: PathBuf,
    /// The expiry rule and the clock of the store, if values are memcached items.
    items: Option<(ExpiryRule, StoreClock)>,
    /// Items are shown with their header.
    stored: bool,
    /// Closes when it is dropped.
    store: Store,
}

impl Readable {
    /// Opens `target`. Memcached items are shown as their clients see them, or with their header if `stored`.
    ///
    /// # Errors
    /// As [`Target::keyspace`], [`open_to_read`] and [`keyspace`]; or a server's records are damaged.
    pub(crate) fn open(target: &Target, stored: bool, out: &Output) -> Result<Readable, Failure> {
        let name = target.keyspace(stored)?;
        let home = target.home();
        let store = open_to_read(&home, out)?;
        let keyspace = keyspace(&store, name)?;
        let mut readable = Readable { keyspace, directory: home.path().to_owned(), items: None, stored, store };
        if name == ITEMS_KEYSPACE {
            readable.items = readable.item_rule()?;
        }
        Ok(readable)
    }

    fn item_rule(&self) -> Result<Option<(ExpiryRule, StoreClock)>, Failure> {
        let rule = || {
            let clock = stored_clock(&self.store)?;
            Ok(stored_rule(&self.store, clock.seconds())?.map(|rule| (rule, clock)))
        };
        rule().map_err(|error| Failure::store("cannot read the server's records", &self.directory, &error))
    }

    /// Returns true if a memcached client would find `key`, which is not in this keyspace.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) fn is_item_elsewhere(&self, key: &[u8]) -> Result<bool, Failure> {
        if self.items.is_some() {
            return Ok(false);
        }
        let Some((rule, _)) = self.item_rule()? else { return Ok(false) };
        let item = keyspace(&self.store, ITEMS_KEYSPACE)?.get(key);
        let item = item.map_err(|error| Failure::store("cannot read the key", &self.directory, &error))?;
        Ok(item.is_some_and(|item| !rule.is_dead(&item)))
    }

    /// Returns a value as it is to be shown; `None` for an item that is dead.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn shown<'a>(&self, value: &'a [u8]) -> Result<Option<Cow<'a, [u8]>>, Failure> {
        match &self.items {
            Some((rule, clock)) => shown_item(value, rule, clock, self.stored),
            None => Ok(Some(value.into())),
        }
    }
}

/// Returns an item for output; `None` if it is dead. If `stored`, it includes its header, with the expiration as Unix
/// time.
///
/// # Errors
/// There is no memory for it.
pub(crate) fn shown_item<'a>(
    value: &'a [u8],
    rule: &ExpiryRule,
    clock: &StoreClock,
    stored: bool,
) -> Result<Option<Cow<'a, [u8]>>, Failure> {
    let item = match stored {
        _ if rule.is_dead(value) => return Ok(None),
        true => item_in_unix_time(value, clock).map_err(|error| Failure::new("cannot show an item", error))?,
        false => ItemView::of(value).map_or(value, |item| item.data).into(),
    };
    Ok(Some(item))
}

impl Walk for Readable {
    fn strips_items(&self) -> bool {
        self.items.is_some() && !self.stored
    }

    fn approximate_entries(&self) -> u64 {
        self.keyspace.properties().approximate_keys
    }

    fn walk(&self, range: &Range, encoding: Encoding, order: Order, each: &mut EachEntry<'_>) -> Result<u64, Failure> {
        let limit = range.limit.unwrap_or(u64::MAX);
        let failed = |error: Error| Failure::store("cannot read the store", &self.directory, &error);
        let options = Bounds::of(range, encoding)?.options();
        let mut iterator = self.keyspace.cursor_with(&options).map_err(failed)?;
        let reverse = order == Order::Descending;
        if reverse { iterator.seek_to_last() } else { iterator.seek_to_first() }.map_err(failed)?;
        let mut seen = 0;
        while seen < limit {
            let (Some(key), Some(value)) = (iterator.key(), iterator.value()) else { break };
            if let Some(value) = self.shown(value)? {
                each(key, &value, None)?;
                seen += 1;
            }
            if reverse { iterator.prev() } else { iterator.next() }.map_err(failed)?;
        }
        Ok(seen)
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        Ok(())
    }
}
