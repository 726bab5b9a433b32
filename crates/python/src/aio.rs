//! Futures of the store as futures of asyncio.
//!
//! 1. A call begins its work in the store and asks once for the outcome. Most work is done then, and the future of
//!    asyncio has its result before it is awaited.
//! 2. Otherwise the work goes into the *mailbox* of the event loop. A thread of the store that finishes it notes the
//!    number of the work, and writes a byte to the mailbox's pipe. The loop watches the other end.
//! 3. The loop calls [`Mailbox::deliver`], which asks for the outcome again and sets the result.
//!
//! **Invariants.** A pipe has few bytes: a byte is written only when the list of numbers was empty, and the list is
//! taken after a byte was read. So neither end ever waits.
//!
//! **Threads.** No thread waits for a call, and no thread of the store takes the interpreter's lock.
//!
//! **Failure.** A cancelled task leaves its future cancelled. The work goes on, and its outcome is dropped. A loop that
//! was closed is found by the next loop, which drops its mailbox.
//!
//! **Rejected.** *`call_soon_threadsafe` on the thread that finished the work*: it takes the interpreter's lock, so
//! that a thread of the log would wait for Python, up to 5 ms each time, and all other writers with it.

use crate::bytes::pair;
use crate::errors::{Failure, Result};
use crate::shared::{Held, Open};
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;
use situ::{Keyspace, ScanOptions, ScanPage, Value};
use std::collections::HashMap;
use std::future::Future;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// The outcome of work, for Python.
pub(crate) enum Answer {
    Nothing,
    Number(u64),
    /// A value, and the object in the place of a missing one.
    Value(Option<Value>, Option<Py<PyAny>>),
    Values(Vec<Option<Value>>),
    /// The next entry of pages that have one now.
    Entry(Arc<Pages>),
}

impl Answer {
    fn into_object(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let bytes = |value: Value| PyBytes::new(py, &value);
        Ok(match self {
            Answer::Nothing => py.None().into_bound(py),
            Answer::Number(number) => number.into_pyobject(py)?.into_any(),
            Answer::Value(Some(value), _) => bytes(value).into_any(),
            Answer::Value(None, default) => default.unwrap_or_else(|| py.None()).into_bound(py),
            Answer::Values(values) => {
                let values: Vec<_> = values.into_iter().map(|value| value.map(bytes)).collect();
                values.into_pyobject(py)?.into_any()
            }
            Answer::Entry(pages) => match pages.next() {
                Next::Entry { page, at } => entry(py, &page, at)?,
                Next::End => return Err(PyStopAsyncIteration::new_err(())),
                Next::Read { .. } => {
                    return Err(Failure::invalid("another task has taken all entries that were read").into());
                }
            },
        })
    }
}

type Work = Pin<Box<dyn Future<Output = Result<Answer>> + Send>>;

static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
/// A `WeakKeyDictionary` from event loops to their mailboxes.
static MAILBOXES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    RUNNING_LOOP.import(py, "asyncio", "get_running_loop")?.call0()
}

/// Begins work, and returns a future of asyncio for its outcome. `start` runs with the interpreter's lock released.
pub(crate) fn begin<'py, F>(
    open: &Open,
    py: Python<'py>,
    start: impl FnOnce() -> F + Send,
) -> PyResult<Bound<'py, PyAny>>
where
    F: Future<Output = Result<Answer>> + Send + 'static,
{
    open.check()?;
    let event_loop = running_loop(py)?;
    let future = event_loop.call_method0(intern!(py, "create_future"))?;
    let (work, outcome) = py.detach(|| {
        let mut work: Work = Box::pin(start());
        let outcome = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        (work, outcome)
    });
    match outcome {
        Poll::Ready(outcome) => resolve(&future, outcome)?,
        Poll::Pending => mailbox_of(&event_loop)?.get().wait_for(py, work, &future)?,
    }
    Ok(future)
}

