//! The command line.

use crate::failure::Failure;
use crate::text::{EncodingOptions, parse_bytes};
use crate::transfer::MARKS;
use clap::{Args, Parser, Subcommand, ValueEnum};
use situ_bench::report::ReportOptions;
use situ_bench::{BenchOptions, SituSettings};
use situ_server::{ITEMS_KEYSPACE, MAX_VALUE_BYTES_LIMIT, META_KEYSPACE};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 get found nothing, 4 damage was found.";

/// An ordered, durable key-value store.
#[derive(Debug, Parser)]
#[command(name = "situ", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Program {
    /// Answer in JSON: one object, or one a line. Errors and warnings are objects, too, on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(ServeOptions),
    Get(GetOptions),
    Put(PutOptions),
    Delete(DeleteOptions),
    Scan(ScanOptions),
    Load(LoadOptions),
    Dump(DumpOptions),
    #[command(subcommand)]
    Import(ImportCommand),
    Inspect(InspectOptions),
    Verify(VerifyOptions),
    Repair(RepairOptions),
    Compact(CompactOptions),
    #[command(subcommand)]
    Disk(DiskCommand),
    Bench(Box<BenchCommand>),
}

/// Which store, and which part of it.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// Directory of the store
    #[arg(short, long, value_name = "DIR", default_value = "situ-data")]
    pub(crate) data: PathBuf,
    /// Keyspace to work on; memcached items are in "items" [default: default]
    #[arg(short, long, value_name = "NAME")]
    keyspace: Option<String>,
}

impl Target {
    /// The keyspace's name: the one that was asked for, or `default`, or with `stored` the one of memcached items.
    ///
    /// # Errors
    /// Memcached items were asked for where there are none.
    pub(crate) fn keyspace(&self, stored: bool) -> Result<&str, Failure> {
        match (self.keyspace.as_deref(), stored) {
            (None, false) => Ok("default"),
            (None, true) => Ok(ITEMS_KEYSPACE),
            (Some(name), true) if name != ITEMS_KEYSPACE => Err(Failure::usage(format!(
                "--stored is for memcached items, and these are in the keyspace {ITEMS_KEYSPACE:?}, not in {name:?}; \
                 leave out --stored or --keyspace"
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
            MARKS => Err(Failure::new(
                format!("cannot write to the keyspace {MARKS:?}"),
                "it holds the places up to which `situ load` and `situ import` have come",
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
    /// Directory of the store [default: situ-data]
    #[arg(value_name = "DIR", conflicts_with = "data")]
    directory: Option<PathBuf>,
    /// The same as DIR, as other commands have it
    #[arg(short, long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Directory {
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.clone().or_else(|| self.data.clone()).unwrap_or_else(|| PathBuf::from("situ-data"))
    }
}

/// Serve the store to memcached clients, and its metrics over HTTP.
///
/// Speaks memcached's text protocol, classic and meta. Items are kept until they are deleted, expire or are flushed, in
/// the keyspace "items"; other keyspaces are left alone. While it runs, other commands can read the store beside it.
/// SIGTERM and SIGINT end it cleanly; SIGHUP opens the log file anew, for logrotate.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  situ serve\n  situ serve /var/lib/situ --listen 0.0.0.0:11211 --sync --memory 4G\n  \
                        situ serve --unix-socket /run/situ.sock --log-file /var/log/situ.log\n  \
                        situ serve --listen localhost:11211 --auth-file /etc/situ.users --disable-flush-all"
)]
pub(crate) struct ServeOptions {
    #[command(flatten)]
    pub(crate) directory: Directory,
    /// Address or name to serve; may be given several times. Of a name such as localhost, every address that this machine
    /// has is served
    #[arg(short, long, value_name = "HOST:PORT", default_value = "127.0.0.1:11211", value_parser = parse_listen)]
    pub(crate) listen: Vec<Listen>,
    /// Unix socket to serve as well
    #[arg(long, value_name = "PATH")]
    pub(crate) unix_socket: Option<PathBuf>,
    /// Address of /metrics (Prometheus) and /healthz
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:11212")]
    pub(crate) http: SocketAddr,
    /// Serve no metrics
    #[arg(long, conflicts_with = "http")]
    pub(crate) no_http: bool,
    /// Answer a write when it would survive power failure, not only the end of the process
    #[arg(long)]
    pub(crate) sync: bool,
    /// Fast disk for the log and the upper levels: a Situ disk (`situ disk format`), or a directory. Remembered by the store
    #[arg(long, value_name = "PATH")]
    pub(crate) fast_disk: Option<PathBuf>,
    /// Memory for cached blocks, indexes and filters; up to 256M for memtables come on top
    #[arg(short, long, value_name = "SIZE", default_value = "256M", value_parser = parse_memory_bytes)]
    pub(crate) memory: u64,
    /// Event loops [default: one for each core]
    #[arg(short, long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,
    /// Connections at a time; one more is told so and closed
    #[arg(short = 'c', long, value_name = "NUMBER", default_value_t = 10_240, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: u32,
    /// Close connections that have been silent for so many seconds; 0 never
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) idle_timeout_s: u64,
    /// Largest value
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = parse_value_bytes)]
    pub(crate) max_value: usize,
    /// Serve only users named in this file, which has a line user:password for each. A client must authenticate first,
    /// as for memcached's -Y: `set x 0 0 LENGTH` with the data `user password`. Unencrypted. Read once, at the start
    #[arg(long, value_name = "FILE")]
    pub(crate) auth_file: Option<PathBuf>,
    /// Refuse flush_all, as memcached's -F: a client cannot remove all items at once
    #[arg(long)]
    pub(crate) disable_flush_all: bool,
    /// File for messages [default: stderr]
    #[arg(long, value_name = "PATH")]
    pub(crate) log_file: Option<PathBuf>,
}

/// What `--listen` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listen {
    Address(SocketAddr),
    /// `host:port`, to be resolved.
    Name(String),
}

