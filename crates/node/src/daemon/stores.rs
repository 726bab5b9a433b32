//! The stores of a node, by name.
//!
//! In a directory, each store has a directory of its own. A disk without a file system has one store. Its name is noted
//! with the first lease (`lease/note.rs`), and other names are refused.
//!
//! **Bounds.** The options give the maximum number of stores that are kept, and no more are open at once. A store is
//! closed when it has no client that could come back, and its lease awaits no owner. When too many are open, such
//! stores make room at once.
//! **Threads.** Any; one thread at a time opens a store. **Failure.** A store that could not be opened is opened again
//! by the next client that asks, also after a panic.

use super::home::Home;
use crate::address::check_store_name;
use crate::files::{Files, Limits};
use crate::lease::{Lease, Note};
use situ_base::{Env, Event, lock};
use situ_storage::{DirectoryVolume, Error, Result, Volume};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The storage of a node's files.
#[derive(Clone)]
pub enum Storage {
    /// In this directory: a directory for each store.
    Directory(PathBuf),
    /// On a disk without a file system: one store.
    Disk(Arc<dyn Volume>),
}

/// See the module's page.
pub(super) struct Stores {
    env: Env,
    storage: Storage,
    stores_max: usize,
    term: Duration,
    limits: Limits,
    open: Mutex<HashMap<String, Slot>>,
    opened: Arc<dyn Event>,
}

enum Slot {
    /// A thread opens the store, or closes it.
    Changing,
    Open(Arc<Files>),
}

/// A thread opens the store of this name, or closes it, until this is dropped. A store that is not open then leaves no
/// slot, also after a panic: the next client tries again.
struct Changing<'a> {
    stores: &'a Stores,
    name: String,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut open = lock(&self.stores.open);
        if matches!(open.get(&self.name), Some(Slot::Changing)) {
            open.remove(&self.name);
        }
        drop(open);
        self.stores.opened.notify();
    }
}

impl Stores {
    /// # Errors
    /// The directory cannot be made.
    pub(super) fn new(
        env: &Env,
        storage: Storage,
        stores_max: usize,
        term: Duration,
        limits: Limits,
    ) -> Result<Stores> {
        if let Storage::Directory(directory) = &storage {
            DirectoryVolume::create(directory)?;
        }
        let opened = env.executor.event();
        Ok(Stores { env: env.clone(), storage, stores_max, term, limits, open: Mutex::default(), opened })
    }

    /// Returns the place of the files, for people.
    pub(super) fn location(&self) -> String {
        match &self.storage {
            Storage::Directory(directory) => directory.display().to_string(),
            Storage::Disk(volume) => volume.location(),
        }
    }

    /// The store of this name.
    ///
    /// # Errors
    /// The name is none, the disk has another store, too many stores are open, or the system refuses.
    pub(super) fn find(&self, name: &str) -> Result<Arc<Files>> {
        let is_full = {
            let open = lock(&self.open);
            open.len() >= self.stores_max && !open.contains_key(name)
        };
        if is_full {
            self.sweep();
        }
        self.find_or(name, || self.make(name))
    }

    fn find_or(&self, name: &str, make: impl FnOnce() -> Result<Arc<Files>>) -> Result<Arc<Files>> {
        check_store_name(name)?;
        loop {
            let seen = self.opened.generation();
            {
                let mut open = lock(&self.open);
                match open.get(name) {
                    Some(Slot::Open(files)) => return Ok(Arc::clone(files)),
                    Some(Slot::Changing) => {}
                    None if matches!(self.storage, Storage::Disk(_)) && !open.is_empty() => {
                        let (at, has) = (self.location(), open.keys().next().cloned().unwrap_or_default());
                        return Err(Error::Invalid(format!(
                            "{at} on the node has the store {has:?}, and holds one only"
                        )));
                    }
                    None if open.len() >= self.stores_max => {
                        let most = self.stores_max;
                        return Err(Error::Invalid(format!("the node has {most} stores open, and opens no more")));
                    }
                    None => {
                        open.insert(name.to_owned(), Slot::Changing);
                        break;
                    }
                }
            }
            self.opened.wait(seen, None);
        }
        let _opening = Changing { stores: self, name: name.to_owned() };
        let files = make()?;
        lock(&self.open).insert(name.to_owned(), Slot::Open(Arc::clone(&files)));
        Ok(files)
    }

