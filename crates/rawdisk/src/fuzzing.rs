//! The metadata of a raw disk under arbitrary bytes, for fuzzers (`fuzz/`) and the seeded tests below. Only there with
//! the feature `fuzzing` and in tests.

use super::catalogue::{Catalogue, Edit, FilePlace, Record};
use super::frame::{self, FRAME_HEADER_BYTES, FRAME_MAGIC, Kind};
use super::journal::{Journal, replay};
use super::layout::{Copy, DiskId, PAGE, Superblock};
use super::room::{Extent, Room};
use situ_base::Env;
use situ_base::bytes::u64_at;
use situ_device::PAGE_BYTES;
use situ_storage::{Error, FileName};

/// The disk that the bytes are taken for a journal of.
fn layout() -> Superblock {
    Superblock::plan(DiskId([5; 16]), 1, 512 * PAGE, Some(4), Some(64), 0).expect("the disk is large enough")
}

const HALF_BYTES: usize = 4 * PAGE_BYTES;

/// Puts the checksums, identities and links of all frames right.
fn seal(half: &mut [u8]) {
    let mut previous = 0;
    for page in 0..half.len() / PAGE_BYTES {
        let Some(frame) = half.get_mut(page * PAGE_BYTES..) else { return };
        if frame.get(..4) != Some(&FRAME_MAGIC) {
            continue;
        }
        frame[8..24].copy_from_slice(&layout().id.0);
        let bytes = u64_at(frame, 40);
        let end = usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_add(FRAME_HEADER_BYTES));
        let checksum = end.and_then(|end| frame.get(FRAME_HEADER_BYTES..end)).map_or(0, crc32c::crc32c);
        frame[48..52].copy_from_slice(&checksum.to_le_bytes());
        frame[52..56].copy_from_slice(&u32::to_le_bytes(if page == 0 { 0 } else { previous }));
        previous = crc32c::crc32c(&frame[..60]);
        frame[60..64].copy_from_slice(&previous.to_le_bytes());
    }
}

/// Two halves of a journal, and a superblock. The lowest bit of the first byte says that checksums are put right first.
///
/// # Panics
/// A decoder does, or contradicts itself.
pub fn disk(data: &[u8]) {
    let Some((control, bytes)) = data.split_first() else { return };
    let mut halves = vec![0; 2 * HALF_BYTES];
    let taken = bytes.len().min(halves.len());
    halves[..taken].copy_from_slice(&bytes[..taken]);
    superblock(&halves[..PAGE_BYTES], control & 1 == 1);
    let (first, second) = halves.split_at_mut(HALF_BYTES);
    if control & 1 == 1 {
        seal(first);
        seal(second);
    }
    let layout = layout();
    // A long checkpoint's body is whatever follows the halves.
    let rest = bytes.get(taken..).unwrap_or_default();
    let mut read_long = |_: &[Extent], wanted: u64| {
        let mut body = rest.to_vec();
        body.resize(wanted as usize, 0);
        Ok(body)
    };
    let replayed = match replay(&layout, [first, second], "fuzzed", &mut read_long) {
        Ok(replayed) => replayed,
        Err(Error::Corruption(_) | Error::Invalid(_)) => return,
        Err(error) => panic!("an error of no kind that bytes can cause: {error}"),
    };
    let catalogue = &replayed.catalogue;
    let encoded = catalogue.encode();
    assert_eq!(encoded.len() as u64, catalogue.encoded_bytes());
    assert_eq!(Catalogue::decode(layout, &encoded).as_ref(), Ok(catalogue));
    let event = || Env::system().executor.event();
    let used = catalogue.extents_in(&layout.top).chain(replayed.long.iter().copied());
    let top = Room::new(layout.top, used, 1, event());
    let log = Room::new(layout.log, catalogue.extents_in(&layout.log), 0, event());
    if let (Ok(top), Ok(log)) = (top, log) {
        let free = top.account().free_pages + log.account().free_pages;
        let used: u64 = catalogue.pages() + replayed.long.iter().map(|extent| extent.pages).sum::<u64>();
        assert_eq!(free + used, layout.top.pages + layout.log.pages);
        // What is written next is read back.
        let mut journal = Journal::new(&replayed);
        let mut catalogue = catalogue.clone();
        let edit = Edit::Put(FileName::Identity, Record { length: 1, place: FilePlace::Inline([1].into()) });
        catalogue.apply(edit.clone()).expect("it names no pages");
        journal.emit(&edit);
        if let Some(plan) = journal.plan(&layout, &catalogue) {
            let at = ((plan.place.first - layout.journal_first) * PAGE) as usize;
            let mut both = [first.to_vec(), second.to_vec()].concat();
            both[at..at + plan.frame.len()].copy_from_slice(&plan.frame);
            let (first, second) = both.split_at(HALF_BYTES);
            match replay(&layout, [first, second], "fuzzed", &mut read_long) {
                Ok(again) => assert_eq!(again.catalogue, catalogue),
                // What lay behind the end can become rot, or a frame of a later version, by the frame before it.
                Err(Error::Corruption(_) | Error::Invalid(_)) => {}
                Err(error) => panic!("an error of no kind that bytes can cause: {error}"),
            }
        }
    }
}

