//! The number of log writes in flight that loggers keep, by trials.
//!
//! One write more pays where the disk takes much longer than the processor for a write, and works on several at once.
//! Otherwise it makes groups smaller, and costs the processor more. No figure of the disk alone says which. So it is
//! tried, and the throughput decides.
//!
//! 1. A *window* ends after [`WRITES`] log writes and [`WINDOW`]. Its rate is the number of requests in these writes,
//!    divided by the time in which requests waited. Time without any counts for nothing.
//! 2. A trial takes three windows: with the number in use, with one more or one less, and with the number in use again.
//!    A load that grows or falls meanwhile favours neither. It gives one sample of the gain of one write more.
//! 3. The rates of two windows differ by tens of percent where flushes and compactions take the processors for
//!    milliseconds. So the last [`SAMPLES`] samples of a number are averaged. One more is used while its gain is at
//!    least [`PAYS`], by that average.
//! 4. A trial that changes the number is followed by the next one. Otherwise loggers rest, up to [`REST_MAX`] windows,
//!    and try the other direction.
//!
//! **Rejected:** a number by the disk's latency (the bound was 40 us here): the processor has a say, too.

use std::time::Duration;

/// Log writes of a window, at least.
const WRITES: u32 = 16;
/// The time of a window, at least.
const WINDOW: Duration = Duration::from_millis(20);
/// The gain for which one write more is kept in flight.
const PAYS: f64 = 0.02;
/// Trials whose gains are averaged.
const SAMPLES: u32 = 5;
/// The gain or loss as which a greater one counts.
const SAMPLE_MAX: f64 = 0.5;
/// Windows between two trials: the first time, and at most.
const REST_MIN: u32 = 2;
const REST_MAX: u32 = 16;

/// The place within a trial. The rates are those of its earlier windows.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    /// No trial. The number is that of the windows left of the rest.
    Rest(u32),
    Before,
    Tried {
        before: f64,
    },
    After {
        before: f64,
        tried: f64,
    },
}

/// The average gain of one write more in flight.
#[derive(Debug, Clone, Copy, Default)]
struct Gain {
    average: f64,
    samples: u32,
}

impl Gain {
    fn add(&mut self, sample: f64) {
        if sample.is_nan() {
            // No request came in either window.
            return;
        }
        self.samples = (self.samples + 1).min(SAMPLES);
        self.average += (sample.clamp(-SAMPLE_MAX, SAMPLE_MAX) - self.average) / f64::from(self.samples);
    }
}

/// The trials, and the number in use.
#[derive(Debug)]
pub(crate) struct Depth {
    max: usize,
    chosen: usize,
    /// Of the second write in flight, of the third, and so on.
    gains: Vec<Gain>,
    /// The present trial, or the next one, is of one write more.
    up: bool,
    step: Step,
    rest: u32,
    writes: u32,
    requests: usize,
    /// The beginning of the window, and the time in it without requests.
    since: Duration,
    idle: Duration,
}

impl Depth {
    /// Returns trials of up to `max` writes in flight, which begin with `first`.
    pub(crate) fn new(max: usize, first: usize) -> Depth {
        Depth {
            max: max.max(1),
            chosen: first.clamp(1, max.max(1)),
            gains: Vec::new(),
            up: true,
            step: Step::Rest(REST_MIN),
            rest: REST_MIN,
            writes: 0,
            requests: 0,
            since: Duration::ZERO,
            idle: Duration::ZERO,
        }
    }

    /// Returns the number of writes in flight to keep now.
    pub(crate) fn now(&self) -> usize {
        match self.step {
            Step::Tried { .. } => self.tried(),
            _ => self.chosen,
        }
    }

    fn tried(&self) -> usize {
        if self.up { (self.chosen + 1).min(self.max) } else { (self.chosen - 1).max(1) }
    }

    /// Notes that for `time` no request waited.
    pub(crate) fn rested(&mut self, time: Duration) {
        self.idle += time;
    }

    /// Notes that a log write has brought `requests` requests to the disk.
    pub(crate) fn landed(&mut self, now: Duration, requests: usize) {
        if self.writes == 0 {
            // The first one only begins the window.
            (self.since, self.idle) = (now, Duration::ZERO);
        } else {
            self.requests += requests;
        }
        self.writes += 1;
        let time = now.saturating_sub(self.since).saturating_sub(self.idle);
        if self.writes > WRITES && time >= WINDOW {
            let rate = self.requests as f64 / time.as_secs_f64();
            (self.writes, self.requests) = (1, 0);
            (self.since, self.idle) = (now, Duration::ZERO);
            self.end_window(rate);
        }
    }

    fn end_window(&mut self, rate: f64) {
        self.step = match self.step {
            Step::Rest(left) if left > 1 => Step::Rest(left - 1),
            Step::Rest(_) => {
                // At an end, there is one direction.
                self.up = (self.up && self.chosen < self.max) || self.chosen == 1;
                if self.max == 1 { Step::Rest(REST_MAX) } else { Step::Before }
            }
            Step::Before => Step::Tried { before: rate },
            Step::Tried { before } => Step::After { before, tried: rate },
            Step::After { before, tried } => self.decide((before + rate) / 2.0, tried),
        };
    }

    /// Takes the rates of a trial: with the number in use, and with the other one.
    fn decide(&mut self, used: f64, tried: f64) -> Step {
        let (fewer, more, number) = if self.up { (used, tried, self.chosen) } else { (tried, used, self.chosen - 1) };
        if self.gains.len() < number {
            self.gains.resize(number, Gain::default());
        }
        let gain = &mut self.gains[number - 1];
        gain.add(more / fewer - 1.0);
        if self.up == (gain.average >= PAYS) {
            self.chosen = self.tried();
            self.rest = REST_MIN;
            return Step::Rest(1);
        }
        let rest = self.rest;
        self.rest = (rest * 2).min(REST_MAX);
        self.up = !self.up;
        Step::Rest(rest)
    }
}

#[cfg(test)]
mod tests;
