// The tournament. Keys of all ways are compared word by word, all matches of a round at once.
//
// A word carries a code: how many bytes of the key it has, or 9 if more words follow. So a key that is another's
// prefix comes first. The trailers come behind the keys, complemented, since the newest version comes first. Ways that
// lose a word are out of the entry; what the others have is the winner's word, and goes on at once. So an entry takes
// a cycle a word, however many ways there are.
//
// The rings move behind an entry. If one way is left before the trailer, it is the winner, and they move in the
// trailer's cycle. If several are left, they have versions of one key: the trailers decide, and the rings move a cycle
// later, from a register. So no comparison reaches a ring in its own cycle.
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
    input  wire [WAYS-1:0]       ready,
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
    output wire [63:0]           out_word,
    output wire [3:0]            out_code,
    output reg                   out_trailer,
    output wire [13:0]           out_value_bytes,
    output wire [WBITS-1:0]      out_way,
    output reg                   finished,
    output reg                   twice,
    output reg  [WBITS-1:0]      twice_way
);
    // `sole`: one way is left. `ending`: the trailers have decided, and the rings move.
    reg              first, at_trailer, sole, ending;
    reg  [WAYS-1:0]  alive;
    wire [WAYS-1:0]  in = first ? ready : alive;

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
    wire [WAYS-1:0] best;
    wire [WAYS-1:0] goes_on;
    for (genvar w = 0; w < WAYS; w++) begin : g_best
        if (w == 0) begin : g_first
            assign best[w] = left[w];
        end else begin : g_other
            assign best[w] = left[w] && left[w-1:0] == 0;
        end
        assign goes_on[w] = left[w] && word[w][3:0] == 4'd9;
    end
    wire [WAYS-1:0] rest = left & ~best;

    // The way of the second one, for the error's place.
    reg [WAYS-1:0] twice_rest;
    always_comb begin
        twice_way = '0;
        for (int w = WAYS - 1; w >= 0; w--) if (twice_rest[w]) twice_way = w[WBITS-1:0];
    end

    // The winner's word is chosen one cycle later, from registers.
    reg [WAYS-1:0][67:0] out_words;
    reg [WAYS-1:0][13:0] out_lengths;
    reg [WAYS-1:0]       out_best;
    reg [81:0]           chosen;
    reg [WBITS-1:0]      chosen_way;
    always_comb begin
        chosen     = '0;
        chosen_way = '0;
        for (int w = 0; w < WAYS; w++)
            if (out_best[w]) begin
                chosen     = chosen | {out_lengths[w], out_words[w]};
                chosen_way = chosen_way | w[WBITS-1:0];
            end
    end
    assign {out_value_bytes, out_word, out_code} = chosen;
    assign out_way = chosen_way;

    // An entry begins when each way has one, or will have none.
    wire [WAYS-1:0] none = done & empty & ~ready;
    wire all_there = (&(ready | none)) && (|ready);
    wire go = !halt && !twice && !ending && (all_there || !first) && (!out_valid || out_ready);
    wire ends = go && at_trailer && sole;

    for (genvar w = 0; w < WAYS; w++) begin : g_out
        assign step[w]   = go && !at_trailer;
        assign pop[w]    = (ends && alive[w]) || (ending && out_best[w]);
        assign rewind[w] = ends || ending;
    end

    always_ff @(posedge clk) begin
        if (clear) begin
            first      <= 1'b1;
            at_trailer <= 1'b0;
            out_valid  <= 1'b0;
            twice      <= 1'b0;
            finished   <= 1'b0;
            ending     <= 1'b0;
        end else begin
            if (out_ready) out_valid <= 1'b0;
            ending <= go && at_trailer && !sole;
            if (ends || ending) first <= 1'b1;
            else if (go) first <= 1'b0;
            if (go) begin
                out_valid   <= 1'b1;
                out_trailer <= at_trailer;
                alive       <= left;
                sole        <= rest == 0;
                at_trailer  <= !at_trailer && goes_on == 0;
                twice       <= at_trailer && rest != 0;
            end
            finished <= first && (&none);
        end
        if (go) begin
            out_words   <= word;
            out_lengths <= value_bytes;
            out_best    <= best;
            twice_rest  <= rest;
        end
    end

`ifndef SYNTHESIS
    always_ff @(posedge clk)
        if (!clear && go) begin
            a_one_wins : assert (left != 0);
            a_winners_were_in : assert ((left & ~in) == 0);
            a_the_sole_one_wins : assert (!ends || best == alive);
            for (int v = 0; v < WAYS; v++)
                for (int w = 0; w < WAYS; w++) a_equal_words : assert (!(left[v] && left[w]) || word[v] == word[w]);
        end
    c_four_equal_words : cover property (@(posedge clk) go && (&left));
    c_twice : cover property (@(posedge clk) twice);
`endif
endmodule
`default_nettype wire
