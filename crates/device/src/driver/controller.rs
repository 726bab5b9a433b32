//! A controller: its admin commands, its queue pairs, its end, and its resets.
//!
//! # Resets
//!
//! A controller that does not answer is reset, by the thread that finds out. A reset drops all commands and queues.
//!
//! 1. The thread takes the admin right and moves the generation on.
//! 2. It stops the controller, resets the function if the controller does not stop, and starts the controller again.
//! 3. It wakes the threads that wait for queues.
//! 4. The owner of a queue sees the new generation at its next call. It makes its queue pair again, and gives its
//!    commands to the controller again. No buffer has left the queue meanwhile.
//!
//! A controller that cannot be reset is dead. All memory is taken from it, then each queue answers its operations with
//! the reason.
//!
//! **Invariant.** After step 2, no command of an earlier generation moves data. After a death, no command does.
//! **Threads.** Admin commands run one at a time. A thread that wants to run one waits for an event, with no lock held.

use super::function::Function;
use super::pair::{Answer, Command, MemoryDoorbells, Pair};
use super::registers::{self, Capabilities, State};
use super::space::{DmaSpace, SharedWords};
use crate::nvme::{Answers, Namespace, status_error};
use crate::{Buffer, PAGE_BYTES, Watch};
use situ_base::bytes::{u16_at, u32_at};
use situ_base::{Event, lock};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Entries of the rings for admin commands, of which one is in flight.
const ADMIN_ENTRIES: u32 = 8;
/// The longest time of an admin command.
const ADMIN_PATIENCE: Duration = Duration::from_secs(10);
/// The longest sleep while one runs, for a controller whose interrupts do not arrive.
const ADMIN_SLICE: Duration = Duration::from_millis(2);
/// Queue pairs that the driver asks for.
const QUEUES_WANTED: u16 = 128;

mod opcode {
    pub(super) const DELETE_SUBMISSIONS: u8 = 0x00;
    pub(super) const CREATE_SUBMISSIONS: u8 = 0x01;
    pub(super) const DELETE_COMPLETIONS: u8 = 0x04;
    pub(super) const CREATE_COMPLETIONS: u8 = 0x05;
    pub(super) const IDENTIFY: u8 = 0x06;
    pub(super) const ABORT: u8 = 0x08;
    pub(super) const SET_FEATURES: u8 = 0x09;
    pub(super) const GET_FEATURES: u8 = 0x0a;
    pub(super) const DOORBELLS_IN_MEMORY: u8 = 0x7c;
}

const VOLATILE_WRITE_CACHE: u32 = 0x06;
const NUMBER_OF_QUEUES: u32 = 0x07;

/// The answers to Identify that the driver uses: of a namespace, of the controller, the list of namespaces.
const OF_NAMESPACE: u32 = 0;
const OF_CONTROLLER: u32 = 1;
const LIST_OF_NAMESPACES: u32 = 2;

/// A running NVMe controller that this process drives. The namespaces of it are devices.
///
/// It is shut down when the last user has dropped it.
pub struct NvmeController {
    space: Arc<DmaSpace>,
    capabilities: Capabilities,
    /// Taken by the thread that runs admin commands.
    admin: Mutex<Option<Admin>>,
    admin_is_back: Arc<dyn Event>,
    generation: AtomicU64,
    /// The reason why it is dead.
    death: Mutex<Option<(io::ErrorKind, String)>>,
    /// The namespaces with a writer.
    locked: Mutex<BTreeSet<u32>>,
}

/// The right to run admin commands, with all that they change.
struct Admin {
    pair: Pair,
    watch: Option<Arc<dyn Watch>>,
    next_id: u16,
    /// The data of a command.
    page: SharedWords,
    identity: Buffer,
    doorbells: Option<Arc<MemoryDoorbells>>,
    /// The number of the highest queue that may exist.
    queues: u16,
    free: BTreeSet<u16>,
    watches: Vec<Weak<dyn Watch>>,
}

