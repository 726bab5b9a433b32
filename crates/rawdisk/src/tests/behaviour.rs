//! What files, names and room do when nothing goes wrong.

use super::*;
use std::time::Duration;

fn fill(byte: u8, pages: usize) -> Buffer {
    let mut buffer = Buffer::new(pages * PAGE_BYTES);
    buffer.fill(byte);
    buffer
}

#[test]
fn files_survive_being_opened_again() {
    on_a_disk(300, 1, |env, device| {
        let volume = open(env, device).unwrap();
        write(&volume, FileName::Table(1), &pattern(1, 100_000)).unwrap();
        write(&volume, FileName::Table(2), b"").unwrap();
        volume.replace(FileName::Identity, b"words").unwrap();
        volume.replace(FileName::Manifest(1), &pattern(3, 5000)).unwrap();
        volume.create_pages(FileName::Log(1), 3 * PAGE).unwrap().write(1, &fill(7, 1), 1, true).unwrap();
        let before = volume.list().unwrap();
        drop(volume);
        let volume = open(env, device).unwrap();
        assert_eq!(volume.list().unwrap(), before);
        assert!(read(&volume, FileName::Table(1)).unwrap() == pattern(1, 100_000));
        assert_eq!(read(&volume, FileName::Table(2)).unwrap(), b"");
        assert_eq!(read(&volume, FileName::Identity).unwrap(), b"words");
        assert!(read(&volume, FileName::Manifest(1)).unwrap() == pattern(3, 5000));
        let log = read(&volume, FileName::Log(1)).unwrap();
        assert!(log.iter().enumerate().all(|(at, byte)| *byte == if at / PAGE_BYTES == 1 { 7 } else { 0 }));
        assert_eq!(volume.report().inline_files, 2);
        check_room(&volume);
    });
}

#[test]
fn a_file_takes_a_run_and_gives_back_what_it_does_not_need() {
    on_a_disk(600, 2, |env, device| {
        let volume = open(env, device).unwrap();
        let free = volume.report().top.bytes;
        let mut writer = volume.create(FileName::Table(1), 100 * PAGE).unwrap();
        assert_eq!(volume.report().top.used_bytes, 100 * PAGE);
        assert_eq!(volume.space().logical_used, 100 * PAGE);
        assert_eq!(volume.space().logical_total, free);
        writer.append(&pattern(1, 10_000)).unwrap();
        writer.finish().unwrap();
        let report = volume.report();
        assert_eq!((report.top.used_bytes, report.top.files, report.top.fragmented_files), (3 * PAGE, 1, 0));
        assert_eq!(report.top.longest_free_bytes, free - 3 * PAGE);
        // A file that outgrows what was reserved goes on right behind, here.
        write(&volume, FileName::Table(2), b"x").unwrap();
        let mut writer = volume.create(FileName::Table(3), PAGE).unwrap();
        writer.append(&pattern(3, 500_000)).unwrap();
        writer.finish().unwrap();
        assert!(read(&volume, FileName::Table(3)).unwrap() == pattern(3, 500_000));
        assert_eq!(volume.report().top.fragmented_files, 0);
        check_room(&volume);
    });
}

#[test]
fn without_a_run_of_the_length_a_file_has_several_extents() {
    on_a_disk(300, 3, |env, device| {
        let volume = open(env, device).unwrap();
        let pages = volume.report().top.bytes / PAGE;
        let mut number = 0;
        while write(&volume, FileName::Table(number), &[1; 8 * PAGE_BYTES]).is_ok() {
            number += 1;
        }
        (0..number).step_by(2).for_each(|number| volume.remove(FileName::Table(number)).unwrap());
        let free = (pages - number / 2 * 8) * PAGE;
        let all = pattern(9, free as usize);
        write(&volume, FileName::Table(1000), &all).unwrap();
        assert!(read(&volume, FileName::Table(1000)).unwrap() == all);
        let report = volume.report();
        assert_eq!((report.top.fragmented_files, report.top.used_bytes), (1, report.top.bytes));
        // Now there is really no room; a refused file leaves nothing, and a removal makes room at once.
        let full = volume.create(FileName::Table(1001), PAGE).map(drop).unwrap_err();
        assert!(full.is_no_space(), "{full}");
        assert!(!volume.list().unwrap().iter().any(|meta| meta.name == FileName::Table(1001)));
        volume.remove(FileName::Table(1000)).unwrap();
        write(&volume, FileName::Table(1001), &all).unwrap();
        drop(volume);
        let volume = open(env, device).unwrap();
        assert!(read(&volume, FileName::Table(1001)).unwrap() == all);
        check_room(&volume);
    });
}

