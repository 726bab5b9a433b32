//! The parsers under arbitrary bytes, for fuzzers (`fuzz/`) and the seeded tests below. Only there with the feature
//! `fuzzing` and in tests.

use crate::admin::caller::Chunks;
use crate::admin::channel::{AdminFrame, AdminRequest, read_request};
use crate::admin::door::Call;
use crate::admin::http::{REQUEST_BYTES_MAX, asked};
use crate::protocol::auth;
use crate::protocol::foreign;
use crate::protocol::parse::{Request, next_key, parse};
use crate::protocol::policy::Policy;

/// Parses any line and walks over what came out of it; panics if the parser does, or if it contradicts itself.
pub fn request(line: &[u8]) {
    let parsed = parse(line);
    if let Request::Get { keys, .. } = &parsed {
        let mut from = 0;
        while let Some((key, next)) = next_key(keys, from) {
            assert!(next > from && !key.is_empty(), "the walk over keys stands still");
            assert!(!key.contains(&b' '));
            from = next;
        }
    }
    assert_eq!(parse(line), parsed, "the same line, another request");
    if parsed == Request::Foreign {
        assert_eq!(parse(&[b" ", line].concat()), parsed, "a space makes a command of another protocol");
    }
    #[cfg(feature = "verbs")]
    if let Request::RemoteMemory { offer } = &parsed
        && let Ok(offer) = situ_transport::verbs::Offer::parse(offer)
    {
        assert_eq!(situ_transport::verbs::Offer::parse(offer.to_string().as_bytes()), Ok(offer));
    }
    let _ = foreign::is_first_line(line);
    let _ = auth::announced_bytes(line);
}

/// Lines of every kind: where a fuzzer begins.
pub fn corpus() -> Vec<Vec<u8>> {
    let lines = [
        "get key",
        "gets one two three",
        "gat 100 one two",
        "set key 7 -1 100 noreply",
        "cas key 7 60 5 18446744073709551615",
        "append key 0 0 0",
        "incr key 18446744073709551615 noreply",
        "touch key 0",
        "rdma 1 4096 1024 17 16777215 18446744073709551615 4294967295",
        "delete key 0 noreply",
        "mg key v t f c k O1234 q N30 R10 T60",
        "mg Zm9v b v",
        "ms key 10 T60 F7 C123 MA I q Oabc",
        "ms key 10 MP N60 E18446744073709551615 s",
        "md key q C12 I",
        "md key x E5 F1 T30",
        "ma key N60 J10 D3 MD t v",
        "me key b",
        "mn",
        "flush_all -1 noreply",
        "stats reset",
        "verbosity 1",
        "version",
        "quit",
        "lru_crawler metadump all",
        "GET /index.html HTTP/1.1",
        "gets / http/2",
        "Host: localhost:11211",
        "",
    ];
    lines.iter().map(|line| line.as_bytes().to_vec()).collect()
}

/// Understands any HTTP request, arriving at once and in pieces; panics if the parser does, or if it contradicts itself.
pub fn http_request(request: &[u8]) {
    let whole = asked(request);
    // All lengths are tried around the end, which is where an answer comes up, and some before it.
    let sparse = (0..request.len()).step_by(61).chain(request.len().saturating_sub(64)..=request.len());
    let first = sparse.filter_map(|length| asked(&request[..length])).next();
    assert_eq!(first, whole, "what arrives later changes the answer");
    assert!(whole.is_some() || request.len() < REQUEST_BYTES_MAX, "no answer would ever come");
    if let Some(answer) = whole {
        assert_eq!(
            asked(&[request, b"GET /metrics HTTP/1.1\r\n\r\n"].concat()),
            Some(answer),
            "a second request counts"
        );
    }
    if let Ok(call) = Call::parse(request) {
        let token = b"0123456789abcdef";
        let is_right = request.windows(token.len()).any(|window| window == token);
        assert!(is_right || !call.may_enter(token, &Policy::default()), "a caller without the token may enter");
    }
}