fn parse_listen(text: &str) -> Result<Listen, String> {
    if let Ok(address) = text.parse() {
        return Ok(Listen::Address(address));
    }
    let is_name = |host: &str| !host.is_empty() && !host.contains([':', '/', ' ', '[', ']']);
    match text.rsplit_once(':') {
        Some((host, port)) if is_name(host) && port.parse::<u16>().is_ok() => Ok(Listen::Name(text.to_owned())),
        _ => Err("write an address or a name, a colon, and a port from 0 to 65535, \
                  as in 127.0.0.1:11211, [::1]:11211 or localhost:11211"
            .to_owned()),
    }
}

/// The least and the most for `--memory`: with less than a megabyte not even the indexes of a small store are kept.
const MEMORY_BYTES: RangeInclusive<u64> = 1 << 20..=16 << 40;

fn parse_memory_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    match MEMORY_BYTES.contains(&bytes) {
        true => Ok(bytes),
        false => Err("memory is from 1M to 16T; 256M is the default".to_owned()),
    }
}

/// A limit of values that a server can keep.
fn parse_value_bytes(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text)?;
    match usize::try_from(bytes) {
        Ok(bytes) if (1..=MAX_VALUE_BYTES_LIMIT).contains(&bytes) => Ok(bytes),
        _ => {
            Err(format!("a value has 1 to {MAX_VALUE_BYTES_LIMIT} bytes; {}M is the most", MAX_VALUE_BYTES_LIMIT >> 20))
        }
    }
}

/// Show the value of a key.
///
/// The value is written as it is, and a newline. Exit code 3 if there is no such key. What memcached clients have set is
/// in --keyspace items, and shown without its header; expired and flushed items are not there.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  situ get greeting\n  situ get --data /var/lib/situ --keyspace items --json greeting\n  \
                        situ get -n picture > picture.png"
)]
pub(crate) struct GetOptions {
    #[command(flatten)]
    pub(crate) target: Target,
    pub(crate) key: OsString,
    /// Write no newline behind the value
    #[arg(short, long)]
    pub(crate) no_newline: bool,
    /// Show memcached items as they are stored, with their header; implies --keyspace items
    #[arg(long)]
    pub(crate) stored: bool,
    #[command(flatten)]
    pub(crate) encoding: EncodingOptions,
}

/// Set a key to a value. Makes the store, and the keyspace, if there is none.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ put greeting hello\n  situ put --sync picture < picture.png\n  \
                        situ put --hex 00ff c0ffee")]
