//! A namespace of a controller that this process drives, as a device.

use super::controller::NvmeController;
use super::queue::DriveQueue;
use super::statistics::{Counters, QueueStatistics};
use crate::nvme::{Namespace, used_bytes};
use crate::{Device, DeviceLock, Geometry, Nature, Queue, Space};
use situ_base::lock;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, Weak};

/// A namespace of an NVMe drive behind the driver in user space.
///
/// Another process cannot reach the drive at the same time: VFIO gives it to one.
#[derive(Debug)]
pub struct NvmeDrive {
    controller: Arc<NvmeController>,
    namespace: Namespace,
    queues: Mutex<Vec<Weak<Counters>>>,
}

impl NvmeDrive {
    /// Opens the namespace with this number.
    ///
    /// # Errors
    /// The drive has no such namespace, or one of a format that cannot be used; or the controller does not answer.
    pub fn open(controller: Arc<NvmeController>, namespace: u32) -> io::Result<NvmeDrive> {
        let namespace = controller.describe_namespace(namespace)?;
        Ok(NvmeDrive { controller, namespace, queues: Mutex::default() })
    }

    /// Returns the figures of the queues that are open.
    pub fn statistics(&self) -> Vec<QueueStatistics> {
        lock(&self.queues).iter().filter_map(Weak::upgrade).map(|counters| counters.read()).collect()
    }
}

impl Device for NvmeDrive {
    fn describe(&self) -> String {
        let name = self.controller.function().name();
        format!("pci:{name}/{} (NVMe namespace, driven in user space)", self.namespace.id)
    }

    fn lock(&self) -> io::Result<Box<dyn DeviceLock>> {
        if !self.controller.lock_namespace(self.namespace.id) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(NamespaceLock { controller: Arc::clone(&self.controller), namespace: self.namespace.id }))
    }

    fn geometry(&self) -> Geometry {
        self.namespace.geometry
    }

    fn space(&self) -> Space {
        let Namespace { id, bytes, .. } = self.namespace;
        let answers = self.controller.answers(id);
        let used = answers.map_or(bytes, |answers| used_bytes(&answers, &self.namespace).min(bytes));
        Space { logical_total: bytes, logical_used: used, ..Space::default() }
    }

    fn nature(&self) -> Nature {
        let (model, _) = self.controller.model();
        Nature::unknown(format!("NVMe drive {model}"), "the driver in user space does not ask drives about compression")
    }

    fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue>> {
        let counters = Arc::new(Counters::default());
        let mut queues = lock(&self.queues);
        queues.retain(|counters| counters.strong_count() > 0);
        queues.push(Arc::downgrade(&counters));
        drop(queues);
        Ok(Box::new(DriveQueue::new(Arc::clone(&self.controller), self.namespace, depth, counters)?))
    }
}

struct NamespaceLock {
    controller: Arc<NvmeController>,
    namespace: u32,
}

impl DeviceLock for NamespaceLock {}

impl fmt::Debug for NamespaceLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamespaceLock({:?}, {})", self.controller, self.namespace)
    }
}

impl Drop for NamespaceLock {
    fn drop(&mut self) {
        self.controller.unlock_namespace(self.namespace);
    }
}
