//! How a memcached item is stored as an engine value.
//!
//! ```text
//! offset  bytes  field
//!      0      1  format version, 1
//!      1      1  state bits: 1 stale, 2 win token handed out, 4 key was given in base64
//!      2      4  client flags            (little-endian, as are all below)
//!      6      8  expiration time, Unix seconds; 0 means never
//!     14      8  cas id, unique and increasing across restarts
//!     22      .  data
//! ```
//!
//! An item is *dead* when its expiration time has come, or when its cas id is below the flush barrier: `flush_all`
//! moves the barrier up to the next cas id, so that it costs the same for one item as for a billion and needs no
//! clock. A dead item reads as a miss everywhere; [`ExpiryRule`] lets a compaction filter drop it from disk.
//!
//! **Failure.** Decoding is total: a value that is too short, of another version or with unknown state bits is `None`,
//! which the server reports as damage and a compaction filter keeps.

/// Bytes in front of the data of every stored item.
pub const HEADER_BYTES: usize = 22;

const VERSION: u8 = 1;
const STATE_MASK: u8 = STALE | TOKEN_SENT | BINARY_KEY;

/// The item was invalidated (`md ... I`) and waits to be set again.
pub(crate) const STALE: u8 = 1;
/// Some client was told (`W`) that it should set the item again.
pub(crate) const TOKEN_SENT: u8 = 2;
/// The key was given in base64 and is returned so.
pub(crate) const BINARY_KEY: u8 = 4;

/// What is stored in front of an item's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) state: u8,
    pub(crate) flags: u32,
    /// Unix seconds; 0 means never.
    pub(crate) expires: u64,
    pub(crate) cas: u64,
}

impl Header {
    /// The header of a stored value, or `None` if it is not one of ours.
    pub(crate) fn decode(value: &[u8]) -> Option<Header> {
        let header = value.first_chunk::<HEADER_BYTES>()?;
        let [version, state, f0, f1, f2, f3, rest @ ..] = header;
        let (expires, cas) = rest.split_first_chunk::<8>()?;
        if *version != VERSION || state & !STATE_MASK != 0 {
            return None;
        }
        Some(Header {
            state: *state,
            flags: u32::from_le_bytes([*f0, *f1, *f2, *f3]),
            expires: u64::from_le_bytes(*expires),
            cas: u64::from_le_bytes(*cas.first_chunk()?),
        })
    }

    /// The stored form.
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = VERSION;
        bytes[1] = self.state;
        bytes[2..6].copy_from_slice(&self.flags.to_le_bytes());
        bytes[6..14].copy_from_slice(&self.expires.to_le_bytes());
        bytes[14..22].copy_from_slice(&self.cas.to_le_bytes());
        bytes
    }
}

/// An item as it is stored, for tools that look into a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ItemView<'a> {
    /// The client's flags.
    pub flags: u32,
    /// Expiration time, Unix seconds; 0 means never.
    pub expires: u64,
    /// Cas id.
    pub cas: u64,
    /// What the client stored.
    pub data: &'a [u8],
}

impl<'a> ItemView<'a> {
    /// Takes a stored value apart; `None` if it is not an item.
    pub fn of(value: &'a [u8]) -> Option<ItemView<'a>> {
        let Header { flags, expires, cas, .. } = Header::decode(value)?;
        Some(ItemView { flags, expires, cas, data: value.get(HEADER_BYTES..)? })
    }
}

/// When a stored item counts as gone. Cheap to copy; take a fresh one per compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpiryRule {
    /// Items whose expiration time is at or before this are dead. Unix seconds.
    pub now_seconds: u64,
    /// Items with a cas id below this were flushed.
    pub barrier_cas: u64,
}

impl ExpiryRule {
    /// True if `value`, as stored in the engine, reads as a miss under this rule, for ever.
    ///
    /// A value that does not decode is not dead: dropping it would hide damage.
    pub fn is_dead(&self, value: &[u8]) -> bool {
        Header::decode(value).is_some_and(|header| self.kills(&header))
    }

    pub(crate) fn kills(&self, header: &Header) -> bool {
        header.cas < self.barrier_cas || (header.expires != 0 && header.expires <= self.now_seconds)
    }
}

/// True if the expiration time of `value`, as stored in the engine, is at or before `now_seconds` (Unix time).
///
/// For a compaction filter that knows no flush barrier; [`ExpiryRule::is_dead`] knows both.
pub fn is_expired(value: &[u8], now_seconds: u64) -> bool {
    ExpiryRule { now_seconds, barrier_cas: 0 }.is_dead(value)
}

/// The stored expiration time for one given by a client: 0 never, up to 30 days relative, above that Unix time,
/// negative already past.
pub(crate) fn expires_at(client_seconds: i32, now_seconds: u64) -> u64 {
    const RELATIVE_MAX: i32 = 60 * 60 * 24 * 30;
    match client_seconds {
        0 => 0,
        ..0 => 1,
        1..=RELATIVE_MAX => now_seconds + client_seconds as u64,
        _ => client_seconds as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_survive_a_round_trip(state in 0..=STATE_MASK, flags: u32, expires: u64, cas: u64, data: Vec<u8>) {
            let header = Header { state, flags, expires, cas };
            let mut value = header.encode().to_vec();
            value.extend_from_slice(&data);
            prop_assert_eq!(Header::decode(&value), Some(header));
        }

        #[test]
        fn any_bytes_decode_or_not(value: Vec<u8>, now: u64) {
            let _ = (Header::decode(&value), is_expired(&value, now));
        }
    }

    #[test]
    fn the_stored_form_is_the_documented_one() {
        let header = Header { state: STALE | BINARY_KEY, flags: 0x0403_0201, expires: 0x0c, cas: 0x1f };
        let golden = [1, 5, 1, 2, 3, 4, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0x1f, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(header.encode(), golden);
        assert_eq!(Header::decode(&golden[..21]), None);
        assert_eq!(Header::decode(&[&[2], &golden[1..]].concat()), None, "another version");
        assert_eq!(Header::decode(&[&[1, 8], &golden[2..]].concat()), None, "an unknown state bit");
    }

    #[test]
    fn the_second_of_expiry_is_already_dead_and_the_barrier_kills_what_is_below() {
        let header = Header { state: 0, flags: 0, expires: 100, cas: 7 };
        let rule = |now_seconds, barrier_cas| ExpiryRule { now_seconds, barrier_cas };
        assert!(!rule(99, 7).kills(&header));
        assert!(rule(100, 7).kills(&header));
        assert!(rule(99, 8).kills(&header));
        assert!(!rule(u64::MAX, 0).kills(&Header { expires: 0, ..header }));
    }

    #[test]
    fn both_forms_of_expiration_time_are_understood() {
        assert_eq!(expires_at(0, 1_000_000_000), 0);
        assert_eq!(expires_at(60, 1_000_000_000), 1_000_000_060);
        assert_eq!(expires_at(2_592_000, 1_000_000_000), 1_002_592_000);
        assert_eq!(expires_at(2_592_001, 1_000_000_000), 2_592_001);
        assert_eq!(expires_at(-1, 1_000_000_000), 1);
    }
}
