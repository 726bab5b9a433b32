//! `serve`: what was acknowledged outlives SIGKILL, signals are obeyed, conflicts are explained.

use crate::common::{Serving, program, situ};
use rustix::process::Signal;
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn promise_1_what_was_acknowledged_outlives_sigkill() {
    for options in [&[][..], &["--sync"], &["--engine", "hash"]] {
        let directory = tempfile::tempdir().unwrap();
        let mut acknowledged: HashMap<String, u64> = HashMap::new();
        for round in 0..3 {
            let mut serving = Serving::start(directory.path(), options);
            let writers: Vec<_> = (0..4)
                .map(|writer| {
                    let mut connection = serving.connect();
                    std::thread::spawn(move || {
                        let mut acknowledged = HashMap::new();
                        for n in 0.. {
                            let value = round * 1_000_000 + n;
                            let set = format!("set key{writer}-{} 0 0 10\r\n{value:010}\r\n", n % 500);
                            let mut answer = String::new();
                            if connection.get_mut().write_all(set.as_bytes()).is_err()
                                || connection.read_line(&mut answer).unwrap_or(0) == 0
                            {
                                // The set in flight may be there or not; the one before it must.
                                return (writer, n % 500, value, acknowledged);
                            }
                            assert_eq!(answer, "STORED\r\n");
                            acknowledged.insert(format!("key{writer}-{}", n % 500), value);
                        }
                        unreachable!("the server was killed")
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(300));
            serving.signal(Signal::KILL);
            serving.wait();
            let mut in_flight = HashMap::new();
            for writer in writers {
                let (writer, key, value, theirs) = writer.join().unwrap();
                acknowledged.extend(theirs);
                in_flight.insert(format!("key{writer}-{key}"), value);
            }
            assert!(acknowledged.len() > 4, "too little was written to show anything");
            let serving = Serving::start(directory.path(), options);
            let mut connection = serving.connect();
            for (key, value) in &mut acknowledged {
                connection.get_mut().write_all(format!("get {key}\r\n").as_bytes()).unwrap();
                let mut answer = [(); 3].map(|()| String::new());
                connection.read_line(&mut answer[0]).unwrap();
                assert_ne!(answer[0], "END\r\n", "{key} is gone");
                for line in &mut answer[1..] {
                    connection.read_line(line).unwrap();
                }
                let found: u64 = answer[1].trim().parse().unwrap();
                assert!(found == *value || in_flight.get(key) == Some(&found), "{key}: {found} for {value}");
                *value = found;
            }
        }
    }
}

#[test]
fn sigterm_finishes_and_closes_and_sighup_opens_the_log_file_again() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut serving = Serving::start(at, &["--log-file", "situ.log", "--unix-socket", "s.sock", "my data"]);
    assert_eq!(serving.ask("set a 0 0 1\r\nx\r\nget a\r\nquit\r\n"), "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
    let mut local = UnixStream::connect(at.join("s.sock")).unwrap();
    local.write_all(b"get a\r\nquit\r\n").unwrap();
    let mut answer = String::new();
    local.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "VALUE a 0 1\r\nx\r\nEND\r\n");
    let mut http = TcpStream::connect(serving.http).unwrap();
    http.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    answer.clear();
    http.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    fs::rename(at.join("situ.log"), at.join("situ.log.1")).unwrap();
    serving.signal(Signal::HUP);
    for _ in 0..1000 {
        if fs::read_to_string(at.join("situ.log")).is_ok_and(|text| text.contains("opened again")) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), Some(0));
    assert!(fs::read_to_string(at.join("situ.log.1")).unwrap().contains("serving"));
    let log = fs::read_to_string(at.join("situ.log")).unwrap();
    assert!(log.contains("log file opened again") && log.contains("stopped; everything is durable"), "{log}");
    assert!(!at.join("s.sock").exists());
    assert_eq!(situ(at, &["get", "-d", "my data", "-k", "items", "a"]).done().text(), "x\n");
    let mut serving = Serving::start(at, &["--data", "my data"]);
    serving.signal(Signal::INT);
    assert_eq!(serving.wait(), Some(0));
}

/// The banner said `situ inspect`, which no shell found after `make run`.
#[test]
fn the_banner_names_commands_that_work_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut command = program(at);
    command.args(["serve", "it's here", "--listen", "127.0.0.1:0", "--no-http"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let banner: Vec<String> = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap)
        .take_while(|line| !line.starts_with("Ctrl-C"))
        .collect();
    let inspect = banner.iter().find(|line| line.contains(" inspect ")).unwrap_or_else(|| panic!("{banner:?}"));
    let output = Command::new("/bin/sh").args(["-c", inspect]).current_dir("/").env("PATH", "").output().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(output.status.success(), "{inspect}: {output:?}");
}

/// The server knew that it would take fewer connections than were asked for, and nobody was told.
#[test]
fn what_is_not_as_asked_is_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut command = Command::new("/bin/sh");
    let serve = "ulimit -n 200 && exec \"$0\" serve --log-file situ.log --listen 127.0.0.1:0 --no-http \
                 --max-connections 5000";
    command.args(["-c", serve, env!("CARGO_BIN_EXE_situ")]).current_dir(at);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // The banner is written after the log.
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    let log = fs::read_to_string(at.join("situ.log")).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
    assert!(log.contains("warning: at most ") && log.contains("connections instead of 5000"), "{log}");
}

