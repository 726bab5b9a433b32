//! The recording of requests: `situ trace`.
//!
//! 1. [`Tracer::record`] switches the recording on, on a thread that may wait.
//! 2. An event loop that runs a command while the switch is on notes the command's beginning, and its end when the
//!    answer is there ([`Traced`]).
//! 3. The thread of the recording takes what has gathered, and writes it.
//!
//! **Cost.** While no trace is recorded, a command costs one load. Otherwise it costs two looks at the clock and a
//! record under a lock.
//!
//! **Bounded.** At most [`GATHERED_BYTES_MAX`] of records wait to be written; requests beyond it are lost, and counted.
//! A trace ends at its time, or at its length.

use situ_base::lock;
use situ_trace::{KEY_BYTES_MAX, Keys, Operation, Outcome, Records, Request, Writer};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Records that wait to be written.
const GATHERED_BYTES_MAX: usize = 16 << 20;
/// The time between two writes.
const WRITE_EVERY: Duration = Duration::from_millis(50);

/// See the module.
#[derive(Default)]
pub struct Tracer {
    is_on: AtomicBool,
    recording: Mutex<Option<Recording>>,
}

struct Recording {
    began: Instant,
    keys: Keys,
    hasher: RandomState,
    records: Records,
    lost: u64,
}

/// The end of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traced {
    /// Requests in the trace.
    pub requests: u64,
    /// Requests that found no room.
    pub lost: u64,
    /// The length of the trace.
    pub bytes: u64,
    /// The time of the recording.
    pub duration: Duration,
}

/// A request whose answer is not there yet.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) started: Instant,
    pub(crate) operation: Operation,
    pub(crate) outcome: Outcome,
    pub(crate) value_bytes: usize,
    pub(crate) key: Vec<u8>,
}

/// Switches the recording off, also after a panic or an error.
struct On<'a>(&'a Tracer);

impl Drop for On<'_> {
    fn drop(&mut self) {
        self.0.is_on.store(false, Ordering::Relaxed);
        lock(&self.0.recording).take();
    }
}

