//! The options of a value log.

use situ_device::Nature;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The source of the numbers of new segments. A number is never given out twice in the life of a store.
pub type Numbers = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Returns the numbers from `first` on, for an owner that has no counter of its own.
pub fn numbers_from(first: u64) -> Numbers {
    let next = AtomicU64::new(first);
    Arc::new(move || next.fetch_add(1, Ordering::Relaxed))
}

/// The treatment of the dead parts of a segment before it is collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Trim {
    /// Nothing.
    #[default]
    Off,
    /// Sectors without a live byte are given back to the disk.
    DiscardOnly,
    /// Also, the dead bytes of sectors that are mostly dead are zeroed in place. For drives that compress.
    Full,
}

/// The layout of records in a new segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Layout {
    /// One behind the other, across the borders of sectors.
    #[default]
    Packed,
    /// A record of more than a third of a sector begins at a sector's beginning, and the rest of its last sector stays
    /// zero. Its death leaves no sector half dead, so its space comes back without any write. For drives that compress:
    /// elsewhere the zeros take space.
    OwnSectors,
}

/// The rule that chooses a victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Victims {
    /// The segment with the highest share of garbage.
    #[default]
    Garbage,
    /// The oldest segment that has garbage.
    Fifo,
    /// The segment with the best of garbage times age, for what it costs: LFS's rule. Age is counted in appended bytes.
    GarbageAndAge,
}

/// The settings of a [`ValueLog`](crate::ValueLog).
#[derive(Clone)]
pub struct Options {
    /// Length of a segment. Default: 64 MiB. A longer value has a longer segment of its own. A disk that is too full
    /// for a segment of this length gets segments of a sixteenth.
    pub segment_bytes: u64,
    /// The kind of trimming. Default: [`Trim::Off`]; see [`Trim`].
    pub trim: Trim,
    /// A sector with live bytes is zeroed if its length divided by its live bytes is at least this many hundredths.
    /// Default: 150. Smaller values save space and cost writes.
    pub zero_at_percent: u32,
    /// Sectors with live bytes are zeroed only while the [adjusted inflation](crate::Inflation::adjusted_percent) is
    /// above this. Default: 105. At 100, every sector that qualifies is zeroed at once.
    pub zero_above_percent: u32,
    /// Segments are collected while the [adjusted inflation](crate::Inflation::adjusted_percent) is above this.
    /// Default: 125.
    pub collect_above_percent: u32,
    /// Segments are also collected while the [logical inflation](crate::Inflation::logical_percent) is above this: the
    /// addresses of a drive end, too. Default: 300.
    pub logical_above_percent: u32,
    /// The segment that is collected first. Default: [`Victims::Garbage`].
    pub victims: Victims,
    /// The layout of records. Default: [`Layout::Packed`].
    pub layout: Layout,
    /// A sector without a live byte is given back by a discard. False where the file system does not tell the drive:
    /// with [`Trim::Full`], zeros are written instead, which a drive that compresses keeps for nothing. Default: true.
    pub discards: bool,
    /// The maximum memory for dead ranges. Default: 64 MiB. Beyond it, the log forgets the ranges of whole
    /// segments; only collection reclaims their space then.
    pub dead_ranges_bytes_max: usize,
    /// The maximum number of segments that are open for reads at a time. Default: 512.
    pub open_segments_max: usize,
    /// Nothing is changed on the disk: no orphan is removed, and no unfinished segment is sealed. Default: false.
    pub read_only: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: 64 << 20,
            trim: Trim::Off,
            zero_at_percent: 150,
            zero_above_percent: 105,
            collect_above_percent: 125,
            logical_above_percent: 300,
            victims: Victims::Garbage,
            layout: Layout::Packed,
            discards: true,
            dead_ranges_bytes_max: 64 << 20,
            open_segments_max: 512,
            read_only: false,
        }
    }
}

impl Options {
    /// Returns the defaults for a drive, by its nature. On a drive that compresses, address space is free and zeros
    /// cost nothing.
    pub fn for_drive(compresses: bool) -> Options {
        let (trim, layout) = match compresses {
            true => (Trim::Full, Layout::OwnSectors),
            false => (Trim::DiscardOnly, Layout::Packed),
        };
        Options { trim, layout, ..Options::default() }
    }

    /// Returns the defaults for a home of this nature.
    pub fn for_nature(nature: &Nature) -> Options {
        let discards = !(nature.compresses() && nature.keeps_discards);
        Options { discards, ..Options::for_drive(nature.compresses()) }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Options({:?}, {:?}, segments of {} bytes)", self.trim, self.layout, self.segment_bytes)
    }
}

/// A segment that the owner knows from before. Every other segment in the volume is an orphan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KnownSegment {
    /// Its number.
    pub number: u64,
    /// The bytes of records that were synced, as reported to the owner; 0 if the owner does not know. Fewer bytes found
    /// are damage.
    pub record_bytes: u64,
    /// The dead part of `record_bytes`: a sum of footprints.
    pub dead_bytes: u64,
    /// The trimmed part of `dead_bytes`; 0 if the owner has not kept this number.
    pub trimmed_bytes: u64,
}
