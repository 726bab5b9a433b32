//! `GET /metrics` for Prometheus, `GET /healthz` for supervisors, and `GET /` for people: a page that shows the server
//! live, and links to the others. `HEAD` answers as `GET`, without a body. The connection of a `POST /admin` goes to
//! the [administrative channel](crate::admin::door).
//!
//! One thread polls the listener and all open connections; each is answered once and closed. A request is read into a
//! buffer of bounded size, and reading and writing have a deadline each. So a slow or silent client costs a descriptor
//! and a few hundred bytes for [`DEADLINE`] at most.
//!
//! **Bounded.** [`CONNECTIONS_MAX`] connections; one more takes the place of the oldest. So silent clients cannot keep
//! a supervisor, which sends its request as soon as it is connected, from its answer.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use crate::admin::door::Door;
use crate::admin::live::{Live, PAGE, PAGE_HEADERS};
use crate::admin::metrics::{Counters, Totals};
use crate::engine::durable::Durable;
use crate::engine::{Engine, Health};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 32;
pub(crate) const REQUEST_BYTES_MAX: usize = 8 << 10;
const DEADLINE: Duration = Duration::from_secs(3);
/// Rest of the listener when descriptors have run out.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// The sources of the pages.
pub(crate) struct Pages<E: Engine> {
    pub(crate) engine: Arc<E>,
    pub(crate) durable: Arc<Durable<E>>,
    /// One for each event loop.
    pub(crate) counters: Vec<Arc<Counters>>,
    pub(crate) started: Instant,
    pub(crate) door: Arc<Door>,
}

/// One client: its request arrives, then its answer leaves.
struct Client {
    stream: TcpStream,
    deadline: Instant,
    request: Vec<u8>,
    /// The bytes left to send; `None` while the request arrives.
    answer: Option<VecDeque<u8>>,
}

