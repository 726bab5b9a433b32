//! From a job's tables to parts, each with the unit that it is meant for.
//!
//! 1. The splitter says which share each unit gets (`split.rs` of the crate).
//! 2. Each unit's share is divided once more, as many tasks as the unit runs side by side, if they are large enough.
//! 3. One walk over the tables' index cuts all parts (`cut.rs`).

use crate::class::TaskClass;
use crate::scheduler::service::Standing;
use crate::scheduler::{REFERENCE, Scheduler};
use crate::split::{Arm, Shares, ToSplit, UnitView};
use crate::unit::Load;
use situ_base::lock;
use situ_compaction::{Cut, Destination, JobShape, Part, cut, cut_shares};
use situ_storage::Result;

/// The scheduler's notes on a job when it divides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The class of all tasks: speeds are measured by class.
    pub(crate) class: TaskClass,
    /// The way in which the automatic split has divided the job, to be measured.
    pub(crate) arm: Option<Arm>,
}

impl Scheduler {
    /// Divides a job between the units, by the policy. Without units elsewhere the job is cut into equal parts, one for
    /// each thread.
    ///
    /// # Errors
    /// An index block of a table cannot be read.
    pub(crate) fn divided(&self, job: &JobShape<'_>) -> Result<(Vec<Part>, Plan)> {
        let loads: Vec<Load> = self.units.iter().map(|unit| unit.load()).collect();
        let units = self.views(&loads);
        let bytes = job.inputs.iter().flatten().map(|input| input.bytes).fold(0, u64::saturating_add);
        let part_bytes_min = job.part_bytes_min;
        let class = TaskClass::of(job.level, job.inputs, job.compression);
        let to_split = ToSplit { split: self.policy.split, class, bytes, part_bytes_min, units: &units };
        let shares = lock(&self.splitter).divide(&to_split);
        let (arm, shares) = match shares {
            Shares::Anywhere => {
                let others = loads.iter().zip(&units).skip(1).filter(|(_, unit)| unit.is_usable);
                let elsewhere = others.map(|(load, _)| load.tasks_max).fold(0, usize::saturating_add);
                let ranges = cut(job.inputs, job.threads.saturating_add(elsewhere), job.task_bytes_min)?;
                let part = |range| Part { range, destination: Destination::default() };
                return Ok((ranges.into_iter().map(part).collect(), Plan { class, arm: None }));
            }
            Shares::Of(shares) => (None, shares),
            Shares::ByArm(arm, shares) => (Some(arm), shares),
        };
        let side_by_side = |unit: usize| if unit == REFERENCE { job.threads } else { loads[unit].tasks_max };
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
        let part = |cut: Cut| Part { range: cut.range, destination: Destination(Some(tasks[cut.share].0)) };
        Ok((cuts.into_iter().map(part).collect(), Plan { class, arm }))
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
