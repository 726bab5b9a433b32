//! The protocol over a device, and the layouts of the library's structures.
//!
//! Tests with a device run where `SITU_RDMA_ADDRESS` is the address of one: `scripts/soft-roce.sh` sets it in a virtual
//! machine. They run one after another, as one of them switches the device's interface off.

use super::library::layouts;
use super::remote::{CREDITS_MAX, MESSAGES_MAX, RemoteRings};
use super::{Ends, Offer, REQUEST_WORD, VERSION, Wish, accept};
use crate::client::ClientEnd;
use crate::link::Link;
use crate::rings::{RING_BYTES_MAX, RING_BYTES_MIN};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const RING_BYTES: u64 = 4096;

fn skipped(why: &str) {
    let thread = std::thread::current();
    let line = format!("SKIPPED: {}: {why}\n", thread.name().unwrap_or("a test"));
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Returns the address of a device, and the right to use it. Says that the test is skipped if there is none.
fn device() -> Option<(IpAddr, MutexGuard<'static, ()>)> {
    static ALONE: Mutex<()> = Mutex::new(());
    match std::env::var("SITU_RDMA_ADDRESS") {
        Ok(address) => Some((address.parse().unwrap(), ALONE.lock().unwrap_or_else(PoisonError::into_inner))),
        Err(_) => {
            skipped("RDMA: SITU_RDMA_ADDRESS is no address of a device");
            None
        }
    }
}

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// A server's side with its socket.
struct ServerEnd {
    rings: RemoteRings,
    socket: TcpStream,
}

impl ServerEnd {
    /// Repeats `act` until it has a result, and sleeps meanwhile.
    fn until<T>(
        &mut self,
        reads: bool,
        mut act: impl FnMut(&mut RemoteRings) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        let until = soon();
        loop {
            if let Some(done) = act(&mut self.rings)? {
                return Ok(done);
            }
            if self.rings.may_sleep(reads)? {
                let descriptor = self.rings.descriptor().unwrap();
                let both = &mut [
                    PollFd::from_borrowed_fd(descriptor, PollFlags::IN),
                    PollFd::new(&self.socket, PollFlags::IN),
                ];
                let second = Timespec { tv_sec: 1, tv_nsec: 0 };
                poll(both, Some(&second)).unwrap();
                if !both[1].revents().is_empty() {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                self.rings.take_events();
            }
            assert!(Instant::now() < until, "the other side says nothing");
        }
    }

    fn read(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        let mut got = Vec::with_capacity(bytes);
        while got.len() < bytes {
            self.until(true, |rings| Ok((rings.read_to(&mut got)? > 0).then_some(())))?;
        }
        Ok(got)
    }

    fn write(&mut self, mut from: &[u8]) -> io::Result<()> {
        while !from.is_empty() {
            let written = self.until(false, |rings| {
                let written = rings.write_parts(&[IoSlice::new(from)])?;
                Ok((written > 0).then_some(written))
            })?;
            from = &from[written..];
        }
        Ok(())
    }
}

/// Connects both ends over a real socket. The server's rings are of at most `most` bytes.
fn connected(address: IpAddr, ring_bytes: u64, most: u64) -> (ServerEnd, ClientEnd) {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let place = listener.local_addr().unwrap();
    let client = std::thread::spawn(move || {
        let socket = TcpStream::connect(place).unwrap();
        let wish = Wish::new(&socket, ring_bytes).unwrap();
        ClientEnd::upgrade_remote(socket.into(), wish, soon()).unwrap().unwrap()
    });
    let mut socket = listener.accept().unwrap().0;
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    let offer = Offer::parse(line.trim_ascii().strip_prefix(b"rdma").unwrap()).unwrap();
    let accepted = accept(Ends::of(&socket).unwrap(), &offer, None, most).unwrap();
    socket.write_all(accepted.line.as_bytes()).unwrap();
    let mut server = ServerEnd { rings: accepted.rings, socket };
    assert_eq!(server.read(4).unwrap(), b"mn\r\n");
    server.write(b"MN\r\n").unwrap();
    (server, client.join().unwrap())
}

/// The client's side without its socket, to do what a client must not do.
fn rogue(address: IpAddr) -> (ServerEnd, RemoteRings, TcpStream) {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let socket = listener.accept().unwrap().0;
    let wish = Wish::new(&client, RING_BYTES).unwrap();
    let (client_rings, rings) = wish.connect_within(&socket);
    (ServerEnd { rings, socket }, client_rings, client)
}

fn read_all(client: &mut ClientEnd, bytes: usize) -> io::Result<Vec<u8>> {
    let (mut got, mut room) = (Vec::new(), vec![0; 100_000]);
    while got.len() < bytes {
        let most = room.len().min(bytes - got.len());
        let count = client.read(&mut room[..most])?;
        if count == 0 {
            client.wait(soon())?;
        }
        got.extend(&room[..count]);
    }
    Ok(got)
}

fn write_all(client: &mut ClientEnd, mut from: &[u8]) -> io::Result<()> {
    while !from.is_empty() {
        let count = client.write(from)?;
        if count == 0 {
            client.wait(soon())?;
        }
        from = &from[count..];
    }
    Ok(())
}

fn bytes(count: usize, seed: usize) -> Vec<u8> {
    (0..count).map(|at| ((at * 31 + at / 251 + seed) % 256) as u8).collect()
}

/// The structures lie in memory as those of the headers do, as far as they go.
#[test]
fn layouts_are_those_of_the_headers() {
    if !std::path::Path::new("/usr/include/infiniband/verbs.h").exists() {
        return skipped("RDMA: the headers of libibverbs are missing (Debian: apt-get install libibverbs-dev)");
    }
    let beginnings = ["ibv_context", "ibv_cq", "ibv_qp", "ibv_port_attr", "ibv_comp_channel"];
    let mut program = "#include <infiniband/verbs.h>\n#include <stddef.h>\n".to_owned();
    for (name, size, fields) in layouts() {
        let compare = if beginnings.contains(&name) { "1 ||" } else { "" };
        program += &format!("_Static_assert({compare} sizeof(struct {name}) == {size}, \"{name}\");\n");
        for (field, offset) in fields {
            program += &format!("_Static_assert(offsetof(struct {name}, {field}) == {offset}, \"{name}.{field}\");\n");
        }
    }
    program += "_Static_assert(sizeof(struct ibv_port_attr) <= 64, \"room for a port\");\n";
    for (name, value) in [
        ("IBV_QPT_RC", 2),
        ("IBV_QPS_INIT", 1),
        ("IBV_QPS_RTR", 2),
        ("IBV_QPS_RTS", 3),
        ("IBV_ACCESS_REMOTE_WRITE", 2),
        ("IBV_WR_RDMA_WRITE_WITH_IMM", 1),
        ("IBV_WR_SEND_WITH_IMM", 3),
        ("IBV_WC_RECV_RDMA_WITH_IMM", 129),
        ("IBV_WC_REM_ACCESS_ERR", 10),
        ("IBV_WC_GENERAL_ERR", 21),
        ("IBV_QP_DEST_QPN", 1 << 20),
        ("IBV_QP_MAX_DEST_RD_ATOMIC", 1 << 17),
    ] {
        program += &format!("_Static_assert({name} == {value}, \"{name}\");\n");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("layouts.c");
    std::fs::write(&file, program).unwrap();
    let compiled = Command::new("cc").args(["-fsyntax-only", "-std=c11"]).arg(&file).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

#[test]
fn bytes_go_both_ways_whatever_their_number() {
    let Some((address, _alone)) = device() else { return };
    for (wish, most) in [(4096, 4096), (256 << 10, 1 << 20), (64 << 10, 8192)] {
        let (mut server, mut client) = connected(address, wish, most);
        for count in [1, 2, 100, 4095, 4096, 4097, 8192, 100_000, 1 << 20] {
            let there = bytes(count, wish as usize);
            let back = bytes(count, 7);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let got = server.read(count).unwrap();
                    assert!(got == there, "{count} bytes to the server, ring {wish}");
                    server.write(&back).unwrap();
                });
                write_all(&mut client, &there).unwrap();
                let got = read_all(&mut client, count).unwrap();
                assert!(got == back, "{count} bytes to the client, ring {wish}");
            });
        }
    }
}

