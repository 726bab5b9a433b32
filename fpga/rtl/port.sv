// The memory port of all lanes. Bursts of requesters take turns; words and answers follow in the order of the bursts.
//
// A requester asks for a write burst only when it has all its words, and takes each word that it asked for. So no
// requester waits for another one's words. Counts of words are kept here: a requester cannot break another's burst.
`default_nettype none
module port #(
    parameter N     = 4,
    parameter NBITS = 2
) (
    input  wire               clk,
    input  wire               reset,
    // Requesters.
    input  wire [N-1:0]       ar_valid,
    output wire [N-1:0]       ar_ready,
    input  wire [N-1:0][31:0] ar_addr,
    input  wire [N-1:0][3:0]  ar_len,
    output reg  [N-1:0]       r_valid,
    output reg  [63:0]        r_data,
    output reg                r_last,
    input  wire [N-1:0]       aw_valid,
    output wire [N-1:0]       aw_ready,
    input  wire [N-1:0][31:0] aw_addr,
    input  wire [N-1:0][3:0]  aw_len,
    input  wire [N-1:0]       w_valid,
    output wire [N-1:0]       w_ready,
    input  wire [N-1:0][63:0] w_data,
    output reg  [N-1:0]       b_valid,
    // Memory.
    output wire               m_ar_valid,
    input  wire               m_ar_ready,
    output wire [31:0]        m_ar_addr,
    output wire [3:0]         m_ar_len,
    input  wire               m_r_valid,
    output wire               m_r_ready,
    input  wire [63:0]        m_r_data,
    input  wire               m_r_last,
    output wire               m_aw_valid,
    input  wire               m_aw_ready,
    output wire [31:0]        m_aw_addr,
    output wire [3:0]         m_aw_len,
    output reg                m_w_valid,
    input  wire               m_w_ready,
    output reg  [63:0]        m_w_data,
    output reg                m_w_last,
    input  wire               m_b_valid,
    output wire               m_b_ready
);
    // Reads.
    wire [NBITS-1:0] ar_who, r_who;
    wire             ar_goes, reads_full, reads_empty, reads_high;
    turns #(.N(N), .NBITS(NBITS)) reads (
        .clk, .reset, .may(!reads_full), .req(ar_valid), .ready(ar_ready), .addr(ar_addr), .len(ar_len), .goes(ar_goes),
        .who(ar_who), .out_valid(m_ar_valid), .out_ready(m_ar_ready), .out_addr(m_ar_addr), .out_len(m_ar_len)
    );
    fifo #(.WIDTH(NBITS), .LOG(6)) read_order (
        .clk, .clear(reset), .wr(ar_goes), .wdata(ar_who), .rd(m_r_valid && m_r_last), .rdata(r_who),
        .empty(reads_empty), .full(reads_full), .high(reads_high)
    );
    assign m_r_ready = 1'b1;
    always_ff @(posedge clk) begin
        r_data <= m_r_data;
        r_last <= m_r_last;
        for (int i = 0; i < N; i++) r_valid[i] <= m_r_valid && r_who == NBITS'(i) && !reset;
    end

    // Writes.
    wire [NBITS-1:0] aw_who, w_who, b_who;
    wire [3:0]       aw_who_len, w_len;
    wire             aw_goes, words_full, words_empty, words_high, answers_full, answers_empty, answers_high;
    assign aw_who_len = aw_len[aw_who];
    turns #(.N(N), .NBITS(NBITS)) writes (
        .clk, .reset, .may(!words_full && !answers_full), .req(aw_valid), .ready(aw_ready), .addr(aw_addr), .len(aw_len),
        .goes(aw_goes), .who(aw_who), .out_valid(m_aw_valid), .out_ready(m_aw_ready), .out_addr(m_aw_addr),
        .out_len(m_aw_len)
    );
    reg  [3:0] word;
    wire       can = !m_w_valid || m_w_ready;
    wire       gives = can && !words_empty && w_valid[w_who];
    wire       last = word == w_len;
    fifo #(.WIDTH(NBITS + 4), .LOG(4)) word_order (
        .clk, .clear(reset), .wr(aw_goes), .wdata({aw_who, aw_who_len}), .rd(gives && last), .rdata({w_who, w_len}),
        .empty(words_empty), .full(words_full), .high(words_high)
    );
    fifo #(.WIDTH(NBITS), .LOG(6)) answer_order (
        .clk, .clear(reset), .wr(aw_goes), .wdata(aw_who), .rd(m_b_valid), .rdata(b_who), .empty(answers_empty),
        .full(answers_full), .high(answers_high)
    );
    for (genvar i = 0; i < N; i++) begin : g_ready
        assign w_ready[i] = can && !words_empty && w_who == i;
    end
    assign m_b_ready = 1'b1;
    always_ff @(posedge clk) begin
        for (int i = 0; i < N; i++) b_valid[i] <= m_b_valid && b_who == NBITS'(i) && !reset;
        if (reset) begin
            word      <= '0;
            m_w_valid <= 1'b0;
        end else begin
            if (m_w_ready) m_w_valid <= 1'b0;
            if (gives) begin
                m_w_valid <= 1'b1;
                m_w_data  <= w_data[w_who];
                m_w_last  <= last;
                word      <= last ? 4'd0 : word + 1'b1;
            end
        end
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk)
        if (!reset) begin
            a_words_were_asked_for : assert (!m_r_valid || !reads_empty);
            a_answers_to_bursts_alone : assert (!m_b_valid || !answers_empty);
        end
    c_two_ask_for_reads : cover property (@(posedge clk) (ar_valid & (ar_valid - 1'b1)) != 0);
    c_two_ask_for_writes : cover property (@(posedge clk) (aw_valid & (aw_valid - 1'b1)) != 0);
    c_words_of_two_bursts_wait : cover property (@(posedge clk) words_full);
`endif
endmodule

// Chooses a requester, the ones behind the last one first, and keeps its burst until memory takes it.
module turns #(
    parameter N     = 4,
    parameter NBITS = 2
) (
    input  wire               clk,
    input  wire               reset,
    input  wire               may,
    input  wire [N-1:0]       req,
    output wire [N-1:0]       ready,
    input  wire [N-1:0][31:0] addr,
    input  wire [N-1:0][3:0]  len,
    output wire               goes,
    output reg  [NBITS-1:0]   who,
    output reg                out_valid,
    input  wire               out_ready,
    output reg  [31:0]        out_addr,
    output reg  [3:0]         out_len
);
    // Those behind the last one; then all.
    reg  [N-1:0] behind;
    wire [N-1:0] preferred = req & behind;
    wire [N-1:0] from = preferred != 0 ? preferred : req;
    always_comb begin
        who = '0;
        for (int i = N - 1; i >= 0; i--) if (from[i]) who = NBITS'(i);
    end
    assign goes = may && (!out_valid || out_ready) && req != 0;
    for (genvar i = 0; i < N; i++) begin : g_ready
        assign ready[i] = goes && who == i;
    end
    always_ff @(posedge clk) begin
        if (reset) begin
            out_valid <= 1'b0;
            behind    <= '0;
        end else begin
            if (out_ready) out_valid <= 1'b0;
            if (goes) begin
                out_valid <= 1'b1;
                out_addr  <= addr[who];
                out_len   <= len[who];
                for (int i = 0; i < N; i++) behind[i] <= NBITS'(i) > who;
            end
        end
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk) if (!reset) a_one_at_most : assert ((ready & (ready - 1'b1)) == 0);
`endif
endmodule
`default_nettype wire
