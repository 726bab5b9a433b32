//! A host that writes rings by hand.

#![allow(unsafe_code, reason = "a host gives its memory to the controller")]

use crate::{FaultPlan, NvmeConfig, NvmeModel, NvmePlan, SimDevice, SimExecutor};
use situ_base::Env;
use situ_device::{Buffer, Device, Dma, Function, Geometry, PAGE_BYTES};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

pub(super) const PAGE: u64 = PAGE_BYTES as u64;

/// A command to be.
#[derive(Clone, Copy)]
pub(super) struct Words(pub(super) [u32; 16]);

pub(super) fn command(opcode: u8) -> Words {
    let mut words = Words([0; 16]);
    words.0[0] = u32::from(opcode);
    words
}

impl Words {
    pub(super) fn word(mut self, number: usize, value: u32) -> Words {
        self.0[number] = value;
        self
    }

    pub(super) fn namespace(self, number: u32) -> Words {
        self.word(1, number)
    }

    pub(super) fn pages(self, first: u64, second: u64) -> Words {
        let halves = [first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32];
        halves.into_iter().enumerate().fold(self, |words, (at, half)| words.word(6 + at, half))
    }

    /// Names an SGL descriptor instead of pages.
    pub(super) fn list(self, descriptor: [u8; 16]) -> Words {
        let half = |at: usize| u64::from_le_bytes(descriptor[at..at + 8].try_into().unwrap());
        let words = self.pages(half(0), half(8));
        words.word(0, words.0[0] | 1 << 14)
    }

    pub(super) fn blocks(self, first: u64, count: u32) -> Words {
        self.word(10, first as u32).word(11, (first >> 32) as u32).word(12, self.0[12] | (count - 1))
    }
}

pub(super) fn descriptor(kind: u8, address: u64, bytes: u32) -> [u8; 16] {
    let mut descriptor = [0; 16];
    descriptor[..8].copy_from_slice(&address.to_le_bytes());
    descriptor[8..12].copy_from_slice(&bytes.to_le_bytes());
    descriptor[15] = kind;
    descriptor
}

pub(super) fn read(address: u64, first: u64, count: u32) -> Words {
    command(2).namespace(1).pages(address, 0).blocks(first, count)
}

pub(super) fn write(address: u64, first: u64, count: u32) -> Words {
    command(1).namespace(1).pages(address, 0).blocks(first, count)
}

pub(super) fn flush() -> Words {
    command(0).namespace(1)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: u16,
    pub(super) status: u16,
    pub(super) result: u32,
    pub(super) head: u32,
}

/// A pair of queues.
pub(super) struct Ring {
    pub(super) number: u16,
    pub(super) submission: u64,
    pub(super) completion: u64,
    pub(super) entries: u32,
    pub(super) tail: u32,
    pub(super) head: u32,
    pub(super) phase: bool,
    next_id: u16,
    /// Doorbells in memory: the pages of doorbells and of the values to ring the real ones at.
    pub(super) shadows: Option<(u64, u64)>,
}

pub(super) struct Host {
    pub(super) model: NvmeModel,
    pub(super) config: NvmeConfig,
    regions: BTreeMap<u64, Buffer>,
    /// The memory that the host reaches: its own, and that of others.
    known: BTreeMap<u64, Dma>,
    is_leaving: bool,
    pub(super) next_address: u64,
    pub(super) admin: Ring,
}

impl Host {
    /// Returns a host of a controller that is off.
    pub(super) fn new(model: &NvmeModel, config: &NvmeConfig, from: u64) -> Host {
        let admin = Ring::new(0, 0, 0, 0);
        let (model, config) = (model.clone(), config.clone());
        let (regions, known) = (BTreeMap::new(), BTreeMap::new());
        Host { model, config, regions, known, is_leaving: false, next_address: from, admin }
    }

    pub(super) fn env(&self) -> Env {
        self.model.env().clone()
    }

    pub(super) fn memory(&mut self, bytes: usize) -> u64 {
        let address = self.next_address;
        self.map_at(address, bytes);
        // A page that is not mapped follows.
        self.next_address += (bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES) as u64;
        address
    }

