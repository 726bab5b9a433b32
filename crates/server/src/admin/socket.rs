//! The administrative channel of a directory: the socket `ADMIN` next to the store's files.
//!
//! The process that holds the store's lock owns the name, and replaces a socket that a crash has left. Its mode is 0600
//! from the first moment on, so only the same user and root can connect. Volumes list only their own names, and so
//! overlook this one.
//!
//! [Callers over HTTP](crate::admin::door) run the same commands.
//!
//! **Threads.** One takes connections. Each connection has a thread, which reads the request and runs the command.
//!
//! **Bounded.** [`Stage`] has the limits. A command beyond them is refused. A connection beyond them takes the place of
//! the oldest one whose request has not come, so silent clients keep no other from its answer.
//!
//! **The end.** [`refuse`](AdminSocket::refuse) removes the socket: no command begins from then on. It hangs up on
//! streams, which have no end of their own. [`wait`](AdminSocket::wait) waits for the commands that run. The caller
//! closes the store, which ends the others, and drops the socket. That hangs up on clients that take no answer, and
//! waits a moment.

use crate::admin::channel::{AdminAnswer, AdminRequest, Administrator, NAME, read_request, within_limit};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{AtFlags, Mode, fchmod, unlinkat};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use situ_base::lock;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Commands that run at a time.
const COMMANDS_MAX: usize = 8;
/// Streams that run at a time.
const STREAMS_MAX: usize = 64;
/// Connections at a time whose requests have not come.
const ARRIVALS_MAX: usize = 64;
/// Connections that may wait to be taken.
const BACKLOG: i32 = 64;
/// The longest wait for a piece of a request.
const REQUEST_WAIT: Duration = Duration::from_secs(5);
/// The last wait for commands whose store is closed.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// Rest of the listener when descriptors have run out.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// See the module.
pub struct AdminSocket {
    /// The directory, which may have another name by now.
    directory: File,
    commands: Arc<Commands>,
    /// Readable from the moment on at which no connection is taken any more.
    stop: Arc<OwnedFd>,
    listener: Option<JoinHandle<()>>,
}

/// A request, or the reason in words why it cannot be run.
type Asked = Result<AdminRequest, String>;

/// The commands of all callers.
pub(crate) struct Commands {
    administrator: Box<dyn Administrator>,
    running: Mutex<Started>,
    ended: Condvar,
}

/// The stage of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its request has not come: at most [`ARRIVALS_MAX`].
    Arrives,
    /// Its command runs: at most [`COMMANDS_MAX`].
    Runs,
    /// Its command runs until the client goes: at most [`STREAMS_MAX`].
    Streams,
}

#[derive(Default)]
struct Started {
    /// Oldest first.
    answers: Vec<(Stage, Arc<AdminAnswer>)>,
    /// No command begins any more.
    is_over: bool,
}

impl Started {
    fn count(&self, stage: Stage) -> usize {
        self.answers.iter().filter(|(its, _)| *its == stage).count()
    }

    /// Takes a connection. It takes the place of the oldest one if too many requests have not come.
    fn take(&mut self, answer: &Arc<AdminAnswer>) {
        if self.count(Stage::Arrives) >= ARRIVALS_MAX
            && let Some(oldest) = self.answers.iter().position(|(stage, _)| *stage == Stage::Arrives)
        {
            self.answers.remove(oldest).1.hang_up();
        }
        self.answers.push((Stage::Arrives, Arc::clone(answer)));
    }

    /// Lets a command begin whose request has come.
    ///
    /// # Errors
    /// It may not; in words.
    fn admit(&mut self, answer: &Arc<AdminAnswer>, stage: Stage) -> Result<(), String> {
        if self.is_over {
            return Err(STOPS.to_owned());
        }
        if self.count(Stage::Runs) >= COMMANDS_MAX && stage == Stage::Runs {
            return Err(format!("{COMMANDS_MAX} commands run already; run this one again when one of them has ended"));
        }
        if self.count(Stage::Streams) >= STREAMS_MAX && stage == Stage::Streams {
            return Err(format!("{STREAMS_MAX} clients follow the server already; end one of them first"));
        }
        let own = self.answers.iter_mut().find(|(_, other)| Arc::ptr_eq(other, answer));
        own.map(|own| own.0 = stage).ok_or_else(|| "the request came too late".to_owned())
    }
}

/// The reason why no command begins.
const STOPS: &str = "the server stops; run the command again when it has started";

