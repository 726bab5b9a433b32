// Two registers in front of a reader, so that its decision to read does not reach back into the ring's memory. Words
// go into them in turns and stay where they are. So that decision changes a pointer and a count, and no word.
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
    output wire [WIDTH-1:0] out
);
    reg [WIDTH-1:0] even, odd;
    reg [1:0] count;
    reg       out_is_odd;
    wire      in_is_odd = out_is_odd ^ count[0];

    assign in_rd     = in_valid && !count[1];
    assign out_valid = count != 0;
    assign out       = out_is_odd ? odd : even;

    always_ff @(posedge clk) begin
        if (clear) begin
            count      <= '0;
            out_is_odd <= 1'b0;
        end else begin
            count      <= count + {1'b0, in_rd} - {1'b0, out_rd};
            out_is_odd <= out_is_odd ^ out_rd;
        end
        if (!count[1] && !in_is_odd) even <= in;
        if (!count[1] && in_is_odd) odd <= in;
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk) if (!clear) a_read_what_is_there : assert (!out_rd || out_valid);
`endif
`ifdef FORMAL
    // Proved: as in `fifo.sv`, and two words at most.
    reg  [1:0]       f_count, f_ahead;
    reg              f_watches = 1'b0, f_begun = 1'b0;
    reg  [WIDTH-1:0] f_word;
    (* anyseq *) wire f_watch;
    always_ff @(posedge clk) begin
        f_begun <= 1'b1;
        assume (f_begun || clear);
        assume (!out_rd || out_valid);
        f_count <= clear ? 2'd0 : f_count + {1'b0, in_rd} - {1'b0, out_rd};
        if (clear || (f_watches && out_rd && f_ahead == 0)) f_watches <= 1'b0;
        else if (!f_watches && in_rd && f_watch) begin
            f_watches <= 1'b1;
            f_word    <= in;
            f_ahead   <= f_count - {1'b0, out_rd};
        end else if (out_rd) f_ahead <= f_ahead - 1'b1;
        if (f_begun) begin
            p_count : assert (f_count == count && count != 2'd3 && out_valid == (f_count != 0));
            p_watched_word_is_there : assert (!f_watches || (f_ahead < f_count && (out_is_odd ^ f_ahead[0] ? odd : even) == f_word));
            p_it_comes_out : assert (!(f_watches && out_rd && f_ahead == 0) || out == f_word);
        end
    end
`endif
endmodule
`default_nettype wire
