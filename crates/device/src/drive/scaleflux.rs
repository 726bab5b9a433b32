//! The figures of a ScaleFlux drive, by its vendor's NVMe log pages and query command.
//!
//! Layouts and units are those of the vendor's plugin in nvme-cli (`plugins/scaleflux`). Capacities are in sectors of
//! 512 bytes, whatever the namespace's own sectors are.
//!
//! 1. The extended health log (0xc2, or 0xd2 on newer drives) has the physical capacity and how much of it is free. A
//!    drive without these fields is asked by the query command 0xd3.
//! 2. The additional health log (0xca) has what the host and the flash have written, in a unit that is written down
//!    nowhere. NVMe's own health log has what the host has written, in units of 512,000 bytes. The unit is the one of
//!    those known that makes both say the same; a drive where none does so has no figure.

use super::Counts;
use super::find::ScaleFlux;
use crate::Buffer;
use crate::nvme::{AdminCommand, admin};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

const SECTOR_BYTES: u64 = 512;
const ALL_NAMESPACES: u32 = u32::MAX;

const HEALTH_LOG: u8 = 0x02;
const HEALTH_LOG_BYTES: usize = 512;
/// A figure of 16 bytes, in thousands of sectors.
const DATA_UNITS_WRITTEN: Range<usize> = 48..64;
const DATA_UNIT_BYTES: u128 = 512_000;

const EXTENDED_HEALTH_LOG: u8 = 0xc2;
const EXTENDED_HEALTH_LOG_OF_QUINCE: u8 = 0xd2;
const EXTENDED_HEALTH_LOG_BYTES: usize = 152;
const CRITICAL_WARNING: Range<usize> = 36..40;
const TOTAL_CAPACITY: Range<usize> = 80..88;
const FREE_CAPACITY: Range<usize> = 88..96;

const ADDITIONAL_HEALTH_LOG: u8 = 0xca;
/// An item is a key, a padding of two, a normalized value, a padding, six bytes of figures and a padding.
const ITEM_BYTES: usize = 12;
const ITEMS: usize = 23;
const ITEM_FIGURE: Range<usize> = 5..11;
const FLASH_WRITTEN_ITEM: usize = 11;
const HOST_WRITTEN_ITEM: usize = 12;

const QUERY_CAPACITY: u8 = 0xd3;
const QUERY_BYTES: usize = 88;
const QUERIED_FREE: Range<usize> = 0..8;
const QUERIED_TOTAL: Range<usize> = 16..24;

/// The units that drives are known to count written bytes in: sectors, pages, and 32 MiB as other vendors' logs of this
/// layout do.
const UNITS_KNOWN: [u128; 4] = [512, 4096, 1 << 20, 32 << 20];

/// The warning bit for exceeded capacity.
const WARNS_OVER_CAPACITY: u32 = 0x02;
const WARNS_LOCKED: u32 = 0x04;

/// A drive that has answered.
#[derive(Debug)]
pub(super) struct Controller {
    file: File,
    extended_log: u8,
}

impl Controller {
    /// # Errors
    /// The caller may not ask the drive, or the drive does not say how much physical space it has.
    pub(super) fn open(of: &ScaleFlux) -> io::Result<Controller> {
        let file = File::open(Path::new("/dev").join(&of.name))?;
        let extended_log = if of.is_quince { EXTENDED_HEALTH_LOG_OF_QUINCE } else { EXTENDED_HEALTH_LOG };
        let controller = Controller { file, extended_log };
        controller.capacity()?;
        Ok(controller)
    }

    pub(super) fn counts(&self) -> Counts {
        let capacity = self.capacity().ok();
        Counts {
            logical_used: None,
            physical_total: capacity.map(|capacity| capacity.total),
            physical_used: capacity.map(|capacity| capacity.total - capacity.free),
            physical_written: self.written(),
        }
    }

    pub(super) fn trouble(&self) -> Option<String> {
        warning(&self.log(self.extended_log, EXTENDED_HEALTH_LOG_BYTES).ok()?)
    }

