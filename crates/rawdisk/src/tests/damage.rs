//! Torn, rotten, stale and foreign bytes; devices that fail, shrink and fill.

use super::*;
use situ_device::{Geometry, Queue};
use situ_sim::Rng;
use std::sync::atomic::{AtomicU32, Ordering};

const JOURNAL: u64 = PAGE;
const HALF: u64 = 4 * PAGE;
const END: u64 = 300 * PAGE;

/// A disk with a few files, and what it holds.
fn with_files(seed: u64, body: impl FnOnce(&Env, &SimDevice) + Send) {
    on_a_disk(300, seed, |env, device| {
        let volume = open(env, device).unwrap();
        write(&volume, FileName::Table(1), &pattern(1, 20_000)).unwrap();
        volume.replace(FileName::Identity, b"words").unwrap();
        drop(volume);
        body(env, device);
    });
}

fn is_whole(env: &Env, device: &SimDevice) {
    let volume = open(env, device).unwrap();
    assert!(read(&volume, FileName::Table(1)).unwrap() == pattern(1, 20_000));
    assert_eq!(read(&volume, FileName::Identity).unwrap(), b"words");
}

fn problems(env: &Env, device: &SimDevice) -> Vec<String> {
    RawVolume::check(device.reached(), env.clone()).unwrap().problems
}

#[test]
fn either_copy_of_the_superblock_is_enough_and_the_other_is_mended() {
    for (number, at) in [0, END - PAGE].into_iter().enumerate() {
        with_files(1, |env, device| {
            device.rot(at + 40, 1);
            is_whole(env, device);
            let told = problems(env, device);
            assert!(told.len() == 1 && told[0].contains(&format!("copy {number}")), "{told:?}");
            let volume = open(env, device).unwrap();
            assert_eq!(volume.report().damaged_superblocks, [number as u32]);
            write(&volume, FileName::Table(2), b"a change").unwrap();
            assert_eq!(volume.report().damaged_superblocks, [0; 0]);
            assert_eq!(problems(env, device), [""; 0]);
        });
    }
    with_files(2, |env, device| {
        device.rot(40, 1);
        device.rot(END - PAGE + 40, 1);
        let error = open(env, device).unwrap_err().to_string();
        assert!(error.contains("not a Situ disk") && error.contains("situ disk format"), "{error}");
    });
}

#[test]
fn a_device_that_was_cut_is_refused_and_one_that_has_grown_is_not() {
    with_files(3, |env, device| {
        let error = open(env, &device.resized(END - PAGE)).unwrap_err().to_string();
        assert!(error.contains("was cut"), "{error}");
        assert!(problems(env, &device.resized(END - 100 * PAGE))[0].contains("was cut"));
        is_whole(env, &device.resized(END + 100 * PAGE));
    });
}

#[test]
fn another_version_is_named() {
    with_files(4, |env, device| {
        let mut page = device.contents(0..PAGE);
        page[8] = 2;
        let checksum = crc32c::crc32c(&page[..4092]).to_le_bytes();
        page[4092..].copy_from_slice(&checksum);
        device.set_contents(0, &page);
        let error = open(env, device).unwrap_err().to_string();
        assert!(error.contains("version 2") && error.contains("use the Situ that wrote it"), "{error}");
    });
}

/// Where the half in force begins, and how many of its pages are used.
fn in_force(env: &Env, device: &SimDevice) -> (u64, u64) {
    let volume = open(env, device).unwrap();
    let state = volume.shared.lock();
    (state.layout.half_first(state.journal.half) * PAGE, state.journal.next_page)
}

#[test]
fn a_torn_last_frame_is_the_end_and_a_hole_is_rot() {
    with_files(5, |env, device| {
        let (half, pages) = in_force(env, device);
        assert!(pages >= 3, "{pages}");
        let last = device.crash_keep_all();
        last.rot(half + (pages - 1) * PAGE + 70, 1);
        let volume = open(env, &last).unwrap();
        assert!(!volume.list().unwrap().iter().any(|meta| meta.name == FileName::Identity));
        // The next frame takes its place.
        volume.replace(FileName::Identity, b"again").unwrap();
        drop(volume);
        assert_eq!(read(&open(env, &last).unwrap(), FileName::Identity).unwrap(), b"again");

        device.rot(half + (pages - 2) * PAGE + 70, 1);
        let error = open(env, device).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("before those of a later one"), "{error}");
        assert_eq!(problems(env, device).len(), 1);
    });
}

