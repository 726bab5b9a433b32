use super::world::LEAP_STEPS;
use super::*;
use crate::for_each_seed;
use situ_base::Clock;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

fn failure_of(run: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(run)).expect_err("the run must fail");
    panic_message(&*payload)
}

/// Three threads append to a list with yield points between; the order is the schedule.
fn schedule(seed: u64) -> (Vec<(u32, u32)>, u64) {
    let sim = SimExecutor::new(seed);
    let executor = sim.env().executor;
    let order = Arc::new(Mutex::new(Vec::new()));
    sim.run(|| {
        let jobs: Vec<_> = (0..3)
            .map(|thread| {
                let (order, yielding) = (Arc::clone(&order), Arc::clone(&executor));
                let job = move || {
                    for step in 0..5 {
                        order.lock().unwrap().push((thread, step));
                        yielding.yield_point();
                    }
                };
                executor.spawn(&format!("worker {thread}"), Box::new(job)).unwrap()
            })
            .collect();
        jobs.iter().for_each(|job| job.join().unwrap());
    });
    let order = order.lock().unwrap().clone();
    (order, sim.trace().hash())
}

#[test]
fn one_seed_gives_one_schedule_and_many_seeds_give_many() {
    let first = schedule(7);
    assert_eq!(first.0.len(), 15);
    assert_eq!(first, schedule(7));
    let different: std::collections::BTreeSet<_> = (0..50).map(|seed| schedule(seed).0).collect();
    assert!(different.len() > 30, "only {} schedules in 50 seeds", different.len());
}

#[test]
fn time_leaps_over_waiting_and_timeouts_come_in_order() {
    let sim = SimExecutor::new(1);
    let env = sim.env();
    let started = Instant::now();
    let order = Arc::new(Mutex::new(Vec::new()));
    sim.run(|| {
        let jobs: Vec<_> = [30, 10, 20]
            .map(|hours: u64| {
                let (env, order) = (env.clone(), Arc::clone(&order));
                let job = move || {
                    let event = env.executor.event();
                    assert!(!event.wait(event.generation(), Some(Duration::from_secs(hours * 3600))));
                    order.lock().unwrap().push(hours);
                };
                sim.spawn("sleeper", Box::new(job)).unwrap()
            })
            .into();
        jobs.iter().for_each(|job| job.join().unwrap());
    });
    assert_eq!(*order.lock().unwrap(), [10, 20, 30]);
    assert!(env.clock.now() >= Duration::from_secs(30 * 3600));
    assert!(started.elapsed() < Duration::from_secs(5), "simulated hours took real time");
}

#[test]
fn a_notification_wakes_every_waiter_and_none_is_missed() {
    for_each_seed(0, 50, |seed| {
        let sim = SimExecutor::new(seed);
        let executor = sim.env().executor;
        let woken = Arc::new(AtomicU32::new(0));
        sim.run(|| {
            let event = executor.event();
            let open = Arc::new(AtomicU32::new(0));
            let jobs: Vec<_> = (0..4)
                .map(|_| {
                    let (event, open, woken) = (Arc::clone(&event), Arc::clone(&open), Arc::clone(&woken));
                    let job = move || {
                        loop {
                            let seen = event.generation();
                            if open.load(Ordering::SeqCst) == 1 {
                                break;
                            }
                            event.wait(seen, None);
                        }
                        woken.fetch_add(1, Ordering::SeqCst);
                    };
                    executor.spawn("waiter", Box::new(job)).unwrap()
                })
                .collect();
            executor.yield_point();
            open.store(1, Ordering::SeqCst);
            event.notify();
            jobs.iter().for_each(|job| job.join().unwrap());
        });
        assert_eq!(woken.load(Ordering::SeqCst), 4);
    });
}

#[test]
fn a_deadlock_is_reported_with_names_and_seed() {
    let message = failure_of(|| {
        let sim = SimExecutor::new(77);
        let executor = sim.env().executor;
        sim.run(|| {
            let event = executor.event();
            let job = {
                let event = Arc::clone(&event);
                executor
                    .spawn("lonely waiter", Box::new(move || assert!(!event.wait(event.generation(), None))))
                    .unwrap()
            };
            job.join().unwrap();
        });
    });
    assert!(message.contains("deadlock"), "{message}");
    assert!(message.contains("seed 77"), "{message}");
    assert!(message.contains("lonely waiter: waits for event 1, without a timeout"), "{message}");
    assert!(message.contains("main: joins lonely waiter"), "{message}");
}

#[test]
fn a_race_between_look_and_wait_is_found() {
    // The bug: the generation is read after the condition, so a notification in between is lost.
    let found = (0..100).any(|seed| {
        let run = || {
            let sim = SimExecutor::new(seed);
            let executor = sim.env().executor;
            sim.run(|| {
                let (event, open) = (executor.event(), Arc::new(AtomicU32::new(0)));
                let job = {
                    let (event, open, yielding) = (Arc::clone(&event), Arc::clone(&open), Arc::clone(&executor));
                    let job = move || {
                        while open.load(Ordering::SeqCst) == 0 {
                            yielding.yield_point();
                            event.wait(event.generation(), None);
                        }
                    };
                    executor.spawn("buggy", Box::new(job)).unwrap()
                };
                open.store(1, Ordering::SeqCst);
                event.notify();
                job.join().unwrap();
            });
        };
        catch_unwind(AssertUnwindSafe(run)).is_err()
    });
    assert!(found, "no seed in 100 loses the notification");
}

