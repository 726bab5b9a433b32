//! A queue of the device for a thread that has several log writes in flight.

use situ_base::Env;
use situ_device::{Buffer, Completion, Device, Op, Queue, Ticket, Waiter, Watch};
use std::io;
use std::sync::Arc;

/// Operations that the device has at once for one thread.
const DEPTH: u32 = 16;

/// A queue of the device that one thread waits for.
pub(super) struct LogQueue {
    queue: Box<dyn Queue>,
    waiter: Waiter,
    in_flight: usize,
    done: Vec<Completion>,
}

impl LogQueue {
    /// Opens one; `None` if the device does its work within `submit`.
    pub(super) fn open(env: &Env, device: &dyn Device) -> io::Result<Option<LogQueue>> {
        let mut queue = device.queue(DEPTH)?;
        let waiter = Waiter::new(env, &mut *queue)?;
        Ok(waiter.map(|waiter| LogQueue { queue, waiter, in_flight: 0, done: Vec::new() }))
    }

    /// Returns the watch that ends a wait.
    pub(super) fn watch(&self) -> Arc<dyn Watch> {
        Arc::clone(self.waiter.watch())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Returns true if the device takes no operation now.
    pub(super) fn is_full(&self) -> bool {
        self.in_flight >= DEPTH as usize
    }

    /// Hands an operation to the device.
    ///
    /// # Errors
    /// As [`Queue::submit`]. `WouldBlock`: one that is in flight has to end first.
    pub(super) fn submit(&mut self, op: Op, buffer: Buffer) -> Result<Ticket, (Buffer, io::Error)> {
        let ticket = self.queue.submit(op, buffer).map_err(|(buffer, error)| match self.in_flight {
            // Without one, waiting would not help.
            0 if error.kind() == io::ErrorKind::WouldBlock => {
                (buffer, io::Error::other("the device takes no operation"))
            }
            _ => (buffer, error),
        })?;
        self.in_flight += 1;
        Ok(ticket)
    }

    /// Waits for the end of an operation, for `is_called`, or for a while. Hands each that has ended to `landed`.
    pub(super) fn wait(&mut self, is_called: &dyn Fn() -> bool, mut landed: impl FnMut(Ticket, io::Result<()>)) {
        if self.in_flight > 0 {
            self.waiter.wait(&mut *self.queue, &mut self.done, is_called);
        }
        for Completion { ticket, result, .. } in self.done.drain(..) {
            self.in_flight -= 1;
            landed(ticket, result);
        }
    }
}
