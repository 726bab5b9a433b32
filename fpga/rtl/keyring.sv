// The ring buffer of a way's keys. An entry is its key's words and then its trailer.
//
// Values are not here: they wait in the way's other ring, and only keys move to the comparator. Words are written one
// by one, and an entry counts from its commit on. The reader sees one word of the first entry in a register. `step`
// goes on, `rewind` goes back to the entry's start (the way has lost), `pop` goes behind it (the way has won). The word
// behind the current one is always on its way, so the tournament's result only chooses between two words.
`default_nettype none
module keyring #(
    parameter WIDTH = 68,
    parameter LOG   = 5
) (
    input  wire             clk,
    input  wire             clear,
    input  wire             wr,
    input  wire [WIDTH-1:0] wdata,
    input  wire             commit,
    input  wire [13:0]      value_bytes,
    input  wire             step,
    input  wire             rewind,
    input  wire             pop,
    output reg  [WIDTH-1:0] rdata,
    output wire [13:0]      first_value_bytes,
    output wire             empty,
    output reg              ready,
    output reg              half_full,
    output wire [LOG-1:0]   entries
);
    localparam DEPTH = 1 << LOG;

    reg [WIDTH-1:0] mem[0:DEPTH-1];
    reg [LOG:0] wptr, head, at;
    wire [LOG:0] used = wptr - head;
    wire meta_empty, meta_full, meta_high;
    reg [LOG-1:0] count;

    // An entry has two words at least, so half as many value lengths suffice.
    fifo #(.WIDTH(14), .LOG(LOG - 1)) value_lengths (
        .clk, .clear,
        .wr(commit), .wdata(value_bytes), .rd(pop), .rdata(first_value_bytes), .empty(meta_empty), .full(meta_full), .high(meta_high)
    );

    reg  [WIDTH-1:0] first_word;
    reg              at_first;
    wire [WIDTH-1:0] ahead = mem[at[LOG-1:0]];

    assign empty   = count == 0;
    assign entries = count;

    always_ff @(posedge clk) if (wr) mem[wptr[LOG-1:0]] <= wdata;

    // `at` is the word behind `rdata`, or the first one while no entry is `ready`.
    always_ff @(posedge clk) begin
        if (clear) begin
            wptr  <= '0;
            head  <= '0;
            at    <= '0;
            count <= '0;
            ready <= 1'b0;
            half_full <= 1'b0;
        end else begin
            half_full <= used >= DEPTH / 2;
            if (wr) wptr <= wptr + 1'b1;
            if (commit && !pop) count <= count + 1'b1;
            else if (pop && !commit) count <= count - 1'b1;
            if (pop) begin
                head  <= at;
                ready <= count > 1;
                if (count > 1) at <= at + 1'b1;
            end else if (rewind && ready) at <= head + 1'b1;
            else if (step && ready) at <= at + 1'b1;
            else if (!ready && !empty) begin
                ready <= 1'b1;
                at    <= at + 1'b1;
            end
        end
        if (step && at_first) first_word <= rdata;
        if (step) at_first <= 1'b0;
        if (!ready || rewind) at_first <= 1'b1;
        if (rewind && !pop && ready) rdata <= first_word;
        else if (step || pop || !ready) rdata <= ahead;
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk)
        if (!clear) begin
            a_no_overflow : assert (!wr || used < DEPTH);
            a_pop_of_an_entry : assert (!pop || (ready && !empty));
            a_one_length_each : assert (meta_empty == (count == 0) && !(meta_full && commit));
        end
`endif
endmodule
`default_nettype wire
