//! Options of `serve`.

use super::engine::refuse_for;
use super::settings::InForce;
use super::{Directory, EngineChoice, refuse_for_hash};
use crate::failure::Failure;
use crate::text::parse_bytes;
use clap::{Args, ValueEnum};
use situ_server::{MAX_VALUE_BYTES_LIMIT, RdmaDevices};
use situ_settings::CompactionSettings;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// The address that answers HTTP requests, unless the options say otherwise.
pub(crate) const HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 11212);

/// Serve the store to memcached clients, and its metrics over HTTP.
///
/// The server speaks memcached's text protocol, classic and meta. It keeps items in the keyspace "items" until they are
/// deleted, expire or are flushed. It does not touch other keyspaces. While it runs, get, scan, dump and inspect can
/// read the store beside it. With --engine cache, the server is a cache in memory and on flash, for what can be fetched
/// again elsewhere. Every other engine is for what must not be lost. SIGTERM and SIGINT end it cleanly. SIGHUP makes it
/// open the log file again, for logrotate, and read again what can change while it runs: users, rights, certificates,
/// the token, --idle-timeout-s, --max-connections, --verify-every and --verify-rate.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ serve\n  situ serve /var/lib/situ --sync --memory 4G\n  \
                        situ serve --listen 0.0.0.0:11211 --auth-file /etc/situ.users --tls-cert cert.pem --tls-key key.pem\n  \
                        situ serve --unix-socket /run/situ.sock --log-file /var/log/situ.log\n  \
                        situ serve --listen localhost:11211 --auth-file /etc/situ.users --disable-flush-all\n  \
                        situ serve --engine hash /var/lib/situ-hash --buckets /dev/zram0\n  \
                        situ serve --engine cache --memory 1G\n  \
                        situ serve --engine cache --memory 1G --flash /var/cache/situ --flash-size 20G")]
