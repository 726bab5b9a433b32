//! Which segment is collected next, and whether any is.
//!
//! *Inflation* is what the log takes for each live byte, in hundredths. Trimmed bytes take no room on a drive that compresses, so
//! the *adjusted* inflation leaves them out. A segment is due for collection in one of three cases:
//!
//! 1. It has no live byte. Its removal costs nothing.
//! 2. The adjusted inflation is above [`Options::collect_above_percent`](crate::Options). The victim gives back physical space.
//! 3. The logical inflation is above [`Options::logical_above_percent`](crate::Options). The victim gives back addresses. Trimming
//!    would otherwise let a log grow without limit: a drive exposes a few times its physical space at most.

use crate::log::ValueLog;
use crate::options::Victims;
use crate::segment::{Phase, SegmentInfo};
use situ_device::lock;
use std::cmp::Ordering;

/// What the log takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Inflation {
    /// Records that are alive.
    pub live_bytes: u64,
    /// Records that are dead.
    pub dead_bytes: u64,
    /// The part of the dead bytes that was trimmed.
    pub trimmed_bytes: u64,
}

impl Inflation {
    /// `(live + dead) / live`, in hundredths.
    pub fn logical_percent(&self) -> u64 {
        self.percent(self.live_bytes + self.dead_bytes)
    }

    /// `(live + dead - trimmed) / live`, in hundredths.
    pub fn adjusted_percent(&self) -> u64 {
        self.percent(self.live_bytes + self.dead_bytes - self.trimmed_bytes)
    }

    fn percent(&self, taken: u64) -> u64 {
        match taken {
            0 => 100,
            _ => taken.saturating_mul(100) / self.live_bytes.max(1),
        }
    }
}

/// What a victim has to give.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gives {
    Space,
    Addresses,
}

impl ValueLog {
    /// What the log takes now. Collected segments are left out: they go when their last reader does.
    pub fn inflation(&self) -> Inflation {
        let mut sum = Inflation::default();
        for segment in self.segments().iter().filter(|segment| segment.phase != Phase::Collected) {
            sum.live_bytes += segment.live_bytes();
            sum.dead_bytes += segment.dead_bytes;
            sum.trimmed_bytes += segment.trimmed_bytes;
        }
        sum
    }

    /// The segment to collect next; `None` if none is due. A segment without live bytes needs no
    /// collection: the owner removes it, or [retires](ValueLog::retire) it until its last reader has gone.
    pub fn victim(&self) -> Option<SegmentInfo> {
        let segments: Vec<SegmentInfo> = self.segments().into_iter().filter(is_candidate).collect();
        if let Some(empty) = segments.iter().find(|segment| segment.live_bytes() == 0) {
            return Some(empty.clone());
        }
        let inflation = self.inflation();
        let gives = match () {
            () if inflation.adjusted_percent() > u64::from(self.options.collect_above_percent) => Gives::Space,
            () if inflation.logical_percent() > u64::from(self.options.logical_above_percent) => Gives::Addresses,
            () => return None,
        };
        self.choose(segments, gives)
    }

    fn choose(&self, segments: Vec<SegmentInfo>, gives: Gives) -> Option<SegmentInfo> {
        let now = self.appended_total();
        let worth = |segment: &SegmentInfo| self.worth(segment, gives, now);
        let worthy = segments.into_iter().filter(|segment| worth(segment) > 0.0);
        // Of equals the oldest.
        worthy.max_by(|a, b| match worth(a).total_cmp(&worth(b)) {
            Ordering::Equal => b.number.cmp(&a.number),
            unequal => unequal,
        })
    }

    /// How good a victim a segment is; 0 if it gives nothing.
    fn worth(&self, segment: &SegmentInfo, gives: Gives, now: u64) -> f64 {
        let garbage = match gives {
            Gives::Space => segment.garbage_bytes(),
            Gives::Addresses => segment.dead_bytes,
        } as f64;
        let live = segment.live_bytes() as f64;
        match self.options.victims {
            _ if garbage == 0.0 => 0.0,
            Victims::Garbage => garbage / (live + garbage),
            Victims::Fifo => 1.0,
            Victims::GarbageAndAge => garbage * self.age(segment.number, now) / (garbage + 2.0 * live),
        }
    }

    /// Bytes appended since the segment was sealed, and one.
    fn age(&self, number: u64, now: u64) -> f64 {
        let sealed_at = self.find(number).map_or(now, |segment| lock(&segment.state).sealed_at);
        now.saturating_sub(sealed_at) as f64 + 1.0
    }
}

/// A segment that misses a record keeps the others until a person has looked.
fn is_candidate(segment: &SegmentInfo) -> bool {
    segment.phase == Phase::Sealed && !segment.is_incomplete
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inflation_leaves_out_what_was_trimmed() {
        let inflation = Inflation { live_bytes: 1000, dead_bytes: 500, trimmed_bytes: 400 };
        assert_eq!((inflation.logical_percent(), inflation.adjusted_percent()), (150, 110));
        assert_eq!(Inflation::default().adjusted_percent(), 100);
        assert!(Inflation { dead_bytes: 7, ..Inflation::default() }.logical_percent() > 100);
    }
}
