//! Disks that fail, fill up and rot: failure is a value, and damage is named.

use crate::model::{Map, key_bytes, value};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rng, Rule, SimExecutor, SimMemory, SimVolume, for_each_seed};
use situ_storage::{Error, FileName, Volume};
use situ_values::{KnownSegment, Options, Phase, ReadAhead, Trim, ValueLog, Victims, Walked, numbers_from};
use std::sync::Arc;

fn options() -> Options {
    Options {
        segment_bytes: 32 << 10,
        trim: Trim::Full,
        zero_at_percent: 101,
        zero_above_percent: 100,
        ..Options::default()
    }
}

fn in_simulation(seed: u64, test: impl FnOnce(&SimExecutor, SimVolume, Arc<ValueLog>) + Send) {
    let sim = SimExecutor::new(seed);
    sim.run(|| {
        let volume = SimVolume::new(&sim.env(), FaultPlan::none(), seed);
        let log = ValueLog::open(Arc::new(volume.clone()), &sim.env(), options(), numbers_from(1), &[]).unwrap();
        test(&sim, volume, log);
    });
}

/// A writer whose sync failed has no records behind its last good sync, whatever a later read of the file would show.
#[test]
fn a_failed_sync_ends_the_writer_and_keeps_what_was_synced() {
    in_simulation(1, |_, volume, log| {
        let mut writer = log.writer();
        let kept = writer.append(0, b"kept", &[1; 3000]).unwrap();
        writer.sync().unwrap();
        let lost = writer.append(0, b"lost", &[2; 3000]).unwrap();
        volume.set_faults(FaultPlan::none().with(Rule::new(Fault::DropDirty).on(&[Operation::Sync])));
        assert!(writer.sync().is_err());
        volume.set_faults(FaultPlan::none());
        assert!(writer.append(0, b"more", b"").is_err(), "the writer has ended");
        drop(writer);
        assert_eq!(log.segment(1).unwrap().phase, Phase::Abandoned);
        assert!(log.tidy().unwrap());
        assert_eq!(log.segment(1).unwrap().phase, Phase::Sealed);
        assert_eq!(log.segment(1).unwrap().record_bytes, kept.footprint());
        assert_eq!(*log.read(&kept, b"kept").unwrap(), [1; 3000]);
        assert!(log.read(&lost, b"lost").unwrap_err().is_corruption());
        // Nothing of the segment may be missing after a power failure.
        let after = volume.crash(7);
        let known = [KnownSegment { number: 1, record_bytes: kept.footprint(), ..KnownSegment::default() }];
        let env = situ_base::Env::system();
        let log = ValueLog::open(Arc::new(after), &env, options(), numbers_from(9), &known).unwrap();
        let mut walk = log.walk(1).unwrap();
        assert_eq!(walk.next().unwrap().map(|record| record.handle), Some(kept));
        assert!(walk.next().unwrap().is_none());
    });
}

#[test]
fn a_full_disk_refuses_and_the_log_goes_on_when_there_is_room() {
    in_simulation(2, |_, volume, log| {
        let mut map = Map::new(Arc::clone(&log), 2000);
        map.put(&[(1, 0), (2, 0)]).unwrap();
        let full = FaultPlan::none().with(Rule::new(Fault::NoSpace).on(&[Operation::CreatePages]));
        volume.set_faults(full);
        let error = (0..100).find_map(|step| map.put(&[(3, step)]).err()).unwrap();
        assert!(error.is_no_space(), "{error}");
        volume.set_faults(FaultPlan::none());
        map.writer = log.writer();
        map.put(&[(4, 0)]).unwrap();
        [1, 2, 4].iter().for_each(|key| map.check(*key));
    });
}

