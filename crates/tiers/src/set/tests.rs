use super::*;
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rule, SimExecutor, SimVolume};
use std::time::Duration;

/// A machine, a home and a fast disk with some room.
fn world(room: Option<u64>) -> (SimExecutor, [SimVolume; 2]) {
    let executor = SimExecutor::new(1);
    let home = SimVolume::named(&executor.env(), "home", FaultPlan::none(), 1);
    let plan = FaultPlan { capacity_bytes: room, ..FaultPlan::none() };
    let fast = SimVolume::named(&executor.env(), "fast", plan, 2);
    (executor, [home, fast])
}

fn disks(executor: &SimExecutor, [home, fast]: &[SimVolume; 2]) -> Arc<Disks> {
    try_disks(executor, home, fast).unwrap()
}

fn try_disks(executor: &SimExecutor, home: &SimVolume, fast: &SimVolume) -> Result<Arc<Disks>> {
    Disks::new(Arc::new(home.clone()), vec![other(FAST, fast)], &executor.env())
}

fn other(number: u32, volume: &SimVolume) -> NewDisk {
    NewDisk { number, role: Role::Fast, volume: Arc::new(volume.clone()), cache_bytes: 0 }
}

fn fast(disks: &Disks) -> &Disk {
    disks.with_role(Role::Fast).unwrap()
}

fn names(volume: &dyn Volume) -> Vec<String> {
    volume.list().unwrap().iter().map(|file| file.name.to_string()).collect()
}

const LOG_BYTES: u64 = 64 << 10;

#[test]
fn a_log_file_that_the_fast_disk_has_no_room_for_begins_at_home() {
    let (executor, both) = world(Some(3 * LOG_BYTES / 2));
    executor.run(|| {
        let disks = disks(&executor, &both);
        let buffer = Buffer::new(situ_storage::PAGE_BYTES);
        for number in 1..=2 {
            let file = disks.create_pages(FileName::Log(number), LOG_BYTES).unwrap();
            file.write(0, &buffer, 1, true).unwrap();
        }
        assert_eq!(names(&both[1]), ["000001.log"]);
        assert_eq!(names(&both[0]), ["000002.log"]);
        assert_eq!(disks.log_files_spilled(), 1);
        assert_eq!(names(&*disks), ["000001.log", "000002.log"]);
        // Recycling stays on the disk where the file is.
        disks.rename(FileName::Log(1), FileName::Spare(1)).unwrap();
        disks.rename(FileName::Spare(1), FileName::Log(3)).unwrap();
        disks.sync_names().unwrap();
        assert_eq!(names(&both[1]), ["000003.log"]);
        assert_eq!(disks.open_pages(FileName::Log(3)).unwrap().path(), "fast/000003.log");
        disks.remove(FileName::Log(3)).unwrap();
        disks.remove(FileName::Log(2)).unwrap();
        assert!(matches!(disks.remove(FileName::Log(2)), Err(Error::NotFound { .. })));
        assert!(names(&*disks).is_empty());
    });
}

/// A file half made on the fast disk that cannot be removed must not have a twin at home.
#[test]
fn a_log_file_is_never_on_both_disks() {
    let (executor, both) = world(None);
    executor.run(|| {
        let disks = disks(&executor, &both);
        let full = Rule::new(Fault::NoSpace).on(&[Operation::CreatePages]).files(&[FileKind::Log]);
        let stuck = Rule::new(Fault::Io).on(&[Operation::Remove]);
        both[1].set_faults(FaultPlan::none().with(full.clone()).with(stuck));
        assert!(disks.create_pages(FileName::Log(1), LOG_BYTES).is_err());
        assert!(names(&both[0]).is_empty());
        both[1].set_faults(FaultPlan::none().with(full));
        disks.create_pages(FileName::Log(2), LOG_BYTES).unwrap();
        assert_eq!(names(&both[0]), ["000002.log"]);
    });
}

