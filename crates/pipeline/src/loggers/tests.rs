use super::*;

fn loggers(max: usize, depth: usize) -> Loggers {
    let loggers = Loggers::new(&Env::system(), max);
    loggers.depth.store(depth, Ordering::Relaxed);
    loggers
}

fn call(loggers: &Loggers, requests: usize) {
    (0..requests).for_each(|_| loggers.call());
}

#[test]
fn another_thread_is_for_as_much_as_is_in_flight() {
    let loggers = loggers(LOGGERS_MAX, 2);
    call(&loggers, 20);
    assert!(!loggers.another_pays(), "the first one is always woken");
    loggers.begin_turn();
    assert_eq!(loggers.take(), 20);
    call(&loggers, 19);
    assert!(!loggers.another_pays());
    call(&loggers, 1);
    assert!(loggers.another_pays());
    loggers.begin_turn();
    assert!(!loggers.another_pays(), "two are at work");
}

#[test]
fn few_requests_are_no_work_for_another_thread() {
    let loggers = loggers(LOGGERS_MAX, 2);
    loggers.begin_turn();
    call(&loggers, WAITING_MIN - 1);
    assert!(!loggers.another_pays());
    call(&loggers, 1);
    assert!(loggers.another_pays());
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Watch for Wakes {
    fn wait(&self, _timeout: Option<Duration>) {}

    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn each_write_of_a_queue_takes_its_share_and_a_wait_is_ended_once() {
    let loggers = loggers(LOGGERS_MAX, 4);
    let wakes = Arc::new(Wakes::default());
    loggers.use_queue(Some(Arc::clone(&wakes) as Arc<dyn Watch>));
    call(&loggers, 8);
    assert!(loggers.wants_flight(0));
    assert_eq!(loggers.take(), 8);
    loggers.set_flights(1);
    loggers.begin_wait();
    call(&loggers, 1);
    assert_eq!(wakes.0.load(Ordering::Relaxed), 0, "a quarter of 8 are 2");
    call(&loggers, 3);
    assert!(loggers.wants_flight(1));
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    assert_eq!(loggers.take(), 4);
    loggers.set_flights(4);
    loggers.begin_wait();
    call(&loggers, 100);
    assert!(!loggers.wants_flight(4), "as many are in flight as there may be");
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
}

#[test]
fn a_serial_log_has_one_write_in_flight() {
    let loggers = Loggers::new(&Env::system(), 1);
    loggers.use_queue(Some(Arc::new(Wakes::default())));
    let mut now = Duration::ZERO;
    for _ in 0..10_000 {
        call(&loggers, 10);
        assert!(!loggers.another_pays() && !loggers.wants_flight(0));
        now += Duration::from_micros(if loggers.depth.load(Ordering::Relaxed) == 1 { 100 } else { 50 });
        loggers.give_back(loggers.take(), now);
    }
}

#[test]
fn the_number_in_flight_follows_the_throughput() {
    let loggers = Loggers::new(&Env::system(), LOGGERS_MAX);
    let mut now = Duration::ZERO;
    let mut serve = |us: fn(usize) -> u64| {
        for _ in 0..30_000 {
            call(&loggers, 10);
            now += Duration::from_micros(us(loggers.depth.load(Ordering::Relaxed)));
            loggers.give_back(loggers.take(), now);
        }
        lock(&loggers.trials).now()
    };
    assert_eq!(serve(|depth| 300 / depth as u64), LOGGERS_MAX);
    assert_eq!(serve(|depth| 100 * depth as u64), 1);
    assert!(loggers.is_idle());
}
