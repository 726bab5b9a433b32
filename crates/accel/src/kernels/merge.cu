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
