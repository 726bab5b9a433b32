//! The node's machine is restarted, and has lost what it had not synced. The host goes on.
//!
//! A log used to go on behind pages that the machine had lost. A recovery ended at the first of them, and dropped all
//! writes behind it.

use super::*;
use crate::volume::buffered::{KEPT_BYTES_MAX, SYNC_BYTES};
use situ_engine::{Durability, Options, Store, StoreBuilder};

fn page(number: u64) -> Buffer {
    let mut page = Buffer::copy_of(&pattern(PAGE_BYTES));
    page[..8].copy_from_slice(&number.to_le_bytes());
    page
}

fn page_on_disk(world: &World, file: FileName, number: u64) -> Vec<u8> {
    world.contents(file)[number as usize * PAGE_BYTES..][..PAGE_BYTES].to_vec()
}

#[test]
fn lost_pages_are_written_again_before_anything_else_is_written() {
    let world = World::new();
    let pages = world.volume.create_pages(LOG, 64 << 10).unwrap();
    let write = |number: u64, durable| pages.write(number, &page(number), 1, durable).unwrap();
    (0..4).for_each(|number| write(number, false));
    world.node.restart_machine();
    assert_eq!(page_on_disk(&world, LOG, 0), [0; PAGE_BYTES], "the test's machine loses what was not synced");
    for durable in [false, true] {
        let next = 4 + u64::from(durable);
        world.node.restart_machine();
        write(next, durable);
        (0..=next).for_each(|number| assert!(page_on_disk(&world, LOG, number) == page(number)[..], "page {number}"));
    }
    // A sync does it, too, and covers it.
    world.node.restart_machine();
    pages.sync().unwrap();
    world.node.restart_machine();
    (0..6).for_each(|number| assert!(page_on_disk(&world, LOG, number) == page(number)[..], "page {number}"));
    assert_eq!(world.volume.buffered.bytes(), 0);
}

/// The connection may be lost again while they are written, and the machine with it.
#[test]
fn lost_pages_are_written_again_however_often_that_is_interrupted() {
    let world = World::new();
    let pages = world.volume.create_pages(LOG, 64 << 10).unwrap();
    for number in [0, 2, 4, 6] {
        pages.write(number, &page(number), 1, false).unwrap();
    }
    for cut in [Cut::Before, Cut::After, Cut::Restart] {
        world.node.restart_machine();
        world.node.cut_at(Operation::WritePages, cut);
        pages.write(7, &page(7), 1, false).unwrap();
        assert!(lock(&world.node.node.plan).is_none(), "the cut came");
        for number in [0, 2, 4, 6, 7] {
            assert!(page_on_disk(&world, LOG, number) == page(number)[..], "page {number}, {cut:?}");
        }
    }
}

/// The log goes on in its next file; what is lost lies in the one before.
#[test]
fn a_write_to_one_file_brings_back_the_lost_pages_of_all() {
    let world = World::new();
    let (first, second) = (FileName::Log(2), FileName::Log(3));
    let old = world.volume.create_pages(first, 64 << 10).unwrap();
    old.write(0, &page(0), 1, false).unwrap();
    let new = world.volume.create_pages(second, 64 << 10).unwrap();
    world.node.restart_machine();
    new.write(0, &page(1), 1, false).unwrap();
    assert!(page_on_disk(&world, first, 0) == page(0)[..] && page_on_disk(&world, second, 0) == page(1)[..]);
}

#[test]
fn what_a_durable_write_replaced_does_not_come_back() {
    let world = World::new();
    let pages = world.volume.create_pages(LOG, 64 << 10).unwrap();
    pages.write(0, &page(0), 1, false).unwrap();
    pages.write(1, &page(1), 1, false).unwrap();
    pages.write(0, &page(100), 1, true).unwrap();
    world.node.restart_machine();
    pages.write(2, &page(2), 1, false).unwrap();
    for (number, expected) in [(0, 100), (1, 1), (2, 2)] {
        assert!(page_on_disk(&world, LOG, number) == page(expected)[..], "page {number}");
    }
}

