use super::*;
use crate::extensions::placement_of;
use crate::maker::disks_of;
use crate::{CAPACITY, TieredBuilder, TieredRepair, TieredStore, repair_volumes};
use situ_base::Env;
use situ_engine::places::{Choice, NewTable};
use situ_engine::{Options, RepairOptions, Store, StoreBuilder};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rule, SimExecutor, SimVolume};
use std::sync::Arc;

struct World {
    executor: SimExecutor,
    home: SimVolume,
    fast: SimVolume,
}

fn world(seed: u64) -> World {
    let executor = SimExecutor::new(seed);
    let volume = |place| SimVolume::named(&executor.env(), place, FaultPlan::none(), seed);
    World { home: volume("home"), fast: volume("fast"), executor }
}

impl World {
    fn open(&self) -> Store {
        let env: Env = self.executor.env();
        let builder = StoreBuilder::new(Options::default()).env(env);
        builder.open_volumes(Arc::new(self.home.clone()), Some(Arc::new(self.fast.clone()))).unwrap()
    }
}

fn tables(volume: &SimVolume) -> usize {
    volume.list().unwrap().iter().filter(|file| matches!(file.name, FileName::Table(_))).count()
}

/// A merge of tables that were read often began before the drain and asked for its next table after it. That table went
/// to the disk that the store had let go of, and the manifest named it.
#[test]
fn a_hot_job_puts_no_table_on_a_disk_that_is_drained() {
    let world = world(1);
    world.executor.run(|| {
        let store = world.open();
        store.put(b"key", b"value").unwrap();
        let (places, volumes) = (store.places(), store.volumes());
        let new_number = || placement_of(&store).unwrap().store.new_number();
        let hot = NewTable { level: 6, bytes_max: 1000, bytes_outstanding: 0, is_hot: true, choice: Choice::ByRules };
        assert_eq!(places.for_table(&hot), FAST, "it is hot");
        let first = new_number();
        volumes.begin_table(FAST, first, 1000).unwrap().unwrap().finish().unwrap();
        assert_eq!(tables(&world.fast), 1);
        volumes.volume().remove(FileName::Table(first)).unwrap();
        store.drain_fast_disk().unwrap();
        assert_eq!(places.for_table(&hot), CAPACITY);
        for choice in [Choice::AnyRoom, Choice::Home] {
            assert_eq!(places.for_table(&NewTable { choice, ..hot }), CAPACITY);
        }
        assert!(volumes.begin_table(FAST, new_number(), 1000).unwrap().is_none());
        assert!(volumes.reserve_table(FAST, new_number()).is_none());
        assert_eq!((tables(&world.fast), tables(&world.home)), (0, 1));
        store.close().unwrap();
    });
}

/// Whoever had asked for a place on the fast disk before the drain, and is slow, is waited for.
#[test]
fn a_disk_on_which_a_file_is_about_to_begin_is_not_drained() {
    let slow = |operation, kind| {
        let rule = Rule::new(Fault::Delay(Duration::from_secs(5))).on(&[operation]).files(&[kind]);
        FaultPlan::none().with(rule)
    };
    for (operation, kind) in [(Operation::Create, FileKind::Table), (Operation::CreatePages, FileKind::Log)] {
        let world = world(2);
        world.executor.run(|| {
            let store = world.open();
            store.put(b"key", b"value").unwrap();
            let disks = Arc::clone(disks_of(&store));
            world.fast.set_faults(slow(operation, kind));
            let beginner = world.executor.env().executor.spawn(
                "beginner",
                Box::new({
                    let number = placement_of(&store).unwrap().store.new_number();
                    let disks = Arc::clone(&disks);
                    move || {
                        if kind == FileKind::Table {
                            disks.create_table(FAST, number, 100).unwrap().unwrap().finish().unwrap();
                        } else {
                            disks.create_pages(FileName::Log(number), 64 << 10).unwrap();
                        }
                        // It is nobody's, and would be waited for without end.
                        assert!(
                            disks
                                .numbered(FAST)
                                .unwrap()
                                .list()
                                .unwrap()
                                .iter()
                                .any(|file| file.name.number() == Some(number))
                        );
                        let name = if kind == FileKind::Table { FileName::Table } else { FileName::Log };
                        disks.remove(name(number)).unwrap();
                    }
                }),
            );
            world.executor.env().clock.sleep(Duration::from_secs(1));
            let begun = world.executor.env().clock.now();
            store.drain_fast_disk().unwrap();
            assert!(world.executor.env().clock.now() - begun >= Duration::from_secs(3), "{operation:?}");
            beginner.unwrap().join().unwrap();
            assert!(disks.create_table(FAST, 1 << 30, 100).unwrap().is_none());
            disks.create_pages(FileName::Log(1 << 30), 64 << 10).unwrap();
            disks.remove(FileName::Log(1 << 30)).unwrap();
            assert!(world.fast.list().unwrap().iter().all(|file| file.name == FileName::Lock));
            store.close().unwrap();
        });
    }
}

/// What is on a disk that a store has let go of may be all there is of it: adding the disk again deleted it.
#[test]
fn a_disk_with_files_of_the_store_is_not_added_again() {
    let world = world(3);
    world.executor.run(|| {
        let store = world.open();
        store.put(b"key", b"value").unwrap();
        store.flush().unwrap();
        disks_of(&store).let_go_of_fast().unwrap();
        store.close().unwrap();
        let before = world.fast.list().unwrap();
        let builder = StoreBuilder::new(Options::default()).env(world.executor.env());
        let opened = builder.open_volumes(Arc::new(world.home.clone()), Some(Arc::new(world.fast.clone())));
        let text = opened.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains("has files of it (") && text.contains("is copied into the home"), "{text}");
        assert_eq!(world.fast.list().unwrap().len(), before.len());
        assert_eq!(tables(&world.fast), 1);
    });
}

