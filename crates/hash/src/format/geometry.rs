//! The places and the length of buckets.

/// Bytes of a bucket.
pub const BUCKET_BYTES: usize = 4096;

/// Bytes before the first entry of a bucket.
pub const BUCKET_HEADER_BYTES: usize = 64;

/// Bytes that entries of a bucket may take.
pub const USABLE_BYTES: usize = BUCKET_BYTES - BUCKET_HEADER_BYTES;

/// Bytes of the bucket space before bucket 0.
pub const SPACE_HEADER_BYTES: usize = 65536;

/// Returns the offset of a bucket in the bucket space.
///
/// # Panics
/// No bucket space is so long: the number has more than [`BUCKET_BITS_MAX`](crate::format::address::BUCKET_BITS_MAX)
/// bits.
#[inline]
pub fn bucket_offset(number: u64) -> u64 {
    number
        .checked_mul(BUCKET_BYTES as u64)
        .and_then(|bytes| bytes.checked_add(SPACE_HEADER_BYTES as u64))
        .expect("no bucket space is so long")
}
