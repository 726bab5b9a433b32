//! The encoding of a memcached item as an engine value.
//!
//! ```text
//! offset  bytes  field
//!      0      1  format version, 1
//!      1      1  state bits: 1 stale, 2 win token handed out, 4 key was given in base64, 8 a client gave the cas id
//!      2      4  client flags            (little-endian, as are all below)
//!      6      8  expiration time, seconds of the store's clock; 0 means never
//!     14      8  the server's cas id, unique and increasing across restarts
//!     22      8  the client's cas id, only with state bit 8
//!      .      .  data
//! ```
//!
//! An item is *dead* when its expiration time has come, or when its server's cas id is below the flush barrier:
//! `flush_all` moves the barrier up to the next cas id, so that it costs the same for one item as for a billion and
//! needs no clock. A dead item reads as a miss everywhere; [`ExpiryRule`] lets a compaction filter drop it from disk.
//!
//! A cas id that a client gives (`E` of the meta commands) may be anything. So it is stored next to the server's own
//! id, which flushes go by. Clients see their id, and a flush reaches the item whatever id the client gave.
//!
//! **Failure.** Decoding is total: a value that is too short, of another version or with unknown state bits is `None`,
//! which the server reports as damage and a compaction filter keeps.

use std::borrow::Cow;
use std::ops::Deref;

use situ_base::StoreClock;

/// Bytes in front of the data of a stored item whose cas id is the server's.
pub const HEADER_BYTES: usize = 22;

/// The same if a client gave the cas id.
pub(crate) const HEADER_BYTES_MAX: usize = HEADER_BYTES + 8;

const VERSION: u8 = 1;
const STATE_MASK: u8 = STALE | TOKEN_SENT | BINARY_KEY;
/// Only in the stored form; [`Header::given_cas`] says it otherwise.
const GIVEN_CAS: u8 = 8;

/// The state bit of an item that was invalidated (`md ... I`) and waits to be set again.
pub(crate) const STALE: u8 = 1;
/// The state bit of an item that a client was asked (`W`) to set again.
pub(crate) const TOKEN_SENT: u8 = 2;
/// The state bit of an item with a key that was given in base64 and is returned so.
pub(crate) const BINARY_KEY: u8 = 4;

/// The header in front of an item's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) state: u8,
    pub(crate) flags: u32,
    /// Seconds of the store's clock; 0 means never.
    pub(crate) expires: u64,
    /// The server's cas id, by which flushes go.
    pub(crate) id: u64,
    /// The cas id that a client gave.
    pub(crate) given_cas: Option<u64>,
}

/// A header in its stored form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EncodedHeader {
    bytes: [u8; HEADER_BYTES_MAX],
    length: usize,
}

impl Deref for EncodedHeader {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Header {
    /// Returns the header of a stored value, or `None` if it is not one of ours.
    pub(crate) fn decode(value: &[u8]) -> Option<Header> {
        let (header, rest) = value.split_first_chunk::<HEADER_BYTES>()?;
        let [version, state, f0, f1, f2, f3, times_and_ids @ ..] = header;
        let (expires, id) = times_and_ids.split_first_chunk::<8>()?;
        if *version != VERSION || state & !(STATE_MASK | GIVEN_CAS) != 0 {
            return None;
        }
        let given_cas = match state & GIVEN_CAS {
            0 => None,
            _ => Some(u64::from_le_bytes(*rest.first_chunk()?)),
        };
        Some(Header {
            state: state & STATE_MASK,
            flags: u32::from_le_bytes([*f0, *f1, *f2, *f3]),
            expires: u64::from_le_bytes(*expires),
            id: u64::from_le_bytes(*id.first_chunk()?),
            given_cas,
        })
    }

    /// Returns the stored form.
    pub(crate) fn encode(&self) -> EncodedHeader {
        let mut bytes = [0; HEADER_BYTES_MAX];
        bytes[0] = VERSION;
        bytes[1] = self.state;
        bytes[2..6].copy_from_slice(&self.flags.to_le_bytes());
        bytes[6..14].copy_from_slice(&self.expires.to_le_bytes());
        bytes[14..22].copy_from_slice(&self.id.to_le_bytes());
        if let Some(cas) = self.given_cas {
            bytes[1] |= GIVEN_CAS;
            bytes[22..].copy_from_slice(&cas.to_le_bytes());
        }
        EncodedHeader { bytes, length: self.byte_len() }
    }

    /// Returns the length of the stored form, which is the offset of the data.
    pub(crate) fn byte_len(&self) -> usize {
        if self.given_cas.is_some() { HEADER_BYTES_MAX } else { HEADER_BYTES }
    }

    /// Returns the cas id that clients see.
    pub(crate) fn cas(&self) -> u64 {
        self.given_cas.unwrap_or(self.id)
    }
}

/// An item as it is stored, for tools that look into a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ItemView<'a> {
    /// The client's flags.
    pub flags: u32,
    /// Expiration time, seconds of the store's clock; 0 means never.
    pub expires: u64,
    /// Cas id, as clients see it.
    pub cas: u64,
    /// The data that the client stored.
    pub data: &'a [u8],
}

