//! The administrative channel over HTTP: who is let in, and how a command and its answer travel.

use crate::line_client::PATIENCE;
use crate::memory::MemoryEngine;
use crate::skipped::skipped;
use situ_server::{
    AdminAnswer, AdminCaller, AdminFrame, AdminRequest, AdminSocket, Administrator, Server, ServerOptions,
};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Answers with its arguments, a large text and an error.
struct Echo;

fn large() -> Vec<u8> {
    (0..300_000).map(|at| (at % 251) as u8).collect()
}

impl Administrator for Echo {
    fn run(&self, request: &AdminRequest, answer: &Arc<AdminAnswer>) -> u8 {
        if request.arguments.first().is_some_and(|first| first == "wait") {
            while !answer.is_gone() {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let text = format!("{:?} in {}", request.arguments, request.directory.display());
        _ = answer.stdout(text.as_bytes()).and_then(|()| answer.stderr(b"")).and_then(|()| answer.stdout(&large()));
        7
    }
}

struct Served {
    server: Server,
    socket: AdminSocket,
    options: ServerOptions,
    directory: tempfile::TempDir,
    log: Arc<Mutex<Vec<String>>>,
}

fn write(path: &Path, text: &str) -> PathBuf {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    path.to_owned()
}

fn serve(with_token: bool) -> Served {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let token = write(&at.join("token"), &format!("{TOKEN}\n"));
    let options = ServerOptions {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        http: Some("127.0.0.1:0".parse().unwrap()),
        threads: 1,
        auth_file: Some(write(&at.join("users"), "root:se:cret\nreader:r\n")),
        rights_file: Some(write(&at.join("rights"), "root:a\nreader:rw\n")),
        admin_token_file: with_token.then_some(token),
        ..ServerOptions::default()
    };
    let server = Server::start(&options, MemoryEngine::start(None)).unwrap();
    let log = Arc::<Mutex<Vec<String>>>::default();
    let lines = Arc::clone(&log);
    server.tell(Box::new(move |text| lines.lock().unwrap().push(text.to_owned())));
    let socket = AdminSocket::listen(at, Echo).unwrap();
    server.administer(&socket);
    Served { server, socket, options, directory, log }
}

impl Served {
    fn url(&self) -> String {
        format!("http://{}", self.server.http_address().unwrap())
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.http_address().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends a request as it is, and returns the answer.
    fn raw(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Sends a command with these headers.
    fn post(&self, headers: &str) -> String {
        let body = r#"{"version":1,"arguments":["a"],"directory":"/b"}"#;
        self.raw(&format!("POST /admin HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len()))
    }

    fn call(&self, argument: &str) -> Result<AdminCaller, String> {
        let request = AdminRequest { arguments: vec![argument.into()], directory: "/b".into() };
        AdminCaller::send(&self.url(), &self.directory.path().join("token"), &request)
    }
}

fn status(answer: &str) -> &str {
    answer.get("HTTP/1.1 ".len()..).and_then(|rest| rest.get(..3)).unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn a_command_with_the_token_runs_and_its_answer_comes_in_chunks() {
    let served = serve(true);
    let mut caller = served.call("a").unwrap();
    let (mut output, mut errors) = (Vec::new(), 0);
    let code = loop {
        match caller.next_frame().unwrap() {
            AdminFrame::Stdout(bytes) => output.extend(bytes),
            AdminFrame::Stderr(bytes) => errors += bytes.len(),
            AdminFrame::Exit(code) => break code,
            AdminFrame::Refused(why) => panic!("{why}"),
        }
    };
    assert_eq!((code, errors), (7, 0));
    assert!(output == [&b"[\"a\"] in /b"[..], &large()].concat());
    assert!(caller.next_frame().is_err(), "nothing follows the exit code");
    // As any program of HTTP reads it; the body is larger than what is read with the head.
    let answer = served.post(&format!("Authorization: Bearer {TOKEN}\r\n"));
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\r\nTransfer-Encoding: chunked\r\n"),
        "{answer}"
    );
    assert!(answer.ends_with("\r\n0\r\n\r\n"));
    let long = "x".repeat(1 << 20);
    let mut caller = served.call(&long).unwrap();
    let Ok(AdminFrame::Stdout(first)) = caller.next_frame() else { panic!("no output") };
    assert!(first.starts_with(b"[\"xxx"));
    // A user with the right to administer is as good.
    let basic = |text: &str| served.post(&format!("authorization: basic {text}\r\n"));
    assert_eq!(status(&basic("cm9vdDpzZTpjcmV0")), "200", "root:se:cret");
    assert_eq!(status(&basic("cmVhZGVyOnI=")), "401", "reader:r");
    assert_eq!(status(&basic("cm9vdDpzZQ==")), "401", "root:se");
    served.server.stop(Duration::from_secs(5));
}

#[test]
fn strangers_are_refused_and_soon_not_even_looked_at() {
    let served = serve(true);
    let right = format!("Authorization: Bearer {TOKEN}\r\n");
    for wrong in ["", "Authorization: Bearer 0123456789abcdef\r\n", "Authorization: Bearer\r\n", &format!("X: {right}")]
    {
        let answer = served.post(wrong);
        assert_eq!(status(&answer), "401", "{answer}");
    }
    assert_eq!(status(&served.post(&format!("{right}{right}"))), "400");
    assert_eq!(status(&served.raw("GET /admin HTTP/1.1\r\n\r\n")), "405");
    assert_eq!(status(&served.raw("OPTIONS /admin HTTP/1.1\r\n\r\n")), "405");
    let head = format!("POST /admin HTTP/1.1\r\n{right}");
    assert_eq!(status(&served.raw(&format!("{head}\r\n"))), "411");
    assert_eq!(status(&served.raw(&format!("{head}Content-Length: x\r\n\r\n"))), "400");
    assert_eq!(status(&served.raw(&format!("{head}Content-Length: 4194305\r\n\r\n"))), "413");
    let malformed = served.raw(&format!("{head}Content-Length: 3\r\n\r\nabc"));
    assert!(malformed.contains("the request is malformed"), "{malformed}");
    // More than ten in a second. Once, any web page could keep the bearer of the token out by that.
    let deadline = Instant::now() + PATIENCE;
    for _ in 0..3 {
        while status(&served.post("")) != "429" {
            assert!(Instant::now() < deadline, "guesses are not bounded");
        }
        assert_eq!(status(&served.post(&right)), "200");
    }
    let log = served.log.lock().unwrap();
    let [line] = &log[..] else { panic!("{log:?}") };
    assert!(line.contains("refused a caller from 127.0.0.1:") && line.contains("a wrong token"), "{line}");
    drop(log);
    served.server.stop(Duration::from_secs(5));
}

#[test]
fn the_channel_is_off_without_a_token_and_only_on_this_machine() {
    let mut served = serve(false);
    let right = format!("Authorization: Bearer {TOKEN}\r\n");
    let off = served.post(&right);
    assert!(status(&off) == "404" && off.contains("--admin-token-file"), "{off}");
    // A reload turns it on, with another token, and off again.
    let token = served.directory.path().join("token");
    let with = ServerOptions { admin_token_file: Some(token.clone()), ..served.options.clone() };
    assert_eq!(served.server.reload(&with).unwrap(), ["commands over HTTP need the new token"]);
    assert_eq!(status(&served.post(&right)), "200");
    write(&token, "fedcba9876543210");
    served.server.reload(&with).unwrap();
    assert_eq!(status(&served.post(&right)), "401");
    assert!(served.call("a").is_ok());
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = served.server.reload(&with).unwrap_err().to_string();
    assert!(refused.contains("chmod 600"), "{refused}");
    served.server.reload(&served.options).unwrap();
    assert_eq!(status(&served.post(&right)), "404");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let beyond = ServerOptions { http: Some("0.0.0.0:0".parse().unwrap()), ..with.clone() };
    let refused = beyond.check().unwrap_err().to_string();
    assert!(refused.contains("ssh -L"), "{refused}");
    assert!(ServerOptions { http: None, ..with.clone() }.check().is_err());
    // The end of the store's channel is the end of this one.
    served.server.reload(&with).unwrap();
    served.socket.refuse();
    let mut caller = served.call("a").unwrap();
    let Ok(AdminFrame::Refused(why)) = caller.next_frame() else { panic!("it runs") };
    assert!(why.contains("the server stops"), "{why}");
    served.server.stop(Duration::from_secs(5));
}

#[test]
fn eight_commands_run_at_a_time_whoever_asks() {
    let served = serve(true);
    let body = r#"{"version":1,"arguments":["wait"],"directory":"/b"}"#;
    let length = body.len();
    let head = format!("POST /admin HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {length}\r\n\r\n");
    let waiting = [(); 8].map(|()| {
        let mut stream = served.connect();
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        stream
    });
    let deadline = Instant::now() + PATIENCE;
    loop {
        match served.call("a").unwrap().next_frame().unwrap() {
            AdminFrame::Refused(why) => {
                assert!(why.contains("8 commands run already"), "{why}");
                break;
            }
            _ => assert!(Instant::now() < deadline, "a ninth command runs"),
        }
    }
    drop(waiting);
    // The clients that went away end their commands.
    let deadline = Instant::now() + PATIENCE;
    while !matches!(served.call("a").unwrap().next_frame().unwrap(), AdminFrame::Stdout(_)) {
        assert!(Instant::now() < deadline, "commands of clients that are gone go on");
    }
    served.server.stop(Duration::from_secs(5));
}

/// Where the machine has an address that is no loopback, a program could send the token there.
#[test]
fn the_token_leaves_the_machine_in_no_case() {
    let probe = UdpSocket::bind("0.0.0.0:0").unwrap();
    let Some(own) = probe.connect("192.0.2.1:9").ok().and_then(|()| probe.local_addr().ok()) else {
        return skipped("this machine has no address but loopback");
    };
    let listener = TcpListener::bind((own.ip(), 0)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let token = write(&directory.path().join("token"), TOKEN);
    let request = AdminRequest { arguments: Vec::new(), directory: "/".into() };
    let refused =
        AdminCaller::send(&format!("http://{}", listener.local_addr().unwrap()), &token, &request).unwrap_err();
    assert!(refused.contains("would travel unencrypted") && refused.contains("ssh -L"), "{refused}");
    let mut sent = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut sent).unwrap();
    assert!(sent.is_empty(), "{}", sent.escape_ascii());
}
