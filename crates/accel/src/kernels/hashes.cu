// ---- Filter hashes: XXH3, 64 bits, keys of at most 128 bytes ----

DECLARE_CONSTANT u8 SECRET[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

INLINE u64 bytes64(CONSTANT const u8* p) {
    u64 x = 0;
    for (u32 i = 0; i < 8; i++) x |= (u64)p[i] << (8 * i);
    return x;
}
INLINE u64 fold(u64 a, u64 b) { return a * b ^ high_product(a, b); }
INLINE u64 avalanche(u64 x) {
    x ^= x >> 37;
    x *= 0x165667919E3779F9;
    return x ^ x >> 32;
}
INLINE u64 avalanche64(u64 x) {
    x ^= x >> 33;
    x *= 0xC2B2AE3D27D4EB4F;
    x ^= x >> 29;
    x *= 0x165667B19E3779F9;
    return x ^ x >> 32;
}
INLINE u64 rotated(u64 x, u32 n) { return x << n | x >> (64 - n); }
INLINE u64 mix16(GLOBAL const u8* p, CONSTANT const u8* s) { return fold(load64(p) ^ bytes64(s), load64(p + 8) ^ bytes64(s + 8)); }

FUNCTION u64 xxh3(GLOBAL const u8* p, u32 n) {
    if (n > 16) {
        u64 sum = n * 0x9E3779B185EBCA87;
        if (n > 96) sum += mix16(p + 48, SECRET + 96) + mix16(p + n - 64, SECRET + 112);
        if (n > 64) sum += mix16(p + 32, SECRET + 64) + mix16(p + n - 48, SECRET + 80);
        if (n > 32) sum += mix16(p + 16, SECRET + 32) + mix16(p + n - 32, SECRET + 48);
        return avalanche(sum + mix16(p, SECRET) + mix16(p + n - 16, SECRET + 16));
    }
    if (n > 8) {
        u64 low = load64(p) ^ (bytes64(SECRET + 24) ^ bytes64(SECRET + 32));
        u64 high = load64(p + n - 8) ^ (bytes64(SECRET + 40) ^ bytes64(SECRET + 48));
        return avalanche(n + swap64(low) + high + fold(low, high));
    }
    if (n >= 4) {
        u64 keyed = ((u64)load32(p + n - 4) + ((u64)load32(p) << 32)) ^ (bytes64(SECRET + 8) ^ bytes64(SECRET + 16));
        keyed ^= rotated(keyed, 49) ^ rotated(keyed, 24);
        keyed *= 0x9FB21C651E98DF25;
        keyed ^= (keyed >> 35) + n;
        keyed *= 0x9FB21C651E98DF25;
        return keyed ^ keyed >> 28;
    }
    if (n > 0) {
        u32 combined = (u32)p[0] << 16 | (u32)p[n >> 1] << 24 | p[n - 1] | n << 8;
        u64 flip = (u32)bytes64(SECRET) ^ (u32)bytes64(SECRET + 4);
        return avalanche64(combined ^ flip);
    }
    return avalanche64(bytes64(SECRET + 56) ^ bytes64(SECRET + 64));
}

KERNEL(hash_keys) {
    ENTER
    GLOBAL Counters* C = counters(ARGS);
    GLOBAL const u32* hash_at = AT(const u32, P.hash_at);
    u32 first = C->emit_from, end = C->emitted_to;
    for (u32 i = first + THREAD; i < end; i += THREADS) {
        if (!AT(const u32, P.new_key)[i]) continue;
        u32 e = AT(const u32, P.kept)[i];
        AT(u64, P.hashes)[hash_at[i] - hash_at[first]] = xxh3((GLOBAL const u8*)key_of(ARGS, e), key_bytes(ARGS, e));
    }
}

KERNEL(finish) {
    if (THREAD_OF_BLOCK != 0) return;
    GLOBAL Counters* C = counters(ARGS);
    GLOBAL AnswerHeader* A = AT(AnswerHeader, P.answer);
    GLOBAL const u32* hash_at = AT(const u32, P.hash_at);
    for (u32 i = 0; i < 8; i++) A->magic[i] = (u8)(ANSWER_MAGIC >> (8 * i));
    A->version = header(ARGS)->version;
    A->status = C->status;
    A->detail = C->detail;
    A->key_stride = P.key_stride;
    A->checksum = 0;
    bool fine = C->status == 0;
    u32 emitted_to = C->out ? C->emitted_to : C->emit_from;
    A->entries_in = fine ? C->entries_in : 0;
    A->entries_kept = fine ? C->kept : 0;
    A->dropped_hidden = fine ? C->hidden : 0;
    A->dropped_tombstones = fine ? C->tombstones : 0;
    A->sequences_zeroed = fine ? C->zeroed : 0;
    A->emitted_to = fine ? emitted_to : 0;
    A->data_bytes = fine ? C->data_bytes : 0;
    A->blocks = fine ? C->out : 0;
    A->hashes = fine ? hash_at[emitted_to] - hash_at[C->emit_from] : 0;
    u32 crc = FULL;
    for (u32 i = 0; i < sizeof(AnswerHeader); i++) {
        crc ^= ((GLOBAL const u8*)A)[i];
        for (u32 bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1)));
    }
    A->checksum = ~crc;
}
