use super::*;
use crate::compactor::{Compactor, CompactorParts, Destination, JobNotes, JobOrder, Priority};
use crate::local::LocalCompactor;
use crate::span::KeyRange;
use crate::task::{TablePlace, TaskHost, TaskOutput};
use crate::testing::{Contents, MemoryHost, World, key, plain_rules, task, with_seeds};
use situ_base::Env;
use situ_storage::Writer;
use std::sync::Mutex;

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

fn run_through(task: crate::Task, host: Arc<dyn TaskHost>) -> TaskOutput {
    let env = Env::system();
    let event = env.executor.event();
    let compactor = LocalCompactor::new(CompactorParts { env, event: Arc::clone(&event), threads: 1 });
    let (tasks, priority) = (vec![(task, Destination::default())], Priority::default());
    compactor.submit(JobOrder { number: 0, tasks, host, abreast: 1, priority, notes: JobNotes::default() });
    loop {
        let seen = event.generation();
        compactor.turn();
        if let Some(finished) = compactor.take_finished(None) {
            compactor.close();
            return finished.result.unwrap().pop().unwrap();
        }
        event.wait(seen, compactor.next_turn_in());
    }
}

#[test]
fn dropped_and_kept_value_handles_are_those_that_were_put_in() {
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
        let output = run_through(task.clone(), Arc::new(WithHandles(Arc::clone(&host))));
        assert_nothing_is_lost(&world.inputs(), &range, &host.contents(&output), &output.dropped_values);
        assert_eq!(sums(&output.dropped_places), output.dropped_values);
        assert!(output.dropped_places.is_sorted());
        dropped += output.dropped_values.len();
        // Nobody listens: no sums, and nothing else changes.
        let silent = run_through(task, Arc::clone(&host) as Arc<dyn TaskHost>);
        assert_eq!((silent.stats, silent.dropped_values), (output.stats, Vec::new()));
    });
    assert!(dropped > 300, "{dropped}");
}

/// Puts long values elsewhere, as a flush does. Their handles are numbered from 900 on.
struct Separating {
    host: WithHandles,
    from: usize,
    separated: Mutex<Vec<(Vec<u8>, Vec<u8>)>>,
}

impl Separating {
    fn from(from: usize) -> Separating {
        Separating { host: WithHandles(Arc::new(MemoryHost::new())), from, separated: Mutex::default() }
    }

    fn run(&self, run: Contents, rules: crate::MergeRules) -> Contents {
        let task = task(&self.host.0, &[run], rules);
        self.host.0.contents(&crate::run(&task, self).unwrap())
    }
}

impl TaskHost for Separating {
    fn reserve(&self, level: u32) -> situ_storage::Result<TablePlace> {
        self.host.reserve(level)
    }

    fn create(&self, level: u32, place: TablePlace) -> situ_storage::Result<(TablePlace, Box<dyn Writer>)> {
        self.host.create(level, place)
    }

    fn value_handles(&self) -> Option<Arc<dyn ValueHandles>> {
        self.host.value_handles()
    }

    fn separates_from(&self) -> usize {
        self.from
    }

    fn separate(&self, key: &[u8], value: &[u8], handle: &mut Vec<u8>) -> situ_storage::Result<()> {
        if value.starts_with(b"refused") {
            return Err(situ_storage::Error::Invalid("no room".to_owned()));
        }
        let mut separated = self.separated.lock().unwrap();
        assert!(handle.is_empty(), "what is left of another value");
        handle.extend_from_slice(format!("handle{}", 900 + separated.len()).as_bytes());
        separated.push((key.to_vec(), value.to_vec()));
        Ok(())
    }

    fn pace(&self, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

fn entries(list: &[(&str, u64, KeyKind, &str)]) -> Contents {
    let entry = |(key, sequence, kind, value): &(&str, u64, KeyKind, &str)| {
        crate::testing::Entry::new(key, *sequence, *kind, value)
    };
    Contents { entries: list.iter().map(entry).collect(), tombstones: Vec::new() }
}

fn kinds(contents: &Contents) -> Vec<(&str, u64, Option<KeyKind>, &str)> {
    let text = |bytes| std::str::from_utf8(bytes).unwrap();
    let shown = |entry: &crate::testing::Entry| (entry.trailer.sequence(), entry.trailer.kind());
    let all = contents.entries.iter().map(|entry| (shown(entry), text(&entry.key[..]), text(&entry.value[..])));
    all.map(|((sequence, kind), key, value)| (key, sequence, kind, value)).collect()
}

/// One of the bound's length is, one that is shorter is not. A value that dies in the merge is not written elsewhere
/// first. What is a handle already stays one, however long it is.
#[test]
fn values_of_the_bound_and_longer_ones_are_separated_and_nothing_else() {
    use KeyKind::{Delete, Put, ValueHandle};
    let host = Separating::from(8);
    let mut rules = plain_rules();
    rules.snapshots = vec![6];
    rules.below = vec![vec![crate::span::KeySpan { begin: b"a".to_vec(), end: b"z".to_vec() }]];
    let run = entries(&[
        ("a", 9, Put, "12345678"),
        ("b", 9, Put, "1234567"),
        ("c", 9, Put, "the new value"),
        ("c", 8, Put, "it dies unseen"),
        ("c", 5, Put, "a snapshot's"),
        ("d", 9, Delete, ""),
        ("e", 9, ValueHandle, "handle123456789"),
    ]);
    let output = host.run(run, rules);
    let expected = [
        ("a", 9, Some(ValueHandle), "handle900"),
        ("b", 9, Some(Put), "1234567"),
        ("c", 9, Some(ValueHandle), "handle901"),
        ("c", 5, Some(ValueHandle), "handle902"),
        ("d", 9, Some(Delete), ""),
        ("e", 9, Some(ValueHandle), "handle123456789"),
    ];
    assert_eq!(kinds(&output), expected);
    let separated = host.separated.into_inner().unwrap();
    let told: Vec<(&[u8], &[u8])> = separated.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    assert_eq!(told, [(&b"a"[..], &b"12345678"[..]), (b"c", b"the new value"), (b"c", b"a snapshot's")]);
}

#[test]
fn a_value_that_cannot_be_separated_fails_the_merge() {
    let host = Separating::from(4);
    let run = entries(&[("a", 9, KeyKind::Put, "fine"), ("b", 8, KeyKind::Put, "refused here")]);
    let task = task(&host.host.0, &[run], plain_rules());
    let error = crate::run(&task, &host).map(drop).unwrap_err();
    assert!(error.to_string().contains("no room"), "{error}");
}

/// Numbers as [`NumberedHandles`], with first bytes behind a colon: `handle7:first`.
struct WithPrefixes;

impl ValueHandles for WithPrefixes {
    fn locate(&self, handle: &[u8]) -> Option<ValueLocation> {
        NumberedHandles.locate(handle.split(|byte| *byte == b':').next()?)
    }

    fn prefix<'a>(&self, handle: &'a [u8], bytes: usize) -> Option<&'a [u8]> {
        let colon = handle.iter().position(|byte| *byte == b':')?;
        handle.get(colon + 1..)?.get(..bytes)
    }
}

