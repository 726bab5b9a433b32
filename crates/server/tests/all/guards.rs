//! Who is not let in and what is not allowed: clients of other protocols, strangers where there are users, `flush_all` where
//! it is refused, and commands that would have to say OK for nothing. Answers are those of memcached 1.6.18, and compared
//! with it where it is installed.

use crate::skipped;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::certificates::Authority;
use crate::memcached::{Memcached, exchange};
use crate::memory::MemoryEngine;
use situ_server::{Server, ServerOptions, StartError, TlsFiles};

fn local() -> ServerOptions {
    ServerOptions { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 2, ..ServerOptions::default() }
}

fn start(options: &ServerOptions) -> Server {
    Server::start(options, MemoryEngine::start(None)).unwrap()
}

/// A memcached 1.6.18 with these options, if there is one.
fn theirs(options: &[&str]) -> Option<Memcached> {
    let memcached = Memcached::start_with(options).filter(|memcached| memcached.version == [1, 6, 18]);
    if memcached.is_none() {
        skipped::skipped("no memcached 1.6.18 on this machine to compare with");
    }
    memcached
}

fn said(address: SocketAddr, text: &[u8]) -> String {
    String::from_utf8(exchange(address, &[text], false)).unwrap()
}

fn stat(address: SocketAddr, name: &str) -> String {
    let all = said(address, b"stats\r\nquit\r\n");
    let line = all.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {all}")).to_owned()
}

/// The server answered ERROR to the request line and to the headers of HTTP, and then ran the body: a web page could
/// flush a store on localhost.
#[test]
fn nothing_of_a_request_of_http_is_run() {
    let server = start(&local());
    let address = server.addresses()[0];
    assert_eq!(said(address, b"set kept 0 0 1\r\nx\r\n"), "STORED\r\n");
    let mut requests = Vec::new();
    for method in ["GET", "POST", "PUT", "OPTIONS", "HEAD", "DELETE", "PATCH", "Post", "FOO"] {
        for version in ["HTTP/1.1", "HTTP/1.0", "HTTP/2.0"] {
            requests.push(format!("{method} / {version}"));
        }
    }
    let theirs = theirs(&[]);
    for request in &requests {
        let text = format!("{request}\r\nset bad 0 0 1\r\ny\r\nflush_all\r\n");
        assert_eq!(said(address, text.as_bytes()), "", "{request}");
        if let Some(theirs) = &theirs {
            assert_eq!(said(theirs.address, text.as_bytes()), "", "{request}");
        }
    }
    // Not even what memcached would take for a command, or answer with an error and go on.
    let stricter =
        ["get / HTTP/1.1", "gets /x http/1.1", "set / HTTP/1.1", "touch / HTTP/1.1", "POST /", "Get *", "Host: a"];
    for request in stricter {
        let text = format!("{request}\r\nHost: localhost:11211\r\n\r\nset bad 0 0 1\r\ny\r\nflush_all\r\n");
        assert_eq!(said(address, text.as_bytes()), "", "{request}");
        // The same when it arrives byte by byte.
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(exchange(address, &pieces[..40], true), b"", "{request}");
    }
    // A request behind a command ends the connection, too.
    assert_eq!(said(address, b"mn\r\nPOST / HTTP/1.1\r\nflush_all\r\n"), "MN\r\n");
    assert_eq!(said(address, b"nonsense\r\nx: y\r\nhost: y\r\nflush_all\r\n"), "ERROR\r\n");
    assert_eq!(said(address, b"get kept bad\r\n"), "VALUE kept 0 1\r\nx\r\nEND\r\n");
    // Keys may look like parts of HTTP.
    assert_eq!(said(address, b"get /index.html\r\nget / HTTP/1.1\r\nGET a\r\n"), "END\r\nEND\r\nERROR\r\n");
    server.stop(Duration::from_secs(5));
}

