//! Requests for remote memory that are refused, which needs no device. The client's tests have connections over RDMA.

use crate::memory::MemoryEngine;
use situ_server::{RdmaDevices, Server, ServerOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

const OFFER: &str = "rdma 1 4096 1024 17 1 0 1\r\n";

fn serve(change: impl FnOnce(&mut ServerOptions)) -> Server {
    let mut options =
        ServerOptions { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..ServerOptions::default() };
    options.rdma = RdmaDevices::Any;
    change(&mut options);
    Server::start(&options, MemoryEngine::start(None)).unwrap()
}

fn said(stream: &mut (impl Read + Write), commands: &str) -> String {
    stream.write_all(commands.as_bytes()).unwrap();
    // The request must be the last one that has come.
    let (mut answer, mut byte) = (String::new(), [0]);
    while !answer.ends_with('\n') {
        stream.read_exact(&mut byte).unwrap();
        answer.push(char::from(byte[0]));
    }
    answer
}

#[test]
fn a_refusal_says_why_and_the_connection_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = serve(|options| options.unix_socket = Some(path.clone()));
    let mut tcp = TcpStream::connect(server.addresses()[0]).unwrap();
    let refused = "SERVER_ERROR no RDMA device here has the address 127.0.0.1\r\n";
    assert_eq!(said(&mut tcp, OFFER), refused);
    assert_eq!(said(&mut tcp, "rdma 2 4096\r\n"), "CLIENT_ERROR another version of RDMA\r\n");
    for line in ["rdma\r\n", "rdma 1\r\n", "rdma 1 4096 1024 17 1 0\r\n", "rdma 1 5000 1024 17 1 0 1\r\n"] {
        assert_eq!(said(&mut tcp, line), "CLIENT_ERROR bad command line format\r\n", "{line}");
    }
    assert_eq!(said(&mut tcp, "mn\r\n"), "MN\r\n");
    let mut unix = UnixStream::connect(&path).unwrap();
    assert_eq!(said(&mut unix, OFFER), "SERVER_ERROR RDMA needs a TCP socket\r\n");
    let off = serve(|options| options.rdma = RdmaDevices::Off);
    let mut tcp = TcpStream::connect(off.addresses()[0]).unwrap();
    assert_eq!(said(&mut tcp, OFFER), "SERVER_ERROR RDMA is switched off\r\n");
    let off = serve(|options| options.shared_ring_bytes_max = 0);
    let mut tcp = TcpStream::connect(off.addresses()[0]).unwrap();
    assert_eq!(said(&mut tcp, OFFER), "SERVER_ERROR connections in memory are switched off\r\n");
}

/// The memory of all connections over RDMA had no bound but that of the system, and none of their descriptors was counted
/// but the socket's.
#[test]
fn memory_and_descriptors_have_bounds_and_a_refused_client_goes_on() {
    let small = serve(|options| options.rdma_bytes_max = Some(8191));
    let mut tcp = TcpStream::connect(small.addresses()[0]).unwrap();
    assert_eq!(said(&mut tcp, OFFER), "SERVER_ERROR all memory for RDMA, 8191 bytes, is taken\r\n");
    assert_eq!(said(&mut tcp, "mn\r\n"), "MN\r\n");
    let full = serve(|options| (options.rdma_bytes_max, options.max_connections) = (Some(8192), 2));
    let mut others: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(full.addresses()[0]).unwrap()).collect();
    assert!(others.iter_mut().all(|tcp| said(tcp, "mn\r\n") == "MN\r\n"));
    let refused = "SERVER_ERROR too many connections: one over RDMA takes the place of two\r\n";
    assert_eq!(said(&mut others[0], OFFER), refused);
    others.pop();
    // The server closes the other connection at some time. The memory and the place of a failed greeting are free again.
    while said(&mut others[0], OFFER) == refused {}
    for _ in 0..3 {
        assert!(said(&mut others[0], OFFER).starts_with("SERVER_ERROR no RDMA device here"));
    }
}

/// Memory is registered for users only.
#[test]
fn strangers_get_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    std::fs::write(&users, "ann:secret\n").unwrap();
    std::fs::set_permissions(&users, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let server = serve(|options| options.auth_file = Some(users));
    let mut tcp = TcpStream::connect(server.addresses()[0]).unwrap();
    assert_eq!(said(&mut tcp, OFFER), "CLIENT_ERROR unauthenticated\r\n");
    assert_eq!(said(&mut tcp, "set x 0 0 10\r\nann secret\r\n"), "STORED\r\n");
    assert!(said(&mut tcp, OFFER).starts_with("SERVER_ERROR no RDMA device"));
}

#[test]
fn a_server_does_not_start_without_the_device_that_is_named() {
    let options = ServerOptions { rdma: RdmaDevices::Named("none0".to_owned()), ..ServerOptions::default() };
    let error = options.check().unwrap_err().to_string();
    assert!(error.contains("the RDMA device none0 cannot be used: "), "{error}");
}
