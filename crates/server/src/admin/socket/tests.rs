use super::*;
use crate::admin::channel::{AdminClient, AdminFrame, AdminRequest};
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Echoes its arguments. `wait` waits until the test lets it go on, `panic` panics, `flood` writes until it cannot,
/// `stream` waits until its client is gone.
struct Echo {
    runs: Arc<AtomicUsize>,
    gate: Mutex<mpsc::Receiver<()>>,
}

impl Administrator for Echo {
    fn run(&self, request: &AdminRequest, answer: &Arc<AdminAnswer>) -> u8 {
        self.runs.fetch_add(1, Ordering::SeqCst);
        match request.arguments.first().and_then(|argument| argument.to_str()) {
            Some("wait") => drop(lock(&self.gate).recv()),
            Some("panic") => panic!("as asked"),
            Some("stream") => until(|| answer.is_gone()),
            Some("flood") => while answer.stdout(&[b'x'; 4096]).is_ok() {},
            _ => answer.stdout(format!("{:?}", request.arguments).as_bytes()).unwrap(),
        }
        7
    }

    fn is_stream(&self, request: &AdminRequest) -> bool {
        request.arguments.first().is_some_and(|argument| argument == "stream")
    }
}

struct Taken {
    socket: AdminSocket,
    runs: Arc<AtomicUsize>,
    go_on: mpsc::Sender<()>,
}

fn take(directory: &Path) -> Taken {
    let (go_on, gate) = mpsc::channel();
    let runs = Arc::new(AtomicUsize::new(0));
    let echo = Echo { runs: Arc::clone(&runs), gate: Mutex::new(gate) };
    Taken { socket: AdminSocket::listen(directory, echo).unwrap(), runs, go_on }
}

fn send(directory: &Path, argument: &str) -> AdminClient {
    let mut client = AdminClient::connect(directory).unwrap();
    let arguments = vec![OsString::from(argument)];
    client.send(&AdminRequest { arguments, directory: directory.to_owned() }).unwrap();
    client
}

fn frames(mut client: AdminClient) -> Vec<AdminFrame> {
    std::iter::from_fn(|| client.next_frame().ok()).collect()
}

fn echoed(directory: &Path) -> bool {
    let expected = [AdminFrame::Stdout(b"[\"a\"]".to_vec()), AdminFrame::Exit(7)];
    frames(send(directory, "a")) == expected
}

fn until(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "the condition does not come true");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn only_the_owner_may_connect_and_the_name_goes_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let taken = take(directory.path());
    let mode = directory.path().join(NAME).metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    assert!(echoed(directory.path()));
    drop(taken);
    assert!(!directory.path().join(NAME).exists());
    assert_eq!(AdminClient::connect(directory.path()).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_socket_of_a_process_that_died_is_replaced_and_nothing_else_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(NAME);
    drop(UnixListener::bind(&path).unwrap());
    assert_eq!(AdminClient::connect(directory.path()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let taken = take(directory.path());
    assert!(echoed(directory.path()));
    drop(taken);
    std::fs::write(&path, "notes").unwrap();
    let (_, gate) = mpsc::channel();
    let refused = AdminSocket::listen(directory.path(), Echo { runs: Arc::default(), gate: Mutex::new(gate) });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read_to_string(path).unwrap(), "notes");
}

#[test]
fn a_directory_with_a_long_path_has_a_socket() {
    let directory = tempfile::tempdir().unwrap();
    let long = directory.path().join("d".repeat(200));
    std::fs::create_dir(&long).unwrap();
    let taken = take(&long);
    assert!(echoed(&long));
    drop(taken);
    assert!(!long.join(NAME).exists());
}

/// The directory of a running server may be renamed, and another server may take its name.
#[test]
fn the_end_removes_the_socket_of_its_own_directory() {
    let directory = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| directory.path().join(name));
    std::fs::create_dir(&old).unwrap();
    let first = take(&old);
    std::fs::rename(&old, &new).unwrap();
    std::fs::create_dir(&old).unwrap();
    let second = take(&old);
    drop(first);
    assert!(!new.join(NAME).exists() && echoed(&old));
    drop(second);
}

