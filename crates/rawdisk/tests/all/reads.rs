//! Reads that are submitted by one thread and complete later, on each kind of volume: the right bytes, each error at its own
//! read, and nobody left waiting when somebody leaves early.

use crate::volumes::each;
use situ_base::Env;
use situ_sim::Rng;
use situ_storage::{DirectoryVolume, FileName, FinishedRead, ReadQueue, Reader, Volume};
use std::sync::Arc;

const TABLE: FileName = FileName::Table(1);
const BYTES: usize = 2_000_000;

fn queue(depth: usize) -> ReadQueue {
    ReadQueue::new(Env::system().executor.event(), depth)
}

fn contents(seed: u64) -> Vec<u8> {
    let mut contents = vec![0; BYTES];
    Rng::new(seed).fill(&mut contents);
    contents
}

fn write(volume: &dyn Volume, name: FileName, contents: &[u8]) -> Arc<dyn Reader> {
    let mut writer = volume.create(name, contents.len() as u64).unwrap();
    writer.append(contents).unwrap();
    writer.finish().unwrap();
    volume.open(name).unwrap()
}

fn is_right(read: &FinishedRead, contents: &[u8]) -> bool {
    read.result.is_ok() && read.buffer == contents[read.offset as usize..][..read.buffer.len()]
}

fn collect(queue: &mut ReadQueue) -> Vec<FinishedRead> {
    let mut done = Vec::new();
    while queue.wait(&mut done) > 0 {}
    done.sort_by_key(|read| read.tag);
    done
}

#[test]
fn sixty_four_reads_in_flight_have_the_right_bytes_and_their_own_errors() {
    each(|kind| {
        let contents = contents(1);
        let file = write(&*kind.volume, TABLE, &contents);
        let (mut rng, mut queue) = (Rng::new(2), queue(64));
        for round in 0..5 {
            for tag in 0..61 {
                let offset = rng.below(BYTES as u64 - 4096);
                queue.submit(&*file, tag, offset, vec![0; 4096]).unwrap();
            }
            queue.submit(&*file, 61, BYTES as u64 - 4095, vec![0; 4096]).unwrap();
            queue.submit(&*file, 62, 1 << 40, vec![0; 1]).unwrap();
            queue.submit(&*file, 63, 1000 * round, vec![0; 1_500_001]).unwrap();
            assert_eq!(queue.submit(&*file, 64, 0, vec![0; 9]), Err(vec![0; 9]), "busy");
            let done = collect(&mut queue);
            assert_eq!(done.len(), 64);
            for read in done {
                match (read.tag, &read.result) {
                    (61 | 62, Err(error)) => {
                        assert!(error.is_corruption(), "{error}");
                        let text = error.to_string();
                        assert!(text.contains("000001.table") && text.contains(&format!("at {BYTES}")), "{text}");
                    }
                    _ => assert!(is_right(&read, &contents), "a {}, read {}: {:?}", kind.name, read.tag, read.result),
                }
            }
        }
    });
}

#[test]
fn threads_with_queues_of_their_own_read_files_that_come_and_go() {
    each(|kind| {
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let volume = &kind.volume;
                scope.spawn(move || {
                    for round in 0..6 {
                        let name = FileName::Table(thread * 100 + round);
                        let contents = &contents(thread * 100 + round)[..300_000];
                        let file = write(&**volume, name, contents);
                        let (mut rng, mut queue) = (Rng::new(round), queue(32));
                        for tag in 0..32 {
                            let bytes = 1 + rng.index(60_000);
                            let offset = rng.below((contents.len() - bytes) as u64);
                            queue.submit(&*file, tag, offset, vec![0; bytes]).unwrap();
                        }
                        drop(file);
                        volume.remove(name).unwrap();
                        volume.sync_names().unwrap();
                        if round % 3 == 2 {
                            // Leaves with reads in flight.
                            continue;
                        }
                        let done = collect(&mut queue);
                        assert!(done.len() == 32 && done.iter().all(|read| is_right(read, contents)), "{name}");
                    }
                });
            }
        });
    });
}

#[test]
fn reads_complete_though_their_file_and_their_volume_are_dropped() {
    each(|kind| {
        let contents = contents(3);
        drop(write(&*kind.volume, TABLE, &contents));
        for round in 0..20 {
            let volume = kind.open_again();
            let file = volume.open(TABLE).unwrap();
            let (mut left, mut kept) = (queue(64), queue(64));
            for tag in 0..64 {
                left.submit(&*file, tag, tag * 30_000, vec![0; 4096]).unwrap();
                kept.submit(&*file, tag, tag * 30_000 + round, vec![0; 4096]).unwrap();
            }
            drop((left, file, volume));
            let done = collect(&mut kept);
            assert!(done.len() == 64 && done.iter().all(|read| is_right(read, &contents)));
        }
    });
}

#[test]
fn a_file_of_a_directory_that_is_cut_damaged_or_removed_meanwhile_answers_each_read_for_itself() {
    let directory = tempfile::tempdir().unwrap();
    let volume = DirectoryVolume::open(directory.path()).unwrap();
    let path = directory.path().join("000001.table");
    let contents = contents(4);
    let file = write(&volume, TABLE, &contents);
    let mut queue = queue(64);
    let submit = |queue: &mut ReadQueue| {
        (0..64).for_each(|tag| queue.submit(&*file, tag, tag * 31_000, vec![0; 4096]).unwrap());
    };

    // A byte has rotted: the read that covers it has it, and no other read.
    let mut damaged = contents.clone();
    damaged[20 * 31_000 + 17] ^= 4;
    std::fs::write(&path, &damaged).unwrap();
    submit(&mut queue);
    for read in collect(&mut queue) {
        assert_eq!(is_right(&read, &contents), read.tag != 20, "read {}", read.tag);
        assert!(is_right(&read, &damaged));
    }

    // Cut: what was behind the end is an error that names the file, the place and the end.
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(40 * 31_000 + 100).unwrap();
    submit(&mut queue);
    for read in collect(&mut queue) {
        match &read.result {
            Err(error) if read.tag >= 40 => {
                let text = error.to_string();
                let place = format!("damaged at byte {}", read.tag * 31_000);
                assert!(error.is_corruption() && text.contains("000001.table") && text.contains(&place), "{text}");
                assert!(text.contains("the end of the file at 1240100"), "{text}");
            }
            _ => assert!(read.tag < 40 && is_right(&read, &damaged), "read {}: {:?}", read.tag, read.result),
        }
    }

    // Removed: an open file outlives its name.
    volume.remove(TABLE).unwrap();
    submit(&mut queue);
    let done = collect(&mut queue);
    assert!(done.iter().all(|read| read.result.is_ok() == (read.tag < 40)));
}
