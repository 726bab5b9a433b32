//! The service in a daemon, and by itself with callers that are gone.

use super::*;
use crate::daemon::pool::{Pool, Strands};
use crate::daemon::{Daemon, DaemonOptions};
use crate::executor::ExecutorOptions;
use crate::greeting::{Introduction, NoRequests, greet};
use crate::message::PollTasks;
use crate::peer::{Connection, PeerOptions, Traffic};
use crate::transport::connect;
use crate::{Place, Side};
use situ_base::Env;
use std::path::Path;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(30);

/// A node that computes, and keeps tasks of a host for a moment only.
fn start(directory: &Path) -> (Daemon, Arc<Executor>) {
    let env = Env::system();
    let options = ExecutorOptions { linger: Duration::from_millis(100), ..ExecutorOptions::new(&env) };
    let executor = Arc::new(Executor::new(&env, options));
    let options = DaemonOptions {
        listen: vec![Place::Unix(directory.join("node.sock"))],
        services: vec![Arc::new(TaskService::new(Arc::clone(&executor)))],
        ..DaemonOptions::default()
    };
    (Daemon::start(&env, options).unwrap(), executor)
}

fn enter(daemon: &Daemon) -> Connection {
    let stream = connect(&daemon.places()[0], None, SOON).unwrap();
    let (options, traffic) = (PeerOptions::default(), Arc::new(Traffic::default()));
    let payload_bytes_max = options.payload_bytes_max;
    let handler = Arc::new(NoRequests);
    let connection = Connection::begin(&Env::system(), Side::Host, stream, options, handler, traffic).unwrap();
    let (store, from) = (String::new(), "a host".to_owned());
    let introduction = Introduction { store, session: [7; 16], from, secret: None, payload_bytes_max };
    greet(connection.peer(), &introduction, SOON).unwrap();
    connection
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < end, "waited too long for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sessions ended only when some host came or went. A host that died for good left its answers and tables on the node.
#[test]
fn the_session_of_a_host_that_is_gone_ends_though_no_other_host_comes() {
    let directory = tempfile::tempdir().unwrap();
    let (daemon, executor) = start(directory.path());
    let host = enter(&daemon);
    host.peer().ask(&PollTasks {}, SOON).unwrap();
    assert_eq!(executor.sessions(), 1);
    drop(host);
    until("the session is over", || executor.sessions() == 0);
}

/// A request that the reader thread had just taken attached the caller again, after it was told to be gone.
#[test]
fn a_request_behind_the_loss_of_its_connection_attaches_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let (daemon, executor) = start(directory.path());
    let (host, pool) = (enter(&daemon), Pool::start(&Env::system(), 1).unwrap());
    let caller = Arc::new(Caller {
        peer: host.peer().clone(),
        session: 1,
        name: "a host".to_owned(),
        store: String::new(),
        files: None,
        lane: pool.lane(),
        strands: Arc::new(Strands::default()),
        token: std::sync::atomic::AtomicU64::new(0),
    });
    let service = TaskService::new(Arc::clone(&executor));
    service.tasks(&caller).expect("it is connected");
    host.peer().hang_up("the end");
    service.gone(&caller);
    assert!(service.tasks(&caller).is_err());
    assert!(lock(&service.callers).is_empty());
    until("the session is over", || executor.sessions() == 0);
    pool.end(true);
}