#[test]
fn one_command_more_than_may_run_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let taken = take(directory.path());
    let running: Vec<AdminClient> = (0..COMMANDS_MAX).map(|_| send(directory.path(), "wait")).collect();
    until(|| taken.runs.load(Ordering::SeqCst) == COMMANDS_MAX);
    let refused = frames(send(directory.path(), "a"));
    let [AdminFrame::Refused(text)] = &refused[..] else { panic!("{refused:?}") };
    assert!(text.starts_with("8 commands run already"), "{text}");
    assert!(!taken.socket.wait(Duration::from_millis(1)));
    (0..COMMANDS_MAX).for_each(|_| taken.go_on.send(()).unwrap());
    running.into_iter().for_each(|client| assert_eq!(frames(client), [AdminFrame::Exit(7)]));
    until(|| taken.socket.wait(Duration::ZERO));
    assert!(echoed(directory.path()));
}

#[test]
fn a_command_that_panics_or_whose_client_goes_leaves_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let taken = take(directory.path());
    for _ in 0..2 * COMMANDS_MAX {
        assert_eq!(frames(send(directory.path(), "panic")), []);
        until(|| taken.socket.wait(Duration::ZERO));
        drop(send(directory.path(), "flood"));
        drop(AdminClient::connect(directory.path()).unwrap());
    }
    until(|| taken.socket.wait(Duration::ZERO));
    assert!(echoed(directory.path()));
}

#[test]
fn the_end_hangs_up_on_a_client_that_takes_no_answer() {
    let directory = tempfile::tempdir().unwrap();
    let mut taken = take(directory.path());
    let _silent = send(directory.path(), "flood");
    until(|| taken.runs.load(Ordering::SeqCst) == 1);
    taken.socket.refuse();
    assert!(!directory.path().join(NAME).exists());
    assert!(!taken.socket.wait(Duration::from_millis(50)));
    let commands = Arc::clone(&taken.socket.commands);
    drop(taken);
    assert!(lock(&commands.running).answers.is_empty());
}

/// Once, eight connections without a request kept every command out for five seconds.
#[test]
fn silent_connections_keep_no_command_out() {
    let directory = tempfile::tempdir().unwrap();
    let taken = take(directory.path());
    let mut silent: Vec<AdminClient> = Vec::new();
    for number in 0..ARRIVALS_MAX + 5 {
        silent.push(AdminClient::connect(directory.path()).unwrap());
        assert!(number % 16 != 0 || echoed(directory.path()));
    }
    // The oldest lose their places.
    assert_eq!(silent.remove(0).next_frame().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    let waiting = lock(&taken.socket.commands.running).count(Stage::Arrives);
    assert!(waiting <= ARRIVALS_MAX, "{waiting}");
}

/// Once, eight followers kept every command out, and each delayed the end of the server by five seconds.
#[test]
fn streams_take_no_place_of_a_command_and_end_with_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let mut taken = take(directory.path());
    let streams: Vec<AdminClient> = (0..STREAMS_MAX).map(|_| send(directory.path(), "stream")).collect();
    until(|| taken.runs.load(Ordering::SeqCst) == STREAMS_MAX);
    assert!(echoed(directory.path()));
    let refused = frames(send(directory.path(), "stream"));
    let [AdminFrame::Refused(text)] = &refused[..] else { panic!("{refused:?}") };
    assert!(text.starts_with("64 clients follow"), "{text}");
    let silent = AdminClient::connect(directory.path()).unwrap();
    let running = send(directory.path(), "wait");
    until(|| taken.runs.load(Ordering::SeqCst) == STREAMS_MAX + 2);
    taken.socket.refuse();
    until(|| lock(&taken.socket.commands.running).answers.len() == 1);
    streams.into_iter().chain([silent]).for_each(|client| assert_eq!(frames(client), []));
    taken.go_on.send(()).unwrap();
    assert_eq!(frames(running), [AdminFrame::Exit(7)], "a command that runs goes on");
}
