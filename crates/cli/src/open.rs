//! Opening a store of either kind to walk over its entries.

use crate::failure::Failure;
use crate::hash::HashEntries;
use crate::options::Target;
use crate::output::Output;
use crate::store::Readable;
use crate::walk::Walk;

/// Opens `target`, of whatever kind its store is, to walk over it.
///
/// # Errors
/// As [`Readable::open`] and [`HashEntries::open`].
pub(crate) fn open_to_walk(target: &Target, stored: bool, out: &Output) -> Result<Box<dyn Walk>, Failure> {
    Ok(match target.home().is_hash() {
        true => Box::new(HashEntries::open(target, stored)?),
        false => Box::new(Readable::open(target, stored, out)?),
    })
}
