mod restarts;
mod server;

use super::*;
use crate::NodeOptions;
use crate::Place;
use crate::message::{Class, Operation};
use crate::secret::Secret;
use crate::testing::{SOON, certificates, eventually};
use server::{Cut, TestNode};
use situ_base::Env;
use situ_device::{Buffer, PAGE_BYTES};
use situ_storage::{DirectoryVolume, ReadQueue, ReadRequest};
use std::sync::mpsc;
use std::time::Instant;
use tempfile::TempDir;

fn options() -> NodeOptions {
    NodeOptions {
        read_patience: Duration::from_secs(3),
        write_patience: SOON,
        reconnect_min: Duration::from_millis(5),
        reconnect_max: Duration::from_millis(50),
        ..NodeOptions::default()
    }
}

/// A node, a volume on it, and the directory under both.
struct World {
    volume: NodeVolume,
    node: TestNode,
    directory: TempDir,
}

impl World {
    fn new() -> World {
        World::with(options())
    }

    fn with(options: NodeOptions) -> World {
        let directory = tempfile::tempdir().unwrap();
        let node = TestNode::start(directory.path());
        let volume = volume(&node, options).unwrap();
        World { volume, node, directory }
    }

    /// The files as they are on the node's disk.
    fn files(&self) -> DirectoryVolume {
        DirectoryVolume::open(self.directory.path().join("files")).unwrap()
    }

    fn contents(&self, name: FileName) -> Vec<u8> {
        let file = self.files().open(name).unwrap();
        let mut bytes = vec![0; file.bytes() as usize];
        file.read_at(0, &mut bytes).unwrap();
        bytes
    }
}

fn volume(node: &TestNode, options: NodeOptions) -> Result<NodeVolume> {
    NodeVolume::open(Arc::new(NodeClient::connect(node.address.clone(), options)?))
}

fn written(volume: &NodeVolume, name: FileName, bytes: &[u8]) {
    let mut writer = volume.create(name, bytes.len() as u64).unwrap();
    writer.append(bytes).unwrap();
    writer.finish().unwrap();
}

fn read(file: &dyn Reader, offset: u64, bytes: usize) -> Result<Vec<u8>> {
    let mut into = vec![0; bytes];
    file.read_at(offset, &mut into).map(|()| into)
}

/// Bytes that tell their place.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32 / 4 + 1).flat_map(|word| word.wrapping_mul(0x9e37_79b1).to_le_bytes()).take(bytes).collect()
}

const TABLE: FileName = FileName::Table(1);
const LOG: FileName = FileName::Log(2);

#[test]
fn files_are_written_once_and_read() {
    let world = World::new();
    let bytes = pattern(5 << 20);
    let mut writer = world.volume.create(TABLE, bytes.len() as u64).unwrap();
    for part in bytes.chunks(70_001) {
        writer.append(part).unwrap();
    }
    assert_eq!(writer.written(), bytes.len() as u64);
    writer.flush().unwrap();
    writer.sync().unwrap();
    writer.append(b"more").unwrap();
    writer.finish().unwrap();
    let expected = [&bytes[..], b"more"].concat();
    assert_eq!(world.contents(TABLE), expected);
    assert!(world.volume.create(TABLE, 0).is_err(), "the name is taken");
    let file = world.volume.open(TABLE).unwrap();
    assert_eq!(file.bytes(), expected.len() as u64);
    // Longer than a payload.
    assert_eq!(read(&*file, 0, expected.len()).unwrap(), expected);
    assert_eq!(read(&*file, 4097, 11).unwrap(), expected[4097..4108]);
    assert!(read(&*file, file.bytes() - 1, 2).unwrap_err().is_corruption());
    assert!(read(&*file, u64::MAX, 2).unwrap_err().is_corruption());
    assert!(
        matches!(world.volume.open(FileName::Table(9)).err(), Some(Error::NotFound { path }) if path.contains("node://"))
    );
    assert!(!file.read_now(0, &mut [0]).unwrap());
    file.prefetch(0, 1 << 20);
}

