//! Compactions that drop dead items from disk.
//!
//! The opener of a store installs the [`ItemFilter`] for the keyspace of items. It lets the filter begin when it is
//! known that a server wrote the items: otherwise, values that happen to look like dead items stay. The filter knows
//! the flush barrier only once that is durable: what a crash could bring back to life is never dropped. A delayed flush
//! whose time has come is not carried out here: the next server does that.
//!
//! **Parameters.** The filter's state changes while a compaction runs: its clock goes on, the barrier rises. So the
//! engine freezes the state into each task, as the bytes of an [`ExpiryRule`], and a decision depends on these bytes
//! and the value alone. No bytes at all mean that the values are not known to be items. Otherwise:
//!
//! | bytes | contents |
//! |---|---|
//! | 1 | version: 1 |
//! | 8 | items that expired at or before this are dropped: seconds of the store's clock, little-endian |
//! | 8 | items with a cas id below this are dropped, little-endian |
//!
//! Anything else keeps every item.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use situ::{CompactionFilter, DeadBefore, Decision, Error, FilterContext, Lifetime, Options, Store, StoreBuilder};
use situ_tiers::TieredBuilder;

use situ_base::StoreClock;

use crate::engine::durable::{FLUSH_KEY, LIMIT_KEY, stored_barrier};
use crate::engine::item::{ExpiryRule, HEADER_BYTES_MAX, Header};
use crate::engines::keyspaces::{ITEMS_KEYSPACE, META_KEYSPACE};
use crate::engines::offline::stored_clock;

/// Time for which an item must have been dead before it is dropped from disk: readers read the clock once in a turn.
pub(crate) const MARGIN_SECONDS: u64 = 60;
/// First byte of the parameters.
const PARAMETERS_VERSION: u8 = 1;

/// A compaction filter that drops dead items. See the module.
#[derive(Debug, Default)]
pub(crate) struct ItemFilter {
    /// The store's clock, once the filter has begun.
    clock: OnceLock<Arc<StoreClock>>,
    /// Items with a cas id below this were flushed, durably.
    barrier_cas: AtomicU64,
}

impl ItemFilter {
    /// Starts to drop items, by the store's clock. `record` is the stored record of the flush barrier.
    pub(crate) fn begin(&self, clock: &Arc<StoreClock>, record: Option<&[u8]>) {
        self.raise(record);
        // A filter begins once, with its store.
        _ = self.clock.set(Arc::clone(clock));
    }

    /// Follows the stored record of the flush barrier.
    pub(crate) fn raise(&self, record: Option<&[u8]>) {
        if let Some(barrier_cas) = record.and_then(stored_barrier) {
            self.barrier_cas.fetch_max(barrier_cas, Ordering::AcqRel);
        }
    }
}

impl CompactionFilter for ItemFilter {
    fn name(&self) -> &str {
        "memcached items"
    }

    /// Ignores the wall clock.
    fn freeze(&self, _now_unix: Duration) -> Vec<u8> {
        let Some(clock) = self.clock.get() else { return Vec::new() };
        let now_seconds = clock.seconds().saturating_sub(MARGIN_SECONDS);
        encode(&ExpiryRule { now_seconds, barrier_cas: self.barrier_cas.load(Ordering::Acquire) })
    }

    /// Returns the length of the header, which decides if an item is dead.
    fn value_prefix_bytes(&self) -> Option<usize> {
        Some(HEADER_BYTES_MAX)
    }

    fn lifetime(&self, value: &[u8]) -> Option<Lifetime> {
        let Header { expires, id, .. } = Header::decode(value)?;
        Some(Lifetime { expires_unix_s: (expires != 0).then_some(expires), stamp: Some(id) })
    }

    fn dead_before(&self, now_unix: Duration) -> Option<DeadBefore> {
        decode(&self.freeze(now_unix)).map(|rule| DeadBefore { unix_s: rule.now_seconds, stamp: rule.barrier_cas })
    }

    fn decide(&self, context: &FilterContext<'_>, _key: &[u8], value: &[u8]) -> Decision {
        match decode(context.parameters) {
            Some(rule) if rule.is_dead(value) => Decision::Remove,
            _ => Decision::Keep,
        }
    }
}

/// Parameters of the filter. See the module.
fn encode(rule: &ExpiryRule) -> Vec<u8> {
    let words = [rule.now_seconds, rule.barrier_cas].map(u64::to_le_bytes);
    [&[PARAMETERS_VERSION], words.as_flattened()].concat()
}

