//! The administrative channel over HTTP: who may `POST /admin`.
//!
//! The body is the JSON of a [request](crate::admin::channel), the answer its frames, in chunks. The caller shows the
//! server's token (`Authorization: Bearer`), or a user with the right to administer and the password (`Basic`). The
//! module `http` hands the connection of one that is let in to the commands of the store's socket, which has a thread
//! for each.
//!
//! **Bounded.** [`FAILURES_MAX`] refused callers a second; then only the bearer of the token is let in until the second
//! has passed. A token is too long to guess, and a password may not be. A web page can make a browser such a caller,
//! and the bearer is let in all the same. The page cannot make the browser send the header without asking first, and
//! the question is refused. A body has at most [`REQUEST_BYTES_MAX`].

use crate::admin::channel::REQUEST_BYTES_MAX;
use crate::admin::notices::Notices;
use crate::admin::socket::Commands;
use crate::protocol::auth::{NAME_BYTES_MAX, is_same};
use crate::protocol::base64;
use crate::protocol::policy::Policy;
use crate::protocol::rights::Rights;
use situ_base::lock;
use std::fs::File;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The shortest token.
const TOKEN_BYTES_MIN: usize = 16;
/// Callers in a second that are not let in.
const FAILURES_MAX: u32 = 10;
/// The time in which they are counted.
const FAILURES_IN: Duration = Duration::from_secs(1);

/// Status and text of a refusal.
pub(crate) type Refusal = (&'static str, &'static str);

const OFF: Refusal =
    ("404 Not Found", "Commands over HTTP are off here; --admin-token-file of `situ serve` turns them on.\n");
const STRANGER: Refusal = ("401 Unauthorized", "The token is wrong, or there is none: Authorization: Bearer TOKEN.\n");
const TOO_MANY: Refusal = ("429 Too Many Requests", "Too many callers had a wrong token. Try again in a second.\n");
const MALFORMED: Refusal = ("400 Bad Request", "A header is malformed, or there twice.\n");
const NO_LENGTH: Refusal = ("411 Length Required", "The request needs a Content-Length.\n");
const TOO_LONG: Refusal = ("413 Content Too Large", "A request has 4 MiB at most.\n");

/// Reads the token in a file, without white space at its end.
///
/// # Errors
/// The file cannot be read, others may open it, or it holds no token; in words.
pub(crate) fn read_token(path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let cannot = |error: std::io::Error| format!("cannot read the token in {shown}: {error}");
    let file = File::open(path).map_err(cannot)?;
    let mode = file.metadata().map_err(cannot)?.permissions().mode() & 0o777;
    // The group may read: the credentials that systemd gives a service have mode 440.
    if mode & 0o037 != 0 {
        return Err(format!("{shown} holds a token, and others may open it (mode {mode:o}): `chmod 600 {shown}`"));
    }
    let mut bytes = Vec::new();
    // A longer one is refused below, white space included.
    file.take(2 * NAME_BYTES_MAX as u64).read_to_end(&mut bytes).map_err(cannot)?;
    let token = bytes.trim_ascii_end();
    let is_long = (TOKEN_BYTES_MIN..=NAME_BYTES_MAX).contains(&token.len());
    match is_long && token.iter().all(u8::is_ascii_graphic) {
        true => Ok(token.to_vec()),
        false => Err(format!(
            "{shown} holds no token: a token has {TOKEN_BYTES_MIN} to {NAME_BYTES_MAX} letters, digits and signs, such as \
             those of `openssl rand -hex 32`"
        )),
    }
}

/// See the module.
pub(crate) struct Door {
    /// The policy in force.
    policy: Mutex<Arc<Policy>>,
    commands: OnceLock<Arc<Commands>>,
    failures: Mutex<Failures>,
    notices: Arc<Notices>,
}

/// The callers of a second that were not let in.
#[derive(Default)]
struct Failures {
    since: Option<Instant>,
    count: u32,
}

impl Failures {
    /// Returns true if no more callers are looked at now.
    fn are_too_many(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= FAILURES_IN) {
            *self = Failures { since: Some(now), count: 0 };
        }
        self.count >= FAILURES_MAX
    }
}

impl Door {
    pub(crate) fn new(policy: Arc<Policy>, notices: Arc<Notices>) -> Door {
        Door { policy: Mutex::new(policy), commands: OnceLock::new(), failures: Mutex::default(), notices }
    }

    pub(crate) fn policy(&self) -> Arc<Policy> {
        Arc::clone(&lock(&self.policy))
    }

    /// Goes on under another policy.
    pub(crate) fn obey(&self, policy: Arc<Policy>) {
        *lock(&self.policy) = policy;
    }

    /// Gives the callers commands to run. Only the first call counts.
    pub(crate) fn open(&self, commands: Arc<Commands>) {
        _ = self.commands.set(commands);
    }

    /// Runs the command of a caller, if it may. `request` is what has come, the whole head included.
    ///
    /// # Errors
    /// The answer to a caller that may not.
    pub(crate) fn enter(&self, request: &[u8], stream: &TcpStream) -> Result<(), Refusal> {
        let policy = self.policy();
        let (Some(commands), Some(token)) = (self.commands.get(), &policy.admin_token) else { return Err(OFF) };
        let call = Call::parse(request)?;
        let mut failures = lock(&self.failures);
        let now = Instant::now();
        if failures.are_too_many(now) && !bears(call.shown, token) {
            return Err(TOO_MANY);
        }
        if !call.may_enter(token, &policy) {
            failures.count += 1;
            self.notices.token_refused(stream.peer_addr().ok(), now);
            return Err(STRANGER);
        }
        drop(failures);
        let length = call.length.ok_or(NO_LENGTH)?;
        if length > REQUEST_BYTES_MAX {
            return Err(TOO_LONG);
        }
        if let Ok(stream) = stream.try_clone() {
            commands.begin_over_http(stream, call.body.to_vec(), length);
        }
        Ok(())
    }
}

