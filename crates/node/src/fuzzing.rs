//! What comes from the network under arbitrary bytes, for fuzzers (`fuzz/`) and the seeded tests below. Only there with
//! the feature `fuzzing` and in tests.

use crate::error::CallError;
use crate::frame::{HEADER_BYTES, Header, place};
use crate::greeting::{Door, Doorkeeper, NoRequests};
use crate::message::{Hello, Message, Operation, Welcome};
use crate::peer::{Connection, Handler, Peer, PeerOptions, Reply, Stream, Traffic};
use crate::secret::Secret;
use crate::{NodeAddress, Side};
use crc32c::crc32c;
use situ_base::{Env, lock};
use std::io::{self, Cursor, Read};
use std::sync::{Arc, Condvar, Mutex};

/// A payload, after two bytes with its operation: as the request and as the answer. And any bytes as an error and as an
/// address.
pub fn message(data: &[u8]) {
    let _ = CallError::decode(data).to_string();
    if let Ok(address) = std::str::from_utf8(data).unwrap_or_default().parse::<NodeAddress>() {
        assert_eq!(address.to_string().parse::<NodeAddress>().expect("what is shown can be read"), address);
    }
    let Some((number, payload)) = data.split_first_chunk::<2>() else { return };
    if let Some(operation) = Operation::of(u16::from_le_bytes(*number)) {
        operation.decode_both(payload);
    }
}

/// What a host sends to a node, from its first byte. The lowest bit of the first byte says that checksums are put right
/// before.
pub fn to_node(data: &[u8]) {
    conversation(Side::Device, data);
}

/// What a node sends to a host that has asked something.
pub fn to_host(data: &[u8]) {
    conversation(Side::Host, data);
}

fn conversation(side: Side, data: &[u8]) {
    let Some((first, frames)) = data.split_first() else { return };
    let mut frames = frames.to_vec();
    if first & 1 == 1 {
        seal(&mut frames);
    }
    let handler: Arc<dyn Handler> = match side {
        Side::Device => Arc::new(Doorkeeper::new(Arc::new(OpenDoor))),
        Side::Host => Arc::new(NoRequests),
    };
    let ended = Arc::new(Ended::default());
    let stream = Stream {
        name: "a fuzzer".to_owned(),
        reader: Box::new(Once { bytes: Cursor::new(frames), ended: Arc::clone(&ended) }),
        writer: Box::new(io::sink()),
        try_write: None,
        hang_up: Box::new(|| {}),
        binding: Vec::new(),
    };
    let (env, traffic) = (Env::system(), Arc::new(Traffic::default()));
    let begun = Connection::begin(&env, side, stream, PeerOptions::default(), handler, traffic);
    let connection = begun.expect("the system gives two threads");
    let answered = Arc::new(Mutex::new(0));
    for _ in 0..3 {
        let answered = Arc::clone(&answered);
        connection.peer().call_later(Operation::Read as u16, Vec::new(), None, move |_| *lock(&answered) += 1);
    }
    ended.wait();
    drop(connection);
    assert_eq!(*lock(&answered), 3, "each request completes once");
}

/// Puts the magic and the checksums of all frames right, as far as they have lengths.
fn seal(frames: &mut [u8]) {
    let mut at = 0;
    while let Some(frame) = frames.get_mut(at..).filter(|frame| frame.len() >= HEADER_BYTES) {
        frame[..4].copy_from_slice(&crate::frame::MAGIC);
        let bytes: [u8; 4] = std::array::from_fn(|index| frame[place::PAYLOAD_BYTES + index]);
        let end = HEADER_BYTES.saturating_add(u32::from_le_bytes(bytes) as usize).min(frame.len());
        let payload = crc32c(&frame[HEADER_BYTES..end]);
        frame[place::PAYLOAD_CRC..place::HEADER_CRC].copy_from_slice(&payload.to_le_bytes());
        let header = crc32c(&frame[..place::HEADER_CRC]);
        frame[place::HEADER_CRC..HEADER_BYTES].copy_from_slice(&header.to_le_bytes());
        at += end;
    }
}

/// Whether the reader has had all bytes.
#[derive(Default)]
struct Ended {
    is_so: Mutex<bool>,
    changed: Condvar,
}

impl Ended {
    fn set(&self) {
        *lock(&self.is_so) = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        drop(self.changed.wait_while(lock(&self.is_so), |is_so| !*is_so));
    }
}

/// Bytes, and then the end.
struct Once {
    bytes: Cursor<Vec<u8>>,
    ended: Arc<Ended>,
}

impl Read for Once {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.read(into)?;
        if count == 0 {
            self.ended.set();
        }
        Ok(count)
    }
}

/// A reader that gave up before the end has said what it had to say, too.
impl Drop for Once {
    fn drop(&mut self) {
        self.ended.set();
    }
}

