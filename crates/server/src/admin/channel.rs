//! The administrative channel: a command line for the process that has a store open, and its output.
//!
//! A client sends one request: the arguments of a command line, and the directory that it runs in. The process runs the
//! command on its open store and answers with frames: output, messages, and at last the exit code.
//! `docs/formats/admin.md` has the bytes.
//!
//! Over HTTP, the request is the body of a `POST`, and each frame of the answer is a chunk.
//!
//! This module knows nothing of commands: an [`Administrator`] runs them. The module `socket` takes connections, and
//! `door` lets callers of HTTP in.
//!
//! **Bounded.** A request has at most [`REQUEST_BYTES_MAX`], a frame at most [`FRAME_BYTES_MAX`].
//!
//! **Failure.** A client that goes away ends its command at the next write, as a closed pipe does. A request that
//! cannot be run is refused in words, by a frame that all versions share.

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::{Deserialize, Serialize};
use situ_base::lock;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The name of the socket.
pub(crate) const NAME: &str = "ADMIN";
/// The longest path of a socket.
const PATH_BYTES_MAX: usize = 107;
/// The version of requests.
const VERSION: u64 = 1;
/// The longest request.
pub(crate) const REQUEST_BYTES_MAX: usize = 4 << 20;
/// The longest contents of a frame.
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 10;

const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const EXIT: u8 = 3;
const REFUSED: u8 = 4;

/// The beginning of an answer over HTTP.
const HTTP_HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\
    Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n";

/// Calls `with` with a path of the socket in `directory` that is short enough for the system.
pub(crate) fn within_limit<T>(directory: &Path, with: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let path = directory.join(NAME);
    if path.as_os_str().as_bytes().len() <= PATH_BYTES_MAX {
        return with(&path);
    }
    let opened = File::open(directory)?;
    with(Path::new(&format!("/proc/self/fd/{}/{NAME}", opened.as_raw_fd())))
}

/// Runs the commands of an administrative channel.
pub trait Administrator: Send + Sync + 'static {
    /// Runs a command line, and returns its exit code. Each connection has a thread of its own, which may wait.
    fn run(&self, request: &AdminRequest, answer: &std::sync::Arc<AdminAnswer>) -> u8;

    /// Returns true if a command line runs until [its client is gone](AdminAnswer::is_gone): it takes no place of a
    /// command, and the end of the server ends it at once.
    fn is_stream(&self, _request: &AdminRequest) -> bool {
        false
    }
}

/// A command line, and the directory to which its relative paths belong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminRequest {
    /// The arguments, without the name of the program.
    pub arguments: Vec<OsString>,
    /// The directory that the client runs in.
    pub directory: PathBuf,
}

/// Text of a command line: bytes where it is no UTF-8.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Text {
    Utf8(String),
    Bytes(Vec<u8>),
}

impl From<OsString> for Text {
    fn from(text: OsString) -> Text {
        text.into_string().map_or_else(|text| Text::Bytes(text.into_vec()), Text::Utf8)
    }
}

impl From<Text> for OsString {
    fn from(text: Text) -> OsString {
        match text {
            Text::Utf8(text) => text.into(),
            Text::Bytes(bytes) => OsString::from_vec(bytes),
        }
    }
}

/// A request as JSON.
#[derive(Serialize, Deserialize)]
struct Body {
    version: u64,
    arguments: Vec<Text>,
    directory: Text,
}

/// The part of a request that all versions have.
#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

