// Writes the entries that stay: lengths, the rest of the key, trailer, value; restarts and their number at a block's
// end. Each goes to the packer as a chunk of up to BYTES bytes a cycle. On a path of sixteen bytes, a key's last word
// and its trailer are one chunk.
//
// A block is closed before an entry that would make it longer than `block_bytes`, by the host's own rule: the length
// counts the prefix that the entry shares with the one before, and one restart too many.
//
// The side channel gets each key word that is written, and a report at each block's end. The host's half of the unit
// makes filter hashes and key areas of them.
`default_nettype none
module encoder #(
    parameter WAYS  = 4,
    parameter WBITS = 2,
    parameter LOG   = 9,
    parameter BYTES = 8
) (
    input  wire                    clk,
    input  wire                    clear,
    input  wire                    halt,
    input  wire [15:0]             block_bytes,
    input  wire [15:0]             restart_interval,
    input  wire [31:0]             emit_from,
    input  wire [31:0]             emit_bytes_max,
    // Entries, kept or dropped.
    input  wire                    in_valid,
    output wire                    in_ready,
    input  wire [95+WBITS:0]       in,
    // All entries have come.
    input  wire                    in_finished,
    output reg                     bank_held,
    output reg  [1:0]              bank_first,
    output wire [4:0]              key_at,
    input  wire [63:0]             key_word,
    input  wire [WAYS-1:0][8*BYTES-1:0] value_word,
    input  wire [WAYS-1:0]         value_empty,
    input  wire [WAYS-1:0][LOG:0]  value_avail,
    output wire [WAYS-1:0]         value_rd,
    output wire [WAYS-1:0]         value_jump,
    output wire [LOG:0]            value_jump_words,
    // Chunks for the packer: bytes `chunk_from` and on of a word.
    output reg                     chunk_valid,
    input  wire                    chunk_ready,
    output reg  [8*BYTES-1:0]      chunk,
    output reg  [$clog2(BYTES):0]  chunk_bytes,
    output reg  [$clog2(BYTES)-1:0] chunk_from,
    output reg                     chunk_last,
    // Side channel: {kind, first key of a block, first version of its key, word number, key bytes}.
    output reg                     side_valid,
    input  wire                    side_ready,
    output reg  [63:0]             side,
    output reg  [13:0]             side_tag,
    output wire                    finished,
    output reg  [31:0]             kept,
    output reg  [31:0]             emitted_to
);
    localparam SIDE_KEY = 2'd0, SIDE_REPORT = 2'd1;
    localparam BITS = 8 * BYTES, AT = $clog2(BYTES);

    // Entries wait here, so that a long value does not stop the merge at once.
    wire q_empty, q_full, q_high, q_rd;
    wire [95+WBITS:0] q;
    fifo #(.WIDTH(96 + WBITS), .LOG(3)) queue (
        .clk, .clear, .wr(in_valid && !q_full), .wdata(in), .rd(q_rd), .rdata(q),
        .empty(q_empty), .full(q_full), .high(q_high)
    );
    assign in_ready = !q_full;

    wire             q_drop, q_new;
    wire [1:0]       q_bank;
    wire [6:0]       q_shared, q_key_bytes;
    wire [63:0]      q_trailer;
    wire [13:0]      q_value_bytes;
    wire [WBITS-1:0] q_way;
    assign {q_drop, q_new, q_bank, q_shared, q_key_bytes, q_trailer, q_value_bytes, q_way} = q;
    wire [15:0] q_whole = {9'd0, q_key_bytes} + {2'd0, q_value_bytes} + (q_value_bytes >= 14'd128 ? 16'd12 : 16'd11);

    // The next entry, with the bytes that it takes with and without the key's prefix.
    reg              p_valid, p_drop, p_new;
    reg  [1:0]       p_bank;
    reg  [6:0]       p_shared, p_key_bytes;
    reg  [63:0]      p_trailer;
    reg  [13:0]      p_value_bytes;
    reg  [WBITS-1:0] p_way;
    reg  [15:0]      p_whole, p_part;
    wire             p_rd;
    assign q_rd = !q_empty && (!p_valid || p_rd);

    // The entry that is being written.
    reg              a_new, a_first;
    reg  [1:0]       a_bank;
    reg  [6:0]       a_key_bytes;
    reg  [63:0]      a_trailer;
    reg  [13:0]      a_left;
    reg  [WBITS-1:0] a_way;
    reg  [WAYS-1:0]  a_ways;
    reg  [2:0]       a_at, a_from;
    reg  [10:0]      a_skip;

    // The block.
    reg  [15:0] bytes, full_bytes, since;
    reg  [12:0] restarts, restart_at;
    reg         is_empty, is_stopped;
    reg  [31:0] raw_sum;

    localparam S_NEXT = 4'd0, S_KEY = 4'd1, S_TRAILER = 4'd2, S_VALUE = 4'd3, S_SKIP = 4'd4, S_CLOSE = 4'd5,
        S_RESTART = 4'd6, S_COUNT = 4'd7, S_LAST = 4'd8, S_END = 4'd9;
    reg [3:0] state;

    wire        can = !chunk_valid || chunk_ready;
    // What the next entry does to the block is worked out while the one before is written: `p_checked` says that it
    // is. `room` is what the block has left.
    reg         p_checked, is_due, cut_whole, cut_part, is_from;
    reg  [17:0] room;
    wire        p_cut = !is_empty && (is_due ? cut_whole : cut_part);
    wire        p_written = !p_drop && !is_stopped && is_from;
    wire        p_restart = is_due || is_empty;
    wire [6:0]  p_prefix = p_restart ? 7'd0 : p_shared;
    wire [6:0]  p_suffix = p_key_bytes - p_prefix;
    wire [15:0] p_bytes = p_restart ? p_whole : p_part;
    wire        p_long = p_value_bytes >= 14'd128;
    wire        next_writes = state == S_NEXT && p_checked && p_written && !p_cut && can && !halt;
    wire        next_skips = state == S_NEXT && p_checked && !p_written && !halt;
    assign p_rd = next_writes || next_skips;

    // Keys.
    assign key_at = {a_bank, a_at};
    wire [63:0] key_bytes_first;
    for (genvar b = 0; b < 8; b++) begin : g_little
        assign key_bytes_first[8*b+:8] = key_word[8*(7-b)+:8];
    end
    wire [6:0]  k_rest = a_key_bytes - {1'b0, a_at, 3'b000};
    wire        k_last = k_rest <= 7'd8;
    wire [3:0]  k_bytes = (k_last ? k_rest[3:0] : 4'd8) - {1'b0, a_from};
    // The trailer at its place behind the key's last word, which has zeros there.
    wire        k_joins = BYTES == 16 && k_last;
    wire [3:0]  p_end = p_key_bytes[2:0] == 0 && p_key_bytes != 0 ? 4'd8 : {1'b0, p_key_bytes[2:0]};
    reg  [BITS-1:0] a_turned;
    wire        side_can = !side_valid || side_ready;
    wire        key_goes = state == S_KEY && can && side_can;

    // Values.
    // They come late from their memories. So the entry's way has a bit for each way, and words of other states are
    // chosen before: a value passes two choices.
    wire        value_goes = state == S_VALUE && can && (value_empty & a_ways) == 0;
    reg  [BITS-1:0] value, other;
    always_comb begin
        value = '0;
        for (int w = 0; w < WAYS; w++) value = value | (value_word[w] & {BITS{a_ways[w]}});
        case (state)
            S_NEXT: other = BITS'({1'b0, p_value_bytes[13:7], p_long, p_value_bytes[6:0],
                1'b0, p_suffix, 1'b0, p_prefix});
            S_KEY: other = BITS'(key_bytes_first) | (k_joins ? a_turned : '0);
            S_TRAILER: other = BITS'(a_trailer);
            S_RESTART: other = BITS'(restart);
            // The number of restarts, and behind it the trailer's first byte: not compressed.
            default: other = BITS'(restarts);
        endcase
    end
    always_ff @(posedge clk) if (can) chunk <= state == S_VALUE ? value : other;
    wire        v_last = a_left <= 14'(BYTES);
    wire [10:0] s_words = a_skip >= 11'd256 ? 11'd256 : a_skip;
    // Looked up in one cycle, done in the next.
    reg         enough;
    wire        skip_goes = state == S_SKIP && enough;
    assign value_jump_words = s_words[LOG:0];
    for (genvar w = 0; w < WAYS; w++) begin : g_value
        assign value_rd[w]   = value_goes && a_ways[w];
        assign value_jump[w] = skip_goes && a_way == w;
    end

    // Restarts. The memory is one ahead of the register that gives them.
    reg  [15:0] restart_mem[0:4095];
    reg  [15:0] restart_ahead, restart;
    wire        restart_goes = state == S_CLOSE || (state == S_RESTART && can);
    wire [12:0] restart_next = restart_goes ? restart_at + 1'b1 : restart_at;
    always_ff @(posedge clk) begin
        if (next_writes && p_restart) restart_mem[restarts[11:0]] <= bytes;
        restart_ahead <= restart_mem[restart_next[11:0]];
        if (restart_goes) restart <= restart_ahead;
    end

    // Which banks of keys are needed.
    always_ff @(posedge clk) begin
        bank_held  <= state == S_KEY || p_valid || !q_empty;
        bank_first <= state == S_KEY ? a_bank : p_valid ? p_bank : q_bank;
    end
    assign finished   = state == S_END;

    // Reports.
    reg         report_ready;
    wire        report_take = state == S_LAST && can && !report_ready;
    reg  [3:0]  report_at;
    reg  [10:0][63:0] report;

    always_ff @(posedge clk) begin
        if (clear) begin
            state       <= S_NEXT;
            p_valid     <= 1'b0;
            chunk_valid <= 1'b0;
            bytes       <= '0;
            full_bytes  <= 16'd8;
            room        <= {2'b00, block_bytes} - 18'd8;
            p_checked   <= 1'b0;
            enough      <= 1'b0;
            is_due      <= 1'b0;
            since       <= '0;
            restarts    <= '0;
            is_empty    <= 1'b1;
            is_stopped  <= 1'b0;
            raw_sum     <= '0;
            kept        <= '0;
            emitted_to  <= '0;
        end else begin
            p_checked <= p_valid && !p_rd;
            enough    <= state == S_SKIP && !enough && value_avail[a_way] >= s_words[LOG:0];
            is_due    <= since >= restart_interval;
            is_from   <= kept >= emit_from;
            cut_whole <= $signed({2'b00, p_whole}) > $signed(room);
            cut_part  <= $signed({2'b00, p_part}) > $signed(room);
            if (p_rd) p_valid <= 1'b0;
            if (q_rd) begin
                p_valid <= 1'b1;
                {p_drop, p_new, p_bank, p_shared, p_key_bytes, p_trailer, p_value_bytes, p_way} <= q;
                p_whole <= q_whole;
                p_part  <= q_whole - {9'd0, q_shared};
            end
            if (chunk_ready) chunk_valid <= 1'b0;
            if (p_rd && !p_drop) kept <= kept + 1'b1;
            case (state)
                S_NEXT: begin
                    a_new       <= p_new;
                    a_first     <= is_empty;
                    a_bank      <= p_bank;
                    a_key_bytes <= p_key_bytes;
                    a_trailer   <= p_trailer;
                    a_left      <= p_value_bytes;
                    a_way       <= p_way;
                    for (int w = 0; w < WAYS; w++) a_ways[w] <= p_way == WBITS'(w);
                    a_at        <= p_prefix[5:3];
                    a_from      <= p_prefix[2:0];
                    a_skip      <= 11'(({1'b0, p_value_bytes} + 15'(BYTES - 1)) >> AT);
                    a_turned    <= BITS'(p_trailer) << {p_end, 3'b000};
                    restart_at  <= '0;
                    if (next_skips) begin
                        if (p_value_bytes != 0) state <= S_SKIP;
                    end else if (next_writes) begin
                        chunk_valid <= 1'b1;
                        chunk_bytes <= p_long ? (AT+1)'(4) : (AT+1)'(3);
                        chunk_from  <= '0;
                        chunk_last  <= 1'b0;
                        emitted_to  <= kept + 1'b1;
                        bytes       <= bytes + p_bytes;
                        full_bytes  <= full_bytes + p_bytes + (p_restart ? 16'd4 : 16'd0);
                        room        <= room - {2'b00, p_bytes} - (p_restart ? 18'd4 : 18'd0);
                        since       <= p_restart ? 16'd1 : since + 1'b1;
                        if (p_restart) restarts <= restarts + 1'b1;
                        is_empty    <= 1'b0;
                        state       <= p_key_bytes != p_prefix || is_empty ? S_KEY : S_TRAILER;
                    end else if (p_checked && p_written && p_cut) state <= S_CLOSE;
                    else if (in_finished && q_empty && !p_valid) state <= is_empty ? S_END : S_CLOSE;
                end
                S_KEY: if (key_goes) begin
                    chunk_valid <= 1'b1;
                    chunk_bytes <= (AT+1)'(k_bytes) + (k_joins ? (AT+1)'(8) : '0);
                    chunk_from  <= AT'(a_from);
                    a_from      <= '0;
                    a_at        <= a_at + 1'b1;
                    if (k_joins) state <= a_left != 0 ? S_VALUE : S_NEXT;
                    else if (k_last) state <= S_TRAILER;
                end
                S_TRAILER: if (can) begin
                    chunk_valid <= 1'b1;
                    chunk_bytes <= (AT+1)'(8);
                    chunk_from  <= '0;
                    state       <= a_left != 0 ? S_VALUE : S_NEXT;
                end
                S_VALUE: if (value_goes) begin
                    chunk_valid <= 1'b1;
                    chunk_bytes <= v_last ? a_left[AT:0] : (AT+1)'(BYTES);
                    chunk_from  <= '0;
                    a_left      <= a_left - 14'(BYTES);
                    if (v_last) state <= S_NEXT;
                end
                S_SKIP: if (skip_goes) begin
                    a_skip <= a_skip - s_words;
                    if (a_skip == s_words) state <= S_NEXT;
                end
                S_CLOSE: begin
                    restart_at <= restart_next;
                    state      <= S_RESTART;
                end
                S_RESTART: if (can) begin
                    chunk_valid <= 1'b1;
                    chunk_bytes <= (AT+1)'(4);
                    chunk_from  <= '0;
                    restart_at  <= restart_next;
                    if (restart_at == restarts) state <= S_COUNT;
                end
                S_COUNT: if (can) begin
                    chunk_valid <= 1'b1;
                    chunk_bytes <= (AT+1)'(5);
                    chunk_from  <= '0;
                    raw_sum     <= raw_sum + {16'd0, full_bytes} - 32'd4;
                    state       <= S_LAST;
                end
                S_LAST: if (can && !report_ready) begin
                    chunk_valid <= 1'b1;
                    chunk_bytes <= '0;
                    chunk_from  <= '0;
                    chunk_last  <= 1'b1;
                    bytes       <= '0;
                    full_bytes  <= 16'd8;
                    room        <= {2'b00, block_bytes} - 18'd8;
                    since       <= '0;
                    restarts    <= '0;
                    is_empty    <= 1'b1;
                    is_stopped  <= raw_sum >= emit_bytes_max;
                    state       <= S_NEXT;
                end
                default: state <= S_END;
            endcase
        end
    end

    // The sums of a block. They take an entry one cycle after its first chunk.
    reg         n_valid, n_first, n_new;
    reg  [6:0]  n_key_bytes;
    reg  [13:0] n_value_bytes;
    reg  [63:0] n_trailer;
    reg  [31:0] n_ordinal;
    reg  [3:0]  n_class;
    reg  [15:0] b_entries, b_deletions;
    reg  [23:0] b_key_bytes, b_value_bytes;
    reg  [6:0]  b_longest_key;
    reg  [13:0] b_longest_value;
    reg         b_new;
    reg  [63:0] b_first, b_last;
    reg  [55:0] b_smallest, b_largest;
    reg  [31:0] b_ordinal;
    reg  [15:0][15:0] b_classes;
    always_ff @(posedge clk) begin
        n_valid       <= next_writes && !clear;
        n_first       <= is_empty;
        n_new         <= p_new;
        n_key_bytes   <= p_key_bytes;
        n_value_bytes <= p_value_bytes;
        n_trailer     <= p_trailer;
        n_ordinal     <= kept;
        n_class       <= '0;
        for (int i = 0; i < 14; i++) if (p_value_bytes[i]) n_class <= 4'(i + 1);
        if (n_valid) begin
            b_entries     <= n_first ? 16'd1 : b_entries + 1'b1;
            b_deletions   <= (n_first ? 16'd0 : b_deletions) + {15'd0, n_trailer[7:0] == 0};
            b_key_bytes   <= (n_first ? 24'd0 : b_key_bytes) + {17'd0, n_key_bytes} + 24'd8;
            b_value_bytes <= (n_first ? 24'd0 : b_value_bytes) + {10'd0, n_value_bytes};
            if (n_first || n_key_bytes > b_longest_key) b_longest_key <= n_key_bytes;
            if (n_first || n_value_bytes > b_longest_value) b_longest_value <= n_value_bytes;
            if (n_first) begin
                b_new     <= n_new;
                b_first   <= n_trailer;
                b_ordinal <= n_ordinal;
            end
            b_last <= n_trailer;
            if (n_first || n_trailer[63:8] < b_smallest) b_smallest <= n_trailer[63:8];
            if (n_first || n_trailer[63:8] > b_largest) b_largest <= n_trailer[63:8];
            for (int c = 0; c < 16; c++)
                b_classes[c] <= (n_first ? 16'd0 : b_classes[c]) + {15'd0, n_class == c};
        end
    end

    // The side channel: keys first, a report where there is space.
    always_ff @(posedge clk) begin
        if (clear) begin
            side_valid   <= 1'b0;
            report_ready <= 1'b0;
        end else begin
            if (side_ready) side_valid <= 1'b0;
            if (report_take) begin
                report_ready <= 1'b1;
                report_at    <= '0;
                report <= {
                    b_classes[15:12], b_classes[11:8], b_classes[7:4], b_classes[3:0],
                    {32'd0, b_ordinal}, {8'd0, b_largest}, {8'd0, b_smallest}, b_last, b_first,
                    {7'd0, b_new, 1'b0, b_longest_key, b_value_bytes, b_key_bytes},
                    {2'd0, b_longest_value, full_bytes - 16'd4, b_deletions, b_entries}
                };
            end
            if (key_goes) begin
                side_valid <= 1'b1;
                side       <= key_bytes_first;
                side_tag   <= {SIDE_KEY, a_first, a_new, a_at, a_key_bytes};
            end else if (report_ready && side_can) begin
                side_valid <= 1'b1;
                side       <= report[0];
                side_tag   <= {SIDE_REPORT, 8'd0, report_at};
                report     <= {64'd0, report[10:1]};
                report_at  <= report_at + 1'b1;
                if (report_at == 4'd10) report_ready <= 1'b0;
            end
        end
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk)
        if (!clear && !halt) begin
            a_prefix_is_inside_the_key : assert (!p_valid || p_drop || p_shared <= p_key_bytes);
            a_restarts_fit : assert (restarts <= 13'd4096);
            a_a_block_is_not_empty : assert (state != S_RESTART || restarts != 0);
            a_sums_agree : assert (state != S_COUNT || full_bytes == bytes + {1'b0, restarts, 2'b00} + 16'd8);
        end
    c_value_is_not_there_yet : cover property (@(posedge clk) state == S_VALUE && value_empty[a_way]);
    c_packer_is_full : cover property (@(posedge clk) chunk_valid && !chunk_ready);
    c_jump_over_half_a_ring : cover property (@(posedge clk) skip_goes && s_words == 11'd256);
    c_report_waits : cover property (@(posedge clk) state == S_LAST && can && report_ready);
`endif
endmodule
`default_nettype wire
