//! The command line.

#[cfg(feature = "advise")]
mod advise;
mod backup;
#[cfg(feature = "bench")]
mod bench;
mod config;
mod disk;
mod engine;
mod follow;
#[cfg(feature = "import")]
mod import;
mod node;
mod serve;
pub(crate) mod settings;
mod top;
mod trace;

#[cfg(feature = "advise")]
pub(crate) use advise::AdviseCommand;
#[cfg(feature = "postgres")]
pub(crate) use advise::{AdvisePostgresOptions, DriveNature};
pub(crate) use backup::{
    BackupCommand, BackupCreateOptions, BackupListOptions, BackupPruneOptions, BackupRestoreOptions,
    BackupVerifyOptions,
};
#[cfg(feature = "bench")]
pub(crate) use bench::{BenchCommand, BenchTask, CalibrateCommand};
pub(crate) use config::{ConfigCheckOptions, ConfigCommand, ConfigShowOptions};
pub(crate) use disk::{
    DiskAddOptions, DiskBindOptions, DiskCheckOptions, DiskCommand, DiskDrainOptions, DiskFormatOptions,
    DiskUnbindOptions,
};
#[cfg(feature = "bench")]
pub(crate) use engine::only_served;
pub(crate) use engine::{EngineChoice, EngineName, StoreKind, refuse_for_hash};
pub(crate) use follow::{ChangesOptions, FollowOptions, Since};
#[cfg(feature = "import")]
pub(crate) use import::ImportCommand;
#[cfg(feature = "rocksdb")]
pub(crate) use import::ImportRocksdbOptions;
pub(crate) use node::{NodeAccess, NodeCommand, NodeKeys};
pub(crate) use serve::{AdmissionName, FlashChoice, HTTP, Listen, MemorySize, ServeOptions};
pub(crate) use top::TopOptions;
pub(crate) use trace::TraceOptions;

use crate::failure::Failure;
use crate::text::{DecodeError, Encoding, EncodingOptions};
use clap::{Args, Parser, Subcommand, ValueEnum};
use situ::KEY_BYTES_MAX;
use situ_server::{ITEMS_KEYSPACE, META_KEYSPACE};
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The keyspace in which loads keep their places.
pub(crate) const MARKS: &str = "situ.load";
/// The keyspace in which a copy keeps its position.
pub(crate) const FOLLOWED: &str = "situ.follow";

const EXIT_CODES: &str = "\
Exit codes:
  0    the command did what was asked; also when the reader of standard output went away
  1    the command failed
  2    the command line makes no sense
  3    get found no such key
  4    the store or the disk is damaged
  130  SIGINT (Ctrl-C) ended the command
  143  SIGTERM ended the command";

/// An ordered, durable key-value store.
#[derive(Debug, Parser)]
#[command(name = "situ", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Program {
    /// Write results as JSON, one object per line. Errors and warnings are JSON as well, on standard error
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Run the command in the server at http://HOST:PORT, which was started with --admin-token-file. Paths are those of
    /// the server's machine
    #[arg(long = "server", global = true, value_name = "URL")]
    pub(crate) server_url: Option<String>,
    /// File with the token for --server. Only its owner and its group may open the file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) server_token: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(Box<ServeOptions>),
    Node(NodeCommand),
    Get(GetOptions),
    Put(PutOptions),
    Delete(DeleteOptions),
    Scan(ScanOptions),
    Count(CountOptions),
    Load(LoadOptions),
    Dump(DumpOptions),
    #[cfg(feature = "import")]
    #[command(subcommand)]
    Import(ImportCommand),
    Inspect(InspectOptions),
    Top(TopOptions),
    Trace(TraceOptions),
    Verify(VerifyOptions),
    Repair(RepairOptions),
    Compact(CompactOptions),
    Flush(FlushOptions),
    #[command(subcommand)]
    Keyspace(KeyspaceCommand),
    Checkpoint(CheckpointOptions),
    Changes(ChangesOptions),
    Follow(FollowOptions),
    #[command(subcommand)]
    Backup(BackupCommand),
    #[command(subcommand)]
    Disk(DiskCommand),
    #[cfg(feature = "advise")]
    #[command(subcommand)]
    Advise(AdviseCommand),
    #[cfg(feature = "bench")]
    Bench(Box<BenchCommand>),
    #[command(subcommand)]
    Config(ConfigCommand),
    Completions(CompletionsOptions),
    Man(ManOptions),
}

/// Write the completions of a shell to standard output
#[derive(Debug, Args)]
pub(crate) struct CompletionsOptions {
    /// Shell that the completions are for
    pub(crate) shell: clap_complete::Shell,
}