/// A store on a full disk writes values to be able to give up its log: it needs what it writes, and not a whole segment.
#[test]
fn a_disk_without_room_for_a_whole_segment_gets_short_ones() {
    let sim = SimExecutor::new(12);
    sim.run(|| {
        let volume = SimVolume::new(&sim.env(), FaultPlan::none(), 12);
        let options = Options { segment_bytes: 1 << 20, ..options() };
        let log = ValueLog::open(Arc::new(volume.clone()), &sim.env(), options, numbers_from(1), &[]).unwrap();
        let lengths = || -> Vec<u64> {
            let files = volume.list().unwrap().into_iter();
            files.filter(|file| matches!(file.name, FileName::Values(_))).map(|file| file.bytes).collect()
        };
        volume.set_faults(FaultPlan::none().capacity(512 << 10));
        let mut map = Map::new(Arc::clone(&log), 2000);
        // More than one of them takes.
        (0..120).for_each(|key| map.put(&[(key, 0)]).unwrap());
        // A record that is longer than the shortest of them.
        let mut writer = log.writer();
        let long = writer.append(0, b"long", &[3; 100_000]).unwrap();
        writer.sync().unwrap();
        assert_eq!(*log.read(&long, b"long").unwrap(), [3; 100_000]);
        let found = lengths();
        assert!(
            found.len() > 1 && found.iter().all(|bytes| *bytes <= 256 << 10),
            "half of the room at most: {found:?}"
        );
        assert!(found.is_sorted_by(|before, after| before >= after), "less room, shorter ones: {found:?}");
        let error = writer.append(0, b"too long", &[3; 600_000]).unwrap_err();
        assert!(error.is_no_space(), "{error}");
        volume.set_faults(FaultPlan::none());
        let mut writer = log.writer();
        writer.append(0, b"key", b"value").unwrap();
        assert_eq!(lengths().last(), Some(&(1 << 20)), "whole ones again");
        (0..120).for_each(|key| map.check(key));
    });
}

/// Errors of trimming lose nothing but trimming.
#[test]
fn trimming_that_fails_changes_nothing_that_lives() {
    for_each_seed(1, 10, |seed| {
        in_simulation(seed, |_, volume, log| {
            let mut map = Map::new(log, 2000);
            let mut rng = Rng::new(seed);
            for step in 0..60 {
                map.put(&[(rng.below(20), step), (20 + rng.below(20), step)]).unwrap();
                let faults = [Operation::WritePages, Operation::Discard, Operation::Read, Operation::Open];
                let rule = Rule::new(Fault::Io).on(&faults).files(&[FileKind::Values]).chance(0.3);
                volume.set_faults(FaultPlan::none().with(rule));
                for _ in 0..4 {
                    let _ = map.log.tidy();
                }
                volume.set_faults(FaultPlan::none());
            }
            (0..120).for_each(|key| map.check(key));
        });
    });
}

/// One flipped bit anywhere in a segment: each record reads as it was or its damage is named, and a collection that would lose a
/// live record says so.
#[test]
fn rot_anywhere_is_named_and_never_collected_away() {
    let mut refused = 0;
    for_each_seed(1, 60, |seed| {
        in_simulation(seed, |sim, volume, log| {
            let mut map = Map::new(log, 3000);
            (0..12).for_each(|key| map.put(&[(key, 0)]).unwrap());
            map.known.clear();
            map.known.insert(1, 0);
            let mut rng = Rng::new(seed);
            let sum = map.log.segment(1).unwrap().record_bytes;
            drop(std::mem::replace(&mut map.writer, map.log.writer()));
            map.log.tidy().unwrap();
            let length = volume.contents(FileName::Values(1)).unwrap().len() as u64;
            assert!(volume.rot(FileName::Values(1), rng.below(length), rng.below(8) as u8));
            let known: Vec<KnownSegment> = (1..=map.log.segments().len() as u64)
                .map(|number| KnownSegment {
                    number,
                    record_bytes: u64::from(number == 1) * sum,
                    ..KnownSegment::default()
                })
                .collect();
            let log = ValueLog::open(Arc::new(volume), &sim.env(), options(), numbers_from(99), &known).unwrap();
            let mut damaged = !log.damaged().is_empty();
            for (key, (version, handle)) in &map.live {
                match log.read(handle, &key_bytes(*key)) {
                    Ok(found) => assert_eq!(*found, *value(*key, *version, 3000)),
                    Err(error) => {
                        assert!(error.is_corruption(), "{error}");
                        damaged = true;
                    }
                }
            }
            let mut writer = log.collecting_writer();
            let (live, known) = (&mut map.live, &mut map.known);
            let in_first = live.values().filter(|(_, handle)| handle.segment == 1).count() as u64;
            match log.collect(1, &mut writer, &mut crate::model::Keeper { live, known }) {
                Ok(collected) => assert_eq!(collected.moved, in_first),
                Err(error) => {
                    assert!(damaged || error.is_corruption(), "{error}");
                    assert_ne!(log.segment(1).unwrap().phase, Phase::Collected);
                    log.add_dead(1, log.segment(1).unwrap().record_bytes);
                    assert!(log.victim().is_none_or(|victim| victim.number != 1), "it is tried once");
                    refused += 1;
                }
            }
        });
    });
    assert!(refused > 10, "{refused}");
}

