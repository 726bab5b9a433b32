//! Values, and keys, that C owns.

use crate::arguments::give;
use crate::error::{Failure, boxed, free};
use std::ffi::c_void;
use std::ops::Deref;
use std::ptr;
use store::{Key, Value};

/// The memory behind a value.
pub struct situ_owner(Owner);

enum Owner {
    Key(Key),
    Value(Value),
    Text(Vec<u8>),
}

/// Bytes that a call returned. The caller frees them with situ_value_free. They may share the store's cache, so nothing
/// was copied: free them soon. They outlive the store.
#[repr(C)]
pub struct situ_value {
    /// The first byte; NULL if there is no value.
    pub data: *const c_void,
    /// The number of bytes.
    pub bytes: usize,
    /// The memory that the bytes lie in.
    pub owner: *mut situ_owner,
}

/// Frees the bytes of a value. Does nothing for NULL, and for a value that was freed or never given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_value_free(value: *mut situ_value) {
    // SAFETY: the caller gives NULL, or a value that this library has filled.
    if let Some(value) = unsafe { value.as_mut() } {
        // SAFETY: the owner is NULL or of this library, and used no more.
        unsafe { free(value.owner) };
        *value = situ_value::none();
    }
}

impl situ_value {
    pub(crate) fn none() -> situ_value {
        situ_value { data: ptr::null(), bytes: 0, owner: ptr::null_mut() }
    }

    fn of(owner: Owner) -> situ_value {
        let owner = boxed(situ_owner(owner));
        // SAFETY: it was made just now. The bytes stay where they are until the owner is freed.
        let bytes: &[u8] = match unsafe { &(*owner).0 } {
            Owner::Key(key) => key,
            Owner::Value(value) => value.deref(),
            Owner::Text(text) => text,
        };
        situ_value { data: bytes.as_ptr().cast(), bytes: bytes.len(), owner }
    }
}

impl From<Value> for situ_value {
    fn from(value: Value) -> situ_value {
        situ_value::of(Owner::Value(value))
    }
}

impl From<Key> for situ_value {
    fn from(key: Key) -> situ_value {
        situ_value::of(Owner::Key(key))
    }
}

impl From<Vec<u8>> for situ_value {
    fn from(text: Vec<u8>) -> situ_value {
        situ_value::of(Owner::Text(text))
    }
}

/// Makes the place for a value empty, so that it can be freed whatever follows.
pub(crate) unsafe fn empty(place: *mut situ_value, name: &str) -> Result<(), Failure> {
    // SAFETY: as for `give`.
    unsafe { give(place, situ_value::none(), name) }
}