/// Clients of memcached's binary protocol waited for an answer until they gave up.
#[test]
fn other_protocols_are_hung_up_on_at_once_and_counted() {
    let server = start(&local());
    let address = server.addresses()[0];
    // A binary NOOP, a TLS ClientHello, a STUN request; none of them has an end of line yet.
    for first in [&b"\x80\x0a\0\0"[..], b"\x16\x03\x01\x02\0", b"\0\x01\0\x08", b"\xff"] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let begun = Instant::now();
        stream.write_all(first).unwrap();
        let mut answer = Vec::new();
        // The end may come as a reset, as there may be unread input.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{}", answer.escape_ascii());
        assert!(begun.elapsed() < Duration::from_secs(20), "not hung up on: {:?}", begun.elapsed());
    }
    assert_eq!(said(address, b"\x16\x03\x01 \nflush_all\r\n"), "");
    // Later on such bytes are a line that is no command, as in memcached.
    assert_eq!(said(address, b"mn\r\n\x80x\r\nmn\r\n"), "MN\r\nERROR\r\nMN\r\n");
    server.stop(Duration::from_secs(5));

    let server = start(&ServerOptions { http: Some("127.0.0.1:0".parse().unwrap()), ..local() });
    said(server.addresses()[0], b"\x80");
    said(server.addresses()[0], b"GET / HTTP/1.1\r\n\r\n");
    let metrics = said(server.http_address().unwrap(), b"GET /metrics HTTP/1.0\r\n\r\n");
    assert!(metrics.contains("situ_server_connections_foreign_total 2\n"), "{metrics}");
    server.stop(Duration::from_secs(5));
}

/// A client of the binary protocol saw its connection end, and nobody was told why.
#[test]
fn the_log_is_told_of_clients_of_other_protocols() {
    let server = start(&local());
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&told);
    server.tell(Box::new(move |text| log.lock().unwrap().push(text.to_owned())));
    for _ in 0..3 {
        said(server.addresses()[0], b"\x80\x0a\0\0");
        said(server.addresses()[0], b"POST / HTTP/1.1\r\n\r\n");
    }
    let told = told.lock().unwrap();
    let [binary, http] = &told[..] else { panic!("{told:?}") };
    assert!(binary.contains("it speaks memcached's binary protocol") && binary.contains("127.0.0.1:"), "{binary}");
    assert!(http.contains("it speaks HTTP"), "{http}");
    server.stop(Duration::from_secs(5));
}

/// A server that all machines could write to said so in its log, and served.
#[test]
fn a_server_that_any_client_of_other_machines_could_change_does_not_start() {
    for listen in ["0.0.0.0:0", "[::]:0", "[::ffff:0.0.0.0]:0"] {
        let open = ServerOptions { listen: vec![listen.parse().unwrap()], ..local() };
        let refused = open.check().unwrap_err().to_string();
        assert!(refused.contains("--auth-file") && refused.contains("--allow-anonymous"), "{refused}");
        let started = Server::start(&open, MemoryEngine::start(None)).map(drop).unwrap_err();
        assert!(matches!(started, StartError::Option(_)), "{started}");
    }
    let open = ServerOptions { listen: vec!["0.0.0.0:0".parse().unwrap()], ..local() };
    let warnings = |options: &ServerOptions| {
        let server = start(options);
        let warnings = server.warnings().join(", ");
        server.stop(Duration::from_secs(5));
        warnings
    };
    assert_eq!(warnings(&local()), "");
    let allowed = warnings(&ServerOptions { allow_anonymous: true, ..open.clone() });
    assert!(allowed.contains("without a password: keep strangers out with a firewall"), "{allowed}");
    let directory = tempfile::tempdir().unwrap();
    let with_users = ServerOptions { auth_file: Some(users(directory.path())), ..open.clone() };
    assert!(warnings(&with_users).contains("passwords and items travel unencrypted to 0.0.0.0:"));
    // With TLS, users or certificates of clients are enough; without both, TLS alone is not.
    let authority = Authority::new("authority");
    let tls = authority.files(directory.path(), None);
    assert_eq!(warnings(&ServerOptions { tls: Some(tls.clone()), ..with_users }), "");
    assert!(ServerOptions { tls: Some(tls.clone()), ..open.clone() }.check().is_err());
    let client_ca = Some(tls.certificate.clone());
    assert_eq!(warnings(&ServerOptions { tls: Some(TlsFiles { client_ca, ..tls }), ..open }), "");
    // A name is resolved, and its addresses count.
    let named = ServerOptions { listen: Vec::new(), listen_names: vec!["0:0".to_owned()], ..local() };
    let refused = Server::start(&named, MemoryEngine::start(None)).unwrap_err().to_string();
    assert!(refused.contains("any client that reaches 0.0.0.0:"), "{refused}");
}

