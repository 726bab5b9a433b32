//! The facts of a PostgreSQL server about its tables.
//!
//! # Steps
//! 1. [`connect`] reads the connection string, and connects without TLS.
//! 2. [`fetch`] opens one read-only transaction with one snapshot, with short limits for locks and statements.
//! 3. Four queries fetch the server, the tables with their counts, the columns with their widths, and the indexes with
//!    their columns.
//!
//! **Invariants.** Nothing is written: the server itself refuses it within this transaction, and the transaction is
//! rolled back at the end.
//! **Rights.** Any user who may connect sees the counts. The widths of columns are those of tables that the user may
//! read. The server's data directory is shown to members of `pg_read_all_settings` only. A hidden value is `None`.
//! **Versions.** 10 to 18. Servers from 16 on count updates that left their page.

use crate::failure::Failure;
use crate::options::AdvisePostgresOptions;
use postgres::config::Host;
use postgres::{Client, Config, IsolationLevel, NoTls, Row, Transaction};
use situ_advise::{Alignment, Column, Counts, Index, Kind, Table};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The first version that counts updates that left their page, and in which BRIN indexes leave updates HOT.
const COUNTS_NEW_PAGES: i32 = 160_000;
const OLDEST: i32 = 100_000;

/// The server, as far as the advice needs it.
pub(super) struct Server {
    pub(super) version: String,
    pub(super) database: String,
    /// Seconds since the statistics of the database were reset; `None` if they never were.
    pub(super) counted_s: Option<f64>,
    /// The server counts changes of tables at all.
    pub(super) counts: bool,
    /// It repeats another server's changes, and counts none.
    pub(super) standby: bool,
    pub(super) process: ServerProcess,
    /// `None` if the user may not see it.
    pub(super) data_directory: Option<PathBuf>,
}

/// The process that serves this connection.
#[derive(Clone, Copy)]
pub(super) struct ServerProcess {
    pub(super) number: i32,
    /// The age of the process, in seconds, when the answer came. `NaN` if the user may not see it.
    pub(super) age_s: f64,
    /// The time of this machine since its boot, in seconds, when the answer came. `NaN` if unknown.
    pub(super) asked_s: f64,
}

/// A table, and where it lies.
pub(super) struct Placed {
    pub(super) table: Table,
    /// The tablespace's name.
    pub(super) tablespace: String,
    /// The tablespace's directory; `None` for those within the data directory.
    pub(super) location: Option<PathBuf>,
}

/// The results of one transaction.
pub(super) struct Seen {
    pub(super) server: Server,
    pub(super) tables: Vec<Placed>,
}

/// Connects to the server that `options` name.
pub(super) fn connect(options: &AdvisePostgresOptions) -> Result<Client, Failure> {
    let config = config(&options.dsn)?;
    config.connect(NoTls).map_err(|error| {
        let failure = Failure::new(format!("cannot connect to the PostgreSQL server at {}", hosts(&config)), told(&error));
        match error.as_db_error() {
            Some(_) => failure.cure("name another user, password or database in --dsn; PGPASSWORD gives a password, too"),
            None => failure.cure(
                "see whether the server runs and listens there; the command speaks no TLS, so use the server's socket, or a tunnel",
            ),
        }
    })
}

fn hosts(config: &Config) -> String {
    let host = |host: &Host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(directory) => directory.display().to_string(),
    };
    let names = config.get_hosts().iter().map(host).chain(config.get_hostaddrs().iter().map(ToString::to_string));
    names.collect::<Vec<_>>().join(", ")
}

/// Parses the connection string. Where it says nothing, libpq's defaults hold: the server's socket, the password of the
/// environment.
fn config(dsn: &str) -> Result<Config, Failure> {
    let mut config: Config = dsn.parse().map_err(|error: postgres::Error| {
        Failure::usage(format!("--dsn cannot be read: {}", told(&error)))
            .cure("write 'host=/var/run/postgresql dbname=shop user=anna' or postgresql://anna@localhost:5432/shop")
    })?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        config.host(std::env::var("PGHOST").as_deref().unwrap_or("/var/run/postgresql"));
    }
    if let (None, Ok(password)) = (config.get_password(), std::env::var("PGPASSWORD")) {
        config.password(password);
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_application_name().is_none() {
        config.application_name("situ advise");
    }
    Ok(config)
}

/// Returns all that the advice needs.
pub(super) fn fetch(client: &mut Client, options: &AdvisePostgresOptions) -> Result<Seen, Failure> {
    let failed = |error: postgres::Error| {
        let failure = Failure::new("cannot read the statistics of the PostgreSQL server", told(&error));
        match error.code().map(postgres::error::SqlState::code) {
            Some("55P03" | "57014") => failure.cure(
                "somebody holds a lock on a table for long (perhaps a VACUUM FULL); try again, or name other tables with --table",
            ),
            Some("42501") => failure.cure("connect as the tables' owner, or as a member of pg_monitor"),
            _ => failure,
        }
    };
    let mut transaction = client
        .build_transaction()
        .read_only(true)
        .isolation_level(IsolationLevel::RepeatableRead)
        .start()
        .map_err(failed)?;
    let seen = read(&mut transaction, options).map_err(failed)?;
    transaction.rollback().map_err(failed)?;
    seen
}

