// Two registers in front of a reader, so that its decision to read does not reach back into the ring's memory.
`default_nettype none
module skid #(
    parameter WIDTH = 65
) (
    input  wire             clk,
    input  wire             clear,
    input  wire             in_valid,
    output wire             in_rd,
    input  wire [WIDTH-1:0] in,
    output wire             out_valid,
    input  wire             out_rd,
    output reg  [WIDTH-1:0] out
);
    reg [WIDTH-1:0] second;
    reg [1:0] count;

    assign in_rd     = in_valid && !count[1];
    assign out_valid = count != 0;

    always_ff @(posedge clk) begin
        if (clear) count <= '0;
        else count <= count + {1'b0, in_rd} - {1'b0, out_rd};
        if (count == 0 || out_rd) out <= count[1] ? second : in;
        if (!count[1]) second <= in;
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk) if (!clear) a_read_what_is_there : assert (!out_rd || out_valid);
`endif
endmodule
`default_nettype wire
