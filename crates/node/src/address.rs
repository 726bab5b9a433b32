//! The address of a node: `node://HOST:PORT/STORE`, or `node://unix:SOCKET:/STORE`.
//!
//! | address | means |
//! |---|---|
//! | `node://10.0.0.2:7070/orders` | the store `orders` of the node at this host and port |
//! | `node://disk-7/orders` | port 7170 |
//! | `node://[fd00::7]:7070` | the store `default` |
//! | `node://unix:/run/situ/node.sock:/orders` | a node on this machine, behind a socket file |
//!
//! The secret and certificates are no part of it: addresses are shown in messages and in lists of processes.

use situ_storage::{Error, Result};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port of a node whose address names none.
pub const DEFAULT_PORT: u16 = 7170;
/// The store of an address that names none.
pub const DEFAULT_STORE: &str = "default";
/// The maximum length of a store's name.
const STORE_NAME_BYTES_MAX: usize = 64;
const SCHEME: &str = "node://";
const UNIX: &str = "unix:";

/// The address that a node listens on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// On a port.
    Tcp {
        /// Name or address, an IPv6 address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// On a socket file.
    Unix(PathBuf),
}

impl Place {
    /// Returns true if only this machine reaches it, as far as the address tells.
    pub fn is_local(&self) -> bool {
        match self {
            Place::Unix(_) => true,
            Place::Tcp { host, .. } => match host.parse::<std::net::IpAddr>() {
                Ok(address) => address.is_loopback(),
                Err(_) => host == "localhost",
            },
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Place::Tcp { host, port } => write!(f, "{host}:{port}"),
            Place::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Place> {
        if let Some(path) = text.strip_prefix(UNIX) {
            return match path.is_empty() {
                false => Ok(Place::Unix(PathBuf::from(path))),
                true => Err(invalid(text, "the path of the socket is missing")),
            };
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(|| invalid(text, "a bracket is not closed"))?,
            None => text.find(':').map_or((text, ""), |colon| text.split_at(colon)),
        };
        if host.is_empty() {
            return Err(invalid(text, "the host is missing"));
        }
        if port.matches(':').count() > 1 {
            return Err(invalid(text, "an IPv6 address needs brackets: [::1]:7170"));
        }
        let port = match port.strip_prefix(':') {
            Some(digits) => digits.parse().ok().filter(|port| *port != 0),
            None if port.is_empty() => Some(DEFAULT_PORT),
            None => None,
        };
        let port = port.ok_or_else(|| invalid(text, "the port is a number from 1 to 65535"))?;
        Ok(Place::Tcp { host: host.to_owned(), port })
    }
}

/// A store on a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeAddress {
    /// The address that the node listens on.
    pub place: Place,
    /// The store's name there.
    pub store: String,
}

impl NodeAddress {
    /// Returns true if a text is meant as a node address.
    pub fn is_one(text: &str) -> bool {
        text.starts_with(SCHEME)
    }
}

impl FromStr for NodeAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<NodeAddress> {
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return Err(invalid(text, "it begins with node://"));
        };
        let (place, store) = match rest.starts_with(UNIX) {
            true => rest.rsplit_once(":/").filter(|(place, _)| place.len() >= UNIX.len()),
            false => rest.split_once('/'),
        }
        .unwrap_or((rest, ""));
        let place = place.parse().map_err(|error| match error {
            Error::Invalid(_) => invalid(text, "write node://HOST:PORT/STORE, or node://unix:SOCKET:/STORE"),
            other => other,
        })?;
        let store = if store.is_empty() { DEFAULT_STORE } else { store };
        check_store_name(store)?;
        Ok(NodeAddress { place, store: store.to_owned() })
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let between = if matches!(self.place, Place::Unix(_)) { ":/" } else { "/" };
        write!(f, "{SCHEME}{}{between}{}", self.place, self.store)
    }
}

/// Checks that a node can have a store of this name: it may become the name of a directory.
///
/// # Errors
/// It cannot; the text says what can.
pub fn check_store_name(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_right = (1..=STORE_NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_plain)
        && name.as_bytes()[0].is_ascii_alphanumeric();
    if is_right {
        return Ok(());
    }
    let shown = name.escape_debug();
    Err(Error::Invalid(format!(
        "\"{shown}\" is no name of a store on a node: 1 to {STORE_NAME_BYTES_MAX} letters, digits, dots, dashes or \
         underscores, a letter or a digit first"
    )))
}

fn invalid(text: &str, why: &str) -> Error {
    Error::Invalid(format!("\"{}\" is no address of a node: {why}", text.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        for (text, shown) in [
            ("node://10.0.0.2:7070/orders", "node://10.0.0.2:7070/orders"),
            ("node://disk-7/orders", "node://disk-7:7170/orders"),
            ("node://disk-7", "node://disk-7:7170/default"),
            ("node://[fd00::7]:7070", "node://[fd00::7]:7070/default"),
            ("node://[::1]/a", "node://[::1]:7170/a"),
            ("node://unix:/run/node.sock:/orders", "node://unix:/run/node.sock:/orders"),
            ("node://unix:/run/node.sock", "node://unix:/run/node.sock:/default"),
            ("node://unix:node.sock", "node://unix:node.sock:/default"),
            ("node://unix:/run/a:b/node.sock:/s", "node://unix:/run/a:b/node.sock:/s"),
        ] {
            let address: NodeAddress = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(address.to_string(), shown);
            assert_eq!(address.to_string().parse::<NodeAddress>().unwrap(), address);
            assert!(NodeAddress::is_one(text));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_way_out() {
        let texts = ["", "/var/lib/situ", "node://", "node://:7070/a", "node://h:0/a", "node://h:x", "node://[::1/a"];
        for text in texts.into_iter().chain(["node://::1:7070/a", "node://unix:", "node://[::1]7070/a"]) {
            let error = text.parse::<NodeAddress>().unwrap_err().to_string();
            assert!(error.contains("node://"), "{text}: {error}");
        }
        for text in ["node://h/a/b", "node://h/..", "node://h/.hidden", "node://h/a b", "node://h/ä"] {
            let error = text.parse::<NodeAddress>().unwrap_err().to_string();
            assert!(error.contains("name of a store"), "{text}: {error}");
        }
    }

    #[test]
    fn loopback_and_socket_files_are_local() {
        let is_local = |text: &str| text.parse::<Place>().unwrap().is_local();
        assert!(is_local("127.0.0.1:1") && is_local("[::1]:1") && is_local("localhost:1") && is_local("unix:/x"));
        assert!(!is_local("10.0.0.2:1") && !is_local("0.0.0.0:1") && !is_local("[::]:1") && !is_local("disk-7:1"));
    }
}
