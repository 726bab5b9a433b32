//! All commands over memcached.

use crate::memcached::Memcached;
use crate::skipped::skipped;
use crate::vocabulary::{all_commands, options};
use situ_client::{Client, Error, Login, TransportChoice, TransportKind};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Starts memcached, or says that the test is skipped.
pub(crate) fn memcached(options: &[&str]) -> Option<Memcached> {
    let started = Memcached::start_with(options);
    if started.is_none() {
        skipped("memcached is not installed");
    }
    started
}

#[test]
fn memcached_answers_all_commands() {
    let Some(memcached) = memcached(&[]) else { return };
    all_commands(&memcached.address.to_string(), (TransportChoice::Auto, TransportKind::Tcp), 1 << 20);
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn memcached_answers_all_commands_over_a_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let mut command = Command::new("memcached");
    command.arg("-s").arg(&path).args(["-t", "1"]).stdin(Stdio::null());
    if rustix::process::geteuid().is_root() {
        command.args(["-u", "root"]);
    }
    let Ok(child) = command.spawn() else { return skipped("memcached is not installed") };
    let _process = Process(child);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !path.exists() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(10));
    }
    all_commands(path.to_str().unwrap(), (TransportChoice::Auto, TransportKind::UnixSocket), 1 << 20);
}

#[test]
fn users_of_memcached_log_in() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"ada:lovelace\n").unwrap();
    let Some(memcached) = memcached(&["-Y", file.path().to_str().unwrap()]) else { return };
    let mut options = options(&memcached.address.to_string());
    let strangers = Client::open(&options).unwrap();
    assert!(matches!(strangers.get("key"), Err(Error::Refused { .. })));
    options.login = Some(Login { user: "ada".to_owned(), password: "wrong".to_owned() });
    assert!(matches!(Client::open(&options).unwrap().get("key"), Err(Error::Refused { .. })));
    options.login = Some(Login { user: "ada".to_owned(), password: "lovelace".to_owned() });
    let client = Client::open(&options).unwrap();
    client.set("key", "value", ()).unwrap();
    assert_eq!(client.get("key").unwrap().unwrap().value, b"value");
}
