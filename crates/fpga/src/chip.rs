//! The host of a chip: several units behind a bus of registers, a queue of tasks and a queue of answers.
//!
//! ```text
//! submit ── blocks and lists into memory, words into the queue ──> lanes ── answer's words, memory ──> wait
//! ```
//!
//! `fpga/registers.md` has the registers, and the words of tasks and answers.

use crate::host::{FlatAnswer, NotRun, Variant, decoded, flat_answer};
use crate::model::{self, ChipModel, Memory, RegisterError, UnitResult, UnitTask, WAYS};
use situ_accel::DeviceTask;
use std::collections::BTreeMap;

/// Byte addresses of registers.
pub mod registers {
    /// The constant [`ID_VALUE`].
    pub const ID: u32 = 0x000;
    /// The version of the registers.
    pub const VERSION: u32 = 0x004;
    /// Lanes, ways, snapshots, slots of both queues, lock-step.
    pub const CAPABILITIES: u32 = 0x008;
    /// Bit 0: lanes get tasks.
    pub const CONTROL: u32 = 0x00c;
    /// Free slots for tasks, answers, busy lanes.
    pub const STATUS: u32 = 0x010;
    /// Causes that raise the interrupt line.
    pub const IRQ_ENABLE: u32 = 0x014;
    /// Causes that are there.
    pub const IRQ_CAUSE: u32 = 0x018;
    /// Appends the task: 0, or 1 for lock-step.
    pub const TASK_PUSH: u32 = 0x020;
    /// Drops the first answer.
    pub const ANSWER_POP: u32 = 0x024;
    /// The first lane's registers; those of the next one lie 16 bytes behind.
    pub const LANE: u32 = 0x040;
    /// The words of the next task.
    pub const TASK: u32 = 0x100;
    /// The words of the first answer.
    pub const ANSWER: u32 = 0x200;
    /// `situ` in ASCII.
    pub const ID_VALUE: u32 = 0x7369_7475;
    /// An answer waits.
    pub const IRQ_ANSWER: u32 = 1;
    /// The queue of tasks has room.
    pub const IRQ_SPACE: u32 = 2;
    /// Lanes in lock-step gave different outputs.
    pub const IRQ_MISMATCH: u32 = 4;
    /// An access was refused.
    pub const IRQ_REFUSED: u32 = 8;
}

const MEMORY_BYTES: u32 = 64 << 20;
const TASK_WORDS: usize = 48;
const ANSWER_WORDS: usize = 20;
/// Bytes of a group of the side channel: four words and their tags.
const GROUP_BYTES: usize = 40;
const CODE_DONE: u32 = 0;
const CODE_FAILED: u32 = 1;
const CODE_MISMATCH: u32 = 2;
const CODE_STOPPED: u32 = 3;

impl From<RegisterError> for NotRun {
    fn from(error: RegisterError) -> NotRun {
        NotRun::Broken(error.to_string())
    }
}

/// A place in a lane at which a test inverts a bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Flip {
    /// The words that the unit reads.
    Read = 0,
    /// The words that it writes.
    Write = 1,
    /// The address of a burst that it writes.
    WriteAddress = 2,
    /// The words of its side channel.
    Side = 3,
    /// The address of a burst that it reads.
    ReadAddress = 4,
    /// The signal that it is done.
    Done = 5,
}

/// An answer of the chip.
#[derive(Debug)]
pub struct ChipAnswer {
    /// The number that [`Chip::submit`] gave.
    pub tag: u32,
    /// The lane that ran the task.
    pub lane: u32,
    /// Two lanes ran it, and the chip compared them.
    pub lockstep: bool,
    /// The answer of the model of all devices, or the reason why there is none.
    pub outcome: Result<FlatAnswer, NotRun>,
}

/// A task that the chip has.
#[derive(Debug)]
struct Job {
    task: DeviceTask,
    unit_task: UnitTask,
    out_at: u32,
    side_at: u32,
    side_groups: u32,
}

/// A simulated chip with its memory, and the host's notes about its tasks.
#[derive(Debug)]
pub struct Chip {
    model: ChipModel,
    jobs: BTreeMap<u32, Job>,
    next_tag: u32,
    /// Memory from here on is free, until no task is left.
    free_at: u32,
}

