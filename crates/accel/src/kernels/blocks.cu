// ---- Output blocks ----

// A block's slot while it is made; slots are 16 bytes or more longer than blocks.
INLINE u64 slot_of(PARAMS, u32 block) {
    return ((((u64)AT(const u32, P.out_raw_at)[block] + 15) & ~(u64)15) + (u64)32 * block);
}

INLINE u32 put_varint(u64* bytes, u32 at, u32 n) {
    if (n < 128) { *bytes |= (u64)n << (8 * at); return at + 1; }
    *bytes |= (u64)((n & 127) | 128) << (8 * at) | (u64)(n >> 7) << (8 * at + 8);
    return at + 2;
}

INLINE u32 warp_sum(PARAMS, u32 x) {
    for (u32 d = 16; d; d /= 2) x += lane_down(x, d);
    return lane_get(x, 0);
}
INLINE u32 warp_max(PARAMS, u32 x) {
    for (u32 d = 16; d; d /= 2) { u32 y = lane_down(x, d); x = x > y ? x : y; }
    return lane_get(x, 0);
}
INLINE u64 warp_max64(PARAMS, u64 x) {
    for (u32 d = 16; d; d /= 2) { u64 y = lane_down(x, d); x = x > y ? x : y; }
    return lane_get(x, 0);
}

// Copies in words of the destination; its first and last bytes are not whole words. OpenCL C knows no pointer to either
// kind of memory, so there is a function for each.
#define COPY_BY_WARP(name, KIND)                                                                                      \
    INLINE void name(KIND u8* to, GLOBAL const u8* from, u32 bytes, u32 lane) {                                       \
        u32 front = (0u - (u32)(size_t)to) & 3u;                                                                      \
        if (front > bytes) front = bytes;                                                                             \
        u32 words = (bytes - front) / 4, tail = front + 4 * words;                                                    \
        if (lane < front) to[lane] = from[lane];                                                                      \
        for (u32 w = lane; w < words; w += 32) *(KIND u32*)(to + front + 4 * w) = load32(from + front + 4 * w);       \
        if (lane < bytes - tail) to[tail + lane] = from[tail + lane];                                                 \
    }
COPY_BY_WARP(copy_to_local, LOCAL)
COPY_BY_WARP(copy_to_global, GLOBAL)

// A value of this length is copied by a whole warp.
#define LONG_VALUE 48u

INLINE LOCAL u8* put_word(LOCAL u8* out, u64 word, u32 bytes) {
    for (u32 i = 0; i < bytes; i++) out[i] = (u8)(word >> (8 * i));
    return out + bytes;
}

INLINE LOCAL u8* put_string(LOCAL u8* out, GLOBAL const u8* from, u32 bytes) {
    for (u32 i = 0; i < bytes; i += 8) put_word(out + i, load64(from + i), bytes - i < 8 ? bytes - i : 8);
    return out + bytes;
}