#[test]
fn names_are_replaced_renamed_removed_and_listed_and_open_files_stay_usable() {
    let world = World::new();
    let volume = &world.volume;
    volume.replace(FileName::Current, b"one").unwrap();
    volume.replace(FileName::Current, b"two").unwrap();
    for number in 1..=5 {
        written(volume, FileName::Table(number), b"table");
    }
    let (kept, removed) = (volume.open(FileName::Table(1)).unwrap(), volume.open(FileName::Table(2)).unwrap());
    volume.rename(FileName::Table(1), FileName::Table(8)).unwrap();
    volume.remove(FileName::Table(2)).unwrap();
    volume.sync_names().unwrap();
    assert!(matches!(volume.remove(FileName::Table(2)), Err(Error::NotFound { .. })));
    assert!(matches!(volume.rename(FileName::Table(2), TABLE), Err(Error::NotFound { .. })));
    assert_eq!(volume.list().unwrap(), world.files().list().unwrap());
    assert_eq!(volume.list().unwrap().len(), 5);
    assert_eq!(read(&*kept, 0, 5).unwrap(), b"table");
    assert_eq!(read(&*removed, 0, 5).unwrap(), b"table");
    assert_eq!(volume.space().logical_total, world.files().space().logical_total);
    assert_eq!((volume.log_room(), volume.geometry()), (None, None));
    assert_eq!(volume.troubles(), ["a squeaking fan"]);
    assert!(volume.failure().is_none() && !volume.tidy());
    assert!(volume.location().starts_with("node://unix:"));
}

#[test]
fn pages_are_written_in_place() {
    let world = World::new();
    let file = world.volume.create_pages(LOG, 4 << 20).unwrap();
    assert_eq!((file.pages(), file.writes_wait()), (1024, true));
    // Longer than a payload.
    let bytes = pattern(3 << 20);
    file.write(100, &Buffer::copy_of(&bytes), 768, false).unwrap();
    file.write(3, &Buffer::copy_of(&bytes[..PAGE_BYTES]), 1, true).unwrap();
    file.sync().unwrap();
    let other = world.volume.open_pages(LOG).unwrap();
    let mut into = vec![0; bytes.len()];
    other.read_at(100 * PAGE_BYTES as u64, &mut into).unwrap();
    assert_eq!(into, bytes);
    other.read_at(3 * PAGE_BYTES as u64, &mut into[..PAGE_BYTES]).unwrap();
    assert_eq!(into[..PAGE_BYTES], bytes[..PAGE_BYTES]);
    assert!(other.read_at(1024 * PAGE_BYTES as u64, &mut [0]).unwrap_err().is_corruption());
}

#[test]
fn many_reads_are_in_flight_and_complete_on_the_thread_that_receives() {
    let world = World::new();
    let bytes = pattern(6 << 20);
    written(&world.volume, TABLE, &bytes);
    let file = world.volume.open(TABLE).unwrap();
    let mut queue = ReadQueue::new(Env::system().executor.event(), 500);
    for tag in 0..499 {
        queue.submit(&*file, tag, tag * 4096, vec![0; 4096]).unwrap();
    }
    // One that is longer than a payload.
    queue.submit(&*file, 499, 1, vec![0; 5 << 20]).unwrap();
    let mut done = Vec::new();
    while queue.wait(&mut done) > 0 {}
    assert_eq!(done.len(), 500);
    for read in done {
        read.result.unwrap();
        let begin = read.offset as usize;
        assert!(read.buffer == bytes[begin..begin + read.buffer.len()], "read {}", read.tag);
    }
    let (sender, told) = mpsc::channel();
    let request = ReadRequest::new(0, vec![0; 10], move |_, result| {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        sender.send((name, result.is_ok())).unwrap();
    });
    file.submit(request);
    assert_eq!(told.recv_timeout(SOON).unwrap(), ("node-read".to_owned(), true));
}

