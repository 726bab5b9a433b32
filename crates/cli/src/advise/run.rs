//! `advise postgres`: asks the server and the drives, lets `situ_advise` advise, and prints.

use super::fetch::{Placed, Seen, Server, connect, fetch};
use super::place::{Place, place};
use crate::DONE;
use crate::failure::{Failure, Outcome};
use crate::options::{AdvisePostgresOptions, DriveNature};
use crate::output::Output;
use crate::text;
use serde::Serialize;
use serde_json::{Value, json};
use situ_advise::statement::{qualified, set_fillfactor};
use situ_advise::{Advice, Forecast, Keep, Kind, Recommendation, Table, advise};
use situ_device::Compresses;

/// Counts of less than this time may miss what happens once a day.
const YOUNG_S: f64 = 86_400.0;

const AFTERWARDS: &str = "Nothing was changed. Only pages that PostgreSQL fills after the statement follow a fill factor. VACUUM FULL (it locks \
                          the table) and pg_repack rewrite the older pages. A partition that is made later begins with 100.";

pub(super) fn postgres(options: &AdvisePostgresOptions, out: &mut Output) -> Outcome {
    // The connection stays open until the drives are known: the server's process ends with it, and `place` looks for
    // that process.
    let mut client = connect(options)?;
    let seen = fetch(&mut client, options)?;
    if seen.tables.is_empty() {
        return Err(no_table(&seen.server, options));
    }
    for warning in warnings(&seen) {
        out.warn(&warning);
    }
    let advised: Vec<Advised> =
        seen.tables.iter().map(|placed| Advised::new(&seen.server, placed, options.drive)).collect();
    drop(client);
    if out.is_json() {
        out.object(&report(&seen.server, &advised))?;
    } else {
        tell(&seen.server, &advised, out)?;
    }
    DONE
}

/// A table with its place and the advice.
struct Advised<'a> {
    placed: &'a Placed,
    place: Place,
    advice: Advice,
}

