//! A command as the trace has it: notes while the command runs, and its records at the end.

use crate::admin::trace::{Begun, Tracer};
use crate::commands::output::Output;
use crate::engine::StoredValue;
use crate::protocol::parse::{Request, StoreMode};
use situ_trace::{Operation, Outcome};
use std::time::Instant;

/// Notes about a command. A command that waits keeps them.
#[derive(Debug)]
pub(crate) struct Noted {
    started: Instant,
    /// The keys that were looked up, when, and the sizes of the items that were found.
    fetched: Vec<(Vec<u8>, Instant, Option<usize>)>,
    /// A storage command stores its item.
    pub(crate) is_stored: bool,
    /// The command is answered with an error.
    pub(crate) has_failed: bool,
}

impl Noted {
    pub(crate) fn new(started: Instant) -> Noted {
        Noted { started, fetched: Vec::new(), is_stored: false, has_failed: false }
    }

    pub(crate) fn fetched(&mut self, key: &[u8], found: Option<usize>) {
        self.fetched.push((key.to_vec(), Instant::now(), found));
    }
}

/// Records a command that has run; or has the place of its answer do it, if its write is under way.
#[cold]
pub(crate) fn record<V: StoredValue>(
    tracer: &Tracer,
    output: &mut Output<V>,
    request: &Request<'_>,
    data: &[u8],
    noted: Noted,
    write_is_under_way: bool,
) {
    let Noted { started, fetched, is_stored, has_failed } = noted;
    let found_outcome = |found: Option<usize>| if found.is_some() { Outcome::Hit } else { Outcome::Miss };
    if let Request::Get { touch, .. } = request {
        let operation = if touch.is_some() { Operation::GetAndTouch } else { Operation::Get };
        let last = fetched.len().saturating_sub(1);
        for (at, (key, then, found)) in fetched.into_iter().enumerate() {
            // An error ends the answer.
            let outcome = if has_failed && at == last { Outcome::Failed } else { found_outcome(found) };
            tracer.end(&Begun { started, operation, outcome, value_bytes: found.unwrap_or(0), key }, then);
        }
        return;
    }
    let Some((operation, key)) = operation_of(request) else { return };
    let found = fetched.last().and_then(|(_, _, found)| *found);
    let (outcome, value_bytes) = match request {
        _ if has_failed => (Outcome::Failed, data.len()),
        Request::Store(_) if is_stored => (Outcome::Hit, data.len()),
        Request::Store(_) => (Outcome::Miss, data.len()),
        _ => (found_outcome(found), found.unwrap_or(0)),
    };
    let request = Begun { started, operation, outcome, value_bytes, key: key.to_vec() };
    match write_is_under_way {
        true => output.trace_last(request),
        false => tracer.end(&request, Instant::now()),
    }
}

/// Returns the operation of a command on one key, and the key. `None` for commands that are not recorded.
fn operation_of<'a>(request: &'a Request<'_>) -> Option<(Operation, &'a [u8])> {
    let arithmetic = |increment: bool| if increment { Operation::Incr } else { Operation::Decr };
    Some(match request {
        Request::Store(store) => {
            let operation = match store.mode {
                StoreMode::Set => Operation::Set,
                StoreMode::Add => Operation::Add,
                StoreMode::Replace => Operation::Replace,
                StoreMode::Append => Operation::Append,
                StoreMode::Prepend => Operation::Prepend,
                StoreMode::Cas => Operation::Cas,
            };
            (operation, &store.key)
        }
        Request::Delete { key, .. } => (Operation::Delete, key),
        Request::Arithmetic { key, increment, .. } => (arithmetic(*increment), key),
        Request::Touch { key, .. } => (Operation::Touch, key),
        Request::MetaGet { key, .. } => (Operation::Get, key),
        Request::MetaDelete { key, .. } => (Operation::Delete, key),
        Request::MetaArithmetic { key, increment, .. } => (arithmetic(*increment), key),
        _ => return None,
    })
}