/// Answers requests until `stop` can be read. The listener must be non-blocking.
pub(crate) fn run<E: Engine>(listener: &TcpListener, pages: &Pages<E>, stop: &OwnedFd) {
    // Oldest first.
    let mut clients: VecDeque<Client> = VecDeque::new();
    loop {
        let mut waiting = vec![PollFd::new(stop, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        waiting.extend(clients.iter().map(|client| PollFd::new(&client.stream, client.interest())));
        let timeout = clients.iter().map(|client| client.deadline).min();
        let timeout = timeout.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // An interrupted wait shows in nothing being ready.
        let _ = poll(&mut waiting, timeout.as_ref());
        if !waiting[0].revents().is_empty() {
            return;
        }
        let accept = !waiting[1].revents().is_empty();
        let ready: Vec<bool> = waiting[2..].iter().map(|waiting| !waiting.revents().is_empty()).collect();
        drop(waiting);
        let mut ready = ready.into_iter();
        clients.retain_mut(|client| client.go_on(ready.next() == Some(true), pages));
        if accept {
            take_connections(listener, &mut clients);
        }
    }
}

fn take_connections(listener: &TcpListener, clients: &mut VecDeque<Client>) {
    // No more than fit, so that those that came first in a storm get their turn.
    for _ in 0..CONNECTIONS_MAX {
        match listener.accept() {
            Ok((stream, _)) => {
                // The client may be gone at any point, so errors go unreported.
                if stream.set_nonblocking(true).is_err() {
                    continue;
                }
                if clients.len() == CONNECTIONS_MAX {
                    clients.pop_front();
                }
                let deadline = Instant::now() + DEADLINE;
                clients.push_back(Client { stream, deadline, request: Vec::new(), answer: None });
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock) => return,
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
            // Out of descriptors, most likely: the oldest gives its own back.
            Err(_) => {
                clients.pop_front();
                std::thread::sleep(ACCEPT_REST);
                return;
            }
        }
    }
}

impl Client {
    fn interest(&self) -> PollFlags {
        if self.answer.is_some() { PollFlags::OUT } else { PollFlags::IN }
    }

    /// Reads or writes what is possible; false when the client is done with, or gone.
    fn go_on<E: Engine>(&mut self, ready: bool, pages: &Pages<E>) -> bool {
        let late = Instant::now() >= self.deadline;
        if self.answer.is_none() {
            let Ok(progress) = self.read(ready) else { return false };
            let request = match (asked(&self.request), progress) {
                (Some(request), _) => request,
                (None, Progress::Ended) => return false,
                (None, Progress::Blocked) if late => TOO_SLOW,
                (None, Progress::Blocked) => return true,
            };
            let response = match request.asked {
                Asked::Admin => match pages.door.enter(&self.request, &self.stream) {
                    Ok(()) => return false,
                    Err((status, text)) => (status, TEXT, "", text.into()),
                },
                asked => respond(asked, pages),
            };
            self.answer = Some(encode(response, request.wants_body));
            self.deadline = Instant::now() + DEADLINE;
        } else if late {
            return false;
        }
        matches!(self.write(), Ok(Progress::Blocked))
    }

    fn read(&mut self, ready: bool) -> io::Result<Progress> {
        if !ready {
            return Ok(Progress::Blocked);
        }
        let mut piece = [0; 1024];
        loop {
            let room = REQUEST_BYTES_MAX.saturating_sub(self.request.len()).min(piece.len());
            if room == 0 {
                return Ok(Progress::Ended);
            }
            match self.stream.read(&mut piece[..room]) {
                Ok(0) => return Ok(Progress::Ended),
                Ok(bytes) => self.request.extend_from_slice(&piece[..bytes]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Progress::Blocked),
                Err(error) => return Err(error),
            }
        }
    }

    fn write(&mut self) -> io::Result<Progress> {
        let Some(answer) = &mut self.answer else { return Ok(Progress::Blocked) };
        while !answer.is_empty() {
            match self.stream.write(answer.as_slices().0) {
                Ok(bytes) => drop(answer.drain(..bytes)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Progress::Blocked),
                Err(error) => return Err(error),
            }
        }
        self.stream.shutdown(Shutdown::Write)?;
        Ok(Progress::Ended)
    }
}

/// The progress of reading or writing.
enum Progress {
    /// The socket has or takes no more for now.
    Blocked,
    /// The end: no more to read or write.
    Ended,
}

/// A request that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    asked: Asked,
    /// False for `HEAD`: the answer has no body.
    wants_body: bool,
}

/// The target of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// The live page.
    Page,
    /// The figures of the live page, with the news of compactions since this attempt.
    Live(u64),
    Metrics,
    Health,
    /// The place of the page about compactions before it became a part of the live page.
    OldPage,
    /// The news of compactions since this attempt.
    Compactions(u64),
    /// A command of the administrative channel.
    Admin,
    /// An unknown target: the status, and the reason in prose.
    Refused(&'static str, &'static str),
}

impl Asked {
    const fn with_body(self) -> Request {
        Request { asked: self, wants_body: true }
    }
}

const TOO_SLOW: Request = Asked::Refused("408 Request Timeout", "The request did not arrive in time.\n").with_body();

