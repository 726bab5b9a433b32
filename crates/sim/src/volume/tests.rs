use super::handles::APPEND_BUFFER_BYTES;
use super::*;
use crate::disk::SECTOR_BYTES;
use crate::{FileKind, Rule, SimExecutor, WhenFull, for_each_seed};
use situ_storage::{Buffer, DirectoryVolume, FinishedRead, ReadQueue};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

const LOG: FileName = FileName::Log(1);
const TABLE: FileName = FileName::Table(2);
const PAGE: u64 = PAGE_BYTES as u64;

fn volume(plan: FaultPlan) -> SimVolume {
    SimVolume::new(&SimExecutor::new(1).env(), plan, 1)
}

fn page(byte: u8) -> Buffer {
    let mut buffer = Buffer::new(PAGE_BYTES);
    buffer.fill(byte);
    buffer
}

fn first_byte(volume: &SimVolume, page: u64) -> u8 {
    volume.contents(LOG).unwrap()[(page * PAGE) as usize]
}

#[test]
fn behaves_as_a_volume_without_faults() {
    let volume = volume(FaultPlan::none());
    let mut writer = volume.create(TABLE, 0).unwrap();
    writer.append(b"abc").unwrap();
    assert_eq!(volume.contents(TABLE).unwrap(), b"", "appended bytes stay in the writer");
    writer.append(&vec![b'd'; APPEND_BUFFER_BYTES]).unwrap();
    assert_eq!(writer.written(), 3 + APPEND_BUFFER_BYTES as u64);
    writer.finish().unwrap();
    assert!(volume.create(TABLE, 0).is_err(), "the name is taken");
    let reader = volume.open(TABLE).unwrap();
    let mut four = [0; 4];
    reader.read_at(0, &mut four).unwrap();
    assert_eq!(&four, b"abcd");
    assert!(reader.read_at(reader.bytes() - 3, &mut four).unwrap_err().is_corruption());
    assert!(reader.read_at(u64::MAX, &mut four).unwrap_err().is_corruption());
    volume.rename(TABLE, FileName::Table(3)).unwrap();
    volume.remove(FileName::Table(3)).unwrap();
    reader.read_at(0, &mut four).unwrap();
    assert!(matches!(volume.open(TABLE), Err(Error::NotFound { path }) if path == "sim/000002.table"));
    assert_eq!(volume.list().unwrap(), []);
    drop(reader);
    assert_eq!(volume.space().logical_used, 0);
    let lock = volume.lock().unwrap();
    assert!(matches!(volume.lock(), Err(Error::Locked { .. })));
    drop(lock);
    volume.lock().unwrap();
}

#[test]
fn what_was_synced_survives_every_crash_and_the_rest_only_some() {
    let (mut shorter, mut longer, mut whole, mut mixed) = (0, 0, 0, 0);
    for_each_seed(0, 300, |seed| {
        let volume = volume(FaultPlan::none());
        let mut writer = volume.create(TABLE, 0).unwrap();
        writer.append(&[1; 1000]).unwrap();
        writer.sync().unwrap();
        writer.append(&[2; 3000]).unwrap();
        writer.flush().unwrap();
        let found = volume.crash(seed).contents(TABLE).expect("a synced file keeps its name");
        assert!(found.len() >= 1000 && found[..1000].iter().all(|b| *b == 1), "seed {seed}");
        let kept = volume.crash_keep_all().contents(TABLE).unwrap();
        assert_eq!((kept.len(), kept[3999]), (4000, 2));
    });
    for seed in 0..300 {
        let volume = volume(FaultPlan::none());
        let mut writer = volume.create(TABLE, 0).unwrap();
        writer.sync().unwrap();
        writer.append(&[2; 4000]).unwrap();
        writer.flush().unwrap();
        let found = volume.crash(seed).contents(TABLE).unwrap();
        shorter += u32::from(found.len() < 4000);
        longer += u32::from(found.len() > 4000);
        let twos = found.iter().take(4000).filter(|b| **b == 2).count();
        whole += u32::from(twos == 4000);
        mixed += u32::from(found.len() == 4000 && (512..3000).contains(&twos));
    }
    assert!(shorter > 20 && longer > 5 && whole > 20 && mixed > 5, "{shorter} {longer} {whole} {mixed}");
}

#[test]
fn a_name_without_sync_may_vanish() {
    let mut vanished = 0;
    for seed in 0..100 {
        let volume = volume(FaultPlan::none());
        let mut writer = volume.create(TABLE, 0).unwrap();
        writer.append(b"x").unwrap();
        writer.flush().unwrap();
        vanished += u32::from(volume.crash(seed).contents(TABLE).is_none());
    }
    assert!((20..80).contains(&vanished), "{vanished}");
}

