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
//! table of the production workload. Nodes are chosen by YCSB's scrambled zipfian distribution instead of the measured
//! one. A node has 4 links on average (power law, at most 10,000 of them), and there are two types of links.
//!
//! A new link and its count are written in one batch, after both were read. An application does the same if its store
//! has no transactions: counts can drift when two threads meet. Its writes are synced if the run's are.

use crate::measure::Kind;
use crate::random::Random;

pub(crate) const NODE_PAYLOAD_BYTES: usize = 128;
pub(crate) const NODE_BYTES: usize = 12 + NODE_PAYLOAD_BYTES;
pub(crate) const LINK_PAYLOAD_BYTES: usize = 12;
pub(crate) const LINK_BYTES: usize = 13 + LINK_PAYLOAD_BYTES;
pub(crate) const LINK_TYPES: u64 = 2;
/// The maximum number of links that a node begins with.
pub(crate) const DEGREE_MAX: f64 = 10_000.0;
/// With this exponent of a power law that begins at 1 and is cut at the maximum, the mean is 4, rounding down included.
pub(crate) const DEGREE_EXPONENT: f64 = 0.79;
/// Links that a list holds at most, as in LinkBench.
pub(crate) const LIST_MAX: u64 = 10_000;

/// The longest payload.
pub(crate) const PAYLOAD_BYTES_MAX: usize = NODE_PAYLOAD_BYTES;
/// The share of operations that add a node.
pub(crate) const NEW_NODES: f64 = 0.025_74;

/// An operation on the graph.
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

pub(crate) use GraphOperation as Op;

/// The paper's mix, in thousandths of a percent.
pub(crate) const MIX: [(Op, u64); 10] = [
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
    pub(crate) fn draw(random: &mut Random) -> Op {
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

    pub(crate) fn kind(self) -> Kind {
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

/// The arguments of a planned operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GraphRequest {
    pub(crate) id: u64,
    pub(crate) other: u64,
    pub(crate) link_type: u64,
    pub(crate) time: u64,
}

pub(crate) fn node_key(key: &mut Vec<u8>, id: u64) {
    key.clear();
    key.push(b'n');
    key.extend_from_slice(&id.to_be_bytes());
}

/// Builds the prefix of the keys of all links of one type of a node; with `c` in front, the key of their count.
pub(crate) fn links_key(key: &mut Vec<u8>, first: u8, id: u64, link_type: u64) {
    key.clear();
    key.push(first);
    key.extend_from_slice(&id.to_be_bytes());
    key.push(link_type as u8);
}

pub(crate) fn link_key(key: &mut Vec<u8>, id: u64, link_type: u64, other: u64) {
    links_key(key, b'l', id, link_type);
    key.extend_from_slice(&other.to_be_bytes());
}

pub(crate) fn node_value(time: u64, payload: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(NODE_BYTES);
    value.extend_from_slice(&time.to_be_bytes());
    value.extend_from_slice(&(time as u32).to_be_bytes());
    value.extend_from_slice(payload);
    value
}

pub(crate) fn link_value(time: u64, payload: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(LINK_BYTES);
    value.push(1);
    value.extend_from_slice(&(time as u32).to_be_bytes());
    value.extend_from_slice(&time.to_be_bytes());
    value.extend_from_slice(payload);
    value
}

pub(crate) fn degree(random: &mut Random) -> u64 {
    let draw = random.unit().max(1e-12);
    draw.powf(-DEGREE_EXPONENT).min(DEGREE_MAX) as u64
}