impl AdminRequest {
    /// Returns the request as JSON.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let arguments = self.arguments.iter().cloned().map(Text::from).collect();
        let body = Body { version: VERSION, arguments, directory: self.directory.clone().into_os_string().into() };
        // Text and numbers can always be written.
        serde_json::to_vec(&body).unwrap_or_default()
    }

    /// Reads a request from JSON.
    ///
    /// # Errors
    /// It is none, or one of another version; in words, with the cure.
    pub(crate) fn decode(bytes: &[u8]) -> Result<AdminRequest, String> {
        let malformed = |error: serde_json::Error| format!("the request is malformed: {error}");
        let Versioned { version } = serde_json::from_slice(bytes).map_err(malformed)?;
        if version != VERSION {
            return Err(format!(
                "the request is of version {version}, and the server takes version {VERSION}; run the program of the \
                 server's version, which is {}",
                env!("CARGO_PKG_VERSION")
            ));
        }
        let body: Body = serde_json::from_slice(bytes).map_err(malformed)?;
        let directory = PathBuf::from(OsString::from(body.directory));
        Ok(AdminRequest { arguments: body.arguments.into_iter().map(OsString::from).collect(), directory })
    }
}

/// The way of a command's output to its client.
#[derive(Debug)]
pub struct AdminAnswer {
    socket: OwnedFd,
    is_http: bool,
    /// Frames are written one after the other. True once there was one.
    turn: Mutex<bool>,
}

impl AdminAnswer {
    /// Makes the answer of a socket that blocks.
    pub(crate) fn new(socket: OwnedFd, is_http: bool) -> AdminAnswer {
        AdminAnswer { socket, is_http, turn: Mutex::default() }
    }

    /// Sends bytes of standard output.
    ///
    /// # Errors
    /// The client has gone: the error is a broken pipe.
    pub fn stdout(&self, bytes: &[u8]) -> io::Result<()> {
        bytes.chunks(FRAME_BYTES_MAX).try_for_each(|piece| self.send(STDOUT, piece))
    }

    /// Sends bytes of standard error.
    ///
    /// # Errors
    /// As [`stdout`](AdminAnswer::stdout).
    pub fn stderr(&self, bytes: &[u8]) -> io::Result<()> {
        bytes.chunks(FRAME_BYTES_MAX).try_for_each(|piece| self.send(STDERR, piece))
    }

    /// Returns true if the client is a caller over HTTP, who may be on another machine.
    pub fn is_over_http(&self) -> bool {
        self.is_http
    }

    /// Returns true if the client has gone: for commands that write nothing for a long time.
    pub fn is_gone(&self) -> bool {
        // A client sends nothing behind its request.
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match retry_on_intr(|| recv(&self.socket, &mut [0u8; 1][..], flags)) {
            Ok((bytes, _)) => bytes == 0,
            Err(error) => error != Errno::WOULDBLOCK,
        }
    }

    pub(crate) fn exit(&self, code: u8) -> io::Result<()> {
        self.send(EXIT, &[code])
    }

    /// Refuses the request. `text` says why, and what to do.
    pub(crate) fn refuse(&self, text: &str) -> io::Result<()> {
        let mut ends = (0..=text.len().min(FRAME_BYTES_MAX)).rev();
        let end = ends.find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        let text = &text[..end];
        self.send(REFUSED, text.as_bytes())
    }

