//! Images in their journal: compact copies of buckets that are about to be written (`docs/formats/hash.md`).
//!
//! A device that may tear a write of 4 KB may leave half of a bucket. So a worker writes the images of a batch of
//! buckets first, as one run of pages, and makes them durable. Only then it writes the buckets. Opening writes the
//! images again that a crash may need.
//!
//! ```text
//!  | page header | payload, 4064 bytes | page header | payload | ...        a batch: whole pages
//!                | bucket, length, bytes | bucket, length, bytes | ... zeros
//! ```
//!
//! An image is the part of a bucket that is not behind its entries ([`sealed_bytes`]). A bucket at load 0.4 takes 1.6
//! KB.
//!
//! **Invariants.** Batch numbers ascend, and each is used once. A batch counts only if all of its pages are there. Its
//! pages name the batch, so a reader tells pages of an older lap of the journal apart. Each page begins with a header,
//! so no value of a user can pass for a batch.
//!
//! **Failure.** A batch that is not whole was torn by a crash. Its buckets had not been written yet, so no recovery
//! needs it.

use crate::StoreId;
use crate::format::address::BUCKET_BITS_MAX;
use crate::format::bucket::{BUCKET_BYTES, BUCKET_HEADER_BYTES, BucketCodec, sealed_bytes};
use crate::format::fields::{At, Fields, Mismatch, is_zero};

/// Bytes of a page of the journal.
pub const IMAGE_PAGE_BYTES: usize = 4096;

/// Bytes of a page before its payload.
pub const IMAGE_PAGE_HEADER_BYTES: usize = 32;

/// Bytes of a page's payload.
pub const IMAGE_PAYLOAD_BYTES: usize = IMAGE_PAGE_BYTES - IMAGE_PAGE_HEADER_BYTES;

/// Bytes of an image before the bytes of its bucket.
pub const IMAGE_HEAD_BYTES: usize = 10;

/// The offset of the reserved bytes of a page's header.
const RESERVED_AT: usize = 28;

/// Second field of each page.
pub(crate) const IMAGE_MAGIC: [u8; 4] = *b"SIMG";

/// Most pages of a batch: 256 MiB.
pub const IMAGE_BATCH_PAGES_MAX: usize = 65536;

/// A collector of the images of a batch.
#[derive(Debug, Default)]
pub struct ImageWriter {
    payload: Vec<u8>,
    count: usize,
}

impl ImageWriter {
    /// Makes a writer without an image.
    pub fn new() -> ImageWriter {
        ImageWriter::default()
    }

    /// Appends the image of bucket `number`, which is about to be written as `block`.
    ///
    /// # Panics
    /// The block is no bucket, or the batch would be longer than [`IMAGE_BATCH_PAGES_MAX`].
    pub fn push(&mut self, number: u64, block: &[u8]) {
        let bytes = sealed_bytes(block);
        self.payload.extend_from_slice(&number.to_le_bytes());
        self.payload.extend_from_slice(&(bytes as u16).to_le_bytes());
        self.payload.extend_from_slice(&block[..bytes]);
        self.count += 1;
        assert!(self.pages() <= IMAGE_BATCH_PAGES_MAX, "the caller bounds its batches");
    }

    /// Returns the number of images.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of pages that the batch takes.
    pub fn pages(&self) -> usize {
        self.payload.len().div_ceil(IMAGE_PAYLOAD_BYTES)
    }

    /// Returns the pages of the batch with this number. The writer is empty afterwards, and can be used again.
    ///
    /// # Panics
    /// There is no image.
    pub fn finish(&mut self, store: StoreId, batch: u64) -> Vec<u8> {
        assert!(self.count > 0, "a batch has images");
        let mut pages = vec![0; self.pages() * IMAGE_PAGE_BYTES];
        let header =
            PageHeader { batch, page: 0, pages: self.pages() as u32, payload_bytes: self.payload.len() as u32 };
        let payloads = self.payload.chunks(IMAGE_PAYLOAD_BYTES);
        for ((page, payload), index) in pages.chunks_exact_mut(IMAGE_PAGE_BYTES).zip(payloads).zip(0..) {
            page[IMAGE_PAGE_HEADER_BYTES..][..payload.len()].copy_from_slice(payload);
            PageHeader { page: index, ..header }.seal(store, page);
        }
        self.payload.clear();
        self.count = 0;
        pages
    }
}

/// The facts that a page states of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PageHeader {
    batch: u64,
    page: u32,
    pages: u32,
    payload_bytes: u32,
}

impl PageHeader {
    fn seal(&self, store: StoreId, page: &mut [u8]) {
        page[4..8].copy_from_slice(&IMAGE_MAGIC);
        page[8..16].copy_from_slice(&self.batch.to_le_bytes());
        page[16..20].copy_from_slice(&self.page.to_le_bytes());
        page[20..24].copy_from_slice(&self.pages.to_le_bytes());
        page[24..RESERVED_AT].copy_from_slice(&self.payload_bytes.to_le_bytes());
        let checksum = page_checksum(store, page);
        page[..4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Returns the header of a page of this store's journal; none if the bytes are something else.
    fn read(store: StoreId, page: &[u8]) -> Option<PageHeader> {
        let mut fields = Fields(page);
        let stored = fields.u32("checksum").ok()?;
        let magic: [u8; 4] = fields.array("magic").ok()?;
        if page.len() != IMAGE_PAGE_BYTES || magic != IMAGE_MAGIC || stored != page_checksum(store, page) {
            return None;
        }
        let batch = fields.u64("batch").ok()?;
        let [page, pages, payload_bytes] =
            [fields.u32("page").ok()?, fields.u32("pages").ok()?, fields.u32("bytes of the payload").ok()?];
        let is_sound = fields.zeros(IMAGE_PAGE_HEADER_BYTES - RESERVED_AT, "reserved bytes").is_ok()
            && page < pages
            && pages as usize <= IMAGE_BATCH_PAGES_MAX
            && (payload_bytes as usize).div_ceil(IMAGE_PAYLOAD_BYTES) == pages as usize;
        is_sound.then_some(PageHeader { batch, page, pages, payload_bytes })
    }
}

/// Computes a checksum over all of the page, apart from the checksum itself; it begins with the store's id.
fn page_checksum(store: StoreId, page: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&store.0), page.get(4..).unwrap_or_default())
}