pub(crate) struct ServeOptions {
    #[command(flatten)]
    pub(crate) directory: Directory,
    #[command(flatten)]
    pub(crate) engine: EngineChoice,
    /// Address or name that takes connections of clients. May be given several times. For a name such as localhost, the
    /// server listens on every address that the name has
    #[arg(short, long, value_name = "HOST:PORT", default_value = "127.0.0.1:11211", value_parser = parse_listen)]
    pub(crate) listen: Vec<Listen>,
    /// Path of a Unix socket that takes connections of clients as well. Its clients may move their connections into
    /// shared memory [default: none]
    #[arg(long, value_name = "PATH")]
    pub(crate) unix_socket: Option<PathBuf>,
    /// Maximum size of each of the two rings of a connection in shared memory or over RDMA: 4K to 4M, or 0 to refuse
    /// both
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = parse_ring_bytes)]
    pub(crate) shared_ring: u64,
    /// RDMA devices over which TCP clients may move their connections: auto for any with the address of the
    /// connection, off, or the name of one. Rings of these connections take at most an eighth of the machine's memory
    #[arg(long, value_name = "DEVICE", default_value = "off", value_parser = parse_rdma)]
    pub(crate) rdma: RdmaDevices,
    /// Address that answers HTTP requests: a live page at /, /metrics for Prometheus, and /healthz
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = HTTP)]
    pub(crate) http: SocketAddr,
    /// Answer no HTTP requests: no live page, no metrics, no health
    #[arg(long, conflicts_with = "http")]
    pub(crate) no_http: bool,
    /// Answer a write only when the disk has it, so that it survives power failure. Without this it survives the end of
    /// the process
    #[arg(long)]
    pub(crate) sync: bool,
    /// Fast disk for the log and the upper levels: a Situ disk (`situ disk format`), or a directory. The store
    /// remembers it
    #[arg(long, value_name = "PATH")]
    pub(crate) fast_disk: Option<PathBuf>,
    /// How many seconds a write waits for a node that is lost. Then the store takes no more writes until it is opened
    /// again, if its log lies on the node. Reads wait 5 seconds [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) node_patience: Option<u64>,
    /// Memory for cached blocks, indexes and filters. Other memory comes on top: memtables (up to 256M), the log's
    /// buffer, waiting writes, merges, and the cache of a raw fast disk. With --engine cache it is the memory of the
    /// whole process, 32M or more, or `auto`: it follows what the machine or its control group has left, and leaves a
    /// tenth to others [default: 256M]
    #[arg(short, long, value_name = "SIZE", value_parser = parse_memory)]
    pub(crate) memory: Option<MemorySize>,
    /// Threads that serve connections, 1 to 1024 [default: one for each core]
    #[arg(short, long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,
    /// Largest number of open connections. The server refuses a further connection with an error
    #[arg(short = 'c', long, value_name = "NUMBER", default_value_t = 10_240, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: u32,
    /// Close connections without traffic for this many seconds. 0 closes none
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) idle_timeout_s: u64,
    /// Size of the largest value that a client may set
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = parse_value_bytes)]
    pub(crate) max_value: usize,
    /// Keep values of 4 KiB and more in the value log, on any disk. Compactions do not copy them. With values of this
    /// size, each measured workload is faster; dead values take a quarter more space
    /// [default: all values are in tables]
    #[arg(long, conflicts_with = "value_log_min")]
    pub(crate) value_log: bool,
    /// Like --value-log, but for values of SIZE bytes or more: 1 byte to 1G
    #[arg(long, value_name = "SIZE", value_parser = parse_value_log_bytes)]
    pub(crate) value_log_min: Option<u64>,
    /// Serve only the users in this file, which has a line user:password for each. A client authenticates as for
    /// memcached's -Y: it sends `set x 0 0 LENGTH` with the data `user password`. Without --tls-cert, both travel
    /// unencrypted [default: everybody is served]
    #[arg(long, value_name = "FILE")]
    pub(crate) auth_file: Option<PathBuf>,
    /// Rights of the users: a line user:rights for each. Rights are r to read, w to write, a to administer over HTTP,
    /// as in rw [default: all users read and write]
    #[arg(long, value_name = "FILE", requires = "auth_file")]
    pub(crate) rights_file: Option<PathBuf>,
    /// File with the certificate of the server (PEM), and those that signed it. All connections over TCP must speak TLS
    /// 1.3 then; the Unix socket stays plain [default: nothing is encrypted]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// File with the key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// File with certificates (PEM), one of which must have signed the certificate of each client [default: clients
    /// need no certificate]
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Listen on addresses that other machines can reach, though the server asks clients for neither a password nor a
    /// certificate. A firewall, or the network of a container, must keep strangers out
    #[arg(long)]
    pub(crate) allow_anonymous: bool,
    /// Run commands such as `situ compact` for callers over HTTP that show the token in this file: see --server. Only
    /// its owner and its group may open the file, and --http is an address of this machine alone [default: commands
    /// come over the socket in the store's directory]
    #[arg(long, value_name = "FILE", conflicts_with = "no_http")]
    pub(crate) admin_token_file: Option<PathBuf>,
    /// Refuse flush_all, as memcached's -F does, so that no client can remove all items at once
    #[arg(long)]
    pub(crate) disable_flush_all: bool,
    /// File that gets the log of the server [default: standard error]
    #[arg(long, value_name = "PATH")]
    pub(crate) log_file: Option<PathBuf>,
    /// Log operations of the store that take this many milliseconds or longer, with their keys and the parts of the
    /// store that took the time. The live page and `situ top` show the last ones, without keys. 0 logs none [default:
    /// 100]
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(0..=3_600_000))]
    pub(crate) slow_ms: Option<u64>,
    /// Read and check all tables, and the values in the value log, each time this many hours have passed. The log of
    /// the server, /healthz and VERIFIED.json in the store's directory have the outcome [default: never]
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u32).range(1..=8784))]
    pub(crate) verify_every: Option<u32>,
    /// How much --verify-every reads in a second at most
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = parse_bytes)]
    pub(crate) verify_rate: u64,
    /// Keep a quarter of the processors for the threads that write the log and wait for reads, and the others for all
    /// other threads. It is for a disk that answers within tens of microseconds, and needs four processors
    #[arg(long)]
    pub(crate) pin: bool,
    /// Size up to which finished log files stay for `situ changes` and `situ follow`: 128M to 512M, or 0 for none. Each
    /// flush, checkpoint and backup ends a file, which takes some 65M. The store remembers the size
    /// [default: what the store remembers, and 0 in a new one]
    #[arg(long, value_name = "SIZE", value_parser = parse_kept_bytes)]
    pub(crate) keep_changes: Option<u64>,
    #[command(flatten)]
    pub(crate) flash: FlashChoice,
    #[command(flatten)]
    pub(crate) compaction: CompactionSettings,
    /// File with more options, in TOML: the long names of these, below [serve]. Options of the command line and of the
    /// environment (SITU_SERVE_MEMORY for --memory) come first
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// All options, with their sources.
    #[arg(skip)]
    pub(crate) in_force: Vec<InForce>,
}

