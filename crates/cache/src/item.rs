//! An item as it lies in a segment.
//!
//! ```text
//! bytes  field
//!     1  form: 1 client flags, 2 expiration time, 4 long value, 8 a client gave the cas id, 16 32 64 state, 128 whole id
//!     1  length of the key
//!   2|4  length of the value; 4 bytes with form bit 4
//!   4|8  id, less the segment's base; 8 bytes, and the id itself, with form bit 128
//!     4  client flags, with form bit 1; without it they are 0
//!     4  expiration time, seconds of the owner's clock, with form bit 2; without it the item does not expire
//!     8  the client's cas id, with form bit 8
//!     .  key, value
//!     .  zeros up to a multiple of 4
//! ```
//!
//! All integers are little-endian. An item without flags, time and a client's id takes 8 bytes in addition to key and
//! value.
//!
//! **Failure.** Decoding is total: bytes that are no item are `None`.

use crate::slot::ALIGN;
use situ_device::Buffer;
use std::fmt;
use std::sync::Arc;

const FLAGS: u8 = 1;
const EXPIRES: u8 = 2;
const LONG_VALUE: u8 = 4;
const GIVEN_CAS: u8 = 8;
const STATE_AT: u32 = 4;
const STATE_MASK: u8 = 7;
const WHOLE_ID: u8 = 128;

/// The longest key.
pub const KEY_BYTES_MAX: usize = 250;
/// The longest value.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// The fields of an item apart from its key and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meta {
    /// Three bits for the cache's user.
    pub state: u8,
    /// The client's flags.
    pub flags: u32,
    /// Expiration time, Unix seconds; 0 means never. Times after 2106 count as 2106.
    pub expires: u64,
    /// A number that grows from one change to the next.
    pub id: u64,
    /// The cas id that a client gave.
    pub given_cas: Option<u64>,
}

/// An item in a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Item<'a> {
    /// The other fields of the item.
    pub meta: Meta,
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// Up to 1 GiB.
    pub value: &'a [u8],
}

impl fmt::Debug for Item<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Item({}: {} bytes, {:?})", self.key.escape_ascii(), self.value.len(), self.meta)
    }
}

/// An item that was found.
#[derive(Debug, Clone, Copy)]
pub struct Hit<'a> {
    /// The item.
    pub item: Item<'a>,
    /// The buffer that holds a long value, to be kept without a copy: the value is the part of it that `item.value`
    /// points to.
    pub whole: Option<&'a Arc<Buffer>>,
}

/// An item that goes to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evicted<'a> {
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// The other fields of the item.
    pub meta: Meta,
    /// Length of its value.
    pub value_bytes: usize,
    /// True if it was read since it was stored, or since its segment last went.
    pub was_read: bool,
}

