//! Blocks: a few kilobytes of sorted, prefix-compressed entries, or of index entries.
//!
//! ```text
//! entries ... | restart 0 (u32) ... restart n-1 (u32) | n (u32)
//! entry: shared, unshared, value length (varints) | key suffix | trailer (u64) | value
//! ```
//!
//! An entry's user key is the first `shared` bytes of the entry before it, then its suffix. Every `restart_interval`
//! entries `shared` is 0 and the entry's offset is in the restart array. A search
//! 1. finds by bisection the last restart whose key is before the target, comparing whole keys in place;
//! 2. walks from there. The prefix that the target has in common with the entry before decides most entries by their
//!    `shared` alone. So keys are not put together on the way ([`BlockCursor::seek`]).
//!
//! Index blocks are blocks with a restart at every entry: bisection is the whole search, and entry `i` is at hand. When
//! one is loaded, the eight bytes of each key behind their common prefix are put side by side ([`Heads`]). A search
//! bisects these numbers and looks at keys only where they are equal.
//!
//! **Invariants**: everything here is total over arbitrary bytes. A malformed entry is [`Malformed`], and a caller adds
//! file and offset. **Threads**: a [`Block`] is immutable once shared.

use crate::format::{BlockHandle, Damage, HANDLE_BYTES, KEY_TRAILER_BYTES, get_varint, varint_bytes};
use crate::key::{KeyRef, Trailer};
use situ_base::bytes::{put_varint, u32_at};
use std::cmp::Ordering;
use std::sync::Arc;

mod builder;
mod cursor;
mod raw;

pub(crate) use builder::BlockBuilder;
pub(crate) use cursor::BlockCursor;
pub(crate) use raw::BuiltLengths;
pub use raw::{EncodedBlock, RawBlock};

/// An entry that cannot be decoded, at this byte of its (uncompressed) block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) usize);

/// A block in memory, uncompressed.
#[derive(Debug, Default)]
pub struct Block {
    bytes: Vec<u8>,
    /// The end of the entries and the start of the restart array.
    entries_end: usize,
    restart_count: usize,
    /// The offset in the file; for messages.
    file_offset: u64,
    /// The heads of an index block; empty otherwise.
    heads: Heads,
}

/// The bytes that tell the keys of an index block apart, in little memory.
#[derive(Debug, Default)]
struct Heads {
    /// The number of bytes that all keys have in common.
    common: usize,
    /// The next eight bytes of each key, most significant first, zeros behind its end: ascending as the keys are.
    heads: Vec<u64>,
}

/// Returns the eight bytes of `key` from `at` as a number that compares as they do.
#[inline]
fn head(key: &[u8], at: usize) -> u64 {
    let rest = key.get(at..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        }
    }
}

/// One entry as it is stored. All ranges lie inside the block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawEntry<'a> {
    pub(crate) shared: usize,
    pub(crate) suffix: &'a [u8],
    pub(crate) trailer: Trailer,
    pub(crate) value_start: usize,
    /// The end of the value and the start of the next entry.
    pub(crate) next: usize,
}

impl Block {
    /// Takes an uncompressed block of a table at `file_offset`.
    pub(crate) fn new(bytes: Vec<u8>, file_offset: u64) -> Result<Block, Damage> {
        let mut block = Block { bytes, file_offset, ..Block::default() };
        block.find_restarts()?;
        Ok(block)
    }

    /// Like [`new`](Block::new), for an index block.
    pub(crate) fn new_index(bytes: Vec<u8>, file_offset: u64) -> Result<Block, Damage> {
        let mut block = Block::new(bytes, file_offset)?;
        block.heads = block.find_heads().map_err(|Malformed(at)| {
            Damage::new("a sequence of entries", format!("something else at its byte {at}"))
        })?;
        Ok(block)
    }

    fn find_heads(&self) -> Result<Heads, Malformed> {
        let Some(last) = self.restart_count.checked_sub(1) else { return Ok(Heads::default()) };
        // They are sorted: what the first and the last share, all do.
        let common = crate::format::common_prefix(self.restart_key(0)?.user, self.restart_key(last)?.user);
        let heads: Result<Vec<u64>, Malformed> =
            (0..self.restart_count).map(|i| Ok(head(self.restart_key(i)?.user, common))).collect();
        Ok(Heads { common, heads: heads? })
    }

    /// Returns an empty block, to be filled in this memory.
    pub(crate) fn in_memory(bytes: Vec<u8>) -> Block {
        Block { bytes, ..Block::default() }
    }

