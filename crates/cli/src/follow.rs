//! `changes` and `follow`: a store's changes as JSON lines, and a copy that is kept up to date by them.
//!
//! ```text
//!   situ changes SOURCE --follow ──lines──> situ follow - COPY
//! ```
//!
//! `follow SOURCE COPY` runs `changes` itself, as a process of its own. So a source that a server has open is read
//! through the server, as by any command.
//!
//! `lines` has the format, `copy` the copy.
//!
//! The first call [makes](make) the copy under the name `.COPY.partial`. It gets its own name when it is whole.
//!
//! **Failure.** A source that has released the changes ends both commands in words. A follower that is killed has
//! applied whole batches, and the copy has their position. One that is killed while it makes the copy leaves
//! `.COPY.partial`, which the next call removes.

mod copy;
mod lines;

use crate::DONE;
use crate::failure::{Exit, Failure, Outcome};
use crate::options::{ChangesOptions, FollowOptions, Since};
use crate::output::Output;
use crate::store::{Home, Writable};
use crate::text;
use copy::{Begins, Copy};
use lines::{Keyspaces, Line};
use situ::{ChangeFeed, ChangePosition, Error, Store};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time between two looks for new changes.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The time without changes after which a line says so.
const QUIET: Duration = Duration::from_secs(5);

/// `changes`: prints the changes of a store.
pub(crate) fn changes(options: &ChangesOptions, out: &mut Output) -> Outcome {
    let home = options.directory.home();
    if home.is_hash() {
        let why = "has no feed of changes: `situ dump` writes its items to a file";
        return Err(Failure::not_for_hash("follow", home.path(), why));
    }
    // A feed that waits would keep a server from its store.
    if options.follow && out.served().is_none() {
        let what = format!("cannot wait for changes of {}", home.path().display());
        return Err(Failure::not_served(what, home.path())
            .cure("start `situ serve` first, or leave out --follow (`situ follow --once`) to read what there is"));
    }
    let writable = Writable::open(&home, false, out)?;
    let failed = |error: Error| changes_failure(&writable, &error);
    let since = match options.since {
        Since::Position(position) => position,
        Since::Now => ChangePosition::of_copy(writable.store.properties().last_sequence),
    };
    let mut feed = writable.store.changes(since).map_err(failed)?;
    let mut told = Keyspaces::new();
    // The position of the last line. The feed may have passed over records that change nothing.
    let mut at = feed.position();
    tell_keyspaces(&feed, at, &mut told, out)?;
    let (mut told_at, mut shown_at) = (Instant::now(), Instant::now());
    loop {
        let batch = match feed.next_batch() {
            Ok(batch) => batch,
            Err(error) => {
                out.finish()?;
                return Err(failed(error));
            }
        };
        let is_idle = batch.is_none();
        if let Some(batch) = batch {
            if batch.changes.iter().any(|change| !told.contains_key(&change.keyspace)) {
                tell_keyspaces(&feed, at, &mut told, out)?;
            }
            out.object(&Line::of_batch(at, &batch))?;
            (at, told_at) = (batch.position, Instant::now());
        }
        if is_idle || shown_at.elapsed() >= LOOK_EVERY {
            tell_keyspaces(&feed, at, &mut told, out)?;
            out.finish()?;
            out.check_client()?;
            shown_at = Instant::now();
        }
        if !is_idle {
            continue;
        }
        if !options.follow {
            break;
        }
        if told_at.elapsed() >= QUIET {
            // A reader that has gone shows at a write.
            out.object(&Line::without_changes(at))?;
            told_at = Instant::now();
        }
        std::thread::sleep(LOOK_EVERY);
    }
    drop(feed);
    writable.close()?;
    DONE
}

fn changes_failure(writable: &Writable, error: &Error) -> Failure {
    let failure = writable.failure("cannot read the changes", error);
    match error {
        Error::ChangesGone { .. } => failure.cure("`situ serve --keep-changes SIZE` keeps more of them"),
        _ => failure,
    }
}

