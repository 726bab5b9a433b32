//! What a cache is made with.

/// What a cache is made with. The defaults fit most uses; only the memory has to be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Memory in bytes, index and all included. The default is 64 MiB, the least 4 MiB.
    pub memory_bytes: usize,
    /// Threads that store at the same time without waiting for each other. The default is the number of processors.
    pub lanes: usize,
    /// Bytes of a segment: memory is given out and taken back in such pieces. The default is 1 MiB, or about a 256th of a small memory.
    pub segment_bytes: usize,
    /// The small queue's share of memory in percent, where items are on probation. The default is 10, as S3-FIFO's.
    pub small_percent: usize,
    /// Reads that take an item from the small queue to the main queue. The default is 1: `examples/hit_ratio.rs` finds it a little better
    /// than S3-FIFO's 2.
    pub move_at: u8,
    /// About how long an item is. It only says how many keys are remembered that have gone. The default is 256.
    pub item_bytes_about: usize,
}

/// The least memory.
pub const MEMORY_BYTES_MIN: usize = 4 << 20;

impl Options {
    /// The defaults for so much memory, in bytes. Less than 4 MiB counts as 4 MiB.
    #[must_use]
    pub fn of_memory(memory_bytes: usize) -> Options {
        let memory_bytes = memory_bytes.max(MEMORY_BYTES_MIN);
        let lanes = std::thread::available_parallelism().map_or(1, usize::from);
        let segment_bytes = (memory_bytes / 256).next_power_of_two().clamp(64 << 10, 1 << 20);
        Options { memory_bytes, lanes, segment_bytes, small_percent: 10, move_at: 1, item_bytes_about: 256 }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options::of_memory(64 << 20)
    }
}
