use super::*;
use situ_compaction::testing::{
    Contents, Entry, MemoryHost, World, numbered, one_in, plain_rules, small_blocks, task, with_seeds,
};
use situ_compaction::{Decision, FilterContext, TaskHost, run};
use situ_sim::Rng;
use situ_table::KeyKind;

struct EvenOnly;

impl CompactionFilter for EvenOnly {
    fn name(&self) -> &str {
        "even-only"
    }

    fn decide(&self, context: &FilterContext<'_>, key: &[u8], _value: &[u8]) -> Decision {
        let is_odd = key.last().is_some_and(|byte| byte % 2 == 1);
        if is_odd && context.parameters == b"drop" { Decision::Remove } else { Decision::Keep }
    }
}

/// Tables by number, as another process would find them.
impl Surroundings for MemoryHost {
    fn table(&self, place: TablePlace) -> Arc<dyn InputTable> {
        self.open(place.number)
    }

    fn filter(&self, name: &str) -> Option<Arc<dyn CompactionFilter>> {
        (name == EvenOnly.name()).then(|| Arc::new(EvenOnly) as Arc<dyn CompactionFilter>)
    }
}

/// Where no table is ever opened.
struct Nowhere;

impl InputTable for Nowhere {
    fn open(self: Arc<Self>) -> Result<Arc<situ_table::Table>> {
        Err(Error::Invalid("nowhere".to_owned()))
    }
}

impl Surroundings for Nowhere {
    fn table(&self, _: TablePlace) -> Arc<dyn InputTable> {
        Arc::new(Nowhere)
    }

    fn filter(&self, name: &str) -> Option<Arc<dyn CompactionFilter>> {
        (name == EvenOnly.name()).then(|| Arc::new(EvenOnly) as Arc<dyn CompactionFilter>)
    }
}

/// A task of a random store, with every field used now and then.
fn random_task(host: &MemoryHost, rng: &mut Rng) -> Task {
    let world = World::random(rng);
    let mut rules = plain_rules();
    rules.snapshots = world.snapshots.clone();
    rules.below = world.below_spans.clone();
    if one_in(rng, 2) {
        rules.range.lower = Some(situ_compaction::testing::key(rng.below(10)));
    }
    if one_in(rng, 2) {
        rules.range.upper = Some(situ_compaction::testing::key(10 + rng.below(20)));
    }
    rules.grandparents =
        world.below_spans.iter().flatten().map(|span| Grandparent { span: span.clone(), bytes: 7 }).collect();
    rules.output.table.compression =
        [Compression::None, Compression::Lz4, Compression::Zstd { level: -3 }][rng.below(3) as usize];
    rules.output.table.keyspace_name = "users".to_owned();
    rules.output.target_file_bytes = 100 + rng.below(1000);
    rules.output.encoder = Encoder::named(["situ", "other"][rng.below(2) as usize]);
    rules.now_unix = Duration::new(rng.below(1 << 40), rng.below(1_000_000_000) as u32);
    if one_in(rng, 2) {
        let parameters: Arc<[u8]> = (*b"drop").into();
        rules.filter = Some(FrozenFilter { code: Arc::new(EvenOnly), parameters });
    }
    task(host, &world.runs, rules)
}

/// A task that was sent elsewhere as bytes gives the same bytes there.
#[test]
fn what_is_decoded_is_the_same_task() {
    with_seeds(200, |rng| {
        let host = MemoryHost::new();
        let task = random_task(&host, rng);
        let bytes = encode_task(&task);
        let decoded = decode_task(&bytes, &host).unwrap();
        assert_eq!(encode_task(&decoded), bytes);
        assert_eq!(format!("{decoded:?}"), format!("{task:?}"));
        let contents = |task: &Task| {
            let output = run(task, &host).unwrap();
            let files: Vec<_> = output.tables.iter().map(|table| host.bytes(table.number)).collect();
            (files, output.stats)
        };
        assert_eq!(contents(&decoded), contents(&task));
    });
}

#[test]
fn what_is_decoded_is_the_same_output() {
    with_seeds(100, |rng| {
        let host = MemoryHost::new();
        let task = random_task(&host, rng);
        let mut output = run(&task, &host).unwrap();
        let dropped = (0..rng.below(3)).map(|segment| DroppedValues { segment, handles: 2, bytes: rng.below(1 << 40) });
        output.dropped_values = dropped.collect();
        let bytes = encode_output(&output);
        assert_eq!(decode_output(&bytes).unwrap(), output);
        let shorter = &bytes[..rng.below(bytes.len() as u64) as usize];
        assert!(decode_output(shorter).unwrap_err().is_corruption());
    });
}

