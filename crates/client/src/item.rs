//! Keys, values, and what a client says about a value when it stores it.

use crate::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest key in bytes.
pub const KEY_BYTES_MAX: usize = 250;

/// The longest value in bytes, 1 GiB. A server usually takes less: memcached 1 MiB, unless it is started with `-I`.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// Servers take an expiration time of more seconds as a time since 1970.
const RELATIVE_SECONDS_MAX: u64 = 60 * 60 * 24 * 30;

/// A value as the server has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Item {
    /// The value.
    pub value: Vec<u8>,
    /// The flags that were stored with the value.
    pub flags: u32,
}

/// The version of an item. The server gives every change of an item a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CasId(pub u64);

/// The answer to a `cas`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cas {
    /// The item had the version that the call named. It has the new value now.
    Stored,
    /// Another client has changed the item meanwhile. The call has changed nothing.
    Changed,
    /// The item does not exist.
    Missing,
}

/// The time at which an item expires.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Expiry {
    /// The item does not expire.
    #[default]
    Never,
    /// The item expires after this time, rounded up to whole seconds. No time at all makes the item expire at once.
    In(Duration),
    /// The item expires at this time, rounded up to whole seconds. The protocol ends in January 2038: later times are
    /// taken for that one.
    At(SystemTime),
}

impl Expiry {
    /// Returns the number of the protocol: 0 for never, negative for at once, seconds up to 30 days, or Unix time.
    pub(crate) fn number(self, now: SystemTime) -> i32 {
        const AT_ONCE: i32 = -1;
        let whole_seconds = |time: Duration| time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
        let unix = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, whole_seconds);
        let seconds = match self {
            Expiry::Never => return 0,
            Expiry::In(time) if whole_seconds(time) <= RELATIVE_SECONDS_MAX => whole_seconds(time),
            Expiry::In(time) => unix(now).saturating_add(whole_seconds(time)),
            // The first 30 days of 1970 would be taken for a time from now.
            Expiry::At(time) => Some(unix(time)).filter(|seconds| *seconds > RELATIVE_SECONDS_MAX).unwrap_or(0),
        };
        match seconds {
            0 => AT_ONCE,
            seconds => i32::try_from(seconds).unwrap_or(i32::MAX),
        }
    }
}

/// The flags and the expiry time of a value.
///
/// Calls take anything that can be turned into this: `()`, a [`Duration`] to live, an [`Expiry`].
///
/// ```
/// use situ_client::{Attributes, Expiry};
/// use std::time::Duration;
///
/// let minute = Attributes::from(Duration::from_secs(60));
/// assert_eq!(minute, Attributes { flags: 0, expiry: Expiry::In(Duration::from_secs(60)) });
/// assert_eq!(minute.with_flags(7).flags, 7);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes {
    /// A number that the server keeps with the value and returns with it.
    pub flags: u32,
    /// The time at which the item expires.
    pub expiry: Expiry,
}

impl Attributes {
    /// Returns the same attributes with these flags.
    #[must_use]
    pub const fn with_flags(self, flags: u32) -> Attributes {
        Attributes { flags, ..self }
    }
}

impl From<()> for Attributes {
    fn from((): ()) -> Attributes {
        Attributes::default()
    }
}

impl From<Expiry> for Attributes {
    fn from(expiry: Expiry) -> Attributes {
        Attributes { flags: 0, expiry }
    }
}

impl From<Duration> for Attributes {
    fn from(time: Duration) -> Attributes {
        Expiry::In(time).into()
    }
}

impl From<()> for Expiry {
    fn from((): ()) -> Expiry {
        Expiry::Never
    }
}

impl From<Duration> for Expiry {
    fn from(time: Duration) -> Expiry {
        Expiry::In(time)
    }
}

/// Refuses a key that would be taken for several, or for none, or that the server refuses.
pub(crate) fn check_key(key: &[u8]) -> Result<(), Error> {
    let fault = match key {
        [] => "is empty",
        _ if key.len() > KEY_BYTES_MAX => "is longer than 250 bytes",
        _ if key.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) => "has a space or a control character",
        _ => return Ok(()),
    };
    Err(Error::Key { fault })
}

/// Refuses a value that the protocol cannot carry.
pub(crate) fn check_value(value: &[u8]) -> Result<(), Error> {
    match value.len() {
        ..=VALUE_BYTES_MAX => Ok(()),
        length => Err(Error::Option(format!("the value has {length} bytes; at most {VALUE_BYTES_MAX} can be sent"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_the_numbers_of_the_protocol() {
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let seconds = Duration::from_secs;
        let days = |days: u64| seconds(86_400 * days);
        for (expiry, number) in [
            (Expiry::Never, 0),
            (Expiry::In(Duration::ZERO), -1),
            (Expiry::In(Duration::from_millis(1)), 1),
            (Expiry::In(Duration::from_millis(1001)), 2),
            (Expiry::In(days(30)), 2_592_000),
            (Expiry::In(days(30) + seconds(1)), 1_702_592_001),
            (Expiry::In(Duration::MAX), i32::MAX),
            (Expiry::At(now + seconds(5)), 1_700_000_005),
            (Expiry::At(UNIX_EPOCH), -1),
            (Expiry::At(UNIX_EPOCH + days(3)), -1),
            (Expiry::At(UNIX_EPOCH - days(3)), -1),
            (Expiry::At(now + days(100_000)), i32::MAX),
        ] {
            assert_eq!(expiry.number(now), number, "{expiry:?}");
        }
    }

    #[test]
    fn keys_that_would_end_or_split_a_line_are_refused() {
        for key in ["", " ", "a b", "a\r\n", "a\tb", "a\0", "\x7f"] {
            assert!(check_key(key.as_bytes()).is_err(), "{key:?}");
        }
        assert!(check_key(&[b'k'; 251]).is_err());
        check_key(&[b'k'; 250]).unwrap();
        check_key("Schlüssel".as_bytes()).unwrap();
    }
}
