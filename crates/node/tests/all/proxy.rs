//! What lies between a host and a node: passes frames on, and changes those of the node.

use crc32c::crc32c;
use situ_node::Place;
use situ_node::frame::{HEADER_BYTES, place};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A frame of the node on its way.
pub(crate) struct Frame {
    header: [u8; HEADER_BYTES],
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    pub(crate) fn operation(&self) -> u16 {
        u16::from_le_bytes([self.header[place::OPERATION], self.header[place::OPERATION + 1]])
    }

    /// Whether it is an answer that is no error.
    pub(crate) fn is_answer(&self) -> bool {
        self.header[place::FLAGS] == situ_node::frame::flag::ANSWER
    }

    /// Makes the checksums fit the payload again.
    pub(crate) fn seal(&mut self) {
        let payload = crc32c(&self.payload).to_le_bytes();
        self.header[place::PAYLOAD_CRC..place::PAYLOAD_CRC + 4].copy_from_slice(&payload);
        let header = crc32c(&self.header[..place::HEADER_CRC]).to_le_bytes();
        self.header[place::HEADER_CRC..].copy_from_slice(&header);
    }

    fn receive(stream: &mut UnixStream) -> io::Result<Frame> {
        let mut header = [0; HEADER_BYTES];
        stream.read_exact(&mut header)?;
        let bytes = &header[place::PAYLOAD_BYTES..place::PAYLOAD_BYTES + 4];
        let mut payload = vec![0; u32::from_le_bytes(bytes.try_into().unwrap()) as usize];
        stream.read_exact(&mut payload)?;
        Ok(Frame { header, payload })
    }
}

type Change = Box<dyn FnMut(&mut Frame) + Send>;

#[derive(Default)]
struct Shared {
    change: Mutex<Option<Change>>,
    stalls: AtomicBool,
    changed: AtomicU64,
}

/// Listens on a socket file, and passes on what the node behind another one says.
pub(crate) struct Proxy {
    path: PathBuf,
    shared: Arc<Shared>,
}

impl Proxy {
    pub(crate) fn start(directory: &Path) -> Proxy {
        let (path, node) = (directory.join("proxy.sock"), directory.join("node.sock"));
        let listener = UnixListener::bind(&path).unwrap();
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        // The thread waits for connections until the process ends.
        std::thread::spawn(move || {
            for host in listener.incoming() {
                let Ok(host) = host else { return };
                // A node that is not there: the host is hung up on.
                if let Ok(node) = UnixStream::connect(&node) {
                    pass(host, node, &accepting);
                }
            }
        });
        Proxy { path, shared }
    }

    pub(crate) fn place(&self) -> Place {
        Place::Unix(self.path.clone())
    }

    /// `change` gets each frame of the node from now on.
    pub(crate) fn change(&self, change: impl FnMut(&mut Frame) + Send + 'static) {
        *self.shared.change.lock().unwrap() = Some(Box::new(change));
    }

    /// Frames pass as they are.
    pub(crate) fn pass_all(&self) {
        *self.shared.change.lock().unwrap() = None;
    }

    /// While it stalls, nothing passes, and connections stay.
    pub(crate) fn stall(&self, stalls: bool) {
        self.shared.stalls.store(stalls, Ordering::Relaxed);
    }

    /// Frames whose payload is another one now.
    pub(crate) fn changed(&self) -> u64 {
        self.shared.changed.load(Ordering::Relaxed)
    }
}

fn pass(host: UnixStream, node: UnixStream, shared: &Arc<Shared>) {
    let (mut from_host, mut to_node) = (host.try_clone().unwrap(), node.try_clone().unwrap());
    let requests = Arc::clone(shared);
    std::thread::spawn(move || {
        let mut buffer = [0; 64 << 10];
        while let Ok(bytes @ 1..) = from_host.read(&mut buffer) {
            hold(&requests);
            if to_node.write_all(&buffer[..bytes]).is_err() {
                break;
            }
        }
        hang_up(&from_host, &to_node);
    });
    let shared = Arc::clone(shared);
    let (mut host, mut node) = (host, node);
    std::thread::spawn(move || {
        while let Ok(mut frame) = Frame::receive(&mut node) {
            hold(&shared);
            let before = frame.payload.clone();
            if let Some(change) = shared.change.lock().unwrap().as_mut() {
                change(&mut frame);
            }
            shared.changed.fetch_add(u64::from(before != frame.payload), Ordering::Relaxed);
            if host.write_all(&frame.header).and_then(|()| host.write_all(&frame.payload)).is_err() {
                break;
            }
        }
        hang_up(&host, &node);
    });
}

fn hold(shared: &Shared) {
    while shared.stalls.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// One end may have closed it already.
fn hang_up(host: &UnixStream, node: &UnixStream) {
    let _ = (host.shutdown(Shutdown::Both), node.shutdown(Shutdown::Both));
}