impl<'a> Advised<'a> {
    fn new(server: &Server, placed: &'a Placed, drive: Option<DriveNature>) -> Advised<'a> {
        let place = match drive {
            Some(nature) => Place { path: None, compresses: nature.into(), kind: "as --drive says".to_owned() },
            None => place(server, placed),
        };
        let advice = advise(&placed.table, place.compresses);
        Advised { placed, place, advice }
    }

    fn table(&self) -> &Table {
        &self.placed.table
    }

    fn statement(&self) -> Option<String> {
        match &self.advice.recommendation {
            Recommendation::Set(forecast) => Some(set_fillfactor(self.table(), forecast.fillfactor)),
            Recommendation::Keep(_) => None,
        }
    }

    /// Returns the reason, if there is nothing else to say of the table.
    fn plain_reason(&self) -> Option<String> {
        use Keep::{Empty, NothingCounted, Partitioned};
        match &self.advice.recommendation {
            Recommendation::Keep(keep @ (Partitioned | Empty | NothingCounted)) => Some(keep.because()),
            _ => None,
        }
    }
}

impl From<DriveNature> for Compresses {
    fn from(nature: DriveNature) -> Compresses {
        match nature {
            DriveNature::Compresses => Compresses::Yes,
            DriveNature::Plain => Compresses::No,
        }
    }
}

fn no_table(server: &Server, options: &AdvisePostgresOptions) -> Failure {
    let named =
        |what: &str, name: &Option<String>| name.as_ref().map_or(String::new(), |name| format!(" {what} {name:?}"));
    let (schema, table) = (named("in the schema", &options.schema), named("with the name", &options.table));
    Failure::new("cannot advise", format!("the database {:?} has no table of a user{table}{schema}", server.database))
        .cure("name another database in --dsn, or another --schema or --table; names are as the catalogue has them, without quotes")
}

/// Returns the reasons why the counts may be worth little.
fn warnings(seen: &Seen) -> Vec<String> {
    let (server, mut warnings) = (&seen.server, Vec::new());
    let counted = seen.tables.iter().any(|placed| placed.table.counts.inserted + placed.table.counts.updated > 0);
    if !server.counts {
        warnings.push(
            "track_counts is off: the server counts no changes; set it to on, and ask again after a day".to_owned(),
        );
    } else if server.standby {
        warnings.push("the server is a standby, which counts no changes of tables; ask the primary".to_owned());
    } else if !counted {
        warnings.push(
            "the statistics are empty: the server has counted no insert and no update of these tables".to_owned(),
        );
    }
    if let Some(seconds) = server.counted_s.filter(|seconds| *seconds < YOUNG_S) {
        let age = text::age(seconds.max(0.0) as u64);
        warnings.push(format!("the statistics were reset {age} ago; the advice holds for what happened since"));
    }
    warnings
}

fn tell(server: &Server, advised: &[Advised<'_>], out: &mut Output) -> Result<(), Failure> {
    let since = server
        .counted_s
        .map_or("never reset".to_owned(), |seconds| format!("reset {} ago", text::age(seconds.max(0.0) as u64)));
    out.line(format!("PostgreSQL {}, database {}; statistics {since}", server.version, server.database))?;
    for one in advised {
        tell_table(one, out)?;
    }
    let statements: Vec<String> = advised.iter().filter_map(Advised::statement).collect();
    out.line("")?;
    if statements.is_empty() {
        return out.line("No table gains by another fill factor. Nothing was changed.");
    }
    for statement in statements {
        out.line(statement)?;
    }
    out.line("")?;
    out.line(AFTERWARDS)
}

fn tell_table(one: &Advised<'_>, out: &mut Output) -> Result<(), Failure> {
    if let Some(reason) = one.plain_reason() {
        let (name, fillfactor) = (qualified(one.table()), one.table().fillfactor);
        out.line("")?;
        return out.line(text::on_one_line(&format!("{name}: keep fill factor {fillfactor}: {reason}")));
    }
    let mut lines = one.table().describe();
    lines.insert(1, format!("drive     {}", drive_words(one)));
    lines.extend(one.advice.describe());
    out.line("")?;
    for (number, line) in lines.iter().enumerate() {
        let indent = if number == 0 { "" } else { "  " };
        out.line(text::on_one_line(&format!("{indent}{line}")))?;
    }
    Ok(())
}

fn drive_words(one: &Advised<'_>) -> String {
    let compresses = match one.place.compresses {
        Compresses::Yes => "compresses",
        Compresses::No => "does not compress",
        Compresses::Unknown => "may or may not compress",
    };
    let path = one.place.path.as_ref().map_or(String::new(), |path| format!(" at {}", path.display()));
    format!("{compresses} ({}); tablespace {}{path}", one.place.kind, one.placed.tablespace)
}

#[derive(Serialize)]
struct Drive<'a> {
    tablespace: &'a str,
    path: Option<String>,
    compresses: &'static str,
    kind: &'a str,
}

fn report(server: &Server, advised: &[Advised<'_>]) -> Value {
    json!({
        "server_version": server.version,
        "database": server.database,
        "statistics_age_s": server.counted_s,
        "changed": false,
        "tables": advised.iter().map(table_report).collect::<Vec<_>>(),
    })
}

fn table_report(one: &Advised<'_>) -> Value {
    let table = one.table();
    let drive = Drive {
        tablespace: &one.placed.tablespace,
        path: one.place.path.as_ref().map(|path| path.display().to_string()),
        compresses: one.place.compresses.word(),
        kind: &one.place.kind,
    };
    let (set, keep) = match &one.advice.recommendation {
        Recommendation::Set(forecast) => (Some(forecast_report(forecast)), None),
        Recommendation::Keep(keep) => (None, Some(keep.because())),
    };
    json!({
        "schema": table.schema,
        "table": table.name,
        "kind": match table.kind {
            Kind::Ordinary => "ordinary",
            Kind::Partition => "partition",
            Kind::Partitioned => "partitioned",
        },
        "rows": table.rows,
        "heap_bytes": table.heap_bytes,
        "index_bytes": table.index_bytes,
        "toast_bytes": table.toast_bytes,
        "fillfactor": table.fillfactor,
        "inserted": table.counts.inserted,
        "updated": table.counts.updated,
        "hot_updated": table.counts.hot_updated,
        "new_page_updated": table.counts.new_page_updated,
        "deleted": table.counts.deleted,
        "indexes": table.indexes.iter().map(|index| json!({ "name": index.name, "columns": index.columns })).collect::<Vec<_>>(),
        "drive": drive,
        "set": set,
        "keep": keep,
        "notes": one.advice.notes.iter().map(|note| note.text()).collect::<Vec<_>>(),
        "statement": one.statement(),
    })
}

fn forecast_report(forecast: &Forecast) -> Value {
    json!({
        "fillfactor": forecast.fillfactor,
        "rows_per_page": forecast.rows_per_page,
        "spare_per_page": forecast.spare_per_page,
        "hot_share_now": forecast.hot_share_now,
        "hot_share": forecast.hot_share,
        "index_entries_spared_per_100_updates": forecast.entries_spared,
        "logical_bytes": forecast.cost.logical,
        "physical_bytes": forecast.cost.physical,
        "logical_percent": forecast.logical_percent,
        "physical_percent": forecast.physical_percent,
    })
}
