use super::*;
use crate::cpu::CpuUnit;
use crate::scheduler::{Patience, Scheduler};
use crate::span::KeyRange;
use crate::task::{TablePlace, TaskHost, TaskOutput};
use crate::testing::{Contents, MemoryHost, World, key, plain_rules, task, with_seeds};
use situ_device::Env;
use situ_storage::Writer;

/// The handles of `testing`: `handle7` is the value of sequence number 7.
struct NumberedHandles;

impl ValueHandles for NumberedHandles {
    fn locate(&self, handle: &[u8]) -> Option<ValueLocation> {
        let number: u64 = std::str::from_utf8(handle.strip_prefix(b"handle")?).ok()?.parse().ok()?;
        Some(ValueLocation { segment: number % 5, offset: 1000 * number, length: 90 + number, bytes: 100 + number })
    }
}

/// A host of a store that has a value log.
struct WithHandles(Arc<MemoryHost>);

impl TaskHost for WithHandles {
    fn reserve(&self, level: u32) -> situ_storage::Result<TablePlace> {
        self.0.reserve(level)
    }

    fn create(&self, level: u32, place: TablePlace) -> situ_storage::Result<(TablePlace, Box<dyn Writer>)> {
        self.0.create(level, place)
    }

    fn value_handles(&self) -> Option<Arc<dyn ValueHandles>> {
        Some(Arc::new(NumberedHandles))
    }

    fn pace(&self, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

/// The model: all handles of these contents in this range, by segment.
fn totals(contents: &Contents, range: &KeyRange) -> BTreeMap<u64, (u64, u64)> {
    let mut segments = BTreeMap::new();
    for entry in &contents.entries {
        let inside = range.lower.as_ref().is_none_or(|lower| *lower <= entry.key)
            && range.upper.as_ref().is_none_or(|upper| entry.key < *upper);
        if inside && entry.trailer.kind() == Some(KeyKind::ValueHandle) {
            let ValueLocation { segment, bytes, .. } = NumberedHandles.locate(&entry.value).unwrap();
            let sum: &mut (u64, u64) = segments.entry(segment).or_default();
            *sum = (sum.0 + 1, sum.1 + bytes);
        }
    }
    segments
}

fn assert_nothing_is_lost(inputs: &Contents, range: &KeyRange, kept: &Contents, dropped: &[DroppedValues]) {
    let mut sum = totals(kept, &KeyRange::all());
    assert!(dropped.is_sorted_by_key(|values| values.segment));
    for values in dropped {
        assert!(values.handles > 0);
        let total = sum.entry(values.segment).or_default();
        *total = (total.0 + values.handles, total.1 + values.bytes);
    }
    assert_eq!(sum, totals(inputs, range));
}

/// What a list of dropped values adds up to.
fn sums(listed: &[ValueLocation]) -> Vec<DroppedValues> {
    let mut sums: BTreeMap<u64, DroppedValues> = BTreeMap::new();
    for ValueLocation { segment, bytes, .. } in listed.iter().copied() {
        let sum = sums.entry(segment).or_insert(DroppedValues { segment, handles: 0, bytes: 0 });
        (sum.handles, sum.bytes) = (sum.handles + 1, sum.bytes + bytes);
    }
    sums.into_values().collect()
}

fn run_through(scheduler: &Scheduler, task: crate::Task, host: Arc<dyn TaskHost>) -> TaskOutput {
    scheduler.run(vec![task], &host).unwrap().pop().unwrap()
}

#[test]
fn dropped_and_kept_value_handles_are_those_that_were_put_in() {
    let env = Env::system();
    let scheduler = Scheduler::new(
        env.clone(),
        env.executor.event(),
        Arc::new(CpuUnit::new(env, 1)),
        Vec::new(),
        Patience::default(),
    );
    let mut dropped = 0;
    with_seeds(300, |rng| {
        let world = World::random(rng);
        let host = Arc::new(MemoryHost::new());
        let mut rules = plain_rules();
        rules.snapshots = world.snapshots.clone();
        rules.below = world.below_spans.clone();
        rules.output.target_file_bytes = [1, 900, u64::MAX][rng.below(3) as usize];
        let (a, b) = (rng.below(30), rng.below(30));
        rules.range.lower = (rng.below(2) == 0).then(|| key(a.min(b)));
        rules.range.upper = (rng.below(2) == 0).then(|| key(a.max(b) + 1));
        let task = task(&host, &world.runs, rules);
        let range = task.rules.range.clone();
        let output = run_through(&scheduler, task.clone(), Arc::new(WithHandles(Arc::clone(&host))));
        assert_nothing_is_lost(&world.inputs(), &range, &host.contents(&output), &output.dropped_values);
        assert_eq!(sums(&output.dropped_places), output.dropped_values);
        assert!(output.dropped_places.is_sorted());
        dropped += output.dropped_values.len();
        // Nobody listens: no sums, and nothing else changes.
        let silent = run_through(&scheduler, task, Arc::clone(&host) as Arc<dyn TaskHost>);
        assert_eq!((silent.stats, silent.dropped_values), (output.stats, Vec::new()));
    });
    assert!(dropped > 300, "{dropped}");
}

#[test]
fn a_handle_that_nobody_can_read_is_corruption() {
    let host = Arc::new(MemoryHost::new());
    let entry = |sequence, value: &str| crate::testing::Entry::new("a", sequence, KeyKind::ValueHandle, value);
    let run = Contents { entries: vec![entry(9, "handle9"), entry(7, "strange")], tombstones: Vec::new() };
    let task = task(&host, &[run], plain_rules());
    let error = crate::run(&task, &WithHandles(Arc::clone(&host))).map(|_| ()).unwrap_err();
    let crate::TaskError::Storage(error) = error else { panic!("{error}") };
    assert!(error.is_corruption() && error.to_string().contains("strange"), "{error}");
    assert!(crate::run(&task, &*host).is_ok());
}
