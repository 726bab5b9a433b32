//! Decisions of placement, as DISKS keeps them.

use std::fmt;

/// A decision of placement: which levels' new tables go to the fast disk from then on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlacementDecision {
    /// The time of the decision, in seconds since 1970.
    pub unix_s: u64,
    /// New tables of levels below this one went to the fast disk before.
    pub before: usize,
    /// And do from then on.
    pub after: usize,
    /// The reason for the decision.
    pub reason: String,
}

impl fmt::Display for PlacementDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlacementDecision { unix_s, before, after, reason } = self;
        write!(f, "{unix_s} {before} {after} {reason}")
    }
}

impl PlacementDecision {
    /// Returns a decision.
    pub fn new(unix_s: u64, before: usize, after: usize, reason: String) -> PlacementDecision {
        PlacementDecision { unix_s, before, after, reason }
    }

    /// Parses the text that [`Display`](fmt::Display) writes.
    pub(crate) fn parse(text: &str) -> Option<PlacementDecision> {
        let mut parts = text.splitn(4, ' ');
        let unix_s = parts.next()?.parse().ok()?;
        let before = parts.next()?.parse().ok()?;
        let after = parts.next()?.parse().ok()?;
        Some(PlacementDecision { unix_s, before, after, reason: parts.next()?.to_owned() })
    }
}
