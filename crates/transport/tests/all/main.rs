//! Connections in shared memory over a real socket.

#![allow(missing_docs)]

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use situ_transport::{
    ANSWER_BYTES_MAX, ClientEnd, RING_BYTES_MAX, RING_BYTES_MIN, Rings, answer, offer, ring_bytes_for,
};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// Reads the client's request from a socket.
fn request(socket: &mut UnixStream) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

fn connected() -> (UnixStream, Rings, ClientEnd) {
    let (mut server, client) = UnixStream::pair().unwrap();
    let upgraded = std::thread::spawn(move || ClientEnd::upgrade(client.into(), 5000, soon()));
    assert_eq!(request(&mut server), "shm 1 5000\r\n");
    let greeting = offer(ring_bytes_for(5000, RING_BYTES_MAX)).unwrap();
    answer(&server, &greeting).unwrap();
    (server, greeting.rings, upgraded.join().unwrap().unwrap().unwrap())
}

#[test]
fn sizes_of_rings_are_powers_of_two_within_the_limit() {
    for (wish, most, is) in [
        (0, RING_BYTES_MAX, RING_BYTES_MIN),
        (5000, RING_BYTES_MAX, 8192),
        (u64::MAX, u64::MAX, RING_BYTES_MAX),
        (1 << 20, 100_000, 65536),
        (1 << 20, 1, RING_BYTES_MIN),
    ] {
        assert_eq!(ring_bytes_for(wish, most), is, "{wish} {most}");
    }
}

#[test]
fn bytes_go_both_ways_and_a_sleeping_client_is_woken() {
    let (server, mut rings, mut client) = connected();
    assert_eq!(client.write(b"get a\r\n").unwrap(), 7);
    let mut got = Vec::with_capacity(100);
    assert_eq!(rings.read_to(&mut got).unwrap(), 7);
    assert_eq!(got, b"get a\r\n");
    let waits = std::thread::spawn(move || {
        client.wait(soon()).unwrap();
        let mut answer = [0; 100];
        let bytes = client.read(&mut answer).unwrap();
        (client, answer[..bytes].to_vec())
    });
    std::thread::sleep(Duration::from_millis(50));
    rings.write(b"END\r\n").unwrap();
    if rings.must_ring() {
        (&server).write_all(&[0]).unwrap();
    }
    let (mut client, answer) = waits.join().unwrap();
    assert_eq!(answer, b"END\r\n");
    // A deadline, and the end of the server. What it wrote before is still read.
    let timed_out = client.wait(Instant::now() + Duration::from_millis(20)).unwrap_err();
    assert_eq!(timed_out.kind(), ErrorKind::TimedOut);
    rings.write(b"last").unwrap();
    drop((server, rings));
    client.wait(soon()).unwrap();
    assert_eq!(client.read(&mut [0; 9]).unwrap(), 4);
    assert_eq!(client.wait(soon()).unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn a_server_that_rings_without_end_does_not_hold_a_client() {
    let (server, _rings, mut client) = connected();
    let rings = std::thread::spawn(move || while (&server).write_all(&[0; 4096]).is_ok() {});
    let timed_out = client.wait(Instant::now() + Duration::from_millis(50)).unwrap_err();
    assert_eq!(timed_out.kind(), ErrorKind::TimedOut);
    let until = soon();
    while client.is_open() {
        assert!(Instant::now() < until, "a look takes what is there, and nothing new");
    }
    drop(client);
    rings.join().unwrap();
}

#[test]
fn a_server_without_shared_memory_leaves_the_socket() {
    let (mut server, client) = UnixStream::pair().unwrap();
    server.write_all(b"ERROR\r\n").unwrap();
    let refused = ClientEnd::upgrade(client.into(), 5000, soon()).unwrap().unwrap_err();
    assert_eq!(refused.answer, "ERROR");
    assert_eq!(request(&mut server), "shm 1 5000\r\n");
    server.write_all(b"END\r\n").unwrap();
    assert_eq!(request(&mut UnixStream::from(refused.socket)), "END\r\n");
}

#[test]
fn offers_that_are_none_are_refused() {
    let (long, words) =
        (vec![b'x'; ANSWER_BYTES_MAX + 1], ["SHM 1 4096\r\n", "SHM 2 4096\r\n", "SHM 1 5000\r\n", "END\r\n"]);
    for line in words.iter().map(|line| line.as_bytes()).chain([&long[..], b"SHM 1"]) {
        let (mut server, client) = UnixStream::pair().unwrap();
        server.write_all(line).unwrap();
        server.shutdown(std::net::Shutdown::Write).unwrap();
        let error = ClientEnd::upgrade(client.into(), 4096, soon()).unwrap_err();
        let expected = if line == b"SHM 1" { ErrorKind::UnexpectedEof } else { ErrorKind::InvalidData };
        assert_eq!(error.kind(), expected, "{line:?}");
    }
    let (_server, client) = UnixStream::pair().unwrap();
    let error = ClientEnd::upgrade(client.into(), 4096, Instant::now() + Duration::from_millis(20)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

/// A file that may become shorter would end the process at the next access.
#[test]
fn memory_that_is_not_sealed_or_too_short_is_not_mapped() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    for (bytes, is_sealed) in [(4096 + 2 * 4096, false), (4096, true)] {
        let (server, client) = UnixStream::pair().unwrap();
        let file = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, bytes).unwrap();
        if is_sealed {
            rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::SHRINK).unwrap();
        }
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [file.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let line = [std::io::IoSlice::new(b"SHM 1 4096\r\n")];
        sendmsg(&server, &line, &mut control, SendFlags::empty()).unwrap();
        let error = ClientEnd::upgrade(client.into(), 4096, soon()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}

/// The server's memory cannot be cut short by a client that has its descriptor.
#[test]
fn a_client_cannot_change_the_length() {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let (server, client) = UnixStream::pair().unwrap();
    let greeting = offer(4096).unwrap();
    answer(&server, &greeting).unwrap();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut line = [0; 100];
    recvmsg(&client, &mut [std::io::IoSliceMut::new(&mut line)], &mut control, RecvFlags::empty()).unwrap();
    let Some(RecvAncillaryMessage::ScmRights(mut files)) = control.drain().next() else { panic!("no descriptor") };
    let file = files.next().unwrap();
    assert!(ftruncate(&file, 0).is_err() && ftruncate(&file, 1 << 30).is_err());
}
