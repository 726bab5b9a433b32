//! The bytes of a trace: constants, and the fields of a record. `docs/formats/trace.md` describes them.

use std::time::Duration;

pub(crate) const MAGIC: [u8; 8] = *b"SITUTRCE";
pub(crate) const VERSION: u32 = 1;
pub(crate) const HEADER_BYTES: usize = 28;
/// The head of a frame: length, number of records, checksum.
pub(crate) const FRAME_HEAD_BYTES: usize = 12;
/// The longest contents of a frame.
pub(crate) const FRAME_BYTES_MAX: usize = 1 << 20;
/// The contents of the last frame: records, lost requests, duration.
pub(crate) const END_BYTES: usize = 24;
/// The length of the last frame.
pub const END_FRAME_BYTES: u64 = (FRAME_HEAD_BYTES + END_BYTES) as u64;
/// The fields of a record before its key.
pub(crate) const FIELDS_BYTES: usize = 20;
/// The bytes of a hashed key.
pub(crate) const HASH_BYTES: usize = 8;

/// The longest key of a request, in bytes.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;
/// The maximum length of a trace: offsets of records have four bytes.
pub const TRACE_BYTES_MAX: u64 = u32::MAX as u64;

const _: () = assert!(FIELDS_BYTES + KEY_BYTES_MAX <= FRAME_BYTES_MAX);

/// The form of the keys of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// Each key is a hash of eight bytes.
    Hashed,
    /// Keys as they are.
    Plain,
}

macro_rules! names {
    ($(#[doc = $doc:literal])+ $type:ident { $($(#[doc = $variant_doc:literal])+ $variant:ident = $number:literal $name:literal,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $type {
            $($(#[doc = $variant_doc])+ $variant = $number,)+
        }

        impl $type {
            /// All of them, by number.
            pub const ALL: &'static [$type] = &[$($type::$variant,)+];

            /// Returns the name.
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)+
                }
            }

            pub(crate) fn of(number: u8) -> Option<$type> {
                $type::ALL.get(usize::from(number)).copied()
            }
        }
    };
}

names! {
    /// The operation of a request.
    Operation {
        /// A retrieval of one key; one of several keys is as many records.
        Get = 0 "get",
        /// A retrieval that also sets the expiration time.
        GetAndTouch = 1 "gat",
        /// An unconditional store.
        Set = 2 "set",
        /// A store of an absent key.
        Add = 3 "add",
        /// A store of a present key.
        Replace = 4 "replace",
        /// Data behind those of an item.
        Append = 5 "append",
        /// Data before those of an item.
        Prepend = 6 "prepend",
        /// A store of an item that has not changed.
        Cas = 7 "cas",
        /// A removal.
        Delete = 8 "delete",
        /// An increment of a number.
        Incr = 9 "incr",
        /// A decrement of a number.
        Decr = 10 "decr",
        /// A new expiration time.
        Touch = 11 "touch",
    }
}

names! {
    /// The outcome of a request.
    Outcome {
        /// The key was not found, or the item was not stored.
        Miss = 0 "miss",
        /// The key was found, or the item was stored.
        Hit = 1 "hit",
        /// The server answered with an error.
        Failed = 2 "failed",
    }
}

/// A request of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The time from the beginning of the trace to that of the request, in whole microseconds.
    pub time: Duration,
    /// The time until the answer was ready to send, in whole microseconds, 71 minutes at most.
    pub latency: Duration,
    /// The operation.
    pub operation: Operation,
    /// The outcome.
    pub outcome: Outcome,
    /// The bytes of the value that was found or sent.
    pub value_bytes: u32,
    /// The length of the client's key, [`KEY_BYTES_MAX`] at most.
    pub key_bytes: u16,
    /// The key, or its hash.
    pub key: &'a [u8],
}

impl Request<'_> {
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&(self.time.as_micros() as u64).to_le_bytes());
        into.extend_from_slice(&u32::try_from(self.latency.as_micros()).unwrap_or(u32::MAX).to_le_bytes());
        into.extend_from_slice(&self.value_bytes.to_le_bytes());
        into.extend_from_slice(&self.key_bytes.to_le_bytes());
        into.extend_from_slice(&[self.operation as u8, self.outcome as u8]);
        into.extend_from_slice(self.key);
    }

    /// Reads the record at the beginning of `bytes`. Returns the request and the length of the record; the error says
    /// what is wrong.
    pub(crate) fn decode(bytes: &[u8], keys: Keys) -> std::result::Result<(Request<'_>, usize), &'static str> {
        let Some((fields, rest)) = bytes.split_at_checked(FIELDS_BYTES) else { return Err("a record is cut") };
        let key_bytes = u16::from_le_bytes([fields[16], fields[17]]);
        let kept = match keys {
            Keys::Hashed => HASH_BYTES,
            Keys::Plain => usize::from(key_bytes),
        };
        let request = Request {
            time: Duration::from_micros(u64_at(fields, 0)),
            latency: Duration::from_micros(u64::from(u32_at(fields, 8))),
            operation: Operation::of(fields[18]).ok_or("an operation is unknown")?,
            outcome: Outcome::of(fields[19]).ok_or("an outcome is unknown")?,
            value_bytes: u32_at(fields, 12),
            key_bytes,
            key: rest.get(..kept).ok_or("a key is cut")?,
        };
        Ok((request, FIELDS_BYTES + kept))
    }
}

/// Reads a field whose place is known to be there.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Reads a field whose place is known to be there.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Returns the checksum of a frame: of its length, its number of records, and its contents.
pub(crate) fn frame_checksum(head: &[u8], contents: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(head), contents)
}
