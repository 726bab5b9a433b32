//! Answers in pieces of all sizes, and bytes that are no answers.

use super::*;
use crate::fuzzing::{self, Case, Seen, cases, feed};

#[test]
fn answers_are_the_same_in_pieces_of_all_sizes() {
    for Case { kind, keys_at, command, bytes, given } in cases() {
        let sizes = (1..bytes.len().min(90)).chain([1000, 4096, 16 << 10, bytes.len(), bytes.len() + 3]);
        for size in sizes {
            let mut answer = Answer::new(*kind, *keys_at);
            let mut behind = bytes.clone();
            behind.extend_from_slice(b"...");
            let left = feed(&mut answer, command, behind.chunks(size)).unwrap();
            assert_eq!(left, b"...");
            assert_eq!(answer.take_given(), Some(given.clone()), "in pieces of {size}");
        }
    }
}

#[test]
fn an_answer_can_begin_again() {
    for Case { kind, keys_at, command, bytes, given } in cases() {
        let mut answer = Answer::new(*kind, *keys_at);
        feed(&mut answer, command, [&bytes[..bytes.len() / 2]]).unwrap();
        answer.restart();
        feed(&mut answer, command, [&bytes[..]]).unwrap();
        assert_eq!(answer.take_given(), Some(given.clone()));
    }
}

#[test]
fn lines_that_are_no_answers_are_refused() {
    let words = Kind::Words(&[Word::Stored]);
    for (kind, command, bytes) in [
        (words, "set k 0 0 1\r\n", "NOT_STORED\r\n"),
        (words, "set k 0 0 1\r\n", "STORED\n"),
        (words, "set k 0 0 1\r\n", "STORED \r\n"),
        (words, "set k 0 0 1\r\n", "ERRORS\r\n"),
        (Kind::Number, "incr k 1\r\n", "-1\r\n"),
        (Kind::Number, "incr k 1\r\n", "+1\r\n"),
        (Kind::Number, "incr k 1\r\n", "\r\n"),
        (Kind::Number, "incr k 1\r\n", "18446744073709551616\r\n"),
        (Kind::Version, "version\r\n", "OK\r\n"),
        (Kind::Values, "get k\r\n", "STORED\r\n"),
        (Kind::Values, "get k\r\n", "VALUE l 0 1\r\n"),
        (Kind::Values, "get kk\r\n", "VALUE k 0 1\r\n"),
        (Kind::Values, "get k\r\n", "VALUE k 0\r\n"),
        (Kind::Values, "get k\r\n", "VALUE k 0 -1\r\n"),
        (Kind::Values, "get k\r\n", "VALUE k 4294967296 1\r\n"),
        (Kind::Values, "get k\r\n", "VALUE k 0 1073741825\r\n"),
        (Kind::Values, "get k\r\n", "VALUE k 0 1 2 3\r\n"),
        (Kind::Values, "get k\r\n", "VALUE k 0 1\r\nxx\r\n"),
        (Kind::Values, "get k\r\n", "VALUE k 0 1\r\nx\r\nVALUE k 0 1\r\nx\r\n"),
        (Kind::Statistics, "stats\r\n", "VALUE\r\n"),
    ] {
        let mut answer = Answer::new(kind, 4);
        assert!(feed(&mut answer, command.as_bytes(), [bytes.as_bytes()]).is_err(), "{bytes:?}");
    }
    let endless = vec![b'x'; LINE_BYTES_MAX];
    assert!(feed(&mut Answer::new(Kind::Values, 4), b"get k\r\n", [&endless[..]]).is_err());
}

/// A length is a claim. Memory comes with the bytes.
#[test]
fn a_long_value_that_does_not_come_takes_no_memory() {
    let mut answer = Answer::new(Kind::Values, 4);
    feed(&mut answer, b"get k\r\n", [&b"VALUE k 0 1073741824\r\nbeginning"[..]]).unwrap();
    assert!(answer.found[0].item.value.capacity() <= VALUE_STEP_BYTES);
}

/// A source of numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 29)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Random bytes, and valid answers with some bytes changed, removed or repeated, in random pieces: there is an answer,
/// an error, or a wait for more bytes, and never a panic.
#[test]
fn noise_is_an_error_and_no_panic() {
    const WORDS: [&[u8]; 12] =
        [b"VALUE ", b"k ", b"0 ", b"7", b"\r\n", b"END", b"STORED", b"STAT ", b"SERVER_ERROR ", b"ERROR", b"\n", b" "];
    let mut numbers = Numbers(33);
    let (mut answers, mut errors) = (0, 0);
    let all = fuzzing::corpus();
    for round in 0..20_000 {
        let valid = &all[round % all.len()];
        let (head, valid) = valid.split_at(2);
        let mut bytes: Vec<u8> = match numbers.below(3) {
            0 => (0..numbers.below(200)).map(|_| numbers.next() as u8).collect(),
            1 => (0..numbers.below(40)).flat_map(|_| WORDS[numbers.below(WORDS.len())]).copied().collect(),
            _ => valid[..valid.len().min(2000)].to_vec(),
        };
        for _ in 0..numbers.below(4) {
            let at = numbers.below(bytes.len() + 1);
            match numbers.below(3) {
                0 => bytes.insert(at, numbers.next() as u8),
                1 => bytes.truncate(at),
                _ => bytes.extend_from_within(at..),
            }
        }
        let input = [&[head[0], numbers.below(64) as u8][..], &bytes].concat();
        match fuzzing::answer(&input) {
            Seen::Answer => answers += 1,
            Seen::Garbled => errors += 1,
            Seen::Part => {}
        }
    }
    assert!(answers > 1000 && errors > 1000, "{answers} answers and {errors} errors");
}