#[test]
fn values_that_are_read_ahead_share_reads_with_their_neighbours_and_no_errors() {
    in_simulation(5, |_, volume, log| {
        let mut writer = log.writer();
        let put = |n: u64| (writer.append(0, &key_bytes(n), &[n as u8; 2000]).unwrap(), key_bytes(n));
        let records: Vec<_> = (0..12).map(put).collect();
        writer.finish().unwrap();
        let is_right = |n: usize, found: situ_values::Result<situ_values::Value>| *found.unwrap() == [n as u8; 2000];
        // The files are open from now on.
        [0, 11].into_iter().for_each(|n: usize| assert!(is_right(n, log.read(&records[n].0, &records[n].1))));
        let mut ahead = ReadAhead::new(&log);
        let before = volume.operations();
        // In any order; 8 was not asked for.
        ahead.begin([10, 3, 1, 2, 0, 4, 5].map(|n: usize| records[n].0));
        for n in [2, 0, 1, 10, 8, 4, 5, 3] {
            assert!(is_right(n, ahead.take(&records[n].0, &records[n].1)), "record {n}");
        }
        assert_eq!(volume.operations() - before, 3, "one of them for six neighbours");
        // The read of the neighbours fails, and then that of one of them.
        let rule = Rule::new(Fault::Io).on(&[Operation::Read]).files(&[FileKind::Values]);
        let middle = u64::from(records[2].0.offset) + 100;
        volume.set_faults(FaultPlan::none().with(rule.within(middle..middle + 1)));
        ahead.begin((0..5).map(|n| records[n].0));
        for (n, (handle, key)) in records.iter().enumerate().take(5) {
            let found = ahead.take(handle, key);
            assert!(if n == 2 { found.is_err() } else { is_right(n, found) }, "record {n}");
        }
        volume.set_faults(FaultPlan::none());
        ahead.begin([records[6].0, records[7].0]);
        assert!(ahead.take(&records[6].0, b"another key").unwrap_err().is_corruption());
        assert!(is_right(7, ahead.take(&records[7].0, &records[7].1)));
    });
}

