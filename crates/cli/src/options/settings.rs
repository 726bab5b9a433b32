//! Options of `serve` and `node` from a file and from the environment.
//!
//! An option comes from the first of these that has it:
//! 1. the command line,
//! 2. the environment: `SITU_SERVE_MEMORY` for `--memory` of `serve`,
//! 3. the file of `--config`: `memory` in the section `serve`,
//! 4. the default.
//!
//! A source also hides options of weaker sources that conflict with its own. What is left is put in front of the
//! arguments of the command line, and clap reads all of them. So an option has the same values and the same errors
//! wherever it stands.
//!
//! **Bad input.** A file that is no TOML, an option that does not exist in a file or behind `SITU_SERVE_` and
//! `SITU_NODE_`, and a value of a wrong type are errors.

use super::Program;
use crate::failure::{Exit, Failure};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use toml_edit::{Document, Item, TableLike, Value};

/// The commands that take their options from a file, too.
pub(crate) const CONFIGURABLE: [&str; 2] = ["serve", "node"];
/// The option that names the file.
const CONFIG: &str = "config";
/// Options of the program, which have no place in a file.
const OF_THE_PROGRAM: [&str; 6] = [CONFIG, "json", "server_url", "server_token", "help", "version"];

/// The source of an option's value, the weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    Default,
    File,
    Environment,
    CommandLine,
}

/// The values of one option in a file or a variable. None of a flag that is not set.
type Values = Vec<OsString>;

/// The options that one source gives, by the name that clap knows them by.
type Given = BTreeMap<String, Values>;

/// A command line with the options of all sources in it.
pub(crate) struct Merged {
    pub(crate) arguments: Vec<OsString>,
    /// Where each option that is not the default comes from.
    pub(crate) sources: BTreeMap<String, Source>,
    /// The file, if one was named.
    pub(crate) file: Option<PathBuf>,
}

/// Reads the command line of the program, with the options that the environment and a file have.
///
/// # Errors
/// The error of clap, or a failure that says what is wrong with the file or the environment.
pub(crate) fn parse(
    arguments: Vec<OsString>,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Program, Unread> {
    let merged = merge(arguments, environment)?;
    let read = || {
        let matches = Program::command().try_get_matches_from(&merged.arguments)?;
        Ok((Program::from_arg_matches(&matches)?, matches))
    };
    let (mut program, matches) = read().map_err(|error| Unread::by_clap(error, &merged))?;
    if let (super::Command::Serve(options), Some((name, of))) = (&mut program.command, matches.subcommand()) {
        options.in_force = in_force(&command(name), of, &merged);
    }
    Ok(program)
}

/// An option with its value.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct InForce {
    pub(crate) name: String,
    /// Texts as on a command line. `true` for a flag.
    pub(crate) values: Vec<String>,
    pub(crate) source: Source,
    #[serde(skip)]
    is_list: bool,
}

/// Returns the options of a command that have a value, in the order of its help.
pub(crate) fn in_force(command: &Command, matches: &ArgMatches, merged: &Merged) -> Vec<InForce> {
    let shown = |argument: &Arg| {
        let id = argument.get_id().as_str();
        let is_flag = matches!(argument.get_action(), ArgAction::SetTrue);
        let values: Vec<String> = match is_flag {
            true => matches.get_flag(id).then(|| "true".to_owned()).into_iter().collect(),
            false => matches.get_raw(id).into_iter().flatten().map(|raw| raw.to_string_lossy().into_owned()).collect(),
        };
        let source = merged.sources.get(id).copied().unwrap_or(Source::Default);
        let is_list = matches!(argument.get_action(), ArgAction::Append);
        (!values.is_empty()).then(|| InForce { name: name_of(argument), values, source, is_list })
    };
    options(command).filter_map(shown).collect()
}

/// Returns options as a section of a file. Those with their defaults are comments, so that a reader of the file gets
/// the defaults of its own version.
pub(crate) fn section(command: &str, options: &[InForce]) -> String {
    let mut text = format!("[{command}]\n");
    for InForce { name, values, source, is_list } in options {
        let value = match (values.as_slice(), is_list) {
            ([one], false) if one == "true" || one.parse().is_ok_and(|number: i64| number.to_string() == *one) => {
                one.clone()
            }
            ([one], false) => Value::from(one.as_str()).to_string(),
            _ => Value::from_iter(values.iter().map(String::as_str)).to_string(),
        };
        let mark = if *source == Source::Default { "# " } else { "" };
        text += &format!("{mark}{name} = {value}\n");
    }
    text
}

/// The reason why a command line cannot be read.
pub(crate) enum Unread {
    Clap(clap::Error),
    Settings(Failure),
}

impl From<Failure> for Unread {
    fn from(failure: Failure) -> Unread {
        Unread::Settings(failure)
    }
}

