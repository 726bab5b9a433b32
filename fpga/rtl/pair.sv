// Makes the words of a value's ring of what a decoder gives, which is eight bytes a cycle. Each value begins at a word.
`default_nettype none
module pair #(
    parameter BYTES = 8
) (
    input  wire               clk,
    input  wire               clear,
    input  wire               in_wr,
    input  wire [63:0]        in,
    // The value's last bytes.
    input  wire               in_last,
    output wire               out_wr,
    output wire [8*BYTES-1:0] out
);
    if (BYTES == 8) begin : g_whole
        assign out_wr = in_wr;
        assign out    = in;
    end else begin : g_halves
        reg [63:0] lower;
        reg        has_lower;
        assign out_wr = in_wr && (has_lower || in_last);
        assign out    = {in, has_lower ? lower : in};
        always_ff @(posedge clk) begin
            if (clear) has_lower <= 1'b0;
            else if (in_wr) has_lower <= !has_lower && !in_last;
            if (in_wr) lower <= in;
        end
    end
endmodule
`default_nettype wire
