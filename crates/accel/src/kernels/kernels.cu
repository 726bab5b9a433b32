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
#define OWN_MEMORY static u64 own_memory[8192];
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
// bytes inverted. So the message is taken as rows of 128 bytes, the first one filled up in front. Lane l has word l of
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
    r = ~advance(tables, r);
    return __shfl_sync(FULL, r, 0);
}

#define LOAD_BY128                                                                     \
    __shared__ u32 by128[1024];                                                        \
    for (u32 i = threadIdx.x; i < 1024; i += blockDim.x) by128[i] = ((const u32*)P.crc_tables)[5 * 1024 + i]; \
    __syncthreads();

// ---- Input blocks ----

// Every lane reads the same bytes of the stream, and all copy.
__device__ bool lz4_decode(const u8* src, u32 bytes, u8* dst, u32 size, u32 lane) {
    u32 ip = 0, op = 0;
    while (true) {
        if (ip >= bytes) return false;
        u32 token = src[ip++];
        u32 literals = token >> 4;
        if (literals == 15) {
            u32 more;
            do {
                if (ip >= bytes) return false;
                more = src[ip++];
                literals += more;
            } while (more == 255);
        }
        if (literals > bytes - ip || literals > size - op) return false;
        for (u32 i = lane; i < literals; i += 32) dst[op + i] = src[ip + i];
        ip += literals;
        op += literals;
        if (ip == bytes) break;
        if (bytes - ip < 2) return false;
        u32 offset = src[ip] | (u32)src[ip + 1] << 8;
        ip += 2;
        if (offset == 0 || offset > op) return false;
        u32 length = token & 15;
        if (length == 15) {
            u32 more;
            do {
                if (ip >= bytes) return false;
                more = src[ip++];
                length += more;
            } while (more == 255);
        }
        length += 4;
        if (length > size - op) return false;
        __syncwarp();
        const u8* from = dst + op - offset;
        if (offset >= length) {
            for (u32 i = lane; i < length; i += 32) dst[op + i] = from[i];
        } else {
            for (u32 i = lane; i < length; i += 32) dst[op + i] = from[i % offset];
        }
        op += length;
        __syncwarp();
    }
    __syncwarp();
    return op == size;
}

extern "C" __global__ void check_blocks(const Params P, u32 which) {
    ENTER
    LOAD_BY128
    const InputBlock* blocks = (const InputBlock*)(P.task + header(P)->blocks_at);
    u32 count = header(P)->blocks, lane = LANE;
    for (u32 b = WARP; b < count; b += WARPS) {
        u32 stored_bytes = blocks[b].stored_bytes, raw_bytes = blocks[b].raw_bytes;
        const u8* stored = (const u8*)(P.data + blocks[b].at);
        u32 restarts = 0;
        const u8* raw = stored;
        u32 found = warp_crc(P, by128, stored, stored_bytes - 4, lane);
        if (found != load32(stored + stored_bytes - 4)) {
            if (lane == 0) fail(P, STATUS_CHECKSUM, b);
        } else {
            u32 kind = stored[stored_bytes - 5];
            bool sound = kind == 0 && raw_bytes == stored_bytes - 5;
            if (kind == 1 && load32(stored) == raw_bytes) {
                u8* to = (u8*)(P.scratch + 16ull * ((const u32*)P.slots)[b]);
                sound = lz4_decode(stored + 4, stored_bytes - 9, to, raw_bytes, lane);
                raw = to;
            }
            if (sound) {
                restarts = load32(raw + raw_bytes - 4);
                sound = restarts <= (raw_bytes - 4) / 4 && (restarts == 0) == (raw_bytes == 4 + 4 * restarts);
            }
            if (!sound) {
                restarts = 0;
                if (lane == 0) fail(P, STATUS_BLOCK, b);
            }
        }
        if (lane == 0) {
            ((u64*)P.block_raw)[b] = (u64)raw;
            ((u32*)P.block_restarts)[b] = restarts;
        }
    }
}

// ---- Prefix sums ----
//
// Exclusive sums of one of the lists, with the total behind the last. Three launches: sums of tiles, sums of sums, sums.

#define TILE 2048u

__device__ void scan_of(const Params& P, u32 which, const u32** from, u32** to, u32* count, u32* mask) {
    Counters* C = counters(P);
    *mask = FULL;
    switch (which) {
    case 0: *from = (u32*)P.block_restarts; *to = (u32*)P.block_interval; *count = header(P)->blocks; break;
    case 1: *from = (u32*)P.interval_entries; *to = (u32*)P.interval_entry; *count = C->intervals; break;
    case 2: *from = (u32*)P.keep; *to = (u32*)P.keep_at; *count = C->entries; break;
    case 3: *from = (u32*)P.new_key; *to = (u32*)P.hash_at; *count = C->kept; break;
    case 6: *from = (u32*)P.sizes; *to = (u32*)P.small_at; *count = C->kept; *mask = 0xffff; break;
    case 4: *from = (u32*)P.out_raw; *to = (u32*)P.out_raw_at; *count = C->chain; break;
    default: *from = (u32*)P.out_stored; *to = (u32*)P.out_at; *count = C->out; break;
    }
}

extern "C" __global__ void scan_tiles(const Params P, u32 which) {
    ENTER
    const u32* from; u32* to; u32 count, mask;
    scan_of(P, which, &from, &to, &count, &mask);
    __shared__ u32 sums[8];
    u32 tiles = (count + TILE - 1) / TILE;
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        u32 sum = 0;
        for (u32 i = 0; i < TILE / 256; i++) {
            u32 at = tile * TILE + i * 256 + threadIdx.x;
            if (at < count) sum += from[at] & mask;
        }
        for (u32 d = 16; d; d /= 2) sum += __shfl_down_sync(FULL, sum, d);
        if (LANE == 0) sums[threadIdx.x >> 5] = sum;
        __syncthreads();
        if (threadIdx.x == 0) {
            u32 total = 0;
            for (u32 i = 0; i < 8; i++) total += sums[i];
            ((u32*)P.tile_sums)[tile] = total;
        }
        __syncthreads();
    }
}

// One block of 256 threads; returns with the sum before each thread's part in *before and the sum of all.
__device__ u32 block_sums(u32 mine, u32* before, u32* shared) {
    u32 lane = LANE, warp = threadIdx.x >> 5, inclusive = mine;
    for (u32 d = 1; d < 32; d *= 2) {
        u32 left = __shfl_up_sync(FULL, inclusive, d);
        if (lane >= d) inclusive += left;
    }
    if (lane == 31) shared[warp] = inclusive;
    __syncthreads();
    u32 offset = 0, total = 0;
    for (u32 i = 0; i < 8; i++) {
        if (i < warp) offset += shared[i];
        total += shared[i];
    }
    __syncthreads();
    *before = offset + inclusive - mine;
    return total;
}

