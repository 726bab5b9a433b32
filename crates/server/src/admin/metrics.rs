//! The counters of the server, and their form for Prometheus.
//!
//! Each event loop owns one [`Counters`] and is its only writer, so counting is a plain add to memory that no other
//! core writes; a scrape sums over the loops. Latencies go into logarithmic buckets, doubling from 1 µs.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::durable::Durable;
use crate::engine::{Engine, Metric, MetricKind};

/// Commands as they are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Get,
    GetAndTouch,
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
    Delete,
    Incr,
    Decr,
    Touch,
    MetaGet,
    MetaSet,
    MetaDelete,
    MetaArithmetic,
    MetaDebug,
    FlushAll,
    Stats,
    Other,
}

const COMMANDS: [(&str, Class); 20] = [
    ("get", Class::Read),
    ("gat", Class::Touch),
    ("set", Class::Store),
    ("add", Class::Store),
    ("replace", Class::Store),
    ("append", Class::Store),
    ("prepend", Class::Store),
    ("cas", Class::Store),
    ("delete", Class::Delete),
    ("incr", Class::Arithmetic),
    ("decr", Class::Arithmetic),
    ("touch", Class::Touch),
    ("mg", Class::Read),
    ("ms", Class::Store),
    ("md", Class::Delete),
    ("ma", Class::Arithmetic),
    ("me", Class::Read),
    ("flush_all", Class::Other),
    ("stats", Class::Other),
    ("other", Class::Other),
];

/// Commands as their latency is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Read,
    Store,
    Delete,
    Arithmetic,
    Touch,
    Other,
}

const CLASSES: [&str; 6] = ["read", "store", "delete", "arithmetic", "touch", "other"];
/// Bucket `i` holds latencies below `2^i` µs; the last one holds the rest.
pub(crate) const BUCKETS: usize = 26;

/// Everything else that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    GetHits,
    GetMisses,
    TouchHits,
    TouchMisses,
    DeleteHits,
    DeleteMisses,
    IncrHits,
    IncrMisses,
    DecrHits,
    DecrMisses,
    CasHits,
    CasMisses,
    CasBad,
    StoreTooLarge,
    StoreNoMemory,
    ReadFailures,
    WriteFailures,
    DamagedItems,
    BytesRead,
    BytesWritten,
    ConnectionsOpened,
    ConnectionsClosed,
    ConnectionsRejected,
    ConnectionsIdleClosed,
    ConnectionsBroken,
    ItemsExpired,
    ItemsFlushed,
    ConnectionsForeign,
    ConnectionYields,
    Logins,
    LoginFailures,
    TotalItems,
    Keys,
    DiskReads,
    ConnectionsShared,
    ConnectionsRemote,
    CommandsForbidden,
    ConnectionsTls,
    TlsFailures,
}

const COUNTERS: [(&str, &str); 39] = [
    ("get_hits", "Keys found by retrieval commands."),
    ("get_misses", "Keys not found by retrieval commands."),
    ("touch_hits", "Keys found by commands that set an expiration time."),
    ("touch_misses", "Keys not found by commands that set an expiration time."),
    ("delete_hits", "Deletes of a key that was there."),
    ("delete_misses", "Deletes of a key that was not there."),
    ("incr_hits", "Increments of a key that was there."),
    ("incr_misses", "Increments of a key that was not there."),
    ("decr_hits", "Decrements of a key that was there."),
    ("decr_misses", "Decrements of a key that was not there."),
    ("cas_hits", "Conditional stores whose cas id matched."),
    ("cas_misses", "Conditional stores of a missing key."),
    ("cas_badval", "Conditional stores whose cas id did not match."),
    ("store_too_large", "Stores refused for their size."),
    ("store_no_memory", "Stores refused as there was no memory for what arrived."),
    ("read_failures", "Reads that the engine could not answer."),
    ("write_failures", "Writes that the engine refused."),
    ("damaged_items", "Values read that were not written by this server."),
    ("read_bytes", "Bytes received from clients."),
    ("written_bytes", "Bytes sent to clients."),
    ("connections_opened", "Connections accepted."),
    ("connections_closed", "Connections closed."),
    ("connections_rejected", "Connections refused because of the limit."),
    ("connections_idle_closed", "Connections closed for idleness."),
    ("connections_broken", "Connections closed for breaking the protocol's bounds."),
    ("items_expired", "Lookups that found an item that has expired."),
    ("items_flushed", "Lookups that found an item that flush_all has removed."),
    ("connections_foreign", "Connections closed because the client speaks HTTP, TLS or memcached's binary protocol."),
    ("connection_yields", "Times that a connection with more to run yielded to the others."),
    ("logins", "Attempts to authenticate."),
    ("login_failures", "Attempts to authenticate that failed."),
    ("items_stored", "Items stored."),
    ("keys_read", "Keys looked up."),
    ("disk_reads", "Reads that the engine answered later; only the connection that asked waited."),
    ("connections_shared_memory", "Connections that moved into shared memory."),
    ("connections_remote_memory", "Connections that moved into remote memory, by RDMA."),
    ("commands_forbidden", "Commands refused because their user lacks the right."),
    ("connections_tls", "Connections accepted that speak TLS."),
    ("tls_failures", "Connections closed because of an error of TLS, or of a slow handshake."),
];