#[test]
fn a_closed_fast_disk_gets_nothing_new_and_its_spares_are_not_used() {
    let (executor, both) = world(None);
    executor.run(|| {
        let disks = disks(&executor, &both);
        disks.create_pages(FileName::Log(1), LOG_BYTES).unwrap();
        disks.rename(FileName::Log(1), FileName::Spare(1)).unwrap();
        fast(&disks).close(true);
        both[0].set_faults(FaultPlan::none().with(Rule::new(Fault::NoSpace).on(&[Operation::CreatePages])));
        assert!(disks.rename(FileName::Spare(1), FileName::Log(2)).unwrap_err().is_no_space());
        both[0].set_faults(FaultPlan::none());
        both[1].set_faults(FaultPlan::none().with(Rule::new(Fault::Io).on(&[Operation::Remove])));
        assert!(disks.rename(FileName::Spare(1), FileName::Log(2)).is_err());
        both[1].set_faults(FaultPlan::none());
        assert_eq!(names(&*disks), ["000001.spare"], "as before after an error");
        disks.rename(FileName::Spare(1), FileName::Log(2)).unwrap();
        assert_eq!(disks.open_pages(FileName::Log(2)).unwrap().pages() * 4096, LOG_BYTES);
        disks.create_pages(FileName::Log(3), LOG_BYTES).unwrap();
        assert_eq!(names(&both[0]), ["000002.log", "000003.log"]);
        assert!(names(&both[1]).is_empty());
    });
}

#[test]
fn files_are_found_where_they_are_also_those_that_another_process_has_made() {
    let (executor, both) = world(None);
    executor.run(|| {
        let disks = disks(&executor, &both);
        for (disk, number) in [(CAPACITY, 1), (FAST, 2)] {
            let mut writer = disks.create_table(disk, number, 100).unwrap().unwrap();
            writer.append(&[number as u8]).unwrap();
            writer.finish().unwrap();
            assert_eq!(disks.disk_of(FileName::Table(number)), disk);
        }
        let mut stranger = both[1].create(FileName::Table(3), 1).unwrap();
        stranger.append(&[3]).unwrap();
        stranger.finish().unwrap();
        for number in 1..=3 {
            let mut byte = [0];
            disks.open(FileName::Table(number)).unwrap().read_at(0, &mut byte).unwrap();
            assert_eq!(byte, [number as u8]);
        }
        // What the disk has for itself is no file of the store.
        both[1].set_contents(FileName::Member, b"whose");
        assert_eq!(names(&*disks), ["000001.table", "000002.table", "000003.table"]);
        assert_eq!(disks.disk_of(FileName::Table(3)), FAST, "known since the listing");
    });
}

/// Without it, names on a disk where nothing changed would cost a sync of its directory each time.
#[test]
fn names_are_synced_where_they_changed_and_survive() {
    let (executor, both) = world(None);
    executor.run(|| {
        let disks = disks(&executor, &both);
        // The first time, each disk is asked: the process before may have left names that are not durable.
        disks.sync_names().unwrap();
        disks.create_pages(FileName::Log(1), LOG_BYTES).unwrap();
        disks.rename(FileName::Log(1), FileName::Spare(1)).unwrap();
        let before = both[0].operations();
        disks.sync_names().unwrap();
        assert_eq!(both[0].operations(), before, "nothing changed at home");
        for seed in 0..20 {
            assert_eq!(names(&both[1].crash(seed)), ["000001.spare"]);
        }
        disks.rename(FileName::Spare(1), FileName::Log(2)).unwrap();
        both[1].set_faults(FaultPlan::none().with(Rule::new(Fault::Io).on(&[Operation::SyncNames]).nth(0)));
        assert!(disks.sync_names().is_err());
        disks.sync_names().unwrap();
        for seed in 0..20 {
            assert_eq!(names(&both[1].crash(seed)), ["000002.log"]);
        }
    });
}

/// The disk was full, the file's name was taken back, and the log went on at home. The power failed before the name was
/// gone for good, and recovery read the empty file in place of the one with the records.
#[test]
fn a_log_file_that_spilled_has_no_twin_after_a_crash() {
    let (executor, both) = world(Some(LOG_BYTES / 2));
    executor.run(|| {
        let disks = disks(&executor, &both);
        let file = disks.create_pages(FileName::Log(1), LOG_BYTES).unwrap();
        file.write(0, &Buffer::new(situ_storage::PAGE_BYTES), 1, true).unwrap();
        for seed in 0..40 {
            assert!(names(&both[1].crash(seed)).is_empty(), "seed {seed}");
        }
        // If the name may come back, nothing begins at home.
        both[1].set_faults(FaultPlan::none().capacity(0).with(Rule::new(Fault::Io).on(&[Operation::SyncNames])));
        assert!(disks.create_pages(FileName::Log(2), LOG_BYTES).is_err());
        assert_eq!(names(&both[0]), ["000001.log"]);
    });
}