extern "C" __global__ void scan_top(const Params P, u32 which) {
    ENTER
    const u32* from; u32* to; u32 count, mask;
    scan_of(P, which, &from, &to, &count, &mask);
    __shared__ u32 shared[8];
    u32* sums = (u32*)P.tile_sums;
    u32 tiles = (count + TILE - 1) / TILE, carried = 0;
    for (u32 base = 0; base < tiles; base += 256) {
        u32 at = base + threadIdx.x, mine = at < tiles ? sums[at] : 0, before;
        u32 total = block_sums(mine, &before, shared);
        if (at < tiles) sums[at] = carried + before;
        carried += total;
    }
    if (threadIdx.x != 0) return;
    to[count] = carried;
    Counters* C = counters(P);
    if (which == 0) {
        C->intervals = carried;
        if (carried > P.intervals_max) fail(P, STATUS_SPACE, carried);
    } else if (which == 1) {
        C->entries = carried;
        if (carried > header(P)->entries_max) fail(P, STATUS_SPACE, carried);
    } else if (which == 2) {
        C->kept = carried;
        u64 first = header(P)->emit_from;
        C->emit_from = first < carried ? (u32)first : carried;
    } else if (which == 5) {
        C->data_bytes = carried;
        if (carried > header(P)->result_bytes_max) fail(P, STATUS_SPACE, carried);
    }
}

extern "C" __global__ void scan_apply(const Params P, u32 which) {
    ENTER
    const u32* from; u32* to; u32 count, mask;
    scan_of(P, which, &from, &to, &count, &mask);
    __shared__ u32 shared[8];
    u32 tiles = (count + TILE - 1) / TILE;
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        u32 carried = ((const u32*)P.tile_sums)[tile];
        for (u32 i = 0; i < TILE / 256; i++) {
            u32 at = tile * TILE + i * 256 + threadIdx.x, mine = at < count ? from[at] & mask : 0, before;
            u32 total = block_sums(mine, &before, shared);
            if (at < count) to[at] = carried + before;
            carried += total;
        }
    }
}

// ---- Entries ----

extern "C" __global__ void list_intervals(const Params P, u32 which) {
    ENTER
    u32 count = header(P)->blocks;
    const u32* first = (const u32*)P.block_interval;
    for (u32 b = WARP; b < count; b += WARPS) {
        for (u32 i = first[b] + LANE; i < first[b + 1]; i += 32) ((u32*)P.interval_block)[i] = b;
    }
}

// The bytes of an interval in its block. False if the restarts do not say.
__device__ bool interval_of(const Params& P, u32 interval, const u8** raw, u32* at, u32* end, u32* block) {
    u32 b = ((const u32*)P.interval_block)[interval];
    const InputBlock* blocks = (const InputBlock*)(P.task + header(P)->blocks_at);
    const u32* first = (const u32*)P.block_interval;
    u32 count = first[b + 1] - first[b], i = interval - first[b];
    u32 entries_end = blocks[b].raw_bytes - 4 - 4 * count;
    const u8* bytes = (const u8*)((const u64*)P.block_raw)[b];
    const u8* restarts = bytes + entries_end;
    *at = load32(restarts + 4 * i);
    *end = i + 1 < count ? load32(restarts + 4 * i + 4) : entries_end;
    *raw = bytes;
    *block = b;
    return *at < *end && *end <= entries_end && (i > 0 || *at == 0);
}

// An entry's lengths, and the place behind its header; 0 if a varint is longer than two bytes.
__device__ __forceinline__ u32 entry_header(const u8* raw, u32 at, u32* shared, u32* unshared, u32* value) {
    u32 all = load32(raw + at);
    if ((all & 0x808080) == 0) {
        *shared = all & 255;
        *unshared = all >> 8 & 255;
        *value = all >> 16 & 255;
        return at + 3;
    }
    u32 n = raw[at++];
    if (n >= 128) { u32 m = raw[at++]; if (m >= 128) return 0; n = (n & 127) | m << 7; }
    *shared = n;
    n = raw[at++];
    if (n >= 128) { u32 m = raw[at++]; if (m >= 128) return 0; n = (n & 127) | m << 7; }
    *unshared = n;
    n = raw[at++];
    if (n >= 128) { u32 m = raw[at++]; if (m >= 128) return 0; n = (n & 127) | m << 7; }
    *value = n;
    return at;
}

// Counts an interval's entries and checks that they end where it ends. With a place to write to, notes for each entry where
// its suffix begins (16 bits), what it shares and what it does not (8 bits each).
__device__ u32 walk_interval(const Params& P, u32 interval, u32* notes) {
    u32 keys_max = header(P)->key_bytes_max, values_max = header(P)->value_bytes_max;
    const u8* raw;
    u32 at, end, block, entries = 0, shared, unshared, value;
    bool sound = interval_of(P, interval, &raw, &at, &end, &block);
    while (sound && at < end) {
        // A header may reach over the entries into restarts and trailer, never out of the block's memory.
        u32 body = entry_header(raw, at, &shared, &unshared, &value);
        if (body == 0 || shared + unshared > keys_max || value > values_max) {
            fail(P, STATUS_LIMIT, block);
            break;
        }
        if (notes) notes[entries] = body | shared << 16 | unshared << 24;
        at = body + unshared + 8 + value;
        sound = at <= end;
        entries++;
    }
    if (!sound) fail(P, STATUS_BLOCK, block);
    return entries;
}

extern "C" __global__ void count_entries(const Params P, u32 which) {
    ENTER
    u32 count = counters(P)->intervals;
    for (u32 i = THREAD; i < count; i += THREADS) ((u32*)P.interval_entries)[i] = walk_interval(P, i, 0);
}

extern "C" __global__ void note_entries(const Params P, u32 which) {
    ENTER
    u32 count = counters(P)->intervals;
    for (u32 i = THREAD; i < count; i += THREADS) walk_interval(P, i, (u32*)P.notes + ((const u32*)P.interval_entry)[i]);
}

extern "C" __global__ void find_ways(const Params P, u32 which) {
    ENTER
    const Way* ways = (const Way*)(P.task + header(P)->ways_at);
    u32 way = threadIdx.x;
    if (way < header(P)->ways) {
        u32 interval = ((const u32*)P.block_interval)[ways[way].first_block];
        counters(P)->way_entry[way] = ((const u32*)P.interval_entry)[interval];
    }
}

__device__ __forceinline__ const u64* key_of(const Params& P, u32 e) { return (const u64*)(P.keys + (u64)e * P.key_stride); }
__device__ __forceinline__ u32 key_bytes(const Params& P, u32 e) { return ((const u32*)P.lengths)[e] >> 16; }
__device__ __forceinline__ u32 value_bytes(const Params& P, u32 e) { return ((const u32*)P.lengths)[e] & 0xffff; }
__device__ __forceinline__ u64 trailer_of(const Params& P, u32 e) { return ((const u64*)P.trailers)[e]; }

// Puts the bytes at p, which are those from `from` to before `end` of a key, into four words of the key, from `base` on.
__device__ __forceinline__ void put_bytes(u64* four, u32 base, const u8* p, u32 from, u32 end) {
#pragma unroll
    for (u32 w = 0; w < 4; w++) {
        u32 begin = base + 8 * w, low = from > begin ? from : begin, high = end < begin + 8 ? end : begin + 8;
        if (low < high) {
            u64 bytes = load64(p + (low - from));
            if (high - low < 8) bytes &= (1ull << (8 * (high - low))) - 1;
            four[w] |= bytes << (8 * (low - begin));
        }
    }
}

