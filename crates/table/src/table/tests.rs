use super::*;
use crate::TableCursor;
use crate::testing::{MemoryReader, OwnedEntry, Random, build, open};
use crate::{
    Compression, MAX_SEQUENCE, Piece, PieceCursor, ReadMeter, TableAppender, TableBuilder, TableOptions, WarmBytes,
    Warming, hash_key,
};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Ordered as a table is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ModelKey(Vec<u8>, std::cmp::Reverse<Trailer>);

type Model = BTreeMap<ModelKey, Vec<u8>>;

fn model_key(key: KeyRef<'_>) -> ModelKey {
    ModelKey(key.user.to_vec(), std::cmp::Reverse(key.trailer))
}

fn key_ref(key: &ModelKey) -> KeyRef<'_> {
    KeyRef::new(&key.0, key.1.0)
}

/// Keys that share prefixes, are prefixes of each other, repeat, and contain every byte.
fn random_key(random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0 => Vec::new(),
        1 => {
            let length = random.below(300);
            vec![b'a' + random.below(2) as u8; length]
        }
        2 => {
            let length = random.below(6);
            random.bytes(length)
        }
        3 => vec![0xff; random.below(5)],
        _ => format!("user{:05}", random.below(2000)).into_bytes(),
    }
}

fn random_trailer(random: &mut Random) -> Trailer {
    let sequence = match random.below(20) {
        0 => 0,
        1 => MAX_SEQUENCE,
        _ => random.below(1000) as u64,
    };
    Trailer::new(sequence, [KeyKind::Delete, KeyKind::Put, KeyKind::ValueHandle][random.below(3)])
}

fn random_model(random: &mut Random, entries: usize) -> Model {
    let mut model = Model::new();
    for _ in 0..entries {
        let key = random_key(random);
        for _ in 0..1 + random.below(3) {
            let length = if random.below(50) == 0 { random.below(9000) } else { random.below(150) };
            let value = if random.below(2) == 0 { random.bytes(length) } else { vec![7; length] };
            model.insert(model_key(KeyRef::new(&key, random_trailer(random))), value);
        }
    }
    model
}

fn random_options(random: &mut Random) -> TableOptions {
    TableOptions {
        block_bytes: [1, 200, 4096, 65536][random.below(4)],
        restart_interval: [1, 2, 16, 100][random.below(4)],
        compression: [Compression::None, Compression::Lz4, Compression::Zstd { level: 1 }][random.below(3)],
        filter_bits_per_key: [0, 1, 10, 30][random.below(4)],
        index_block_bytes: [1, 100, 4096][random.below(3)],
        keyspace_id: 3,
        keyspace_name: ["", "users"][random.below(2)].to_owned(),
    }
}

fn write(options: &TableOptions, model: &Model) -> Vec<u8> {
    build(options, model.iter().map(|(key, value)| (key_ref(key), &value[..])), &[]).0
}

fn here(cursor: &TableCursor) -> Option<OwnedEntry> {
    cursor.valid().then(|| (cursor.key().user.to_vec(), cursor.key().trailer, cursor.value().to_vec()))
}

fn expected(entry: Option<(&ModelKey, &Vec<u8>)>) -> Option<OwnedEntry> {
    entry.map(|(key, value)| (key.0.clone(), key.1.0, value.clone()))
}

