//! The atomics and the lock that the memtable is built on: `std`'s, or loom's when a model is explored.
//!
//! Loom sees only accesses through its own types, so plain memory that a node publishes would escape it. A [`Witness`]
//! stands for that memory: it is written once before a node is published and read by each thread that reaches the node.
//! It has no size and no code outside a model; inside one, a missing Release or Acquire becomes a reported race.

#[cfg(not(loom))]
pub(super) use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering},
};

#[cfg(loom)]
pub(super) use loom::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering},
};

/// Stands for the plain memory of a node in loom's eyes.
#[cfg(not(loom))]
pub(super) struct Witness;

#[cfg(not(loom))]
impl Witness {
    /// Notes that the node's memory has been written.
    #[inline(always)]
    pub(super) fn written() -> Witness {
        Witness
    }

    /// Notes that the node's memory is about to be read.
    #[inline(always)]
    pub(super) fn read(&self) {}
}

/// Stands for the plain memory of a node in loom's eyes.
#[cfg(loom)]
pub(super) struct Witness(loom::cell::UnsafeCell<()>);

#[cfg(loom)]
impl Witness {
    /// Notes that the node's memory has been written.
    pub(super) fn written() -> Witness {
        let cell = loom::cell::UnsafeCell::new(());
        cell.with_mut(|_| ());
        Witness(cell)
    }

    /// Notes that the node's memory is about to be read.
    pub(super) fn read(&self) {
        self.0.with(|_| ());
    }
}

/// Asks for the cache line of `address`, without waiting and without any effect that could be observed.
#[inline(always)]
pub(super) fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults, whatever the address, and every x86-64 processor has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Keeps data that one side writes often off the cache lines that the other side reads often. Two lines, because x86
/// fetches them in pairs.
#[repr(align(128))]
pub(super) struct OwnCacheLine<T>(pub(super) T);
