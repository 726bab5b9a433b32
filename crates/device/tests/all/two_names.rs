//! A disk that has two names: a loop device, and the file or block device that it lies on.

use crate::common;
use crate::common::Loop;
use situ_device::{Device, OpenOptions, open};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BYTES: u64 = 16 << 20;

fn device(path: &Path) -> Arc<dyn Device> {
    open(path, OpenOptions::default()).unwrap()
}

/// Why the lock is refused.
fn refused(path: &Path) -> String {
    let locked = device(path).lock().map(drop);
    let error = locked.expect_err("it has another name, and is locked by that");
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    error.to_string()
}

/// Formatting the file destroyed the store on the loop device over it, and each kept a lock of its own meanwhile.
#[test]
fn a_file_below_a_loop_device_is_not_locked_and_the_other_way_round() {
    let Some(on_loop) = Loop::new(BYTES) else { return };
    let (name, file) = (on_loop.path.clone(), on_loop.file.path().to_owned());
    // By another path to it, too.
    let directory = tempfile::tempdir_in(file.parent().unwrap()).unwrap();
    let link = directory.path().join("link");
    std::fs::hard_link(&file, &link).unwrap();
    let lock = device(&name).lock().unwrap();
    for path in [&file, &link] {
        let text = refused(path);
        assert!(text.contains("lies below the loop device") && text.contains(name.to_str().unwrap()), "{text}");
    }
    drop(lock);
    // Also if nobody says that it is in use, as of a file system that is mounted.
    assert!(refused(&file).contains("lies below the loop device"));

    // Whoever has the file has had it before the loop device was made.
    let other = tempfile::NamedTempFile::new().unwrap();
    other.as_file().set_len(BYTES).unwrap();
    let lock = device(other.path()).lock().unwrap();
    let made = Command::new("losetup").args(["--find", "--show"]).arg(other.path()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let over = Loop { path: String::from_utf8(made.stdout).unwrap().trim().into(), file: other };
    let text = refused(&over.path);
    assert!(text.contains("is in use") && text.contains(over.file.path().to_str().unwrap()), "{text}");
    drop(lock);
    device(&over.path).lock().unwrap();

    // Without the loop device the file is one like others.
    drop((over, on_loop));
    let begin = Instant::now();
    while let Err(error) = device(&link).lock() {
        // The kernel may take a moment to take it away.
        assert!(begin.elapsed() < Duration::from_secs(20), "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A loop device may lie on another.
#[test]
fn a_loop_device_below_another_is_not_locked() {
    let Some(below) = Loop::new(BYTES) else { return };
    let made = Command::new("losetup").args(["--find", "--show"]).arg(&below.path).output().unwrap();
    if !made.status.success() {
        return common::skipped(format_args!("no loop device over another: {}", String::from_utf8_lossy(&made.stderr)));
    }
    let path: std::path::PathBuf = String::from_utf8(made.stdout).unwrap().trim().into();
    let file = tempfile::NamedTempFile::new().unwrap();
    let over = Loop { path, file };
    let text = refused(&below.path);
    let lock = device(&over.path).lock().map(drop);
    drop(over);
    assert!(text.contains("lies below the loop device"), "{text}");
    lock.unwrap();
}
