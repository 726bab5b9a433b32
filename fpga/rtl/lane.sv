// A unit with its parameters, the reader of its lists of blocks, and its side channel into memory.
//
// A task: its words come into `p`, `begins` starts the unit, `is_finished` says that the answer's words are there. The lane
// keeps them until `release_lane`. A stop or a mismatch kills the task: no burst begins any more, the words of bursts
// that have begun are zeros, and the lane is finished when memory has answered all of them.
//
// In lock-step the lane next to this one follows: its unit gets this one's inputs, cycle for cycle, through `ins`.
// A lane that can lead holds each write address until it has been compared: a wrong one never reaches memory.
`default_nettype none
module lane #(
    parameter WAYS  = 4,
    parameter WBITS = 2,
    parameter LOG   = 9,
    // Write addresses wait until a follower has compared them.
    parameter HOLDS = 0,
    // For tests: `flip` inverts a bit.
    parameter FLIPS = 0
) (
    input  wire               clk,
    input  wire               reset,
    // The task's words.
    input  wire               load,
    input  wire [5:0]         load_at,
    input  wire [31:0]        load_word,
    input  wire               begins,
    input  wire               stop,
    input  wire               mismatch,
    output wire               is_free,
    output wire               is_finished,
    input  wire               release_lane,
    output reg  [31:0]        cycles,
    output wire [31:0]        tag,
    input  wire [4:0]         answer_at,
    output reg  [31:0]        answer_word,
    // Lock-step: a lane that follows has the leader's inputs, and compares its outputs with the leader's.
    input  wire               follows,
    output wire [137+WBITS:0] ins,
    input  wire [137+WBITS:0] leader_ins,
    output wire [219+WAYS:0]  outs,
    input  wire [219+WAYS:0]  leader_outs,
    output reg                differs,
    // Memory: the unit's requests [0]; those of the list and of the side channel [1].
    output wire [1:0]         ar_valid,
    input  wire [1:0]         ar_ready,
    output wire [1:0][31:0]   ar_addr,
    output wire [1:0][3:0]    ar_len,
    input  wire [1:0]         r_valid,
    input  wire [63:0]        r_data,
    input  wire               r_last,
    output wire [1:0]         aw_valid,
    input  wire [1:0]         aw_ready,
    output wire [1:0][31:0]   aw_addr,
    output wire [1:0][3:0]    aw_len,
    output wire [1:0]         w_valid,
    input  wire [1:0]         w_ready,
    output wire [1:0][63:0]   w_data,
    input  wire [1:0]         b_valid,
    // Tests.
    input  wire               flip,
    input  wire [2:0]         flip_place
);
    localparam FLIP_READ = 0, FLIP_WRITE = 1, FLIP_WRITE_ADDRESS = 2, FLIP_SIDE = 3, FLIP_READ_ADDRESS = 4, FLIP_DONE = 5;
    localparam CODE_DONE = 3'd0, CODE_FAILED = 3'd1, CODE_MISMATCH = 3'd2, CODE_STOPPED = 3'd3, CODE_SIDE = 3'd4;
    localparam S_FREE = 3'd0, S_START = 3'd1, S_RUN = 3'd2, S_QUIET = 3'd3, S_FINISHED = 3'd4;
    wire [7:0] flips = FLIPS != 0 && flip ? 8'd1 << flip_place : 8'd0;

    // The parameters: ../registers.md has the list.
    reg [47:0][31:0] p;
    always_ff @(posedge clk) if (load) p[load_at] <= load_word;
    wire [8*56-1:0] snapshots;
    for (genvar i = 0; i < 8; i++) begin : g_snapshot
        assign snapshots[56*i+:56] = {p[33+2*i][23:0], p[32+2*i]};
    end
    assign tag = p[0];

    reg  [2:0] state, code;
    wire       runs = state == S_RUN;
    wire       own_start = state == S_START || reset;
    assign is_free     = state == S_FREE;
    assign is_finished = state == S_FINISHED;

    // The lists: a block's descriptor is a word of memory. One is asked for at a time.
    reg  [WBITS-1:0]      turn, l_way;
    reg  [WAYS-1:0][31:0] l_at;
    reg  [WAYS-1:0][23:0] l_left;
    reg  [WAYS-1:0]       l_ended;
    reg                   l_asks, l_waits, l_valid, l_end;
    reg  [63:0]           l_block;
    wire [WAYS-1:0]       block_ready;
    wire                  l_idle = !l_asks && !l_waits && !l_valid;
    always_ff @(posedge clk) begin
        if (own_start) begin
            turn    <= '0;
            l_ended <= '0;
            l_asks  <= 1'b0;
            l_waits <= 1'b0;
            l_valid <= 1'b0;
            for (int w = 0; w < WAYS; w++) begin
                l_at[w]   <= p[10+w];
                l_left[w] <= p[14+w][23:0];
            end
        end else begin
            l_valid <= 1'b0;
            if (l_idle) turn <= turn == WBITS'(WAYS - 1) ? '0 : turn + 1'b1;
            if (runs && l_idle && block_ready[turn] && !l_ended[turn]) begin
                l_way <= turn;
                l_end <= l_left[turn] == 0;
                if (l_left[turn] == 0) begin
                    l_valid       <= 1'b1;
                    l_ended[turn] <= 1'b1;
                end else l_asks <= 1'b1;
            end
            if (ar_valid[1] && ar_ready[1]) begin
                l_asks        <= 1'b0;
                l_waits       <= 1'b1;
                l_at[l_way]   <= l_at[l_way] + 32'd8;
                l_left[l_way] <= l_left[l_way] - 1'b1;
            end
            if (r_valid[1]) begin
                l_waits <= 1'b0;
                l_valid <= runs;
                l_block <= r_data;
            end
        end
    end
    assign ar_valid[1] = runs && l_asks;
    assign ar_addr[1]  = l_at[l_way];
    assign ar_len[1]   = 4'd0;

    // The unit, with its own inputs or the leader's.
    wire             start, block_valid, block_end, i_ar_ready, i_r_valid, i_r_last, i_aw_ready, i_w_ready, i_b_valid, i_side_ready;
    wire [WBITS-1:0] block_way;
    wire [63:0]      block, i_r_data;
    wire             side_ready;
    assign ins = {own_start, l_valid, l_end, l_way, l_block, runs && ar_ready[0], runs && r_valid[0], r_last, r_data,
        runs && unit_aw_ready, runs && w_ready[0], runs && b_valid[0], runs && side_ready};
    assign {start, block_valid, block_end, block_way, block, i_ar_ready, i_r_valid, i_r_last, i_r_data,
        i_aw_ready, i_w_ready, i_b_valid, i_side_ready} = follows ? leader_ins : ins;

    wire        u_ar_valid, u_r_ready, u_aw_valid, u_w_valid, u_w_last, u_b_ready, u_side_valid, u_done, u_failed;
    wire [31:0] u_ar_addr, u_aw_addr;
    wire [3:0]  u_ar_len, u_aw_len;
    wire [63:0] u_w_data, u_side;
    wire [13:0] u_side_tag;
    wire [WAYS-1:0][2:0]  way_status;
    wire [WAYS-1:0][31:0] way_detail, way_entries;
    wire                  twice, no_space, too_many;
    wire [WBITS-1:0]      twice_way;
    wire [31:0]           twice_entry, kept, emitted_to, dropped_hidden, dropped_tombstones, sequences_zeroed;
    wire [WAYS-1:0]       key_half_full, value_half_full, merge_pop;
    unit #(.WAYS(WAYS), .WBITS(WBITS), .LOG(LOG)) unit (
        .clk, .start, .below_all(p[1][0]), .key_bytes_max(p[1][14:8]), .value_bytes_max(p[1][29:16]),
        .block_bytes(p[2][15:0]), .restart_interval(p[2][31:16]), .entries_max(p[3]), .emit_from(p[4]),
        .emit_bytes_max(p[5]), .out_base(p[6]), .out_words_max(p[7][28:0]), .snapshots, .snapshot_valid(p[18][7:0]),
        .block_valid, .block_way, .block_end, .block_at(block[31:0]), .block_raw_bytes(block[47:32]),
        .block_entry_bytes(block[63:48]), .block_ready,
        .ar_valid(u_ar_valid), .ar_ready(i_ar_ready), .ar_addr(u_ar_addr), .ar_len(u_ar_len),
        .r_valid(i_r_valid), .r_ready(u_r_ready), .r_data(i_r_data ^ {63'd0, flips[FLIP_READ]}), .r_last(i_r_last),
        .aw_valid(u_aw_valid), .aw_ready(i_aw_ready), .aw_addr(u_aw_addr), .aw_len(u_aw_len),
        .w_valid(u_w_valid), .w_ready(i_w_ready), .w_data(u_w_data), .w_last(u_w_last),
        .b_valid(i_b_valid), .b_ready(u_b_ready),
        .side_valid(u_side_valid), .side_ready(i_side_ready), .side(u_side), .side_tag(u_side_tag),
        .done(u_done), .failed(u_failed), .way_status, .way_detail, .way_entries, .twice, .twice_way, .twice_entry,
        .no_space, .too_many, .kept, .emitted_to, .dropped_hidden, .dropped_tombstones, .sequences_zeroed,
        .key_half_full, .value_half_full, .merge_pop
    );

    // The unit's outputs, as memory and the comparison see them.
    wire        o_done = u_done ^ flips[FLIP_DONE];
    wire [31:0] o_ar_addr = u_ar_addr ^ {28'd0, flips[FLIP_READ_ADDRESS], 3'd0};
    wire [31:0] o_aw_addr = u_aw_addr ^ {6'd0, flips[FLIP_WRITE_ADDRESS], 25'd0};
    wire [63:0] o_w_data = u_w_data ^ {63'd0, flips[FLIP_WRITE]};
    wire [63:0] o_side = u_side ^ {63'd0, flips[FLIP_SIDE]};
    wire [36:0] o_ar = {u_ar_valid, o_ar_addr, u_ar_len};
    wire [36:0] o_aw = {u_aw_valid, o_aw_addr, u_aw_len};
    wire [65:0] o_w = {u_w_valid, u_w_last, o_w_data};
    wire [78:0] o_s = {u_side_valid, u_side_tag, o_side};
    assign outs = {block_ready, o_done, o_ar, o_aw, o_w, o_s};

    // A field counts only if it is valid on either side.
    wire [WAYS-1:0] t_ready;
    wire            t_done;
    wire [36:0]     t_ar, t_aw;
    wire [65:0]     t_w;
    wire [78:0]     t_s;
    assign {t_ready, t_done, t_ar, t_aw, t_w, t_s} = leader_outs;
    reg [4:0] differ;
    reg       compares;
    always_ff @(posedge clk) begin
        compares  <= follows && !start && !reset;
        differ[0] <= {t_ready, t_done} != {block_ready, o_done};
        differ[1] <= (t_ar[36] || o_ar[36]) && t_ar != o_ar;
        differ[2] <= (t_aw[36] || o_aw[36]) && t_aw != o_aw;
        differ[3] <= (t_w[65] || o_w[65]) && t_w != o_w;
        differ[4] <= (t_s[78] || o_s[78]) && t_s != o_s;
        differs   <= compares && differ != 0;
    end

    // A write burst of the unit. What the comparison saw in a cycle is kept, and `mismatch` comes two cycles later. A
    // cycle after that a killed task runs no more, and a sound one's burst begins.
    wire        a_valid, unit_aw_ready;
    wire [35:0] a_burst;
    if (HOLDS != 0) begin : g_holds
        reg        held;
        reg [1:0]  age;
        reg [35:0] burst;
        assign unit_aw_ready = !held;
        assign a_valid       = held && age == 2'd2;
        assign a_burst       = burst;
        always_ff @(posedge clk) begin
            if (!held) {burst, age} <= {o_aw[35:0], 2'd0};
            else if (!a_valid) age <= age + 1'b1;
            held <= runs && (held ? !(a_valid && aw_ready[0]) : u_aw_valid);
        end
    end else begin : g_passes
        assign unit_aw_ready = aw_ready[0];
        assign {a_valid, a_burst} = o_aw;
    end

    // The side channel.
    wire s_idle, s_quiet, s_no_space, s_aw_valid, s_w_valid;
    wire [31:0] groups;
    side side (
        .clk, .clear(own_start), .halt(!runs), .base(p[8]), .groups_max(p[9]), .in_valid(u_side_valid && runs),
        .in_ready(side_ready), .in(o_side), .in_tag(u_side_tag), .in_finished(runs && o_done), .idle(s_idle), .quiet(s_quiet),
        .no_space(s_no_space), .groups, .aw_valid(s_aw_valid), .aw_ready(aw_ready[1]), .aw_addr(aw_addr[1]),
        .w_valid(s_w_valid), .w_ready(w_ready[1]), .w_data(w_data[1]), .b_valid(b_valid[1])
    );
    assign ar_valid[0] = runs && u_ar_valid;
    assign ar_addr[0]  = o_ar_addr;
    assign ar_len[0]   = u_ar_len;
    assign aw_valid    = {s_aw_valid, runs && a_valid};
    assign aw_addr[0]  = a_burst[35:4];
    assign aw_len      = {4'd4, a_burst[3:0]};
    assign w_valid     = {s_w_valid, !runs || u_w_valid};
    assign w_data[0]   = runs ? o_w_data : 64'd0;

    // Bursts that memory has not answered yet.
    reg  [7:0] reads, writes;
    wire       read = (ar_valid & ar_ready) != 0;
    wire       is_read = r_valid != 0 && r_last;
    wire       write = aw_valid[0] && aw_ready[0];
    always_ff @(posedge clk) begin
        if (reset) begin
            state  <= S_FREE;
            code   <= CODE_DONE;
            cycles <= '0;
            reads  <= '0;
            writes <= '0;
        end else begin
            reads  <= reads + {7'd0, read} - {7'd0, is_read};
            writes <= writes + {7'd0, write} - {7'd0, b_valid[0]};
            case (state)
                S_FREE: if (begins) state <= S_START;
                S_START: begin
                    state  <= S_RUN;
                    cycles <= '0;
                end
                S_RUN: begin
                    if (!o_done) cycles <= cycles + 1'b1;
                    if (mismatch || stop || s_no_space || (o_done && s_idle)) begin
                        state <= S_QUIET;
                        code  <= mismatch ? CODE_MISMATCH : stop ? CODE_STOPPED : s_no_space ? CODE_SIDE
                            : u_failed ? CODE_FAILED : CODE_DONE;
                    end
                end
                S_QUIET: if (reads == 0 && writes == 0 && s_quiet) state <= S_FINISHED;
                default: if (release_lane) state <= S_FREE;
            endcase
        end
    end

    // The answer, a word a cycle.
    always_ff @(posedge clk) begin
        case (answer_at)
            5'd0: answer_word <= {29'd0, code};
            5'd1: answer_word <= tag;
            5'd2: answer_word <= cycles;
            5'd3: answer_word <= groups;
            5'd4: answer_word <= 32'({twice ? twice_way : WBITS'(0), 1'b0, too_many, no_space, twice, 12'(way_status)});
            5'd5: answer_word <= twice ? twice_entry : 32'd0;
            5'd6: answer_word <= kept;
            5'd7: answer_word <= emitted_to;
            5'd8: answer_word <= dropped_hidden;
            5'd9: answer_word <= dropped_tombstones;
            5'd10: answer_word <= sequences_zeroed;
            default: begin
                answer_word <= '0;
                for (int w = 0; w < WAYS; w++) begin
                    if (answer_at == 5'(12 + w) && way_status[w] != 0) answer_word <= way_detail[w];
                    if (answer_at == 5'(16 + w)) answer_word <= way_entries[w];
                end
            end
        endcase
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk)
        if (!reset) begin
            a_begins_when_free : assert (!begins || is_free);
            a_no_burst_when_free : assert (!is_free || (reads == 0 && writes == 0));
            a_answers_were_asked_for : assert (!(is_read && reads == 0) && !(b_valid[0] && writes == 0));
        end
    c_list_waits_for_memory : cover property (@(posedge clk) l_waits);
    c_killed_with_writes_under_way : cover property (@(posedge clk) state == S_QUIET && writes != 0);
    c_killed_with_reads_under_way : cover property (@(posedge clk) state == S_QUIET && reads != 0);
`endif
endmodule
`default_nettype wire