#[test]
fn a_lost_checkpoint_is_made_up_for_by_the_other_half_and_a_rotten_one_is_not() {
    on_a_disk(300, 6, |env, device| {
        let volume = open(env, device).unwrap();
        volume.replace(FileName::Identity, b"0").unwrap();
        volume.replace(FileName::Identity, b"1").unwrap();
        volume.replace(FileName::Identity, b"2").unwrap();
        assert_eq!(volume.report().journal_epoch, 1);
        // The next change is a checkpoint in the other half: lost, torn, or there.
        device.set_faults(FaultPlan::none().with(Rule::new(Fault::LoseWrite).on(&[Operation::WritePages])));
        volume.replace(FileName::Identity, b"3").unwrap();
        assert_eq!(volume.report().journal_epoch, 2);
        drop(volume);
        device.set_faults(FaultPlan::none());
        let volume = open(env, device).unwrap();
        assert_eq!(read(&volume, FileName::Identity).unwrap(), b"2");
        volume.replace(FileName::Identity, b"4").unwrap();
        volume.replace(FileName::Identity, b"5").unwrap();
        assert_eq!(volume.report().journal_epoch, 2);
        drop(volume);
        assert_eq!(read(&open(env, device).unwrap(), FileName::Identity).unwrap(), b"5");
        // Edits came after that checkpoint: it was durable once.
        device.rot(JOURNAL + HALF + 66, 1);
        let error = open(env, device).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("half 1"), "{error}");
    });
}

/// A journal of the disk's earlier life, with higher epochs and in every page that the new one has not written.
#[test]
fn a_stale_journal_of_an_earlier_format_never_looks_current() {
    with_files(7, |env, device| {
        let volume = open(env, device).unwrap();
        (0..40).for_each(|_| volume.replace(FileName::Identity, b"old").unwrap());
        drop(volume);
        let old = device.contents(JOURNAL..JOURNAL + 2 * HALF);
        let other = FormatOptions { id: Some([7; 16]), force: true, ..small() };
        RawVolume::format(device.reached(), env.clone(), &other).unwrap();
        // Even where the format did not clear it.
        device.set_contents(JOURNAL + PAGE, &old[PAGE as usize..]);
        let volume = open(env, device).unwrap();
        assert!(volume.list().unwrap().is_empty());
        write(&volume, FileName::Table(5), b"new").unwrap();
        drop(volume);
        assert_eq!(open(env, device).unwrap().list().unwrap(), [FileMeta { name: FileName::Table(5), bytes: 3 }]);
        assert_eq!(problems(env, device), [""; 0]);
    });
}

#[test]
fn every_bit_of_the_metadata_is_under_a_checksum() {
    with_files(8, |env, device| {
        let (half, pages) = in_force(env, device);
        let mut rng = Rng::new(8);
        for _ in 0..400 {
            let rotten = device.crash_keep_all();
            let (at, bit) = (rng.below(JOURNAL + 2 * HALF), rng.below(8) as u8);
            rotten.rot(at, bit);
            let told = problems(env, &rotten);
            match open(env, &rotten) {
                // What is read is what was written, but for the frame at the end, whose loss nobody can see.
                Ok(volume) => {
                    let is_last = (half + (pages - 1) * PAGE..half + pages * PAGE).contains(&at);
                    assert!(is_last || volume.list().unwrap().len() == 2, "byte {at}");
                    assert!(at >= PAGE || told.len() == 1, "byte {at}: {told:?}");
                }
                Err(error) => {
                    assert!(error.is_corruption(), "{error}");
                    assert_eq!(told, [error.to_string()]);
                }
            }
        }
    });
}

#[test]
fn an_error_of_the_journal_stops_changes_and_not_reads() {
    with_files(9, |env, device| {
        let volume = open(env, device).unwrap();
        let log = volume.create_pages(FileName::Log(1), 4 * PAGE).unwrap();
        let journal = JOURNAL..JOURNAL + 2 * HALF;
        device.set_faults(FaultPlan::none().with(Rule::new(Fault::Io).on(&[Operation::WritePages]).within(journal)));
        let first = write(&volume, FileName::Table(2), b"x").unwrap_err().to_string();
        assert!(first.contains("metadata journal"), "{first}");
        device.set_faults(FaultPlan::none());
        let same = |result: Result<()>| assert_eq!(result.unwrap_err().to_string(), first);
        same(write(&volume, FileName::Table(3), b"x"));
        same(volume.replace(FileName::Identity, b"x"));
        same(volume.remove(FileName::Table(1)));
        same(volume.rename(FileName::Table(1), FileName::Table(9)));
        same(volume.create_pages(FileName::Log(2), PAGE).map(drop));
        same(volume.sync_names());
        same(log.write(0, &Buffer::new(PAGE_BYTES), 1, true));
        same(log.sync());
        assert!(read(&volume, FileName::Table(1)).unwrap() == pattern(1, 20_000));
        assert_eq!(read(&volume, FileName::Identity).unwrap(), b"words");
        assert_eq!(volume.report().failed.as_ref(), Some(&first));
        drop((log, volume));
        is_whole(env, device);
    });
}

