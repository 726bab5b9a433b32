//! The options of a cache.

/// The options of a cache. The defaults fit most uses; only the memory has to be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Memory in bytes, index and all included. The default is 64 MiB, the least 4 MiB.
    pub memory_bytes: usize,
    /// Threads that store at the same time without waiting for each other. The default is the number of processors.
    pub lanes: usize,
    /// Bytes of a segment: memory is given out and taken back in such pieces. The default is 1 MiB, or about a 256th of
    /// a small memory.
    pub segment_bytes: usize,
    /// The small queue's share of memory in percent, where items are on probation. The default is 10, as S3-FIFO's.
    pub small_percent: usize,
    /// Reads that take an item from the small queue to the main queue. The default is 1: `examples/hit_ratio.rs` finds
    /// it a little better than S3-FIFO's 2.
    pub move_at: u8,
    /// Lets items that expire at about the same time share segments, which then go as a whole. The default is true. A
    /// small memory has too few segments for it.
    pub ttl_classes: bool,
    /// The approximate length of an item. It only decides the number of gone keys that the cache remembers. The default
    /// is 256.
    pub item_bytes_about: usize,
    /// Rules of the tier on flash, if the cache has one.
    pub flash: FlashRules,
}

/// Rules for items that go to flash, and for those that come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlashRules {
    /// The items that go from memory to flash. The default is [`Admission::All`].
    pub admission: Admission,
    /// Stored items shorter than this do not go to flash, in bytes. The default is 0.
    pub item_bytes_min: usize,
    /// The number of reads on flash after which an item goes back to memory. The default is 2; 0 keeps all on flash.
    pub promote_at: u8,
    /// Rewrites an item that was read on flash when its segment goes. The default is true.
    pub reinserts: bool,
    /// Longer reads are split into pieces of this length that are in flight at once, in bytes, where the device has
    /// queues. The default is 128 KiB: an item of 1 MB comes in 1.1 ms instead of 1.3, and for half of the processor
    /// time (`docs/evidence/cache.md`).
    pub piece_bytes: usize,
}

impl Default for FlashRules {
    fn default() -> FlashRules {
        FlashRules {
            admission: Admission::All,
            item_bytes_min: 0,
            promote_at: 2,
            reinserts: true,
            piece_bytes: 128 << 10,
        }
    }
}

/// The items that go from memory to flash when memory needs their room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Admission {
    /// All: most hits.
    #[default]
    All,
    /// Those that were read in memory, or were stored again soon after they had gone: fewer writes of the drive.
    Read,
}

/// The least memory.
pub const MEMORY_BYTES_MIN: usize = 4 << 20;

impl Options {
    /// Returns the defaults for this much memory, in bytes. Less than 4 MiB counts as 4 MiB.
    #[must_use]
    pub fn of_memory(memory_bytes: usize) -> Options {
        let memory_bytes = memory_bytes.max(MEMORY_BYTES_MIN);
        let lanes = std::thread::available_parallelism().map_or(1, usize::from);
        let segment_bytes = (memory_bytes / 256).next_power_of_two().clamp(64 << 10, 1 << 20);
        Options {
            memory_bytes,
            lanes,
            segment_bytes,
            small_percent: 10,
            move_at: 1,
            ttl_classes: true,
            item_bytes_about: 256,
            flash: FlashRules::default(),
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options::of_memory(64 << 20)
    }
}
