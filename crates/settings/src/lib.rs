//! Options, sizes and figures that the command lines of the server and of the benchmark share.
//!
//! * [`CompactionSettings`]: the options of compactions. [`RulesFile`] is the file of rules that one of them names.
//! * [`parse_bytes`] and [`parse_count`]: sizes and counts as people write them.
//! * [`figures`]: numbers with units, for people.

#![forbid(unsafe_code)]

mod accelerator;
mod compaction;
mod error;
pub mod figures;
mod parse;
mod rules;

pub use accelerator::{AcceleratorName, CheckUnits};
pub use compaction::{CompactionSettings, PolicyName};
pub use error::{Error, Result};
pub use parse::{parse_bytes, parse_bytes_within, parse_count};
pub use rules::{Rules, RulesFile, SideName};
