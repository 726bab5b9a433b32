use super::*;
use rustix::fs::{FlockOperation, flock};

fn volume() -> (tempfile::TempDir, DirectoryVolume) {
    let directory = tempfile::tempdir().unwrap();
    let volume = DirectoryVolume::open(directory.path()).unwrap();
    (directory, volume)
}

/// It was said to be another process.
#[test]
fn a_second_opener_in_one_process_is_told_that_it_is_this_one() {
    let directory = tempfile::tempdir().unwrap();
    let (home, link) = (directory.path().join("home"), directory.path().join("link"));
    fs::create_dir(&home).unwrap();
    std::os::unix::fs::symlink(&home, &link).unwrap();
    let refusal = |path: &Path| DirectoryVolume::open(path).unwrap().lock().err().unwrap().to_string();
    let held = DirectoryVolume::open(&home).unwrap().lock().unwrap();
    for path in [&home, &link] {
        let text = refusal(path);
        assert!(text.contains("this process has the store") && text.contains("open already"), "{text}");
    }
    drop(held);
    // As another process has it.
    let theirs = File::open(link.join("LOCK")).unwrap();
    flock(&theirs, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(refusal(&home).contains("open in another process"), "{}", refusal(&home));
    drop(theirs);
    drop(DirectoryVolume::open(&link).unwrap().lock().unwrap());
}

/// Durable and buffered writers in each other's way, each with pages of its own, across many fills. A fill that reached
/// into a page which somebody writes would leave zeros there.
#[test]
fn fills_never_touch_what_is_written() {
    let (_directory, volume) = volume();
    let pages = 4 * ZERO_PIECE_BYTES / PAGE_BYTES;
    let file = volume.create_pages(FileName::Log(1), (pages * PAGE_BYTES) as u64).unwrap();
    let threads = 4;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let file = &file;
            scope.spawn(move || {
                let mut buffer = Buffer::new(PAGE_BYTES);
                for page in (thread..pages).step_by(threads) {
                    buffer.fill(page as u8 | 1);
                    file.write(page as u64, &buffer, 1, (page / threads) % 3 == 0).unwrap();
                }
            });
        }
    });
    let mut read = vec![0; pages * PAGE_BYTES];
    file.read_at(0, &mut read).unwrap();
    for (page, bytes) in read.chunks(PAGE_BYTES).enumerate() {
        assert!(bytes.iter().all(|byte| *byte == page as u8 | 1), "page {page}");
    }
}

/// A table of 64 MiB beside a slow disk was handed to it at once, when it was whole, and flushes that wanted to sync a
/// few bytes of the manifest waited behind it, for seconds.
#[test]
fn a_long_file_reaches_the_disk_while_it_is_written() {
    let (directory, volume) = volume();
    let mut writer = volume.new_file(FileName::Table(1)).unwrap();
    let piece = [7; 100_000];
    for pieces in 1..300 {
        writer.append(&piece).unwrap();
        let waiting = writer.handed_over - writer.written_back;
        assert!(waiting < WRITE_BACK_BYTES, "{waiting} of {} bytes wait", pieces * piece.len());
    }
    let long = vec![8; 2 * WRITE_BACK_BYTES as usize];
    writer.append(&long).unwrap();
    assert_eq!(writer.written_back, writer.written());
    writer.append(&piece).unwrap();
    Box::new(writer).finish().unwrap();
    let found = fs::read(directory.path().join(FileName::Table(1).to_string())).unwrap();
    assert!(found == [piece.repeat(299), long, piece.to_vec()].concat());
}

