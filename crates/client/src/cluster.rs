//! All servers of a client, and the way of keys to them.
//!
//! Without failover, a key has one server. With it, a server that cannot be reached is skipped: its keys go to the next
//! server of the ring. A call whose command may have reached a server never goes to another one.

use crate::answer::{Found, Given};
use crate::connection::{Fault, Progress};
use crate::error::{Error, Outcome};
use crate::given;
use crate::options::{Options, TransportKind};
use crate::request::{self, Request};
use crate::ring::Ring;
use crate::server::{Lease, Limit, Server};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The servers of a client.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) servers: Vec<Arc<Server>>,
    ring: Ring,
    failover: bool,
}

impl Cluster {
    pub(crate) fn new(options: &Options) -> Result<Cluster, Error> {
        let addresses = options.check()?;
        let ring = Ring::new(addresses.iter().map(|address| address.on_ring()));
        let made = |address| Arc::new(Server::new(address, options));
        Ok(Cluster { servers: addresses.into_iter().map(made).collect(), ring, failover: options.failover })
    }

    /// Returns the transport of the latest connection to each server.
    pub(crate) fn transports(&self) -> Vec<(Arc<str>, Option<TransportKind>)> {
        self.servers.iter().map(|server| (Arc::clone(&server.name), server.transport())).collect()
    }

    /// Returns the indices of servers that may have a key: one, or with failover all, in the order of asking.
    pub(crate) fn route(&self, key: &[u8]) -> impl Iterator<Item = usize> + '_ {
        self.route_from(self.place(key))
    }

    /// Returns the place of a key on the ring.
    pub(crate) fn place(&self, key: &[u8]) -> u32 {
        self.ring.place(key)
    }

    /// As [`route`](Cluster::route), for all keys of a place.
    pub(crate) fn route_from(&self, place: u32) -> impl Iterator<Item = usize> + '_ {
        let candidates = if self.failover { self.servers.len() } else { 1 };
        self.ring.servers(place).take(candidates)
    }

    /// Returns true if the next server may be asked after this error.
    pub(crate) fn leads_on(&self, error: &Error) -> bool {
        self.failover && error.is_unreachable() && error.outcome() == Outcome::NotDone
    }

    /// Runs the command that `make` makes on the server of its key.
    pub(crate) fn call<'v>(
        &self,
        key: &[u8],
        limit: Limit,
        mut make: impl FnMut() -> Request<'v>,
    ) -> Result<(&Server, Given), Error> {
        let mut route = self.route(key);
        let mut server = &self.servers[route.next().unwrap_or(0)];
        loop {
            match server.call(make(), limit) {
                Ok(given) => return Ok((server, given)),
                Err(error) if self.leads_on(&error) => match route.next() {
                    Some(next) => server = &self.servers[next],
                    None => return Err(error),
                },
                Err(error) => return Err(error),
            }
        }
    }

    /// Asks for many keys, all servers at the same time. The answers are in the order of the keys.
    pub(crate) fn get_many(&self, keys: &[&[u8]], with_cas: bool, limit: Limit) -> Result<Vec<Option<Found>>, Error> {
        let mut results: Vec<Option<Found>> = Vec::new();
        results.resize_with(keys.len(), || None);
        // Keys without an answer, each with the number of servers that could not be reached.
        let mut open: Vec<(usize, usize)> = (0..keys.len()).map(|key| (key, 0)).collect();
        let mut is_fresh = false;
        while !open.is_empty() {
            let mut shares: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
            for (key, skipped) in open.drain(..) {
                let server = self.route(keys[key]).nth(skipped).unwrap_or(0);
                shares.entry(server).or_default().push((key, skipped));
            }
            let mut legs = Vec::new();
            // In the order of servers: two calls that each have a connection that the other one waits for cannot be.
            for (server, share) in shares {
                let server = &self.servers[server];
                match server.lease(limit, is_fresh) {
                    Ok(lease) => legs.push(Leg::new(server, lease, share, keys, with_cas)),
                    Err(error) => self.skip(error, share, &mut open)?,
                }
            }
            // All servers have their requests before the first answer is awaited.
            if legs.len() > 1 {
                legs.iter_mut().for_each(Leg::begin);
            }
            let had_fresh = is_fresh;
            for leg in legs {
                match leg.end(limit, &mut results) {
                    Ok(()) => {}
                    Err(Failed { share, may_repeat: true, .. }) if !had_fresh => {
                        open.extend(share);
                        is_fresh = true;
                    }
                    Err(Failed { share, error, .. }) => self.skip(error, share, &mut open)?,
                }
            }
        }
        Ok(results)
    }

    /// Leaves the keys of a server to the next one, if there is one.
    fn skip(&self, error: Error, share: Vec<(usize, usize)>, open: &mut Vec<(usize, usize)>) -> Result<(), Error> {
        let servers = self.servers.len();
        if !self.leads_on(&error) || share.iter().any(|(_, skipped)| skipped + 1 >= servers) {
            return Err(error);
        }
        open.extend(share.into_iter().map(|(key, skipped)| (key, skipped + 1)));
        Ok(())
    }
}

