//! The cache as a whole: against a map, by many threads, and how well it keeps what is asked for.

use crate::{Cache, Meta, Options};
use proptest::prelude::*;
use std::collections::HashMap;

const NOW: u64 = 1_700_000_000;

fn value(number: u64, length: usize) -> Vec<u8> {
    number.to_le_bytes().iter().copied().cycle().take(length).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn it_is_a_map_but_for_what_has_gone(
        steps in prop::collection::vec((0..400u64, 0..10u8, 0..6usize, 0..40u64), 1..4000),
        move_at in 0..3u8,
    ) {
        let options = Options { lanes: 1, move_at, ..Options::of_memory(4 << 20) };
        let cache = Cache::with_seed(&options, 7);
        let mut model: HashMap<u64, (Meta, Vec<u8>)> = HashMap::new();
        let mut now = NOW;
        for (number, (key, step, length, ttl)) in steps.into_iter().enumerate() {
            let name = format!("key{key}");
            match step {
                0..=4 => {
                    let length = [10, 100, 3000, 12_000, 70_000, 300_000][length];
                    let expires = if ttl < 20 { 0 } else { now + ttl - 19 };
                    let meta = Meta { flags: (key % 3) as u32, expires, id: number as u64, ..Meta::default() };
                    let value = value(number as u64, length);
                    let (first, second) = value.split_at(length / 3);
                    cache.put(name.as_bytes(), &meta, [first, second], now).unwrap();
                    model.insert(key, (meta, value));
                }
                5 => {
                    let was_there = cache.delete(name.as_bytes());
                    prop_assert!(!was_there || model.remove(&key).is_some());
                    model.remove(&key);
                }
                6 => {
                    now += ttl / 8;
                    cache.tidy(now);
                }
                _ => {
                    let found = cache.get(name.as_bytes(), now, |hit| (hit.item.meta, hit.item.value.to_vec())).hit();
                    let expected = model.get(&key).filter(|(meta, _)| meta.expires == 0 || meta.expires > now);
                    if let Some(found) = found {
                        prop_assert_eq!(Some(&found), expected);
                    }
                }
            }
            prop_assert!(cache.properties().memory_bytes <= (4 << 20) + (64 << 10), "{:?}", cache.properties());
        }
    }
}

#[test]
fn what_fits_stays() {
    let cache = Cache::with_seed(&Options::of_memory(16 << 20), 1);
    for number in 0..50_000u64 {
        cache.put(&number.to_le_bytes(), &Meta::default(), [&value(number, 100), b""], NOW).unwrap();
    }
    for number in 0..50_000u64 {
        let found = cache.get(&number.to_le_bytes(), NOW, |hit| hit.item.value.to_vec());
        assert_eq!(found.hit(), Some(value(number, 100)), "{number}");
    }
    assert_eq!(cache.properties().evicted, 0);
}

#[test]
fn an_item_takes_32_bytes_at_most_beside_key_and_value() {
    let memory = 64 << 20;
    let options = Options { item_bytes_about: 150, ..Options::of_memory(memory) };
    let cache = Cache::with_seed(&options, 1);
    for number in 0..2_000_000u64 {
        let meta = Meta { id: number, ..Meta::default() };
        cache.put(format!("{number:016}").as_bytes(), &meta, [&value(number, 101), b""], NOW).unwrap();
    }
    let items = cache.properties().items as usize;
    let beside = memory as f64 / items as f64 - 117.0;
    assert!(beside <= 32.0, "{beside} bytes an item, of {items} items; {:?}", cache.properties());
}

#[test]
fn many_threads_never_see_a_wrong_value() {
    let options = Options { lanes: 4, ..Options::of_memory(4 << 20) };
    let cache = Cache::with_seed(&options, 1);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let cache = cache.clone();
            scope.spawn(move || {
                let mut state = thread + 1;
                for _ in 0..60_000 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let key = (state >> 33) % 3000;
                    let name = key.to_le_bytes();
                    match (state >> 20) % 8 {
                        0..=2 => {
                            let length = [50, 500, 20_000][(state >> 50) as usize % 3];
                            let meta = Meta { flags: length as u32, ..Meta::default() };
                            cache.put(&name, &meta, [&value(key, length), b""], NOW).unwrap();
                        }
                        3 => _ = cache.delete(&name),
                        _ => {
                            cache.get(&name, NOW, |hit| {
                                assert_eq!(hit.item.value, value(key, hit.item.meta.flags as usize));
                            });
                        }
                    }
                }
            });
        }
    });
    assert!(cache.properties().evicted > 0);
}

#[test]
fn a_scan_does_not_drive_out_what_is_read() {
    let cache = Cache::with_seed(&Options::of_memory(8 << 20), 1);
    let put =
        |number: u64| cache.put(&number.to_le_bytes(), &Meta::default(), [&value(number, 200), b""], NOW).unwrap();
    let get = |number: u64| cache.get(&number.to_le_bytes(), NOW, |_| ()).hit().is_some();
    (0..5000).for_each(put);
    for _ in 0..3 {
        assert!((0..5000).all(get));
    }
    for number in 1_000_000..1_300_000 {
        put(number);
        if number % 3 == 0 {
            get(number % 5000);
        }
    }
    let kept = (0..5000).filter(|number| get(*number)).count();
    assert!(kept > 4900, "{kept} of 5000 are left");
}

#[test]
fn expired_items_give_their_memory_back_before_others_go() {
    let cache = Cache::with_seed(&Options { lanes: 1, ..Options::of_memory(64 << 20) }, 1);
    for number in 0..250_000u64 {
        let expires = if number % 2 == 0 { NOW + 10 } else { 0 };
        cache
            .put(&number.to_le_bytes(), &Meta { expires, ..Meta::default() }, [&value(number, 180), b""], NOW)
            .unwrap();
    }
    assert_eq!(cache.properties().evicted, 0);
    cache.tidy(NOW + 20);
    assert!(cache.properties().reclaimed > 110_000, "{:?}", cache.properties());
    for number in 1_000_000..1_100_000u64 {
        cache.put(&number.to_le_bytes(), &Meta::default(), [&value(number, 180), b""], NOW + 20).unwrap();
    }
    assert_eq!(cache.properties().evicted, 0);
    assert!(
        (1..250_000u64).step_by(2).all(|number| cache.get(&number.to_le_bytes(), NOW + 20, |_| ()).hit().is_some())
    );
}
