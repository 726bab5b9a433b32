//! Connections in shared memory: answers are those of a socket, and a client can break nothing but its own connection.

use crate::durable::Durable;
use crate::memory::MemoryEngine;
use rustix::io::{pread, pwrite};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use situ::Durability;
use situ_server::{CacheEngine, Engine, HashEngine, Server, ServerOptions};
use situ_sim::Rng;
use situ_transport::{ClientEnd, Refused};
use std::io::{ErrorKind, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
const RING_BYTES: u64 = 4096;

/// A server with a Unix socket, in a folder of its own.
struct Served {
    server: Server,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

fn serve<E: Engine>(engine: Arc<E>, change: impl FnOnce(&mut ServerOptions)) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("situ.sock");
    let mut options = ServerOptions {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        unix_socket: Some(socket.clone()),
        threads: 2,
        ..ServerOptions::default()
    };
    change(&mut options);
    Served { server: Server::start(&options, engine).unwrap(), socket, _folder: folder }
}

fn upgrade(socket: UnixStream, ring_bytes: u64) -> Result<ClientEnd, Refused> {
    ClientEnd::upgrade(socket.into(), ring_bytes, Instant::now() + PATIENCE).unwrap()
}

/// A connection in shared memory as a stream that waits.
struct Shared(ClientEnd);

impl Shared {
    fn connect(socket: &Path) -> Shared {
        Shared(upgrade(UnixStream::connect(socket).unwrap(), RING_BYTES).unwrap())
    }
}

impl Read for Shared {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let bytes = self.0.read(into)?;
            if bytes > 0 {
                return Ok(bytes);
            }
            match self.0.wait(Instant::now() + PATIENCE) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                waited => waited?,
            }
        }
    }
}

