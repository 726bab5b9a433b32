//! The same bytes to a real memcached and to this server must bring the same answers.
//!
//! Streams of commands are random but seeded, valid and malformed, cut at random byte boundaries. What legitimately
//! differs is kept out or evened out: remaining and elapsed seconds (the two clocks tick at different moments), and
//! numbers that are read in the same breath as they are changed (memcached's padding depends on whether an answer
//! that holds the item has left yet; and from 2^63 on it looks for a minus sign in memory behind the item). Without a memcached 1.6.18 the test says that it was skipped.

use crate::memory;
use crate::skipped;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::memcached::{Memcached, exchange};
use situ_server::{Engine, Server, ServerOptions};

/// splitmix64: small, seeded, good enough to choose commands with.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

/// Evens out seconds, and the padding of numbers, which memcached leaves away when something else holds the item.
fn normal(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    let mut lines = Vec::new();
    let mut number = false;
    for line in text.split("\r\n") {
        if std::mem::take(&mut number) {
            lines.push(line.trim_end().to_owned());
            continue;
        }
        number = line.starts_with("VALUE n");
        let meta = ["HD", "VA", "EN", "NF", "NS", "EX", "ME"].iter().any(|code| line.starts_with(code));
        let words = line.split(' ').enumerate().map(|(index, word)| {
            if number && index == 3 {
                return "length".to_owned();
            }
            let seconds = word.strip_prefix('t').or(word.strip_prefix('l')).unwrap_or_default();
            if meta && !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit()) {
                format!("{}N", &word[..1])
            } else if meta && (word.starts_with("la=") || word.starts_with("exp=") && word != "exp=-1") {
                "seconds".to_owned()
            } else {
                word.to_owned()
            }
        });
        lines.push(words.collect::<Vec<_>>().join(" "));
    }
    lines.join("\n")
}

const KEYS: [&str; 6] = ["a", "b", "key-c", "d/d", "e", "Zm9v"];
const NUMBERS: [&str; 3] = ["n1", "n2", "n3"];
const TIMES: [&str; 8] = ["0", "0", "0", "1000", "-1", "4000000000", "2000000000", "100"];

struct Generator {
    random: Random,
    cas: Vec<u64>,
}