fn users(at: &Path) -> std::path::PathBuf {
    let path = at.join("users");
    fs::write(&path, "alice:secret\nbob:b\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn strangers_run_nothing_where_there_are_users() {
    let directory = tempfile::tempdir().unwrap();
    let path = users(directory.path());
    let server = start(&ServerOptions { auth_file: Some(path.clone()), ..local() });
    assert!(server.warnings().iter().all(|warning| !warning.contains("passwords")), "{:?}", server.warnings());
    let address = server.addresses()[0];
    let theirs = theirs(&["-Y", path.to_str().unwrap()]);
    const STRANGER: &str = "CLIENT_ERROR unauthenticated\r\n";
    const FAILURE: &str = "CLIENT_ERROR authentication failure\r\n";
    const FORMAT: &str = "CLIENT_ERROR bad authentication token format\r\n";
    const ENDING: &str = "CLIENT_ERROR bad command line termination\r\n";
    let dialogues: [&[(&str, &str)]; 10] = [
        &[("version\r\n", STRANGER), ("get a\r\n", STRANGER), ("set\r\n", STRANGER), ("mn\r\n", STRANGER)],
        &[("set a 0 0 12\r\nalice secret\r\n", "STORED\r\n"), ("set k 0 0 1\r\nx\r\n", "STORED\r\n")],
        &[("set any x y 5 noreply\r\nbob b\r\n", "STORED\r\n"), ("get k\r\n", "VALUE k 0 1\r\nx\r\nEND\r\n")],
        &[("set a 0 0 12\r\nalice Secret\r\n", FAILURE), ("get k\r\n", STRANGER)],
        &[("set a 0 0 6\r\nbob bb\r\n", FAILURE), ("set a 0 0 5\r\nbob b\r\n", "STORED\r\n"), ("mn\r\n", "MN\r\n")],
        &[("set a 0 0 3\r\nbob\r\n", FORMAT), ("set a 0 0 0\r\n\r\n", FORMAT), ("mn\r\n", STRANGER)],
        &[("set a 0 0 5\r\nbob bxx", ENDING), ("mn\r\n", STRANGER)],
        &[("set a 0 0 x\r\n", STRANGER), ("bob b\r\n", STRANGER)],
        &[("add a 0 0 5\r\n", STRANGER), ("bob b\r\n", STRANGER)],
        // Authenticated once is for the connection's life; another such set is an ordinary one.
        &[
            ("set a 0 0 5\r\nbob b\r\n", "STORED\r\n"),
            ("set a 0 0 5\r\nbob x\r\n", "STORED\r\n"),
            ("get a\r\n", "VALUE a 0 5\r\nbob x\r\nEND\r\n"),
        ],
    ];
    for dialogue in dialogues {
        let asked: String = dialogue.iter().map(|(asked, _)| *asked).collect();
        let answer: String = dialogue.iter().map(|(_, answer)| *answer).collect();
        let pieces: Vec<&[u8]> = asked.as_bytes().chunks(1).collect();
        assert_eq!(said(address, asked.as_bytes()), answer, "{asked}");
        assert_eq!(String::from_utf8(exchange(address, &pieces, true)).unwrap(), answer, "{asked}, byte by byte");
        // memcached keeps one answer of several to strangers that send them together.
        for address in theirs.iter().map(|memcached| memcached.address).chain([address]) {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            for (asked, answer) in dialogue {
                stream.write_all(asked.as_bytes()).unwrap();
                let mut got = vec![0; answer.len()];
                stream.read_exact(&mut got).unwrap();
                assert_eq!(String::from_utf8(got).unwrap(), *answer, "{asked} in {dialogue:?}");
            }
        }
    }
    // More than a user and a password can be is not waited for, and another protocol is not answered.
    assert_eq!(said(address, b"set a 0 0 100000\r\n"), "CLIENT_ERROR authentication failure\r\n");
    assert_eq!(said(address, b"POST / HTTP/1.1\r\nset a 0 0 5\r\nbob b\r\nflush_all\r\n"), "");
    let all = said(address, b"set a 0 0 5\r\nbob b\r\nstats\r\n");
    // Nine attempts in the dialogues, five of them failed, each thrice; and the two of this paragraph.
    assert!(all.contains("STAT auth_cmds 29\r\n") && all.contains("STAT auth_errors 16\r\n"), "{all}");
    server.stop(Duration::from_secs(5));

    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let server = start(&ServerOptions { auth_file: Some(path.clone()), ..local() });
    assert!(
        server.warnings().iter().any(|warning| warning.contains("can read the passwords")),
        "{:?}",
        server.warnings()
    );
    fs::write(&path, "alice\n").unwrap();
    let options = ServerOptions { auth_file: Some(path.clone()), ..local() };
    let refused = Server::start(&options, MemoryEngine::start(None)).unwrap_err().to_string();
    assert!(refused.contains("line 1 has no colon") && refused.contains("users"), "{refused}");
    assert_eq!(options.check().unwrap_err().to_string(), refused);
    fs::remove_file(&path).unwrap();
    assert!(options.check().unwrap_err().to_string().contains("cannot read the file of users"));
}

#[test]
fn flush_all_is_refused_if_the_server_is_told_so() {
    let server = start(&ServerOptions { disable_flush_all: true, ..local() });
    let theirs = theirs(&["-F"]);
    let asked =
        b"set a 0 0 1\r\nx\r\nflush_all\r\nflush_all 10\r\nflush_all noreply\r\nflush_all 0 noreply\r\nget a\r\n";
    let refused = "CLIENT_ERROR flush_all not allowed\r\n";
    let answer = format!("STORED\r\n{refused}{refused}VALUE a 0 1\r\nx\r\nEND\r\n");
    assert_eq!(said(server.addresses()[0], asked), answer);
    if let Some(theirs) = theirs {
        assert_eq!(said(theirs.address, asked), answer);
    }
    assert!(said(server.addresses()[0], b"stats settings\r\n").contains("STAT flush_enabled no\r\n"));
}

/// `stats detail on` and `cache_memlimit` said OK and did nothing; `stats cachedump` said that there were no items.
#[test]
fn commands_do_what_they_say_or_refuse() {
    let server = start(&local());
    let address = server.addresses()[0];
    let asked = b"set foo:z 0 0 1\r\nx\r\nstats detail on\r\nset foo:a 0 0 1\r\nx\r\nget foo:a foo:b nop\r\nmg foo:a v\r\ndelete foo:a\r\n\
        set foo:b 0 0 1 noreply\r\ny\r\ngat 0 foo:b\r\ntouch foo:b 0\r\nincr foo:c 1\r\nmd foo:b\r\nms foo:x 1\r\nx\r\n\
        set noprefix 0 0 1\r\nx\r\nadd foo:a:b 0 0 1\r\nx\r\nadd foo:a:b 0 0 1\r\nx\r\ndelete foo:no\r\nreplace foo:no 0 0 1\r\nx\r\n\
        stats detail dump\r\nstats detail off\r\nget foo:b\r\nstats detail\r\nstats detail dump\r\nstats reset\r\nstats detail dump\r\n";
    let ours = said(address, asked);
    assert!(ours.contains("\r\nPREFIX foo get 3 hit 2 set 5 del 2\r\nEND\r\n"), "{ours}");
    if let Some(theirs) = theirs(&[]) {
        assert_eq!(ours, said(theirs.address, asked));
    }
    assert!(said(address, b"cache_memlimit 100\r\n").starts_with("MEMLIMIT_ADJUST_FAILED "));
    assert_eq!(said(address, b"cache_memlimit 1\r\n"), "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n");
    assert_eq!(said(address, b"stats cachedump 1 0\r\n"), "CLIENT_ERROR stats cachedump not allowed\r\n");
    let settings = said(address, b"verbosity 3\r\nstats detail on\r\nstats settings\r\n");
    assert!(settings.starts_with("OK\r\nOK\r\n") && settings.contains("STAT verbosity 3\r\n"), "{settings}");
    assert!(settings.contains("STAT detail_enabled yes\r\n"), "{settings}");
    for refused in ["lru tune 1 2 3 4", "slabs reassign 1 2", "misbehave", "extstore x 1", "refresh_certs", "shutdown"]
    {
        let answer = said(address, format!("{refused}\r\n").as_bytes());
        assert!(answer.starts_with("ERROR"), "{refused}: {answer}");
    }
}

/// Names of memcached's that were missing made dashboards fail.
#[test]
fn stats_have_every_name_of_memcached() {
    let Some(theirs) = theirs(&[]) else { return };
    let server = start(&local());
    let names = |address: SocketAddr, command: &[u8]| -> BTreeSet<String> {
        let all = said(address, command);
        assert!(all.ends_with("END\r\n"), "{all}");
        all.lines().filter_map(|line| Some(line.strip_prefix("STAT ")?.split(' ').next()?.to_owned())).collect()
    };
    for text in [&b"stats\r\n"[..], b"set a 0 0 1 noreply\r\nx\r\nstats items\r\n", b"stats slabs\r\n"] {
        let missing: Vec<String> =
            names(theirs.address, text).difference(&names(server.addresses()[0], text)).cloned().collect();
        assert!(missing.is_empty(), "{}: {missing:?}", text.escape_ascii());
    }
}

#[test]
fn what_can_be_zero_is_not_always_zero() {
    let server = start(&local());
    let address = server.addresses()[0];
    said(address, b"set a 0 -1 1\r\nx\r\nget a\r\nset b 0 0 1\r\nx\r\nflush_all\r\nget b\r\n");
    assert_eq!(stat(address, "get_expired"), "1");
    assert_eq!(stat(address, "get_flushed"), "1");
    let many = b"get a\r\n".repeat(5000);
    assert_eq!(said(address, &many), "END\r\n".repeat(5000));
    assert_ne!(stat(address, "conn_yields"), "0");
    assert_ne!(stat(address, "reserved_fds"), "0");
}

#[test]
fn names_are_resolved_and_every_address_is_served() {
    let options = ServerOptions { listen: Vec::new(), listen_names: vec!["localhost:0".to_owned()], ..local() };
    let server = start(&options);
    assert!(!server.addresses().is_empty());
    for address in server.addresses() {
        assert!(address.ip().is_loopback());
        assert_eq!(said(*address, b"mn\r\n"), "MN\r\n");
    }
    drop(server);
    // An address that is named twice counts once. Another process may take a port that was just released.
    let (server, address) = loop {
        let address = start(&local()).addresses()[0];
        match Server::start(&ServerOptions { listen: vec![address, address], ..local() }, MemoryEngine::start(None)) {
            Err(StartError::Listen { source, .. }) if source.kind() == std::io::ErrorKind::AddrInUse => {}
            started => break (started.unwrap(), address),
        }
    };
    assert_eq!(server.addresses(), [address]);
    let taken =
        ServerOptions { listen: Vec::new(), listen_names: vec![format!("localhost:{}", address.port())], ..local() };
    let refused = Server::start(&taken, MemoryEngine::start(None)).unwrap_err().to_string();
    assert!(refused.contains("another process serves it"), "{refused}");
    let unknown = ServerOptions { listen_names: vec!["no.such.name.invalid:1".to_owned()], ..local() };
    let refused = Server::start(&unknown, MemoryEngine::start(None)).unwrap_err().to_string();
    assert!(refused.contains("cannot listen on no.such.name.invalid:1"), "{refused}");
}
