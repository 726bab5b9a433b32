//! The HTTP port itself: the page that lists the others, and requests for headers alone.

use crate::compactions::{fetch, options};
use crate::memory::MemoryEngine;
use situ_server::Server;

/// `curl -I` and monitors that ask with HEAD got 405.
#[test]
fn head_answers_as_get_without_a_body() {
    let server = Server::start(&options(), MemoryEngine::start(None)).unwrap();
    for path in ["/", "/metrics", "/healthz", "/compactions", "/compactions.json", "/nothing"] {
        let (head_of_get, body) = fetch(&server, &format!("GET {path} HTTP/1.1"));
        let (head, nothing) = fetch(&server, &format!("HEAD {path} HTTP/1.1"));
        assert!(!body.is_empty() && nothing.is_empty(), "{path}: {nothing}");
        // The number of digits in the metrics may differ from one answer to the next.
        let lines = |head: &str| -> Vec<String> {
            let lines = head.lines().filter(|line| path != "/metrics" || !line.starts_with("Content-Length: "));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(lines(&head), lines(&head_of_get), "{path}");
        assert!(head.contains("\r\nContent-Length: "), "{head}");
    }
}

/// A browser at the root of the port got 404.
#[test]
fn the_index_leads_to_all_other_pages() {
    let server = Server::start(&options(), MemoryEngine::start(None)).unwrap();
    let (head, body) = fetch(&server, "GET / HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Security-Policy: default-src 'none'; "), "{head}");
    let (_, refused) = fetch(&server, "GET /nothing HTTP/1.1");
    let linked: Vec<&str> = body.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(linked.len(), 4, "{body}");
    for path in linked {
        assert!(refused.contains(path), "{path} is not in {refused}");
        let (head, _) = fetch(&server, &format!("GET {path} HTTP/1.1"));
        // An engine in memory has no compactions.
        assert!(head.starts_with("HTTP/1.1 200 ") || path == "/compactions.json", "{path}: {head}");
    }
}
