//! Two servers behind what spreads keys over servers: the proxy twemproxy, and the tools of libmemcached.

use crate::cache;
use crate::line_client::{Client, PATIENCE};
use crate::skipped::skipped;
use situ_server::{CacheEngine, Server};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn two_servers() -> [Server; 2] {
    let options = situ::cache::Options::of_memory(64 << 20);
    [(), ()].map(|()| cache::serve(&Arc::new(CacheEngine::new(&options).unwrap())))
}

fn address(server: &Server) -> SocketAddr {
    server.addresses()[0]
}

fn items(server: &Server) -> u64 {
    Client::connect(server).statistic("curr_items")
}

/// A twemproxy of its own; it ends with this.
struct Twemproxy {
    child: Child,
    address: SocketAddr,
}

impl Drop for Twemproxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Twemproxy {
    /// `None` if none is installed.
    fn start(directory: &Path, servers: &[Server]) -> Option<Twemproxy> {
        let program = ["nutcracker", "/usr/sbin/nutcracker"]
            .into_iter()
            .find(|program| Command::new(program).arg("--version").stderr(Stdio::null()).status().is_ok())?;
        // Another process may take a port that was just released.
        (0..10)
            .find_map(|_| Twemproxy::on_free_ports(program, directory, servers))
            .or_else(|| panic!("twemproxy does not start"))
    }

