use super::*;

const TOTAL: u64 = 16 << 20;
const SLACK: u64 = 1 << 20;

fn sample(free: u64, needed: u64) -> Sample {
    Sample { kind: SpaceKind::Physical, free, total: TOTAL, needed, needed_at_most: 3 << 20, stored: 0 }
}

fn logical(total: u64, stored: u64) -> Sample {
    Sample { kind: SpaceKind::Logical, free: 0, total, needed: 0, needed_at_most: 0, stored }
}

#[test]
fn the_slack_is_a_share_of_the_drive_and_bounded() {
    let slack = |total| Sample { total, ..sample(0, 0) }.slack();
    assert_eq!((slack(TOTAL), slack(1 << 40), slack(0)), (SLACK, SLACK_BYTES_MAX, 0));
}

/// A small store on a large disk that others have nearly filled goes on until little is left.
#[test]
fn the_slack_of_logical_space_is_also_a_share_of_what_the_store_holds() {
    let (small, large) = (LOGICAL_SLACK_BYTES_MIN, SLACK_BYTES_MAX);
    assert_eq!(logical(1 << 40, 0).slack(), small);
    assert_eq!(logical(1 << 40, 800 << 20).slack(), 100 << 20);
    assert_eq!(logical(1 << 40, 1 << 39).slack(), large);
    assert_eq!(logical(TOTAL, TOTAL).slack(), SLACK);
}

#[test]
fn levels_are_reached_at_their_bounds_and_left_with_a_margin() {
    use SpaceLevel::{DeletionsOnly, Exhausted, Low, Plenty};
    let needed = 3 << 20;
    let bounds = [
        (needed + SLACK / 2, Exhausted, DeletionsOnly),
        (needed + SLACK, DeletionsOnly, Low),
        (needed + SLACK + TOTAL / 10, Low, Plenty),
    ];
    for (bound, below, above) in bounds {
        assert_eq!(judge(Plenty, &sample(bound - 1, needed)), below);
        assert_eq!(judge(Plenty, &sample(bound, needed)), above);
        assert_eq!(judge(below, &sample(bound + SLACK / 4 - 1, needed)), below, "it stays for the margin");
        assert_eq!(judge(below, &sample(bound + SLACK / 4, needed)), above);
    }
    assert_eq!(judge(Plenty, &sample(0, u64::MAX)), Exhausted);
    assert_eq!(judge(Exhausted, &sample(TOTAL, 0)), Plenty);
}

/// Whatever is logged within an allowance fits twice, and leaves seven eighths of the slack.
#[test]
fn an_allowance_leaves_what_is_needed() {
    for free in (0..TOTAL).step_by(1 << 16) {
        for needed in [0, 1 << 20, 9 << 20] {
            let sample = sample(free, needed);
            let level = judge(SpaceLevel::Plenty, &sample);
            let allowed = allowance(level, &sample);
            match level {
                SpaceLevel::Exhausted => assert_eq!(allowed, 0),
                SpaceLevel::DeletionsOnly => assert!(free + SLACK / 8 >= needed + SLACK / 2 + 2 * allowed),
                _ => assert!(free + SLACK / 8 >= needed + SLACK + 2 * allowed, "{free} {needed}: {allowed}"),
            }
            assert!(sample.for_compactions() <= free.saturating_sub(needed));
        }
    }
}

#[test]
fn a_shortage_says_how_much_is_missing() {
    let location = "/data".to_owned();
    for (kind, begins) in
        [(SpaceKind::Logical, "the disk is full: /data"), (SpaceKind::Physical, "too little physical space")]
    {
        let shortage =
            SpaceShortage { location: location.clone(), kind, free_bytes: 300, reserve_bytes: 900, missing_bytes: 700 };
        let text = shortage.to_string();
        assert!(text.starts_with(begins) && text.contains("once 700 more bytes are free"), "{text}");
    }
}
