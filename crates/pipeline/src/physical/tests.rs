use super::*;

const TOTAL: u64 = 16 << 20;
const SLACK: u64 = 1 << 20;

fn sample(free: u64, needed: u64) -> Sample {
    Sample { free, total: TOTAL, needed, needed_at_most: 3 << 20 }
}

#[test]
fn the_slack_is_a_share_of_the_drive_and_bounded() {
    assert_eq!((slack(TOTAL), slack(1 << 40), slack(0)), (SLACK, SLACK_BYTES_MAX, 0));
}

#[test]
fn levels_are_reached_at_their_bounds_and_left_with_a_margin() {
    use PhysicalLevel::{DeletionsOnly, Exhausted, Low, Plenty};
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
            let level = judge(PhysicalLevel::Plenty, &sample);
            let allowed = allowance(level, &sample);
            match level {
                PhysicalLevel::Exhausted => assert_eq!(allowed, 0),
                PhysicalLevel::DeletionsOnly => assert!(free + SLACK / 8 >= needed + SLACK / 2 + 2 * allowed),
                _ => assert!(free + SLACK / 8 >= needed + SLACK + 2 * allowed, "{free} {needed}: {allowed}"),
            }
            assert!(sample.for_compactions() <= free.saturating_sub(needed));
        }
    }
}
