//! Messages about tasks, and the values of the crate `compaction` as fields.

use super::Message;
use crate::fields::{Bytes, Field, Fields};
use situ_compaction::{RunMode, Stage, Stages, TaskError};
use situ_offload::{ModeRule, Ran, Resources};
use situ_storage::Result;
use std::time::Duration;

messages! {
    /// Runs a task. The answer comes when the task is done. Sent again with the same attempt in the same session, it
    /// begins nothing: it gets the answer of the attempt that is under way, or that has ended.
    RunTask {
        /// The attempt's number.
        attempt: u64,
        /// The lease's; the node writes the outputs under it.
        token: u64,
        /// The rule by which the node is to choose the mode of the run.
        mode: ModeRule,
        /// The task, as in `docs/formats/task.md`.
        task: Bytes,
    }

    /// A task has ended.
    TaskDone {
        /// The outcome of the task.
        outcome: TaskOutcome,
        /// From start to end, as the node measured.
        elapsed: Duration,
        /// The mode and the stages of the run.
        ran: Ran,
        /// The decision about the mode, as in `docs/formats/metrics.md`; empty where nothing was decided.
        decision: Bytes,
    }

    /// Cancels an attempt: the host has given it up, or has its answer.
    CancelTask {
        /// The attempt's number.
        attempt: u64,
    }

    /// Asks for the tasks of this session.
    PollTasks {}

    /// The tasks of a session that the node has not answered.
    Tasks {
        /// Attempts, and what has become of them.
        tasks: Vec<(u64, TaskState)>,
    }

    /// Asks how busy the node is.
    GetLoad {}

    /// The node's load.
    LoadAnswer {
        /// Tasks that it holds.
        tasks: u32,
        /// The most tasks that it holds at once.
        tasks_max: u32,
        /// Input bytes of the tasks that it holds.
        input_bytes: u64,
        /// Input bytes a second that it gets through; 0 if that is not known yet.
        bytes_per_s: u64,
        /// The node's free resources, if it measures them.
        resources: Option<Resources>,
        /// The names of the compaction filters that it can call.
        filters: Vec<String>,
        /// The encoder of the compressed bytes that it writes.
        encoder: String,
    }

    /// From the node: reserves a place for an output table.
    Reserve {
        /// The attempt's number.
        attempt: u64,
        /// The table's level.
        level: u32,
    }

    /// The place of an output table.
    ReservedPlace {
        /// The volume's number.
        volume: u32,
        /// The file's number.
        number: u64,
    }

    /// From the node: output has grown. The answer holds the run back.
    Pace {
        /// The attempt's number.
        attempt: u64,
        /// The number of new bytes.
        bytes: u64,
    }

    /// The run may go on.
    PaceAnswer {
        /// The host has given the attempt up: the run must not go on.
        cancelled: bool,
    }

    /// One-way: what the host has measured, for the node's decisions.
    TellMeasures {
        /// A metric message, as in `docs/formats/metrics.md`.
        message: Bytes,
    }

    /// Says where the volumes of the host's store lie. The host sends it on each connection before tasks; the last one
    /// counts.
    PlaceVolumes {
        /// The volumes' numbers, and where each lies.
        volumes: Vec<(u32, VolumePlace)>,
    }
}

/// The place of a volume of the host's store, for a node that is to read it and write to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumePlace {
    /// On the node that is asked: the files of the session's store.
    Here,
    /// In a directory that the node can reach, too, by this path. The node must have been started with it.
    SharedDirectory(String),
    /// On another node, with this address.
    OtherNode(String),
    /// With the host, which serves it over this connection.
    Host,
}

/// 0 here, 1 a shared directory, 2 another node, 3 the host; then a text, empty but for 1 and 2.
impl Field for VolumePlace {
    const BYTES_MIN: usize = 5;

    fn kind() -> String {
        "volume place".to_owned()
    }

    fn put(&self, out: &mut Vec<u8>) {
        let (code, text): (u8, &str) = match self {
            VolumePlace::Here => (0, ""),
            VolumePlace::SharedDirectory(path) => (1, path),
            VolumePlace::OtherNode(address) => (2, address),
            VolumePlace::Host => (3, ""),
        };
        code.put(out);
        text.to_owned().put(out);
    }

