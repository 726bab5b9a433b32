//! Admission: when a write may begin, and where it waits until then.
//!
//! A write is held back by the budget of a store in debt (`budget.rs`) or by an [`Obstacle`]. The environment has no
//! room: of an LSM engine, all memtables of a keyspace are full, or level 0 is. No log file with room is ready. The
//! log's page buffer is full. A blocking write waits, and clears the way, on its own thread. An asynchronous one never
//! does:
//!
//! 1. If no write waits, it is tried at once, and mostly begins.
//! 2. Otherwise it goes to the back of the *waiting room*, and its future stays pending.
//! 3. The admission thread (`threads.rs`) takes the first one in the room, and sleeps until its budget is due. It
//!    begins the write as soon as nothing is in its way, and wakes its future. What has to be done for that (a log file
//!    made ready, the page buffer written out) it does itself; the event `progress` wakes it.
//!
//! **Order.** Asynchronous writes begin in the order of the calls. A blocking write begins after all asynchronous ones
//! whose calls had returned before it was called. So of two writes of one caller that both succeed, the one called
//! first has the lower sequence numbers, whatever their kinds. A write behind others waits for them even if it could
//! begin: a full keyspace holds back asynchronous writes to all keyspaces.
//!
//! **Cancelling.** There is none: a write takes place whether its future is kept or dropped. Otherwise the fate of a
//! write with a dropped future would depend on how busy the store is.
//!
//! **Bounded.** What is in the room takes up to [`WAITING_BYTES_MAX`](crate::WAITING_BYTES_MAX) of memory, in many
//! small writes or a few large ones. Beyond that, a call is refused.
//!
//! **Threads.** The room's lock is taken before the commit lock and held across nothing that blocks or notifies. A
//! write leaves the room under its lock, after its sequence numbers are given out. A caller that finds the room empty
//! comes after all writes that were in it.
//!
//! **Failure.** A store that closes or fails answers all that wait with its reason. A write for which the environment
//! cannot make way ([`Environment::make_way`]) gets the reason as its answer, as a blocking one does. A waker that
//! panics harms no other write: all that leave the room have their answers before the first of them is woken.
//!
//! **Rejected:** to let the future try again when it is polled. A caller that holds a future without polling it would
//! then hold up all writes that wait behind it.

use crate::commit::{Caller, Obstacle, Request, Write};
use crate::environment::Environment;
use crate::parts::{Batch, Note};
use crate::pipeline::Pipeline;
use crate::waiting_room::{Admission, AdmissionOutcome, Waiting, overhead_bytes};
use situ_base::Event;
use situ_base::spent::{Part, lap};
use situ_log::Durability;
use std::mem::take;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

/// A commit may find so often that more was published during its check than is kept. Then it takes its turn with the
/// asynchronous writes, and those that come later wait until it has begun.
const FORGOTTEN_MAX: u32 = 2;

/// Wakes a thread that waits for a verdict.
struct Wakes(Arc<dyn Event>);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

/// The result of the attempt to begin an asynchronous write in its call.
enum AtOnce<E: Environment> {
    Begun(Arc<Request<E>>),
    /// Something is in the way.
    Waits(Write<E>),
}

/// The next step of the admission thread.
enum Turn<E: Environment> {
    /// No write waits.
    Idle,
    /// The budget of the first one is due after so long.
    Later(Duration),
    /// The first one has begun, and left the room.
    Begun(Arc<Request<E>>, Option<Waiting<E>>),
    /// The first one, which has this ticket, was not let in.
    Hindered(u64, Obstacle<E>),
}

impl<E: Environment> Pipeline<E> {
    /// Runs the prologue of a blocking write.
    pub(crate) fn admit(&self, mut write: Write<E>, durability: Durability) -> Result<Arc<Request<E>>, E::Error> {
        self.check_writable()?;
        self.follow()?;
        self.slow_down(write.batch.bytes() as u64);
        let mut forgotten = 0;
        loop {
            let seen = self.progress.generation();
            let obstacle = match self.try_prologue(write, Caller::Thread, durability) {
                Ok(request) => return Ok(request),
                Err((returned, obstacle)) => {
                    write = returned;
                    obstacle
                }
            };
            if matches!(&obstacle, Obstacle::Unchecked(unchecked) if unchecked.may_read()) {
                forgotten += 1;
                if forgotten == FORGOTTEN_MAX {
                    return self.admit_in_turn(write, durability);
                }
            }
            if !self.remove_obstacle(obstacle)? {
                let started = self.env.clock.now();
                lap(Part::Room, || self.progress.wait(seen, None));
                self.held_back(self.env.clock.now().saturating_sub(started));
            }
            self.check_writable()?;
        }
    }

