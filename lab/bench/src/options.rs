//! The options of a run: workloads, sizes, load and the place of the store.
//!
//! Defaults are db_bench's and YCSB's, so that a result can be compared with published ones, but for `seek_entries`:
//! db_bench's seek_nexts is 0, and a seek that reads nothing is rare outside of benchmarks. The whole of it is kept in
//! the result.

use std::path::PathBuf;

use clap::builder::ArgPredicate;
use clap::{Args, Parser, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::content::{KeyFormat, RecordShape};
use crate::error::{Error, Result};
use crate::replay::Pace;
use crate::schedule::ValueSchedule;
use crate::workloads::Workload;
use situ_settings::{parse_bytes_within, parse_count};

/// YCSB's request distributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Every record is as likely as any other.
    Uniform,
    /// Zipfian with the constant 0.99; a hash scatters the likely records over the keys.
    Zipfian,
    /// Zipfian over the age of records: the newest are the likeliest.
    Latest,
    /// 80% of the requests go to 20% of the records.
    Hotspot,
}

/// The order in which YCSB's records are inserted, as key order sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum InsertOrder {
    /// Keys are hashes, so inserts come in random order.
    #[default]
    Hashed,
    /// Keys are numbers, so inserts come in key order.
    Ordered,
}

/// The mapping of an update of one YCSB field to a store without fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateMapping {
    /// Read the record, replace one field and write the whole record, as YCSB's RocksDB binding does. A
    /// read-modify-write reads twice: once for itself and once for its update.
    #[default]
    Merge,
    /// Write a whole new record without reading the old one. A read-modify-write reads once.
    Whole,
}

/// The transport of connections to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Shared memory or RDMA if the server offers it, and the socket otherwise.
    #[default]
    Auto,
    /// The socket.
    Socket,
    /// Shared memory, or an error.
    SharedMemory,
    /// RDMA, or an error.
    Rdma,
}

