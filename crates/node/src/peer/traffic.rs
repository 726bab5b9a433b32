//! Bytes that crossed the wire, by what they were about.

use crate::frame::HEADER_BYTES;
use crate::message::{Class, Operation};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes sent and received in frames, headers included, by class of operation. TLS and TCP add to that on the wire.
///
/// One may be shared by all connections of a client, one after another.
#[derive(Debug, Default)]
pub struct Traffic {
    sent: [AtomicU64; Class::ALL.len()],
    received: [AtomicU64; Class::ALL.len()],
}

impl Traffic {
    /// Returns the number of bytes sent about a class.
    pub fn sent(&self, class: Class) -> u64 {
        self.sent[class as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of bytes received about a class.
    pub fn received(&self, class: Class) -> u64 {
        self.received[class as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of bytes sent in all.
    pub fn sent_bytes(&self) -> u64 {
        Class::ALL.into_iter().map(|class| self.sent(class)).sum()
    }

    /// Returns the number of bytes received in all.
    pub fn received_bytes(&self) -> u64 {
        Class::ALL.into_iter().map(|class| self.received(class)).sum()
    }

    pub(super) fn add_sent(&self, operation: u16, payload_bytes: usize) {
        self.sent[class_of(operation)].fetch_add((HEADER_BYTES + payload_bytes) as u64, Ordering::Relaxed);
    }

    pub(super) fn add_received(&self, operation: u16, payload_bytes: usize) {
        self.received[class_of(operation)].fetch_add((HEADER_BYTES + payload_bytes) as u64, Ordering::Relaxed);
    }
}

fn class_of(operation: u16) -> usize {
    Operation::of(operation).map_or(Class::Control, Operation::class) as usize
}