#[test]
fn every_change_is_done_once_where_ever_its_connection_is_cut() {
    let world = World::new();
    let volume = &world.volume;
    let _lock = volume.lock().unwrap();
    let pages = volume.create_pages(LOG, 64 << 10).unwrap();
    let mut number = 10;
    for cut in [Cut::Before, Cut::After] {
        let at = |operation| world.node.cut_at(operation, cut);
        let (from, to) = (FileName::Table(number), FileName::Table(number + 1));
        let bytes = pattern(3 << 20);
        at(Operation::Create);
        let mut writer = volume.create(from, 0).unwrap();
        at(Operation::Append);
        writer.append(&bytes[..2 << 20]).unwrap();
        at(Operation::WriterFlush);
        writer.flush().unwrap();
        at(Operation::WriterSync);
        writer.sync().unwrap();
        at(Operation::Append);
        writer.append(&bytes[2 << 20..]).unwrap();
        at(Operation::WriterFinish);
        writer.finish().unwrap();
        assert_eq!(world.contents(from), bytes, "{cut:?}");
        at(Operation::Rename);
        volume.rename(from, to).unwrap();
        at(Operation::SyncNames);
        volume.sync_names().unwrap();
        at(Operation::Replace);
        volume.replace(FileName::Current, format!("{number}").as_bytes()).unwrap();
        assert_eq!(world.contents(FileName::Current), format!("{number}").as_bytes());
        at(Operation::Open);
        let file = volume.open(to).unwrap();
        at(Operation::Read);
        assert_eq!(read(&*file, 0, bytes.len()).unwrap(), bytes);
        at(Operation::Remove);
        volume.remove(to).unwrap();
        at(Operation::Read);
        assert_eq!(read(&*file, 7, 100).unwrap(), bytes[7..107], "removed, and open");
        at(Operation::CreatePages);
        volume.create_pages(FileName::Log(number), 8192).unwrap();
        at(Operation::OpenPages);
        volume.open_pages(FileName::Log(number)).unwrap();
        let mut page = Buffer::copy_of(&pattern(PAGE_BYTES));
        page.iter_mut().for_each(|byte| *byte ^= number as u8);
        at(Operation::WritePages);
        pages.write(1, &page, 1, true).unwrap();
        page[100..200].fill(number as u8);
        at(Operation::PatchPages);
        pages.write(1, &page, 1, true).unwrap();
        at(Operation::SyncPages);
        pages.sync().unwrap();
        at(Operation::ReadPages);
        let mut into = vec![0; PAGE_BYTES];
        pages.read_at(PAGE_BYTES as u64, &mut into).unwrap();
        assert!(into == page[..]);
        at(Operation::List);
        assert!(volume.list().unwrap().iter().all(|meta| meta.name != to));
        assert!(lock(&world.node.node.plan).is_none(), "the last cut came");
        number += 10;
    }
    assert!(volume.client().connections() >= 30, "{}", volume.client().connections());
}

/// What a log does: page after page is written again with more bytes in it, and the first page of a longer write may be
/// one of those.
#[test]
fn pages_that_are_written_again_travel_as_what_changed_and_arrive_whole() {
    let world = World::new();
    let pages = world.volume.create_pages(LOG, 1 << 20).unwrap();
    let all = pattern(8 * PAGE_BYTES);
    let mut written = Buffer::new(8 * PAGE_BYTES);
    let (mut used, step, mut wholes) = (0, 150, 0);
    let sent = || world.volume.client().traffic().sent(Class::Write);
    let began = sent();
    for turn in 0.. {
        let cut = [Some(Cut::Before), Some(Cut::After), Some(Cut::Restart), None][turn % 4];
        cut.filter(|_| turn % 8 < 4).into_iter().for_each(|cut| world.node.cut_at(Operation::PatchPages, cut));
        let first = used / PAGE_BYTES;
        // Now and then a write is of two pages.
        let end = (used + if turn % 16 == 0 { PAGE_BYTES } else { step }).min(all.len());
        written[used..end].copy_from_slice(&all[used..end]);
        let count = (end - 1) / PAGE_BYTES + 1 - first;
        let buffer = Buffer::copy_of(&written[first * PAGE_BYTES..(first + count) * PAGE_BYTES]);
        pages.write(first as u64, &buffer, count, turn % 3 == 0).unwrap();
        assert!(world.contents(LOG)[..end] == all[..end], "after {end} bytes");
        used = end;
        wholes += lock(&world.node.node.seen).drain(..).filter(|seen| *seen == Operation::WritePages).count();
        if used == all.len() {
            break;
        }
    }
    assert!(wholes > 0, "a restarted daemon has no image");
    let restarted = (wholes * 2 * PAGE_BYTES) as u64;
    assert!(sent() - began < 3 * all.len() as u64 + restarted, "{} bytes, {wholes} times whole", sent() - began);
}

