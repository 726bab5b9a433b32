//! The operations of a store on its keyspace `default`: every operation of [`Keyspace`], under the same name. A test
//! holds the two lists equal.

use super::Store;
use crate::Result;
use crate::api::async_read::{AtOnce, ScanOptions, ScanPage};
use crate::api::iter::Iter;
use crate::api::keyspace::Keyspace;
use crate::base::options::{Durability, SizeOptions};
use crate::base::range::KeyRange;
use crate::base::value::{Key, Value};
use crate::pipeline::future::WriteFuture;
use crate::read::cursor::Cursor;
use crate::read::future::ReadFuture;
use crate::read::options::ReadOptions;

/// Methods of [`Store`] that call the [`Keyspace`]'s method of the same name: those that return a result, then those
/// that return a future.
macro_rules! on_the_default_keyspace {
    (
        $(fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $output:ty;)*
        futures:
        $(fn $begin:ident(&self $(, $given:ident: $kind:ty)*) -> $future:ty;)*
    ) => {
        impl Store {
            $(
                #[doc = concat!("[`Keyspace::", stringify!($name), "`] of the keyspace `default`.")]
                ///
                /// # Errors
                /// See there.
                pub fn $name(&self $(, $argument: $type)*) -> Result<$output> {
                    self.default_keyspace().$name($($argument),*)
                }
            )*
            $(
                #[doc = concat!("[`Keyspace::", stringify!($begin), "`] of the keyspace `default`.")]
                pub fn $begin(&self $(, $given: $kind)*) -> $future {
                    self.default_keyspace().$begin($($given),*)
                }
            )*
        }

        #[cfg(test)]
        const NAMES: &[&str] = &[$(stringify!($name),)* $(stringify!($begin)),*];
    };
}

on_the_default_keyspace! {
    fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> ();
    fn put_with(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, durability: Durability) -> ();
    fn delete(&self, key: impl AsRef<[u8]>) -> ();
    fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> ();
    fn delete_range(&self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> ();
    fn delete_range_with(&self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>, durability: Durability) -> ();
    fn get(&self, key: impl AsRef<[u8]>) -> Option<Value>;
    fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Option<Value>;
    fn contains(&self, key: impl AsRef<[u8]>) -> bool;
    fn multi_get(&self, keys: &[impl AsRef<[u8]>]) -> Vec<Option<Value>>;
    fn multi_get_with(&self, keys: &[impl AsRef<[u8]>], options: &ReadOptions) -> Vec<Option<Value>>;
    fn iter(&self) -> Iter;
    fn iter_with(&self, options: &ReadOptions) -> Iter;
    fn range(&self, range: impl KeyRange) -> Iter;
    fn range_with(&self, range: impl KeyRange, options: &ReadOptions) -> Iter;
    fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter;
    fn prefix_with(&self, prefix: impl AsRef<[u8]>, options: &ReadOptions) -> Iter;
    fn first(&self) -> Option<(Key, Value)>;
    fn last(&self) -> Option<(Key, Value)>;
    fn is_empty(&self) -> bool;
    fn first_key(&self) -> Option<Key>;
    fn last_key(&self) -> Option<Key>;
    fn pop_first(&self) -> Option<(Key, Value)>;
    fn pop_last(&self) -> Option<(Key, Value)>;
    fn pop_first_with(&self, range: impl KeyRange, durability: impl Into<Option<Durability>>) -> Option<(Key, Value)>;
    fn pop_last_with(&self, range: impl KeyRange, durability: impl Into<Option<Durability>>) -> Option<(Key, Value)>;
    fn cursor(&self) -> Cursor;
    fn cursor_with(&self, options: &ReadOptions) -> Cursor;
    fn compact(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> ();
    fn approximate_bytes(&self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> u64;
    fn approximate_bytes_with(&self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>, options: &SizeOptions) -> u64;

    futures:
    fn put_async(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> WriteFuture;
    fn put_with_async(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, durability: Durability) -> WriteFuture;
    fn delete_async(&self, key: impl AsRef<[u8]>) -> WriteFuture;
    fn delete_with_async(&self, key: impl AsRef<[u8]>, durability: Durability) -> WriteFuture;
    fn delete_range_async(&self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> WriteFuture;
    fn delete_range_with_async(&self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>, durability: Durability) -> WriteFuture;
    fn get_async(&self, key: impl AsRef<[u8]>) -> ReadFuture;
    fn get_with_async(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> ReadFuture;
    fn multi_get_async(&self, keys: &[impl AsRef<[u8]>]) -> ReadFuture<Vec<Option<Value>>>;
    fn multi_get_with_async(&self, keys: &[impl AsRef<[u8]>], options: &ReadOptions) -> ReadFuture<Vec<Option<Value>>>;
    fn scan_async(&self, options: &ScanOptions) -> ReadFuture<ScanPage>;
}

impl Store {
    /// Calls [`Keyspace::get_at_once`] of the keyspace `default`.
    ///
    /// # Errors
    /// See there.
    pub fn get_at_once<'a>(&'a self, key: &'a [u8], options: &'a ReadOptions) -> Result<AtOnce<'a>> {
        self.default_keyspace().get_at_once(key, options)
    }

    /// Returns the keyspace called `default`. It always exists.
    pub fn default_keyspace(&self) -> &Keyspace {
        &self.inner.default
    }
}

#[cfg(test)]
mod tests {
    use super::NAMES;
    use std::collections::BTreeSet;

    /// Those with lifetimes, which the macro does not know.
    const BY_HAND: [&str; 1] = ["get_at_once"];

    /// Of these a store has its own, about all keyspaces; or they are about a keyspace, as its name.
    const OF_A_KEYSPACE_ALONE: [&str; 5] = ["name", "flush", "properties", "tables", "segments"];

    /// The public methods in the `impl Keyspace` blocks of a source.
    fn methods(source: &str) -> impl Iterator<Item = &str> {
        let blocks = source.split("\nimpl Keyspace {\n").skip(1).map(|rest| rest.split("\n}\n").next().unwrap());
        blocks.flat_map(|block| block.split("    pub fn ").skip(1)).map(|rest| rest.split(['(', '<']).next().unwrap())
    }

    #[test]
    fn a_store_has_what_its_default_keyspace_has() {
        let sources = [
            include_str!("../keyspace.rs"),
            include_str!("../iter.rs"),
            include_str!("../pop.rs"),
            include_str!("../async_read.rs"),
        ];
        let of_keyspace: BTreeSet<&str> = sources.iter().flat_map(|source| methods(source)).collect();
        let of_store: BTreeSet<&str> = NAMES.iter().chain(&OF_A_KEYSPACE_ALONE).chain(&BY_HAND).copied().collect();
        assert_eq!(of_store, of_keyspace);
    }
}
