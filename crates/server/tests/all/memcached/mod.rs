//! A real memcached to compare with, where one is installed.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A memcached of its own; it ends with this.
pub(crate) struct Memcached {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) version: [u32; 3],
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Memcached {
    /// `None` if none is installed.
    pub(crate) fn start() -> Option<Memcached> {
        Memcached::start_with(&[])
    }

    /// One with these options; `None` if none is installed.
    pub(crate) fn start_with(options: &[&str]) -> Option<Memcached> {
        let output = Command::new("memcached").arg("--version").output().ok()?;
        let text = String::from_utf8(output.stdout).unwrap();
        let numbers = text.split_whitespace().nth(1)?.split('.').map(|number| number.parse().unwrap_or(0));
        let version = numbers.collect::<Vec<u32>>().try_into().ok()?;
        // Another server may take a port that was just released, and answer on it.
        (0..10).find_map(|_| Memcached::on_a_free_port(options, version)).or_else(|| panic!("memcached does not start"))
    }

    /// `None` if another process has taken the port.
    fn on_a_free_port(options: &[&str], version: [u32; 3]) -> Option<Memcached> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("memcached");
        command.args(["-l", "127.0.0.1", "-U", "0", "-t", "1", "-p", &port.to_string()]).args(options);
        if rustix::process::geteuid().is_root() {
            command.args(["-u", "root"]);
        }
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let mut memcached = Memcached { child, address, version };
        let pid = format!("STAT pid {}\r\n", memcached.child.id());
        let deadline = Instant::now() + Duration::from_secs(60);
        while memcached.child.try_wait().unwrap().is_none() {
            if TcpStream::connect(address).is_ok() {
                let said = String::from_utf8_lossy(&exchange(address, &[b"stats\r\nquit\r\n"], false)).into_owned();
                // A memcached with users does not show its process id.
                return (said.contains(&pid) || !said.contains("STAT pid ")).then_some(memcached);
            }
            assert!(Instant::now() < deadline, "memcached does not answer on {address}");
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

/// Sends `pieces`, hangs up, and returns everything that came back.
pub(crate) fn exchange(address: SocketAddr, pieces: &[&[u8]], slowly: bool) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    for piece in pieces {
        // The server may have closed already; what it said before is what counts.
        if stream.write_all(piece).is_err() {
            break;
        }
        if slowly {
            std::thread::sleep(Duration::from_micros(300));
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}
