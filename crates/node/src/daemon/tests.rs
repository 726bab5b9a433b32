//! A daemon over real sockets, and clients that speak to it as the protocol's page says.

use super::*;
use crate::fields::Rest;
use crate::greeting::{Introduction, NoRequests, greet};
use crate::message::*;
use crate::testing::{begin, eventually};
use crate::transport::connect;
use situ_device::Buffer;
use situ_storage::{DirectoryVolume, FileMeta, FileName, PageFile, Reader, Space, Volume, Writer};
use std::path::Path;
use std::sync::Condvar;

const MOMENT: Duration = Duration::from_secs(60);
const TABLE: FileName = FileName::Table(1);

fn options(directory: &Path) -> DaemonOptions {
    DaemonOptions {
        storage: Some(Storage::Directory(directory.join("files"))),
        listen: vec![Place::Unix(directory.join("node.sock"))],
        lease_term: Duration::from_millis(400),
        ..DaemonOptions::default()
    }
}

fn start(options: DaemonOptions) -> Daemon {
    Daemon::start(&Env::system(), options).unwrap()
}

/// A client's connection that was let in.
struct Host {
    connection: Connection,
    welcome: Welcome,
}

impl Host {
    fn introduced(place: &Place, introduction: &Introduction) -> Result<Host, CallError> {
        Host::with_options(place, introduction, PeerOptions::default())
    }

    fn with_options(place: &Place, introduction: &Introduction, options: PeerOptions) -> Result<Host, CallError> {
        let stream = connect(place, None, MOMENT)?;
        let (handler, traffic) = (Arc::new(NoRequests), Arc::new(Traffic::default()));
        let connection = Connection::begin(&Env::system(), Side::Host, stream, options, handler, traffic)?;
        let welcome = greet(connection.peer(), introduction, MOMENT)?;
        Ok(Host { connection, welcome })
    }

    fn enter(daemon: &Daemon, store: &str, session: u8) -> Result<Host, CallError> {
        Host::introduced(&daemon.places()[0], &introduction(store, session))
    }

    fn ask<C: Call>(&self, request: &C) -> Result<C::Answer, CallError> {
        self.connection.peer().ask(request, MOMENT)
    }

    fn lock(&self) -> u64 {
        self.ask(&Lock { volume: 0 }).unwrap().token
    }

    fn write(&self, token: u64, handle: u64, name: FileName, data: &[u8]) -> Result<(), CallError> {
        self.ask(&Create { token, volume: 0, handle, name, bound: 0 })?;
        self.ask(&Append { token, handle, offset: 0, data: Rest(data.to_vec()) })?;
        self.ask(&WriterFinish { token, handle, written: data.len() as u64 })?;
        self.ask(&WriterDrop { token, handle }).map(drop)
    }

    fn read(&self, handle: u64, name: FileName) -> Result<Vec<u8>, CallError> {
        let bytes = self.ask(&Open { volume: 0, handle, name })?.bytes;
        Ok(self.ask(&Read { handle, ranges: vec![(0, bytes as u32)] })?.data.0)
    }
}

fn introduction(store: &str, session: u8) -> Introduction {
    let from = format!("client {session}");
    let payload_bytes_max = PeerOptions::default().payload_bytes_max;
    Introduction { store: store.to_owned(), session: [session; 16], from, secret: None, payload_bytes_max }
}

#[test]
fn without_a_secret_a_node_listens_on_its_own_machine_only() {
    let directory = tempfile::tempdir().unwrap();
    let open_to_all = Place::Tcp { host: "0.0.0.0".to_owned(), port: 0 };
    let refused = |options| Daemon::start(&Env::system(), options).err().unwrap().to_string();
    let error = refused(DaemonOptions { listen: vec![open_to_all.clone()], ..options(directory.path()) });
    assert!(error.contains("--secret-file"), "{error}");
    let secret = Some(Secret::new(b"0123456789abcdef").unwrap());
    start(DaemonOptions { listen: vec![open_to_all], secret, ..options(directory.path()) });
    assert!(refused(DaemonOptions { listen: Vec::new(), ..options(directory.path()) }).contains("listens"));
}

