//! Decisions as text: `testdata/picker/*.txt` describe versions and hold what the picker makes of them.
//!
//! ```text
//! # a remark
//! case: what it shows
//! options: level0_tables=4 base=256M multiplier=10 table=64M filter
//! L0: 12 [a,m) 64M seq=10-20 entries=1000 deletions=10 ranges=1 busy
//! running: L5 [a,f)
//! snapshot: 15
//! troubled: yes
//! per job: 4
//! values: 16K
//! removed: 1=500 2=3
//! ask: pick | parallel | everything | everything [a,f) | debt
//! ----
//! the answer
//! ```
//! Cases end with an empty line. `parallel` claims each job and asks again, as several threads do. With `SITU_BLESS=1`
//! in the environment the answers are written anew; read the difference before you keep it.

use super::*;
use crate::versions::version::{Added, TableMeta, TableSource};
use situ_compaction::{CompactionFilter, Decision, FilterContext};
use situ_storage::DirectoryVolume;
use situ_table::BlockCache;
use std::fmt::Write;
use std::path::Path;

struct KeepAll;

impl CompactionFilter for KeepAll {
    fn name(&self) -> &str {
        "keep all"
    }

    fn decide(&self, _context: &FilterContext<'_>, _key: &[u8], _value: &[u8]) -> Decision {
        Decision::Keep
    }
}

/// A number with K, M, G or T behind it.
fn size(text: &str) -> u64 {
    let units = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    match units.iter().find(|(unit, _)| text.ends_with(*unit)) {
        Some((unit, shift)) => text.trim_end_matches(*unit).parse::<u64>().unwrap() << shift,
        None => text.parse().unwrap(),
    }
}

fn show_size(bytes: u64) -> String {
    let units = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];
    let unit = units.iter().find(|(_, shift)| bytes >= 1 << shift);
    unit.map_or_else(
        || bytes.to_string(),
        |(unit, shift)| format!("{:.1}{unit}", bytes as f64 / (1u64 << shift) as f64),
    )
}

/// `[begin,end)`.
fn span(text: &str) -> KeySpan {
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(')')).expect("[begin,end)");
    let (begin, end) = inner.split_once(',').expect("[begin,end)");
    KeySpan { begin: begin.into(), end: end.into() }
}

fn level(text: &str) -> usize {
    text.strip_prefix('L').expect("a level").parse().unwrap()
}

/// Parts of a line like `a=1 b=2 c`.
fn fields(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split_whitespace().map(|part| part.split_once('=').unwrap_or((part, "")))
}

struct Case {
    options: KeyspaceOptions,
    added: Vec<Added>,
    busy: Vec<u64>,
    running: Vec<Span>,
    oldest_snapshot: u64,
    troubled: bool,
    tables_per_job: usize,
    /// Average size of a value in the value log.
    value_bytes: u64,
    /// Numbers of entries that a filter removes, by table.
    removed: Vec<(u64, f64)>,
    ask: String,
}

impl Case {
    fn read(lines: &str) -> Case {
        let mut case = Case {
            options: KeyspaceOptions::default(),
            added: Vec::new(),
            busy: Vec::new(),
            running: Vec::new(),
            oldest_snapshot: u64::MAX,
            troubled: false,
            tables_per_job: 1,
            value_bytes: 0,
            removed: Vec::new(),
            ask: "pick".to_owned(),
        };
        for line in lines.lines().filter(|line| !line.starts_with('#')) {
            let (head, rest) = line.split_once(':').unwrap_or_else(|| panic!("no colon in {line:?}"));
            let rest = rest.trim();
            match head {
                "case" => {}
                "options" => case.read_options(rest),
                "running" => {
                    let (at, keys) = rest.split_once(' ').expect("a level and a span");
                    case.running.push(Span { level: level(at), keys: span(keys) });
                }
                "per job" => case.tables_per_job = rest.parse().unwrap(),
                "values" => case.value_bytes = size(rest),
                "removed" => {
                    let removed = |(table, entries): (&str, &str)| (table.parse().unwrap(), entries.parse().unwrap());
                    case.removed = fields(rest).map(removed).collect();
                }
                "troubled" => case.troubled = rest == "yes",
                "snapshot" => case.oldest_snapshot = rest.parse().unwrap(),
                "ask" => rest.clone_into(&mut case.ask),
                at => case.read_table(level(at), rest),
            }
        }
        case
    }