    /// `None` if another process has taken a port.
    fn on_free_ports(program: &str, directory: &Path, servers: &[Server]) -> Option<Twemproxy> {
        let [listen, statistics] =
            [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap()).map(|held| held.local_addr().unwrap());
        let pools = servers.iter().map(|server| format!("   - {}:1\n", address(server))).collect::<String>();
        let file = directory.join("twemproxy.yml");
        // As in docs/guide/clients.md.
        let text = format!(
            "situ:\n  listen: {listen}\n  hash: md5\n  distribution: ketama\n  auto_eject_hosts: false\n  timeout: {}\n  servers:\n{pools}",
            PATIENCE.as_millis()
        );
        std::fs::write(&file, text).unwrap();
        let child = Command::new(program)
            .args(["-a", "127.0.0.1", "-s", &statistics.port().to_string()])
            .arg("-c")
            .arg(&file)
            .arg("-o")
            .arg(directory.join("log"))
            .arg("-p")
            .arg(directory.join("pid"))
            .spawn()
            .unwrap();
        let mut proxy = Twemproxy { child, address: listen };
        let deadline = Instant::now() + Duration::from_secs(60);
        while proxy.child.try_wait().unwrap().is_none() {
            if TcpStream::connect(listen).is_ok() {
                return Some(proxy);
            }
            assert!(Instant::now() < deadline, "twemproxy does not listen on {listen}");
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

#[test]
fn twemproxy_spreads_keys_over_two_servers() {
    const KEYS: usize = 200;
    let [first, second] = two_servers();
    let servers = [first, second];
    let directory = tempfile::tempdir().unwrap();
    let Some(proxy) = Twemproxy::start(directory.path(), &servers) else {
        skipped("no twemproxy on this machine (nutcracker)");
        return;
    };
    let mut client = Client::connect_to(proxy.address);
    for key in 0..KEYS {
        assert_eq!(client.ask(&format!("set key-{key} {key} 0 8\r\nvalue{key:03}\r\n")), "STORED");
    }
    let held = servers.each_ref().map(items);
    assert!(held[0] + held[1] == KEYS as u64 && held[0] > 20 && held[1] > 20, "{held:?}");

    // One line asks for keys of both servers.
    let keys = (0..KEYS).map(|key| format!(" key-{key}")).collect::<String>();
    client.send(&format!("get{keys} absent\r\n"));
    let mut found = std::iter::from_fn(|| Some(client.line()).filter(|line| line != "END"))
        .collect::<Vec<_>>()
        .chunks(2)
        .map(|lines| lines.join(" "))
        .collect::<Vec<_>>();
    let mut wanted = (0..KEYS).map(|key| format!("VALUE key-{key} {key} 8 value{key:03}")).collect::<Vec<_>>();
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);

    let large = "x".repeat(500_000);
    for (command, answers) in [
        ("add key-1 0 0 1\r\nx\r\n", &["NOT_STORED"][..]),
        ("replace absent 0 0 1\r\nx\r\n", &["NOT_STORED"]),
        ("append key-1 0 0 1\r\n>\r\n", &["STORED"]),
        ("prepend key-1 0 0 1\r\n<\r\n", &["STORED"]),
        ("get key-1\r\n", &["VALUE key-1 1 10", "<value001>", "END"]),
        ("set count 0 0 1\r\n5\r\n", &["STORED"]),
        ("incr count 10\r\n", &["15"]),
        ("decr count 1\r\n", &["14"]),
        ("touch count 100\r\n", &["TOUCHED"]),
        ("touch absent 100\r\n", &["NOT_FOUND"]),
        ("delete count\r\n", &["DELETED"]),
        ("delete count\r\n", &["NOT_FOUND"]),
        (&format!("set large 0 0 {}\r\n{large}\r\n", large.len()), &["STORED"]),
        ("get large\r\n", &["VALUE large 0 500000", &large, "END"]),
    ] {
        client.send(command);
        client.expect(answers);
    }
    client.send("gets key-2\r\n");
    let line = client.line();
    let unique = line.strip_prefix("VALUE key-2 2 8 ").unwrap_or_else(|| panic!("{line}")).to_owned();
    client.expect(&["value002", "END"]);
    for answer in ["STORED", "EXISTS"] {
        assert_eq!(client.ask(&format!("cas key-2 0 0 1 {unique}\r\nx\r\n")), answer);
    }

    // The keys of a server that has ended are errors, and the other server's keys are still there.
    let [first, second] = servers;
    first.stop(PATIENCE);
    let mut lost = 0;
    for key in 3..KEYS {
        client.send(&format!("get key-{key}\r\n"));
        let line = client.line();
        if line.starts_with("SERVER_ERROR") {
            lost += 1;
        } else {
            assert_eq!(line, format!("VALUE key-{key} {key} 8"));
            client.expect(&[&format!("value{key:03}"), "END"]);
        }
    }
    assert!(held[0] - 3 <= lost && lost <= held[0], "{lost} errors, {} keys", held[0]);
    drop(proxy);
    second.stop(PATIENCE);
}

/// Runs a tool of libmemcached. Returns its success and its output.
fn run(tool: &str, servers: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(tool).arg(format!("--servers={servers}")).args(arguments).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn tools_of_libmemcached_work_with_two_servers() {
    if Command::new("memccp").arg("--version").output().is_err() {
        skipped("no memccp on this machine (libmemcached-tools)");
        return;
    }
    let servers = two_servers();
    let names = servers.each_ref().map(|server| address(server).to_string()).join(",");
    let directory = tempfile::tempdir().unwrap();
    let files = (0..40).map(|number| directory.path().join(format!("file-{number}"))).collect::<Vec<_>>();
    for (number, file) in files.iter().enumerate() {
        std::fs::write(file, format!("content {number} ").repeat(1 + 200 * number)).unwrap();
        assert!(run("memccp", &names, &[file.to_str().unwrap()]).0);
    }
    let held = servers.each_ref().map(items);
    assert!(held[0] + held[1] == 40 && held[0] > 2 && held[1] > 2, "{held:?}");
    for (number, file) in files.iter().enumerate() {
        let key = format!("file-{number}");
        let (is_there, value) = run("memccat", &names, &[&key]);
        assert!(is_there && value.trim_end_matches('\n') == std::fs::read_to_string(file).unwrap(), "{key}: {value}");
        assert!(run("memcexist", &names, &[&key]).0);
        assert!(run("memctouch", &names, &["--expire=1000", &key]).0);
        assert!(run("memcrm", &names, &[&key]).0);
    }
    assert_eq!(servers.each_ref().map(items), [0, 0]);
    // An absent key gets an item that has expired.
    assert!(!run("memcexist", &names, &["file-0"]).0);
    for test in ["set", "get", "mget"] {
        let arguments = [&format!("--test={test}"), "--concurrency=4", "--execute-number=500", "--initial-load=500"];
        let (is_done, said) = run("memcslap", &names, &arguments);
        assert!(is_done, "{test}: {said}");
        assert!(servers.each_ref().map(items).iter().all(|count| *count > 0), "{test}: {said}");
    }
    assert!(run("memcping", &names, &[]).0);
    let [first, second] = servers;
    first.stop(PATIENCE);
    assert!(!run("memcping", &names, &[]).0);
    second.stop(PATIENCE);
}
