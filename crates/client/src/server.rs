//! One server: its idle connections, and what is known of its health.
//!
//! 1. A call leases a connection. An idle one is looked at first: if the server has closed it, another one is taken.
//! 2. If all connections that the options allow are leased, the call waits for one until its deadline.
//! 3. A lease that ends in step goes back to the idle ones. Any other lease closes its connection.
//!
//! **Back-off.** After a failure to connect, or three failures of calls in a row, the server is *down*: calls fail at
//! once. After 20 ms, one call may try again. The time doubles with each further failure, up to 2 s. A success ends it.

use crate::answer::Given;
use crate::connection::{Connection, Fault, Progress};
use crate::error::{Error, Outcome};
use crate::item::Attributes;
use crate::options::{Address, Login, Options, Tls, TransportChoice, TransportKind};
use crate::request::{self, Mode, Request};
use crate::stream;
use std::borrow::Cow;
use std::fmt;
use std::io::ErrorKind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const BACK_OFF_MIN: Duration = Duration::from_millis(20);
const BACK_OFF_MAX: Duration = Duration::from_secs(2);

/// Calls in a row that may fail on connections that were made.
const FAILED_CALLS_MAX: u32 = 3;

/// The time for which RDMA is left out after it was refused or has failed. An attempt takes long.
const RDMA_REST: Duration = Duration::from_secs(60);

/// The time that a call has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) timeout: Duration,
    pub(crate) deadline: Instant,
}

impl Limit {
    /// Begins now. A timeout that has no end on the clock ends in a century.
    pub(crate) fn new(timeout: Duration) -> Limit {
        const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
        let now = Instant::now();
        Limit { timeout, deadline: now.checked_add(timeout).unwrap_or(now + CENTURY) }
    }
}

/// A server of a client.
pub(crate) struct Server {
    pub(crate) name: Arc<str>,
    address: Address,
    login: Option<Login>,
    tls: Option<Tls>,
    choice: TransportChoice,
    connections_max: usize,
    state: Mutex<State>,
    /// Signalled when a connection goes back or is closed.
    freed: Condvar,
}

#[derive(Default)]
struct State {
    /// The one used last is at the end.
    idle: Vec<Connection>,
    /// Connections, idle or leased.
    open: usize,
    health: Health,
    /// The transport of the latest connection.
    transport: Option<TransportKind>,
    rdma_rest: RdmaRest,
}

/// The rest after an attempt at RDMA that was refused or failed.
#[derive(Default)]
struct RdmaRest {
    until: Option<Instant>,
}

impl RdmaRest {
    fn begin(&mut self, now: Instant) {
        self.until = Some(now + RDMA_REST);
    }

    /// Returns true if RDMA may be tried. When a rest is over, the first caller alone may, and a new rest begins.
    fn may_try(&mut self, now: Instant) -> bool {
        let is_over = self.until.is_none_or(|until| now >= until);
        if is_over && self.until.is_some() {
            self.begin(now);
        }
        is_over
    }
}

#[derive(Default)]
struct Health {
    failed_calls: u32,
    /// Failures since the server went down.
    failures: u32,
    /// While the server is down: the time of the next attempt, and the last failure.
    down: Option<(Instant, Arc<str>)>,
}

impl Health {
    fn fail(&mut self, reason: &str, has_connected: bool) {
        self.failed_calls += 1;
        if has_connected && self.failed_calls < FAILED_CALLS_MAX && self.down.is_none() {
            return;
        }
        self.failures += 1;
        self.down = Some((Instant::now() + self.back_off(), reason.into()));
    }

    fn back_off(&self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(16);
        BACK_OFF_MIN.saturating_mul(1 << doublings).min(BACK_OFF_MAX)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.name).finish()
    }
}

impl Server {
    pub(crate) fn new(address: Address, options: &Options) -> Server {
        let &Options { transport: choice, connections_max, .. } = options;
        let (name, login, tls) = (address.name(), options.login.clone(), options.tls.clone());
        Server { name, address, login, tls, choice, connections_max, state: Mutex::default(), freed: Condvar::new() }
    }

