use super::*;
use crate::env::{Executor, ThreadExecutor};

const HOUR: i64 = 3600;
const YEAR: i64 = 365 * 24 * HOUR;

/// A clock that a test moves.
#[derive(Default)]
struct Hand {
    uptime_s: AtomicI64,
    wall_s: AtomicI64,
    boot: AtomicI64,
}

impl Hand {
    fn at(wall_s: i64) -> Arc<Hand> {
        let hand = Hand::default();
        hand.wall_s.store(wall_s, Ordering::Relaxed);
        hand.uptime_s.store(500, Ordering::Relaxed);
        Arc::new(hand)
    }

    fn pass(&self, seconds: i64) {
        self.uptime_s.fetch_add(seconds, Ordering::Relaxed);
        self.wall_s.fetch_add(seconds, Ordering::Relaxed);
    }

    fn set(&self, seconds: i64) {
        self.wall_s.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Boots the machine. The wall clock moves by `seconds` while it is off.
    fn boot_after(&self, seconds: i64) {
        self.boot.fetch_add(1, Ordering::Relaxed);
        self.uptime_s.store(10, Ordering::Relaxed);
        self.wall_s.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for Hand {
    fn now(&self) -> Duration {
        self.uptime()
    }

    fn unix(&self) -> Duration {
        Duration::from_secs(self.wall_s.load(Ordering::Relaxed).unsigned_abs())
    }

    fn uptime(&self) -> Duration {
        Duration::from_secs(self.uptime_s.load(Ordering::Relaxed).unsigned_abs())
    }

    fn boot(&self) -> Option<[u8; 16]> {
        Some([self.boot.load(Ordering::Relaxed) as u8; 16])
    }

    fn sleep(&self, _: Duration) {}
}

fn open(hand: &Arc<Hand>, record: Option<ClockRecord>) -> StoreClock {
    StoreClock::resume(Arc::clone(hand) as _, record)
}

/// Reads the wall clock, and takes the record that is due.
fn due(clock: &StoreClock) -> Option<ClockRecord> {
    clock.look().inspect(|record| clock.recorded(*record))
}

/// Expiration times used to follow the wall clock. After a clock that was a year behind was set right, a restart lost
/// entries with 100,000 s to live. After a clock that was two hours ahead was set right, expired entries came back.
#[test]
fn a_correction_moves_no_expiry_neither_at_once_nor_by_a_restart_nor_by_a_boot() {
    for correction in [YEAR, -2 * HOUR] {
        let hand = Hand::at(1_700_000_000);
        let clock = open(&hand, None);
        let first = due(&clock).unwrap();
        let start = clock.seconds();
        assert_eq!((start, clock.difference_seconds()), (1_700_000_000, 0));
        hand.pass(50);
        hand.set(correction);
        assert_eq!(clock.seconds(), start + 50);
        // The process dies before it has seen the correction, and after.
        assert_eq!(open(&hand, Some(first)).seconds(), start + 50, "{correction}");
        let second = due(&clock).unwrap();
        assert_eq!(due(&clock), None, "it is stored");
        let again = open(&hand, Some(second));
        assert_eq!((again.seconds(), again.difference_seconds()), (start + 50, correction));
        hand.pass(10);
        assert_eq!((clock.seconds(), again.seconds()), (start + 60, start + 60));
        // An hour later the machine boots again.
        hand.boot_after(HOUR);
        let booted = open(&hand, Some(second));
        assert_eq!(booted.seconds(), start + 60 + HOUR as u64, "{correction}");
        assert_eq!(booted.difference_seconds(), correction);
        assert!(due(&booted).is_some(), "another boot has another record");
    }
}

#[test]
fn unix_times_are_converted_by_the_difference_and_back() {
    let hand = Hand::at(1_700_000_000);
    let clock = open(&hand, None);
    hand.set(-2 * HOUR);
    due(&clock);
    let unix = 1_700_000_000 - 7200 + 500;
    assert_eq!(clock.seconds_of_unix(unix), clock.seconds() + 500);
    assert_eq!(clock.unix_of_seconds(clock.seconds_of_unix(unix)), unix);
    assert_eq!(clock.ms_of_unix(unix * 1000 + 7), (clock.seconds() + 500) * 1000 + 7);
    assert_eq!(clock.unix_of_ms(clock.ms_of_unix(unix * 1000 + 7)), unix * 1000 + 7);
    assert_eq!((clock.seconds_of_unix(0), clock.unix_of_seconds(0)), (0, 0), "never");
    hand.set(YEAR);
    due(&clock);
    assert_eq!(clock.seconds_of_unix(5), 1, "long ago, and not never");
}

#[test]
fn a_wall_clock_that_has_gone_back_with_the_boot_holds_time_and_is_followed_once() {
    let hand = Hand::at(1_700_000_000);
    let clock = open(&hand, None);
    hand.set(YEAR);
    let record = due(&clock).unwrap();
    let last = clock.seconds();
    // This machine's clock has no battery.
    hand.boot_after(-20 * YEAR);
    let clock = open(&hand, Some(record));
    let told = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&told);
    clock.tell(Box::new(move |line| lock(&lines).push(line.to_owned())));
    assert_eq!(clock.seconds(), last, "the clock cannot know of time that passed");
    assert_eq!(clock.difference_seconds(), YEAR, "clients know the time");
    hand.pass(30);
    let record = due(&clock).unwrap();
    assert_eq!(clock.seconds(), last + 30);
    // The process dies. So does the machine, with its clock.
    let clock = open(&hand, Some(record));
    assert_eq!(clock.seconds(), last + 30);
    let record = due(&clock).unwrap();
    hand.boot_after(-60);
    let clock = open(&hand, Some(record));
    let lines = Arc::clone(&told);
    clock.tell(Box::new(move |line| lock(&lines).push(line.to_owned())));
    assert_eq!(clock.seconds(), last + 30);
    // The wall clock is set right: a day has passed since the first boot.
    hand.set(20 * YEAR + 24 * HOUR + 30);
    let record = due(&clock).unwrap();
    assert_eq!(clock.seconds(), last + 24 * 3600);
    assert_eq!(clock.difference_seconds(), YEAR);
    assert_eq!(open(&hand, Some(record)).seconds(), clock.seconds());
    hand.set(HOUR);
    assert!(due(&clock).is_some());
    assert_eq!(clock.seconds(), last + 24 * 3600, "once");
    let told = lock(&told);
    assert!(told.len() == 4 && told[0].contains("went back") && told[1] == told[0], "{told:?}");
    assert!(told[2].contains(&format!("{YEAR} s ahead")) && told[3].contains("ahead"), "{told:?}");
}

#[test]
fn an_uptime_that_has_gone_back_in_a_boot_is_another_boot() {
    let hand = Hand::at(1_700_000_000);
    let clock = open(&hand, None);
    hand.pass(100);
    let record = due(&clock).unwrap();
    // A snapshot of a machine with an older uptime.
    hand.uptime_s.store(5, Ordering::Relaxed);
    hand.set(HOUR);
    assert_eq!(open(&hand, Some(record)).seconds(), 1_700_000_000 + 100 + HOUR as u64);
}

#[test]
fn time_never_goes_back_whatever_happens() {
    let mut state = 7_u64;
    let mut draw = |below: i64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as i64) % below
    };
    for _ in 0..200 {
        let hand = Hand::at(1_700_000_000);
        let mut record = None;
        let mut clock = open(&hand, record);
        let mut last = 0;
        for _ in 0..100 {
            match draw(5) {
                0 => hand.pass(draw(1000)),
                1 => hand.set(draw(2 * YEAR) - YEAR),
                2 => record = due(&clock).or(record),
                3 => {
                    // Only once a record exists: a store without one was never served.
                    clock = match record {
                        None => clock,
                        // A clean stop.
                        Some(_) => open(&hand, Some(clock.record())),
                    };
                }
                _ => {
                    let record = clock.record();
                    hand.boot_after(draw(2 * YEAR) - YEAR);
                    clock = open(&hand, Some(record));
                }
            }
            let now = clock.seconds();
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
    }
}

#[test]
fn a_record_has_this_form_and_other_bytes_are_none() {
    let record = ClockRecord { boot: [7; 16], uptime_ns: 0x0102, wall_ns: 0x0304, store_ns: 0x0506, follows: true };
    let bytes = record.encode();
    let mut golden = vec![1, 1];
    golden.extend([7; 16]);
    for number in [[2, 1], [4, 3], [6, 5]] {
        golden.extend(number);
        golden.extend([0; 6]);
    }
    assert_eq!(bytes[..], golden);
    assert_eq!(ClockRecord::decode(&bytes), Some(record));
    let changed = |at: usize, byte: u8| {
        let mut other = bytes;
        other[at] = byte;
        ClockRecord::decode(&other)
    };
    assert_eq!((changed(0, 2), changed(1, 2), changed(25, 0x80)), (None, None, None));
    assert_eq!((ClockRecord::decode(&bytes[..41]), ClockRecord::decode(&[&bytes[..], &[0]].concat())), (None, None));
    // Any reading of the clock gives a time.
    let most = i64::MAX;
    for numbers in [[most, 0, most], [0, most, 0], [0, 0, most], [most; 3]] {
        for follows in [false, true] {
            let [uptime_ns, wall_ns, store_ns] = numbers;
            for boot in [[0; 16], [1; 16]] {
                let clock = open(&Hand::at(5), Some(ClockRecord { boot, uptime_ns, wall_ns, store_ns, follows }));
                _ = (clock.look(), clock.record(), clock.seconds_of_unix(7), clock.unix_of_ms(7), clock.seconds());
            }
        }
    }
}

#[test]
fn a_keeper_stores_the_first_record_each_change_and_the_last_one() {
    let hand = Hand::at(1_700_000_000);
    let env = Env { clock: Arc::clone(&hand) as _, executor: Arc::new(ThreadExecutor) };
    let clock = Arc::new(open(&hand, None));
    let kept = Arc::new((Mutex::new(Vec::new()), ThreadExecutor.event()));
    let shared = Arc::clone(&kept);
    let keeper = ClockKeeper::start(&env, &clock, move |record| {
        lock(&shared.0).push(*record);
        shared.1.notify();
        true
    })
    .unwrap();
    assert_eq!(lock(&kept.0).len(), 1, "when it starts");
    hand.set(HOUR);
    loop {
        let seen = kept.1.generation();
        if lock(&kept.0).len() == 2 {
            break;
        }
        assert!(kept.1.wait(seen, Some(Duration::from_secs(60))), "a change is seen");
    }
    hand.pass(5);
    keeper.stop();
    drop(keeper);
    let kept = lock(&kept.0);
    assert_eq!(kept.len(), 3);
    assert_eq!(open(&hand, Some(kept[2])).seconds(), 1_700_000_005);
}
