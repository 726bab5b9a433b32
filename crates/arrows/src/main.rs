//! Prints the rooms of a crate and their imports, and fails on an import that runs up or on a large circle.
//!
//! 1. [`rooms`] reads which rooms there are, from the ground up, and how many faults are tolerated.
//! 2. [`source`] parses the files of a crate and lists the modules that each imports, without its tests.
//! 3. [`judge`] compares the two.

mod judge;
mod rooms;
mod source;

use std::path::Path;
use std::process::ExitCode;

fn run() -> Result<bool, String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("the tool is not in a folder of crates")?;
    let mut is_sound = true;
    for plan in rooms::read(&crates.join("arrows/rooms.txt"))? {
        let files = source::read(&crates.join(&plan.name).join("src"))?;
        let verdict = judge::judge(&plan, &files)?;
        print!("{verdict}");
        is_sound &= verdict.is_sound();
    }
    Ok(is_sound)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("situ-arrows: {error}");
            ExitCode::FAILURE
        }
    }
}
