// The calls by which Rust (`src/model.rs`) drives the verilated chip (`chip.cpp`).
#pragma once
#include <stdint.h>

struct SituFpgaChip;

enum { SITU_FPGA_CHIP_OK = 0, SITU_FPGA_CHIP_ERROR = 1, SITU_FPGA_CHIP_WILD = 2, SITU_FPGA_CHIP_DEAF = 3 };

extern "C" {
SituFpgaChip* situ_fpga_chip_new(uint64_t memory_bytes, uint32_t latency, uint32_t stall_per_1000, uint64_t seed);
void situ_fpga_chip_free(SituFpgaChip*);
// The host's side of memory. Places are inside it; the chip writes only what it was lent.
void situ_fpga_chip_put(SituFpgaChip*, uint64_t at, const uint8_t* bytes, uint64_t count);
void situ_fpga_chip_get(const SituFpgaChip*, uint64_t at, uint8_t* bytes, uint64_t count);
void situ_fpga_chip_lend(SituFpgaChip*, uint64_t at, uint64_t count, uint32_t lent);
// A request on the bus: OK, or ERROR as the chip says, or a fault.
int situ_fpga_chip_bus(SituFpgaChip*, uint32_t write, uint32_t addr, uint32_t* data);
// Runs cycles until the interrupt line is up, or `cycles` have passed. `passed` gets the count.
int situ_fpga_chip_step(SituFpgaChip*, uint64_t cycles, uint64_t* passed);
// Inverts a bit at `place` in the lanes of the mask, from now on.
void situ_fpga_chip_flip(SituFpgaChip*, uint32_t lanes, uint32_t place);
}
