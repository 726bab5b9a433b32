//! The state that the threads of a connection and its callers share under one lock.

use super::{Answer, Shared};
use crate::error::CallError;
use crate::frame::{FIRST_CREDIT_BYTES, FIRST_PAYLOAD_BYTES, HEADER_BYTES, Header, Side, flag};
use crate::message::Operation;
use crc32c::crc32c;
use situ_base::lock;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// A longer answer is one of many that carry a file, and not one block for a reader.
const SHORT_ANSWER_BYTES: usize = 32 << 10;
/// After this many bytes of urgent frames a frame of the bulk goes, so that the bulk comes forward, too.
const OVERTAKING_BYTES_MAX: usize = 256 << 10;

/// A request that waits for its answer.
pub(super) struct Open {
    /// The end of its time, and the length of that time.
    pub(super) deadline: Option<(Duration, Duration)>,
    pub(super) answer: Box<dyn FnOnce(Answer) + Send>,
}

/// A frame to be written.
pub(super) struct Outgoing {
    operation: u16,
    flags: u8,
    timeout_ms: u32,
    request: u64,
    payload_crc: u32,
    pub(super) payload: Vec<u8>,
}

impl Outgoing {
    pub(super) fn new(operation: u16, flags: u8, timeout_ms: u32, request: u64, payload: Vec<u8>) -> Outgoing {
        let payload_crc = crc32c(&payload);
        Outgoing { operation, flags, timeout_ms, request, payload_crc, payload }
    }

    pub(super) fn operation(&self) -> u16 {
        self.operation
    }

    /// Returns true if it may wait behind frames that are not bulk. Such a frame is one of many that carry a file. Or
    /// it is a request about a file that is written, which must not overtake what is appended to the file.
    fn is_bulk(&self) -> bool {
        use Operation::{Append, Resume, WriterDrop, WriterFinish, WriterFlush, WriterSync};
        match self.flags & flag::ANSWER {
            0 => matches!(
                Operation::of(self.operation),
                Some(Append | Resume | WriterDrop | WriterFinish | WriterFlush | WriterSync)
            ),
            _ => self.payload.len() > SHORT_ANSWER_BYTES,
        }
    }

    pub(super) fn frame_bytes(&self) -> usize {
        HEADER_BYTES + self.payload.len()
    }

    pub(super) fn header(&self, side: Side, grant: u32) -> Header {
        Header {
            side,
            flags: self.flags,
            operation: self.operation,
            // Longer payloads are refused before they get here.
            payload_bytes: u32::try_from(self.payload.len()).unwrap_or(u32::MAX),
            timeout_ms: self.timeout_ms,
            request: self.request,
            grant,
            payload_crc: self.payload_crc,
        }
    }
}

pub(super) struct State {
    pub(super) lost: Option<CallError>,
    /// Urgent frames, which have a waiter: they go before the bulk.
    urgent: VecDeque<Outgoing>,
    /// See [`Outgoing::is_bulk`].
    bulk: VecDeque<Outgoing>,
    /// Bytes that went before the first frame of the bulk since that could have gone.
    overtaking_bytes: usize,
    pub(super) queued_bytes: usize,
    /// The bytes that this end may still send in requests.
    pub(super) credit: u64,
    /// The bytes that the other end may still send in requests.
    allowed: u64,
    /// The bytes that the other end is to be granted with the next frame.
    pub(super) owed: u64,
    /// The longest payload that both ends take.
    pub(super) payload_bytes_max: u32,
    /// Both ends know each other: this end takes long payloads.
    pub(super) is_open: bool,
    last_request: u64,
    open: HashMap<u64, Open>,
    deadlines: BTreeSet<(Duration, u64)>,
    pub(super) sent_at: Duration,
    /// The time until which the writer thread sleeps if no thread wakes it.
    pub(super) writer_wakes_at: Duration,
}

impl State {
    pub(super) fn new(now: Duration) -> State {
        State {
            lost: None,
            urgent: VecDeque::new(),
            bulk: VecDeque::new(),
            overtaking_bytes: 0,
            queued_bytes: 0,
            credit: FIRST_CREDIT_BYTES.into(),
            allowed: FIRST_CREDIT_BYTES.into(),
            owed: 0,
            payload_bytes_max: FIRST_PAYLOAD_BYTES,
            is_open: false,
            last_request: 0,
            open: HashMap::new(),
            deadlines: BTreeSet::new(),
            sent_at: now,
            writer_wakes_at: Duration::ZERO,
        }
    }

