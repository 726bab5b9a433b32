//! The file LINEAGE of a store: the marks of the backups from which the store descends, one a line, the newest last.
//!
//! The mark of a backup is the checksum of its metadata. Two backups with one mark are equal, down to their times and
//! contents. So the mark of a backup needs no chance.
//!
//! A store descends from a backup whose mark it has: the mark was written when the store had gone on from that moment.
//! If the files of the store go back to an earlier moment, LINEAGE goes back with them. A checkpoint does not copy it.
//! A repair removes it.

/// The maximum number of marks. Each directory of backups has two.
const MARKS_MAX: usize = 64;

/// Returns the marks in the contents of LINEAGE. A line that is no mark is left out: its backup is then unknown.
pub(crate) fn decode(lineage: &[u8]) -> Vec<u128> {
    let text = String::from_utf8_lossy(lineage);
    text.lines().filter(|line| line.len() == 32).filter_map(|line| u128::from_str_radix(line, 16).ok()).collect()
}

/// Returns the contents of LINEAGE for a store that has these marks.
pub(crate) fn encode(marks: &[u128]) -> Vec<u8> {
    let newest = &marks[marks.len().saturating_sub(MARKS_MAX)..];
    newest.iter().map(|mark| format!("{mark:032x}\n")).collect::<String>().into_bytes()
}
