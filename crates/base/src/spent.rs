//! The time of an operation, by the parts of the store that took it.
//!
//! A store watches an operation that may turn out to be slow:
//!
//! 1. The thread of the operation [begins](begin) a record.
//! 2. Code that may wait, or that works for microseconds, measures itself with a [`Lap`]. It needs no handle to the
//!    operation.
//! 3. The thread [ends](end) the record, and gets it if there is anything in it.
//!
//! **Cost.** A watched operation that measures nothing costs two accesses to a variable of the thread. A lap costs two
//! looks at the clock if its thread is watched, and otherwise one access to that variable.
//!
//! **Clock.** A lap has no [`Env`](crate::Env), so a thread has a clock for laps: the machine's. A simulator
//! [sets](use_clock) that of its threads.
//!
//! **Failure.** A panic leaves the record open. It goes on until the thread ends its next one, and harms nothing else.
//!
//! Rejected: a clock or a recorder in the arguments of each function from the operation down to the disk. Compactions
//! use the same functions, and have no use for it.

use crate::env::{Clock, SystemClock};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A part of an operation that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Reads of blocks from files of tables. Blocks from the cache are not measured.
    BlockRead,
    /// Checksums and decompression of these blocks.
    Decode,
    /// Opening of tables, which reads their indexes and filters.
    TableOpen,
    /// Reads of values from the value log.
    ValueRead,
    /// Writes of the log, and waits for the log or for earlier writes.
    Log,
    /// Waits for room in memory, level 0 or the log.
    Room,
    /// Waits for a lock of another transaction.
    Lock,
    /// Waits for a thread of the store.
    Thread,
}

impl Part {
    const COUNT: usize = 8;
    const ALL: [Part; Part::COUNT] = [
        Part::BlockRead,
        Part::Decode,
        Part::TableOpen,
        Part::ValueRead,
        Part::Log,
        Part::Room,
        Part::Lock,
        Part::Thread,
    ];
}

/// The record of an operation. Times are nanoseconds of the thread's clock: a record is copied often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    /// When the first lap began.
    first_ns: u64,
    /// When the last lap ended.
    last_ns: u64,
    counts: [u32; Part::COUNT],
    times_ns: [u64; Part::COUNT],
}

impl Spent {
    const NOTHING: Spent = Spent { first_ns: 0, last_ns: 0, counts: [0; Part::COUNT], times_ns: [0; Part::COUNT] };

    /// Returns the time from the beginning of the first lap to the end of the last one.
    pub fn span(&self) -> Duration {
        Duration::from_nanos(self.last_ns.saturating_sub(self.first_ns))
    }

    /// Returns the time from the beginning of the first lap until now, on the thread of the record.
    pub fn span_until_now(&self) -> Duration {
        Duration::from_nanos(now_ns().saturating_sub(self.first_ns))
    }

    /// Returns the parts that were measured, each with the number of its laps and their time.
    pub fn parts(&self) -> impl Iterator<Item = (Part, u32, Duration)> {
        let Spent { counts, times_ns, .. } = *self;
        let parts = Part::ALL.into_iter();
        parts
            .map(move |part| (part, counts[part as usize], Duration::from_nanos(times_ns[part as usize])))
            .filter(|(_, count, _)| *count > 0)
    }

    /// Returns a record with a wait of `time` behind what `spent` has.
    pub fn and_then(spent: Option<Spent>, part: Part, time: Duration) -> Spent {
        let mut record = spent.unwrap_or(Spent::NOTHING);
        record.add(part, record.last_ns, record.last_ns.saturating_add(nanoseconds(time)));
        record
    }

    #[inline]
    fn add(&mut self, part: Part, began_ns: u64, ended_ns: u64) {
        (self.first_ns, self.last_ns) = (self.first_ns.min(began_ns), self.last_ns.max(ended_ns));
        self.counts[part as usize] = self.counts[part as usize].saturating_add(1);
        self.times_ns[part as usize] += ended_ns.saturating_sub(began_ns);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The thread is not watched.
    Off,
    /// The record is empty.
    Empty,
    /// There is something in the record.
    Measured,
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::Off) };
    static RECORD: RefCell<Spent> = const { RefCell::new(Spent::NOTHING) };
    static CLOCK: RefCell<Option<Arc<dyn Clock>>> = const { RefCell::new(None) };
}

