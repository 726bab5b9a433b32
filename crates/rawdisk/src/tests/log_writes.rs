//! Log writes of one thread that are in flight together, on a simulated device.

use super::*;
use situ_storage::PageQueue;
use std::time::Duration;

const PAGES: u64 = 40;

/// A log file on a device that takes `latency` for an operation, of one page at most if `short`.
fn on_a_log<T: Send>(
    seed: u64,
    short: bool,
    body: impl FnOnce(&Env, &SimDevice, &RawVolume, &dyn PageFile) -> T + Send,
) -> T {
    let sim = SimExecutor::new(seed);
    let env = sim.env();
    let geometry = SimDevice::new(&env, 0, FaultPlan::none(), 0).geometry();
    let max_transfer_bytes = if short { PAGE as u32 } else { geometry.max_transfer_bytes };
    let geometry = situ_device::Geometry { max_transfer_bytes, ..geometry };
    let device = SimDevice::with_geometry(&env, 300 * PAGE, geometry, FaultPlan::none(), seed);
    sim.run(|| {
        format(&env, &device, &small());
        let volume = open(&env, &device).unwrap();
        let file = volume.create_pages(FileName::Log(1), PAGES * PAGE).unwrap();
        device.set_faults(FaultPlan::none().latency(LATENCY..LATENCY));
        body(&env, &device, &volume, &*file)
    })
}

const LATENCY: Duration = Duration::from_millis(1);

/// Waits until all `begun` writes have ended.
fn land(queue: &mut dyn PageQueue, begun: usize) -> Vec<(u64, Result<()>)> {
    let mut ended = Vec::new();
    while ended.len() < begun {
        queue.wait(&mut ended, &|| false);
    }
    ended.sort_by_key(|(number, _)| *number);
    ended
}

#[test]
fn writes_are_in_flight_together_and_are_found() {
    for_each_seed(30, 10, |seed| {
        on_a_log(seed, seed % 2 == 0, |env, _, _, file| {
            let mut queue = file.queue().unwrap();
            let bytes = pattern(seed, (PAGES * PAGE) as usize);
            let begun = env.clock.now();
            // The third has more pieces than the device takes at a time, where a piece is a page.
            let cuts = [0, 1, 3, 38, PAGES as usize];
            for cut in cuts.windows(2) {
                queue.begin(cut[0] as u64, &bytes[cut[0] * PAGE_BYTES..cut[1] * PAGE_BYTES], true);
            }
            for (number, (named, outcome)) in land(&mut *queue, 4).into_iter().enumerate() {
                assert!(named == number as u64 && outcome.is_ok(), "{named}: {outcome:?}");
            }
            let took = env.clock.now() - begun;
            assert!(took < 4 * LATENCY, "the device has them at a time: {took:?}");
            let mut found = vec![0; bytes.len()];
            file.read_at(0, &mut found).unwrap();
            assert!(found == bytes);
        });
    });
}

#[test]
fn a_write_that_fails_says_so_and_the_others_do_not() {
    for_each_seed(40, 10, |seed| {
        on_a_log(seed, seed % 2 == 0, |_, device, _, file| {
            let mut queue = file.queue().unwrap();
            let rule = Rule::new(Fault::Io).on(&[Operation::WritePages]).nth(3);
            device.set_faults(FaultPlan::none().latency(LATENCY..LATENCY).with(rule));
            for page in 0..5 {
                queue.begin(page, &pattern(page, PAGE_BYTES), true);
            }
            let failed: Vec<u64> =
                land(&mut *queue, 5).into_iter().filter(|(_, outcome)| outcome.is_err()).map(|(n, _)| n).collect();
            assert_eq!(failed, [3], "the fourth");
        });
    });
}

#[test]
fn a_call_ends_the_wait() {
    on_a_log(1, false, |env, _, _, file| {
        let mut queue = file.queue().unwrap();
        queue.begin(0, &pattern(1, PAGE_BYTES), true);
        let called = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (watch, other, clock) = (queue.watch(), Arc::clone(&called), Arc::clone(&env.clock));
        let call = move || {
            clock.sleep(LATENCY / 4);
            other.store(true, std::sync::atomic::Ordering::SeqCst);
            watch.wake();
        };
        let caller = env.executor.spawn("caller", Box::new(call)).unwrap();
        let (begun, mut ended) = (env.clock.now(), Vec::new());
        let is_called = || called.load(std::sync::atomic::Ordering::SeqCst);
        while !is_called() {
            queue.wait(&mut ended, &is_called);
        }
        assert!(ended.is_empty() && env.clock.now() - begun < LATENCY / 2);
        caller.join().unwrap();
        assert_eq!(land(&mut *queue, 1).len(), 1);
    });
}

/// The queue of the device goes from file to file, and what is dropped in flight is waited for.
#[test]
fn a_queue_that_is_dropped_leaves_nothing_in_flight() {
    on_a_log(2, false, |_, _, volume, file| {
        for round in 0..3 {
            let mut queue = file.queue().unwrap();
            queue.begin(round, &pattern(round, PAGE_BYTES), true);
            if round < 2 {
                land(&mut *queue, 1);
            }
            drop(queue);
            assert!(volume.shared.transfers.log_is_busy(), "it just was");
        }
        let mut queue = file.queue().unwrap();
        queue.begin(PAGES - 1, &pattern(9, PAGE_BYTES), true);
        assert!(land(&mut *queue, 1)[0].1.is_ok());
    });
}
