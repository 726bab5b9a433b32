//! The controller's registers. Offsets and fields are those of the base specification ("Controller Properties").

use super::admin::{self, Features};
use super::counts::count;
use super::plan::NotReady;
use super::queues::{CompletionQueue, Roster, SubmissionQueue};
use super::walk::PAGE;
use super::{NvmeConfig, Shared};
use situ_base::lock;
use situ_device::{Buffer, Op, PAGE_BYTES, Queue};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Version 1.4.
pub(super) const VERSION: u32 = 0x0001_0400;

const CAPABILITIES: u32 = 0x00;
const CAPABILITIES_HIGH: u32 = 0x04;
const VERSION_AT: u32 = 0x08;
const MASK_SET: u32 = 0x0c;
const MASK_CLEAR: u32 = 0x10;
const CONFIGURATION: u32 = 0x14;
const STATUS: u32 = 0x1c;
const ADMIN_SIZES: u32 = 0x24;
const ADMIN_SUBMISSION: u32 = 0x28;
const ADMIN_COMPLETION: u32 = 0x30;
const DOORBELLS: u32 = 0x1000;

const ENABLE: u32 = 1;
const SHUTDOWN: u32 = 3 << 14;

const READY: u32 = 1;
const FATAL: u32 = 1 << 1;

/// Asynchronous events of the kind "error": the write to a doorbell that does not exist, and of a bad value.
const NO_SUCH_DOORBELL: u32 = 0x01_00_00;
const BAD_DOORBELL_VALUE: u32 = 0x01_01_00;