/// A batch that is whole, and whose every image has the structure of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageBatch {
    /// The number of the batch.
    pub batch: u64,
    /// The number of pages that it takes.
    pub pages: usize,
    payload: Vec<u8>,
}

/// The image of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image<'a> {
    /// The number of the bucket.
    pub bucket: u64,
    bytes: &'a [u8],
}

impl ImageBatch {
    /// Returns the number of pages of the batch that begins with this page; none if no batch begins here. A reader
    /// learns from it how much to read.
    pub fn pages_from(store: StoreId, page: &[u8]) -> Option<usize> {
        PageHeader::read(store, page).filter(|header| header.page == 0).map(|header| header.pages as usize)
    }

    /// Returns the number of the batch that a page of the journal belongs to; none if the bytes are no such page.
    pub(crate) fn number_of(store: StoreId, page: &[u8]) -> Option<u64> {
        PageHeader::read(store, page).map(|header| header.batch)
    }

    /// Reads the batch with whose first page `bytes` begin; what follows may be anything. `None` if no whole batch
    /// begins here. `offset` is where the bytes lie in the journal at `path`.
    ///
    /// # Errors
    /// [`situ_storage::Error::Corruption`] if the batch is whole and its contents are no images: a writer wrote it with
    /// the fault.
    pub fn read(path: &str, offset: u64, store: StoreId, bytes: &[u8]) -> crate::Result<Option<ImageBatch>> {
        let Some(batch) = read_pages(store, bytes) else { return Ok(None) };
        match check_images(&batch.payload) {
            Ok(()) => Ok(Some(batch)),
            Err(mismatch) => Err(mismatch.at(path, offset, format_args!("batch {} of images", batch.batch))),
        }
    }

    /// Returns the images, in the order in which they were pushed.
    pub fn images(&self) -> impl Iterator<Item = Image<'_>> + Clone {
        let mut fields = Fields(&self.payload);
        std::iter::from_fn(move || take_image(&mut fields).ok())
    }
}

impl Image<'_> {
    /// Writes the bucket as it was to be written.
    ///
    /// # Errors
    /// [`situ_storage::Error::Corruption`] if the image is not that of a bucket of the codec's store. The block may
    /// hold anything then.
    ///
    /// # Panics
    /// The block is not [`BUCKET_BYTES`] long.
    pub fn restore(&self, codec: &BucketCodec, block: &mut [u8]) -> crate::Result<()> {
        let (sealed, rest) = block.split_at_mut(self.bytes.len());
        sealed.copy_from_slice(self.bytes);
        rest.fill(0);
        codec.open(self.bucket, block)?;
        match sealed_bytes(block) {
            bytes if bytes == self.bytes.len() => Ok(()),
            bytes => Err(codec.damaged(self.bucket, Mismatch::new("length of its image", bytes, self.bytes.len()))),
        }
    }
}

/// Puts the pages of a batch together.
fn read_pages(store: StoreId, bytes: &[u8]) -> Option<ImageBatch> {
    let first = PageHeader::read(store, bytes.get(..IMAGE_PAGE_BYTES)?)?;
    if first.page != 0 {
        return None;
    }
    let mut payload = Vec::new();
    let mut pages = bytes.chunks_exact(IMAGE_PAGE_BYTES);
    for index in 0..first.pages {
        let page = pages.next()?;
        if PageHeader::read(store, page)? != (PageHeader { page: index, ..first }) {
            return None;
        }
        payload.extend_from_slice(&page[IMAGE_PAGE_HEADER_BYTES..]);
    }
    let padding = payload.split_off(first.payload_bytes as usize);
    is_zero(&padding).then_some(ImageBatch { batch: first.batch, pages: first.pages as usize, payload })
}

fn take_image<'a>(fields: &mut Fields<'a>) -> Result<Image<'a>, Mismatch> {
    let bucket = fields.u64("number of a bucket")?;
    if bucket >> BUCKET_BITS_MAX != 0 {
        return Err(Mismatch::new("number of a bucket", format_args!("at most {BUCKET_BITS_MAX} bits"), bucket));
    }
    let bytes = usize::from(fields.u16("bytes of a bucket")?);
    if bytes != 0 && !(BUCKET_HEADER_BYTES..=BUCKET_BYTES).contains(&bytes) {
        let expected = format_args!("0, or {BUCKET_HEADER_BYTES} to {BUCKET_BYTES}");
        return Err(Mismatch::new("bytes of a bucket", expected, bytes));
    }
    Ok(Image { bucket, bytes: fields.take(bytes, "bucket")? })
}

fn check_images(payload: &[u8]) -> Result<(), Mismatch> {
    let mut fields = Fields(payload);
    while !fields.0.is_empty() {
        take_image(&mut fields)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