/// As on ext4 without the mount option `discard`: the drive would not hear of it.
#[test]
fn where_discards_do_not_reach_the_drive_dead_sectors_become_zeros() {
    in_simulation(4, |sim, volume, _| {
        let options = Options { discards: false, ..Options::for_drive(true) };
        let open = ValueLog::open(Arc::new(volume.clone()), &sim.env(), options, numbers_from(50), &[]);
        let log = open.unwrap();
        let mut writer = log.writer();
        let handles: Vec<_> = (0..20).map(|n| writer.append(0, &key_bytes(n), &value(n, 0, 3000)).unwrap()).collect();
        writer.finish().unwrap();
        let segment = handles[0].segment;
        log.died(segment, &handles[..10]).unwrap();
        volume.set_faults(FaultPlan::none().with(Rule::new(Fault::Io).on(&[Operation::Discard])));
        assert!(log.has_trims());
        while log.tidy().unwrap() {}
        assert!(!log.has_trims());
        volume.set_faults(FaultPlan::none());
        assert!(log.counters().zeroed_sector_bytes > 20_000, "{:?}", log.counters());
        let bytes = volume.contents(FileName::Values(segment)).unwrap();
        let range = |n: usize| handles[n].offset as usize..(handles[n].offset + handles[n].bytes) as usize;
        // Shorter ones share a sector with what lives.
        let alone = (0..10).filter(|n| handles[*n].bytes > 1400);
        assert_eq!(alone.filter(|n| bytes[range(*n)].iter().any(|byte| *byte != 0)).count(), 0);
        (10..20)
            .for_each(|n| assert_eq!(*log.read(&handles[n], &key_bytes(n as u64)).unwrap(), value(n as u64, 0, 3000)));
    });
}

/// Of two segments with as much garbage, one cannot be collected. The other one can, and then nothing is due any more.
#[test]
fn a_segment_that_cannot_be_collected_hides_no_other_one() {
    in_simulation(3, |_, _, log| {
        let half_dead = |first: u64| {
            let mut writer = log.writer();
            let keys = first..first + 8;
            let handles: Vec<_> = keys.map(|n| writer.append(0, &key_bytes(n), &value(n, 0, 3000)).unwrap()).collect();
            writer.finish().unwrap();
            let number = handles[0].segment;
            log.add_dead(number, handles[..4].iter().map(|handle| handle.footprint()).sum());
            number
        };
        let (one, other) = (half_dead(10), half_dead(20));
        assert_eq!(log.victim().map(|victim| victim.number), Some(one), "of equals the oldest");
        assert_eq!(log.victim_among(&|number| number != one).map(|victim| victim.number), Some(other));
        log.set_aside(one);
        assert!(log.segment(one).unwrap().is_set_aside);
        assert_eq!(log.victim().map(|victim| victim.number), Some(other));
        log.retire(other);
        // A little garbage beside much of a segment that is stuck.
        let mut writer = log.writer();
        let handles: Vec<_> = (0..20).map(|n| writer.append(0, &key_bytes(n), &value(n, 1, 3000)).unwrap()).collect();
        writer.finish().unwrap();
        log.add_dead(handles[0].segment, handles[0].footprint());
        assert!(log.inflation().adjusted_percent() > 125);
        assert_eq!(log.victim(), None);
    });
}

/// The garbage of a segment that a writer still has is nothing that a collection could give back. It had sealed segments rewritten for
/// one dead record each, without end. So did the rule of the oldest segment.
#[test]
fn a_segment_that_is_nearly_all_alive_is_no_victim() {
    for victims in [Victims::Garbage, Victims::Fifo, Victims::GarbageAndAge] {
        in_simulation(13, |sim, volume, _| {
            let options = Options { victims, segment_bytes: 128 << 10, ..options() };
            let log = ValueLog::open(Arc::new(volume), &sim.env(), options, numbers_from(1), &[]).unwrap();
            let write = |first: u64, dead: usize, seals: bool| {
                let mut writer = log.writer();
                let keys = first..first + 30;
                let handles: Vec<_> = keys.map(|n| writer.append(0, &key_bytes(n), &[1; 3000]).unwrap()).collect();
                log.add_dead(handles[0].segment, handles[..dead].iter().map(|handle| handle.footprint()).sum());
                let kept = if seals { writer.finish().map(|_| None) } else { Ok(Some(writer)) };
                (handles[0].segment, kept.unwrap())
            };
            write(0, 1, true);
            let open = write(100, 25, false);
            assert!(log.inflation().adjusted_percent() > 125);
            assert_eq!(log.victim(), None, "{victims:?}: nobody can collect the open segment");
            let (worthy, _) = write(200, 15, true);
            assert_eq!(log.victim().map(|victim| victim.number), Some(worthy), "{victims:?}");
            assert_eq!(log.victim_among(&|number| number != worthy), None, "{victims:?}");
            drop(open);
        });
    }
}

