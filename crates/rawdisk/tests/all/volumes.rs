//! What every volume does, on each kind there is: a directory, a raw volume in a file by plain calls and by what suits it, a
//! raw volume on a simulated device, and raw volumes on what `SITU_TEST_DISKS` names: paths of devices of 24 MiB and more,
//! separated by spaces, **which are overwritten**.

use crate::skipped::skipped;
use situ_base::Env;
use situ_device::{FileDevice, PAGE_BYTES};
use situ_rawdisk::{FormatOptions, RawOptions, RawVolume};
use situ_sim::{FaultPlan, SimDevice};
use situ_storage::{Buffer, DirectoryVolume, Error, FileMeta, FileName, Volume};
use std::io::Write as _;
use std::sync::Arc;

const PAGE: u64 = PAGE_BYTES as u64;
const DEVICE_BYTES: u64 = 24 << 20;

/// A volume, and what has to live as long.
pub(crate) struct Kind {
    pub(crate) name: String,
    pub(crate) volume: Arc<dyn Volume>,
    /// The same volume, opened a second time.
    again: Box<dyn Fn() -> Arc<dyn Volume>>,
    _directory: tempfile::TempDir,
}

impl Kind {
    pub(crate) fn open_again(&self) -> Arc<dyn Volume> {
        (self.again)()
    }
}

fn raw(device: Arc<dyn situ_device::Device>) -> Arc<dyn Volume> {
    Arc::new(RawVolume::open(device, Env::system(), RawOptions { cache_bytes: 4 << 20 }).unwrap())
}

fn kinds() -> Vec<Kind> {
    let directory = || tempfile::tempdir().unwrap();
    let options = FormatOptions { log_bytes: Some(8 << 20), ..FormatOptions::default() };

    let place = directory();
    let path = place.path().to_owned();
    let open = move || Arc::new(DirectoryVolume::open(&path).unwrap()) as Arc<dyn Volume>;
    let in_directory = Kind { name: "directory".into(), volume: open(), again: Box::new(open), _directory: place };

    let place = directory();
    let path = place.path().join("disk");
    std::fs::File::create(&path).unwrap().set_len(DEVICE_BYTES).unwrap();
    let open = move || Arc::new(FileDevice::open(&path).unwrap());
    RawVolume::format(open(), Env::system(), &options).unwrap();
    let in_file = Kind {
        name: "raw volume in a file".into(),
        volume: raw(open()),
        again: Box::new(move || raw(open())),
        _directory: place,
    };

    let place = directory();
    let path = place.path().join("disk");
    std::fs::File::create(&path).unwrap().write_all(&vec![0; DEVICE_BYTES as usize]).unwrap();
    let open = move || situ_device::open(&path, situ_device::OpenOptions::default()).unwrap();
    RawVolume::format(open(), Env::system(), &options).unwrap();
    let chosen = Kind {
        name: "raw volume on the backend that suits a file".into(),
        volume: raw(open()),
        again: Box::new(move || raw(open())),
        _directory: place,
    };

    let device = SimDevice::new(&Env::system(), DEVICE_BYTES, FaultPlan::none(), 1);
    RawVolume::format(Arc::new(device.clone()), Env::system(), &options).unwrap();
    let simulated = Kind {
        name: "raw volume on a simulated device".into(),
        volume: raw(Arc::new(device.clone())),
        again: Box::new(move || raw(Arc::new(device.clone()))),
        _directory: directory(),
    };
    let named = std::env::var("SITU_TEST_DISKS").unwrap_or_default();
    let named = named.split_whitespace().map(|path| {
        let (name, path) = (format!("raw volume on {path}"), std::path::PathBuf::from(path));
        let open = move || situ_device::open(&path, situ_device::OpenOptions::default()).unwrap();
        RawVolume::format(open(), Env::system(), &FormatOptions { force: true, ..options }).unwrap();
        Kind { name, volume: raw(open()), again: Box::new(move || raw(open())), _directory: directory() }
    });
    [in_directory, in_file, chosen, simulated].into_iter().chain(named).collect()
}

pub(crate) fn each(test: impl Fn(&Kind)) {
    for kind in kinds() {
        eprintln!("on a {}", kind.name);
        test(&kind);
    }
}

