//! `load`: a file into the store, at most once each line.
//!
//! Entries are gathered into batches. Each batch also says, in the keyspace [`MARKS`], up to which place of which file
//! it goes: entries and place become durable together or not at all, so a load that was killed goes on with `--resume`
//! without losing or repeating a line. A file is known by its path, its size and a hash of its first bytes; a file that
//! has changed is not resumed. Standard input has no name and cannot be resumed.
//!
//! With `--stored` the entries are memcached items. They get new cas ids, and the record of these is part of each
//! batch, too: see [`ItemWriter`](situ_server::ItemWriter).

use super::packed::{Input, Packing};
use super::records::{Place, Record, Records, Unreadable};
use super::target::Target;
use super::{format_of, is_dash};
use crate::DONE;
use crate::failure::{Failure, Outcome};
use crate::message::Message;
use crate::options::{Format, LoadOptions};
use crate::output::Output;
use crate::text;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

/// A batch ends here, however few entries it has.
const BATCH_BYTES: usize = 1 << 20;
/// The bytes of a file that are hashed to tell it from another one of the same name and size.
const HEAD_BYTES: u64 = 64 << 10;

/// The progress of a load of a file, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    /// Size of the file.
    bytes: u64,
    /// Hash of its head.
    head: u64,
    offset: u64,
    line: u64,
    loaded: u64,
    skipped: u64,
    done: bool,
    /// The time of the last lossy repair of the store, as the store said when this load began. Marks of older
    /// programs do not have it.
    #[serde(default)]
    lossy_repair: Option<u64>,
    /// The columns or fields that the load used. Absent in marks of older programs.
    #[serde(default)]
    layout: Vec<String>,
}

/// The identity of the file that a load reads.
struct Identity {
    key: Vec<u8>,
    bytes: u64,
    head: u64,
    /// The file is packed, so places of records are not offsets in the file.
    is_packed: bool,
}

/// The summary of a load.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    file: String,
    keyspace: &'a str,
    /// Entries of this run.
    loaded: u64,
    /// Lines that this run skipped.
    skipped: u64,
    /// The line of the first record that it read after going on.
    #[serde(skip_serializing_if = "Option::is_none")]
    resumed_at_line: Option<u64>,
    /// Entries of all runs.
    loaded_in_all: u64,
    /// Lines that all runs skipped.
    skipped_in_all: u64,
    /// An earlier run had reached the end of the file.
    #[serde(skip)]
    was_done: bool,
    seconds: f64,
}

pub(crate) fn load(options: &LoadOptions, out: &mut Output) -> Outcome {
    let started = Instant::now();
    let name = options.target.keyspace_to_write(options.stored)?;
    if options.resume {
        can_be_resumed(&options.file)?;
    }
    let format = format_of(options.format, &options.file);
    if options.layout.no_header && format == Format::Jsonl {
        return Err(Failure::usage("--no-header is for CSV and TSV, but the format of this file is JSON lines")
            .cure("leave out --no-header, or name the format with --format"));
    }
    let (input, identity) = open(&options.file, name)?;
    let is_packed = identity.as_ref().is_some_and(|identity| identity.is_packed);
    let left = match &identity {
        Some(_) => "what was loaded stays, and --resume goes on from there",
        None => "what was loaded stays, but a load of standard input or of a pipe cannot be resumed",
    };
    out.on_interrupt(left.to_owned(), || {}).map_err(|error| Failure::new("cannot catch signals", error))?;
    // First, so that no store is created for a file that cannot be loaded.
    let records = begin(input, format, options)?;
    let target = super::target::open(options, name, identity.is_some(), out)?;
    let mark = Mark {
        bytes: identity.as_ref().map_or(0, |identity| identity.bytes),
        head: identity.as_ref().map_or(0, |identity| identity.head),
        offset: Place::START.offset,
        line: Place::START.line,
        loaded: 0,
        skipped: 0,
        done: false,
        lossy_repair: target.lossy_repair(),
        layout: options.layout.key.iter().chain(&options.layout.values).cloned().collect(),
    };
    let mut load = Load {
        options,
        out,
        bar: ProgressBar::hidden(),
        mark_key: identity.map(|identity| identity.key),
        target,
        first_line: mark.line,
        before: 0,
        mark,
    };
    if options.resume {
        load.find_mark()?;
    }
    let before = load.mark.clone();
    load.before = before.loaded;
    load.bar = bar(&load, is_packed);
    load.first_line = before.line;
    let outcome = if before.done { Ok(()) } else { load.run(records) };
    load.bar.finish_and_clear();
    let Load { mark: after, first_line, target, .. } = load;
    // Even after a failure: what was loaded is kept, and made durable.
    let closed = target.close();
    outcome?;
    closed?;
    let summary = Summary {
        file: options.file.display().to_string(),
        keyspace: name,
        loaded: after.loaded - before.loaded,
        skipped: after.skipped - before.skipped,
        resumed_at_line: (options.resume && before.offset > 0).then_some(first_line),
        loaded_in_all: after.loaded,
        skipped_in_all: after.skipped,
        was_done: before.done,
        seconds: started.elapsed().as_secs_f64(),
    };
    if out.is_json() {
        out.object(&summary)?;
    } else {
        out.line(summary.describe())?;
    }
    DONE
}

