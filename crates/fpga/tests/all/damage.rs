//! Damaged inputs get the model's status and its detail. What is beyond the unit is called so.

use crate::skipped::skipped;
use crate::tasks::{self, WIDTHS, assert_is_the_models, assert_same, memory, run};
use situ_accel::abi::*;
use situ_accel::{DeviceTask, run_model};
use situ_compaction::KeyRange;
use situ_compaction::testing::with_seeds;
use situ_fpga::{Memory, NotRun, missing};
use situ_sim::Rng;

/// Flips bits or bytes of one block, and makes its checksum right again with `sound_checksum`.
fn damage(rng: &mut Rng, block: &InputBlock, data: &mut [u8], sound_checksum: bool) {
    let stored = &mut data[block.at as usize..][..block.stored_bytes as usize];
    let body = stored.len() - 5;
    for _ in 0..1 + rng.below(3) {
        match rng.below(3) {
            0 => stored[rng.index(body)] ^= 1 << rng.below(8),
            1 => stored[rng.index(body)] = [0, 1, 0x7f, 0x80, 0xff][rng.index(5)],
            // The restarts' number.
            _ => stored[body - 4 + rng.index(2)] = rng.below(4) as u8,
        }
    }
    if sound_checksum {
        let sum = crc32c::crc32c(&stored[..body + 1]);
        stored[body + 1..].copy_from_slice(&sum.to_le_bytes());
    }
}

#[test]
fn a_flipped_bit_gets_the_models_status() {
    if let Some(why) = missing() {
        skipped("a_flipped_bit_gets_the_models_status", why);
        return;
    }
    with_seeds(60, |rng| {
        let (device, mut data) = tasks::random(rng, 300);
        let Some(block) = device.blocks().nth(rng.index(device.blocks().count().max(1))) else { return };
        let at = block.at as usize + rng.index(block.stored_bytes as usize);
        data[at] ^= 1 << rng.below(8);
        assert_eq!(run_model(&device, &data).unwrap().header.status, STATUS_CHECKSUM);
        assert_same(&device, &data, memory(rng));
    });
}

/// Several blocks may be damaged: the first one in the order of ways counts.
#[test]
fn damage_below_a_sound_checksum_gets_the_models_status() {
    if let Some(why) = missing() {
        skipped("damage_below_a_sound_checksum_gets_the_models_status", why);
        return;
    }
    let statuses = std::cell::RefCell::new([0; 8]);
    with_seeds(400, |rng| {
        let (device, mut data) = tasks::random(rng, 200);
        let blocks: Vec<InputBlock> = device.blocks().copied().collect();
        if blocks.is_empty() {
            return;
        }
        for _ in 0..1 + rng.below(2) {
            let sound = rng.below(8) != 0;
            let block = blocks[rng.index(blocks.len())];
            damage(rng, &block, &mut data, sound);
        }
        let memory = memory(rng);
        let found = WIDTHS.map(|variant| match run(variant, &device, &data, memory) {
            Ok(found) => assert_is_the_models(&found, &device, &data),
            Err(NotRun::Unsuited(_)) => 7,
            Err(other) => panic!("{other}"),
        });
        assert_eq!(found[0], found[1]);
        statuses.borrow_mut()[found[0] as usize] += 1;
    });
    let statuses = statuses.into_inner();
    for status in [STATUS_OK, STATUS_CHECKSUM, STATUS_BLOCK, STATUS_ORDER, STATUS_LIMIT] {
        assert!(statuses[status as usize] > 0, "status {status} never occurs: {statuses:?}");
    }
}

#[test]
fn limits_of_the_task_get_the_models_status() {
    if let Some(why) = missing() {
        skipped("limits_of_the_task_get_the_models_status", why);
        return;
    }
    with_seeds(60, |rng| {
        let (mut device, data) = tasks::random(rng, 200);
        match rng.below(3) {
            0 => device.rules.key_bytes_max = rng.below(u64::from(device.rules.key_bytes_max) + 1) as u32,
            1 => device.rules.value_bytes_max = rng.below(u64::from(device.rules.value_bytes_max) + 1) as u32,
            _ => device.rules.entries_max = rng.below(device.rules.entries_max + 1),
        }
        device.rules.shared_prefix_bytes = 0;
        assert_same(&device, &data, memory(rng));
    });
}

/// A way twice: each internal key is in two ways.
#[test]
fn equal_keys_of_two_ways_get_the_models_status() {
    if let Some(why) = missing() {
        skipped("equal_keys_of_two_ways_get_the_models_status", why);
        return;
    }
    with_seeds(40, |rng| {
        let (mut device, data) = tasks::random(rng, 200);
        let way = device.ways[rng.index(device.ways.len())].clone();
        device.ways.truncate(3);
        device.ways.insert(rng.index(device.ways.len() + 1), way);
        device.rules.entries_max *= 4;
        assert_same(&device, &data, memory(rng));
    });
}

#[test]
fn a_task_beyond_the_unit_is_refused_before_it_begins() {
    if let Some(why) = missing() {
        skipped("a_task_beyond_the_unit_is_refused_before_it_begins", why);
        return;
    }
    let beyond: [fn(&mut DeviceTask); 7] = [
        |task| task.ways.resize(5, Vec::new()),
        |task| task.rules.lz4 = true,
        |task| task.rules.snapshots = (1..10).collect(),
        |task| task.rules.range = KeyRange { lower: Some(b"a".to_vec()), upper: None },
        |task| task.rules.range.upper = Some(b"z".to_vec()),
        |task| task.rules.key_bytes_max = 65,
        |task| task.rules.below = vec![situ_compaction::KeySpan { begin: b"a".to_vec(), end: b"b".to_vec() }],
    ];
    with_seeds(1, |rng| {
        let (device, data) = tasks::random(rng, 100);
        for change in beyond {
            let mut device = device.clone();
            change(&mut device);
            for variant in WIDTHS {
                let found = run(variant, &device, &data, Memory::IDEAL);
                assert!(matches!(found, Err(NotRun::Unsuited(_))), "{found:?}");
            }
        }
    });
}

/// A unit whose result memory is too small says so, and writes nowhere else.
#[test]
fn result_memory_that_is_too_small_is_a_status() {
    if let Some(why) = missing() {
        skipped("result_memory_that_is_too_small_is_a_status", why);
        return;
    }
    with_seeds(20, |rng| {
        let (mut device, data) = tasks::random(rng, 300);
        (device.rules.emit_from, device.rules.emit_bytes_max) = (0, u64::MAX);
        let whole = run_model(&device, &data).unwrap();
        if whole.header.data_bytes < 4000 {
            return;
        }
        (device.result_bytes_max, device.result_blocks_max) = (whole.header.data_bytes / 8, 1);
        for variant in WIDTHS {
            // The side channel has less space, too, and may be first.
            match run(variant, &device, &data, memory(rng)) {
                Ok(found) => {
                    let header = AnswerHeader::take(&mut &*found.report).unwrap();
                    assert_eq!((header.status, header.blocks), (STATUS_SPACE, 0));
                }
                Err(error) => assert!(matches!(error, NotRun::Broken(_)), "{error}"),
            }
        }
    });
}