/// Write manual pages into a directory
#[derive(Debug, Args)]
pub(crate) struct ManOptions {
    /// Directory for the pages. It is made if it does not exist
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// The directory of the store that a command line without one means.
pub(crate) const DATA: &str = "situ-data";

/// Which store, and which part of it.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// Directory of the store, or node://HOST:PORT/STORE
    #[arg(short, long, value_name = "DIR", default_value = DATA, conflicts_with = "capacity")]
    pub(crate) data: PathBuf,
    #[command(flatten)]
    pub(crate) node: NodeAccess,
    /// Name of the keyspace. Memcached items are in the keyspace "items" [default: default]
    #[arg(short, long, value_name = "NAME")]
    keyspace: Option<String>,
}

impl Target {
    /// Returns the keyspace that was asked for.
    pub(crate) fn named_keyspace(&self) -> Option<&str> {
        self.keyspace.as_deref()
    }

    /// Options that mean nothing to a hash store.
    ///
    /// # Errors
    /// One was given; the text names it.
    pub(crate) fn check_for_hash(&self) -> Result<(), Failure> {
        self.node.check_for_hash()
    }

    /// Returns the keyspace's name: the one that was asked for, or `default`, or with `stored` the one of memcached
    /// items.
    ///
    /// # Errors
    /// Memcached items were asked for where there are none.
    pub(crate) fn keyspace(&self, stored: bool) -> Result<&str, Failure> {
        match (self.keyspace.as_deref(), stored) {
            (None, false) => Ok("default"),
            (None, true) => Ok(ITEMS_KEYSPACE),
            (Some(name), true) if name != ITEMS_KEYSPACE => Err(Failure::usage(format!(
                "--stored is for memcached items, which are in the keyspace {ITEMS_KEYSPACE:?}, not in {name:?}; leave out \
                 --stored or --keyspace"
            ))),
            (Some(name), _) => Ok(name),
        }
    }

    /// [`keyspace`](Target::keyspace), if its values are free to be written.
    ///
    /// # Errors
    /// As above, or a server would take the values for damage, or `load` for its own.
    pub(crate) fn keyspace_to_write(&self, stored: bool) -> Result<&str, Failure> {
        match self.keyspace_to_delete_from(stored)? {
            ITEMS_KEYSPACE if !stored => Err(Failure::new(
                format!("cannot write to the keyspace {ITEMS_KEYSPACE:?}"),
                "it holds memcached items, and a server would take plain values for damage",
            )
            .cure("write through `situ serve`, choose another --keyspace, or say --stored if the values are items")),
            FOLLOWED => Err(Failure::new(
                format!("cannot write to the keyspace {FOLLOWED:?}"),
                "it holds the position that `situ follow` goes on from",
            )),
            MARKS => Err(Failure::new(
                format!("cannot write to the keyspace {MARKS:?}"),
                "it holds the positions from which `situ load` and `situ import` resume",
            )
            .cure("choose another --keyspace")),
            name => Ok(name),
        }
    }

    /// [`keyspace`](Target::keyspace), if entries may vanish from it.
    ///
    /// # Errors
    /// As above, or a server would miss the entries.
    pub(crate) fn keyspace_to_delete_from(&self, stored: bool) -> Result<&str, Failure> {
        match self.keyspace(stored)? {
            META_KEYSPACE => Err(Failure::new(
                format!("cannot write to the keyspace {META_KEYSPACE:?}"),
                "it holds the records of `situ serve`",
            )
            .cure("choose another --keyspace")),
            name => Ok(name),
        }
    }
}

/// A store given as an argument.
#[derive(Debug, Args)]
pub(crate) struct Directory {
    /// Directory of the store, or node://HOST:PORT/STORE [default: situ-data]
    #[arg(value_name = "DIR", conflicts_with_all = ["data", "capacity"])]
    pub(crate) directory: Option<PathBuf>,
    /// The same as DIR
    #[arg(short, long, value_name = "DIR", conflicts_with = "capacity")]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) node: NodeAccess,
}

/// Show the value of a key.
///
/// The program writes the value as it is, and a newline behind it. If there is no such key, the exit code is 3. What
/// memcached clients have set is in the keyspace "items". Such values are shown without their header; items that have
/// expired or were flushed are not found.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  situ get greeting\n  situ get --data /var/lib/situ --keyspace items --json greeting\n  \
                        situ get -n picture > picture.png"
)]
pub(crate) struct GetOptions {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Key to look up, 1 to 65536 bytes
    pub(crate) key: OsString,
    /// Write no newline behind the value
    #[arg(short, long)]
    pub(crate) no_newline: bool,
    /// Show memcached items as the store holds them, with their header. Implies --keyspace items
    #[arg(long)]
    pub(crate) stored: bool,
    #[command(flatten)]
    pub(crate) encoding: EncodingOptions,
}