/// A queue pair of the controller, with its interrupt.
pub(super) struct QueuePair {
    pub(super) pair: Pair,
    pub(super) watch: Option<Arc<dyn Watch>>,
    vector: Option<u16>,
}

/// Gives the admin right back.
struct Turn<'a> {
    controller: &'a NvmeController,
    admin: Option<Admin>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(&self.controller.admin) = self.admin.take();
        self.controller.admin_is_back.notify();
    }
}

/// Returns the result of a command that may fail, or `None`. A command that was given up is an error: its answer may
/// still come.
fn unless_given_up<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(error),
        result => Ok(result.ok()),
    }
}

impl NvmeController {
    /// Starts the controller behind a function. Commands that an earlier driver gave to it are lost.
    ///
    /// # Errors
    /// The controller does not answer, fails, or is of a kind that the driver cannot serve; or memory runs out.
    pub fn start(function: Arc<dyn Function>) -> io::Result<Arc<NvmeController>> {
        let capabilities = Capabilities::read(&*function)?;
        registers::disable(&*function, capabilities.ready_within).or_else(|_| {
            function.reset()?;
            registers::disable(&*function, capabilities.ready_within)
        })?;
        let space = DmaSpace::new(Arc::clone(&function));
        let entries = ADMIN_ENTRIES.min(capabilities.entries_max).max(2);
        let watch = if function.vectors() > 0 { Some(function.watch(0)?) } else { None };
        let mut admin = Admin {
            pair: Pair::new(&space, 0, entries, capabilities.stride)?,
            watch,
            next_id: 0,
            page: SharedWords::new(&space, PAGE_BYTES)?,
            identity: Buffer::new(PAGE_BYTES),
            doorbells: None,
            queues: 0,
            free: BTreeSet::new(),
            watches: Vec::new(),
        };
        let admin_is_back = function.env().executor.event();
        let controller = NvmeController {
            space,
            capabilities,
            admin: Mutex::new(None),
            admin_is_back,
            generation: AtomicU64::new(0),
            death: Mutex::new(None),
            locked: Mutex::default(),
        };
        controller.begin(&mut admin)?;
        admin.free = (1..=admin.queues).collect();
        *lock(&controller.admin) = Some(admin);
        Ok(Arc::new(controller))
    }

    /// Brings a stopped controller to work.
    fn begin(&self, admin: &mut Admin) -> io::Result<()> {
        let function = self.function();
        admin.pair.renew(None);
        let (entries, within) = (admin.pair.entries(), self.capabilities.ready_within);
        registers::enable(function, admin.pair.addresses(), entries, within)?;
        let identity = self.identify(admin, OF_CONTROLLER, 0)?;
        let wanted = u32::from(QUEUES_WANTED - 1);
        let mut command = command(opcode::SET_FEATURES);
        (command[10], command[11]) = (NUMBER_OF_QUEUES, wanted | wanted << 16);
        let granted = self.run(admin, command)?;
        let granted = (granted & 0xffff).min(granted >> 16) + 1;
        admin.queues = granted.min(u32::from(QUEUES_WANTED)) as u16;
        admin.doorbells = self.doorbells_in_memory(admin, &identity)?;
        admin.identity = identity;
        Ok(())
    }

    /// Agrees on doorbells in memory, where the controller has them.
    fn doorbells_in_memory(&self, admin: &mut Admin, identity: &Buffer) -> io::Result<Option<Arc<MemoryDoorbells>>> {
        let has_them = u16_at(identity, 256) & 1 << 8 != 0;
        // Two for each queue, in one page.
        if !has_them || (2 * u32::from(admin.queues) + 2) * self.capabilities.stride > PAGE_BYTES as u32 {
            return Ok(None);
        }
        let page = || SharedWords::new(&self.space, PAGE_BYTES);
        let doorbells = MemoryDoorbells { values: page()?, events: page()? };
        let mut command = command(opcode::DOORBELLS_IN_MEMORY);
        set_long(&mut command, 6, doorbells.values.address());
        set_long(&mut command, 8, doorbells.events.address());
        // The controller may write to them from now on. If the command is given up, until it is reset.
        let doorbells = Arc::new(doorbells);
        admin.doorbells = Some(Arc::clone(&doorbells));
        Ok(unless_given_up(self.run(admin, command))?.map(|_| doorbells))
    }

