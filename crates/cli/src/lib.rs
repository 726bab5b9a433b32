//! Situ: the situ program.
//!
//! ```text
//!   serve ────────────────────────> situ_server over a store
//!   node ─────────────────────────> situ_node: files for other machines
//!   get put delete scan count ────> entries.rs      one store, one keyspace
//!   load dump ────────────────────> transfer/       JSON lines, CSV, TSV
//!   import ───────────────────────> import.rs       RocksDB databases, behind the feature `rocksdb`
//!   top ──────────────────────────> top.rs         a served store, live
//!   trace ────────────────────────> trace.rs       the requests of a server, into a file
//!   inspect compact verify repair > inspect.rs, maintain.rs
//!   changes follow ───────────────> follow.rs       a feed of changes, and a copy that is kept by it
//!   backup ───────────────────────> backup.rs       incremental backups, by situ_backup
//!   config ───────────────────────> config.rs        options of serve and node
//!   keyspace ─────────────────────> keyspaces.rs
//!   disk ─────────────────────────> disk.rs         a device without a file system
//!   advise ───────────────────────> advise.rs       PostgreSQL's fill factors, by situ_advise
//!   bench ────────────────────────> situ_bench
//! ```
//!
//! The commands `advise`, `bench` and `import` are features, on by default. A program without them is a lean server.
//!
//! A command whose store a server has open runs in that server, and one with `--server` in the server at that URL: see
//! administrator.rs.
//!
//! The answer goes to stdout, everything else to stderr: in words, or both as JSON with `--json`. A failure says what
//! failed, why, and what to do next. `EXIT_CODES` in options.rs lists the exit codes. When the reader of stdout goes
//! away, the program ends in silence, and that is no failure.

#![forbid(unsafe_code)]

mod administrator;
#[cfg(feature = "advise")]
mod advise;
mod answer;
mod backup;
#[cfg(feature = "bench")]
mod bench;
mod config;
mod disk;
mod drive;
mod entries;
mod failure;
mod follow;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod geometry;
mod hash;
mod http;
#[cfg(feature = "import")]
mod import;
mod inspect;
mod interrupt;
mod keyspaces;
mod maintain;
mod manual;
mod message;
mod node;
mod open;
mod options;
mod output;
mod progress;
mod serve;
mod store;
mod text;
mod top;
mod trace;
mod transfer;
mod verifying;
mod walk;
mod watch;

use clap::error::ErrorKind;
use failure::{Exit, Failure, Outcome};
use options::settings::{self, Unread};
use options::{Command, Program};
use output::Output;
use std::ffi::OsStr;
use std::process::ExitCode;

/// Runs the program: reads the command line, runs its command, and returns the exit code.
pub fn main() -> ExitCode {
    let (json, outcome) = match settings::parse(std::env::args_os().collect(), std::env::vars_os()) {
        Ok(program) => (program.json, run(&program)),
        Err(Unread::Settings(failure)) => (asked_for_json(), Err(failure)),
        Err(Unread::Clap(error)) if asked_for_json() => (true, answer_for(&error, &mut Output::new(true))),
        // Help and the version, too, come as errors; this ends the program.
        Err(Unread::Clap(error)) => error.exit(),
    };
    let exit = outcome.unwrap_or_else(|failure| {
        if let Some(message) = failure.message() {
            message.tell(json);
        }
        failure.exit()
    });
    ExitCode::from(exit as u8)
}

/// Returns true if `--json` is on a command line that cannot be read as a whole.
fn asked_for_json() -> bool {
    asks_for_json(std::env::args_os().skip(1))
}

/// Returns true if `--json` is among the arguments of a command line.
fn asks_for_json(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> bool {
    arguments.into_iter().take_while(|argument| argument.as_ref() != "--").any(|argument| argument.as_ref() == "--json")
}

/// Answers a command line that is no command: help and the version, too, come as errors of the parser.
fn answer_for(text: &clap::Error, out: &mut Output) -> Outcome {
    if text.use_stderr() {
        return Err(Failure::command_line(text));
    }
    match text.kind() {
        _ if !out.is_json() => out.line(text.render().to_string().trim_end())?,
        ErrorKind::DisplayVersion => out.object(&serde_json::json!({ "version": env!("CARGO_PKG_VERSION") }))?,
        _ => out.object(&serde_json::json!({ "help": text.render().to_string() }))?,
    }
    out.finish()?;
    DONE
}

fn run(program: &Program) -> Outcome {
    situ_server::outlive_file_limit().map_err(|error| Failure::new("cannot catch signals", error))?;
    let mut out = Output::new(program.json);
    let exit = match (&program.server_url, &program.server_token) {
        (Some(url), Some(token_file)) => administrator::over_http(&program.command, (url, token_file), &mut out),
        (Some(_), None) | (None, Some(_)) => Err(Failure::usage("--server and --server-token belong together")),
        (None, None) => carry_out(&program.command, &mut out)
            .or_else(|failure| administrator::in_server(&program.command, failure, &mut out)),
    }?;
    match out.finish() {
        // The exit code is that of the command, even if the reader of its words has gone.
        Err(gone) if gone.is_silent() => Ok(exit),
        finished => finished.map(|()| exit),
    }
}

/// Carries out a command: in the program that was called, or in the server that has its store open.
fn carry_out(command: &Command, out: &mut Output) -> Outcome {
    match command {
        Command::Serve(options) => serve::serve(options, out),
        Command::Node(options) => node::node(options, out),
        Command::Get(options) => entries::get(options, out),
        Command::Put(options) => entries::put(options, out),
        Command::Delete(options) => entries::delete(options, out),
        Command::Scan(options) => entries::scan(options, out),
        Command::Count(options) => entries::count(options, out),
        Command::Load(options) => transfer::load(options, out),
        Command::Dump(options) => transfer::dump(options, out),
        #[cfg(feature = "import")]
        Command::Import(command) => import::import(command, out),
        Command::Inspect(options) => inspect::inspect(options, out),
        Command::Top(options) => top::top(options, out),
        Command::Trace(options) => trace::trace(options, out),
        Command::Verify(options) => maintain::verify(options, out),
        Command::Repair(options) => maintain::repair(options, out),
        Command::Compact(options) => maintain::compact(options, out),
        Command::Flush(options) => maintain::flush(options, out),
        Command::Checkpoint(options) => maintain::checkpoint(options, out),
        Command::Changes(options) => follow::changes(options, out),
        Command::Follow(options) => follow::follow(options, out),
        Command::Keyspace(command) => keyspaces::keyspace(command, out),
        Command::Backup(command) => backup::backup(command, out),
        Command::Config(command) => config::config(command, out),
        Command::Disk(command) => disk::disk(command, out),
        #[cfg(feature = "advise")]
        Command::Advise(command) => advise::advise(command, out),
        #[cfg(feature = "bench")]
        Command::Bench(options) => bench::bench(options, out),
        Command::Completions(options) => manual::completions(options, out),
        Command::Man(options) => manual::man(options, out),
    }
}

/// The outcome that [`Exit`] calls done.
const DONE: Outcome = Ok(Exit::Done);
