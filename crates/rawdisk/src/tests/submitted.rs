//! Reads that are submitted and complete later, on a simulated device: time, order, faults, and who leaves early.

use super::*;
use situ_sim::Rng;
use situ_storage::{FinishedRead, ReadQueue};
use std::time::Duration;

const FILE: FileName = FileName::Table(1);
const FILE_PAGES: u64 = 200;
const READS: u64 = 64;
const TAKES: Duration = Duration::from_millis(10);

fn open_without_cache(env: &Env, device: &SimDevice) -> RawVolume {
    RawVolume::open(device.reached(), env.clone(), RawOptions { cache_bytes: 0 }).unwrap()
}

fn queue(env: &Env, depth: u64) -> ReadQueue {
    ReadQueue::new(env.executor.event(), depth as usize)
}

fn slow(takes: Duration) -> FaultPlan {
    FaultPlan::none().with(Rule::new(Fault::Delay(takes)).on(&[Operation::Read]))
}

fn contents() -> Vec<u8> {
    pattern(1, (FILE_PAGES * PAGE) as usize)
}

/// The device and an open file on it of which the cache knows nothing.
fn on_a_file<T: Send>(seed: u64, body: impl FnOnce(&Env, &SimDevice, &RawVolume, &dyn Reader) -> T + Send) -> T {
    on_a_disk(600, seed, |env, device| {
        let volume = open_without_cache(env, device);
        write(&volume, FILE, &contents()).unwrap();
        let file = volume.open(FILE).unwrap();
        body(env, device, &volume, &*file)
    })
}

/// A page for each tag, in no order.
fn page_of(tag: u64) -> u64 {
    tag * 37 % FILE_PAGES
}

fn submit_pages(queue: &mut ReadQueue, file: &dyn Reader) {
    for tag in 0..READS {
        queue.submit(file, tag, page_of(tag) * PAGE, vec![0; PAGE_BYTES]).unwrap();
    }
}

fn collect(queue: &mut ReadQueue) -> Vec<FinishedRead> {
    let mut done = Vec::new();
    while queue.wait(&mut done) > 0 {}
    assert_eq!(queue.in_flight(), 0);
    done
}

fn is_right(read: &FinishedRead, contents: &[u8]) -> bool {
    read.result.is_ok() && read.buffer == contents[read.offset as usize..][..read.buffer.len()]
}

#[test]
fn sixty_four_reads_of_ten_milliseconds_from_one_thread_take_less_than_two_hundred() {
    for_each_seed(0, 20, |seed| {
        on_a_file(seed, |env, device, _, file| {
            device.set_faults(slow(TAKES));
            let mut queue = queue(env, READS);
            let begun = env.clock.now();
            submit_pages(&mut queue, file);
            let done = collect(&mut queue);
            let took = env.clock.now() - begun;
            assert!(took >= TAKES && took < 5 * TAKES, "{took:?}");
            assert_eq!(done.len() as u64, READS);
            assert!(done.iter().all(|read| is_right(read, &contents())));
            // One after the other.
            let begun = env.clock.now();
            (0..READS).for_each(|tag| file.read_at(page_of(tag) * PAGE, &mut [0; PAGE_BYTES]).unwrap());
            assert!(env.clock.now() - begun >= READS as u32 * TAKES);
        });
    });
}

/// A read that comes while others are in flight does not wait for them.
#[test]
fn a_read_that_comes_later_begins_at_once() {
    for_each_seed(0, 20, |seed| {
        on_a_file(seed, |env, device, _, file| {
            device.set_faults(slow(TAKES));
            let mut queue = queue(env, 2);
            queue.submit(file, 0, 0, vec![0; 10]).unwrap();
            env.clock.sleep(TAKES / 2);
            queue.submit(file, 1, 0, vec![0; 10]).unwrap();
            let begun = env.clock.now();
            collect(&mut queue);
            let took = env.clock.now() - begun;
            assert!(took < TAKES + TAKES / 4, "{took:?}");
        });
    });
}

