//! The manifest file: frames of edits, one writer at a time (`docs/formats/manifest.md`).
//!
//! A thread that changes the state of the store holds the one [`Manifest`] (with the version editor), appends an edit,
//! syncs it, and only then installs the new version. A manifest that has grown to several times the size of its
//! snapshot is replaced. A new file with a snapshot edit is written and synced, then `CURRENT` is switched:
//!
//! 1. `MANIFEST-n` is written and synced, then `MANIFEST-n.copy`.
//! 2. The manifest's name is written to `n.tmp`, which is synced.
//! 3. `n.tmp` is renamed to `CURRENT`.
//! 4. The names are synced.
//!
//! **The copy** has the same bytes at the same offsets. An edit is appended to it when the manifest has it durably. So
//! what the copy holds is acknowledged, and rot in one of the two files costs nothing (`manifest/pair.rs` reads both).
//! A store goes on without its copy: if the copy cannot be written, it is removed, and the listener gets the error
//! ([`Manifest::take_copy_failure`]). The next manifest has a copy again, and is due sooner then.
//!
//! **Failure.** What fails in the first two steps has changed nothing. All three files are removed, the old manifest
//! stays in force, and the same can be tried again. From the rename on, whatever the error, `CURRENT` may name either
//! manifest after a crash ([`Unfinished::in_doubt`]). An edit appended to one of them would be lost if the other is
//! found, so the store becomes read-only.
//!
//! If an append to the manifest or its sync fails, it is unknown whether the edit is on disk. No further edit may be
//! built on that, so the store becomes read-only. At the next open either outcome is a consistent state, because the
//! files of both are still there. A disk that is full or does not answer is no such case: a new manifest without the
//! edit settles the matter (`editor.rs`).
//!
//! Rejected: two manifests of which the younger whole one counts, as file systems keep two superblocks. Each edit would
//! have to say which of the two is ahead, and a torn tail of one could not be told from rot.

mod pair;

use crate::base::error::Unfinished;
use crate::versions::edit::Edit;
use situ_storage::{Error, FileName, Result, Volume, Writer};
use std::sync::Arc;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use pair::decode;
pub(crate) use pair::{numbers, read, read_damaged, readable_edits, readable_of_youngest};

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
    /// `None` since it could not be written.
    copy: Option<Box<dyn Writer>>,
    /// The reason why there is no copy, until it is reported.
    copy_failure: Option<Error>,
    snapshot_bytes: u64,
    /// After a rewrite that failed, the next one waits until the file is longer than this.
    rewrite_above_bytes: u64,
    /// Without a copy, a rewrite is due when the file is longer than this.
    copy_due_above_bytes: u64,
}

impl Manifest {
    /// Writes a new manifest that begins with `snapshot` and switches `CURRENT` to it.
    pub(crate) fn create(volume: &Arc<dyn Volume>, number: u64, snapshot: &Edit) -> Result<Manifest, Unfinished> {
        let next = FileName::Temporary(number);
        let begin = Edit { end_of_snapshot: true, ..snapshot.clone() };
        let written = Manifest::write(&**volume, FileName::Manifest(number), &begin).and_then(|writer| {
            let copy = Manifest::write(&**volume, FileName::ManifestCopy(number), &begin);
            if copy.is_err() {
                // Durably, before its manifest is in force: a crash would bring it back without a header, as if rotten.
                let _ = volume.remove(FileName::ManifestCopy(number)).and_then(|()| volume.sync_names());
            }
            let mut current = volume.create(next, 0)?;
            current.append(current_text(number).as_bytes())?;
            current.finish()?;
            Ok((writer, copy))
        });
        let (writer, copy) = written.map_err(|error| {
            // What cannot be removed either is an orphan, removed at the next open.
            for name in [next, FileName::ManifestCopy(number), FileName::Manifest(number)] {
                let _ = volume.remove(name);
            }
            Unfinished { error, in_doubt: false }
        })?;
        let switched = volume.rename(next, FileName::Current).and_then(|()| volume.sync_names());
        switched.map_err(|error| Unfinished { error, in_doubt: true })?;
        let mut manifest = Manifest {
            volume: Arc::clone(volume),
            number,
            snapshot_bytes: writer.written(),
            writer,
            copy: None,
            copy_failure: None,
            rewrite_above_bytes: 0,
            copy_due_above_bytes: 0,
        };
        match copy {
            Ok(copy) => manifest.copy = Some(copy),
            Err(error) => manifest.give_up_copy(error),
        }
        Ok(manifest)
    }