#[test]
fn a_writer_that_runs_out_of_space_keeps_what_was_synced() {
    on_a_disk(200, 4, |env, device| {
        let volume = open(env, device).unwrap();
        let mut writer = volume.create(FileName::Table(1), 10 * PAGE).unwrap();
        writer.append(&pattern(1, 5000)).unwrap();
        writer.sync().unwrap();
        let error = writer.append(&vec![1; 4 << 20]).and_then(|()| writer.sync()).unwrap_err();
        assert!(error.is_no_space(), "{error}");
        assert!(writer.append(b"more").unwrap_err().is_no_space());
        drop(writer);
        assert!(read(&volume, FileName::Table(1)).unwrap() == pattern(1, 5000));
        volume.sync_names().unwrap();
        check_room(&volume);
    });
}

#[test]
fn a_dropped_writer_gives_its_room_back_and_leaves_the_name_to_its_owner() {
    on_a_disk(300, 5, |env, device| {
        let volume = open(env, device).unwrap();
        let mut writer = volume.create(FileName::Table(1), 50 * PAGE).unwrap();
        writer.append(&pattern(1, 100_000)).unwrap();
        drop(writer);
        assert_eq!(volume.report().top.used_bytes, 0);
        assert!(volume.create(FileName::Table(1), 0).is_err());
        assert_eq!(volume.list().unwrap(), [FileMeta { name: FileName::Table(1), bytes: 0 }]);
        volume.remove(FileName::Table(1)).unwrap();
        assert!(matches!(volume.remove(FileName::Table(1)), Err(Error::NotFound { .. })));
        volume.create(FileName::Table(1), 0).unwrap().finish().unwrap();
        check_room(&volume);
    });
}

#[test]
fn an_open_file_keeps_its_pages_when_its_name_goes() {
    on_a_disk(300, 6, |env, device| {
        let volume = open(env, device).unwrap();
        write(&volume, FileName::Table(1), &pattern(1, 50_000)).unwrap();
        write(&volume, FileName::Table(2), &pattern(2, 50_000)).unwrap();
        let (removed, replaced) = (volume.open(FileName::Table(1)).unwrap(), volume.open(FileName::Table(2)).unwrap());
        let log = volume.create_pages(FileName::Log(1), 4 * PAGE).unwrap();
        volume.remove(FileName::Table(1)).unwrap();
        volume.remove(FileName::Log(1)).unwrap();
        write(&volume, FileName::Table(3), &pattern(3, 50_000)).unwrap();
        volume.rename(FileName::Table(3), FileName::Table(2)).unwrap();
        volume.sync_names().unwrap();
        for number in 10..16 {
            write(&volume, FileName::Table(number), &pattern(number, 50_000)).unwrap();
        }
        log.write(0, &fill(1, 4), 4, true).unwrap();
        volume.create_pages(FileName::Log(2), 4 * PAGE).unwrap().write(0, &fill(2, 4), 4, true).unwrap();
        for (reader, seed) in [(removed, 1), (replaced, 2)] {
            let mut bytes = vec![0; 50_000];
            reader.read_at(0, &mut bytes).unwrap();
            assert!(bytes == pattern(seed, 50_000));
        }
        let mut page = vec![0; PAGE_BYTES];
        log.read_at(0, &mut page).unwrap();
        assert!(page.iter().all(|byte| *byte == 1));
        assert!(read(&volume, FileName::Table(2)).unwrap() == pattern(3, 50_000));
        drop(log);
        volume.sync_names().unwrap();
        check_room(&volume);
    });
}

