//! Commands of the admin queue.

use super::command::Entry;
use super::queues::{Answer, CompletionQueue, SubmissionQueue};
use super::walk::{PAGE, Walk};
use super::{NvmeCommand, Shared, identify, status};
use situ_base::lock;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Requests for events that the controller keeps.
pub(super) const EVENTS_MAX: usize = 4;

/// An answer to an admin command.
pub(super) enum Reply {
    /// Success, with this result.
    Now(u32),
    /// The command stays with the controller until there is an event.
    Kept,
}

/// The state that the host has set by admin commands, until the next reset.
#[derive(Default)]
pub(super) struct Features {
    /// The number of I/O submission queues and completion queues, once the host has asked for them.
    granted: Option<(u16, u16)>,
    /// Numbers of the requests for events.
    requests: Vec<u16>,
    /// Events that found no request.
    events: VecDeque<u32>,
    events_wanted: u32,
}

/// Runs a command. An error is the status of the refusal.
pub(super) fn run(shared: &Shared, walk: &Walk<'_>, entry: &Entry, ignores: bool) -> Result<Reply, u16> {
    match entry.command {
        NvmeCommand::CreateCompletionQueue => create_completion_queue(shared, entry),
        NvmeCommand::CreateSubmissionQueue => create_submission_queue(shared, entry),
        NvmeCommand::DeleteCompletionQueue => delete_completion_queue(shared, entry),
        NvmeCommand::DeleteSubmissionQueue => delete_submission_queue(shared, entry),
        NvmeCommand::Identify => {
            let answer = identify::answer(shared, entry)?;
            let host = walk.segments(entry, answer.len())?;
            let written = walk.memory.scatter(walk.is_live, &host, 0, &answer);
            written.map_err(|_| status::DATA_TRANSFER).map(|()| Reply::Now(0))
        }
        NvmeCommand::Abort => abort(shared, entry, ignores),
        NvmeCommand::SetFeatures => set_feature(shared, entry),
        NvmeCommand::GetFeatures => get_feature(shared, entry),
        NvmeCommand::AsyncEventRequest => request_event(shared, entry),
        NvmeCommand::DoorbellBufferConfig if shared.config.has_shadow_doorbells => configure_doorbells(shared, entry),
        _ => Err(status::INVALID_OPCODE),
    }
}

/// Returns the number of a queue and its entries.
fn queue_of(shared: &Shared, entry: &Entry) -> Result<(u16, u32), u16> {
    let (id, entries) = (entry.word(10) as u16, (entry.word(10) >> 16) + 1);
    if entries < 2 || entries > shared.config.entries_max {
        return Err(status::QUEUE_SIZE);
    }
    if !entry.pages()[0].is_multiple_of(PAGE) {
        return Err(status::PRP_OFFSET);
    }
    // The controller takes rings in one piece only.
    if entry.word(11) & 1 == 0 { Err(status::INVALID_FIELD) } else { Ok((id, entries)) }
}

fn granted(shared: &Shared) -> (u16, u16) {
    let max = shared.config.queues_max;
    lock(&shared.features).granted.unwrap_or((max, max))
}

fn create_completion_queue(shared: &Shared, entry: &Entry) -> Result<Reply, u16> {
    const INTERRUPTS_ON: u32 = 1 << 1;
    let (number, most) = (entry.word(10) as u16, granted(shared).1);
    shared.change_roster(|roster| {
        if number == 0 || number > most || roster.completion(number).is_some() {
            return Err(status::QUEUE_IDENTIFIER);
        }
        let (id, entries) = queue_of(shared, entry)?;
        let vector = (entry.word(11) >> 16) as u16;
        if vector >= shared.config.vectors {
            return Err(status::INTERRUPT_VECTOR);
        }
        let vector = (entry.word(11) & INTERRUPTS_ON != 0).then_some(vector);
        roster.completion.push(Arc::new(CompletionQueue::new(id, entry.pages()[0], entries, vector)));
        Ok(Reply::Now(0))
    })
}

fn create_submission_queue(shared: &Shared, entry: &Entry) -> Result<Reply, u16> {
    let (number, most) = (entry.word(10) as u16, granted(shared).0);
    shared.change_roster(|roster| {
        let completion = (entry.word(11) >> 16) as u16;
        let completion = match completion {
            0 => None,
            _ => roster.completion(completion).cloned(),
        };
        let completion = completion.ok_or(status::COMPLETION_QUEUE_INVALID)?;
        if number == 0 || number > most || roster.submission(number).is_some() {
            return Err(status::QUEUE_IDENTIFIER);
        }
        let (id, entries) = queue_of(shared, entry)?;
        roster.submission.push(Arc::new(SubmissionQueue::new(id, entry.pages()[0], entries, completion)));
        Ok(Reply::Now(0))
    })
}

fn delete_completion_queue(shared: &Shared, entry: &Entry) -> Result<Reply, u16> {
    let id = entry.word(10) as u16;
    let queue = shared.change_roster(|roster| {
        let queue = roster.completion(id).filter(|_| id != 0).cloned().ok_or(status::QUEUE_IDENTIFIER)?;
        if roster.submission.iter().any(|user| Arc::ptr_eq(&user.completion, &queue)) {
            return Err(status::QUEUE_DELETION);
        }
        roster.completion.retain(|other| other.id != id);
        Ok(queue)
    })?;
    queue.is_live.store(false, Ordering::Release);
    shared.memory.settled();
    Ok(Reply::Now(0))
}

