//! The `stats` command: memcached's names where the meaning is the same, so that existing dashboards work.
//!
//! `stats` has every name of memcached 1.6.18. Situ has no slabs and no LRU, and a store evicts nothing: what they
//! would count never happens and is 0. `stats slabs` and `stats items` show one class that holds everything.

use situ_base::lock;
use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::admin::metrics::{Command, Counter, Counters, Totals};
use crate::admin::prefixes::Prefixes;
use crate::admin::watch::Watchers;
use crate::engine::Engine;
use crate::engine::cache::{CacheExtras, CacheState, FlashState};
use crate::engine::durable::Durable;
use crate::process::descriptors::Places;

/// The sources of the numbers.
pub(crate) struct StatsSource {
    pub(crate) counters: Vec<Arc<Counters>>,
    pub(crate) started_seconds: u64,
    pub(crate) places: Arc<Places>,
    /// Names and values of `stats settings`.
    pub(crate) settings: Mutex<Vec<(&'static str, String)>>,
    /// The counters at the last `stats reset`.
    pub(crate) baseline: Mutex<Vec<u64>>,
    pub(crate) prefixes: Prefixes,
    /// The connections that receive events.
    pub(crate) watchers: Arc<Watchers>,
    /// The last argument of `verbosity`.
    pub(crate) verbosity: AtomicU32,
    /// Descriptors that connections leave to the store.
    pub(crate) reserved_descriptors: u64,
}

/// Resettable counters, with memcached's names.
const COUNTED: [(&str, Source); 33] = [
    ("total_connections", Source::Counter(Counter::ConnectionsOpened)),
    ("rejected_connections", Source::Counter(Counter::ConnectionsRejected)),
    ("cmd_get", Source::Sum(Counter::GetHits, Counter::GetMisses)),
    ("cmd_set", Source::Stores),
    ("cmd_flush", Source::Command(Command::FlushAll)),
    ("cmd_touch", Source::Sum(Counter::TouchHits, Counter::TouchMisses)),
    ("cmd_meta", Source::Meta),
    ("get_hits", Source::Counter(Counter::GetHits)),
    ("get_misses", Source::Counter(Counter::GetMisses)),
    ("get_expired", Source::Counter(Counter::ItemsExpired)),
    ("get_flushed", Source::Counter(Counter::ItemsFlushed)),
    ("delete_misses", Source::Counter(Counter::DeleteMisses)),
    ("delete_hits", Source::Counter(Counter::DeleteHits)),
    ("incr_misses", Source::Counter(Counter::IncrMisses)),
    ("incr_hits", Source::Counter(Counter::IncrHits)),
    ("decr_misses", Source::Counter(Counter::DecrMisses)),
    ("decr_hits", Source::Counter(Counter::DecrHits)),
    ("cas_misses", Source::Counter(Counter::CasMisses)),
    ("cas_hits", Source::Counter(Counter::CasHits)),
    ("cas_badval", Source::Counter(Counter::CasBad)),
    ("touch_hits", Source::Counter(Counter::TouchHits)),
    ("touch_misses", Source::Counter(Counter::TouchMisses)),
    ("store_too_large", Source::Counter(Counter::StoreTooLarge)),
    ("store_no_memory", Source::Counter(Counter::StoreNoMemory)),
    ("auth_cmds", Source::Counter(Counter::Logins)),
    ("auth_errors", Source::Counter(Counter::LoginFailures)),
    ("conn_yields", Source::Counter(Counter::ConnectionYields)),
    ("read_failures", Source::Counter(Counter::ReadFailures)),
    ("write_failures", Source::Counter(Counter::WriteFailures)),
    ("idle_kicks", Source::Counter(Counter::ConnectionsIdleClosed)),
    ("bytes_read", Source::Counter(Counter::BytesRead)),
    ("bytes_written", Source::Counter(Counter::BytesWritten)),
    ("total_items", Source::Counter(Counter::TotalItems)),
];

/// The names that memcached counts and a store does not. A cache evicts and reclaims.
const NEVER: [&str; 45] = [
    "response_obj_oom",
    "response_obj_count",
    "response_obj_bytes",
    "read_buf_count",
    "read_buf_bytes",
    "read_buf_bytes_free",
    "read_buf_oom",
    "listen_disabled_num",
    "time_in_listen_disabled_us",
    "hash_power_level",
    "hash_bytes",
    "hash_is_expanding",
    "slab_reassign_rescues",
    "slab_reassign_chunk_rescues",
    "slab_reassign_evictions_nomem",
    "slab_reassign_inline_reclaim",
    "slab_reassign_busy_items",
    "slab_reassign_busy_deletes",
    "slab_reassign_running",
    "slabs_moved",
    "lru_crawler_running",
    "lru_crawler_starts",
    "lru_maintainer_juggles",
    "malloc_fails",
    "log_worker_dropped",
    "log_worker_written",
    "log_watcher_skipped",
    "log_watcher_sent",
    "log_watchers",
    "unexpected_napi_ids",
    "round_robin_fallback",
    "slab_global_page_pool",
    "expired_unfetched",
    "evicted_unfetched",
    "evicted_active",
    "evictions",
    "reclaimed",
    "crawler_reclaimed",
    "crawler_items_checked",
    "lrutail_reflocked",
    "moves_to_cold",
    "moves_to_warm",
    "moves_within_lru",
    "direct_reclaims",
    "lru_bumps_dropped",
];

/// The same of `stats items`; its ages are not known either.
const ITEMS_NEVER: [&str; 27] = [
    "number_hot",
    "number_warm",
    "number_cold",
    "age_hot",
    "age_warm",
    "age",
    "mem_requested",
    "evicted",
    "evicted_nonzero",
    "evicted_time",
    "outofmemory",
    "tailrepairs",
    "reclaimed",
    "expired_unfetched",
    "evicted_unfetched",
    "evicted_active",
    "crawler_reclaimed",
    "crawler_items_checked",
    "lrutail_reflocked",
    "moves_to_cold",
    "moves_to_warm",
    "moves_within_lru",
    "direct_reclaims",
    "hits_to_hot",
    "hits_to_warm",
    "hits_to_cold",
    "hits_to_temp",
];

/// Counters of `stats slabs`.
const SLAB_COUNTED: [(&str, Counter); 7] = [
    ("get_hits", Counter::GetHits),
    ("delete_hits", Counter::DeleteHits),
    ("incr_hits", Counter::IncrHits),
    ("decr_hits", Counter::DecrHits),
    ("cas_hits", Counter::CasHits),
    ("cas_badval", Counter::CasBad),
    ("touch_hits", Counter::TouchHits),
];

#[derive(Clone, Copy)]
enum Source {
    Counter(Counter),
    Command(Command),
    Sum(Counter, Counter),
    Stores,
    Meta,
}

impl StatsSource {
    fn totals(&self) -> Totals<'_> {
        Totals(&self.counters)
    }

