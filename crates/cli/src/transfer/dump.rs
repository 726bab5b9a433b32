//! `dump`: entries into a file that `load` can read back, byte for byte.
//!
//! Entries of a hash store that expire have a field or a column more, `expires_ms`. A program that does not know it
//! refuses such a file.
//!
//! Memcached items that have expired or were flushed are left out: a client would not see them either.
//!
//! The dump goes to a temporary file, which is renamed when it is complete and durable. A symbolic link keeps pointing
//! to the name. With `--force`, the dump replaces an existing file and keeps its mode from the first byte on. Owner and
//! group are kept where the system permits it. A file that the user may not write is not replaced. A device or a pipe
//! is written in place.

use super::packed::{Packer, Packing};
use super::sink::Sink;
use super::{format_of, is_dash};
use crate::DONE;
use crate::failure::{Failure, Outcome};
use crate::open::open_to_walk;
use crate::options::{DumpOptions, Format};
use crate::output::Output;
use crate::text;
use crate::walk::{Order, Walk};
use serde::Serialize;
use situ_storage::FileName;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Entries between two looks at the progress bar.
const BAR_EVERY: u64 = 1024;

#[derive(Debug, Serialize)]
struct Summary {
    file: String,
    dumped: u64,
    bytes: u64,
}

pub(crate) fn dump(options: &DumpOptions, out: &mut Output) -> Outcome {
    let readable = open_to_walk(&options.target, options.stored, out)?;
    if readable.strips_items() {
        out.warn(
            "values are memcached items: they are written without flags and expiration times; --stored writes them \
             whole",
        );
    }
    let format = format_of(options.format, &options.output);
    let to_stdout = is_dash(&options.output) || is_stdout(&options.output);
    if out.is_json() && format != Format::Jsonl && to_stdout {
        return Err(Failure::usage(
            "with --json, standard output holds JSON, and --format asks for something else there",
        )
        .cure("leave out --json or --format, or name a file with --output"));
    }
    // The number of entries is an estimate.
    let expected = readable.approximate_entries();
    let bar = out.bar(Some(expected), 0, "{bar:30} {percent:>3} %  {human_pos} entries, {per_sec}");
    if to_stdout {
        let to = |error: &io::Error| Failure::stdout(error);
        let progress = |entries| {
            bar.set_position(entries);
            Ok(())
        };
        let dumped = write_entries(&*readable, options, format, out, &to, &progress);
        bar.finish_and_clear();
        dumped?;
        readable.close()?;
        return DONE;
    }
    let target = &options.output;
    if let Some(store) = store_of(target) {
        return Err(Failure::new(format!("cannot write {}", target.display()), "the file belongs to a store")
            .cure(format!("name a file outside {}, or another name in it", store.display())));
    }
    can_be_written(target, options.force)?;
    let left = match target.symlink_metadata() {
        Ok(_) => format!("{} is as it was", target.display()),
        Err(_) => "no file is left".to_owned(),
    };
    let unchanged = |error: &io::Error| Failure::new(format!("cannot write {}", target.display()), error).cure(&left);
    let begun = |error: &io::Error| {
        Failure::new(format!("cannot write {}", target.display()), error)
            .cure("it is no regular file, and what was written before the error stays there")
    };
    let caller = &*out;
    let catch = |partial: PathBuf| {
        let left = left.clone();
        // An error means that the file has its own name already.
        caller.on_interrupt(left, move || drop(std::fs::remove_file(partial)))
    };
    let destination = Destination::open(target, &catch).map_err(|error| unchanged(&error))?;
    let to: &dyn Fn(&io::Error) -> Failure = match destination {
        Destination::Whole(_) => &unchanged,
        Destination::Direct(_) => &begun,
    };
    let counted = Counted { inner: BufWriter::with_capacity(256 << 10, destination.file()), bytes: 0 };
    let mut packer = Packer::new(counted, Packing::of_name(target)).map_err(|error| to(&error))?;
    let progress = |entries| {
        bar.set_position(entries);
        caller.check_client()
    };
    let dumped = write_entries(&*readable, options, format, &mut packer, to, &progress);
    bar.finish_and_clear();
    let dumped = dumped?;
    let bytes = packer.finish().map_err(|error| to(&error))?.bytes;
    // Another process may have created the file meanwhile.
    can_be_written(target, options.force)?;
    destination.finish(out).map_err(|error| to(&error))?;
    readable.close()?;
    let summary = Summary { file: target.display().to_string(), dumped, bytes };
    if out.is_json() {
        out.object(&summary)?;
    } else {
        let entries = text::plural_of(dumped, "entry", "entries");
        out.line(format!("wrote {entries}, {}, to {}", text::bytes(bytes), summary.file))?;
    }
    DONE
}

fn write_entries(
    readable: &dyn Walk,
    options: &DumpOptions,
    format: Format,
    to: &mut dyn Write,
    failed: &dyn Fn(&io::Error) -> Failure,
    progress: &dyn Fn(u64) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let encoding = options.encoding.encoding();
    let mut sink = Sink::new(format, encoding, readable.may_expire(), to).map_err(|error| failed(&error))?;
    let mut entries = 0;
    let dumped = readable.walk(&options.range, encoding, Order::Any, &mut |key, value, expires_ms| {
        entries += 1;
        if entries % BAR_EVERY == 0 {
            progress(entries)?;
        }
        sink.write(key, value, expires_ms).map_err(|error| failed(&error))
    });
    let dumped = dumped?;
    sink.finish().map_err(|error| failed(&error))?;
    Ok(dumped)
}