fn delete_submission_queue(shared: &Shared, entry: &Entry) -> Result<Reply, u16> {
    let id = entry.word(10) as u16;
    let queue = shared.change_roster(|roster| {
        let queue = roster.submission(id).filter(|_| id != 0).cloned().ok_or(status::QUEUE_IDENTIFIER)?;
        roster.submission.retain(|other| other.id != id);
        Ok(queue)
    })?;
    let engine = queue.end();
    shared.memory.settled();
    // A drive says so of the commands that end with their queue, or it does not.
    if let Some(engine) = engine
        && lock(&shared.plan).either()
    {
        let head = queue.head.load(Ordering::Acquire);
        let status = status::QUEUE_DELETED;
        let answers = engine.unanswered().map(|command| Answer { result: 0, queue: id, head, id: command, status });
        queue.completion.post(shared, answers.collect::<Vec<_>>());
    }
    Ok(Reply::Now(0))
}

/// The result of an abort that came too late, or for no command.
const NOT_ABORTED: u32 = 1;

fn abort(shared: &Shared, entry: &Entry, ignores: bool) -> Result<Reply, u16> {
    let (queue, command) = (entry.word(10) as u16, (entry.word(10) >> 16) as u16);
    if ignores {
        return Ok(Reply::Now(NOT_ABORTED));
    }
    if queue == 0 {
        let requests = &mut lock(&shared.features).requests;
        let Some(at) = requests.iter().position(|request| *request == command) else {
            return Ok(Reply::Now(NOT_ABORTED));
        };
        requests.swap_remove(at);
        return Ok(Reply::Now(0)).inspect(|_| shared.answer_admin(command, status::ABORTED, 0));
    }
    let roster = shared.roster();
    let queue = roster.submission(queue).ok_or(status::INVALID_FIELD)?;
    let Some(mut working) = queue.take(false) else { return Ok(Reply::Now(NOT_ABORTED)) };
    let is_aborted = working.engine().abort(shared, command);
    working.finish(shared);
    Ok(Reply::Now(if is_aborted { 0 } else { NOT_ABORTED }))
}

const NUMBER_OF_QUEUES: u8 = 0x07;
const VOLATILE_WRITE_CACHE: u8 = 0x06;
const ASYNC_EVENTS: u8 = 0x0b;

fn set_feature(shared: &Shared, entry: &Entry) -> Result<Reply, u16> {
    const SAVE: u32 = 1 << 31;
    let (feature, value) = (entry.word(10) as u8, entry.word(11));
    if entry.word(10) & SAVE != 0 {
        return Err(status::NOT_SAVEABLE);
    }
    match feature {
        NUMBER_OF_QUEUES => {
            let (submission, completion) = (value as u16, (value >> 16) as u16);
            if submission == u16::MAX || completion == u16::MAX {
                return Err(status::INVALID_FIELD);
            }
            let roster = shared.roster();
            if roster.submission.len() + roster.completion.len() > 2 {
                return Err(status::SEQUENCE);
            }
            let max = shared.config.queues_max;
            lock(&shared.features).granted = Some((max.min(submission + 1), max.min(completion + 1)));
            Ok(Reply::Now(queue_numbers(shared)))
        }
        VOLATILE_WRITE_CACHE if shared.has_cache() => {
            shared.cache_is_on.store(value & 1 != 0, Ordering::Release);
            Ok(Reply::Now(0))
        }
        ASYNC_EVENTS => {
            lock(&shared.features).events_wanted = value;
            Ok(Reply::Now(0))
        }
        _ => Err(status::INVALID_FIELD),
    }
}

fn get_feature(shared: &Shared, entry: &Entry) -> Result<Reply, u16> {
    const SELECT: u32 = 7 << 8;
    if entry.word(10) & SELECT != 0 {
        return Err(status::INVALID_FIELD);
    }
    match entry.word(10) as u8 {
        NUMBER_OF_QUEUES => Ok(Reply::Now(queue_numbers(shared))),
        VOLATILE_WRITE_CACHE if shared.has_cache() => {
            Ok(Reply::Now(u32::from(shared.cache_is_on.load(Ordering::Acquire))))
        }
        ASYNC_EVENTS => Ok(Reply::Now(lock(&shared.features).events_wanted)),
        _ => Err(status::INVALID_FIELD),
    }
}

/// Returns the granted queues as the feature has them: each number less one.
fn queue_numbers(shared: &Shared) -> u32 {
    let (submission, completion) = granted(shared);
    u32::from(submission.saturating_sub(1)) | u32::from(completion.saturating_sub(1)) << 16
}

fn request_event(shared: &Shared, entry: &Entry) -> Result<Reply, u16> {
    let mut features = lock(&shared.features);
    if let Some(event) = features.events.pop_front() {
        return Ok(Reply::Now(event));
    }
    if features.requests.len() >= EVENTS_MAX {
        return Err(status::EVENTS_LIMIT);
    }
    features.requests.push(entry.id());
    Ok(Reply::Kept)
}

fn configure_doorbells(shared: &Shared, entry: &Entry) -> Result<Reply, u16> {
    let [doorbells, wanted] = entry.pages();
    if doorbells == 0 || wanted == 0 || !doorbells.is_multiple_of(PAGE) || !wanted.is_multiple_of(PAGE) {
        return Err(status::INVALID_FIELD);
    }
    shared.change_roster(|roster| {
        roster.shadows = Some((doorbells, wanted));
        Ok(Reply::Now(0))
    })
}

/// Tells the host of an event, when it has a request for one.
pub(super) fn tell(shared: &Shared, event: u32) {
    let request = {
        let mut features = lock(&shared.features);
        let request = features.requests.pop();
        if request.is_none() && !features.events.contains(&event) {
            features.events.push_back(event);
        }
        request
    };
    if let Some(request) = request {
        shared.answer_admin(request, status::SUCCESS, event);
    }
}