fn read(volume: &dyn Volume, name: FileName) -> Vec<u8> {
    let reader = volume.open(name).unwrap();
    let mut bytes = vec![0; reader.bytes() as usize];
    reader.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_finished_file_reads_back() {
    each(|kind| {
        let mut writer = kind.volume.create(FileName::Table(1), 0).unwrap();
        let mut all = Vec::new();
        for i in 0..3000u32 {
            let piece = vec![i as u8; (i % 977) as usize];
            writer.append(&piece).unwrap();
            all.extend(piece);
        }
        writer.append(&vec![3; 3 << 20]).unwrap();
        all.extend(vec![3; 3 << 20]);
        assert_eq!(writer.written(), all.len() as u64);
        writer.finish().unwrap();
        for volume in [Arc::clone(&kind.volume), (kind.again)()] {
            assert!(read(&*volume, FileName::Table(1)) == all);
            let reader = volume.open(FileName::Table(1)).unwrap();
            assert_eq!(reader.bytes(), all.len() as u64);
            for (offset, length) in [(0, 1), (4095, 2), (65_535, 70_000), (1 << 20, 1), (all.len() - 1, 1), (77, 0)] {
                let mut some = vec![0; length];
                reader.read_at(offset as u64, &mut some).unwrap();
                assert!(some == all[offset..offset + length], "{length} bytes at {offset}");
            }
            let past = reader.read_at(all.len() as u64 - 1, &mut [0; 2]).unwrap_err();
            assert!(past.is_corruption(), "{past}");
            assert!(reader.read_at(1 << 40, &mut [0; 2]).unwrap_err().is_corruption());
        }
    });
}

#[test]
fn a_file_is_there_after_each_sync_and_each_flush() {
    each(|kind| {
        let mut writer = kind.volume.create(FileName::Manifest(1), 100).unwrap();
        let mut all = Vec::new();
        for round in 0..20u8 {
            let piece = vec![round; 1000 * usize::from(round)];
            writer.append(&piece).unwrap();
            all.extend(piece);
            if round % 2 == 0 { writer.sync() } else { writer.flush() }.unwrap();
            assert!(read(&*kind.volume, FileName::Manifest(1)) == all);
            assert!(read(&*(kind.again)(), FileName::Manifest(1)) == all);
        }
        writer.finish().unwrap();
        assert!(read(&*kind.volume, FileName::Manifest(1)) == all);
    });
}

#[test]
fn pages_written_either_way_read_back() {
    each(|kind| {
        let file = kind.volume.create_pages(FileName::Log(1), 8 * PAGE).unwrap();
        assert_eq!(file.pages(), 8);
        let mut buffer = Buffer::new(2 * PAGE_BYTES);
        for round in 0..4u8 {
            buffer.fill(round + 1);
            file.write(1, &buffer, 2, round % 2 == 0).unwrap();
            let mut read = vec![0; 4 * PAGE_BYTES];
            file.read_at(0, &mut read).unwrap();
            assert!(read[..PAGE_BYTES].iter().all(|b| *b == 0));
            assert!(read[PAGE_BYTES..3 * PAGE_BYTES].iter().all(|b| *b == round + 1));
            let mut some = vec![0; 100];
            file.read_at(PAGE - 50, &mut some).unwrap();
            assert!(some[..50].iter().all(|b| *b == 0) && some[50..].iter().all(|b| *b == round + 1));
        }
        file.sync().unwrap();
        assert!(file.read_at(8 * PAGE - 1, &mut [0; 2]).is_err());
        let again = (kind.again)().open_pages(FileName::Log(1)).unwrap();
        let mut read = vec![0; PAGE_BYTES];
        again.read_at(PAGE, &mut read).unwrap();
        assert!(again.pages() == 8 && read.iter().all(|b| *b == 4));
    });
}

#[test]
fn threads_write_pages_of_their_own() {
    each(|kind| {
        let pages = 512;
        let file = kind.volume.create_pages(FileName::Log(1), pages * PAGE).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let file = &file;
                scope.spawn(move || {
                    let mut buffer = Buffer::new(PAGE_BYTES);
                    for page in (thread..pages).step_by(4) {
                        buffer.fill(page as u8 | 1);
                        file.write(page, &buffer, 1, (page / 4) % 3 == 0).unwrap();
                    }
                });
            }
        });
        let mut read = vec![0; (pages * PAGE) as usize];
        file.read_at(0, &mut read).unwrap();
        for (page, bytes) in read.chunks(PAGE_BYTES).enumerate() {
            assert!(bytes.iter().all(|byte| *byte == page as u8 | 1), "page {page}");
        }
    });
}

#[test]
fn threads_write_read_and_remove_files_of_their_own() {
    each(|kind| {
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let volume = &kind.volume;
                scope.spawn(move || {
                    for round in 0..12 {
                        let name = FileName::Table(thread * 100 + round);
                        let bytes = vec![(thread * 16 + round) as u8; 10_000 * (round as usize + 1)];
                        let mut writer = volume.create(name, bytes.len() as u64).unwrap();
                        bytes.chunks(3000).for_each(|piece| writer.append(piece).unwrap());
                        writer.finish().unwrap();
                        assert!(read(&**volume, name) == bytes);
                        if round % 2 == 0 {
                            volume.remove(name).unwrap();
                            volume.sync_names().unwrap();
                        }
                    }
                });
            }
        });
        assert_eq!(kind.volume.list().unwrap().len(), 24);
        assert_eq!((kind.again)().list().unwrap().len(), 24);
    });
}

#[test]
fn a_second_opener_is_told_so() {
    each(|kind| {
        let lock = kind.volume.lock().unwrap();
        assert!(matches!(kind.volume.lock(), Err(Error::Locked { .. })));
        assert!(matches!((kind.again)().lock(), Err(Error::Locked { .. })));
        drop(lock);
        kind.volume.lock().unwrap();
    });
}