impl Summary<'_> {
    fn describe(&self) -> String {
        let all = text::plural_of(self.loaded_in_all, "entry", "entries");
        if self.was_done {
            return format!(
                "nothing is left to load: an earlier load has reached the end of the file, with {all} in all"
            );
        }
        let mut text = format!(
            "loaded {} into {:?} in {:.1} s",
            text::plural_of(self.loaded, "entry", "entries"),
            self.keyspace,
            self.seconds
        );
        if self.skipped > 0 {
            text.push_str(&format!(", skipped {}", text::plural(self.skipped, "bad line")));
        }
        if let Some(line) = self.resumed_at_line {
            text.push_str(&format!(", went on at line {}; {all} in all", text::count(line)));
        }
        text
    }
}

/// A load under way.
struct Load<'a> {
    options: &'a LoadOptions,
    out: &'a Output,
    target: Box<dyn Target>,
    /// Under which key the place is kept.
    mark_key: Option<Vec<u8>>,
    mark: Mark,
    /// The line of the first record of this run, or of the end of the file if there is none.
    first_line: u64,
    /// Entries that earlier runs have loaded.
    before: u64,
    bar: ProgressBar,
}

impl Load<'_> {
    /// Takes up the place of an earlier load of the same file.
    fn find_mark(&mut self) -> Result<(), Failure> {
        let Some(key) = &self.mark_key else { return Ok(()) };
        let what = "cannot resume";
        let Some(found) = self.target.mark(key)? else {
            let text = "the store knows of no earlier load of this file; the load begins at its first line";
            self.out.warn(text);
            return Ok(());
        };
        let mark: Mark = serde_json::from_slice(&found)
            .map_err(|error| Failure::new(what, format!("the position of the earlier load cannot be read: {error}")))
            .map_err(|failure| failure.cure("load the file from its beginning, without --resume"))?;
        if (mark.bytes, mark.head) != (self.mark.bytes, self.mark.head) {
            let why = format!(
                "the file has changed since the earlier load: it had {} bytes and has {} now, or it begins with other bytes",
                mark.bytes, self.mark.bytes
            );
            return Err(Failure::new(what, why).cure("load it from its beginning, without --resume"));
        }
        if mark.lossy_repair != self.mark.lossy_repair {
            let why = "a repair has lost data of the store since this load began; entries of this file may be lost";
            return Err(Failure::new(what, why).cure("load the file again from its beginning, without --resume"));
        }
        if mark.layout != self.mark.layout {
            let why = match &mark.layout[..] {
                [] => "the earlier load named no columns or fields".to_owned(),
                names => format!("the earlier load used the columns or fields {}", names.join(", ")),
            };
            return Err(Failure::new(what, why).cure("name the same ones with --key and --value"));
        }
        self.mark = mark;
        Ok(())
    }

    fn run(&mut self, mut records: Records) -> Result<(), Failure> {
        let shown = self.options.file.display();
        let failed = |error: io::Error| Failure::new(format!("cannot read {shown}"), error);
        if self.mark.offset > 0 {
            let place = Place { offset: self.mark.offset, line: self.mark.line };
            records = records.restart_at(place).map_err(failed)?;
        }
        let mut bad = 0;
        let mut gathered = 0;
        let mut first = true;
        loop {
            let before = records.place();
            let numbered = records.read().map_err(|error| self.interrupted(failed(error)))?;
            if std::mem::take(&mut first) {
                // The place before it can lie within `\r\n`, on the line that ends there.
                self.first_line = numbered.as_ref().map_or_else(|| records.place().line, |numbered| numbered.line);
            }
            let Some(numbered) = numbered else { break };
            if let Ok((key, value)) = &numbered.record
                && gathered > 0
                && self.target.bytes() + key.len() + value.len() > BATCH_BYTES
            {
                self.commit(before, gathered)?;
                gathered = 0;
            }
            let expires_ms = numbered.expires_ms;
            let put = |(key, value): Record| self.target.put(&key, &value, expires_ms);
            match numbered.record.and_then(put) {
                Ok(()) => gathered += 1,
                Err(why) => {
                    let message = Message::BadLine { file: &shown.to_string(), line: numbered.line, why: &why };
                    self.bar.suspend(|| self.out.tell(&message));
                    if bad == self.options.skip_bad {
                        self.commit(before, gathered)?;
                        return Err(self.too_many_bad(numbered.line));
                    }
                    bad += 1;
                    self.mark.skipped += 1;
                }
            }
            if gathered >= u64::from(self.options.batch) {
                self.commit(records.place(), gathered)?;
                gathered = 0;
            }
        }
        self.commit_up_to(Mark { done: true, ..self.mark_at(records.place(), gathered) })
    }

    fn too_many_bad(&self, line: u64) -> Failure {
        let what =
            format!("stopped at line {}, with {} loaded", text::count(line), text::plural(self.mark.loaded, "line"));
        let why = match self.options.skip_bad {
            0 => "the line cannot be read".to_owned(),
            limit => format!("more than {} cannot be read", text::plural(limit, "line")),
        };
        Failure::new(what, why).cure(match self.mark_key {
            Some(_) => "correct the line and load the file again, or skip such lines with --resume --skip-bad NUMBER",
            None => "correct the input and load it again, or skip such lines with --skip-bad NUMBER",
        })
    }

    /// The load stops here: what there is already, and how to go on.
    fn interrupted(&self, failure: Failure) -> Failure {
        if self.mark_key.is_none() || self.mark.offset == 0 {
            return failure;
        }
        let loaded = text::plural_of(self.mark.loaded, "entry is", "entries are");
        failure.cure(format!("{loaded} loaded, and --resume goes on from there"))
    }

    /// Returns the progress of the load with the gathered entries.
    fn mark_at(&self, place: Place, gathered: u64) -> Mark {
        Mark { offset: place.offset, line: place.line, loaded: self.mark.loaded + gathered, ..self.mark.clone() }
    }

    fn commit(&mut self, place: Place, gathered: u64) -> Result<(), Failure> {
        self.commit_up_to(self.mark_at(place, gathered))
    }

    /// Returns the text of the bar next to its rate, with `loaded` entries in all.
    fn told(&self, loaded: u64) -> String {
        let now = text::plural_of(loaded - self.before, "entry", "entries");
        match self.before {
            0 => now,
            _ => format!("{now} now, {} in all", text::count(loaded)),
        }
    }

    /// Writes what was gathered together with the place it goes up to.
    fn commit_up_to(&mut self, mark: Mark) -> Result<(), Failure> {
        self.write_up_to(&mark).map_err(|failure| self.interrupted(failure))?;
        self.bar.set_position(if self.mark_key.is_some() { mark.offset } else { mark.loaded });
        self.bar.set_message(self.told(mark.loaded));
        self.mark = mark;
        Ok(())
    }

    fn write_up_to(&mut self, mark: &Mark) -> Result<(), Failure> {
        self.out.check_client()?;
        let mark = serde_json::to_vec(mark).map_err(|error| Failure::new("cannot write a batch", error))?;
        let mark = self.mark_key.as_ref().map(|key| (&key[..], &mark[..]));
        self.target.commit(mark, self.options.sync)
    }
}

