// Packs chunks of up to eight bytes into words of eight, without gaps. A block begins at a word.
//
// Stage 1 turns a chunk to the place where its first byte goes; stage 2 puts it behind the bytes that wait. The turn
// is the unit's longest shift, so it has a cycle of its own.
`default_nettype none
module packer (
    input  wire        clk,
    input  wire        clear,
    input  wire        in_valid,
    output wire        in_ready,
    input  wire [63:0] in,
    input  wire [3:0]  in_bytes,
    input  wire [2:0]  in_from,
    input  wire        in_last,
    // {last of the block, bytes, word}.
    output wire        out_empty,
    output wire [68:0] out,
    input  wire        out_rd
);
    reg  [2:0]  fill;
    wire [4:0]  filled = {2'd0, fill} + {1'b0, in_bytes};
    wire [2:0]  turn = fill - in_from;
    wire [127:0] twice = {in, in} << {turn, 3'b000};
    wire        q_full, q_high;
    assign in_ready = !q_high;
    wire        take = in_valid && in_ready;

    reg         valid1, emit1, last1;
    reg  [2:0]  fill1;
    reg  [63:0] turned1, waits;
    reg         valid2, last2;
    reg  [3:0]  bytes2;
    reg  [63:0] word2;
    wire [63:0] merged;
    for (genvar b = 0; b < 8; b++) begin : g_byte
        assign merged[8*b+:8] = b < fill1 ? waits[8*b+:8] : turned1[8*b+:8];
    end

    always_ff @(posedge clk) begin
        turned1 <= twice[127:64];
        fill1   <= fill;
        last1   <= in_last;
        emit1   <= filled[3] || in_last;
        word2   <= merged;
        last2   <= last1;
        bytes2  <= last1 ? {1'b0, fill1} : 4'd8;
        if (valid1) waits <= emit1 ? turned1 : merged;
        if (clear) begin
            fill   <= '0;
            valid1 <= 1'b0;
            valid2 <= 1'b0;
        end else begin
            valid1 <= take;
            valid2 <= valid1 && emit1;
            if (take) fill <= in_last ? 3'd0 : filled[2:0];
        end
    end

    fifo #(.WIDTH(69), .LOG(4)) words (
        .clk, .clear, .wr(valid2), .wdata({last2, bytes2, word2}), .rd(out_rd), .rdata(out),
        .empty(out_empty), .full(q_full), .high(q_high)
    );

`ifndef SYNTHESIS
    always_ff @(posedge clk)
        if (!clear) begin
            a_a_chunk_has_eight_bytes_at_most : assert (!take || {1'b0, in_bytes} + {2'd0, in_from} <= 5'd8);
            a_the_last_chunk_is_empty : assert (!(take && in_last) || in_bytes == 0);
            a_words_fit : assert (!(valid2 && q_full));
        end
`endif
endmodule
`default_nettype wire
