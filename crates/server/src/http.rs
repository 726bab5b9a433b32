//! `GET /metrics` and `GET /healthz`, for Prometheus and for supervisors.
//!
//! A few threads take connections from one listener and answer one request each, then close: enough for a scrape
//! every few seconds, and little to get wrong. A request is read into a buffer of fixed size within a deadline, so a
//! slow or hostile client holds a thread for [`DEADLINE`] at most and costs nothing else.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::engine::{Engine, Health};
use crate::metrics::Totals;
use crate::server::Shared;

/// Threads that answer.
pub(crate) const THREADS: usize = 2;
const REQUEST_BYTES_MAX: usize = 8 << 10;
const DEADLINE: Duration = Duration::from_secs(3);

/// Answers requests until `stop` can be read. The listener must be non-blocking.
pub(crate) fn run<E: Engine>(listener: &TcpListener, shared: &Shared<E>, stop: &OwnedFd) {
    loop {
        let mut waiting = [PollFd::new(stop, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        // An interrupted wait shows in nothing being ready.
        let _ = poll(&mut waiting, None);
        if !waiting[0].revents().is_empty() {
            return;
        }
        if waiting[1].revents().is_empty() {
            continue;
        }
        match listener.accept() {
            // The client may be gone at any point; there is nobody to tell.
            Ok((stream, _)) => drop(answer(stream, shared)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // Out of descriptors, most likely: leave some to others.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn answer<E: Engine>(mut stream: TcpStream, shared: &Shared<E>) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    let deadline = Instant::now() + DEADLINE;
    let mut request = [0u8; REQUEST_BYTES_MAX];
    let mut length = 0;
    let (status, kind, body) = loop {
        if let Some(line) = request_line(&request[..length]) {
            break respond(line, shared);
        }
        let Some(room) = request.get_mut(length..).filter(|room| !room.is_empty()) else {
            break ("431 Request Header Fields Too Large", TEXT, "The request is too long.\n".to_owned());
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break ("408 Request Timeout", TEXT, "The request did not arrive in time.\n".to_owned());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(room) {
            Ok(0) => return Ok(()),
            Ok(bytes) => length += bytes,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut bytes = head.as_bytes().to_vec();
    bytes.extend_from_slice(body.as_bytes());
    let mut rest = &bytes[..];
    let deadline = Instant::now() + DEADLINE;
    while !rest.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        stream.set_write_timeout(Some(left))?;
        let bytes = stream.write(rest)?;
        rest = rest.get(bytes..).unwrap_or_default();
    }
    stream.shutdown(std::net::Shutdown::Write)
}

const TEXT: &str = "text/plain; charset=utf-8";

/// The request line, once the whole head has arrived.
fn request_line(request: &[u8]) -> Option<&str> {
    let end = request.windows(4).position(|window| window == b"\r\n\r\n")?;
    let line = request[..end].split(|byte| *byte == b'\r').next()?;
    Some(std::str::from_utf8(line).unwrap_or("?"))
}

fn respond<E: Engine>(line: &str, shared: &Shared<E>) -> (&'static str, &'static str, String) {
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if !words.next().is_some_and(|version| version.starts_with("HTTP/1.")) {
        return ("400 Bad Request", TEXT, "This is not an HTTP/1 request.\n".to_owned());
    }
    if method != "GET" {
        return ("405 Method Not Allowed", TEXT, "Only GET is served.\n".to_owned());
    }
    match target.split('?').next().unwrap_or_default() {
        "/metrics" => {
            let page = Totals(&shared.counters).render(shared.engine.as_ref(), shared.started.elapsed());
            ("200 OK", "text/plain; version=0.0.4; charset=utf-8", page)
        }
        "/healthz" => match shared.engine.health() {
            Health::Ready => ("200 OK", TEXT, "ok\n".to_owned()),
            Health::Degraded(reason) => ("503 Service Unavailable", TEXT, format!("{reason}\n")),
        },
        _ => ("404 Not Found", TEXT, "Here are /metrics and /healthz.\n".to_owned()),
    }
}