#[test]
fn only_who_knows_the_secret_is_let_in() {
    let directory = tempfile::tempdir().unwrap();
    let secret = |text: &str| Some(Secret::new(text.as_bytes()).unwrap());
    let listen = vec![Place::Tcp { host: "127.0.0.1".to_owned(), port: 0 }];
    let daemon = start(DaemonOptions { secret: secret("0123456789abcdef"), listen, ..options(directory.path()) });
    let enter = |secret| Host::introduced(&daemon.places()[0], &Introduction { secret, ..introduction("shop", 1) });
    for wrong in [secret("0123456789abcdeF"), None] {
        let refused = enter(wrong).err().unwrap();
        assert!(matches!(refused, CallError::Refused(_)), "{refused:?}");
    }
    enter(secret("0123456789abcdef")).unwrap().lock();
}

#[test]
fn files_are_written_and_read_and_two_stores_do_not_see_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = start(options(directory.path()));
    let shop = Host::enter(&daemon, "shop", 1).unwrap();
    assert!(shop.ask(&List { volume: 0, after: None }).unwrap().files.is_empty());
    assert!(shop.write(0, 1, TABLE, b"x").is_err(), "nobody has the lease");
    let token = shop.lock();
    shop.write(token, 1, TABLE, b"ada").unwrap();
    assert_eq!(shop.read(2, TABLE).unwrap(), b"ada");
    let stock = Host::enter(&daemon, "stock", 2).unwrap();
    assert!(matches!(stock.read(2, TABLE), Err(CallError::Storage(Error::NotFound { .. }))));
    stock.write(stock.lock(), 1, TABLE, b"bread").unwrap();
    assert_eq!(shop.read(3, TABLE).unwrap(), b"ada");
    assert!(matches!(shop.ask(&Open { volume: 3, handle: 9, name: TABLE }), Err(CallError::Unsupported(_))));
    let unknown = shop.ask(&Read { handle: 77, ranges: vec![(0, 1)] });
    assert!(matches!(unknown, Err(CallError::Unknown(_))));
    let health = shop.ask(&GetHealth {}).unwrap();
    assert!(health.ok && health.troubles.is_empty(), "{health:?}");
    let metrics = shop.ask(&GetMetrics {}).unwrap().message.0;
    let stores = [(metrics::Figure::Stores as u16).to_le_bytes().to_vec(), vec![8, 0, 2]].concat();
    assert!(metrics.windows(stores.len()).any(|at| at == stores), "two stores in {metrics:?}");
}

#[test]
fn many_appends_in_flight_arrive_in_their_order() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = start(options(directory.path()));
    let host = Host::enter(&daemon, "shop", 1).unwrap();
    let token = host.lock();
    host.ask(&Create { token, volume: 0, handle: 1, name: TABLE, bound: 0 }).unwrap();
    let (done, answers) = std::sync::mpsc::channel();
    for n in 0..500_u64 {
        let request = Append { token, handle: 1, offset: n * 1000, data: Rest(vec![n as u8; 1000]) };
        let done = done.clone();
        host.connection.peer().call_later(Append::OPERATION as u16, request.encode(), Some(MOMENT), move |answer| {
            done.send(answer).unwrap();
        });
    }
    for _ in 0..500 {
        answers.recv_timeout(MOMENT).unwrap().unwrap();
    }
    host.ask(&WriterFinish { token, handle: 1, written: 500_000 }).unwrap();
    let read = host.read(2, TABLE).unwrap();
    assert!(read.chunks(1000).enumerate().all(|(n, piece)| piece.iter().all(|byte| *byte == n as u8)));
}

