// ---- Where blocks begin ----

// A kept entry's bytes with its prefix shared (16 bits), the shared bytes (8), and what a restart adds (8).
KERNEL(measure) {
    ENTER
    u32 count = counters(ARGS)->kept, words = P.key_stride / 8;
    GLOBAL const u32* kept = AT(const u32, P.kept);
    for (u32 i = THREAD; i < count; i += THREADS) {
        u32 e = kept[i], length = key_bytes(ARGS, e), value = value_bytes(ARGS, e), shared = 0;
        bool new_key = true;
        if (i > 0) {
            u32 p = kept[i - 1], before = key_bytes(ARGS, p);
            GLOBAL const u64 *x = key_of(ARGS, p), *y = key_of(ARGS, e);
            shared = P.key_stride;
            for (u32 w = 0; w < words; w++) {
                u64 difference = x[w] ^ y[w];
                if (difference) { shared = 8 * w + lowest_bit64(difference) / 8; break; }
            }
            u32 shorter = before < length ? before : length;
            if (shared > shorter) shared = shorter;
            new_key = shared != length || before != length;
        }
        u32 small = entry_bytes(shared, length - shared, value), full = entry_bytes(0, length, value);
        AT(u32, P.sizes)[i] = small | shared << 16 | (full - small) << 24;
        AT(u32, P.new_key)[i] = new_key;
    }
}

// For each entry i: if a block begins with it, the next one begins here. The rule of `BlockBuilder::finished_bytes_with`: it
// counts what the entry before shares, and one restart too many. With m as its last entry and t restarts before m, a block
// from i counts as the sum of sizes from i to m, what its restarts add, 4 * (t + 1) bytes or 4 * t if m is a restart, and 8. That
// grows with m, so restarts are tried one after the other, and then the entries between two of them by bisection.
KERNEL(next_cuts) {
    ENTER
    GLOBAL Counters* C = counters(ARGS);
    u32 count = C->kept, limit = header(ARGS)->block_bytes, interval = header(ARGS)->restart_interval, longest = 0;
    GLOBAL const u32* sizes = AT(const u32, P.sizes);
    GLOBAL const u32* small_at = AT(const u32, P.small_at);
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
        AT(u32, P.next)[i] = next;
        AT(u32, P.raw)[i] = small_at[next] - base + added + 4 * restarts + 4;
        longest = longest > next - i ? longest : next - i;
    }
    if (longest) raise_to(&C->block_entries_max, longest);
}

// The chain of blocks is followed in chunks of entries, side by side, and in groups of chunks. A block that begins in a chunk
// begins within the longest block's entries of its front, so the chains from these fronts are all there can be.
#define CHUNKS_A_GROUP 32u

INLINE u32 fronts_of(GLOBAL const Counters* C, u32 entries) {
    return C->block_entries_max < entries ? C->block_entries_max : entries;
}

KERNEL(chunks) {
    ENTER
    GLOBAL Counters* C = counters(ARGS);
    u32 count = C->kept, first = C->emit_from;
    u32 chunk = 32;
    if (first < count) {
        u32 wanted = (AT(const u32, P.next)[first] - first) * 16;
        chunk = wanted < 32 ? 32 : wanted > 65536 ? 65536 : wanted;
    }
    if (THREAD == 0) C->chunk = chunk;
    u32 all = (count + chunk - 1) / chunk;
    for (u32 i = THREAD; i < all; i += THREADS) {
        AT(u32, P.chunk_start)[i] = NONE;
        if (i % CHUNKS_A_GROUP == 0) AT(u32, P.group_start)[i / CHUNKS_A_GROUP] = NONE;
    }
}

KERNEL(chunk_exits) {
    ENTER
    GLOBAL Counters* C = counters(ARGS);
    GLOBAL const u32* next = AT(const u32, P.next);
    u32 count = C->kept, chunk = C->chunk, first = C->emit_from, fronts = fronts_of(C, chunk);
    if (fronts == 0) return;
    u64 items = (u64)((count + chunk - 1) / chunk) * fronts;
    for (u64 item = THREAD; item < items; item += THREADS) {
        u32 begin = (u32)(item / fronts) * chunk, i = begin + (u32)(item % fronts), end = begin + chunk;
        if (i < first || i >= count) continue;
        u32 at = i, blocks = 0;
        if (end > count) end = count;
        for (; at < end; blocks++) at = next[at];
        AT(u32, P.exits)[i] = at;
        AT(u32, P.exit_blocks)[i] = blocks;
    }
}

