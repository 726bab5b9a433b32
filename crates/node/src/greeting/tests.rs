use super::*;
use crate::message::{GetHealth, Stat};
use crate::peer::{Connection, PeerOptions, Stream};
use crate::testing::{Pipe, SOON, begin, certificates, echo, end, eventually};
use crate::transport::{Listener, ServerTls, TlsRoots, connect};
use crate::{Place, Side};
use std::sync::atomic::{AtomicUsize, Ordering};

fn secret(words: &str) -> Secret {
    Secret::new(words.as_bytes()).unwrap()
}

const RIGHT: &str = "a secret of enough bytes";

/// A door that lets everybody in who knows the secret, and answers with echoes.
struct Open(Option<Secret>);

impl Door for Open {
    fn secret(&self) -> Option<&Secret> {
        self.0.as_ref()
    }

    fn payload_bytes_max(&self) -> u32 {
        1 << 20
    }

    fn enter(&self, _: &Peer, hello: &Hello) -> Result<(Welcome, Arc<dyn Handler>), CallError> {
        if hello.store == "full" {
            return Err(CallError::Refused("no more stores fit here".to_owned()));
        }
        let welcome = Welcome {
            proof: [0; 32],
            daemon: [1; 16],
            machine: [2; 16],
            session_known: false,
            stores: true,
            session_ms: 1,
            location: String::new(),
            from: hello.from.clone(),
        };
        Ok((welcome, echo()))
    }
}

fn introduction(secret: Option<Secret>) -> Introduction {
    Introduction {
        store: "test".to_owned(),
        session: [7; 16],
        from: "a test".to_owned(),
        secret,
        payload_bytes_max: 1 << 20,
    }
}

struct Ends {
    host: Connection,
    device: Connection,
    keeper: Arc<Doorkeeper>,
}

fn ends(of_node: Option<Secret>, to_host: Stream, to_device: Stream) -> Ends {
    let keeper = Arc::new(Doorkeeper::new(Arc::new(Open(of_node))));
    let options = PeerOptions::default();
    let device = begin(Side::Device, to_host, &options, Arc::clone(&keeper) as Arc<dyn Handler>);
    Ends { host: begin(Side::Host, to_device, &options, Arc::new(NoRequests)), device, keeper }
}

fn in_memory(of_node: Option<Secret>) -> Ends {
    let (to_host, to_device) = (Pipe::default(), Pipe::default());
    ends(of_node, end("host test", &to_device, &to_host), end("node test", &to_host, &to_device))
}

