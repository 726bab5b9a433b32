//! The operations and their messages (`docs/formats/node-protocol.md`).
//!
//! Each operation has a request and an answer. Both are structs with an encoder and a decoder that is total: any bytes
//! are a message or an error. [`Call`] ties a request to its operation and to its answer.
//!
//! What the messages say about files follows [`Volume`](situ_storage::Volume). Three things come from the network:
//!
//! * The caller numbers open files and writers ([`Open::handle`], [`Create::handle`]), each number once in a session.
//!   So a request that is sent again opens nothing twice.
//! * Bytes of a writer carry their offset. So an append that is sent again appends nothing twice.
//! * Requests that change something carry the token of the lease ([`Lock`]); 0 without one.
//!
//! What the one that serves files promises beyond that:
//!
//! * Open files, page files and writers belong to the session ([`Hello::session`]). They survive a lost connection for
//!   [`Welcome::session_ms`]. Their numbers are drawn from one set. A number that the server does not know is
//!   [`CallError::Unknown`](crate::CallError::Unknown): the client opens the file again by its name.
//! * [`Create`], [`CreatePages`], [`Open`] and [`OpenPages`] with a number that is open under the same name answer as
//!   they did before.
//! * Requests of one writer are done in the order in which they came; requests of others pass them. An append adds what
//!   the file does not have yet, which may be nothing. An append behind the end is an error. After an error, all
//!   requests of the writer get that error.
//! * [`WriterFinish`] with the number of a writer that has finished answers as it did before, for as long as the
//!   session is kept.
//! * [`Lock`] by the session that has the lease answers with the same token. [`Renew`] succeeds while no newer token
//!   was given out.
//! * A token that is not the newest one is [`CallError::Fenced`](crate::CallError::Fenced). So is 0 while a lease is in
//!   force.
//!
//! `volume` is 0 for the store's files on the node. A node that asks its host for files says by it which of the store's
//! volumes.

#[macro_use]
mod macros;
mod compute;

pub use compute::{CancelTask, LoadAnswer, PollTasks, Reserve, ReservedPlace, RunTask, TaskDone, TaskState, Tasks};
pub use compute::{GetLoad, Pace, PaceAnswer, PlaceVolumes, TaskOutcome, TellMeasures, VolumePlace};

use crate::fields::{Bytes, Field, Fields, Rest};
use situ_storage::{FileName, Result};
use std::time::Duration;

/// Bytes that have a meaning: the payload of a frame.
pub trait Message: Sized {
    /// The name, as on the page.
    const NAME: &'static str;

    /// Returns the names and types of the fields, as on the page.
    fn fields() -> Vec<(&'static str, String)>;

    /// Appends the bytes of all fields.
    fn put(&self, out: &mut Vec<u8>);

    /// Takes the fields off the front.
    ///
    /// # Errors
    /// The bytes are no such message.
    fn take(fields: &mut Fields<'_>) -> Result<Self>;

    /// Returns a message for golden bytes.
    #[cfg(test)]
    fn sample() -> Self;

    /// Encodes the message as bytes.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }

    /// Decodes the message that `payload` is.
    ///
    /// # Errors
    /// [`Corruption`](situ_storage::Error::Corruption): it is none.
    fn decode(payload: &[u8]) -> Result<Self> {
        let mut fields = Fields::of(Self::NAME, payload);
        let message = Self::take(&mut fields)?;
        fields.end()?;
        Ok(message)
    }
}

/// A request, with the operation that it asks for and the answer that it gets.
pub trait Call: Message {
    /// The operation that it asks for.
    const OPERATION: Operation;
    /// The answer that it gets.
    type Answer: Message;
}

/// The page's description of an operation.
#[cfg(test)]
pub(crate) struct Described {
    /// The answer's name.
    pub(crate) answer: &'static str,
    /// A request and an answer, as bytes.
    pub(crate) request_sample: Vec<u8>,
    pub(crate) answer_sample: Vec<u8>,
    /// Names and types of the request's fields.
    pub(crate) request_fields: Vec<(&'static str, String)>,
    /// Names and types of the answer's fields.
    pub(crate) answer_fields: Vec<(&'static str, String)>,
}

/// Decodes a message, and checks that it encodes to the same bytes.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn decode_and_encode<M: Message>(payload: &[u8]) {
    if let Ok(message) = M::decode(payload) {
        assert_eq!(message.encode(), payload, "{}", M::NAME);
    }
}

/// The subjects of operations: traffic is counted by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Greetings, heartbeats, leases, health and metrics.
    Control,
    /// Bytes of files to the reader.
    Read,
    /// Bytes of files from the writer.
    Write,
    /// Names and room.
    Names,
    /// Tasks.
    Compute,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 5] = [Class::Control, Class::Read, Class::Write, Class::Names, Class::Compute];

    /// Returns the name of the class, for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Class::Control => "control",
            Class::Read => "read",
            Class::Write => "write",
            Class::Names => "names",
            Class::Compute => "compute",
        }
    }
}

