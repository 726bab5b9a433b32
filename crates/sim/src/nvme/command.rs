//! Commands as they lie in a submission queue.

use situ_base::bytes::{u32_at, u64_at};

/// A kind of command, of the admin queue or of an I/O queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum NvmeCommand {
    /// I/O: flush.
    Flush,
    /// I/O: write.
    Write,
    /// I/O: read.
    Read,
    /// I/O: compare.
    Compare,
    /// I/O: write zeroes.
    WriteZeroes,
    /// I/O: dataset management.
    DatasetManagement,
    /// I/O: a command that the controller does not have.
    OtherIo,
    /// Admin: delete an I/O submission queue.
    DeleteSubmissionQueue,
    /// Admin: create an I/O submission queue.
    CreateSubmissionQueue,
    /// Admin: delete an I/O completion queue.
    DeleteCompletionQueue,
    /// Admin: create an I/O completion queue.
    CreateCompletionQueue,
    /// Admin: identify.
    Identify,
    /// Admin: abort.
    Abort,
    /// Admin: set features.
    SetFeatures,
    /// Admin: get features.
    GetFeatures,
    /// Admin: asynchronous event request.
    AsyncEventRequest,
    /// Admin: doorbell buffer config.
    DoorbellBufferConfig,
    /// Admin: a command that the controller does not have.
    OtherAdmin,
}

impl NvmeCommand {
    pub(super) fn new(is_admin: bool, opcode: u8) -> NvmeCommand {
        use NvmeCommand::*;
        match (is_admin, opcode) {
            (false, 0x00) => Flush,
            (false, 0x01) => Write,
            (false, 0x02) => Read,
            (false, 0x05) => Compare,
            (false, 0x08) => WriteZeroes,
            (false, 0x09) => DatasetManagement,
            (false, _) => OtherIo,
            (true, 0x00) => DeleteSubmissionQueue,
            (true, 0x01) => CreateSubmissionQueue,
            (true, 0x04) => DeleteCompletionQueue,
            (true, 0x05) => CreateCompletionQueue,
            (true, 0x06) => Identify,
            (true, 0x08) => Abort,
            (true, 0x09) => SetFeatures,
            (true, 0x0a) => GetFeatures,
            (true, 0x0c) => AsyncEventRequest,
            (true, 0x7c) => DoorbellBufferConfig,
            (true, _) => OtherAdmin,
        }
    }

    /// Returns true for a command of an I/O queue.
    pub fn is_io(self) -> bool {
        self <= NvmeCommand::OtherIo
    }
}

/// The bytes of an entry of a submission queue.
pub(super) const ENTRY_BYTES: usize = 64;

/// An entry of a submission queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) command: NvmeCommand,
    bytes: [u8; ENTRY_BYTES],
}

impl Entry {
    pub(super) fn new(is_admin: bool, bytes: [u8; ENTRY_BYTES]) -> Entry {
        Entry { command: NvmeCommand::new(is_admin, bytes[0]), bytes }
    }

    /// Returns the number that the host gave the command.
    pub(super) fn id(&self) -> u16 {
        (self.word(0) >> 16) as u16
    }

    /// Returns the kind of data pointer: 0 for PRPs.
    pub(super) fn pointer_kind(&self) -> u8 {
        self.bytes[1] >> 6
    }

    /// Returns true if it is one half of a pair of commands.
    pub(super) fn is_fused(&self) -> bool {
        self.bytes[1] & 3 != 0
    }

    pub(super) fn namespace(&self) -> u32 {
        self.word(1)
    }

    pub(super) fn word(&self, number: usize) -> u32 {
        u32_at(&self.bytes, 4 * number)
    }

    /// Returns the two addresses of the data pointer.
    pub(super) fn pages(&self) -> [u64; 2] {
        [u64_at(&self.bytes, 24), u64_at(&self.bytes, 32)]
    }

    /// Returns the SGL descriptor in the data pointer.
    pub(super) fn descriptor(&self) -> [u8; 16] {
        std::array::from_fn(|at| self.bytes[24 + at])
    }

    /// Returns words 10 and 11 as the address of a first block.
    pub(super) fn first_block(&self) -> u64 {
        u64_at(&self.bytes, 40)
    }
}
