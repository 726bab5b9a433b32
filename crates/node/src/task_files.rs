//! The files of a task's tables, as the node that runs the task reaches them.
//!
//! | the volume lies | inputs | outputs | what keeps a former owner's task from writing |
//! |---|---|---|---|
//! | on this node | opened here | made here | the gate of the lease's token, which each write passes |
//! | in a shared directory | opened there | made there | nothing: see below |
//! | on another node | read there | made there | the gate of the lease's token, there |
//! | with the host | read over the connection | made by the host | the host, which has given the attempt up |
//!
//! **Who removes what.** A table that a task has made is the host's from the moment in which the node hands out an
//! answer that names it. If the node never hands out such an answer, no host can install the table, and the node
//! removes it, under the same token. Where no token guards the files, the node removes nothing. A successor of the
//! owner may have given the same number to a table of its own.
//!
//! **A shared directory has no lease.** A task of an owner that has died goes on until the node misses the owner's
//! connection. Files are made under names that are free only, and are not touched again. So the task damages no table.
//! But it may take a name that the successor wants.

use crate::address::NodeAddress;
use crate::client::{NodeClient, NodeOptions};
use crate::files::Files;
use crate::volume::NodeVolume;
use situ_storage::{DirectoryVolume, FileName, Reader, Result, Volume, Writer};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Says whether the host has given an attempt up. What the attempt waits for then ends. Clones say the same.
#[derive(Debug, Clone, Default)]
pub struct GivenUp(Arc<AtomicBool>);

impl GivenUp {
    /// Marks the attempt as given up.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns true if the attempt is given up.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A volume, as a task uses it. A wait for another machine ends when the attempt is given up, or soon by itself.
pub trait TaskFiles: Send + Sync {
    /// Opens an input table for an attempt.
    ///
    /// # Errors
    /// As [`Volume::open`]; the attempt is given up.
    fn open(&self, number: u64, given_up: &GivenUp) -> Result<Arc<dyn Reader>>;

    /// Makes an output table of an attempt, under the token of its owner's lease.
    ///
    /// # Errors
    /// As [`Volume::create`]; the lease is another owner's; the attempt is given up.
    fn create(&self, token: u64, number: u64, bound: u64, given_up: &GivenUp) -> Result<Box<dyn Writer>>;

    /// Removes a table that no answer has named. Where another owner may have a table of this number, it stays.
    ///
    /// # Errors
    /// As [`Volume::remove`]; the lease is another owner's.
    fn remove(&self, token: u64, number: u64) -> Result<()>;
}

/// The files of a store on this node.
pub(crate) struct LeasedFiles(Arc<Files>);

impl LeasedFiles {
    pub(crate) fn new(files: &Arc<Files>) -> LeasedFiles {
        LeasedFiles(Arc::clone(files))
    }
}

impl TaskFiles for LeasedFiles {
    fn open(&self, number: u64, _: &GivenUp) -> Result<Arc<dyn Reader>> {
        self.0.volume.open(FileName::Table(number))
    }

    fn create(&self, token: u64, number: u64, bound: u64, _: &GivenUp) -> Result<Box<dyn Writer>> {
        let _pass = self.0.lease().pass(token)?;
        let inner = self.0.volume.create(FileName::Table(number), bound)?;
        Ok(Box::new(LeasedWriter { inner, files: Arc::clone(&self.0), token }))
    }

    fn remove(&self, token: u64, number: u64) -> Result<()> {
        let _pass = self.0.lease().pass(token)?;
        self.0.volume.remove(FileName::Table(number))
    }
}

/// Each write passes the gate of the lease. A successor waits for those inside, and then there are no more.
struct LeasedWriter {
    inner: Box<dyn Writer>,
    files: Arc<Files>,
    token: u64,
}

impl Writer for LeasedWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let _pass = self.files.lease().pass(self.token)?;
        self.inner.append(bytes)
    }

    fn written(&self) -> u64 {
        self.inner.written()
    }

    fn sync(&mut self) -> Result<()> {
        let _pass = self.files.lease().pass(self.token)?;
        self.inner.sync()
    }

    fn flush(&mut self) -> Result<()> {
        let _pass = self.files.lease().pass(self.token)?;
        self.inner.flush()
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let LeasedWriter { inner, files, token } = *self;
        let _pass = files.lease().pass(token)?;
        inner.finish()
    }
}

/// The files of the host's store on another node. The token of the host's lease there is passed along.
pub(crate) struct OtherNode(NodeVolume);

impl OtherNode {
    /// # Errors
    /// The other node does not answer, or refuses.
    pub(crate) fn connect(address: NodeAddress, options: NodeOptions) -> Result<OtherNode> {
        Ok(OtherNode(NodeVolume::open(Arc::new(NodeClient::connect(address, options)?))?))
    }
}

impl TaskFiles for OtherNode {
    fn open(&self, number: u64, _: &GivenUp) -> Result<Arc<dyn Reader>> {
        self.0.open(FileName::Table(number))
    }

    fn create(&self, token: u64, number: u64, bound: u64, _: &GivenUp) -> Result<Box<dyn Writer>> {
        self.0.create_under(token, FileName::Table(number), bound)
    }

    fn remove(&self, token: u64, number: u64) -> Result<()> {
        self.0.remove_under(token, FileName::Table(number))
    }
}

/// A directory that the host uses, too.
pub struct SharedDirectory(Arc<dyn Volume>);

impl SharedDirectory {
    /// Opens a directory that exists.
    ///
    /// # Errors
    /// The system refuses.
    pub fn open(path: &Path) -> Result<SharedDirectory> {
        Ok(SharedDirectory(Arc::new(DirectoryVolume::open(path)?)))
    }
}

impl TaskFiles for SharedDirectory {
    fn open(&self, number: u64, _: &GivenUp) -> Result<Arc<dyn Reader>> {
        self.0.open(FileName::Table(number))
    }

    fn create(&self, _token: u64, number: u64, bound: u64, _: &GivenUp) -> Result<Box<dyn Writer>> {
        self.0.create(FileName::Table(number), bound)
    }

    fn remove(&self, _token: u64, _number: u64) -> Result<()> {
        // See the module: without a lease, the table may be another owner's by now. The host clears its places itself.
        Ok(())
    }
}
