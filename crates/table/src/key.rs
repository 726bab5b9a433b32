//! Internal keys: what a user's key becomes inside the store.
//!
//! An internal key is the user's key with a [`Trailer`]: 56 bits of sequence number and 8 bits of kind, in one `u64`
//! (the layout is LevelDB's). Order: user key ascending by bytes, then trailer *descending*. So the newest version of a
//! key comes first, and a seek to `(key, snapshot)` lands on the newest version that the snapshot sees.
//!
//! In memory the two parts travel apart as a [`KeyRef`]; on disk they are the key's bytes followed by the trailer in
//! little-endian.

use situ_storage::Excerpt;
use std::cmp::Ordering;
use std::fmt;

/// Numbers every write; 0 means "older than any snapshot".
pub type SequenceNumber = u64;

/// The largest sequence number: 56 bits. At ten million writes a second it lasts for 228 years.
pub const MAX_SEQUENCE: SequenceNumber = (1 << 56) - 1;

/// The kind of an entry, with its effect on the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum KeyKind {
    /// A tombstone: the key is gone.
    Delete = 0,
    /// The entry's value is the key's value.
    Put = 1,
    /// The entry's value says where in a value log the value lies.
    ValueHandle = 2,
    /// A range tombstone: from the entry's key to the key that is its value, exclusive. It is stored apart from the
    /// entries.
    RangeDelete = 3,
}

impl KeyKind {
    /// Returns the kind of this number, if there is one.
    pub fn from_u8(byte: u8) -> Option<KeyKind> {
        Some(match byte {
            0 => KeyKind::Delete,
            1 => KeyKind::Put,
            2 => KeyKind::ValueHandle,
            3 => KeyKind::RangeDelete,
            _ => return None,
        })
    }
}

/// Sequence number and kind, packed as `sequence << 8 | kind`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Trailer(pub u64);

impl Trailer {
    /// The trailer that sorts before every other one of the same user key.
    pub const NEWEST: Trailer = Trailer(u64::MAX);
    /// The trailer that sorts behind every other one of the same user key.
    pub const OLDEST: Trailer = Trailer(0);

    /// Packs a sequence number and a kind. The sequence number must not exceed [`MAX_SEQUENCE`].
    #[inline]
    pub fn new(sequence: SequenceNumber, kind: KeyKind) -> Trailer {
        debug_assert!(sequence <= MAX_SEQUENCE);
        Trailer(sequence << 8 | kind as u64)
    }

    /// Returns the trailer to seek with in order to find the newest version at or below `sequence`.
    #[inline]
    pub fn seek(sequence: SequenceNumber) -> Trailer {
        Trailer(sequence << 8 | 0xff)
    }

    /// Returns the same kind with sequence number 0: older than any snapshot.
    #[inline]
    pub fn of_any_age(self) -> Trailer {
        Trailer(self.0 & 0xff)
    }

    /// Returns the sequence number.
    #[inline]
    pub fn sequence(self) -> SequenceNumber {
        self.0 >> 8
    }

    /// Returns the kind; `None` if the byte is no kind (possible only in damaged data).
    #[inline]
    pub fn kind(self) -> Option<KeyKind> {
        KeyKind::from_u8(self.0 as u8)
    }
}

impl fmt::Debug for Trailer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            Some(kind) => write!(f, "{}:{kind:?}", self.sequence()),
            None => write!(f, "{}:{:#04x}", self.sequence(), self.0 as u8),
        }
    }
}

/// An internal key, borrowed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyRef<'a> {
    /// The user's key.
    pub user: &'a [u8],
    /// Its version.
    pub trailer: Trailer,
}

impl<'a> KeyRef<'a> {
    /// Puts the two parts together.
    #[inline]
    pub fn new(user: &'a [u8], trailer: Trailer) -> KeyRef<'a> {
        KeyRef { user, trailer }
    }

    /// Takes an encoded internal key apart; `None` if it is shorter than a trailer.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Option<KeyRef<'a>> {
        let (user, trailer) = bytes.split_last_chunk::<8>()?;
        Some(KeyRef { user, trailer: Trailer(u64::from_le_bytes(*trailer)) })
    }

    /// Appends the encoded form: the user key, then the trailer in little-endian.
    #[inline]
    pub fn encode_into(self, to: &mut Vec<u8>) {
        to.extend_from_slice(self.user);
        to.extend_from_slice(&self.trailer.0.to_le_bytes());
    }

    /// Returns the encoded form.
    pub fn to_vec(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.user.len() + 8);
        self.encode_into(&mut bytes);
        bytes
    }
}

impl Ord for KeyRef<'_> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.user.cmp(other.user).then_with(|| other.trailer.cmp(&self.trailer))
    }
}

impl PartialOrd for KeyRef<'_> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for KeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{:?}", Excerpt(self.user), self.trailer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_versions_come_first() {
        let new = KeyRef::new(b"a", Trailer::new(9, KeyKind::Put));
        let old = KeyRef::new(b"a", Trailer::new(8, KeyKind::Delete));
        let next = KeyRef::new(b"b", Trailer::new(10, KeyKind::Put));
        assert!(new < old && old < next);
        assert!(KeyRef::new(b"a", Trailer::NEWEST) < new && old < KeyRef::new(b"a", Trailer::OLDEST));
        assert!(KeyRef::new(b"a", Trailer::seek(9)) < new);
        assert!(new < KeyRef::new(b"a", Trailer::seek(8)) && KeyRef::new(b"a", Trailer::seek(8)) < old);
    }

    #[test]
    fn encoding_is_the_key_then_eight_bytes() {
        let key = KeyRef::new(b"key", Trailer::new(0x0102, KeyKind::Put));
        assert_eq!(key.to_vec(), b"key\x01\x02\x01\0\0\0\0\0");
        assert_eq!(KeyRef::decode(&key.to_vec()), Some(key));
        assert_eq!(KeyRef::decode(b"short"), None);
    }
}
