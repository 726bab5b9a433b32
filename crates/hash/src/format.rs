//! The bytes of a store and the rules of its addresses, without I/O (`docs/formats/hash.md`).

pub mod address;
pub mod bucket;
pub(crate) mod clock_file;
pub mod entry;
pub(crate) mod fields;
pub(crate) mod geometry;
pub mod image;
pub(crate) mod rebuild;
pub mod record;
pub mod space;
pub mod superblock;