/// A flush that fails may have dropped what others wrote; none of them may be told later that all is well.
#[test]
fn a_failed_flush_stops_changes() {
    with_files(10, |env, device| {
        let volume = open(env, device).unwrap();
        let log = volume.create_pages(FileName::Log(1), 4 * PAGE).unwrap();
        log.write(0, &Buffer::new(PAGE_BYTES), 1, false).unwrap();
        device.set_faults(FaultPlan::none().with(Rule::new(Fault::DropDirty).on(&[Operation::Sync]).nth(0)));
        assert!(write(&volume, FileName::Table(2), b"x").is_err());
        assert!(log.sync().is_err() && volume.sync_names().is_err());
        drop((log, volume));
        is_whole(env, device);
    });
}

/// Each I/O of a life fails once: an error, or done all the same; never a panic, and what was acknowledged is there.
#[test]
fn an_error_of_any_single_operation_is_a_value() {
    let life = |env: &Env, device: &SimDevice| -> Result<u32> {
        let volume = open(env, device)?;
        let mut done = 0;
        for number in 10..14 {
            write(&volume, FileName::Table(number), &pattern(number, 70_000))?;
            done = number as u32;
            let log = volume.create_pages(FileName::Log(number), 2 * PAGE)?;
            log.write(0, &Buffer::new(PAGE_BYTES), 1, true)?;
            log.sync()?;
            volume.remove(FileName::Log(number))?;
            volume.sync_names()?;
            volume.replace(FileName::Identity, b"words")?;
        }
        Ok(done)
    };
    let total = std::sync::Mutex::new(0);
    with_files(11, |env, device| {
        let before = device.operations();
        life(env, device).unwrap();
        *total.lock().unwrap() = device.operations() - before;
    });
    let total = total.into_inner().unwrap();
    assert!(total > 40);
    for nth in 0..total {
        with_files(11, |env, device| {
            device.set_faults(FaultPlan::none().with(Rule::new(Fault::Io).nth(nth)));
            let done = life(env, device).unwrap_or(0);
            device.set_faults(FaultPlan::none());
            is_whole(env, device);
            let volume = open(env, device).unwrap();
            for number in 10..=u64::from(done) {
                assert!(read(&volume, FileName::Table(number)).unwrap() == pattern(number, 70_000));
            }
            assert_eq!(problems(env, device), [""; 0]);
            check_room(&volume);
        });
    }
}

#[test]
fn a_device_that_disappears_is_an_error_and_not_an_end() {
    with_files(12, |env, device| {
        let volume = open(env, device).unwrap();
        let reader = volume.open(FileName::Table(1)).unwrap();
        device.set_faults(FaultPlan::none().with(Rule::new(Fault::NotFound)));
        assert!(reader.read_at(0, &mut [0; 20_000]).is_err());
        assert!(write(&volume, FileName::Table(2), b"x").is_err());
        assert!(volume.replace(FileName::Identity, b"x").is_err());
        assert!(open(env, device).is_err());
        assert!(RawVolume::check(device.reached(), env.clone()).is_err());
        device.set_faults(FaultPlan::none());
        is_whole(env, device);
    });
}

/// A device of a system that gives out so many queues and then none: descriptors or memory have run out.
struct Scarce {
    device: SimDevice,
    left: AtomicU32,
}

impl Device for Scarce {
    fn describe(&self) -> String {
        self.device.describe()
    }

    fn lock(&self) -> io::Result<Box<dyn DeviceLock>> {
        self.device.lock()
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn space(&self) -> Space {
        self.device.space()
    }

    fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue>> {
        let take = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        take.map_err(|_| io::Error::from_raw_os_error(24))?;
        self.device.queue(depth)
    }
}

/// The queues that are open already do what others were wanted for. A store under load would else be read-only from the
/// moment that the log's writers are a few more than before.
#[test]
fn a_system_without_further_queues_makes_nothing_fail() {
    for_each_seed(20, 10, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        let device = SimDevice::new(&env, 1200 * PAGE, FaultPlan::none(), seed);
        sim.run(|| {
            format(&env, &device, &small());
            let open = |left: u32| {
                let scarce = Scarce { device: device.clone(), left: AtomicU32::new(left) };
                RawVolume::open(Arc::new(scarce), env.clone(), RawOptions { cache_bytes: 0 })
            };
            // Where there is not one for each purpose, that is told at once, and not by the first write.
            let error = open(2).unwrap_err().to_string();
            assert!(error.contains("open a queue of"), "{error}");
            let volume = Arc::new(open(3).unwrap());
            let log = volume.create_pages(FileName::Log(1), 8 * PAGE).unwrap();
            let jobs: Vec<_> = (0..8_u64)
                .map(|number| {
                    let (volume, log) = (Arc::clone(&volume), Arc::clone(&log));
                    let work = move || {
                        let bytes = pattern(number, 200_000);
                        let mut writer = volume.create(FileName::Table(number), 100_000).unwrap();
                        for piece in bytes.chunks(70_000) {
                            writer.append(piece).unwrap();
                            writer.sync().unwrap();
                            log.write(number, &Buffer::new(PAGE_BYTES), 1, true).unwrap();
                        }
                        writer.finish().unwrap();
                        assert!(read(&volume, FileName::Table(number)).unwrap() == bytes);
                    };
                    env.executor.spawn("caller", Box::new(work)).unwrap()
                })
                .collect();
            jobs.iter().for_each(|job| job.join().unwrap());
            assert!(volume.report().queue_refused.is_some());
            assert_eq!(volume.report().failed, None);
        });
    });
}

