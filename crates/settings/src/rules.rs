//! The file of rules by which each side of a store decides how compactions run: `situ bench calibrate` writes it,
//! `--compaction-rules` reads it. `docs/formats/compaction-rules.md` describes it.
//!
//! **Failure.** A field that is unknown, missing or out of its bounds is an error that names the file. Nothing has a
//! default that a reader of the file would not see, but for the fields that the page calls optional.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use situ::offload::Policy;
use situ::offload::{DecisionRules, ModeRule};
use situ_compaction::MEASURE_NAME_BYTES_MAX;
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

/// The number of the format.
const FORMAT: u32 = 1;
/// Most further measures, and most threads that merge: as a node takes them.
const FURTHER_MAX: usize = 64;
const MERGE_THREADS_MAX: u32 = 256;

/// A side of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum SideName {
    /// The machine that has the store open.
    #[default]
    Host,
    /// The nodes.
    Elsewhere,
}

/// The contents of the file: rules for one side, or for both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RulesFile {
    format: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<Rules>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    elsewhere: Option<Rules>,
}

/// [`DecisionRules`] as the file has them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    processors_weight: f64,
    memory_weight: f64,
    large_values_weight: f64,
    large_value_bytes: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    further_weights: BTreeMap<String, f64>,
    threshold: f64,
    hysteresis: f64,
    dwell_min_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    read_p99_factor_max: Option<f64>,
    merge_threads: u32,
}

impl Default for RulesFile {
    /// Rules for no side.
    fn default() -> RulesFile {
        RulesFile { format: FORMAT, host: None, elsewhere: None }
    }
}

