use super::*;
use crate::pipeline::Pipeline;
use crate::tests::shelves::{Plan, Shelves, Things, World};
use crate::waiting_room::Admission;
use crate::{ReadyFuture, Write};
use situ_base::Env;
use situ_log::Durability;
use situ_sim::{FaultPlan, SimExecutor, SimVolume};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Wake};
use std::time::Duration;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Runs `test` with a pipeline that nobody serves and that likes so many requests at a time.
fn with_pipeline(outstanding: usize, test: impl FnOnce(&Arc<Pipeline<Shelves>>, &Env) + Send) {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let volume = SimVolume::new(&executor.env(), FaultPlan::none(), 1);
        let plan = Plan { outstanding, ..Plan::default() };
        let world = World::new(&executor.env(), Arc::new(volume), &plan).unwrap();
        test(&world.pipeline, &executor.env());
    });
}

/// A write was published, and the waiter woken, before the admission thread had noted that the waiting room was empty.
/// The waiter found it full and left its waker again, and nobody looked for it: only ends of requests did.
#[test]
fn whoever_empties_the_room_looks_for_waiters() {
    with_pipeline(10, |pipeline, env| {
        pipeline.budget.set(env.clock.now(), Some(250_000.0));
        pipeline.budget.charge(&*env.clock, 1 << 20);
        let write = Write::new(Things::one(1), None);
        let admission = pipeline.admit_async(write, Durability::Synced).unwrap();
        assert!(matches!(admission, Admission::Waits(_)));
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let mut ready = pin!(ReadyFuture::of(pipeline));
        assert!(ready.as_mut().poll(&mut context).is_pending(), "a write waits to begin");
        env.clock.sleep(Duration::from_secs(1));
        pipeline.admit_first();
        assert_eq!(pipeline.outstanding(), 1, "it has begun, and nobody carries it on");
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(ready.as_mut().poll(&mut context).is_ready());
    });
}

#[test]
fn a_dropped_waiter_leaves_nothing_behind() {
    with_pipeline(1, |pipeline, _| {
        pipeline.outstanding.begin();
        let waker = Waker::from(Arc::new(Count::default()));
        let mut context = Context::from_waker(&waker);
        for _ in 0..100 {
            let mut ready = pin!(ReadyFuture::of(pipeline));
            (0..3).for_each(|_| assert!(ready.as_mut().poll(&mut context).is_pending()));
            assert_eq!(lock(&pipeline.outstanding.wakers).left.len(), 1);
        }
        assert!(lock(&pipeline.outstanding.wakers).left.is_empty());
        assert_eq!(pipeline.outstanding.waiters.load(Ordering::SeqCst), 0);
        pipeline.outstanding.end(1);
    });
}