#[test]
fn wrong_handles_are_refused_and_trim_nothing() {
    in_simulation(4, |_, _, log| {
        let mut writer = log.writer();
        let handle = writer.append(0, b"k", &[1; 500]).unwrap();
        writer.finish().unwrap();
        for wrong in [
            situ_values::Handle { segment: 2, ..handle },
            situ_values::Handle { offset: handle.offset + 4, ..handle },
            situ_values::Handle { bytes: 10_000, ..handle },
        ] {
            let error = log.died(1, &[handle, wrong]).unwrap_err();
            assert!(matches!(error, Error::Invalid(_)), "{error}");
        }
        assert_eq!(log.inflation().dead_bytes, 0);
        assert_eq!(log.dead_ranges_bytes(), 0);
        log.died(99, &[]).unwrap();
    });
}

/// A handle comes from bytes that its owner has stored: its length decides how much memory a read takes.
#[test]
fn the_longest_handle_takes_no_memory_and_a_value_without_memory_is_an_error() {
    const LONG: usize = 20_000;
    in_simulation(4, |sim, _, log| {
        let mut writer = log.writer();
        let handle = writer.append(0, b"k", &[1; LONG]).unwrap();
        writer.finish().unwrap();
        let longest = situ_values::Handle { bytes: u32::MAX - handle.offset - 7, ..handle };
        for wrong in [longest, situ_values::Handle { bytes: u32::MAX, ..handle }] {
            let mut queue = situ_storage::ReadQueue::new(sim.env().executor.event(), 1);
            let (answers, largest) = SimMemory::largest(|| {
                let read = log.read(&wrong, b"k").map(drop);
                [read, log.read_now(&wrong, b"k").map(drop), log.submit(&mut queue, 1, &wrong).map(drop)]
            });
            assert!(answers.iter().all(Result::is_err) && largest < LONG, "{largest} bytes: {answers:?}");
        }
        let refused = SimMemory::refusing(LONG, || log.read(&handle, b"k")).unwrap_err();
        assert!(refused.is_out_of_memory(), "{refused}");
        assert_eq!(*log.read(&handle, b"k").unwrap(), [1; LONG]);
    });
}

/// A segment is missing, and another is not a segment at all: the log opens, and says which.
#[test]
fn lost_segments_are_named_and_the_others_are_read() {
    in_simulation(5, |sim, volume, log| {
        let mut handles = Vec::new();
        for _ in 0..3 {
            let mut writer = log.writer();
            handles.push(writer.append(0, b"k", &[1; 500]).unwrap());
            writer.finish().unwrap();
        }
        drop(log);
        volume.remove(FileName::Values(1)).unwrap();
        volume.set_contents(FileName::Values(2), &[0xff; 40_000]);
        let known = [1, 2, 3].map(|number| KnownSegment { number, ..KnownSegment::default() });
        let log = ValueLog::open(Arc::new(volume), &sim.env(), options(), numbers_from(9), &known).unwrap();
        assert_eq!(log.damaged().iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2]);
        assert!(matches!(log.read(&handles[0], b"k"), Err(Error::NotFound { .. })));
        assert!(log.read(&handles[1], b"k").unwrap_err().is_corruption());
        // What its owner tells of lost records is taken, and trims nothing.
        handles[..2].iter().for_each(|handle| log.died(handle.segment, &[*handle]).unwrap());
        assert_eq!((log.victim(), log.dead_ranges_bytes()), (None, 0));
        assert_eq!(*log.read(&handles[2], b"k").unwrap(), [1; 500]);
        log.remove(1).unwrap();
        log.remove(2).unwrap();
        assert_eq!(log.segments().len(), 1);
    });
}