#[test]
fn durable_pages_survive_and_their_neighbours_may_not() {
    let mut lost = 0;
    for_each_seed(0, 100, |seed| {
        let volume = volume(FaultPlan::none());
        let file = volume.create_pages(LOG, 3 * PAGE).unwrap();
        file.write(0, &page(1), 1, false).unwrap();
        file.write(1, &page(2), 1, false).unwrap();
        file.write(1, &page(3), 1, true).unwrap();
        let after = volume.crash(seed);
        assert_eq!(after.contents(LOG).unwrap().len() as u64, 3 * PAGE);
        assert!(after.contents(LOG).unwrap()[PAGE as usize..2 * PAGE as usize].iter().all(|b| *b == 3));
        assert_eq!(first_byte(&after, 2), 0);
        file.sync().unwrap();
        assert_eq!(first_byte(&volume.crash(seed), 0), 1);
    });
    for seed in 0..100 {
        let volume = volume(FaultPlan::none());
        volume.create_pages(LOG, PAGE).unwrap().write(0, &page(1), 1, false).unwrap();
        lost += u32::from(first_byte(&volume.crash(seed), 0) == 0);
    }
    assert!((20..80).contains(&lost), "{lost}");
}

/// Each sector of a discarded page is zero or as it was, until a sync; its neighbours are as they were.
#[test]
fn a_discarded_page_is_gone_with_the_next_sync_and_perhaps_before() {
    let mut seen = [0; 3];
    for_each_seed(0, 60, |seed| {
        let volume = volume(FaultPlan::none());
        let file = volume.create_pages(LOG, 3 * PAGE).unwrap();
        (0..3).for_each(|number| file.write(number, &page(number as u8 + 1), 1, true).unwrap());
        assert!(file.discard(1, 1).unwrap());
        assert_eq!(first_byte(&volume, 1), 0);
        let image = volume.crash(seed).contents(LOG).unwrap();
        let sectors = image[PAGE as usize..2 * PAGE as usize].chunks(512);
        let zero = sectors.filter(|sector| sector.iter().all(|byte| *byte == 0)).count();
        assert!(image[..PAGE as usize].iter().all(|byte| *byte == 1));
        assert!(image[2 * PAGE as usize..].iter().all(|byte| *byte == 3));
        seen[usize::from(zero > 0) + usize::from(zero == 8)] += 1;
        file.sync().unwrap();
        assert_eq!(first_byte(&volume.crash(seed), 1), 0);
    });
    assert!(seen.iter().all(|count| *count > 0), "kept, torn and gone: {seen:?}");
    let cannot = volume(FaultPlan::none().without_discard());
    let file = cannot.create_pages(LOG, PAGE).unwrap();
    file.write(0, &page(7), 1, false).unwrap();
    assert!(!file.discard(0, 1).unwrap());
    assert_eq!(first_byte(&cannot, 0), 7);
}

/// Every sector of an image must hold a value that the sector had since it was last durable.
#[test]
fn an_image_shows_each_sector_as_it_once_was_and_not_older_than_promised() {
    const PAGES: u64 = 4;
    const SECTORS: usize = PAGE_BYTES / SECTOR_BYTES;
    let (mut newest, mut others) = (0, 0);
    for_each_seed(0, 200, |seed| {
        let mut rng = Rng::new(seed);
        let volume = volume(FaultPlan::none());
        let file = volume.create_pages(LOG, PAGES * PAGE).unwrap();
        let mut allowed: Vec<Vec<u8>> = vec![vec![0]; PAGES as usize];
        for step in 1..rng.below(40) as u8 + 2 {
            let at = rng.index(PAGES as usize);
            match rng.below(8) {
                0 => {
                    file.sync().unwrap();
                    allowed.iter_mut().for_each(|states| drop(states.drain(..states.len() - 1)));
                }
                1 => {
                    file.write(at as u64, &page(step), 1, true).unwrap();
                    allowed[at] = vec![step];
                }
                _ => {
                    file.write(at as u64, &page(step), 1, false).unwrap();
                    allowed[at].push(step);
                }
            }
        }
        for image in 0..4 {
            let contents = volume.crash(seed * 4 + image).contents(LOG).unwrap();
            for (number, sector) in contents.chunks(SECTOR_BYTES).enumerate() {
                let states = &allowed[number / SECTORS];
                assert!(states.contains(&sector[0]), "sector {number} holds {} of {states:?}", sector[0]);
                assert!(sector.iter().all(|b| *b == sector[0]), "sector {number} is torn");
                if states.last() == Some(&sector[0]) { newest += 1 } else { others += 1 }
            }
        }
        let kept = volume.crash_keep_all().contents(LOG).unwrap();
        let latest: Vec<u8> = allowed.iter().map(|states| *states.last().unwrap()).collect();
        assert_eq!(kept.chunks(PAGE_BYTES).map(|page| page[0]).collect::<Vec<_>>(), latest);
    });
    assert!(newest > 1000 && others > 1000, "{newest} sectors in their newest state, {others} in an older one");
}