fn read(
    transaction: &mut Transaction<'_>,
    options: &AdvisePostgresOptions,
) -> Result<Result<Seen, Failure>, postgres::Error> {
    transaction.batch_execute(
        "SET LOCAL lock_timeout = '3s'; SET LOCAL statement_timeout = '60s'; SET LOCAL search_path = pg_catalog",
    )?;
    let version: i32 = transaction.query_one("SELECT current_setting('server_version_num')::int4", &[])?.get(0);
    if version < OLDEST {
        return Ok(Err(Failure::new(
            "cannot advise",
            format!("the server has version {version}; the oldest is {OLDEST}"),
        )));
    }
    let server = server(transaction)?;
    let mut tables = tables(transaction, options, version)?;
    let numbers: Vec<u32> = tables.keys().copied().collect();
    for row in transaction.query(COLUMNS, &[&numbers])? {
        let table = tables.get_mut(&row.get("oid"));
        table.into_iter().for_each(|placed| placed.table.columns.push(column(&row)));
    }
    for row in transaction.query(INDEXES, &[&numbers])? {
        let table = tables.get_mut(&row.get("oid"));
        table.into_iter().for_each(|placed| placed.table.indexes.push(index(&row, version)));
    }
    let mut tables: Vec<Placed> = tables.into_values().collect();
    tables.sort_by(|a, b| (&a.table.schema, &a.table.name).cmp(&(&b.table.schema, &b.table.name)));
    Ok(Ok(Seen { server, tables }))
}

const SERVER: &str = "
SELECT current_setting('server_version') AS version, current_database()::text AS database,
  current_setting('track_counts')::bool AS counts, pg_is_in_recovery() AS standby,
  (SELECT extract(epoch FROM now() - stats_reset)::float8 FROM pg_stat_database WHERE datname = current_database()) AS counted,
  pg_backend_pid() AS number,
  (SELECT extract(epoch FROM clock_timestamp() - backend_start)::float8 FROM pg_stat_activity WHERE pid = pg_backend_pid()) AS age,
  (SELECT setting FROM pg_settings WHERE name = 'data_directory') AS data_directory";

/// Returns the seconds since the boot: the kernel dates the start of a process by them.
fn since_boot_s() -> f64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split_whitespace().next().and_then(|seconds| seconds.parse().ok()).unwrap_or(f64::NAN)
}

fn server(transaction: &mut Transaction<'_>) -> Result<Server, postgres::Error> {
    let row = transaction.query_one(SERVER, &[])?;
    let process = ServerProcess {
        number: row.get("number"),
        age_s: row.get::<_, Option<f64>>("age").unwrap_or(f64::NAN),
        asked_s: since_boot_s(),
    };
    Ok(Server {
        version: row.get("version"),
        database: row.get("database"),
        counted_s: row.get("counted"),
        counts: row.get("counts"),
        standby: row.get("standby"),
        process,
        data_directory: row.get::<_, Option<String>>("data_directory").map(PathBuf::from),
    })
}

/// Tables of users that hold rows or are made of such, but for temporary ones.
fn tables_query(version: i32) -> String {
    let moved = match version >= COUNTS_NEW_PAGES {
        true => "pg_stat_get_tuples_newpage_updated(c.oid)",
        false => "NULL::int8",
    };
    format!(
        "
SELECT c.oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind, c.relispartition AS partition,
  current_setting('block_size')::int4 AS block, c.reltuples::float8 AS rows, c.relpages AS pages, pg_relation_size(c.oid) AS heap,
  pg_indexes_size(c.oid) AS index, CASE WHEN c.reltoastrelid = 0 THEN 0 ELSE pg_total_relation_size(c.reltoastrelid) END AS toast,
  (SELECT option_value::int4 FROM pg_options_to_table(c.reloptions) WHERE option_name = 'fillfactor') AS fillfactor,
  t.spcname::text AS tablespace, pg_tablespace_location(t.oid) AS location,
  pg_stat_get_tuples_inserted(c.oid) AS inserted, pg_stat_get_tuples_updated(c.oid) AS updated,
  pg_stat_get_tuples_hot_updated(c.oid) AS hot, pg_stat_get_tuples_deleted(c.oid) AS deleted, {moved} AS moved
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_database d ON d.datname = current_database()
JOIN pg_tablespace t ON t.oid = CASE WHEN c.reltablespace = 0 THEN d.dattablespace ELSE c.reltablespace END
WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
  AND ($1::text IS NULL OR n.nspname = $1) AND ($2::text IS NULL OR c.relname = $2)"
    )
}

