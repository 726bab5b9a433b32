use super::*;
use situ_compaction::cut;
use situ_compaction::testing::{MemoryHost, numbered, plain_rules, task};

/// Each of the eight tasks of a job counted all bytes of the job: a unit with room for a quarter of it took none.
#[test]
fn limits_admit_by_the_share_of_a_task_and_not_by_its_job() {
    let host = MemoryHost::new();
    let mut whole = task(&host, &[], plain_rules());
    let options = situ_table::TableOptions { compression: Compression::None, ..Default::default() };
    let inputs = [numbered(20_000, 1, 9), numbered(20_000, 3, 5)];
    whole.inputs = inputs.iter().map(|contents| vec![host.write(contents, &options).unwrap()]).collect();
    let limits = Limits { input_bytes: whole.input_bytes() / 4, ..Limits::unlimited() };
    assert!(limits.admit(&whole).is_err());
    let ranges = cut(&whole.inputs, 8, 1000).unwrap();
    assert_eq!(ranges.len(), 8);
    for range in ranges {
        let mut part = whole.clone();
        part.rules.range = range;
        limits.admit(&part.clipped().unwrap()).unwrap();
    }
}