const FLASH_HEADING: &str = "Flash of a cache (--engine cache)";

/// Where a cache keeps what memory has no room for.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct FlashChoice {
    /// Drive that gets items when memory needs their room: a block device, or a file. It is empty, or holds a cache
    /// [default: none]
    #[arg(long, value_name = "PATH", help_heading = FLASH_HEADING)]
    pub(crate) flash: Option<PathBuf>,
    /// Size of the file, which is made if it does not exist
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, requires = "flash", help_heading = FLASH_HEADING)]
    pub(crate) flash_size: Option<u64>,
    /// How the names of small files begin with whose help the items on flash outlive the process. Without them a block
    /// device begins empty at each start [default: the name of the flash, if it is a file]
    #[arg(long, value_name = "PREFIX", requires = "flash", help_heading = FLASH_HEADING)]
    pub(crate) flash_journal: Option<PathBuf>,
    /// Which items go to flash: all, or those that were read in memory, which spares the drive [default: all]
    #[arg(long, value_name = "WHICH", requires = "flash", help_heading = FLASH_HEADING)]
    pub(crate) flash_admission: Option<AdmissionName>,
}

/// Which items go to flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AdmissionName {
    /// All items
    All,
    /// Items that were read in memory, or were stored again soon after they had gone
    Read,
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

#[expect(clippy::unnecessary_wraps, reason = "the signature of a parser")]
fn parse_rdma(text: &str) -> Result<RdmaDevices, String> {
    Ok(match text {
        "auto" => RdmaDevices::Any,
        "off" => RdmaDevices::Off,
        name => RdmaDevices::Named(name.to_owned()),
    })
}

/// The least and the most for `--memory`: with less than a megabyte not even the indexes of a small store are kept.
const MEMORY_BYTES: RangeInclusive<u64> = 1 << 20..=16 << 40;

/// What `--memory` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemorySize {
    Bytes(u64),
    /// As much as there is.
    Auto,
}

fn parse_memory(text: &str) -> Result<MemorySize, String> {
    if text == "auto" {
        return Ok(MemorySize::Auto);
    }
    let bytes = parse_bytes(text)?;
    match MEMORY_BYTES.contains(&bytes) {
        true => Ok(MemorySize::Bytes(bytes)),
        false => Err("memory is from 1M to 16T; 256M is the default".to_owned()),
    }
}

/// Parses the limit of log files for change feeds.
fn parse_kept_bytes(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes == 0 || (128 << 20..=512 << 20).contains(&bytes) => Ok(bytes),
        _ => Err("finished log files of 128M to 512M can stay; 0 keeps none".to_owned()),
    }
}

/// Parses the limit of rings.
fn parse_ring_bytes(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes == 0 || (4 << 10..=4 << 20).contains(&bytes) => Ok(bytes),
        _ => Err("a ring has 4K to 4M; 0 refuses rings".to_owned()),
    }
}