/// Set a key to a value. The store and the keyspace are made if they do not exist.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ put greeting hello\n  situ put --sync picture < picture.png\n  \
                        situ put --hex 00ff c0ffee")]
pub(crate) struct PutOptions {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Key to set, 1 to 65536 bytes
    pub(crate) key: OsString,
    /// Value of the key, at most 1 GiB [default: what standard input holds]
    pub(crate) value: Option<OsString>,
    /// Return only when the disk has the write, so that it survives power failure
    #[arg(long)]
    pub(crate) sync: bool,
    /// The value is a memcached item with its header. It gets a new cas id. Implies --keyspace items
    #[arg(long)]
    pub(crate) stored: bool,
    #[command(flatten)]
    pub(crate) encoding: EncodingOptions,
}

/// Delete a key, or all keys of a range by one write. It is no error if there is no such key.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  situ delete greeting\n  situ delete --prefix user:\n  situ delete --from a --to b"
)]
pub(crate) struct DeleteOptions {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Key to delete, 1 to 65536 bytes
    #[arg(required_unless_present_any = ["prefix", "from"], conflicts_with_all = ["prefix", "from"])]
    pub(crate) key: Option<OsString>,
    /// Delete all keys that begin with this text
    #[arg(long, value_name = "TEXT", conflicts_with = "from")]
    pub(crate) prefix: Option<OsString>,
    /// Delete all keys from this one up to that of --to
    #[arg(long, value_name = "KEY", requires = "to")]
    pub(crate) from: Option<OsString>,
    /// First key that is not deleted
    #[arg(long, value_name = "KEY", requires = "from")]
    pub(crate) to: Option<OsString>,
    /// Return only when the disk has the write, so that it survives power failure
    #[arg(long)]
    pub(crate) sync: bool,
    #[command(flatten)]
    pub(crate) encoding: EncodingOptions,
}

/// Which entries.
#[derive(Debug, Args)]
pub(crate) struct Range {
    /// Take only keys that begin with this text
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["from", "to"])]
    pub(crate) prefix: Option<OsString>,
    /// Begin at this key, or at the first one behind it
    #[arg(long, value_name = "KEY")]
    pub(crate) from: Option<OsString>,
    /// End before this key
    #[arg(long, value_name = "KEY")]
    pub(crate) to: Option<OsString>,
    /// Largest number of entries
    #[arg(short = 'n', long, value_name = "NUMBER")]
    pub(crate) limit: Option<u64>,
}

/// List keys and values in key order: an entry a line, with a tab between key and value.
///
/// Control characters and bytes that are no UTF-8 are shown as \xNN. With --json, each line is an object.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ scan --prefix user: --limit 10\n  situ scan --reverse -n 1\n  \
                        situ scan --from a --to b --keys --json")]
pub(crate) struct ScanOptions {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) range: Range,
    /// List the last key first
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// List keys without values
    #[arg(long)]
    pub(crate) keys: bool,
    /// Show memcached items as the store holds them, with their header. Implies --keyspace items
    #[arg(long)]
    pub(crate) stored: bool,
    #[command(flatten)]
    pub(crate) encoding: EncodingOptions,
}

/// Count keys. Without --exact or a range, the number is an estimate, which takes no reading.
///
/// Memcached items that have expired or were flushed are not counted, but are in the estimate until a compaction
/// removes them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ count\n  situ count --exact --keyspace items\n  situ count --prefix user:")]
pub(crate) struct CountOptions {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Read all keys, and count them
    #[arg(long)]
    pub(crate) exact: bool,
    #[command(flatten)]
    pub(crate) range: Range,
    #[command(flatten)]
    pub(crate) encoding: EncodingOptions,
}

/// The columns or fields of a file that hold keys and values.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Layout {
    /// Column or JSON field that holds the key [default: key]. Without --value, the value is the column `value`, or
    /// else a JSON object of all other columns. For JSON lines, it is the whole line
    #[arg(long, value_name = "NAME", visible_alias = "key-field")]
    pub(crate) key: Option<String>,
    /// Column or JSON field that holds the value. If given several times, the value is a JSON object of these columns
    /// or fields
    #[arg(long = "value", value_name = "NAME", visible_alias = "value-field")]
    pub(crate) values: Vec<String>,
    /// Read the first line of a CSV or TSV file as an entry. The file has two columns, key and value
    #[arg(long, conflicts_with_all = ["key", "values"])]
    pub(crate) no_header: bool,
}

