//! Which drive lies below a tablespace.
//!
//! Only the machine that the server runs on knows. An address does not tell: behind a tunnel, `localhost` is another machine. So the
//! command looks for the server's process among those of this machine: it has the number that the server says, it is called
//! `postgres`, and it began when the server says. Otherwise the drive is unknown, and the reason is said.

use super::fetch::{Placed, Server, ServerProcess};
use situ::device::{Compresses, Drive};
use std::fs;
use std::path::{Path, PathBuf};

/// The clocks of the server and of the kernel's list of processes count in hundredths, from moments that are rounded.
const BEGIN_MAY_DIFFER_S: f64 = 2.0;

/// What is known of the drive below a tablespace.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) path: Option<PathBuf>,
    pub(super) compresses: Compresses,
    /// What the drive is, or why nothing is known.
    pub(super) kind: String,
}

impl Place {
    fn unknown(path: Option<PathBuf>, why: impl Into<String>) -> Place {
        Place { path, compresses: Compresses::Unknown, kind: why.into() }
    }
}

/// The place of a table, if the user has not said what the drive is.
pub(super) fn place(server: &Server, placed: &Placed) -> Place {
    if !is_here(server.process) {
        return Place::unknown(
            None,
            "the server does not run on this machine, or hides its processes; --drive says what its drive is",
        );
    }
    let Some(path) = placed.location.clone().or_else(|| server.data_directory.clone()) else {
        return Place::unknown(
            None,
            "the user may not see where the server's data lie: GRANT pg_read_all_settings, or say --drive",
        );
    };
    match Drive::under(&path) {
        Ok(drive) => {
            let nature = drive.nature();
            let why = nature.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            Place { path: Some(path), compresses: nature.compresses, kind: format!("{}{why}", nature.kind) }
        }
        Err(error) => Place::unknown(Some(path), format!("this user may not look at the directory: {error}")),
    }
}

fn is_here(process: ServerProcess) -> bool {
    let root = Path::new("/proc");
    began(root, process.number).is_some_and(|began| (began - process.started).abs() < BEGIN_MAY_DIFFER_S)
}

/// When the process of this number began, in seconds since 1970, if it is called `postgres`.
fn began(root: &Path, number: i32) -> Option<f64> {
    let text = fs::read_to_string(root.join(number.to_string()).join("stat")).ok()?;
    // The name is in brackets, and may have brackets itself. The beginning is field 22, the 20th behind it: proc(5).
    let (name, rest) = text.split_once('(')?.1.rsplit_once(')')?;
    let ticks: f64 = rest.split_whitespace().nth(19)?.parse().ok()?;
    let boot = fs::read_to_string(root.join("stat")).ok()?;
    let boot: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    (name == "postgres").then_some(boot + ticks / TICKS_A_SECOND)
}

/// `USER_HZ`, which Linux fixes for what it shows to programs.
const TICKS_A_SECOND: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_name_and_its_begin() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        fs::create_dir(root.join("7")).unwrap();
        fs::write(root.join("stat"), "cpu 1 2 3\nbtime 1700000000\nprocesses 5\n").unwrap();
        let stat = |name: &str| {
            let rest = "S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1000 5 18446744073709551615";
            fs::write(root.join("7/stat"), format!("7 ({name}) {rest}\n")).unwrap();
        };
        stat("postgres");
        assert_eq!(began(root, 7), Some(1_700_000_123.45));
        assert_eq!(began(root, 8), None);
        stat("a) (b");
        assert_eq!(began(root, 7), None);
    }
}
