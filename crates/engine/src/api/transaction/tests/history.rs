//! Checks histories of concurrent transactions for isolation.
//!
//! A history says what each transaction read and wrote, when it began and ended, and under which sequence number it
//! was committed. Every value is written once, so a read tells which version it saw; sequence numbers order the
//! versions of a key. Then, after Adya ("Weak Consistency", 1999) and Cerone and Gotsman ("Analysing Snapshot
//! Isolation", 2016):
//!
//! 1. A read sees the transaction's own last write, if there is one that was not taken back; otherwise the last write
//!    to the key of a committed transaction: nothing aborted (G1a), nothing intermediate (G1b), nothing nobody wrote.
//! 2. It sees nothing older than what was acknowledged before it (read committed) or its transaction (snapshot) began.
//! 3. Committed transactions are the nodes of a graph. *Order* edges: `ww` to who overwrote a version, `wr` to who read
//!    it, `rt` to who began after an end was acknowledged. *Anti* edges: `rw` to who overwrote what was read; they may
//!    point back in time as far as the reader's snapshot, before which all lie that an order edge comes from. Without a
//!    circle of order edges there is no dirty write and no circular information flow (G0, G1c): read committed. Without
//!    a circle in which no two anti edges follow each other, only those of transactions under a snapshot taken:
//!    snapshot isolation. It has neither read skew nor lost updates, and write skew.
//! 4. What was read for update nobody overwrites before the reader commits, under either isolation: its `rw` edges are
//!    *commit* edges, which are order edges but for saying nothing of the snapshot of who they point to.
//! 5. The first committer wins: from a snapshot to the commit, nobody else has written the keys that were written or
//!    read for update. (A blind write may show no circle.)
//!
//! A read that finds nothing does not tell which deletion it saw. Under a snapshot it is the one that the sequence
//! numbers say; under read committed it makes edges only if there is one it can have seen, or if it was for update. A
//! key that a transaction relies on, that was not there at its snapshot and is not there, again, when it commits, is
//! unchanged: the read counts as one of the last deletion, and what comes from that is a commit edge.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// What stands under a key: 0 for nothing, or a value that is written once in a history; with [`DELETED`], its
/// deletion.
pub(super) type Version = u64;
/// Makes a version a deletion, which reads as 0.
pub(super) const DELETED: Version = 1 << 63;
pub(super) type Key = u8;
/// A moment of the history: a count of its events.
pub(super) type Tick = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    ReadCommitted,
    /// The snapshot's sequence number.
    Snapshot(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Read { key: Key, found: Version, for_update: bool, from: Tick },
    Write { key: Key, version: Version },
    Savepoint,
    RollbackToSavepoint,
    PopSavepoint,
}

#[derive(Debug, Clone)]
pub(super) struct Recorded {
    pub(super) level: Level,
    pub(super) steps: Vec<Step>,
    pub(super) begun: Tick,
    /// When its caller knew of the outcome.
    pub(super) ended: Tick,
    /// Its sequence number, if it was committed; of one that has written nothing, that of the last write before it.
    pub(super) committed: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anomaly {
    /// A value that nobody wrote.
    UnknownRead,
    AbortedRead,
    IntermediateRead,
    /// A transaction did not see its own write.
    OwnWriteMissed,
    /// A read saw something older than what was known when it began.
    StaleRead,
    /// A circle of order edges: dirty writes, circular information flow, or what was read for update was overwritten.
    OrderCircle,
    /// Read skew, or a lost update.
    SnapshotCircle,
    /// The second committer won.
    LostRace,
}

#[derive(Debug)]
pub(super) struct Violation {
    pub(super) anomaly: Anomaly,
    text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.anomaly, self.text)
    }
}

fn violation<T>(anomaly: Anomaly, text: String) -> Result<T, Violation> {
    Err(Violation { anomaly, text })
}

/// A read of what others have written.
#[derive(Debug, Clone, Copy)]
struct OuterRead {
    key: Key,
    found: Version,
    for_update: bool,
    from: Tick,
}