/// SpanDB wraps over live pages of its log when the area is full.
#[test]
fn a_full_log_area_refuses_and_never_wraps_over_live_pages() {
    on_a_disk(300, 7, |env, device| {
        let volume = open(env, device).unwrap();
        let logs: Vec<_> = (1..=4).map(|n| volume.create_pages(FileName::Log(n), 10 * PAGE).unwrap()).collect();
        for (log, byte) in logs.iter().zip(1..) {
            log.write(0, &fill(byte, 10), 10, true).unwrap();
        }
        let full = volume.create_pages(FileName::Log(5), PAGE).map(drop).unwrap_err();
        assert!(full.is_no_space(), "{full}");
        // A table does not go there, and a log not among the tables.
        write(&volume, FileName::Table(6), &[9; 3 * PAGE_BYTES]).unwrap();
        for (log, expected) in logs.iter().zip(1..) {
            let mut bytes = vec![0; 10 * PAGE_BYTES];
            log.read_at(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == expected));
        }
        drop(logs);
        volume.remove(FileName::Log(2)).unwrap();
        let again = volume.create_pages(FileName::Log(5), 10 * PAGE).unwrap();
        let mut bytes = vec![1; 10 * PAGE_BYTES];
        again.read_at(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0), "a made page file holds pages of another");
    });
}

/// In SpanDB, pages of an earlier life can look current after a restart. A recycled file keeps its pages, and a log
/// tells them by their file number; a *made* file must not show any, for another store may have used the same numbers.
#[test]
fn a_made_page_file_shows_nothing_of_an_earlier_life() {
    on_a_disk(300, 8, |env, device| {
        let volume = open(env, device).unwrap();
        volume.create_pages(FileName::Log(1), 8 * PAGE).unwrap().write(0, &fill(1, 8), 8, true).unwrap();
        volume.rename(FileName::Log(1), FileName::Spare(1)).unwrap();
        volume.rename(FileName::Spare(1), FileName::Log(2)).unwrap();
        volume.sync_names().unwrap();
        assert!(read(&volume, FileName::Log(2)).unwrap().iter().all(|byte| *byte == 1));
        volume.remove(FileName::Log(2)).unwrap();
        volume.sync_names().unwrap();
        drop(volume);
        let volume = open(env, device).unwrap();
        let log = volume.create_pages(FileName::Log(1), 12 * PAGE).unwrap();
        for image in 0..10 {
            let after = open(env, &device.crash(image)).unwrap();
            assert!(read(&after, FileName::Log(1)).unwrap().iter().all(|byte| *byte == 0));
        }
        drop((log, volume));
        // The same for a whole life of the disk.
        let other = FormatOptions { force: true, ..small() };
        RawVolume::format(device.reached(), env.clone(), &other).unwrap();
        let volume = open(env, device).unwrap();
        assert_eq!((volume.list().unwrap().len(), volume.report().generation), (0, 2));
        volume.create_pages(FileName::Log(1), 40 * PAGE).unwrap();
        assert!(read(&volume, FileName::Log(1)).unwrap().iter().all(|byte| *byte == 0));
    });
}

#[test]
fn the_metadata_has_no_limit_but_the_device() {
    on_a_disk(4000, 9, |env, device| {
        let volume = open(env, device).unwrap();
        // A half of the journal has 4 pages; this catalogue has some 150.
        for number in 0..700 {
            volume.replace(FileName::Temporary(number), &pattern(number, 900)).unwrap();
        }
        let report = volume.report();
        assert!(report.catalogue_bytes > 600_000 && report.checkpoint_bytes > 600_000, "{report:?}");
        check_room(&volume);
        drop(volume);
        let volume = open(env, device).unwrap();
        assert!((0..700).all(|number| read(&volume, FileName::Temporary(number)).unwrap() == pattern(number, 900)));
        // The room for the next checkpoint is set apart again, and given back when it is not needed.
        (0..690).for_each(|number| volume.remove(FileName::Temporary(number)).unwrap());
        for _ in 0..10 {
            volume.replace(FileName::Identity, b"x").unwrap();
        }
        assert!(volume.report().catalogue_bytes < 20_000);
        check_room(&volume);
        assert_eq!(RawVolume::check(device.reached(), env.clone()).unwrap().problems, [""; 0]);
    });
}

