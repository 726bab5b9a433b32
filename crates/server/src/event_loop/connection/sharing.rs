//! The move of a connection from its socket into shared or remote memory.
//!
//! 1. The client asks, with the last command that it has sent. All earlier ones are answered.
//! 2. The server counts the memory, makes it, and answers over the socket. Remote memory takes longer: a
//!    [thread](crate::waiting::greeting) makes it. The connection waits meanwhile, and runs the command again then.
//! 3. From then on all bytes go through the rings (`stream.rs`).
//!
//! **Invariants.** Users are checked before: a stranger gets no memory. A refused client goes on over the socket. A
//! client that takes no answer is closed.

use std::borrow::Cow;
use std::io::IoSlice;

use super::{Connection, Step};
use crate::admin::metrics::{Command, Counter};
use crate::commands::execute::{Executor, Outcome};
use crate::engine::Engine;
use crate::engine::cache::{CacheExtras, Reserved};
use crate::protocol::parse::Request;
use crate::waiting::Wait;
use crate::waiting::greeting::Greet;
use crate::waiting::held::{Greeted, Held};
use situ_transport::RdmaDevices;

/// The answer to a client that gets no memory.
type Refusal = Cow<'static, str>;

/// The state of a connection that may move.
enum Move {
    /// It has moved, or the socket takes no answer.
    Made(std::io::Result<()>),
    /// Its memory is being made.
    UnderWay,
}

impl<E: Engine> Connection<E> {
    /// Moves the connection into shared or remote memory, or says why not. The request is the last one that has come,
    /// as `is_last` says. Returns the step if the command has not run.
    pub(super) fn share(&mut self, executor: &mut Executor<E>, request: &Request<'_>, is_last: bool) -> Option<Step> {
        let may_share = if self.stream.is_shared() {
            Err("CLIENT_ERROR the connection has left its socket".into())
        } else if !is_last || !self.session.output.is_empty() {
            Err("CLIENT_ERROR memory is asked for when all commands are answered, and none follows".into())
        } else if executor.limits.shared_ring_bytes_max == 0 {
            Err("SERVER_ERROR connections in memory are switched off".into())
        } else {
            Ok(())
        };
        let shared = match (request, self.greeted.take()) {
            (_, Some(greeted)) => self.share_greeted(executor, greeted),
            (Request::SharedMemory { version, ring_bytes }, None) => {
                self.share_local(executor, *version, *ring_bytes, may_share)
            }
            (Request::RemoteMemory { offer }, None) => self.begin_greeting(executor, offer, may_share),
            _ => return None,
        };
        match shared {
            Ok(Move::Made(Ok(()))) => None,
            Ok(Move::Made(Err(_))) => {
                self.closing = true;
                Some(Step::Taken)
            }
            Ok(Move::UnderWay) => Some(Step::Stopped(Outcome::Wait(Wait::Greeting))),
            Err(refusal) => {
                executor.say(&mut self.session, Command::Other, &refusal, false);
                None
            }
        }
    }

    /// Moves the connection into shared memory.
    fn share_local(
        &mut self,
        executor: &Executor<E>,
        version: u64,
        ring_bytes: u64,
        may_share: Result<(), Refusal>,
    ) -> Result<Move, Refusal> {
        if version != situ_transport::VERSION {
            return Err("CLIENT_ERROR another version of shared memory".into());
        }
        if !self.local {
            return Err("CLIENT_ERROR shared memory needs a Unix socket".into());
        }
        may_share?;
        let ring_bytes = situ_transport::ring_bytes_for(ring_bytes, executor.limits.shared_ring_bytes_max);
        let no_memory = || "SERVER_ERROR out of memory for a connection in shared memory";
        let of_engine = reserve_rings(executor, 2 * ring_bytes).ok_or_else(no_memory)?;
        let greeting = situ_transport::offer(ring_bytes).map_err(|_| no_memory())?;
        executor.counters.add(Counter::ConnectionsShared, 1);
        let answered = situ_transport::answer(&self.stream, &greeting);
        if answered.is_ok() {
            self.stream.share(Box::new(greeting.rings), Held { _of_engine: of_engine, remote: None });
        }
        Ok(Move::Made(answered))
    }

