//! The verilated unit behind one call, and the verilated chip.
//!
//! The structs here are those of `model/model.h`, the functions of the chip those of `model/chip.h`.
//!
//! **Invariants**: the C++ code writes into the buffers that a call passes, up to the lengths that it passes, and keeps
//! no pointer. Offsets that a task names are inside its data, which the decoder of tasks has checked; beyond the data,
//! the simulated memory answers with a constant.

use std::fmt;

/// The ways of the unit as it is, and of each unit of a chip.
pub(crate) const WAYS: usize = 4;
/// The unit's snapshots.
pub(crate) const SNAPSHOTS: usize = 8;

/// The behaviour of the simulated memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Cycles from a burst's address to its first word, and from its last word to the answer to a write.
    pub latency: u32,
    /// The share of cycles, in thousandths, in which a channel that could move does not. Each channel has its own.
    pub stall_per_1000: u32,
    /// The seed of the pauses.
    pub seed: u64,
}

impl Memory {
    /// A memory that answers at once and never pauses.
    pub const IDEAL: Memory = Memory { latency: 1, stall_per_1000: 0, seed: 0 };
}

/// A cycle of a run, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Cycle {
    /// A word came from memory.
    pub fetched: u8,
    /// The ways whose rings of keys are half full, a bit for each.
    pub key_half_full: u8,
    /// The ways whose rings of values are half full, a bit for each.
    pub value_half_full: u8,
    /// The way that won an entry, a bit for each.
    pub pop: u8,
    /// Entries that the encoder has taken so far.
    pub kept: u32,
    /// A word went to memory.
    pub written: u8,
}

/// A block for the unit.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[cfg_attr(not(fpga_model), allow(dead_code, reason = "only the circuit reads it"))]
pub(crate) struct Block {
    pub(crate) at: u32,
    pub(crate) raw_bytes: u16,
    pub(crate) entry_bytes: u16,
}

/// A task for the unit: registers and descriptors.
#[derive(Debug, Default)]
#[cfg_attr(not(fpga_model), allow(dead_code, reason = "only the circuit reads it"))]
pub(crate) struct UnitTask {
    /// The ways of the unit: 2 or 4.
    pub(crate) ways: u32,
    /// Bytes of a word of its path: 8 or 16.
    pub(crate) path_bytes: u32,
    pub(crate) blocks: Vec<Block>,
    pub(crate) first_block: [u32; WAYS + 1],
    pub(crate) snapshots: Vec<u64>,
    pub(crate) below_all: bool,
    pub(crate) key_bytes_max: u32,
    pub(crate) value_bytes_max: u32,
    pub(crate) block_bytes: u32,
    pub(crate) restart_interval: u32,
    pub(crate) emit_from: u32,
    pub(crate) emit_bytes_max: u32,
    pub(crate) entries_max: u32,
    pub(crate) out_bytes_max: u64,
    pub(crate) side_words_max: u64,
    pub(crate) cycles_max: u64,
}

/// The end of a run, as the unit's ports show it.
#[derive(Debug, Default)]
pub(crate) struct UnitResult {
    /// Memory from the output's base on.
    pub(crate) out: Vec<u8>,
    /// The side channel: word and tag.
    pub(crate) side: Vec<(u64, u16)>,
    pub(crate) cycles: u64,
    pub(crate) half_full_cycles: [u64; WAYS],
    pub(crate) way_status: [u32; WAYS],
    pub(crate) way_detail: [u32; WAYS],
    pub(crate) way_entries: [u32; WAYS],
    /// Two ways have one internal key: the later way, and the entry's number in it.
    pub(crate) twice: Option<(u32, u32)>,
    pub(crate) no_space: bool,
    pub(crate) kept: u32,
    pub(crate) emitted_to: u32,
    pub(crate) dropped_hidden: u32,
    pub(crate) dropped_tombstones: u32,
    pub(crate) sequences_zeroed: u32,
}

/// Returns the reason why there is no simulation in this build, if there is none.
pub fn missing() -> Option<&'static str> {
    option_env!("SITU_FPGA_MISSING")
}