    fn take(fields: &mut Fields<'_>, name: &str) -> Result<VolumePlace> {
        let code = u8::take(fields, name)?;
        let text = String::take(fields, name)?;
        match (code, text.is_empty()) {
            (0, true) => Ok(VolumePlace::Here),
            (1, false) => Ok(VolumePlace::SharedDirectory(text)),
            (2, false) => Ok(VolumePlace::OtherNode(text)),
            (3, true) => Ok(VolumePlace::Host),
            _ => Err(fields.broken(format!("{name} from 0 to 3, with a text for 1 and 2"), format!("{code} {text:?}"))),
        }
    }

    #[cfg(test)]
    fn sample(number: &mut u8) -> VolumePlace {
        VolumePlace::SharedDirectory(String::sample(number))
    }
}

/// The outcome of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskOutcome {
    /// The output, as in `docs/formats/task.md`.
    Output(Vec<u8>),
    /// The host gave the attempt up.
    Cancelled,
    /// Reading or writing failed: the error, as in the payload of an answer that is an error.
    Storage(Vec<u8>),
    /// The run panicked.
    Panicked(String),
    /// The node cannot run it.
    Unit(String),
}

impl TaskOutcome {
    /// Returns the outcome of a task that failed.
    pub fn failed(error: &TaskError) -> TaskOutcome {
        match error {
            TaskError::Cancelled => TaskOutcome::Cancelled,
            TaskError::Storage(error) => TaskOutcome::Storage(crate::CallError::from(error.clone()).encode()),
            TaskError::Panicked(text) => TaskOutcome::Panicked(text.clone()),
            TaskError::Unit { reason, .. } => TaskOutcome::Unit(reason.clone()),
            other => TaskOutcome::Unit(other.to_string()),
        }
    }

    /// Returns the bytes of the output, or the error of the task; `unit` is the unit's name.
    ///
    /// # Errors
    /// The task's.
    pub fn into_result(self, unit: &str) -> Result<Vec<u8>, TaskError> {
        Err(match self {
            TaskOutcome::Output(bytes) => return Ok(bytes),
            TaskOutcome::Cancelled => TaskError::Cancelled,
            TaskOutcome::Storage(error) => TaskError::Storage(crate::CallError::decode(&error).into()),
            TaskOutcome::Panicked(text) => TaskError::Panicked(text),
            TaskOutcome::Unit(reason) => TaskError::Unit { unit: unit.to_owned(), reason },
        })
    }
}

/// 0 the output, 1 cancelled, 2 an error of storage, 3 a panic, 4 the node's refusal; then bytes or a text.
impl Field for TaskOutcome {
    const BYTES_MIN: usize = 5;

    fn kind() -> String {
        "outcome".to_owned()
    }

    fn put(&self, out: &mut Vec<u8>) {
        let (code, bytes): (u8, &[u8]) = match self {
            TaskOutcome::Output(bytes) => (0, bytes),
            TaskOutcome::Cancelled => (1, &[]),
            TaskOutcome::Storage(error) => (2, error),
            TaskOutcome::Panicked(text) => (3, text.as_bytes()),
            TaskOutcome::Unit(text) => (4, text.as_bytes()),
        };
        code.put(out);
        Bytes(bytes.to_vec()).put(out);
    }

    fn take(fields: &mut Fields<'_>, name: &str) -> Result<TaskOutcome> {
        Ok(match u8::take(fields, name)? {
            0 => TaskOutcome::Output(Bytes::take(fields, name)?.0),
            1 => match Bytes::take(fields, name)?.0.len() {
                0 => TaskOutcome::Cancelled,
                more => return Err(fields.broken("no words with a cancelled task", format!("{more} bytes"))),
            },
            2 => TaskOutcome::Storage(Bytes::take(fields, name)?.0),
            3 => TaskOutcome::Panicked(Field::take(fields, name)?),
            4 => TaskOutcome::Unit(Field::take(fields, name)?),
            other => return Err(fields.broken(format!("{name} from 0 to 4"), other)),
        })
    }

    #[cfg(test)]
    fn sample(number: &mut u8) -> TaskOutcome {
        TaskOutcome::Output(Bytes::sample(number).0)
    }
}

/// The state of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    /// It waits.
    Waiting,
    /// It runs.
    Running,
    /// It has ended; [`RunTask`] again gets the answer.
    Ended,
}

impl Field for TaskState {
    const BYTES_MIN: usize = 1;

    fn kind() -> String {
        "u8".to_owned()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }

    fn take(fields: &mut Fields<'_>, name: &str) -> Result<TaskState> {
        Ok(match u8::take(fields, name)? {
            0 => TaskState::Waiting,
            1 => TaskState::Running,
            2 => TaskState::Ended,
            other => return Err(fields.broken(format!("{name} from 0 to 2"), other)),
        })
    }