/// Writers and a syncer at once: a sync covers what was written before it began, and a crash in the midst of everything
/// never shows less.
#[test]
fn a_sync_covers_what_was_written_before_it_began() {
    use std::sync::atomic::{AtomicU8, Ordering};
    let mut older_than_newest = 0;
    for_each_seed(0, 150, |seed| {
        let sim = SimExecutor::new(seed);
        let volume = SimVolume::new(&sim.env(), FaultPlan::none(), seed);
        sim.run(|| {
            let file = volume.create_pages(LOG, 2 * PAGE).unwrap();
            // Per page: the last value whose write has begun, has returned, has been promised.
            let [begun, written, promised] = std::array::from_fn(|_| Arc::new([AtomicU8::new(0), AtomicU8::new(0)]));
            for at in 0..2 {
                let file = Arc::clone(&file);
                let (begun, written, promised) = (Arc::clone(&begun), Arc::clone(&written), Arc::clone(&promised));
                drop(sim_spawn(&sim, move || {
                    for value in 1..30 {
                        begun[at].store(value, Ordering::SeqCst);
                        let durable = value % 7 == 0;
                        file.write(at as u64, &page(value), 1, durable).unwrap();
                        written[at].store(value, Ordering::SeqCst);
                        if durable {
                            promised[at].fetch_max(value, Ordering::SeqCst);
                        }
                    }
                }));
            }
            let (syncing, covered) = (Arc::clone(&written), Arc::clone(&promised));
            drop(sim_spawn(&sim, move || {
                for _ in 0..5 {
                    let before = [0, 1].map(|at: usize| syncing[at].load(Ordering::SeqCst));
                    file.sync().unwrap();
                    (0..2).for_each(|at| drop(covered[at].fetch_max(before[at], Ordering::SeqCst).to_string()));
                }
            }));
            for image in 0..20 {
                sim.env().clock.sleep(Duration::from_micros(2));
                let contents = volume.crash(seed * 20 + image).contents(LOG).unwrap();
                for (number, sector) in contents.chunks(SECTOR_BYTES).enumerate() {
                    let at = number * SECTOR_BYTES / PAGE_BYTES;
                    let allowed = promised[at].load(Ordering::SeqCst)..=begun[at].load(Ordering::SeqCst);
                    assert!(allowed.contains(&sector[0]), "page {at} holds {}, allowed is {allowed:?}", sector[0]);
                    older_than_newest += u32::from(sector[0] < *allowed.end());
                }
            }
        });
    });
    assert!(older_than_newest > 1000, "{older_than_newest}");
}

#[test]
fn a_rename_happens_or_not_and_is_settled_by_sync_names() {
    let outcomes: BTreeSet<Vec<FileName>> = (0..60)
        .map(|seed| {
            let volume = volume(FaultPlan::none());
            volume.replace(FileName::Table(1), b"old").unwrap();
            volume.replace(FileName::Table(2), b"new").unwrap();
            volume.rename(FileName::Table(2), FileName::Table(1)).unwrap();
            let after = volume.crash(seed);
            let found = after.contents(FileName::Table(1)).expect("the target always exists");
            match after.contents(FileName::Table(2)) {
                None => assert_eq!(found, b"new"),
                Some(source) => assert_eq!((found.as_slice(), source.as_slice()), (&b"old"[..], &b"new"[..])),
            }
            volume.sync_names().unwrap();
            assert_eq!(volume.crash(seed).contents(FileName::Table(2)), None);
            assert_eq!(volume.crash(seed).contents(FileName::Table(1)).unwrap(), b"new");
            after.list().unwrap().iter().map(|meta| meta.name).collect()
        })
        .collect();
    assert_eq!(outcomes.len(), 2, "{outcomes:?}");
}

#[test]
fn a_name_taken_anew_never_loses_the_file_that_was_renamed_away() {
    for_each_seed(0, 100, |seed| {
        let volume = volume(FaultPlan::none());
        volume.replace(FileName::Current, b"first").unwrap();
        volume.rename(FileName::Current, FileName::Identity).unwrap();
        // Making the second file durable under the old name makes the rename durable too.
        volume.replace(FileName::Current, b"second").unwrap();
        let after = volume.crash(seed);
        assert_eq!(after.contents(FileName::Current).unwrap(), b"second");
        assert_eq!(after.contents(FileName::Identity).unwrap(), b"first");
    });
}

#[test]
fn a_file_renamed_away_is_not_lost_to_one_that_took_its_name() {
    let outcomes: BTreeSet<bool> = (0..100)
        .map(|seed| {
            let volume = volume(FaultPlan::none());
            volume.replace(FileName::Current, b"first").unwrap();
            volume.rename(FileName::Current, FileName::Identity).unwrap();
            let _writer = volume.create(FileName::Current, 0).unwrap();
            let after = volume.crash(seed);
            let moved = after.contents(FileName::Identity);
            let found = moved.clone().or_else(|| after.contents(FileName::Current));
            assert_eq!(found.as_deref(), Some(&b"first"[..]), "seed {seed}");
            moved.is_some()
        })
        .collect();
    assert_eq!(outcomes.len(), 2, "the rename happens always or never");
}