    /// Ends the connection both ways: a write that waits for the client fails.
    pub(crate) fn hang_up(&self) {
        // Fails if the client has gone, which is as good.
        _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    fn send(&self, kind: u8, contents: &[u8]) -> io::Result<()> {
        let length = (contents.len() as u32).to_le_bytes();
        let frame = [&[kind], &length[..]].concat();
        let mut has_begun = lock(&self.turn);
        let is_first = !std::mem::replace(&mut *has_begun, true);
        if !self.is_http {
            self.write_all(&frame, SendFlags::MORE)?;
            return self.write_all(contents, SendFlags::empty());
        }
        let head = if is_first { HTTP_HEAD } else { "" };
        let size = format!("{head}{:x}\r\n", frame.len() + contents.len());
        self.write_all(&[size.as_bytes(), &frame].concat(), SendFlags::MORE)?;
        self.write_all(contents, SendFlags::MORE)?;
        let is_last = matches!(kind, EXIT | REFUSED);
        self.write_all(if is_last { b"\r\n0\r\n\r\n" } else { b"\r\n" }, SendFlags::empty())
    }

    fn write_all(&self, mut bytes: &[u8], flags: SendFlags) -> io::Result<()> {
        while !bytes.is_empty() {
            match retry_on_intr(|| send(&self.socket, bytes, flags | SendFlags::NOSIGNAL)) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                // To the command, the client is the reader of a pipe.
                Err(Errno::CONNRESET | Errno::NOTCONN) => return Err(ErrorKind::BrokenPipe.into()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Reads a request: its length, and JSON. Returns `None` if the client has gone, or takes too long.
///
/// # Errors
/// The request cannot be run; in words.
pub(crate) fn read_request(stream: &mut impl Read) -> Option<Result<AdminRequest, String>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let length = u32::from_le_bytes(length) as usize;
    if length > REQUEST_BYTES_MAX {
        return Some(Err(format!("the request has {length} bytes, and at most {REQUEST_BYTES_MAX} are taken")));
    }
    let mut body = Vec::new();
    stream.take(length as u64).read_to_end(&mut body).ok()?;
    (body.len() == length).then(|| AdminRequest::decode(&body))
}

/// A part of the answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminFrame {
    /// Bytes of standard output.
    Stdout(Vec<u8>),
    /// Bytes of standard error.
    Stderr(Vec<u8>),
    /// The exit code, which is the last frame.
    Exit(u8),
    /// The reason why the request was not run, in words. It is the last frame.
    Refused(String),
}

impl AdminFrame {
    /// Reads a frame.
    ///
    /// # Errors
    /// The stream ends before, or these are no frames.
    pub(crate) fn read(stream: &mut impl Read) -> io::Result<AdminFrame> {
        let wrong = |text: String| io::Error::new(ErrorKind::InvalidData, text);
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(wrong(format!("a frame has {length} bytes, and at most {FRAME_BYTES_MAX} are allowed")));
        }
        let mut contents = vec![0; length];
        stream.read_exact(&mut contents)?;
        match (kind, &contents[..]) {
            (STDOUT, _) => Ok(AdminFrame::Stdout(contents)),
            (STDERR, _) => Ok(AdminFrame::Stderr(contents)),
            (EXIT, [code]) => Ok(AdminFrame::Exit(*code)),
            (REFUSED, text) => Ok(AdminFrame::Refused(String::from_utf8_lossy(text).into_owned())),
            _ => Err(wrong(format!("a frame has kind {kind} and {length} bytes, which this program does not know"))),
        }
    }
}

/// A connection to the process that has a store open.
#[derive(Debug)]
pub struct AdminClient(UnixStream);

impl AdminClient {
    /// Connects to the process that has the store in `directory` open.
    ///
    /// # Errors
    /// There is none that takes commands, or the caller may not connect to it.
    pub fn connect(directory: &Path) -> io::Result<AdminClient> {
        within_limit(directory, |path| UnixStream::connect(path)).map(AdminClient)
    }

    /// Returns the number of the process that listens.
    ///
    /// # Errors
    /// The system refuses.
    pub fn server(&self) -> io::Result<i32> {
        Ok(rustix::net::sockopt::socket_peercred(&self.0)?.pid.as_raw_nonzero().get())
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The request is too long. A server that has gone shows in the [next frame](AdminClient::next_frame).
    pub fn send(&mut self, request: &AdminRequest) -> io::Result<()> {
        let body = request.encode();
        if body.len() > REQUEST_BYTES_MAX {
            let text =
                format!("the command line takes {} bytes, and at most {REQUEST_BYTES_MAX} can be sent", body.len());
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        // A server that refuses may close before it has read all, and its frame is there all the same.
        _ = io::Write::write_all(&mut self.0, &[&(body.len() as u32).to_le_bytes(), &body[..]].concat());
        Ok(())
    }

    /// Waits for the next part of the answer. [`Exit`](AdminFrame::Exit) and [`Refused`](AdminFrame::Refused) are the
    /// last.
    ///
    /// # Errors
    /// The server has ended, or sends something else.
    pub fn next_frame(&mut self) -> io::Result<AdminFrame> {
        AdminFrame::read(&mut self.0)
    }
}

#[cfg(test)]
mod tests;
