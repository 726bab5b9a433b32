//! Situ: the store as a C library. `include/situ.h` is made of the comments and declarations of this crate.
//!
//! A function takes the arguments of C apart first, into slices and references, and then calls the Rust library. No
//! panic crosses the border: it becomes `SITU_ERROR_INTERNAL`. Handles are boxes of the Rust types of the same names.
//!
//! **Unsafe.** The caller promises what the header says: pointers are valid for the length next to them, or NULL where
//! that is allowed, texts end with a zero, and a handle is not used after it was freed.

#![allow(non_camel_case_types, reason = "the names are those of C")]
#![allow(clippy::missing_safety_doc, reason = "the head of the header says it for all functions")]
#![allow(unreachable_pub, reason = "C reaches all of it")]

mod arguments;
mod asynchronous;
mod batch;
mod cursor;
mod error;
mod keyspace;
mod options;
mod read;
mod stack;
mod store;
mod transaction;
mod value;
