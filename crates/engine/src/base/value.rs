//! Keys and values that a read returns: bytes that belong to the caller and outlive the read.
//!
//! A [`Value`] that [`get`](crate::Keyspace::get) finds in a table shares the cached block that it lies in, so nothing
//! is copied. Iterators copy the entries that they return. A [`Key`] of up to [`INLINE_BYTES_MAX`] bytes takes no
//! memory of its own.

use situ_storage::Excerpt;
use situ_storage::Result;
use situ_storage::memory::copied;
use situ_table::ValueRef;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// Keys up to this length lie in the [`Key`] itself.
const INLINE_BYTES_MAX: usize = 30;

/// A key that was read. It dereferences to its bytes, and compares with byte slices, arrays, vectors and text.
///
/// ```
/// # use situ_engine as situ;
/// # fn main() -> situ::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let store = situ::Store::open(directory.path())?;
/// store.put("ada", "1815")?;
/// let (key, value) = store.first()?.unwrap();
/// assert_eq!(key, "ada");
/// assert_eq!(value, b"1815");
/// # store.close()
/// # }
/// ```
#[derive(Clone)]
pub struct Key(KeyBytes);

#[derive(Clone)]
enum KeyBytes {
    Inline { len: u8, bytes: [u8; INLINE_BYTES_MAX] },
    Shared(Arc<[u8]>),
}

impl Key {
    pub(crate) fn copied(key: &[u8]) -> Key {
        if key.len() > INLINE_BYTES_MAX {
            return Key(KeyBytes::Shared(key.into()));
        }
        let mut bytes = [0; INLINE_BYTES_MAX];
        bytes[..key.len()].copy_from_slice(key);
        Key(KeyBytes::Inline { len: key.len() as u8, bytes })
    }
}

impl Deref for Key {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            KeyBytes::Inline { len, bytes } => &bytes[..usize::from(*len)],
            KeyBytes::Shared(bytes) => bytes,
        }
    }
}

/// A value that was read. It dereferences to its bytes, which may lie in a cached block that it keeps alive. It
/// compares with byte slices, arrays, vectors and text.
///
/// ```
/// # use situ_engine as situ;
/// # fn main() -> situ::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let store = situ::Store::open(directory.path())?;
/// store.put("ada", "1815")?;
/// let value = store.get("ada")?.unwrap();
/// assert_eq!(value, "1815");
/// assert_eq!(value.len(), 4);
/// assert_eq!(std::str::from_utf8(&value).unwrap(), "1815");
/// let bytes: Vec<u8> = value.into();
/// # drop(bytes);
/// # store.close()
/// # }
/// ```
#[derive(Clone)]
pub struct Value(ValueBytes);

/// The length from which a copy has an allocation of its own, apart from its reference count.
const LARGE_BYTES: usize = 4 << 10;

#[derive(Clone)]
enum ValueBytes {
    Owned(Arc<[u8]>),
    /// A copy whose memory the system may refuse.
    Large(Arc<Vec<u8>>),
    InBlock(ValueRef),
    InLog(Arc<situ_values::Value>),
}

impl Value {
    /// Copies a value.
    ///
    /// # Errors
    /// There is no memory for a value of [`LARGE_BYTES`] or more. A smaller one is as any other small allocation.
    pub(crate) fn copied(bytes: &[u8]) -> Result<Value> {
        Ok(Value(match bytes.len() {
            0..LARGE_BYTES => ValueBytes::Owned(bytes.into()),
            _ => ValueBytes::Large(Arc::new(copied(bytes, "a value")?)),
        }))
    }

    pub(crate) fn shared(bytes: Arc<[u8]>) -> Value {
        Value(ValueBytes::Owned(bytes))
    }

    pub(crate) fn in_log(value: situ_values::Value) -> Value {
        Value(ValueBytes::InLog(Arc::new(value)))
    }

    pub(crate) fn in_block(value: ValueRef) -> Value {
        Value(ValueBytes::InBlock(value))
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            ValueBytes::Owned(bytes) => bytes,
            ValueBytes::Large(bytes) => bytes,
            ValueBytes::InBlock(value) => value,
            ValueBytes::InLog(value) => value,
        }
    }
}

