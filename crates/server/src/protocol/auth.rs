//! Users and their passwords, as memcached's `-Y` has them.
//!
//! The file has a line `user:password` for each user. A client authenticates by its first command, a `set` of any key.
//! Its data is the user and the password with a space between them. The server runs no other command before that:
//!
//! ```text
//! set auth 0 0 11
//! user secret
//! STORED
//! ```
//!
//! The comparison takes the same time for all data that a client sends: all users are looked at, over the full length.
//! The passwords travel as they are. So they keep out other users of the machine and careless programs of the network,
//! but not an attacker that can listen.

use std::fmt;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::protocol::number::parse_u32;

/// Longest user, and longest password, in bytes.
const NAME_BYTES_MAX: usize = 250;
/// Users in a file.
const USERS_MAX: usize = 64;
const FILE_BYTES_MAX: u64 = (USERS_MAX * 2 * (NAME_BYTES_MAX + 2)) as u64;
/// The maximum length of the data of a `set` that authenticates.
pub(crate) const DATA_BYTES_MAX: usize = 2 << 10;

pub(crate) const FAILURE: &str = "CLIENT_ERROR authentication failure";

/// Returns the data bytes that a `set` announces that may authenticate; `None` for any other line. As in memcached, its
/// key, flags and time may be anything.
pub(crate) fn announced_bytes(line: &[u8]) -> Option<usize> {
    let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let mut tokens = line.split(|byte| *byte == b' ').filter(|token| !token.is_empty());
    let is_set = tokens.next() == Some(b"set");
    let bytes = parse_u32(tokens.nth(3)?)?;
    is_set.then_some(bytes as usize)
}

/// See the module.
pub(crate) struct Users(Vec<User>);

struct User {
    name: Vec<u8>,
    password: Vec<u8>,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} users", self.0.len())
    }
}

impl Users {
    /// Reads the users of a file; also what is worth a warning about it.
    ///
    /// # Errors
    /// Why the file cannot be used, and what to do.
    pub(crate) fn read(path: &Path) -> Result<(Users, Option<String>), String> {
        let place = path.display();
        let cannot = |error: io::Error| format!("cannot read the file of users {place}: {error}");
        let file = File::open(path).map_err(cannot)?;
        let mode = file.metadata().map_err(cannot)?.permissions().mode();
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(format!("the file of users {place} is longer than {FILE_BYTES_MAX} bytes"));
        }
        let users = Users::parse(&bytes).map_err(|why| format!("the file of users {place}: {why}"))?;
        let open = mode & 0o004 != 0;
        let warning =
            open.then(|| format!("every user of this machine can read the passwords in {place}: `chmod o= {place}`"));
        Ok((users, warning))
    }

    fn parse(bytes: &[u8]) -> Result<Users, String> {
        let mut users = Vec::new();
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let number = index + 1;
            let colon = line.iter().position(|byte| *byte == b':');
            let Some((name, password)) = colon.map(|colon| (&line[..colon], &line[colon + 1..])) else {
                return Err(format!("line {number} has no colon; write user:password"));
            };
            if [name, password].iter().any(|part| part.is_empty() || part.len() > NAME_BYTES_MAX) {
                return Err(format!("line {number}: a user and a password have 1 to {NAME_BYTES_MAX} bytes each"));
            }
            if line.iter().any(|byte| matches!(byte, b' ' | 0)) {
                return Err(format!(
                    "line {number} has a space in it, which clients cannot send in a user or a password"
                ));
            }
            users.push(User { name: name.to_vec(), password: password.to_vec() });
        }
        match users.len() {
            0 => Err("the file has no user; add a line user:password".to_owned()),
            1..=USERS_MAX => Ok(Users(users)),
            count => Err(format!("the file has {count} users, and the limit is {USERS_MAX}")),
        }
    }

    /// Returns the answer to a client that sent `block`, the data of a `set` and the end of its line; true if it is let
    /// in.
    pub(crate) fn answer(&self, block: &[u8]) -> (bool, &'static str) {
        let Some(data) = block.strip_suffix(b"\r\n") else {
            return (false, "CLIENT_ERROR bad command line termination");
        };
        let data = data.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut tokens = data.split(|byte| *byte == b' ').filter(|token| !token.is_empty());
        let (Some(name), Some(password)) = (tokens.next(), tokens.next()) else {
            return (false, "CLIENT_ERROR bad authentication token format");
        };
        if self.has(name, password) { (true, "STORED") } else { (false, FAILURE) }
    }

    fn has(&self, name: &[u8], password: &[u8]) -> bool {
        let found = |user: &User| u8::from(is_same(&user.name, name)) & u8::from(is_same(&user.password, password));
        self.0.iter().fold(0, |any, user| black_box(any | found(user))) != 0
    }
}

/// Compares in a time that depends on neither.
fn is_same(kept: &[u8], given: &[u8]) -> bool {
    let byte = |bytes: &[u8], index: usize| bytes.get(index).copied().unwrap_or(0);
    let differing =
        (0..NAME_BYTES_MAX).fold(0, |bits, index| black_box(bits | (byte(kept, index) ^ byte(given, index))));
    // Evaluated both: the lengths tell nothing apart that the time would show.
    (differing == 0) & (kept.len() == given.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_told_from_strangers() {
        let users = Users::parse(b"alice:se:cret\r\n\nbob:b\nbob:c").unwrap();
        for (block, answer) in [
            (&b"alice se:cret\r\n"[..], "STORED"),
            (b" bob  c \r\n", "STORED"),
            (b"bob b extra\r\n", "STORED"),
            (b"bob\r\n", "CLIENT_ERROR bad authentication token format"),
            (b"\r\n", "CLIENT_ERROR bad authentication token format"),
            (b"bob d\r\n", "CLIENT_ERROR authentication failure"),
            (b"bob b\0\r\n", "STORED"),
            (b"bo b\r\n", "CLIENT_ERROR authentication failure"),
            (b"bob bb\r\n", "CLIENT_ERROR authentication failure"),
            (b"alice b\r\n", "CLIENT_ERROR authentication failure"),
            (b"bob bxx", "CLIENT_ERROR bad command line termination"),
        ] {
            assert_eq!(users.answer(block).1, answer, "{}", block.escape_ascii());
        }
        let long = format!("bob b{}\r\n", "\0".repeat(300));
        assert_eq!(users.answer(long.as_bytes()).1, "STORED", "as in memcached, a NUL ends it");
        assert!(is_same(b"", b"") && !is_same(b"a", b"a\0") && !is_same(&[b'a'; 250], &[b'a'; 251]));
    }

    #[test]
    fn a_file_that_makes_no_sense_is_refused_by_its_line() {
        let why = |text: &str| Users::parse(text.as_bytes()).unwrap_err();
        assert!(why("a:b\nnonsense\n").contains("line 2 has no colon"));
        assert!(why(":b\n").contains("line 1: a user"));
        assert!(why("a:\n").contains("line 1: a user"));
        assert!(why("a:b c\n").contains("line 1 has a space"));
        assert!(why("\n\n").contains("has no user"));
        assert!(why(&"a:b\n".repeat(65)).contains("65 users"));
        assert!(why(&format!("a:{}", "b".repeat(251))).contains("1 to 250 bytes"));
        assert!(!why("user:b c").contains("user:b"), "no password is shown");
    }
}