fn check_against_model(table: &Arc<Table>, model: &Model, random: &mut Random) {
    table.verify(&mut |_| {}).unwrap();
    for mut cursor in [table.cursor(ReadOptions::default()), table.sequential_cursor(0)] {
        cursor.first().unwrap();
        for entry in model {
            assert_eq!(here(&cursor), expected(Some(entry)));
            cursor.next().unwrap();
        }
        assert!(!cursor.valid());
        cursor.last().unwrap();
        for entry in model.iter().rev() {
            assert_eq!(here(&cursor), expected(Some(entry)));
            cursor.prev().unwrap();
        }
        assert!(!cursor.valid());
        let all: Vec<_> = model.iter().collect();
        let mut at = random.below(all.len());
        cursor.seek(key_ref(all[at].0)).unwrap();
        for _ in 0..600 {
            assert_eq!(here(&cursor), expected(Some(all[at])), "after a walk to and fro");
            match random.below(5) {
                0 | 1 if at + 1 < all.len() => {
                    cursor.next().unwrap();
                    at += 1;
                }
                2..=4 if at > 0 => {
                    cursor.prev().unwrap();
                    at -= 1;
                }
                _ => {}
            }
        }
        for _ in 0..300 {
            let key = match random.below(2) {
                0 => model_key(KeyRef::new(&random_key(random), random_trailer(random))),
                _ => model.keys().nth(random.below(model.len())).unwrap().clone(),
            };
            cursor.seek(key_ref(&key)).unwrap();
            assert_eq!(here(&cursor), expected(model.range(&key..).next()), "seek {key:?}");
            if cursor.valid() && random.below(2) == 0 {
                cursor.prev().unwrap();
                assert_eq!(here(&cursor), expected(model.range(..&key).next_back()), "seek {key:?}, prev");
            }
            cursor.seek_before(key_ref(&key)).unwrap();
            assert_eq!(here(&cursor), expected(model.range(..=&key).next_back()), "seek_before {key:?}");
            if cursor.valid() && random.below(2) == 0 {
                cursor.next().unwrap();
                let behind = (std::ops::Bound::Excluded(&key), std::ops::Bound::Unbounded);
                assert_eq!(here(&cursor), expected(model.range::<ModelKey, _>(behind).next()));
            }
        }
    }
    for _ in 0..600 {
        let user_key = match random.below(2) {
            0 => random_key(random),
            _ => model.keys().nth(random.below(model.len())).unwrap().0.clone(),
        };
        let snapshot = if random.below(4) == 0 { MAX_SEQUENCE } else { random.below(1100) as u64 };
        let from = model_key(KeyRef::new(&user_key, Trailer::seek(snapshot)));
        let want = expected(model.range(from..).next().filter(|(key, _)| key.0 == user_key));
        let options = ReadOptions {
            fill_cache: random.below(2) == 0,
            verify_checksums: random.below(2) == 0,
            ..ReadOptions::default()
        };
        let got = table.get(&user_key, snapshot, hash_key(&user_key), &options).unwrap();
        assert_eq!(got.map(|e| (user_key.clone(), e.trailer, e.value.to_vec())), want, "{user_key:?} at {snapshot}");
    }
}

#[test]
fn a_table_answers_as_the_map_it_was_made_from() {
    let mut random = Random::seeded(1);
    for round in 0..40 {
        let options = random_options(&mut random);
        let entries = [1, 10, 300, 1500][round % 4];
        let model = random_model(&mut random, entries);
        println!("round {round}: {} entries, {options:?}", model.len());
        let table = open(write(&options, &model)).unwrap();
        check_against_model(&table, &model, &mut random);
    }
}

#[test]
fn each_get_of_a_cold_table_reads_at_most_two_blocks() {
    let mut random = Random::seeded(2);
    let model = random_model(&mut random, 3000);
    let options = TableOptions { index_block_bytes: 500, ..TableOptions::default() };
    let reader = MemoryReader::new(write(&options, &model));
    let table = Table::open(Arc::clone(&reader) as Arc<dyn Reader>, 1, BlockCache::new(0)).unwrap();
    assert_eq!(table.footer.index_levels, 2);
    for key in model.keys() {
        let before = reader.reads.load(Ordering::SeqCst);
        assert!(table.get(&key.0, MAX_SEQUENCE, hash_key(&key.0), &ReadOptions::default()).unwrap().is_some());
        assert!(reader.reads.load(Ordering::SeqCst) - before <= 2);
    }
}

/// How far a read goes, of gets and of cursors; and each block that was not in the cache is one miss, read at once or
/// later.
#[test]
fn a_read_goes_as_far_as_it_may() {
    let entries: Vec<_> = (0..2000u32).map(|i| (format!("{i:08}").into_bytes(), vec![1; 100])).collect();
    let trailer = Trailer::new(1, KeyKind::Put);
    let mut written = Vec::new();
    for compression in [Compression::None, Compression::Lz4] {
        let options = TableOptions { compression, ..TableOptions::default() };
        written.push(build(&options, entries.iter().map(|(k, v)| (KeyRef::new(k, trailer), &v[..])), &[]));
    }
    let reads_of = |reach| ReadOptions { reach, ..ReadOptions::default() };
    for (bytes, summary) in &written {
        let cache = BlockCache::new(8 << 20);
        let reader = MemoryReader::new(bytes.clone());
        let table = Table::open(Arc::clone(&reader) as Arc<dyn Reader>, 1, Arc::clone(&cache)).unwrap();
        let get =
            |number: usize, reach| table.get(&entries[number].0, 1, hash_key(&entries[number].0), &reads_of(reach));
        let scan = |reach| {
            let mut cursor = table.cursor(reads_of(reach));
            let mut count = 0;
            cursor.first()?;
            while cursor.valid() {
                (count, _) = (count + 1, cursor.next()?);
            }
            Ok::<_, Error>(count)
        };
        let opened = reader.reads.load(Ordering::SeqCst);
        let asked = || reader.reads.load(Ordering::SeqCst) - opened;
        for reach in [Reach::Cache, Reach::AtOnce] {
            assert!(
                matches!(get(500, reach), Err(Error::NotInMemory)) && matches!(scan(reach), Err(Error::NotInMemory))
            );
        }
        assert_eq!((asked(), cache.stats().misses), (0, 0));
        reader.is_quick.store(true, Ordering::SeqCst);
        assert!(matches!(get(500, Reach::Cache), Err(Error::NotInMemory)));
        assert!(get(500, Reach::AtOnce).unwrap().is_some());
        assert_eq!((asked(), cache.stats().misses), (1, 1));
        assert!(get(500, Reach::Cache).unwrap().is_some());
        assert_eq!(scan(Reach::AtOnce).unwrap(), 2000);
        assert_eq!(cache.stats().misses, summary.properties.data_blocks);
        assert_eq!(scan(Reach::Cache).unwrap(), 2000);
    }
    // A disk that is asked counts in the same way.
    let (bytes, summary) = written.remove(0);
    let cache = BlockCache::new(8 << 20);
    let table = Table::open(MemoryReader::new(bytes), 1, Arc::clone(&cache)).unwrap();
    let mut cursor = table.cursor(ReadOptions::default());
    cursor.first().unwrap();
    while cursor.valid() {
        cursor.next().unwrap();
    }
    assert_eq!(cache.stats().misses, summary.properties.data_blocks);
}

