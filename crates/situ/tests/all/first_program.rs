//! What somebody who has never seen this library types first. Once it gave nine compile errors: text as keys and values,
//! `open` without options, a keyspace that is opened or created, `for` over a range, a prefix, `.rev()`, options in one
//! expression, a batch without handles, a counter in a closure. It has to compile as it stands here; that is the test.

use crate::skipped;
use situ::{
    Cursor, Durability, Error, Iter, Key, Keyspace, KeyspaceOptions, LockMode, Options, ReadOptions, ScanOptions,
    SizeOptions, Snapshot, Store, Transaction, TransactionOptions, Value, WriteBatch,
};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::task::{Context, Poll, Waker};

#[test]
fn a_first_program_compiles_and_does_what_it_says() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let directory = tempfile::tempdir()?;
    let store = Store::open(directory.path())?;

    // Text, owned text, bytes, arrays, vectors, boxes, and what was read.
    store.put("ada", "1815")?;
    store.put(String::from("alan"), format!("{}", 1912))?;
    store.put(b"grace", vec![b'1', b'9', b'0', b'6'])?;
    store.put([0xff, 1], 7u64.to_be_bytes())?;
    store.put(String::from("boxed"), Box::<[u8]>::from(&b"value"[..]))?;
    let value = store.get("ada")?.expect("was just put");
    store.put("copy", &value)?;
    assert_eq!(store.get("copy")?.unwrap(), value);
    assert_eq!(value, "1815");
    assert_eq!(std::str::from_utf8(&value)?.parse::<u32>()?, 1815);
    assert!(store.contains("alan")? && store.get("nobody")?.is_none());
    store.delete(String::from("copy"))?;

    let mut names = Vec::new();
    for pair in store.range("a".."b")? {
        let (key, value) = pair?;
        assert_eq!(value.len(), 4);
        names.push(String::from_utf8(key.to_vec())?);
    }
    assert_eq!(names, ["ada", "alan"]);
    let backward: Vec<Key> = store.prefix("a")?.rev().map(|pair| pair.map(|(key, _)| key)).collect::<Result<_, _>>()?;
    assert_eq!(backward, ["alan", "ada"]);
    let all: BTreeMap<Key, Value> = store.iter()?.collect::<situ::Result<_>>()?;
    assert_eq!(all[&b"grace"[..]], "1906");
    let (first, last) = (store.first()?.unwrap(), store.last()?.unwrap());
    assert_eq!((&*first.0, &*last.0), (&b"ada"[..], &[0xff, 1][..]));

    let people = store.keyspace("people")?;
    let mut batch = WriteBatch::new();
    batch.put("ada", "moved")?;
    batch.put_in(&people, "ada", "1815")?;
    batch.delete("alan")?;
    store.write(batch)?;
    assert!(!people.is_empty()? && !store.contains("alan")?);
    let values = people.multi_get(&["ada", "nobody"])?;
    assert!(matches!(&values[..], [Some(value), None] if *value == "1815"));

    let visits = store.transact(|tx| {
        let visits = tx.get("visits")?.map_or(0, |bytes| u64::from_be_bytes(bytes[..].try_into().unwrap())) + 1;
        tx.put("visits", visits.to_be_bytes())?;
        tx.put_in(&people, "last visit", "today")?;
        Ok(visits)
    })?;
    assert_eq!(visits, 1);
    // Errors of one's own, of any type that errors of the store can become.
    let refused = store.transact_with(&TransactionOptions::default(), |tx| {
        tx.delete_in(&people, "ada")?;
        let born: u32 = std::str::from_utf8(&tx.get("ada")?.unwrap())?.parse()?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(born)
    });
    assert!(refused.unwrap_err().to_string().contains("invalid digit"));
    assert!(people.contains("ada")?);
    store.close()?;

    let options = Options::default().cache_bytes(64 << 20).durability(Durability::Synced);
    let store = Store::open_with(directory.path(), options)?;
    let logs = store.keyspace_with("logs", KeyspaceOptions::default().memtable_bytes(8 << 20))?;
    logs.put(1u32.to_be_bytes(), "started")?;
    let snapshot = store.snapshot()?;
    logs.delete(1u32.to_be_bytes())?;
    assert_eq!(logs.iter_with(&ReadOptions::default().at(&snapshot))?.count(), 1);
    let _ = (ScanOptions::default().entries_max(10), SizeOptions::default().include_memtables(true));
    assert!(matches!(store.existing_keyspace("typo"), Err(Error::NoSuchKeyspace { .. })));
    Ok(store.close()?)
}

