//! A bridge to the crate `tracing`; behind the feature `tracing`.
//!
//! Each [`StoreEvent`] becomes an event with the target `situ`. The message is the line for people. The field `event`
//! has the name of the variant, and the figures that most variants have are fields of their own.
//!
//! | level | events |
//! |---|---|
//! | error | the store has failed, damage, failed jobs |
//! | warn | slow operations; what holds writers back; faults that the store goes on with |
//! | info | openings, flushes, compactions, and changes of placement |
//! | debug | beginnings of jobs, and single tables |
//!
//! Rejected: a span for each job. Its beginning and its end are events of different calls, and a failed job has no end.
//! The event of the end has the time of the job.

use crate::base::listener::{Listener, StoreEvent};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tracing::Level;

/// A listener that passes the events of a store on to `tracing`, and to another listener if there is one.
///
/// ```
/// # use situ_engine as situ;
/// use situ::{Options, Store, TracingListener};
/// use std::sync::Arc;
/// # fn main() -> situ::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// let options = Options::default().listener(Arc::new(TracingListener::default()));
/// let store = Store::open_with(directory.path(), options)?;
/// # store.close()
/// # }
/// ```
#[derive(Default)]
pub struct TracingListener {
    next: Option<Arc<dyn Listener>>,
}

impl TracingListener {
    /// Returns a listener that passes events on to `next`, too.
    pub fn before(next: Arc<dyn Listener>) -> TracingListener {
        TracingListener { next: Some(next) }
    }
}

impl fmt::Debug for TracingListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TracingListener")
    }
}

/// The fields of an event.
#[derive(Default)]
struct Fields<'a> {
    keyspace: Option<&'a str>,
    /// Bytes that were written, or that the event is about.
    bytes: Option<u64>,
    bytes_read: Option<u64>,
    duration: Option<Duration>,
}

impl<'a> Fields<'a> {
    fn of(keyspace: &'a str) -> Fields<'a> {
        Fields { keyspace: Some(keyspace), ..Fields::default() }
    }

    fn with(self, bytes: u64, duration: Duration) -> Fields<'a> {
        Fields { bytes: Some(bytes), duration: Some(duration), ..self }
    }
}

/// Returns the level, the name and the fields of an event.
fn describe(event: &StoreEvent) -> (Level, &'static str, Fields<'_>) {
    let none = Fields::default;
    match event {
        StoreEvent::Opened { duration, .. } => (Level::INFO, "opened", Fields { duration: Some(*duration), ..none() }),
        StoreEvent::FlushBegun { keyspace, bytes, .. } => {
            (Level::DEBUG, "flush_begun", Fields { bytes: Some(*bytes), ..Fields::of(keyspace) })
        }
        StoreEvent::Flushed { keyspace, bytes, duration, .. } => {
            (Level::INFO, "flushed", Fields::of(keyspace).with(*bytes, *duration))
        }
        StoreEvent::CompactionBegun { keyspace, bytes, .. } => {
            (Level::DEBUG, "compaction_begun", Fields { bytes: Some(*bytes), ..Fields::of(keyspace) })
        }
        StoreEvent::Compacted { keyspace, bytes_read, bytes_written, duration, .. } => {
            let fields = Fields::of(keyspace).with(*bytes_written, *duration);
            (Level::INFO, "compacted", Fields { bytes_read: Some(*bytes_read), ..fields })
        }
        StoreEvent::TableCreated { keyspace, bytes, .. } => {
            (Level::DEBUG, "table_created", Fields { bytes: Some(*bytes), ..Fields::of(keyspace) })
        }
        StoreEvent::TableDeleted { .. } => (Level::DEBUG, "table_deleted", none()),
        StoreEvent::Slowed { .. } => (Level::WARN, "slowed", none()),
        StoreEvent::WritersStopped { keyspace, .. } => (Level::WARN, "writers_stopped", Fields::of(keyspace)),
        StoreEvent::WritersResumed { keyspace } => (Level::INFO, "writers_resumed", Fields::of(keyspace)),
        StoreEvent::JobFailed { .. } => (Level::ERROR, "job_failed", none()),
        StoreEvent::ManifestMended { .. } => (Level::WARN, "manifest_mended", none()),
        StoreEvent::JobRecovered { .. } => (Level::INFO, "job_recovered", none()),
        StoreEvent::CompactionPostponed { keyspace, .. } => (Level::WARN, "compaction_postponed", Fields::of(keyspace)),
        StoreEvent::DamageFound { .. } => (Level::ERROR, "damage_found", none()),
        StoreEvent::PlacementChanged { .. } => (Level::INFO, "placement_changed", none()),
        StoreEvent::HomeFull { .. } => (Level::WARN, "home_full", none()),
        StoreEvent::TableSpilled { .. } => (Level::WARN, "table_spilled", none()),
        StoreEvent::TableRelocated { keyspace, .. } => (Level::INFO, "table_relocated", Fields::of(keyspace)),
        StoreEvent::Space(_) => (Level::WARN, "space", none()),
        StoreEvent::DamagedFileMoved { .. } => (Level::INFO, "damaged_file_moved", none()),
        StoreEvent::VolumeDegraded { .. } => (Level::WARN, "volume_degraded", none()),
        StoreEvent::Slow(slow) => (Level::WARN, "slow", Fields::of(&slow.keyspace).with(slow.bytes, slow.took)),
        StoreEvent::Failed { .. } => (Level::ERROR, "failed", none()),
    }
}

