//! Options of a hash store: few, with units in their names and defaults that are right for a newcomer.

use crate::format::entry::INLINE_VALUE_BYTES_MAX;

/// The options with which a hash store is opened. A field says so if its value is laid down when the store is made;
/// later openings keep it.
///
/// ```
/// # mod situ { pub use situ_hash as hash; }
/// use situ::hash::HashOptions;
///
/// let options = HashOptions { pending_bytes_max: 64 << 20, ..HashOptions::default() };
/// assert_eq!(options.load_percent, 37);
/// ```
#[derive(Debug, Clone)]
pub struct HashOptions {
    /// Create the store if there is none. Default: true.
    pub create_if_missing: bool,
    /// log2 of the fewest buckets that the store ever has; laid down when the store is made. Default: 10, 4 MiB of
    /// address space. More spares a store that is to be filled at once the splits on the way.
    pub base_bits: u8,
    /// Address space of the bucket file in the home directory, in bytes, if no device is given. The file is sparse: it
    /// takes what is written. Default: 1 TiB. The store stops growing at its end, and buckets overflow more from then
    /// on.
    pub bucket_space_bytes: u64,
    /// Partitions, a power of two, each with a thread that applies writes to buckets. Default: 8. More where the device
    /// needs many threads to be busy; at most as many as 2^`base_bits`.
    pub partitions: usize,
    /// Writes that are logged and not yet in their buckets, in bytes. Writers wait beyond. Default: 16 MiB. More
    /// coalesces more writes into each write of a bucket.
    pub pending_bytes_max: u64,
    /// Average load of buckets, in percent of their bytes, at which the store grows. It shrinks below half of it.
    /// Default: 37, at which less than 1% of entries of 400 bytes overflow at any time. More saves address space and
    /// overflows more; longer entries overflow more.
    pub load_percent: u32,
    /// Values up to this length lie in their bucket, in bytes. Default: 1024. Longer ones go to the value log.
    pub inline_value_bytes_max: usize,
    /// Length of a segment of the value log, in bytes. Default: 64 MiB. A longer value has a segment of its own.
    pub value_segment_bytes: u64,
    /// Length of a log file, in bytes. Default: 16 MiB.
    pub log_file_bytes: u64,
    /// Log that is kept for recovery before a checkpoint gives it up, in bytes. Default: 64 MiB. More makes checkpoints
    /// rarer and opening after a crash slower.
    pub log_bytes_max: u64,
    /// Memory of the overflow store: one memtable, in bytes. Its cache has as much. Default: 4 MiB.
    pub overflow_memory_bytes: u64,
    /// Room for images of buckets that are being written, in bytes, on a device that may tear or lose such a write.
    /// Default: 16 MiB. The device is flushed each time the room is used up.
    pub image_bytes_max: u64,
    /// Buckets that are split or merged together at least. Default: 64. A group costs two durable writes.
    pub resize_buckets: u64,
}

impl Default for HashOptions {
    fn default() -> HashOptions {
        HashOptions {
            create_if_missing: true,
            base_bits: 10,
            bucket_space_bytes: 1 << 40,
            partitions: 8,
            pending_bytes_max: 16 << 20,
            load_percent: 37,
            inline_value_bytes_max: 1024,
            value_segment_bytes: 64 << 20,
            log_file_bytes: 16 << 20,
            log_bytes_max: 64 << 20,
            overflow_memory_bytes: 4 << 20,
            image_bytes_max: 16 << 20,
            resize_buckets: 64,
        }
    }
}

impl HashOptions {
    /// Puts values that cannot work into their bounds.
    pub(crate) fn bounded(mut self) -> HashOptions {
        self.base_bits = self.base_bits.clamp(2, 32);
        self.partitions = self.partitions.clamp(1, 256).next_power_of_two().min(1 << self.base_bits);
        self.inline_value_bytes_max = self.inline_value_bytes_max.min(INLINE_VALUE_BYTES_MAX);
        self.load_percent = self.load_percent.clamp(1, 95);
        self.resize_buckets = self.resize_buckets.clamp(1, 1 << self.base_bits);
        self.pending_bytes_max = self.pending_bytes_max.max(4096);
        self.image_bytes_max = self.image_bytes_max.max(IMAGE_BYTES_MIN);
        self
    }
}

/// Room for the images of one batch of each kind.
pub(crate) const IMAGE_BYTES_MIN: u64 = 320 << 10;
