//! The image journal on its page file: where batches of images go, and which of them a crash may still need.
//!
//! 1. A batch reserves room before it is begun. If there is none, the keeper makes some: see [`ImageJournal::restart`].
//! 2. The images of the batch are written as one run of pages, durably. Then the buckets are written.
//! 3. When the device has been flushed, and the superblock says that earlier batches are not needed, the journal
//!    restarts at page 0.
//!
//! **Invariants.** Places and numbers of batches ascend together. A bucket that was written since the last flush has
//! its image here. So the newest images, written again in their order, give every bucket as it was last written.
//! **Threads.** Any; writes of several batches are in flight at once.
//! **Failure.** A write that fails fails the store: its buckets are not written.

use crate::disk::io::BucketIo;
use crate::format::bucket::{BUCKET_BYTES, BucketCodec};
use crate::format::image::{IMAGE_HEAD_BYTES, IMAGE_PAGE_BYTES, IMAGE_PAYLOAD_BYTES, ImageBatch, ImageWriter};
use crate::{Error, Result, StoreId};
use situ_base::lock;
use situ_device::Buffer;
use situ_storage::{Error as StorageError, FileName, PageFile, Volume};
use std::sync::{Arc, Mutex};

/// Pages that are reserved; given back when this is dropped.
pub(crate) struct Room<'a> {
    journal: Option<&'a ImageJournal>,
    pages: u64,
}

impl Room<'_> {
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// Makes the room of a store that writes no images.
    pub(crate) fn none() -> Room<'static> {
        Room { journal: None, pages: 0 }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.journal.iter().for_each(|journal| journal.give_back(self.pages));
    }
}

/// A batch that has its place in the journal.
pub(crate) struct Placed {
    first_page: u64,
    pages: usize,
    buffer: Buffer,
}

pub(crate) struct ImageJournal {
    file: Arc<dyn PageFile>,
    store: StoreId,
    state: Mutex<State>,
}

struct State {
    next_page: u64,
    reserved_pages: u64,
    next_batch: u64,
}

/// Returns the maximum number of pages that images of `buckets` buckets take.
pub(crate) fn pages_for(buckets: usize) -> u64 {
    (buckets * (IMAGE_HEAD_BYTES + BUCKET_BYTES)).div_ceil(IMAGE_PAYLOAD_BYTES) as u64
}

impl ImageJournal {
    /// Opens the journal, or makes one of `bytes`. Batches of earlier numbers than `next_batch` are not needed.
    pub(crate) fn open(volume: &dyn Volume, store: StoreId, bytes: u64, next_batch: u64) -> Result<ImageJournal> {
        let file = match volume.open_pages(FileName::Images) {
            Ok(file) if file.pages() * IMAGE_PAGE_BYTES as u64 >= bytes => file,
            // A shorter one: a crash while it was made, or another option then. Nothing in it is needed: it was
            // recovered from.
            Ok(_) => {
                volume.remove(FileName::Images)?;
                volume.sync_names()?;
                volume.create_pages(FileName::Images, bytes)?
            }
            Err(StorageError::NotFound { .. }) => volume.create_pages(FileName::Images, bytes)?,
            Err(error) => return Err(error.into()),
        };
        let state = Mutex::new(State { next_page: 0, reserved_pages: 0, next_batch });
        Ok(ImageJournal { file, store, state })
    }

    /// Takes room for a batch of `pages` pages. None if the journal has to restart first.
    pub(crate) fn reserve(&self, pages: u64) -> Option<Room<'_>> {
        assert!(pages <= self.file.pages(), "a batch fits into the journal");
        let mut state = lock(&self.state);
        let fits = state.next_page + state.reserved_pages + pages <= self.file.pages();
        state.reserved_pages += if fits { pages } else { 0 };
        fits.then(|| Room { journal: Some(self), pages })
    }

    /// Returns the bytes of its file.
    pub(crate) fn bytes(&self) -> u64 {
        self.file.pages() * IMAGE_PAGE_BYTES as u64
    }

    /// Returns true if there is room for images of `buckets` buckets.
    pub(crate) fn has_room(&self, buckets: usize) -> bool {
        let state = lock(&self.state);
        state.next_page + state.reserved_pages + pages_for(buckets) <= self.file.pages()
    }

    /// Gives reserved room back that is not used.
    fn give_back(&self, pages: u64) {
        lock(&self.state).reserved_pages -= pages;
    }

    /// Gives the images their place; the caller has room reserved.
    pub(crate) fn place(&self, images: &[(u64, Buffer)]) -> Placed {
        let mut writer = ImageWriter::new();
        images.iter().for_each(|(bucket, block)| writer.push(*bucket, block));
        let count = writer.pages() as u64;
        let (first, batch) = {
            let mut state = lock(&self.state);
            assert!(count <= state.reserved_pages, "room for images is reserved before it is used");
            let at = (state.next_page, state.next_batch);
            state.next_page += count;
            state.next_batch += 1;
            at
        };
        let pages = writer.finish(self.store, batch);
        Placed { first_page: first, pages: count as usize, buffer: Buffer::copy_of(&pages) }
    }

    /// Makes images durable. Want of space is an error of its own: to try again loses nothing.
    pub(crate) fn write(&self, placed: &Placed) -> Result<()> {
        let written = self.file.write(placed.first_page, &placed.buffer, placed.pages, true);
        written.map_err(|error| Error::from(error).or_out_of_space())
    }

    /// Returns the number of the next batch.
    pub(crate) fn next_batch(&self) -> u64 {
        lock(&self.state).next_batch
    }

    /// Restarts the journal. No earlier batch is needed any more, and the superblock says so durably.
    pub(crate) fn restart(&self) {
        lock(&self.state).next_page = 0;
    }
}