    pub(super) fn map_at(&mut self, address: u64, bytes: usize) {
        let mut buffer = Buffer::new(bytes);
        let memory = Dma::new(NonNull::new(buffer.as_mut_ptr()).unwrap(), buffer.len());
        // SAFETY: the buffer lives until `unmap` or as long as the host, whose end stops the controller. Its bytes are
        // reached by the functions of `Dma` only.
        unsafe { self.model.map(address, memory) }.unwrap();
        self.regions.insert(address, buffer);
        self.known.insert(address, memory);
    }

    pub(super) fn try_map(&mut self, address: u64) -> std::io::Result<()> {
        let mut buffer = Buffer::new(PAGE_BYTES);
        let memory = Dma::new(NonNull::new(buffer.as_mut_ptr()).unwrap(), buffer.len());
        // SAFETY: as in `map_at`; memory that was not mapped is freed at once.
        unsafe { self.model.map(address, memory) }?;
        self.regions.insert(address, buffer);
        self.known.insert(address, memory);
        Ok(())
    }

    pub(super) fn unmap(&mut self, address: u64) {
        let bytes = self.regions[&address].len();
        self.model.unmap(address, bytes);
        self.regions.remove(&address);
        self.known.remove(&address);
    }

    fn find(&self, address: u64) -> (Dma, usize) {
        let (start, memory) = self.known.range(..=address).next_back().unwrap();
        (*memory, (address - start) as usize)
    }

    /// Returns the memory of a ring, for another host.
    pub(super) fn lend(&self, ring: &Ring) -> [(u64, Dma); 2] {
        [ring.submission, ring.completion].map(|address| (address, self.known[&address]))
    }

    /// Takes the memory of a ring from a host that lives longer.
    pub(super) fn borrow(&mut self, lent: [(u64, Dma); 2]) {
        self.known.extend(lent);
    }

    /// Ends the host, and leaves the controller to others.
    pub(super) fn leave(mut self) {
        for address in std::mem::take(&mut self.regions).keys() {
            self.model.unmap(*address, self.known[address].bytes());
        }
        self.is_leaving = true;
    }

    pub(super) fn put(&self, address: u64, bytes: &[u8]) {
        let (memory, at) = self.find(address);
        // SAFETY: the memory is this host's; no command names it, or a test wants to see what comes of that.
        unsafe { memory.write(at, bytes) }
    }

    pub(super) fn get(&self, address: u64, bytes: usize) -> Vec<u8> {
        let (memory, at) = self.find(address);
        let mut found = vec![0; bytes];
        // SAFETY: as for `put`.
        unsafe { memory.read(at, &mut found) }
        found
    }

    pub(super) fn load(&self, address: u64) -> u32 {
        let (memory, at) = self.find(address);
        // SAFETY: as for `put`.
        unsafe { memory.load(at) }
    }

    pub(super) fn store(&self, address: u64, value: u32) {
        let (memory, at) = self.find(address);
        // SAFETY: as for `put`.
        unsafe { memory.store(at, value) }
    }

    /// Sets the admin queues and switches the controller on, without a wait.
    pub(super) fn switch_on(&mut self, entries: u32, configuration: u32) {
        let (submission, completion) = (self.memory(entries as usize * 64), self.memory(entries as usize * 16));
        self.admin = Ring::new(0, submission, completion, entries);
        let halves = |address: u64| [address as u32, (address >> 32) as u32];
        self.model.write(0x24, (entries - 1) | (entries - 1) << 16);
        for (at, half) in [0x28, 0x2c].into_iter().zip(halves(submission)) {
            self.model.write(at, half);
        }
        for (at, half) in [0x30, 0x34].into_iter().zip(halves(completion)) {
            self.model.write(at, half);
        }
        self.model.write(0x14, configuration);
    }

    pub(super) fn start(&mut self) {
        self.switch_on(16, GOOD);
        assert!(self.is_status_within(Duration::from_secs(1), |status| status & 3 == 1), "it becomes ready");
    }