/// From which size on values lie in the value log.
fn parse_value_log_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    match (1..=1 << 30).contains(&bytes) {
        true => Ok(bytes),
        false => Err("this option takes 1 byte to 1G".to_owned()),
    }
}

/// Parses a limit of values that a server can keep.
fn parse_value_bytes(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text)?;
    match usize::try_from(bytes) {
        Ok(bytes) if (1..=MAX_VALUE_BYTES_LIMIT).contains(&bytes) => Ok(bytes),
        _ => {
            Err(format!("a value has 1 to {MAX_VALUE_BYTES_LIMIT} bytes; {}M is the most", MAX_VALUE_BYTES_LIMIT >> 20))
        }
    }
}

impl ServeOptions {
    /// Refuses commands over HTTP, for what has none.
    ///
    /// # Errors
    /// They were asked for.
    pub(crate) fn check_without_commands(&self, whom: &str) -> Result<(), Failure> {
        refuse_for(whom, &[(self.admin_token_file.is_some(), "--admin-token-file")])
    }

    /// Options that only an ordered store has, and whether they were given.
    fn of_ordered_stores(&self) -> [(bool, &'static str); 13] {
        let CompactionSettings { compaction, compaction_rules, tables_per_job, accelerator, check_units } =
            &self.compaction;
        [
            (self.fast_disk.is_some(), "--fast-disk"),
            (self.value_log, "--value-log"),
            (self.value_log_min.is_some(), "--value-log-min"),
            (self.node_patience.is_some(), "--node-patience"),
            (self.slow_ms.is_some(), "--slow-ms"),
            (self.verify_every.is_some(), "--verify-every"),
            (self.keep_changes.is_some(), "--keep-changes"),
            (self.admin_token_file.is_some(), "--admin-token-file"),
            (*compaction != CompactionSettings::default().compaction, "--compaction"),
            (compaction_rules.is_some(), "--compaction-rules"),
            (tables_per_job.is_some(), "--tables-per-job"),
            (*accelerator != CompactionSettings::default().accelerator, "--accelerator"),
            (check_units.is_some(), "--check-units"),
        ]
    }

    /// Memory of an ordered store's caches, if it was given.
    ///
    /// # Errors
    /// It is to follow the machine's: only a cache does.
    pub(crate) fn store_memory(&self) -> Result<Option<u64>, Failure> {
        match self.memory {
            None => Ok(None),
            Some(MemorySize::Bytes(bytes)) => Ok(Some(bytes)),
            Some(MemorySize::Auto) => Err(Failure::usage("--memory auto is for caches; say --engine cache, or a size")),
        }
    }

    /// Options that mean nothing to a hash store.
    ///
    /// # Errors
    /// One was given; the text names it.
    pub(crate) fn check_for_hash(&self) -> Result<(), Failure> {
        refuse_for_hash(&self.of_ordered_stores())?;
        refuse_for_hash(&[(self.memory.is_some(), "--memory")])?;
        self.check_without_flash()?;
        self.directory.check_for_hash()
    }

    /// Stores have no flash tier.
    ///
    /// # Errors
    /// There is one in the options.
    pub(crate) fn check_without_flash(&self) -> Result<(), Failure> {
        match self.flash.flash {
            Some(_) => Err(Failure::usage("--flash is for caches; say --engine cache, or leave out --flash")),
            None => Ok(()),
        }
    }

    /// Options that mean nothing to a cache.
    ///
    /// # Errors
    /// One was given; the text names it.
    pub(crate) fn check_for_cache(&self) -> Result<(), Failure> {
        let whom = "the cache, which keeps items only as long as there is room";
        refuse_for(whom, &self.of_ordered_stores())?;
        refuse_for(
            whom,
            &[
                (self.engine.buckets.is_some(), "--buckets"),
                (self.sync, "--sync"),
                (self.pin, "--pin"),
                (self.directory.is_given(), "a directory"),
            ],
        )
    }
}