#[test]
fn a_restarted_daemon_gets_open_files_again_by_their_names() {
    let world = World::new();
    let volume = &world.volume;
    for number in 1..=3 {
        written(volume, FileName::Table(number), &pattern(100 * number as usize));
    }
    let open = |number| volume.open(FileName::Table(number)).unwrap();
    let (plain, renamed, removed) = (open(1), open(2), open(3));
    let pages = volume.create_pages(LOG, 64 << 10).unwrap();
    let page = Buffer::copy_of(&pattern(PAGE_BYTES));
    pages.write(0, &page, 1, false).unwrap();
    volume.rename(FileName::Table(2), FileName::Table(7)).unwrap();
    volume.remove(FileName::Table(3)).unwrap();
    volume.sync_names().unwrap();
    world.node.restart();
    assert_eq!(read(&*plain, 0, 100).unwrap(), pattern(100));
    assert_eq!(read(&*renamed, 0, 200).unwrap(), pattern(200));
    assert!(matches!(read(&*removed, 0, 300), Err(Error::NotFound { .. })), "its room is given back");
    // The daemon's end does not take what the system has.
    pages.sync().unwrap();
    pages.write(1, &page, 1, true).unwrap();
}

#[test]
fn a_writer_goes_on_after_a_restart_if_little_was_not_synced() {
    let world = World::new();
    let mut writer = world.volume.create(TABLE, 0).unwrap();
    writer.append(b"synced, ").unwrap();
    writer.sync().unwrap();
    writer.append(b"flushed, ").unwrap();
    writer.flush().unwrap();
    world.node.restart();
    writer.append(b"and appended").unwrap();
    world.node.cut_at(Operation::WriterSync, Cut::Restart);
    writer.sync().unwrap();
    world.node.cut_at(Operation::WriterFinish, Cut::Restart);
    writer.finish().unwrap();
    assert_eq!(world.contents(TABLE), b"synced, flushed, and appended");
    let mut long = world.volume.create(FileName::Table(8), 0).unwrap();
    long.append(&pattern(3 << 20)).unwrap();
    long.flush().unwrap();
    world.node.restart();
    let error = long.sync().unwrap_err().to_string();
    assert!(error.contains("000008.table"), "{error}");
    assert!(long.append(&[0; 1 << 20]).is_err() && long.finish().is_err(), "an error stays");
}

/// The daemon goes on with the file, and the connection is lost before the rest is appended again. The next append
/// began behind the end of the file then, and the writer failed for good: of a manifest, that made the store read-only.
#[test]
fn a_writer_goes_on_if_the_connection_is_lost_while_it_resumes() {
    let world = World::new();
    for (number, cut) in (1..).zip([Cut::Before, Cut::After, Cut::Restart]) {
        let name = FileName::Table(number);
        let mut writer = world.volume.create(name, 0).unwrap();
        writer.append(b"synced, ").unwrap();
        writer.sync().unwrap();
        writer.append(b"flushed, ").unwrap();
        writer.flush().unwrap();
        world.node.restart();
        world.node.cut_at(Operation::Resume, cut);
        writer.append(b"and appended").unwrap();
        writer.sync().unwrap_or_else(|error| panic!("{cut:?}: {error}"));
        assert!(lock(&world.node.node.plan).is_none(), "the cut came");
        writer.finish().unwrap();
        assert_eq!(world.contents(name), b"synced, flushed, and appended", "{cut:?}");
    }
}