    pub(super) fn space(&self) -> &Arc<DmaSpace> {
        &self.space
    }

    pub(super) fn function(&self) -> &dyn Function {
        &**self.space.function()
    }

    /// Returns the number of resets and deaths so far.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the most commands that a queue may have in flight.
    pub(super) fn depth_max(&self) -> u32 {
        self.capabilities.entries_max.saturating_sub(1).max(1)
    }

    /// Returns the reason why the controller is dead, if it is.
    pub(super) fn death(&self) -> io::Result<()> {
        match &*lock(&self.death) {
            None => Ok(()),
            Some((kind, why)) => Err(io::Error::new(*kind, why.clone())),
        }
    }

    fn admin<R>(&self, work: impl FnOnce(&mut Admin) -> R) -> R {
        loop {
            let seen = self.admin_is_back.generation();
            let admin = lock(&self.admin).take();
            if admin.is_some() {
                let mut turn = Turn { controller: self, admin };
                return work(turn.admin.as_mut().expect("it was there a moment ago"));
            }
            self.admin_is_back.wait(seen, None);
        }
    }

    /// Runs admin commands. If one is given up, the controller is reset, because a late answer would be taken for that
    /// of a later command, and late data for its data.
    fn ask<R>(&self, work: impl FnOnce(&mut Admin) -> io::Result<R>) -> io::Result<R> {
        let (seen, answer) = self.admin(|admin| (self.generation(), work(admin)));
        if answer.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            self.reset(seen);
        }
        answer
    }

    /// Runs an admin command; returns its result.
    fn run(&self, admin: &mut Admin, mut command: Command) -> io::Result<u32> {
        self.death()?;
        let function = self.function();
        let id = admin.next_id;
        admin.next_id = admin.next_id.wrapping_add(1);
        command[0] |= u32::from(id) << 16;
        admin.pair.push(&command);
        admin.pair.ring(function);
        let clock = &function.env().clock;
        let begin = clock.now();
        loop {
            function.settle();
            while let Some(Answer { id: answered, status, result }) = admin.pair.pop() {
                admin.pair.release(function);
                if answered != id {
                    // To a command that was given up.
                    continue;
                }
                return if status == 0 { Ok(result) } else { Err(status_error(status)) };
            }
            if registers::state(function) == State::IsGone {
                return Err(registers::gone(function));
            }
            if clock.now() - begin > ADMIN_PATIENCE {
                let (name, opcode) = (function.name(), command[0] & 0xff);
                let why = format!("{name}: no answer to admin command {opcode:#04x} within {ADMIN_PATIENCE:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            match &admin.watch {
                Some(watch) => watch.wait(Some(ADMIN_SLICE)),
                None => clock.sleep(ADMIN_SLICE / 20),
            }
        }
    }

    fn identify(&self, admin: &mut Admin, of: u32, namespace: u32) -> io::Result<Buffer> {
        let mut command = command(opcode::IDENTIFY);
        command[1] = namespace;
        set_long(&mut command, 6, admin.page.address());
        command[10] = of;
        self.run(admin, command)?;
        let mut answer = Buffer::new(PAGE_BYTES);
        admin.page.copy(&mut answer);
        Ok(answer)
    }

    /// Returns the numbers of the namespaces that can be used.
    ///
    /// # Errors
    /// The controller does not answer.
    pub fn namespaces(&self) -> io::Result<Vec<u32>> {
        let list = self.ask(|admin| self.identify(admin, LIST_OF_NAMESPACES, 0))?;
        Ok(list.chunks_exact(4).map(|id| u32_at(id, 0)).take_while(|id| *id != 0).collect())
    }

    /// Returns the drive's model and serial number, as it says them.
    pub fn model(&self) -> (String, String) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        self.admin(|admin| (text(&admin.identity[24..64]), text(&admin.identity[4..24])))
    }

    /// Returns true if transfers can be described by scatter-gather lists, aligned as they like.
    pub(super) fn has_lists(&self) -> bool {
        self.admin(|admin| u32_at(&admin.identity, 536) & 0b11 != 0)
    }

    pub(super) fn answers(&self, namespace: u32) -> io::Result<Answers> {
        self.ask(|admin| {
            let of_namespace = self.identify(admin, OF_NAMESPACE, namespace)?;
            let mut command = command(opcode::GET_FEATURES);
            command[10] = VOLATILE_WRITE_CACHE;
            let cache = unless_given_up(self.run(admin, command))?;
            Ok(Answers::new(of_namespace, Buffer::copy_of(&admin.identity), cache))
        })
    }

    pub(super) fn describe_namespace(&self, id: u32) -> io::Result<Namespace> {
        if !self.namespaces()?.contains(&id) {
            let why = format!("{}: the drive has no namespace {id}", self.function().name());
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        let answers = self.answers(id)?;
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}/{id}: {error}", self.function().name()));
        let mut namespace = Namespace::new(id, &answers).map_err(named)?;
        // One page of addresses of pages describes a transfer, and one more page is named in the command.
        namespace.limit_transfer(None, Some(PAGE_BYTES as u64 / 8));
        Ok(namespace)
    }

    /// Takes the right to write to a namespace; false if it is taken.
    pub(super) fn lock_namespace(&self, id: u32) -> bool {
        lock(&self.locked).insert(id)
    }

    pub(super) fn unlock_namespace(&self, id: u32) {
        lock(&self.locked).remove(&id);
    }

    /// Makes a queue pair for `depth` commands in flight; returns it with the generation that it belongs to.
    pub(super) fn create(&self, depth: u32) -> io::Result<(QueuePair, u64)> {
        self.ask(|admin| {
            self.death()?;
            let Some(id) = admin.free.pop_first() else {
                let (name, queues) = (self.function().name(), admin.queues);
                let why = format!("{name}: all {queues} queues of the drive are in use; open fewer at a time");
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, why));
            };
            let made = self.new_pair(admin, id, depth);
            if made.is_err() {
                admin.free.insert(id);
            }
            Ok((made?, self.generation()))
        })
    }

    fn new_pair(&self, admin: &mut Admin, id: u16, depth: u32) -> io::Result<QueuePair> {
        let function = self.function();
        let entries = (depth + 1).min(self.capabilities.entries_max).max(2);
        let pair = Pair::new(&self.space, id, entries, self.capabilities.stride)?;
        let vector = Some(id).filter(|vector| *vector < function.vectors());
        let watch = vector.map(|vector| function.watch(vector)).transpose()?;
        let mut pair = QueuePair { pair, watch, vector };
        self.create_rings(admin, &mut pair)?;
        admin.watches.retain(|watch| watch.strong_count() > 0);
        admin.watches.extend(pair.watch.as_ref().map(Arc::downgrade));
        Ok(pair)
    }

    fn create_rings(&self, admin: &mut Admin, pair: &mut QueuePair) -> io::Result<()> {
        let QueuePair { pair, vector, .. } = pair;
        pair.renew(admin.doorbells.clone());
        let (submissions, completions) = pair.addresses();
        let numbers = u32::from(pair.id) | (pair.entries() - 1) << 16;
        let interrupt = vector.map_or(0, |vector| 1 << 1 | u32::from(vector) << 16);
        let mut create = command(opcode::CREATE_COMPLETIONS);
        set_long(&mut create, 6, completions);
        // In one piece of memory.
        (create[10], create[11]) = (numbers, 1 | interrupt);
        self.run(admin, create)?;
        let mut create = command(opcode::CREATE_SUBMISSIONS);
        set_long(&mut create, 6, submissions);
        (create[10], create[11]) = (numbers, 1 | u32::from(pair.id) << 16);
        let made = self.run(admin, create);
        if made.is_err() {
            // It is of no use without the other one.
            unless_given_up(self.delete_ring(admin, opcode::DELETE_COMPLETIONS, pair.id))?;
        }
        made.map(drop)
    }

    /// Makes a queue pair again after a reset; returns the generation that it belongs to now.
    pub(super) fn create_again(&self, pair: &mut QueuePair) -> io::Result<u64> {
        self.ask(|admin| {
            self.death()?;
            if pair.pair.id > admin.queues {
                let why = format!("{}: after a reset, the drive grants fewer queues", self.function().name());
                return Err(io::Error::other(why));
            }
            self.create_rings(admin, pair)?;
            Ok(self.generation())
        })
    }

    fn delete_ring(&self, admin: &mut Admin, opcode: u8, id: u16) -> io::Result<u32> {
        let mut delete = command(opcode);
        delete[10] = u32::from(id);
        self.run(admin, delete)
    }

    /// Deletes a queue pair of a generation. It has nothing in flight.
    pub(super) fn delete(&self, pair: QueuePair, generation: u64) {
        // A queue that the controller may still have keeps its number: a number is cheaper than a mistake.
        let _ = self.ask(|admin| {
            let id = pair.pair.id;
            if self.generation() == generation {
                self.delete_ring(admin, opcode::DELETE_SUBMISSIONS, id)?;
                self.delete_ring(admin, opcode::DELETE_COMPLETIONS, id)?;
            }
            if id <= admin.queues {
                admin.free.insert(id);
            }
            Ok(())
        });
        // Its memory is unmapped now, so it can be freed in any case.
        drop(pair);
    }

    /// Asks the controller to give up a command. The command's own answer says what became of it.
    pub(super) fn abort(&self, queue: u16, id: u16) -> io::Result<()> {
        self.ask(|admin| {
            let mut abort = command(opcode::ABORT);
            abort[10] = u32::from(queue) | u32::from(id) << 16;
            self.run(admin, abort).map(drop)
        })
    }

    /// Resets a controller that was seen at this generation, unless another thread has done so since.
    pub(super) fn reset(&self, seen: u64) {
        self.admin(|admin| {
            if self.generation() == seen && self.death().is_ok() {
                self.generation.fetch_add(1, Ordering::AcqRel);
                if let Err(error) = self.restart(admin) {
                    self.die(admin, error.kind(), error.to_string());
                }
                self.wake(admin);
            }
        });
    }

    fn restart(&self, admin: &mut Admin) -> io::Result<()> {
        let (function, within) = (self.function(), self.capabilities.ready_within);
        let begun = registers::disable(function, within).and_then(|()| self.begin(admin));
        begun.or_else(|error| {
            if registers::state(function) == State::IsGone {
                return Err(error);
            }
            function.reset()?;
            registers::disable(function, within)?;
            self.begin(admin)
        })
    }

    /// Gives up a controller that is gone.
    pub(super) fn bury(&self) {
        self.admin(|admin| {
            if self.death().is_ok() {
                let error = registers::gone(self.function());
                self.die(admin, error.kind(), error.to_string());
                self.generation.fetch_add(1, Ordering::AcqRel);
                self.wake(admin);
            }
        });
    }

    fn die(&self, _: &mut Admin, kind: io::ErrorKind, why: String) {
        // From here on, it reaches no memory: buffers that it had can go back to their owners.
        self.function().stop();
        *lock(&self.death) = Some((kind, why));
    }

    fn wake(&self, admin: &Admin) {
        admin.watches.iter().filter_map(Weak::upgrade).for_each(|watch| watch.wake());
    }
}

impl Drop for NvmeController {
    fn drop(&mut self) {
        if self.death().is_ok() {
            let function = self.function();
            // Nothing is in flight. A drive that does not agree is left to its power.
            let _ = registers::shut_down(function);
            let _ = registers::disable(function, self.capabilities.ready_within);
        }
    }
}

impl fmt::Debug for NvmeController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NvmeController({})", self.function().name())
    }
}

fn command(opcode: u8) -> Command {
    let mut command = [0; 16];
    command[0] = u32::from(opcode);
    command
}

fn set_long(command: &mut Command, at: usize, value: u64) {
    (command[at], command[at + 1]) = (value as u32, (value >> 32) as u32);
}