    fn make(&self, name: &str) -> Result<Arc<Files>> {
        let (volume, note): (Arc<dyn Volume>, Note) = match &self.storage {
            Storage::Directory(directory) => {
                (Arc::new(Home::find(directory, name, self.stores_max)?), Note::Beside(directory.join(name)))
            }
            Storage::Disk(volume) => (Arc::clone(volume), Note::Among(Arc::clone(volume))),
        };
        let lease = Lease::open(&self.env, name, self.term, note, &volume)?;
        Ok(Files::new(&self.env, volume, lease, self.limits.clone()))
    }

    /// Ends sessions whose clients have been away for long, and closes stores without users.
    pub(super) fn sweep(&self) {
        for files in self.all() {
            files.sweep();
        }
        // The volume's lock goes with the files. The store is opened again after that, and not before.
        self.take_unused().into_iter().for_each(|(files, closing)| {
            drop(files);
            drop(closing);
        });
    }

    /// Takes the stores without users. Their slots say that they are being closed.
    fn take_unused(&self) -> Vec<(Slot, Changing<'_>)> {
        // The table has one reference; a connection that is just being made has another.
        let is_unused =
            |slot: &Slot| matches!(slot, Slot::Open(files) if files.is_unused() && Arc::strong_count(files) == 1);
        let mut open = lock(&self.open);
        let unused = open.iter_mut().filter(|(_, slot)| is_unused(slot));
        let take = |(name, slot): (&String, &mut Slot)| {
            (std::mem::replace(slot, Slot::Changing), Changing { stores: self, name: name.clone() })
        };
        unused.map(take).collect()
    }

    /// Closes all stores. Their leases stay noted.
    pub(super) fn close(&self) {
        let closed = std::mem::take(&mut *lock(&self.open));
        drop(closed);
    }

    fn all(&self) -> Vec<Arc<Files>> {
        let of = |slot: &Slot| if let Slot::Open(files) = slot { Some(Arc::clone(files)) } else { None };
        lock(&self.open).values().filter_map(of).collect()
    }

    /// Stores that are open, and their clients.
    pub(super) fn count(&self) -> (usize, usize) {
        let all = self.all();
        (all.len(), all.iter().map(|files| files.clients()).sum())
    }

    /// Returns the troubles and the failures of the volumes.
    pub(super) fn troubles(&self) -> Vec<String> {
        let told = |files: &Arc<Files>| {
            let failure =
                files.volume.failure().map(|error| format!("{} takes no changes: {error}", files.volume.location()));
            files.volume.troubles().into_iter().chain(failure).collect::<Vec<_>>()
        };
        self.all().iter().flat_map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Owner;
    use situ_storage::FileName;

    fn stores(storage: Storage) -> Stores {
        let limits = Limits { linger: Duration::ZERO, ..Limits::default() };
        Stores::new(&Env::system(), storage, 2, Duration::from_secs(10), limits).unwrap()
    }

    fn client(id: u128) -> Owner {
        Owner { id, name: "a client".to_owned() }
    }

    #[test]
    fn two_stores_do_not_see_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let stores = stores(Storage::Directory(directory.path().to_owned()));
        let [shop, stock] = ["shop", "stock"].map(|name| stores.find(name).unwrap().attach(&client(1)).unwrap().0);
        let [of_shop, of_stock] = [&shop, &stock].map(|store| store.lock(Duration::ZERO).unwrap());
        shop.replace(of_shop, FileName::Current, b"shop").unwrap();
        assert!(stock.list(None, 9).unwrap().0.is_empty());
        stock.replace(of_stock, FileName::Identity, b"stock").unwrap();
        assert_eq!(shop.list(None, 9).unwrap().0.len(), 1);
        for name in ["..", "", "a/b", ".hidden", "shop/../stock"] {
            assert!(stores.find(name).is_err(), "{name:?}");
        }
        assert_eq!(stores.count(), (2, 2));
        assert!(stores.find("third").is_err(), "two stores are the limit");
    }

    #[test]
    fn a_store_that_nobody_uses_is_closed_and_opens_again() {
        let directory = tempfile::tempdir().unwrap();
        let stores = stores(Storage::Directory(directory.path().to_owned()));
        let (shop, known) = stores.find("shop").unwrap().attach(&client(1)).unwrap();
        assert!(!known);
        let token = shop.lock(Duration::ZERO).unwrap();
        drop(shop);
        stores.sweep();
        assert_eq!(stores.count(), (1, 1), "the owner of the lease may come back");
        let (shop, known) = stores.find("shop").unwrap().attach(&client(1)).unwrap();
        assert!(known);
        shop.unlock(token);
        drop(shop);
        stores.sweep();
        assert_eq!(stores.count(), (0, 0));
        stores.find("shop").unwrap();
    }

