//! `top`: the figures of a running server in the terminal, once a second.
//!
//! 1. The figures come from `/live.json`, which the live page draws.
//! 2. A report is made of two answers: rates and percentiles of their differences, and the gauges of the second one.
//! 3. On a terminal, each report takes the place of the one before. In a pipe they follow each other.
//!
//! **Failure**: the command ends if there is no first answer. Later it says that there is none, and asks again.

use crate::DONE;
use crate::config;
use crate::failure::{Failure, Outcome};
use crate::http;
use crate::options::TopOptions;
use crate::output::Output;
use crate::text;
use situ_server::compactions::{StageFigures, UnitFigures};
use situ_server::live::Live;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

/// The longest answer: a store may have thousands of keyspaces.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Width of a report on a terminal, in columns.
const COLUMNS: usize = 100;
/// Columns of a bar.
const BAR: usize = 24;

pub(crate) fn top(options: &TopOptions, out: &mut Output) -> Outcome {
    let address = address(&options.server)?;
    let interval = Duration::from_secs(options.interval.into());
    let mut last = ask(address).map_err(|why| {
        Failure::new(format!("cannot ask the server at {address} for its figures"), why)
            .cure("give the address that `situ serve` calls metrics, as in 127.0.0.1:11212")
    })?;
    loop {
        if out.is_json() {
            out.object(&last)?;
            out.finish()?;
            if options.once {
                return DONE;
            }
        }
        std::thread::sleep(interval);
        let lines = match ask(address) {
            Ok(now) => {
                let lines = report(&last, &now, address);
                last = now;
                lines
            }
            Err(why) if options.once || out.is_json() => {
                return Err(Failure::new(format!("the server at {address} has stopped to answer"), why));
            }
            Err(why) => vec![format!("The server at {address} does not answer: {why}")],
        };
        if out.is_json() {
            continue;
        }
        show(&lines, options.once, out)?;
        if options.once {
            return DONE;
        }
    }
}

/// Returns the address of a server, or of the server of a store.
fn address(server: &str) -> Result<SocketAddr, Failure> {
    if Path::new(server).is_dir() {
        return config::http_address(Path::new(server));
    }
    let found = server.to_socket_addrs().map_err(|error| error.to_string());
    let first = found.and_then(|mut found| found.next().ok_or_else(|| "the name has no address".to_owned()));
    first.map_err(|why| {
        Failure::usage(format!(
            "{} is neither the directory of a store nor an address: {why}",
            text::on_one_line(server)
        ))
        .cure("give the address that `situ serve` calls metrics, as in 127.0.0.1:11212")
    })
}

fn ask(address: SocketAddr) -> Result<Live, String> {
    // No attempt is that new: units are shown, attempts are not.
    http::ask(address, &format!("/live.json?since={}", u64::MAX), ANSWER_BYTES_MAX)
}

/// Writes a report: in the place of the one before on a terminal, below it elsewhere.
fn show(lines: &[String], once: bool, out: &mut Output) -> Result<(), Failure> {
    let replaces = out.is_terminal() && !once;
    let room = out.room(COLUMNS);
    let (begin, behind, end) = if replaces { ("\x1b[H", "\x1b[K\n", "\x1b[J") } else { ("", "\n", "") };
    let mut page = begin.to_owned();
    for line in lines {
        page.push_str(&text::clip(&text::on_one_line(line), room));
        page.push_str(behind);
    }
    page.push_str(end);
    if !replaces && !once {
        page.push('\n');
    }
    out.bytes(page.as_bytes())?;
    out.finish()
}

/// The differences between two answers.
struct Between<'a> {
    before: &'a Live,
    now: &'a Live,
    seconds: f64,
}

impl Between<'_> {
    fn more(&self, name: &str) -> f64 {
        (self.now.sum(name) - self.before.sum(name)).max(0.0)
    }

    fn rate(&self, name: &str) -> f64 {
        self.more(name) / self.seconds
    }

    /// Returns the share of `part` in it and the rest; `None` if nothing of both happened.
    fn share(&self, part: &str, rest: &str) -> Option<f64> {
        let (part, rest) = (self.more(part), self.more(rest));
        (part + rest > 0.0).then(|| part / (part + rest))
    }

    /// Returns the counts of latencies of a class of commands.
    fn buckets(&self, class: &str) -> Vec<u64> {
        let of = |live: &Live| live.latencies.get(class).map(|all| all.buckets.clone()).unwrap_or_default();
        let before = of(self.before);
        let counts = of(self.now).into_iter().enumerate();
        counts.map(|(at, count)| count.saturating_sub(before.get(at).copied().unwrap_or(0))).collect()
    }
}

