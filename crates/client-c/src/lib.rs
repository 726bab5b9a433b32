//! Situ: the client as a C library. `include/situ_client.h` documents the functions.
//!
//! Every function takes what C gives it apart first, into slices and references, and then calls the Rust client.
//! No panic crosses the border: it becomes `SITU_CLIENT_ERROR_INTERNAL`. The last error of a thread is kept for
//! `situ_client_error`.
//!
//! **Unsafe.** The caller promises what the header says: pointers are valid for the length next to them, or NULL where
//! that is allowed, texts end with a zero, and a client is not used after it was closed.

use client::{Attributes, Cas, CasId, Client, Error, Expiry, Item, Login, OfServer, Options, Outcome, TransportChoice};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const OK: c_int = 0;
const MISS: c_int = 1;
const NOT_STORED: c_int = 2;
const CHANGED: c_int = 3;
const ERROR_ARGUMENT: c_int = -1;
const ERROR_REFUSED: c_int = -2;
const ERROR_BROKEN: c_int = -3;
const ERROR_LATE: c_int = -4;
const ERROR_GARBLED: c_int = -5;
const ERROR_DOWN: c_int = -6;
const ERROR_INTERNAL: c_int = -7;

/// `situ_client` of the header.
pub struct SituClient(Client);

/// `situ_client_options` of the header.
#[repr(C)]
pub struct SituOptions {
    servers: *const c_char,
    timeout_ms: u32,
    connections_max: u32,
    failover: c_int,
    user: *const c_char,
    password: *const c_char,
    transport: c_int,
}

/// `situ_client_value` of the header.
#[repr(C)]
pub struct SituValue {
    data: *mut c_void,
    bytes: usize,
    flags: u32,
    cas: u64,
}

/// `situ_client_key` of the header.
#[repr(C)]
pub struct SituKey {
    data: *const c_void,
    bytes: usize,
}

/// `situ_client_found` of the header.
pub type Found = unsafe extern "C" fn(*mut c_void, usize, *const c_void, usize, u32);

/// `situ_client_statistic` of the header.
pub type Statistic = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char, *const c_char);

#[derive(Default)]
struct LastError {
    text: CString,
    is_outcome_unknown: bool,
}

thread_local! {
    static LAST_ERROR: RefCell<LastError> = RefCell::default();
}

/// The reason for which a function returns a negative number.
struct Failure {
    code: c_int,
    text: String,
    outcome: Outcome,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match &error {
            Error::Key { .. } | Error::Option(_) => ERROR_ARGUMENT,
            Error::Refused { .. } => ERROR_REFUSED,
            Error::Broken { .. } => ERROR_BROKEN,
            Error::Late { .. } => ERROR_LATE,
            Error::Garbled { .. } => ERROR_GARBLED,
            Error::Down { .. } => ERROR_DOWN,
            _ => ERROR_INTERNAL,
        };
        Failure { code, text: error.to_string(), outcome: error.outcome() }
    }
}

fn wrong(text: &str) -> Failure {
    Failure { code: ERROR_ARGUMENT, text: text.to_owned(), outcome: Outcome::NotDone }
}

/// Keeps an error for `situ_client_error`, and returns its code.
fn keep(failure: Failure) -> c_int {
    let text: Vec<u8> = failure.text.into_bytes().into_iter().filter(|byte| *byte != 0).collect();
    let text = CString::new(text).unwrap_or_default();
    let error = LastError { text, is_outcome_unknown: failure.outcome == Outcome::Unknown };
    // At the end of a thread, the place is gone.
    let _ = LAST_ERROR.try_with(|last| last.replace(error));
    failure.code
}

/// Runs the body of a function. A panic is an error of which nothing is known.
fn guard(body: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        let text = "the client has a fault; its message is on standard error".to_owned();
        Err(Failure { code: ERROR_INTERNAL, text, outcome: Outcome::Unknown })
    });
    result.unwrap_or_else(keep)
}

