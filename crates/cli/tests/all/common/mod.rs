//! Running the built program.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a run of the program gave.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    /// The JSON object on stdout.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The JSON objects on stdout, one a line.
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Asserts success.
    pub(crate) fn done(self) -> Ran {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }
}

pub(crate) fn program(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_situ"));
    command.current_dir(directory);
    command
}

/// Runs `situ` with these arguments in `directory`.
pub(crate) fn situ(directory: &Path, arguments: &[&str]) -> Ran {
    situ_fed(directory, arguments, b"")
}

/// Runs it with `input` on stdin.
pub(crate) fn situ_fed(directory: &Path, arguments: &[&str], input: &[u8]) -> Ran {
    let mut command = program(directory);
    command.args(arguments);
    fed(command, input)
}

/// Runs it with `input` on stdin and so many KiB of address space. `None` if a signal ended it.
pub(crate) fn situ_within(directory: &Path, limit_kib: u64, arguments: &[&str], input: &[u8]) -> Option<Ran> {
    let mut command = Command::new("/bin/sh");
    let limited = format!("ulimit -v {limit_kib} && exec \"$0\" \"$@\"");
    command.args(["-c", &limited, env!("CARGO_BIN_EXE_situ")]).args(arguments).current_dir(directory);
    let ran = fed(command, input);
    (ran.code >= 0).then_some(ran)
}

/// Runs a command with `input` on stdin.
pub(crate) fn fed(mut command: Command, input: &[u8]) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || {
        // It may end without reading; that shows in its output.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    Ran { code: output.status.code().unwrap_or(-1), stdout: output.stdout, stderr }
}

/// A running `situ serve` on free ports. Killed on drop.
pub(crate) struct Serving {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) http: SocketAddr,
    _stdout: BufReader<std::process::ChildStdout>,
}

impl Serving {
    pub(crate) fn start(directory: &Path, options: &[&str]) -> Serving {
        Serving::try_start(program(directory), options).unwrap()
    }

    /// Starts it with so many KiB of address space, of which the allocator reserves none ahead. `None` if it ends at
    /// once.
    pub(crate) fn start_with_memory(directory: &Path, limit_kib: u64, options: &[&str]) -> Option<Serving> {
        let mut command = Command::new("/bin/sh");
        let limited = format!("ulimit -v {limit_kib} && exec \"$0\" \"$@\"");
        command.args(["-c", &limited, env!("CARGO_BIN_EXE_situ")]).current_dir(directory);
        command.env("MALLOC_ARENA_MAX", "1");
        Serving::try_start(command, options)
    }

    /// Starts it in a mount namespace in which `hidden` is another directory. `None` if the system refuses.
    pub(crate) fn start_hiding(directory: &Path, hidden: &Path, options: &[&str]) -> Option<Serving> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "/bin/sh", "-c", "mount -t tmpfs none \"$0\" && exec \"$@\""]);
        command.arg(hidden).arg(env!("CARGO_BIN_EXE_situ")).current_dir(directory);
        Serving::try_start(command, options)
    }

    fn try_start(mut command: Command, options: &[&str]) -> Option<Serving> {
        command.args(["serve", "--json", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]).args(options);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        if stdout.read_line(&mut line).unwrap() == 0 {
            child.wait().unwrap();
            return None;
        }
        let listening: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
        assert_eq!(listening["event"], "listening");
        let address = |value: &Value| value.as_str().unwrap().parse().unwrap();
        let (tcp, http) = (address(&listening["addresses"][0]), address(&listening["http"]));
        Some(Serving { child, address: tcp, http, _stdout: stdout })
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, signal).unwrap();
    }

    /// Waits for the end; its exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn connect(&self) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        BufReader::new(stream)
    }

    /// Sends `command` on a connection of its own and returns all answers; `command` ends with quit.
    pub(crate) fn ask(&self, command: &str) -> String {
        let mut connection = self.connect();
        connection.get_mut().write_all(command.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
