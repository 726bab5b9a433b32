//! The readable part of a damaged log, and the writes that are missing in it.

use crate::base::batch::Record;
use crate::check::repair::report::LostWrites;
use crate::opening::replay::{check_closed, check_head, check_in_use, follows, record_error};
use crate::opening::state::StoreState;
use situ_log::{RecoveryMode, recover};
use situ_storage::{Error as StorageError, Result, Volume};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The findings in the logs.
#[derive(Debug, Default)]
pub(super) struct LogSurvey {
    pub(super) records: u64,
    /// The oldest write that the first record stands for.
    pub(super) first: Option<u64>,
    /// Keyspaces that have records.
    pub(super) keyspaces: BTreeSet<u32>,
    pub(super) damages: Vec<(u64, StorageError)>,
    pub(super) lost: Vec<LostWrites>,
}

/// A place in the logs: file and page.
type PagePlace = (u64, u32);

/// The log files that are known to be missing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MissingLogs {
    /// True if files before the first one found are missing.
    pub(super) head: bool,
    /// True if files behind the last one are missing.
    pub(super) tail: bool,
}

/// Reads all of `logs` without applying them. `state` is that of the manifest.
pub(super) fn survey(
    volume: &Arc<dyn Volume>,
    logs: &[u64],
    state: &StoreState,
    gone: MissingLogs,
) -> Result<LogSurvey> {
    let mut survey = LogSurvey::default();
    let mut first: Option<(PagePlace, u64)> = None;
    let mut since = None;
    let mut last: Option<(PagePlace, u64)> = None;
    let mut gaps = Vec::new();
    let mut places: Vec<PagePlace> = Vec::new();
    let report = recover(volume, logs, RecoveryMode::Repair, &mut |position, bytes| {
        let place = (position.file, position.page);
        let decoded = Record::decode(bytes).map_err(|found| record_error(position, "a write batch", found));
        match decoded.and_then(|record| follows(last.map_or(0, |(_, sequence)| sequence), record, position)) {
            Ok(record) => {
                survey.records += 1;
                survey.keyspaces.extend(record.operations().map(|operation| operation.keyspace));
                first.get_or_insert((place, record.first));
                since.get_or_insert(record.since);
                if let Some((_, sequence)) = last
                    && record.first > sequence + 1
                {
                    gaps.push(LostWrites { first: Some(sequence + 1), last: Some(record.first - 1) });
                }
                last = Some((place, (record.first + record.len() as u64).saturating_sub(1)));
            }
            Err(error) => {
                places.push(place);
                survey.damages.push((position.file, error));
            }
        }
        Ok(())
    })?;
    for loss in &report.lost {
        places.push((loss.file, loss.first_page));
        survey.damages.push((loss.file, loss.error.clone()));
    }
    let head = check_head(&report, logs, first.map(|(place, _)| place.0)).err().filter(|_| report.lost.is_empty());
    let head_missing = gone.head || head.is_some();
    survey.damages.extend(head.zip(logs.first()).map(|(error, oldest)| (*oldest, error)));
    if let Some((file, error)) = check_in_use(&report, state) {
        places.push((file, 0));
        survey.damages.push((file, error));
    }
    let cut = state.closed.and_then(|closed| check_closed(&report, closed).err().map(|error| (closed, error)));
    let tail_lost = cut.is_some() || gone.tail;
    survey.damages.extend(cut);
    let Some(((first_place, first), (last_place, last))) = first.zip(last) else {
        if !places.is_empty() || tail_lost || head_missing {
            survey.lost.push(LostWrites { first: None, last: None });
        }
        return Ok(survey);
    };
    survey.first = since;
    if head_missing || places.iter().any(|place| *place <= first_place) {
        survey.lost.push(LostWrites { first: None, last: Some(first.saturating_sub(1)) });
    }
    // Sequence numbers have no gaps in a sound log.
    survey.lost.append(&mut gaps);
    if tail_lost || places.iter().any(|place| *place >= last_place) {
        survey.lost.push(LostWrites { first: Some(last + 1), last: None });
    }
    Ok(survey)
}
