//! Options as texts, for programs that do not have them as fields: other languages, and files of settings.
//!
//! Texts are those of properties: a number in decimal, `true`, a name. So an option that a store shows can be set
//! again.

use super::{Durability, KeyspaceOptions, Options};
use crate::{Error, Result};
use situ_table::Compression;
use situ_values::{Trim, Victims};
use std::str::FromStr;
use std::time::Duration;

impl Options {
    /// Sets the option `name` to the value that `text` denotes. Names are those of the fields of [`Options`] and, for
    /// the keyspace `default`, of [`KeyspaceOptions`].
    ///
    /// A size is a number of bytes. An option that may be absent takes `none`. `value_trim` takes `off`, `discard` or
    /// `full`; `value_victims` takes `garbage`, `fifo` or `garbage-and-age`. `slow_operation` takes milliseconds.
    /// `compression` takes `none`, `lz4`, `zstd` or `zstd level 5`, for each level, separated by commas.
    ///
    /// ```
    /// # use situ_engine as situ;
    /// use situ::Options;
    ///
    /// let mut options = Options::default();
    /// options.set("cache_bytes", "1048576")?;
    /// options.set("compression", "none, lz4, zstd level 3")?;
    /// assert_eq!(options.cache_bytes, 1 << 20);
    /// assert!(options.set("cash_bytes", "1048576").is_err());
    /// # Ok::<(), situ::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if no option has the name, if the text denotes no value of it, or if only a program in Rust
    /// can give its value: a listener, a filter, a compactor, places.
    pub fn set(&mut self, name: &str, text: &str) -> Result<()> {
        match name {
            "create_if_missing" => self.create_if_missing = parsed(name, text)?,
            "error_if_exists" => self.error_if_exists = parsed(name, text)?,
            "durability" => {
                self.durability =
                    one_of(name, text, &[("buffered", Durability::Buffered), ("synced", Durability::Synced)])?;
            }
            "cache_bytes" => self.cache_bytes = parsed(name, text)?,
            "open_tables_max" => self.open_tables_max = parsed(name, text)?,
            "log_bytes_max" => self.log_bytes_max = parsed(name, text)?,
            "changes_kept_bytes" => self.changes_kept_bytes = optional(name, text)?,
            "memtables_bytes_max" => self.memtables_bytes_max = optional(name, text)?,
            "compaction_threads" => self.compaction_threads = parsed(name, text)?,
            "compaction_bytes_per_s_max" => self.compaction_bytes_per_s_max = parsed(name, text)?,
            "requests_outstanding_max" => self.requests_outstanding_max = parsed(name, text)?,
            "transaction_locks_max" => self.transaction_locks_max = parsed(name, text)?,
            "value_segment_bytes" => self.value_segment_bytes = parsed(name, text)?,
            "value_trim" => {
                let trims = [("off", Trim::Off), ("discard", Trim::DiscardOnly), ("full", Trim::Full)];
                self.value_trim = if text == "none" { None } else { Some(one_of(name, text, &trims)?) };
            }
            "value_victims" => {
                let victims = [
                    ("garbage", Victims::Garbage),
                    ("fifo", Victims::Fifo),
                    ("garbage-and-age", Victims::GarbageAndAge),
                ];
                self.value_victims = one_of(name, text, &victims)?;
            }
            "value_inflation_percent_max" => self.value_inflation_percent_max = parsed(name, text)?,
            "slow_operation" => self.slow_operation = optional(name, text)?.map(Duration::from_millis),
            _ => self.keyspace.set(name, text)?,
        }
        Ok(())
    }
}

