//! Options of `trace`.

use super::Directory;
use crate::text::parse_bytes;
use clap::{Args, ValueEnum};
use situ_trace::{Keys, TRACE_BYTES_MAX};
use std::path::PathBuf;

/// Record the requests that a running server gets, for `situ bench --replay`.
///
/// The command runs in the server that has the store open. The server goes on as it does, and each request costs it a
/// fraction of a microsecond more meanwhile. The file has times, operations, hashes of keys, sizes, hits and latencies,
/// but no values. Ctrl-C ends the recording, and the file is whole.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  situ trace /var/lib/situ -o monday.trace\n  situ trace -o peak.trace --seconds 10 --keys plain\n  \
                        situ bench --replay monday.trace --pace full"
)]
pub(crate) struct TraceOptions {
    #[command(flatten)]
    pub(crate) directory: Directory,
    /// File to write. It must not exist
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// How long to record
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) seconds: u32,
    /// Keys in the file: hashes, which tell only which requests have the same key, or the keys themselves
    #[arg(long, value_name = "FORM", value_enum, default_value = "hash")]
    pub(crate) keys: KeysForm,
    /// Size at which the recording ends before its time, 4K to 4G. A request takes 28 bytes
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_trace_bytes)]
    pub(crate) max_size: u64,
}

/// The form of the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeysForm {
    /// Hashes of keys
    Hash,
    /// Keys as they are
    Plain,
}

impl From<KeysForm> for Keys {
    fn from(form: KeysForm) -> Keys {
        match form {
            KeysForm::Hash => Keys::Hashed,
            KeysForm::Plain => Keys::Plain,
        }
    }
}

fn parse_trace_bytes(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if (4 << 10..=4 << 30).contains(&bytes) => Ok(bytes.min(TRACE_BYTES_MAX - TRACE_SLACK_BYTES)),
        _ => Err("a trace has 4K to 4G".to_owned()),
    }
}

/// The size of what a server may write behind the end of a recording: all that had gathered.
const TRACE_SLACK_BYTES: u64 = 32 << 20;