pub(crate) struct PutOptions {
    #[command(flatten)]
    pub(crate) target: Target,
    pub(crate) key: OsString,
    /// The value; standard input if it is not given
    pub(crate) value: Option<OsString>,
    /// Return when it survives power failure
    #[arg(long)]
    pub(crate) sync: bool,
    /// The value is a memcached item with its header; implies --keyspace items. It gets a new cas id
    #[arg(long)]
    pub(crate) stored: bool,
    #[command(flatten)]
    pub(crate) encoding: EncodingOptions,
}

/// Remove a key. It is no error if there is no such key.
#[derive(Debug, Args)]
pub(crate) struct DeleteOptions {
    #[command(flatten)]
    pub(crate) target: Target,
    pub(crate) key: OsString,
    /// Return when it survives power failure
    #[arg(long)]
    pub(crate) sync: bool,
    #[command(flatten)]
    pub(crate) encoding: EncodingOptions,
}

/// Which entries.
#[derive(Debug, Args)]
pub(crate) struct Range {
    /// Only keys that begin with this
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["from", "to"])]
    pub(crate) prefix: Option<OsString>,
    /// Begin at this key
    #[arg(long, value_name = "KEY")]
    pub(crate) from: Option<OsString>,
    /// End before this key
    #[arg(long, value_name = "KEY")]
    pub(crate) to: Option<OsString>,
    /// At most so many
    #[arg(short = 'n', long, value_name = "NUMBER")]
    pub(crate) limit: Option<u64>,
}

/// List keys and values in key order: one line each, a tab between them.
///
/// Control characters, and bytes that are no UTF-8, are shown as \xNN. With --json, one object a line.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ scan --prefix user: --limit 10\n  situ scan --reverse -n 1\n  \
                        situ scan --from a --to b --keys --json")]
pub(crate) struct ScanOptions {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) range: Range,
    /// Last key first
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// Keys alone
    #[arg(long)]
    pub(crate) keys: bool,
    /// Show memcached items as they are stored, with their header; implies --keyspace items
    #[arg(long)]
    pub(crate) stored: bool,
    #[command(flatten)]
    pub(crate) encoding: EncodingOptions,
}

/// How entries lie in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// {"key": ..., "value": ...} a line; key_base64 and value_base64 for what is no UTF-8
    Jsonl,
    /// Two columns, key and value, with a header
    Csv,
    /// As csv, with tabs
    Tsv,
}

/// Put all entries of a file into the store.
///
/// The position in the file is kept in the store, in the same batch as the entries, so that --resume goes on exactly
/// where an interrupted load ended. Lines that cannot be read are reported by number.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  situ load people.jsonl\n  situ load --keyspace people --format csv < people.csv\n  \
                        situ load --resume huge.tsv --skip-bad 10"
)]
pub(crate) struct LoadOptions {
    #[command(flatten)]
    pub(crate) target: Target,
    /// File to read; - is standard input
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
    /// Format of the file [default: by its name, or jsonl]
    #[arg(short, long)]
    pub(crate) format: Option<Format>,
    /// Entries in one batch; a batch also ends at 1 MiB
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) batch: u32,
    /// Go on where an interrupted load of this file ended
    #[arg(long)]
    pub(crate) resume: bool,
    /// Go on after so many bad lines; one more ends the load with exit code 1
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) skip_bad: u64,
    /// Make each batch survive power failure before the next
    #[arg(long)]
    pub(crate) sync: bool,
    /// The values are memcached items from `dump --stored`; implies --keyspace items. They get new cas ids
    #[arg(long)]
    pub(crate) stored: bool,
}

/// Write entries to a file that `load` can read.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ dump > all.jsonl\n  situ dump -o people.csv --keyspace people\n  \
                        situ dump --prefix user: | head")]
pub(crate) struct DumpOptions {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) range: Range,
    /// File to write; - is standard output. An existing file is replaced when the dump is whole, and
    /// keeps its mode, and its owner where that is permitted
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    /// Format of the file [default: by its name, or jsonl]
    #[arg(short, long)]
    pub(crate) format: Option<Format>,
    /// Write memcached items as they are stored, with their header, for `load --stored`; implies --keyspace items
    #[arg(long)]
    pub(crate) stored: bool,
    #[command(flatten)]
    pub(crate) encoding: EncodingOptions,
}

