//! The manifest file: frames of edits, one writer at a time (`docs/formats/manifest.md`).
//!
//! Whoever changes the state of the store holds the one [`Manifest`] (the store hands it out like a baton), appends
//! an edit, syncs it, and only then installs the new version. A manifest that has grown to several times the size of
//! its snapshot is replaced: a new file with a snapshot edit is written and synced, then `CURRENT` is switched:
//!
//! 1. `MANIFEST-n` is written and synced.
//! 2. Its name is written to `n.tmp`, which is synced.
//! 3. `n.tmp` is renamed to `CURRENT`.
//! 4. The names are synced.
//!
//! **Failure.** What fails in the first two steps has changed nothing: both files are removed, the old manifest stays in
//! force, and the same can be tried again. From the rename on, whatever the error, `CURRENT` may name either manifest after
//! a crash ([`Unfinished::in_doubt`]). An edit appended to one of them would be lost if the other is found, so the store
//! becomes read-only.
//!
//! If an append or sync fails, it is unknown whether the edit is on disk. No further edit may be built
//! on that, so the store becomes read-only; at the next open either outcome is a consistent state, because the files
//! of both are still there.

use crate::edit::Edit;
use crate::varint::Decoder;
use situ_storage::{Error, FileMeta, FileName, Result, Volume, Writer};
use std::sync::Arc;

pub(crate) const MAGIC: &[u8; 8] = b"SITUMANI";
pub(crate) const FORMAT_VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;
const FRAME_BYTES: usize = 12;
const EDIT_BYTES_MAX: usize = 1 << 30;
/// A manifest is rewritten when it exceeds this and eight times its snapshot.
const REWRITE_BYTES_MIN: u64 = 1 << 20;
/// After a rewrite that failed, so much is appended before the next one is tried.
const REWRITE_RETRY_BYTES: u64 = 64 << 10;

/// The manifest in force, open for appending.
pub(crate) struct Manifest {
    volume: Arc<dyn Volume>,
    number: u64,
    writer: Box<dyn Writer>,
    snapshot_bytes: u64,
    /// After a rewrite that failed, the next one waits until the file is longer than this.
    rewrite_above_bytes: u64,
}

/// A manifest could not be put in force.
#[derive(Debug)]
pub(crate) struct Unfinished {
    pub(crate) error: Error,
    /// Nobody knows which manifest `CURRENT` names after a crash; otherwise it names the one that it did before.
    pub(crate) in_doubt: bool,
}

impl From<Unfinished> for crate::Error {
    fn from(unfinished: Unfinished) -> crate::Error {
        unfinished.error.into()
    }
}

impl Manifest {
    /// Writes a new manifest that begins with `snapshot` and switches `CURRENT` to it.
    pub(crate) fn create(volume: &Arc<dyn Volume>, number: u64, snapshot: &Edit) -> Result<Manifest, Unfinished> {
        let next = FileName::Temporary(number);
        let written = Manifest::write(&**volume, number, snapshot).and_then(|writer| {
            let mut current = volume.create(next, 0)?;
            current.append(current_text(number).as_bytes())?;
            current.finish()?;
            Ok(writer)
        });
        let writer = written.map_err(|error| {
            // What cannot be removed either is an orphan, removed at the next open.
            let _ = volume.remove(next);
            let _ = volume.remove(FileName::Manifest(number));
            Unfinished { error, in_doubt: false }
        })?;
        let switched = volume.rename(next, FileName::Current).and_then(|()| volume.sync_names());
        switched.map_err(|error| Unfinished { error, in_doubt: true })?;
        let snapshot_bytes = writer.written();
        Ok(Manifest { volume: Arc::clone(volume), number, writer, snapshot_bytes, rewrite_above_bytes: 0 })
    }

