//! Questions to the HTTP port of a server, answered in JSON.

use crate::text;
use serde::de::DeserializeOwned;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A server on this machine answers at once; one elsewhere may be far.
const PATIENCE: Duration = Duration::from_secs(10);
/// Columns of an error that the other side has written.
const COLUMNS: usize = 100;

/// Asks the server at `address` for a resource of `bytes_max` at most, its head included.
///
/// # Errors
/// There is no server, or it answers something else; in words.
pub(crate) fn ask<T: DeserializeOwned>(address: SocketAddr, target: &str, bytes_max: u64) -> Result<T, String> {
    let answer = get(address, target, bytes_max).map_err(|error| error.to_string())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("that is no answer of HTTP")?;
    let status = text::on_one_line(head.lines().next().unwrap_or_default());
    if !status.starts_with("HTTP/1.1 200 ") {
        return Err(format!("the answer is {}", text::clip(&status, COLUMNS)));
    }
    serde_json::from_str(body).map_err(|error| format!("the answer is not that of this version of Situ: {error}"))
}

fn get(address: SocketAddr, target: &str, bytes_max: u64) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.take(bytes_max).read_to_string(&mut answer)?;
    Ok(answer)
}
