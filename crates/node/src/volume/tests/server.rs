//! A node for the client's tests: one directory, one worker a connection, and connections that are cut where a test
//! says.

use crate::error::CallError;
use crate::fields::Rest;
use crate::greeting::{Door, Doorkeeper};
use crate::message::*;
use crate::peer::{Connection, Handler, Peer, PeerOptions, Reply, Traffic};
use crate::secret::{Secret, random};
use crate::transport::{Listener, ServerTls};
use crate::{NodeAddress, Place, Side};
use situ_base::{Env, lock};
use situ_device::{Buffer, PAGE_BYTES};
use situ_storage::{DirectoryVolume, Error, FileName, PageFile, Reader, Volume, Writer};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Where a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// The request is not done.
    Before,
    /// The request is done, and not answered.
    After,
    /// The daemon is restarted after the request was done; it is not answered.
    Restart,
}

#[derive(Default)]
struct Session {
    readers: HashMap<u64, Arc<dyn Reader>>,
    pages: HashMap<u64, Arc<dyn PageFile>>,
    /// The page that was written last, by file and number.
    images: HashMap<(u64, u64), Vec<u8>>,
    writers: HashMap<u64, Option<Box<dyn Writer>>>,
}

impl Session {
    fn keep_image(&mut self, file: u64, first: u64, pages: &[u8]) {
        let last = first + (pages.len() / PAGE_BYTES) as u64 - 1;
        self.images.insert((file, last), pages[pages.len() - PAGE_BYTES..].to_vec());
    }
}

/// What a page file had in a page before it was written.
type Before = (Arc<dyn PageFile>, Vec<u8>);

pub(super) struct Node {
    volume: DirectoryVolume,
    /// Pages that the machine's memory has and its disk does not, by the file's path and their number.
    buffered: Mutex<HashMap<(String, u64), Before>>,
    pub(super) secret: Option<Secret>,
    tls: Option<Arc<ServerTls>>,
    sessions: Mutex<HashMap<[u8; 16], Session>>,
    /// The newest token, and the session that has the lease.
    lease: Mutex<(u64, Option<[u8; 16]>)>,
    daemon: Mutex<[u8; 16]>,
    machine: Mutex<[u8; 16]>,
    pub(super) plan: Mutex<Option<(Operation, Cut)>>,
    /// The operations in the order in which they came.
    pub(super) seen: Mutex<Vec<Operation>>,
    pub(super) lease_ms: u32,
    pub(super) payload_bytes_max: u32,
    connections: Mutex<Vec<Connection>>,
    is_closed: AtomicBool,
}

/// A node that listens.
pub(super) struct TestNode {
    pub(super) node: Arc<Node>,
    pub(super) address: NodeAddress,
    listening: Option<(Arc<Listener>, JoinHandle<()>)>,
}

impl TestNode {
    pub(super) fn start(directory: &Path) -> TestNode {
        let place = Place::Unix(directory.join("socket"));
        TestNode::start_at(directory, &place, None, None)
    }

    pub(super) fn start_at(
        directory: &Path,
        place: &Place,
        secret: Option<Secret>,
        tls: Option<ServerTls>,
    ) -> TestNode {
        let node = Arc::new(Node {
            volume: DirectoryVolume::create(directory.join("files")).unwrap(),
            buffered: Mutex::default(),
            secret,
            tls: tls.map(Arc::new),
            sessions: Mutex::default(),
            lease: Mutex::default(),
            daemon: Mutex::new(random().unwrap()),
            machine: Mutex::new(random().unwrap()),
            plan: Mutex::default(),
            seen: Mutex::default(),
            lease_ms: 10_000,
            payload_bytes_max: PeerOptions::default().payload_bytes_max,
            connections: Mutex::default(),
            is_closed: AtomicBool::new(false),
        });
        let address = NodeAddress { place: place.clone(), store: "test".to_owned() };
        let mut test = TestNode { node, address, listening: None };
        test.listen();
        test
    }