operations! {
    // The connection.
    Hello = 0x01, Control => Challenge;
    Prove = 0x02, Control => Welcome;
    Heartbeat = 0x03, Control => Done;
    Goodbye = 0x04, Control => Done;
    GetHealth = 0x05, Control => Health;
    GetMetrics = 0x06, Control => Metrics;
    // The right to write.
    Lock = 0x10, Control => Lease;
    Renew = 0x11, Control => Lease;
    Unlock = 0x12, Control => Done;
    // The volume.
    List = 0x20, Names => Listing;
    Stat = 0x21, Names => Found;
    GetSpace = 0x22, Names => Room;
    GetLogRoom = 0x23, Names => LogRoom;
    GetGeometry = 0x24, Names => GeometryAnswer;
    GetTroubles = 0x25, Names => Troubles;
    GetFailure = 0x26, Names => Failure;
    Tidy = 0x27, Names => Tidied;
    // Files on their way.
    Create = 0x30, Names => Opened;
    Append = 0x31, Write => Done;
    WriterSync = 0x32, Write => Done;
    WriterFlush = 0x33, Write => Done;
    WriterFinish = 0x34, Write => Done;
    WriterDrop = 0x35, Names => Done;
    Resume = 0x36, Names => Opened;
    // Finished files.
    Open = 0x40, Names => Opened;
    Read = 0x41, Read => ReadBytes;
    Prefetch = 0x42, Read => Done;
    Close = 0x43, Names => Done;
    Keep = 0x44, Names => Done;
    // Page files.
    CreatePages = 0x50, Names => Opened;
    OpenPages = 0x51, Names => Opened;
    WritePages = 0x52, Write => Done;
    SyncPages = 0x53, Write => Done;
    ReadPages = 0x54, Read => ReadBytes;
    PatchPages = 0x55, Write => Done;
    // Names.
    Replace = 0x60, Write => Done;
    Rename = 0x61, Names => Done;
    Remove = 0x62, Names => Done;
    SyncNames = 0x63, Names => Done;
    // Tasks.
    RunTask = 0x70, Compute => TaskDone;
    CancelTask = 0x71, Compute => Done;
    PollTasks = 0x72, Compute => Tasks;
    GetLoad = 0x73, Compute => LoadAnswer;
    Reserve = 0x74, Compute => ReservedPlace;
    Pace = 0x75, Compute => PaceAnswer;
    PlaceVolumes = 0x76, Compute => Done;
    TellMeasures = 0x77, Compute => Done;
}

