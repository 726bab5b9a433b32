//! A social graph in the manner of LinkBench (Armstrong et al., "LinkBench: a Database Benchmark Based on the Facebook
//! Social Graph", SIGMOD 2013), for a store that knows keys only.
//!
//! | object | key | value |
//! |---|---|---|
//! | node | `n`, id | version, time, payload: 140 bytes |
//! | link | `l`, id1, type, id2 | visibility, version, time, payload: 25 bytes |
//! | count of links | `c`, id1, type | 8 bytes |
//!
//! Numbers are big-endian, so that the links of a node lie side by side. The mix of operations is that of the paper's
//! table of the production workload. Nodes are chosen by YCSB's scrambled zipfian distribution instead of the measured one,
//! a node has 4 links on average (power law, at most 10,000 of them), and there are two types of links.
//!
//! A new link and its count are written in one batch, after reading both: what an application does whose store has no
//! transactions; counts can drift when two threads meet. Its writes are synced if the run's are.

use crate::measure::Kind;
use crate::random::Random;
use crate::store::{Change, Store, StoreFailure};
use crate::workload::{Action, Request, Worker};
use std::ops::ControlFlow;

const NODE_PAYLOAD_BYTES: usize = 128;
const NODE_BYTES: usize = 12 + NODE_PAYLOAD_BYTES;
const LINK_PAYLOAD_BYTES: usize = 12;
const LINK_BYTES: usize = 13 + LINK_PAYLOAD_BYTES;
const LINK_TYPES: u64 = 2;
/// A node has at most so many links to begin with.
const DEGREE_MAX: f64 = 10_000.0;
/// With this exponent of a power law that begins at 1 and is cut at the maximum, the mean is 4, rounding down included.
const DEGREE_EXPONENT: f64 = 0.79;
/// Links that a list holds at most, as in LinkBench.
const LIST_MAX: u64 = 10_000;

/// The longest payload.
pub(crate) const PAYLOAD_BYTES_MAX: usize = NODE_PAYLOAD_BYTES;
/// The share of operations that add a node.
pub(crate) const NEW_NODES: f64 = 0.025_74;

/// What is asked of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GraphOperation {
    /// A node and all its links, for loading.
    LoadNode,
    GetNode,
    AddNode,
    UpdateNode,
    DeleteNode,
    GetLink,
    AddLink,
    UpdateLink,
    DeleteLink,
    CountLinks,
    ListLinks,
}

use GraphOperation as Op;

/// The paper's mix, in thousandths of a percent.
const MIX: [(Op, u64); 10] = [
    (Op::ListLinks, 50_713),
    (Op::GetNode, 12_912),
    (Op::AddLink, 8_989),
    (Op::UpdateLink, 8_010),
    (Op::UpdateNode, 7_366),
    (Op::CountLinks, 4_886),
    (Op::DeleteLink, 2_988),
    (Op::AddNode, 2_574),
    (Op::DeleteNode, 1_036),
    (Op::GetLink, 526),
];

impl Op {
    fn draw(random: &mut Random) -> Op {
        let total = MIX.iter().map(|(_, share)| share).sum();
        let mut at = random.below(total);
        for (operation, share) in MIX {
            if at < share {
                return operation;
            }
            at -= share;
        }
        Op::ListLinks
    }

    fn kind(self) -> Kind {
        match self {
            Op::LoadNode | Op::AddNode => Kind::Insert,
            Op::GetNode | Op::GetLink | Op::CountLinks => Kind::Read,
            Op::UpdateNode => Kind::Update,
            Op::DeleteNode => Kind::Delete,
            Op::AddLink | Op::UpdateLink | Op::DeleteLink => Kind::ReadModifyWrite,
            Op::ListLinks => Kind::Scan,
        }
    }
}

/// What a planned operation is about.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GraphRequest {
    id: u64,
    other: u64,
    link_type: u64,
    time: u64,
}

fn node_key(key: &mut Vec<u8>, id: u64) {
    key.clear();
    key.push(b'n');
    key.extend_from_slice(&id.to_be_bytes());
}

/// What the keys of all links of one type of a node begin with; with `c` in front, the key of their count.
fn links_key(key: &mut Vec<u8>, first: u8, id: u64, link_type: u64) {
    key.clear();
    key.push(first);
    key.extend_from_slice(&id.to_be_bytes());
    key.push(link_type as u8);
}

fn link_key(key: &mut Vec<u8>, id: u64, link_type: u64, other: u64) {
    links_key(key, b'l', id, link_type);
    key.extend_from_slice(&other.to_be_bytes());
}

fn node_value(time: u64, payload: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(NODE_BYTES);
    value.extend_from_slice(&time.to_be_bytes());
    value.extend_from_slice(&(time as u32).to_be_bytes());
    value.extend_from_slice(payload);
    value
}

fn link_value(time: u64, payload: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(LINK_BYTES);
    value.push(1);
    value.extend_from_slice(&(time as u32).to_be_bytes());
    value.extend_from_slice(&time.to_be_bytes());
    value.extend_from_slice(payload);
    value
}

fn degree(random: &mut Random) -> u64 {
    let draw = random.unit().max(1e-12);
    draw.powf(-DEGREE_EXPONENT).min(DEGREE_MAX) as u64
}

