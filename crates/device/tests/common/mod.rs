//! Block devices for tests: compressed memory (zram) and loop devices, made and taken away again. Both need root; who is
//! not gets none, and the test says that it was skipped.

mod skipped;

pub(crate) use skipped::skipped;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

fn none_here(what: &str, why: &dyn std::fmt::Display) {
    skipped(format_args!("no {what}: {why}"));
}

/// A block device in compressed memory.
pub(crate) struct Zram {
    id: String,
    pub(crate) path: PathBuf,
}

impl Zram {
    pub(crate) fn new(bytes: u64) -> Option<Zram> {
        let id = std::fs::read_to_string("/sys/class/zram-control/hot_add").map_err(|e| none_here("zram", &e)).ok()?;
        let id = id.trim().to_owned();
        let zram = Zram { path: PathBuf::from(format!("/dev/zram{id}")), id };
        std::fs::write(zram.sys("disksize"), bytes.to_string()).map_err(|e| none_here("zram", &e)).ok()?;
        Some(zram)
    }

    pub(crate) fn sys(&self, name: &str) -> PathBuf {
        Path::new("/sys/block").join(format!("zram{}", self.id)).join(name)
    }
}

/// A file system on a block device, mounted on a directory of its own.
pub(crate) struct Mounted {
    pub(crate) directory: tempfile::TempDir,
}

impl Mounted {
    pub(crate) fn ext4(device: &Path) -> Option<Mounted> {
        let run = |command: &mut Command| {
            let output = command.output().map_err(|e| none_here("file system", &e)).ok()?;
            if !output.status.success() {
                none_here("file system", &String::from_utf8_lossy(&output.stderr));
                return None;
            }
            Some(())
        };
        let directory = tempfile::tempdir().unwrap();
        run(Command::new("mkfs.ext4").args(["-q", "-E", "nodiscard,lazy_itable_init=0"]).arg(device))?;
        run(Command::new("mount").args(["-o", "discard"]).arg(device).arg(directory.path()))?;
        Some(Mounted { directory })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let begin = Instant::now();
        let unmounted =
            || Command::new("umount").arg(self.directory.path()).status().is_ok_and(|status| status.success());
        while !unmounted() && begin.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        // The kernel closes the files of a ring a little after the ring.
        let begin = Instant::now();
        while std::fs::write(self.sys("reset"), "1").is_err() && begin.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = std::fs::write("/sys/class/zram-control/hot_remove", &self.id);
    }
}

/// A block device over a file.
pub(crate) struct Loop {
    pub(crate) path: PathBuf,
    pub(crate) file: tempfile::NamedTempFile,
}

impl Loop {
    pub(crate) fn new(bytes: u64) -> Option<Loop> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(bytes).unwrap();
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file.path()).output();
        let made = made.map_err(|e| none_here("loop device", &e)).ok()?;
        if !made.status.success() {
            none_here("loop device", &String::from_utf8_lossy(&made.stderr));
            return None;
        }
        Some(Loop { path: PathBuf::from(String::from_utf8(made.stdout).unwrap().trim()), file })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}