/// The sync used to fail for good, and the store with it.
#[test]
fn renames_that_a_restart_may_have_lost_are_done_again() {
    let world = World::new();
    let volume = &world.volume;
    let (first, second) = (FileName::Table(2), FileName::Table(3));
    written(volume, TABLE, b"table");
    volume.rename(TABLE, first).unwrap();
    volume.rename(first, second).unwrap();
    let names = || world.files().list().unwrap().iter().map(|meta| meta.name).collect::<Vec<_>>();
    world.node.restart();
    volume.sync_names().unwrap();
    assert_eq!(names(), [second], "nothing was lost");
    let third = FileName::Table(4);
    volume.rename(second, first).unwrap();
    volume.rename(first, third).unwrap();
    // As after a crash: both are lost.
    world.files().rename(third, second).unwrap();
    world.node.restart();
    volume.sync_names().unwrap();
    assert_eq!(names(), [third]);
}

#[test]
fn removals_that_a_restart_may_have_lost_are_done_again() {
    let world = World::new();
    let volume = &world.volume;
    for number in 1..=2 {
        written(volume, FileName::Table(number), b"table");
        volume.remove(FileName::Table(number)).unwrap();
    }
    // As after a crash: the first is back. The second is another file by now.
    world.files().replace(TABLE, b"table").unwrap();
    written(volume, FileName::Table(2), b"new");
    world.node.restart();
    volume.sync_names().unwrap();
    let names: Vec<FileName> = world.files().list().unwrap().iter().map(|meta| meta.name).collect();
    assert_eq!(names, [FileName::Table(2)]);
}

#[test]
fn a_creation_that_a_restart_leaves_in_doubt_is_an_error_and_harms_no_file() {
    let world = World::new();
    world.node.cut_at(Operation::Create, Cut::Restart);
    let error = world.volume.create(TABLE, 0).err().unwrap().to_string();
    assert!(error.contains("000001.table"), "{error}");
    world.node.cut_at(Operation::Remove, Cut::Restart);
    world.volume.remove(TABLE).unwrap();
}

#[test]
fn reads_fail_with_the_nodes_name_while_it_is_gone_and_succeed_when_it_is_back() {
    let patience = Duration::from_secs(1);
    let mut world = World::with(NodeOptions { read_patience: patience, ..options() });
    written(&world.volume, TABLE, b"table");
    let file = world.volume.open(TABLE).unwrap();
    world.node.stop();
    let began = Instant::now();
    let error = read(&*file, 0, 5).unwrap_err().to_string();
    assert!(began.elapsed() >= patience, "{:?}", began.elapsed());
    let node = format!("node {}", world.node.address.place);
    assert!(error.contains(&node) && error.contains("000001.table") && error.contains("no answer for"), "{error}");
    let (sender, told) = mpsc::channel();
    file.submit(ReadRequest::new(0, vec![0; 5], move |_, result| sender.send(result.is_err()).unwrap()));
    assert!(told.recv_timeout(SOON).unwrap());
    assert!(world.volume.troubles()[0].contains(&node), "{:?}", world.volume.troubles());
    // A change waits longer: the node comes back in the meantime.
    std::thread::scope(|scope| {
        let change = scope.spawn(|| world.volume.replace(FileName::Current, b"patient"));
        std::thread::sleep(patience);
        world.node.listen();
        change.join().unwrap().unwrap();
    });
    assert_eq!(read(&*file, 0, 5).unwrap(), b"table");
    assert_eq!(world.contents(FileName::Current), b"patient");
}

#[test]
fn submitted_reads_survive_a_lost_connection() {
    let world = World::new();
    let bytes = pattern(1 << 20);
    written(&world.volume, TABLE, &bytes);
    let file = world.volume.open(TABLE).unwrap();
    for cut in [Cut::Before, Cut::After, Cut::Restart] {
        world.node.cut_at(Operation::Read, cut);
        let mut queue = ReadQueue::new(Env::system().executor.event(), 64);
        for tag in 0..64 {
            queue.submit(&*file, tag, tag * 1000, vec![0; 1000]).unwrap();
        }
        let mut done = Vec::new();
        while queue.wait(&mut done) > 0 {}
        for read in done {
            read.result.unwrap();
            assert!(read.buffer == bytes[read.offset as usize..][..1000]);
        }
    }
}