#[test]
fn a_new_page_file_reads_as_zeros_and_has_its_room() {
    let (directory, volume) = volume();
    let bytes = 3 * ZERO_PIECE_BYTES as u64;
    let file = volume.create_pages(FileName::Log(1), bytes).unwrap();
    let mut buffer = Buffer::new(PAGE_BYTES);
    buffer.fill(7);
    file.write(5, &buffer, 1, true).unwrap();
    let mut read = vec![1; bytes as usize];
    file.read_at(0, &mut read).unwrap();
    let written = 5 * PAGE_BYTES..6 * PAGE_BYTES;
    assert!(read.iter().enumerate().all(|(at, byte)| *byte == if written.contains(&at) { 7 } else { 0 }));
    let entry = fs::metadata(directory.path().join(FileName::Log(1).to_string())).unwrap();
    let room = std::os::unix::fs::MetadataExt::blocks(&entry) * 512;
    assert!(room >= bytes, "{room} bytes of {bytes} are taken");
}

#[test]
fn discarded_pages_are_zeros_and_their_room_is_free() {
    let (directory, volume) = volume();
    let pages = 512;
    let file = volume.create_pages(FileName::Values(1), pages * PAGE_BYTES as u64).unwrap();
    let mut buffer = Buffer::new(pages as usize * PAGE_BYTES);
    buffer.fill(7);
    file.write(0, &buffer, pages as usize, false).unwrap();
    file.sync().unwrap();
    // A file system of another kind than the usual ones may say no, and then nothing has changed.
    let done = file.discard(100, 256).unwrap();
    assert!(file.discard(0, 0).is_ok());
    // Through a reader that was open before, and through the file.
    let reader = volume.open(FileName::Values(1)).unwrap();
    let mut read = vec![1; buffer.len()];
    reader.read_at(0, &mut read).unwrap();
    let hole = 100 * PAGE_BYTES..356 * PAGE_BYTES;
    assert!(read.iter().enumerate().all(|(at, byte)| *byte == if done && hole.contains(&at) { 0 } else { 7 }));
    let entry = fs::metadata(directory.path().join(FileName::Values(1).to_string())).unwrap();
    assert_eq!(entry.len(), buffer.len() as u64, "its length stays");
    let room = std::os::unix::fs::MetadataExt::blocks(&entry) * 512;
    assert!(!done || room <= 300 * PAGE_BYTES as u64, "{room} bytes are taken");
    buffer.fill(9);
    file.write(200, &buffer, 1, true).unwrap();
    file.read_at(200 * PAGE_BYTES as u64, &mut read[..PAGE_BYTES]).unwrap();
    assert!(read[..PAGE_BYTES].iter().all(|byte| *byte == 9));
}

#[test]
fn listing_shows_only_our_names() {
    let (directory, volume) = volume();
    fs::write(directory.path().join("notes.txt"), "x").unwrap();
    volume.replace(FileName::Current, b"MANIFEST-000001\n").unwrap();
    volume.replace(FileName::Current, b"MANIFEST-000002\n").unwrap();
    assert_eq!(volume.list().unwrap(), [FileMeta { name: FileName::Current, bytes: 16 }]);
    volume.rename(FileName::Current, FileName::Temporary(3)).unwrap();
    volume.remove(FileName::Temporary(3)).unwrap();
    volume.sync_names().unwrap();
    assert_eq!(volume.list().unwrap(), []);
}

/// Runs the test of this name alone in a process of its own, which has [`CHILD`] set.
fn in_a_child(test: &str) {
    let program = std::env::current_exe().unwrap();
    let name = format!("directory::tests::{test}");
    let child = std::process::Command::new(program).args(["--exact", &name, "--nocapture"]).env(CHILD, "1").output();
    let child = child.unwrap();
    let output = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
}

const CHILD: &str = "SITU_STORAGE_TEST_CHILD";