/// With room for nothing else, files can still be removed, although each half of the journal is full in no time.
#[test]
fn a_full_disk_with_a_long_catalogue_can_still_remove() {
    on_a_disk(700, 10, |env, device| {
        let volume = open(env, device).unwrap();
        let mut number = 0;
        while volume.replace(FileName::Temporary(number), &pattern(number, 1000)).is_ok() {
            number += 1;
            let _ = write(&volume, FileName::Table(number), &[1; PAGE_BYTES]);
        }
        assert!(volume.report().failed.is_none());
        for gone in 0..number {
            volume.remove(FileName::Temporary(gone)).unwrap();
            volume.sync_names().unwrap();
        }
        write(&volume, FileName::Table(100_000), &[1; PAGE_BYTES]).unwrap();
        drop(volume);
        let volume = open(env, device).unwrap();
        assert!(volume.list().unwrap().iter().all(|meta| matches!(meta.name, FileName::Table(_))));
        check_room(&volume);
    });
}

#[test]
fn concurrent_commits_share_writes() {
    on_a_disk(2000, 11, |env, device| {
        let volume = Arc::new(open(env, device).unwrap());
        let jobs: Vec<_> = (0..8)
            .map(|thread| {
                let volume = Arc::clone(&volume);
                let work = move || {
                    (0..20).for_each(|n| volume.replace(FileName::Temporary(thread * 100 + n), b"small").unwrap());
                };
                env.executor.spawn("writer", Box::new(work)).unwrap()
            })
            .collect();
        jobs.into_iter().for_each(|job| job.join().unwrap());
        let frames = volume.report().journal_sequence;
        assert!(frames < 120, "{frames} frames for 160 changes");
        assert_eq!(volume.list().unwrap().len(), 160);
    });
}

#[test]
fn flushes_are_sent_only_to_a_volatile_cache() {
    for volatile in [true, false] {
        let sim = SimExecutor::new(12);
        let env = sim.env();
        let geometry = SimDevice::new(&env, 0, FaultPlan::none(), 0).geometry();
        let geometry = situ_device::Geometry { volatile_write_cache: volatile, ..geometry };
        let device = SimDevice::with_geometry(&env, 300 * PAGE, geometry, FaultPlan::none(), 12);
        sim.run(|| {
            format(&env, &device, &small());
            let no_flush = FaultPlan::none().with(Rule::new(Fault::Io).on(&[Operation::Sync]));
            device.set_faults(no_flush);
            let Ok(volume) = open(&env, &device) else { return assert!(volatile) };
            let written = write(&volume, FileName::Table(1), b"x").and_then(|()| {
                let log = volume.create_pages(FileName::Log(1), PAGE)?;
                log.write(0, &fill(1, 1), 1, false)?;
                log.sync()
            });
            assert_eq!(written.is_err(), volatile);
        });
    }
}

#[test]
fn tables_go_in_small_pieces_while_the_log_is_busy() {
    on_a_disk(2000, 13, |env, device| {
        let volume = open(env, device).unwrap();
        let log = volume.create_pages(FileName::Log(1), 4 * PAGE).unwrap();
        let longest = |volume: &RawVolume, number| {
            let before = device.operations();
            write(volume, FileName::Table(number), &[1; 1 << 20]).unwrap();
            device.operations() - before
        };
        env.clock.sleep(Duration::from_millis(5));
        assert_eq!(longest(&volume, 1), 1 + 1 + 1, "one piece, a flush, a frame");
        log.write(0, &fill(1, 1), 1, true).unwrap();
        assert_eq!(longest(&volume, 2), 16 + 1 + 1);
        env.clock.sleep(Duration::from_millis(5));
        assert_eq!(longest(&volume, 3), 3);
        // A write that need not be durable does not make it busy.
        log.write(0, &fill(1, 1), 1, false).unwrap();
        assert_eq!(longest(&volume, 4), 3);
    });
}

