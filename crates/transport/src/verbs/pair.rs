//! One end of a reliable connection: its queues, its memory, and all calls of the library.
//!
//! **Rights.** Each end has a protection domain of its own. The device lets the other side write into `incoming`, and
//! reach nothing else: it may neither read memory nor use atomics. Other connections cannot use the region's key.
//!
//! **Invariants.** Memory is unmapped only after the device has given up its regions. A request lies in memory until
//! the call that takes it returns; the library has copied it then. Every request to send is signalled, so the number of
//! requests under way is known, and the completion queue has room for all of them.

use crate::memory::SharedMemory;
use crate::verbs::library::{self, Functions, access, change, completed, functions, operation, state};
use crate::verbs::port::Port;
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};

/// The time after which the device repeats what was not acknowledged: 4.096 µs times two to this power, 67 ms.
const TIMEOUT: u8 = 14;
/// How many times it does that.
const RETRIES: u8 = 7;
const HOPS_MAX: u8 = 64;
/// Completions that are taken in one call.
const COMPLETIONS: usize = 16;

/// An object of the library that is destroyed with this.
struct Owned<T> {
    object: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T) -> c_int,
}

impl<T> Owned<T> {
    /// Takes what a function has made. It has set `errno` if that is nothing.
    fn new(object: *mut T, what: &str, destroy: unsafe extern "C" fn(*mut T) -> c_int) -> io::Result<Owned<T>> {
        let object = NonNull::new(object).ok_or_else(|| about(what, &io::Error::last_os_error()))?;
        Ok(Owned { object, destroy })
    }

    fn as_ptr(&self) -> *mut T {
        self.object.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the object was made by the library and is destroyed once. What depends on it went before: see the
        // order of fields in `Pair`. If the library refuses, the object stays.
        unsafe { (self.destroy)(self.object.as_ptr()) };
    }
}

// SAFETY: the library's objects may be used by any thread.
unsafe impl<T> Send for Owned<T> {}
// SAFETY: as above. The library has locks of its own.
unsafe impl<T> Sync for Owned<T> {}

/// Memory that a device may reach.
struct Region {
    region: NonNull<library::Region>,
    functions: &'static Functions,
    memory: Arc<SharedMemory>,
}

impl Region {
    fn new(
        functions: &'static Functions,
        domain: &Owned<c_void>,
        memory: &Arc<SharedMemory>,
        bytes: Range<usize>,
        rights: c_int,
    ) -> io::Result<Region> {
        let address = memory.at(bytes.start, bytes.len());
        // SAFETY: the memory is mapped, and stays so as long as the region: see `drop`.
        let region = unsafe { (functions.ibv_reg_mr)(domain.as_ptr(), address.cast(), bytes.len(), rights) };
        let region = NonNull::new(region).ok_or_else(|| {
            let error = io::Error::last_os_error();
            about("memory is not registered (is RLIMIT_MEMLOCK too small?)", &error)
        })?;
        Ok(Region { region, functions, memory: Arc::clone(memory) })
    }

    fn fields(&self) -> library::Region {
        // SAFETY: the library has made the region, and changes none of these fields.
        unsafe { self.region.as_ptr().read() }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the region was made by the library and goes once.
        if unsafe { (self.functions.ibv_dereg_mr)(self.region.as_ptr()) } != 0 {
            // The device may still write there, so the memory stays mapped.
            std::mem::forget(Arc::clone(&self.memory));
        }
    }
}

/// A device that was opened. All connections of a process share it.
struct Device {
    context: Owned<library::Context>,
    functions: &'static Functions,
}

/// The devices that are open, by name. They stay open when no connection uses them: opening one takes milliseconds.
static OPEN: Mutex<Option<HashMap<String, Arc<Device>>>> = Mutex::new(None);