/// Once, only a failed reservation removed the file. After a later step that failed, for want of a descriptor say, the
/// file stayed; the store tried the same number again, met its own file, and took no more writes.
#[test]
fn a_page_file_that_cannot_be_finished_leaves_its_name_free() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    if std::env::var_os(CHILD).is_none() {
        // The limit is the whole process's.
        return in_a_child("a_page_file_that_cannot_be_finished_leaves_its_name_free");
    }
    let (_directory, volume) = volume();
    let limits = getrlimit(Resource::Nofile);
    // Room for one descriptor: the file's, but not the one for direct I/O.
    let next = File::open("/dev/null").map(|file| std::os::fd::AsRawFd::as_raw_fd(&file)).unwrap();
    setrlimit(Resource::Nofile, Rlimit { current: Some(next as u64 + 1), ..limits }).unwrap();
    let result = volume.create_pages(FileName::Log(1), PAGE_BYTES as u64);
    setrlimit(Resource::Nofile, limits).unwrap();
    let error = result.map(drop).unwrap_err().to_string();
    assert!(error.contains("cannot open for direct I/O"), "{error}");
    assert_eq!(volume.list().unwrap(), []);
    volume.create_pages(FileName::Log(1), PAGE_BYTES as u64).unwrap();
}

#[test]
fn directories_are_made_down_to_the_store_s_own() {
    let directory = tempfile::tempdir().unwrap();
    let deep = directory.path().join("a/b/c/");
    let volume = DirectoryVolume::create(&deep).unwrap();
    assert_eq!(volume.directory(), deep);
    DirectoryVolume::create(&deep).unwrap();
    let file = directory.path().join("file");
    fs::write(&file, b"").unwrap();
    assert!(DirectoryVolume::create(&file).unwrap_err().to_string().contains("is a file"));
    assert!(DirectoryVolume::create(file.join("below")).is_err());
    assert!(DirectoryVolume::create("").is_err());
}

/// The parent of `store` is the empty path, which once was not synced at all; with it the new directory could be lost.
#[test]
fn a_relative_path_is_made_where_the_process_is() {
    if std::env::var_os(CHILD).is_none() {
        // The working directory is the whole process's.
        return in_a_child("a_relative_path_is_made_where_the_process_is");
    }
    let directory = tempfile::tempdir().unwrap();
    std::env::set_current_dir(directory.path()).unwrap();
    DirectoryVolume::create("store").unwrap();
    DirectoryVolume::create("other/store").unwrap();
    assert!(directory.path().join("store").is_dir() && directory.path().join("other/store").is_dir());
    // A parent that cannot be synced is told, and what was made there goes again.
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limits }).unwrap();
    let refused = DirectoryVolume::create("third");
    setrlimit(Resource::Nofile, limits).unwrap();
    let error = refused.map(drop).unwrap_err().to_string();
    assert!(error.contains("cannot sync .:"), "{error}");
    assert!(!directory.path().join("third").exists());
}

/// Once, opening a store that was there read its parent, which not everybody may: mode 0711 lets one pass only.
#[test]
fn a_store_opens_below_a_directory_that_cannot_be_listed() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let parent = directory.path().join("parent");
    DirectoryVolume::create(parent.join("store")).unwrap();
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o311)).unwrap();
    // Root may list it all the same, and opens the store in any case.
    let outcome = DirectoryVolume::create(parent.join("store"));
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o755)).unwrap();
    outcome.unwrap();
}

#[test]
fn what_a_replacement_leaves_is_a_store_s_file() {
    let (directory, volume) = volume();
    // A crash before the rename.
    fs::write(directory.path().join("000000.tmp"), b"half").unwrap();
    assert_eq!(volume.list().unwrap(), [FileMeta { name: FileName::REPLACEMENT, bytes: 4 }]);
    volume.replace(FileName::Identity, b"words").unwrap();
    assert_eq!(volume.list().unwrap(), [FileMeta { name: FileName::Identity, bytes: 5 }]);
    // A rename that is refused.
    fs::create_dir(directory.path().join("CURRENT")).unwrap();
    volume.replace(FileName::Current, b"MANIFEST-000001").unwrap_err();
    assert_eq!(volume.list().unwrap(), [FileMeta { name: FileName::Identity, bytes: 5 }]);
}