/// Sees three bytes, or all of the value. Removes what begins with `d`, changes what begins with `c`.
struct ByFirstBytes {
    prefix: Option<usize>,
    seen: Mutex<Vec<String>>,
}

impl crate::CompactionFilter for ByFirstBytes {
    fn name(&self) -> &str {
        "by first bytes"
    }

    fn value_prefix_bytes(&self) -> Option<usize> {
        self.prefix
    }

    fn decide(&self, _: &crate::FilterContext<'_>, key: &[u8], value: &[u8]) -> crate::Decision {
        self.seen.lock().unwrap().push(format!("{}={}", key.escape_ascii(), value.escape_ascii()));
        match value.first() {
            Some(b'd') => crate::Decision::Remove,
            Some(b'c') => crate::Decision::Change(b"changed".to_vec()),
            _ => crate::Decision::Keep,
        }
    }
}

struct PrefixHost(Arc<MemoryHost>);

impl TaskHost for PrefixHost {
    fn reserve(&self, level: u32) -> situ_storage::Result<TablePlace> {
        self.0.reserve(level)
    }

    fn create(&self, level: u32, place: TablePlace) -> situ_storage::Result<(TablePlace, Box<dyn Writer>)> {
        self.0.create(level, place)
    }

    fn value_handles(&self) -> Option<Arc<dyn ValueHandles>> {
        Some(Arc::new(WithPrefixes))
    }

    fn pace(&self, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

fn filtered(prefix: Option<usize>) -> (Vec<String>, Contents, Vec<DroppedValues>) {
    use KeyKind::{Put, ValueHandle};
    let host = Arc::new(MemoryHost::new());
    let filter = Arc::new(ByFirstBytes { prefix, seen: Mutex::default() });
    let code = Arc::clone(&filter) as Arc<dyn crate::CompactionFilter>;
    let mut rules = plain_rules();
    rules.filter = Some(crate::FrozenFilter::freeze(&code, rules.now_unix).unwrap());
    let run = entries(&[
        ("a", 9, ValueHandle, "handle1:keep"),
        ("b", 9, ValueHandle, "handle2:dead"),
        ("c", 9, ValueHandle, "handle3:chng"),
        // Its table was written for a filter that asked for less.
        ("d", 9, ValueHandle, "handle4:d"),
        ("e", 9, Put, "dead, and whole"),
    ]);
    let task = task(&host, &[run], rules);
    let output = crate::run(&task, &PrefixHost(Arc::clone(&host))).unwrap();
    let contents = host.contents(&output);
    let seen = std::mem::take(&mut *filter.seen.lock().unwrap());
    (seen, contents, output.dropped_values)
}

/// A handle whose value the filter removes or changes is dropped, and its value dies.
#[test]
fn a_filter_that_asks_for_first_bytes_gets_them_from_handles() {
    let (seen, output, dropped) = filtered(Some(3));
    assert_eq!(seen, ["a=kee", "b=dea", "c=chn", "e=dead, and whole"]);
    let left: Vec<(&str, Option<KeyKind>, &str)> =
        kinds(&output).into_iter().map(|(key, _, kind, value)| (key, kind, value)).collect();
    let handle = Some(KeyKind::ValueHandle);
    assert_eq!(left, [("a", handle, "handle1:keep"), ("c", Some(KeyKind::Put), "changed"), ("d", handle, "handle4:d")]);
    let dead = |segment, bytes| DroppedValues { segment, handles: 1, bytes };
    assert_eq!(dropped, [dead(2, 102), dead(3, 103)]);
}

#[test]
fn a_filter_that_needs_whole_values_is_not_asked_about_handles() {
    let (seen, output, dropped) = filtered(None);
    assert_eq!(seen, ["e=dead, and whole"]);
    assert_eq!((output.entries.len(), dropped.len()), (4, 0));
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
