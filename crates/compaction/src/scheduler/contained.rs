//! A unit from outside, whose panics stay its own.
//!
//! The reference unit does what the unit does not, so a unit that panics costs speed only. A unit that panics counts as gone.

use crate::cpu::message;
use crate::task::{Encoder, Task};
use crate::unit::{Assignment, Finished, Load, Offer, Refused, Unit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Passes calls on to a unit and contains its panics.
pub(super) struct Contained(Arc<dyn Unit>);

impl Contained {
    pub(super) fn of(unit: Arc<dyn Unit>) -> Arc<dyn Unit> {
        Arc::new(Contained(unit))
    }

    fn call<T>(&self, call: impl FnOnce(&dyn Unit) -> T) -> Result<T, String> {
        catch_unwind(AssertUnwindSafe(|| call(&*self.0))).map_err(|payload| format!("panicked: {}", message(&*payload)))
    }
}

impl Unit for Contained {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn encoder(&self) -> Encoder {
        self.call(|unit| unit.encoder()).unwrap_or_default()
    }

    fn offer(&self, task: &Task) -> Offer {
        self.call(|unit| unit.offer(task)).unwrap_or_else(Offer::Unsuited)
    }

    fn load(&self) -> Load {
        self.call(|unit| unit.load()).unwrap_or_default()
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        self.call(|unit| unit.submit(assignment)).unwrap_or_else(|text| Err(Refused::Gone(text)))
    }

    fn cancel(&self, attempt: u64) {
        let _ = self.call(|unit| unit.cancel(attempt));
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        let _ = self.call(|unit| unit.poll(finished));
    }

    fn close(&self) {
        let _ = self.call(|unit| unit.close());
    }
}