fn superblock(page: &[u8], sealed: bool) {
    let mut page = page.to_vec();
    if sealed {
        let checksum = crc32c::crc32c(&page[..PAGE_BYTES - 4]);
        page[PAGE_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    }
    for copy in [0, 1] {
        if let Copy::Sound(block) = Superblock::decode(copy, &page) {
            let mut again = vec![0; PAGE_BYTES];
            block.encode(copy, &mut again);
            assert_eq!(Superblock::decode(copy, &again), Copy::Sound(block));
        }
    }
}

/// Real journals and a real superblock: where a fuzzer begins.
pub fn corpus() -> Vec<Vec<u8>> {
    let layout = layout();
    let put = |name, first, pages| {
        let place = FilePlace::Extents(vec![Extent { first, pages }]);
        Edit::Put(name, Record { length: pages * PAGE - 7, place })
    };
    let (log, top) = (layout.log.first, layout.top.first);
    let edits = [
        vec![put(FileName::Log(1), log, 8), put(FileName::Table(2), top, 20)],
        vec![Edit::Rename(FileName::Log(1), FileName::Spare(1)), put(FileName::Table(3), top + 40, 2)],
        vec![Edit::Remove(FileName::Table(2))],
    ];
    let mut catalogue = Catalogue::new(layout);
    let small = Record { length: 5, place: FilePlace::Inline(b"words"[..].into()) };
    catalogue.apply(Edit::Put(FileName::Identity, small)).expect("it fits");
    let mut half = Vec::new();
    let (frame, mut previous) = frame::encode(Kind::Checkpoint, layout.id, 7, 100, 0, &catalogue.encode());
    half.extend_from_slice(&frame);
    for (sequence, edits) in (101..).zip(&edits) {
        let mut body = Vec::new();
        edits.iter().for_each(|edit| edit.encode(&mut body));
        let (frame, checksum) = frame::encode(Kind::Edits, layout.id, 7, sequence, previous, &body);
        previous = checksum;
        half.extend_from_slice(&frame);
    }
    let mut long = 40u64.to_le_bytes().to_vec();
    long.extend(crc32c::crc32c(&[0; 40]).to_le_bytes());
    long.extend(1u32.to_le_bytes());
    long.extend((top + 100).to_le_bytes());
    long.extend(1u64.to_le_bytes());
    let (long, _) = frame::encode(Kind::LongCheckpoint, layout.id, 8, 104, 0, &long);
    let mut superblock = vec![0; PAGE_BYTES];
    layout.encode(0, &mut superblock);
    let with = |control: u8, bytes: &[u8]| [&[control], bytes].concat();
    vec![
        with(0, &half),
        with(1, &half),
        with(1, &[&half, &long[..]].concat()),
        with(1, &[&long[..], &[0; 3 * PAGE_BYTES], &half].concat()),
        with(1, &superblock),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_sim::{Rng, for_each_seed};

    #[test]
    fn promise_6_no_bytes_break_the_decoders_of_a_disk() {
        let inputs = corpus();
        inputs.iter().for_each(|input| disk(input));
        disk(&[]);
        for_each_seed(0, 6000, |seed| {
            let mut rng = Rng::new(seed);
            let mut input = inputs[rng.index(inputs.len())].clone();
            for _ in 0..1 + rng.below(6) {
                // Most of a page is zeros: changes fall on its front.
                let page = rng.index(input.len().div_ceil(PAGE_BYTES)) * PAGE_BYTES;
                let within = if rng.chance(0.8) { 200 } else { PAGE_BYTES };
                let at = (page + 1 + rng.index(within)).min(input.len() - 1);
                match rng.below(4) {
                    0 => input[at] ^= 1 << rng.below(8),
                    1 => input[at] = rng.next_u64() as u8,
                    2 => input[at] = [0, 1, 255, 128][rng.index(4)],
                    _ => {
                        let from = rng.index(input.len());
                        input[at] = input[from];
                    }
                }
            }
            if rng.chance(0.1) {
                input.truncate(rng.index(input.len()) + 1);
            }
            disk(&input);
        });
    }

    /// If sealing missed a checksum, no fuzzer would get past it.
    #[test]
    fn sealed_journals_are_read() {
        let mut rng = Rng::new(2);
        let half = &corpus()[1][1..];
        let read = (0..200)
            .filter(|_| {
                let mut first = half.to_vec();
                let at = rng.index(first.len());
                first[at] ^= 1 << rng.below(8);
                seal(&mut first);
                let blank = vec![0; HALF_BYTES];
                replay(&layout(), [&first, &blank], "sealed", &mut |_, _| Ok(Vec::new())).is_ok()
            })
            .count();
        assert!(read > 150, "only {read} of 200 sealed journals are read");
    }
}