    /// Returns the transport of the latest connection, or `None` if there was none.
    pub(crate) fn transport(&self) -> Option<TransportKind> {
        self.state().transport
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a call through, unless the server is down. While it is, one call at a time may try.
    fn admit(&self, health: &mut Health) -> Result<(), Error> {
        let back_off = health.back_off();
        let Some((next, reason)) = &mut health.down else { return Ok(()) };
        let now = Instant::now();
        let retry_after = next.saturating_duration_since(now);
        if !retry_after.is_zero() {
            return Err(Error::Down { server: Arc::clone(&self.name), retry_after, reason: Arc::clone(reason) });
        }
        *next = now + back_off;
        Ok(())
    }

    /// Returns true if calls to the server fail at once now.
    pub(crate) fn is_down(&self) -> bool {
        self.state().health.down.as_ref().is_some_and(|(next, _)| *next > Instant::now())
    }

    /// Returns a connection. `is_fresh` asks for one that was not used before.
    ///
    /// # Errors
    /// None of these errors has an effect on the server.
    pub(crate) fn lease(&self, limit: Limit, is_fresh: bool) -> Result<Lease<'_>, Error> {
        // Dropped after the lock: the end of a connection may take a while.
        let mut closed = Vec::new();
        let mut state = self.state();
        self.admit(&mut state.health)?;
        if is_fresh {
            std::mem::swap(&mut closed, &mut state.idle);
            state.open -= closed.len();
        }
        loop {
            if let Some(mut connection) = state.idle.pop() {
                drop(state);
                let counted = Counted(self);
                if connection.is_quiet() {
                    return Ok(Lease { counted, connection, is_used: true });
                }
                drop(counted);
                state = self.state();
                continue;
            }
            if state.open < self.connections_max {
                state.open += 1;
                drop(state);
                return self.connect(Counted(self), limit);
            }
            let left = limit.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.late(limit, Outcome::NotDone));
            }
            state = self.freed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn connect<'s>(&'s self, counted: Counted<'s>, limit: Limit) -> Result<Lease<'s>, Error> {
        let broken = |error: std::io::Error| match error.kind() {
            ErrorKind::TimedOut | ErrorKind::NetworkUnreachable if Instant::now() >= limit.deadline => {
                self.late(limit, Outcome::NotDone)
            }
            _ => self.error(Fault::Io(error), Outcome::NotDone),
        };
        let connected = || {
            let mut connection =
                Connection::new(stream::connect(&self.address, self.tls.as_ref(), limit.deadline).map_err(broken)?);
            self.log_in(&mut connection, limit)?;
            Ok(connection)
        };
        let may_try_rdma = self.choice == TransportChoice::Auto && matches!(self.address, Address::Tcp { .. });
        let tries_rdma = may_try_rdma && self.state().rdma_rest.may_try(Instant::now());
        let choice = if may_try_rdma && !tries_rdma { TransportChoice::Socket } else { self.choice };
        let prepared = connected().and_then(|connection| {
            let (connection, no_rdma) = match connection.upgrade(choice, limit.deadline) {
                Ok(connection) => {
                    let no_rdma = connection.transport() != TransportKind::Rdma;
                    (Ok(connection), no_rdma)
                }
                // The server hung up on a command that it does not know, or this process has no descriptor left for
                // memory. Or the network takes TCP and drops what RDMA sends. If TCP fails as well, the server is gone.
                Err(error) if choice == TransportChoice::Auto && error.kind() != ErrorKind::TimedOut => {
                    (Ok(connected()?), true)
                }
                Err(error) => {
                    let is_late = error.kind() == ErrorKind::TimedOut;
                    (Err(broken(error)), is_late)
                }
            };
            if tries_rdma {
                let mut state = self.state();
                state.rdma_rest = RdmaRest::default();
                if no_rdma {
                    state.rdma_rest.begin(Instant::now());
                }
            }
            connection
        });
        match prepared {
            Ok(connection) => {
                self.state().transport = Some(connection.transport());
                Ok(Lease { counted, connection, is_used: false })
            }
            Err(error) => {
                if !matches!(error, Error::Refused { .. }) {
                    self.state().health.fail(&error.to_string(), false);
                }
                Err(error)
            }
        }
    }

    fn log_in(&self, connection: &mut Connection, limit: Limit) -> Result<(), Error> {
        let Some(Login { user, password }) = &self.login else { return Ok(()) };
        let value = Cow::Owned(format!("{user} {password}").into_bytes());
        let mut requests = [request::store(Mode::Set, b"login", value, Attributes::default())];
        let exchanged = exchange(connection, &mut requests, &mut Progress::default(), limit);
        match (requests[0].answer.take_given(), exchanged) {
            (Some(Given::Refused(answer)), _) => Err(Error::Refused { server: Arc::clone(&self.name), answer }),
            (_, Ok(())) => Ok(()),
            (_, Err(Some(fault))) => Err(self.error(fault, Outcome::NotDone)),
            (_, Err(None)) => Err(self.late(limit, Outcome::NotDone)),
        }
    }