/// More messages than either side may send without a credit, each as a message of its own.
#[test]
fn small_messages_pass_in_any_number() {
    let Some((address, _alone)) = device() else { return };
    let (mut server, mut client) = connected(address, RING_BYTES, RING_BYTES);
    for round in 0..3 * MESSAGES_MAX {
        write_all(&mut client, b"get a\r\n").unwrap();
        assert_eq!(server.read(7).unwrap(), b"get a\r\n", "{round}");
        server.write(b"END\r\n").unwrap();
        assert_eq!(read_all(&mut client, 5).unwrap(), b"END\r\n", "{round}");
    }
    // The server does not read: the client's messages stop, and go on when it does.
    let mut written = 0;
    while written <= MESSAGES_MAX {
        let until = soon();
        while !client.link.is_flushed() {
            assert!(Instant::now() < until, "a message stays");
        }
        match client.write(b"x").unwrap() {
            0 => break,
            bytes => written += bytes,
        }
    }
    assert!((MESSAGES_MAX / 2..=MESSAGES_MAX).contains(&written), "{written}");
    assert_eq!(server.read(written).unwrap(), vec![b'x'; written]);
    client.wait(soon()).unwrap();
    assert_eq!(client.write(b"y").unwrap(), 1);
    assert_eq!(server.read(1).unwrap(), b"y");
}

