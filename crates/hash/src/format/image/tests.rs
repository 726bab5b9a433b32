use super::*;
use crate::check::format_page::{Layout, example};
use crate::format::bucket::Stamp;
use crate::format::entry::Entry;
use situ_sim::SimMemory;

const STORE: StoreId = StoreId([3; 16]);

fn codec() -> BucketCodec {
    BucketCodec::new("buckets", STORE)
}

fn bucket(number: u64, value: &[u8]) -> Vec<u8> {
    let mut block = vec![0; BUCKET_BYTES];
    codec().encode(number, &Stamp { epoch: 1, ..Stamp::default() }, [Entry::inline(b"key", value)], &mut block);
    block
}

/// Makes batch `batch` with the buckets 0, 1 and so on, each with a value of the given length.
fn batch(batch: u64, values: &[usize]) -> Vec<u8> {
    let mut writer = ImageWriter::new();
    for (number, length) in (0..).zip(values) {
        writer.push(number, &bucket(number, &vec![batch as u8; *length]));
    }
    writer.finish(STORE, batch)
}

fn read(bytes: &[u8]) -> Option<ImageBatch> {
    ImageBatch::read("images", 0, STORE, bytes).unwrap()
}

#[test]
fn buckets_come_back_from_their_images() {
    let lengths = [0, 2900, 400, 1700, 2900];
    let pages = batch(9, &lengths);
    assert_eq!(pages.len(), 2 * IMAGE_PAGE_BYTES + IMAGE_PAGE_BYTES, "8.3 KB of images");
    let batch = read(&pages).unwrap();
    assert_eq!((batch.batch, batch.pages), (9, 3));
    let mut block = vec![0xaa; BUCKET_BYTES];
    for ((image, number), length) in batch.images().zip(0..).zip(lengths) {
        image.restore(&codec(), &mut block).unwrap();
        assert_eq!((image.bucket, &block), (number, &bucket(number, &vec![9; length])));
    }
    assert_eq!(batch.images().count(), lengths.len());
}

#[test]
fn a_discarded_bucket_has_an_image_of_ten_bytes() {
    let mut writer = ImageWriter::new();
    writer.push(5, &[0; BUCKET_BYTES]);
    assert_eq!((writer.count(), writer.pages()), (1, 1));
    let batch = read(&writer.finish(STORE, 1)).unwrap();
    let mut block = vec![0xaa; BUCKET_BYTES];
    let image = batch.images().next().unwrap();
    image.restore(&codec(), &mut block).unwrap();
    assert_eq!((image.bucket, block), (5, vec![0; BUCKET_BYTES]));
}

#[test]
fn a_writer_can_be_used_again() {
    let mut writer = ImageWriter::new();
    writer.push(0, &bucket(0, &[1; 2900]));
    let first = writer.finish(STORE, 1);
    assert_eq!((writer.count(), writer.pages()), (0, 0));
    writer.push(0, &bucket(0, &[1; 2900]));
    let second = writer.finish(STORE, 1);
    assert_eq!(first, second);
}

#[test]
fn the_format_page_has_the_places_of_a_pages_header() {
    let pages = batch(1 << 40 | 9, &[2900, 2900]);
    let layout = Layout::of("Image page", IMAGE_PAGE_BYTES);
    let (first, second) = pages.split_at(IMAGE_PAGE_BYTES);
    assert_eq!(layout.field("magic", first), IMAGE_MAGIC);
    assert_eq!(layout.number("batch", first), 1 << 40 | 9);
    assert_eq!([first, second].map(|page| layout.number("page", page)), [0, 1]);
    assert_eq!(layout.number("pages", first), 2);
    let image = IMAGE_HEAD_BYTES + BUCKET_HEADER_BYTES + Entry::inline(b"key", &[0; 2900]).encoded_bytes();
    assert_eq!(layout.number("payload length", first), 2 * image as u64);
    assert_eq!(layout.field("reserved", first), [0; 4]);
    let payload = layout.field("payload", first);
    assert_eq!(payload[..8], 0u64.to_le_bytes());
    assert_eq!(payload[8..10], (image as u16 - 10).to_le_bytes());
    assert_eq!(payload[10..image], bucket(0, &[9; 2900])[..image - 10]);
    let sealed = [&STORE.0[..], &first[4..]].concat();
    assert_eq!(layout.number("checksum", first), u64::from(crc32c::crc32c(&sealed)));
}

#[test]
fn the_example_of_the_format_page_is_what_the_code_writes() {
    let store = StoreId(std::array::from_fn(|at| at as u8));
    let mut block = example("bucket");
    block.resize(BUCKET_BYTES, 0);
    let mut writer = ImageWriter::new();
    writer.push(3, &[0; BUCKET_BYTES]);
    writer.push(7, &block);
    let page = writer.finish(store, 41);
    let golden = example("image page");
    assert_eq!(page[..golden.len()], golden, "{:02x?}", &page[..golden.len()]);
}

