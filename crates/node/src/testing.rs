//! For tests: streams in memory that can be held up, and handlers.

use crate::error::CallError;
use crate::peer::{Connection, Handler, Peer, PeerOptions, Reply, Stream, Traffic};
use crate::transport::{ServerTls, TlsRoots};
use crate::{Call, Side};
use situ_base::{Env, lock};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A pipe's bytes at once.
const PIPE_BYTES: usize = 64 << 10;

#[derive(Default)]
struct Flow {
    bytes: VecDeque<u8>,
    is_held: bool,
    is_closed: bool,
}

/// Bytes in one direction, from a writer to a reader, with little room between them.
#[derive(Clone, Default)]
pub(crate) struct Pipe {
    flow: Arc<(Mutex<Flow>, Condvar)>,
}

impl Pipe {
    /// No byte arrives until it is let go: the other end is there and says nothing.
    pub(crate) fn hold(&self, is_held: bool) {
        lock(&self.flow.0).is_held = is_held;
        self.flow.1.notify_all();
    }

    fn close(&self) {
        lock(&self.flow.0).is_closed = true;
        self.flow.1.notify_all();
    }

    fn wait_until(&self, is_ready: impl Fn(&Flow) -> bool) -> std::sync::MutexGuard<'_, Flow> {
        let waited = self.flow.1.wait_while(lock(&self.flow.0), |flow| !is_ready(flow));
        waited.unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut flow = self.wait_until(|flow| flow.is_closed || (!flow.is_held && !flow.bytes.is_empty()));
        let count = if flow.is_held { 0 } else { flow.bytes.len().min(into.len()) };
        for (to, byte) in into.iter_mut().zip(flow.bytes.drain(..count)) {
            *to = byte;
        }
        drop(flow);
        self.flow.1.notify_all();
        Ok(count)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut flow = self.wait_until(|flow| flow.is_closed || flow.bytes.len() < PIPE_BYTES);
        if flow.is_closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = bytes.len().min(PIPE_BYTES - flow.bytes.len());
        flow.bytes.extend(&bytes[..count]);
        drop(flow);
        self.flow.1.notify_all();
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The stream of one end.
pub(crate) fn end(name: &str, from: &Pipe, to: &Pipe) -> Stream {
    let both = [from.clone(), to.clone()];
    Stream {
        name: name.to_owned(),
        reader: Box::new(from.clone()),
        writer: Box::new(to.clone()),
        try_write: None,
        hang_up: Box::new(move || both.iter().for_each(Pipe::close)),
        binding: Vec::new(),
    }
}

/// A handler that is a function.
pub(crate) struct Asked<F>(pub(crate) F);

impl<F: Fn(&Peer, u16, Vec<u8>, Reply) + Send + Sync> Handler for Asked<F> {
    fn request(&self, peer: &Peer, operation: u16, payload: Vec<u8>, reply: Reply) {
        (self.0)(peer, operation, payload, reply);
    }
}

/// Answers every request with its payload.
pub(crate) fn echo() -> Arc<dyn Handler> {
    Arc::new(Asked(|_: &Peer, _, payload, reply: Reply| reply.answer(payload)))
}

/// One end over a stream.
pub(crate) fn begin(side: Side, stream: Stream, options: &PeerOptions, handler: Arc<dyn Handler>) -> Connection {
    let traffic = Arc::new(Traffic::default());
    Connection::begin(&Env::system(), side, stream, options.clone(), handler, traffic).unwrap()
}

/// Two ends, and the pipe to the host.
pub(crate) struct Pair {
    pub(crate) host: Connection,
    pub(crate) device: Connection,
    pub(crate) to_host: Pipe,
}

/// Two ends that know each other, over pipes in memory.
pub(crate) fn pair(options: &PeerOptions, at_host: Arc<dyn Handler>, at_device: Arc<dyn Handler>) -> Pair {
    let (to_host, to_device) = (Pipe::default(), Pipe::default());
    let host = begin(Side::Host, end("node test", &to_host, &to_device), options, at_host);
    let device = begin(Side::Device, end("host test", &to_device, &to_host), options, at_device);
    for connection in [&host, &device] {
        connection.peer().open_up(options.payload_bytes_max);
    }
    Pair { host, device, to_host }
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < SOON, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The answer to a raw request.
pub(crate) fn call(connection: &Connection, payload: &[u8]) -> Result<Vec<u8>, CallError> {
    connection.peer().call(crate::message::Read::OPERATION as u16, payload.to_vec(), SOON)
}

/// A certificate for this machine, its key, and whoever signed it, as files.
pub(crate) fn certificates(directory: &Path) -> (ServerTls, TlsRoots) {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let (certificate, key) = (directory.join("node.pem"), directory.join("node.key"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (ServerTls::read(&certificate, &key).unwrap(), TlsRoots::read(&certificate).unwrap())
}
