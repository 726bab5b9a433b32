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
endmodule
`default_nettype wire
