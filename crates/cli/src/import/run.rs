//! `import rocksdb`.

use super::compare::{Comparison, compare};
use super::copy::copy;
use super::plan::{names, tasks};
use super::source::{Source, is_database};
use crate::DONE;
use crate::failure::{Failure, Outcome};
use crate::interrupt::on_interrupt;
use crate::options::ImportRocksdbOptions;
use crate::output::Output;
use crate::progress;
use crate::store::{Home, Writable};
use crate::text;
use indicatif::ProgressBar;
use serde::Serialize;
use std::time::Instant;

/// The report of an import.
#[derive(Serialize)]
struct Report {
    database: String,
    store: String,
    /// Entries of this run.
    imported: u64,
    /// Entries of all runs.
    imported_in_all: u64,
    column_families: Vec<Comparison>,
    /// True if store and database hold the same.
    same: bool,
    copying_seconds: f64,
    comparing_seconds: f64,
}

pub(super) fn import(options: &ImportRocksdbOptions, out: &mut Output) -> Outcome {
    let begun = Instant::now();
    if is_database(&options.data) {
        let what = format!("cannot open the store in {}", options.data.display());
        return Err(Failure::new(what, "it is a RocksDB database")
            .cure("name another directory with --data; the import makes a store there"));
    }
    let source = Source::open(options)?;
    let names = names(&source, options)?;
    for (family, _) in &names {
        if source.has_empty_key(family)? {
            let what = format!("cannot import the column family {family:?}");
            return Err(Failure::new(
                what,
                "it has an entry with an empty key, and Situ's keys have at least one byte",
            )
            .cure("take that entry away in the database, or name the other column families with --column-family"));
        }
    }
    for warning in &source.warnings {
        out.warn(warning);
    }
    let left = "what was imported stays, and --resume goes on from there".to_owned();
    on_interrupt(out.is_json(), left, || {}).map_err(|error| Failure::new("cannot catch signals", error))?;
    let writable = Writable::open(&Home::at(&options.data, &options.node), true, out)?;
    let compared = copy_and_compare(&source, &writable, names, options, begun);
    // Even after a failure: what was imported is kept, and made durable.
    let closed = writable.close();
    let report = compared?;
    closed?;
    if out.is_json() {
        out.object(&report)?;
    } else {
        report.tell(out)?;
    }
    match report.column_families.iter().find(|comparison| !comparison.same) {
        None => DONE,
        Some(wrong) => {
            out.finish()?;
            let what = format!("the keyspace {:?} is not what the database holds", wrong.keyspace);
            let why = wrong.difference.as_deref().unwrap_or("the checksums differ");
            Err(Failure::new(what, why).cure(format!(
                "if nobody has written to it since the import, `situ verify {}` says whether the store is damaged; import \
                 again with --merge, or into an empty directory",
                report.store
            )))
        }
    }
}

fn copy_and_compare(
    source: &Source,
    writable: &Writable,
    names: Vec<(String, String)>,
    options: &ImportRocksdbOptions,
    begun: Instant,
) -> Result<Report, Failure> {
    let (marks, mut tasks) = tasks(source, writable, names, options)?;
    let expected: u64 = source.families.iter().map(|family| source.approximate_entries(family)).sum();
    let bar = bar("copied", expected, tasks.iter().map(|task| task.entries_before).sum());
    let copied = tasks.iter_mut().try_for_each(|task| copy(source, writable, &marks, task, &bar));
    bar.finish_and_clear();
    copied?;
    // The comparison reads entries from tables, as every later reader does.
    writable.store.flush().map_err(|error| writable.failure("cannot write what was imported to tables", &error))?;
    let copying_seconds = begun.elapsed().as_secs_f64();
    let imported_in_all = tasks.iter().map(|task| task.mark.entries).sum();
    let bar = self::bar("compared", imported_in_all, 0);
    let compared: Result<Vec<Comparison>, Failure> =
        tasks.iter().map(|task| compare(source, writable, task, &bar)).collect();
    bar.finish_and_clear();
    let column_families = compared?;
    Ok(Report {
        database: options.path.display().to_string(),
        store: options.data.display().to_string(),
        imported: tasks.iter().map(|task| task.mark.entries - task.entries_before).sum(),
        imported_in_all,
        same: column_families.iter().all(|comparison| comparison.same),
        column_families,
        copying_seconds,
        comparing_seconds: begun.elapsed().as_secs_f64() - copying_seconds,
    })
}

impl Report {
    fn tell(&self, out: &mut Output) -> Result<(), Failure> {
        let mut rows = vec![["column family", "keyspace", "", "entries", "bytes", "xxh3", ""].map(str::to_owned)];
        for comparison in &self.column_families {
            for (holder, side) in [("database", &comparison.database), ("store", &comparison.store)] {
                let verdict = match (holder, comparison.same, comparison.others) {
                    ("database", ..) => String::new(),
                    (_, false, _) => "not the same".to_owned(),
                    (_, true, 0) => "the same".to_owned(),
                    (_, true, others) => format!("the same, beside {}", text::plural_of(others, "other", "others")),
                };
                let [family, keyspace] = match holder {
                    "database" => [&*comparison.column_family, &*comparison.keyspace].map(text::on_one_line),
                    _ => Default::default(),
                };
                let (entries, bytes) = (side.entries.to_string(), side.bytes.to_string());
                rows.push([family, keyspace, holder.to_owned(), entries, bytes, side.checksum(), verdict]);
            }
        }
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..7).map(width).collect();
        for row in &rows {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
                3 | 4 => format!("{cell:>width$}"),
                _ => format!("{cell:<width$}"),
            });
            out.line(cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        let entries = text::plural_of(self.imported, "entry", "entries");
        let mut text = format!("imported {entries} in {:.1} s", self.copying_seconds);
        if self.imported_in_all > self.imported {
            text.push_str(&format!(", {} in all", text::count(self.imported_in_all)));
        }
        out.line(format!("{text}; compared in {:.1} s", self.comparing_seconds))
    }
}

/// Makes the progress bar. `entries` is an estimate; earlier runs have done `before` of them.
fn bar(done: &'static str, entries: u64, before: u64) -> ProgressBar {
    let template = "{bar:30} {percent:>3} %  {human_pos} entries {msg}, {per_sec}, {eta} to go";
    progress::bar(Some(entries), before, template).with_message(done)
}