#[test]
fn small_files_are_replaced_whole() {
    each(|kind| {
        for length in [0, 1, 15, 1024, 1025, 70_000, 3] {
            let contents = vec![length as u8; length];
            kind.volume.replace(FileName::Identity, &contents).unwrap();
            assert!(read(&*kind.volume, FileName::Identity) == contents);
            assert!(read(&*(kind.again)(), FileName::Identity) == contents);
            let listed = [FileMeta { name: FileName::Identity, bytes: length as u64 }];
            assert_eq!(kind.volume.list().unwrap(), listed);
        }
    });
}

#[test]
fn names_change_as_they_are_told_to() {
    each(|kind| {
        let volume = &kind.volume;
        let list = || volume.list().unwrap().into_iter().map(|meta| meta.name).collect::<Vec<_>>();
        volume.replace(FileName::Temporary(1), b"one").unwrap();
        volume.replace(FileName::Temporary(2), b"two").unwrap();
        volume.rename(FileName::Temporary(1), FileName::Temporary(1)).unwrap();
        volume.rename(FileName::Temporary(1), FileName::Identity).unwrap();
        assert_eq!(read(&**volume, FileName::Identity), b"one");
        volume.rename(FileName::Temporary(2), FileName::Identity).unwrap();
        assert_eq!(read(&**volume, FileName::Identity), b"two");
        assert_eq!(list(), [FileName::Identity]);
        volume.remove(FileName::Identity).unwrap();
        volume.sync_names().unwrap();
        assert_eq!((list(), (kind.again)().list().unwrap()), (vec![], vec![]));
    });
}

#[test]
fn names_are_not_written_over_and_missing_ones_are_named() {
    each(|kind| {
        let volume = &kind.volume;
        drop(volume.create(FileName::Table(1), 0).unwrap());
        assert!(volume.create(FileName::Table(1), 0).is_err());
        volume.create_pages(FileName::Log(1), PAGE).unwrap();
        assert!(volume.create_pages(FileName::Log(1), PAGE).is_err());
        assert!(volume.open_pages(FileName::Log(1)).is_ok());
        let missing = [
            volume.open(FileName::Table(2)).err(),
            volume.open_pages(FileName::Table(2)).err(),
            volume.remove(FileName::Table(2)).err(),
            volume.rename(FileName::Table(2), FileName::Table(3)).err(),
        ];
        for error in missing {
            let error = error.unwrap();
            assert!(matches!(error, Error::NotFound { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("000002.table") && text.ends_with("does not exist"), "{text}");
        }
    });
}

/// Without waiting for the disk: what the page cache has of a directory's file. A raw disk has caches of its own.
#[test]
fn what_is_read_at_once_is_what_is_there() {
    each(|kind| {
        let content: Vec<u8> = (0..300_000u32).map(|at| (at / 3) as u8).collect();
        let mut writer = kind.volume.create(FileName::Table(1), 300_000).unwrap();
        writer.append(&content).unwrap();
        writer.finish().unwrap();
        let reader = kind.volume.open(FileName::Table(1)).unwrap();
        let mut some = vec![0; 5000];
        if !reader.read_now(100_000, &mut some).unwrap() {
            return skipped(format_args!("a {} cannot tell", kind.name));
        }
        assert!(some == content[100_000..105_000]);
        assert!(!reader.read_now(299_000, &mut some).is_ok_and(|is_there| is_there), "it ends before");
    });
}

/// On a file system that has a page cache and tells of it, which one in memory does not.
#[test]
fn what_the_page_cache_has_is_read_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("000001.table");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    file.sync_all().unwrap();
    let volume = DirectoryVolume::open(directory.path()).unwrap();
    let reader = volume.open(FileName::Table(1)).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut some = [0; 100];
    if reader.read_now(500_000, &mut some).unwrap() {
        return skipped("this file system keeps all in memory");
    }
    reader.read_at(500_000, &mut some).unwrap();
    assert!(reader.read_now(500_000, &mut some).unwrap() && some == [7; 100]);
}

#[test]
fn an_open_file_outlives_its_name() {
    each(|kind| {
        let volume = &kind.volume;
        for (number, byte) in [(1, 1u8), (2, 2)] {
            let mut writer = volume.create(FileName::Table(number), 200_000).unwrap();
            writer.append(&vec![byte; 200_000]).unwrap();
            writer.finish().unwrap();
        }
        let removed = volume.open(FileName::Table(1)).unwrap();
        let replaced = volume.open(FileName::Table(2)).unwrap();
        let pages = volume.create_pages(FileName::Log(1), PAGE).unwrap();
        volume.remove(FileName::Table(1)).unwrap();
        volume.remove(FileName::Log(1)).unwrap();
        volume.replace(FileName::Table(2), b"other").unwrap();
        volume.sync_names().unwrap();
        let mut writer = volume.create(FileName::Table(3), 8 << 20).unwrap();
        writer.append(&vec![3; 8 << 20]).unwrap();
        writer.finish().unwrap();
        for (reader, byte) in [(removed, 1), (replaced, 2)] {
            let mut bytes = vec![0; 200_000];
            reader.read_at(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|found| *found == byte));
        }
        pages.write(0, &Buffer::new(PAGE_BYTES), 1, true).unwrap();
    });
}