    #[cfg(test)]
    fn sample(_: &mut u8) -> TaskState {
        TaskState::Ended
    }
}

/// The number of merging threads; 0 of a linear run.
impl Field for RunMode {
    const BYTES_MIN: usize = 4;

    fn kind() -> String {
        "u32".to_owned()
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            RunMode::Linear => 0_u32.put(out),
            RunMode::Pipelined { merge_threads } => (*merge_threads).max(1).put(out),
        }
    }

    fn take(fields: &mut Fields<'_>, name: &str) -> Result<RunMode> {
        Ok(match u32::take(fields, name)? {
            0 => RunMode::Linear,
            merge_threads => RunMode::Pipelined { merge_threads },
        })
    }

    #[cfg(test)]
    fn sample(number: &mut u8) -> RunMode {
        RunMode::Pipelined { merge_threads: u32::sample(number) }
    }
}

/// As `docs/formats/metrics.md` has it: the reader there bounds threads, names and numbers.
impl Field for ModeRule {
    const BYTES_MIN: usize = Bytes::BYTES_MIN;

    fn kind() -> String {
        "mode rule".to_owned()
    }

    fn put(&self, out: &mut Vec<u8>) {
        Bytes(self.to_bytes()).put(out);
    }

    fn take(fields: &mut Fields<'_>, name: &str) -> Result<ModeRule> {
        ModeRule::from_bytes(&Bytes::take(fields, name)?.0)
    }

    #[cfg(test)]
    fn sample(number: &mut u8) -> ModeRule {
        ModeRule::Decided(situ_offload::DecisionRules {
            further_weights: Field::sample(number),
            read_p99_factor_max: Field::sample(number),
            ..situ_offload::DecisionRules::copro_plus(u64::sample(number))
        })
    }
}

/// Busy, starved and blocked in nanoseconds, then bytes.
impl Field for Stage {
    const BYTES_MIN: usize = 32;

    fn kind() -> String {
        "stage".to_owned()
    }

    fn put(&self, out: &mut Vec<u8>) {
        [self.busy, self.starved, self.blocked].iter().for_each(|time| time.put(out));
        self.bytes.put(out);
    }

    fn take(fields: &mut Fields<'_>, name: &str) -> Result<Stage> {
        let mut time = || Duration::take(fields, name);
        let (busy, starved, blocked) = (time()?, time()?, time()?);
        Ok(Stage { busy, starved, blocked, bytes: u64::take(fields, name)? })
    }

    #[cfg(test)]
    fn sample(number: &mut u8) -> Stage {
        let mut time = || Duration::sample(number);
        let (busy, starved, blocked) = (time(), time(), time());
        Stage { busy, starved, blocked, bytes: u64::sample(number) }
    }
}

/// The mode, then the stages: read, merge, write.
impl Field for Ran {
    const BYTES_MIN: usize = 100;

    fn kind() -> String {
        "ran".to_owned()
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.mode.put(out);
        [self.stages.read, self.stages.merge, self.stages.write].iter().for_each(|stage| stage.put(out));
    }

    fn take(fields: &mut Fields<'_>, name: &str) -> Result<Ran> {
        let mode = RunMode::take(fields, name)?;
        let mut stage = || Stage::take(fields, name);
        Ok(Ran { mode, stages: Stages { read: stage()?, merge: stage()?, write: stage()? }, decision: None })
    }

    #[cfg(test)]
    fn sample(number: &mut u8) -> Ran {
        let mode = RunMode::sample(number);
        let mut stage = || Stage::sample(number);
        Ran { mode, stages: Stages { read: stage(), merge: stage(), write: stage() }, decision: None }
    }
}

/// Thousandths of a processor, bytes of memory, bytes a second.
impl Field for Resources {
    const BYTES_MIN: usize = 20;

    fn kind() -> String {
        "resources".to_owned()
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.processors_free_milli.put(out);
        self.memory_free_bytes.put(out);
        self.bandwidth_free_bytes_per_s.put(out);
    }

    fn take(fields: &mut Fields<'_>, name: &str) -> Result<Resources> {
        Ok(Resources {
            processors_free_milli: Field::take(fields, name)?,
            memory_free_bytes: Field::take(fields, name)?,
            bandwidth_free_bytes_per_s: Field::take(fields, name)?,
        })
    }

    #[cfg(test)]
    fn sample(number: &mut u8) -> Resources {
        Resources {
            processors_free_milli: Field::sample(number),
            memory_free_bytes: Field::sample(number),
            bandwidth_free_bytes_per_s: Field::sample(number),
        }
    }
}
