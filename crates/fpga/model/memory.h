// A simulated memory at a circuit's port. It answers bursts in order, `latency` cycles later, and makes random pauses on
// every channel. The unit and the chip have the same port; its words are of 8 or 16 bytes.
#pragma once
#include <cstdint>
#include <cstring>
#include <deque>

namespace situ {

struct Random {
    uint64_t state;
    uint64_t next() {
        state += 0x9e3779b97f4a7c15ull;
        uint64_t z = state;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
    }
    bool in_1000(uint32_t share) { return share != 0 && next() % 1000 < share; }
};

struct Port {
    struct Burst {
        uint64_t ready_at;
        uint32_t addr;
        uint32_t left;
    };

    Random random;
    uint32_t latency;
    uint32_t stall;
    std::deque<Burst> reads, writes;
    std::deque<uint64_t> answers;

    // Sets what the circuit sees in this cycle. `read(addr)` returns eight bytes.
    template <class Circuit, class Read>
    void before(Circuit& circuit, uint64_t cycle, Read read) {
        circuit.ar_ready = reads.size() < 64 && !random.in_1000(stall);
        circuit.aw_ready = writes.size() < 16 && !random.in_1000(stall);
        circuit.r_valid = !reads.empty() && reads.front().ready_at <= cycle && !random.in_1000(stall);
        for (uint32_t at = 0; at < sizeof circuit.r_data; at += 8) {
            const uint64_t bytes = circuit.r_valid ? read(reads.front().addr + at) : random.next();
            std::memcpy(reinterpret_cast<char*>(&circuit.r_data) + at, &bytes, 8);
        }
        circuit.r_last = circuit.r_valid && reads.front().left == 1;
        circuit.w_ready = !writes.empty() && !random.in_1000(stall);
        circuit.b_valid = !answers.empty() && answers.front() <= cycle && !random.in_1000(stall);
    }

    // Does what the circuit asks for. `write(addr, bytes)` writes eight; it returns false for an address that is not the
    // circuit's.
    template <class Circuit, class Write>
    bool after(Circuit& circuit, uint64_t cycle, Write write) {
        if (circuit.ar_valid && circuit.ar_ready) reads.push_back({cycle + latency, circuit.ar_addr, circuit.ar_len + 1u});
        if (circuit.r_valid && circuit.r_ready) {
            reads.front().addr += sizeof circuit.r_data;
            if (--reads.front().left == 0) reads.pop_front();
        }
        if (circuit.b_valid && circuit.b_ready) answers.pop_front();
        if (circuit.w_valid && circuit.w_ready) {
            Burst& burst = writes.front();
            for (uint32_t at = 0; at < sizeof circuit.w_data; at += 8) {
                uint64_t bytes;
                std::memcpy(&bytes, reinterpret_cast<const char*>(&circuit.w_data) + at, 8);
                if (!write(burst.addr + at, bytes)) return false;
            }
            burst.addr += sizeof circuit.w_data;
            if ((--burst.left == 0) != bool(circuit.w_last)) return false;
            if (burst.left == 0) {
                writes.pop_front();
                answers.push_back(cycle + latency);
            }
        }
        if (circuit.aw_valid && circuit.aw_ready) writes.push_back({0, circuit.aw_addr, circuit.aw_len + 1u});
        return true;
    }
};

}  // namespace situ
