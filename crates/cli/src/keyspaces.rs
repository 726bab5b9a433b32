//! `keyspace`: the keyspaces of a store.

use crate::DONE;
use crate::failure::{Failure, Outcome};
use crate::options::{FOLLOWED, KeyspaceCommand, MARKS, OneKeyspace, WholeStore};
use crate::output::Output;
use crate::store::{Home, Writable, open_to_read};
use crate::text;
use serde::Serialize;
use situ::{Error, KEY_BYTES_MAX, WriteBatch};
use situ_server::{ITEMS_KEYSPACE, META_KEYSPACE};

pub(crate) fn keyspace(command: &KeyspaceCommand, out: &mut Output) -> Outcome {
    match command {
        KeyspaceCommand::List(options) => list(options, out),
        KeyspaceCommand::Create(options) => create(options, out),
        KeyspaceCommand::Clear(options) => clear(options, out),
        KeyspaceCommand::Drop(options) => drop_one(options, out),
    }
}

/// Refuses hash stores.
fn check_ordered(home: &Home, what: &str) -> Result<(), Failure> {
    match home.is_hash() {
        true => Err(Failure::not_for_hash(what, home.path(), "has no keyspaces")),
        false => Ok(()),
    }
}

#[derive(Serialize)]
struct Listed {
    keyspace: String,
    approximate_keys: u64,
    table_bytes: u64,
    tables: usize,
}

fn list(options: &WholeStore, out: &mut Output) -> Outcome {
    let home = options.home();
    check_ordered(&home, "list the keyspaces of")?;
    let store = open_to_read(&home, out)?;
    for name in store.keyspace_names() {
        let properties = match store.existing_keyspace(&name) {
            Ok(keyspace) => keyspace.properties(),
            // It was dropped meanwhile.
            Err(Error::NoSuchKeyspace { .. }) => continue,
            Err(error) => return Err(Failure::store("cannot list the keyspaces", home.path(), &error)),
        };
        let listed = Listed {
            keyspace: name,
            approximate_keys: properties.approximate_keys,
            table_bytes: properties.table_bytes,
            tables: properties.tables,
        };
        if out.is_json() {
            out.object(&listed)?;
        } else {
            out.line(format!(
                "{}: about {}, {} in {}",
                text::on_one_line(&listed.keyspace),
                text::plural(listed.approximate_keys, "key"),
                text::bytes(listed.table_bytes),
                text::plural(listed.tables as u64, "table"),
            ))?;
        }
    }
    DONE
}

/// The answer of `create`, `clear` and `drop`.
#[derive(Default, Serialize)]
struct Changed<'a> {
    keyspace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cleared: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<bool>,
}

fn create(options: &OneKeyspace, out: &mut Output) -> Outcome {
    let (home, name) = (options.store.home(), &*options.name);
    check_ordered(&home, "make a keyspace in")?;
    let writable = Writable::open(&home, true, out)?;
    let what = format!("cannot make the keyspace {name:?}");
    if writable.store.existing_keyspace(name).is_ok() {
        return Err(Failure::new(what, "the store has a keyspace of this name"));
    }
    // It gets the options that the store was opened with.
    writable.store.keyspace(name).map_err(|error| writable.failure(what, &error))?;
    writable.close()?;
    if out.is_json() {
        out.object(&Changed { keyspace: name, created: Some(true), ..Changed::default() })?;
    }
    DONE
}

/// Deletes all keys of a keyspace. Of memcached items that a server has, this is as atomic as `flush_all`.
fn clear(options: &OneKeyspace, out: &mut Output) -> Outcome {
    let (home, name) = (options.store.home(), &*options.name);
    check_ordered(&home, "clear a keyspace of")?;
    let what = format!("cannot clear the keyspace {name:?}");
    refuse_notes(name, &what)?;
    if name == FOLLOWED {
        let why = "it holds the position that `situ follow` goes on from";
        return Err(Failure::new(what, why).cure("drop the keyspace if the store is to follow no more"));
    }
    let writable = Writable::open(&home, false, out)?;
    let keyspace = writable.keyspace(name, false)?;
    let (first, last) = ([0], [u8::MAX; KEY_BYTES_MAX]);
    let mut batch = WriteBatch::new();
    let added = batch.delete_range_in(&keyspace, first, last).and_then(|()| batch.delete_in(&keyspace, last));
    let written = added.and_then(|()| writable.store.write(batch).map(drop));
    written.map_err(|error| writable.failure(what, &error))?;
    writable.close()?;
    if out.is_json() {
        out.object(&Changed { keyspace: name, cleared: Some(true), ..Changed::default() })?;
    }
    DONE
}

/// # Errors
/// The keyspace holds notes of commands, and not of users.
fn refuse_notes(name: &str, what: &str) -> Result<(), Failure> {
    match name {
        META_KEYSPACE => {
            let why = "it holds the records of `situ serve`, without which no server takes the items";
            Err(Failure::new(what, why))
        }
        MARKS => {
            let why = "it holds the positions from which `situ load` and `situ import` resume";
            Err(Failure::new(what, why))
        }
        _ => Ok(()),
    }
}

fn drop_one(options: &OneKeyspace, out: &mut Output) -> Outcome {
    let (home, name) = (options.store.home(), &*options.name);
    check_ordered(&home, "remove a keyspace of")?;
    let what = format!("cannot remove the keyspace {name:?}");
    refuse_notes(name, &what)?;
    let writable = Writable::open(&home, false, out)?;
    if name == ITEMS_KEYSPACE {
        writable.check_items(&what)?;
    }
    writable.keyspace(name, false)?;
    writable.store.drop_keyspace(name).map_err(|error| writable.failure(what, &error))?;
    writable.close()?;
    if out.is_json() {
        out.object(&Changed { keyspace: name, dropped: Some(true), ..Changed::default() })?;
    }
    DONE
}
