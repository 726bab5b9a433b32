// ---- Input blocks ----

// Every lane reads the same bytes of the stream, and all copy.
FUNCTION bool lz4_decode(PARAMS, GLOBAL const u8* src, u32 bytes, GLOBAL u8* dst, u32 size, u32 lane) {
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
        sync_warp();
        GLOBAL const u8* from = dst + op - offset;
        if (offset >= length) {
            for (u32 i = lane; i < length; i += 32) dst[op + i] = from[i];
        } else {
            for (u32 i = lane; i < length; i += 32) dst[op + i] = from[i % offset];
        }
        op += length;
        sync_warp();
    }
    sync_warp();
    return op == size;
}

KERNEL(check_blocks) {
    ENTER
    LOAD_BY128
    GLOBAL const InputBlock* blocks = AT(const InputBlock, P.task + header(ARGS)->blocks_at);
    u32 count = header(ARGS)->blocks, lane = LANE;
    for (u32 b = WARP; b < count; b += WARPS) {
        u32 stored_bytes = blocks[b].stored_bytes, raw_bytes = blocks[b].raw_bytes;
        GLOBAL const u8* stored = AT(const u8, P.data + blocks[b].at);
        u32 restarts = 0;
        GLOBAL const u8* raw = stored;
        u32 found = warp_crc(ARGS, by128, stored, stored_bytes - 4, lane);
        if (found != load32(stored + stored_bytes - 4)) {
            if (lane == 0) fail(ARGS, STATUS_CHECKSUM, b);
        } else {
            u32 kind = stored[stored_bytes - 5];
            bool sound = kind == 0 && raw_bytes == stored_bytes - 5;
            if (kind == 1 && load32(stored) == raw_bytes) {
                GLOBAL u8* to = AT(u8, P.scratch + (u64)16 * AT(const u32, P.slots)[b]);
                sound = lz4_decode(ARGS, stored + 4, stored_bytes - 9, to, raw_bytes, lane);
                raw = to;
            }
            if (sound) {
                restarts = load32(raw + raw_bytes - 4);
                sound = restarts <= (raw_bytes - 4) / 4 && (restarts == 0) == (raw_bytes == 4 + 4 * restarts);
            }
            if (!sound) {
                restarts = 0;
                if (lane == 0) fail(ARGS, STATUS_BLOCK, b);
            }
        }
        if (lane == 0) {
            AT(u64, P.block_raw)[b] = PLACE(raw);
            AT(u32, P.block_restarts)[b] = restarts;
        }
    }
}
