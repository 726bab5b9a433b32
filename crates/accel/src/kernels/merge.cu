// ---- Merge ----

// Compares whole user keys: keys have zeros behind their end, so words decide, and then lengths.
FUNCTION int compare_users(PARAMS, u32 a, u32 b) {
    GLOBAL const u64 *x = key_of(ARGS, a), *y = key_of(ARGS, b);
    u32 words = P.key_stride / 8;
    for (u32 w = 0; w < words; w++) {
        if (x[w] != y[w]) return swap64(x[w]) < swap64(y[w]) ? -1 : 1;
    }
    u32 m = key_bytes(ARGS, a), n = key_bytes(ARGS, b);
    return m < n ? -1 : m > n;
}

INLINE bool same_user(PARAMS, u32 a, u32 b) {
    GLOBAL const u64* heads = AT(const u64, P.heads);
    return heads[a] == heads[b] && compare_users(ARGS, a, b) == 0;
}

// The order of internal keys, where b's head and trailer are at hand.
INLINE int compare(PARAMS, u32 a, u32 b, u64 head, u64 trailer) {
    u64 other = AT(const u64, P.heads)[a];
    if (other != head) return other < head ? -1 : 1;
    int users = compare_users(ARGS, a, b);
    if (users) return users;
    u64 t = trailer_of(ARGS, a);
    return t > trailer ? -1 : t < trailer;
}

// How many entries of low..high are before e; those equal to e, too, if `with_equal`. low and high are absolute.
FUNCTION u32 bisect(PARAMS, u32 low, u32 high, u32 e, bool with_equal) {
    u64 head = AT(const u64, P.heads)[e], trailer = trailer_of(ARGS, e);
    int before = with_equal ? 1 : 0;
    while (low < high) {
        u32 middle = low + (high - low) / 2;
        if (compare(ARGS, middle, e, head, trailer) < before) low = middle + 1; else high = middle;
    }
    return low;
}

// An entry's place in the merge is its place in its own way and, for each other way, how many entries there are before it.
// An equal one counts as before in a newer way and as behind in an older one, so places are never shared. A block of
// threads has neighbours: the first and the last of them bound the bisections of all.
KERNEL(merge_ranks) {
    ENTER
    GLOBAL Counters* C = counters(ARGS);
    DECLARE_LOCAL u32 lows[16], highs[16];
    u32 count = C->entries, ways = header(ARGS)->ways;
    for (u32 base = BLOCK * THREADS_OF_BLOCK; base < count; base += BLOCKS * THREADS_OF_BLOCK) {
        u32 last = base + THREADS_OF_BLOCK - 1 < count ? base + THREADS_OF_BLOCK - 1 : count - 1;
        u32 way_of_first = 0, way_of_last = 0;
        for (u32 w = 1; w < ways; w++) {
            if (C->way_entry[w] <= base) way_of_first = w;
            if (C->way_entry[w] <= last) way_of_last = w;
        }
        if (THREAD_OF_BLOCK < 2 * ways) {
            u32 w = THREAD_OF_BLOCK / 2, begin = C->way_entry[w], end = w + 1 < ways ? C->way_entry[w + 1] : count;
            bool is_high = THREAD_OF_BLOCK & 1, narrow = way_of_first == way_of_last;
            u32 bound = is_high ? end : begin;
            if (narrow && w != way_of_first) bound = bisect(ARGS, begin, end, is_high ? last : base, w < way_of_first);
            if (is_high) highs[w] = bound; else lows[w] = bound;
        }
        sync_block();
        u32 e = base + THREAD_OF_BLOCK;
        if (e < count) {
            u32 way = 0;
            for (u32 w = 1; w < ways; w++) if (C->way_entry[w] <= e) way = w;
            u32 begin = C->way_entry[way], rank = e - begin;
            if (e > begin && compare(ARGS, e - 1, e, AT(const u64, P.heads)[e], trailer_of(ARGS, e)) >= 0) fail(ARGS, STATUS_ORDER, e);
            for (u32 w = 0; w < ways; w++) {
                if (w != way) rank += bisect(ARGS, lows[w], highs[w], e, w < way) - C->way_entry[w];
            }
            // Ways out of order could give a place that does not exist, and are refused anyway.
            if (rank < count) AT(u32, P.order)[rank] = e;
        }
        sync_block();
    }
}

// ---- What is kept ----

FUNCTION u32 stripe_of(PARAMS, u64 trailer) {
    GLOBAL const u64* snapshots = AT(const u64, P.task + header(ARGS)->snapshots_at);
    u64 sequence = trailer >> 8;
    u32 low = 0, high = header(ARGS)->snapshots;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (snapshots[middle] < sequence) low = middle + 1; else high = middle;
    }
    return low;
}

