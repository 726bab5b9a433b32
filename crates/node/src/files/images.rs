//! The pages that a session wrote last, as the client knows them.

use situ_base::lock;
use situ_device::{Buffer, PAGE_BYTES};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;

/// The maximum number of kept pages of a session: a log has one that it writes again, and a few in flight.
const IMAGES_MAX: usize = 16;

/// See the module. Any thread may use it.
#[derive(Default)]
pub(super) struct Images {
    /// The file's number, the page, and its bytes; the newest one is the last.
    kept: Mutex<VecDeque<(u64, u64, Buffer)>>,
}

impl Images {
    /// The image of a page, which is not kept any more: a write that fails leaves none.
    pub(super) fn take(&self, file: u64, page: u64) -> Option<Buffer> {
        let mut kept = lock(&self.kept);
        let at = kept.iter().rposition(|(of, number, _)| (*of, *number) == (file, page))?;
        kept.remove(at).map(|(_, _, image)| image)
    }

    pub(super) fn forget(&self, file: u64, pages: Range<u64>) {
        lock(&self.kept).retain(|(of, number, _)| *of != file || !pages.contains(number));
    }

    /// Keeps an image in place of the oldest one.
    pub(super) fn put(&self, file: u64, page: u64, image: Buffer) {
        assert_eq!(image.len(), PAGE_BYTES, "an image is one page");
        let mut kept = lock(&self.kept);
        kept.retain(|(of, number, _)| (*of, *number) != (file, page));
        if kept.len() >= IMAGES_MAX {
            kept.pop_front();
        }
        kept.push_back((file, page, image));
        assert!(kept.len() <= IMAGES_MAX, "{} images are kept", kept.len());
    }
}
