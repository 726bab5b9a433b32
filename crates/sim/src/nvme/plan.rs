//! The bad behaviour of a controller: a plan that is a value.
//!
//! Faults of the medium are no part of it. They come from the device below.

use super::NvmeCommand;
use crate::{Rng, When};
use std::time::Duration;

/// A controller's wrong answer to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NvmeFault {
    /// The command is executed, and its completion never comes.
    NoAnswer,
    /// The command is executed at once, and its completion comes this much later.
    Late(Duration),
    /// The command is executed only after this much time. Until then, it has no effect.
    Held(Duration),
    /// The completion comes twice.
    Twice,
    /// A completion for a command that is not there comes first.
    UnknownCommand,
    /// Success is reported at once, and the command is executed this much later: data arrive after the completion.
    DataLate(Duration),
    /// Success is reported, and nothing is executed.
    DataNever,
    /// The command fails with this status, without effect. Bits 0 to 7 are the code, 8 to 10 its type, 14 says that
    /// trying again does not help.
    Status(u16),
    /// An abort finds no command. For other commands, nothing is wrong.
    AbortIgnored,
    /// The controller reports a fatal status and works no more until it is reset.
    Fatal,
    /// The drive is pulled out.
    Removed,
}

/// One thing that a controller does wrong.
///
/// ```
/// use situ_sim::{NvmeCommand, NvmeFault, NvmePlan, NvmeRule};
/// let plan = NvmePlan::none()
///     .with(NvmeRule::new(NvmeFault::NoAnswer).on(&[NvmeCommand::Write]).nth(3))
///     .with(NvmeRule::new(NvmeFault::Status(0x281)).on(&[NvmeCommand::Read]).chance(0.01));
/// assert_eq!(plan.rules.len(), 2);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct NvmeRule {
    /// The fault.
    pub fault: NvmeFault,
    /// The commands that the rule matches; empty for all those of I/O queues.
    pub commands: Vec<NvmeCommand>,
    /// The matching commands that the rule strikes.
    pub when: When,
}

impl NvmeRule {
    /// Creates a rule by which the fault happens to every command of an I/O queue.
    pub fn new(fault: NvmeFault) -> NvmeRule {
        NvmeRule { fault, commands: Vec::new(), when: When::Always }
    }

    /// Limits the rule to these commands.
    pub fn on(mut self, commands: &[NvmeCommand]) -> NvmeRule {
        self.commands = commands.to_vec();
        self
    }

    /// Limits the rule to the command with this number, counted from 0 among those that match.
    pub fn nth(mut self, number: u64) -> NvmeRule {
        self.when = When::Nth(number);
        self
    }

    /// Limits the rule to the command with this number and all later ones.
    pub fn from(mut self, number: u64) -> NvmeRule {
        self.when = When::From(number);
        self
    }

    /// Makes the rule strike each matching command with this probability.
    pub fn chance(mut self, probability: f64) -> NvmeRule {
        self.when = When::Chance(probability);
        self
    }

    fn looks_at(&self, command: NvmeCommand) -> bool {
        if self.commands.is_empty() { command.is_io() } else { self.commands.contains(&command) }
    }
}

/// A controller's failure to become ready after it has been enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NotReady {
    /// It becomes ready in time.
    #[default]
    No,
    /// It stays unready until the function is reset.
    UntilReset,
    /// It stays unready.
    Forever,
}

/// Everything that a controller does wrong.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NvmePlan {
    /// The rules, in order of precedence.
    pub rules: Vec<NvmeRule>,
    /// The failure to become ready.
    pub not_ready: NotReady,
    /// Resets of the function fail.
    pub reset_fails: bool,
}

impl NvmePlan {
    /// Returns the plan of a sound controller.
    pub fn none() -> NvmePlan {
        NvmePlan::default()
    }

    /// Returns the same plan and one more rule, which yields to those before it.
    pub fn with(mut self, rule: NvmeRule) -> NvmePlan {
        self.rules.push(rule);
        self
    }

    /// Returns the same plan for a controller that does not become ready.
    pub fn not_ready(mut self, not_ready: NotReady) -> NvmePlan {
        self.not_ready = not_ready;
        self
    }

    /// Returns the same plan for a function whose reset fails.
    pub fn reset_fails(mut self) -> NvmePlan {
        self.reset_fails = true;
        self
    }
}

/// A plan at work: it counts.
pub(super) struct PlanState {
    pub(super) plan: NvmePlan,
    /// Per rule, how many commands it has looked at.
    seen: Vec<u64>,
    rng: Rng,
}

impl PlanState {
    pub(super) fn new(plan: NvmePlan, rng: Rng) -> PlanState {
        PlanState { seen: vec![0; plan.rules.len()], plan, rng }
    }

    /// Exchanges the plan; the new rules count from zero.
    pub(super) fn set(&mut self, plan: NvmePlan) {
        *self = PlanState::new(plan, self.rng.clone());
    }

    /// Returns the fault that strikes a command.
    pub(super) fn fault(&mut self, command: NvmeCommand) -> Option<NvmeFault> {
        let mut fault = None;
        for (rule, seen) in self.plan.rules.iter().zip(&mut self.seen) {
            if rule.looks_at(command) {
                *seen += 1;
                if rule.when.strikes(*seen - 1, &mut self.rng) {
                    fault = fault.or(Some(rule.fault));
                }
            }
        }
        fault
    }

    /// Returns one of two outcomes that a drive may have, by chance.
    pub(super) fn either(&mut self) -> bool {
        self.rng.chance(0.5)
    }
}
