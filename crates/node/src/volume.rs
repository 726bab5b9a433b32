//! The files of a store on a node, as a [`Volume`].
//!
//! Each call becomes one request or several, which [`NodeClient`] sends again when a connection is lost. What the
//! client adds:
//!
//! * **Open files** have a number that the client chose. After the daemon was restarted, the number is unknown there.
//!   The client then opens the file again by the name that it has by then (`volume/open.rs`). A file that was removed
//!   while it was open is lost then.
//! * **Writers** send bytes ahead, several pieces at once, and keep them until they are answered (`volume/writer.rs`).
//! * **Pages that were not synced** may be lost with the machine. The client keeps them and writes them again
//!   (`volume/buffered.rs`).
//! * **Names that were not synced** may be lost with the daemon. A sync removes again what was removed, and fails after
//!   a rename.
//!
//! Nothing is cached here but what callers cannot wait for: room and geometry.

mod buffered;
mod names;
mod open;
mod pages;
mod reader;
mod writer;

use crate::client::{Attempt, NodeClient, Shared};
use crate::error::CallError;
use crate::fields::Rest;
use crate::message::{
    Call, Create, CreatePages, GetFailure, GetGeometry, GetLogRoom, GetSpace, GetTroubles, List, OpenPages, Remove,
    Rename, Replace, Stat, SyncNames, Tidy,
};
use crate::message::{GeometryAnswer, LogRoom, Open, Opened, Room};
use buffered::Buffered;
use names::Names;
use open::OpenFile;
use pages::NodePageFile;
use reader::NodeReader;
use situ_base::lock;
use situ_device::{Geometry, Space};
use situ_storage::{Error, FileMeta, FileName, Lock, PageFile, Reader, Result, Volume, Writer};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use writer::NodeWriter;

/// Which of a store's volumes: a node has one.
const VOLUME: u32 = 0;
/// The maximum time for a question whose answer is only to be shown.
const QUICK_TIMEOUT: Duration = Duration::from_secs(1);
/// Removals that may wait to be synced.
const REMOVED_MAX: usize = 4096;

/// A store's files on a node.
pub struct NodeVolume {
    client: Arc<NodeClient>,
    names: Arc<Names>,
    buffered: Arc<Buffered>,
    known: Mutex<Known>,
    unsynced: Mutex<Unsynced>,
}

/// Changes of names that are not synced yet, each with the daemon's start: a daemon that is restarted may have lost
/// them.
#[derive(Default)]
struct Unsynced {
    /// The old name and the new one, in the order of the renames.
    renamed: Vec<(FileName, FileName, [u8; 16])>,
    removed: BTreeMap<FileName, [u8; 16]>,
    /// Counts changes.
    changes: u64,
}

/// The node's last answers.
#[derive(Default)]
struct Known {
    space: Space,
    log_room: Option<Space>,
    geometry: Option<Geometry>,
}

impl NodeVolume {
    /// Opens the files of the client's store.
    ///
    /// # Errors
    /// The node does not answer, or has no files.
    pub fn open(client: Arc<NodeClient>) -> Result<NodeVolume> {
        if client.welcome().is_some_and(|welcome| !welcome.stores) {
            let address = client.address();
            return Err(Error::Invalid(format!("{address} only computes; a store's files need a node that stores")));
        }
        let (names, buffered) = (Arc::default(), Buffered::new(client.shared()));
        let volume = NodeVolume { client, names, buffered, known: Mutex::default(), unsynced: Mutex::default() };
        let geometry = volume.read("open", &GetGeometry { volume: VOLUME })?;
        let log_room = volume.read("open", &GetLogRoom { volume: VOLUME })?;
        let room = volume.read("open", &GetSpace { volume: VOLUME })?;
        let known =
            Known { space: space_of(&room), log_room: log_room_of(&log_room), geometry: geometry_of(&geometry) };
        *lock(&volume.known) = known;
        Ok(volume)
    }

    /// Returns the client.
    pub fn client(&self) -> &Arc<NodeClient> {
        &self.client
    }

    fn shared(&self) -> &Arc<Shared> {
        self.client.shared()
    }

