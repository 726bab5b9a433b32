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
//! Without TLS, the passwords travel as they are. So they keep out other users of the machine and careless programs of
//! the network, but not an attacker that can listen.
//!
//! **Rights** are in a file of their own, with a line `user:rights` for each user. In the file of users, all that
//! follows the first colon is the password, so a third field would change what existing files mean. Without a file of
//! rights, users read and write. With one, it names all users, so that none gets a right by an omission.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use crate::protocol::number::parse_u32;
use crate::protocol::rights::Rights;

/// Longest user, and longest password, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 250;
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
#[derive(PartialEq, Eq)]
pub(crate) struct Users(Vec<Arc<User>>);

/// A user, as the files have it.
#[derive(PartialEq, Eq)]
pub(crate) struct User {
    name: Vec<u8>,
    password: Vec<u8>,
    pub(crate) rights: Rights,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} users", self.0.len())
    }
}

/// Reads a short file, and whether every user of the machine may read it, too.
///
/// # Errors
/// It cannot be read, or is too long.
fn read_short(path: &Path, called: &str) -> Result<(Vec<u8>, bool), String> {
    let place = path.display();
    let cannot = |error: io::Error| format!("cannot read the {called} {place}: {error}");
    let file = File::open(path).map_err(cannot)?;
    let mode = file.metadata().map_err(cannot)?.permissions().mode();
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(format!("the {called} {place} is longer than {FILE_BYTES_MAX} bytes")),
        false => Ok((bytes, mode & 0o004 != 0)),
    }
}

/// Returns the lines of a file that have something, with their numbers and the parts before and after the first colon.
///
/// # Errors
/// A line has no colon.
fn fields<'a>(
    bytes: &'a [u8],
    form: &'static str,
) -> impl Iterator<Item = Result<(usize, &'a [u8], &'a [u8]), String>> {
    let lines = bytes.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.zip(1..).filter(|(line, _)| !line.is_empty()).map(move |(line, number)| {
        let colon = line.iter().position(|byte| *byte == b':');
        let colon = colon.ok_or_else(|| format!("line {number} has no colon; write {form}"))?;
        Ok((number, &line[..colon], &line[colon + 1..]))
    })
}

impl Users {
    /// Reads the users of a file, and their rights of another one; also what is worth a warning about the first.
    ///
    /// # Errors
    /// Why the files cannot be used, and what to do.
    pub(crate) fn read(path: &Path, rights: Option<&Path>) -> Result<(Users, Option<String>), String> {
        let place = path.display();
        let (bytes, is_open) = read_short(path, "file of users")?;
        let mut users = Users::parse(&bytes).map_err(|why| format!("the file of users {place}: {why}"))?;
        if let Some(rights) = rights {
            let (bytes, _) = read_short(rights, "file of rights")?;
            users.restrict(&bytes).map_err(|why| format!("the file of rights {}: {why}", rights.display()))?;
        }
        let warning = is_open
            .then(|| format!("every user of this machine can read the passwords in {place}: `chmod o= {place}`"));
        Ok((users, warning))
    }

    fn parse(bytes: &[u8]) -> Result<Users, String> {
        let mut users = Vec::new();
        for line in fields(bytes, "user:password") {
            let (number, name, password) = line?;
            if [name, password].iter().any(|part| part.is_empty() || part.len() > NAME_BYTES_MAX) {
                return Err(format!("line {number}: a user and a password have 1 to {NAME_BYTES_MAX} bytes each"));
            }
            if name.iter().chain(password).any(|byte| matches!(byte, b' ' | 0)) {
                return Err(format!(
                    "line {number} has a space in it, which clients cannot send in a user or a password"
                ));
            }
            let rights = Rights::READ_AND_WRITE;
            users.push(Arc::new(User { name: name.to_vec(), password: password.to_vec(), rights }));
        }
        match users.len() {
            0 => Err("the file has no user; add a line user:password".to_owned()),
            1..=USERS_MAX => Ok(Users(users)),
            count => Err(format!("the file has {count} users, and the limit is {USERS_MAX}")),
        }
    }

