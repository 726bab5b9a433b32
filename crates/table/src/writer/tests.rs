use super::*;
use crate::format::MAX_KEY_BYTES;
use crate::key::KeyKind;
use crate::testing::{MemoryFile, Random, build};
use crate::{Compression, KeyRef, Trailer};
use situ_sim::SimMemory;

fn put(sequence: u64) -> Trailer {
    Trailer::new(sequence, KeyKind::Put)
}

#[test]
fn what_does_not_ascend_or_fit_is_refused() {
    let mut writer = TableWriter::new(Box::new(MemoryFile::default()), &TableOptions::default(), 0).unwrap();
    writer.add(KeyRef::new(b"m", put(5)), b"").unwrap();
    for (user_key, trailer) in [
        (&b"m"[..], put(5)),
        (b"m", put(6)),
        (b"l", put(1)),
        (b"", put(1)),
        (b"n", Trailer::new(1, KeyKind::RangeDelete)),
        (b"n", Trailer(0x1ff)),
    ] {
        assert!(
            matches!(writer.add(KeyRef::new(user_key, trailer), b""), Err(situ_storage::Error::Invalid(_))),
            "{user_key:?}"
        );
    }
    let long = vec![b'x'; MAX_KEY_BYTES + 1];
    assert!(matches!(writer.add(KeyRef::new(&long, put(1)), b""), Err(situ_storage::Error::Invalid(_))));
    assert!(writer.add_range_tombstone(b"b", 1, b"b").is_err() && writer.add_range_tombstone(b"c", 1, b"b").is_err());
    assert!(writer.add_range_tombstone(b"a", 1, &long).is_err());
    // A refusal changes nothing.
    writer.add(KeyRef::new(b"m", Trailer::new(4, KeyKind::Delete)), b"").unwrap();
    writer.add(KeyRef::new(b"ma", put(9)), b"").unwrap();
    let summary = writer.finish().unwrap();
    assert_eq!((summary.properties.entries, summary.properties.deletions), (3, 1));
    assert_eq!(summary.properties.smallest_key(), Some(KeyRef::new(b"m", put(5))));
    assert_eq!(summary.properties.largest_key(), Some(KeyRef::new(b"ma", put(9))));
}

#[test]
fn the_estimate_is_close_to_the_file() {
    let mut random = Random::seeded(1);
    for compression in [Compression::None, Compression::Lz4] {
        for entries in [0, 1, 100, 20_000] {
            let file = MemoryFile::default();
            let options = TableOptions { compression, ..TableOptions::default() };
            let mut writer = TableWriter::new(Box::new(file), &options, 0).unwrap();
            for i in 0..entries {
                let value = random.bytes(50);
                writer.add(KeyRef::new(format!("{i:016}").as_bytes(), put(i)), &value).unwrap();
            }
            let estimate = writer.estimated_bytes();
            let bytes = writer.finish().unwrap().bytes;
            assert!(estimate.abs_diff(bytes) <= 300 + bytes / 50, "{estimate} for {bytes}");
        }
    }
}

#[test]
fn the_same_entries_give_the_same_bytes_and_blocks_keep_to_their_size() {
    let keys: Vec<_> = (0..5000u32).map(|i| format!("key{:06}", i * 7).into_bytes()).collect();
    for block_bytes in [512, 4096, 30_000] {
        let options = TableOptions { block_bytes, compression: Compression::None, ..TableOptions::default() };
        let table = || build(&options, keys.iter().map(|k| (KeyRef::new(k, put(1)), &k[..])), &[(b"a", 1, b"b")]);
        let (bytes, summary) = table();
        assert_eq!(bytes, table().0);
        let mean = summary.properties.data_bytes / summary.properties.data_blocks;
        assert!(mean <= block_bytes as u64 + 5 && mean >= block_bytes as u64 * 9 / 10, "{mean} of {block_bytes}");
    }
}