impl Device {
    fn open(name: &str) -> io::Result<Arc<Device>> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let open = open.get_or_insert_default();
        if let Some(device) = open.get(name) {
            return Ok(Arc::clone(device));
        }
        let functions = functions().map_err(|reason| io::Error::new(io::ErrorKind::Unsupported, reason))?;
        let mut count = 0;
        // SAFETY: the function fills the count in and returns a list, or nothing.
        let list = unsafe { (functions.ibv_get_device_list)(&raw mut count) };
        if list.is_null() {
            return Err(about("devices cannot be listed", &io::Error::last_os_error()));
        }
        let mut context = ptr::null_mut();
        for index in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the list has `count` devices with names that end with a zero.
            unsafe {
                let device = list.add(index).read();
                if CStr::from_ptr((functions.ibv_get_device_name)(device)).to_bytes() == name.as_bytes() {
                    context = (functions.ibv_open_device)(device);
                }
            }
        }
        let opened = Owned::new(context, &format!("the device {name} cannot be opened"), functions.ibv_close_device);
        // SAFETY: the list is the library's, and not used any more.
        unsafe { (functions.ibv_free_device_list)(list) };
        let device = Arc::new(Device { context: opened?, functions });
        open.insert(name.to_owned(), Arc::clone(&device));
        Ok(device)
    }

    /// Opens the device again for the next connection: this one has failed, and may be gone.
    fn forget(self: &Arc<Self>) {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.get_or_insert_default().retain(|_, device| !Arc::ptr_eq(device, self));
    }

    fn table(&self) -> library::Context {
        // SAFETY: the library has made the context, and changes none of these fields.
        unsafe { self.context.as_ptr().read() }
    }

    /// Returns the port's largest packet, as the library numbers them.
    fn mtu(&self, port: u8) -> io::Result<u32> {
        let mut properties = library::PortProperties { state: 0, mtu_max: 0, mtu: 0, rest: [0; 13] };
        // SAFETY: the function fills in no more than there is.
        let code = unsafe { (self.functions.ibv_query_port)(self.context.as_ptr(), port, &raw mut properties) };
        check(code, "the port cannot be asked")?;
        Ok(properties.mtu)
    }
}

/// The numbers that the other side needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    /// The largest packet: 1 is 256 bytes, 5 is 4096.
    pub(super) mtu: u32,
    pub(super) pair: u32,
    pub(super) psn: u32,
    pub(super) address: u64,
    pub(super) key: u32,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The other side has written this many bytes, and says so by `count`.
    Written {
        bytes: u32,
        count: u32,
    },
    /// A message without bytes has come.
    Message {
        bytes: u32,
        count: u32,
    },
    /// The other side has what this one wrote.
    WriteDone {
        id: u64,
    },
    SendDone,
    /// A request has failed with this status. The connection is of no more use.
    Failed(u32),
}

/// One end of a connection.
pub(super) struct Pair {
    // In the order in which they go: each depends on those below.
    pair: Owned<library::Pair>,
    queue: Owned<library::Queue>,
    channel: Owned<library::Channel>,
    _incoming: Region,
    outgoing: Region,
    _domain: Owned<c_void>,
    device: Arc<Device>,
    port: Port,
    table: library::Context,
    numbers: Numbers,
}

// SAFETY: the library's objects may be used by any thread. All pointers are to them, or functions.
unsafe impl Send for Pair {}

impl Pair {
    /// Makes an end that is not connected yet, with `receives` requests to receive.
    ///
    /// # Errors
    /// The device or the library refuses.
    pub(super) fn new(
        port: Port,
        memory: &Arc<SharedMemory>,
        rings: [Range<usize>; 2],
        requests: [u32; 2],
        psn: u32,
    ) -> io::Result<Pair> {
        let device = Device::open(&port.device)?;
        let made = Pair::on(Arc::clone(&device), port, memory, rings, requests, psn);
        if made.is_err() {
            device.forget();
        }
        made
    }