impl Write for Shared {
    fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
        loop {
            let bytes = self.0.write(from)?;
            if bytes > 0 {
                return Ok(bytes);
            }
            self.0.wait(Instant::now() + PATIENCE)?;
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Sends all commands, and `quit`, and returns all answers.
fn exchange(stream: &mut (impl Read + Write), commands: &[u8]) -> Vec<u8> {
    stream.write_all(commands).unwrap();
    stream.write_all(b"quit\r\n").unwrap();
    let mut answers = Vec::new();
    stream.read_to_end(&mut answers).unwrap();
    answers
}

/// Commands of all kinds, with values around the sizes of a ring.
fn commands() -> Vec<u8> {
    let mut commands = b"get nothing\r\nset a 5 0 3\r\nabc\r\ngets a\r\nadd a 0 0 1\r\nx\r\nreplace a 0 0 2\r\nde\r\nappend a 0 0 1\r\nf\r\n\
        prepend a 0 0 1\r\nc\r\nget a b a\r\ncas a 0 0 1 999999\r\nx\r\nset n 0 0 1\r\n9\r\nincr n 5\r\ndecr n 20\r\ntouch a 100\r\n\
        gat 100 a\r\nmg a v f t\r\nms m 2 T100\r\nhi\r\nmg m v k\r\nmd m\r\nmn\r\ndelete a\r\ndelete a\r\nnonsense\r\nset q 0 0 1 noreply\r\nq\r\n\
        get q\r\nverbosity 1\r\nflush_all\r\nget q\r\nset a 0 0 abc\r\n"
        .to_vec();
    for bytes in [1, 4000, 4095, 4096, 4097, 8192, 20_000, 70_000, 300_000] {
        let value: Vec<u8> = (0..bytes).map(|at| b'a' + (at % 23) as u8).collect();
        commands.extend(format!("set v{bytes} 0 0 {bytes}\r\n").bytes());
        commands.extend(value);
        commands.extend(format!("\r\nget v{bytes}\r\n").bytes());
    }
    commands.extend(b"get v1 v4096 v300000 v8192\r\n");
    commands
}

fn answers_are_those_of_a_socket<E: Engine>(engine: [Arc<E>; 2]) {
    let [by_socket, by_memory] = engine.map(|engine| serve(engine, |_| ()));
    let mut tcp = TcpStream::connect(by_socket.server.addresses()[0]).unwrap();
    // The client reads while it writes: all answers together are more than a ring.
    let mut shared = Shared::connect(&by_memory.socket);
    let (mut expected, mut got) = (Vec::new(), Vec::new());
    for piece in commands().chunks(3001) {
        tcp.write_all(piece).unwrap();
        let mut rest = piece;
        while !rest.is_empty() {
            rest = &rest[shared.0.write(rest).unwrap()..];
            let mut some = [0; 1000];
            let bytes = shared.0.read(&mut some).unwrap();
            got.extend(&some[..bytes]);
        }
    }
    expected.extend(exchange(&mut tcp, b""));
    got.extend(exchange(&mut shared, b""));
    // The tokens of `gets` count from a random start.
    let mask = |answers: Vec<u8>| {
        let text = String::from_utf8(answers).unwrap();
        let line = |line: &str| match line.strip_prefix("VALUE a 5 3 ") {
            Some(_) => "VALUE a 5 3 token".to_owned(),
            None => line.to_owned(),
        };
        text.lines().map(line).collect::<Vec<_>>()
    };
    assert_eq!(mask(got), mask(expected));
}

#[test]
fn answers_are_those_of_a_socket_with_every_engine() {
    answers_are_those_of_a_socket([MemoryEngine::start(None), MemoryEngine::start(Some(Duration::from_micros(50)))]);
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let hash = |folder: &tempfile::TempDir| Arc::new(HashEngine::open_in(folder.path(), Durability::Buffered));
    answers_are_those_of_a_socket([hash(&folders[0]), hash(&folders[1])]);
    let cache = || Arc::new(CacheEngine::open_in(Path::new(""), Durability::Buffered));
    answers_are_those_of_a_socket([cache(), cache()]);
}

#[test]
fn a_refusal_says_why_and_the_connection_goes_on() {
    let served = serve(MemoryEngine::start(None), |_| ());
    let said = |commands: &[u8]| {
        String::from_utf8(exchange(&mut UnixStream::connect(&served.socket).unwrap(), commands)).unwrap()
    };
    assert_eq!(said(b"shm 2 4096\r\n"), "CLIENT_ERROR another version of shared memory\r\n");
    for line in [&b"shm\r\n"[..], b"shm 1\r\n", b"shm 1 x\r\n", b"shm 1 4096 5\r\n"] {
        assert_eq!(said(line), "CLIENT_ERROR bad command line format\r\n");
    }
    let refused = "CLIENT_ERROR memory is asked for when all commands are answered, and none follows\r\n";
    assert_eq!(said(b"shm 1 4096\r\nversion\r\n"), format!("{refused}VERSION 1.6.18\r\n"));
    let mut tcp = TcpStream::connect(served.server.addresses()[0]).unwrap();
    assert_eq!(exchange(&mut tcp, b"shm 1 4096\r\n"), b"CLIENT_ERROR shared memory needs a Unix socket\r\n");
    let mut shared = Shared::connect(&served.socket);
    assert_eq!(exchange(&mut shared, b"shm 1 4096\r\n"), b"CLIENT_ERROR the connection has left its socket\r\n");
    let off = serve(MemoryEngine::start(None), |options| options.shared_ring_bytes_max = 0);
    let refused = upgrade(UnixStream::connect(&off.socket).unwrap(), 4096).unwrap_err();
    assert_eq!(refused.answer, "SERVER_ERROR connections in memory are switched off");
    assert_eq!(exchange(&mut UnixStream::from(refused.socket), b"mn\r\n"), b"MN\r\n");
}

/// Memory is made for users only.
#[test]
fn strangers_get_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    std::fs::write(&users, "ann:secret\n").unwrap();
    std::fs::set_permissions(&users, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let served = serve(MemoryEngine::start(None), |options| options.auth_file = Some(users));
    let mut socket = UnixStream::connect(&served.socket).unwrap();
    let refused = upgrade(socket.try_clone().unwrap(), 4096).unwrap_err();
    assert_eq!(refused.answer, "CLIENT_ERROR unauthenticated");
    socket.write_all(b"set x 0 0 10\r\nann secret\r\n").unwrap();
    socket.read_exact(&mut [0; 8]).unwrap();
    let mut shared = Shared(upgrade(socket, 4096).unwrap());
    assert_eq!(exchange(&mut shared, b"mn\r\n"), b"MN\r\n");
}

#[test]
fn a_client_that_does_not_read_holds_up_nobody() {
    let served = serve(MemoryEngine::start(None), |options| options.threads = 1);
    let mut lazy = Shared::connect(&served.socket);
    lazy.write_all(b"set v 0 0 100000\r\n").unwrap();
    lazy.write_all(&vec![b'v'; 100_000]).unwrap();
    lazy.write_all(b"\r\nget v v v v v v v v v v\r\nget v\r\nget v\r\n").unwrap();
    let mut other = Shared::connect(&served.socket);
    for _ in 0..100 {
        other.write_all(b"mn\r\n").unwrap();
        other.read_exact(&mut [0; 4]).unwrap();
    }
    drop(other);
    // It gets all of it when it reads.
    let answers = exchange(&mut lazy, b"");
    assert_eq!(answers.len(), "STORED\r\n".len() + 12 * (100_000 + "VALUE v 0 100000\r\n\r\n".len()) + 3 * 5);
}

/// Waits until the server has no connection but those of the test.
fn wait_for_connections(served: &Served, open: usize) {
    let until = Instant::now() + PATIENCE;
    loop {
        let mut tcp = TcpStream::connect(served.server.addresses()[0]).unwrap();
        let stats = String::from_utf8(exchange(&mut tcp, b"stats\r\n")).unwrap();
        if stats.contains(&format!("STAT curr_connections {}\r\n", open + 1)) {
            return;
        }
        assert!(Instant::now() < until, "connections stay: {stats}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Clients that go in the middle of anything. Each value says of which key it is, so a wrong byte shows.
#[test]
fn clients_that_are_killed_leave_no_wrong_byte_and_no_connection() {
    let engine = Arc::new(CacheEngine::open_in(Path::new(""), Durability::Buffered));
    let served = serve(engine, |_| ());
    let value = |key: u64, bytes: usize| format!("{key:08}").repeat(bytes / 8);
    std::thread::scope(|scope| {
        for client in 0..100 {
            let (served, value) = (&served, &value);
            scope.spawn(move || {
                let mut rng = Rng::new(client);
                let mut shared = Shared::connect(&served.socket);
                for _ in 0..rng.below(5) {
                    let (key, bytes) = (rng.below(20), 8 * (1 + rng.index(4000)));
                    shared
                        .write_all(format!("set k{key} 0 0 {bytes}\r\n{}\r\n", value(key, bytes)).as_bytes())
                        .unwrap();
                    shared.read_exact(&mut [0; 8]).unwrap();
                }
                // The last one is cut off.
                let bytes = 8 * (1 + rng.index(4000));
                let last =
                    format!("set k{0} 0 0 {bytes}\r\n{1}\r\nget k{0}\r\n", client % 20, value(client % 20, bytes));
                let cut = rng.index(last.len());
                let mut sent = 0;
                while sent < cut {
                    sent += shared.write(&last.as_bytes()[sent..cut]).unwrap();
                }
            });
        }
    });
    wait_for_connections(&served, 0);
    let mut shared = Shared::connect(&served.socket);
    for key in 0..20 {
        shared.write_all(format!("get k{key}\r\n").as_bytes()).unwrap();
    }
    let answers = String::from_utf8(exchange(&mut shared, b"")).unwrap();
    let mut lines = answers.lines();
    while let Some(line) = lines.next() {
        let Some(rest) = line.strip_prefix("VALUE k") else { continue };
        let key: u64 = rest.split(' ').next().unwrap().parse().unwrap();
        let bytes: usize = rest.rsplit(' ').next().unwrap().parse().unwrap();
        assert_eq!(lines.next().unwrap(), value(key, bytes), "key {key}");
    }
}

/// A client that knows the file alone, and may write anything into it.
fn raw(socket: &mut UnixStream) -> OwnedFd {
    socket.write_all(b"shm 1 4096\r\n").unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut line = [0; 100];
    recvmsg(&*socket, &mut [IoSliceMut::new(&mut line)], &mut control, RecvFlags::empty()).unwrap();
    assert!(line.starts_with(b"SHM 1 4096\r\n"), "{}", line.escape_ascii());
    let Some(RecvAncillaryMessage::ScmRights(mut files)) = control.drain().next() else { panic!("no descriptor") };
    files.next().unwrap()
}

#[test]
fn a_client_that_breaks_the_protocol_loses_its_connection_alone() {
    let served = serve(MemoryEngine::start(None), |_| ());
    let mut good = Shared::connect(&served.socket);
    // Offsets are those of docs/formats/shared-memory.md: written, read, and all of the header at once.
    for (offset, bytes) in [(128, vec![0xff; 8]), (512, vec![0xff; 8]), (0, vec![0xff; 4096]), (128, vec![1, 0x20])] {
        let mut socket = UnixStream::connect(&served.socket).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let file = raw(&mut socket);
        pwrite(&file, b"mn\r\n", 4096).unwrap();
        pwrite(&file, &4_u64.to_le_bytes(), 128).unwrap();
        socket.write_all(&[0]).unwrap();
        let until = Instant::now() + PATIENCE;
        let mut answer = [0; 4];
        while answer != *b"MN\r\n" {
            pread(&file, &mut answer, 8192).unwrap();
            assert!(Instant::now() < until, "no answer");
        }
        pwrite(&file, &bytes, offset).unwrap();
        // The bell wakes the server, which hangs up when it has seen it.
        let _ = socket.write_all(&[0]);
        if offset == 512 {
            // It is seen with the next answer.
            pwrite(&file, b"mn\r\n", 4100).unwrap();
            pwrite(&file, &8_u64.to_le_bytes(), 128).unwrap();
            let _ = socket.write_all(&[0]);
        }
        let mut rest = Vec::new();
        let ended = socket.read_to_end(&mut rest);
        assert!(ended.is_ok() || ended.as_ref().unwrap_err().kind() == ErrorKind::ConnectionReset, "{ended:?}");
        good.write_all(b"mn\r\n").unwrap();
        good.read_exact(&mut [0; 4]).unwrap();
    }
    wait_for_connections(&served, 1);
}

#[test]
fn a_client_that_rings_without_end_loses_its_connection_alone() {
    let served = serve(MemoryEngine::start(None), |options| options.threads = 1);
    let mut good = Shared::connect(&served.socket);
    let mut socket = UnixStream::connect(&served.socket).unwrap();
    let _file = raw(&mut socket);
    let until = Instant::now() + PATIENCE;
    while socket.write_all(&[0; 64 << 10]).is_ok() {
        assert!(Instant::now() < until, "the server takes bells without end");
    }
    good.write_all(b"mn\r\n").unwrap();
    good.read_exact(&mut [0; 4]).unwrap();
    wait_for_connections(&served, 1);
}

#[test]
fn a_server_that_stops_ends_its_connections() {
    let served = serve(MemoryEngine::start(None), |_| ());
    let mut shared = Shared::connect(&served.socket);
    shared.write_all(b"set a 0 0 1\r\nx\r\n").unwrap();
    shared.read_exact(&mut [0; 8]).unwrap();
    served.server.stop(PATIENCE);
    assert_eq!(shared.0.wait(Instant::now() + PATIENCE).unwrap_err().kind(), ErrorKind::UnexpectedEof);
}
