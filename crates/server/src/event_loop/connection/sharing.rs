//! The move of a connection from its socket into shared or remote memory.
//!
//! 1. The client asks, with the last command that it has sent. All earlier ones are answered.
//! 2. The server counts the memory, makes it, and answers over the socket.
//! 3. From then on all bytes go through the rings (`stream.rs`).
//!
//! **Invariants.** Users are checked before: a stranger gets no memory. A refused client goes on over the socket. A
//! client that takes no answer is closed.

use std::borrow::Cow;

use super::{Connection, Step};
use crate::admin::metrics::{Command, Counter};
use crate::commands::execute::Executor;
use crate::engine::Engine;
use crate::engine::cache::{CacheExtras, Reserved};
use crate::protocol::parse::Request;

impl<E: Engine> Connection<E> {
    /// Moves the connection into shared or remote memory, or says why not. The request is the last one that has come,
    /// as `is_last` says. Returns the step if the client takes no answer.
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
        let shared = match request {
            Request::SharedMemory { version, ring_bytes } => {
                self.share_local(executor, *version, *ring_bytes, may_share)
            }
            Request::RemoteMemory { offer } => self.share_remote(executor, offer, may_share),
            _ => return None,
        };
        match shared {
            Ok(Ok(())) => None,
            // The client takes no answer.
            Ok(Err(_)) => {
                self.closing = true;
                Some(Step::Taken)
            }
            Err(refusal) => {
                executor.say(&mut self.session, Command::Other, &refusal, false);
                None
            }
        }
    }

    /// Moves the connection into shared memory. The outer error is the refusal, the inner one of the socket.
    fn share_local(
        &mut self,
        executor: &Executor<E>,
        version: u64,
        ring_bytes: u64,
        may_share: Result<(), Cow<'static, str>>,
    ) -> Result<std::io::Result<()>, Cow<'static, str>> {
        if version != situ_transport::VERSION {
            return Err("CLIENT_ERROR another version of shared memory".into());
        }
        if !self.local {
            return Err("CLIENT_ERROR shared memory needs a Unix socket".into());
        }
        may_share?;
        let ring_bytes = situ_transport::ring_bytes_for(ring_bytes, executor.limits.shared_ring_bytes_max);
        let no_memory = || "SERVER_ERROR out of memory for a connection in shared memory";
        let reserved = reserve_rings(executor, 2 * ring_bytes).ok_or_else(no_memory)?;
        let greeting = situ_transport::offer(ring_bytes).map_err(|_| no_memory())?;
        executor.counters.add(Counter::ConnectionsShared, 1);
        let answered = situ_transport::answer(&self.stream, &greeting);
        if answered.is_ok() {
            self.stream.share(Box::new(greeting.rings), reserved);
        }
        Ok(answered)
    }

    /// Moves the connection into remote memory. The errors are those of [`share_local`](Connection::share_local).
    #[cfg(feature = "verbs")]
    fn share_remote(
        &mut self,
        executor: &Executor<E>,
        offer: &[u8],
        may_share: Result<(), Cow<'static, str>>,
    ) -> Result<std::io::Result<()>, Cow<'static, str>> {
        /// The silence after which the system asks whether the client's machine is still there.
        const KEEP_IDLE: std::time::Duration = std::time::Duration::from_secs(60);
        use rustix::net::sockopt;
        use situ_transport::RdmaDevices;
        use situ_transport::verbs::{NoOffer, Offer, accept, answer};
        let offer = Offer::parse(offer).map_err(|reason| match reason {
            NoOffer::OtherVersion => "CLIENT_ERROR another version of RDMA",
            NoOffer::Malformed => "CLIENT_ERROR bad command line format",
        })?;
        let device = match &executor.limits.rdma {
            RdmaDevices::Off => return Err("SERVER_ERROR RDMA is switched off".into()),
            RdmaDevices::Any => None,
            RdmaDevices::Named(name) => Some(name.as_str()),
        };
        may_share?;
        let most = executor.limits.shared_ring_bytes_max;
        let reserved = reserve_rings(executor, offer.memory_bytes(most))
            .ok_or("SERVER_ERROR out of memory for a connection in remote memory")?;
        let accepted = accept(&self.stream, &offer, device, most).map_err(|error| format!("SERVER_ERROR {error}"))?;
        executor.counters.add(Counter::ConnectionsRemote, 1);
        // A silent device does not find out that the client's machine is gone. Until then its memory is kept.
        let _ = sockopt::set_tcp_keepidle(&self.stream, KEEP_IDLE);
        let _ = sockopt::set_tcp_keepintvl(&self.stream, KEEP_IDLE / 6);
        let answered = answer(&self.stream, &accepted);
        if answered.is_ok() {
            self.stream.share(Box::new(accepted.rings), reserved);
        }
        Ok(answered)
    }

    #[cfg(not(feature = "verbs"))]
    fn share_remote(
        &mut self,
        _: &Executor<E>,
        _: &[u8],
        _: Result<(), Cow<'static, str>>,
    ) -> Result<std::io::Result<()>, Cow<'static, str>> {
        Err("SERVER_ERROR this server is built without RDMA".into())
    }
}

/// Counts the memory of rings as the engine's; `None` if there is no room.
fn reserve_rings<E: Engine>(executor: &Executor<E>, bytes: u64) -> Option<Reserved> {
    let mut reserved = Reserved::default();
    let has_room = executor.engine.cache().is_none_or(|cache| cache.reserve(&mut reserved, bytes as usize));
    has_room.then_some(reserved)
}