/// Every failure used to be taken for a file system without direct I/O: durable writes then went the slow way for as
/// long as the file was open, and nobody was told.
#[test]
fn only_a_file_system_without_direct_io_goes_without() {
    let (directory, volume) = volume();
    drop(volume.create_pages(FileName::Log(1), 4 * PAGE_BYTES as u64).unwrap());
    volume.open_direct(FileName::Log(1)).unwrap();
    fs::remove_file(directory.path().join(FileName::Log(1).to_string())).unwrap();
    let error = volume.open_direct(FileName::Log(1)).expect_err("the name has gone");
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
}

/// Files used to be found by the directory's path: a program whose store had been removed under it went on to delete,
/// rename and truncate the files of the store that was made in its place.
#[test]
fn a_directory_in_the_place_of_a_removed_one_is_left_alone() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("store");
    let old = DirectoryVolume::create(&path).unwrap();
    drop(old.create_pages(FileName::Log(1), 4 * PAGE_BYTES as u64).unwrap());
    fs::remove_dir_all(&path).unwrap();
    let new = DirectoryVolume::create(&path).unwrap();
    drop(new.create_pages(FileName::Log(1), 4 * PAGE_BYTES as u64).unwrap());
    new.replace(FileName::Current, b"new").unwrap();
    let _lock = new.lock().unwrap();
    let is_gone = |result: Result<()>| assert!(matches!(result, Err(Error::NotFound { .. })), "{result:?}");
    is_gone(old.remove(FileName::Log(1)));
    is_gone(old.rename(FileName::Log(1), FileName::Spare(1)));
    is_gone(old.replace(FileName::Current, b"old"));
    is_gone(old.create(FileName::Table(2), 0).map(drop));
    is_gone(old.create_pages(FileName::Log(3), 4 * PAGE_BYTES as u64).map(drop));
    is_gone(old.open(FileName::Current).map(drop));
    is_gone(old.lock().map(drop));
    let names: Vec<FileName> = new.list().unwrap().iter().map(|file| file.name).collect();
    assert_eq!(names, [FileName::Log(1), FileName::Current, FileName::Lock]);
}

/// It used to stop working there: the next log file could not be made.
#[test]
fn a_directory_may_be_renamed_while_it_is_open() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("store");
    let volume = DirectoryVolume::create(&path).unwrap();
    let mut writer = volume.create(FileName::Table(1), 0).unwrap();
    let moved = parent.path().join("moved");
    fs::rename(&path, &moved).unwrap();
    writer.append(b"table").unwrap();
    writer.finish().unwrap();
    drop(volume.create_pages(FileName::Log(2), 4 * PAGE_BYTES as u64).unwrap());
    volume.rename(FileName::Log(2), FileName::Log(3)).unwrap();
    assert_eq!(fs::read(moved.join(FileName::Table(1).to_string())).unwrap(), b"table");
    assert!(moved.join(FileName::Log(3).to_string()).exists());
}

/// A ramfs says that it has no blocks, as some FUSE file systems do, and was taken for full.
#[test]
fn a_file_system_that_does_not_tell_its_size_is_not_full() {
    let directory = tempfile::tempdir().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let status = std::process::Command::new(program).args(arguments).arg(directory.path()).status();
        status.is_ok_and(|status| status.success())
    };
    if !rustix::process::geteuid().is_root() || !run("mount", &["-t", "ramfs", "situ-test"]) {
        eprintln!("SKIPPED: a file system that does not tell its size (a ramfs cannot be mounted here)");
        return;
    }
    let made = DirectoryVolume::open(directory.path()).unwrap().create_pages(FileName::Log(1), 64 << 10).map(|_| ());
    assert!(run("umount", &[]));
    made.unwrap();
}

