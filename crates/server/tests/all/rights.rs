//! What users may do: each command needs its right, over sockets and in shared memory; and users that change.

use crate::line_client::PATIENCE;
use crate::memory::MemoryEngine;
use situ_server::{Server, ServerOptions};
use situ_transport::ClientEnd;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NO_WRITE: &str = "CLIENT_ERROR this user has no right to write\r\n";
const NO_READ: &str = "CLIENT_ERROR this user has no right to read\r\n";

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A server with users, in a directory of its own.
struct Served {
    server: Server,
    options: ServerOptions,
    directory: tempfile::TempDir,
}

fn serve() -> Served {
    serve_over(MemoryEngine::start(None))
}

fn serve_over(engine: Arc<MemoryEngine>) -> Served {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    write(&at.join("users"), "reader:r\nwriter:w\nboth:b\n");
    write(&at.join("rights"), "reader:r\nwriter:w\nboth:rw\n");
    let options = ServerOptions {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        unix_socket: Some(at.join("socket")),
        threads: 1,
        max_value_bytes: 1000,
        auth_file: Some(at.join("users")),
        rights_file: Some(at.join("rights")),
        ..ServerOptions::default()
    };
    let server = Server::start(&options, engine).unwrap();
    Served { server, options, directory }
}

fn login(user: &str, password: &str) -> String {
    format!("set x 0 0 {}\r\n{user} {password}\r\n", user.len() + 1 + password.len())
}

impl Served {
    fn connect(&self, user: &str, password: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.server.addresses()[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(login(user, password).as_bytes()).unwrap();
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"STORED\r\n");
        stream
    }

