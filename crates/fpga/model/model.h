// What crosses between Rust (`src/model.rs`) and the verilated unit (`model.cpp`).
#pragma once
#include <stdint.h>

#define SITU_FPGA_WAYS 4

enum { SITU_FPGA_DONE = 0, SITU_FPGA_HANGS = 1, SITU_FPGA_WILD_WRITE = 2, SITU_FPGA_SIDE_OVERRUN = 3 };

typedef struct {
    uint32_t at;
    uint16_t raw_bytes;
    uint16_t entry_bytes;
} SituFpgaBlock;

// A cycle as a person wants to see it.
typedef struct {
    uint8_t fetched;
    uint8_t key_half_full;
    uint8_t value_half_full;
    uint8_t pop;
    uint32_t kept;
    uint8_t written;
} SituFpgaTrace;

typedef struct {
    const SituFpgaBlock* blocks;
    const uint8_t* data;
    uint64_t data_bytes;
    uint64_t out_bytes_max;
    uint64_t side_words_max;
    uint64_t cycles_max;
    uint64_t seed;
    SituFpgaTrace* trace;
    uint64_t trace_cycles;
    uint64_t snapshot[8];
    uint32_t first_block[SITU_FPGA_WAYS + 1];
    uint32_t snapshots;
    uint32_t below_all;
    uint32_t key_bytes_max;
    uint32_t value_bytes_max;
    uint32_t block_bytes;
    uint32_t restart_interval;
    uint32_t emit_from;
    uint32_t emit_bytes_max;
    uint32_t entries_max;
    // Of the unit: 2 or 4 ways, and a path of 8 or 16 bytes.
    uint32_t ways;
    uint32_t path_bytes;
    uint32_t latency;
    uint32_t stall_per_1000;
} SituFpgaTask;

typedef struct {
    uint8_t* out;
    uint64_t* side;
    uint16_t* side_tags;
    uint64_t out_bytes;
    uint64_t side_words;
    uint64_t cycles;
    uint64_t half_full_cycles[SITU_FPGA_WAYS];
    uint32_t failed;
    uint32_t way_status[SITU_FPGA_WAYS];
    uint32_t way_detail[SITU_FPGA_WAYS];
    uint32_t way_entries[SITU_FPGA_WAYS];
    uint32_t twice;
    uint32_t twice_way;
    uint32_t twice_entry;
    uint32_t no_space;
    uint32_t kept;
    uint32_t emitted_to;
    uint32_t dropped_hidden;
    uint32_t dropped_tombstones;
    uint32_t sequences_zeroed;
} SituFpgaResult;