#[test]
fn a_scan_reads_ahead_and_a_sequential_cursor_leaves_the_cache_alone() {
    let entries: Vec<_> = (0..20_000u32).map(|i| (format!("{i:08}").into_bytes(), vec![1; 100])).collect();
    let trailer = Trailer::new(1, KeyKind::Put);
    let options = TableOptions { compression: Compression::None, ..TableOptions::default() };
    let (bytes, summary) = build(&options, entries.iter().map(|(k, v)| (KeyRef::new(k, trailer), &v[..])), &[]);
    let cache = BlockCache::new(64 << 20);
    let reader = MemoryReader::new(bytes);
    let table = Table::open(Arc::clone(&reader) as Arc<dyn Reader>, 1, Arc::clone(&cache)).unwrap();
    let blocks = summary.properties.data_blocks;
    let reads = |mut cursor: TableCursor| {
        let before = reader.reads.load(Ordering::SeqCst);
        cursor.first().unwrap();
        let mut count = 0;
        while cursor.valid() {
            count += 1;
            cursor.next().unwrap();
        }
        assert_eq!(count, entries.len());
        reader.reads.load(Ordering::SeqCst) - before
    };
    let before = cache.stats().blocks;
    let sequential = reads(table.sequential_cursor(1 << 20));
    assert!(sequential <= 3 + table.leaf_count() as u64, "{sequential} reads");
    assert_eq!(cache.stats().blocks, before);
    let cold = reads(table.cursor(ReadOptions::default()));
    assert!(cold < blocks / 10, "{cold} reads for {blocks} blocks");
    assert_eq!(reads(table.cursor(ReadOptions::default())), 0);
}

#[test]
fn huge_keys_and_values_have_blocks_of_their_own() {
    let mut random = Random::seeded(3);
    let trailer = Trailer::new(5, KeyKind::Put);
    let long = vec![b'k'; crate::format::MAX_KEY_BYTES];
    let entries = [
        (b"a".to_vec(), random.bytes(3)),
        (b"b".to_vec(), random.bytes(20 << 20)),
        (b"c".to_vec(), vec![0; 10 << 20]),
        (long[..long.len() - 1].to_vec(), random.bytes(70_000)),
        (long.clone(), Vec::new()),
    ];
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd { level: 3 }] {
        let options = TableOptions { compression, ..TableOptions::default() };
        let (bytes, summary) = build(&options, entries.iter().map(|(k, v)| (KeyRef::new(k, trailer), &v[..])), &[]);
        assert!(summary.properties.data_blocks >= 4);
        let table = open(bytes).unwrap();
        table.verify(&mut |_| {}).unwrap();
        let mut cursor = table.sequential_cursor(0);
        cursor.first().unwrap();
        for (key, value) in &entries {
            assert!(cursor.key().user == key && cursor.value() == value);
            cursor.next().unwrap();
            let got = table.get(key, 9, hash_key(key), &ReadOptions::default()).unwrap().unwrap();
            assert!(*got.value == value[..]);
        }
    }
}