    /// Begins to make remote memory.
    fn begin_greeting(
        &self,
        executor: &Executor<E>,
        offer: &[u8],
        may_share: Result<(), Refusal>,
    ) -> Result<Move, Refusal> {
        let most = executor.limits.shared_ring_bytes_max;
        let (bytes, greet) = greet(&self.stream, offer, &executor.limits.rdma, most, may_share)?;
        let of_engine =
            reserve_rings(executor, bytes).ok_or("SERVER_ERROR out of memory for a connection in remote memory")?;
        let connection = (self.session.token, &executor.inbox);
        executor
            .greeter
            .begin(connection, (of_engine, bytes), greet)
            .map_err(|reason| format!("SERVER_ERROR {reason}"))?;
        Ok(Move::UnderWay)
    }

    /// Moves the connection into the remote memory that was made.
    fn share_greeted(&mut self, executor: &Executor<E>, greeted: Greeted) -> Result<Move, Refusal> {
        /// The silence after which the system asks whether the client's machine is still there.
        const KEEP_IDLE: std::time::Duration = std::time::Duration::from_secs(60);
        use rustix::net::sockopt;
        let (rings, line, held) = greeted.map_err(|reason| format!("SERVER_ERROR {reason}"))?;
        executor.counters.add(Counter::ConnectionsRemote, 1);
        // A silent device does not find out that the client's machine is gone. Until then its memory is kept.
        let _ = sockopt::set_tcp_keepidle(&self.stream, KEEP_IDLE);
        let _ = sockopt::set_tcp_keepintvl(&self.stream, KEEP_IDLE / 6);
        let answered = match self.stream.send(&[IoSlice::new(line.as_bytes())]) {
            Ok(bytes) if bytes < line.len() => Err(std::io::ErrorKind::WouldBlock.into()),
            sent => sent.map(drop).map_err(std::io::Error::from),
        };
        match answered.is_ok() {
            true => self.stream.share(rings, held),
            false => executor.greeter.end(rings, held),
        }
        Ok(Move::Made(answered))
    }
}

/// Returns the bytes of rings for a client's offer, and the work that makes them.
#[cfg(feature = "verbs")]
fn greet(
    socket: &super::Stream,
    offer: &[u8],
    devices: &RdmaDevices,
    most: u64,
    may_share: Result<(), Refusal>,
) -> Result<(u64, Greet), Refusal> {
    use situ_transport::verbs::{Accepted, Ends, NoOffer, Offer, accept};
    let offer = Offer::parse(offer).map_err(|reason| match reason {
        NoOffer::OtherVersion => "CLIENT_ERROR another version of RDMA",
        NoOffer::Malformed => "CLIENT_ERROR bad command line format",
    })?;
    let device = match devices {
        RdmaDevices::Off => return Err("SERVER_ERROR RDMA is switched off".into()),
        RdmaDevices::Any => None,
        RdmaDevices::Named(name) => Some(name.clone()),
    };
    may_share?;
    let ends = Ends::of(socket).map_err(|error| format!("SERVER_ERROR {error}"))?;
    let work = move |held| {
        let accepted = accept(ends, &offer, device.as_deref(), most).map_err(|error| error.to_string());
        accepted.map(|Accepted { rings, line }| (Box::new(rings) as _, line, held))
    };
    Ok((offer.memory_bytes(most), Box::new(work)))
}

#[cfg(not(feature = "verbs"))]
fn greet(
    _: &super::Stream,
    _: &[u8],
    _: &RdmaDevices,
    _: u64,
    _: Result<(), Refusal>,
) -> Result<(u64, Greet), Refusal> {
    Err("SERVER_ERROR this server is built without RDMA".into())
}

/// Counts the memory of rings as the engine's; `None` if there is no room.
fn reserve_rings<E: Engine>(executor: &Executor<E>, bytes: u64) -> Option<Reserved> {
    let mut reserved = Reserved::default();
    let has_room = executor.engine.cache().is_none_or(|cache| cache.reserve(&mut reserved, bytes as usize));
    has_room.then_some(reserved)
}