    fn path(&self, name: FileName) -> String {
        format!("{}/{name}", self.client.address())
    }

    /// Asks what changes nothing.
    fn read<C: Call>(&self, op: &'static str, call: &C) -> Result<C::Answer> {
        let shared = self.shared();
        let answer = shared.retry(shared.options.read_patience, |attempt| attempt.ask(call));
        answer.map_err(|error| error.about(op, &self.location()))
    }

    /// Asks for a change, with the patience for changes.
    fn change<T>(
        &self,
        op: &'static str,
        path: &str,
        request: impl FnMut(&Attempt) -> Result<T, CallError>,
    ) -> Result<T> {
        let shared = self.shared();
        shared.retry(shared.options.write_patience, request).map_err(|error| error.about(op, path))
    }

    /// Opens a file under a number. A new connection in between must not have the node close it.
    fn open_as<C: Call<Answer = Opened>>(
        &self,
        handle: u64,
        op: &'static str,
        path: &str,
        patience: Duration,
        call: &C,
    ) -> Result<Opened> {
        self.shared().keep_open(handle);
        let opened = self.shared().retry(patience, |attempt| attempt.ask(call));
        opened.map_err(|error| {
            self.shared().let_go(handle);
            error.about(op, path)
        })
    }

    /// Asks for something that is only to be shown; `None` if no answer comes soon.
    fn quick<C: Call>(&self, call: &C) -> Option<C::Answer> {
        self.client.peer()?.ask(call, QUICK_TIMEOUT).ok()
    }

    /// The name is another file's from now on.
    fn taken(&self, name: FileName) {
        self.names.replaced(name);
        lock(&self.unsynced).removed.remove(&name);
    }