    pub(super) fn listen(&mut self) {
        let listener = Arc::new(Listener::bind(&self.address.place).unwrap());
        self.address.place = listener.place().unwrap();
        self.node.is_closed.store(false, Ordering::Relaxed);
        let (node, accepting) = (Arc::clone(&self.node), Arc::clone(&listener));
        let thread = std::thread::spawn(move || {
            while let Ok(accepted) = accepting.accept() {
                if node.is_closed.load(Ordering::Relaxed) {
                    return;
                }
                // A host whose greeting fails has been told.
                let Ok(stream) = accepted.open(node.tls.as_ref(), Duration::from_secs(5)) else { continue };
                let door: Arc<dyn Door> = Arc::new(TestDoor(Arc::clone(&node)));
                let keeper = Arc::new(Doorkeeper::new(door));
                let (env, traffic) = (Env::system(), Arc::new(Traffic::default()));
                let options = PeerOptions { payload_bytes_max: node.payload_bytes_max, ..PeerOptions::default() };
                let connection = Connection::begin(&env, Side::Device, stream, options, keeper, traffic).unwrap();
                lock(&node.connections).push(connection);
            }
        });
        self.listening = Some((listener, thread));
    }

    /// Nobody listens any more. Sessions stay.
    pub(super) fn stop(&mut self) {
        if let Some((listener, thread)) = self.listening.take() {
            self.node.is_closed.store(true, Ordering::Relaxed);
            listener.wake();
            thread.join().unwrap();
        }
        self.cut();
    }

    /// All connections are lost.
    pub(super) fn cut(&self) {
        let connections = std::mem::take(&mut *lock(&self.node.connections));
        drop(connections);
    }

    /// The daemon is restarted.
    pub(super) fn restart(&self) {
        self.node.forget();
        self.cut();
    }

    /// The machine is restarted: pages that were not synced are lost.
    pub(super) fn restart_machine(&self) {
        let sessions = lock(&self.node.sessions);
        *lock(&self.node.machine) = random().unwrap();
        for ((_, page), (pages, before)) in lock(&self.node.buffered).drain() {
            pages.write(page, &Buffer::copy_of(&before), 1, true).unwrap();
        }
        drop(sessions);
        self.restart();
    }

    pub(super) fn cut_at(&self, operation: Operation, cut: Cut) {
        *lock(&self.node.plan) = Some((operation, cut));
    }

    /// Files that clients write here, finished ones included.
    pub(super) fn writers(&self) -> usize {
        lock(&self.node.sessions).values().map(|open| open.writers.len()).sum()
    }

    pub(super) fn count(&self, operation: Operation) -> usize {
        lock(&self.node.seen).iter().filter(|seen| **seen == operation).count()
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.stop();
    }
}

struct TestDoor(Arc<Node>);

impl Door for TestDoor {
    fn secret(&self) -> Option<&Secret> {
        self.0.secret.as_ref()
    }

    fn payload_bytes_max(&self) -> u32 {
        self.0.payload_bytes_max
    }

    fn enter(&self, _: &Peer, hello: &Hello) -> Result<(Welcome, Arc<dyn Handler>), CallError> {
        let node = Arc::clone(&self.0);
        let session_known = lock(&node.sessions).contains_key(&hello.session);
        lock(&node.sessions).entry(hello.session).or_default();
        let welcome = Welcome {
            proof: [0; 32],
            daemon: *lock(&node.daemon),
            machine: *lock(&node.machine),
            session_known,
            stores: true,
            session_ms: 60_000,
            location: node.volume.location(),
            from: "a test".to_owned(),
        };
        let (sender, requests) = mpsc::channel::<Request>();
        let (session, machine) = (hello.session, welcome.machine);
        std::thread::spawn(move || {
            while let Ok((operation, payload, reply)) = requests.recv() {
                // No connection outlives the machine.
                match *lock(&node.machine) == machine {
                    true => node.serve(session, operation, &payload, reply),
                    false => reply.peer().hang_up("the machine was restarted"),
                }
            }
        });
        Ok((welcome, Arc::new(Queue(Mutex::new(sender)))))
    }
}

type Request = (u16, Vec<u8>, Reply);

struct Queue(Mutex<mpsc::Sender<Request>>);

impl Handler for Queue {
    fn request(&self, _: &Peer, operation: u16, payload: Vec<u8>, reply: Reply) {
        // The worker ends with this queue.
        let _ = lock(&self.0).send((operation, payload, reply));
    }
}

fn unknown<T>() -> Result<T, CallError> {
    Err(CallError::Unknown("no such file is open".to_owned()))
}

impl Node {
    fn forget(&self) {
        lock(&self.sessions).clear();
        *lock(&self.daemon) = random().unwrap();
    }

