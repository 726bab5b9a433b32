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
    let wants = |full: bool| loggers.wants_flight(|| full);
    assert_eq!(wants(true), None, "nothing waits");
    call(&loggers, 10);
    assert_eq!(wants(false), Some(10), "the first write waits for no share");
    assert_eq!(loggers.take_some(8), 8);
    loggers.set_flights(1);
    assert_eq!(wants(false), Some(2), "a quarter of 8 are 2");
    assert_eq!(loggers.take_some(5), 2);
    loggers.set_flights(2);
    loggers.look();
    loggers.set_waited_for(true);
    call(&loggers, 2);
    assert_eq!((wants(false), wants(true)), (None, Some(2)));
    assert!(!loggers.another_pays() && wakes.0.load(Ordering::Relaxed) == 0);
    call(&loggers, 3);
    assert!(loggers.another_pays());
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "a wait is ended once");
    loggers.look();
    assert!(!loggers.another_pays(), "the logger has looked");
    assert_eq!(loggers.take_some(5), 5);
    loggers.set_flights(4);
    loggers.set_waited_for(true);
    call(&loggers, 100);
    assert_eq!(wants(true), None, "as many are in flight as there may be");
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    assert_eq!(loggers.forget(1000), 100);
    (0..15).for_each(|_| loggers.give_back(1, Duration::ZERO));
    assert!(loggers.is_idle());
}

#[test]
fn a_write_without_durability_is_the_end_of_a_row_that_needs_none() {
    let loggers = loggers(LOGGERS_MAX, 2);
    assert_eq!(loggers.durability(false), Durability::Buffered, "no request wanted more so far");
    assert_eq!(loggers.durability(true), Durability::Synced);
    for _ in 0..BUFFERED_MIN {
        assert_eq!(loggers.durability(false), Durability::Synced);
    }
    assert_eq!(loggers.durability(false), Durability::Buffered);
}

#[test]
fn a_serial_log_has_one_write_in_flight() {
    let loggers = Loggers::new(&Env::system(), 1);
    loggers.use_queue(Some(Arc::new(Wakes::default())));
    let mut now = Duration::ZERO;
    for _ in 0..10_000 {
        call(&loggers, 10);
        assert!(!loggers.another_pays() && loggers.wants_flight(|| true).is_none());
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
