use super::*;

fn range(lower: &str, upper: &str) -> KeyRange {
    let side = |key: &str| (!key.is_empty()).then(|| key.as_bytes().to_vec());
    KeyRange { lower: side(lower), upper: side(upper) }
}

#[test]
fn ranges_are_cut_where_none_begins_yet() {
    let part = |lower, upper, unit| Part { range: range(lower, upper), destination: Destination(Some(unit)) };
    let mut parts = vec![part("", "m", 0), part("m", "", 1)];
    ["m", "c", "x", "c"].into_iter().for_each(|key| cut_at(&mut parts, key.as_bytes()));
    assert_eq!(parts, [part("", "c", 0), part("c", "m", 0), part("m", "x", 1), part("x", "", 1)]);
}

#[test]
fn a_range_lies_within_another_that_ends_no_sooner() {
    assert!(within(&range("c", "m"), &range("c", "m")) && within(&range("c", "m"), &range("", "")));
    assert!(within(&range("", "c"), &range("", "m")) && within(&range("x", ""), &range("c", "")));
    assert!(!within(&range("", "c"), &range("a", "m")) && !within(&range("x", ""), &range("c", "z")));
    assert!(!within(&range("b", "c"), &range("c", "m")) && !within(&range("m", "x"), &range("c", "n")));
}