#[test]
fn a_removal_without_sync_names_may_be_undone() {
    let undone = |seed| {
        let volume = volume(FaultPlan::none());
        volume.replace(TABLE, b"x").unwrap();
        volume.remove(TABLE).unwrap();
        let undone = volume.crash(seed).contents(TABLE).is_some();
        volume.sync_names().unwrap();
        assert_eq!(volume.crash(seed).contents(TABLE), None);
        undone
    };
    let count = (0..100).filter(|seed| undone(*seed)).count();
    assert!((20..80).contains(&count), "{count}");
}

#[test]
fn error_faults_strike_the_chosen_operation_on_the_chosen_files() {
    let kinds = |fault| Rule::new(fault).files(&[FileKind::Table]);
    let plan = |fault| FaultPlan::none().with(kinds(fault));
    let tried = |fault, other: bool| {
        let volume = volume(plan(fault));
        let name = if other { FileName::Temporary(1) } else { TABLE };
        volume.replace(name, b"x").err().map(|error| error.to_string())
    };
    for fault in [Fault::Io, Fault::NoSpace, Fault::PermissionDenied, Fault::ReadOnly, Fault::NotFound] {
        assert!(tried(fault, false).is_some_and(|text| text.contains("000002.table")), "{fault:?}");
        assert_eq!(tried(fault, true), None, "{fault:?} strikes another file");
    }
    let second = volume(FaultPlan::none().with(Rule::new(Fault::Io).on(&[Operation::Remove]).nth(1)));
    (0..3).for_each(|n| second.replace(FileName::Table(n), b"x").unwrap());
    let removed: Vec<bool> = (0..3).map(|n| second.remove(FileName::Table(n)).is_ok()).collect();
    assert_eq!(removed, [true, false, true]);
    second.set_faults(FaultPlan::none().with(Rule::new(Fault::Io).on(&[Operation::List]).from(1)));
    assert_eq!([second.list().is_ok(), second.list().is_ok(), second.list().is_ok()], [true, false, false]);
    second.set_faults(FaultPlan::none().with(Rule::new(Fault::Io).chance(0.5)));
    let failed = (0..1000).filter(|_| second.list().is_err()).count();
    assert!((400..600).contains(&failed), "{failed}");
}

#[test]
fn a_lost_directory_and_a_read_only_one() {
    let volume = volume(FaultPlan::none());
    volume.replace(TABLE, b"x").unwrap();
    volume.set_faults(FaultPlan::none().with(Rule::new(Fault::NotFound)));
    assert!(matches!(volume.list(), Err(Error::NotFound { .. })));
    assert!(matches!(volume.create(LOG, 0).err(), Some(Error::NotFound { .. })));
    volume.set_faults(FaultPlan::none().with(Rule::new(Fault::ReadOnly)));
    assert!(volume.open(TABLE).is_ok());
    assert!(volume.create(LOG, 0).is_err() && volume.remove(TABLE).is_err() && volume.lock().is_err());
}

#[test]
fn a_full_volume_refuses_and_recovers_when_room_returns() {
    let volume = volume(FaultPlan::none().capacity(10 * PAGE));
    volume.create_pages(LOG, 8 * PAGE).unwrap();
    assert!(volume.create_pages(FileName::Log(2), 3 * PAGE).err().unwrap().is_no_space());
    let mut writer = volume.create(TABLE, 0).unwrap();
    writer.append(&[1; 3 * PAGE_BYTES]).unwrap();
    assert!(writer.flush().unwrap_err().is_no_space());
    assert_eq!(volume.space(), Space { logical_total: 10 * PAGE, logical_used: 8 * PAGE, ..Space::default() });
    volume.remove(LOG).unwrap();
    let mut writer = volume.create(FileName::Table(3), 0).unwrap();
    writer.append(&[1; 9 * PAGE_BYTES]).unwrap();
    writer.finish().unwrap();
}

#[test]
fn a_failed_sync_may_drop_what_was_dirty_for_ever() {
    for_each_seed(0, 30, |seed| {
        let volume = volume(FaultPlan::none().with(Rule::new(Fault::DropDirty).on(&[Operation::Sync]).nth(0)));
        let file = volume.create_pages(LOG, PAGE).unwrap();
        file.write(0, &page(1), 1, false).unwrap();
        assert!(file.sync().is_err());
        file.sync().unwrap();
        assert_eq!(first_byte(&volume, 0), 1, "reads still see it");
        assert_eq!(first_byte(&volume.crash(seed), 0), 0, "the second sync saved what the first had dropped");
    });
}

#[test]
fn a_lying_disk_is_found_out_by_a_crash_only() {
    let volume = volume(FaultPlan::none().with(Rule::new(Fault::FalseDurability)));
    let file = volume.create_pages(LOG, PAGE).unwrap();
    file.write(0, &page(1), 1, true).unwrap();
    assert_eq!(first_byte(&volume, 0), 1);
    assert!((0..20).any(|seed| first_byte(&volume.crash(seed), 0) == 0));
}

