// A compaction unit: ways in, blocks out. ../README.md has the picture.
//
//   fetch -> decoder -> keyring -> merge -> visible -> encoder -> packer -> seal -> writer
//                    -> ring (values) -------------------^
//
// Every stage waits for the next one by itself; there is no clock that they share but `clk`. The controller is the
// few lines here that begin a task, and end it: when its last word is in memory, or when something is wrong. Then it
// halts the merge and lets the decoders read on, so that the status is that of the first way, as in the model.
//
// Limits: WAYS ways, blocks that are not compressed, keys of 64 bytes, values of 16383, eight snapshots, no ranges, no
// spans of older data, blocks of up to 32 KiB. Whatever is beyond is illegal: `way_status` says so by 7.
`default_nettype none
module unit #(
    parameter WAYS  = 4,
    parameter WBITS = 2,
    parameter LOG   = 9,
    // Bytes of a word in memory, in the rings of input and of values, and behind the encoder: 8 or 16.
    parameter BYTES = 8
) (
    input  wire                  clk,
    // One cycle; then a task begins. All below are stable meanwhile.
    input  wire                  start,
    input  wire                  below_all,
    input  wire [6:0]            key_bytes_max,
    input  wire [13:0]           value_bytes_max,
    input  wire [31:0]           entries_max,
    input  wire [15:0]           block_bytes,
    input  wire [15:0]           restart_interval,
    input  wire [31:0]           emit_from,
    input  wire [31:0]           emit_bytes_max,
    input  wire [8*56-1:0]       snapshots,
    input  wire [7:0]            snapshot_valid,
    input  wire [31:0]           out_base,
    input  wire [28:0]           out_words_max,
    // Input blocks of each way in order, and the way's end.
    input  wire                  block_valid,
    input  wire [WBITS-1:0]      block_way,
    input  wire                  block_end,
    input  wire [31:0]           block_at,
    input  wire [15:0]           block_raw_bytes,
    input  wire [15:0]           block_entry_bytes,
    output wire [WAYS-1:0]       block_ready,
    // Memory.
    output wire                  ar_valid,
    input  wire                  ar_ready,
    output wire [31:0]           ar_addr,
    output wire [3:0]            ar_len,
    input  wire                  r_valid,
    output wire                  r_ready,
    input  wire [8*BYTES-1:0]    r_data,
    input  wire                  r_last,
    output wire                  aw_valid,
    input  wire                  aw_ready,
    output wire [31:0]           aw_addr,
    output wire [3:0]            aw_len,
    output wire                  w_valid,
    input  wire                  w_ready,
    output wire [8*BYTES-1:0]    w_data,
    output wire                  w_last,
    input  wire                  b_valid,
    output wire                  b_ready,
    // Keys and reports.
    output wire                  side_valid,
    input  wire                  side_ready,
    output wire [63:0]           side,
    output wire [13:0]           side_tag,
    // How it went.
    output reg                   done,
    output reg                   failed,
    output wire [WAYS-1:0][2:0]  way_status,
    output wire [WAYS-1:0][31:0] way_detail,
    output wire [WAYS-1:0][31:0] way_entries,
    output wire                  twice,
    output wire [WBITS-1:0]      twice_way,
    output reg  [31:0]           twice_entry,
    output wire                  no_space,
    output reg                   too_many,
    output wire [31:0]           kept,
    output wire [31:0]           emitted_to,
    output wire [31:0]           dropped_hidden,
    output wire [31:0]           dropped_tombstones,
    output wire [31:0]           sequences_zeroed,
    // What the stages do, for people: each way's ring of keys and of values is half full.
    output wire [WAYS-1:0]       key_half_full,
    output wire [WAYS-1:0]       value_half_full,
    output wire [WAYS-1:0]       merge_pop
);
    localparam BITS = 8 * BYTES, AT = $clog2(BYTES);
    // A word of the input: its bytes, whether the checksum is wrong, and with two halves which of them count.
    localparam IN = BYTES == 8 ? BITS + 1 : BITS + 3;
    wire clear = start;
    wire [WAYS-1:0] wrong;
    // A cycle late, so that a way's status does not reach through the other ways' decoders. The words of that cycle are
    // of a task that has failed: only its status counts.
    reg  halt;
    always_ff @(posedge clk) halt <= !clear && ((|wrong) || twice || no_space || too_many);

    wire [WAYS-1:0] word_valid, word_taken, decoder_done, queue_ready, fetch_ready;
    wire [BITS:0]   fetched;
    wire [1:0]      fetched_skips;
    wire            fetch_idle;
    wire [WAYS-1:0][67:0] key_word;
    wire [WAYS-1:0][13:0] key_value_bytes;
    wire [WAYS-1:0] key_empty, key_ready, key_step, key_rewind, key_pop;
    wire [WAYS-1:0][31:0] entry_number;
    wire [WAYS-1:0][BITS-1:0] value_word;
    wire [WAYS-1:0][LOG:0] value_avail;
    wire [WAYS-1:0] value_rd, value_jump, value_empty;
    wire [LOG:0]    value_jump_words;

    assign block_ready = queue_ready & fetch_ready;
    assign merge_pop   = key_pop;

    fetch #(.WAYS(WAYS), .WBITS(WBITS), .LOG(LOG), .BYTES(BYTES)) fetch (
        .clk, .clear,
        .block_valid(block_valid && !block_end && block_ready[block_way]), .block_way, .block_at,
        .block_bytes({1'b0, block_raw_bytes} + 17'd5), .block_ready(fetch_ready),
        .dead(wrong), .taken(word_taken), .word_valid, .word(fetched), .skips(fetched_skips), .idle(fetch_idle),
        .ar_valid, .ar_ready, .ar_addr, .ar_len, .r_valid, .r_ready, .r_data, .r_last
    );

    for (genvar w = 0; w < WAYS; w++) begin : g_way
        wire        queue_empty, queue_full, queue_rd, queue_high;
        wire [35:0] queue_block;
        fifo #(.WIDTH(36), .LOG(4)) blocks (
            .clk, .clear, .wr(block_valid && block_way == w && block_ready[w]),
            .wdata({block_end, block_at[2:0], block_entry_bytes, block_raw_bytes}),
            .rd(queue_rd), .rdata(queue_block), .empty(queue_empty), .full(queue_full), .high(queue_high)
        );
        assign queue_ready[w] = !queue_full;

        wire [IN-1:0] word;
        wire [LOG:0] word_avail;
        wire        word_empty, word_half, word_full;
        ring #(.WIDTH(IN), .LOG(LOG), .SLACK(0)) words (
            .clk, .clear, .wr(word_valid[w]), .wdata(IN'({fetched_skips, fetched})), .rd(word_taken[w]),
            .jump(1'b0), .jump_words('0), .rdata(word), .avail(word_avail),
            .empty(word_empty), .half_full(word_half), .full(word_full)
        );

        wire          ahead_valid, ahead_rd;
        wire [IN-1:0] ahead_word;
        skid #(.WIDTH(IN)) ahead (
            .clk, .clear, .in_valid(!word_empty), .in_rd(word_taken[w]), .in(word),
            .out_valid(ahead_valid), .out_rd(ahead_rd), .out(ahead_word)
        );
        // Each decoder takes eight bytes a cycle: on a path of sixteen, two together are as fast as the encoder.
        wire        next_rd;
        wire [64:0] next_word;
        halve #(.BYTES(BYTES), .WIDTH(IN)) halves (
            .clk, .clear, .in(ahead_word), .in_rd(ahead_rd), .out(next_word), .out_rd(next_rd)
        );

        wire        key_wr, key_commit, value_wr, value_last, value_full;
        wire [67:0] key_in;
        wire [13:0] length_in;
        wire [63:0] value_in;
        decoder decoder (
            .clk, .clear, .drain(halt), .key_bytes_max, .value_bytes_max,
            .block_valid(!queue_empty), .block(queue_block), .block_rd(queue_rd),
            .word_valid(ahead_valid), .word(next_word), .word_rd(next_rd),
            .key_wr, .key_word(key_in), .key_commit, .key_value_bytes(length_in),
            .value_wr, .value_word(value_in), .value_last,
            .key_half_full(key_half_full[w]), .value_half_full(value_half_full[w]), .value_full,
            .done(decoder_done[w]), .status(way_status[w]), .detail(way_detail[w]), .entries(way_entries[w])
        );
        assign wrong[w] = way_status[w] != 0;

        wire [4:0] key_entries;
        keyring keys (
            .clk, .clear, .wr(key_wr), .wdata(key_in), .commit(key_commit), .value_bytes(length_in),
            .step(key_step[w]), .rewind(key_rewind[w]), .pop(key_pop[w]),
            .rdata(key_word[w]), .first_value_bytes(key_value_bytes[w]), .empty(key_empty[w]),
            .ready(key_ready[w]), .half_full(key_half_full[w]), .entries(key_entries)
        );
        assign entry_number[w] = way_entries[w] - {27'd0, key_entries} - {31'd0, key_commit};

        wire            whole_wr;
        wire [BITS-1:0] whole;
        pair #(.BYTES(BYTES)) pairs (
            .clk, .clear, .in_wr(value_wr), .in(value_in), .in_last(value_last), .out_wr(whole_wr), .out(whole)
        );
        ring #(.WIDTH(BITS), .LOG(LOG), .SLACK(8)) values (
            .clk, .clear, .wr(whole_wr), .wdata(whole), .rd(value_rd[w]),
            .jump(value_jump[w]), .jump_words(value_jump_words), .rdata(value_word[w]), .avail(value_avail[w]),
            .empty(value_empty[w]), .half_full(value_half_full[w]), .full(value_full)
        );
    end

    wire            m_valid, m_ready, m_trailer, m_finished;
    wire [63:0]     m_word;
    wire [3:0]      m_code;
    wire [13:0]     m_value_bytes;
    wire [WBITS-1:0] m_way;
    merge #(.WAYS(WAYS), .WBITS(WBITS)) merge (
        .clk, .clear, .halt, .ready(key_ready), .empty(key_empty), .done(decoder_done), .word(key_word), .value_bytes(key_value_bytes),
        .step(key_step), .rewind(key_rewind), .pop(key_pop),
        .out_valid(m_valid), .out_ready(m_ready), .out_word(m_word), .out_code(m_code), .out_trailer(m_trailer),
        .out_value_bytes(m_value_bytes), .out_way(m_way), .finished(m_finished), .twice, .twice_way
    );

    wire            v_valid, v_ready, v_idle, bank_held;
    wire [95+WBITS:0] v_entry;
    wire [1:0]      bank_first;
    wire [4:0]      bank_at;
    wire [63:0]     bank_word;
    visible #(.WBITS(WBITS)) visible (
        .clk, .clear, .below_all, .snapshots, .snapshot_valid,
        .in_valid(m_valid), .in_ready(m_ready), .in_word(m_word), .in_code(m_code), .in_trailer(m_trailer),
        .in_value_bytes(m_value_bytes), .in_way(m_way),
        .out_valid(v_valid), .out_ready(v_ready), .out(v_entry), .bank_held, .bank_first,
        .key_at(bank_at), .key_word(bank_word), .idle(v_idle), .dropped_hidden, .dropped_tombstones, .sequences_zeroed
    );

    wire        c_valid, c_ready, c_last, e_finished;
    wire [BITS-1:0] chunk;
    wire [AT:0] c_bytes;
    wire [AT-1:0] c_from;
    encoder #(.WAYS(WAYS), .WBITS(WBITS), .LOG(LOG), .BYTES(BYTES)) encoder (
        .clk, .clear, .halt, .block_bytes, .restart_interval, .emit_from, .emit_bytes_max,
        .in_valid(v_valid), .in_ready(v_ready), .in(v_entry), .in_finished(m_finished && !m_valid && v_idle),
        .bank_held, .bank_first, .key_at(bank_at), .key_word(bank_word),
        .value_word, .value_empty, .value_avail, .value_rd, .value_jump, .value_jump_words,
        .chunk_valid(c_valid), .chunk_ready(c_ready), .chunk, .chunk_bytes(c_bytes), .chunk_from(c_from),
        .chunk_last(c_last), .side_valid, .side_ready, .side, .side_tag, .finished(e_finished), .kept, .emitted_to
    );

    wire        p_empty, p_rd, s_valid, s_ready, s_idle;
    wire [BITS+AT+1:0] p_word;
    wire [BITS-1:0] s_word;
    packer #(.BYTES(BYTES)) packer (
        .clk, .clear, .in_valid(c_valid), .in_ready(c_ready), .in(chunk), .in_bytes(c_bytes), .in_from(c_from),
        .in_last(c_last), .out_empty(p_empty), .out(p_word), .out_rd(p_rd)
    );
    seal #(.BYTES(BYTES)) seal (
        .clk, .clear, .in_valid(!p_empty), .in_rd(p_rd), .in(p_word), .out_valid(s_valid), .out_ready(s_ready),
        .out(s_word), .idle(s_idle)
    );

    // The last words: the packer holds two stages more than its queue shows.
    reg  [2:0]  settled;
    wire        quiet = e_finished && !c_valid && p_empty && s_idle;
    wire        w_idle, w_empty;
    writer #(.BYTES(BYTES)) writer (
        .clk, .clear, .halt, .base(out_base), .words_max(out_words_max),
        .in_valid(s_valid), .in_ready(s_ready), .in(s_word), .in_finished(settled == 3'd7), .idle(w_idle),
        .empty(w_empty), .no_space, .aw_valid, .aw_ready, .aw_addr, .aw_len, .w_valid, .w_ready, .w_data, .w_last,
        .b_valid, .b_ready
    );

    // Entries of all ways, against what the task says.
    reg  [31:0] entries;
    reg         counts;
    reg  [31:0] sum;
    always_comb begin
        sum = '0;
        for (int w = 0; w < WAYS; w++) sum = sum + way_entries[w];
    end
    always_ff @(posedge clk) begin
        entries <= sum;
        counts  <= !clear;
        if (clear) too_many <= 1'b0;
        else if (counts && entries > entries_max) too_many <= 1'b1;
    end

    reg has_number;
    always_ff @(posedge clk) begin
        if (clear) begin
            settled    <= '0;
            done       <= 1'b0;
            failed     <= 1'b0;
            has_number <= 1'b0;
        end else begin
            if (!quiet) settled <= '0;
            else if (settled != 3'd7) settled <= settled + 1'b1;
            failed <= halt;
            // The entry's number in its way, while the decoder's count still agrees with the ring.
            if (twice && !has_number) begin
                has_number  <= 1'b1;
                twice_entry <= entry_number[twice_way];
            end
            if (halt) done <= (&decoder_done) && fetch_idle && w_idle;
            else done <= settled == 3'd7 && w_empty && w_idle && !side_valid;
        end
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk)
        if (!clear) begin
            a_nothing_is_left : assert (!(done && !failed) || (&key_empty));
        end
    c_all_ways_half_full : cover property (@(posedge clk) &key_half_full);
    c_memory_waits : cover property (@(posedge clk) w_valid && !w_ready);
    c_side_waits : cover property (@(posedge clk) side_valid && !side_ready);
`endif
endmodule
`default_nettype wire