    pub(super) fn queue(&mut self, frame: Outgoing) {
        self.queued_bytes += frame.frame_bytes();
        match frame.is_bulk() {
            true => self.bulk.push_back(frame),
            false => self.urgent.push_back(frame),
        }
    }

    /// The number of a request that waits from now on.
    pub(super) fn register(&mut self, open: Open) -> u64 {
        self.last_request += 1;
        let id = self.last_request;
        if let Some((deadline, _)) = open.deadline {
            self.deadlines.insert((deadline, id));
        }
        self.open.insert(id, open);
        id
    }

    pub(super) fn take_open(&mut self, id: u64) -> Option<Open> {
        let open = self.open.remove(&id)?;
        if let Some((deadline, _)) = open.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        Some(open)
    }

    /// The requests whose time is over.
    pub(super) fn take_expired(&mut self, now: Duration) -> Vec<Open> {
        let mut expired = Vec::new();
        while let Some((deadline, id)) = self.deadlines.first().copied() {
            if deadline > now {
                break;
            }
            expired.extend(self.take_open(id));
        }
        expired
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The next frame to write, with what it grants.
    pub(super) fn next_frame(&mut self) -> Option<(Outgoing, u32)> {
        let is_bulks_turn = self.overtaking_bytes >= OVERTAKING_BYTES_MAX && !self.bulk.is_empty();
        let urgent = if is_bulks_turn { None } else { self.urgent.pop_front() };
        let (frame, overtaking) = match urgent {
            Some(frame) if self.bulk.is_empty() => (frame, 0),
            Some(frame) => {
                let overtaking = self.overtaking_bytes + frame.frame_bytes();
                (frame, overtaking)
            }
            None => (self.bulk.pop_front()?, 0),
        };
        self.overtaking_bytes = overtaking;
        self.queued_bytes -= frame.frame_bytes();
        Some((frame, self.take_grant()))
    }

    pub(super) fn take_grant(&mut self) -> u32 {
        let grant = u32::try_from(self.owed).unwrap_or(u32::MAX);
        self.owed -= u64::from(grant);
        self.allowed += u64::from(grant);
        grant
    }

    /// A request of the other end has come. False if it was not granted.
    pub(super) fn spend(&mut self, charge: u32) -> bool {
        match self.allowed.checked_sub(charge.into()) {
            Some(left) => {
                self.allowed = left;
                true
            }
            None => false,
        }
    }

    /// Ends it; all requests that wait. `None` if it has ended before.
    pub(super) fn end(&mut self, error: &CallError) -> Option<Vec<Open>> {
        if self.lost.is_some() {
            return None;
        }
        self.lost = Some(error.clone());
        self.urgent.clear();
        self.bulk.clear();
        self.queued_bytes = 0;
        self.deadlines.clear();
        Some(std::mem::take(&mut self.open).into_values().collect())
    }
}

impl Shared {
    /// Queues an answer and gives the request's credit back. Waits for room, unless on a thread of the connection.
    pub(super) fn answer(self: &Arc<Self>, charge: u32, answer: Option<Outgoing>) {
        let deadline = self.now() + self.options.answer_wait_max;
        loop {
            let seen = self.room.generation();
            let mut state = lock(&self.state);
            if state.lost.is_some() {
                return;
            }
            let has_room = state.queued_bytes < self.options.queue_bytes_max;
            if has_room || answer.is_none() || self.is_own_thread() {
                state.owed += u64::from(charge);
                let is_urgent = answer.is_some() || state.owed >= u64::from(self.options.window_bytes / 4);
                answer.into_iter().for_each(|frame| state.queue(frame));
                drop(state);
                if is_urgent {
                    self.send_now(false);
                }
                return;
            }
            drop(state);
            let left = deadline.saturating_sub(self.now());
            if left.is_zero() {
                let waited = self.options.answer_wait_max.as_secs_f64();
                return self
                    .lose(&format!("the other end took its answers too slowly: one has waited for {waited:.1} s"));
            }
            self.room.wait(seen, Some(left));
        }
    }
}