/// Prints the keyspaces of the store if they have changed.
fn tell_keyspaces(
    feed: &ChangeFeed,
    at: ChangePosition,
    told: &mut Keyspaces,
    out: &mut Output,
) -> Result<(), Failure> {
    let keyspaces = feed.keyspaces().into_iter().map(|(id, name)| (id, name.to_string())).collect();
    if *told != keyspaces {
        *told = keyspaces;
        out.object(&Line::of_keyspaces(at, told.clone()))?;
    }
    Ok(())
}

/// `follow`: keeps a copy up to date.
pub(crate) fn follow(options: &FollowOptions, out: &mut Output) -> Outcome {
    let (source, directory) = (&*options.source, &*options.copy);
    let is_stdin = source.as_os_str() == "-";
    if directory.to_str().is_some_and(|text| text.contains("://")) {
        return Err(Failure::usage("a copy is a directory, and not on a node"));
    }
    let is_new = is_empty(directory)
        .map_err(|error| Failure::new(format!("cannot read the directory {}", directory.display()), error))?;
    if is_new && options.from.is_some() {
        let why = format!("{} holds no copy yet", directory.display());
        return Err(Failure::new("cannot begin at --from", why).cure("leave out --from, or name a checkpoint"));
    }
    if is_new && options.position {
        let why = format!("there is no store in {}", directory.display());
        return Err(Failure::new("cannot find a position", why));
    }
    if is_new && !is_stdin {
        make(source, directory, out)?;
    }
    let writable = Writable::open(&Home::at(directory, &Default::default()), is_new && is_stdin, out)?;
    let mut copy = Copy::open(&writable, options.from.map(Begins::At))?;
    if options.position {
        out.line(copy.position().to_string())?;
        drop(copy);
        writable.close()?;
        return DONE;
    }
    if is_stdin {
        apply(&mut copy, &mut io::stdin().lock(), Path::new("standard input"))?;
    } else {
        let mut feed = Feed::start(source, copy.position(), !options.once, out.is_json())?;
        apply(&mut copy, &mut feed.lines, source)?;
        feed.end(source)?;
    }
    let position = copy.position();
    drop(copy);
    writable.close()?;
    if out.is_json() {
        out.object(&serde_json::json!({ "copy": directory.display().to_string(), "position": position.to_string() }))?;
    } else {
        out.line(format!("{}: position {position}", text::on_one_line(&directory.display().to_string())))?;
    }
    DONE
}

