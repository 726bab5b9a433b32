//! The geometry of a device, in lines for people and as JSON.

use crate::text;
use serde::Serialize;
use situ_device::Geometry;

#[derive(Serialize)]
pub(crate) struct DeviceReport {
    logical_block_bytes: u32,
    /// The size of a write that is never torn if it is aligned to that size.
    atomic_write_bytes: u32,
    max_transfer_bytes: u32,
    volatile_write_cache: bool,
    /// The treatment of the cache: log writes are forced through it and all else is flushed, or neither.
    cache_is_passed_by: CachePassedBy,
    /// 0 if the device takes no discards.
    discard_bytes: u32,
    discard_zeroes: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum CachePassedBy {
    FuaAndFlush,
    Nothing,
}

impl From<Geometry> for DeviceReport {
    fn from(geometry: Geometry) -> DeviceReport {
        let cached = geometry.volatile_write_cache;
        DeviceReport {
            logical_block_bytes: geometry.block_bytes,
            atomic_write_bytes: geometry.atomic_write_bytes,
            max_transfer_bytes: geometry.max_transfer_bytes,
            volatile_write_cache: cached,
            cache_is_passed_by: if cached { CachePassedBy::FuaAndFlush } else { CachePassedBy::Nothing },
            discard_bytes: geometry.discard_bytes,
            discard_zeroes: geometry.discard_zeroes,
        }
    }
}

impl DeviceReport {
    /// Returns the lines to show, each with a word for its subject.
    pub(crate) fn lines(&self) -> [(&'static str, String); 3] {
        let bytes = |bytes: u32| text::bytes(u64::from(bytes));
        let blocks = format!(
            "blocks of {}, writes of {} are never torn, transfers of {} at most",
            bytes(self.logical_block_bytes),
            bytes(self.atomic_write_bytes),
            bytes(self.max_transfer_bytes)
        );
        let cache = match self.cache_is_passed_by {
            CachePassedBy::FuaAndFlush => {
                "volatile: durable writes of the log are forced through it (FUA), all else is flushed"
            }
            CachePassedBy::Nothing => "not volatile: neither flush nor FUA is sent",
        };
        let discard = match (self.discard_bytes, self.discard_zeroes) {
            (0, _) => "none: the store does not tell the device which room is free".to_owned(),
            (unit, true) => format!("in units of {}, which then read as zeros", bytes(unit)),
            (unit, false) => format!("in units of {}, which then read as anything, so zeros are written", bytes(unit)),
        };
        [("device", blocks), ("cache", cache.to_owned()), ("discard", discard)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_for_a_cache_and_what_a_discard_means_is_said() {
        let geometry = Geometry {
            block_bytes: 512,
            atomic_write_bytes: 4096,
            max_transfer_bytes: 1 << 20,
            volatile_write_cache: true,
            discard_bytes: 8192,
            discard_zeroes: false,
        };
        let lines = |geometry| DeviceReport::from(geometry).lines().map(|(_, line)| line);
        let [blocks, cache, discard] = lines(geometry);
        assert_eq!(blocks, "blocks of 512 B, writes of 4.00 KiB are never torn, transfers of 1.00 MiB at most");
        assert!(cache.contains("FUA") && cache.contains("flushed"), "{cache}");
        assert!(discard.contains("8.00 KiB") && discard.contains("anything"), "{discard}");
        let [_, cache, discard] = lines(Geometry { volatile_write_cache: false, discard_zeroes: true, ..geometry });
        assert!(cache.contains("neither flush nor FUA"), "{cache}");
        assert!(discard.contains("as zeros"), "{discard}");
        let [.., discard] = lines(Geometry { discard_bytes: 0, ..geometry });
        assert!(discard.starts_with("none"), "{discard}");
    }
}
