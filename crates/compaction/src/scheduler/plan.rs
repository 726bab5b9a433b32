//! From a job's tables to parts, each with the unit that it is meant for.
//!
//! 1. The splitter says which share each unit gets (`split.rs` of the crate).
//! 2. Each unit's share is divided once more, as many tasks as the unit runs side by side, if they are large enough.
//! 3. One walk over the tables' index cuts all parts (`cut.rs`).

use crate::class::TaskClass;
use crate::cut::{Cut, cut, cut_shares};
use crate::scheduler::service::Standing;
use crate::scheduler::{REFERENCE, Scheduler};
use crate::span::KeyRange;
use crate::split::{Arm, Shares, ToSplit, UnitView};
use crate::task::Run;
use crate::unit::Load;
use situ_base::lock;
use situ_storage::Result;

/// What [`Scheduler::divide`] needs to know of a job.
#[derive(Debug, Clone, Copy)]
pub struct JobShape<'a> {
    /// Its tables.
    pub inputs: &'a [Run],
    /// The class of its tasks.
    pub class: TaskClass,
    /// How many tasks the host's processor may run side by side.
    pub host_threads: usize,
    /// The share of one unit is not cut into smaller tasks for its threads.
    pub task_bytes_min: u64,
    /// No unit gets less. At most `task_bytes_min`.
    pub part_bytes_min: u64,
}

/// A part of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its keys.
    pub range: KeyRange,
    /// The unit, by its place in the list; `None` for whichever would be done first.
    pub meant_for: Option<usize>,
}

/// How a job is divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Division {
    /// The parts, in the order of the keys, without a gap.
    pub parts: Vec<Part>,
    /// For [`JobOrder::arm`](crate::JobOrder::arm).
    pub arm: Option<Arm>,
}

impl Scheduler {
    /// Divides a job between the units, by the policy. Without units elsewhere the job is cut into equal parts, one for each thread.
    ///
    /// # Errors
    /// An index block of a table cannot be read.
    pub fn divide(&self, job: &JobShape<'_>) -> Result<Division> {
        let loads: Vec<Load> = self.units.iter().map(|unit| unit.load()).collect();
        let units = self.views(&loads);
        let bytes = job.inputs.iter().flatten().map(|input| input.bytes).fold(0, u64::saturating_add);
        let JobShape { class, part_bytes_min, .. } = *job;
        let to_split = ToSplit { split: self.policy.split, class, bytes, part_bytes_min, units: &units };
        let shares = lock(&self.splitter).divide(&to_split);
        let (arm, shares) = match shares {
            Shares::Anywhere => {
                let others = loads.iter().zip(&units).skip(1).filter(|(_, unit)| unit.is_usable);
                let elsewhere = others.map(|(load, _)| load.tasks_max).fold(0, usize::saturating_add);
                let ranges = cut(job.inputs, job.host_threads.saturating_add(elsewhere), job.task_bytes_min)?;
                let part = |range| Part { range, meant_for: None };
                return Ok(Division { parts: ranges.into_iter().map(part).collect(), arm: None });
            }
            Shares::Of(shares) => (None, shares),
            Shares::ByArm(arm, shares) => (Some(arm), shares),
        };
        let side_by_side = |unit: usize| if unit == REFERENCE { job.host_threads } else { loads[unit].tasks_max };
        let tasks: Vec<(usize, f64)> = shares
            .iter()
            .enumerate()
            .flat_map(|(unit, share)| {
                // The cast saturates.
                let fit = (share * bytes as f64 / job.task_bytes_min.max(1) as f64) as usize;
                let count = fit.clamp(1, side_by_side(unit).max(1));
                std::iter::repeat_n((unit, share / count as f64), count)
            })
            .collect();
        let sizes: Vec<f64> = tasks.iter().map(|(_, size)| *size).collect();
        let cuts = cut_shares(job.inputs, &sizes, part_bytes_min)?;
        let mut given = vec![0.0; units.len()];
        cuts.iter().for_each(|cut| given[tasks[cut.share].0] += cut.bytes as f64);
        lock(&self.splitter).note_given(&to_split, &given);
        let part = |cut: Cut| Part { range: cut.range, meant_for: Some(tasks[cut.share].0) };
        Ok(Division { parts: cuts.into_iter().map(part).collect(), arm })
    }

    fn views(&self, loads: &[Load]) -> Vec<UnitView> {
        let now = self.env.clock.now();
        let is_usable = |unit: &super::UnitState| unit.standing(now) == Standing::InService && !unit.is_unsuited;
        let usable: Vec<bool> = lock(&self.queue).units.iter().map(is_usable).collect();
        let view = |(at, load): (usize, &Load)| UnitView {
            is_usable: at == REFERENCE || usable[at] && load.tasks_max > 0,
            bytes_per_s: load.bytes_per_s,
            resources: load.resources,
        };
        loads.iter().enumerate().map(view).collect()
    }
}