#[test]
fn a_client_that_comes_back_goes_on_and_a_client_that_is_gone_is_succeeded() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = start(options(directory.path()));
    let before = Host::enter(&daemon, "shop", 1).unwrap();
    assert!(!before.welcome.session_known);
    let token = before.lock();
    before.ask(&Create { token, volume: 0, handle: 1, name: TABLE, bound: 0 }).unwrap();
    before.ask(&Append { token, handle: 1, offset: 0, data: Rest(b"ab".to_vec()) }).unwrap();
    drop(before);
    let after = Host::enter(&daemon, "shop", 1).unwrap();
    assert!(after.welcome.session_known);
    after.ask(&Append { token, handle: 1, offset: 1, data: Rest(b"bc".to_vec()) }).unwrap();
    after.ask(&WriterFinish { token, handle: 1, written: 3 }).unwrap();
    let other = Host::enter(&daemon, "shop", 2).unwrap();
    let refused = other.ask(&Lock { volume: 0 }).unwrap_err();
    assert!(refused.to_string().contains("client 1 has had it open since"), "{refused}");
    drop(after);
    let others = || lock(&daemon.shared.open).values().filter(|open| !open.connection.has_ended()).count();
    eventually("the node sees that the owner has gone", || others() == 1);
    // Waits for the rest of the term.
    assert!(other.lock() > token);
    let back = Host::enter(&daemon, "shop", 1).unwrap();
    assert!(matches!(back.ask(&Remove { token, volume: 0, name: TABLE }), Err(CallError::Fenced(_))));
    assert!(matches!(back.ask(&Renew { token }), Err(CallError::Fenced(_))));
    assert_eq!(back.read(2, TABLE).unwrap(), b"abc");
    let _ = other.ask(&Goodbye {});
    assert!(back.lock() > token, "who says goodbye gives the lease back");
}

#[test]
fn a_node_that_was_started_anew_knows_the_owner_and_no_writer() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = start(options(directory.path()));
    let before = Host::enter(&daemon, "shop", 1).unwrap();
    let token = before.lock();
    before.ask(&Create { token, volume: 0, handle: 1, name: TABLE, bound: 0 }).unwrap();
    before.ask(&Append { token, handle: 1, offset: 0, data: Rest(b"abc".to_vec()) }).unwrap();
    before.ask(&WriterSync { token, handle: 1, written: 3 }).unwrap();
    before.ask(&Append { token, handle: 1, offset: 3, data: Rest(b"d".to_vec()) }).unwrap();
    assert!(daemon.stop(MOMENT));
    assert!(before.ask(&GetHealth {}).unwrap_err().is_lost());
    let daemon = start(options(directory.path()));
    let after = Host::enter(&daemon, "shop", 1).unwrap();
    assert!(!after.welcome.session_known && after.welcome.daemon != before.welcome.daemon);
    assert_eq!(after.welcome.machine, before.welcome.machine);
    let append = Append { token, handle: 1, offset: 3, data: Rest(b"e".to_vec()) };
    assert!(matches!(after.ask(&append), Err(CallError::Unknown(_))));
    after.ask(&Resume { token, volume: 0, handle: 1, name: TABLE, written: 3 }).unwrap();
    after.ask(&append).unwrap();
    after.ask(&WriterFinish { token, handle: 1, written: 4 }).unwrap();
    assert_eq!(after.read(2, TABLE).unwrap(), b"abce");
}