#[test]
fn silent_faults_store_something_else() {
    let stored = |fault| {
        let volume = volume(FaultPlan::none());
        let file = volume.create_pages(LOG, 4 * PAGE).unwrap();
        (0..4).for_each(|n| file.write(n, &page(n as u8 + 1), 1, true).unwrap());
        volume.set_faults(FaultPlan::none().with(Rule::new(fault).on(&[Operation::WritePages])));
        file.write(1, &page(9), 1, true).unwrap();
        let survived = volume.crash(5).contents(LOG).unwrap();
        assert_eq!(volume.contents(LOG).unwrap(), survived, "{fault:?} is durable");
        survived
    };
    let bytes = |contents: &[u8], byte: u8| contents.iter().filter(|b| **b == byte).count();
    let lost = stored(Fault::LoseWrite);
    assert_eq!((bytes(&lost, 9), bytes(&lost, 2)), (0, PAGE_BYTES));
    let elsewhere = stored(Fault::Misdirect);
    assert_eq!((bytes(&elsewhere, 9), bytes(&elsewhere, 2)), (PAGE_BYTES, PAGE_BYTES));
    assert_eq!(bytes(&stored(Fault::FlipBit), 9), PAGE_BYTES - 1);
}

#[test]
fn rot_is_at_rest_and_a_flipped_read_is_not() {
    let volume = volume(FaultPlan::none());
    volume.replace(TABLE, &[0; 100]).unwrap();
    let reader = volume.open(TABLE).unwrap();
    let mut bytes = [0; 100];
    volume.set_faults(FaultPlan::none().with(Rule::new(Fault::FlipBit).nth(0)));
    reader.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes.iter().map(|b| b.count_ones()).sum::<u32>(), 1);
    reader.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 100]);
    assert!(volume.rot(TABLE, 50, 3));
    assert!(!volume.rot(TABLE, 100, 3));
    reader.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes[50], 8);
    assert_eq!(volume.crash(0).contents(TABLE).unwrap()[50], 8);
}

#[test]
fn a_torn_sector_is_half_old_and_half_new() {
    let is_torn = |plan: FaultPlan, seed| {
        let volume = volume(plan);
        let file = volume.create_pages(LOG, PAGE).unwrap();
        file.write(0, &page(7), 1, false).unwrap();
        let contents = volume.crash(seed).contents(LOG).unwrap();
        contents.chunks(SECTOR_BYTES).any(|sector| sector.contains(&0) && sector.contains(&7))
    };
    let torn = (0..200).filter(|seed| is_torn(FaultPlan::none().tear_sectors(), *seed)).count();
    assert!(torn > 20, "{torn}");
    assert!(!(0..200).any(|seed| is_torn(FaultPlan::none(), seed)));
}

#[test]
fn delays_pass_on_the_simulated_clock() {
    let sim = SimExecutor::new(1);
    let slow = Rule::new(Fault::Delay(Duration::from_secs(60))).on(&[Operation::Sync]);
    let plan = FaultPlan::none().latency(Duration::from_millis(1)..Duration::from_millis(2)).with(slow);
    let volume = SimVolume::new(&sim.env(), plan, 1);
    sim.run(|| {
        let mut writer = volume.create(TABLE, 0).unwrap();
        let created = sim.env().clock.now();
        assert!((Duration::from_millis(1)..Duration::from_millis(3)).contains(&created), "{created:?}");
        writer.sync().unwrap();
        assert!(sim.env().clock.now() > Duration::from_secs(60));
    });
}

#[test]
fn nothing_works_after_the_crash_point_and_the_old_world_does_not_reach_the_new() {
    let volume = volume(FaultPlan::none());
    volume.replace(FileName::Current, b"before").unwrap();
    let file = volume.create_pages(LOG, PAGE).unwrap();
    let after = volume.crash(1);
    file.write(0, &page(1), 1, true).unwrap();
    volume.remove(FileName::Current).unwrap();
    volume.sync_names().unwrap();
    assert_eq!(after.contents(FileName::Current).unwrap(), b"before");
    assert_eq!(first_byte(&after, 0), 0);
    volume.crash_at(volume.changes());
    assert!(volume.open(LOG).is_ok(), "reads go on until the next change");
    let error = file.write(0, &page(2), 1, true).unwrap_err();
    assert!(error.to_string().contains("crashed"), "{error}");
    assert!(volume.has_crashed() && volume.open(LOG).is_err() && volume.list().is_err());
    // The write in flight may have reached the disk, whole or in part, or not.
    let outcomes: BTreeSet<u8> = (0..100).map(|seed| first_byte(&volume.crash(seed), 0)).collect();
    assert_eq!(outcomes, BTreeSet::from([1, 2]));
}

