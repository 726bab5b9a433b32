// Gives the words of a ring to a decoder: as they are, or a word of sixteen bytes as two of eight. A half of a block's
// first or last word is skipped if it has nothing of the block.
`default_nettype none
module halve #(
    parameter BYTES = 8,
    parameter WIDTH = 65
) (
    input  wire             clk,
    input  wire             clear,
    // {upper half skipped, lower half skipped, wrong checksum, bytes}; of eight bytes without the first two.
    input  wire [WIDTH-1:0] in,
    output wire             in_rd,
    output wire [64:0]      out,
    input  wire             out_rd
);
    if (BYTES == 8) begin : g_whole
        assign out   = in;
        assign in_rd = out_rd;
    end else begin : g_halves
        wire skips_upper, skips_lower, is_bad;
        wire [63:0] upper, lower;
        assign {skips_upper, skips_lower, is_bad, upper, lower} = in;
        reg  lower_is_taken;
        wire is_upper = lower_is_taken || skips_lower;
        assign out   = {is_bad, is_upper ? upper : lower};
        assign in_rd = out_rd && (is_upper || skips_upper);
        always_ff @(posedge clk)
            if (clear || in_rd) lower_is_taken <= 1'b0;
            else if (out_rd) lower_is_taken <= 1'b1;
    end
endmodule
`default_nettype wire