    /// Holds a blocking writer of `bytes` back as long as the budget asks for.
    #[inline]
    pub(crate) fn slow_down(&self, bytes: u64) {
        self.renew_budget();
        let delay = self.budget.charge(&*self.env.clock, bytes);
        if !delay.is_zero() {
            lap(Part::Room, || self.env.clock.sleep(delay));
            self.held_back(delay);
        }
    }

    /// Has the budget set again if it is old; with no lock held.
    #[inline]
    fn renew_budget(&self) {
        if self.budget.is_old(&*self.env.clock) {
            self.environment.note(Note::BudgetIsOld);
        }
    }

    fn held_back(&self, duration: Duration) {
        self.environment.note(Note::HeldBack(duration));
    }

    /// Has the admission thread run the prologue of a blocking write. The bytes of the write are its caller's, and the
    /// write has been slowed down already.
    fn admit_in_turn(&self, write: Write<E>, durability: Durability) -> Result<Arc<Request<E>>, E::Error> {
        self.outstanding.begin();
        let place = self.take_place(write, durability, 0, Some(Duration::ZERO));
        let verdict = place.inspect_err(|_| self.outstanding.end(1))?;
        let event = self.env.executor.event();
        let waker = Waker::from(Arc::new(Wakes(Arc::clone(&event))));
        lap(Part::Room, || {
            loop {
                let seen = event.generation();
                verdict.wake_with(&waker);
                if let Some(outcome) = verdict.get() {
                    return outcome.clone();
                }
                event.wait(seen, None);
            }
        })
    }

    /// Runs the prologue of an asynchronous write, or gives the write a place to wait for it.
    pub(crate) fn admit_async(&self, write: Write<E>, durability: Durability) -> Result<Admission<E>, E::Error> {
        self.check_writable()?;
        // Before: it may have ended when the call returns.
        self.outstanding.begin();
        self.find_place(write, durability).inspect_err(|_| self.outstanding.end(1))
    }

    fn find_place(&self, mut write: Write<E>, durability: Durability) -> Result<Admission<E>, E::Error> {
        let mut delay = None;
        if self.waiting_room.is_empty() {
            self.renew_budget();
            let charged = self.budget.charge(&*self.env.clock, write.batch.bytes() as u64);
            if charged.is_zero() {
                match self.begin_at_once(write, durability)? {
                    AtOnce::Begun(request) => return Ok(Admission::Begun(request)),
                    AtOnce::Waits(returned) => write = returned,
                }
            }
            delay = Some(charged);
        }
        let charged_bytes = write.bytes() + overhead_bytes::<E>();
        self.take_place(write, durability, charged_bytes, delay).map(Admission::Waits)
    }

    /// Begins an asynchronous write, or gives it back if it has to wait for something.
    fn begin_at_once(&self, mut write: Write<E>, durability: Durability) -> Result<AtOnce<E>, E::Error> {
        loop {
            match self.try_prologue(write, Caller::Future, durability) {
                Ok(request) => {
                    self.log_and_apply_async(&request);
                    return Ok(AtOnce::Begun(request));
                }
                Err((_, Obstacle::Refused(error))) => return Err(*error),
                Err((returned, Obstacle::Unchecked(unchecked))) if !unchecked.may_read() => {
                    write = returned;
                    unchecked.look()?;
                }
                Err((returned, _)) => return Ok(AtOnce::Waits(returned)),
            }
        }
    }

    /// Takes a place at the end of the waiting room, from which the write begins `delay` from now if it is the first
    /// then.
    fn take_place(
        &self,
        write: Write<E>,
        durability: Durability,
        charged_bytes: u64,
        delay: Option<Duration>,
    ) -> Result<Arc<AdmissionOutcome<E>>, E::Error> {
        let since = self.env.clock.now();
        let verdict = AdmissionOutcome::new();
        let is_first = self.waiting_room.push(charged_bytes, || Waiting {
            write,
            charged_bytes,
            durability,
            since,
            due: delay.map(|delay| since + delay),
            verdict: Arc::clone(&verdict),
            outstanding: Arc::clone(&self.outstanding),
        })?;
        if is_first {
            self.progress.notify();
        }
        Ok(verdict)
    }

    /// Lets a blocking write wait for the asynchronous ones that were called before it.
    fn follow(&self) -> Result<(), E::Error> {
        let room = &self.waiting_room;
        if room.is_empty() {
            return Ok(());
        }
        let behind = room.next_ticket();
        room.follower_comes();
        let result = lap(Part::Room, || {
            loop {
                let seen = self.progress.generation();
                if room.has_passed(behind) {
                    break Ok(());
                }
                if let Err(error) = self.check_writable() {
                    break Err(error);
                }
                self.progress.wait(seen, None);
            }
        });
        room.follower_goes();
        result
    }

