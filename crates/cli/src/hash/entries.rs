//! `get`, `put`, `delete` of a hash store.

use super::{OpenHash, check_key};
use crate::DONE;
use crate::answer::{Answer, told};
use crate::failure::{Failure, Outcome};
use crate::options::{DeleteOptions, GetOptions, PutOptions};
use crate::output::Output;
use crate::store::durability;
use situ::hash::HashBatch;

pub(crate) fn get(options: &GetOptions, key: &[u8], out: &mut Output) -> Outcome {
    options.target.check_for_hash()?;
    let hash = OpenHash::open(options.target.home().path(), None, false)?;
    hash.check_reads(&options.target, options.stored)?;
    check_key(key).map_err(Failure::usage)?;
    let found = hash.store.get(key).map_err(|error| hash.failure("cannot read the key", &error))?;
    let shown = found.as_deref().map(|value| hash.shown(value, options.stored)).transpose()?.flatten();
    let missing = || format!("there is no key {} in the hash store", options.encoding.encoding().show(key));
    let outcome = told(options, key, shown.as_deref(), missing, out);
    hash.close()?;
    outcome
}

pub(crate) fn put(options: &PutOptions, key: &[u8], value: &[u8], out: &mut Output) -> Outcome {
    options.target.check_for_hash()?;
    check_key(key).map_err(Failure::usage)?;
    let hash = OpenHash::open(options.target.home().path(), None, false)?;
    hash.check_writes(&options.target, options.stored)?;
    let mut batch = HashBatch::new();
    let failed = |why: String| Failure::new("cannot write the key", why);
    if options.stored {
        let mut items = hash.item_writer()?;
        items.put(&mut batch, key, value).map_err(failed)?;
        items.seal(&mut batch).map_err(|error| failed(error.to_string()))?;
    } else {
        batch.put(key, value).map_err(|error| failed(error.to_string()))?;
    }
    write(&hash, batch, options.sync, "cannot write the key")?;
    hash.close()?;
    if out.is_json() {
        out.object(&Answer { fields: &[("written", true)], key, value: None, encoding: options.encoding.encoding() })?;
    }
    DONE
}

pub(crate) fn delete(options: &DeleteOptions, key: &[u8], out: &mut Output) -> Outcome {
    options.target.check_for_hash()?;
    check_key(key).map_err(Failure::usage)?;
    let hash = OpenHash::open(options.target.home().path(), None, false)?;
    hash.check_reads(&options.target, false)?;
    let mut batch = HashBatch::new();
    batch.delete(key).map_err(|error| hash.failure("cannot delete the key", &error))?;
    write(&hash, batch, options.sync, "cannot delete the key")?;
    hash.close()?;
    if out.is_json() {
        out.object(&Answer { fields: &[("deleted", true)], key, value: None, encoding: options.encoding.encoding() })?;
    }
    DONE
}

fn write(hash: &OpenHash, batch: HashBatch, sync: bool, what: &str) -> Result<(), Failure> {
    hash.store.write_with(batch, durability(sync).into()).map_err(|error| hash.failure(what, &error))
}
