//! Situ: the situ program.
//!
//! ```text
//!   serve ────────────────────────> situ_server over a store
//!   get put delete scan ──────────> entries.rs      one store, one keyspace
//!   load dump ────────────────────> transfer/       JSON lines, CSV, TSV
//!   inspect compact verify repair > inspect.rs, maintain.rs
//!   bench ────────────────────────> situ_bench
//! ```
//!
//! What was asked for goes to stdout, in words or with `--json` for machines; everything else goes to stderr. A failure
//! says what failed, why, and what to do next. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 `get` found nothing,
//! 4 damage was found. A reader of stdout that goes away ends the program in silence.

#![forbid(unsafe_code)]

mod bench;
mod entries;
mod failure;
mod inspect;
mod maintain;
mod options;
mod output;
mod serve;
mod store;
mod text;
mod transfer;

use clap::Parser;
use failure::{Exit, Outcome};
use options::{Command, Program};
use output::Output;
use std::process::ExitCode;

fn main() -> ExitCode {
    let program = Program::parse();
    let exit = run(program).unwrap_or_else(|failure| {
        if let Some(text) = failure.text() {
            eprintln!("situ: {text}");
        }
        failure.exit()
    });
    ExitCode::from(exit as u8)
}

fn run(program: Program) -> Outcome {
    let mut out = Output::new(program.json);
    let exit = match program.command {
        Command::Serve(options) => serve::serve(&options, &mut out),
        Command::Get(options) => entries::get(&options, &mut out),
        Command::Put(options) => entries::put(&options, &mut out),
        Command::Delete(options) => entries::delete(&options, &mut out),
        Command::Scan(options) => entries::scan(&options, &mut out),
        Command::Load(options) => transfer::load(&options, &mut out),
        Command::Dump(options) => transfer::dump(&options, &mut out),
        Command::Inspect(options) => inspect::inspect(&options, &mut out),
        Command::Verify(options) => maintain::verify(&options, &mut out),
        Command::Repair(options) => maintain::repair(&options, &mut out),
        Command::Compact(options) => maintain::compact(&options, &mut out),
        Command::Bench(options) => bench::bench(&options, &mut out),
    }?;
    out.finish()?;
    Ok(exit)
}

/// What [`Exit`] calls done.
const DONE: Outcome = Ok(Exit::Done);
