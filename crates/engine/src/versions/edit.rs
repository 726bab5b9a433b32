//! Version edits, as the manifest stores them (`docs/formats/manifest.md`).

use crate::base::options::LEVELS;
use crate::versions::version::{Added, Removed, TableMeta, Version};
use situ_base::bytes::{Fields, Mismatch, put_sized, put_varint};
use situ_compaction::{DroppedValues, KeySpan};
use situ_values::Written;

const NEXT_FILE: u8 = 1;
const LAST_SEQUENCE: u8 = 2;
const CREATE_KEYSPACE: u8 = 3;
const DROP_KEYSPACE: u8 = 4;
const LOG_NUMBER: u8 = 5;
const ADD_TABLE: u8 = 6;
const REMOVE_TABLE: u8 = 7;
const NEXT_KEYSPACE: u8 = 8;
const END_OF_SNAPSHOT: u8 = 9;
const CLOSED: u8 = 10;
const LOSSY_REPAIR: u8 = 11;
const SEVERAL_VOLUMES: u8 = 12;
const WRITTEN_VALUES: u8 = 13;
const DEAD_VALUES: u8 = 14;
const REMOVE_SEGMENT: u8 = 15;
const CHANGES_KEPT: u8 = 16;

/// One atomic change of the store's state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) next_file: Option<u64>,
    pub(crate) last_sequence: Option<u64>,
    pub(crate) next_keyspace: Option<u32>,
    pub(crate) created: Vec<(u32, String)>,
    pub(crate) dropped: Vec<u32>,
    pub(crate) log_numbers: Vec<(u32, u64)>,
    pub(crate) removed: Vec<(u32, Removed)>,
    pub(crate) added: Vec<(u32, Added)>,
    /// Values that are new in segments of the value log, by keyspace.
    pub(crate) values_written: Vec<(u32, Written)>,
    /// Values that no table has any more.
    pub(crate) values_dead: Vec<(u32, DroppedValues)>,
    pub(crate) segments_removed: Vec<(u32, u64)>,
    pub(crate) end_of_snapshot: bool,
    /// The store was closed in order; the number is that of the last log file.
    pub(crate) closed: Option<u64>,
    /// The time of the last repair that lost something, in milliseconds since 1970.
    pub(crate) lossy_repair: Option<u64>,
    /// The store has further volumes, or had some.
    pub(crate) several_volumes: bool,
    /// The bytes of finished log files that stay for change feeds.
    pub(crate) changes_kept: Option<u64>,
}

impl Edit {
    /// Adds all tables and segments of a keyspace.
    pub(crate) fn add_version(&mut self, id: u32, version: &Version) {
        self.added.extend(version.files().map(|(level, file)| (id, Added { level, meta: file.meta.clone() })));
        for segment in version.segments.files() {
            self.values_written.push((id, segment.written()));
            self.values_dead.extend(Some((id, segment.dead())).filter(|(_, dead)| dead.handles > 0));
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        let tagged = |to: &mut Vec<u8>, tag: u8, numbers: &[u64]| {
            to.push(tag);
            numbers.iter().for_each(|n| put_varint(to, *n));
        };
        if let Some(number) = self.next_file {
            tagged(&mut to, NEXT_FILE, &[number]);
        }
        if let Some(sequence) = self.last_sequence {
            tagged(&mut to, LAST_SEQUENCE, &[sequence]);
        }
        if let Some(id) = self.next_keyspace {
            tagged(&mut to, NEXT_KEYSPACE, &[u64::from(id)]);
        }
        for (id, name) in &self.created {
            tagged(&mut to, CREATE_KEYSPACE, &[u64::from(*id)]);
            put_sized(&mut to, name.as_bytes());
        }
        for id in &self.dropped {
            tagged(&mut to, DROP_KEYSPACE, &[u64::from(*id)]);
        }
        for (id, log) in &self.log_numbers {
            tagged(&mut to, LOG_NUMBER, &[u64::from(*id), *log]);
        }
        for (id, Removed { level, number }) in &self.removed {
            tagged(&mut to, REMOVE_TABLE, &[u64::from(*id), *level as u64, *number]);
        }
        for (id, Added { level, meta: m }) in &self.added {
            let counts = [m.entries, m.deletions, m.range_deletions, m.raw_bytes, m.created_unix_s];
            tagged(&mut to, ADD_TABLE, &[u64::from(*id), *level as u64, m.number, u64::from(m.volume), m.bytes]);
            put_varint(&mut to, m.smallest_sequence);
            put_varint(&mut to, m.largest_sequence);
            counts.iter().for_each(|n| put_varint(&mut to, *n));
            put_sized(&mut to, &m.span.begin);
            put_sized(&mut to, &m.span.end);
        }
        for (id, Written { segment, records, record_bytes }) in &self.values_written {
            tagged(&mut to, WRITTEN_VALUES, &[u64::from(*id), *segment, *records, *record_bytes]);
        }
        for (id, DroppedValues { segment, handles, bytes }) in &self.values_dead {
            tagged(&mut to, DEAD_VALUES, &[u64::from(*id), *segment, *handles, *bytes]);
        }
        for (id, number) in &self.segments_removed {
            tagged(&mut to, REMOVE_SEGMENT, &[u64::from(*id), *number]);
        }
        if self.end_of_snapshot {
            to.push(END_OF_SNAPSHOT);
        }
        if let Some(log) = self.closed {
            tagged(&mut to, CLOSED, &[log]);
        }
        if let Some(unix_ms) = self.lossy_repair {
            tagged(&mut to, LOSSY_REPAIR, &[unix_ms]);
        }
        if self.several_volumes {
            to.push(SEVERAL_VOLUMES);
        }
        if let Some(bytes) = self.changes_kept {
            tagged(&mut to, CHANGES_KEPT, &[bytes]);
        }
        to
    }

    /// Decodes any bytes; the error says in words what is wrong.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Edit, String> {
        let mut fields = Fields(bytes);
        let mut edit = Edit::default();
        while !fields.0.is_empty() {
            let tag = fields.u8("tag of a field")?;
            edit.field(tag, &mut fields).map_err(|mismatch| match tag {
                NEXT_FILE..=CHANGES_KEPT => format!("a malformed field of tag {tag} ({mismatch})"),
                _ => format!("an unknown field of tag {tag} (written by a newer version of Situ?)"),
            })?;
        }
        Ok(edit)
    }

