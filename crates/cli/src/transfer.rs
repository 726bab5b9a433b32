//! Entries between files and stores: `load` and `dump`.

mod dump;
mod load;
pub(crate) mod packed;
pub(crate) mod records;
pub(crate) mod sink;
mod target;

pub(crate) use dump::dump;
pub(crate) use load::load;

use crate::options::Format;
use std::path::Path;

/// Returns the requested format, or the one that the file name indicates, as in `people.csv` and `people.csv.gz`.
fn format_of(asked: Option<Format>, path: &Path) -> Format {
    asked.unwrap_or_else(|| match packed::unpacked_name(path).extension().and_then(|extension| extension.to_str()) {
        Some("csv") => Format::Csv,
        Some("tsv" | "tab") => Format::Tsv,
        _ => Format::Jsonl,
    })
}

/// Returns true if the path stands for standard input or output.
fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}
