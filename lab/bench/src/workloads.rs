//! The workloads by name.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A workload, or a step of maintenance between workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum Workload {
    /// Put keys in order into an empty store.
    FillSeq,
    /// Put random keys into an empty store.
    FillRandom,
    /// Put random keys into an empty store, and sync each put.
    FillSync,
    /// Put random keys into the store as it is.
    Overwrite,
    /// Get random keys.
    ReadRandom,
    /// Get keys that were never written.
    ReadMissing,
    /// Read all entries in key order.
    ReadSeq,
    /// Read all entries against key order.
    ReadReverse,
    /// Seek to random keys and read the next entries.
    SeekRandom,
    /// Get random keys while one more thread puts random keys.
    ReadWhileWriting,
    /// Delete random keys.
    DeleteRandom,
    /// Get and put random keys.
    Mixed,
    /// Insert YCSB's records into an empty store.
    #[serde(rename = "ycsb-load")]
    #[value(name = "ycsb-load")]
    YcsbLoad,
    /// YCSB A: half reads, half updates.
    #[serde(rename = "ycsb-a")]
    #[value(name = "ycsb-a")]
    YcsbA,
    /// YCSB B: 95% reads, 5% updates.
    #[serde(rename = "ycsb-b")]
    #[value(name = "ycsb-b")]
    YcsbB,
    /// YCSB C: reads only.
    #[serde(rename = "ycsb-c")]
    #[value(name = "ycsb-c")]
    YcsbC,
    /// YCSB D: 95% reads of the latest records, 5% inserts.
    #[serde(rename = "ycsb-d")]
    #[value(name = "ycsb-d")]
    YcsbD,
    /// YCSB E: 95% short scans, 5% inserts.
    #[serde(rename = "ycsb-e")]
    #[value(name = "ycsb-e")]
    YcsbE,
    /// YCSB F: half reads, half read-modify-writes.
    #[serde(rename = "ycsb-f")]
    #[value(name = "ycsb-f")]
    YcsbF,
    /// Reads and updates of YCSB's records, with the share of reads that --read-percent says.
    #[serde(rename = "ycsb-mixed")]
    #[value(name = "ycsb-mixed")]
    YcsbMixed,
    /// Load a social graph into an empty store: a node and its links at a time.
    #[serde(rename = "linkbench-load")]
    #[value(name = "linkbench-load")]
    LinkLoad,
    /// LinkBench's mix of operations on the graph.
    #[serde(rename = "linkbench")]
    #[value(name = "linkbench")]
    LinkBench,
    /// Issue the requests of a trace again (--replay).
    Replay,
    /// Maintenance: write the memtables to tables.
    Flush,
    /// Maintenance: compact everything.
    Compact,
    /// Maintenance: wait until flushes and compactions are done.
    Wait,
    /// Maintenance: close the store and open it again, which empties its caches.
    Reopen,
    /// Send no requests, and measure what the open store costs.
    Idle,
}
