//! Connections in remote memory: the same stream of bytes as in shared memory, for a client on another machine.
//!
//! A network card that speaks RDMA over Ethernet (RoCE version 2) writes into the memory of the other machine, without
//! its processor. A TCP socket carries the greeting, and its end ends the connection. `docs/formats/remote-memory.md`
//! has the format.
//!
//! * [`Wish`], and then [`ClientEnd::upgrade_remote`](crate::ClientEnd::upgrade_remote): the client's half of the
//!   greeting.
//! * [`Offer`] and [`accept`]: the server's half.
//! * [`RemoteRings`]: one side of a connection, a [`Link`](crate::Link).
//!
//! **Modules.** `library` has the types and functions of libibverbs, which is loaded at run time. `pair` makes all
//! calls, and has the unsafe code. `port` finds the device. `remote` is the protocol, `greeting` its beginning.
//! **Trust.** The other side can write into one ring of its own connection, and nowhere else: the device refuses
//! anything else and breaks the connection. Counts are checked before they are used. A side connects only to the
//! address that the TCP socket is connected to.
//! **Forks.** A process that forks must not use connections in the child.

mod greeting;
mod library;
mod pair;
mod port;
mod remote;

pub use greeting::{Accepted, Ends, NoOffer, Offer, REQUEST_WORD, VERSION, Wish, accept};
pub use port::devices;
pub use remote::RemoteRings;

/// Checks that libibverbs is there, and this device.
///
/// # Errors
/// The reason, with the names of the devices that are there.
pub fn check(device: &str) -> Result<(), String> {
    library::functions()?;
    match devices() {
        devices if devices.iter().any(|name| name == device) => Ok(()),
        devices if devices.is_empty() => Err("this machine has no RDMA device".to_owned()),
        devices => Err(format!("there is no RDMA device {device}, but {}", devices.join(", "))),
    }
}

#[cfg(test)]
mod tests;