    fn counted(&self, source: Source) -> u64 {
        let totals = self.totals();
        let sum = |commands: &[Command]| commands.iter().map(|command| totals.command(*command)).sum();
        match source {
            Source::Counter(counter) => totals.counter(counter),
            Source::Command(command) => totals.command(command),
            Source::Sum(one, two) => totals.counter(one) + totals.counter(two),
            Source::Stores => sum(&[
                Command::Set,
                Command::Add,
                Command::Replace,
                Command::Append,
                Command::Prepend,
                Command::Cas,
                Command::MetaSet,
            ]),
            Source::Meta => sum(&[
                Command::MetaGet,
                Command::MetaSet,
                Command::MetaDelete,
                Command::MetaArithmetic,
                Command::MetaDebug,
            ]),
        }
    }

    /// Makes the counters start again from zero, for this command; metrics go on counting.
    pub(crate) fn reset(&self) {
        let now = COUNTED.iter().map(|(_, source)| self.counted(*source)).collect();
        *lock(&self.baseline) = now;
        self.prefixes.reset();
    }

    /// Renders the answer to `stats <topic>`.
    pub(crate) fn render<E: Engine>(&self, topic: &[u8], durable: &Durable<E>, now_seconds: u64) -> String {
        let engine = durable.engine();
        let mut text = String::with_capacity(2048);
        let state = engine.cache().map(CacheExtras::state);
        let cache = state.unwrap_or_default();
        match topic {
            b"" => self.general(&mut text, durable, now_seconds),
            b"settings" => {
                for (name, value) in lock(&self.settings).iter() {
                    stat(&mut text, name, value);
                }
                // A store evicts nothing, so it has no limit.
                stat(&mut text, "maxbytes", cache.memory_bytes_max);
                stat(&mut text, "evictions", if state.is_some() { "on" } else { "off" });
                stat(&mut text, "verbosity", self.verbosity.load(Ordering::Relaxed));
                stat(&mut text, "detail_enabled", if self.prefixes.is_on() { "yes" } else { "no" });
            }
            b"items" => {
                stat(&mut text, "items:1:number", durable.approximate_items());
                for name in ITEMS_NEVER {
                    stat(&mut text, &format!("items:1:{name}"), of_cache(&cache, name));
                }
            }
            b"slabs" => {
                for name in ["chunk_size", "chunks_per_page", "total_pages", "free_chunks", "free_chunks_end"] {
                    stat(&mut text, &format!("1:{name}"), 0);
                }
                stat(&mut text, "1:total_chunks", durable.approximate_items());
                stat(&mut text, "1:used_chunks", durable.approximate_items());
                stat(&mut text, "1:cmd_set", self.counted(Source::Stores));
                for (name, counter) in SLAB_COUNTED {
                    stat(&mut text, &format!("1:{name}"), self.totals().counter(counter));
                }
                stat(&mut text, "active_slabs", 1);
                stat(&mut text, "total_malloced", engine.disk_bytes() + cache.memory_bytes);
            }
            b"sizes" => stat(&mut text, "sizes_status", "disabled"),
            b"conns" => stat(&mut text, "curr_connections", self.totals().connections()),
            b"sizes_enable" | b"sizes_disable" => stat(&mut text, "sizes_status", "disabled"),
            _ => return "ERROR\r\n".to_owned(),
        }
        text.push_str("END\r\n");
        text
    }