/// Refuses a load that cannot be resumed, before anything is opened: opening a pipe would let its writer start.
fn can_be_resumed(path: &Path) -> Result<(), Failure> {
    if is_dash(path) {
        return Err(Failure::usage("a load of standard input cannot be resumed: name a file as an argument"));
    }
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() && !found.is_dir() => Err(Failure::usage(format!(
            "a load of {} cannot be resumed: it is no regular file, and what was read from it is gone",
            path.display()
        ))),
        _ => Ok(()),
    }
}

fn open(path: &Path, keyspace: &str) -> Result<(Input, Option<Identity>), Failure> {
    if is_dash(path) {
        return Ok((Input::stdin(), None));
    }
    let shown = path.display();
    let failed = |error: io::Error| Failure::new(format!("cannot read {shown}"), error);
    let mut file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(Failure::new(format!("cannot read {shown}"), "it is a directory"));
    }
    if !metadata.is_file() {
        // A pipe with a name: what was read is gone.
        return Ok((Input::file(file, Packing::of_name(path)), None));
    }
    let mut head = Vec::new();
    file.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(failed)?;
    file.rewind().map_err(failed)?;
    let absolute = path.canonicalize().map_err(failed)?;
    let key = [keyspace.as_bytes(), b"\0", absolute.as_os_str().as_bytes()].concat();
    let is_packed = Packing::of_head(&head).is_some();
    let identity = Identity { key, bytes: metadata.len(), head: xxh3_64(&head), is_packed };
    Ok((Input::file(file, Packing::of_name(path)), Some(identity)))
}

fn begin(input: Input, format: Format, options: &LoadOptions) -> Result<Records, Failure> {
    let shown = options.file.display();
    Records::new(input, format, &options.layout).map_err(|why| match why {
        Unreadable::Input(error) => Failure::new(format!("cannot read {shown}"), error),
        Unreadable::Header { line, why, shown: header } => {
            Failure::new(format!("cannot read {shown}, line {line}"), format!("{why} in the header {header:?}"))
                .cure("name the columns with --key and --value, or give --no-header if the first line is an entry")
        }
    })
}

fn bar(load: &Load<'_>, is_packed: bool) -> ProgressBar {
    let bar = match load.mark_key {
        Some(_) if !is_packed => load.out.bar(
            Some(load.mark.bytes),
            load.mark.offset,
            "{bar:30} {percent:>3} %  {bytes_per_sec}  {msg}, {eta} to go",
        ),
        _ => load.out.bar(None, 0, "{spinner} {msg}, {elapsed}"),
    };
    bar.with_message(load.told(load.mark.loaded))
}