/// What the walk of a trimmed segment hands out has its value, or the owner knows that it is dead.
#[test]
fn a_log_that_was_opened_again_walks_over_trimmed_records() {
    in_simulation(6, |sim, volume, log| {
        let mut map = Map::new(log, 3000);
        for step in 0..30 {
            let batch: Vec<(u64, u64)> = (0..6).map(|key| (key * 5 % 7 + step % 3, step)).collect();
            batch.iter().for_each(|one| map.put(&[*one]).unwrap());
            while map.log.tidy().unwrap() {}
        }
        let known = map.known();
        let Map { live, writer, log, .. } = map;
        drop((writer, log));
        let log = ValueLog::open(Arc::new(volume), &sim.env(), options(), numbers_from(999), &known).unwrap();
        let (mut found, mut trimmed) = (0, 0);
        for segment in log.segments() {
            let mut walk = log.walk(segment.number).unwrap();
            while let Some(record) = walk.next().unwrap() {
                let is_live = live.values().any(|(_, handle)| *handle == record.handle);
                found += usize::from(is_live);
                assert!(!is_live || Walked::value(&record).is_ok());
            }
            trimmed += walk.trimmed_bytes();
        }
        assert_eq!(found, live.len());
        assert!(trimmed > 0);
    });
}

/// A sealed and trimmed segment with a rotten trailer was taken for an unfinished one. It was sealed anew where its first trimmed
/// record had been, and the new index overwrote live records.
#[test]
fn a_rotten_trailer_hides_no_record() {
    in_simulation(7, |sim, volume, log| {
        let mut writer = log.writer();
        let append =
            |writer: &mut situ_values::ValueWriter, key| writer.append(key, &key_bytes(key), &value(key, 0, 3000));
        let handles: Vec<_> = (0..10).map(|key| append(&mut writer, key).unwrap()).collect();
        writer.finish().unwrap();
        let first: Vec<_> = handles.iter().copied().filter(|handle| handle.segment == 1).collect();
        assert!(first.len() > 5);
        log.died(1, &first[..3]).unwrap();
        while log.tidy().unwrap() {}
        assert!(log.segment(1).unwrap().trimmed_bytes > 0);
        let known: Vec<KnownSegment> = log
            .segments()
            .iter()
            .map(|s| KnownSegment {
                number: s.number,
                record_bytes: s.record_bytes,
                dead_bytes: s.dead_bytes,
                trimmed_bytes: 0,
            })
            .collect();
        drop(log);
        let bytes = volume.contents(FileName::Values(1)).unwrap().len() as u64;
        assert!(volume.rot(FileName::Values(1), bytes - 4096 + 33, 4));
        for is_rotten in [true, false] {
            let opened = ValueLog::open(Arc::new(volume.clone()), &sim.env(), options(), numbers_from(50), &known);
            let log = opened.unwrap();
            assert_eq!(log.damaged().len(), usize::from(is_rotten), "{:?}", log.damaged());
            for (key, handle) in (0..).zip(&handles).skip(3) {
                assert_eq!(*log.read(handle, &key_bytes(key)).unwrap(), *value(key, 0, 3000));
            }
            let mut walk = log.walk(1).unwrap();
            let mut found = Vec::new();
            while let Some(record) = walk.next().unwrap() {
                found.push(record.handle);
            }
            assert!(first[3..].iter().all(|handle| found.contains(handle)), "{found:?}");
        }
    });
}

