//! The figures of zram: `mm_stat` and `io_stat` of its directory under `/sys` (the kernel's
//! `admin-guide/blockdev/zram`).
//!
//! The figure for physical space is the compressed length of what is stored (`compr_data_size`). The memory that zram
//! holds for it (`mem_used_total`) is more, as memory is given back only by compaction. The limit is a limit of that
//! memory. So the physical total is the limit less what the memory exceeds the data by: `total - used` is then exactly
//! what writes have left.

use super::Counts;
use std::fs;
use std::path::Path;

pub(super) fn counts(directory: &Path) -> Counts {
    fs::read_to_string(directory.join("mm_stat")).ok().and_then(|text| parse(&text)).unwrap_or_default()
}

/// Writes that zram had no memory for, or could not do for another reason.
pub(super) fn trouble(directory: &Path) -> Option<String> {
    let text = fs::read_to_string(directory.join("io_stat")).ok()?;
    let failed = numbers(&text).nth(1)?;
    (failed > 0).then(|| format!("{failed} writes to the drive have failed since it was set up"))
}

fn numbers(text: &str) -> impl Iterator<Item = u64> {
    text.split_whitespace().map_while(|field| field.parse().ok())
}

/// Parses the kernel's text. Returns `None` for any other text.
fn parse(text: &str) -> Option<Counts> {
    let mut fields = numbers(text);
    let (original, compressed) = (fields.next()?, fields.next()?);
    let (memory, limit) = (fields.next()?, fields.next()?);
    Some(Counts {
        logical_used: Some(original),
        physical_total: (limit > 0).then(|| compressed.saturating_add(limit.saturating_sub(memory))),
        physical_used: Some(compressed),
        // There is no such counter.
        physical_written: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From a device with a limit of 32 MiB and from one that is full at 4 MiB, as Linux 6.18 wrote them.
    #[test]
    fn recorded_statistics_are_understood() {
        let limited =
            parse(" 4231168   852924   868352 33554432   868352      100        0      200      200\n").unwrap();
        assert_eq!((limited.logical_used, limited.physical_used), (Some(4_231_168), Some(852_924)));
        assert_eq!(limited.physical_total, Some(33_554_432 - (868_352 - 852_924)));
        let free = limited.physical_total.unwrap() - limited.physical_used.unwrap();
        assert_eq!(free, 33_554_432 - 868_352, "what the limit leaves");
        let full = parse(" 4194304  4194304  4194304  4194304  4198400        0        0     1024     1024\n").unwrap();
        assert_eq!((full.physical_total, full.physical_used), (Some(4 << 20), Some(4 << 20)));
        let unlimited = parse("8192 100 12288 0 12288 0 0 0 0\n").unwrap();
        assert_eq!((unlimited.physical_total, unlimited.physical_used), (None, Some(100)));
        assert_eq!(unlimited.physical_written, None);
    }

    #[test]
    fn a_full_drive_has_nothing_left() {
        let full = parse("4096 4096 8192 8192 8192 0 0 1 1").unwrap();
        assert_eq!((full.physical_total, full.physical_used), (Some(4096), Some(4096)));
        let over = parse("4096 4096 12288 8192 12288 0 0 1 1").unwrap();
        assert_eq!(over.physical_total, Some(4096), "the limit was lowered below what is held");
    }

    #[test]
    fn what_is_no_statistics_gives_no_figures() {
        for text in ["", "1", "1 2 3", "a b c d", "1 2 -3 4", "18446744073709551616 1 1 1"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
