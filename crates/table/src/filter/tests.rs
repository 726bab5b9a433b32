use super::*;
use situ_sim::SimMemory;

fn filter(bits_per_key: u32, keys: u64) -> Filter {
    let mut builder = FilterBuilder::new(bits_per_key);
    (0..keys).for_each(|key| builder.add(&key.to_le_bytes()).unwrap());
    let block = builder.finish().unwrap().unwrap();
    assert_eq!(block.len(), builder.finished_bytes_with(0));
    Filter::decode(&block).unwrap()
}

#[test]
fn no_key_is_missed() {
    for bits_per_key in [1, 2, 3, 5, 7, 10, 13, 20, 40] {
        for keys in [1, 2, 50, 51, 1000, 30_000] {
            let filter = filter(bits_per_key, keys);
            assert!((0..keys).all(|key| filter.may_contain(hash_key(&key.to_le_bytes()))));
        }
    }
}

#[test]
fn false_positives_stay_below_what_is_promised() {
    for (bits_per_key, limit) in [(5, 0.12), (8, 0.03), (10, 0.012), (16, 0.0015)] {
        for keys in [1000, 200_000] {
            let filter = filter(bits_per_key, keys);
            let asked = 400_000;
            let passed = (keys..keys + asked).filter(|key| filter.may_contain(hash_key(&key.to_le_bytes()))).count();
            let rate = passed as f64 / asked as f64;
            println!("{bits_per_key} bits, {keys} keys: {:.3} %", rate * 100.0);
            assert!(rate < limit, "{rate} with {bits_per_key} bits per key");
        }
    }
}

#[test]
fn a_filter_that_is_none_is_refused() {
    let mut builder = FilterBuilder::new(10);
    builder.add(b"key").unwrap();
    let block = builder.finish().unwrap().unwrap();
    assert!(Filter::decode(&block).is_ok());
    for length in 0..block.len() {
        assert!(Filter::decode(&block[..length]).is_err());
    }
    for (at, byte) in [(0, 0), (0, 2), (1, 0), (1, 17), (2, 1), (4, 0), (4, 2), (7, 1)] {
        let mut wrong = block.clone();
        wrong[at] = byte;
        assert!(Filter::decode(&wrong).is_err(), "{byte} at {at}");
    }
    assert_eq!(FilterBuilder::new(10).finish().unwrap(), None);
    let mut off = FilterBuilder::new(0);
    off.add(b"key").unwrap();
    assert_eq!(off.finish().unwrap(), None);
}

/// The hashes of the keys, and the filter made of them, once ended the process.
#[test]
fn a_filter_without_memory_is_refused() {
    let mut builder = FilterBuilder::new(10);
    let mut add = |keys: u64| (0..keys).try_for_each(|key| builder.add(&key.to_le_bytes()));
    let refused = SimMemory::refusing(64 << 10, || add(10_000)).unwrap_err();
    assert!(refused.is_out_of_memory(), "{refused}");
    add(100_000).unwrap();
    let refused = SimMemory::refusing(64 << 10, || builder.finish()).unwrap_err();
    assert!(refused.is_out_of_memory(), "{refused}");
    assert_eq!(builder.finish().unwrap().map(|block| block.len()), Some(builder.finished_bytes_with(0)));
}
