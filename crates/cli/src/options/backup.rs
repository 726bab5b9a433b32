//! Options of `backup`.

use super::Directory;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Make incremental backups of a store, list them, verify them, restore one, remove old ones.
///
/// A directory of backups holds any number of backups. Each is a whole store, and takes room only for what the earlier
/// ones do not have.
#[derive(Debug, Subcommand)]
pub(crate) enum BackupCommand {
    Create(BackupCreateOptions),
    List(BackupListOptions),
    Verify(BackupVerifyOptions),
    Restore(BackupRestoreOptions),
    Prune(BackupPruneOptions),
}

/// Make a backup of a store as it is now.
///
/// Tables and segments of the value log that an earlier backup has are not copied again. If the command is interrupted,
/// run it again: it uses what it has copied.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ backup create /var/lib/situ -o /backup/situ")]
pub(crate) struct BackupCreateOptions {
    #[command(flatten)]
    pub(crate) directory: Directory,
    /// Directory of backups. It is made if it does not exist, or is empty
    #[arg(short, long, value_name = "BACKUPS")]
    pub(crate) output: PathBuf,
}

/// List backups, the oldest first.
#[derive(Debug, Args)]
pub(crate) struct BackupListOptions {
    /// Directory of backups
    #[arg(value_name = "BACKUPS")]
    pub(crate) backups: PathBuf,
}

/// Read all that backups need, and compare checksums.
///
/// If something is damaged or missing, the command names the file and the backups that need it, and the exit code is 4.
#[derive(Debug, Args)]
pub(crate) struct BackupVerifyOptions {
    /// Directory of backups
    #[arg(value_name = "BACKUPS")]
    pub(crate) backups: PathBuf,
    /// Verify only this backup [default: all]
    #[arg(value_name = "ID")]
    pub(crate) id: Option<u64>,
    /// Check names and lengths of files, and read nothing
    #[arg(long)]
    pub(crate) quick: bool,
}

/// Make a store of a backup.
///
/// Checksums are verified on the way. If the command is interrupted, run it again: it goes on with what it has copied.
/// Until the end, the directory holds no store.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  situ backup restore /backup/situ -o /var/lib/situ\n  situ backup restore /backup/situ 12 -o then"
)]
pub(crate) struct BackupRestoreOptions {
    /// Directory of backups
    #[arg(value_name = "BACKUPS")]
    pub(crate) backups: PathBuf,
    /// Number of the backup [default: the latest]
    #[arg(value_name = "ID")]
    pub(crate) id: Option<u64>,
    /// Directory for the store. It must not exist, or be empty, or be what an interrupted restore of this backup left
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: PathBuf,
}

/// Remove backups, and the files that only they need.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ backup prune /backup/situ --keep 30\n  situ backup prune /backup/situ 3 4")]
pub(crate) struct BackupPruneOptions {
    /// Directory of backups
    #[arg(value_name = "BACKUPS")]
    pub(crate) backups: PathBuf,
    /// Backups to remove
    #[arg(value_name = "ID", required_unless_present = "keep", conflicts_with = "keep")]
    pub(crate) ids: Vec<u64>,
    /// Remove all but the newest N
    #[arg(long, value_name = "N")]
    pub(crate) keep: Option<usize>,
}