impl RulesFile {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::File`], or [`Error::Options`] if it is no file of rules; both name the file.
    pub fn read(path: &Path) -> Result<RulesFile> {
        let text = fs::read_to_string(path).map_err(|error| Error::file(path, error))?;
        RulesFile::parse(&text).map_err(|why| {
            Error::Options(format!(
                "{}: no rules of compactions, as `situ bench calibrate` writes them: {why}",
                path.display()
            ))
        })
    }

    /// Reads the file like [`read`](RulesFile::read); without a file, there are rules for no side.
    ///
    /// # Errors
    /// As there.
    pub fn read_if_there(path: &Path) -> Result<RulesFile> {
        match RulesFile::read(path) {
            Err(Error::File { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(RulesFile::default()),
            read => read,
        }
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// The fault of the text.
    pub fn parse(text: &str) -> std::result::Result<RulesFile, String> {
        let file: RulesFile = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if file.format != FORMAT {
            return Err(format!("its format is {}, and this program reads {FORMAT}", file.format));
        }
        for (name, rules) in [("host", &file.host), ("elsewhere", &file.elsewhere)] {
            rules.as_ref().map_or(Ok(()), Rules::check).map_err(|why| format!("{name}: {why}"))?;
        }
        Ok(file)
    }

    /// Writes the file, first under a name of its own: a reader meanwhile finds the old file whole.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).expect("rules are JSON");
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let beside = Path::new(&beside);
        let written = fs::File::create(beside).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()
        });
        written.and_then(|()| fs::rename(beside, path)).map_err(|error| {
            let _ = fs::remove_file(beside);
            Error::file(path, error)
        })
    }

    /// Replaces the rules of a side.
    pub fn set(&mut self, side: SideName, rules: &DecisionRules) {
        let rules = Some(Rules::from(rules));
        match side {
            SideName::Host => self.host = rules,
            SideName::Elsewhere => self.elsewhere = rules,
        }
    }

    /// Gives a policy these rules, on the sides that decide.
    ///
    /// # Errors
    /// No side of the policy has rules here: it does not decide, or the file has nothing for the side that does.
    pub fn apply(&self, policy: &mut Policy) -> std::result::Result<(), String> {
        let mut applied = false;
        for (rule, rules) in [(&mut policy.host, &self.host), (&mut policy.elsewhere, &self.elsewhere)] {
            if let (ModeRule::Decided(_), Some(rules)) = (&*rule, rules) {
                *rule = ModeRule::Decided(rules.into());
                applied = true;
            }
        }
        match applied {
            true => Ok(()),
            false => {
                Err("the file has rules for no side that decides; policies that decide are copro-plus and automatic"
                    .to_owned())
            }
        }
    }
}

impl Rules {
    fn check(&self) -> std::result::Result<(), String> {
        let name_is_wrong = |name: &String| name.is_empty() || name.len() > MEASURE_NAME_BYTES_MAX;
        if let Some(name) = self.further_weights.keys().find(|name| name_is_wrong(name)) {
            return Err(format!("a measure's name has 1 to {MEASURE_NAME_BYTES_MAX} bytes: {name:?}"));
        }
        let wrong = [
            (self.hysteresis < 0.0, "hysteresis must not be below 0"),
            (self.read_p99_factor_max.is_some_and(|factor| factor < 0.0), "read_p99_factor_max must not be below 0"),
            (!(1..=MERGE_THREADS_MAX).contains(&self.merge_threads), "merge_threads is 1 to 256"),
            (self.further_weights.len() > FURTHER_MAX, "there are at most 64 further_weights"),
        ];
        wrong.into_iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(()), |(_, why)| Err(why.to_owned()))
    }
}

impl From<&DecisionRules> for Rules {
    fn from(rules: &DecisionRules) -> Rules {
        Rules {
            processors_weight: rules.cpu_weight,
            memory_weight: rules.memory_weight,
            large_values_weight: rules.large_value_weight,
            large_value_bytes: rules.large_value_bytes,
            further_weights: rules.further_weights.iter().cloned().collect(),
            threshold: rules.threshold,
            hysteresis: rules.hysteresis,
            dwell_min_ms: u64::try_from(rules.dwell_min.as_millis()).unwrap_or(u64::MAX),
            read_p99_factor_max: rules.read_p99_factor_max,
            merge_threads: rules.merge_threads,
        }
    }
}

impl From<&Rules> for DecisionRules {
    fn from(rules: &Rules) -> DecisionRules {
        DecisionRules {
            cpu_weight: rules.processors_weight,
            memory_weight: rules.memory_weight,
            large_value_weight: rules.large_values_weight,
            large_value_bytes: rules.large_value_bytes,
            further_weights: rules.further_weights.clone().into_iter().collect(),
            threshold: rules.threshold,
            hysteresis: rules.hysteresis,
            dwell_min: Duration::from_millis(rules.dwell_min_ms),
            read_p99_factor_max: rules.read_p99_factor_max,
            merge_threads: rules.merge_threads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/formats/compaction-rules.md");

    fn example() -> &'static str {
        PAGE.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap()
    }

    fn rules() -> DecisionRules {
        DecisionRules {
            cpu_weight: 1.25,
            memory_weight: 0.0,
            large_value_weight: 0.5,
            large_value_bytes: 16_384,
            further_weights: vec![("queue".to_owned(), 0.25)],
            threshold: 1.0,
            hysteresis: 0.125,
            dwell_min: Duration::from_secs(5),
            read_p99_factor_max: Some(1.5),
            merge_threads: 1,
        }
    }

    /// The page's example is what is written, and what is read.
    #[test]
    fn the_pages_example_is_read_and_written() {
        let file = RulesFile::parse(example()).unwrap();
        let mut made = RulesFile::default();
        made.set(SideName::Host, &rules());
        assert_eq!(file, made);
        assert_eq!(serde_json::to_string_pretty(&made).unwrap(), example().trim_end());
        for field in serde_json::to_value(Rules::from(&rules())).unwrap().as_object().unwrap().keys() {
            assert!(PAGE.contains(&format!("| `{field}` |")), "the page's table has no {field}");
        }
    }

    #[test]
    fn what_is_unknown_missing_or_out_of_bounds_is_refused() {
        let refused = |from: &str, to: &str| {
            assert!(example().contains(from), "{from}");
            RulesFile::parse(&example().replace(from, to)).unwrap_err()
        };
        assert!(refused("\"threshold\"", "\"treshold\"").contains("treshold"));
        assert!(refused("\"format\": 1", "\"format\": 2").contains("reads 1"));
        assert!(refused("\"threshold\": 1.0,", "").contains("threshold"));
        assert!(refused("\"threshold\": 1.0", "\"threshold\": 1e999").contains("number out of range"));
        assert!(refused("\"hysteresis\": 0.125", "\"hysteresis\": -0.125").contains("host: hysteresis"));
        assert!(refused("\"merge_threads\": 1", "\"merge_threads\": 0").contains("1 to 256"));
        assert!(refused("\"merge_threads\": 1", "\"merge_threads\": 257").contains("1 to 256"));
        assert!(refused("\"queue\"", "\"\"").contains("1 to 64 bytes"));
        assert!(refused("1.5", "-1.5").contains("read_p99_factor_max"));
        assert!(refused("\"host\"", "\"hosts\"").contains("hosts"));
    }

    #[test]
    fn rules_go_to_the_sides_that_decide() {
        let mut file = RulesFile::default();
        file.set(SideName::Elsewhere, &rules());
        let mut policy = Policy::named("copro-plus").unwrap();
        file.apply(&mut policy).unwrap();
        assert_eq!(policy.elsewhere, ModeRule::Decided(rules()));
        assert_eq!(policy.host, Policy::named("copro-plus").unwrap().host);
        let mut linear = Policy::named("co-kv").unwrap();
        assert!(file.apply(&mut linear).unwrap_err().contains("copro-plus and automatic"));
        assert!(RulesFile::default().apply(&mut policy).is_err());
    }

    #[test]
    fn a_file_keeps_the_other_side_and_leaves_nothing_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rules.json");
        let mut file = RulesFile::read_if_there(&path).unwrap();
        file.set(SideName::Host, &rules());
        file.write(&path).unwrap();
        let mut file = RulesFile::read_if_there(&path).unwrap();
        file.set(SideName::Elsewhere, &DecisionRules::copro_plus(7));
        file.write(&path).unwrap();
        let read = RulesFile::read(&path).unwrap();
        assert!(read.host.is_some() && read.elsewhere.is_some());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        fs::write(&path, "{").unwrap();
        let error = RulesFile::read_if_there(&path).unwrap_err().to_string();
        assert!(error.contains("rules.json"), "{error}");
    }
}