    pub(super) fn switch_off(&mut self) {
        self.model.write(0x14, 0);
        assert!(self.is_status_within(Duration::from_secs(1), |status| status & 1 == 0), "it stops");
    }

    pub(super) fn is_status_within(&self, time: Duration, want: impl Fn(u32) -> bool) -> bool {
        let end = self.env().clock.now() + time;
        while !want(self.model.read(0x1c)) {
            if self.env().clock.now() > end {
                return false;
            }
            self.env().clock.sleep(Duration::from_micros(100));
        }
        true
    }

    pub(super) fn doorbell(&self, queue: u16, is_completion: bool, value: u32) {
        let number = 2 * u32::from(queue) + u32::from(is_completion);
        self.model.write(0x1000 + number * (4 << self.config.doorbell_stride), value);
    }

    /// Creates a pair of queues.
    pub(super) fn pair(&mut self, number: u16, entries: u32, vector: u16) -> Ring {
        let (submission, completion) = (self.memory(entries as usize * 64), self.memory(entries as usize * 16));
        let size = u32::from(number) | (entries - 1) << 16;
        let create = command(5).pages(completion, 0).word(10, size).word(11, 3 | u32::from(vector) << 16);
        assert_eq!(self.admin(create), (0, 0));
        let create = command(1).pages(submission, 0).word(10, size).word(11, 1 | u32::from(number) << 16);
        assert_eq!(self.admin(create), (0, 0));
        Ring::new(number, submission, completion, entries)
    }

    /// Puts a command into the ring. Returns its number.
    pub(super) fn enqueue(&self, ring: &mut Ring, words: Words) -> u16 {
        let id = ring.next_id;
        ring.next_id += 1;
        self.enqueue_as(ring, id, words);
        id
    }

    pub(super) fn enqueue_as(&self, ring: &mut Ring, id: u16, words: Words) {
        for (at, word) in words.word(0, words.0[0] | u32::from(id) << 16).0.into_iter().enumerate() {
            self.store(ring.submission + 64 * u64::from(ring.tail) + 4 * at as u64, word);
        }
        ring.tail = (ring.tail + 1) % ring.entries;
    }

    /// Tells the controller of new commands.
    pub(super) fn ring(&self, ring: &Ring) {
        match ring.shadows {
            None => self.doorbell(ring.number, false, ring.tail),
            Some((doorbells, wanted)) => {
                let at = u64::from(2 * ring.number) * (4 << self.config.doorbell_stride);
                let (before, wanted) = (self.load(doorbells + at), self.load(wanted + at));
                self.store(doorbells + at, ring.tail);
                let passed = (ring.tail as u16).wrapping_sub(wanted as u16).wrapping_sub(1);
                if passed < (ring.tail as u16).wrapping_sub(before as u16) {
                    self.doorbell(ring.number, false, ring.tail);
                }
            }
        }
    }

    pub(super) fn submit(&self, ring: &mut Ring, words: Words) -> u16 {
        let id = self.enqueue(ring, words);
        self.ring(ring);
        id
    }

    /// Takes the next completion, without a call of the controller.
    pub(super) fn peek(&self, ring: &mut Ring) -> Option<Entry> {
        let at = ring.completion + 16 * u64::from(ring.head);
        let last = self.load(at + 12);
        if (last >> 16 & 1 != 0) != ring.phase {
            return None;
        }
        ring.head = (ring.head + 1) % ring.entries;
        ring.phase ^= ring.head == 0;
        let (result, head) = (self.load(at), self.load(at + 8));
        assert_eq!(head >> 16, u32::from(ring.number));
        Some(Entry { id: last as u16, status: (last >> 17) as u16, result, head: head & 0xffff })
    }

    /// Takes the next completion.
    pub(super) fn next(&self, ring: &mut Ring) -> Option<Entry> {
        self.model.settle();
        let entry = self.peek(ring)?;
        match ring.shadows {
            None => self.doorbell(ring.number, true, ring.head),
            Some((doorbells, _)) => {
                let at = u64::from(2 * ring.number + 1) * (4 << self.config.doorbell_stride);
                self.store(doorbells + at, ring.head);
            }
        }
        Some(entry)
    }