// A warp has a block's entries, neighbours in neighbouring lanes. A key is its suffix and, from the entries before it back
// to the restart, each byte's last writing.
extern "C" __global__ void decode_entries(const Params P, u32 which) {
    ENTER
    u32 count = header(P)->blocks, words = P.key_stride / 8, prefix = header(P)->shared_prefix_bytes;
    const u32* notes = (const u32*)P.notes;
    const u32* first = (const u32*)P.block_interval;
    const u32* entry_of = (const u32*)P.interval_entry;
    u32 head_word = prefix / 8, shift = prefix % 8 * 8;
    for (u32 b = WARP; b < count; b += WARPS) {
        const u8* raw = (const u8*)((const u64*)P.block_raw)[b];
        u32 begin = entry_of[first[b]], end = entry_of[first[b + 1]];
        for (u32 e = begin + LANE; e < end; e += 32) {
            u32 note = notes[e], body = note & 0xffff, shared = note >> 16 & 255, unshared = note >> 24;
            u32 length = shared + unshared, before = e > begin ? notes[e - 1] : 0;
            // The header's last varint ends before the suffix. No varint's last byte has its high bit set.
            u32 value = raw[body - 1], low = raw[body - 2];
            if (low >= 128) value = value << 7 | (low & 127);
            const u8* behind = raw + body + unshared;
            u64 trailer = load64(behind);
            if (shared > (before >> 16 & 255) + (before >> 24)) fail(P, STATUS_BLOCK, b);
            if ((trailer & 255) > 2) fail(P, STATUS_LIMIT, b);
            u64* key = (u64*)key_of(P, e);
            u64 head = 0;
            for (u32 w = 0; w < words; w += 4) {
                u64 four[4] = {0, 0, 0, 0};
                put_bytes(four, 8 * w, raw + body, shared, length);
                u32 missing = shared;
                for (u32 j = e; missing > 0 && j > begin;) {
                    j--;
                    u32 other = notes[j], other_shared = other >> 16 & 255;
                    if (other_shared < missing) {
                        put_bytes(four, 8 * w, raw + (other & 0xffff), other_shared, missing);
                        missing = other_shared;
                    }
                }
#pragma unroll
                for (u32 k = 0; k < 4; k++) {
                    if (w + k < words) key[w + k] = four[k];
                    if (w + k == head_word) head |= four[k] >> shift;
                    if (shift && w + k == head_word + 1) head |= four[k] << (64 - shift);
                }
            }
            ((u64*)P.heads)[e] = swap64(head);
            ((u64*)P.trailers)[e] = trailer;
            ((u64*)P.values)[e] = (u64)(behind + 8);
            ((u32*)P.lengths)[e] = length << 16 | value;
        }
    }
}

// ---- Merge ----

// Compares whole user keys: keys have zeros behind their end, so words decide, and then lengths.
__device__ int compare_users(const Params& P, u32 a, u32 b) {
    const u64 *x = key_of(P, a), *y = key_of(P, b);
    u32 words = P.key_stride / 8;
    for (u32 w = 0; w < words; w++) {
        if (x[w] != y[w]) return swap64(x[w]) < swap64(y[w]) ? -1 : 1;
    }
    u32 m = key_bytes(P, a), n = key_bytes(P, b);
    return m < n ? -1 : m > n;
}

__device__ __forceinline__ bool same_user(const Params& P, u32 a, u32 b) {
    const u64* heads = (const u64*)P.heads;
    return heads[a] == heads[b] && compare_users(P, a, b) == 0;
}

// The order of internal keys, where b's head and trailer are at hand.
__device__ __forceinline__ int compare(const Params& P, u32 a, u32 b, u64 head, u64 trailer) {
    u64 other = ((const u64*)P.heads)[a];
    if (other != head) return other < head ? -1 : 1;
    int users = compare_users(P, a, b);
    if (users) return users;
    u64 t = trailer_of(P, a);
    return t > trailer ? -1 : t < trailer;
}

// How many entries of low..high are before e; those equal to e, too, if `with_equal`. low and high are absolute.
__device__ u32 bisect(const Params& P, u32 low, u32 high, u32 e, bool with_equal) {
    u64 head = ((const u64*)P.heads)[e], trailer = trailer_of(P, e);
    int before = with_equal ? 1 : 0;
    while (low < high) {
        u32 middle = low + (high - low) / 2;
        if (compare(P, middle, e, head, trailer) < before) low = middle + 1; else high = middle;
    }
    return low;
}

// An entry's place in the merge is its place in its own way and, for each other way, how many entries there are before it.
// An equal one counts as before in a newer way and as behind in an older one, so places are never shared. A block of
// threads has neighbours: the first and the last of them bound the bisections of all.
extern "C" __global__ void merge_ranks(const Params P, u32 which) {
    ENTER
    Counters* C = counters(P);
    __shared__ u32 lows[16], highs[16];
    u32 count = C->entries, ways = header(P)->ways;
    for (u32 base = blockIdx.x * blockDim.x; base < count; base += gridDim.x * blockDim.x) {
        u32 last = base + blockDim.x - 1 < count ? base + blockDim.x - 1 : count - 1;
        u32 way_of_first = 0, way_of_last = 0;
        for (u32 w = 1; w < ways; w++) {
            if (C->way_entry[w] <= base) way_of_first = w;
            if (C->way_entry[w] <= last) way_of_last = w;
        }
        if (threadIdx.x < 2 * ways) {
            u32 w = threadIdx.x / 2, begin = C->way_entry[w], end = w + 1 < ways ? C->way_entry[w + 1] : count;
            bool is_high = threadIdx.x & 1, narrow = way_of_first == way_of_last;
            u32 bound = is_high ? end : begin;
            if (narrow && w != way_of_first) bound = bisect(P, begin, end, is_high ? last : base, w < way_of_first);
            if (is_high) highs[w] = bound; else lows[w] = bound;
        }
        __syncthreads();
        u32 e = base + threadIdx.x;
        if (e < count) {
            u32 way = 0;
            for (u32 w = 1; w < ways; w++) if (C->way_entry[w] <= e) way = w;
            u32 begin = C->way_entry[way], rank = e - begin;
            if (e > begin && compare(P, e - 1, e, ((const u64*)P.heads)[e], trailer_of(P, e)) >= 0) fail(P, STATUS_ORDER, e);
            for (u32 w = 0; w < ways; w++) {
                if (w != way) rank += bisect(P, lows[w], highs[w], e, w < way) - C->way_entry[w];
            }
            // Ways out of order could give a place that does not exist, and are refused anyway.
            if (rank < count) ((u32*)P.order)[rank] = e;
        }
        __syncthreads();
    }
}

// ---- What is kept ----

__device__ u32 stripe_of(const Params& P, u64 trailer) {
    const u64* snapshots = (const u64*)(P.task + header(P)->snapshots_at);
    u64 sequence = trailer >> 8;
    u32 low = 0, high = header(P)->snapshots;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (snapshots[middle] < sequence) low = middle + 1; else high = middle;
    }
    return low;
}

