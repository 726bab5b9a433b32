//! Buffers that are given up go back to the system, whoever made them. In a process of its own, as it looks
//! at the memory of all of it.
#![cfg(target_os = "linux")]

use super::own_process::in_own_process;
use situ_device::Buffer;
use std::collections::VecDeque;
use std::fs;
use std::sync::Mutex;

fn anonymous_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    1024 * line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
}

/// A store's way with them: each thread fills pieces of 1 MiB and gives them up, and puts units of 64 KiB into a cache from
/// which others' units go, and each has something short to keep. The free room used to stay between all that in the heaps of
/// the threads, several times as large as all buffers that there were.
#[test]
fn long_buffers_that_are_given_up_leave_no_memory_behind() {
    in_own_process(|| {
        const THREADS: usize = 16;
        const UNITS: usize = 128;
        let before = anonymous_bytes();
        let cache = Mutex::new(VecDeque::new());
        let kept = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (cache, kept) = (&cache, &kept);
                scope.spawn(move || {
                    let mut short = Vec::new();
                    for round in 0..20 {
                        let pieces: Vec<Buffer> = (0..4).map(|_| Buffer::copy_of(&[thread as u8; 1 << 20])).collect();
                        for unit in pieces.iter().flat_map(|piece| piece.chunks(64 << 10)).step_by(1 + round % 3) {
                            let mut cache = cache.lock().unwrap();
                            cache.push_back(Buffer::copy_of(unit));
                            let gone = (cache.len() > UNITS).then(|| cache.pop_front());
                            drop((cache, gone));
                            short.push(vec![1u8; 200]);
                        }
                    }
                    kept.lock().unwrap().push(short);
                });
            }
        });
        // The cache, and what is kept for the next: 4 MiB each of five lengths at most.
        let held = anonymous_bytes().saturating_sub(before);
        assert!(held < (UNITS * (64 << 10)) + (24 << 20), "{held} bytes for {UNITS} units");
        drop(cache);
        let held = anonymous_bytes().saturating_sub(before);
        assert!(held < 24 << 20, "{held} bytes for nothing");
    });
}
