// Writes words to memory, one behind the other, in bursts of sixteen. Each block begins at a word.
`default_nettype none
module writer #(
    parameter BYTES = 8
) (
    input  wire        clk,
    input  wire        clear,
    // No burst begins any more.
    input  wire        halt,
    input  wire [31:0] base,
    input  wire [28:0] words_max,
    input  wire        in_valid,
    output wire        in_ready,
    input  wire [8*BYTES-1:0] in,
    // All words have come.
    input  wire        in_finished,
    output wire        idle,
    output wire        empty,
    output reg         no_space,
    output reg         aw_valid,
    input  wire        aw_ready,
    output reg  [31:0] aw_addr,
    output reg  [3:0]  aw_len,
    output wire        w_valid,
    input  wire        w_ready,
    output wire [8*BYTES-1:0] w_data,
    output wire        w_last,
    input  wire        b_valid,
    output wire        b_ready
);
    reg  [6:0]  held;
    reg  [4:0]  left;
    reg  [28:0] written;
    reg  [9:0]  in_flight;
    wire        q_empty, q_full, q_high;
    wire        take = in_valid && in_ready;
    wire        give = w_valid && w_ready;
    fifo #(.WIDTH(8 * BYTES), .LOG(6)) words (
        .clk, .clear, .wr(take), .wdata(in), .rd(give), .rdata(w_data), .empty(q_empty), .full(q_full), .high(q_high)
    );
    // A burst's address goes ahead of its words, so that bursts follow each other without a gap. `held` counts words
    // that no burst has been begun for.
    wire        whole = held >= 7'd16;
    wire        lens_empty, lens_full, lens_high;
    reg         checked;
    wire        begins = checked && !halt && !no_space && !aw_valid && !lens_full && (whole || (in_finished && held != 0))
        && !in_flight[9];
    wire [4:0]  burst = whole ? 5'd16 : held[4:0];
    // Space for a whole burst, known a cycle ahead: two bursts do not begin in a row.
    reg         fits;
    wire [29:0] end_of_next = {1'b0, written} + 30'd16;
    wire        goes = begins && fits;
    wire [4:0]  len;
    wire        next = !lens_empty && (left == 0 || (w_last && w_ready));
    fifo #(.WIDTH(5), .LOG(2)) lens (
        .clk, .clear, .wr(goes), .wdata(burst), .rd(next), .rdata(len), .empty(lens_empty), .full(lens_full),
        .high(lens_high)
    );

    assign in_ready = !q_full;
    assign w_valid  = left != 0;
    assign w_last   = left == 5'd1;
    assign b_ready  = 1'b1;
    assign empty    = q_empty;
    assign idle     = left == 0 && lens_empty && !aw_valid && in_flight == 0;

    always_ff @(posedge clk) begin
        if (clear) begin
            held      <= '0;
            left      <= '0;
            written   <= '0;
            in_flight <= '0;
            aw_valid  <= 1'b0;
            no_space  <= 1'b0;
            fits      <= 1'b0;
            checked   <= 1'b0;
        end else begin
            fits    <= end_of_next <= {1'b0, words_max};
            checked <= !goes;
            if (aw_ready) aw_valid <= 1'b0;
            if (goes) begin
                aw_valid <= 1'b1;
                aw_addr  <= base + 32'({written, {$clog2(BYTES){1'b0}}});
                aw_len   <= burst[3:0] - 1'b1;
                written  <= written + {24'd0, burst};
            end
            if (next) left <= len;
            else if (give) left <= left - 1'b1;
            if (begins && !fits) no_space <= 1'b1;
            held <= held + {6'd0, take} - (goes ? {2'b00, burst} : 7'd0);
            if (goes && !b_valid) in_flight <= in_flight + 1'b1;
            else if (b_valid && !goes) in_flight <= in_flight - 1'b1;
        end
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk)
        if (!clear) begin
            a_a_burst_has_its_words : assert (!w_valid || !q_empty);
            a_answers_to_bursts_alone : assert (!b_valid || in_flight != 0);
        end
`endif
endmodule
`default_nettype wire
