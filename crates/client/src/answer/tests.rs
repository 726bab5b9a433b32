//! Answers in pieces of all sizes, and bytes that are no answers.

use super::*;

/// Feeds an answer with pieces as a connection does, and returns what is left behind it.
fn feed<'b>(
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
        assert!(inbox.len() <= LINE_BYTES_MAX + piece.len(), "no more than a line is held back");
    }
    Ok(inbox)
}

fn found(position: usize, flags: u32, value: &[u8], cas: Option<u64>) -> Found {
    Found { position, item: Item { value: value.to_vec(), flags }, cas: cas.map(CasId) }
}

type Case = (Kind, usize, &'static [u8], Vec<u8>, Given);

/// Commands with valid answers.
fn cases() -> Vec<Case> {
    const ANY: &[Word] = &[Word::Stored, Word::NotStored, Word::Exists, Word::NotFound];
    let long: Vec<u8> = (0..70_000_u32).map(|n| (n % 251) as u8).collect();
    let mut long_answer = b"VALUE k 9 70000\r\n".to_vec();
    long_answer.extend_from_slice(&long);
    long_answer.extend_from_slice(b"\r\nEND\r\n");
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let refused = |line: &str| Given::Refused(line.to_owned());
    vec![
        (Kind::Words(ANY), 0, b"set k 0 0 1\r\n", b"STORED\r\n".to_vec(), Given::Word(Word::Stored)),
        (Kind::Words(ANY), 0, b"set k 0 0 1\r\n", b"NOT_STORED\r\n".to_vec(), Given::Word(Word::NotStored)),
        (Kind::Words(ANY), 0, b"x\r\n", b"SERVER_ERROR no\r\n".to_vec(), refused("SERVER_ERROR no")),
        (Kind::Words(ANY), 0, b"x\r\n", b"ERROR\r\n".to_vec(), refused("ERROR")),
        (Kind::Number, 0, b"incr k 1\r\n", b"18446744073709551615\r\n".to_vec(), Given::Number(u64::MAX)),
        (Kind::Number, 0, b"incr k 1\r\n", b"NOT_FOUND\r\n".to_vec(), Given::Word(Word::NotFound)),
        (Kind::Version, 0, b"version\r\n", b"VERSION 1.6.18\r\n".to_vec(), Given::Version("1.6.18".to_owned())),
        (Kind::Values, 4, b"get k\r\n", b"END\r\n".to_vec(), Given::Values(vec![])),
        (
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
        (Kind::Values, 4, b"get k\r\n", long_answer, Given::Values(vec![found(0, 9, &long, None)])),
        (
            Kind::Values,
            4,
            b"get k l\r\n",
            b"VALUE k 0 1\r\nx\r\nSERVER_ERROR out of memory\r\n".to_vec(),
            refused("SERVER_ERROR out of memory"),
        ),
        (
            Kind::Statistics,
            0,
            b"stats\r\n",
            b"STAT pid 1\r\nSTAT words two words\r\nSTAT empty \r\nEND\r\n".to_vec(),
            Given::Statistics(vec![pair("pid", "1"), pair("words", "two words"), pair("empty", "")]),
        ),
        (Kind::Statistics, 0, b"stats reset\r\n", b"RESET\r\n".to_vec(), Given::Statistics(vec![])),
    ]
}

#[test]
fn answers_are_the_same_in_pieces_of_all_sizes() {
    for (kind, keys_at, command, bytes, given) in cases() {
        let sizes = (1..bytes.len().min(90)).chain([1000, 4096, 16 << 10, bytes.len(), bytes.len() + 3]);
        for size in sizes {
            let mut answer = Answer::new(kind, keys_at);
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
    for (kind, keys_at, command, bytes, given) in cases() {
        let mut answer = Answer::new(kind, keys_at);
        feed(&mut answer, command, [&bytes[..bytes.len() / 2]]).unwrap();
        answer.restart();
        feed(&mut answer, command, [&bytes[..]]).unwrap();
        assert_eq!(answer.take_given(), Some(given));
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
/// an error, or a wait for more bytes, and never a panic. [`feed`] has further assertions.
#[test]
fn noise_is_an_error_and_no_panic() {
    const WORDS: [&[u8]; 12] =
        [b"VALUE ", b"k ", b"0 ", b"7", b"\r\n", b"END", b"STORED", b"STAT ", b"SERVER_ERROR ", b"ERROR", b"\n", b" "];
    let mut numbers = Numbers(33);
    let (mut answers, mut errors) = (0, 0);
    let all = cases();
    for round in 0..30_000 {
        let (kind, keys_at, command, valid, _) = &all[round % all.len()];
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
        let size = 1 + numbers.below(64);
        let mut answer = Answer::new(*kind, *keys_at);
        match feed(&mut answer, command, bytes.chunks(size)) {
            Ok(_) => answers += usize::from(answer.is_done()),
            Err(Garbled(text)) => {
                assert!(text.len() < 500, "an excerpt is short");
                errors += 1;
            }
        }
    }
    assert!(answers > 1000 && errors > 1000, "{answers} answers and {errors} errors");
}
