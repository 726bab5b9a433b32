//! The greeting, in which the two ends of a connection get to know each other.
//!
//! ```text
//!   host                                 node
//!   Hello: versions, store, nonce  ──>
//!                                  <──   Challenge: version, nonce
//!   Prove: the host's proof        ──>
//!                                  <──   Welcome: the node's proof, what it is
//! ```
//!
//! Until the node has checked the proof, it answers nothing else, takes short frames only, and gives little credit. The
//! host sends nothing else, and answers nothing, before it has checked the node's proof. Without a secret, the proofs
//! are zeros.
//!
//! **Failure.** What does not fit (version, secret, store) is [`CallError::Refused`], with words for people. A refused
//! connection stays refused: the host has to connect again.

use crate::error::CallError;
use crate::message::{Call, Challenge, Hello, Message, Operation, Prove, Welcome};
use crate::peer::{Handler, Peer, Reply};
use crate::secret::{Prover, Secret, Transcript, random};
use situ_base::lock;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The oldest version of the protocol that this program speaks.
pub const VERSION_MIN: u16 = 1;
/// The newest one.
pub const VERSION_MAX: u16 = 1;

/// A host's description of itself.
#[derive(Debug, Clone)]
pub struct Introduction {
    /// The store that it wants; empty if it has tasks only.
    pub store: String,
    /// Its session.
    pub session: [u8; 16],
    /// For the node's log.
    pub from: String,
    /// The secret that it proves, and wants to see proven.
    pub secret: Option<Secret>,
    /// The longest payload that it takes.
    pub payload_bytes_max: u32,
}

/// Greets the node. Afterwards, anything can be asked.
///
/// # Errors
/// The node refuses, or cannot prove that it knows the secret.
pub fn greet(peer: &Peer, introduction: &Introduction, timeout: Duration) -> Result<Welcome, CallError> {
    let hello = Hello {
        version_min: VERSION_MIN,
        version_max: VERSION_MAX,
        store: introduction.store.clone(),
        session: introduction.session,
        nonce: random()?,
        payload_bytes_max: introduction.payload_bytes_max,
        from: introduction.from.clone(),
    };
    let mut transcript =
        Transcript { hello: hello.encode(), binding: peer.binding().to_vec(), ..Transcript::default() };
    let answer = peer.call(Hello::OPERATION as u16, transcript.hello.clone(), timeout);
    transcript.challenge = answer.map_err(|error| no_answer(error, peer.binding().is_empty()))?;
    let challenge = Challenge::decode(&transcript.challenge)?;
    check_challenge(peer, introduction, &challenge)?;
    let prove = |secret: &Secret| secret.prove(Prover::Host, &transcript);
    let proof = introduction.secret.as_ref().map_or([0; 32], prove);
    peer.open_up(challenge.payload_bytes_max);
    let welcome = peer.ask(&Prove { proof }, timeout)?;
    match &introduction.secret {
        Some(secret) if !secret.accepts(Prover::Device, &transcript, &welcome.proof) => {
            let why = format!("{} does not know the secret: it is not the node that it should be", peer.name());
            peer.hang_up(&why);
            Err(CallError::Refused(why))
        }
        _ => Ok(welcome),
    }
}

/// A node that expects TLS takes a greeting without TLS for nonsense, and cannot say so.
fn no_answer(error: CallError, is_plain: bool) -> CallError {
    match error {
        CallError::Lost { node, why } if is_plain => {
            CallError::Lost { node, why: format!("{why}, before it answered; a node that expects TLS does so") }
        }
        other => other,
    }
}

fn check_challenge(peer: &Peer, introduction: &Introduction, challenge: &Challenge) -> Result<(), CallError> {
    let refused = |why: String| Err(CallError::Refused(format!("{} {why}", peer.name())));
    if !(VERSION_MIN..=VERSION_MAX).contains(&challenge.version) {
        return refused(format!(
            "chose version {} of the protocol, and this program speaks {VERSION_MIN} to {VERSION_MAX}",
            challenge.version
        ));
    }
    match (challenge.secret, introduction.secret.is_some()) {
        (true, false) => refused("wants a secret; give the file that holds it".to_owned()),
        // An impostor in the node's place could say that there is no secret.
        (false, true) => refused("asks for no secret, and one was given; start the node with its secret".to_owned()),
        _ => Ok(()),
    }
}

/// The part of a node that decides which hosts are let in.
pub trait Door: Send + Sync {
    /// Returns the secret that hosts have to prove, if any.
    fn secret(&self) -> Option<&Secret>;

    /// Returns the longest payload that the node takes.
    fn payload_bytes_max(&self) -> u32;

    /// Runs the entry of a host that has proven what it has to: the entry calls [`enter`](Door::enter), and answers the
    /// host. Called on the connection's reader thread. A door whose `enter` waits for anything has the entry run
    /// elsewhere. An entry that is dropped tells the host to try again.
    fn begin_entry(&self, hello: &Hello, entry: Entry) {
        let _ = hello;
        entry();
    }

    /// Lets a host in that has proven what it has to. Returns the welcome for the host, and the handler of its
    /// requests. The proof is filled in later.
    ///
    /// # Errors
    /// Why not, for people.
    fn enter(&self, peer: &Peer, hello: &Hello) -> Result<(Welcome, Arc<dyn Handler>), CallError>;
}

/// A function that lets a host in, once.
pub type Entry = Box<dyn FnOnce() + Send>;

enum Greeting {
    Waiting,
    Challenged(Transcript),
    /// Or it is just being let in.
    Refused,
    Entered(Arc<dyn Handler>),
    /// The connection is over.
    Lost,
}

