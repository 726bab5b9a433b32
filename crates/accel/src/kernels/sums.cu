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