/// Decodes the rule; `None` if the parameters do not hold one.
fn decode(parameters: &[u8]) -> Option<ExpiryRule> {
    let (&[PARAMETERS_VERSION], words) = parameters.split_first_chunk()? else { return None };
    let (&[now_seconds, barrier_cas], &[]) = words.as_chunks::<8>() else { return None };
    let [now_seconds, barrier_cas] = [now_seconds, barrier_cas].map(u64::from_le_bytes);
    Some(ExpiryRule { now_seconds, barrier_cas })
}

/// Returns the filter of memcached items, for a unit elsewhere. The filter reads the rule for dead items in each task's
/// parameters.
pub fn item_filter() -> Arc<dyn CompactionFilter> {
    Arc::new(ItemFilter::default())
}

/// Opens a store that this process does not serve, as [`Store::open`] does; its compactions drop dead items as those of
/// a server do. In a store that no server has written to, the compactions drop nothing. No keyspace is made.
///
/// # Errors
/// As [`Store::open`]; or a server's records cannot be read.
pub fn open_unserved(directory: impl AsRef<Path>, options: Options) -> situ::Result<Store> {
    open_unserved_by(options, |builder| builder.open(directory))
}

/// Opens a store like [`open_unserved`], with the store that `open` makes of a builder: on any volume.
///
/// # Errors
/// As [`open_unserved`].
pub fn open_unserved_by(
    options: Options,
    open: impl FnOnce(StoreBuilder) -> situ::Result<Store>,
) -> situ::Result<Store> {
    let filter = Arc::new(ItemFilter::default());
    let mut items = options.keyspace.clone();
    items.compaction_filter = Some(Arc::clone(&filter) as _);
    let store = open(StoreBuilder::new(options).with_tiers().keyspace(ITEMS_KEYSPACE, items))?;
    match store.existing_keyspace(META_KEYSPACE) {
        Ok(meta) if meta.contains(LIMIT_KEY)? => {
            filter.begin(&Arc::new(stored_clock(&store)?), meta.get(FLUSH_KEY)?.as_deref());
        }
        Ok(_) | Err(Error::NoSuchKeyspace { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(store)
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_base::Clock;
    use situ_compaction::{
        Encoder, FrozenFilter, KeyRange, KeySpan, MergeRules, OutputRules, TableInput, TablePlace, Task, TaskHost,
    };
    use situ_sim::SetClock;
    use situ_storage::{DirectoryVolume, FileName, Volume, Writer};
    use situ_table::{BlockCache, KeyKind, KeyRef, Table, TableOptions, TableWriter, Trailer};

    fn clock() -> (Arc<SetClock>, Arc<StoreClock>) {
        let set = Arc::new(SetClock::default());
        let clock = Arc::new(StoreClock::resume(Arc::clone(&set) as _, None));
        (set, clock)
    }

    #[test]
    fn a_clock_that_jumps_makes_compactions_drop_nothing_alive() {
        let filter = ItemFilter::default();
        let (set, clock) = clock();
        let now = clock.seconds();
        let item = |expires| Header { state: 0, flags: 0, expires, id: 1, given_cas: None }.encode();
        let decide = |jump, expires| {
            set.set(jump);
            let now = set.unix();
            filter.decide(&FilterContext::new(now, 1, &filter.freeze(now)), b"key", &item(expires))
        };
        assert_eq!(decide(0, now - 120), Decision::Keep, "the filter has not begun, so these may be other values");
        filter.begin(&clock, None);
        assert_eq!(decide(86_400, now + 100), Decision::Keep, "a day ahead");
        assert_eq!(decide(-86_400, now - 30), Decision::Keep, "dead, but not for long");
        assert_eq!(decide(0, now - 120), Decision::Remove);
        assert_eq!(decide(-86_400, now - 120), Decision::Remove, "a day behind");
    }

    #[test]
    fn parameters_are_read_as_they_were_written_and_no_other_bytes_drop_anything() {
        let rule = ExpiryRule { now_seconds: 1_700_000_000, barrier_cas: u64::MAX - 1 };
        let bytes = encode(&rule);
        assert_eq!(bytes.len(), 17);
        assert_eq!(decode(&bytes), Some(rule));
        let dead = Header { state: 0, flags: 0, expires: 1, id: 1, given_cas: None }.encode();
        let decide = |parameters: &[u8]| {
            ItemFilter::default().decide(&FilterContext::new(Duration::MAX, 1, parameters), b"key", &dead)
        };
        assert_eq!(decide(&bytes), Decision::Remove);
        let other_version = [&[2], &bytes[1..]].concat();
        let too_long = [&bytes[..], &[0]].concat();
        for other in [&[][..], &bytes[1..], &bytes[..16], &other_version, &too_long] {
            assert_eq!(decide(other), Decision::Keep, "{other:?}");
        }
    }

    /// Files of tables, for tasks that are run by hand.
    struct Host {
        volume: DirectoryVolume,
        next: AtomicU64,
        /// Called with each table that is begun.
        meanwhile: Box<dyn Fn() + Send + Sync>,
    }

    impl TaskHost for Host {
        fn reserve(&self, _level: u32) -> situ_storage::Result<TablePlace> {
            Ok(TablePlace { volume: 0, number: self.next.fetch_add(1, Ordering::Relaxed) })
        }

        fn create(&self, _level: u32, place: TablePlace) -> situ_storage::Result<(TablePlace, Box<dyn Writer>)> {
            (self.meanwhile)();
            Ok((place, self.volume.create(FileName::Table(place.number), 0)?))
        }

        fn pace(&self, _bytes: u64) {}

        fn cancelled(&self) -> bool {
            false
        }
    }

    /// A table of items, each of which is dead a second later than the one before.
    fn items(host: &Host, first_expires: u64, count: u64) -> TableInput {
        let (TablePlace { number, .. }, file) = host.new_table(0).unwrap();
        let mut writer = TableWriter::new(file, &TableOptions::default(), 0).unwrap();
        let key = |id: u64| format!("{id:06}").into_bytes();
        for id in 1..=count {
            let header = Header { state: 0, flags: 0, expires: first_expires + id, id, given_cas: None };
            writer.add(KeyRef::new(&key(id), Trailer::new(id, KeyKind::Put)), &header.encode()).unwrap();
        }
        writer.finish().unwrap();
        let reader = host.volume.open(FileName::Table(number)).unwrap();
        let table = Table::open(reader, number, BlockCache::new(1 << 20)).unwrap();
        TableInput::of(table, number, KeySpan::including(&key(1), &key(count)))
    }

    /// A unit whose answer was lost left a task to be run again, minutes later and after a flush of all items. The
    /// second run dropped more than the first.
    #[test]
    fn promise_5_a_task_run_again_after_the_clock_and_the_barrier_moved_gives_the_same_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let filter = Arc::new(ItemFilter::default());
        let barrier = |cas: u64| [cas.to_le_bytes(), [0; 8]].concat();
        let (set, clock) = clock();
        filter.begin(&clock, Some(&barrier(100)));
        // While a run writes its tables, time passes, and more is flushed.
        let (live, flushed) = (Arc::clone(&filter), AtomicU64::new(100));
        let passes = Arc::clone(&set);
        let meanwhile = Box::new(move || {
            passes.pass(300);
            live.raise(Some(&barrier(flushed.fetch_add(50, Ordering::Relaxed))));
        });
        let volume = DirectoryVolume::open(directory.path()).unwrap();
        let host = Host { volume, next: AtomicU64::new(1), meanwhile };
        let now = clock.seconds();
        let input = items(&host, now - 1000, 2000);
        let frozen = FrozenFilter::freeze(&(Arc::clone(&filter) as _), Duration::from_secs(now + 86_400)).unwrap();
        let rules = MergeRules {
            range: KeyRange::all(),
            snapshots: Vec::new(),
            below: Vec::new(),
            grandparents: Vec::new(),
            output_level: 1,
            output: OutputRules {
                table: TableOptions::default(),
                target_file_bytes: 4 << 10,
                max_grandparent_bytes: u64::MAX,
                created_unix_s: 0,
                encoder: Encoder::default(),
            },
            filter: Some(frozen),
            now_unix: Duration::from_secs(now + 86_400),
        };
        let task = Task { id: 1, keyspace: 0, level: 0, inputs: vec![vec![input]], rules };
        let run = || {
            let output = situ_compaction::run(&task, &host).unwrap();
            assert!(output.tables.len() > 3, "{}", output.tables.len());
            let bytes = |number| std::fs::read(directory.path().join(FileName::Table(number).to_string())).unwrap();
            let files: Vec<Vec<u8>> = output.tables.iter().map(|table| bytes(table.number)).collect();
            (output.stats, files)
        };
        let (first, second) = (run(), run());
        assert!(first == second, "{:?} and {:?}", first.0, second.0);
        // 300 s went by while the table of items was made, and a minute is the margin.
        assert!((1240..1260).contains(&first.0.dropped_by_filter), "{:?}", first.0);
    }
}
