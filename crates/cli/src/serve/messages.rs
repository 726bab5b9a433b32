//! The log of a server: a file that can be opened again, or standard error.
//!
//! A listener of the store writes the events that a person looks for, and a few lines a second about slow operations.
//!
//! **Failure.** A line that cannot be written is dropped: it must not stop the server. A file that cannot be opened
//! again leaves the old one in use.

use crate::failure::Failure;
use crate::message::Message;
use crate::text;
use situ::{Listener, StoreEvent};
use situ_base::lock;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// See the module.
pub(super) struct Messages {
    /// On stderr, messages are for machines.
    json: bool,
    file: Mutex<LogFile>,
    slow: Mutex<SlowLines>,
}

/// The file of the log, if there is one.
struct LogFile {
    path: Option<PathBuf>,
    file: Option<File>,
}

impl Messages {
    pub(super) fn open(path: Option<PathBuf>, json: bool) -> Result<Messages, Failure> {
        let file = path.as_deref().map(append_to).transpose();
        let file = file.map_err(|error| {
            let shown = path.as_deref().unwrap_or(Path::new("")).display();
            Failure::new(format!("cannot open the log file {shown}"), error)
                .cure("--log-file takes a file that this user may write")
        })?;
        Ok(Messages { json, file: Mutex::new(LogFile { path, file }), slow: Mutex::default() })
    }

    pub(super) fn line(&self, text: &str) {
        let time = text::utc(text::now_unix_s());
        let line = format!("{time} {}\n", text::on_one_line(text));
        let mut log = lock(&self.file);
        // A message that cannot be written must not stop the server, and its failure cannot be reported.
        let _ = match log.file.as_mut() {
            Some(file) => file.write_all(line.as_bytes()),
            None if self.json => {
                Message::Log { time: &time, text }.tell(true);
                Ok(())
            }
            None => io::stderr().write_all(line.as_bytes()),
        };
    }

    /// Goes on in a new file under the same name; in the old one if that cannot be opened.
    pub(super) fn reopen(&self) {
        let path = lock(&self.file).path.clone();
        self.go_on_in(path);
    }

    /// Goes on in a new file, or on stderr; in the old place if the file cannot be opened.
    pub(super) fn go_on_in(&self, path: Option<PathBuf>) {
        match path.as_deref().map(append_to).transpose() {
            Ok(file) => {
                let is_file = file.is_some();
                *lock(&self.file) = LogFile { path, file };
                if is_file {
                    self.line("log file opened again");
                }
            }
            Err(error) => {
                let shown = path.unwrap_or_default();
                self.line(&format!("cannot open {} again, going on in the old file: {error}", shown.display()));
            }
        }
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).open(path)
}

impl Listener for Messages {
    fn event(&self, event: &StoreEvent) {
        let more = match event {
            StoreEvent::Slow(_) => match lock(&self.slow).take(Instant::now()) {
                Some(more) => more,
                None => return,
            },
            _ => String::new(),
        };
        if let Some(text) = told(event) {
            self.line(&format!("{text}{more}"));
        }
    }
}

/// Lines about slow operations in a second: a disk that stalls makes every operation slow.
const SLOW_LINES_MAX: u32 = 5;

