//! Exchanges over a stream with the smallest buffers: as in shared memory, reading and writing are copies.

use super::*;
use crate::answer::Given;
use crate::item::Attributes;
use crate::request::{self, Mode};
use std::borrow::Cow;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A server behind two rings of a few bytes. It works only while the client waits.
struct Rings {
    ring_bytes: usize,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    heard_bytes: usize,
    /// What the server says once it has heard this number of bytes.
    script: Vec<(usize, Vec<u8>)>,
}

impl Stream for Rings {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let length = room.len().min(self.to_client.len());
        if length == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        room[..length].copy_from_slice(&self.to_client[..length]);
        self.to_client.drain(..length);
        Ok(length)
    }

    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut written = 0;
        for part in parts {
            let length = part.len().min(self.ring_bytes - self.to_server.len());
            self.to_server.extend_from_slice(&part[..length]);
            written += length;
        }
        if written == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(written) }
    }

    fn wait(&mut self, to_write: bool, until: Instant) -> io::Result<bool> {
        self.heard_bytes += self.to_server.len();
        self.to_server.clear();
        for (_, said) in self.script.iter_mut().filter(|(after, _)| *after <= self.heard_bytes) {
            let room = self.ring_bytes - self.to_client.len();
            self.to_client.extend(said.drain(..room.min(said.len())));
        }
        self.script.retain(|(_, said)| !said.is_empty());
        // The ring to the server is empty.
        assert!(to_write || !self.to_client.is_empty(), "a wait for what will never come");
        Ok(Instant::now() < until)
    }

    fn line_read_bytes(&self) -> usize {
        64
    }

    fn kind(&self) -> TransportKind {
        TransportKind::SharedMemory
    }

    fn into_socket(self: Box<Self>) -> Result<OwnedFd, Box<dyn Stream>> {
        Err(self)
    }
}

fn connect(ring_bytes: usize, script: Vec<(usize, Vec<u8>)>) -> Connection {
    Connection::new(Box::new(Rings { ring_bytes, to_server: vec![], to_client: vec![], heard_bytes: 0, script }))
}

fn exchange(connection: &mut Connection, requests: &mut [Request<'_>]) -> (Progress, Result<(), Fault>) {
    let mut progress = Progress::default();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !progress.is_over(requests.len()) {
        assert!(Instant::now() < deadline);
        if let Err(fault) = connection.advance(requests, &mut progress, deadline) {
            return (progress, Err(fault));
        }
    }
    (progress, Ok(()))
}

fn get() -> Request<'static> {
    request::get([&b"k"[..]], false)
}

#[test]
fn requests_and_answers_longer_than_all_buffers_pass() {
    let value: Vec<u8> = (0..100_000_u32).map(|n| (n % 249) as u8).collect();
    for ring_bytes in [1, 7, 64, 4096] {
        let value = &value[..value.len().min(ring_bytes * 1000)];
        let mut requests = [request::store(Mode::Set, b"k", Cow::Borrowed(value), Attributes::default()), get(), get()];
        let mut answer = format!("VALUE k 0 {}\r\n", value.len()).into_bytes();
        answer.extend_from_slice(value);
        answer.extend_from_slice(b"\r\nEND\r\n");
        let set = requests[0].bytes();
        let script = vec![(set, b"STORED\r\n".to_vec()), (set + 7, answer), (set + 14, b"END\r\n".to_vec())];
        let mut connection = connect(ring_bytes, script);
        let (_, result) = exchange(&mut connection, &mut requests);
        result.unwrap();
        assert!(connection.is_quiet());
        let Some(Given::Values(found)) = requests[1].answer.take_given() else { panic!("no values") };
        assert_eq!(found[0].item.value, value);
        assert_eq!(requests[2].answer.take_given(), Some(Given::Values(vec![])));
    }
}

/// The server refuses a value before it has all of it, and takes the rest. The rest must go, or the next command would
/// be a part of the value.
#[test]
fn an_early_refusal_does_not_cut_a_value_short() {
    let value = vec![7; 5000];
    let mut requests = [request::store(Mode::Set, b"k", Cow::Borrowed(&value[..]), Attributes::default())];
    let all = requests[0].bytes();
    let mut connection = connect(4000, vec![(30, b"SERVER_ERROR object too large for cache\r\n".to_vec())]);
    let (progress, result) = exchange(&mut connection, &mut requests);
    result.unwrap();
    assert!(progress.is_over(1) && all > 5000);
    assert!(matches!(requests[0].answer.take_given(), Some(Given::Refused(_))));
}

/// A server that did not understand the command reads its value as commands.
#[test]
fn a_refused_command_with_a_value_ends_the_connection_and_has_its_answer() {
    let mut requests =
        [request::store(Mode::Set, b"k", Cow::Borrowed(b"flush_all"), Attributes::default()), request::delete(b"k")];
    let all = requests[0].bytes();
    let mut connection = connect(4096, vec![(all, b"ERROR\r\nOK\r\nNOT_FOUND\r\n".to_vec())]);
    let (progress, result) = exchange(&mut connection, &mut requests);
    assert!(matches!(result, Err(Fault::Garbled(_))));
    assert_eq!(progress.answered, 1);
    assert_eq!(requests[0].answer.take_given(), Some(Given::Refused("ERROR".to_owned())));
}

#[test]
fn bytes_that_belong_to_no_command_end_the_connection() {
    for script in [vec![(7, b"END\r\nEND\r\n".to_vec())], vec![(0, b"END\r\n".to_vec())]] {
        let mut connection = connect(4096, script);
        let waited = connection.stream.wait(true, Instant::now() + Duration::from_secs(1));
        assert!(waited.unwrap());
        let quiet = connection.is_quiet();
        let (_, result) = exchange(&mut connection, &mut [get()]);
        assert!(!quiet || matches!(result, Err(Fault::Garbled(_))));
    }
}

#[test]
fn many_small_requests_are_answered_in_order() {
    let mut requests: Vec<_> = (0..300_u64).map(|n| request::count(b"k", n, true)).collect();
    let mut script = Vec::new();
    let mut heard = 0;
    for (n, request) in requests.iter().enumerate() {
        heard += request.bytes();
        script.push((heard, format!("{n}\r\n").into_bytes()));
    }
    let mut connection = connect(50, script);
    exchange(&mut connection, &mut requests).1.unwrap();
    for (n, request) in requests.iter_mut().enumerate() {
        assert_eq!(request.answer.take_given(), Some(Given::Number(n as u64)));
    }
}