fn tables(
    transaction: &mut Transaction<'_>,
    options: &AdvisePostgresOptions,
    version: i32,
) -> Result<BTreeMap<u32, Placed>, postgres::Error> {
    let rows = transaction.query(&tables_query(version), &[&options.schema, &options.table])?;
    Ok(rows.iter().map(|row| (row.get("oid"), placed(row))).collect())
}

fn placed(row: &Row) -> Placed {
    let location: Option<String> = row.get("location");
    Placed {
        table: table(row),
        tablespace: row.get("tablespace"),
        location: location.filter(|location| !location.is_empty()).map(PathBuf::from),
    }
}

fn table(row: &Row) -> Table {
    let count = |name: &str| row.get::<_, Option<i64>>(name).map(|count| count.max(0) as u64);
    let kind = match (row.get::<_, String>("kind").as_str(), row.get("partition")) {
        ("p", _) => Kind::Partitioned,
        (_, true) => Kind::Partition,
        _ => Kind::Ordinary,
    };
    let heap_bytes = count("heap").unwrap_or(0);
    Table {
        schema: row.get("schema"),
        name: row.get("name"),
        kind,
        block_bytes: row.get::<_, i32>("block") as u32,
        fillfactor: row.get::<_, Option<i32>>("fillfactor").map_or(100, |fillfactor| fillfactor.clamp(10, 100) as u32),
        rows: analyzed_rows(row.get("rows"), row.get("pages"), heap_bytes),
        heap_bytes,
        index_bytes: count("index").unwrap_or(0),
        toast_bytes: count("toast").unwrap_or(0),
        columns: Vec::new(),
        indexes: Vec::new(),
        counts: Counts {
            inserted: count("inserted").unwrap_or(0),
            updated: count("updated").unwrap_or(0),
            hot_updated: count("hot").unwrap_or(0),
            new_page_updated: count("moved"),
            deleted: count("deleted").unwrap_or(0),
        },
    }
}

/// A table that was never analysed has -1 rows, and before version 14 no rows in no pages.
fn analyzed_rows(rows: f64, pages: i32, heap_bytes: u64) -> Option<f64> {
    let never = rows < 0.0 || (rows == 0.0 && pages == 0 && heap_bytes > 0);
    (!never).then_some(rows)
}

const COLUMNS: &str = "
SELECT a.attrelid AS oid, a.attname::text AS name, a.attlen AS length, a.attalign::text AS alignment, s.avg_width AS width,
  s.null_frac::float8 AS nulls
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = a.attname AND NOT s.inherited
WHERE a.attrelid = ANY($1) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum";

fn column(row: &Row) -> Column {
    let length: i16 = row.get("length");
    Column {
        name: row.get("name"),
        width: row.get::<_, Option<i32>>("width").map(f64::from),
        null_share: row.get::<_, Option<f64>>("nulls").unwrap_or(0.0),
        fixed_bytes: u32::try_from(length).ok(),
        alignment: match row.get::<_, String>("alignment").as_str() {
            "c" => Alignment::One,
            "s" => Alignment::Two,
            "i" => Alignment::Four,
            _ => Alignment::Eight,
        },
    }
}

/// The columns of an index are its keys and what it includes, and those that its expressions and its predicate read:
/// the latter are in `pg_depend` only.
const INDEXES: &str = "
SELECT i.indrelid AS oid, x.relname::text AS name, m.amname::text AS method,
  ARRAY(SELECT a.attname::text FROM pg_attribute a
    WHERE a.attrelid = i.indrelid AND a.attnum > 0 AND (a.attnum = ANY(i.indkey) OR EXISTS (SELECT 1 FROM pg_depend d
      WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid AND d.refclassid = 'pg_class'::regclass
        AND d.refobjid = i.indrelid AND d.refobjsubid = a.attnum))
    ORDER BY array_position(i.indkey::int2[], a.attnum), a.attnum) AS columns
FROM pg_index i
JOIN pg_class x ON x.oid = i.indexrelid
JOIN pg_am m ON m.oid = x.relam
WHERE i.indrelid = ANY($1)
ORDER BY i.indrelid, x.relname";

fn index(row: &Row, version: i32) -> Index {
    let method: String = row.get("method");
    Index {
        name: row.get("name"),
        columns: row.get("columns"),
        summarizes: method == "brin" && version >= COUNTS_NEW_PAGES,
    }
}

/// Returns the server's own words, if it is the server that refuses.
fn told(error: &postgres::Error) -> String {
    let cause = |error: &postgres::Error| std::error::Error::source(error).map(ToString::to_string);
    match error.as_db_error() {
        Some(refusal) => refusal.message().to_owned(),
        None => cause(error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")),
    }
}