fn refusal(result: Result<Welcome, CallError>) -> String {
    match result {
        Err(CallError::Refused(words)) => words,
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_knows_the_secret_is_let_in_and_nobody_else() {
    let right = in_memory(Some(secret(RIGHT)));
    assert!(!right.keeper.has_entered());
    let welcome = greet(right.host.peer(), &introduction(Some(secret(RIGHT))), SOON).unwrap();
    assert_eq!((welcome.from.as_str(), right.keeper.has_entered()), ("a test", true));
    // Long payloads pass from now on.
    let long = vec![5; 1 << 20];
    assert_eq!(right.host.peer().call(Operation::Read as u16, long.clone(), SOON).unwrap(), long);

    let open = in_memory(None);
    greet(open.host.peer(), &introduction(None), SOON).unwrap();

    let wrong = in_memory(Some(secret(RIGHT)));
    let words = refusal(greet(wrong.host.peer(), &introduction(Some(secret("a secret of other bytes."))), SOON));
    assert!(words.contains("does not know the node's secret"), "{words}");
    assert!(!wrong.keeper.has_entered());
    let again = wrong.host.peer().ask(&GetHealth {}, SOON).unwrap_err();
    assert!(matches!(again, CallError::Refused(_)), "{again}");
    // No second guess on one connection.
    let words = refusal(greet(wrong.host.peer(), &introduction(Some(secret(RIGHT))), SOON));
    assert!(words.contains("connect again"), "{words}");
}

#[test]
fn one_that_has_no_secret_and_one_that_wants_none_do_not_get_on() {
    let ends = in_memory(Some(secret(RIGHT)));
    let words = refusal(greet(ends.host.peer(), &introduction(None), SOON));
    assert!(words.contains("wants a secret"), "{words}");
    let ends = in_memory(None);
    let words = refusal(greet(ends.host.peer(), &introduction(Some(secret(RIGHT))), SOON));
    assert!(words.contains("asks for no secret"), "{words}");
}

#[test]
fn nothing_is_answered_before_the_greeting() {
    let ends = in_memory(None);
    let stat = Stat { volume: 0, name: situ_storage::FileName::Current };
    assert!(matches!(ends.host.peer().ask(&stat, SOON), Err(CallError::Refused(words)) if words.contains("hello")));
    let proved = ends.host.peer().ask(&Prove { proof: [0; 32] }, SOON);
    assert!(matches!(proved, Err(CallError::Refused(_))), "a proof without a greeting");
    drop(ends.device);
}

#[test]
fn versions_that_do_not_meet_are_refused_by_both_ends() {
    let hello = |version_min, version_max| Hello {
        version_min,
        version_max,
        store: String::new(),
        session: [0; 16],
        nonce: [0; 32],
        payload_bytes_max: 0,
        from: String::new(),
    };
    let say = |min, max| in_memory(None).host.peer().ask(&hello(min, max), SOON);
    assert!(matches!(say(99, 100), Err(CallError::Refused(words)) if words.contains("99 to 100")));
    assert!(matches!(say(0, 0), Err(CallError::Refused(_))));
    assert_eq!(say(1, 100).unwrap().version, VERSION_MAX);
    // A node that chooses what the host does not speak.
    let (to_host, to_device) = (Pipe::default(), Pipe::default());
    let answer = Challenge { version: 9, secret: false, nonce: [0; 32], payload_bytes_max: 0 };
    let chooses = crate::testing::Asked(move |_: &Peer, _, _, reply: Reply| reply.tell(&answer));
    let options = PeerOptions::default();
    let _device = begin(Side::Device, end("host test", &to_device, &to_host), &options, Arc::new(chooses));
    let host = begin(Side::Host, end("node test", &to_host, &to_device), &options, Arc::new(NoRequests));
    let words = refusal(greet(host.peer(), &introduction(None), SOON));
    assert!(words.contains("version 9"), "{words}");
}

#[test]
fn a_node_that_passes_the_host_s_proof_on_cannot_prove_itself() {
    // It answers the proof with a welcome, and has no proof of its own: the host's own, sent back.
    let (to_host, to_device) = (Pipe::default(), Pipe::default());
    let challenge = Challenge { version: 1, secret: true, nonce: [3; 32], payload_bytes_max: 0 };
    let imposter = crate::testing::Asked(move |_: &Peer, operation, payload: Vec<u8>, reply: Reply| {
        if operation == Operation::Hello as u16 {
            return reply.tell(&challenge);
        }
        let proof = Prove::decode(&payload).unwrap().proof;
        let door = Open(None);
        let hello = Hello::decode(&hello_bytes()).unwrap();
        let (welcome, _) = door.enter(&reply.peer(), &hello).unwrap();
        reply.tell(&Welcome { proof, ..welcome });
    });
    let options = PeerOptions::default();
    let _device = begin(Side::Device, end("host test", &to_device, &to_host), &options, Arc::new(imposter));
    let host = begin(Side::Host, end("node test", &to_host, &to_device), &options, Arc::new(NoRequests));
    let words = refusal(greet(host.peer(), &introduction(Some(secret(RIGHT))), SOON));
    assert!(words.contains("not the node that it should be"), "{words}");
    assert!(host.peer().lost().is_some());
}

fn hello_bytes() -> Vec<u8> {
    Hello {
        version_min: 1,
        version_max: 1,
        store: String::new(),
        session: [0; 16],
        nonce: [0; 32],
        payload_bytes_max: 0,
        from: String::new(),
    }
    .encode()
}

#[test]
fn a_store_that_the_node_does_not_take_is_refused_with_its_words() {
    let ends = in_memory(None);
    let words =
        refusal(greet(ends.host.peer(), &Introduction { store: "full".to_owned(), ..introduction(None) }, SOON));
    assert_eq!(words, "no more stores fit here");
}

/// Both ends of a connection over a socket, in TLS if `tls` is given.
fn over_sockets(place: &Place, tls: Option<(ServerTls, TlsRoots)>) -> Result<Ends, CallError> {
    let listener = Listener::bind(place).unwrap();
    let (server, roots) = tls.unzip();
    let server = server.map(Arc::new);
    let at = listener.place().unwrap();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap().open(server.as_ref(), SOON));
        let to_device = connect(&at, roots.as_ref(), SOON);
        let to_host = accepted.join().unwrap();
        let to_device = to_device?;
        Ok(ends(Some(secret(RIGHT)), to_host?, to_device))
    })
}

