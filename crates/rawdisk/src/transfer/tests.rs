use super::*;
use situ_base::JobHandle;
use situ_sim::{Fault, FaultPlan, Operation, Rule, SimDevice, SimExecutor, for_each_seed};

#[test]
fn places_and_pieces_cover_what_was_asked_for() {
    let extents = [(10, 3), (20, 2), (40, 5)].map(|(first, pages)| Extent { first, pages });
    let of = |first, pages| places(&extents, first, pages).iter().map(|e| (e.first, e.pages)).collect::<Vec<_>>();
    assert_eq!(of(0, 3), [(10, 3)]);
    assert_eq!(of(2, 4), [(12, 1), (20, 2), (40, 1)]);
    assert_eq!(of(4, 100), [(21, 1), (40, 5)]);
    assert_eq!(of(10, 1), []);
    let cut = pieces(&extents, 2 * PAGE_BYTES).iter().map(|e| (e.first, e.pages)).collect::<Vec<_>>();
    assert_eq!(cut, [(10, 2), (12, 1), (20, 2), (40, 2), (42, 2), (44, 1)]);
}

/// Pages where every transfer takes [`SLOW`]; those before them are quick.
const SLOW_FIRST: u64 = 16;
const SLOW_PAGES: u64 = 48;
const SLOW: Duration = Duration::from_secs(60);

fn slow_page(number: u64) -> Extent {
    Extent { first: SLOW_FIRST + number % SLOW_PAGES, pages: 1 }
}

/// More bulk transfers and reads than there are queues for: all of both pools are lent, and some callers wait for one.
fn fill_pools(env: &Env, transfers: &Arc<Transfers>) -> Vec<Box<dyn JobHandle>> {
    let callers = 0..QUEUES_MAX as u64 + 4;
    let jobs = callers.flat_map(|number| {
        let (writer, reader) = (Arc::clone(transfers), Arc::clone(transfers));
        let write = move || writer.write_pages(&[slow_page(number)], &[1; PAGE_BYTES]).unwrap();
        let read = move || reader.read(&[slow_page(number)], 0, &mut [0; PAGE_BYTES]).unwrap();
        [env.executor.spawn("writer", Box::new(write)).unwrap(), env.executor.spawn("reader", Box::new(read)).unwrap()]
    });
    let jobs = jobs.collect();
    env.clock.sleep(SLOW / 60);
    assert!(are_all_lent(&transfers.bulk) && are_all_lent(&transfers.read));
    jobs
}

fn are_all_lent(pool: &Pool) -> bool {
    let state = pool.lock();
    state.open == QUEUES_MAX && state.idle.is_empty()
}

/// A log write, a frame of the journal and a flush begin at once, however many slow transfers hold or want a queue.
#[test]
fn log_writes_frames_and_flushes_do_not_wait_for_the_queues_of_bulk_transfers_and_reads() {
    for_each_seed(0, 8, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        let rule = Rule::new(Fault::Delay(SLOW)).within(SLOW_FIRST * PAGE..(SLOW_FIRST + SLOW_PAGES) * PAGE);
        let plan = FaultPlan::none().with(rule.on(&[Operation::WritePages, Operation::Read]));
        let device = SimDevice::new(&env, (SLOW_FIRST + SLOW_PAGES) * PAGE, plan, seed);
        sim.run(|| {
            let transfers = Arc::new(Transfers::new(Arc::new(device.clone()), env.clone()).unwrap());
            let jobs = fill_pools(&env, &transfers);
            let begin = env.clock.now();
            let log = [Extent { first: 3, pages: 2 }];
            transfers.write_log(&log, &[7; 2 * PAGE_BYTES], true).unwrap();
            transfers.write_log(&log, &[8; 2 * PAGE_BYTES], false).unwrap();
            transfers.write_frame(0, Buffer::new(PAGE_BYTES)).unwrap();
            transfers.flush().unwrap();
            let took = env.clock.now() - begin;
            assert!(took < SLOW / 2, "{took:?} while each other transfer takes {SLOW:?}");
            assert!(are_all_lent(&transfers.bulk) && are_all_lent(&transfers.read), "nobody has ended meanwhile");
            assert!(device.contents(3 * PAGE..5 * PAGE).iter().all(|byte| *byte == 8));
            jobs.into_iter().for_each(|job| job.join().unwrap());
        });
    });
}