/// Sets the clock for laps of the calling thread.
pub fn use_clock(clock: Arc<dyn Clock>) {
    CLOCK.set(Some(clock));
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn now_ns() -> u64 {
    static SYSTEM: OnceLock<SystemClock> = OnceLock::new();
    CLOCK.with_borrow(|clock| {
        nanoseconds(match clock {
            Some(clock) => clock.now(),
            None => SYSTEM.get_or_init(SystemClock::default).now(),
        })
    })
}

/// Begins a record for the calling thread. Returns false if the thread has one already, which goes on.
#[inline]
pub fn begin() -> bool {
    let is_first = STATE.get() == State::Off;
    if is_first {
        STATE.set(State::Empty);
    }
    is_first
}

/// Ends the record of the calling thread. Returns the record if something was measured.
#[inline]
pub fn end() -> Option<Spent> {
    (STATE.replace(State::Off) == State::Measured).then(|| RECORD.with_borrow(|record| *record))
}

/// A measurement that has begun, if its thread is watched.
#[derive(Debug)]
#[must_use = "a lap counts when it ends"]
pub struct Lap(Option<u64>);

impl Lap {
    /// Begins a lap.
    #[inline]
    pub fn begin() -> Lap {
        Lap((STATE.get() != State::Off).then(now_ns))
    }

    /// Begins a lap that began `ago`.
    pub fn begun(ago: Duration) -> Lap {
        Lap((STATE.get() != State::Off).then(|| now_ns().saturating_sub(nanoseconds(ago))))
    }

    /// Ends the lap as one of `part`, and begins the next one.
    #[inline]
    pub fn next(&mut self, part: Part) {
        if let Some(began_ns) = self.0 {
            self.0 = Some(note(part, began_ns));
        }
    }

    /// Ends the lap as one of `part`.
    #[inline]
    pub fn end(self, part: Part) {
        if let Some(began_ns) = self.0 {
            note(part, began_ns);
        }
    }
}

/// Runs `run` as a lap of `part`.
#[inline]
pub fn lap<T>(part: Part, run: impl FnOnce() -> T) -> T {
    let lap = Lap::begin();
    let outcome = run();
    lap.end(part);
    outcome
}

/// Adds a lap that ends now to the record. Returns its end.
fn note(part: Part, began_ns: u64) -> u64 {
    let ended_ns = now_ns();
    RECORD.with_borrow_mut(|record| {
        if STATE.replace(State::Measured) != State::Measured {
            *record = Spent { first_ns: began_ns, ..Spent::NOTHING };
        }
        record.add(part, began_ns, ended_ns);
    });
    ended_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A clock that stands still until it is moved.
    #[derive(Default)]
    struct Hand(Mutex<Duration>);

    impl Hand {
        fn pass(&self, ms: u64) {
            *self.0.lock().unwrap() += Duration::from_millis(ms);
        }
    }

    impl Clock for Hand {
        fn now(&self) -> Duration {
            *self.0.lock().unwrap()
        }

        fn unix(&self) -> Duration {
            self.now()
        }

        fn sleep(&self, duration: Duration) {
            *self.0.lock().unwrap() += duration;
        }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn laps_of_a_watched_thread_add_up_by_part() {
        let clock = Arc::new(Hand::default());
        use_clock(Arc::clone(&clock) as _);
        assert!(begin());
        clock.pass(100);
        for _ in 0..2 {
            let mut read = Lap::begin();
            clock.pass(5);
            read.next(Part::BlockRead);
            clock.pass(1);
            read.end(Part::Decode);
        }
        clock.pass(3);
        let spent = end().unwrap();
        assert_eq!(spent.parts().collect::<Vec<_>>(), [(Part::BlockRead, 2, ms(10)), (Part::Decode, 2, ms(2))]);
        assert_eq!((spent.span(), spent.span_until_now()), (ms(12), ms(15)));
    }

    #[test]
    fn a_record_has_only_what_was_measured_since_it_began() {
        let clock = Arc::new(Hand::default());
        use_clock(Arc::clone(&clock) as _);
        let wait = |part| lap(part, || clock.pass(7));
        wait(Part::Log);
        assert!(begin());
        assert!(end().is_none(), "what was measured before the record is not in it");
        assert!(begin());
        wait(Part::Room);
        assert!(!begin(), "an operation within another one has no record of its own");
        wait(Part::Lock);
        let spent = end().unwrap();
        assert_eq!(spent.parts().collect::<Vec<_>>(), [(Part::Room, 1, ms(7)), (Part::Lock, 1, ms(7))]);
        wait(Part::Log);
        assert!(end().is_none());
        assert!(begin());
        Lap::begun(ms(4)).end(Part::Thread);
        assert_eq!(end().unwrap().span(), ms(4));
    }
}
