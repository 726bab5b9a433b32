// Decodes a way's blocks: entries with shared prefixes become whole keys, in words, and values.
//
// Three words of the block lie in `w0`, `w1` and `w2`. `off` is the next byte, in `w0` or `w1`. If it is in `w1`, all
// words move on in that cycle: a register moves them, and not what the cycle takes. Each cycle takes up to eight
// bytes. A piece goes through four stages: 1 takes it, 2 turns it to its place in the key, 3 writes it and compares the
// key with the one before, 4 commits the key that is in order. An entry's pieces are: lengths, one for each word of the
// key (a whole word shared with the key before takes nothing), the trailer, eight bytes of value each.
//
// How many bytes a state takes waits in a register, and each comparison that decides whether it takes them is made a
// cycle ahead. Nothing in the window decides anything in its own cycle. A trailer that is wrong is found a cycle later,
// when its entry's value has begun: the decoder then leaves the value.
//
// The decoder begins an entry only while neither ring is half full, and stops inside a value when its ring is full.
// What is wrong with a block counts at its end: a wrong checksum says more than entries that make no sense.
`default_nettype none
module decoder (
    input  wire        clk,
    input  wire        clear,
    // Entries are checked and counted, and go nowhere: the task has failed, and the rest is read for the status alone.
    input  wire        drain,
    input  wire [6:0]  key_bytes_max,
    input  wire [13:0] value_bytes_max,
    // Blocks: {end of the way, first byte in its word, bytes of entries, bytes uncompressed}.
    input  wire        block_valid,
    input  wire [35:0] block,
    output wire        block_rd,
    // Words of blocks, from the ring.
    input  wire        word_valid,
    input  wire [64:0] word,
    output wire        word_rd,
    // Keys and values, into their rings.
    output reg         key_wr,
    output reg  [67:0] key_word,
    output reg         key_commit,
    output reg  [13:0] key_value_bytes,
    output reg         value_wr,
    output reg  [63:0] value_word,
    output reg         value_last,
    input  wire        key_half_full,
    input  wire        value_half_full,
    input  wire        value_full,
    // The way is at its end, or has failed.
    output wire        done,
    output reg  [2:0]  status,
    // The number of the block that failed, or of the entry that is out of order.
    output reg  [31:0] detail,
    output reg  [31:0] entries
);
    localparam OK = 3'd0, CHECKSUM = 3'd1, BLOCK = 3'd2, ORDER = 3'd3, LIMIT = 3'd4, ILLEGAL = 3'd7;

    localparam S_IDLE = 4'd0, S_LOAD = 4'd1, S_LENGTHS = 4'd2, S_CHECK = 4'd11, S_KEY = 4'd3, S_TRAILER = 4'd4,
        S_VALUE = 4'd5, S_RESTARTS = 4'd6, S_SKIP = 4'd12, S_COUNT = 4'd7, S_WAIT = 4'd8, S_END = 4'd9, S_DONE = 4'd10;
    // A bit for each state, since each cycle's path begins here.
    (* fsm_encoding = "one-hot" *)
    reg [3:0] state;

    // The block.
    wire        d_end;
    wire [2:0]  d_off;
    wire [15:0] d_entry_bytes, d_raw_bytes;
    assign {d_end, d_off, d_entry_bytes, d_raw_bytes} = block;
    wire [16:0] d_words = ({1'b0, d_raw_bytes} + {14'd0, d_off} + 17'd12) >> 3;
    reg  [31:0] number;
    reg  [13:0] words_left;
    // Below zero if an entry goes beyond its block.
    reg  [16:0] entries_left;
    reg  [15:0] to_count;
    reg         is_bad, at_first;

    // The window.
    reg  [63:0] w0, w1, w2;
    reg         w1_valid, w2_valid;
    reg  [3:0]  off;
    reg         no_more;
    wire        shift = off[3];
    wire        whole = (shift ? w2_valid : w1_valid) || no_more;
    wire [191:0] words = {w2, w1, w0};
    wire [63:0] window = 64'(words >> {off, 3'b000});
    // How many bytes this state takes, worked out on the way to it; whether it would take them, and does.
    reg  [3:0]  amount;
    reg         may_take;
    wire        takes = whole && may_take;
    wire        load = state != S_IDLE && state != S_LOAD && !no_more && word_valid && (shift || !w2_valid);

    // The lengths of an entry: taken in one cycle, checked in the next. `key_bytes` is that of the entry before
    // meanwhile. Fewer than eleven bytes are no entry. The fourth byte of long ones is taken in the second cycle, so that
    // nothing in the window decides what is taken.
    reg  [6:0]  key_bytes;
    reg  [31:0] lengths;
    // `entries_left` changes two cycles ahead of their use, or more.
    reg         is_short, none_left;
    wire [7:0]  l_shared = lengths[7:0], l_unshared = lengths[15:8];
    wire        l_long   = lengths[23];
    wire [13:0] l_value  = {l_long ? lengths[30:24] : 7'd0, lengths[22:16]};
    wire        l_illegal = l_shared[7] || l_unshared[7] || (l_long && lengths[31]);
    wire [8:0]  l_key    = {1'b0, l_shared} + {1'b0, l_unshared};
    wire [15:0] l_entry  = {8'd0, l_unshared} + {2'd0, l_value} + (l_long ? 16'd12 : 16'd11);
    wire        l_beyond = l_shared > {1'b0, at_first ? 7'd0 : key_bytes};
    wire        l_limit  = l_key > {2'd0, key_bytes_max} || l_value > value_bytes_max;
    // What is wrong with them: the key goes no further. Lengths in longer varints are not known, so they are illegal
    // and no more.
    reg         e_beyond, e_illegal, e_lengths;
    wire        e_block = e_beyond || entries_left[16];
    wire        e_any = e_lengths || entries_left[16];
    // A cycle late: the rings have room for it.
    reg         may_begin;

    // The entry. What a word of the key takes is known a cycle ahead: `k_left` bytes of the suffix are left, and the
    // first `shared` bytes are those of the key before.
    reg  [6:0]  shared;
    reg  [13:0] value_bytes, value_left;
    reg  [2:0]  at;
    reg  [6:0]  k_left;
    wire [6:0]  k_rest  = key_bytes - {1'b0, at, 3'b000};
    wire        k_last  = k_rest <= 7'd8;
    wire [3:0]  k_end   = k_last ? k_rest[3:0] : 4'd8;
    wire        k_is_shared = {1'b0, at} < shared[6:3];
    wire [3:0]  k_keep  = k_is_shared ? 4'd8 : {1'b0, at} == shared[6:3] ? {1'b0, shared[2:0]} : 4'd0;
    wire [6:0]  k_left_next = k_left - {3'd0, amount};
    wire [3:0]  at_next = {1'b0, at} + 1'b1;
    wire [3:0]  k_space = at_next < shared[6:3] ? 4'd0 : at_next == shared[6:3] ? 4'd8 - {1'b0, shared[2:0]} : 4'd8;
    wire [3:0]  k_first_space = l_shared[6:3] != 0 ? 4'd0 : 4'd8 - {1'b0, l_shared[2:0]};
    function automatic logic [3:0] fewer(input logic [15:0] bytes, input logic [3:0] space);
        fewer = bytes > {12'd0, space} ? space : bytes[3:0];
    endfunction

    reg         v_last;
    wire        v_goes  = state == S_VALUE && takes;
    always_comb
        case (state)
            S_LENGTHS: may_take = may_begin && !is_short;
            S_CHECK: may_take = l_long;
            S_KEY: may_take = !e_any;
            S_VALUE: may_take = drain || !value_full;
            S_TRAILER, S_SKIP: may_take = 1'b1;
            default: may_take = 1'b0;
        endcase

    // What the end of the block says.
    reg  [31:0] c_count;
    reg  [7:0]  c_type;
    reg  [15:0] c_entry_bytes, c_raw_bytes;
    reg  [2:0]  c_entry_status;
    reg         e_same, e_more, e_none;
    reg  [2:0]  end_status;
    always_comb begin
        if (is_bad) end_status = CHECKSUM;
        else if (c_type != 0) end_status = ILLEGAL;
        else if (!e_same) end_status = c_entry_bytes == 0 && (e_more || e_none) ? BLOCK : ILLEGAL;
        else if (e_none != (c_entry_bytes == 0)) end_status = BLOCK;
        else end_status = c_entry_status;
    end
    wire [15:0] c_array = c_raw_bytes - 16'd4 - c_entry_bytes;

    assign block_rd = state == S_IDLE && block_valid;
    assign word_rd  = (state == S_LOAD && word_valid) || load;
    assign done     = state == S_DONE;

    // 1: takes a piece.
    localparam P_NONE = 2'd0, P_KEY = 2'd1, P_TRAILER = 2'd2, P_VALUE = 2'd3;
    reg  [1:0]  p1;
    reg  [63:0] window1;
    reg  [2:0]  at1;
    reg  [3:0]  keep1, end1;
    reg         last1;
    reg  [13:0] value_bytes1;
    reg         v_last1, v_last2;
    wire        t_limit = p1 == P_TRAILER && window1[7:0] > 8'd2;
    wire        t_illegal = p1 == P_TRAILER && window1[7:0] == 8'd0 && value_bytes1 != 0;
    reg         order_error;

    always_ff @(posedge clk) begin
        p1      <= P_NONE;
        window1 <= window;
        at1     <= at;
        keep1   <= k_keep;
        end1    <= k_end;
        last1   <= k_last;
        value_bytes1 <= value_bytes;
        v_last1 <= v_last;
        may_begin <= drain || (!key_half_full && !value_half_full);
        is_short  <= entries_left < 17'd11;
        none_left <= entries_left == 0;
        v_last    <= value_left <= (v_goes ? 14'd16 : 14'd8);
        if (clear) begin
            state  <= S_IDLE;
            number <= '0;
            status <= OK;
            detail <= '0;
            words_left <= '0;
            no_more    <= 1'b1;
            w1_valid   <= 1'b0;
            w2_valid   <= 1'b0;
            off        <= '0;
            key_bytes  <= '0;
        end else begin
            w1_valid <= (shift ? w2_valid : w1_valid) || load;
            w2_valid <= shift ? w2_valid && load : w2_valid || (w1_valid && load);
            if (shift) w0 <= w1;
            if (shift || !w1_valid) w1 <= shift && w2_valid ? w2 : word[63:0];
            if (shift || !w2_valid) w2 <= word[63:0];
            if (load) begin
                words_left <= words_left - 1'b1;
                no_more    <= words_left == 14'd1;
                is_bad     <= word[64];
            end
            off <= {1'b0, off[2:0]} + (takes ? amount : 4'd0);
            if (takes) to_count <= to_count - {12'd0, amount};
            case (state)
                S_IDLE: if (block_valid) begin
                    if (d_end) state <= S_DONE;
                    else state <= S_LOAD;
                    words_left   <= d_words[13:0];
                    no_more      <= 1'b0;
                    entries_left <= {1'b0, d_entry_bytes};
                    to_count     <= d_raw_bytes - 16'd4;
                    off          <= {1'b0, d_off};
                    c_entry_bytes <= d_entry_bytes;
                    c_raw_bytes   <= d_raw_bytes;
                    c_entry_status <= OK;
                    at_first   <= 1'b1;
                end
                S_LOAD: if (word_valid) begin
                    w0         <= word[63:0];
                    words_left <= words_left - 1'b1;
                    amount     <= 4'd3;
                    state      <= entries_left == 0 ? S_RESTARTS : S_LENGTHS;
                end
                S_LENGTHS: if (whole && may_begin) begin
                    lengths <= window[31:0];
                    amount  <= 4'd1;
                    state   <= is_short ? S_RESTARTS : S_CHECK;
                    if (is_short && c_entry_status == OK) c_entry_status <= BLOCK;
                end
                S_CHECK: if (whole) begin
                    at     <= '0;
                    k_left <= l_unshared[6:0];
                    amount <= fewer({9'd0, l_unshared[6:0]}, k_first_space);
                    value_bytes  <= l_value;
                    value_left   <= l_value;
                    entries_left <= entries_left - {1'b0, l_entry};
                    e_beyond  <= l_beyond;
                    e_illegal <= l_illegal;
                    e_lengths <= l_beyond || l_illegal || l_limit;
                    key_bytes <= l_key[6:0];
                    shared    <= l_shared[6:0];
                    state     <= S_KEY;
                end
                S_KEY: if (e_any) begin
                    if (c_entry_status == OK) c_entry_status <= e_illegal ? ILLEGAL : e_block ? BLOCK : LIMIT;
                    state <= S_RESTARTS;
                end else if (whole) begin
                    p1 <= P_KEY;
                    at <= at + 1'b1;
                    k_left <= k_left_next;
                    amount <= k_last ? 4'd8 : fewer({9'd0, k_left_next}, k_space);
                    if (k_last) state <= S_TRAILER;
                end
                S_TRAILER: if (whole) begin
                    p1       <= P_TRAILER;
                    at_first <= 1'b0;
                    amount   <= value_bytes != 0 ? fewer({2'd0, value_left}, 4'd8) : 4'd3;
                    if (value_bytes != 0) state <= S_VALUE;
                    else state <= none_left ? S_RESTARTS : S_LENGTHS;
                end
                S_VALUE: if (v_goes) begin
                    p1         <= P_VALUE;
                    value_left <= value_left - 14'd8;
                    amount     <= v_last ? 4'd3 : fewer({2'd0, value_left} - 16'd8, 4'd8);
                    if (v_last) state <= none_left ? S_RESTARTS : S_LENGTHS;
                end
                // A word is skipped in every second cycle.
                S_RESTARTS: begin
                    amount <= fewer(to_count, 4'd8);
                    state  <= to_count == 0 ? S_COUNT : S_SKIP;
                end
                S_SKIP: if (whole) state <= S_RESTARTS;
                S_COUNT: if (whole && no_more) begin
                    c_count <= window[31:0];
                    c_type  <= window[39:32];
                    state   <= S_WAIT;
                end
                S_WAIT: begin
                    e_same <= c_count[31:14] == 0 && c_count[13:0] == c_array[15:2] && c_array[1:0] == 0;
                    e_more <= c_count[31:14] != 0 || c_count[13:0] > c_array[15:2];
                    e_none <= c_count == 0;
                    state  <= S_END;
                end
                S_END: begin
                    number   <= number + 1'b1;
                    w1_valid <= 1'b0;
                    w2_valid <= 1'b0;
                    if (end_status == OK) state <= S_IDLE;
                    else begin
                        status <= end_status;
                        detail <= end_status == ORDER ? entries : number;
                        state  <= S_DONE;
                    end
                end
                default: state <= S_DONE;
            endcase
            // These are of an entry before any other that was found wrong.
            if (t_limit || t_illegal) begin
                if (c_entry_status == OK) c_entry_status <= t_limit ? LIMIT : ILLEGAL;
                state <= S_RESTARTS;
                p1    <= P_NONE;
            end
            if (order_error) c_entry_status <= ORDER;
        end
    end

    // 2: turns it to its place.
    reg  [63:0] prev[0:7];
    reg  [6:0]  prev_bytes;
    reg  [1:0]  p2;
    reg  [63:0] piece2, old2;
    reg  [3:0]  code2, old_code2;
    reg         first2, bad2;
    reg  [13:0] value_bytes2;
    wire [63:0] old1 = prev[at1];
    wire [7:0]  old_rest = {1'b0, prev_bytes} - {2'b00, at1, 3'b000};
    wire [5:0]  turn1 = {keep1[2:0], 3'b000};
    wire [127:0] twice1 = {window1, window1} << turn1;
    wire [63:0] turned1 = twice1[127:64];
    reg  [63:0] merged1;
    always_comb
        for (int b = 0; b < 8; b++)
            merged1[8*b+:8] = b < keep1 && b < end1 ? old1[8*b+:8] : b < end1 ? turned1[8*b+:8] : 8'd0;

    always_ff @(posedge clk) begin
        p2        <= clear ? P_NONE : p1;
        piece2    <= p1 == P_KEY ? merged1 : window1;
        old2      <= old1;
        code2     <= last1 ? end1 : 4'd9;
        old_code2 <= old_rest[7] ? 4'd0 : old_rest[6:0] > 7'd8 ? 4'd9 : old_rest[3:0];
        first2    <= at1 == 0;
        bad2      <= t_limit || t_illegal;
        value_bytes2 <= value_bytes1;
        v_last2   <= v_last1;
        if (p1 == P_KEY) prev[at1] <= merged1;
        if (clear) prev_bytes <= '0;
        else if (p1 == P_TRAILER) prev_bytes <= key_bytes;
    end

    // 3: writes it, and compares the key with the one before.
    wire [63:0] big2, old_big2;
    for (genvar b = 0; b < 8; b++) begin : g_big
        assign big2[8*b+:8]     = piece2[8*(7-b)+:8];
        assign old_big2[8*b+:8] = old2[8*(7-b)+:8];
    end
    wire        is_equal   = {big2, code2} == {old_big2, old_code2};
    wire        is_greater = {big2, code2} > {old_big2, old_code2};
    reg         decided, ascends, has_prev, failed, is_trailer3, is_newer3;
    reg  [63:0] prev_trailer;
    reg  [13:0] value_bytes3;

    always_ff @(posedge clk) begin
        key_wr      <= 1'b0;
        value_wr    <= 1'b0;
        is_trailer3 <= 1'b0;
        is_newer3   <= piece2 < prev_trailer;
        key_word    <= p2 == P_KEY ? {big2, code2} : {~piece2, 4'd0};
        value_word  <= piece2;
        value_last  <= v_last2;
        value_bytes3 <= value_bytes2;
        if (!clear && !failed) begin
            if (p2 == P_KEY) begin
                key_wr <= !drain;
                if (first2 || !decided) begin
                    decided <= !is_equal;
                    ascends <= is_greater;
                end
            end
            if (p2 == P_TRAILER && !bad2) begin
                key_wr       <= !drain;
                is_trailer3  <= 1'b1;
                prev_trailer <= piece2;
            end
            if (p2 == P_VALUE) value_wr <= !drain;
        end
    end

    // 4: the key counts, if it is in order. Words of another one stay in the rings without a commit.
    wire        in_order = !has_prev || (decided ? ascends : is_newer3);
    always_ff @(posedge clk) begin
        key_commit      <= !clear && is_trailer3 && in_order && !drain;
        key_value_bytes <= value_bytes3;
        order_error     <= !clear && is_trailer3 && !in_order;
        if (clear) begin
            has_prev <= 1'b0;
            failed   <= 1'b0;
            entries  <= '0;
        end else if (is_trailer3) begin
            has_prev <= 1'b1;
            if (in_order) entries <= entries + 1'b1;
            else failed <= 1'b1;
        end
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk)
        if (!clear) begin
            a_words_move_when_the_next_is_there : assert (!shift || w1_valid || no_more);
            a_takes_a_word_at_most : assert (!takes || amount <= 4'd8);
            a_takes_lengths : assert (state != S_LENGTHS || amount == 4'd3);
            a_takes_a_fourth_byte : assert (state != S_CHECK || amount == 4'd1);
            a_takes_a_trailer : assert (state != S_TRAILER || amount == 4'd8);
            a_takes_a_value : assert (state != S_VALUE || amount == (v_last ? value_left[3:0] : 4'd8));
            a_no_entry_beyond_the_block : assert (!(state == S_COUNT) || to_count == 0);
            a_keys_are_within_limits : assert (p1 != P_KEY || key_bytes_max > 7'd64 || {at1, 3'b000} <= 6'd63);
        end
    c_waits_at_half_full : cover property (@(posedge clk) state == S_LENGTHS && whole && !may_begin);
    c_value_waits_when_full : cover property (@(posedge clk) state == S_VALUE && value_full);
    c_out_of_order : cover property (@(posedge clk) order_error);
`endif
endmodule
`default_nettype wire
