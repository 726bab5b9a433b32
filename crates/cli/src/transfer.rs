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
    asked.unwrap_or_else(|| match extension(packed::unpacked_name(path)).as_str() {
        "csv" => Format::Csv,
        "tsv" | "tab" => Format::Tsv,
        _ => Format::Jsonl,
    })
}

/// Returns the extension of a file name, in lower case.
fn extension(path: &Path) -> String {
    path.extension().and_then(|extension| extension.to_str()).unwrap_or_default().to_ascii_lowercase()
}

/// Returns true if the path stands for standard input or output.
fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}