/// Returns true if the path leads to the file of standard output, as /dev/stdout does. A file under a new name would
/// take the place of the one that others write to, and a summary would stand among the entries.
fn is_stdout(path: &Path) -> bool {
    let stdout = io::stdout().as_fd().try_clone_to_owned().and_then(|stdout| File::from(stdout).metadata());
    match (std::fs::metadata(path), stdout) {
        (Ok(file), Ok(stdout)) => (file.dev(), file.ino()) == (stdout.dev(), stdout.ino()),
        _ => false,
    }
}

/// Checks in advance for errors that would only be found when all is written, or only in the system's words.
fn can_be_written(target: &Path, force: bool) -> Result<(), Failure> {
    let what = format!("cannot write {}", target.display());
    if target.is_dir() {
        return Err(Failure::new(what, "it is a directory").cure("name a file with --output"));
    }
    if target.is_file() && !force {
        return Err(Failure::new(what, "the file exists already").cure("name another file, or replace it with --force"));
    }
    let directory = directory_of(target);
    if target.symlink_metadata().is_err() && !directory.is_dir() {
        return Err(Failure::new(what, format!("there is no directory {}", directory.display()))
            .cure("make the directory, or name a file in another one"));
    }
    Ok(())
}

/// Makes a signal remove the file of this name, which is about to be created.
type Catch<'a> = &'a dyn Fn(PathBuf) -> io::Result<()>;

/// The destination of entries.
enum Destination {
    /// A file that appears when it is whole.
    Whole(Partial),
    /// The existing file under the name, which is no regular file.
    Direct(File),
}

impl Destination {
    fn open(target: &Path, catch: Catch<'_>) -> io::Result<Destination> {
        match std::fs::metadata(target) {
            Ok(found) if !found.is_file() => Ok(Destination::Direct(File::options().write(true).open(target)?)),
            Ok(_) => Ok(Destination::Whole(Partial::replacing(std::fs::canonicalize(target)?, catch)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Destination::Whole(Partial::create(end_of_links(target)?, 0o666, catch)?))
            }
            Err(error) => Err(error),
        }
    }

    fn file(&self) -> &File {
        match self {
            Destination::Whole(partial) => &partial.file,
            Destination::Direct(file) => file,
        }
    }

    fn finish(self, out: &Output) -> io::Result<()> {
        match self {
            Destination::Whole(partial) => {
                if let Some(warning) = &partial.new_owner {
                    out.warn(warning);
                }
                partial.finish()
            }
            // Nothing else of these can be made durable; the system refuses to try.
            Destination::Direct(file) if file.metadata()?.file_type().is_block_device() => file.sync_all(),
            Destination::Direct(_) => Ok(()),
        }
    }
}

/// Returns the directory of the store that `target` is a file of, or would be taken for one of: a dump there would
/// destroy it.
fn store_of(target: &Path) -> Option<PathBuf> {
    let target = std::fs::canonicalize(target).or_else(|_| end_of_links(target)).ok()?;
    target.file_name()?.to_str()?.parse::<FileName>().ok()?;
    let directory = directory_of(&target);
    let is_store = [FileName::Identity, FileName::Current].iter().any(|name| directory.join(name.to_string()).exists());
    is_store.then(|| directory.to_owned())
}

/// Returns the path that a chain of symbolic links ends in, with nothing there yet.
fn end_of_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    // The chain has an end: the system has followed it already, and counts.
    while std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
        let next = std::fs::read_link(&path)?;
        path = directory_of(&path).join(next);
    }
    Ok(path)
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file that is not there yet under its own name; removed if it is given up.
struct Partial {
    path: PathBuf,
    file: File,
    target: PathBuf,
    /// The message for a file whose owner or group will be others than before.
    new_owner: Option<String>,
}

impl Partial {
    fn create(target: PathBuf, mode: u32, catch: Catch<'_>) -> io::Result<Partial> {
        let mut name = target.as_os_str().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let path = PathBuf::from(name);
        catch(path.clone())?;
        let file = File::options().write(true).create_new(true).mode(mode).open(&path)?;
        Ok(Partial { file, path, target, new_owner: None })
    }

    /// Creates a partial file with the owner and the mode of the file `target`.
    fn replacing(target: PathBuf, catch: Catch<'_>) -> io::Result<Partial> {
        // The directory decides on the right to rename. The file decides on the right to write it.
        let before = File::options().write(true).open(&target)?.metadata()?;
        // Only this user can open it before it has its owner.
        let mut partial = Partial::create(target, 0o600, catch)?;
        let created = partial.file.metadata()?;
        let mut mode = before.mode() & 0o7777;
        let (owner, group) = (before.uid(), before.gid());
        if (owner, group) != (created.uid(), created.gid()) {
            let give = |owner, group| std::os::unix::fs::fchown(&partial.file, owner, group).is_ok();
            // A group that we are a member of can be kept even where the owner cannot.
            if !give(Some(owner), Some(group)) {
                give(None, Some(group));
                let now = partial.file.metadata()?;
                // These would lend the rights of another user or group than before.
                mode &= 0o1777;
                partial.new_owner = Some(format!(
                    "{} belonged to user {owner} and group {group}, and belongs to user {} and group {} now: only root \
                     may give files to others",
                    partial.target.display(),
                    now.uid(),
                    now.gid()
                ));
            }
        }
        partial.file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        Ok(partial)
    }

    fn finish(self) -> io::Result<()> {
        self.file.sync_all()?;
        std::fs::rename(&self.path, &self.target)?;
        File::open(directory_of(&self.target))?.sync_all()
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // The file was renamed already, or is given up. A failure to remove it is not reported.
        let _ = std::fs::remove_file(&self.path);
    }
}

struct Counted<W> {
    inner: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
