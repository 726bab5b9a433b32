//! A tour of the library.

use situ::{Durability, Store, WriteBatch};

fn main() -> situ::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "situ-data".to_owned());
    let store = Store::open(directory)?;

    // Buffered: survives this process. Synced: survives power failure.
    store.put("ada", "1815")?;
    store.put_with("grace", "1906", Durability::Synced)?;
    assert_eq!(store.get("ada")?.unwrap(), "1815");

    // Keys are in order. Ranges and prefixes are iterators, from both ends.
    for pair in store.range("a".."h")?.rev() {
        let (name, born) = pair?;
        assert!(name.len() >= 3 && born.len() >= 4);
    }

    // All of it or nothing, across keyspaces.
    let languages = store.keyspace("languages")?;
    let mut batch = WriteBatch::new();
    batch.put("grace", "1906-1992")?;
    batch.put_in(&languages, "cobol", "grace")?;
    store.write(batch)?;

    // Reads and writes that belong together. The closure runs again if another thread changes the count meanwhile.
    let counts = store.keyspace("counts")?;
    let tours = store.transact(|transaction| {
        let before = transaction.get_in(&counts, "tours")?;
        let tours = 1 + before.map_or(0, |bytes| u64::from_be_bytes(bytes[..].try_into().expect("eight bytes")));
        transaction.put_in(&counts, "tours", tours.to_be_bytes())?;
        Ok(tours)
    })?;
    assert!(tours > 0);

    // A snapshot never changes, whatever is written after it.
    let snapshot = store.snapshot()?;
    store.delete("ada")?;
    for pair in snapshot.iter()? {
        let (name, lived) = pair?;
        println!("{} {}", String::from_utf8_lossy(&name), String::from_utf8_lossy(&lived));
    }
    store.close()
}