fn loopback() -> Place {
    Place::Tcp { host: "127.0.0.1".to_owned(), port: 0 }
}

#[test]
fn sockets_of_all_kinds_carry_both_directions_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let unix = || Place::Unix(directory.path().join("socket"));
    let tls = || certificates(directory.path());
    for (place, tls) in [(loopback(), None), (unix(), None), (loopback(), Some(tls())), (unix(), Some(tls()))] {
        let is_tls = tls.is_some();
        let ends = over_sockets(&place, tls).unwrap();
        assert_eq!(ends.host.peer().binding(), ends.device.peer().binding());
        assert_eq!(ends.host.peer().binding().len(), if is_tls { 32 } else { 0 });
        greet(ends.host.peer(), &introduction(Some(secret(RIGHT))), SOON).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let peer = ends.host.peer();
                scope.spawn(move || {
                    for bytes in [0, 1, 1000, 70_000, 1 << 20] {
                        let payload = vec![thread; bytes];
                        let answer = peer.call(Operation::Read as u16, payload.clone(), SOON).unwrap();
                        assert!(answer == payload, "{bytes} bytes");
                    }
                });
            }
        });
        drop(ends.device);
        eventually("the other end sees it", || ends.host.peer().lost().is_some());
    }
}

#[test]
fn a_certificate_that_the_host_does_not_believe_is_refused() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (server, _) = certificates(one.path());
    let (_, roots) = certificates(other.path());
    let error = over_sockets(&loopback(), Some((server, roots))).err().unwrap();
    assert!(matches!(&error, CallError::Refused(words) if words.contains("TLS")), "{error}");
}

#[test]
fn nobody_at_an_address_and_files_that_are_no_certificates_are_errors_with_words() {
    let listener = Listener::bind(&loopback()).unwrap();
    let place = listener.place().unwrap();
    drop(listener);
    let error = connect(&place, None, SOON).err().unwrap().to_string();
    assert!(error.contains(&place.to_string()), "{error}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("empty.pem");
    std::fs::write(&path, "nothing").unwrap();
    assert!(TlsRoots::read(&path).unwrap_err().to_string().contains("empty.pem"));
}

#[test]
fn a_socket_file_is_replaced_if_nobody_listens_and_kept_if_somebody_does() {
    let directory = tempfile::tempdir().unwrap();
    let place = Place::Unix(directory.path().join("socket"));
    let first = Listener::bind(&place).unwrap();
    assert!(Listener::bind(&place).err().unwrap().to_string().contains("another process"));
    // As a daemon that was killed leaves it.
    first.wake();
    std::mem::forget(first);
    let second = Listener::bind(&place);
    assert!(second.is_ok(), "{:?}", second.err());
}

/// A door that lets hosts in when the test says so, and counts those whose connection is lost.
#[derive(Default)]
struct Slow {
    entries: Mutex<Vec<Entry>>,
    lost: Arc<AtomicUsize>,
}

struct CountsLost(Arc<AtomicUsize>);

impl Handler for CountsLost {
    fn request(&self, _: &Peer, _: u16, payload: Vec<u8>, reply: Reply) {
        reply.answer(payload);
    }

    fn lost(&self, _: &Peer, _: &CallError) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Door for Slow {
    fn secret(&self) -> Option<&Secret> {
        None
    }

    fn payload_bytes_max(&self) -> u32 {
        1 << 20
    }

    fn begin_entry(&self, _: &Hello, entry: Entry) {
        lock(&self.entries).push(entry);
    }

    fn enter(&self, peer: &Peer, hello: &Hello) -> Result<(Welcome, Arc<dyn Handler>), CallError> {
        let (welcome, _) = Open(None).enter(peer, hello)?;
        Ok((welcome, Arc::new(CountsLost(Arc::clone(&self.lost)))))
    }
}

#[test]
fn a_host_that_is_let_in_late_is_lost_once_also_if_its_connection_was_lost_before() {
    for is_lost_before in [true, false] {
        let door = Arc::new(Slow::default());
        let keeper = Arc::new(Doorkeeper::new(Arc::clone(&door) as Arc<dyn Door>));
        let (to_host, to_device) = (Pipe::default(), Pipe::default());
        let (at_host, at_device) = (end("node test", &to_host, &to_device), end("host test", &to_device, &to_host));
        let options = PeerOptions::default();
        let device = begin(Side::Device, at_device, &options, Arc::clone(&keeper) as Arc<dyn Handler>);
        let host = begin(Side::Host, at_host, &options, Arc::new(NoRequests));
        std::thread::scope(|scope| {
            let greeted = scope.spawn(|| greet(host.peer(), &introduction(None), SOON));
            eventually("the host waits at the door", || lock(&door.entries).len() == 1);
            let entry = lock(&door.entries).pop().unwrap();
            assert!(!keeper.has_entered());
            if is_lost_before {
                host.peer().hang_up("gone");
                eventually("the node sees it", || device.peer().lost().is_some());
                eventually("its threads have ended", || device.has_ended());
            }
            entry();
            assert_eq!(greeted.join().unwrap().is_ok(), !is_lost_before);
        });
        assert_eq!(keeper.has_entered(), !is_lost_before);
        drop((host, device));
        assert_eq!(door.lost.load(Ordering::SeqCst), 1);
    }
}

/// A node that was just being stopped, or was not ready yet, was once taken for one that refuses TLS for good.
#[test]
fn a_node_that_ends_in_the_handshake_is_lost_and_refuses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (_, roots) = certificates(directory.path());
    let listener = Listener::bind(&loopback()).unwrap();
    let place = listener.place().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(listener.accept().unwrap()));
        let error = connect(&place, Some(&roots), SOON).err().unwrap();
        assert!(error.is_lost() && error.to_string().contains("TLS"), "{error:?}");
    });
    // Nobody answers at all.
    let began = std::time::Instant::now();
    let error = connect(&place, Some(&roots), SOON / 100).err().unwrap();
    assert!(error.is_lost() && error.to_string().contains("does not answer"), "{error:?}");
    assert!(began.elapsed() < SOON);
}