impl Unread {
    /// Adds the sources of options to an error of clap.
    pub(crate) fn by_clap(error: clap::Error, merged: &Merged) -> Unread {
        let elsewhere = |source: Source| merged.sources.values().any(|of| *of == source);
        if !error.use_stderr() || !(elsewhere(Source::File) || elsewhere(Source::Environment)) {
            return Unread::Clap(error);
        }
        let mut places = Vec::new();
        if let Some(file) = merged.file.as_ref().filter(|_| elsewhere(Source::File)) {
            places.push(file.display().to_string());
        }
        let variables = merged.sources.iter().filter(|(_, of)| **of == Source::Environment);
        let command = merged.command_name();
        places.extend(variables.map(|(id, _)| variable(command, id)));
        let places = places.join(", ");
        Unread::Settings(Failure::command_line(&error).cure(format!("options also come from {places}")))
    }
}

impl Merged {
    fn command_name(&self) -> &str {
        let is_one = |argument: &&OsString| CONFIGURABLE.iter().any(|name| argument.as_os_str() == *name);
        self.arguments.iter().find(is_one).and_then(|name| name.to_str()).unwrap_or_default()
    }
}

/// Returns the command line with the options of the environment and of its file in it.
///
/// # Errors
/// The file or the environment makes no sense.
pub(crate) fn merge(
    arguments: Vec<OsString>,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Merged, Failure> {
    let mut merged = Merged { arguments, sources: BTreeMap::new(), file: None };
    // What is wrong with the command line shows when all of it is there.
    let Ok(matches) = Program::command().ignore_errors(true).try_get_matches_from(&merged.arguments) else {
        return Ok(merged);
    };
    let Some((name, on_line)) = matches.subcommand().filter(|(name, _)| CONFIGURABLE.contains(name)) else {
        return Ok(merged);
    };
    let command = command(name);
    let (by_environment, config) = from_environment(&command, environment)?;
    merged.file = value_of::<PathBuf>(on_line, CONFIG).or(config);
    let by_file = match &merged.file {
        Some(path) => from_file(path)?.remove(name).unwrap_or_default(),
        None => Given::new(),
    };

    let mut taken: BTreeSet<String> = BTreeSet::new();
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str();
        if on_line.try_contains_id(id).is_ok() && on_line.value_source(id) == Some(ValueSource::CommandLine) {
            taken.insert(id.to_owned());
            merged.sources.insert(id.to_owned(), Source::CommandLine);
        }
    }
    let mut inserted = Vec::new();
    for (given, source) in [(by_environment, Source::Environment), (by_file, Source::File)] {
        let stronger = taken.clone();
        for (id, values) in given {
            let argument = find(&command, &id).expect("only options of the command are given");
            let clashes = |other: &Arg| stronger.contains(other.get_id().as_str());
            let conflicts = |from: &Arg| command.get_arg_conflicts_with(from).into_iter().any(clashes);
            let conflicts_back = stronger.iter().filter_map(|id| find(&command, id)).any(|from| {
                command.get_arg_conflicts_with(from).iter().any(|other| other.get_id() == argument.get_id())
            });
            if stronger.contains(&id) || conflicts(argument) || conflicts_back {
                continue;
            }
            taken.insert(id.clone());
            if let Some(words) = words(argument, values)? {
                inserted.extend(words);
                merged.sources.insert(id, source);
            }
        }
    }
    let at = merged.arguments.iter().position(|argument| argument.as_os_str() == name).map_or(1, |at| at + 1);
    merged.arguments.splice(at..at, inserted);
    Ok(merged)
}

/// Returns the command of this name, with all of its options.
pub(crate) fn command(name: &str) -> Command {
    let mut program = Program::command();
    program.build();
    program.find_subcommand(name).cloned().unwrap_or_default()
}

/// Returns the options of a command that a file may have.
pub(crate) fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|argument| !OF_THE_PROGRAM.contains(&argument.get_id().as_str()))
}

fn find<'a>(command: &'a Command, id: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|argument| argument.get_id() == id)
}

/// Returns the name of an option in a file: its long name, or that of a positional argument.
pub(crate) fn name_of(argument: &Arg) -> String {
    argument.get_long().map_or_else(|| argument.get_id().as_str().replace('_', "-"), str::to_owned)
}

/// Returns the variable of an option.
pub(crate) fn variable(command: &str, id: &str) -> String {
    let (command, id) = (command.to_uppercase(), id.to_uppercase());
    format!("SITU_{command}_{id}")
}

fn value_of<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, id: &str) -> Option<T> {
    matches.try_get_one::<T>(id).ok().flatten().cloned()
}

/// Returns the arguments that give an option its values; none for a flag that is not set.
///
/// # Errors
/// A positional argument would be taken for an option.
fn words(argument: &Arg, values: Values) -> Result<Option<Vec<OsString>>, Failure> {
    let is_flag = matches!(argument.get_action(), ArgAction::SetTrue);
    if is_flag {
        let set = values.iter().any(|value| value == "true");
        return Ok(set.then(|| vec![flag(argument)]));
    }
    if !argument.is_positional() {
        let word = |value: OsString| [flag(argument), "=".into(), value].into_iter().collect();
        return Ok(Some(values.into_iter().map(word).collect()));
    }
    match values.iter().find(|value| value.as_encoded_bytes().starts_with(b"-")) {
        Some(value) => {
            let why = format!("{} of {} looks like an option", value.display(), name_of(argument));
            Err(Failure::usage(why).cure("write ./ before a path that begins with a dash"))
        }
        None => Ok(Some(values)),
    }
}