/// Both were silent: a server that every client could write to, and one that hung up on a client of the binary protocol.
#[test]
fn strangers_and_clients_of_the_binary_protocol_are_in_the_log() {
    for engine in [&[][..], &["--engine", "hash"], &["--engine", "cache"]] {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let open = ["--log-file", "situ.log", "--listen", "0.0.0.0:0"];
        let refused = situ(at, &[&["serve", "--no-http"], &open[..], engine].concat());
        assert_eq!(refused.code, 1);
        assert!(
            refused.stderr.contains("any client that reaches 0.0.0.0:0")
                && refused.stderr.contains("--allow-anonymous")
        );
        assert_eq!(fs::read_dir(at).unwrap().count(), 0, "nothing is made before it is refused");
        let options = [&open[..], &["--allow-anonymous"]].concat();
        let serving = Serving::start(at, &[&options[..], engine].concat());
        let mut client = serving.connect();
        client.get_mut().write_all(b"\x80\x0a\0\0").unwrap();
        let _ = client.read_to_end(&mut Vec::new());
        let log = fs::read_to_string(at.join("situ.log")).unwrap();
        let line = |text: &str| log.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}: {log}"));
        let warning = line("warning: any client that reaches 0.0.0.0:");
        assert!(warning.contains("firewall") && !warning.contains("127.0.0.1:"), "{warning}");
        assert!(line("memcached's binary protocol").contains("text protocol"), "{log}");
    }
}

#[test]
fn conflicts_are_explained() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let busy = situ(at, &["serve", "--listen", &address, "--no-http"]);
    assert_eq!(busy.code, 1);
    let says = format!("situ: cannot start the server: another process serves {address}");
    assert!(busy.stderr.contains(&says) && busy.stderr.contains("say --listen 127.0.0.1:"), "{}", busy.stderr);
    let busy = situ(at, &["serve", "--listen", "127.0.0.1:0", "--http", &address]);
    assert!(busy.code == 1 && busy.stderr.contains("say --http 127.0.0.1:"), "{}", busy.stderr);

    let _serving = Serving::start(at, &[]);
    let locked = situ(at, &["serve", "--listen", "127.0.0.1:0", "--no-http"]);
    assert_eq!(locked.code, 1);
    assert!(locked.stderr.contains("another process has the store open"), "{}", locked.stderr);
    assert_eq!(situ(at, &["serve", "--listen", "nonsense"]).code, 2);
    assert_eq!(situ(at, &["serve", "--memory", "12 parsecs"]).code, 2);
}

/// Options that make no sense were refused after the store had been made, in the names that the library has for them.
#[test]
fn options_that_make_no_sense_are_refused_by_their_names() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for (option, value, why) in [
        ("--max-value", "10G", "1022M is the most"),
        ("--max-value", "0", "1022M is the most"),
        ("--max-connections", "0", "0 is not in 1.."),
        ("--shared-ring", "3K", "a ring has 4K to 4M"),
        ("--shared-ring", "5M", "a ring has 4K to 4M"),
        ("--threads", "100000", "100000 is not in 1..=1024"),
        ("--threads", "0", "0 is not in 1..=1024"),
        ("--memory", "1K", "from 1M to 16T"),
        ("--memory", "0", "from 1M to 16T"),
        ("--memory", "100T", "from 1M to 16T"),
        ("--listen", "localhost", "a colon, and a port"),
        ("--listen", "localhost:65536", "port from 0 to 65535"),
        ("--listen", ":11211", "a colon, and a port"),
        ("--listen", "::1:11211", "[::1]:11211"),
        ("--listen", "http://localhost:80", "a colon, and a port"),
    ] {
        let refused = situ(at, &["serve", "--listen", "127.0.0.1:0", "--no-http", option, value]);
        assert_eq!(refused.code, 2, "{option} {value}");
        assert!(refused.stderr.contains(option) && refused.stderr.contains(why), "{}", refused.stderr);
    }
    let refused = situ(at, &["serve", "--listen", "127.0.0.1:0", "--no-http", "--auth-file", "no-such-file"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("cannot read the file of users no-such-file"), "{}", refused.stderr);
    assert_eq!(fs::read_dir(at).unwrap().count(), 0);
}