#[test]
fn a_table_of_nothing_and_one_of_range_tombstones_only() {
    let (bytes, summary) = build(&TableOptions::default(), [], &[]);
    assert_eq!(summary.properties.smallest_key(), None);
    let table = open(bytes).unwrap();
    table.verify(&mut |_| {}).unwrap();
    assert!(table.get(b"a", MAX_SEQUENCE, hash_key(b"a"), &ReadOptions::default()).unwrap().is_none());
    assert_eq!(table.block_boundaries().count(), 0);
    assert!(table.range_tombstones().is_empty());

    let tombstones: [(&[u8], u64, &[u8]); 4] = [(b"b", 7, b"q"), (b"", 1, b"z"), (b"b", 9, b"c"), (b"b", 7, b"c")];
    let (bytes, summary) = build(&TableOptions::default(), [], &tombstones);
    assert_eq!((summary.properties.smallest_sequence, summary.properties.largest_sequence), (1, 9));
    let table = open(bytes).unwrap();
    table.verify(&mut |_| {}).unwrap();
    let raw = |begin: &[u8], sequence, end: &[u8]| RangeTombstone { begin: begin.into(), end: end.into(), sequence };
    let want = [raw(b"", 1, b"z"), raw(b"b", 9, b"c"), raw(b"b", 7, b"c"), raw(b"b", 7, b"q")];
    assert!(table.range_tombstones().iter().map(Arc::as_ref).eq(&want));
    assert_eq!(table.tombstone_index().covering(b"b", 8), Some(&want[2]));
    let mut cursor = table.cursor(ReadOptions::default());
    for movement in [TableCursor::first, TableCursor::last] {
        movement(&mut cursor).unwrap();
        assert!(!cursor.valid());
    }
    cursor.seek(KeyRef::new(b"a", Trailer::NEWEST)).unwrap();
    assert!(!cursor.valid());
    cursor.seek_before(KeyRef::new(b"a", Trailer::NEWEST)).unwrap();
    assert!(!cursor.valid());
}

#[test]
fn boundaries_and_offsets_agree_with_the_blocks() {
    let mut random = Random::seeded(4);
    let model = random_model(&mut random, 2000);
    let table = open(write(&TableOptions { index_block_bytes: 300, ..TableOptions::default() }, &model)).unwrap();
    let boundaries: Vec<_> = table.block_boundaries().collect::<Result<_>>().unwrap();
    assert_eq!(boundaries.len() as u64, table.properties().data_blocks);
    assert_eq!(boundaries.last().unwrap().offset, table.data_end);
    assert!(boundaries.is_sorted_by(|a, b| a.user_key <= b.user_key && a.offset < b.offset));
    let mut last = 0;
    for key in model.keys() {
        let offset = table.approximate_offset(&key.0).unwrap();
        assert!(last <= offset && offset < table.data_end);
        last = offset;
    }
    assert_eq!(table.approximate_offset(&[0xff; 400]).unwrap(), table.data_end);
}

#[test]
fn the_share_of_a_range_is_about_that_of_its_data() {
    let mut random = Random::seeded(5);
    let model = random_model(&mut random, 2000);
    let keys: Vec<_> = model.keys().map(|key| key.0.clone()).collect();
    // Small index blocks list more data blocks where keys are short.
    for (index_block_bytes, off_by) in [(300, 0.25), (1 << 20, 0.05)] {
        let table = open(write(&TableOptions { index_block_bytes, ..TableOptions::default() }, &model)).unwrap();
        assert_eq!(table.coarse_share(b"", &[0xff; 400]).unwrap(), 1.0);
        assert_eq!(table.coarse_share(&[0xff; 400], &[0xff; 401]).unwrap(), 0.0);
        for (from, to) in [(0, keys.len() / 2), (keys.len() / 4, keys.len() / 2), (keys.len() / 10 * 9, keys.len() - 1)]
        {
            let share = table.coarse_share(&keys[from], &keys[to]).unwrap();
            let offset = |at: usize| table.approximate_offset(&keys[at]).unwrap() as f64;
            let exact = (offset(to) - offset(from)) / table.data_end as f64;
            assert!((share - exact).abs() <= off_by, "{share} instead of {exact}, index blocks of {index_block_bytes}");
        }
    }
}

/// A small table with everything in it: two index levels, compressed and plain blocks, filter, range tombstones.
fn small_table() -> (Vec<u8>, Model) {
    let mut model = Model::new();
    for i in 0..24u64 {
        let value = vec![b'v'; (i % 5) as usize * 11];
        let key = format!("key{:02}", i / 2).into_bytes();
        model.insert(model_key(KeyRef::new(&key, Trailer::new(100 - i, KeyKind::Put))), value);
    }
    let options = TableOptions { block_bytes: 120, index_block_bytes: 60, ..TableOptions::default() };
    let entries = model.iter().map(|(key, value)| (key_ref(key), &value[..]));
    let (bytes, summary) = build(&options, entries, &[(b"key03", 50, b"key05")]);
    assert!(summary.properties.index_blocks > 1 && summary.properties.filter_bytes > 0);
    (bytes, model)
}