    /// Writes a manifest file that nothing refers to yet, and makes it durable.
    fn write(volume: &dyn Volume, name: FileName, begin: &Edit) -> Result<Box<dyn Writer>> {
        let mut writer = volume.create(name, REWRITE_BYTES_MIN)?;
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        let checksum = crc32c::crc32c(&header[..12]);
        header[12..].copy_from_slice(&checksum.to_le_bytes());
        append(&mut *writer, &[&header[..], &frame_of(begin)].concat())?;
        Ok(writer)
    }

    /// Appends an edit; it is durable on return.
    pub(crate) fn append(&mut self, edit: &Edit) -> Result<()> {
        let frame = frame_of(edit);
        append(&mut *self.writer, &frame)?;
        if let Some(copy) = &mut self.copy
            && let Err(error) = append(&mut **copy, &frame)
        {
            self.give_up_copy(error);
        }
        Ok(())
    }

    /// Goes on without a copy: one that lacks edits is of less use than none.
    fn give_up_copy(&mut self, error: Error) {
        self.copy = None;
        // If it stays, it says less than the manifest and nothing else, and the next open removes it.
        let _ = self.volume.remove(FileName::ManifestCopy(self.number));
        self.copy_failure = Some(error);
        self.copy_due_above_bytes = self.writer.written() + self.snapshot_bytes.max(REWRITE_RETRY_BYTES);
    }

    /// Takes the reason why there is no copy any more, if it was not reported yet.
    pub(crate) fn take_copy_failure(&mut self) -> Option<Error> {
        self.copy_failure.take()
    }

    /// Returns true if it is time for [`replace`](Manifest::replace). Not soon after one that failed.
    pub(crate) fn is_long(&self) -> bool {
        let long = REWRITE_BYTES_MIN.max(8 * self.snapshot_bytes);
        let due = if self.copy.is_some() { long } else { long.min(self.copy_due_above_bytes) };
        self.writer.written() > due.max(self.rewrite_above_bytes)
    }

    /// Goes over to a new file that begins with `snapshot`. On an error this one goes on, unless it is
    /// [in doubt](Unfinished::in_doubt); then nothing may be appended any more.
    pub(crate) fn replace(&mut self, number: u64, snapshot: &Edit) -> Result<(), Unfinished> {
        let next = Manifest::create(&self.volume, number, snapshot)
            .inspect_err(|_| self.rewrite_above_bytes = self.writer.written() + REWRITE_RETRY_BYTES)?;
        let old = std::mem::replace(self, next);
        // An old manifest that cannot be removed is an orphan, removed at the next open.
        for name in [FileName::ManifestCopy(old.number), FileName::Manifest(old.number)] {
            let _ = self.volume.remove(name);
        }
        Ok(())
    }
}

fn frame_of(edit: &Edit) -> Vec<u8> {
    let payload = edit.encode();
    assert!((1..=EDIT_BYTES_MAX).contains(&payload.len()), "an edit of {} bytes", payload.len());
    let mut frame = Vec::with_capacity(FRAME_BYTES + payload.len());
    frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    frame.extend_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
    let checksum = crc32c::crc32c(&frame);
    frame.extend_from_slice(&checksum.to_le_bytes());
    frame.extend_from_slice(&payload);
    frame
}