struct OpenDoor;

impl Door for OpenDoor {
    fn secret(&self) -> Option<&Secret> {
        None
    }

    fn payload_bytes_max(&self) -> u32 {
        PeerOptions::default().payload_bytes_max
    }

    fn enter(&self, _: &Peer, hello: &Hello) -> Result<(Welcome, Arc<dyn Handler>), CallError> {
        let welcome = Welcome {
            proof: [0; 32],
            daemon: [0; 16],
            machine: [0; 16],
            session_known: false,
            stores: true,
            session_ms: 0,
            location: String::new(),
            from: hello.from.clone(),
        };
        Ok((welcome, Arc::new(Decoding)))
    }
}

/// Decodes what it is asked, and answers with the same bytes.
struct Decoding;

impl Handler for Decoding {
    fn request(&self, _: &Peer, operation: u16, payload: Vec<u8>, reply: Reply) {
        if let Some(operation) = Operation::of(operation) {
            operation.decode_both(&payload);
        }
        reply.answer(payload);
    }
}

fn frame(side: Side, flags: u8, operation: Operation, request: u64, payload: &[u8]) -> Vec<u8> {
    let payload_bytes = u32::try_from(payload.len()).unwrap_or(0);
    let (operation, payload_crc) = (operation as u16, crc32c(payload));
    let header = Header { side, flags, operation, payload_bytes, timeout_ms: 1000, request, grant: 9, payload_crc };
    [&header.encode()[..], payload].concat()
}

/// A greeting and a request: where a fuzzer of [`to_node`] begins.
pub fn to_node_corpus() -> Vec<Vec<u8>> {
    use crate::message::{List, Prove};
    let hello = Hello {
        version_min: 1,
        version_max: 1,
        store: "store".to_owned(),
        session: [1; 16],
        nonce: [2; 32],
        payload_bytes_max: 1 << 20,
        from: "a host".to_owned(),
    };
    let said = [
        vec![1],
        frame(Side::Host, 0, Operation::Hello, 1, &hello.encode()),
        frame(Side::Host, 0, Operation::Prove, 2, &Prove { proof: [0; 32] }.encode()),
        frame(Side::Host, 4, Operation::Heartbeat, 0, &[]),
        frame(Side::Host, 0, Operation::List, 3, &List { volume: 0, after: None }.encode()),
    ];
    vec![said[..3].concat(), said.concat()]
}

/// An answer, an error and a request of a node: where a fuzzer of [`to_host`] begins.
pub fn to_host_corpus() -> Vec<Vec<u8>> {
    let error = CallError::Busy("later".to_owned()).encode();
    let said = [
        vec![1],
        frame(Side::Device, 1, Operation::Read, 1, b"bytes"),
        frame(Side::Device, 3, Operation::Read, 2, &error),
        frame(Side::Device, 0, Operation::Pace, 1, &[0; 16]),
        frame(Side::Device, 4, Operation::Heartbeat, 0, &[]),
    ];
    vec![said[..2].concat(), said.concat()]
}

/// The golden bytes of all messages, each after its operation: where a fuzzer of [`message`] begins.
pub fn message_corpus() -> Vec<Vec<u8>> {
    let lines = include_str!("../testdata/messages.txt").lines();
    let input = |line: &str| {
        let (name, hex) = line.split_once(' ').unwrap_or((line, ""));
        let operation = Operation::ALL.iter().find(|operation| operation.name() == name)?;
        let digits = hex.as_bytes().chunks(2).filter_map(|two| std::str::from_utf8(two).ok());
        let bytes = digits.filter_map(|two| u8::from_str_radix(two, 16).ok());
        Some((*operation as u16).to_le_bytes().into_iter().chain(bytes).collect())
    };
    lines.filter_map(input).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeded changes of real inputs: flipped bits, other bytes, cuts and repeats.
    fn mutations(corpus: &[Vec<u8>], count: u64, run: impl Fn(&[u8])) {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below.max(1) as u64) as usize
        };
        for input in corpus {
            run(input);
            for _ in 0..count {
                let mut input = input.clone();
                for _ in 0..=draw(4) {
                    let at = draw(input.len());
                    match draw(4) {
                        0 => input[at] ^= 1 << draw(8),
                        1 => input[at] = draw(256) as u8,
                        2 if at > 0 => input.truncate(at),
                        _ => input.extend_from_within(at..),
                    }
                }
                run(&input);
            }
        }
    }

    #[test]
    fn changed_messages_are_messages_or_errors() {
        let corpus = message_corpus();
        assert_eq!(corpus.len(), Operation::ALL.len(), "each operation has a golden request");
        mutations(&corpus, 500, message);
    }

    #[test]
    fn changed_conversations_end() {
        mutations(&to_node_corpus(), 200, to_node);
        mutations(&to_host_corpus(), 200, to_host);
    }
}