impl Tracer {
    /// Records the requests of the time that follows into `out`. Ends after `duration`, at `bytes_max` bytes, or when
    /// `goes_on`, which is asked a few times a second, returns false.
    ///
    /// # Errors
    /// A trace is recorded already ([`ResourceBusy`](io::ErrorKind::ResourceBusy)); the errors of `out`.
    pub fn record(
        &self,
        out: impl Write,
        keys: Keys,
        duration: Duration,
        bytes_max: u64,
        mut goes_on: impl FnMut() -> bool,
    ) -> io::Result<Traced> {
        let began = Instant::now();
        let records = Records::default();
        let _on = {
            let mut recording = lock(&self.recording);
            if recording.is_some() {
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, "the server records a trace already"));
            }
            *recording = Some(Recording { began, keys, hasher: RandomState::new(), records, lost: 0 });
            On(self)
        };
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut writer = Writer::begin(out, keys, unix.as_micros() as u64)?;
        self.is_on.store(true, Ordering::Relaxed);
        loop {
            let left = duration.saturating_sub(began.elapsed());
            let is_over = left.is_zero() || writer.bytes() >= bytes_max || !goes_on();
            if is_over {
                self.is_on.store(false, Ordering::Relaxed);
            } else {
                std::thread::sleep(left.min(WRITE_EVERY));
            }
            let (records, lost) = match &mut *lock(&self.recording) {
                Some(recording) => (std::mem::take(&mut recording.records), recording.lost),
                None => (Records::default(), 0),
            };
            writer.write(records)?;
            if is_over {
                let (requests, duration) = (writer.records(), began.elapsed());
                let bytes = writer.bytes() + situ_trace::END_FRAME_BYTES;
                writer.end(lost, duration)?;
                return Ok(Traced { requests, lost, bytes, duration });
            }
        }
    }

    /// Returns true while requests are recorded.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Records a request whose answer is there now.
    pub(crate) fn end(&self, request: &Begun, now: Instant) {
        let mut recording = lock(&self.recording);
        // A write may end after the trace in which it began.
        let Some(recording) = &mut *recording else { return };
        if recording.records.bytes() >= GATHERED_BYTES_MAX {
            recording.lost += 1;
            return;
        }
        let hash;
        let key = match recording.keys {
            Keys::Hashed => {
                hash = recording.hasher.hash_one(&request.key).to_le_bytes();
                &hash[..]
            }
            Keys::Plain => &request.key[..request.key.len().min(KEY_BYTES_MAX)],
        };
        recording.records.push(&Request {
            time: request.started.saturating_duration_since(recording.began),
            latency: now.saturating_duration_since(request.started),
            operation: request.operation,
            outcome: request.outcome,
            value_bytes: u32::try_from(request.value_bytes).unwrap_or(u32::MAX),
            key_bytes: u16::try_from(request.key.len()).unwrap_or(u16::MAX),
            key,
        });
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tracer({})", if self.is_on() { "records" } else { "off" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_trace::Trace;
    use std::sync::Arc;

    fn begun(key: &[u8]) -> Begun {
        let started = Instant::now();
        Begun { started, operation: Operation::Get, outcome: Outcome::Hit, value_bytes: 7, key: key.to_vec() }
    }

    fn recorded(keys: Keys, bytes_max: u64, work: impl Fn(&Tracer) -> bool) -> (Traced, Trace) {
        let tracer = Tracer::default();
        let mut file = Vec::new();
        let ended = tracer.record(&mut file, keys, Duration::from_secs(600), bytes_max, || work(&tracer)).unwrap();
        assert!(!tracer.is_on());
        assert_eq!(ended.bytes, file.len() as u64);
        let trace = Trace::read(file).unwrap();
        assert_eq!((trace.len() as u64, trace.lost(), trace.keys()), (ended.requests, ended.lost, keys));
        (ended, trace)
    }

    #[test]
    fn equal_keys_have_equal_hashes_and_other_hashes_in_the_next_trace() {
        let work = |tracer: &Tracer| {
            assert!(tracer.is_on());
            [b"a", b"b", b"a"].iter().for_each(|key| tracer.end(&begun(*key), Instant::now()));
            false
        };
        let (_, first) = recorded(Keys::Hashed, u64::MAX, work);
        let (_, second) = recorded(Keys::Hashed, u64::MAX, work);
        let hashes = |trace: &Trace| trace.requests().map(|request| request.key.to_vec()).collect::<Vec<_>>();
        let (first, second) = (hashes(&first), hashes(&second));
        assert!(first[0] == first[2] && first[0] != first[1] && first[0] != second[0], "{first:?} {second:?}");
        let (_, plain) = recorded(Keys::Plain, u64::MAX, work);
        assert_eq!(hashes(&plain), [b"a", b"b", b"a"]);
    }

    #[test]
    fn a_trace_has_a_bound_and_so_has_what_waits_for_it() {
        let (ended, _) = recorded(Keys::Hashed, 5000, |tracer| {
            (0..100).for_each(|_| tracer.end(&begun(b"key"), Instant::now()));
            true
        });
        assert!((5000..12_000).contains(&ended.bytes), "{ended:?}");
        let records = GATHERED_BYTES_MAX / 28;
        let (ended, _) = recorded(Keys::Hashed, u64::MAX, |tracer| {
            (0..records + 100).for_each(|_| tracer.end(&begun(b"key"), Instant::now()));
            false
        });
        assert_eq!(ended.requests + ended.lost, records as u64 + 100);
        assert!((90..=100).contains(&ended.lost), "{ended:?}");
    }

    #[test]
    fn one_trace_is_recorded_at_a_time_and_a_failure_ends_it() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let tracer = Arc::new(Tracer::default());
        let record = |out: &mut dyn Write, goes_on: &mut dyn FnMut() -> bool| {
            tracer.record(out, Keys::Hashed, Duration::from_secs(600), u64::MAX, goes_on)
        };
        let error = record(&mut Full, &mut || true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        record(&mut io::sink(), &mut || {
            let second = record(&mut io::sink(), &mut || false).unwrap_err();
            assert_eq!(second.kind(), io::ErrorKind::ResourceBusy);
            assert!(tracer.is_on(), "the refused one leaves the first alone");
            false
        })
        .unwrap();
        tracer.end(&begun(b"late"), Instant::now());
    }
}
