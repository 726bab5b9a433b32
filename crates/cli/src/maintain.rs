//! Work on a whole store: `compact`.

use crate::DONE;
use crate::failure::Outcome;
use crate::options::CompactOptions;
use crate::output::Output;
use crate::store::Writable;
use crate::text;
use serde::Serialize;
use std::time::Instant;

#[derive(Serialize)]
struct Compacted {
    keyspace: String,
    bytes_before: u64,
    bytes_after: u64,
    tables: usize,
    seconds: f64,
}

pub(crate) fn compact(options: &CompactOptions, out: &mut Output) -> Outcome {
    let writable = Writable::open(&options.directory.path(), false)?;
    let names = match &options.keyspace {
        Some(name) => vec![name.clone()],
        None => writable.store.keyspace_names(),
    };
    for name in names {
        let keyspace = writable.keyspace(&name, false)?;
        let started = Instant::now();
        let bytes_before = keyspace.properties().table_bytes;
        keyspace
            .flush()
            .and_then(|()| keyspace.compact(None, None))
            .map_err(|error| writable.failure(format!("cannot compact the keyspace {name:?}"), &error))?;
        let after = keyspace.properties();
        let done = Compacted {
            keyspace: name,
            bytes_before,
            bytes_after: after.table_bytes,
            tables: after.tables,
            seconds: started.elapsed().as_secs_f64(),
        };
        if out.is_json() {
            out.object(&done)?;
        } else {
            out.line(format!(
                "{}: {} before, {} after, in {}, {:.1} s",
                done.keyspace,
                text::bytes(done.bytes_before),
                text::bytes(done.bytes_after),
                text::plural(done.tables as u64, "table"),
                done.seconds
            ))?;
        }
    }
    writable.close()?;
    DONE
}