/// Reads all there is. Whatever it returns must be what was written.
fn read_all(table: &Arc<Table>, model: &Model) -> Result<()> {
    let mut cursor = table.cursor(ReadOptions::default());
    cursor.first()?;
    for entry in model {
        assert_eq!(here(&cursor), expected(Some(entry)));
        cursor.next()?;
    }
    assert!(!cursor.valid());
    for (key, value) in model {
        let got = table.get(&key.0, key.1.0.sequence(), hash_key(&key.0), &ReadOptions::default())?;
        assert_eq!(*got.unwrap().value, value[..]);
    }
    assert_eq!(table.range_tombstones().len(), 1);
    Ok(())
}

#[test]
fn every_flipped_bit_is_found_and_none_gives_wrong_data() {
    let (bytes, model) = small_table();
    read_all(&open(bytes.clone()).unwrap(), &model).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let Ok(table) = open(damaged).inspect_err(|e| assert!(e.is_corruption(), "{e}")) else { continue };
        let verified = table.verify(&mut |_| {});
        assert!(verified.as_ref().is_err_and(|e| e.is_corruption()), "bit {bit}: {verified:?}");
        if let Err(error) = read_all(&table, &model) {
            assert!(error.is_corruption(), "{error}");
        }
    }
}

#[test]
fn a_table_cut_short_or_made_longer_is_refused() {
    let (bytes, _) = small_table();
    for length in 0..bytes.len() {
        let error = open(bytes[..length].to_vec()).err().unwrap();
        assert!(error.is_corruption(), "{error}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(open(longer).err().unwrap().is_corruption());
    let mut shifted = vec![0];
    shifted.extend(bytes);
    assert!(open(shifted).err().unwrap().is_corruption());
}

/// Damage with checksums that fit it, as a hostile or broken writer might make: an error or some entries, no panic.
#[test]
fn damage_under_a_good_checksum_does_not_panic() {
    let mut random = Random::seeded(5);
    let (bytes, _) = small_table();
    let mut block_ends = vec![];
    for end in 21..bytes.len() {
        let stored = &bytes[..end];
        for start in 16..end - 5 {
            if crc32c::crc32c(&stored[start..end - 4]) == situ_base::bytes::u32_at(stored, end - 4) {
                block_ends.push((start, end));
            }
        }
    }
    assert!(block_ends.len() > 8, "{block_ends:?}");
    for _ in 0..20_000 {
        let mut damaged = bytes.clone();
        for _ in 0..1 + random.below(2) {
            let (start, end) = block_ends[random.below(block_ends.len())];
            let at = start + random.below(end - 4 - start);
            damaged[at] = [0, 1, 0x7f, 0x80, 0xff, random.next() as u8][random.below(6)];
            let checksum = crc32c::crc32c(&damaged[start..end - 4]);
            damaged[end - 4..end].copy_from_slice(&checksum.to_le_bytes());
        }
        let Ok(table) = open(damaged) else { continue };
        let _ = table.verify(&mut |_| {});
        for mut cursor in [table.cursor(ReadOptions::default()), table.sequential_cursor(0)] {
            let walk = |cursor: &mut TableCursor, forward: bool| -> Result<()> {
                if forward {
                    cursor.first()?
                } else {
                    cursor.last()?
                }
                for _ in 0..100 {
                    if !cursor.valid() {
                        break;
                    }
                    let _ = (cursor.key(), cursor.value().len());
                    if forward { cursor.next()? } else { cursor.prev()? }
                }
                Ok(())
            };
            let _ = walk(&mut cursor, true);
            let _ = walk(&mut cursor, false);
            let key = format!("key{:02}", random.below(14)).into_bytes();
            let _ = cursor.seek(KeyRef::new(&key, Trailer::seek(90)));
            let _ = cursor.seek_before(KeyRef::new(&key, Trailer::seek(90)));
            let _ = table.get(&key, 90, hash_key(&key), &ReadOptions::default());
        }
        let _ = table.block_boundaries().count();
    }
}

#[test]
fn random_bytes_are_not_a_table() {
    let mut random = Random::seeded(6);
    for _ in 0..3000 {
        let length = random.below(600);
        let mut bytes = random.bytes(length);
        assert!(open(bytes.clone()).err().unwrap().is_corruption());
        // With a footer that is sound in itself.
        let file_bytes = (length + FOOTER_BYTES) as u64;
        let mut handle = || BlockHandle { offset: random.next() % 700, bytes: (random.next() % 300) as u32 };
        let footer = Footer {
            filter: handle(),
            range_tombstones: handle(),
            properties: handle(),
            index: handle(),
            index_levels: 1,
            file_bytes,
        };
        bytes.extend(footer.encode());
        assert!(open(bytes).err().unwrap().is_corruption());
    }
}

#[test]
fn what_a_table_pins_is_charged_until_it_is_closed() {
    let (bytes, _) = small_table();
    let cache = BlockCache::new(1 << 20);
    let table = Table::open(MemoryReader::new(bytes), 1, Arc::clone(&cache)).unwrap();
    let filter = table.filter.as_ref().unwrap().memory_bytes();
    // The tombstone and its keys, the counters of its `Arc`, and the pointer to it.
    let tombstone = size_of::<RangeTombstone>() + 10 + 3 * size_of::<usize>();
    let opened = table.index.memory_bytes() + filter + tombstone;
    assert_eq!(cache.stats().pinned_bytes as usize, opened);
    let index = table.tombstone_index().index_bytes();
    assert!(index > 0);
    assert_eq!(cache.stats().pinned_bytes as usize, opened + index);
    table.tombstone_index();
    assert_eq!(cache.stats().pinned_bytes as usize, opened + index);
    drop(table);
    assert_eq!(cache.stats().pinned_bytes, 0);
}

/// A table of blocks of ten entries, each warm in the share of its entries that `warm` says, written for a cache.
fn written_warm(cache: &Arc<BlockCache>, entries: u32, warm: impl Fn(u32) -> u8) -> Arc<Table> {
    let options = TableOptions {
        compression: Compression::None,
        index_block_bytes: 200,
        block_bytes: 1100,
        ..TableOptions::default()
    };
    let file = crate::testing::MemoryFile::default();
    let mut builder = TableBuilder::new(&options, 1).unwrap();
    let mut appender = TableAppender::new(Box::new(file.clone()), &options).unwrap();
    appender.set_warming(Arc::new(Warming::new(Arc::clone(cache))), 1);
    let mut read = WarmBytes::default();
    for number in 0..entries {
        let (key, value) = (number.to_be_bytes(), [number as u8; 80]);
        if let Some(mut block) = builder.add(KeyRef::new(&key, Trailer::new(1, KeyKind::Put)), &value).unwrap() {
            block.mark_warm(std::mem::take(&mut read));
            appender.encode_and_append(block).unwrap();
        }
        read = read + WarmBytes::of_block((key.len() + value.len()) as u64, warm(number));
    }
    let (last, end) = builder.finish().unwrap();
    let mut last = last.unwrap();
    last.mark_warm(read);
    appender.encode_and_append(last).unwrap();
    appender.finish(end).unwrap();
    let table = Table::open(MemoryReader::new(file.bytes()), 1, Arc::clone(cache)).unwrap();
    assert_eq!(table.footer.index_levels, 2);
    table
}

fn misses_of(cache: &BlockCache, read: impl FnOnce()) -> u64 {
    let before = cache.stats().misses;
    read();
    cache.stats().misses - before
}

#[test]
fn warm_blocks_are_in_the_cache_before_anybody_asks() {
    let cache = BlockCache::new(8 << 20);
    let table = written_warm(&cache, 3000, |number| if number < 1500 || number % 100 == 0 { 2 } else { 0 });
    let get = |number: u32| {
        let key = number.to_be_bytes();
        let found = table.get(&key, MAX_SEQUENCE, hash_key(&key), &ReadOptions::default()).unwrap().unwrap();
        assert_eq!(found.value[..], [number as u8; 80]);
    };
    // The index blocks first.
    for number in 0..3000 {
        table.approximate_offset(&u32::to_be_bytes(number)).unwrap();
    }
    assert_eq!(misses_of(&cache, || (0..1480).for_each(get)), 0);
    assert!(misses_of(&cache, || (1520..3000).for_each(get)) >= 100, "one entry of ten does not make a block warm");
    let mut cursor = table.sequential_cursor(1 << 20);
    cursor.first().unwrap();
    assert_eq!(cursor.warmth(), 3);
    assert_eq!(table.cursor(ReadOptions::default()).warmth(), 0);
}

#[test]
fn what_nobody_reads_goes_through_three_merges() {
    for warmth in (0..=3).rev() {
        let cache = BlockCache::new(8 << 20);
        let table = written_warm(&cache, 3000, |_| warmth);
        let mut cursor = table.sequential_cursor(1 << 20);
        cursor.first().unwrap();
        assert_eq!(cursor.warmth(), u8::saturating_sub(warmth, 1));
        assert_eq!(cache.stats().blocks > 0, warmth > 0);
    }
}

#[test]
fn a_merge_warms_no_more_than_its_part_of_the_cache() {
    let cache = BlockCache::new(1 << 20);
    written_warm(&cache, 5000, |_| 3);
    let warmed = cache.stats().block_bytes;
    assert!((100 << 10..200 << 10).contains(&warmed), "{warmed} of a cache of 1 MiB");
}

#[test]
fn a_forgotten_table_has_no_block_in_the_cache() {
    for index_block_bytes in [200, 1 << 20] {
        let cache = BlockCache::new(8 << 20);
        let table = written_warm(&cache, 3000, |_| 0);
        let other = Arc::clone(&cache);
        let entries: Vec<_> = (0..3000u32).map(|i| (i.to_be_bytes(), [1; 80])).collect();
        let options = TableOptions { index_block_bytes, ..TableOptions::default() };
        let trailer = Trailer::new(1, KeyKind::Put);
        let (bytes, _) = build(&options, entries.iter().map(|(k, v)| (KeyRef::new(k, trailer), &v[..])), &[]);
        let second = Table::open(MemoryReader::new(bytes), 2, other).unwrap();
        for number in 0..3000u32 {
            let key = number.to_be_bytes();
            for table in [&table, &second] {
                assert!(table.get(&key, MAX_SEQUENCE, hash_key(&key), &ReadOptions::default()).unwrap().is_some());
            }
        }
        let both = cache.stats().blocks;
        let lookups = (cache.stats().hits, cache.stats().misses);
        table.forget();
        assert_eq!((cache.stats().hits, cache.stats().misses), lookups, "nobody has looked anything up");
        let one = cache.stats().blocks;
        assert!(one > 0 && one < both);
        second.forget();
        assert_eq!((cache.stats().blocks, cache.stats().block_bytes), (0, 0));
    }
}

/// The steps of a cursor on three threads: one reads, one decodes, one walks over the entries.
#[test]
fn a_table_read_in_parts_has_the_entries_of_a_cursor() {
    use std::sync::mpsc::sync_channel;
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd { level: 1 }] {
        let options = TableOptions { compression, index_block_bytes: 200, ..TableOptions::default() };
        let entries: Vec<_> = (0..20_000u32).map(|i| (format!("{i:010}"), format!("{:040}", i % 97))).collect();
        let trailer = Trailer::new(1, KeyKind::Put);
        let all = entries.iter().map(|(k, v)| (KeyRef::new(k.as_bytes(), trailer), v.as_bytes()));
        let table = crate::testing::open(build(&options, all, &[]).0).unwrap();
        let (read, to_decode) = sync_channel(4);
        let (decoded, to_walk) = sync_channel(4);
        let mut walked = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let read = read;
                for boundary in table.block_boundaries() {
                    let (handle, mut stored) = (boundary.unwrap().block, Vec::new());
                    table.read_stored(handle, &mut stored).unwrap();
                    read.send((handle, stored)).unwrap();
                }
            });
            scope.spawn(|| {
                let decoded = decoded;
                for (handle, stored) in to_decode {
                    let mut block = Block::default();
                    table.decode_stored(handle, &stored, &mut block).unwrap();
                    decoded.send(Arc::new(block)).unwrap();
                }
            });
            for block in to_walk {
                let mut block = table.entries(block).unwrap();
                while block.valid() {
                    walked.push((block.key().user.to_vec(), block.value().to_vec()));
                    block.advance().unwrap();
                }
            }
        });
        assert!(
            walked.iter().map(|(k, v)| (&k[..], &v[..])).eq(entries.iter().map(|(k, v)| (k.as_bytes(), v.as_bytes())))
        );
    }
}

