// Units in lanes, behind a bus of registers, a queue of tasks, a queue of answers, and one memory port.
//
//   bus ─> registers ─> queue of tasks ─> lanes ─> queue of answers ─> bus
//                                          ║
//                                     port ╩═> memory
//
// The host writes a task's words into the queue's tail, and pushes it. The dispatcher gives it to a lane that is free,
// or to the lanes 0 and 1 in lock-step. A finished lane keeps its answer until the queue of answers has space, and takes
// no task meanwhile. So nothing is lost when the host is slow. ../registers.md has all registers.
`default_nettype none
module chip #(
    parameter LANES    = 2,
    parameter NBITS    = 2,
    parameter WAYS     = 4,
    parameter WBITS    = 2,
    parameter LOG      = 9,
    parameter LOCKSTEP = 1,
    // For tests: bits of a lane can be flipped.
    parameter FLIPS    = 0
) (
    input  wire             clk,
    input  wire             reset,
    // The bus: a request stays until `bus_ready`; `bus_done` comes with the answer.
    input  wire             bus_valid,
    output wire             bus_ready,
    input  wire             bus_write,
    input  wire [9:0]       bus_addr,
    input  wire [31:0]      bus_wdata,
    output reg              bus_done,
    output reg              bus_error,
    output reg  [31:0]      bus_rdata,
    output reg              irq,
    // Memory.
    output wire             ar_valid,
    input  wire             ar_ready,
    output wire [31:0]      ar_addr,
    output wire [3:0]       ar_len,
    input  wire             r_valid,
    output wire             r_ready,
    input  wire [63:0]      r_data,
    input  wire             r_last,
    output wire             aw_valid,
    input  wire             aw_ready,
    output wire [31:0]      aw_addr,
    output wire [3:0]       aw_len,
    output wire             w_valid,
    input  wire             w_ready,
    output wire [63:0]      w_data,
    output wire             w_last,
    input  wire             b_valid,
    output wire             b_ready,
    // Tests.
    input  wire [LANES-1:0] flip,
    input  wire [2:0]       flip_place
);
    localparam ID = 32'h73697475, VERSION = 32'd1, SLOTS = 4, TASK_WORDS = 48, ANSWER_WORDS = 20, SECOND = LANES > 1 ? 1 : 0;
    // One lane has no partner.
    localparam [0:0] LOCKS = LOCKSTEP != 0 && LANES > 1;
    localparam R_ID = 8'd0, R_VERSION = 8'd1, R_CAPABILITIES = 8'd2, R_CONTROL = 8'd3, R_STATUS = 8'd4, R_IRQ_ENABLE = 8'd5,
        R_IRQ_CAUSE = 8'd6, R_PUSH = 8'd8, R_POP = 8'd9;

    // The bus: a request is taken, looked up, and answered.
    reg         b_taken, b_looked, b_write;
    reg  [7:0]  b_word;
    reg         b_odd;
    reg  [31:0] b_wdata;
    assign bus_ready = !b_taken && !b_looked;
    wire        acts = b_taken;

    // Queues.
    reg  [31:0] tasks[0:64*SLOTS-1];
    reg  [31:0] answers[0:32*SLOTS-1];
    reg  [31:0] task_word, answer_out;
    reg  [2:0]  t_wptr, t_rptr, a_wptr, a_rptr;
    reg  [3:0]  t_lock;
    wire [2:0]  t_used = t_wptr - t_rptr, a_used = a_wptr - a_rptr;
    wire        t_full = t_used == 3'd4, t_empty = t_used == 0, a_full = a_used == 3'd4, a_empty = a_used == 0;

    // Registers.
    reg         runs;
    reg  [3:0]  enable;
    reg         saw_mismatch, saw_error;
    wire [3:0]  cause = {saw_error, saw_mismatch, !t_full, !a_empty};
    wire [LANES-1:0]       lane_free, lane_finished;
    wire [LANES-1:0][31:0] lane_cycles, lane_tag, lane_answer;
    reg         paired;
    wire        in_window = b_word[7:6] == 2'b01 && b_word[5:0] < TASK_WORDS;
    wire        in_answer = b_word[7:5] == 3'b100 && b_word[4:0] < ANSWER_WORDS;
    wire        in_lane = b_word[7:4] >= 4'd1 && b_word[7:6] == 2'b00 && {28'd0, b_word[5:2] - 4'd4} < LANES;
    wire [3:0]  b_lane = b_word[5:2] - 4'd4;
    wire        is_lock = b_wdata == 32'd1;

    reg         is_legal;
    reg  [31:0] value;
    always_comb begin
        is_legal = 1'b0;
        value    = '0;
        if (b_write) begin
            case (b_word)
                R_CONTROL: is_legal = b_wdata[31:1] == 0;
                R_IRQ_ENABLE, R_IRQ_CAUSE: is_legal = b_wdata[31:4] == 0;
                R_PUSH: is_legal = !t_full && (b_wdata == 0 || (is_lock && LOCKS));
                R_POP: is_legal = !a_empty;
                default: is_legal = (in_window && !t_full) || (in_lane && b_word[1:0] == 2'd0 && b_wdata == 32'd1);
            endcase
        end else begin
            is_legal = 1'b1;
            case (b_word)
                R_ID: value = ID;
                R_VERSION: value = VERSION;
                R_CAPABILITIES: value = {LOCKS, 7'd0, 4'(SLOTS), 4'(SLOTS), 4'd8, 4'(WAYS), 4'd0, 4'(LANES)};
                R_CONTROL: value = {31'd0, runs};
                R_STATUS: value = {15'd0, paired, 8'(busy), 1'b0, a_used, 1'b0, 3'd4 - t_used};
                R_IRQ_ENABLE: value = {28'd0, enable};
                R_IRQ_CAUSE: value = {28'd0, cause};
                default: begin
                    is_legal = (in_answer && !a_empty) || (in_lane && b_word[1:0] != 2'd0);
                    for (int i = 0; i < LANES; i++)
                        if (in_lane && b_lane == 4'(i)) begin
                            case (b_word[1:0])
                                2'd1: value = {29'd0, LOCKS && i == 1 && paired, lane_finished[i], !lane_free[i]};
                                2'd2: value = lane_tag[i];
                                default: value = lane_cycles[i];
                            endcase
                        end
                end
            endcase
        end
        if (b_odd) is_legal = 1'b0;
    end

    // The dispatcher: it chooses lanes, and copies a task's words to them.
    reg  [LANES-1:0] target;
    reg              loads, loaded;
    reg  [5:0]       load_at, load_at1;
    wire             lock = t_lock[t_rptr[1:0]];
    wire [LANES-1:0] takes = LOCKS && paired ? lane_free & ~LANES'(2) : lane_free;
    wire [LANES-1:0] busy = ~takes;
    reg  [LANES-1:0] chosen;
    always_comb begin
        chosen = '0;
        if (lock) begin
            if (takes[0] && takes[SECOND]) chosen = LANES'(3);
        end else begin
            for (int i = 0; i < LANES; i++) if (takes[i]) chosen = LANES'(1) << i;
        end
    end
    reg  [LANES-1:0] begins;

    // The copier: a finished lane's words go into the queue of answers, the code at last.
    reg               copies, copied;
    reg  [3:0]        c_lane;
    reg  [4:0]        c_at, c_at1;
    reg               c_differs;
    wire [31:0]       c_word = lane_answer[c_lane];
    wire              c_pair = LOCKS && paired && c_lane == 0;
    wire              c_compares = c_pair && (c_at1 == 5'd1 || c_at1 >= 5'd4);
    wire              c_mismatch = c_pair && (c_differs || c_word[2:0] == 3'd2);
    reg  [LANES-1:0]  releases;

    always_ff @(posedge clk) begin
        if (acts && is_legal && b_write && in_window) tasks[{t_wptr[1:0], b_word[5:0]}] <= b_wdata;
        task_word  <= tasks[{t_rptr[1:0], load_at}];
        answer_out <= answers[{a_rptr[1:0], b_word[4:0]}];
        if (copied) answers[{a_wptr[1:0], c_at1}] <= c_at1 != 0 ? c_word
            : {15'd0, c_pair, 4'd0, c_lane, 5'd0, c_mismatch ? 3'd2 : c_word[2:0]};
    end

    wire [LANES-1:0] stops;
    for (genvar i = 0; i < LANES; i++) begin : g_stop
        assign stops[i] = acts && is_legal && b_write && in_lane && b_lane == i;
    end

    always_ff @(posedge clk) begin
        bus_done <= 1'b0;
        begins   <= '0;
        releases <= '0;
        irq      <= (cause & enable) != 0;
        if (reset) begin
            b_taken  <= 1'b0;
            b_looked <= 1'b0;
            runs     <= 1'b0;
            enable   <= '0;
            t_wptr   <= '0;
            t_rptr   <= '0;
            a_wptr   <= '0;
            a_rptr   <= '0;
            paired   <= 1'b0;
            loads    <= 1'b0;
            loaded   <= 1'b0;
            copies   <= 1'b0;
            copied   <= 1'b0;
            saw_mismatch <= 1'b0;
            saw_error    <= 1'b0;
        end else begin
            // The bus.
            if (bus_valid && bus_ready) begin
                b_taken <= 1'b1;
                b_write <= bus_write;
                b_word  <= bus_addr[9:2];
                b_odd   <= bus_addr[1:0] != 0;
                b_wdata <= bus_wdata;
            end
            if (acts) begin
                b_taken   <= 1'b0;
                b_looked  <= 1'b1;
                bus_error <= !is_legal;
                bus_rdata <= is_legal && !b_write ? value : 32'd0;
                if (!is_legal) saw_error <= 1'b1;
                else if (b_write) begin
                    case (b_word)
                        R_CONTROL: runs <= b_wdata[0];
                        R_IRQ_ENABLE: enable <= b_wdata[3:0];
                        R_IRQ_CAUSE: begin
                            if (b_wdata[2]) saw_mismatch <= 1'b0;
                            if (b_wdata[3]) saw_error <= 1'b0;
                        end
                        R_PUSH: begin
                            t_lock[t_wptr[1:0]] <= is_lock;
                            t_wptr <= t_wptr + 1'b1;
                        end
                        R_POP: a_rptr <= a_rptr + 1'b1;
                        default: ;
                    endcase
                end
            end
            if (b_looked) begin
                b_looked <= 1'b0;
                bus_done <= 1'b1;
                if (in_answer && !b_write && !bus_error) bus_rdata <= answer_out;
            end

            // The dispatcher.
            loaded   <= loads;
            load_at1 <= load_at;
            if (!loads && !loaded && begins == 0) begin
                load_at <= '0;
                if (runs && !t_empty && chosen != 0) begin
                    loads  <= 1'b1;
                    target <= chosen;
                    if (LOCKS && lock) paired <= 1'b1;
                end
            end else if (loads) begin
                load_at <= load_at + 1'b1;
                if (load_at == 6'(TASK_WORDS - 1)) loads <= 1'b0;
            end else if (loaded) begin
                // The leader begins for both.
                begins <= LOCKS && target == LANES'(3) ? LANES'(1) : target;
                t_rptr <= t_rptr + 1'b1;
            end

            // The copier.
            copied <= copies;
            if (loads && target[0]) c_differs <= 1'b0;
            else if (paired && differs[SECOND]) c_differs <= 1'b1;
            c_at1  <= c_at;
            if (!copies && !copied && releases == 0) begin
                c_at <= 5'(ANSWER_WORDS - 1);
                for (int i = 0; i < LANES; i++) if (lane_finished[i]) c_lane <= 4'(i);
                if (lane_finished != 0 && !a_full) copies <= 1'b1;
            end else if (copies) begin
                c_at <= c_at - 1'b1;
                if (c_at == 0) copies <= 1'b0;
            end
            if (copied) begin
                if (c_compares && lane_answer[SECOND] != c_word) c_differs <= 1'b1;
                if (c_at1 == 0) begin
                    releases <= LANES'(1) << c_lane;
                    a_wptr   <= a_wptr + 1'b1;
                    if (c_pair) paired <= 1'b0;
                    if (c_mismatch) saw_mismatch <= 1'b1;
                end
            end
        end
    end

    // The lanes.
    wire [LANES-1:0][137+WBITS:0] ins;
    wire [LANES-1:0][219+WAYS:0]  outs;
    wire [LANES-1:0]              differs;
    wire [2*LANES-1:0]       l_ar_valid, l_ar_ready, l_r_valid, l_aw_valid, l_aw_ready, l_w_valid, l_w_ready, l_b_valid;
    wire [2*LANES-1:0][31:0] l_ar_addr, l_aw_addr;
    wire [2*LANES-1:0][3:0]  l_ar_len, l_aw_len;
    wire [2*LANES-1:0][63:0] l_w_data;
    wire [63:0]              l_r_data;
    wire                     l_r_last;
    for (genvar i = 0; i < LANES; i++) begin : g_lane
        localparam IS_LEADER = LOCKS && i == 0, IS_FOLLOWER = LOCKS && i == 1;
        lane #(.WAYS(WAYS), .WBITS(WBITS), .LOG(LOG), .HOLDS(IS_LEADER), .FLIPS(FLIPS)) lane (
            .clk, .reset, .load(loaded && target[i]), .load_at(load_at1), .load_word(task_word), .begins(begins[i]),
            .stop(stops[i] || (IS_LEADER && paired && stops[SECOND])),
            .mismatch(IS_LEADER && paired && differs[SECOND]), .is_free(lane_free[i]), .is_finished(lane_finished[i]),
            .release_lane(releases[i]), .cycles(lane_cycles[i]), .tag(lane_tag[i]), .answer_at(c_at),
            .answer_word(lane_answer[i]), .follows(IS_FOLLOWER && paired && !lane_free[0]), .ins(ins[i]), .leader_ins(ins[0]), .outs(outs[i]),
            .leader_outs(outs[0]), .differs(differs[i]),
            .ar_valid(l_ar_valid[2*i+:2]), .ar_ready(l_ar_ready[2*i+:2]), .ar_addr(l_ar_addr[2*i+:2]),
            .ar_len(l_ar_len[2*i+:2]), .r_valid(l_r_valid[2*i+:2]), .r_data(l_r_data), .r_last(l_r_last),
            .aw_valid(l_aw_valid[2*i+:2]), .aw_ready(l_aw_ready[2*i+:2]), .aw_addr(l_aw_addr[2*i+:2]),
            .aw_len(l_aw_len[2*i+:2]), .w_valid(l_w_valid[2*i+:2]), .w_ready(l_w_ready[2*i+:2]),
            .w_data(l_w_data[2*i+:2]), .b_valid(l_b_valid[2*i+:2]),
            .flip(flip[i]), .flip_place
        );
    end
    port #(.N(2 * LANES), .NBITS(NBITS)) port (
        .clk, .reset,
        .ar_valid(l_ar_valid), .ar_ready(l_ar_ready), .ar_addr(l_ar_addr), .ar_len(l_ar_len), .r_valid(l_r_valid),
        .r_data(l_r_data), .r_last(l_r_last), .aw_valid(l_aw_valid), .aw_ready(l_aw_ready), .aw_addr(l_aw_addr),
        .aw_len(l_aw_len), .w_valid(l_w_valid), .w_ready(l_w_ready), .w_data(l_w_data), .b_valid(l_b_valid),
        .m_ar_valid(ar_valid), .m_ar_ready(ar_ready), .m_ar_addr(ar_addr), .m_ar_len(ar_len), .m_r_valid(r_valid),
        .m_r_ready(r_ready), .m_r_data(r_data), .m_r_last(r_last), .m_aw_valid(aw_valid), .m_aw_ready(aw_ready),
        .m_aw_addr(aw_addr), .m_aw_len(aw_len), .m_w_valid(w_valid), .m_w_ready(w_ready), .m_w_data(w_data),
        .m_w_last(w_last), .m_b_valid(b_valid), .m_b_ready(b_ready)
    );

`ifndef SYNTHESIS
    always_ff @(posedge clk)
        if (!reset) begin
            a_queues_hold_no_more_than_they_can : assert (t_used <= 3'd4 && a_used <= 3'd4);
            a_no_answer_is_lost : assert (!(copied && a_full));
            a_a_pair_is_loaded_together : assert (!(LOCKS && paired) || lane_free[SECOND]);
        end
    c_answers_are_full : cover property (@(posedge clk) a_full && lane_finished != 0);
    c_tasks_are_full : cover property (@(posedge clk) t_full);
    c_lanes_are_all_busy : cover property (@(posedge clk) lane_free == 0);
    c_lockstep_waits_for_a_lane : cover property (@(posedge clk) !t_empty && lock && chosen == 0);
    c_lanes_disagree : cover property (@(posedge clk) saw_mismatch);
`endif
endmodule
`default_nettype wire