impl Greeting {
    /// Nothing follows a greeting that is over.
    fn becomes(&mut self, next: Greeting) -> Greeting {
        match self {
            Greeting::Lost => Greeting::Lost,
            _ => std::mem::replace(self, next),
        }
    }
}

/// The node's end of a greeting: the handler of a connection, which becomes the handler that the [`Door`] gives.
pub struct Doorkeeper {
    door: Arc<dyn Door>,
    greeting: Arc<Mutex<Greeting>>,
}

impl Doorkeeper {
    /// Makes a doorkeeper for a new connection.
    pub fn new(door: Arc<dyn Door>) -> Doorkeeper {
        Doorkeeper { door, greeting: Arc::new(Mutex::new(Greeting::Waiting)) }
    }

    /// Returns true if the host is in.
    pub fn has_entered(&self) -> bool {
        matches!(&*lock(&self.greeting), Greeting::Entered(_))
    }

    fn inner(&self) -> Option<Arc<dyn Handler>> {
        match &*lock(&self.greeting) {
            Greeting::Entered(handler) => Some(Arc::clone(handler)),
            _ => None,
        }
    }

    fn hello(&self, peer: &Peer, payload: Vec<u8>) -> Result<Vec<u8>, CallError> {
        let hello = Hello::decode(&payload)?;
        if !matches!(lock(&self.greeting).becomes(Greeting::Refused), Greeting::Waiting) {
            return Err(CallError::Refused("there was a greeting already; connect again".to_owned()));
        }
        let version = hello.version_max.min(VERSION_MAX);
        if version < hello.version_min.max(VERSION_MIN) {
            let (min, max) = (hello.version_min, hello.version_max);
            return Err(CallError::Refused(format!(
                "the host speaks versions {min} to {max} of the protocol, the node {VERSION_MIN} to {VERSION_MAX}"
            )));
        }
        let challenge = Challenge {
            version,
            secret: self.door.secret().is_some(),
            nonce: random()?,
            payload_bytes_max: self.door.payload_bytes_max(),
        };
        let challenge = challenge.encode();
        let transcript = Transcript { hello: payload, challenge: challenge.clone(), binding: peer.binding().to_vec() };
        lock(&self.greeting).becomes(Greeting::Challenged(transcript));
        Ok(challenge)
    }

    /// The host's words, and the node's proof for a host that has proven itself.
    fn proven(&self, payload: &[u8]) -> Result<(Hello, [u8; 32]), CallError> {
        let Prove { proof } = Prove::decode(payload)?;
        let greeting = lock(&self.greeting).becomes(Greeting::Refused);
        let Greeting::Challenged(transcript) = greeting else {
            return Err(CallError::Refused("there was no greeting before the proof; connect again".to_owned()));
        };
        let secret = self.door.secret();
        if secret.is_some_and(|secret| !secret.accepts(Prover::Host, &transcript, &proof)) {
            return Err(CallError::Refused("the host does not know the node's secret".to_owned()));
        }
        let own = secret.map_or([0; 32], |secret| secret.prove(Prover::Device, &transcript));
        Ok((Hello::decode(&transcript.hello)?, own))
    }

    fn prove(&self, peer: &Peer, payload: &[u8], reply: Reply) {
        let (hello, proof) = match self.proven(payload) {
            Ok(proven) => proven,
            Err(error) => return reply.fail(&error),
        };
        let (door, greeting, peer) = (Arc::clone(&self.door), Arc::clone(&self.greeting), peer.clone());
        let asked = hello.clone();
        let entry = Box::new(move || reply.finish(enter(&*door, &greeting, &peer, &asked, proof)));
        self.door.begin_entry(&hello, entry);
    }
}

/// Lets a host in. If its connection is lost meanwhile, the handler is notified.
fn enter(
    door: &dyn Door,
    greeting: &Mutex<Greeting>,
    peer: &Peer,
    hello: &Hello,
    proof: [u8; 32],
) -> Result<Welcome, CallError> {
    let (welcome, handler) = door.enter(peer, hello)?;
    let before = lock(greeting).becomes(Greeting::Entered(Arc::clone(&handler)));
    if matches!(before, Greeting::Lost) {
        let why = peer.lost().unwrap_or_else(|| CallError::Busy("the connection is over".to_owned()));
        handler.lost(peer, &why);
        return Err(why);
    }
    peer.open_up(hello.payload_bytes_max);
    Ok(Welcome { proof, ..welcome })
}

impl Handler for Doorkeeper {
    fn request(&self, peer: &Peer, operation: u16, payload: Vec<u8>, reply: Reply) {
        if let Some(handler) = self.inner() {
            return handler.request(peer, operation, payload, reply);
        }
        match Operation::of(operation) {
            Some(Operation::Hello) => match self.hello(peer, payload) {
                Ok(challenge) => reply.answer(challenge),
                Err(error) => reply.fail(&error),
            },
            Some(Operation::Prove) => self.prove(peer, &payload, reply),
            _ => reply.fail(&CallError::Refused("the host has to say hello first".to_owned())),
        }
    }

    fn heard(&self, peer: &Peer) {
        if let Some(handler) = self.inner() {
            handler.heard(peer);
        }
    }

    fn lost(&self, peer: &Peer, why: &CallError) {
        let before = lock(&self.greeting).becomes(Greeting::Lost);
        if let Greeting::Entered(handler) = before {
            handler.lost(peer, why);
        }
    }
}

/// A handler for an end that is asked nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRequests;

impl Handler for NoRequests {
    fn request(&self, _: &Peer, operation: u16, _: Vec<u8>, reply: Reply) {
        let name = Operation::of(operation).map_or("an unknown operation", Operation::name);
        reply.fail(&CallError::Unsupported(format!("{name} is not answered at this end")));
    }
}

#[cfg(test)]
mod tests;