    /// Runs commands of a user, and returns all answers.
    fn ask(&self, user: &str, password: &str, commands: &str) -> String {
        let mut stream = self.connect(user, password);
        stream.write_all(format!("{commands}quit\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn each_user_runs_the_commands_of_its_rights() {
    let served = serve();
    let both = served.ask("both", "b", "set a 0 0 1\r\n5\r\nget a\r\nincr a 1\r\nmg a v\r\n");
    assert_eq!(both, "STORED\r\nVALUE a 0 1\r\n5\r\nEND\r\n6\r\nVA 1\r\n6\r\n");
    // All ways to change something, also by what is refused for its size, which removes the old item.
    let large = "x".repeat(1001);
    let changes = format!(
        "set a 0 0 1\r\ny\r\nadd b 0 0 1\r\ny\r\nreplace a 0 0 1\r\ny\r\nappend a 0 0 1\r\ny\r\nprepend a 0 0 1\r\ny\r\n\
         cas a 0 0 1 1\r\ny\r\nset a 0 0 1001\r\n{large}\r\nms a 1\r\ny\r\nms a 1001\r\n{large}\r\ndelete a\r\nincr a 1\r\ndecr a 1\r\n\
         touch a 0\r\ngat 0 a\r\ngats 0 a\r\nmg a v T0\r\nmg c N0\r\nmg a R30\r\nmd a\r\nmd a I\r\nma a\r\nflush_all\r\n\
         stats reset\r\nstats detail on\r\nverbosity 1\r\n"
    );
    let count = changes.matches("\r\n").count() - 9;
    let asked = format!("{changes}set a 0 0 1 noreply\r\ny\r\ndelete a noreply\r\nms a 1 q\r\ny\r\nget a\r\n");
    let reader = served.ask("reader", "r", &asked);
    assert_eq!(reader, format!("{}{NO_WRITE}VALUE a 0 1\r\n6\r\nEND\r\n", NO_WRITE.repeat(count)));
    let reads = "get a\r\ngets a\r\nmg a v\r\nmg a v T0\r\ngat 0 a\r\nme a\r\nstats\r\nlru_crawler metadump all\r\nwatch fetchers\r\n";
    let writer = served.ask("writer", "w", &format!("{reads}mn\r\nset a 0 0 1\r\n7\r\nincr a 1\r\n"));
    assert_eq!(writer, format!("{}MN\r\nSTORED\r\n8\r\n", NO_READ.repeat(9)));
    let stats = served.ask("both", "b", "stats\r\n");
    assert!(stats.contains("STAT auth_errors 0\r\n"), "{stats}");
    served.server.stop(Duration::from_secs(5));
}

/// The first reader of a stale item is asked to renew it. One that may not would keep others from it.
#[test]
fn a_reader_does_not_win_a_stale_item() {
    let served = serve();
    assert_eq!(served.ask("both", "b", "set a 0 0 1\r\nx\r\nmd a I\r\n"), "STORED\r\nHD\r\n");
    for _ in 0..2 {
        assert_eq!(served.ask("reader", "r", "mg a v\r\nmg a\r\n"), "VA 1 Z X\r\nx\r\nHD Z X\r\n");
    }
    assert_eq!(served.ask("both", "b", "mg a v\r\nmg a v\r\n"), "VA 1 X W\r\nx\r\nVA 1 Z X\r\nx\r\n");
    served.server.stop(Duration::from_secs(5));
}

#[test]
fn rights_hold_in_shared_memory() {
    let served = serve();
    let mut socket = UnixStream::connect(served.directory.path().join("socket")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(login("reader", "r").as_bytes()).unwrap();
    socket.read_exact(&mut [0; 8]).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut rings = ClientEnd::upgrade(socket.into(), 65_536, deadline).unwrap().unwrap();
    let asked = b"set a 0 0 1\r\nx\r\nms a 1\r\nx\r\nget a\r\n";
    assert_eq!(rings.write(asked).unwrap(), asked.len());
    let expected = format!("{NO_WRITE}{NO_WRITE}END\r\n");
    let mut answer = Vec::new();
    while answer.len() < expected.len() {
        let mut piece = [0; 256];
        match rings.read(&mut piece).unwrap() {
            0 => rings.wait(deadline).unwrap(),
            bytes => answer.extend_from_slice(&piece[..bytes]),
        }
    }
    assert_eq!(String::from_utf8(answer).unwrap(), expected);
    served.server.stop(Duration::from_secs(5));
}

fn has_ended(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn users_change_while_the_server_runs() {
    let served = serve();
    let at = served.directory.path();
    let mut kept = served.connect("reader", "r");
    let mut changed = served.connect("writer", "w");
    let mut gone = served.connect("both", "b");
    let mut watching = served.connect("both", "b");
    watching.write_all(b"watch mutations\r\n").unwrap();
    watching.read_exact(&mut [0; 4]).unwrap();
    let mut stranger = TcpStream::connect(served.server.addresses()[0]).unwrap();
    stranger.set_read_timeout(Some(PATIENCE)).unwrap();
    stranger.write_all(b"mn\r\n").unwrap();
    let mut answer = [0; 30];
    stranger.read_exact(&mut answer).unwrap();
    // Files that make no sense change nothing.
    write(&at.join("rights"), "reader:r\n");
    let refused = served.server.reload(&served.options).unwrap_err().to_string();
    assert!(refused.contains("the user writer has no line"), "{refused}");
    assert_eq!(served.ask("both", "b", "mn\r\n"), "MN\r\n");
    assert!(
        served.server.reload(&ServerOptions { auth_file: Some(at.join("none")), ..served.options.clone() }).is_err()
    );

    write(&at.join("users"), "reader:r\nwriter:w\nnew:n\n");
    write(&at.join("rights"), "reader:r\nwriter:rw\nnew:rw\n");
    let options = ServerOptions { idle_timeout_seconds: 1000, max_connections: 77, ..served.options.clone() };
    let lines = served.server.reload(&options).unwrap();
    let expected = [
        "users: 3 are in force; connections of users that changed are closed",
        "idle connections are closed after 1000 s",
        "at most 77 connections are open at a time",
    ];
    assert_eq!(lines, expected);
    assert_eq!(served.server.connections_max(), 77);
    for stream in [&mut changed, &mut gone, &mut watching] {
        assert!(has_ended(stream));
    }
    kept.write_all(b"get a\r\nset a 0 0 1\r\nx\r\n").unwrap();
    let mut answer = vec![0; "END\r\n".len() + NO_WRITE.len()];
    kept.read_exact(&mut answer).unwrap();
    assert_eq!(answer, format!("END\r\n{NO_WRITE}").as_bytes());
    stranger.write_all(login("new", "n").as_bytes()).unwrap();
    let mut answer = [0; 8];
    stranger.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"STORED\r\n", "a stranger may still show who it is");
    assert_eq!(served.ask("writer", "w", "get a\r\n"), "END\r\n");
    let settings = served.ask("new", "n", "stats settings\r\n");
    assert!(settings.contains("STAT idle_timeout 1000\r\n") && settings.contains("STAT maxconns 77\r\n"), "{settings}");

    // Without users all connections are those of others than before, and begin again.
    let open = ServerOptions { auth_file: None, rights_file: None, ..served.options.clone() };
    let lines = served.server.reload(&open).unwrap();
    assert!(lines[0].starts_with("users: there are none any more"), "{lines:?}");
    assert!(has_ended(&mut kept) && has_ended(&mut stranger));
    let mut anyone = TcpStream::connect(served.server.addresses()[0]).unwrap();
    anyone.set_read_timeout(Some(PATIENCE)).unwrap();
    anyone.write_all(b"set a 0 0 1\r\nx\r\n").unwrap();
    let mut answer = [0; 8];
    anyone.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"STORED\r\n");
    served.server.reload(&served.options).unwrap();
    assert!(has_ended(&mut anyone), "it is no user");
    served.server.stop(Duration::from_secs(5));
}

/// A command that waits while its user goes is not run, and holds up no other.
#[test]
fn a_command_that_waits_while_its_user_goes_is_not_run() {
    let engine = MemoryEngine::start(None);
    let served = serve_over(Arc::clone(&engine));
    let [mut first, mut owner] = [(); 2].map(|()| served.connect("writer", "w"));
    let mut gone = served.connect("both", "b");
    engine.hold_back();
    first.write_all(b"set x 0 0 1\r\nx\r\n").unwrap();
    let deadline = Instant::now() + PATIENCE;
    while engine.waiting() == 0 {
        assert!(Instant::now() < deadline, "the engine is not asked");
        std::thread::sleep(Duration::from_millis(1));
    }
    owner.write_all(b"set k 0 0 1\r\n1\r\n").unwrap();
    gone.write_all(b"set a 0 0 1\r\na\r\nset k 0 0 1\r\n2\r\nset k 0 0 1\r\n3\r\n").unwrap();
    // The loop serves in the order of arrival: this client is answered after what was sent before has run.
    assert_eq!(served.ask("reader", "r", "get a\r\n"), "END\r\n");
    let at = served.directory.path();
    write(&at.join("users"), "reader:r\nwriter:w\n");
    write(&at.join("rights"), "reader:r\nwriter:w\n");
    served.server.reload(&served.options).unwrap();
    assert_eq!(served.ask("reader", "r", "get a\r\n"), "END\r\n");
    engine.let_go();
    let mut answer = String::new();
    gone.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "STORED\r\n", "the write that was under way is answered");
    assert_eq!(served.ask("writer", "w", "set k 0 0 1\r\n4\r\n"), "STORED\r\n");
    assert_eq!(served.ask("reader", "r", "get k a\r\n"), "VALUE k 0 1\r\n4\r\nVALUE a 0 1\r\na\r\nEND\r\n");
    served.server.stop(Duration::from_secs(5));
}
