use super::*;

const SLOW: u64 = 150_000;

#[test]
fn a_fast_disk_has_one_logger() {
    assert!(!another_pays(1, 1000, 1, 5_000));
    assert!(another_pays(1, 1000, 1, SLOW));
}

#[test]
fn another_logger_is_for_as_much_as_is_in_flight() {
    assert!(!another_pays(1, 10, 11, SLOW));
    assert!(another_pays(1, 11, 11, SLOW));
    assert!(!another_pays(1, WAITING_MIN - 1, 0, SLOW));
}

#[test]
fn there_are_never_more_than_three() {
    assert!(!another_pays(0, 100, 0, SLOW), "the first one is always woken");
    assert!(another_pays(2, 100, 50, SLOW));
    assert!(!another_pays(3, 100, 50, SLOW));
}

#[test]
fn the_service_time_follows_the_disk() {
    let loggers = Loggers::new(&Env::system(), LOGGERS_MAX);
    let serve = |us| (0..50).for_each(|_| loggers.give_back(loggers.take(), Some(Duration::from_micros(us))));
    serve(200);
    loggers.begin_turn();
    (0..WAITING_MIN).for_each(|_| loggers.call());
    assert!(loggers.another_pays());
    let alone = Loggers::new(&Env::system(), 1);
    alone.begin_turn();
    (0..50).for_each(|_| alone.give_back(alone.take(), Some(Duration::from_micros(200))));
    (0..WAITING_MIN).for_each(|_| alone.call());
    assert!(!alone.another_pays(), "it is to be the only one");
    serve(5);
    (0..WAITING_MIN).for_each(|_| loggers.call());
    assert!(!loggers.another_pays());
    loggers.end_turn();
}
