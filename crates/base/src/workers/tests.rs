use super::*;
use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A job that counts its begin and its end, and waits between them.
struct Held {
    gate: Arc<dyn Event>,
    seen: u64,
    begun: Arc<AtomicUsize>,
    done: Arc<AtomicUsize>,
}

impl Held {
    fn new(env: &Env) -> Held {
        let gate = env.executor.event();
        Held { seen: gate.generation(), gate, begun: Arc::default(), done: Arc::default() }
    }

    fn job(&self) -> Job {
        let (gate, seen, begun, done) =
            (Arc::clone(&self.gate), self.seen, Arc::clone(&self.begun), Arc::clone(&self.done));
        Box::new(move || {
            begun.fetch_add(1, Ordering::SeqCst);
            gate.wait(seen, None);
            done.fetch_add(1, Ordering::SeqCst);
        })
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }
}

#[test]
fn jobs_run_on_few_threads_and_what_does_not_fit_comes_back() {
    let env = Env::system();
    let (workers, held) = (Workers::new(&env, "test", 2, 2), Held::new(&env));
    for running in 1..=2 {
        assert!(workers.run(held.job()).is_ok());
        while held.begun() < running {
            std::thread::yield_now();
        }
    }
    assert!(workers.run(held.job()).is_ok() && workers.run(held.job()).is_ok());
    assert!(workers.run(held.job()).is_err(), "the queue is full");
    assert_eq!(held.begun(), 2, "two threads at most");
    held.gate.notify();
    workers.close();
    assert_eq!(held.done.load(Ordering::SeqCst), 4, "what was taken is run");
    assert!(workers.is_closed() && workers.run(held.job()).is_err());
}

#[test]
fn a_request_that_waits_can_be_removed() {
    let env = Env::system();
    let workers = Workers::new(&env, "test", 1, 10);
    let (gate, taken) = (env.executor.event(), Arc::new(Mutex::new(Vec::new())));
    let seen = gate.generation();
    for number in 0..3 {
        let (gate, taken) = (Arc::clone(&gate), Arc::clone(&taken));
        let body = move |queue: &Queue<u32>| {
            gate.wait(seen, None);
            queue.serve_batches(10, |numbers| lock(&taken).push(numbers));
        };
        assert!(workers.submit(number, || body).is_ok());
    }
    assert_eq!((workers.remove(|number| *number == 1), workers.remove(|number| *number == 7)), (Some(1), None));
    gate.notify();
    workers.close();
    assert_eq!(*lock(&taken), [[0, 2]]);
}

#[test]
fn a_panic_ends_no_thread_and_a_thread_that_ends_is_replaced() {
    let env = Env::system();
    let (workers, ran) = (Workers::<Job>::new(&env, "test", 1, 10), Arc::new(AtomicUsize::new(0)));
    let count = || {
        let ran = Arc::clone(&ran);
        Box::new(move || _ = ran.fetch_add(1, Ordering::SeqCst))
    };
    assert!(workers.run(Box::new(|| panic!("on purpose"))).is_ok());
    assert!(workers.run(count()).is_ok());
    while ran.load(Ordering::SeqCst) < 1 {
        std::thread::yield_now();
    }
    workers.close();
    let workers = Workers::<Job>::new(&env, "test", 1, 10);
    assert!(workers.submit(count(), || |_: &Queue<Job>| panic!("on purpose")).is_ok());
    while lock(&workers.queue.state).running > 0 {
        std::thread::yield_now();
    }
    assert!(workers.run(count()).is_ok());
    workers.close();
    assert_eq!(ran.load(Ordering::SeqCst), 3);
}

/// Refuses threads, to two callers at the same time.
struct RefusesTwo(Barrier);

impl Executor for RefusesTwo {
    fn spawn(&self, _: &str, _: Job) -> io::Result<Box<dyn JobHandle>> {
        self.0.wait();
        Err(io::Error::other("no more threads"))
    }

    fn event(&self) -> Arc<dyn Event> {
        Env::system().executor.event()
    }
}

#[test]
fn requests_come_back_if_both_callers_are_refused_a_thread() {
    let env = Env { executor: Arc::new(RefusesTwo(Barrier::new(2))), ..Env::system() };
    let workers = Workers::new(&env, "test", 2, 10);
    let submit = |number: u32| workers.submit(number, || |_: &Queue<u32>| ()).err().unwrap_or_default();
    let (here, there) = std::thread::scope(|scope| {
        let other = scope.spawn(|| submit(1));
        (submit(2), other.join().unwrap())
    });
    let mut all = [here, there].concat();
    all.sort_unstable();
    assert_eq!(all, [1, 2]);
}
