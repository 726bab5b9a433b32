//! Commands on a store that a server has open: the administrative channel of `situ serve`.
//!
//! **The client.** A command finds its store locked, and the process that has the store listens on the socket in the
//! store's directory. Then [`in_server`] sends the command line there, and the output and the exit code are those of
//! the server. A command opens its store before it prints or changes anything, so nothing is done twice. With
//! `--server`, [`over_http`] sends the command line at once.
//!
//! **The server.** [`Commands`] parses the command line, takes the open store for the one that it names, makes its
//! paths those of the client, and runs the function of the command. [`prepare`] is the list of what a server runs.

use crate::failure::{Exit, Failure, Outcome};
use crate::options::{
    BackupCommand, Command, DATA, Directory, DiskCommand, KeyspaceCommand, NodeAccess, Program, Target,
};
use crate::output::Output;
use crate::{answer_for, carry_out};
use clap::{CommandFactory, FromArgMatches};
use situ::Store;
use situ_server::{AdminAnswer, AdminCaller, AdminClient, AdminFrame, AdminRequest, Administrator, Tracer};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Runs a command in the server that has its store open, where that is why it failed and the server takes commands.
///
/// # Errors
/// The failure, where there is no such server; or the server cannot be reached, or refuses.
pub(crate) fn in_server(command: &Command, failure: Failure, out: &mut Output) -> Outcome {
    // A second server cannot run in the first one.
    let Some(directory) = failure.held().filter(|_| !matches!(command, Command::Serve(_))) else {
        return Err(failure);
    };
    let what = || format!("cannot run the command in the server that has {} open", directory.display());
    let mut client = match AdminClient::connect(directory) {
        Ok(client) => client,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Failure::new(what(), error).cure("run it as the user of the server, or as root"));
        }
        Err(_) => return Err(failure),
    };
    if let Some(path) = path_of(command) {
        check_same(path, &client).map_err(|error| {
            Failure::new(what(), error).cure("name a file that both processes find by this path; a service or a container may have a /tmp of its own")
        })?;
    }
    client.send(&request()?).map_err(|error| Failure::new(what(), error))?;
    show(|| client.next_frame(), &what, out)
}

/// Runs a command in the server at a URL, with the token in a file. Its paths are those of the server's machine.
///
/// # Errors
/// The command has a path that depends on its caller; or the server cannot be reached, or refuses.
pub(crate) fn over_http(command: &Command, (url, token_file): (&str, &Path), out: &mut Output) -> Outcome {
    let what = || format!("cannot run the command in the server at {url}");
    if let Some(path) = path_of(command).filter(|path| !path.is_absolute()) {
        let why = format!("{} is relative, and the server opens files from its own directory", path.display());
        return Err(
            Failure::new(what(), why).cure("write the whole path that the file has on the machine of the server")
        );
    }
    let caller = AdminCaller::send(url, token_file, &request()?);
    let mut caller = caller.map_err(|error| Failure::new(what(), error))?;
    show(|| caller.next_frame(), &what, out)
}

/// Returns the request for the command line of this process.
fn request() -> Result<AdminRequest, Failure> {
    let arguments = std::env::args_os().skip(1).collect();
    let request = std::env::current_dir().map(|directory| AdminRequest { arguments, directory });
    request.map_err(|error| Failure::new("cannot find the working directory", error))
}

/// Shows what a server answers, until it ends.
fn show(mut next: impl FnMut() -> io::Result<AdminFrame>, what: &dyn Fn() -> String, out: &mut Output) -> Outcome {
    loop {
        let frame = next().map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                Failure::new(what(), "the server ended before the command did")
                    .cure("look into the log of the server, and run the command again")
            }
            _ => Failure::new(what(), error),
        })?;
        match frame {
            AdminFrame::Stdout(bytes) => {
                out.bytes(&bytes)?;
                out.finish()?;
            }
            // A message that cannot be written is dropped: its failure would be a message, too.
            AdminFrame::Stderr(bytes) => _ = io::stderr().write_all(&bytes),
            AdminFrame::Exit(code) => return Ok(Exit::of(code)),
            AdminFrame::Refused(why) => return Err(Failure::new(what(), why)),
        }
    }
}

/// Returns the file or directory that the server opens for a command.
fn path_of(command: &Command) -> Option<&Path> {
    let path = match command {
        Command::Load(options) => &options.file,
        Command::Dump(options) => &options.output,
        Command::Trace(options) => &options.output,
        Command::Checkpoint(options) => &options.output,
        Command::Backup(BackupCommand::Create(options)) => &options.output,
        _ => return None,
    };
    Some(&**path).filter(|path| path.as_os_str() != "-")
}

