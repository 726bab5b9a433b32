//! The first program of docs/evidence/first-program.md, which shows it beside the same one for Fjall and for redb.

use situ::{Store, WriteBatch};

fn main() -> situ::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or("people.situ".into());
    let store = Store::open(directory)?;
    let people = store.keyspace("people")?;
    let cities = store.keyspace("cities")?;

    people.put("ada", "1815")?;
    people.put("alan", "1912")?;
    if let Some(born) = people.get("ada")? {
        println!("ada {}", String::from_utf8_lossy(&born));
    }
    for pair in people.range("a".."b")? {
        let (name, born) = pair?;
        println!("{} {}", String::from_utf8_lossy(&name), String::from_utf8_lossy(&born));
    }
    for pair in people.prefix("al")?.rev() {
        println!("{}", String::from_utf8_lossy(&pair?.0));
    }

    let mut batch = WriteBatch::new();
    batch.put_in(&people, "grace", "1906")?;
    batch.put_in(&cities, "new york", "grace")?;
    store.write(batch)?;

    let visits = store.transact(|tx| {
        let seen = tx.get("visits")?.map_or(0, |bytes| u64::from_be_bytes(bytes[..].try_into().unwrap()));
        tx.put("visits", (seen + 1).to_be_bytes())?;
        Ok(seen + 1)
    })?;
    println!("{visits} visits");
    Ok(())
}