/// The parts, with the blocks encoded by others than the appender, and late.
#[test]
fn the_parts_give_the_bytes_of_the_writer() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd { level: 1 }] {
        let options = TableOptions { compression, index_block_bytes: 300, ..TableOptions::default() };
        let values: Vec<_> = (0..9000u32).map(|i| format!("{:0w$}", i % 13, w = 1 + (i % 90) as usize)).collect();
        let keys: Vec<_> = (0..9000u32).map(|i| format!("key{i:06}")).collect();
        let entries = || keys.iter().zip(&values).map(|(k, v)| (KeyRef::new(k.as_bytes(), put(1)), v.as_bytes()));
        let (expected, expected_summary) = build(&options, entries(), &[(b"a", 1, b"b")]);

        let mut builder = TableBuilder::new(&options, 1_700_000_000).unwrap();
        let mut encoders = [(); 2].map(|()| crate::BlockEncoder::new(compression).unwrap());
        let mut blocks: Vec<RawBlock> = entries().filter_map(|(key, value)| builder.add(key, value).unwrap()).collect();
        builder.add_range_tombstone(b"a", 1, b"b").unwrap();
        let (last, end) = builder.finish().unwrap();
        blocks.extend(last);
        assert_eq!(end.key_bounds().unwrap().0.user, b"key000000");
        assert_eq!(blocks.len() as u64, expected_summary.properties.data_blocks);
        let encoded: Vec<_> =
            blocks.into_iter().enumerate().map(|(i, block)| encoders[i % 2].encode(block).unwrap()).collect();
        let file = MemoryFile::default();
        let mut appender = TableAppender::new(Box::new(file.clone()), &options).unwrap();
        for block in encoded {
            appender.append(block).unwrap();
        }
        assert_eq!(appender.finish(end).unwrap(), expected_summary);
        assert!(file.bytes() == expected, "{compression}");
    }
}

/// Longer than the allocations that the tests refuse.
const LARGE_BYTES: usize = 1 << 20;

#[test]
fn an_entry_without_memory_for_its_block_is_refused() {
    let mut builder = TableBuilder::new(&TableOptions::default(), 0).unwrap();
    let value = vec![7; LARGE_BYTES];
    assert_eq!(builder.add(KeyRef::new(b"a", put(1)), b"1").unwrap().map(drop), None);
    let refused = SimMemory::refusing(LARGE_BYTES, || builder.add(KeyRef::new(b"b", put(1)), &value)).unwrap_err();
    assert!(refused.is_out_of_memory(), "{refused}");
    assert_eq!(builder.entries(), 1, "nothing was added");
}

#[test]
fn a_table_without_memory_for_its_range_tombstones_is_refused() {
    let mut builder = TableBuilder::new(&TableOptions::default(), 0).unwrap();
    let mut add = || {
        let mut numbers = 0..LARGE_BYTES as u32 / 20;
        numbers.try_for_each(|number| builder.add_range_tombstone(&number.to_be_bytes(), 1, &[255; 20]))
    };
    let refused = SimMemory::refusing(LARGE_BYTES, &mut add).unwrap_err();
    assert!(refused.is_out_of_memory(), "{refused}");
    add().unwrap();
    let refused = SimMemory::refusing(LARGE_BYTES, || builder.finish()).map(drop).unwrap_err();
    assert!(refused.is_out_of_memory(), "{refused}");
}

/// Sixteen bytes a line, each line after its offset.
fn hex(bytes: &[u8]) -> String {
    let line = |(i, line): (usize, &[u8])| {
        let bytes: Vec<_> = line.iter().map(|b| format!("{b:02x}")).collect();
        format!("{:03x}: {}\n", 16 * i, bytes.join(" "))
    };
    bytes.chunks(16).enumerate().map(line).collect()
}

fn opened(golden: &str) -> std::sync::Arc<crate::Table> {
    let digits = golden.lines().flat_map(|line| line.split_once(": ").unwrap().1.split(' '));
    crate::testing::open(digits.map(|digit| u8::from_str_radix(digit, 16).unwrap()).collect()).unwrap()
}

/// The page's example as it was before tables told their longest key and value.
#[test]
fn what_older_programs_wrote_is_read() {
    let table = opened(include_str!("without_lengths.hex"));
    table.verify(&mut |_| {}).unwrap();
    let properties = table.properties();
    assert_eq!((properties.entries, properties.longest_key_bytes, properties.longest_value_bytes), (3, None, None));
    assert!(properties.value_lengths.is_empty());
}

