//! The options of `import`.

use super::node::NodeKeys;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Copy a database of another program into a store.
#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    Rocksdb(ImportRocksdbOptions),
}

/// Put all entries of a RocksDB database into the store: each column family becomes a keyspace.
///
/// The import reads the database as it is at the beginning, its log included. It changes nothing in the directory of
/// the database, and a program that has the database open can go on. At the end the import reads both again: the number
/// of entries and a checksum over all keys and values, in order, must be the same. Of a wide-column entity only the
/// default column is imported: RocksDB's interface for C shows no other.
///
/// Each batch also holds the position in the database. So --resume goes on exactly where an interrupted import ended.
/// Only a program that was built with RocksDB can do this (--features rocksdb).
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  situ import rocksdb /var/lib/app/db\n  situ import rocksdb db --data /var/lib/situ \
                        --keyspace default=app\n  situ import rocksdb db --resume"
)]
pub(crate) struct ImportRocksdbOptions {
    /// Directory of the RocksDB database
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Directory of the store, or node://HOST:PORT/STORE
    #[arg(short, long, value_name = "DIR", default_value = "situ-data")]
    pub(crate) data: PathBuf,
    #[command(flatten)]
    pub(crate) node: NodeKeys,
    /// Import only this column family. May be given several times [default: all]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) column_family: Vec<String>,
    /// Put a column family into a keyspace of another name. May be given several times
    #[arg(short, long, value_name = "FAMILY=NAME", value_parser = parse_renaming)]
    pub(crate) keyspace: Vec<(String, String)>,
    /// Import into keyspaces that hold entries. Where both have a key, the value of the database stays
    #[arg(long, conflicts_with = "resume")]
    pub(crate) merge: bool,
    /// Go on where an interrupted import of this database ended
    #[arg(long)]
    pub(crate) resume: bool,
    /// Directory of the database's log, if it has moved [default: as the database says]
    #[arg(long, value_name = "DIR")]
    pub(crate) wal_dir: Option<PathBuf>,
    /// The database's db_paths, in their order, if it has any
    #[arg(long, value_name = "DIR")]
    pub(crate) db_path: Vec<PathBuf>,
    /// Read column families without their merge operators. Only for those that hold no merge operands any more
    #[arg(long)]
    pub(crate) without_merge_operator: bool,
}

/// `FAMILY=NAME`; the name of a column family may hold the sign, too.
fn parse_renaming(text: &str) -> Result<(String, String), String> {
    match text.rsplit_once('=') {
        Some((family, name)) if !family.is_empty() && !name.is_empty() => Ok((family.to_owned(), name.to_owned())),
        _ => Err("write the column family, an equals sign and the keyspace, as in default=people".to_owned()),
    }
}