#[test]
fn users_and_a_refused_flush_are_options_and_names_are_listened_on() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    fs::write(at.join("users"), "alice:secret\n").unwrap();
    let options = ["--auth-file", "users", "--disable-flush-all", "--listen", "localhost:0", "--log-file", "situ.log"];
    let serving = Serving::start(at, &options);
    let asked = "flush_all\r\nset a 0 0 12\r\nalice secret\r\nset b 0 0 1\r\nx\r\nflush_all\r\nget b\r\nquit\r\n";
    let answer = "CLIENT_ERROR unauthenticated\r\nSTORED\r\nSTORED\r\nCLIENT_ERROR flush_all not allowed\r\n\
                  VALUE b 0 1\r\nx\r\nEND\r\n";
    assert_eq!(serving.ask(asked), answer);
    let log = fs::read_to_string(at.join("situ.log")).unwrap();
    assert!(log.contains("can read the passwords in users"), "{log}");
    drop(serving);

    let mut command = program(at);
    command.args(["serve", "--json", "--listen", "localhost:0", "--no-http"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let listening: serde_json::Value = serde_json::from_str(&line).unwrap();
    for address in listening["addresses"].as_array().unwrap() {
        let mut stream = TcpStream::connect(address.as_str().unwrap()).unwrap();
        stream.write_all(b"mn\r\nquit\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "MN\r\n");
    }
    assert_ne!(listening["addresses"].as_array().unwrap().len(), 0);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn inspect_asks_a_server_what_its_compactions_do() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let serving = Serving::start(at, &[]);
    let http = serving.http.to_string();
    let text = situ(at, &["inspect", "--http", &http]).done().text();
    assert!(text.contains("\ncpu   0 of 0 attempts done, "), "{text}");
    assert!(text.ends_with("No compaction has begun since the store was opened.\n"), "{text}");
    let told = situ(at, &["inspect", "--http", &http, "--json"]).done().json();
    assert_eq!((&told["units"][0]["name"], &told["next"]), (&"cpu".into(), &0.into()));

    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let failed = situ(at, &["inspect", "--http", &nobody]);
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.stderr.contains(&nobody) && failed.stderr.contains("--http takes the address"), "{failed:?}");
    for (answer, why) in [
        ("HTTP/1.1 404 Not Found\r\n\r\nno", "the answer is HTTP/1.1 404 Not Found"),
        ("HTTP/1.1 200 OK\r\n\r\n{\"units\":[]}", "not that of this version of Situ"),
        ("HTTP/1.1 \u{1b}[31mred\r\n\r\n", "\\u{1b}[31mred"),
        ("STORED\r\n", "no answer of HTTP"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 512];
            let length = stream.read(&mut request).unwrap();
            assert!(request[..length].starts_with(b"GET /compactions.json?since=0 HTTP/1.1\r\n"));
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let failed = situ(at, &["inspect", "--http", &address]);
        server.join().unwrap();
        assert!(failed.code == 1 && failed.stderr.contains(why), "{failed:?}");
    }
}

#[test]
fn a_served_store_is_driven_by_the_benchmark() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let serving = Serving::start(at, &["--unix-socket", "socket"]);
    let tcp = serving.address.to_string();
    let socket = at.join("socket").display().to_string();
    let bench = |address: &str, more: &[&str]| {
        let short = ["bench", "--json", "--keys", "200", "--workloads", "fillrandom,readrandom,ycsb-load,ycsb-a"];
        situ(at, &[&short[..], &["--connect", address], more].concat())
    };
    for (address, more, transport) in [
        (&tcp, &[][..], "over TCP"),
        (&socket, &["--transport", "socket"], "over Unix socket"),
        (&socket, &[], "over shared memory"),
    ] {
        let result = bench(address, more).done().json();
        assert!(result["store"].as_str().unwrap().ends_with(transport), "{}", result["store"]);
        for phase in result["phases"].as_array().unwrap() {
            assert_eq!(phase["operations"], 200, "{phase}");
            assert!(phase["latencies"][0]["p99_ns"].as_u64().unwrap() > 0, "{phase}");
        }
    }
    for (more, named) in [
        (&["--workloads", "fillrandom,readseq"][..], "readseq"),
        (&["--transport", "shared-memory"], "Unix socket"),
        (&["--engine", "hash"], "--connect"),
        (&["--memtable-bytes", "1M"], "--connect"),
        (&["--keep"], "--keep"),
    ] {
        let refused = bench(&tcp, more);
        let said = format!("{refused:?}");
        assert!(refused.code != 0 && said.contains(named), "{more:?}: {said}");
    }
    assert!(!at.join("situ-bench-data").exists());
}