#[test]
fn what_was_just_written_is_read_from_memory() {
    on_a_disk(2000, 14, |env, device| {
        let volume = open(env, device).unwrap();
        write(&volume, FileName::Table(1), &pattern(1, 300_000)).unwrap();
        let before = device.operations();
        assert!(read(&volume, FileName::Table(1)).unwrap() == pattern(1, 300_000));
        assert_eq!(device.operations(), before);
        let usage = volume.report().cache;
        assert_eq!((usage.units, usage.hits, usage.misses), (5, 5, 0));
        assert!(usage.bytes >= 300_000);
        // A table that is gone takes no memory.
        volume.remove(FileName::Table(1)).unwrap();
        volume.sync_names().unwrap();
        assert_eq!(volume.report().cache.bytes, 0);
        // More than the cache holds is read all the same; who reads on has the unit read whole.
        write(&volume, FileName::Table(2), &pattern(2, 2_000_000)).unwrap();
        assert!(read(&volume, FileName::Table(2)).unwrap() == pattern(2, 2_000_000));
        assert!(volume.report().cache.bytes <= 1 << 20);
        drop(volume);
        let volume = open(env, device).unwrap();
        let _lock = volume.lock().unwrap();
        let reader = volume.open(FileName::Table(2)).unwrap();
        let reads = |from: u64, step: u64, count: u64| {
            let before = device.operations();
            for offset in (0..count).map(|at| from + at * step) {
                let mut some = [0; 100];
                reader.read_at(offset, &mut some).unwrap();
                assert!(some == pattern(2, 2_000_000)[offset as usize..][..100]);
            }
            device.operations() - before
        };
        assert_eq!((reads(200_000, 300, 10), reads(200_000, 300, 10)), (10, 10), "at random, as it were");
        assert_eq!((reads(200_000, 100, 2), reads(200_000, 100, 100)), (2, 0));
        // Across units, and up to the end.
        let mut most = vec![0; 1_700_000];
        reader.read_at(300_000, &mut most).unwrap();
        assert!(most == pattern(2, 2_000_000)[300_000..]);
    });
}

/// What is in memory, and on a disk that answers as soon as another thread would, short reads.
#[test]
fn a_quick_disk_is_read_at_once_and_a_slow_one_is_not() {
    let us = Duration::from_micros;
    for (latency, quick) in [(us(10), true), (us(100), false)] {
        let sim = SimExecutor::new(15);
        let env = sim.env();
        let device = SimDevice::new(&env, 2000 * PAGE, FaultPlan::none().latency(latency..latency), 15);
        sim.run(|| {
            format(&env, &device, &small());
            let volume = open(&env, &device).unwrap();
            let content = pattern(3, 2_000_000);
            write(&volume, FileName::Table(1), &content).unwrap();
            let reader = volume.open(FileName::Table(1)).unwrap();
            let mut some = [0; 1000];
            // The end of it was written last.
            assert!(reader.read_now(1_999_000, &mut some).unwrap() && some == content[1_999_000..]);
            assert!(!reader.read_now(5000, &mut some).unwrap(), "nobody knows yet");
            (0..100).for_each(|at| reader.read_at(300_000 - at * 3000, &mut some).unwrap());
            some = [0; 1000];
            let before = device.operations();
            assert_eq!(reader.read_now(5000, &mut some).unwrap(), quick);
            assert_eq!((some == content[5000..6000], device.operations() - before), (quick, u64::from(quick)));
            assert!(!reader.read_now(5000, &mut [0; 17 << 10]).unwrap(), "it is long");
            assert!(reader.read_now(1_999_500, &mut some).is_err(), "it ends before");
        });
    }
}

/// A log area of an eighth of a small device had no room for the file in use and the next one, so that every second log
/// file began at home.
#[test]
fn a_default_log_area_has_room_for_the_log_of_a_default_store() {
    let mib = |mib: u64| (mib << 20) / PAGE;
    let log_mib = |device_mib| layout::default_log_pages(mib(device_mib)) / mib(1);
    let sizes = [64, 400, 800, 1 << 10, 1600, 2 << 10, 20 << 10, 64 << 10, 1 << 20];
    assert_eq!(sizes.map(log_mib), [16, 100, 200, 256, 400, 512, 2560, 8192, 8192]);
    let layout = layout::Superblock::plan(DiskId(ID), 1, 1 << 30, None, None, 0).unwrap();
    assert_eq!(layout.log.pages, mib(256));
}