    /// Takes the next completion that comes within some time.
    pub(super) fn within(&self, ring: &mut Ring, time: Duration) -> Option<Entry> {
        let end = self.env().clock.now() + time;
        loop {
            match self.next(ring) {
                None if self.env().clock.now() < end => self.env().clock.sleep(Duration::from_micros(5)),
                outcome => return outcome,
            }
        }
    }

    pub(super) fn run(&self, ring: &mut Ring, words: Words) -> (u16, u32) {
        let id = self.submit(ring, words);
        let entry = self.within(ring, Duration::from_secs(1)).expect("an answer");
        assert_eq!(entry.id, id);
        (entry.status, entry.result)
    }

    /// Runs a command that has no result.
    pub(super) fn status(&self, ring: &mut Ring, words: Words) -> u16 {
        self.run(ring, words).0
    }

    /// Returns the admin queues, for a test that uses them as others.
    pub(super) fn take_admin(&mut self) -> Ring {
        std::mem::replace(&mut self.admin, Ring::new(0, 0, 0, 0))
    }

    pub(super) fn admin(&mut self, words: Words) -> (u16, u32) {
        let mut admin = self.take_admin();
        let outcome = self.run(&mut admin, words);
        self.admin = admin;
        outcome
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if !self.is_leaving {
            self.model.stop();
        }
    }
}

impl Ring {
    fn new(number: u16, submission: u64, completion: u64, entries: u32) -> Ring {
        Ring { number, submission, completion, entries, tail: 0, head: 0, phase: true, next_id: 100, shadows: None }
    }
}

/// A controller configuration that every drive takes.
pub(super) const GOOD: u32 = 1 | 6 << 16 | 4 << 20;

/// The device's length in pages.
pub(super) const PAGES: u64 = 64;

/// Returns the geometry of a device whose blocks are pages.
pub(super) fn pages_are_blocks() -> Geometry {
    let sim = SimExecutor::new(1);
    let geometry = SimDevice::new(&sim.env(), 0, FaultPlan::none(), 1).geometry();
    Geometry { atomic_write_bytes: PAGE_BYTES as u32, ..geometry }
}

/// Runs a test in a simulated world, with a controller that is off over one device of pages.
pub(super) fn in_world<T: Send>(
    seed: u64,
    config: NvmeConfig,
    plan: NvmePlan,
    faults: FaultPlan,
    test: impl FnOnce(&mut Host, &SimDevice) -> T + Send,
) -> T {
    let sim = SimExecutor::new(seed);
    let device = SimDevice::with_geometry(&sim.env(), PAGES * PAGE, pages_are_blocks(), faults, seed);
    let model = NvmeModel::new(&sim.env(), config.clone(), vec![Arc::new(device.clone())], plan, seed);
    sim.run(|| test(&mut Host::new(&model, &config, config.addresses.start), &device))
}

/// Runs a test with a controller that is ready, and a pair of queues.
pub(super) fn ready<T: Send>(
    plan: NvmePlan,
    faults: FaultPlan,
    test: impl FnOnce(&mut Host, &mut Ring, &SimDevice) -> T + Send,
) -> T {
    ready_as(1, NvmeConfig::default(), plan, faults, test)
}

pub(super) fn ready_as<T: Send>(
    seed: u64,
    config: NvmeConfig,
    plan: NvmePlan,
    faults: FaultPlan,
    test: impl FnOnce(&mut Host, &mut Ring, &SimDevice) -> T + Send,
) -> T {
    in_world(seed, config, plan, faults, |host, device| {
        host.start();
        let mut ring = host.pair(1, 8, 1);
        test(host, &mut ring, device)
    })
}

pub(super) fn sound<T: Send>(test: impl FnOnce(&mut Host, &mut Ring, &SimDevice) -> T + Send) -> T {
    ready(NvmePlan::none(), FaultPlan::none(), test)
}
