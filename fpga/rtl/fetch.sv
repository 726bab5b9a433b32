// Reads the input blocks of all ways through one port, and checks their checksums on the way in.
//
// A way's blocks come as descriptors, one after the other. The bursts of ways take turns. A burst is asked for only if
// the way's ring has space for all its words, so the read channel never waits.
//
// The checksum is taken of the memory's own words, before they are aligned: zeros before a block do not change the
// state 0, the initial state is XORed into the block's first four bytes, and zeros behind it lead from the residue of
// all sound blocks to another constant. So one set of equations serves all ways, at one word a cycle.
`default_nettype none
module fetch #(
    parameter WAYS  = 4,
    parameter WBITS = 2,
    parameter LOG   = 9,
    parameter BYTES = 8
) (
    input  wire             clk,
    input  wire             clear,
    // A block: its way, its first byte in memory, its bytes as stored.
    input  wire             block_valid,
    input  wire [WBITS-1:0] block_way,
    input  wire [31:0]      block_at,
    input  wire [16:0]      block_bytes,
    output wire [WAYS-1:0]  block_ready,
    // A way that has failed reads no more.
    input  wire [WAYS-1:0]  dead,
    // The rings: how many words were taken out of them.
    input  wire [WAYS-1:0]  taken,
    output reg  [WAYS-1:0]  word_valid,
    // The word, and in a block's last word whether the checksum is wrong.
    output reg  [8*BYTES:0] word,
    // The block has nothing of the word's {upper, lower} half.
    output reg  [1:0]       skips,
    output wire             idle,
    // Memory.
    output reg              ar_valid,
    input  wire             ar_ready,
    output reg  [31:0]      ar_addr,
    output reg  [3:0]       ar_len,
    input  wire             r_valid,
    output wire             r_ready,
    input  wire [8*BYTES-1:0] r_data,
    input  wire             r_last
);
    localparam DEPTH = 1 << LOG;
    localparam BITS = 8 * BYTES;
    // Bits of a place in a word.
    localparam AT = $clog2(BYTES);

    // What each way still has to ask for.
    reg [WAYS-1:0][31-AT:0] at;
    reg [WAYS-1:0][13:0] left;
    reg [WAYS-1:0]       first;
    reg [WAYS-1:0][AT-1:0] off;
    reg [WAYS-1:0][AT-1:0] pad;
    reg [WAYS-1:0][LOG:0] reserved;
    reg [WAYS-1:0]       wants;
    // A block's length is being worked out.
    reg [WAYS-1:0]       busy;

    for (genvar w = 0; w < WAYS; w++) begin : g_ready
        assign block_ready[w] = left[w] == 0 && !busy[w];
    end

    // Bursts in flight: {way, first of a block, last of a block, off, pad}.
    wire order_full, order_empty;
    wire [WBITS+2*AT+1:0] order_out;
    reg  [WBITS+2*AT+1:0] order_in;
    reg              order_wr;
    wire             order_rd = r_valid && r_last;
    fifo #(.WIDTH(WBITS + 2 * AT + 2), .LOG(5)) order (
        .clk, .clear, .wr(order_wr), .wdata(order_in), .rd(order_rd), .rdata(order_out),
        .empty(order_empty), .full(order_full)
    );

    // Turns: in one cycle a way's place is looked up, in the next the burst is asked for.
    reg  [WBITS-1:0] turn;
    reg              s_valid;
    reg  [WBITS-1:0] s_way;
    reg  [31-AT:0]   s_at;
    reg  [13:0]      s_left;
    reg              s_first;
    reg  [AT-1:0]    s_off, s_pad;
    reg  [WAYS-1:0]  taken_before;
    // Bursts do not cross sixteen words, so they cross no page.
    wire [4:0]  to_edge = 5'd16 - {1'b0, s_at[3:0]};
    wire        is_rest = s_left <= {9'd0, to_edge};
    wire [4:0]  burst   = is_rest ? s_left[4:0] : to_edge;
    wire        go      = s_valid && !order_full && !order_wr && (!ar_valid || ar_ready);
    wire [31-AT:0] at_next = s_at + (32-AT)'(burst);
    wire [13:0] left_next = s_left - {9'd0, burst};
    reg         block_taken;
    reg  [WBITS-1:0] block_way1;
    reg  [31:0] block_at1;
    reg  [16:0] block_bytes1;
    wire [13:0] block_words = 14'((block_bytes1 + 17'(block_at1[AT-1:0]) + 17'(BYTES - 1)) >> AT);

    always_ff @(posedge clk) begin
        order_wr     <= 1'b0;
        taken_before <= clear ? '0 : taken;
        turn    <= turn == WBITS'(WAYS - 1) ? '0 : turn + 1'b1;
        block_taken  <= block_valid && block_ready[block_way] && !clear;
        block_way1   <= block_way;
        block_at1    <= block_at;
        block_bytes1 <= block_bytes;
        if (!s_valid || go) begin
            s_valid <= wants[turn] && !clear && !(s_valid && s_way == turn);
            s_way   <= turn;
            s_at    <= at[turn];
            s_left  <= left[turn];
            s_first <= first[turn];
            s_off   <= off[turn];
            s_pad   <= pad[turn];
        end
        if (go) begin
            ar_addr  <= {s_at, {AT{1'b0}}};
            ar_len   <= burst[3:0] - 1'b1;
            order_in <= {s_way, s_first, is_rest, s_off, s_pad};
        end
        for (int w = 0; w < WAYS; w++) begin
            // A way is looked up again only when its last burst has been counted.
            wants[w] <= left[w] != 0 && !dead[w] && reserved[w] <= DEPTH - 32 && !busy[w]
                && !(s_valid && s_way == WBITS'(w));
            if (go && s_way == WBITS'(w)) begin
                at[w]    <= at_next;
                left[w]  <= left_next;
                first[w] <= 1'b0;
            end
            reserved[w] <= reserved[w] + (go && s_way == WBITS'(w) ? {{(LOG - 4){1'b0}}, burst} : '0)
                - {{LOG{1'b0}}, taken_before[w]};
            if (block_valid && block_way == WBITS'(w) && block_ready[w]) busy[w] <= 1'b1;
            if (block_taken && block_way1 == WBITS'(w)) begin
                busy[w]  <= 1'b0;
                at[w]    <= block_at1[31:AT];
                left[w]  <= block_words;
                first[w] <= 1'b1;
                off[w]   <= block_at1[AT-1:0];
                pad[w]   <= '0 - block_bytes1[AT-1:0] - block_at1[AT-1:0];
            end
        end
        if (clear) begin
            ar_valid <= 1'b0;
            s_valid  <= 1'b0;
            turn     <= '0;
            left     <= '0;
            reserved <= '0;
            wants    <= '0;
            busy     <= '0;
        end else begin
            if (ar_ready) ar_valid <= 1'b0;
            if (go) begin
                ar_valid <= 1'b1;
                order_wr <= 1'b1;
            end
        end
    end

    assign r_ready = 1'b1;
    assign idle    = order_empty && !order_wr && !ar_valid && !s_valid && !v1 && !v2 && !v3;

    // 1: the beat as it comes.
    wire [WBITS-1:0] o_way;
    wire o_first, o_last;
    wire [AT-1:0] o_off, o_pad;
    assign {o_way, o_first, o_last, o_off, o_pad} = order_out;
    reg beat0;
    reg v1, first1, last1, second1;
    reg [WBITS-1:0] way1;
    reg [AT-1:0] off1, pad1;
    reg [BITS-1:0] data1;
    reg [WAYS-1:0] is_second;
    always_ff @(posedge clk) begin
        v1      <= r_valid && !clear;
        data1   <= r_data;
        way1    <= o_way;
        first1  <= o_first && beat0;
        last1   <= o_last && r_last;
        second1 <= is_second[o_way];
        off1    <= o_off;
        pad1    <= o_pad;
        if (clear) begin
            beat0     <= 1'b1;
            is_second <= '0;
        end else if (r_valid) begin
            beat0 <= r_last;
            is_second[o_way] <= o_first && beat0;
        end
    end

    // 2: what counts of it.
    wire [BITS-1:0]   all        = ~'0;
    wire [BITS-1:0]   from_first = all << {off1, 3'b000};
    wire [BITS-1:0]   to_last    = all >> {pad1, 3'b000};
    wire [2*BITS-1:0] start      = (2*BITS)'(32'hffffffff) << {off1, 3'b000};
    reg v2, first2, last2;
    reg [WBITS-1:0] way2;
    reg [AT-1:0] pad2;
    reg [1:0] skips2;
    reg [BITS-1:0] data2, counted2;
    always_ff @(posedge clk) begin
        v2     <= v1 && !clear;
        first2 <= first1;
        last2  <= last1;
        way2   <= way1;
        pad2   <= pad1;
        skips2 <= {last1 && pad1[AT-1], first1 && off1[AT-1]};
        data2  <= data1;
        counted2 <= ((data1 & (first1 ? from_first : all)) & (last1 ? to_last : all))
            ^ (first1 ? start[BITS-1:0] : '0) ^ (second1 ? start[2*BITS-1:BITS] : '0);
    end

    // 3: the state behind it.
    reg [WAYS-1:0][31:0] state;
    wire [31:0] next;
    crc32c #(.BYTES(BYTES)) crc (.x(counted2 ^ BITS'(first2 ? 32'd0 : state[way2])), .y(next));
    reg v3, last3;
    reg [WBITS-1:0] way3;
    reg [AT-1:0] pad3;
    reg [1:0] skips3;
    reg [BITS-1:0] data3;
    reg [31:0] state3;
    always_ff @(posedge clk) begin
        v3     <= v2 && !clear;
        last3  <= last2;
        way3   <= way2;
        pad3   <= pad2;
        skips3 <= skips2;
        data3  <= data2;
        state3 <= next;
        if (v2) state[way2] <= next;
    end

    // 4: into the way's ring.
    wire [31:0] residue;
    crc32c_residue of_block (.zeros(4'(pad3)), .y(residue));
    always_ff @(posedge clk) begin
        word  <= {last3 && state3 != residue, data3};
        skips <= skips3;
        for (int w = 0; w < WAYS; w++) word_valid[w] <= v3 && way3 == w && !clear;
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk)
        if (!clear) begin
            a_beats_were_asked_for : assert (!r_valid || !order_empty);
            for (int w = 0; w < WAYS; w++) a_reserved : assert (reserved[w] <= DEPTH);
        end
`endif
endmodule
`default_nettype wire