/// Each read had a timeout, and all of them together had none: a byte now and then held a node's thread for ever.
#[test]
fn a_handshake_of_a_byte_now_and_then_ends_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let (server, _) = certificates(directory.path());
    let server = Arc::new(server);
    let listener = Listener::bind(&loopback()).unwrap();
    let Place::Tcp { port, .. } = listener.place().unwrap() else { panic!("no port") };
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap().open(Some(&server), Duration::from_millis(400)));
        let mut socket = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let began = std::time::Instant::now();
        // The beginning of a record of 16 KiB that never ends.
        let mut bytes = [0x16, 3, 1, 0x40, 0].into_iter().chain(std::iter::repeat(1));
        while !accepted.is_finished() && began.elapsed() < SOON {
            // The node may have closed it.
            let _ = std::io::Write::write_all(&mut socket, &[bytes.next().unwrap()]);
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(began.elapsed() < SOON, "the handshake goes on");
        let error = accepted.join().unwrap().err().unwrap();
        assert!(error.is_lost(), "{error:?}");
    });
}

/// A connection to a stopped node with a full queue of connections once held the thread of the host that connects, and
/// closing the store.
#[test]
fn a_node_that_accepts_no_connection_does_not_answer() {
    let directory = tempfile::tempdir().unwrap();
    let place = Place::Unix(directory.path().join("socket"));
    let listener = Listener::bind(&place).unwrap();
    if let Listener::Unix(listener, _) = &listener {
        rustix::net::listen(listener, 1).unwrap();
    }
    let began = std::time::Instant::now();
    let mut connected = Vec::new();
    let error = loop {
        match connect(&place, None, Duration::from_millis(200)) {
            Ok(stream) => connected.push(stream),
            Err(error) => break error,
        }
        assert!(connected.len() < 10, "the queue is never full");
    };
    assert!(error.is_lost() && error.to_string().contains("does not answer"), "{error:?}");
    assert!(began.elapsed() < SOON);
    let taken = Listener::bind(&place).err().unwrap().to_string();
    assert!(taken.contains("another process"), "{taken}");
}