    fn field(&mut self, tag: u8, from: &mut Fields<'_>) -> Result<(), Mismatch> {
        let id = |from: &mut Fields<'_>| from.varint32("keyspace");
        match tag {
            NEXT_FILE => self.next_file = Some(from.varint("file number")?),
            LAST_SEQUENCE => self.last_sequence = Some(from.varint("sequence number")?),
            NEXT_KEYSPACE => self.next_keyspace = Some(id(from)?),
            CREATE_KEYSPACE => {
                let (id, name) = (id(from)?, from.sized("name")?);
                let name = str::from_utf8(name).map_err(|_| Mismatch::new("name", "UTF-8", name.escape_ascii()))?;
                self.created.push((id, name.to_owned()));
            }
            DROP_KEYSPACE => self.dropped.push(id(from)?),
            LOG_NUMBER => self.log_numbers.push((id(from)?, from.varint("log number")?)),
            REMOVE_TABLE => {
                let id = id(from)?;
                self.removed.push((id, Removed { level: level(from)?, number: from.varint("table number")? }));
            }
            ADD_TABLE => {
                let id = id(from)?;
                self.added.push((id, Added { level: level(from)?, meta: table(from)? }));
            }
            WRITTEN_VALUES => {
                let (id, [segment, records, record_bytes]) = (id(from)?, numbers(from)?);
                self.values_written.push((id, Written { segment, records, record_bytes }));
            }
            DEAD_VALUES => {
                let (id, [segment, handles, bytes]) = (id(from)?, numbers(from)?);
                self.values_dead.push((id, DroppedValues { segment, handles, bytes }));
            }
            REMOVE_SEGMENT => self.segments_removed.push((id(from)?, from.varint("segment number")?)),
            END_OF_SNAPSHOT => self.end_of_snapshot = true,
            CLOSED => self.closed = Some(from.varint("log number")?),
            LOSSY_REPAIR => self.lossy_repair = Some(from.varint("time of the repair")?),
            SEVERAL_VOLUMES => self.several_volumes = true,
            CHANGES_KEPT => self.changes_kept = Some(from.varint("bytes of log files")?),
            _ => return Err(Mismatch::new("tag", "a known one", tag)),
        }
        Ok(())
    }
}

fn level(from: &mut Fields<'_>) -> Result<usize, Mismatch> {
    let number = from.varint("level")?;
    let level = usize::try_from(number).ok().filter(|level| *level < LEVELS);
    level.ok_or_else(|| Mismatch::new("level", format_args!("less than {LEVELS}"), number))
}

fn numbers(from: &mut Fields<'_>) -> Result<[u64; 3], Mismatch> {
    Ok([from.varint("segment number")?, from.varint("count of values")?, from.varint("bytes of values")?])
}