/// Options of a run. Counts accept the suffixes k, m and g, which are powers of 1000; sizes accept K, M and G, which
/// are powers of 1024.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct BenchOptions {
    /// Workloads, which run in this order on one store. fillseq, fillrandom, fillsync, ycsb-load and linkbench-load
    /// start with an empty store
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "NAME,...",
        default_value = "fillrandom,readrandom",
        default_value_if("replay", ArgPredicate::IsPresent, "replay"),
        help_heading = WORKLOADS
    )]
    pub workloads: Vec<Workload>,

    /// Trace whose requests the workload replay issues, as `situ trace` records it. A new store, or a server, first
    /// gets what the trace finds: a generated value for each key that a request hits before one stores it. --operations
    /// limits the number of requests
    #[arg(long, value_name = "FILE", help_heading = WORKLOADS)]
    pub replay: Option<PathBuf>,

    /// Time at which a replay issues a request. recorded: the client's time, counted from the beginning of the trace.
    /// full: as soon as a thread is free
    #[arg(long, value_enum, value_name = "PACE", default_value_t, requires = "replay", help_heading = LOAD)]
    pub pace: Pace,

    /// Number of distinct keys (db_bench), or of records that are loaded (YCSB). Accepts 100k, 5m and 1g
    #[arg(long, value_name = "NUMBER", default_value = "1m", value_parser = parse_count, help_heading = WORKLOADS)]
    pub keys: u64,

    /// Number of operations: of each thread in db_bench's workloads, as db_bench counts; of all threads together in
    /// YCSB's [default: the number of keys; a thousandth of it for fillsync]
    #[arg(long, value_name = "NUMBER", value_parser = parse_count, help_heading = WORKLOADS)]
    pub operations: Option<u64>,

    /// Threads that issue requests, 1 to 4096
    #[arg(long, value_name = "NUMBER", default_value_t = 1, help_heading = LOAD)]
    pub threads: u32,

    /// Requests that each thread keeps in flight, 1 to 65536. More than one needs asynchronous requests, which scans
    /// and batches are not
    #[arg(long, value_name = "NUMBER", default_value_t = 1, help_heading = LOAD)]
    pub outstanding: u32,

    /// Requests per second of all threads together. Latency then counts from the moment at which a request was due, so
    /// a store that stalls is charged for the requests that waited [default: each thread issues its next request when
    /// the last one is done]
    #[arg(long, value_name = "NUMBER", value_parser = parse_count, help_heading = LOAD)]
    pub rate: Option<u64>,

    /// Longest run time of each workload in seconds
    #[arg(long, value_name = "SECONDS", help_heading = LOAD)]
    pub duration_seconds: Option<f64>,

    /// Size of a key (db_bench), 1 to 65536 bytes
    #[arg(long, value_name = "SIZE", default_value_t = 16, value_parser = parse_key_bytes, help_heading = ENTRIES)]
    pub key_bytes: usize,

    /// Size of a value (db_bench), at most 1G
    #[arg(long, value_name = "SIZE", default_value_t = 100, value_parser = parse_value_bytes, help_heading = ENTRIES)]
    pub value_bytes: usize,

    /// Value sizes that change while a workload runs, as in 30:64Kx80+1Kx20,70:1K: 30% of the requests write 64K, 80
    /// times in 100, or 1K; then 70% write 1K. Stands in for --value-bytes, and for the size of the records that YCSB's
    /// workloads write after ycsb-load: those have no fields
    #[arg(long, value_name = "SCHEDULE", help_heading = ENTRIES)]
    pub value_schedule: Option<ValueSchedule>,

    /// How the number of a key is written (db_bench); decimal with --connect
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value_t,
        default_value_if("connect", ArgPredicate::IsPresent, "decimal"),
        help_heading = ENTRIES
    )]
    pub key_format: KeyFormat,

    /// Share of its size to which a value can be compressed, above 0 and at most 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, help_heading = ENTRIES)]
    pub compression_ratio: f64,

    /// Entries of one write batch in fillseq, fillrandom, fillsync and overwrite
    #[arg(long, value_name = "NUMBER", default_value_t = 1, help_heading = LOAD)]
    pub batch_entries: u32,

    /// Entries that seekrandom reads after each seek, the entry that it seeks included. db_bench reads none by default
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = parse_count, help_heading = LOAD)]
    pub seek_entries: u64,

    /// Share of reads in mixed and ycsb-mixed, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 90, help_heading = LOAD)]
    pub read_percent: u32,

    /// Writes per second of the writer in readwhilewriting [default: no limit]
    #[arg(long, value_name = "NUMBER", value_parser = parse_count, help_heading = LOAD)]
    pub background_rate: Option<u64>,

    /// Sync every write to the disk before it returns, so that it survives power failure
    #[arg(long, help_heading = LOAD)]
    pub sync: bool,

    /// Seed of the random numbers. The same seed gives the same requests
    #[arg(long, value_name = "NUMBER", default_value_t = 1, help_heading = LOAD)]
    pub seed: u64,

    /// Distribution of YCSB's requests over the records [default: the workload's own]
    #[arg(long, value_enum, value_name = "NAME", help_heading = YCSB)]
    pub distribution: Option<Distribution>,

    /// Order in which YCSB's records are inserted
    #[arg(long, value_enum, value_name = "ORDER", default_value_t, help_heading = YCSB)]
    pub insert_order: InsertOrder,

    /// How YCSB's update of one field becomes a write
    #[arg(long, value_enum, value_name = "MAPPING", default_value_t, help_heading = YCSB)]
    pub update_mapping: UpdateMapping,

    /// Fields of a YCSB record, 1 to 10000
    #[arg(long, value_name = "NUMBER", default_value_t = 10, help_heading = YCSB)]
    pub fields: usize,

    /// Size of a YCSB field, at most 1M
    #[arg(long, value_name = "SIZE", default_value_t = 100, value_parser = parse_field_bytes, help_heading = YCSB)]
    pub field_bytes: usize,

    /// Longest YCSB scan, in entries. Lengths are uniform from 1
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = parse_count, help_heading = YCSB)]
    pub scan_entries_max: u64,

    /// Digits of a YCSB key, padded with zeros, at most 1000
    #[arg(long, value_name = "NUMBER", default_value_t = 1, help_heading = YCSB)]
    pub zero_padding: usize,

    /// Do not wait for background work after a workload that writes. Write amplification then leaves out what
    /// compactions still have to write
    #[arg(long, help_heading = LOAD)]
    pub no_settle: bool,

    /// Server to drive instead of a store, by memcached's protocol: HOST:PORT, or the path of a Unix socket. The
    /// benchmark never empties it, and leaves its entries there
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["directory", "keep"], help_heading = PLACE)]
    pub connect: Option<String>,

    /// Transport to the server: auto is shared memory for a Unix socket and RDMA for TCP, if the server offers it
    #[arg(long, value_enum, value_name = "NAME", default_value_t, requires = "connect", help_heading = PLACE)]
    pub transport: Transport,

    /// File with certificates (PEM), one of which has signed that of the server: its connections speak TLS then
    #[arg(long, value_name = "FILE", requires = "connect", help_heading = PLACE)]
    pub tls_ca: Option<PathBuf>,

    /// Directory in which the benchmark makes its store, as a subdirectory "store"
    #[arg(long, value_name = "DIR", default_value = "situ-bench-data", help_heading = PLACE)]
    pub directory: PathBuf,

    /// Use the store that an earlier run has kept. No workload then starts with an empty store
    #[arg(long, help_heading = PLACE)]
    pub existing: bool,

    /// Keep the store at the end
    #[arg(long, help_heading = PLACE)]
    pub keep: bool,

    /// Name of this run in tables and charts [default: the name of the store]
    #[arg(long, value_name = "NAME", help_heading = RESULT)]
    pub label: Option<String>,

    /// Commit of the code under test, which the result then names
    #[arg(long, value_name = "COMMIT", help_heading = RESULT)]
    pub commit: Option<String>,
}