#[test]
fn damage_met_in_parts_names_file_and_block() {
    let (mut bytes, _) = small_table();
    bytes[HEADER_BYTES + 3] ^= 1;
    let table = crate::testing::open(bytes).unwrap();
    let handle = table.block_boundaries().next().unwrap().unwrap().block;
    let mut stored = Vec::new();
    table.read_stored(handle, &mut stored).unwrap();
    let error = table.decode_stored(handle, &stored, &mut Block::default()).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("memory.table"), "{error}");
    let outside = BlockHandle { offset: handle.offset, bytes: u32::MAX };
    assert!(table.read_stored(outside, &mut stored).unwrap_err().is_corruption());
}

/// The pieces of a table of at most so many bytes, read at once.
fn pieces(table: &Arc<Table>, from: &[u8], piece_bytes: u64) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for boundary in table.blocks_from(from).unwrap() {
        let block = boundary.unwrap().block;
        let has_place = |piece: &Piece| piece.stored_bytes() + block.stored_bytes() <= piece_bytes;
        if pieces.last().is_none_or(|last| !has_place(last)) {
            pieces.push(Piece::new(Arc::clone(table)));
        }
        assert!(pieces.last_mut().unwrap().push(block), "data blocks follow each other");
    }
    for piece in &mut pieces {
        let mut bytes = vec![0; piece.stored_bytes() as usize];
        table.reader().read_at(piece.offset(), &mut bytes).unwrap();
        piece.fill(bytes);
    }
    pieces
}

