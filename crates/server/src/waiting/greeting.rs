//! The making of connections in remote memory, and their end, by a thread of its own.
//!
//! The server's end of such a connection takes milliseconds: a device is opened, memory is registered, queues are made
//! and connected. So an event loop [begins](Greeter::begin) it, and parks the connection until the outcome comes as a
//! message. The other connections of the loop go on. The thread also [takes down](Greeter::end) what it has made.
//!
//! **Bounded.** A greeting holds a part of the memory for rings, and a second [place](Places) among the connections,
//! which its descriptor needs. Without both it does not begin. A connection has one greeting at a time.
//! **Failure.** A greeting that is dropped, or panics, has an outcome, too.

use crate::engine::cache::Reserved;
use crate::process::descriptors::Places;
use crate::waiting::held::{Greeted, Held};
use crate::waiting::inbox::{Inbox, Message};
use situ_transport::Link;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, mpsc};

/// The work of the thread for one connection.
pub(crate) type Greet = Box<dyn FnOnce(Held) -> Greeted + Send>;

/// A greeting on its way. Its end tells the loop.
pub(crate) struct Greeting {
    connection: u64,
    inbox: Arc<Inbox>,
    work: Option<(Greet, Held)>,
    outcome: Greeted,
}

impl Greeting {
    fn run(mut self) {
        if let Some((greet, held)) = self.work.take() {
            self.outcome = greet(held);
        }
    }
}

impl Drop for Greeting {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Err(String::new()));
        self.inbox.post(Message::Greeted { connection: self.connection, outcome });
    }
}

/// The work of the thread.
pub(crate) enum Errand {
    Greet(Greeting),
    /// Rings that are dropped, and then what they held.
    End(Box<dyn Link>, Held),
}

impl Errand {
    pub(crate) fn run(self) {
        match self {
            Errand::Greet(greeting) => greeting.run(),
            Errand::End(rings, held) => drop((rings, held)),
        }
    }
}

/// Runs errands, until no [`Greeter`] is left.
pub(crate) fn run(errands: mpsc::Receiver<Errand>) {
    // A panic is the end of its errand alone.
    errands.into_iter().for_each(|errand| drop(catch_unwind(AssertUnwindSafe(|| errand.run()))));
}

/// Begins greetings. See the module.
#[derive(Clone)]
pub(crate) struct Greeter {
    errands: mpsc::Sender<Errand>,
    places: Arc<Places>,
    ring_bytes: Arc<AtomicU64>,
    ring_bytes_max: u64,
}

impl Greeter {
    /// Makes a greeter, and the errands for the thread. All rings have at most `ring_bytes_max` bytes.
    pub(crate) fn new(places: Arc<Places>, ring_bytes_max: u64) -> (Greeter, mpsc::Receiver<Errand>) {
        let (errands, received) = mpsc::channel();
        (Greeter { errands, places, ring_bytes: Arc::default(), ring_bytes_max }, received)
    }

    /// Begins the greeting of `connection`, with rings of `bytes` in all that the engine has counted.
    ///
    /// # Errors
    /// The reason why there is no room for it.
    pub(crate) fn begin(
        &self,
        (connection, inbox): (u64, &Arc<Inbox>),
        (of_engine, bytes): (Reserved, u64),
        greet: Greet,
    ) -> Result<(), String> {
        let Greeter { ring_bytes_max: most, .. } = *self;
        let mut rings = Reserved::default();
        // A sum takes a first part of any size.
        if bytes > most || !rings.grow(&self.ring_bytes, bytes, most) {
            return Err(format!("all memory for RDMA, {most} bytes, is taken"));
        }
        let place = self.places.take().ok_or("too many connections: one over RDMA takes the place of two")?;
        let held = Held { _of_engine: of_engine, remote: Some((rings, place)) };
        let outcome = Err("the greeting over RDMA has failed".to_owned());
        let greeting = Greeting { connection, inbox: Arc::clone(inbox), work: Some((greet, held)), outcome };
        // Without a thread, the greeting is dropped and so has an outcome.
        let _ = self.errands.send(Errand::Greet(greeting));
        Ok(())
    }

    /// Takes the rings of a connection down.
    pub(crate) fn end(&self, rings: Box<dyn Link>, held: Held) {
        // Without a thread, they go here.
        let _ = self.errands.send(Errand::End(rings, held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(inbox: &Inbox) -> Vec<(u64, Option<String>)> {
        let mut messages = Vec::new();
        inbox.take(&mut messages);
        let outcome = |message| match message {
            Message::Greeted { connection, outcome } => (connection, outcome.err()),
            _ => panic!("another message"),
        };
        messages.into_iter().map(outcome).collect()
    }

    #[test]
    fn a_greeting_needs_memory_and_a_place_and_gives_both_back() {
        let (places, inbox) = (Places::new(2), Arc::new(Inbox::new().unwrap()));
        let (greeter, errands) = Greeter::new(Arc::clone(&places), 8192);
        let begin = |connection, bytes| {
            let greet: Greet = Box::new(move |_| Err(format!("no device for {connection}")));
            greeter.begin((connection, &inbox), (Reserved::default(), bytes), greet)
        };
        let _socket = places.take();
        assert_eq!(begin(1, 8193).unwrap_err(), "all memory for RDMA, 8192 bytes, is taken");
        begin(2, 4096).unwrap();
        assert_eq!(begin(3, 8192).unwrap_err(), "all memory for RDMA, 8192 bytes, is taken");
        assert_eq!(begin(4, 4096).unwrap_err(), "too many connections: one over RDMA takes the place of two");
        errands.recv().unwrap().run();
        assert_eq!(outcomes(&inbox), [(2, Some("no device for 2".to_owned()))]);
        begin(5, 8192).unwrap();
    }

    #[test]
    fn a_greeting_that_is_lost_has_an_outcome() {
        let (places, inbox) = (Places::new(10), Arc::new(Inbox::new().unwrap()));
        let (greeter, errands) = Greeter::new(places, 1 << 20);
        let begin = |connection, greet| greeter.begin((connection, &inbox), (Reserved::default(), 4096), greet);
        begin(1, Box::new(|_| panic!("a panic of a test"))).unwrap();
        begin(2, Box::new(|_| Err("no device".to_owned()))).unwrap();
        errands.try_iter().for_each(|errand| drop(catch_unwind(AssertUnwindSafe(|| errand.run()))));
        drop(errands);
        begin(3, Box::new(|_| unreachable!("there is no thread"))).unwrap();
        let lost = Some("the greeting over RDMA has failed".to_owned());
        assert_eq!(outcomes(&inbox), [(1, lost.clone()), (2, Some("no device".to_owned())), (3, lost)]);
    }
}
