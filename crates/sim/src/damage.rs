//! The effects of a fault on bytes and on answers, on a file or on a device.

use crate::Rng;
use crate::disk::{Inode, SECTOR_BYTES};
use crate::fault::Fault;
use situ_device::PAGE_BYTES;
use std::io;

pub(crate) fn crash_error() -> io::Error {
    io::Error::other("the simulated machine has crashed")
}

pub(crate) fn io_error(fault: Fault) -> Option<io::Error> {
    let code = match fault {
        Fault::NotFound => 2,
        Fault::Io | Fault::DropDirty => 5,
        Fault::PermissionDenied => 13,
        Fault::NoSpace => 28,
        Fault::ReadOnly => 30,
        _ => return None,
    };
    Some(io::Error::from_raw_os_error(code))
}

/// Puts the bytes of write `number`, or what the fault makes of them, where reads see them. Returns where they went, or
/// the error that the write ends with.
pub(crate) fn write(
    file: &mut Inode,
    number: u64,
    offset: u64,
    bytes: &[u8],
    fault: Option<Fault>,
    rng: &mut Rng,
) -> io::Result<u64> {
    let mut offset = offset;
    match fault {
        Some(fault @ (Fault::Io | Fault::NoSpace)) => {
            let kept = partial(bytes.len(), rng);
            file.write(number, offset, &bytes[..kept]);
            return Err(io_error(fault).unwrap_or_else(crash_error));
        }
        Some(Fault::LoseWrite) => {}
        Some(Fault::FlipBit) => {
            let mut rotten = bytes.to_vec();
            flip_one(&mut rotten, rng);
            file.write(number, offset, &rotten);
        }
        Some(Fault::Misdirect) => {
            offset = other_place(offset, bytes.len(), file.contents.len(), rng);
            file.write(number, offset, bytes);
        }
        _ => file.write(number, offset, bytes),
    }
    Ok(offset)
}

pub(crate) fn flip_one(bytes: &mut [u8], rng: &mut Rng) {
    if !bytes.is_empty() {
        let at = rng.index(bytes.len());
        bytes[at] ^= 1 << rng.below(8);
    }
}

/// Draws the part of a failed write that was stored: nothing, some sectors, or all.
fn partial(bytes: usize, rng: &mut Rng) -> usize {
    match rng.below(3) {
        0 => 0,
        1 => bytes,
        _ => (rng.index(bytes / SECTOR_BYTES + 1) * SECTOR_BYTES).min(bytes),
    }
}

/// Draws another place in pages for a write of `bytes`; the same if the file has no other.
fn other_place(offset: u64, bytes: usize, file_bytes: usize, rng: &mut Rng) -> u64 {
    let places = (file_bytes.saturating_sub(bytes) / PAGE_BYTES) as u64;
    let here = offset / PAGE_BYTES as u64;
    match places {
        0 => offset,
        // Drawn from the others: those behind the right one move up by one.
        _ => {
            let drawn = rng.below(places);
            (drawn + u64::from(drawn >= here)) * PAGE_BYTES as u64
        }
    }
}