    fn on(
        device: Arc<Device>,
        port: Port,
        memory: &Arc<SharedMemory>,
        [incoming, outgoing]: [Range<usize>; 2],
        [sends, receives]: [u32; 2],
        psn: u32,
    ) -> io::Result<Pair> {
        let functions = device.functions;
        let context = device.context.as_ptr();
        // SAFETY: here and below, pointers are those of objects that live in this function or in the result, and
        // structures are filled in.
        let domain = unsafe { (functions.ibv_alloc_pd)(context) };
        let domain = Owned::new(domain, "no protection domain", functions.ibv_dealloc_pd)?;
        let outgoing = Region::new(functions, &domain, memory, outgoing, 0)?;
        let rights = access::LOCAL_WRITE | access::REMOTE_WRITE;
        let incoming = Region::new(functions, &domain, memory, incoming, rights)?;
        // SAFETY: as above.
        let channel = unsafe { (functions.ibv_create_comp_channel)(context) };
        let channel = Owned::new(channel, "no completion channel", functions.ibv_destroy_comp_channel)?;
        let length = c_int::try_from(sends + receives).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: as above.
        let queue = unsafe { (functions.ibv_create_cq)(context, length, ptr::null_mut(), channel.as_ptr(), 0) };
        let queue = Owned::new(queue, "no completion queue", functions.ibv_destroy_cq)?;
        let mut properties = library::PairProperties {
            user_data: ptr::null_mut(),
            send_queue: queue.as_ptr(),
            receive_queue: queue.as_ptr(),
            shared_receives: ptr::null_mut(),
            limits: library::Limits { sends, receives, send_pieces: 1, receive_pieces: 1, inline_bytes: 0 },
            kind: library::RELIABLE,
            signals_all: 1,
        };
        // SAFETY: as above.
        let pair = unsafe { (functions.ibv_create_qp)(domain.as_ptr(), &raw mut properties) };
        let pair = Owned::new(pair, "no queue pair", functions.ibv_destroy_qp)?;
        // SAFETY: the library has made the pair, and does not change its number.
        let number = unsafe { pair.as_ptr().read() }.number;
        let region = incoming.fields();
        let numbers = Numbers {
            mtu: device.mtu(port.number)?,
            pair: number,
            psn: psn & 0xff_ffff,
            address: region.address as u64,
            key: region.remote_key,
        };
        let table = device.table();
        let pair =
            Pair { pair, queue, channel, _incoming: incoming, outgoing, _domain: domain, device, port, table, numbers };
        let descriptor = pair.descriptor();
        rustix::fs::fcntl_setfl(descriptor, rustix::fs::fcntl_getfl(descriptor)? | OFlags::NONBLOCK)?;
        let mut first = no_change();
        (first.state, first.port) = (state::INIT, pair.port.number);
        first.access = access::REMOTE_WRITE as u32;
        pair.change(first, change::STATE | change::PARTITION | change::PORT | change::ACCESS)?;
        for _ in 0..receives {
            pair.post_receive()?;
        }
        Ok(pair)
    }

    pub(super) fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Connects the end with that of the other side.
    ///
    /// # Errors
    /// The device refuses, as with numbers that are none.
    pub(super) fn connect(&self, gid: [u8; 16], peer: Numbers) -> io::Result<()> {
        let mut way = no_change();
        way.state = state::READY_TO_RECEIVE;
        way.mtu = self.numbers.mtu.min(peer.mtu);
        (way.peer_number, way.receive_psn) = (peer.pair, peer.psn);
        let halves = gid.as_chunks::<8>().0;
        way.way.gid = [u64::from_ne_bytes(halves[0]), u64::from_ne_bytes(halves[1])];
        (way.way.is_global, way.way.hops_max) = (1, HOPS_MAX);
        (way.way.source_gid_index, way.way.port) = (self.port.gid_index, self.port.number);
        way.no_receive_timer = 12;
        let mask = change::STATE | change::WAY | change::MTU | change::PEER | change::RECEIVE_PSN | change::PEER_READS;
        self.change(way, mask | change::NO_RECEIVE_TIMER)?;
        let mut send = no_change();
        send.state = state::READY_TO_SEND;
        send.send_psn = self.numbers.psn;
        // A message for which the other side has no request to receive is one too many: it is not repeated.
        (send.timeout, send.retries, send.no_receive_retries) = (TIMEOUT, RETRIES, 0);
        let mask = change::STATE | change::TIMEOUT | change::RETRIES | change::NO_RECEIVE_RETRIES | change::SEND_PSN;
        self.change(send, mask | change::READS)
    }

    fn change(&self, mut to: library::PairChange, mask: i32) -> io::Result<()> {
        // SAFETY: the pair is ours, and the fields that the mask names are filled in.
        let code = unsafe { (self.device.functions.ibv_modify_qp)(self.pair.as_ptr(), &raw mut to, mask) };
        check(code, &format!("the queue pair does not change to state {}", to.state))
    }

    /// Lets one more message come.
    ///
    /// # Errors
    /// The device refuses.
    pub(super) fn post_receive(&self) -> io::Result<()> {
        let mut request =
            library::ReceiveRequest { id: 0, next: ptr::null_mut(), pieces: ptr::null_mut(), piece_count: 0 };
        let mut bad = ptr::null_mut();
        // SAFETY: the pair is ours, and the request has no pieces.
        let code = unsafe { (self.table.post_recv)(self.pair.as_ptr(), &raw mut request, &raw mut bad) };
        check(code, "a request to receive is refused")
    }