    fn write_pages(&self, pages: &Arc<dyn PageFile>, first: u64, data: &[u8], durable: bool) -> Result<(), CallError> {
        let mut buffered = lock(&self.buffered);
        for page in first..first + (data.len() / PAGE_BYTES) as u64 {
            let key = (pages.path().to_owned(), page);
            if durable {
                buffered.remove(&key);
            } else if let Entry::Vacant(vacant) = buffered.entry(key) {
                let mut before = vec![0; PAGE_BYTES];
                pages.read_at(page * PAGE_BYTES as u64, &mut before)?;
                vacant.insert((Arc::clone(pages), before));
            }
        }
        Ok(pages.write(first, &Buffer::copy_of(data), data.len() / PAGE_BYTES, durable)?)
    }

    /// A name is another file's from now on.
    fn renamed(&self, name: FileName) {
        lock(&self.buffered).retain(|(path, _), _| !path.ends_with(&name.to_string()));
    }

    fn serve(&self, session: [u8; 16], number: u16, payload: &[u8], reply: Reply) {
        let operation = Operation::of(number).unwrap();
        lock(&self.seen).push(operation);
        let planned = lock(&self.plan).take_if(|(at, _)| *at == operation).map(|(_, cut)| cut);
        if planned == Some(Cut::Before) {
            return reply.peer().hang_up("cut before");
        }
        let answer = self.run(session, operation, payload);
        if planned == Some(Cut::Restart) {
            self.forget();
        }
        match (planned, answer) {
            (Some(_), _) => reply.peer().hang_up("cut after"),
            (None, Ok(answer)) => reply.answer(answer),
            (None, Err(error)) => reply.fail(&error),
        }
    }

    fn check(&self, token: u64) -> Result<(), CallError> {
        match *lock(&self.lease) {
            (newest, Some(_)) if token == newest => Ok(()),
            (_, None) if token == 0 => Ok(()),
            _ => Err(CallError::Fenced("another host has the lease".to_owned())),
        }
    }

    /// Gives the lease to nobody that the test knows of.
    pub(super) fn give_lease_away(&self) {
        let mut lease = lock(&self.lease);
        *lease = (lease.0 + 1, Some([9; 16]));
    }

    fn run(&self, session: [u8; 16], operation: Operation, payload: &[u8]) -> Result<Vec<u8>, CallError> {
        let mut sessions = lock(&self.sessions);
        let open = sessions.entry(session).or_default();
        let done = Ok(Done {}.encode());
        match operation {
            Operation::Lock => {
                let mut lease = lock(&self.lease);
                match lease.1 {
                    Some(holder) if holder != session => {
                        let why = Some("another session has it".to_owned());
                        return Err(Error::Locked { path: "LOCK".to_owned(), why }.into());
                    }
                    Some(_) => {}
                    None => *lease = (lease.0 + 1, Some(session)),
                }
                Ok(Lease { token: lease.0, ttl_ms: self.lease_ms }.encode())
            }
            Operation::Renew => {
                let token = Renew::decode(payload)?.token;
                self.check(token)?;
                Ok(Lease { token, ttl_ms: self.lease_ms }.encode())
            }
            Operation::Unlock => {
                let mut lease = lock(&self.lease);
                if lease.0 == Unlock::decode(payload)?.token {
                    lease.1 = None;
                }
                done
            }
            Operation::Goodbye => {
                sessions.remove(&session);
                done
            }
            Operation::Keep => {
                let keep = Keep::decode(payload)?.handles;
                open.readers.retain(|handle, _| keep.contains(handle));
                open.pages.retain(|handle, _| keep.contains(handle));
                done
            }
            Operation::Close => {
                let handle = Close::decode(payload)?.handle;
                open.readers.remove(&handle);
                open.pages.remove(&handle);
                done
            }
            Operation::Prefetch => done,
            number if (0x20..0x30).contains(&(number as u16)) => self.about_volume(operation, payload),
            number if (0x30..0x40).contains(&(number as u16)) => self.write(open, operation, payload),
            number if (0x60..0x70).contains(&(number as u16)) => self.change_names(operation, payload),
            _ => self.read_or_pages(open, operation, payload),
        }
    }