fn table(from: &mut Fields<'_>) -> Result<TableMeta, Mismatch> {
    Ok(TableMeta {
        number: from.varint("table number")?,
        volume: from.varint32("volume")?,
        bytes: from.varint("bytes of the table")?,
        smallest_sequence: from.varint("smallest sequence number")?,
        largest_sequence: from.varint("largest sequence number")?,
        entries: from.varint("entries")?,
        deletions: from.varint("deletions")?,
        range_deletions: from.varint("range deletions")?,
        raw_bytes: from.varint("raw bytes")?,
        created_unix_s: from.varint("time of creation")?,
        span: KeySpan { begin: from.sized("first key")?.to_vec(), end: from.sized("end of keys")?.to_vec() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::version::tests::meta;

    fn sample() -> Edit {
        Edit {
            next_file: Some(300),
            last_sequence: Some(1 << 40),
            next_keyspace: Some(3),
            created: vec![(2, "users".to_owned())],
            dropped: vec![1],
            log_numbers: vec![(0, 12), (2, 13)],
            removed: vec![(0, Removed { level: 1, number: 7 })],
            added: vec![(0, Added { level: 6, meta: meta(8, "a", "b") })],
            values_written: vec![(0, Written { segment: 9, records: 4, record_bytes: 70_000 })],
            values_dead: vec![(0, DroppedValues { segment: 9, handles: 2, bytes: 40_000 })],
            segments_removed: vec![(2, 5)],
            end_of_snapshot: true,
            closed: Some(14),
            lossy_repair: Some(1_800_000_000_000),
            several_volumes: true,
            changes_kept: Some(1 << 28),
        }
    }

    #[test]
    fn an_edit_survives_encoding() {
        assert_eq!(Edit::decode(&sample().encode()), Ok(sample()));
        assert_eq!(Edit::decode(&[]), Ok(Edit::default()));
    }

    /// `docs/formats/manifest.md`. 70,000 and 40,000 are varints of three bytes.
    #[test]
    fn golden_bytes_of_fields_of_the_value_log() {
        let Edit { values_written, values_dead, segments_removed, .. } = sample();
        let edit = Edit { values_written, values_dead, segments_removed, ..Edit::default() };
        let golden: &[u8] = b"\x0d\x00\x09\x04\xf0\xa2\x04\x0e\x00\x09\x02\xc0\xb8\x02\x0f\x02\x05";
        assert_eq!(edit.encode(), golden);
        assert_eq!(Edit::decode(golden), Ok(edit));
        for cut in [1, 2, 3, 6, 8, 13, 15, 16] {
            assert!(Edit::decode(&golden[..cut]).is_err(), "cut to {cut} bytes");
        }
    }

    /// The rows of the page's table, in its order.
    fn tags_of_the_page() -> Vec<(u8, String)> {
        const PAGE: &str = include_str!("../../../../docs/formats/manifest.md");
        let section = PAGE.split("\n## Fields\n").nth(1).unwrap().split("\n\n").next().unwrap();
        let row = |line: &str| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            Some((cells.get(1)?.parse().ok()?, cells.get(2)?.to_string()))
        };
        section.lines().filter_map(row).collect()
    }

    #[test]
    fn the_page_has_every_tag_under_its_name() {
        let tags = [
            (NEXT_FILE, "next file number"),
            (LAST_SEQUENCE, "last sequence number"),
            (CREATE_KEYSPACE, "create keyspace"),
            (DROP_KEYSPACE, "drop keyspace"),
            (LOG_NUMBER, "log number"),
            (ADD_TABLE, "add table"),
            (REMOVE_TABLE, "remove table"),
            (NEXT_KEYSPACE, "next keyspace id"),
            (END_OF_SNAPSHOT, "end of snapshot"),
            (CLOSED, "closed"),
            (LOSSY_REPAIR, "lossy repair"),
            (SEVERAL_VOLUMES, "further volumes"),
            (WRITTEN_VALUES, "values written"),
            (DEAD_VALUES, "values dead"),
            (REMOVE_SEGMENT, "remove segment"),
            (CHANGES_KEPT, "changes kept"),
        ];
        assert_eq!(tags_of_the_page(), tags.map(|(tag, name)| (tag, name.to_owned())));
    }

    #[test]
    fn no_damaged_edit_panics_and_cut_ones_differ() {
        let bytes = sample().encode();
        for cut in 0..bytes.len() {
            assert_ne!(Edit::decode(&bytes[..cut]), Ok(sample()));
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                let _ = Edit::decode(&bytes);
            }
        }
        assert!(Edit::decode(&[77]).unwrap_err().contains("newer version"));
    }
}
