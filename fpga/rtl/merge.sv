// The tournament. Keys of all ways are compared word by word, all matches of a round at once.
//
// A word carries a code: how many bytes of the key it has, or 9 if more words follow. So a key that is another's
// prefix comes first. The trailers come behind the keys, complemented, since the newest version comes first. Ways that
// lose a word are out of the entry; what the others have is the winner's word, and goes on at once. So an entry takes
// a cycle a word, however many ways there are.
//
// Two ways that are still there behind the trailer have one internal key: an error.
`default_nettype none
module merge #(
    parameter WAYS  = 4,
    parameter WBITS = 2
) (
    input  wire                  clk,
    input  wire                  clear,
    input  wire                  halt,
    input  wire [WAYS-1:0]       empty,
    input  wire [WAYS-1:0]       done,
    input  wire [WAYS-1:0][67:0] word,
    input  wire [WAYS-1:0][13:0] value_bytes,
    output wire [WAYS-1:0]       step,
    output wire [WAYS-1:0]       rewind,
    output wire [WAYS-1:0]       pop,
    // The winner's words: the key's, then its trailer.
    output reg                   out_valid,
    input  wire                  out_ready,
    output reg  [63:0]           out_word,
    output reg  [3:0]            out_code,
    output reg                   out_trailer,
    output reg  [13:0]           out_value_bytes,
    output reg  [WBITS-1:0]      out_way,
    output reg                   finished,
    output reg                   twice,
    output reg  [WBITS-1:0]      twice_way
);
    reg              first, at_trailer;
    reg  [WAYS-1:0]  alive;
    wire [WAYS-1:0]  in = first ? ~empty : alive;

    // The matches: less[v][w] says that the word of v comes before that of w.
    wire [WAYS-1:0][WAYS-1:0] less;
    for (genvar v = 0; v < WAYS; v++) begin : g_v
        assign less[v][v] = 1'b0;
        for (genvar w = v + 1; w < WAYS; w++) begin : g_w
            assign less[v][w] = word[v] < word[w];
            assign less[w][v] = word[w] < word[v];
        end
    end
    wire [WAYS-1:0] left;
    for (genvar w = 0; w < WAYS; w++) begin : g_left
        wire [WAYS-1:0] beats;
        for (genvar v = 0; v < WAYS; v++) begin : g_beats
            assign beats[v] = in[v] && less[v][w];
        end
        assign left[w] = in[w] && beats == 0;
    end

    // The first of those that are left wins: they are all equal. A second one is an error behind the trailer.
    wire [WAYS-1:0] rest = left & (left - 1'b1);
    wire            has_second = rest != 0;
    reg [WBITS-1:0] winner, second;
    reg [67:0]      best;
    always_comb begin
        winner = '0;
        second = '0;
        best   = '0;
        for (int w = WAYS - 1; w >= 0; w--) begin
            if (left[w]) winner = w[WBITS-1:0];
            if (rest[w]) second = w[WBITS-1:0];
            if (left[w] && !rest[w]) best = best | word[w];
        end
    end

    // An entry begins when each way has one, or will have none.
    wire all_there = (empty & ~done) == 0 && !(&empty);
    wire go = !halt && !twice && (first ? all_there : 1'b1) && (!out_valid || out_ready);
    wire ends = go && at_trailer;

    for (genvar w = 0; w < WAYS; w++) begin : g_out
        assign step[w]   = go && !at_trailer && left[w];
        assign pop[w]    = ends && winner == w && !has_second;
        assign rewind[w] = ends;
    end

    always_ff @(posedge clk) begin
        if (clear) begin
            first      <= 1'b1;
            at_trailer <= 1'b0;
            out_valid  <= 1'b0;
            twice      <= 1'b0;
            finished   <= 1'b0;
        end else begin
            if (out_ready) out_valid <= 1'b0;
            if (go) begin
                out_valid   <= !(at_trailer && has_second);
                out_word    <= best[67:4];
                out_code    <= best[3:0];
                out_trailer <= at_trailer;
                out_value_bytes <= value_bytes[winner];
                out_way     <= winner;
                alive       <= left;
                first       <= at_trailer;
                at_trailer  <= !at_trailer && best[3:0] != 4'd9;
                if (at_trailer && has_second) begin
                    twice     <= 1'b1;
                    twice_way <= second;
                end
            end
            finished <= first && (&done) && (&empty);
        end
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk)
        if (!clear && go) begin
            a_somebody_wins : assert (left != 0);
            a_winners_were_in : assert ((left & ~in) == 0);
            for (int v = 0; v < WAYS; v++)
                for (int w = 0; w < WAYS; w++) a_equal_words : assert (!(left[v] && left[w]) || word[v] == word[w]);
        end
    c_four_equal_words : cover property (@(posedge clk) go && (&left));
    c_twice : cover property (@(posedge clk) twice);
`endif
endmodule
`default_nettype wire