// Compares an entry's user key with bytes.
__device__ int compare_bytes(const Params& P, u32 e, const u8* other, u32 bytes) {
    const u8* key = (const u8*)key_of(P, e);
    u32 mine = key_bytes(P, e), both = mine < bytes ? mine : bytes;
    for (u32 i = 0; i < both; i++) {
        if (key[i] != other[i]) return key[i] < other[i] ? -1 : 1;
    }
    return mine < bytes ? -1 : mine > bytes;
}

__device__ bool in_range(const Params& P, u32 e) {
    const TaskHeader* H = header(P);
    const u8* keys = (const u8*)(P.task + H->keys_at);
    if (H->lower_bytes && compare_bytes(P, e, keys, H->lower_bytes) < 0) return false;
    return H->upper_bytes == NONE || compare_bytes(P, e, keys + H->lower_bytes, H->upper_bytes) < 0;
}

__device__ bool lies_below(const Params& P, u32 e) {
    const TaskHeader* H = header(P);
    if (H->flags & FLAG_BELOW_ALL) return true;
    const Span* spans = (const Span*)(P.task + H->spans_at);
    const u8* keys = (const u8*)(P.task + H->keys_at);
    // The number of spans that begin at or before the key.
    u32 low = 0, high = H->spans;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (compare_bytes(P, e, keys + spans[middle].begin_at, spans[middle].begin_bytes) >= 0) low = middle + 1; else high = middle;
    }
    return low > 0 && compare_bytes(P, e, keys + spans[low - 1].end_at, spans[low - 1].end_bytes) < 0;
}

// A tombstone stays if an older value of its key does: the newest one in some stripe further down.
__device__ bool hides_something(const Params& P, u32 rank, u32 stripe, u32 count) {
    const u32* order = (const u32*)P.order;
    u32 e = order[rank];
    for (u32 i = rank + 1; i < count && same_user(P, order[i], e); i++) {
        u64 trailer = trailer_of(P, order[i]);
        u32 other = stripe_of(P, trailer);
        if (other != stripe && (trailer & 255) != 0) return true;
        stripe = other;
    }
    return false;
}

extern "C" __global__ void see(const Params P, u32 which) {
    ENTER
    Counters* C = counters(P);
    const u32* order = (const u32*)P.order;
    u32 count = C->entries;
    for (u32 base = blockIdx.x * blockDim.x; base < count; base += gridDim.x * blockDim.x) {
        u32 rank = base + threadIdx.x;
        bool counts = false, hidden = false, dropped = false, zeroed = false, keep = false;
        if (rank < count) {
            u32 e = order[rank];
            u64 trailer = trailer_of(P, e);
            counts = in_range(P, e);
            if (counts) {
                u32 stripe = stripe_of(P, trailer);
                if (rank > 0 && same_user(P, order[rank - 1], e)) {
                    u64 newer = trailer_of(P, order[rank - 1]);
                    if (newer <= trailer) fail(P, STATUS_ORDER, e);
                    hidden = stripe_of(P, newer) == stripe;
                }
                if (!hidden) {
                    bool below = lies_below(P, e);
                    if ((trailer & 255) == 0) {
                        keep = below || (stripe > 0 && hides_something(P, rank, stripe, count));
                        dropped = !keep;
                    } else {
                        keep = true;
                        zeroed = stripe == 0 && !below && (trailer >> 8) > 0;
                        if (zeroed) trailer &= 255;
                    }
                }
            }
            ((u32*)P.keep)[rank] = keep;
            ((u64*)P.new_trailers)[rank] = trailer;
        }
        u32 a = __popc(__ballot_sync(FULL, counts)), b = __popc(__ballot_sync(FULL, hidden));
        u32 c = __popc(__ballot_sync(FULL, dropped)), d = __popc(__ballot_sync(FULL, zeroed));
        if (LANE == 0) {
            if (a) atomicAdd(&C->entries_in, (u64)a);
            if (b) atomicAdd(&C->hidden, (u64)b);
            if (c) atomicAdd(&C->tombstones, (u64)c);
            if (d) atomicAdd(&C->zeroed, (u64)d);
        }
    }
}

extern "C" __global__ void compact(const Params P, u32 which) {
    ENTER
    u32 count = counters(P)->entries;
    for (u32 rank = THREAD; rank < count; rank += THREADS) {
        if (((const u32*)P.keep)[rank]) {
            u32 at = ((const u32*)P.keep_at)[rank];
            ((u32*)P.kept)[at] = ((const u32*)P.order)[rank];
            ((u64*)P.kept_trailers)[at] = ((const u64*)P.new_trailers)[rank];
        }
    }
}

// ---- Where blocks begin ----

// A kept entry's bytes with its prefix shared (16 bits), the shared bytes (8), and what a restart adds (8).
extern "C" __global__ void measure(const Params P, u32 which) {
    ENTER
    u32 count = counters(P)->kept, words = P.key_stride / 8;
    const u32* kept = (const u32*)P.kept;
    for (u32 i = THREAD; i < count; i += THREADS) {
        u32 e = kept[i], length = key_bytes(P, e), value = value_bytes(P, e), shared = 0;
        bool new_key = true;
        if (i > 0) {
            u32 p = kept[i - 1], before = key_bytes(P, p);
            const u64 *x = key_of(P, p), *y = key_of(P, e);
            shared = P.key_stride;
            for (u32 w = 0; w < words; w++) {
                u64 difference = x[w] ^ y[w];
                if (difference) { shared = 8 * w + (u32)(__ffsll((long long)difference) - 1) / 8; break; }
            }
            u32 shorter = before < length ? before : length;
            if (shared > shorter) shared = shorter;
            new_key = shared != length || before != length;
        }
        u32 small = entry_bytes(shared, length - shared, value), full = entry_bytes(0, length, value);
        ((u32*)P.sizes)[i] = small | shared << 16 | (full - small) << 24;
        ((u32*)P.new_key)[i] = new_key;
    }
}

// For each entry i: if a block begins with it, the next one begins here. The rule of `BlockBuilder::finished_bytes_with`: it
// counts what the entry before shares, and one restart too many. With m as its last entry and t restarts before m, a block
// from i counts as the sum of sizes from i to m, what its restarts add, 4 * (t + 1) bytes or 4 * t if m is a restart, and 8. That
// grows with m, so restarts are tried one after the other, and then the entries between two of them by bisection.
extern "C" __global__ void next_cuts(const Params P, u32 which) {
    ENTER
    Counters* C = counters(P);
    u32 count = C->kept, limit = header(P)->block_bytes, interval = header(P)->restart_interval, longest = 0;
    const u32* sizes = (const u32*)P.sizes;
    const u32* small_at = (const u32*)P.small_at;
    for (u32 i = C->emit_from + THREAD; i < count; i += THREADS) {
        u32 base = small_at[i], added = sizes[i] >> 24, restarts = 1, group = i;
        // All entries before `group + 1` are in. Entries of the group share their prefixes, and all count `restarts`.
        u32 next;
        while (true) {
            u32 group_end = group + interval < count && group + interval > group ? group + interval : count;
            if (small_at[group_end] - base + added + 4 * restarts + 8 > limit && group_end > group + 1) {
                u32 low = group + 1, high = group_end;
                while (low < high) {
                    u32 middle = (low + high) / 2;
                    if (small_at[middle + 1] - base + added + 4 * restarts + 8 > limit) high = middle; else low = middle + 1;
                }
                next = low;
                break;
            }
            next = group_end;
            if (group_end == count) break;
            u32 more = sizes[group_end] >> 24;
            if (small_at[group_end + 1] - base + added + more + 4 * restarts + 8 > limit) break;
            added += more;
            restarts++;
            group = group_end;
        }
        ((u32*)P.next)[i] = next;
        ((u32*)P.raw)[i] = small_at[next] - base + added + 4 * restarts + 4;
        longest = longest > next - i ? longest : next - i;
    }
    if (longest) atomicMax(&C->block_entries_max, longest);
}

