//! The parser under arbitrary bytes, for fuzzers (`fuzz/`) and the seeded test below. Only there with the feature
//! `fuzzing` and in tests.

use crate::parse::{Request, next_key, parse};

/// Parses any line and walks over what came out of it; panics if the parser does, or if it contradicts itself.
pub fn request(line: &[u8]) {
    let parsed = parse(line);
    if let Request::Get { keys, .. } = &parsed {
        let mut from = 0;
        while let Some((key, next)) = next_key(keys, from) {
            assert!(next > from && !key.is_empty(), "the walk over keys stands still");
            assert!(!key.contains(&b' '));
            from = next;
        }
    }
    assert_eq!(parse(line), parsed, "the same line, another request");
}

/// Lines of every kind: where a fuzzer begins.
pub fn corpus() -> Vec<Vec<u8>> {
    let lines = [
        "get key",
        "gets one two three",
        "gat 100 one two",
        "set key 7 -1 100 noreply",
        "cas key 7 60 5 18446744073709551615",
        "append key 0 0 0",
        "incr key 18446744073709551615 noreply",
        "touch key 0",
        "delete key 0 noreply",
        "mg key v t f c k O1234 q N30 R10 T60",
        "mg Zm9v b v",
        "ms key 10 T60 F7 C123 MA I q Oabc",
        "ms key 10 MP N60 E18446744073709551615 s",
        "md key q C12 I",
        "md key x E5 F1 T30",
        "ma key N60 J10 D3 MD t v",
        "me key b",
        "mn",
        "flush_all -1 noreply",
        "stats reset",
        "verbosity 1",
        "version",
        "quit",
        "lru_crawler metadump all",
        "",
    ];
    lines.iter().map(|line| line.as_bytes().to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn promise_6_no_line_breaks_the_parser(
            which in 0..corpus().len(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 0..6),
        ) {
            let mut line = corpus().swap_remove(which);
            for (at, byte, kind) in changes {
                let at = at.index(line.len() + 1);
                match kind {
                    0 => line.insert(at, byte),
                    1 => line.truncate(at),
                    2 => line.extend_from_within(at..),
                    _ => line.iter_mut().skip(at).take(1).for_each(|place| *place = byte),
                }
            }
            request(&line);
        }
    }
}