    /// Gives the users the rights in a file.
    fn restrict(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut all = BTreeMap::new();
        for line in fields(bytes, "user:rights") {
            let (number, name, rights) = line?;
            let shown = name.escape_ascii();
            if self.0.iter().all(|user| user.name != name) {
                return Err(format!(
                    "line {number}: {shown} is no user; add it to the file of users, or remove the line"
                ));
            }
            let rights = Rights::parse(rights).map_err(|why| format!("line {number}: {why}"))?;
            if all.insert(name, rights).is_some() {
                return Err(format!("line {number}: {shown} is there twice"));
            }
        }
        for user in &mut self.0 {
            let User { name, password, .. } = &**user;
            let rights = all.get(&**name).copied();
            let missing = || format!("the user {} has no line; add {0}:rw, or {0}:r", name.escape_ascii());
            let rights = rights.ok_or_else(missing)?;
            *user = Arc::new(User { name: name.clone(), password: password.clone(), rights });
        }
        Ok(())
    }

    /// Returns the number of users.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if `user` is one of these, with the same password and the same rights.
    pub(crate) fn has(&self, user: &User) -> bool {
        self.0.iter().any(|other| **other == *user)
    }

    /// Returns the answer to a client that sent `block`, the data of a `set` and the end of its line; and the user that
    /// it has shown to be.
    pub(crate) fn answer(&self, block: &[u8]) -> (Option<&Arc<User>>, &'static str) {
        let Some(data) = block.strip_suffix(b"\r\n") else {
            return (None, "CLIENT_ERROR bad command line termination");
        };
        let data = data.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut tokens = data.split(|byte| *byte == b' ').filter(|token| !token.is_empty());
        let (Some(name), Some(password)) = (tokens.next(), tokens.next()) else {
            return (None, "CLIENT_ERROR bad authentication token format");
        };
        let user = self.find(name, password);
        (user, if user.is_some() { "STORED" } else { FAILURE })
    }

    /// Returns the user with this name and this password.
    pub(crate) fn find(&self, name: &[u8], password: &[u8]) -> Option<&Arc<User>> {
        // Each user is compared whatever the others were.
        let is_found = |user: &User| is_same(&user.name, name) & is_same(&user.password, password);
        self.0.iter().fold(None, |found, user| if black_box(is_found(user)) { Some(user) } else { found })
    }
}

/// Compares in a time that depends on neither. None is longer than [`NAME_BYTES_MAX`].
pub(crate) fn is_same(kept: &[u8], given: &[u8]) -> bool {
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

    /// All that follows the first colon was the password, and still is.
    #[test]
    fn rights_are_in_a_file_of_their_own() {
        let with = |rights: &str| {
            let mut users = Users::parse(b"alice:se:cret\nbob:b\nbob:c").unwrap();
            users.restrict(rights.as_bytes()).map(|()| users)
        };
        let users = with("bob:r\r\n\nalice:rwa\n").unwrap();
        let rights = |block: &str| users.answer(block.as_bytes()).0.map(|user| user.rights);
        assert_eq!(rights("alice se:cret\r\n"), Some(Rights::READ_AND_WRITE.and(Rights::ADMINISTER)));
        assert_eq!([rights("bob b\r\n"), rights("bob c\r\n")], [Some(Rights::READ); 2]);
        assert_eq!(rights("alice se\r\n"), None);
        let plain = Users::parse(b"alice:secret:r").unwrap();
        let alice = plain.find(b"alice", b"secret:r").unwrap();
        assert_eq!(alice.rights, Rights::READ_AND_WRITE);
        assert!(plain.has(alice) && !plain.has(users.find(b"bob", b"b").unwrap()));
        let why = |rights| with(rights).unwrap_err();
        assert!(why("alice:rw\n").contains("the user bob has no line; add bob:rw, or bob:r"));
        assert!(why("alice:rw\nbob:r\ncarol:r\n").contains("line 3: carol is no user"));
        assert!(why("alice:rw\nbob:r\nbob:r\n").contains("line 3: bob is there twice"));
        assert!(why("alice:rw\nbob:x\n").contains("line 2: rights are r to read"));
        assert!(why("alice\n").contains("line 1 has no colon; write user:rights"));
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
