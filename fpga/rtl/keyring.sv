// The ring buffer of a way's keys. An entry is its key's words and then its trailer.
//
// Values are not here: they wait in the way's other ring, and only keys move to the comparator. Words are written one
// by one, and an entry counts from its commit on. The reader walks over the first entry: `step` goes on, `rewind` goes
// back to the entry's start (the way has lost), `pop` goes behind it (the way has won).
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
    output wire [WIDTH-1:0] rdata,
    output wire [13:0]      first_value_bytes,
    output wire             empty,
    output wire             half_full,
    output wire [LOG-1:0]   entries
);
    localparam DEPTH = 1 << LOG;

    reg [WIDTH-1:0] mem[0:DEPTH-1];
    reg [LOG:0] wptr, head, at;
    wire [LOG:0] used = wptr - head;
    wire meta_empty, meta_full;
    reg [LOG-1:0] count;

    // An entry has two words at least, so half as many value lengths suffice.
    fifo #(.WIDTH(14), .LOG(LOG - 1)) value_lengths (
        .clk, .clear,
        .wr(commit), .wdata(value_bytes), .rd(pop), .rdata(first_value_bytes), .empty(meta_empty), .full(meta_full)
    );

    assign rdata     = mem[at[LOG-1:0]];
    assign empty     = count == 0;
    assign half_full = used >= DEPTH / 2;
    assign entries   = count;

    always_ff @(posedge clk) if (wr) mem[wptr[LOG-1:0]] <= wdata;

    always_ff @(posedge clk) begin
        if (clear) begin
            wptr  <= '0;
            head  <= '0;
            at    <= '0;
            count <= '0;
        end else begin
            if (wr) wptr <= wptr + 1'b1;
            if (pop) begin
                head <= at + 1'b1;
                at   <= at + 1'b1;
            end else if (rewind) at <= head;
            else if (step) at <= at + 1'b1;
            if (commit && !pop) count <= count + 1'b1;
            else if (pop && !commit) count <= count - 1'b1;
        end
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk)
        if (!clear) begin
            a_no_overflow : assert (!wr || used < DEPTH);
            a_pop_of_an_entry : assert (!pop || !empty);
            a_one_length_each : assert (meta_empty == (count == 0) && !(meta_full && commit));
        end
`endif
endmodule
`default_nettype wire
