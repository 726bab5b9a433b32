//! The decoders under arbitrary bytes, for fuzzers (`fuzz/`) and the seeded tests below. Only there with the feature
//! `fuzzing` and in tests.
//!
//! What a decoder accepts is encoded again, and must give the same bytes. So no two inputs mean the same, and nothing
//! is lost.

use crate::format::address::{State, overflow_key};
use crate::format::bucket::{self, BUCKET_BYTES, BUCKET_HEADER_BYTES, BucketCodec, Stamp, USABLE_BYTES};
use crate::format::entry::{Entry, Value};
use crate::format::image::{IMAGE_PAGE_BYTES, ImageBatch, ImageWriter};
use crate::format::record::{Operation, Operations, Record};
use crate::format::space::{MARK_BYTES, MARK_OFFSETS, SPACE_HEADER_BYTES, SpaceMark};
use crate::format::superblock::{SLOT_BYTES, SLOTS, Superblock, Totals};
use crate::{Error, StoreId};

/// The store that the bytes are taken for.
const STORE: StoreId = StoreId([5; StoreId::BYTES]);

/// The bucket that a block is taken for.
const NUMBER: u64 = 7;

/// A target by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 4] =
    [("hash_bucket", bucket), ("hash_superblock", superblock), ("hash_record", record), ("hash_image", image)];

fn codec() -> BucketCodec {
    BucketCodec::new("fuzzed", STORE)
}

/// `bytes`, cut or filled with zeros.
fn sized(bytes: &[u8], length: usize) -> Vec<u8> {
    let mut sized = bytes[..bytes.len().min(length)].to_vec();
    sized.resize(length, 0);
    sized
}

fn only_corruption<T>(result: crate::Result<T>) -> Option<T> {
    result.inspect_err(|error| assert!(error.is_corruption(), "an error of no kind that bytes can cause: {error}")).ok()
}

/// Puts the checksum of a bucket right, as far as the block says how long its entries are.
fn seal_bucket(block: &mut [u8]) {
    let used = usize::from(u16::from_le_bytes([block[bucket::at::NOW + 2], block[bucket::at::NOW + 3]]));
    let end = BUCKET_HEADER_BYTES + used.min(USABLE_BYTES);
    let seed = crc32c::crc32c_append(crc32c::crc32c(&STORE.0), &NUMBER.to_le_bytes());
    let checksum = crc32c::crc32c_append(seed, &block[4..end]);
    block[..4].copy_from_slice(&checksum.to_le_bytes());
}

/// A bucket, and an entry of the overflow. Bits of the first byte: 1 the checksum is put right first, 2 the bytes are
/// an overflow entry.
///
/// # Panics
/// A decoder does, or contradicts itself.
pub fn bucket(data: &[u8]) {
    let Some((control, bytes)) = data.split_first() else { return };
    if control & 2 != 0 {
        return overflow(bytes);
    }
    let mut block = sized(bytes, BUCKET_BYTES);
    if control & 1 != 0 {
        seal_bucket(&mut block);
    }
    let codec = codec();
    let opened = only_corruption(codec.open(NUMBER, &block));
    let looked_for = only_corruption(codec.find(NUMBER, &block, b"key"));
    let Some(bucket) = opened else { return };
    let header = bucket.header();
    let found = looked_for.expect("a sound bucket is searched");
    assert_eq!((found.header, found.entry), (*header, bucket.find(b"key")));
    for entry in bucket.entries() {
        let found = codec.find(NUMBER, &block, entry.key).expect("a sound bucket is searched").entry;
        assert_eq!(found.map(|found| found.key), Some(entry.key));
    }
    if bucket::sealed_bytes(&block) == 0 {
        return assert_eq!(bucket.entries().count(), 0);
    }
    let stamp = Stamp {
        sequence: header.sequence,
        epoch: header.epoch,
        before: header.before,
        overflow_entries: header.now.overflow_entries,
        overflow_bytes: header.now.overflow_bytes,
    };
    let mut again = vec![0xaa; BUCKET_BYTES];
    assert_eq!(codec.encode(NUMBER, &stamp, bucket.entries(), &mut again), *header);
    assert!(again == block, "what was read is written as it was");
}

