//! The file with the record of the store's clock (`docs/formats/hash.md`).
//!
//! **Failure.** A damaged file is reported and ignored: store time then starts at the wall clock.

use crate::base::events::{Events, HashEvent};
use crate::format::fields::{At, Fields, Mismatch, require_checksum};
use crate::{Result, StoreId};
use situ_base::ClockRecord;
use situ_storage::{Error as StorageError, FileName, Volume};

/// Bytes of the file: the record, and a checksum.
const FILE_BYTES: usize = ClockRecord::BYTES + 4;

fn sum(store: StoreId, record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&store.0), record)
}

fn encode(store: StoreId, record: &ClockRecord) -> Vec<u8> {
    let record = record.encode();
    [&record[..], &sum(store, &record).to_le_bytes()].concat()
}

fn decode(store: StoreId, bytes: &[u8]) -> Result<ClockRecord, Mismatch> {
    let mut fields = Fields(bytes);
    let record = fields.take(ClockRecord::BYTES, "record")?;
    require_checksum(fields.u32("checksum")?, sum(store, record))?;
    fields.zeros(fields.0.len(), "zeros behind the fields")?;
    ClockRecord::decode(record).ok_or_else(|| Mismatch::new("record", "version 1", format_args!("{record:02x?}")))
}

/// Reads the record in `home`; `None` if it is missing or damaged.
pub(crate) fn read(home: &dyn Volume, store: StoreId, events: &Events) -> Result<Option<ClockRecord>> {
    let reader = match home.open(FileName::Clock) {
        Ok(reader) => reader,
        Err(StorageError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = vec![0; FILE_BYTES.min(usize::try_from(reader.bytes()).unwrap_or(FILE_BYTES))];
    reader.read_at(0, &mut bytes)?;
    Ok(decode(store, &bytes)
        .map_err(|mismatch| {
            let path = format!("{}/{}", home.location(), FileName::Clock);
            events.tell(&HashEvent::ClockDamaged { damage: mismatch.at(&path, 0, "the record of the clock") });
        })
        .ok())
}

/// Writes the record to `home`.
pub(crate) fn write(home: &dyn Volume, store: StoreId, record: &ClockRecord) -> Result<()> {
    Ok(home.replace(FileName::Clock, &encode(store, record))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_base::{StoreClock, SystemClock};
    use std::sync::Arc;

    #[test]
    fn a_changed_byte_and_another_store_are_found() {
        let store = StoreId([7; 16]);
        let record = StoreClock::resume(Arc::new(SystemClock::default()), None).record();
        let bytes = encode(store, &record);
        assert_eq!((bytes.len(), decode(store, &bytes).unwrap()), (46, record));
        assert!(decode(StoreId([8; 16]), &bytes).is_err());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            assert!(decode(store, &changed).is_err() && decode(store, &bytes[..at]).is_err(), "{at}");
        }
    }
}
