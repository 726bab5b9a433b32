//! What a run is told: workloads, sizes, load and where to put the store.
//!
//! Defaults are db_bench's and YCSB's, so that a result can be set beside published ones, but for `seek_entries`: db_bench's
//! seek_nexts is 0, and a seek that reads nothing is rare outside of benchmarks. The whole of it is kept in the result.

use std::path::PathBuf;

use clap::{Args, Parser, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::content::{KeyFormat, RecordShape};
use crate::error::{Error, Result};
use crate::workload::Workload;

/// YCSB's request distributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Every record alike.
    Uniform,
    /// Zipfian, constant 0.99, scattered by a hash.
    Zipfian,
    /// Zipfian over age, newest first.
    Latest,
    /// 80 % of requests on 20 % of records.
    Hotspot,
}

/// The order in which YCSB's records are inserted, as key order sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum InsertOrder {
    /// Keys are hashes: inserts come in random order.
    #[default]
    Hashed,
    /// Keys are numbers.
    Ordered,
}

/// How an update of one YCSB field is mapped to a store without fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateMapping {
    /// Read the record, replace one field, write the whole record: what YCSB's RocksDB binding does. A read-modify-write
    /// reads twice, once for itself and once for its update.
    #[default]
    Merge,
    /// Write a whole new record without reading. A read-modify-write reads once.
    Whole,
}

/// Options of a run. Counts accept the suffixes k, m and g (powers of ten).
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct BenchOptions {
    /// Workloads, run in this order on one store. fillseq, fillrandom, fillsync and ycsb-load start a fresh store.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "fillrandom,readrandom")]
    pub workloads: Vec<Workload>,

    /// Distinct keys (db_bench), or records loaded (YCSB).
    #[arg(long, default_value = "1m", value_parser = parse_count)]
    pub keys: u64,

    /// Operations: per thread in db_bench's workloads (as db_bench counts), of all threads together in YCSB's.
    /// Defaults to the number of keys; to a thousandth of it for fillsync.
    #[arg(long, value_parser = parse_count)]
    pub operations: Option<u64>,

    /// Threads that issue requests.
    #[arg(long, default_value_t = 1)]
    pub threads: u32,

    /// Requests each thread keeps in flight. More than one needs a store with an asynchronous side.
    #[arg(long, default_value_t = 1)]
    pub outstanding: u32,

    /// Requests per second of all threads together. Latency is then counted from the moment a request was due, so that
    /// a stalled store is charged for the requests it kept waiting. Without it each thread issues its next request when
    /// the last one is done.
    #[arg(long, value_parser = parse_count)]
    pub rate: Option<u64>,

    /// Ends each workload after this time, if its operations are not done before.
    #[arg(long)]
    pub duration_seconds: Option<f64>,

    /// Size of a key (db_bench).
    #[arg(long, default_value_t = 16)]
    pub key_bytes: usize,

    /// Size of a value (db_bench).
    #[arg(long, default_value_t = 100)]
    pub value_bytes: usize,

    /// How a key's number is written (db_bench).
    #[arg(long, value_enum, default_value_t)]
    pub key_format: KeyFormat,

    /// Values compress to about this share of their size.
    #[arg(long, default_value_t = 0.5)]
    pub compression_ratio: f64,

    /// Entries per write batch in fillseq, fillrandom, fillsync and overwrite.
    #[arg(long, default_value_t = 1)]
    pub batch_entries: u32,

    /// Entries read after each seek in seekrandom, the one sought included; db_bench by default only seeks.
    #[arg(long, default_value_t = 10)]
    pub seek_entries: u64,

    /// Share of reads in mixed.
    #[arg(long, default_value_t = 90)]
    pub read_percent: u32,

    /// Writes per second of the writer in readwhilewriting; unlimited without it.
    #[arg(long, value_parser = parse_count)]
    pub background_rate: Option<u64>,

    /// Every write survives a power cut before it returns.
    #[arg(long)]
    pub sync: bool,

    /// Where the random streams begin. The same seed gives the same requests.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Distribution of YCSB's requests, instead of the workload's own.
    #[arg(long, value_enum)]
    pub distribution: Option<Distribution>,

    /// Order of YCSB's inserts.
    #[arg(long, value_enum, default_value_t)]
    pub insert_order: InsertOrder,

    /// How YCSB's updates are mapped.
    #[arg(long, value_enum, default_value_t)]
    pub update_mapping: UpdateMapping,

    /// Fields of a YCSB record.
    #[arg(long, default_value_t = 10)]
    pub fields: usize,

    /// Size of a YCSB field.
    #[arg(long, default_value_t = 100)]
    pub field_bytes: usize,

    /// Longest YCSB scan; lengths are uniform from 1.
    #[arg(long, default_value_t = 100)]
    pub scan_entries_max: u64,

    /// Digits of a YCSB key, zero-padded.
    #[arg(long, default_value_t = 1)]
    pub zero_padding: usize,

    /// Does not wait for background work after a workload that writes. Write amplification then misses unpaid debt.
    #[arg(long)]
    pub no_settle: bool,

    /// Directory to make the store in, as a subdirectory `store`.
    #[arg(long, default_value = "situ-bench-data")]
    pub directory: PathBuf,

    /// Uses the store that an earlier run kept; no workload then starts a fresh one.
    #[arg(long)]
    pub existing: bool,

    /// Keeps the store at the end.
    #[arg(long)]
    pub keep: bool,

    /// Name of this run in tables and charts; the store's name without it.
    #[arg(long)]
    pub label: Option<String>,

    /// Commit of the code under test, to be kept in the result.
    #[arg(long)]
    pub commit: Option<String>,
}