/// Such a file was tried again ten times a second without end, and only the listener heard of it.
#[test]
fn promise_7_a_drain_ends_when_a_file_cannot_be_removed() {
    for kind in [FileKind::Table, FileKind::Log] {
        let world = world(4);
        world.executor.run(|| {
            let store = world.open();
            store.put(b"key", b"value").unwrap();
            store.flush().unwrap();
            store.put(b"other key", b"value").unwrap();
            let rule = Rule::new(Fault::PermissionDenied).on(&[Operation::Remove, Operation::Rename]).files(&[kind]);
            world.fast.set_faults(FaultPlan::none().with(rule));
            let error = store.drain_fast_disk().unwrap_err();
            let suffix = if kind == FileKind::Table { ".table" } else { ".log" };
            let text = error.to_string();
            assert!(text.contains("fast/0") && text.contains(suffix), "{kind:?}: {text}");
            assert!(store.properties().failure.is_none() && store.placement().is_some());
            world.fast.set_faults(FaultPlan::none());
            store.drain_fast_disk().unwrap();
            for key in [&b"key"[..], b"other key"] {
                assert_eq!(store.get(key).unwrap().as_deref(), Some(&b"value"[..]));
            }
            store.check().unwrap();
            store.close().unwrap();
            assert!(world.fast.list().unwrap().iter().all(|file| file.name == FileName::Lock));
        });
    }
}

/// One error of reading was enough: the file was written at home with zeros in place of what the disk had not given,
/// the original was removed, and the drain said that all was well.
#[test]
fn promise_7_a_file_set_aside_that_cannot_be_read_stays_and_ends_the_drain() {
    for answers_again in [true, false] {
        let world = world(5);
        world.executor.run(|| {
            let store = world.open();
            store.put(b"key", b"value").unwrap();
            store.flush().unwrap();
            store.close().unwrap();
            let (name, contents) = (FileName::Damaged(900), [7; 10_000]);
            world.fast.set_contents(name, &contents);
            let store = world.open();
            store.put(b"other key", b"value").unwrap();
            let rule = Rule::new(Fault::Io).on(&[Operation::Read]).files(&[FileKind::Other]);
            world.fast.set_faults(FaultPlan::none().with(rule));
            let text = store.drain_fast_disk().unwrap_err().to_string();
            for part in ["fast/000900.damaged", "bytes 0 to 10000 of 10000", "--without-fast-disk"] {
                assert!(text.contains(part), "{part:?} is not in {text}");
            }
            assert_eq!(world.fast.contents(name).as_deref(), Some(&contents[..]));
            assert_eq!(world.home.contents(name), None);
            let left = world.fast.list().unwrap().into_iter().map(|file| file.name);
            let left: Vec<FileName> = left.filter(|file| ![FileName::Lock, FileName::Member].contains(file)).collect();
            assert_eq!(left, [name], "all else is home");
            assert!(world.home.list().unwrap().iter().all(|file| !matches!(file.name, FileName::Temporary(_))));
            let store = if answers_again {
                world.fast.set_faults(FaultPlan::none());
                store.drain_fast_disk().unwrap();
                assert_eq!(world.home.contents(name).as_deref(), Some(&contents[..]));
                assert_eq!(world.fast.contents(name), None);
                store
            } else {
                // As the error says.
                store.close().unwrap();
                let home: Arc<dyn Volume> = Arc::new(world.home.clone());
                let how = RepairOptions::default().without_fast_disk(true);
                let report = repair_volumes(&home, None, &world.executor.env(), how).unwrap();
                assert!(report.was_sound && report.nothing_lost(), "{report}");
                StoreBuilder::new(Options::default()).env(world.executor.env()).open_volume(home).unwrap()
            };
            for key in [&b"key"[..], b"other key"] {
                assert_eq!(store.get(key).unwrap().as_deref(), Some(&b"value"[..]));
            }
            store.close().unwrap();
        });
    }
}

/// A drain moved tables until the home was full. The store did not open any more, as opening writes a manifest there.
#[test]
fn a_drain_for_which_the_home_has_no_room_moves_nothing() {
    let world = world(5);
    world.executor.run(|| {
        let store = world.open();
        for n in 0..100_u32 {
            store.put(n.to_be_bytes(), [7; 4000]).unwrap();
        }
        store.flush().unwrap();
        store.wait_idle().unwrap();
        let on_fast = tables(&world.fast);
        assert!(on_fast > 0 && tables(&world.home) == 0);
        let used = world.home.space().logical_used;
        let bytes: u64 =
            world.fast.list().unwrap().iter().filter(|f| matches!(f.name, FileName::Table(_))).map(|f| f.bytes).sum();
        let of = |free: u64| FaultPlan { capacity_bytes: Some(used + free), ..FaultPlan::none() };
        // Less than the tables take, and too little more.
        for free in [bytes / 2, bytes + (128 << 20)] {
            world.home.set_faults(of(free));
            let error = store.drain_fast_disk().unwrap_err();
            assert!(matches!(&error, Error::Disks(text) if text.contains("Nothing was moved")), "{error}");
            assert_eq!((tables(&world.fast), tables(&world.home)), (on_fast, 0));
        }
        store.put(b"key", b"value").unwrap();
        store.close().unwrap();
        let store = world.open();
        world.home.set_faults(of(bytes + (256 << 20)));
        store.drain_fast_disk().unwrap();
        assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        store.close().unwrap();
    });
}