/// What a transaction comes down to.
struct Summary {
    reads: Vec<OuterRead>,
    /// Its last write to each key.
    writes: BTreeMap<Key, Version>,
    /// Rows that it relies on: written or read for update, and not taken back.
    relied_on: BTreeSet<Key>,
}

fn summarize(number: usize, recorded: &Recorded) -> Result<Summary, Violation> {
    let mut summary = Summary { reads: Vec::new(), writes: BTreeMap::new(), relied_on: BTreeSet::new() };
    let mut savepoints = Vec::new();
    for step in &recorded.steps {
        match *step {
            Step::Write { key, version } => {
                summary.writes.insert(key, version);
                summary.relied_on.insert(key);
            }
            Step::Read { key, found, for_update, from } => match summary.writes.get(&key) {
                Some(own) if shown(*own) != found => {
                    let text = format!("transaction {number} wrote {own} to key {key} and read {found}");
                    return violation(Anomaly::OwnWriteMissed, text);
                }
                Some(_) => {}
                None => {
                    summary.reads.push(OuterRead { key, found, for_update, from });
                    if for_update {
                        summary.relied_on.insert(key);
                    }
                }
            },
            Step::Savepoint => {
                savepoints.push((summary.writes.clone(), summary.relied_on.clone(), summary.reads.len()));
            }
            Step::PopSavepoint => {
                savepoints.pop();
            }
            Step::RollbackToSavepoint => {
                let (writes, relied_on, reads) = savepoints.pop().expect("there is a savepoint");
                (summary.writes, summary.relied_on) = (writes, relied_on);
                // What was read for update since has been given up.
                let relied_on = &summary.relied_on;
                summary.reads[reads..].iter_mut().for_each(|read| read.for_update &= relied_on.contains(&read.key));
            }
        }
    }
    Ok(summary)
}