/// Checks that the server finds the same file at a path, or the same directory above a file that does not exist. The
/// server may run in another mount namespace, such as that of a service with `PrivateTmp`.
///
/// # Errors
/// It finds another one; the system does not tell.
fn check_same(path: &Path, client: &AdminClient) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    let root = PathBuf::from(format!("/proc/{}/root", client.server()?));
    // The nearest that exists, for one of the two.
    for here in path.ancestors() {
        let there = root.join(here.strip_prefix("/").unwrap_or(here));
        let identity = |path: &Path| match path.metadata() {
            Ok(found) => Ok(Some((found.dev(), found.ino()))),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
        };
        match (identity(here)?, identity(&there)?) {
            (None, None) => {}
            (mine, its) if mine == its => return Ok(()),
            _ => {
                return Err(io::Error::other(format!(
                    "{} is another file or directory for the server",
                    here.display()
                )));
            }
        }
    }
    Ok(())
}

/// Runs the commands of clients on a store that is open.
pub(crate) struct Commands {
    pub(crate) store: Store,
    pub(crate) tracer: Arc<Tracer>,
    /// The directory of the store.
    pub(crate) directory: PathBuf,
    /// Writes a line to the log of the server.
    pub(crate) log: Box<dyn Fn(&str) + Send + Sync>,
}

impl Administrator for Commands {
    fn run(&self, request: &AdminRequest, answer: &Arc<AdminAnswer>) -> u8 {
        let started = Instant::now();
        let (name, exit) = self.run_one(request, answer);
        let seconds = started.elapsed().as_secs_f64();
        let end = match answer.is_gone() {
            true => "its connection ended".to_owned(),
            false => format!("exit code {}", exit as u8),
        };
        (self.log)(&format!("command {name}: {end} after {seconds:.1} s"));
        exit as u8
    }

    fn is_stream(&self, request: &AdminRequest) -> bool {
        let program = parse(request).1;
        program.is_ok_and(|program| match program.command {
            Command::Changes(options) => options.follow,
            Command::Trace(_) => true,
            _ => false,
        })
    }
}

/// Parses a command line. Returns also the name of its command.
fn parse(request: &AdminRequest) -> (String, Result<Program, clap::Error>) {
    let line = std::iter::once(OsStr::new("situ")).chain(request.arguments.iter().map(|argument| &**argument));
    let parsed = Program::command().try_get_matches_from(line);
    let name = parsed.as_ref().map_or_else(|_| "that cannot be read".to_owned(), name_of);
    (name, parsed.and_then(|matches| Program::from_arg_matches(&matches)))
}

impl Commands {
    /// Runs a command line. Returns the name of its command, and the exit code.
    fn run_one(&self, request: &AdminRequest, answer: &Arc<AdminAnswer>) -> (String, Exit) {
        let json = crate::asks_for_json(request.arguments.iter().map(|argument| &**argument));
        let (name, parsed) = parse(request);
        let mut out = Output::of_served(json, &self.store, Arc::clone(&self.tracer), Arc::clone(answer));
        let outcome = match parsed {
            Ok(mut program) => {
                let caller = (&*request.directory, answer.is_over_http());
                prepare(&mut program.command, &name, &self.directory, caller)
                    .and_then(|()| carry_out(&program.command, &mut out))
            }
            Err(error) => answer_for(&error, &mut out),
        };
        let finished = outcome.and_then(|exit| out.finish().map(|()| exit));
        let exit = finished.unwrap_or_else(|failure| {
            if let Some(message) = failure.message() {
                out.tell(&message);
            }
            failure.exit()
        });
        (name, exit)
    }
}

/// Returns the names of a command and of its subcommands, as in `disk drain`.
fn name_of(matches: &clap::ArgMatches) -> String {
    let subcommands = std::iter::successors(matches.subcommand(), |(_, matches)| matches.subcommand());
    subcommands.map(|(name, _)| name).collect::<Vec<_>>().join(" ")
}