impl Default for BenchOptions {
    /// What an empty command line gives: the defaults are stated once, on the fields.
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
    pub fn check(&self) -> Result<()> {
        let refuse = |text: String| Err(Error::Options(text));
        if self.workloads.is_empty() {
            return refuse("no workload is named".to_owned());
        }
        if self.keys == 0 || self.threads == 0 || self.outstanding == 0 || self.batch_entries == 0 {
            return refuse("keys, threads, outstanding and batch-entries must not be zero".to_owned());
        }
        if self.threads > 4096 || self.outstanding > 65_536 || self.batch_entries > 1_000_000 {
            return refuse("threads are limited to 4096, outstanding to 65536, batch-entries to 1000000".to_owned());
        }
        if self.key_bytes == 0 || self.key_bytes > 65_536 || self.value_bytes > 1 << 30 {
            return refuse("key-bytes must be 1..=65536 and value-bytes at most 1 GiB".to_owned());
        }
        if self.fields == 0 || self.fields > 10_000 || self.field_bytes > 1 << 20 {
            return refuse("fields must be 1..=10000 and field-bytes at most 1 MiB".to_owned());
        }
        let capacity = crate::content::key_capacity(self.key_format, self.key_bytes);
        if self.keys > capacity {
            return refuse(format!(
                "{} keys do not fit {} key bytes, which have {capacity}",
                self.keys, self.key_bytes
            ));
        }
        if !(self.compression_ratio > 0.0 && self.compression_ratio <= 1.0) {
            return refuse("compression-ratio must be above 0 and at most 1".to_owned());
        }
        if self.read_percent > 100 {
            return refuse("read-percent must be at most 100".to_owned());
        }
        if self.rate == Some(0) || self.background_rate == Some(0) || self.scan_entries_max == 0 {
            return refuse("rates and scan-entries-max must not be zero".to_owned());
        }
        if self.duration_seconds.is_some_and(|seconds| !(seconds > 0.0 && seconds <= 1e6)) {
            return refuse("duration-seconds must be above 0 and at most a million".to_owned());
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

    /// The shape of YCSB's records.
    #[must_use]
    pub fn record_shape(&self) -> RecordShape {
        RecordShape { fields: self.fields, field_bytes: self.field_bytes }
    }
}

/// Reads a count such as `250000`, `250k` or `1.5m`.
pub fn parse_count(text: &str) -> std::result::Result<u64, String> {
    let (digits, scale) = match text.trim().to_ascii_lowercase() {
        text if text.ends_with('k') => (text[..text.len() - 1].to_owned(), 1e3),
        text if text.ends_with('m') => (text[..text.len() - 1].to_owned(), 1e6),
        text if text.ends_with('g') => (text[..text.len() - 1].to_owned(), 1e9),
        text => return text.replace('_', "").parse().map_err(|error| format!("{error}")),
    };
    let count: f64 = digits.parse().map_err(|error| format!("{error}"))?;
    let scaled = (count * scale).round();
    if (0.0..=1e18).contains(&scaled) { Ok(scaled as u64) } else { Err("out of range".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_accept_suffixes_and_refuse_nonsense() {
        assert_eq!(parse_count("250_000"), Ok(250_000));
        assert_eq!(parse_count("1.5M"), Ok(1_500_000));
        assert_eq!(parse_count("20k"), Ok(20_000));
        for text in ["", "k", "-1k", "1e30g", "nank", "12x"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }

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
    }
}