    fn about_volume(&self, operation: Operation, payload: &[u8]) -> Result<Vec<u8>, CallError> {
        Ok(match operation {
            Operation::List => {
                // Short listings, so that clients have to ask again.
                let after = List::decode(payload)?.after;
                let mut files: Vec<_> = self.volume.list()?.iter().map(|meta| (meta.name, meta.bytes)).collect();
                files.retain(|(name, _)| after.is_none_or(|after| *name > after));
                let more = files.len() > 2;
                files.truncate(2);
                Listing { files, more }.encode()
            }
            Operation::Stat => {
                let name = Stat::decode(payload)?.name;
                let bytes = self.volume.list()?.iter().find(|meta| meta.name == name).map(|meta| meta.bytes);
                Found { bytes }.encode()
            }
            Operation::GetSpace => {
                let space = self.volume.space();
                let (logical_total, logical_used) = (space.logical_total, space.logical_used);
                Room { logical_total, logical_used, physical_used: None }.encode()
            }
            Operation::GetLogRoom => LogRoom { total_and_used: None, physical_used: None }.encode(),
            Operation::GetGeometry => GeometryAnswer {
                known: false,
                block_bytes: 0,
                atomic_write_bytes: 0,
                max_transfer_bytes: 0,
                volatile_write_cache: false,
                discard_bytes: 0,
                discard_zeroes: false,
            }
            .encode(),
            Operation::GetTroubles => Troubles { troubles: vec!["a squeaking fan".to_owned()] }.encode(),
            Operation::GetFailure => Failure { error: None }.encode(),
            _ => Tidied { more: false }.encode(),
        })
    }

    fn write(&self, open: &mut Session, operation: Operation, payload: &[u8]) -> Result<Vec<u8>, CallError> {
        let done = Ok(Done {}.encode());
        if operation == Operation::Create {
            let Create { token, handle, name, bound, .. } = Create::decode(payload)?;
            self.check(token)?;
            if let Entry::Vacant(vacant) = open.writers.entry(handle) {
                vacant.insert(Some(self.volume.create(name, bound)?));
            }
            return Ok(Opened { bytes: 0, writes_wait: false, path: name.to_string() }.encode());
        }
        if operation == Operation::Resume {
            let Resume { token, handle, name, written, .. } = Resume::decode(payload)?;
            self.check(token)?;
            if open.writers.contains_key(&handle) {
                return Ok(Opened { bytes: written, writes_wait: false, path: name.to_string() }.encode());
            }
            let mut front = vec![0; written as usize];
            self.volume.open(name)?.read_at(0, &mut front)?;
            self.volume.remove(name)?;
            let mut writer = self.volume.create(name, 0)?;
            writer.append(&front)?;
            writer.sync()?;
            open.writers.insert(handle, Some(writer));
            return Ok(Opened { bytes: written, writes_wait: false, path: name.to_string() }.encode());
        }
        if operation == Operation::Append {
            let Append { token, handle, offset, data: Rest(data) } = Append::decode(payload)?;
            self.check(token)?;
            let Some(slot) = open.writers.get_mut(&handle) else { return unknown() };
            // All that a finished file may be asked to append is there.
            let Some(writer) = slot else { return done };
            let Some(known) = writer.written().checked_sub(offset) else {
                return Err(Error::Invalid(format!("a gap at {offset}")).into());
            };
            writer.append(data.get(known as usize..).unwrap_or_default())?;
            return done;
        }
        // The three that settle have the same fields; giving up has no length.
        let is_drop = operation == Operation::WriterDrop;
        let padded = if is_drop { [payload, &[0; 8]].concat() } else { payload.to_vec() };
        let WriterSync { token, handle, written } = WriterSync::decode(&padded)?;
        self.check(token)?;
        if is_drop {
            open.writers.remove(&handle);
            return done;
        }
        let Some(slot) = open.writers.get_mut(&handle) else { return unknown() };
        let Some(writer) = slot else { return done };
        assert_eq!(writer.written(), written, "all appends have come before");
        match operation {
            Operation::WriterSync => writer.sync()?,
            Operation::WriterFlush => writer.flush()?,
            _ => slot.take().map_or(Ok(()), Writer::finish)?,
        }
        done
    }