#[test]
fn connections_are_bounded_and_their_places_are_given_back() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = start(DaemonOptions { connections_max: 2, ..options(directory.path()) });
    let first = Host::enter(&daemon, "shop", 1).unwrap();
    let _second = Host::enter(&daemon, "shop", 2).unwrap();
    assert!(Host::enter(&daemon, "shop", 3).is_err());
    drop(first);
    let deadline = std::time::Instant::now() + MOMENT;
    while Host::enter(&daemon, "shop", 3).is_err() {
        assert!(std::time::Instant::now() < deadline, "no place was given back");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_service_is_one_more_row_of_the_table() {
    struct Calls;

    impl Service for Calls {
        fn operations(&self) -> &'static [Operation] {
            &[Operation::GetLoad, Operation::GetMetrics]
        }

        fn request(&self, caller: &Arc<Caller>, operation: Operation, _: Vec<u8>, reply: Reply) {
            assert_eq!((caller.store(), caller.session()), ("", u128::from_be_bytes([1; 16])));
            assert!(caller.volume().is_err());
            match operation {
                Operation::GetMetrics => reply.tell(&Metrics { message: crate::fields::Bytes(b"seven".to_vec()) }),
                _ => caller.later(move || drop(reply)),
            }
        }
    }

    let directory = tempfile::tempdir().unwrap();
    let daemon = start(DaemonOptions { storage: None, services: vec![Arc::new(Calls)], ..options(directory.path()) });
    assert!(matches!(Host::enter(&daemon, "shop", 1), Err(CallError::Refused(_))), "it only computes");
    let host = Host::enter(&daemon, "", 1).unwrap();
    assert_eq!(host.ask(&GetMetrics {}).unwrap().message.0, b"seven");
    assert!(matches!(host.ask(&GetLoad {}), Err(CallError::Busy(_))), "a request that is dropped is answered");
    assert!(matches!(host.ask(&PollTasks {}), Err(CallError::Unsupported(_))));
    assert!(matches!(host.ask(&List { volume: 0, after: None }), Err(CallError::Unsupported(_))));
}

/// A disk whose page writes wait while a test says so, and which has not said so in [`PageFile::writes_wait`].
struct Stuck {
    below: DirectoryVolume,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

struct StuckPages {
    below: Arc<dyn PageFile>,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Stuck {
    fn hold(gate: &(Mutex<bool>, Condvar), is_held: bool) {
        *lock(&gate.0) = is_held;
        gate.1.notify_all();
    }

    fn pages(&self, below: Arc<dyn PageFile>) -> Arc<dyn PageFile> {
        Arc::new(StuckPages { below, gate: Arc::clone(&self.gate) })
    }
}

impl PageFile for StuckPages {
    fn path(&self) -> &str {
        self.below.path()
    }

    fn pages(&self) -> u64 {
        self.below.pages()
    }

    fn writes_wait(&self) -> bool {
        false
    }

    fn write(&self, first: u64, buffer: &Buffer, count: usize, durable: bool) -> Result<()> {
        drop(self.gate.1.wait_while(lock(&self.gate.0), |is_held| *is_held).unwrap());
        self.below.write(first, buffer, count, durable)
    }

    fn sync(&self) -> Result<()> {
        self.below.sync()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.below.read_at(offset, into)
    }
}

impl Volume for Stuck {
    fn location(&self) -> String {
        self.below.location()
    }

    fn create(&self, name: FileName, bound: u64) -> Result<Box<dyn Writer>> {
        self.below.create(name, bound)
    }

    fn open(&self, name: FileName) -> Result<Arc<dyn Reader>> {
        self.below.open(name)
    }

    fn create_pages(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        Ok(self.pages(self.below.create_pages(name, bytes)?))
    }

    fn open_pages(&self, name: FileName) -> Result<Arc<dyn PageFile>> {
        Ok(self.pages(self.below.open_pages(name)?))
    }

    fn replace(&self, name: FileName, contents: &[u8]) -> Result<()> {
        self.below.replace(name, contents)
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        self.below.rename(from, to)
    }

    fn remove(&self, name: FileName) -> Result<()> {
        self.below.remove(name)
    }

    fn sync_names(&self) -> Result<()> {
        self.below.sync_names()
    }

    fn list(&self) -> Result<Vec<FileMeta>> {
        self.below.list()
    }

    fn space(&self) -> Space {
        self.below.space()
    }