/// The scan of a trimmed segment with a rotten trailer found its live records only, and all dead bytes were counted among them. So the
/// segment had no live byte, by its sums, and an owner would have removed it. The trailer is sound again at the second opening.
#[test]
fn a_segment_whose_records_were_looked_for_is_not_taken_for_empty() {
    in_simulation(10, |sim, volume, log| {
        let mut writer = log.writer();
        let handles: Vec<_> = (0..6).map(|key| writer.append(key, &key_bytes(key), &[9; 3000]).unwrap()).collect();
        writer.finish().unwrap();
        let (dead, live) = handles.split_at(4);
        log.died(1, dead).unwrap();
        while log.tidy().unwrap() {}
        let before = log.segment(1).unwrap();
        let known = [KnownSegment {
            number: 1,
            record_bytes: before.record_bytes,
            dead_bytes: before.dead_bytes,
            trimmed_bytes: 0,
        }];
        drop(log);
        let length = volume.contents(FileName::Values(1)).unwrap().len() as u64;
        assert!(volume.rot(FileName::Values(1), length - 4096 + 33, 4));
        for _ in 0..2 {
            let opened = ValueLog::open(Arc::new(volume.clone()), &sim.env(), options(), numbers_from(50), &known);
            let log = opened.unwrap();
            let found = log.segment(1).unwrap();
            assert!(found.record_bytes < before.record_bytes, "trimmed records are not found: {found:?}");
            assert_eq!(found.live_bytes(), live.iter().map(|handle| handle.footprint()).sum::<u64>(), "{found:?}");
            assert!(found.sums_are_doubtful && !found.is_incomplete);
            // Whatever the owner says after that, a walk has to show that nothing is alive.
            log.add_dead(1, found.record_bytes);
            assert!(log.segment(1).unwrap().live_bytes() > 0);
            assert_eq!(log.victim().map(|victim| victim.number), Some(1));
        }
    });
}

/// A full disk refuses the index of an abandoned segment. That keeps nothing from being trimmed, and is tried again.
#[test]
fn a_segment_that_a_full_disk_leaves_unsealed_is_sealed_later() {
    in_simulation(11, |_, volume, log| {
        let mut writer = log.writer();
        let dead: Vec<_> = (0..5).map(|key| writer.append(key, &key_bytes(key), &[9; 3000]).unwrap()).collect();
        writer.finish().unwrap();
        let mut writer = log.writer();
        let kept = writer.append(9, &key_bytes(9), &[9; 3000]).unwrap();
        writer.sync().unwrap();
        drop(writer);
        log.died(1, &dead).unwrap();
        let full = Rule::new(Fault::NoSpace).on(&[Operation::WritePages]).files(&[FileKind::Values]);
        volume.set_faults(FaultPlan::none().with(full));
        let error = (0..100).find_map(|_| log.tidy().err()).expect("the disk stays full");
        assert!(error.is_no_space(), "{error}");
        assert!(log.segment(1).unwrap().trimmed_bytes > 10_000, "{:?}", log.segment(1));
        assert_eq!(log.segment(2).unwrap().phase, Phase::Abandoned);
        volume.set_faults(FaultPlan::none());
        while log.tidy().unwrap() {}
        assert_eq!(log.segment(2).unwrap().phase, Phase::Sealed);
        assert_eq!(*log.read(&kept, &key_bytes(9)).unwrap(), [9; 3000]);
    });
}

/// Behind a damaged header, each 24 bytes of a value look like the header of a record with a value of more than a megabyte. Such a value
/// was read for each of them.
#[test]
fn values_full_of_alleged_headers_are_scanned_once() {
    in_simulation(12, |sim, volume, _| {
        let options = Options { segment_bytes: 4 << 20, ..options() };
        let open = |first, known: &[KnownSegment]| {
            ValueLog::open(Arc::new(volume.clone()), &sim.env(), options.clone(), numbers_from(first), known).unwrap()
        };
        let log = open(1, &[]);
        let mut alleged = [7_u8; 24];
        alleged[8..12].copy_from_slice(&(1_u32 << 20 | 1 << 16).to_le_bytes());
        alleged[12..16].copy_from_slice(&4_u32.to_le_bytes());
        let mut writer = log.writer();
        let lost = writer.append(0, &key_bytes(0), &alleged.repeat((1 << 20) / 24)).unwrap();
        let kept = writer.append(1, &key_bytes(1), &vec![9; 2 << 20]).unwrap();
        let record_bytes = writer.sync().unwrap()[0].record_bytes;
        std::mem::forget(writer);
        assert!(volume.rot(FileName::Values(1), u64::from(lost.offset) + 13, 2));
        let before = volume.operations();
        let log = open(50, &[KnownSegment { number: 1, record_bytes, ..KnownSegment::default() }]);
        let operations = volume.operations() - before;
        assert!(operations < 60, "{operations} for 4 MiB, which are read in windows of 1 MiB, twice");
        assert_eq!(log.damaged().len(), 1);
        assert_eq!(*log.read(&kept, &key_bytes(1)).unwrap(), vec![9; 2 << 20]);
    });
}