// Compares an entry's user key with bytes.
FUNCTION int compare_bytes(PARAMS, u32 e, GLOBAL const u8* other, u32 bytes) {
    GLOBAL const u8* key = (GLOBAL const u8*)key_of(ARGS, e);
    u32 mine = key_bytes(ARGS, e), both = mine < bytes ? mine : bytes;
    for (u32 i = 0; i < both; i++) {
        if (key[i] != other[i]) return key[i] < other[i] ? -1 : 1;
    }
    return mine < bytes ? -1 : mine > bytes;
}

FUNCTION bool in_range(PARAMS, u32 e) {
    GLOBAL const TaskHeader* H = header(ARGS);
    GLOBAL const u8* keys = AT(const u8, P.task + H->keys_at);
    if (H->lower_bytes && compare_bytes(ARGS, e, keys, H->lower_bytes) < 0) return false;
    return H->upper_bytes == NONE || compare_bytes(ARGS, e, keys + H->lower_bytes, H->upper_bytes) < 0;
}

FUNCTION bool lies_below(PARAMS, u32 e) {
    GLOBAL const TaskHeader* H = header(ARGS);
    if (H->flags & FLAG_BELOW_ALL) return true;
    GLOBAL const Span* spans = AT(const Span, P.task + H->spans_at);
    GLOBAL const u8* keys = AT(const u8, P.task + H->keys_at);
    // The number of spans that begin at or before the key.
    u32 low = 0, high = H->spans;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (compare_bytes(ARGS, e, keys + spans[middle].begin_at, spans[middle].begin_bytes) >= 0) low = middle + 1; else high = middle;
    }
    return low > 0 && compare_bytes(ARGS, e, keys + spans[low - 1].end_at, spans[low - 1].end_bytes) < 0;
}

// A tombstone stays if an older value of its key does: the newest one in some stripe further down.
FUNCTION bool hides_something(PARAMS, u32 rank, u32 stripe, u32 count) {
    GLOBAL const u32* order = AT(const u32, P.order);
    u32 e = order[rank];
    for (u32 i = rank + 1; i < count && same_user(ARGS, order[i], e); i++) {
        u64 trailer = trailer_of(ARGS, order[i]);
        u32 other = stripe_of(ARGS, trailer);
        if (other != stripe && (trailer & 255) != 0) return true;
        stripe = other;
    }
    return false;
}

KERNEL(see) {
    ENTER
    GLOBAL Counters* C = counters(ARGS);
    GLOBAL const u32* order = AT(const u32, P.order);
    u32 count = C->entries;
    for (u32 base = BLOCK * THREADS_OF_BLOCK; base < count; base += BLOCKS * THREADS_OF_BLOCK) {
        u32 rank = base + THREAD_OF_BLOCK;
        bool counts = false, hidden = false, dropped = false, zeroed = false, keep = false;
        if (rank < count) {
            u32 e = order[rank];
            u64 trailer = trailer_of(ARGS, e);
            counts = in_range(ARGS, e);
            if (counts) {
                u32 stripe = stripe_of(ARGS, trailer);
                if (rank > 0 && same_user(ARGS, order[rank - 1], e)) {
                    u64 newer = trailer_of(ARGS, order[rank - 1]);
                    if (newer <= trailer) fail(ARGS, STATUS_ORDER, e);
                    hidden = stripe_of(ARGS, newer) == stripe;
                }
                if (!hidden) {
                    bool below = lies_below(ARGS, e);
                    if ((trailer & 255) == 0) {
                        keep = below || (stripe > 0 && hides_something(ARGS, rank, stripe, count));
                        dropped = !keep;
                    } else {
                        keep = true;
                        zeroed = stripe == 0 && !below && (trailer >> 8) > 0;
                        if (zeroed) trailer &= 255;
                    }
                }
            }
            AT(u32, P.keep)[rank] = keep;
            AT(u64, P.new_trailers)[rank] = trailer;
        }
        u32 a = bits_in(lanes_where(counts)), b = bits_in(lanes_where(hidden));
        u32 c = bits_in(lanes_where(dropped)), d = bits_in(lanes_where(zeroed));
        if (LANE == 0) {
            if (a) add_to(&C->entries_in, a);
            if (b) add_to(&C->hidden, b);
            if (c) add_to(&C->tombstones, c);
            if (d) add_to(&C->zeroed, d);
        }
    }
}

KERNEL(compact) {
    ENTER
    u32 count = counters(ARGS)->entries;
    for (u32 rank = THREAD; rank < count; rank += THREADS) {
        if (AT(const u32, P.keep)[rank]) {
            u32 at = AT(const u32, P.keep_at)[rank];
            AT(u32, P.kept)[at] = AT(const u32, P.order)[rank];
            AT(u64, P.kept_trailers)[at] = AT(const u64, P.new_trailers)[rank];
        }
    }
}