/// Returns a future of asyncio that has its result.
pub(crate) fn done<'py>(py: Python<'py>, result: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let future = running_loop(py)?.call_method0(intern!(py, "create_future"))?;
    future.call_method1(intern!(py, "set_result"), (result,))?;
    Ok(future)
}

/// Sets the result of a future, unless its task was cancelled.
fn resolve(future: &Bound<'_, PyAny>, outcome: Result<Answer>) -> PyResult<()> {
    let py = future.py();
    if future.call_method0(intern!(py, "done"))?.is_truthy()? {
        return Ok(());
    }
    match outcome.map_err(PyErr::from).and_then(|answer| answer.into_object(py)) {
        Ok(result) => future.call_method1(intern!(py, "set_result"), (result,))?,
        Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?,
    };
    Ok(())
}

/// The bell of a mailbox: the numbers of the work that can go on, and a pipe that wakes the loop.
struct Bell {
    ready: Mutex<Vec<u64>>,
    near: PipeReader,
    far: PipeWriter,
}

impl Bell {
    fn ring(&self, number: u64) {
        let mut ready = lock(&self.ready);
        ready.push(number);
        let is_first = ready.len() == 1;
        drop(ready);
        if is_first {
            // Both ends are ours, so the pipe takes the byte.
            let _ = (&self.far).write(&[0]);
        }
    }

    fn take(&self) -> Vec<u64> {
        let _ = (&self.near).read(&mut [0; 64]);
        std::mem::take(&mut *lock(&self.ready))
    }
}

struct Ringer {
    bell: Arc<Bell>,
    number: u64,
}

impl Wake for Ringer {
    fn wake(self: Arc<Self>) {
        self.bell.ring(self.number);
    }
}

struct Waiting {
    work: Work,
    future: Py<PyAny>,
}

/// The work that an event loop waits for.
#[pyclass(frozen, module = "situ._situ")]
struct Mailbox {
    bell: Arc<Bell>,
    waiting: Held<Mutex<HashMap<u64, Waiting>>>,
    next_number: AtomicU64,
}

impl Mailbox {
    /// Goes on with work. Keeps it if it is still not done.
    fn go_on(&self, py: Python<'_>, number: u64, mut waiting: Waiting) -> PyResult<()> {
        let waker = Waker::from(Arc::new(Ringer { bell: Arc::clone(&self.bell), number }));
        let work = &mut waiting.work;
        match py.detach(|| work.as_mut().poll(&mut Context::from_waker(&waker))) {
            Poll::Ready(outcome) => resolve(waiting.future.bind(py), outcome),
            Poll::Pending => {
                lock(&self.waiting).insert(number, waiting);
                Ok(())
            }
        }
    }

    fn wait_for(&self, py: Python<'_>, work: Work, future: &Bound<'_, PyAny>) -> PyResult<()> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        self.go_on(py, number, Waiting { work, future: future.clone().unbind() })
    }
}

#[pymethods]
impl Mailbox {
    /// Sets the results of the work that is done. The loop calls it when the pipe has a byte.
    fn deliver(&self, py: Python<'_>) -> PyResult<()> {
        let mut outcome = Ok(());
        for number in self.bell.take() {
            let waiting = lock(&self.waiting).remove(&number);
            if let Some(waiting) = waiting {
                outcome = outcome.and(self.go_on(py, number, waiting));
            }
        }
        outcome
    }
}

