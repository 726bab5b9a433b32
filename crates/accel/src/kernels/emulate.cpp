// Runs the kernels on the processor, one thread of them at a time: a test of their logic where there is no GPU.
//
// Each thread of a block of threads is a fiber. A collective stores the lane's value, and lets other fibers run until all
// lanes of the warp that still live have come. Blocks of threads run one after the other, so shared memory is static.
// x86-64 only: a fiber is switched by a few instructions of assembly.
//
// usage: emulate ARENA_IN ARENA_OUT PARAMS BYTES GRID

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define EMULATED
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline

struct Index { unsigned x; };
static Index threadIdx, blockIdx, blockDim, gridDim;

struct Fiber {
    void* stack_pointer;
    std::vector<char> stack;
    bool done;
    unsigned passed_warp, passed_block;
};

extern "C" void switch_fiber(void** save, void* load);
asm(R"(
.text
.globl switch_fiber
switch_fiber:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");

static std::vector<Fiber> fibers;
static void* scheduler;
static unsigned current;
static void (*entry_kernel)();

struct Group { unsigned arrived, generation, live; unsigned long long values[2][32]; unsigned lanes[2]; };
static Group warps[32];
static Group block;

static void yield_fiber() { switch_fiber(&fibers[current].stack_pointer, scheduler); threadIdx.x = current; }

static void release(Group& g) {
    if (g.arrived && g.arrived == g.live) { g.arrived = 0; g.generation++; g.lanes[g.generation & 1] = 0; }
}

// Returns the slot of values in which all lanes have put theirs.
static unsigned meet(Group& g, unsigned long long value) {
    unsigned generation = g.generation, slot = generation & 1, lane = current & 31;
    g.values[slot][lane] = value;
    g.lanes[slot] |= 1u << lane;
    g.arrived++;
    if (g.arrived == g.live) {
        g.arrived = 0;
        g.generation++;
        g.lanes[g.generation & 1] = 0;
    } else {
        while (g.generation == generation) yield_fiber();
    }
    return slot;
}

static void fiber_main() {
    threadIdx.x = current;
    entry_kernel();
    fibers[current].done = true;
    Group& w = warps[current / 32];
    w.live--;
    block.live--;
    release(w);
    release(block);
    while (true) switch_fiber(&fibers[current].stack_pointer, scheduler);
}

static void __syncthreads() { meet(block, 0); }
static Group& my_warp() { return warps[current / 32]; }
static void __syncwarp() { meet(my_warp(), 0); }
template <class T> static T __shfl_sync(unsigned, T value, unsigned lane) {
    Group& w = my_warp();
    return (T)w.values[meet(w, (unsigned long long)value)][lane & 31];
}
template <class T> static T __shfl_down_sync(unsigned, T value, unsigned delta) {
    Group& w = my_warp();
    unsigned lane = current & 31, from = lane + delta < 32 ? lane + delta : lane;
    return (T)w.values[meet(w, (unsigned long long)value)][from];
}
template <class T> static T __shfl_up_sync(unsigned, T value, unsigned delta) {
    Group& w = my_warp();
    unsigned lane = current & 31, from = lane >= delta ? lane - delta : lane;
    return (T)w.values[meet(w, (unsigned long long)value)][from];
}
static unsigned __ballot_sync(unsigned, bool value) {
    Group& w = my_warp();
    unsigned slot = meet(w, value), result = 0;
    for (unsigned i = 0; i < 32; i++) if (w.lanes[slot] >> i & 1 && w.values[slot][i]) result |= 1u << i;
    return result;
}
static unsigned __match_any_sync(unsigned, unsigned value) {
    Group& w = my_warp();
    unsigned slot = meet(w, value), result = 0;
    for (unsigned i = 0; i < 32; i++) if (w.lanes[slot] >> i & 1 && w.values[slot][i] == value) result |= 1u << i;
    return result;
}
template <class T> static T atomicAdd(T* at, T value) { T old = *at; *at += value; return old; }
template <class T> static T atomicMax(T* at, T value) { T old = *at; if (value > old) *at = value; return old; }
template <class T> static T atomicCAS(T* at, T expected, T value) { T old = *at; if (old == expected) *at = value; return old; }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __ffs(int x) { return __builtin_ffs(x); }
static int __ffsll(long long x) { return __builtin_ffsll(x); }
static int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
static unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static unsigned __byte_perm(unsigned x, unsigned, unsigned) { return __builtin_bswap32(x); }

#include "kernels.inc"

static Params params;

template <void (*Kernel)(const Params, unsigned)> static void launch(unsigned grid, unsigned threads, unsigned which) {
    static unsigned argument;
    argument = which;
    entry_kernel = [] { Kernel(params, argument); };
    gridDim.x = grid;
    blockDim.x = threads;
    fibers.resize(threads);
    for (unsigned b = 0; b < grid; b++) {
        blockIdx.x = b;
        block = Group();
        block.live = threads;
        for (unsigned w = 0; w < threads / 32; w++) { warps[w] = Group(); warps[w].live = 32; }
        for (auto& fiber : fibers) {
            fiber.done = false;
            fiber.stack.resize(64 << 10);
            uintptr_t top = ((uintptr_t)fiber.stack.data() + fiber.stack.size()) & ~(uintptr_t)15;
            void** sp = (void**)(top - 8);
            *--sp = (void*)fiber_main;
            for (int i = 0; i < 6; i++) *--sp = 0;
            fiber.stack_pointer = sp;
        }
        bool alive = true;
        while (alive) {
            alive = false;
            for (current = 0; current < threads; current++) {
                if (fibers[current].done) continue;
                alive = true;
                switch_fiber(&scheduler, fibers[current].stack_pointer);
            }
        }
    }
}

static std::vector<char> read_file(const char* path) {
    std::vector<char> bytes;
    FILE* file = fopen(path, "rb");
    if (!file) { perror(path); exit(1); }
    char piece[1 << 16];
    size_t n;
    while ((n = fread(piece, 1, sizeof piece, file)) > 0) bytes.insert(bytes.end(), piece, piece + n);
    fclose(file);
    return bytes;
}

int main(int count, char** arguments) {
    if (count != 6) return 2;
    std::vector<char> front = read_file(arguments[1]), given = read_file(arguments[3]);
    size_t bytes = strtoull(arguments[4], 0, 10);
    unsigned grid = (unsigned)atoi(arguments[5]);
    // Poison: what no kernel wrote must not be read.
    char* arena = (char*)aligned_alloc(256, (bytes + 255) / 256 * 256);
    memset(arena, 0xdb, bytes);
    memcpy(arena, front.data(), front.size());
    memcpy(&params, given.data(), sizeof params);
    unsigned long long* addresses = (unsigned long long*)&params;
    for (unsigned i = 0; i < ADDRESSES; i++) addresses[i] += (unsigned long long)arena;
#define STEP(kernel, threads, many, which) launch<kernel>(many ? grid : 1, threads, which);
#include "steps.inc"
    FILE* out = fopen(arguments[2], "wb");
    if (!out || fwrite(arena, 1, bytes, out) != bytes) return 1;
    return fclose(out);
}
