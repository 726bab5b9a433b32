//! A gate that changes pass, so that they can be kept out for good.
//!
//! A change [enters](Gate::enter), does its work, and leaves when its pass is dropped. [`close`](Gate::close) lets no
//! further change in, and [`shut`](Gate::shut) waits for those inside, too. A gate that was closed stays closed.
//!
//! Each connection of a session has a gate, and so has each token of a lease. An older copy of a request that was sent
//! again is not carried out after the newer one. A change of a former owner is not carried out after its successor's.
//!
//! **Threads.** Any. **Failure.** A disk that does not answer keeps a change inside. `shut` gives up after a while and
//! says so; the gate is shut all the same.

use situ_base::{Env, Event, lock};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// See the module's page.
pub(crate) struct Gate {
    state: Mutex<State>,
    left: Arc<dyn Event>,
}

struct State {
    is_open: bool,
    inside: usize,
}

/// A change is inside until this is dropped.
pub(crate) struct Pass(Arc<Gate>);

impl Gate {
    pub(crate) fn new(env: &Env) -> Arc<Gate> {
        Arc::new(Gate { state: Mutex::new(State { is_open: true, inside: 0 }), left: env.executor.event() })
    }

    /// `None` of a gate that was shut.
    pub(crate) fn enter(self: &Arc<Gate>) -> Option<Pass> {
        let mut state = lock(&self.state);
        if !state.is_open {
            return None;
        }
        state.inside += 1;
        Some(Pass(Arc::clone(self)))
    }

    /// Lets no change in any more; whether none is inside.
    pub(crate) fn close(&self) -> bool {
        let mut state = lock(&self.state);
        state.is_open = false;
        state.inside == 0
    }

    /// Returns true if no change is inside now.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.state).inside == 0
    }

    /// Lets no change in any more, and waits for those inside; false if one is still inside after `patience`.
    pub(crate) fn shut(&self, env: &Env, patience: Duration) -> bool {
        let deadline = env.clock.now() + patience;
        loop {
            let seen = self.left.generation();
            let is_empty = self.close();
            let left = deadline.saturating_sub(env.clock.now());
            if is_empty || left.is_zero() {
                return is_empty;
            }
            self.left.wait(seen, Some(left));
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        lock(&self.0.state).inside -= 1;
        self.0.left.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_that_is_shut_waits_for_changes_and_lets_no_other_in() {
        let env = Env::system();
        let gate = Gate::new(&env);
        let pass = gate.enter().unwrap();
        assert!(!gate.shut(&env, Duration::from_millis(5)), "a change is inside");
        assert!(gate.enter().is_none());
        std::thread::scope(|scope| {
            let shut = scope.spawn(|| gate.shut(&env, Duration::from_secs(60)));
            drop(pass);
            assert!(shut.join().unwrap());
        });
        assert!(gate.enter().is_none());
    }
}