/// Makes a command one for the store in `served`, with paths as a client in `client` means them.
///
/// # Errors
/// A server does not run this command, or not with these options; a caller over HTTP names another store.
fn prepare(
    command: &mut Command,
    name: &str,
    served: &Path,
    (client, is_over_http): (&Path, bool),
) -> Result<(), Failure> {
    let what = format!("cannot run `situ {name}` in a server");
    let no_input = || {
        Err(Failure::new(&what, "the server does not get the standard input of the command")
            .cure("name a file, or give the value on the command line"))
    };
    // A client of the socket has found it in the directory that it names.
    let take = |named: PathBuf| match is_over_http && named != Path::new(DATA) {
        true => check_named(&what, &client.join(named), served).map(|()| served.to_owned()),
        false => Ok(served.to_owned()),
    };
    let whole = |directory: &mut Directory| {
        let named = directory.data.take().or(directory.directory.take());
        directory.directory = Some(take(named.unwrap_or_else(|| DATA.into()))?);
        check_nodes(&what, &directory.node)
    };
    let part = |target: &mut Target| {
        target.data = take(std::mem::take(&mut target.data))?;
        check_nodes(&what, &target.node)
    };
    match command {
        Command::Get(options) => part(&mut options.target),
        Command::Put(options) if options.value.is_none() => no_input(),
        Command::Put(options) => part(&mut options.target),
        Command::Delete(options) => part(&mut options.target),
        Command::Scan(options) => part(&mut options.target),
        Command::Count(options) => part(&mut options.target),
        Command::Load(options) if options.file.as_os_str() == "-" => no_input(),
        Command::Load(options) => {
            make_absolute(&mut options.file, client, &what)?;
            // The client has read the beginning, which a pipe does not give twice.
            if options.file.metadata().is_ok_and(|file| !file.is_file() && !file.is_dir()) {
                let why = format!(
                    "{} is no regular file, and the server cannot read it from its beginning",
                    options.file.display()
                );
                return Err(Failure::new(&what, why).cure("load a regular file"));
            }
            part(&mut options.target)
        }
        Command::Dump(options) => {
            if options.output.as_os_str() != "-" {
                make_absolute(&mut options.output, client, &what)?;
            }
            part(&mut options.target)
        }
        Command::Trace(options) => {
            make_absolute(&mut options.output, client, &what)?;
            whole(&mut options.directory)
        }
        Command::Verify(options) => whole(&mut options.directory),
        Command::Compact(options) => whole(&mut options.directory),
        Command::Flush(options) => whole(&mut options.directory),
        Command::Changes(options) => whole(&mut options.directory),
        Command::Checkpoint(options) => {
            make_absolute(&mut options.output, client, &what)?;
            whole(&mut options.directory)
        }
        Command::Backup(BackupCommand::Create(options)) => {
            make_absolute(&mut options.output, client, &what)?;
            whole(&mut options.directory)
        }
        Command::Keyspace(command) => {
            let store = match command {
                KeyspaceCommand::List(options) => options,
                KeyspaceCommand::Create(options) | KeyspaceCommand::Clear(options) | KeyspaceCommand::Drop(options) => {
                    &mut options.store
                }
            };
            store.data = take(std::mem::take(&mut store.data))?;
            check_nodes(&what, &store.node)
        }
        Command::Disk(DiskCommand::Drain(options)) => {
            options.directory = take(std::mem::take(&mut options.directory))?;
            Ok(())
        }
        _ => Err(Failure::new(&what, "a server has the store open, and the command needs the store for itself")
            .cure("stop the server, then run the command again")),
    }
}

/// Refuses the store of another server: a caller over HTTP may have the wrong URL.
fn check_named(what: &str, named: &Path, served: &Path) -> Result<(), Failure> {
    match (named.canonicalize(), served.canonicalize()) {
        (Ok(named), Ok(served)) if named == served => Ok(()),
        _ => Err(Failure::new(what, format!("it has the store in {} open, and no other", served.display()))
            .cure("name this directory or none, or ask another server")),
    }
}

/// Refuses nodes: the server has its own.
fn check_nodes(what: &str, node: &NodeAccess) -> Result<(), Failure> {
    match node.capacity.is_none() && node.compute.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(what, "the server has been started with the nodes that it uses")
            .cure("leave out --capacity and --compute")),
    }
}

/// Paths that mean something else in each process.
const PRIVATE: [&str; 6] = ["/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "/proc"];

/// Makes a path one that the server can use.
///
/// # Errors
/// It leads to something of the client's process.
fn make_absolute(path: &mut PathBuf, client: &Path, what: &str) -> Result<(), Failure> {
    *path = client.join(&*path);
    match PRIVATE.iter().any(|private| path.starts_with(private)) {
        true => Err(Failure::new(what, format!("{} is another file in the server", path.display()))
            .cure("name a file that both processes can open by this path")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
