//! Is that the answer to what was asked?
//!
//! What can be said about an output without reading it: its tables are numbered by this attempt's host, ascend, do not
//! overlap, lie within the task's range and within what its inputs span; their own properties agree with the spans; the
//! numbers add up. A unit that lost a block, mixed up two tasks, or ignored a bound fails one of these. That the
//! *bytes* are right is the promise of the unit's own tests against the reference merge.

use crate::span::KeySpan;
use crate::task::{TablePlace, Task, TaskOutput};

/// Looks for reasons not to install `output` as the result of `task`. `places` are those that the host
/// handed out to this attempt.
///
/// # Errors
/// The first thing that is wrong, in words.
pub fn check_output(task: &Task, places: &[TablePlace], output: &TaskOutput) -> Result<(), String> {
    let inputs = task.tables().map(|input| input.span.clone()).reduce(KeySpan::union);
    let newest = task.tables().map(|input| input.largest_sequence).max().unwrap_or(0);
    let mut seen: Vec<u64> = Vec::new();
    let mut end_before: Option<&[u8]> = None;
    for table in &output.tables {
        let number = table.number;
        let fail = |what: String| Err(format!("table {number}: {what}"));
        let properties = &table.summary.properties;
        if !places.contains(&table.place()) {
            return fail("its place was not given to this attempt".to_owned());
        }
        if seen.contains(&number) {
            return fail("it is there twice".to_owned());
        }
        seen.push(number);
        if table.span.begin >= table.span.end {
            return fail(format!("its span {:?} is empty", table.span));
        }
        if end_before.is_some_and(|end| end > table.span.begin.as_slice()) {
            return fail(format!("its span {:?} begins before the end of the table before it", table.span));
        }
        end_before = Some(&table.span.end);
        if !task.rules.range.encloses(&table.span) {
            return fail(format!("its span {:?} leaves the task's range {:?}", table.span, task.rules.range));
        }
        let inside = |inputs: &KeySpan| inputs.begin <= table.span.begin && table.span.end <= inputs.end;
        if !inputs.as_ref().is_some_and(inside) {
            return fail(format!("its span {:?} leaves what the inputs span", table.span));
        }
        let ends = [properties.smallest_key(), properties.largest_key()];
        if ends.iter().flatten().any(|key| !table.span.contains(key.user)) {
            return fail(format!("its smallest or largest key lies outside of its span {:?}", table.span));
        }
        if (properties.entries > 0) != ends.iter().all(Option::is_some) || ends[0] > ends[1] {
            return fail("its smallest and largest key do not fit each other or its entries".to_owned());
        }
        if (properties.entries, properties.range_deletions) == (0, 0) {
            return fail("it is empty".to_owned());
        }
        if properties.largest_sequence > newest {
            return fail(format!("it has sequence {}, the inputs end at {newest}", properties.largest_sequence));
        }
    }
    check_numbers(task, output)
}

fn check_numbers(task: &Task, output: &TaskOutput) -> Result<(), String> {
    let stats = &output.stats;
    let sum = |what: fn(&crate::task::OutputTable) -> u64| output.tables.iter().map(what).fold(0, u64::saturating_add);
    let equal = |what: &str, expected: u64, found: u64| match expected == found {
        true => Ok(()),
        false => Err(format!("{what}: expected {expected}, found {found}")),
    };
    equal("entries accounted for", stats.entries_in, stats.entries_out.saturating_add(stats.dropped()))?;
    equal("entries in the tables", stats.entries_out, sum(|table| table.summary.properties.entries))?;
    equal("range tombstones in the tables", stats.range_tombstones_out, sum(|t| t.summary.properties.range_deletions))?;
    equal("bytes in the tables", stats.bytes_written, sum(|table| table.summary.bytes))?;
    let all: u64 = task.tables().map(|input| input.entries).sum();
    // Tables wholly inside the range are read whole.
    let inside = task.tables().filter(|input| task.rules.range.encloses(&input.span));
    let least: u64 = inside.map(|input| input.entries).sum();
    if !(least..=all).contains(&stats.entries_in) {
        return Err(format!("entries read: expected {least} to {all}, found {}", stats.entries_in));
    }
    Ok(())
}