impl<'a> ItemView<'a> {
    /// Takes a stored value apart; `None` if it is not an item.
    pub fn of(value: &'a [u8]) -> Option<ItemView<'a>> {
        let header = Header::decode(value)?;
        let Header { flags, expires, .. } = header;
        Some(ItemView { flags, expires, cas: header.cas(), data: value.get(header.byte_len()..)? })
    }
}

/// Converts the expiration time of a stored item to Unix time, for items that leave a store with their whole header.
///
/// # Errors
/// There is no memory for a copy.
pub fn item_in_unix_time<'a>(value: &'a [u8], clock: &StoreClock) -> situ_storage::Result<Cow<'a, [u8]>> {
    match Header::decode(value).map(|header| (header, clock.unix_of_seconds(header.expires))) {
        Some((header, expires)) if expires != header.expires => {
            let mut item = situ_storage::memory::copied(value, "an item")?;
            let header = Header { expires, ..header }.encode();
            if let Some(place) = item.get_mut(..header.len()) {
                place.copy_from_slice(&header);
            }
            Ok(item.into())
        }
        _ => Ok(value.into()),
    }
}

/// The rule by which a stored item counts as gone. Cheap to copy; take a fresh one per compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpiryRule {
    /// Items whose expiration time is at or before this are dead. Seconds of the store's clock.
    pub now_seconds: u64,
    /// Items with a cas id of the server's below this were flushed.
    pub barrier_cas: u64,
}

impl ExpiryRule {
    /// Returns true if `value`, as stored in the engine, reads as a miss under this rule, for ever.
    ///
    /// A value that does not decode is not dead: dropping it would hide damage.
    pub fn is_dead(&self, value: &[u8]) -> bool {
        Header::decode(value).is_some_and(|header| self.kills(&header))
    }

    pub(crate) fn kills(&self, header: &Header) -> bool {
        header.id < self.barrier_cas || (header.expires != 0 && header.expires <= self.now_seconds)
    }
}

/// Returns true if the expiration time of a stored value is at or before `now_seconds` of the store's clock.
///
/// For a compaction filter that knows no flush barrier; [`ExpiryRule::is_dead`] knows both.
pub fn is_expired(value: &[u8], now_seconds: u64) -> bool {
    ExpiryRule { now_seconds, barrier_cas: 0 }.is_dead(value)
}

/// Converts a client's expiration time to the stored one. 0 means never, up to 30 days is relative, above that is Unix
/// time, and negative is already past. Unix time is `unix_ahead` seconds ahead of the store's clock.
pub(crate) fn expires_at(client_seconds: i32, now_seconds: u64, unix_ahead: i64) -> u64 {
    const RELATIVE_MAX: i32 = 60 * 60 * 24 * 30;
    match client_seconds {
        0 => 0,
        ..0 => 1,
        1..=RELATIVE_MAX => now_seconds + client_seconds as u64,
        _ => (client_seconds as u64).saturating_add_signed(unix_ahead.saturating_neg()).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_survive_a_round_trip(
            state in 0..=STATE_MASK,
            flags: u32,
            expires: u64,
            id: u64,
            given_cas: Option<u64>,
            data: Vec<u8>,
        ) {
            let header = Header { state, flags, expires, id, given_cas };
            let mut value = header.encode().to_vec();
            value.extend_from_slice(&data);
            prop_assert_eq!(Header::decode(&value), Some(header));
            let item = ItemView::of(&value).unwrap();
            prop_assert_eq!((item.cas, item.data), (given_cas.unwrap_or(id), &data[..]));
        }

        #[test]
        fn any_bytes_decode_or_not(value: Vec<u8>, now: u64) {
            let _ = (Header::decode(&value), is_expired(&value, now));
        }
    }

    #[test]
    fn the_stored_form_is_the_documented_one() {
        let header = Header { state: STALE | BINARY_KEY, flags: 0x0403_0201, expires: 0x0c, id: 0x1f, given_cas: None };
        let golden = [1, 5, 1, 2, 3, 4, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0x1f, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(header.encode()[..], golden);
        assert_eq!(Header::decode(&golden[..21]), None);
        assert_eq!(Header::decode(&[&[2], &golden[1..]].concat()), None, "another version");
        assert_eq!(Header::decode(&[&[1, 16], &golden[2..]].concat()), None, "an unknown state bit");
        let given = [&[1, 13], &golden[2..], &[0x2e, 0, 0, 0, 0, 0, 0, 1]].concat();
        assert_eq!(Header { given_cas: Some(1 << 56 | 0x2e), ..header }.encode()[..], given);
        assert_eq!(Header::decode(&given[..29]), None, "the client's cas id is cut off");
    }

    #[test]
    fn the_second_of_expiry_is_already_dead_and_the_barrier_kills_what_is_below() {
        let header = Header { state: 0, flags: 0, expires: 100, id: 7, given_cas: None };
        let rule = |now_seconds, barrier_cas| ExpiryRule { now_seconds, barrier_cas };
        assert!(!rule(99, 7).kills(&header));
        assert!(rule(100, 7).kills(&header));
        assert!(rule(99, 8).kills(&header));
        assert!(rule(99, 8).kills(&Header { given_cas: Some(u64::MAX), ..header }));
        assert!(!rule(99, 7).kills(&Header { given_cas: Some(0), ..header }));
        assert!(!rule(u64::MAX, 0).kills(&Header { expires: 0, ..header }));
    }

    #[test]
    fn both_forms_of_expiration_time_are_understood() {
        for ahead in [0, 7200, -7200] {
            assert_eq!(expires_at(0, 1_000_000_000, ahead), 0);
            assert_eq!(expires_at(60, 1_000_000_000, ahead), 1_000_000_060);
            assert_eq!(expires_at(2_592_000, 1_000_000_000, ahead), 1_002_592_000);
            assert_eq!(expires_at(2_592_001, 1_000_000_000, ahead) as i64, 2_592_001 - ahead);
            assert_eq!(expires_at(-1, 1_000_000_000, ahead), 1);
        }
        assert_eq!(expires_at(i32::MAX, 1_000_000_000, i64::MAX), 1, "long ago, and not never");
    }
}