#[cfg(not(fpga_model))]
pub(crate) fn run(_: &UnitTask, _: &[u8], _: Memory, _: &mut [Cycle]) -> Result<UnitResult, String> {
    Err("the simulation was not built".to_owned())
}

#[cfg(fpga_model)]
pub(crate) use circuit::{ChipModel, run};

/// The reason why a register was not read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegisterError {
    /// The chip refuses the access: no such register, a value that it does not take, or a queue that is full or empty.
    Refused,
    /// The chip has a flaw.
    Fault(String),
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegisterError::Refused => f.write_str("the chip refuses the access"),
            RegisterError::Fault(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for RegisterError {}

/// The chip of a build without a simulation: there is none.
#[cfg(not(fpga_model))]
#[derive(Debug)]
pub(crate) enum ChipModel {}

#[cfg(not(fpga_model))]
impl ChipModel {
    pub(crate) fn new(_: u64, _: Memory) -> Option<ChipModel> {
        None
    }

    pub(crate) fn put(&mut self, _: u32, _: &[u8]) {
        match *self {}
    }

    pub(crate) fn get(&self, _: u32, _: &mut [u8]) {
        match *self {}
    }

    pub(crate) fn lend(&mut self, _: u32, _: u64, _: bool) {
        match *self {}
    }

    pub(crate) fn bus(&mut self, _: Option<u32>, _: u32) -> Result<u32, RegisterError> {
        match *self {}
    }

    pub(crate) fn step(&mut self, _: u64) -> Result<u64, String> {
        match *self {}
    }

    pub(crate) fn flip(&mut self, _: u32, _: u32) {
        match *self {}
    }
}

#[cfg(fpga_model)]
#[allow(unsafe_code, reason = "the circuit is C++")]
mod circuit {
    use super::{Block, Cycle, Memory, RegisterError, SNAPSHOTS, UnitResult, UnitTask, WAYS};
    use std::ptr::NonNull;

    #[repr(C)]
    struct RawTask {
        blocks: *const Block,
        data: *const u8,
        data_bytes: u64,
        out_bytes_max: u64,
        side_words_max: u64,
        cycles_max: u64,
        seed: u64,
        trace: *mut Cycle,
        trace_cycles: u64,
        snapshot: [u64; SNAPSHOTS],
        first_block: [u32; WAYS + 1],
        snapshots: u32,
        below_all: u32,
        key_bytes_max: u32,
        value_bytes_max: u32,
        block_bytes: u32,
        restart_interval: u32,
        emit_from: u32,
        emit_bytes_max: u32,
        entries_max: u32,
        ways: u32,
        path_bytes: u32,
        latency: u32,
        stall_per_1000: u32,
    }

    #[repr(C)]
    struct RawResult {
        out: *mut u8,
        side: *mut u64,
        side_tags: *mut u16,
        out_bytes: u64,
        side_words: u64,
        cycles: u64,
        half_full_cycles: [u64; WAYS],
        failed: u32,
        way_status: [u32; WAYS],
        way_detail: [u32; WAYS],
        way_entries: [u32; WAYS],
        twice: u32,
        twice_way: u32,
        twice_entry: u32,
        no_space: u32,
        kept: u32,
        emitted_to: u32,
        dropped_hidden: u32,
        dropped_tombstones: u32,
        sequences_zeroed: u32,
    }

    // `model.cpp` asserts the same of its own structs.
    const _: () = assert!(size_of::<RawTask>() == 208 && size_of::<RawResult>() == 168 && size_of::<Cycle>() == 12);

    unsafe extern "C" {
        fn situ_fpga_run(task: *const RawTask, result: *mut RawResult) -> i32;
    }

    /// Runs a task through the circuit. `trace` gets the first cycles.
    pub(crate) fn run(task: &UnitTask, data: &[u8], memory: Memory, trace: &mut [Cycle]) -> Result<UnitResult, String> {
        let mut snapshot = [0; SNAPSHOTS];
        snapshot[..task.snapshots.len()].copy_from_slice(&task.snapshots);
        let raw = RawTask {
            blocks: task.blocks.as_ptr(),
            data: data.as_ptr(),
            data_bytes: data.len() as u64,
            out_bytes_max: task.out_bytes_max,
            side_words_max: task.side_words_max,
            cycles_max: task.cycles_max,
            seed: memory.seed,
            trace: trace.as_mut_ptr(),
            trace_cycles: trace.len() as u64,
            snapshot,
            first_block: task.first_block,
            snapshots: task.snapshots.len() as u32,
            below_all: u32::from(task.below_all),
            key_bytes_max: task.key_bytes_max,
            value_bytes_max: task.value_bytes_max,
            block_bytes: task.block_bytes,
            restart_interval: task.restart_interval,
            emit_from: task.emit_from,
            emit_bytes_max: task.emit_bytes_max,
            entries_max: task.entries_max,
            ways: task.ways,
            path_bytes: task.path_bytes,
            latency: memory.latency,
            stall_per_1000: memory.stall_per_1000,
        };
        let mut out = vec![0; task.out_bytes_max as usize];
        let mut side = vec![0; task.side_words_max as usize];
        let mut side_tags = vec![0; task.side_words_max as usize];
        let mut result = RawResult {
            out: out.as_mut_ptr(),
            side: side.as_mut_ptr(),
            side_tags: side_tags.as_mut_ptr(),
            out_bytes: 0,
            side_words: 0,
            cycles: 0,
            half_full_cycles: [0; WAYS],
            failed: 0,
            way_status: [0; WAYS],
            way_detail: [0; WAYS],
            way_entries: [0; WAYS],
            twice: 0,
            twice_way: 0,
            twice_entry: 0,
            no_space: 0,
            kept: 0,
            emitted_to: 0,
            dropped_hidden: 0,
            dropped_tombstones: 0,
            sequences_zeroed: 0,
        };
        // SAFETY: both structs are those of `model.h`, field by field. All pointers are to live buffers, which the call
        // reads or writes up to the lengths that stand in `raw`, and does not keep. `first_block` ascends up to the
        // number of blocks.
        let code = unsafe { situ_fpga_run(&raw const raw, &raw mut result) };
        match code {
            0 => {}
            1 => return Err(format!("the unit is not done after {} cycles", result.cycles)),
            2 => return Err("the unit writes where it must not".to_owned()),
            _ => return Err("the unit says more on its side channel than it can know".to_owned()),
        }
        out.truncate(result.out_bytes as usize);
        side.truncate(result.side_words as usize);
        Ok(UnitResult {
            out,
            side: side.into_iter().zip(side_tags).collect(),
            cycles: result.cycles,
            half_full_cycles: result.half_full_cycles,
            way_status: result.way_status,
            way_detail: result.way_detail,
            way_entries: result.way_entries,
            twice: (result.twice != 0).then_some((result.twice_way, result.twice_entry)),
            no_space: result.no_space != 0,
            kept: result.kept,
            emitted_to: result.emitted_to,
            dropped_hidden: result.dropped_hidden,
            dropped_tombstones: result.dropped_tombstones,
            sequences_zeroed: result.sequences_zeroed,
        })
    }

    /// The C++ object of a chip.
    #[repr(C)]
    struct RawChip {
        _opaque: [u8; 0],
    }

    unsafe extern "C" {
        fn situ_fpga_chip_new(memory_bytes: u64, latency: u32, stall_per_1000: u32, seed: u64) -> *mut RawChip;
        fn situ_fpga_chip_free(chip: *mut RawChip);
        fn situ_fpga_chip_put(chip: *mut RawChip, at: u64, bytes: *const u8, count: u64);
        fn situ_fpga_chip_get(chip: *const RawChip, at: u64, bytes: *mut u8, count: u64);
        fn situ_fpga_chip_lend(chip: *mut RawChip, at: u64, count: u64, lent: u32);
        fn situ_fpga_chip_bus(chip: *mut RawChip, write: u32, addr: u32, data: *mut u32) -> i32;
        fn situ_fpga_chip_step(chip: *mut RawChip, cycles: u64, passed: *mut u64) -> i32;
        fn situ_fpga_chip_flip(chip: *mut RawChip, lanes: u32, place: u32);
    }

    /// The verilated chip and its memory, both of which C++ owns.
    #[derive(Debug)]
    pub(crate) struct ChipModel {
        chip: NonNull<RawChip>,
        memory_bytes: u64,
    }

    fn fault(code: i32) -> String {
        match code {
            2 => "the chip writes where it must not".to_owned(),
            _ => "the chip does not answer on its bus".to_owned(),
        }
    }

    impl ChipModel {
        /// Creates a chip and takes it out of reset. Returns `None` only in a build without the simulation.
        pub(crate) fn new(memory_bytes: u64, memory: Memory) -> Option<ChipModel> {
            // SAFETY: the function has no conditions.
            let chip = unsafe { situ_fpga_chip_new(memory_bytes, memory.latency, memory.stall_per_1000, memory.seed) };
            Some(ChipModel { chip: NonNull::new(chip)?, memory_bytes })
        }

        fn assert_inside(&self, at: u32, count: u64) {
            assert!(u64::from(at) + count <= self.memory_bytes, "{count} bytes at {at}");
        }

        /// Writes into memory.
        pub(crate) fn put(&mut self, at: u32, bytes: &[u8]) {
            self.assert_inside(at, bytes.len() as u64);
            // SAFETY: the chip lives, and the place is inside its memory.
            unsafe { situ_fpga_chip_put(self.chip.as_ptr(), at.into(), bytes.as_ptr(), bytes.len() as u64) }
        }

        /// Reads from memory.
        pub(crate) fn get(&self, at: u32, bytes: &mut [u8]) {
            self.assert_inside(at, bytes.len() as u64);
            // SAFETY: as above.
            unsafe { situ_fpga_chip_get(self.chip.as_ptr(), at.into(), bytes.as_mut_ptr(), bytes.len() as u64) }
        }

        /// Allows the chip to write these words of memory, or forbids it.
        pub(crate) fn lend(&mut self, at: u32, count: u64, lent: bool) {
            self.assert_inside(at, count);
            // SAFETY: as above.
            unsafe { situ_fpga_chip_lend(self.chip.as_ptr(), at.into(), count, lent.into()) }
        }

        /// Writes a register, or reads it.
        pub(crate) fn bus(&mut self, write: Option<u32>, addr: u32) -> Result<u32, RegisterError> {
            let mut data = write.unwrap_or(0);
            // SAFETY: the chip lives, and `data` is a live word.
            match unsafe { situ_fpga_chip_bus(self.chip.as_ptr(), write.is_some().into(), addr, &raw mut data) } {
                0 => Ok(data),
                1 if data == 0 => Err(RegisterError::Refused),
                1 => Err(RegisterError::Fault(format!("a refused access answers {data:#x}"))),
                code => Err(RegisterError::Fault(fault(code))),
            }
        }

        /// Runs until the chip interrupts, or some cycles have passed. Returns the cycles.
        pub(crate) fn step(&mut self, cycles: u64) -> Result<u64, String> {
            let mut passed = 0;
            // SAFETY: the chip lives, and `passed` is a live word.
            match unsafe { situ_fpga_chip_step(self.chip.as_ptr(), cycles, &raw mut passed) } {
                0 => Ok(passed),
                code => Err(fault(code)),
            }
        }

        /// Inverts a bit in the lanes of a mask from now on.
        pub(crate) fn flip(&mut self, lanes: u32, place: u32) {
            // SAFETY: the chip lives.
            unsafe { situ_fpga_chip_flip(self.chip.as_ptr(), lanes, place) }
        }
    }

    impl Drop for ChipModel {
        fn drop(&mut self) {
            // SAFETY: the chip lives, and is not used afterwards.
            unsafe { situ_fpga_chip_free(self.chip.as_ptr()) }
        }
    }
}
