//! Clients over TLS: answers are those of a plain socket, and a client without the right certificate gets none.

use crate::certificates::{Authority, Secured, connect, over};
use crate::line_client::PATIENCE;
use crate::memory::MemoryEngine;
use crate::skipped::skipped;
use situ_server::{RdmaDevices, Server, ServerOptions, TlsFiles};
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn options(tls: TlsFiles) -> ServerOptions {
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    ServerOptions { listen, threads: 2, tls: Some(tls), max_value_bytes: 4 << 20, ..ServerOptions::default() }
}

/// A server over TLS with the lines of its log.
struct Served {
    server: Server,
    log: Arc<Mutex<Vec<String>>>,
    authority: Authority,
    directory: tempfile::TempDir,
}

fn serve(clients: Option<&Authority>, change: impl FnOnce(&mut ServerOptions, &Path)) -> Served {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("servers");
    let mut options = options(authority.files(directory.path(), clients));
    change(&mut options, directory.path());
    let server = Server::start(&options, MemoryEngine::start(None)).unwrap();
    let log = Arc::<Mutex<Vec<String>>>::default();
    let lines = Arc::clone(&log);
    server.tell(Box::new(move |text| lines.lock().unwrap().push(text.to_owned())));
    Served { server, log, authority, directory }
}

impl Served {
    fn connect(&self) -> Secured {
        connect(&self.authority.client(None), self.server.addresses()[0])
    }

    /// Waits for the first line of the log.
    fn line(&self) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(line) = self.log.lock().unwrap().first() {
                return line.clone();
            }
            assert!(Instant::now() < deadline, "the log stays empty");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Sends commands and returns all answers; the last command is `quit`. The end comes as TLS has it.
fn exchange<S: Read + Write>(stream: &mut Secured<S>, commands: &[u8]) -> Vec<u8> {
    stream.write_all(commands).unwrap();
    stream.flush().unwrap();
    let mut answers = Vec::new();
    stream.read_to_end(&mut answers).unwrap();
    answers
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|at| b'a' + ((at * 7 + seed) % 23) as u8).collect()
}

#[test]
fn values_of_any_size_and_pipelines_go_both_ways() {
    let served = serve(None, |_, _| ());
    let (mut commands, mut answers) = (Vec::new(), Vec::new());
    for bytes in [0, 1, 4095, 4096, 16_383, 16_384, 16_385, 65_536, 300_000, 1 << 20, 4 << 20] {
        let value = pattern(bytes, bytes);
        commands.extend(format!("set v{bytes} 0 0 {bytes}\r\n").bytes());
        commands.extend(&value);
        commands.extend(format!("\r\nmg v{bytes} v\r\n").bytes());
        answers.extend(format!("STORED\r\nVA {bytes}\r\n").bytes());
        answers.extend(&value);
        answers.extend(b"\r\n");
    }
    for n in 0..20_000 {
        commands.extend(format!("set k 0 0 5 noreply\r\n{n:05}\r\nget k\r\n").bytes());
        answers.extend(format!("VALUE k 0 5\r\n{n:05}\r\nEND\r\n").bytes());
    }
    commands.extend(b"quit\r\n");
    // A client that writes all before it reads would wait for a server that waits for it.
    let mut stream = served.connect();
    stream.conn.set_buffer_limit(None);
    let got = both_ways(&mut stream, &commands, answers.len());
    assert!(got == answers, "{} and {} bytes", got.len(), answers.len());
    let end = stream.read(&mut [0]);
    assert!(matches!(end, Ok(0)), "the end is that of TLS: {end:?}");
    served.server.stop(Duration::from_secs(5));
}

