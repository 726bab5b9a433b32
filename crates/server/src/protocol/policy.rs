//! The part of the options that may change while a server runs.

use std::time::Duration;

use crate::protocol::auth::Users;
use crate::protocol::tls::TlsConfig;

/// See the module. A server has one at a time, and gives its event loops each new one.
#[derive(Default, PartialEq)]
pub(crate) struct Policy {
    /// The users that may run commands; `None` means all clients.
    pub(crate) users: Option<Users>,
    /// TLS of the clients that come over TCP; `None` means that they speak none.
    pub(crate) tls: Option<TlsConfig>,
    pub(crate) idle_timeout: Option<Duration>,
    /// The token of those who run commands of the program over HTTP.
    pub(crate) admin_token: Option<Vec<u8>>,
}

impl Policy {
    /// Returns a line for each change that `next` makes.
    pub(crate) fn changes(&self, next: &Policy) -> Vec<String> {
        let mut lines = Vec::new();
        if self.users != next.users {
            lines.push(match &next.users {
                Some(users) => {
                    format!("users: {} are in force; connections of users that changed are closed", users.len())
                }
                None => "users: there are none any more; every client is served".to_owned(),
            });
        }
        if self.tls != next.tls {
            lines.push(match (&self.tls, &next.tls) {
                (Some(_), Some(_)) => "TLS: new connections get the new certificates".to_owned(),
                (_, Some(_)) => "TLS: new connections over TCP must speak it".to_owned(),
                (_, None) => "TLS: new connections are not encrypted any more".to_owned(),
            });
        }
        if self.idle_timeout != next.idle_timeout {
            lines.push(match next.idle_timeout {
                Some(limit) => format!("idle connections are closed after {} s", limit.as_secs()),
                None => "idle connections stay open".to_owned(),
            });
        }
        if self.admin_token != next.admin_token {
            lines.push(match next.admin_token {
                Some(_) => "commands over HTTP need the new token".to_owned(),
                None => "commands over HTTP are refused".to_owned(),
            });
        }
        lines
    }
}
