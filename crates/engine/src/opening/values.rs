//! The value log of a store that is being opened.
//!
//! A store without segments opens the log when it writes the first one. So it pays nothing for a log that it does not
//! have.
//!
//! Segments are page files at home. A disk without a file system has a small area for page files, which the write-ahead
//! log needs. So a home on such a disk, here or on a node, takes no values: the opening is refused before it changes
//! anything.

use crate::base::options::{KeyspaceOptions, Options};
use crate::base::places::HOME;
use crate::opening::state::StoreState;
use crate::versions::version::TableSource;
use crate::work::separate::bounds;
use crate::{Error, Result};
use situ_base::Env;
use situ_device::Nature;
use situ_storage::Volume;
use situ_values::{KnownSegment, Options as ValueOptions, ValueLog};
use std::sync::{Arc, Weak};

/// Returns the options of a store's value log on a drive of this nature.
fn value_options(options: &Options, nature: &Nature, read_only: bool) -> ValueOptions {
    let chosen = ValueOptions::for_nature(nature);
    ValueOptions {
        segment_bytes: options.value_segment_bytes,
        trim: options.value_trim.unwrap_or(chosen.trim),
        victims: options.value_victims,
        collect_above_percent: options.value_inflation_percent_max,
        read_only,
        ..chosen
    }
}

/// Refuses a keyspace whose large values would go to a home that has no room for segments.
///
/// # Errors
/// [`Error::Invalid`], which names the cure.
pub(crate) fn check_room_for_values(source: &TableSource, options: &KeyspaceOptions) -> Result<()> {
    let home = source.volumes.numbered(HOME).unwrap_or(&*source.volume);
    if bounds(options).is_none() || home.log_room().is_none() {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "the home {} is a disk without a file system, and a value log cannot lie there. Leave out value_log_min_bytes \
         (--value-log-min), or give the store a home in a directory",
        home.location()
    )))
}

/// Counts records as dead that no edit names: a crash came first, or a flush failed. The edit that names a value is
/// durable before anything that leads to the value. So nothing leads to these records.
fn count_unnamed(log: &ValueLog, known: &[KnownSegment]) {
    for segment in known {
        let found = log.segment(segment.number).map_or(0, |found| found.record_bytes);
        log.add_dead(segment.number, found.saturating_sub(segment.record_bytes));
    }
}

/// Sets the options with which the log is opened, and opens it if there are segments.
pub(crate) fn open_values(
    volume: &Arc<dyn Volume>,
    env: &Env,
    options: &Options,
    state: &StoreState,
    source: &Arc<TableSource>,
    read_only: bool,
) -> Result<()> {
    let known: Vec<KnownSegment> =
        state.keyspaces.values().flat_map(|keyspace| keyspace.version.segments.known()).collect();
    let has_segments = !known.is_empty();
    let options = value_options(options, &volume.nature(), read_only);
    let (volume, env) = (Arc::clone(volume), env.clone());
    let numbers = Arc::downgrade(&source.values);
    source.values.open_by(Arc::new(move || {
        let numbers = Weak::clone(&numbers);
        // A writer of values holds a handle to the source.
        let numbers = Arc::new(move || numbers.upgrade().map_or(0, |values| values.new_number()));
        let log = ValueLog::open(Arc::clone(&volume), &env, options.clone(), numbers, &known)?;
        count_unnamed(&log, &known);
        Ok(log)
    }));
    if has_segments {
        source.values.log()?;
    }
    Ok(())
}
