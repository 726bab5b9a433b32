//! The rules for the levels whose new tables go to the fast disk: a pointer that is moved while the store runs.
//!
//! New tables of levels *below the pointer* go to the fast disk, those of other levels to the capacity disk. Nothing is
//! moved for it. Tables that lie elsewhere stay until a compaction replaces them, so that for a while an upper level
//! may lie deeper than a lower one. A pure function of what was measured: the same samples give the same decisions, and
//! golden text files in `testdata/placement` hold them.
//!
//! # Rules
//! Each second in which there was I/O gives a [`Sample`]. In this order:
//! 1. A table could not be written to the fast disk: the pointer goes to 0, for a minute at least.
//! 2. *Room.* What the disk can take is its size less what others have on it and what is kept for the log. If the
//!    levels below the pointer hold more than 75% of that, or less than 5% of the disk is free, the deepest of them
//!    goes. It goes by the levels' sizes and not by the free space. Otherwise the deepest level would fill the disk,
//!    and leave the upper ones, for whose sake it is there, without room.
//! 3. *Bandwidth.* The deepest level goes if the fast disk is busy nine tenths of the time while the capacity disk has
//!    time left, and one of two things holds: it moves more than the upper threshold, or it moves less in a busy second
//!    than the capacity disk does. Level 0 stays.
//! 4. If it moves less than the lower threshold, has time left, and the next deeper level would leave it at most 60%
//!    full, that level is added.
//!
//! The thresholds are given, or 40% and 80% of the most that the disk has moved in a second. They are at least
//! [`LOW_BYTES_PER_S`] and [`HIGH_BYTES_PER_S`]: below that no disk worth calling fast is at its limit.
//!
//! # Why it does not flap
//! Rules 3 and 4 need three samples in a row that agree, and ten seconds since the last change, so that its effect has
//! been seen. A change of direction needs a *hold* since the last change that doubles each time, from ten seconds to
//! ten minutes, and falls back only after twenty quiet minutes. Between the thresholds of each pair nothing happens. So
//! in any time t there are at most about t / 10 min changes of direction, whatever the samples are.

use situ_engine::LEVELS;
use std::fmt;

/// The least lower threshold that is used if none is given.
pub(crate) const LOW_BYTES_PER_S: u64 = 200 << 20;
/// The least upper threshold that is used if none is given.
pub(crate) const HIGH_BYTES_PER_S: u64 = 400 << 20;

/// Samples in a row that have to agree.
const AGREEING: u32 = 3;
const HOLD_S_MIN: f64 = 10.0;
const HOLD_S_MAX: f64 = 600.0;
/// The time for which the disk is left alone after a failure to write.
const FAILURE_HOLD_S: f64 = 60.0;
/// The time for which nothing is promoted to a disk that was found to be too slow for its load.
const RELIEF_S: f64 = 60.0;
/// The time without a change after which earlier changes of direction are forgotten.
const QUIET_S: f64 = 1200.0;

const BUSY: f64 = 0.9;
const HAS_TIME: f64 = 0.6;
const FILLED_TO: f64 = 0.6;
const FILLED_MAX: f64 = 0.75;
const FREE_MIN: f64 = 0.05;

/// The load of a disk in a second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Load {
    pub(crate) read_bytes_per_s: u64,
    pub(crate) written_bytes_per_s: u64,
    /// The share of time in which something was in flight.
    pub(crate) busy: f64,
}

impl Load {
    fn bytes_per_s(&self) -> u64 {
        self.read_bytes_per_s + self.written_bytes_per_s
    }

    /// Returns the bytes that the disk moves in a second in which it is busy all the time.
    fn speed(&self) -> f64 {
        if self.busy < 0.01 { 0.0 } else { self.bytes_per_s() as f64 / self.busy }
    }
}

/// Bytes of a level, over all keyspaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LevelBytes {
    pub(crate) all: u64,
    pub(crate) on_fast: u64,
}

/// The measurements over some time, about a second.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) seconds: f64,
    pub(crate) fast: Load,
    pub(crate) capacity: Load,
    /// Size of the fast disk, what is free of it, and what of that is kept for the log.
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) reserve: u64,
    pub(crate) levels: [LevelBytes; LEVELS],
    /// Tables that could not be written to the fast disk for another reason than room.
    pub(crate) failures: u64,
}

impl Sample {
    /// Returns the bytes of tables that the fast disk could hold.
    fn usable(&self) -> u64 {
        let tables: u64 = self.levels.iter().map(|level| level.on_fast).sum();
        (self.free + tables).saturating_sub(self.reserve)
    }