/// Returns true if a directory does not exist, or has nothing but `lost+found`.
fn is_empty(directory: &Path) -> io::Result<bool> {
    match directory.read_dir() {
        Ok(entries) => {
            let names: io::Result<Vec<_>> = entries.map(|entry| entry.map(|entry| entry.file_name())).collect();
            Ok(names?.iter().all(|name| name == "lost+found"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Applies lines until they end.
fn apply(copy: &mut Copy<'_>, lines: &mut impl BufRead, source: &Path) -> Result<(), Failure> {
    let mut number = 0u64;
    let mut bytes = Vec::new();
    loop {
        number += 1;
        bytes.clear();
        let what = || format!("cannot read line {number} of {}", source.display());
        lines.read_until(b'\n', &mut bytes).map_err(|error| Failure::new(what(), error))?;
        // A sender that was killed leaves a part of a line.
        let Some(line) = bytes.strip_suffix(b"\n") else { return Ok(()) };
        let line = Line::read(line).map_err(|why| {
            Failure::new(what(), why).cure("the lines are those of `situ changes` in docs/formats/changes.md")
        })?;
        copy.apply(line, &what)?;
    }
}

/// `situ changes` of a source, as a process of its own.
struct Feed {
    child: Child,
    lines: BufReader<Box<dyn Read>>,
}

impl Feed {
    fn start(source: &Path, position: ChangePosition, follow: bool, json: bool) -> Result<Feed, Failure> {
        let since = position.to_string();
        let mut arguments = vec![OsStr::new("changes"), OsStr::new("--since"), OsStr::new(&since)];
        arguments.extend(follow.then_some(OsStr::new("--follow")));
        arguments.extend(json.then_some(OsStr::new("--json")));
        arguments.extend([OsStr::new("--"), source.as_os_str()]);
        let mut child = program(&arguments)?;
        let lines: Box<dyn Read> = match child.stdout.take() {
            Some(stdout) => Box::new(stdout),
            None => Box::new(io::empty()),
        };
        Ok(Feed { child, lines: BufReader::with_capacity(1 << 20, lines) })
    }

    /// Waits for the process, whose lines have ended.
    fn end(&mut self, source: &Path) -> Result<(), Failure> {
        let what = format!("cannot follow {}", source.display());
        let status = self.child.wait().map_err(|error| Failure::new(&what, error))?;
        match status.code() {
            Some(0) => Ok(()),
            code => {
                let failure = Failure::new(&what, "`situ changes` ended, and says why above");
                let exit = code.and_then(|code| u8::try_from(code).ok()).map_or(Exit::Failed, Exit::of);
                let cure = "run the command again; if it says that changes cannot be read, remove the copy first";
                Err(failure.cure(cure).ending(exit))
            }
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // It has ended already if all went well.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            _ = self.child.kill();
            _ = self.child.wait();
        }
    }
}

/// Runs this program with other arguments. Its messages go where ours go.
fn program(arguments: &[&OsStr]) -> Result<Child, Failure> {
    let started = std::env::current_exe()
        .and_then(|program| Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn());
    started.map_err(|error| Failure::new("cannot run situ", error))
}

/// Makes the copy by a checkpoint, and notes its position. A directory that exists, such as a mount point, is filled
/// in place.
fn make(source: &Path, directory: &Path, out: &Output) -> Result<(), Failure> {
    let what = format!("cannot make the copy {}", directory.display());
    let failed = |error: io::Error| Failure::new(&what, error);
    let whole = std::path::absolute(directory).map_err(failed)?;
    let partial = match whole.file_name().filter(|_| !whole.exists()) {
        Some(name) => whole.with_file_name([OsStr::new("."), name, OsStr::new(".partial")].join(OsStr::new(""))),
        None => whole.clone(),
    };
    if partial != whole && partial.exists() {
        // `situ checkpoint` may go on for a moment when its caller is killed.
        Store::destroy(&partial).map_err(|error| match error {
            Error::Storage(situ_storage::Error::Locked { .. }) => {
                Failure::new(&what, "another call makes it").cure("call again when that one has ended")
            }
            error => Failure::new(&what, error),
        })?;
    }
    let last = checkpoint(source, &partial)?;
    let writable = Writable::open(&Home::at(&partial, &Default::default()), false, out)?;
    drop(Copy::open(&writable, Some(Begins::Made(last)))?);
    writable.close()?;
    if partial != whole {
        let renamed = fs::rename(&partial, &whole);
        let above = whole.parent().unwrap_or(&whole);
        renamed.and_then(|()| File::open(above)?.sync_all()).map_err(failed)?;
    }
    Ok(())
}

/// Makes a checkpoint of the source. Returns its last sequence number.
fn checkpoint(source: &Path, directory: &Path) -> Result<u64, Failure> {
    let what = || format!("cannot make a copy of {} in {}", source.display(), directory.display());
    let arguments = ["--json", "checkpoint", "-o"].map(OsStr::new);
    let arguments = [&arguments[..], &[directory.as_os_str(), OsStr::new("--"), source.as_os_str()]].concat();
    let output = program(&arguments)?.wait_with_output().map_err(|error| Failure::new(what(), error))?;
    if !output.status.success() {
        return Err(Failure::new(what(), "`situ checkpoint` failed, and says why above"));
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let last = report.get("last_sequence").and_then(serde_json::Value::as_u64);
    last.ok_or_else(|| Failure::new(what(), "`situ checkpoint` did not say how far the copy goes"))
}
