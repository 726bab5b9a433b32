//! `config`: the options of `serve` and `node` that a file and the environment give, and those of the last server.

use crate::DONE;
use crate::failure::{Failure, Outcome};
use crate::options::settings::{self, CONFIGURABLE, InForce, Unread};
use crate::options::{ConfigCheckOptions, ConfigCommand, ConfigShowOptions, HTTP, Program};
use crate::output::Output;
use crate::text;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use serde::Serialize;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// The file in a store's directory with the options of the server that had it last.
const STORED: &str = "OPTIONS.toml";

pub(crate) fn config(command: &ConfigCommand, out: &mut Output) -> Outcome {
    match command {
        ConfigCommand::Check(options) => check(options, out),
        ConfigCommand::Show(options) => show(options, out),
    }
}

#[derive(Serialize)]
struct Checked<'a> {
    file: String,
    section: &'a str,
    options: usize,
}

fn check(options: &ConfigCheckOptions, out: &mut Output) -> Outcome {
    for (name, given) in settings::from_file(&options.file)? {
        let line = ["situ".into(), name.clone().into(), "--config".into(), options.file.clone().into_os_string()];
        // The directory may be missing here: the command line can have it.
        read(line.to_vec(), std::iter::empty())?;
        let checked = Checked { file: options.file.display().to_string(), section: &name, options: given.len() };
        match out.is_json() {
            true => out.object(&checked)?,
            false => out.line(format!(
                "{}: {} of `situ {name}`, all good",
                text::on_one_line(&checked.file),
                text::plural(given.len() as u64, "option")
            ))?,
        }
    }
    DONE
}

#[derive(Serialize)]
struct Shown<'a> {
    command: &'a str,
    options: &'a [InForce],
}

fn show(options: &ConfigShowOptions, out: &mut Output) -> Outcome {
    if let Some(directory) = &options.data {
        let path = directory.join(STORED);
        let text = fs::read_to_string(&path).map_err(|error| {
            let failure = Failure::new(format!("cannot read {}", path.display()), &error);
            match error.kind() {
                io::ErrorKind::NotFound => failure.cure("`situ serve` writes that file when it has opened the store"),
                _ => failure,
            }
        })?;
        match out.is_json() {
            true => out.object(&serde_json::json!({ "directory": directory, "options": text }))?,
            false => out.line(text.trim_end())?,
        }
        return DONE;
    }
    for name in CONFIGURABLE.into_iter().filter(|name| options.command.is_none_or(|of| of.name() == *name)) {
        let mut line: Vec<OsString> = vec!["situ".into(), name.into()];
        line.extend(options.config.iter().flat_map(|file| ["--config".into(), file.clone().into_os_string()]));
        let in_force = read(line, std::env::vars_os())?;
        match out.is_json() {
            true => out.object(&Shown { command: name, options: &in_force })?,
            false => out.line(settings::section(name, &in_force).trim_end())?,
        }
    }
    DONE
}

/// Reads a command line whose directory may be missing. Returns its options.
fn read(line: Vec<OsString>, environment: impl Iterator<Item = (OsString, OsString)>) -> Result<Vec<InForce>, Failure> {
    let merged = settings::merge(line, environment)?;
    let program = Program::command();
    let matches = match program.clone().try_get_matches_from(&merged.arguments) {
        Err(error) if error.kind() == ErrorKind::MissingRequiredArgument && lacks_a_place(&error) => {
            program.ignore_errors(true).try_get_matches_from(&merged.arguments)
        }
        matches => matches,
    };
    let matches = matches.map_err(|error| match Unread::by_clap(error, &merged) {
        Unread::Clap(error) => Failure::command_line(&error),
        Unread::Settings(failure) => failure,
    })?;
    let (name, of) = matches.subcommand().ok_or_else(|| Failure::usage("there is no command"))?;
    Ok(settings::in_force(&settings::command(name), of, &merged))
}

/// Returns true if a command line lacks nothing but its directory.
fn lacks_a_place(error: &clap::Error) -> bool {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else { return false };
    missing.iter().all(|argument| argument == "<DIR|DEVICE>")
}

/// Returns the HTTP address that the options of the last server in a store's directory say.
///
/// # Errors
/// No server has written its options there, or it answers no HTTP at an address that they say.
pub(crate) fn http_address(directory: &Path) -> Result<SocketAddr, Failure> {
    let path = directory.join(STORED);
    let what = || format!("cannot find the HTTP address of the server of {}", directory.display());
    let cure = "give the address that `situ serve` calls metrics, as in 127.0.0.1:11212";
    if !path.exists() {
        return Err(
            Failure::new(what(), format!("there is no {}, which `situ serve` writes", path.display())).cure(cure)
        );
    }
    let given = settings::from_file(&path)?.remove("serve").unwrap_or_default();
    if given.contains_key("no_http") {
        return Err(Failure::new(what(), "it runs with --no-http").cure("restart it without --no-http"));
    }
    let Some(http) = given.get("http").and_then(|values| values.first()) else { return Ok(HTTP) };
    let address: Option<SocketAddr> = http.to_str().and_then(|http| http.parse().ok());
    address
        .filter(|address| address.port() != 0)
        .ok_or_else(|| Failure::new(what(), format!("its options say {}", http.display())).cure(cure))
}

/// Writes the options of a server into the directory of its store.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn store(directory: &Path, options: &[InForce]) -> io::Result<()> {
    let text = format!(
        "# Options of the last `situ serve` of this store. Commented lines show default values.\n{}",
        settings::section("serve", options)
    );
    replace(directory, STORED, text.as_bytes())
}

/// Replaces a small file that nothing depends on. A reader finds the old contents or the new ones. A power failure may
/// lose both.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn replace(directory: &Path, name: &str, contents: &[u8]) -> io::Result<()> {
    let unfinished = directory.join(format!("{name}.new"));
    fs::write(&unfinished, contents)?;
    fs::rename(&unfinished, directory.join(name))
}