/// Understands what has arrived of a request; `None` if more is needed. Once there is an answer, more bytes do not
/// change it.
pub(crate) fn asked(request: &[u8]) -> Option<Request> {
    let request = request.get(..REQUEST_BYTES_MAX).unwrap_or(request);
    let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") else {
        let too_long = Asked::Refused("431 Request Header Fields Too Large", "The request is too long.\n");
        return (request.len() >= REQUEST_BYTES_MAX).then_some(too_long.with_body());
    };
    let line = request[..end].split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if !words.next().is_some_and(|version| version.starts_with(b"HTTP/1.")) {
        return Some(Asked::Refused("400 Bad Request", "This is not an HTTP/1 request.\n").with_body());
    }
    let refused = |text| Some(Asked::Refused("405 Method Not Allowed", text).with_body());
    match (method, target) {
        (b"POST", b"/admin") => return Some(Asked::Admin.with_body()),
        (_, b"/admin") => return refused("/admin takes POST.\n"),
        (b"GET" | b"HEAD", _) => {}
        _ => return refused("Only GET and HEAD are served.\n"),
    }
    let mut parts = target.splitn(2, |byte| *byte == b'?');
    let (path, query) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let asked = match path {
        b"/" => Asked::Page,
        b"/live.json" => since(query).map_or_else(|refused| refused, Asked::Live),
        b"/metrics" => Asked::Metrics,
        b"/healthz" => Asked::Health,
        b"/compactions" => Asked::OldPage,
        b"/compactions.json" => since(query).map_or_else(|refused| refused, Asked::Compactions),
        _ => Asked::Refused("404 Not Found", "Here are /, /metrics, /healthz, /live.json and /compactions.json.\n"),
    };
    Some(Request { asked, wants_body: method == b"GET" })
}

/// Parses `since=N` of a query; without such a part, the request is for all attempts that are kept.
///
/// # Errors
/// The refusal of a value that is no number.
fn since(query: &[u8]) -> Result<u64, Asked> {
    let Some(digits) = query.split(|byte| *byte == b'&').find_map(|part| part.strip_prefix(b"since=")) else {
        return Ok(0);
    };
    let number = std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let number = number.and_then(|digits| digits.parse().ok());
    number.ok_or(Asked::Refused("400 Bad Request", "since takes a number.\n"))
}

/// Status, content type, further headers, body.
type Response = (&'static str, &'static str, &'static str, Cow<'static, str>);

fn encode((status, kind, headers, body): Response, wants_body: bool) -> VecDeque<u8> {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{ALWAYS}{headers}\r\n");
    let mut bytes = head.into_bytes();
    if wants_body {
        bytes.extend_from_slice(body.as_bytes());
    }
    bytes.into()
}

const TEXT: &str = "text/plain; charset=utf-8";
/// Headers of every answer.
const ALWAYS: &str = "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";

/// The page about compactions is a part of the live page. A relative reference holds behind a proxy with a prefix, too.
const MOVED_HEADERS: &str = "Location: ./#compactions\r\n";

fn respond<E: Engine>(asked: Asked, pages: &Pages<E>) -> Response {
    match asked {
        Asked::Page => ("200 OK", "text/html; charset=utf-8", PAGE_HEADERS, PAGE.into()),
        Asked::Live(since) => {
            let totals = Totals(&pages.counters);
            json(&Live::collect(&totals, &pages.durable, pages.started.elapsed(), since))
        }
        Asked::Metrics => {
            let page = Totals(&pages.counters).render(&pages.durable, pages.started.elapsed());
            ("200 OK", "text/plain; version=0.0.4; charset=utf-8", "", page.into())
        }
        Asked::Health => match pages.engine.health() {
            Health::Ready => ("200 OK", TEXT, "", "ok\n".into()),
            Health::Degraded(reason) => ("503 Service Unavailable", TEXT, "", format!("{reason}\n").into()),
        },
        Asked::OldPage => ("308 Permanent Redirect", TEXT, MOVED_HEADERS, "The page is at /#compactions.\n".into()),
        Asked::Compactions(since) => match pages.engine.compactions(since) {
            Some(compactions) => json(&compactions),
            None => ("404 Not Found", TEXT, "", "The engine tells nothing of compactions.\n".into()),
        },
        // The connection has left this thread, or its caller is refused.
        Asked::Admin => ("404 Not Found", TEXT, "", "".into()),
        Asked::Refused(status, text) => (status, TEXT, "", text.into()),
    }
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(json) => ("200 OK", "application/json", "", json.into()),
        Err(error) => ("500 Internal Server Error", TEXT, "", format!("{error}\n").into()),
    }
}
