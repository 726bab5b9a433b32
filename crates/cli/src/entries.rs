//! `get`, `put`, `delete`, `scan`, `count`.

use crate::DONE;
use crate::answer::{Answer, told};
use crate::failure::{Failure, Outcome};
use crate::hash;
use crate::open::open_to_walk;
use crate::options::{CountOptions, DeleteOptions, GetOptions, PutOptions, Range, ScanOptions};
use crate::options::{given, given_key};
use crate::output::Output;
use crate::store::{Readable, Writable, durability};
use crate::text::{Encoding, JsonEntry, bytes_entry, count as shown_count};
use crate::walk::Order;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use situ::WriteBatch;
use situ_server::ITEMS_KEYSPACE;
use std::io::Read;

/// Entries between two looks for a client that has gone.
const CLIENT_EVERY: u64 = 4096;

pub(crate) fn get(options: &GetOptions, out: &mut Output) -> Outcome {
    let encoding = options.encoding.encoding();
    let key = given_key(&options.key, encoding)?;
    if options.target.home().is_hash() {
        return hash::get(options, &key, out);
    }
    let readable = Readable::open(&options.target, options.stored, out)?;
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
    let writable = Writable::open(&options.target.home(), true, out)?;
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
    let Some(key) = &options.key else { return delete_range(options, out) };
    let key = given_key(key, encoding)?;
    let name = options.target.keyspace_to_delete_from(false)?;
    if options.target.home().is_hash() {
        return hash::delete(options, &key, out);
    }
    let writable = Writable::open(&options.target.home(), false, out)?;
    if name == ITEMS_KEYSPACE {
        writable.check_items("cannot delete the memcached item")?;
    }
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

/// The keys of a deletion: from one up to another.
struct DeletedRange<'a> {
    from: &'a [u8],
    to: &'a [u8],
    encoding: Encoding,
}

impl Serialize for DeletedRange<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("deleted", &true)?;
        bytes_entry(&mut map, "from", self.from, self.encoding)?;
        bytes_entry(&mut map, "to", self.to, self.encoding)?;
        map.end()
    }
}

/// Deletes the keys of a range. Of memcached items that a server has, this is as atomic as `flush_all`: a client that
/// changes an item at the same moment may bring it back.
fn delete_range(options: &DeleteOptions, out: &mut Output) -> Outcome {
    let encoding = options.encoding.encoding();
    let (from, to) = match (&options.prefix, &options.from, &options.to) {
        (Some(prefix), ..) => {
            let prefix = given(prefix, encoding, "--prefix")?;
            let behind = behind_prefix(&prefix).ok_or_else(|| {
                Failure::usage("--prefix is empty, or has no bytes but ff, and no key ends such a range: name the range with --from and --to")
            })?;
            (prefix, behind)
        }
        (None, Some(from), Some(to)) => (given(from, encoding, "--from")?, given(to, encoding, "--to")?),
        _ => return Err(Failure::usage("name a key, --prefix, or --from and --to")),
    };
    if from >= to {
        return Err(Failure::usage("--from is not before --to, and no key lies between them"));
    }
    let name = options.target.keyspace_to_delete_from(false)?;
    let home = options.target.home();
    if home.is_hash() {
        return Err(Failure::not_for_hash("delete a range of", home.path(), "its keys have no order"));
    }
    let writable = Writable::open(&home, false, out)?;
    let keyspace = writable.keyspace(name, false)?;
    keyspace
        .delete_range_with(&from, &to, durability(options.sync))
        .map_err(|error| writable.failure("cannot delete the keys", &error))?;
    writable.close()?;
    if out.is_json() {
        out.object(&DeletedRange { from: &from, to: &to, encoding })?;
    }
    DONE
}

/// Returns the first key behind all keys with this prefix; `None` if there is no such key.
fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut behind = prefix[..=last].to_vec();
    behind[last] += 1;
    Some(behind)
}

#[derive(Serialize)]
struct Counted {
    count: u64,
    exact: bool,
}

pub(crate) fn count(options: &CountOptions, out: &mut Output) -> Outcome {
    let encoding = options.encoding.encoding();
    let Range { prefix, from, to, limit } = &options.range;
    let has_range = prefix.is_some() || from.is_some() || to.is_some() || limit.is_some();
    let readable = open_to_walk(&options.target, false, out)?;
    let counted = match options.exact || has_range {
        false => Counted { count: readable.approximate_entries(), exact: false },
        true => {
            let mut seen = 0u64;
            let count = readable.walk(&options.range, encoding, Order::Any, &mut |_, _, _| {
                seen += 1;
                if seen.is_multiple_of(CLIENT_EVERY) { out.check_client() } else { Ok(()) }
            })?;
            Counted { count, exact: true }
        }
    };
    readable.close()?;
    if out.is_json() {
        out.object(&counted)?;
    } else {
        let about = if counted.exact { "" } else { "about " };
        out.line(format!("{about}{}", shown_count(counted.count)))?;
    }
    DONE
}

pub(crate) fn scan(options: &ScanOptions, out: &mut Output) -> Outcome {
    let encoding = options.encoding.encoding();
    let order = if options.reverse { Order::Descending } else { Order::Ascending };
    let readable = open_to_walk(&options.target, options.stored, out)?;
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