    fn read_options(&mut self, text: &str) {
        let options = &mut self.options;
        for (name, value) in fields(text) {
            match name {
                "level0_tables" => options.level0_tables = value.parse().unwrap(),
                "base" => options.level_base_bytes = size(value),
                "multiplier" => options.level_multiplier = value.parse().unwrap(),
                "table" => options.table_bytes = size(value),
                "zstd_from" => {
                    let zstd = situ_table::Compression::Zstd { level: 1 };
                    options.compression = vec![situ_table::Compression::Lz4; value.parse().unwrap()];
                    options.compression.push(zstd);
                }
                "filter" => options.compaction_filter = Some(Arc::new(KeepAll)),
                other => panic!("an unknown option {other:?}"),
            }
        }
    }

    fn read_table(&mut self, level: usize, text: &str) {
        let mut parts = text.splitn(4, ' ');
        let mut part = || parts.next().expect("number, span, size");
        let (number, keys, bytes) = (part().parse().unwrap(), span(part()), size(part()));
        // Newer tables have higher numbers; so have their sequence numbers, unless the text says otherwise.
        let mut meta = TableMeta {
            number,
            volume: 0,
            bytes,
            smallest_sequence: number * 10,
            largest_sequence: number * 10 + 9,
            entries: 1000,
            deletions: 0,
            range_deletions: 0,
            raw_bytes: bytes,
            created_unix_s: 0,
            span: keys,
        };
        for (name, value) in fields(parts.next().unwrap_or("")) {
            match name {
                "seq" => {
                    let (smallest, largest) = value.split_once('-').expect("smallest-largest");
                    meta.smallest_sequence = smallest.parse().unwrap();
                    meta.largest_sequence = largest.parse().unwrap();
                }
                "entries" => meta.entries = value.parse().unwrap(),
                "deletions" => meta.deletions = value.parse().unwrap(),
                "ranges" => meta.range_deletions = value.parse().unwrap(),
                "busy" => self.busy.push(number),
                other => panic!("an unknown property {other:?}"),
            }
        }
        self.added.push(Added { level, meta });
    }

    fn answer(mut self, source: &Arc<TableSource>) -> String {
        let version = Version::empty().apply(&[], &self.added, source).unwrap();
        for (_, file) in version.files().filter(|(_, f)| self.busy.contains(&f.meta.number)) {
            file.busy.store(true, Ordering::Release);
        }
        let options = self.options.clone().bounded();
        let mut answer = String::new();
        {
            let picker = Picker::new(&version, &options, &self.running, self.oldest_snapshot);
            let targets = &picker.targets;
            let finite = (targets.base_level..LEVELS).filter(|l| targets.bytes[*l] != u64::MAX);
            let list: Vec<String> = finite.map(|l| format!("L{l} {}", show_size(targets.bytes[l]))).collect();
            writeln!(answer, "base L{}; targets {}", targets.base_level, list.join(", ")).unwrap();
            let scores: Vec<String> = picker.scores().iter().map(|(l, score)| format!("L{l} {score:.2}")).collect();
            writeln!(answer, "scores {}; pending {}", scores.join(", "), show_size(picker.pending_bytes())).unwrap();
        }
        let mut jobs = 0;
        loop {
            let picker = Picker::new(&version, &options, &self.running, self.oldest_snapshot)
                .troubled(self.troubled)
                .tables_per_job(self.tables_per_job);
            let job = match self.ask.split_once(' ') {
                None if self.ask == "everything" => picker.everything(None),
                Some(("everything", keys)) => picker.everything(Some(&span(keys))),
                None if self.ask == "debt" => {
                    let of = |file: &TableFile| self.removed.iter().find(|(table, _)| *table == file.meta.number);
                    let removed = |file: &TableFile| of(file).map_or(0.0, |(_, entries)| *entries);
                    picker.debt(&Dead { value_bytes: self.value_bytes, removed: &removed })
                }
                _ => picker.pick(),
            };
            let Some(job) = job else { break };
            check(&version, &self.running, &job);
            writeln!(answer, "{job}").unwrap();
            jobs += 1;
            if self.ask != "parallel" {
                break;
            }
            job.claim(true);
            self.running.extend(job.spans().cloned());
        }
        if jobs == 0 {
            answer.push_str("nothing\n");
        }
        answer
    }
}