// Goes from `*at` to where its chain leaves the chunk.
INLINE void leave_chunk(PARAMS, GLOBAL const Counters* C, u32 fronts, u32* at, u32* blocks) {
    u32 i = *at, chunk = C->chunk, begin = i / chunk * chunk;
    if (i - begin < fronts) {
        *blocks += AT(const u32, P.exit_blocks)[i];
        *at = AT(const u32, P.exits)[i];
        return;
    }
    u32 end = begin + chunk < C->kept ? begin + chunk : C->kept;
    for (; i < end; (*blocks)++) i = AT(const u32, P.next)[i];
    *at = i;
}

KERNEL(group_exits) {
    ENTER
    GLOBAL Counters* C = counters(ARGS);
    u32 count = C->kept, chunk = C->chunk, group = chunk * CHUNKS_A_GROUP, first = C->emit_from;
    u32 fronts = fronts_of(C, group), chunk_fronts = fronts_of(C, chunk);
    if (fronts == 0) return;
    u64 items = (u64)((count + group - 1) / group) * fronts;
    for (u64 item = THREAD; item < items; item += THREADS) {
        u32 begin = (u32)(item / fronts) * group, i = begin + (u32)(item % fronts), end = begin + group;
        if (i < first || i >= count) continue;
        u32 at = i, blocks = 0;
        if (end > count) end = count;
        while (at < end) leave_chunk(ARGS, C, chunk_fronts, &at, &blocks);
        AT(u32, P.group_exits)[i] = at;
        AT(u32, P.group_exit_blocks)[i] = blocks;
    }
}

KERNEL(chain_top) {
    ENTER
    if (THREAD_OF_BLOCK != 0) return;
    GLOBAL Counters* C = counters(ARGS);
    u32 count = C->kept, chunk = C->chunk, group = chunk * CHUNKS_A_GROUP, at = C->emit_from, blocks = 0;
    u32 fronts = fronts_of(C, group), chunk_fronts = fronts_of(C, chunk);
    while (at < count) {
        u32 number = at / group, begin = number * group;
        AT(u32, P.group_start)[number] = at;
        AT(u32, P.group_block)[number] = blocks;
        if (at - begin < fronts) {
            blocks += AT(const u32, P.group_exit_blocks)[at];
            at = AT(const u32, P.group_exits)[at];
        } else {
            while (at < begin + group && at < count) leave_chunk(ARGS, C, chunk_fronts, &at, &blocks);
        }
    }
    C->chain = blocks;
    if (blocks > header(ARGS)->result_blocks_max) fail(ARGS, STATUS_SPACE, blocks);
}

KERNEL(chain_groups) {
    ENTER
    GLOBAL Counters* C = counters(ARGS);
    u32 count = C->kept, chunk = C->chunk, group = chunk * CHUNKS_A_GROUP, chunk_fronts = fronts_of(C, chunk);
    for (u32 i = THREAD; i < (count + group - 1) / group; i += THREADS) {
        u32 at = AT(const u32, P.group_start)[i];
        if (at == NONE) continue;
        u32 blocks = AT(const u32, P.group_block)[i], end = (i + 1) * group < count ? (i + 1) * group : count;
        while (at < end) {
            AT(u32, P.chunk_start)[at / chunk] = at;
            AT(u32, P.chunk_block)[at / chunk] = blocks;
            leave_chunk(ARGS, C, chunk_fronts, &at, &blocks);
        }
    }
}

KERNEL(chain_chunks) {
    ENTER
    GLOBAL Counters* C = counters(ARGS);
    GLOBAL const u32* next = AT(const u32, P.next);
    u32 count = C->kept, chunk = C->chunk, all = (count + chunk - 1) / chunk;
    for (u32 i = THREAD; i < all; i += THREADS) {
        u32 at = AT(const u32, P.chunk_start)[i];
        if (at == NONE) continue;
        u32 block = AT(const u32, P.chunk_block)[i], end = (i + 1) * chunk < count ? (i + 1) * chunk : count;
        for (; at < end; at = next[at], block++) {
            AT(u32, P.block_start)[block] = at;
            AT(u32, P.out_raw)[block] = AT(const u32, P.raw)[at];
        }
    }
}

KERNEL(limit_output) {
    ENTER
    GLOBAL Counters* C = counters(ARGS);
    GLOBAL const u32* before = AT(const u32, P.out_raw_at);
    u32 count = C->chain;
    for (u32 b = THREAD; b < count; b += THREADS) {
        bool is_out = before[b] < header(ARGS)->emit_bytes_max;
        bool is_last = is_out && (b + 1 == count || before[b + 1] >= header(ARGS)->emit_bytes_max);
        if (is_last) {
            C->out = b + 1;
            C->emitted_to = AT(const u32, P.next)[AT(const u32, P.block_start)[b]];
        }
    }
}
