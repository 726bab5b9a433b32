//! Lines for the server's log about clients that are hung up on: those of other protocols, and those that fail in TLS.
//!
//! Such a client only sees that its connection ends. The log says why: at once for the first client of each protocol,
//! and then once a minute at most, with the number of clients since the last line. Clients that fail in TLS count as
//! those of one protocol.

use crate::engine::cache::OnTrouble;
use crate::protocol::foreign::Protocol;
use situ_base::lock;
use std::net::SocketAddr;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The least time between two lines about one protocol.
const EVERY: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Default)]
pub(crate) struct Notices {
    tell: OnceLock<OnTrouble>,
    refused: Mutex<[Refused; Protocol::COUNT]>,
    /// Those that failed in TLS.
    failed: Mutex<Refused>,
    /// Those that showed a wrong token.
    strangers: Mutex<Refused>,
}

/// The clients of one protocol.
#[derive(Debug, Clone, Copy, Default)]
struct Refused {
    told: Option<Instant>,
    /// Clients since then.
    untold: u64,
}

impl Refused {
    /// Counts a client. Returns how many a line is to tell of, if one is due.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        if self.told.is_some_and(|told| now.saturating_duration_since(told) < EVERY) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

impl Notices {
    /// Makes `tell` get the lines. Only the first call counts.
    pub(crate) fn begin(&self, tell: OnTrouble) {
        // The second one is dropped, as is said.
        _ = self.tell.set(tell);
    }

    /// Reports that the server has hung up on a client of another protocol; `peer` is `None` for a Unix socket.
    pub(crate) fn refused(&self, protocol: Protocol, peer: Option<SocketAddr>, now: Instant) {
        let Some(tell) = self.tell.get() else { return };
        let Some(clients) = lock(&self.refused)[protocol as usize].count(now) else { return };
        tell(&line(protocol, peer, clients));
    }

    /// Reports that a caller of the administrative channel had a wrong token.
    pub(crate) fn token_refused(&self, peer: Option<SocketAddr>, now: Instant) {
        let Some(tell) = self.tell.get() else { return };
        let Some(callers) = lock(&self.strangers).count(now) else { return };
        tell(&format!("the administrative channel over HTTP refused a caller{}: a wrong token", from(peer, callers)));
    }

    /// Reports that the server has hung up on a client because of an error of TLS.
    pub(crate) fn tls_failed(&self, why: &str, peer: Option<SocketAddr>, now: Instant) {
        let Some(tell) = self.tell.get() else { return };
        let Some(clients) = lock(&self.failed).count(now) else { return };
        tell(&format!("the server hung up on a client{}: no TLS with it: {why}", from(peer, clients)));
    }
}

/// Names the last client, and counts those before it.
fn from(peer: Option<SocketAddr>, clients: u64) -> String {
    let from = peer.map_or("the Unix socket".to_owned(), |peer| peer.to_string());
    match clients {
        0 | 1 => format!(" from {from}"),
        _ => format!(" from {from}, and on {} more since the last such line", clients - 1),
    }
}

fn line(protocol: Protocol, peer: Option<SocketAddr>, clients: u64) -> String {
    let (speaks, cure) = protocol.speaks_and_cure();
    format!(
        "the server hung up on a client{}: it speaks {speaks}, and this server memcached's text protocol; {cure}",
        from(peer, clients)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_protocol_is_told_of_at_once_and_then_once_a_minute_with_the_number() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let notices = Notices::default();
        let kept = Arc::clone(&told);
        notices.begin(Box::new(move |text| lock(&kept).push(text.to_owned())));
        let (begun, peer) = (Instant::now(), "127.0.0.1:9".parse().ok());
        let after = |seconds| begun + Duration::from_secs(seconds);
        (0..59).for_each(|second| notices.refused(Protocol::Binary, peer, after(second)));
        notices.refused(Protocol::Tls, None, after(1));
        notices.refused(Protocol::Binary, peer, after(60));
        notices.refused(Protocol::Binary, peer, after(119));
        let told = lock(&told);
        let [first, tls, second] = &told[..] else { panic!("{told:?}") };
        let binary = "it speaks memcached's binary protocol, and this server memcached's text protocol";
        assert!(first.contains("a client from 127.0.0.1:9: ") && first.contains(binary), "{first}");
        assert!(tls.contains("from the Unix socket: it speaks TLS"), "{tls}");
        assert!(second.contains("and on 58 more since the last such line") && second.contains(binary), "{second}");
    }
}