/// No bytes break the decoder: small damage under a checksum that is right.
#[test]
fn damaged_bytes_are_refused_or_are_a_task_that_runs_can_rely_on() {
    let (mut refused, mut taken) = (0, 0);
    with_seeds(3000, |rng| {
        let host = MemoryHost::new();
        let mut bytes = encode_task(&random_task(&host, rng));
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(bytes.len() as u64 - 4) as usize;
            match rng.below(4) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at] = [0, 1, 0x7f, 0xff][rng.below(4) as usize],
                2 => drop(bytes.drain(at..bytes.len().min(at + 4))),
                _ => bytes.insert(at, rng.below(256) as u8),
            }
            if bytes.len() < FRAME_BYTES {
                return;
            }
        }
        let end = bytes.len() - 4;
        let checksum = crc32c(&bytes[..end]).to_le_bytes();
        bytes[end..].copy_from_slice(&checksum);
        match decode_task(&bytes, &Nowhere) {
            Ok(task) => {
                taken += 1;
                // What a run asserts, and what sizes buffers.
                assert!(task.rules.snapshots.is_sorted());
                assert_eq!(encode_task(&task), bytes, "two texts for one task");
                let reads_nothing = task.tables().all(|input| !task.rules.range.overlaps(&input.span));
                assert_eq!(run(&task, &host).is_ok(), reads_nothing);
            }
            Err(error) => {
                refused += 1;
                assert!(matches!(error, Error::Corruption(_) | Error::Invalid(_)), "{error}");
            }
        }
    });
    assert!(refused > 1000 && taken > 200, "{refused} refused, {taken} taken");
}

/// The receiver adds these numbers up. Their sum panicked on the node, and the attempt waited for ever.
#[test]
fn numbers_without_a_sum_are_no_task() {
    let host = MemoryHost::new();
    let mut rng = Rng::new(1);
    let mut sent = loop {
        let task = random_task(&host, &mut rng);
        if task.tables().count() > 1 && task.rules.filter.is_none() && !task.rules.grandparents.is_empty() {
            break task;
        }
    };
    assert!(decode_task(&encode_task(&sent), &Nowhere).is_ok());
    let grandparents = sent.rules.grandparents.clone();
    sent.rules.grandparents.iter_mut().for_each(|grandparent| grandparent.bytes = u64::MAX / 2 + 1);
    sent.rules
        .grandparents
        .push(Grandparent { span: KeySpan { begin: b"~1".into(), end: b"~2".into() }, bytes: 1 << 63 });
    let refused = |task: &Task| decode_task(&encode_task(task), &Nowhere).unwrap_err().to_string();
    assert!(refused(&sent).contains("sums"), "{}", refused(&sent));
    sent.rules.grandparents = grandparents;
    let numbers: [fn(&mut TableInput) -> &mut u64; 4] =
        [|input| &mut input.bytes, |input| &mut input.bytes_in_range, |i| &mut i.entries, |i| &mut i.range_deletions];
    for number in numbers {
        let mut task = sent.clone();
        task.inputs.iter_mut().flatten().for_each(|input| *number(input) = u64::MAX - 1);
        assert!(refused(&task).contains("sums"), "{}", refused(&task));
    }
}

/// The page's example: what is written today must be readable for ever.
#[test]
fn the_bytes_are_those_of_the_page() {
    let host = MemoryHost::new();
    let entry = Entry::new("k", 5, KeyKind::Put, "v");
    let contents = Contents { entries: vec![entry], tombstones: Vec::new() };
    let mut rules = plain_rules();
    rules.output.table = small_blocks();
    rules.snapshots = vec![3];
    rules.range.upper = Some(b"z".to_vec());
    let input = host.write(&contents, &small_blocks()).unwrap();
    let input = TableInput { bytes: 400, bytes_in_range: 400, ..input };
    let task = Task { id: 7, keyspace: 2, level: 0, inputs: vec![vec![input]], rules };
    let page = include_str!("../../../../docs/formats/task.md");
    let golden = page.split("```hex\n").nth(1).unwrap().split("```").next().unwrap();
    let digits: String = golden.lines().map(|line| line.split("  ").next().unwrap()).collect::<Vec<_>>().join(" ");
    let made: Vec<String> = encode_task(&task).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(made.join(" "), digits.split_whitespace().collect::<Vec<_>>().join(" "));
}

#[test]
fn an_unknown_filter_and_another_version_are_named() {
    struct Elsewhere;
    impl Surroundings for Elsewhere {
        fn table(&self, _: TablePlace) -> Arc<dyn InputTable> {
            Arc::new(Nowhere)
        }

        fn filter(&self, _: &str) -> Option<Arc<dyn CompactionFilter>> {
            None
        }
    }
    let host = MemoryHost::new();
    let mut task = task(&host, &[numbered(10, 1, 9)], plain_rules());
    task.rules.filter = Some(FrozenFilter { code: Arc::new(EvenOnly), parameters: (*b"").into() });
    let mut bytes = encode_task(&task);
    let error = decode_task(&bytes, &Elsewhere).unwrap_err();
    assert!(matches!(&error, Error::Invalid(text) if text.contains("even-only")), "{error}");
    bytes[8] = 9;
    let error = decode_task(&bytes, &host).unwrap_err().to_string();
    assert!(error.contains("version") && error.contains('9'), "{error}");
    let _ = host.warming();
}
