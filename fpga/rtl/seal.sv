// Ends each block with its checksum: CRC-32C of all its bytes, eight a cycle, those of its last word one by one.
//
// The packer is ahead by a few words meanwhile, so the rest costs nothing unless blocks are tiny.
`default_nettype none
module seal (
    input  wire        clk,
    input  wire        clear,
    input  wire        in_valid,
    output wire        in_rd,
    input  wire [68:0] in,
    output reg         out_valid,
    input  wire        out_ready,
    output reg  [63:0] out,
    output wire        idle
);
    wire        in_last;
    wire [3:0]  in_bytes;
    wire [63:0] in_word;
    assign {in_last, in_bytes, in_word} = in;

    localparam S_RUN = 2'd0, S_BYTES = 2'd1, S_TAIL = 2'd2, S_REST = 2'd3;
    reg  [1:0]  state;
    reg  [31:0] crc;
    reg  [63:0] rest, whole;
    reg  [3:0]  left;
    reg  [2:0]  count;
    wire        can = !out_valid || out_ready;
    wire [31:0] of_word, of_byte;
    crc32c_word word_step (.x(in_word ^ {32'd0, crc}), .y(of_word));
    crc32c_byte byte_step (.x({crc, rest[7:0]}), .y(of_byte));

    // The last bytes and the checksum behind them, in two words.
    wire [95:0] tail = {32'd0, whole & ~(~64'd0 << {count, 3'b000})} | ({64'd0, ~crc} << {count, 3'b000});

    assign in_rd = state == S_RUN && in_valid && can;
    assign idle  = state == S_RUN && !out_valid && !in_valid;

    always_ff @(posedge clk) begin
        if (clear) begin
            state     <= S_RUN;
            out_valid <= 1'b0;
            crc       <= ~32'd0;
        end else begin
            if (out_ready) out_valid <= 1'b0;
            case (state)
                S_RUN: if (in_rd) begin
                    rest  <= in_word;
                    whole <= in_word;
                    left  <= in_bytes;
                    count <= in_bytes[2:0];
                    if (in_last) state <= in_bytes == 0 ? S_TAIL : S_BYTES;
                    else begin
                        crc       <= of_word;
                        out       <= in_word;
                        out_valid <= 1'b1;
                    end
                end
                S_BYTES: begin
                    crc  <= of_byte;
                    rest <= rest >> 8;
                    left <= left - 1'b1;
                    if (left == 4'd1) state <= S_TAIL;
                end
                S_TAIL: if (can) begin
                    out       <= tail[63:0];
                    out_valid <= 1'b1;
                    whole     <= {32'd0, tail[95:64]};
                    if (count > 3'd4) state <= S_REST;
                    else begin
                        crc   <= ~32'd0;
                        state <= S_RUN;
                    end
                end
                S_REST: if (can) begin
                    out       <= whole;
                    out_valid <= 1'b1;
                    crc       <= ~32'd0;
                    state     <= S_RUN;
                end
            endcase
        end
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk)
        if (!clear) begin
            a_a_last_word_has_space : assert (!(in_rd && in_last) || in_bytes < 8);
            a_other_words_are_whole : assert (!(in_rd && !in_last) || in_bytes == 8);
        end
`endif
endmodule
`default_nettype wire