    fn lock(&self) -> Result<Box<dyn situ_storage::Lock>> {
        self.below.lock()
    }
}

/// Holds the page writes of a disk up. Dropped, it lets them go: a test that fails ends, too.
struct Hold(Arc<(Mutex<bool>, Condvar)>);

impl Drop for Hold {
    fn drop(&mut self) {
        Stuck::hold(&self.0, false);
    }
}

/// A node over a disk whose page writes can be held up.
fn stuck(options: DaemonOptions) -> (Daemon, Hold) {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let Some(Storage::Directory(directory)) = &options.storage else { panic!("not a directory") };
    let below = DirectoryVolume::create(directory).unwrap();
    let disk = Storage::Disk(Arc::new(Stuck { below, gate: Arc::clone(&gate) }));
    (start(DaemonOptions { storage: Some(disk), ..options }), Hold(gate))
}

const LOG: FileName = FileName::Log(1);

type Answered = std::result::Result<Vec<u8>, CallError>;

impl Host {
    /// Opens a page file for writing, under the number 1.
    fn create_log(&self, token: u64) {
        self.ask(&CreatePages { token, volume: 0, handle: 1, name: LOG, bytes: 1 << 20 }).unwrap();
    }

    /// Begins to write pages, and waits for no answer.
    fn write_later(&self, token: u64, pages: usize, durable: bool, answer: impl FnOnce(Answered) + Send + 'static) {
        let data = Rest(vec![1; pages * situ_storage::PAGE_BYTES]);
        let request = WritePages { token, handle: 1, first: 0, durable, data };
        self.connection.peer().call_later(WritePages::OPERATION as u16, request.encode(), Some(MOMENT), answer);
    }
}

/// An owner whose requests had used up its credit on a stalled disk could not renew its lease, and was fenced.
#[test]
fn an_owner_without_credit_on_a_stalled_disk_keeps_its_lease() {
    let directory = tempfile::tempdir().unwrap();
    let (daemon, gate) = stuck(options(directory.path()));
    let often = PeerOptions { heartbeat: Duration::from_millis(20), ..PeerOptions::default() };
    let owner = Host::with_options(&daemon.places()[0], &introduction("shop", 1), often).unwrap();
    let token = owner.lock();
    owner.create_log(token);
    Stuck::hold(&gate.0, true);
    let (done, answers) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        // All threads that the connection may have wait for the disk. Then the credit is used up, down to the last
        // request.
        let greedy = scope.spawn(|| {
            for _ in 0..120 {
                let done = done.clone();
                owner.write_later(token, 16, true, move |answer| done.send(answer).unwrap());
            }
            let short = GetSpace { volume: 0 }.encode();
            for _ in 0..600 {
                owner.connection.peer().call_later(GetSpace::OPERATION as u16, short.clone(), Some(MOMENT), drop);
            }
        });
        let renew = || owner.connection.peer().ask(&Renew { token }, Duration::from_millis(50));
        eventually("no credit is left", || matches!(renew(), Err(CallError::TimedOut { .. })));
        std::thread::sleep(Duration::from_millis(1000));
        let other = Host::enter(&daemon, "shop", 2).unwrap();
        let refused = other.ask(&Lock { volume: 0 }).unwrap_err();
        assert!(refused.to_string().contains("client 1 has had it open since"), "{refused}");
        assert!(!greedy.is_finished(), "there was credit");
        Stuck::hold(&gate.0, false);
    });
    for _ in 0..120 {
        answers.recv_timeout(MOMENT).unwrap().unwrap();
    }
    owner.ask(&Renew { token }).unwrap();
}