impl Worker<'_> {
    pub(crate) fn plan_graph_load(&mut self) -> Request {
        let id = self.dataset.inserted.take();
        self.graph = GraphRequest { id, other: 0, link_type: 0, time: id };
        Request { kind: Kind::Insert, action: Action::Graph(Op::LoadNode), inserts: Some(id) }
    }

    pub(crate) fn plan_graph(&mut self) -> Request {
        let operation = Op::draw(&mut self.random);
        let id = match operation {
            Op::AddNode => self.dataset.inserted.take(),
            _ => self.choose_record(),
        };
        let nodes = self.dataset.inserted.count().max(1);
        let other = self.random.below(nodes);
        let link_type = self.random.below(LINK_TYPES);
        self.graph = GraphRequest { id, other, link_type, time: self.issued() };
        let inserts = (operation == Op::AddNode).then_some(id);
        Request { kind: operation.kind(), action: Action::Graph(operation), inserts }
    }

    pub(crate) fn perform_graph(&mut self, store: &dyn Store, operation: Op) -> Result<u64, StoreFailure> {
        let GraphRequest { id, other, link_type, time } = self.graph;
        match operation {
            Op::LoadNode => self.load_node(store)?,
            Op::GetNode => {
                node_key(&mut self.key, id);
                self.get_counted(store)?;
            }
            Op::AddNode | Op::UpdateNode => {
                node_key(&mut self.key, id);
                let payload = self.values.next(NODE_PAYLOAD_BYTES);
                let value = node_value(time, payload);
                store.put(&self.key, &value, self.sync())?;
                self.tally.user_bytes_written += (self.key.len() + value.len()) as u64;
            }
            Op::DeleteNode => {
                node_key(&mut self.key, id);
                store.delete(&self.key, self.sync())?;
                self.tally.user_bytes_written += self.key.len() as u64;
            }
            Op::GetLink => {
                link_key(&mut self.key, id, link_type, other);
                self.get_counted(store)?;
            }
            Op::CountLinks => {
                links_key(&mut self.key, b'c', id, link_type);
                self.get_counted(store)?;
            }
            Op::AddLink | Op::UpdateLink | Op::DeleteLink => self.change_link(store, operation == Op::DeleteLink)?,
            Op::ListLinks => {
                links_key(&mut self.key, b'l', id, link_type);
                let prefix = &self.key;
                let (mut bytes, mut count) = (0, 0);
                store.scan(prefix, LIST_MAX, &mut |key, value| {
                    if !key.starts_with(prefix) {
                        return ControlFlow::Break(());
                    }
                    bytes += (key.len() + value.len()) as u64;
                    count += 1;
                    ControlFlow::Continue(())
                })?;
                self.tally.user_bytes_read += bytes;
                self.tally.found += count;
            }
        }
        Ok(1)
    }

    fn get_counted(&mut self, store: &dyn Store) -> Result<bool, StoreFailure> {
        let found = store.get(&self.key, &mut self.found)?;
        self.count_read(found.then_some(self.found.len()));
        Ok(found)
    }

    fn load_node(&mut self, store: &dyn Store) -> Result<(), StoreFailure> {
        let GraphRequest { id, time, .. } = self.graph;
        let payload = self.values.next(NODE_PAYLOAD_BYTES);
        let mut entries = Vec::new();
        node_key(&mut self.key, id);
        entries.push((self.key.clone(), node_value(time, payload)));
        let nodes = self.nodes_loaded();
        let degree = degree(&mut self.random);
        for link_type in 0..LINK_TYPES {
            // Shared out among the types, the first of which gets what is over.
            let links = (degree + LINK_TYPES - 1 - link_type) / LINK_TYPES;
            let mut others: Vec<u64> = (0..links).map(|_| self.random.below(nodes)).collect();
            others.sort_unstable();
            others.dedup();
            if others.is_empty() {
                continue;
            }
            for other in &others {
                link_key(&mut self.key, id, link_type, *other);
                let payload = self.values.next(LINK_PAYLOAD_BYTES);
                entries.push((self.key.clone(), link_value(time, payload)));
            }
            links_key(&mut self.key, b'c', id, link_type);
            entries.push((self.key.clone(), (others.len() as u64).to_be_bytes().to_vec()));
        }
        let changes: Vec<Change<'_>> = entries.iter().map(|(key, value)| Change::Put(key, value)).collect();
        store.batch(&changes, self.sync())?;
        let bytes: usize = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
        self.tally.user_bytes_written += bytes as u64;
        self.tally.inserted_bytes += bytes as u64;
        Ok(())
    }

    fn change_link(&mut self, store: &dyn Store, delete: bool) -> Result<(), StoreFailure> {
        let GraphRequest { id, other, link_type, time } = self.graph;
        link_key(&mut self.key, id, link_type, other);
        let exists = self.get_counted(store)?;
        if delete && !exists {
            return Ok(());
        }
        let link = self.key.clone();
        let value = link_value(time, self.values.next(LINK_PAYLOAD_BYTES));
        let mut count = None;
        if delete || !exists {
            links_key(&mut self.key, b'c', id, link_type);
            let had = self.get_counted(store)?;
            let before = if had { self.found[..].try_into().map_or(0, u64::from_be_bytes) } else { 0 };
            let after = if delete { before.saturating_sub(1) } else { before + 1 };
            count = Some(after.to_be_bytes());
        }
        let mut changes = vec![if delete { Change::Delete(&link) } else { Change::Put(&link, &value) }];
        if let Some(count) = &count {
            changes.push(Change::Put(&self.key, count));
        }
        store.batch(&changes, self.sync())?;
        let bytes = changes.iter().map(|change| match change {
            Change::Put(key, value) => key.len() + value.len(),
            Change::Delete(key) => key.len(),
        });
        self.tally.user_bytes_written += bytes.sum::<usize>() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
