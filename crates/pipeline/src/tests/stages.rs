//! The stages one by one: what a write asks of its environment, who waits for whom, and what fails with what.

use super::shelves::{POISON, Plan, Shelves, Stop, Things, World};
use crate::{Pipeline, Write, WriteFuture};
use situ_log::Durability::{self, Buffered, Synced};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rule, SimExecutor, SimVolume, for_each_seed, wait};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Runs `test` with a pipeline and the threads that serve it, which end then.
fn with_world(seed: u64, plan: &Plan, test: impl FnOnce(&World, &SimVolume) + Send) {
    let executor = SimExecutor::new(seed);
    executor.run(|| {
        let env = executor.env();
        let volume = SimVolume::new(&env, FaultPlan::none(), seed);
        let mut world = World::with_threads(&env, Arc::new(volume.clone()), plan).unwrap();
        test(&world, &volume);
        world.close();
    });
}

fn traced() -> Plan {
    Plan { traces: true, ..Plan::default() }
}

fn put(world: &World, things: Things, durability: Durability) -> Result<u64, Stop> {
    world.pipeline.write(Write::new(things, None), durability)
}

fn begin(world: &World, things: Things, durability: Durability) -> WriteFuture<Shelves> {
    WriteFuture::begin(&world.pipeline, Write::new(things, None), durability).unwrap()
}

#[test]
fn a_write_meets_its_environment_stage_by_stage() {
    with_world(1, &traced(), |world, _| {
        assert_eq!(put(world, Things::one(7), Synced), Ok(1));
        assert_eq!(world.shelves.take_trace(), "find_room place(1) apply(1) publish(1)");
        assert_eq!(put(world, Things(vec![(0, 8), (1, 9), (2, 10)]), Buffered), Ok(4));
        assert_eq!(world.shelves.syncs.load(Ordering::Relaxed), 1, "a buffered write syncs nothing");
        assert_eq!(world.shelves.take_trace(), "find_room place(2) apply(2) publish(2)");
        assert_eq!(world.shelves.all_visible(), [7, 8, 9, 10]);
    });
}

#[test]
fn nothing_is_asked_for_a_batch_without_changes() {
    with_world(1, &traced(), |world, _| {
        assert_eq!(put(world, Things::default(), Synced), Ok(0));
        assert_eq!(wait(&world.env, begin(world, Things::default(), Synced)), Ok(()));
        assert_eq!(world.shelves.take_trace(), "");
    });
}

#[test]
fn a_write_that_finds_the_log_file_full_makes_the_next_one() {
    with_world(1, &Plan { log_pages: 4, ..traced() }, |world, _| {
        // Of four pages, with 9 bytes a thing: the second batch does not fit behind the first.
        let many = |from: u64| Things((from..from + 1000).map(|thing| (0, thing)).collect());
        assert_eq!(put(world, many(0), Buffered), Ok(1000));
        assert_eq!(world.shelves.take_trace(), "find_room place(1) apply(1) publish(1)");
        // The bin is full, too, and is closed with the log file.
        assert_eq!(put(world, many(1000), Buffered), Ok(2000));
        assert_eq!(
            world.shelves.take_trace(),
            "find_room make_way(log file) find_room place(1001) tell_background apply(1001) publish(1001)"
        );
        assert_eq!(world.shelves.all_visible(), (0..2000).collect::<Vec<_>>());
    });
}

#[test]
fn a_record_that_no_ordinary_file_holds_gets_a_longer_one() {
    with_world(1, &Plan { log_pages: 4, ..traced() }, |world, _| {
        let huge = Things((0..10_000).map(|thing| (1, thing)).collect());
        assert_eq!(put(world, huge, Synced), Ok(10_000));
        assert_eq!(
            world.shelves.take_trace(),
            "find_room next_log_file make_way(log file) find_room next_log_file make_way(log file) find_room next_log_file \
             place(1) apply(1) publish(1)",
            "the first file that it makes is an ordinary one"
        );
    });
}

/// Closes bins of shelf 0 until no more may be closed, while nobody carries them away.
/// Returns how many things are visible; one more waits for room.
fn fill(world: &World) -> u64 {
    world.shelves.is_idle.store(true, Ordering::Release);
    let begins = |thing| {
        let future = begin(world, Things::one(thing), Buffered);
        let has_begun = (0..100).any(|_| {
            world.env.clock.sleep(Duration::from_millis(1));
            future.has_begun()
        });
        assert!(!has_begun || wait(&world.env, future) == Ok(()));
        has_begun
    };
    let written = (1000..2000).take_while(|thing| begins(*thing)).count() as u64;
    assert!((1..1000).contains(&written), "{written} things found room");
    written
}

#[test]
fn a_write_without_room_waits_and_all_behind_it_keep_their_order() {
    for_each_seed(0, 20, |seed| {
        with_world(seed, &Plan::default(), |world, _| {
            let before = fill(world) + 1;
            let first = begin(world, Things::one(1), Buffered);
            let second = begin(world, Things(vec![(1, 2)]), Synced);
            assert!(!first.has_begun() && !second.has_begun(), "another shelf has room, and waits its turn");
            assert_eq!(world.pipeline.waiting().0, 3);
            let (pipeline, shelves) = (Arc::clone(&world.pipeline), Arc::clone(&world.shelves));
            let blocking = move || {
                assert_eq!(pipeline.write(Write::new(Things(vec![(2, 3)]), None), Buffered), Ok(before + 3));
                assert!(shelves.visible() >= before + 3);
            };
            let blocking = world.env.executor.spawn("blocking", Box::new(blocking)).unwrap();
            world.env.clock.sleep(Duration::from_secs(1));
            assert_eq!(world.shelves.visible(), before - 1, "nothing has begun");
            world.shelves.carry_on();
            assert_eq!(wait(&world.env, first), Ok(()));
            assert_eq!(wait(&world.env, second), Ok(()));
            blocking.join().unwrap();
            let all = world.shelves.all_visible();
            assert_eq!(all[before as usize..], [1, 2, 3], "in the order of the calls");
        });
    });
}

