//! `verify` of a hash store: every bucket, every entry, and the counts.

use super::OpenHash;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::text;
use serde::Serialize;
use situ::hash::HashReport;
use std::path::Path;
use std::time::{Duration, Instant};

#[derive(Serialize)]
struct Verified {
    engine: &'static str,
    sound: bool,
    buckets: u64,
    entries: u64,
    overflow_entries: u64,
    dead_overflow_entries: u64,
    damages: Vec<String>,
    mended: Vec<String>,
    damages_left_out: u64,
    seconds: f64,
}

impl Verified {
    fn of(report: HashReport, took: Duration) -> Verified {
        Verified {
            engine: "hash",
            sound: report.is_sound(),
            buckets: report.buckets,
            entries: report.totals.entries + report.totals.overflow_entries,
            overflow_entries: report.totals.overflow_entries,
            dead_overflow_entries: report.dead_overflow_entries,
            damages_left_out: report.damage_count - report.damages.len() as u64,
            damages: report.damages,
            mended: report.mended,
            seconds: took.as_secs_f64(),
        }
    }
}

pub(crate) fn verify(directory: &Path, out: &mut Output) -> Outcome {
    let started = Instant::now();
    let hash = OpenHash::open(directory, None, false)?;
    let report = hash.store.verify().map_err(|error| hash.failure("cannot verify the store", &error))?;
    let verified = Verified::of(report, started.elapsed());
    // Closing writes totals and counts of a store that was found sound only.
    hash.close()?;
    if out.is_json() {
        out.object(&verified)?;
    } else {
        tell(&verified, out)?;
    }
    Ok(if verified.sound { Exit::Done } else { Exit::Damage })
}

fn tell(verified: &Verified, out: &mut Output) -> Result<(), Failure> {
    let Verified {
        buckets,
        entries,
        overflow_entries,
        dead_overflow_entries,
        damages,
        mended,
        damages_left_out,
        seconds,
        ..
    } = verified;
    for damage in damages {
        out.line(format!("✗ {damage}"))?;
    }
    if *damages_left_out > 0 {
        out.line(format!("… {damages_left_out} more"))?;
    }
    for damage in mended {
        out.line(format!("! {damage}; it was written anew: a crash can leave that, or a disk that is in doubt"))?;
    }
    if *dead_overflow_entries > 0 {
        let dead = text::plural_of(*dead_overflow_entries, "stale overflow entry", "stale overflow entries");
        out.line(format!("! {dead}, left by a crash; ignored."))?;
    }
    out.line(format!(
        "{} with {} read in {seconds:.1} s, {} of these in the overflow: {}",
        text::plural(*buckets, "bucket"),
        text::plural_of(*entries, "entry", "entries"),
        text::count(*overflow_entries),
        match damages.len() as u64 + damages_left_out {
            0 => "all is sound".to_owned(),
            damages => text::plural(damages, "damage"),
        }
    ))
}
