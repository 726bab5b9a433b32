//! The cost of a fill factor in bytes.
//!
//! Logical bytes are pages: a rewritten table has `rows / rows(f)` of them. On a drive that does not compress, physical
//! bytes are the same. On a drive that compresses, a page more costs its headers and the description of its zeros:
//! [`HOLE_BYTES`] for each page, measured. The rows themselves are the same bytes, in more pages.
//!
//! **Limits.** The forecast is for pages that have just been written. PostgreSQL does not zero the room of dead
//! versions when it prunes them. As updates use the room, the room comes to hold what they wrote, and costs what those
//! bytes compress to. The cost is never above the logical one.

use crate::page::Page;
use situ_device::Compresses;

/// Physical bytes of a page more, at most: on zram with LZ4, 20 to 370 in docs/evidence/postgres.md. A drive that
/// compresses each 4 KB block by itself pays for what repeats in the rows once in each block. ScaleFlux and dm-vdo were
/// not measured.
pub const HOLE_BYTES: f64 = 370.0;

/// The bytes more, or fewer where negative, than at the present fill factor. Both figures are for tables that have just
/// been rewritten.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// The bytes in pages.
    pub logical: f64,
    /// The bytes on the drive.
    pub physical: f64,
}

/// Returns the cost of `rows` rows at the fill factor `to` instead of `from`.
pub fn cost(page: Page, block_bytes: u32, rows: f64, from: u32, to: u32, drive: Compresses) -> Cost {
    let pages = page.pages(rows, to) - page.pages(rows, from);
    let logical = pages * f64::from(block_bytes);
    let physical = match drive {
        Compresses::Yes => pages * HOLE_BYTES,
        Compresses::No | Compresses::Unknown => logical,
    };
    Cost { logical, physical }
}