/// Requests of every kind: where a fuzzer begins.
pub fn http_corpus() -> Vec<Vec<u8>> {
    let requests = [
        "GET /metrics HTTP/1.1\r\nHost: localhost:9150\r\nAccept: */*\r\n\r\n",
        "GET /healthz?probe=1 HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /compactions HTTP/1.1\r\n\r\n",
        "GET /compactions.json?live=1&since=18446744073709551615 HTTP/1.1\r\n\r\n",
        "GET /compactions.json?since=%31 HTTP/1.1\r\n\r\n",
        "POST /metrics HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi",
        "POST /admin HTTP/1.1\r\nAuthorization: Bearer 0123456789abcdef\r\nContent-Length: 2\r\n\r\n{}",
        "POST /admin HTTP/1.1\r\nauthorization: Basic YTpi\r\nContent-Length: 2\r\n\r\n{}",
        "GET /metrics HTTP/2\r\n\r\n",
        "GET  /metrics HTTP/1.1\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\r\n\r\n",
        "GET /metrics HTTP/1.1\n\n",
        "get key\r\n",
    ];
    let mut corpus: Vec<Vec<u8>> = requests.iter().map(|request| request.as_bytes().to_vec()).collect();
    let long = format!("GET /metrics HTTP/1.1\r\nCookie: {}\r\n\r\n", "c".repeat(REQUEST_BYTES_MAX));
    corpus.push(long.into_bytes());
    corpus
}

/// Reads any bytes as a request of the administrative channel, and as frames of its answer; panics if a reader does, or
/// if a request that was read has another form when it is written.
pub fn admin(bytes: &[u8]) {
    if let Ok(request) = AdminRequest::decode(bytes) {
        assert_eq!(AdminRequest::decode(&request.encode()), Ok(request));
    }
    let mut rest = bytes;
    let _ = read_request(&mut rest);
    let mut rest = bytes;
    while AdminFrame::read(&mut rest).is_ok() {}
    let mut chunks = Chunks::new(bytes);
    while AdminFrame::read(&mut chunks).is_ok() {}
}

/// Requests and frames of the administrative channel: where a fuzzer begins.
pub fn admin_corpus() -> Vec<Vec<u8>> {
    let bodies = [
        r#"{"version":1,"arguments":["put","k",[255,0,10]],"directory":"/home/ada"}"#,
        r#"{"version":1,"arguments":[],"directory":[47]}"#,
        r#"{"version":2}"#,
    ];
    let framed = bodies.iter().map(|body| [&(body.len() as u32).to_le_bytes()[..], body.as_bytes()].concat());
    let frames = b"\x01\x02\0\0\0hi\x02\x03\0\0\0no\n\x03\x01\0\0\0\x04\x04\x02\0\0\0no";
    let chunks = b"7\r\n\x01\x02\0\0\0hi\r\n6\r\n\x03\x01\0\0\0\x04\r\n0\r\n\r\n";
    bodies.iter().map(|body| body.as_bytes().to_vec()).chain(framed).chain([frames.to_vec(), chunks.to_vec()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Change = (prop::sample::Index, u8, u8);

    /// Some changes to bytes: one put in, a tail cut off or repeated, one replaced.
    fn changes() -> impl Strategy<Value = Vec<Change>> {
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 0..6)
    }

    fn change(bytes: &mut Vec<u8>, changes: Vec<Change>) {
        for (at, byte, kind) in changes {
            let at = at.index(bytes.len() + 1);
            match kind {
                0 => bytes.insert(at, byte),
                1 => bytes.truncate(at),
                2 => bytes.extend_from_within(at..),
                _ => bytes.iter_mut().skip(at).take(1).for_each(|place| *place = byte),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn promise_6_no_line_breaks_the_parser(which in 0..corpus().len(), changes in changes()) {
            let mut line = corpus().swap_remove(which);
            change(&mut line, changes);
            request(&line);
        }

        #[test]
        fn promise_6_no_request_for_the_administrator_breaks_the_parser(
            which in 0..admin_corpus().len(),
            changes in changes(),
        ) {
            let mut bytes = admin_corpus().swap_remove(which);
            change(&mut bytes, changes);
            admin(&bytes);
        }

        #[test]
        fn promise_6_no_http_request_breaks_the_parser(which in 0..http_corpus().len(), changes in changes()) {
            let mut request = http_corpus().swap_remove(which);
            change(&mut request, changes);
            http_request(&request);
        }
    }
}