/// The counts of one event loop. Written by that loop only.
pub(crate) struct Counters {
    commands: [AtomicU64; COMMANDS.len()],
    counters: [AtomicU64; COUNTERS.len()],
    latency: [[AtomicU64; BUCKETS]; CLASSES.len()],
    latency_nanoseconds: [AtomicU64; CLASSES.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            commands: std::array::from_fn(|_| AtomicU64::new(0)),
            counters: std::array::from_fn(|_| AtomicU64::new(0)),
            latency: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
            latency_nanoseconds: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// One writer, so no atomic read-modify-write is needed.
fn bump(word: &AtomicU64, by: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn add(&self, counter: Counter, by: u64) {
        bump(&self.counters[counter as usize], by);
    }

    /// Records that one command of this kind was answered after `latency`.
    pub(crate) fn answered(&self, command: Command, latency: Duration) {
        self.count(command);
        self.took(command, 1, latency);
    }

    /// Records that one command of this kind was answered.
    pub(crate) fn count(&self, command: Command) {
        bump(&self.commands[command as usize], 1);
    }

    /// Records the `time` that a row of `commands` commands of one kind took.
    pub(crate) fn took(&self, command: Command, commands: u32, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let class = COMMANDS[command as usize].1 as usize;
        let each = nanoseconds / u64::from(commands.max(1));
        let bucket = (64 - (each / 1000).leading_zeros() as usize).min(BUCKETS - 1);
        bump(&self.latency[class][bucket], u64::from(commands));
        bump(&self.latency_nanoseconds[class], nanoseconds);
    }
}

/// The counts of all loops.
pub(crate) struct Totals<'a>(pub(crate) &'a [std::sync::Arc<Counters>]);

impl Totals<'_> {
    fn sum(&self, word: impl Fn(&Counters) -> &AtomicU64) -> u64 {
        self.0.iter().map(|counters| word(counters).load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }

    pub(crate) fn counter(&self, counter: Counter) -> u64 {
        self.sum(|counters| &counters.counters[counter as usize])
    }

    pub(crate) fn command(&self, command: Command) -> u64 {
        self.sum(|counters| &counters.commands[command as usize])
    }

    pub(crate) fn connections(&self) -> u64 {
        self.counter(Counter::ConnectionsOpened).saturating_sub(self.counter(Counter::ConnectionsClosed))
    }

    /// Renders the Prometheus text form, engine included.
    pub(crate) fn render<E: Engine>(&self, durable: &Durable<E>, uptime: Duration) -> String {
        let mut page = String::with_capacity(16 << 10);
        self.report(uptime, &mut writer(&mut page));
        self.render_latency(&mut page);
        report_engine(durable, &mut writer(&mut page));
        page
    }

    /// Reports the metrics of the server, but for the histogram of latencies.
    pub(crate) fn report(&self, uptime: Duration, out: &mut dyn FnMut(Metric<'_>)) {
        for (index, (name, _)) in COMMANDS.iter().enumerate() {
            out(Metric {
                name: "situ_server_commands_total",
                help: "Commands answered.",
                kind: MetricKind::Counter,
                labels: &[("command", name)],
                value: self.sum(|counters| &counters.commands[index]) as f64,
            });
        }
        for (index, (name, help)) in COUNTERS.iter().enumerate() {
            let name = format!("situ_server_{name}_total");
            let value = self.sum(|counters| &counters.counters[index]) as f64;
            out(Metric { name: &name, help, kind: MetricKind::Counter, labels: &[], value });
        }
        let gauges = [
            ("situ_server_connections", "Open connections.", self.connections()),
            ("situ_server_uptime_seconds", "Seconds since the server started.", uptime.as_secs()),
        ];
        for (name, help, value) in gauges {
            out(Metric { name, help, kind: MetricKind::Gauge, labels: &[], value: value as f64 });
        }
    }

    /// Returns the latencies of each class of commands, with its name.
    pub(crate) fn latencies(&self) -> [(&'static str, [u64; BUCKETS], Duration); CLASSES.len()] {
        std::array::from_fn(|class| {
            let bucket = |bucket: usize| self.sum(|counters| &counters.latency[class][bucket]);
            let nanoseconds = self.sum(|counters| &counters.latency_nanoseconds[class]);
            (CLASSES[class], std::array::from_fn(bucket), Duration::from_nanos(nanoseconds))
        })
    }

    fn render_latency(&self, page: &mut String) {
        const NAME: &str = "situ_server_command_seconds";
        header(page, NAME, "Seconds from a command's turn to its answer being ready to send.", "histogram");
        for (class, buckets, total) in self.latencies() {
            let mut below = 0;
            for (bucket, count) in buckets.into_iter().enumerate() {
                below += count;
                let bound = if bucket + 1 == BUCKETS {
                    "+Inf".to_owned()
                } else {
                    format!("{}", (1u64 << bucket) as f64 / 1e6)
                };
                line(page, &format!("{NAME}_bucket"), &[("class", class), ("le", &bound)], below);
            }
            line(page, &format!("{NAME}_sum"), &[("class", class)], total.as_secs_f64());
            line(page, &format!("{NAME}_count"), &[("class", class)], below);
        }
    }
}

/// Reports the metrics of the engine.
pub(crate) fn report_engine<E: Engine>(durable: &Durable<E>, out: &mut dyn FnMut(Metric<'_>)) {
    let engine = durable.engine();
    let gauges = [
        ("situ_engine_items", "Items that clients can find, approximately.", durable.approximate_items() as f64),
        ("situ_engine_disk_bytes", "Bytes on disk.", engine.disk_bytes() as f64),
        ("situ_engine_write_stalled", "1 while the engine delays writes.", f64::from(u8::from(engine.write_stalled()))),
        (
            "situ_engine_clock_difference_seconds",
            "Wall clock minus the store's expiration clock; 0 if they are within a second.",
            engine.clock().wall_ahead_seconds() as f64,
        ),
    ];
    for (name, help, value) in gauges {
        out(Metric { name, help, kind: MetricKind::Gauge, labels: &[], value });
    }
    engine.metrics(out);
}

/// Returns a function that appends metrics to a page in the text form. Samples of one name come in a row.
fn writer(page: &mut String) -> impl FnMut(Metric<'_>) {
    let mut last = String::new();
    move |metric| {
        if last != metric.name {
            let kind = match metric.kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
            };
            header(page, metric.name, metric.help, kind);
            last = metric.name.to_owned();
        }
        line(page, metric.name, metric.labels, metric.value);
    }
}

// Writing to a String cannot fail, so the results below say nothing.

fn header(page: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(page, "# HELP {name} {}\n# TYPE {name} {kind}", help.replace('\\', "\\\\").replace('\n', "\\n"));
}

fn line(page: &mut String, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
    page.push_str(name);
    for (index, (label, text)) in labels.iter().enumerate() {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(page, "{}{label}=\"{text}\"", if index == 0 { '{' } else { ',' });
    }
    let _ = writeln!(page, "{} {value}", if labels.is_empty() { "" } else { "}" });
}