#[test]
fn pieces_have_the_entries_of_a_cursor_from_any_key_on() {
    let mut random = Random::seeded(11);
    let entries: Vec<_> =
        (0..3000u32).map(|i| (format!("{i:06}").into_bytes(), random.bytes(i as usize % 50))).collect();
    let trailer = Trailer::new(1, KeyKind::Put);
    for index_block_bytes in [100, 1 << 20] {
        let options = TableOptions { block_bytes: 300, index_block_bytes, ..TableOptions::default() };
        let (bytes, _) = build(&options, entries.iter().map(|(k, v)| (KeyRef::new(k, trailer), &v[..])), &[]);
        let table = open(bytes).unwrap();
        let coarse = table.coarse_boundaries().unwrap();
        let (sum, data_bytes) = (coarse.iter().map(|(_, bytes)| bytes).sum::<u64>(), table.properties().data_bytes);
        assert!(sum <= data_bytes && data_bytes - sum < coarse.len() as u64, "{sum} of {data_bytes}");
        assert!(coarse.len() > 50 && coarse.is_sorted_by(|a, b| a.0 < b.0), "{}", coarse.len());
        for from in [0, 1, 700, 2999, 3000] {
            let key = format!("{from:06}");
            let mut cursor: Option<PieceCursor> = None;
            let mut found = Vec::new();
            for piece in pieces(&table, key.as_bytes(), 2000) {
                let cursor = match &mut cursor {
                    Some(cursor) => {
                        assert!(!cursor.replace(piece).is_empty());
                        cursor.first().unwrap();
                        cursor
                    }
                    none => {
                        let cursor = none.insert(PieceCursor::new(piece));
                        cursor.first_from(key.as_bytes()).unwrap();
                        cursor
                    }
                };
                while cursor.valid() {
                    found.push((cursor.key().user.to_vec(), cursor.value().to_vec()));
                    cursor.advance().unwrap();
                }
            }
            assert!(found == entries[from..], "from {from}");
        }
    }
}