/// A process that writes files for others is started again in the middle of a file.
#[test]
fn an_unfinished_file_goes_on_behind_what_was_synced() {
    let (_directory, volume) = volume();
    let name = FileName::Manifest(3);
    let mut writer = volume.create(name, 0).unwrap();
    writer.append(b"synced").unwrap();
    writer.sync().unwrap();
    writer.append(b", and not synced").unwrap();
    writer.flush().unwrap();
    drop(writer);
    let too_long = volume.resume(name, 1000).err().unwrap();
    assert!(too_long.is_corruption(), "{too_long}");
    let mut writer = volume.resume(name, 6).unwrap();
    assert_eq!(writer.written(), 6);
    writer.append(b", continued").unwrap();
    writer.finish().unwrap();
    let reader = volume.open(name).unwrap();
    let mut read = vec![0; reader.bytes() as usize];
    reader.read_at(0, &mut read).unwrap();
    assert_eq!(read, b"synced, continued");
    assert!(matches!(volume.resume(FileName::Manifest(4), 0).err().unwrap(), Error::NotFound { .. }));
}

/// Each of these inodes alone keeps a second writer out. Once, `rm LOCK` let one in.
#[test]
fn each_file_that_a_writer_relies_on_keeps_others_out_alone() {
    let names = [
        FileName::Current,
        FileName::Manifest(1),
        FileName::Log(2),
        FileName::Superblock,
        FileName::Member,
        FileName::Lock,
    ];
    for name in names {
        let (directory, volume) = volume();
        let _held = volume.lock().unwrap();
        match name {
            FileName::Lock => {}
            FileName::Log(_) => drop(volume.create_pages(name, 4096).unwrap()),
            FileName::Current => {
                volume.create(FileName::Temporary(7), 0).unwrap().finish().unwrap();
                volume.rename(FileName::Temporary(7), name).unwrap();
            }
            FileName::Member => volume.replace(name, b"whose").unwrap(),
            _ => volume.create(name, 0).unwrap().finish().unwrap(),
        }
        let elsewhere = tempfile::tempdir().unwrap();
        fs::rename(directory.path().join(name.to_string()), elsewhere.path().join(name.to_string())).unwrap();
        let other = DirectoryVolume::open(elsewhere.path()).unwrap();
        assert!(matches!(other.lock(), Err(Error::Locked { .. })), "{name}");
        assert_eq!(other.list().unwrap().len(), 1, "{name}: no LOCK is left behind");
        assert_eq!(volume.failure().is_some(), name != FileName::Lock, "{name}");
    }
}

/// The volume's own changes to its files are no loss. After the lock is released, no loss is reported.
#[test]
fn files_that_the_volume_removes_or_replaces_itself_are_not_lost() {
    let (directory, volume) = volume();
    let held = volume.lock().unwrap();
    for round in 1..4 {
        let log = volume.create_pages(FileName::Log(round), 4096).unwrap();
        log.write(0, &Buffer::new(PAGE_BYTES), 1, true).unwrap();
        volume.replace(FileName::Current, &[round as u8]).unwrap();
        volume.rename(FileName::Log(round), FileName::Spare(round)).unwrap();
        volume.rename(FileName::Spare(round), FileName::Log(round + 100)).unwrap();
        volume.remove(FileName::Log(round + 100)).unwrap();
        log.write(0, &Buffer::new(PAGE_BYTES), 1, true).unwrap();
        assert!(volume.failure().is_none());
    }
    let log = volume.create_pages(FileName::Log(9), 4096).unwrap();
    fs::remove_file(directory.path().join("000009.log")).unwrap();
    let error = log.write(0, &Buffer::new(PAGE_BYTES), 1, true).unwrap_err();
    assert!(error.to_string().contains("000009.log was removed"), "{error}");
    drop(held);
    let _again = volume.lock().unwrap();
    assert!(volume.failure().is_none());
}

/// A store erases dead values in its segments in place. A second name would lose them, too.
#[test]
fn a_table_gets_a_second_name_and_a_segment_does_not() {
    let ((_here, from), (_there, to)) = (volume(), volume());
    for name in [FileName::Table(1), FileName::Values(2)] {
        let mut writer = from.create(name, 4).unwrap();
        writer.append(b"text").unwrap();
        writer.finish().unwrap();
        let is_table = matches!(name, FileName::Table(_));
        assert_eq!(to.link(name, &*from.open(name).unwrap()).unwrap(), is_table);
        assert_eq!(to.open(name).is_ok(), is_table);
    }
}
