//! The servers of keys: ketama's consistent hashing, as libmemcached computes it.
//!
//! 1. Each server has 160 points on a ring of 32-bit numbers. The MD5 hash of `host-0` to `host-39` gives four points
//!    each. A port other than 11211 is a part of the name: `host:port-0`. A Unix socket has port 0.
//! 2. A key belongs to the server of the first point at or after the first four bytes of its MD5 hash.
//! 3. If a server is left out, its keys go to the servers of the next points. All other keys stay where they are.
//!
//! This is `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED` of libmemcached with equal weights, and `OPT_LIBKETAMA_COMPATIBLE` of
//! PHP. `testdata/ketama.txt` has been made by libmemcached.

use md5::{Digest, Md5};

/// The port that is left out of a server's name on the ring.
pub(crate) const DEFAULT_PORT: u16 = 11211;

const HASHES_PER_SERVER: u32 = 40;
const POINTS_PER_HASH: usize = 4;

/// The points of all servers, in order.
#[derive(Debug)]
pub(crate) struct Ring {
    points: Vec<(u32, u32)>,
    servers: usize,
}

impl Ring {
    /// Makes the ring of servers, each with its host and port.
    pub(crate) fn new<'a>(servers: impl IntoIterator<Item = (&'a str, u16)>) -> Ring {
        let servers: Vec<_> = servers.into_iter().collect();
        let mut points = Vec::with_capacity(servers.len() * 160);
        for (server, (host, port)) in (0..).zip(&servers) {
            for hash in 0..hashes_per_server(servers.len()) {
                let name = match *port {
                    DEFAULT_PORT => format!("{host}-{hash}"),
                    port => format!("{host}:{port}-{hash}"),
                };
                points.extend(numbers(name.as_bytes()).map(|point| (point, server)));
            }
        }
        points.sort_by_key(|(point, _)| *point);
        Ring { points, servers: servers.len() }
    }

    /// Returns the place of a key on the ring. A ring of one server needs no hash.
    pub(crate) fn place(&self, key: &[u8]) -> u32 {
        if self.servers < 2 { 0 } else { numbers(key).next().unwrap_or(0) }
    }

    /// Returns the servers of a place: the one that has its keys, and those that have them while earlier ones are left
    /// out.
    pub(crate) fn servers(&self, place: u32) -> impl Iterator<Item = usize> + '_ {
        let first = self.points.partition_point(|(point, _)| *point < place);
        let (before, from) = self.points.split_at(first);
        let mut seen: Vec<u32> = Vec::new();
        from.iter().chain(before).filter_map(move |(_, server)| {
            if seen.len() == self.servers || seen.contains(server) {
                return None;
            }
            seen.push(*server);
            Some(*server as usize)
        })
    }
}

/// libmemcached computes the share of a server as `float`. With some numbers of servers, the result is just under 40.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "as there")]
fn hashes_per_server(servers: usize) -> u32 {
    let share = 1.0_f32 / servers as f32;
    let hashes = share * (POINTS_PER_HASH as u32 * HASHES_PER_SERVER) as f32 / POINTS_PER_HASH as f32 * servers as f32;
    ((f64::from(hashes) + 0.000_000_000_1) as f32).floor() as u32
}

/// Returns the four numbers of a name's hash.
fn numbers(name: &[u8]) -> impl Iterator<Item = u32> + use<> {
    let hash: [u8; 16] = Md5::digest(name).into();
    (0..POINTS_PER_HASH)
        .map(move |n| u32::from_le_bytes([hash[4 * n], hash[4 * n + 1], hash[4 * n + 2], hash[4 * n + 3]]))
}

#[cfg(test)]
mod tests;