// One warp is a block of threads here, and its shared memory is its own: the block while it is made, and LZ4's table.
KERNEL(encode) {
    ENTER
    GLOBAL Counters* C = counters(ARGS);
    DECLARE_LOCAL u32 classes[16];
    u32 lane = LANE, count = C->out, interval = header(ARGS)->restart_interval;
    bool lz4 = header(ARGS)->codec != 0;
    LOCAL u8* to = (LOCAL u8*)own_memory;
    LOCAL u16* table = (LOCAL u16*)(to + P.block_space);
    GLOBAL const u32* kept = AT(const u32, P.kept);
    GLOBAL const u32* hash_at = AT(const u32, P.hash_at);
    for (u32 b = WARP; b < count; b += WARPS) {
        u32 begin = AT(const u32, P.block_start)[b], end = AT(const u32, P.next)[begin], raw = AT(const u32, P.out_raw)[b];
        u32 restarts = (end - begin + interval - 1) / interval;
        LOCAL u8* restart_array = to + raw - 4 - 4 * restarts;
        u32 carried = 0, deletions = 0, keys_sum = 0, values_sum = 0, longest_key = 0, longest_value = 0;
        u64 largest = 0, smallest_inverted = 0;
        if (lane < 16) classes[lane] = 0;
        sync_warp();
        for (u32 first = begin; first < end; first += 32) {
            u32 i = first + lane, e = 0, size = 0, bytes = 0, lengths = 0;
            u64 trailer = 0, value = 0;
            bool restart = false;
            if (i < end) {
                e = kept[i];
                size = AT(const u32, P.sizes)[i];
                lengths = AT(const u32, P.lengths)[e];
                trailer = AT(const u64, P.kept_trailers)[i];
                value = AT(const u64, P.values)[e];
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
                add_to(&classes[32 - leading_zeros(value_length)], 1u);
            }
            u32 offset = bytes;
            for (u32 d = 1; d < 32; d *= 2) {
                u32 left = lane_up(offset, d);
                if (lane >= d) offset += left;
            }
            u32 sum = lane_get(offset, 31);
            offset = carried + offset - bytes;
            carried += sum;
            if (i < end && restart) {
                LOCAL u8* place = restart_array + 4 * ((i - begin) / interval);
                for (u32 k = 0; k < 4; k++) place[k] = (u8)(offset >> (8 * k));
            }
            // A lane writes its own entry; a long value is left to the warp.
            u32 value_length = lengths & 0xffff, value_at = offset + bytes - value_length;
            if (i < end) {
                u32 shared = restart ? 0 : size >> 16 & 255, suffix = (lengths >> 16) - shared;
                u64 head = 0;
                u32 head_bytes = put_varint(&head, put_varint(&head, put_varint(&head, 0, shared), suffix), value_length);
                LOCAL u8* out = put_word(to + offset, head, head_bytes);
                out = put_string(out, (GLOBAL const u8*)key_of(ARGS, e) + shared, suffix);
                out = put_word(out, trailer, 8);
                if (value_length < LONG_VALUE) put_string(out, AT(const u8, value), value_length);
            }
            u32 longs = lanes_where(i < end && value_length >= LONG_VALUE);
            while (longs) {
                u32 q = lowest_bit(longs);
                longs &= longs - 1;
                u32 at = lane_get(value_at, q), long_bytes = lane_get(value_length, q);
                copy_to_local(to + at, AT(const u8, lane_get(value, q)), long_bytes, lane);
            }
        }
        if (lane < 4) to[raw - 4 + lane] = (u8)(restarts >> (8 * lane));
        deletions = warp_sum(ARGS, deletions);
        keys_sum = warp_sum(ARGS, keys_sum);
        values_sum = warp_sum(ARGS, values_sum);
        longest_key = warp_max(ARGS, longest_key);
        longest_value = warp_max(ARGS, longest_value);
        largest = warp_max64(ARGS, largest);
        smallest_inverted = warp_max64(ARGS, smallest_inverted);
        sync_warp();
        GLOBAL BlockReport* R = AT(BlockReport, P.reports) + b;
        u32 stride = P.key_stride, words = stride / 8, first_entry = kept[begin], last_entry = kept[end - 1];
        GLOBAL u64* keys = AT(u64, P.out_keys + (u64)2 * b * stride);
        for (u32 w = lane; w < 2 * words; w += 32) {
            keys[w] = w < words ? key_of(ARGS, first_entry)[w] : key_of(ARGS, last_entry)[w - words];
        }
        if (lane < 16) R->value_classes[lane] = (u16)classes[lane];
        if (lane == 0) {
            R->raw_bytes = raw;
            R->entries = end - begin;
            R->deletions = deletions;
            R->first_key_at = 2 * b * stride;
            R->last_key_at = (2 * b + 1) * stride;
            R->first_key_bytes = (u16)key_bytes(ARGS, first_entry);
            R->last_key_bytes = (u16)key_bytes(ARGS, last_entry);
            R->flags = AT(const u32, P.new_key)[begin] ? REPORT_NEW_USER_KEY : 0;
            R->first_trailer = AT(const u64, P.kept_trailers)[begin];
            R->last_trailer = AT(const u64, P.kept_trailers)[end - 1];
            R->smallest_sequence = ~smallest_inverted;
            R->largest_sequence = largest;
            R->first_entry = begin;
            R->first_hash = hash_at[begin] - hash_at[C->emit_from];
            R->hashes = hash_at[end] - hash_at[begin];
            R->key_bytes = keys_sum;
            R->value_bytes = values_sum;
            R->longest_key = longest_key;
            R->longest_value = longest_value;
            R->report_checksum = 0;
        }
        GLOBAL u8* slot = AT(u8, P.slot_area + slot_of(ARGS, b));
        u32 stored = lz4 ? lz4_encode(ARGS, (LOCAL const u32*)own_memory, raw, slot, table, lane) : 0;
        if (lane == 0) {
            AT(u32, P.out_stored)[b] = (stored ? stored : raw) + 5;
            AT(u32, P.out_packed)[b] = stored != 0;
        }
        if (!stored) {
            for (u32 w = lane; w < (raw + 7) / 8; w += 32) ((GLOBAL u64*)slot)[w] = ((LOCAL const u64*)to)[w];
        }
        sync_warp();
    }
}

// Seals each block in its slot, and puts it behind the one before.
KERNEL(pack) {
    ENTER
    LOAD_BY128
    u32 lane = LANE, count = counters(ARGS)->out;
    for (u32 b = WARP; b < count; b += WARPS) {
        u32 packed = AT(const u32, P.out_packed)[b], stored = AT(const u32, P.out_stored)[b], at = AT(const u32, P.out_at)[b];
        GLOBAL u8* from = AT(u8, P.slot_area + slot_of(ARGS, b));
        if (lane == 0) from[stored - 5] = (u8)packed;
        sync_warp();
        u32 crc = warp_crc(ARGS, by128, from, stored - 4, lane);
        if (lane < 4) from[stored - 4 + lane] = (u8)(crc >> (8 * lane));
        sync_warp();
        copy_to_global(AT(u8, P.out_data + at), from, stored, lane);
        GLOBAL BlockReport* R = AT(BlockReport, P.reports) + b;
        u32 keys = warp_crc(ARGS, by128, AT(const u8, P.out_keys + (u64)2 * b * P.key_stride), 2 * P.key_stride, lane);
        u32 hashes = warp_crc(ARGS, by128, AT(const u8, P.hashes + (u64)8 * R->first_hash), 8 * R->hashes, lane);
        if (lane == 0) {
            R->at = at;
            R->stored_bytes = stored;
            R->checksum = crc;
            R->keys_checksum = keys;
            R->hashes_checksum = hashes;
        }
        sync_warp();
        u32 report = warp_crc(ARGS, by128, (GLOBAL const u8*)R, sizeof(BlockReport), lane);
        if (lane == 0) R->report_checksum = report;
        sync_warp();
    }
}
