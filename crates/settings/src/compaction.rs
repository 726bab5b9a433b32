//! The settings of compaction: the options that the benchmark and the server have in common.

use crate::accelerator::{self, AcceleratorName, CheckUnits};
use crate::error::{Error, Result};
use crate::rules::RulesFile;
use clap::Args;
use serde::{Deserialize, Serialize};
use situ::offload::{Offload, Policy};
use std::path::Path;
use std::str::FromStr;

/// The name of one of the policies that there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PolicyName(String);

impl PolicyName {
    /// Returns the policy of this name.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy::named(&self.0).expect("a name is one of Policy::NAMES")
    }
}

impl Default for PolicyName {
    fn default() -> PolicyName {
        PolicyName(Policy::default().name().to_owned())
    }
}

impl FromStr for PolicyName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<PolicyName, String> {
        match Policy::NAMES.contains(&text) {
            true => Ok(PolicyName(text.to_owned())),
            false => Err(format!("there is no such policy; there are: {}", Policy::NAMES.join(", "))),
        }
    }
}

impl TryFrom<String> for PolicyName {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<PolicyName, String> {
        text.parse()
    }
}

impl From<PolicyName> for String {
    fn from(name: PolicyName) -> String {
        name.0
    }
}

/// Who compacts what, and how.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct CompactionSettings {
    /// Who compacts what, and how. host-only and pcp: this machine compacts. co-kv and copro: a node compacts half of
    /// each job. tstore and dstore: each side compacts as much as its speed, or its free resources, allow. copro-plus:
    /// half, and each side turns pipelines off for large values. automatic: whatever proves fastest
    #[arg(long, value_name = "NAME", default_value = "automatic", value_parser = str::parse::<PolicyName>, help_heading = HEADING)]
    pub compaction: PolicyName,

    /// File with the rules by which copro-plus and automatic turn pipelines off, as `situ bench calibrate` writes it
    /// [default: the rules of the policy]
    #[arg(long, value_name = "FILE", value_parser = read_rules, help_heading = HEADING)]
    pub compaction_rules: Option<RulesFile>,

    /// Tables with which a compaction of a deeper level begins, 1 to 64. More tables fill a pipeline better, and more
    /// bytes are written in all [default: 4 with pcp, or else 1]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=64), help_heading = HEADING)]
    pub tables_per_job: Option<u32>,

    /// Accelerator that helps to compact: the name of one that `situ inspect --units` lists, off, or auto for the first
    /// one that is there. A keyspace with a compaction filter is compacted by the processor: the server's items are
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = str::parse::<AcceleratorName>, help_heading = HEADING)]
    pub accelerator: AcceleratorName,

    /// Tasks that run on a second unit, too, where the files are compared bit by bit: all, off, or one of NUMBER tasks.
    /// The store keeps the files of the processor [default: 16 with an accelerator, or else off]
    #[arg(long, value_name = "all|NUMBER|off", value_parser = str::parse::<CheckUnits>, help_heading = HEADING)]
    pub check_units: Option<CheckUnits>,
}

/// The heading under which `--help` shows them.
const HEADING: &str = "Compactions";

fn read_rules(path: &str) -> std::result::Result<RulesFile, String> {
    RulesFile::read(Path::new(path)).map_err(|error| error.to_string())
}

impl CompactionSettings {
    /// Returns what makes the compactor of a store: the policy, and the accelerator if there is one.
    ///
    /// # Errors
    /// [`Error::Options`]: as [`policy`](CompactionSettings::policy), or the accelerator cannot be used.
    pub fn offload(&self) -> Result<Offload> {
        accelerator::add(Offload::new().policy(self.policy()?), &self.accelerator, self.check_units)
    }

    /// Returns the policy with its rules.
    ///
    /// # Errors
    /// [`Error::Options`]: there are rules for a policy that does not decide.
    pub fn policy(&self) -> Result<Policy> {
        let mut policy = self.compaction.policy();
        if let Some(rules) = &self.compaction_rules {
            rules.apply(&mut policy).map_err(|why| Error::Options(format!("--compaction-rules: {why}")))?;
        }
        if let Some(tables) = self.tables_per_job {
            policy.tables_per_job = tables as usize;
        }
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::SideName;
    use situ::offload::{DecisionRules, ModeRule};

    #[test]
    fn settings_make_a_policy() {
        assert_eq!(CompactionSettings::default().policy().unwrap(), Policy::default());
        let mut rules = RulesFile::default();
        rules.set(SideName::Host, &DecisionRules::copro_plus(7));
        let mut settings = CompactionSettings {
            compaction: "copro-plus".parse().unwrap(),
            compaction_rules: Some(rules),
            tables_per_job: Some(3),
            ..CompactionSettings::default()
        };
        let policy = settings.policy().unwrap();
        assert_eq!(policy.host, ModeRule::Decided(DecisionRules::copro_plus(7)));
        assert_eq!((policy.tables_per_job, policy.name()), (3, "custom"));
        settings.compaction = "copro".parse().unwrap();
        assert!(settings.policy().unwrap_err().to_string().contains("--compaction-rules"));
        assert!("co-pro".parse::<PolicyName>().unwrap_err().contains("copro-plus"));
    }
}