#[test]
fn a_file_and_its_volume_may_be_dropped_with_reads_in_flight() {
    let World { volume, node, directory } = World::new();
    written(&volume, TABLE, &pattern(1 << 20));
    let file = volume.open(TABLE).unwrap();
    let (sender, told) = mpsc::channel();
    for _ in 0..100 {
        let sender = sender.clone();
        file.submit(ReadRequest::new(0, vec![0; 8192], move |_, result| sender.send(result.is_ok()).unwrap()));
    }
    drop((file, volume));
    for _ in 0..100 {
        told.recv_timeout(SOON).unwrap();
    }
    eventually("the session has ended", || node.count(Operation::Goodbye) == 1);
    drop(directory);
}

#[test]
fn closed_files_are_closed_on_the_node_also_after_a_lost_connection() {
    let world = World::new();
    written(&world.volume, TABLE, b"table");
    let (first, second) = (world.volume.open(TABLE).unwrap(), world.volume.open(TABLE).unwrap());
    drop(first);
    eventually("the close arrives", || world.node.count(Operation::Close) == 1);
    let connections = world.volume.client().connections();
    world.node.cut();
    eventually("a new connection", || world.volume.client().connections() > connections);
    assert_eq!(world.node.count(Operation::Keep), 1);
    let opened = world.node.count(Operation::Open);
    assert_eq!(read(&*second, 0, 5).unwrap(), b"table");
    assert_eq!(world.node.count(Operation::Open), opened, "it stayed open");
}

/// A node that kept them would refuse a store's next file after some hours.
#[test]
fn finished_files_are_forgotten_by_the_node() {
    let world = World::new();
    for number in 0..20 {
        written(&world.volume, FileName::Table(number), b"table");
    }
    eventually("the node forgets them", || world.node.writers() == 0);
}

#[test]
fn the_lock_is_a_lease_and_a_fenced_owner_writes_no_more() {
    let world = World::new();
    let held = world.volume.lock().unwrap();
    let other = volume(&world.node, options()).unwrap();
    assert!(matches!(other.lock().err(), Some(Error::Locked { .. })));
    assert!(matches!(other.replace(FileName::Current, b"x"), Err(Error::Locked { .. })), "no lease, no change");
    drop(held);
    let held = other.lock().unwrap();
    other.replace(FileName::Current, b"other").unwrap();
    let mut writer = other.create(TABLE, 0).unwrap();
    let pages = other.create_pages(LOG, 8192).unwrap();
    world.node.node.give_lease_away();
    let page = Buffer::copy_of(&pattern(PAGE_BYTES));
    assert!(matches!(pages.write(0, &page, 1, false), Err(Error::Locked { .. })));
    writer.append(b"late").unwrap();
    assert!(matches!(writer.sync(), Err(Error::Locked { .. })));
    assert!(matches!(other.failure(), Some(Error::Locked { why: Some(why), .. }) if why.contains("another host")));
    assert_eq!(world.contents(FileName::Current), b"other");
    // It can read.
    assert_eq!(other.open(FileName::Current).unwrap().bytes(), 5);
    drop(held);
}

#[test]
fn a_lease_is_renewed_in_time_and_on_each_new_connection() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = TestNode::start(directory.path());
    node.stop();
    eventually("nobody uses the node", || Arc::get_mut(&mut node.node).is_some());
    Arc::get_mut(&mut node.node).unwrap().lease_ms = 90;
    node.listen();
    let volume = volume(&node, options()).unwrap();
    let _held = volume.lock().unwrap();
    eventually("renewed", || node.count(Operation::Renew) >= 3);
    let connections = volume.client().connections();
    node.cut();
    eventually("a new connection", || volume.client().connections() > connections);
    let seen = lock(&node.node.seen).clone();
    let keep = seen.iter().rposition(|operation| *operation == Operation::Keep).unwrap();
    assert_eq!(seen[keep + 1], Operation::Renew, "before anything else");
    node.node.give_lease_away();
    eventually("it hears of it without asking", || volume.client().fenced().is_some());
}