/// Headings under which `--help` groups the options.
const WORKLOADS: &str = "Workloads";
const LOAD: &str = "Load";
const ENTRIES: &str = "Keys and values";
const YCSB: &str = "YCSB";
const PLACE: &str = "Store";
const RESULT: &str = "Result";

/// Bounds of sizes, in bytes.
const KEY_BYTES_MAX: u64 = 65_536;
const VALUE_BYTES_MAX: u64 = 1 << 30;
const FIELD_BYTES_MAX: u64 = 1 << 20;
/// Digits of a YCSB key at most.
const ZERO_PADDING_MAX: usize = 1000;
/// Distinct keys at most: there is a bit of memory for each.
const KEYS_MAX: u64 = 100_000_000_000;

fn parse_key_bytes(text: &str) -> std::result::Result<usize, String> {
    parse_bytes_within(text, 1, KEY_BYTES_MAX).map(|bytes| bytes as usize)
}

fn parse_value_bytes(text: &str) -> std::result::Result<usize, String> {
    parse_bytes_within(text, 0, VALUE_BYTES_MAX).map(|bytes| bytes as usize)
}

fn parse_field_bytes(text: &str) -> std::result::Result<usize, String> {
    parse_bytes_within(text, 0, FIELD_BYTES_MAX).map(|bytes| bytes as usize)
}

impl Default for BenchOptions {
    /// Returns the options of an empty command line: the defaults are stated once, on the fields.
    fn default() -> Self {
        #[derive(Parser)]
        struct Empty {
            #[command(flatten)]
            options: BenchOptions,
        }
        Empty::parse_from(["bench"]).options
    }
}