#[test]
fn options_come_from_a_file_and_the_environment_and_stay_with_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("situ.toml");
    let socket = directory.path().join("clients");
    let text = format!("[serve]\nsync = true\nmax-value = '2M'\nunix_socket = '{}'\n", socket.display());
    fs::write(&file, &text).unwrap();
    let checked = situ(directory.path(), &["config", "check", "situ.toml", "--json"]).done().json();
    assert_eq!((&checked["section"], &checked["options"]), (&"serve".into(), &3.into()));

    let serving = Serving::start(directory.path(), &["--config", "situ.toml", "--max-value", "3M"]);
    assert!(UnixStream::connect(&socket).is_ok());
    assert_eq!(serving.ask("stats settings\r\nquit\r\n").matches("item_size_max 3145728").count(), 1);
    drop(serving);
    let shown = situ(directory.path(), &["config", "show", "--data", "situ-data"]).done().text();
    for line in ["\nsync = true\n", "\nmax-value = \"3M\"\n", "\n# idle-timeout-s = 0\n", "\nunix-socket = "] {
        assert!(shown.contains(line), "{line}: {shown}");
    }

    fs::write(&file, "[serve]\nsink = true\n").unwrap();
    for arguments in [&["config", "check", "situ.toml"][..], &["serve", "--config", "situ.toml"]] {
        let refused = situ(directory.path(), arguments);
        assert_eq!(refused.code, 2);
        assert!(refused.stderr.contains("situ.toml, line 2: sink is no option of `situ serve`"), "{}", refused.stderr);
    }
    fs::write(&file, "[node]\nplace = 'n'\ntls-cert = 'cert.pem'\n").unwrap();
    let refused = situ(directory.path(), &["config", "check", "situ.toml"]);
    assert!(refused.code == 2 && refused.stderr.contains("--tls-key"), "{}", refused.stderr);
    let refused = program(directory.path()).args(["serve"]).env("SITU_SERVE_SINK", "1").output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("SITU_SERVE_SINK is no option"));
}

