//! Verification of a served store on a schedule: `serve --verify-every`.
//!
//! A thread waits until a verification is due, reads the store at a bounded rate, and logs the outcome. The store notes
//! damage by itself, so `/healthz` and the metrics show it. The outcome is also in `VERIFIED.json` in the store's
//! directory. So the schedule goes on over restarts: the next verification is due when the interval after the last one
//! has passed. A verification that the end of the server cuts off begins again after the next start.
//!
//! The schedule may [change](Verifying::change). A verification that runs goes on at its old rate.
//!
//! **Failure.** An error that says nothing about the store's data is logged, and the next verification is due after the
//! interval.

use crate::{config, text};
use serde::{Deserialize, Serialize};
use situ::{Error, Store, VerifyReport};
use situ_base::lock;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const STORED: &str = "VERIFIED.json";
/// The first verification of a store comes so long after its server has started, or sooner if the interval is shorter.
const FIRST_AFTER_S: u64 = 600;

/// When a store is verified, and how fast it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) every_s: u64,
    /// 0: without a limit.
    pub(crate) bytes_per_s_max: u64,
}

/// The last verification.
#[derive(Debug, Serialize, Deserialize)]
struct Verified {
    finished_unix_s: u64,
    sound: bool,
    files: u64,
    bytes: u64,
    entries: u64,
    damages: u64,
    seconds: f64,
}

/// The thread that verifies a store.
pub(crate) struct Verifying {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

/// The orders for the thread.
struct Shared {
    orders: Mutex<Orders>,
    changed: Condvar,
}

struct Orders {
    /// `None` verifies nothing.
    schedule: Option<Schedule>,
    is_over: bool,
}

impl Verifying {
    /// Starts the thread. Without a directory, the first verification is due after the interval.
    ///
    /// # Errors
    /// The system has no thread.
    pub(crate) fn start(
        store: Store,
        directory: Option<PathBuf>,
        schedule: Option<Schedule>,
        tell: impl Fn(&str) + Send + 'static,
    ) -> io::Result<Verifying> {
        let orders = Mutex::new(Orders { schedule, is_over: false });
        let shared = Arc::new(Shared { orders, changed: Condvar::new() });
        let ordered = Arc::clone(&shared);
        let run = move || {
            let mut first = directory.as_deref();
            while let Some(schedule) = ordered.next(|every_s| first_wait_s(first, every_s)) {
                if let Some(line) = verify(&store, directory.as_deref(), schedule.bytes_per_s_max) {
                    tell(&line);
                }
                first = None;
            }
        };
        let thread = std::thread::Builder::new().name("situ-verify".to_owned()).spawn(run)?;
        Ok(Verifying { shared, thread })
    }

    /// Changes the schedule. Returns true if it was another one.
    pub(crate) fn change(&self, schedule: Option<Schedule>) -> bool {
        let before = std::mem::replace(&mut lock(&self.shared.orders).schedule, schedule);
        self.shared.changed.notify_all();
        before != schedule
    }

    /// Makes the thread end. A verification ends when its store closes.
    pub(crate) fn stop(&self) {
        lock(&self.shared.orders).is_over = true;
        self.shared.changed.notify_all();
    }