/// Writes the buckets again whose images are needed after a crash. Returns the number of the next batch.
pub(crate) fn redo(
    volume: &dyn Volume,
    store: StoreId,
    first_batch: u64,
    codec: &BucketCodec,
    io: &BucketIo,
) -> Result<u64> {
    let file = match volume.open_pages(FileName::Images) {
        Ok(file) => file,
        Err(StorageError::NotFound { .. }) => return Ok(first_batch),
        Err(error) => return Err(error.into()),
    };
    // The images that are found here must be there after the next crash, too.
    file.sync()?;
    let (mut next, mut unused) = (first_batch, first_batch);
    let mut page = 0;
    let mut first = [0; IMAGE_PAGE_BYTES];
    while page < file.pages() {
        file.read_at(page * IMAGE_PAGE_BYTES as u64, &mut first)?;
        // Also the number of a batch that a crash has torn is used up: its pages must not pass for those of a later
        // one.
        unused = unused.max(ImageBatch::number_of(store, &first).map_or(0, |batch| batch + 1));
        let Some(batch) = read_batch(&*file, store, page, &first)? else {
            page += 1;
            continue;
        };
        page += batch.pages as u64;
        if batch.batch >= first_batch {
            check_order(file.path(), batch.batch, next)?;
            next = batch.batch + 1;
            write_again(file.path(), &batch, codec, io)?;
        }
    }
    Ok(next.max(unused))
}

/// The superblock knows where the last lap over the journal began, and each page has a checksum. So only an older
/// superblock leads to batches of two laps.
fn check_order(path: &str, batch: u64, next: u64) -> Result<()> {
    if batch >= next {
        return Ok(());
    }
    let last = next - 1;
    Err(Error::Superblock(format!(
        "SUPERBLOCK is older than {path}, where image batch {batch} follows batch {last}. Restore the newest SUPERBLOCK, or the \
         whole store from one backup; do not repair"
    )))
}

fn read_batch(
    file: &dyn PageFile,
    store: StoreId,
    page: u64,
    first: &[u8; IMAGE_PAGE_BYTES],
) -> Result<Option<ImageBatch>> {
    let Some(pages) = ImageBatch::pages_from(store, first) else { return Ok(None) };
    if page + pages as u64 > file.pages() {
        return Ok(None);
    }
    let offset = page * IMAGE_PAGE_BYTES as u64;
    let mut bytes = vec![0; pages * IMAGE_PAGE_BYTES];
    file.read_at(offset, &mut bytes)?;
    ImageBatch::read(file.path(), offset, store, &bytes)
}

fn write_again(path: &str, batch: &ImageBatch, codec: &BucketCodec, io: &BucketIo) -> Result<()> {
    let mut buckets = Vec::new();
    for image in batch.images() {
        if image.bucket >= io.buckets_max {
            let expected = format!("a bucket below {}", io.buckets_max);
            return Err(StorageError::corruption(path, 0, "image of a bucket", expected, image.bucket).into());
        }
        let mut block = Buffer::new(BUCKET_BYTES);
        image.restore(codec, &mut block)?;
        buckets.push((image.bucket, block));
    }
    Ok(io.write_many(buckets)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IMAGES was called damaged when SUPERBLOCK was an older copy.
    #[test]
    fn batches_of_an_earlier_lap_say_that_the_superblock_is_older() {
        check_order("home/IMAGES", 13, 13).unwrap();
        let error = check_order("home/IMAGES", 3, 13).unwrap_err();
        assert!(matches!(error, Error::Superblock(_)) && error.is_corruption(), "{error}");
        assert!(error.to_string().starts_with("SUPERBLOCK is older than home/IMAGES"), "{error}");
    }
}
