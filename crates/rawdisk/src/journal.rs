//! The metadata journal: read back, and written on (`docs/formats/disk.md`).
//!
//! # Algorithm
//!
//! Changes are *emitted* under the volume's lock: applied to the catalogue, encoded behind what waits, counted. A
//! thread that needs a change durable calls [`Shared::commit`](super::Shared::commit) with its number. The first thread
//! that comes while no write is under way takes all that waits. It makes a frame of it and writes it with one durable
//! write, no lock held. Threads that come meanwhile wait, and one of them takes the next frame with all that has
//! gathered. If the frame does not fit into the rest of the half, the whole catalogue goes to the other half as a
//! checkpoint instead.
//!
//! **Invariants.** One frame is in flight at a time. The catalogue is the state after everything emitted.
//! **Failure.** After an error of the journal's write, the state of the journal is unknown. So the volume takes no
//! change any more until it is opened again. Reads go on.

use super::catalogue::{Catalogue, Edit, decode_extents, encode_extents};
use super::file::File;
use super::frame::{self, FRAME_HEADER_BYTES, Header, Kind, NoFrame, frame_pages};
use super::layout::{PAGE, Superblock};
use super::room::{Extent, pages_of};
use situ_base::bytes::Fields;
use situ_device::{Buffer, PAGE_BYTES};
use situ_storage::{Error, Result};
use std::sync::Arc;

/// The contents of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Replayed {
    pub(super) catalogue: Catalogue,
    pub(super) half: usize,
    pub(super) epoch: u64,
    pub(super) sequence: u64,
    /// The page of the next frame, in the half.
    pub(super) next_page: u64,
    pub(super) previous_checksum: u32,
    /// The place of the body of the checkpoint in force, if it is a long one.
    pub(super) long: Vec<Extent>,
}

/// A longer checkpoint is none: it would have millions of files.
const LONG_BYTES_MAX: u64 = 1 << 30;

/// A half that begins with a sound checkpoint.
struct Half {
    index: usize,
    header: Header,
    body: Vec<u8>,
    long: Vec<Extent>,
}

/// Reads a long checkpoint's body from its extents.
pub(super) type ReadLong<'a> = dyn FnMut(&[Extent], u64) -> Result<Vec<u8>> + 'a;

