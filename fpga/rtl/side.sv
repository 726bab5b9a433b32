// Puts the side channel of a unit into memory, in groups of five words: four words, and then their four tags of 16 bits.
//
// Tag bit 15 says that there is no word: it fills up the last group.
`default_nettype none
module side (
    input  wire        clk,
    input  wire        clear,
    // No burst begins any more.
    input  wire        halt,
    input  wire [31:0] base,
    input  wire [31:0] groups_max,
    input  wire        in_valid,
    output wire        in_ready,
    input  wire [63:0] in,
    input  wire [13:0] in_tag,
    // No word comes any more: the last group is filled up.
    input  wire        in_finished,
    output wire        idle,
    // No burst waits for its answer.
    output wire        quiet,
    output reg         no_space,
    output reg  [31:0] groups,
    output wire        aw_valid,
    input  wire        aw_ready,
    output reg  [31:0] aw_addr,
    output wire        w_valid,
    input  wire        w_ready,
    output wire [63:0] w_data,
    input  wire        b_valid
);
    reg  [2:0]  at;
    reg  [63:0] tags;
    // Groups in the queue that no burst was begun for, and bursts without an answer.
    reg  [1:0]  held;
    reg  [2:0]  in_flight;
    wire        full, empty, high;
    wire        is_tags = at == 3'd4;
    wire        fills = in_finished && at != 0 && !is_tags;
    wire        take = !full && !no_space && (is_tags || in_valid || fills);
    wire        goes = aw_valid && aw_ready;
    wire        fits = groups != groups_max;
    fifo #(.WIDTH(64), .LOG(4)) words (
        .clk, .clear, .wr(take), .wdata(is_tags ? tags : in), .rd(w_valid && w_ready), .rdata(w_data), .empty, .full, .high
    );
    assign in_ready = !full && !no_space && !is_tags;
    assign aw_valid = !halt && held != 0 && fits && in_flight != 3'd7;
    assign w_valid  = !empty;
    assign quiet    = in_flight == 0;
    assign idle     = in_finished && at == 0 && held == 0 && quiet;

    always_ff @(posedge clk) begin
        if (clear) begin
            at        <= '0;
            held      <= '0;
            in_flight <= '0;
            groups    <= '0;
            no_space  <= 1'b0;
            aw_addr   <= base;
        end else begin
            if (take) at <= is_tags ? 3'd0 : at + 1'b1;
            held      <= held + {1'b0, take && is_tags} - {1'b0, goes};
            in_flight <= in_flight + {2'b00, goes} - {2'b00, b_valid};
            if (goes) begin
                groups  <= groups + 1'b1;
                aw_addr <= aw_addr + 32'd40;
            end
            if (held != 0 && !fits) no_space <= 1'b1;
        end
        if (take && !is_tags) tags <= {in_valid ? {2'b00, in_tag} : 16'h8000, tags[63:16]};
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk)
        if (!clear) begin
            a_groups_fit : assert (!(held == 2'd3 && take && is_tags && !goes));
            a_answers_to_bursts_alone : assert (!b_valid || in_flight != 0);
        end
`endif
endmodule
`default_nettype wire
