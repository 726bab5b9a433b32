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

    // An entry begins when each way has one, or will have none. The latter stays so until the task ends.
    reg  [WAYS-1:0] none;
    always_ff @(posedge clk) none <= clear ? '0 : done & empty & ~ready;
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
`ifndef FORMAL
            for (int v = 0; v < WAYS; v++)
                for (int w = 0; w < WAYS; w++) a_equal_words : assert (!(left[v] && left[w]) || word[v] == word[w]);
`endif
        end
`endif
`ifdef FORMAL
    // Proved: the entry that leaves is the least of all that were there. `f_a` and `f_b` are any two ways; `f_less` and
    // `f_more` compare the words that they have shown since the entry began, of which the first that differ count.
    reg  f_less, f_more, f_both, f_begun = 1'b0;
    (* anyconst *) wire [WBITS-1:0] f_a;
    (* anyconst *) wire [WBITS-1:0] f_b;
    wire f_is_both = first ? ready[f_a] && ready[f_b] : f_both;
    wire f_is_less = first ? word[f_a] < word[f_b] : f_less || (!f_more && word[f_a] < word[f_b]);
    wire f_is_more = first ? word[f_b] < word[f_a] : f_more || (!f_less && word[f_b] < word[f_a]);
    wire f_at_end  = ends || ending;
    always_ff @(posedge clk) begin
        f_begun <= 1'b1;
        assume (f_begun || clear);
        assume (f_a != f_b);
        if (go) {f_both, f_less, f_more} <= {f_is_both, f_is_less, f_is_more};
        if (f_begun) begin
            p_one_leaves : assert ((pop & (pop - 1'b1)) == 0 && (pop != 0) == f_at_end);
            p_all_go_back : assert (rewind == {WAYS{f_at_end}});
            p_the_least_leaves_at_once : assert (!(ends && f_is_both && f_is_less && pop[f_b]));
            p_the_least_leaves_later : assert (!(ending && f_both && f_less && pop[f_b]));
            p_twice_is_equal : assert (!(ending && !twice && f_both && !f_less && !f_more && (pop[f_a] || pop[f_b])));
            // Why it is so.
            p_alive : assert (first || ending || alive != 0);
            p_sole : assert (first || !sole || (alive & (alive - 1'b1)) == 0);
            p_several : assert (first || sole || (alive & (alive - 1'b1)) != 0);
            p_losers : assert (first || !(f_both && f_less && alive[f_b]) && !(f_both && f_more && alive[f_a]));
            p_equals : assert (first || !f_both || f_less || f_more || alive[f_a] == alive[f_b]);
            p_there : assert (first || !(alive[f_a] && alive[f_b]) || f_both);
            p_order : assert (first || !(f_less && f_more));
            p_trailer : assert (!at_trailer || !first);
            p_ending : assert (!ending || (!first && !at_trailer && (out_best & (out_best - 1'b1)) == 0
                && out_best != 0 && (out_best & ~alive) == 0 && out_trailer));
        end
    end
`else
`ifndef SYNTHESIS
    c_four_equal_words : cover property (@(posedge clk) go && (&left));
    c_several_versions : cover property (@(posedge clk) ending);
    c_twice : cover property (@(posedge clk) twice);
`endif
`endif
endmodule
`default_nettype wire
