//! Options of `config`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Check a file with options of `situ serve` and `situ node`, or show the options in force.
///
/// `serve` and `node` take their options from the command line, from the environment (SITU_SERVE_MEMORY for --memory),
/// and from the file of --config (memory, below [serve]), in this order.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check that all options in a file exist and have values that the commands take
    Check(ConfigCheckOptions),
    /// Show the options that a server or a node would have now, as a file. Commented lines show default values
    Show(ConfigShowOptions),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigCheckOptions {
    /// File with options, in TOML
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigShowOptions {
    /// Command whose options are shown [default: both]
    pub(crate) command: Option<Configurable>,
    /// File with options, in TOML
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Show the options of the last server of the store in this directory instead
    #[arg(short, long, value_name = "DIR", conflicts_with_all = ["command", "config"])]
    pub(crate) data: Option<PathBuf>,
}

/// A command that takes options from a file, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Configurable {
    Serve,
    Node,
}

impl Configurable {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Configurable::Serve => "serve",
            Configurable::Node => "node",
        }
    }
}