/// Reads the journal from the bytes of its halves. `location` is for errors.
pub(super) fn replay(
    layout: &Superblock,
    halves: [&[u8]; 2],
    location: &str,
    read_long: &mut ReadLong<'_>,
) -> Result<Replayed> {
    let mut found: Vec<Half> = Vec::new();
    let mut others: Vec<(usize, NoHalf)> = Vec::new();
    for (index, bytes) in halves.into_iter().enumerate() {
        match begin(layout, index, bytes, location, read_long)? {
            Ok(half) => found.push(half),
            Err(why) => others.push((index, why)),
        }
    }
    let rot = |half: usize, page: u64, expected: &str, found: String| {
        let offset = (layout.half_first(half) + page) * PAGE;
        Error::corruption(location, offset, format!("metadata journal, half {half}"), expected, found)
    };
    found.sort_by_key(|half| half.header.epoch);
    let Some(chosen) = found.pop() else {
        if let Some(error) = others.iter().find_map(|(_, other)| other.error.clone()) {
            return Err(error);
        }
        let why: Vec<String> = others.iter().map(|(half, other)| format!("{} in half {half}", other.why)).collect();
        return Err(rot(0, 0, "a checkpoint in one of the two halves", why.join(", ")));
    };
    if let Some(other) = found.pop().filter(|other| other.header.epoch == chosen.header.epoch) {
        return Err(rot(
            other.index,
            0,
            "another epoch than in the other half",
            format!("epoch {}", other.header.epoch),
        ));
    }
    for (index, other) in &others {
        // Its body was durable before its frame, and stays until the checkpoint after it is durable.
        if other.long_epoch.is_some_and(|epoch| epoch > chosen.header.epoch) {
            let expected = "the body of the checkpoint in force";
            return Err(other.error.clone().unwrap_or_else(|| rot(*index, 0, expected, other.why.clone())));
        }
        for page in 0..layout.half_pages {
            let sound = frame::decode(layout.id, &halves[*index][(page * PAGE) as usize..]);
            if matches!(sound, Ok((header, _)) if header.epoch > chosen.header.epoch) {
                return Err(rot(*index, 0, "the checkpoint before the edits that follow", other.why.clone()));
            }
        }
    }
    let body = &chosen.body;
    let catalogue =
        Catalogue::decode(*layout, body).map_err(|why| rot(chosen.index, 0, "a checkpoint that can be read", why))?;
    let mut replayed = Replayed {
        catalogue,
        half: chosen.index,
        epoch: chosen.header.epoch,
        sequence: chosen.header.sequence,
        next_page: frame_pages(chosen.header.body_bytes),
        previous_checksum: chosen.header.checksum,
        long: chosen.long,
    };
    let bytes = halves[chosen.index];
    let at = |page: u64| bytes.get((page * PAGE) as usize..).unwrap_or_default();
    loop {
        match frame::decode(layout.id, at(replayed.next_page)) {
            Ok((header, body)) if replayed.is_next(&header) => {
                let unreadable = |why| rot(chosen.index, replayed.next_page, "edits that can be applied", why);
                let edits = Edit::decode_all(body).map_err(unreadable)?;
                edits.into_iter().try_for_each(|edit| replayed.catalogue.apply(edit)).map_err(unreadable)?;
                replayed.sequence = header.sequence;
                replayed.previous_checksum = header.checksum;
                replayed.next_page += frame_pages(header.body_bytes);
            }
            Err(NoFrame::Version(version)) => return Err(newer(location, u32::from(version))),
            _ => break,
        }
    }
    for page in replayed.next_page..layout.half_pages {
        match frame::decode(layout.id, at(page)) {
            Ok((header, _)) if header.epoch == replayed.epoch && header.sequence > replayed.sequence => {
                let expected = format!("the edits of frame {}, before those of a later one", replayed.sequence + 1);
                return Err(rot(chosen.index, replayed.next_page, &expected, format!("frame {}", header.sequence)));
            }
            _ => {}
        }
    }
    Ok(replayed)
}

pub(super) fn newer(location: &str, version: u32) -> Error {
    Error::Invalid(format!(
        "{location} has version {version} of the disk format; use the Situ that wrote it, or a later one"
    ))
}

/// The reason why a half does not count.
struct NoHalf {
    why: String,
    /// The epoch of a sound frame that points to a body which is not there.
    long_epoch: Option<u64>,
    /// The reason why that body could not be read.
    error: Option<Error>,
}

/// Returns the checkpoint that a half begins with, or why it begins with none.
///
/// # Errors
/// It begins with a frame of a later version.
fn begin(
    layout: &Superblock,
    index: usize,
    bytes: &[u8],
    location: &str,
    read_long: &mut ReadLong<'_>,
) -> Result<Result<Half, NoHalf>> {
    let none = |why| Ok(Err(NoHalf { why, long_epoch: None, error: None }));
    let (header, body) = match frame::decode(layout.id, bytes) {
        Ok(frame) => frame,
        Err(NoFrame::Other(why)) => return none(why),
        Err(NoFrame::Version(version)) => return Err(newer(location, u32::from(version))),
    };
    let half = |body, long| Ok(Ok(Half { index, header, body, long }));
    match header.kind {
        Kind::Edits => none("edits without a checkpoint".to_owned()),
        Kind::Checkpoint => half(body.to_vec(), Vec::new()),
        Kind::LongCheckpoint => {
            let gone = |why, error| Ok(Err(NoHalf { why, long_epoch: Some(header.epoch), error }));
            let (body_bytes, checksum, long) = match decode_long(layout, body) {
                Ok(place) => place,
                Err(why) => return gone(why, None),
            };
            // The pages of an older checkpoint may belong to another file by now, or be bad: that is no harm.
            let body = match read_long(&long, body_bytes) {
                Ok(body) => body,
                Err(error) => return gone(error.to_string(), Some(error)),
            };
            let found = crc32c::crc32c(&body);
            if found == checksum {
                half(body, long)
            } else {
                gone(format!("a long checkpoint of checksum {found:#010x} where {checksum:#010x} was written"), None)
            }
        }
    }
}

