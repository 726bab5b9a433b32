//! `get`, `put`, `delete`, `scan`.

use crate::DONE;
use crate::answer::{Answer, told};
use crate::failure::{Failure, Outcome};
use crate::hash;
use crate::open::open_to_walk;
use crate::options::{DeleteOptions, GetOptions, PutOptions, ScanOptions};
use crate::options::{given, given_key};
use crate::output::Output;
use crate::store::{Readable, Writable, durability};
use crate::text::{Encoding, JsonEntry};
use crate::walk::Order;
use situ::WriteBatch;
use std::io::Read;

pub(crate) fn get(options: &GetOptions, out: &mut Output) -> Outcome {
    let encoding = options.encoding.encoding();
    let key = given_key(&options.key, encoding)?;
    if options.target.home().is_hash() {
        return hash::get(options, &key, out);
    }
    let readable = Readable::open(&options.target, options.stored)?;
    let found = readable
        .keyspace
        .get(&key)
        .map_err(|error| Failure::store("cannot read the key", &readable.directory, &error))?;
    let shown = found.as_deref().map(|value| readable.shown(value)).transpose()?.flatten();
    let elsewhere = shown.is_none() && readable.is_item_elsewhere(&key)?;
    let missing = || {
        let hint = if elsewhere { "; a memcached item of that key is in --keyspace items" } else { "" };
        format!("there is no key {} in keyspace {:?}{hint}", encoding.show(&key), readable.keyspace.name())
    };
    told(options, &key, shown.as_deref(), missing, out)
}

pub(crate) fn put(options: &PutOptions, out: &mut Output) -> Outcome {
    let encoding = options.encoding.encoding();
    let key = given_key(&options.key, encoding)?;
    let name = options.target.keyspace_to_write(options.stored)?;
    let value = match &options.value {
        Some(value) => given(value, encoding, "the value")?,
        None => read_value(encoding)?,
    };
    if options.target.home().is_hash() {
        return hash::put(options, &key, &value, out);
    }
    let writable = Writable::open(&options.target.home(), true)?;
    let failed = |error: situ::Error| writable.failure("cannot write the key", &error);
    let mut batch = WriteBatch::new();
    if options.stored {
        let mut items = writable.item_writer()?;
        items.put(&mut batch, &key, &value).map_err(|why| Failure::new("cannot write the key", why))?;
        items.seal(&mut batch).map_err(failed)?;
    } else {
        batch.put_in(&writable.keyspace(name, true)?, &key, &value).map_err(failed)?;
    }
    writable.store.write_with(batch, durability(options.sync)).map_err(failed)?;
    writable.close()?;
    if out.is_json() {
        out.object(&Answer { fields: &[("written", true)], key: &key, value: None, encoding })?;
    }
    DONE
}

fn read_value(encoding: Encoding) -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    // One byte more than fits tells a value that is too long from one that just fits.
    let read = std::io::stdin().lock().take(2 * situ::VALUE_BYTES_MAX as u64 + 2).read_to_end(&mut value);
    read.map_err(|error| Failure::new("cannot read the value from standard input", error))?;
    if encoding != Encoding::Text {
        value.truncate(value.trim_ascii_end().len());
    }
    encoding.decode(&value).map_err(|error| error.failure("the value on standard input"))
}

pub(crate) fn delete(options: &DeleteOptions, out: &mut Output) -> Outcome {
    let encoding = options.encoding.encoding();
    let key = given_key(&options.key, encoding)?;
    let name = options.target.keyspace_to_delete_from(false)?;
    if options.target.home().is_hash() {
        return hash::delete(options, &key, out);
    }
    let writable = Writable::open(&options.target.home(), false)?;
    let keyspace = writable.keyspace(name, false)?;
    keyspace
        .delete_with(&key, durability(options.sync))
        .map_err(|error| writable.failure("cannot delete the key", &error))?;
    writable.close()?;
    if out.is_json() {
        out.object(&Answer { fields: &[("deleted", true)], key: &key, value: None, encoding })?;
    }
    DONE
}

pub(crate) fn scan(options: &ScanOptions, out: &mut Output) -> Outcome {
    let encoding = options.encoding.encoding();
    let order = if options.reverse { Order::Descending } else { Order::Ascending };
    let readable = open_to_walk(&options.target, options.stored)?;
    readable.walk(&options.range, encoding, order, &mut |key, value, _| {
        let value = (!options.keys).then_some(value);
        if out.is_json() {
            return out.object(&JsonEntry { key, value, encoding, expires_ms: None });
        }
        let mut line = encoding.show(key);
        if let Some(value) = value {
            line.push('\t');
            line.push_str(&encoding.show(value));
        }
        out.line(line)
    })?;
    readable.close()?;
    DONE
}