/// The values that the host has written, and the progress of what they ask for.
#[derive(Default)]
pub(super) struct Registers {
    configuration: u32,
    admin_sizes: u32,
    admin_submission: u64,
    admin_completion: u64,
    power: Power,
    shutdown: Shutdown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Power {
    #[default]
    Off,
    /// It becomes ready at this time.
    Starting(Duration),
    Ready,
    /// It is off at this time.
    Stopping(Duration),
}

#[derive(Default)]
enum Shutdown {
    #[default]
    No,
    /// Flushes are under way. Without them, a thread has them at the moment.
    Flushing(Option<Vec<Box<dyn Queue>>>),
    Done,
}

fn capabilities(config: &NvmeConfig) -> u64 {
    const RINGS_IN_ONE_PIECE: u64 = 1 << 16;
    const NVM_COMMANDS: u64 = 1 << 37;
    u64::from(config.entries_max - 1)
        | RINGS_IN_ONE_PIECE
        | u64::from(config.ready_timeout) << 24
        | u64::from(config.doorbell_stride) << 32
        | NVM_COMMANDS
}

pub(super) fn read(shared: &Shared, offset: u32) -> u32 {
    count(&shared.counters.register_reads);
    if offset == STATUS {
        // The host waits for a change.
        shared.env.executor.yield_point();
        advance(shared);
    }
    if shared.is_removed() {
        return u32::MAX;
    }
    let registers = lock(&shared.registers);
    match offset {
        CAPABILITIES => capabilities(&shared.config) as u32,
        CAPABILITIES_HIGH => (capabilities(&shared.config) >> 32) as u32,
        VERSION_AT => VERSION,
        MASK_SET | MASK_CLEAR => shared.masks.load(Ordering::Acquire),
        CONFIGURATION => registers.configuration,
        STATUS => {
            let is_ready = matches!(registers.power, Power::Ready | Power::Stopping(_));
            let shutdown = match registers.shutdown {
                Shutdown::No => 0,
                Shutdown::Flushing(_) => 1,
                Shutdown::Done => 2,
            };
            (if is_ready { READY } else { 0 })
                | (if shared.is_fatal.load(Ordering::Acquire) { FATAL } else { 0 })
                | shutdown << 2
        }
        ADMIN_SIZES => registers.admin_sizes,
        ADMIN_SUBMISSION => registers.admin_submission as u32,
        0x2c => (registers.admin_submission >> 32) as u32,
        ADMIN_COMPLETION => registers.admin_completion as u32,
        0x34 => (registers.admin_completion >> 32) as u32,
        _ => 0,
    }
}

pub(super) fn write(shared: &Shared, offset: u32, value: u32) {
    if shared.is_removed() {
        return;
    }
    if offset >= DOORBELLS {
        return ring(shared, offset - DOORBELLS, value);
    }
    match offset {
        MASK_SET => drop(shared.masks.fetch_or(value, Ordering::AcqRel)),
        MASK_CLEAR => {
            shared.masks.fetch_and(!value, Ordering::AcqRel);
            let held = shared.held_interrupts.fetch_and(!value, Ordering::AcqRel) & value;
            (0..32).filter(|vector| held >> vector & 1 != 0).for_each(|vector| shared.interrupt(vector));
        }
        CONFIGURATION => configure(shared, value),
        _ => {
            let mut registers = lock(&shared.registers);
            if registers.configuration & ENABLE != 0 {
                shared.violation(format!("register {offset:#x} is written while the controller is on"));
                return;
            }
            let low = |old: u64| old >> 32 << 32 | u64::from(value);
            let high = |old: u64| old & 0xffff_ffff | u64::from(value) << 32;
            match offset {
                ADMIN_SIZES => registers.admin_sizes = value,
                ADMIN_SUBMISSION => registers.admin_submission = low(registers.admin_submission),
                0x2c => registers.admin_submission = high(registers.admin_submission),
                ADMIN_COMPLETION => registers.admin_completion = low(registers.admin_completion),
                0x34 => registers.admin_completion = high(registers.admin_completion),
                _ => shared.violation(format!("register {offset:#x} is written")),
            }
        }
    }
}

fn configure(shared: &Shared, value: u32) {
    let now = shared.env.clock.now();
    let (mut ends, mut flushes) = (false, false);
    {
        let mut registers = lock(&shared.registers);
        let before = std::mem::replace(&mut registers.configuration, value);
        match (before & ENABLE != 0, value & ENABLE != 0) {
            (false, true) => {
                if registers.power != Power::Off {
                    shared.violation("the controller is switched on before it was off".to_owned());
                    shared.is_fatal.store(true, Ordering::Release);
                } else if let Some(why) = refusal(&registers) {
                    shared.violation(why);
                    shared.is_fatal.store(true, Ordering::Release);
                } else {
                    registers.power = Power::Starting(now + shared.config.ready_after);
                }
            }
            (true, false) => {
                let was_on = matches!(registers.power, Power::Ready | Power::Starting(_));
                registers.power = if was_on { Power::Stopping(now + shared.config.ready_after) } else { Power::Off };
                registers.shutdown = Shutdown::No;
                ends = true;
            }
            _ => {}
        }
        if value & SHUTDOWN != 0 && before & SHUTDOWN == 0 && matches!(registers.shutdown, Shutdown::No) {
            registers.shutdown = Shutdown::Flushing(None);
            flushes = true;
        }
    }
    if ends {
        end(shared);
    }
    if flushes {
        let queues = flush_all(shared);
        let mut registers = lock(&shared.registers);
        if matches!(registers.shutdown, Shutdown::Flushing(None)) {
            registers.shutdown = Shutdown::Flushing(Some(queues));
        }
    }
}

/// Returns the reason for which the controller cannot be switched on.
fn refusal(registers: &Registers) -> Option<String> {
    let field = |shift: u32, bits: u32| registers.configuration >> shift & ((1 << bits) - 1);
    let (submission, completion) = (registers.admin_sizes & 0xfff, registers.admin_sizes >> 16 & 0xfff);
    let is_whole = |address: u64| address.is_multiple_of(PAGE) && address != 0;
    if field(4, 3) != 0 || field(11, 3) != 0 {
        Some("the command set or the arbitration is not there".to_owned())
    } else if field(7, 4) != 0 {
        Some("the page is larger than the controller's".to_owned())
    } else if (field(16, 4), field(20, 4)) != (6, 4) {
        Some("the entries are not of 64 and 16 bytes".to_owned())
    } else if submission == 0 || completion == 0 {
        Some("an admin queue has fewer than two entries".to_owned())
    } else if !is_whole(registers.admin_submission) || !is_whole(registers.admin_completion) {
        Some("an admin queue is not in whole pages".to_owned())
    } else {
        None
    }
}

/// Ends all queues and forgets what the host has set. Nothing is transferred any more when the call has returned.
pub(super) fn end(shared: &Shared) {
    let roster = shared.replace_roster(Roster::default());
    let engines: Vec<_> = roster.submission.iter().map(|queue| queue.end()).collect();
    roster.completion.iter().for_each(|queue| queue.is_live.store(false, Ordering::Release));
    shared.memory.settled();
    *lock(&shared.features) = Features::default();
    shared.cache_is_on.store(true, Ordering::Release);
    shared.is_fatal.store(false, Ordering::Release);
    shared.masks.store(0, Ordering::Release);
    shared.held_interrupts.store(0, Ordering::Release);
    // Operations that the devices have may still take effect.
    drop(engines);
}

/// Sets all registers back, as a reset of the function does.
pub(super) fn clear(shared: &Shared) {
    let before = std::mem::take(&mut *lock(&shared.registers));
    end(shared);
    drop(before);
}

/// Lets time pass for what takes time: readiness, and a shutdown.
fn advance(shared: &Shared) {
    let now = shared.env.clock.now();
    let not_ready = lock(&shared.plan).plan.not_ready;
    let mut flushing = None;
    {
        let mut registers = lock(&shared.registers);
        match registers.power {
            Power::Starting(at) if at <= now && not_ready == NotReady::No && !shared.is_halted() => {
                registers.power = Power::Ready;
                shared.replace_roster(admin_queues(&registers));
            }
            Power::Stopping(at) if at <= now => registers.power = Power::Off,
            _ => {}
        }
        if let Shutdown::Flushing(queues) = &mut registers.shutdown {
            flushing = queues.take();
        }
    }
    if let Some(mut queues) = flushing {
        let mut done = Vec::new();
        queues.retain_mut(|queue| queue.poll(&mut done) == 0);
        let mut registers = lock(&shared.registers);
        if matches!(registers.shutdown, Shutdown::Flushing(None)) {
            let is_done = queues.is_empty();
            registers.shutdown = if is_done { Shutdown::Done } else { Shutdown::Flushing(Some(queues)) };
        }
    }
}

fn admin_queues(registers: &Registers) -> Roster {
    let (submission, completion) = (registers.admin_sizes & 0xfff, registers.admin_sizes >> 16 & 0xfff);
    let completion = Arc::new(CompletionQueue::new(0, registers.admin_completion, completion + 1, Some(0)));
    let queue = SubmissionQueue::new(0, registers.admin_submission, submission + 1, Arc::clone(&completion));
    Roster { submission: vec![Arc::new(queue)], completion: vec![completion], shadows: None }
}

/// Begins a flush of each device, and returns the queues with these flushes.
fn flush_all(shared: &Shared) -> Vec<Box<dyn Queue>> {
    let flushed = shared.namespaces.iter().filter_map(|namespace| {
        let mut queue = namespace.device.queue(1).ok()?;
        queue.submit(Op::Flush, Buffer::new(PAGE_BYTES)).ok()?;
        Some(queue)
    });
    flushed.collect()
}

fn ring(shared: &Shared, place: u32, value: u32) {
    count(&shared.counters.doorbells);
    shared.env.executor.yield_point();
    let (number, rest) = (place / shared.config.stride(), place % shared.config.stride());
    let (id, is_completion) = ((number / 2) as u16, number % 2 != 0);
    let roster = shared.roster();
    if shared.is_halted() || roster.submission.is_empty() {
        return;
    }
    let outcome = match (rest, is_completion) {
        (0, true) => roster.completion(id).map(|queue| queue.ring(shared, value)),
        (0, false) => roster.submission(id).map(|queue| {
            value < queue.entries && {
                // With shadow doorbells, the page has the value.
                if id == 0 || roster.shadows.is_none() {
                    queue.tail.store(value, Ordering::Release);
                }
                queue.work(shared, true);
                true
            }
        }),
        _ => None,
    };
    match outcome {
        Some(true) => {}
        Some(false) => {
            shared.violation(format!("the doorbell at {place:#x} is set to {value}"));
            admin::tell(shared, BAD_DOORBELL_VALUE);
        }
        None => {
            shared.violation(format!("there is no doorbell at {place:#x}"));
            admin::tell(shared, NO_SUCH_DOORBELL);
        }
    }
}