#[test]
fn of_two_log_files_of_one_name_the_one_with_contents_counts() {
    let (full, zeros) = ([7; 8192], [0; 8192]);
    for (at_home, on_fast, disk) in [
        (&full[..], &[][..], CAPACITY),
        (&full[..], &zeros[..], CAPACITY),
        (&zeros[..], &full[..], FAST),
        (&[][..], &full[..], FAST),
        (&[][..], &zeros[..], CAPACITY),
    ] {
        let (executor, both) = world(None);
        executor.run(|| {
            let name = FileName::Log(5);
            both[0].set_contents(name, at_home);
            both[1].set_contents(name, on_fast);
            let disks = disks(&executor, &both);
            assert_eq!(disks.disk_of(name), disk);
            let listed = disks.list().unwrap();
            let there = if disk == FAST { on_fast } else { at_home };
            assert_eq!(listed.iter().map(|file| file.bytes).collect::<Vec<_>>(), [there.len() as u64]);
            assert_eq!(disks.disk_of(name), disk, "also after a listing");
            disks.remove_twins().unwrap();
            assert_eq!(both.each_ref().map(|volume| names(volume).len()).iter().sum::<usize>(), 1);
            let mut bytes = vec![0; there.len()];
            disks.open_pages(name).unwrap().read_at(0, &mut bytes).unwrap();
            assert_eq!(bytes, there);
            // Of a writer that crashed then, too.
            let left = &both[disk as usize ^ 1];
            assert!((0..20).all(|seed| names(&left.crash(seed)).is_empty()));
        });
    }
    let (executor, both) = world(None);
    executor.run(|| {
        both.iter().for_each(|volume| volume.set_contents(FileName::Log(5), &full));
        let error = try_disks(&executor, &both[0], &both[1]).err().unwrap();
        assert!(error.is_corruption() && error.to_string().contains("fast/000005.log"), "{error}");
    });
}

/// The second of two threads found nothing changed, because the first had begun to sync, and went on before that was
/// done.
#[test]
fn names_are_durable_for_everybody_who_asked() {
    let (executor, both) = world(None);
    executor.run(|| {
        let disks = disks(&executor, &both);
        disks.create_pages(FileName::Log(1), LOG_BYTES).unwrap();
        let slow = Rule::new(Fault::Delay(Duration::from_secs(5))).on(&[Operation::SyncNames]);
        both[1].set_faults(FaultPlan::none().with(slow));
        disks.rename(FileName::Log(1), FileName::Spare(1)).unwrap();
        let env = executor.env();
        let sync = |disks: &Arc<Disks>| {
            let disks = Arc::clone(disks);
            env.executor.spawn("first", Box::new(move || disks.sync_names().unwrap())).unwrap()
        };
        let first = sync(&disks);
        env.clock.sleep(Duration::from_secs(1));
        disks.sync_names().unwrap();
        for seed in 0..20 {
            assert_eq!(names(&both[1].crash(seed)), ["000001.spare"]);
        }
        first.join().unwrap();
        // What is changed while somebody syncs is not covered by that.
        disks.rename(FileName::Spare(1), FileName::Log(2)).unwrap();
        let first = sync(&disks);
        env.clock.sleep(Duration::from_secs(1));
        disks.rename(FileName::Log(2), FileName::Spare(2)).unwrap();
        disks.sync_names().unwrap();
        for seed in 0..20 {
            assert_eq!(names(&both[1].crash(seed)), ["000002.spare"]);
        }
        first.join().unwrap();
        let before = both[1].operations();
        disks.sync_names().unwrap();
        assert_eq!(both[1].operations(), before);
    });
}

