//! `repair` of a hash store: what is damaged is left out, and said.

use super::builder;
use crate::failure::{Exit, Failure, Outcome};
use crate::options::RepairOptions;
use crate::output::Output;
use crate::text;
use serde::Serialize;
use situ::hash::HashRepair;
use std::path::Path;

/// Numbers and keys that are printed; more are counted.
const SHOWN_MAX: usize = 20;

#[derive(Serialize)]
struct Repaired {
    engine: &'static str,
    was_sound: bool,
    nothing_lost: bool,
    buckets: u64,
    lost_buckets: u64,
    first_lost_buckets: Vec<u64>,
    lost_entries: u64,
    lost_keys: Vec<String>,
    lost_log_records: u64,
    overflow_was_damaged: bool,
    set_aside: Option<String>,
    damages: Vec<String>,
}

impl From<&HashRepair> for Repaired {
    fn from(report: &HashRepair) -> Repaired {
        Repaired {
            engine: "hash",
            was_sound: report.was_sound(),
            nothing_lost: report.nothing_lost(),
            buckets: report.buckets,
            lost_buckets: report.lost_bucket_count,
            first_lost_buckets: report.lost_buckets.clone(),
            lost_entries: report.lost_entries,
            lost_keys: report.lost_keys.iter().map(|key| text::escape(key)).collect(),
            lost_log_records: report.lost_log_records,
            overflow_was_damaged: report.overflow.is_some(),
            set_aside: report.set_aside.clone(),
            damages: report.damages.clone(),
        }
    }
}

pub(crate) fn repair(directory: &Path, options: &RepairOptions, out: &mut Output) -> Outcome {
    if options.dry_run || options.without_fast_disk || options.fast_disk.is_some() {
        let why = "a repair of a hash store takes no option; `situ verify` says what is damaged";
        return Err(Failure::not_for_hash("repair", directory, why));
    }
    let report = builder(None, false).repair(directory).map_err(|error| {
        Failure::hash(format!("cannot repair the store in {}", directory.display()), directory, &error)
    })?;
    let repaired = Repaired::from(&report);
    if out.is_json() {
        out.object(&repaired)?;
    } else {
        tell(&repaired, &report, out)?;
    }
    Ok(Exit::Done)
}

fn tell(repaired: &Repaired, report: &HashRepair, out: &mut Output) -> Result<(), Failure> {
    if repaired.was_sound {
        return out.line("The store is sound: there is nothing to repair.");
    }
    for damage in &repaired.damages {
        out.line(format!("✗ {damage}"))?;
    }
    if let Some(overflow) = &report.overflow {
        out.line(format!("The overflow was repaired: {overflow}"))?;
    }
    if repaired.lost_buckets > 0 {
        let numbers: Vec<String> = repaired.first_lost_buckets.iter().take(SHOWN_MAX).map(u64::to_string).collect();
        let more = if repaired.lost_buckets as usize > numbers.len() { ", …" } else { "" };
        out.line(format!(
            "lost: {} ({}{more}). Nobody knows the keys that were in them",
            text::plural(repaired.lost_buckets, "bucket"),
            numbers.join(", ")
        ))?;
    }
    if repaired.lost_entries > 0 {
        out.line(format!("lost: about {}", text::plural_of(repaired.lost_entries, "entry", "entries")))?;
    }
    for key in repaired.lost_keys.iter().take(SHOWN_MAX) {
        out.line(format!("lost: the value of key {}, and the key", text::clip(key, 60)))?;
    }
    if repaired.lost_keys.len() > SHOWN_MAX {
        let more = (repaired.lost_keys.len() - SHOWN_MAX) as u64;
        out.line(format!("lost: {} more; --json lists all", text::plural(more, "key")))?;
    }
    if repaired.lost_log_records > 0 {
        let records = text::plural(repaired.lost_log_records, "damaged place");
        out.line(format!("lost: writes in {records} of the log. Their keys may be missing or have an older value"))?;
    }
    if let Some(file) = &repaired.set_aside {
        out.line(format!("The blocks of lost buckets were set aside in {file}"))?;
    }
    out.line(match repaired.nothing_lost {
        true => "Repaired. Nothing is lost.",
        false => "Repaired. What is listed as lost is lost; everything else is there.",
    })
}