/// Appends bytes; they are durable on return.
fn append(writer: &mut dyn Writer, bytes: &[u8]) -> Result<()> {
    writer.append(bytes)?;
    writer.sync()
}

/// Makes durable what was read of the manifest in force, and that it is in force. A process that was killed may have
/// left the last edit, or the name, in the page cache only. Nothing may be removed because of what a power failure
/// takes away again.
pub(crate) fn make_durable(volume: &dyn Volume, number: u64) -> Result<()> {
    volume.open_pages(FileName::Manifest(number))?.sync()?;
    volume.sync_names()
}

/// Returns the contents of `CURRENT` that put a manifest in force.
fn current_text(number: u64) -> String {
    let name = FileName::Manifest(number).to_string();
    format!("{name} {:08x}\n", crc32c::crc32c(name.as_bytes()))
}

/// Returns the number of the manifest in force; `None` if the volume holds no store.
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

    /// Whatever fails before the rename leaves the old manifest in force, nothing behind, and edits go on. Whatever
    /// fails from the rename on, want of space included, leaves it open which one a crash finds.
    #[test]
    fn a_switch_that_fails_says_whether_it_may_have_happened() {
        use situ_base::Env;
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
                assert_eq!(names, [FileName::Manifest(1), FileName::ManifestCopy(1), FileName::Current], "{what}");
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

    /// The edit is durable without the copy. One that would lack edits is removed, and the next manifest has one again.
    #[test]
    fn a_copy_that_cannot_be_written_is_given_up_and_costs_no_edit() {
        use situ_base::Env;
        use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rule, SimVolume};
        for operation in [Operation::Create, Operation::Append, Operation::Sync] {
            for fault in [Fault::Io, Fault::NoSpace, Fault::PermissionDenied] {
                for removable in [true, false] {
                    let what = format!("{fault:?} of {operation:?}, removable: {removable}");
                    let sim = SimVolume::new(&Env::system(), FaultPlan::none(), 1);
                    let volume: Arc<dyn Volume> = Arc::new(sim.clone());
                    let mut manifest = Manifest::create(&volume, 1, &edit(1)).unwrap();
                    assert!(manifest.take_copy_failure().is_none());
                    let mut plan =
                        FaultPlan::none().with(Rule::new(fault).on(&[operation]).files(&[FileKind::ManifestCopy]));
                    if !removable {
                        plan =
                            plan.with(Rule::new(Fault::Io).on(&[Operation::Remove]).files(&[FileKind::ManifestCopy]));
                    }
                    sim.set_faults(plan);
                    let mut number = 1;
                    if operation == Operation::Create {
                        number = 2;
                        manifest.replace(2, &edit(1)).unwrap();
                    }
                    (2..5).for_each(|n| manifest.append(&edit(n)).unwrap());
                    assert!(manifest.take_copy_failure().is_some() && manifest.take_copy_failure().is_none(), "{what}");
                    let copy = FileName::ManifestCopy(number);
                    assert_eq!(sim.contents(copy).is_some(), !removable && operation != Operation::Create, "{what}");
                    for seed in 0..8 {
                        let found = read(&sim.crash(seed), number).unwrap();
                        assert!(found.edits.len() == 4 && found.damages.is_empty(), "{what}: {:?}", found.damages);
                    }
                    sim.set_faults(FaultPlan::none());
                    while !manifest.is_long() {
                        assert!(sim.contents(FileName::Manifest(number)).unwrap().len() < 100 << 10, "{what}");
                        manifest.append(&edit(5)).unwrap();
                    }
                    manifest.replace(3, &edit(5)).unwrap();
                    assert!(manifest.take_copy_failure().is_none() && !manifest.is_long(), "{what}");
                    assert_eq!(sim.contents(FileName::ManifestCopy(3)), sim.contents(FileName::Manifest(3)), "{what}");
                }
            }
        }
    }

    /// Once, the failed copy was removed after the switch. A crash then brought it back without its header, and
    /// `verify` called it rotten.
    #[test]
    fn a_copy_that_was_given_up_at_its_beginning_does_not_come_back() {
        use situ_base::Env;
        use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rule, SimVolume};
        for operation in [Operation::Append, Operation::Sync] {
            for fault in [Fault::Io, Fault::NoSpace, Fault::PermissionDenied] {
                for seed in 0..16 {
                    let sim = SimVolume::new(&Env::system(), FaultPlan::none(), seed);
                    let volume: Arc<dyn Volume> = Arc::new(sim.clone());
                    let mut manifest = Manifest::create(&volume, 1, &edit(1)).unwrap();
                    let rule = Rule::new(fault).on(&[operation]).files(&[FileKind::ManifestCopy]);
                    let cut = Rule::new(Fault::Io).on(&[Operation::SyncNames]).from(1);
                    sim.set_faults(FaultPlan::none().with(rule.clone()));
                    manifest.replace(2, &edit(2)).unwrap();
                    manifest.append(&edit(3)).unwrap();
                    let what = format!("{fault:?} of {operation:?}, {seed}");
                    let found = read(&sim.crash(seed), 2).unwrap();
                    assert_eq!((found.edits.len(), found.copy_bytes), (2, None), "{what}");
                    assert!(found.damages.is_empty(), "{what}: {:?}", found.damages);
                    // The switch is not durable.
                    sim.set_faults(FaultPlan::none().with(rule.clone()).with(cut.clone()));
                    manifest.replace(3, &edit(4)).unwrap_err();
                    let crashed = sim.crash(seed);
                    let found = read(&crashed, current(&crashed).unwrap().unwrap()).unwrap();
                    assert!(found.damages.is_empty(), "{what}: {:?}", found.damages);
                }
            }
        }
    }

    /// Promise 1, 4: whenever the machine stops, both files together give what was acknowledged, and rot in one of them
    /// alone does not take any of it away.
    #[test]
    fn a_crash_between_the_manifest_and_its_copy_leaves_what_was_acknowledged() {
        use situ_base::Env;
        use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rule, SimVolume};
        for nth in 0..6 {
            for operation in [Operation::Append, Operation::Sync] {
                for kind in [FileKind::Manifest, FileKind::ManifestCopy] {
                    let sim = SimVolume::new(&Env::system(), FaultPlan::none(), nth);
                    let volume: Arc<dyn Volume> = Arc::new(sim.clone());
                    let mut manifest = Manifest::create(&volume, 1, &edit(1)).unwrap();
                    sim.set_faults(
                        FaultPlan::none().with(Rule::new(Fault::Io).on(&[operation]).files(&[kind]).nth(nth)),
                    );
                    let acknowledged = 1 + (2..8).take_while(|n| manifest.append(&edit(*n)).is_ok()).count();
                    for seed in 0..8 {
                        let crashed = sim.crash(seed);
                        let found = read(&crashed, 1).unwrap();
                        let ends = [acknowledged, acknowledged + 1];
                        assert!(ends.contains(&found.edits.len()), "{} of {acknowledged}", found.edits.len());
                        assert!(found.damages.is_empty(), "{:?}", found.damages);
                    }
                }
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

    /// What the copy adds to the installation of a flush or a compaction. `TMPDIR` says on which disk.
    #[test]
    #[ignore = "a measurement"]
    fn costs_of_the_copy() {
        const EDITS: u64 = 500;
        let (_directory, volume) = volume();
        for round in 0..3 {
            for with_copy in [true, false] {
                let number = 1 + 2 * round + u64::from(with_copy);
                let mut manifest = Manifest::create(&volume, number, &edit(1)).unwrap();
                if !with_copy {
                    manifest.copy = None;
                }
                let begin = std::time::Instant::now();
                (0..EDITS).for_each(|n| manifest.append(&edit(n)).unwrap());
                let each_us = begin.elapsed().as_micros() / u128::from(EDITS);
                println!("with a copy: {with_copy}, {each_us} us an edit");
            }
        }
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