/// Waits for a line in the log of a server.
fn wait_for(at: &Path, text: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let log = fs::read_to_string(at).unwrap_or_default();
        if log.contains(text) {
            return log;
        }
        assert!(Instant::now() < deadline, "no {text:?} in {log}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Users, rights, and all options but the name of the log file were fixed at the start.
#[test]
fn sighup_takes_what_can_change_and_names_what_waits_for_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let write = |name: &str, text: &str| fs::write(at.join(name), text).unwrap();
    write("users", "ada:secret\nbob:b\n");
    write("rights", "ada:rw\nbob:r\n");
    let fixed = "[serve]\nlog-file = \"first.log\"\nauth-file = \"users\"\nrights-file = \"rights\"\n";
    write("situ.toml", &format!("{fixed}memory = \"64M\"\n"));
    let serving = Serving::start(at, &["--config", "situ.toml"]);
    let login =
        |user: &str, password: &str| format!("set x 0 0 {}\r\n{user} {password}\r\n", user.len() + 1 + password.len());
    let ask =
        |user: &str, password: &str, command: &str| serving.ask(&format!("{}{command}quit\r\n", login(user, password)));
    let forbidden = "STORED\r\nCLIENT_ERROR this user has no right to write\r\n";
    assert_eq!(ask("bob", "b", "set a 0 0 1\r\nx\r\n"), forbidden);
    assert_eq!(ask("ada", "secret", "set a 0 0 1\r\nx\r\n"), "STORED\r\nSTORED\r\n");

    write("rights", "ada:r\nbob:rw\n");
    let reloaded = "verify-every = 24\nidle-timeout-s = 500\nmax-connections = 99\nlog-file = \"second.log\"\n";
    let fixed = fixed.replace("log-file = \"first.log\"\n", reloaded);
    write("situ.toml", &format!("{fixed}memory = \"32M\"\nsync = true\n"));
    serving.signal(Signal::HUP);
    let log = wait_for(&at.join("second.log"), "needs a restart: --memory, --sync\n");
    for line in [
        "log file opened again",
        "users: 2 are in force; connections of users that changed are closed",
        "idle connections are closed after 500 s",
        "at most 99 connections are open at a time",
        "the store is verified each 24 hours",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
    assert_eq!(ask("ada", "secret", "set a 0 0 1\r\nx\r\n"), forbidden);
    assert_eq!(ask("bob", "b", "set a 0 0 1\r\ny\r\n"), "STORED\r\nSTORED\r\n");
    let stored = situ(at, &["config", "show", "--data", "situ-data"]).done().text();
    assert!(stored.contains("\nmemory = \"64M\"\n") && stored.contains("\nidle-timeout-s = 500\n"), "{stored}");

    // Bad files change nothing, whichever of them it is; the log file is opened again all the same.
    for (name, text, why) in [
        ("users", "ada\n", "line 1 has no colon"),
        ("situ.toml", "[serve]\nmemroy = 1\n", "memroy is no option"),
        ("situ.toml", "[serve]\nmax-connections = 0\n", "0 is not in 1.."),
    ] {
        let before = fs::read_to_string(at.join(name)).unwrap();
        write(name, text);
        fs::rename(at.join("second.log"), at.join("old.log")).unwrap();
        serving.signal(Signal::HUP);
        let log = wait_for(&at.join("second.log"), "the options cannot be taken, and all stay as they were: ");
        assert!(log.contains(why) && log.contains("log file opened again"), "{log}");
        assert_eq!(ask("bob", "b", "set a 0 0 1\r\ny\r\n"), "STORED\r\nSTORED\r\n");
        write(name, &before);
    }
}

#[test]
fn tls_is_an_option_and_its_files_belong_together() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for options in [&["--tls-cert", "a"][..], &["--tls-key", "a"], &["--tls-client-ca", "a"], &["--rights-file", "a"]] {
        assert_eq!(situ(at, &[&["serve"], options].concat()).code, 2, "{options:?}");
    }
    let refused = situ(at, &["serve", "--no-http", "--tls-cert", "a", "--tls-key", "b"]);
    assert!(refused.code == 1 && refused.stderr.contains("a cannot be used for TLS"), "{}", refused.stderr);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(at.join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(at.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let serving = Serving::start(at, &["--tls-cert", "cert.pem", "--tls-key", "key.pem", "--log-file", "log"]);
    let mut plain = serving.connect();
    plain.get_mut().write_all(b"mn\r\n").unwrap();
    let mut answer = Vec::new();
    // The end may come as a reset, as there may be unread input.
    _ = plain.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{answer:?}");
    wait_for(&at.join("log"), "it speaks no TLS");
}

/// A value of a megabyte takes longer than a millisecond to write, sooner or later.
#[test]
fn slow_operations_are_in_the_log_with_their_keys_unless_they_are_off() {
    let directory = tempfile::tempdir().unwrap();
    let set = format!("set slow-key 0 0 1000000\r\n{}\r\nquit\r\n", "v".repeat(1_000_000));
    for (limit, is_logged) in [("1", true), ("0", false)] {
        let log = directory.path().join(format!("{limit}.log"));
        let options = ["store", "--sync", "--slow-ms", limit, "--log-file", log.to_str().unwrap()];
        let mut serving = Serving::start(directory.path(), &options);
        let text = || fs::read_to_string(&log).unwrap();
        for _ in 0..2000 {
            assert_eq!(serving.ask(&set), "STORED\r\n");
            if !is_logged || text().contains(": slow write of \"slow-key\" took ") {
                break;
            }
        }
        serving.signal(Signal::TERM);
        assert_eq!(serving.wait(), Some(0));
        assert_eq!(text().contains("slow-key"), is_logged, "{}", text());
    }
    let refused = situ(directory.path(), &["serve", "h", "--engine", "hash", "--slow-ms", "5"]);
    assert!(refused.code != 0 && refused.stderr.contains("--slow-ms"), "{}", refused.stderr);
}