#[test]
fn a_wait_ends_with_the_server_or_the_deadline() {
    let Some((address, _alone)) = device() else { return };
    let (mut server, mut client) = connected(address, RING_BYTES, RING_BYTES);
    let begun = Instant::now();
    let late = client.wait(Instant::now() + Duration::from_millis(300)).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    assert!(begun.elapsed() >= Duration::from_millis(300));
    // What the server wrote before it went is read.
    server.write(b"last").unwrap();
    server.until(false, |rings| Ok(rings.is_flushed().then_some(()))).unwrap();
    drop(server);
    assert_eq!(read_all(&mut client, 4).unwrap(), b"last");
    assert_eq!(client.wait(soon()).unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

/// A client may send a command without an answer, and go.
#[test]
fn what_a_client_wrote_before_it_went_is_read() {
    let Some((address, _alone)) = device() else { return };
    for _ in 0..20 {
        let (mut server, mut client) = connected(address, RING_BYTES, RING_BYTES);
        assert_eq!(client.write(&bytes(4000, 3)).unwrap(), 4000);
        drop(client);
        server.socket.read_to_end(&mut Vec::new()).unwrap();
        let mut got = Vec::with_capacity(5000);
        assert_eq!(server.rings.read_to(&mut got).unwrap(), 4000);
        assert!(got == bytes(4000, 3));
    }
}

/// Returns the error of the client's side after it has made the device refuse something.
fn refusal(rings: &mut RemoteRings) -> String {
    let until = soon();
    loop {
        if let Err(error) = rings.is_ready(false) {
            return error.to_string();
        }
        assert!(Instant::now() < until, "the device refuses nothing");
    }
}

#[test]
fn the_device_refuses_a_write_beyond_the_ring() {
    let Some((address, _alone)) = device() else { return };
    type Target = fn((u64, u32)) -> (u64, u32);
    let targets: [(&str, Target); 4] = [
        ("behind the ring", |(address, key)| (address + RING_BYTES, key)),
        ("across its end", |(address, key)| (address + RING_BYTES - 1, key)),
        ("before it", |(address, key)| (address - 1, key)),
        ("with another key", |(address, key)| (address, key ^ 0x100)),
    ];
    for (what, target) in targets {
        let (mut server, mut rings, _socket) = rogue(address);
        // The server's own bytes lie behind the ring.
        server.write(b"answer").unwrap();
        let place = target(rings.target());
        rings.write_raw(2, 2, place);
        let error = refusal(&mut rings);
        assert!(error.contains("remote access error"), "{what}: {error}");
        let error = server.read(1).unwrap_err();
        assert!(error.kind() == ErrorKind::ConnectionReset, "{what}: {error}");
    }
}

#[test]
fn the_device_refuses_messages_that_the_server_has_not_asked_for() {
    let Some((address, _alone)) = device() else { return };
    let (_server, mut rings, _socket) = rogue(address);
    for _ in 0..MESSAGES_MAX + 8 {
        let target = rings.target();
        rings.write_raw(1, 1, target);
    }
    let until = soon();
    while !rings.is_flushed() {
        assert!(Instant::now() < until, "the server has room for these");
    }
    let target = rings.target();
    rings.write_raw(1, 1, target);
    let error = refusal(&mut rings);
    assert!(error.contains("takes no more messages"), "{error}");
}

#[test]
fn a_count_that_is_a_lie_is_a_breach() {
    let Some((address, _alone)) = device() else { return };
    for (what, bytes, count) in
        [("more than was written", 10, 1000), ("less", 10, 9), ("none", 0, 0), ("some of none", 0, 5)]
    {
        let (mut server, mut rings, _socket) = rogue(address);
        let target = rings.target();
        rings.write_raw(bytes, count, target);
        let error = server.read(1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{what}: {error}");
    }
    // More than a ring without a credit for it.
    let (mut server, mut rings, _socket) = rogue(address);
    let target = rings.target();
    rings.write_raw(RING_BYTES as u32, RING_BYTES as u32, target);
    let target = rings.target();
    rings.write_raw(1, 1, target);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(server.read(1).unwrap_err().kind(), ErrorKind::InvalidData);
    for credit in [0, 5, u32::MAX] {
        let (mut server, mut rings, _socket) = rogue(address);
        server.write(b"four").unwrap();
        rings.credit_raw(credit);
        let error = server.read(1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "a credit of {credit}: {error}");
    }
}

/// No end of the socket tells of it: the device finds that its packets have no answer.
#[test]
fn a_cut_link_is_an_error_of_both_sides() {
    let Some((address, _alone)) = device() else { return };
    let link = |state: &str| {
        assert!(Command::new("ip").args(["link", "set", "dummy0", state]).status().unwrap().success());
    };
    if std::env::var("SOFT_ROCE").is_err() {
        return skipped("RDMA: the interface of a real device is not switched off");
    }
    let (mut server, mut client) = connected(address, RING_BYTES, RING_BYTES);
    link("down");
    let begun = Instant::now();
    client.write(b"get a\r\n").unwrap();
    let error = client.wait(soon()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    assert!(server.write(b"x").is_err() || server.read(1).is_err());
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    link("up");
    drop((server, client));
    let (mut server, mut client) = connected(address, RING_BYTES, RING_BYTES);
    write_all(&mut client, b"x").unwrap();
    assert_eq!(server.read(1).unwrap(), b"x");
}

#[test]
fn the_page_tells_the_numbers() {
    let page = include_str!("../../../../docs/formats/remote-memory.md");
    for text in [
        "a power of two from 4096 to 4,194,304".to_owned(),
        format!("at most {MESSAGES_MAX} messages of bytes"),
        format!("{} messages have come", MESSAGES_MAX / 2),
        format!("at most {CREDITS_MAX} credits"),
        format!("{} requests to receive", MESSAGES_MAX + CREDITS_MAX),
        format!("{REQUEST_WORD} {VERSION} <ring bytes> <packet bytes> <queue pair> <first packet> <address> <key>"),
    ] {
        assert!(page.contains(&text), "{text}");
    }
    assert_eq!((RING_BYTES_MIN, RING_BYTES_MAX), (4096, 4_194_304));
}

#[test]
fn without_a_device_there_is_no_wish() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let error = Wish::new(&socket, RING_BYTES).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.to_string(), "no RDMA device here has the address 127.0.0.1");
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(Wish::new(&socket, RING_BYTES).unwrap_err().to_string(), "RDMA needs a TCP socket");
    let error = super::check("none0").unwrap_err();
    assert!(error.contains("none0") || error.contains("no RDMA device") || error.contains("libibverbs"), "{error}");
}