/// The invariants of the module page.
fn check(version: &Version, running: &[Span], job: &Job) {
    assert!(job.files().all(|(_, file)| idle(file)), "{job} takes a busy table");
    for span in job.spans() {
        assert!(!running.iter().any(|other| other.meets(span)), "{job} writes where another job does");
    }
    let taken = |number| job.files().any(|(_, f)| f.meta.number == number);
    for (level, file) in version.files().filter(|(_, f)| !taken(f.meta.number)) {
        let mut upper = job.files().filter(|(from, _)| *from <= job.output_level);
        let overlaps = upper.any(|(_, f)| f.meta.span.overlaps(&file.meta.span.begin, &file.meta.span.end));
        let hidden = job.files().any(|(from, f)| {
            from < level && level < job.output_level && f.meta.span.overlaps(&file.meta.span.begin, &file.meta.span.end)
        });
        assert!(!hidden, "{job} carries newer entries past table {} of level {level}", file.meta.number);
        if level == job.output_level && level > 0 {
            assert!(!overlaps, "{job} would overlap table {} of its output level", file.meta.number);
        }
        if let Some(through) = job.through.as_ref().filter(|through| through.span.level == level) {
            let overlaps = through.span.keys.overlaps(&file.meta.span.begin, &file.meta.span.end);
            assert!(!overlaps, "{job} would overlap table {} of the level below", file.meta.number);
        }
    }
    if job.output_level > 0 {
        let oldest = job.inputs.iter().find(|(level, _)| *level == 0).map(|(_, files)| files);
        if let Some(files) = oldest {
            assert_eq!(files.len(), version.levels[0].overlapping_all(files), "{job} leaves older entries above newer");
        }
    }
}

impl crate::versions::version::Level {
    /// How many tables of level 0 a job with `files` must take: all that overlap one of them and are older,
    /// transitively.
    fn overlapping_all(&self, files: &[Arc<TableFile>]) -> usize {
        let mut taken: Vec<&Arc<TableFile>> = files.iter().collect();
        // Newest first: what lies behind in the list is older.
        for (at, file) in self.files.iter().enumerate() {
            let newer = |other: &&Arc<TableFile>| self.files[..at].iter().any(|f| Arc::ptr_eq(f, other));
            let meets = |other: &Arc<TableFile>| other.meta.span.overlaps(&file.meta.span.begin, &file.meta.span.end);
            if !taken.iter().any(|f| Arc::ptr_eq(f, file)) && taken.iter().any(|f| newer(f) && meets(f)) {
                taken.push(file);
            }
        }
        taken.len()
    }
}

fn play(path: &Path) {
    let directory = tempfile::tempdir().unwrap();
    let volume = Arc::new(DirectoryVolume::open(directory.path()).unwrap());
    let source = Arc::new(TableSource::plain(volume, BlockCache::new(0), &situ_base::Env::system(), 100));
    let text = std::fs::read_to_string(path).unwrap();
    let answered: Vec<String> = text
        .trim_end()
        .split("\n\n")
        .map(|case| match case.split_once("----\n").or_else(|| case.split_once("----")) {
            Some((question, _)) => format!("{question}----\n{}", Case::read(question.trim_end()).answer(&source)),
            // A remark between cases.
            None => format!("{case}\n"),
        })
        .collect();
    let answered = answered.join("\n");
    if std::env::var_os("SITU_BLESS").is_some() {
        std::fs::write(path, &answered).unwrap();
    }
    assert!(
        answered == text || std::env::var_os("SITU_BLESS").is_some(),
        "{} differs; SITU_BLESS=1 writes it anew:\n{answered}",
        path.display()
    );
}

#[test]
fn decisions_are_as_in_the_golden_files() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/picker");
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths.iter().for_each(|path| play(path));
}
