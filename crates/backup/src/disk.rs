//! Changes of files and directories, each durable when its caller needs that, and errors that name the file.

use situ_storage::{Error, Result};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// Bytes that are read, hashed and written at a time.
pub(crate) const PIECE_BYTES: usize = 1 << 20;
/// Zeros of this length, at a multiple of it, become a hole.
const HOLE_BYTES: usize = 4 << 10;

/// Ends the thread at a chosen change, as a killed process would end.
#[cfg(not(test))]
pub(crate) fn step() {}

#[cfg(test)]
pub(crate) use crate::tests::step;

/// Returns the error of an operation on a path.
pub(crate) fn failed(op: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::io(op, path.display(), error)
}

/// Makes a file durable, or the names in a directory.
pub(crate) fn sync(path: &Path) -> Result<()> {
    step();
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(failed("sync", path))
}

/// Renames a file; an existing file of the new name is replaced.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    step();
    fs::rename(from, to).map_err(failed("rename", from))
}

/// Removes a file.
pub(crate) fn remove(path: &Path) -> Result<()> {
    step();
    fs::remove_file(path).map_err(failed("remove", path))
}

/// Makes a directory, unless it exists.
pub(crate) fn make_directory(path: &Path) -> Result<()> {
    step();
    match fs::create_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(failed("create", path)),
    }
}

/// Writes a small file as a whole: after a crash, it is there with these contents, or it is as it was.
pub(crate) fn put(directory: &Path, name: &str, contents: &[u8]) -> Result<()> {
    let (next, path) = (directory.join(format!("{name}{UNFINISHED}")), directory.join(name));
    step();
    let write = || {
        let mut file = File::create(&next)?;
        file.write_all(contents)?;
        file.sync_all()
    };
    write().map_err(failed("write", &path)).and_then(|()| rename(&next, &path)).inspect_err(|_| {
        // The next call writes over it.
        let _ = fs::remove_file(&next);
    })?;
    sync(directory)
}

/// The end of the name of a file that [`put`] has not finished.
pub(crate) const UNFINISHED: &str = ".new";

/// Returns the length of a file; `None` if there is no such file.
pub(crate) fn length_of(path: &Path) -> Result<Option<u64>> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() => Ok(Some(meta.len())),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("open", path)(error)),
    }
}

/// Returns the parts of `bytes` that are no holes: `bytes` begins at a multiple of a page.
pub(crate) fn parts_with_data(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut parts: Vec<std::ops::Range<usize>> = Vec::new();
    for (n, page) in bytes.chunks(HOLE_BYTES).enumerate() {
        let (begin, end) = (n * HOLE_BYTES, n * HOLE_BYTES + page.len());
        match parts.last_mut() {
            _ if page.iter().all(|byte| *byte == 0) => {}
            Some(last) if last.end == begin => last.end = end,
            _ => parts.push(begin..end),
        }
    }
    parts
}
