//! Which segment is collected next, and whether any is.
//!
//! *Inflation* is what the log takes for each live byte, in hundredths. Trimmed bytes take no room on a drive that compresses, so
//! the *adjusted* inflation leaves them out. A segment is due for collection in one of three cases:
//!
//! 1. It has no live byte. Its removal costs nothing.
//! 2. The adjusted inflation is above [`Options::collect_above_percent`](crate::Options). The victim gives back physical space.
//! 3. The logical inflation is above [`Options::logical_above_percent`](crate::Options). The victim gives back addresses. Trimming
//!    would otherwise let a log grow without limit: a drive exposes a few times its physical space at most.
//!
//! A segment that cannot be collected is left out of both, the choice and the inflation that asks for a victim. So it hides no other
//! victim, and its garbage does not have segments collected that are mostly alive.

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
    fn of(segments: &[SegmentInfo]) -> Inflation {
        let mut sum = Inflation::default();
        for segment in segments.iter().filter(|segment| segment.phase != Phase::Collected) {
            sum.live_bytes += segment.live_bytes();
            sum.dead_bytes += segment.dead_bytes;
            sum.trimmed_bytes += segment.trimmed_bytes;
        }
        sum
    }

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
        Inflation::of(&self.segments())
    }

    /// The segment to collect next; `None` if none is due. A segment without live bytes needs no
    /// collection: the owner removes it, or [retires](ValueLog::retire) it until its last reader has gone.
    pub fn victim(&self) -> Option<SegmentInfo> {
        self.victim_among(&|_| true)
    }

    /// As [`victim`](ValueLog::victim), of the segments whose numbers the owner `allows` now.
    pub fn victim_among(&self, allows: &dyn Fn(u64) -> bool) -> Option<SegmentInfo> {
        let mut segments = self.segments();
        segments.retain(|segment| !segment.is_stuck());
        let inflation = Inflation::of(&segments);
        segments.retain(|segment| segment.phase == Phase::Sealed);
        if let Some(empty) = segments.iter().find(|segment| segment.live_bytes() == 0 && allows(segment.number)) {
            return Some(empty.clone());
        }
        let gives = match () {
            () if inflation.adjusted_percent() > u64::from(self.options.collect_above_percent) => Gives::Space,
            () if inflation.logical_percent() > u64::from(self.options.logical_above_percent) => Gives::Addresses,
            () => return None,
        };
        segments.retain(|segment| allows(segment.number));
        self.choose(segments, gives)
    }

    /// The owner could not collect a segment, for a reason that will not go away: it is no victim until the log is opened again.
    /// Unlike a segment with a damaged record, of which the log itself tells.
    pub fn set_aside(&self, number: u64) {
        if let Some(segment) = self.find(number) {
            lock(&segment.state).is_set_aside = true;
        }
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
