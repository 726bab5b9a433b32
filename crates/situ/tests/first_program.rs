//! What somebody who has never seen this library types first. Once it gave nine compile errors: text as keys and values,
//! `open` without options, a keyspace that is opened or created, `for` over a range, a prefix, `.rev()`, options in one
//! expression, a batch without handles, a counter in a closure. It has to compile as it stands here; that is the test.

use situ::{
    Cursor, Durability, Error, Iter, Key, Keyspace, KeyspaceOptions, Options, ReadOptions, ScanOptions, SizeOptions,
    Snapshot, Store, Transaction, TransactionOptions, Value, WriteBatch,
};
use std::collections::BTreeMap;

#[test]
fn a_first_program_compiles_and_does_what_it_says() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let directory = tempfile::tempdir()?;
    let store = Store::open(directory.path())?;

    // Text, owned text, bytes, arrays, vectors, boxes, and what was read.
    store.put("ada", "1815")?;
    store.put(String::from("alan"), format!("{}", 1912))?;
    store.put(b"grace", vec![b'1', b'9', b'0', b'6'])?;
    store.put([0xff, 1], 7u64.to_be_bytes())?;
    store.put(&String::from("boxed"), Box::<[u8]>::from(&b"value"[..]))?;
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
    let refused = store.transact_with(TransactionOptions::default(), |tx| {
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
    assert_eq!(logs.iter_with(ReadOptions::default().at(&snapshot))?.count(), 1);
    let _ = (ScanOptions::default().entries_max(10), SizeOptions::default().include_memtables(true));
    assert!(matches!(store.existing_keyspace("typo"), Err(Error::NoSuchKeyspace { .. })));
    Ok(store.close()?)
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
