//! `situ advise postgres` against a real server: a tablespace on the plain disk, and one on ext4 on zram where root can have that.
//!
//! The server runs as an unprivileged user, in a directory of its own, on a socket only. Without PostgreSQL on this machine the tests say that
//! they were skipped.

use crate::common::situ;
use crate::skipped;
use postgres::{Client, NoTls};
use serde_json::Value;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The programs of the newest server that is installed.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(Result::ok)
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, bin)| bin.join("initdb").exists())
        .collect();
    found.sort();
    found.pop().map(|(_, bin)| bin)
}

/// The user and the group that the server gets: `postgres` or `nobody` if root runs the tests, who must not run a server.
fn unprivileged() -> Option<(u32, u32)> {
    if !rustix::process::getuid().is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let numbers = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2).map(|field| field.parse().unwrap());
        Some((fields.next()?, fields.next()?))
    };
    Some(numbers("postgres").or_else(|| numbers("nobody")).expect("no user postgres and no user nobody"))
}

/// A running server. Stopped on drop.
struct Server {
    bin: PathBuf,
    owner: Option<(u32, u32)>,
    directory: tempfile::TempDir,
}

impl Server {
    /// `None`, said aloud, where there is no PostgreSQL.
    fn start() -> Option<Server> {
        let Some(bin) = programs() else {
            skipped::skipped("no PostgreSQL on this machine (nothing in /usr/lib/postgresql)");
            return None;
        };
        let owner = unprivileged();
        let null_mode = std::fs::metadata("/dev/null").unwrap().permissions().mode();
        if owner.is_some() && null_mode & 0o002 == 0 {
            skipped::skipped("PostgreSQL cannot start: /dev/null is for root alone");
            return None;
        }
        let server = Server { bin, owner, directory: tempfile::tempdir().unwrap() };
        server.own(server.at());
        server.run("initdb", &["--no-sync", "-U", "anna", "-A", "trust", "-E", "UTF8", "--locale=C", "-D", "data"]);
        let settings =
            "-c listen_addresses= -c unix_socket_directories=. -c fsync=off -c autovacuum=off -c shared_buffers=16MB";
        let settings = settings.replace("directories=.", &format!("directories={}", server.at().display()));
        server.run("pg_ctl", &["-s", "-w", "-D", "data", "-l", "log", "-o", &settings, "start"]);
        Some(server)
    }

    fn at(&self) -> &Path {
        self.directory.path()
    }