#[test]
fn a_piece_names_the_block_that_is_damaged() {
    let entries: Vec<_> = (0..1000u32).map(|i| (format!("{i:06}").into_bytes(), vec![1; 20])).collect();
    let trailer = Trailer::new(1, KeyKind::Put);
    let (bytes, _) =
        build(&TableOptions::default(), entries.iter().map(|(k, v)| (KeyRef::new(k, trailer), &v[..])), &[]);
    let table = open(bytes).unwrap();
    let mut piece = pieces(&table, b"", u64::MAX).remove(0);
    let second = table.block_boundaries().nth(1).unwrap().unwrap().block;
    let mut stored = vec![0; piece.stored_bytes() as usize];
    table.reader().read_at(piece.offset(), &mut stored).unwrap();
    stored[(second.offset - piece.offset()) as usize + 10] ^= 1;
    piece.fill(stored);
    let mut cursor = PieceCursor::new(piece);
    cursor.first().unwrap();
    let error = loop {
        match cursor.advance() {
            Ok(()) => assert!(cursor.valid(), "the damage was not seen"),
            Err(error) => break error,
        }
    };
    assert!(error.is_corruption() && error.to_string().contains(&second.offset.to_string()), "{error}");
    // A piece that was not filled has no bytes to believe.
    let mut empty = Piece::new(Arc::clone(&table));
    assert!(empty.push(second) && !empty.push(second));
    assert!(PieceCursor::new(empty).first().unwrap_err().is_corruption());
}

#[test]
fn a_meter_counts_what_a_sequential_cursor_reads() {
    let entries: Vec<_> = (0..20_000u32).map(|i| (format!("{i:08}").into_bytes(), vec![1; 100])).collect();
    let trailer = Trailer::new(1, KeyKind::Put);
    let options = TableOptions { compression: Compression::None, ..TableOptions::default() };
    let (bytes, summary) = build(&options, entries.iter().map(|(k, v)| (KeyRef::new(k, trailer), &v[..])), &[]);
    let table = open(bytes).unwrap();
    let meter = Arc::new(ReadMeter::new(situ_base::Env::system().clock));
    let mut cursor = table.sequential_cursor(1 << 20);
    cursor.set_meter(Arc::clone(&meter));
    cursor.first().unwrap();
    while cursor.valid() {
        cursor.next().unwrap();
    }
    let data_bytes = summary.properties.data_bytes;
    let (stored, plain) = (meter.stored_bytes(), meter.plain_bytes());
    assert!((data_bytes..data_bytes + (64 << 10)).contains(&stored), "{stored} of {data_bytes}");
    assert_eq!(plain, data_bytes - 5 * summary.properties.data_blocks, "each block has a trailer of five bytes");
    assert!(!meter.time().is_zero());
}
