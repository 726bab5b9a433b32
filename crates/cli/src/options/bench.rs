//! The options of `bench`.

use super::engine::EngineName;
use super::node::{NodeAccess, NodeKeys};
use clap::{Args, Subcommand};
use situ_bench::report::ReportOptions;
use situ_bench::{BenchOptions, CalibrateOptions, HashSettings, SituSettings};
use std::path::PathBuf;

/// Measure the store with the workloads of db_bench and YCSB, and with a social graph in the manner of LinkBench.
///
/// The benchmark makes a store of its own in --directory. It removes the store at the end, or when Ctrl-C ends it; with
/// --keep the store stays. Counts accept k, m and g (powers of 1000), sizes accept K, M and G (powers of 1024).
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:\n  situ bench --keys 100k\n  situ bench --workloads ycsb-load,ycsb-a --threads 4 \
                        --output a.json\n  situ bench report a.json b.json\n  situ bench calibrate")]
pub(crate) struct BenchCommand {
    #[command(subcommand)]
    pub(crate) task: Option<BenchTask>,
    #[command(flatten)]
    pub(crate) workload: BenchOptions,
    /// Engine of the store
    #[arg(long, value_enum, value_name = "NAME", default_value = "lsm")]
    pub(crate) engine: EngineName,
    #[command(flatten)]
    pub(crate) store: SituSettings,
    #[command(flatten)]
    pub(crate) hash: HashSettings,
    #[command(flatten)]
    pub(crate) node: NodeAccess,
    /// File that gets the result as JSON, for `situ bench report` [default: none]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchTask {
    /// Make one page of HTML from results
    Report(ReportOptions),
    Calibrate(CalibrateCommand),
}

/// Measure when pipelined compactions pay on this machine, and write rules for it.
///
/// The command makes tables with values of several lengths, compacts them linear and pipelined, and measures bandwidth
/// and processor time. It takes about a minute, and removes the tables at the end. The machine should do nothing else
/// meanwhile. `situ serve --compaction-rules FILE` then uses the rules.
///
/// Run it on the machine that opens stores; with --capacity if they lie on a node. For the node's side, run it on the
/// node's machine with --side elsewhere, and bring the file to the machine that opens stores.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  situ bench calibrate --directory /var/lib/situ\n  situ bench calibrate --capacity \
                        node://disk-7/calibrate --node-secret-file /etc/situ.secret\n  situ bench calibrate --side elsewhere \
                        --directory /srv/node --output rules.json"
)]
pub(crate) struct CalibrateCommand {
    #[command(flatten)]
    pub(crate) options: CalibrateOptions,
    /// Store on a node that does not exist yet, for the tables: node://HOST:PORT/STORE
    #[arg(long, value_name = "NODE", conflicts_with = "directory")]
    pub(crate) capacity: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) keys: NodeKeys,
}