/// The first byte is the length of the overflow key.
fn overflow(bytes: &[u8]) {
    let Some((length, bytes)) = bytes.split_first() else { return };
    let (key, value) = bytes.split_at(bytes.len().min(usize::from(*length)));
    let Some((hash, entry)) = only_corruption(Entry::from_overflow("fuzzed", key, value)) else { return };
    assert!(entry.check().is_ok());
    assert_eq!(overflow_key(hash, entry.key), key);
    let mut again = Vec::new();
    entry.write_overflow_value(&mut again);
    assert_eq!(again, value);
}

fn seal_end(bytes: &mut [u8]) {
    let (sealed, checksum) = bytes.split_at_mut(bytes.len() - 4);
    checksum.copy_from_slice(&crc32c::crc32c(sealed).to_le_bytes());
}

/// Both slots of a superblock, or the mark of a bucket space. Bits of the first byte: 1 the checksums are put right
/// first, 2 the bytes are a mark.
///
/// # Panics
/// A decoder does, or contradicts itself.
pub fn superblock(data: &[u8]) {
    let Some((control, bytes)) = data.split_first() else { return };
    if control & 2 != 0 {
        return mark(control & 1 != 0, bytes);
    }
    let mut slots = sized(bytes, SLOTS * SLOT_BYTES);
    if control & 1 != 0 {
        slots.chunks_exact_mut(SLOT_BYTES).for_each(seal_end);
    }
    for (slot, bytes) in slots.chunks_exact(SLOT_BYTES).enumerate() {
        if let Ok(Some(superblock)) = Superblock::decode("fuzzed", slot, bytes) {
            assert!(superblock.encode() == bytes, "what was read is written as it was");
        }
    }
    match Superblock::newest("fuzzed", &slots) {
        Ok(_) | Err(Error::Newer { .. }) => {}
        Err(error) => assert!(error.is_corruption(), "an error of no kind that bytes can cause: {error}"),
    }
}

/// One copy of the mark, at both places.
fn mark(is_sealed: bool, bytes: &[u8]) {
    let mut copy = sized(bytes, MARK_BYTES);
    if is_sealed {
        seal_end(&mut copy);
    }
    let mut area = vec![0; SPACE_HEADER_BYTES];
    for at in MARK_OFFSETS {
        area[at..at + MARK_BYTES].copy_from_slice(&copy);
    }
    match SpaceMark::decode("fuzzed", &area) {
        Ok(mark) => assert!(mark.encode() == area, "what was read is written as it was"),
        Err(Error::Newer { .. } | Error::NotABucketSpace { .. }) => {}
        Err(error) => assert!(error.is_corruption(), "an error of no kind that bytes can cause: {error}"),
    }
}

/// The log record of a batch.
///
/// # Panics
/// The decoder does, or contradicts itself.
pub fn record(data: &[u8]) {
    let Some(record) = only_corruption(Record::decode("fuzzed", 0, data)) else { return };
    let mut again = Operations::new();
    for (sequence, operation) in record.operations() {
        assert_eq!(sequence, record.first + u64::from(again.count()));
        again.push(&operation).expect("what was read can be written");
    }
    assert_eq!(again.count(), record.count);
    assert!(again.header(record.first)[..] == data[..12] && again.bytes() == &data[12..]);
}

/// A batch of images. The lowest bit of the first byte says that the checksums of all pages are put right first.
///
/// # Panics
/// The decoder does, or contradicts itself.
pub fn image(data: &[u8]) {
    let Some((control, bytes)) = data.split_first() else { return };
    let mut pages = bytes.to_vec();
    if control & 1 != 0 {
        for page in pages.chunks_exact_mut(IMAGE_PAGE_BYTES) {
            let checksum = crc32c::crc32c_append(crc32c::crc32c(&STORE.0), &page[4..]);
            page[..4].copy_from_slice(&checksum.to_le_bytes());
        }
    }
    let Some(Some(batch)) = only_corruption(ImageBatch::read("fuzzed", 0, STORE, &pages)) else { return };
    let first_page = pages.get(..IMAGE_PAGE_BYTES).expect("a batch has a page");
    assert_eq!(ImageBatch::pages_from(STORE, first_page), Some(batch.pages));
    let mut again = ImageWriter::new();
    let mut block = vec![0xaa; BUCKET_BYTES];
    for image in batch.images() {
        if only_corruption(image.restore(&codec(), &mut block)).is_none() {
            return;
        }
        again.push(image.bucket, &block);
    }
    let length = batch.pages * IMAGE_PAGE_BYTES;
    assert!(again.finish(STORE, batch.batch) == pages[..length], "what was read is written as it was");
}