/// The same with rot in a record of an unfinished segment: only that record is lost, whether the owner says how much there was or not.
#[test]
fn rot_in_an_unfinished_segment_costs_one_record() {
    for_each_seed(1, 2, |seed| {
        in_simulation(seed, |sim, volume, log| {
            let mut writer = log.writer();
            let handles: Vec<_> = (0..5).map(|key| writer.append(key, &key_bytes(key), &[9; 2000]).unwrap()).collect();
            let record_bytes = writer.sync().unwrap()[0].record_bytes;
            std::mem::forget(writer);
            assert!(volume.rot(FileName::Values(1), u64::from(handles[1].offset) + 13, 2));
            let record_bytes = if seed == 1 { record_bytes } else { 0 };
            let known = [KnownSegment { number: 1, record_bytes, ..KnownSegment::default() }];
            let log = ValueLog::open(Arc::new(volume), &sim.env(), options(), numbers_from(50), &known).unwrap();
            assert_eq!(log.damaged().len(), usize::from(seed == 1));
            let mut walk = log.walk(1).unwrap();
            for (key, handle) in (0..).zip(&handles) {
                if key == 1 {
                    assert!(log.read(handle, &key_bytes(key)).unwrap_err().is_corruption());
                    continue;
                }
                assert_eq!(*log.read(handle, &key_bytes(key)).unwrap(), [9; 2000]);
                assert_eq!(walk.next().unwrap().unwrap().handle, *handle);
            }
            assert!(walk.next().unwrap().is_none());
            let mut writer = log.collecting_writer();
            let (live, known) = (&mut Default::default(), &mut Default::default());
            let collected = log.collect(1, &mut writer, &mut crate::model::Keeper { live, known });
            assert_eq!(collected.is_err(), seed == 1, "a segment that misses a record is not collected");
        });
    });
}

#[test]
fn a_rotten_index_is_made_anew_for_a_walk_and_told_of() {
    in_simulation(8, |_, volume, log| {
        let mut writer = log.writer();
        let handles: Vec<_> = (0..8).map(|key| writer.append(key, &key_bytes(key), &[9; 2000]).unwrap()).collect();
        writer.finish().unwrap();
        let bytes = volume.contents(FileName::Values(1)).unwrap().len() as u64;
        assert!(volume.rot(FileName::Values(1), bytes - 2 * 4096 + 3, 1));
        let mut walk = log.walk(1).unwrap();
        for handle in &handles {
            assert_eq!(walk.next().unwrap().unwrap().handle, *handle);
        }
        assert_eq!(log.damaged().len(), 1);
        assert!(log.damaged()[0].1.to_string().contains("index of the segment"));
    });
}

#[test]
fn a_retired_segment_is_no_victim_and_is_read_until_it_is_removed() {
    in_simulation(9, |_, _, log| {
        let mut writer = log.writer();
        let handle = writer.append(0, b"k", &[9; 2000]).unwrap();
        writer.finish().unwrap();
        log.add_dead(1, handle.footprint());
        assert_eq!(log.victim().map(|segment| segment.number), Some(1));
        log.retire(1);
        assert_eq!((log.victim(), log.inflation().dead_bytes), (None, 0));
        assert_eq!(*log.read(&handle, b"k").unwrap(), [9; 2000]);
        log.remove(1).unwrap();
        assert!(matches!(log.read(&handle, b"k"), Err(Error::NotFound { .. })));
    });
}