/// Bring a database of another store over.
#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    Rocksdb(ImportRocksdbOptions),
}

/// Put all entries of a RocksDB database into the store: each column family becomes a keyspace.
///
/// The database is read as it is at the beginning, with what only its log holds; nothing in its directory is changed, and
/// a program that has it open can go on. At the end, both are read again: the numbers of entries and a checksum over all
/// keys and values, in order, must be the same. Of wide-column entities, RocksDB's interface for C shows the default
/// column alone, and that is what is brought over.
///
/// The position is kept in the store, in the same batch as the entries, so that --resume goes on exactly where an
/// interrupted import ended. Only a program that was built with RocksDB can do this (--features rocksdb).
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  situ import rocksdb /var/lib/app/db\n  situ import rocksdb db --data /var/lib/situ \
                        --keyspace default=app\n  situ import rocksdb db --resume"
)]
pub(crate) struct ImportRocksdbOptions {
    /// Directory of the RocksDB database
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Directory of the store
    #[arg(short, long, value_name = "DIR", default_value = "situ-data")]
    pub(crate) data: PathBuf,
    /// Only this column family; may be given several times [default: all]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) column_family: Vec<String>,
    /// Put a column family into a keyspace of another name; may be given several times
    #[arg(short, long, value_name = "FAMILY=NAME", value_parser = parse_renaming)]
    pub(crate) keyspace: Vec<(String, String)>,
    /// Import into keyspaces that hold entries; those of the database win
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
    /// Read column families without their merge operators: for those that hold no merge operands any more
    #[arg(long)]
    pub(crate) without_merge_operator: bool,
}

/// `FAMILY=NAME`; the name of a column family may hold the sign, too.
fn parse_renaming(text: &str) -> Result<(String, String), String> {
    match text.rsplit_once('=') {
        Some((family, name)) if !family.is_empty() && !name.is_empty() => Ok((family.to_owned(), name.to_owned())),
        _ => Err("write the column family, =, and the keyspace, as in default=people".to_owned()),
    }
}

/// Show what a store consists of: keyspaces, levels, tables, logs.
///
/// Reads beside a running server. Of a damaged store it shows what can be read, and ends with exit code 4.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ inspect\n  situ inspect /var/lib/situ --all\n  situ inspect --table 12\n  \
                        situ inspect --log 30 --json")]
pub(crate) struct InspectOptions {
    #[command(flatten)]
    pub(crate) directory: Directory,
    /// Show all tables, not only the first of each level
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Show one table's properties
    #[arg(long, value_name = "NUMBER", conflicts_with = "log")]
    pub(crate) table: Option<u64>,
    /// Show one log file's pages
    #[arg(long, value_name = "NUMBER")]
    pub(crate) log: Option<u64>,
}

/// Prepare and look at a fast disk (a device, or a file of fixed size, without a file system), give it to a store, take it
/// away.
#[derive(Debug, Subcommand)]
pub(crate) enum DiskCommand {
    Format(DiskFormatOptions),
    Show(DiskShowOptions),
    Check(DiskCheckOptions),
    Add(DiskAddOptions),
    Drain(DiskDrainOptions),
}

/// Give a store a fast disk: a Situ disk, or a directory of a fast file system.
///
/// Its log and its upper levels begin there from now on; what it has stays where it is until compactions replace it. The
/// store remembers the disk, and does not open without it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  situ disk add /var/lib/situ /dev/nvme1n1\n  situ disk add /var/lib/situ /mnt/fast/situ"
)]
pub(crate) struct DiskAddOptions {
    /// Directory of the store
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Block device, file or directory
    #[arg(value_name = "DISK")]
    pub(crate) disk: PathBuf,
}