    /// Does what can be done about an obstacle. Returns true if the write may be tried again now, false if it is to
    /// wait for the store's progress. An error if it never will begin.
    fn remove_obstacle(&self, obstacle: Obstacle<E>) -> Result<bool, E::Error> {
        match obstacle {
            Obstacle::Refused(error) => Err(*error),
            Obstacle::Unchecked(unchecked) => unchecked.look().map(|()| true),
            Obstacle::NoRoom(no_room) => lap(Part::Room, || self.environment.make_way(no_room)),
            Obstacle::LogBufferFull => {
                let log = self.writable()?;
                // Also the last page of a file that the log has left, which may hold no record: it counts as waiting,
                // and a commit of all records can leave it where it is.
                if let Err(error) = lap(Part::Room, || log.write_out()) {
                    self.environment.fail(error);
                }
                Ok(true)
            }
        }
    }

    /// Runs one turn of the admission thread: begins the first write in the room. If there is nothing else to do,
    /// returns the progress beyond which the thread waits, and the maximum time to wait.
    pub(crate) fn admit_first(&self) -> Option<(u64, Option<Duration>)> {
        let seen = self.progress.generation();
        if let Err(error) = self.check_writable() {
            self.refuse_waiting(&error);
            return Some((seen, None));
        }
        self.renew_budget();
        let (turn, has_work) = self.begin_first();
        if has_work {
            self.environment.tell_background();
        }
        match turn {
            Turn::Idle => Some((seen, None)),
            Turn::Later(due) => Some((seen, Some(due))),
            Turn::Begun(request, left) => {
                self.room_left();
                self.has_begun(&request, left);
                None
            }
            Turn::Hindered(ticket, obstacle) => {
                self.room_left();
                self.was_hindered(ticket, obstacle).then_some((seen, None))
            }
        }
    }

    /// Runs the prologue of the first write in the room. Returns true if there is work for the background.
    fn begin_first(&self) -> (Turn<E>, bool) {
        let now = self.env.clock.now();
        let mut room = self.waiting_room.lock();
        let Some((&ticket, first)) = room.writes.iter_mut().next() else { return (Turn::Idle, false) };
        let bytes = first.write.batch.bytes() as u64;
        let due = *first.due.get_or_insert_with(|| now + self.budget.charge(&*self.env.clock, bytes));
        if due > now {
            return (Turn::Later(due - now), false);
        }
        assert!(first.verdict.get().is_none(), "write {ticket} waits, and its caller has an outcome");
        let (write, durability) = (take(&mut first.write), first.durability);
        let (begun, has_work) = self.prologue(write, Caller::Future, durability);
        let turn = match begun {
            Ok(request) => {
                // Before anything else can go wrong: from now on the request is what answers.
                first.decide(Ok(Arc::clone(&request)));
                Turn::Begun(request, self.waiting_room.remove_from(&mut room, ticket))
            }
            Err((write, obstacle)) => {
                first.write = write;
                Turn::Hindered(ticket, obstacle)
            }
        };
        (turn, has_work)
    }

    /// Notes that a write has left the room with its request.
    fn has_begun(&self, request: &Arc<Request<E>>, left: Option<Waiting<E>>) {
        self.log_and_apply_async(request);
        if self.waiting_room.has_followers() {
            self.progress.notify();
        }
        if let Some(left) = left {
            self.held_back(self.env.clock.now().saturating_sub(left.since));
            self.wake_decided(left);
        }
    }

    /// Handles the obstacle of the first write, which was not let in. Returns true if it is to wait for progress.
    fn was_hindered(&self, ticket: u64, obstacle: Obstacle<E>) -> bool {
        match self.remove_obstacle(obstacle) {
            Ok(may_try) => !may_try,
            Err(error) => {
                if let Some(left) = self.waiting_room.remove(ticket) {
                    left.decide(Err(error));
                    self.wake_decided(left);
                }
                self.progress.notify();
                false
            }
        }
    }

    /// Answers all that wait. Of a store that closes, the room closes with it.
    fn refuse_waiting(&self, error: &E::Error) {
        let left = self.waiting_room.empty(self.environment.is_closing());
        left.values().for_each(|waiting| waiting.decide(Err(error.clone())));
        left.into_values().for_each(|waiting| self.wake_decided(waiting));
    }

    /// Wakes the future of a write that has left the room. To be called without a lock: what is woken may poll, or do
    /// as it likes.
    fn wake_decided(&self, left: Waiting<E>) {
        // What a transaction holds is given back first: a caller that is woken may begin another one.
        if let Some(condition) = &left.write.condition {
            condition.release();
        }
        self.wake(left.verdict.take_waker());
    }
}
