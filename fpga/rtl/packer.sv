// Packs chunks of up to BYTES bytes into words of as many, without gaps. A block begins at a word.
//
// Stage 1 turns a chunk to the place where its first byte goes; stage 2 puts it behind the bytes that wait. The turn
// is the unit's longest shift, so it has a cycle of its own.
`default_nettype none
module packer #(
    parameter BYTES = 8
) (
    input  wire        clk,
    input  wire        clear,
    input  wire        in_valid,
    output wire        in_ready,
    input  wire [8*BYTES-1:0] in,
    input  wire [$clog2(BYTES):0] in_bytes,
    input  wire [$clog2(BYTES)-1:0] in_from,
    input  wire        in_last,
    // {last of the block, bytes, word}.
    output wire        out_empty,
    output wire [8*BYTES+$clog2(BYTES)+1:0] out,
    input  wire        out_rd
);
    localparam BITS = 8 * BYTES, AT = $clog2(BYTES);
    reg  [AT-1:0] fill;
    wire [AT+1:0] filled = {2'd0, fill} + {1'b0, in_bytes};
    wire [AT-1:0] turn = fill - in_from;
    wire [2*BITS-1:0] twice = {in, in} << {turn, 3'b000};
    wire        q_full, q_high;
    assign in_ready = !q_high;
    wire        take = in_valid && in_ready;

    reg         valid1, emit1, last1;
    reg  [AT-1:0] fill1;
    reg  [BITS-1:0] turned1, waits;
    reg         valid2, last2;
    reg  [AT:0] bytes2;
    reg  [BITS-1:0] word2;
    wire [BITS-1:0] merged;
    for (genvar b = 0; b < BYTES; b++) begin : g_byte
        assign merged[8*b+:8] = b < fill1 ? waits[8*b+:8] : turned1[8*b+:8];
    end

    always_ff @(posedge clk) begin
        turned1 <= twice[2*BITS-1:BITS];
        fill1   <= fill;
        last1   <= in_last;
        emit1   <= filled[AT] || in_last;
        word2   <= merged;
        last2   <= last1;
        bytes2  <= last1 ? {1'b0, fill1} : (AT+1)'(BYTES);
        if (valid1) waits <= emit1 ? turned1 : merged;
        if (clear) begin
            fill   <= '0;
            valid1 <= 1'b0;
            valid2 <= 1'b0;
        end else begin
            valid1 <= take;
            valid2 <= valid1 && emit1;
            if (take) fill <= in_last ? '0 : filled[AT-1:0];
        end
    end

    fifo #(.WIDTH(BITS + AT + 2), .LOG(4)) words (
        .clk, .clear, .wr(valid2), .wdata({last2, bytes2, word2}), .rd(out_rd), .rdata(out),
        .empty(out_empty), .full(q_full), .high(q_high)
    );

`ifndef SYNTHESIS
    always_ff @(posedge clk)
        if (!clear) begin
            a_a_chunk_fits_a_word : assert (!take || {1'b0, in_bytes} + {2'd0, in_from} <= (AT+2)'(BYTES));
            a_the_last_chunk_is_empty : assert (!(take && in_last) || in_bytes == 0);
            a_words_fit : assert (!(valid2 && q_full));
        end
`endif
endmodule
`default_nettype wire