impl AdminSocket {
    /// Takes commands for the store in `directory`, whose lock the caller holds.
    ///
    /// # Errors
    /// The system refuses a socket there, or a thread; something else has the name.
    pub fn listen(directory: &Path, administrator: impl Administrator) -> io::Result<AdminSocket> {
        let opened = File::open(directory)?;
        let listener = within_limit(directory, open)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let (running, ended) = (Mutex::default(), Condvar::new());
        let commands = Arc::new(Commands { administrator: Box::new(administrator), running, ended });
        let (taker, seen) = (Arc::clone(&commands), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("situ-admin".to_owned());
        let thread = thread.spawn(move || take_connections(&listener, &taker, &seen));
        let thread = thread.inspect_err(|_| remove(&opened))?;
        Ok(AdminSocket { directory: opened, commands, stop, listener: Some(thread) })
    }

    /// Takes no command from now on, and ends streams. The caller still holds the store's lock.
    pub fn refuse(&mut self) {
        let Some(listener) = self.listener.take() else { return };
        // Fails only if it is full, and then it is readable.
        _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        // A panic of it has been shown already.
        _ = listener.join();
        let mut started = lock(&self.commands.running);
        started.is_over = true;
        let endless = started.answers.iter().filter(|(stage, _)| *stage != Stage::Runs);
        endless.for_each(|(_, answer)| answer.hang_up());
        remove(&self.directory);
    }

    pub(crate) fn commands(&self) -> Arc<Commands> {
        Arc::clone(&self.commands)
    }

    /// Waits until no command runs, `longest` at most. Returns false if one still does.
    pub fn wait(&self, longest: Duration) -> bool {
        let deadline = Instant::now() + longest;
        let mut running = lock(&self.commands.running);
        while !running.answers.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.commands.ended.wait_timeout(running, left);
            running = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        self.refuse();
        if !self.wait(LAST_WAIT) {
            lock(&self.commands.running).answers.iter().for_each(|(_, answer)| answer.hang_up());
            self.wait(LAST_WAIT);
        }
    }
}

impl std::fmt::Debug for AdminSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminSocket").field("directory", &self.directory).finish()
    }
}

/// Makes the socket. It replaces one that is there already: its process has lost the store's lock.
fn open(path: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => return Err(io::Error::new(ErrorKind::AlreadyExists, format!("{NAME} exists and is no socket"))),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file gets the mode of the socket, so that it is never open to others.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

fn remove(directory: &File) {
    // It may be gone already.
    _ = unlinkat(directory, NAME, AtFlags::empty());
}

fn take_connections(listener: &UnixListener, commands: &Arc<Commands>, stop: &OwnedFd) {
    loop {
        let mut waiting = [PollFd::new(stop, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        // An interrupted wait shows in nothing being ready.
        _ = poll(&mut waiting, None);
        if !waiting[0].revents().is_empty() {
            return;
        }
        match listener.accept() {
            Ok((stream, _)) => commands.begin_on_socket(stream),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // Out of descriptors, most likely.
            Err(_) => std::thread::sleep(ACCEPT_REST),
        }
    }
}

impl Commands {
    /// Runs the command of a connection of the socket.
    fn begin_on_socket(self: &Arc<Commands>, mut stream: UnixStream) {
        // The client may be gone at any point, so errors of its socket go unreported.
        let Ok(socket) = stream.try_clone() else { return };
        self.begin(AdminAnswer::new(socket.into(), false), move || {
            stream.set_read_timeout(Some(REQUEST_WAIT)).ok()?;
            read_request(&mut stream)
        });
    }

    /// Runs the command of a connection over HTTP. Its request has `length` bytes, of which `come` have come.
    pub(crate) fn begin_over_http(self: &Arc<Commands>, mut stream: TcpStream, mut come: Vec<u8>, length: usize) {
        let Ok(socket) = stream.set_nonblocking(false).and_then(|()| stream.try_clone()) else { return };
        self.begin(AdminAnswer::new(socket.into(), true), move || {
            stream.set_read_timeout(Some(REQUEST_WAIT)).ok()?;
            come.truncate(length);
            let missing = (length - come.len()) as u64;
            stream.by_ref().take(missing).read_to_end(&mut come).ok()?;
            (come.len() == length).then(|| AdminRequest::decode(&come))
        });
    }

    /// Runs a command on a thread of its own, which reads the request first.
    fn begin(self: &Arc<Commands>, answer: AdminAnswer, read: impl FnOnce() -> Option<Asked> + Send + 'static) {
        let answer = Arc::new(answer);
        let running = Running { commands: Arc::clone(self), answer: Arc::clone(&answer) };
        let is_over = {
            let mut started = lock(&self.running);
            started.take(&answer);
            started.is_over
        };
        if is_over {
            _ = answer.refuse(STOPS);
            return;
        }
        let body = move || running.run(read);
        if std::thread::Builder::new().name("situ-command".to_owned()).spawn(body).is_err() {
            _ = answer.refuse("the system refuses a thread for the command; run the command again");
        }
    }
}

/// A connection that counts until this goes, also after a panic.
struct Running {
    commands: Arc<Commands>,
    answer: Arc<AdminAnswer>,
}

impl Running {
    fn run(self, read: impl FnOnce() -> Option<Asked>) {
        let Some(asked) = read() else { return };
        let Commands { administrator, running, .. } = &*self.commands;
        let admitted = asked.and_then(|request| {
            let stage = if administrator.is_stream(&request) { Stage::Streams } else { Stage::Runs };
            lock(running).admit(&self.answer, stage).map(|()| request)
        });
        _ = match admitted {
            Ok(request) => self.answer.exit(administrator.run(&request, &self.answer)),
            Err(text) => self.answer.refuse(&text),
        };
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        lock(&self.commands.running).answers.retain(|(_, answer)| !Arc::ptr_eq(answer, &self.answer));
        self.commands.ended.notify_all();
    }
}

#[cfg(test)]
mod tests;
