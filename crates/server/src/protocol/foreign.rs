//! Clients that speak another protocol, and the reason why the server hangs up on them.
//!
//! A web page can make a browser send an HTTP request to any address, this server's on localhost included, and it
//! chooses the body. A server that answers `ERROR` to the request line and goes on reads `flush_all` in the body as a
//! command. So the connection ends with the line that gives the other protocol away, and nothing behind that line is
//! run:
//!
//! * Its first byte cannot begin a text command: 0x80 is memcached's binary protocol, whose clients wait for an answer;
//!   0x16 is TLS; 0x00 is STUN, which a browser speaks as well. The page chooses some of the bytes of both.
//! * The first line ends in the version of HTTP. Its method may be a command's name: a page that has its own name lead
//!   to this server (DNS rebinding) can choose the method `gets`.
//! * Any line that is no command ends in a version of HTTP (as in memcached), is the request line of HTTP 0.9, or
//!   begins with the name of a header, as in `Host: a`.
//!
//! The cost: a client whose first command is a retrieval of several keys cannot end it with a key such as `HTTP/1.1`.

/// Methods of HTTP; case does not matter to what a page may send.
const METHODS: [&[u8]; 10] =
    [b"GET", b"POST", b"PUT", b"HEAD", b"DELETE", b"OPTIONS", b"PATCH", b"CONNECT", b"TRACE", b"PRI"];

/// Another protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Binary,
    Tls,
    Http,
    Unknown,
}

impl Protocol {
    pub(crate) const COUNT: usize = Protocol::Unknown as usize + 1;

    /// Returns the protocol that such a client speaks, and the cure.
    pub(crate) fn speaks_and_cure(self) -> (&'static str, &'static str) {
        match self {
            Protocol::Binary => {
                ("memcached's binary protocol", "set the client to the text protocol, which many call ASCII")
            }
            Protocol::Tls => ("TLS", "turn TLS off in the client, or start the server with --tls-cert"),
            Protocol::Http => ("HTTP", "the pages of the server are at the address of --http"),
            Protocol::Unknown => ("something else", "find out which program connects to this port"),
        }
    }
}

/// Returns the protocol of a connection whose first byte is `byte`; `None` if a text command may begin with it.
pub(crate) fn of_first_byte(byte: u8) -> Option<Protocol> {
    match byte {
        0x80 => Some(Protocol::Binary),
        0x16 => Some(Protocol::Tls),
        b' ' | b'\r' | b'\n' | b'\t' => None,
        _ if byte.is_ascii_graphic() => None,
        _ => Some(Protocol::Unknown),
    }
}

/// Returns true if `line`, the first one of a connection, is a request of HTTP, whatever its method.
pub(crate) fn is_first_line(line: &[u8]) -> bool {
    let mut tokens = tokens(line);
    let version = tokens.next_back().unwrap_or_default();
    is_http_version(version) && tokens.count() >= 2
}

/// Returns true if `line`, which is no command, belongs to another protocol.
pub(crate) fn is_line(line: &[u8]) -> bool {
    let mut tokens = tokens(line);
    let version = tokens.clone().next_back().unwrap_or_default();
    let first = tokens.next().unwrap_or_default();
    let is_header = first.len() > 1 && first.ends_with(b":");
    let is_target = |target: &[u8]| {
        target.starts_with(b"/") || target.starts_with(b"*") || target.windows(3).any(|window| window == b"://")
    };
    is_header
        || is_http_version(version)
        || METHODS.iter().any(|method| first.eq_ignore_ascii_case(method)) && tokens.next().is_some_and(is_target)
}

fn tokens(line: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
    let separates = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r');
    line.split(separates).filter(|token| !token.is_empty())
}

fn is_http_version(token: &[u8]) -> bool {
    token.get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"HTTP/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_http_are_told_from_commands() {
        for line in ["POST / HTTP/1.1", "get /a http/1.0", "gets / HTTP/2", " Touch /x Http/1.1 ", "set / HTTP/1.1\t"] {
            assert!(is_first_line(line.as_bytes()), "{line}");
        }
        for line in ["get HTTP/1.1", "get /a /b", "set HTTP/1.1 0 0 5", "version", "", "mg HTTP/ v"] {
            assert!(!is_first_line(line.as_bytes()), "{line}");
        }
        for line in ["GET /", "Get http://a/", "OPTIONS *", "x HTTP/1.1", "Host: a", "HTTP/1.1", "PRI * HTTP/2.0"] {
            assert!(is_line(line.as_bytes()), "{line}");
        }
        for line in ["GET a", "", " ", "foo", ":", "mx a:b", "g /"] {
            assert!(!is_line(line.as_bytes()), "{line}");
        }
        for byte in [0x80, 0x16, 0x00, 0xff, 0x7f] {
            assert!(of_first_byte(byte).is_some(), "{byte:#x}");
        }
        assert_eq!((of_first_byte(0x80), of_first_byte(0x16)), (Some(Protocol::Binary), Some(Protocol::Tls)));
        assert!(!b"gsm \r\n~!".iter().any(|byte| of_first_byte(*byte).is_some()));
    }
}
