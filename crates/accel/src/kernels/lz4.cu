// ---- LZ4, the bytes of lz4_flex ----
//
// The matcher tries positions one after the other: it looks up and replaces the last position with the same hash, and
// stops at the first that has four bytes in common. The distance of tries grows by one every 32 of them. So 32 tries
// have one distance, and a warp makes them at once: a lane's last position is that of the nearest lane before it with the
// same hash, or the table's. The first lane that finds a match decides, and lanes behind it leave the table alone.

INLINE u32 lz4_slot(u32 word) { return word * 2654435761u >> 20; }

// How many bytes a length needs in addition to its four bits.
INLINE u32 lz4_more(u32 length) { return length < 15 ? 0 : length < 270 ? 1 : (length - 15) / 255 + 1; }

// Writes a length that did not fit into its four bits, and returns where it ends.
INLINE u32 lz4_length(GLOBAL u8* out, u32 at, u32 rest, u32 lane) {
    u32 full = rest / 255;
    for (u32 i = lane; i <= full; i += 32) out[at + i] = i < full ? 255 : (u8)(rest - 255 * full);
    return at + full + 1;
}

// How many of the four bytes at i behind a and b are the same, of those before `most`.
INLINE u32 lz4_same(LOCAL const u32* words, u32 a, u32 b, u32 i, u32 most) {
    if (i >= most) return 0;
    u32 difference = word_at(words, a + i) ^ word_at(words, b + i);
    u32 same = difference ? lowest_bit(difference) / 8 : 4;
    return same < most - i ? same : most - i;
}

// Returns the stored length, without the trailer, of the block in `in`; 0 if it is not worth it.
INLINE u32 lz4_encode(PARAMS, LOCAL const u32* words, u32 bytes, GLOBAL u8* out, LOCAL u16* table, u32 lane) {
    LOCAL const u8* in = (LOCAL const u8*)words;
    u32 limit = bytes - bytes / 8;
    if (bytes < 13) return 0;
    for (u32 i = lane; i < 1024; i += 32) ((LOCAL u64*)table)[i] = 0;
    if (lane < 4) out[lane] = (u8)(bytes >> (8 * lane));
    sync_warp();
    u32 o = 4, literals_from = 0, cur = 1, end = bytes - 12;
    while (true) {
        u32 base = cur, step = 1, candidate = 0;
        bool found = false;
        while (true) {
            u32 pos = base + lane * step;
            bool valid = pos <= end;
            u32 word = valid ? word_at(words, pos) : 0, slot = lz4_slot(word);
            u32 peers = lanes_like(valid ? slot : 0x10000u + lane);
            u32 earlier = peers & ((1u << lane) - 1);
            u32 other = earlier ? base + (31 - leading_zeros(earlier)) * step : valid ? table[slot] : 0;
            u32 hits = lanes_where(valid && word_at(words, other) == word);
            u32 ends = lanes_where(!valid);
            u32 first = hits ? lowest_bit(hits) : 32;
            if (ends && lowest_bit(ends) < first) break;
            u32 upto = first < 31 ? (2u << first) - 1 : FULL;
            u32 mine = peers & upto;
            if ((upto >> lane & 1) && lane == 31 - leading_zeros(mine)) table[slot] = (u16)pos;
            sync_warp();
            if (hits) {
                cur = lane_get(pos, first);
                candidate = lane_get(other, first);
                found = true;
                break;
            }
            base += 32 * step;
            step++;
        }
        if (!found) break;
        // One look: eight lanes go backward, a byte each, and the others forward, four bytes each.
        u32 back_most = candidate < cur - literals_from ? candidate : cur - literals_from;
        u32 ahead = cur + 4, ahead_most = bytes - 6 - ahead, same = 0, other = candidate + 4;
        bool differs;
        if (lane < 8) {
            differs = lane >= back_most || in[cur - 1 - lane] != in[candidate - 1 - lane];
        } else {
            same = lz4_same(words, ahead, other, 4 * (lane - 8), ahead_most);
            differs = same < 4;
        }
        u32 look = lanes_where(differs);
        u32 back = look & 255 ? lowest_bit(look & 255) : 8;
        while (!(look & 255)) {
            u32 i = back + lane;
            u32 differ = lanes_where(i >= back_most || in[cur - 1 - i] != in[candidate - 1 - i]);
            back += differ ? lowest_bit(differ) : 32;
            if (differ) break;
        }
        u32 length = 96;
        if (look >> 8) {
            u32 lane_of = lowest_bit(look >> 8) + 8;
            length = 4 * (lane_of - 8) + lane_get(same, lane_of);
        } else {
            while (true) {
                same = lz4_same(words, ahead, other, length + 4 * lane, ahead_most);
                u32 differ = lanes_where(same < 4);
                if (differ) {
                    u32 lane_of = lowest_bit(differ);
                    length += 4 * lane_of + lane_get(same, lane_of);
                    break;
                }
                length += 128;
            }
        }
        u32 literals = cur - back - literals_from, offset = cur - candidate;
        cur = ahead + length;
        // The match's length counts from where it begins, which may be further back.
        length += back;
        if (lane == 0) table[lz4_slot(word_at(words, cur - 2))] = (u16)(cur - 2);
        // The sequence. Mostly a length that does not fit into its four bits needs one byte more.
        u32 literals_more = lz4_more(literals), length_more = lz4_more(length);
        u32 needs = 3 + literals_more + literals + length_more;
        if (o + needs > limit) return 0;
        u32 token = (literals < 15 ? literals : 15) << 4 | (length < 15 ? length : 15);
        u32 text = o + 1 + literals_more, behind = text + literals;
        if (literals_more <= 1 && length_more <= 1) {
            // A lane has a byte: token, more literals, offset, offset, more length.
            u32 byte = lane == 0 ? token : lane == 1 ? literals - 15 : lane == 2 ? offset : lane == 3 ? offset >> 8 : length - 15;
            u32 at = lane < 2 ? o + lane : behind + lane - 2;
            if (lane < 4 + length_more && (lane != 1 || literals_more)) out[at] = (u8)byte;
        } else {
            if (lane == 0) out[o] = (u8)token;
            if (literals_more) lz4_length(out, o + 1, literals - 15, lane);
            if (lane < 2) out[behind + lane] = (u8)(offset >> (8 * lane));
            if (length_more) lz4_length(out, behind + 2, length - 15, lane);
        }
        for (u32 i = lane; i < literals; i += 32) out[text + i] = in[literals_from + i];
        o += needs;
        literals_from = cur;
        sync_warp();
    }
    u32 literals = bytes - literals_from;
    u32 needs = 1 + literals + lz4_more(literals);
    if (o + needs > limit) return 0;
    if (lane == 0) out[o] = (u8)((literals < 15 ? literals : 15) << 4);
    o++;
    if (literals >= 15) o = lz4_length(out, o, literals - 15, lane);
    for (u32 i = lane; i < literals; i += 32) out[o + i] = in[literals_from + i];
    return o + literals;
}