#[test]
fn what_waits_is_answered_when_the_store_closes() {
    for_each_seed(0, 20, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let mut world = World::with_threads(&env, Arc::new(volume), &Plan::default()).unwrap();
            fill(&world);
            let waiting: Vec<_> = (0..5).map(|thing| begin(&world, Things::one(thing), Synced)).collect();
            world.close();
            for future in waiting {
                assert_eq!(wait(&env, future), Err(Stop::Closed));
            }
            assert_eq!(put(&world, Things::one(1), Buffered), Err(Stop::Closed));
            assert_eq!(world.pipeline.outstanding(), 0);
            assert_eq!(world.pipeline.waiting(), (0, 0));
        });
    });
}

#[test]
fn a_pipeline_without_a_log_refuses() {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let env = executor.env();
        let volume = SimVolume::new(&env, FaultPlan::none(), 1);
        let world = World::new(&env, Arc::new(volume), &Plan::default()).unwrap();
        let limits = crate::Limits { loggers: 1, outstanding: 1 };
        let reader = Pipeline::new(&env, Arc::clone(&world.shelves), None, env.executor.event(), limits);
        assert_eq!(reader.write(Write::new(Things::one(1), None), Buffered), Err(Stop::ReadOnly));
        let future = WriteFuture::begin(&reader, Write::new(Things::one(1), None), Buffered);
        assert_eq!(future.err(), Some(Stop::ReadOnly));
        assert_eq!(reader.outstanding(), 0);
    });
}

/// The log fails under a synced write: that one, and what is behind it in the queue, is never published.
#[test]
fn promise_7_a_failed_log_stage_fails_all_behind_it() {
    for_each_seed(0, 30, |seed| {
        with_world(seed, &Plan::default(), |world, volume| {
            assert_eq!(put(world, Things::one(1), Synced), Ok(1));
            let broken = Rule::new(Fault::Io).on(&[Operation::WritePages, Operation::Sync]).files(&[FileKind::Log]);
            volume.set_faults(FaultPlan::none().with(broken));
            // Some are refused at once.
            let begin = |thing| WriteFuture::begin(&world.pipeline, Write::new(Things::one(thing), None), Synced);
            let futures: Vec<_> = (2..6).map(begin).collect();
            let behind = put(world, Things::one(6), Buffered);
            assert!(matches!(behind, Err(Stop::Failed(_))), "{behind:?}");
            for future in futures {
                let outcome = future.and_then(|future| wait(&world.env, future));
                assert!(matches!(outcome, Err(Stop::Failed(_))), "{outcome:?}");
            }
            assert_eq!(world.shelves.all_visible(), [1]);
            assert!(matches!(put(world, Things::one(7), Buffered), Err(Stop::Failed(_))));
        });
    });
}

#[test]
fn promise_7_a_panic_in_the_epilogue_is_the_answer_of_the_writer_and_of_all_behind() {
    for_each_seed(0, 30, |seed| {
        for durability in [Buffered, Synced] {
            with_world(seed, &Plan::default(), |world, _| {
                assert_eq!(put(world, Things::one(1), durability), Ok(1));
                let poison = WriteFuture::begin(
                    &world.pipeline,
                    Write::new(Things(vec![(0, 2), (1, POISON)]), None),
                    durability,
                );
                let behind = WriteFuture::begin(&world.pipeline, Write::new(Things::one(3), None), durability);
                for future in [poison, behind] {
                    // Refused at once, or after it was queued.
                    let outcome = future.and_then(|future| wait(&world.env, future));
                    let Err(Stop::Failed(text)) = outcome else { panic!("{outcome:?}") };
                    assert!(text.contains("tasted poison"), "{text}");
                }
                assert_eq!(world.shelves.all_visible(), [1], "a part of a batch is visible");
            });
        }
    });
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("in a waker");
    }
}

#[test]
fn a_waker_that_panics_harms_nobody_else() {
    with_world(1, &Plan::default(), |world, _| {
        let mut first = pin!(begin(world, Things::one(1), Synced));
        let waker = Waker::from(Arc::new(Panics));
        assert!(matches!(first.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending));
        assert_eq!(wait(&world.env, begin(world, Things::one(2), Synced)), Ok(()));
        assert_eq!(world.shelves.wakers_panicked.load(Ordering::Relaxed), 1);
        assert_eq!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(())));
    });
}

/// The page buffer holds two pages: asynchronous writes wait until it is written out, and nobody else has to come for
/// that.
#[test]
fn writes_that_find_the_page_buffer_full_have_it_written_out() {
    let plan = Plan { buffer_bytes_max: 8192, log_pages: 64, ..Plan::default() };
    with_world(1, &plan, |world, _| {
        let many = |from: u64| Things((from..from + 300).map(|thing| (0, thing)).collect());
        let futures: Vec<_> = (0..20).map(|n| begin(world, many(n * 300), Synced)).collect();
        assert!(futures.iter().any(|future| !future.has_begun()), "the buffer takes them all");
        futures.into_iter().for_each(|future| assert_eq!(wait(&world.env, future), Ok(())));
        assert_eq!(world.shelves.all_visible(), (0..6000).collect::<Vec<_>>());
    });
}