/// Writes all commands and reads all answers, whichever the socket lets.
fn both_ways(stream: &mut Secured, commands: &[u8], answer_bytes: usize) -> Vec<u8> {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).unwrap();
    }
    stream.sock.set_nonblocking(true).unwrap();
    let (mut written, mut answers, mut piece) = (0, Vec::new(), vec![0; 64 << 10]);
    let deadline = Instant::now() + 3 * PATIENCE;
    while answers.len() < answer_bytes {
        assert!(Instant::now() < deadline, "{} of {answer_bytes} bytes came", answers.len());
        let mut is_blocked = true;
        if written < commands.len() && !stream.conn.wants_write() {
            let end = commands.len().min(written + (32 << 10));
            written += stream.conn.writer().write(&commands[written..end]).unwrap();
        }
        match stream.conn.write_tls(&mut stream.sock) {
            Ok(bytes) => is_blocked &= bytes == 0,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        match stream.conn.read_tls(&mut stream.sock) {
            Ok(_) => is_blocked = false,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        stream.conn.process_new_packets().unwrap();
        while let Ok(bytes @ 1..) = stream.conn.reader().read(&mut piece) {
            answers.extend_from_slice(&piece[..bytes]);
        }
        if is_blocked {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    stream.sock.set_nonblocking(false).unwrap();
    answers
}

/// A socket that sends each byte alone.
struct Crumbs(TcpStream);

impl Read for Crumbs {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Crumbs {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(&bytes[..bytes.len().min(1)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn records_may_come_byte_by_byte() {
    let served = serve(None, |_, _| ());
    let stream = TcpStream::connect(served.server.addresses()[0]).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = over(&served.authority.client(None), Crumbs(stream));
    let answers = exchange(&mut stream, b"set a 0 0 3\r\nabc\r\nget a\r\nquit\r\n");
    assert_eq!(answers, b"STORED\r\nVALUE a 0 3\r\nabc\r\nEND\r\n");
    served.server.stop(Duration::from_secs(5));
}

/// What was sent before the end is run, whether the client says the end in TLS or not.
#[test]
fn commands_without_answers_are_run_after_their_client_has_gone() {
    let served = serve(None, |_, _| ());
    let value = "x".repeat(100_000);
    for says_so in [true, false] {
        let mut stream = served.connect();
        stream.write_all(format!("set end{says_so} 0 0 100000 noreply\r\n{value}\r\n").as_bytes()).unwrap();
        if says_so {
            stream.conn.send_close_notify();
        }
        stream.flush().unwrap();
        drop(stream);
        let deadline = Instant::now() + PATIENCE;
        let asked = format!("get end{says_so}\r\nquit\r\n");
        while exchange(&mut served.connect(), asked.as_bytes()) == b"END\r\n" {
            assert!(Instant::now() < deadline, "nothing is stored");
        }
    }
    served.server.stop(Duration::from_secs(5));
}

/// A client that reads nothing holds up no other, and gets all of its answers in the end.
#[test]
fn answers_wait_for_a_client_that_does_not_read() {
    let served = serve(None, |options, _| options.threads = 1);
    let value = pattern(1 << 20, 3);
    let mut commands = b"set v 0 0 1048576\r\n".to_vec();
    commands.extend(&value);
    commands.extend(b"\r\n");
    commands.extend(b"get v\r\n".repeat(40));
    commands.extend(b"quit\r\n");
    let mut slow = served.connect();
    slow.write_all(&commands).unwrap();
    slow.flush().unwrap();
    for n in 0..50 {
        let asked = format!("set k 0 0 2\r\n{n:02}\r\nget k\r\nquit\r\n");
        assert_eq!(
            exchange(&mut served.connect(), asked.as_bytes()),
            format!("STORED\r\nVALUE k 0 2\r\n{n:02}\r\nEND\r\n").as_bytes()
        );
    }
    let mut answers = Vec::new();
    slow.read_to_end(&mut answers).unwrap();
    let each = [&b"VALUE v 0 1048576\r\n"[..], &value, b"\r\nEND\r\n"].concat();
    assert!(answers == [&b"STORED\r\n"[..], &each.repeat(40)].concat());
    served.server.stop(Duration::from_secs(5));
}

#[test]
fn a_server_that_another_authority_has_signed_is_refused_by_its_client() {
    let served = serve(None, |options, _| options.http = Some("127.0.0.1:0".parse().unwrap()));
    let mut stream = connect(&Authority::new("others").client(None), served.server.addresses()[0]);
    let refused = stream.write_all(b"get a\r\n").unwrap_err().to_string();
    assert!(refused.contains("UnknownIssuer"), "{refused}");
    _ = stream.flush();
    let line = served.line();
    assert!(line.contains("no TLS with it: received fatal alert"), "{line}");
    let mut http = TcpStream::connect(served.server.http_address().unwrap()).unwrap();
    http.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut metrics = String::new();
    http.read_to_string(&mut metrics).unwrap();
    let has = |line: &str| metrics.lines().any(|other| other == line);
    assert!(has("situ_server_tls_failures_total 1") && has("situ_server_connections_tls_total 1"), "{metrics}");
    served.server.stop(Duration::from_secs(5));
}

#[test]
fn a_plain_client_is_hung_up_on_and_the_log_says_why() {
    let served = serve(None, |_, _| ());
    for commands in ["mn\r\n", "flush_all\r\n", "GET / HTTP/1.1\r\n\r\n"] {
        let mut stream = TcpStream::connect(served.server.addresses()[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(commands.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // The end may come as a reset, as there may be unread input.
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        assert!(answer.is_empty(), "{}", answer.escape_ascii());
    }
    let line = served.line();
    assert!(line.contains("a client from 127.0.0.1:") && line.contains("it speaks no TLS"), "{line}");
    served.server.stop(Duration::from_secs(5));
}

/// Ten seconds are for a handshake, however it comes.
#[test]
fn a_slow_handshake_is_cut_off() {
    let served = serve(None, |_, _| ());
    let mut silent = TcpStream::connect(served.server.addresses()[0]).unwrap();
    let mut slow = TcpStream::connect(served.server.addresses()[0]).unwrap();
    slow.set_nodelay(true).unwrap();
    // One that knows the server's keys is not cut off.
    let mut known = served.connect();
    assert_eq!(known.write(b"get a\r\n").unwrap(), 7);
    let mut lines = BufReader::new(known);
    lines.read_line(&mut String::new()).unwrap();
    for stream in [&silent, &slow] {
        stream.set_read_timeout(Some(3 * PATIENCE)).unwrap();
    }
    let feeder = slow.try_clone().unwrap();
    let fed = std::thread::spawn(move || {
        // The length of a long message, and then a byte of it now and then.
        let bytes = [&[0x16, 3, 1, 0x20, 0, 1, 0, 0x1f, 0xfc, 3, 3][..], &[0; 8000]].concat();
        bytes
            .iter()
            .take_while(|byte| {
                std::thread::sleep(Duration::from_millis(100));
                (&feeder).write_all(&[**byte]).is_ok()
            })
            .count()
    });
    for stream in [&mut silent, &mut slow] {
        match stream.read(&mut [0]) {
            Ok(bytes) => assert_eq!(bytes, 0),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
    assert!(served.line().contains("its handshake took longer than 10 s"), "{}", served.line());
    assert!(fed.join().unwrap() > 10);
    lines.get_mut().write_all(b"mn\r\n").unwrap();
    let mut answer = String::new();
    lines.read_line(&mut answer).unwrap();
    assert_eq!(answer, "MN\r\n");
    served.server.stop(Duration::from_secs(5));
}

#[test]
fn clients_need_a_certificate_where_an_authority_of_theirs_is_named() {
    let (clients, others) = (Authority::new("clients"), Authority::new("others"));
    let served = serve(Some(&clients), |_, _| ());
    let ask = |shows: Option<&_>| {
        let mut stream = connect(&served.authority.client(shows), served.server.addresses()[0]);
        let mut answer = Vec::new();
        // The client learns of the refusal when it reads.
        let asked = stream.write_all(b"mn\r\nquit\r\n").and_then(|()| stream.read_to_end(&mut answer));
        asked.map(|_| answer)
    };
    assert_eq!(ask(Some(&clients.sign("a client"))).unwrap(), b"MN\r\n");
    let refused = ask(None).unwrap_err().to_string();
    assert!(refused.contains("CertificateRequired"), "{refused}");
    assert!(served.line().contains("no TLS with it: peer sent no certificates"), "{}", served.line());
    let refused = ask(Some(&others.sign("a client"))).unwrap_err().to_string();
    assert!(refused.contains("UnknownCA") || refused.contains("alert"), "{refused}");
    served.server.stop(Duration::from_secs(5));
}

#[test]
fn certificates_are_renewed_while_the_server_runs() {
    let served = serve(None, |_, _| ());
    let renewed = Authority::new("renewed");
    let old = served.authority.client(None);
    let mut open = served.connect();
    assert_eq!(open.write(b"mn\r\n").unwrap(), 4);
    let mut options = options(renewed.files(served.directory.path(), None));
    let lines = served.server.reload(&options).unwrap();
    assert_eq!(lines, ["TLS: new connections get the new certificates"]);
    assert!(served.server.reload(&options).unwrap().is_empty(), "nothing has changed since");
    // The loops take it with their next turn.
    let deadline = Instant::now() + PATIENCE;
    let address = served.server.addresses()[0];
    while connect(&renewed.client(None), address).write_all(b"mn\r\n").is_err() {
        assert!(Instant::now() < deadline, "the server keeps its old certificate");
    }
    let deadline = Instant::now() + PATIENCE;
    while connect(&old, address).write_all(b"mn\r\n").is_ok() {
        assert!(Instant::now() < deadline, "a loop keeps the old certificate");
    }
    // A file that makes no sense leaves the certificates in force.
    let key = options.tls.as_ref().unwrap().key.clone();
    fs::write(&key, Authority::new("x").pem()).unwrap();
    let refused = served.server.reload(&options).unwrap_err().to_string();
    assert!(refused.contains("server.key cannot be used for TLS"), "{refused}");
    options.tls = None;
    assert_eq!(exchange(&mut connect(&renewed.client(None), address), b"mn\r\nquit\r\n"), b"MN\r\n");
    assert_eq!(exchange(&mut open, b"quit\r\n"), b"MN\r\n", "an open connection goes on");
    served.server.stop(Duration::from_secs(5));
}

#[test]
fn nothing_leads_around_the_encryption() {
    let served = serve(None, |options, at| options.unix_socket = Some(at.join("socket")));
    let asked = b"shm 1 65536\r\nrdma 1 4096 1024 17 1 0 1\r\nmn\r\nstats settings\r\nquit\r\n";
    let answer = String::from_utf8(exchange(&mut served.connect(), asked)).unwrap();
    let lines: Vec<&str> = answer.lines().collect();
    assert_eq!(lines[0], "CLIENT_ERROR shared memory needs a Unix socket");
    assert!(lines[1].starts_with("SERVER_ERROR ") && lines[2] == "MN", "{answer}");
    assert!(lines.contains(&"STAT ssl_enabled yes"), "{answer}");
    // The Unix socket stays plain.
    let mut local = std::os::unix::net::UnixStream::connect(served.directory.path().join("socket")).unwrap();
    local.write_all(b"mn\r\nquit\r\n").unwrap();
    let mut answer = String::new();
    local.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "MN\r\n");
    let tls = served.authority.files(served.directory.path(), None);
    let refused = ServerOptions { rdma: RdmaDevices::Any, ..options(tls) }.check().unwrap_err().to_string();
    assert!(refused.contains("leave out --rdma, or --tls-cert"), "{refused}");
    served.server.stop(Duration::from_secs(5));
}

#[test]
fn files_that_make_no_sense_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let good = Authority::new("a").files(directory.path(), None);
    let why = |tls: TlsFiles| options(tls).check().unwrap_err().to_string();
    let missing = directory.path().join("missing");
    assert!(why(TlsFiles { certificate: missing.clone(), ..good.clone() }).contains("missing cannot be used for TLS"));
    assert!(why(TlsFiles { key: missing.clone(), ..good.clone() }).contains("missing cannot be used for TLS"));
    assert!(why(TlsFiles { client_ca: Some(missing), ..good.clone() }).contains("missing cannot be used for TLS"));
    assert!(why(TlsFiles { certificate: good.key.clone(), ..good.clone() }).contains("holds no certificate"));
    let other = tempfile::tempdir().unwrap();
    let key = Authority::new("b").files(other.path(), None).key;
    assert!(why(TlsFiles { key, ..good.clone() }).contains("server.pem cannot be used for TLS"));
    fs::set_permissions(&good.key, fs::Permissions::from_mode(0o644)).unwrap();
    let server = Server::start(&options(good), MemoryEngine::start(None)).unwrap();
    assert!(server.warnings()[0].contains("can read the key of TLS in"), "{:?}", server.warnings());
}

/// OpenSSL, by Python's `ssl`, and by its own program.
#[test]
fn stock_clients_speak_tls_with_the_server() {
    let served = serve(None, |_, _| ());
    let address = served.server.addresses()[0];
    let ca = served.directory.path().join("ca.pem");
    fs::write(&ca, served.authority.pem()).unwrap();
    let program = "import socket, ssl, sys\n\
        context = ssl.create_default_context(cafile=sys.argv[1])\n\
        raw = socket.create_connection(('127.0.0.1', int(sys.argv[2])))\n\
        tls = context.wrap_socket(raw, server_hostname='localhost')\n\
        value = bytes(range(32, 127)) * 11000\n\
        tls.sendall(b'set v 0 0 %d\\r\\n' % len(value) + value + b'\\r\\nget v\\r\\nquit\\r\\n')\n\
        got = b''\n\
        while True:\n    piece = tls.recv(65536)\n    if not piece: break\n    got += piece\n\
        assert got == b'STORED\\r\\nVALUE v 0 %d\\r\\n' % len(value) + value + b'\\r\\nEND\\r\\n', got[:100]\n\
        print(tls.version(), context.verify_mode.name)\n";
    let port = address.port().to_string();
    let python = Command::new("python3").arg("-c").arg(program).arg(&ca).arg(&port).output();
    match python {
        Err(error) if error.kind() == ErrorKind::NotFound => skipped("no python3 on this machine"),
        python => {
            let python = python.unwrap();
            assert!(python.status.success(), "{python:?}");
            assert_eq!(String::from_utf8(python.stdout).unwrap().trim(), "TLSv1.3 CERT_REQUIRED");
        }
    }
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-quiet", "-verify_return_error", "-servername", "localhost", "-connect"]);
    openssl.arg(address.to_string()).arg("-CAfile").arg(&ca);
    match openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => skipped("no openssl on this machine"),
        child => {
            let mut child = child.unwrap();
            child.stdin.as_mut().unwrap().write_all(b"set a 0 0 1\r\nx\r\nget a\r\nquit\r\n").unwrap();
            let output = child.wait_with_output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
        }
    }
    served.server.stop(Duration::from_secs(5));
}

/// A crowd of connections of which each half ends its handshake in another way.
#[test]
fn clients_that_leave_in_the_middle_take_nothing_along() {
    let served = serve(None, |options, _| options.http = Some("127.0.0.1:0".parse().unwrap()));
    let address = served.server.addresses()[0];
    let hello = {
        let mut connection = over(&served.authority.client(None), io::empty()).conn;
        let mut bytes = Vec::new();
        connection.write_tls(&mut bytes).unwrap();
        bytes
    };
    for end in 0..hello.len() {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&hello[..end]).unwrap();
        if end % 2 == 0 {
            stream.shutdown(Shutdown::Write).unwrap();
            _ = stream.read(&mut [0; 64]);
        }
    }
    let mut damaged = hello.clone();
    damaged.truncate(60);
    damaged.extend([0xff; 200]);
    TcpStream::connect(address).unwrap().write_all(&damaged).unwrap();
    assert_eq!(exchange(&mut served.connect(), b"mn\r\nquit\r\n"), b"MN\r\n");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut http = TcpStream::connect(served.server.http_address().unwrap()).unwrap();
        http.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut metrics = String::new();
        http.read_to_string(&mut metrics).unwrap();
        if metrics.contains("\nsitu_server_connections 0\n") {
            break;
        }
        assert!(Instant::now() < deadline, "connections stay open");
    }
    served.server.stop(Duration::from_secs(5));
}