/// The listener that gets the items that go to make room. It is called with locks held: it must be quick and must not
/// call the cache.
pub type OnEvicted = Box<dyn Fn(Evicted<'_>) + Send + Sync>;

/// An item that is to be stored: the value is the concatenation of two parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewItem<'a> {
    pub(crate) meta: Meta,
    pub(crate) key: &'a [u8],
    pub(crate) parts: [&'a [u8]; 2],
}

impl NewItem<'_> {
    pub(crate) fn value_bytes(&self) -> usize {
        self.parts[0].len() + self.parts[1].len()
    }

    /// Returns the length in a segment with this base, padding included.
    pub(crate) fn stored_bytes(&self, base: u64) -> usize {
        let (form, header) = self.form(base);
        debug_assert!(form != 0 || header == 8);
        (header + self.key.len() + self.value_bytes()).next_multiple_of(ALIGN)
    }

    fn form(&self, base: u64) -> (u8, usize) {
        let Meta { state, flags, expires, id, given_cas } = self.meta;
        let mut form = (state & STATE_MASK) << STATE_AT;
        let mut bytes = 8;
        for (is_there, bit, more) in [
            (flags != 0, FLAGS, 4),
            (expires != 0, EXPIRES, 4),
            (self.value_bytes() > usize::from(u16::MAX), LONG_VALUE, 2),
            (given_cas.is_some(), GIVEN_CAS, 8),
            (id.checked_sub(base).is_none_or(|delta| delta > u64::from(u32::MAX)), WHOLE_ID, 4),
        ] {
            if is_there {
                form |= bit;
                bytes += more;
            }
        }
        (form, bytes)
    }

    /// Appends the item.
    pub(crate) fn append_to(&self, base: u64, out: &mut Vec<u8>) {
        let start = out.len();
        self.each_part(base, |part| out.extend_from_slice(part));
        let end = (out.len() - start).next_multiple_of(ALIGN) + start;
        out.resize(end, 0);
    }

    /// Puts the item over another one of the same stored length.
    pub(crate) fn put_over(&self, base: u64, out: &mut [u8]) {
        let mut at = 0;
        self.each_part(base, |part| {
            out[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        });
        out[at..].fill(0);
    }

    fn each_part(&self, base: u64, mut put: impl FnMut(&[u8])) {
        let (form, header) = self.form(base);
        let mut bytes = [0; 32];
        let mut at = 0;
        let mut push = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        push(&[form, self.key.len() as u8]);
        let length = (self.value_bytes() as u32).to_le_bytes();
        push(if form & LONG_VALUE != 0 { &length } else { &length[..2] });
        if form & WHOLE_ID != 0 {
            push(&self.meta.id.to_le_bytes());
        } else {
            push(&((self.meta.id - base) as u32).to_le_bytes());
        }
        if form & FLAGS != 0 {
            push(&self.meta.flags.to_le_bytes());
        }
        if form & EXPIRES != 0 {
            push(&u32::try_from(self.meta.expires).unwrap_or(u32::MAX).to_le_bytes());
        }
        if let Some(cas) = self.meta.given_cas {
            push(&cas.to_le_bytes());
        }
        assert_eq!(at, header, "the header of an item has another length than was planned");
        put(&bytes[..at]);
        put(self.key);
        put(self.parts[0]);
        put(self.parts[1]);
    }
}

impl<'a> Item<'a> {
    /// Returns the item at the beginning of `bytes`, in a segment with this base.
    pub(crate) fn decode(bytes: &'a [u8], base: u64) -> Option<Item<'a>> {
        let (item, value_bytes) = Item::decode_part(bytes, base)?;
        (item.value.len() == value_bytes).then_some(item)
    }

    /// Returns the item at the beginning of `bytes`, with as much of its value as is there, and the length of the
    /// value.
    pub(crate) fn decode_part(bytes: &'a [u8], base: u64) -> Option<(Item<'a>, usize)> {
        let (&[form, key_bytes], mut rest) = bytes.split_first_chunk::<2>()?;
        let value_bytes = match form & LONG_VALUE {
            0 => usize::from(u16::from_le_bytes(take(&mut rest)?)),
            _ => u32::from_le_bytes(take(&mut rest)?) as usize,
        };
        let id = match form & WHOLE_ID {
            0 => base.checked_add(u64::from(u32::from_le_bytes(take(&mut rest)?)))?,
            _ => u64::from_le_bytes(take(&mut rest)?),
        };
        let flags = if form & FLAGS != 0 { u32::from_le_bytes(take(&mut rest)?) } else { 0 };
        let expires = if form & EXPIRES != 0 { u64::from(u32::from_le_bytes(take(&mut rest)?)) } else { 0 };
        let given_cas = if form & GIVEN_CAS != 0 { Some(u64::from_le_bytes(take(&mut rest)?)) } else { None };
        let (key, rest) = rest.split_at_checked(usize::from(key_bytes))?;
        let value = &rest[..value_bytes.min(rest.len())];
        let meta = Meta { state: form >> STATE_AT & STATE_MASK, flags, expires, id, given_cas };
        (!key.is_empty()).then_some((Item { meta, key, value }, value_bytes))
    }

    /// Returns true if `bytes`, from which the item was decoded, are its canonical encoding: the shortest header, and
    /// zeros behind the value.
    pub(crate) fn is_stored_as(&self, bytes: &[u8], base: u64) -> bool {
        let (form, header) = self.again().form(base);
        let end = header + self.key.len() + self.value.len();
        let padding = bytes.get(end..end.next_multiple_of(ALIGN));
        bytes.first() == Some(&form) && padding.is_some_and(|padding| padding.iter().all(|byte| *byte == 0))
    }

    /// Returns the same item, to be stored elsewhere.
    pub(crate) fn again(&self) -> NewItem<'a> {
        NewItem { meta: self.meta, key: self.key, parts: [self.value, &[]] }
    }

    /// Returns the length in a segment with this base, padding included.
    pub(crate) fn stored_bytes(&self, base: u64) -> usize {
        self.again().stored_bytes(base)
    }

    /// Returns true if no reader may see it at this time, Unix seconds.
    pub(crate) fn has_expired(&self, now: u64) -> bool {
        self.meta.expires != 0 && self.meta.expires <= now
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn metas() -> impl Strategy<Value = Meta> {
        let flags = prop_oneof![Just(0), any::<u32>()];
        let expires = prop_oneof![Just(0), 0..u64::from(u32::MAX)];
        let id = prop_oneof![0..1000u64, any::<u64>()];
        (0..8u8, flags, expires, id, any::<Option<u64>>()).prop_map(|(state, flags, expires, id, given_cas)| Meta {
            state,
            flags,
            expires,
            id,
            given_cas,
        })
    }

    proptest! {
        #[test]
        fn an_item_comes_back_as_it_was(
            meta in metas(),
            base in 0..1000u64,
            key in prop::collection::vec(any::<u8>(), 1..=KEY_BYTES_MAX),
            first in prop::collection::vec(any::<u8>(), 0..400),
            long in any::<bool>(),
        ) {
            let second = vec![7; if long { 70_000 } else { 3 }];
            let item = NewItem { meta, key: &key, parts: [&first, &second] };
            let mut bytes = vec![1; 8];
            item.append_to(base, &mut bytes);
            prop_assert_eq!(bytes.len() - 8, item.stored_bytes(base));
            let value = [&first[..], &second].concat();
            let found = Item::decode(&bytes[8..], base);
            prop_assert_eq!(found, Some(Item { meta, key: &key, value: &value }));
            prop_assert_eq!(found.map(|found| found.stored_bytes(base)), Some(item.stored_bytes(base)));
            let mut over = vec![9; bytes.len() - 8];
            item.put_over(base, &mut over);
            prop_assert_eq!(&over[..], &bytes[8..]);
            for end in 8..bytes.len() - 3 {
                if end % 97 == 0 {
                    prop_assert_eq!(Item::decode(&bytes[8..end], base).filter(|item| item.value.len() > end), None);
                }
            }
        }

        #[test]
        fn any_bytes_can_be_decoded(bytes in prop::collection::vec(any::<u8>(), 0..400), base in any::<u64>()) {
            if let Some(item) = Item::decode(&bytes, base) {
                prop_assert!(item.key.len() + item.value.len() < bytes.len());
            }
        }
    }

    #[test]
    fn a_plain_item_takes_8_bytes_beside_key_and_value() {
        let item = NewItem { meta: Meta { id: 5, ..Meta::default() }, key: b"1234", parts: [b"value678", b""] };
        assert_eq!(item.stored_bytes(3), 8 + 4 + 8);
    }
}