/// The part of a retrieval that one server answers.
struct Leg<'s> {
    server: &'s Server,
    lease: Lease<'s>,
    /// Keys, each with the number of servers that were skipped.
    share: Vec<(usize, usize)>,
    requests: Vec<Request<'static>>,
    /// The first key of each request, as an index into `share`.
    firsts: Vec<usize>,
    progress: Progress,
    fault: Option<Fault>,
}

struct Failed {
    share: Vec<(usize, usize)>,
    error: Error,
    may_repeat: bool,
}

impl<'s> Leg<'s> {
    fn new(
        server: &'s Server,
        lease: Lease<'s>,
        share: Vec<(usize, usize)>,
        keys: &[&[u8]],
        with_cas: bool,
    ) -> Leg<'s> {
        let firsts = request::lines_of_keys(share.iter().map(|(key, _)| keys[*key]));
        let ends = firsts.iter().skip(1).copied().chain([share.len()]);
        let parts = firsts.iter().zip(ends).map(|(first, end)| &share[*first..end]);
        let requests = parts.map(|part| request::get(part.iter().map(|(key, _)| keys[*key]), with_cas)).collect();
        Leg { server, lease, share, requests, firsts, progress: Progress::default(), fault: None }
    }

    /// Sends what can be sent at once.
    fn begin(&mut self) {
        self.fault = self.lease.advance(&mut self.requests, &mut self.progress, Instant::now()).err();
    }

    fn end(mut self, limit: Limit, results: &mut [Option<Found>]) -> Result<(), Failed> {
        let exchanged = match self.fault.take() {
            Some(fault) => Err(Some(fault)),
            None => self.lease.exchange(&mut self.requests, &mut self.progress, limit),
        };
        let is_used = self.lease.is_used;
        if let Err(fault) = exchanged {
            let may_repeat = is_used && matches!(fault, Some(Fault::Io(_)));
            let error = self.server.failed(fault, false, limit);
            return Err(Failed { share: self.share, error, may_repeat });
        }
        self.lease.give_back();
        for (request, first) in self.requests.iter_mut().zip(&self.firsts) {
            let given = request.answer.take_given().ok_or_else(|| given::foreign(&self.server.name));
            let found = given.and_then(|given| given::finish(&self.server.name, given, given::values));
            match found {
                Ok(found) => {
                    for found in found {
                        let key = self.share.get(first + found.position).map(|(key, _)| *key);
                        let place = key.and_then(|key| results.get_mut(key));
                        *place.expect("the parser counts only keys of the command") = Some(found);
                    }
                }
                Err(error) => return Err(Failed { share: Vec::new(), error, may_repeat: false }),
            }
        }
        Ok(())
    }
}