/// How entries lie in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// {"key": ..., "value": ...} on each line; key_base64 and value_base64 for bytes that are not UTF-8; expires_ms
    /// for an entry that expires. `load --key` also reads other objects
    Jsonl,
    /// Columns below a header that names them: key, value, and expires_ms where entries may expire
    Csv,
    /// As csv, with tabs in place of commas
    Tsv,
}

/// Put all entries of a file into the store.
///
/// CSV and TSV files begin with a header, whose names decide which columns are key and value, in any order. JSON lines
/// are those of `situ dump`, or any objects with --key. Files packed by gzip or Zstandard are unpacked.
///
/// Each batch also holds the position in the file. So --resume continues exactly where an interrupted load ended. Lines
/// that cannot be read are reported by number.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  situ load people.jsonl\n  situ load --keyspace people --format csv < people.csv\n  \
                        situ load --key id people.csv.gz\n  situ load --key id --value name --value year people.csv\n  \
                        situ load --key-field id events.jsonl.zst\n  situ load --resume huge.tsv --skip-bad 10"
)]
pub(crate) struct LoadOptions {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) engine: EngineChoice,
    /// File to read. - is standard input
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
    /// Format of the file [default: that of the file's extension before .gz or .zst; jsonl for any other]
    #[arg(short, long)]
    pub(crate) format: Option<Format>,
    #[command(flatten)]
    pub(crate) layout: Layout,
    /// Entries of one batch, 1 to 1000000. A batch also ends at 1 MiB
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) batch: u32,
    /// Go on where an interrupted load of this file ended. Standard input and pipes cannot be resumed
    #[arg(long)]
    pub(crate) resume: bool,
    /// Number of bad lines to skip. The next bad line ends the load with exit code 1
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) skip_bad: u64,
    /// Wait until the disk has a batch before the next one begins
    #[arg(long)]
    pub(crate) sync: bool,
    /// The values are memcached items, as `dump --stored` writes them. They get new cas ids. Implies --keyspace items
    #[arg(long)]
    pub(crate) stored: bool,
}

/// Write entries to a file that `load` can read.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ dump > all.jsonl\n  situ dump -o people.csv.gz --keyspace people\n  \
                        situ dump --prefix user: | head")]
pub(crate) struct DumpOptions {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) range: Range,
    /// File to write. - is standard output. A file whose name ends in .gz or .zst is packed. The file appears when the
    /// dump is complete
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    /// Replace an existing file once the dump is complete. Its mode is kept, and so is its owner where the system
    /// permits that
    #[arg(long)]
    pub(crate) force: bool,
    /// Format of the file [default: that of the file's extension before .gz or .zst; jsonl for any other]
    #[arg(short, long)]
    pub(crate) format: Option<Format>,
    /// Write memcached items as the store holds them, with their header, for `load --stored`. Implies --keyspace items
    #[arg(long)]
    pub(crate) stored: bool,
    #[command(flatten)]
    pub(crate) encoding: EncodingOptions,
}

/// Show what a store consists of: keyspaces, levels, tables, logs.
///
/// This works beside a running server. Of a damaged store it shows what can be read, and the exit code is 4.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ inspect\n  situ inspect /var/lib/situ --all\n  situ inspect --table 12\n  \
                        situ inspect --log 30 --json\n  situ inspect --http 127.0.0.1:11212\n  situ inspect --units")]
pub(crate) struct InspectOptions {
    #[command(flatten)]
    pub(crate) directory: Directory,
    /// Show all tables, not only the first 8 of each level
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Show the properties of the table with this number
    #[arg(long, value_name = "NUMBER", conflicts_with = "log")]
    pub(crate) table: Option<u64>,
    /// Show the pages of the log file with this number
    #[arg(long, value_name = "NUMBER")]
    pub(crate) log: Option<u64>,
    /// Ask the server with this HTTP address what its compactions do: a timeline of units, tasks and stages. The page
    /// of that address draws the same
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["log", "table", "directory", "data"])]
    pub(crate) http: Option<SocketAddr>,
    /// List the accelerators that this program knows, and whether each can be used here
    #[arg(long, conflicts_with_all = ["log", "table", "http", "directory", "data"])]
    pub(crate) units: bool,
    /// With --http: how many seconds the timeline shows
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
}

/// Read and check every byte of a store.
///
/// The command changes nothing. No other process may write to the store meanwhile. The exit code is 4 if anything is
/// damaged.
#[derive(Debug, Args)]
pub(crate) struct VerifyOptions {
    #[command(flatten)]
    pub(crate) directory: Directory,
}

