use super::*;

fn schedule(text: &str) -> ValueSchedule {
    text.parse().expect(text)
}

/// How often each size comes up in requests `from..to` of 10,000.
fn share(schedule: &ValueSchedule, bytes: usize, from: u64, to: u64) -> f64 {
    let mut random = Random::new(7);
    let drawn = (from..to).filter(|issued| schedule.value_bytes(*issued, 10_000, &mut random) == bytes).count();
    drawn as f64 / (to - from) as f64
}

#[test]
fn each_part_of_a_workload_has_its_sizes_in_their_shares() {
    let schedule = schedule("30:64Kx80+1Kx20,70:1K");
    assert_eq!(schedule.value_bytes_max(), 64 << 10);
    assert!((share(&schedule, 64 << 10, 0, 3000) - 0.8).abs() < 0.03);
    assert!((share(&schedule, 1 << 10, 0, 3000) - 0.2).abs() < 0.03);
    assert_eq!(share(&schedule, 1 << 10, 3000, 10_000), 1.0);
    // db_bench's threads may draw more values than requests were foreseen: batches.
    assert_eq!(share(&schedule, 1 << 10, 10_000, 10_100), 1.0);
}

#[test]
fn a_schedule_is_its_text_in_a_result() {
    let schedule = schedule("50:100,25:16K,25:4Kx1+32Kx3");
    let json = serde_json::to_string(&schedule).expect("JSON");
    assert_eq!(json, "\"50:100,25:16K,25:4Kx1+32Kx3\"");
    assert_eq!(serde_json::from_str::<ValueSchedule>(&json).expect("read"), schedule);
    assert!(serde_json::from_str::<ValueSchedule>("\"50:100\"").is_err());
}

#[test]
fn what_is_no_schedule_is_refused_with_the_reason() {
    for (text, why) in [
        ("", "SHARE:SIZES"),
        ("100", "SHARE:SIZES"),
        ("x:1K", "no share"),
        ("0:1K,100:1K", "nothing"),
        ("50:1K,40:2K", "90%"),
        ("60:1K,60:2K", "120%"),
        ("18446744073709551615:1K,1:1K", "1001%"),
        ("100:1Kx0", "weight"),
        ("100:1Kx", "weight"),
        ("100:", "no size"),
        ("100:17M", "16777216"),
    ] {
        let refusal = text.parse::<ValueSchedule>().expect_err(text);
        assert!(refusal.contains(why), "{text}: {refusal}");
    }
}