    /// Waits for the end of the thread.
    pub(crate) fn join(self) {
        // A panic was reported when it happened.
        let _ = self.thread.join();
    }
}

impl Shared {
    /// Waits for the next verification, which is due `wait_s` of its interval from now on. Returns `None` at the end.
    fn next(&self, wait_s: impl Fn(u64) -> u64) -> Option<Schedule> {
        let begun = Instant::now();
        let mut orders = lock(&self.orders);
        let mut planned: Option<(Schedule, Duration)> = None;
        while !orders.is_over {
            let Some(schedule) = orders.schedule else {
                orders = self.changed.wait(orders).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let (_, wait) = match planned {
                Some(plan) if plan.0 == schedule => plan,
                _ => *planned.insert((schedule, Duration::from_secs(wait_s(schedule.every_s)))),
            };
            let left = wait.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Some(schedule);
            }
            orders = self.changed.wait_timeout(orders, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }
}

fn first_wait_s(directory: Option<&Path>, every_s: u64) -> u64 {
    let Some(directory) = directory else { return every_s };
    let last = fs::read(directory.join(STORED)).ok().and_then(|text| serde_json::from_slice::<Verified>(&text).ok());
    let due = last.map_or(0, |last| last.finished_unix_s.saturating_add(every_s));
    // A clock that was set back must not put it off for years.
    due.saturating_sub(text::now_unix_s()).max(FIRST_AFTER_S).min(every_s)
}

/// Verifies the store. Returns a line for the log, if the store was not closed meanwhile.
fn verify(store: &Store, directory: Option<&Path>, bytes_per_s_max: u64) -> Option<String> {
    let report = match store.verify(bytes_per_s_max, &mut |_| {}) {
        Ok(report) => report,
        Err(Error::Closed) => return None,
        Err(error) => return Some(format!("verification failed: {error}")),
    };
    let VerifyReport { files, bytes, entries, ref damages, damages_left_out, duration, .. } = report;
    let verified = Verified {
        finished_unix_s: text::now_unix_s(),
        sound: report.is_sound(),
        files,
        bytes,
        entries,
        damages: damages.len() as u64 + damages_left_out,
        seconds: duration.as_secs_f64(),
    };
    let outcome = match damages.first() {
        None => "all is sound".to_owned(),
        Some(first) => format!("{} damages, the first: {first}", verified.damages),
    };
    let mut line = format!(
        "verified {} with {} in {:.0} s: {outcome}",
        text::plural(files, "table"),
        text::bytes(bytes),
        verified.seconds
    );
    if let Some(directory) = directory
        && let Err(error) = write(directory, &verified)
    {
        line += &format!("; cannot write {STORED}: {error}");
    }
    Some(line)
}

fn write(directory: &Path, verified: &Verified) -> io::Result<()> {
    config::replace(directory, STORED, &serde_json::to_vec(verified)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn the_schedule_goes_on_over_restarts() {
        let directory = tempfile::tempdir().unwrap();
        let (path, day) = (directory.path(), 86_400);
        assert_eq!(first_wait_s(None, day), day);
        assert_eq!(first_wait_s(Some(path), day), FIRST_AFTER_S);
        assert_eq!(first_wait_s(Some(path), 1), 1);
        let last = |ago: i64| {
            let finished_unix_s = text::now_unix_s().saturating_add_signed(-ago);
            let verified =
                Verified { finished_unix_s, sound: true, files: 1, bytes: 1, entries: 1, damages: 0, seconds: 1.0 };
            write(path, &verified).unwrap();
            first_wait_s(Some(path), day)
        };
        assert!((day - 3602..=day - 3600).contains(&last(3600)));
        assert_eq!(last(2 * 86_400), FIRST_AFTER_S);
        assert_eq!(last(-365 * 86_400), day, "the clock was set back");
        fs::write(path.join(STORED), "not JSON").unwrap();
        assert_eq!(first_wait_s(Some(path), day), FIRST_AFTER_S);
    }

    #[test]
    fn the_outcome_is_told_and_stored_and_the_thread_ends() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        store.put("k", "v").unwrap();
        store.flush().unwrap();
        let (told, lines) = mpsc::channel();
        let tell = move |line: &str| told.send(line.to_owned()).unwrap();
        let schedule = Schedule { every_s: 1, bytes_per_s_max: 0 };
        let place = Some(directory.path().to_owned());
        let verifying = Verifying::start(store.clone(), place, None, tell).unwrap();
        assert!(verifying.change(Some(schedule)) && !verifying.change(Some(schedule)));
        for _ in 0..2 {
            let line = lines.recv().unwrap();
            assert!(line.starts_with("verified 1 table with ") && line.ends_with(": all is sound"), "{line}");
        }
        let stored: Verified = serde_json::from_slice(&fs::read(directory.path().join(STORED)).unwrap()).unwrap();
        assert!(stored.sound && stored.entries == 1);
        verifying.stop();
        store.close().unwrap();
        verifying.join();
    }
}