#[test]
fn a_volume_over_tls_with_a_secret_survives_lost_connections() {
    let directory = tempfile::tempdir().unwrap();
    let (server, roots) = certificates(directory.path());
    let secret = || Secret::new(b"a secret of enough bytes").unwrap();
    let place = Place::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
    let node = TestNode::start_at(directory.path(), &place, Some(secret()), Some(server));
    let with = |secret, roots| NodeOptions { secret, tls: roots, ..options() };
    let volume = volume(&node, with(Some(secret()), Some(roots.clone()))).unwrap();
    let bytes = pattern(3 << 20);
    for cut in [Operation::Append, Operation::WriterFinish, Operation::Read] {
        node.cut_at(cut, Cut::After);
        let _ = volume.remove(TABLE);
        written(&volume, TABLE, &bytes);
        assert_eq!(read(&*volume.open(TABLE).unwrap(), 0, bytes.len()).unwrap(), bytes);
    }
    // Whoever lacks something is told at once what it is.
    let wrong = Secret::new(b"another secret of enough bytes").unwrap();
    let refused = |options, words: &str| {
        let began = Instant::now();
        let error = self::volume(&node, NodeOptions { read_patience: SOON, ..options }).err().unwrap();
        assert!(error.is_permission_denied() && error.to_string().contains(words), "{error}");
        assert!(began.elapsed() < SOON / 2, "{:?}", began.elapsed());
    };
    refused(with(Some(wrong), Some(roots.clone())), "secret");
    refused(with(None, Some(roots)), "wants a secret");
}

#[test]
fn a_node_that_is_not_there_at_open_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = TestNode::start(directory.path());
    node.stop();
    let patience = Duration::from_millis(200);
    let began = Instant::now();
    let error = volume(&node, NodeOptions { read_patience: patience, ..options() }).err().unwrap().to_string();
    assert!(error.contains(&node.address.to_string()), "{error}");
    assert!(began.elapsed() < SOON / 4);
    // It may be late.
    std::thread::scope(|scope| {
        let address = node.address.clone();
        let late = scope.spawn(move || NodeClient::connect(address, NodeOptions { read_patience: SOON, ..options() }));
        std::thread::sleep(patience);
        node.listen();
        late.join().unwrap().unwrap();
    });
}

#[test]
fn a_node_that_takes_short_payloads_gets_short_ones() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = TestNode::start(directory.path());
    let volume = volume(&node, options()).unwrap();
    let bytes = pattern(1 << 20);
    let mut writer = volume.create(TABLE, 0).unwrap();
    writer.append(&bytes[..300_000]).unwrap();
    writer.sync().unwrap();
    node.stop();
    // It comes back with another opinion.
    eventually("nobody uses the node", || Arc::get_mut(&mut node.node).is_some());
    Arc::get_mut(&mut node.node).unwrap().payload_bytes_max = 64 << 10;
    node.listen();
    volume.list().unwrap();
    writer.append(&bytes[300_000..]).unwrap();
    writer.finish().unwrap();
    let file = volume.open(TABLE).unwrap();
    assert_eq!(read(&*file, 0, bytes.len()).unwrap(), bytes);
    let pages = volume.create_pages(LOG, 1 << 20).unwrap();
    pages.write(0, &Buffer::copy_of(&bytes), 256, true).unwrap();
    let mut into = vec![0; 1 << 20];
    pages.read_at(0, &mut into).unwrap();
    assert_eq!(into, bytes);
}

#[test]
fn bytes_on_the_wire_are_counted() {
    let world = World::new();
    let bytes = pattern(4 << 20);
    written(&world.volume, TABLE, &bytes);
    let file = world.volume.open(TABLE).unwrap();
    read(&*file, 0, bytes.len()).unwrap();
    let traffic = world.volume.client().traffic();
    let near = |count: u64| (4 << 20..(4 << 20) + 4096).contains(&count);
    assert!(near(traffic.sent(Class::Write)), "{traffic:?}");
    assert!(near(traffic.received(Class::Read)), "{traffic:?}");
    assert!(traffic.sent(Class::Read) < 1024 && traffic.received(Class::Write) < 4096, "{traffic:?}");
}