#[test]
fn a_batch_that_is_not_whole_does_not_count() {
    let sound = batch(9, &[2900; 4]);
    assert_eq!(ImageBatch::pages_from(STORE, &sound[..IMAGE_PAGE_BYTES]), Some(3));
    assert_eq!(ImageBatch::pages_from(STORE, &sound[IMAGE_PAGE_BYTES..][..IMAGE_PAGE_BYTES]), None, "page 1");
    for pages in 0..3 {
        assert_eq!(read(&sound[..pages * IMAGE_PAGE_BYTES]), None);
        let older = batch(8, &[2900; 4]);
        let torn = [&sound[..pages * IMAGE_PAGE_BYTES], &older[pages * IMAGE_PAGE_BYTES..]].concat();
        assert_ne!(read(&torn).map(|batch| batch.batch), Some(9), "pages of the lap before");
        // Each page torn in its middle.
        let mut torn = sound.clone();
        torn[pages * IMAGE_PAGE_BYTES + 2048..(pages + 1) * IMAGE_PAGE_BYTES].fill(0);
        assert_eq!(read(&torn), None);
    }
    assert_eq!(read(&[&sound[IMAGE_PAGE_BYTES..], &sound[..]].concat()), None, "pages in another order");
    assert_eq!(ImageBatch::read("images", 0, StoreId([4; 16]), &sound).unwrap(), None, "another store's journal");
}

/// The number of pages says how much is read.
#[test]
fn a_page_of_a_batch_longer_than_batches_are_is_none() {
    let sound = batch(9, &[400]);
    let longest = (IMAGE_BATCH_PAGES_MAX * IMAGE_PAYLOAD_BYTES) as u32;
    for (payload_bytes, pages) in [(longest, Some(IMAGE_BATCH_PAGES_MAX)), (longest + 1, None), (u32::MAX, None)] {
        let header =
            PageHeader { batch: 9, page: 0, pages: payload_bytes.div_ceil(IMAGE_PAYLOAD_BYTES as u32), payload_bytes };
        let mut page = sound.clone();
        header.seal(STORE, &mut page);
        assert_eq!(ImageBatch::pages_from(STORE, &page), pages);
        let (found, largest) = SimMemory::largest(|| read(&page));
        assert!(found.is_none() && largest < 2 * IMAGE_PAGE_BYTES, "{largest} bytes");
    }
}

/// The bytes of a batch as the value of an entry: a scan that meets the page with this value sees no batch.
#[test]
fn a_value_does_not_pass_for_a_batch() {
    let forged = batch(99, &[100]);
    let mut writer = ImageWriter::new();
    for number in 0..40 {
        // The value begins anywhere in a page, also where a page begins.
        writer.push(number, &bucket(number, &forged[..2900]));
    }
    let pages = writer.finish(STORE, 7);
    for at in (1..pages.len() / IMAGE_PAGE_BYTES).map(|page| page * IMAGE_PAGE_BYTES) {
        assert_eq!(read(&pages[at..]), None);
    }
}

#[test]
fn an_image_of_another_bucket_or_store_restores_nothing() {
    let pages = batch(9, &[100]);
    let batch = read(&pages).unwrap();
    let image = batch.images().next().unwrap();
    let mut block = vec![0; BUCKET_BYTES];
    let other = BucketCodec::new("buckets", StoreId([4; 16]));
    assert!(image.restore(&other, &mut block).unwrap_err().is_corruption());
    assert!(Image { bucket: 1, ..image }.restore(&codec(), &mut block).unwrap_err().is_corruption());
}

#[test]
fn promise_6_images_that_break_a_rule_are_corruption() {
    let seal = |payload: &[u8]| {
        let mut writer = ImageWriter { payload: payload.to_vec(), count: 1 };
        ImageBatch::read("images", 4096, STORE, &writer.finish(STORE, 9))
    };
    let image = |bucket: u64, length: u16| [&bucket.to_le_bytes()[..], &length.to_le_bytes()].concat();
    assert!(seal(&image(1, 0)).is_ok());
    for (payload, text) in [
        (image(1, 63), "expected 0, or 64 to 4096, found 63"),
        (image(1, 4097), "expected 0, or 64 to 4096, found 4097"),
        (image(1, 64), "expected 64 bytes, found 0 bytes"),
        (image(1 << 48, 0), "expected at most 48 bits"),
        (vec![1, 2, 3], "expected 8 bytes, found 3 bytes"),
    ] {
        let error = seal(&payload).unwrap_err();
        assert!(error.is_corruption());
        let found = error.to_string();
        assert!(found.contains(text) && found.contains("images is damaged at byte 4096, in its batch 9"), "{found}");
    }
}