impl BenchOptions {
    /// Refuses what cannot be run or would measure something else than it says.
    ///
    /// # Errors
    /// [`Error::Options`], which names the option and what it takes.
    pub fn check(&self) -> Result<()> {
        let refuse = |text: String| Err(Error::Options(text));
        if self.workloads.is_empty() {
            return refuse("--workloads names no workload".to_owned());
        }
        let numbers = [
            ("keys", self.keys, 1..=KEYS_MAX),
            ("operations", self.operations.unwrap_or(1), 1..=u64::MAX),
            ("threads", u64::from(self.threads), 1..=4096),
            ("outstanding", u64::from(self.outstanding), 1..=65_536),
            ("rate", self.rate.unwrap_or(1), 1..=u64::MAX),
            ("key-bytes", self.key_bytes as u64, 1..=KEY_BYTES_MAX),
            ("value-bytes", self.value_bytes as u64, 0..=VALUE_BYTES_MAX),
            ("batch-entries", u64::from(self.batch_entries), 1..=1_000_000),
            ("seek-entries", self.seek_entries, 0..=u64::MAX),
            ("read-percent", u64::from(self.read_percent), 0..=100),
            ("background-rate", self.background_rate.unwrap_or(1), 1..=u64::MAX),
            ("fields", self.fields as u64, 1..=10_000),
            ("field-bytes", self.field_bytes as u64, 0..=FIELD_BYTES_MAX),
            ("scan-entries-max", self.scan_entries_max, 1..=u64::MAX),
            ("zero-padding", self.zero_padding as u64, 0..=ZERO_PADDING_MAX as u64),
        ];
        for (option, given, allowed) in numbers {
            if given == 0 && !allowed.contains(&0) {
                return refuse(format!("--{option} must not be zero"));
            }
            if !allowed.contains(&given) {
                return refuse(format!("--{option} is {given}, and must be at most {}", allowed.end()));
            }
        }
        let capacity = crate::content::key_capacity(self.key_format, self.key_bytes);
        if self.keys > capacity {
            return refuse(format!(
                "--keys is {}, and keys of {} bytes have {capacity} values only; give more with --key-bytes",
                self.keys, self.key_bytes
            ));
        }
        if !(self.compression_ratio > 0.0 && self.compression_ratio <= 1.0) {
            return refuse("--compression-ratio must be above 0 and at most 1".to_owned());
        }
        if self.duration_seconds.is_some_and(|seconds| !(seconds > 0.0 && seconds <= 1e6)) {
            return refuse("--duration-seconds must be above 0 and at most 1000000".to_owned());
        }
        if let Some(workload) = self.workloads.iter().find(|workload| workload.updates_fields(self))
            && self.value_schedule.is_some()
        {
            return refuse(format!(
                "{workload} updates fields, and the records of --value-schedule have none; give --update-mapping whole"
            ));
        }
        match (self.workloads.contains(&Workload::Replay), self.replay.is_some()) {
            (true, false) => return refuse("the workload replay needs a trace: give --replay".to_owned()),
            (false, true) => {
                return refuse("--replay is for the workload replay, which --workloads leaves out".to_owned());
            }
            (true, true) if self.rate.is_some() && self.pace == Pace::Recorded => {
                return refuse("a replay at its recorded pace has no --rate: give --pace full".to_owned());
            }
            _ => {}
        }
        if self.connect.is_some() {
            self.check_served()?;
        }
        if self.outstanding > 1 {
            for workload in &self.workloads {
                if let Some(why) = workload.refuses_outstanding(self) {
                    return refuse(format!("{workload} cannot keep requests outstanding: {why}"));
                }
            }
        }
        Ok(())
    }

