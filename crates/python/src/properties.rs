//! Properties and reports as dicts, with the names that they have in Rust. Errors and damage are texts.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use situ::{CheckpointReport, KeyspaceProperties, StoreProperties, VerifyReport};

/// Returns a dict of fields.
macro_rules! fields {
    ($py:expr, $of:expr; $($field:ident),* $(,)?) => {{
        let dict = PyDict::new($py);
        $(dict.set_item(stringify!($field), &$of.$field)?;)*
        dict
    }};
}

fn options<'py>(py: Python<'py>, options: &[(&'static str, String)]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in options {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}

fn texts<T: ToString>(all: &[T]) -> Vec<String> {
    all.iter().map(T::to_string).collect()
}

pub(crate) fn of_store<'py>(py: Python<'py>, of: &StoreProperties) -> PyResult<Bound<'py, PyDict>> {
    let dict = fields!(
        py, of;
        location, keyspaces, memtable_bytes, memtable_bytes_max, memtable_held_bytes, cache_bytes, cache_pinned_bytes,
        cache_bytes_max, cache_hits, cache_misses, tables_open, table_descriptors, table_bytes, log_bytes,
        log_pages_written, log_syncs, last_sequence, snapshots, transactions, locks, write_limit_bytes_per_s, mended,
        lossy_repair_unix_ms, compactions_paused, requests_outstanding, writes_waiting, waiting_bytes,
    );
    dict.set_item("damaged_files", texts(&of.damaged_files))?;
    dict.set_item("failure", of.failure.as_ref().map(ToString::to_string))?;
    dict.set_item("background_failure", of.background_failure.as_ref().map(ToString::to_string))?;
    dict.set_item("options", options(py, &of.options)?)?;
    let space = fields!(py, of.space; logical_total, logical_used, physical_total, physical_used, physical_written);
    dict.set_item("space", space)?;
    let watched = of.watched_space.as_ref().map(|watched| {
        let space = fields!(py, watched; location, free_bytes, total_bytes, reserve_bytes);
        space.set_item("level", watched.level.number())?;
        Ok::<_, PyErr>(space)
    });
    dict.set_item("watched_space", watched.transpose()?)?;
    let values = of.value_log.as_ref().map(|values| {
        Ok::<_, PyErr>(fields!(
            py, values;
            live_bytes, dead_bytes, trimmed_bytes, appended_bytes, collected_bytes, written_bytes, zeroed_bytes,
            discarded_bytes, segments_removed, segments_set_aside,
        ))
    });
    dict.set_item("value_log", values.transpose()?)?;
    let debts = fields!(
        py, of.debts;
        log_bytes_max, log_held_bytes, tombstones, range_deletions, removable_entries, value_dead_bytes,
        undeleted_files,
    );
    dict.set_item("debts", debts)?;
    Ok(dict)
}

pub(crate) fn of_keyspace<'py>(py: Python<'py>, of: &KeyspaceProperties) -> PyResult<Bound<'py, PyDict>> {
    let dict = fields!(
        py, of;
        name, memtables, memtables_max, memtable_bytes, memtable_entries, tables, table_bytes, value_segments,
        value_bytes, value_dead_bytes, approximate_keys, dead_steps, compactions_running, compactions_postponed,
        writers_stopped,
    );
    let levels = of.levels.iter().map(|level| Ok(fields!(py, level; tables, bytes, away_bytes)));
    dict.set_item("levels", levels.collect::<PyResult<Vec<_>>>()?)?;
    dict.set_item("options", options(py, &of.options)?)?;
    Ok(dict)
}

pub(crate) fn of_checkpoint<'py>(py: Python<'py>, of: &CheckpointReport) -> PyResult<Bound<'py, PyDict>> {
    Ok(fields!(py, of; last_sequence, shared_tables, copied_tables, copied_bytes))
}

pub(crate) fn of_verification<'py>(py: Python<'py>, of: &VerifyReport) -> PyResult<Bound<'py, PyDict>> {
    let dict = fields!(py, of; files, bytes, entries, damages_left_out, warnings);
    dict.set_item("is_sound", of.is_sound())?;
    dict.set_item("damages", texts(&of.damages))?;
    dict.set_item("orphans", texts(&of.orphans))?;
    Ok(dict)
}
