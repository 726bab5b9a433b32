// The kernels of GPUs. Before this text come the words of the compiler's language (`words.cu`: CUDA, `words.cl`: OpenCL C),
// and the structs from Rust (`abi.rs`, `layout.rs`): one truth for offsets.
//
// The text is in what both languages have in common: C99, a pointer with the kind of memory that it points to (GLOBAL,
// LOCAL, CONSTANT), memory of a block of threads declared in a kernel only, no references, templates or overloads.
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

#define FULL 0xffffffffu
#define NONE 0xffffffffu

// ---- Small helpers ----

INLINE GLOBAL Counters* counters(PARAMS) { return AT(Counters, P.counters); }
INLINE GLOBAL const TaskHeader* header(PARAMS) { return AT(const TaskHeader, P.task); }

INLINE void fail(PARAMS, u32 status, u64 detail) {
    GLOBAL Counters* C = counters(ARGS);
    if (exchange_if(&C->status, 0u, status) == 0u) C->detail = detail;
}

// All threads of a block of threads leave together, or none: some wait for each other later.
#define ENTER                                                                        \
    DECLARE_LOCAL u32 stop;                                                          \
    if (THREAD_OF_BLOCK == 0) stop = *(volatile GLOBAL u32*)&counters(ARGS)->status; \
    sync_block();                                                                    \
    if (stop) return;

#define THREAD (BLOCK * THREADS_OF_BLOCK + THREAD_OF_BLOCK)
#define THREADS (BLOCKS * THREADS_OF_BLOCK)
#define WARP (THREAD >> 5)
#define WARPS (THREADS >> 5)

INLINE u32 load32(GLOBAL const u8* p) {
    u32 behind = (u32)(size_t)p & 3u, shift = behind * 8;
    GLOBAL const u32* a = (GLOBAL const u32*)(p - behind);
    u32 low = a[0];
    return shift ? funnel_right(low, a[1], shift) : low;
}

// The same at byte i of memory that begins at a word: no branch, and the address stays one of shared memory.
INLINE u32 word_at(LOCAL const u32* words, u32 i) {
    return funnel_right(words[i >> 2], words[(i >> 2) + 1], (i & 3) * 8);
}

INLINE u64 load64(GLOBAL const u8* p) {
    u32 behind = (u32)(size_t)p & 3u, shift = behind * 8;
    GLOBAL const u32* a = (GLOBAL const u32*)(p - behind);
    u32 low = a[0], middle = a[1];
    if (shift == 0) return (u64)middle << 32 | low;
    u32 high = a[2];
    return (u64)funnel_right(middle, high, shift) << 32 | funnel_right(low, middle, shift);
}

INLINE u64 swap64(u64 x) {
    u32 low = (u32)x, high = (u32)(x >> 32);
    return (u64)swap32(low) << 32 | swap32(high);
}

INLINE u32 varint_bytes(u32 n) { return n < 128 ? 1 : n < 16384 ? 2 : 3; }
INLINE u32 entry_bytes(u32 shared, u32 unshared, u32 value) {
    return varint_bytes(shared) + varint_bytes(unshared) + varint_bytes(value) + unshared + 8 + value;
}

// ---- CRC-32C by a warp ----
//
// Zeros in front of a message do not change a register that is 0, and a register of ones is the message's first four
// bytes inverted. So the message, of no byte or of four and more, is taken as rows of 128 bytes, the first one filled up in front. Lane l has word l of
// each row. `crc_tables` advance a register by 4, 8, 16, 32, 64 and 128 bytes of zeros.

// Of tables in either kind of memory.
#define ADVANCE(t, x) ((t)[(x) & 255] ^ (t)[256 + ((x) >> 8 & 255)] ^ (t)[512 + ((x) >> 16 & 255)] ^ (t)[768 + ((x) >> 24)])

FUNCTION u32 warp_crc(PARAMS, LOCAL const u32* by128, GLOBAL const u8* p, u32 bytes, u32 lane) {
    GLOBAL const u32* tables = AT(const u32, P.crc_tables);
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
        r = ADVANCE(by128, r) ^ word;
    }
    for (u32 s = 0; s < 5; s++) {
        u32 right = lane_down(r, 1u << s);
        if ((lane & ((2u << s) - 1)) == 0) r = ADVANCE(tables + 1024 * s, r) ^ right;
    }
    r = bytes ? ~ADVANCE(tables, r) : 0;
    return lane_get(r, 0);
}

#define LOAD_BY128                                                         \
    DECLARE_LOCAL u32 by128[1024];                                         \
    for (u32 i = THREAD_OF_BLOCK; i < 1024; i += THREADS_OF_BLOCK) {       \
        by128[i] = AT(const u32, P.crc_tables)[5 * 1024 + i];              \
    }                                                                      \
    sync_block();
