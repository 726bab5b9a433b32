// The verilated unit with a memory around it: one task in, its blocks and the side channel out.
//
// The header `model.h` is the only thing that Rust and this file share.
#include "model.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "Vunit.h"
#include "Vunit16.h"
#include "Vunit2.h"
#include "memory.h"
#include "verilated.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif

// Rust asserts the same of its own structs.
static_assert(sizeof(SituFpgaTask) == 208 && sizeof(SituFpgaResult) == 168 && sizeof(SituFpgaTrace) == 12);

double sc_time_stamp() { return 0; }

namespace {

// The word of a way in a port of the unit: Verilator has a number for two ways, and an array for four.
uint32_t word_of(uint64_t words, uint32_t way) { return uint32_t(words >> (32 * way)); }
template <std::size_t N>
uint32_t word_of(const VlWide<N>& words, uint32_t way) {
    return words[way];
}

template <class Unit>
int run(const SituFpgaTask* task, SituFpgaResult* result) {
    auto context = std::make_unique<VerilatedContext>();
    context->fatalOnError(true);
    auto unit = std::make_unique<Unit>(context.get());
    const uint32_t ways = task->ways;
    situ::Port port{{task->seed}, task->latency, task->stall_per_1000, {}, {}, {}};
    std::vector<uint32_t> next(ways), end(ways);
    std::vector<bool> ended(ways, false);
    for (uint32_t w = 0; w < ways; w++) {
        next[w] = task->first_block[w];
        end[w] = task->first_block[w + 1];
    }
    uint64_t cycle = 0;

    unit->below_all = task->below_all;
    unit->key_bytes_max = task->key_bytes_max;
    unit->value_bytes_max = task->value_bytes_max;
    unit->block_bytes = task->block_bytes;
    unit->restart_interval = task->restart_interval;
    unit->emit_from = task->emit_from;
    unit->emit_bytes_max = task->emit_bytes_max;
    unit->entries_max = task->entries_max;
    unit->out_base = 0;
    unit->out_words_max = task->out_bytes_max / task->path_bytes;
    unit->snapshot_valid = (1u << task->snapshots) - 1;
    for (uint32_t word = 0; word < 14; word++) {
        uint32_t bits = 0;
        for (uint32_t b = 0; b < 32; b++) {
            uint32_t bit = word * 32 + b, snapshot = bit / 56;
            if (snapshot < task->snapshots && (task->snapshot[snapshot] >> (bit % 56) & 1)) bits |= 1u << b;
        }
        unit->snapshots[word] = bits;
    }
    unit->start = 1;
    unit->clk = 0;
    unit->eval();
    unit->clk = 1;
    unit->eval();
    unit->start = 0;

    result->out_bytes = 0;
    result->side_words = 0;
    // Behind the data area, memory has whatever it has.
    const auto read = [&](uint32_t addr) {
        uint64_t word = 0;
        for (uint32_t b = 0; b < 8; b++) {
            uint64_t at = uint64_t(addr) + b;
            word |= uint64_t(at < task->data_bytes ? task->data[at] : 0xa5) << (8 * b);
        }
        return word;
    };
    const auto write = [&](uint32_t addr, uint64_t word) {
        if (uint64_t(addr) + 8 > task->out_bytes_max) return false;
        for (uint32_t b = 0; b < 8; b++) result->out[addr + b] = uint8_t(word >> (8 * b));
        if (addr + 8 > result->out_bytes) result->out_bytes = addr + 8;
        return true;
    };
    bool side_overrun = false;
    uint32_t turn = 0;
    for (; cycle < task->cycles_max; cycle++) {
        // What the unit sees in this cycle.
        unit->clk = 0;
        unit->block_valid = 0;
        unit->eval();
        for (uint32_t i = 0; i < ways; i++) {
            uint32_t w = (turn + i) % ways;
            if (ended[w] || !(unit->block_ready >> w & 1)) continue;
            unit->block_valid = 1;
            unit->block_way = w;
            unit->block_end = next[w] == end[w];
            if (next[w] == end[w]) {
                ended[w] = true;
            } else {
                const SituFpgaBlock& block = task->blocks[next[w]++];
                unit->block_at = block.at;
                unit->block_raw_bytes = block.raw_bytes;
                unit->block_entry_bytes = block.entry_bytes;
            }
            turn = w + 1;
            break;
        }
        port.before(*unit, cycle, read);
        unit->side_ready = !port.random.in_1000(task->stall_per_1000);
        unit->eval();

        // What it does.
        if (!port.after(*unit, cycle, write)) return SITU_FPGA_WILD_WRITE;
        if (unit->side_valid && unit->side_ready) {
            if (result->side_words < task->side_words_max) {
                result->side[result->side_words] = unit->side;
                result->side_tags[result->side_words] = unit->side_tag;
                result->side_words++;
            } else {
                side_overrun = true;
            }
        }
        for (uint32_t w = 0; w < ways; w++) {
            if (unit->key_half_full >> w & 1) result->half_full_cycles[w]++;
        }
        if (task->trace && cycle < task->trace_cycles) {
            SituFpgaTrace& trace = task->trace[cycle];
            trace.fetched = unit->r_valid;
            trace.key_half_full = unit->key_half_full;
            trace.value_half_full = unit->value_half_full;
            trace.pop = unit->merge_pop;
            trace.kept = unit->kept;
            trace.written = unit->w_valid && unit->w_ready;
        }
        unit->clk = 1;
        unit->eval();
        if (unit->done) break;
    }
    result->cycles = cycle + 1;
    const bool done = unit->done;
    result->failed = unit->failed;
    for (uint32_t w = 0; w < ways; w++) {
        result->way_status[w] = unit->way_status >> (3 * w) & 7;
        result->way_detail[w] = word_of(unit->way_detail, w);
        result->way_entries[w] = word_of(unit->way_entries, w);
    }
    result->twice = unit->twice;
    result->twice_way = unit->twice_way;
    result->twice_entry = unit->twice_entry;
    result->no_space = unit->no_space;
    result->kept = unit->kept;
    result->emitted_to = unit->emitted_to;
    result->dropped_hidden = unit->dropped_hidden;
    result->dropped_tombstones = unit->dropped_tombstones;
    result->sequences_zeroed = unit->sequences_zeroed;
    unit->final();
#if VM_COVERAGE
    // A file a run: verilator_coverage adds them up.
    static std::atomic<unsigned> runs{0};
    if (const char* path = std::getenv("SITU_FPGA_COVERAGE"))
        context->coveragep()->write((std::string(path) + "." + std::to_string(runs++)).c_str());
#endif
    if (!done) return SITU_FPGA_HANGS;
    return side_overrun ? SITU_FPGA_SIDE_OVERRUN : SITU_FPGA_DONE;
}

}  // namespace

extern "C" int situ_fpga_run(const SituFpgaTask* task, SituFpgaResult* result) {
    if (task->path_bytes == 16) return run<Vunit16>(task, result);
    return task->ways == 2 ? run<Vunit2>(task, result) : run<Vunit>(task, result);
}
