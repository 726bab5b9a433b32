//! More runs than a device has ways: an order of merges.
//!
//! 1. Runs that do not overlap follow each other in one way. The least number of such *chains* is the number of runs
//!    that overlap at one key: each run goes to a chain that has ended before the run begins.
//! 2. If there are still too many, some ways are merged first, on the device, and their output is a way of a later
//!    pass. The bytes that go through the device are the cost. The least cost is that of a Huffman tree whose arity is
//!    the number of the device's ways: the smallest ways are merged first.
//!
//! Two runs of level 0 and a level below are the usual case: 4 + 1 runs on a device of four ways are one pass over the
//! two smallest runs of level 0, and one over all.
//!
//! Rejected: sub-ranges with fewer runs each. A block would end at each border, where the reference merge has
//! none.
//!
//! The reference: D. Huffman, "A method for the construction of minimum-redundancy codes", 1952, whose last part has
//! trees of any arity.

use situ_compaction::KeySpan;
use std::fmt;

/// The facts about a run by which an order is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunShape {
    /// Stored bytes of its blocks.
    pub bytes: u64,
    /// Its user keys; `None` if it has none.
    pub span: Option<KeySpan>,
}

/// An order of merges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passes {
    /// The runs of each way, in key order.
    pub chains: Vec<Vec<usize>>,
    /// The ways of each pass but the last, ascending. The ways of a pass are taken out of the list, and its output is
    /// put at the end. The last pass merges what is left.
    pub first: Vec<Vec<usize>>,
    /// Bytes that go into the device over all passes.
    pub bytes: u64,
}

impl Passes {
    /// Returns the order of least cost for a device with `ways_max` ways, which are two or more.
    pub fn of(runs: &[RunShape], ways_max: usize) -> Passes {
        let ways_max = ways_max.max(2);
        let all: u64 = runs.iter().map(|run| run.bytes).sum();
        if runs.len() <= ways_max {
            return Passes { chains: (0..runs.len()).map(|run| vec![run]).collect(), first: Vec::new(), bytes: all };
        }
        let chains = chains(runs);
        let mut ways: Vec<u64> = chains.iter().map(|chain| chain.iter().map(|run| runs[*run].bytes).sum()).collect();
        let (mut first, mut bytes) = (Vec::new(), all);
        while ways.len() > ways_max {
            // The first pass takes as many ways as leave full passes behind it.
            let over = (ways.len() - 1) % (ways_max - 1);
            let count = if over == 0 { ways_max } else { over + 1 };
            let mut smallest: Vec<usize> = (0..ways.len()).collect();
            smallest.sort_by_key(|way| ways[*way]);
            smallest.truncate(count);
            smallest.sort_unstable();
            let merged = smallest.iter().rev().map(|way| ways.remove(*way)).sum();
            ways.push(merged);
            bytes += merged;
            first.push(smallest);
        }
        Passes { chains, first, bytes }
    }
}

/// Lines for people: what goes into which pass.
impl fmt::Display for Passes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        for (way, chain) in self.chains.iter().enumerate() {
            writeln!(f, "way {way}: runs {}", names(chain))?;
        }
        for ways in &self.first {
            writeln!(f, "merge ways {} into one more, the last", names(ways))?;
        }
        writeln!(f, "merge all; {} bytes go into the device", self.bytes)
    }
}

/// Puts runs that do not overlap into as few chains as there can be.
fn chains(runs: &[RunShape]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..runs.len()).collect();
    let begin = |run: &usize| runs[*run].span.as_ref().map(|span| &span.begin);
    order.sort_by(|a, b| begin(a).cmp(&begin(b)).then(a.cmp(b)));
    let mut chains: Vec<Vec<usize>> = Vec::new();
    for run in order {
        let follows = |chain: &Vec<usize>| {
            let last = chain.last().and_then(|last| runs[*last].span.as_ref());
            last.zip(runs[run].span.as_ref()).is_none_or(|(last, next)| last.end <= next.begin)
        };
        match chains.iter_mut().find(|chain| follows(chain)) {
            Some(chain) => chain.push(run),
            None => chains.push(vec![run]),
        }
    }
    chains
}