/// A spare at home was used before anything else, so that one spill kept the log there for ever.
#[test]
fn a_log_that_spilled_goes_back_when_there_is_room() {
    let (executor, both) = world(Some(3 * LOG_BYTES / 2));
    executor.run(|| {
        let disks = disks(&executor, &both);
        disks.create_pages(FileName::Log(1), LOG_BYTES).unwrap();
        disks.create_pages(FileName::Log(2), LOG_BYTES).unwrap();
        disks.rename(FileName::Log(2), FileName::Spare(2)).unwrap();
        disks.rename(FileName::Spare(2), FileName::Log(3)).unwrap();
        assert_eq!(names(&both[0]), ["000003.log"], "no room yet");
        disks.remove(FileName::Log(1)).unwrap();
        disks.rename(FileName::Log(3), FileName::Spare(3)).unwrap();
        // What goes wrong leaves the spare, and nothing of the new name.
        let at_home = [(0, Operation::Remove), (1, Operation::CreatePages)];
        for (which, operation) in at_home {
            let plan = FaultPlan { capacity_bytes: Some(3 * LOG_BYTES / 2), ..FaultPlan::none() };
            both[which].set_faults(plan.clone().with(Rule::new(Fault::Io).on(&[operation])));
            assert!(disks.rename(FileName::Spare(3), FileName::Log(4)).is_err());
            both[which].set_faults(plan);
            assert_eq!(names(&*disks), ["000003.spare"]);
        }
        disks.rename(FileName::Spare(3), FileName::Log(4)).unwrap();
        disks.sync_names().unwrap();
        assert_eq!(names(&*disks), ["000004.log"]);
        assert_eq!(names(&both[1]), ["000004.log"]);
        assert_eq!(disks.open_pages(FileName::Log(4)).unwrap().pages() * 4096, LOG_BYTES);
    });
}

/// A listing saw a log file that the fast disk had no room for. It put the name among those of that disk when the file
/// had begun at home. From then on the store looked for it in the wrong place, and 65 MiB stayed at home.
#[test]
fn a_listing_of_a_writer_adds_no_names() {
    let (executor, both) = world(None);
    executor.run(|| {
        let disks = disks(&executor, &both);
        disks.all_names_are_known();
        disks.create_pages(FileName::Log(1), LOG_BYTES).unwrap();
        both[1].set_contents(FileName::Log(2), b"");
        assert!(disks.list().unwrap().iter().any(|file| file.name == FileName::Log(2)));
        assert_eq!(fast(&disks).strangers().unwrap(), [FileName::Log(2)]);
        both[1].remove(FileName::Log(2)).unwrap();
        fast(&disks).close(true);
        disks.create_pages(FileName::Log(2), LOG_BYTES).unwrap();
        assert_eq!([1, 2].map(|number| disks.disk_of(FileName::Log(number))), [FAST, CAPACITY]);
        disks.rename(FileName::Log(2), FileName::Spare(2)).unwrap();
        disks.remove(FileName::Spare(2)).unwrap();
        assert!(names(&both[0]).is_empty(), "{:?}", names(&both[0]));
        assert!(fast(&disks).strangers().unwrap().is_empty());
    });
}

fn put_table(disks: &Disks, disk: u32, number: u64) {
    let mut writer = disks.create_table(disk, number, 100).unwrap().unwrap();
    writer.append(&[number as u8]).unwrap();
    writer.finish().unwrap();
}

/// A capacity disk, two fast disks, and the set that they are.
fn three() -> (SimExecutor, [SimVolume; 3]) {
    let (executor, [home, fast]) = world(None);
    let third = SimVolume::named(&executor.env(), "third", FaultPlan::none(), 3);
    (executor, [home, fast, third])
}

fn set_of(executor: &SimExecutor, volumes: &[SimVolume; 3]) -> Result<Arc<Disks>> {
    let others = vec![other(FAST, &volumes[1]), other(7, &volumes[2])];
    Disks::new(Arc::new(volumes[0].clone()), others, &executor.env())
}