// The chain of blocks is followed in chunks of entries, side by side, and in groups of chunks. A block that begins in a chunk
// begins within the longest block's entries of its front, so the chains from these fronts are all there can be.
#define CHUNKS_A_GROUP 32u

__device__ __forceinline__ u32 fronts_of(const Counters* C, u32 entries) {
    return C->block_entries_max < entries ? C->block_entries_max : entries;
}

extern "C" __global__ void chunks(const Params P, u32 which) {
    ENTER
    Counters* C = counters(P);
    u32 count = C->kept, first = C->emit_from;
    u32 chunk = 32;
    if (first < count) {
        u32 wanted = (((const u32*)P.next)[first] - first) * 16;
        chunk = wanted < 32 ? 32 : wanted > 65536 ? 65536 : wanted;
    }
    if (THREAD == 0) C->chunk = chunk;
    u32 all = (count + chunk - 1) / chunk;
    for (u32 i = THREAD; i < all; i += THREADS) {
        ((u32*)P.chunk_start)[i] = NONE;
        if (i % CHUNKS_A_GROUP == 0) ((u32*)P.group_start)[i / CHUNKS_A_GROUP] = NONE;
    }
}

extern "C" __global__ void chunk_exits(const Params P, u32 which) {
    ENTER
    Counters* C = counters(P);
    const u32* next = (const u32*)P.next;
    u32 count = C->kept, chunk = C->chunk, first = C->emit_from, fronts = fronts_of(C, chunk);
    if (fronts == 0) return;
    u64 items = (u64)((count + chunk - 1) / chunk) * fronts;
    for (u64 item = THREAD; item < items; item += THREADS) {
        u32 begin = (u32)(item / fronts) * chunk, i = begin + (u32)(item % fronts), end = begin + chunk;
        if (i < first || i >= count) continue;
        u32 at = i, blocks = 0;
        if (end > count) end = count;
        for (; at < end; blocks++) at = next[at];
        ((u32*)P.exits)[i] = at;
        ((u32*)P.exit_blocks)[i] = blocks;
    }
}

// Goes from `*at` to where its chain leaves the chunk.
__device__ __forceinline__ void leave_chunk(const Params& P, const Counters* C, u32 fronts, u32* at, u32* blocks) {
    u32 i = *at, chunk = C->chunk, begin = i / chunk * chunk;
    if (i - begin < fronts) {
        *blocks += ((const u32*)P.exit_blocks)[i];
        *at = ((const u32*)P.exits)[i];
        return;
    }
    u32 end = begin + chunk < C->kept ? begin + chunk : C->kept;
    for (; i < end; (*blocks)++) i = ((const u32*)P.next)[i];
    *at = i;
}

extern "C" __global__ void group_exits(const Params P, u32 which) {
    ENTER
    Counters* C = counters(P);
    u32 count = C->kept, chunk = C->chunk, group = chunk * CHUNKS_A_GROUP, first = C->emit_from;
    u32 fronts = fronts_of(C, group), chunk_fronts = fronts_of(C, chunk);
    if (fronts == 0) return;
    u64 items = (u64)((count + group - 1) / group) * fronts;
    for (u64 item = THREAD; item < items; item += THREADS) {
        u32 begin = (u32)(item / fronts) * group, i = begin + (u32)(item % fronts), end = begin + group;
        if (i < first || i >= count) continue;
        u32 at = i, blocks = 0;
        if (end > count) end = count;
        while (at < end) leave_chunk(P, C, chunk_fronts, &at, &blocks);
        ((u32*)P.group_exits)[i] = at;
        ((u32*)P.group_exit_blocks)[i] = blocks;
    }
}

extern "C" __global__ void chain_top(const Params P, u32 which) {
    ENTER
    if (threadIdx.x != 0) return;
    Counters* C = counters(P);
    u32 count = C->kept, chunk = C->chunk, group = chunk * CHUNKS_A_GROUP, at = C->emit_from, blocks = 0;
    u32 fronts = fronts_of(C, group), chunk_fronts = fronts_of(C, chunk);
    while (at < count) {
        u32 number = at / group, begin = number * group;
        ((u32*)P.group_start)[number] = at;
        ((u32*)P.group_block)[number] = blocks;
        if (at - begin < fronts) {
            blocks += ((const u32*)P.group_exit_blocks)[at];
            at = ((const u32*)P.group_exits)[at];
        } else {
            while (at < begin + group && at < count) leave_chunk(P, C, chunk_fronts, &at, &blocks);
        }
    }
    C->chain = blocks;
    if (blocks > header(P)->result_blocks_max) fail(P, STATUS_SPACE, blocks);
}

extern "C" __global__ void chain_groups(const Params P, u32 which) {
    ENTER
    Counters* C = counters(P);
    u32 count = C->kept, chunk = C->chunk, group = chunk * CHUNKS_A_GROUP, chunk_fronts = fronts_of(C, chunk);
    for (u32 i = THREAD; i < (count + group - 1) / group; i += THREADS) {
        u32 at = ((const u32*)P.group_start)[i];
        if (at == NONE) continue;
        u32 blocks = ((const u32*)P.group_block)[i], end = (i + 1) * group < count ? (i + 1) * group : count;
        while (at < end) {
            ((u32*)P.chunk_start)[at / chunk] = at;
            ((u32*)P.chunk_block)[at / chunk] = blocks;
            leave_chunk(P, C, chunk_fronts, &at, &blocks);
        }
    }
}

extern "C" __global__ void chain_chunks(const Params P, u32 which) {
    ENTER
    Counters* C = counters(P);
    const u32* next = (const u32*)P.next;
    u32 count = C->kept, chunk = C->chunk, all = (count + chunk - 1) / chunk;
    for (u32 i = THREAD; i < all; i += THREADS) {
        u32 at = ((const u32*)P.chunk_start)[i];
        if (at == NONE) continue;
        u32 block = ((const u32*)P.chunk_block)[i], end = (i + 1) * chunk < count ? (i + 1) * chunk : count;
        for (; at < end; at = next[at], block++) {
            ((u32*)P.block_start)[block] = at;
            ((u32*)P.out_raw)[block] = ((const u32*)P.raw)[at];
        }
    }
}

extern "C" __global__ void limit_output(const Params P, u32 which) {
    ENTER
    Counters* C = counters(P);
    const u32* before = (const u32*)P.out_raw_at;
    u32 count = C->chain;
    for (u32 b = THREAD; b < count; b += THREADS) {
        bool is_out = before[b] < header(P)->emit_bytes_max;
        bool is_last = is_out && (b + 1 == count || before[b + 1] >= header(P)->emit_bytes_max);
        if (is_last) {
            C->out = b + 1;
            C->emitted_to = ((const u32*)P.next)[((const u32*)P.block_start)[b]];
        }
    }
}