    /// Runs one command and returns its answer, which may be an error of the server. An idle connection may break
    /// because the server has closed it: a command that only reads is repeated on another one.
    pub(crate) fn call(&self, request: Request<'_>, limit: Limit) -> Result<Given, Error> {
        let mut requests = [request];
        let mut is_fresh = false;
        loop {
            let mut lease = self.lease(limit, is_fresh)?;
            let mut progress = Progress::default();
            let exchanged = lease.exchange(&mut requests, &mut progress, limit);
            let [request] = &mut requests;
            match (request.answer.take_given(), exchanged) {
                (Some(given), exchanged) => {
                    if exchanged.is_ok() {
                        lease.give_back();
                    }
                    return Ok(given);
                }
                (None, Err(Some(Fault::Io(_)))) if request.only_reads && lease.is_used => {
                    request.answer.restart();
                    is_fresh = true;
                }
                (None, exchanged) => {
                    let has_effect = !request.only_reads && progress.has_begun(0);
                    return Err(self.failed(exchanged.err().flatten(), has_effect, limit));
                }
            }
        }
    }

    /// Counts a call that failed on a connection, and returns its error. Without a fault, its deadline has passed.
    pub(crate) fn failed(&self, fault: Option<Fault>, has_effect: bool, limit: Limit) -> Error {
        let outcome = if has_effect { Outcome::Unknown } else { Outcome::NotDone };
        let error = match fault {
            Some(fault) => self.error(fault, outcome),
            None => self.late(limit, outcome),
        };
        self.state().health.fail(&error.to_string(), true);
        error
    }

    pub(crate) fn late(&self, limit: Limit, outcome: Outcome) -> Error {
        Error::Late { server: Arc::clone(&self.name), timeout: limit.timeout, outcome }
    }

    fn error(&self, fault: Fault, outcome: Outcome) -> Error {
        let server = Arc::clone(&self.name);
        match fault {
            Fault::Io(source) => Error::Broken { server, source: Arc::new(source), outcome },
            Fault::Garbled(fault) => Error::Garbled { server, fault, outcome },
        }
    }
}

/// Exchanges all requests for their answers.
///
/// # Errors
/// The connection is of no use any more, for the fault, or, without one, because the deadline has passed.
fn exchange(
    connection: &mut Connection,
    requests: &mut [Request<'_>],
    progress: &mut Progress,
    limit: Limit,
) -> Result<(), Option<Fault>> {
    loop {
        connection.advance(requests, progress, limit.deadline)?;
        if progress.is_over(requests.len()) {
            return Ok(());
        }
        if Instant::now() >= limit.deadline {
            return Err(None);
        }
    }
}

/// A connection counted as open, until this is dropped.
struct Counted<'s>(&'s Server);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.state().open -= 1;
        self.0.freed.notify_one();
    }
}

/// The right to use a connection alone. It ends with [`give_back`](Lease::give_back), or closes the connection.
pub(crate) struct Lease<'s> {
    counted: Counted<'s>,
    connection: Connection,
    /// True if the connection was used before: the server may have closed it.
    pub(crate) is_used: bool,
}

impl Lease<'_> {
    /// As [`Connection::advance`].
    pub(crate) fn advance(
        &mut self,
        requests: &mut [Request<'_>],
        progress: &mut Progress,
        until: Instant,
    ) -> Result<(), Fault> {
        self.connection.advance(requests, progress, until)
    }

    /// As [`exchange`].
    pub(crate) fn exchange(
        &mut self,
        requests: &mut [Request<'_>],
        progress: &mut Progress,
        limit: Limit,
    ) -> Result<(), Option<Fault>> {
        exchange(&mut self.connection, requests, progress, limit)
    }

    /// Keeps the connection, which is in step, for other calls.
    pub(crate) fn give_back(self) {
        let Lease { counted, connection, .. } = self;
        let server = counted.0;
        // The connection stays counted.
        std::mem::forget(counted);
        let mut state = server.state();
        state.health = Health::default();
        state.idle.push(connection);
        drop(state);
        server.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After three failures in a row, RDMA was never tried again.
    #[test]
    fn rdma_is_tried_again_a_minute_after_it_has_failed() {
        let (mut rest, now) = (RdmaRest::default(), Instant::now());
        assert!(rest.may_try(now) && rest.may_try(now), "before a failure, all may");
        rest.begin(now);
        assert!(!rest.may_try(now) && !rest.may_try(now + Duration::from_secs(59)));
        assert!(rest.may_try(now + Duration::from_secs(60)));
        assert!(!rest.may_try(now + Duration::from_secs(61)), "one alone tries again");
    }
}