/// A request, as far as it has come.
pub(crate) struct Call<'a> {
    /// The value of `Authorization`.
    shown: &'a [u8],
    /// The length of the whole body.
    length: Option<usize>,
    /// The beginning of the body.
    body: &'a [u8],
}

impl Call<'_> {
    /// Reads a request whose head has come.
    ///
    /// # Errors
    /// A header is there twice, or the length is no number.
    pub(crate) fn parse(request: &[u8]) -> Result<Call<'_>, Refusal> {
        let end = request.windows(4).position(|window| window == b"\r\n\r\n").ok_or(MALFORMED)?;
        let (head, body) = (&request[..end], &request[end + 4..]);
        let shown = header(head, b"authorization")?.unwrap_or_default();
        let number = |digits: &[u8]| {
            let digits =
                std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
            digits.and_then(|digits| digits.parse().ok()).ok_or(MALFORMED)
        };
        let length = header(head, b"content-length")?.map(number).transpose()?;
        Ok(Call { shown, length, body })
    }

    /// Returns true if the caller may run commands.
    pub(crate) fn may_enter(&self, token: &[u8], policy: &Policy) -> bool {
        may_enter(self.shown, token, policy)
    }
}

/// Returns the value of a header.
///
/// # Errors
/// It is there twice.
fn header<'a>(head: &'a [u8], name: &[u8]) -> Result<Option<&'a [u8]>, Refusal> {
    let lines = head.split(|byte| *byte == b'\n').skip(1);
    let mut values = lines.filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        line[..colon].eq_ignore_ascii_case(name).then(|| line[colon + 1..].trim_ascii())
    });
    let value = values.next();
    if values.next().is_some() { Err(MALFORMED) } else { Ok(value) }
}

/// Divides the value of `Authorization` into the scheme and what follows it.
fn divided(shown: &[u8]) -> (&[u8], &[u8]) {
    let space = shown.iter().position(|byte| *byte == b' ').unwrap_or(shown.len());
    (&shown[..space], shown[space..].trim_ascii())
}

/// Returns true if the value of `Authorization` has the token.
fn bears(shown: &[u8], token: &[u8]) -> bool {
    let (scheme, secret) = divided(shown);
    scheme.eq_ignore_ascii_case(b"bearer") && is_same(token, secret)
}

/// Returns true if the value of `Authorization` is that of one who may run commands.
fn may_enter(shown: &[u8], token: &[u8], policy: &Policy) -> bool {
    let (scheme, secret) = divided(shown);
    let (true, Some(users)) = (scheme.eq_ignore_ascii_case(b"basic"), &policy.users) else {
        return bears(shown, token);
    };
    let Some(secret) = base64::decode(secret) else { return false };
    let colon = secret.iter().position(|byte| *byte == b':').unwrap_or(secret.len());
    let password = secret.get(colon + 1..).unwrap_or_default();
    users.find(&secret[..colon], password).is_some_and(|user| user.rights.contain(Rights::ADMINISTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_found_whatever_its_case_and_never_twice() {
        let head = b"POST /admin HTTP/1.1\r\nHost: a\r\nAUTHORIZATION:  Bearer x \r\nA: 1\r\na: 2";
        assert_eq!(header(head, b"authorization"), Ok(Some(&b"Bearer x"[..])));
        assert_eq!(header(head, b"content-length"), Ok(None));
        assert_eq!(header(head, b"a"), Err(MALFORMED));
    }

    #[test]
    fn a_token_is_compared_whole() {
        let policy = Policy::default();
        let token = b"0123456789abcdef";
        for (shown, may) in [
            (&b"Bearer 0123456789abcdef"[..], true),
            (b"bearer  0123456789abcdef", true),
            (b"Bearer 0123456789abcde", false),
            (b"Bearer 0123456789abcdeff", false),
            (b"Bearer", false),
            (b"", false),
            (b"0123456789abcdef", false),
            (b"Basic 0123456789abcdef", false),
        ] {
            assert_eq!(may_enter(shown, token, &policy), may, "{}", shown.escape_ascii());
        }
    }

    #[test]
    fn wrong_tokens_of_a_second_are_counted() {
        let (mut failures, now) = (Failures::default(), Instant::now());
        for _ in 0..FAILURES_MAX {
            assert!(!failures.are_too_many(now));
            failures.count += 1;
        }
        assert!(failures.are_too_many(now + FAILURES_IN / 2));
        assert!(!failures.are_too_many(now + FAILURES_IN));
    }

    #[test]
    fn a_token_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        for mode in [0o660, 0o604, 0o644] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(read_token(&path).unwrap_err().contains("chmod 600"), "{mode:o}");
        }
        for mode in [0o440, 0o600] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_token(&path).unwrap(), b"0123456789abcdef");
        }
        for bad in ["short", "0123456789 abcdef", &"x".repeat(251), &"x".repeat(600)] {
            std::fs::write(&path, bad).unwrap();
            assert!(read_token(&path).unwrap_err().contains("holds no token"), "{bad}");
        }
    }
}
