//! Fuzz target for the flash device; see [`crate::fuzzing`].

use super::*;
use crate::item::Meta;
use situ_base::Env;
use situ_device::Geometry;
use situ_sim::{FaultPlan, SimDevice};

const ID: [u8; 16] = [7; 16];
/// Bytes of the superblock's block that come from the input. The rest are zeros.
const FRONT_BYTES: usize = 64;
/// Segments filled from the input in equal shares: half of a share at the segment's front, half at its end.
const FILLED: usize = 3;

fn device() -> SimDevice {
    let geometry = Geometry {
        block_bytes: 4096,
        atomic_write_bytes: 512,
        max_transfer_bytes: 256 << 10,
        volatile_write_cache: true,
        discard_bytes: 4096,
        discard_zeroes: false,
    };
    let bytes = SEGMENTS_AT + SEGMENTS_MIN * SEGMENT_BYTES as u64;
    SimDevice::with_geometry(&Env::system(), bytes, geometry, FaultPlan::none(), 0)
}

/// Creates a log on a new device.
pub(super) fn empty_log() -> FlashLog {
    FlashLog::create(Arc::new(device()), ID, 5).expect("the device is large enough")
}

/// Corrects the checksums of a segment's header and of the records in `bytes`.
fn seal_segment(bytes: &mut [u8], id: &[u8; 16]) {
    if bytes.len() < RECORDS_AT {
        return;
    }
    bytes[32..48].copy_from_slice(id);
    let sum = crc32c::crc32c(&bytes[..48]);
    bytes[48..52].copy_from_slice(&sum.to_le_bytes());
    let Some(header) = Header::decode(bytes, id) else { return };
    let salt = Salt { id: *id, sequence: header.sequence };
    let mut offset = header.first as usize;
    while let Some(record) = bytes.get_mut(offset..header.used as usize)
        && let Some(length) = salt.seal(offset as u32, header.base, record)
    {
        offset += length;
    }
}

/// Decodes a superblock and segments. If the lowest bit of the first byte is set, the checksums are corrected first.
///
/// # Panics
/// A decoder panics or contradicts itself.
pub fn flash(data: &[u8]) {
    let Some((control, bytes)) = data.split_first() else { return };
    let (front, shares) = bytes.split_at(bytes.len().min(FRONT_BYTES));
    let mut front = front.to_vec();
    front.resize(FRONT_BYTES, 0);
    if control & 1 != 0 {
        let sum = crc32c::crc32c(&front[..44]);
        front[44..48].copy_from_slice(&sum.to_le_bytes());
    }
    let superblock = Superblock::decode(&front);
    let simulated = device();
    simulated.set_contents(0, &front);
    let share = shares.len().div_ceil(FILLED).max(1);
    for (spot, bytes) in (0..).zip(shares.chunks(share)) {
        let (first, last) = bytes.split_at(bytes.len() / 2);
        let mut segment = vec![0; SEGMENT_BYTES];
        segment[..first.len()].copy_from_slice(first);
        segment[SEGMENT_BYTES - last.len()..].copy_from_slice(last);
        if let Some(superblock) = superblock.filter(|_| control & 1 != 0) {
            seal_segment(&mut segment, &superblock.id);
        }
        simulated.set_contents(spot_offset(spot), &segment);
    }
    if let Some(superblock) = superblock {
        assert!(superblock.encode()[..] == front[..48], "what was read is written as it was");
    }
    let device: Arc<dyn Device> = Arc::new(simulated.clone());
    let Ok(log) = FlashLog::open(device) else { return };
    assert_eq!(Some(log.superblock), superblock);
    let mut found = Vec::new();
    log.scan(0, |record| found.push((record.sequence, record.place, record.bytes, record.is_part)))
        .expect("the device can be read");
    for (sequence, place, bytes, is_part) in found {
        let Some(record) = log.read(place, bytes).expect("the device can be read") else {
            assert!(is_part, "a record that was found is read");
            continue;
        };
        let item = record.item();
        if !is_part {
            let base = lock(&log.state).spots[log.spot_of(place.segment) as usize].base;
            let mut again = vec![0; bytes];
            log.salt(sequence).put(place.offset, base, &item.again(), &mut again);
            let at = spot_offset(log.spot_of(place.segment)) + u64::from(place.offset);
            assert!(again == simulated.contents(at..at + bytes as u64), "what was read is written as it was");
        }
    }
    let (next, spots) = log.spots();
    assert!(log.resume(next, &spots), "what a scan has found fits the log");
}

/// Encoded segments: some with short records, one with a record that continues in the next segment.
pub(crate) fn corpus() -> Vec<Vec<u8>> {
    let segment = |sequence: u64, begins: usize, first: &[u8], last: &[u8]| {
        let used = if last.is_empty() { RECORDS_AT + first.len() } else { SEGMENT_BYTES };
        let header = Header { sequence, base: 5, used: used as u32, first: begins as u32 }.encode(&ID);
        let length = 2 * (RECORDS_AT + first.len()).max(last.len());
        let mut bytes = vec![0; length];
        bytes[..RECORDS_AT].copy_from_slice(&header);
        bytes[RECORDS_AT..RECORDS_AT + first.len()].copy_from_slice(first);
        bytes[length - last.len()..].copy_from_slice(last);
        bytes
    };
    let records = |sequence: u64, at: usize, metas: &[Meta], value: &[u8]| {
        let mut all = Vec::new();
        for meta in metas {
            let item = NewItem { meta: *meta, key: b"a key", parts: [value, b""] };
            let mut bytes = vec![0; RECORD_HEADER_BYTES + item.stored_bytes(5)];
            let salt = Salt { id: ID, sequence };
            salt.put((at + all.len()) as u32, 5, &item, &mut bytes);
            all.extend_from_slice(&bytes);
        }
        all
    };
    let plain = Meta { id: 6, ..Meta::default() };
    let metas = [
        plain,
        Meta { flags: 9, expires: 1_800_000_000, ..plain },
        Meta { id: 3, given_cas: Some(7), state: 5, ..plain },
    ];
    // The header of the second segment's record lies in it, and most of the value in the third one.
    let at = SEGMENT_BYTES - 200;
    let long = records(9, at, &metas[..1], &[1; 1000]);
    let (head, tail) = long.split_at(200);
    let third = RECORDS_AT + tail.len();
    let shares = [
        segment(8, RECORDS_AT, &records(8, RECORDS_AT, &metas, b"a value"), b""),
        segment(9, at, b"", head),
        segment(10, third, &[tail, &records(10, third, &metas[..2], b"")].concat(), b""),
    ];
    let mut superblock = Superblock { segments: SEGMENTS_MIN as u32, id: ID, seed: 5 }.encode().to_vec();
    superblock.resize(FRONT_BYTES, 0);
    let longest = shares.iter().map(Vec::len).max().unwrap_or(0);
    let mut all = superblock;
    for share in &shares {
        let (first, last) = share.split_at(share.len() / 2);
        all.extend_from_slice(first);
        all.resize(all.len() + longest - share.len(), 0);
        all.extend_from_slice(last);
    }
    [0, 1].map(|control| [&[control], &all[..]].concat()).into()
}