#[test]
fn panics_are_told_by_join_or_else_by_run() {
    let sim = SimExecutor::new(3);
    let told = sim.run(|| sim.spawn("doomed", Box::new(|| panic!("on purpose"))).unwrap().join());
    assert_eq!(told, Err("on purpose".to_owned()));
    let message = failure_of(|| {
        sim.run(|| {
            drop(sim.spawn("doomed", Box::new(|| panic!("unseen"))).unwrap());
            sim.clock().sleep(Duration::from_secs(1));
        });
    });
    assert!(message.contains("thread doomed panicked and nobody joined it: unseen"), "{message}");
    let message = failure_of(|| sim.run(|| panic!("in main")));
    assert!(message.contains("main panicked: in main") && message.contains("seed 3"), "{message}");
}

#[test]
fn a_deadlock_after_a_panic_names_the_panic() {
    let message = failure_of(|| {
        let sim = SimExecutor::new(4);
        sim.run(|| {
            let event = sim.event();
            drop(sim.spawn("waker", Box::new(|| panic!("before waking"))).unwrap());
            event.wait(event.generation(), None);
        });
    });
    assert!(message.contains("waker panicked") && message.contains("deadlock"), "{message}");
}

#[test]
fn polling_the_clock_ends_and_starves_no_timeout() {
    let sim = SimExecutor::new(2);
    let ticks = Arc::new(AtomicU32::new(0));
    sim.run(|| {
        let (clock, ticking) = (sim.clock(), Arc::clone(&ticks));
        let job = move || {
            for _ in 0..3 {
                clock.sleep(Duration::from_secs(1));
                ticking.fetch_add(1, Ordering::SeqCst);
            }
        };
        sim.spawn("periodic", Box::new(job)).unwrap();
        while ticks.load(Ordering::SeqCst) < 3 {
            sim.yield_point();
        }
    });
    assert!(sim.steps() < 4 * LEAP_STEPS, "{} steps", sim.steps());
}

#[test]
fn kill_ends_all_other_threads_where_they_stand() {
    for_each_seed(0, 200, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        let (steps, dropped) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        sim.run(|| {
            for number in 0..3 {
                let (env, steps, dropped) = (env.clone(), Arc::clone(&steps), Arc::clone(&dropped));
                let job = move || {
                    let event = env.executor.event();
                    // A destructor that blocks, as a store's does.
                    let _guard = OnDrop(|| {
                        dropped.fetch_add(1, Ordering::SeqCst);
                        event.notify();
                        event.wait(event.generation(), None);
                    });
                    loop {
                        steps.fetch_add(1, Ordering::SeqCst);
                        match number {
                            0 => env.executor.yield_point(),
                            1 => drop(event.wait(event.generation(), Some(Duration::from_secs(1)))),
                            _ => drop(event.wait(event.generation(), None)),
                        }
                    }
                };
                sim.spawn("immortal", Box::new(job)).unwrap();
            }
            env.clock.sleep(Duration::from_micros(50));
            sim.kill();
            let after = steps.load(Ordering::SeqCst);
            env.clock.sleep(Duration::from_secs(10));
            assert_eq!(steps.load(Ordering::SeqCst), after, "a killed thread took a step");
            // The machine can be used again.
            sim.spawn("next life", Box::new(|| ())).unwrap().join().unwrap();
        });
        assert_eq!(dropped.load(Ordering::SeqCst), 3);
    });
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn threads_left_behind_end_with_the_run() {
    let threads = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let before = threads();
    for seed in 0..300 {
        let sim = SimExecutor::new(seed);
        sim.run(|| {
            for _ in 0..4 {
                let event = sim.event();
                sim.spawn("left behind", Box::new(move || assert!(!event.wait(event.generation(), None)))).unwrap();
            }
        });
    }
    // Other tests run at the same time; 1200 leaked threads would show.
    assert!(threads() < before + 200, "threads leak: {before} before, {} after", threads());
}

#[test]
fn a_lock_held_across_a_yield_point_aborts_with_names() {
    const CHILD: &str = "SITU_SIM_WATCHDOG_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let sim = SimExecutor::new(5);
        sim.set_watchdog(Duration::from_millis(200));
        sim.run(|| {
            let lock = Arc::new(Mutex::new(()));
            let (theirs, yielding) = (Arc::clone(&lock), sim.clone());
            let holder = sim.spawn(
                "holder",
                Box::new(move || {
                    let _guard = theirs.lock();
                    yielding.clock().sleep(Duration::from_secs(1));
                }),
            );
            let yielding = sim.env().executor;
            (0..100).for_each(|_| yielding.yield_point());
            drop(lock.lock());
            drop(holder);
        });
        return;
    }
    let name = "executor::tests::a_lock_held_across_a_yield_point_aborts_with_names";
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success());
    assert!(told.contains("no yield point") && told.contains("holder: sleeps"), "{told}");
}
