//! Ends waits for locks that no thread sleeps through: those of futures, which belong to no runtime and have no clock.
//!
//! One thread, `situ-locks`, sleeps until the time of the next wait is over. It is started when a future first waits.
//!
//! **Failure.** If the system gives no thread, no wait would ever end. The caller that asked for the thread gets the
//! error. Waits that others set meanwhile, relying on the thread, fail at once with the same error. The next wait tries
//! again.

use crate::base::store_id::StoreId;
use crate::base::store_id::belong_to;
use crate::base::sync::lock;
use crate::rows::locks::{LockTable, Waiter};
use crate::{Error, Result};
use situ_base::{Env, Event, JobHandle};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The end of a wait, and its number among those that end then.
pub(crate) type Due = (Duration, u64);

/// See the [module](self).
pub(crate) struct Alarm {
    store: StoreId,
    state: Mutex<AlarmState>,
    event: Arc<dyn Event>,
}

#[derive(Default)]
struct AlarmState {
    waits: BTreeMap<Due, Arc<Waiter>>,
    next: u64,
    started: bool,
    thread: Option<Box<dyn JobHandle>>,
    closed: bool,
}

impl Alarm {
    pub(crate) fn new(store: StoreId, env: &Env) -> Alarm {
        Alarm { store, state: Mutex::default(), event: env.executor.event() }
    }

    /// Ends `waiter`'s wait at `at`, unless it has ended by then.
    pub(crate) fn set(
        self: &Arc<Alarm>,
        env: &Env,
        locks: &Arc<LockTable>,
        waiter: &Arc<Waiter>,
        at: Duration,
    ) -> Result<Due> {
        let (due, start) = {
            let mut state = lock(&self.state);
            if state.closed {
                return Err(Error::Closed);
            }
            let due = (at, state.next);
            state.next += 1;
            state.waits.insert(due, Arc::clone(waiter));
            let start = !state.started;
            state.started = true;
            (due, start)
        };
        if start {
            let (alarm, env_there, locks_there) = (Arc::clone(self), env.clone(), Arc::clone(locks));
            match env.executor.spawn("situ-locks", Box::new(move || alarm.serve(&env_there, &locks_there))) {
                Ok(thread) => lock(&self.state).thread = Some(thread),
                Err(error) => {
                    let error = Error::from(situ_storage::Error::io("start thread", "situ-locks", error));
                    let mut waits = {
                        let mut state = lock(&self.state);
                        state.started = false;
                        std::mem::take(&mut state.waits)
                    };
                    waits.remove(&due);
                    for waiter in waits.values() {
                        locks.fail(waiter, error.clone());
                    }
                    return Err(error);
                }
            }
        }
        self.event.notify();
        Ok(due)
    }

    /// Forgets a wait that has ended.
    pub(crate) fn forget(&self, due: Due) {
        lock(&self.state).waits.remove(&due);
    }

    fn serve(&self, env: &Env, locks: &LockTable) {
        belong_to(self.store);
        loop {
            let seen = self.event.generation();
            let now = env.clock.now();
            let (over, next) = {
                let mut state = lock(&self.state);
                if state.closed {
                    return;
                }
                let left = state.waits.split_off(&(now, u64::MAX));
                let over = std::mem::replace(&mut state.waits, left);
                (over, state.waits.first_key_value().map(|((at, _), _)| *at - now))
            };
            if over.is_empty() {
                self.event.wait(seen, next);
            }
            for waiter in over.values() {
                locks.give_up(waiter);
            }
        }
    }