    /// Returns the counters of watchers.
    fn watched(&self, name: &str) -> Option<u64> {
        let Watchers { count, sent, skipped, .. } = &*self.watchers;
        Some(match name {
            "log_watchers" => count.load(Ordering::Relaxed) as u64,
            "log_watcher_sent" | "log_worker_written" => sent.load(Ordering::Relaxed),
            "log_watcher_skipped" => skipped.load(Ordering::Relaxed),
            _ => return None,
        })
    }

    fn general<E: Engine>(&self, text: &mut String, durable: &Durable<E>, now_seconds: u64) {
        let engine = durable.engine();
        stat(text, "pid", std::process::id());
        stat(text, "uptime", now_seconds.saturating_sub(self.started_seconds));
        stat(text, "time", engine.clock().unix_of_seconds(now_seconds));
        stat(text, "clock_difference", engine.clock().wall_ahead_seconds());
        stat(text, "version", "1.6.18");
        stat(text, "situ_version", env!("CARGO_PKG_VERSION"));
        stat(text, "libevent", "none");
        stat(text, "pointer_size", usize::BITS);
        if let Some([user, system]) = processor_seconds() {
            stat(text, "rusage_user", format_args!("{user:.6}"));
            stat(text, "rusage_system", format_args!("{system:.6}"));
        }
        stat(text, "max_connections", self.places.max());
        stat(text, "curr_connections", self.totals().connections());
        stat(text, "connection_structures", self.totals().connections());
        stat(text, "reserved_fds", self.reserved_descriptors);
        stat(text, "accepting_conns", 1);
        stat(text, "threads", self.counters.len());
        let baseline = lock(&self.baseline).clone();
        for (index, (name, source)) in COUNTED.iter().enumerate() {
            let before = baseline.get(index).copied().unwrap_or(0);
            stat(text, name, self.counted(*source).saturating_sub(before));
        }
        // A store evicts nothing, so it has no limit; tools ask for the line.
        let cache = engine.cache().map(CacheExtras::state).unwrap_or_default();
        stat(text, "limit_maxbytes", cache.memory_bytes_max);
        stat(text, "bytes", engine.disk_bytes() + cache.memory_bytes);
        stat(text, "curr_items", durable.approximate_items());
        for name in NEVER {
            stat(text, name, self.watched(name).unwrap_or_else(|| of_cache(&cache, name)));
        }
        cache.flash.iter().for_each(|flash| general_of_flash(text, flash));
        stat(text, "write_stalled", u8::from(engine.write_stalled()));
    }
}

/// Writes the figures of memcached's external storage, under its names.
fn general_of_flash(text: &mut String, flash: &FlashState) {
    for (name, value) in [
        ("get_extstore", flash.hits + flash.misses),
        ("get_aborted_extstore", flash.errors),
        ("recache_from_extstore", flash.promoted),
        ("miss_from_extstore", flash.misses),
        ("extstore_objects_evicted", flash.evicted),
        ("extstore_objects_read", flash.hits),
        ("extstore_objects_written", flash.demoted + flash.reinserted),
        ("extstore_compact_rescues", flash.reinserted),
        ("extstore_bytes_written", flash.written_bytes),
        ("extstore_bytes_used", flash.bytes),
        ("extstore_limit_maxbytes", flash.bytes_max),
        ("extstore_works", u64::from(flash.works)),
    ] {
        stat(text, name, value);
    }
}

/// Returns a cache's count under a name that a store never counts.
fn of_cache(cache: &CacheState, name: &str) -> u64 {
    match name {
        "evictions" | "evicted" => cache.evicted,
        "reclaimed" => cache.reclaimed,
        _ => 0,
    }
}

/// User and system time of this process; `None` without a proc file system.
fn processor_seconds() -> Option<[f64; 2]> {
    // The unit of this file is 1/100 s, whatever the kernel's own tick is.
    const TICKS_PER_SECOND: f64 = 100.0;
    let line = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name, in parentheses, may hold anything.
    let (_, fields) = line.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11).map(|field| field.parse::<f64>().ok());
    Some([fields.next()?? / TICKS_PER_SECOND, fields.next()?? / TICKS_PER_SECOND])
}

fn stat(text: &mut String, name: &str, value: impl Display) {
    // Writing to a String cannot fail.
    let _ = write!(text, "STAT {name} {value}\r\n");
}