/// The byte traits of both types.
macro_rules! bytes_like {
    ($name:ident) => {
        impl AsRef<[u8]> for $name {
            #[inline]
            fn as_ref(&self) -> &[u8] {
                self
            }
        }

        impl Borrow<[u8]> for $name {
            fn borrow(&self) -> &[u8] {
                self
            }
        }

        impl From<$name> for Vec<u8> {
            fn from(bytes: $name) -> Vec<u8> {
                bytes.to_vec()
            }
        }

        impl From<$name> for Box<[u8]> {
            fn from(bytes: $name) -> Box<[u8]> {
                (*bytes).into()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), Excerpt(self))
            }
        }

        impl Eq for $name {}

        impl PartialEq for $name {
            fn eq(&self, other: &$name) -> bool {
                **self == **other
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &$name) -> Ordering {
                (**self).cmp(&**other)
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &$name) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                (**self).hash(state);
            }
        }

        compares_with!($name: [u8], str, Vec<u8>, String);
        compares_with!($name: by reference [u8], str);
        compares_with!($name: array [u8; N], &[u8; N]);
    };
}

/// Equality with other forms of bytes, from both sides.
macro_rules! compares_with {
    ($name:ident: $($other:ty),*) => {
        $(compares_with!(one $name, $other, []);)*
    };
    ($name:ident: by reference $($other:ty),*) => {
        $(compares_with!(one $name, &$other, []);)*
    };
    ($name:ident: array $($other:ty),*) => {
        $(compares_with!(one $name, $other, [const N: usize]);)*
    };
    (one $name:ident, $other:ty, [$($generic:tt)*]) => {
        impl<$($generic)*> PartialEq<$other> for $name {
            fn eq(&self, other: &$other) -> bool {
                **self == *AsRef::<[u8]>::as_ref(other)
            }
        }

        impl<$($generic)*> PartialEq<$name> for $other {
            fn eq(&self, other: &$name) -> bool {
                other == self
            }
        }
    };
}

bytes_like!(Key);
bytes_like!(Value);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// A log line about a value of 30 MB took 120 MB.
    #[test]
    fn what_carries_bytes_of_users_is_short_in_messages() {
        const SHOWN_MAX: usize = 400;
        let long = vec![0xff; 60_000];
        let mut batch = crate::WriteBatch::new();
        batch.put(&long, &long).unwrap();
        let wait = crate::LockWait { transaction: 1, keyspace: "k".to_owned(), key: long.clone(), waits_for: 2 };
        let shown = [
            format!("{:?}", Key::copied(&long)),
            format!("{:?}", Value::copied(&long).unwrap()),
            format!("{:?}", crate::ScanEntry { key: long.clone().into(), value: long.clone().into() }),
            format!("{:?}", crate::Error::Conflict { keyspace: "k".to_owned(), key: Key::copied(&long) }),
            crate::Error::Conflict { keyspace: "k".to_owned(), key: Key::copied(&long) }.to_string(),
            format!("{wait:?}"),
            format!("{}", crate::Error::LockTimeout { wait: Box::new(wait), waited_ms: 1 }),
        ];
        for text in shown {
            assert!(text.len() <= 2 * SHOWN_MAX && text.contains("60") && !text.contains("255"), "{text}");
        }
        assert_eq!(format!("{batch:?}"), "WriteBatch(1 changes, 120008 bytes)");
        assert_eq!(format!("{:?}", Key::copied(b"ada\n")), "Key(ada\\n)");
    }

    #[test]
    fn keys_and_values_compare_with_all_forms_of_bytes() {
        let (key, value) = (Key::copied(b"ada"), Value::copied(b"1815").unwrap());
        assert_eq!(key, "ada");
        assert_eq!(key, b"ada");
        assert_eq!(key, *b"ada");
        assert_eq!(key, b"ada"[..]);
        assert_eq!(key, &b"ada"[..]);
        assert_eq!(key, b"ada".to_vec());
        assert_eq!(key, "ada".to_owned());
        assert_eq!("ada", key);
        assert_eq!(b"1815", value);
        assert_eq!(b"1815".to_vec(), value);
        assert_ne!(value, "1816");
        assert!(key == *"ada" && Key::copied(b"adb") > key);
        assert_eq!(format!("{key:?} {value:?}"), "Key(ada) Value(1815)");
        assert_eq!((Vec::from(key), Vec::from(value)), (b"ada".to_vec(), b"1815".to_vec()));
    }

    #[test]
    fn keys_of_every_length_around_the_bound_are_whole() {
        for len in 0..=2 * INLINE_BYTES_MAX {
            let bytes: Vec<u8> = (0..len as u8).collect();
            let key = Key::copied(&bytes);
            assert_eq!(key, bytes);
            assert_eq!(key.clone(), key);
        }
        assert_eq!(size_of::<Key>(), 32, "a length, the bytes, and which of the two it is");
    }

    #[test]
    fn a_map_by_key_is_searched_by_bytes() {
        let map = HashMap::from([(Key::copied(b"ada"), 1)]);
        assert_eq!(map.get(&b"ada"[..]), Some(&1));
    }
}
