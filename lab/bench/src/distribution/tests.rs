use super::*;

#[test]
fn fnv_hash_gives_the_values_ycsb_gives() {
    // Of FNV-1a-64 over eight little-endian bytes, then Java's Math.abs.
    assert_eq!(fnv_hash(0), 6_284_781_860_667_377_211);
    assert_eq!(fnv_hash(1), 8_517_097_267_634_966_620);
    assert_eq!(fnv_hash(2), 1_820_151_046_732_198_393);
}

#[test]
fn zeta_of_ycsbs_item_count_is_the_constant() {
    // The tail is integrated (Euler-Maclaurin): summing all 10^10 terms takes minutes.
    let head = 1_000_000u64;
    let theta = ZIPFIAN_CONSTANT;
    let (from, to) = (head as f64, SCRAMBLED_ITEMS as f64);
    let power = 1.0 - theta;
    let integral = (to.powf(power) - from.powf(power)) / power;
    let ends = (to.powf(-theta) - from.powf(-theta)) / 2.0;
    let sum = zeta(0, head, theta, 0.0) + integral + ends;
    assert!((sum - SCRAMBLED_ZETA).abs() < 1e-6, "{sum}");
}

#[test]
fn zipfian_draws_the_popular_items_as_often_as_the_law_says() {
    let items = 1000;
    let mut zipfian = Zipfian::new(items);
    let mut random = Random::new(7);
    let draws = 2_000_000;
    let mut seen = vec![0u32; items as usize];
    for _ in 0..draws {
        seen[zipfian.next(&mut random) as usize] += 1;
    }
    // The generator is exact for the first two items, an approximation after them.
    for item in [0usize, 1] {
        let expected = zipfian.top_probability() / ((item + 1) as f64).powf(ZIPFIAN_CONSTANT);
        let drawn = f64::from(seen[item]) / f64::from(draws);
        assert!((drawn / expected - 1.0).abs() < 0.02, "item {item}: {drawn} of {expected}");
    }
    let share = |top: usize| f64::from(seen[..top].iter().sum::<u32>()) / f64::from(draws);
    let law = |top: u64| zeta(0, top, ZIPFIAN_CONSTANT, 0.0) * zipfian.top_probability();
    for top in [10, 100, 500] {
        assert!((share(top as usize) - law(top)).abs() < 0.03, "top {top}: {}", share(top as usize));
    }
}

#[test]
fn scrambled_zipfian_scatters_but_keeps_the_top_probability() {
    let items = 10_000;
    let mut scrambled = ScrambledZipfian::new(items);
    let mut random = Random::new(3);
    let draws = 1_000_000;
    let mut seen = vec![0u32; items as usize];
    for _ in 0..draws {
        seen[scrambled.next(&mut random) as usize] += 1;
    }
    let top = (0..items as usize).max_by_key(|item| seen[*item]).expect("items");
    assert_eq!(top as u64, fnv_hash(0) % items);
    let drawn = f64::from(seen[top]) / f64::from(draws);
    assert!((drawn - 1.0 / SCRAMBLED_ZETA).abs() < 0.002, "{drawn}");
}

#[test]
fn growing_the_item_count_adds_what_is_missing_of_zeta() {
    let mut grown = Zipfian::new(100);
    grown.next_of(5000, &mut Random::new(1));
    assert!((grown.zeta - Zipfian::new(5000).zeta).abs() < 1e-9);
    // YCSB's quirk: fewer items change nothing.
    let before = grown.zeta;
    grown.next_of(50, &mut Random::new(1));
    assert_eq!(grown.zeta.to_bits(), before.to_bits());
}

#[test]
fn latest_prefers_the_newest_and_never_names_what_does_not_exist() {
    let inserted = Inserted::new(1000);
    let mut chooser = Chooser::Latest(Zipfian::new(999));
    let mut random = Random::new(11);
    let mut newest = 0;
    for round in 0..100_000 {
        if round % 100 == 0 {
            assert!(inserted.acknowledge(inserted.take()));
        }
        let record = chooser.next(&inserted, &mut random);
        assert!(record < inserted.count());
        newest += u32::from(record + 1 == inserted.count());
    }
    let share = f64::from(newest) / 100_000.0;
    assert!((0.11..0.14).contains(&share), "{share}");
}

#[test]
fn hotspot_puts_its_share_on_the_hot_set() {
    let mut hotspot = Hotspot::new(1000, 0.2, 0.8);
    let mut random = Random::new(5);
    let hot = (0..100_000).filter(|_| hotspot.next(&mut random) < 200).count();
    assert!((79_000..81_000).contains(&hot), "{hot}");
    for (items, set) in [(1, 0.2), (3, 0.0), (3, 1.0)] {
        let mut edge = Hotspot::new(items, set, 0.8);
        assert!((0..1000).all(|_| edge.next(&mut random) < items));
    }
}

#[test]
fn the_acknowledged_limit_waits_for_the_earliest_pending_insert() {
    let inserted = Inserted::new(10);
    let numbers: Vec<u64> = (0..4).map(|_| inserted.take()).collect();
    assert_eq!(numbers, [10, 11, 12, 13]);
    assert!(inserted.acknowledge(12));
    assert!(inserted.acknowledge(11));
    assert_eq!(inserted.count(), 10);
    assert!(inserted.acknowledge(10));
    assert_eq!(inserted.count(), 13);
    for _ in 0..WINDOW {
        let number = inserted.take();
        let fits = inserted.acknowledge(number);
        assert_eq!(fits, number < 13 + WINDOW, "{number}");
    }
}

#[test]
fn inserts_acknowledged_by_many_threads_all_become_visible() {
    let inserted = Inserted::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50_000 {
                    assert!(inserted.acknowledge(inserted.take()));
                }
            });
        }
    });
    assert_eq!(inserted.count(), 200_000);
}