/// Bring everything home from a store's fast disk, and take that away.
#[derive(Debug, Args)]
pub(crate) struct DiskDrainOptions {
    /// Directory of the store
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// Make a Situ disk of a device. Everything on it is lost.
///
/// A device that is mounted or that a store has open is refused, and so is one with anything but zeros in its first 1 MiB or
/// its last 64 KiB, where file systems and partition tables have their marks. Data that lies only between the two is not noticed. In
/// place of a device a file can be given that has its size already; `fallocate -l 20G FILE` makes one. What of the file has no
/// room on its file system yet gets that, or the file is refused.
///
/// An NVMe namespace has two names: /dev/nvme1n1 is reached through the kernel's block layer, /dev/ng1n1 by commands that are
/// passed through to the drive. Which one is used is which one is named, here and to `situ disk add`; a mounted one is refused by
/// either.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  situ disk format /dev/nvme1n1\n  situ disk format /dev/nvme1n1 --log 16G --force\n  \
                        situ disk format /dev/ng1n1"
)]
pub(crate) struct DiskFormatOptions {
    /// Block device, or file
    #[arg(value_name = "DEVICE")]
    pub(crate) device: PathBuf,
    /// Room for logs [default: an eighth of the device, 8G at most; up to a quarter of a small one, for 640M]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) log: Option<u64>,
    /// Write over whatever is on the device
    #[arg(long)]
    pub(crate) force: bool,
}

/// Show what a Situ disk is made of and how it is divided, what lies on it, and how much is free.
///
/// Can be used beside a running store; then it shows a moment between two of its changes.
#[derive(Debug, Args)]
pub(crate) struct DiskShowOptions {
    /// Block device, or file
    #[arg(value_name = "DEVICE")]
    pub(crate) device: PathBuf,
    /// List the files
    #[arg(long)]
    pub(crate) files: bool,
}

/// Read and check all metadata of a Situ disk.
///
/// Nothing is changed. What the files hold is checked by `situ verify`. Exit code 4 if anything is damaged, 1 if it is no Situ
/// disk.
#[derive(Debug, Args)]
pub(crate) struct DiskCheckOptions {
    /// Block device, or file
    #[arg(value_name = "DEVICE")]
    pub(crate) device: PathBuf,
}

/// Read and check every byte of a store.
///
/// Nothing is changed. Nobody else may write to the store meanwhile. Exit code 4 if anything is damaged.
#[derive(Debug, Args)]
pub(crate) struct VerifyOptions {
    #[command(flatten)]
    pub(crate) directory: Directory,
}

/// Make a damaged store usable again, and say exactly what is lost.
///
/// What is sound is kept; of damaged tables, every sound block. Nothing is deleted: what could not be used whole is set
/// aside under another name. A sound store is left as it is. Exit code 4 if --dry-run finds something to repair.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ repair --dry-run\n  situ repair /var/lib/situ --json")]
pub(crate) struct RepairOptions {
    #[command(flatten)]
    pub(crate) directory: Directory,
    /// Only say what would be done and lost
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Go on without the fast disk, which is lost with what lies on it alone
    #[arg(long, conflicts_with = "fast_disk")]
    pub(crate) without_fast_disk: bool,
    /// Where the store's fast disk is, if it has moved or the store cannot tell [default: where it was last]
    #[arg(long, value_name = "PATH")]
    pub(crate) fast_disk: Option<PathBuf>,
}

/// Rewrite tables so that deleted and overwritten entries give their space back.
///
/// Memcached items that have expired or were flushed give theirs back, too.
///
/// The store does this by itself as it is written; this does all of it now.
#[derive(Debug, Args)]
pub(crate) struct CompactOptions {
    #[command(flatten)]
    pub(crate) directory: Directory,
    /// Only this keyspace [default: all]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) keyspace: Option<String>,
}

/// Measure the store with db_bench's and YCSB's workloads.
///
/// Makes a store of its own in --directory and removes it at the end, unless told to --keep it.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:\n  situ bench --keys 100k\n  situ bench --workloads ycsb-load,ycsb-a --threads 4 \
                        --output a.json\n  situ bench report a.json b.json")]
pub(crate) struct BenchCommand {
    #[command(subcommand)]
    pub(crate) task: Option<BenchTask>,
    #[command(flatten)]
    pub(crate) workload: BenchOptions,
    #[command(flatten)]
    pub(crate) store: SituSettings,
    /// File for the result as JSON, for `situ bench report`
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchTask {
    /// Make one page of HTML from results
    Report(ReportOptions),
}