    /// A manifest file that nobody knows of yet, durable.
    fn write(volume: &dyn Volume, number: u64, snapshot: &Edit) -> Result<Box<dyn Writer>> {
        let mut writer = volume.create(FileName::Manifest(number), REWRITE_BYTES_MIN)?;
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        let checksum = crc32c::crc32c(&header[..12]);
        header[12..].copy_from_slice(&checksum.to_le_bytes());
        writer.append(&header)?;
        let snapshot = Edit { end_of_snapshot: true, ..snapshot.clone() };
        append(&mut *writer, &snapshot)?;
        writer.sync()?;
        Ok(writer)
    }

    /// Appends an edit; it is durable on return.
    pub(crate) fn append(&mut self, edit: &Edit) -> Result<()> {
        append(&mut *self.writer, edit)?;
        self.writer.sync()
    }

    /// Whether it is time for [`replace`](Manifest::replace). Not soon after one that failed.
    pub(crate) fn is_long(&self) -> bool {
        let above = REWRITE_BYTES_MIN.max(8 * self.snapshot_bytes).max(self.rewrite_above_bytes);
        self.writer.written() > above
    }

    /// Goes over to a new file that begins with `snapshot`. On an error this one goes on, unless it is
    /// [in doubt](Unfinished::in_doubt); then nothing may be appended any more.
    pub(crate) fn replace(&mut self, number: u64, snapshot: &Edit) -> Result<(), Unfinished> {
        let next = Manifest::create(&self.volume, number, snapshot)
            .inspect_err(|_| self.rewrite_above_bytes = self.writer.written() + REWRITE_RETRY_BYTES)?;
        let old = std::mem::replace(self, next);
        // An old manifest that cannot be removed is an orphan, removed at the next open.
        let _ = self.volume.remove(FileName::Manifest(old.number));
        Ok(())
    }
}

fn append(writer: &mut dyn Writer, edit: &Edit) -> Result<()> {
    let payload = edit.encode();
    assert!((1..=EDIT_BYTES_MAX).contains(&payload.len()), "an edit of {} bytes", payload.len());
    let mut head = [0; FRAME_BYTES];
    head[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    head[4..8].copy_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
    let checksum = crc32c::crc32c(&head[..8]);
    head[8..].copy_from_slice(&checksum.to_le_bytes());
    writer.append(&head)?;
    writer.append(&payload)
}

/// What is read back at open.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) edits: Vec<Edit>,
    /// Length of the file.
    pub(crate) bytes: u64,
    /// Where the last whole edit ends. What is behind was never acknowledged, unless it has rotted.
    pub(crate) whole_bytes: u64,
}

/// The contents of `CURRENT` that put a manifest in force.
fn current_text(number: u64) -> String {
    let name = FileName::Manifest(number).to_string();
    format!("{name} {:08x}\n", crc32c::crc32c(name.as_bytes()))
}

