//! The two threads of a connection.

use super::{Peer, Reply, Shared, complete, nanos};
use crate::error::CallError;
use crate::frame::{self, FIRST_PAYLOAD_BYTES, HEADER_BYTES, Header, flag};
use crate::message::Operation;
use crate::peer::sink::Turn;
use situ_base::lock;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A thread has ended when this is dropped.
struct Ends(Arc<Shared>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Release);
    }
}

/// Reads frames until the stream ends or breaks.
pub(super) fn read(shared: Arc<Shared>, mut stream: Box<dyn Read + Send>) {
    let ends = Ends(shared);
    let shared = &ends.0;
    let _ = shared.reader.set(std::thread::current().id());
    let why = loop {
        match read_frame(shared, &mut *stream) {
            Ok((header, payload)) => {
                shared.held_up_ns.store(nanos(shared.now()).max(1), Ordering::Release);
                let dispatched = dispatch(shared, &header, payload);
                // What the other end sent meanwhile is still in the stream.
                shared.heard_ns.store(nanos(shared.now()), Ordering::Relaxed);
                shared.held_up_ns.store(0, Ordering::Release);
                if let Err(why) = dispatched {
                    break why;
                }
            }
            Err(why) => break why,
        }
    };
    shared.lose(&why);
}

pub(super) fn read_frame(shared: &Shared, stream: &mut dyn Read) -> Result<(Header, Vec<u8>), String> {
    let mut bytes = [0; HEADER_BYTES];
    fill(shared, stream, &mut bytes)?;
    let header = Header::decode(&bytes).map_err(|e| e.to_string())?;
    if header.side != shared.side.other() {
        return Err("a frame of this end's own type came in".to_owned());
    }
    let most = if lock(&shared.state).is_open { shared.options.payload_bytes_max } else { FIRST_PAYLOAD_BYTES };
    if header.payload_bytes > most {
        return Err(format!("a payload of {} bytes came in, and at most {most} were agreed on", header.payload_bytes));
    }
    let payload = situ_device::memory::zeroed(header.payload_bytes as usize);
    let mut payload =
        payload.ok_or_else(|| format!("there is no memory for a payload of {} bytes", header.payload_bytes))?;
    fill(shared, stream, &mut payload)?;
    header.check_payload(&payload).map_err(|e| e.to_string())?;
    Ok((header, payload))
}

fn fill(shared: &Shared, stream: &mut dyn Read, mut into: &mut [u8]) -> Result<(), String> {
    while !into.is_empty() {
        match stream.read(into) {
            Ok(0) => return Err("the other end has closed it".to_owned()),
            Ok(count) => {
                shared.heard_ns.store(nanos(shared.now()), Ordering::Relaxed);
                into = &mut into[count..];
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.to_string()),
        }
    }
    Ok(())
}

fn dispatch(shared: &Arc<Shared>, header: &Header, payload: Vec<u8>) -> Result<(), String> {
    shared.traffic.add_received(header.operation, payload.len());
    let peer = Peer { shared: Arc::clone(shared) };
    let _ = catch_unwind(AssertUnwindSafe(|| shared.handler.heard(&peer)));
    if header.grant > 0 {
        let mut state = lock(&shared.state);
        state.credit = state.credit.saturating_add(header.grant.into());
        drop(state);
        shared.room.notify();
    }
    let is_heartbeat = header.operation == Operation::Heartbeat as u16 && header.has(flag::ONE_WAY);
    match is_heartbeat {
        true => Ok(()),
        false if header.has(flag::ANSWER) => {
            answered(shared, header, payload);
            Ok(())
        }
        false => asked(shared, header, payload),
    }
}

fn answered(shared: &Shared, header: &Header, payload: Vec<u8>) {
    // An answer that comes after its deadline finds no caller.
    let Some(open) = lock(&shared.state).take_open(header.request) else { return };
    let is_error = header.has(flag::ERROR);
    complete(open, if is_error { Err(CallError::decode(&payload)) } else { Ok(payload) });
}

fn asked(shared: &Arc<Shared>, header: &Header, payload: Vec<u8>) -> Result<(), String> {
    let charge = frame::charge(payload.len());
    if !lock(&shared.state).spend(charge) {
        return Err("the other end has sent more requests than it was granted".to_owned());
    }
    let timeout = (header.timeout_ms > 0).then(|| Duration::from_millis(header.timeout_ms.into()));
    let reply = Reply {
        shared: Arc::clone(shared),
        operation: header.operation,
        request: header.request,
        charge,
        deadline: timeout.map(|timeout| shared.now() + timeout),
        is_done: false,
    };
    let peer = Peer { shared: Arc::clone(shared) };
    // A handler that panics has dropped the reply, which has answered.
    let _ = catch_unwind(AssertUnwindSafe(|| shared.handler.request(&peer, header.operation, payload, reply)));
    Ok(())
}

/// Writes frames until the connection is lost.
pub(super) fn write(shared: Arc<Shared>) {
    let ends = Ends(shared);
    let shared = &ends.0;
    let _ = shared.writer.set(std::thread::current().id());
    loop {
        let seen = shared.work.generation();
        expire(shared);
        if shared.silent_for() >= shared.options.silence_max {
            let silence = shared.options.silence_max.as_secs_f64();
            shared.lose(&format!("nothing has come for {silence:.1} s"));
        }
        let turn = lock(&shared.sink).write_next(shared);
        match turn {
            Ok(Turn::Wrote) => shared.room.notify(),
            Ok(Turn::Wait(timeout)) => {
                shared.work.wait(seen, Some(timeout));
            }
            Ok(Turn::End) => return,
            Err(why) => shared.lose(&why.to_string()),
        }
    }
}

fn expire(shared: &Shared) {
    let expired = lock(&shared.state).take_expired(shared.now());
    for open in expired {
        let after = open.deadline.map_or(Duration::ZERO, |(_, after)| after);
        complete(open, Err(CallError::TimedOut { node: shared.name.clone(), after }));
    }
}