/// # Safety
/// As the module says.
unsafe fn client_of<'a>(client: *const SituClient) -> Result<&'a Client, Failure> {
    // SAFETY: the caller has the client from `situ_client_open`, and has not closed it.
    unsafe { client.as_ref() }.map(|client| &client.0).ok_or_else(|| wrong("the client is NULL"))
}

/// # Safety
/// As the module says.
unsafe fn bytes_of<'a>(data: *const c_void, bytes: usize) -> Result<&'a [u8], Failure> {
    match (data.is_null(), bytes) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(wrong("a pointer to a key or a value is NULL")),
        (false, bytes) if isize::try_from(bytes).is_err() => Err(wrong("a length is larger than the memory")),
        // SAFETY: the caller promises that many readable bytes, which do not change during the call.
        (false, bytes) => Ok(unsafe { std::slice::from_raw_parts(data.cast(), bytes) }),
    }
}

/// Returns a text, or `None` for NULL.
///
/// # Safety
/// As the module says.
unsafe fn text_of<'a>(text: *const c_char) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller promises a zero at its end.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| wrong("a text is not in UTF-8"))
}

fn expiry_of(seconds: i64) -> Expiry {
    match u64::try_from(seconds) {
        Ok(0) => Expiry::Never,
        Ok(seconds) => Expiry::In(Duration::from_secs(seconds)),
        Err(_) => Expiry::At(SystemTime::UNIX_EPOCH),
    }
}