/// Returns the microseconds below which a share of the commands lies. Bucket `i` ends at `2^i` µs.
fn quantile(buckets: &[u64], share: f64) -> Option<f64> {
    let all: u64 = buckets.iter().sum();
    let mut left = share * all as f64;
    for (at, count) in buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
        if *count as f64 >= left {
            return Some((at as f64 - 1.0 + left / *count as f64).exp2());
        }
        left -= *count as f64;
    }
    None
}

fn report(before: &Live, now: &Live, address: SocketAddr) -> Vec<String> {
    // After a restart of the server, its counters are those since the start.
    let is_restarted = now.uptime_us <= before.uptime_us;
    let nothing = Live { uptime_us: 0, metrics: Default::default(), latencies: Default::default(), ..now.clone() };
    let before = if is_restarted { &nothing } else { before };
    let seconds = (now.uptime_us.saturating_sub(before.uptime_us)).max(1) as f64 / 1e6;
    let between = Between { before, now, seconds };
    let mut lines = vec![format!(
        "Situ {} at {address}, {}, up for {}",
        now.version,
        engine(now),
        text::age(now.uptime_us / 1_000_000)
    )];
    lines.extend(now.trouble.iter().map(|trouble| format!("trouble: {trouble}")));
    commands(&between, &mut lines);
    gauges(&between, &mut lines);
    levels(now, &mut lines);
    units(&between, &mut lines);
    debts(&between, &mut lines);
    slow(&between, &mut lines);
    lines
}

fn engine(live: &Live) -> &'static str {
    let kinds = [
        ("situ_hash_buckets", "hash store"),
        ("situ_cache_items", "cache"),
        ("situ_store_last_sequence", "ordered store"),
    ];
    kinds.into_iter().find(|(name, _)| live.value(name).is_some()).map_or("store", |(_, kind)| kind)
}

fn commands(between: &Between<'_>, lines: &mut Vec<String>) {
    let found = between.share("situ_server_get_hits_total", "situ_server_get_misses_total");
    lines.push(String::new());
    lines.push(format!(
        "commands   {}/s, {}/s from clients, {}/s to clients, {}{}",
        count(between.rate("situ_server_commands_total")),
        bytes(between.rate("situ_server_read_bytes_total")),
        bytes(between.rate("situ_server_written_bytes_total")),
        text::plural(between.now.sum("situ_server_connections") as u64, "connection"),
        found.map_or_else(String::new, |share| format!(", {} of keys found", percent(share)))
    ));
    for class in between.now.latencies.keys() {
        let buckets = between.buckets(class);
        let all: u64 = buckets.iter().sum();
        if all == 0 {
            continue;
        }
        let shown = [0.5, 0.99, 0.999].map(|share| {
            quantile(&buckets, share).map_or_else(String::new, |us| situ_settings::figures::time(us * 1000.0))
        });
        lines.push(format!(
            "  {class:<12} {:>10}/s   median {:>8}   99% {:>8}   99.9% {:>8}",
            count(all as f64 / between.seconds),
            shown[0],
            shown[1],
            shown[2]
        ));
    }
}

/// Gauges with their limits: the name, the metric of the part, the metric of the whole.
const GAUGES: [(&str, &str, &str); 11] = [
    ("block cache", "situ_store_cache_bytes", "situ_store_cache_limit_bytes"),
    ("memtables", "situ_store_memtable_bytes", "situ_store_memtable_limit_bytes"),
    ("cache", "situ_cache_memory_bytes", "situ_cache_memory_max_bytes"),
    ("flash", "situ_cache_flash_bytes", "situ_cache_flash_max_bytes"),
    ("log needed", "situ_store_debt_log_held_bytes", "situ_store_debt_log_limit_bytes"),
    ("fast disk", "situ_store_fast_disk_used_bytes", "situ_store_fast_disk_total_bytes"),
    ("disk", "situ_store_logical_used_bytes", "situ_store_logical_total_bytes"),
    ("drive", "situ_store_physical_used_bytes", "situ_store_physical_total_bytes"),
    ("drive", "situ_hash_device_physical_used_bytes", "situ_hash_device_physical_bytes"),
    ("log", "situ_hash_log_bytes", "situ_hash_debt_log_limit_bytes"),
    ("buckets", "situ_hash_buckets", "situ_hash_buckets_max"),
];

