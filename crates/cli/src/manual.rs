//! `completions` and `man`: the files that a package installs along with the program.

use crate::DONE;
use crate::failure::{Failure, Outcome};
use crate::options::{CompletionsOptions, ManOptions, Program};
use crate::output::Output;
use clap::CommandFactory;

/// The name under which the program is installed.
const PROGRAM: &str = "situ";

/// Writes the completions of a shell to standard output.
pub(crate) fn completions(options: &CompletionsOptions, out: &mut Output) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Program::command(), PROGRAM, &mut script);
    out.bytes(&script)?;
    out.finish()?;
    DONE
}

/// Writes a manual page for the program and for each command into a directory.
pub(crate) fn man(options: &ManOptions, out: &mut Output) -> Outcome {
    let failed = |error| Failure::new(format!("cannot write manual pages to {}", options.directory.display()), error);
    std::fs::create_dir_all(&options.directory).map_err(failed)?;
    clap_mangen::generate_to(Program::command(), &options.directory).map_err(failed)?;
    out.finish()?;
    DONE
}
