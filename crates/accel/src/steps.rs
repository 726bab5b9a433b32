//! The launches of a task, in order.
//!
//! They are the same for every task: a launch that finds nothing to do returns. The GPU's host and the test that runs
//! the kernels as C++ both take them from here.

use crate::layout::shared_text;

/// One launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The kernel's name.
    pub kernel: &'static str,
    /// Threads of a block of threads.
    pub threads: u32,
    /// A grid that fills the device, or one block of threads.
    pub many: bool,
    /// The kernel's second parameter: the list, for prefix sums.
    pub which: u32,
    /// The launch needs shared memory: [`Layout::own_bytes`](crate::Layout) for each block of threads.
    pub own_memory: bool,
    /// The warps of a block of threads take different ways. Where warps meet at the block's barriers, a block has one.
    pub lone_warps: bool,
}

const fn many(kernel: &'static str, threads: u32) -> Step {
    Step { kernel, threads, many: true, which: 0, own_memory: false, lone_warps: false }
}

const fn one(kernel: &'static str, threads: u32) -> Step {
    Step { many: false, ..many(kernel, threads) }
}

const fn warps(kernel: &'static str, threads: u32) -> Step {
    Step { lone_warps: true, ..many(kernel, threads) }
}

const fn sums(which: u32) -> [Step; 3] {
    [
        Step { which, ..many("scan_tiles", 256) },
        Step { which, ..one("scan_top", 256) },
        Step { which, ..many("scan_apply", 256) },
    ]
}

/// Returns the launches of a task.
pub fn steps() -> Vec<Step> {
    let mut steps = vec![warps("check_blocks", 128)];
    steps.extend(sums(0));
    steps.extend([many("list_intervals", 128), many("count_entries", 256)]);
    steps.extend(sums(1));
    steps.extend([
        one("find_ways", 32),
        many("note_entries", 256),
        many("decode_entries", 256),
        many("merge_ranks", 256),
        many("see", 256),
    ]);
    steps.extend(sums(2));
    steps.extend([many("compact", 256), many("measure", 256)]);
    steps.extend(sums(3));
    steps.extend(sums(6));
    steps.extend([many("next_cuts", 256), many("chunks", 256), many("chunk_exits", 256), many("group_exits", 256)]);
    steps.extend([one("chain_top", 32), many("chain_groups", 128), many("chain_chunks", 128)]);
    steps.extend(sums(4));
    steps.extend([many("limit_output", 256), Step { own_memory: true, ..many("encode", 32) }]);
    steps.extend(sums(5));
    steps.extend([many("hash_keys", 256), warps("pack", 128), one("finish", 32)]);
    steps
}

/// Returns the kernels' whole source, for a compiler of CUDA.
pub fn kernel_source() -> String {
    source_with(include_str!("kernels/words.cu"))
}

/// Returns the kernels' whole source, for a compiler of OpenCL C 1.2.
#[cfg(feature = "opencl")]
pub(crate) fn opencl_source() -> String {
    source_with(include_str!("kernels/words.cl"))
}

/// Returns the source in the language of `words`.
fn source_with(words: &str) -> String {
    let parts = [
        include_str!("kernels/common.cu"),
        include_str!("kernels/sums.cu"),
        include_str!("kernels/input.cu"),
        include_str!("kernels/entries.cu"),
        include_str!("kernels/merge.cu"),
        include_str!("kernels/cuts.cu"),
        include_str!("kernels/lz4.cu"),
        include_str!("kernels/blocks.cu"),
        include_str!("kernels/hashes.cu"),
    ];
    [words, &shared_text(), &parts.join("\n")].concat()
}

/// Returns the launches, for the program `kernels/emulate.cpp`.
#[doc(hidden)]
pub fn emulated_steps() -> String {
    let step = |step: &Step| {
        let Step { kernel, threads, many, which, .. } = step;
        format!("STEP({kernel}, {threads}, {}, {which})\n", u8::from(*many))
    };
    steps().iter().map(step).collect()
}
