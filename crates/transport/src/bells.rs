//! Bells: bytes on the socket that wake a side that sleeps.

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::os::fd::AsFd;

/// The most bells that are taken at once. An honest side rings at most once for each sleep of the other one.
const BELLS_MAX: usize = 4096;

/// The state of a socket after its bells were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bells {
    /// There are no more.
    Taken,
    /// The other side has closed the socket.
    Closed,
    /// The other side rings without end. It has broken the protocol.
    TooMany,
}

/// Takes the bells that are there, and does not wait.
pub fn take_bells(socket: impl AsFd) -> Bells {
    let (mut bells, mut taken) = ([0_u8; 256], 0);
    while taken < BELLS_MAX {
        match recv(&socket, &mut bells[..], RecvFlags::DONTWAIT) {
            Ok((_, count @ 1..)) => taken += count,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Bells::Taken,
            Ok((_, 0)) | Err(_) => return Bells::Closed,
        }
    }
    Bells::TooMany
}