impl KeyspaceOptions {
    /// Sets the option `name` to the value that `text` denotes, as [`Options::set`] does.
    ///
    /// # Errors
    ///
    /// As for [`Options::set`].
    pub fn set(&mut self, name: &str, text: &str) -> Result<()> {
        match name {
            "memtable_bytes" => self.memtable_bytes = parsed(name, text)?,
            "memtables_max" => self.memtables_max = parsed(name, text)?,
            "compression" => {
                self.compression = text.split(',').map(|one| compression(name, one)).collect::<Result<_>>()?
            }
            "block_bytes" => self.block_bytes = parsed(name, text)?,
            "filter_bits_per_key" => self.filter_bits_per_key = parsed(name, text)?,
            "level0_tables" => self.level0_tables = parsed(name, text)?,
            "level0_tables_max" => self.level0_tables_max = parsed(name, text)?,
            "level_base_bytes" => self.level_base_bytes = parsed(name, text)?,
            "level_multiplier" => self.level_multiplier = parsed(name, text)?,
            "table_bytes" => self.table_bytes = parsed(name, text)?,
            "value_log_min_bytes" => self.value_log_min_bytes = optional(name, text)?,
            "uses_reserve" => self.uses_reserve = parsed(name, text)?,
            _ => return Err(Error::Invalid(format!("no option that a text can set has the name {name:?}"))),
        }
        Ok(())
    }
}

fn wrong(name: &str, text: &str) -> Error {
    Error::Invalid(format!("the option {name} has no value {text:?}"))
}

fn parsed<T: FromStr>(name: &str, text: &str) -> Result<T> {
    text.trim().parse().map_err(|_| wrong(name, text))
}

fn optional<T: FromStr>(name: &str, text: &str) -> Result<Option<T>> {
    if text == "none" { Ok(None) } else { parsed(name, text).map(Some) }
}

fn one_of<T: Copy>(name: &str, text: &str, values: &[(&str, T)]) -> Result<T> {
    values.iter().find(|(known, _)| *known == text).map(|(_, value)| *value).ok_or_else(|| wrong(name, text))
}

fn compression(name: &str, text: &str) -> Result<Compression> {
    match text.trim() {
        "none" => Ok(Compression::None),
        "lz4" => Ok(Compression::Lz4),
        "zstd" => Ok(Compression::Zstd { level: 3 }),
        text => match text.strip_prefix("zstd level ").map(str::parse) {
            Some(Ok(level)) => Ok(Compression::Zstd { level }),
            _ => Err(wrong(name, text)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets each option, and finds it in what the options show of themselves.
    #[test]
    fn each_option_that_is_shown_can_be_set() {
        let shown_only = ["compaction", "places", "compaction_filter"];
        let (mut options, defaults) = (Options::default(), Options::default());
        let texts = |name: &str, shown: &str| match name {
            "durability" => ("synced".to_owned(), "synced".to_owned()),
            "compression" => ("none, zstd,zstd level -5".to_owned(), "none, zstd level 3, zstd level -5".to_owned()),
            "value_trim" => ("discard".to_owned(), "DiscardOnly".to_owned()),
            "value_victims" => ("garbage-and-age".to_owned(), "GarbageAndAge".to_owned()),
            "slow_operation" => ("1500".to_owned(), "1.5s".to_owned()),
            _ => match shown.parse::<bool>() {
                Ok(is) => ((!is).to_string(), (!is).to_string()),
                Err(_) => ("12345".to_owned(), "12345".to_owned()),
            },
        };
        let names = |options: &Options| {
            let all = options.named().into_iter().chain(options.keyspace.named());
            all.filter(|(name, _)| !shown_only.contains(name)).collect::<Vec<_>>()
        };
        for (name, shown) in names(&defaults) {
            let (text, expected) = texts(name, &shown);
            assert_ne!(shown, expected, "{name}");
            options.set(name, &text).unwrap();
            let now = names(&options).into_iter().find(|(other, _)| *other == name).unwrap().1;
            assert_eq!(now, expected, "{name}");
            for wrong in ["", "x", "-1e9", "18446744073709551616"] {
                assert!(matches!(options.set(name, wrong), Err(Error::Invalid(text)) if text.contains(name)), "{name}");
            }
        }
        for name in ["value_trim", "slow_operation", "memtables_bytes_max", "value_log_min_bytes"] {
            options.set(name, "none").unwrap();
        }
        assert!(options.memtables_bytes_max.is_none() && options.slow_operation.is_none());
        for name in shown_only.into_iter().chain(["", "keyspace", "listener"]) {
            assert!(options.set(name, "none").is_err(), "{name}");
        }
    }
}
