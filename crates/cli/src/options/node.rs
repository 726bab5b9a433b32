//! Options about nodes: how a store on a node is reached, and how a node is run.

use super::engine::refuse_for_hash;
use crate::failure::Failure;
use clap::Args;
use situ_settings::AcceleratorName;
use std::path::PathBuf;

/// How a store on a node is reached.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NodeAccess {
    /// Store on a node instead of a directory: node://HOST:PORT/STORE, or node://unix:SOCKET:/STORE
    #[arg(long, value_name = "NODE", help_heading = HEADING)]
    pub(crate) capacity: Option<String>,
    /// Node that helps with compactions: node://HOST:PORT. May be given several times. It reads and writes the files of
    /// a store here over the connection, and those of a store on another node there
    #[arg(long, value_name = "NODE", help_heading = HEADING)]
    pub(crate) compute: Vec<String>,
    /// Path of the directory of the store on nodes that share it: they read and write there, and not over the
    /// connection
    #[arg(long, value_name = "DIR", help_heading = HEADING, requires = "compute")]
    pub(crate) compute_shared: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) keys: NodeKeys,
}

impl NodeAccess {
    /// Nodes keep no hash stores, and help none.
    ///
    /// # Errors
    /// One was given.
    pub(crate) fn check_for_hash(&self) -> Result<(), Failure> {
        refuse_for_hash(&[(self.capacity.is_some(), "--capacity"), (!self.compute.is_empty(), "--compute")])
    }
}

/// What opens the door of a node.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NodeKeys {
    /// File that holds the secret of the node [default: the node has none]
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub(crate) node_secret_file: Option<PathBuf>,
    /// File with the certificates (PEM) that sign the certificate of the node
    /// [default: the connection is not encrypted]
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub(crate) node_ca: Option<PathBuf>,
}

const HEADING: &str = "Store on a node";

/// Keep the files of stores for other machines.
///
/// A node owns a directory, or a Situ disk without a file system, and serves it over the network. On the other machine,
/// `situ serve --capacity node://HOST:PORT/STORE` keeps its store there; all other commands take the same address. Each
/// store has a directory of its own on the node; a Situ disk has one store. One process at a time can write to a store.
/// Another process can take the store over when the first one has not been heard of for a while; the first one cannot
/// write any more then.
///
/// Without --secret-file, the node listens on 127.0.0.1, [::1] and Unix sockets only. Without --tls-cert, nothing is
/// encrypted. SIGTERM and SIGINT end the node when it has answered what it was asked. Stores wait, and go on when the
/// node is back.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  situ node /var/lib/situ-node\n  situ node /dev/nvme1n1 --listen 0.0.0.0:7170 --secret-file \
                        /etc/situ.secret\n  situ node /srv/node --listen unix:/run/situ.sock\n  situ serve --capacity \
                        node://disk-7/orders --node-secret-file /etc/situ.secret\n  situ node --compute-only --tasks 8 --listen \
                        0.0.0.0:7170 --secret-file /etc/situ.secret"
)]
pub(crate) struct NodeCommand {
    /// Directory for the files, which is made if it does not exist; or a Situ disk (`situ disk format`)
    #[arg(value_name = "DIR|DEVICE", required_unless_present = "compute_only", conflicts_with = "compute_only")]
    pub(crate) place: Option<PathBuf>,
    /// Keep no files, and only compact those of others (`situ serve --compute`)
    #[arg(long)]
    pub(crate) compute_only: bool,
    /// Compactions that run at a time [default: one for each processor]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) tasks: Option<u32>,
    /// Accelerator that runs compactions in place of the processor: the name of one that `situ inspect --units` lists,
    /// off, or auto for the first one that is there. What it cannot do, the processor does
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = str::parse::<AcceleratorName>)]
    pub(crate) accelerator: AcceleratorName,
    /// Directory that other machines share with this one. Compactions may read and write there. May be given several
    /// times
    #[arg(long, value_name = "DIR")]
    pub(crate) shared: Vec<PathBuf>,
    /// Other node that keeps stores: HOST:PORT, or unix:PATH. Compactions may read and write there. May be given
    /// several times
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) storage_node: Vec<String>,
    #[command(flatten)]
    pub(crate) keys: NodeKeys,
    /// Address that takes connections, or unix:PATH. May be given several times. Port 0 is a free port
    #[arg(short, long, value_name = "HOST:PORT", default_value = "127.0.0.1:7170")]
    pub(crate) listen: Vec<String>,
    /// File that holds the secret that clients have to know, at least 16 bytes. Only its owner and its group may open
    /// the file [default: everybody is served]
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
    /// File with the certificate of the node (PEM), and those that signed it [default: nothing is encrypted]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// File with the key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Largest number of stores that the node keeps
    #[arg(long, value_name = "NUMBER", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) store_limit: u32,
    /// Largest number of connections of clients. The node tells a further client to try again
    #[arg(short = 'c', long, value_name = "NUMBER", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) max_connections: u32,
    /// Threads that wait for the disk, 1 to 1024
    #[arg(short, long, value_name = "NUMBER", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: u32,
    /// After how many milliseconds without a sign the owner of a store may lose it to another process
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(300..=3_600_000))]
    pub(crate) lease_ms: u64,
    /// File with more options, in TOML: the long names of these, and `place`, below [node]. Options of the command
    /// line and of the environment (SITU_NODE_THREADS for --threads) come first
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