#[test]
fn the_seed_decides_the_order() {
    let run = |seed| {
        on_a_file(seed, |env, device, _, file| {
            device.set_faults(FaultPlan::none().latency(Duration::ZERO..TAKES));
            let mut queue = queue(env, READS);
            submit_pages(&mut queue, file);
            let order: Vec<u64> = collect(&mut queue).iter().map(|read| read.tag).collect();
            (order, device.trace().hash(), env.clock.now())
        })
    };
    let runs: Vec<_> = (0..5).map(run).collect();
    assert_eq!(runs, (0..5).map(run).collect::<Vec<_>>());
    assert!(runs.windows(2).any(|two| two[0].0 != two[1].0) && !runs[0].0.is_sorted());
}

#[test]
fn a_fault_is_that_of_the_read_that_it_strikes() {
    for_each_seed(0, 20, |seed| {
        on_a_file(seed, |env, device, volume, file| {
            let first = volume.shared.find(FILE).unwrap().meta().extents[0].first;
            let place = |page: u64| (first + page) * PAGE..(first + page + 1) * PAGE;
            let on_read = |fault, page| Rule::new(fault).on(&[Operation::Read]).within(place(page));
            let latency = FaultPlan::none().latency(Duration::ZERO..TAKES);
            let flips = on_read(Fault::FlipBit, page_of(7));
            device.set_faults(latency.with(on_read(Fault::Io, page_of(3))).with(flips));
            let mut queue = queue(env, READS + 2);
            submit_pages(&mut queue, file);
            // Two pages, one of which fails.
            let both = page_of(3).max(1) - 1;
            queue.submit(file, READS, both * PAGE + 100, vec![0; 2 * PAGE_BYTES - 200]).unwrap();
            queue.submit(file, READS + 1, FILE_PAGES * PAGE - 1, vec![0; 2]).unwrap();
            for read in collect(&mut queue) {
                match read.tag {
                    3 | READS => {
                        let error = read.result.unwrap_err().to_string();
                        assert!(
                            error.starts_with(&format!("cannot read 000001.table on {}", volume.location())),
                            "{error}"
                        );
                    }
                    7 => assert!(read.result.is_ok() && !is_right(&read, &contents()), "rot comes through"),
                    tag if tag == READS + 1 => assert!(read.result.unwrap_err().is_corruption()),
                    tag => assert!(is_right(&read, &contents()), "read {tag}: {:?}", read.result),
                }
            }
        });
    });
}

/// Files in pieces, with and without a cache; of all lengths; units that are read whole come into the cache.
#[test]
fn submitted_reads_of_any_length_equal_the_file() {
    for_each_seed(0, 6, |seed| {
        on_a_disk(500, seed, |env, device| {
            let cache_bytes = [0, 8 << 20][seed as usize % 2];
            let open = || RawVolume::open(device.reached(), env.clone(), RawOptions { cache_bytes }).unwrap();
            let volume = open();
            let mut number = 10;
            while write(&volume, FileName::Table(number), &[1; 7 * PAGE_BYTES]).is_ok() {
                number += 1;
            }
            (10..number).step_by(2).for_each(|number| volume.remove(FileName::Table(number)).unwrap());
            volume.sync_names().unwrap();
            let contents = pattern(seed, 130 * PAGE_BYTES - 1000);
            write(&volume, FILE, &contents).unwrap();
            assert_eq!(volume.report().top.fragmented_files, 1);
            drop(volume);
            // Nothing is in the cache of a volume that was just opened.
            let volume = open();
            let file = volume.open(FILE).unwrap();
            let (mut rng, mut queue) = (Rng::new(seed), queue(env, 16));
            let (mut done, mut next) = (Vec::new(), 0);
            while next < 200 || queue.in_flight() > 0 {
                let offset = rng.below(contents.len() as u64);
                let most = [1, 5000, 70_000, 500_000][rng.index(4)].min(contents.len() as u64 - offset);
                let bytes = 1 + rng.below(most) as usize;
                if next == 200 || queue.submit(&*file, next, offset, vec![0; bytes]).is_err() {
                    queue.wait(&mut done);
                } else {
                    next += 1;
                }
            }
            assert!(done.len() == 200 && done.iter().all(|read| is_right(read, &contents)));
            assert_eq!(volume.report().cache.units > 0, cache_bytes > 0);
        });
    });
}

