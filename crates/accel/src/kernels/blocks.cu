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
            R->report_checksum = 0;
        }
        u8* slot = (u8*)(P.slot_area + slot_of(P, b));
        u32 stored = lz4 ? lz4_encode((const u32*)own_memory, raw, slot, table, lane) : 0;
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
        BlockReport* R = (BlockReport*)P.reports + b;
        u32 keys = warp_crc(P, by128, (const u8*)(P.out_keys + 2ull * b * P.key_stride), 2 * P.key_stride, lane);
        u32 hashes = warp_crc(P, by128, (const u8*)(P.hashes + 8ull * R->first_hash), 8 * R->hashes, lane);
        if (lane == 0) {
            R->at = at;
            R->stored_bytes = stored;
            R->checksum = crc;
            R->keys_checksum = keys;
            R->hashes_checksum = hashes;
        }
        __syncwarp();
        u32 report = warp_crc(P, by128, (const u8*)R, sizeof(BlockReport), lane);
        if (lane == 0) R->report_checksum = report;
        __syncwarp();
    }
}
