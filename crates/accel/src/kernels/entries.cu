// ---- Entries ----

KERNEL(list_intervals) {
    ENTER
    u32 count = header(ARGS)->blocks;
    GLOBAL const u32* first = AT(const u32, P.block_interval);
    for (u32 b = WARP; b < count; b += WARPS) {
        for (u32 i = first[b] + LANE; i < first[b + 1]; i += 32) AT(u32, P.interval_block)[i] = b;
    }
}

// The bytes of an interval in its block. False if the restarts do not say.
FUNCTION bool interval_of(PARAMS, u32 interval, GLOBAL const u8** raw, u32* at, u32* end, u32* block) {
    u32 b = AT(const u32, P.interval_block)[interval];
    GLOBAL const InputBlock* blocks = AT(const InputBlock, P.task + header(ARGS)->blocks_at);
    GLOBAL const u32* first = AT(const u32, P.block_interval);
    u32 count = first[b + 1] - first[b], i = interval - first[b];
    u32 entries_end = blocks[b].raw_bytes - 4 - 4 * count;
    GLOBAL const u8* bytes = AT(const u8, AT(const u64, P.block_raw)[b]);
    GLOBAL const u8* restarts = bytes + entries_end;
    *at = load32(restarts + 4 * i);
    *end = i + 1 < count ? load32(restarts + 4 * i + 4) : entries_end;
    *raw = bytes;
    *block = b;
    return *at < *end && *end <= entries_end && (i > 0 || *at == 0);
}

// An entry's lengths, and the place behind its header; 0 if a varint is longer than two bytes.
INLINE u32 entry_header(GLOBAL const u8* raw, u32 at, u32* shared, u32* unshared, u32* value) {
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
FUNCTION u32 walk_interval(PARAMS, u32 interval, GLOBAL u32* notes) {
    u32 keys_max = header(ARGS)->key_bytes_max, values_max = header(ARGS)->value_bytes_max;
    GLOBAL const u8* raw;
    u32 at, end, block, entries = 0, shared, unshared, value;
    bool sound = interval_of(ARGS, interval, &raw, &at, &end, &block);
    while (sound && at < end) {
        // A header may reach over the entries into restarts and trailer, never out of the block's memory.
        u32 body = entry_header(raw, at, &shared, &unshared, &value);
        if (body == 0 || shared + unshared > keys_max || value > values_max) {
            fail(ARGS, STATUS_LIMIT, block);
            break;
        }
        if (notes) notes[entries] = body | shared << 16 | unshared << 24;
        at = body + unshared + 8 + value;
        sound = at <= end;
        entries++;
    }
    if (!sound) fail(ARGS, STATUS_BLOCK, block);
    return entries;
}

KERNEL(count_entries) {
    ENTER
    u32 count = counters(ARGS)->intervals;
    for (u32 i = THREAD; i < count; i += THREADS) AT(u32, P.interval_entries)[i] = walk_interval(ARGS, i, 0);
}

KERNEL(note_entries) {
    ENTER
    u32 count = counters(ARGS)->intervals;
    for (u32 i = THREAD; i < count; i += THREADS) walk_interval(ARGS, i, AT(u32, P.notes) + AT(const u32, P.interval_entry)[i]);
}

KERNEL(find_ways) {
    ENTER
    GLOBAL const Way* ways = AT(const Way, P.task + header(ARGS)->ways_at);
    u32 way = THREAD_OF_BLOCK;
    if (way < header(ARGS)->ways) {
        u32 interval = AT(const u32, P.block_interval)[ways[way].first_block];
        counters(ARGS)->way_entry[way] = AT(const u32, P.interval_entry)[interval];
    }
}

INLINE GLOBAL const u64* key_of(PARAMS, u32 e) { return AT(const u64, P.keys + (u64)e * P.key_stride); }
INLINE u32 key_bytes(PARAMS, u32 e) { return AT(const u32, P.lengths)[e] >> 16; }
INLINE u32 value_bytes(PARAMS, u32 e) { return AT(const u32, P.lengths)[e] & 0xffff; }
INLINE u64 trailer_of(PARAMS, u32 e) { return AT(const u64, P.trailers)[e]; }

// Puts the bytes at p, which are those from `from` to before `end` of a key, into four words of the key, from `base` on.
INLINE void put_bytes(u64* four, u32 base, GLOBAL const u8* p, u32 from, u32 end) {
#pragma unroll
    for (u32 w = 0; w < 4; w++) {
        u32 begin = base + 8 * w, low = from > begin ? from : begin, high = end < begin + 8 ? end : begin + 8;
        if (low < high) {
            u64 bytes = load64(p + (low - from));
            if (high - low < 8) bytes &= ((u64)1 << (8 * (high - low))) - 1;
            four[w] |= bytes << (8 * (low - begin));
        }
    }
}

// A warp has a block's entries, neighbours in neighbouring lanes. A key is its suffix and, from the entries before it back
// to the restart, each byte's last writing.
KERNEL(decode_entries) {
    ENTER
    u32 count = header(ARGS)->blocks, words = P.key_stride / 8, prefix = header(ARGS)->shared_prefix_bytes;
    GLOBAL const u32* notes = AT(const u32, P.notes);
    GLOBAL const u32* first = AT(const u32, P.block_interval);
    GLOBAL const u32* entry_of = AT(const u32, P.interval_entry);
    u32 head_word = prefix / 8, shift = prefix % 8 * 8;
    for (u32 b = WARP; b < count; b += WARPS) {
        GLOBAL const u8* raw = AT(const u8, AT(const u64, P.block_raw)[b]);
        u32 begin = entry_of[first[b]], end = entry_of[first[b + 1]];
        for (u32 e = begin + LANE; e < end; e += 32) {
            u32 note = notes[e], body = note & 0xffff, shared = note >> 16 & 255, unshared = note >> 24;
            u32 length = shared + unshared, before = e > begin ? notes[e - 1] : 0;
            // The header's last varint ends before the suffix. No varint's last byte has its high bit set.
            u32 value = raw[body - 1], low = raw[body - 2];
            if (low >= 128) value = value << 7 | (low & 127);
            GLOBAL const u8* behind = raw + body + unshared;
            u64 trailer = load64(behind);
            if (shared > (before >> 16 & 255) + (before >> 24)) fail(ARGS, STATUS_BLOCK, b);
            if ((trailer & 255) > 2) fail(ARGS, STATUS_LIMIT, b);
            GLOBAL u64* key = (GLOBAL u64*)key_of(ARGS, e);
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
            AT(u64, P.heads)[e] = swap64(head);
            AT(u64, P.trailers)[e] = trailer;
            AT(u64, P.values)[e] = PLACE(behind + 8);
            AT(u32, P.lengths)[e] = length << 16 | value;
        }
    }
}