fn decode_long(layout: &Superblock, body: &[u8]) -> Result<(u64, u32, Vec<Extent>), String> {
    let mut bytes = Fields(body);
    let (body_bytes, checksum) = (bytes.u64("length of the body")?, bytes.u32("checksum of the body")?);
    let count = bytes.u32("count of extents")? as usize;
    let extents = decode_extents(&mut bytes, count)?;
    let mut pages = 0u64;
    for extent in &extents {
        if !layout.top.contains(extent) {
            return Err(format!("a checkpoint in pages {}+{}, outside the TopFS area", extent.first, extent.pages));
        }
        pages = pages.saturating_add(extent.pages);
    }
    // More pages than the area has would be pages named twice; so the length is bounded by the device's.
    if pages > layout.top.pages || body_bytes.div_ceil(PAGE) > pages || body_bytes > LONG_BYTES_MAX {
        return Err(format!("a checkpoint of {body_bytes} bytes in {pages} pages"));
    }
    Ok((body_bytes, checksum, extents))
}

impl Replayed {
    fn is_next(&self, header: &Header) -> bool {
        header.kind == Kind::Edits
            && header.epoch == self.epoch
            && header.sequence == self.sequence.wrapping_add(1)
            && header.previous_checksum == self.previous_checksum
    }
}

/// The journal of an open volume.
pub(super) struct Journal {
    pub(super) half: usize,
    pub(super) epoch: u64,
    pub(super) sequence: u64,
    pub(super) next_page: u64,
    previous_checksum: u32,
    pub(super) long: Vec<Extent>,
    /// Set apart for the next long checkpoint.
    pub(super) reserve: Vec<Extent>,
    /// Encoded edits that no frame has yet.
    pending: Vec<u8>,
    pub(super) emitted: u64,
    pub(super) durable: u64,
    pub(super) writing: bool,
    /// Files that have lost their name by the edit of this number.
    pub(super) leaving: Vec<(u64, Arc<File>)>,
    pub(super) failed: Option<Error>,
    pub(super) frames: u64,
    pub(super) checkpoints: u64,
}

/// A frame to be written, and what holds when it is.
pub(super) struct Plan {
    pub(super) place: Extent,
    pub(super) frame: Buffer,
    /// The body of a long checkpoint, to be written first.
    pub(super) long: Option<(Vec<Extent>, Vec<u8>)>,
    is_checkpoint: bool,
    upto: u64,
    checksum: u32,
}

impl Journal {
    pub(super) fn new(replayed: &Replayed) -> Journal {
        Journal {
            half: replayed.half,
            epoch: replayed.epoch,
            sequence: replayed.sequence,
            next_page: replayed.next_page,
            previous_checksum: replayed.previous_checksum,
            long: replayed.long.clone(),
            reserve: Vec::new(),
            pending: Vec::new(),
            emitted: 0,
            durable: 0,
            writing: false,
            leaving: Vec::new(),
            failed: None,
            frames: 0,
            checkpoints: 0,
        }
    }

    /// Puts an edit behind what waits to be written; returns its number.
    pub(super) fn emit(&mut self, edit: &Edit) -> u64 {
        edit.encode(&mut self.pending);
        self.emitted += 1;
        self.emitted
    }