/// Make a damaged store usable again, and say exactly what is lost.
///
/// The repair keeps every sound table, and every sound block of a damaged table. It renames each file that it cannot
/// use as it is (to NUMBER.damaged), and keeps it. It deletes no file that holds data which the repaired store lacks.
/// It leaves a sound store as it is. With --dry-run the exit code is 4 if there is something to repair.
///
/// In a hash store, each damaged bucket becomes empty, and its old block is set aside. The other options are not for
/// hash stores.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ repair --dry-run\n  situ repair /var/lib/situ --json")]
pub(crate) struct RepairOptions {
    #[command(flatten)]
    pub(crate) directory: Directory,
    /// Change nothing, and say what a repair would do and lose
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Repair without the fast disk. All data that lies only on the fast disk is lost
    #[arg(long, conflicts_with = "fast_disk")]
    pub(crate) without_fast_disk: bool,
    /// Path of the fast disk, if it has moved or the store has lost its path [default: where it was last]
    #[arg(long, value_name = "PATH")]
    pub(crate) fast_disk: Option<PathBuf>,
}

/// Rewrite tables so that deleted and overwritten entries give their space back.
///
/// Memcached items that have expired or were flushed give theirs back, too. The store compacts by itself while it takes
/// writes; this command compacts everything now.
#[derive(Debug, Args)]
pub(crate) struct CompactOptions {
    #[command(flatten)]
    pub(crate) directory: Directory,
    /// Compact only this keyspace [default: all]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) keyspace: Option<String>,
}

/// Write what memtables hold to tables.
///
/// Nothing is lost without this: the log has what memtables hold. A flushed store opens at once, because there is
/// little to replay.
#[derive(Debug, Args)]
pub(crate) struct FlushOptions {
    #[command(flatten)]
    pub(crate) directory: Directory,
    /// Flush only this keyspace [default: all]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) keyspace: Option<String>,
}

/// List the keyspaces of a store, make one, clear one, remove one.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyspaceCommand {
    /// List the keyspaces of a store, oldest first, with estimates of their keys
    List(WholeStore),
    /// Make a keyspace. The store is made if it does not exist
    Create(OneKeyspace),
    /// Delete all keys of a keyspace, at one moment
    Clear(OneKeyspace),
    /// Remove a keyspace and all of its contents
    Drop(OneKeyspace),
}

/// A store that an option names.
#[derive(Debug, Args)]
pub(crate) struct WholeStore {
    /// Directory of the store, or node://HOST:PORT/STORE
    #[arg(short, long, value_name = "DIR", default_value = DATA, conflicts_with = "capacity")]
    pub(crate) data: PathBuf,
    #[command(flatten)]
    pub(crate) node: NodeAccess,
}

/// A keyspace of a store.
#[derive(Debug, Args)]
pub(crate) struct OneKeyspace {
    #[command(flatten)]
    pub(crate) store: WholeStore,
    /// Name of the keyspace, 1 to 255 bytes
    pub(crate) name: String,
}

/// Copy a store as it is now into a directory, which opens as a store of its own.
///
/// Tables get hard links where the directory lies on the same file system, and then take no further room. The value log
/// and the log are copied. The copy has no fast disk, whatever the store has.
#[derive(Debug, Args)]
pub(crate) struct CheckpointOptions {
    #[command(flatten)]
    pub(crate) directory: Directory,
    /// Directory for the copy. It must not exist, or must be empty
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: PathBuf,
}

/// Returns a key from the command line.
///
/// # Errors
/// As [`given`], or there are no such keys.
pub(crate) fn given_key(text: &OsStr, encoding: Encoding) -> Result<Vec<u8>, Failure> {
    let key = given(text, encoding, "the key")?;
    match key.len() {
        0 => Err(Failure::usage("the key is empty, and a key has at least one byte")),
        1..=KEY_BYTES_MAX => Ok(key),
        bytes => Err(Failure::usage(format!("a key has at most {KEY_BYTES_MAX} bytes, and this one has {bytes}"))),
    }
}

/// Returns a key or value from the command line.
///
/// # Errors
/// It is not encoded as the options say.
pub(crate) fn given(text: &OsStr, encoding: Encoding, what: &str) -> Result<Vec<u8>, Failure> {
    encoding.decode(text.as_bytes()).map_err(|error| match error {
        // Of a text that is not short, a copy may find no memory, either.
        DecodeError::Malformed(_) => error.failure(format!("{what} {:?}", text.to_string_lossy())),
        DecodeError::NoMemory(_) => error.failure(what),
    })
}