impl Generator {
    fn cas(&mut self) -> String {
        if self.random.one_in(3) || self.cas.is_empty() {
            self.random.below(40).to_string()
        } else {
            let index = self.random.below(self.cas.len());
            self.cas[index].to_string()
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let length = match self.random.below(12) {
            0 => 0,
            1 if self.random.one_in(5) => self.random.below(3000),
            2 if self.random.one_in(9) => self.random.below(60_000),
            _ => self.random.below(30),
        };
        (0..length).map(|_| b"abc \r\n0123\0\xff"[self.random.below(12)]).collect()
    }

    fn store(&mut self, out: &mut Vec<u8>) {
        let command = self.random.pick(&["set", "set", "set", "add", "replace", "append", "prepend", "cas"]);
        let key = self.random.pick(&KEYS);
        let flags = self.random.pick(&["0", "0", "5", "4294967295", "x", "-1"]);
        let flags = if self.random.one_in(8) { flags } else { "7" };
        let time = self.random.pick(&TIMES);
        let value = self.value();
        let mut length = value.len() as i64;
        if self.random.one_in(15) {
            length += self.random.below(7) as i64 - 3;
        }
        let cas = if command == "cas" { format!(" {}", self.cas()) } else { String::new() };
        let noreply = if self.random.one_in(6) { " noreply" } else { "" };
        out.extend_from_slice(format!("{command} {key} {flags} {time} {length}{cas}{noreply}\r\n").as_bytes());
        out.extend_from_slice(&value);
        out.extend_from_slice(b"\r\n");
    }

    fn meta_flags(&mut self, choices: &[&str], out: &mut Vec<u8>) {
        let mut chosen = Vec::new();
        for _ in 0..self.random.below(5) {
            let flag = self.random.pick(choices);
            if self.random.one_in(20) || !chosen.contains(&&flag[..1]) {
                chosen.push(&flag[..1]);
                out.push(b' ');
                out.extend_from_slice(flag.as_bytes());
                if flag == "C" {
                    let cas = self.cas();
                    out.extend_from_slice(cas.as_bytes());
                }
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    fn command(&mut self, out: &mut Vec<u8>) {
        let key = self.random.pick(&KEYS);
        match self.random.below(22) {
            0..=5 => self.store(out),
            6..=8 => {
                let command = self.random.pick(&["get", "gets"]);
                out.extend_from_slice(command.as_bytes());
                for _ in 0..1 + self.random.below(5) {
                    out.extend_from_slice(format!(" {}", self.random.pick(&KEYS)).as_bytes());
                }
                out.extend_from_slice(b"\r\n");
            }
            9 => {
                let (command, time) = (self.random.pick(&["gat", "gats"]), self.random.pick(&TIMES));
                out.extend_from_slice(format!("{command} {time} {key} a\r\n").as_bytes());
            }
            10 => {
                let noreply = self.random.pick(&["", "", " noreply", " 0", " 0 noreply", " 1"]);
                out.extend_from_slice(format!("delete {key}{noreply}\r\n").as_bytes());
            }
            11 => {
                let time = self.random.pick(&TIMES);
                let noreply = self.random.pick(&["", "", " noreply"]);
                out.extend_from_slice(format!("touch {key} {time}{noreply}\r\n").as_bytes());
            }
            12 | 13 => {
                let number = self.random.pick(&NUMBERS);
                let delta = self.random.pick(&["1", "10", "999", "123456789012", "x", "-1", "+3"]);
                let command = self.random.pick(&["incr", "decr"]);
                let noreply = self.random.pick(&["", "", " noreply"]);
                out.extend_from_slice(format!("{command} {number} {delta}{noreply}\r\n").as_bytes());
            }
            14 => {
                let number = self.random.pick(&NUMBERS);
                let value = self.random.pick(&["0", "1", "99", "12 ", " 5", "", "x", "4611686018427387904", "7 x"]);
                out.extend_from_slice(format!("set {number} 0 0 {}\r\n{value}\r\n", value.len()).as_bytes());
            }
            15 | 16 => {
                out.extend_from_slice(format!("mg {key}").as_bytes());
                let flags = [
                    "v", "v", "k", "c", "f", "s", "t", "h", "l", "Oxyz", "q", "u", "T1000", "T0", "N100", "R500",
                    "R50", "Nx", "T", "y", "P1", "Lab",
                ];
                self.meta_flags(&flags, out);
            }
            17 | 18 => {
                let value = self.value();
                out.extend_from_slice(format!("ms {key} {}", value.len()).as_bytes());
                let flags = [
                    "k", "c", "F5", "T100", "T0", "Oab", "q", "MS", "ME", "MA", "MP", "MR", "Mx", "I", "C", "C", "Fx",
                    "J", "MEE",
                ];
                self.meta_flags(&flags, out);
                out.extend_from_slice(&value);
                out.extend_from_slice(b"\r\n");
            }
            19 => {
                out.extend_from_slice(format!("md {key}").as_bytes());
                self.meta_flags(&["q", "I", "I", "T100", "C", "k", "O1", "y"], out);
            }
            20 => {
                let number = self.random.pick(&NUMBERS);
                out.extend_from_slice(format!("ma {number}").as_bytes());
                let flags =
                    ["q", "N0", "N100", "J17", "D5", "D", "MI", "MD", "M+", "M-", "Mz", "v", "t", "c", "k", "O2"];
                self.meta_flags(&flags, out);
            }
            _ => {
                let line = self.random.pick(&[
                    "",
                    " ",
                    "g",
                    "get",
                    "gets",
                    "gat",
                    "gat 0",
                    "gat x a",
                    "set",
                    "set a",
                    "set a 0 0",
                    "set a 0 0 x",
                    "set a 0 0 -1",
                    "cas a 0 0 1",
                    "cas a 0 0 1 x",
                    "add a 0 0 1 2 3",
                    "delete",
                    "delete a b c d",
                    "incr",
                    "incr n1",
                    "touch a",
                    "touch a x",
                    "mg",
                    "ms",
                    "ms a",
                    "ms a x",
                    "md",
                    "ma",
                    "me",
                    "me a",
                    "me nope",
                    "mn",
                    "mn x",
                    "mx a",
                    "verbosity",
                    "verbosity 1",
                    "verbosity x",
                    "version",
                    "flush_all x",
                    "cache_memlimit",
                    "cache_memlimit 1",
                    "cache_memlimit 0",
                    "shutdown",
                    "stats nope",
                    "stats detail",
                    "GET a",
                    "get\0 a",
                    "get a\0b",
                    "mg Zm9v b k v",
                    "mg Zm8 b",
                    "ms Zm9v 0 b k",
                    "quit",
                    "flush_all",
                    "flush_all noreply",
                ]);
                // These end the stream or the items, so they are to be rare.
                if !line.starts_with("quit") && !line.starts_with("flush_all") || self.random.one_in(4) {
                    out.extend_from_slice(line.as_bytes());
                    out.extend_from_slice(if self.random.one_in(5) { b"\n" } else { b"\r\n" });
                }
                if self.random.one_in(8) {
                    let length = 200 + self.random.below(200);
                    // Not `get`: memcached then forgets answers of earlier commands that have not left yet.
                    let command = self.random.pick(&["gat", "set", "mg", "delete", "incr", "ms", "touch", "me"]);
                    out.extend_from_slice(format!("{command} {} 0 0 2\r\n", "k".repeat(length)).as_bytes());
                }
            }
        }
    }
}

/// Fails with the first line that differs and the stream, in a form that can be read.
fn check(mine: &[u8], theirs: &[u8], stream: &[u8], seed: u64, round: usize, what: &str) {
    let (mine, theirs) = (normal(mine), normal(theirs));
    if mine == theirs {
        return;
    }
    let (mine, theirs): (Vec<_>, Vec<_>) = (mine.lines().collect(), theirs.lines().collect());
    let same = mine.iter().zip(&theirs).take_while(|(mine, theirs)| mine == theirs).count();
    let near = |lines: &[&str]| format!("{:?}", &lines[same.saturating_sub(3)..lines.len().min(same + 3)]);
    let stream: Vec<_> = stream.split(|byte| *byte == b'\n').map(|line| line.escape_ascii().to_string()).collect();
    let lines: Vec<_> = stream.iter().map(|line| &line[..line.len().min(120)]).collect();
    panic!(
        "seed {seed:#x} round {round}: {what} differ\nours: {}\ntheirs: {}\nfor:\n{}",
        near(&mine),
        near(&theirs),
        lines.join("\n")
    );
}

fn cas_ids(answer: &[u8]) -> Vec<u64> {
    let text = String::from_utf8_lossy(answer);
    text.lines()
        .filter(|line| line.starts_with("VALUE "))
        .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
        .collect()
}

/// Returns false if there is no memcached to compare with.
pub(crate) fn compare_with_memcached(seed: u64, rounds: usize, engine: Arc<impl Engine>) -> bool {
    let Some(memcached) = Memcached::start().filter(|memcached| memcached.version == [1, 6, 18]) else {
        skipped::skipped("no memcached 1.6.18 on this machine to compare with");
        return false;
    };
    let server = serve(engine);
    compare(seed, rounds, server.addresses()[0], memcached.address);
    server.stop(Duration::from_secs(5));
    true
}

fn serve(engine: Arc<impl Engine>) -> Server {
    let options =
        ServerOptions { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 2, ..ServerOptions::default() };
    Server::start(&options, engine).unwrap()
}

fn compare(seed: u64, rounds: usize, ours: SocketAddr, others: SocketAddr) {
    println!("seed {seed:#x}");
    let mut generator = Generator { random: Random(seed), cas: Vec::new() };
    for round in 0..rounds {
        let mut stream = Vec::new();
        for _ in 0..1 + generator.random.below(40) {
            generator.command(&mut stream);
        }
        // A block announced too long finds its end here: memcached forgets answers if the stream ends within a block.
        stream.extend_from_slice(b"\r\nmn\r\n");
        let mut pieces: Vec<&[u8]> = Vec::new();
        let mut rest = &stream[..];
        let slowly = generator.random.one_in(3);
        while !rest.is_empty() {
            let length = match generator.random.below(3) {
                0 => 1 + generator.random.below(3),
                1 => 1 + generator.random.below(100),
                _ => 1 + generator.random.below(10_000),
            };
            let (piece, tail) = rest.split_at(length.min(rest.len()));
            pieces.push(piece);
            rest = tail;
        }
        // memcached decides by what one read brought whether a long line has no end; whole streams leave no doubt.
        let pieces = if slowly && pieces.len() < 60 { pieces } else { vec![&stream[..]] };
        let theirs = exchange(others, &pieces, slowly);
        let mine = exchange(ours, &pieces, slowly);
        check(&mine, &theirs, &stream, seed, round, "answers");
        let look = b"gets a b key-c d/d e Zm9v n1 n2 n3\r\nmg a t f s c\r\nmg e t f s c\r\n";
        let theirs = exchange(others, &[look], false);
        let mine = exchange(ours, &[look], false);
        check(&mine, &theirs, &stream, seed, round, "items afterwards");
        generator.cas = cas_ids(&theirs);
    }
}

#[test]
fn answers_are_memcacheds_when_writes_complete_at_once() {
    for seed in 1..5 {
        compare_with_memcached(seed, 150, memory::MemoryEngine::start(None));
    }
}

#[test]
fn answers_are_memcacheds_when_writes_complete_late() {
    compare_with_memcached(100, 120, memory::MemoryEngine::start(Some(Duration::from_micros(200))));
}

#[test]
fn answers_are_memcacheds_when_reads_complete_late() {
    let delay = Some(Duration::from_micros(100));
    // Each key, or every other one, so that keys in memory lie between keys on the disk.
    let engine = |is_cold| memory::MemoryEngine::start_on_disk(delay, delay, is_cold);
    compare_with_memcached(200, 100, engine(|_| true));
    compare_with_memcached(201, 60, engine(|key| key.iter().map(|byte| usize::from(*byte)).sum::<usize>() % 2 == 0));
}

/// What `stats` counts, without sizes, times and numbers that depend on how bytes came.
fn counts(address: SocketAddr) -> Vec<String> {
    let answer = exchange(address, &[b"stats\r\n"], false);
    let text = String::from_utf8(answer).unwrap();
    let counted = |line: &&str| {
        let name = line.split(' ').nth(1).unwrap_or_default();
        name.starts_with("cmd_")
            || ["_hits", "_misses", "_badval", "_expired", "_flushed", "_failures"]
                .iter()
                .any(|end| name.ends_with(end))
            || ["total_items", "store_too_large"].contains(&name)
    };
    text.lines().filter(counted).map(str::to_owned).collect()
}

#[test]
fn reads_that_complete_late_change_no_answer_and_no_count() {
    for (seed, read_delay) in [(300, None), (301, Some(Duration::from_micros(50)))] {
        let hot = serve(memory::MemoryEngine::start(None));
        let cold = serve(memory::MemoryEngine::start_on_disk(None, read_delay, |_| true));
        compare(seed, 200, cold.addresses()[0], hot.addresses()[0]);
        let (ours, theirs) = (counts(cold.addresses()[0]), counts(hot.addresses()[0]));
        assert!(
            theirs.len() > 20 && theirs.iter().any(|line| line.starts_with("STAT get_hits") && !line.ends_with(" 0"))
        );
        assert_eq!(ours, theirs);
        hot.stop(Duration::from_secs(5));
        cold.stop(Duration::from_secs(5));
    }
}

#[test]
fn memccapable_passes() {
    if Command::new("memccapable").arg("-V").output().is_err() {
        skipped::skipped("no memccapable on this machine");
        return;
    }
    let options = ServerOptions { listen: vec!["127.0.0.1:0".parse().unwrap()], ..ServerOptions::default() };
    let server = Server::start(&options, memory::MemoryEngine::start(None)).unwrap();
    let port = server.addresses()[0].port().to_string();
    let output = Command::new("memccapable").args(["-h", "127.0.0.1", "-p", &port, "-a"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("All tests passed"), "{text}");
}
