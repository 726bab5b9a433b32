//! The parser of answers under arbitrary bytes, for fuzzers (`fuzz/`) and the tests. Only there with the feature
//! `fuzzing` and in tests.

use crate::answer::{Answer, Found, Garbled, Given, Kind, LINE_BYTES_MAX, Word};
use crate::item::{CasId, Item};
use std::sync::OnceLock;

/// A command, and a valid answer to it.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) kind: Kind,
    pub(crate) keys_at: usize,
    pub(crate) command: &'static [u8],
    pub(crate) bytes: Vec<u8>,
    pub(crate) given: Given,
}

/// The result of parsing any bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// A complete answer.
    Answer,
    /// The beginning of an answer.
    Part,
    /// No answer.
    Garbled,
}

/// Parses any bytes as an answer, whole and in pieces; panics if the parser does, or if both give something else. The
/// first byte chooses the command, the second one the size of pieces.
pub fn answer(input: &[u8]) -> Seen {
    let [choice, size, bytes @ ..] = input else { return Seen::Part };
    let Case { kind, keys_at, command, .. } = &cases()[usize::from(*choice) % cases().len()];
    let parsed = |size: usize| {
        let mut answer = Answer::new(*kind, *keys_at);
        let left = feed(&mut answer, command, bytes.chunks(size));
        (left.is_err(), answer.is_done(), answer.take_given())
    };
    let (whole, pieces) = (parsed(bytes.len().max(1)), parsed(usize::from(*size) + 1));
    assert_eq!(whole, pieces, "the size of pieces changes the answer");
    match whole {
        (true, ..) => Seen::Garbled,
        (false, true, _) => Seen::Answer,
        (false, false, _) => Seen::Part,
    }
}

/// Valid answers to all commands: where a fuzzer begins.
pub fn corpus() -> Vec<Vec<u8>> {
    let numbered = (0_u8..).zip(cases());
    numbered.map(|(n, case)| [&[n, 16][..], &case.bytes].concat()).collect()
}

/// Feeds an answer with pieces as a connection does, and returns what is left behind it.
pub(crate) fn feed<'b>(
    answer: &mut Answer,
    command: &[u8],
    pieces: impl IntoIterator<Item = &'b [u8]>,
) -> Result<Vec<u8>, Garbled> {
    let mut inbox = Vec::new();
    for (n, mut piece) in pieces.into_iter().enumerate() {
        // Every other piece goes to the place of its value at once.
        if n % 2 == 0
            && inbox.is_empty()
            && let Some(gap) = answer.gap()?
        {
            let length = gap.len().min(piece.len());
            gap[..length].copy_from_slice(&piece[..length]);
            answer.fill(length);
            piece = &piece[length..];
        }
        inbox.extend_from_slice(piece);
        loop {
            let was_done = answer.is_done();
            let taken = answer.take(command, &inbox)?;
            assert!(!was_done || taken == 0, "a complete answer takes nothing");
            inbox.drain(..taken);
            if taken == 0 {
                break;
            }
        }
        assert!(answer.is_done() || inbox.len() <= LINE_BYTES_MAX + piece.len(), "no more than a line is held back");
    }
    Ok(inbox)
}

pub(crate) fn cases() -> &'static [Case] {
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    CASES.get_or_init(made_cases)
}

fn case(kind: Kind, keys_at: usize, command: &'static [u8], bytes: Vec<u8>, given: Given) -> Case {
    Case { kind, keys_at, command, bytes, given }
}

fn found(position: usize, flags: u32, value: &[u8], cas: Option<u64>) -> Found {
    Found { position, item: Item { value: value.to_vec(), flags }, cas: cas.map(CasId) }
}

/// Commands with valid answers.
fn made_cases() -> Vec<Case> {
    const ANY: &[Word] = &[Word::Stored, Word::NotStored, Word::Exists, Word::NotFound];
    let long: Vec<u8> = (0..70_000_u32).map(|n| (n % 251) as u8).collect();
    let mut long_answer = b"VALUE k 9 70000\r\n".to_vec();
    long_answer.extend_from_slice(&long);
    long_answer.extend_from_slice(b"\r\nEND\r\n");
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let refused = |line: &str| Given::Refused(line.to_owned());
    vec![
        case(Kind::Words(ANY), 0, b"set k 0 0 1\r\n", b"STORED\r\n".to_vec(), Given::Word(Word::Stored)),
        case(Kind::Words(ANY), 0, b"set k 0 0 1\r\n", b"NOT_STORED\r\n".to_vec(), Given::Word(Word::NotStored)),
        case(Kind::Words(ANY), 0, b"x\r\n", b"SERVER_ERROR no\r\n".to_vec(), refused("SERVER_ERROR no")),
        case(Kind::Words(ANY), 0, b"x\r\n", b"ERROR\r\n".to_vec(), refused("ERROR")),
        case(Kind::Number, 0, b"incr k 1\r\n", b"18446744073709551615\r\n".to_vec(), Given::Number(u64::MAX)),
        case(Kind::Number, 0, b"incr k 1\r\n", b"NOT_FOUND\r\n".to_vec(), Given::Word(Word::NotFound)),
        case(Kind::Version, 0, b"version\r\n", b"VERSION 1.6.18\r\n".to_vec(), Given::Version("1.6.18".to_owned())),
        case(Kind::Values, 4, b"get k\r\n", b"END\r\n".to_vec(), Given::Values(vec![])),
        case(
            Kind::Values,
            5,
            b"gets a bb a ccc\r\n",
            b"VALUE a 1 3 7\r\n\r\n!\r\nVALUE a 1 3 7\r\n\r\n!\r\nVALUE ccc 4294967295 0 8\r\n\r\nEND\r\n".to_vec(),
            Given::Values(vec![
                found(0, 1, b"\r\n!", Some(7)),
                found(2, 1, b"\r\n!", Some(7)),
                found(3, u32::MAX, b"", Some(8)),
            ]),
        ),
        case(Kind::Values, 4, b"get k\r\n", long_answer, Given::Values(vec![found(0, 9, &long, None)])),
        case(
            Kind::Values,
            4,
            b"get k l\r\n",
            b"VALUE k 0 1\r\nx\r\nSERVER_ERROR out of memory\r\n".to_vec(),
            refused("SERVER_ERROR out of memory"),
        ),
        case(
            Kind::Statistics,
            0,
            b"stats\r\n",
            b"STAT pid 1\r\nSTAT words two words\r\nSTAT empty \r\nEND\r\n".to_vec(),
            Given::Statistics(vec![pair("pid", "1"), pair("words", "two words"), pair("empty", "")]),
        ),
        case(Kind::Statistics, 0, b"stats reset\r\n", b"RESET\r\n".to_vec(), Given::Statistics(vec![])),
    ]
}