#[test]
fn a_set_of_three_disks_is_one_volume_and_each_file_lies_where_it_was_put() {
    let (executor, volumes) = three();
    executor.run(|| {
        let disks = set_of(&executor, &volumes).unwrap();
        disks.all_names_are_known();
        [(CAPACITY, 1), (FAST, 2), (7, 3)].into_iter().for_each(|(disk, number)| put_table(&disks, disk, number));
        disks.create_pages(FileName::Log(4), LOG_BYTES).unwrap();
        assert_eq!(names(&*disks), ["000004.log", "000001.table", "000002.table", "000003.table"]);
        assert_eq!(names(&volumes[1]), ["000004.log", "000002.table"], "the log begins on the first fast disk");
        assert_eq!(names(&volumes[2]), ["000003.table"]);
        for (disk, number) in [(CAPACITY, 1), (FAST, 2), (7, 3)] {
            let mut byte = [0];
            disks.open(FileName::Table(number)).unwrap().read_at(0, &mut byte).unwrap();
            assert_eq!((byte, disks.disk_of(FileName::Table(number))), ([number as u8], disk));
        }
        disks.sync_names().unwrap();
        for number in 1..=3 {
            disks.remove(FileName::Table(number)).unwrap();
        }
        disks.sync_names().unwrap();
        assert!((0..20).all(|seed| names(&volumes[2].crash(seed)).is_empty()), "the third disk was asked, too");
        assert_eq!(names(&*disks), ["000004.log"]);
    });
}

#[test]
fn a_disk_of_a_set_is_closed_and_searched_for_strangers_by_itself() {
    let (executor, volumes) = three();
    executor.run(|| {
        let disks = set_of(&executor, &volumes).unwrap();
        disks.all_names_are_known();
        let third = disks.numbered(7).unwrap();
        third.close(true);
        assert!(disks.create_table(7, 1, 100).unwrap().is_none());
        put_table(&disks, FAST, 1);
        assert!(third.is_empty().unwrap());
        assert!(!disks.numbered(FAST).unwrap().is_empty().unwrap());
        volumes[2].set_contents(FileName::Table(9), b"whose");
        assert_eq!(third.strangers().unwrap(), [FileName::Table(9)]);
        assert!(disks.numbered(FAST).unwrap().strangers().unwrap().is_empty());
        let error = disks.create_table(8, 2, 100).err().unwrap();
        assert!(error.to_string().contains("there is no disk 8"), "{error}");
    });
}

/// Two disks other than the capacity disk may have a log file of one name as well.
#[test]
fn of_three_log_files_of_one_name_the_one_with_contents_counts() {
    let full = [7; 8192];
    for with_contents in 0..3 {
        let (executor, volumes) = three();
        executor.run(|| {
            volumes.iter().for_each(|volume| volume.set_contents(FileName::Log(5), b""));
            volumes[with_contents].set_contents(FileName::Log(5), &full);
            let disks = set_of(&executor, &volumes).unwrap();
            let lengths = |disks: &Disks| disks.list().unwrap().iter().map(|file| file.bytes).collect::<Vec<_>>();
            assert_eq!(lengths(&disks), [full.len() as u64], "on disk {with_contents}");
            disks.remove_twins().unwrap();
            assert_eq!(lengths(&disks), [full.len() as u64], "on disk {with_contents}");
            assert_eq!(volumes.iter().map(|volume| names(volume).len()).sum::<usize>(), 1);
        });
    }
    let (executor, volumes) = three();
    executor.run(|| {
        volumes[1..].iter().for_each(|volume| volume.set_contents(FileName::Log(5), &full));
        assert!(set_of(&executor, &volumes).err().unwrap().is_corruption());
    });
}

#[test]
fn a_set_of_one_disk_has_its_log_on_that_disk() {
    let (executor, [home, _]) = world(None);
    executor.run(|| {
        let disks = Disks::new(Arc::new(home.clone()), Vec::new(), &executor.env()).unwrap();
        disks.create_pages(FileName::Log(1), LOG_BYTES).unwrap();
        disks.rename(FileName::Log(1), FileName::Spare(1)).unwrap();
        disks.rename(FileName::Spare(1), FileName::Log(2)).unwrap();
        assert_eq!(names(&home), ["000002.log"]);
        assert_eq!((disks.log_files_spilled(), disks.disk_of(FileName::Log(2))), (0, CAPACITY));
        assert!(disks.with_role(Role::Fast).is_none());
    });
}
