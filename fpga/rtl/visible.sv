// Decides which entries stay: the rules of compaction/src/stream.rs, for snapshots and tombstones.
//
// Stage 1 takes a key's words and counts the bytes that it has in common with the key before. Keys lie in four banks,
// which are used in turns: the encoder reads the key from there when it writes the entry. Stage 2 decides.
//
// Keys ascend, so the prefix that a key shares with the last *kept* one is the shortest of the prefixes that the keys
// since then share with each other. So only neighbours are compared.
`default_nettype none
module visible #(
    parameter WBITS = 2
) (
    input  wire             clk,
    input  wire             clear,
    input  wire             below_all,
    input  wire [8*56-1:0]  snapshots,
    input  wire [7:0]       snapshot_valid,
    // From the tournament.
    input  wire             in_valid,
    output wire             in_ready,
    input  wire [63:0]      in_word,
    input  wire [3:0]       in_code,
    input  wire             in_trailer,
    input  wire [13:0]      in_value_bytes,
    input  wire [WBITS-1:0] in_way,
    // To the encoder: {drop the value, first of its key, bank, shared, key bytes, trailer, value bytes, way}.
    output reg              out_valid,
    input  wire             out_ready,
    output reg  [95+WBITS:0] out,
    // The banks that the encoder still needs begin with this one.
    input  wire             bank_held,
    input  wire [1:0]       bank_first,
    // A word of a bank, for the encoder.
    input  wire [4:0]       key_at,
    output wire [63:0]      key_word,
    output wire             idle,
    output reg  [31:0]      dropped_hidden,
    output wire [31:0]      dropped_tombstones,
    output reg  [31:0]      sequences_zeroed
);
    reg [63:0] bank_a[0:31];
    reg [63:0] bank_b[0:31];
    reg [1:0]  bank;
    wire [1:0] next_bank = bank + 1'b1;
    reg [2:0]  at;
    reg [6:0]  same_bytes, seen_bytes, key_bytes;
    reg        still_same;

    assign key_word = bank_b[key_at];

    // Stage 1.
    wire bank_free = !(bank_held && next_bank == bank_first);
    wire v2_ready, v2_done;
    assign in_ready = in_trailer ? v2_ready : bank_free;
    wire take_key = in_valid && in_ready && !in_trailer;
    wire take_trailer = in_valid && in_ready && in_trailer;

    wire [63:0] seen = bank_a[{bank, at}];
    wire [7:0]  equal;
    for (genvar b = 0; b < 8; b++) begin : g_equal
        assign equal[b] = seen[63-8*b-:8] == in_word[63-8*b-:8];
    end
    reg [3:0] leading;
    always_comb begin
        leading = 4'd8;
        for (int b = 7; b >= 0; b--) if (!equal[b]) leading = b[3:0];
    end

    wire [6:0] shorter = key_bytes < seen_bytes ? key_bytes : seen_bytes;
    wire [6:0] common  = same_bytes < shorter ? same_bytes : shorter;
    wire       is_same = common == seen_bytes && key_bytes == seen_bytes;
    reg        has_seen;
    wire [63:0] trailer = ~in_word;
    wire [7:0] above;
    for (genvar i = 0; i < 8; i++) begin : g_above
        assign above[i] = snapshot_valid[i] && snapshots[56*i+:56] < trailer[63:8];
    end

    reg             v2;
    reg [63:0]      trailer2;
    reg [13:0]      value_bytes2;
    reg [WBITS-1:0] way2;
    reg [6:0]       common2, key_bytes2;
    reg             same2;
    reg [7:0]       stripe2;

    always_ff @(posedge clk) begin
        if (take_key) begin
            bank_a[{next_bank, at}] <= in_word;
            bank_b[{next_bank, at}] <= in_word;
        end
        if (clear) begin
            bank       <= '0;
            at         <= '0;
            same_bytes <= '0;
            still_same <= 1'b1;
            seen_bytes <= '0;
            has_seen   <= 1'b0;
            v2         <= 1'b0;
        end else begin
            if (v2_done) v2 <= 1'b0;
            if (take_key) begin
                at        <= at + 1'b1;
                key_bytes <= {1'b0, at, 3'b000} + {3'd0, in_code == 4'd9 ? 4'd8 : in_code};
                if (still_same) begin
                    same_bytes <= {1'b0, at, 3'b000} + {3'd0, leading};
                    still_same <= leading == 4'd8;
                end
            end
            if (take_trailer) begin
                at         <= '0;
                same_bytes <= '0;
                still_same <= 1'b1;
                seen_bytes <= key_bytes;
                has_seen   <= 1'b1;
                if (!(is_same && has_seen)) bank <= next_bank;
                v2           <= 1'b1;
                trailer2     <= trailer;
                value_bytes2 <= in_value_bytes;
                way2         <= in_way;
                common2      <= has_seen ? common : 7'd0;
                key_bytes2   <= key_bytes;
                same2        <= is_same && has_seen;
                stripe2      <= above;
            end
        end
    end

    // Stage 2.
    reg [7:0]  stripe_before;
    reg [63:0] waiting[0:7];
    reg [3:0]  waiting_count, waiting_at;
    reg        kept_this_key;
    reg [6:0]  prefix;
    wire       can = !out_valid || out_ready;
    reg [31:0] tombstones;
    // Those of the last key still wait at the end.
    assign dropped_tombstones = tombstones + {28'd0, waiting_count};

    wire is_tombstone = trailer2[7:0] == 8'd0;
    wire is_lowest    = stripe2 == 0;
    wire is_hidden    = same2 && stripe2 == stripe_before;
    wire [3:0] waits  = same2 ? waiting_count : 4'd0;
    wire is_kept      = !is_hidden && (!is_tombstone || below_all);
    // Tombstones that have waited for an older version go first.
    wire release_one  = v2 && is_kept && waiting_at != waits;
    wire zero         = !below_all && is_lowest && !is_tombstone && trailer2[63:8] != 0;
    wire [6:0] prefix_now = common2 < prefix ? common2 : prefix;
    assign     v2_done = can && !release_one;
    // An entry has two words at least, so this costs nothing: stage 2 is empty when the next trailer comes.
    assign v2_ready   = !v2;
    assign idle       = !v2 && !out_valid && at == 0;

    wire [63:0] out_trailer = release_one ? waiting[waiting_at[2:0]] : zero ? {56'd0, trailer2[7:0]} : trailer2;

    always_ff @(posedge clk) begin
        if (clear) begin
            out_valid     <= 1'b0;
            waiting_count <= '0;
            waiting_at    <= '0;
            prefix        <= 7'd127;
            kept_this_key <= 1'b0;
            dropped_hidden <= '0;
            tombstones <= '0;
            sequences_zeroed   <= '0;
        end else begin
            if (out_ready) out_valid <= 1'b0;
            if (v2 && can) begin
                // `shared` is right for the first of these tokens; behind it, the key is the same.
                out <= {!is_kept, !(same2 && kept_this_key), bank, prefix_now, key_bytes2, out_trailer,
                    release_one ? 14'd0 : value_bytes2, way2};
                out_valid <= is_kept || value_bytes2 != 0;
                prefix    <= is_kept ? 7'd127 : prefix_now;
                if (release_one) begin
                    waiting_at    <= waiting_at + 1'b1;
                    kept_this_key <= 1'b1;
                end else begin
                    stripe_before <= stripe2;
                    kept_this_key <= is_kept || (same2 && kept_this_key);
                    if (is_kept) begin
                        waiting_count <= '0;
                        waiting_at    <= '0;
                    end else if (!is_hidden && !is_lowest) begin
                        waiting[waits[2:0]] <= trailer2;
                        waiting_count <= waits + 1'b1;
                        waiting_at    <= '0;
                    end else begin
                        waiting_count <= waits;
                        waiting_at    <= '0;
                    end
                    if (is_hidden) dropped_hidden <= dropped_hidden + 1'b1;
                    tombstones <= tombstones
                        + (same2 ? 32'd0 : {28'd0, waiting_count})
                        + {31'd0, !is_hidden && is_tombstone && !below_all && is_lowest};
                    if (is_kept && zero) sequences_zeroed <= sequences_zeroed + 1'b1;
                end
            end
        end
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk)
        if (!clear) begin
            a_at_most_one_a_snapshot_waits : assert (waiting_count <= 8);
            a_common_is_a_prefix : assert (!v2 || common2 <= key_bytes2);
        end
    c_tombstones_are_released : cover property (@(posedge clk) release_one);
    c_banks_are_all_in_use : cover property (@(posedge clk) in_valid && !in_trailer && !bank_free);
`endif
endmodule
`default_nettype wire