    fn own(&self, path: &Path) {
        if let Some((user, group)) = self.owner {
            chown(path, Some(user), Some(group)).unwrap();
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.current_dir(self.at()).stdin(Stdio::null()).stdout(Stdio::null());
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let status = self.command(program).args(arguments).status().unwrap();
        assert!(status.success(), "{program} {arguments:?}: {status}");
    }

    /// The connection string of a user.
    fn dsn(&self, user: &str) -> String {
        format!("host={} user={user} dbname=postgres", self.at().display())
    }

    fn client(&self) -> Client {
        Client::connect(&self.dsn("anna"), NoTls).unwrap()
    }

    /// Closes the connection, and waits until the server has counted what the connection did: it counts at its end.
    fn finish(&self, client: Client) {
        drop(client);
        let mut client = self.client();
        let others =
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        for _ in 0..500 {
            if client.query_one(others, &[]).unwrap().get::<_, i64>(0) == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("a connection that was closed is still there");
    }

    /// The answer for the table of this name.
    fn advice(&self, table: &str, more: &[&str]) -> Value {
        let dsn = self.dsn("anna");
        let mut arguments = vec!["advise", "postgres", "--json", "--dsn", &dsn, "--table", table];
        arguments.extend(more);
        let answer = situ(self.at(), &arguments).done().json();
        assert_eq!(answer["tables"].as_array().unwrap().len(), 1, "{answer}");
        answer["tables"][0].clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A second panic during a failing test would abort the process, and with it the other tests.
        if !std::thread::panicking() {
            self.run("pg_ctl", &["-s", "-w", "-m", "immediate", "-D", "data", "stop"]);
        } else if let Err(error) = self.command("pg_ctl").args(["-m", "immediate", "-D", "data", "stop"]).status() {
            eprintln!("the server goes on: {error}");
        }
    }
}

/// ext4 on a zram device of its own. Taken away on drop.
struct Compressing {
    number: String,
    mounted: PathBuf,
}

impl Compressing {
    /// `None`, said aloud, where the kernel or the user's rights do not allow it.
    fn mount(at: &Path) -> Option<Compressing> {
        let Ok(number) = std::fs::read_to_string("/sys/class/zram-control/hot_add") else {
            skipped::skipped("no zram device to be had (root only): the drive that compresses");
            return None;
        };
        let number = number.trim().to_owned();
        let device = format!("/dev/zram{number}");
        let zram = Compressing { number, mounted: at.to_owned() };
        std::fs::write(format!("/sys/block/zram{}/disksize", zram.number), "256M").unwrap();
        if !Path::new(&device).exists() {
            let numbers = std::fs::read_to_string(format!("/sys/block/zram{}/dev", zram.number)).unwrap();
            let (major, minor) = numbers.trim().split_once(':').unwrap();
            ran("mknod", &[&device, "b", major, minor]);
        }
        std::fs::create_dir(at).unwrap();
        ran("mkfs.ext4", &["-q", "-F", "-E", "nodiscard", &device]);
        ran("mount", &["-o", "noatime", &device, &at.display().to_string()]);
        Some(zram)
    }

    /// Bytes that LZ4 left, once all has reached the device.
    fn physical(&self) -> u64 {
        ran("sync", &["-f", &self.mounted.display().to_string()]);
        let counted = std::fs::read_to_string(format!("/sys/block/zram{}/mm_stat", self.number)).unwrap();
        counted.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Compressing {
    fn drop(&mut self) {
        // What fails here must not hide what failed in the test.
        let _ = Command::new("umount").arg(&self.mounted).status();
        let _ = std::fs::write(format!("/sys/block/zram{}/reset", self.number), "1");
        let _ = std::fs::remove_file(format!("/dev/zram{}", self.number));
        let _ = std::fs::write("/sys/class/zram-control/hot_remove", &self.number);
    }
}

fn ran(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}: {status}");
}

const ORDERS: i32 = 12_000;

/// A table of orders, each inserted once and updated once; 50 a transaction, so that a page of some 40 needs room for most of
/// its rows.
fn work(client: &mut Client, table: &str, fillfactor: u64, tablespace: &str) {
    let indexes = ["customer", "product", "placed"]
        .map(|column| format!("CREATE INDEX ON {table} ({column}) TABLESPACE {tablespace};"))
        .concat();
    let make = format!(
        "CREATE TABLE {table} (id integer PRIMARY KEY USING INDEX TABLESPACE {tablespace}, customer integer, product integer,
           placed timestamptz, state integer, note text) WITH (fillfactor = {fillfactor}) TABLESPACE {tablespace}; {indexes}"
    );
    client.batch_execute(&make).unwrap();
    let rows = format!(
        "INSERT INTO {table} SELECT n, n * 7919 % 1000, n % 100, now() + n * interval '1 s', 0, md5(n::text) || repeat('x', 90)
         FROM generate_series(1, {ORDERS}) n"
    );
    client.batch_execute(&rows).unwrap();
    client.batch_execute(&format!("ANALYZE {table}")).unwrap();
}

fn ship(client: &mut Client, table: &str) {
    for first in (1..=ORDERS).step_by(50) {
        let update = format!("UPDATE {table} SET state = 1 WHERE id BETWEEN {first} AND {}", first + 49);
        client.batch_execute(&update).unwrap();
    }
}

fn hot_share(server: &Server, table: &str) -> f64 {
    let seen = server.advice(table, &["--drive", "plain"]);
    seen["hot_updated"].as_f64().unwrap() / seen["updated"].as_f64().unwrap()
}

/// The advice is followed, the same work is done again, and the HOT share comes out as foretold, at the space that was foretold.
#[test]
fn advice_that_is_followed_does_what_it_foretold() {
    let Some(server) = Server::start() else { return };
    let compressing = Compressing::mount(&server.at().join("zram"));
    std::fs::create_dir(server.at().join("plain")).unwrap();
    let mut places = vec![("plain", None)];
    places.extend(compressing.as_ref().map(|zram| ("zram", Some(zram))));
    for (place, zram) in places {
        server.own(&server.at().join(place));
        let mut client = server.client();
        let location = server.at().join(place).display().to_string();
        client.batch_execute(&format!("CREATE TABLESPACE {place} LOCATION '{location}'")).unwrap();
        let physical = |client: &mut Client| {
            client.batch_execute("CHECKPOINT").unwrap();
            zram.map(Compressing::physical)
        };
        let before = physical(&mut client);
        let table = format!("orders_{place}");
        work(&mut client, &table, 100, place);
        let loaded = physical(&mut client);
        ship(&mut client, &table);
        server.finish(client);

        let seen = server.advice(&table, &[]);
        let (drive, set) = (&seen["drive"], &seen["set"]);
        assert_eq!(drive["compresses"] == "yes", zram.is_some(), "{seen}");
        assert!(drive["path"].as_str().unwrap().ends_with(place), "{seen}");
        let fillfactor = set["fillfactor"].as_u64().expect("a fill factor");
        let (now, foretold) = (set["hot_share_now"].as_f64().unwrap(), set["hot_share"].as_f64().unwrap());
        assert!(now < 0.6 && foretold > now + 0.2, "{seen}");
        let wanted = format!("ALTER TABLE public.{table} SET (fillfactor = {fillfactor});");
        assert_eq!(seen["statement"].as_str(), Some(wanted.as_str()));

        let mut client = server.client();
        let (again, empty) = (format!("again_{place}"), physical(&mut client));
        work(&mut client, &again, fillfactor, place);
        let rewritten = physical(&mut client);
        ship(&mut client, &again);
        server.finish(client);
        let found = hot_share(&server, &again);
        assert!((found - foretold).abs() < 0.15, "foretold {foretold}, found {found}: {seen}");

        let pages = |seen: &Value| seen["heap_bytes"].as_f64().unwrap();
        let logical = pages(&server.advice(&again, &[])) - ORDERS as f64 * 8192.0 / rows_per_page(&server, &table);
        let said = set["logical_bytes"].as_f64().unwrap();
        // Updates that still left their page took a few pages more.
        assert!(logical > 0.9 * said && logical < 1.6 * said, "said {said}, found {logical}");
        if let (Some(before), Some(loaded), Some(empty), Some(rewritten)) = (before, loaded, empty, rewritten) {
            let more = (rewritten - empty) as f64 - (loaded - before) as f64;
            assert!(more < said / 4.0, "{more} physical bytes more for {said} logical ones");
        }
        assert!(server.advice(&table, &["--drive", "compresses"])["set"]["fillfactor"].as_u64().unwrap() <= fillfactor);
    }
}

/// Rows of a page at fill factor 100, as the server has placed them.
fn rows_per_page(server: &Server, table: &str) -> f64 {
    let query = format!("SELECT count(*) FROM {table} WHERE ctid >= '(0,0)' AND ctid < '(10,0)'");
    let full = format!("CREATE TABLE full_{table} AS TABLE {table}");
    let mut client = server.client();
    client.batch_execute(&full).unwrap();
    let rows: i64 = client.query_one(&query.replace(table, &format!("full_{table}")), &[]).unwrap().get(0);
    rows as f64 / 10.0
}

/// What holds no rows, has odd names, or does not gain gets the right words, and nothing changes in the database.
#[test]
fn tables_of_all_kinds_are_told_apart() {
    let Some(server) = Server::start() else { return };
    let mut client = server.client();
    client
        .batch_execute(
            "CREATE SCHEMA \"My Shop\";
             CREATE TABLE \"My Shop\".\"order\" (id integer, note text) PARTITION BY RANGE (id);
             CREATE TABLE \"My Shop\".\"order \"\"1\"\"\" PARTITION OF \"My Shop\".\"order\" FOR VALUES FROM (0) TO (1000000);
             CREATE INDEX ON \"My Shop\".\"order\" (id);
             CREATE TABLE parent (id integer PRIMARY KEY, state integer, note text) WITH (fillfactor = 80);
             CREATE TABLE child (extra text) INHERITS (parent);
             CREATE INDEX ON child (id);
             CREATE TABLE covered (id integer PRIMARY KEY, a integer, b text);
             CREATE INDEX ON covered (a) WHERE upper(b) > 'A';
             CREATE TABLE wide (id integer PRIMARY KEY, state integer, note text);
             ALTER TABLE wide ALTER COLUMN note SET STORAGE PLAIN;
             CREATE TABLE still (id integer PRIMARY KEY, note text);
             CREATE TABLE unindexed (id integer, note text);
             CREATE TABLE empty (id integer PRIMARY KEY);
             INSERT INTO \"My Shop\".\"order\" SELECT n, repeat('x', 100) FROM generate_series(1, 5000) n;
             INSERT INTO child SELECT n, 0, repeat('x', 100), NULL FROM generate_series(1, 5000) n;
             INSERT INTO covered SELECT n, n, repeat('x', 100) FROM generate_series(1, 2000) n;
             INSERT INTO wide SELECT n, 0, repeat('x', 5000) FROM generate_series(1, 300) n;
             INSERT INTO still SELECT n, repeat('x', 100) FROM generate_series(1, 2000) n;
             INSERT INTO unindexed SELECT n, repeat('x', 100) FROM generate_series(1, 2000) n;",
        )
        .unwrap();
    client.batch_execute("ANALYZE").unwrap();
    client
        .batch_execute(
            "UPDATE \"My Shop\".\"order\" SET note = note; UPDATE child SET state = 1; UPDATE covered SET b = 'y';
             UPDATE wide SET state = 1; UPDATE unindexed SET note = note;",
        )
        .unwrap();
    server.finish(client);
    let before = catalogue(&server);

    let dsn = server.dsn("anna");
    let told = situ(server.at(), &["advise", "postgres", "--dsn", &dsn, "--drive", "compresses"]).done();
    let text = told.text();
    for line in [
        "\"My Shop\".\"order\": keep fill factor 100: the table is made of partitions",
        "ALTER TABLE \"My Shop\".\"order \"\"1\"\"\" SET (fillfactor = 50);",
        "ALTER TABLE public.child SET (fillfactor = 50);",
        "public.parent: keep fill factor 80: the table is empty",
        "public.empty: keep fill factor 100: the table is empty",
        "covered_a_idx (a, b)",
        "every column is in an index, so no change of a row can be HOT",
        "a row takes more than half of a page",
        "pages get less than one update each",
        "no index that an update writes to",
        "Nothing was changed.",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    assert_eq!(text.matches("ALTER TABLE").count(), 2, "{text}");
    let statements: Vec<&str> = text.lines().filter(|line| line.starts_with("ALTER TABLE")).collect();
    assert_eq!(catalogue(&server), before, "the command changed something");

    // The server takes the statements as they are.
    let mut client = server.client();
    statements.iter().for_each(|statement| client.batch_execute(statement).unwrap());
    let options: Vec<String> =
        client.query_one("SELECT reloptions FROM pg_class WHERE relname = 'order \"1\"'", &[]).unwrap().get(0);
    assert_eq!(options, ["fillfactor=50"]);

    let one = situ(server.at(), &["advise", "postgres", "--dsn", &dsn, "--schema", "My Shop", "--json"]).done().json();
    assert_eq!(one["tables"].as_array().unwrap().len(), 2, "{one}");
}

/// What a statement that writes would change: the tables' options, and the number of the next transaction.
fn catalogue(server: &Server) -> Vec<(String, Option<Vec<String>>)> {
    let mut client = server.client();
    let rows = client
        .query("SELECT relname::text, reloptions FROM pg_class WHERE relkind IN ('r', 'p') ORDER BY oid", &[])
        .unwrap();
    let next: String = client.query_one("SELECT pg_snapshot_xmax(pg_current_snapshot())::text", &[]).unwrap().get(0);
    rows.iter().map(|row| (row.get(0), row.get(1))).chain([(next, None)]).collect()
}

/// Every failure says what to do, and what is hidden from a user is said to be hidden.
#[test]
fn what_is_refused_or_hidden_is_said() {
    let Some(server) = Server::start() else { return };
    let asked = |dsn: &str, more: &[&str]| {
        let mut arguments = vec!["advise", "postgres", "--dsn", dsn];
        arguments.extend(more);
        situ(server.at(), &arguments)
    };
    let nowhere = asked("host=/nowhere user=anna", &[]);
    assert!(
        nowhere.code == 1 && nowhere.stderr.contains("cannot connect to the PostgreSQL server at /nowhere"),
        "{nowhere:?}"
    );
    let unknown = asked(&server.dsn("berta"), &[]);
    assert!(unknown.code == 1 && unknown.stderr.contains("\"berta\" does not exist"), "{unknown:?}");
    let nonsense = asked("nonsense", &[]);
    assert!(nonsense.code == 2 && nonsense.stderr.contains("--dsn cannot be read"), "{nonsense:?}");
    let none = asked(&server.dsn("anna"), &[]);
    assert!(none.code == 1 && none.stderr.contains("has no table of a user"), "{none:?}");

    let mut client = server.client();
    client
        .batch_execute(
            "CREATE ROLE carla LOGIN; CREATE TABLE hers (id integer PRIMARY KEY, note text);
             INSERT INTO hers SELECT n, repeat('x', 100) FROM generate_series(1, 5000) n",
        )
        .unwrap();
    client.batch_execute("ANALYZE hers").unwrap();
    server.finish(client);
    let mut client = server.client();
    client.batch_execute("SELECT pg_stat_reset()").unwrap();
    server.finish(client);
    let empty = asked(&server.dsn("carla"), &[]).done();
    assert!(empty.stderr.contains("the statistics are empty"), "{empty:?}");
    assert!(empty.stderr.contains("the statistics were reset"), "{empty:?}");
    assert!(empty.text().contains("the server has counted no change"), "{empty:?}");
    assert!(empty.text().contains("No table gains"), "{empty:?}");

    let mut client = server.client();
    client.batch_execute("UPDATE hers SET note = note").unwrap();
    server.finish(client);
    let hidden = asked(&server.dsn("carla"), &[]).done().text();
    assert!(hidden.contains("the user may not see where the server's data lie"), "{hidden}");
    assert!(hidden.contains("the width of rows is a guess"), "{hidden}");
    let seen = asked(&server.dsn("anna"), &[]).done().text();
    assert!(!seen.contains("may not see") && !seen.contains("is a guess"), "{seen}");

    // A table that somebody has locked for long is named as the reason, within seconds.
    let mut holder = server.client();
    let mut lock = holder.transaction().unwrap();
    lock.batch_execute("LOCK TABLE hers").unwrap();
    let waited = asked(&server.dsn("anna"), &[]);
    assert!(waited.code == 1 && waited.stderr.contains("somebody holds a lock"), "{waited:?}");
}