// ---- Output blocks ----

// A block's slot while it is made; slots are 16 bytes or more longer than blocks.
__device__ __forceinline__ u64 slot_of(const Params& P, u32 block) {
    return ((((u64)((const u32*)P.out_raw_at)[block] + 15) & ~15ull) + 32ull * block);
}

__device__ __forceinline__ u32 put_varint(u64* bytes, u32 at, u32 n) {
    if (n < 128) { *bytes |= (u64)n << (8 * at); return at + 1; }
    *bytes |= (u64)((n & 127) | 128) << (8 * at) | (u64)(n >> 7) << (8 * at + 8);
    return at + 2;
}

__device__ __forceinline__ u32 warp_sum(u32 x) {
    for (u32 d = 16; d; d /= 2) x += __shfl_down_sync(FULL, x, d);
    return __shfl_sync(FULL, x, 0);
}
__device__ __forceinline__ u32 warp_max(u32 x) {
    for (u32 d = 16; d; d /= 2) { u32 y = __shfl_down_sync(FULL, x, d); x = x > y ? x : y; }
    return __shfl_sync(FULL, x, 0);
}
__device__ __forceinline__ u64 warp_max64(u64 x) {
    for (u32 d = 16; d; d /= 2) { u64 y = __shfl_down_sync(FULL, x, d); x = x > y ? x : y; }
    return __shfl_sync(FULL, x, 0);
}

// Copies in words of the destination; its first and last bytes are not whole words.
__device__ __forceinline__ void copy_by_warp(u8* to, const u8* from, u32 bytes, u32 lane) {
    u32 front = (0u - (u32)(u64)to) & 3u;
    if (front > bytes) front = bytes;
    u32 words = (bytes - front) / 4, tail = front + 4 * words;
    if (lane < front) to[lane] = from[lane];
    for (u32 w = lane; w < words; w += 32) *(u32*)(to + front + 4 * w) = load32(from + front + 4 * w);
    if (lane < bytes - tail) to[tail + lane] = from[tail + lane];
}

// ---- LZ4, the bytes of lz4_flex ----
//
// The matcher tries positions one after the other: it looks up and replaces the last position with the same hash, and
// stops at the first that has four bytes in common. The distance of tries grows by one every 32 of them. So 32 tries
// have one distance, and a warp makes them at once: a lane's last position is that of the nearest lane before it with the
// same hash, or the table's. The first lane that finds a match decides, and lanes behind it leave the table alone.

__device__ __forceinline__ u32 lz4_slot(u32 word) { return word * 2654435761u >> 20; }

// Writes a length that did not fit into its four bits, and returns where it ends.
__device__ __forceinline__ u32 lz4_length(u8* out, u32 at, u32 rest, u32 lane) {
    u32 full = rest / 255;
    for (u32 i = lane; i <= full; i += 32) out[at + i] = i < full ? 255 : (u8)(rest - 255 * full);
    return at + full + 1;
}

// How many of the four bytes at i are the same, of those before `most`.
__device__ __forceinline__ u32 lz4_same(const u8* a, const u8* b, u32 i, u32 most) {
    if (i >= most) return 0;
    u32 difference = load32(a + i) ^ load32(b + i);
    u32 same = difference ? (u32)(__ffs(difference) - 1) / 8 : 4;
    return same < most - i ? same : most - i;
}

// Returns the stored length, without the trailer, of the block in `in`; 0 if it is not worth it.
__device__ u32 lz4_encode(const u8* in, u32 bytes, u8* out, u16* table, u32 lane) {
    u32 limit = bytes - bytes / 8;
    if (bytes < 13) return 0;
    for (u32 i = lane; i < 1024; i += 32) ((u64*)table)[i] = 0;
    if (lane < 4) out[lane] = (u8)(bytes >> (8 * lane));
    __syncwarp();
    u32 o = 4, literals_from = 0, cur = 1, end = bytes - 12;
    while (true) {
        u32 base = cur, step = 1, candidate = 0;
        bool found = false;
        while (true) {
            u32 pos = base + lane * step;
            bool valid = pos <= end;
            u32 word = valid ? load32(in + pos) : 0, slot = lz4_slot(word);
            u32 peers = __match_any_sync(FULL, valid ? slot : 0x10000u + lane);
            u32 earlier = peers & ((1u << lane) - 1);
            u32 other = earlier ? base + (31 - __clz(earlier)) * step : valid ? table[slot] : 0;
            u32 hits = __ballot_sync(FULL, valid && load32(in + other) == word);
            u32 ends = __ballot_sync(FULL, !valid);
            u32 first = hits ? __ffs(hits) - 1 : 32;
            if (ends && (u32)(__ffs(ends) - 1) < first) break;
            u32 upto = first < 31 ? (2u << first) - 1 : FULL;
            u32 mine = peers & upto;
            if ((upto >> lane & 1) && lane == 31 - __clz(mine)) table[slot] = (u16)pos;
            __syncwarp();
            if (hits) {
                cur = __shfl_sync(FULL, pos, first);
                candidate = __shfl_sync(FULL, other, first);
                found = true;
                break;
            }
            base += 32 * step;
            step++;
        }
        if (!found) break;
        // One look: eight lanes go backward, a byte each, and the others forward, four bytes each.
        u32 back_most = candidate < cur - literals_from ? candidate : cur - literals_from;
        u32 ahead = cur + 4, ahead_most = bytes - 6 - ahead, same = 0;
        const u8* other = in + candidate + 4;
        bool differs;
        if (lane < 8) {
            differs = lane >= back_most || in[cur - 1 - lane] != in[candidate - 1 - lane];
        } else {
            same = lz4_same(in + ahead, other, 4 * (lane - 8), ahead_most);
            differs = same < 4;
        }
        u32 look = __ballot_sync(FULL, differs);
        u32 back = look & 255 ? __ffs(look & 255) - 1 : 8;
        while (!(look & 255)) {
            u32 i = back + lane;
            u32 differ = __ballot_sync(FULL, i >= back_most || in[cur - 1 - i] != in[candidate - 1 - i]);
            back += differ ? __ffs(differ) - 1 : 32;
            if (differ) break;
        }
        u32 length = 96;
        if (look >> 8) {
            u32 lane_of = __ffs(look >> 8) + 7;
            length = 4 * (lane_of - 8) + __shfl_sync(FULL, same, lane_of);
        } else {
            while (true) {
                same = lz4_same(in + ahead, other, length + 4 * lane, ahead_most);
                u32 differ = __ballot_sync(FULL, same < 4);
                if (differ) {
                    u32 lane_of = __ffs(differ) - 1;
                    length += 4 * lane_of + __shfl_sync(FULL, same, lane_of);
                    break;
                }
                length += 128;
            }
        }
        u32 literals = cur - back - literals_from, offset = cur - candidate;
        cur = ahead + length;
        // The match's length counts from where it begins, which may be further back.
        length += back;
        if (lane == 0) table[lz4_slot(load32(in + cur - 2))] = (u16)(cur - 2);
        // The sequence.
        u32 needs = 3 + literals + (literals >= 15 ? (literals - 15) / 255 + 1 : 0) + (length >= 15 ? (length - 15) / 255 + 1 : 0);
        if (o + needs > limit) return 0;
        if (lane == 0) out[o] = (u8)((literals < 15 ? literals : 15) << 4 | (length < 15 ? length : 15));
        o++;
        if (literals >= 15) o = lz4_length(out, o, literals - 15, lane);
        for (u32 i = lane; i < literals; i += 32) out[o + i] = in[literals_from + i];
        o += literals;
        if (lane < 2) out[o + lane] = (u8)(offset >> (8 * lane));
        o += 2;
        if (length >= 15) o = lz4_length(out, o, length - 15, lane);
        literals_from = cur;
        __syncwarp();
    }
    u32 literals = bytes - literals_from;
    u32 needs = 1 + literals + (literals >= 15 ? (literals - 15) / 255 + 1 : 0);
    if (o + needs > limit) return 0;
    if (lane == 0) out[o] = (u8)((literals < 15 ? literals : 15) << 4);
    o++;
    if (literals >= 15) o = lz4_length(out, o, literals - 15, lane);
    for (u32 i = lane; i < literals; i += 32) out[o + i] = in[literals_from + i];
    return o + literals;
}

