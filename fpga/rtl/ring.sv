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
endmodule
`default_nettype wire