fn gauges(between: &Between<'_>, lines: &mut Vec<String>) {
    let now = between.now;
    lines.push(String::new());
    lines.push(format!(
        "contents   {} items, {} on disk",
        count(now.sum("situ_engine_items")),
        bytes(now.sum("situ_engine_disk_bytes"))
    ));
    let found = between.share("situ_store_cache_hits_total", "situ_store_cache_misses_total");
    for (name, part, whole) in GAUGES {
        let (Some(part_now), Some(whole_now)) = (now.value(part), now.value(whole)) else { continue };
        let share = if whole_now > 0.0 { part_now / whole_now } else { 0.0 };
        let figure = if part.ends_with("_bytes") { bytes } else { count };
        let found = found.filter(|_| name == "block cache");
        let found = found.map_or_else(String::new, |share| format!(", {} of blocks found", percent(share)));
        lines.push(format!("  {name:<12} {} {} of {}{found}", bar(share), figure(part_now), figure(whole_now)));
    }
    if let Some(load) = now.value("situ_hash_load_ratio") {
        lines.push(format!("  {:<12} {} {} of buckets, on average", "load", bar(load), percent(load)));
    }
}

/// Writes the levels of all keyspaces together, and the disk where their tables lie.
fn levels(now: &Live, lines: &mut Vec<String>) {
    let of = |name: &str, level: usize| -> f64 {
        let samples = now.metrics.get(name).into_iter().flatten();
        let is_of_level = |label: Option<&String>| label.is_some_and(|label| *label == level.to_string());
        samples.filter(|sample| is_of_level(sample.labels.get("level"))).filter_map(|sample| sample.value).sum()
    };
    let samples = now.metrics.get("situ_keyspace_level_bytes").into_iter().flatten();
    let numbers = samples.filter_map(|sample| sample.labels.get("level")?.parse::<usize>().ok());
    let Some(deepest) = numbers.max() else { return };
    let levels = (0..=deepest).map(|level| {
        let [tables, all, fast] =
            ["tables", "bytes", "fast_disk_bytes"].map(|figure| of(&format!("situ_keyspace_level_{figure}"), level));
        (level, tables, all, fast)
    });
    let levels: Vec<_> = levels.filter(|(_, tables, ..)| *tables > 0.0).collect();
    let most = levels.iter().map(|(_, _, all, _)| *all).fold(1.0, f64::max);
    if !levels.is_empty() {
        lines.push(String::new());
    }
    for (level, tables, all, fast) in levels {
        let place = match now.value("situ_store_fast_disk_total_bytes") {
            None => String::new(),
            Some(_) if fast == all => ", on the fast disk".to_owned(),
            Some(_) if fast == 0.0 => ", on the capacity disk".to_owned(),
            Some(_) => format!(", {} of it on the fast disk", bytes(fast)),
        };
        let name = format!("level {level}");
        let tables = text::plural(tables as u64, "table");
        lines.push(format!("  {name:<12} {} {}, {tables}{place}", bar(all / most), bytes(all)));
    }
}

fn units(between: &Between<'_>, lines: &mut Vec<String>) {
    let Some(compactions) = &between.now.compactions else { return };
    lines.push(String::new());
    lines.push(format!(
        "compactions   {}/s written, flushes {}/s",
        bytes(between.rate("situ_store_compaction_bytes_written_total")),
        bytes(between.rate("situ_store_flush_bytes_written_total"))
    ));
    for unit in &compactions.units {
        let earlier = between.before.compactions.iter().flat_map(|compactions| &compactions.units);
        let busy =
            |of: Option<&UnitFigures>| of.map_or([0; 3], |unit| unit.stages.named().map(|(_, stage)| busy(stage)));
        let (then, now) = (busy(earlier.clone().find(|other| other.name == unit.name)), busy(Some(unit)));
        let spent: [u64; 3] = std::array::from_fn(|stage| now[stage].saturating_sub(then[stage]));
        let all: u64 = spent.iter().sum();
        let shares = if all == 0 {
            String::new()
        } else {
            let [read, merge, write] = spent.map(|time| percent(time as f64 / all as f64));
            format!(", read {read}, merge {merge}, write {write}")
        };
        let state =
            unit.out_of_service.as_ref().map_or_else(String::new, |out| format!(", out of service: {}", out.why));
        lines.push(format!(
            "  {:<12} {} of {} places taken, {} of {} done{shares}{state}",
            unit.name,
            unit.tasks,
            unit.tasks_max,
            text::count(unit.succeeded),
            text::plural(unit.attempts, "attempt")
        ));
    }
}