// A value of this length is copied by a whole warp.
#define LONG_VALUE 48u

__device__ __forceinline__ u8* put_word(u8* out, u64 word, u32 bytes) {
    for (u32 i = 0; i < bytes; i++) out[i] = (u8)(word >> (8 * i));
    return out + bytes;
}

__device__ __forceinline__ u8* put_string(u8* out, const u8* from, u32 bytes) {
    for (u32 i = 0; i < bytes; i += 8) put_word(out + i, load64(from + i), bytes - i < 8 ? bytes - i : 8);
    return out + bytes;
}

// One warp is a block of threads here, and its shared memory is its own: the block while it is made, and LZ4's table.
OWN_MEMORY

extern "C" __global__ void encode(const Params P, u32 which) {
    ENTER
    Counters* C = counters(P);
    __shared__ u32 classes[16];
    u32 lane = LANE, count = C->out, interval = header(P)->restart_interval;
    bool lz4 = header(P)->codec != 0;
    u8* to = (u8*)own_memory;
    u16* table = (u16*)(to + P.block_space);
    const u32* kept = (const u32*)P.kept;
    const u32* hash_at = (const u32*)P.hash_at;
    for (u32 b = WARP; b < count; b += WARPS) {
        u32 begin = ((const u32*)P.block_start)[b], end = ((const u32*)P.next)[begin], raw = ((const u32*)P.out_raw)[b];
        u32 restarts = (end - begin + interval - 1) / interval;
        u8* restart_array = to + raw - 4 - 4 * restarts;
        u32 carried = 0, deletions = 0, keys_sum = 0, values_sum = 0, longest_key = 0, longest_value = 0;
        u64 largest = 0, smallest_inverted = 0;
        if (lane < 16) classes[lane] = 0;
        __syncwarp();
        for (u32 first = begin; first < end; first += 32) {
            u32 i = first + lane, e = 0, size = 0, bytes = 0, lengths = 0;
            u64 trailer = 0, value = 0;
            bool restart = false;
            if (i < end) {
                e = kept[i];
                size = ((const u32*)P.sizes)[i];
                lengths = ((const u32*)P.lengths)[e];
                trailer = ((const u64*)P.kept_trailers)[i];
                value = ((const u64*)P.values)[e];
                restart = (i - begin) % interval == 0;
                bytes = (size & 0xffff) + (restart ? size >> 24 : 0);
                u64 sequence = trailer >> 8;
                u32 key_length = lengths >> 16, value_length = lengths & 0xffff;
                deletions += (trailer & 255) == 0;
                keys_sum += key_length + 8;
                values_sum += value_length;
                longest_key = longest_key > key_length ? longest_key : key_length;
                longest_value = longest_value > value_length ? longest_value : value_length;
                largest = largest > sequence ? largest : sequence;
                smallest_inverted = smallest_inverted > ~sequence ? smallest_inverted : ~sequence;
                atomicAdd(&classes[32 - __clz(value_length)], 1u);
            }
            u32 offset = bytes;
            for (u32 d = 1; d < 32; d *= 2) {
                u32 left = __shfl_up_sync(FULL, offset, d);
                if (lane >= d) offset += left;
            }
            u32 sum = __shfl_sync(FULL, offset, 31);
            offset = carried + offset - bytes;
            carried += sum;
            if (i < end && restart) {
                u8* place = restart_array + 4 * ((i - begin) / interval);
                for (u32 k = 0; k < 4; k++) place[k] = (u8)(offset >> (8 * k));
            }
            // A lane writes its own entry; a long value is left to the warp.
            u32 value_length = lengths & 0xffff, value_at = offset + bytes - value_length;
            if (i < end) {
                u32 shared = restart ? 0 : size >> 16 & 255, suffix = (lengths >> 16) - shared;
                u64 head = 0;
                u32 head_bytes = put_varint(&head, put_varint(&head, put_varint(&head, 0, shared), suffix), value_length);
                u8* out = put_word(to + offset, head, head_bytes);
                out = put_string(out, (const u8*)key_of(P, e) + shared, suffix);
                out = put_word(out, trailer, 8);
                if (value_length < LONG_VALUE) put_string(out, (const u8*)value, value_length);
            }
            u32 longs = __ballot_sync(FULL, i < end && value_length >= LONG_VALUE);
            while (longs) {
                u32 q = __ffs(longs) - 1;
                longs &= longs - 1;
                u32 at = __shfl_sync(FULL, value_at, q), long_bytes = __shfl_sync(FULL, value_length, q);
                copy_by_warp(to + at, (const u8*)__shfl_sync(FULL, value, q), long_bytes, lane);
            }
        }
        if (lane < 4) to[raw - 4 + lane] = (u8)(restarts >> (8 * lane));
        deletions = warp_sum(deletions);
        keys_sum = warp_sum(keys_sum);
        values_sum = warp_sum(values_sum);
        longest_key = warp_max(longest_key);
        longest_value = warp_max(longest_value);
        largest = warp_max64(largest);
        smallest_inverted = warp_max64(smallest_inverted);
        __syncwarp();
        BlockReport* R = (BlockReport*)P.reports + b;
        u32 stride = P.key_stride, words = stride / 8, first_entry = kept[begin], last_entry = kept[end - 1];
        u64* keys = (u64*)(P.out_keys + 2ull * b * stride);
        for (u32 w = lane; w < 2 * words; w += 32) {
            keys[w] = w < words ? key_of(P, first_entry)[w] : key_of(P, last_entry)[w - words];
        }
        if (lane < 16) R->value_classes[lane] = (u16)classes[lane];
        if (lane == 0) {
            R->raw_bytes = raw;
            R->entries = end - begin;
            R->deletions = deletions;
            R->first_key_at = 2 * b * stride;
            R->last_key_at = (2 * b + 1) * stride;
            R->first_key_bytes = (u16)key_bytes(P, first_entry);
            R->last_key_bytes = (u16)key_bytes(P, last_entry);
            R->flags = ((const u32*)P.new_key)[begin] ? REPORT_NEW_USER_KEY : 0;
            R->first_trailer = ((const u64*)P.kept_trailers)[begin];
            R->last_trailer = ((const u64*)P.kept_trailers)[end - 1];
            R->smallest_sequence = ~smallest_inverted;
            R->largest_sequence = largest;
            R->first_entry = begin;
            R->first_hash = hash_at[begin] - hash_at[C->emit_from];
            R->hashes = hash_at[end] - hash_at[begin];
            R->key_bytes = keys_sum;
            R->value_bytes = values_sum;
            R->longest_key = longest_key;
            R->longest_value = longest_value;
            R->zero = 0;
        }
        u8* slot = (u8*)(P.slot_area + slot_of(P, b));
        u32 stored = lz4 ? lz4_encode(to, raw, slot, table, lane) : 0;
        if (lane == 0) {
            ((u32*)P.out_stored)[b] = (stored ? stored : raw) + 5;
            ((u32*)P.out_packed)[b] = stored != 0;
        }
        if (!stored) {
            for (u32 w = lane; w < (raw + 7) / 8; w += 32) ((u64*)slot)[w] = ((const u64*)to)[w];
        }
        __syncwarp();
    }
}