    /// Returns the share of it that the levels below `pointer` would fill.
    fn filled(&self, pointer: usize) -> f64 {
        let bytes: u64 = self.levels[..pointer].iter().map(|level| level.all).sum();
        bytes as f64 / self.usable().max(1) as f64
    }

    fn free_share(&self) -> f64 {
        self.free.saturating_sub(self.reserve) as f64 / self.total.max(1) as f64
    }

    /// Returns the deepest level below `pointer` that has tables.
    fn deepest_below(&self, pointer: usize) -> Option<usize> {
        (1..pointer).rev().find(|level| self.levels[*level].all > 0)
    }

    /// Returns the first level from `pointer` on that has tables.
    fn next_from(&self, pointer: usize) -> Option<usize> {
        (pointer..LEVELS).find(|level| self.levels[*level].all > 0)
    }
}

/// Bandwidths of the fast disk between which nothing is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thresholds {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

/// The rule that has moved the pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlacementRule {
    /// A table could not be written to the fast disk: nothing new goes there.
    Failure,
    /// The levels below the pointer had too little room: fewer of them go there.
    Room,
    /// The fast disk was at its limit while the capacity disk had time: fewer levels go there.
    Bandwidth,
    /// The fast disk had time and room left: one level more goes there.
    Spare,
}

impl PlacementRule {
    /// All of them.
    pub const ALL: [PlacementRule; 4] =
        [PlacementRule::Failure, PlacementRule::Room, PlacementRule::Bandwidth, PlacementRule::Spare];

    /// Returns one word for the rule, for labels.
    pub fn name(self) -> &'static str {
        match self {
            PlacementRule::Failure => "failure",
            PlacementRule::Room => "room",
            PlacementRule::Bandwidth => "bandwidth",
            PlacementRule::Spare => "spare",
        }
    }

    /// Returns true if the rule sends more levels to the fast disk, and not fewer.
    pub fn adds_levels(self) -> bool {
        self == PlacementRule::Spare
    }

    fn direction(self) -> Direction {
        if self.adds_levels() { Direction::Up } else { Direction::Down }
    }
}

/// A change of the pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) before: usize,
    pub(crate) after: usize,
    pub(crate) rule: PlacementRule,
    pub(crate) reason: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { before, after, reason, .. } = self;
        write!(f, "{before} -> {after}: {reason}")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// The change that a sample asks for.
struct Wish {
    rule: PlacementRule,
    pointer: usize,
    reason: String,
    /// At once, whatever was before.
    urgent: bool,
}

/// The pointer and what bears on its next change.
#[derive(Debug, Clone)]
pub(crate) struct Judge {
    pub(crate) pointer: usize,
    given: Option<Thresholds>,
    /// The most that the fast disk has moved in a second.
    peak: u64,
    agreeing: u32,
    last_wish: Option<Direction>,
    last_change: Option<Direction>,
    last_rule: Option<PlacementRule>,
    since_change_s: f64,
    hold_s: f64,
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

fn percent(share: f64) -> f64 {
    (share * 100.0).min(999.0)
}

impl Judge {
    /// Begins with as many levels as fill the disk to 60% at most.
    pub(crate) fn new(given: Option<Thresholds>, sample: &Sample) -> Judge {
        let pointer = (0..=LEVELS).rev().find(|pointer| sample.filled(*pointer) <= FILLED_TO).unwrap_or(0).max(1);
        Judge {
            pointer,
            given,
            peak: 0,
            agreeing: 0,
            last_wish: None,
            last_change: None,
            last_rule: None,
            since_change_s: 0.0,
            hold_s: HOLD_S_MIN,
        }
    }

    /// Returns the thresholds in force.
    pub(crate) fn thresholds(&self) -> Thresholds {
        let share = |percent: u64| self.peak / 100 * percent;
        self.given.unwrap_or_else(|| Thresholds {
            low: share(40).max(LOW_BYTES_PER_S),
            high: share(80).max(HIGH_BYTES_PER_S),
        })
    }

