use super::*;
use crate::testing::Random;
use situ_sim::SimMemory;

const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd { level: 3 }];

#[test]
fn what_is_stored_comes_back_and_does_not_depend_on_earlier_blocks() {
    let mut random = Random::seeded(1);
    for compression in ALL {
        let mut reused = BlockEncoder::new(compression).unwrap();
        let mut decoded = Vec::new();
        for length in [0, 1, 100, 4096, 70_000, 65_535, 65_534, 300, 1 << 20] {
            let zeros = vec![0; length];
            let noise = random.bytes(length);
            let text: Vec<u8> = (0..length).map(|i| b"abcdefgh"[i % 8] + (random.below(30) == 0) as u8).collect();
            for block in [zeros, noise, text] {
                let (mut stored, mut fresh) = (vec![9; 3], Vec::new());
                let bytes = reused.store(&block, &mut stored).unwrap();
                BlockEncoder::new(compression).unwrap().store(&block, &mut fresh).unwrap();
                assert!(stored[3..] == fresh);
                assert_eq!(bytes + BLOCK_TRAILER_BYTES, fresh.len());
                assert!(bytes <= block.len(), "a block never grows");
                decode_into(&fresh, true, &mut decoded).unwrap();
                assert!(decoded == block);
                assert!(decode_owned(fresh, true).unwrap() == block);
            }
        }
    }
}

/// `bytes` bytes that compress to about half of them.
fn half_noise(bytes: usize) -> Vec<u8> {
    let mut block = Random::seeded(3).bytes(bytes / 2);
    block.resize(bytes, 0);
    block
}

#[test]
fn a_block_without_memory_to_compress_it_is_refused_and_the_next_one_is_encoded() {
    let raw = |bytes: Vec<u8>| {
        let mut block = RawBlock::default();
        block.0.bytes = bytes;
        block
    };
    for compression in [Compression::Lz4, Compression::Zstd { level: 1 }] {
        let mut encoder = BlockEncoder::new(compression).unwrap();
        let large = half_noise(1 << 20);
        // First no memory for what the compressor may need, then none for the compressed block.
        for refused_from in [1 << 20, 1 << 19] {
            let block = raw(large.clone());
            let refused = SimMemory::refusing(refused_from, || encoder.encode(block)).map(drop).unwrap_err();
            assert!(refused.is_out_of_memory(), "{compression} {refused}");
            SimMemory::refusing(refused_from, || encoder.encode(raw(half_noise(1000)))).unwrap();
            // Now the encoder has memory to compress into.
            encoder.encode(raw(large.clone())).unwrap();
        }
    }
}

#[test]
fn a_stored_block_without_memory_to_decode_it_is_refused() {
    for compression in ALL {
        let mut stored = Vec::new();
        BlockEncoder::new(compression).unwrap().store(&half_noise(1 << 20), &mut stored).unwrap();
        let damage = SimMemory::refusing(1 << 20, || decode_into(&stored, true, &mut Vec::new())).unwrap_err();
        assert!(damage.expected.contains("memory"), "{damage:?}");
    }
}

#[test]
fn lengths_are_checked_before_memory_is_taken() {
    for kind in [COMPRESSION_LZ4, COMPRESSION_ZSTD] {
        for length in [u32::MAX, MAX_BLOCK_BYTES as u32 + 1] {
            let mut stored = length.to_le_bytes().to_vec();
            stored.extend_from_slice(&[0; 40]);
            seal(&mut stored, 0, kind);
            let damage = decode_owned(stored, true).unwrap_err();
            assert!(damage.expected.contains("at most"), "{damage:?}");
        }
    }
}

#[test]
fn damaged_blocks_are_refused_with_and_without_their_checksum() {
    let mut random = Random::seeded(2);
    for compression in ALL {
        let mut stored = Vec::new();
        BlockEncoder::new(compression).unwrap().store(&b"some text, ".repeat(40), &mut stored).unwrap();
        for _ in 0..3000 {
            let mut damaged = stored.clone();
            let at = random.below(damaged.len());
            damaged[at] ^= 1 << random.below(8);
            assert!(decode_owned(damaged.clone(), true).is_err());
            // No panic; the checksum is what tells.
            let _ = decode_owned(damaged, false);
        }
        for length in 0..stored.len() {
            assert!(decode_owned(stored[..length].to_vec(), true).is_err());
        }
    }
}