/// Returns the time at work of a stage.
fn busy(stage: StageFigures) -> u64 {
    stage.busy_us
}

/// Outstanding work that is shown when there is some.
const DEBTS: [(&str, &str); 13] = [
    ("tombstones", "situ_store_debt_tombstones"),
    ("tombstones of ranges", "situ_store_debt_range_deletions"),
    ("expired or flushed items in tables", "situ_store_debt_removable_entries"),
    ("dead values", "situ_store_debt_value_dead_bytes"),
    ("files to delete", "situ_store_debt_undeleted_files"),
    ("failing background jobs", "situ_store_background_failing"),
    ("damaged files", "situ_store_damaged_files"),
    ("write limit in a second", "situ_store_write_limit_bytes_per_second"),
    ("writes that wait for space", "situ_hash_writes_waiting"),
    ("writes not yet in buckets", "situ_hash_pending_bytes"),
    ("dead entries in buckets", "situ_hash_debt_dead_entries"),
    ("dying values", "situ_hash_debt_value_dying_bytes"),
    ("failures of flash", "situ_cache_flash_errors_total"),
];

fn debts(between: &Between<'_>, lines: &mut Vec<String>) {
    let now = between.now;
    let mut parts = Vec::new();
    if let Some(stalled) = now.value("situ_store_stall_seconds_total") {
        let held = between.rate("situ_store_stall_seconds_total");
        parts.push(format!("writers held back {held:.2} s in a second, {stalled:.1} s in all"));
    }
    if now.sum("situ_engine_write_stalled") > 0.0 {
        parts.push("writes are held back now".to_owned());
    }
    for (name, metric) in DEBTS {
        let due = now.sum(metric);
        let figure = if metric.contains("_bytes") { bytes } else { count };
        if due > 0.0 {
            parts.push(format!("{name}: {}", figure(due)));
        }
    }
    if !parts.is_empty() {
        lines.push(String::new());
        lines.push("debts".to_owned());
        lines.extend(parts.into_iter().map(|part| format!("  {part}")));
    }
}

/// Slow operations in a report.
const SLOW_SHOWN: usize = 5;

/// Writes the last slow operations, the newest first.
fn slow(between: &Between<'_>, lines: &mut Vec<String>) {
    let slow = between.now.slow_operations.iter().flatten().rev().take(SLOW_SHOWN);
    let name = "situ_store_slow_operations_total";
    for (at, slow) in slow.enumerate() {
        if at == 0 {
            lines.push(String::new());
            lines.push(format!(
                "slow operations   {}, {} in all",
                count(between.more(name)),
                count(between.now.sum(name))
            ));
        }
        let time = |us: u64| situ_settings::figures::time(us as f64 * 1000.0);
        let mut parts: Vec<_> = slow.parts.iter().collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.us));
        let parts: Vec<_> =
            parts.iter().map(|part| format!("{} {}", part.name.replace('_', " "), time(part.us))).collect();
        lines.push(format!(
            "  {:>8} ago   {} {:>8}   {}, {}   {}",
            text::age(between.now.unix_ms.saturating_sub(slow.unix_ms) / 1000),
            slow.kind,
            time(slow.took_us),
            slow.keyspace,
            bytes(slow.bytes as f64),
            parts.join(", ")
        ));
    }
}

fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(BAR - full))
}

fn bytes(value: f64) -> String {
    situ_settings::figures::bytes(value.round())
}

fn count(value: f64) -> String {
    text::count(value.round() as u64)
}

fn percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
}

#[cfg(test)]
mod tests;