/// One action has one name: the usual call takes no options, and a future one `?`.
#[test]
fn a_call_reads_the_same_on_all_that_have_it() -> situ::Result<()> {
    async fn calls(store: &Store) -> situ::Result<()> {
        let people = store.keyspace("people")?;
        store.put_async("ada", "1815").await?;
        people.put_async("ada", "1815").await?;
        people.put_with_async("grace", "1906", Durability::Synced).await?;
        assert_eq!(store.get_async("ada").await?, people.get_async("ada").await?);
        let mut batch = WriteBatch::new();
        batch.put_in(&people, "alan", "1912")?;
        batch.delete_range("a", "b")?;
        store.write_async(batch).await?;

        let snapshot = store.snapshot()?;
        let mut transaction = store.begin()?;
        assert!(transaction.get_for_update_in_async(&people, "ada", LockMode::Exclusive).await?.is_some());
        transaction.delete_in(&people, "ada")?;
        assert_eq!(transaction.range_in(&people, "a".."h")?.count(), 2);
        transaction.commit_async().await?;
        assert_eq!(people.range("a".."h")?.count(), 2);
        assert_eq!(snapshot.range_in(&people, "a".."h")?.count(), 3);
        assert_eq!(snapshot.get_in(&people, "ada")?.as_deref(), Some(&b"1815"[..]));
        assert!(snapshot.get_async("ada").await?.is_none() && !snapshot.contains("ada")?);
        assert_eq!(snapshot.multi_get_in(&people, &["grace", "nobody"])?.iter().flatten().count(), 1);
        assert!(snapshot.cursor_in(&people).is_ok() && snapshot.iter()?.next().is_none());
        Ok(())
    }
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path())?;
    let mut calls = pin!(calls(&store));
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match calls.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => break outcome?,
            Poll::Pending => std::thread::yield_now(),
        }
    }
    store.close()?;
    let closed = |error: Error| matches!(error, Error::Closed);
    assert!(store.begin().is_err_and(closed) && store.snapshot().is_err_and(closed));
    let mut refused = pin!(store.put_async("ada", "1815"));
    assert!(matches!(refused.as_mut().poll(&mut context), Poll::Ready(Err(Error::Closed))));
    Ok(())
}

#[test]
fn handles_go_to_threads_and_errors_into_boxes() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    fn sent<T: Send + 'static>() {}
    fn error<T: std::error::Error + Send + Sync + 'static>() {}
    shared::<Store>();
    shared::<Keyspace>();
    shared::<Snapshot>();
    shared::<Value>();
    shared::<Key>();
    shared::<WriteBatch>();
    sent::<Iter>();
    sent::<Cursor>();
    sent::<Transaction>();
    error::<Error>();
}

/// docs/evidence/first-program.md counts the lines of what is compiled, and the program does what the page says.
#[test]
fn the_page_of_first_programs_shows_the_example() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(project.join("docs/evidence/first-program.md")).unwrap();
    let example = std::fs::read_to_string(project.join("crates/situ/examples/first_program.rs")).unwrap();
    let program = example.split_once("\n\n").unwrap().1;
    assert_eq!(page.split("```rust\n").nth(1).unwrap().split("```").next().unwrap(), program);
    let lines = |program: &str| program.lines().filter(|line| !line.is_empty()).count();
    let programs = page.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let counts: Vec<usize> = programs.map(lines).collect();
    assert!(counts[0] <= counts[1] && counts[0] <= counts[2], "{counts:?}");
    for (name, count) in ["Situ", "Fjall", "redb"].iter().zip(&counts) {
        assert!(page.contains(&format!("| {name} | {count} |")), "the page counts {count} lines of {name}");
    }

    let tests = std::env::current_exe().unwrap();
    let built = tests.ancestors().nth(2).unwrap().join("examples/first_program");
    if !built.exists() {
        skipped::skipped("the example was not built with the tests");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for visits in 1..3 {
        let output = Command::new(&built).arg(directory.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let expected = format!("ada 1815\nada 1815\nalan 1912\nalan\n{visits} visits\n");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }
}
