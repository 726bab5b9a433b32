//! The drive below a tablespace.
//!
//! Only the machine that the server runs on knows. An address does not tell: behind a tunnel, `localhost` is another
//! machine. So the command looks for the server's process among those of this machine: it has the number that the
//! server says, it is called `postgres`, and it is as old as the server says. Ages are compared, not dates: a clock may
//! be set while the server runs. Otherwise the drive is unknown, and the reason is said.

use super::fetch::{Placed, Server, ServerProcess};
use situ_device::{Compresses, Drive};
use std::fs;
use std::path::{Path, PathBuf};

/// The clocks of the server and of the kernel's list of processes count in hundredths, from moments that are rounded.
const BEGIN_MAY_DIFFER_S: f64 = 2.0;

/// The known facts of the drive below a tablespace.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) path: Option<PathBuf>,
    pub(super) compresses: Compresses,
    /// The kind of the drive, or the reason why it is unknown.
    pub(super) kind: String,
}

impl Place {
    fn unknown(path: Option<PathBuf>, why: impl Into<String>) -> Place {
        Place { path, compresses: Compresses::Unknown, kind: why.into() }
    }
}

/// Returns the place of a table, if the user has not said what the drive is.
pub(super) fn place(server: &Server, placed: &Placed) -> Place {
    if let Err(why) = is_here(server.process) {
        return Place::unknown(
            None,
            format!(
                "the server does not run on this machine, or hides its processes: {why}; --drive says what its drive is"
            ),
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

/// Checks that the server runs here. The error is the reason why it does not.
fn is_here(process: ServerProcess) -> Result<(), String> {
    let age = process.asked_s - began(Path::new("/proc"), process.number)?;
    // Not a number if the server hides the begin.
    if (age - process.age_s).abs() < BEGIN_MAY_DIFFER_S {
        return Ok(());
    }
    let ServerProcess { number, age_s, .. } = process;
    Err(format!("process {number} began {age:.1} s ago here, and {age_s:.1} s ago by the server"))
}

/// Returns the start of the process of this number, in seconds since the boot.
///
/// # Errors
/// There is none, or the process is not called `postgres`.
fn began(root: &Path, number: i32) -> Result<f64, String> {
    let hidden = |why: &str| format!("process {number} {why}");
    let text = fs::read_to_string(root.join(number.to_string()).join("stat"))
        .map_err(|error| hidden(&format!("cannot be seen here: {error}")))?;
    // The name is in brackets, and may have brackets itself. The beginning is field 22, the 20th behind it: proc(5).
    let fields = text.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')'));
    let (name, rest) = fields.ok_or_else(|| hidden("has no name here"))?;
    if name != "postgres" {
        return Err(hidden(&format!("is called {name:?} here")));
    }
    let ticks = rest.split_whitespace().nth(19).and_then(|ticks| ticks.parse::<f64>().ok());
    Ok(ticks.ok_or_else(|| hidden("has no begin here"))? / TICKS_A_SECOND)
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
        let stat = |name: &str| {
            let rest = "S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1000 5 18446744073709551615";
            fs::write(root.join("7/stat"), format!("7 ({name}) {rest}\n")).unwrap();
        };
        stat("postgres");
        assert_eq!(began(root, 7), Ok(123.45));
        assert!(began(root, 8).unwrap_err().contains("process 8 cannot be seen here"));
        stat("a) (b");
        assert_eq!(began(root, 7), Err("process 7 is called \"a) (b\" here".to_owned()));
    }
}
