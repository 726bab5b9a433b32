//! A tour of the library.

use situ::{Durability, ReadOptions, Store, WriteBatch};

fn main() -> situ::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "situ-data".to_owned());
    let store = Store::open(directory)?;

    // Buffered: survives this process. Synced: survives power failure.
    store.put(b"ada", b"1815")?;
    store.default_keyspace().put_with(b"grace", b"1906", Durability::Synced)?;
    assert_eq!(store.get(b"ada")?.as_deref(), Some(&b"1815"[..]));

    // All of it or nothing, across keyspaces.
    let languages = store.keyspace("languages")?;
    let mut batch = WriteBatch::new();
    batch.put_in(&languages, b"cobol", b"grace")?;
    batch.put_in(store.default_keyspace(), b"grace", b"1906-1992")?;
    store.write(batch)?;

    // A snapshot never changes, whatever is written after it.
    let snapshot = store.snapshot()?;
    store.delete(b"ada")?;
    let mut people = store.cursor(ReadOptions::default().at(&snapshot))?;
    people.seek_to_first()?;
    while let (Some(key), Some(value)) = (people.key(), people.value()) {
        println!("{} {}", String::from_utf8_lossy(key), String::from_utf8_lossy(value));
        people.next()?;
    }
    drop((people, snapshot));
    store.close()
}