/// The number of the manifest in force; `None` if the volume holds no store.
pub(crate) fn current(volume: &dyn Volume) -> Result<Option<u64>> {
    let reader = match volume.open(FileName::Current) {
        Ok(reader) => reader,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut text = vec![0; usize::try_from(reader.bytes()).unwrap_or(usize::MAX).min(128)];
    reader.read_at(0, &mut text)?;
    let parsed = std::str::from_utf8(&text).ok().and_then(|text| {
        let FileName::Manifest(number) = text.split_once(' ')?.0.parse().ok()? else { return None };
        // Compared as text: a checksum in capital letters is rot, even if it is the same number.
        (reader.bytes() == text.len() as u64 && text == current_text(number)).then_some(number)
    });
    parsed.map(Some).ok_or_else(|| {
        let found = String::from_utf8_lossy(&text).into_owned();
        let expected = "the name of a manifest and its checksum (situ repair can rebuild it)";
        Error::corruption(reader.path(), 0, "manifest name", expected, format!("{found:?}"))
    })
}

/// Reads all edits of manifest `number`.
pub(crate) fn read(volume: &dyn Volume, number: u64) -> Result<Found> {
    let reader = volume.open(FileName::Manifest(number))?;
    let path = reader.path();
    let bytes = usize::try_from(reader.bytes()).unwrap_or(usize::MAX);
    if bytes > 4 * EDIT_BYTES_MAX {
        return Err(Error::corruption(path, 0, "manifest", "at most 4 GiB", format!("{bytes} bytes")));
    }
    let mut contents = vec![0; bytes];
    reader.read_at(0, &mut contents)?;
    let (edits, end) = decode(path, &contents)?;
    if !edits.iter().any(|edit| edit.end_of_snapshot) {
        return Err(Error::corruption(path, HEADER_BYTES as u64, "snapshot edit", "its end mark", "none"));
    }
    Ok(Found { edits, bytes: bytes as u64, whole_bytes: end as u64 })
}

/// The edits of a damaged manifest that can still be read, in order; the frames between them are skipped.
pub(crate) fn readable_edits(volume: &dyn Volume, number: u64) -> Result<Vec<Edit>> {
    let reader = volume.open(FileName::Manifest(number))?;
    let mut contents = vec![0; usize::try_from(reader.bytes()).unwrap_or(usize::MAX).min(4 * EDIT_BYTES_MAX)];
    reader.read_at(0, &mut contents)?;
    let mut rest = contents.get(HEADER_BYTES..).unwrap_or_default();
    let mut edits = Vec::new();
    while !rest.is_empty() {
        let found = frame(rest).ok().and_then(|(payload, behind)| Some((Edit::decode(payload).ok()?, behind)));
        match found {
            Some((edit, behind)) => {
                edits.push(edit);
                rest = behind;
            }
            None => rest = &rest[1..],
        }
    }
    Ok(edits)
}

/// What can be read of the youngest manifest of which anything can, whether it is in force or not; nothing if there is none.
pub(crate) fn readable_of_youngest(volume: &dyn Volume, files: &[FileMeta]) -> Vec<Edit> {
    let is_manifest = |file: &FileMeta| if let FileName::Manifest(number) = file.name { Some(number) } else { None };
    let mut numbers: Vec<u64> = files.iter().filter_map(is_manifest).collect();
    numbers.sort_unstable();
    let readable = |number| readable_edits(volume, number).unwrap_or_default();
    numbers.into_iter().rev().map(readable).find(|edits| !edits.is_empty()).unwrap_or_default()
}

/// Takes a manifest's bytes apart: its edits, and where the last whole one ends.
pub(crate) fn decode(path: &str, contents: &[u8]) -> Result<(Vec<Edit>, usize)> {
    let Some((header, mut rest)) = contents.split_at_checked(HEADER_BYTES) else {
        let found = format!("{} bytes", contents.len());
        return Err(Error::corruption(path, 0, "manifest header", "16 bytes", found));
    };
    let mut fields = Decoder::new(header);
    if fields.take(8) != Some(MAGIC) {
        return Err(Error::corruption(path, 0, "manifest header", "magic SITUMANI", header[..8].escape_ascii()));
    }
    let (version, stored) = (fields.u32(), fields.u32());
    let computed = crc32c::crc32c(&header[..12]);
    if stored != Some(computed) {
        let found = format!("{:#010x}", stored.unwrap_or(0));
        return Err(Error::corruption(path, 12, "manifest header", format!("checksum {computed:#010x}"), found));
    }
    if version != Some(FORMAT_VERSION) {
        let text = format!("{path} has format version {version:?}; this program reads version {FORMAT_VERSION}");
        return Err(Error::Invalid(text));
    }
    let mut edits = Vec::new();
    loop {
        let at = contents.len() - rest.len();
        if rest.is_empty() {
            return Ok((edits, at));
        }
        let (payload, behind) = match frame(rest) {
            Ok(parts) => parts,
            // Each edit is synced before the next one is appended, so only the last can be torn.
            Err(_) if !(1..rest.len()).any(|from| frame(&rest[from..]).is_ok()) => return Ok((edits, at)),
            Err(Damage { expected, found }) => {
                return Err(Error::corruption(path, at as u64, "edit", expected, found));
            }
        };
        let edit =
            Edit::decode(payload).map_err(|found| Error::corruption(path, at as u64, "edit", "known fields", found))?;
        edits.push(edit);
        rest = behind;
    }
}

struct Damage {
    expected: String,
    found: String,
}

/// Splits the first frame's payload from what lies behind it.
fn frame(bytes: &[u8]) -> Result<(&[u8], &[u8]), Damage> {
    let damage = |expected: String, found: String| Damage { expected, found };
    let short = || damage(format!("{FRAME_BYTES} bytes"), format!("{} bytes", bytes.len()));
    let (head, behind) = bytes.split_at_checked(FRAME_BYTES).ok_or_else(short)?;
    let mut fields = Decoder::new(head);
    let mut field = || fields.u32().unwrap_or(0);
    let (length, of_payload, of_head) = (field(), field(), field());
    let check = |computed: u32, stored: u32| match computed == stored {
        true => Ok(()),
        false => Err(damage(format!("checksum {computed:#010x}"), format!("{stored:#010x}"))),
    };
    check(crc32c::crc32c(&head[..8]), of_head)?;
    let cut = || damage(format!("{length} bytes"), format!("{} bytes", behind.len()));
    let (payload, behind) = behind.split_at_checked(length as usize).ok_or_else(cut)?;
    check(crc32c::crc32c(payload), of_payload)?;
    Ok((payload, behind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_storage::DirectoryVolume;

    fn volume() -> (tempfile::TempDir, Arc<dyn Volume>) {
        let directory = tempfile::tempdir().unwrap();
        let volume = DirectoryVolume::open(directory.path()).unwrap();
        (directory, Arc::new(volume))
    }

    fn edit(n: u64) -> Edit {
        Edit { next_file: Some(n), log_numbers: vec![(0, n)], ..Edit::default() }
    }

    #[test]
    fn edits_come_back_in_order() {
        let (_directory, volume) = volume();
        assert_eq!(current(&*volume).unwrap(), None);
        let mut manifest = Manifest::create(&volume, 5, &edit(1)).unwrap();
        (2..10).for_each(|n| manifest.append(&edit(n)).unwrap());
        assert_eq!(current(&*volume).unwrap(), Some(5));
        let found = read(&*volume, 5).unwrap();
        assert_eq!(found.edits.iter().filter_map(|e| e.next_file).collect::<Vec<_>>(), (1..10).collect::<Vec<_>>());
        manifest.replace(6, &edit(9)).unwrap();
        assert_eq!((current(&*volume).unwrap(), manifest.number), (Some(6), 6));
        assert_eq!(read(&*volume, 6).unwrap().edits.len(), 1);
        assert!(matches!(read(&*volume, 5), Err(Error::NotFound { .. })));
    }

    /// Whatever fails before the rename leaves the old manifest in force, nothing behind, and edits go on. Whatever fails
    /// from the rename on, want of space included, leaves it open which one a crash finds.
    #[test]
    fn a_switch_that_fails_says_whether_it_may_have_happened() {
        use situ_device::Env;
        use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rule, SimVolume};
        use {FileKind as K, Operation as O};
        let before = [
            (O::Create, K::Manifest),
            (O::Append, K::Manifest),
            (O::Sync, K::Manifest),
            (O::Create, K::Temporary),
            (O::Append, K::Temporary),
            (O::Sync, K::Temporary),
        ];
        let faults = [Fault::Io, Fault::NoSpace, Fault::PermissionDenied];
        let switch = |rule: Rule, seed| {
            let sim = SimVolume::new(&Env::system(), FaultPlan::none(), seed);
            let volume: Arc<dyn Volume> = Arc::new(sim.clone());
            let mut manifest = Manifest::create(&volume, 1, &edit(1)).unwrap();
            sim.set_faults(FaultPlan::none().with(rule));
            let unfinished = manifest.replace(2, &edit(2)).expect_err("a fault that did not strike");
            sim.set_faults(FaultPlan::none());
            (sim, manifest, unfinished)
        };
        for (seed, fault) in (0..).zip(faults) {
            for (operation, kind) in before {
                let what = format!("{fault:?} of {operation:?} of {kind:?}");
                let (sim, mut manifest, unfinished) = switch(Rule::new(fault).on(&[operation]).files(&[kind]), seed);
                assert!(!unfinished.in_doubt, "{what}");
                let names: Vec<FileName> = sim.list().unwrap().iter().map(|file| file.name).collect();
                assert_eq!(names, [FileName::Manifest(1), FileName::Current], "{what}");
                manifest.append(&edit(3)).unwrap();
                let crashed = sim.crash(seed);
                assert_eq!(current(&crashed).unwrap(), Some(1), "{what}");
                assert_eq!(read(&crashed, 1).unwrap().edits.len(), 2, "{what}");
                manifest.replace(4, &edit(4)).unwrap();
                assert_eq!(current(&sim.crash(seed)).unwrap(), Some(4), "{what}");
            }
            for operation in [O::Rename, O::SyncNames] {
                let (sim, _, unfinished) = switch(Rule::new(fault).on(&[operation]), seed);
                assert!(unfinished.in_doubt, "{fault:?} of {operation:?}");
                let found = current(&sim.crash(seed)).unwrap().expect("one or the other");
                assert_eq!(read(&sim.crash(seed), found).unwrap().edits.len(), 1);
            }
        }
    }

    /// Once, each edit behind the limit tried the rewrite again.
    #[test]
    fn a_rewrite_that_fails_is_not_tried_again_at_once() {
        let (directory, volume) = volume();
        let mut manifest = Manifest::create(&volume, 1, &edit(1)).unwrap();
        let large = Edit { created: vec![(1, "x".repeat(200 << 10))], ..Edit::default() };
        (0..6).for_each(|_| manifest.append(&large).unwrap());
        assert!(manifest.is_long());
        // A directory where the new manifest should be.
        std::fs::create_dir(directory.path().join("MANIFEST-000002")).unwrap();
        assert!(!manifest.replace(2, &edit(2)).unwrap_err().in_doubt);
        assert!(!manifest.is_long());
        manifest.append(&edit(3)).unwrap();
        assert!(!manifest.is_long());
        manifest.append(&large).unwrap();
        assert!(manifest.is_long());
        manifest.replace(3, &edit(3)).unwrap();
        assert!(!manifest.is_long());
    }

    fn contents() -> Vec<u8> {
        let (directory, volume) = volume();
        let mut manifest = Manifest::create(&volume, 1, &edit(1)).unwrap();
        (2..6).for_each(|n| manifest.append(&edit(n)).unwrap());
        std::fs::read(directory.path().join("MANIFEST-000001")).unwrap()
    }

    /// Promise 4: a crash leaves the version before or after an edit.
    #[test]
    fn one_edit_one_version_a_torn_tail_gives_a_prefix() {
        let contents = contents();
        let whole = decode("m", &contents).unwrap().0;
        for cut in HEADER_BYTES..contents.len() {
            let (edits, end) = decode("m", &contents[..cut]).unwrap();
            assert_eq!(edits[..], whole[..edits.len()], "cut at {cut}");
            assert!(end <= cut);
            let mut zeros = contents[..cut].to_vec();
            zeros.resize(contents.len() + 100, 0);
            assert_eq!(decode("m", &zeros).unwrap().0[..], whole[..edits.len()], "zeros from {cut}");
        }
    }

    /// Promise 6: rot in the middle is an error that names the place.
    #[test]
    fn rot_is_found_and_named() {
        let contents = contents();
        let last = {
            let cut = contents.len() - 1;
            decode("m", &contents[..cut]).unwrap().1
        };
        for at in 0..last {
            for bit in 0..8 {
                let mut rotten = contents.clone();
                rotten[at] ^= 1 << bit;
                let error = decode("the-manifest", &rotten).expect_err("the flipped bit went unseen");
                assert!(error.to_string().contains("the-manifest"), "{error}");
            }
        }
    }
}