fn flag(argument: &Arg) -> OsString {
    format!("--{}", name_of(argument)).into()
}

/// Returns the options in the environment, and the file that it names.
fn from_environment(
    command: &Command,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<(Given, Option<PathBuf>), Failure> {
    let prefix = variable(command.get_name(), "");
    let (mut given, mut config) = (Given::new(), None);
    for (variable, value) in environment {
        let Some(id) = variable.to_str().and_then(|name| name.strip_prefix(&prefix)) else { continue };
        let id = id.to_lowercase();
        if id == CONFIG {
            config = Some(PathBuf::from(value));
            continue;
        }
        let Some(argument) = options(command).find(|argument| argument.get_id() == id.as_str()) else {
            if is_of_kubernetes(&id) {
                continue;
            }
            let why = format!("the variable {} is no option of `situ {}`", variable.display(), command.get_name());
            return Err(Failure::usage(why).cure(format!("see `situ {} --help`", command.get_name())));
        };
        let values =
            match argument.get_action() {
                ArgAction::SetTrue => vec![a_flag(&value).ok_or_else(|| {
                    Failure::usage(format!("the variable {} must be true or false", variable.display()))
                })?],
                ArgAction::Append => split(&value),
                _ => vec![value],
            };
        given.insert(id, values);
    }
    Ok((given, config))
}

/// Returns true for the variables that Kubernetes sets in each pod for a service of the name `situ-serve` or
/// `situ-node`.
fn is_of_kubernetes(id: &str) -> bool {
    id.starts_with("service_host") || id.starts_with("service_port") || id == "port" || id.starts_with("port_")
}

fn a_flag(value: &OsStr) -> Option<OsString> {
    match value.to_str()?.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some("true".into()),
        "false" | "0" | "no" | "off" | "" => Some("false".into()),
        _ => None,
    }
}

/// Splits several values at commas.
fn split(value: &OsStr) -> Values {
    use std::os::unix::ffi::OsStrExt;
    let parts = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    parts.filter(|part| !part.is_empty()).map(|part| OsStr::from_bytes(part).to_owned()).collect()
}

/// Returns the options in a file, by command.
///
/// # Errors
/// The file cannot be read, or has something else in it.
pub(crate) fn from_file(path: &Path) -> Result<BTreeMap<String, Given>, Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("cannot read the options in {shown}"), error).ending(Exit::Usage))?;
    let wrong = |span: Option<std::ops::Range<usize>>, why: String| {
        let line = span.map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        Failure::usage(format!("{shown}, line {line}: {why}"))
    };
    let file = Document::parse(text.as_str());
    let file = file.map_err(|error| wrong(error.span(), format!("this is no TOML: {}", error.message())))?;
    let mut all = BTreeMap::new();
    for (name, item) in file.iter() {
        let (Some(table), true) = (item.as_table_like(), CONFIGURABLE.contains(&name)) else {
            let why = format!("{name} is no section; options stand below [serve] or [node]");
            return Err(wrong(key_span(file.as_table(), name), why));
        };
        let command = command(name);
        let mut given = Given::new();
        for (key, item) in table.iter() {
            let named = key.replace('_', "-");
            let span = key_span(table, key).or_else(|| item.span());
            let Some(argument) = options(&command).find(|argument| name_of(argument) == named) else {
                let cure = format!("see `situ {name} --help`");
                return Err(wrong(span, format!("{key} is no option of `situ {name}`")).cure(cure));
            };
            let values = values(argument, item).map_err(|why| wrong(span, format!("{key} {why}")))?;
            if given.insert(argument.get_id().to_string(), values).is_some() {
                return Err(wrong(key_span(table, key), format!("{key} is there twice")));
            }
        }
        all.insert(name.to_owned(), given);
    }
    Ok(all)
}

fn key_span(table: &dyn TableLike, key: &str) -> Option<std::ops::Range<usize>> {
    table.key(key).and_then(toml_edit::Key::span)
}

/// Returns the values of an option in a file, or what is wrong with them.
fn values(argument: &Arg, item: &Item) -> Result<Values, &'static str> {
    let is_flag = matches!(argument.get_action(), ArgAction::SetTrue);
    match item.as_value() {
        Some(Value::Boolean(set)) if is_flag => Ok(vec![set.value().to_string().into()]),
        Some(_) if is_flag => Err("must be true or false"),
        Some(Value::Array(values)) if matches!(argument.get_action(), ArgAction::Append) => {
            values.iter().map(scalar).collect()
        }
        Some(value) => Ok(vec![scalar(value)?]),
        None => Err("has no value"),
    }
}

fn scalar(value: &Value) -> Result<OsString, &'static str> {
    match value {
        Value::String(text) => Ok(text.value().into()),
        Value::Integer(number) => Ok(number.value().to_string().into()),
        Value::Array(_) => Err("takes one value, and no list"),
        _ => Err("must be a text or a whole number"),
    }
}

#[cfg(test)]
mod tests;