impl Chip {
    /// Creates a chip, resets it, and lets its lanes take tasks.
    ///
    /// # Errors
    /// There is no simulation, or the chip is another one.
    pub fn new(memory: Memory) -> Result<Chip, NotRun> {
        if let Some(why) = model::missing() {
            return Err(NotRun::Missing(why.to_owned()));
        }
        let model = ChipModel::new(u64::from(MEMORY_BYTES), memory);
        let model = model.ok_or_else(|| NotRun::Missing("the simulation was not built".to_owned()))?;
        let mut chip = Chip { model, jobs: BTreeMap::new(), next_tag: 1, free_at: 0 };
        let (id, version) = (chip.read(registers::ID)?, chip.read(registers::VERSION)?);
        if (id, version) != (registers::ID_VALUE, 1) {
            return Err(NotRun::Broken(format!("this is chip {id:#x}, version {version}")));
        }
        chip.write(registers::CONTROL, 1)?;
        chip.write(registers::IRQ_ENABLE, registers::IRQ_ANSWER)?;
        Ok(chip)
    }

    /// Reads a register.
    ///
    /// # Errors
    /// The chip refuses the access, or has a flaw.
    pub fn read(&mut self, addr: u32) -> Result<u32, RegisterError> {
        self.model.bus(None, addr)
    }

    /// Writes a register.
    ///
    /// # Errors
    /// The chip refuses the access, or has a flaw.
    pub fn write(&mut self, addr: u32, value: u32) -> Result<(), RegisterError> {
        self.model.bus(Some(value), addr).map(|_| ())
    }

    /// Runs until the chip interrupts, or some cycles have passed. Returns the cycles.
    ///
    /// # Errors
    /// The chip writes where it must not.
    pub fn step(&mut self, cycles: u64) -> Result<u64, NotRun> {
        self.model.step(cycles).map_err(NotRun::Broken)
    }

    /// Inverts a bit in the lanes of a mask from now on; no lane is the end of it.
    pub fn flip(&mut self, lanes: u32, place: Flip) {
        self.model.flip(lanes, place as u32);
    }

    /// Stops the task of a lane.
    ///
    /// # Errors
    /// There is no such lane.
    pub fn stop(&mut self, lane: u32) -> Result<(), RegisterError> {
        self.write(registers::LANE + 16 * lane, 1)
    }

    /// Gives the chip a task, whose input blocks lie in `data`. With `lockstep` two lanes run it. Returns its number.
    ///
    /// # Errors
    /// The chip is full ([`NotRun::Busy`]), the task is not for it, or the chip has a flaw.
    pub fn submit(&mut self, task: &[u8], data: &[u8], lockstep: bool) -> Result<u32, NotRun> {
        let (task, unit_task) = decoded(task, data, Variant::Plain)?;
        if self.read(registers::STATUS)? & 7 == 0 {
            return Err(NotRun::Busy);
        }
        if self.jobs.is_empty() {
            self.free_at = 0;
        }
        let side_groups = unit_task.side_words_max.div_ceil(4) + 1;
        let bytes = [
            data.len() as u64,
            8 * unit_task.blocks.len() as u64,
            unit_task.out_bytes_max,
            side_groups * GROUP_BYTES as u64,
        ];
        let mut places = [0; 4];
        let mut at = u64::from(self.free_at);
        for (place, bytes) in places.iter_mut().zip(bytes) {
            *place = at as u32;
            // A word that belongs to none lies behind each part.
            at = (at + bytes).next_multiple_of(128) + 128;
            if at > u64::from(MEMORY_BYTES) {
                return Err(NotRun::Busy);
            }
        }
        self.free_at = at as u32;
        let [data_at, list_at, out_at, side_at] = places;
        self.model.put(data_at, data);
        let list: Vec<u8> = unit_task
            .blocks
            .iter()
            .flat_map(|block| {
                let lengths = u64::from(block.raw_bytes) << 32 | u64::from(block.entry_bytes) << 48;
                (u64::from(data_at + block.at) | lengths).to_le_bytes()
            })
            .collect();
        self.model.put(list_at, &list);
        self.model.lend(out_at, bytes[2], true);
        self.model.lend(side_at, bytes[3], true);
        let job = Job { task, unit_task, out_at, side_at, side_groups: side_groups as u32 };
        let tag = self.next_tag;
        for (i, word) in task_words(&job, tag, list_at).into_iter().enumerate() {
            self.write(registers::TASK + 4 * i as u32, word)?;
        }
        self.write(registers::TASK_PUSH, lockstep.into())?;
        self.next_tag += 1;
        self.jobs.insert(tag, job);
        Ok(tag)
    }