/// The output of real encoders: a fuzzer begins with it.
///
/// # Panics
/// There is no such target.
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    match target {
        "hash_bucket" => bucket_corpus(),
        "hash_superblock" => superblock_corpus(),
        "hash_record" => record_corpus(),
        "hash_image" => image_corpus(),
        _ => panic!("no target {target}"),
    }
}

fn with(control: u8, bytes: &[u8]) -> Vec<u8> {
    [&[control], bytes].concat()
}

fn entries() -> [Entry<'static>; 4] {
    [
        Entry::inline(b"key", b"value"),
        Entry { key: b"far", value: Value::Pointer(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]), expires_ms: None },
        Entry { expires_ms: Some(1_795_000_000_000), ..Entry::inline(b"mortal", &[7; 300]) },
        Entry::inline(&[b'x'; 200], b""),
    ]
}

fn block(count: usize) -> Vec<u8> {
    let stamp = Stamp { sequence: 9, epoch: 2, overflow_entries: 1, overflow_bytes: 99, ..Stamp::default() };
    let mut block = vec![0; BUCKET_BYTES];
    codec().encode(NUMBER, &stamp, entries().into_iter().take(count), &mut block);
    block
}

fn bucket_corpus() -> Vec<Vec<u8>> {
    let overflow = entries().map(|entry| {
        let key = overflow_key(11, entry.key);
        let mut bytes = vec![key.len() as u8];
        bytes.extend_from_slice(&key);
        entry.write_overflow_value(&mut bytes);
        with(2, &bytes)
    });
    let blocks = (0..=4).map(|count| with(1, &block(count)));
    blocks.chain([with(0, &block(4)), with(0, &[0; BUCKET_BYTES])]).chain(overflow).collect()
}

fn superblock_corpus() -> Vec<Vec<u8>> {
    let first = Superblock {
        generation: 8,
        store: STORE,
        seed: 11,
        is_clean: true,
        state: State::from_parts(4, 3, 5).expect("it can be"),
        epoch: 2,
        sequence: 900,
        first_log_file: 3,
        next_file: 6,
        first_image_batch: 40,
        totals: Totals { entries: 800, bytes: 336_000, overflow_entries: 3, overflow_bytes: 1300 },
        device: Some("/dev/zram0".to_owned()),
    };
    let second = Superblock { generation: 7, is_clean: false, device: None, ..first.clone() };
    let slots = [first.encode(), second.encode()].concat();
    let mark = SpaceMark::new(STORE).encode();
    vec![with(1, &slots), with(0, &slots), with(3, &mark[..MARK_BYTES]), with(2, &mark[..MARK_BYTES])]
}

fn record_corpus() -> Vec<Vec<u8>> {
    let all = [
        Operation::put(b"key", b"value", None),
        Operation::delete(b"gone"),
        Operation::put(b"mortal", &[7; 300], Some(1_795_000_000_000)),
    ];
    let record = |operations: &[Operation<'_>]| {
        let mut body = Operations::new();
        operations.iter().for_each(|operation| body.push(operation).expect("it is sound"));
        [&body.header(7)[..], body.bytes()].concat()
    };
    vec![record(&all), record(&all[..1]), record(&all[1..2])]
}

fn image_corpus() -> Vec<Vec<u8>> {
    let batch = |counts: &[usize]| {
        let mut writer = ImageWriter::new();
        counts.iter().for_each(|count| writer.push(NUMBER, &block(*count)));
        writer.push(3, &[0; BUCKET_BYTES]);
        writer.finish(STORE, 41)
    };
    let long = batch(&[4; 12]);
    vec![with(1, &batch(&[4])), with(0, &batch(&[1, 2, 3])), with(1, &long), with(0, &long)]
}

#[cfg(test)]
mod tests;
