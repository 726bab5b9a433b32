//! Prints the rooms of each crate and their imports. Fails on an import that runs up, on a large circle, and on a
//! dependency between crates that no arrow allows.
//!
//! 1. [`rooms`] reads which rooms there are, from the ground up, how many faults are tolerated, and the arrows between
//!    crates.
//! 2. [`source`] parses the files of a crate and lists the modules that each imports, without its tests.
//! 3. [`judge`] compares the two.
//! 4. [`crates`] compares the manifests with the arrows.

mod crates;
mod judge;
mod rooms;
mod source;

use std::path::Path;
use std::process::ExitCode;

fn run() -> Result<bool, String> {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = crates::folders(&tool.join("../.."))?;
    let mut is_sound = true;
    let house = rooms::read(&tool.join("rooms.txt"))?;
    for plan in house.plans {
        let folder = folders.get(&plan.name).ok_or(format!("rooms.txt names {}, which is no crate", plan.name))?;
        let files = source::read(&folder.join("src"))?;
        let verdict = judge::judge(&plan, &files)?;
        print!("{verdict}");
        is_sound &= verdict.is_sound();
    }
    let forbidden = crates::forbidden(&folders, &house.arrows)?;
    println!("dependencies between crates that no arrow allows: {}", forbidden.len());
    forbidden.iter().for_each(|fault| println!("  {fault}"));
    Ok(is_sound && forbidden.is_empty())
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