#[test]
fn a_device_with_something_at_its_front_or_its_end_is_not_formatted() {
    let refused = |at: u64, magic: &[u8], name: &str| {
        let sim = SimExecutor::new(13);
        let env = sim.env();
        let device = SimDevice::new(&env, 600 * PAGE, FaultPlan::none(), 13);
        device.set_contents(at, magic);
        sim.run(|| {
            let format = |force| {
                let options = FormatOptions { force, ..small() };
                RawVolume::format(device.reached(), env.clone(), &options)
            };
            let before = device.contents(0..600 * PAGE);
            let error = format(false).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("--force"), "{error}");
            assert!(device.contents(0..600 * PAGE) == before);
            format(true).unwrap();
            open(&env, &device).unwrap();
        });
    };
    refused(1080, &[0x53, 0xef], "ext4");
    refused(0, b"XFSB", "XFS");
    refused(0x1_0040, b"_BHRfS_M", "Btrfs");
    refused(510, &[0x55, 0xaa], "partition table");
    refused(512, b"EFI PART", "GPT");
    refused(300_000, b"?", "data at byte 300000");
    refused((1 << 20) - 1, b"?", "data at byte 1048575");
    refused(600 * PAGE - (64 << 10), b"?", &format!("data at byte {}", 600 * PAGE - (64 << 10)));
    refused(600 * PAGE - 512, b"EFI PART", &format!("data at byte {}", 600 * PAGE - 512));
    with_files(14, |env, device| {
        let again = RawVolume::format(device.reached(), env.clone(), &small()).unwrap_err().to_string();
        assert!(again.contains("holds a Situ disk"), "{again}");
        is_whole(env, device);
    });
}

#[test]
fn a_device_that_is_too_small_is_refused() {
    let sim = SimExecutor::new(15);
    let env = sim.env();
    sim.run(|| {
        for pages in [0, 1, 2, 10, 40, 65] {
            let device = SimDevice::new(&env, pages * PAGE, FaultPlan::none(), 15);
            let error = RawVolume::format(device.reached(), env.clone(), &small()).unwrap_err().to_string();
            assert!(error.contains("has no room"), "{error}");
            assert!(open(&env, &device).unwrap_err().to_string().contains("not a Situ disk"));
        }
    });
}

#[test]
fn a_check_names_overlaps_and_data_in_the_clean_log_area() {
    with_files(16, |env, device| {
        let volume = open(env, device).unwrap();
        let (layout, log) = {
            let state = volume.shared.lock();
            (state.layout, state.layout.log)
        };
        drop(volume);
        device.set_contents((log.first + 30) * PAGE + 5, b"?");
        let told = problems(env, device);
        assert!(told.len() == 1 && told[0].contains("the log area holds data"), "{told:?}");
        // A journal that gives a page to two files: sound frames, written by a program that is wrong.
        let mut body = Vec::new();
        for number in [5, 6] {
            let extents = vec![Extent { first: layout.top.first + 100, pages: 2 }];
            let record = catalogue::Record { length: PAGE, place: catalogue::FilePlace::Extents(extents) };
            catalogue::Edit::Put(FileName::Table(number), record).encode(&mut body);
        }
        let volume = open(env, device).unwrap();
        let (half, next, epoch, sequence) = {
            let state = volume.shared.lock();
            let journal = &state.journal;
            (journal.half, journal.next_page, journal.epoch, journal.sequence)
        };
        drop(volume);
        let last = device.contents(layout.half_first(half) * PAGE..(layout.half_first(half) + next) * PAGE);
        let previous = (0..next)
            .filter_map(|page| frame::decode(layout.id, &last[(page * PAGE) as usize..]).ok())
            .map(|(header, _)| header.checksum)
            .next_back()
            .unwrap();
        let (frame, _) = frame::encode(frame::Kind::Edits, layout.id, epoch, sequence + 1, previous, &body);
        device.set_contents((layout.half_first(half) + next) * PAGE, &frame);
        let told = problems(env, device);
        assert!(told[0].contains("000005.table and 000006.table both have page"), "{told:?}");
        let error = open(env, device).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("used twice"), "{error}");
    });
}