/// A log file that nobody needs becomes the next one, under another name. Its old pages must not come back there.
#[test]
fn pages_of_a_file_that_was_renamed_or_removed_do_not_come_back() {
    let world = World::new();
    let (old, spare, next) = (FileName::Log(2), FileName::Spare(2), FileName::Log(9));
    let before = world.volume.create_pages(old, 64 << 10).unwrap();
    before.write(0, &page(0), 1, false).unwrap();
    world.volume.rename(old, spare).unwrap();
    world.volume.rename(spare, next).unwrap();
    let after = world.volume.open_pages(next).unwrap();
    after.write(0, &page(50), 1, true).unwrap();
    let gone = world.volume.create_pages(FileName::Log(3), 64 << 10).unwrap();
    gone.write(0, &page(0), 1, false).unwrap();
    world.volume.remove(FileName::Log(3)).unwrap();
    assert_eq!(world.volume.buffered.bytes(), 0);
    world.node.restart_machine();
    after.write(1, &page(51), 1, false).unwrap();
    assert!(page_on_disk(&world, next, 0) == page(50)[..] && page_on_disk(&world, next, 1) == page(51)[..]);
    drop((before, gone, after));
    assert_eq!(world.volume.buffered.bytes(), 0, "closed files need nothing");
}

#[test]
fn what_is_kept_is_bounded_and_synced_meanwhile() {
    let world = World::new();
    let bytes = 2 * KEPT_BYTES_MAX as u64;
    let pages = world.volume.create_pages(LOG, bytes).unwrap();
    let piece = Buffer::copy_of(&pattern(64 * PAGE_BYTES));
    let mut most = 0;
    for first in (0..bytes / PAGE_BYTES as u64).step_by(64) {
        pages.write(first, &piece, 64, false).unwrap();
        most = most.max(world.volume.buffered.bytes());
    }
    assert!((SYNC_BYTES..KEPT_BYTES_MAX + piece.len()).contains(&most), "{most} bytes were kept");
    assert!(world.node.count(Operation::SyncPages) > 0);
    eventually("a sync lets go of what was answered", || {
        pages.write(0, &piece, 64, false).unwrap();
        world.volume.buffered.bytes() <= SYNC_BYTES + piece.len()
    });
}

/// What its files would be if this process were killed now.
fn killed(world: &World, options: &Options) -> (Store, TempDir) {
    let copy = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(world.directory.path().join("files")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    let volume: Arc<dyn Volume> = Arc::new(DirectoryVolume::open(copy.path()).unwrap());
    (StoreBuilder::new(options.clone()).open_home(&volume).unwrap(), copy)
}

fn a_store_survives_restarts_of_the_machine(durability: Durability) {
    let world = World::new();
    let mut options = Options::default();
    options.durability = durability;
    options.keyspace.memtable_bytes = 256 << 10;
    let home: Arc<dyn Volume> = Arc::new(volume(&world.node, self::options()).unwrap());
    let store = StoreBuilder::new(options.clone()).open_home(&home).unwrap();
    let key = |number: u32| format!("key{number:06}").into_bytes();
    let mut written = 0..0;
    for round in 0..4 {
        // Rounds end in the middle of a log file, and pass from one to the next.
        for number in written.end..written.end + 400 {
            store.put(key(number), [round; 300]).unwrap();
        }
        written.end += 400;
        world.node.restart_machine();
        store.put(b"behind the restart", [round]).unwrap();
        let (killed, _copy) = killed(&world, &options);
        for number in written.clone() {
            assert!(killed.get(key(number)).unwrap().is_some(), "key {number} is lost after round {round}");
        }
        assert_eq!(killed.get(b"behind the restart").unwrap().unwrap()[..], [round]);
    }
    store.close().unwrap();
}

#[test]
fn a_store_loses_no_buffered_write_with_the_machine_of_its_node() {
    a_store_survives_restarts_of_the_machine(Durability::Buffered);
}

#[test]
fn a_store_loses_no_synced_write_with_the_machine_of_its_node() {
    a_store_survives_restarts_of_the_machine(Durability::Synced);
}
