use super::*;
use crate::base::batch::WriteBatch;
use crate::base::options::{Durability, Options};
use crate::opening::membership::Given;
use crate::opening::open::{KeyspaceChoices, open};
use crate::pipeline::admission::Admission;
use crate::pipeline::stall::Debt;
use situ_device::Env;
use situ_sim::{FaultPlan, SimExecutor, SimVolume};
use situ_table::KeyKind;
use std::pin::pin;
use std::task::Wake;
use std::time::Duration;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Runs `test` with the pipeline of a store that has no threads of its own and likes so many requests at a time.
fn with_pipeline(requests_outstanding_max: usize, test: impl FnOnce(&Arc<Pipeline>, &Env) + Send) {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let volume = SimVolume::new(&executor.env(), FaultPlan::none(), 1);
        let options = Options { requests_outstanding_max, ..Options::default() };
        let given = Given::alone(Arc::new(volume));
        let opened = open(&given, executor.env(), options, &KeyspaceChoices::new(), false).unwrap();
        test(&opened.core.pipeline, &executor.env());
    });
}

/// A write was published, and the waiter woken, before the admission thread had noted that the waiting room was empty.
/// The waiter found it full and left its waker again, and nobody looked for it: only ends of requests did.
#[test]
fn whoever_empties_the_room_looks_for_waiters() {
    with_pipeline(10, |pipeline, env| {
        pipeline.stall.flushed(1 << 20, Duration::from_secs(1), 0);
        pipeline.stall.set_debt(pipeline, &Debt { memory: 1.0, ..Debt::default() });
        pipeline.stall.charge(pipeline, 1 << 20);
        let mut batch = WriteBatch::new();
        let keyspace = Arc::clone(&pipeline.versions.keyspaces()[0]);
        batch.push(KeyKind::Put, keyspace.id, b"key", Some(b"value")).unwrap();
        let admission = pipeline.admit_async(batch.into(), Durability::Synced).unwrap();
        assert!(matches!(admission, Admission::Waits(_)));
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let mut ready = pin!(ReadyFuture::of(pipeline));
        assert!(ready.as_mut().poll(&mut context).is_pending(), "a write waits to begin");
        env.clock.sleep(Duration::from_secs(1));
        pipeline.admit_first();
        assert_eq!(pipeline.outstanding.count(), 1, "it has begun, and nobody carries it on");
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