    /// Takes a sample into account; the change that it leads to, if any.
    pub(crate) fn judge(&mut self, sample: &Sample) -> Option<Change> {
        self.peak = self.peak.max(sample.fast.bytes_per_s());
        self.since_change_s += sample.seconds;
        if self.since_change_s >= QUIET_S {
            self.hold_s = HOLD_S_MIN;
        }
        let wish = self.wish(sample);
        let direction = wish.as_ref().map(|wish| wish.rule.direction());
        self.agreeing = if direction == self.last_wish { self.agreeing.saturating_add(1) } else { 1 };
        self.last_wish = direction;
        let wish = wish?;
        let direction = wish.rule.direction();
        let turns = self.last_change.is_some_and(|last| last != direction);
        let wait_s = if turns { self.hold_s } else { HOLD_S_MIN };
        let may = wish.urgent || (self.agreeing >= AGREEING && self.since_change_s >= wait_s);
        if !may {
            return None;
        }
        if turns {
            self.hold_s = (self.hold_s * 2.0).min(HOLD_S_MAX);
        }
        if sample.failures > 0 {
            self.hold_s = self.hold_s.max(FAILURE_HOLD_S);
        }
        self.last_change = Some(direction);
        self.last_rule = Some(wish.rule);
        self.since_change_s = 0.0;
        self.agreeing = 0;
        let before = std::mem::replace(&mut self.pointer, wish.pointer);
        Some(Change { before, after: wish.pointer, rule: wish.rule, reason: wish.reason })
    }

    /// Returns true if the fast disk was found to be at its limit a short while ago, and is to get nothing that it need
    /// not have.
    pub(crate) fn relieves(&self) -> bool {
        self.last_rule == Some(PlacementRule::Bandwidth) && self.since_change_s < RELIEF_S
    }

    fn wish(&self, sample: &Sample) -> Option<Wish> {
        if sample.failures > 0 {
            // Once down, it is down: that the disk fails still is no second decision.
            let reason = "a table could not be written to the fast disk".to_owned();
            return (self.pointer > 0).then_some(Wish {
                rule: PlacementRule::Failure,
                pointer: 0,
                reason,
                urgent: true,
            });
        }
        self.wants_room(sample).or_else(|| self.wants_less(sample)).or_else(|| self.wants_more(sample))
    }

    fn wants_room(&self, sample: &Sample) -> Option<Wish> {
        let level = sample.deepest_below(self.pointer)?;
        let (filled, free) = (sample.filled(self.pointer), sample.free_share());
        let down = |reason, urgent| Some(Wish { rule: PlacementRule::Room, pointer: level, reason, urgent });
        if filled > FILLED_MAX {
            let reason = format!("levels below {} fill {:.0}% of the fast disk's room", self.pointer, percent(filled));
            return down(reason, true);
        }
        if free < FREE_MIN {
            return down(format!("{:.0}% of the fast disk is free for tables", percent(free)), true);
        }
        None
    }

    fn wants_less(&self, sample: &Sample) -> Option<Wish> {
        let level = sample.deepest_below(self.pointer)?;
        let (fast, capacity) = (&sample.fast, &sample.capacity);
        if fast.busy < BUSY || capacity.busy > HAS_TIME {
            return None;
        }
        let moved = fast.bytes_per_s();
        let high = self.thresholds().high;
        let reason = if moved > high {
            format!("the fast disk moves {} MiB/s, above {}; ", mib(moved), mib(high))
        } else if fast.speed() < capacity.speed() {
            let speeds = [fast.speed(), capacity.speed()].map(|speed| mib(speed as u64));
            format!("the fast disk moves {} MiB in a busy second, the capacity disk {}; ", speeds[0], speeds[1])
        } else {
            return None;
        };
        let busy = [fast.busy, capacity.busy].map(percent);
        let reason = format!("{reason}busy {:.0}% and {:.0}% of the time", busy[0], busy[1]);
        Some(Wish { rule: PlacementRule::Bandwidth, pointer: level, reason, urgent: false })
    }

    fn wants_more(&self, sample: &Sample) -> Option<Wish> {
        // Level 0 first, if even that had to go.
        let level = if self.pointer == 0 { 0 } else { sample.next_from(self.pointer)? };
        let pointer = level + 1;
        let moved = sample.fast.bytes_per_s();
        let low = self.thresholds().low;
        let filled = sample.filled(pointer);
        if moved >= low || sample.fast.busy > HAS_TIME || filled > FILLED_TO || sample.free_share() < 2.0 * FREE_MIN {
            return None;
        }
        let reason = format!(
            "the fast disk moves {} MiB/s, below {}, and level {level} fills it to {:.0}%",
            mib(moved),
            mib(low),
            percent(filled)
        );
        Some(Wish { rule: PlacementRule::Spare, pointer, reason, urgent: false })
    }
}

#[cfg(test)]
mod tests;