fn ok_or(is_done: bool, otherwise: c_int) -> c_int {
    if is_done { OK } else { otherwise }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_open(options: *const SituOptions) -> *mut SituClient {
    let mut opened = ptr::null_mut();
    guard(|| {
        // SAFETY: the caller gives NULL or valid options.
        let given = unsafe { options.as_ref() }.ok_or_else(|| wrong("the options are NULL"))?;
        // SAFETY: the texts are NULL or end with a zero.
        let (servers, user, password) =
            unsafe { (text_of(given.servers)?, text_of(given.user)?, text_of(given.password)?) };
        let servers = servers.unwrap_or_default().split(',').map(str::trim).filter(|server| !server.is_empty());
        let mut options = Options::new(servers);
        if given.timeout_ms > 0 {
            options.timeout = Duration::from_millis(given.timeout_ms.into());
        }
        if given.connections_max > 0 {
            options.connections_max = given.connections_max as usize;
        }
        options.failover = given.failover != 0;
        options.transport = match given.transport {
            0 => TransportChoice::Auto,
            1 => TransportChoice::Socket,
            2 => TransportChoice::SharedMemory,
            3 => TransportChoice::Rdma,
            _ => return Err(wrong("the transport is none of SITU_CLIENT_TRANSPORT_...")),
        };
        options.login = match (user, password) {
            (Some(user), Some(password)) => Some(Login { user: user.to_owned(), password: password.to_owned() }),
            (None, None) => None,
            _ => return Err(wrong("a user needs a password, and a password a user")),
        };
        opened = Box::into_raw(Box::new(SituClient(Client::open(&options)?)));
        Ok(OK)
    });
    opened
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_close(client: *mut SituClient) {
    guard(|| {
        if !client.is_null() {
            // SAFETY: the caller has it from `situ_client_open`, and uses it no more.
            drop(unsafe { Box::from_raw(client) });
        }
        Ok(OK)
    });
}

/// Returns the text of the last error of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn situ_client_error() -> *const c_char {
    LAST_ERROR.try_with(|last| last.borrow().text.as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns 1 if the outcome of the last error of this thread is unknown.
#[unsafe(no_mangle)]
pub extern "C" fn situ_client_is_outcome_unknown() -> c_int {
    LAST_ERROR.try_with(|last| c_int::from(last.borrow().is_outcome_unknown)).unwrap_or(0)
}

/// Runs a retrieval of one key.
///
/// # Safety
/// See the header.
unsafe fn retrieve(
    client: *const SituClient,
    key: *const c_void,
    key_bytes: usize,
    value: *mut SituValue,
    call: impl FnOnce(&Client, &[u8]) -> Result<Option<(Item, u64)>, Error>,
) -> c_int {
    guard(|| {
        if value.is_null() {
            return Err(wrong("the place for the value is NULL"));
        }
        // SAFETY: the caller gives a place for a value. It need not have one yet.
        unsafe { value.write(SituValue { data: ptr::null_mut(), bytes: 0, flags: 0, cas: 0 }) };
        // SAFETY: the caller promises a client and a key.
        let (client, key) = unsafe { (client_of(client)?, bytes_of(key, key_bytes)?) };
        let Some((item, cas)) = call(client, key)? else { return Ok(MISS) };
        let data = item.value.into_boxed_slice();
        let bytes = data.len();
        let found = SituValue { data: Box::into_raw(data).cast(), bytes, flags: item.flags, cas };
        // SAFETY: as before.
        unsafe { value.write(found) };
        Ok(OK)
    })
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_get(
    client: *const SituClient,
    key: *const c_void,
    key_bytes: usize,
    value: *mut SituValue,
) -> c_int {
    let get = |client: &Client, key: &[u8]| Ok(client.get(key)?.map(|item| (item, 0)));
    // SAFETY: as the header says.
    unsafe { retrieve(client, key, key_bytes, value, get) }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_gets(
    client: *const SituClient,
    key: *const c_void,
    key_bytes: usize,
    value: *mut SituValue,
) -> c_int {
    let gets = |client: &Client, key: &[u8]| Ok(client.gets(key)?.map(|(item, CasId(cas))| (item, cas)));
    // SAFETY: as the header says.
    unsafe { retrieve(client, key, key_bytes, value, gets) }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_get_and_touch(
    client: *const SituClient,
    key: *const c_void,
    key_bytes: usize,
    expiry: i64,
    value: *mut SituValue,
) -> c_int {
    let touch = |client: &Client, key: &[u8]| Ok(client.get_and_touch(key, expiry_of(expiry))?.map(|item| (item, 0)));
    // SAFETY: as the header says.
    unsafe { retrieve(client, key, key_bytes, value, touch) }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_value_free(value: *mut SituValue) {
    guard(|| {
        // SAFETY: the caller gives NULL or a value of this library.
        if let Some(value) = unsafe { value.as_mut() }
            && !value.data.is_null()
        {
            let data = ptr::slice_from_raw_parts_mut(value.data.cast::<u8>(), value.bytes);
            // SAFETY: pointer and length are those of the box that `retrieve` has given away.
            drop(unsafe { Box::from_raw(data) });
            (value.data, value.bytes) = (ptr::null_mut(), 0);
        }
        Ok(OK)
    });
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_get_many(
    client: *const SituClient,
    keys: *const SituKey,
    count: usize,
    found: Option<Found>,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        let found = found.ok_or_else(|| wrong("the function for values is NULL"))?;
        let keys: &[SituKey] = match (keys.is_null(), count) {
            (_, 0) => &[],
            (true, _) => return Err(wrong("the keys are NULL")),
            (false, count) if count > isize::MAX as usize / size_of::<SituKey>() => {
                return Err(wrong("the number of keys is larger than the memory"));
            }
            // SAFETY: the caller promises that many keys.
            (false, count) => unsafe { std::slice::from_raw_parts(keys, count) },
        };
        // SAFETY: the caller promises a client, and the bytes of each key.
        let (client, keys) = unsafe {
            let keys: Result<Vec<&[u8]>, Failure> = keys.iter().map(|key| bytes_of(key.data, key.bytes)).collect();
            (client_of(client)?, keys?)
        };
        for (index, item) in client.get_many(&keys)?.into_iter().enumerate() {
            if let Some(Item { value, flags }) = item {
                // SAFETY: the caller's function takes these, as the header says.
                unsafe { found(context, index, value.as_ptr().cast(), value.len(), flags) };
            }
        }
        Ok(OK)
    })
}

/// Runs a command with a key and a value.
///
/// # Safety
/// See the header.
unsafe fn with_value(
    client: *const SituClient,
    (key, key_bytes): (*const c_void, usize),
    (value, value_bytes): (*const c_void, usize),
    call: impl FnOnce(&Client, &[u8], &[u8]) -> Result<c_int, Error>,
) -> c_int {
    guard(|| {
        // SAFETY: the caller promises a client, a key and a value.
        let (client, key, value) =
            unsafe { (client_of(client)?, bytes_of(key, key_bytes)?, bytes_of(value, value_bytes)?) };
        Ok(call(client, key, value)?)
    })
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_set(
    client: *const SituClient,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    flags: u32,
    expiry: i64,
) -> c_int {
    let attributes = Attributes { flags, expiry: expiry_of(expiry) };
    let set = |client: &Client, key: &[u8], value: &[u8]| client.set(key, value, attributes).map(|()| OK);
    // SAFETY: as the header says.
    unsafe { with_value(client, (key, key_bytes), (value, value_bytes), set) }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_add(
    client: *const SituClient,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    flags: u32,
    expiry: i64,
) -> c_int {
    let attributes = Attributes { flags, expiry: expiry_of(expiry) };
    let add = |client: &Client, key: &[u8], value: &[u8]| Ok(ok_or(client.add(key, value, attributes)?, NOT_STORED));
    // SAFETY: as the header says.
    unsafe { with_value(client, (key, key_bytes), (value, value_bytes), add) }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_replace(
    client: *const SituClient,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    flags: u32,
    expiry: i64,
) -> c_int {
    let attributes = Attributes { flags, expiry: expiry_of(expiry) };
    let replace =
        |client: &Client, key: &[u8], value: &[u8]| Ok(ok_or(client.replace(key, value, attributes)?, NOT_STORED));
    // SAFETY: as the header says.
    unsafe { with_value(client, (key, key_bytes), (value, value_bytes), replace) }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_append(
    client: *const SituClient,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    let append = |client: &Client, key: &[u8], value: &[u8]| Ok(ok_or(client.append(key, value)?, NOT_STORED));
    // SAFETY: as the header says.
    unsafe { with_value(client, (key, key_bytes), (value, value_bytes), append) }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_prepend(
    client: *const SituClient,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    let prepend = |client: &Client, key: &[u8], value: &[u8]| Ok(ok_or(client.prepend(key, value)?, NOT_STORED));
    // SAFETY: as the header says.
    unsafe { with_value(client, (key, key_bytes), (value, value_bytes), prepend) }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_cas(
    client: *const SituClient,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    flags: u32,
    expiry: i64,
    cas: u64,
) -> c_int {
    let attributes = Attributes { flags, expiry: expiry_of(expiry) };
    let store = |client: &Client, key: &[u8], value: &[u8]| {
        Ok(match client.cas(key, value, attributes, CasId(cas))? {
            Cas::Stored => OK,
            Cas::Changed => CHANGED,
            Cas::Missing => MISS,
        })
    };
    // SAFETY: as the header says.
    unsafe { with_value(client, (key, key_bytes), (value, value_bytes), store) }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_delete(client: *const SituClient, key: *const c_void, key_bytes: usize) -> c_int {
    let delete = |client: &Client, key: &[u8], _: &[u8]| Ok(ok_or(client.delete(key)?, MISS));
    // SAFETY: as the header says.
    unsafe { with_value(client, (key, key_bytes), (ptr::null(), 0), delete) }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_touch(
    client: *const SituClient,
    key: *const c_void,
    key_bytes: usize,
    expiry: i64,
) -> c_int {
    let touch = |client: &Client, key: &[u8], _: &[u8]| Ok(ok_or(client.touch(key, expiry_of(expiry))?, MISS));
    // SAFETY: as the header says.
    unsafe { with_value(client, (key, key_bytes), (ptr::null(), 0), touch) }
}

/// Gives the caller a number, if there is one and the caller wants it.
///
/// # Safety
/// See the header.
unsafe fn give_number(found: Option<u64>, number: *mut u64) -> c_int {
    // SAFETY: the caller gives NULL or a place for a number.
    match (found, unsafe { number.as_mut() }) {
        (Some(found), Some(number)) => *number = found,
        (Some(_), None) => {}
        (None, _) => return MISS,
    }
    OK
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_increment(
    client: *const SituClient,
    key: *const c_void,
    key_bytes: usize,
    delta: u64,
    number: *mut u64,
) -> c_int {
    let increment = |client: &Client, key: &[u8], _: &[u8]| {
        // SAFETY: as the header says.
        Ok(unsafe { give_number(client.increment(key, delta)?, number) })
    };
    // SAFETY: as the header says.
    unsafe { with_value(client, (key, key_bytes), (ptr::null(), 0), increment) }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_decrement(
    client: *const SituClient,
    key: *const c_void,
    key_bytes: usize,
    delta: u64,
    number: *mut u64,
) -> c_int {
    let decrement = |client: &Client, key: &[u8], _: &[u8]| {
        // SAFETY: as the header says.
        Ok(unsafe { give_number(client.decrement(key, delta)?, number) })
    };
    // SAFETY: as the header says.
    unsafe { with_value(client, (key, key_bytes), (ptr::null(), 0), decrement) }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_flush_all(client: *const SituClient, delay_seconds: u32) -> c_int {
    guard(|| {
        // SAFETY: the caller promises a client.
        unsafe { client_of(client)? }.flush_all(Duration::from_secs(delay_seconds.into()))?;
        Ok(OK)
    })
}

/// Gives the caller the answers of all servers, and returns the first error.
///
/// # Safety
/// See the header.
unsafe fn report(
    answers: Vec<OfServer<Vec<(String, String)>>>,
    statistic: Statistic,
    context: *mut c_void,
) -> Result<c_int, Failure> {
    let text = |text: &str| CString::new(text.replace('\0', "")).unwrap_or_default();
    let mut result = Ok(OK);
    for (server, answer) in answers {
        let server = text(&server);
        match answer {
            Ok(pairs) => {
                for (name, value) in pairs {
                    let (name, value) = (text(&name), text(&value));
                    // SAFETY: the caller's function takes these, as the header says.
                    unsafe { statistic(context, server.as_ptr(), name.as_ptr(), value.as_ptr()) };
                }
            }
            Err(error) => result = result.and(Err(error.into())),
        }
    }
    result
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_stats(
    client: *const SituClient,
    topic: *const c_char,
    statistic: Option<Statistic>,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        let statistic = statistic.ok_or_else(|| wrong("the function for statistics is NULL"))?;
        // SAFETY: the caller promises a client, and a text or NULL.
        let (client, topic) = unsafe { (client_of(client)?, text_of(topic)?) };
        let answers = client.stats(topic.unwrap_or_default())?;
        // SAFETY: as the header says.
        unsafe { report(answers, statistic, context) }
    })
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_version(
    client: *const SituClient,
    statistic: Option<Statistic>,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        let statistic = statistic.ok_or_else(|| wrong("the function for versions is NULL"))?;
        // SAFETY: the caller promises a client.
        let client = unsafe { client_of(client)? };
        let named = |version| vec![("version".to_owned(), version)];
        let answer = |(server, version): (Arc<str>, Result<String, Error>)| (server, version.map(named));
        let answers = client.version().into_iter().map(answer).collect();
        // SAFETY: as the header says.
        unsafe { report(answers, statistic, context) }
    })
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_client_transports(
    client: *const SituClient,
    statistic: Option<Statistic>,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        let statistic = statistic.ok_or_else(|| wrong("the function for transports is NULL"))?;
        // SAFETY: the caller promises a client.
        let transports = unsafe { client_of(client)? }.transports().into_iter();
        let known = transports.filter_map(|(server, transport)| Some((server, transport?.to_string())));
        let answers =
            known.map(|(server, transport)| (server, Ok(vec![("transport".to_owned(), transport)]))).collect();
        // SAFETY: as the header says.
        unsafe { report(answers, statistic, context) }
    })
}