/// A change that hangs held up the reader thread of its client's next connection, and then the janitor, which joins
/// such threads: no place was given back any more.
#[test]
fn a_client_that_waits_for_its_own_hung_change_takes_nothing_from_others() {
    let directory = tempfile::tempdir().unwrap();
    let (daemon, gate) = stuck(DaemonOptions { connections_max: 2, ..options(directory.path()) });
    let owner = Host::enter(&daemon, "shop", 1).unwrap();
    let token = owner.lock();
    owner.create_log(token);
    Stuck::hold(&gate.0, true);
    let (done, answers) = std::sync::mpsc::channel();
    owner.write_later(token, 1, true, move |answer| done.send(answer).unwrap());
    eventually("the change hangs", || daemon.shared.pool.load().1 == 1);
    drop(owner);
    assert!(answers.recv_timeout(MOMENT).unwrap().is_err(), "the connection is lost");
    let enter = |session| {
        let stream = connect(&daemon.places()[0], None, MOMENT)?;
        let connection = begin(Side::Host, stream, &PeerOptions::default(), Arc::new(NoRequests));
        greet(connection.peer(), &introduction("shop", session), Duration::from_millis(300))
    };
    assert!(matches!(enter(1), Err(CallError::TimedOut { .. })), "its former change hangs");
    assert!(matches!(enter(1), Err(CallError::Busy(_))), "a session is let in by one thread at a time");
    for session in 2..8 {
        eventually("others come and go", || enter(session).is_ok());
    }
    Stuck::hold(&gate.0, false);
    eventually("the client is let in when its change has ended", || enter(1).is_ok());
}

/// Whoever reached the port took the places of hosts with connections that said nothing.
#[test]
fn connections_that_prove_nothing_take_no_place_of_clients() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = start(DaemonOptions { connections_max: 1, ..options(directory.path()) });
    let Place::Unix(path) = &daemon.places()[0] else { panic!("not a socket file") };
    let silent = || std::os::unix::net::UnixStream::connect(path).unwrap();
    let first = silent();
    let others: Vec<_> = (1..greetings::MOST).map(|_| silent()).collect();
    let host = Host::enter(&daemon, "shop", 1).unwrap();
    assert_eq!(std::io::Read::read(&mut &first, &mut [0]).unwrap(), 0, "the oldest one made room");
    let full = Host::enter(&daemon, "shop", 2).err().unwrap();
    assert!(matches!(&full, CallError::Busy(why) if why.contains("1 connections")), "{full}");
    host.lock();
    drop(others);
}

/// A buffered write runs on the thread that reads. One that the disk held up kept the node from reading heartbeats: the
/// lease ran out, and the node gave the connection up.
#[test]
fn an_owner_whose_write_holds_the_reader_thread_up_keeps_its_lease_and_its_connection() {
    let directory = tempfile::tempdir().unwrap();
    let peer = || PeerOptions {
        heartbeat: Duration::from_millis(50),
        silence_max: Duration::from_millis(1000),
        ..PeerOptions::default()
    };
    let (daemon, gate) = stuck(DaemonOptions { peer: peer(), ..options(directory.path()) });
    let owner = Host::with_options(&daemon.places()[0], &introduction("shop", 1), peer()).unwrap();
    let token = owner.lock();
    owner.create_log(token);
    Stuck::hold(&gate.0, true);
    // A write runs on the reader thread while its connection has no other request.
    eventually("no request is under way", || daemon.shared.pool.load() == (0, 0));
    let (done, answers) = std::sync::mpsc::channel();
    owner.write_later(token, 1, false, move |answer| done.send(answer).unwrap());
    let kept = || lock(&daemon.shared.open).values().map(|open| open.connection.peer().held_up_for()).max();
    eventually("the write has kept the reader thread for some terms", || kept().unwrap() > Duration::from_millis(2000));
    let other = Host::with_options(&daemon.places()[0], &introduction("shop", 2), peer()).unwrap();
    let refused = other.ask(&Lock { volume: 0 }).unwrap_err();
    assert!(refused.to_string().contains("client 1 has had it open since"), "{refused}");
    Stuck::hold(&gate.0, false);
    answers.recv_timeout(MOMENT).unwrap().unwrap();
    owner.ask(&Renew { token }).unwrap();
}
