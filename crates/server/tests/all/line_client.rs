//! A client that sends text and reads lines, for tests that look at one connection at a time.

use situ_server::Server;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A test waits no longer for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Client(pub(crate) BufReader<TcpStream>);

impl Client {
    pub(crate) fn connect(server: &Server) -> Client {
        Client::connect_to(server.addresses()[0])
    }

    pub(crate) fn connect_to(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(stream))
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn ask(&mut self, text: &str) -> String {
        self.send(text);
        self.line()
    }

    pub(crate) fn expect(&mut self, lines: &[&str]) {
        for line in lines {
            assert_eq!(self.line(), *line);
        }
    }

    /// True if no answer comes for a moment.
    pub(crate) fn hears_nothing(&mut self) -> bool {
        self.0.get_ref().set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let nothing = self.0.fill_buf().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        self.0.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
        nothing
    }

    /// One number of `stats`.
    pub(crate) fn statistic(&mut self, name: &str) -> u64 {
        self.send("stats\r\n");
        let mut found = None;
        loop {
            let line = self.line();
            match line.strip_prefix("STAT ").and_then(|rest| rest.split_once(' ')) {
                Some((word, value)) if word == name => found = value.parse().ok(),
                Some(_) => {}
                None => return found.unwrap_or_else(|| panic!("no {name} before {line:?}")),
            }
        }
    }

    pub(crate) fn rest(mut self) -> String {
        let mut text = String::new();
        self.0.read_to_string(&mut text).unwrap();
        text
    }
}