#[test]
fn the_disk_stands_still_from_the_crash_on() {
    for_each_seed(0, 200, |seed| {
        let sim = SimExecutor::new(seed);
        let volume = SimVolume::new(&sim.env(), FaultPlan::none(), seed);
        sim.run(|| {
            let file = volume.create_pages(LOG, 4 * PAGE).unwrap();
            volume.crash_at(20 + seed % 10);
            let jobs = [0, 1, 2, 3].map(|at| {
                let file = Arc::clone(&file);
                sim_spawn(&sim, move || while file.write(at, &page(at as u8 + 1), 1, true).is_ok() {})
            });
            while !volume.has_crashed() {
                sim.env().executor.yield_point();
            }
            let images = || (0..5).map(|image| volume.crash(image).contents(LOG)).collect::<Vec<_>>();
            let before = images();
            jobs.iter().for_each(|job| job.join().unwrap());
            assert!(before == images(), "an operation in flight went on after the crash");
        });
    });
}

#[test]
fn a_killed_thread_changes_nothing_any_more() {
    let sim = SimExecutor::new(9);
    let volume = SimVolume::new(&sim.env(), FaultPlan::none(), 9);
    let (theirs, clock) = (volume.clone(), sim.clock());
    sim.run(|| {
        let job = move || {
            let _removes = RemoveOnDrop(theirs);
            situ_base::Clock::sleep(&clock, Duration::from_secs(1000));
        };
        volume.replace(TABLE, b"x").unwrap();
        let job = sim_spawn(&sim, job);
        sim.kill();
        assert!(job.join().unwrap_err().contains("killed"));
    });
    assert!(volume.contents(TABLE).is_some(), "a destructor ran in a dead process");
}

struct RemoveOnDrop(SimVolume);

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        assert!(self.0.remove(TABLE).is_err());
    }
}

fn sim_spawn(sim: &SimExecutor, job: impl FnOnce() + Send + 'static) -> Box<dyn situ_base::JobHandle> {
    situ_base::Executor::spawn(sim, "job", Box::new(job)).unwrap()
}

#[test]
fn one_seed_gives_one_trace() {
    let run = |seed| {
        let sim = SimExecutor::new(seed);
        let plan = FaultPlan::none().with(Rule::new(Fault::Io).chance(0.2));
        let volume = SimVolume::new(&sim.env(), plan.latency(Duration::ZERO..Duration::from_micros(50)), seed);
        sim.run(|| {
            let jobs: Vec<_> = (0..4)
                .map(|thread| {
                    let volume = volume.clone();
                    sim_spawn(&sim, move || {
                        for number in 0..10 {
                            let name = FileName::Table(thread * 100 + number);
                            if let Ok(mut writer) = volume.create(name, 0) {
                                let _ = writer.append(&number.to_le_bytes()).and_then(|()| writer.sync());
                            }
                        }
                    })
                })
                .collect();
            jobs.iter().for_each(|job| job.join().unwrap());
        });
        (sim.trace().hash(), volume.trace().hash(), volume.operations(), sim.steps())
    };
    assert_eq!(run(1), run(1));
    let different: BTreeSet<_> = (0..20).map(run).collect();
    assert_eq!(different.len(), 20);
}

/// What a volume answers, as far as the trait fixes it.
fn kind<T>(result: &Result<T>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(Error::NotFound { .. }) => "not found",
        Err(Error::Corruption(_)) => "corruption",
        Err(Error::Locked { .. }) => "locked",
        Err(_) => "other",
    }
}

struct TemporaryDirectory(PathBuf);

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Without faults and crashes, the simulated volume and a real directory answer alike.
#[test]
fn answers_as_a_directory_does() {
    for_each_seed(0, 12, |seed| {
        let path = std::env::temp_dir().join(format!("situ-sim-{}-{seed}", std::process::id()));
        let directory = TemporaryDirectory(path.clone());
        let volumes: [Box<dyn Volume>; 2] =
            [Box::new(DirectoryVolume::create(path).unwrap()), Box::new(volume(FaultPlan::none()))];
        let mut rng = Rng::new(seed);
        for step in 0..80 {
            let (name, other) = (FileName::Table(rng.below(3)), FileName::Table(rng.below(3)));
            let (what, bytes, offset) = (rng.below(9), rng.index(10_000), rng.below(12_000));
            let answers = volumes.each_ref().map(|volume| act(&**volume, what, name, other, bytes, offset));
            assert_eq!(answers[0], answers[1], "step {step}: action {what} on {name} and {other}");
        }
        drop(directory);
    });
}