    /// Writes `bytes` bytes of the outgoing region, from `offset` on, to the other side's memory, and tells it `count`.
    ///
    /// # Errors
    /// The device refuses.
    pub(super) fn write(&self, offset: usize, bytes: u32, to: (u64, u32), count: u32, id: u64) -> io::Result<()> {
        let region = self.outgoing.fields();
        assert!(offset + bytes as usize <= region.length, "within the outgoing region");
        let address = region.address as u64 + offset as u64;
        let piece = library::Piece { address, length: bytes, local_key: region.local_key };
        self.post(operation::WRITE_WITH_IMMEDIATE, Some(piece), to, count, id)
    }

    /// Tells the other side `count`.
    ///
    /// # Errors
    /// The device refuses.
    pub(super) fn send(&self, count: u32) -> io::Result<()> {
        self.post(operation::SEND_WITH_IMMEDIATE, None, (0, 0), count, 0)
    }

    fn post(
        &self,
        operation: u32,
        mut piece: Option<library::Piece>,
        (remote_address, remote_key): (u64, u32),
        count: u32,
        id: u64,
    ) -> io::Result<()> {
        let mut request = library::SendRequest {
            id,
            next: ptr::null_mut(),
            pieces: piece.as_mut().map_or(ptr::null_mut(), ptr::from_mut),
            piece_count: c_int::from(piece.is_some()),
            operation,
            flags: 0,
            immediate: count.to_be(),
            remote_address,
            remote_key,
            rest: [0; 9],
        };
        let mut bad = ptr::null_mut();
        // SAFETY: the pair is ours. The piece lives until the call returns, and its memory until the region goes. If
        // its bytes change before they are sent, the other side gets others, as it would by a slow copy.
        let code = unsafe { (self.table.post_send)(self.pair.as_ptr(), &raw mut request, &raw mut bad) };
        check(code, "a request to send is refused")
    }

    /// Takes some outcomes, and gives each to `take`. Returns their number.
    ///
    /// # Errors
    /// The completion queue is broken.
    pub(super) fn poll(&self, mut take: impl FnMut(Event)) -> io::Result<usize> {
        // SAFETY: all fields are numbers, for which zeros are values.
        let mut taken: [library::Completion; COMPLETIONS] = unsafe { std::mem::zeroed() };
        // SAFETY: the queue is ours, and there is room for that many.
        let count = unsafe { (self.table.poll_cq)(self.queue.as_ptr(), COMPLETIONS as c_int, taken.as_mut_ptr()) };
        let count = usize::try_from(count).map_err(|_| io::Error::other("RDMA: the completion queue is broken"))?;
        for completion in &taken[..count] {
            let (bytes, count) = (completion.bytes, u32::from_be(completion.immediate));
            take(match completion.operation {
                _ if completion.status != 0 => Event::Failed(completion.status),
                completed::RECEIVE_WRITE => Event::Written { bytes, count },
                completed::RECEIVE => Event::Message { bytes, count },
                completed::WRITE => Event::WriteDone { id: completion.id },
                completed::SEND => Event::SendDone,
                other => return Err(io::Error::other(format!("RDMA: a completion of an unknown operation, {other}"))),
            });
        }
        Ok(count)
    }

    /// Asks for an event with the next outcome.
    ///
    /// # Errors
    /// The device refuses.
    pub(super) fn ask_for_event(&self) -> io::Result<()> {
        // SAFETY: the queue is ours.
        check(unsafe { (self.table.req_notify_cq)(self.queue.as_ptr(), 0) }, "no events of completions")
    }

    /// Takes all events that have come.
    pub(super) fn take_events(&self) {
        let (mut queue, mut user_data) = (ptr::null_mut(), ptr::null_mut::<c_void>());
        let functions = self.device.functions;
        // SAFETY: the channel is ours. It does not block, and has no other queue.
        while unsafe { (functions.ibv_get_cq_event)(self.channel.as_ptr(), &raw mut queue, &raw mut user_data) } == 0 {
            // SAFETY: the queue has had one event.
            unsafe { (functions.ibv_ack_cq_events)(self.queue.as_ptr(), 1) };
        }
    }

    /// Returns the descriptor that is readable when an event has come.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel, which lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ptr().read().descriptor) }
    }
}

fn no_change() -> library::PairChange {
    // SAFETY: all fields are numbers, for which zeros are values.
    unsafe { std::mem::zeroed() }
}

fn check(code: c_int, what: &str) -> io::Result<()> {
    // Functions return an error of the system, some of them -1 and the error in `errno`.
    match code {
        0 => Ok(()),
        ..0 => Err(about(what, &io::Error::last_os_error())),
        code => Err(about(what, &io::Error::from_raw_os_error(code))),
    }
}

fn about(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("RDMA: {what}: {error}"))
}