fn mailbox_of<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Mailbox>> {
    let py = event_loop.py();
    let mailboxes = MAILBOXES.get_or_try_init(py, || {
        Ok::<_, PyErr>(py.import("weakref")?.getattr("WeakKeyDictionary")?.call0()?.unbind())
    })?;
    let mailboxes = mailboxes.bind(py);
    let found = mailboxes.call_method1(intern!(py, "get"), (event_loop,))?;
    if !found.is_none() {
        return Ok(found.cast_into()?);
    }
    // The work of a closed loop keeps the loop alive.
    for other in mailboxes.call_method0("keyrefs")?.try_iter()? {
        let other = other?.call0()?;
        if !other.is_none() && other.call_method0("is_closed")?.is_truthy()? {
            // The loop of another thread may have done so just now.
            mailboxes.call_method1("pop", (other, py.None()))?;
        }
    }
    let (near, far) = std::io::pipe()?;
    let descriptor = near.as_raw_fd();
    let bell = Arc::new(Bell { ready: Mutex::default(), near, far });
    let mailbox =
        Bound::new(py, Mailbox { bell, waiting: Held::new(Mutex::default()), next_number: AtomicU64::new(0) })?;
    event_loop.call_method1("add_reader", (descriptor, mailbox.getattr("deliver")?))?;
    mailboxes.set_item(event_loop, &mailbox)?;
    Ok(mailbox)
}

/// The pages of a scan. Reads change nothing, so a page whose task was cancelled is read again.
pub(crate) struct Pages {
    open: Arc<Open>,
    keyspace: Keyspace,
    state: Held<Mutex<PagesState>>,
}

struct PagesState {
    /// The options of the next page; None behind the last page.
    next: Option<ScanOptions>,
    /// The number of the next page.
    number: u64,
    page: Option<ScanPage>,
    /// The number of entries of the page that were given.
    given: usize,
}

/// The next step of a walk over pages.
enum Next {
    Entry { page: ScanPage, at: usize },
    Read { number: u64, options: ScanOptions },
    End,
}

impl Pages {
    /// Turns to page `number`, unless another task has done that.
    fn turn(&self, number: u64, options: ScanOptions, page: ScanPage) {
        let mut state = lock(&self.state);
        if state.number == number {
            state.next = options.after(&page);
            state.number += 1;
            state.page = Some(page);
            state.given = 0;
        }
    }

    /// Takes the next entry, if one was read. Nothing of Python is called under the lock, since a thread that waits for
    /// it has the interpreter's lock.
    fn next(&self) -> Next {
        let mut state = lock(&self.state);
        let at = state.given;
        match (&state.page, &state.next) {
            (Some(page), _) if at < page.len() => {
                let page = page.clone();
                state.given += 1;
                Next::Entry { page, at }
            }
            (_, Some(options)) => Next::Read { number: state.number, options: options.clone() },
            (_, None) => Next::End,
        }
    }
}

fn entry<'py>(py: Python<'py>, page: &ScanPage, at: usize) -> PyResult<Bound<'py, PyAny>> {
    Ok(pair(py, &page[at].key, &page[at].value)?.into_any())
}

/// An iterator over pairs for `async for`, as of the moment at which it was made.
#[pyclass(frozen, module = "situ")]
pub(crate) struct AsyncEntries(Arc<Pages>);

impl AsyncEntries {
    pub(crate) fn new(open: &Arc<Open>, keyspace: &Keyspace, options: ScanOptions) -> AsyncEntries {
        let state = PagesState { next: Some(options), number: 0, page: None, given: 0 };
        AsyncEntries(Arc::new(Pages {
            open: Arc::clone(open),
            keyspace: keyspace.clone(),
            state: Held::new(Mutex::new(state)),
        }))
    }
}

#[pymethods]
impl AsyncEntries {
    fn __aiter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __anext__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (number, options) = match self.0.next() {
            Next::Entry { page, at } => return done(py, &entry(py, &page, at)?).map(Some),
            Next::Read { number, options } => (number, options),
            Next::End => return Ok(None),
        };
        let pages = Arc::clone(&self.0);
        begin(&self.0.open, py, || {
            let scan = pages.keyspace.scan_async(&options);
            async move {
                let page = scan.await?;
                pages.turn(number, options, page);
                Ok(Answer::Entry(pages))
            }
        })
        .map(Some)
    }
}