// Seals each block in its slot, and puts it behind the one before.
extern "C" __global__ void pack(const Params P, u32 which) {
    ENTER
    LOAD_BY128
    u32 lane = LANE, count = counters(P)->out;
    for (u32 b = WARP; b < count; b += WARPS) {
        u32 packed = ((const u32*)P.out_packed)[b], stored = ((const u32*)P.out_stored)[b], at = ((const u32*)P.out_at)[b];
        u8* from = (u8*)(P.slot_area + slot_of(P, b));
        if (lane == 0) from[stored - 5] = (u8)packed;
        __syncwarp();
        u32 crc = warp_crc(P, by128, from, stored - 4, lane);
        if (lane < 4) from[stored - 4 + lane] = (u8)(crc >> (8 * lane));
        __syncwarp();
        copy_by_warp((u8*)(P.out_data + at), from, stored, lane);
        if (lane == 0) {
            BlockReport* R = (BlockReport*)P.reports + b;
            R->at = at;
            R->stored_bytes = stored;
            R->checksum = crc;
        }
        __syncwarp();
    }
}

// ---- Filter hashes: XXH3, 64 bits, keys of at most 128 bytes ----

__device__ const u8 SECRET[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

__device__ __forceinline__ u64 bytes64(const u8* p) {
    u64 x = 0;
    for (u32 i = 0; i < 8; i++) x |= (u64)p[i] << (8 * i);
    return x;
}
__device__ __forceinline__ u64 fold(u64 a, u64 b) { return a * b ^ __umul64hi(a, b); }
__device__ __forceinline__ u64 avalanche(u64 x) {
    x ^= x >> 37;
    x *= 0x165667919E3779F9ull;
    return x ^ x >> 32;
}
__device__ __forceinline__ u64 avalanche64(u64 x) {
    x ^= x >> 33;
    x *= 0xC2B2AE3D27D4EB4Full;
    x ^= x >> 29;
    x *= 0x165667B19E3779F9ull;
    return x ^ x >> 32;
}
__device__ __forceinline__ u64 rotate(u64 x, u32 n) { return x << n | x >> (64 - n); }
__device__ __forceinline__ u64 mix16(const u8* p, const u8* s) { return fold(load64(p) ^ bytes64(s), load64(p + 8) ^ bytes64(s + 8)); }

__device__ u64 xxh3(const u8* p, u32 n) {
    if (n > 16) {
        u64 sum = n * 0x9E3779B185EBCA87ull;
        if (n > 96) sum += mix16(p + 48, SECRET + 96) + mix16(p + n - 64, SECRET + 112);
        if (n > 64) sum += mix16(p + 32, SECRET + 64) + mix16(p + n - 48, SECRET + 80);
        if (n > 32) sum += mix16(p + 16, SECRET + 32) + mix16(p + n - 32, SECRET + 48);
        return avalanche(sum + mix16(p, SECRET) + mix16(p + n - 16, SECRET + 16));
    }
    if (n > 8) {
        u64 low = load64(p) ^ (bytes64(SECRET + 24) ^ bytes64(SECRET + 32));
        u64 high = load64(p + n - 8) ^ (bytes64(SECRET + 40) ^ bytes64(SECRET + 48));
        return avalanche(n + swap64(low) + high + fold(low, high));
    }
    if (n >= 4) {
        u64 keyed = ((u64)load32(p + n - 4) + ((u64)load32(p) << 32)) ^ (bytes64(SECRET + 8) ^ bytes64(SECRET + 16));
        keyed ^= rotate(keyed, 49) ^ rotate(keyed, 24);
        keyed *= 0x9FB21C651E98DF25ull;
        keyed ^= (keyed >> 35) + n;
        keyed *= 0x9FB21C651E98DF25ull;
        return keyed ^ keyed >> 28;
    }
    if (n > 0) {
        u32 combined = (u32)p[0] << 16 | (u32)p[n >> 1] << 24 | p[n - 1] | n << 8;
        u64 flip = (u32)bytes64(SECRET) ^ (u32)bytes64(SECRET + 4);
        return avalanche64(combined ^ flip);
    }
    return avalanche64(bytes64(SECRET + 56) ^ bytes64(SECRET + 64));
}

extern "C" __global__ void hash_keys(const Params P, u32 which) {
    ENTER
    Counters* C = counters(P);
    const u32* hash_at = (const u32*)P.hash_at;
    u32 first = C->emit_from, end = C->emitted_to;
    for (u32 i = first + THREAD; i < end; i += THREADS) {
        if (!((const u32*)P.new_key)[i]) continue;
        u32 e = ((const u32*)P.kept)[i];
        ((u64*)P.hashes)[hash_at[i] - hash_at[first]] = xxh3((const u8*)key_of(P, e), key_bytes(P, e));
    }
}

extern "C" __global__ void finish(const Params P, u32 which) {
    if (threadIdx.x != 0) return;
    Counters* C = counters(P);
    AnswerHeader* A = (AnswerHeader*)P.answer;
    const u32* hash_at = (const u32*)P.hash_at;
    for (u32 i = 0; i < 8; i++) A->magic[i] = (u8)(ANSWER_MAGIC >> (8 * i));
    A->version = header(P)->version;
    A->status = C->status;
    A->detail = C->detail;
    A->key_stride = P.key_stride;
    A->zero = 0;
    bool fine = C->status == 0;
    u32 emitted_to = C->out ? C->emitted_to : C->emit_from;
    A->entries_in = fine ? C->entries_in : 0;
    A->entries_kept = fine ? C->kept : 0;
    A->dropped_hidden = fine ? C->hidden : 0;
    A->dropped_tombstones = fine ? C->tombstones : 0;
    A->sequences_zeroed = fine ? C->zeroed : 0;
    A->emitted_to = fine ? emitted_to : 0;
    A->data_bytes = fine ? C->data_bytes : 0;
    A->blocks = fine ? C->out : 0;
    A->hashes = fine ? hash_at[emitted_to] - hash_at[C->emit_from] : 0;
}
