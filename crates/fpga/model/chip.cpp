// The verilated chip with its memory and its bus.
#include "chip.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "Vchip.h"
#include "memory.h"
#include "verilated.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif

struct SituFpgaChip {
    VerilatedContext context;
    std::unique_ptr<Vchip> circuit;
    situ::Port port;
    std::vector<uint8_t> memory;
    // A word of memory each.
    std::vector<bool> lent;
    uint64_t cycle = 0;

    // A cycle; false if the chip writes what it was not lent.
    bool step() {
        circuit->clk = 0;
        port.before(*circuit, cycle, [&](uint32_t addr) {
            uint64_t word = 0xa5a5a5a5a5a5a5a5ull;
            if (uint64_t(addr) + 8 <= memory.size()) std::memcpy(&word, &memory[addr], 8);
            return word;
        });
        circuit->eval();
        const bool fine = port.after(*circuit, cycle, [&](uint32_t addr, uint64_t word) {
            if (addr % 8 != 0 || uint64_t(addr) + 8 > memory.size() || !lent[addr / 8]) return false;
            std::memcpy(&memory[addr], &word, 8);
            return true;
        });
        circuit->clk = 1;
        circuit->eval();
        cycle++;
        return fine;
    }
};

extern "C" {

SituFpgaChip* situ_fpga_chip_new(uint64_t memory_bytes, uint32_t latency, uint32_t stall, uint64_t seed) {
    auto* chip = new SituFpgaChip;
    chip->context.fatalOnError(true);
    chip->circuit = std::make_unique<Vchip>(&chip->context);
    chip->port = {{seed}, latency, stall, {}, {}, {}};
    chip->memory.resize(memory_bytes);
    chip->lent.resize(memory_bytes / 8);
    chip->circuit->reset = 1;
    for (int i = 0; i < 4; i++) chip->step();
    chip->circuit->reset = 0;
    return chip;
}

void situ_fpga_chip_free(SituFpgaChip* chip) {
    chip->circuit->final();
#if VM_COVERAGE
    static std::atomic<unsigned> runs{0};
    if (const char* path = std::getenv("SITU_FPGA_COVERAGE"))
        chip->context.coveragep()->write((std::string(path) + ".chip." + std::to_string(runs++)).c_str());
#endif
    delete chip;
}

void situ_fpga_chip_put(SituFpgaChip* chip, uint64_t at, const uint8_t* bytes, uint64_t count) {
    std::copy(bytes, bytes + count, chip->memory.begin() + at);
}

void situ_fpga_chip_get(const SituFpgaChip* chip, uint64_t at, uint8_t* bytes, uint64_t count) {
    std::copy_n(chip->memory.begin() + at, count, bytes);
}

void situ_fpga_chip_lend(SituFpgaChip* chip, uint64_t at, uint64_t count, uint32_t lent) {
    std::fill_n(chip->lent.begin() + at / 8, count / 8, lent != 0);
}

int situ_fpga_chip_bus(SituFpgaChip* chip, uint32_t write, uint32_t addr, uint32_t* data) {
    Vchip& circuit = *chip->circuit;
    circuit.bus_valid = 1;
    circuit.bus_write = write;
    circuit.bus_addr = addr;
    circuit.bus_wdata = *data;
    for (int i = 0; i < 100; i++) {
        circuit.clk = 0;
        circuit.eval();
        const bool taken = circuit.bus_valid && circuit.bus_ready;
        if (!chip->step()) return SITU_FPGA_CHIP_WILD;
        if (taken) circuit.bus_valid = 0;
        if (circuit.bus_done) {
            *data = circuit.bus_rdata;
            return circuit.bus_error ? SITU_FPGA_CHIP_ERROR : SITU_FPGA_CHIP_OK;
        }
    }
    return SITU_FPGA_CHIP_DEAF;
}

int situ_fpga_chip_step(SituFpgaChip* chip, uint64_t cycles, uint64_t* passed) {
    for (*passed = 0; *passed < cycles && !chip->circuit->irq; ++*passed)
        if (!chip->step()) return SITU_FPGA_CHIP_WILD;
    return SITU_FPGA_CHIP_OK;
}

void situ_fpga_chip_flip(SituFpgaChip* chip, uint32_t lanes, uint32_t place) {
    chip->circuit->flip = lanes;
    chip->circuit->flip_place = place;
}
}