    /// Returns the memory that it lies in.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Replaces the contents, keeping the memory: `fill` gets the old buffer.
    pub(crate) fn refill(
        &mut self,
        file_offset: u64,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), Damage>,
    ) -> Result<(), Damage> {
        (self.entries_end, self.restart_count, self.file_offset) = (0, 0, file_offset);
        fill(&mut self.bytes)?;
        self.find_restarts()
    }

    fn find_restarts(&mut self) -> Result<(), Damage> {
        let length = self.bytes.len();
        let count_at =
            length.checked_sub(4).ok_or_else(|| Damage::new("a restart count", format!("{length} bytes")))?;
        let count = u32_at(&self.bytes, count_at) as usize;
        let entries_end = count
            .checked_mul(4)
            .and_then(|array| count_at.checked_sub(array))
            .ok_or_else(|| Damage::new(format!("{count} restarts"), format!("a block of {length} bytes")))?;
        if (count == 0) != (entries_end == 0) {
            return Err(Damage::new("a restart for the first entry", format!("{count} restarts, {entries_end} bytes")));
        }
        (self.entries_end, self.restart_count) = (entries_end, count);
        Ok(())
    }

    /// Returns the offset of the block in the file.
    pub fn file_offset(&self) -> u64 {
        self.file_offset
    }

    /// Its bytes, uncompressed: entries, restarts, count.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the memory it takes, this struct included.
    pub fn memory_bytes(&self) -> usize {
        // The two counters of the Arc that holds it.
        self.bytes.capacity() + 8 * self.heads.heads.capacity() + size_of::<Block>() + 16
    }

    pub(crate) fn entries_end(&self) -> usize {
        self.entries_end
    }

    /// Returns the number of restarts; in an index block, the number of entries.
    #[inline]
    pub(crate) fn restart_count(&self) -> usize {
        self.restart_count
    }

    /// Returns the offset of restart `i`, which must be one of them.
    #[inline]
    pub(crate) fn restart(&self, i: usize) -> usize {
        u32_at(&self.bytes, self.entries_end + 4 * i) as usize
    }

    /// Returns the entry that begins at byte `at`.
    #[inline]
    pub(crate) fn entry(&self, at: usize) -> Result<RawEntry<'_>, Malformed> {
        decode_entry(self.bytes.get(..self.entries_end).unwrap_or_default(), at).ok_or(Malformed(at))
    }

    /// Returns a piece of the entries; empty if it does not exist.
    #[inline]
    pub(crate) fn slice(&self, start: usize, end: usize) -> &[u8] {
        self.bytes.get(start..end).unwrap_or_default()
    }

    /// Returns the whole key stored at restart `i`.
    #[inline]
    fn restart_key(&self, i: usize) -> Result<KeyRef<'_>, Malformed> {
        let at = self.restart(i);
        let entry = self.entry(at)?;
        if entry.shared != 0 {
            return Err(Malformed(at));
        }
        Ok(KeyRef::new(entry.suffix, entry.trailer))
    }

    /// Returns the number of restarts, from the first, with a key before `target` (bisection; they are sorted).
    #[inline]
    fn restarts_before(&self, target: KeyRef<'_>) -> Result<usize, Malformed> {
        self.bisect(target, 0, self.restart_count)
    }

    /// Like [`restarts_before`](Block::restarts_before), where those before `low` are known to be before `target`, and
    /// those from `high` are known not to be.
    #[inline]
    fn bisect(&self, target: KeyRef<'_>, mut low: usize, mut high: usize) -> Result<usize, Malformed> {
        while low < high {
            let middle = low + (high - low) / 2;
            if self.restart_key(middle)?.cmp(&target) == Ordering::Less { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// Returns, in an index block, the first entry at or behind `target`, or the number of entries if there is none.
    #[inline]
    pub(crate) fn index_seek(&self, target: KeyRef<'_>) -> Result<usize, Malformed> {
        let Heads { common, heads } = &self.heads;
        if *common > 0 {
            let prefix = self.restart_key(0)?.user.get(..*common).unwrap_or_default();
            match target.user.get(..*common).unwrap_or(target.user).cmp(prefix) {
                Ordering::Less => return Ok(0),
                Ordering::Greater => return Ok(self.restart_count),
                Ordering::Equal => {}
            }
        }
        let wanted = head(target.user, *common);
        let low = heads.partition_point(|head| *head < wanted);
        let equal = heads.get(low..).unwrap_or_default().iter().take_while(|head| **head == wanted).count();
        self.bisect(target, low, low + equal)
    }

    /// Returns, in an index block, entry `i`, which must be one of them.
    #[inline]
    pub(crate) fn index_entry(&self, i: usize) -> Result<(KeyRef<'_>, BlockHandle), Malformed> {
        let at = self.restart(i);
        let entry = self.entry(at)?;
        match self.slice(entry.value_start, entry.next).first_chunk::<HANDLE_BYTES>() {
            Some(handle) if entry.shared == 0 && entry.next - entry.value_start == HANDLE_BYTES => {
                Ok((KeyRef::new(entry.suffix, entry.trailer), BlockHandle::decode(handle)))
            }
            _ => Err(Malformed(at)),
        }
    }

    /// Finds the first entry at or behind `target` without putting keys together.
    ///
    /// The walk keeps `matched`, how many bytes `target` has in common with the entry before, which is before
    /// `target`. An entry that shares more than that with its predecessor differs from `target` at the same byte, so it
    /// is before `target` too. Otherwise its first `shared` bytes are `target`'s, and only the suffix is compared.
    #[inline]
    pub(crate) fn seek(&self, target: KeyRef<'_>) -> Result<Option<(usize, RawEntry<'_>)>, Malformed> {
        let Some(restart) = self.restarts_before(target)?.checked_sub(1) else {
            // The first key is at or behind the target, or there is none.
            if self.restart_count == 0 {
                return Ok(None);
            }
            let entry = self.entry(0)?;
            return if entry.shared == 0 { Ok(Some((0, entry))) } else { Err(Malformed(0)) };
        };
        let mut at = self.restart(restart);
        let mut matched = 0;
        while at < self.entries_end {
            let entry = self.entry(at)?;
            if entry.shared <= matched {
                let rest = target.user.get(entry.shared..).ok_or(Malformed(at))?;
                let same = crate::format::common_prefix(entry.suffix, rest);
                let before = match (entry.suffix.get(same), rest.get(same)) {
                    (None, None) => entry.trailer > target.trailer,
                    (None, Some(_)) => true,
                    (Some(_), None) => false,
                    (Some(x), Some(y)) => x < y,
                };
                if !before {
                    return Ok(Some((at, entry)));
                }
                matched = entry.shared + same;
            }
            at = entry.next;
        }
        Ok(None)
    }
}

/// Decodes the entry at `at` of a block's entries. The lengths are those of three varints of at most 32 bits, so their
/// sum cannot overflow.
#[inline]
fn decode_entry(entries: &[u8], at: usize) -> Option<RawEntry<'_>> {
    let (shared, unshared, value_bytes, header) = match *entries.get(at..)? {
        [shared, unshared, value, ..] if (shared | unshared | value) < 0x80 => {
            (usize::from(shared), usize::from(unshared), usize::from(value), 3)
        }
        ref long => decode_long_header(long)?,
    };
    let suffix_start = at + header;
    let trailer_start = suffix_start + unshared;
    let value_start = trailer_start + KEY_TRAILER_BYTES;
    let next = value_start + value_bytes;
    if next > entries.len() {
        return None;
    }
    let suffix = entries.get(suffix_start..trailer_start)?;
    let trailer = entries.get(trailer_start..value_start)?.first_chunk::<8>()?;
    Some(RawEntry { shared, suffix, trailer: Trailer(u64::from_le_bytes(*trailer)), value_start, next })
}

#[cold]
fn decode_long_header(bytes: &[u8]) -> Option<(usize, usize, usize, usize)> {
    let (shared, a) = get_varint(bytes)?;
    let (unshared, b) = get_varint(bytes.get(a..)?)?;
    let (value, c) = get_varint(bytes.get(a + b..)?)?;
    Some((shared as usize, unshared as usize, value as usize, a + b + c))
}

/// Returns the number of bytes that an entry takes in a block.
#[inline]
pub(crate) fn entry_bytes(shared: usize, unshared: usize, value_bytes: usize) -> usize {
    varint_bytes(shared as u32)
        + varint_bytes(unshared as u32)
        + varint_bytes(value_bytes as u32)
        + unshared
        + KEY_TRAILER_BYTES
        + value_bytes
}

#[inline]
fn put_entry_header(out: &mut Vec<u8>, shared: usize, unshared: usize, value_bytes: usize) {
    if (shared | unshared | value_bytes) < 0x80 {
        out.extend_from_slice(&[shared as u8, unshared as u8, value_bytes as u8]);
    } else {
        put_varint(out, shared as u64);
        put_varint(out, unshared as u64);
        put_varint(out, value_bytes as u64);
    }
}

/// A value inside a block that it keeps alive.
#[derive(Debug, Clone)]
pub struct ValueRef {
    block: Arc<Block>,
    start: usize,
    end: usize,
}

impl ValueRef {
    #[inline]
    pub(crate) fn new(block: Arc<Block>, start: usize, end: usize) -> ValueRef {
        ValueRef { block, start, end }
    }
}

impl std::ops::Deref for ValueRef {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.block.slice(self.start, self.end)
    }
}

impl AsRef<[u8]> for ValueRef {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
mod tests;