    /// Ends the thread. The locks have been closed, so that no transaction waits any more.
    pub(crate) fn close(&self) {
        let thread = {
            let mut state = lock(&self.state);
            state.closed = true;
            state.waits.clear();
            state.thread.take()
        };
        self.event.notify();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::store::StoreBuilder;
    use crate::api::transaction::TransactionOptions;
    use crate::base::options::Options;
    use crate::rows::locks::LockMode;
    use crate::rows::locks::{Acquired, LockOutcome, Row};
    use situ_base::{Executor, ThreadExecutor};
    use situ_sim::{FaultPlan, SimVolume};
    use std::io;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// An executor that has no thread to give when it has been told to do something; it does that while it is asked.
    #[derive(Default)]
    struct Refuses(Mutex<Option<Box<dyn FnOnce() + Send>>>);

    impl Executor for Refuses {
        fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn JobHandle>> {
            let meanwhile = (name == "situ-locks").then(|| lock(&self.0).take()).flatten();
            match meanwhile {
                Some(meanwhile) => {
                    meanwhile();
                    Err(io::ErrorKind::WouldBlock.into())
                }
                None => ThreadExecutor.spawn(name, job),
            }
        }

        fn event(&self) -> Arc<dyn Event> {
            ThreadExecutor.event()
        }
    }

    /// It once had no thread and no end, if it was set while another one's thread was being refused.
    #[test]
    fn no_wait_loses_its_end_when_there_is_no_thread() {
        let executor = Arc::new(Refuses::default());
        let env = Env { clock: Env::system().clock, executor: Arc::<Refuses>::clone(&executor) };
        let locks = Arc::new(LockTable::new(100));
        let alarm = Arc::new(Alarm::new(StoreId::new(), &env));
        let row = Row { keyspace: 0, key: b"row"[..].into() };
        let wait = |owner| match locks.acquire(&row, owner, LockMode::Exclusive, false, true, None).unwrap() {
            Acquired::Queued(waiter) => waiter,
            _ => panic!("somebody has the row"),
        };
        assert!(matches!(locks.acquire(&row, 1, LockMode::Exclusive, false, true, None), Ok(Acquired::Held)));
        let (one, other, third) = (wait(2), wait(3), wait(4));
        let never = env.clock.now() + Duration::from_secs(3600);
        let meanwhile = {
            let (alarm, env, locks, other) = (Arc::clone(&alarm), env.clone(), Arc::clone(&locks), Arc::clone(&other));
            move || assert!(alarm.set(&env, &locks, &other, never).is_ok())
        };
        *lock(&executor.0) = Some(Box::new(meanwhile));
        assert!(alarm.set(&env, &locks, &one, never).is_err());
        assert!(matches!(other.verdict(), Some(LockOutcome::Failed(_))));
        // Its caller was told; the wait is the caller's to end.
        assert!(one.verdict().is_none());
        alarm.set(&env, &locks, &third, env.clock.now()).unwrap();
        while third.verdict().is_none() {
            env.clock.sleep(Duration::from_millis(1));
        }
        alarm.close();
    }

    /// It was once told that no lock had come within an hour.
    #[test]
    fn a_wait_that_lost_its_thread_is_told_why_and_not_that_its_time_is_over() {
        let executor = Arc::new(Refuses::default());
        let env = Env { clock: Env::system().clock, executor: Arc::<Refuses>::clone(&executor) };
        let volume = SimVolume::new(&env, FaultPlan::none(), 1);
        let store = StoreBuilder::new(Options::default()).env(env).open_volume(Arc::new(volume)).unwrap();
        let keyspace = store.default_keyspace().clone();
        let begin = || store.begin_with(&TransactionOptions::default().lock_timeout_ms(3_600_000)).unwrap();
        let (mut holder, mut one, mut other) = (begin(), begin(), begin());
        holder.lock_in(&keyspace, b"row", LockMode::Exclusive).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let waiting = Arc::new(Mutex::new(None));
        let meanwhile = {
            let (keyspace, waiting) = (keyspace.clone(), Arc::clone(&waiting));
            move || {
                let mut wait =
                    Box::pin(async move { other.lock_in_async(&keyspace, b"row", LockMode::Exclusive).await });
                let polled = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(polled.is_pending());
                *lock(&waiting) = Some(wait);
            }
        };
        *lock(&executor.0) = Some(Box::new(meanwhile));
        let is_io = |error: &Error| matches!(error, Error::Storage(situ_storage::Error::Io { .. }));
        match pin!(one.lock_in_async(&keyspace, b"row", LockMode::Exclusive)).poll(&mut context) {
            Poll::Ready(outcome) => assert!(outcome.as_ref().is_err_and(is_io), "{outcome:?}"),
            Poll::Pending => panic!("it has no end"),
        }
        let Some(mut wait) = lock(&waiting).take() else { panic!("the other one has not waited") };
        match wait.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => assert!(outcome.as_ref().is_err_and(is_io), "{outcome:?}"),
            Poll::Pending => panic!("it has no end"),
        }
        assert_eq!(store.statistics().lock_timeouts, 0);
        drop((holder, one, wait));
        store.close().unwrap();
    }
}