fn act(volume: &dyn Volume, what: u64, name: FileName, other: FileName, bytes: usize, offset: u64) -> String {
    let data: Vec<u8> = (0..bytes).map(|n| n as u8).collect();
    let done = match what {
        0 => {
            let writer = volume.create(name, 0);
            let done = kind(&writer);
            if let Ok(mut writer) = writer {
                writer.append(&data).unwrap();
                assert_eq!(writer.written(), bytes as u64);
                writer.flush().unwrap();
            }
            done
        }
        1 => kind(&volume.replace(name, &data)),
        2 => kind(&volume.rename(name, other)),
        3 => kind(&volume.remove(name)),
        4 => kind(&volume.create_pages(name, bytes as u64 + 1)),
        5 => {
            let file = volume.open_pages(name);
            if let Ok(file) = &file
                && file.pages() > 0
            {
                let mut buffer = Buffer::new(PAGE_BYTES);
                buffer.fill(bytes as u8);
                file.write(offset % file.pages(), &buffer, 1, bytes.is_multiple_of(2)).unwrap();
            }
            kind(&file)
        }
        6 => kind(&volume.sync_names()),
        7 => {
            let file = volume.open_pages(name);
            if let Ok(file) = &file
                && file.pages() > 0
            {
                assert!(file.discard(offset % file.pages(), 1).unwrap());
            }
            kind(&file)
        }
        _ => kind(&volume.lock()),
    };
    let mut text = format!("{done};");
    for meta in volume.list().unwrap() {
        let reader = volume.open(meta.name).unwrap();
        let mut whole = vec![0; reader.bytes() as usize];
        reader.read_at(0, &mut whole).unwrap();
        let behind = kind(&reader.read_at(offset, &mut [0; 100]));
        text += &format!(" {} {} {:x} {behind}", meta.name, meta.bytes, hash_bytes(&whole));
    }
    text
}

const READS: u64 = 64;
const TAKES: Duration = Duration::from_millis(10);

/// A table of so many pages, each filled with its number, and a queue.
fn submitting<T: Send>(
    seed: u64,
    body: impl FnOnce(&SimExecutor, &SimVolume, &dyn Reader, ReadQueue) -> T + Send,
) -> T {
    let sim = SimExecutor::new(seed);
    let env = sim.env();
    let volume = SimVolume::new(&env, FaultPlan::none(), seed);
    let contents: Vec<u8> = (0..READS).flat_map(|page| [page as u8; PAGE_BYTES]).collect();
    volume.set_contents(TABLE, &contents);
    sim.run(|| {
        let file = volume.open(TABLE).unwrap();
        body(&sim, &volume, &*file, ReadQueue::new(env.executor.event(), READS as usize))
    })
}

fn submit_pages(queue: &mut ReadQueue, file: &dyn Reader) {
    (0..READS).for_each(|page| queue.submit(file, page, page * PAGE, vec![99; PAGE_BYTES]).unwrap());
}

fn collect(queue: &mut ReadQueue) -> Vec<FinishedRead> {
    let mut done = Vec::new();
    while queue.wait(&mut done) > 0 {}
    assert_eq!((done.len() as u64, queue.in_flight()), (READS, 0));
    done
}

fn is_right(read: &FinishedRead) -> bool {
    read.result.is_ok() && read.buffer == [read.tag as u8; PAGE_BYTES]
}

#[test]
fn sixty_four_reads_of_ten_milliseconds_from_one_thread_take_less_than_two_hundred() {
    for_each_seed(0, 20, |seed| {
        submitting(seed, |sim, volume, file, mut queue| {
            volume.set_faults(FaultPlan::none().latency(TAKES..TAKES));
            let begun = sim.env().clock.now();
            submit_pages(&mut queue, file);
            let done = collect(&mut queue);
            let took = sim.env().clock.now() - begun;
            assert!(took >= TAKES && took < 5 * TAKES, "{took:?}");
            assert!(done.iter().all(is_right));
        });
    });
}

#[test]
fn the_seed_decides_in_which_order_submitted_reads_complete() {
    let run = |seed| {
        submitting(seed, |sim, _, file, mut queue| {
            submit_pages(&mut queue, file);
            let order: Vec<u64> = collect(&mut queue).iter().map(|read| read.tag).collect();
            (order, sim.trace().hash())
        })
    };
    let runs: Vec<_> = (0..5).map(run).collect();
    assert_eq!(runs, (0..5).map(run).collect::<Vec<_>>(), "same seed, same order");
    assert!(runs.iter().any(|(order, _)| !order.is_sorted()) && runs.windows(2).any(|two| two[0].0 != two[1].0));
}

#[test]
fn faults_reach_the_submitted_reads_that_they_strike() {
    for_each_seed(0, 20, |seed| {
        submitting(seed, |_, volume, file, mut queue| {
            let on = |fault, page| Rule::new(fault).on(&[Operation::Read]).within(page * PAGE..(page + 1) * PAGE);
            let faults =
                FaultPlan::none().with(on(Fault::Io, 5)).with(on(Fault::FlipBit, 6)).with(on(Fault::Delay(TAKES), 7));
            volume.set_faults(faults);
            submit_pages(&mut queue, file);
            let done = collect(&mut queue);
            for read in &done {
                match read.tag {
                    5 => assert!(matches!(read.result, Err(Error::Io { .. })), "{:?}", read.result),
                    6 => assert!(read.result.is_ok() && !is_right(read)),
                    _ => assert!(is_right(read), "{:?}", read.result),
                }
            }
            assert_eq!(done.last().map(|read| read.tag), Some(7), "the slow one comes last");
            queue.submit(file, 1, READS * PAGE - 1, vec![0; 2]).unwrap();
            let mut done = Vec::new();
            queue.wait(&mut done);
            assert!(done[0].result.as_ref().unwrap_err().is_corruption());
        });
    });
}