    fn capacity(&self) -> io::Result<Capacity> {
        let logged = self.log(self.extended_log, EXTENDED_HEALTH_LOG_BYTES);
        if let Some(capacity) = logged.as_ref().ok().and_then(|log| Capacity::parse(log, TOTAL_CAPACITY, FREE_CAPACITY))
        {
            return Ok(capacity);
        }
        let queried = self.query();
        let capacity = queried.as_ref().ok().and_then(|answer| Capacity::parse(answer, QUERIED_TOTAL, QUERIED_FREE));
        capacity.ok_or_else(|| {
            let refusal = logged.err().or(queried.err());
            refusal.unwrap_or_else(|| io::Error::other("it does not say how much physical space it has"))
        })
    }

    fn written(&self) -> Option<u64> {
        let additional = self.log(ADDITIONAL_HEALTH_LOG, ITEMS * ITEM_BYTES).ok()?;
        let health = self.log(HEALTH_LOG, HEALTH_LOG_BYTES).ok()?;
        flash_written(&additional, &health)
    }

    fn log(&self, page: u8, bytes: usize) -> io::Result<Buffer> {
        const GET_LOG_PAGE: u8 = 0x02;
        let dwords = (bytes / 4 - 1) as u32;
        self.ask(GET_LOG_PAGE, u32::from(page) | dwords << 16, bytes)
    }

    fn query(&self) -> io::Result<Buffer> {
        self.ask(QUERY_CAPACITY, 0, QUERY_BYTES)
    }

    fn ask(&self, opcode: u8, word_10: u32, bytes: usize) -> io::Result<Buffer> {
        let mut answer = Buffer::new(bytes);
        admin(&self.file, AdminCommand::new(opcode, ALL_NAMESPACES, word_10), Some((&mut answer, bytes)))?;
        Ok(answer)
    }
}

/// The physical capacity, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Capacity {
    total: u64,
    free: u64,
}

impl Capacity {
    /// Parses the fields. Returns `None` if the fields are missing or cannot be true.
    fn parse(answer: &[u8], total: Range<usize>, free: Range<usize>) -> Option<Capacity> {
        let bytes = |at| u64_at(answer, at)?.checked_mul(SECTOR_BYTES);
        let capacity = Capacity { total: bytes(total)?, free: bytes(free)? };
        (capacity.total > 0 && capacity.free <= capacity.total).then_some(capacity)
    }
}

fn field<const BYTES: usize>(answer: &[u8], at: Range<usize>) -> Option<[u8; BYTES]> {
    answer.get(at)?.try_into().ok()
}

fn u64_at(answer: &[u8], at: Range<usize>) -> Option<u64> {
    field(answer, at).map(u64::from_le_bytes)
}

/// Returns the figure of an item in the additional health log.
fn item(log: &[u8], number: usize) -> Option<u64> {
    let begin = number * ITEM_BYTES;
    let figure: [u8; 6] = field(log, begin + ITEM_FIGURE.start..begin + ITEM_FIGURE.end)?;
    let mut whole = [0; 8];
    whole[..6].copy_from_slice(&figure);
    Some(u64::from_le_bytes(whole))
}

/// Returns the bytes that the flash has written, if the two logs agree about what the host has written.
fn flash_written(additional: &[u8], health: &[u8]) -> Option<u64> {
    let (flash, host) = (item(additional, FLASH_WRITTEN_ITEM)?, item(additional, HOST_WRITTEN_ITEM)?);
    let told = u128::from_le_bytes(field(health, DATA_UNITS_WRITTEN)?).checked_mul(DATA_UNIT_BYTES)?;
    let agrees = |unit: &u128| {
        let counted = u128::from(host) * unit;
        // Either figure is rounded to its unit. The logs were read one after the other, while others may write.
        counted.abs_diff(told) <= unit + DATA_UNIT_BYTES + told / 100
    };
    let mut units = UNITS_KNOWN.into_iter().filter(agrees);
    // If several units do, too little was written to tell.
    let (unit, None) = (units.next()?, units.next()) else { return None };
    u64::try_from(u128::from(flash) * unit).ok()
}

fn warning(extended: &[u8]) -> Option<String> {
    let warning = field(extended, CRITICAL_WARNING).map(u32::from_le_bytes)?;
    if warning & WARNS_OVER_CAPACITY != 0 {
        return Some("the drive says that its physical capacity is exceeded".to_owned());
    }
    (warning & WARNS_LOCKED != 0).then(|| "the drive has locked itself against reads or writes".to_owned())
}

#[cfg(test)]
mod tests;