/// Space overhead of the format and of whole pages, below a hundredth for tables of 2 MiB on a gibibyte.
#[test]
fn the_overhead_is_below_a_hundredth() {
    for bytes in [64 << 20, 1 << 30, 20 << 30, 400u64 << 30] {
        let layout = layout::Superblock::plan(DiskId(ID), 1, bytes, None, None, 0).unwrap();
        let format_bytes = bytes - (layout.log.pages + layout.top.pages) * PAGE;
        let tables = layout.top.pages * PAGE / (2 << 20);
        // Half a page lost at the end of each, and its entry in two checkpoints.
        let tables_bytes = tables * (PAGE / 2 + 2 * catalogue::FILE_BYTES_TYPICAL);
        let share = (format_bytes + tables_bytes) as f64 / bytes as f64;
        assert!(share < 0.01, "{share} of {bytes}");
    }
    // And as it comes out on a real, small one.
    let sim = SimExecutor::new(15);
    let env = sim.env();
    let device = SimDevice::new(&env, 48 << 20, FaultPlan::none(), 15);
    sim.run(|| {
        format(&env, &device, &FormatOptions { log_bytes: Some(1 << 20), ..FormatOptions::default() });
        let volume = open(&env, &device).unwrap();
        let (mut number, mut written) = (0u64, 0u64);
        while write(&volume, FileName::Table(number), &vec![1; (2 << 20) - 1000 * number as usize]).is_ok() {
            written += (2 << 20) - 1000 * number;
            number += 1;
        }
        let report = volume.report();
        assert_eq!((report.top.files, report.top.file_bytes), (number, written));
        let lost = report.top_overhead_bytes();
        assert_eq!(lost, report.overhead_bytes() + report.top.used_bytes - written);
        assert!((lost as f64) < 0.01 * report.device_bytes as f64, "{lost} bytes are lost: {report:?}");
    });
}

#[test]
fn the_device_is_told_of_removed_files_by_who_tidies_and_nobody_else_waits_for_it() {
    on_a_disk(300, 16, |env, device| {
        let volume = open(env, device).unwrap();
        write(&volume, FileName::Table(1), &[1; 40 * PAGE_BYTES]).unwrap();
        write(&volume, FileName::Table(2), &[2; 40 * PAGE_BYTES]).unwrap();
        let reader = volume.open(FileName::Table(1)).unwrap();
        volume.remove(FileName::Table(1)).unwrap();
        volume.remove(FileName::Table(2)).unwrap();
        let before = device.operations();
        volume.sync_names().unwrap();
        // A frame.
        assert_eq!(device.operations() - before, 1);
        // One discard: the other file is open.
        assert!(!volume.tidy());
        assert_eq!(device.operations() - before, 2);
        drop(reader);
        volume.sync_names().unwrap();
        assert!(!volume.tidy() && !volume.tidy());
        assert_eq!(device.operations() - before, 3);
        // A device that cannot is not asked again, and the report says so.
        device.set_faults(FaultPlan::none().with(Rule::new(Fault::Io).on(&[Operation::Discard])));
        for number in 3..6 {
            write(&volume, FileName::Table(number), &[1; 40 * PAGE_BYTES]).unwrap();
            volume.remove(FileName::Table(number)).unwrap();
            volume.sync_names().unwrap();
            assert!(!volume.tidy());
        }
        assert!(volume.report().discard_failed.is_some());
        check_room(&volume);
    });
}

