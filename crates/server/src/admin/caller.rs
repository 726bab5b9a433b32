//! A client of the administrative channel over HTTP.

use crate::admin::channel::{AdminFrame, AdminRequest, REQUEST_BYTES_MAX};
use crate::admin::door::read_token;
use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;

/// The port of a URL that has none.
const PORT: u16 = 11212;
/// The longest head of an answer, and the longest text of a refusal.
const HEAD_BYTES_MAX: u64 = 8 << 10;
/// The longest line before a chunk: 16 digits, and its end.
const SIZE_BYTES_MAX: u64 = 18;

/// A command that runs in a server, asked for over HTTP.
pub struct AdminCaller(Chunks<BufReader<TcpStream>>);

impl fmt::Debug for AdminCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminCaller")
    }
}

impl AdminCaller {
    /// Sends a request to the server at `url`, which is `http://HOST:PORT`, with the token in a file.
    ///
    /// # Errors
    /// The URL or the token is none, or the server is not there or refuses; in words.
    pub fn send(url: &str, token_file: &Path, request: &AdminRequest) -> Result<AdminCaller, String> {
        let host = host(url).ok_or_else(|| {
            format!(
                "{url} is no URL of a server: write http://HOST:PORT; `ssh -L` leads to a server on another machine"
            )
        })?;
        let token = read_token(token_file)?;
        let body = request.encode();
        if body.len() > REQUEST_BYTES_MAX {
            return Err(format!(
                "the command line takes {} bytes, and at most {REQUEST_BYTES_MAX} can be sent",
                body.len()
            ));
        }
        let head =
            format!("POST /admin HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\nAuthorization: Bearer ", body.len());
        let cannot = |error: io::Error| format!("{host} does not answer: {error}");
        let mut stream = TcpStream::connect(&host).map_err(cannot)?;
        let peer = stream.peer_addr().map_err(cannot)?;
        if !peer.ip().to_canonical().is_loopback() {
            return Err(format!("the token would travel unencrypted to {peer}; reach the server by `ssh -L`"));
        }
        // A server that refuses may close before it has read all, and its answer is there all the same.
        _ = stream.write_all(&[head.as_bytes(), &token, b"\r\n\r\n", &body].concat());
        let mut stream = BufReader::new(stream);
        let head = read_head(&mut stream).map_err(cannot)?;
        let status = head.lines().next().unwrap_or_default();
        if !status.starts_with("HTTP/1.1 200 ") || !head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            let mut text = String::new();
            // The status says it, too.
            _ = stream.take(HEAD_BYTES_MAX).read_to_string(&mut text);
            let status = status.strip_prefix("HTTP/1.1 ").unwrap_or("no answer of HTTP");
            return Err(format!("{status}: {}", text.trim_ascii()));
        }
        Ok(AdminCaller(Chunks::new(stream)))
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

/// Returns the host and the port of a URL.
fn host(url: &str) -> Option<String> {
    let host = url.strip_prefix("http://")?;
    let host = host.strip_suffix('/').unwrap_or(host);
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b'@' | b'?' | b'#');
    if host.is_empty() || !host.bytes().all(is_plain) {
        return None;
    }
    // The colons of [::1] are no port's.
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    Some(if has_port { host.to_owned() } else { format!("{host}:{PORT}") })
}

fn read_head(stream: &mut impl BufRead) -> io::Result<String> {
    let mut head = String::new();
    let mut stream = stream.take(HEAD_BYTES_MAX);
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

/// The chunks of an answer, as one stream.
pub(crate) struct Chunks<R> {
    stream: R,
    /// Bytes left of the chunk.
    left: u64,
    has_begun: bool,
}

impl<R> Chunks<R> {
    pub(crate) fn new(stream: R) -> Chunks<R> {
        Chunks { stream, left: 0, has_begun: false }
    }
}

impl<R: BufRead> Read for Chunks<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let wrong = |_| io::Error::new(ErrorKind::InvalidData, "the server sends something else than chunks");
        if self.left == 0 {
            if std::mem::replace(&mut self.has_begun, true) {
                self.stream.read_exact(&mut [0; 2])?;
            }
            let mut size = String::new();
            self.stream.by_ref().take(SIZE_BYTES_MAX).read_line(&mut size)?;
            if size.is_empty() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.left = u64::from_str_radix(size.trim_ascii_end(), 16).map_err(wrong)?;
        }
        let bytes = self.stream.by_ref().take(self.left).read(into)?;
        self.left -= bytes as u64;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_host_and_perhaps_a_port() {
        for (url, is) in [
            ("http://127.0.0.1:11212", Some("127.0.0.1:11212")),
            ("http://localhost/", Some("localhost:11212")),
            ("http://[::1]:9", Some("[::1]:9")),
            ("http://[::1]", Some("[::1]:11212")),
            ("https://localhost", None),
            ("localhost:11212", None),
            ("http://a/b", None),
            ("http://", None),
        ] {
            assert_eq!(host(url).as_deref(), is, "{url}");
        }
    }
}
