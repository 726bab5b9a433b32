//! Which segment is collected next, and whether any is.
//!
//! *Inflation* is what the log takes for each live byte, in hundredths. Trimmed bytes take no room on a drive that
//! compresses, so the *adjusted* inflation leaves them out. A segment is due for collection in one of three cases:
//!
//! 1. It has no live byte. Its removal costs nothing.
//! 2. The adjusted inflation is above [`Options::collect_above_percent`](crate::Options). The victim gives back
//!    physical space.
//! 3. The logical inflation is above [`Options::logical_above_percent`](crate::Options). The victim gives back
//!    addresses. Trimming would otherwise let a log grow without limit: a drive exposes a few times its physical space
//!    at most.
//!
//! A segment that cannot be collected is left out of both, the choice and the inflation that asks for a victim. So it
//! hides no other victim, and its garbage does not have segments collected that are mostly alive. That concerns
//! segments that are open or abandoned, too, and those that the owner does not allow now.
//!
//! A victim of case 2 or 3 has a least share of garbage: a tenth, or less if the setting asks for less. Above the
//! setting, some segment always has that share. So collection ends: no rule has it rewrite segments that give next to
//! nothing.

use crate::log::ValueLog;
use crate::options::Victims;
use crate::segment::{Phase, SegmentInfo};
use situ_base::lock;
use std::cmp::Ordering;

/// The cap on the least share of garbage of a victim, in hundredths.
const LEAST_PERCENT_MAX: u64 = 10;

/// The space that the log takes, and how much of it is garbage.
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

    /// Returns `(live + dead) / live`, in hundredths.
    pub fn logical_percent(&self) -> u64 {
        self.percent(self.live_bytes + self.dead_bytes)
    }

    /// Returns `(live + dead - trimmed) / live`, in hundredths.
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

/// The resource that a victim has to give.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gives {
    Space,
    Addresses,
}

impl ValueLog {
    /// Returns the space that the log takes now. Collected segments are left out: they go when their last reader does.
    pub fn inflation(&self) -> Inflation {
        Inflation::of(&self.segments())
    }

    /// Returns the segment to collect next; `None` if none is due. A segment without live bytes needs no
    /// collection: the owner removes it, or [retires](ValueLog::retire) it until its last reader has gone.
    pub fn victim(&self) -> Option<SegmentInfo> {
        self.victim_among(&|_| true)
    }

    /// Returns the segment to collect next as [`victim`](ValueLog::victim) does, of the segments whose numbers the
    /// owner `allows` now.
    pub fn victim_among(&self, allows: &dyn Fn(u64) -> bool) -> Option<SegmentInfo> {
        let mut segments = self.segments();
        segments.retain(|segment| !segment.is_stuck());
        segments.retain(|segment| segment.phase == Phase::Sealed);
        if let Some(empty) = segments.iter().find(|segment| segment.live_bytes() == 0 && allows(segment.number)) {
            return Some(empty.clone());
        }
        // Only where there may be something to do, each segment is asked for.
        self.what_is_due(&segments)?;
        segments.retain(|segment| allows(segment.number));
        let gives = self.what_is_due(&segments)?;
        self.choose(segments, gives)
    }

    /// Returns the resource that a victim among these is to give; `None` if none is due.
    fn what_is_due(&self, segments: &[SegmentInfo]) -> Option<Gives> {
        let inflation = Inflation::of(segments);
        match () {
            () if inflation.adjusted_percent() > u64::from(self.options.collect_above_percent) => Some(Gives::Space),
            () if inflation.logical_percent() > u64::from(self.options.logical_above_percent) => Some(Gives::Addresses),
            () => None,
        }
    }

    /// Returns the least share of garbage that a victim has, in hundredths. Where the inflation is above a setting `s`,
    /// the average share is above `(s - 100) / s`.
    fn least_percent(&self, gives: Gives) -> u64 {
        let setting = u64::from(match gives {
            Gives::Space => self.options.collect_above_percent,
            Gives::Addresses => self.options.logical_above_percent,
        });
        (setting.saturating_sub(100) * 100 / setting.max(1)).min(LEAST_PERCENT_MAX)
    }

    /// Notes that the owner could not collect a segment, for a reason that will not go away: it is no victim until the
    /// log is opened again. Unlike a segment with a damaged record, of which the log itself tells.
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

    /// Returns the worth of a segment as a victim; 0 if it gives nothing.
    fn worth(&self, segment: &SegmentInfo, gives: Gives, now: u64) -> f64 {
        let garbage = match gives {
            Gives::Space => segment.garbage_bytes(),
            Gives::Addresses => segment.dead_bytes,
        } as f64;
        let live = segment.live_bytes() as f64;
        let least = (live + garbage) * self.least_percent(gives) as f64 / 100.0;
        match self.options.victims {
            _ if garbage == 0.0 || garbage < least => 0.0,
            Victims::Garbage => garbage / (live + garbage),
            Victims::Fifo => 1.0,
            Victims::GarbageAndAge => garbage * self.age(segment.number, now) / (garbage + 2.0 * live),
        }
    }

    /// Returns the bytes appended since the segment was sealed, and one.
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