#[test]
fn what_the_cache_has_is_answered_at_once() {
    on_a_disk(600, 1, |env, device| {
        let volume = open(env, device).unwrap();
        write(&volume, FILE, &pattern(1, 200_000)).unwrap();
        volume.replace(FileName::Identity, b"in the catalogue").unwrap();
        device.set_faults(FaultPlan::none().with(Rule::new(Fault::Io).on(&[Operation::Read])));
        let mut queue = queue(env, 3);
        queue.submit(&*volume.open(FILE).unwrap(), 1, 70_000, vec![0; 100_000]).unwrap();
        queue.submit(&*volume.open(FileName::Identity).unwrap(), 2, 7, vec![0; 9]).unwrap();
        queue.submit(&*volume.open(FILE).unwrap(), 3, 5, Vec::new()).unwrap();
        let mut done = Vec::new();
        assert_eq!(queue.poll(&mut done), 3);
        assert!(done.iter().all(|read| read.result.is_ok()));
        assert!(done[0].buffer == pattern(1, 200_000)[70_000..170_000] && done[1].buffer == b"catalogue");
    });
}

/// The reads keep the pages of their file, and nobody waits for reads that nobody wants.
#[test]
fn reads_outlive_their_queue_their_file_its_name_and_the_volume() {
    for_each_seed(0, 20, |seed| {
        on_a_disk(600, seed, |env, device| {
            let volume = open_without_cache(env, device);
            write(&volume, FILE, &contents()).unwrap();
            let file = volume.open(FILE).unwrap();
            let shared = Arc::downgrade(&volume.shared);
            device.set_faults(slow(TAKES));
            let (mut left, mut kept) = (queue(env, READS), queue(env, 1));
            submit_pages(&mut left, &*file);
            kept.submit(&*file, 1, 0, vec![0; 10]).unwrap();
            let begun = env.clock.now();
            drop((left, file));
            volume.remove(FILE).unwrap();
            volume.sync_names().unwrap();
            assert_eq!(volume.report().top.used_bytes, FILE_PAGES * PAGE, "in use by reads");
            if seed % 2 == 0 {
                drop(volume);
                assert!(env.clock.now() - begun < TAKES);
                assert!(is_right(&collect(&mut kept)[0], &contents()));
            } else {
                assert!(is_right(&collect(&mut kept)[0], &contents()));
                env.clock.sleep(2 * TAKES);
                assert_eq!(volume.report().top.used_bytes, 0);
                drop(volume);
            }
            env.clock.sleep(2 * TAKES);
            assert!(shared.upgrade().is_none(), "the volume has ended with its last read");
        });
    });
}

/// Every read is answered, by bytes or by an error, once: then the process is gone.
#[test]
fn the_death_of_the_process_leaves_nobody_waiting() {
    for_each_seed(0, 20, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        let device = SimDevice::new(&env, 600 * PAGE, FaultPlan::none(), seed);
        sim.run(|| {
            format(&env, &device, &small());
            let volume = open_without_cache(&env, &device);
            write(&volume, FILE, &contents()).unwrap();
            device.set_faults(FaultPlan::none().latency(Duration::ZERO..TAKES));
            let file = volume.open(FILE).unwrap();
            let mut queue = queue(&env, READS);
            submit_pages(&mut queue, &*file);
            env.clock.sleep(TAKES / 2);
            sim.kill();
            let done = collect(&mut queue);
            assert_eq!(done.len() as u64, READS);
            assert!(done.iter().all(|read| read.result.is_err() || is_right(read, &contents())));
        });
    });
}

/// A guest that reads beside the writer: what was removed meanwhile does not exist, whatever the pages held.
#[test]
fn a_guest_is_told_of_a_file_that_has_gone_meanwhile() {
    for_each_seed(0, 20, |seed| {
        on_a_file(seed, |env, device, volume, _| {
            write(volume, FileName::Table(2), &pattern(2, 50_000)).unwrap();
            let guest = open_without_cache(env, device);
            let (gone, stays) = (guest.open(FILE).unwrap(), guest.open(FileName::Table(2)).unwrap());
            device.set_faults(slow(TAKES));
            let mut queue = queue(env, 2);
            queue.submit(&*gone, 1, 0, vec![0; 100]).unwrap();
            queue.submit(&*stays, 2, 0, vec![0; 100]).unwrap();
            volume.remove(FILE).unwrap();
            volume.sync_names().unwrap();
            for read in collect(&mut queue) {
                match read.tag {
                    1 => assert!(matches!(read.result, Err(Error::NotFound { .. })), "{:?}", read.result),
                    _ => assert!(is_right(&read, &pattern(2, 50_000)), "{:?}", read.result),
                }
            }
        });
    });
}