/// The page's example as it was before tables told how long their values are.
#[test]
fn what_programs_before_value_lengths_wrote_is_read() {
    let table = opened(include_str!("without_value_lengths.hex"));
    table.verify(&mut |_| {}).unwrap();
    assert_eq!(table.properties().longest_value_bytes, Some(5));
    assert!(table.properties().value_lengths.is_empty());
}

/// The golden file is the page's example: what is written today must be readable for ever, and not change by accident.
#[test]
fn the_pages_example_is_what_the_writer_makes() {
    let page = include_str!("../../../../docs/formats/table.md");
    let golden = page.split("```hex\n").nth(1).unwrap().split("```").next().unwrap();

    let file = MemoryFile::default();
    let options = TableOptions { compression: Compression::None, keyspace_id: 2, ..TableOptions::default() };
    let mut writer = TableWriter::new(Box::new(file.clone()), &options, 1_700_000_000).unwrap();
    // The only thing that changes from release to release.
    writer.builder.properties.writer_version = "situ".to_owned();
    writer.add(KeyRef::new(b"apple", Trailer::new(9, KeyKind::Delete)), b"").unwrap();
    writer.add(KeyRef::new(b"apple", put(8)), b"first").unwrap();
    writer.add(KeyRef::new(b"apply", put(7)), b"b").unwrap();
    writer.add_range_tombstone(b"b", 5, b"c").unwrap();
    writer.finish().unwrap();
    let made = hex(&file.bytes());
    assert_eq!(made, golden, "the writer made\n{made}");

    let table = opened(golden);
    table.verify(&mut |_| {}).unwrap();
    assert_eq!(table.properties().keyspace_id, 2);
    assert_eq!((table.properties().longest_key_bytes, table.properties().longest_value_bytes), (Some(5), Some(5)));
    let lengths = &table.properties().value_lengths;
    assert_eq!((lengths.entries(), lengths.at_least(1), lengths.at_least(4)), (3, 2.0, 1.0));
    assert_eq!((table.properties().entries, table.range_tombstones().len()), (3, 1));
}

/// A table's blocks with all that a device would say of them.
struct Built {
    stored: Vec<u8>,
    raw_bytes: usize,
    entries: Vec<(Vec<u8>, Trailer, Vec<u8>)>,
    hashes: Vec<u64>,
    value_classes: [u16; 16],
}

impl Built {
    fn block(&self) -> BuiltBlock<'_> {
        let (first, last) = (&self.entries[0], &self.entries[self.entries.len() - 1]);
        let sequences = || self.entries.iter().map(|(_, trailer, _)| trailer.sequence());
        let longest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap() as u32;
        BuiltBlock {
            stored: &self.stored,
            raw_bytes: self.raw_bytes,
            first: KeyRef::new(&first.0, first.1),
            last: KeyRef::new(&last.0, last.1),
            entries: self.entries.len() as u64,
            deletions: self.entries.iter().filter(|(_, trailer, _)| trailer.kind() == Some(KeyKind::Delete)).count()
                as u64,
            key_bytes: self.entries.iter().map(|(key, ..)| key.len() as u64 + 8).sum(),
            value_bytes: self.entries.iter().map(|(.., value)| value.len() as u64).sum(),
            longest_key: longest(&mut self.entries.iter().map(|(key, ..)| key.len())),
            longest_value: longest(&mut self.entries.iter().map(|(.., value)| value.len())),
            smallest_sequence: sequences().min().unwrap(),
            largest_sequence: sequences().max().unwrap(),
            hashes: &self.hashes,
            value_classes: &self.value_classes,
        }
    }
}

