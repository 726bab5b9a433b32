// A ring buffer in block memory, with a look-ahead word, a jump of the read pointer, and the three flags of the paper.
//
// `rdata` is the word at the read pointer whenever `avail` is not 0. A jump drops a value whose entry the merge does
// not keep: it costs no data path.
// `full` comes SLACK words early and, like `half_full`, a cycle late: writers have some stages in front.
`default_nettype none
module ring #(
    parameter WIDTH = 64,
    parameter LOG   = 9,
    parameter SLACK = 8
) (
    input  wire             clk,
    input  wire             clear,
    input  wire             wr,
    input  wire [WIDTH-1:0] wdata,
    input  wire             rd,
    input  wire             jump,
    input  wire [LOG:0]     jump_words,
    output wire [WIDTH-1:0] rdata,
    output wire [LOG:0]     avail,
    output reg              empty,
    output reg              half_full,
    output reg              full
);
    localparam DEPTH = 1 << LOG;

    reg [WIDTH-1:0] mem[0:DEPTH-1];
    reg [WIDTH-1:0] q;
    // The read side sees a word one cycle after it was written: the block memory then has it. The pointer behind
    // `rptr` is kept, too, so that a late `rd` only chooses.
    reg [LOG:0] wptr, wptr_seen, rptr, rptr_1;

    wire [LOG:0] rptr_jump = rptr + jump_words;
    wire [LOG:0] rptr_next = rd ? rptr_1 : jump ? rptr_jump : rptr;
    wire [LOG:0] used = wptr - rptr;

    assign rdata = q;
    assign avail = wptr_seen - rptr;

    always_ff @(posedge clk) begin
        if (wr) mem[wptr[LOG-1:0]] <= wdata;
        q <= mem[rptr_next[LOG-1:0]];
    end

    always_ff @(posedge clk) begin
        if (clear) begin
            wptr      <= '0;
            wptr_seen <= '0;
            rptr      <= '0;
            rptr_1    <= {{LOG{1'b0}}, 1'b1};
            empty     <= 1'b1;
            half_full <= 1'b0;
            full      <= 1'b0;
        end else begin
            if (wr) wptr <= wptr + 1'b1;
            wptr_seen <= wptr;
            rptr      <= rptr_next;
            if (rd) rptr_1 <= rptr_1 + 1'b1;
            else if (jump) rptr_1 <= rptr_jump + 1'b1;
            empty     <= rd ? wptr == rptr_1 : jump ? wptr == rptr_jump : wptr == rptr;
            half_full <= used >= DEPTH / 2;
            full      <= used >= DEPTH - SLACK;
        end
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk)
        if (!clear) begin
            a_no_overflow : assert (!wr || used < DEPTH);
            a_no_underflow : assert (!rd || !empty);
            a_jump_inside : assert (!jump || jump_words <= avail);
            a_one_movement : assert (!(rd && jump));
            a_holds_no_more_than_it_can : assert (used <= DEPTH);
        end
`endif
`ifdef FORMAL
    // Proved: a word comes out as it went in, behind all that went in before it and was not jumped over. A writer that
    // writes at most SLACK - 1 words while `full` is 1 never overflows the ring; without slack, one that counts.
    reg  [LOG:0]     f_count, f_ahead, f_late;
    reg              f_watches = 1'b0, f_begun = 1'b0;
    reg  [WIDTH-1:0] f_word;
    (* anyseq *) wire f_watch;
    wire [LOG-1:0]   f_at = rptr[LOG-1:0] + f_ahead[LOG-1:0];
    wire [LOG:0]     f_out = rd ? {{LOG{1'b0}}, 1'b1} : jump ? jump_words : '0;
    always_ff @(posedge clk) begin
        f_begun <= 1'b1;
        assume (f_begun || clear);
        assume (!(rd && empty) && !(rd && jump) && (!jump || jump_words <= avail));
        if (SLACK == 0) assume (!(wr && f_count == DEPTH));
        else assume (!(wr && full && f_late == SLACK - 1));
        f_late  <= clear || !full ? '0 : f_late + {{LOG{1'b0}}, wr};
        f_count <= clear ? '0 : f_count + {{LOG{1'b0}}, wr} - f_out;
        if (clear || (f_watches && f_ahead < f_out)) f_watches <= 1'b0;
        else if (!f_watches && wr && f_watch) begin
            f_watches <= 1'b1;
            f_word    <= wdata;
            f_ahead   <= f_count - f_out;
        end else f_ahead <= f_ahead - f_out;
        if (f_begun) begin
            p_count : assert (f_count == used && (empty || f_count != 0) && avail <= f_count);
            p_pointers : assert (rptr_1 == rptr + 1'b1 && (wptr_seen == wptr || wptr_seen + 1'b1 == wptr));
            p_in_front : assert ((empty || avail != 0) && (avail == 0 || q == mem[rptr[LOG-1:0]]));
            p_late : assert (SLACK == 0 || (f_late < SLACK && (full ? used <= DEPTH - SLACK + 1 + f_late : used <= DEPTH - SLACK)));
            p_watched_word_is_there : assert (!f_watches || (f_ahead < f_count && mem[f_at] == f_word));
            p_it_comes_out : assert (!(f_watches && rd && f_ahead == 0) || rdata == f_word);
        end
    end
`endif
endmodule
`default_nettype wire