    /// Returns the next frame. `None` if a long checkpoint has no room.
    pub(super) fn plan(&mut self, layout: &Superblock, catalogue: &Catalogue) -> Option<Plan> {
        let pages = frame_pages(self.pending.len() as u64);
        let sequence = self.sequence + 1;
        let plan = if self.next_page + pages <= layout.half_pages {
            let previous = self.previous_checksum;
            let (frame, checksum) =
                frame::encode(Kind::Edits, layout.id, self.epoch, sequence, previous, &self.pending);
            let place = Extent { first: layout.half_first(self.half) + self.next_page, pages };
            Plan { place, frame, long: None, is_checkpoint: false, upto: self.emitted, checksum }
        } else {
            let reserve = || (pages_of(&self.reserve) > 0).then(|| self.reserve.clone());
            let checkpoint = checkpoint(layout, catalogue, self.epoch + 1, sequence, reserve)?;
            let (frame, checksum, long) = checkpoint;
            if long.is_some() {
                self.reserve = Vec::new();
            }
            let first = layout.half_first(1 - self.half);
            let place = Extent { first, pages: (frame.len() / PAGE_BYTES) as u64 };
            Plan { place, frame, long, is_checkpoint: true, upto: self.emitted, checksum }
        };
        self.pending.clear();
        Some(plan)
    }

    /// Notes that a frame is durable. Returns pages that no checkpoint needs any more.
    pub(super) fn landed(&mut self, plan: Plan) -> Vec<Extent> {
        self.durable = plan.upto;
        self.sequence += 1;
        self.previous_checksum = plan.checksum;
        self.frames += 1;
        if !plan.is_checkpoint {
            self.next_page += plan.place.pages;
            return Vec::new();
        }
        self.checkpoints += 1;
        self.half = 1 - self.half;
        self.epoch += 1;
        self.next_page = plan.place.pages;
        let long = plan.long.map_or_else(Vec::new, |(extents, _)| extents);
        let old = std::mem::replace(&mut self.long, long);
        // The two places for long checkpoints take turns.
        if pages_of(&self.reserve) >= pages_of(&old) { old } else { std::mem::replace(&mut self.reserve, old) }
    }
}

/// Returns the number of pages that a checkpoint frame may fill; what is longer is a long checkpoint.
pub(super) fn short_pages_max(layout: &Superblock) -> u64 {
    layout.half_pages / 2
}

/// Returns the number of pages in the TopFS area that a checkpoint of `body_bytes` takes; 0 if it is short.
pub(super) fn long_pages(layout: &Superblock, body_bytes: u64) -> u64 {
    if frame_pages(body_bytes) <= short_pages_max(layout) { 0 } else { body_bytes.div_ceil(PAGE) }
}

type Checkpoint = (Buffer, u32, Option<(Vec<Extent>, Vec<u8>)>);

/// Returns the frame of a checkpoint, its checksum, and where its body goes if it is long. `None` if that room is too
/// small.
fn checkpoint(
    layout: &Superblock,
    catalogue: &Catalogue,
    epoch: u64,
    sequence: u64,
    reserve: impl FnOnce() -> Option<Vec<Extent>>,
) -> Option<Checkpoint> {
    let body = catalogue.encode();
    let pages = long_pages(layout, body.len() as u64);
    if pages == 0 {
        let (frame, checksum) = frame::encode(Kind::Checkpoint, layout.id, epoch, sequence, 0, &body);
        return Some((frame, checksum, None));
    }
    let extents = reserve().filter(|extents| pages_of(extents) >= pages)?;
    let mut place = Vec::with_capacity(16 + 16 * extents.len());
    place.extend((body.len() as u64).to_le_bytes());
    place.extend(crc32c::crc32c(&body).to_le_bytes());
    place.extend((extents.len() as u32).to_le_bytes());
    encode_extents(&extents, &mut place);
    if FRAME_HEADER_BYTES + place.len() > (short_pages_max(layout) * PAGE) as usize {
        return None;
    }
    let (frame, checksum) = frame::encode(Kind::LongCheckpoint, layout.id, epoch, sequence, 0, &place);
    Some((frame, checksum, Some((extents, body))))
}

/// Returns the first frame of a new disk.
pub(super) fn first_frame(layout: &Superblock) -> Buffer {
    frame::encode(Kind::Checkpoint, layout.id, 1, 1, 0, &Catalogue::new(*layout).encode()).0
}