    /// Refuses what a server cannot be asked for by memcached's protocol.
    fn check_served(&self) -> Result<()> {
        for workload in &self.workloads {
            if let Some(why) = workload.refuses_server() {
                return Err(Error::Options(format!("{workload} cannot be run on a server: {why}")));
            }
        }
        let key_bytes_max = situ_client::KEY_BYTES_MAX;
        let refusals = [
            (self.sync, "--sync: the server decides when writes are synced".to_owned()),
            (self.batch_entries > 1, "--batch-entries: the protocol has no batches".to_owned()),
            (self.outstanding > 1, "--outstanding: give more --threads, which have a connection each".to_owned()),
            (
                self.key_format == KeyFormat::BigEndian,
                "--key-format big-endian: the protocol takes printable keys only; give decimal".to_owned(),
            ),
            (
                self.key_bytes >= key_bytes_max || 4 + self.zero_padding > key_bytes_max,
                // One more byte is for the keys of readmissing.
                format!("keys of more than {key_bytes_max} bytes: give less --key-bytes or --zero-padding"),
            ),
        ];
        match refusals.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, text)) => Err(Error::Options(format!("--connect excludes {text}"))),
            None => Ok(()),
        }
    }

    /// Returns the shape of YCSB's records.
    #[must_use]
    pub fn record_shape(&self) -> RecordShape {
        RecordShape { fields: self.fields, field_bytes: self.field_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_cannot_be_run_are_refused() {
        let refused = |change: fn(&mut BenchOptions)| {
            let mut options = BenchOptions::default();
            options.check().expect("the defaults are good");
            change(&mut options);
            options.check().expect_err("must be refused").to_string()
        };
        assert!(refused(|options| options.keys = 0).contains("zero"));
        assert!(refused(|options| options.key_bytes = 2).contains("65536"));
        assert!(refused(|options| options.compression_ratio = 0.0).contains("ratio"));
        assert!(refused(|options| options.rate = Some(0)).contains("zero"));
        let scan = refused(|options| {
            options.outstanding = 4;
            options.workloads = vec![Workload::YcsbE];
        });
        assert!(scan.contains("ycsb-e"), "{scan}");
        let fields = refused(|options| {
            options.value_schedule = Some("100:1K".parse().expect("schedule"));
            options.workloads = vec![Workload::YcsbLoad, Workload::YcsbMixed];
        });
        assert!(fields.contains("ycsb-mixed") && fields.contains("whole"), "{fields}");
    }

    #[test]
    fn what_the_protocol_lacks_is_refused() {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            options: BenchOptions,
        }
        let parse = |line: &str| Line::try_parse_from(line.split(' ')).map(|line| line.options);
        let good = "bench --connect localhost --workloads \
                    fillseq,fillrandom,overwrite,readrandom,readmissing,readwhilewriting,deleterandom,mixed,\
                    ycsb-load,ycsb-a,ycsb-b,ycsb-c,ycsb-d,ycsb-f,ycsb-mixed";
        parse(good).expect("the line is good").check().expect("the protocol has all of this");
        for (arguments, named) in [
            ("--workloads fillsync", "fillsync"),
            ("--workloads fillrandom,readseq", "readseq"),
            ("--workloads readreverse", "readreverse"),
            ("--workloads seekrandom", "seekrandom"),
            ("--workloads ycsb-load,ycsb-e", "ycsb-e"),
            ("--workloads linkbench-load", "linkbench-load"),
            ("--workloads linkbench", "linkbench"),
            ("--workloads compact", "compact"),
            ("--workloads idle", "idle"),
            ("--sync", "--sync"),
            ("--batch-entries 2", "--batch-entries"),
            ("--outstanding 2", "--threads"),
            ("--key-format big-endian", "decimal"),
            ("--key-bytes 250", "--key-bytes"),
            ("--zero-padding 247", "--zero-padding"),
        ] {
            let options = parse(&format!("bench --connect localhost {arguments}")).expect("the line is good");
            let refusal = options.check().expect_err("must be refused").to_string();
            assert!(refusal.contains(named), "{arguments}: {refusal}");
        }
        for line in ["--connect a --directory b", "--connect a --keep", "--transport socket"] {
            assert!(parse(&format!("bench {line}")).is_err(), "{line}");
        }
    }
}
