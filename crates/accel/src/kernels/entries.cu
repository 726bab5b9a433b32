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
