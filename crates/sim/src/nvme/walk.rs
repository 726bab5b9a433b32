//! From a command's data pointer to pieces of memory: physical region pages, and scatter-gather lists.

use super::command::Entry;
use super::memory::{Memory, Segment};
use super::status;
use situ_base::bytes::{u32_at, u64_at};
use std::sync::atomic::AtomicBool;

/// The controller's page, of which it has one size.
pub(super) const PAGE: u64 = 4096;

/// Descriptors that one command may have, a bound for lists that go round.
const DESCRIPTORS_MAX: usize = 1 << 16;

/// Finds the memory of commands.
pub(super) struct Walk<'a> {
    pub(super) memory: &'a Memory,
    pub(super) is_live: &'a AtomicBool,
    /// The queue takes scatter-gather lists.
    pub(super) has_lists: bool,
}

impl Walk<'_> {
    /// Returns the memory of a command that transfers `bytes` bytes, or the status of the refusal.
    pub(super) fn segments(&self, entry: &Entry, bytes: usize) -> Result<Vec<Segment>, u16> {
        match entry.pointer_kind() {
            0 => self.pages(entry.pages(), bytes),
            1 | 2 if self.has_lists => self.list(entry.descriptor(), bytes),
            _ => Err(status::INVALID_FIELD),
        }
    }

    fn read<const N: usize>(&self, address: u64) -> Result<[u8; N], u16> {
        let mut bytes = [0; N];
        self.memory.read(self.is_live, address, &mut bytes).map_err(|_| status::DATA_TRANSFER)?;
        Ok(bytes)
    }

    /// The first address may point into a page. The second one is a page, or a list of them if more than one is left.
    fn pages(&self, [first, second]: [u64; 2], bytes: usize) -> Result<Vec<Segment>, u16> {
        if !first.is_multiple_of(4) {
            return Err(status::PRP_OFFSET);
        }
        let page = PAGE as usize;
        let start = bytes.min(page - (first % PAGE) as usize);
        let mut segments = vec![Segment { address: first, bytes: start }];
        let mut left = bytes - start;
        if left == 0 {
            return Ok(segments);
        }
        if left <= page {
            segments.push(Segment { address: whole_page(second)?, bytes: left });
            return Ok(segments);
        }
        if !second.is_multiple_of(8) {
            return Err(status::PRP_OFFSET);
        }
        let mut list = second;
        while left > 0 {
            let is_last_of_page = list % PAGE == PAGE - 8;
            let pointer = whole_page(u64::from_le_bytes(self.read(list)?))?;
            // The last place of a page of the list names the next one, unless it is the last entry of all.
            if is_last_of_page && left > page {
                list = pointer;
                continue;
            }
            let part = left.min(page);
            segments.push(Segment { address: pointer, bytes: part });
            (left, list) = (left - part, list + 8);
        }
        Ok(segments)
    }

    fn list(&self, inline: [u8; 16], bytes: usize) -> Result<Vec<Segment>, u16> {
        let mut segments = Vec::new();
        let mut found = 0_usize;
        let mut add = |descriptor: &Descriptor| {
            let part = usize::try_from(descriptor.bytes).unwrap_or(usize::MAX);
            found = found.saturating_add(part);
            if part > 0 {
                segments.push(Segment { address: descriptor.address, bytes: part });
            }
        };
        let mut next = Descriptor::new(inline)?;
        let mut seen = 0;
        loop {
            if next.kind == Kind::Data {
                // Only the descriptor in the command comes here.
                add(&next);
                break;
            }
            let is_last_segment = next.kind == Kind::LastSegment;
            let count = next.bytes as usize / 16;
            if next.bytes == 0 || next.bytes % 16 != 0 || seen + count > DESCRIPTORS_MAX {
                return Err(status::SGL_SEGMENT);
            }
            seen += count;
            let (start, mut following) = (next.address, None);
            for number in 0..count {
                let descriptor = Descriptor::new(self.read(start + 16 * number as u64)?)?;
                match descriptor.kind {
                    Kind::Data => add(&descriptor),
                    _ if is_last_segment || number + 1 < count => return Err(status::SGL_SEGMENT),
                    _ => following = Some(descriptor),
                }
            }
            match following {
                Some(descriptor) => next = descriptor,
                None if is_last_segment => break,
                None => return Err(status::SGL_SEGMENT),
            }
        }
        if found == bytes { Ok(segments) } else { Err(status::SGL_LENGTH) }
    }
}

fn whole_page(address: u64) -> Result<u64, u16> {
    if address.is_multiple_of(PAGE) { Ok(address) } else { Err(status::PRP_OFFSET) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Data,
    Segment,
    LastSegment,
}

struct Descriptor {
    kind: Kind,
    address: u64,
    bytes: u32,
}

impl Descriptor {
    fn new(bytes: [u8; 16]) -> Result<Descriptor, u16> {
        // The type and its subtype, which says that the address is one of memory.
        let kind = match bytes[15] {
            0x00 => Kind::Data,
            0x20 => Kind::Segment,
            0x30 => Kind::LastSegment,
            _ => return Err(status::SGL_TYPE),
        };
        Ok(Descriptor { kind, address: u64_at(&bytes, 0), bytes: u32_at(&bytes, 8) })
    }
}