    /// Changes of names that a daemon may have lost are done again, in their order: renames first.
    fn sync_names_on(&self, attempt: &Attempt, token: u64) -> Result<(), CallError> {
        let (renamed, lost) = {
            let unsynced = lock(&self.unsynced);
            let renamed = unsynced.renamed.iter().filter(|(_, _, daemon)| *daemon != attempt.daemon);
            let lost = unsynced.removed.iter().filter(|(_, daemon)| **daemon != attempt.daemon);
            let renamed: Vec<_> = renamed.map(|(from, to, _)| (*from, *to)).collect();
            (renamed, lost.map(|(name, _)| *name).collect::<Vec<FileName>>())
        };
        for (from, to) in renamed {
            // A file whose old name is gone has the new one, or was renamed or removed since. No store uses an old name
            // again.
            if attempt.ask(&Stat { volume: VOLUME, name: from })?.bytes.is_some() {
                attempt.ask(&Rename { token, volume: VOLUME, from, to })?;
            }
        }
        for name in lost {
            match attempt.ask(&Remove { token, volume: VOLUME, name }) {
                Ok(_) | Err(CallError::Storage(Error::NotFound { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        attempt.ask(&SyncNames { token, volume: VOLUME }).map(drop)
    }
}

// Also for a node that computes for the owner of a lease.
impl NodeVolume {
    /// Begins a file under a token, which may be that of another client's lease.
    ///
    /// # Errors
    /// As [`Volume::create`]; the lease is another owner's by now.
    pub(crate) fn create_under(&self, token: u64, name: FileName, bound: u64) -> Result<Box<dyn Writer>> {
        let handle = self.shared().new_handle();
        let (path, create) = (self.path(name), Create { token, volume: VOLUME, handle, name, bound });
        let epoch = self.change("create", &path, |attempt| attempt.ask(&create).map(|_| attempt.epoch))?;
        self.taken(name);
        Ok(Box::new(NodeWriter::new(Arc::clone(&self.client), handle, token, (name, path), epoch)))
    }

    /// Removes a file under a token, which may be that of another client's lease.
    ///
    /// # Errors
    /// As [`Volume::remove`]; the lease is another owner's by now.
    pub(crate) fn remove_under(&self, token: u64, name: FileName) -> Result<()> {
        let remove = Remove { token, volume: VOLUME, name };
        self.change("remove", &self.path(name), |attempt| attempt.ask(&remove).map(drop))
    }
}

impl Volume for NodeVolume {
    fn location(&self) -> String {
        self.client.address().to_string()
    }

    fn create(&self, name: FileName, bound: u64) -> Result<Box<dyn Writer>> {
        self.create_under(self.client.token(), name, bound)
    }

    fn open(&self, name: FileName) -> Result<Arc<dyn Reader>> {
        let (path, handle) = (self.path(name), self.shared().new_handle());
        let patience = self.shared().options.read_patience;
        let opened = self.open_as(handle, "open", &path, patience, &Open { volume: VOLUME, handle, name })?;
        let file = OpenFile::new(self.shared(), &self.names, (handle, name), opened.bytes, false);
        Ok(Arc::new(NodeReader::new(Arc::clone(&self.client), file)))
    }

    fn create_pages(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        let (token, handle) = (self.client.token(), self.shared().new_handle());
        let (path, create) = (self.path(name), CreatePages { token, volume: VOLUME, handle, name, bytes });
        let opened = self.open_as(handle, "create", &path, self.shared().options.write_patience, &create)?;
        self.taken(name);
        let file = OpenFile::new(self.shared(), &self.names, (handle, name), opened.bytes, true);
        Ok(Arc::new(NodePageFile::new(Arc::clone(&self.client), file, &self.buffered)))
    }

    fn open_pages(&self, name: FileName) -> Result<Arc<dyn PageFile>> {
        let (path, handle) = (self.path(name), self.shared().new_handle());
        let patience = self.shared().options.read_patience;
        let opened = self.open_as(handle, "open", &path, patience, &OpenPages { volume: VOLUME, handle, name })?;
        let file = OpenFile::new(self.shared(), &self.names, (handle, name), opened.bytes, true);
        Ok(Arc::new(NodePageFile::new(Arc::clone(&self.client), file, &self.buffered)))
    }

    fn replace(&self, name: FileName, contents: &[u8]) -> Result<()> {
        let contents = Rest(contents.to_vec());
        self.buffered.forget_name(name);
        let replace = Replace { token: self.client.token(), volume: VOLUME, name, contents };
        self.change("replace", &self.path(name), |attempt| attempt.ask(&replace))?;
        self.taken(name);
        Ok(())
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        let rename = Rename { token: self.client.token(), volume: VOLUME, from, to };
        [from, to].into_iter().for_each(|name| self.buffered.forget_name(name));
        let daemon = self.change("rename", &self.path(from), |attempt| {
            let answer = attempt.ask(&rename).map(|_| attempt.daemon);
            let is_missing = matches!(&answer, Err(CallError::Storage(Error::NotFound { .. })));
            // A rename that was done before has left the new name.
            match is_missing && attempt.is_again && attempt.ask(&Stat { volume: VOLUME, name: to })?.bytes.is_some() {
                true => Ok(attempt.daemon),
                false => answer,
            }
        })?;
        let renamed = {
            let mut unsynced = lock(&self.unsynced);
            unsynced.renamed.push((from, to, daemon));
            unsynced.changes += 1;
            unsynced.renamed.len()
        };
        self.taken(to);
        self.names.renamed(from, to);
        // What is remembered is bounded.
        if renamed >= REMOVED_MAX { self.sync_names() } else { Ok(()) }
    }

    fn remove(&self, name: FileName) -> Result<()> {
        let remove = Remove { token: self.client.token(), volume: VOLUME, name };
        self.buffered.forget_name(name);
        let daemon = self.change("remove", &self.path(name), |attempt| {
            match attempt.ask(&remove) {
                // It was there when this was asked first, as far as is known.
                Err(CallError::Storage(Error::NotFound { .. })) if attempt.is_again => Ok(attempt.daemon),
                answer => answer.map(|_| attempt.daemon),
            }
        })?;
        self.names.replaced(name);
        let removed = {
            let mut unsynced = lock(&self.unsynced);
            unsynced.removed.insert(name, daemon);
            unsynced.changes += 1;
            unsynced.removed.len()
        };
        // What is remembered is bounded.
        if removed >= REMOVED_MAX { self.sync_names() } else { Ok(()) }
    }

    fn sync_names(&self) -> Result<()> {
        let token = self.client.token();
        let changes = lock(&self.unsynced).changes;
        self.change("sync", &self.location(), |attempt| self.sync_names_on(attempt, token))?;
        let mut unsynced = lock(&self.unsynced);
        // A change that came meanwhile may not be covered: then all keep their places.
        if unsynced.changes == changes {
            *unsynced = Unsynced { changes, ..Unsynced::default() };
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<FileMeta>> {
        let mut files = Vec::new();
        loop {
            let after = files.last().map(|meta: &FileMeta| meta.name);
            let listing = self.read("list", &List { volume: VOLUME, after })?;
            let is_last = !listing.more || listing.files.is_empty();
            files.extend(listing.files.into_iter().map(|(name, bytes)| FileMeta { name, bytes }));
            if is_last {
                return Ok(files);
            }
        }
    }

    fn space(&self) -> Space {
        let answer = self.quick(&GetSpace { volume: VOLUME });
        let mut known = lock(&self.known);
        if let Some(room) = answer {
            known.space = space_of(&room);
        }
        known.space
    }

    fn log_room(&self) -> Option<Space> {
        // A volume that has no such room never gets one.
        lock(&self.known).log_room?;
        let answer = self.quick(&GetLogRoom { volume: VOLUME });
        let mut known = lock(&self.known);
        if let Some(room) = answer.as_ref().and_then(log_room_of) {
            known.log_room = Some(room);
        }
        known.log_room
    }

    fn geometry(&self) -> Option<Geometry> {
        lock(&self.known).geometry
    }

    fn troubles(&self) -> Vec<String> {
        let mut troubles = Vec::new();
        if let Some((since, why)) = self.client.lost() {
            let node = self.shared().node();
            troubles.push(format!("{node} has not answered for {:.1} s: {why}", since.as_secs_f64()));
        }
        troubles.extend(self.client.fenced());
        troubles.extend(self.quick(&GetTroubles { volume: VOLUME }).into_iter().flat_map(|answer| answer.troubles));
        troubles
    }

    fn failure(&self) -> Option<Error> {
        if let Some(why) = self.client.fenced() {
            return Some(Error::Locked { path: self.location(), why: Some(why) });
        }
        let error = self.quick(&GetFailure { volume: VOLUME })?.error?;
        Some(CallError::decode(&error.0).about("write to", &self.location()))
    }

    fn tidy(&self) -> bool {
        let tidy = Tidy { token: self.client.token(), volume: VOLUME };
        self.quick(&tidy).is_some_and(|answer| answer.more)
    }

    fn lock(&self) -> Result<Box<dyn Lock>> {
        let path = self.path(FileName::Lock);
        let token = self.shared().take_lease().map_err(|error| error.into_storage("lock", &path))?;
        Ok(Box::new(NodeLock { client: Arc::clone(&self.client), token }))
    }
}

/// The lease, given back on drop.
struct NodeLock {
    client: Arc<NodeClient>,
    token: u64,
}

impl Lock for NodeLock {}

impl Drop for NodeLock {
    fn drop(&mut self) {
        self.client.shared().give_lease_back(self.token);
    }
}

fn space_of(room: &Room) -> Space {
    let Room { logical_total, logical_used, physical_used } = *room;
    Space { logical_total, logical_used, physical_used, ..Space::default() }
}

fn log_room_of(room: &LogRoom) -> Option<Space> {
    let (logical_total, logical_used) = room.total_and_used?;
    Some(Space { logical_total, logical_used, physical_used: room.physical_used, ..Space::default() })
}

fn geometry_of(answer: &GeometryAnswer) -> Option<Geometry> {
    answer.known.then_some(Geometry {
        block_bytes: answer.block_bytes,
        atomic_write_bytes: answer.atomic_write_bytes,
        max_transfer_bytes: answer.max_transfer_bytes,
        volatile_write_cache: answer.volatile_write_cache,
        discard_bytes: answer.discard_bytes,
        discard_zeroes: answer.discard_zeroes,
    })
}

#[cfg(test)]
mod tests;