/// The number of lines about slow operations in the present second, and of operations that got none.
#[derive(Debug, Default)]
struct SlowLines {
    second_began: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl SlowLines {
    /// Takes a line for an operation at `now`. Returns what the line says of those before it that got none; `None` if
    /// this one gets none.
    fn take(&mut self, now: Instant) -> Option<String> {
        let is_over = |began: Instant| now.saturating_duration_since(began) >= Duration::from_secs(1);
        if self.second_began.is_none_or(is_over) {
            (self.second_began, self.lines) = (Some(now), 0);
        }
        if self.lines == SLOW_LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(match std::mem::take(&mut self.left_out) {
            0 => String::new(),
            left_out => format!(" ({} before it left out)", text::plural(left_out, "slow operation")),
        })
    }
}

/// Returns the line of the log for an event. Beginnings, whose ends have a line, and single tables have none.
fn told(event: &StoreEvent) -> Option<String> {
    Some(match event {
        StoreEvent::FlushBegun { .. }
        | StoreEvent::CompactionBegun { .. }
        | StoreEvent::TableCreated { .. }
        | StoreEvent::TableDeleted { .. } => return None,
        StoreEvent::Flushed { keyspace, bytes, duration, .. } => {
            format!("{keyspace}: flushed {} in {duration:.1?}", text::bytes(*bytes))
        }
        StoreEvent::Compacted { keyspace, from_level, to_level, reason, bytes_read, bytes_written, duration } => {
            format!(
                "{keyspace}: compacted level {from_level} into {to_level} ({reason}): read {}, wrote {}, {duration:.1?}",
                text::bytes(*bytes_read),
                text::bytes(*bytes_written)
            )
        }
        StoreEvent::Opened { duration, .. } => format!("the store was opened in {duration:.1?}"),
        StoreEvent::Slowed { bytes_per_s: 0, reason } => format!("writers are free again ({reason})"),
        StoreEvent::Slowed { bytes_per_s, reason } => {
            format!("writers are held to {}/s: {reason}", text::bytes(*bytes_per_s))
        }
        StoreEvent::WritersStopped { keyspace, reason } => format!("{keyspace}: writers wait for room: {reason}"),
        StoreEvent::WritersResumed { keyspace } => format!("{keyspace}: writers go on"),
        StoreEvent::JobFailed { job, error } => format!("{job} failed and will be tried again: {error}"),
        StoreEvent::JobRecovered { job } => format!("{job} has succeeded after it had failed"),
        StoreEvent::CompactionPostponed { keyspace, from_level, to_level, rest, error, .. } => format!(
            "{keyspace}: the compaction of level {from_level} into {to_level} failed and waits {} before the next attempt; other \
             compactions go on: {error}",
            text::age(rest.as_secs())
        ),
        StoreEvent::DamageFound { error, .. } => format!(
            "damage found: {error}. Reads of damaged data fail (SERVER_ERROR); all other requests work. Stop the server and run `situ repair`, \
             or restore a backup."
        ),
        StoreEvent::Failed { error } => format!("the store takes no more writes: {error}"),
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_a_few_lines_about_slow_operations_and_the_next_one_counts_the_others() {
        let mut slow = SlowLines::default();
        let now = Instant::now();
        let mut take = |ms| slow.take(now + Duration::from_millis(ms));
        for _ in 0..SLOW_LINES_MAX {
            assert_eq!(take(0).as_deref(), Some(""));
        }
        assert_eq!([take(1), take(999)], [None, None]);
        assert_eq!(take(1000).as_deref(), Some(" (2 slow operations before it left out)"));
        assert_eq!(take(1001).as_deref(), Some(""));
    }

    #[test]
    fn the_log_tells_of_ends_and_of_what_writers_feel() {
        let keyspace = || "items".to_owned();
        let silent = [
            StoreEvent::FlushBegun { keyspace: keyspace(), entries: 1, bytes: 1 },
            StoreEvent::TableCreated { keyspace: keyspace(), table: 7, level: 0, bytes: 1, entries: 1 },
            StoreEvent::TableDeleted { table: 7 },
        ];
        assert_eq!(silent.iter().find_map(told), None);
        let stopped = StoreEvent::WritersStopped { keyspace: keyspace(), reason: "level 0 is full".to_owned() };
        assert_eq!(told(&stopped).as_deref(), Some("items: writers wait for room: level 0 is full"));
        let resumed = StoreEvent::WritersResumed { keyspace: keyspace() };
        assert_eq!(told(&resumed).as_deref(), Some("items: writers go on"));
        let postponed = StoreEvent::CompactionPostponed {
            keyspace: keyspace(),
            from_level: 1,
            to_level: 2,
            tables: vec![7],
            rest: Duration::from_secs(300),
            error: situ::Error::Closed,
        };
        let told = told(&postponed).unwrap();
        assert!(
            told.starts_with(
                "items: the compaction of level 1 into 2 failed and waits 5 min before the next attempt; other compactions go on: "
            ),
            "{told}"
        );
    }
}