    fn read_or_pages(&self, open: &mut Session, operation: Operation, payload: &[u8]) -> Result<Vec<u8>, CallError> {
        let done = Ok(Done {}.encode());
        let opened = |pages: &Arc<dyn PageFile>| {
            let bytes = pages.pages() * PAGE_BYTES as u64;
            Ok(Opened { bytes, writes_wait: pages.writes_wait(), path: pages.path().to_owned() }.encode())
        };
        match operation {
            Operation::Open => {
                let Open { handle, name, .. } = Open::decode(payload)?;
                let reader = self.volume.open(name)?;
                let answer = Opened { bytes: reader.bytes(), writes_wait: false, path: reader.path().to_owned() };
                open.readers.insert(handle, reader);
                Ok(answer.encode())
            }
            Operation::Read => {
                let Read { handle, ranges } = Read::decode(payload)?;
                let Some(reader) = open.readers.get(&handle) else { return unknown() };
                let mut data = Vec::new();
                for (offset, bytes) in ranges {
                    let mut range = vec![0; bytes as usize];
                    reader.read_at(offset, &mut range)?;
                    data.extend(range);
                }
                Ok(ReadBytes { data: Rest(data) }.encode())
            }
            Operation::CreatePages => {
                let CreatePages { token, handle, name, bytes, .. } = CreatePages::decode(payload)?;
                self.check(token)?;
                if let Entry::Vacant(vacant) = open.pages.entry(handle) {
                    vacant.insert(self.volume.create_pages(name, bytes)?);
                }
                opened(&open.pages[&handle])
            }
            Operation::OpenPages => {
                let OpenPages { handle, name, .. } = OpenPages::decode(payload)?;
                open.pages.insert(handle, self.volume.open_pages(name)?);
                opened(&open.pages[&handle])
            }
            Operation::WritePages => {
                let WritePages { token, handle, first, durable, data: Rest(data) } = WritePages::decode(payload)?;
                self.check(token)?;
                let Some(pages) = open.pages.get(&handle) else { return unknown() };
                self.write_pages(pages, first, &data, durable)?;
                open.keep_image(handle, first, &data);
                done
            }
            Operation::PatchPages => {
                let patch = PatchPages::decode(payload)?;
                self.check(patch.token)?;
                let mut data = vec![0; usize::from(patch.pages) * PAGE_BYTES];
                if patch.on_image {
                    let Some(image) = open.images.get(&(patch.handle, patch.first.into())) else { return unknown() };
                    data[..PAGE_BYTES].copy_from_slice(image);
                }
                crate::changes::apply(&patch.pieces.0, &mut data).unwrap();
                assert_eq!(crc32c::crc32c(&data), patch.check, "the client knows the image that the node has");
                let Some(pages) = open.pages.get(&patch.handle) else { return unknown() };
                self.write_pages(pages, patch.first.into(), &data, patch.durable)?;
                open.keep_image(patch.handle, patch.first.into(), &data);
                done
            }
            Operation::SyncPages => {
                let SyncPages { token, handle } = SyncPages::decode(payload)?;
                self.check(token)?;
                let Some(pages) = open.pages.get(&handle) else { return unknown() };
                pages.sync()?;
                lock(&self.buffered).retain(|(path, _), _| path != pages.path());
                done
            }
            Operation::ReadPages => {
                let ReadPages { handle, offset, bytes } = ReadPages::decode(payload)?;
                let Some(pages) = open.pages.get(&handle) else { return unknown() };
                let mut data = vec![0; bytes as usize];
                pages.read_at(offset, &mut data)?;
                Ok(ReadBytes { data: Rest(data) }.encode())
            }
            other => Err(CallError::Unsupported(other.name().to_owned())),
        }
    }

    fn change_names(&self, operation: Operation, payload: &[u8]) -> Result<Vec<u8>, CallError> {
        match operation {
            Operation::Replace => {
                let Replace { token, name, contents, .. } = Replace::decode(payload)?;
                self.check(token)?;
                self.volume.replace(name, &contents.0)?;
            }
            Operation::Rename => {
                let Rename { token, from, to, .. } = Rename::decode(payload)?;
                self.check(token)?;
                [from, to].into_iter().for_each(|name| self.renamed(name));
                self.volume.rename(from, to)?;
            }
            Operation::Remove => {
                let Remove { token, name, .. } = Remove::decode(payload)?;
                self.check(token)?;
                self.renamed(name);
                self.volume.remove(name)?;
            }
            _ => {
                self.check(SyncNames::decode(payload)?.token)?;
                self.volume.sync_names()?;
            }
        }
        Ok(Done {}.encode())
    }
}
