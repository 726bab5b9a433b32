// ---- Input blocks ----

// Every lane reads the same bytes of the stream, and all copy.
__device__ bool lz4_decode(const u8* src, u32 bytes, u8* dst, u32 size, u32 lane) {
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
        __syncwarp();
        const u8* from = dst + op - offset;
        if (offset >= length) {
            for (u32 i = lane; i < length; i += 32) dst[op + i] = from[i];
        } else {
            for (u32 i = lane; i < length; i += 32) dst[op + i] = from[i % offset];
        }
        op += length;
        __syncwarp();
    }
    __syncwarp();
    return op == size;
}

extern "C" __global__ void check_blocks(const Params P, u32 which) {
    ENTER
    LOAD_BY128
    const InputBlock* blocks = (const InputBlock*)(P.task + header(P)->blocks_at);
    u32 count = header(P)->blocks, lane = LANE;
    for (u32 b = WARP; b < count; b += WARPS) {
        u32 stored_bytes = blocks[b].stored_bytes, raw_bytes = blocks[b].raw_bytes;
        const u8* stored = (const u8*)(P.data + blocks[b].at);
        u32 restarts = 0;
        const u8* raw = stored;
        u32 found = warp_crc(P, by128, stored, stored_bytes - 4, lane);
        if (found != load32(stored + stored_bytes - 4)) {
            if (lane == 0) fail(P, STATUS_CHECKSUM, b);
        } else {
            u32 kind = stored[stored_bytes - 5];
            bool sound = kind == 0 && raw_bytes == stored_bytes - 5;
            if (kind == 1 && load32(stored) == raw_bytes) {
                u8* to = (u8*)(P.scratch + 16ull * ((const u32*)P.slots)[b]);
                sound = lz4_decode(stored + 4, stored_bytes - 9, to, raw_bytes, lane);
                raw = to;
            }
            if (sound) {
                restarts = load32(raw + raw_bytes - 4);
                sound = restarts <= (raw_bytes - 4) / 4 && (restarts == 0) == (raw_bytes == 4 + 4 * restarts);
            }
            if (!sound) {
                restarts = 0;
                if (lane == 0) fail(P, STATUS_BLOCK, b);
            }
        }
        if (lane == 0) {
            ((u64*)P.block_raw)[b] = (u64)raw;
            ((u32*)P.block_restarts)[b] = restarts;
        }
    }
}
