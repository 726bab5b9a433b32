// The kernels of the CUDA unit. The structs above this text come from Rust (`abi.rs`, `layout.rs`): one truth for offsets.
//
// A task is a fixed sequence of launches (`steps.rs`). How many items a launch has is known on the device only, so every
// kernel walks its items with the stride of the grid and reads their number from the counters. No launch waits for the host.
//
//   check_blocks   a warp a block: CRC-32C, LZ4, the place of the restarts
//   list_intervals, count_entries, note_entries   a thread a restart interval: where entries are
//   decode_entries a thread an entry: tuples, whole keys
//   merge_ranks    a thread an entry: its place in the merge, by bisection of the other ways
//   see            a thread an entry: what the rules of snapshots and tombstones keep, by neighbours
//   compact, measure, next_cuts, chain...   where blocks begin
//   encode, pack   a warp a block
//
// Invariants: an error sets the status once, and all later launches return at once. Whoever follows an offset of a block
// has checked it. A warp's lanes reach every collective together.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef EMULATED
#define OWN_MEMORY alignas(16) static u64 own_memory[8192];
#else
#define OWN_MEMORY extern __shared__ u64 own_memory[];
#endif

#define FULL 0xffffffffu
#define NONE 0xffffffffu

// ---- Small helpers ----

__device__ __forceinline__ Counters* counters(const Params& P) { return (Counters*)P.counters; }
__device__ __forceinline__ const TaskHeader* header(const Params& P) { return (const TaskHeader*)P.task; }

__device__ __forceinline__ void fail(const Params& P, u32 status, u64 detail) {
    Counters* C = counters(P);
    if (atomicCAS(&C->status, 0u, status) == 0u) C->detail = detail;
}

// All threads of a block of threads leave together, or none: some wait for each other later.
#define ENTER                                                  \
    __shared__ u32 stop;                                       \
    if (threadIdx.x == 0) stop = *(volatile u32*)&counters(P)->status; \
    __syncthreads();                                           \
    if (stop) return;

#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)
#define THREADS (gridDim.x * blockDim.x)
#define LANE (threadIdx.x & 31u)
#define WARP (THREAD >> 5)
#define WARPS (THREADS >> 5)

__device__ __forceinline__ u32 load32(const u8* p) {
    u64 address = (u64)p;
    const u32* a = (const u32*)(address & ~3ull);
    u32 shift = (u32)(address & 3) * 8;
    u32 low = a[0];
    return shift ? __funnelshift_r(low, a[1], shift) : low;
}

// The same at byte i of memory that begins at a word: no branch, and the address stays one of shared memory.
__device__ __forceinline__ u32 word_at(const u32* words, u32 i) {
    return __funnelshift_r(words[i >> 2], words[(i >> 2) + 1], (i & 3) * 8);
}

__device__ __forceinline__ u64 load64(const u8* p) {
    u64 address = (u64)p;
    const u32* a = (const u32*)(address & ~3ull);
    u32 shift = (u32)(address & 3) * 8, low = a[0], middle = a[1];
    if (shift == 0) return (u64)middle << 32 | low;
    u32 high = a[2];
    return (u64)__funnelshift_r(middle, high, shift) << 32 | __funnelshift_r(low, middle, shift);
}

__device__ __forceinline__ u64 swap64(u64 x) {
    u32 low = (u32)x, high = (u32)(x >> 32);
    return (u64)__byte_perm(low, 0, 0x0123) << 32 | __byte_perm(high, 0, 0x0123);
}

__device__ __forceinline__ u32 varint_bytes(u32 n) { return n < 128 ? 1 : n < 16384 ? 2 : 3; }
__device__ __forceinline__ u32 entry_bytes(u32 shared, u32 unshared, u32 value) {
    return varint_bytes(shared) + varint_bytes(unshared) + varint_bytes(value) + unshared + 8 + value;
}

// ---- CRC-32C by a warp ----
//
// Zeros in front of a message do not change a register that is 0, and a register of ones is the message's first four
// bytes inverted. So the message, of no byte or of four and more, is taken as rows of 128 bytes, the first one filled up in front. Lane l has word l of
// each row. `crc_tables` advance a register by 4, 8, 16, 32, 64 and 128 bytes of zeros.

__device__ __forceinline__ u32 advance(const u32* t, u32 x) {
    return t[x & 255] ^ t[256 + (x >> 8 & 255)] ^ t[512 + (x >> 16 & 255)] ^ t[768 + (x >> 24)];
}

__device__ u32 warp_crc(const Params& P, const u32* by128, const u8* p, u32 bytes, u32 lane) {
    const u32* tables = (const u32*)P.crc_tables;
    u32 pad = (0u - bytes) & 127u;
    u32 rows = (bytes + pad) / 128;
    u32 r = 0;
    for (u32 row = 0; row < rows; row++) {
        int at = (int)(row * 128 + 4 * lane) - (int)pad;
        u32 word;
        if (at >= 4) {
            word = load32(p + at);
        } else {
            word = 0;
            for (int i = 0; i < 4; i++) {
                int o = at + i;
                if (o >= 0) word |= (u32)(u8)(p[o] ^ (o < 4 ? 0xff : 0)) << (8 * i);
            }
        }
        r = advance(by128, r) ^ word;
    }
    for (u32 s = 0; s < 5; s++) {
        u32 right = __shfl_down_sync(FULL, r, 1u << s);
        if ((lane & ((2u << s) - 1)) == 0) r = advance(tables + 1024 * s, r) ^ right;
    }
    r = bytes ? ~advance(tables, r) : 0;
    return __shfl_sync(FULL, r, 0);
}

#define LOAD_BY128                                                                     \
    __shared__ u32 by128[1024];                                                        \
    for (u32 i = threadIdx.x; i < 1024; i += blockDim.x) by128[i] = ((const u32*)P.crc_tables)[5 * 1024 + i]; \
    __syncthreads();
