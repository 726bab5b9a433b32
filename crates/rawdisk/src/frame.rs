//! A frame of the metadata journal: header, body, zeros up to the page's end (`docs/formats/disk.md`).

use super::layout::{DiskId, PAGE};
use situ_base::bytes::{Fields, Mismatch, is_zero, u32_at, u64_at};
use situ_device::{Buffer, PAGE_BYTES};

pub(super) const FRAME_MAGIC: [u8; 4] = *b"SJNL";
pub(super) const FRAME_VERSION: u8 = 1;
pub(super) const FRAME_HEADER_BYTES: usize = 64;
const HEADER_CHECKSUM_AT: usize = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Checkpoint = 1,
    Edits = 2,
    LongCheckpoint = 3,
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) id: DiskId,
    pub(super) epoch: u64,
    pub(super) sequence: u64,
    pub(super) body_bytes: u64,
    pub(super) body_checksum: u32,
    pub(super) previous_checksum: u32,
    /// Its own; what the next frame carries as `previous_checksum`.
    pub(super) checksum: u32,
}

/// Returns the number of pages of a frame with such a body.
pub(super) fn frame_pages(body_bytes: u64) -> u64 {
    body_bytes.saturating_add(FRAME_HEADER_BYTES as u64).div_ceil(PAGE)
}

/// Makes a frame, ready to be written; and its header checksum.
pub(super) fn encode(kind: Kind, id: DiskId, epoch: u64, sequence: u64, previous: u32, body: &[u8]) -> (Buffer, u32) {
    let mut buffer = Buffer::new(FRAME_HEADER_BYTES + body.len());
    let mut header = Vec::with_capacity(FRAME_HEADER_BYTES);
    header.extend(FRAME_MAGIC);
    header.extend([FRAME_VERSION, kind as u8, 0, 0]);
    header.extend(id.0);
    header.extend(epoch.to_le_bytes());
    header.extend(sequence.to_le_bytes());
    header.extend((body.len() as u64).to_le_bytes());
    header.extend(crc32c::crc32c(body).to_le_bytes());
    header.extend(previous.to_le_bytes());
    header.extend([0; 4]);
    let checksum = crc32c::crc32c(&header);
    header.extend(checksum.to_le_bytes());
    buffer[..FRAME_HEADER_BYTES].copy_from_slice(&header);
    buffer[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + body.len()].copy_from_slice(body);
    (buffer, checksum)
}

/// The reason why a page is not the start of a sound frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoFrame {
    /// Nothing that looks like a frame of this disk.
    Other(String),
    /// A sound header of another version.
    Version(u8),
}

/// Returns epoch and sequence of the frame whose header begins a page, if it is a sound one of this disk. Its body is
/// not looked at.
pub(super) fn peek(id: DiskId, page: &[u8]) -> Option<(u64, u64)> {
    let header = page.get(..FRAME_HEADER_BYTES)?;
    let checksum = u32_at(header, HEADER_CHECKSUM_AT);
    let is_ours = header[..4] == FRAME_MAGIC && header[8..24] == id.0;
    if !is_ours || checksum != crc32c::crc32c(&header[..HEADER_CHECKSUM_AT]) {
        return None;
    }
    Some((u64_at(header, 24), u64_at(header, 32)))
}

/// Returns the frame at the start of `pages`, which are what is left of a half.
pub(super) fn decode(id: DiskId, pages: &[u8]) -> Result<(Header, &[u8]), NoFrame> {
    let other = |why: String| NoFrame::Other(why);
    let header = pages.get(..FRAME_HEADER_BYTES).ok_or_else(|| other("no page".to_owned()))?;
    if header[..4] != FRAME_MAGIC {
        let what = if is_zero(header) { "zeros" } else { "no frame" };
        return Err(other(what.to_owned()));
    }
    let checksum = u32_at(header, HEADER_CHECKSUM_AT);
    let expected = crc32c::crc32c(&header[..HEADER_CHECKSUM_AT]);
    if checksum != expected {
        return Err(other(format!("header checksum {checksum:#010x} where its bytes give {expected:#010x}")));
    }
    let mut bytes = Fields(&header[4..]);
    let mut fields = || -> Result<_, Mismatch> {
        let (version, kind) = (bytes.u8("version")?, bytes.u8("kind")?);
        bytes.take(2, "padding")?;
        let frame_id = DiskId(bytes.array("id")?);
        let numbers = [bytes.u64("epoch")?, bytes.u64("sequence number")?, bytes.u64("length of the body")?];
        Ok((version, kind, frame_id, numbers, bytes.u32("checksum of the body")?, bytes.u32("previous checksum")?))
    };
    let (version, kind, frame_id, [epoch, sequence, body_bytes], body_checksum, previous_checksum) =
        fields().map_err(|mismatch| other(mismatch.into()))?;
    if frame_id != id {
        return Err(other(format!("a frame of disk {frame_id}")));
    }
    if version != FRAME_VERSION {
        return Err(NoFrame::Version(version));
    }
    let kind = match kind {
        1 => Kind::Checkpoint,
        2 => Kind::Edits,
        3 => Kind::LongCheckpoint,
        kind => return Err(other(format!("a frame of kind {kind}"))),
    };
    let end = usize::try_from(body_bytes).ok().and_then(|bytes| bytes.checked_add(FRAME_HEADER_BYTES));
    let body = end.and_then(|end| pages.get(FRAME_HEADER_BYTES..end));
    let body = body.ok_or_else(|| other(format!("a frame of {body_bytes} bytes, which does not fit")))?;
    let found = crc32c::crc32c(body);
    if found != body_checksum {
        return Err(other(format!("body checksum {body_checksum:#010x} where its bytes give {found:#010x}")));
    }
    let header = Header { kind, id: frame_id, epoch, sequence, body_bytes, body_checksum, previous_checksum, checksum };
    Ok((header, body))
}

const _: () = assert!(4 + 4 + 16 + 8 + 8 + 8 + 4 + 4 + 4 + 4 == FRAME_HEADER_BYTES && FRAME_HEADER_BYTES <= PAGE_BYTES);