    #[test]
    fn clients_that_come_and_go_with_nothing_open_take_no_place_from_others() {
        let directory = tempfile::tempdir().unwrap();
        let (env, storage) = (Env::system(), Storage::Directory(directory.path().to_owned()));
        let stores = Stores::new(&env, storage, 2, Duration::from_secs(10), Limits::default()).unwrap();
        let (shop, _) = stores.find("shop").unwrap().attach(&client(1)).unwrap();
        shop.lock(Duration::ZERO).unwrap();
        drop(shop);
        for n in 0..5 {
            stores.find(&format!("visited-{n}")).unwrap().attach(&client(100 + n)).map(drop).unwrap();
        }
        let (here, _) = stores.find("stock").unwrap().attach(&client(2)).unwrap();
        assert!(stores.find("third").is_err(), "the owner of one is awaited, and the other has a client");
        drop(here);
        stores.find("third").unwrap();
    }

    #[test]
    fn an_owner_that_is_away_for_long_has_no_file_open_and_keeps_the_lease() {
        let directory = tempfile::tempdir().unwrap();
        let (env, storage) = (Env::system(), Storage::Directory(directory.path().to_owned()));
        let limits = Limits { linger: Duration::ZERO, ..Limits::default() };
        let stores = Stores::new(&env, storage, 2, Duration::from_millis(50), limits).unwrap();
        let (shop, _) = stores.find("shop").unwrap().attach(&client(1)).unwrap();
        let token = shop.lock(Duration::ZERO).unwrap();
        shop.replace(token, FileName::Current, b"shop").unwrap();
        shop.open(1, FileName::Current).unwrap();
        drop(shop);
        std::thread::sleep(Duration::from_millis(60));
        stores.sweep();
        assert_eq!(stores.count(), (0, 0));
        let (shop, is_known) = stores.find("shop").unwrap().attach(&client(1)).unwrap();
        assert!(!is_known);
        shop.renew(token).unwrap();
        shop.replace(token, FileName::Current, b"the same").unwrap();
    }

    #[test]
    fn a_panic_while_a_store_is_opened_leaves_the_store_to_the_next_client() {
        let directory = tempfile::tempdir().unwrap();
        let stores = stores(Storage::Directory(directory.path().to_owned()));
        std::thread::scope(|scope| {
            let (opening, told) = std::sync::mpsc::channel();
            let panics = move || {
                opening.send(()).unwrap();
                // The second client waits by then, as a rule.
                std::thread::sleep(Duration::from_millis(50));
                panic!("the opening of a store ends in a way that nobody foresaw")
            };
            let first = scope.spawn(|| stores.find_or("shop", panics).map(drop));
            told.recv().unwrap();
            let second = scope.spawn(|| stores.find("shop").map(drop));
            assert!(first.join().is_err());
            second.join().unwrap().unwrap();
        });
        assert_eq!(stores.count().0, 1);
    }

    #[test]
    fn a_disk_without_a_file_system_has_one_store() {
        let env = Env::system();
        let device: Arc<dyn situ_device::Device> =
            Arc::new(situ_sim::SimDevice::new(&env, 32 << 20, situ_sim::FaultPlan::none(), 1));
        situ_rawdisk::RawVolume::format(Arc::clone(&device), env.clone(), &situ_rawdisk::FormatOptions::default())
            .unwrap();
        let open = || {
            let raw = situ_rawdisk::RawVolume::open(Arc::clone(&device), env.clone(), Default::default()).unwrap();
            stores(Storage::Disk(Arc::new(raw)))
        };
        let first = open();
        let (shop, _) = first.find("shop").unwrap().attach(&client(1)).unwrap();
        let token = shop.lock(Duration::ZERO).unwrap();
        shop.replace(token, FileName::Current, b"shop").unwrap();
        shop.unlock(token);
        drop(shop);
        let other = first.find("stock").err().unwrap().to_string();
        assert!(other.contains("shop"), "{other}");
        drop(first);
        let second = open();
        assert!(second.find("stock").is_err());
        let (shop, _) = second.find("shop").unwrap().attach(&client(2)).unwrap();
        assert_eq!(shop.list(None, 9).unwrap().0.len(), 1, "the node's note is no file of the store");
    }
}