messages! {
    /// The answer that says no more than that it is done.
    Done {}

    /// The host's first request: which versions it speaks, which store it wants. Only this is answered before
    /// [`Prove`].
    Hello {
        /// The oldest version of the protocol that the host speaks.
        version_min: u16,
        /// The newest one.
        version_max: u16,
        /// The store: a namespace on the node. Empty for a node that only computes.
        store: String,
        /// Drawn by the client when it begins. Open files, writers and the lease belong to it, and survive a lost
        /// connection.
        session: [u8; 16],
        /// Drawn for this connection.
        nonce: [u8; 32],
        /// The longest payload that the host takes.
        payload_bytes_max: u32,
        /// For the node's log: the host's name and process.
        from: String,
    }

    /// The node's first answer.
    Challenge {
        /// The version that both speak: the newest one.
        version: u16,
        /// True if the host has to prove that it knows the secret.
        secret: bool,
        /// Drawn for this connection.
        nonce: [u8; 32],
        /// The longest payload that the node takes.
        payload_bytes_max: u32,
    }

    /// The host's proof.
    Prove {
        /// HMAC-SHA256 of what was said so far, by the secret; zeros without a secret.
        proof: [u8; 32],
    }

    /// The host is let in.
    Welcome {
        /// The node's proof; zeros without a secret.
        proof: [u8; 32],
        /// Drawn when the daemon starts. Another one than before says that all sessions are new.
        daemon: [u8; 16],
        /// Drawn when the machine starts. Another one than before says that what was not synced may be lost.
        machine: [u8; 16],
        /// True if the node still has open files and writers of this session.
        session_known: bool,
        /// True if the node has files of its own; if not, it only computes.
        stores: bool,
        /// The time for which the node keeps open files and writers of a session without a connection, in milliseconds.
        session_ms: u32,
        /// For messages: the directory or the device on the node.
        location: String,
        /// For logs: the node's program and version.
        from: String,
    }

    /// One-way, both ways: the sender lives.
    Heartbeat {}

    /// The session ends: open files are closed, writers dropped, the lease is given back.
    Goodbye {}

    /// Asks how the node is.
    GetHealth {}

    /// The node's health.
    Health {
        /// True if it takes requests.
        ok: bool,
        /// Functions of the node that do not work as they should, for people.
        troubles: Vec<String>,
        /// Time since the daemon started.
        uptime: Duration,
    }

    /// Asks for the node's metrics.
    GetMetrics {}

    /// The node's metrics.
    Metrics {
        /// A metric message: its length, then (flag, length, value) for each metric, then a checksum.
        message: Bytes,
    }

    /// Asks for the right to write.
    Lock {
        /// Of which volume.
        volume: u32,
    }

    /// The right to write, for a while.
    Lease {
        /// Greater than all tokens before. Requests that change something carry it.
        token: u64,
        /// The lease ends this many milliseconds after its last renewal; then another session may take it.
        ttl_ms: u32,
    }

    /// Prolongs a lease.
    Renew {
        /// The lease's.
        token: u64,
    }

    /// Gives a lease back.
    Unlock {
        /// The lease's.
        token: u64,
    }

    /// Asks for the store's files, in the order of names.
    List {
        /// Of which volume.
        volume: u32,
        /// Begins behind this one.
        after: Option<FileName>,
    }

    /// Files of the store.
    Listing {
        /// Names and lengths.
        files: Vec<(FileName, u64)>,
        /// True if there are more behind the last one.
        more: bool,
    }

    /// Asks whether a file is there.
    Stat {
        /// On which volume.
        volume: u32,
        /// Which.
        name: FileName,
    }

    /// The presence of a file.
    Found {
        /// Its length, if it is there.
        bytes: Option<u64>,
    }

    /// Asks for room and use.
    GetSpace {
        /// Of which volume.
        volume: u32,
    }

    /// Room and use.
    Room {
        /// Addressable bytes.
        logical_total: u64,
        /// Addressable bytes in use.
        logical_used: u64,
        /// The bytes that the hardware really holds, where it compresses and says so.
        physical_used: Option<u64>,
    }

    /// Asks for the room that page files have to themselves.
    GetLogRoom {
        /// Of which volume.
        volume: u32,
    }

    /// The room that page files have to themselves, if they have.
    LogRoom {
        /// Bytes in all and bytes in use.
        total_and_used: Option<(u64, u64)>,
        /// The bytes that the hardware really holds, where it says so.
        physical_used: Option<u64>,
    }

    /// Asks for the device's geometry.
    GetGeometry {
        /// Of which volume.
        volume: u32,
    }

    /// The geometry of a device without a file system.
    GeometryAnswer {
        /// True if there is such a device. If not, all that follows is zero.
        known: bool,
        /// The smallest addressable unit.
        block_bytes: u32,
        /// A write of this many bytes is never torn.
        atomic_write_bytes: u32,
        /// The longest transfer.
        max_transfer_bytes: u32,
        /// True if acknowledged writes may be lost until a flush.
        volatile_write_cache: bool,
        /// The unit of discards; 0 if there are none.
        discard_bytes: u32,
        /// True if discarded bytes read as zero.
        discard_zeroes: bool,
    }

    /// Asks what the volume cannot do as it should.
    GetTroubles {
        /// Which volume.
        volume: u32,
    }

    /// The volume's troubles: functions that do not work as they should.
    Troubles {
        /// For people.
        troubles: Vec<String>,
    }

    /// Asks why the volume takes no changes.
    GetFailure {
        /// Which volume.
        volume: u32,
    }

    /// Why the volume takes no changes.
    Failure {
        /// The error, as in the payload of an answer that is an error; none while the volume takes changes.
        error: Option<Bytes>,
    }

    /// Has the volume do a part of what was put off.
    Tidy {
        /// The lease's.
        token: u64,
        /// Which volume.
        volume: u32,
    }

    /// A part is done.
    Tidied {
        /// True if there is more.
        more: bool,
    }

    /// Begins a file that is written once.
    Create {
        /// The lease's.
        token: u64,
        /// On which volume.
        volume: u32,
        /// The writer's number.
        handle: u64,
        /// The file's name.
        name: FileName,
        /// About how many bytes there will be at most.
        bound: u64,
    }

    /// Appends to a file on its way.
    Append {
        /// The lease's.
        token: u64,
        /// The writer's number.
        handle: u64,
        /// The offset of the bytes in the file.
        offset: u64,
        /// The bytes.
        data: Rest,
    }

    /// Makes what was appended durable.
    WriterSync {
        /// The lease's.
        token: u64,
        /// The writer's number.
        handle: u64,
        /// The number of bytes that were appended.
        written: u64,
    }

    /// Hands what was appended to the node's operating system.
    WriterFlush {
        /// The lease's.
        token: u64,
        /// The writer's number.
        handle: u64,
        /// The number of bytes that were appended.
        written: u64,
    }

    /// Syncs and closes. The file is immutable from now on.
    WriterFinish {
        /// The lease's.
        token: u64,
        /// The writer's number.
        handle: u64,
        /// The number of bytes that were appended.
        written: u64,
    }

    /// Gives a writer up. The file stays, with unknown contents.
    WriterDrop {
        /// The lease's.
        token: u64,
        /// The writer's number.
        handle: u64,
    }

    /// Goes on with a file on its way, after another daemon has forgotten the writer. What was synced of it is copied
    /// to a new file of this name; what is behind it is dropped.
    Resume {
        /// The lease's.
        token: u64,
        /// On which volume.
        volume: u32,
        /// The writer's number.
        handle: u64,
        /// The file's name.
        name: FileName,
        /// The number of bytes that were synced. Appends go on behind them.
        written: u64,
    }

    /// Opens a finished file.
    Open {
        /// On which volume.
        volume: u32,
        /// The number by which the client reads.
        handle: u64,
        /// The file's name.
        name: FileName,
    }

    /// A file is open.
    Opened {
        /// Its length; of a new writer, 0.
        bytes: u64,
        /// True if writes of pages wait for the device though they need not be durable.
        writes_wait: bool,
        /// For messages.
        path: String,
    }

    /// Reads ranges of an open file.
    Read {
        /// The open file.
        handle: u64,
        /// Offsets and lengths, in any order.
        ranges: Vec<(u64, u32)>,
    }

    /// The ranges that were asked for, one behind the other.
    ReadBytes {
        /// The bytes.
        data: Rest,
    }

    /// One-way: a range will be read soon.
    Prefetch {
        /// The open file.
        handle: u64,
        /// First byte.
        offset: u64,
        /// The number of bytes.
        bytes: u64,
    }

    /// Closes an open file or a page file.
    Close {
        /// Its number.
        handle: u64,
    }

    /// Closes all open files and page files of the session but these. The first request on a new connection of an old
    /// session.
    Keep {
        /// The numbers of those that stay open.
        handles: Vec<u64>,
    }

    /// Makes a page file.
    CreatePages {
        /// The lease's.
        token: u64,
        /// On which volume.
        volume: u32,
        /// The page file's number.
        handle: u64,
        /// The file's name.
        name: FileName,
        /// Its length.
        bytes: u64,
    }

    /// Opens a page file.
    OpenPages {
        /// On which volume.
        volume: u32,
        /// The page file's number.
        handle: u64,
        /// The file's name.
        name: FileName,
    }

    /// Writes whole pages.
    WritePages {
        /// The lease's.
        token: u64,
        /// The page file's number.
        handle: u64,
        /// The first page.
        first: u64,
        /// True if the pages are to survive power failure.
        durable: bool,
        /// The pages.
        data: Rest,
    }

    /// Makes the pages that were written durable.
    SyncPages {
        /// The lease's.
        token: u64,
        /// The page file's number.
        handle: u64,
    }

    /// Reads from a page file.
    ReadPages {
        /// The page file's number.
        handle: u64,
        /// First byte.
        offset: u64,
        /// The number of bytes.
        bytes: u32,
    }

    /// Writes whole pages, of which it carries what the node does not have yet: the pieces in which the first page
    /// differs from the node's image of it, or from zeros, and the others from zeros. A node without an image answers
    /// [`CallError::Unknown`](crate::CallError::Unknown), and has written nothing.
    PatchPages {
        /// The lease's.
        token: u64,
        /// The page file's number.
        handle: u64,
        /// The first page.
        first: u32,
        /// The number of pages: 16 at most.
        pages: u8,
        /// True if the pages are to survive power failure.
        durable: bool,
        /// True if the first page changes from its image; if not, it changes from zeros.
        on_image: bool,
        /// CRC-32C of the pages as they are to be.
        check: u32,
        /// Each an offset (u16), a length (u16) and `length` bytes, in the order of offsets, without overlap.
        pieces: Rest,
    }

    /// Puts contents in place of a small file, durably and as a whole.
    Replace {
        /// The lease's.
        token: u64,
        /// On which volume.
        volume: u32,
        /// The file's name.
        name: FileName,
        /// All that is to be in it.
        contents: Rest,
    }

    /// Changes a file's name.
    Rename {
        /// The lease's.
        token: u64,
        /// On which volume.
        volume: u32,
        /// The name that it has.
        from: FileName,
        /// The name that it gets.
        to: FileName,
    }

    /// Removes a file.
    Remove {
        /// The lease's.
        token: u64,
        /// On which volume.
        volume: u32,
        /// The file's name.
        name: FileName,
    }

    /// Makes renames and removals durable.
    SyncNames {
        /// The lease's.
        token: u64,
        /// On which volume.
        volume: u32,
    }
}

#[cfg(test)]
mod tests;