    /// Waits for the next answer, and takes it.
    ///
    /// # Errors
    /// The chip has no task, or it has a flaw.
    pub fn wait(&mut self) -> Result<ChipAnswer, NotRun> {
        if self.jobs.is_empty() {
            return Err(NotRun::Broken("the chip has no task".to_owned()));
        }
        let most = self.jobs.values().map(|job| job.unit_task.cycles_max).sum();
        if self.step(most)? == most {
            return Err(NotRun::Broken(format!("no answer after {most} cycles")));
        }
        let mut words = [0; ANSWER_WORDS];
        for (i, word) in words.iter_mut().enumerate() {
            *word = self.read(registers::ANSWER + 4 * i as u32)?;
        }
        self.write(registers::ANSWER_POP, 1)?;
        let tag = words[1];
        let job = self.jobs.remove(&tag);
        let job =
            job.ok_or_else(|| NotRun::Broken(format!("an answer to task {tag}, which the chip does not have")))?;
        let outcome = self.outcome(&job, &words);
        self.model.lend(job.out_at, job.unit_task.out_bytes_max, false);
        self.model.lend(job.side_at, u64::from(job.side_groups) * GROUP_BYTES as u64, false);
        Ok(ChipAnswer { tag, lane: words[0] >> 8 & 0xf, lockstep: words[0] >> 16 & 1 != 0, outcome })
    }

    fn outcome(&self, job: &Job, words: &[u32; ANSWER_WORDS]) -> Result<FlatAnswer, NotRun> {
        match words[0] & 7 {
            CODE_DONE | CODE_FAILED => {}
            CODE_MISMATCH => return Err(NotRun::Mismatch),
            CODE_STOPPED => return Err(NotRun::Stopped),
            _ => return Err(NotRun::Broken("the unit says more on its side channel than it can know".to_owned())),
        }
        let mut out = vec![0; job.unit_task.out_bytes_max as usize];
        self.model.get(job.out_at, &mut out);
        if words[3] > job.side_groups {
            return Err(NotRun::Broken(format!("{} groups are on the side channel, of {}", words[3], job.side_groups)));
        }
        let mut groups = vec![0; words[3] as usize * GROUP_BYTES];
        self.model.get(job.side_at, &mut groups);
        let flags = words[4];
        let result = UnitResult {
            out,
            side: groups.chunks_exact(GROUP_BYTES).flat_map(side_words).collect(),
            cycles: u64::from(words[2]),
            half_full_cycles: [0; WAYS],
            way_status: std::array::from_fn(|way| flags >> (3 * way) & 7),
            way_detail: std::array::from_fn(|way| words[12 + way]),
            way_entries: std::array::from_fn(|way| words[16 + way]),
            twice: (flags >> 12 & 1 != 0).then_some((flags >> 16, words[5])),
            no_space: flags >> 13 & 1 != 0,
            kept: words[6],
            emitted_to: words[7],
            dropped_hidden: words[8],
            dropped_tombstones: words[9],
            sequences_zeroed: words[10],
        };
        flat_answer(&job.task, &job.unit_task, &result)
    }
}

/// Returns a task's words, in the order of the registers.
fn task_words(job: &Job, tag: u32, list_at: u32) -> [u32; TASK_WORDS] {
    let unit = &job.unit_task;
    let mut words = [0; TASK_WORDS];
    words[0] = tag;
    words[1] = u32::from(unit.below_all) | unit.key_bytes_max << 8 | unit.value_bytes_max << 16;
    words[2] = unit.block_bytes | unit.restart_interval << 16;
    words[3] = unit.entries_max;
    words[4] = unit.emit_from;
    words[5] = unit.emit_bytes_max;
    words[6] = job.out_at;
    words[7] = (unit.out_bytes_max / 8) as u32;
    words[8] = job.side_at;
    words[9] = job.side_groups;
    for way in 0..WAYS {
        words[10 + way] = list_at + 8 * unit.first_block[way];
        words[14 + way] = unit.first_block[way + 1] - unit.first_block[way];
    }
    words[18] = (1 << unit.snapshots.len()) - 1;
    for (i, snapshot) in unit.snapshots.iter().enumerate() {
        words[32 + 2 * i] = *snapshot as u32;
        words[33 + 2 * i] = (snapshot >> 32) as u32;
    }
    words
}

/// Returns the words of a group with their tags. Bit 15 of a tag says that there is no word.
fn side_words(group: &[u8]) -> impl Iterator<Item = (u64, u16)> + '_ {
    let (words, tags) = group.split_at(GROUP_BYTES - 8);
    let words = words.chunks_exact(8).map(|word| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
    let tags = tags.chunks_exact(2).map(|tag| u16::from_le_bytes([tag[0], tag[1]]));
    words.zip(tags).filter(|(_, tag)| tag >> 15 == 0)
}