/// A version of a key: who wrote it, and what.
#[derive(Debug, Clone, Copy)]
struct Written {
    sequence: u64,
    /// None: nobody, it was there before.
    by: Option<usize>,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EdgeKind {
    Order,
    Commit,
    Anti,
}

struct Edge {
    to: usize,
    kind: EdgeKind,
    why: String,
}

/// Finds what breaks isolation in a history, if anything does.
pub(super) fn check(history: &[Recorded]) -> Result<(), Violation> {
    let summaries: Vec<Summary> =
        history.iter().enumerate().map(|(n, recorded)| summarize(n, recorded)).collect::<Result<_, _>>()?;
    let versions = versions(history, &summaries);
    check_reads(history, &summaries, &versions)?;
    let graph = graph(history, &summaries, &versions);
    if let Some(circle) = find_circle(&graph, false) {
        return violation(Anomaly::OrderCircle, circle);
    }
    if let Some(circle) = find_circle(&graph, true) {
        return violation(Anomaly::SnapshotCircle, circle);
    }
    check_races(history, &summaries, &versions)
}

fn versions(history: &[Recorded], summaries: &[Summary]) -> BTreeMap<Key, Vec<Written>> {
    let mut versions: BTreeMap<Key, Vec<Written>> = BTreeMap::new();
    let first = Written { sequence: 0, by: None, version: 0 };
    for (number, (recorded, summary)) in history.iter().zip(summaries).enumerate() {
        for read in &summary.reads {
            versions.entry(read.key).or_insert_with(|| vec![first]);
        }
        for (key, version) in &summary.writes {
            let order = versions.entry(*key).or_insert_with(|| vec![first]);
            if let Some(sequence) = recorded.committed {
                order.push(Written { sequence, by: Some(number), version: *version });
            }
        }
    }
    versions.values_mut().for_each(|order| order.sort_by_key(|written| written.sequence));
    versions
}

/// What a read of a version finds.
fn shown(version: Version) -> Version {
    if version & DELETED == 0 { version } else { 0 }
}

/// Where in the order of a key's versions a read can have found itself, first to last.
fn places(order: &[Written], found: Version) -> Vec<usize> {
    (0..order.len()).filter(|at| shown(order[*at].version) == found).collect()
}

/// Which of several deletions a read has seen, as far as that can be told.
fn place(number: usize, recorded: &Recorded, is_relied_on: bool, order: &[Written], found: Version) -> Option<usize> {
    let places = places(order, found);
    let last_at = |sequence: u64| {
        let is_before = |at: &usize| order[*at].sequence <= sequence && order[*at].by != Some(number);
        places.iter().copied().filter(is_before).max()
    };
    match (recorded.level, recorded.committed) {
        _ if places.len() == 1 => places.first().copied(),
        // If it is not the last version before the commit, it was changed: then it is for the graph to say.
        (_, Some(committed)) if is_relied_on => last_at(committed),
        (Level::Snapshot(snapshot), _) => last_at(snapshot),
        (Level::ReadCommitted, _) => None,
    }
}

fn check_reads(
    history: &[Recorded],
    summaries: &[Summary],
    versions: &BTreeMap<Key, Vec<Written>>,
) -> Result<(), Violation> {
    let writers: HashMap<Version, usize> = (history.iter().enumerate())
        .flat_map(|(number, recorded)| {
            recorded.steps.iter().filter_map(move |step| match step {
                Step::Write { version, .. } => Some((*version, number)),
                _ => None,
            })
        })
        .collect();
    for (number, (recorded, summary)) in history.iter().zip(summaries).enumerate() {
        for read in &summary.reads {
            let text = format!("transaction {number} read {} of key {}", read.found, read.key);
            let order = &versions[&read.key];
            let Some(at) = places(order, read.found).last().copied() else {
                return match writers.get(&read.found) {
                    None => violation(Anomaly::UnknownRead, text),
                    Some(writer) if history[*writer].committed.is_none() => {
                        violation(Anomaly::AbortedRead, format!("{text}, of transaction {writer}"))
                    }
                    Some(writer) => violation(Anomaly::IntermediateRead, format!("{text}, of transaction {writer}")),
                };
            };
            let begun = match recorded.level {
                Level::ReadCommitted => read.from,
                Level::Snapshot(_) => recorded.begun,
            };
            let known = |written: &&Written| written.by.is_some_and(|by| history[by].ended < begun);
            if let Some(newer) = order[at + 1..].iter().find(known) {
                return violation(Anomaly::StaleRead, format!("{text}, though {} was acknowledged", newer.version));
            }
        }
    }
    Ok(())
}

/// What an edge from a version to who read or overwrote it says of that one's snapshot: nothing if the version is a
/// deletion behind it, of what was not there anyway.
fn kind_into(recorded: &Recorded, order: &[Written], from: usize) -> EdgeKind {
    let Level::Snapshot(snapshot) = recorded.level else { return EdgeKind::Order };
    let at_snapshot = order.iter().rev().find(|written| written.sequence <= snapshot);
    let is_nothing = |written: &Written| shown(written.version) == 0;
    let is_unchanged = is_nothing(&order[from]) && at_snapshot.is_some_and(is_nothing);
    if order[from].sequence > snapshot && is_unchanged { EdgeKind::Commit } else { EdgeKind::Order }
}

fn graph(history: &[Recorded], summaries: &[Summary], versions: &BTreeMap<Key, Vec<Written>>) -> Vec<Vec<Edge>> {
    let mut graph: Vec<Vec<Edge>> = history.iter().map(|_| Vec::new()).collect();
    let mut add = |from: usize, to: usize, kind: EdgeKind, why: String| {
        if from != to {
            graph[from].push(Edge { to, kind, why });
        }
    };
    for (key, order) in versions {
        for at in 1..order.len() {
            if let (Some(from), Some(to)) = (order[at - 1].by, order[at].by) {
                add(from, to, kind_into(&history[to], order, at - 1), format!("ww on key {key}"));
            }
        }
    }
    for (number, (recorded, summary)) in history.iter().zip(summaries).enumerate() {
        if recorded.committed.is_none() {
            continue;
        }
        for read in &summary.reads {
            let order = &versions[&read.key];
            let is_relied_on = summary.relied_on.contains(&read.key);
            let Some(at) = place(number, recorded, is_relied_on, order, read.found) else { continue };
            if let Some(writer) = order[at].by {
                add(writer, number, kind_into(recorded, order, at), format!("wr on key {}", read.key));
            }
            let kind = match recorded.level {
                _ if read.for_update => EdgeKind::Commit,
                Level::Snapshot(_) => EdgeKind::Anti,
                Level::ReadCommitted => continue,
            };
            if let Some(next) = order[at + 1..].iter().find_map(|written| written.by.filter(|by| *by != number)) {
                add(number, next, kind, format!("rw on key {}", read.key));
            }
        }
        for (later, other) in history.iter().enumerate() {
            if other.committed.is_some() && recorded.ended < other.begun {
                add(number, later, EdgeKind::Order, "rt".to_owned());
            }
        }
    }
    graph
}

/// A circle of order and commit edges; or, `with_anti`, one in which each anti edge follows an order edge.
fn find_circle(graph: &[Vec<Edge>], with_anti: bool) -> Option<String> {
    // A place is a transaction and whether it was reached by anything but an order edge. Depth first, with the way
    // there.
    let places = 2 * graph.len();
    let mut state = vec![0u8; places];
    for start in 0..places {
        let mut way: Vec<(usize, usize)> = vec![(start, 0)];
        if state[start] != 0 {
            continue;
        }
        state[start] = 1;
        while let Some((at, next)) = way.last_mut() {
            let (from, by_order) = (*at / 2, *at % 2 == 0);
            let Some(edge) = graph[from].get(*next) else {
                state[*at] = 2;
                way.pop();
                continue;
            };
            *next += 1;
            if edge.kind == EdgeKind::Anti && !(by_order && with_anti) {
                continue;
            }
            let to = 2 * edge.to + usize::from(edge.kind != EdgeKind::Order);
            match state[to] {
                0 => {
                    state[to] = 1;
                    way.push((to, 0));
                }
                1 => {
                    let first = way.iter().position(|(at, _)| *at == to)?;
                    let step = |(at, next): &(usize, usize)| format!("{} -{}-> ", at / 2, graph[at / 2][next - 1].why);
                    return Some(way[first..].iter().map(step).collect::<String>() + &edge.to.to_string());
                }
                _ => {}
            }
        }
    }
    None
}

fn check_races(
    history: &[Recorded],
    summaries: &[Summary],
    versions: &BTreeMap<Key, Vec<Written>>,
) -> Result<(), Violation> {
    for (number, (recorded, summary)) in history.iter().zip(summaries).enumerate() {
        let (Level::Snapshot(snapshot), Some(committed)) = (recorded.level, recorded.committed) else { continue };
        for key in &summary.relied_on {
            let between = |written: &&Written| {
                snapshot < written.sequence && written.sequence <= committed && written.by != Some(number)
            };
            let Some(order) = versions.get(key) else { continue };
            let is_before = |written: &Written, sequence| written.sequence <= sequence && written.by != Some(number);
            let last = |sequence: u64| order.iter().rev().find(|written| is_before(written, sequence));
            let is_nothing = |written: Option<&Written>| written.is_some_and(|written| shown(written.version) == 0);
            if is_nothing(last(snapshot)) && is_nothing(last(committed)) {
                continue;
            }
            if let Some(other) = order.iter().find(between) {
                let text = format!(
                    "transaction {number} relied on key {key} from {snapshot} to {committed}, and {} was written at {}",
                    other.version, other.sequence
                );
                return violation(Anomaly::LostRace, text);
            }
        }
    }
    Ok(())
}