#[test]
fn the_lock_is_the_device_s_and_shows_what_others_did() {
    on_a_disk(300, 17, |env, device| {
        let (one, other) = (open(env, device).unwrap(), open(env, device).unwrap());
        let lock = one.lock().unwrap();
        assert!(matches!(other.lock(), Err(Error::Locked { .. })));
        let formatting = RawVolume::format(device.reached(), env.clone(), &small());
        assert!(matches!(formatting, Err(Error::Locked { .. })));
        write(&one, FileName::Table(1), b"first").unwrap();
        drop(lock);
        let lock = other.lock().unwrap();
        assert_eq!(read(&other, FileName::Table(1)).unwrap(), b"first");
        write(&other, FileName::Table(2), b"second").unwrap();
        drop(lock);
        // Nor is anything taken for current because this one wrote last time: what came after it is kept.
        let lock = one.lock().unwrap();
        assert_eq!(read(&one, FileName::Table(2)).unwrap(), b"second");
        write(&one, FileName::Table(3), b"third").unwrap();
        drop(lock);
        let names: Vec<FileName> = open(env, device).unwrap().list().unwrap().iter().map(|meta| meta.name).collect();
        assert_eq!(names, [1, 2, 3].map(FileName::Table));
        // What was removed and not yet made durable goes the same way, unless somebody still reads it.
        let reader = one.open(FileName::Table(3)).unwrap();
        let lock = one.lock().unwrap();
        let log = one.create_pages(FileName::Log(1), PAGE).unwrap();
        one.remove(FileName::Table(3)).unwrap();
        drop(lock);
        // Without the lock nothing is changed any more, by nobody who had it; what is there is read.
        let refused = |result: Result<()>| {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("was given back"), "{error}");
        };
        let before = device.changes();
        refused(write(&one, FileName::Table(9), b"x"));
        refused(one.replace(FileName::Identity, b"x"));
        refused(one.create_pages(FileName::Log(2), PAGE).map(drop));
        refused(one.rename(FileName::Table(1), FileName::Table(9)));
        refused(one.remove(FileName::Table(1)));
        refused(one.sync_names());
        refused(log.write(0, &fill(1, 1), 1, true));
        assert_eq!(device.changes(), before);
        drop(log);
        let lock = other.lock().unwrap();
        write(&other, FileName::Table(4), b"fourth").unwrap();
        drop(lock);
        assert_eq!(read(&one, FileName::Table(4)).unwrap(), b"fourth");
        let error = one.lock().map(drop).unwrap_err();
        assert!(error.to_string().contains("open it again"), "{error}");
        drop(reader);
        let lock = one.lock().unwrap();
        assert_eq!(read(&one, FileName::Table(4)).unwrap(), b"fourth");
        assert_eq!(read(&one, FileName::Table(3)).unwrap(), b"third");
        check_room(&one);
        drop(lock);
        // Handles into what has changed underneath are not carried over in silence.
        let third = open(env, device).unwrap();
        let reader = third.open(FileName::Table(1)).unwrap();
        let lock = other.lock().unwrap();
        other.remove(FileName::Table(1)).unwrap();
        other.sync_names().unwrap();
        drop(lock);
        let error = third.lock().map(drop).unwrap_err();
        assert!(error.to_string().contains("open it again"), "{error}");
        drop(reader);
        let _lock = third.lock().unwrap();
        assert!(matches!(third.open(FileName::Table(1)), Err(Error::NotFound { .. })));
    });
}

/// The catalogue grows by one file more than anybody could foresee, and is written all the same.
#[test]
fn a_file_in_very_many_pieces_can_be_published() {
    on_a_disk(3000, 18, |env, device| {
        let volume = open(env, device).unwrap();
        let mut number = 0;
        while write(&volume, FileName::Table(number), &[1; PAGE_BYTES]).is_ok() {
            number += 1;
        }
        (0..number).step_by(2).for_each(|number| volume.remove(FileName::Table(number)).unwrap());
        volume.sync_names().unwrap();
        drop(volume);
        let volume = open(env, device).unwrap();
        let pieces = number as usize / 2 - 100;
        let all = pattern(5, pieces * PAGE_BYTES);
        write(&volume, FileName::Table(100_000), &all).unwrap();
        drop(volume);
        let volume = open(env, device).unwrap();
        assert!(volume.report().top.fragmented_files == 1 && read(&volume, FileName::Table(100_000)).unwrap() == all);
        // Short again: the journal is written in one piece, and the room that was set apart is given up in time.
        (0..number).skip(1).step_by(2).for_each(|number| volume.remove(FileName::Table(number)).unwrap());
        volume.sync_names().unwrap();
        check_room(&volume);
    });
}