#[test]
fn submitted_reads_outlive_file_and_queue_and_are_answered_when_the_process_dies() {
    for_each_seed(0, 20, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        let volume = SimVolume::new(&env, FaultPlan::none(), seed);
        volume.set_contents(TABLE, &vec![7; (READS * PAGE) as usize]);
        sim.run(|| {
            volume.set_faults(FaultPlan::none().latency(Duration::ZERO..TAKES));
            let file = volume.open(TABLE).unwrap();
            let queue = || ReadQueue::new(env.executor.event(), READS as usize);
            let (mut left, mut kept) = (queue(), queue());
            submit_pages(&mut left, &*file);
            submit_pages(&mut kept, &*file);
            volume.remove(TABLE).unwrap();
            drop((left, file));
            assert_eq!(volume.space().logical_used, READS * PAGE, "reads keep the file");
            if seed % 2 == 0 {
                sim.kill();
            }
            let done = collect(&mut kept);
            let is_right = |read: &FinishedRead| read.result.is_ok() && read.buffer == [7; PAGE_BYTES];
            assert!(done.iter().all(|read| is_right(read) || (seed % 2 == 0 && read.result.is_err())));
            env.clock.sleep(2 * TAKES);
            assert_eq!(volume.space().logical_used, 0, "and nobody keeps it longer");
        });
    });
}

/// Bytes that nothing compresses.
fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    Rng::new(seed).fill(&mut noise);
    noise
}

#[test]
fn a_volume_that_compresses_runs_out_of_physical_space_and_gets_it_back() {
    let volume = volume(FaultPlan::none());
    let page = PAGE as usize;
    volume.set_contents(FileName::Table(1), &noise(page, 1));
    let compression = Compression::default().total(6 * PAGE).when_full(WhenFull::Io);
    volume.set_compression(compression);
    let physical = |volume: &SimVolume| {
        let space = volume.space();
        assert_eq!(space.physical_total, Some(6 * PAGE));
        (space.physical_used.unwrap(), space.physical_written.unwrap())
    };
    assert_eq!(physical(&volume), (PAGE, 0), "what was there before");
    assert_eq!(volume.nature().compresses, Compresses::Yes);
    // Pages that are reserved hold zeros.
    let pages = volume.create_pages(FileName::Log(2), 16 * PAGE).unwrap();
    assert_eq!(physical(&volume), (PAGE, 0));
    let mut buffer = Buffer::new(4 * page);
    buffer.copy_from_slice(&noise(4 * page, 2));
    pages.write(3, &buffer, 4, true).unwrap();
    assert_eq!(physical(&volume), (5 * PAGE, 4 * PAGE));
    let error = pages.write(8, &buffer, 4, true).unwrap_err();
    assert!(!error.is_no_space() && error.to_string().contains("write"), "{error}");
    assert_eq!(physical(&volume), (6 * PAGE, 5 * PAGE), "one page fitted");
    let mut writer = volume.create(FileName::Table(3), 0).unwrap();
    writer.append(&noise(100, 3)).unwrap();
    assert!(writer.flush().is_err());
    assert!(volume.replace(FileName::Current, &noise(100, 3)).is_err());
    // Removing a file that nobody has open gives its blocks back.
    volume.remove(FileName::Table(1)).unwrap();
    assert_eq!(physical(&volume).0, 5 * PAGE);
    volume.replace(FileName::Current, b"names").unwrap();
    let (used, written) = physical(&volume);
    assert!(used > 5 * PAGE && used < 5 * PAGE + 100, "{used}");
    let after = volume.crash_keep_all();
    assert_eq!(physical(&after), (used, written));
    // A limit that is raised, or lowered, keeps the counts.
    volume.set_compression(Compression::default().total(8 * PAGE));
    assert_eq!(volume.space().physical_used, Some(used));
    assert_eq!(volume.space().physical_free(), Some(8 * PAGE - used));
}

#[test]
fn a_crash_image_of_a_volume_that_compresses_has_the_figures_of_its_own_files() {
    let volume = volume(FaultPlan::none());
    volume.set_compression(Compression::default().cliff());
    let mut writer = volume.create(FileName::Table(1), 0).unwrap();
    writer.append(&noise(5 * PAGE as usize, 1)).unwrap();
    writer.sync().unwrap();
    writer.append(&noise(3 * PAGE as usize, 2)).unwrap();
    writer.flush().unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..60 {
        let after = volume.crash(seed);
        let contents = after.contents(FileName::Table(1)).unwrap();
        let again = self::volume(FaultPlan::none());
        again.set_contents(FileName::Table(1), &contents);
        again.set_compression(Compression::default().cliff());
        assert_eq!(after.space().physical_used, again.space().physical_used);
        seen.insert(after.space().physical_used);
    }
    assert!(seen.len() > 2, "{seen:?}");
}
