//! Random bytes of the system, for ids and seeds.

use rustix::io::{Errno, retry_on_intr};
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;

/// Returns random bytes that others cannot guess, 256 at most. A simulated run that must repeat itself cannot use them.
///
/// # Errors
/// The system has no random number generator.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    const { assert!(N <= 256, "the system may give fewer bytes than it is asked for") };
    let mut bytes = [0; N];
    match retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))? == N {
        true => Ok(bytes),
        false => Err(Errno::IO.into()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn ids_differ() {
        let (one, other): ([u8; 16], [u8; 16]) = (super::random().unwrap(), super::random().unwrap());
        assert!(one != other && one != [0; 16]);
    }
}
