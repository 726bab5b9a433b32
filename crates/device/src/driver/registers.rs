//! The registers of a controller, by their offsets and fields.

use super::function::Function;
use std::io;
use std::time::Duration;

const CAPABILITIES: u32 = 0x00;
const CONFIGURATION: u32 = 0x14;
const STATUS: u32 = 0x1c;
const ADMIN_ENTRIES: u32 = 0x24;
const ADMIN_SUBMISSIONS: u32 = 0x28;
const ADMIN_COMPLETIONS: u32 = 0x30;

/// A register of a function that is gone.
const GONE: u32 = u32::MAX;

const ENABLE: u32 = 1;
/// Entries of 64 and of 16 bytes, as powers of two; pages of 4 KiB; the NVM command set.
const ENABLED: u32 = ENABLE | 6 << 16 | 4 << 20;
/// A normal shutdown.
const SHUT_DOWN: u32 = 1 << 14;

const READY: u32 = 1;
const FATAL: u32 = 1 << 1;
const SHUT_DOWN_STATE: u32 = 0b11 << 2;
const IS_SHUT_DOWN: u32 = 0b10 << 2;

/// The longest wait of a shutdown, whose time the controller does not say.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two looks at the status.
const PAUSE: Duration = Duration::from_millis(1);

/// The state of a controller, as far as a look at its status tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Works,
    /// It gave up, or was reset by another, and has forgotten its queues.
    HasFailed,
    /// The function answers no reads.
    IsGone,
}

/// The properties that the capabilities name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Capabilities {
    /// The most entries of a ring.
    pub(super) entries_max: u32,
    /// The longest time from a change of the enable bit to that of the ready bit.
    pub(super) ready_within: Duration,
    /// The distance of two doorbells, in bytes.
    pub(super) stride: u32,
}

fn refused(function: &dyn Function, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("{}: {why}", function.name()))
}

pub(super) fn gone(function: &dyn Function) -> io::Error {
    let why = format!("{}: the drive is gone: its registers read as all ones", function.name());
    io::Error::new(io::ErrorKind::NotConnected, why)
}

impl Capabilities {
    /// Reads them. Refuses a controller that the driver cannot serve.
    pub(super) fn read(function: &dyn Function) -> io::Result<Capabilities> {
        let (low, high) = (function.read(CAPABILITIES), function.read(CAPABILITIES + 4));
        if (low, high) == (GONE, GONE) {
            return Err(gone(function));
        }
        if high >> 5 & 1 == 0 {
            return Err(refused(function, "the controller does not have the NVM command set"));
        }
        if high >> 16 & 0xf != 0 {
            return Err(refused(function, "the controller wants memory pages longer than 4 KiB"));
        }
        Ok(Capabilities {
            entries_max: (low & 0xffff) + 1,
            ready_within: Duration::from_millis(500) * (low >> 24).max(1),
            stride: 4 << (high & 0xf),
        })
    }
}

/// Returns the state of a controller that was started.
pub(super) fn state(function: &dyn Function) -> State {
    match function.read(STATUS) {
        GONE => State::IsGone,
        status if status & (READY | FATAL) != READY => State::HasFailed,
        _ => State::Works,
    }
}

/// Waits until the status under `mask` is `wanted`.
fn wait_for(function: &dyn Function, mask: u32, wanted: u32, patience: Duration, what: &str) -> io::Result<()> {
    let clock = &function.env().clock;
    let begin = clock.now();
    loop {
        function.settle();
        let status = function.read(STATUS);
        if status == GONE {
            return Err(gone(function));
        }
        if status & mask == wanted {
            return Ok(());
        }
        if wanted == READY && status & FATAL != 0 {
            return Err(io::Error::other(format!("{}: the controller failed while it started", function.name())));
        }
        if clock.now() - begin > patience {
            let why = format!("{}: the controller did not {what} within {patience:?}", function.name());
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        clock.sleep(PAUSE);
    }
}

/// Stops the controller. It has no commands and no queues when the call has returned.
pub(super) fn disable(function: &dyn Function, within: Duration) -> io::Result<()> {
    let configuration = function.read(CONFIGURATION);
    if configuration == GONE {
        return Err(gone(function));
    }
    if configuration & ENABLE != 0 {
        function.write(CONFIGURATION, configuration & !ENABLE);
    }
    wait_for(function, READY, 0, within, "stop")
}

/// Starts a stopped controller with these rings for admin commands.
pub(super) fn enable(function: &dyn Function, rings: (u64, u64), entries: u32, within: Duration) -> io::Result<()> {
    let (submissions, completions) = rings;
    function.write(ADMIN_ENTRIES, (entries - 1) | (entries - 1) << 16);
    for (register, address) in [(ADMIN_SUBMISSIONS, submissions), (ADMIN_COMPLETIONS, completions)] {
        function.write(register, address as u32);
        function.write(register + 4, (address >> 32) as u32);
    }
    function.write(CONFIGURATION, ENABLED);
    wait_for(function, READY, READY, within, "become ready")
}

/// Tells a running controller that its power may go, and waits until it has agreed.
pub(super) fn shut_down(function: &dyn Function) -> io::Result<()> {
    function.write(CONFIGURATION, ENABLED | SHUT_DOWN);
    wait_for(function, SHUT_DOWN_STATE, IS_SHUT_DOWN, SHUTDOWN_PATIENCE, "shut down")
}