fn built_of(bytes: &[u8]) -> Vec<Built> {
    let table = crate::testing::open(bytes.to_vec()).unwrap();
    let mut last: Option<Vec<u8>> = None;
    let of_block = |boundary: situ_storage::Result<crate::BlockBoundary>| {
        let handle = boundary.unwrap().block;
        let stored = bytes[handle.offset as usize..][..handle.stored_bytes() as usize].to_vec();
        let mut lone = crate::LoneBlock::decode(&stored, "block").unwrap();
        let raw_bytes = lone.raw().len();
        let (mut entries, mut hashes, mut value_classes) = (Vec::new(), Vec::new(), [0u16; 16]);
        while lone.valid() {
            let (key, value) = (lone.key(), lone.value().to_vec());
            if last.as_deref() != Some(key.user) {
                hashes.push(crate::hash_key(key.user));
                last = Some(key.user.to_vec());
            }
            value_classes[(usize::BITS - value.len().leading_zeros()) as usize] += 1;
            entries.push((key.user.to_vec(), key.trailer, value));
            lone.advance().unwrap();
        }
        Built { stored, raw_bytes, entries, hashes, value_classes }
    };
    table.block_boundaries().map(of_block).collect()
}

#[test]
fn blocks_built_elsewhere_and_entries_give_the_same_table() {
    let mut random = Random::seeded(5);
    for compression in [Compression::None, Compression::Lz4] {
        let options =
            TableOptions { compression, index_block_bytes: 300, block_bytes: 1000, ..TableOptions::default() };
        let entries: Vec<_> = (0..3000u32)
            .map(|i| {
                let kind = if i % 7 == 0 { KeyKind::Delete } else { KeyKind::Put };
                let value = if kind == KeyKind::Delete { Vec::new() } else { vec![b'v'; (i % 200) as usize] };
                (format!("key{:05}", i / 2).into_bytes(), Trailer::new(u64::from(9000 - i), kind), value)
            })
            .collect();
        let all = || entries.iter().map(|(key, trailer, value)| (KeyRef::new(key, *trailer), value.as_slice()));
        let (expected, summary) = build(&options, all(), &[]);
        let blocks = built_of(&expected);
        assert_eq!(blocks.len() as u64, summary.properties.data_blocks);
        for share in [0, 50, 100] {
            let file = MemoryFile::default();
            let mut writer = TableWriter::new(Box::new(file.clone()), &options, 1_700_000_000).unwrap();
            for block in &blocks {
                let before = writer.estimated_bytes();
                if random.below(100) < share {
                    writer.append_block(&block.block()).unwrap();
                } else {
                    block.entries.iter().for_each(|(key, trailer, value)| {
                        writer.add(KeyRef::new(key, *trailer), value).unwrap();
                    });
                }
                assert!(writer.estimated_bytes() >= before.saturating_sub(1000));
            }
            assert_eq!(writer.finish().unwrap(), summary);
            assert!(file.bytes() == expected, "{share} percent of the blocks were built elsewhere");
        }
    }
}

#[test]
fn a_report_that_contradicts_itself_is_refused() {
    let options = TableOptions { block_bytes: 200, ..TableOptions::default() };
    let keys: Vec<_> = (0..100u32).map(|i| format!("key{i:06}").into_bytes()).collect();
    let (bytes, _) = build(&options, keys.iter().map(|key| (KeyRef::new(key, put(1)), &key[..])), &[]);
    let blocks = built_of(&bytes);
    let [first, second] = [blocks[0].block(), blocks[1].block()];
    let refused = |block: &BuiltBlock<'_>| {
        let mut writer = TableWriter::new(Box::new(MemoryFile::default()), &options, 0).unwrap();
        writer.append_block(&first).unwrap();
        matches!(writer.append_block(block), Err(situ_storage::Error::Invalid(_)))
    };
    assert!(!refused(&second));
    assert!(refused(&first), "keys that do not ascend");
    assert!(refused(&BuiltBlock { last: second.first, ..second }), "several entries of one key");
    assert!(refused(&BuiltBlock { entries: 0, ..second }));
    assert!(refused(&BuiltBlock { longest_key: 1, ..second }));
    assert!(refused(&BuiltBlock { raw_bytes: 0, ..second }));
    assert!(refused(&BuiltBlock { stored: &[], ..second }));
    assert!(refused(&BuiltBlock { smallest_sequence: 2, ..second }));
}
