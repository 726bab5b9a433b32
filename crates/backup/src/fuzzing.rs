//! The decoders of this crate as functions of any bytes, for fuzzers (`fuzz/`). Only there with the feature `fuzzing` and
//! in tests.

use crate::content::{Content, Kind};
use crate::lineage;
use crate::metadata::{self, Entry, New};
use situ_storage::FileName;

/// Decodes the file of a backup, and the file LINEAGE. The first byte asks for a right checksum around the rest.
///
/// # Panics
/// A decoder does; or metadata that was read is not what is written again.
pub fn backup(bytes: &[u8]) {
    let Some((control, rest)) = bytes.split_first() else { return };
    let _ = lineage::encode(&lineage::decode(rest));
    let decoded = match control & 1 {
        1 => metadata::decode(&metadata::checked(&String::from_utf8_lossy(rest)), "x"),
        _ => metadata::decode(rest, "x"),
    };
    let Ok(backup) = decoded else { return };
    let again = metadata::decode(&metadata::encode(&new_as(&backup)), "x").expect("it was just written");
    assert_eq!((again.id, &again.entries), (backup.id, &backup.entries));
}

fn new_as(backup: &metadata::Backup) -> New {
    New {
        id: backup.id,
        unix_ms: backup.unix_ms,
        last_sequence: backup.last_sequence,
        added_bytes: backup.added_bytes,
        entries: backup.entries.clone(),
    }
}

/// Returns inputs to begin with: metadata as it is written, and its inner part.
pub fn corpus() -> Vec<Vec<u8>> {
    let names =
        [FileName::Current, FileName::Table(12), FileName::Values(13), FileName::Log(14), FileName::Manifest(15)];
    let entry = |name: FileName| {
        let content = Content { kind: Kind::of(name), bytes: 4096, hash: 0x0123_4567_89ab_cdef << 60 };
        (name, Entry { content, is_final: matches!(name, FileName::Table(_)) })
    };
    let entries = names.map(entry).into_iter().collect();
    let new = New { id: 3, unix_ms: 1_795_920_000_000, last_sequence: 57, added_bytes: 4112, entries };
    let (whole, inner) = (metadata::encode(&new), metadata::inner(&new));
    vec![[&[0], &whole[..]].concat(), [&[1], inner.as_bytes()].concat()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_sim::{Rng, for_each_seed};

    #[test]
    fn damaged_metadata_is_an_error_and_never_a_panic() {
        for_each_seed(1, 3000, |seed| {
            let mut rng = Rng::new(seed);
            let inputs = corpus();
            let mut bytes = inputs[rng.index(inputs.len())].clone();
            for _ in 0..rng.below(4) {
                let at = rng.index(bytes.len());
                match rng.below(3) {
                    0 => bytes[at] ^= 1 << rng.below(8),
                    1 => bytes[at] = b"\"{}[],:09"[rng.index(9)],
                    _ => bytes.truncate(at + 1),
                }
            }
            backup(&bytes);
        });
        corpus().iter().for_each(|input| assert!(metadata_is_read(input)));
    }

    fn metadata_is_read(input: &[u8]) -> bool {
        match input[0] {
            0 => metadata::decode(&input[1..], "x").is_ok(),
            _ => metadata::decode(&metadata::checked(str::from_utf8(&input[1..]).unwrap()), "x").is_ok(),
        }
    }
}
