//! The settings of a RocksDB database, from its newest OPTIONS file.
//!
//! RocksDB's own loader makes objects of all that it knows and leaves out in silence what it does not. To refuse a
//! database by name, its settings have to be read as text: sections in brackets, one `name=value` a line; an object is
//! its name, or `{id=NAME;...}`. A database without such a file (of LevelDB, or of an old RocksDB) has said nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// The directory of its log, if that is not the one of its other files.
    pub(super) wal_dir: Option<PathBuf>,
    /// By name.
    pub(super) families: BTreeMap<String, FamilySettings>,
}

/// The settings that bear on the meaning of a column family's entries. `None` is RocksDB's default.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FamilySettings {
    pub(super) comparator: Option<String>,
    pub(super) merge_operator: Option<String>,
    pub(super) table_factory: Option<String>,
    /// The values end in the four bytes in which `DBWithTTL` keeps their time.
    pub(super) has_ttl: bool,
}

impl Settings {
    /// Those of the newest file in `directory`.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read(directory: &Path) -> io::Result<Settings> {
        let mut newest = None;
        for entry in fs::read_dir(directory)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("OPTIONS-")?.parse::<u64>().ok());
            newest = newest.max(number.map(|number| (number, name)));
        }
        match newest {
            Some((_, name)) => {
                fs::read(directory.join(name)).map(|text| Settings::parse(&String::from_utf8_lossy(&text)))
            }
            None => Ok(Settings::default()),
        }
    }

    fn parse(text: &str) -> Settings {
        let mut settings = Settings::default();
        let mut section = "";
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = name;
                if let Some(family) = family_of(section) {
                    settings.families.entry(family.to_owned()).or_default();
                }
                continue;
            }
            let Some((name, value)) = line.split_once('=') else { continue };
            if section == "DBOptions" {
                if name == "wal_dir" {
                    settings.wal_dir = (!value.is_empty()).then(|| PathBuf::from(value));
                }
            } else if let Some(family) = family_of(section) {
                settings.families.entry(family.to_owned()).or_default().take(name, value);
            }
        }
        settings
    }
}

/// Returns the column family whose section has this title.
fn family_of(section: &str) -> Option<&str> {
    section.strip_prefix("CFOptions \"")?.strip_suffix('"')
}

impl FamilySettings {
    fn take(&mut self, name: &str, value: &str) {
        let id = match value.strip_prefix("{id=") {
            Some(rest) => rest.split([';', '}']).next().unwrap_or_default(),
            None => value,
        };
        let object = || (!id.is_empty() && id != "nullptr").then(|| id.to_owned());
        match name {
            "comparator" => self.comparator = object(),
            "merge_operator" => self.merge_operator = object(),
            "table_factory" => self.table_factory = object(),
            "compaction_filter" | "compaction_filter_factory" => {
                self.has_ttl |= object().is_some_and(|id| id.starts_with("TtlCompactionFilter"));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bears_on_entries_is_found() {
        let settings = Settings::parse(
            "# comment\n[Version]\n  options_file_version=1.1\n[DBOptions]\n  wal_dir=/logs/a\n  db_log_dir=\n\n\
             [CFOptions \"default\"]\n  comparator=leveldb.BytewiseComparator\n  merge_operator=nullptr\n\
             [TableOptions/BlockBasedTable \"default\"]\n  comparator=none\n\
             [CFOptions \"a=[b]\"]\n  comparator={id=own;x=1}\n  merge_operator={id=StringAppendOperator;delimiter=,;}\n  \
             compaction_filter_factory={id=TtlCompactionFilterFactory;ttl=5;}\n  table_factory=PlainTable\n",
        );
        assert_eq!(settings.wal_dir, Some(PathBuf::from("/logs/a")));
        assert_eq!(settings.families.len(), 2);
        let plain = &settings.families["default"];
        assert_eq!(plain.comparator.as_deref(), Some("leveldb.BytewiseComparator"));
        assert_eq!((plain.merge_operator.as_deref(), plain.has_ttl), (None, false));
        let other = &settings.families["a=[b]"];
        assert_eq!(other.comparator.as_deref(), Some("own"));
        assert_eq!(other.merge_operator.as_deref(), Some("StringAppendOperator"));
        assert_eq!((other.table_factory.as_deref(), other.has_ttl), (Some("PlainTable"), true));
    }
}
