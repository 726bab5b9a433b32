// ---- Prefix sums ----
//
// Exclusive sums of one of the lists, with the total behind the last. Three launches: sums of tiles, sums of sums, sums.

#define TILE 2048u

FUNCTION void scan_of(PARAMS, u32 which, GLOBAL const u32** from, GLOBAL u32** to, u32* count, u32* mask) {
    GLOBAL Counters* C = counters(ARGS);
    *mask = FULL;
    switch (which) {
    case 0: *from = AT(u32, P.block_restarts); *to = AT(u32, P.block_interval); *count = header(ARGS)->blocks; break;
    case 1: *from = AT(u32, P.interval_entries); *to = AT(u32, P.interval_entry); *count = C->intervals; break;
    case 2: *from = AT(u32, P.keep); *to = AT(u32, P.keep_at); *count = C->entries; break;
    case 3: *from = AT(u32, P.new_key); *to = AT(u32, P.hash_at); *count = C->kept; break;
    case 6: *from = AT(u32, P.sizes); *to = AT(u32, P.small_at); *count = C->kept; *mask = 0xffff; break;
    case 4: *from = AT(u32, P.out_raw); *to = AT(u32, P.out_raw_at); *count = C->chain; break;
    default: *from = AT(u32, P.out_stored); *to = AT(u32, P.out_at); *count = C->out; break;
    }
}

KERNEL(scan_tiles) {
    ENTER
    GLOBAL const u32* from; GLOBAL u32* to; u32 count, mask;
    scan_of(ARGS, which, &from, &to, &count, &mask);
    DECLARE_LOCAL u32 sums[8];
    u32 tiles = (count + TILE - 1) / TILE;
    for (u32 tile = BLOCK; tile < tiles; tile += BLOCKS) {
        u32 sum = 0;
        for (u32 i = 0; i < TILE / 256; i++) {
            u32 at = tile * TILE + i * 256 + THREAD_OF_BLOCK;
            if (at < count) sum += from[at] & mask;
        }
        for (u32 d = 16; d; d /= 2) sum += lane_down(sum, d);
        if (LANE == 0) sums[THREAD_OF_BLOCK >> 5] = sum;
        sync_block();
        if (THREAD_OF_BLOCK == 0) {
            u32 total = 0;
            for (u32 i = 0; i < 8; i++) total += sums[i];
            AT(u32, P.tile_sums)[tile] = total;
        }
        sync_block();
    }
}

// One block of 256 threads; returns with the sum before each thread's part in *before and the sum of all.
FUNCTION u32 block_sums(PARAMS, u32 mine, u32* before, LOCAL u32* shared) {
    u32 lane = LANE, warp = THREAD_OF_BLOCK >> 5, inclusive = mine;
    for (u32 d = 1; d < 32; d *= 2) {
        u32 left = lane_up(inclusive, d);
        if (lane >= d) inclusive += left;
    }
    if (lane == 31) shared[warp] = inclusive;
    sync_block();
    u32 offset = 0, total = 0;
    for (u32 i = 0; i < 8; i++) {
        if (i < warp) offset += shared[i];
        total += shared[i];
    }
    sync_block();
    *before = offset + inclusive - mine;
    return total;
}

KERNEL(scan_top) {
    ENTER
    GLOBAL const u32* from; GLOBAL u32* to; u32 count, mask;
    scan_of(ARGS, which, &from, &to, &count, &mask);
    DECLARE_LOCAL u32 shared[8];
    GLOBAL u32* sums = AT(u32, P.tile_sums);
    u32 tiles = (count + TILE - 1) / TILE, carried = 0;
    for (u32 base = 0; base < tiles; base += 256) {
        u32 at = base + THREAD_OF_BLOCK, mine = at < tiles ? sums[at] : 0, before;
        u32 total = block_sums(ARGS, mine, &before, shared);
        if (at < tiles) sums[at] = carried + before;
        carried += total;
    }
    if (THREAD_OF_BLOCK != 0) return;
    to[count] = carried;
    GLOBAL Counters* C = counters(ARGS);
    if (which == 0) {
        C->intervals = carried;
        if (carried > P.intervals_max) fail(ARGS, STATUS_SPACE, carried);
    } else if (which == 1) {
        C->entries = carried;
        if (carried > header(ARGS)->entries_max) fail(ARGS, STATUS_SPACE, carried);
    } else if (which == 2) {
        C->kept = carried;
        u64 first = header(ARGS)->emit_from;
        C->emit_from = first < carried ? (u32)first : carried;
    } else if (which == 5) {
        C->data_bytes = carried;
        if (carried > header(ARGS)->result_bytes_max) fail(ARGS, STATUS_SPACE, carried);
    }
}

KERNEL(scan_apply) {
    ENTER
    GLOBAL const u32* from; GLOBAL u32* to; u32 count, mask;
    scan_of(ARGS, which, &from, &to, &count, &mask);
    DECLARE_LOCAL u32 shared[8];
    u32 tiles = (count + TILE - 1) / TILE;
    for (u32 tile = BLOCK; tile < tiles; tile += BLOCKS) {
        u32 carried = AT(const u32, P.tile_sums)[tile];
        for (u32 i = 0; i < TILE / 256; i++) {
            u32 at = tile * TILE + i * 256 + THREAD_OF_BLOCK, mine = at < count ? from[at] & mask : 0, before;
            u32 total = block_sums(ARGS, mine, &before, shared);
            if (at < count) to[at] = carried + before;
            carried += total;
        }
    }
}
