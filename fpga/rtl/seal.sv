// Ends each block with its checksum: CRC-32C of all its bytes, a word a cycle, those of its last word one by one. If a
// last word of sixteen bytes has eight or more, its lower half goes first, in one cycle.
//
// The packer is ahead by a few words meanwhile, so the rest costs nothing unless blocks are tiny.
`default_nettype none
module seal #(
    parameter BYTES = 8
) (
    input  wire        clk,
    input  wire        clear,
    input  wire        in_valid,
    output wire        in_rd,
    input  wire [8*BYTES+$clog2(BYTES)+1:0] in,
    output reg         out_valid,
    input  wire        out_ready,
    output reg  [8*BYTES-1:0] out,
    output wire        idle
);
    localparam BITS = 8 * BYTES, AT = $clog2(BYTES);
    wire        in_last;
    wire [AT:0] in_bytes;
    wire [BITS-1:0] in_word;
    assign {in_last, in_bytes, in_word} = in;

    localparam S_RUN = 2'd0, S_BYTES = 2'd1, S_TAIL = 2'd2, S_REST = 2'd3;
    reg  [1:0]  state;
    reg  [31:0] crc;
    reg  [BITS-1:0] rest, whole;
    reg  [AT:0] left;
    reg  [AT-1:0] count;
    wire        can = !out_valid || out_ready;
    wire [31:0] of_word, of_byte;
    // Zeros in front of bytes do not change the state 0, so the equations of a word serve for its upper half alone.
    wire        is_half = BYTES == 16 && state == S_BYTES && left[AT-1];
    wire [BITS-1:0] half = BITS'(rest[63:0] ^ {32'd0, crc}) << (BITS - 64);
    crc32c #(.BYTES(BYTES)) word_step (.x(is_half ? half : in_word ^ BITS'(crc)), .y(of_word));
    crc32c_byte byte_step (.x({crc, rest[7:0]}), .y(of_byte));

    // The last bytes and the checksum behind them, in two words.
    wire [BITS-1:0]  all = ~'0;
    wire [BITS+31:0] tail = {32'd0, whole & ~(all << {count, 3'b000})} | ({{BITS{1'b0}}, ~crc} << {count, 3'b000});

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
                    count <= in_bytes[AT-1:0];
                    if (in_last) state <= in_bytes == 0 ? S_TAIL : S_BYTES;
                    else begin
                        crc       <= of_word;
                        out       <= in_word;
                        out_valid <= 1'b1;
                    end
                end
                S_BYTES: begin
                    crc  <= is_half ? of_word : of_byte;
                    rest <= is_half ? rest >> 64 : rest >> 8;
                    left <= left - (is_half ? (AT+1)'(8) : (AT+1)'(1));
                    if (left == (AT+1)'(1) || (is_half && left == (AT+1)'(8))) state <= S_TAIL;
                end
                S_TAIL: if (can) begin
                    out       <= tail[BITS-1:0];
                    out_valid <= 1'b1;
                    whole     <= BITS'(tail[BITS+31:BITS]);
                    if (count > AT'(BYTES - 4)) state <= S_REST;
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
            a_a_last_word_has_space : assert (!(in_rd && in_last) || in_bytes < BYTES);
            a_other_words_are_whole : assert (!(in_rd && !in_last) || in_bytes == BYTES);
        end
`endif
endmodule
`default_nettype wire
