//! The nodes of a store that is served: what the log, `/metrics` and `/healthz` say of them.
//!
//! 1. [`NodeWatch`] is made before the store is opened. Each client tells it of a lost and of a returned node, and it
//!    tells the log.
//! 2. The clients are handed over when they are connected. Metrics and health ask them.
//! 3. When the server stops, the clients wait for a lost node for a few seconds only. Else the end would take as long
//!    as their patience.
//!
//! **Threads.** Any. A client that ends is no node of the store any more, so only weak references are kept.

use situ_base::lock;
use situ_node::{Class, NodeAddress, NodeClient, NodeState, OnState};
use situ_server::{Beside, Metric, MetricKind};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Takes a line of the log.
type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// See the module.
pub(crate) struct NodeWatch {
    tell: Tell,
    /// The time that a change waits for a lost node.
    pub(crate) patience: Duration,
    nodes: Mutex<Vec<Watched>>,
}

struct Watched {
    client: Weak<NodeClient>,
    /// True if the files of the store lie there. A store needs no other node: the processor does its compactions.
    is_home: bool,
}

impl NodeWatch {
    pub(crate) fn new(patience: Duration, tell: impl Fn(&str) + Send + Sync + 'static) -> Arc<NodeWatch> {
        Arc::new(NodeWatch { tell: Arc::new(tell), patience, nodes: Mutex::default() })
    }

    /// Returns the callback for a client.
    pub(crate) fn on_state(&self) -> OnState {
        let tell = Arc::clone(&self.tell);
        Arc::new(move |address: &NodeAddress, state: &NodeState| tell(&format!("node {} {state}", address.place)))
    }

    pub(crate) fn add(&self, client: Weak<NodeClient>, is_home: bool) {
        lock(&self.nodes).push(Watched { client, is_home });
    }

    /// Shortens the waits for lost nodes to `patience`, because the store is about to be closed.
    pub(crate) fn hurry(&self, patience: Duration) {
        self.clients().iter().for_each(|(client, _)| client.hurry(patience));
    }

    fn clients(&self) -> Vec<(Arc<NodeClient>, bool)> {
        let nodes = lock(&self.nodes);
        nodes.iter().filter_map(|node| Some((node.client.upgrade()?, node.is_home))).collect()
    }
}

/// Returns the fault of the node that has the store's files, if there is one.
fn trouble(client: &NodeClient) -> Option<String> {
    if let Some(why) = client.fenced() {
        return Some(why);
    }
    let (since, why) = client.lost()?;
    Some(format!(
        "node {} has been lost for {:.1} s: {why}. Reads of files there fail, writes wait; both go on when the node is back",
        client.address().place,
        since.as_secs_f64()
    ))
}

impl Beside for NodeWatch {
    fn trouble(&self) -> Option<String> {
        self.clients().iter().filter(|(_, is_home)| *is_home).find_map(|(client, _)| trouble(client))
    }

    fn metrics(&self, out: &mut dyn FnMut(Metric<'_>)) {
        use MetricKind::{Counter, Gauge};
        let clients = self.clients();
        let names: Vec<String> = clients.iter().map(|(client, _)| client.address().to_string()).collect();
        type Of = fn(&NodeClient) -> f64;
        const SAMPLES: [(&str, &str, MetricKind, Of); 4] = [
            ("situ_node_connected", "1 while there is a connection to the node.", Gauge, |client| {
                f64::from(u8::from(client.lost().is_none()))
            }),
            ("situ_node_fenced", "1 if the node lets another process write to the store.", Gauge, |client| {
                f64::from(u8::from(client.fenced().is_some()))
            }),
            ("situ_node_lost_seconds", "Seconds since the node was lost; 0 while it is connected.", Gauge, |client| {
                client.lost().map_or(0.0, |(since, _)| since.as_secs_f64())
            }),
            ("situ_node_reconnects_total", "Connections made after the first one.", Counter, |client| {
                client.connections().saturating_sub(1) as f64
            }),
        ];
        for (name, help, kind, of) in SAMPLES {
            for ((client, _), node) in clients.iter().zip(&names) {
                out(Metric { name, help, kind, labels: &[("node", node)], value: of(client) });
            }
        }
        for ((client, _), node) in clients.iter().zip(&names) {
            wire_metrics(client, node, out);
        }
    }
}

fn wire_metrics(client: &NodeClient, node: &str, out: &mut dyn FnMut(Metric<'_>)) {
    let traffic = client.traffic();
    for class in Class::ALL {
        for (direction, bytes) in [("sent", traffic.sent(class)), ("received", traffic.received(class))] {
            out(Metric {
                name: "situ_node_wire_bytes_total",
                help: "Bytes of frames to and from the node, by purpose.",
                kind: MetricKind::Counter,
                labels: &[("node", node), ("class", class.name()), ("direction", direction)],
                value: bytes as f64,
            });
        }
    }
}
