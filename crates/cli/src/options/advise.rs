//! The options of `advise`.

use clap::{Args, Subcommand, ValueEnum};

/// Advise on other databases, on drives that compress. Nothing is changed.
#[derive(Debug, Subcommand)]
pub(crate) enum AdviseCommand {
    Postgres(AdvisePostgresOptions),
}

/// Recommend fill factors for the tables of a running PostgreSQL server.
///
/// A fill factor below 100 leaves room in pages, so that more updates leave the indexes alone (HOT updates). On a drive
/// that compresses, the room costs little. The command reads the server's statistics in a transaction that cannot
/// write. It prints what was counted, a recommendation with its gain and cost, and the statements; it runs none of
/// them.
///
/// If the server runs on this machine, the command finds out whether its drive compresses. Most drives do not say. The
/// password can be in the environment, as PGPASSWORD. There is no TLS: use the server's socket, or a tunnel.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ advise postgres --dsn 'host=/var/run/postgresql dbname=shop user=anna'\n  \
                        situ advise postgres --dsn postgresql://anna@db.example:5432/shop --drive compresses\n  \
                        situ advise postgres --dsn dbname=shop --schema public --table order_line --json")]
pub(crate) struct AdvisePostgresOptions {
    /// Where the server is and as whom to connect: key=value pairs, or a postgresql:// address
    #[arg(long, value_name = "DSN")]
    pub(crate) dsn: String,
    /// Only tables of this schema, as the catalogue has its name [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) schema: Option<String>,
    /// Only tables of this name, as the catalogue has it [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) table: Option<String>,
    /// What the drive of all tables is [default: found out where the server runs on this machine]
    #[arg(long, value_enum, value_name = "NATURE")]
    pub(crate) drive: Option<DriveNature>,
}

/// The value of `--drive`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DriveNature {
    /// It compresses what is written to it
    Compresses,
    /// It stores bytes as they are
    Plain,
}