impl Listener for TracingListener {
    fn event(&self, event: &StoreEvent) {
        let (level, name, fields) = describe(event);
        let Fields { keyspace, bytes, bytes_read, duration } = fields;
        let duration_us = duration.map(|duration| duration.as_micros() as u64);
        // A level is part of the place of the call.
        macro_rules! pass {
            ($level:expr) => {
                tracing::event!(target: "situ", $level, event = name, keyspace, bytes, bytes_read, duration_us, "{event}")
            };
        }
        match level {
            Level::ERROR => pass!(Level::ERROR),
            Level::WARN => pass!(Level::WARN),
            Level::INFO => pass!(Level::INFO),
            _ => pass!(Level::DEBUG),
        }
        if let Some(next) = &self.next {
            next.event(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Store};
    use std::collections::BTreeMap;
    use std::fmt::Debug;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    type Seen = BTreeMap<String, String>;

    /// A subscriber that keeps the fields of events.
    #[derive(Clone, Default)]
    struct Keeper(Arc<Mutex<Vec<Seen>>>);

    struct Visitor(Seen);

    impl Visit for Visitor {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            self.0.insert(field.name().to_owned(), format!("{value:?}"));
        }

        fn record_str(&mut self, field: &Field, value: &str) {
            self.0.insert(field.name().to_owned(), value.to_owned());
        }
    }

    impl Subscriber for Keeper {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let metadata = event.metadata();
            let mut visitor = Visitor(Seen::new());
            event.record(&mut visitor);
            visitor.0.insert("level".to_owned(), format!("{} {}", metadata.target(), metadata.level()));
            self.0.lock().unwrap().push(visitor.0);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[derive(Default)]
    struct Next(AtomicUsize);

    impl Listener for Next {
        fn event(&self, _: &StoreEvent) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Other threads have no subscriber of this test, so it calls the listener itself for what they do.
    #[test]
    fn a_subscriber_gets_the_events_of_a_store_with_their_fields() {
        let directory = tempfile::tempdir().unwrap();
        let (keeper, next) = (Keeper::default(), Arc::new(Next::default()));
        let listener = Arc::new(TracingListener::before(Arc::clone(&next) as _));
        tracing::subscriber::with_default(keeper.clone(), || {
            let options = Options::default().listener(Arc::clone(&listener) as _);
            let store = Store::open_with(directory.path(), options).unwrap();
            store.put("a", "b").unwrap();
            store.close().unwrap();
            listener.event(&StoreEvent::Compacted {
                keyspace: "items".to_owned(),
                from_level: 0,
                to_level: 3,
                reason: "level 0 is full".to_owned(),
                bytes_read: 500,
                bytes_written: 400,
                duration: Duration::from_millis(7),
            });
            listener.event(&StoreEvent::Failed { error: crate::Error::Closed });
        });
        let seen = keeper.0.lock().unwrap();
        let named = |name: &str| seen.iter().find(|seen| seen["event"] == name).unwrap_or_else(|| panic!("{seen:?}"));
        let opened = named("opened");
        assert_eq!(opened["level"], "situ INFO");
        assert!(opened.contains_key("duration_us") && !opened.contains_key("keyspace"), "{opened:?}");
        let compacted = named("compacted");
        assert_eq!([&compacted["keyspace"], &compacted["bytes"], &compacted["bytes_read"]], ["items", "400", "500"]);
        assert_eq!([&compacted["duration_us"][..], &compacted["level"]], ["7000", "situ INFO"]);
        assert!(compacted["message"].starts_with("items: compacted level 0 into 3"), "{compacted:?}");
        assert_eq!(named("failed")["level"], "situ ERROR");
        assert!(next.0.load(Ordering::SeqCst) >= 3, "the next listener gets the events, too");
    }
}
