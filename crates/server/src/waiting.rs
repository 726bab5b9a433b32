//! The things that a connection waits for, and the inbox that wakes its event loop.
//!
//! A connection waits for the [stripe](stripe) of a key, a [read](fetch), [room](room) for its batch, the text of a
//! [feed], or its [greeting].

pub(crate) mod feed;
pub(crate) mod fetch;
pub(crate) mod greeting;
pub(crate) mod held;
pub(crate) mod inbox;
pub(crate) mod room;
pub(crate) mod stripe;

/// The number of a stripe; it is small.
pub(crate) type StripeIndex = u32;

/// The reason for which a connection runs nothing for now. When it is gone, the command runs again from its start,
/// having changed nothing, or a retrieval from the key where it stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The stripe of its key belongs to another command.
    Stripe(StripeIndex),
    /// The engine reads from the disk for it.
    Read,
    /// Too many reads are under way for another one.
    ReadSlot,
    /// Its share of the turn is used up: others have their turn first.
    Turn,
    /// Its client has not taken its answers.
    Output,
    /// Its feed has not ended.
    Feed,
    /// Too many of its answers wait for the engine.
    Answers,
    /// The engine has not taken the batch with its last change, or cannot take another change.
    Admission,
    /// Its remote memory is being made.
    Greeting,
}
