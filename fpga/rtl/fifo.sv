// A small FIFO in distributed memory. `rdata` is the first item whenever `empty` is 0.
`default_nettype none
module fifo #(
    parameter WIDTH = 8,
    parameter LOG   = 4
) (
    input  wire             clk,
    input  wire             clear,
    input  wire             wr,
    input  wire [WIDTH-1:0] wdata,
    input  wire             rd,
    output wire [WIDTH-1:0] rdata,
    output wire             empty,
    output wire             full,
    // Six items before it is full, and a cycle late: for writers with some stages in front.
    output reg              high
);
    localparam DEPTH = 1 << LOG;

    reg [WIDTH-1:0] mem[0:DEPTH-1];
    reg [LOG:0] wptr, rptr;
    wire [LOG:0] used = wptr - rptr;

    assign rdata = mem[rptr[LOG-1:0]];
    assign empty = wptr == rptr;
    assign full  = used == DEPTH[LOG:0];

    always_ff @(posedge clk) high <= !clear && used >= DEPTH - 6;

    always_ff @(posedge clk) if (wr) mem[wptr[LOG-1:0]] <= wdata;

    always_ff @(posedge clk) begin
        if (clear) begin
            wptr <= '0;
            rptr <= '0;
        end else begin
            if (wr) wptr <= wptr + 1'b1;
            if (rd) rptr <= rptr + 1'b1;
        end
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk)
        if (!clear) begin
            a_no_overflow : assert (!wr || !full);
            a_no_underflow : assert (!rd || !empty);
            a_holds_no_more_than_it_can : assert (used <= DEPTH);
        end
`endif
`ifdef FORMAL
    // Proved: a word comes out as it went in, behind all that went in before it. `f_count` counts words at the ports,
    // `f_ahead` those in front of a word that is watched.
    reg  [LOG:0]     f_count, f_ahead;
    reg              f_watches = 1'b0, f_begun = 1'b0;
    reg  [WIDTH-1:0] f_word;
    (* anyseq *) wire f_watch;
    wire [LOG-1:0]   f_at = rptr[LOG-1:0] + f_ahead[LOG-1:0];
    always_ff @(posedge clk) begin
        f_begun <= 1'b1;
        assume (f_begun || clear);
        assume (!(wr && full) && !(rd && empty));
        f_count <= clear ? '0 : f_count + {{LOG{1'b0}}, wr} - {{LOG{1'b0}}, rd};
        if (clear || (f_watches && rd && f_ahead == 0)) f_watches <= 1'b0;
        else if (!f_watches && wr && f_watch) begin
            f_watches <= 1'b1;
            f_word    <= wdata;
            f_ahead   <= f_count - {{LOG{1'b0}}, rd};
        end else if (rd) f_ahead <= f_ahead - 1'b1;
        if (f_begun) begin
            p_count : assert (f_count == used && empty == (f_count == 0) && full == (f_count == DEPTH));
            p_watched_word_is_there : assert (!f_watches || (f_ahead < f_count && mem[f_at] == f_word));
            p_it_comes_out : assert (!(f_watches && rd && f_ahead == 0) || rdata == f_word);
        end
    end
`endif
endmodule
`default_nettype wire
